//! Every format against every other, and against cells in vectors.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Combiner};
use mycelium_encoding::row_format::{Covers, Cuts, RowFormat, RowFormatKind, RowScratch, RowSplitter};
use mycelium_encoding::{ColumnState, ColumnType, Datum, PatchCombiner, RecordBatchBuilder, RowPart, Schema, key};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::drawing::{Cells, assert_same, cells, for_seeds, formats, read, schema, stored};

fn value_columns(schema: &Schema) -> Vec<usize> {
    schema.value_columns().iter().collect()
}

fn drawn_set(rng: &mut SmallRng, schema: &Schema) -> ColumnSet {
    value_columns(schema).into_iter().filter(|_| rng.random()).collect()
}

fn convert(from: &RowFormat, to: &RowFormat, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    from.convert(to, value, None, &mut RowScratch::default(), &mut out).unwrap();
    out
}

fn project(format: &RowFormat, value: &[u8], columns: &ColumnSet) -> Vec<u8> {
    let mut out = Vec::new();
    format.project(value, columns, &mut RowScratch::default(), &mut out).unwrap();
    out
}

fn overlay(format: &RowFormat, newer: &[u8], older: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    format.overlay(newer, older, &mut RowScratch::default(), &mut out).unwrap();
    out
}

fn only(cells: &Cells, columns: &ColumnSet) -> Cells {
    cells.iter().enumerate().map(|(column, cell)| cell.clone().filter(|_| columns.contains(column))).collect()
}

#[test]
fn rows_and_patches_are_the_same_in_every_format() {
    for_seeds(1_500, |rng| {
        let schema = schema(rng);
        let formats = formats(rng, &schema);
        let whole = rng.random();
        let cells = cells(rng, &schema, whole);
        let values: Vec<Vec<u8>> = formats.iter().map(|format| stored(format, &cells)).collect();
        for (from, value) in formats.iter().zip(&values) {
            from.validate(value).unwrap();
            assert_same(&read(from, value).unwrap(), &cells);
            for (to, expected) in formats.iter().zip(&values) {
                let there = convert(from, to, value);
                assert_eq!(&there, expected, "{from:?} to {to:?}");
                assert_eq!(&convert(to, from, &there), value, "{from:?} to {to:?} and back");
            }
        }
    });
}

#[test]
fn splitting_and_merging_give_the_row_again() {
    for_seeds(1_000, |rng| {
        let schema = schema(rng);
        let whole = rng.random();
        let cells = cells(rng, &schema, whole);
        let (left, coarse) = (drawn_set(rng, &schema), drawn_set(rng, &schema));
        let right: ColumnSet = value_columns(&schema).into_iter().filter(|&c| !left.contains(c)).collect();
        for format in formats(rng, &schema) {
            let value = stored(&format, &cells);
            let (a, b) = (project(&format, &value, &left), project(&format, &value, &right));
            assert_same(&read(&format, &a).unwrap(), &only(&cells, &left));
            assert_eq!(a, stored(&format, &only(&cells, &left)), "{format:?}");
            assert_eq!(overlay(&format, &a, &b), value, "{format:?}");
            assert_eq!(overlay(&format, &b, &a), value, "{format:?}");
            // In one step or in two.
            let fine = left.intersection(&coarse);
            let twice = project(&format, &project(&format, &value, &coarse), &fine);
            assert_eq!(twice, project(&format, &value, &fine), "{format:?}");
        }
    });
}

#[test]
fn all_parts_at_once_are_what_each_is_by_itself() {
    let mut cut = 0;
    for_seeds(2_000, |rng| {
        let schema = schema(rng);
        let whole = rng.random();
        let cells = cells(rng, &schema, whole);
        let count = rng.random_range(1..5);
        let mut parts: Vec<Option<ColumnSet>> = (0..count).map(|_| rng.random_bool(0.8).then(ColumnSet::new)).collect();
        for column in value_columns(&schema) {
            // Neighbours often stay together.
            let at = if rng.random() { column * count / schema.columns().len() } else { rng.random_range(0..count) };
            if let Some(part) = &mut parts[at] {
                part.insert(column);
            }
        }
        let mut cuts = Cuts::default();
        for format in formats(rng, &schema) {
            let Some(splitter) = RowSplitter::new(&format, &parts) else { continue };
            // What a part of a part is like, too.
            let value = match rng.random() {
                true => stored(&format, &cells),
                false => project(&format, &stored(&format, &cells), &drawn_set(rng, &schema)),
            };
            let Some(split) = splitter.split(&value, &mut cuts).unwrap() else { continue };
            for (number, part) in parts.iter().enumerate() {
                assert_eq!(split.has_part(number), part.is_some());
                let Some(columns) = part else { continue };
                let (mut at_once, mut alone) = (vec![7], vec![7]);
                let says = split.append(number, &mut at_once);
                let scratch = &mut RowScratch::default();
                let says_alone = format.convert(&format, &value, Some(columns), scratch, &mut alone).unwrap();
                assert_eq!(says, says_alone || columns.is_empty(), "part {number} of {parts:?}");
                if says {
                    assert_eq!(at_once, alone, "part {number} of {parts:?}");
                } else {
                    assert_eq!(at_once, [7]);
                }
                cut += 1;
            }
        }
    });
    assert!(cut > 500, "{cut} parts were cut");
}

#[test]
fn splitting_and_converting_commute() {
    for_seeds(500, |rng| {
        let schema = schema(rng);
        let cells = cells(rng, &schema, true);
        let columns = drawn_set(rng, &schema);
        let formats = formats(rng, &schema);
        for from in &formats {
            let value = stored(from, &cells);
            for to in &formats {
                let mut at_once = Vec::new();
                from.convert(to, &value, Some(&columns), &mut RowScratch::default(), &mut at_once).unwrap();
                assert_eq!(at_once, convert(from, to, &project(from, &value, &columns)));
                assert_eq!(at_once, project(to, &convert(from, to, &value), &columns));
            }
        }
    });
}

#[test]
fn merging_a_patch_is_what_it_is_for_packed_rows() {
    for_seeds(1_000, |rng| {
        let schema = schema(rng);
        let (base, patch) = (cells(rng, &schema, true), cells(rng, &schema, false));
        let formats = formats(rng, &schema);
        let combiner = PatchCombiner::new(formats[0].layout().clone());
        let (packed_base, packed_patch) = (stored(&formats[0], &base), stored(&formats[0], &patch));
        let expected = combiner.apply(b"", Some(&packed_base), &[&packed_patch]).unwrap().unwrap();
        for format in &formats {
            let merged = overlay(format, &stored(format, &patch), &stored(format, &base));
            assert_eq!(convert(format, &formats[0], &merged), expected, "{format:?}");
            format.validate(&merged).unwrap();
        }
    });
}

#[test]
fn users_get_a_payload_that_stores_as_the_same_value() {
    for_seeds(1_000, |rng| {
        let schema = schema(rng);
        let whole = rng.random();
        let cells = cells(rng, &schema, whole);
        for format in formats(rng, &schema) {
            let (mut scratch, mut payload, mut again) = (RowScratch::default(), Vec::new(), vec![1, 2]);
            let value = stored(&format, &cells);
            let said = format.to_user(&value, &mut scratch, &mut payload).unwrap();
            let covers = match whole {
                true => Covers::Row,
                false if !format.takes_patches() => continue,
                false => Covers::Columns(&said.columns),
            };
            format.store(&payload, covers, &said.nulls, &mut scratch, &mut again).unwrap();
            assert_eq!(again[2..], value, "{format:?}");
            if format.kind() == RowFormatKind::Json {
                format.check(&payload, whole).unwrap();
            }
        }
    });
}

#[test]
fn one_column_is_read_without_the_others() {
    for_seeds(300, |rng| {
        let schema = schema(rng);
        let cells = cells(rng, &schema, false);
        for format in formats(rng, &schema) {
            let value = stored(&format, &cells);
            for column in value_columns(&schema) {
                let mut scratch = RowScratch::default();
                let wanted = ColumnSet::from_iter([column]);
                let mut row = format.read(&value, Some(&wanted), &mut scratch).unwrap();
                let found = match row.get(column).unwrap() {
                    ColumnState::Absent => None,
                    ColumnState::Null => Some(Datum::Null),
                    ColumnState::Value(datum) => Some(datum.to_datum()),
                };
                assert_eq!(found, cells[column], "{format:?}");
                for other in value_columns(&schema).into_iter().filter(|&other| other != column) {
                    assert_eq!(row.get(other).unwrap(), ColumnState::Absent);
                }
                assert!(row.get(schema.primary_key()[0]).is_err() && row.get(99).is_err());
            }
        }
    });
}

#[test]
fn definitions_are_read_back() {
    for_seeds(200, |rng| {
        let schema = schema(rng);
        let cells = cells(rng, &schema, true);
        for format in formats(rng, &schema) {
            let mut bytes = Vec::new();
            format.encode_definition(&mut bytes);
            let again = RowFormat::decode_definition(schema.clone(), &bytes).unwrap();
            assert_eq!((again.kind(), again.definition()), (format.kind(), format.definition()));
            assert_eq!(stored(&again, &cells), stored(&format, &cells));
            for cut in 0..bytes.len().min(40) {
                assert!(RowFormat::decode_definition(schema.clone(), &bytes[..cut]).is_err());
            }
        }
    });
}

#[test]
fn arrow_batches_come_from_every_format() {
    let schema = Arc::new(Schema::parse("id int64 not null, a utf8, b float64, c binary, primary key (id)").unwrap());
    for_seeds(20, |rng| {
        let rows: Vec<Cells> = (0..5).map(|_| cells(rng, &schema, true)).collect();
        let mut batches = Vec::new();
        for format in formats(rng, &schema) {
            let builder = || RecordBatchBuilder::new(format.layout().clone(), &[0, 1, 3], 10).unwrap();
            let [mut converted, mut as_stored] = [builder(), builder()];
            let packed = RowFormat::packed(schema.clone());
            let wanted = ColumnSet::from_iter([1, 3]);
            let (mut scratch, mut value) = (RowScratch::default(), Vec::new());
            for (n, cells) in rows.iter().enumerate() {
                let mut key_bytes = Vec::new();
                key::encode_key(&schema, &[Datum::Int64(n as i64).borrowed()], &mut key_bytes).unwrap();
                value.clear();
                let row = stored(&format, cells);
                format.convert(&packed, &row, Some(&wanted), &mut scratch, &mut value).unwrap();
                converted.append(&key_bytes, &value).unwrap();
                as_stored.append_stored(&key_bytes, &row, &format, &mut scratch).unwrap();
            }
            batches.extend([converted, as_stored].map(|mut builder| builder.finish().unwrap()));
        }
        assert!(batches.iter().all(|batch| batch == &batches[0] && batch.num_rows() == 5));
    });
}

/// Column groups in formats of their own, and a patch of some columns over them.
#[test]
fn a_row_in_parts_gives_the_batch_of_the_row() {
    for_seeds(500, |rng| {
        let schema = schema(rng);
        let mut formats = formats(rng, &schema);
        formats.retain(RowFormat::takes_patches);
        let (row, patch) = (cells(rng, &schema, true), cells(rng, &schema, false));
        let left = drawn_set(rng, &schema);
        let groups = [left.clone(), schema.value_columns().difference(&left)];
        let parts: Vec<(RowFormat, ColumnSet, Vec<u8>)> = [(&patch, schema.value_columns())]
            .into_iter()
            .chain(groups.map(|group| (&row, group)))
            .map(|(cells, group)| {
                let format = formats.choose(rng).unwrap().clone();
                let value = stored(&format, &only(cells, &group));
                (format, group, value)
            })
            .collect();
        let projection: Vec<usize> = (0..schema.columns().len()).rev().collect();
        let builder = || RecordBatchBuilder::new(formats[0].layout().clone(), &projection, 10).unwrap();
        let (mut whole, mut in_parts, mut scratch) = (builder(), builder(), RowScratch::default());
        assert!(in_parts.takes_parts());
        let mut key_bytes = Vec::new();
        key::encode_key(&schema, &[Datum::Int64(7).borrowed()], &mut key_bytes).unwrap();
        whole
            .append(&key_bytes, &overlay(&formats[0], &stored(&formats[0], &patch), &stored(&formats[0], &row)))
            .unwrap();
        let all = || parts.iter().map(|(rows, columns, value)| RowPart { rows, columns, value });
        in_parts.append_parts(&key_bytes, all(), &mut scratch).unwrap();
        assert_eq!(whole.finish().unwrap(), in_parts.finish().unwrap());
        let lacks_some = schema.value_columns().iter().any(|column| patch[column].is_none());
        let patch_alone = builder().append_parts(&key_bytes, all().take(1), &mut scratch);
        assert_eq!(patch_alone.is_err(), lacks_some);
    });
}

#[test]
fn a_column_that_is_projected_twice_takes_no_parts() {
    let schema = Arc::new(Schema::parse("id int64 not null, a int64, primary key (id)").unwrap());
    let layout = RowFormat::packed(schema).layout().clone();
    assert!(!RecordBatchBuilder::new(layout, &[1, 0, 1], 10).unwrap().takes_parts());
}

#[test]
fn raw_rows_are_any_bytes() {
    let schema = Arc::new(Schema::parse("k utf8 not null, v binary, primary key (k)").unwrap());
    for_seeds(100, |rng| {
        let formats = formats(rng, &schema);
        assert_eq!(formats.len(), 5);
        let cells = cells(rng, &schema, true);
        for from in &formats {
            let there = convert(from, &formats[4], &stored(from, &cells));
            assert_eq!(there, stored(&formats[4], &cells));
            assert_eq!(convert(&formats[4], from, &there), stored(from, &cells));
        }
    });
    assert_eq!(schema.columns()[1].ty, ColumnType::Binary);
}
