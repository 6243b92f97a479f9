//! Users' flat-maps: any number of derived entries from a row, exact at every moment.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use mycelium_base::ColumnSet;
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{Column, ColumnState, ColumnType, Datum, DatumRef, Schema};
use mycelium_engine::{
    Database, Durability, Error, ErrorKind, Index, IndexOptions, IndexRow, IndexedBy, IsolationLevel, Layout, Options,
    Result, Snapshot, Table,
};
use mycelium_transform::{
    Formats, GroupValues, InputEntry, JobContext, Outputs, Place, Registry, TransformState, Transformer, TransformerSet,
};
use mycelium_vfs::{CrashDraw, MemoryDisk};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::common::{assert_verified, small_options, small_table};

const SCHEMA: &str = "id int64 not null, text utf8, score int64, note utf8, primary key (id)";
const WORDS: [&str; 6] = ["moss", "mo", "spore", "", "hypha\0", "cap"];
const IDS: i64 = 60;

/// Derives every word of a column with the number of times that it is there.
#[derive(Debug)]
struct Words {
    column: usize,
}

impl Transformer for Words {
    fn place(&self) -> Place {
        Place::Beside
    }

    fn derived_tables(&self) -> Vec<String> {
        vec!["words".to_owned()]
    }

    fn reads(&self) -> ColumnSet {
        [self.column].into_iter().collect()
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        let values = job.formats.values(job.source)?;
        Ok(Box::new(Counting { values, scratch: RowScratch::default(), counts: BTreeMap::new() }))
    }
}

struct Counting {
    values: GroupValues,
    scratch: RowScratch,
    counts: BTreeMap<String, u32>,
}

impl TransformState for Counting {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let Self { values, scratch, counts } = self;
        counts.clear();
        values.visit(entry.value, entry.columns, scratch, &mut |_, state| {
            if let ColumnState::Value(DatumRef::Utf8(text)) = state {
                if text.contains("poison") {
                    return Err(Error::new(ErrorKind::Unsupported, "poison"));
                }
                *counts = counts_of(text);
            }
            Ok(())
        })?;
        for (word, count) in counts {
            outputs.derive(0, word.as_bytes(), mycelium_base::Operation::Put, &count.to_le_bytes())?;
        }
        Ok(())
    }
}

fn counts_of(text: &str) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for word in text.split('|') {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    counts
}

/// Derives every word of the text once. It gathers them first, and where it fails it leaves what it has gathered.
#[derive(Debug)]
struct Gathered;

impl Transformer for Gathered {
    fn place(&self) -> Place {
        Place::Beside
    }

    fn derived_tables(&self) -> Vec<String> {
        vec!["words".to_owned()]
    }

    fn reads(&self) -> ColumnSet {
        [1].into_iter().collect()
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        let values = job.formats.values(job.source)?;
        Ok(Box::new(Gathering { values, scratch: RowScratch::default(), words: Vec::new() }))
    }
}

struct Gathering {
    values: GroupValues,
    scratch: RowScratch,
    words: Vec<String>,
}

impl TransformState for Gathering {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let Self { values, scratch, words } = self;
        values.visit(entry.value, entry.columns, scratch, &mut |_, state| {
            let ColumnState::Value(DatumRef::Utf8(text)) = state else { return Ok(()) };
            for word in text.split('|') {
                if word == "poison" {
                    return Err(Error::new(ErrorKind::Unsupported, "poison"));
                }
                words.push(word.to_owned());
            }
            Ok(())
        })?;
        for word in words.drain(..) {
            outputs.derive(0, word.as_bytes(), mycelium_base::Operation::Put, &1_u32.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Derives the number of columns that have a value, of all that the table has outside its key.
#[derive(Debug)]
struct Filled {
    columns: ColumnSet,
}

impl Transformer for Filled {
    fn place(&self) -> Place {
        Place::Beside
    }

    fn derived_tables(&self) -> Vec<String> {
        vec!["filled".to_owned()]
    }

    fn reads(&self) -> ColumnSet {
        self.columns.clone()
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        Ok(Box::new(Filling { values: job.formats.values(job.source)?, scratch: RowScratch::default() }))
    }
}

struct Filling {
    values: GroupValues,
    scratch: RowScratch,
}

impl TransformState for Filling {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let mut filled = 0;
        self.values.visit(entry.value, entry.columns, &mut self.scratch, &mut |_, state| {
            filled += u8::from(matches!(state, ColumnState::Value(_)));
            Ok(())
        })?;
        outputs.derive(0, &[filled], mycelium_base::Operation::Put, &[])?;
        Ok(())
    }
}

fn options(disk: &MemoryDisk) -> Options {
    let mut registry = Registry::built_in();
    let position = |arguments: &str| arguments.parse().map_err(|_| Error::invalid("expected a column"));
    registry.register("test.words", move |text, _| Ok(Arc::new(Words { column: position(text)? }))).unwrap();
    registry.register("test.gathered", |_, _| Ok(Arc::new(Gathered))).unwrap();
    let filled = |_: &str, formats: &Formats| -> Result<Arc<dyn Transformer>> {
        Ok(Arc::new(Filled { columns: formats.schema().value_columns() }))
    };
    registry.register("test.filled", filled).unwrap();
    Options { transformers: registry, memory_budget: 16 << 10, ..small_options(disk) }
}

fn words() -> IndexOptions {
    IndexOptions { name: "words".into(), flat_map: Some("test.words 1".parse().unwrap()), ..IndexOptions::default() }
}

fn create(database: &Database) -> Table {
    database.create_typed_table("notes", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap()
}

fn put(table: &Table, id: i64, text: Option<&str>) -> Result<u64> {
    let text = text.map_or(DatumRef::Null, DatumRef::Utf8);
    table.insert_row(&[DatumRef::Int64(id), text, DatumRef::Int64(id), DatumRef::Null], Durability::Os)
}

/// What a lookup says: the word, the row's id, how often the word is in it.
type Found = (String, i64, u32);

fn found(row: Result<IndexRow>) -> Found {
    let row = row.unwrap();
    let derived = row.derived.unwrap();
    let Some(Datum::Int64(id)) = row.values.first() else { panic!("{:?}", row.values) };
    (String::from_utf8(derived.key).unwrap(), *id, u32::from_le_bytes(derived.value.try_into().unwrap()))
}

fn lookup(index: &Index, word: &str, snapshot: Option<&Snapshot>) -> Vec<Found> {
    let key = [DatumRef::Binary(word.as_bytes())];
    let narrow: Vec<Found> = index.get(&key, Some(&[0]), snapshot).unwrap().map(found).collect();
    // With a column that the derived table does not hold the rows are read, and the answer is the same.
    let wide: Vec<Found> = index.get(&key, Some(&[0, 2]), snapshot).unwrap().map(found).collect();
    assert_eq!(narrow, wide);
    narrow
}

type Model = BTreeMap<i64, Option<String>>;

/// What there is to be found, by word and then by id.
fn derived(model: &Model) -> Vec<Found> {
    let mut all = Vec::new();
    for (id, text) in model {
        let counts = text.as_deref().map(counts_of).unwrap_or_default();
        all.extend(counts.into_iter().map(|(word, count)| (word, *id, count)));
    }
    all.sort();
    all
}

fn check(index: &Index, model: &Model, snapshot: Option<&Snapshot>, what: &str) {
    let expected = derived(model);
    let all: Vec<Found> =
        index.range((Bound::Unbounded, Bound::Unbounded), Some(&[0]), snapshot).unwrap().map(found).collect();
    assert_eq!(all, expected, "{what}");
    for word in WORDS {
        let of_word: Vec<Found> = expected.iter().filter(|found| found.0 == word).cloned().collect();
        assert_eq!(lookup(index, word, snapshot), of_word, "{what}, {word:?}");
    }
}

fn draw_text(rng: &mut SmallRng) -> Option<String> {
    let count = rng.random_range(0..4);
    (count > 0).then(|| (0..count).map(|_| *WORDS.choose(rng).unwrap()).collect::<Vec<_>>().join("|"))
}

const LAYOUTS: [&str; 3] = [
    "L0 tiered: * packed\nL1 leveled: * packed\n",
    "L0 tiered: * packed\nL1 tiered: * packed\nL2 leveled: 1-2 packed | 3 packed\n",
    "L0 tiered: * packed\nL1 leveled: 1 packed | 2-3 packed\n",
];

fn layout(text: &str) -> Layout {
    Layout::parse(text, &ColumnSet::from_iter([1, 2, 3])).unwrap()
}

/// One change of the table, or of what lies where.
fn act(rng: &mut SmallRng, database: &Database, table: &Table, model: &mut Model) {
    let id = rng.random_range(0..IDS);
    let key = [DatumRef::Int64(id)];
    match rng.random_range(0..100) {
        0..45 => {
            let text = draw_text(rng);
            put(table, id, text.as_deref()).unwrap();
            model.insert(id, text);
        }
        45..60 => {
            let text = draw_text(rng);
            let change = [("text", text.as_deref().map_or(DatumRef::Null, DatumRef::Utf8))];
            table.patch_row(&key, &change, Durability::Os).unwrap();
            model.entry(id).and_modify(|old| *old = text);
        }
        60..69 => drop(table.patch_row(&key, &[("score", DatumRef::Int64(7))], Durability::Os).unwrap()),
        69..75 => {
            table.delete_row(&key, Durability::Os).unwrap();
            model.remove(&id);
        }
        75..78 => {
            let end = id + rng.random_range(0..8);
            let bound = |id| table.row_key(&[DatumRef::Int64(id)]).unwrap();
            table.delete_range(&bound(id), &bound(end), Durability::Os).unwrap();
            model.retain(|known, _| !(id..end).contains(known));
        }
        78..94 => drop(database.step().unwrap()),
        94..98 => database.flush().unwrap(),
        98 => database.set_layout(table, layout(LAYOUTS.choose(rng).unwrap())).unwrap(),
        _ => database.compact(table).unwrap(),
    }
}

#[test]
fn random_histories_derive_what_their_rows_say() {
    for seed in 0..24 {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let disk = MemoryDisk::new();
        let mut database = Database::open("db", options(&disk)).unwrap();
        let mut table = create(&database);
        let (mut model, mut pinned) = (Model::new(), Vec::<(Snapshot, Model)>::new());
        let mut has_index = rng.random();
        if has_index {
            database.create_index(&table, &words()).unwrap();
        }
        for action in 0..1_200 {
            act(rng, &database, &table, &mut model);
            match rng.random_range(0..150) {
                0 => pinned.push((database.snapshot(), model.clone())),
                1 if !pinned.is_empty() => drop(pinned.swap_remove(rng.random_range(0..pinned.len()))),
                2 if !has_index => {
                    database.create_index(&table, &words()).unwrap();
                    has_index = true;
                }
                3 if rng.random_ratio(1, 4) && has_index => {
                    database.drop_index(&table, "words").unwrap();
                    has_index = false;
                }
                4 => {
                    pinned.clear();
                    drop(table);
                    database.close().unwrap();
                    database = Database::open("db", options(&disk)).unwrap();
                    table = database.table("notes").unwrap();
                }
                5..12 if has_index => {
                    let (index, what) = (table.index("words").unwrap(), format!("seed {seed}, action {action}"));
                    check(&index, &model, None, &what);
                    for (snapshot, model) in &pinned {
                        check(&index, model, Some(snapshot), &what);
                    }
                }
                _ => {}
            }
        }
        pinned.clear();
        database.compact(&table).unwrap();
        database.wait_idle().unwrap();
        if has_index {
            let index = table.index("words").unwrap();
            assert!(index.is_built(), "seed {seed}");
            check(&index, &model, None, &format!("seed {seed}, at rest"));
        }
        assert_verified(&database);
    }
}

/// What is derived leaves with the version that it was derived from.
#[test]
fn entries_of_versions_that_went_are_gone() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    database.create_index(&table, &words()).unwrap();
    for round in 0..4 {
        for id in 0..100 {
            put(&table, id, Some(&format!("round{round}|always|id{id}"))).unwrap();
        }
        database.flush().unwrap();
    }
    database.compact(&table).unwrap();
    database.wait_idle().unwrap();
    let metrics = database.metrics();
    let derived = metrics.tables.iter().find(|table| table.name == "notes/words").unwrap();
    assert_eq!(derived.levels.iter().map(|level| level.entries).sum::<u64>(), 300);
    assert_verified(&database);
}

#[test]
fn a_write_that_the_flat_map_fails_on_is_refused() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    put(&table, 1, Some("poison")).unwrap();
    let index = database.create_index(&table, &words()).unwrap();
    let refused = put(&table, 2, Some("a|poison")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("test.words"), "{refused}");
    put(&table, 2, Some("a")).unwrap();
    database.flush().unwrap();
    assert!(index.get(&[DatumRef::Binary(b"a")], None, None).unwrap().next().unwrap().is_err());
    let failure = index.wait_built().expect_err("a row that was there before derives an error");
    assert!(failure.to_string().contains("notes/words") && failure.to_string().contains("Int64(1)"), "{failure}");
    database.wait_idle().unwrap();
    assert!(table.indexes().is_empty());
    put(&table, 1, Some("b")).unwrap();
    let index = database.create_index(&table, &words()).unwrap();
    index.wait_built().unwrap();
    assert_eq!(lookup(&index, "b", None), [("b".to_owned(), 1, 1)]);
    assert_verified(&database);
}

/// An error ends a transformer's job, which is not called again. It was, with the next row, which got the words of the
/// one that had been refused.
#[test]
fn a_row_does_not_derive_what_a_refused_one_left_behind() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    let gathered = IndexOptions { flat_map: Some("test.gathered".parse().unwrap()), ..words() };
    let index = database.create_index(&table, &gathered).unwrap();
    for id in 0..3 {
        assert_eq!(put(&table, 9, Some("moss|poison")).unwrap_err().kind(), ErrorKind::InvalidArgument);
        put(&table, id, Some("cap")).unwrap();
    }
    for _ in 0..2 {
        assert!(lookup(&index, "moss", None).is_empty());
        assert_eq!(lookup(&index, "cap", None), [0, 1, 2].map(|id| ("cap".to_owned(), id, 1)));
        assert_verified(&database);
        database.compact(&table).unwrap();
    }
}

#[test]
fn a_database_is_not_opened_without_a_flat_map_that_it_needs() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    let index = database.create_index(&table, &words()).unwrap();
    assert_eq!(index.by(), IndexedBy::FlatMap("words".into(), "test.words 1".parse().unwrap()));
    drop((index, table));
    database.close().unwrap();
    let refused = Database::open("db", small_options(&disk)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("words"), "{refused}");
}

#[test]
fn what_cannot_feed_a_derived_table_is_refused() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    let kind = |options: IndexOptions| database.create_index(&table, &options).unwrap_err().kind();
    let by = |text: &str| IndexOptions { flat_map: Some(text.parse().unwrap()), ..words() };
    assert_eq!(kind(by("test.letters 1")), ErrorKind::Unsupported, "it is not registered");
    assert_eq!(kind(by("test.words 9")), ErrorKind::InvalidArgument, "there is no such column");
    assert_eq!(kind(by("split by 2")), ErrorKind::InvalidArgument, "it stands in the order");
    assert_eq!(kind(IndexOptions { unique: true, ..words() }), ErrorKind::Unsupported);
    assert_eq!(kind(IndexOptions { on: vec!["text".into()], ..words() }), ErrorKind::InvalidArgument);
    let set = TransformerSet::parse("test.words 1").unwrap();
    let options = mycelium_engine::TableOptions { transformers: Some(set), ..small_table() };
    let refused = database.create_typed_table("other", Schema::parse(SCHEMA).unwrap(), options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_transaction_finds_what_it_wrote() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    let index = database.create_index(&table, &words()).unwrap();
    put(&table, 1, Some("moss|cap")).unwrap();
    put(&table, 2, Some("moss")).unwrap();
    let mut transaction = database.begin(IsolationLevel::Serializable);
    let row = |id, text| [DatumRef::Int64(id), DatumRef::Utf8(text), DatumRef::Null, DatumRef::Null];
    transaction.insert_row(&table, &row(3, "cap|moss|moss")).unwrap();
    transaction.insert_row(&table, &row(2, "spore")).unwrap();
    let key = [DatumRef::Binary(b"moss")];
    let of_transaction: Vec<Found> = transaction.index_get(&index, &key, Some(&[0])).unwrap().map(found).collect();
    assert_eq!(of_transaction, [("moss".to_owned(), 1, 1), ("moss".to_owned(), 3, 2)]);
    assert_eq!(lookup(&index, "moss", None).len(), 2);
    put(&table, 9, Some("moss")).unwrap();
    assert_eq!(
        transaction.commit(Durability::Os).unwrap_err().kind(),
        ErrorKind::Conflict,
        "a row came into what it read"
    );
}

/// Before any was answered with, there was one for each: 50 GiB of this row.
#[test]
fn a_lookup_in_a_transaction_held_a_copy_of_its_row_for_each_word_of_it() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    let index = database.create_index(&table, &words()).unwrap();
    let text = (0..50_000).map(|word| format!("{word:020}")).collect::<Vec<_>>().join("|");
    let row = [DatumRef::Int64(1), DatumRef::Utf8(&text), DatumRef::Null, DatumRef::Null];
    let mut transaction = database.begin(IsolationLevel::Snapshot);
    transaction.insert_row(&table, &row).unwrap();
    let mut rows = transaction.index_range(&index, (Bound::Unbounded, Bound::Unbounded), None).unwrap();
    for word in 0..3 {
        let row = rows.next().unwrap().unwrap();
        assert!(row.values[1] == Datum::Utf8(text.clone()));
        assert_eq!(found(Ok(row)), (format!("{word:020}"), 1, 1));
    }
}

/// A crash before every operation on the disk: what is derived is what the rows that are left say.
#[test]
fn a_crash_leaves_what_the_rows_say() {
    let disk = MemoryDisk::new();
    let database = Database::open("db", options(&disk)).unwrap();
    let table = create(&database);
    database.create_index(&table, &words()).unwrap();
    let rng = &mut SmallRng::seed_from_u64(7);
    let mut model = Model::new();
    let mut crashes = 0;
    for step in 0..400 {
        act(rng, &database, &table, &mut model);
        if step % 10 != 0 {
            continue;
        }
        let crashed = disk.crash_image(&CrashDraw::from_seed(step));
        let database = Database::open("db", options(&crashed)).unwrap();
        let table = database.table("notes").unwrap();
        let left: Model = (0..IDS)
            .filter_map(|id| {
                let row = table.get_row(&[DatumRef::Int64(id)], Some(&[1]), &mycelium_engine::ReadOptions::default());
                let text = match row.unwrap()?.swap_remove(0) {
                    Datum::Utf8(text) => Some(text),
                    _ => None,
                };
                Some((id, text))
            })
            .collect();
        check(&table.index("words").unwrap(), &left, None, &format!("crash after step {step}"));
        while database.step().unwrap() {}
        check(&table.index("words").unwrap(), &left, None, &format!("crash after step {step}, at rest"));
        assert_verified(&database);
        crashes += 1;
    }
    println!("crash points: {crashes}");
    assert_eq!(crashes, 40);
}

/// What patches of before had derived was not removed with them, for they lack the column that the flat-map came to
/// read: a lookup could find a row that had been deleted.
#[test]
fn a_column_does_not_come_to_a_flat_map_that_would_read_it() {
    let database = Database::open("db", options(&MemoryDisk::new())).unwrap();
    let table = database.create_typed_table("t", Schema::parse(SCHEMA).unwrap(), small_table()).unwrap();
    let flat_map = Some("test.filled".parse().unwrap());
    let filled = IndexOptions { name: "filled".into(), flat_map, ..IndexOptions::default() };
    database.create_index(&table, &filled).unwrap();
    database.create_index(&table, &words()).unwrap();
    let column = || Column::new("later", ColumnType::Int32);
    let refused = database.add_column(&table, column()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("the index filled"), "{refused}");
    // A name is another matter, and so is a flat-map that goes on reading what it did.
    let table = database.rename_column(&table, "note", "remark").unwrap();
    database.drop_index(&table, "filled").unwrap();
    let table = database.add_column(&table, column()).unwrap();
    assert_eq!(table.indexes().len(), 1);
    assert_verified(&database);
}
