//! The job: sorted inputs in, SSTs out.
//!
//! 1. The merge kernel's [`CompactionStream`] says which entries survive.
//! 2. The partitioner is asked before every new key whether the current output ends there.
//! 3. An output holds the surviving range deletes clipped to its own key interval: from the key where the former output
//!    was cut to the key where this one is, so that outputs never overlap.
//! 4. Bytes written are reported as they accumulate, so that the caller can limit the rate or cancel.
//!
//! A flush is the same job with one memtable as its input. The job is a function of its inputs: it knows no database
//! handle, no lock and no clock but the stopwatch of its own stages.

use std::sync::Arc;
use std::time::Instant;

use mycelium_base::{
    Combiner, Cursor, FileNumber, RangeDelete, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer,
};
use mycelium_merge::{CompactionStream, StreamCounters, retain_range_deletes};
use mycelium_sst::{SstSummary, SstWriter, SstWriterOptions};
use mycelium_vfs::WritableFile;

use crate::partitioner::Partitioner;

/// What a job is told.
pub struct JobInput<C> {
    /// All entries of the inputs, merged; unpositioned.
    pub entries: C,
    /// All range deletes of the inputs.
    pub range_deletes: Arc<RangeDeleteSet>,
    /// Live snapshots, ascending.
    pub snapshots: Vec<SequenceNumber>,
    /// How the table folds patches and merge operands.
    pub combiner: Option<Arc<dyn Combiner>>,
    /// The first key of this job's part; `None` is the first of the inputs.
    pub lower: Option<Vec<u8>>,
    /// The key before which this job's part ends.
    pub upper: Option<Vec<u8>>,
    /// Whether no place older than the inputs can hold a key of theirs: their rows need no sequence numbers any more.
    pub are_oldest: bool,
    /// How outputs are written; the file number is filled in for each.
    pub writer: SstWriterOptions,
}

/// What a job asks of its surroundings.
pub trait JobContext {
    /// Creates the next output file.
    fn create_output(&mut self) -> Result<(FileNumber, Box<dyn WritableFile>)>;
    /// Whether no place older than the inputs can hold `key`. Asked with ascending keys.
    fn is_base(&mut self, key: &[u8]) -> bool;
    /// Whether no place older than the inputs can hold a key of `[start, end)`.
    fn is_base_range(&mut self, start: &[u8], end: &[u8]) -> bool;
    /// Told of about every 256 KiB written; may wait to limit the rate, or fail to cancel the job.
    fn wrote(&mut self, bytes: u64) -> Result<()>;
}

/// Nanoseconds by stage. Encoding is estimated from every 64th entry, decoding from every eighth block; what is done per block
/// of an output, or more rarely, is measured; merging is what remains of the whole.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StageTimes {
    /// Reading the inputs' blocks from the disk.
    pub read: u64,
    /// Verifying, decompressing and opening them.
    pub decode: u64,
    /// Decoding entries, merging them, and deciding and folding what survives.
    pub merge: u64,
    /// Laying entries out in blocks and checksumming these.
    pub encode: u64,
    /// Compressing blocks.
    pub compress: u64,
    /// Building filters.
    pub filter: u64,
    /// The whole-file checksum, appends, and the sync of each output.
    pub write: u64,
    /// The whole job, waits for the rate limit included.
    pub total: u64,
}

impl std::ops::AddAssign for StageTimes {
    fn add_assign(&mut self, other: Self) {
        self.read += other.read;
        self.decode += other.decode;
        self.merge += other.merge;
        self.encode += other.encode;
        self.compress += other.compress;
        self.filter += other.filter;
        self.write += other.write;
        self.total += other.total;
    }
}

/// What a job made.
#[derive(Debug, Default)]
pub struct JobOutput {
    /// The files, in key order, synced; the directory is not.
    pub files: Vec<(FileNumber, SstSummary)>,
    /// What became of the entries.
    pub entries: StreamCounters,
    /// Where the time went.
    pub stages: StageTimes,
}

const SAMPLE: u32 = 64;
const REPORT_BYTES: u64 = 256 << 10;

/// Runs a job to its end. On an error the outputs made so far are the caller's to remove.
pub fn run<C: Cursor>(
    mut input: JobInput<C>,
    partitioner: &mut dyn Partitioner,
    context: &mut dyn JobContext,
) -> Result<JobOutput> {
    let started = Instant::now();
    match &input.lower {
        Some(lower) => input.entries.seek(lower, Trailer::NEWEST)?,
        None => input.entries.seek_to_first()?,
    }
    let range_deletes = retain_range_deletes(
        &input.range_deletes,
        &input.snapshots,
        input.lower.as_deref(),
        input.upper.as_deref(),
        |start, end| context.is_base_range(start, end),
    );
    let mut outputs = Outputs {
        options: input.writer,
        range_deletes,
        interval_start: input.lower,
        writer: None,
        reported: 0,
        files: Vec::new(),
        elapsed: 0,
        waiting: 0,
        stages: StageTimes::default(),
    };
    let entries = {
        // The stream asks about keys while the context also creates files: split by a cell, in one thread.
        let context = std::cell::RefCell::new(context);
        let is_base = |key: &[u8]| context.borrow_mut().is_base(key);
        let JobInput { entries, snapshots, range_deletes, combiner, are_oldest, .. } = input;
        let mut stream = CompactionStream::new(entries, snapshots, range_deletes, combiner, is_base, are_oldest);
        copy(&mut stream, input.upper.as_deref(), partitioner, &mut outputs, &context)?;
        let counters = stream.counters();
        let mut reads = ReadCounters::default();
        stream.input().add_counters(&mut reads);
        outputs.stages.read = reads.read_nanoseconds;
        outputs.stages.decode = reads.decode_nanoseconds;
        outputs.finish_last(input.upper, *context.borrow_mut())?;
        counters
    };
    Ok(JobOutput { entries, stages: outputs.stages_of(nanoseconds_since(started)), files: outputs.files })
}

/// Moves the stream's entries into the outputs.
fn copy<C: Cursor, B: FnMut(&[u8]) -> bool>(
    stream: &mut CompactionStream<C, B>,
    upper: Option<&[u8]>,
    partitioner: &mut dyn Partitioner,
    outputs: &mut Outputs,
    context: &std::cell::RefCell<&mut dyn JobContext>,
) -> Result<()> {
    let mut until_sample = SAMPLE;
    loop {
        until_sample -= 1;
        let sampled = until_sample == 0;
        if !stream.advance()? || upper.is_some_and(|upper| stream.key() >= upper) {
            return Ok(());
        }
        let before = sampled.then(|| (Instant::now(), outputs.measured()));
        outputs.add(stream.key(), stream.trailer(), stream.value(), partitioner, context)?;
        if let Some((before, measured)) = before {
            let entry = nanoseconds_since(before).saturating_sub(outputs.measured() - measured);
            outputs.stages.encode += entry * u64::from(SAMPLE);
            until_sample = SAMPLE;
        }
    }
}

/// The outputs of a job: at most one open at a time.
struct Outputs {
    options: SstWriterOptions,
    /// Surviving range deletes within the job's bounds, in key order.
    range_deletes: Vec<RangeDelete>,
    /// Where the current output's key interval begins.
    interval_start: Option<Vec<u8>>,
    writer: Option<(FileNumber, SstWriter)>,
    /// Bytes of the current output already reported.
    reported: u64,
    files: Vec<(FileNumber, SstSummary)>,
    /// Nanoseconds of outputs already finished and of `waiting`.
    elapsed: u64,
    /// Nanoseconds spent in the context: creating files, waiting for the rate limit.
    waiting: u64,
    stages: StageTimes,
}

fn nanoseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Outputs {
    /// Nanoseconds measured so far of what is not done entry by entry. Never decreases.
    fn measured(&self) -> u64 {
        self.elapsed + self.writer.as_ref().map_or(0, |(_, writer)| writer.timings().total())
    }

    /// The stages of a job that took `total`. Estimates share at most what the measured stages leave of it: a sample that
    /// another process interrupted counts many times over.
    fn stages_of(&self, total: u64) -> StageTimes {
        let s = self.stages;
        let left = total.saturating_sub(s.read + s.compress + s.filter + s.write + self.waiting);
        let shrink = (left as f64 / (s.decode + s.encode).max(1) as f64).min(1.0);
        let [decode, encode] = [s.decode, s.encode].map(|estimate| (estimate as f64 * shrink) as u64);
        StageTimes { decode, encode, merge: left.saturating_sub(decode + encode), total, ..s }
    }

    /// Tells the context of bytes written.
    fn report(&mut self, bytes: u64, context: &mut dyn JobContext) -> Result<()> {
        let started = Instant::now();
        context.wrote(bytes)?;
        self.wait(started);
        Ok(())
    }

    fn wait(&mut self, since: Instant) {
        let nanoseconds = nanoseconds_since(since);
        self.elapsed += nanoseconds;
        self.waiting += nanoseconds;
    }

    #[inline]
    fn add(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        partitioner: &mut dyn Partitioner,
        context: &std::cell::RefCell<&mut dyn JobContext>,
    ) -> Result<()> {
        if let Some((_, writer)) = &self.writer {
            let size = writer.estimated_size();
            if writer.last_key() != Some(key) && partitioner.should_cut(key, size) {
                self.finish_current(Some(key.to_vec()), *context.borrow_mut())?;
            } else if size >= self.reported + REPORT_BYTES {
                self.report(size - self.reported, *context.borrow_mut())?;
                self.reported = size;
            }
        }
        let writer = match &mut self.writer {
            Some((_, writer)) => writer,
            None => self.open(*context.borrow_mut())?,
        };
        writer.add(key, trailer, value)
    }

    fn open(&mut self, context: &mut dyn JobContext) -> Result<&mut SstWriter> {
        let started = Instant::now();
        let (number, file) = context.create_output()?;
        self.wait(started);
        let options = SstWriterOptions { file_number: number, ..self.options };
        self.reported = 0;
        Ok(&mut self.writer.insert((number, SstWriter::new(file, options)?)).1)
    }

    /// Ends the current output before `end`; the next one begins there.
    fn finish_current(&mut self, end: Option<Vec<u8>>, context: &mut dyn JobContext) -> Result<()> {
        let Some((number, mut writer)) = self.writer.take() else { return Ok(()) };
        let (before, started) = (writer.timings().total(), Instant::now());
        for delete in clip(&self.range_deletes, self.interval_start.as_deref(), end.as_deref()) {
            writer.add_range_delete(&delete)?;
        }
        let summary = writer.finish()?;
        self.elapsed += before + nanoseconds_since(started);
        self.stages.encode += summary.timings.encode;
        self.stages.compress += summary.timings.compress;
        self.stages.filter += summary.timings.filter;
        self.stages.write += summary.timings.write;
        self.report(summary.size.saturating_sub(self.reported), context)?;
        self.files.push((number, summary));
        self.interval_start = end;
        Ok(())
    }

    /// Ends the last output; range deletes without any entry get one of their own.
    fn finish_last(&mut self, upper: Option<Vec<u8>>, context: &mut dyn JobContext) -> Result<()> {
        let left = clip(&self.range_deletes, self.interval_start.as_deref(), upper.as_deref());
        if self.writer.is_none() && left.is_empty() {
            return Ok(());
        }
        if self.writer.is_none() {
            self.open(context)?;
        }
        self.finish_current(upper, context)
    }
}

/// The parts of `deletes` within `[start, end)`.
fn clip(deletes: &[RangeDelete], start: Option<&[u8]>, end: Option<&[u8]>) -> Vec<RangeDelete> {
    deletes
        .iter()
        .filter_map(|delete| {
            let from = start.map_or(delete.start.as_slice(), |start| start.max(&delete.start));
            let to = end.map_or(delete.end.as_slice(), |end| end.min(&delete.end));
            (from < to).then(|| RangeDelete { start: from.to_vec(), end: to.to_vec(), sequence: delete.sequence })
        })
        .collect()
}
