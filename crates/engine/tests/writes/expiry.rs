//! Rows that expire: what is deleted and when, against a plain map; what snapshots, indexes and views have of it; and
//! what the definition is through changes of columns, openings and followers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mycelium_base::FileKind;
use mycelium_encoding::{Datum, DatumRef, Schema, TimeUnit};
use mycelium_engine::{
    ArchiveOptions, Background, Database, Durability, ErrorKind, Expiry, Index, IndexOptions, IsolationLevel, Layout,
    ManualClock, Options, ReadOptions, RowFormatDefinition, ScanOptions, Snapshot, Table, TableOptions, View,
    ViewOptions,
};
use mycelium_vfs::{CrashDraw, CrashMode, Effect, Fault, FaultDisk, MemoryDisk, OperationKind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, rows_at_every_level, small_options, small_table};

const SCHEMA: &str = "id int64 not null, city utf8, at timestamp(s), n int32, primary key (id)";
const CITIES: [&str; 3] = ["Graz", "Linz", "Wien"];
const AGE: i64 = 100;

/// A row without its id.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    city: &'static str,
    at: Option<i64>,
}

type Rows = BTreeMap<i64, Row>;

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.try_into().unwrap())
}

fn expiry() -> Expiry {
    Expiry::new("at", seconds(AGE))
}

fn options(disk: &MemoryDisk, clock: &Arc<ManualClock>) -> Options {
    Options { clock: clock.clone(), ..small_options(disk) }
}

fn moment(at: Option<i64>) -> Datum {
    at.map_or(Datum::Null, Datum::Timestamp)
}

fn put(table: &Table, id: i64, row: &Row) {
    let at = moment(row.at);
    let cells = [DatumRef::Int64(id), DatumRef::Utf8(row.city), at.borrowed(), DatumRef::Int32(7)];
    table.insert_row(&cells, Durability::Os).unwrap();
}

fn patch(table: &Table, id: i64, at: Option<i64>) {
    let at = moment(at);
    table.patch_row(&[DatumRef::Int64(id)], &[("at", at.borrowed())], Durability::Os).unwrap();
}

/// All rows of a table, each read by itself, and as many as a scan finds.
fn rows(table: &Table, ids: i64, snapshot: Option<&Snapshot>) -> Rows {
    let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    let mut found = Rows::new();
    for id in 0..ids {
        let Some(row) = table.get_row(&[DatumRef::Int64(id)], Some(&[1, 2]), &options).unwrap() else { continue };
        let (Datum::Utf8(city), at) = (&row[0], &row[1]) else { panic!("{row:?}") };
        let at = match at {
            Datum::Null => None,
            Datum::Timestamp(at) => Some(*at),
            other => panic!("{other:?}"),
        };
        let city = CITIES.into_iter().find(|known| known == city).unwrap();
        found.insert(id, Row { city, at });
    }
    let scan = ScanOptions { snapshot: snapshot.cloned(), ..ScanOptions::default() };
    let scanned: usize = table.scan_batches(scan).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(scanned, found.len());
    found
}

/// A table with an index and a view, and what they must have.
struct Derived {
    index: Index,
    view: View,
}

impl Derived {
    fn of(database: &Database, table: &Table) -> Self {
        let by_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
        let index = database.create_index(table, &by_city).unwrap();
        let (group_by, aggregates) = (vec!["city".into()], vec!["count(*)".into()]);
        let view = database.create_view(table, &ViewOptions { name: "cities".into(), group_by, aggregates }).unwrap();
        Self { index, view }
    }

    fn check(&self, rows: &Rows, snapshot: Option<&Snapshot>) {
        let mut counts = Vec::new();
        for city in CITIES {
            let found = self.index.get(&[DatumRef::Utf8(city)], Some(&[0]), snapshot).unwrap();
            let found: Vec<Datum> = found.map(|row| row.unwrap().values[0].clone()).collect();
            let expected: Vec<Datum> =
                rows.iter().filter(|(_, row)| row.city == city).map(|(id, _)| Datum::Int64(*id)).collect();
            assert_eq!(found, expected, "{city}");
            counts.extend((!expected.is_empty()).then(|| (Datum::Utf8(city.into()), expected.len() as i64)));
        }
        let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
        let groups = self.view.read(&options).unwrap().rows;
        let groups: Vec<(Datum, i64)> = groups
            .into_iter()
            .map(|row| match row.aggregates[..] {
                [Datum::Int64(count)] => (row.group[0].clone(), count),
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(groups, counts);
    }
}

/// Takes out of the model what has expired; how many rows.
fn expire(model: &mut Rows, now: i64) -> u64 {
    let before = model.len();
    model.retain(|_, row| row.at.is_none_or(|at| at + AGE > now));
    (before - model.len()) as u64
}

/// What a model test does to one table.
struct Walk {
    database: Database,
    table: Table,
    /// Of packed rows.
    derived: Option<Derived>,
    clock: Arc<ManualClock>,
    now: i64,
    model: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
}

const IDS: i64 = 60;

impl Walk {
    fn step(&mut self, random: &mut SmallRng) {
        let id = random.random_range(0..IDS);
        let at = random.random_bool(0.9).then(|| self.now - random.random_range(-20..AGE + 40));
        match random.random_range(0..100) {
            0..45 => {
                let row = Row { city: CITIES[random.random_range(0..3)], at };
                put(&self.table, id, &row);
                self.model.insert(id, row);
            }
            45..65 => {
                patch(&self.table, id, at);
                self.model.entry(id).and_modify(|row| row.at = at);
            }
            65..70 => {
                self.table.delete_row(&[DatumRef::Int64(id)], Durability::Os).unwrap();
                self.model.remove(&id);
            }
            70..78 => {
                self.now += random.random_range(0..30);
                self.clock.set(seconds(self.now));
            }
            78..88 => {
                let deleted = self.database.expire_rows(&self.table).unwrap();
                assert_eq!(deleted, expire(&mut self.model, self.now));
                self.check();
            }
            88..91 => self.database.flush().unwrap(),
            91..93 => self.database.compact(&self.table).unwrap(),
            93..96 if self.snapshots.len() < 4 => {
                self.snapshots.push((self.database.snapshot(), self.model.clone()));
            }
            _ => drop(self.snapshots.pop()),
        }
    }

    fn check(&self) {
        assert_eq!(rows(&self.table, IDS, None), self.model);
        self.check_derived(&self.model, None);
        for (snapshot, then) in &self.snapshots {
            assert_eq!(rows(&self.table, IDS, Some(snapshot)), *then);
            self.check_derived(then, Some(snapshot));
        }
    }

    fn check_derived(&self, rows: &Rows, snapshot: Option<&Snapshot>) {
        if let Some(derived) = &self.derived {
            derived.check(rows, snapshot);
        }
    }
}

fn walk(seed: u64, table_options: TableOptions) {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::at(seconds(10_000))));
    // No pass is due but those that the test asks for.
    let options = Options { expiry_interval: Duration::MAX, ..options(&disk, &clock) };
    let database = Database::open("db", options).unwrap();
    let is_packed = table_options.row_format == RowFormatDefinition::default();
    let table_options = TableOptions { expiry: Some(expiry()), ..table_options };
    let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    database.expire_rows(&table).unwrap();
    let derived = is_packed.then(|| Derived::of(&database, &table));
    let (now, model, snapshots) = (10_000, Rows::new(), Vec::new());
    let mut walk = Walk { database, table, derived, clock, now, model, snapshots };
    let mut random = SmallRng::seed_from_u64(seed);
    for _ in 0..400 {
        walk.step(&mut random);
    }
    walk.check();
    walk.snapshots.clear();
    assert_verified(&walk.database);
}

#[test]
fn what_expires_is_what_a_map_says_in_rows() {
    walk(1, TableOptions { layout: rows_at_every_level("1-3"), ..small_table() });
}

#[test]
fn what_expires_is_what_a_map_says_in_columns() {
    walk(2, small_table());
}

#[test]
fn what_expires_is_what_a_map_says_in_column_groups() {
    let text = "L0 tiered: * packed\nL1 leveled: 1,3 packed | 2 columnar";
    let layout = Some(Layout::parse(text, &"1-3".parse().unwrap()).unwrap());
    walk(3, TableOptions { layout, ..small_table() });
}

#[test]
fn what_expires_is_what_a_map_says_in_json() {
    let kind = mycelium_base::RowFormatKind::Json;
    let row_format = RowFormatDefinition { kind, ..RowFormatDefinition::default() };
    walk(4, TableOptions { row_format, ..small_table() });
}

fn open_with(expiry: Option<Expiry>, now: i64) -> (MemoryDisk, Arc<ManualClock>, Database, Table) {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::at(seconds(now))));
    let database = Database::open("db", options(&disk, &clock)).unwrap();
    let table_options = TableOptions { expiry, ..small_table() };
    let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    (disk, clock, database, table)
}

fn put_at(table: &Table, id: i64, at: i64) {
    put(table, id, &Row { city: "Graz", at: Some(at) });
}

fn ids(table: &Table) -> Vec<i64> {
    rows(table, 20, None).into_keys().collect()
}

#[test]
fn a_pass_is_made_when_it_is_due_and_not_before() {
    let (disk, clock, database, table) = open_with(Some(expiry()), 1_000);
    database.wait_idle().unwrap();
    put_at(&table, 1, 850);
    put_at(&table, 2, 950);
    assert!(!database.step().unwrap(), "a pass was made a moment ago");
    clock.set(seconds(1_299));
    assert!(!database.step().unwrap());
    assert_eq!(ids(&table), [1, 2], "they have expired, and are there until a pass is made");
    clock.set(seconds(1_300));
    let before = database.snapshot();
    assert!(database.step().unwrap());
    assert!(ids(&table).is_empty());
    assert_eq!(rows(&table, 20, Some(&before)).into_keys().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(database.metrics().expired_rows, 2);
    put_at(&table, 3, 850);
    drop((before, table));
    database.close().unwrap();
    // The first pass is made when the database is opened.
    let database = Database::open("db", options(&disk, &clock)).unwrap();
    database.wait_idle().unwrap();
    assert!(ids(&database.table("t").unwrap()).is_empty());
}

#[test]
fn a_writer_that_waits_for_room_makes_no_pass() {
    let (_disk, clock, database, table) = open_with(Some(expiry()), 1_000);
    put_at(&table, 1, 850);
    clock.set(seconds(2_000));
    let before = database.metrics().flushes;
    let mut id = 2;
    while database.metrics().flushes < before + 4 {
        put_at(&table, id, 1_999);
        id += 1;
    }
    let options = ReadOptions::default();
    assert!(table.get_row(&[DatumRef::Int64(1)], None, &options).unwrap().is_some());
    database.wait_idle().unwrap();
    assert!(table.get_row(&[DatumRef::Int64(1)], None, &options).unwrap().is_none());
}

#[test]
fn threads_make_passes_by_themselves() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::at(seconds(1_000))));
    let open = |threads| {
        let options = Options { background: Background::Threads(threads), ..options(&disk, &clock) };
        Database::open("db", options).unwrap()
    };
    let database = open(1);
    let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap();
    (0..2_000).for_each(|id| put_at(&table, id, if id % 2 == 0 { 800 } else { 1_000 }));
    database.set_expiry(&table, Some(expiry())).unwrap();
    database.wait_idle().unwrap();
    assert_eq!(database.metrics().expired_rows, 1_000);
    clock.set(seconds(2_000));
    database.wait_idle().unwrap();
    assert_eq!(database.metrics().expired_rows, 2_000);
    put_at(&table, 1, 1_000);
    drop(table);
    database.close().unwrap();
    let database = open(2);
    database.wait_idle().unwrap();
    assert!(ids(&database.table("t").unwrap()).is_empty());
    database.close().unwrap();
}

/// The thread that makes passes looked whether it was to end, and only then how many changes there had been: told in
/// between, it slept for a minute, and who closed the database waited for it.
#[test]
fn closing_waited_for_a_thread_that_had_been_told_too_early() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::at(seconds(1_000))));
    let open = || {
        let options = Options { background: Background::Threads(1), ..options(&disk, &clock) };
        Database::open("db", options).unwrap()
    };
    let table_options = TableOptions { expiry: Some(expiry()), ..small_table() };
    open().create_typed_table("t", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let began = std::time::Instant::now();
    for _ in 0..1_000 {
        let database = open();
        // The pass that is due when it is opened; the thread goes on to sleep just then.
        database.wait_idle().unwrap();
        database.close().unwrap();
    }
    assert!(began.elapsed() < seconds(50), "{:?}", began.elapsed());
}

#[test]
fn an_expiry_is_set_changed_and_ended_and_stays_so() {
    let (disk, clock, database, table) = open_with(None, 1_000);
    (1..=3).for_each(|id| put_at(&table, id, 700 + 100 * id));
    assert_eq!(table.expiry(), None);
    assert_eq!(database.expire_rows(&table).unwrap_err().kind(), ErrorKind::InvalidArgument);
    database.set_expiry(&table, Some(Expiry::new("at", seconds(200)))).unwrap();
    assert_eq!(database.expire_rows(&table).unwrap(), 1);
    drop(table);
    database.close().unwrap();
    let database = Database::open("db", options(&disk, &clock)).unwrap();
    let table = database.table("t").unwrap();
    assert_eq!(table.expiry(), Some(Expiry::new("at", seconds(200))));
    database.set_expiry(&table, Some(expiry())).unwrap();
    assert_eq!(database.expire_rows(&table).unwrap(), 1);
    database.set_expiry(&table, None).unwrap();
    clock.set(seconds(9_000));
    database.wait_idle().unwrap();
    assert_eq!(ids(&table), [3]);
    drop(table);
    database.close().unwrap();
    let database = Database::open("db", options(&disk, &clock)).unwrap();
    assert_eq!(database.table("t").unwrap().expiry(), None);
}

#[test]
fn what_cannot_expire_is_refused() {
    let (_disk, _clock, database, table) = open_with(None, 1_000);
    for expiry in [
        Expiry::new("when", Duration::ZERO),
        Expiry::new("city", Duration::ZERO),
        Expiry::new("n", Duration::ZERO),
        expiry().counting(TimeUnit::Second),
    ] {
        let error = database.set_expiry(&table, Some(expiry.clone())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{expiry:?}");
        let options = TableOptions { expiry: Some(expiry.clone()), ..small_table() };
        let error = database.create_typed_table("u", Schema::parse(SCHEMA).unwrap(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{expiry:?}");
    }
    let options = TableOptions { expiry: Some(expiry()), ..small_table() };
    assert_eq!(database.create_table("u", options).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let bytes = database.create_table("bytes", small_table()).unwrap();
    assert_eq!(database.set_expiry(&bytes, Some(expiry())).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let no_interval = Options { expiry_interval: Duration::ZERO, ..small_options(&MemoryDisk::new()) };
    assert_eq!(Database::open("db", no_interval).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// A type, what it counts, and a time in seconds as a value of it.
type TimeCase = (&'static str, Option<TimeUnit>, fn(i64) -> Datum);

#[test]
fn rows_expire_by_every_type_that_says_a_time() {
    let (_disk, _clock, database, _table) = open_with(None, 1_000_000);
    let cases: [TimeCase; 7] = [
        ("int32", Some(TimeUnit::Second), |at| Datum::Int32(at as i32)),
        ("int64", Some(TimeUnit::Millisecond), |at| Datum::Int64(at * 1_000)),
        ("uint32", Some(TimeUnit::Second), |at| Datum::UInt32(at as u32)),
        ("uint64", Some(TimeUnit::Microsecond), |at| Datum::UInt64(at as u64 * 1_000_000)),
        ("timestamp(ms)", None, |at| Datum::Timestamp(at * 1_000)),
        ("timestamp(ns, \"UTC\")", None, |at| Datum::Timestamp(at * 1_000_000_000)),
        ("date32", None, |at| Datum::Date32((at / 86_400) as i32)),
    ];
    for (ty, unit, made) in cases {
        let schema = Schema::parse(&format!("id int64 not null, at {ty}, primary key (id)")).unwrap();
        let expiry = Some(Expiry { column: "at".into(), unit, age: seconds(2 * 86_400) });
        let options = TableOptions { expiry, ..small_table() };
        let table = database.create_typed_table(ty, schema, options).unwrap();
        let limit = 1_000_000 - 2 * 86_400;
        for (id, at) in [(1, limit - 86_400), (2, limit), (3, limit + 86_400)] {
            table.insert_row(&[DatumRef::Int64(id), made(at).borrowed()], Durability::Os).unwrap();
        }
        table.insert_row(&[DatumRef::Int64(4), DatumRef::Null], Durability::Os).unwrap();
        assert_eq!(database.expire_rows(&table).unwrap(), 2, "{ty}");
        for (id, is_left) in [(1, false), (2, false), (3, true), (4, true)] {
            let row = table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap();
            assert_eq!(row.is_some(), is_left, "{ty}: {id}");
        }
    }
}

#[test]
fn rows_go_on_expiring_while_columns_come_and_go() {
    let (disk, clock, database, table) = open_with(Some(expiry()), 1_000);
    put_at(&table, 1, 850);
    let refusal = database.drop_column(&table, "at").unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::InvalidArgument);
    assert!(refusal.to_string().contains("expire"), "{refusal}");
    let table = database.rename_column(&table, "at", "seen").unwrap();
    let table = database.drop_column(&table, "n").unwrap();
    let renamed = Expiry { column: "seen".into(), ..expiry() };
    assert_eq!(table.expiry(), Some(renamed.clone()));
    assert_eq!(database.expire_rows(&table).unwrap(), 1);
    drop(table);
    database.close().unwrap();
    let database = Database::open("db", options(&disk, &clock)).unwrap();
    let table = database.table("t").unwrap();
    assert_eq!(table.expiry(), Some(renamed));
    database.set_expiry(&table, None).unwrap();
    database.drop_column(&table, "seen").unwrap();
}

#[test]
fn a_follower_expires_nothing_and_sees_what_was_deleted() {
    let (disk, clock, database, table) = open_with(None, 1_000);
    put_at(&table, 1, 850);
    let reader = Database::open("db", Options { read_only: true, ..options(&disk, &clock) }).unwrap();
    let shown = reader.table("t").unwrap();
    database.set_expiry(&table, Some(expiry())).unwrap();
    reader.catch_up().unwrap();
    assert_eq!(shown.expiry(), Some(expiry()));
    assert_eq!(reader.expire_rows(&shown).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.set_expiry(&shown, None).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(!reader.step().unwrap());
    reader.wait_idle().unwrap();
    assert_eq!(ids(&shown), [1]);
    assert_eq!(database.expire_rows(&table).unwrap(), 1);
    reader.catch_up().unwrap();
    assert!(ids(&shown).is_empty());
}

#[test]
fn a_pass_that_finds_the_disk_full_is_begun_anew() {
    let disk = FaultDisk::over_memory(MemoryDisk::new());
    let clock = Arc::new(ManualClock::at(seconds(1_000)));
    let options = Options { disk: Arc::new(disk.clone()), ..options(&MemoryDisk::new(), &clock) };
    let database = Database::open("db", options).unwrap();
    let table_options = TableOptions { expiry: Some(expiry()), ..small_table() };
    let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    put_at(&table, 1, 850);
    disk.schedule(Fault::new(OperationKind::Append, Effect::NoSpace).on(FileKind::Wal).sticky());
    assert_eq!(database.step().unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(database.expire_rows(&table).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(ids(&table), [1]);
    disk.heal();
    assert!(database.step().unwrap(), "the clock has not moved, and the pass is still due");
    assert!(ids(&table).is_empty());
    assert!(!database.step().unwrap());
}

/// A write that the archive's bound refuses was taken for a failed job: the database stayed read-only, also when the
/// archive took the log again.
#[test]
fn a_pass_whose_write_was_refused_made_the_database_read_only() {
    let memory = MemoryDisk::new();
    let disk = FaultDisk::over_memory(memory.clone());
    let clock = Arc::new(ManualClock::at(seconds(1_000)));
    let archive = Some(ArchiveOptions { most_waiting_bytes: 100 << 10, ..ArchiveOptions::new("/archive") });
    let options = Options { disk: Arc::new(disk.clone()), archive, ..options(&memory, &clock) };
    let database = Database::open("/db", options).unwrap();
    let table_options = TableOptions { expiry: Some(expiry()), ..small_table() };
    let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), table_options).unwrap();
    let is_there = |id| table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap().is_some();
    put_at(&table, 1, 850);
    disk.schedule(Fault::new(OperationKind::HardLink, Effect::Io).sticky());
    let city = "x".repeat(1_000);
    let insert = |id| {
        let cells = [DatumRef::Int64(id), DatumRef::Utf8(&city), DatumRef::Timestamp(9_000), DatumRef::Int32(0)];
        table.insert_row(&cells, Durability::Os)
    };
    let refused = (2..2_000).find_map(|id| insert(id).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Io);
    assert_eq!(database.wait_idle().unwrap_err().kind(), ErrorKind::Io, "that of the pass");
    assert!(database.failure().is_none());
    disk.heal();
    insert(3_000).unwrap();
    assert!(is_there(1));
    clock.set(seconds(1_300));
    database.wait_idle().unwrap();
    assert!(!is_there(1) && is_there(3_000));
}

/// Whoever had read it for update lost it, or met a conflict, though all who change it took turns.
#[test]
fn rows_that_are_locked_were_deleted_by_passes() {
    let (_disk, _clock, database, table) = open_with(Some(expiry()), 1_000);
    (1..=3).for_each(|id| put_at(&table, id, 850));
    let mut renewal = database.begin(IsolationLevel::Snapshot);
    assert!(renewal.get_row_for_update(&table, &[DatumRef::Int64(2)], None).unwrap().is_some());
    assert_eq!(database.expire_rows(&table).unwrap(), 2);
    assert_eq!(ids(&table), [2]);
    let later = ("at", DatumRef::Timestamp(950));
    renewal.patch_row(&table, &[DatumRef::Int64(2)], &[later]).unwrap();
    renewal.commit(Durability::Os).unwrap();
    assert_eq!(database.expire_rows(&table).unwrap(), 0);
    assert_eq!(ids(&table), [2]);
}

#[test]
fn locked_rows_were_deleted_with_the_range_that_they_lie_in() {
    let (_disk, _clock, database, _table) = open_with(None, 1_000);
    let schema = Schema::parse("id int64 not null, at timestamp(s) not null, primary key (at, id)").unwrap();
    let options = TableOptions { expiry: Some(expiry()), ..small_table() };
    let table = database.create_typed_table("by_time", schema, options).unwrap();
    for id in 1..=5 {
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Timestamp(800 + id)], Durability::Os).unwrap();
    }
    let mut holder = database.begin(IsolationLevel::Serializable);
    holder.lock_row(&table, &[DatumRef::Timestamp(803), DatumRef::Int64(3)]).unwrap();
    assert_eq!(database.expire_rows(&table).unwrap(), 4);
    let count = || table.scan_batches(ScanOptions::default()).unwrap().map(|b| b.unwrap().num_rows()).sum::<usize>();
    assert_eq!(count(), 1);
    holder.rollback();
    assert_eq!(database.expire_rows(&table).unwrap(), 1);
    assert_eq!(count(), 0);
}

#[test]
fn a_pass_over_a_table_that_was_dropped_is_over() {
    let (_disk, _clock, database, table) = open_with(Some(expiry()), 1_000);
    database.drop_table("t").unwrap();
    assert_eq!(database.expire_rows(&table).unwrap_err().kind(), ErrorKind::NotFound);
    database.wait_idle().unwrap();
    assert!(database.failure().is_none());
}

/// What was deleted and logged is deleted after a crash, and what was not expires again.
#[test]
fn rows_expire_once_more_where_a_crash_took_their_deletes_back() {
    let (disk, clock, database, table) = open_with(Some(expiry()), 1_000);
    for id in 1..=5 {
        put_at(&table, id, 850);
    }
    database.sync().unwrap();
    assert_eq!(database.expire_rows(&table).unwrap(), 5);
    let image = disk.crash_image(&CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 });
    let options = Options { clock: clock.clone(), ..small_options(&image) };
    let database = Database::open("db", options).unwrap();
    let table = database.table("t").unwrap();
    assert_eq!(ids(&table), [1, 2, 3, 4, 5]);
    assert_eq!(database.expire_rows(&table).unwrap(), 5);
    assert!(ids(&table).is_empty());
    assert_verified(&database);
}
