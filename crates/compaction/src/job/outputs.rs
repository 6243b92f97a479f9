//! The output files of a job, of one column group.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use mycelium_base::{Error, FileNumber, Group, GroupFormat, RangeDelete, Result, Trailer};
use mycelium_sst::{Pick, SstSummary, SstWriter, SstWriterOptions, nanoseconds_since};

use super::context::JobContext;
use super::stages::{SAMPLE, StageTimes};

/// Bytes written between two reports.
const REPORT_BYTES: u64 = 256 << 10;

/// What an entry holds besides key and trailer.
#[derive(Clone, Copy)]
pub(crate) enum Content<'c> {
    /// Its value.
    Value(&'c [u8]),
    /// The cells of a row of a columnar block, instead.
    Cells(Pick<'c>),
}

/// The outputs of a job: at most one open at a time.
pub(crate) struct Outputs {
    options: SstWriterOptions,
    group: Option<Arc<Group>>,
    /// Surviving range deletes within the job's bounds, in key order.
    range_deletes: Vec<RangeDelete>,
    /// Where the current output's key interval begins.
    interval_start: Option<Vec<u8>>,
    writer: Option<(FileNumber, SstWriter)>,
    /// Bytes of the current output already reported.
    reported: u64,
    pub(crate) files: Vec<(FileNumber, SstSummary)>,
    /// Bytes of columns that an output held at most.
    most_held: usize,
    /// Nanoseconds of outputs already finished and of `waiting`.
    elapsed: u64,
    /// Nanoseconds spent in the context: creating files, waiting for the rate limit.
    waiting: u64,
    /// Entries until the next one whose encoding is timed.
    until_sample: u32,
    stages: StageTimes,
}

impl Outputs {
    /// No output yet: the first key interval begins at `lower`. `range_deletes` are those that survive.
    pub(crate) fn new(
        options: SstWriterOptions,
        group: Option<Arc<Group>>,
        range_deletes: Vec<RangeDelete>,
        lower: Option<Vec<u8>>,
    ) -> Self {
        Self {
            options,
            group,
            range_deletes,
            interval_start: lower,
            writer: None,
            reported: 0,
            files: Vec::new(),
            most_held: 0,
            elapsed: 0,
            waiting: 0,
            until_sample: SAMPLE,
            stages: StageTimes::default(),
        }
    }

    /// Nanoseconds measured so far of what is not done entry by entry. Never decreases.
    fn measured(&self) -> u64 {
        self.elapsed + self.writer.as_ref().map_or(0, |(_, writer)| writer.timings().total())
    }

    /// What was spent on encoding, compressing, filters and writing so far.
    pub(crate) fn stages(&self) -> StageTimes {
        self.stages
    }

    /// Nanoseconds spent waiting for the rate limit.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Bytes of columns that an output held at most until it was complete.
    pub(crate) fn most_held(&self) -> usize {
        self.most_held
    }

    /// Whether the output being written holds as much as it may.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.writer.as_ref().is_some_and(|(_, writer)| writer.is_full())
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

    /// Bytes of the output being written, if it may end before `key`. The context is told of them where they have
    /// become many.
    #[inline]
    pub(crate) fn size_before(&mut self, key: &[u8], context: &RefCell<&mut dyn JobContext>) -> Result<Option<u64>> {
        let Some((_, writer)) = &self.writer else { return Ok(None) };
        if writer.last_key() == Some(key) {
            return Ok(None);
        }
        let size = writer.estimated_size();
        if size >= self.reported + REPORT_BYTES {
            self.report(size - self.reported, *context.borrow_mut())?;
            self.reported = size;
        }
        Ok(Some(size))
    }

    /// Whether the next entry may come as cells: not where its file gets summaries, which may have been asked for
    /// meanwhile.
    #[inline]
    pub(crate) fn takes_cells(&mut self, context: &RefCell<&mut dyn JobContext>) -> Result<bool> {
        match &self.writer {
            Some((_, writer)) => Ok(writer.takes_cells()),
            None => self.open(*context.borrow_mut()).map(|writer| writer.takes_cells()),
        }
    }

    /// Writes the next entry. Its time is measured of every 64th.
    #[inline]
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        content: Content<'_>,
        context: &RefCell<&mut dyn JobContext>,
    ) -> Result<()> {
        self.until_sample -= 1;
        if self.until_sample > 0 {
            return self.append(key, trailer, content, context);
        }
        self.until_sample = SAMPLE;
        let (started, measured) = (Instant::now(), self.measured());
        self.append(key, trailer, content, context)?;
        let entry = nanoseconds_since(started).saturating_sub(self.measured() - measured);
        self.stages.encode += entry * u64::from(SAMPLE);
        Ok(())
    }

    #[inline]
    fn append(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        content: Content<'_>,
        context: &RefCell<&mut dyn JobContext>,
    ) -> Result<()> {
        let writer = match &mut self.writer {
            Some((_, writer)) => writer,
            None => self.open(*context.borrow_mut())?,
        };
        match content {
            Content::Value(value) => writer.add(key, trailer, value),
            Content::Cells(pick) => writer.add_cells(key, trailer, pick),
        }
    }

    fn open(&mut self, context: &mut dyn JobContext) -> Result<&mut SstWriter> {
        let started = Instant::now();
        let (number, file) = context.create_output()?;
        self.wait(started);
        let summarizers = context.summarizers(self.group.as_ref())?;
        let origin = context.origin()?;
        let options = SstWriterOptions { file_number: number, ..self.options };
        self.reported = 0;
        let writer = SstWriter::new(file, options)?;
        let writer = match self.group.clone() {
            Some(group) if group.format == GroupFormat::Columnar => {
                let schema = context.schema().ok_or_else(|| Error::invalid("columnar files need a schema"))?;
                writer.with_columns(group, schema)
            }
            group => writer.with_group(group),
        };
        let writer = writer.with_summarizers(summarizers).with_origin(origin);
        Ok(&mut self.writer.insert((number, writer)).1)
    }

    /// Ends the current output before `end`; the next one begins there.
    pub(crate) fn finish_current(&mut self, end: Option<Vec<u8>>, context: &mut dyn JobContext) -> Result<()> {
        let Some((number, mut writer)) = self.writer.take() else { return Ok(()) };
        self.most_held = self.most_held.max(writer.memory_usage());
        let (before, started) = (writer.timings().total(), Instant::now());
        for delete in clip(&self.range_deletes, self.interval_start.as_deref(), end.as_deref()) {
            writer.add_range_delete(&delete)?;
        }
        let (summary, file) = writer.finish_unsynced()?;
        let finished = Instant::now();
        context.finish_output(file)?;
        self.elapsed += before + nanoseconds_since(started);
        self.stages.encode += summary.timings.encode;
        self.stages.compress += summary.timings.compress;
        self.stages.filter += summary.timings.filter;
        self.stages.write += summary.timings.write + nanoseconds_since(finished);
        self.report(summary.size.saturating_sub(self.reported), context)?;
        self.files.push((number, summary));
        self.interval_start = end;
        Ok(())
    }

    /// Ends the last output; range deletes without any entry get one of their own.
    pub(crate) fn finish_last(&mut self, upper: Option<Vec<u8>>, context: &mut dyn JobContext) -> Result<()> {
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
