//! The job where column groups change: several output groups, or inputs of other groups than the output's (LASER §4.4,
//! Mycelium §3.4). One pass over the inputs, whatever the number of output groups.
//!
//! 1. The inputs' entries are merged. Each goes, reshaped, into the history of its key in every output group that its
//!    source feeds; a patch only into those that it touches. What can be taken apart for all groups at once is
//!    ([`RowSplitter`]).
//! 2. When the key changes, each output group decides over its own history with the rules of [`CompactionStream`]; of
//!    most keys it is one `Put`, which survives. A source feeds a group only if it holds all of its columns, so that
//!    every history is one of whole fragments.
//! 3. A *joined* output group is wider than some of its sources. It is made only where no older fragment of it lies
//!    outside the inputs and no fragment beside them, so that its rows can be put together ([`ColumnMerge`]): one for
//!    each state that the present or a live snapshot sees.
//! 4. A row of a columnar input that goes into a group of the same columns, and is all that there is of its key there,
//!    is a *pick* as in [`crate::encoded_job`]: its cells are taken as they are. So what comes down as rows is encoded
//!    once, and what it meets there is not decoded (LSM-OPD §4.2.1, algorithm 1).
//! 5. Where the largest of the groups' files is to end, or one holds as much in memory as it may, all end that have the
//!    least size; those of narrow groups go on to a later one of these keys. So siblings stay aligned, and each group
//!    has files of its own target size.
//!
//! The entries of one key in one group are held in memory, and the block of its last pick; nothing else.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use mycelium_base::{
    Combiner, Cursor, Error, Group, MAX_SEQUENCE_NUMBER, Operation, RangeDeleteSet, ReadCounters, Result,
    SequenceNumber, Trailer,
};
use mycelium_encoding::row_format::{Cuts, RowScratch, RowSplitter, SplitRow};
use mycelium_encoding::{PackedLayout, Reshape};
use mycelium_merge::{
    ColumnMerge, CompactionStream, FragmentHistory, KeyHistory, MergingCursor, StreamCounters, Watch,
    retain_range_deletes,
};
use mycelium_sst::{ColumnBlock, Pick, SstWriterOptions, nanoseconds_since, write_fragment};

use crate::job::{Content, JobContext, JobOutput, Outputs, SAMPLE, StageTimes, ends_before};
use crate::partitioner::Partitioner;

/// What such a job is told.
pub struct ShapedInput<'w, C> {
    /// The inputs, unpositioned.
    pub sources: Vec<C>,
    /// By source: what takes its values apart for several output groups at once, whose parts they are by number. Of
    /// the others each is reshaped as its [`Making`] says.
    pub splitters: Vec<Option<RowSplitter>>,
    /// The column groups to be written.
    pub outputs: Vec<OutputGroup<'w>>,
    /// Live snapshots, ascending.
    pub snapshots: Vec<SequenceNumber>,
    /// The first key of this job's part; `None` is the first of the inputs.
    pub lower: Option<Vec<u8>>,
    /// The key before which this job's part ends.
    pub upper: Option<Vec<u8>>,
}

/// A column group to be written.
pub struct OutputGroup<'w> {
    /// The group; `None` is whole rows.
    pub group: Option<Arc<Group>>,
    /// How its rows come from the sources' entries.
    pub making: Making,
    /// Of a columnar group, how its fragments are packed.
    pub fragments: Option<Arc<PackedLayout>>,
    /// Is told what becomes of its entries; where rows are joined, only what is made.
    pub watch: Option<&'w mut dyn Watch>,
    /// The range deletes of the sources that feed it.
    pub range_deletes: Arc<RangeDeleteSet>,
    /// Whether no place older than the inputs can hold a key of theirs in a column of the group.
    pub are_oldest: bool,
    /// How its files are written.
    pub writer: SstWriterOptions,
}

/// How the rows of an output group come from the sources' entries.
pub enum Making {
    /// By source: how its values become those of the group; `None` if it does not feed it.
    Reshaped {
        /// By source.
        feeds: Vec<Option<Reshape>>,
        /// How the group folds patches.
        combiner: Arc<dyn Combiner>,
    },
    /// By putting fragments together; the group must be packed or the table's own format, and the inputs its oldest
    /// data.
    Joined {
        /// By source: its kind as `merge` counts them; `None` if it does not feed the group.
        kinds: Vec<Option<usize>>,
        /// Puts the fragments together, packed.
        merge: Box<ColumnMerge>,
        /// From the packed row to the group's format.
        reshape: Reshape,
        /// The range deletes of the sources, by their kind.
        range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    },
}

impl Making {
    /// Whether a source feeds the group.
    pub fn is_fed_by(&self, source: usize) -> bool {
        match self {
            Self::Reshaped { feeds, .. } => feeds.get(source).is_some_and(Option::is_some),
            Self::Joined { kinds, .. } => kinds.get(source).is_some_and(Option::is_some),
        }
    }
}

/// Runs a job to its end, of sources whose values are looked at. On an error the outputs made so far are the caller's
/// to remove. The files of all groups are in [`JobOutput::files`], each naming its group.
pub fn run<C: Cursor>(
    input: ShapedInput<'_, C>,
    partitioner: &mut dyn Partitioner,
    context: &mut dyn JobContext,
) -> Result<JobOutput> {
    run_picking(input, |_| None, partitioner, context)
}

/// As [`run`]; `pick` gives the cells of a source's entry, if the source feeds one group alone, whose columns it has.
pub(crate) fn run_picking<C: Cursor>(
    input: ShapedInput<'_, C>,
    pick: impl Fn(&C) -> Option<Pick<'_>>,
    partitioner: &mut dyn Partitioner,
    context: &mut dyn JobContext,
) -> Result<JobOutput> {
    let started = Instant::now();
    let context = RefCell::new(context);
    let (lower, upper, snapshots) = (input.lower, input.upper, input.snapshots);
    let mut siblings = Vec::with_capacity(input.outputs.len());
    for (number, output) in input.outputs.into_iter().enumerate() {
        siblings.push(Sibling::new(number, output, &snapshots, lower.as_deref(), upper.as_deref(), &context));
    }
    let mut entries = MergingCursor::new(input.sources);
    match &lower {
        Some(lower) => entries.seek(lower, Trailer::NEWEST)?,
        None => entries.seek_to_first()?,
    }
    let splitters = input.splitters;
    let (mut scratch, mut cuts) = (RowScratch::default(), Cuts::default());
    let (mut retrieve, mut until_sample) = (0, SAMPLE);
    while entries.valid() && upper.as_deref().is_none_or(|upper| entries.key() < upper) {
        cut(&mut siblings, entries.key(), partitioner, &context)?;
        for sibling in &mut siblings {
            sibling.begin(entries.key());
        }
        until_sample = if until_sample == 0 { SAMPLE } else { until_sample - 1 };
        loop {
            let sampled = (until_sample == 0).then(Instant::now);
            let (source, trailer) = (entries.source(), entries.trailer());
            let split = match &splitters[source] {
                Some(splitter) if matches!(trailer.operation(), Operation::Put | Operation::Patch) => {
                    splitter.split(entries.value(), &mut cuts)?
                }
                _ => None,
            };
            let cells = entries.current().and_then(&pick);
            for (part, sibling) in siblings.iter_mut().enumerate() {
                let split = split.filter(|split| split.has_part(part)).map(|split| (split, part));
                sibling.take(source, trailer, &Given { entry: &entries, split, cells }, &mut scratch)?;
            }
            retrieve += sampled.map_or(0, nanoseconds_since) * u64::from(SAMPLE);
            entries.next()?;
            if !entries.valid() || !entries.same_key_as_previous() {
                break;
            }
        }
        for sibling in &mut siblings {
            sibling.settle(&context)?;
        }
    }
    let mut reads = ReadCounters::default();
    entries.add_counters(&mut reads);
    let stages = StageTimes {
        retrieve,
        read: reads.read_nanoseconds,
        decode: reads.decode_nanoseconds,
        ..StageTimes::default()
    };
    finish(siblings, upper, started, stages, &context)
}

/// Ends the siblings' files before `key` if the largest is to end there, but for those that are too small.
fn cut(
    siblings: &mut [Sibling<'_, '_>],
    key: &[u8],
    partitioner: &mut dyn Partitioner,
    context: &RefCell<&mut dyn JobContext>,
) -> Result<()> {
    let (mut largest, mut is_full) = (None, false);
    for sibling in siblings.iter_mut() {
        largest = largest.max(sibling.outputs.size_before(key, context)?);
        is_full |= sibling.outputs.is_full();
    }
    if let Some(size) = largest
        && ends_before(partitioner, key, size, is_full)
    {
        let smallest = partitioner.smallest_size().min(size);
        let mut left_open = 0;
        for sibling in siblings {
            match sibling.outputs.size_before(key, context)? {
                Some(size) if size < smallest && !sibling.outputs.is_full() => left_open = left_open.max(size),
                _ => sibling.outputs.finish_current(Some(key.to_vec()), *context.borrow_mut())?,
            }
        }
        partitioner.left_open(left_open);
    }
    Ok(())
}

fn finish(
    siblings: Vec<Sibling<'_, '_>>,
    upper: Option<Vec<u8>>,
    started: Instant,
    stages: StageTimes,
    context: &RefCell<&mut dyn JobContext>,
) -> Result<JobOutput> {
    let mut result = JobOutput { stages, ..JobOutput::default() };
    let mut waiting = 0;
    for mut sibling in siblings {
        result.entries += sibling.counters();
        result.entries_encoded += sibling.encoded;
        sibling.outputs.finish_last(upper.clone(), *context.borrow_mut())?;
        result.stages += sibling.outputs.stages();
        waiting += sibling.outputs.waiting();
        result.most_held += sibling.outputs.most_held();
        result.files.append(&mut sibling.outputs.files);
    }
    result.stages = result.stages.of_whole(nanoseconds_since(started), waiting);
    Ok(result)
}

/// What a sibling is given of an entry.
struct Given<'e, C> {
    /// Stands on it: its value is asked for where it is needed.
    entry: &'e C,
    /// The value, taken apart, and which part is the sibling's.
    split: Option<(SplitRow<'e>, usize)>,
    /// Its cells, if they may be taken as they are.
    cells: Option<Pick<'e>>,
}

/// One output group at work.
struct Sibling<'c, 'w> {
    outputs: Outputs,
    deciding: Deciding<'c, 'w>,
    /// Rows whose cells went through as they are.
    encoded: u64,
}

/// The cells of a row that is the only entry of its key so far, in place of its value.
#[derive(Default)]
struct OnlyCells {
    fragments: Option<Arc<PackedLayout>>,
    /// That of the last row.
    block: Option<Arc<ColumnBlock>>,
    row: Option<usize>,
    value: Vec<u8>,
}

impl OnlyCells {
    fn keep(&mut self, (block, row): Pick<'_>) {
        if !self.block.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, block)) {
            self.block = Some(block.clone());
        }
        self.row = Some(row);
    }

    fn pick(&self) -> Option<Pick<'_>> {
        self.block.as_ref().zip(self.row)
    }

    /// The value, if there are cells.
    fn value(&mut self) -> Result<Option<&[u8]>> {
        let (Some(block), Some(row), Some(fragments)) = (&self.block, self.row, &self.fragments) else {
            return Ok(None);
        };
        self.value.clear();
        write_fragment(fragments, (block, row), &mut self.value)?;
        Ok(Some(&self.value))
    }

    /// The entry is not the only one, or must be looked at: gives it its value.
    fn give_value(&mut self, history: &mut KeyHistory) -> Result<()> {
        if let Some(value) = self.value()? {
            history.set_last(value);
        }
        self.row = None;
        Ok(())
    }
}

type IsBase<'c> = Box<dyn FnMut(&[u8]) -> bool + 'c>;

#[expect(clippy::large_enum_variant, reason = "one per output group")]
enum Deciding<'c, 'w> {
    Stream { feeds: Vec<Option<Reshape>>, stream: CompactionStream<'w, KeyHistory, IsBase<'c>>, cells: OnlyCells },
    Join(Box<Joiner<'w>>),
}

impl<'c, 'w> Sibling<'c, 'w> {
    fn new<'j: 'c>(
        number: usize,
        output: OutputGroup<'w>,
        snapshots: &[SequenceNumber],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        context: &'c RefCell<&'j mut dyn JobContext>,
    ) -> Self {
        let range_deletes = retain_range_deletes(&output.range_deletes, snapshots, lower, upper, |start, end| {
            context.borrow_mut().is_base_range(number, start, end)
        });
        let outputs = Outputs::new(output.writer, output.group, range_deletes, lower.map(<[u8]>::to_vec));
        let deciding = match output.making {
            Making::Reshaped { feeds, combiner } => {
                let is_base: IsBase<'c> = Box::new(move |key| context.borrow_mut().is_base(number, key));
                let stream = CompactionStream::new(
                    KeyHistory::default(),
                    snapshots.to_vec(),
                    output.range_deletes,
                    Some(combiner),
                    is_base,
                    output.are_oldest,
                );
                let cells = OnlyCells { fragments: output.fragments, ..OnlyCells::default() };
                Deciding::Stream { feeds, stream: stream.watched_by(output.watch), cells }
            }
            Making::Joined { kinds, merge, reshape, range_deletes } => Deciding::Join(Box::new(Joiner {
                kinds,
                merge: *merge,
                reshape,
                snapshots: snapshots.to_vec(),
                all_range_deletes: output.range_deletes,
                range_deletes,
                are_oldest: output.are_oldest && output.watch.is_none(),
                watch: output.watch,
                history: FragmentHistory::default(),
                packed: Vec::new(),
                row: Vec::new(),
                scratch: RowScratch::default(),
                counters: StreamCounters::default(),
            })),
        };
        Self { outputs, deciding, encoded: 0 }
    }

    /// The entries of `key` follow.
    fn begin(&mut self, key: &[u8]) {
        match &mut self.deciding {
            Deciding::Stream { stream, cells, .. } => {
                stream.input_mut().begin(key);
                cells.row = None;
            }
            Deciding::Join(joiner) => joiner.history.begin(key),
        }
    }

    /// Takes the next older entry of the key.
    #[inline]
    fn take(
        &mut self,
        source: usize,
        trailer: Trailer,
        given: &Given<'_, impl Cursor>,
        scratch: &mut RowScratch,
    ) -> Result<()> {
        match &mut self.deciding {
            Deciding::Stream { feeds, stream, cells } => {
                let Some(reshape) = &feeds[source] else { return Ok(()) };
                if trailer.operation() == Operation::Put && stream.drops(trailer) {
                    return Ok(());
                }
                let history = stream.input_mut();
                if let Some(pick) = given.cells
                    && history.is_empty()
                    && trailer.operation() == Operation::Put
                    && cells.fragments.is_some()
                {
                    cells.keep(pick);
                    return history.push(trailer, |_| Ok(true));
                }
                cells.give_value(history)?;
                history.push(trailer, |out| match (given.split, trailer.operation()) {
                    (Some((split, part)), _) => Ok(split.append(part, out)),
                    (None, Operation::Put) => reshape.apply_row(given.entry.value(), scratch, out),
                    (None, Operation::Patch) => reshape.apply(given.entry.value(), scratch, out),
                    (None, _) => Ok(true),
                })
            }
            Deciding::Join(joiner) => {
                joiner.take(source, trailer, given.entry.value());
                Ok(())
            }
        }
    }

    /// The key's entries are complete: writes what survives of them.
    fn settle(&mut self, context: &RefCell<&mut dyn JobContext>) -> Result<()> {
        match &mut self.deciding {
            Deciding::Stream { stream, cells, .. } => {
                if let Some((key, trailer, value)) = stream.only_row() {
                    let content = match cells.pick() {
                        Some(pick) if self.outputs.takes_cells(context)? => {
                            self.encoded += 1;
                            Content::Cells(pick)
                        }
                        _ => Content::Value(cells.value()?.unwrap_or(value)),
                    };
                    return self.outputs.add(key, trailer, content, context);
                }
                cells.give_value(stream.input_mut())?;
                stream.restart();
                while stream.advance()? {
                    self.outputs.add(stream.key(), stream.trailer(), Content::Value(stream.value()), context)?;
                }
                Ok(())
            }
            Deciding::Join(joiner) => joiner.settle(&mut self.outputs, context),
        }
    }

    fn counters(&self) -> StreamCounters {
        match &self.deciding {
            Deciding::Stream { stream, .. } => stream.counters(),
            Deciding::Join(joiner) => joiner.counters,
        }
    }
}

/// Puts the rows of one group together from fragments of narrower ones; see step 3 of the module.
struct Joiner<'w> {
    kinds: Vec<Option<usize>>,
    merge: ColumnMerge,
    reshape: Reshape,
    snapshots: Vec<SequenceNumber>,
    /// Those of all sources, as they may be kept.
    all_range_deletes: Arc<RangeDeleteSet>,
    range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    are_oldest: bool,
    watch: Option<&'w mut dyn Watch>,
    history: FragmentHistory,
    packed: Vec<u8>,
    row: Vec<u8>,
    scratch: RowScratch,
    counters: StreamCounters,
}

impl Joiner<'_> {
    fn take(&mut self, source: usize, trailer: Trailer, value: &[u8]) {
        if let Some(kind) = self.kinds[source] {
            self.counters.entries_in += 1;
            self.history.push(kind, trailer, value);
        }
    }

    /// Writes the key's row for every state that differs from the one before: from the newest stripe to the oldest.
    ///
    /// 1. A stripe without entries of its own ends as the one below it.
    /// 2. A row carries the newest sequence number of its stripe; in the oldest stripe of the table's oldest data,
    ///    where no range delete is kept over the key, it needs none, unless derived tables name it by its own: then
    ///    they are told.
    /// 3. Where a stripe ends without a row a `Delete` says so, but for the oldest stripe, below which nothing lies.
    fn settle(&mut self, outputs: &mut Outputs, context: &RefCell<&mut dyn JobContext>) -> Result<()> {
        let mut decided = None;
        let newest: Vec<SequenceNumber> = self.history.entries().map(|(_, trailer, _)| trailer.sequence()).collect();
        for sequence in newest {
            let stripe = self.snapshots.partition_point(|&snapshot| snapshot < sequence);
            if decided.replace(stripe) == Some(stripe) {
                continue;
            }
            let end = self.snapshots.get(stripe).copied().unwrap_or(MAX_SEQUENCE_NUMBER);
            self.packed.clear();
            let trailer = if self.history.join(end, &mut self.merge, &self.range_deletes, &mut self.packed)? {
                let covered = self.all_range_deletes.covering(self.history.shared_key(), MAX_SEQUENCE_NUMBER).is_some();
                Trailer::new(if stripe == 0 && self.are_oldest && !covered { 0 } else { sequence }, Operation::Put)
            } else if stripe > 0 {
                Trailer::new(sequence, Operation::Delete)
            } else {
                continue;
            };
            self.row.clear();
            if trailer.operation() == Operation::Put
                && !self.reshape.apply(&self.packed, &mut self.scratch, &mut self.row)?
            {
                return Err(Error::corruption("a row without columns was put together"));
            }
            if let Some(watch) = self.watch.as_deref_mut().filter(|_| trailer.operation() == Operation::Put) {
                watch.made(self.history.shared_key(), trailer, &self.row)?;
            }
            self.counters.entries_out += 1;
            outputs.add(self.history.shared_key(), trailer, Content::Value(&self.row), context)?;
        }
        Ok(())
    }
}
