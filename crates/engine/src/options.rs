//! What a caller chooses when opening a database, creating a table and writing; of reads read_options.rs.
//!
//! Nothing here decides how an existing file is read: formats, compression and layout travel with the files.

use std::sync::Arc;
use std::time::Duration;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{Combiner, Error, Result};
use mycelium_compaction::{Buffering, Deferral, LeveledOptions, PickPriority, TieredOptions};
pub use mycelium_encoding::row_format::RowFormatDefinition;
use mycelium_encoding::{RowFormat, Schema};
use mycelium_manifest::Layout;
use mycelium_sst::Compression;
use mycelium_transform::{Formats, Registry, TransformerSet};
use mycelium_vfs::{Disk, LocalDisk};
pub use mycelium_wal::RecoveryMode;

use crate::archive::ArchiveOptions;
use crate::clock::{Clock, SystemClock};
use crate::events::EventListener;
use crate::expiry::Expiry;

/// Who runs flushes and compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Background {
    /// That many threads of the database's own. All of them compact. One of them flushes: it interrupts for a flush
    /// what else it is at, compactions and the building of indexes. One more, which mostly sleeps, deletes expired
    /// rows, from the first table on that has any ([`crate::Database::set_expiry`]).
    Threads(usize),
    /// The caller, one job at a time, through [`crate::Database::step`]; a writer that must wait runs jobs itself.
    /// Everything then happens in one thread, in an order that depends on the calls alone.
    Manual,
}

/// What compactions do to the block cache. The compaction buffer is the alternative: [`TableOptions::buffer`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CompactionCaching {
    /// Cache the blocks that they read, as if somebody had asked for them. Default: false.
    pub admit_inputs: bool,
    /// What of the files that they write is cached when these are installed. Default: nothing.
    pub warm: Warm,
}

/// Which blocks of a compaction's outputs are cached.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Warm {
    /// None.
    #[default]
    Nothing,
    /// Those that may hold keys of input blocks that are cached.
    Successors,
    /// All.
    Everything,
}

/// How far a write must have got when the call returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Durability {
    /// In the process: lost if the process dies before the log's buffer fills or a stronger write follows.
    Buffered,
    /// Handed to the operating system: survives the death of the process, not of the machine.
    #[default]
    Os,
    /// On the disk: survives power loss.
    Sync,
}

/// Options of a database. They are not stored: each opening is given its own. Merge operators and transformers that a
/// table names must be given at every opening. [`crate::Database::open`] refuses values that cannot be.
///
/// ```
/// # use std::sync::Arc;
/// use mycelium_engine::{Background, Database, Options};
///
/// let options = Options {
///     memory_budget: 32 << 20,
///     cache_bytes: 512 << 20,
///     background: Background::Threads(4),
///     rate_limit_bytes_per_second: Some(200 << 20),
///     ..Options::default()
/// };
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..options };
/// let database = Database::open("example", options)?;
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    /// The disk. Default: local files.
    pub disk: Arc<dyn Disk>,
    /// Create the database if the directory holds none. Default: true.
    pub create_if_missing: bool,
    /// Refuse all writes and run no background work. Another process may have the database open, and write;
    /// [`crate::Database::catch_up`] follows it. Default: false.
    pub read_only: bool,
    /// Bytes that all memtables together may take; four fifths of it make a generation that is flushed. The 4 KiB and
    /// the filter that a memtable begins with count from the seventeenth of a generation on. What a dropped table had
    /// counts until its generation is flushed, for the log has it. Default: 128 MiB.
    pub memory_budget: usize,
    /// Bytes of the block cache, which holds data, index and filter blocks. Default: 256 MiB.
    pub cache_bytes: u64,
    /// Bytes for the indexes and filters of open files, besides `cache_bytes`. Default: none; they take theirs off
    /// `cache_bytes`, up to seven eighths of it, and the memory of both is bounded by one number, but what is left to
    /// blocks changes as files do.
    pub index_and_filter_bytes: Option<u64>,
    /// Bytes that the compaction buffers of all tables together may take on the disk beyond what the tables take.
    /// Default: 1 GiB.
    pub buffer_bytes: u64,
    /// What compactions do to the block cache. Default: nothing.
    pub compaction_caching: CompactionCaching,
    /// Who runs flushes and compactions: at most 1,024 threads. Default: two.
    pub background: Background,
    /// What recovery does about a torn log. Default: tolerate a torn tail.
    pub recovery: RecoveryMode,
    /// Where the log goes when recovery does not need it any more, so that [`crate::Backups::restore_to`] can go on
    /// from a backup. Give it at every opening for writing: of what is written without it the archive lacks the log,
    /// and no restore passes that. Default: nowhere, it is removed.
    pub archive: Option<ArchiveOptions>,
    /// Bytes a second that flushes, compactions and bulk loads together may write, flushes first; `None` is unlimited.
    /// Default: `None`.
    pub rate_limit_bytes_per_second: Option<u64>,
    /// Level-0 runs of a table that lie over each other, at which writers are slowed. At twice the number with which
    /// level 0 is compacted, if that is more. Default: 20.
    pub slowdown_level0_runs: usize,
    /// The same at which writers stop; raised by as much as the number at which they are slowed. Default: 36.
    pub stop_level0_runs: usize,
    /// Bytes awaiting compaction in a table at which writers are slowed; four times as much stops them. Default: 64
    /// GiB.
    pub slowdown_debt_bytes: u64,
    /// How much of a table may wait for its transformation, in percent of its bytes: while compaction is half-way to
    /// slowing the writers down, rows go down tiered levels as they are, up to this limit. 0: never. Default: 10.
    pub deferral_percent: u8,
    /// Bytes a second that all writers together may write when they begin to be slowed, and the most they may while
    /// they are: the rate is adapted to what compaction sustains. Default: 16 MiB.
    pub slowed_bytes_per_second: u64,
    /// Bytes of columns that one compaction, or one of its `subcompactions`, may hold in memory until its files are
    /// complete, shared out evenly among column groups that it writes. A columnar file is written when its dictionaries
    /// are known, which is at its end: it ends early where it has come to this, but within level 0, where a merge makes
    /// one file. Default: 256 MiB.
    pub compaction_memory: usize,
    /// Key ranges into which one large compaction is cut to run in parallel, at most 1,024. Default: 1.
    pub subcompactions: usize,
    /// Tells when rows expire, and the times in an archived log and of backups. Default: the clock of the machine.
    pub clock: Arc<dyn Clock>,
    /// From the beginning of one pass over a table whose rows expire to that of the next, at least
    /// ([`crate::Database::set_expiry`]). Default: five minutes.
    pub expiry_interval: Duration,
    /// Is told of flushes, compactions, stalls and errors. Default: none.
    pub listener: Option<Arc<dyn EventListener>>,
    /// The merge operators that tables may name. Default: none.
    pub merge_operators: Vec<Arc<dyn Combiner>>,
    /// The transformers that tables may name, users' own among them. Default: the built-in ones.
    pub transformers: Registry,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            disk: Arc::new(LocalDisk),
            create_if_missing: true,
            read_only: false,
            memory_budget: 128 << 20,
            cache_bytes: 256 << 20,
            index_and_filter_bytes: None,
            buffer_bytes: 1 << 30,
            compaction_caching: CompactionCaching::default(),
            background: Background::Threads(2),
            recovery: RecoveryMode::default(),
            archive: None,
            rate_limit_bytes_per_second: None,
            slowdown_level0_runs: 20,
            stop_level0_runs: 36,
            slowdown_debt_bytes: 64 << 30,
            deferral_percent: 10,
            slowed_bytes_per_second: 16 << 20,
            compaction_memory: 256 << 20,
            subcompactions: 1,
            clock: Arc::new(SystemClock),
            expiry_interval: Duration::from_secs(300),
            listener: None,
            merge_operators: Vec::new(),
            transformers: Registry::built_in(),
        }
    }
}

/// The most threads for background work, and for one compaction.
const MOST_THREADS: usize = 1024;

impl Options {
    /// When transformations are deferred.
    pub(crate) fn deferral(&self) -> Option<Deferral> {
        (self.deferral_percent > 0).then(|| Deferral {
            level0_files: self.slowdown_level0_runs.div_ceil(2),
            debt_bytes: self.slowdown_debt_bytes / 2,
            limit_percent: self.deferral_percent.into(),
        })
    }

    pub(crate) fn check(&self) -> Result<()> {
        // Else nothing would ever be written, or writers would wait for what never comes.
        if self.rate_limit_bytes_per_second == Some(0) {
            let message = "background work must be allowed some bytes a second; None is unlimited";
            return Err(Error::invalid(message).expected("1 or more", 0));
        }
        if self.slowdown_debt_bytes == 0 {
            let message = "writers cannot be slowed at no bytes that await compaction";
            return Err(Error::invalid(message).expected("1 or more", 0));
        }
        if self.memory_budget < 4096 {
            return Err(Error::invalid("the memory budget is too small").expected("4,096 or more", self.memory_budget));
        }
        if self.compaction_memory < 4096 {
            let message = "the memory of a compaction is too small";
            return Err(Error::invalid(message).expected("4,096 or more", self.compaction_memory));
        }
        if self.slowdown_level0_runs == 0 || self.stop_level0_runs < self.slowdown_level0_runs {
            let found = format!("{} and {}", self.slowdown_level0_runs, self.stop_level0_runs);
            return Err(Error::invalid("limits of level 0 that cannot be").expected("0 < slowdown <= stop", found));
        }
        if self.deferral_percent > 100 {
            let message = "more than all of a table cannot be deferred";
            return Err(Error::invalid(message).expected("up to 100 percent", self.deferral_percent));
        }
        if self.slowed_bytes_per_second == 0 {
            let message = "slowed writers must be allowed some bytes a second";
            return Err(Error::invalid(message).expected("1 or more", 0));
        }
        if self.expiry_interval.is_zero() {
            return Err(Error::invalid("passes over expiring rows without end").expected("more than 0 s", "0 s"));
        }
        let threads = match self.background {
            Background::Threads(threads) => threads,
            Background::Manual => 1,
        };
        if let Some(count) = [threads, self.subcompactions].iter().find(|count| !(1..=MOST_THREADS).contains(*count)) {
            let message = "a number of background threads or subcompactions that cannot be";
            return Err(Error::invalid(message).expected(format_args!("1 to {MOST_THREADS}"), count));
        }
        Ok(())
    }
}

/// How a table's levels are merged.
#[derive(Clone, PartialEq, Debug)]
pub enum Policy {
    /// Level 0 tiered, every other level one run.
    Leveled(LeveledOptions),
    /// Every level several runs (universal).
    Tiered(TieredOptions),
    /// As leveled, but every level between level 0 and the last has an insertion part and a deletion part (dLSM §IV-A).
    /// The levels' targets grow from level 1 down, whatever `dynamic_levels` says.
    TwoPhase(LeveledOptions),
}

/// Sizes of levels and files, whichever policy the options name.
pub(crate) fn sizes(options: &TableOptions) -> LeveledOptions {
    match &options.policy {
        Policy::Leveled(leveled) | Policy::TwoPhase(leveled) => *leveled,
        Policy::Tiered(tiered) => LeveledOptions {
            level0_trigger: tiered.runs_per_level,
            level_count: tiered.level_count,
            target_file_size: tiered.target_file_size,
            ..LeveledOptions::default()
        },
    }
}

/// Options of a table, kept in the manifest; they decide how new files are written. They are those that the table was
/// created with; layout and expiry alone change later. [`crate::Database::create_table`] refuses values that cannot be.
///
/// ```
/// use mycelium_base::ColumnSet;
/// use mycelium_encoding::Schema;
/// use mycelium_engine::{Compression, Database, Layout, Options, TableOptions};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
///
/// // Levels 0 and 1 as they are, all deeper ones compressed.
/// let compression = vec![Compression::None, Compression::None, Compression::Lz4];
/// database.create_table("events", TableOptions { compression, ..TableOptions::default() })?;
///
/// // Rows at level 0; below, each of the two columns outside the key by itself.
/// let schema = Schema::parse("id int64 not null, name utf8, visits int32, primary key (id)")?;
/// let columns = ColumnSet::from_iter([1, 2]);
/// let layout = Layout::parse("L0 tiered: * packed\nL1 leveled: 1 columnar | 2 columnar", &columns)?;
/// database.create_typed_table("people", schema, TableOptions { layout: Some(layout), ..TableOptions::default() })?;
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct TableOptions {
    /// How levels are merged. Default: leveled. Those of its indexes are tiered, whatever this is: with these tiers if
    /// it is tiered, else with as many runs to a level as level 0 has files when it is merged.
    pub policy: Policy,
    /// Bytes of a data block before compression; of a columnar one eight times as many, since it has a page for each
    /// column. Default: 4,096.
    pub block_size: usize,
    /// The same of levels 1, 2 and so on, where they are not to be as those of level 0; the last applies to all deeper
    /// levels. Larger blocks take less room and are scanned faster, smaller ones are read faster for a single row: what
    /// is read by its key is mostly above, what is scanned mostly below. Default: none.
    pub deeper_block_sizes: Vec<usize>,
    /// Entries between whole keys in a data block. Default: 16.
    pub restart_interval: usize,
    /// Compression per level; the last applies to all deeper levels. Default: none.
    pub compression: Vec<Compression>,
    /// Bloom filter bits per key per level; the last applies to all deeper levels; 0 is no filter. Default: 10.
    pub filter_bits: Vec<u32>,
    /// Have the Bloom filters hold prefixes of keys, too: of a typed table the first column of the primary key, the
    /// first two, and so on up to so many (at most eight); of a key-value table so many first bytes (at most 255). A
    /// scan whose bounds lie within such a prefix passes over files that have no key with it, before any block of them
    /// is read. Costs the bits of `filter_bits` for each distinct prefix of a file, or ten where these are 0. Secondary
    /// indexes have filters of the values of their columns in any case. Default: none.
    pub prefix_filter: Option<usize>,
    /// Cut compaction outputs at the file borders of the level below (Kim §IV). Default: true.
    pub aligned_compaction: bool,
    /// Skip memtables, files and blocks that hold only entries newer than the snapshot (Kim §V). Default: true.
    pub snapshot_filter: bool,
    /// What of the two-phase levels stays readable for point reads in the compaction buffer when it leaves for the next
    /// level (dLSM §IV-B), so that cached blocks stay of use. Costs disk, up to [`Options::buffer_bytes`], and some
    /// bits of Bloom filter. Not for tables whose transformers map values. Default: off.
    pub buffer: Buffering,
    /// The row format that a typed table takes its rows in: that of its memtables and of level 0. Default: packed.
    pub row_format: RowFormatDefinition,
    /// Row formats that column groups of the layout may have beside the table's own, packed ones and JSON, and that
    /// rows may be handed out in: Protobuf and FlatBuffers, each with its definition, at most one of a kind. A
    /// definition is given here once for all layouts that the table will have. Default: none.
    pub group_formats: Vec<RowFormatDefinition>,
    /// Column groups, formats and merging by level, for a typed table. Default: where rows are packed and levels
    /// leveled, rows at level 0 and one columnar group below; else rows as they came at every level. This is the layout
    /// that the table begins with; [`crate::Database::set_layout`] changes it, and [`crate::Table::layout`] tells the
    /// present one.
    pub layout: Option<Layout>,
    /// Change the layout of a typed table by itself as what it is asked for changes: see [`crate::Table::trace`] and
    /// [`crate::events::Event::LayoutChanged`]. Default: false.
    pub layout_auto: bool,
    /// Transformers of a typed table, which give it its layout (Mycelium §4.2): in place of `layout`. An `augment`
    /// among them is an index, and is kept as one. Those that are not built in must be among
    /// [`Options::transformers`] whenever the database is opened. What readers see of a user's map is said at
    /// [`mycelium_transform::Transformer::maps_values`]. Default: none.
    pub transformers: Option<TransformerSet>,
    /// The name of a registered merge operator; needed for `merge` on a key-value table. Default: none.
    pub merge_operator: Option<String>,
    /// When rows of a typed table expire, and are deleted by the background. This is what the table begins with;
    /// [`crate::Database::set_expiry`] changes it, and [`crate::Table::expiry`] tells the present one. Default: never.
    pub expiry: Option<Expiry>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            policy: Policy::Leveled(LeveledOptions::default()),
            block_size: 4096,
            deeper_block_sizes: Vec::new(),
            restart_interval: 16,
            compression: vec![Compression::None],
            filter_bits: vec![10],
            prefix_filter: None,
            aligned_compaction: true,
            snapshot_filter: true,
            buffer: Buffering::Off,
            row_format: RowFormatDefinition::default(),
            group_formats: Vec::new(),
            layout: None,
            layout_auto: false,
            transformers: None,
            merge_operator: None,
            expiry: None,
        }
    }
}

/// The choice for `level` in a per-level list whose last element applies to all deeper levels.
pub(crate) fn for_level<T: Copy>(choices: &[T], level: usize, default: T) -> T {
    choices.get(level).or(choices.last()).copied().unwrap_or(default)
}

impl TableOptions {
    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_block_sizes()?;
        self.check_group_formats()?;
        if !(1..=1024).contains(&self.restart_interval) {
            let message = "a restart_interval that cannot be";
            return Err(Error::invalid(message).expected("1 to 1,024", self.restart_interval));
        }
        if let Some(bits) = self.filter_bits.iter().find(|&&bits| bits > 64) {
            return Err(Error::invalid("filter_bits that cannot be").expected("up to 64", bits));
        }
        let choices = self.compression.len().max(self.filter_bits.len());
        if choices > MAX_LEVELS {
            let message = "more choices by level than levels";
            return Err(Error::invalid(message).expected(format_args!("up to {MAX_LEVELS}"), choices));
        }
        match &self.policy {
            Policy::Leveled(o) | Policy::TwoPhase(o) => {
                check_levels(o.level_count, o.target_file_size)?;
                if o.level0_trigger == 0 || o.base_level_bytes == 0 || !(o.fanout > 1.0 && o.fanout <= 1e6) {
                    let expected = "level0_trigger and base_level_bytes above 0, fanout above 1, to 1,000,000";
                    let found = format!("{}, {} and {}", o.level0_trigger, o.base_level_bytes, o.fanout);
                    return Err(Error::invalid("sizes of levels that cannot be").expected(expected, found));
                }
                check_runs(o.level0_trigger.max(o.level0_pileup))?;
            }
            Policy::Tiered(o) => {
                check_levels(o.level_count, o.target_file_size)?;
                if o.runs_per_level < 2 {
                    let message = "too few runs_per_level";
                    return Err(Error::invalid(message).expected("2 or more", o.runs_per_level));
                }
                check_runs(o.runs_per_level)?;
            }
        }
        Ok(())
    }

    pub(crate) fn check_block_sizes(&self) -> Result<()> {
        let mut sizes = std::iter::once(&self.block_size).chain(&self.deeper_block_sizes);
        if let Some(size) = sizes.find(|size| !(64..=16 << 20).contains(*size)) {
            return Err(Error::invalid("a block_size that cannot be").expected("64 bytes to 16 MiB", size));
        }
        let (deeper, most) = (self.deeper_block_sizes.len(), MAX_LEVELS - 1);
        if deeper > most {
            let message = "more block sizes by level than levels";
            return Err(Error::invalid(message).expected(format_args!("up to {most} below level 0"), deeper));
        }
        Ok(())
    }

    /// Refuses definitions that are not needed, or stand where another of their kind does.
    pub(crate) fn check_group_formats(&self) -> Result<()> {
        let mut kinds = vec![self.row_format.kind];
        for &RowFormatDefinition { kind, .. } in &self.group_formats {
            if !kind.takes_definition() {
                return Err(Error::invalid(format!("{kind} rows need no definition among group_formats")));
            }
            if kinds.contains(&kind) {
                return Err(Error::invalid(format!("a table has one definition of its rows in {kind}, not two")));
            }
            kinds.push(kind);
        }
        Ok(())
    }

    /// The row formats that column groups of a table of this schema may have, its own among them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind) names the column and the field of a definition that do not fit,
    /// or says what is wrong with it.
    pub fn formats(&self, schema: Arc<Schema>) -> Result<Formats> {
        let mut definitions = std::iter::once(&self.row_format).chain(&self.group_formats);
        definitions.try_fold(Formats::new(schema.clone()), |formats, of| {
            formats.with(RowFormat::new(of.kind, schema.clone(), &of.definition, &of.root)?)
        })
    }

    /// Bytes of a data block of a level before compression, if it is not columnar.
    pub(crate) fn block_size_at(&self, level: usize) -> usize {
        match level.checked_sub(1) {
            Some(deeper) => for_level(&self.deeper_block_sizes, deeper, self.block_size),
            None => self.block_size,
        }
    }

    /// Appends what the manifest keeps of the options, in bytes (integers and floats are little-endian):
    ///
    /// ```text
    /// u8      policy: 0 leveled, 1 tiered, 2 two-phase
    /// varint  of 0 and 2: level0_trigger
    /// varint  of 0 and 2: level0_pileup
    /// varint  of 0 and 2: base_level_bytes
    /// varint  of 0 and 2: level_count
    /// varint  of 0 and 2: target_file_size
    /// f64     of 0 and 2: fanout
    /// varint  of 0 and 2: max_compaction_bytes
    /// u8      of 0 and 2: priority: 0 MinOverlap, 1 OldestFirst, 2 LargestFirst
    /// u8      of 0 and 2: dynamic_levels, 0 or 1
    /// varint  of 1: runs_per_level
    /// varint  of 1: level_count
    /// varint  of 1: target_file_size
    /// varint  of 1: max_space_amplification_percent
    /// varint  block_size
    /// varint  restart_interval
    /// varint  how many choices of compression follow, at most 16
    /// u8      of each: 0 none, 1 LZ4, 2 Zstandard
    /// i32     of each: the level of Zstandard; 0 for the others
    /// varint  how many choices of filter_bits follow, at most 16
    /// varint  of each: the bits, at most 64
    /// u8      aligned_compaction, 0 or 1
    /// u8      snapshot_filter, 0 or 1
    /// u8      whether there is a merge operator, 0 or 1
    /// bytes   its name; empty if there is none
    /// ```
    ///
    /// There is no version: it is that of the table's definition, which these bytes are a part of. The other options
    /// are kept elsewhere: `buffer`, `prefix_filter`, `row_format`, `group_formats`, `layout_auto`, `transformers`,
    /// `expiry` and `deeper_block_sizes` in the definition ([`crate::TableDefinition`]), `layout` beside it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match &self.policy {
            Policy::Leveled(o) => {
                out.push(0);
                encode_leveled(o, out);
            }
            Policy::Tiered(o) => {
                out.push(1);
                for n in [
                    o.runs_per_level as u64,
                    o.level_count as u64,
                    o.target_file_size,
                    o.max_space_amplification_percent,
                ] {
                    put_varint(out, n);
                }
            }
            Policy::TwoPhase(o) => {
                out.push(2);
                encode_leveled(o, out);
            }
        }
        put_varint(out, self.block_size as u64);
        put_varint(out, self.restart_interval as u64);
        put_varint(out, self.compression.len() as u64);
        for compression in &self.compression {
            let (kind, level) = match compression {
                Compression::None => (0, 0),
                Compression::Lz4 => (1, 0),
                Compression::Zstd(level) => (2, *level),
            };
            out.push(kind);
            out.extend_from_slice(&level.to_le_bytes());
        }
        put_varint(out, self.filter_bits.len() as u64);
        self.filter_bits.iter().for_each(|&bits| put_varint(out, bits.into()));
        out.push(self.aligned_compaction.into());
        out.push(self.snapshot_filter.into());
        out.push(self.merge_operator.is_some().into());
        put_bytes(out, self.merge_operator.as_deref().unwrap_or_default().as_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let policy = match reader.u8()? {
            0 => Policy::Leveled(decode_leveled(reader)?),
            1 => Policy::Tiered(TieredOptions {
                runs_per_level: reader.length(MOST_RUNS)?,
                level_count: reader.length(MAX_LEVELS)?,
                target_file_size: reader.varint()?,
                max_space_amplification_percent: reader.varint()?,
            }),
            2 => Policy::TwoPhase(decode_leveled(reader)?),
            other => return Err(unknown("compaction policy", other)),
        };
        let block_size = reader.length(usize::MAX)?;
        let restart_interval = reader.length(usize::MAX)?;
        let mut compression = Vec::new();
        for _ in 0..reader.length(MAX_LEVELS)? {
            let kind = reader.u8()?;
            let mut level = [0; 4];
            level.copy_from_slice(reader.take(4)?);
            compression.push(match kind {
                0 => Compression::None,
                1 => Compression::Lz4,
                2 => Compression::Zstd(i32::from_le_bytes(level)),
                other => return Err(unknown("compression", other)),
            });
        }
        let mut filter_bits = Vec::new();
        for _ in 0..reader.length(MAX_LEVELS)? {
            filter_bits.push(reader.length(64)? as u32);
        }
        let aligned_compaction = reader.u8()? != 0;
        let snapshot_filter = reader.u8()? != 0;
        let has_operator = reader.u8()? != 0;
        let name = reader.str()?.to_owned();
        let merge_operator = has_operator.then_some(name);
        let options = Self {
            policy,
            block_size,
            deeper_block_sizes: Vec::new(),
            restart_interval,
            compression,
            filter_bits,
            prefix_filter: None,
            aligned_compaction,
            snapshot_filter,
            buffer: Buffering::Off,
            row_format: RowFormatDefinition::default(),
            group_formats: Vec::new(),
            layout: None,
            layout_auto: false,
            transformers: None,
            merge_operator,
            expiry: None,
        };
        options.check().map_err(|e| Error::corruption("table options in the manifest").caused_by(e))?;
        Ok(options)
    }
}

fn encode_leveled(options: &LeveledOptions, out: &mut Vec<u8>) {
    let o = options;
    for n in
        [o.level0_trigger as u64, o.level0_pileup as u64, o.base_level_bytes, o.level_count as u64, o.target_file_size]
    {
        put_varint(out, n);
    }
    out.extend_from_slice(&o.fanout.to_bits().to_le_bytes());
    put_varint(out, o.max_compaction_bytes);
    out.push(match o.priority {
        PickPriority::MinOverlap => 0,
        PickPriority::OldestFirst => 1,
        PickPriority::LargestFirst => 2,
    });
    out.push(o.dynamic_levels.into());
}

/// The most runs that a level can be made to wait for.
const MOST_RUNS: usize = 1 << 20;

fn check_runs(count: usize) -> Result<()> {
    if count > MOST_RUNS {
        let message = "more runs than those at which a level is merged at the latest";
        return Err(Error::invalid(message).expected(format_args!("up to {MOST_RUNS}"), count));
    }
    Ok(())
}

fn check_levels(level_count: usize, target_file_size: u64) -> Result<()> {
    if !(2..=MAX_LEVELS).contains(&level_count) {
        let message = "a level_count that cannot be";
        return Err(Error::invalid(message).expected(format_args!("2 to {MAX_LEVELS}"), level_count));
    }
    if target_file_size < 1024 {
        return Err(Error::invalid("the target_file_size is too small").expected("1,024 or more", target_file_size));
    }
    Ok(())
}

fn decode_leveled(reader: &mut Reader<'_>) -> Result<LeveledOptions> {
    let mut options = LeveledOptions {
        level0_trigger: reader.length(MOST_RUNS)?,
        level0_pileup: reader.length(MOST_RUNS)?,
        base_level_bytes: reader.varint()?,
        level_count: reader.length(MAX_LEVELS)?,
        target_file_size: reader.varint()?,
        ..LeveledOptions::default()
    };
    options.fanout = f64::from_bits(reader.u64()?);
    options.max_compaction_bytes = reader.varint()?;
    options.priority = match reader.u8()? {
        0 => PickPriority::MinOverlap,
        1 => PickPriority::OldestFirst,
        2 => PickPriority::LargestFirst,
        other => return Err(unknown("picking priority", other)),
    };
    options.dynamic_levels = reader.u8()? != 0;
    Ok(options)
}

fn unknown(what: &str, code: u8) -> Error {
    Error::new(mycelium_base::ErrorKind::Unsupported, format!("unknown {what} {code} in the manifest"))
}
