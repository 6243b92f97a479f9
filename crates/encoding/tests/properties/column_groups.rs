//! Fragments of packed values against encoding their columns directly.

use std::sync::Arc;

use crate::common::{self, Cell, states};
use mycelium_base::ColumnSet;
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, DatumRef, FragmentFormat, PackedLayout, Projection, Schema, join};
use proptest::collection::vec;
use proptest::prelude::*;

/// The columns outside the key, dealt to `count` groups (some may get none).
fn groups(schema: &Schema, deal: &[usize], count: usize) -> Vec<ColumnSet> {
    let mut groups = vec![ColumnSet::new(); count];
    for column in (0..schema.columns().len()).filter(|&column| !schema.is_primary_key(column)) {
        groups[deal[column] % count].insert(column);
    }
    groups
}

fn encode(layout: &PackedLayout, cells: &[Cell]) -> Vec<u8> {
    let mut out = Vec::new();
    layout.encode_patch(&states(cells), &mut out).unwrap();
    out
}

fn layouts(schema: &Arc<Schema>, groups: &[ColumnSet]) -> Vec<Arc<PackedLayout>> {
    groups.iter().map(|columns| Arc::new(PackedLayout::of(schema.clone(), columns))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_projected_value_is_what_encoding_its_columns_gives(
        (schema, cells, deal, count) in common::schema(24).prop_flat_map(|s| {
            let cells = prop_oneof![common::cells(&s, true), common::cells(&s, false)];
            (Just(s), cells, vec(0usize..8, 24 + 8), 1usize..5)
        })
    ) {
        let whole = Arc::new(PackedLayout::new(schema.clone()));
        let value = encode(&whole, &cells);
        for (columns, layout) in groups(&schema, &deal, count).iter().zip(layouts(&schema, &groups(&schema, &deal, count))) {
            let mut fragment = vec![7];
            let touched = Projection::new(whole.clone(), layout.clone()).unwrap().project(&value, &mut fragment).unwrap();
            let is_whole = whole.row(&value).unwrap().is_complete();
            prop_assert_eq!(touched, is_whole || columns.iter().any(|column| cells[column].is_some()));
            if touched {
                prop_assert_eq!(&fragment[1..], encode(&layout, &cells));
                layout.validate(&fragment[1..]).unwrap();
            } else {
                prop_assert_eq!(&fragment, &[7]);
            }
        }
    }

    #[test]
    fn fragments_join_to_the_value_they_came_from(
        (schema, cells, deal, count) in common::schema(24).prop_flat_map(|s| {
            let cells = prop_oneof![common::cells(&s, true), common::cells(&s, false)];
            (Just(s), cells, vec(0usize..8, 24 + 8), 1usize..5)
        })
    ) {
        let whole = PackedLayout::new(schema.clone());
        let parts = layouts(&schema, &groups(&schema, &deal, count));
        let fragments: Vec<Vec<u8>> = parts.iter().map(|layout| encode(layout, &cells)).collect();
        let rows: Vec<_> = parts.iter().zip(&fragments).map(|(layout, bytes)| layout.row(bytes).unwrap()).collect();
        let mut joined = Vec::new();
        join(&whole, &rows, &mut joined).unwrap();
        prop_assert_eq!(joined, encode(&whole, &cells));
    }
}

/// A fragment of columns 1 and 2 from before the table had 3 and 4.
#[test]
fn what_a_fragment_lacks_is_null_in_a_row_and_absent_from_a_patch() {
    let text = "id int64 not null, a int32, b utf8, c int32, d utf8, primary key (id)";
    let schema = Arc::new(Schema::parse(text).unwrap());
    let of = |columns: &str| FragmentFormat::packed(schema.clone(), columns.parse().unwrap());
    let value = |format: &FragmentFormat, states: &[ColumnState<'_>]| {
        let mut out = Vec::new();
        format.packed_layout().unwrap().encode_patch(states, &mut out).unwrap();
        out
    };
    let before = of("1-2").lacking(&"3-4".parse().unwrap());
    assert!(before.lacks(&"2-3".parse().unwrap()) && !before.lacks(&"1-2".parse().unwrap()));
    assert_eq!((before.columns().to_string(), before.held().to_string()), ("1-4".into(), "1-2".into()));
    assert!(!before.is_same(&of("1-4")) && !before.is_same(&of("1-2")));

    let (absent, null, b) = (ColumnState::Absent, ColumnState::Null, ColumnState::Value(DatumRef::Utf8("b")));
    let fragment = value(&before, &[absent, null, b, absent, absent]);
    for (columns, row, patch) in [
        ("1-4", [absent, null, b, null, null], Some([absent, null, b, absent, absent])),
        ("2-3", [absent, absent, b, null, absent], Some([absent, absent, b, absent, absent])),
        ("3-4", [absent, absent, absent, null, null], None),
        ("1-2", [absent, null, b, absent, absent], Some([absent, null, b, absent, absent])),
    ] {
        let to = of(columns);
        let reshape = before.reshape(&to).unwrap();
        let (mut scratch, mut out) = (RowScratch::default(), Vec::new());
        assert!(reshape.apply_row(&fragment, &mut scratch, &mut out).unwrap());
        assert_eq!(out, value(&to, &row), "{columns}");
        out.clear();
        assert_eq!(reshape.apply(&fragment, &mut scratch, &mut out).unwrap(), patch.is_some(), "{columns}");
        assert_eq!(out, patch.map(|patch| value(&to, &patch)).unwrap_or_default(), "{columns}");
    }
}

/// The same where columns 3 and 4 have defaults.
#[test]
fn what_a_fragment_lacks_is_its_default_in_a_row_and_absent_from_a_patch() {
    let text =
        "id int64 not null, a int32, b utf8, c int32 default 7, d utf8 not null default 'd', e int8, primary key (id)";
    let schema = Arc::new(Schema::parse(text).unwrap());
    let of = |columns: &str| FragmentFormat::packed(schema.clone(), columns.parse().unwrap());
    let value = |format: &FragmentFormat, states: &[ColumnState<'_>]| {
        let mut out = Vec::new();
        format.packed_layout().unwrap().encode_patch(states, &mut out).unwrap();
        out
    };
    let before = of("1-2").lacking(&"3-5".parse().unwrap());
    let (absent, null, b) = (ColumnState::Absent, ColumnState::Null, ColumnState::Value(DatumRef::Utf8("b")));
    let (c, d) = (ColumnState::Value(DatumRef::Int32(7)), ColumnState::Value(DatumRef::Utf8("d")));
    let fragment = value(&before, &[absent, null, b, absent, absent, absent]);
    for (columns, row, has_patch) in [
        ("1-5", [absent, null, b, c, d, null], true),
        ("2,4", [absent, absent, b, absent, d, absent], true),
        ("3,5", [absent, absent, absent, c, absent, null], false),
    ] {
        let to = of(columns);
        let reshape = before.reshape(&to).unwrap();
        let (mut scratch, mut out) = (RowScratch::default(), Vec::new());
        assert!(reshape.apply_row(&fragment, &mut scratch, &mut out).unwrap());
        assert_eq!(out, value(&to, &row), "{columns}");
        out.clear();
        assert_eq!(reshape.apply(&fragment, &mut scratch, &mut out).unwrap(), has_patch, "{columns}");
        if has_patch {
            let of_patch = [&row[..3], &[absent; 3]].concat();
            assert_eq!(out, value(&to, &of_patch), "{columns}");
        }
    }
}

/// The packed values of some columns lie the same however many columns the table has got since.
#[test]
fn layouts_of_the_same_columns_are_the_same_in_a_wider_schema() {
    let before = Schema::parse("id int64 not null, a int32, b utf8, primary key (id)").unwrap();
    let after = Arc::new(before.with_column("c int64".parse().unwrap()).unwrap());
    let before = Arc::new(before);
    for columns in ["-", "1", "1-2"] {
        let columns: ColumnSet = columns.parse().unwrap();
        let (old, new) = (PackedLayout::of(before.clone(), &columns), PackedLayout::of(after.clone(), &columns));
        assert!(old.is_same(&new) && new.is_same(&old), "{columns}");
        columns.iter().for_each(|column| {
            assert!(!old.is_same(&PackedLayout::of(after.clone(), &[column, 3].into_iter().collect())))
        });
    }
}

#[test]
fn a_column_that_is_not_there_cannot_be_projected() {
    let schema = Arc::new(Schema::parse("id int64 not null, a int32, b utf8, primary key (id)").unwrap());
    let narrow = Arc::new(PackedLayout::of(schema.clone(), &ColumnSet::from_iter([1])));
    let refused = Projection::new(narrow.clone(), Arc::new(PackedLayout::new(schema))).unwrap_err();
    assert!(refused.to_string().contains("\"b\""), "{refused}");
    let mut value = Vec::new();
    narrow.encode_patch(&[ColumnState::Absent, ColumnState::Null, ColumnState::Absent], &mut value).unwrap();
    assert!(narrow.row(&value).unwrap().get(2).is_err());
}
