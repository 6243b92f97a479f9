//! Our own engine as a [`KeyValueStore`]: one key-value table in one database.
//!
//! The engine's memory budget is 21/16 of a write buffer, so that a generation of memtables, which takes four fifths of
//! it, has as many rows of 100 B as RocksDB's write buffer (463,000) and both flush files of one size; RocksDB, with
//! its `max_write_buffer_number` of 2, may take two. Level sizes, file sizes and triggers are the engine's defaults,
//! which are RocksDB's. Index and filter blocks count against the cache.

use std::path::Path;
use std::sync::Arc;

use mycelium_engine::{
    Background, Compression as BlockCompression, Database, Durability, ErrorKind, Options, ReadOptions, Table,
    TableOptions, WriteBatch,
};
use mycelium_vfs::LocalDisk;

use crate::bench_disk::BenchDisk;
use crate::store::{Compression, KeyValueStore, Pair, Result, StoreFactory, StoreOptions, Visit};

const TABLE: &str = "data";

/// Bytes that a full scan asks for at once.
const SCAN_READ_AHEAD: usize = 256 << 10;

/// Opens stores of our own engine.
#[derive(Debug)]
pub struct MyceliumFactory;

struct MyceliumStore {
    database: Database,
    table: Table,
    range: ReadOptions,
    scan: ReadOptions,
}

impl StoreFactory for MyceliumFactory {
    fn name(&self) -> &str {
        "mycelium"
    }

    fn open(&self, directory: &Path, settings: &StoreOptions) -> Result<Box<dyn KeyValueStore>> {
        let mut options = Options {
            memory_budget: usize::try_from(settings.write_buffer_bytes)? / 16 * 21,
            cache_bytes: settings.cache_bytes,
            background: Background::Threads(settings.background_threads as usize),
            ..Options::default()
        };
        if settings.direct_io {
            options.disk = Arc::new(BenchDisk::new(Arc::new(LocalDisk), true, false));
        }
        let database = Database::open(directory, options)?;
        let table = match database.table(TABLE) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                database.create_table(TABLE, table_options(settings))?
            }
            other => other?,
        };
        let scan = ReadOptions { fill_cache: false, read_ahead: SCAN_READ_AHEAD, ..ReadOptions::default() };
        Ok(Box::new(MyceliumStore { database, table, range: ReadOptions::default(), scan }))
    }
}

fn table_options(settings: &StoreOptions) -> TableOptions {
    TableOptions {
        block_size: settings.block_size as usize,
        compression: vec![match settings.compression {
            Compression::None => BlockCompression::None,
            Compression::Lz4 => BlockCompression::Lz4,
        }],
        filter_bits: vec![settings.filter_bits],
        ..TableOptions::default()
    }
}

impl KeyValueStore for MyceliumStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.table.put(key, value, Durability::Os)?;
        Ok(())
    }

    fn put_batch(&self, pairs: &[Pair<'_>]) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in pairs {
            batch.put(&self.table, key, value);
        }
        self.database.write(&batch, Durability::Os)?;
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.table.delete(key, Durability::Os)?;
        Ok(())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.table.get(key)?;
        let is_there = found.is_some();
        if let Some(found) = found {
            *value = found;
        }
        Ok(is_there)
    }

    fn scan_from(&self, key: &[u8], count: usize, visit: Visit<'_>) -> Result<usize> {
        let mut rows = self.table.iter(&self.range)?;
        rows.seek(key)?;
        let mut found = 0;
        while rows.valid() {
            visit(rows.key(), rows.value());
            found += 1;
            if found == count {
                break;
            }
            rows.next()?;
        }
        Ok(found)
    }

    fn scan_all(&self, visit: Visit<'_>) -> Result<u64> {
        let mut rows = self.table.iter(&self.scan)?;
        rows.seek_to_first()?;
        let mut found = 0;
        while rows.valid() {
            visit(rows.key(), rows.value());
            found += 1;
            rows.next()?;
        }
        Ok(found)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.database.flush()?)
    }

    fn settle(&self) -> Result<()> {
        self.database.flush()?;
        Ok(self.database.wait_idle()?)
    }

    fn supports_direct_io(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let metrics = self.database.metrics();
        let mut out = format!(
            "{} flushes, {} compactions ({} moves), slowed {:.1} s, stopped {:.1} s; flush {:?}; compaction {:?}",
            metrics.flushes,
            metrics.compactions,
            metrics.trivial_moves,
            metrics.slowdown_seconds,
            metrics.stop_seconds,
            metrics.flush_stages,
            metrics.compaction_stages,
        );
        for level in metrics.tables.iter().flat_map(|table| &table.levels) {
            out +=
                &format!("\nlevel {}: {} runs, {} files, {} bytes", level.level, level.runs, level.files, level.bytes);
        }
        out
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}
