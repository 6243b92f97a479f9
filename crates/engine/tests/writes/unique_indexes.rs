//! Unique indexes, and what a crash makes of them.

use std::sync::atomic::{AtomicBool, Ordering};

use mycelium_encoding::{DatumRef, Schema};
use mycelium_engine::{Database, Durability, IndexOptions};
use mycelium_vfs::MemoryDisk;

use crate::common::{assert_verified, scan, small_options, small_table};

/// Of two rows with the same value one was deleted while the index was built, by nothing that the log had. It came back
/// below an index that was unique for good.
#[test]
fn a_crash_brought_a_duplicate_back_into_a_unique_index() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", small_options(&disk)).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("people", schema, small_table()).unwrap();
    for id in [1, 2] {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8("Graz")], Durability::Os).unwrap();
    }
    database.flush().unwrap();
    let (deleting, is_deleted) = (table.clone(), AtomicBool::new(false));
    disk.on_operation(move |_, operation| {
        let operation = operation.to_string();
        let builds = operation.starts_with("Create") && operation.contains(".sst");
        if builds && !is_deleted.swap(true, Ordering::Relaxed) {
            deleting.delete_row(&[DatumRef::Int64(2)], Durability::Buffered).unwrap();
        }
    });
    let by_city =
        IndexOptions { name: "by_city".into(), on: vec!["city".into()], unique: true, ..IndexOptions::default() };
    database.create_index(&table, &by_city).unwrap();
    disk.clear_hook();
    let restarted = Database::open("db", small_options(&disk.kill_image())).unwrap();
    let table = restarted.table("people").unwrap();
    assert!(table.index("by_city").unwrap().is_unique());
    assert_eq!(scan(&table).len(), 1);
    assert_verified(&restarted);
}
