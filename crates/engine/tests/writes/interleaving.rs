//! Scans of columnar runs whose rows interleave: merged by their keys alone, they give what the model has, whatever is
//! projected, tested, bounded or changed meanwhile, and wherever the groups of a row are.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use mycelium_base::{ColumnSet, ReadCounters};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, DatumRef, Schema, TextArrays};
use mycelium_engine::{
    Background, Database, Durability, Layout, LeveledOptions, Options, Policy, ScanOptions, Snapshot, Table,
    TableOptions,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const KEYS: i64 = 6_000;
const PARTS: i32 = 3;
const COLUMNS: usize = 7;
/// Of the levels, what differs: one group; groups that are the same at all levels; groups that are split on the way
/// down.
const LAYOUTS: [&str; 4] = [
    "L0 tiered: * columnar\nL1 leveled: * columnar",
    "L0 tiered: * columnar\nL1 leveled: 2-3 columnar | 4-6 columnar",
    "L0 tiered: * packed\nL1 leveled: * columnar\nL2 leveled: 2-4 columnar | 5-6 columnar\nL3 leveled: 2,4 columnar | 3 columnar | 5 columnar | 6 columnar",
    "L0 tiered: * columnar\nL1 leveled: 2-3 columnar | 4-6 packed\nL2 leveled: 2-3 columnar | 4 columnar | 5-6 packed",
];

/// A row's columns outside the key.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    flag: Option<bool>,
    price: Option<i128>,
    note: Option<String>,
    size: i16,
    ratio: f64,
}

type Rows = BTreeMap<(i64, i32), Row>;

struct Twin {
    database: Database,
    table: Table,
    rows: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
    random: SmallRng,
    /// Of a thousand changes, those that are no whole rows.
    others: u32,
    /// The least key. Those of both signs vary in too many bytes to be integers, in the block where they meet.
    least: i64,
    /// Whether keys are texts.
    texts: bool,
}

/// Texts in the order of the integers, of which sixteen at a time differ only behind many bytes, and that end in zeros
/// or not.
fn text_of(id: i64) -> String {
    let n = id + KEYS;
    format!("{:05}/{}/{:02}{}", n / 16, "-".repeat(14), n % 16, ["", "\0", "\0\0 and more"][n as usize % 3])
}

fn id_of(id: i64, texts: bool) -> Datum {
    if texts { Datum::Utf8(text_of(id)) } else { Datum::Int64(id) }
}

impl Twin {
    fn new(seed: u64) -> Self {
        let block_size = [600, 4 << 10, 32 << 10][seed as usize / LAYOUTS.len() % 3];
        Self::of_blocks(seed, block_size, seed as usize / LAYOUTS.len() / 3 % 2 == 1)
    }

    fn of_blocks(seed: u64, block_size: usize, texts: bool) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let id = if texts { "utf8" } else { "int64" };
        let schema = "part int32 not null, flag bool, price decimal(18, 2), note utf8, \
                      size int16 not null, ratio float64 not null, primary key (id, part)";
        let policy = Policy::Leveled(LeveledOptions {
            base_level_bytes: 30 << 10,
            fanout: 2.0 + f64::from(random.random_range(0..3)),
            target_file_size: 20 << 10,
            dynamic_levels: false,
            ..LeveledOptions::default()
        });
        let layout = LAYOUTS[seed as usize % LAYOUTS.len()];
        let layout = Some(Layout::parse(layout, &(2..COLUMNS).collect::<ColumnSet>()).unwrap());
        let options = TableOptions { policy, layout, block_size, ..TableOptions::default() };
        let schema = Schema::parse(&format!("id {id} not null, {schema}")).unwrap();
        let table = database.create_typed_table("t", schema, options).unwrap();
        let others = [0, 0, 5, 60][random.random_range(0..4)];
        Self { database, table, rows: Rows::new(), snapshots: Vec::new(), random, others, least: -KEYS, texts }
    }

    fn change(&mut self) {
        let random = &mut self.random;
        let (id, part) = (random.random_range(self.least..KEYS), random.random_range(0..PARTS));
        let id_datum = id_of(id, self.texts);
        let key = [id_datum.borrowed(), DatumRef::Int32(part)];
        let choice = random.random_range(0..1000);
        let size = random.random_range(-500..500);
        if choice < self.others && choice % 2 == 0 {
            self.table.delete_row(&key, Durability::Buffered).unwrap();
            self.rows.remove(&(id, part));
        } else if choice < self.others
            && let Some(row) = self.rows.get_mut(&(id, part))
        {
            row.size = size;
            self.table.patch_row(&key, &[("size", DatumRef::Int16(size))], Durability::Buffered).unwrap();
        } else {
            let row = Row {
                flag: random.random_bool(0.8).then(|| random.random()),
                price: random.random_bool(0.9).then(|| i128::from(random.random_range(-1_000_000..1_000_000))),
                note: random.random_bool(0.9).then(|| format!("note {}", random.random_range(0..40) * id % 7)),
                size,
                ratio: f64::from(random.random_range(-4..4)) / 3.0,
            };
            let values = [
                row.flag.map_or(DatumRef::Null, DatumRef::Bool),
                row.price.map_or(DatumRef::Null, DatumRef::Decimal128),
                row.note.as_deref().map_or(DatumRef::Null, DatumRef::Utf8),
                DatumRef::Int16(row.size),
                DatumRef::Float64(row.ratio),
            ];
            self.table.insert_row(&[&key[..], &values].concat(), Durability::Buffered).unwrap();
            self.rows.insert((id, part), row);
        }
    }

    fn delete_some(&mut self) {
        let from = self.random.random_range(-KEYS..KEYS);
        let to = from + self.random.random_range(1..20);
        let key = |id| self.table.row_key(&[id_of(id, self.texts).borrowed(), DatumRef::Int32(i32::MIN)]).unwrap();
        self.table.delete_range(&key(from), &key(to), Durability::Buffered).unwrap();
        self.rows.retain(|(id, _), _| !(from..to).contains(id));
    }

    /// Rows of a scan of everything, and what it read.
    fn scan_all(&self) -> (usize, ReadCounters) {
        let mut scan = self.table.scan_batches(ScanOptions::default()).unwrap();
        let rows = scan.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, self.rows.len());
        (rows, scan.counters())
    }

    /// A scan of everything merges nine tenths of the rows by their keys alone.
    fn check_that_most_interleave(&self) {
        let (rows, counters) = self.scan_all();
        assert!(counters.rows_interleaved as usize > rows * 9 / 10, "{counters:?} of {rows} rows");
    }

    /// So many files of random keys, of which each is followed by a compaction.
    fn fill_levels(&mut self, files: usize) {
        for _ in 0..files {
            for _ in 0..2_000 {
                self.change();
            }
            self.database.flush().unwrap();
            self.database.step().unwrap();
        }
    }

    /// One scan, of random options, now or at a snapshot. What it read.
    fn check(&mut self, context: &str) -> ReadCounters {
        let (random, texts) = (&mut self.random, self.texts);
        let at = random.random_range(0..=self.snapshots.len());
        let (snapshot, rows) = match self.snapshots.get(at) {
            Some((snapshot, rows)) => (Some(snapshot.clone()), rows),
            None => (None, &self.rows),
        };
        let mut projection: Vec<usize> = (0..COLUMNS).filter(|_| random.random_bool(0.5)).collect();
        if random.random_bool(0.2) {
            projection.reverse();
        }
        let from = random.random_bool(0.5).then(|| random.random_range(-KEYS..KEYS));
        let to = random.random_bool(0.5).then(|| random.random_range(-KEYS..KEYS));
        let most = random.random_bool(0.4).then(|| random.random_range(-500..500));
        let note = random.random_bool(0.2).then(|| format!("note {}", random.random_range(0..7)));
        let part = random.random_bool(0.2).then(|| random.random_range(0..PARTS));
        let limit = random.random_bool(0.3).then(|| random.random_range(1..3000));
        let mut conjuncts = Vec::new();
        let below = |most| Test::Range { lower: Bound::Unbounded, upper: Bound::Excluded(Datum::Int16(most)) };
        conjuncts.extend(most.map(|most| ColumnTest { column: 5, test: below(most) }));
        let equal = |column, value| ColumnTest { column, test: Test::Equal(value) };
        conjuncts.extend(note.clone().map(|note| equal(4, Datum::Utf8(note))));
        conjuncts.extend(part.map(|part| equal(1, Datum::Int32(part))));
        let options = ScanOptions {
            projection: Some(projection.clone()),
            lower: from.map_or(Bound::Unbounded, |from| Bound::Included(vec![id_of(from, texts)])),
            upper: to.map_or(Bound::Unbounded, |to| Bound::Excluded(vec![id_of(to, texts)])),
            snapshot,
            batch_rows: [1, 70, 1024, 8192][random.random_range(0..4)],
            batch_bytes: if limit.is_some_and(|limit| limit % 2 == 0) { 500 } else { usize::MAX },
            limit,
            filter: (!conjuncts.is_empty()).then_some(Filter { conjuncts }),
            texts: if random.random() { TextArrays::Views } else { TextArrays::Plain },
            ..ScanOptions::default()
        };
        let passes = |(key, row): &(&(i64, i32), &Row)| {
            from.is_none_or(|from| key.0 >= from)
                && to.is_none_or(|to| key.0 < to)
                && most.is_none_or(|most| row.size < most)
                && note.as_ref().is_none_or(|note| row.note.as_ref() == Some(note))
                && part.is_none_or(|part| key.1 == part)
        };
        let passing = rows.iter().filter(passes).take(limit.map_or(usize::MAX, |limit| limit as usize));
        let expected: Vec<Vec<String>> = passing
            .map(|(key, row)| projection.iter().map(|&column| cell_of((key, texts), row, column)).collect())
            .collect();
        let mut scan = self.table.scan_batches(options).unwrap();
        let mut found = Vec::new();
        for batch in scan.by_ref() {
            let batch = batch.unwrap();
            let row = |row| (0..batch.num_columns()).map(|column| cell(&batch, column, row)).collect();
            found.extend((0..batch.num_rows()).map(row).collect::<Vec<Vec<String>>>());
        }
        assert_eq!(found.len(), expected.len(), "{context}");
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found, expected, "{context}: row {at} of columns {projection:?}");
        }
        scan.counters()
    }
}

fn cell_of((key, texts): (&(i64, i32), bool), row: &Row, column: usize) -> String {
    match column {
        0 if texts => format!("{:?}", Some(text_of(key.0))),
        0 => format!("{:?}", Some(key.0)),
        1 => format!("{:?}", Some(key.1)),
        2 => format!("{:?}", row.flag),
        3 => format!("{:?}", row.price),
        4 => format!("{:?}", row.note),
        5 => format!("{:?}", Some(row.size)),
        _ => format!("{:?}", Some(row.ratio)),
    }
}

fn cell(batch: &RecordBatch, column: usize, row: usize) -> String {
    let array = batch.column(column);
    if array.is_null(row) {
        return "None".to_owned();
    }
    match array.data_type() {
        DataType::Int64 => format!("{:?}", Some(array.as_primitive::<Int64Type>().value(row))),
        DataType::Int32 => format!("{:?}", Some(array.as_primitive::<Int32Type>().value(row))),
        DataType::Int16 => format!("{:?}", Some(array.as_primitive::<Int16Type>().value(row))),
        DataType::Float64 => format!("{:?}", Some(array.as_primitive::<Float64Type>().value(row))),
        DataType::Boolean => format!("{:?}", Some(array.as_boolean().value(row))),
        DataType::Decimal128(..) => format!("{:?}", Some(array.as_primitive::<Decimal128Type>().value(row))),
        DataType::Utf8View => format!("{:?}", Some(array.as_string_view().value(row))),
        _ => format!("{:?}", Some(array.as_string::<i32>().value(row))),
    }
}

#[test]
fn scans_of_runs_that_interleave_give_what_the_model_has() {
    let mut interleaved = [0; LAYOUTS.len()];
    for seed in 0..24 {
        let mut twin = Twin::new(seed);
        for round in 0..8 {
            for _ in 0..twin.random.random_range(500..2500) {
                twin.change();
            }
            if twin.others > 0 {
                twin.delete_some();
            }
            if twin.random.random_bool(0.3) {
                twin.snapshots.push((twin.database.snapshot(), twin.rows.clone()));
            }
            if twin.random.random_bool(0.7) {
                twin.database.flush().unwrap();
            }
            // Some compactions, so that groups of one level go down one by one.
            for _ in 0..twin.random.random_range(0..6) {
                twin.database.step().unwrap();
            }
            for scan in 0..6 {
                let counters = twin.check(&format!("seed {seed}, round {round}, scan {scan}"));
                interleaved[seed as usize % LAYOUTS.len()] += counters.rows_interleaved;
            }
        }
    }
    // In the last layout columns 4 to 6 are rows, and scans of only the others interleave.
    assert!(interleaved.iter().all(|&rows| rows > 1_000), "{interleaved:?} rows of each layout");
}

/// A scan of all levels, which hold random keys, took a step of every run for every row.
#[test]
fn most_rows_of_levels_that_interleave_are_merged_by_their_keys_alone() {
    let mut twin = Twin::of_blocks(0, 32 << 10, false);
    (twin.others, twin.least) = (0, 0);
    twin.fill_levels(8);
    twin.check_that_most_interleave();
}

/// Keys of texts took a step of every run for every row.
#[test]
fn most_rows_with_texts_as_keys_are_merged_by_them_alone() {
    let mut twin = Twin::of_blocks(0, 32 << 10, true);
    twin.others = 0;
    twin.fill_levels(8);
    twin.check_that_most_interleave();
}

/// Each row in a memtable ended a stretch, and then an interval.
#[test]
fn rows_of_memtables_do_not_end_an_interval() {
    for texts in [false, true] {
        let mut twin = Twin::of_blocks(0, 32 << 10, texts);
        for round in 0..4 {
            twin.others = if round == 3 { 50 } else { 0 };
            for _ in 0..4_000 {
                twin.change();
            }
            if round < 3 {
                twin.database.flush().unwrap();
            }
        }
        let (rows, counters) = twin.scan_all();
        // The memtable has about 3,600 keys. Of 4,000 changes 200 or so are no rows; half of those are patches, which
        // end an interval.
        assert!(counters.rows_interleaved as usize > (rows - 3_600) * 9 / 10, "{counters:?} of {rows} rows");
        for scan in 0..50 {
            twin.check(&format!("texts {texts}, scan {scan}"));
        }
    }
}

/// A scan appended what interleaves of a block of each run, and what lies next to each other of a block, before it
/// asked how much text that was: more than 2 GiB of it were an error.
#[test]
fn batches_end_before_their_texts_are_too_many() {
    const LEN: usize = 900;
    // A dictionary of few texts, and texts that hardly come twice; runs that interleave, and one that does not.
    for (distinct, runs) in [(3, 2), (3, 1), (u32::MAX, 2), (u32::MAX, 1)] {
        let context = format!("{distinct} texts, {runs} runs");
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, body utf8, primary key (id)").unwrap();
        let layout =
            Layout::parse("L0 tiered: * columnar\nL1 leveled: * columnar", &ColumnSet::from_iter([1])).unwrap();
        let options = TableOptions { layout: Some(layout), block_size: 32 << 10, ..TableOptions::default() };
        let table = database.create_typed_table("t", schema, options).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let mut bodies: Vec<String> = (0..1200).map(|_| (random.random::<u32>() % distinct).to_string()).collect();
        bodies.iter_mut().for_each(|body| *body = body.repeat(LEN / body.len()));
        for run in 0..runs {
            for (id, body) in bodies.iter().enumerate().skip(run).step_by(runs) {
                table.insert_row(&[DatumRef::Int64(id as i64), DatumRef::Utf8(body)], Durability::Buffered).unwrap();
            }
            database.flush().unwrap();
        }
        let filter = Filter { conjuncts: vec![ColumnTest { column: 1, test: Test::IsNotNull }] };
        for (filter, batch_bytes) in [(None, 20_000), (Some(filter.clone()), 20_000), (Some(filter), usize::MAX)] {
            let is_filtered = filter.is_some();
            let options = ScanOptions { batch_bytes, filter, ..ScanOptions::default() };
            let mut scan = table.scan_batches(options).unwrap();
            let mut found = Vec::new();
            for batch in scan.by_ref() {
                let batch = batch.unwrap();
                let texts = batch.column(1).as_string::<i32>();
                let bytes = texts.value_data().len();
                assert!(bytes < batch_bytes.saturating_add(LEN), "{context}: {bytes} bytes in {} rows", texts.len());
                found.extend(texts.iter().map(|text| text.unwrap().to_owned()));
            }
            assert!(found == bodies, "{context}, {batch_bytes} bytes");
            assert!(is_filtered || (scan.counters().rows_interleaved > 0) == (runs > 1), "{context}");
        }
    }
}

/// Of a block with a single patch no row was merged by its key alone.
#[test]
fn a_patch_ends_an_interval_and_leaves_the_rest_of_its_block() {
    let mut twin = Twin::of_blocks(0, 32 << 10, false);
    twin.least = 0;
    for round in 0..8 {
        twin.others = 0;
        for _ in 0..2_000 {
            twin.change();
        }
        twin.others = 1000;
        for _ in 0..round {
            twin.change();
        }
        twin.database.flush().unwrap();
        twin.database.step().unwrap();
    }
    twin.check_that_most_interleave();
    for scan in 0..50 {
        twin.check(&format!("scan {scan}"));
    }
}
