//! Bulk load: sorted rows become SSTs without passing the log or a memtable.
//!
//! 1. Write the rows into SSTs of the table's file size, all with sequence number 0, synced; sync the directory. No
//!    lock is held, and nothing is visible.
//! 2. Take the commit lock. Memtables that hold a key of the ingested interval are flushed, since what they hold is
//!    older and must end up below; entries outside of it may stay.
//! 3. Sync the log: the ingestion is durable at once, so everything committed before it has to be, or a crash could
//!    keep the later and lose the earlier.
//! 4. Take one sequence number for all rows; the manifest records it as each file's `sequence_override`. Every file
//!    goes to the deepest level such that neither that level nor a younger one overlaps it, or to level 0 as the newest
//!    run. A level that a running compaction writes to within the file's range is passed over, and compactions that
//!    would write there are kept away until the files are in place. What the rows derive for indexes was sorted and
//!    written beside them, and goes to level 0 of the derived tables. If other indexes have come than it was derived
//!    for, or one became unique, the lock is given back to derive for them, and to compare rows (index/load.rs).
//! 5. One manifest edit adds all files; then the sequence number is published. A crash before the edit leaves orphans,
//!    which the next open removes; a crash after it loses nothing: all rows or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use mycelium_base::{
    Error, ErrorKind, FileNumber, MAX_SEQUENCE_NUMBER, Operation, Result, SequenceNumber, TableId, Trailer,
};
use mycelium_compaction::{BusyFiles, CompactionPlan, JobId, Reason};
use mycelium_encoding::{BatchRows, PackedLayout};
use mycelium_manifest::{FileMeta, KeyRange, RunPlace, Version, VersionEdit};
use mycelium_memtable::Memtable;
use mycelium_sst::{SstSummary, SstWriter, SstWriterOptions};

use crate::database::Inner;
use crate::index::{Derivation, DerivedRows};
use crate::options::{Policy, TableOptions};
use crate::output_files::{OutputFiles, file_meta, writer_options};
use crate::rate_limit::WritePriority;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use crate::table::{Table, TableShared};
use crate::write::Writer;

/// Bytes written between two looks at the rate limit.
const REPORT_BYTES: u64 = 256 << 10;

/// What an ingestion brought in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IngestSummary {
    /// Rows.
    pub rows: u64,
    /// SSTs.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The sequence number of all the rows; `None` if there were none.
    pub sequence: Option<SequenceNumber>,
}

impl Table {
    /// Loads rows in bulk, past the log and the memtable. Keys must ascend strictly. All rows become visible at once,
    /// as one commit, replace older rows of their keys, and are durable when the call returns. In a typed table keys
    /// are such as [`Table::row_key`] gives, and values are in the table's row format. Packed rows do not say by which
    /// columns they were packed: [`Table::ingest_packed`] asks for it.
    ///
    /// The first error of `rows` is returned, and then, as after any failure, nothing was loaded. Other writers wait
    /// only while the finished files are put in place (and memtables that overlap them are flushed). Memory: one block
    /// and the filter of one file. Indexes may be created and dropped, and be built, meanwhile. If the database is
    /// closed meanwhile, the load fails at its next row; until then the directory stays locked.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfOrder`] if a key does not come after the one before it. [`ErrorKind::InvalidArgument`] if a
    /// key exceeds the limits, or would in an index, or if a typed table can have no such key or row.
    /// [`ErrorKind::Duplicate`] if a row has the values of another one in a unique index. See [`Table`] for the others.
    ///
    /// ```
    /// # use mycelium_engine::{Database, Options, Result, TableOptions};
    /// # use std::sync::Arc;
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let table = database.create_table("squares", TableOptions::default())?;
    /// let rows = (0..1000_u32).map(|n| Ok((n.to_be_bytes(), (n * n).to_string())));
    /// assert_eq!(table.ingest(rows)?.rows, 1000);
    /// assert_eq!(table.get(&7_u32.to_be_bytes())?.as_deref(), Some(&b"49"[..]));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        rows: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<IngestSummary> {
        let mut ingestion = Ingestion::start(self)?;
        for row in rows {
            let (key, value) = row?;
            let (key, value) = (key.as_ref(), value.as_ref());
            if let Some(formats) = &self.shared.formats {
                let checked = formats.check_key(key).and_then(|()| formats.check_row(value));
                checked.map_err(|e| Error::invalid(format!("row {}", ingestion.rows)).caused_by(e))?;
            }
            ingestion.add(key, value)?;
        }
        ingestion.finish()
    }

    /// As [`Table::ingest`], for a typed table: whole rows that the caller packed by this layout, which are stored in
    /// the table's row format.
    ///
    /// # Errors
    /// As that; [`ErrorKind::InvalidArgument`] also if the layout is another than the table's
    /// ([`Table::packed_layout`]), as one from before a change of its columns is.
    pub fn ingest_packed<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        layout: &PackedLayout,
        rows: impl IntoIterator<Item = Result<(K, V)>>,
    ) -> Result<IngestSummary> {
        let formats = self.shared.typed_formats()?.clone();
        formats.check_layout(layout)?;
        if formats.is_packed() {
            return self.ingest(rows);
        }
        self.ingest(rows.into_iter().map(|row| {
            let (key, packed) = row?;
            let packed = packed.as_ref();
            layout.validate(packed).map_err(|e| Error::invalid("malformed packed row").caused_by(e))?;
            Ok((key, formats.stored(packed.to_vec())?))
        }))
    }

    /// As [`Table::ingest`], for a typed table: record batches whose rows ascend by primary key, within and across
    /// batches. Columns that a batch lacks have their defaults, or null.
    pub fn ingest_batches(&self, batches: impl IntoIterator<Item = Result<RecordBatch>>) -> Result<IngestSummary> {
        let formats = self.shared.typed_formats()?.clone();
        let layout = formats.packed_layout().clone();
        let mut ingestion = Ingestion::start(self)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for batch in batches {
            let batch = batch?;
            let rows = BatchRows::new(&layout, &batch)?;
            for row in 0..rows.len() {
                key.clear();
                value.clear();
                rows.encode_row(row, &mut key, &mut value)?;
                if formats.is_packed() {
                    ingestion.add(&key, &value)?;
                } else {
                    ingestion.add(&key, &formats.stored(value.clone())?)?;
                }
            }
        }
        ingestion.finish()
    }
}

/// The files of an ingestion while they are being written. Dropped early, it removes them.
struct Ingestion<'a> {
    inner: &'a Inner,
    table: &'a Arc<TableShared>,
    options: SstWriterOptions,
    target_file_size: u64,
    outputs: Mutex<OutputFiles<'a>>,
    /// What the rows derive for the table's indexes.
    derivation: Derivation,
    writer: Option<(FileNumber, SstWriter)>,
    /// Bytes of the current file that the rate limit knows of.
    reported: u64,
    /// The last key of the file finished last.
    last_key: Option<Vec<u8>>,
    files: Vec<(FileNumber, SstSummary)>,
    rows: u64,
}

/// The deepest level of a table and the size of its files.
fn sizes(options: &TableOptions) -> (usize, u64) {
    match &options.policy {
        Policy::Leveled(leveled) | Policy::TwoPhase(leveled) => (leveled.level_count - 1, leveled.target_file_size),
        Policy::Tiered(tiered) => (tiered.level_count - 1, tiered.target_file_size),
    }
}

impl<'a> Ingestion<'a> {
    fn start(table: &'a Table) -> Result<Self> {
        let inner = &*table.database;
        inner.check_writable()?;
        table.shared.check_alive()?;
        let options = &table.shared.definition.options;
        let (last_level, target_file_size) = sizes(options);
        Ok(Self {
            inner,
            table: &table.shared,
            options: writer_options(&table.shared.definition, last_level, None),
            target_file_size,
            outputs: Mutex::new(OutputFiles::new(inner)),
            derivation: Derivation::new(&table.shared, inner.staging_budget())?,
            writer: None,
            reported: 0,
            last_key: None,
            files: Vec::new(),
            rows: 0,
        })
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.check_open()?;
        let last = self.writer.as_ref().and_then(|(_, writer)| writer.last_key()).or(self.last_key.as_deref());
        if last.is_some_and(|last| last >= key) {
            let message = format!("row {} does not come after the row before it", self.rows);
            return Err(Error::new(ErrorKind::OutOfOrder, message));
        }
        if let Some((_, writer)) = &self.writer {
            let size = writer.estimated_size();
            if size >= self.target_file_size {
                self.finish_file()?;
            } else if size >= self.reported + REPORT_BYTES {
                self.inner.check_writable()?;
                self.inner.limit_rate(WritePriority::Compaction, size - self.reported);
                self.reported = size;
            }
        }
        let writer = match &mut self.writer {
            Some((_, writer)) => writer,
            None => {
                let (number, file) = self.outputs.lock().create()?;
                let options = SstWriterOptions { file_number: number, ..self.options };
                self.reported = 0;
                let writer = SstWriter::new(file, options)?.with_summarizers(self.table.summarizers(None)?);
                &mut self.writer.insert((number, writer)).1
            }
        };
        self.rows += 1;
        writer.add(key, Trailer::new(0, Operation::Put), value)?;
        self.derivation.add(key, value, &self.outputs)
    }

    fn finish_file(&mut self) -> Result<()> {
        let Some((number, writer)) = self.writer.take() else { return Ok(()) };
        let (summary, file) = writer.finish_unsynced()?;
        OutputFiles::finish(&self.outputs, file)?;
        self.inner.limit_rate(WritePriority::Compaction, summary.size.saturating_sub(self.reported));
        self.last_key = Some(summary.largest.clone());
        self.files.push((number, summary));
        Ok(())
    }

    fn finish(mut self) -> Result<IngestSummary> {
        self.finish_file()?;
        let bytes = self.files.iter().map(|(_, summary)| summary.size).sum();
        let mut summary = IngestSummary { rows: self.rows, files: self.files.len() as u64, bytes, sequence: None };
        if self.files.is_empty() {
            return Ok(summary);
        }
        let mut derived = self.derivation.finish(self.inner, &self.outputs)?;
        while summary.sequence.is_none() {
            derived.compare(self.inner, self.table, &self.files)?;
            self.outputs.lock().sync()?;
            summary.sequence = self.inner.install_ingested(self.table, &self.files, &derived)?;
            if summary.sequence.is_none() {
                derived.catch_up(self.inner, self.table, &self.files, &self.outputs)?;
            }
        }
        self.outputs.lock().keep();
        if let Some(traces) = &self.table.traces {
            traces.add_inserts(self.rows);
        }
        self.inner.counters.ingested_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.inner.wake_background();
        Ok(summary)
    }
}

/// Levels kept free of compactions' outputs while files are put into them, and the files kept from compactions until
/// what they hold can be seen: a compaction keeps for later snapshots only what one of then would see (snapshot.rs).
struct Reservation<'a> {
    inner: &'a Inner,
    /// Whose levels and files these are.
    tables: Vec<TableId>,
    jobs: Vec<JobId>,
    files: Vec<FileNumber>,
}

impl Reservation<'_> {
    /// Keeps files, which are not installed yet, from compactions.
    fn hold<'f>(&mut self, files: impl Iterator<Item = &'f Arc<FileMeta>>) {
        let mut core = self.inner.core.lock();
        for file in files {
            core.busy.hold_file(file.number);
            self.files.push(file.number);
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let Self { inner, tables, jobs, files } = self;
        // What was kept away may run now, whether or not anything was loaded.
        inner.end_job(|core| {
            jobs.drain(..).for_each(|job| core.busy.finish(job));
            files.drain(..).for_each(|file| core.busy.release_file(file));
            tables.drain(..).for_each(|table| core.tables.note_change(table));
        });
    }
}

impl Inner {
    /// Steps 2 to 5: returns the rows' sequence number, or `None` if the table has other indexes than they were derived
    /// for and compared in.
    fn install_ingested(
        &self,
        table: &Arc<TableShared>,
        files: &[(FileNumber, SstSummary)],
        derived: &DerivedRows,
    ) -> Result<Option<SequenceNumber>> {
        let mut writer = self.commits.writer.lock();
        self.check_writable()?;
        table.check_alive()?;
        if derived.is_outdated(table) {
            return Ok(None);
        }
        self.make_room(&mut writer, 0)?;
        self.clear_overlapping_memtables(table, files, &mut writer)?;
        self.note_load(&mut writer, table)?;
        self.sync_locked(&mut writer)?;
        if writer.last_sequence >= MAX_SEQUENCE_NUMBER {
            return Err(Error::invalid("the sequence numbers of the database are used up"));
        }
        let sequence = writer.last_sequence + 1;
        let meta = |number: FileNumber, summary: &SstSummary| {
            Arc::new(FileMeta {
                min_sequence: sequence,
                max_sequence: sequence,
                sequence_override: Some(sequence),
                ..file_meta(number, summary)
            })
        };
        let metas: Vec<Arc<FileMeta>> = files.iter().map(|(number, summary)| meta(*number, summary)).collect();
        let of_indexes: Vec<_> =
            derived.files.iter().map(|file| (file.table, meta(file.number, &file.summary))).collect();
        let all = metas.iter().chain(of_indexes.iter().map(|(_, meta)| meta));
        let opened = all.map(|meta| self.open_file(meta)).collect::<Result<Vec<_>>>()?;
        derived.compare_with_newer(self, table, &opened)?;
        let mut manifest = self.manifest()?;
        table.check_alive()?;
        let (mut edit, mut reservation) = self.place_ingested(table, &metas);
        reservation.hold(metas.iter().chain(of_indexes.iter().map(|(_, meta)| meta)));
        for (derived, meta) in of_indexes {
            reservation.tables.push(derived);
            edit.add_file(derived, 0, RunPlace::Newest, meta);
        }
        self.apply_edit(&mut manifest, edit, &opened, &[], |_| ())?;
        writer.last_sequence = sequence;
        table.loads.fetch_add(1, Ordering::Release);
        self.visible.store(sequence, Ordering::Release);
        self.commits.watches.show_load();
        drop(reservation);
        Ok(Some(sequence))
    }

    fn clear_overlapping_memtables(
        &self,
        table: &TableShared,
        files: &[(FileNumber, SstSummary)],
        writer: &mut MutexGuard<'_, Writer>,
    ) -> Result<()> {
        let (Some((_, first)), Some((_, last))) = (files.first(), files.last()) else { return Ok(()) };
        let state = table.state.load_full();
        if state.memtables().any(|memtable| holds_any(memtable, &first.smallest, &last.largest)) {
            self.empty_memtables(writer)?;
        }
        Ok(())
    }

    /// Decides each file's level and keeps compactions from writing there. The manifest is locked.
    fn place_ingested(&self, table: &TableShared, metas: &[Arc<FileMeta>]) -> (VersionEdit, Reservation<'_>) {
        let options = &table.definition.options;
        let version = table.state.load().tree.version.clone();
        let mut core = self.core.lock();
        let mut edit = VersionEdit::default();
        let is_plain = table.shape.load().is_plain() && !version.has_groups();
        let mut ranges: BTreeMap<usize, KeyRange> = BTreeMap::new();
        for meta in metas {
            let (level, place) = match is_plain {
                true => place_of(options, table.id, &version, &core.busy, meta),
                // Deeper levels may hold other column groups: compaction brings the rows there.
                false => (0, RunPlace::Newest),
            };
            edit.add_file(table.id, level, place, meta.clone());
            if level > 0 {
                ranges.entry(level).or_insert_with(|| meta.range()).include(meta);
            }
        }
        let jobs =
            ranges.into_iter().map(|(level, range)| core.busy.start(&reserving_plan(table.id, level, range))).collect();
        (edit, Reservation { inner: self, tables: vec![table.id], jobs, files: Vec::new() })
    }
}

/// Whether the memtable holds a key of `[smallest, largest]` or a range delete that covers one.
fn holds_any(memtable: &Arc<Memtable>, smallest: &[u8], largest: &[u8]) -> bool {
    use mycelium_base::Cursor;
    if memtable.has_range_deletes()
        && memtable.range_delete_sets().iter().any(|deletes| deletes.overlaps(smallest, largest))
    {
        return true;
    }
    let mut cursor = memtable.cursor();
    cursor.seek(smallest, Trailer::NEWEST).is_err() || (cursor.valid() && cursor.key() <= largest)
}

/// The deepest level at which nothing there or above overlaps the file, and its place in it.
fn place_of(
    options: &TableOptions,
    table: TableId,
    version: &Version,
    busy: &BusyFiles,
    meta: &FileMeta,
) -> (usize, RunPlace) {
    let (last, _) = sizes(options);
    let is_tiered = matches!(options.policy, Policy::Tiered(_));
    // Levels above the first that has data stay empty: the policies size the levels from there.
    let base = (1..=last).find(|&level| !version.level(level).is_empty()).unwrap_or(last);
    let range = meta.range();
    let mut best = (0, RunPlace::Newest);
    for level in 0..=last {
        let runs = &version.level(level).runs;
        let overlaps = version.level(level).overlapping(&range).next().is_some();
        if level >= base && !busy.writes_to(table, level, &range, &[None]) {
            if !overlaps && runs.len() <= 1 {
                best = (level, RunPlace::Sorted);
            } else if is_tiered && level < last {
                best = (level, RunPlace::Newest);
            }
        }
        if overlaps {
            break;
        }
    }
    best
}

/// A plan that reads nothing and claims `range` of a level as its output.
fn reserving_plan(table: TableId, level: usize, range: KeyRange) -> CompactionPlan {
    CompactionPlan {
        table,
        inputs: Vec::new(),
        output_level: level,
        output_place: RunPlace::Newest,
        outputs: vec![None],
        range,
        grandparents: Vec::new(),
        cut_keys: Vec::new(),
        older: Vec::new(),
        is_deferring: false,
        is_trivial_move: false,
        used_segments: Vec::new(),
        reason: Reason::Manual,
        score: 0.0,
        target_file_size: u64::MAX,
        max_grandparent_bytes: u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::{DatumRef, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::batch::RowBuffers;
    use crate::database::Database;
    use crate::index::IndexOptions;
    use crate::options::{Background, Durability, Options};

    fn row(id: i64, city: &str) -> [DatumRef<'_>; 2] {
        [DatumRef::Int64(id), DatumRef::Utf8(city)]
    }

    /// A table whose cities are unique.
    fn people() -> (Database, Table) {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
        let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
        let on = vec!["city".to_owned()];
        let by_city = IndexOptions { name: "by_city".into(), on, unique: true, ..IndexOptions::default() };
        database.create_index(&table, &by_city).unwrap();
        (database, table)
    }

    /// A load of one row, whose file is written.
    fn load_of_graz(table: &Table) -> Ingestion<'_> {
        let mut load = Ingestion::start(table).unwrap();
        let mut buffers = RowBuffers::default();
        table.encode_row(&row(1, "Graz"), &mut buffers).unwrap();
        load.add(&buffers.key, &buffers.value).unwrap();
        load.finish_file().unwrap();
        load
    }

    /// All rows of a load were looked up with the commit lock held. Now they are before, and then what came in between
    /// is.
    #[test]
    fn what_is_written_after_a_load_was_compared_is_compared_with_it() {
        for (id, city, is_refused) in [(2, "Graz", true), (2, "Wien", false), (1, "Graz", false)] {
            let (_database, table) = people();
            let mut load = load_of_graz(&table);
            let mut derived = load.derivation.finish(load.inner, &load.outputs).unwrap();
            derived.compare(load.inner, load.table, &load.files).unwrap();
            load.outputs.lock().sync().unwrap();
            table.insert_row(&row(id, city), Durability::Os).unwrap();
            match load.inner.install_ingested(load.table, &load.files, &derived) {
                Err(error) => assert!(is_refused && error.kind() == ErrorKind::Duplicate, "{id} {city}: {error}"),
                Ok(sequence) => {
                    load.outputs.lock().keep();
                    assert!(!is_refused && sequence.is_some(), "{id} {city}");
                }
            }
        }
    }

    /// It was asked for its present indexes alone, whether or not they had become unique meanwhile.
    #[test]
    fn a_load_is_not_put_in_place_before_it_was_compared_in_an_index_that_became_unique() {
        let (_database, table) = people();
        let mut load = load_of_graz(&table);
        let mut derived = load.derivation.finish(load.inner, &load.outputs).unwrap();
        load.outputs.lock().sync().unwrap();
        assert_eq!(load.inner.install_ingested(load.table, &load.files, &derived).unwrap(), None);
        derived.compare(load.inner, load.table, &load.files).unwrap();
        assert!(load.inner.install_ingested(load.table, &load.files, &derived).unwrap().is_some());
        load.outputs.lock().keep();
    }
}
