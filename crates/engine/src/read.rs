//! Point reads.
//!
//! 1. Take the table's state, then the newest visible sequence number (or the snapshot's). In this order the state
//!    holds everything up to some commit, and what it lacks is newer.
//! 2. Memtables, newest first: snapshot filter, then Bloom filter, then the skiplist.
//! 3. The tree: collect the files whose fence holds the key, youngest first, passing those that the snapshot filter
//!    rules out (Kim §V: between fence and Bloom), and ask for all their Bloom filter lines at once, so that the cache
//!    misses overlap; then test and search them in order. A part of a two-phase level may be read from the compaction
//!    buffer instead (buffer.rs).
//! 4. Stop as soon as the row is settled. A file's range deletes are honoured even where its Bloom filter says no.
//!
//! Where files hold column groups the row is put together from fragments (columns.rs).

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::Guard;
use mycelium_base::hash::hash_key;
use mycelium_base::limits::MAX_KEY_LEN;
use mycelium_base::{ColumnSet, Error, ErrorKind, ReadCounters, Result, SequenceNumber};
use mycelium_encoding::PackedLayout;
use mycelium_merge::Lookup;
use mycelium_sst::{FileFilters, GetScratch, KeyBits};

use crate::database::Inner;
use crate::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::sync::atomic::Ordering;
use crate::table::{TableShared, TableState};
use crate::tree::{OpenFile, OpenRun, OpenSegment, OpenSegments};

/// Files whose filter lines are asked for at once.
const PROBES: usize = 24;

impl Inner {
    /// A state of a table and the sequence number at which to read it: the snapshot's, or the newest. Whatever the
    /// state lacks is newer than that. Fails if the table was dropped before, and its state emptied.
    ///
    /// The number is taken after the state, whose memtable goes on receiving what is written. A bulk load comes past
    /// it, into a new state only; were the number that of a later write, that write would be seen and the load before
    /// it not. So both are taken again where a load came in between.
    ///
    /// In a database opened read-only a state says itself up to which number it has everything, and a snapshot has
    /// states of its own: versions that the process which writes has dropped since are in these alone.
    #[inline]
    pub(crate) fn read_moment(
        &self,
        table: &TableShared,
        snapshot: Option<&Snapshot>,
    ) -> Result<(Guard<Arc<TableState>>, SequenceNumber)> {
        if let Some(snapshot) = snapshot {
            if !snapshot.belongs_to(&self.snapshots) {
                return Err(Error::invalid("the snapshot belongs to another database"));
            }
            if let Some(shown) = snapshot.shown() {
                return Ok((Guard::from_inner(shown.state_of(table)?), snapshot.sequence()));
            }
            let state = table.state.load();
            table.check_alive()?;
            return Ok((state, snapshot.sequence()));
        }
        loop {
            let loads = table.loads.load(Ordering::Acquire);
            let state = table.state.load();
            let visible = state.as_of.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
            table.check_alive()?;
            if table.loads.load(Ordering::Acquire) == loads {
                return Ok((state, visible));
            }
        }
    }

    /// The row in the table's own format, for somebody who wants these columns of it (all if `None`).
    pub(crate) fn get(
        &self,
        table: &TableShared,
        key: &[u8],
        wanted: Option<&ColumnSet>,
        options: &ReadOptions,
        counters: &mut ReadCounters,
    ) -> Result<Option<Vec<u8>>> {
        let (state, snapshot) = self.read_moment(table, options.snapshot.as_ref())?;
        let read = PointRead::new(table, snapshot);
        let row = read.get(&state, key, counters);
        self.trace_point(&read, wanted);
        row
    }

    /// The wanted columns (all if `None`) of a typed table's row, packed, with their layout, which may have more
    /// columns.
    pub(crate) fn get_packed(
        &self,
        table: &TableShared,
        key: &[u8],
        wanted: Option<&ColumnSet>,
        options: &ReadOptions,
        counters: &mut ReadCounters,
    ) -> Result<Option<(Arc<PackedLayout>, Vec<u8>)>> {
        let (state, snapshot) = self.read_moment(table, options.snapshot.as_ref())?;
        let read = PointRead::new(table, snapshot);
        let row = read.get_packed(&state, key, wanted, counters);
        self.trace_point(&read, wanted);
        row
    }

    pub(crate) fn multi_get(
        &self,
        table: &TableShared,
        keys: &[&[u8]],
        options: &ReadOptions,
        counters: &mut ReadCounters,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let (state, snapshot) = self.read_moment(table, options.snapshot.as_ref())?;
        let read = PointRead::new(table, snapshot);
        // In key order neighbouring keys share index and data blocks.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|&i| keys[i]);
        let mut rows = vec![None; keys.len()];
        for i in order {
            rows[i] = read.get(&state, keys[i], counters)?;
            self.trace_point(&read, None);
        }
        Ok(rows)
    }
}

/// What the reads of one call have in common.
pub(crate) struct PointRead<'a> {
    pub(crate) table: &'a TableShared,
    pub(crate) snapshot: SequenceNumber,
    /// The levels where entries of the row were found, as bits.
    served: Cell<u32>,
}

/// A file that may hold the key that is read.
#[derive(Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) level: usize,
    pub(crate) place: Place<'a>,
    pub(crate) filters: &'a FileFilters,
}

/// Where a file is, in a run by its number there. The file itself is not looked at before the filters let the key pass.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Run(&'a OpenRun, usize),
    Segment(&'a OpenSegment),
}

impl<'a> Probe<'a> {
    #[inline]
    pub(crate) fn file(&self) -> &'a Arc<OpenFile> {
        match self.place {
            Place::Run(run, at) => &run.files[at],
            Place::Segment(segment) => &segment.file,
        }
    }

    /// Which of the tree's formats it has.
    #[inline]
    pub(crate) fn format(&self) -> usize {
        match self.place {
            Place::Run(run, _) => run.format,
            Place::Segment(segment) => segment.format,
        }
    }

    /// What of the compaction buffer stands for its run.
    #[inline]
    pub(crate) fn buffer(&self) -> Option<&'a OpenSegments> {
        match self.place {
            Place::Run(run, _) => run.buffer.as_deref(),
            Place::Segment(_) => None,
        }
    }

    /// Whether the Bloom filter lets the key pass.
    #[inline]
    pub(crate) fn may_contain(&self, bits: &mut KeyBits) -> bool {
        self.filters.may_contain(bits, |hash| self.file().sst.may_contain(hash))
    }

    /// Whether neither the Bloom filter nor range deletes of the file have anything to say of the key. Counts it then.
    #[inline]
    pub(crate) fn is_ruled_out(&self, bits: &mut KeyBits, counters: &mut ReadCounters) -> bool {
        let is_ruled_out = !self.filters.has_range_deletes() && !self.may_contain(bits);
        counters.files_skipped_by_bloom += u64::from(is_ruled_out);
        is_ruled_out
    }
}

impl<'a> PointRead<'a> {
    pub(crate) fn new(table: &'a TableShared, snapshot: SequenceNumber) -> Self {
        Self { table, snapshot, served: Cell::new(0) }
    }
}

impl PointRead<'_> {
    /// An entry of the row was found at this level.
    #[inline]
    pub(crate) fn note_served(&self, level: usize) {
        self.served.set(self.served.get() | 1 << level);
    }

    /// The levels that were noted since the last call, as bits.
    #[inline]
    pub(crate) fn take_served(&self) -> u32 {
        self.served.take()
    }

    /// The row in the table's own format.
    pub(crate) fn get(&self, state: &TableState, key: &[u8], counters: &mut ReadCounters) -> Result<Option<Vec<u8>>> {
        if state.tree.has_groups {
            let plan = self.table.merge_plan(&state.tree, None)?;
            let packed = self.get_columns(state, key, plan, counters)?;
            return packed.map(|row| self.table.typed_formats()?.stored(row)).transpose();
        }
        if key.len() > MAX_KEY_LEN {
            let message = format!("a key of {} bytes: at most {MAX_KEY_LEN} are possible", key.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let hash = hash_key(key);
        let mut lookup = Lookup::new();
        if !self.search_memtables(state, key, hash, &mut lookup, counters) {
            self.search_tree(state, key, hash, &mut lookup, counters)?;
        }
        lookup.finish(key, self.table.combiner.as_deref())
    }

    /// The wanted columns (all if `None`) of a typed table's row, packed, with their layout, which may have more
    /// columns.
    pub(crate) fn get_packed(
        &self,
        state: &TableState,
        key: &[u8],
        wanted: Option<&ColumnSet>,
        counters: &mut ReadCounters,
    ) -> Result<Option<(Arc<PackedLayout>, Vec<u8>)>> {
        let formats = self.table.typed_formats()?;
        if formats.is_packed() && !state.tree.has_groups {
            let row = self.get(state, key, counters)?;
            return Ok(row.map(|row| (formats.packed_layout().clone(), row)));
        }
        let plan = self.table.merge_plan(&state.tree, wanted)?;
        let row = self.get_columns(state, key, plan.clone(), counters)?;
        Ok(row.map(|row| (plan.layout().clone(), row)))
    }

    /// Whether the row is settled by memtables alone.
    #[inline]
    fn search_memtables(
        &self,
        state: &TableState,
        key: &[u8],
        hash: u64,
        lookup: &mut Lookup,
        counters: &mut ReadCounters,
    ) -> bool {
        for memtable in state.memtables() {
            if memtable.is_empty() {
                continue;
            }
            if memtable.sequence_range().is_some_and(|(oldest, _)| self.skips(oldest)) {
                counters.memtables_skipped_by_snapshot += 1;
                continue;
            }
            counters.memtables_searched += 1;
            if memtable.has_range_deletes()
                && let Some(sequence) = memtable.covering_range_delete(key, self.snapshot)
            {
                lookup.cover(sequence);
            }
            for (trailer, value) in memtable.get_hashed(key, hash, self.snapshot) {
                if lookup.visit(trailer, value).is_break() {
                    return true;
                }
            }
            if lookup.is_covered() {
                return true;
            }
        }
        false
    }

    fn search_tree(
        &self,
        state: &TableState,
        key: &[u8],
        hash: u64,
        lookup: &mut Lookup,
        counters: &mut ReadCounters,
    ) -> Result<()> {
        let mut scratch = GetScratch::new(self.table.definition.options.snapshot_filter);
        self.visit_files(
            state,
            key,
            hash,
            counters,
            |_| true,
            |probe, counters| {
                let &Probe { level, filters, .. } = probe;
                let file = probe.file();
                if filters.has_range_deletes()
                    && let Some(sequence) = file.sst.range_deletes().covering(key, self.snapshot)
                {
                    lookup.cover(sequence);
                }
                if filters.has_range_deletes() && !probe.may_contain(&mut KeyBits::new(hash)) {
                    counters.files_skipped_by_bloom += 1;
                } else {
                    counters.files_searched += 1;
                    file.sst.get(key, self.snapshot, &mut scratch, counters, &mut |trailer, value| {
                        self.note_served(level);
                        lookup.visit(trailer, value)
                    })?;
                }
                let is_done = lookup.is_settled() || lookup.is_covered();
                Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            },
        )
    }

    /// Step 3 of the module: gives `visit` the files of the wanted runs that may hold the key or have range deletes,
    /// youngest first, until it breaks. All whose fences hold the key are found first, so that the lines of their
    /// filters are on their way to the cache.
    #[inline]
    pub(crate) fn visit_files<'s>(
        &self,
        state: &'s TableState,
        key: &[u8],
        hash: u64,
        counters: &mut ReadCounters,
        wants: impl Fn(&OpenRun) -> bool,
        mut visit: impl FnMut(&Probe<'s>, &mut ReadCounters) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut bits = KeyBits::new(hash);
        let mut probes: [Option<Probe<'s>>; PROBES] = [None; PROBES];
        let mut runs = state.tree.fenced_runs().filter(|((_, run), _)| wants(run));
        loop {
            let mut count = 0;
            while count < PROBES
                && let Some(((level, run), fences)) = runs.next()
            {
                counters.files_considered += 1;
                let Some((at, filters)) = run.find(&fences, key) else {
                    counters.files_skipped_by_fence += 1;
                    continue;
                };
                if self.skips(filters.oldest()) {
                    counters.files_skipped_by_snapshot += 1;
                    continue;
                }
                filters.prefetch(hash);
                probes[count] = Some(Probe { level, place: Place::Run(run, at), filters });
                count += 1;
            }
            for probe in probes[..count].iter().flatten() {
                if self.visit_part(probe, key, &mut bits, counters, &mut visit)?.is_break() {
                    return Ok(());
                }
            }
            if count < PROBES {
                return Ok(());
            }
        }
    }

    /// Whether the snapshot filter rules out a place whose oldest entry this is.
    #[inline]
    pub(crate) fn skips(&self, oldest: SequenceNumber) -> bool {
        self.table.definition.options.snapshot_filter && oldest > self.snapshot
    }
}
