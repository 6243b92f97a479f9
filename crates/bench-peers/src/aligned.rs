//! RocksDB's write amplification in the experiment on aligned compaction.
//!
//! RocksDB has since 7.8 a rule like the paper's: files are cut at borders of the level below once they have half to
//! nine tenths of the target size, and may grow to twice of it. The option that turned it off is ignored by 11.8. Its
//! line therefore stands beside ours *with* aligned compaction; a line without it would need RocksDB 6.17, the paper's.
//!
//! After every write buffer's worth of puts the run waits until no compaction is due, as ours does. Its files live in
//! memory: syncs of thousands of small files would be most of the time.

use mycelium_bench::Result;
use mycelium_bench::experiments::aligned::AlignedSettings;
use rocksdb::statistics::Ticker;
use rocksdb::{BlockBasedOptions, Cache, CompactionPri, DB, DBCompressionType, Env, Options, WaitForCompactOptions};

/// Bytes of flushes and compactions over bytes put.
pub(crate) fn write_amplification(settings: &AlignedSettings, fanout: f64) -> Result<f64> {
    let directory = settings.directory.join(format!("rocksdb-{}", std::process::id()));
    let shape = settings.shape(fanout);
    let options = options(shape.file_bytes, shape.fanout, shape.level_count)?;
    let db = DB::open(&options, &directory)?;
    let mut wait = WaitForCompactOptions::default();
    wait.set_flush(false);
    let mut waited_at = 0u64;
    let mut put = 0u64;
    settings.for_each_put(|key, value| {
        db.put(key, value)?;
        put += (key.len() + value.len()) as u64;
        if put - waited_at >= shape.file_bytes {
            waited_at = put;
            db.wait_for_compact(&wait)?;
        }
        Ok(())
    })?;
    db.wait_for_compact(&wait)?;
    let written =
        options.get_ticker_count(Ticker::FlushWriteBytes) + options.get_ticker_count(Ticker::CompactWriteBytes);
    let amplification = written as f64 / put as f64;
    if settings.progress {
        let levels = db.property_value(rocksdb::properties::LEVELSTATS)?.unwrap_or_default();
        eprintln!("RocksDB, fanout {fanout}: write amplification {amplification:.2}\n{levels}");
    }
    Ok(amplification)
}

fn options(file_bytes: u64, fanout: f64, level_count: usize) -> Result<Options> {
    let mut options = Options::default();
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(64 << 20));
    blocks.set_block_size(4096);
    blocks.set_bloom_filter(10.0, false);
    options.create_if_missing(true);
    options.set_env(&Env::mem_env()?);
    options.enable_statistics();
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::None);
    options.set_level_compaction_dynamic_level_bytes(false);
    options.set_compaction_pri(CompactionPri::MinOverlappingRatio);
    options.set_num_levels(i32::try_from(level_count)?);
    options.set_write_buffer_size(usize::try_from(file_bytes)?);
    options.set_target_file_size_base(file_bytes);
    options.set_max_bytes_for_level_base(4 * file_bytes);
    options.set_max_bytes_for_level_multiplier(fanout);
    options.set_max_compaction_bytes(25 * file_bytes);
    options.set_max_background_jobs(2);
    Ok(options)
}
