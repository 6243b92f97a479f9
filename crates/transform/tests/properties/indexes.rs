//! Secondary indexes: what is derived from which entries, and in which order it lies.

use mycelium_base::{ColumnSet, EntryRef, ErrorKind, Operation, RowFormatKind, Trailer};
use mycelium_encoding::key::{self, decode_key};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, ColumnType, Datum, DatumRef, PackedLayout};
use mycelium_transform::{Augment, Job, Progress, Staged};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::drawing::{self, Cells, for_seeds};
use crate::tables::{MUCH, ROOMY, Table};

const CASES: u64 = 200;

fn transform(job: &mut Job, key: &[u8], sequence: u64, operation: Operation, value: &[u8]) -> Progress {
    job.transform(EntryRef { key, trailer: Trailer::new(sequence, operation), value }).unwrap()
}

/// Random indexed columns, of the key too, and covered ones.
fn draw_index(rng: &mut SmallRng, table: &Table) -> Augment {
    let mut on: Vec<usize> = (0..table.schema().columns().len()).collect();
    on.shuffle(rng);
    on.truncate(rng.random_range(1..=3));
    let cover: ColumnSet = table.formats.columns().iter().filter(|_| rng.random_ratio(1, 3)).collect();
    Augment::index("x", &on, &cover, table.schema()).unwrap()
}

fn text_of(index: &Augment) -> String {
    let on: Vec<String> = index.on().iter().map(ToString::to_string).collect();
    format!("augment {} on {} cover {}", index.name(), on.join(","), index.cover())
}

fn row_key(table: &Table, id: i64) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_key(table.schema(), &[DatumRef::Int64(id)], &mut out).unwrap();
    out
}

/// What an index must hold of a row.
fn indexed(table: &Table, index: &Augment, id: i64, cells: &Cells) -> (Vec<Datum>, Vec<u8>) {
    let value = |&column: &usize| match table.schema().is_primary_key(column) {
        true => Datum::Int64(id),
        false => cells[column].clone().unwrap(),
    };
    let mut covered = Vec::new();
    if !index.cover().is_empty() {
        let layout = PackedLayout::of(table.schema().clone(), index.cover());
        layout.encode_with(|column| drawing::state(cells, column), &mut covered).unwrap();
    }
    (index.on().iter().map(value).collect(), covered)
}

#[test]
fn an_index_holds_what_the_rows_hold_in_the_order_of_its_columns() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let index = draw_index(rng, &table);
        let kind = table.kinds(rng)[0];
        let linked = table.link(&text_of(&index), kind, &ROOMY).unwrap();
        let mut job = linked.job(0..1, &table.whole(kind), &[], MUCH).unwrap();
        let mut expected = Vec::new();
        for id in 0..20i64 {
            let cells = drawing::cells(rng, table.schema(), true);
            let (key, value) = (row_key(&table, id), drawing::stored(table.format(kind), &cells));
            assert_eq!(transform(&mut job, &key, 100 + id as u64, Operation::Put, &value), Progress::Done);
            let (values, covered) = indexed(&table, &index, id, &cells);
            expected.push((values, id, covered));
        }
        expected.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        let staged = job.retrieve().unwrap();
        assert_eq!(staged.len(), expected.len());
        for (entry, (values, id, covered)) in staged.iter().zip(&expected) {
            let (found, key) = index.decode_key(table.schema(), entry.key).unwrap();
            assert_eq!((&found, key), (values, row_key(&table, *id).as_slice()));
            assert_eq!(decode_key(table.schema(), key).unwrap(), [Datum::Int64(*id)]);
            assert_eq!((entry.value, entry.sequence), (covered.as_slice(), 100 + *id as u64));
            assert_eq!((entry.table, entry.operation), (0, Operation::Put));
            let mut prefix = Vec::new();
            let borrowed: Vec<DatumRef<'_>> = values.iter().map(Datum::borrowed).collect();
            let some = rng.random_range(0..=borrowed.len());
            index.encode_prefix(table.schema(), &borrowed[..some], &mut prefix).unwrap();
            assert!(entry.key.starts_with(&prefix));
        }
    });
}

#[test]
fn values_at_hand_give_the_entry_of_the_encoded_row() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let index = draw_index(rng, &table);
        let indexer = index.row_indexer(table.schema());
        let id = rng.random();
        let cells = drawing::cells(rng, table.schema(), true);
        let key = row_key(&table, id);
        let of_key = |column: usize| table.schema().is_primary_key(column).then_some(Datum::Int64(id));
        let row: Vec<Datum> =
            cells.iter().enumerate().map(|(column, cell)| of_key(column).or(cell.clone()).unwrap()).collect();
        let mut row: Vec<DatumRef<'_>> = row.iter().map(Datum::borrowed).collect();
        let (mut derived, mut covered) = (Vec::new(), Vec::new());
        indexer.encode_key(&row, &key, &mut derived).unwrap();
        indexer.encode_value(&row, &mut RowScratch::default(), &mut covered).unwrap();
        for kind in table.kinds(rng) {
            let linked = table.link(&text_of(&index), kind, &ROOMY).unwrap();
            let mut job = linked.job(0..1, &table.whole(kind), &[], MUCH).unwrap();
            let value = drawing::stored(table.format(kind), &cells);
            assert_eq!(transform(&mut job, &key, 1, Operation::Put, &value), Progress::Done);
            let staged = job.retrieve().unwrap();
            let entries: Vec<(&[u8], &[u8])> = staged.iter().map(|entry| (entry.key, entry.value)).collect();
            assert_eq!(entries, [(derived.as_slice(), covered.as_slice())], "{kind:?}");
        }
        let refused = |row: &[DatumRef<'_>]| indexer.encode_key(row, &key, &mut Vec::new()).unwrap_err().kind();
        let indexed = index.on()[0];
        assert_eq!(refused(&row[..indexed]), ErrorKind::InvalidArgument);
        if !index.cover().is_empty() {
            let short = indexer.encode_value(&row[..1], &mut RowScratch::default(), &mut Vec::new());
            assert_eq!(short.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        let is_bool = table.schema().columns()[indexed].ty == ColumnType::Bool;
        row[indexed] = if is_bool { DatumRef::Int8(0) } else { DatumRef::Bool(true) };
        assert_eq!(refused(&row), ErrorKind::InvalidArgument);
    });
}

#[test]
fn a_patch_gives_nothing_or_what_the_whole_row_would_give() {
    for_seeds(CASES, |rng| {
        let table = Table::draw(rng);
        let kind = *table.kinds(rng).iter().find(|kind| **kind != RowFormatKind::Raw).unwrap();
        let format = table.format(kind);
        let index = draw_index(rng, &table);
        let linked = table.link(&text_of(&index), kind, &ROOMY).unwrap();
        let mut job = linked.job(0..1, &table.whole(kind), &[], MUCH).unwrap();
        let (row, patch) = (drawing::cells(rng, table.schema(), true), drawing::cells(rng, table.schema(), false));
        let touched: ColumnSet = (0..patch.len()).filter(|&column| patch[column].is_some()).collect();
        let reads: ColumnSet = index.on().iter().copied().chain(index.cover().iter()).collect();
        let reads = reads.intersection(table.formats.columns());
        let key = row_key(&table, 7);

        let missing = linked.completed(&touched).difference(&touched);
        assert_eq!(missing, if touched.overlaps(&reads) { reads.difference(&touched) } else { ColumnSet::new() });
        let value = drawing::stored(format, &patch);
        let progress = transform(&mut job, &key, 9, Operation::Patch, &value);
        if !missing.is_empty() {
            assert_eq!(progress, Progress::Needs(missing.clone()));
            assert!(job.retrieve().unwrap().is_empty());
            let completed: Cells =
                (0..patch.len()).map(|c| if missing.contains(c) { row[c].clone() } else { patch[c].clone() }).collect();
            let value = drawing::stored(format, &completed);
            assert_eq!(transform(&mut job, &key, 9, Operation::Patch, &value), Progress::Done);
        } else {
            assert_eq!(progress, Progress::Done);
        }
        let staged = job.retrieve().unwrap();
        assert_eq!(staged.len(), usize::from(touched.overlaps(&reads)));
        let merged: Cells = row.iter().zip(&patch).map(|(row, patch)| patch.clone().or(row.clone())).collect();
        let (values, covered) = indexed(&table, &index, 7, &merged);
        for entry in staged.iter() {
            assert_eq!(index.decode_key(table.schema(), entry.key).unwrap(), (values.clone(), key.as_slice()));
            assert_eq!(entry.value, covered);
        }
    });
}

fn keys(staged: &Staged) -> Vec<Vec<u8>> {
    staged.iter().map(|entry| entry.key.to_vec()).collect()
}

#[test]
fn versions_values_and_lengths_of_text_are_kept_apart() {
    let table = Table::parse("id int64 not null, a utf8, b binary, primary key (id)");
    let linked = table.link("augment x on 1\naugment y on 2,1", RowFormatKind::Packed, &ROOMY).unwrap();
    let mut job = linked.job(0..1, &table.whole(RowFormatKind::Packed), &[], MUCH).unwrap();
    let texts = [None, Some(""), Some("\0"), Some("1"), Some("1\0"), Some("10")];
    for (sequence, text) in texts.iter().enumerate().rev() {
        let mut value = Vec::new();
        let state = |column| match (column, text) {
            (2, _) => ColumnState::Value(DatumRef::Binary(b"\0\xff")),
            (_, None) => ColumnState::Null,
            (_, Some(text)) => ColumnState::Value(DatumRef::Utf8(text)),
        };
        table.format(RowFormatKind::Packed).encode_with(state, &mut RowScratch::default(), &mut value).unwrap();
        // One key, again and again: every version is an entry of its own.
        let key = row_key(&table, 1);
        assert_eq!(transform(&mut job, &key, sequence as u64, Operation::Put, &value), Progress::Done);
    }
    let staged = job.retrieve().unwrap();
    let order: Vec<(usize, u64)> = staged.iter().map(|entry| (entry.table, entry.sequence)).collect();
    let expected: Vec<(usize, u64)> = (0..2).flat_map(|index| (0..6).map(move |sequence| (index, sequence))).collect();
    assert_eq!(order, expected);
    let mut distinct = keys(&staged);
    distinct.dedup();
    assert_eq!(distinct.len(), 12);
}

#[test]
fn an_index_on_part_of_a_composite_key() {
    let table = Table::parse("a utf8 not null, b int32 not null, c int8, primary key (a, b)");
    let index = Augment::index("x", &[1, 2], &ColumnSet::new(), table.schema()).unwrap();
    let linked = table.link("augment x on 1,2", RowFormatKind::Packed, &ROOMY).unwrap();
    let mut job = linked.job(0..1, &table.whole(RowFormatKind::Packed), &[], MUCH).unwrap();
    let row = [DatumRef::Utf8("k"), DatumRef::Int32(-5), DatumRef::Null];
    let (mut key, mut value) = (Vec::new(), Vec::new());
    key::encode_row_key(table.schema(), &row, &mut key).unwrap();
    table.format(RowFormatKind::Packed).layout().encode_row(&row, &mut value).unwrap();
    assert_eq!(transform(&mut job, &key, 3, Operation::Put, &value), Progress::Done);
    let staged = job.retrieve().unwrap();
    let entry = staged.iter().next().unwrap();
    let decoded = index.decode_key(table.schema(), entry.key).unwrap();
    assert_eq!(decoded, (vec![Datum::Int32(-5), Datum::Null], key.as_slice()));
    assert!(entry.value.is_empty());
}

/// What is below level 0 was indexed when it left it.
#[test]
fn only_what_leaves_level_0_is_indexed() {
    let table = Table::parse("id int64 not null, a int32, primary key (id)");
    let linked = table.link("augment x on 1", RowFormatKind::Packed, &ROOMY).unwrap();
    let whole = table.whole(RowFormatKind::Packed);
    let value = drawing::stored(table.format(RowFormatKind::Packed), &vec![None, Some(Datum::Int32(1))]);
    for (levels, derived) in [(0..1, 1), (0..4, 1), (1..2, 0), (2..5, 0), (0..0, 0)] {
        let mut job = linked.job(levels.clone(), &whole, std::slice::from_ref(&whole), MUCH).unwrap();
        assert_eq!(transform(&mut job, &row_key(&table, 1), 1, Operation::Put, &value), Progress::Done);
        assert_eq!(job.retrieve().unwrap().len(), derived, "{levels:?}");
        assert_eq!(job.mapped().count(), 1);
    }
}

#[test]
fn what_cannot_be_indexed_is_an_error() {
    let table = Table::parse("id int64 not null, a utf8, b int32, primary key (id)");
    let linked = table.link("augment x on 1", RowFormatKind::Packed, &ROOMY).unwrap();
    let whole = table.whole(RowFormatKind::Packed);
    let narrow = mycelium_base::Group::new("2".parse().unwrap(), whole.format);
    assert!(linked.job(0..1, &narrow, &[], MUCH).unwrap_err().to_string().contains("columns 1"));
    let mut job = linked.job(0..1, &whole, &[], MUCH).unwrap();
    let long = "x".repeat(70_000);
    let mut value = Vec::new();
    let row = [DatumRef::Int64(1), DatumRef::Utf8(&long), DatumRef::Null];
    table.format(RowFormatKind::Packed).layout().encode_row(&row, &mut value).unwrap();
    let entry = |operation| EntryRef { key: b"k", trailer: Trailer::new(1, operation), value: &value };
    let error = job.transform(entry(Operation::Put)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("65535"), "{error}");
    for operation in [Operation::Delete, Operation::RangeDelete, Operation::Merge] {
        assert_eq!(job.transform(entry(operation)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let index = Augment::index("x", &[1], &ColumnSet::new(), table.schema()).unwrap();
    for malformed in [&b""[..], b"\x02", b"\x01abc", b"\x01a\x00\x02"] {
        assert_eq!(index.decode_key(table.schema(), malformed).unwrap_err().kind(), ErrorKind::Corruption);
    }
    assert!(index.encode_prefix(table.schema(), &[DatumRef::Null; 2], &mut Vec::new()).is_err());
}
