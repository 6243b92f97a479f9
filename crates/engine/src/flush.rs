//! Flush: a generation of memtables becomes level-0 files.
//!
//! 1. Take the oldest sealed generation. Generations are flushed in order, one at a time.
//! 2. Write one SST per memtable (the compaction job with one input), synced, then sync the directory. What the flush
//!    of a table drops leaves the table's indexes in theirs (index/watch.rs).
//! 3. One manifest edit adds all of them and moves the oldest needed log segment past the generation's, whose last
//!    sequence number it keeps: a batch across tables is in the files of all its tables or in none.
//! 4. Put the files into the tables' states in place of the memtables; archive or remove the log segment
//!    (archive/store.rs).

use std::sync::Arc;
use std::time::{Duration, Instant};

use mycelium_base::{Cursor, FileNumber, GroupFormat, Result, TableId};
use mycelium_compaction::job::{self, JobInput, JobOutput, Rules};
use mycelium_compaction::partitioner::FixedPartitioner;
use mycelium_encoding::row_format::RowScratch;
use mycelium_manifest::{RunPlace, VersionEdit};
use mycelium_memtable::Memtable;
use mycelium_merge::{MergingCursor, Watch};
use mycelium_sst::SstSummary;

use crate::core::Generation;
use crate::database::Inner;
use crate::events::Event;
use crate::index::{DerivedFile, IndexWatch, StagedCursor, StagedRemovals, write_derived};
use crate::origin::Birth;
use crate::output_files::{OutputFiles, file_meta, known_marks, writer_options};
use crate::rate_limit::WritePriority;
use crate::sources::DerivedSource;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use crate::table::TableShared;
use crate::table_job::{OlderPlaces, TableJob};
use crate::traces::{TalliedEntries, WriteTally};
use crate::tree::OpenFile;
use crate::write::Writer;

/// What became of a memtable, or of what leaves an index beside it.
pub(crate) struct Flushed {
    pub(crate) table: TableId,
    memtable: Option<Arc<Memtable>>,
    pub(crate) output: JobOutput,
}

/// What became of a generation.
#[derive(Default)]
pub(crate) struct WrittenGeneration {
    pub(crate) flushed: Vec<Flushed>,
    /// What was written to each table.
    tallies: Vec<(Arc<TableShared>, WriteTally)>,
}

/// The bytes of all files.
fn bytes_of(flushed: &[Flushed]) -> u64 {
    flushed.iter().flat_map(|flushed| &flushed.output.files).map(|(_, summary)| summary.size).sum()
}

impl Inner {
    /// Writes all memtables to level 0 and returns when the files are visible, and the log is archived if it can be.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.check_writable()?;
        {
            let mut writer = self.commits.writer.lock();
            self.wait_for_flush(&mut writer)?;
            self.seal_generation(&mut writer)?;
        }
        self.wait_for_flushes()?;
        self.wait_for_archive()
    }

    /// As [`Inner::flush_all`], with the commit lock held throughout: no memtable holds anything when it returns.
    pub(crate) fn empty_memtables(&self, writer: &mut MutexGuard<'_, Writer>) -> Result<()> {
        self.wait_for_flush(writer)?;
        self.seal_generation(writer)?;
        self.wait_for_flush(writer)
    }

    /// Flushes the oldest generation, if there is one and no other thread is at it.
    pub(crate) fn flush_oldest(&self) -> Result<bool> {
        let generation = {
            let mut core = self.core.lock();
            if core.flushing {
                return Ok(false);
            }
            let Some(generation) = core.generations.front().cloned() else { return Ok(false) };
            core.flushing = true;
            core.note_ahead_of_building();
            generation
        };
        let result = self.flush_generation(&generation);
        self.end_job(|core| core.flushing = false);
        result.map(|()| true)
    }

    /// Flushes what is sealed, and waits for the thread that is at some of it, also while the database is being closed.
    pub(crate) fn flush_sealed(&self) -> Result<()> {
        while !self.core.lock().generations.is_empty() {
            self.check_unlatched()?;
            if !self.flush_oldest()? {
                self.wait_for_progress(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    fn flush_generation(&self, generation: &Generation) -> Result<()> {
        let started = Instant::now();
        let memory_bytes = generation.memtables.iter().map(|(_, memtable)| memtable.memory_usage()).sum();
        self.emit(|| Event::FlushBegin { memory_bytes });
        let outputs = Mutex::new(OutputFiles::new(self));
        let birth = Birth::Flushed { next_log: generation.next_log, last_sequence: generation.last_sequence };
        let WrittenGeneration { flushed, tallies } =
            self.write_generation(&generation.memtables, Some(&birth), &outputs)?;
        self.counters.add_flush_stages(outputs.lock().sync()?);
        self.install_flush(generation, &flushed, &mut outputs.lock())?;
        for (table, tally) in &tallies {
            if let Some(traces) = &table.traces {
                traces.add_writes(tally, table.state.load().tree.version.last_level().unwrap_or_default());
            }
        }
        if let Some(log) = &generation.log {
            self.retire_segment(log);
        }
        for flushed in &flushed {
            self.counters.add_flush_stages(flushed.output.stages);
        }
        self.emit(|| Event::FlushEnd {
            files: flushed.iter().flat_map(|f| f.output.files.iter().map(|(n, _)| (f.table, *n))).collect(),
            bytes: bytes_of(&flushed),
            seconds: started.elapsed().as_secs_f64(),
        });
        Ok(())
    }

    /// Writes memtables of one generation, ascending by table, as level-0 files. What leaves a table leaves its
    /// indexes: their memtables come later, as their ids are higher. `birth` is what the files say they came from.
    pub(crate) fn write_generation<'a>(
        &'a self,
        memtables: &[(TableId, Arc<Memtable>)],
        birth: Option<&Birth>,
        outputs: &Mutex<OutputFiles<'a>>,
    ) -> Result<WrittenGeneration> {
        let mut written = WrittenGeneration::default();
        let mut removals = StagedRemovals::default();
        for (id, memtable) in memtables {
            let Some(table) = self.core.lock().tables.get(id).cloned() else { continue };
            let output = if table.index.is_some() {
                let removed = removals.staged.extract_if(.., |(derived, _)| derived == id);
                let removed = removed.map(|(_, staged)| staged);
                self.write_derived_memtable(&table, memtable, removed, birth, outputs)?
            } else {
                let mut watch = self.flush_watch(&table, outputs)?;
                let mut tally = WriteTally::default();
                let output = self.write_tallied(&table, memtable, &mut tally, &mut watch, birth, outputs)?;
                let StagedRemovals { staged, spilled } = watch.into_staged()?;
                removals.staged.extend(staged);
                removals.spilled.extend(self.unite_spills(spilled, WritePriority::Flush, outputs)?);
                written.tallies.push((table, tally));
                output
            };
            written.flushed.push(Flushed { table: *id, memtable: Some(memtable.clone()), output });
        }
        let StagedRemovals { staged, mut spilled } = removals;
        for (id, entries) in staged {
            let table = self.core.lock().tables.get(&id).cloned();
            spilled.extend(table.map(|table| write_derived(&table, entries, outputs)).transpose()?);
        }
        // Newer than the files of the memtables, whose entries they remove.
        for DerivedFile { table, number, summary } in spilled {
            let output = JobOutput { files: vec![(number, summary)], ..JobOutput::default() };
            written.flushed.push(Flushed { table, memtable: None, output });
        }
        Ok(written)
    }

    /// Feeds a table's indexes with what the flush of a memtable drops and makes.
    fn flush_watch<'f, 'a>(
        &self,
        table: &TableShared,
        outputs: &'f Mutex<OutputFiles<'a>>,
    ) -> Result<IndexWatch<'f, 'a>> {
        let state = table.state.load_full();
        let mut indexes = Vec::with_capacity(state.indexes.len());
        for index in state.indexes.iter() {
            let formats = table.typed_formats()?;
            let deriver = index.index.source.deriver(formats.for_transformers(), &formats.whole_group())?;
            indexes.push((index.clone(), deriver));
        }
        Ok(IndexWatch::new(outputs, self.staging_budget(), indexes, None))
    }

    /// Writes the memtable of an index with what leaves the index in the same flush.
    fn write_derived_memtable(
        &self,
        table: &TableShared,
        memtable: &Arc<Memtable>,
        removed: impl Iterator<Item = StagedCursor>,
        birth: Option<&Birth>,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<JobOutput> {
        let mut sources = vec![DerivedSource::Memtable(memtable.cursor())];
        sources.extend(removed.map(DerivedSource::Staged));
        let mut input = self.flush_input(table, memtable, MergingCursor::new(sources));
        input.rules = Rules::Derived(None);
        self.run_flush(table, input, OlderPlaces::NothingRemoved, birth, outputs)
    }

    /// Writes a memtable; what is written of a typed table goes into `tally`.
    fn write_tallied(
        &self,
        table: &TableShared,
        memtable: &Arc<Memtable>,
        tally: &mut WriteTally,
        watch: &mut IndexWatch<'_, '_>,
        birth: Option<&Birth>,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<JobOutput> {
        let Some(formats) = &table.formats else {
            return self.write_entries(table, memtable, memtable.cursor(), None, birth, outputs);
        };
        let (entries, rows) = (memtable.cursor(), formats.rows());
        tally.range_deletes = memtable.range_delete_list().len() as u64;
        let entries = TalliedEntries { entries, rows, tally, scratch: RowScratch::default() };
        let watch = (!watch.is_empty()).then_some(watch as &mut dyn Watch);
        self.write_entries(table, memtable, entries, watch, birth, outputs)
    }

    fn write_entries(
        &self,
        table: &TableShared,
        memtable: &Arc<Memtable>,
        entries: impl Cursor,
        watch: Option<&mut dyn Watch>,
        birth: Option<&Birth>,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<JobOutput> {
        let mut input = JobInput { rules: Rules::Rows(watch), ..self.flush_input(table, memtable, entries) };
        input.writer.marks = known_marks(memtable.marks());
        self.run_flush(table, input, OlderPlaces::Unknown, birth, outputs)
    }

    /// A flush makes one file, whatever its size: level-0 runs are single files.
    fn run_flush(
        &self,
        table: &TableShared,
        input: JobInput<'_, impl Cursor>,
        older: OlderPlaces<'_>,
        birth: Option<&Birth>,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<JobOutput> {
        let mut context = TableJob::new(self, table, outputs, WritePriority::Flush, older).born(birth.cloned());
        job::run(input, &mut FixedPartitioner::new(u64::MAX), &mut context)
    }

    fn flush_input<'w, C>(&self, table: &TableShared, memtable: &Memtable, entries: C) -> JobInput<'w, C> {
        // Where level 0 is columnar, the flush encodes (LSM-OPD §3).
        let top = table.shape.load().layout.level(0).groups.first().cloned();
        let group = top.filter(|group| group.format == GroupFormat::Columnar).map(Arc::new);
        JobInput {
            rules: Rules::Rows(None),
            entries,
            range_deletes: memtable.range_deletes(),
            snapshots: self.snapshots.live(),
            combiner: table.combiner.clone(),
            lower: None,
            upper: None,
            are_oldest: false,
            writer: writer_options(&table.definition, 0, group.as_deref()),
            group,
            map: None,
        }
    }

    fn install_flush(&self, generation: &Generation, flushed: &[Flushed], outputs: &mut OutputFiles<'_>) -> Result<()> {
        let mut manifest = self.manifest()?;
        let mut edit = VersionEdit {
            oldest_wal: Some(generation.next_log),
            // The log that goes had all numbers; the files have those of tables that there still are.
            last_sequence: Some(generation.last_sequence),
            ..VersionEdit::default()
        };
        for Flushed { table, output, .. } in flushed {
            if self.core.lock().tables.contains_key(table) {
                for (number, summary) in &output.files {
                    edit.add_file(*table, 0, RunPlace::Newest, Arc::new(file_meta(*number, summary)));
                }
            }
        }
        let mut opened = Vec::new();
        for Flushed { output, .. } in flushed {
            opened.extend(self.open_outputs(output.files.iter())?);
        }
        self.trim_with_flush(&manifest, &mut edit);
        let before = self.trees_that_lose_files(&edit);
        let memtables: Vec<_> =
            flushed.iter().filter_map(|f| f.memtable.clone().map(|memtable| (f.table, memtable))).collect();
        let result = self.apply_edit(&mut manifest, edit, &opened, &memtables, |core| {
            // Before anybody who waits for the flush can know that it is over.
            self.counters.flush_bytes.fetch_add(bytes_of(flushed), Ordering::Relaxed);
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
            core.generations.pop_front();
            if core.generations.is_empty() {
                self.sealed_bytes.store(0, Ordering::Relaxed);
            }
        });
        self.count_invalidated(&before);
        // An edit whose sync failed may survive: the files that it names must stay.
        if result.is_ok() || manifest.is_poisoned() {
            outputs.keep();
        }
        result
    }

    /// Opens files just written, by number; they enter a tree with the edit that adds them.
    pub(crate) fn open_outputs<'s>(
        &self,
        files: impl Iterator<Item = &'s (FileNumber, SstSummary)>,
    ) -> Result<Vec<Arc<OpenFile>>> {
        files.map(|(number, summary)| self.open_file(&Arc::new(file_meta(*number, summary)))).collect()
    }
}
