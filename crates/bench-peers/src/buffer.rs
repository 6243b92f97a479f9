//! RocksDB beside the compaction buffer (dLSM §VII), on the disk as it is.
//!
//! It gets the tree of the experiment: the same write buffer, base level, fan-out and size of files, no dynamic level
//! sizes, as many bits of Bloom filter, indexes and filters outside of the block cache, reads and writes past the page
//! cache. Its cache is the HyperClock cache of the size that ours has; once as it comes, and once with flushes putting
//! their blocks into it (`prepopulate_block_cache`), which is its remedy for what we keep a buffer for. What a read
//! needed is counted by its performance context.

use std::cell::RefCell;
use std::path::Path;

use mycelium_bench::Result;
use mycelium_bench::experiments::buffer::{Blocks, BufferRival, Figures, Sizes, Subject};
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use rocksdb::statistics::Ticker;
use rocksdb::{BlockBasedOptions, Cache, DB, Options, WaitForCompactOptions};

/// Of a Bloom filter for each key: the paper's.
const FILTER_BITS: f64 = 15.0;
const BLOCK_BYTES: usize = 4096;
/// Says that flushed blocks are cached; the bindings have no function for it.
const PREPOPULATE: [(&str, &str); 1] = [("block_based_table_factory", "{prepopulate_block_cache=kFlushOnly;}")];

/// Both ways.
pub(crate) const RIVALS: [BufferRival<'static>; 2] = [
    BufferRival { name: "rocksdb", open: &|at, sizes, _| open(at, sizes, false) },
    BufferRival { name: "rocksdb-prepopulated", open: &|at, sizes, _| open(at, sizes, true) },
];

thread_local! {
    static CONTEXT: RefCell<Option<PerfContext>> = const { RefCell::new(None) };
}

struct RocksSubject {
    db: DB,
    /// Keeps the statistics.
    options: Options,
}

fn open(directory: &Path, sizes: Sizes, is_prepopulated: bool) -> Result<Box<dyn Subject>> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_hyper_clock_cache(usize::try_from(sizes.cache_bytes)?, BLOCK_BYTES));
    blocks.set_block_size(BLOCK_BYTES);
    blocks.set_bloom_filter(FILTER_BITS, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.enable_statistics();
    options.set_block_based_table_factory(&blocks);
    options.set_max_background_jobs(2);
    options.set_level_compaction_dynamic_level_bytes(false);
    options.set_num_levels(i32::try_from(Sizes::LEVELS)?);
    options.set_max_bytes_for_level_multiplier(Sizes::FANOUT as f64);
    options.set_max_bytes_for_level_base(sizes.base_level_bytes());
    options.set_target_file_size_base(sizes.file_bytes());
    options.set_write_buffer_size(usize::try_from(sizes.write_buffer_bytes())?);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    let db = DB::open(&options, directory)?;
    if is_prepopulated {
        db.set_options(&PREPOPULATE)?;
    }
    Ok(Box::new(RocksSubject { db, options }))
}

/// What `read` adds to the counters of this thread.
fn counted<T>(blocks: &mut Blocks, read: impl FnOnce() -> T) -> T {
    CONTEXT.with_borrow_mut(|context| {
        let context = context.get_or_insert_with(|| {
            set_perf_stats(PerfStatsLevel::EnableCount);
            PerfContext::default()
        });
        context.reset();
        let result = read();
        blocks.hits += context.metric(PerfMetric::BlockCacheHitCount);
        blocks.misses += context.metric(PerfMetric::BlockReadCount);
        result
    })
}

impl Subject for RocksSubject {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn get(&self, key: &[u8], blocks: &mut Blocks) -> Result<bool> {
        Ok(counted(blocks, || self.db.get_pinned(key).map(|found| found.is_some()))?)
    }

    fn scan(&self, key: &[u8], bytes: u64) -> Result<u64> {
        let mut rows = self.db.raw_iterator();
        rows.seek(key);
        let mut read = 0;
        while let Some((key, value)) = rows.item().filter(|_| read < bytes) {
            read += (key.len() + value.len()) as u64;
            rows.next();
        }
        rows.status()?;
        Ok(read)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn figures(&self) -> Figures {
        let written = [Ticker::FlushWriteBytes, Ticker::CompactWriteBytes];
        let resident = self.db.property_int_value(rocksdb::properties::ESTIMATE_TABLE_READERS_MEM);
        Figures {
            written_bytes: written.into_iter().map(|ticker| self.options.get_ticker_count(ticker)).sum(),
            resident_bytes: resident.ok().flatten().unwrap_or(0),
            ..Figures::default()
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
