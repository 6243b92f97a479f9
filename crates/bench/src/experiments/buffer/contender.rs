//! Our engine in the ways that are compared: leveled; two-phase, without and with the buffer, and with it where
//! compactions cache the successors of cached blocks; stepped merge (Jagadish et al. 1997: r runs a level, never merged
//! within it); leveled where compactions cache these successors, or all that they write, or what they read; and
//! two-phase without updates and compactions, alone and beside another database, the buffer's, that has them: which
//! tells what they cost reads of any database on the same processors. Two-phase without the buffer is the paper's plain
//! LSM-tree (§VII-A).

use std::path::Path;
use std::sync::Arc;

use mycelium_engine::{
    Background, Buffering, CompactionCaching, Database, Durability, LeveledOptions, Options, Policy, ReadCounters,
    ReadOptions, Table, TableOptions, TieredOptions, Warm,
};
use mycelium_vfs::LocalDisk;

use super::subject::{Blocks, Figures, Opener, Sizes, Subject};
use crate::bench_disk::BenchDisk;
use crate::slow_disk::SlowDisk;
use crate::store::Result;

/// Bits of Bloom filter per key: the paper's, for all, the buffer's wider filters included.
const FILTER_BITS: u32 = 15;
/// Of these, what the wider filters of the buffer add by themselves at this fan-out.
const BUFFER_FILTER_BITS: u32 = 5;

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contender {
    ReadOnly,
    ReadOnlyBeside,
    Leveled,
    TwoPhase,
    Buffer,
    BufferSuccessors,
    SteppedMerge,
    AdmitInputs,
    Successors,
    WarmEverything,
}

impl Contender {
    pub(super) const ALL: [Self; 10] = [
        Self::ReadOnly,
        Self::ReadOnlyBeside,
        Self::Leveled,
        Self::TwoPhase,
        Self::Buffer,
        Self::BufferSuccessors,
        Self::SteppedMerge,
        Self::AdmitInputs,
        Self::Successors,
        Self::WarmEverything,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::ReadOnlyBeside => "read-only-beside",
            Self::Leveled => "leveled",
            Self::TwoPhase => "two-phase",
            Self::Buffer => "buffer",
            Self::BufferSuccessors => "buffer-successors",
            Self::SteppedMerge => "stepped-merge",
            Self::AdmitInputs => "admit-inputs",
            Self::Successors => "successors",
            Self::WarmEverything => "warm-everything",
        }
    }

    /// Whether its rows are updated.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::ReadOnlyBeside)
    }

    /// Whose rows, of another database, are updated instead while its own are read.
    pub(super) fn beside(self) -> Option<Self> {
        (self == Self::ReadOnlyBeside).then_some(Self::BufferSuccessors)
    }

    fn has_buffer(self) -> bool {
        matches!(self, Self::Buffer | Self::BufferSuccessors)
    }

    fn caching(self) -> CompactionCaching {
        let warm = match self {
            Self::Successors | Self::BufferSuccessors => Warm::Successors,
            Self::WarmEverything => Warm::Everything,
            _ => Warm::Nothing,
        };
        CompactionCaching { warm, admit_inputs: self == Self::AdmitInputs }
    }

    fn table_options(self, sizes: Sizes) -> Result<TableOptions> {
        let leveled = LeveledOptions {
            base_level_bytes: sizes.base_level_bytes(),
            fanout: Sizes::FANOUT as f64,
            level_count: Sizes::LEVELS,
            target_file_size: sizes.file_bytes(),
            max_compaction_bytes: 25 * sizes.file_bytes(),
            dynamic_levels: false,
            ..LeveledOptions::default()
        };
        let tiered = TieredOptions {
            runs_per_level: Sizes::FANOUT as usize,
            level_count: Sizes::LEVELS,
            target_file_size: sizes.file_bytes(),
            max_space_amplification_percent: 100_000,
        };
        Ok(TableOptions {
            policy: match self {
                Self::ReadOnly | Self::ReadOnlyBeside | Self::TwoPhase | Self::Buffer | Self::BufferSuccessors => {
                    Policy::TwoPhase(leveled)
                }
                Self::SteppedMerge => Policy::Tiered(tiered),
                _ => Policy::Leveled(leveled),
            },
            buffer: if self.has_buffer() { Buffering::Full } else { Buffering::Off },
            filter_bits: vec![FILTER_BITS - if self.has_buffer() { BUFFER_FILTER_BITS } else { 0 }],
            ..TableOptions::default()
        })
    }

    /// How it is opened, and the disk on which it lies then.
    pub(super) fn opener(self) -> (Box<Opener<'static>>, SlowDisk) {
        let disk = SlowDisk::new(Arc::new(BenchDisk::new(Arc::new(LocalDisk), true, false)));
        let shared = disk.clone();
        let open = move |directory: &Path, sizes: Sizes, is_loaded: bool| -> Result<Box<dyn Subject>> {
            let options = Options {
                disk: Arc::new(shared.clone()),
                memory_budget: usize::try_from(sizes.write_buffer_bytes())?,
                cache_bytes: sizes.cache_bytes,
                index_and_filter_bytes: Some(sizes.data_bytes() / 10),
                buffer_bytes: sizes.data_bytes() / 4,
                compaction_caching: self.caching(),
                background: Background::Threads(2),
                // Without compactions from now on, those at rest included.
                read_only: is_loaded && !self.writes(),
                ..Options::default()
            };
            let database = Database::open(directory, options)?;
            let is_new = database.table_names().is_empty();
            let table = if is_new {
                database.create_table("rows", self.table_options(sizes)?)?
            } else {
                database.table("rows")?
            };
            Ok(Box::new(Ours { database, table }))
        };
        (Box::new(open), disk)
    }
}

/// Our engine.
struct Ours {
    database: Database,
    table: Table,
}

impl Subject for Ours {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.table.put(key, value, Durability::Buffered)?;
        Ok(())
    }

    fn get(&self, key: &[u8], blocks: &mut Blocks) -> Result<bool> {
        let mut counters = ReadCounters::default();
        let found = self.table.get_with(key, &ReadOptions::default(), &mut counters)?;
        blocks.hits += counters.block_cache_hits;
        blocks.misses += counters.blocks_read;
        blocks.segments += counters.segments_considered;
        Ok(found.is_some())
    }

    fn scan(&self, key: &[u8], bytes: u64) -> Result<u64> {
        let mut rows = self.table.iter(&ReadOptions::default())?;
        rows.seek(key)?;
        let mut read = 0;
        while read < bytes && rows.valid() {
            read += (rows.key().len() + rows.value().len()) as u64;
            rows.next()?;
        }
        Ok(read)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.database.flush()?)
    }

    fn rest(&self) -> Result<()> {
        self.database.flush()?;
        Ok(self.database.wait_idle()?)
    }

    fn compact(&self) -> Result<()> {
        Ok(self.database.compact(&self.table)?)
    }

    fn figures(&self) -> Figures {
        let metrics = self.database.metrics();
        let table = metrics.tables.first();
        Figures {
            written_bytes: metrics.flush_bytes + metrics.compaction_written_by_level.iter().sum::<u64>(),
            level_bytes: table.iter().flat_map(|table| &table.levels).map(|level| level.bytes).collect(),
            buffer_bytes: table.map_or(0, |table| table.buffer.bytes),
            written_by_level: metrics.compaction_written_by_level,
            invalidated_by_level: metrics.invalidated_blocks_by_level,
            resident_bytes: metrics.cache.reserved,
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}
