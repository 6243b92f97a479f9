//! Damaged payloads and values: an error with a position, or a valid reading; never a panic.

use mycelium_base::{ColumnSet, ErrorKind};
use mycelium_encoding::row_format::{Covers, RowFormat, RowFormatKind, RowScratch};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::drawing::{assert_same, cells, for_seeds, formats, read, schema, stored};

/// A payload that is refused says where; one that is taken can be read and converted.
fn refused_or_read(format: &RowFormat, packed: &RowFormat, payload: &[u8], whole: bool) -> bool {
    let (mut scratch, mut value) = (RowScratch::default(), Vec::new());
    let covers = if whole { Covers::Row } else { Covers::Said };
    if let Err(error) = format.store(payload, covers, &ColumnSet::new(), &mut scratch, &mut value) {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(value.is_empty());
        let offset = error.offset();
        if format.kind() != RowFormatKind::Packed {
            assert!(offset.is_some_and(|offset| offset <= payload.len() as u64), "{format:?}: {error}");
        }
        assert!(format.check(payload, whole).is_err());
        return false;
    }
    format.check(payload, whole).unwrap();
    format.validate(&value).unwrap_or_else(|error| panic!("{format:?} {payload:02x?}: {error}"));
    let mut converted = Vec::new();
    format.convert(packed, &value, None, &mut scratch, &mut converted).unwrap();
    packed.validate(&converted).unwrap();
    read(format, &value).unwrap();
    true
}

/// A damaged stored value is reported or read, and what is made of it is too.
fn survives(format: &RowFormat, packed: &RowFormat, value: &[u8], intact: &[u8], columns: &ColumnSet) {
    let (mut scratch, mut out) = (RowScratch::default(), vec![9]);
    let valid = format.validate(value);
    let cells = read(format, value);
    assert!(valid.is_err() || cells.is_ok());
    for error in [valid.err(), cells.err()].into_iter().flatten() {
        assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported), "{error}");
        assert!(format.kind() == RowFormatKind::Packed || error.to_string().contains("at byte"), "{error}");
    }
    for attempt in 0..4 {
        out.truncate(1);
        let done = match attempt {
            0 => format.project(value, columns, &mut scratch, &mut out),
            1 => format.overlay(value, intact, &mut scratch, &mut out),
            2 => format.overlay(intact, value, &mut scratch, &mut out),
            _ => format.convert(packed, value, Some(columns), &mut scratch, &mut out).map(drop),
        };
        assert!(done.is_ok() || out.len() == 1, "an error leaves no trace");
    }
}

fn damage(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.push(rng.random());
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..6) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = rng.random(),
        2 => bytes.insert(at, rng.random()),
        3 => drop(bytes.remove(at)),
        4 => bytes[at] = [0, 0x7f, 0x80, 0xff, b'"', b'\\'][rng.random_range(0..6)],
        _ => {
            let end = rng.random_range(at..=bytes.len());
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

#[test]
fn truncated_rows_are_refused_at_a_position_or_read() {
    for_seeds(150, |rng| {
        let schema = schema(rng);
        let cells = cells(rng, &schema, true);
        let columns = (0..schema.columns().len()).filter(|_| rng.random()).collect();
        let formats = formats(rng, &schema);
        for format in &formats {
            let value = stored(format, &cells);
            let mut payload = Vec::new();
            format.to_user(&value, &mut RowScratch::default(), &mut payload).unwrap();
            for cut in 0..payload.len() {
                let read = refused_or_read(format, &formats[0], &payload[..cut], true);
                refused_or_read(format, &formats[0], &payload[..cut], false);
                // Protobuf and raw bytes have no end of their own.
                assert!(!read || matches!(format.kind(), RowFormatKind::Protobuf | RowFormatKind::Raw));
            }
            for cut in 0..value.len() {
                survives(format, &formats[0], &value[..cut], &value, &columns);
            }
        }
    });
}

#[test]
fn damaged_rows_are_refused_at_a_position_or_read() {
    for_seeds(600, |rng| {
        let schema = schema(rng);
        let whole = rng.random();
        let cells = cells(rng, &schema, whole);
        let columns = (0..schema.columns().len()).filter(|_| rng.random()).collect();
        let formats = formats(rng, &schema);
        for format in &formats {
            let value = stored(format, &cells);
            let mut payload = Vec::new();
            format.to_user(&value, &mut RowScratch::default(), &mut payload).unwrap();
            for _ in 0..40 {
                let (mut damaged, mut damaged_value) = (payload.clone(), value.clone());
                for _ in 0..rng.random_range(1..4) {
                    damage(rng, &mut damaged);
                    damage(rng, &mut damaged_value);
                }
                refused_or_read(format, &formats[0], &damaged, whole);
                survives(format, &formats[0], &damaged_value, &value, &columns);
            }
            let random: Vec<u8> = (0..rng.random_range(0..60)).map(|_| rng.random()).collect();
            refused_or_read(format, &formats[0], &random, whole);
            survives(format, &formats[0], &random, &value, &columns);
        }
    });
}

#[test]
fn damaged_definitions_are_refused_or_used() {
    for_seeds(1_500, |rng| {
        let schema = schema(rng);
        for format in formats(rng, &schema) {
            let mut bytes = Vec::new();
            format.encode_definition(&mut bytes);
            for _ in 0..rng.random_range(1..4) {
                damage(rng, &mut bytes);
            }
            let Ok(format) = RowFormat::decode_definition(schema.clone(), &bytes) else { continue };
            let cells = cells(rng, &schema, true);
            assert_same(&read(&format, &stored(&format, &cells)).unwrap(), &cells);
        }
    });
}
