//! Filtered scans over runs that interleave: both plans, and changes between them, give what the model has (LSM-OPD
//! §4.2.2).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium_base::{ColumnSet, ReadCounters};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Database, Durability, FilterPlan, Layout, Options, ScanOptions, Snapshot, Table, TableOptions,
};
use mycelium_vfs::MemoryDisk;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const KEYS: i64 = 40_000;
/// Of these keys nearly all rows are of one kind, so that a filter of it passes them.
const ALIKE: std::ops::Range<i64> = 12_000..32_000;
const KINDS: i64 = 150;

type Rows = BTreeMap<i64, (i64, Option<i64>)>;

/// A table, and what is in it.
struct Twin {
    database: Database,
    table: Table,
    rows: Rows,
    snapshots: Vec<(Snapshot, Rows)>,
    random: SmallRng,
    /// Of a thousand changes so many are deletes, and as many patches.
    others: u32,
    /// Of the keys that are alike only this quarter is changed.
    quarter: Option<i64>,
}

impl Twin {
    fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let layout = "L0 tiered: * columnar\nL1 leveled: * columnar";
        let layout = Some(Layout::parse(layout, &ColumnSet::from_iter([1, 2, 3])).unwrap());
        let block_size = [300, 1000, 32 << 10][seed as usize % 3];
        let options = TableOptions { layout, block_size, ..TableOptions::default() };
        let schema = "id int64 not null, kind int64 not null, amount int64, note utf8, primary key (id)";
        let table = database.create_typed_table("t", Schema::parse(schema).unwrap(), options).unwrap();
        let others = [0, 3, 30][random.random_range(0..3)];
        Self { database, table, rows: Rows::new(), snapshots: Vec::new(), random, others, quarter: None }
    }

    fn change(&mut self) {
        let mut id = self.random.random_range(0..KEYS);
        if let Some(quarter) = self.quarter.filter(|_| ALIKE.contains(&id)) {
            let keys = (ALIKE.end - ALIKE.start) / 4;
            id = ALIKE.start + quarter * keys + id % keys;
        }
        let kind = match ALIKE.contains(&id) && self.random.random_bool(0.9) {
            true => 0,
            false => self.random.random_range(0..KINDS),
        };
        let amount = self.random.random_range(0..1000);
        let key = [DatumRef::Int64(id)];
        let choice = self.random.random_range(0..1000);
        if choice < self.others {
            self.table.delete_row(&key, Durability::Buffered).unwrap();
            self.rows.remove(&id);
        } else if choice < 2 * self.others && self.rows.contains_key(&id) {
            let (of, change) = match choice % 3 {
                0 => ("kind", DatumRef::Int64(kind)),
                1 => ("amount", DatumRef::Null),
                _ => ("note", DatumRef::Utf8("changed")),
            };
            self.table.patch_row(&key, &[(of, change)], Durability::Buffered).unwrap();
            let row = self.rows.get_mut(&id).unwrap();
            match choice % 3 {
                0 => row.0 = kind,
                1 => row.1 = None,
                _ => {}
            }
        } else {
            let row = [key[0], DatumRef::Int64(kind), DatumRef::Int64(amount), DatumRef::Utf8("note")];
            self.table.insert_row(&row, Durability::Buffered).unwrap();
            self.rows.insert(id, (kind, Some(amount)));
        }
    }

    /// So many changes, and within them a few range deletes and one snapshot.
    fn changes(&mut self, count: usize) {
        let snapshot_at = self.random.random_range(0..count);
        for at in 0..count {
            self.change();
            if self.others > 0 && self.random.random_ratio(1, 10_000) {
                let from = self.random.random_range(0..KEYS);
                let to = from + self.random.random_range(1..100);
                let key = |id: i64| self.table.row_key(&[DatumRef::Int64(id)]).unwrap();
                self.table.delete_range(&key(from), &key(to), Durability::Buffered).unwrap();
                self.rows.retain(|id, _| !(from..to).contains(id));
            }
            if at == snapshot_at {
                self.snapshots.push((self.database.snapshot(), self.rows.clone()));
            }
        }
    }

    /// That scans with several filters, bounds and batches give what the model has, now and at all snapshots. What was
    /// read.
    fn check(&mut self, context: &str) -> ReadCounters {
        let mut counters = ReadCounters::default();
        let current = (None, self.rows.clone());
        let snapshots = self.snapshots.iter().map(|(snapshot, rows)| (Some(snapshot.clone()), rows.clone()));
        let views: Vec<_> = snapshots.chain([current]).collect();
        for (snapshot, rows) in views {
            for kind in [0, 1] {
                counters = self.check_one(kind, &snapshot, &rows, context);
            }
        }
        counters
    }

    fn check_one(&mut self, kind: i64, snapshot: &Option<Snapshot>, rows: &Rows, context: &str) -> ReadCounters {
        let random = &mut self.random;
        let equal = |column, value| ColumnTest { column, test: Test::Equal(Datum::Int64(value)) };
        let mut conjuncts = vec![equal(1, kind)];
        let most = random.random_bool(0.5).then(|| random.random_range(0..1000));
        conjuncts.extend(most.map(|most| {
            let upper = Bound::Included(Datum::Int64(most));
            ColumnTest { column: 2, test: Test::Range { lower: Bound::Unbounded, upper } }
        }));
        let but = random.random_bool(0.3).then(|| random.random_range(ALIKE));
        conjuncts.extend(but.map(|id| ColumnTest { column: 0, test: Test::NotEqual(Datum::Int64(id)) }));
        let (mut from, mut to) = (0, KEYS);
        if random.random_bool(0.3) {
            from = random.random_range(0..KEYS / 3);
            to = random.random_range(KEYS / 2..KEYS);
        }
        let plans = [FilterPlan::Automatic, FilterPlan::MergeFirst, FilterPlan::FilterFirst];
        let filter_plan = plans[random.random_range(0..3)];
        let limit = random.random_bool(0.2).then(|| random.random_range(1..5000));
        let options = ScanOptions {
            projection: Some(vec![0, 2]),
            filter: Some(Filter { conjuncts }),
            lower: Bound::Included(vec![Datum::Int64(from)]),
            upper: Bound::Excluded(vec![Datum::Int64(to)]),
            batch_rows: [7, 100, 8192][random.random_range(0..3)],
            limit,
            filter_plan,
            snapshot: snapshot.clone(),
            ..ScanOptions::default()
        };
        let described = format!("{context}, {kind}, {most:?}, {but:?}, {from}..{to}, {limit:?}, {filter_plan:?}");
        let mut found = Vec::new();
        let mut batches = self.table.scan_batches(options).unwrap();
        for batch in batches.by_ref() {
            let batch = batch.unwrap();
            let of = |column: usize| batch.column(column).as_primitive::<Int64Type>().iter();
            found.extend(of(0).zip(of(1)).map(|(id, amount)| (id.unwrap(), amount)));
        }
        let passes = |(id, (of, amount)): &(&i64, &(i64, Option<i64>))| {
            *of == kind && most.is_none_or(|most| amount.is_some_and(|amount| amount <= most)) && but != Some(**id)
        };
        let expected = rows.range(from..to).filter(passes).map(|(id, (_, amount))| (*id, *amount));
        let expected: Vec<_> = expected.take(limit.unwrap_or(u64::MAX) as usize).collect();
        let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert!(differs.is_none() && found.len() == expected.len(), "{described}: {differs:?}");
        batches.counters()
    }
}

#[test]
fn filtering_first_gives_what_merging_first_gives() {
    let mut checked = 0;
    for seed in 0..9 {
        let mut twin = Twin::new(seed);
        for run in 0..4 {
            twin.changes(15_000);
            twin.database.flush().unwrap();
            if run == 1 {
                twin.database.compact(&twin.table).unwrap();
            }
        }
        let context = |moment: &str| format!("seed {seed}, {moment}");
        checked += twin.check(&context("flushed")).candidates_checked;
        twin.changes(200);
        checked += twin.check(&context("with a memtable")).candidates_checked;
        twin.database.compact(&twin.table).unwrap();
        twin.check(&context("compacted"));
    }
    assert!(checked > 1000, "the other plan was hardly taken: {checked}");
}

/// The rows of one part of the keys nearly all pass, and lie in one run each: they are merged, and the rest is checked.
#[test]
fn the_plan_follows_the_data() {
    let mut twin = Twin::new(0);
    twin.others = 0;
    for quarter in 0..4 {
        twin.quarter = Some(quarter);
        twin.changes(20_000);
        // Else there are older versions of keys in all blocks.
        twin.snapshots.clear();
        twin.database.flush().unwrap();
    }
    let counters = |kind: i64| {
        let filter = Filter { conjuncts: vec![ColumnTest { column: 1, test: Test::Equal(Datum::Int64(kind)) }] };
        let options = ScanOptions { filter: Some(filter), ..ScanOptions::default() };
        let mut batches = twin.table.scan_batches(options).unwrap();
        let rows: usize = batches.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, twin.rows.values().filter(|row| row.0 == kind).count());
        (rows as u64, batches.counters())
    };
    let (rows, rare) = counters(1);
    assert!(rare.candidates_checked > rows / 2, "few pass: {rare:?}, {rows} rows");
    assert!(rare.rows_merged < 20_000, "most are not merged: {rare:?}");
    let (rows, frequent) = counters(0);
    assert!(frequent.candidates_checked > 0, "few pass at first: {frequent:?}, {rows} rows");
    assert!(frequent.candidates_checked < rows * 2 / 3, "then many, which are merged: {frequent:?}, {rows} rows");
}
