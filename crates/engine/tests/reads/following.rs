//! A database opened read-only that catches up with a writer: it has what was acknowledged, all of it at once, and what
//! was read before stays as it was.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, ErrorKind, IndexOptions, Layout, LeveledOptions, Options, Policy, ReadOptions, Snapshot,
    Table, TableIterator, TableOptions, ViewOptions, WriteBatch,
};
use mycelium_vfs::{Disk, FaultDisk, MemoryDisk, Throttle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Rows, assert_verified, key, scan, scan_with, small_options, small_table};

const DIRECTORY: &str = "/db";
const NAMES: [&str; 3] = ["a", "b", "c"];

fn open(disk: &MemoryDisk) -> Database {
    Database::open(DIRECTORY, small_options(disk)).unwrap()
}

fn follower(disk: &MemoryDisk) -> Database {
    Database::open(DIRECTORY, Options { read_only: true, ..small_options(disk) }).unwrap()
}

/// A database with the table `t`, and one that follows it.
fn pair() -> (MemoryDisk, Database, Table, Database) {
    let disk = MemoryDisk::new();
    let writer = open(&disk);
    let table = writer.create_table("t", small_table()).unwrap();
    let reader = follower(&disk);
    (disk, writer, table, reader)
}

/// The log segments there, oldest first.
fn logs(disk: &MemoryDisk) -> Vec<PathBuf> {
    disk.paths().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "wal")).collect()
}

fn take_jobs(writer: &Database, count: usize) {
    for _ in 0..count {
        writer.step().unwrap();
    }
}

fn entries_in_memory(database: &Database) -> u64 {
    database.metrics().tables.iter().map(|table| table.memtable_entries).sum()
}

/// Tables of bytes by name.
type Model = BTreeMap<&'static str, Rows>;

/// What a reader had at some time: a snapshot, iterators that begin, and by what handles.
struct Held {
    snapshot: Snapshot,
    tables: Vec<(Table, TableIterator)>,
    model: Model,
}

impl Held {
    fn of(reader: &Database, model: &Model) -> Self {
        let tables = model.keys().map(|name| {
            let table = reader.table(name).unwrap();
            let mut rows = table.iter(&ReadOptions::default()).unwrap();
            rows.seek_to_first().unwrap();
            (table, rows)
        });
        Self { snapshot: reader.snapshot(), tables: tables.collect(), model: model.clone() }
    }

    fn check(mut self) {
        for ((name, expected), (table, rows)) in self.model.iter().zip(&mut self.tables) {
            assert_eq!(scan_with(table, &ReadOptions::at(&self.snapshot)), *expected, "table {name} at a snapshot");
            let mut found = Rows::new();
            while rows.valid() {
                found.insert(rows.key().to_vec(), rows.value().to_vec());
                rows.next().unwrap();
            }
            assert_eq!(found, *expected, "table {name} by an iterator");
        }
    }
}

struct Walk {
    disk: MemoryDisk,
    writer: Database,
    reader: Database,
    rng: SmallRng,
    model: Model,
    /// What the reader caught up with last.
    caught_up: Model,
    held: Option<Held>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let disk = MemoryDisk::new();
        let (writer, rng) = (open(&disk), SmallRng::seed_from_u64(seed));
        let (model, caught_up, reader) = (Model::new(), Model::new(), follower(&disk));
        Self { disk, writer, reader, rng, model, caught_up, held: None }
    }

    fn key(&mut self) -> Vec<u8> {
        key(self.rng.random_range(0..400))
    }

    /// A batch over all tables.
    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for name in NAMES {
            if !self.model.contains_key(name) {
                continue;
            }
            let table = self.writer.table(name).unwrap();
            for _ in 0..self.rng.random_range(1..20) {
                let (from, to) = (self.key(), self.key());
                let value = vec![self.rng.random::<u8>(); self.rng.random_range(0..100)];
                let rows = self.model.get_mut(name).unwrap();
                match self.rng.random_range(0..20) {
                    0 => {
                        batch.delete_range(&table, &from, &to);
                        let deleted = from..to;
                        rows.retain(|key, _| !deleted.contains(key));
                    }
                    1..=3 => {
                        batch.delete(&table, &from);
                        rows.remove(&from);
                    }
                    _ => {
                        batch.put(&table, &from, &value);
                        rows.insert(from, value);
                    }
                }
            }
        }
        let durability = if self.rng.random_bool(0.8) { Durability::Os } else { Durability::Sync };
        self.writer.write(&batch, durability).unwrap();
    }

    fn ingest(&mut self, name: &'static str) {
        let first = self.rng.random_range(0..400);
        let loaded = (first..first + 30).map(|n| (key(n), b"loaded".to_vec()));
        let table = self.writer.table(name).unwrap();
        table.ingest(loaded.clone().map(Ok)).unwrap();
        self.model.get_mut(name).unwrap().extend(loaded);
    }

    fn make_or_drop(&mut self) {
        let name = NAMES[self.rng.random_range(0..NAMES.len())];
        if self.model.remove(name).is_some() {
            self.writer.drop_table(name).unwrap();
        } else {
            self.writer.create_table(name, small_table()).unwrap();
            self.model.insert(name, Rows::new());
        }
    }

    fn reopen(&mut self) {
        self.writer.clone().close().unwrap();
        self.writer = open(&self.disk);
    }

    fn check(&self) {
        let names: Vec<&str> = self.caught_up.keys().copied().collect();
        let mut found = self.reader.table_names();
        found.sort_unstable();
        assert_eq!(found, names);
        for (name, rows) in &self.caught_up {
            let table = self.reader.table(name).unwrap();
            assert_eq!(scan(&table), *rows, "table {name}");
            for n in (0..400).step_by(7) {
                assert_eq!(table.get(&key(n)).unwrap().as_ref(), rows.get(&key(n)), "table {name}, row {n}");
            }
        }
    }

    fn catch_up(&mut self) {
        self.check();
        let held = Held::of(&self.reader, &self.caught_up);
        let sequence = self.reader.catch_up().unwrap();
        assert_eq!((sequence, self.reader.last_sequence()), (self.writer.last_sequence(), sequence));
        self.caught_up = self.model.clone();
        self.check();
        // Some are kept until later.
        let older = if self.rng.random_bool(0.5) { self.held.replace(held) } else { Some(held) };
        older.into_iter().for_each(Held::check);
    }

    fn step(&mut self) {
        let name = self.model.keys().nth(self.rng.random_range(0..NAMES.len())).copied();
        match (self.rng.random_range(0..24), name) {
            (0..=7, Some(_)) => self.write(),
            (8..=9, _) => self.writer.flush().unwrap(),
            (10..=11, _) => take_jobs(&self.writer, 3),
            (12, _) => self.writer.wait_idle().unwrap(),
            (13, Some(name)) => self.writer.compact(&self.writer.table(name).unwrap()).unwrap(),
            (14..=15, Some(name)) => self.ingest(name),
            (16, _) => self.reopen(),
            (17..=22, _) => self.catch_up(),
            _ => self.make_or_drop(),
        }
    }
}

#[test]
fn a_follower_has_what_was_acknowledged_and_its_past_stays_as_it_was() {
    for seed in 0..8 {
        let mut walk = Walk::new(seed);
        for step in 0..150 {
            println!("seed {seed}, step {step}");
            walk.step();
        }
        walk.catch_up();
        assert_verified(&walk.reader);
        walk.reader.checkpoint("/copy").unwrap();
        let copy = Database::open("/copy", small_options(&walk.disk)).unwrap();
        for (name, rows) in &walk.model {
            assert_eq!(scan(&copy.table(name).unwrap()), *rows, "seed {seed}, table {name} of a copy");
        }
    }
}

const SCHEMA: &str = "id int64 not null, a int32, b utf8, primary key (id)";

fn typed_table() -> TableOptions {
    let levels = LeveledOptions {
        level0_trigger: 2,
        level_count: 4,
        base_level_bytes: 4 << 10,
        target_file_size: 2 << 10,
        fanout: 3.0,
        ..LeveledOptions::default()
    };
    TableOptions { policy: Policy::Leveled(levels), ..small_table() }
}

/// A typed table whose columns, layout, index and view change.
struct TypedWalk {
    writer: Database,
    reader: Database,
    rng: SmallRng,
    /// Rows by id, without it.
    rows: BTreeMap<i64, Vec<Datum>>,
}

impl TypedWalk {
    fn new(seed: u64) -> Self {
        let disk = MemoryDisk::new();
        let writer = open(&disk);
        writer.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), typed_table()).unwrap();
        Self { writer, reader: follower(&disk), rng: SmallRng::seed_from_u64(seed), rows: BTreeMap::new() }
    }

    fn table(&self) -> Table {
        self.writer.table("t").unwrap()
    }

    fn write(&mut self) {
        let table = self.table();
        let (id, a) = (self.rng.random_range(0..120), self.rng.random_range(0..9));
        let key = [DatumRef::Int64(id)];
        match self.rng.random_range(0..8) {
            0 => {
                table.delete_row(&key, Durability::Os).unwrap();
                self.rows.remove(&id);
            }
            1..=2 => {
                table.patch_row(&key, &[("a", DatumRef::Int32(a))], Durability::Os).unwrap();
                if let Some(row) = self.rows.get_mut(&id) {
                    row[0] = Datum::Int32(a);
                }
            }
            _ => {
                let mut row = vec![Datum::Int32(a), Datum::Utf8(format!("text {a}"))];
                let columns = table.schema().unwrap().columns();
                row.extend(columns[3..].iter().map(|column| match column.is_dropped() {
                    true => Datum::Null,
                    false => Datum::Int32(a + 1),
                }));
                let whole: Vec<DatumRef<'_>> = key.into_iter().chain(row.iter().map(Datum::borrowed)).collect();
                table.insert_row(&whole, Durability::Os).unwrap();
                self.rows.insert(id, row);
            }
        }
    }

    fn set_layout(&mut self) {
        const LAYOUTS: [&str; 3] = [
            "L0 tiered: * packed\nL1 leveled: * packed",
            "L0 tiered: * packed\nL1 leveled: * columnar",
            "L0 tiered: * columnar\nL1 leveled: * columnar",
        ];
        let (table, text) = (self.table(), LAYOUTS[self.rng.random_range(0..LAYOUTS.len())]);
        let columns = table.schema().unwrap().value_columns();
        self.writer.set_layout(&table, Layout::parse(text, &columns).unwrap()).unwrap();
    }

    fn make_or_drop_index(&mut self) {
        let table = self.table();
        if table.index("by_a").is_ok() {
            self.writer.drop_index(&table, "by_a").unwrap();
            return;
        }
        let options = IndexOptions { name: "by_a".into(), on: vec!["a".into()], ..IndexOptions::default() };
        self.writer.create_index(&table, &options).unwrap();
    }

    fn make_or_drop_view(&mut self) {
        let table = self.table();
        if table.view("count").is_ok() {
            self.writer.drop_view(&table, "count").unwrap();
            return;
        }
        let aggregates = vec!["count(*)".to_owned()];
        let options = ViewOptions { name: "count".into(), group_by: Vec::new(), aggregates };
        self.writer.create_view(&table, &options).unwrap();
    }

    /// A column comes, or one goes that came so.
    fn change_columns(&mut self) {
        self.writer.wait_idle().unwrap();
        let table = self.table();
        let schema = table.schema().unwrap();
        let count = schema.columns().len();
        let added: Vec<(usize, String)> =
            schema.live_columns().filter(|(at, _)| *at > 2).map(|(at, column)| (at, column.name.clone())).collect();
        match added.first() {
            Some((at, name)) if count == 7 || self.rng.random_ratio(1, 3) => {
                match self.writer.drop_column(&table, name) {
                    Ok(_) => self.rows.values_mut().for_each(|row| row[at - 1] = Datum::Null),
                    // Files with and without it are told apart by it alone.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
                }
            }
            _ if count < 7 => {
                self.writer.add_column(&table, Column::new(format!("c{count}"), ColumnType::Int32)).unwrap();
                self.rows.values_mut().for_each(|row| row.push(Datum::Null));
            }
            _ => {}
        }
    }

    fn check(&self) {
        let (own, table) = (self.table(), self.reader.table("t").unwrap());
        assert_eq!((table.id(), table.schema(), table.layout()), (own.id(), own.schema(), own.layout()));
        for id in 0..120 {
            let found = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
            let expected = self.rows.get(&id).map(|row| [&[Datum::Int64(id)][..], row].concat());
            assert_eq!(found, expected, "row {id}");
        }
        assert_eq!(table.index("by_a").is_ok(), own.index("by_a").is_ok());
        if let Ok(index) = table.index("by_a") {
            assert_eq!(index.is_built(), own.index("by_a").unwrap().is_built());
            for a in 0..9 {
                let found = index.get(&[DatumRef::Int32(a)], Some(&[0]), None).unwrap();
                let mut found: Vec<Datum> = found.map(|row| row.unwrap().values.remove(0)).collect();
                found.sort();
                let rows = self.rows.iter().filter(|(_, row)| row[0] == Datum::Int32(a));
                assert_eq!(found, rows.map(|(id, _)| Datum::Int64(*id)).collect::<Vec<_>>(), "rows of {a}");
            }
        }
        assert_eq!(table.view("count").is_ok(), own.view("count").is_ok());
        if let Ok(view) = table.view("count") {
            let found = view.read(&ReadOptions::default()).unwrap().rows;
            let counted = found.first().map_or(Datum::Int64(0), |group| group.aggregates[0].clone());
            assert_eq!(counted, Datum::Int64(self.rows.len() as i64));
        }
    }

    /// A query that was begun before goes on: by a handle, an index and a snapshot from then.
    fn catch_up(&mut self) {
        let table = self.reader.table("t").unwrap();
        let before = self.reader.snapshot();
        let had = scan(&table);
        self.reader.catch_up().unwrap();
        assert_eq!(scan_with(&table, &ReadOptions::at(&before)), had);
        let is_same = self.reader.table("t").unwrap().id() == table.id();
        match table.index("by_a") {
            // Also one that was made since.
            Ok(index) => {
                let found = index.range((Bound::Unbounded, Bound::Unbounded), None, Some(&before)).unwrap();
                let mut found: Vec<Vec<u8>> = found.map(|row| row.unwrap().key).collect();
                found.sort();
                assert!(found.iter().eq(had.keys()), "through an index, at a snapshot: {found:?}");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
        let now = self.reader.table("t").unwrap().iter(&ReadOptions::at(&before));
        match is_same {
            true => drop(now.unwrap()),
            false => assert_eq!(now.err().map(|error| error.kind()), Some(ErrorKind::NotFound)),
        }
        self.check();
    }

    fn step(&mut self) {
        match self.rng.random_range(0..24) {
            0..=9 => (0..20).for_each(|_| self.write()),
            10 => self.writer.flush().unwrap(),
            11..=13 => take_jobs(&self.writer, 1),
            14 => self.writer.wait_idle().unwrap(),
            15 => self.set_layout(),
            16 => self.make_or_drop_index(),
            17 => self.make_or_drop_view(),
            18 => self.change_columns(),
            _ => self.catch_up(),
        }
    }
}

#[test]
fn a_follower_has_the_columns_layouts_indexes_and_views_that_there_are() {
    for seed in 0..8 {
        let mut walk = TypedWalk::new(seed);
        for step in 0..120 {
            println!("seed {seed}, step {step}");
            walk.step();
        }
        walk.catch_up();
        assert_verified(&walk.reader);
    }
}

/// A reader, and its disk, on which it waits at every request.
fn waiting_reader(disk: &MemoryDisk) -> (FaultDisk, Database) {
    let faults = FaultDisk::new(Arc::new(disk.clone()));
    let options = Options { disk: Arc::new(faults.clone()), read_only: true, ..small_options(disk) };
    let reader = Database::open(DIRECTORY, options).unwrap();
    let latency = Duration::from_nanos(1);
    faults.set_throttle(Some(Throttle { bytes_per_second: 1 << 40, burst_bytes: 1 << 40, latency }));
    (faults, reader)
}

/// At every request of the reader to its disk the writer does all of what takes files away and makes tables.
#[test]
fn what_a_writer_does_while_a_follower_catches_up_is_seen_as_a_whole_or_not() {
    for moment in 1.. {
        let disk = MemoryDisk::new();
        let writer = open(&disk);
        let table = writer.create_table("t", small_table()).unwrap();
        let (faults, reader) = waiting_reader(&disk);
        for n in 0..30 {
            table.put(&key(n), b"before", Durability::Os).unwrap();
            if n % 10 == 9 && n < 20 {
                writer.flush().unwrap();
            }
        }
        let before = scan(&table);
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        faults.on_wait(move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) + 1 == moment {
                writer.flush().unwrap();
                writer.compact(&table).unwrap();
                writer.wait_idle().unwrap();
                let new = writer.create_table("new", small_table()).unwrap();
                table.ingest([Ok((b"loaded", b""))]).unwrap();
                let mut batch = WriteBatch::new();
                batch.put(&table, b"then", b"").put(&new, b"then", b"");
                writer.write(&batch, Durability::Os).unwrap();
            }
        });
        reader.catch_up().unwrap_or_else(|e| panic!("operation {moment}: {e}"));
        let is_over = seen.load(Ordering::Relaxed) < moment;
        let found = scan(&reader.table("t").unwrap());
        let is_new = reader.table("new").is_ok_and(|new| new.get(b"then").unwrap().is_some());
        let extra: Vec<&[u8]> = found.keys().filter(|key| !before.contains_key(*key)).map(Vec::as_slice).collect();
        assert!(before.iter().all(|(key, value)| found.get(key) == Some(value)), "operation {moment}");
        assert_eq!(extra.contains(&&b"then"[..]), is_new, "operation {moment}: half of a batch");
        assert!(extra.contains(&&b"loaded"[..]) || !is_new, "operation {moment}: what followed on a load alone");
        if is_over {
            return;
        }
        reader.catch_up().unwrap();
        assert!(reader.table("new").unwrap().get(b"then").unwrap().is_some(), "operation {moment}");
    }
}

/// The manifest was read before, and the log after: with what was written when tables were others already.
#[test]
fn a_dropped_table_stood_beside_what_was_written_after_it() {
    for moment in 1.. {
        let disk = MemoryDisk::new();
        let writer = open(&disk);
        let table = writer.create_table("t", small_table()).unwrap();
        writer.create_table("old", small_table()).unwrap();
        let (faults, reader) = waiting_reader(&disk);
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        faults.on_wait(move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) + 1 == moment {
                writer.drop_table("old").unwrap();
                writer.create_table("new", small_table()).unwrap();
                table.put(b"then", b"", Durability::Os).unwrap();
            }
        });
        reader.catch_up().unwrap_or_else(|e| panic!("operation {moment}: {e}"));
        let is_over = seen.load(Ordering::Relaxed) < moment;
        let has_then = reader.table("t").unwrap().get(b"then").unwrap().is_some();
        let (has_old, has_new) = (reader.table("old").is_ok(), reader.table("new").is_ok());
        assert!(!has_old || !has_new, "operation {moment}: both tables");
        assert!(!has_then || has_new && !has_old, "operation {moment}: old {has_old}, new {has_new}");
        if is_over {
            return;
        }
        reader.catch_up().unwrap();
        assert!(reader.table("t").unwrap().get(b"then").unwrap().is_some(), "operation {moment}");
    }
}

/// The manifest was read while there was the index, and the log with a patch that lacks a column of it: that passed for
/// damage.
#[test]
fn a_patch_written_after_its_index_was_dropped_is_no_damage() {
    for moment in 1.. {
        let disk = MemoryDisk::new();
        let writer = open(&disk);
        let schema = Schema::parse("id int64 not null, city utf8, year int32, primary key (id)").unwrap();
        let table = writer.create_typed_table("people", schema, small_table()).unwrap();
        let on = vec!["city".to_owned(), "year".to_owned()];
        writer.create_index(&table, &IndexOptions { name: "by_city".into(), on, ..IndexOptions::default() }).unwrap();
        let id = [DatumRef::Int64(1)];
        table.insert_row(&[id[0], DatumRef::Utf8("Graz"), DatumRef::Int32(7)], Durability::Os).unwrap();
        let (faults, reader) = waiting_reader(&disk);
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        faults.on_wait(move |_| {
            if counted.fetch_add(1, Ordering::Relaxed) + 1 == moment {
                writer.drop_index(&table, "by_city").unwrap();
                table.patch_row(&id, &[("city", DatumRef::Utf8("Linz"))], Durability::Os).unwrap();
            }
        });
        reader.catch_up().unwrap_or_else(|e| panic!("operation {moment}: {e}"));
        let is_over = seen.load(Ordering::Relaxed) < moment;
        let table = reader.table("people").unwrap();
        let row = table.get_row(&id, Some(&[1]), &ReadOptions::default()).unwrap().unwrap();
        let is_patched = row == [Datum::Utf8("Linz".into())];
        assert!(!is_patched || table.index("by_city").is_err(), "operation {moment}");
        if is_over {
            return;
        }
        reader.catch_up().unwrap();
        let table = reader.table("people").unwrap();
        let row = table.get_row(&id, Some(&[1]), &ReadOptions::default()).unwrap().unwrap();
        assert_eq!(row, [Datum::Utf8("Linz".into())], "operation {moment}");
        assert!(table.index("by_city").is_err(), "operation {moment}");
    }
}

/// Says that it is over also if its thread panics, for which the others would wait.
struct SaysWhenOver<'a>(&'a AtomicBool);

impl Drop for SaysWhenOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// One thread writes, one catches up, one reads.
#[test]
fn readers_see_batches_whole_and_never_go_back_while_another_thread_catches_up() {
    let (_disk, writer, table, reader) = pair();
    let other = writer.create_table("other", small_table()).unwrap();
    let write = |n: u64| {
        let mut batch = WriteBatch::new();
        batch.put(&table, b"key", &n.to_be_bytes()).put(&other, b"key", &n.to_be_bytes());
        writer.write(&batch, Durability::Os).unwrap();
    };
    write(0);
    reader.catch_up().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = SaysWhenOver(&is_over);
            for n in 1..=300 {
                write(n);
                if n % 50 == 0 {
                    writer.flush().unwrap();
                }
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                reader.catch_up().unwrap();
            }
        });
        let [one, two] = ["t", "other"].map(|name| reader.table(name).unwrap());
        let mut last = Vec::new();
        while !is_over.load(Ordering::Acquire) {
            let snapshot = reader.snapshot();
            let read = |table: &Table| table.multi_get(&[b"key"], &ReadOptions::at(&snapshot)).unwrap().remove(0);
            let found = read(&one).unwrap();
            assert_eq!(read(&two).as_ref(), Some(&found), "half of a batch");
            assert!(found >= last, "{found:?} after {last:?}");
            assert!(one.get(b"key").unwrap().unwrap() >= found, "a snapshot is newer than what is read without");
            last = found;
        }
    });
    reader.catch_up().unwrap();
    assert_eq!(reader.table("t").unwrap().get(b"key").unwrap().unwrap(), 300_u64.to_be_bytes());
}

#[test]
fn only_what_is_new_is_replayed_and_memtables_go_with_their_log() {
    let (_disk, writer, table, reader) = pair();
    let replayed = || reader.metrics().recovered_records;
    for n in 0..50 {
        table.put(&key(n), b"value", Durability::Os).unwrap();
        let before = replayed();
        reader.catch_up().unwrap();
        assert_eq!(replayed() - before, 1, "record {n}");
        reader.catch_up().unwrap();
        assert_eq!(replayed() - before, 1, "record {n} again");
    }
    assert_eq!(entries_in_memory(&reader), entries_in_memory(&writer));
    writer.flush().unwrap();
    table.put(&key(50), b"value", Durability::Os).unwrap();
    reader.catch_up().unwrap();
    assert_eq!((replayed(), entries_in_memory(&reader)), (51, 1));
    assert_eq!(scan(&reader.table("t").unwrap()).len(), 51);
}

#[test]
fn what_is_buffered_is_seen_when_it_is_handed_over() {
    let (_disk, writer, table, reader) = pair();
    let read = reader.table("t").unwrap();
    table.put(b"key", b"value", Durability::Buffered).unwrap();
    reader.catch_up().unwrap();
    assert_eq!(read.get(b"key").unwrap(), None);
    writer.sync().unwrap();
    reader.catch_up().unwrap();
    assert_eq!(read.get(b"key").unwrap().unwrap(), b"value");
}

/// The tail of the log is there in part, as a writer leaves it that is at it or was killed; and damaged before what is
/// known to have been synced.
#[test]
fn a_half_written_record_is_not_there_yet_and_a_damaged_one_is_corruption() {
    let (disk, writer, table, reader) = pair();
    let read = reader.table("t").unwrap();
    table.put(b"first", b"", Durability::Sync).unwrap();
    reader.catch_up().unwrap();
    let log = logs(&disk).pop().unwrap();
    let before = disk.read_bytes(&log).unwrap().len();
    table.put(b"second", b"", Durability::Sync).unwrap();
    let whole = Path::new(DIRECTORY).join("whole");
    disk.copy_file(&log, &whole).unwrap();
    let len = disk.read_bytes(&log).unwrap().len();
    for end in before..len {
        disk.set_len(&log, end).unwrap();
        reader.catch_up().unwrap();
        assert_eq!(read.get(b"second").unwrap(), None, "{end} bytes");
    }
    disk.copy_file(&whole, &log).unwrap();
    reader.catch_up().unwrap();
    assert!(read.get(b"second").unwrap().is_some());

    drop(table);
    writer.close().unwrap();
    let writer = open(&disk);
    let table = writer.table("t").unwrap();
    for n in 0..3 {
        table.put(&key(n), b"value", Durability::Sync).unwrap();
    }
    let log = logs(&disk).pop().unwrap();
    // In the first of the three records.
    let bit = (mycelium_wal::HEADER_LEN as u64 + 20) * 8;
    disk.flip_bit(&log, bit).unwrap();
    for _ in 0..2 {
        let error = reader.catch_up().unwrap_err();
        assert!(error.is_corruption() && error.file() == Some(log.as_path()), "{error}");
        assert_eq!(scan(&read).len(), 2, "reads see what they saw");
    }
    disk.flip_bit(&log, bit).unwrap();
    reader.catch_up().unwrap();
    assert_eq!(scan(&read).len(), 5);
}

#[test]
fn handles_of_tables_that_are_gone_are_refused_and_snapshots_read_them() {
    let (_disk, writer, table, reader) = pair();
    table.put(b"key", b"value", Durability::Os).unwrap();
    reader.catch_up().unwrap();
    let (read, before) = (reader.table("t").unwrap(), reader.snapshot());
    writer.drop_table("t").unwrap();
    reader.catch_up().unwrap();
    assert_eq!(read.get(b"key").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(reader.table("t").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(scan_with(&read, &ReadOptions::at(&before)).len(), 1);

    let other = writer.create_table("other", small_table()).unwrap();
    other.put(b"key", b"value", Durability::Os).unwrap();
    writer.create_table("t", small_table()).unwrap();
    reader.catch_up().unwrap();
    assert!(scan_with(&reader.table("other").unwrap(), &ReadOptions::at(&before)).is_empty(), "it was made later");
    let anew = reader.table("t").unwrap().iter(&ReadOptions::at(&before));
    assert_eq!(anew.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    assert!(scan(&reader.table("t").unwrap()).is_empty());
}

#[test]
fn an_index_of_a_dropped_table_could_not_be_read_at_a_snapshot_that_its_table_could() {
    let disk = MemoryDisk::new();
    let writer = open(&disk);
    let table = writer.create_typed_table("typed", Schema::parse(SCHEMA).unwrap(), typed_table()).unwrap();
    let by_a = IndexOptions { name: "by_a".into(), on: vec!["a".into()], ..IndexOptions::default() };
    writer.create_index(&table, &by_a).unwrap();
    writer.wait_idle().unwrap();
    let row = [DatumRef::Int64(1), DatumRef::Int32(1), DatumRef::Utf8("text")];
    table.insert_row(&row, Durability::Os).unwrap();
    let reader = follower(&disk);
    let read = reader.table("typed").unwrap();
    let (index, before) = (read.index("by_a").unwrap(), reader.snapshot());
    writer.drop_table("typed").unwrap();
    reader.catch_up().unwrap();
    assert_eq!(scan_with(&read, &ReadOptions::at(&before)).len(), 1);
    let found = index.get(&[DatumRef::Int32(1)], None, Some(&before)).unwrap();
    let found: Vec<Datum> = found.map(|row| row.unwrap().values.remove(0)).collect();
    assert_eq!(found, [Datum::Int64(1)]);
    let now = index.get(&[DatumRef::Int32(1)], None, None);
    assert_eq!(now.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
}

/// The process that writes knows of no snapshot here: what it merges into the last level has the number 0, which every
/// snapshot sees.
#[test]
fn a_table_that_was_made_after_a_snapshot_had_rows_at_it_once_it_was_compacted() {
    let (_disk, writer, table, reader) = pair();
    table.put(b"key", b"value", Durability::Os).unwrap();
    reader.catch_up().unwrap();
    let before = reader.snapshot();
    let (plain, typed) = (writer.create_table("plain", small_table()).unwrap(), Schema::parse(SCHEMA).unwrap());
    let typed = writer.create_typed_table("typed", typed, typed_table()).unwrap();
    let by_a = IndexOptions { name: "by_a".into(), on: vec!["a".into()], ..IndexOptions::default() };
    writer.create_index(&typed, &by_a).unwrap();
    for n in 0..2 {
        plain.put(&key(n), b"value", Durability::Os).unwrap();
        let row = [DatumRef::Int64(n.into()), DatumRef::Int32(1), DatumRef::Utf8("text")];
        typed.insert_row(&row, Durability::Os).unwrap();
        writer.flush().unwrap();
    }
    writer.wait_idle().unwrap();
    writer.compact(&plain).unwrap();
    writer.compact(&typed).unwrap();
    reader.catch_up().unwrap();
    for name in ["plain", "typed"] {
        let made = reader.table(name).unwrap();
        assert!(scan_with(&made, &ReadOptions::at(&before)).is_empty(), "{name} was made later");
        assert_eq!(scan(&made).len(), 2, "{name}");
    }
    let index = reader.table("typed").unwrap().index("by_a").unwrap();
    assert_eq!(index.get(&[DatumRef::Int32(1)], None, Some(&before)).unwrap().count(), 0);
    assert_eq!(index.get(&[DatumRef::Int32(1)], None, None).unwrap().count(), 2);
    let kept = scan_with(&reader.table("t").unwrap(), &ReadOptions::at(&before));
    assert_eq!(kept.len(), 1, "what was there before");
}

#[test]
fn only_an_open_database_that_was_opened_read_only_catches_up() {
    let (disk, writer, table, reader) = pair();
    assert_eq!(writer.catch_up().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let closed = reader.clone();
    reader.close().unwrap();
    assert_eq!(closed.catch_up().unwrap_err().kind(), ErrorKind::Closed);

    // Another database in the same place.
    let reader = follower(&disk);
    drop(table);
    writer.close().unwrap();
    for path in disk.paths().into_iter().filter(|path| path.starts_with(DIRECTORY)) {
        disk.remove(&path).unwrap();
    }
    assert!(reader.catch_up().is_err());
    let other = open(&disk);
    other.create_table("t", small_table()).unwrap();
    assert_eq!(reader.catch_up().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(scan(&reader.table("t").unwrap()).is_empty());
}

#[test]
fn a_copy_of_a_follower_is_what_it_caught_up_with() {
    let (disk, writer, table, reader) = pair();
    for (n, copy) in ["/one", "/two", "/three"].into_iter().enumerate() {
        table.put(&key(n as u32), b"value", Durability::Os).unwrap();
        if n == 1 {
            writer.flush().unwrap();
        }
        reader.catch_up().unwrap();
        table.put(b"later", b"", Durability::Os).unwrap();
        let expected = scan(&reader.table("t").unwrap());
        reader.checkpoint(copy).unwrap();
        let copy = Database::open(copy, small_options(&disk)).unwrap();
        assert_eq!(scan(&copy.table("t").unwrap()), expected);
    }
}
