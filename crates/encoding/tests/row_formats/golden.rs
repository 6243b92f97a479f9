//! Golden bytes of stored values: `tests/golden/row-formats-1.txt`, a name and hexadecimal digits a line; and the
//! definitions that they were written with. Written once with `UPDATE_GOLDEN=1` and never overwritten.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mycelium_encoding::row_format::{RowFormat, RowFormatKind};
use mycelium_encoding::{Datum, Schema};

use crate::definitions::{binary_schema, descriptor_set, usual};
use crate::drawing::{Cells, assert_same, read, stored};

const SCHEMA: &str = "k int64 not null, i int32 not null, u uint64, f float64, s utf8, b binary, d decimal(10, 2), \
                      t timestamp(us, \"UTC\"), o bool, primary key (k)";

fn path(name: &str) -> PathBuf {
    Path::new("tests/golden").join(name)
}

fn golden(name: &str, written: &[u8]) -> Vec<u8> {
    let path = path(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !path.exists() {
        std::fs::write(&path, written).unwrap();
    }
    std::fs::read(&path).unwrap()
}

fn row() -> Cells {
    vec![
        None,
        Some(Datum::Int32(-2)),
        Some(Datum::UInt64(u64::MAX)),
        Some(Datum::Float64(0.1)),
        Some(Datum::Utf8("é\"\0".into())),
        Some(Datum::Binary(vec![0, 0xff])),
        Some(Datum::Decimal128(-12_345)),
        Some(Datum::Timestamp(1_500_000)),
        Some(Datum::Bool(true)),
    ]
}

/// A zero, a null, an empty text; the rest absent.
fn patch() -> Cells {
    let mut cells = vec![None; 9];
    (cells[1], cells[2], cells[4]) = (Some(Datum::Int32(0)), Some(Datum::Null), Some(Datum::Utf8(String::new())));
    cells
}

#[test]
fn stored_values_have_their_golden_bytes() {
    let schema = Arc::new(Schema::parse(SCHEMA).unwrap().with_version(3));
    let declared = usual(&schema);
    let set = golden("row-1.protoset", &descriptor_set(&declared));
    let binary = golden("row-1.bfbs", &binary_schema(&declared, Some("ROWS")));
    let raw_schema = Schema::parse("k int64 not null, v binary, primary key (k)").unwrap().with_version(3);
    let raw = RowFormat::raw(Arc::new(raw_schema)).unwrap();
    let formats = [
        RowFormat::packed(schema.clone()),
        RowFormat::json(schema.clone()),
        RowFormat::new(RowFormatKind::Protobuf, schema.clone(), &set, "test.Row").unwrap(),
        RowFormat::new(RowFormatKind::FlatBuffers, schema.clone(), &binary, "test.Row").unwrap(),
    ];
    let mut values = Vec::new();
    for format in &formats {
        values.push((format!("{} row", format.kind()), format, row()));
        values.push((format!("{} patch", format.kind()), format, patch()));
    }
    values.push(("raw row".into(), &raw, vec![None, Some(Datum::Binary(vec![1, 2]))]));
    values.push(("raw null".into(), &raw, vec![None, Some(Datum::Null)]));
    let mut lines = String::new();
    for (name, format, cells) in &values {
        let bytes: String = stored(format, cells).iter().map(|byte| format!("{byte:02x}")).collect();
        lines.push_str(&format!("{name}: {bytes}\n"));
    }
    let kept = String::from_utf8(golden("row-formats-1.txt", lines.as_bytes())).unwrap();
    assert_eq!(lines, kept);
    for ((name, format, cells), line) in values.iter().zip(kept.lines()) {
        let digits = line.strip_prefix(&format!("{name}: ")).unwrap();
        let bytes: Vec<u8> =
            (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
        format.validate(&bytes).unwrap();
        assert_same(&read(format, &bytes).unwrap(), cells);
    }
}
