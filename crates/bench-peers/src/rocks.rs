//! RocksDB.
//!
//! Left at RocksDB's defaults: leveled compaction with dynamic level sizes, fanout 10, 64 MiB files, 256 MiB base
//! level, index and filter blocks outside the block cache (its faster way: ours accounts for them inside), XXH3 block
//! checksums.

use std::path::Path;

use mycelium_bench::store::{Pair, Visit};
use mycelium_bench::{Compression, KeyValueStore, Result, StoreFactory, StoreOptions};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};

pub(crate) struct RocksFactory;

struct RocksStore {
    db: DB,
    read: ReadOptions,
    write: WriteOptions,
}

impl StoreFactory for RocksFactory {
    fn name(&self) -> &str {
        "rocksdb"
    }

    fn open(&self, directory: &Path, settings: &StoreOptions) -> Result<Box<dyn KeyValueStore>> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(usize::try_from(settings.cache_bytes)?));
        blocks.set_block_size(settings.block_size as usize);
        if settings.filter_bits > 0 {
            blocks.set_bloom_filter(f64::from(settings.filter_bits), false);
        }
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(match settings.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
        });
        options.set_write_buffer_size(usize::try_from(settings.write_buffer_bytes)?);
        options.set_max_background_jobs(i32::try_from(settings.background_threads)?);
        options.set_use_direct_reads(settings.direct_io);
        options.set_use_direct_io_for_flush_and_compaction(settings.direct_io);
        open(&options, directory)
    }
}

/// A store with these options. The log is on and not synced: RocksDB's defaults.
pub(crate) fn open(options: &Options, directory: &Path) -> Result<Box<dyn KeyValueStore>> {
    let db = DB::open(options, directory)?;
    Ok(Box::new(RocksStore { db, read: ReadOptions::default(), write: WriteOptions::default() }))
}

impl RocksStore {
    fn scan(&self, mut iterator: rocksdb::DBRawIterator<'_>, count: u64, visit: Visit<'_>) -> Result<u64> {
        let mut found = 0;
        while found < count {
            let Some((key, value)) = iterator.item() else { break };
            visit(key, value);
            found += 1;
            if found < count {
                iterator.next();
            }
        }
        iterator.status()?;
        Ok(found)
    }
}

impl KeyValueStore for RocksStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn put_batch(&self, pairs: &[Pair<'_>]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in pairs {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.write)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.db.get_pinned_opt(key, &self.read)?;
        if let Some(found) = &found {
            value.clear();
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn scan_from(&self, key: &[u8], count: usize, visit: Visit<'_>) -> Result<usize> {
        let mut iterator = self.db.raw_iterator_opt(ReadOptions::default());
        iterator.seek(key);
        Ok(self.scan(iterator, count as u64, visit)? as usize)
    }

    fn scan_range(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<u64> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(to);
        let mut iterator = self.db.raw_iterator_opt(options);
        iterator.seek(from);
        self.scan(iterator, u64::MAX, visit)
    }

    fn scan_all(&self, visit: Visit<'_>) -> Result<u64> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let mut iterator = self.db.raw_iterator_opt(options);
        iterator.seek_to_first();
        self.scan(iterator, u64::MAX, visit)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }

    fn supports_direct_io(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        self.db.property_value(rocksdb::properties::LEVELSTATS).ok().flatten().unwrap_or_default()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}
