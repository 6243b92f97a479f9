//! What indexes answer, compared with what the rows of their table say.

use std::ops::Bound;

use mycelium_base::{Error, Result};
use mycelium_encoding::{Datum, DatumRef, key};
use mycelium_engine::{Index, Snapshot, Table};

use crate::store::Row;

/// A row as an index must give it: its key, and all its columns.
type Expected = (Vec<u8>, Vec<Datum>);

/// Every index of `table` must find `rows`, which are all there are at the snapshot, packed: all of them, each by its
/// values, and some by a range; with all columns and with those that the index holds itself.
pub(crate) fn check_indexes(table: &Table, rows: &[Row], snapshot: Option<&Snapshot>) -> Result<()> {
    for index in table.indexes() {
        check_index(table, &index, rows, snapshot)
            .map_err(|what| Error::invalid(format!("index {} (built: {}): {what}", index.name(), index.is_built())))?;
    }
    Ok(())
}

fn check_index(table: &Table, index: &Index, rows: &[Row], snapshot: Option<&Snapshot>) -> Result<()> {
    let mut expected = rows.iter().map(|row| all_columns(table, row)).collect::<Result<Vec<_>>>()?;
    let values = |row: &Expected| -> Vec<Datum> { index.on().iter().map(|&column| row.1[column].clone()).collect() };
    expected.sort_by(|a, b| compare(&values(a), &values(b)).then_with(|| a.0.cmp(&b.0)));
    let all = (Bound::Unbounded, Bound::Unbounded);
    compare_rows("all rows", &expected, index.range(all, None, snapshot)?, None)?;
    let schema = table.schema().map(|schema| schema.columns().len()).unwrap_or_default();
    let held: Vec<usize> = (0..schema)
        .filter(|column| *column == 0 || index.on().contains(column) || index.cover().contains(*column))
        .collect();
    compare_rows("held columns", &expected, index.range(all, Some(&held), snapshot)?, Some(&held))?;
    // Some values by themselves, and the range between two of them.
    for at in (0..expected.len()).step_by(expected.len() / 3 + 1) {
        let wanted = values(&expected[at]);
        let same: Vec<Expected> = expected.iter().filter(|row| values(row) == wanted).cloned().collect();
        let borrowed: Vec<DatumRef<'_>> = wanted.iter().map(Datum::borrowed).collect();
        compare_rows("a point", &same, index.get(&borrowed, Some(&held), snapshot)?, Some(&held))?;
        let above: Vec<Expected> =
            expected.iter().filter(|row| compare(&values(row)[..1], &wanted[..1]).is_gt()).cloned().collect();
        let range = (Bound::Excluded(&borrowed[..1]), Bound::Unbounded);
        compare_rows("a range", &above, index.range(range, None, snapshot)?, None)?;
    }
    Ok(())
}

fn all_columns(table: &Table, (key, value): &Row) -> Result<Expected> {
    let layout = table.packed_layout()?;
    let (schema, row) = (layout.schema(), layout.row(value)?);
    let primary = key::decode_key(schema, key)?;
    let mut values = Vec::with_capacity(schema.columns().len());
    for column in 0..schema.columns().len() {
        values.push(match schema.primary_key().iter().position(|&key| key == column) {
            Some(at) => primary[at].clone(),
            None => row.datum(column)?.map_or(Datum::Null, |datum| datum.to_datum()),
        });
    }
    Ok((key.clone(), values))
}

/// The order of an index: nulls first.
fn compare(a: &[Datum], b: &[Datum]) -> std::cmp::Ordering {
    let borrowed = |values: &[Datum]| -> Vec<(bool, String)> { values.iter().map(order_of).collect() };
    borrowed(a).cmp(&borrowed(b))
}

/// Text that is ordered as the values of one column are; written apart from the engine's codes.
fn order_of(value: &Datum) -> (bool, String) {
    let text = match value {
        Datum::Null => return (false, String::new()),
        Datum::Bool(v) => u8::from(*v).to_string(),
        Datum::Int16(v) => format!("{:010}", i64::from(*v) + 100_000),
        Datum::Int64(v) => format!("{:040}", i128::from(*v) + (1 << 80)),
        Datum::Decimal128(v) => format!("{:040}", v + (1 << 100)),
        Datum::Utf8(v) => hex(v.as_bytes()),
        Datum::Binary(v) => hex(v),
        other => format!("{other:?}"),
    };
    (true, text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn compare_rows(
    what: &str,
    expected: &[Expected],
    found: mycelium_engine::IndexRows,
    projection: Option<&[usize]>,
) -> Result<()> {
    let mut wanted = expected.iter();
    let mut at = 0;
    for row in found {
        let row = row?;
        let Some((key, values)) = wanted.next() else {
            return Err(Error::invalid(format!("{what}: row {at} is too many: {row:?}")));
        };
        let values: Vec<Datum> = match projection {
            None => values.clone(),
            Some(columns) => columns.iter().map(|&column| values[column].clone()).collect(),
        };
        if row.key != *key || row.values != values {
            return Err(Error::invalid(format!("{what}: row {at}: expected {key:?} {values:?}, found {row:?}")));
        }
        at += 1;
    }
    match wanted.next() {
        None => Ok(()),
        Some(row) => Err(Error::invalid(format!("{what}: row {at} is missing: {row:?}"))),
    }
}
