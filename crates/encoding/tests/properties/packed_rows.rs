//! Packed rows, patches and record batches against plain vectors of cells.

use std::sync::Arc;

use crate::common::{self, Cell, identical, row, states};
use mycelium_base::ColumnSet;
use mycelium_base::{Combiner, ErrorKind};
use mycelium_encoding::key::{decode_key, encode_row_key};
use mycelium_encoding::{
    BatchRows, ColumnState, Datum, DatumRef, PackedLayout, PatchCombiner, RecordBatchBuilder, Schema,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn pack(layout: &PackedLayout, cells: &[Cell]) -> Vec<u8> {
    let mut out = Vec::new();
    layout.encode_patch(&states(cells), &mut out).unwrap();
    out
}

/// The cells a packed value holds; `None` for absent and for the primary key.
fn unpack(layout: &PackedLayout, bytes: &[u8]) -> Vec<Cell> {
    let row = layout.row(bytes).unwrap();
    let schema = layout.schema();
    (0..schema.columns().len())
        .map(|i| if schema.is_primary_key(i) { None } else { row.datum(i).unwrap().map(DatumRef::to_datum) })
        .collect()
}

fn assert_cells(layout: &PackedLayout, bytes: &[u8], expected: &[Cell]) {
    for (column, (found, expected)) in unpack(layout, bytes).iter().zip(expected).enumerate() {
        if layout.schema().is_primary_key(column) {
            continue;
        }
        match (found, expected) {
            (Some(found), Some(expected)) => {
                assert!(identical(found.borrowed(), expected.borrowed()), "column {column}: {found:?} {expected:?}");
            }
            (found, expected) => assert!(found.is_none() && expected.is_none(), "{column}: {found:?} {expected:?}"),
        }
    }
}

/// What the newest of `values` (oldest first) that has a column says, column by column.
fn naive_fold(values: &[Vec<Cell>]) -> Vec<Cell> {
    (0..values[0].len()).map(|column| values.iter().rev().find_map(|cells| cells[column].clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn patches_round_trip(
        (schema, cells) in common::schema(24).prop_flat_map(|s| { let cells = common::cells(&s, false); (Just(s), cells) })
    ) {
        let layout = PackedLayout::new(schema.clone());
        let bytes = pack(&layout, &cells);
        assert_cells(&layout, &bytes, &cells);
        layout.validate(&bytes).unwrap();
        for (column, cell) in cells.iter().enumerate() {
            let bitmap = layout.bitmap_of(&ColumnSet::from_iter([column]));
            let has = !schema.is_primary_key(column) && cell.is_some();
            prop_assert_eq!(layout.has_some(&bytes, &bitmap).unwrap(), has);
            prop_assert!(layout.has_some(&bytes[..1], &bitmap).is_err());
        }
        let whole = (0..cells.len()).all(|i| schema.is_primary_key(i) || cells[i].is_some());
        prop_assert_eq!(layout.row(&bytes).unwrap().is_complete(), whole);
        for cut in 0..bytes.len() {
            prop_assert!(layout.validate(&bytes[..cut]).is_err());
        }
        prop_assert!(layout.validate(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn folding_keeps_the_newest_value_of_each_column(
        (schema, base, patches, split) in common::schema(12).prop_flat_map(|s| {
            let (base, patches) = (common::cells(&s, true), vec(common::cells(&s, false), 2..6));
            (Just(s), base, patches, any::<prop::sample::Index>())
        })
    ) {
        let layout = Arc::new(PackedLayout::new(schema));
        let combiner = PatchCombiner::new(layout.clone());
        let base_bytes = pack(&layout, &base);
        let packed: Vec<Vec<u8>> = patches.iter().map(|p| pack(&layout, p)).collect();
        let operands: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();

        prop_assert_eq!(combiner.apply(b"k", None, &operands).unwrap(), None);
        let applied = combiner.apply(b"k", Some(&base_bytes), &operands).unwrap().unwrap();
        let all: Vec<Vec<Cell>> = [vec![base], patches.clone()].concat();
        assert_cells(&layout, &applied, &naive_fold(&all));
        prop_assert!(layout.row(&applied).unwrap().is_complete());

        let fused = combiner.fuse(b"k", &operands).unwrap().unwrap();
        assert_cells(&layout, &fused, &naive_fold(&patches));
        layout.validate(&fused).unwrap();

        // Any grouping gives the same bytes.
        let at = 1 + split.index(operands.len() - 1);
        let older = if at == 1 { operands[0].to_vec() } else { combiner.fuse(b"k", &operands[..at]).unwrap().unwrap() };
        let regrouped: Vec<&[u8]> = std::iter::once(older.as_slice()).chain(operands[at..].iter().copied()).collect();
        prop_assert_eq!(combiner.apply(b"k", Some(&base_bytes), &regrouped).unwrap().unwrap(), applied.clone());
        let below = combiner.apply(b"k", Some(&base_bytes), &operands[..at]).unwrap().unwrap();
        prop_assert_eq!(combiner.apply(b"k", Some(&below), &operands[at..]).unwrap().unwrap(), applied);
    }

    #[test]
    fn damaged_values_are_errors_or_values(
        (schema, cells, flips) in common::schema(10).prop_flat_map(|s| {
            let cells = common::cells(&s, false);
            (Just(s), cells, vec((any::<prop::sample::Index>(), any::<u8>()), 1..4))
        }),
        random in vec(any::<u8>(), 0..40),
        first in prop_oneof![Just(0x10u8), Just(0x14), Just(0x18), Just(0x1c), any::<u8>()],
    ) {
        let layout = Arc::new(PackedLayout::new(schema.clone()));
        let combiner = PatchCombiner::new(layout.clone());
        let intact = pack(&layout, &cells);
        let mut damaged = intact.clone();
        for (index, byte) in flips {
            let at = index.index(damaged.len());
            damaged[at] = byte;
        }
        let mut random = random;
        random.splice(0..0, [first, 0]);
        for bytes in [damaged, random] {
            let valid = layout.validate(&bytes).is_ok();
            if let Ok(row) = layout.row(&bytes) {
                for column in 0..schema.columns().len() {
                    let got = row.get(column);
                    prop_assert!(!valid || got.is_ok() || schema.is_primary_key(column));
                }
            } else {
                prop_assert!(!valid);
            }
            if let Ok(Some(folded)) = combiner.fuse(b"", &[&intact, &bytes]) {
                prop_assert!(layout.row(&folded).is_ok());
            }
            let applied = combiner.apply(b"", Some(&bytes), &[&intact]);
            prop_assert!(applied.is_err() || applied.unwrap().is_some());
            let mut builder = RecordBatchBuilder::new(layout.clone(), &(0..schema.columns().len()).collect::<Vec<_>>(), 4).unwrap();
            if builder.append(&bytes, &bytes).is_ok() {
                prop_assert!(builder.finish().is_ok() || !valid);
            }
        }
    }

    #[test]
    fn batches_round_trip(
        (schema, rows, projection) in common::schema(10).prop_flat_map(|s| {
            let rows = vec(common::cells(&s, true), 0..20);
            let projection = vec(0..s.columns().len(), 0..6);
            (Just(s), rows, projection)
        })
    ) {
        let layout = Arc::new(PackedLayout::new(schema.clone()));
        let all: Vec<usize> = (0..schema.columns().len()).collect();
        let mut full = RecordBatchBuilder::new(layout.clone(), &all, 7).unwrap();
        let mut projected = RecordBatchBuilder::new(layout.clone(), &projection, 7).unwrap();
        let (mut batches, mut pairs) = (Vec::new(), Vec::new());
        for cells in &rows {
            let mut key = Vec::new();
            encode_row_key(&schema, &row(cells), &mut key).unwrap();
            let value = pack(&layout, cells);
            full.append(&key, &value).unwrap();
            projected.append(&key, &value).unwrap();
            pairs.push((key, value));
            if full.is_full() {
                batches.push((full.finish().unwrap(), projected.finish().unwrap()));
            }
        }
        batches.push((full.finish().unwrap(), projected.finish().unwrap()));
        let mut position = 0;
        for (batch, part) in &batches {
            prop_assert_eq!(batch.schema_ref().as_ref(), &schema.to_arrow());
            prop_assert_eq!(part.num_rows(), batch.num_rows());
            for (i, &column) in projection.iter().enumerate() {
                prop_assert_eq!(part.column(i), batch.column(column));
            }
            let reader = BatchRows::new(&layout, batch).unwrap();
            for index in 0..reader.len() {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                reader.encode_row(index, &mut key, &mut value).unwrap();
                prop_assert_eq!(&key, &pairs[position].0);
                prop_assert_eq!(&value, &pairs[position].1);
                let (mut again, mut patch) = (Vec::new(), Vec::new());
                reader.encode_patch(index, &mut again, &mut patch).unwrap();
                prop_assert_eq!((again, patch), (key, value));
                position += 1;
            }
            prop_assert!(reader.encode_row(reader.len(), &mut Vec::new(), &mut Vec::new()).is_err());
        }
        prop_assert_eq!(position, rows.len());
    }
}

const GOLDEN: &str =
    "k int32 not null, a utf8, b bool, c int64, d binary, e int16 not null, f float32, primary key (k)";

fn golden_layout() -> PackedLayout {
    PackedLayout::new(Arc::new(Schema::parse(GOLDEN).unwrap().with_version(3)))
}

#[test]
fn golden_row() {
    let layout = golden_layout();
    let mut out = Vec::new();
    let row = [
        DatumRef::Int32(9),
        DatumRef::Utf8("hé"),
        DatumRef::Bool(true),
        DatumRef::Int64(-2),
        DatumRef::Binary(b"\0"),
        DatumRef::Int16(0x0102),
        DatumRef::Float32(1.0),
    ];
    layout.encode_row(&row, &mut out).unwrap();
    // Physical order: c (8), f (4), e (2), b (1), a, d.
    assert_eq!(
        out,
        [0x10, 3, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x80, 0x3f, 2, 1, 1, 3, 4, b'h', 0xc3, 0xa9, 0]
    );
}

#[test]
fn golden_patch() {
    let layout = golden_layout();
    let mut out = Vec::new();
    let mut patch = [ColumnState::Absent; 7];
    patch[1] = ColumnState::Value(DatumRef::Utf8(""));
    patch[2] = ColumnState::Null;
    patch[4] = ColumnState::Null;
    patch[5] = ColumnState::Value(DatumRef::Int16(-1));
    layout.encode_patch(&patch, &mut out).unwrap();
    assert_eq!(out, [0x1c, 3, 0b11_1100, 0b10_1000, 0xff, 0xff, 0, 0, 0]);
    let row = layout.row(&out).unwrap();
    assert_eq!(row.get(1).unwrap(), ColumnState::Value(DatumRef::Utf8("")));
    assert_eq!(row.get(2).unwrap(), ColumnState::Null);
    assert_eq!(row.get(3).unwrap(), ColumnState::Absent);
    assert_eq!(row.get(4).unwrap(), ColumnState::Null);
    assert_eq!(row.get(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(row.get(7).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn end_offsets_widen() {
    let schema = Arc::new(Schema::parse("k int8 not null, a binary, b binary, primary key (k)").unwrap());
    let layout = PackedLayout::new(schema);
    for (len, header) in [(0, 0x10), (254, 0x10), (255, 0x11), (65_534, 0x11), (65_535, 0x12), (1_000_000, 0x12)] {
        let blob = vec![7u8; len];
        let mut out = Vec::new();
        layout.encode_row(&[DatumRef::Int8(0), DatumRef::Binary(b"x"), DatumRef::Binary(&blob)], &mut out).unwrap();
        assert_eq!(out[0], header, "{len}");
        layout.validate(&out).unwrap();
        assert_eq!(layout.row(&out).unwrap().datum(2).unwrap(), Some(DatumRef::Binary(&blob)));
    }
}

#[test]
fn refused_rows_leave_no_trace() {
    let layout = golden_layout();
    let good = [
        DatumRef::Int32(9),
        DatumRef::Null,
        DatumRef::Null,
        DatumRef::Null,
        DatumRef::Null,
        DatumRef::Int16(0),
        DatumRef::Null,
    ];
    let mut out = vec![1, 2, 3];
    let mut null = good;
    null[5] = DatumRef::Null;
    let mut wrong = good;
    wrong[1] = DatumRef::Binary(b"");
    for bad in [&good[..6], &null[..], &wrong[..]] {
        assert_eq!(layout.encode_row(bad, &mut out).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(out, [1, 2, 3]);
    }
    layout.encode_row(&good, &mut out).unwrap();
    let mut newer = out[3..].to_vec();
    newer[1] = 4;
    assert_eq!(layout.row(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    newer[0] = 0x20;
    assert_eq!(layout.row(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    newer[..2].copy_from_slice(&[0x13, 3]);
    assert!(layout.row(&newer).unwrap_err().is_corruption());
}

/// Rows of nothing but values of fixed width are written by a way of their own.
#[test]
fn rows_of_slots_are_written_and_refused_as_patches_of_all_columns_are() {
    let schema =
        "k int8 not null, a int32 not null, b int64, c bool, d float32, e uint16, f timestamp(us), primary key (k)";
    let layout = PackedLayout::new(Arc::new(Schema::parse(schema).unwrap()));
    let good = [
        DatumRef::Int8(9),
        DatumRef::Int32(-5),
        DatumRef::Int64(i64::MIN),
        DatumRef::Bool(true),
        DatumRef::Float32(-0.0),
        DatumRef::UInt16(u16::MAX),
        DatumRef::Timestamp(-1),
    ];
    let others = [DatumRef::Null, DatumRef::Int64(-1), DatumRef::UInt32(1), DatumRef::Date32(1), DatumRef::Utf8("x")];
    let mut refused = 0;
    for column in 0..good.len() {
        for other in good.iter().chain(&others) {
            let mut row = good;
            row[column] = *other;
            let patch = row.map(ColumnState::from);
            let (mut of_row, mut of_patch) = (vec![1, 2, 3], vec![1, 2, 3]);
            let results = [layout.encode_row(&row, &mut of_row), layout.encode_patch(&patch, &mut of_patch)];
            assert_eq!(of_row, of_patch, "{row:?}");
            let [row, patch] = results.map(|result| result.map_err(|error| error.to_string()));
            assert_eq!(row, patch);
            refused += usize::from(row.is_err());
        }
    }
    assert!((40..70).contains(&refused), "{refused}");
}

#[test]
fn applying_to_a_base_with_a_hole_is_corruption() {
    let layout = Arc::new(golden_layout());
    let mut patch = Vec::new();
    layout.encode_patch(&[ColumnState::Absent; 7], &mut patch).unwrap();
    let combiner = PatchCombiner::new(layout);
    let error = combiner.apply(b"k", Some(&patch), &[&patch]).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("lacks column"), "{error}");
}

#[test]
fn a_table_of_keys_only_has_two_byte_values() {
    let schema = Arc::new(Schema::parse("k utf8 not null, primary key (k)").unwrap());
    let layout = Arc::new(PackedLayout::new(schema.clone()));
    let mut out = Vec::new();
    layout.encode_row(&[DatumRef::Utf8("a\0")], &mut out).unwrap();
    assert_eq!(out, [0x10, 0]);
    let mut key = Vec::new();
    encode_row_key(&schema, &[DatumRef::Utf8("a\0")], &mut key).unwrap();
    assert_eq!(decode_key(&schema, &key).unwrap(), [Datum::Utf8("a\0".into())]);
    let mut builder = RecordBatchBuilder::new(layout, &[], 10).unwrap();
    builder.append(&key, &out).unwrap();
    assert_eq!(builder.finish().unwrap().num_rows(), 1);
}
