//! Materialised views: what they answer against plain sums over a plain map, and whether partial aggregates answered.

use std::collections::BTreeMap;
use std::path::Path;

use mycelium_base::ColumnSet;
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, ErrorKind, GroupRow, Layout, ReadOptions, Snapshot, Table, TableOptions, View, ViewCounters,
    ViewOptions, WriteBatch,
};
use mycelium_vfs::{CrashDraw, Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, rows_at_every_level, small_options, small_table};

const SCHEMA: &str = "id int64 not null, city utf8, amount decimal(20, 4), n int32, level float64, primary key (id)";

/// A row without its id.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    city: Option<&'static str>,
    amount: Option<i128>,
    n: Option<i32>,
    level: Option<f64>,
}

type Rows = BTreeMap<i64, Row>;

fn open(disk: &MemoryDisk) -> Database {
    Database::open("db", small_options(disk)).unwrap()
}

/// In rows unless the options have a layout: tests count blocks, of which columns have fewer.
fn create(database: &Database, mut options: TableOptions) -> Table {
    if options.transformers.is_none() {
        options.layout = options.layout.or(rows_at_every_level("1-4"));
    }
    database.create_typed_table("sales", Schema::parse(SCHEMA).unwrap(), options).unwrap()
}

fn options(name: &str, group_by: &[&str], aggregates: &[&str]) -> ViewOptions {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ViewOptions { name: name.into(), group_by: owned(group_by), aggregates: owned(aggregates) }
}

fn by_city() -> ViewOptions {
    options("by_city", &["city"], &["count(*)", "count(amount)", "sum(amount)", "min(n)", "max(n)", "min(level)"])
}

fn datum<T>(value: Option<T>, make: impl FnOnce(T) -> Datum) -> Datum {
    value.map_or(Datum::Null, make)
}

fn cells(id: i64, row: &Row) -> [Datum; 5] {
    [
        Datum::Int64(id),
        datum(row.city, |city| Datum::Utf8(city.to_owned())),
        datum(row.amount, Datum::Decimal128),
        datum(row.n, Datum::Int32),
        datum(row.level, Datum::Float64),
    ]
}

fn put(table: &Table, id: i64, row: &Row) {
    let cells = cells(id, row);
    let cells: Vec<DatumRef<'_>> = cells.iter().map(Datum::borrowed).collect();
    table.insert_row(&cells, Durability::Os).unwrap();
}

fn row_of(id: i64) -> Row {
    let city = ["Graz", "Linz", "Wien"][id as usize % 3];
    Row { city: Some(city), amount: Some(i128::from(id) * 100), n: Some(id as i32 % 50), level: Some(0.5) }
}

fn load(table: &Table, ids: std::ops::Range<i64>) -> Rows {
    let rows: Rows = ids.map(|id| (id, row_of(id))).collect();
    rows.iter().for_each(|(id, row)| put(table, *id, row));
    rows
}

/// What a view must hold: every cell of every row is looked at by hand.
fn expected(rows: &Rows, view: &ViewOptions) -> Vec<GroupRow> {
    let schema = Schema::parse(SCHEMA).unwrap();
    let column = |name: &str| schema.index_of(name).unwrap();
    let mut groups: BTreeMap<Vec<Datum>, Vec<[Datum; 5]>> = BTreeMap::new();
    for (id, row) in rows {
        let cells = cells(*id, row);
        let group = view.group_by.iter().map(|name| cells[column(name)].clone()).collect();
        groups.entry(group).or_default().push(cells);
    }
    if view.group_by.is_empty() {
        groups.entry(Vec::new()).or_default();
    }
    let compute = |text: &String, rows: &[[Datum; 5]]| {
        let (function, name) = text.strip_suffix(')').unwrap().split_once('(').unwrap();
        if name == "*" {
            return Datum::Int64(rows.len() as i64);
        }
        let values = || rows.iter().map(|row| row[column(name)].clone()).filter(|value| *value != Datum::Null);
        match function {
            "count" => Datum::Int64(values().count() as i64),
            "min" => values().min().unwrap_or(Datum::Null),
            "max" => values().max().unwrap_or(Datum::Null),
            _ if values().next().is_none() => Datum::Null,
            _ => Datum::Decimal128(
                values()
                    .map(|value| match value {
                        Datum::Int32(v) => v.into(),
                        Datum::Int64(v) => v.into(),
                        Datum::Decimal128(v) => v,
                        other => panic!("{other:?}"),
                    })
                    .sum(),
            ),
        }
    };
    let row = |(group, rows): (Vec<Datum>, Vec<_>)| GroupRow {
        group,
        aggregates: view.aggregates.iter().map(|text| compute(text, &rows)).collect(),
    };
    groups.into_iter().map(row).collect()
}

fn read(view: &View) -> (Vec<GroupRow>, ViewCounters) {
    let found = view.read(&ReadOptions::default()).unwrap();
    (found.rows, found.counters)
}

fn assert_answers(view: &View, wanted: &ViewOptions, rows: &Rows) -> ViewCounters {
    let (found, counters) = read(view);
    assert_eq!(found, expected(rows, wanted), "{counters:?}");
    counters
}

#[test]
fn partial_aggregates_answer_where_nothing_else_lies() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let view = database.create_view(&table, &by_city()).unwrap();
    let mut rows = load(&table, 0..20_000);
    assert_answers(&view, &by_city(), &rows);
    database.compact(&table).unwrap();
    let counters = assert_answers(&view, &by_city(), &rows);
    assert!(counters.files > 10 && counters.rows == 0, "{counters:?}");

    // A younger row is met by the block that holds its key, and by no other.
    let changed = Row { city: Some("Linz"), amount: None, n: Some(-7), level: None };
    put(&table, 10_000, &changed);
    rows.insert(10_000, changed);
    let counters = assert_answers(&view, &by_city(), &rows);
    assert!(counters.rows > 0 && counters.rows < 60 && counters.blocks > 0 && counters.files > 10, "{counters:?}");
    database.flush().unwrap();
    assert_eq!(assert_answers(&view, &by_city(), &rows).rows, counters.rows);
    assert_verified(&database);
}

#[test]
fn one_row_in_a_hundred_leaves_most_blocks_to_their_partial_aggregates() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let view = database.create_view(&table, &by_city()).unwrap();
    let mut rows = load(&table, 0..20_000);
    database.compact(&table).unwrap();
    for id in (0..20_000).step_by(100) {
        put(&table, id, &row_of(id + 1));
        rows.insert(id, row_of(id + 1));
    }
    let counters = assert_answers(&view, &by_city(), &rows);
    assert!(counters.rows < 8_000 && counters.blocks > 300, "{counters:?}");
}

#[test]
fn pages_answer_for_their_blocks_in_large_files() {
    let database = open(&MemoryDisk::new());
    let options = TableOptions { block_size: 256, ..TableOptions::default() };
    let table = create(&database, options);
    let wanted = options_all();
    let view = database.create_view(&table, &wanted).unwrap();
    let mut rows = load(&table, 0..20_000);
    // Over all others: files that lie apart would be moved as they are.
    for id in [0, 19_999] {
        put(&table, id, &row_of(id));
    }
    database.compact(&table).unwrap();
    assert_eq!(assert_answers(&view, &wanted, &rows).files, 1);
    table.delete_row(&[DatumRef::Int64(7)], Durability::Os).unwrap();
    rows.remove(&7);
    let counters = assert_answers(&view, &wanted, &rows);
    assert!(counters.files == 0 && counters.pages > 20 && counters.blocks > 30 && counters.rows < 40, "{counters:?}");
}

fn options_all() -> ViewOptions {
    options("all", &[], &["count(*)", "sum(amount)", "min(id)", "max(id)", "max(city)"])
}

#[test]
fn a_range_takes_its_part() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let view = database.create_view(&table, &by_city()).unwrap();
    let rows = load(&table, 0..20_000);
    database.compact(&table).unwrap();
    for (from, to) in [(0, 20_000), (5_000, 15_000), (7, 8), (9, 9), (19_990, 30_000), (-5, 3)] {
        let key = |id| table.row_key(&[DatumRef::Int64(id)]).unwrap();
        let range = ReadOptions { lower: Some(key(from)), upper: Some(key(to)), ..ReadOptions::default() };
        let found = view.read(&range).unwrap();
        let part: Rows = rows.range(from..to).map(|(id, row)| (*id, row.clone())).collect();
        assert_eq!(found.rows, expected(&part, &by_city()), "{from} to {to}");
        assert!(found.counters.rows < 120, "{:?}", found.counters);
    }
}

/// What lies in a block is not what a snapshot sees that is older than one of its rows.
#[test]
fn a_snapshot_does_not_count_what_came_after_it() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let view = database.create_view(&table, &options_all()).unwrap();
    let before = load(&table, 0..3_000);
    let snapshot = database.snapshot();
    let mut after = before.clone();
    after.extend(load(&table, 2_000..6_000));
    table.delete_row(&[DatumRef::Int64(17)], Durability::Os).unwrap();
    after.remove(&17);
    for _ in 0..2 {
        let found = view.read(&ReadOptions::at(&snapshot)).unwrap();
        assert_eq!(found.rows, expected(&before, &options_all()), "{:?}", found.counters);
        assert_answers(&view, &options_all(), &after);
        database.compact(&table).unwrap();
    }
    drop(snapshot);
    database.compact(&table).unwrap();
    assert_answers(&view, &options_all(), &after);
    assert_verified(&database);
}

#[test]
fn a_view_of_a_full_table_is_exact_at_once_and_quick_once_files_are_rewritten() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database, small_table());
    let rows = load(&table, 0..5_000);
    database.compact(&table).unwrap();
    let view = database.create_view(&table, &by_city()).unwrap();
    let counters = assert_answers(&view, &by_city(), &rows);
    assert_eq!((counters.files, counters.rows), (0, 5_000));
    database.compact(&table).unwrap();
    let counters = assert_answers(&view, &by_city(), &rows);
    assert_eq!(counters.rows, 0, "{counters:?}");
    drop((view, table));
    database.close().unwrap();
    let database = open(&disk);
    let view = database.table("sales").unwrap().view("by_city").unwrap();
    assert_eq!(assert_answers(&view, &by_city(), &rows).rows, 0);
}

/// A run of which some files are older than the view: the rows of those before a file with partial aggregates were
/// passed over.
#[test]
fn rows_of_files_without_partial_aggregates_are_not_lost_before_files_that_have_them() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let mut rows = load(&table, 0..4_000);
    database.compact(&table).unwrap();
    let wanted = by_city();
    let view = database.create_view(&table, &wanted).unwrap();
    for ids in [3_500..3_600, 1_000..1_100] {
        for _ in 0..6 {
            rows.extend(load(&table, ids.clone()));
            database.flush().unwrap();
        }
        while database.step().unwrap() {}
        let counters = assert_answers(&view, &wanted, &rows);
        assert!(counters.files > 0 && counters.rows > 2_000, "{counters:?}");
    }
    assert_verified(&database);
}

#[test]
fn a_view_of_an_old_name_does_not_read_what_a_dropped_one_left() {
    let disk = MemoryDisk::new();
    let mut database = open(&disk);
    let mut table = create(&database, small_table());
    let first = database.create_view(&table, &by_city()).unwrap();
    let rows = load(&table, 0..5_000);
    database.compact(&table).unwrap();
    assert_eq!(assert_answers(&first, &by_city(), &rows).rows, 0);
    for reopened in [false, true] {
        database.drop_view(&table, "by_city").unwrap();
        assert_eq!(first.read(&ReadOptions::default()).unwrap_err().kind(), ErrorKind::NotFound);
        if reopened {
            drop(table);
            database.close().unwrap();
            database = open(&disk);
            table = database.table("sales").unwrap();
        }
        let other = options("by_city", &["n"], &["max(amount)", "count(city)"]);
        let second = database.create_view(&table, &other).unwrap();
        assert_eq!(assert_answers(&second, &other, &rows).rows, 5_000);
        assert_eq!(table.views().len(), 1);
    }
    assert_eq!(database.drop_view(&table, "gone").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn column_groups_that_part_the_columns_of_a_view_leave_it_to_the_rows() {
    let database = open(&MemoryDisk::new());
    let columns = ColumnSet::from_iter([1, 2, 3, 4]);
    let layout = |text| Layout::parse(text, &columns).unwrap();
    let apart = layout("L0 tiered: * packed\nL1 leveled: 1,3 packed | 2,4 packed");
    let together = layout("L0 tiered: * packed\nL1 leveled: 1-2 packed | 3-4 packed");
    let table = create(&database, TableOptions { layout: Some(apart), ..small_table() });
    let wanted = options("sums", &["city"], &["sum(amount)"]);
    let view = database.create_view(&table, &wanted).unwrap();
    let counting = options("counts", &[], &["count(*)", "max(id)"]);
    let count = database.create_view(&table, &counting).unwrap();
    let rows = load(&table, 0..5_000);
    database.compact(&table).unwrap();
    let counters = assert_answers(&view, &wanted, &rows);
    assert_eq!((counters.files, counters.rows), (0, 5_000));
    assert_eq!(assert_answers(&count, &counting, &rows).rows, 0, "one group knows the rows");
    database.set_layout(&table, together).unwrap();
    database.compact(&table).unwrap();
    assert_eq!(assert_answers(&view, &wanted, &rows).rows, 0);
    assert_eq!(assert_answers(&count, &counting, &rows).rows, 0);
}

#[test]
fn bulk_loaded_rows_are_seen_from_their_number_on() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let view = database.create_view(&table, &by_city()).unwrap();
    let snapshot = database.snapshot();
    let other = create_copy(&database);
    let rows = load(&other, 0..5_000);
    let loaded = crate::common::scan(&other);
    table.ingest(loaded.iter().map(|(key, value)| Ok((key, value)))).unwrap();
    let counters = assert_answers(&view, &by_city(), &rows);
    assert!(counters.rows == 0 && counters.files > 0, "{counters:?}");
    assert_eq!(view.read(&ReadOptions::at(&snapshot)).unwrap().rows, []);
}

fn create_copy(database: &Database) -> Table {
    database.create_typed_table("copy", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap()
}

#[test]
fn views_that_cannot_be_are_refused() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let kind = |options: &ViewOptions| database.create_view(&table, options).unwrap_err().kind();
    for aggregates in
        [&["sum(city)"][..], &["sum(x)"], &["avg(n)"], &["count"], &[], &["min(n)", "min(n)"], &["sum(*)"]]
    {
        assert_eq!(kind(&options("v", &[], aggregates)), ErrorKind::InvalidArgument, "{aggregates:?}");
    }
    for name in ["", "a b", "a/b"] {
        assert_eq!(kind(&options(name, &[], &["count(*)"])), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind(&options("v", &["city", "city"], &["count(*)"])), ErrorKind::InvalidArgument);
    database.create_view(&table, &by_city()).unwrap();
    assert_eq!(kind(&by_city()), ErrorKind::InvalidArgument);
    let bytes = database.create_table("bytes", TableOptions::default()).unwrap();
    let of_bytes = database.create_view(&bytes, &by_city()).unwrap_err();
    assert_eq!(of_bytes.kind(), ErrorKind::InvalidArgument);
}

/// The answer must not depend on which rows a compaction has added up already: so no sum may overflow on the way.
#[test]
fn a_sum_that_fits_is_given_even_where_a_part_of_it_does_not() {
    let database = open(&MemoryDisk::new());
    let schema = Schema::parse("id int64 not null, v decimal(38, 0), primary key (id)").unwrap();
    let table = database.create_typed_table("large", schema, small_table()).unwrap();
    let view = database.create_view(&table, &options("sum", &[], &["sum(v)"])).unwrap();
    let most = 10_i128.pow(38) - 1;
    let insert = |id, v| table.insert_row(&[DatumRef::Int64(id), DatumRef::Decimal128(v)], Durability::Os).unwrap();
    for id in 0..100 {
        insert(id, most);
        insert(1_000 + id, -most);
    }
    insert(2_000, 42);
    for _ in 0..2 {
        assert_eq!(read(&view).0[0].aggregates, [Datum::Decimal128(42)]);
        database.compact(&table).unwrap();
    }
    insert(2_001, most);
    for _ in 0..2 {
        assert_eq!(view.read(&ReadOptions::default()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        database.compact(&table).unwrap();
    }
}

/// What no answer can hold passed for damage.
#[test]
fn a_sum_that_is_too_large_is_no_fault_of_the_files() {
    let database = open(&MemoryDisk::new());
    let schema = Schema::parse("id int64 not null, v decimal(38, 0), primary key (id)").unwrap();
    let table = database.create_typed_table("large", schema, small_table()).unwrap();
    let view = database.create_view(&table, &options("sum", &[], &["sum(v)"])).unwrap();
    for id in 0..100 {
        let row = [DatumRef::Int64(id), DatumRef::Decimal128(10_i128.pow(38) - 1)];
        table.insert_row(&row, Durability::Os).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(view.read(&ReadOptions::default()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_verified(&database);
        database.compact(&table).unwrap();
    }
}

/// Sums of floats were refused, since running ones depend on where compactions stand.
#[test]
fn sums_of_floats_are_exact_wherever_rows_lie() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let wanted = options("levels", &["city"], &["sum(level)", "count(level)"]);
    let view = database.create_view(&table, &wanted).unwrap();
    // Added up one after the other, each 1.0 is lost beside 1e17.
    let levels = [1e17, 1.0, -1e17, 0.25];
    let mut ones = BTreeMap::from([("Graz", 0.0), ("Linz", 0.0), ("Wien", 0.0)]);
    for id in 0..1200 {
        let row = Row { level: Some(levels[id as usize / 3 % levels.len()]), ..row_of(id) };
        put(&table, id, &row);
        *ones.get_mut(row.city.unwrap()).unwrap() +=
            row.level.filter(|level| *level < 2.0 && *level > 0.0).unwrap_or(0.0);
    }
    let expected: Vec<GroupRow> = ones
        .iter()
        .map(|(city, sum)| GroupRow {
            group: vec![Datum::Utf8((*city).to_owned())],
            aggregates: vec![Datum::Float64(*sum), Datum::Int64(400)],
        })
        .collect();
    for is_compacted in [false, true] {
        let (found, counters) = read(&view);
        assert_eq!(found, expected);
        assert_eq!(counters.rows == 0, is_compacted, "{counters:?}");
        database.compact(&table).unwrap();
    }
    assert_verified(&database);
}

#[test]
fn equal_floats_are_one_group_and_one_extreme_wherever_they_lie() {
    let database = open(&MemoryDisk::new());
    let table = create(&database, small_table());
    let wanted = options("levels", &["level"], &["count(*)", "min(level)"]);
    let view = database.create_view(&table, &wanted).unwrap();
    let levels = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, 1.0];
    for id in 0..600 {
        put(&table, id, &Row { level: Some(levels[id as usize % levels.len()]), ..row_of(id) });
    }
    let bits = |rows: &[GroupRow]| -> Vec<u64> {
        let all = rows.iter().flat_map(|row| row.group.iter().chain(&row.aggregates[1..]));
        all.map(|datum| if let Datum::Float64(v) = datum { v.to_bits() } else { 0 }).collect()
    };
    let before = read(&view).0;
    assert_eq!(before.len(), 4);
    database.compact(&table).unwrap();
    let (after, counters) = read(&view);
    assert_eq!((counters.rows, bits(&after)), (0, bits(&before)));
    assert_eq!(after, before);
}

#[test]
fn views_survive_a_crash_and_answer_the_same() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database, small_table());
    database.create_view(&table, &by_city()).unwrap();
    let rows = load(&table, 0..3_000);
    database.compact(&table).unwrap();
    load(&table, 100..200);
    database.sync().unwrap();
    for seed in 0..10 {
        let image = disk.crash_image(&CrashDraw::from_seed(seed));
        let database = open(&image);
        let view = database.table("sales").unwrap().view("by_city").unwrap();
        assert_answers(&view, &by_city(), &rows);
        assert_verified(&database);
    }
}

#[test]
fn damaged_partial_aggregates_are_corruption_with_file_and_offset() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = create(&database, small_table());
    database.create_view(&table, &options_all()).unwrap();
    load(&table, 0..500);
    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    drop(table);
    database.close().unwrap();
    let names = disk.list(Path::new("db")).unwrap();
    let name = names.iter().filter(|name| name.ends_with(".sst")).max().unwrap();
    let path = Path::new("db").join(name);
    let len = disk.open(&path, mycelium_vfs::AccessPattern::Random).unwrap().len();
    // Footer (96 bytes) and properties lie behind the directory; its last bytes are a checksum.
    let mut found = 0;
    for back in (97..400).step_by(7) {
        let copy = disk.crash_image(&CrashDraw::from_seed(0));
        copy.flip_bit(&path, (len - back) * 8).unwrap();
        let Ok(database) = Database::open("db", small_options(&copy)) else { continue };
        let Ok(view) = database.table("sales").unwrap().view("all") else { continue };
        if let Err(error) = view.read(&ReadOptions::default()) {
            assert!(error.is_corruption(), "{error}");
            assert_eq!(error.file(), Some(path.as_path()), "{error}");
            assert!(error.offset().is_some_and(|offset| offset <= len - back), "{error}");
            found += 1;
        }
    }
    assert!(found > 0, "no flipped bit met the summaries");
}

/// Draws a row whose text and numbers repeat.
fn draw(rng: &mut SmallRng) -> Row {
    let null = |rng: &mut SmallRng| rng.random_bool(0.1);
    Row {
        city: (!null(rng)).then(|| *["Graz", "Linz", "", "a\0b"].choose(rng).unwrap()),
        amount: (!null(rng)).then(|| rng.random_range(-1_000_000..1_000_000)),
        n: (!null(rng)).then(|| rng.random_range(-3..4)),
        level: (!null(rng)).then(|| f64::from(rng.random_range(-4..4)) / 4.0),
    }
}

const LAYOUTS: [&str; 4] = [
    "L0 tiered: * packed\nL1 leveled: * packed",
    "L0 tiered: * packed\nL1 leveled: 1-2 packed | 3-4 packed",
    "L0-1 tiered: * packed\nL2 leveled: 1,3 packed | 2 packed | 4 packed",
    "L0 tiered: * packed\nL1 leveled: 1 packed | 2 packed | 3 packed | 4 packed",
];

/// A table, its rows as they must be, and the same at snapshots.
struct History {
    rng: SmallRng,
    disk: MemoryDisk,
    database: Database,
    table: Table,
    rows: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
    taken: ViewCounters,
}

fn all_views() -> Vec<ViewOptions> {
    vec![
        by_city(),
        options_all(),
        options("pairs", &["n", "city"], &["sum(amount)", "count(level)", "max(level)"]),
        options("amounts", &["level"], &["sum(n)", "min(amount)", "max(amount)", "count(*)"]),
        options("keys", &[], &["count(*)", "sum(id)", "max(id)"]),
    ]
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let columns = ColumnSet::from_iter([1, 2, 3, 4]);
        let layout = rng.random_bool(0.5).then(|| Layout::parse(LAYOUTS.choose(&mut rng).unwrap(), &columns).unwrap());
        let block_size = *[256, 512, 2048].choose(&mut rng).unwrap();
        let table = create(&database, TableOptions { layout, block_size, ..small_table() });
        for view in all_views().iter().filter(|_| rng.random_bool(0.7)) {
            database.create_view(&table, view).unwrap();
        }
        let taken = ViewCounters::default();
        Self { rng, disk, database, table, rows: Rows::new(), snapshots: Vec::new(), taken }
    }

    fn id(&mut self) -> i64 {
        self.rng.random_range(0..3_000)
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.rng.random_range(1..40) {
            let id = self.id();
            match self.rng.random_range(0..10) {
                0 => {
                    batch.delete_row(&self.table, &[DatumRef::Int64(id)]).unwrap();
                    self.rows.remove(&id);
                }
                1..4 => {
                    let (n, amount) = (self.rng.random_range(-3..4), self.rng.random_range(0..1_000));
                    let changes = [("n", DatumRef::Int32(n)), ("amount", DatumRef::Decimal128(amount))];
                    let changes = &changes[..self.rng.random_range(1..3)];
                    batch.patch_row(&self.table, &[DatumRef::Int64(id)], changes).unwrap();
                    if let Some(row) = self.rows.get_mut(&id) {
                        row.n = Some(n);
                        row.amount = if changes.len() == 2 { Some(amount) } else { row.amount };
                    }
                }
                _ => {
                    let row = draw(&mut self.rng);
                    let cells = cells(id, &row);
                    let cells: Vec<DatumRef<'_>> = cells.iter().map(Datum::borrowed).collect();
                    batch.insert_row(&self.table, &cells).unwrap();
                    self.rows.insert(id, row);
                }
            }
        }
        self.database.write(&batch, Durability::Os).unwrap();
    }

    fn append(&mut self) {
        let from = self.rows.last_key_value().map_or(0, |(id, _)| id + 1).max(3_000);
        for id in from..from + self.rng.random_range(100..400) {
            let row = draw(&mut self.rng);
            put(&self.table, id, &row);
            self.rows.insert(id, row);
        }
    }

    fn delete_range(&mut self) {
        let from = self.id();
        let to = from + self.rng.random_range(1..200);
        let key = |id| self.table.row_key(&[DatumRef::Int64(id)]).unwrap();
        self.table.delete_range(&key(from), &key(to), Durability::Os).unwrap();
        self.rows.retain(|id, _| !(from..to).contains(id));
    }

    fn turn_view(&mut self) {
        let view = all_views().choose(&mut self.rng).unwrap().clone();
        match self.table.view(&view.name) {
            Ok(_) => self.database.drop_view(&self.table, &view.name).unwrap(),
            Err(_) => drop(self.database.create_view(&self.table, &view).unwrap()),
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        if self.rng.random_bool(0.5) {
            self.disk = self.disk.crash_image(&CrashDraw::from_seed(self.rng.random()));
        } else {
            self.database.clone().close().unwrap();
        }
        self.database = open(&self.disk);
        self.table = self.database.table("sales").unwrap();
    }

    fn step(&mut self) {
        let columns = ColumnSet::from_iter([1, 2, 3, 4]);
        match self.rng.random_range(0..100) {
            0..50 => self.write(),
            50..55 => self.append(),
            55..58 => self.delete_range(),
            58..68 => self.database.flush().unwrap(),
            68..80 => drop(self.database.step().unwrap()),
            80..82 => self.database.compact(&self.table).unwrap(),
            82..84 => {
                let layout = Layout::parse(LAYOUTS.choose(&mut self.rng).unwrap(), &columns).unwrap();
                self.database.set_layout(&self.table, layout).unwrap();
            }
            84..87 => self.turn_view(),
            87..92 => self.snapshots.push((self.database.snapshot(), self.rows.clone())),
            92..95 if !self.snapshots.is_empty() => {
                let at = self.rng.random_range(0..self.snapshots.len());
                drop(self.snapshots.swap_remove(at));
            }
            95 => {
                self.database.sync().unwrap();
                self.reopen();
            }
            _ => self.database.wait_idle().unwrap(),
        }
    }

    fn check(&mut self) {
        let (mut from, mut to) = (self.rng.random_range(-10..6_000), self.rng.random_range(-10..6_000));
        if self.rng.random_bool(0.5) {
            (from, to) = (i64::MIN, i64::MAX);
        }
        let key = |id| Some(self.table.row_key(&[DatumRef::Int64(id)]).unwrap());
        let now = (None, self.rows.clone());
        let moments = self.snapshots.iter().map(|(snapshot, rows)| (Some(snapshot.clone()), rows.clone()));
        for (snapshot, rows) in moments.chain([now]) {
            let part: Rows = rows.into_iter().filter(|(id, _)| (from..to).contains(id)).collect();
            for wanted in all_views() {
                let Ok(view) = self.table.view(&wanted.name) else { continue };
                let options = ReadOptions {
                    snapshot: snapshot.clone(),
                    lower: key(from),
                    upper: key(to),
                    ..ReadOptions::default()
                };
                let found = view.read(&options).unwrap();
                assert_eq!(found.rows, expected(&part, &wanted), "{} {:?}", wanted.name, found.counters);
                let counters = found.counters;
                self.taken.files += counters.files;
                self.taken.pages += counters.pages;
                self.taken.blocks += counters.blocks;
                self.taken.rows += counters.rows;
            }
        }
    }
}

/// `MYCELIUM_TEST_SEED` repeats one history.
#[test]
fn views_answer_what_a_plain_map_adds_up_to_in_every_history() {
    let given = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = given.map_or(0..10, |seed: u64| seed..seed + 1);
    let mut taken = ViewCounters::default();
    for seed in seeds {
        println!("views: seed {seed}");
        let mut history = History::new(seed);
        for step in 0..250 {
            history.step();
            if step % 6 == 0 {
                history.check();
            }
        }
        history.check();
        assert_verified(&history.database);
        taken.files += history.taken.files;
        taken.blocks += history.taken.blocks;
        taken.rows += history.taken.rows;
    }
    println!("views: {taken:?}");
    assert!(given.is_some() || taken.files > 200 && taken.blocks > 1_000 && taken.rows > 1_000, "{taken:?}");
}
