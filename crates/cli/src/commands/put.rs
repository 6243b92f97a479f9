//! `mycelium put`: writes one row, or patches columns of it.

use mycelium::{Datum, DatumRef, ReadOptions, Schema, Table, WriteBatch};
use serde_json::json;

use super::{borrowed, column, durability, open_to_write, table, value};
use crate::args::PutArgs;
use crate::failure::Failure;
use crate::output::{Output, unescape_bytes};

/// Writes the row and prints its sequence number.
pub(crate) fn run(args: &PutArgs, out: &mut Output) -> Result<(), Failure> {
    let database = open_to_write(&args.at.database, false)?;
    let table = table(&database, &args.at.table)?;
    let mut batch = WriteBatch::new();
    let is_there = match table.schema().cloned() {
        Some(schema) => add_row(&mut batch, &table, &schema, args)?,
        None => add_bytes(&mut batch, &table, args)?,
    };
    if !is_there {
        database.close()?;
        if out.is_json() {
            out.object(&json!({ "sequence": null, "found": false }))?;
        }
        return Err(Failure::negative("there is no such row").hint("without --patch it is made"));
    }
    let sequence = database.write(&batch, durability(args.durability))?;
    database.close()?;
    if out.is_json() && args.patch {
        out.object(&json!({ "sequence": sequence, "found": true }))
    } else if out.is_json() {
        out.object(&json!({ "sequence": sequence }))
    } else {
        out.line(format_args!("written as sequence number {sequence}"))
    }
}

/// Adds the pair; always `true`.
fn add_bytes(batch: &mut WriteBatch, table: &Table, args: &PutArgs) -> Result<bool, Failure> {
    let [key, value] = args.values.as_slice() else {
        return Err(Failure::usage("rows of this table are bytes: give KEY VALUE"));
    };
    if args.patch {
        return Err(Failure::usage("--patch is for typed tables; rows of this one are bytes"));
    }
    batch.put(table, &unescape_bytes(key)?, &unescape_bytes(value)?);
    Ok(true)
}

/// Adds the row or the patch; `false` if there is no row to patch.
fn add_row(batch: &mut WriteBatch, table: &Table, schema: &Schema, args: &PutArgs) -> Result<bool, Failure> {
    let mut given: Vec<Option<Datum>> = vec![None; schema.columns().len()];
    for text in &args.values {
        let Some((name, text)) = text.split_once('=') else {
            return Err(Failure::usage(format!("{text:?} is not COLUMN=VALUE")));
        };
        let at = column(schema, name)?;
        if given[at].replace(value(schema, at, text)?).is_some() {
            return Err(Failure::usage(format!("column {name} is given twice")));
        }
    }
    let lacking = schema.primary_key().iter().find(|&&column| given[column].is_none());
    if let Some(&lacking) = lacking {
        return Err(Failure::usage(format!("the key column {} is not given", schema.columns()[lacking].name)));
    }
    if !args.patch {
        let columns = schema.columns().iter();
        let left_out = columns.map(|column| column.default_value().to_datum());
        let row: Vec<Datum> =
            given.into_iter().zip(left_out).map(|(value, default)| value.unwrap_or(default)).collect();
        batch.insert_row(table, &borrowed(&row))?;
        return Ok(true);
    }
    let key: Vec<DatumRef<'_>> =
        schema.primary_key().iter().filter_map(|&column| given[column].as_ref().map(Datum::borrowed)).collect();
    let changes: Vec<(&str, DatumRef<'_>)> = given
        .iter()
        .enumerate()
        .filter(|(column, _)| !schema.is_primary_key(*column))
        .filter_map(|(column, value)| Some((schema.columns()[column].name.as_str(), value.as_ref()?.borrowed())))
        .collect();
    if changes.is_empty() {
        return Err(Failure::usage("no column outside the key is given: there is nothing to patch"));
    }
    batch.patch_row(table, &key, &changes)?;
    Ok(table.get_row(&key, None, &ReadOptions::default())?.is_some())
}
