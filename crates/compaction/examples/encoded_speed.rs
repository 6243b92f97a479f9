//! Times the job in the encoded domain beside the job of rows, on the same columnar files in memory, one after the
//! other in turn: `cargo run --release -p mycelium-compaction --example encoded_speed -- [rows [case [rounds
//! [rows|encoded]]]]`, the last to look at one of them with a profiler.
//!
//! A case is `COLUMNS-RUNS`. Columns: `dictionary` (the paper's, LSM-OPD §5.1: one text of 64 bytes, of 1 % of the rows
//! distinct), `texts` (the same, all distinct), `integers` (eight), `mixed` (as lineitem of TPC-H: integers, decimals,
//! dates, short texts, a comment). Runs: `levels` (a run of a tenth of the rows, each newer than one below, over a run
//! of all) and `tiers` (four runs of scattered rows); and, of the jobs that encode rows, `rows` (as `levels`, but the
//! newer ones are rows) and `load` (every second row is a new one). CPU time of the best round is printed, which stands
//! on a busy machine, and whether both jobs gave the same bytes, as they do where the files are cut at the same keys.

#![allow(clippy::unwrap_used)]

mod measuring;

use std::path::Path;
use std::sync::Arc;

use measuring::{Sink, Source, cpu_nanoseconds};
use mycelium_base::hash::mix;
use mycelium_base::{
    ColumnSet, FileNumber, Group, GroupFormat, Operation, RangeDeleteSet, Result, RowFormatKind, Trailer,
};
use mycelium_cache::BlockCache;
use mycelium_compaction::job::{self, JobContext, JobInput, JobOutput, Rules};
use mycelium_compaction::shaped_job::{self, Making, OutputGroup, ShapedInput};
use mycelium_compaction::{FixedPartitioner, GroupCursor, encoded_job};
use mycelium_encoding::{DatumRef, FragmentFormat, PackedLayout, Schema};
use mycelium_merge::MergingCursor;
use mycelium_sst::{CursorOptions, EncodedCursor, OpenOptions, RunCursor, SstFile, SstWriter, SstWriterOptions};
use mycelium_vfs::WritableFile;

/// Blocks of columns, as the engine cuts them: eight times those of rows.
const BLOCK_SIZE: usize = 32 << 10;
const TARGET_SIZE: u64 = 64 << 20;

/// An output: its writer checksums all of its bytes, which are then forgotten.
#[derive(Default)]
struct Forgetful(u64);

impl WritableFile for Forgetful {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
    fn truncate(&mut self, len: u64) -> Result<()> {
        self.0 = len;
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn start_writeback(&mut self) {}
    fn len(&self) -> u64 {
        self.0
    }
}

/// Nothing is older than the inputs.
struct Context {
    schema: Arc<Schema>,
    files: FileNumber,
}

impl JobContext for Context {
    fn create_output(&mut self) -> Result<(FileNumber, Box<dyn WritableFile>)> {
        self.files += 1;
        Ok((self.files, Box::new(Forgetful::default())))
    }
    fn finish_output(&mut self, _file: Box<dyn WritableFile>) -> Result<()> {
        Ok(())
    }
    fn schema(&self) -> Option<Arc<Schema>> {
        Some(self.schema.clone())
    }
    fn is_base(&mut self, _output: usize, _key: &[u8]) -> bool {
        true
    }
    fn is_base_range(&mut self, _output: usize, _start: &[u8], _end: &[u8]) -> bool {
        true
    }
    fn wrote(&mut self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// A kind of table.
struct Table {
    schema: Arc<Schema>,
    group: Arc<Group>,
    layout: Arc<PackedLayout>,
    /// Distinct texts of the columns of text, by column.
    distinct: Vec<u64>,
    rows: u64,
}

impl Table {
    fn new(columns: &str, rows: u64) -> Self {
        let (texts, distinct) = match columns {
            "dictionary" => ("v utf8", vec![0, rows.div_ceil(100)]),
            "texts" => ("v utf8", vec![0, u64::MAX]),
            "integers" => ("a int64, b int64, c int64, d int64, e int32, f int32, g int32, h int32", vec![0; 9]),
            _ => (
                "partkey int64, suppkey int64, quantity int32, price int64, discount int64, tax int64, \
                 returnflag utf8, linestatus utf8, shipdate date32, commitdate date32, receiptdate date32, \
                 instruct utf8, mode utf8, comment utf8",
                vec![0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, 4, 7, u64::MAX],
            ),
        };
        let schema = Arc::new(Schema::parse(&format!("key utf8 not null, {texts}, primary key (key)")).unwrap());
        let columns: ColumnSet = (1..schema.columns().len()).collect();
        let group = Arc::new(Group::new(columns.clone(), GroupFormat::Columnar));
        let layout = Arc::new(PackedLayout::of(schema.clone(), &columns));
        Self { schema, group, layout, distinct, rows }
    }

    fn put_row(&self, number: u64, value: &mut Vec<u8>) {
        let text = |column: usize| {
            let random = mix(number * 31 + column as u64) % self.distinct[column].max(1);
            let len = if self.distinct[column] < 10 { 12 } else { 64 };
            let mut text = format!("{:016x}", mix(random));
            text.extend(std::iter::repeat_n('x', len).skip(16));
            text.truncate(len);
            text
        };
        let texts: Vec<String> = (0..self.distinct.len()).map(text).collect();
        let row: Vec<DatumRef<'_>> = self
            .schema
            .columns()
            .iter()
            .enumerate()
            .map(|(column, described)| {
                let random = mix(number * 77 + column as u64);
                match described.ty.fixed_width() {
                    None => DatumRef::Utf8(&texts[column]),
                    Some(8) => DatumRef::Int64((random % 200_000) as i64),
                    _ if described.ty == mycelium_encoding::ColumnType::Date32 => {
                        DatumRef::Date32(8000 + (random % 2500) as i32)
                    }
                    _ => DatumRef::Int32((random % 50) as i32),
                }
            })
            .collect();
        self.layout.encode_row(&row, value).unwrap();
    }

    /// Where texts are all that there is, 16 bytes as in the paper; else an integer.
    fn key(&self, number: u64) -> Vec<u8> {
        let spread = number * (u64::MAX / self.rows);
        if self.distinct.len() == 2 { format!("{spread:016x}").into_bytes() } else { number.to_be_bytes().to_vec() }
    }

    /// A run of the rows that `is_in` names, in versions of this number, as columns or as rows.
    fn run(&self, version: u64, format: GroupFormat, is_in: impl Fn(u64) -> bool) -> Arc<SstFile> {
        let sink = Sink::default();
        let options = SstWriterOptions { file_number: version, block_size: BLOCK_SIZE, ..SstWriterOptions::default() };
        let writer = SstWriter::new(Box::new(sink.clone()), options).unwrap();
        let mut writer = match format {
            GroupFormat::Columnar => writer.with_columns(self.group.clone(), self.schema.clone()),
            GroupFormat::Row(_) => writer.with_group(None),
        };
        let mut value = Vec::new();
        for number in (0..self.rows).filter(|&number| is_in(number)) {
            value.clear();
            self.put_row(number + version * self.rows, &mut value);
            let key = self.key(number);
            writer.add(&key, Trailer::new(version * self.rows + number + 1, Operation::Put), &value).unwrap();
        }
        writer.finish().unwrap();
        let source = Source(std::mem::take(&mut *sink.0.lock().unwrap()));
        let (cache, options) = (Arc::new(BlockCache::new(64 << 20)), OpenOptions::default());
        SstFile::open(Arc::new(source), Path::new("speed.sst"), version, cache, options).unwrap()
    }

    fn runs(&self, kind: &str) -> Vec<Arc<SstFile>> {
        let (columns, rows) = (GroupFormat::Columnar, GroupFormat::Row(RowFormatKind::Packed));
        let is_tenth = |number| mix(number).is_multiple_of(10);
        match kind {
            "levels" => vec![self.run(2, columns, is_tenth), self.run(1, columns, |_| true)],
            "rows" => vec![self.run(2, rows, is_tenth), self.run(1, columns, |_| true)],
            "load" => vec![self.run(2, rows, |number| number % 2 == 1), self.run(1, columns, |number| number % 2 == 0)],
            _ => (0..4).map(|run| self.run(run + 1, columns, |number| mix(number) % 4 == run)).collect(),
        }
    }

    fn input<C>(&self, entries: C) -> JobInput<'static, C> {
        JobInput {
            rules: Rules::Rows(None),
            entries,
            range_deletes: Arc::new(RangeDeleteSet::default()),
            snapshots: Vec::new(),
            combiner: None,
            lower: None,
            upper: None,
            are_oldest: true,
            writer: SstWriterOptions { block_size: BLOCK_SIZE, ..SstWriterOptions::default() },
            group: Some(self.group.clone()),
            map: None,
        }
    }

    fn compact(&self, runs: &[Arc<SstFile>], is_encoded: bool) -> JobOutput {
        let options = CursorOptions { fill_cache: false, read_ahead: 256 << 10, ..CursorOptions::default() };
        let mut context = Context { schema: self.schema.clone(), files: 0 };
        let mut partitioner = FixedPartitioner::new(TARGET_SIZE);
        let output = if is_encoded {
            let cursor = |run: &Arc<SstFile>| EncodedCursor::new(vec![run.clone()], options, self.layout.clone());
            let entries = MergingCursor::new(runs.iter().map(cursor).collect());
            encoded_job::run(self.input(entries), &mut partitioner, &mut context)
        } else {
            let cursor = |run: &Arc<SstFile>| RunCursor::new(vec![run.clone()], options);
            let entries = MergingCursor::new(runs.iter().map(cursor).collect());
            job::run(self.input(entries), &mut partitioner, &mut context)
        };
        output.unwrap()
    }

    /// Of a run of rows over one of columns.
    fn encode_rows(&self, runs: &[Arc<SstFile>], is_encoded: bool) -> JobOutput {
        let options = CursorOptions { fill_cache: false, read_ahead: 256 << 10, ..CursorOptions::default() };
        let mut context = Context { schema: self.schema.clone(), files: 0 };
        let mut partitioner = FixedPartitioner::new(TARGET_SIZE);
        let values = |run: &Arc<SstFile>| RunCursor::new(vec![run.clone()], options);
        let output = if is_encoded {
            let cells = EncodedCursor::new(vec![runs[1].clone()], options, self.layout.clone());
            let sources = vec![GroupCursor::Values(values(&runs[0])), GroupCursor::Cells(cells)];
            encoded_job::run_shaped(self.shaped_input(sources), &mut partitioner, &mut context)
        } else {
            shaped_job::run(self.shaped_input(runs.iter().map(values).collect()), &mut partitioner, &mut context)
        };
        output.unwrap()
    }

    fn shaped_input<C>(&self, sources: Vec<C>) -> ShapedInput<'static, C> {
        let columnar = FragmentFormat::columnar(self.schema.clone(), self.group.columns.clone());
        let packed = FragmentFormat::packed(self.schema.clone(), self.group.columns.clone());
        let feeds = [&packed, &columnar].map(|source| Some(source.reshape(&columnar).unwrap()));
        let output = OutputGroup {
            group: Some(self.group.clone()),
            making: Making::Reshaped { feeds: feeds.into(), combiner: columnar.combiner() },
            fragments: Some(self.layout.clone()),
            watch: None,
            range_deletes: Arc::new(RangeDeleteSet::default()),
            are_oldest: true,
            writer: SstWriterOptions { block_size: BLOCK_SIZE, ..SstWriterOptions::default() },
        };
        let splitters = sources.iter().map(|_| None).collect();
        ShapedInput { sources, splitters, outputs: vec![output], snapshots: Vec::new(), lower: None, upper: None }
    }
}

/// Runs both jobs in turn and prints what each takes.
fn compare(case: &str, table: &Table, kind: &str, (rounds, only): (u32, &str)) {
    let (runs, has_rows) = (table.runs(kind), ["rows", "load"].contains(&kind));
    let (mut spent, mut entries, mut raw_bytes) = ([u64::MAX; 2], 0, 0);
    let mut checksums: [Vec<u64>; 2] = Default::default();
    for _ in 0..rounds {
        for (way, _) in ["rows", "encoded"].into_iter().enumerate().filter(|(_, name)| name.starts_with(only)) {
            let is_encoded = way == 1;
            let before = cpu_nanoseconds();
            let output = match has_rows {
                true => table.encode_rows(&runs, is_encoded),
                false => table.compact(&runs, is_encoded),
            };
            spent[way] = spent[way].min(cpu_nanoseconds() - before);
            entries = output.entries.entries_in;
            raw_bytes = output.files.iter().map(|(_, file)| file.raw_key_bytes + file.raw_value_bytes).sum();
            let all = if has_rows { output.entries_encoded } else { output.entries.entries_out };
            assert_eq!(output.entries_encoded, if is_encoded { all } else { 0 });
            checksums[way] = output.files.iter().map(|(_, file)| file.checksum).collect();
        }
    }
    let equal = if checksums[0] == checksums[1] { "same bytes" } else { "other bytes" };
    let rate = |nanoseconds: u64| entries as f64 * 1e3 / nanoseconds as f64;
    let cost = |nanoseconds: u64| nanoseconds as f64 / raw_bytes as f64;
    println!(
        "{case:<20} million rows/s {:>6.2} -> {:>6.2}   CPU s/GB {:>6.2} -> {:>6.2}   {equal}",
        rate(spent[0]),
        rate(spent[1]),
        cost(spent[0]),
        cost(spent[1]),
    );
    println!("{case} ratio: {:.2}", spent[0] as f64 / spent[1] as f64);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rows = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(300_000);
    let only = arguments.next().unwrap_or_default();
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let job = arguments.next().unwrap_or_default();
    for columns in ["dictionary", "texts", "integers", "mixed"] {
        for kind in ["levels", "tiers", "rows", "load"] {
            let case = format!("{columns}-{kind}");
            if case.starts_with(&only) {
                let table = Table::new(columns, rows);
                compare(&case, &table, kind, (rounds, &job));
            }
        }
    }
}
