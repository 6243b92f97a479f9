//! LMDB (through heed): a copy-on-write B-tree in a memory map, without log, cache of its own, filters or compression.
//! Puts are gathered 1,000 to a commit without a sync (`NO_SYNC`), so up to 999 of them are not yet visible: more than
//! the LSM engines are allowed. The page cache is its cache: it holds all of the data whatever the cache setting says.

use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions};
use mycelium_bench::store::{Pair, Visit};
use mycelium_bench::{KeyValueStore, Result, StoreFactory, StoreOptions};

use crate::gather::Gathered;

const MAP_BYTES: usize = 64 << 30;

pub(crate) struct LmdbFactory;

struct LmdbStore {
    env: Env,
    table: Database<'static, Bytes, Bytes>,
    gathered: Mutex<Gathered>,
}

impl StoreFactory for LmdbFactory {
    fn name(&self) -> &str {
        "lmdb"
    }

    fn open(&self, directory: &Path, _: &StoreOptions) -> Result<Box<dyn KeyValueStore>> {
        std::fs::create_dir_all(directory)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        // SAFETY: nothing else touches the files, and losing them in a crash of the machine is what NO_SYNC is asked
        // for.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(directory)? };
        let transaction = env.write_txn()?;
        let created = env.create_databases_and_commit(transaction, |opener, transaction| {
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(
                opener.create_database::<Bytes, Bytes>(transaction, None)?,
            ))
        })?;
        let table = created.unwrap_commit();
        Ok(Box::new(LmdbStore { env, table, gathered: Mutex::new(Gathered::default()) }))
    }
}

impl LmdbStore {
    fn gather(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.add(key, value);
        if gathered.is_full() { self.commit(&mut gathered) } else { Ok(()) }
    }

    fn commit(&self, gathered: &mut Gathered) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in gathered.drain() {
            match value {
                Some(value) => self.table.put(&mut transaction, &key, &value)?,
                None => drop(self.table.delete(&mut transaction, &key)?),
            }
        }
        Ok(transaction.commit()?)
    }
}

impl KeyValueStore for LmdbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.gather(key, Some(value))
    }

    fn put_batch(&self, pairs: &[Pair<'_>]) -> Result<()> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.add_all(pairs);
        self.commit(&mut gathered)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.gather(key, None)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let transaction = self.env.read_txn()?;
        let found = self.table.get(&transaction, key)?;
        if let Some(found) = found {
            value.clear();
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn scan_from(&self, key: &[u8], count: usize, visit: Visit<'_>) -> Result<usize> {
        let transaction = self.env.read_txn()?;
        let mut found = 0;
        for entry in self.table.range(&transaction, &(Bound::Included(key), Bound::Unbounded))?.take(count) {
            let (key, value) = entry?;
            visit(key, value);
            found += 1;
        }
        Ok(found)
    }

    fn scan_all(&self, visit: Visit<'_>) -> Result<u64> {
        let transaction = self.env.read_txn()?;
        let mut found = 0;
        for entry in self.table.iter(&transaction)? {
            let (key, value) = entry?;
            visit(key, value);
            found += 1;
        }
        Ok(found)
    }

    fn flush(&self) -> Result<()> {
        self.commit(&mut self.gathered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}
