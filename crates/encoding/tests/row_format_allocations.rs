//! The inner loops of transformers allocate nothing per row once their memory has grown.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use mycelium_base::ColumnSet;
use mycelium_encoding::key::encode_key;
use mycelium_encoding::row_format::{RowFormat, RowFormatKind, RowScratch};
use mycelium_encoding::{ColumnState, DatumRef, RecordBatchBuilder, Schema};

/// Counts the allocations of this thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

fn note() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(old, layout, new_size) }
    }
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The schema of the golden definitions.
const SCHEMA: &str = "k int64 not null, i int32 not null, u uint64, f float64, s utf8, b binary, d decimal(10, 2), \
                      t timestamp(us, \"UTC\"), o bool, primary key (k)";

fn state(column: usize) -> ColumnState<'static> {
    match column {
        1 => ColumnState::Value(DatumRef::Int32(-5)),
        2 => ColumnState::Value(DatumRef::UInt64(1 << 60)),
        3 => ColumnState::Value(DatumRef::Float64(0.1)),
        4 => ColumnState::Value(DatumRef::Utf8("text with an \"escape\"")),
        5 => ColumnState::Value(DatumRef::Binary(&[1, 2, 3])),
        8 => ColumnState::Value(DatumRef::Bool(true)),
        _ => ColumnState::Null,
    }
}

fn formats() -> [RowFormat; 4] {
    let schema = Arc::new(Schema::parse(SCHEMA).unwrap());
    let set = include_bytes!("golden/row-1.protoset");
    let binary = include_bytes!("golden/row-1.bfbs");
    [
        RowFormat::packed(schema.clone()),
        RowFormat::json(schema.clone()),
        RowFormat::new(RowFormatKind::Protobuf, schema.clone(), set, "test.Row").unwrap(),
        RowFormat::new(RowFormatKind::FlatBuffers, schema, binary, "test.Row").unwrap(),
    ]
}

#[test]
fn rows_are_split_merged_and_converted_without_allocating() {
    let formats = formats();
    let columns = ColumnSet::from_iter([1, 4, 6, 8]);
    let (mut scratch, mut out, mut value, mut part) =
        (RowScratch::default(), Vec::with_capacity(4096), Vec::new(), Vec::new());
    for from in &formats {
        value.clear();
        part.clear();
        from.encode_with(state, &mut scratch, &mut value).unwrap();
        from.project(&value, &columns, &mut scratch, &mut part).unwrap();
        let mut step = |to: &RowFormat| {
            out.clear();
            from.convert(to, &value, None, &mut scratch, &mut out).unwrap();
            from.project(&value, &columns, &mut scratch, &mut out).unwrap();
            from.overlay(&part, &value, &mut scratch, &mut out).unwrap();
            let mut row = from.read(&value, Some(&columns), &mut scratch).unwrap();
            assert_eq!(row.get(4).unwrap(), state(4));
        };
        for to in &formats {
            step(to);
            let before = COUNT.with(Cell::get);
            step(to);
            assert_eq!(COUNT.with(Cell::get), before, "{from:?} to {to:?}");
        }
    }
}

/// The columns of a batch grew step by step, each a dozen times in a hundred rows.
#[test]
fn rows_of_an_expected_batch_are_appended_without_allocating() {
    const ROWS: usize = 100;
    for format in formats() {
        let layout = format.layout().clone();
        let (mut scratch, mut value, mut key) = (RowScratch::default(), Vec::new(), Vec::new());
        format.encode_with(state, &mut scratch, &mut value).unwrap();
        encode_key(layout.schema(), &[DatumRef::Int64(1)], &mut key).unwrap();
        let all: Vec<usize> = (0..layout.schema().columns().len()).collect();
        let mut builder = RecordBatchBuilder::new(layout, &all, 2 * ROWS).unwrap().with_expected_rows(ROWS);
        for batch in 0..3 {
            builder.begin_batch(usize::MAX);
            builder.append_stored(&key, &value, &format, &mut scratch).unwrap();
            let before = COUNT.with(Cell::get);
            (1..ROWS).for_each(|_| builder.append_stored(&key, &value, &format, &mut scratch).unwrap());
            assert_eq!(COUNT.with(Cell::get), before, "{format:?}, batch {batch}");
            assert_eq!(builder.finish().unwrap().num_rows(), ROWS);
        }
    }
}

#[test]
fn a_limit_without_end_makes_no_room_without_end() {
    let layout = formats()[0].layout().clone();
    let mut builder = RecordBatchBuilder::new(layout, &[0, 1, 4], usize::MAX).unwrap().with_expected_rows(usize::MAX);
    builder.begin_batch(usize::MAX);
    assert_eq!(builder.finish().unwrap().num_rows(), 0);
}
