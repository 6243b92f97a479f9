//! Users' transformers: what readers see of them, what is refused, and that their effect is durable once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mycelium_base::{GroupFormat, RowFormatKind};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, Error, ErrorKind, IndexOptions, IsolationLevel, Layout, LeveledOptions, Options, Policy,
    ReadOptions, Result, RowFormatDefinition, ScanOptions, Table, TableOptions, ViewOptions,
};
use mycelium_transform::{
    GroupValues, InputEntry, JobContext, Outputs, Place, Registry, TransformState, Transformer, TransformerSet,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, small_options, small_table};

fn schema() -> Schema {
    Schema::parse("id int64 not null, name utf8, score int64, primary key (id)").unwrap()
}

/// What the tests see of the transformers at work.
#[derive(Debug, Default)]
struct Seen {
    prepared: AtomicUsize,
    fails: AtomicBool,
}

/// Puts `!` behind every name: done twice it shows.
#[derive(Debug)]
struct Shout {
    format: GroupFormat,
    promises: bool,
    seen: Arc<Seen>,
}

impl Transformer for Shout {
    fn place(&self) -> Place {
        Place::Chain { from: self.format, to: self.format }
    }

    fn maps_values(&self) -> bool {
        self.promises
    }

    fn maps_patches(&self) -> bool {
        true
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        self.seen.prepared.fetch_add(1, Ordering::Relaxed);
        let values = job.formats.values(job.source)?;
        Ok(Box::new(Shouting { values, scratch: RowScratch::default(), seen: self.seen.clone() }))
    }
}

struct Shouting {
    values: GroupValues,
    scratch: RowScratch,
    seen: Arc<Seen>,
}

impl TransformState for Shouting {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        if self.seen.fails.load(Ordering::Relaxed) {
            return Err(Error::invalid("no voice"));
        }
        assert!(entry.key.is_empty() && entry.sequence == 0, "a map is given the value alone");
        let Self { values, scratch, .. } = self;
        let mut row: BTreeMap<usize, Datum> = BTreeMap::new();
        values.visit(entry.value, entry.columns, scratch, &mut |column, state| {
            let datum = match state {
                ColumnState::Absent => return Ok(()),
                ColumnState::Null => Datum::Null,
                ColumnState::Value(DatumRef::Utf8(text)) => Datum::Utf8(format!("{text}!")),
                ColumnState::Value(datum) => datum.to_datum(),
            };
            row.insert(column, datum);
            Ok(())
        })?;
        let state = |column: usize| row.get(&column).map_or(ColumnState::Absent, |datum| datum.borrowed().into());
        outputs.map_with(0, |out| values.encode(state, scratch, out))
    }
}

fn registry(seen: &Arc<Seen>) -> Registry {
    let mut registry = Registry::built_in();
    let seen = seen.clone();
    registry
        .register("test.shout", move |arguments, _| {
            let kind = if arguments.contains("json") { RowFormatKind::Json } else { RowFormatKind::Packed };
            let promises = !arguments.contains("silently");
            Ok(Arc::new(Shout { format: GroupFormat::Row(kind), promises, seen: seen.clone() }))
        })
        .unwrap();
    registry
}

fn options(disk: &MemoryDisk, seen: &Arc<Seen>) -> Options {
    Options { transformers: registry(seen), memory_budget: 16 << 10, subcompactions: 2, ..small_options(disk) }
}

fn table_options(kind: RowFormatKind, set: &str) -> TableOptions {
    TableOptions {
        policy: Policy::Leveled(LeveledOptions {
            level0_trigger: 2,
            base_level_bytes: 4 << 10,
            target_file_size: 2 << 10,
            fanout: 4.0,
            ..LeveledOptions::default()
        }),
        row_format: RowFormatDefinition { kind, ..RowFormatDefinition::default() },
        transformers: Some(TransformerSet::parse(set).unwrap()),
        ..small_table()
    }
}

type Model = BTreeMap<i64, (Option<String>, Option<i64>)>;

fn datum_text(text: &Option<String>) -> DatumRef<'_> {
    text.as_deref().map_or(DatumRef::Null, DatumRef::Utf8)
}

fn shouted(row: &(Option<String>, Option<i64>)) -> Vec<Datum> {
    let name = row.0.as_ref().map_or(Datum::Null, |name| Datum::Utf8(format!("{name}!")));
    vec![name, row.1.map_or(Datum::Null, Datum::Int64)]
}

/// Points and scans at a snapshot against the model.
fn check(table: &Table, read: &ReadOptions, model: &Model, what: &str) {
    for id in -1..41 {
        let row = table.get_row(&[DatumRef::Int64(id)], Some(&[1, 2]), read).unwrap();
        assert_eq!(row, model.get(&id).map(shouted), "{what}, row {id}");
    }
    let mut rows = 0;
    let scan = ScanOptions { projection: Some(vec![1]), snapshot: read.snapshot.clone(), ..ScanOptions::default() };
    for batch in table.scan_batches(scan).unwrap() {
        rows += batch.unwrap().num_rows();
    }
    assert_eq!(rows, model.len(), "{what}");
    let mut iterator = table.iter(read).unwrap();
    iterator.seek_to_first().unwrap();
    for row in model.values() {
        assert!(iterator.valid(), "{what}");
        let name = row.0.as_ref().map(|name| format!("{name}!"));
        let has_name = name.is_none_or(|name| iterator.value().windows(name.len()).any(|part| part == name.as_bytes()));
        assert!(has_name && !iterator.value().windows(2).any(|part| part == b"!!"), "{what}");
        iterator.next().unwrap();
    }
    assert!(!iterator.valid(), "{what}");
}

fn random_write(rng: &mut SmallRng, table: &Table, model: &mut Model) {
    let id = rng.random_range(0..40);
    let name = rng.random_bool(0.9).then(|| format!("n{}", rng.random_range(0..1_000_000)));
    match rng.random_range(0..10) {
        0 => {
            table.delete_row(&[DatumRef::Int64(id)], Durability::Os).unwrap();
            model.remove(&id);
        }
        1..4 => {
            table.patch_row(&[DatumRef::Int64(id)], &[("name", datum_text(&name))], Durability::Os).unwrap();
            model.entry(id).and_modify(|row| row.0 = name);
        }
        4 => {
            let score = rng.random();
            table.patch_row(&[DatumRef::Int64(id)], &[("score", DatumRef::Int64(score))], Durability::Os).unwrap();
            model.entry(id).and_modify(|row| row.1 = Some(score));
        }
        _ => {
            let score = rng.random();
            let row = [DatumRef::Int64(id), datum_text(&name), DatumRef::Int64(score)];
            table.insert_row(&row, Durability::Os).unwrap();
            model.insert(id, (name, Some(score)));
        }
    }
}

/// Rows read as if they had been mapped when they were written, at every snapshot, wherever they lie.
#[test]
fn mapped_rows_read_the_same_at_every_level_and_snapshot() {
    for (kind, set) in [
        (RowFormatKind::Packed, "test.shout"),
        (RowFormatKind::Json, "test.shout json"),
        (RowFormatKind::Json, "test.shout json\nconvert json to packed"),
    ] {
        for seed in 0..6 {
            let (disk, seen) = (MemoryDisk::new(), Arc::<Seen>::default());
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut database = Database::open("db", options(&disk, &seen)).unwrap();
            let mut table = database.create_typed_table("t", schema(), table_options(kind, set)).unwrap();
            let mut model = Model::new();
            let mut snapshots = Vec::new();
            for round in 0..400 {
                let what = format!("{set:?}, seed {seed}, round {round}");
                random_write(&mut rng, &table, &mut model);
                match rng.random_range(0..40) {
                    0 => database.flush().unwrap(),
                    1..6 => drop(database.step().unwrap()),
                    6 => snapshots.push((database.snapshot(), model.clone())),
                    7 => drop((!snapshots.is_empty()).then(|| snapshots.remove(0))),
                    8 if round % 3 == 0 => database.compact(&table).unwrap(),
                    9 if round % 2 == 0 => {
                        snapshots.clear();
                        drop(table);
                        database.close().unwrap();
                        database = Database::open("db", options(&disk, &seen)).unwrap();
                        table = database.table("t").unwrap();
                    }
                    10..14 => {
                        check(&table, &ReadOptions::default(), &model, &what);
                        for (snapshot, model) in &snapshots {
                            check(&table, &ReadOptions::at(snapshot), model, &what);
                        }
                    }
                    _ => {}
                }
            }
            database.compact(&table).unwrap();
            check(&table, &ReadOptions::default(), &model, "in the last level");
            let levels = &database.metrics().tables[0].levels;
            assert!(levels.iter().all(|level| level.level > 0 || level.files == 0), "{levels:?}");
            assert_verified(&database);
        }
    }
}

#[test]
fn a_database_is_not_opened_without_a_transformer_that_it_needs() {
    let (disk, seen) = (MemoryDisk::new(), Arc::<Seen>::default());
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let created = database.create_typed_table("t", schema(), table_options(RowFormatKind::Packed, "test.shout"));
    drop(created.unwrap());
    database.close().unwrap();
    let refused = Database::open("db", small_options(&disk)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let mut message = refused.to_string();
    let mut source = std::error::Error::source(&refused);
    while let Some(error) = source {
        message += &error.to_string();
        source = error.source();
    }
    assert!(message.contains("test.shout") && message.contains("table t"), "{message}");
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let table = database.table("t").unwrap();
    assert_eq!(table.options().transformers, Some(TransformerSet::parse("test.shout").unwrap()));
}

/// An augment was refused, though it is one of the transformers: a table's set could not have all of the paper's.
#[test]
fn an_augment_of_a_set_is_an_index_of_the_table() {
    let (disk, seen) = (MemoryDisk::new(), Arc::<Seen>::default());
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let set = "split by 2\naugment by_name on 1\naugment by_score on 2,1 cover 1";
    let malformed = table_options(RowFormatKind::Packed, "augment by_name on 7");
    assert_eq!(
        database.create_typed_table("t", schema(), malformed).map(drop).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let table = database.create_typed_table("t", schema(), table_options(RowFormatKind::Packed, set)).unwrap();
    for id in 0..10 {
        let name = format!("n{}", id % 3);
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Int64(id)], Durability::Os).unwrap();
    }
    drop(table);
    database.close().unwrap();
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let table = database.table("t").unwrap();
    assert_eq!(table.options().transformers, Some(TransformerSet::parse("split by 2").unwrap()));
    let by_name = table.index("by_name").unwrap();
    assert_eq!(by_name.get(&[DatumRef::Utf8("n1")], None, None).unwrap().count(), 3);
    assert!(table.index("by_score").is_ok());
    assert_verified(&database);
}

#[test]
fn what_maps_would_make_inexact_is_refused() {
    let (disk, seen) = (MemoryDisk::new(), Arc::<Seen>::default());
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let create = |name: &str, set: &str| {
        database.create_typed_table(name, schema(), table_options(RowFormatKind::Packed, set)).map_err(|e| e.kind())
    };
    assert_eq!(create("a", "test.shout silently").unwrap_err(), ErrorKind::Unsupported);
    assert_eq!(create("b", "split by 2\ntest.shout").unwrap_err(), ErrorKind::Unsupported);
    assert_eq!(create("c", "test.shout\naugment by_name on 1").unwrap_err(), ErrorKind::Unsupported);
    assert_eq!(create("d", "test.whisper").unwrap_err(), ErrorKind::Unsupported);
    let table = create("e", "test.shout").unwrap();
    let index = IndexOptions { name: "by_name".to_owned(), on: vec!["name".to_owned()], ..IndexOptions::default() };
    assert_eq!(database.create_index(&table, &index).unwrap_err().kind(), ErrorKind::Unsupported);
    let view = ViewOptions { name: "names".to_owned(), group_by: Vec::new(), aggregates: vec!["count(*)".to_owned()] };
    assert_eq!(database.create_view(&table, &view).unwrap_err().kind(), ErrorKind::Unsupported);
    let mut transaction = database.begin(IsolationLevel::Snapshot);
    let row = [DatumRef::Int64(1), DatumRef::Utf8("a"), DatumRef::Null];
    assert_eq!(transaction.insert_row(&table, &row).unwrap_err().kind(), ErrorKind::Unsupported);
    let layout = Layout::clone(&table.layout());
    assert_eq!(database.set_layout(&table, layout).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(database.table("c").is_err(), "a table that is refused its index is not there");
    let splits = create("f", "split by 2").unwrap();
    assert_eq!(splits.layout().levels().len(), 3, "said by the layout, and no map");
    database.create_index(&splits, &index).unwrap();
}

/// A patch that changes no column, above the map and on its way through it.
#[test]
fn a_patch_of_no_columns_is_mapped_to_one() {
    let (disk, seen) = (MemoryDisk::new(), Arc::<Seen>::default());
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let options_of_table = table_options(RowFormatKind::Packed, "test.shout");
    let table = database.create_typed_table("t", schema(), options_of_table).unwrap();
    let mut model = Model::new();
    for id in 0..20 {
        if id % 2 == 0 {
            let name = format!("n{id}");
            table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Null], Durability::Os).unwrap();
            model.insert(id, (Some(name), None));
        }
        database.flush().unwrap();
        table.patch_row(&[DatumRef::Int64(id)], &[], Durability::Os).unwrap();
        check(&table, &ReadOptions::default(), &model, "above the map");
    }
    database.compact(&table).unwrap();
    check(&table, &ReadOptions::default(), &model, "below the map");
    assert_verified(&database);
}

/// The job ends, nothing of it is installed, and the next open does it again.
#[test]
fn a_transformer_that_fails_loses_nothing() {
    let (disk, seen) = (MemoryDisk::new(), Arc::<Seen>::default());
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let options_of_table = table_options(RowFormatKind::Packed, "test.shout");
    let table = database.create_typed_table("t", schema(), options_of_table).unwrap();
    let mut model = Model::new();
    for id in 0..40 {
        let name = format!("n{id}");
        table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Null], Durability::Os).unwrap();
        model.insert(id, (Some(name), None));
        if id % 20 == 19 {
            database.flush().unwrap();
        }
    }
    seen.fails.store(true, Ordering::Relaxed);
    let mut failure = None;
    while failure.is_none() {
        match database.step() {
            Ok(worked) => assert!(worked, "no compaction was due"),
            Err(error) => failure = Some(error),
        }
    }
    assert!(failure.unwrap().to_string().contains("test.shout"));
    assert!(table.get_row(&[DatumRef::Int64(1)], None, &ReadOptions::default()).is_err(), "nor can it be read");
    seen.fails.store(false, Ordering::Relaxed);
    check(&table, &ReadOptions::default(), &model, "after the failure");
    drop((table, database));
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let table = database.table("t").unwrap();
    while database.step().unwrap() {}
    check(&table, &ReadOptions::default(), &model, "after it was done again");
    assert!(database.metrics().tables[0].levels.iter().any(|level| level.level == 1 && level.files > 0));
    assert_verified(&database);
}

/// A map that shows how often it was done, and a crash before every operation on the disk.
#[test]
fn a_map_is_durable_once_whenever_a_crash_comes() {
    let (disk, seen) = (MemoryDisk::new(), Arc::<Seen>::default());
    let database = Database::open("db", options(&disk, &seen)).unwrap();
    let options_of_table = table_options(RowFormatKind::Packed, "test.shout");
    let table = database.create_typed_table("t", schema(), options_of_table).unwrap();
    let mut crashes = Vec::new();
    let mut model = Model::new();
    for round in 0..8 {
        for id in 0..40 {
            let name = format!("n{round}-{id}");
            table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Null], Durability::Sync).unwrap();
            model.insert(id, (Some(name), None));
        }
        let images = Arc::new(Mutex::new(Vec::new()));
        let (kept, hooked) = (images.clone(), disk.clone());
        disk.on_operation(move |index, _| kept.lock().unwrap().push(hooked.crash_image(&CrashDraw::from_seed(index))));
        database.flush().unwrap();
        while database.step().unwrap() {}
        disk.clear_hook();
        check(&table, &ReadOptions::default(), &model, "without a crash");
        crashes.extend(std::mem::take(&mut *images.lock().unwrap()).into_iter().map(|image| (image, model.clone())));
    }
    assert!(crashes.len() > 50, "{} crashes", crashes.len());
    for (number, (image, model)) in crashes.iter().enumerate() {
        let database = Database::open("db", options(image, &seen)).unwrap();
        let table = database.table("t").unwrap();
        check(&table, &ReadOptions::default(), model, &format!("after crash {number}"));
        database.compact(&table).unwrap();
        check(&table, &ReadOptions::default(), model, &format!("done again after crash {number}"));
        assert_verified(&database);
    }
    assert!(seen.prepared.load(Ordering::Relaxed) > crashes.len(), "every job prepares a state of its own");
}
