//! Iterators over the rows of a table.
//!
//! An iterator takes the table's state once: its memtables and files, which it pins, and a sequence number. It then is
//! a [`VisibleCursor`] over a [`MergingCursor`] of one cursor per memtable, per level-0 run and per deeper run; where
//! files hold column groups, a [`ColumnMergingCursor`] over those that share a column with what is read. Memtables and
//! files that hold nothing the snapshot sees, or nothing within the bounds, take no part: of files their fences tell,
//! and, where all keys within the bounds begin with the same columns, their filters of such prefixes. Range deletes
//! count in any case.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::Guard;
use mycelium_base::{ColumnSet, RangeDeleteSet, ReadCounters, Result, SequenceNumber};
use mycelium_encoding::page::Filter;
use mycelium_encoding::row_format::{RowFormat, RowScratch};
use mycelium_encoding::{PackedLayout, RowPart, marks_of};
use mycelium_memtable::Memtable;
use mycelium_merge::{ColumnMerge, ColumnMergingCursor, MergePlan, MergingCursor, VisibleCursor};
use mycelium_sst::{ColumnPosition, CursorOptions, LevelCursor, RunCursor, ScanPrefix, SstFile, WantedColumns};

use crate::block_scan::{BlockScan, BlockScanParts, DeltaParts, FilterPlan, LayerRun, RowFilter, SettledPart};
use crate::columns::{WHOLE, columns_to_merge};
use crate::database::Inner;
use crate::read_options::ReadOptions;
use crate::shape::TableFormats;
use crate::snapshot::Snapshot;
use crate::sources::{Source, shared_read_ahead};
use crate::table::{TableShared, TableState};
use crate::traces::{ScanTally, TableTraces, TracedRun};
use crate::tree::{OpenRun, Tree};

/// Walks the rows of a table forwards and backwards. Belongs to one thread at a time.
///
/// A new iterator stands on no row: seek first. It reads the state that the table had when it was made, or that of its
/// snapshot, whatever is written, compacted or dropped meanwhile. Until it is dropped it pins the memtables and files
/// of that state, so that a long-lived one costs memory and disk.
///
/// ```
/// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// # let table = database.create_table("kv", TableOptions::default())?;
/// for key in [b"a", b"b", b"c"] {
///     table.put(key, b"value", Durability::Os)?;
/// }
/// let mut rows = table.iter(&ReadOptions { lower: Some(b"b".to_vec()), ..ReadOptions::default() })?;
/// rows.seek_to_first()?;
/// let mut keys = Vec::new();
/// while rows.valid() {
///     keys.push(rows.key().to_vec());
///     rows.next()?;
/// }
/// assert_eq!(keys, [b"b", b"c"]);
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
///
/// # Errors
/// Every move may meet [`mycelium_base::ErrorKind::Corruption`], [`mycelium_base::ErrorKind::Io`], or an error of a
/// merge operator or of a transformer that maps values. Where the iterator stands then is not said: seek again, or drop
/// it. It goes on when the database is closed or its table dropped.
pub struct TableIterator {
    rows: Rows,
    counters: ReadCounters,
    /// Keeps the files from being removed.
    _state: Arc<TableState>,
    /// Keeps the versions from being dropped, if the iterator reads at a snapshot.
    _snapshot: Option<Snapshot>,
}

/// A row in one piece.
pub(crate) struct LyingRow<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Its format where it is lent as it lies: it has the wanted columns, and may have others. `None` where it is what
    /// the iterator was made for.
    pub(crate) lent: Option<&'a RowFormat>,
}

/// Where rows come from.
enum Rows {
    /// All sources hold whole rows.
    Whole(VisibleCursor<MergingCursor<Source>>),
    /// Put together from column groups, packed.
    Columns(ColumnMergingCursor<Source>),
    /// The same in the table's own format.
    Stored { rows: ColumnMergingCursor<Source>, formats: Arc<TableFormats>, scratch: Box<RowScratch>, row: Vec<u8> },
}

macro_rules! each_rows {
    ($self:expr, $rows:ident => $call:expr) => {
        match $self {
            Rows::Whole($rows) => $call,
            Rows::Columns($rows) | Rows::Stored { rows: $rows, .. } => $call,
        }
    };
}

impl Rows {
    #[inline]
    fn valid(&self) -> bool {
        each_rows!(self, rows => rows.valid())
    }

    #[inline(always)]
    fn key(&self) -> &[u8] {
        match self {
            Self::Whole(rows) => rows.key(),
            Self::Columns(rows) | Self::Stored { rows, .. } => joined_key(rows),
        }
    }

    #[inline(always)]
    fn value(&self) -> &[u8] {
        match self {
            Self::Whole(rows) => rows.value(),
            Self::Columns(rows) => joined_value(rows),
            Self::Stored { row, .. } => row,
        }
    }

    /// After every move.
    #[inline]
    fn settle(&mut self) -> Result<()> {
        if let Self::Stored { rows, formats, scratch, row } = self
            && rows.valid()
        {
            row.clear();
            formats.append_stored(rows.value(), scratch, row)?;
        }
        Ok(())
    }
}

// Kept out of what is inlined for whole rows.

#[inline(never)]
fn joined_key(rows: &ColumnMergingCursor<Source>) -> &[u8] {
    rows.key()
}

#[inline(never)]
fn joined_value(rows: &ColumnMergingCursor<Source>) -> &[u8] {
    rows.value()
}

/// The sources of an iteration and what it must know beside them.
struct Sources<'a> {
    cursors: Vec<Source>,
    /// The format in the tree of each.
    kinds: Vec<usize>,
    /// Those that are not empty, and of each the format of its source.
    range_deletes: Vec<Arc<RangeDeleteSet>>,
    range_delete_kinds: Vec<usize>,
    /// Those that are read block by block.
    layer_runs: Vec<LayerRunSource<'a>>,
    /// The files of the others, where memtables are not wanted.
    files: Vec<Arc<SstFile>>,
    counters: ReadCounters,
    bounds: (Option<Vec<u8>>, Option<Vec<u8>>),
}

/// A run that is read block by block, and its level.
struct LayerRunSource<'a> {
    cursor: LevelCursor<ColumnPosition>,
    level: usize,
    run: &'a OpenRun,
}

/// Which runs a read wants, and what of them.
#[derive(Clone, Default)]
struct WantedRuns<'a> {
    /// Those that share a column with these; all if `None`.
    columns: Option<&'a ColumnSet>,
    /// What takes the fragments of columnar runs.
    plan: Option<&'a MergePlan>,
    /// What counts the entries read.
    tally: Option<Arc<ScanTally>>,
    /// Those that are read block by block, not entry by entry.
    layer_runs: Vec<&'a OpenRun>,
    /// Of the others, and of memtables, those that may say something of columns with these marks; all if `None`.
    marks: Option<u64>,
    /// Whether these or memtables are not wanted.
    without: Option<Without>,
}

/// What a read does not want.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Memtables,
    Runs,
}

impl WantedRuns<'_> {
    /// Whether a run shares a column with what is wanted.
    fn shares(&self, run: &OpenRun) -> bool {
        let shares = |columns: &ColumnSet| run.files.first().is_some_and(|file| file.meta.overlaps_columns(columns));
        self.columns.is_none_or(shares)
    }

    /// The memtables that may have something that is wanted, newest first.
    fn memtables<'s>(&self, state: &'s TableState) -> impl Iterator<Item = &'s Arc<Memtable>> {
        state.memtables().filter(|memtable| !memtable.is_empty() && self.concern(|| memtable.marks()))
    }

    /// Whether entries with such marks may say something.
    fn concern(&self, marks: impl Fn() -> u64) -> bool {
        self.marks.is_none_or(|wanted| wanted & marks() != 0)
    }
}

impl<'a> Sources<'a> {
    /// The memtables and the runs that are wanted.
    fn new(
        table: &TableShared,
        state: &'a TableState,
        snapshot: SequenceNumber,
        options: &ReadOptions,
        wanted: &WantedRuns<'_>,
    ) -> Self {
        let bounds = options.bounds();
        let mut sources = Self {
            cursors: Vec::new(),
            kinds: Vec::new(),
            range_deletes: Vec::new(),
            range_delete_kinds: Vec::new(),
            layer_runs: Vec::new(),
            files: Vec::new(),
            counters: ReadCounters::default(),
            bounds: (None, None),
        };
        let filter_snapshots = table.definition.options.snapshot_filter;
        if wanted.without != Some(Without::Memtables) {
            sources.add_memtables(state, filter_snapshots.then_some(snapshot), wanted);
        }
        let cursor_options = CursorOptions {
            snapshot: if filter_snapshots { snapshot } else { mycelium_base::MAX_SEQUENCE_NUMBER },
            fill_cache: options.fill_cache,
            read_ahead: match options.read_ahead {
                0 => 0,
                bytes => shared_read_ahead(bytes, state.tree.runs().filter(|(_, run)| wanted.shares(run)).count()),
            },
            expected: 0,
        };
        let (lower, upper) = (bounds.0.as_deref(), bounds.1.as_deref());
        let mut prefix = ScanPrefix::new(lower, upper);
        for (level, run) in state.tree.runs() {
            if wanted.without != Some(Without::Runs) && wanted.shares(run) {
                let part = (run.within(lower, upper), &mut prefix);
                let expected = options.expected_rows.map_or(0, |rows| state.tree.bytes_of_rows(run, rows));
                let cursor_options = CursorOptions { expected, ..cursor_options };
                sources.add_run((level, run), part, state.tree.has_range_deletes, cursor_options, wanted);
            }
        }
        sources.bounds = bounds;
        sources
    }

    /// All memtables but those that a snapshot filter at `filter` rules out, or what is wanted.
    fn add_memtables(&mut self, state: &TableState, filter: Option<SequenceNumber>, wanted: &WantedRuns<'_>) {
        for memtable in wanted.memtables(state) {
            let oldest = memtable.sequence_range().map(|(oldest, _)| oldest);
            if filter.zip(oldest).is_some_and(|(snapshot, oldest)| oldest > snapshot) {
                self.counters.memtables_skipped_by_snapshot += 1;
                continue;
            }
            self.counters.memtables_searched += 1;
            for deletes in memtable.range_delete_sets().iter() {
                self.add_range_deletes(deletes.clone(), WHOLE);
            }
            self.cursors.push(Source::Memtable(memtable.cursor()));
            self.kinds.push(WHOLE);
        }
    }

    /// The files of a run that are within the bounds, and whose filters have the prefix of these.
    fn add_run(
        &mut self,
        (level, run): (usize, &'a OpenRun),
        (part, prefix): (Range<usize>, &mut ScanPrefix<'_>),
        has_range_deletes: bool,
        options: CursorOptions,
        wanted: &WantedRuns<'_>,
    ) {
        let files = &run.files[part.clone()];
        self.counters.files_considered += run.files.len() as u64;
        self.counters.files_skipped_by_fence += (run.files.len() - files.len()) as u64;
        if has_range_deletes {
            for file in files {
                self.add_range_deletes(file.sst.range_deletes().clone(), run.format);
            }
        }
        let in_layer = wanted.layer_runs.iter().any(|of_layer| std::ptr::eq(*of_layer, run));
        if !in_layer && !files.iter().any(|file| wanted.concern(|| file.marks())) {
            return;
        }
        let seen = files.iter().any(|file| file.sst.min_sequence() <= options.snapshot);
        if !seen {
            self.counters.files_skipped_by_snapshot += files.len() as u64;
            return;
        }
        let part = run.without_other_prefixes(part, prefix, &mut self.counters);
        let files = &run.files[part.clone()];
        if files.is_empty() {
            return;
        }
        // A long scan leaves its blocks in the cache where nothing has to go for them.
        let bytes = run.bytes_of(part.clone());
        let is_of_blocks = !wanted.layer_runs.is_empty();
        let fits = is_of_blocks && files.first().is_some_and(|file| file.sst.cache_room() >= bytes);
        let options = CursorOptions { fill_cache: options.fill_cache || fits, ..options };
        let layout = || match wanted.plan {
            Some(plan) if in_layer => WantedColumns::Blocks(plan.layout_of(run.format).clone()),
            Some(plan) => WantedColumns::Of(plan.layout_of(run.format).clone()),
            None => WantedColumns::All,
        };
        let cursor = match RunCursor::over_part(run.ssts.clone(), part, options, layout) {
            RunCursor::Columns(cursor) if in_layer => {
                return self.layer_runs.push(LayerRunSource { cursor, level, run });
            }
            cursor => cursor,
        };
        // Other reads cost no more for many files.
        if wanted.without == Some(Without::Memtables) {
            self.files.extend(files.iter().map(|file| file.sst.clone()));
        }
        let source = match &wanted.tally {
            Some(tally) => Source::Traced(Box::new(TracedRun::new(cursor, level, run.format, tally.clone()))),
            None => cursor.into(),
        };
        self.cursors.push(source);
        self.kinds.push(run.format);
    }

    fn add_range_deletes(&mut self, set: Arc<RangeDeleteSet>, kind: usize) {
        if !set.is_empty() {
            self.range_deletes.push(set);
            self.range_delete_kinds.push(kind);
        }
    }

    /// The rows as all sources hold them.
    fn whole(self, table: &TableShared, snapshot: SequenceNumber) -> Rows {
        let (lower, upper) = self.bounds;
        let merged = MergingCursor::new(self.cursors);
        let combiner = table.combiner.clone();
        Rows::Whole(VisibleCursor::new(merged, snapshot, self.range_deletes, combiner, lower, upper))
    }

    /// All entries of a derived table, as they are.
    fn entries(self) -> MergingCursor<Source> {
        MergingCursor::new(self.cursors)
    }

    /// The rows put together.
    fn columns(self, plan: Arc<MergePlan>, snapshot: SequenceNumber) -> ColumnMergingCursor<Source> {
        let (lower, upper) = self.bounds;
        let merge = ColumnMerge::new(plan);
        let range_deletes = self.range_deletes.into_iter().zip(self.range_delete_kinds).collect();
        ColumnMergingCursor::new((self.cursors, self.kinds), merge, snapshot, range_deletes, lower, upper)
    }
}

/// The runs that a scan for `columns` can read block by block: the oldest ones, as far as they are columnar. `None` if
/// they do not have all of the columns.
fn columnar_runs<'t>(tree: &'t Tree, columns: &ColumnSet) -> Option<Vec<&'t OpenRun>> {
    let mut missing = columns.clone();
    let mut columnar = Vec::new();
    for (_, run) in tree.runs().rev() {
        let Some(file) = run.files.first() else { continue };
        let own = tree.formats.get(run.format)?.columns();
        if !own.overlaps(columns) {
            continue;
        }
        if !file.sst.is_columnar() {
            break;
        }
        missing.remove_all(own);
        columnar.push(run);
    }
    (missing.is_empty() && !columnar.is_empty()).then_some(columnar)
}

/// A scan of the wanted columns that reads blocks of columns, where the files are such, for a builder with the layout
/// of the rows. Else `None`. What it reads is counted in `traces`.
pub(crate) fn block_scan(
    table: &TableShared,
    traces: Option<&Arc<TableTraces>>,
    (state, snapshot): (&TableState, SequenceNumber),
    options: &ReadOptions,
    wanted: &ColumnSet,
    (filter, filter_plan): (Option<&Filter>, FilterPlan),
) -> Result<Option<BlockScan>> {
    if !state.tree.has_groups {
        return Ok(None);
    }
    let Some(columns) = columns_to_merge(&state.tree, wanted) else { return Ok(None) };
    // Of a column that was added later such a run has no pages.
    if state.tree.formats.iter().any(|format| format.lacks(&columns)) {
        return Ok(None);
    }
    let Some(layer_runs) = columnar_runs(&state.tree, &columns) else { return Ok(None) };
    let plan = table.merge_plan(&state.tree, Some(wanted))?;
    let runs = WantedRuns {
        columns: Some(&columns),
        plan: Some(&plan),
        tally: ScanTally::new(traces, &state.tree, Some(wanted)),
        layer_runs,
        marks: Some(marks_of(columns.iter())),
        without: None,
    };
    let sources = Sources::new(table, state, snapshot, options, &runs);
    let deltas = match options.expected_rows.is_none() {
        true => {
            let base = base_of(&sources.layer_runs, &columns, &state.tree);
            base.and_then(|base| delta_parts(table, (state, snapshot), options, &runs, (&sources.layer_runs, base)))
        }
        false => None,
    };
    let filter = filter.map(|filter| RowFilter::new(plan.layout().clone(), filter));
    let layer_run = |LayerRunSource { cursor, level, run }: LayerRunSource<'_>| {
        let share = state.tree.formats[run.format].columns().intersection(&columns);
        LayerRun::new(cursor, (level, run.format), share, plan.layout_of(run.format), filter.as_ref())
    };
    let layer_runs = sources.layer_runs.into_iter().map(layer_run).collect();
    let range_deletes = sources.range_deletes.into_iter().zip(sources.range_delete_kinds).collect();
    let parts = BlockScanParts {
        snapshot,
        columns: columns.clone(),
        runs: layer_runs,
        rest: (sources.cursors, sources.kinds),
        deltas,
        range_deletes,
        bounds: sources.bounds,
        tally: runs.tally.clone(),
        counters: sources.counters,
        plan: plan.clone(),
        filter,
        filter_plan,
    };
    BlockScan::new(parts).map(Some)
}

/// The places of the oldest run of each column among runs, youngest first; `None` if a column is in none of them, or if
/// another run is older than one of these.
fn base_of(runs: &[LayerRunSource<'_>], columns: &ColumnSet, tree: &Tree) -> Option<Vec<usize>> {
    let (mut missing, mut base) = (columns.clone(), Vec::new());
    for (at, source) in runs.iter().enumerate().rev() {
        let share = tree.formats[source.run.format].columns().intersection(columns);
        if share.is_subset(&missing) {
            missing.remove_all(&share);
            base.insert(0, at);
        } else if share.overlaps(&missing) {
            // It is older than the oldest run that has some of its columns alone.
            return None;
        }
    }
    missing.is_empty().then_some(base)
}

/// The sources of a block scan but for those of the base, parted: files, and what of the oldest memtable does not
/// change any more, are settled. `None` if nothing is.
fn delta_parts(
    table: &TableShared,
    (state, snapshot): (&TableState, SequenceNumber),
    options: &ReadOptions,
    wanted: &WantedRuns<'_>,
    (runs, base): (&[LayerRunSource<'_>], Vec<usize>),
) -> Option<DeltaParts> {
    let part = |without| {
        let layer_runs = base.iter().map(|&at| runs[at].run).collect();
        let part = WantedRuns { without: Some(without), layer_runs, ..wanted.clone() };
        Sources::new(table, state, snapshot, options, &part)
    };
    let (mut unsettled, mut settled) = (part(Without::Runs), part(Without::Memtables));
    let mut memtable = None;
    if let Some((oldest, source)) = wanted.memtables(state).last().zip(unsettled.cursors.last_mut())
        && let Some(part) = table.settled.part_of(oldest, snapshot)
        && let bounds = (unsettled.bounds.0.as_deref(), unsettled.bounds.1.as_deref())
        && let Some(recent) = oldest.recent(part.count, snapshot, bounds)
    {
        let whole = std::mem::replace(source, Source::Recent(recent));
        settled.cursors.push(whole);
        settled.kinds.push(WHOLE);
        let key = |key: Option<&[u8]>| key.unwrap_or_default().to_vec();
        memtable = Some(SettledPart { part, first: key(oldest.first_key()), last: key(oldest.last_key()) });
    }
    (!settled.cursors.is_empty()).then(|| DeltaParts {
        base,
        unsettled: (unsettled.cursors, unsettled.kinds),
        settled: (settled.cursors, settled.kinds),
        files: settled.files,
        memtable,
    })
}

/// All entries of a derived table within the options' bounds, but those of places that hold nothing the snapshot sees.
pub(crate) fn derived_entries(
    table: &TableShared,
    state: &TableState,
    snapshot: SequenceNumber,
    options: &ReadOptions,
) -> (MergingCursor<Source>, ReadCounters) {
    let sources = Sources::new(table, state, snapshot, options, &WantedRuns::default());
    let counters = sources.counters;
    (sources.entries(), counters)
}

impl TableIterator {
    /// Rows in the table's own format; what is read of them is counted in `traces`.
    pub(crate) fn new(
        database: &Inner,
        table: &TableShared,
        traces: Option<&Arc<TableTraces>>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let (state, snapshot) = Self::moment(database, table, options)?;
        let joined = table.formats.as_ref().filter(|_| state.tree.has_groups);
        let plan = joined.map(|_| table.merge_plan(&state.tree, None)).transpose()?;
        let tally = ScanTally::new(traces, &state.tree, None);
        let wanted = WantedRuns { plan: plan.as_deref(), tally, ..WantedRuns::default() };
        let sources = Sources::new(table, &state, snapshot, options, &wanted);
        let counters = sources.counters;
        let rows = match joined.zip(plan) {
            Some((formats, plan)) => {
                let rows = sources.columns(plan, snapshot);
                match formats.is_packed() {
                    true => Rows::Columns(rows),
                    false => Rows::Stored { rows, formats: formats.clone(), scratch: Box::default(), row: Vec::new() },
                }
            }
            None => sources.whole(table, snapshot),
        };
        Ok(Self { rows, counters, _state: state, _snapshot: options.snapshot.clone() })
    }

    /// Packed rows that have at least the wanted columns of a typed table, and their layout. Runs that hold none of
    /// them take no part.
    pub(crate) fn packed(
        database: &Inner,
        table: &TableShared,
        options: &ReadOptions,
        wanted: &ColumnSet,
    ) -> Result<(Self, Arc<PackedLayout>)> {
        let moment = Self::moment(database, table, options)?;
        Self::packed_at(table, table.traces.as_ref(), moment, options, wanted)
    }

    /// The state of the table, and the sequence number to read at.
    pub(crate) fn moment(
        database: &Inner,
        table: &TableShared,
        options: &ReadOptions,
    ) -> Result<(Arc<TableState>, SequenceNumber)> {
        let (state, snapshot) = database.read_moment(table, options.snapshot.as_ref())?;
        database.look_before_scan(table);
        Ok((Guard::into_inner(state), snapshot))
    }

    /// The same at one moment: a state of the table, and a sequence number that was the newest, or read, after it. What
    /// is read is counted in `traces`.
    pub(crate) fn packed_at(
        table: &TableShared,
        traces: Option<&Arc<TableTraces>>,
        (state, snapshot): (Arc<TableState>, SequenceNumber),
        options: &ReadOptions,
        wanted: &ColumnSet,
    ) -> Result<(Self, Arc<PackedLayout>)> {
        let formats = table.typed_formats()?;
        if formats.is_packed() && !state.tree.has_groups {
            let rows = Self::stored_at(table, traces, (state, snapshot), options, wanted);
            return Ok((rows, formats.packed_layout().clone()));
        }
        let (to_merge, plan) = (columns_to_merge(&state.tree, wanted), table.merge_plan(&state.tree, Some(wanted))?);
        let tally = ScanTally::new(traces, &state.tree, Some(wanted));
        let runs = WantedRuns { columns: to_merge.as_ref(), plan: Some(&plan), tally, ..WantedRuns::default() };
        let sources = Sources::new(table, &state, snapshot, options, &runs);
        let (counters, layout) = (sources.counters, plan.layout().clone());
        let rows = Rows::Columns(sources.columns(plan, snapshot));
        Ok((Self { rows, counters, _state: state, _snapshot: options.snapshot.clone() }, layout))
    }

    /// The same, which lends packed rows as they lie where it can: see [`TableIterator::lent`] and
    /// [`TableIterator::parts`].
    pub(crate) fn lending(self) -> Self {
        let rows = match self.rows {
            Rows::Columns(rows) => Rows::Columns(rows.lending()),
            rows => rows,
        };
        Self { rows, ..self }
    }

    /// Shows `visit` the current row and those behind it, for as long as each lies in one piece where its place lends
    /// it; to the end, or until `visit` says `false`, and the iterator stays on that row. `false` if the current row
    /// is to be had one by one.
    pub(crate) fn visit_lying(&mut self, mut visit: impl FnMut(&LyingRow<'_>) -> bool) -> Result<bool> {
        match &mut self.rows {
            Rows::Whole(rows) => rows.visit(|key, value| visit(&LyingRow { key, value, lent: None })),
            Rows::Columns(rows) => {
                rows.visit_lent(|key, value, format| visit(&LyingRow { key, value, lent: Some(format) }))
            }
            Rows::Stored { .. } => Ok(false),
        }
    }

    /// The current row, if it is not lent in parts.
    pub(crate) fn lying(&self) -> LyingRow<'_> {
        LyingRow { key: self.key(), value: self.value(), lent: self.lent() }
    }

    /// The format of the current row where it is lent; `None` where it is packed, of the wanted columns alone, or in
    /// parts.
    fn lent(&self) -> Option<&RowFormat> {
        match &self.rows {
            Rows::Columns(rows) => rows.lent(),
            _ => None,
        }
    }

    /// What the current row is to be put together from, where it is lent in parts; it has no value then.
    pub(crate) fn parts(&self) -> Option<impl Iterator<Item = RowPart<'_>>> {
        match &self.rows {
            Rows::Columns(rows) => rows.parts(),
            _ => None,
        }
    }

    /// Whole rows as they are stored, for somebody who wants these columns of them, of a table that has no column
    /// groups at this moment.
    pub(crate) fn stored_at(
        table: &TableShared,
        traces: Option<&Arc<TableTraces>>,
        (state, snapshot): (Arc<TableState>, SequenceNumber),
        options: &ReadOptions,
        wanted: &ColumnSet,
    ) -> Self {
        debug_assert!(!state.tree.has_groups, "rows are to be put together");
        let tally = ScanTally::new(traces, &state.tree, Some(wanted));
        let runs = WantedRuns { tally, ..WantedRuns::default() };
        let sources = Sources::new(table, &state, snapshot, options, &runs);
        let counters = sources.counters;
        let rows = sources.whole(table, snapshot);
        Self { rows, counters, _state: state, _snapshot: options.snapshot.clone() }
    }

    /// Whether the iterator stands on a row.
    #[inline]
    pub fn valid(&self) -> bool {
        self.rows.valid()
    }

    /// The row's key, until the next move. The iterator must be valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.rows.key()
    }

    /// The row's value, until the next move. The iterator must be valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.rows.value()
    }

    /// To the first row within the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        each_rows!(&mut self.rows, rows => rows.seek_to_first())?;
        self.rows.settle()
    }

    /// To the last row within the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        each_rows!(&mut self.rows, rows => rows.seek_to_last())?;
        self.rows.settle()
    }

    /// To the first row at or after `key`, within the bounds. The iterator is invalid if there is none.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        each_rows!(&mut self.rows, rows => rows.seek(key))?;
        self.rows.settle()
    }

    /// To the last row at or before `key`, within the bounds. The iterator is invalid if there is none.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        each_rows!(&mut self.rows, rows => rows.seek_for_prev(key))?;
        self.rows.settle()
    }

    /// To the next row; behind the last one the iterator is invalid. Does nothing on an invalid iterator.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "rows are lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<()> {
        if self.rows.valid() {
            each_rows!(&mut self.rows, rows => rows.next())?;
        }
        self.rows.settle()
    }

    /// To the previous row; before the first one the iterator is invalid. Does nothing on an invalid iterator.
    pub fn prev(&mut self) -> Result<()> {
        if self.rows.valid() {
            each_rows!(&mut self.rows, rows => rows.prev())?;
        }
        self.rows.settle()
    }

    /// What this iterator has read and skipped so far.
    pub fn counters(&self) -> ReadCounters {
        let mut counters = self.counters;
        each_rows!(&self.rows, rows => rows.add_counters(&mut counters));
        counters
    }
}
