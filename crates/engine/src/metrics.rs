//! Metrics: counters kept while the engine works, and a snapshot of them together with the state of the tree.

use mycelium_base::Group;
use mycelium_base::limits::MAX_LEVELS;
use mycelium_cache::CacheStats;
use mycelium_compaction::job::StageTimes;
use mycelium_manifest::Level;
use mycelium_merge::StreamCounters;

use crate::archive::Archiver;
use crate::database::{Database, Inner};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tree::{OpenSegments, Tree};

/// Counters since the database was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flush_bytes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) trivial_moves: AtomicU64,
    pub(crate) reshaping_compactions: AtomicU64,
    pub(crate) deferring_compactions: AtomicU64,
    pub(crate) compaction_entries_encoded: AtomicU64,
    pub(crate) compaction_cpu_nanoseconds: AtomicU64,
    pub(crate) most_compaction_memory: AtomicU64,
    pub(crate) ingested_bytes: AtomicU64,
    pub(crate) slowdowns: AtomicU64,
    pub(crate) slowdown_nanoseconds: AtomicU64,
    pub(crate) stops: AtomicU64,
    pub(crate) stop_nanoseconds: AtomicU64,
    pub(crate) recovered_records: AtomicU64,
    pub(crate) index_candidates: AtomicU64,
    pub(crate) index_stale: AtomicU64,
    pub(crate) index_only: AtomicU64,
    pub(crate) expiry_passes: AtomicU64,
    pub(crate) expired_rows: AtomicU64,
    read_by_level: [AtomicU64; MAX_LEVELS],
    written_by_level: [AtomicU64; MAX_LEVELS],
    invalidated_by_level: [AtomicU64; MAX_LEVELS],
    stages: Mutex<Stages>,
}

#[derive(Clone, Copy, Default)]
struct Stages {
    flush: StageTimes,
    compaction: StageTimes,
    entries: StreamCounters,
}

impl Counters {
    pub(crate) fn add_flush_stages(&self, stages: StageTimes) {
        self.stages.lock().flush += stages;
    }

    pub(crate) fn add_compaction_stages(&self, stages: StageTimes, entries: StreamCounters) {
        let mut all = self.stages.lock();
        all.compaction += stages;
        all.entries += entries;
    }

    /// Cached blocks of a level that nobody asks for any more.
    pub(crate) fn add_invalidated(&self, level: usize, blocks: u64) {
        if let Some(invalidated) = self.invalidated_by_level.get(level) {
            invalidated.fetch_add(blocks, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_compaction(&self, output_level: usize, bytes_read: u64, bytes_written: u64) {
        self.compactions.fetch_add(1, Ordering::Relaxed);
        if let (Some(read), Some(written)) =
            (self.read_by_level.get(output_level), self.written_by_level.get(output_level))
        {
            read.fetch_add(bytes_read, Ordering::Relaxed);
            written.fetch_add(bytes_written, Ordering::Relaxed);
        }
    }
}

/// One level of one table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LevelMetrics {
    /// The level.
    pub level: usize,
    /// Its runs.
    pub runs: usize,
    /// Its files.
    pub files: usize,
    /// Bytes of its files.
    pub bytes: u64,
    /// Entries in its files.
    pub entries: u64,
    /// How urgent its compaction is; 1.0 is due.
    pub score: f64,
    /// Its column groups; none where all its files hold whole rows.
    pub groups: Vec<GroupMetrics>,
}

/// One column group of one level, or its whole rows.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMetrics {
    /// The group; `None` is whole rows in the table's own format.
    pub group: Option<Group>,
    /// Its runs.
    pub runs: usize,
    /// Its files.
    pub files: usize,
    /// Bytes of its files.
    pub bytes: u64,
    /// Entries in its files.
    pub entries: u64,
}

/// The compaction buffer of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferMetrics {
    /// Files that are in no level any more.
    pub files: usize,
    /// What they take on the disk.
    pub bytes: u64,
    /// Segments of all parts: these files and others, each as often as it stands for a part.
    pub segments: usize,
    /// Segments that lie over one another where most do: what a lookup may ask, of all parts together.
    pub tables: usize,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableMetrics {
    /// Its name.
    pub name: String,
    /// Its levels, down to the last that holds files.
    pub levels: Vec<LevelMetrics>,
    /// Bytes of its memtables.
    pub memtable_bytes: u64,
    /// Entries in its memtables.
    pub memtable_entries: u64,
    /// Its compaction buffer.
    pub buffer: BufferMetrics,
    /// Runs that a point read may have to look at: its read amplification.
    pub read_amplification: usize,
    /// Bytes of all levels over the bytes of the last: an upper estimate of its space amplification.
    pub space_amplification: f64,
    /// Bytes that compaction has yet to rewrite.
    pub debt_bytes: u64,
    /// Bytes that are not in the column groups of their level: transformations that were deferred, or that a change of
    /// the layout asks for.
    pub deferred_bytes: u64,
    /// Bytes of the dictionaries and symbol tables of its columnar files. They are kept in memory while the cache has
    /// room for them, and cached like blocks otherwise.
    pub dictionary_bytes: u64,
    /// Of the derived table of an index: how much of what was in the table when the index was created has been read for
    /// it, 0 to 1; 1 if it is built. `None` of other tables.
    pub fraction_built: Option<f64>,
}

/// A sequence number that live snapshots hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SnapshotMetrics {
    /// The sequence number.
    pub sequence: u64,
    /// Snapshots that hold it.
    pub handles: usize,
    /// Seconds since it was first taken.
    pub seconds: f64,
    /// Entries committed since: versions that these supersede are kept for the snapshot.
    pub lag: u64,
}

/// What the database is doing and has done since it was opened.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// The tables.
    pub tables: Vec<TableMetrics>,
    /// Batches committed.
    pub batches: u64,
    /// Operations committed.
    pub operations: u64,
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Generations flushed.
    pub flushes: u64,
    /// Bytes they wrote.
    pub flush_bytes: u64,
    /// Bytes of bulk-ingested files.
    pub ingested_bytes: u64,
    /// Compactions, trivial moves included.
    pub compactions: u64,
    /// Compactions that only moved files.
    pub trivial_moves: u64,
    /// Compactions that changed column groups or their formats.
    pub reshaping_compactions: u64,
    /// Compactions that left that for later, being behind.
    pub deferring_compactions: u64,
    /// Bytes that compactions read, by output level.
    pub compaction_read_by_level: Vec<u64>,
    /// Bytes that compactions wrote, by output level.
    pub compaction_written_by_level: Vec<u64>,
    /// Data blocks that were cached when a compaction took their files out of each level, or out of the compaction
    /// buffer beside it: what was cached for nothing since.
    pub invalidated_blocks_by_level: Vec<u64>,
    /// (log + flush + compaction bytes) / log bytes.
    pub write_amplification: f64,
    /// Entries that went through compactions.
    pub compaction_entries: StreamCounters,
    /// Those of them whose values were never decoded: their cells went from file to file as they were.
    pub compaction_entries_encoded: u64,
    /// Bytes of columns that a compaction held at most until its files were complete: see
    /// [`crate::Options::compaction_memory`].
    pub most_compaction_memory: u64,
    /// Seconds of CPU that compactions took, added up over threads.
    pub compaction_cpu_seconds: f64,
    /// Time of flushes by stage, nanoseconds.
    pub flush_stages: StageTimes,
    /// Time of compactions by stage, nanoseconds.
    pub compaction_stages: StageTimes,
    /// Pauses of slowed writers.
    pub slowdowns: u64,
    /// Seconds they took.
    pub slowdown_seconds: f64,
    /// Bytes a second to which writers are held at present, 0 if they are stopped; `None` if they are free.
    pub slowed_bytes_per_second: Option<u64>,
    /// Times writers were stopped.
    pub stops: u64,
    /// Seconds they were.
    pub stop_seconds: f64,
    /// Entries of indexes that lookups looked at.
    pub index_candidates: u64,
    /// Those that were not their rows' any more.
    pub index_stale: u64,
    /// Those that answered without their rows.
    pub index_only: u64,
    /// Passes over tables whose rows expire.
    pub expiry_passes: u64,
    /// Rows that they deleted.
    pub expired_rows: u64,
    /// Row locks that transactions hold.
    pub row_locks: usize,
    /// Transactions that wait for one.
    pub row_lock_waiters: usize,
    /// Waits for one that are over, whatever came of them.
    pub row_lock_waits: u64,
    /// Seconds that they took.
    pub row_lock_wait_seconds: f64,
    /// Waits that were refused, for they would have ended in a deadlock.
    pub row_lock_deadlocks: u64,
    /// Waits that ended with their timeout.
    pub row_lock_timeouts: u64,
    /// Bytes of all memtables.
    pub memtable_bytes: u64,
    /// Generations waiting for their flush.
    pub sealed_generations: usize,
    /// Compactions running now.
    pub running_compactions: usize,
    /// Live snapshots.
    pub snapshots: usize,
    /// The oldest live snapshot's sequence number.
    pub oldest_snapshot: Option<u64>,
    /// Seconds it has been held.
    pub oldest_snapshot_seconds: f64,
    /// Entries committed since it was taken: what it may keep compaction from dropping.
    pub oldest_snapshot_lag: u64,
    /// The live snapshots by sequence number, oldest first.
    pub live_snapshots: Vec<SnapshotMetrics>,
    /// Bytes of files that no version names any more but iterators or snapshots' readers still hold.
    pub pinned_bytes: u64,
    /// The block cache.
    pub cache: CacheStats,
    /// Segments of the log that were archived.
    pub archived_segments: u64,
    /// Their bytes.
    pub archived_bytes: u64,
    /// Times that one could not be.
    pub archive_failures: u64,
    /// Bytes of segments that recovery does not need and the archive lacks.
    pub unarchived_bytes: u64,
    /// Log records replayed when the database was opened.
    pub recovered_records: u64,
}

impl Database {
    /// A snapshot of all metrics. O(files); takes the engine's lock for that long.
    pub fn metrics(&self) -> Metrics {
        self.inner.metrics()
    }
}

impl Inner {
    fn metrics(&self) -> Metrics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (c, locks) = (&self.counters, &self.locks.counters);
        let archive = |number: fn(&Archiver) -> u64| self.archive.as_ref().map_or(0, number);
        let stages = *c.stages.lock();
        let written: Vec<u64> = c.written_by_level.iter().map(load).collect();
        let total = load(&c.log_bytes) + load(&c.flush_bytes) + written.iter().sum::<u64>();
        let held = self.snapshots.held();
        let visible = self.visible.load(Ordering::Acquire);
        let (tables, sealed_generations, running_compactions) = {
            let core = self.core.lock();
            let tables: Vec<TableMetrics> = core.tables.values().map(|table| table_metrics(table)).collect();
            (tables, core.generations.len(), core.busy.job_count())
        };
        Metrics {
            memtable_bytes: tables.iter().map(|table| table.memtable_bytes).sum(),
            tables,
            batches: load(&c.batches),
            operations: load(&c.operations),
            log_bytes: load(&c.log_bytes),
            flushes: load(&c.flushes),
            index_candidates: load(&c.index_candidates),
            index_stale: load(&c.index_stale),
            index_only: load(&c.index_only),
            expiry_passes: load(&c.expiry_passes),
            expired_rows: load(&c.expired_rows),
            flush_bytes: load(&c.flush_bytes),
            ingested_bytes: load(&c.ingested_bytes),
            compactions: load(&c.compactions),
            trivial_moves: load(&c.trivial_moves),
            reshaping_compactions: load(&c.reshaping_compactions),
            deferring_compactions: load(&c.deferring_compactions),
            compaction_read_by_level: c.read_by_level.iter().map(load).collect(),
            compaction_written_by_level: written,
            invalidated_blocks_by_level: c.invalidated_by_level.iter().map(load).collect(),
            write_amplification: total as f64 / load(&c.log_bytes).max(1) as f64,
            compaction_entries: stages.entries,
            compaction_entries_encoded: load(&c.compaction_entries_encoded),
            most_compaction_memory: load(&c.most_compaction_memory),
            compaction_cpu_seconds: load(&c.compaction_cpu_nanoseconds) as f64 / 1e9,
            flush_stages: stages.flush,
            compaction_stages: stages.compaction,
            slowdowns: load(&c.slowdowns),
            slowdown_seconds: load(&c.slowdown_nanoseconds) as f64 / 1e9,
            slowed_bytes_per_second: self.stalls.bytes_per_second(),
            stops: load(&c.stops),
            stop_seconds: load(&c.stop_nanoseconds) as f64 / 1e9,
            row_locks: self.locks.held_count(),
            row_lock_waiters: self.locks.waiting_count(),
            row_lock_waits: load(&locks.waits),
            row_lock_wait_seconds: load(&locks.wait_nanoseconds) as f64 / 1e9,
            row_lock_deadlocks: load(&locks.deadlocks),
            row_lock_timeouts: load(&locks.timeouts),
            sealed_generations,
            running_compactions,
            snapshots: held.iter().map(|(_, handles, _)| handles).sum(),
            oldest_snapshot: held.first().map(|(sequence, ..)| *sequence),
            oldest_snapshot_seconds: held.first().map_or(0.0, |(.., seconds)| *seconds),
            oldest_snapshot_lag: held.first().map_or(0, |(sequence, ..)| visible - sequence),
            live_snapshots: held
                .into_iter()
                .map(|(sequence, handles, seconds)| SnapshotMetrics {
                    sequence,
                    handles,
                    seconds,
                    lag: visible - sequence,
                })
                .collect(),
            pinned_bytes: self.graveyard.pinned_bytes(),
            cache: self.cache.stats(),
            archived_segments: archive(|archive| archive.segments.load(Ordering::Relaxed)),
            archived_bytes: archive(|archive| archive.bytes.load(Ordering::Relaxed)),
            archive_failures: archive(|archive| archive.failures.load(Ordering::Relaxed)),
            unarchived_bytes: archive(Archiver::waiting_bytes),
            recovered_records: load(&c.recovered_records),
        }
    }
}

/// What a level holds by column group.
pub(crate) fn group_metrics(level: &Level) -> Vec<GroupMetrics> {
    let mut groups: Vec<GroupMetrics> = Vec::new();
    for run in &level.runs {
        let group = run.group().map(|group| (**group).clone());
        let at = groups.iter().position(|known| known.group == group).unwrap_or_else(|| {
            groups.push(GroupMetrics { group, runs: 0, files: 0, bytes: 0, entries: 0 });
            groups.len() - 1
        });
        groups[at].runs += 1;
        groups[at].files += run.files.len();
        groups[at].bytes += run.bytes();
        groups[at].entries += run.files.iter().map(|file| file.entry_count).sum::<u64>();
    }
    if groups.iter().all(|known| known.group.is_none()) {
        groups.clear();
    }
    let first_column = |known: &GroupMetrics| known.group.as_ref().and_then(|group| group.columns.iter().next());
    groups.sort_by_key(first_column);
    groups
}

fn table_metrics(table: &crate::table::TableShared) -> TableMetrics {
    let state = table.state.load();
    let version = &state.tree.version;
    let shape = table.shape.load();
    let policy = shape.policy(version);
    let scores = policy.scores(version);
    let deepest = version.last_level().map_or(0, |level| level + 1);
    let levels: Vec<LevelMetrics> = (0..deepest)
        .map(|level| LevelMetrics {
            level,
            runs: version.level(level).runs.len(),
            files: version.level(level).file_count(),
            bytes: version.level_bytes(level),
            entries: version.level(level).files().map(|file| file.entry_count).sum(),
            score: scores.get(level).copied().unwrap_or(0.0),
            groups: group_metrics(version.level(level)),
        })
        .collect();
    let last = levels.last().map_or(0, |level| level.bytes);
    let runs = state.tree.levels.iter().flatten();
    TableMetrics {
        name: table.name.clone(),
        // The one that tables share until they are written to is none of theirs.
        memtable_bytes: state
            .memtables()
            .filter(|memtable| !memtable.is_empty())
            .map(|memtable| memtable.memory_usage() as u64)
            .sum(),
        memtable_entries: state.memtables().map(|memtable| memtable.entry_count()).sum(),
        read_amplification: levels.iter().map(|level| level.runs).sum(),
        space_amplification: if last == 0 { 1.0 } else { version.total_bytes() as f64 / last as f64 },
        debt_bytes: policy.debt_bytes(version),
        deferred_bytes: policy.deferred_bytes(version),
        dictionary_bytes: runs.flat_map(|run| run.ssts.iter()).map(|sst| sst.coding_bytes()).sum(),
        fraction_built: table.index.as_ref().map(|index| index.fraction_built()),
        buffer: buffer_metrics(&state.tree),
        levels,
    }
}

fn buffer_metrics(tree: &Tree) -> BufferMetrics {
    let version = &tree.version;
    let parts = tree.levels.iter().flatten().filter_map(|run| run.buffer.as_deref());
    BufferMetrics {
        files: version.buffered_files().count(),
        bytes: version.buffered_files().map(|file| file.size).sum(),
        segments: version.rounds.iter().map(|round| round.files().count()).sum(),
        tables: parts.map(OpenSegments::depth).sum(),
    }
}
