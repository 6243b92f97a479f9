//! What the engine's jobs that write files of a table ask of it: flushes, compactions, and what is merged for an index.
//!
//! They differ in five things, which they say when they begin: their priority, what places older than their inputs may
//! hold, what their files say they came from, whether they end with their table, and whether they make way for flushes.
//! The rest is one for all of them:
//!
//! - Files are created, synced and, if the job fails, removed by [`OutputFiles`].
//! - The table says which views want partial aggregates, and what its columns are. A derived table has neither.
//! - What was written counts against the rate limit. A flush goes on while the database is being closed; any other job
//!   ends then.

use std::sync::Arc;

use mycelium_base::{Cursor, FileNumber, Group, Result};
use mycelium_compaction::OlderFiles;
use mycelium_compaction::job::{self, JobContext, JobInput, JobOutput, Rules};
use mycelium_compaction::partitioner::FixedPartitioner;
use mycelium_encoding::Schema;
use mycelium_merge::MergingCursor;
use mycelium_sst::Summarizer;
use mycelium_vfs::WritableFile;

use crate::database::Inner;
use crate::interruption::Interruption;
use crate::options::sizes;
use crate::origin::Birth;
use crate::output_files::{OutputFiles, writer_options};
use crate::rate_limit::WritePriority;
use crate::sync::Mutex;
use crate::table::TableShared;
use crate::thread_clock::thread_cpu_nanoseconds;

/// What places older than the inputs of a job may hold.
pub(crate) enum OlderPlaces<'p> {
    /// Anything.
    Unknown,
    /// Anything but what the inputs remove: every removal names an entry of the inputs, as those of a derived table do
    /// in one generation of memtables.
    NothingRemoved,
    /// Nothing.
    Empty,
    /// By output group: what these files do.
    Files(Vec<OlderFiles<'p>>),
}

/// The surroundings of a job that writes files of one table. See the module.
pub(crate) struct TableJob<'f, 'a, 'p> {
    inner: &'f Inner,
    table: &'f TableShared,
    outputs: &'f Mutex<OutputFiles<'a>>,
    priority: WritePriority,
    older: OlderPlaces<'p>,
    ends_with_table: bool,
    interruption: Interruption,
    interrupted_cpu_nanoseconds: u64,
    birth: Option<Birth>,
}

impl<'f, 'a, 'p> TableJob<'f, 'a, 'p> {
    pub(crate) fn new(
        inner: &'f Inner,
        table: &'f TableShared,
        outputs: &'f Mutex<OutputFiles<'a>>,
        priority: WritePriority,
        older: OlderPlaces<'p>,
    ) -> Self {
        Self {
            inner,
            table,
            outputs,
            priority,
            older,
            ends_with_table: false,
            interruption: Interruption::Never,
            interrupted_cpu_nanoseconds: 0,
            birth: None,
        }
    }

    /// Fails, at the next report of what it wrote, once the table is gone.
    pub(crate) fn ending_with_table(self) -> Self {
        Self { ends_with_table: true, ..self }
    }

    /// What its files say they came from; nothing in a copy.
    pub(crate) fn born(self, birth: Option<Birth>) -> Self {
        Self { birth, ..self }
    }

    /// Makes way for flushes, or not, at its reports of what it wrote.
    pub(crate) fn making_way(self, interruption: Interruption) -> Self {
        Self { interruption, ..self }
    }

    /// What the thread has worked for flushes that the job made way for.
    pub(crate) fn interrupted_cpu_nanoseconds(&self) -> u64 {
        self.interrupted_cpu_nanoseconds
    }

    /// Merges entries of a derived table, by its rules, into files of a level that do not overlap.
    pub(crate) fn merge_derived<C: Cursor>(mut self, sources: Vec<C>, level: usize) -> Result<JobOutput> {
        let options = &self.table.definition.options;
        let input = JobInput {
            rules: Rules::Derived(None),
            entries: MergingCursor::new(sources),
            range_deletes: Arc::default(),
            snapshots: self.inner.snapshots.live(),
            combiner: None,
            lower: None,
            upper: None,
            are_oldest: false,
            writer: writer_options(&self.table.definition, level, None),
            group: None,
            map: None,
        };
        self.birth = Some(Birth::Derived);
        job::run(input, &mut FixedPartitioner::new(sizes(options).target_file_size), &mut self)
    }
}

impl JobContext for TableJob<'_, '_, '_> {
    fn create_output(&mut self) -> Result<(FileNumber, Box<dyn WritableFile>)> {
        self.outputs.lock().create()
    }

    fn finish_output(&mut self, file: Box<dyn WritableFile>) -> Result<()> {
        OutputFiles::finish(self.outputs, file)
    }

    fn summarizers(&mut self, group: Option<&Arc<Group>>) -> Result<Vec<Box<dyn Summarizer>>> {
        self.table.summarizers(group)
    }

    fn origin(&mut self) -> Result<Vec<u8>> {
        self.birth.as_ref().map_or(Ok(Vec::new()), |birth| self.inner.origin_of(self.table.id, birth))
    }

    fn schema(&self) -> Option<Arc<Schema>> {
        self.table.formats.as_ref().map(|formats| formats.schema().clone())
    }

    fn is_base(&mut self, output: usize, key: &[u8]) -> bool {
        match &mut self.older {
            OlderPlaces::Unknown => false,
            OlderPlaces::NothingRemoved | OlderPlaces::Empty => true,
            OlderPlaces::Files(files) => !files[output].may_hold(key),
        }
    }

    fn is_base_range(&mut self, output: usize, start: &[u8], end: &[u8]) -> bool {
        match &self.older {
            OlderPlaces::Unknown | OlderPlaces::NothingRemoved => false,
            OlderPlaces::Empty => true,
            OlderPlaces::Files(files) => !files[output].may_overlap(start, end),
        }
    }

    fn wrote(&mut self, bytes: u64) -> Result<()> {
        if self.priority == WritePriority::Flush {
            self.inner.limit_rate(WritePriority::Flush, bytes);
            return Ok(());
        }
        self.inner.check_writable()?;
        if self.ends_with_table {
            self.table.check_alive()?;
        }
        let before = thread_cpu_nanoseconds();
        self.inner.limit_job(self.interruption, bytes)?;
        self.interrupted_cpu_nanoseconds += thread_cpu_nanoseconds().saturating_sub(before);
        Ok(())
    }
}
