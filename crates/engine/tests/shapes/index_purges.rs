//! What it takes to find entries of an index that no removal names.

use mycelium_base::ColumnSet;
use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{Database, Durability, IndexOptions, Layout, Metrics, Options, TableOptions};
use mycelium_vfs::MemoryDisk;

use crate::common::{assert_verified, small_options, small_table};

const ROWS: i64 = 400;

/// The blocks that are looked up while a table and its index are compacted, of which every other entry is stale, beside
/// so many snapshots at each of which all rows are what they are at the newest.
fn blocks_of_a_purge(snapshots: usize) -> u64 {
    let options = Options { cache_bytes: 4 << 20, ..small_options(&MemoryDisk::new()) };
    let database = Database::open("db", options).unwrap();
    let other = database.create_table("other", TableOptions::default()).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, year int32, primary key (id)").unwrap();
    let table = database.create_typed_table("people", schema, small_table()).unwrap();
    // What is dropped of columns that lie apart tells the index nothing.
    let layout = "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed";
    database.set_layout(&table, Layout::parse(layout, &ColumnSet::from_iter([1, 2])).unwrap()).unwrap();
    let on = ["city", "year"].map(str::to_owned).to_vec();
    let by_city = IndexOptions { name: "by_city".into(), on, ..IndexOptions::default() };
    database.create_index(&table, &by_city).unwrap();
    let put = |year: i32| {
        for id in 0..ROWS {
            let row = [DatumRef::Int64(id), DatumRef::Utf8("Graz"), DatumRef::Int32(year)];
            table.insert_row(&row, Durability::Os).unwrap();
        }
    };
    put(1);
    database.compact(&table).unwrap();
    put(2);
    let held: Vec<_> = (0..snapshots)
        .map(|n| {
            other.put(&n.to_be_bytes(), b"", Durability::Os).unwrap();
            database.snapshot()
        })
        .collect();
    let looked_up = || {
        let cache = database.metrics().cache;
        cache.hits + cache.misses
    };
    let before = looked_up();
    database.compact(&table).unwrap();
    let looked_up = looked_up() - before;
    let entries = |metrics: Metrics| -> u64 {
        let index = metrics.tables.into_iter().find(|table| table.name == "people/by_city").unwrap();
        index.levels.iter().map(|level| level.entries).sum()
    };
    assert_eq!(entries(database.metrics()), ROWS as u64, "the stale ones are gone");
    drop(held);
    assert_verified(&database);
    looked_up
}

/// It was read once for each.
#[test]
fn the_row_of_a_stale_entry_was_read_at_every_snapshot_though_it_had_not_changed() {
    let (few, many) = (blocks_of_a_purge(1), blocks_of_a_purge(40));
    assert!(few > 0 && many < 2 * few, "{few} blocks beside one snapshot, {many} beside forty");
}
