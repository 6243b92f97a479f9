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
//! 3. Else the segments are asked, newest first, the lines of their filters all at once as those of files are
//!    (read.rs). They form *tables*, of files that do not overlap: at most one file per table is asked, and the tables
//!    are as few as the order of the segments allows (§IV-B: up to r).
//!
//! What goes down: where the rows of a file leave a level, the segments that stand for it go down with them if reads
//! use them, that is if an eighth as many bytes of theirs are cached as the file has (compaction/src/buffer.rs). Else
//! the file itself is the segment below, in which rows that are read lie beside all others of their level.
//!
//! What stays: at most [`Options::buffer_bytes`](crate::Options::buffer_bytes) in all tables together, counted without
//! the files that are in the tree as well, and only what is read. When a compaction is installed, segments leave that
//! no read has asked during the last eight flushes (tree/file.rs), nor any that overlaps them in their part; one read
//! keeps them all for as many flushes. If the rest is still more than the budget, what was asked least lately leaves
//! first. No segment's leaving changes an answer: its interval is read from the tree from then on.
//!
//! A segment stands for the columns of its part and is read for no others: a flushed row feeds several column groups,
//! each of which drains by itself.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use mycelium_base::{FileNumber, ReadCounters, Result, TableId};
use mycelium_compaction::{Buffering, CompactionPlan, trim};
use mycelium_manifest::{ChangedRound, Manifest, Round, Version, VersionEdit};
use mycelium_sst::KeyBits;

use crate::database::{Database, Inner};
use crate::options::{TableOptions, sizes};
use crate::read::{PROBES, Place, PointRead, Probe};
use crate::sync::atomic::Ordering;
use crate::table::TableShared;
use crate::tree::{OpenSegments, SegmentUse, Tree};

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
        let mut manifest = self.inner.manifest()?;
        let mut edit = VersionEdit::default();
        self.inner.trim_others(&manifest, None, bytes, &mut edit);
        if edit.rounds.is_empty() {
            return Ok(());
        }
        let result = self.inner.apply_edit(&mut manifest, edit, &[], &[], |_| ());
        drop(manifest);
        self.inner.wake_background();
        result
    }
}

impl Inner {
    /// Adds to the edit that installs a plan what its policy keeps besides, and what leaves the compaction buffer.
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
        let tree = table.state.load().tree.clone();
        let flushes = self.counters.flushes.load(Ordering::Relaxed);
        let others: u64 = other_versions(manifest, Some(table.id)).map(|(_, version)| buffered_bytes(version)).sum();
        let budget = self.options.buffer_bytes.saturating_sub(others);
        for round in trim_table(&after, &tree, budget, Some(flushes)) {
            edit.rounds
                .retain(|known| known.table != table.id || !known.round.is_of(round.level, round.group.as_ref()));
            edit.rounds.push(ChangedRound { table: table.id, round: round.to_record() });
        }
        // Others give way only where they alone are over the budget, as after it was lowered.
        self.trim_others(manifest, Some(table.id), self.options.buffer_bytes, edit);
        Ok(())
    }

    /// Takes segments of all tables but one out until those that stay take at most `budget` bytes.
    fn trim_others(&self, manifest: &Manifest, but: Option<TableId>, budget: u64, edit: &mut VersionEdit) {
        let mut left = budget;
        for (table, version) in other_versions(manifest, but) {
            let bytes = buffered_bytes(version);
            if bytes > left {
                let Some(shared) = self.core.lock().tables.get(&table).cloned() else { continue };
                let rounds = trim_table(version, &shared.state.load().tree, left, None);
                edit.rounds.extend(rounds.iter().map(|round| ChangedRound { table, round: round.to_record() }));
            }
            left = left.saturating_sub(bytes);
        }
    }
}

fn other_versions(manifest: &Manifest, but: Option<TableId>) -> impl Iterator<Item = (TableId, &Version)> {
    let tables = manifest.state().tables.iter().filter(move |(id, _)| Some(**id) != but);
    tables.map(|(id, table)| (*id, &*table.version)).filter(|(_, version)| !version.rounds.is_empty())
}

fn buffered_bytes(version: &Version) -> u64 {
    version.buffered_files().map(|file| file.size).sum()
}

/// The rounds without the segments that leave: after so many flushes those that nobody reads, and what is beyond the
/// budget.
fn trim_table(version: &Version, tree: &Tree, budget: u64, flushes: Option<u64>) -> Vec<Round> {
    let opened: HashMap<FileNumber, &SegmentUse> =
        tree.all_files().map(|file| (file.meta.number, &file.segment_use)).collect();
    let leaves: HashSet<FileNumber> = match flushes {
        None => HashSet::new(),
        Some(flushes) => {
            let buffered = version.buffered_files().map(|file| file.number);
            buffered.filter(|file| opened.get(file).is_some_and(|segment| segment.judge(flushes))).collect()
        }
    };
    let worth = |file| opened.get(&file).map_or(0, |segment| segment.worth());
    trim(version, budget, |file| leaves.contains(&file), worth)
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
        let mut tables = buffer.fenced_tables();
        loop {
            let mut asked: [Option<Probe<'s>>; PROBES] = [None; PROBES];
            let mut count = 0;
            while count < PROBES
                && let Some((table, fences)) = tables.next()
            {
                let Some((at, filters)) = table.find(&fences, key) else { continue };
                filters.prefetch(bits.hash());
                asked[count] = Some(Probe { place: Place::Segments(table, at), filters, ..*probe });
                count += 1;
            }
            for segment in asked[..count].iter().flatten() {
                counters.segments_considered += 1;
                if self.skips(segment.filters.oldest()) {
                    counters.files_skipped_by_snapshot += 1;
                    continue;
                }
                if segment.is_ruled_out(bits, counters) {
                    continue;
                }
                if segment.may_contain(bits) {
                    segment.file().segment_use.note_read();
                }
                if visit(segment, counters)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if count < PROBES {
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
