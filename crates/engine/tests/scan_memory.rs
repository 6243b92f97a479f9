//! What a scan holds in memory does not grow with its table: a batch, and a block of each run.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout as Place, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mycelium_base::ColumnSet;
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, DatumRef, Schema, TextArrays};
use mycelium_engine::{Background, Database, Durability, Layout, Options, ScanOptions, Table, TableOptions};
use mycelium_vfs::MemoryDisk;

/// Knows how many bytes are held, and the most that were.
struct Watching;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(held, Ordering::Relaxed);
}

fn give_back(bytes: usize) {
    HELD.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, place: Place) -> *mut u8 {
        take(place.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(place) }
    }
    unsafe fn realloc(&self, old: *mut u8, place: Place, new_size: usize) -> *mut u8 {
        take(new_size);
        give_back(place.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(old, place, new_size) }
    }
    unsafe fn dealloc(&self, old: *mut u8, place: Place) {
        give_back(place.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(old, place) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// A compacted table of so many rows, some of which have changed since.
fn table(layout: &str, rows: i64) -> (Database, Table) {
    let options = Options {
        disk: Arc::new(MemoryDisk::new()),
        background: Background::Manual,
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    let database = Database::open("db", options).unwrap();
    let schema = "id int64 not null, kind utf8 not null, amount int64, note utf8, primary key (id)";
    let layout = Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2, 3])).unwrap());
    let options = TableOptions { layout, ..TableOptions::default() };
    let table = database.create_typed_table("t", Schema::parse(schema).unwrap(), options).unwrap();
    for id in 0..rows {
        let (kind, note) = (format!("kind {}", id % 10), format!("a note on row {id}"));
        let row = [DatumRef::Int64(id), DatumRef::Utf8(&kind), DatumRef::Int64(id * 3), DatumRef::Utf8(&note)];
        table.insert_row(&row, Durability::Buffered).unwrap();
    }
    database.flush().unwrap();
    database.compact(&table).unwrap();
    for id in (0..rows).step_by(101) {
        table.patch_row(&[DatumRef::Int64(id)], &[("amount", DatumRef::Int64(-1))], Durability::Buffered).unwrap();
    }
    (database, table)
}

/// The most bytes that a scan held at once, of which a batch is dropped before the next.
fn held_by(table: &Table, options: ScanOptions, rows: usize) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let found: usize = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(found, rows);
    MOST.load(Ordering::Relaxed) - before
}

#[test]
fn a_scan_of_a_larger_table_holds_as_much() {
    const FEW: i64 = 40_000;
    const MANY: i64 = 6 * FEW;
    let layouts = [
        "L0 tiered: * packed\nL1 leveled: * packed",
        "L0 tiered: * packed\nL1 leveled: * columnar",
        "L0 tiered: * columnar\nL1 leveled: 1 columnar | 2 columnar | 3 columnar",
    ];
    for layout in layouts {
        let tables = [FEW, MANY].map(|rows| (table(layout, rows), rows));
        let views = ScanOptions { texts: TextArrays::Views, ..ScanOptions::default() };
        let test = Test::Equal(Datum::Utf8("kind 3".into()));
        let filter = Some(Filter { conjuncts: vec![ColumnTest { column: 1, test }] });
        let some = ScanOptions { filter, ..ScanOptions::default() };
        // Even those that pass of the smaller table fill batches.
        let in_batches = |options| ScanOptions { batch_rows: 1024, ..options };
        for (name, options, share) in [("all", ScanOptions::default(), 1), ("views", views, 1), ("some", some, 10)] {
            let [few, many] = [0, 1].map(|at| {
                let ((_, table), rows) = &tables[at];
                let expected = (rows / share) as usize;
                // What is cached at the first time is of no scan.
                held_by(table, in_batches(options.clone()), expected);
                held_by(table, in_batches(options.clone()), expected)
            });
            println!("{layout:?}, {name}: {few} bytes of {FEW} rows, {many} of {MANY}");
            assert!(many < few + few / 4 + (512 << 10), "{layout}, {name}: {few} bytes, then {many}");
            assert!(many < 8 << 20, "{layout}, {name}: {many} bytes");
        }
    }
}
