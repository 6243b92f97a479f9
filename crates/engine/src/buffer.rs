//! Point reads from the compaction buffer (dLSM §V-A), and what stays in it.
//!
//! A part of a two-phase level may be read from the tree or, for the keys that they cover, from its segments: files
//! that have not been rewritten since their blocks were cached. For each part, in the place where it lies among the
//! runs:
//!
//! 1. The part's own fence, snapshot filter and Bloom filter come first. They are in memory, and where they exclude the
//!    key no segment is asked: so a lookup goes to segments of the parts that hold the key, and by false positives of
//!    one filter per part, however many segments there are.
//! 2. A block of the part that is cached already, as a scan leaves it, is used; so the same row is not cached twice
//!    (§V-B).
//! 3. Else the segments whose ranges hold the key are asked, newest first, the lines of their filters some ahead of
//!    them. Those on top that were found to have nothing for the key are passed over from then on (tree/segments.rs).
//!
//! What goes down: where the rows of a file leave a level, the segments that stand for it go down with them if reads
//! use them, that is if an eighth as many bytes of theirs are cached as the file has (compaction/src/buffer.rs). Else
//! the file itself is the segment below, in which rows that are read lie beside all others of their level.
//!
//! What stays: at most [`Options::buffer_bytes`](crate::Options::buffer_bytes) in all tables together, counted without
//! the files that are in the tree as well, and only what is read. When a compaction of a table with a buffer is
//! installed, and with every eighth flush, segments of all tables leave that no read has asked during the last eight
//! flushes (tree/file.rs), nor any that overlaps them in their part; one read keeps them all for as many flushes. If
//! the rest is still more than the budget, what was asked least lately leaves first, whichever table has it; so it does
//! when a database is opened, for the budget may have been a larger one. No segment's leaving changes an answer: its
//! interval is read from the tree from then on.
//!
//! A segment stands for the columns of its part and is read for no others: a flushed row feeds several column groups,
//! each of which drains by itself.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use mycelium_base::{FileNumber, ReadCounters, Result, TableId};
use mycelium_compaction::{Buffering, CompactionPlan, trim};
use mycelium_manifest::{ChangedRound, Manifest, Round, Version, VersionEdit};
use mycelium_sst::KeyBits;

use crate::database::{Database, Inner};
use crate::options::{TableOptions, sizes};
use crate::read::{Place, PointRead, Probe};
use crate::sync::atomic::Ordering;
use crate::table::TableShared;
use crate::tree::{OpenSegments, PATIENCE, SegmentUse, Tree};

/// Segments whose filters' lines are asked for ahead.
const AHEAD: usize = 12;

/// Bits by which a Bloom filter of this level is larger so that the tables of a level of the buffer together are wrong
/// as rarely as one file: log2(n / f) / ln 2 bits instead of log2(1 / f) / ln 2 (dLSM §V-A), where n is as many tables
/// as segments may form ([`LeveledOptions::most_segment_tables`](crate::LeveledOptions::most_segment_tables)); the
/// paper's are r. The files of a level that feeds the buffer have them from the beginning, as they enter it
/// unrewritten.
pub(crate) fn buffer_filter_bits(options: &TableOptions, level: usize) -> u32 {
    let sizes = sizes(options);
    let has_filters = options.filter_bits.iter().any(|&bits| bits > 0);
    if options.buffer == Buffering::Off || !has_filters || level + 2 >= sizes.level_count {
        return 0;
    }
    ((sizes.most_segment_tables() as f64).log2() / std::f64::consts::LN_2).ceil() as u32
}

impl Database {
    /// Takes segments out of the compaction buffers until they take at most `bytes` on the disk; those that were read
    /// least go first. Changes no answer: what they held is read from the tree. Readers that use them now keep them
    /// until they end.
    ///
    /// # Errors
    /// Those of a write of the manifest; [`mycelium_base::ErrorKind::ReadOnly`] if the database is.
    pub fn trim_buffer(&self, bytes: u64) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.trim_buffers(bytes)?;
        self.inner.wake_background();
        Ok(())
    }
}

/// A table and its version after the edit that is being completed.
type Changed<'v> = (TableId, &'v Version);

impl Inner {
    /// Takes segments out of the compaction buffers until they take at most `bytes`.
    pub(crate) fn trim_buffers(&self, bytes: u64) -> Result<()> {
        let mut manifest = self.manifest()?;
        let mut edit = VersionEdit::default();
        self.add_trimmed(&manifest, None, (bytes, None), &mut edit);
        if edit.rounds.is_empty() {
            return Ok(());
        }
        self.apply_edit(&mut manifest, edit, &[], &[], |_| ())
    }

    /// Adds to the edit that installs a plan what its policy keeps besides, and what leaves the compaction buffers, of
    /// other tables as well: those that nobody writes to are not looked at otherwise.
    pub(crate) fn complete_edit(
        &self,
        manifest: &Manifest,
        table: &TableShared,
        plan: &CompactionPlan,
        edit: &mut VersionEdit,
    ) -> Result<()> {
        let Some(state) = manifest.state().tables.get(&table.id) else { return Ok(()) };
        let version = &state.version;
        table.shape.load().policy(version).complete(version, plan, edit)?;
        if table.definition.options.buffer == Buffering::Off {
            return Ok(());
        }
        let after = version.apply(table.id, edit)?;
        let flushes = self.counters.flushes.load(Ordering::Relaxed);
        self.add_trimmed(manifest, Some((table.id, &after)), (self.options.buffer_bytes, Some(flushes)), edit);
        Ok(())
    }

    /// Adds to the edit that installs a flush what leaves the compaction buffers: where no table with a buffer is
    /// compacted nothing else asks whether anybody reads what is in them. Of so many flushes one does, for it looks at
    /// every table.
    pub(crate) fn trim_with_flush(&self, manifest: &Manifest, edit: &mut VersionEdit) {
        let flushes = self.counters.flushes.load(Ordering::Relaxed);
        if flushes.is_multiple_of(PATIENCE) {
            self.add_trimmed(manifest, None, (self.options.buffer_bytes, Some(flushes)), edit);
        }
    }

    /// Adds the rounds of all tables without the segments that leave: after so many flushes those that nobody reads,
    /// and what is beyond the budget.
    fn add_trimmed(
        &self,
        manifest: &Manifest,
        changed: Option<Changed<'_>>,
        (budget, flushes): (u64, Option<u64>),
        edit: &mut VersionEdit,
    ) {
        let buffers = Buffers::new(self, manifest, changed);
        let of_files: HashMap<FileNumber, &SegmentUse> = buffers.opened();
        let idle: HashSet<FileNumber> = match flushes {
            None => HashSet::new(),
            Some(flushes) => {
                let is_idle = |file: &FileNumber| of_files.get(file).is_some_and(|segment| segment.judge(flushes));
                buffers.segments().into_iter().filter(is_idle).collect()
            }
        };
        let worth = |file: FileNumber| of_files.get(&file).map_or(0, |segment| segment.worth());
        let trimmed = trim(&buffers.versions, budget, |file| idle.contains(&file), worth);
        for (&table, rounds) in buffers.tables.iter().zip(trimmed) {
            for round in rounds {
                edit.rounds
                    .retain(|known| known.table != table || !known.round.is_of(round.level, round.group.as_ref()));
                edit.rounds.push(ChangedRound { table, round: round.to_record() });
            }
        }
    }
}

/// The tables with a compaction buffer.
struct Buffers<'v> {
    tables: Vec<TableId>,
    /// Of each of these.
    versions: Vec<&'v Version>,
    /// As they are before an edit.
    trees: Vec<Arc<Tree>>,
}

impl<'v> Buffers<'v> {
    fn new(inner: &Inner, manifest: &'v Manifest, changed: Option<Changed<'v>>) -> Self {
        let of_tables = manifest.state().tables.iter().map(|(&id, table)| match changed {
            Some((table, after)) if table == id => (id, after),
            _ => (id, &*table.version),
        });
        let (tables, versions): (Vec<_>, Vec<_>) = of_tables.filter(|(_, version)| !version.rounds.is_empty()).unzip();
        let core = inner.core.lock();
        let shared = tables.iter().filter_map(|id| core.tables.get(id));
        let trees: Vec<Arc<Tree>> = shared.map(|table| table.state.load().tree.clone()).collect();
        drop(core);
        Self { tables, versions, trees }
    }

    /// How the files are used.
    fn opened(&self) -> HashMap<FileNumber, &SegmentUse> {
        let files = self.trees.iter().flat_map(|tree| tree.all_files());
        files.map(|file| (file.meta.number, &file.segment_use)).collect()
    }

    /// The files of all segments, each once, those in a tree too: what they overlap stays until they are idle.
    fn segments(&self) -> HashSet<FileNumber> {
        let rounds = self.versions.iter().flat_map(|version| &version.rounds);
        rounds.flat_map(Round::files).map(|file| file.number).collect()
    }
}

impl PointRead<'_> {
    /// Gives `visit` the files that stand for a part, of which `probe` is the tree's file: it alone, or segments.
    #[inline]
    pub(crate) fn visit_part<'s>(
        &self,
        probe: &Probe<'s>,
        key: &[u8],
        bits: &mut KeyBits,
        counters: &mut ReadCounters,
        visit: &mut impl FnMut(&Probe<'s>, &mut ReadCounters) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        if probe.is_ruled_out(bits, counters) {
            return Ok(ControlFlow::Continue(()));
        }
        match probe.buffer() {
            Some(buffer) if buffer.covers(key) => self.visit_segments(buffer, probe, key, bits, counters, visit),
            _ => visit(probe, counters),
        }
    }

    /// The steps of the module.
    fn visit_segments<'s>(
        &self,
        buffer: &'s OpenSegments,
        probe: &Probe<'s>,
        key: &[u8],
        bits: &mut KeyBits,
        counters: &mut ReadCounters,
        visit: &mut impl FnMut(&Probe<'s>, &mut ReadCounters) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<()>> {
        let file = probe.file();
        let is_deleted = || file.sst.range_deletes().covering(key, self.snapshot).is_some();
        // Without range deletes its filter has let the key pass already.
        if probe.filters.has_range_deletes() && !probe.may_contain(bits) && !is_deleted() {
            counters.files_skipped_by_bloom += 1;
            return Ok(ControlFlow::Continue(()));
        }
        if file.sst.has_cached(key) {
            return visit(probe, counters);
        }
        counters.parts_read_from_buffer += 1;
        let (stack, hash) = (buffer.stack(key), bits.hash());
        let known = stack.known_to_lack(hash);
        (known..stack.len()).take(AHEAD).for_each(|at| stack.filters(at).prefetch(hash));
        // Whether all that were passed over have nothing for the hash.
        let mut all_lack = true;
        for at in known..stack.len() {
            if at + AHEAD < stack.len() {
                stack.filters(at + AHEAD).prefetch(hash);
            }
            let segment = Probe { place: Place::Segment(stack.segment(at)), filters: stack.filters(at), ..*probe };
            counters.segments_considered += 1;
            if self.skips(segment.filters.oldest()) {
                counters.files_skipped_by_snapshot += 1;
                all_lack = false;
                continue;
            }
            if segment.is_ruled_out(bits, counters) {
                continue;
            }
            if std::mem::take(&mut all_lack) && at > known {
                stack.note_lacking(hash, at);
            }
            if segment.may_contain(bits) {
                segment.file().segment_use.note_read();
            }
            if visit(&segment, counters)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if all_lack && stack.len() > known {
            stack.note_lacking(hash, stack.len());
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::{Background, Durability, LeveledOptions, Options, Policy, Table};

    fn table(database: &Database, name: &str) -> Table {
        let levels = LeveledOptions { level0_trigger: 2, target_file_size: 8 << 10, ..LeveledOptions::default() };
        let options = TableOptions {
            policy: Policy::TwoPhase(levels),
            buffer: Buffering::Full,
            compression: vec![],
            ..TableOptions::default()
        };
        database.create_table(name, options).unwrap()
    }

    fn write(database: &Database, table: &Table, keys: impl IntoIterator<Item = Vec<u8>>) {
        for key in keys {
            table.put(&key, &[7; 100], Durability::Os).unwrap();
        }
        database.flush().unwrap();
        while database.step().unwrap() {}
    }

    /// Only compactions of tables with a buffer asked for them: a table that was written to no more, beside others that
    /// have none, kept its buffer for good.
    #[test]
    fn segments_that_nobody_read_stayed_while_no_table_with_a_buffer_was_compacted() {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let (idle, read) = (table(&database, "idle"), table(&database, "read"));
        let plain = database.create_table("plain", TableOptions::default()).unwrap();
        let buffered = |table: &Table| table.shared.state.load().tree.version.buffered_files().count();
        for _ in 0..4 {
            for table in [&idle, &read] {
                write(&database, table, (0..300u32).map(|n| format!("key{n:06}").into_bytes()));
            }
        }
        assert!(buffered(&idle) > 0 && buffered(&read) > 0);
        for n in 0..4 * PATIENCE {
            for n in 0..300 {
                assert!(read.get(format!("key{n:06}").as_bytes()).unwrap().is_some());
            }
            write(&database, &plain, [n.to_be_bytes().to_vec()]);
        }
        assert_eq!(buffered(&idle), 0);
        assert!(buffered(&read) > 0);
    }

    /// Files that moved into a gap of their level are in it and in the buffer. They were not asked whether anybody read
    /// them, and what they overlap stayed until the round ended.
    #[test]
    fn what_lies_beside_segments_that_are_in_a_level_too_leaves_when_nobody_reads_it() {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let (left, other) = (table(&database, "left"), table(&database, "other"));
        let version = || left.shared.state.load().tree.version.clone();
        for _ in 0..2 {
            write(&database, &left, (0..300u32).map(|n| format!("key{n:06}").into_bytes()));
        }
        let before_gap = version().level(1).runs[0].files[0].largest.clone();
        for end in [b"a", b"b"] {
            write(&database, &left, [[&before_gap[..], end].concat()]);
        }
        let files = version().rounds.iter().map(|round| round.files().count()).sum::<usize>();
        assert_eq!((version().buffered_files().count(), files), (2, 4), "{}", version());
        for _ in 0..20 {
            write(&database, &other, [b"a".to_vec(), b"b".to_vec()]);
        }
        assert_eq!(version().buffered_files().count(), 0, "{}", version());
    }
}
