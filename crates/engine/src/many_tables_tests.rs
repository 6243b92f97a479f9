//! What is done for one table leaves alone the others, however many there are: counted in states that are replaced, and
//! in memtables that are made.

use std::sync::Arc;
use std::time::Duration;

use mycelium_encoding::{DatumRef, Schema};
use mycelium_vfs::MemoryDisk;

use crate::table::TableState;
use crate::{Background, Database, Durability, Expiry, IndexOptions, Options, ReadOptions, Table, TableOptions};

const TABLES: usize = 2_000;

fn options(disk: &MemoryDisk) -> Options {
    Options { disk: Arc::new(disk.clone()), background: Background::Manual, ..Options::default() }
}

fn create(database: &Database, tables: usize) -> Vec<Table> {
    (0..tables).map(|n| database.create_table(&format!("t{n}"), TableOptions::default()).unwrap()).collect()
}

/// The states of all tables, for one to be compared with another later.
struct States {
    states: Vec<Arc<TableState>>,
    versions: Vec<Arc<mycelium_manifest::Version>>,
}

impl States {
    fn of(database: &Database, tables: &[Table]) -> Self {
        let manifest = database.inner.manifest().unwrap();
        let version = |table: &Table| manifest.state().tables.get(&table.id()).unwrap().version.clone();
        Self {
            states: tables.iter().map(|table| table.shared.state.load_full()).collect(),
            versions: tables.iter().map(version).collect(),
        }
    }

    /// How many tables have another state, and how many another version, since.
    fn replaced(&self, database: &Database, tables: &[Table]) -> (usize, usize) {
        let now = Self::of(database, tables);
        let states = self.states.iter().zip(&now.states).filter(|(before, now)| !Arc::ptr_eq(before, now));
        let versions = self.versions.iter().zip(&now.versions).filter(|(before, now)| !Arc::ptr_eq(before, now));
        (states.count(), versions.count())
    }
}

/// Every edit copied what the manifest has of all tables, and whoever looked for work asked all of them.
#[test]
fn what_one_table_does_touched_them_all() {
    let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
    let tables = create(&database, TABLES);
    assert!(!database.step().unwrap());

    let before = States::of(&database, &tables);
    tables[700].put(b"key", b"value", Durability::Os).unwrap();
    assert_eq!(before.replaced(&database, &tables), (1, 0));
    database.flush().unwrap();
    assert_eq!(before.replaced(&database, &tables), (1, 1));
    // Whoever looks for work next has one table to ask.
    let asked = database.inner.core.lock().tables.take_unasked();
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), [tables[700].id()]);

    database.create_table("one more", TableOptions::default()).unwrap();
    database.drop_table("one more").unwrap();
    database.compact(&tables[700]).unwrap();
    assert_eq!(before.replaced(&database, &tables), (1, 1));
    let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
    let typed = database.create_typed_table("typed", schema, TableOptions::default()).unwrap();
    let index = IndexOptions { name: "index".into(), on: vec!["city".into()], ..IndexOptions::default() };
    database.create_index(&typed, &index).unwrap();
    typed.insert_row(&[DatumRef::Int64(1), DatumRef::Utf8("Graz")], Durability::Os).unwrap();
    database.flush().unwrap();
    database.drop_index(&typed, "index").unwrap();
    assert_eq!(before.replaced(&database, &tables), (1, 1));
}

/// Whoever looked whether a pass was due asked all of them, and so did whoever made a typed table.
#[test]
fn tables_whose_rows_never_expire_were_asked_when_they_do() {
    let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
    create(&database, 20);
    let expiry = Some(Expiry::new("at", Duration::from_secs(60)));
    let create = |name: &str, expiry| {
        let schema = Schema::parse("id int64 not null, at timestamp(s), primary key (id)").unwrap();
        database.create_typed_table(name, schema, TableOptions { expiry, ..TableOptions::default() }).unwrap()
    };
    let expiring = || {
        let core = database.inner.core.lock();
        core.tables.expiring().map(|table| table.name.clone()).collect::<Vec<_>>()
    };
    let (first, second) = (create("first", None), create("second", expiry.clone()));
    assert_eq!(expiring(), ["second"]);
    database.set_expiry(&first, expiry).unwrap();
    assert_eq!(expiring(), ["first", "second"]);
    // It is another table then, which comes last.
    database.rename_column(&first, "at", "seen").unwrap();
    assert_eq!(expiring(), ["second", "first"]);
    database.set_expiry(&second, None).unwrap();
    assert_eq!(expiring(), ["first"]);
    database.drop_table("first").unwrap();
    assert!(expiring().is_empty());
}

/// Each was told anew up to which sequence number it is read.
#[test]
fn a_follower_gave_every_table_a_state_whenever_it_caught_up() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let tables = create(&database, 50);
    let follower = Database::open("db", Options { read_only: true, ..options(&disk) }).unwrap();
    let followed: Vec<Table> = tables.iter().map(|table| follower.table(table.name()).unwrap()).collect();
    let states = || followed.iter().map(|table| table.shared.state.load_full()).collect::<Vec<_>>();
    let mut before = states();
    let mut replaced = || {
        follower.catch_up().unwrap();
        let now = states();
        let replaced = before.iter().zip(&now).filter(|(before, now)| !Arc::ptr_eq(before, now)).count();
        before = now;
        replaced
    };
    let value = |table: &Table| table.get(b"key").unwrap();
    for written in [b"1", b"2"] {
        tables[7].put(b"key", written, Durability::Os).unwrap();
        assert_eq!(replaced(), 1, "the second time in the same memtable");
        assert_eq!(value(&followed[7]).as_deref(), Some(&written[..]));
    }
    let snapshot = follower.snapshot();
    tables[7].delete_range(b"a", b"z", Durability::Os).unwrap();
    tables[8].put(b"key", b"3", Durability::Os).unwrap();
    assert_eq!(replaced(), 2);
    assert_eq!((value(&followed[7]), value(&followed[8])), (None, Some(b"3".to_vec())));
    database.flush().unwrap();
    assert_eq!(replaced(), 2);
    assert_eq!((value(&followed[7]), value(&followed[8])), (None, Some(b"3".to_vec())));
    assert_eq!(replaced(), 0);
    let at_snapshot = |table: &Table| table.multi_get(&[b"key"], &ReadOptions::at(&snapshot)).unwrap().remove(0);
    assert_eq!((at_snapshot(&followed[7]), at_snapshot(&followed[8])), (Some(b"2".to_vec()), None));
}

/// Each had one, of 4 KiB and a filter, that no budget counted.
#[test]
fn tables_that_nobody_writes_to_had_memtables() {
    let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
    let tables = create(&database, 200);
    let with_memtable = || {
        let empty = database.inner.core.lock().empty.clone();
        tables.iter().filter(|table| !Arc::ptr_eq(&table.shared.state.load().active, &empty)).count()
    };
    assert_eq!((with_memtable(), database.metrics().memtable_bytes), (0, 0));
    for table in &tables[..3] {
        table.put(b"key", b"value", Durability::Os).unwrap();
        table.put(b"more", b"value", Durability::Os).unwrap();
    }
    assert_eq!(with_memtable(), 3);
    database.flush().unwrap();
    assert_eq!((with_memtable(), database.metrics().memtable_bytes), (0, 0));
    tables[7].put(b"key", b"value", Durability::Os).unwrap();
    assert_eq!(with_memtable(), 1);
    assert!(database.inner.core.lock().empty.is_empty());
}

/// A row in each of many tables took more than the budget, for what a memtable begins with did not count.
#[test]
fn memtables_of_many_tables_went_beyond_the_budget() {
    const BUDGET: usize = 256 << 10;
    let database = Database::open("db", Options { memory_budget: BUDGET, ..options(&MemoryDisk::new()) }).unwrap();
    let tables = create(&database, 300);
    for ten in tables.chunks(10) {
        for table in ten {
            table.put(b"key", b"value", Durability::Buffered).unwrap();
        }
        let bytes = database.metrics().memtable_bytes;
        assert!(bytes <= 2 * BUDGET as u64, "{bytes} bytes");
    }
    for table in &tables {
        assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
    }
}

/// Readers take the states of a table and of its indexes as one: the first write of a generation makes memtables for
/// all of them.
#[test]
fn the_first_write_after_a_flush_is_found_by_the_index_at_once() {
    let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
    let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
    let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
    let index = IndexOptions { name: "index".into(), on: vec!["city".into()], ..IndexOptions::default() };
    let index = database.create_index(&table, &index).unwrap();
    for id in 0..4 {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8("Graz")], Durability::Os).unwrap();
        assert_eq!(index.get(&[DatumRef::Utf8("Graz")], None, None).unwrap().count() as i64, id + 1);
        // A delete derives nothing, and the index has a memtable all the same.
        table.delete_row(&[DatumRef::Int64(100 + id)], Durability::Os).unwrap();
        database.flush().unwrap();
        assert_eq!(index.get(&[DatumRef::Utf8("Graz")], None, None).unwrap().count() as i64, id + 1);
    }
    // A write of a snapshot's past is not seen by it, nor is the memtable that it made.
    let before = database.snapshot();
    table.insert_row(&[DatumRef::Int64(9), DatumRef::Utf8("Graz")], Durability::Os).unwrap();
    assert_eq!(index.get(&[DatumRef::Utf8("Graz")], None, Some(&before)).unwrap().count(), 4);
}
