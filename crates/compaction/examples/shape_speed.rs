//! Times jobs that change column groups beside jobs that do not, on files in memory:
//! `cargo run --release -p mycelium-compaction --example shape_speed -- [rows [case [rounds]]]`.
//!
//! The rows are the paper's (Mycelium §5.3.2): 32 columns, strings of 24 bytes and 64-bit integers in turn, keys of 16
//! bytes, every key once, in four runs. A case is `FORMAT-N-WHAT`: inputs that hold an Nth of the columns, and what is
//! done to them (`keep`, `split` in two, `convert` to packed). CPU time is printed, which stands on a busy machine; for
//! instructions run one case for 1 and for 3 rounds under `valgrind --tool=callgrind`, and take the difference.

#![allow(clippy::unwrap_used)]

mod measuring;

use std::path::Path;
use std::sync::{Arc, Mutex};

use measuring::{Sink, Source, cpu_nanoseconds};
use mycelium_base::coding::{put_bytes, put_varint};
use mycelium_base::hash::mix;
use mycelium_base::{
    ColumnSet, FileNumber, Group, GroupFormat, Operation, RangeDeleteSet, Result, RowFormatKind, Trailer,
};
use mycelium_cache::BlockCache;
use mycelium_compaction::FixedPartitioner;
use mycelium_compaction::job::{self, JobContext, JobInput, Rules};
use mycelium_compaction::shaped_job::{self, Making, OutputGroup, ShapedInput};
use mycelium_encoding::row_format::{RowFormat, RowScratch};
use mycelium_encoding::{ColumnState, DatumRef, FragmentFormat, Schema};
use mycelium_merge::MergingCursor;
use mycelium_sst::{CursorOptions, LevelCursor, OpenOptions, SstFile, SstWriter, SstWriterOptions};
use mycelium_vfs::WritableFile;

const COLUMNS: usize = 32;
const RUNS: usize = 4;
/// Nanoseconds of CPU that each line is given, at least.
const PATIENCE: u64 = 1_000_000_000;

/// Files that are written and forgotten; an older place may hold every key.
#[derive(Default)]
struct Context(FileNumber);

impl JobContext for Context {
    fn finish_output(&mut self, _file: Box<dyn WritableFile>) -> Result<()> {
        Ok(())
    }

    fn create_output(&mut self) -> Result<(FileNumber, Box<dyn WritableFile>)> {
        self.0 += 1;
        Ok((self.0, Box::new(Sink(Arc::new(Mutex::new(Vec::with_capacity(3 << 20)))))))
    }
    fn is_base(&mut self, _output: usize, _key: &[u8]) -> bool {
        false
    }
    fn is_base_range(&mut self, _output: usize, _start: &[u8], _end: &[u8]) -> bool {
        false
    }
    fn wrote(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

fn schema() -> Arc<Schema> {
    let column = |c: usize| format!("c{c:02} {} not null, ", if c.is_multiple_of(2) { "uint64" } else { "utf8" });
    let columns: String = (1..=COLUMNS).map(column).collect();
    Arc::new(Schema::parse(&format!("key utf8 not null, {columns}primary key (key)")).unwrap())
}

/// A `google.protobuf.FileDescriptorSet` of one message with a `string` or `fixed64` for each column.
fn protobuf(schema: &Arc<Schema>) -> RowFormat {
    let nested = |out: &mut Vec<u8>, number: u64, bytes: &[u8]| {
        put_varint(out, number << 3 | 2);
        put_bytes(out, bytes);
    };
    let mut message = Vec::new();
    nested(&mut message, 1, b"Row");
    for (number, column) in schema.columns().iter().enumerate().skip(1) {
        let mut field = Vec::new();
        nested(&mut field, 1, column.name.as_bytes());
        for (tag, value) in [(3, number as u64), (4, 1), (5, if number.is_multiple_of(2) { 6 } else { 9 })] {
            put_varint(&mut field, tag << 3);
            put_varint(&mut field, value);
        }
        nested(&mut message, 2, &field);
    }
    let (mut file, mut set) = (Vec::new(), Vec::new());
    nested(&mut file, 1, b"row.proto");
    nested(&mut file, 4, &message);
    nested(&mut file, 12, b"proto3");
    nested(&mut set, 1, &file);
    RowFormat::new(RowFormatKind::Protobuf, schema.clone(), &set, "Row").unwrap()
}

/// One of `count` groups of neighbouring columns.
fn group(number: usize, count: usize) -> ColumnSet {
    let width = COLUMNS / count;
    (1 + number * width..1 + (number + 1) * width).collect()
}

/// Runs of rows of some columns.
fn runs(rows: u64, format: &FragmentFormat) -> Vec<Arc<SstFile>> {
    let text: String = (0..4096).map(|i| char::from(b'a' + (mix(i) % 26) as u8)).collect();
    let mut keys: Vec<[u8; 16]> =
        (0..rows).map(|i| format!("{:016x}", mix(i)).into_bytes().try_into().unwrap()).collect();
    keys.sort_unstable();
    let (mut scratch, mut value, cache) = (RowScratch::default(), Vec::new(), Arc::new(BlockCache::new(1 << 20)));
    let options = SstWriterOptions::default();
    let write = |run: usize| {
        let sink = Sink::default();
        let mut writer =
            SstWriter::new(Box::new(sink.clone()), SstWriterOptions { file_number: run as u64, ..options }).unwrap();
        for (i, key) in keys.iter().enumerate().filter(|(i, _)| mix(*i as u64) as usize % RUNS == run) {
            value.clear();
            let state = |column: usize| match mix((i * COLUMNS + column) as u64) {
                _ if !format.columns().contains(column) => ColumnState::Absent,
                random if column.is_multiple_of(2) => ColumnState::Value(DatumRef::UInt64(random)),
                random => ColumnState::Value(DatumRef::Utf8(&text[random as usize % 4000..][..24])),
            };
            format.rows().encode_with(state, &mut scratch, &mut value).unwrap();
            writer.add(key, Trailer::new(i as u64 + 1, Operation::Put), &value).unwrap();
        }
        writer.finish().unwrap();
        let source = Source(std::mem::take(&mut *sink.0.lock().unwrap()));
        SstFile::open(Arc::new(source), Path::new("speed.sst"), run as u64, cache.clone(), OpenOptions::default())
            .unwrap()
    };
    (0..RUNS).map(write).collect()
}

fn cursors(runs: &[Arc<SstFile>]) -> Vec<LevelCursor> {
    let options = CursorOptions { fill_cache: false, read_ahead: 256 << 10, ..CursorOptions::default() };
    runs.iter().map(|run| LevelCursor::new(vec![run.clone()], options)).collect()
}

/// A job whose output has the groups of its inputs.
fn keep(runs: &[Arc<SstFile>]) {
    let input = JobInput {
        rules: Rules::Rows(None),
        entries: MergingCursor::new(cursors(runs)),
        range_deletes: Arc::new(RangeDeleteSet::default()),
        snapshots: Vec::new(),
        combiner: None,
        lower: None,
        upper: None,
        are_oldest: false,
        writer: SstWriterOptions::default(),
        group: None,
        map: None,
    };
    job::run(input, &mut FixedPartitioner::new(2 << 20), &mut Context::default()).unwrap();
}

/// A job from rows of one format to fragments of several.
fn change(runs: &[Arc<SstFile>], from: &FragmentFormat, to: &[FragmentFormat]) {
    let output = |format: &FragmentFormat| OutputGroup {
        group: Some(Arc::new(Group::new(format.columns().clone(), GroupFormat::Row(format.kind())))),
        making: Making::Reshaped {
            feeds: (0..RUNS).map(|_| Some(from.reshape(format).unwrap())).collect(),
            combiner: format.combiner(),
        },
        fragments: None,
        watch: None,
        range_deletes: Arc::new(RangeDeleteSet::default()),
        are_oldest: false,
        writer: SstWriterOptions::default(),
    };
    let input = ShapedInput {
        sources: cursors(runs),
        splitters: (0..RUNS).map(|_| from.splitter(&to.iter().map(Some).collect::<Vec<_>>())).collect(),
        outputs: to.iter().map(output).collect(),
        snapshots: Vec::new(),
        lower: None,
        upper: None,
    };
    shaped_job::run(input, &mut FixedPartitioner::new(2 << 20), &mut Context::default()).unwrap();
}

/// What is to be run.
struct Chosen {
    rows: u64,
    /// The beginning of the names of cases; all if empty.
    only: String,
    /// As often as it takes to see something if there is none.
    rounds: Option<u32>,
}

impl Chosen {
    /// Runs a case and prints what a row takes.
    fn run(&self, case: &str, mut round: impl FnMut()) {
        if !case.starts_with(&self.only) {
            return;
        }
        let (before, mut rounds) = (cpu_nanoseconds(), 0);
        while self.rounds.map_or(cpu_nanoseconds() - before < PATIENCE, |all| rounds < all) {
            round();
            rounds += 1;
        }
        let spent = (cpu_nanoseconds() - before) as f64;
        println!("{case:<20} {:>8.0} ns of CPU a row", spent / f64::from(rounds) / self.rows as f64);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let chosen = Chosen {
        rows: arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(8_000),
        only: arguments.next().unwrap_or_default(),
        rounds: arguments.next().and_then(|rounds| rounds.parse().ok()),
    };
    let schema = schema();
    let formats = [protobuf(&schema), RowFormat::json(schema.clone()), RowFormat::packed(schema.clone())];
    let packed = |columns: ColumnSet| FragmentFormat::packed(schema.clone(), columns);
    for rows_of in &formats {
        for count in [1, 2, 4] {
            let case = format!("{}-{count}", rows_of.kind());
            if !chosen.only.starts_with(&case) && !case.starts_with(&chosen.only) {
                continue;
            }
            let from = FragmentFormat::new(group(0, count), rows_of);
            let runs = runs(chosen.rows, &from);
            chosen.run(&format!("{case}-keep"), || keep(&runs));
            let halves = [0, 1].map(|half| FragmentFormat::new(group(half, 2 * count), rows_of));
            chosen.run(&format!("{case}-split"), || change(&runs, &from, &halves));
            if rows_of.kind() != RowFormatKind::Packed {
                let to = [packed(from.columns().clone())];
                chosen.run(&format!("{case}-convert"), || change(&runs, &from, &to));
            }
        }
    }
}
