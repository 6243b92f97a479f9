//! RocksDB in the experiments on dictionaries (LSM-OPD §5.1): plain, with compressed blocks, with values in blob files,
//! and with compressed blob files.
//!
//! Options are the paper's where it names them: 64 MB files, scaled down as ours are, no dynamic level sizes, the same
//! limits of level 0 for all. Its log is on and not synced, as ours is; the paper turns it off. The paper compresses
//! blocks with Snappy, and blob files with Zstd and a dictionary: here every value of a blob file is compressed by
//! itself.
//!
//! What compactions did is counted by RocksDB's statistics, which all of them keep.

use std::path::Path;

use mycelium_bench::Result;
use mycelium_bench::experiments::dictionary::{Compactions, DictionaryRival, DictionarySettings, RivalStore, Stages};
use rocksdb::statistics::{Histogram, StatsLevel, Ticker};
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Options};

use crate::rocks;

/// All of them, as reports call them.
pub(crate) const RIVALS: [DictionaryRival<'static>; 6] = [
    DictionaryRival { name: "rocksdb", open: &|at, settings| in_blocks(at, settings, DBCompressionType::None) },
    DictionaryRival {
        name: "rocksdb-snappy",
        open: &|at, settings| in_blocks(at, settings, DBCompressionType::Snappy),
    },
    DictionaryRival { name: "rocksdb-lz4", open: &|at, settings| in_blocks(at, settings, DBCompressionType::Lz4) },
    DictionaryRival { name: "rocksdb-zstd", open: &|at, settings| in_blocks(at, settings, DBCompressionType::Zstd) },
    DictionaryRival { name: "blobdb", open: &|at, settings| in_blobs(at, settings, DBCompressionType::None) },
    DictionaryRival { name: "blobdb-zstd", open: &|at, settings| in_blobs(at, settings, DBCompressionType::Zstd) },
];

fn in_blocks(directory: &Path, settings: &DictionarySettings, compression: DBCompressionType) -> Result<RivalStore> {
    let mut options = options(settings)?;
    options.set_compression_type(compression);
    open(options, directory)
}

/// Every value lies in a blob file; garbage collection is on, with RocksDB's defaults.
fn in_blobs(directory: &Path, settings: &DictionarySettings, compression: DBCompressionType) -> Result<RivalStore> {
    let mut options = options(settings)?;
    options.set_compression_type(DBCompressionType::None);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(0);
    options.set_blob_file_size(settings.file_bytes);
    options.set_blob_compression_type(compression);
    options.set_enable_blob_gc(true);
    open(options, directory)
}

fn options(settings: &DictionarySettings) -> Result<Options> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(usize::try_from(settings.cache_bytes())?));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.enable_statistics();
    if settings.by_stage {
        options.set_statistics_level(StatsLevel::ExceptTimeForMutex);
        options.set_use_direct_reads(true);
    }
    options.set_block_based_table_factory(&blocks);
    options.set_max_background_jobs(2);
    options.set_level_compaction_dynamic_level_bytes(false);
    options.set_write_buffer_size(usize::try_from(settings.file_bytes)?);
    options.set_target_file_size_base(settings.file_bytes);
    options.set_max_bytes_for_level_base(settings.base_level_bytes());
    options.set_level_zero_file_num_compaction_trigger(i32::try_from(DictionarySettings::LEVEL0_FILES)?);
    options.set_level_zero_slowdown_writes_trigger(i32::try_from(DictionarySettings::SLOWDOWN_FILES)?);
    options.set_level_zero_stop_writes_trigger(i32::try_from(DictionarySettings::STOP_FILES)?);
    Ok(options)
}

fn open(options: Options, directory: &Path) -> Result<RivalStore> {
    let store = rocks::open(&options, directory)?;
    let of_reads = options.clone();
    let micros = |options: &Options, histogram| options.get_histogram_data(histogram).sum() as f64 / 1e6;
    let compactions = move || Compactions {
        seconds: micros(&options, Histogram::CompactionTime),
        cpu_seconds: micros(&options, Histogram::CompactionCpuTime),
        bytes_read: options.get_ticker_count(Ticker::CompactReadBytes),
        bytes_written: options.get_ticker_count(Ticker::CompactWriteBytes),
        stages: Stages {
            read: micros(&options, Histogram::FileReadCompactionMicros),
            decode: micros(&options, Histogram::DecompressionTimesNanos) / 1e3,
            compress: micros(&options, Histogram::CompressionTimesNanos) / 1e3,
            write: micros(&options, Histogram::FileWriteCompactionMicros)
                + micros(&options, Histogram::CompactionOutfileSyncMicros),
        },
    };
    let read_seconds = move || micros(&of_reads, Histogram::FileReadDbIteratorMicros);
    Ok(RivalStore { store, compactions: Box::new(compactions), read_seconds: Box::new(read_seconds) })
}
