//! Bulk loads into tables whose indexes are made, built and dropped meanwhile.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, Error, ErrorKind, Index, IndexOptions, Options, Snapshot, Table,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, small_options, small_table};

const SCHEMA: &str = "id int64 not null, city utf8, year int32, primary key (id)";
const CITIES: [&str; 4] = ["Graz", "Linz", "Wien", "Bonn"];

/// The rows: city and year by id.
type Model = BTreeMap<i64, (String, i32)>;
type Row = (Vec<u8>, Vec<u8>);

fn create(database: &Database, name: &str) -> Table {
    database.create_typed_table(name, Schema::parse(SCHEMA).unwrap(), small_table()).unwrap()
}

fn by_city(unique: bool) -> IndexOptions {
    let (on, cover) = (vec!["city".into()], vec!["year".into()]);
    IndexOptions { name: "by_city".into(), on, cover, unique, ..IndexOptions::default() }
}

fn put(table: &Table, id: i64, city: &str, year: i32) {
    let row = [DatumRef::Int64(id), DatumRef::Utf8(city), DatumRef::Int32(year)];
    table.insert_row(&row, Durability::Os).unwrap();
}

/// Rows as a load takes them, encoded by way of another table.
fn encoded(database: &Database, rows: &Model) -> Vec<Row> {
    let source = create(database, "source");
    rows.iter().for_each(|(&id, (city, year))| put(&source, id, city, *year));
    let encoded = crate::common::scan(&source).into_iter().collect();
    database.drop_table("source").unwrap();
    encoded
}

/// Loads rows, and does something before the one in the middle.
fn load(table: &Table, rows: &[Row], meanwhile: impl FnOnce()) -> Result<(), Error> {
    let (mut meanwhile, middle) = (Some(meanwhile), rows.len() / 2);
    let rows = rows.iter().enumerate().map(|(i, row)| {
        if i == middle
            && let Some(meanwhile) = meanwhile.take()
        {
            meanwhile();
        }
        Ok((&row.0, &row.1))
    });
    table.ingest(rows).map(drop)
}

fn check(index: &Index, model: &Model, snapshot: Option<&Snapshot>) {
    let found = index.range((Bound::Unbounded, Bound::Unbounded), None, snapshot).unwrap();
    let found: Vec<Vec<Datum>> = found.map(|row| row.unwrap().values).collect();
    let mut expected: Vec<_> = model.iter().map(|(&id, (city, year))| (city.clone(), id, *year)).collect();
    expected.sort();
    let expected: Vec<Vec<Datum>> = expected
        .into_iter()
        .map(|(city, id, year)| vec![Datum::Int64(id), Datum::Utf8(city), Datum::Int32(year)])
        .collect();
    assert_eq!(found, expected);
}

fn draw(rng: &mut SmallRng, ids: std::ops::Range<i64>) -> Model {
    let mut drawn = Model::new();
    for id in ids.step_by(rng.random_range(1..4)) {
        drawn.insert(id, (CITIES[rng.random_range(0..4)].to_owned(), rng.random_range(0..9)));
    }
    drawn
}

/// SSTs on the disk and SSTs in use: as many.
fn assert_no_file_is_left(disk: &MemoryDisk, database: &Database) {
    database.wait_idle().unwrap();
    let on_disk = disk.paths().iter().filter(|path| path.extension().is_some_and(|kind| kind == "sst")).count();
    let levels = database.metrics().tables.into_iter().flat_map(|table| table.levels);
    assert_eq!(on_disk as u64, levels.map(|level| level.files as u64).sum::<u64>(), "{:?}", disk.paths());
}

/// At every point of the load an index comes, goes, or is built, before and behind the row that is loaded.
#[test]
fn rows_loaded_while_an_index_comes_or_goes_are_in_it() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let database = Database::open("db", small_options(&disk)).unwrap();
        let table = create(&database, "people");
        let mut model = Model::new();
        if rng.random_range(0..4) > 0 {
            model = draw(&mut rng, 0..600);
            model.iter().for_each(|(&id, (city, year))| put(&table, id, city, *year));
        }
        if rng.random() {
            database.flush().unwrap();
        }
        let before = (database.snapshot(), model.clone());
        let is_there = rng.random();
        let make = || database.create_index(&table, &by_city(false)).unwrap();
        if is_there {
            make();
        }
        let from = rng.random_range(0..500);
        let loaded = draw(&mut rng, from..from + 400);
        let rows = encoded(&database, &loaded);
        let what = rng.random_range(0..4);
        load(&table, &rows, || {
            if is_there && what < 3 {
                database.drop_index(&table, "by_city").unwrap();
            }
            if !is_there || what < 2 {
                make();
            }
            if what == 1 {
                database.drop_index(&table, "by_city").unwrap();
                make();
            }
            if what % 2 == 0 {
                database.wait_idle().unwrap();
            }
        })
        .unwrap();
        model.extend(loaded);
        let index = table.index("by_city").unwrap_or_else(|_| make());
        for _ in 0..2 {
            check(&index, &model, None);
            check(&index, &before.1, Some(&before.0));
            database.compact(&table).unwrap();
            index.wait_built().unwrap();
        }
        assert_verified(&database);
        drop(before);
        database.compact(&table).unwrap();
        assert_no_file_is_left(&disk, &database);
    }
}

/// What a load derives is sorted piece by piece. Each piece was a file over the whole index: every lookup asked all of
/// them, and all writers of the database stopped until they were merged.
#[test]
fn what_a_load_derives_in_pieces_holds_nobody_back() {
    let disk = MemoryDisk::new();
    let options = Options { slowdown_level0_runs: 4, stop_level0_runs: 6, ..small_options(&disk) };
    let database = Database::open("db", options).unwrap();
    let table = create(&database, "people");
    let index = database.create_index(&table, &by_city(false)).unwrap();
    let model: Model = (0..3_000).map(|id| (id, (CITIES[id as usize % 4].to_owned(), 0))).collect();
    let rows = encoded(&database, &model);
    database.wait_idle().unwrap();
    load(&table, &rows, || ()).unwrap();
    assert_eq!(database.metrics().slowed_bytes_per_second, None);
    check(&index, &model, None);
    assert_verified(&database);
    database.compact(&table).unwrap();
    check(&index, &model, None);
    assert_no_file_is_left(&disk, &database);
}

#[test]
fn a_unique_index_made_beside_a_load_is_asked_by_it() {
    for has_rows in [false, true] {
        let disk = MemoryDisk::new();
        let database = Database::open("db", small_options(&disk)).unwrap();
        let table = create(&database, "people");
        let mut model = Model::new();
        if has_rows {
            put(&table, 1_000, "Rom", 0);
            model.insert(1_000, ("Rom".into(), 0));
        }
        let cities = |same: i64| -> Model {
            (0..300).map(|id| (id, (if id == same { "Rom".into() } else { format!("city {id}") }, 0))).collect()
        };
        let twice = |mut rows: Model| {
            rows.insert(299, ("city 7".into(), 0));
            rows
        };
        let refused = if has_rows { cities(40) } else { twice(cities(-1)) };
        let rows = encoded(&database, &refused);
        let make = || drop(database.create_index(&table, &by_city(true)).unwrap());
        assert_eq!(load(&table, &rows, make).unwrap_err().kind(), ErrorKind::Duplicate);
        assert_no_file_is_left(&disk, &database);
        let index = table.index("by_city").unwrap();
        check(&index, &model, None);
        let rows = encoded(&database, &cities(-1));
        database.drop_index(&table, "by_city").unwrap();
        load(&table, &rows, make).unwrap();
        model.extend(cities(-1));
        check(&table.index("by_city").unwrap(), &model, None);
        assert_verified(&database);
    }
}

#[test]
fn a_load_that_an_index_made_beside_it_cannot_hold_is_refused() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", small_options(&disk)).unwrap();
    let table = create(&database, "people");
    let rows: Model = (0..10).map(|id| (id, ("x".repeat(if id == 2 { 70_000 } else { 2 }), 0))).collect();
    let rows = encoded(&database, &rows);
    let make = || drop(database.create_index(&table, &by_city(false)).unwrap());
    let refused = load(&table, &rows, make).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("people/by_city"), "{refused}");
    assert_eq!(crate::common::scan(&table).len(), 0);
    assert_no_file_is_left(&disk, &database);
    database.drop_index(&table, "by_city").unwrap();
    load(&table, &rows, || ()).unwrap();
}

/// Whatever the moment of the crash: all rows of the load or none, and the index says the same.
#[test]
fn a_crash_beside_a_load_and_a_new_index_leaves_them_of_one_mind() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", small_options(&disk)).unwrap();
    let table = create(&database, "people");
    let before = draw(&mut SmallRng::seed_from_u64(1), 0..200);
    before.iter().for_each(|(&id, (city, year))| put(&table, id, city, *year));
    let loaded = draw(&mut SmallRng::seed_from_u64(2), 100..400);
    let rows = encoded(&database, &loaded);
    database.flush().unwrap();
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (kept, hooked) = (images.clone(), disk.clone());
    disk.on_operation(move |index, _| kept.lock().unwrap().push(hooked.crash_image(&CrashDraw::from_seed(index))));
    load(&table, &rows, || drop(database.create_index(&table, &by_city(false)).unwrap())).unwrap();
    database.wait_idle().unwrap();
    disk.clear_hook();
    let after: Model = before.clone().into_iter().chain(loaded).collect();
    let (mut with_index, mut loaded) = (0, 0);
    for image in std::mem::take(&mut *images.lock().unwrap()) {
        let database = Database::open("db", small_options(&image)).unwrap();
        let table = database.table("people").unwrap();
        let model = if crate::common::scan(&table).len() == before.len() { &before } else { &after };
        loaded += u32::from(model.len() == after.len());
        if let Ok(index) = table.index("by_city") {
            check(&index, model, None);
            index.wait_built().unwrap();
            check(&index, model, None);
            with_index += 1;
        }
        assert_verified(&database);
    }
    assert!(loaded > 0 && with_index > loaded, "{with_index} with the index, {loaded} loaded");
}

#[test]
fn loads_go_on_while_threads_make_and_drop_an_index() {
    let (disk, background) = (Arc::new(MemoryDisk::new()), Background::Threads(2));
    let options = Options { disk, memory_budget: 256 << 10, background, ..Options::default() };
    let database = Database::open("db", options).unwrap();
    let table = create(&database, "people");
    let loads: Vec<Model> = (0..20).map(|seed| draw(&mut SmallRng::seed_from_u64(seed), 0..400)).collect();
    let rows: Vec<Vec<Row>> = loads.iter().map(|rows| encoded(&database, rows)).collect();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Acquire) {
                database.create_index(&table, &by_city(false)).unwrap();
                database.drop_index(&table, "by_city").unwrap();
            }
        });
        let results: Vec<Result<(), Error>> = rows.iter().map(|rows| load(&table, rows, || ())).collect();
        is_done.store(true, std::sync::atomic::Ordering::Release);
        results.into_iter().for_each(Result::unwrap);
    });
    let index = database.create_index(&table, &by_city(false)).unwrap();
    let model: Model = loads.into_iter().flatten().collect();
    check(&index, &model, None);
    index.wait_built().unwrap();
    check(&index, &model, None);
    assert_verified(&database);
}
