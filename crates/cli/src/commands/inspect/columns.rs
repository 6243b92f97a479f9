//! The columns of a columnar SST: encodings, bits a row, dictionary, zones.

use mycelium::{ColumnType, Datum};
use mycelium_sst::{ColumnFigures, PageBytes, SstFile};
use serde_json::{Value, json};

use super::RowText;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Characters of a bound of a zone that are shown as text.
const SHOWN: usize = 24;

/// Shows a line for keys, sequence numbers and each column; nothing of a file of rows.
pub(super) fn show(file: &SstFile, rows: &RowText, out: &mut Output) -> Result<(), Failure> {
    let Some(figures) = file.column_figures()? else { return Ok(()) };
    for (part, pages) in [("keys", figures.keys), ("sequence numbers", figures.trailers)] {
        if out.is_json() {
            out.object(&json!({ "part": part, "bytes": pages.bytes, "bits_per_row": rounded(pages) }))?;
        } else {
            out.line(format_args!("{part:<24}  {:>9.2} bits a row", pages.bits_per_row()))?;
        }
    }
    for column in &figures.columns {
        let name = rows.schema().and_then(|schema| schema.columns().get(column.column));
        let name = name.filter(|column| !column.is_dropped());
        let name = name.map_or_else(|| format!("column {}", column.column), |column| column.name.clone());
        if out.is_json() {
            out.object(&as_json(&name, column))?;
        } else {
            out.line(as_text(&name, column))?;
        }
    }
    Ok(())
}

fn rounded(pages: PageBytes) -> f64 {
    (pages.bits_per_row() * 1000.0).round() / 1000.0
}

fn text(value: &Datum, kind: &ColumnType) -> String {
    value.borrowed().display_as(kind).to_string()
}

fn as_json(name: &str, column: &ColumnFigures) -> Value {
    let bound = |value: Option<&Datum>| value.map(|value| text(value, &column.kind));
    json!({
        "column": name,
        "type": column.kind.to_string(),
        "encodings": column.encodings,
        "bytes": column.pages.bytes,
        "bits_per_row": rounded(column.pages),
        "dictionary_values": column.dictionary.map(|dictionary| dictionary.values),
        "dictionary_bytes": column.dictionary.map(|dictionary| dictionary.bytes),
        "zone_map_bytes": column.zone_map_bytes,
        "nulls": column.nulls,
        "distinct_estimate": column.distinct,
        "least": bound(column.bounds.as_ref().map(|(least, _)| least)),
        "greatest": bound(column.bounds.as_ref().map(|(_, greatest)| greatest)),
    })
}

fn as_text(name: &str, column: &ColumnFigures) -> String {
    let encodings = column.encodings.iter().map(|(encoding, pages)| format!("{encoding} {pages}"));
    let encodings = encodings.collect::<Vec<_>>().join(", ");
    let dictionary = column.dictionary.map_or_else(String::new, |dictionary| {
        format!("  dictionary of {} in {}", units::count(dictionary.values), units::bytes(dictionary.bytes))
    });
    let zone = match &column.bounds {
        Some((least, greatest)) => {
            format!("{} to {}", cut(&text(least, &column.kind)), cut(&text(greatest, &column.kind)))
        }
        None => "no values".to_owned(),
    };
    let distinct = column.distinct.map(|distinct| format!(", about {} different", units::count(distinct)));
    let distinct = distinct.unwrap_or_default();
    format!(
        "{name:<24}  {:>9.2} bits a row  {}  pages: {encodings}{dictionary}  zones in {}: {zone}, {} nulls{distinct}",
        column.pages.bits_per_row(),
        column.kind,
        units::bytes(column.zone_map_bytes),
        units::count(column.nulls)
    )
}

/// A value, its end left out if it is long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
