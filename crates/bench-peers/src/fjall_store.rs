//! fjall: an LSM-tree in Rust. Its journal is written to the operating system at every write and not synced, its
//! default.

use std::path::Path;
use std::time::Duration;

use fjall::config::{BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use mycelium_bench::store::{Pair, Visit};
use mycelium_bench::{Compression, KeyValueStore, Result, StoreFactory, StoreOptions};

pub(crate) struct FjallFactory;

struct FjallStore {
    database: Database,
    table: Keyspace,
}

impl StoreFactory for FjallFactory {
    fn name(&self) -> &str {
        "fjall"
    }

    fn open(&self, directory: &Path, settings: &StoreOptions) -> Result<Box<dyn KeyValueStore>> {
        let compression = match settings.compression {
            Compression::None => CompressionType::None,
            Compression::Lz4 => CompressionType::Lz4,
        };
        let filter = match settings.filter_bits {
            0 => FilterPolicyEntry::None,
            bits => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits as f32)),
        };
        let database = Database::builder(directory)
            .cache_size(settings.cache_bytes)
            .worker_threads(settings.background_threads as usize)
            .journal_compression(CompressionType::None)
            .open()?;
        let table = database.keyspace("data", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(settings.write_buffer_bytes)
                .data_block_size_policy(BlockSizePolicy::all(settings.block_size))
                .data_block_compression_policy(CompressionPolicy::all(compression))
                .filter_policy(FilterPolicy::all(filter))
        })?;
        Ok(Box::new(FjallStore { database, table }))
    }
}

impl FjallStore {
    fn busy(&self) -> bool {
        self.table.sealed_memtable_count() > 0
            || self.database.outstanding_flushes() > 0
            || self.database.active_compactions() > 0
    }
}

impl KeyValueStore for FjallStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.table.insert(key, value)?)
    }

    fn put_batch(&self, pairs: &[Pair<'_>]) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in pairs {
            batch.insert(&self.table, *key, *value);
        }
        Ok(batch.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.table.remove(key)?)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.table.get(key)?;
        if let Some(found) = &found {
            value.clear();
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn scan_from(&self, key: &[u8], count: usize, visit: Visit<'_>) -> Result<usize> {
        let mut found = 0;
        for entry in self.table.range(key..).take(count) {
            let (key, value) = entry.into_inner()?;
            visit(&key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn scan_all(&self, visit: Visit<'_>) -> Result<u64> {
        let mut found = 0;
        for entry in self.table.iter() {
            let (key, value) = entry.into_inner()?;
            visit(&key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.table.rotate_memtable_and_wait()?)
    }

    /// fjall tells only what runs now: quiet is when it told nothing for a tenth of a second.
    fn settle(&self) -> Result<()> {
        self.flush()?;
        let mut quiet = 0;
        while quiet < 10 {
            quiet = if self.busy() { 0 } else { quiet + 1 };
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{} tables, {} in level 0", self.table.table_count(), self.table.l0_table_count())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
