//! Columns that come later and go again, and other names for them: against a plain map, wherever rows lie and whatever
//! happens between.

mod dropped;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use mycelium_base::{ColumnSet, Group, GroupFormat, RowFormatKind};
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, Schema};
use mycelium_engine::{
    Background, Backups, Buffering, Database, Durability, ErrorKind, IndexOptions, Layout, LevelLayout, LeveledOptions,
    Merge, Options, Policy, ReadOptions, RowFormatDefinition, SalvageOptions, ScanOptions, Snapshot, Table,
    TableOptions, TieredOptions, TransactionOptions, ViewOptions, WriteBatch, salvage,
};
use mycelium_transform::TransformerSet;
use mycelium_vfs::{CrashDraw, CrashMode, Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, small_options, small_table};

const SCHEMA: &str = "id int64 not null, a int32, b utf8, primary key (id)";
const IDS: i64 = 150;

fn open(disk: &MemoryDisk) -> Database {
    Database::open("db", small_options(disk)).unwrap()
}

/// Levels that a few hundred rows fill.
fn tiny_levels() -> LeveledOptions {
    LeveledOptions {
        level0_trigger: 2,
        level_count: 4,
        base_level_bytes: 4 << 10,
        target_file_size: 2 << 10,
        fanout: 3.0,
        ..LeveledOptions::default()
    }
}

fn tiny_table(layout: Option<&str>) -> TableOptions {
    let policy = Policy::Leveled(tiny_levels());
    let layout = layout.map(|text| Layout::parse(text, &"1-2".parse().unwrap()).unwrap());
    TableOptions { policy, layout, ..small_table() }
}

/// A table with rows 0 to 9: `a` is the id, `b` the id as text.
fn ten_rows(database: &Database, layout: &str) -> Table {
    let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), tiny_table(Some(layout))).unwrap();
    for id in 0..10 {
        let text = id.to_string();
        let row = [DatumRef::Int64(id), DatumRef::Int32(id as i32), DatumRef::Utf8(&text)];
        table.insert_row(&row, Durability::Os).unwrap();
    }
    table
}

fn row(table: &Table, id: i64) -> Option<Vec<Datum>> {
    table.get_row(&[DatumRef::Int64(id)], None, &ReadOptions::default()).unwrap()
}

/// The ids of the rows that pass a test.
fn ids(table: &Table, column: usize, test: Test, snapshot: Option<&Snapshot>) -> Vec<i64> {
    let filter = Filter { conjuncts: vec![ColumnTest { column, test }] };
    let options = ScanOptions {
        projection: Some(vec![0]),
        filter: Some(filter),
        snapshot: snapshot.cloned(),
        ..ScanOptions::default()
    };
    let batches = table.scan_batches(options).unwrap().map(|batch| batch.unwrap());
    batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

fn kind_of<T>(result: Result<T, mycelium_engine::Error>) -> ErrorKind {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.kind(),
    }
}

/// Rows by id, without it.
type Rows = BTreeMap<i64, Vec<Datum>>;

/// A table, and what it should hold.
struct Walk {
    disk: MemoryDisk,
    database: Database,
    table: Table,
    rng: SmallRng,
    rows: Rows,
    snapshot: Option<(Snapshot, Rows)>,
    /// Columns that have an index, and another one that it covers.
    indexed: BTreeMap<usize, Option<usize>>,
    views: usize,
}

impl Walk {
    fn new(seed: u64, options: TableOptions) -> Self {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), options).unwrap();
        let (rng, rows) = (SmallRng::seed_from_u64(seed), Rows::new());
        Self { disk, database, table, rng, rows, snapshot: None, indexed: BTreeMap::new(), views: 0 }
    }

    fn columns(&self) -> Vec<Column> {
        self.table.schema().unwrap().columns().to_vec()
    }

    fn datum(&mut self, column: usize) -> Datum {
        let ty = self.columns()[column].ty.clone();
        match (self.rng.random_range(0..5), ty) {
            _ if self.columns()[column].is_dropped() => Datum::Null,
            (0, _) if self.columns()[column].nullable => Datum::Null,
            (_, ColumnType::Int32) => Datum::Int32(self.rng.random_range(0..9)),
            _ => Datum::Utf8(format!("text {}", self.rng.random_range(0..9))),
        }
    }

    fn write(&mut self) {
        let columns = self.columns();
        let id = self.rng.random_range(0..IDS);
        let key = [DatumRef::Int64(id)];
        match self.rng.random_range(0..12) {
            0 => {
                self.table.delete_row(&key, Durability::Os).unwrap();
                self.rows.remove(&id);
            }
            1 => {
                let end = id + self.rng.random_range(0..10);
                let bound = |id| self.table.row_key(&[DatumRef::Int64(id)]).unwrap();
                self.table.delete_range(&bound(id), &bound(end), Durability::Os).unwrap();
                self.rows.retain(|known, _| !(id..end).contains(known));
            }
            2..=5 => {
                let live: Vec<usize> = self.table.schema().unwrap().value_columns().iter().collect();
                let chosen: Vec<usize> = live.into_iter().filter(|_| self.rng.random_bool(0.4)).collect();
                let values: Vec<(usize, Datum)> =
                    chosen.into_iter().map(|column| (column, self.datum(column))).collect();
                let changes: Vec<_> =
                    values.iter().map(|(at, value)| (columns[*at].name.as_str(), value.borrowed())).collect();
                if changes.is_empty() {
                    return;
                }
                self.table.patch_row(&key, &changes, Durability::Os).unwrap();
                if let Some(row) = self.rows.get_mut(&id) {
                    values.into_iter().for_each(|(column, value)| row[column - 1] = value);
                }
            }
            _ => {
                let values: Vec<Datum> = (1..columns.len()).map(|column| self.datum(column)).collect();
                let row: Vec<_> = key.into_iter().chain(values.iter().map(Datum::borrowed)).collect();
                self.table.insert_row(&row, Durability::Os).unwrap();
                self.rows.insert(id, values);
            }
        }
    }

    /// Rows that are put in place as files.
    fn load(&mut self) {
        let (columns, layout) = (self.columns().len(), self.table.packed_layout().unwrap().clone());
        let first = self.rng.random_range(0..IDS - 20);
        let mut loaded: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for id in first..first + 20 {
            let values: Vec<Datum> = (1..columns).map(|column| self.datum(column)).collect();
            let row: Vec<_> = [DatumRef::Int64(id)].into_iter().chain(values.iter().map(Datum::borrowed)).collect();
            let mut packed = Vec::new();
            layout.encode_row(&row, &mut packed).unwrap();
            loaded.push((self.table.row_key(&row[..1]).unwrap(), packed));
            self.rows.insert(id, values);
        }
        self.table.ingest_packed(&layout, loaded.iter().map(|(key, row)| Ok((key, row)))).unwrap();
    }

    /// Rows that a transaction writes, and sees.
    fn commit(&mut self) {
        let columns = self.columns().len();
        let mut transaction = self.database.begin_with(TransactionOptions::default());
        for _ in 0..5 {
            let id = self.rng.random_range(0..IDS);
            let values: Vec<Datum> = (1..columns).map(|column| self.datum(column)).collect();
            let row: Vec<_> = [DatumRef::Int64(id)].into_iter().chain(values.iter().map(Datum::borrowed)).collect();
            transaction.insert_row(&self.table, &row).unwrap();
            let expected = [&[Datum::Int64(id)][..], &values].concat();
            assert_eq!(transaction.get_row(&self.table, &row[..1], None).unwrap(), Some(expected));
            self.rows.insert(id, values);
        }
        transaction.commit(Durability::Os).unwrap();
    }

    fn add_column(&mut self) {
        let count = self.columns().len();
        if count > 8 {
            return;
        }
        let (ty, value) = match self.rng.random_bool(0.5) {
            true => (ColumnType::Int32, Datum::Int32(self.rng.random_range(0..9))),
            false => (ColumnType::Utf8, Datum::Utf8(format!("text {}", self.rng.random_range(0..9)))),
        };
        let column = Column::new(format!("c{count}"), ty);
        let (column, value) = match self.rng.random_range(0..4) {
            0..=1 => (column, Datum::Null),
            2 => (column.with_default(value.clone()), value),
            _ => (column.not_null().with_default(value.clone()), value),
        };
        self.table = self.database.add_column(&self.table, column).unwrap();
        let kept = self.snapshot.iter_mut().flat_map(|(_, rows)| rows.values_mut());
        self.rows.values_mut().chain(kept).for_each(|row| row.push(value.clone()));
    }

    /// Drops a column, unless something stands on it.
    fn drop_column(&mut self) {
        let schema = self.table.schema().unwrap().clone();
        let live: Vec<usize> = schema.value_columns().iter().collect();
        let column = *live.choose(&mut self.rng).unwrap();
        match self.database.drop_column(&self.table, &schema.columns()[column].name) {
            Ok(table) => {
                self.table = table;
                let kept = self.snapshot.iter_mut().flat_map(|(_, rows)| rows.values_mut());
                self.rows.values_mut().chain(kept).for_each(|row| row[column - 1] = Datum::Null);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}"),
        }
    }

    fn rename_column(&mut self) {
        let columns: Vec<Column> = self.columns().into_iter().filter(|column| !column.is_dropped()).collect();
        let name = &columns.choose(&mut self.rng).unwrap().name;
        let other = format!("{name}_");
        self.table = self.database.rename_column(&self.table, name, &other).unwrap();
    }

    fn add_index(&mut self) {
        let columns = self.columns();
        let [column, other] = [0; 2].map(|_| self.rng.random_range(1..columns.len()));
        if columns[column].is_dropped() || self.indexed.contains_key(&column) {
            return;
        }
        let covered = Some(other).filter(|other| *other != column && !columns[*other].is_dropped());
        let (name, on) = (format!("by_{column}"), vec![columns[column].name.clone()]);
        let cover = covered.iter().map(|other| columns[*other].name.clone()).collect();
        self.database.create_index(&self.table, &IndexOptions { name, on, cover, ..IndexOptions::default() }).unwrap();
        self.database.wait_idle().unwrap();
        self.indexed.insert(column, covered);
    }

    fn add_view(&mut self) {
        let columns = self.columns();
        let last = columns.len() - 1;
        let aggregates = vec!["count(*)".to_owned(), format!("count({})", columns[last].name)];
        let options = ViewOptions { name: format!("v{last}"), group_by: Vec::new(), aggregates };
        if !columns[last].is_dropped() && self.table.view(&options.name).is_err() {
            self.database.create_view(&self.table, &options).unwrap();
            self.views = self.views.max(last);
        }
    }

    /// A layout of two levels below level 0, each finer than the one above.
    fn set_layout(&mut self) {
        let columns = self.table.schema().unwrap().value_columns();
        let format = |rng: &mut SmallRng| *[GroupFormat::Columnar, GroupFormat::default()].choose(rng).unwrap();
        let whole = Group::new(columns.clone(), format(&mut self.rng));
        let mut levels = vec![LevelLayout { groups: vec![whole], merge: Merge::Tiered }];
        let mut sets = vec![columns.clone()];
        for _ in 0..2 {
            let mut finer: Vec<ColumnSet> = Vec::new();
            for set in sets {
                let left: ColumnSet = set.iter().filter(|_| self.rng.random_bool(0.6)).collect();
                finer.extend([set.difference(&left), left].into_iter().filter(|part| !part.is_empty()));
            }
            let groups = finer.iter().map(|set| Group::new(set.clone(), format(&mut self.rng))).collect();
            let merge = *[Merge::Leveled, Merge::Tiered, Merge::TwoPhase].choose(&mut self.rng).unwrap();
            levels.push(LevelLayout { groups, merge });
            sets = finer;
        }
        self.database.set_layout(&self.table, Layout::new(levels, &columns).unwrap()).unwrap();
    }

    /// The database as another process finds it: closed, after the death of this one, or after a power loss.
    fn reopen(&mut self) {
        self.snapshot = None;
        match self.rng.random_range(0..3) {
            0 => self.disk = self.disk.kill_image(),
            1 => {
                self.database.sync().unwrap();
                let draw = CrashDraw { mode: CrashMode::KeepSome { keep: 0.5 }, seed: self.rng.random() };
                self.disk = self.disk.crash_image(&draw);
            }
            _ => self.database.clone().close().unwrap(),
        }
        self.database = open(&self.disk);
        self.table = self.database.table("t").unwrap();
    }

    fn step(&mut self) {
        match self.rng.random_range(0..26) {
            0..=7 => (0..40).for_each(|_| self.write()),
            8..=9 => self.database.flush().unwrap(),
            10..=11 => self.take_jobs(),
            12 => self.database.wait_idle().unwrap(),
            13 => self.database.compact(&self.table).unwrap(),
            14..=15 => self.add_column(),
            16 => self.rename_column(),
            17 => self.set_layout(),
            18 => self.reopen(),
            19 => self.add_index(),
            20 => self.add_view(),
            21..=22 => self.drop_column(),
            23 => self.load(),
            24 => self.commit(),
            _ => self.snapshot = Some((self.database.snapshot(), self.rows.clone())),
        }
    }

    fn take_jobs(&mut self) {
        for _ in 0..self.rng.random_range(1..4) {
            self.database.step().unwrap();
        }
    }

    fn check(&self) {
        self.check_rows(&self.rows, None);
        if let Some((snapshot, rows)) = &self.snapshot {
            self.check_rows(rows, Some(snapshot));
        }
        for (&column, &covered) in &self.indexed {
            let projection: Vec<usize> = [0].into_iter().chain(covered).collect();
            let index = self.table.index(&format!("by_{column}")).unwrap();
            let values: BTreeSet<&Datum> = self.rows.values().map(|row| &row[column - 1]).collect();
            for value in values.into_iter().filter(|value| **value != Datum::Null) {
                let found = index.get(&[value.borrowed()], Some(&projection), None).unwrap();
                let found: BTreeSet<Vec<Datum>> = found.map(|row| row.unwrap().values).collect();
                let expected = self.rows.iter().filter(|(_, row)| row[column - 1] == *value);
                let of = |id: i64, row: &[Datum]| {
                    [Datum::Int64(id)].into_iter().chain(covered.map(|other| row[other - 1].clone())).collect()
                };
                let expected: BTreeSet<Vec<Datum>> = expected.map(|(id, row)| of(*id, row)).collect();
                assert_eq!(found, expected, "index on {column}, {value:?}");
            }
        }
        for last in 2..=self.views {
            let Ok(view) = self.table.view(&format!("v{last}")) else { continue };
            let found = view.read(&ReadOptions::default()).unwrap().rows.remove(0).aggregates;
            let known = self.rows.values().filter(|row| row[last - 1] != Datum::Null).count();
            assert_eq!(found, [Datum::Int64(self.rows.len() as i64), Datum::Int64(known as i64)], "view of {last}");
        }
    }

    fn check_rows(&self, rows: &Rows, snapshot: Option<&Snapshot>) {
        let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
        for id in 0..IDS {
            let found = self.table.get_row(&[DatumRef::Int64(id)], None, &options).unwrap();
            let expected = rows.get(&id).map(|row| [&[Datum::Int64(id)][..], row].concat());
            assert_eq!(found, expected, "row {id}");
        }
        for column in self.table.schema().unwrap().value_columns().iter() {
            let expected = |passes: &dyn Fn(&Datum) -> bool| -> Vec<i64> {
                rows.iter().filter(|(_, row)| passes(&row[column - 1])).map(|(id, _)| *id).collect()
            };
            let nulls = ids(&self.table, column, Test::IsNull, snapshot);
            assert_eq!(nulls, expected(&|value: &Datum| *value == Datum::Null), "nulls of {column}");
            let some = rows.values().map(|row| &row[column - 1]).find(|value| **value != Datum::Null);
            if let Some(some) = some {
                let equal = ids(&self.table, column, Test::Equal(some.clone()), snapshot);
                assert_eq!(equal, expected(&|value: &Datum| value == some), "{some:?} in {column}");
            }
        }
    }
}

/// Walks of drawn steps, each compared with the model.
fn walk(seeds: std::ops::Range<u64>, options: impl Fn() -> TableOptions) {
    for seed in seeds {
        let mut walk = Walk::new(seed, options());
        for step in 0..70 {
            walk.step();
            if step % 3 == 0 || step > 60 {
                println!("seed {seed}, step {step}");
                walk.check();
            }
        }
        walk.database.flush().unwrap();
        walk.database.compact(&walk.table).unwrap();
        walk.check();
        assert_verified(&walk.database);
    }
}

#[test]
fn rows_above_columns_are_those_of_a_model_whatever_columns_come() {
    walk(0..4, || tiny_table(None));
}

#[test]
fn rows_at_every_level_are_those_of_a_model_whatever_columns_come() {
    walk(10..13, || tiny_table(Some("L0 tiered: * packed\nL1 leveled: * packed")));
}

#[test]
fn column_groups_are_those_of_a_model_whatever_columns_come() {
    walk(20..23, || tiny_table(Some("L0 tiered: * columnar\nL1 tiered: 1 columnar | 2 packed")));
    walk(23..26, || tiny_table(Some("L0 tiered: * packed\nL1-2 two-phase: 1 packed | 2 columnar")));
}

#[test]
fn tiered_runs_and_the_compaction_buffer_are_those_of_a_model_whatever_columns_come() {
    let rows = |policy: Policy, buffer: Buffering| {
        let layout = "L0 tiered: * packed\nL1 leveled: * packed";
        TableOptions { policy, buffer, ..tiny_table(Some(layout)) }
    };
    let tiered =
        TieredOptions { runs_per_level: 2, level_count: 4, target_file_size: 2 << 10, ..TieredOptions::default() };
    walk(40..42, || rows(Policy::Tiered(tiered), Buffering::Off));
    walk(42..44, || rows(Policy::TwoPhase(tiny_levels()), Buffering::Full));
}

/// What copies a database takes its files as they are, those from before a column too.
#[test]
fn restored_and_salvaged_databases_have_the_columns() {
    let layouts = [None, Some("L0 tiered: * packed\nL1-2 two-phase: 1 packed | 2 columnar")];
    for (seed, layout) in (50..).zip(layouts) {
        let mut walk = Walk::new(seed, tiny_table(layout));
        for number in 1..=5 {
            (0..10).for_each(|_| walk.step());
            walk.snapshot = None;
            let disk: Arc<dyn Disk> = Arc::new(walk.disk.clone());
            let (restored, saved) = (format!("restored{number}"), format!("saved{number}"));
            walk.database.backup("backups").unwrap();
            Backups::open(disk.clone(), "backups").unwrap().restore(number, &restored, |_, _| {}).unwrap();
            walk.database.clone().close().unwrap();
            let options = SalvageOptions { disk, ..SalvageOptions::default() };
            let report = salvage("db", &saved, &options, |_, _| {}).unwrap();
            assert!(report.is_complete(), "{report:?}");
            for directory in [restored.as_str(), saved.as_str(), "db"] {
                println!("seed {seed}, {directory}");
                walk.database = Database::open(directory, small_options(&walk.disk)).unwrap();
                walk.table = walk.database.table("t").unwrap();
                walk.check();
                assert_verified(&walk.database);
            }
        }
    }
}

/// A file knows nothing of the column: its rows have null in it, unless something newer says otherwise.
#[test]
fn a_column_is_null_where_rows_were_written_before_it() {
    for layout in [
        "L0 tiered: * packed\nL1 leveled: * packed",
        "L0 tiered: * columnar\nL1 leveled: * columnar",
        "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar",
        "L0 tiered: * packed\nL1 leveled: 1 columnar | 2 packed",
    ] {
        for is_compacted in [false, true] {
            let database = open(&MemoryDisk::new());
            let table = ten_rows(&database, layout);
            table.patch_row(&[DatumRef::Int64(1)], &[("a", DatumRef::Null)], Durability::Os).unwrap();
            if is_compacted {
                database.compact(&table).unwrap();
            }
            let table = database.add_column(&table, Column::new("c", ColumnType::Utf8)).unwrap();
            for step in 0..3 {
                let of = |id: i64, a: Datum, c: Datum| {
                    assert_eq!(row(&table, id), Some(vec![Datum::Int64(id), a, Datum::Utf8(id.to_string()), c]));
                };
                let patched = || Datum::Utf8("new".into());
                of(0, Datum::Int32(0), Datum::Null);
                of(1, Datum::Null, if step == 0 { Datum::Null } else { patched() });
                assert_eq!(ids(&table, 3, Test::IsNull, None).len(), if step == 0 { 10 } else { 9 }, "{layout}");
                assert_eq!(ids(&table, 2, Test::Equal(Datum::Utf8("3".into())), None), [3], "{layout}");
                match step {
                    0 => {
                        let changes = [("c", DatumRef::Utf8("new"))];
                        table.patch_row(&[DatumRef::Int64(1)], &changes, Durability::Os).unwrap();
                        // A patch of a row that is not there makes none, where nothing of the column lies below either.
                        table.patch_row(&[DatumRef::Int64(99)], &changes, Durability::Os).unwrap();
                        database.flush().unwrap();
                    }
                    _ => database.compact(&table).unwrap(),
                }
                assert_eq!(row(&table, 99), None, "{layout}");
            }
            assert_verified(&database);
        }
    }
}

/// What a file lacks is the default: in look-ups, in scans that filter on it, in views and indexes of it, before and
/// after compactions write it out.
#[test]
fn a_column_has_its_default_where_rows_were_written_before_it() {
    for layout in [
        "L0 tiered: * packed\nL1 leveled: * packed",
        "L0 tiered: * columnar\nL1 leveled: * columnar",
        "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar",
        "L0 tiered: * packed\nL1 leveled: 1 columnar | 2 packed",
    ] {
        let database = open(&MemoryDisk::new());
        let table = ten_rows(&database, layout);
        database.compact(&table).unwrap();
        let snapshot = database.snapshot();
        let column = |text: &str| text.parse::<Column>().unwrap();
        let table = database.add_column(&table, column("c int32 default 7")).unwrap();
        let table = database.add_column(&table, column("d utf8 not null default 'd'")).unwrap();
        let on = vec!["c".to_owned()];
        let by_c = IndexOptions { name: "by_c".into(), on, ..IndexOptions::default() };
        let index = database.create_index(&table, &by_c).unwrap();
        database.wait_idle().unwrap();
        let aggregates = ["count(c)", "min(c)", "max(c)", "min(d)"].map(str::to_owned).to_vec();
        let view = ViewOptions { name: "v".into(), group_by: Vec::new(), aggregates };
        let view = database.create_view(&table, &view).unwrap();
        table.patch_row(&[DatumRef::Int64(1)], &[("c", DatumRef::Null)], Durability::Os).unwrap();
        table.patch_row(&[DatumRef::Int64(2)], &[("c", DatumRef::Int32(9))], Durability::Os).unwrap();
        table.patch_row(&[DatumRef::Int64(3)], &[("a", DatumRef::Int32(-3))], Durability::Os).unwrap();
        let null = table.patch_row(&[DatumRef::Int64(4)], &[("d", DatumRef::Null)], Durability::Os);
        assert_eq!(kind_of(null), ErrorKind::InvalidArgument);
        for step in 0..3 {
            let d = Datum::Utf8("d".into());
            for (id, c) in [(0, Datum::Int32(7)), (1, Datum::Null), (2, Datum::Int32(9)), (3, Datum::Int32(7))] {
                assert_eq!(row(&table, id).unwrap()[3..], [c, d.clone()], "{layout}, step {step}, row {id}");
            }
            let sevens = ids(&table, 3, Test::Equal(Datum::Int32(7)), None);
            assert_eq!(sevens, [0, 3, 4, 5, 6, 7, 8, 9], "{layout}, step {step}");
            assert_eq!(ids(&table, 3, Test::IsNull, None), [1], "{layout}, step {step}");
            assert_eq!(ids(&table, 4, Test::Equal(d.clone()), None).len(), 10, "{layout}, step {step}");
            let of_before = ids(&table, 3, Test::Equal(Datum::Int32(7)), Some(&snapshot));
            assert_eq!(of_before.len(), 10, "the default is there at older snapshots");
            for (c, expected) in [(7, &sevens[..]), (9, &[2][..])] {
                let found = index.get(&[DatumRef::Int32(c)], Some(&[0]), None).unwrap();
                let found: BTreeSet<Datum> = found.map(|row| row.unwrap().values.remove(0)).collect();
                let expected: BTreeSet<Datum> = expected.iter().map(|id| Datum::Int64(*id)).collect();
                assert_eq!(found, expected, "{layout}, step {step}, {c}");
            }
            let found = view.read(&ReadOptions::default()).unwrap().rows.remove(0).aggregates;
            assert_eq!(found, [Datum::Int64(9), Datum::Int32(7), Datum::Int32(9), d], "{layout}, step {step}");
            if step == 0 { database.flush().unwrap() } else { database.compact(&table).unwrap() }
        }
        drop(snapshot);
        database.compact(&table).unwrap();
        assert_verified(&database);
    }
}

/// Null that was written is null, whatever rows from before have.
#[test]
fn a_default_that_was_overwritten_does_not_come_back() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar");
    database.compact(&table).unwrap();
    let table = database.add_column(&table, "c int32 default 7".parse().unwrap()).unwrap();
    table.patch_row(&[DatumRef::Int64(1)], &[("c", DatumRef::Null)], Durability::Os).unwrap();
    table.insert_row(&[DatumRef::Int64(2), DatumRef::Null, DatumRef::Null, DatumRef::Null], Durability::Os).unwrap();
    database.compact(&table).unwrap();
    let table = database.add_column(&table, "d int32 default 8".parse().unwrap()).unwrap();
    let table = database.rename_column(&table, "c", "e").unwrap();
    drop(table);
    database.close().unwrap();

    let database = open(&disk);
    let table = database.table("t").unwrap();
    for _ in 0..2 {
        assert_eq!(ids(&table, 3, Test::IsNull, None), [1, 2]);
        assert_eq!(ids(&table, 3, Test::Equal(Datum::Int32(7)), None).len(), 8);
        assert_eq!(ids(&table, 4, Test::Equal(Datum::Int32(8)), None).len(), 10);
        database.compact(&table).unwrap();
    }
    assert_verified(&database);
}

/// Whoever asks for the key alone, or for the new column alone, learns which rows there are.
#[test]
fn a_delete_after_the_column_came_hides_a_row_from_before() {
    let layout = "L0 tiered: * packed\nL1 leveled: 1 columnar | 2 columnar";
    let database = open(&MemoryDisk::new());
    let table = ten_rows(&database, layout);
    database.compact(&table).unwrap();
    let table = database.add_column(&table, Column::new("c", ColumnType::Int32)).unwrap();
    // The column lies apart from those that the older files have.
    let wider =
        Layout::parse("L0 tiered: * packed\nL1 leveled: 1 columnar | 2 columnar | 3 columnar", &"1-3".parse().unwrap());
    database.set_layout(&table, wider.unwrap()).unwrap();
    table.delete_row(&[DatumRef::Int64(4)], Durability::Os).unwrap();
    table.patch_row(&[DatumRef::Int64(5)], &[("c", DatumRef::Int32(5))], Durability::Os).unwrap();
    for _ in 0..2 {
        for projection in [vec![0], vec![0, 3], vec![0, 1]] {
            let options = ScanOptions { projection: Some(projection), ..ScanOptions::default() };
            let rows: usize = table.scan_batches(options).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(rows, 9);
        }
        assert_eq!(ids(&table, 3, Test::IsNotNull, None), [5]);
        assert_eq!(row(&table, 4), None);
        database.flush().unwrap();
        while database.step().unwrap() {}
    }
    let lower = table.row_key(&[DatumRef::Int64(0)]).unwrap();
    let upper = table.row_key(&[DatumRef::Int64(6)]).unwrap();
    database.compact_range(&table, Some(&lower), Some(&upper)).unwrap();
    assert_eq!((row(&table, 4), ids(&table, 3, Test::IsNotNull, None)), (None, vec![5]));
    assert_verified(&database);
}

#[test]
fn what_was_taken_before_is_refused_and_what_was_open_goes_on() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let before = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * columnar");
    let index = IndexOptions { name: "by_b".into(), on: vec!["b".into()], ..IndexOptions::default() };
    let old_index = database.create_index(&before, &index).unwrap();
    database.wait_idle().unwrap();
    database.compact(&before).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_row(&before, &[DatumRef::Int64(3)]).unwrap();
    let mut transaction = database.begin_with(TransactionOptions::default());
    let key = before.row_key(&[DatumRef::Int64(3)]).unwrap();
    transaction.delete(&before, &key).unwrap();
    let mut rows = before.iter(&ReadOptions::default()).unwrap();
    rows.seek_to_first().unwrap();
    let snapshot = database.snapshot();

    let table = database.add_column(&before, Column::new("c", ColumnType::Int32)).unwrap();
    assert_eq!(kind_of(before.get(&key)), ErrorKind::NotFound);
    assert_eq!(kind_of(before.delete(&key, Durability::Os)), ErrorKind::NotFound);
    assert_eq!(kind_of(database.write(&batch, Durability::Os)), ErrorKind::NotFound);
    assert_eq!(kind_of(transaction.commit(Durability::Os)), ErrorKind::NotFound);
    assert_eq!(kind_of(old_index.get(&[DatumRef::Utf8("3")], None, None)), ErrorKind::NotFound);
    assert_eq!(kind_of(database.add_column(&before, Column::new("d", ColumnType::Int32))), ErrorKind::NotFound);

    // Compactions take the files away from under the iterator.
    table.delete_row(&[DatumRef::Int64(3)], Durability::Os).unwrap();
    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    let mut count = 0;
    while rows.valid() {
        let row = before.packed_layout().unwrap().row(rows.value()).unwrap();
        assert_eq!(row.present().to_string(), "1-2");
        count += 1;
        rows.next().unwrap();
    }
    assert_eq!(count, 10);
    assert_eq!(ids(&table, 3, Test::IsNull, Some(&snapshot)).len(), 10, "the column is there at older snapshots");
    assert_eq!(ids(&table, 3, Test::IsNull, None).len(), 9);
    let index = table.index("by_b").unwrap();
    let found = index.get(&[DatumRef::Utf8("4")], Some(&[0, 3]), None).unwrap();
    assert_eq!(found.map(|row| row.unwrap().values).collect::<Vec<_>>(), [[Datum::Int64(4), Datum::Null]]);

    drop((rows, before, old_index, snapshot));
    database.wait_idle().unwrap();
    assert_verified(&database);
    assert_nothing_is_kept(&disk, &database);
}

/// Files that nobody reads any more are removed.
fn assert_nothing_is_kept(disk: &MemoryDisk, database: &Database) {
    let files: u64 =
        database.metrics().tables.iter().flat_map(|table| &table.levels).map(|level| level.files as u64).sum();
    let on_disk = disk.paths().iter().filter(|path| path.extension().is_some_and(|end| end == "sst")).count();
    assert_eq!(on_disk as u64, files);
}

/// They kept every file that the table had when its columns changed, for as long as somebody held them.
#[test]
fn handles_of_before_keep_no_files() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let before = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * columnar");
    let index = IndexOptions { name: "by_b".into(), on: vec!["b".into()], ..IndexOptions::default() };
    let old_index = database.create_index(&before, &index).unwrap();
    database.wait_idle().unwrap();
    database.compact(&before).unwrap();
    let table = database.rename_column(&before, "a", "x").unwrap();
    let between = table.clone();
    let table = database.add_column(&table, Column::new("c", ColumnType::Int32)).unwrap();
    table.delete_row(&[DatumRef::Int64(3)], Durability::Os).unwrap();
    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    assert_nothing_is_kept(&disk, &database);
    database.drop_table("t").unwrap();
    database.wait_idle().unwrap();
    assert_nothing_is_kept(&disk, &database);
    for handle in [&before, &between, &table] {
        let key = handle.row_key(&[DatumRef::Int64(4)]).unwrap();
        assert_eq!(kind_of(handle.get(&key)), ErrorKind::NotFound);
    }
    assert_eq!(kind_of(old_index.get(&[DatumRef::Utf8("4")], None, None)), ErrorKind::NotFound);
}

#[test]
fn tables_whose_columns_cannot_change_say_why() {
    let database = open(&MemoryDisk::new());
    let column = |name: &str| Column::new(name, ColumnType::Int32);
    let schema = || Schema::parse(SCHEMA).unwrap();
    let bytes = database.create_table("bytes", TableOptions::default()).unwrap();
    assert_eq!(kind_of(database.add_column(&bytes, column("c"))), ErrorKind::InvalidArgument);
    let row_format = RowFormatDefinition { kind: RowFormatKind::Json, ..RowFormatDefinition::default() };
    let json = TableOptions { row_format, ..TableOptions::default() };
    let json = database.create_typed_table("json", schema(), json).unwrap();
    assert_eq!(kind_of(database.add_column(&json, column("c"))), ErrorKind::Unsupported);
    assert_eq!(kind_of(database.rename_column(&json, "a", "c")), ErrorKind::Unsupported);
    assert_eq!(kind_of(database.drop_column(&json, "a")), ErrorKind::Unsupported);
    let transformers = Some(TransformerSet::parse("split into 1 | 2").unwrap());
    let split = TableOptions { transformers, ..TableOptions::default() };
    let split = database.create_typed_table("split", schema(), split).unwrap();
    assert_eq!(kind_of(database.add_column(&split, column("c"))), ErrorKind::Unsupported);
    let with_default = Schema::parse("id int64 not null, a int32 default 1, primary key (id)").unwrap();
    let row_format = RowFormatDefinition { kind: RowFormatKind::Json, ..RowFormatDefinition::default() };
    let json = TableOptions { row_format, ..TableOptions::default() };
    let refused = database.create_typed_table("defaults", with_default, json);
    assert_eq!(kind_of(refused), ErrorKind::Unsupported);
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: 1 json | 2 packed");
    let refused = database.add_column(&table, column("c")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    database.compact(&table).unwrap();
    let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: * columnar", &"1-2".parse().unwrap()).unwrap();
    database.set_layout(&table, layout).unwrap();
    let refused = database.add_column(&table, column("c")).unwrap_err();
    assert!(refused.to_string().contains("compact it first"), "{refused}");
    database.compact(&table).unwrap();

    let of_another_type = column("c").with_default(Datum::Utf8("7".into()));
    for refused in [column("a"), column("id"), column(""), column("c").not_null(), of_another_type] {
        assert_eq!(kind_of(database.add_column(&table, refused)), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind_of(database.rename_column(&table, "x", "c")), ErrorKind::NotFound);
    assert_eq!(kind_of(database.rename_column(&table, "a", "b")), ErrorKind::InvalidArgument);
    let other = open(&MemoryDisk::new());
    assert_eq!(kind_of(other.add_column(&table, column("c"))), ErrorKind::InvalidArgument);
    // What was refused changed nothing.
    assert_eq!(row(&table, 1).map(|row| row.len()), Some(3));
    let table = database.rename_column(&table, "id", "key").unwrap();
    let table = database.add_column(&table, column("id")).unwrap();
    assert_eq!(table.schema().unwrap().to_string(), "key int64 not null, a int32, b utf8, id int32, primary key (key)");
}

#[test]
fn tables_of_keys_alone_get_their_first_column() {
    for levels in ["L0 tiered: * packed\nL1 leveled: * packed", "L0 tiered: * columnar\nL1 leveled: * columnar"] {
        let database = open(&MemoryDisk::new());
        let schema = Schema::parse("id int64 not null, primary key (id)").unwrap();
        let layout = Some(Layout::parse(levels, &ColumnSet::new()).unwrap());
        let table = database.create_typed_table("t", schema, TableOptions { layout, ..small_table() }).unwrap();
        for id in 0..5 {
            table.insert_row(&[DatumRef::Int64(id)], Durability::Os).unwrap();
        }
        let table = database.add_column(&table, Column::new("c", ColumnType::Utf8)).unwrap();
        table.insert_row(&[DatumRef::Int64(5), DatumRef::Utf8("five")], Durability::Os).unwrap();
        table.patch_row(&[DatumRef::Int64(1)], &[("c", DatumRef::Utf8("one"))], Durability::Os).unwrap();
        table.delete_row(&[DatumRef::Int64(2)], Durability::Os).unwrap();
        for _ in 0..3 {
            assert_eq!(ids(&table, 1, Test::IsNull, None), [0, 3, 4], "{levels}");
            assert_eq!(row(&table, 1), Some(vec![Datum::Int64(1), Datum::Utf8("one".into())]), "{levels}");
            assert_eq!(row(&table, 2), None, "{levels}");
            database.flush().unwrap();
            while database.step().unwrap() {}
        }
        database.compact(&table).unwrap();
        assert_eq!(ids(&table, 1, Test::IsNotNull, None), [1, 5], "{levels}");
        assert_verified(&database);
    }
}

/// The machine dies at every operation of the disk that adding a column takes.
#[test]
fn a_crash_leaves_the_columns_of_before_or_those_of_after() {
    let mut operation = 0;
    loop {
        let disk = MemoryDisk::new();
        let database = open(&disk);
        let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar");
        let options = IndexOptions { name: "by_a".into(), on: vec!["a".into()], ..IndexOptions::default() };
        database.create_index(&table, &options).unwrap();
        database.wait_idle().unwrap();
        table.patch_row(&[DatumRef::Int64(7)], &[("b", DatumRef::Null)], Durability::Sync).unwrap();
        disk.power_off_after(Some(disk.operations() + operation));
        let added = database.add_column(&table, Column::new("c", ColumnType::Int32)).is_ok();
        let draw = CrashDraw { mode: CrashMode::KeepSome { keep: 0.5 }, seed: operation };
        let image = disk.crash_image(&draw);
        let was_off = disk.is_off();
        drop((table, database));

        let database = open(&image);
        let table = database.table("t").unwrap();
        let columns = table.schema().unwrap().columns().len();
        assert!(columns == 4 || columns == 3 && !added, "operation {operation}");
        for id in 0..10 {
            let found = row(&table, id).unwrap();
            assert_eq!((found.len(), &found[1]), (columns, &Datum::Int32(id as i32)), "operation {operation}");
            assert_eq!(found[2] == Datum::Null, id == 7, "operation {operation}");
            let index = table.index("by_a").unwrap();
            assert_eq!(index.get(&[DatumRef::Int32(id as i32)], None, None).unwrap().count(), 1);
        }
        assert_verified(&database);
        if added && !was_off {
            return;
        }
        operation += 1;
    }
}

#[test]
fn copies_and_readers_have_the_column() {
    let disk = MemoryDisk::new();
    let database = open(&disk);
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: 1 packed | 2 columnar");
    database.compact(&table).unwrap();
    let table = database.add_column(&table, Column::new("c", ColumnType::Int32)).unwrap();
    table.patch_row(&[DatumRef::Int64(3)], &[("c", DatumRef::Int32(3))], Durability::Os).unwrap();
    let reader = Database::open("db", Options { read_only: true, ..small_options(&disk) }).unwrap();
    database.checkpoint("copy").unwrap();
    let copy = Database::open("copy", small_options(&disk)).unwrap();
    for database in [&reader, &copy] {
        let table = database.table("t").unwrap();
        assert_eq!(ids(&table, 3, Test::Equal(Datum::Int32(3)), None), [3]);
        assert_eq!(ids(&table, 3, Test::IsNull, None).len(), 9);
        assert_verified(database);
    }
    let table = reader.table("t").unwrap();
    assert_eq!(kind_of(reader.add_column(&table, Column::new("d", ColumnType::Int32))), ErrorKind::ReadOnly);
    let table = copy.table("t").unwrap();
    let table = copy.add_column(&table, Column::new("d", ColumnType::Utf8)).unwrap();
    let table = copy.add_column(&table, "e int8 not null default -1".parse().unwrap()).unwrap();
    assert_eq!(row(&table, 3).unwrap()[3..], [Datum::Int32(3), Datum::Null, Datum::Int8(-1)]);
}

/// Below level 0 a layout may have any format once columns are as they shall be.
#[test]
fn a_layout_of_other_formats_takes_rows_from_before_the_column() {
    for layout in ["1-4 json", "1 json | 2-4 columnar", "3-4 json | 1-2 packed"] {
        let database = open(&MemoryDisk::new());
        let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * columnar");
        database.compact(&table).unwrap();
        let table = database.add_column(&table, Column::new("c", ColumnType::Int32)).unwrap();
        let table = database.add_column(&table, "d utf8 not null default 'x'".parse().unwrap()).unwrap();
        table.patch_row(&[DatumRef::Int64(3)], &[("c", DatumRef::Int32(3))], Durability::Os).unwrap();
        let layout = format!("L0 tiered: * packed\nL1 leveled: {layout}");
        database.set_layout(&table, Layout::parse(&layout, &"1-4".parse().unwrap()).unwrap()).unwrap();
        database.compact(&table).unwrap();
        assert_eq!(ids(&table, 3, Test::Equal(Datum::Int32(3)), None), [3], "{layout}");
        assert_eq!(ids(&table, 3, Test::IsNull, None).len(), 9, "{layout}");
        let expected =
            [Datum::Int64(4), Datum::Int32(4), Datum::Utf8("4".into()), Datum::Null, Datum::Utf8("x".into())];
        assert_eq!(row(&table, 4).unwrap(), expected, "{layout}");
    }
}

/// Rows put in place as files, without the log, after the column came.
#[test]
fn a_bulk_load_beside_files_from_before_the_column() {
    let database = open(&MemoryDisk::new());
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * packed");
    database.compact(&table).unwrap();
    let table = database.add_column(&table, Column::new("c", ColumnType::Int32)).unwrap();
    let layout = table.packed_layout().unwrap().clone();
    let rows: Vec<(Vec<u8>, Vec<u8>)> = (5..15)
        .map(|id| {
            let row = [DatumRef::Int64(id), DatumRef::Null, DatumRef::Null, DatumRef::Int32(1)];
            let mut packed = Vec::new();
            layout.encode_row(&row, &mut packed).unwrap();
            (table.row_key(&row[..1]).unwrap(), packed)
        })
        .collect();
    table.ingest_packed(&layout, rows.iter().map(|(key, row)| Ok((key, row)))).unwrap();
    for _ in 0..2 {
        assert_eq!(ids(&table, 3, Test::IsNull, None), [0, 1, 2, 3, 4]);
        assert_eq!(ids(&table, 3, Test::Equal(Datum::Int32(1)), None).len(), 10);
        database.compact(&table).unwrap();
    }
    assert_verified(&database);
}

/// A batch that lacks the column has what a file has that lacks it.
#[test]
fn a_batch_without_a_column_has_its_default() {
    let database = open(&MemoryDisk::new());
    let table = ten_rows(&database, "L0 tiered: * packed\nL1 leveled: * columnar");
    let batches = table.scan_batches(ScanOptions::default()).unwrap();
    let batches: Vec<_> = batches.map(|batch| batch.unwrap()).collect();
    let table = database.add_column(&table, "c int32 not null default 7".parse().unwrap()).unwrap();
    let table = database.add_column(&table, "d int32".parse().unwrap()).unwrap();
    let bound = |id| table.row_key(&[DatumRef::Int64(id)]).unwrap();
    table.delete_range(&bound(0), &bound(10), Durability::Os).unwrap();
    assert_eq!(ids(&table, 3, Test::IsNotNull, None).len(), 0);
    table.ingest_batches(batches.into_iter().map(Ok)).unwrap();
    assert_eq!(ids(&table, 3, Test::Equal(Datum::Int32(7)), None).len(), 10);
    assert_eq!(ids(&table, 4, Test::IsNull, None).len(), 10);
    assert_verified(&database);
}

/// Threads write and compact while columns come: every write that was acknowledged is there.
#[test]
fn writers_beside_changes_lose_nothing() {
    let options = Options { background: Background::Threads(2), ..small_options(&MemoryDisk::new()) };
    let database = Database::open("db", options).unwrap();
    database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), tiny_table(None)).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let database = database.clone();
            scope.spawn(move || {
                for id in (writer..2_000).step_by(2) {
                    let key = [DatumRef::Int64(id)];
                    let values = [DatumRef::Int32(id as i32), DatumRef::Utf8("text")];
                    loop {
                        let table = database.table("t").unwrap();
                        let columns = table.schema().unwrap().columns().len();
                        let rest = std::iter::repeat_n(DatumRef::Null, columns - 3);
                        let row: Vec<_> = key.into_iter().chain(values).chain(rest).collect();
                        match table.insert_row(&row, Durability::Buffered) {
                            Err(error) if error.kind() == ErrorKind::NotFound => {}
                            written => {
                                written.unwrap();
                                break;
                            }
                        }
                    }
                }
            });
        }
        for number in 0..5 {
            let table = database.table("t").unwrap();
            database.add_column(&table, Column::new(format!("c{number}"), ColumnType::Int32)).unwrap();
        }
    });
    database.wait_idle().unwrap();
    let table = database.table("t").unwrap();
    let found = ids(&table, 7, Test::IsNull, None);
    assert_eq!(found, (0..2_000).collect::<Vec<i64>>());
    assert_verified(&database);
}
