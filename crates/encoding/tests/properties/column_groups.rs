//! Fragments of packed values against encoding their columns directly.

use std::sync::Arc;

use crate::common::{self, Cell, states};
use mycelium_base::ColumnSet;
use mycelium_encoding::{ColumnState, PackedLayout, Projection, Schema, join};
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
