//! RocksDB in the experiment on transformations: set up as the paper says (appendix D), scaled down as ours is.
//!
//! It stores the rows as bytes; readers parse them with our parser. Nothing is compressed, and of the paper's 16 + 8
//! threads for 32 cores there are two for two, as ours has.

use std::path::Path;

use mycelium_bench::experiments::transformations::TransformationSettings;
use mycelium_bench::{KeyValueStore, Result};
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Options};

use crate::rocks;

/// An empty store.
pub(crate) fn open(directory: &Path, settings: &TransformationSettings) -> Result<Box<dyn KeyValueStore>> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(usize::try_from(settings.cache_bytes())?));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_enable_pipelined_write(true);
    options.set_max_open_files(-1);
    options.set_max_background_jobs(2);
    options.set_write_buffer_size(usize::try_from(settings.buffer_bytes)?);
    options.set_max_write_buffer_number(8);
    options.set_max_bytes_for_level_base(settings.file_bytes());
    options.set_target_file_size_base(settings.file_bytes());
    options.set_level_zero_file_num_compaction_trigger(i32::try_from(TransformationSettings::LEVEL0_FILES)?);
    options.set_level_zero_slowdown_writes_trigger(i32::try_from(TransformationSettings::SLOWDOWN_FILES)?);
    options.set_level_zero_stop_writes_trigger(i32::try_from(TransformationSettings::STOP_FILES)?);
    options.set_compression_type(DBCompressionType::None);
    options.set_block_based_table_factory(&blocks);
    rocks::open(&options, directory)
}
