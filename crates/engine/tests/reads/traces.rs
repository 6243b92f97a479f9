//! What tables are asked for is counted as it was asked, kept beside the database, and moves the layout of tables of
//! `layout_auto`, with every answer as before.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, Schema};
use mycelium_engine::events::{Event, EventListener};
use mycelium_engine::{
    Background, Database, Durability, ErrorKind, Expiry, IndexOptions, LeveledOptions, ManualClock, Options, Policy,
    ReadOptions, ScanOptions, Table, TableOptions, Trace,
};
use mycelium_vfs::{Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, rows_at_every_level, small_options, small_table};

const COLUMNS: usize = 8;
const LEVELS: usize = 4;

/// The key is the third column, so that columns and their numbers in traces differ.
fn schema() -> Schema {
    let values: Vec<String> = (0..COLUMNS).map(|column| format!("c{column} int64")).collect();
    let (before, after) = values.split_at(2);
    let text = format!("{}, id int64 not null, {}, primary key (id)", before.join(", "), after.join(", "));
    Schema::parse(&text).unwrap()
}

/// The number that traces give to a column.
fn number(position: usize) -> String {
    (if position < 2 { position } else { position - 1 }).to_string()
}

fn options(layout_auto: bool) -> TableOptions {
    let Policy::Leveled(leveled) = small_table().policy else { unreachable!("small tables are leveled") };
    let leveled = LeveledOptions { level_count: LEVELS, dynamic_levels: false, ..leveled };
    TableOptions { policy: Policy::Leveled(leveled), layout_auto, compression: vec![], ..small_table() }
}

fn cells(id: i64) -> Vec<Datum> {
    let value = |column: i64| if (id + column) % 7 == 0 { Datum::Null } else { Datum::Int64(id * 100 + column) };
    let mut cells: Vec<Datum> = (0..COLUMNS as i64).map(value).collect();
    cells.insert(2, Datum::Int64(id));
    cells
}

fn insert(table: &Table, ids: std::ops::Range<i64>) {
    for id in ids {
        let cells = cells(id);
        let row: Vec<DatumRef<'_>> = cells.iter().map(Datum::borrowed).collect();
        table.insert_row(&row, Durability::Buffered).unwrap();
    }
}

fn read(table: &Table, id: i64, projection: Option<&[usize]>) -> Option<Vec<Datum>> {
    table.get_row(&[DatumRef::Int64(id)], projection, &ReadOptions::default()).unwrap()
}

fn scan_rows(table: &Table, projection: &[usize]) -> usize {
    let options = ScanOptions { projection: Some(projection.to_vec()), ..ScanOptions::default() };
    table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum()
}

/// (points, scans, scanned entries, updates) of columns at a level.
fn counted(trace: &Trace, level: usize, columns: &str) -> (u64, u64, u64, u64) {
    let found = trace.accesses(level).into_iter().find(|access| access.columns.to_string() == columns);
    found.map_or((0, 0, 0, 0), |access| (access.points, access.scans, access.scanned_entries, access.updates))
}

/// Nothing is flushed before it is asked for.
fn roomy_options(disk: &MemoryDisk) -> Options {
    Options { memory_budget: 4 << 20, ..small_options(disk) }
}

/// The table began with nothing, and what was written of its trace was never read again.
#[test]
fn a_table_keeps_its_trace_when_its_columns_change() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", roomy_options(&disk)).unwrap();
    let table = database.create_typed_table("t", schema(), options(false)).unwrap();
    insert(&table, 0..200);
    database.flush().unwrap();
    for id in 0..30 {
        read(&table, id, Some(&[3]));
        read(&table, id, None);
    }
    let points = |trace: &Trace, columns: &str| (0..LEVELS).map(|level| counted(trace, level, columns).0).sum::<u64>();
    let before = table.trace().unwrap();
    assert_eq!((points(&before, &number(3)), points(&before, "0-7"), before.inserts()), (30, 30, 200));

    let table = database.rename_column(&table, "c3", "other").unwrap();
    assert_eq!(table.trace().unwrap(), before);
    let table = database.add_column(&table, Column::new("c8", ColumnType::Int64)).unwrap();
    let after = table.trace().unwrap();
    assert_eq!((points(&after, &number(3)), points(&after, "0-8"), after.inserts()), (30, 30, 200));
    assert_eq!(after.operations(), before.operations());

    let image = disk.kill_image();
    let reopened = Database::open("/db", roomy_options(&image)).unwrap();
    assert_eq!(reopened.table("t").unwrap().trace().unwrap(), after);
    let traces = disk.paths().iter().filter(|path| path.to_string_lossy().contains("TRACE")).count();
    assert_eq!(traces, 1, "that of a table that is gone is removed");
}

#[test]
fn a_scripted_workload_is_counted_as_it_was() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", roomy_options(&disk)).unwrap();
    let table = database.create_typed_table("t", schema(), options(false)).unwrap();
    insert(&table, 0..1000);
    for id in 0..10 {
        assert!(read(&table, id, None).is_some());
    }
    assert_eq!(table.trace().unwrap().operations(), 0, "what memtables answer and hold costs nothing yet");

    database.flush().unwrap();
    database.compact(&table).unwrap();
    let last = database.metrics().tables[0].levels.last().unwrap().level;
    for id in 0..50 {
        assert!(read(&table, id, Some(&[3, 2])).is_some());
    }
    for id in 0..7 {
        assert!(read(&table, id, None).is_some());
        let key = table.row_key(&[DatumRef::Int64(id)]).unwrap();
        assert!(table.get(&key).unwrap().is_some());
    }
    let keys: Vec<Vec<u8>> = (0..5).map(|id| table.row_key(&[DatumRef::Int64(id)]).unwrap()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    table.multi_get(&keys, &ReadOptions::default()).unwrap();
    assert!(read(&table, 5000, None).is_none());
    assert!(read(&table, 5, Some(&[2])).is_some());
    assert_eq!(scan_rows(&table, &[0, 5]), 1000);
    assert_eq!(scan_rows(&table, &[2]), 1000);
    let trace = table.trace().unwrap();
    assert_eq!(trace.inserts(), 1000);
    assert_eq!(counted(&trace, last, &number(3)), (50, 0, 0, 0));
    assert_eq!(counted(&trace, last, "0-7"), (7 + 7 + 5, 0, 0, 0), "a read of a key that is not there finds nothing");
    assert_eq!(counted(&trace, last, "0,4"), (0, 1, 1000, 0));
    assert_eq!(trace.operations(), 1000 + 50 + 19 + 1, "reads of the key alone say nothing of columns");

    for id in 0..9 {
        table.patch_row(&[DatumRef::Int64(id)], &[("c3", DatumRef::Int64(-1))], Durability::Buffered).unwrap();
    }
    table.delete_row(&[DatumRef::Int64(900)], Durability::Buffered).unwrap();
    assert_eq!(table.trace().unwrap(), trace, "writes are counted when they are flushed");
    database.flush().unwrap();
    assert_eq!(read(&table, 3, Some(&[4])).unwrap(), [Datum::Int64(-1)]);
    let trace = table.trace().unwrap();
    assert_eq!(trace.inserts(), 1001);
    for level in 0..=last {
        let points = u64::from(level == 0 || level == last);
        assert_eq!(
            counted(&trace, level, &number(4)),
            (points, 0, 0, 9),
            "level {level}: the patch, and what it changes"
        );
    }
    let plain = database.create_table("kv", TableOptions::default()).unwrap();
    assert_eq!(plain.trace().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(plain.advise(None).is_err());
}

/// Passes over expired rows, and verification.
#[test]
fn what_the_engine_reads_for_itself_was_counted_as_if_it_had_been_asked_for() {
    let disk = MemoryDisk::new();
    let clock = Arc::new(ManualClock::at(Duration::from_secs(1_000)));
    // No pass is due but those that are asked for.
    let settings = Options { clock, expiry_interval: Duration::MAX, ..roomy_options(&disk) };
    let database = Database::open("/db", settings).unwrap();
    let schema = Schema::parse("id int64 not null, at timestamp(s), city utf8, primary key (id)").unwrap();
    let expiry = Some(Expiry::new("at", Duration::from_secs(100)));
    let table = database.create_typed_table("t", schema, TableOptions { expiry, ..options(false) }).unwrap();
    assert_eq!(database.expire_rows(&table).unwrap(), 0);
    let by_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
    database.create_index(&table, &by_city).unwrap();
    for id in 0..400 {
        let at = if id % 4 == 0 { 10 } else { 5_000 };
        let row = [DatumRef::Int64(id), DatumRef::Timestamp(at), DatumRef::Utf8("Graz")];
        table.insert_row(&row, Durability::Buffered).unwrap();
    }
    database.flush().unwrap();
    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    let before = table.trace().unwrap();
    assert_verified(&database);
    assert_eq!(table.trace().unwrap(), before, "verified");
    assert_eq!(database.expire_rows(&table).unwrap(), 100);
    assert_eq!(table.trace().unwrap(), before, "expired");
    let options = ScanOptions { projection: Some(vec![1]), ..ScanOptions::default() };
    assert_eq!(table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 300);
    assert!(table.trace().unwrap().operations() > before.operations());
}

/// Each column group of a level holds the same keys: they count once.
#[test]
fn scans_of_column_groups_count_keys() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let columns = "0-1,3-8".parse().unwrap();
    let groups = "L0 tiered: * packed\nL1 leveled: 0-1,3-4 packed | 5-8 packed";
    let layout = Some(mycelium_engine::Layout::parse(groups, &columns).unwrap());
    let table = database.create_typed_table("t", schema(), TableOptions { layout, ..options(false) }).unwrap();
    insert(&table, 0..2000);
    database.flush().unwrap();
    database.compact(&table).unwrap();
    let last = database.metrics().tables[0].levels.last().unwrap().level;
    assert_eq!(scan_rows(&table, &[0, 8]), 2000);
    assert_eq!(scan_rows(&table, &[8]), 2000);
    assert!(read(&table, 17, None).is_some());
    let trace = table.trace().unwrap();
    assert_eq!(counted(&trace, last, "0,7"), (0, 1, 2000, 0));
    assert_eq!(counted(&trace, last, "7"), (0, 1, 2000, 0));
    assert_eq!(counted(&trace, last, "0-7"), (1, 0, 0, 0));
}

/// A level has runs of whole rows and of column groups at once after a change of its layout. They are of other keys:
/// the larger number alone was counted.
#[test]
fn scans_of_a_level_in_transition_count_the_keys_of_both_layouts() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", roomy_options(&disk)).unwrap();
    let columns = "0-1,3-8".parse().unwrap();
    let layout = rows_at_every_level("0-1,3-8");
    let table = database.create_typed_table("t", schema(), TableOptions { layout, ..options(false) }).unwrap();
    insert(&table, 0..2000);
    database.compact(&table).unwrap();
    let last = database.metrics().tables[0].levels.last().unwrap().level;
    let groups = "L0 tiered: * packed\nL1 leveled: 0-1,3-4 packed | 5-8 packed";
    database.set_layout(&table, mycelium_engine::Layout::parse(groups, &columns).unwrap()).unwrap();
    insert(&table, 5000..6000);
    let from = table.row_key(&[DatumRef::Int64(5000)]).unwrap();
    database.compact_range(&table, Some(&from), None).unwrap();
    assert_eq!(scan_rows(&table, &[0, 8]), 3000);
    assert_eq!(scan_rows(&table, &[8]), 3000);
    let trace = table.trace().unwrap();
    assert_eq!(counted(&trace, last, "0,7"), (0, 1, 3000, 0));
    assert_eq!(counted(&trace, last, "7"), (0, 1, 3000, 0));
}

/// Each is an entry in every group, as a row is, and says nothing of columns.
#[test]
fn range_deletes_are_counted_and_outlive_the_database() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", roomy_options(&disk)).unwrap();
    let table = database.create_typed_table("t", schema(), options(false)).unwrap();
    insert(&table, 0..100);
    let key = |id: i64| table.row_key(&[DatumRef::Int64(id)]).unwrap();
    for from in [10, 40, 40] {
        table.delete_range(&key(from), &key(from + 5), Durability::Buffered).unwrap();
    }
    database.flush().unwrap();
    table.delete_range(&key(70), &key(90), Durability::Buffered).unwrap();
    assert_eq!(table.trace().unwrap().range_deletes(), 3, "writes are counted when they are flushed");
    database.flush().unwrap();
    let trace = table.trace().unwrap();
    assert_eq!((trace.inserts(), trace.range_deletes(), trace.operations()), (100, 4, 104));
    drop(table);
    database.close().unwrap();
    let database = Database::open("/db", roomy_options(&disk)).unwrap();
    assert_eq!(database.table("t").unwrap().trace().unwrap(), trace);
}

/// It stayed until the database was opened again.
#[test]
fn the_trace_of_a_table_goes_with_the_table() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", roomy_options(&disk)).unwrap();
    let table = database.create_typed_table("t", schema(), options(false)).unwrap();
    insert(&table, 0..100);
    database.flush().unwrap();
    let path = Path::new("/db").join(format!("TRACE-{:06}", table.id().0));
    drop(table);
    database.close().unwrap();
    assert!(disk.exists(&path).unwrap());
    Database::open("/db", roomy_options(&disk)).unwrap().drop_table("t").unwrap();
    assert!(!disk.exists(&path).unwrap());
}

#[test]
fn traces_outlive_the_database_and_damage() {
    let disk = MemoryDisk::new();
    let open = || Database::open("/db", roomy_options(&disk)).unwrap();
    let database = open();
    let table = database.create_typed_table("t", schema(), options(false)).unwrap();
    insert(&table, 0..300);
    database.flush().unwrap();
    (0..20).for_each(|id| drop(read(&table, id, Some(&[0, 1]))));
    let trace = table.trace().unwrap();
    let path = Path::new("/db").join(format!("TRACE-{:06}", table.id().0));
    assert!(!disk.exists(&path).unwrap());
    database.close().unwrap();
    assert_eq!(Trace::read_from(&disk.read_bytes(&path).unwrap()[..]).unwrap(), trace);

    let database = open();
    let table = database.table("t").unwrap();
    assert_eq!(table.trace().unwrap(), trace);
    read(&table, 0, None);
    assert_eq!(table.trace().unwrap().operations(), trace.operations() + 1);
    drop(table);
    database.close().unwrap();

    let good = disk.read_bytes(&path).unwrap();
    let other_columns = Trace::new(3, LEVELS).unwrap().to_string().into_bytes();
    let damaged: [&[u8]; 5] = [&[], &good[..good.len() - 2], b"\xff\xfe", &other_columns, &vec![b'9'; 5 << 20]];
    for bytes in damaged {
        disk.create(&path).unwrap().append(bytes).unwrap();
        let database = open();
        assert_eq!(database.table("t").unwrap().trace().unwrap().operations(), 0, "{} bytes", bytes.len());
        database.close().unwrap();
        assert_eq!(disk.read_bytes(&path).unwrap(), bytes, "a trace with nothing in it is not written");
    }
    let database = open();
    database.drop_table("t").unwrap();
    database.close().unwrap();
    open().close().unwrap();
    assert!(!disk.exists(&path).unwrap());
}

#[derive(Default)]
struct Changes(Mutex<Vec<(String, String, f64)>>);

impl EventListener for Changes {
    fn on_event(&self, event: &Event) {
        if let Event::LayoutChanged { from, to, predicted_saving, .. } = event {
            self.0.lock().unwrap().push((from.to_string(), to.to_string(), *predicted_saving));
        }
    }
}

struct Shifting {
    database: Database,
    table: Table,
    changes: Arc<Changes>,
    rng: SmallRng,
}

const ROWS: i64 = 4000;

impl Shifting {
    fn new(seed: u64, disk: &MemoryDisk, background: Background) -> Self {
        let changes = Arc::<Changes>::default();
        let options = Options { listener: Some(changes.clone()), background, ..small_options(disk) };
        let database = Database::open("/db", options).unwrap();
        let options = TableOptions { layout: rows_at_every_level("0-1,3-8"), ..self::options(true) };
        let table = database.create_typed_table("t", schema(), options).unwrap();
        insert(&table, 0..ROWS);
        database.flush().unwrap();
        database.wait_idle().unwrap();
        Self { database, table, changes, rng: SmallRng::seed_from_u64(seed) }
    }

    fn points(&mut self, count: usize) {
        for _ in 0..count {
            let id = self.rng.random_range(0..ROWS);
            assert_eq!(read(&self.table, id, None).unwrap(), cells(id));
        }
        self.database.wait_idle().unwrap();
        self.check();
    }

    fn scans(&mut self, count: usize) {
        for _ in 0..count {
            assert_eq!(scan_rows(&self.table, &[6]), ROWS as usize);
        }
        self.database.wait_idle().unwrap();
        self.check();
    }

    /// Some rows, whole.
    fn check(&self) {
        for id in (0..ROWS).step_by(97) {
            assert_eq!(read(&self.table, id, None).unwrap(), cells(id), "row {id}");
        }
    }

    fn changes(&self) -> Vec<(String, String, f64)> {
        self.changes.0.lock().unwrap().clone()
    }
}

fn shift_there_and_back(seed: u64) -> Vec<(String, String, f64)> {
    let disk = MemoryDisk::new();
    let mut shifting = Shifting::new(seed, &disk, Background::Manual);
    let rows = shifting.table.layout();
    shifting.points(12_000);
    assert_eq!(shifting.changes(), [], "point reads of whole rows want rows");

    for _ in 0..10 {
        shifting.scans(10);
    }
    let changes = shifting.changes();
    assert!(!changes.is_empty(), "scans of one column want it apart");
    assert_eq!(changes[0].0, rows.to_string());
    assert!(changes[0].2 >= 0.1, "{changes:?}");
    assert_eq!(shifting.table.layout().to_string(), changes.last().unwrap().1);
    let deepest = shifting.table.layout().levels().last().unwrap().clone();
    assert!(deepest.groups.iter().any(|group| group.columns.to_string() == "6"), "{}", shifting.table.layout());

    // It takes effect as data are compacted, and nothing else changes.
    shifting.database.compact(&shifting.table).unwrap();
    shifting.check();
    assert_verified(&shifting.database);
    for _ in 0..8 {
        shifting.points(10_000);
    }
    let changes = shifting.changes();
    assert!(shifting.table.layout().is_rows(), "point reads of whole rows want rows again: {changes:?}");
    shifting.database.compact(&shifting.table).unwrap();
    shifting.check();
    assert_verified(&shifting.database);

    let layout = shifting.table.layout();
    let Shifting { database, table, .. } = shifting;
    drop(table);
    database.close().unwrap();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let table = database.table("t").unwrap();
    assert!(table.options().layout_auto);
    assert_eq!(table.layout(), layout);
    assert!(table.trace().unwrap().operations() > 0);
    changes
}

#[test]
fn a_layout_follows_the_workload() {
    let seed = 11;
    println!("seed {seed}");
    let changes = shift_there_and_back(seed);
    println!("{changes:#?}");
    assert_eq!(shift_there_and_back(seed), changes, "the same calls give the same changes");
}

/// Reads wake nobody: who waits for the background to come to rest makes it look.
#[test]
fn threads_decide_too() {
    let disk = MemoryDisk::new();
    let mut shifting = Shifting::new(5, &disk, Background::Threads(2));
    for _ in 0..10 {
        shifting.scans(10);
    }
    assert!(!shifting.changes().is_empty());
}

#[test]
fn only_typed_tables_follow_their_workload() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", small_options(&disk)).unwrap();
    let refused = database.create_table("kv", TableOptions { layout_auto: true, ..TableOptions::default() });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let keys = Schema::parse("id int64 not null, primary key (id)").unwrap();
    let table =
        database.create_typed_table("keys", keys, TableOptions { layout_auto: true, ..TableOptions::default() });
    let table = table.unwrap();
    table.insert_row(&[DatumRef::Int64(1)], Durability::Os).unwrap();
    database.flush().unwrap();
    database.wait_idle().unwrap();
    assert!(table.trace().unwrap_err().to_string().contains("no columns outside its key"));
}

/// The advice is for the table's own levels and columns, and changes nothing.
#[test]
fn advice_is_given_for_what_was_asked() {
    let disk = MemoryDisk::new();
    let database = Database::open("/db", roomy_options(&disk)).unwrap();
    let schema = Schema::parse("a int64, id int64 not null, b int64, c int64, d int64, primary key (id)").unwrap();
    let layout = rows_at_every_level("0,2-4");
    let table = database.create_typed_table("t", schema, TableOptions { layout, ..TableOptions::default() }).unwrap();
    for id in 0..2000 {
        table.insert_row(&[DatumRef::Int64(id); 5], Durability::Buffered).unwrap();
    }
    database.compact(&table).unwrap();
    (0..10).for_each(|id| assert!(read(&table, id, None).is_some()));
    (0..50).for_each(|_| assert_eq!(scan_rows(&table, &[4]), 2000));
    let advice = table.advise(Some(&[3])).unwrap();
    let text = advice.layout.to_string();
    assert!(text.ends_with("leveled: 0,2-3 columnar | 4 columnar\n"), "{text}");
    assert!(advice.design().picture(80).contains("|0,2-3|4|"), "{}", advice.design().picture(80));
    let names: Vec<String> = advice.candidates().into_iter().map(|candidate| candidate.name).collect();
    let compared = ["level by level", "from the last level up", "rows", "columns", "width 3", "columnar"];
    assert_eq!(names, [&["advised", "present"][..], &compared].concat());
    let costs: Vec<f64> = advice.candidates().iter().map(|candidate| candidate.cost.total).collect();
    assert!(costs.iter().all(|cost| costs[0] <= *cost) && costs[1] == costs[4], "{costs:?}");
    assert!(advice.verdict.gain > 0.1, "{:?}", advice.verdict);
    assert!(table.layout().is_rows());
    assert!(table.advise(Some(&[0])).is_err());

    // An index that needs a column of each group keeps them together.
    let on = vec!["d".to_owned(), "b".to_owned()];
    database.create_index(&table, &IndexOptions { name: "by_d".into(), on, ..IndexOptions::default() }).unwrap();
    assert!(table.advise(None).unwrap().layout.is_rows());
}
