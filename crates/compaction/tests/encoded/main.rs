//! The job in the encoded domain against the job of rows: the same inputs, cut at the same keys, must give the same
//! files, byte for byte, and the same figures. Inputs are made from a seed, which a failure prints, of columns that are
//! made to break an encoding or a dictionary. Likewise jobs that change groups, some of whose inputs stay encoded
//! (`groups`).

#![allow(clippy::unwrap_used)]

mod groups;

use std::path::PathBuf;
use std::sync::Arc;

use mycelium_base::{
    ColumnSet, Cursor, FileNumber, Group, GroupFormat, Operation, RangeDelete, RangeDeleteSet, Result, SequenceNumber,
    Trailer,
};
use mycelium_cache::BlockCache;
use mycelium_compaction::job::{self, JobContext, JobInput, JobOutput, Rules};
use mycelium_compaction::{FixedPartitioner, Partitioner, encoded_job};
use mycelium_encoding::{ColumnState, ColumnType, Datum, FragmentFormat, PackedLayout, Schema};
use mycelium_merge::{MergingCursor, Watch};
use mycelium_sst::{
    CursorOptions, EncodedCursor, FileFigures, OpenOptions, RunCursor, SstFile, SstWriter, SstWriterOptions, Summarizer,
};
use mycelium_vfs::{AccessPattern, Disk, MemoryDisk, WritableFile};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// What the values of a column are like.
#[derive(Clone, Copy, Debug)]
enum Values {
    AllNull,
    One,
    Few,
    /// Of each run others, some of which the next run has as well.
    Overlapping,
    /// Of each run others.
    Apart,
    AllDistinct,
    Awkward,
    Rising,
}

const VALUES: [Values; 8] = [
    Values::AllNull,
    Values::One,
    Values::Few,
    Values::Overlapping,
    Values::Apart,
    Values::AllDistinct,
    Values::Awkward,
    Values::Rising,
];

const KINDS: [&str; 16] = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "date32",
    "timestamp(us)",
    "decimal(38, 4)",
    "utf8",
    "binary",
];

/// A table whose rows are made up.
struct Table {
    schema: Arc<Schema>,
    group: Arc<Group>,
    layout: Arc<PackedLayout>,
    /// By schema column.
    values: Vec<Values>,
    block_size: usize,
}

impl Table {
    fn new(columns: &[(&str, Values)], block_size: usize) -> Self {
        let list: String = columns.iter().enumerate().map(|(i, (kind, _))| format!("c{i} {kind}, ")).collect();
        let schema = Arc::new(Schema::parse(&format!("key utf8 not null, {list}primary key (key)")).unwrap());
        let set: ColumnSet = (1..=columns.len()).collect();
        let group = Arc::new(Group::new(set.clone(), GroupFormat::Columnar));
        let layout = Arc::new(PackedLayout::of(schema.clone(), &set));
        let values = std::iter::once(Values::One).chain(columns.iter().map(|&(_, values)| values)).collect();
        Self { schema, group, layout, values, block_size }
    }

    fn random(rng: &mut SmallRng) -> Self {
        let count = rng.random_range(1..7);
        let column = |rng: &mut SmallRng| {
            let kind =
                if rng.random_bool(0.5) { KINDS.len() - 2 + rng.random_range(0..2) } else { rng.random_range(0..14) };
            (KINDS[kind], VALUES[rng.random_range(0..VALUES.len())])
        };
        let columns: Vec<_> = (0..count).map(|_| column(rng)).collect();
        Self::new(&columns, rng.random_range(100..6000))
    }

    fn datum(&self, column: usize, (run, row): (usize, usize), rng: &mut SmallRng) -> Datum {
        let number = match self.values[column] {
            Values::AllNull => return Datum::Null,
            Values::One => 7,
            Values::Few => rng.random_range(0..5),
            Values::Overlapping => run as u64 * 4 + rng.random_range(0..8),
            Values::Apart => run as u64 * 10 + rng.random_range(0..10),
            Values::AllDistinct => rng.random(),
            Values::Awkward => return awkward(&self.schema.columns()[column].ty, rng),
            Values::Rising => row as u64,
        };
        if rng.random_ratio(1, 50) { Datum::Null } else { plain(&self.schema.columns()[column].ty, number) }
    }

    /// Appends a row, or a patch of some columns.
    fn put(&self, place: (usize, usize), is_patch: bool, rng: &mut SmallRng, out: &mut Vec<u8>) {
        let absent = |rng: &mut SmallRng| is_patch && rng.random_bool(0.5);
        let datums: Vec<Option<Datum>> = (0..self.values.len())
            .map(|column| if column == 0 || absent(rng) { None } else { Some(self.datum(column, place, rng)) })
            .collect();
        let state = |column: usize| match &datums[column] {
            None => ColumnState::Absent,
            Some(datum) => datum.borrowed().into(),
        };
        self.layout.encode_with(state, out).unwrap();
    }
}

/// The value of a type that has this number.
fn plain(kind: &ColumnType, number: u64) -> Datum {
    match kind {
        ColumnType::Bool => Datum::Bool(number % 2 == 1),
        ColumnType::Int8 => Datum::Int8(number as i8),
        ColumnType::Int16 => Datum::Int16(number as i16),
        ColumnType::Int32 => Datum::Int32(number as i32),
        ColumnType::Int64 => Datum::Int64(number as i64),
        ColumnType::UInt8 => Datum::UInt8(number as u8),
        ColumnType::UInt16 => Datum::UInt16(number as u16),
        ColumnType::UInt32 => Datum::UInt32(number as u32),
        ColumnType::UInt64 => Datum::UInt64(number),
        ColumnType::Float32 => Datum::Float32(number as f32 / 4.0),
        ColumnType::Float64 => Datum::Float64(number as f64 / 100.0),
        ColumnType::Date32 => Datum::Date32(number as i32),
        ColumnType::Timestamp(..) => Datum::Timestamp(number as i64),
        ColumnType::Decimal128(..) => Datum::Decimal128(i128::from(number)),
        ColumnType::Utf8 => Datum::Utf8(format!("a text of some length {number:05}")),
        ColumnType::Binary => Datum::Binary(format!("\0bytes that are no text \u{0}{number:05}").into_bytes()),
    }
}

/// Values at the edges of a type.
fn awkward(kind: &ColumnType, rng: &mut SmallRng) -> Datum {
    let texts = ["", "\0", "\0\0", "a", "a\0", "a\0b", "é", "\u{10FFFF}", "ab"];
    let bytes: [&[u8]; 7] = [b"", b"\0", b"\xff", b"\xff\xff\xff", b"\xc3\x28", b"\0\xff", &[0x80; 70]];
    let pick = rng.random_range(0..9);
    match kind {
        ColumnType::Int64 => Datum::Int64([i64::MIN, i64::MAX, 0, -1, 1][pick % 5]),
        ColumnType::UInt64 => Datum::UInt64([0, u64::MAX, 1 << 63, 1][pick % 4]),
        ColumnType::Timestamp(..) => Datum::Timestamp([i64::MIN, i64::MAX, 0][pick % 3]),
        ColumnType::Float32 => {
            Datum::Float32([f32::NAN, -f32::NAN, -0.0, 0.0, f32::INFINITY, f32::MIN_POSITIVE][pick % 6])
        }
        ColumnType::Float64 => Datum::Float64([f64::NAN, -f64::NAN, -0.0, 0.0, 0.1, f64::NEG_INFINITY][pick % 6]),
        ColumnType::Decimal128(..) => {
            let most = 10_i128.pow(38) - 1;
            Datum::Decimal128([-most, most, 0, i128::from(i64::MAX), i128::from(i64::MIN) - 1][pick % 5])
        }
        ColumnType::Utf8 => Datum::Utf8(texts[pick].to_owned()),
        ColumnType::Binary => Datum::Binary(bytes[pick % 7].to_vec()),
        kind => plain(kind, [u64::MAX, 0, 1 << 63, 127, 128][pick % 5]),
    }
}

/// What is compacted.
struct Case {
    table: Table,
    runs: Vec<Vec<Arc<SstFile>>>,
    range_deletes: Arc<RangeDeleteSet>,
    snapshots: Vec<SequenceNumber>,
    bounds: (Option<Vec<u8>>, Option<Vec<u8>>),
    /// Keys before which outputs end.
    cuts: Vec<Vec<u8>>,
    is_base: bool,
    is_watched: bool,
    /// Bytes that an output may hold in memory.
    memory_limit: usize,
}

fn key(number: usize, is_wide: bool) -> Vec<u8> {
    let mut key = format!("{number:06}").into_bytes();
    if is_wide && number.is_multiple_of(3) {
        key.extend_from_slice(b"and more of it");
    }
    key
}

impl Case {
    fn random(table: Table, rows: usize, rng: &mut SmallRng) -> Self {
        let run_count = rng.random_range(1..5);
        let (patches, deletes) = (rng.random_bool(0.3), rng.random_bool(0.5));
        let (space, is_wide) = (rng.random_range(rows / 2 + 1..rows * 3 + 2), rng.random_bool(0.3));
        let runs: Vec<_> = (0..run_count)
            .map(|run| {
                // Newer runs come first.
                let from = ((run_count - run) * 4 * rows) as SequenceNumber;
                write_run(&table, (run, rows), (space, is_wide), from, (patches, deletes), rng)
            })
            .collect();
        let highest = (run_count * 4 * rows + 4 * rows) as SequenceNumber;
        let mut snapshots: Vec<_> = (0..rng.random_range(0..4)).map(|_| rng.random_range(0..highest)).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let deleted = |rng: &mut SmallRng| {
            let (a, b) = (rng.random_range(0..space), rng.random_range(0..space));
            let sequence = rng.random_range(0..highest);
            RangeDelete { start: key(a.min(b), is_wide), end: key(a.max(b) + 1, is_wide), sequence }
        };
        let ranges: Vec<_> = (0..rng.random_range(0..3)).map(|_| deleted(rng)).collect();
        let mut place = || rng.random_bool(0.3).then(|| key(rng.random_range(0..space), is_wide));
        let bounds = match (place(), place()) {
            (Some(lower), Some(upper)) => (Some(lower.clone().min(upper.clone())), Some(lower.max(upper))),
            bounds => bounds,
        };
        let mut cuts: Vec<_> = (0..rng.random_range(0..4)).map(|_| key(rng.random_range(0..space), is_wide)).collect();
        cuts.sort();
        Self {
            table,
            runs,
            range_deletes: Arc::new(RangeDeleteSet::new(&ranges)),
            snapshots,
            bounds,
            cuts,
            is_base: rng.random_bool(0.5),
            is_watched: rng.random_bool(0.2),
            memory_limit: usize::MAX,
        }
    }

    /// Runs a job of either kind.
    fn compact(&self, is_encoded: bool, partitioner: &mut dyn Partitioner) -> Made {
        let options = CursorOptions { fill_cache: false, read_ahead: 4 << 10, ..CursorOptions::default() };
        let disk = MemoryDisk::new();
        let mut context =
            Context { schema: self.table.schema.clone(), disk: disk.clone(), created: 0, is_base: self.is_base };
        let mut watch = Told::default();
        let rules = Rules::Rows(self.is_watched.then_some(&mut watch as &mut dyn Watch));
        let output = if is_encoded {
            let cursor = |run: &Vec<Arc<SstFile>>| EncodedCursor::new(run.clone(), options, self.table.layout.clone());
            let entries = MergingCursor::new(self.runs.iter().map(cursor).collect());
            encoded_job::run(self.input(entries, rules), partitioner, &mut context).unwrap()
        } else {
            let cursor = |run: &Vec<Arc<SstFile>>| RunCursor::new(run.clone(), options);
            let entries = MergingCursor::new(self.runs.iter().map(cursor).collect());
            job::run(self.input(entries, rules), partitioner, &mut context).unwrap()
        };
        let files = (1..=context.created).map(|number| open(&disk, number)).collect();
        Made { output, files, told: watch.0 }
    }

    fn input<'w, C>(&self, entries: C, rules: Rules<'w>) -> JobInput<'w, C> {
        let format = FragmentFormat::packed(self.table.schema.clone(), self.table.group.columns.clone());
        JobInput {
            rules,
            entries,
            range_deletes: self.range_deletes.clone(),
            snapshots: self.snapshots.clone(),
            combiner: Some(format.combiner()),
            lower: self.bounds.0.clone(),
            upper: self.bounds.1.clone(),
            are_oldest: self.is_base,
            writer: SstWriterOptions {
                block_size: self.table.block_size,
                memory_limit: self.memory_limit,
                ..SstWriterOptions::default()
            },
            group: Some(self.table.group.clone()),
            map: None,
        }
    }
}

/// A run of one file or two, of random keys in several versions.
fn write_run(
    table: &Table,
    (run, rows): (usize, usize),
    (space, is_wide): (usize, bool),
    from: SequenceNumber,
    (patches, deletes): (bool, bool),
    rng: &mut SmallRng,
) -> Vec<Arc<SstFile>> {
    let mut keys: Vec<usize> = (0..rows).map(|_| rng.random_range(0..space)).collect();
    keys.sort_unstable();
    keys.dedup();
    let (disk, middle) = (MemoryDisk::new(), if rng.random_bool(0.5) { keys.len().div_ceil(2) } else { keys.len() });
    let mut value = Vec::new();
    let mut write = |number: FileNumber, keys: &[usize]| {
        let options =
            SstWriterOptions { file_number: number, block_size: table.block_size, ..SstWriterOptions::default() };
        let writer = SstWriter::new(disk.create(&path(number)).unwrap(), options).unwrap();
        let mut writer = match table.group.format {
            GroupFormat::Columnar => writer.with_columns(table.group.clone(), table.schema.clone()),
            GroupFormat::Row(_) => writer.with_group(Some(table.group.clone())),
        };
        for &number in keys {
            let versions = if rng.random_ratio(1, 10) { rng.random_range(2..4) } else { 1 };
            for version in (0..versions).rev() {
                let operation = match rng.random_range(0..10) {
                    0 if deletes => Operation::Delete,
                    1 if patches => Operation::Patch,
                    _ => Operation::Put,
                };
                value.clear();
                if operation != Operation::Delete {
                    table.put((run, number), operation == Operation::Patch, rng, &mut value);
                }
                let sequence = from + (version * rows) as SequenceNumber + rng.random_range(0..rows as u64);
                writer.add(&key(number, is_wide), Trailer::new(sequence, operation), &value).unwrap();
            }
        }
        writer.finish().unwrap();
        open(&disk, number)
    };
    let mut files = vec![write(1, &keys[..middle])];
    if middle < keys.len() {
        files.push(write(2, &keys[middle..]));
    }
    files
}

fn path(number: FileNumber) -> PathBuf {
    PathBuf::from(format!("{number:06}.sst"))
}

fn open(disk: &MemoryDisk, number: FileNumber) -> Arc<SstFile> {
    let (file, cache) = (disk.open(&path(number), AccessPattern::Random).unwrap(), Arc::new(BlockCache::new(1 << 20)));
    SstFile::open(file, &path(number), number, cache, OpenOptions::default()).unwrap()
}

struct Context {
    schema: Arc<Schema>,
    disk: MemoryDisk,
    created: FileNumber,
    is_base: bool,
}

impl JobContext for Context {
    fn create_output(&mut self) -> Result<(FileNumber, Box<dyn WritableFile>)> {
        self.created += 1;
        Ok((self.created, self.disk.create(&path(self.created))?))
    }
    fn finish_output(&mut self, mut file: Box<dyn WritableFile>) -> Result<()> {
        file.sync()
    }
    fn summarizers(&mut self, _group: Option<&Arc<Group>>) -> Result<Vec<Box<dyn Summarizer>>> {
        Ok(Vec::new())
    }
    fn schema(&self) -> Option<Arc<Schema>> {
        Some(self.schema.clone())
    }
    fn is_base(&mut self, _output: usize, _key: &[u8]) -> bool {
        self.is_base
    }
    fn is_base_range(&mut self, _output: usize, _start: &[u8], _end: &[u8]) -> bool {
        self.is_base
    }
    fn wrote(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// All that a watch was told.
#[derive(Default)]
struct Told(Vec<(&'static str, Entry)>);

type Entry = (Vec<u8>, Trailer, Vec<u8>);

impl Watch for Told {
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.0.push(("dropped", (key.to_vec(), trailer, value.to_vec())));
        Ok(())
    }
    fn made(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.0.push(("made", (key.to_vec(), trailer, value.to_vec())));
        Ok(())
    }
}

/// Cuts outputs before given keys, whatever their size.
struct AtKeys(Vec<Vec<u8>>);

impl Partitioner for AtKeys {
    fn should_cut(&mut self, next_key: &[u8], _current_size: u64) -> bool {
        let passed = self.0.iter().take_while(|cut| cut.as_slice() <= next_key).count();
        self.0.drain(..passed);
        passed > 0
    }

    fn was_cut(&mut self, _next_key: &[u8]) {
        unreachable!("nothing here limits the memory of an output");
    }
}

/// What a job made.
struct Made {
    output: JobOutput,
    files: Vec<Arc<SstFile>>,
    told: Vec<(&'static str, Entry)>,
}

impl Made {
    /// Each file's summary, without times.
    fn summaries(&self) -> Vec<mycelium_sst::SstSummary> {
        let timeless = |summary: &mycelium_sst::SstSummary| mycelium_sst::SstSummary {
            timings: mycelium_sst::StageTimings::default(),
            ..summary.clone()
        };
        self.output.files.iter().map(|(_, summary)| timeless(summary)).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut cursor = RunCursor::new(self.files.clone(), CursorOptions::default());
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            entries.push((cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()));
            cursor.next().unwrap();
        }
        entries
    }

    fn figures(&self) -> Vec<FileFigures> {
        self.files.iter().map(|file| file.column_figures().unwrap().unwrap()).collect()
    }
}

/// Runs both jobs with the same cuts and compares all that they make.
fn compare(case: &Case, seed: u64) -> Made {
    let by_rows = case.compact(false, &mut AtKeys(case.cuts.clone()));
    let encoded = case.compact(true, &mut AtKeys(case.cuts.clone()));
    assert_eq!(encoded.output.entries, by_rows.output.entries, "seed {seed}");
    assert_eq!(encoded.told, by_rows.told, "seed {seed}");
    assert_eq!(encoded.entries(), by_rows.entries(), "seed {seed}");
    assert_eq!(encoded.figures(), by_rows.figures(), "seed {seed}");
    // Lengths, fences, counts, and the checksum of all bytes.
    assert_eq!(encoded.summaries(), by_rows.summaries(), "seed {seed}");
    for file in &encoded.files {
        file.verify(|_| ()).unwrap();
    }
    assert_eq!(by_rows.output.entries_encoded, 0);
    encoded
}

#[test]
fn both_jobs_make_the_same_files_of_anything() {
    let (mut encoded, mut others) = (0, 0);
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let rows = [3, 40, 300, 2500][rng.random_range(0..4)];
        let table = Table::random(&mut rng);
        let made = compare(&Case::random(table, rows, &mut rng), seed);
        encoded += made.output.entries_encoded;
        others += made.output.entries.entries_out - made.output.entries_encoded;
    }
    assert!(encoded > 100_000, "only {encoded} entries stayed encoded");
    assert!(others > 1000, "only {others} entries were folded");
}

#[test]
fn files_cut_by_their_size_have_the_same_contents() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let table = Table::random(&mut rng);
        let case = Case::random(table, 2000, &mut rng);
        let target = rng.random_range(2000..30_000);
        let by_rows = case.compact(false, &mut FixedPartitioner::new(target));
        let encoded = case.compact(true, &mut FixedPartitioner::new(target));
        assert_eq!(encoded.entries(), by_rows.entries(), "seed {seed}");
        assert_eq!(encoded.told, by_rows.told, "seed {seed}");
        let (ours, theirs) = (encoded.files.len(), by_rows.files.len());
        assert!(ours <= 2 * theirs + 1 && theirs <= 2 * ours + 1, "seed {seed}: {ours} files instead of {theirs}");
    }
}

/// Runs of rows without other versions, of one text column; `text` of run and row.
fn texts(runs: usize, rows: usize, text: impl Fn(usize, usize) -> String) -> Case {
    let table = Table::new(&[("utf8", Values::One)], 1000);
    let write = |run: usize| {
        let disk = MemoryDisk::new();
        let options = SstWriterOptions { file_number: 1, block_size: table.block_size, ..SstWriterOptions::default() };
        let writer = SstWriter::new(disk.create(&path(1)).unwrap(), options).unwrap();
        let mut writer = writer.with_columns(table.group.clone(), table.schema.clone());
        for row in 0..rows {
            let (text, mut value) = (Datum::Utf8(text(run, row)), Vec::new());
            table.layout.encode_with(|_| text.borrowed().into(), &mut value).unwrap();
            let sequence = ((runs - run - 1) * rows + row + 1) as SequenceNumber;
            writer.add(&key(row, false), Trailer::new(sequence, Operation::Put), &value).unwrap();
        }
        writer.finish().unwrap();
        vec![open(&disk, 1)]
    };
    Case {
        runs: (0..runs).map(write).collect(),
        table,
        range_deletes: Arc::new(RangeDeleteSet::default()),
        snapshots: Vec::new(),
        bounds: (None, None),
        cuts: Vec::new(),
        is_base: true,
        is_watched: false,
        memory_limit: usize::MAX,
    }
}

/// All of a file waited in memory for its dictionaries, whatever there was of it.
#[test]
fn files_end_where_they_hold_as_much_as_they_may() {
    const LIMIT: usize = 256 << 10;
    for (texts_alike, name) in [(1, "all different"), (3, "some alike"), (500, "few")] {
        let text = |_: usize, row: usize| format!("text {:06} of no length in particular", row / texts_alike);
        let case = Case { memory_limit: LIMIT, ..texts(2, 30_000, text) };
        let free = Case { memory_limit: usize::MAX, ..texts(2, 30_000, text) };
        for is_encoded in [false, true] {
            let made = case.compact(is_encoded, &mut FixedPartitioner::new(u64::MAX));
            let whole = free.compact(is_encoded, &mut FixedPartitioner::new(u64::MAX));
            assert_eq!(whole.files.len(), 1);
            assert_eq!(made.entries(), whole.entries(), "{name}");
            let (most, without) = (made.output.most_held, whole.output.most_held);
            // It is counted once a block or a thousand rows, and what grows doubles.
            assert!(most <= 2 * LIMIT, "{name}: {most} bytes were held");
            // What inputs lent is let go first: no file has but a few rows.
            let least = without / (4 * LIMIT);
            let expected = least..=without.div_ceil(LIMIT / 4) + 1;
            assert!(expected.contains(&made.files.len()), "{name}: {} files, not {expected:?}", made.files.len());
        }
    }
}

fn dictionary_len(file: &FileFigures) -> Option<u64> {
    file.columns[0].dictionary.map(|dictionary| dictionary.values)
}

#[test]
fn dead_values_leave_the_dictionary() {
    // Each row of the older run is superseded: of its hundred texts none is left.
    let case =
        texts(2, 2000, |run, row| format!("text {:05} of the run", run * 100 + row % if run == 0 { 20 } else { 100 }));
    let before: Vec<_> = case.runs.iter().map(|run| run[0].column_figures().unwrap().unwrap()).collect();
    assert_eq!(before.iter().map(dictionary_len).collect::<Vec<_>>(), [Some(20), Some(100)]);
    let made = compare(&case, 0);
    assert_eq!(dictionary_len(&made.figures()[0]), Some(20));
    assert_eq!(made.output.entries_encoded, 2000);
    // A snapshot between the runs keeps all.
    let made = compare(&Case { snapshots: vec![2000], ..case }, 0);
    assert_eq!(dictionary_len(&made.figures()[0]), Some(120));
}

#[test]
fn each_file_has_the_texts_of_its_own_rows() {
    let case = texts(3, 3000, |_, row| format!("text {:05} of all runs", row / 30));
    let made = compare(&Case { cuts: vec![key(1500, false), key(1530, false)], ..case }, 0);
    assert_eq!(made.figures().iter().map(dictionary_len).collect::<Vec<_>>(), [Some(50), Some(1), Some(49)]);
}

#[test]
fn a_dictionary_that_does_not_pay_any_more_gives_way_and_comes_back() {
    // Of what survives every text is another: of each run of five equal texts the newer run hides four.
    let newer = |row: usize| !row.is_multiple_of(5);
    let table = texts(1, 2000, |_, row| format!("text {:05} of the run", row / 5));
    let hiding = Case { range_deletes: Arc::new(hide(2000, newer)), ..table };
    assert_eq!(dictionary_len(&hiding.runs[0][0].column_figures().unwrap().unwrap()), Some(400));
    let made = compare(&hiding, 0);
    assert_eq!(made.output.entries.entries_out, 400);
    assert_eq!(dictionary_len(&made.figures()[0]), None);
    // A run of plain texts, alone and under a snapshot that keeps a run of one text.
    for (runs, expected) in [(1, None), (2, Some(1000))] {
        let case = texts(runs, 1000, |run, row| format!("text {:05} of the run", if run == 0 { row } else { 7 }));
        assert_eq!(dictionary_len(&case.runs[0][0].column_figures().unwrap().unwrap()), None);
        let snapshots = (1..runs as SequenceNumber).map(|run| run * 1000).collect();
        let made = compare(&Case { snapshots, ..case }, 0);
        assert_eq!((dictionary_len(&made.figures()[0]), made.output.entries_encoded), (expected, runs as u64 * 1000));
    }
}

/// Range deletes, newer than everything, over the rows that `is_hidden` names.
fn hide(rows: usize, is_hidden: impl Fn(usize) -> bool) -> RangeDeleteSet {
    let delete = |row| RangeDelete { start: key(row, false), end: key(row + 1, false), sequence: 1 << 40 };
    RangeDeleteSet::new(&(0..rows).filter(|&row| is_hidden(row)).map(delete).collect::<Vec<_>>())
}
