//! The files that a job makes: how they are written, and what the manifest records of them; created, made durable, and
//! removed again if the job fails.
//!
//! 1. A file that is complete is being written back already ([`mycelium_sst::SstWriter::finish_unsynced`]). Its sync
//!    waits for the disk and, in the file system, for a commit of the journal. The job goes on meanwhile: only when
//!    more than [`MAX_UNSYNCED`] files wait, the one that has waited longest is synced.
//! 2. [`OutputFiles::sync`] syncs those left, and then their directory. Files whose journal entries one commit has
//!    taken do not wait for another.
//! 3. Only then a manifest edit may name them; once it does, they are kept. Else they are removed when the job ends.
//!
//! As long as there may be such files the directory stays locked, even if the database is closed meanwhile: whoever
//! opens it next gives its own files these numbers.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use mycelium_base::{FileKind, FileNumber, Group, GroupFormat, Result};
use mycelium_compaction::job::StageTimes;
use mycelium_manifest::FileMeta;
use mycelium_sst::{Compression, SstFile, SstSummary, SstWriterOptions};
use mycelium_vfs::{FileLock, WritableFile};

use crate::buffer::buffer_filter_bits;
use crate::database::{Inner, open_sst};
use crate::options::for_level;
use crate::sync::Mutex;
use crate::table::TableDefinition;

/// Files that wait for their sync at most; they are open, and their pages are not all clean yet.
const MAX_UNSYNCED: usize = 4;

/// Creates output files and removes them again if the job fails. See the module.
pub(crate) struct OutputFiles<'a> {
    inner: &'a Inner,
    directory: &'a Path,
    /// Which names the files get.
    kind: FileKind,
    created: Vec<(FileNumber, PathBuf)>,
    /// Complete, the oldest first.
    unsynced: VecDeque<Box<dyn WritableFile>>,
    kept: bool,
    /// Let go when all else is done.
    lock: Option<Arc<dyn FileLock>>,
}

impl<'a> OutputFiles<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self::within(inner, &inner.directory, FileKind::Sst)
    }

    /// Files of another directory, a copy's, with names of this kind.
    pub(crate) fn within(inner: &'a Inner, directory: &'a Path, kind: FileKind) -> Self {
        let lock = inner.held_lock();
        Self { inner, directory, kind, created: Vec::new(), unsynced: VecDeque::new(), kept: false, lock }
    }

    /// The database that the files are of.
    pub(crate) fn inner(&self) -> &'a Inner {
        self.inner
    }

    /// Fails if the job began when the database had been closed.
    pub(crate) fn create(&mut self) -> Result<(FileNumber, Box<dyn WritableFile>)> {
        if self.lock.is_none() && !self.inner.options.read_only {
            self.inner.check_open()?;
        }
        let number = self.inner.core.lock().numbers.allocate();
        let path = self.directory.join(self.kind.name(number));
        let file = self.inner.disk.create(&path)?;
        self.created.push((number, path));
        Ok((number, file))
    }

    /// Takes a file that is complete. Others may create and finish files while an older one is synced.
    pub(crate) fn finish(outputs: &Mutex<Self>, file: Box<dyn WritableFile>) -> Result<()> {
        let oldest = {
            let mut outputs = outputs.lock();
            outputs.unsynced.push_back(file);
            if outputs.unsynced.len() > MAX_UNSYNCED { outputs.unsynced.pop_front() } else { None }
        };
        oldest.map_or(Ok(()), |mut file| file.sync())
    }

    /// Opens a file that is complete, for the job itself to read.
    pub(crate) fn open(&self, meta: &FileMeta) -> Result<Arc<SstFile>> {
        open_sst(&*self.inner.disk, self.directory, &self.inner.cache, meta)
    }

    /// Makes all files durable, but not their names.
    pub(crate) fn sync_files(&mut self) -> Result<()> {
        self.unsynced.drain(..).try_for_each(|mut file| file.sync())
    }

    /// Makes all files of the database's directory durable, and their names; nothing if there are none. Returns what
    /// that took.
    pub(crate) fn sync(&mut self) -> Result<StageTimes> {
        let started = Instant::now();
        self.sync_files()?;
        if !self.created.is_empty() {
            self.inner.sync_directory()?;
        }
        let write = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(StageTimes { write, total: write, ..StageTimes::default() })
    }

    /// Removes a file that is not needed after all.
    pub(crate) fn remove(&mut self, number: FileNumber) {
        if let Some(at) = self.created.iter().position(|(created, _)| *created == number) {
            let (_, path) = self.created.swap_remove(at);
            // What cannot be removed now is an orphan, and goes at the next open.
            drop(self.inner.disk.remove(&path));
        }
    }

    /// The manifest names the files now.
    pub(crate) fn keep(&mut self) {
        debug_assert!(self.unsynced.is_empty(), "files are named that may not survive");
        self.kept = true;
    }
}

impl Drop for OutputFiles<'_> {
    fn drop(&mut self) {
        // After an edit that failed half-way it is unknown whether the manifest names the files: they stay.
        if self.kept || self.inner.is_latched() {
            return;
        }
        for (_, path) in &self.created {
            // What cannot be removed now is an orphan, and goes at the next open.
            drop(self.inner.disk.remove(path));
        }
    }
}

/// The manifest's record of a finished file.
pub(crate) fn file_meta(number: FileNumber, summary: &SstSummary) -> FileMeta {
    FileMeta {
        number,
        size: summary.size,
        checksum: summary.checksum,
        smallest: summary.smallest.clone(),
        largest: summary.largest.clone(),
        largest_exclusive: summary.largest_exclusive,
        min_sequence: summary.min_sequence,
        max_sequence: summary.max_sequence,
        entry_count: summary.entry_count,
        delete_count: summary.delete_count,
        range_delete_count: summary.range_delete_count,
        sequence_override: None,
        group: summary.group.clone(),
        created_at_edit: 0,
    }
}

/// Blocks of columns are so many times as large as those of rows: their cells are found without searching, and a
/// mini-page of few cells would be all header.
const COLUMNAR_BLOCKS: usize = 8;
const MAX_BLOCK_SIZE: usize = 64 << 20;

/// How files of a group of a table are written at a level.
pub(crate) fn writer_options(table: &TableDefinition, level: usize, group: Option<&Group>) -> SstWriterOptions {
    let options = &table.options;
    let is_columnar = group.is_some_and(|group| group.format == GroupFormat::Columnar);
    let factor = if is_columnar { COLUMNAR_BLOCKS } else { 1 };
    SstWriterOptions {
        block_size: (options.block_size_at(level) * factor).min(MAX_BLOCK_SIZE),
        restart_interval: options.restart_interval,
        compression: for_level(&options.compression, level, Compression::None),
        filter_bits_per_key: for_level(&options.filter_bits, level, 10) + buffer_filter_bits(options, level),
        prefixes: table.prefixes(),
        ..SstWriterOptions::default()
    }
}

/// Marks as the properties of files have them: only if they tell something.
pub(crate) fn known_marks(marks: u64) -> Option<u64> {
    (marks != u64::MAX).then_some(marks)
}
