//! The job: sorted inputs in, SSTs out.
//!
//! 1. The merge kernel's [`CompactionStream`] says which entries survive.
//! 2. The partitioner is asked before every new key whether the current output ends there. It ends without being asked
//!    where it holds as much in memory as it may.
//! 3. An output holds the surviving range deletes clipped to its own key interval: from the key where the former output
//!    was cut to the key where this one is, so that outputs never overlap.
//! 4. Bytes written are reported as they accumulate, so that the caller can limit the rate or cancel.
//!
//! A flush is the same job with one memtable as its input. The job is a function of its inputs: it knows no database
//! handle, no lock and no clock but the stopwatch of its own stages.

mod context;
mod outputs;
mod stages;

use std::sync::Arc;
use std::time::Instant;

use mycelium_base::{
    Combiner, Cursor, FileNumber, Group, Operation, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer,
};
use mycelium_encoding::ValueMap;
use mycelium_merge::{CompactionStream, ExactStream, Purge, StreamCounters, Watch, retain_range_deletes};
use mycelium_sst::{Pick, SstSummary, SstWriterOptions, nanoseconds_since};

pub use self::context::JobContext;
pub(crate) use self::outputs::{Content, Outputs};
pub(crate) use self::stages::SAMPLE;
pub use self::stages::StageTimes;
use crate::partitioner::Partitioner;

/// What decides which entries survive.
pub enum Rules<'w> {
    /// Those of rows ([`CompactionStream`]); the watch, if there is one, is told what becomes of them.
    Rows(Option<&'w mut dyn Watch>),
    /// Those of a derived table ([`ExactStream`]): removals are exact. What finds stale entries, if it may find any.
    Derived(Option<&'w mut dyn Purge>),
}

/// What a job is told.
pub struct JobInput<'w, C> {
    /// What decides which entries survive.
    pub rules: Rules<'w>,
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
    /// The column group of inputs and outputs; `None` is whole rows.
    pub group: Option<Arc<Group>>,
    /// What is done to the values of rows and patches that survive, each once.
    pub map: Option<Arc<dyn ValueMap>>,
}

/// What a job made.
#[derive(Debug, Default)]
pub struct JobOutput {
    /// The files, in key order. What is left to sync of them is up to who took them ([`JobContext::finish_output`]).
    pub files: Vec<(FileNumber, SstSummary)>,
    /// What became of the entries.
    pub entries: StreamCounters,
    /// Of the entries handed out, those whose cells went into the outputs without being decoded (see
    /// [`crate::encoded_job`]).
    pub entries_encoded: u64,
    /// Bytes of columns that its outputs held at most until they were complete.
    pub most_held: usize,
    /// Where the time went.
    pub stages: StageTimes,
}

/// Runs a job to its end. On an error the outputs made so far are the caller's to remove.
pub fn run<C: Cursor>(
    input: JobInput<'_, C>,
    partitioner: &mut dyn Partitioner,
    context: &mut dyn JobContext,
) -> Result<JobOutput> {
    run_picking(input, |_| None, partitioner, context)
}

/// As [`run`]; `pick` gives the cells of an input's entry, which then go into the output in place of its value.
pub(crate) fn run_picking<C: Cursor>(
    mut input: JobInput<'_, C>,
    pick: impl Fn(&C) -> Option<Pick<'_>>,
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
        |start, end| context.is_base_range(0, start, end),
    );
    let mut outputs = Outputs::new(input.writer, input.group, range_deletes, input.lower);
    let (entries, entries_encoded, reads) = {
        // The stream asks about keys while the context also creates files: split by a cell, in one thread.
        let context = std::cell::RefCell::new(context);
        let is_base = |key: &[u8]| context.borrow_mut().is_base(0, key);
        let JobInput { rules, entries, snapshots, range_deletes, combiner, are_oldest, .. } = input;
        let upper = input.upper.as_deref();
        let mut mapping = Mapping { map: input.map, outputs: &mut outputs, value: Vec::new(), encoded: 0 };
        let (counters, reads) = match rules {
            Rules::Rows(watch) => {
                let stream = CompactionStream::new(entries, snapshots, range_deletes, combiner, is_base, are_oldest);
                copy(&mut stream.watched_by(watch), pick, upper, partitioner, &mut mapping, &context)?
            }
            Rules::Derived(purge) => {
                let stream = ExactStream::new(entries, snapshots, is_base);
                copy(&mut stream.purged_by(purge), pick, upper, partitioner, &mut mapping, &context)?
            }
        };
        let encoded = mapping.encoded;
        outputs.finish_last(input.upper, *context.borrow_mut())?;
        (counters, encoded, reads)
    };
    let (read, decode) = (reads.read_nanoseconds, reads.decode_nanoseconds);
    let stages = StageTimes { read, decode, ..outputs.stages() };
    let stages = stages.of_whole(nanoseconds_since(started), outputs.waiting());
    Ok(JobOutput { entries, entries_encoded, most_held: outputs.most_held(), stages, files: outputs.files })
}

/// Entries that survive, one after the other, of an input `C`.
trait Survivors<C> {
    fn advance(&mut self) -> Result<bool>;
    fn key(&self) -> &[u8];
    fn trailer(&self) -> Trailer;
    fn value(&self) -> &[u8];
    /// The input, if it stands on the entry and its value is kept as it is.
    fn kept(&self) -> Option<&C>;
    /// What became of the entries, and what was read for them.
    fn counters(&self) -> (StreamCounters, ReadCounters);
}

macro_rules! survivors {
    ([$($generics:tt)*] $stream:ty, |$this:ident| $kept:expr) => {
        impl<$($generics)* C: Cursor, B: FnMut(&[u8]) -> bool> Survivors<C> for $stream {
            #[inline]
            fn advance(&mut self) -> Result<bool> {
                self.advance()
            }
            #[inline]
            fn key(&self) -> &[u8] {
                self.key()
            }
            #[inline]
            fn trailer(&self) -> Trailer {
                self.trailer()
            }
            #[inline]
            fn value(&self) -> &[u8] {
                self.value()
            }
            #[inline]
            fn kept(&self) -> Option<&C> {
                let $this = self;
                $kept
            }
            fn counters(&self) -> (StreamCounters, ReadCounters) {
                let mut reads = ReadCounters::default();
                self.input().add_counters(&mut reads);
                (self.counters(), reads)
            }
        }
    };
}

survivors!(['w,] CompactionStream<'w, C, B>, |stream| stream.kept());
survivors!(['p,] ExactStream<'p, C, B>, |_stream| None);

/// Moves the stream's entries into the outputs.
fn copy<C, S: Survivors<C>>(
    stream: &mut S,
    pick: impl Fn(&C) -> Option<Pick<'_>>,
    upper: Option<&[u8]>,
    partitioner: &mut dyn Partitioner,
    mapping: &mut Mapping<'_>,
    context: &std::cell::RefCell<&mut dyn JobContext>,
) -> Result<(StreamCounters, ReadCounters)> {
    loop {
        if !stream.advance()? || upper.is_some_and(|upper| stream.key() >= upper) {
            return Ok(stream.counters());
        }
        if let Some(size) = mapping.outputs.size_before(stream.key(), context)?
            && ends_before(partitioner, stream.key(), size, mapping.outputs.is_full())
        {
            mapping.outputs.finish_current(Some(stream.key().to_vec()), *context.borrow_mut())?;
        }
        match stream.kept().and_then(&pick) {
            Some(pick) if mapping.outputs.takes_cells(context)? => {
                mapping.add_cells(stream.key(), stream.trailer(), pick, context)?
            }
            _ => mapping.add(stream.key(), stream.trailer(), stream.value(), context)?,
        }
    }
}

/// Whether an output of `size` bytes ends before this key: it is full, or the partitioner says so.
#[inline]
pub(crate) fn ends_before(partitioner: &mut dyn Partitioner, key: &[u8], size: u64, is_full: bool) -> bool {
    if is_full {
        partitioner.was_cut(key);
    }
    is_full || partitioner.should_cut(key, size)
}

/// Outputs, and what is done to values before they get there.
struct Mapping<'o> {
    map: Option<Arc<dyn ValueMap>>,
    outputs: &'o mut Outputs,
    /// The value mapped last.
    value: Vec<u8>,
    /// Entries whose cells went through as they are.
    encoded: u64,
}

impl Mapping<'_> {
    #[inline]
    fn add(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        context: &std::cell::RefCell<&mut dyn JobContext>,
    ) -> Result<()> {
        let value = match &self.map {
            Some(map) if matches!(trailer.operation(), Operation::Put | Operation::Patch) => {
                self.value.clear();
                map.map(value, &mut self.value)?;
                &self.value
            }
            _ => value,
        };
        self.outputs.add(key, trailer, Content::Value(value), context)
    }

    #[inline]
    fn add_cells(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        pick: Pick<'_>,
        context: &std::cell::RefCell<&mut dyn JobContext>,
    ) -> Result<()> {
        debug_assert!(self.map.is_none(), "values that are mapped must be looked at");
        self.encoded += 1;
        self.outputs.add(key, trailer, Content::Cells(pick), context)
    }
}
