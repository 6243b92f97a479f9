//! redb: a copy-on-write B-tree in Rust. It has no log and no compression; a commit rewrites the path to the root. Puts
//! are gathered 1,000 to a commit without a sync, so up to 999 of them are not yet visible: more than the LSM engines
//! are allowed. Reads share one read transaction that every commit renews.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mycelium_bench::store::{Pair, Visit};
use mycelium_bench::{KeyValueStore, Result, StoreFactory, StoreOptions};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

use crate::gather::Gathered;

const TABLE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("data");

pub(crate) struct RedbFactory;

struct RedbStore {
    database: Database,
    gathered: Mutex<Gathered>,
    newest: RwLock<Arc<ReadOnlyTable<&'static [u8], &'static [u8]>>>,
}

impl StoreFactory for RedbFactory {
    fn name(&self) -> &str {
        "redb"
    }

    fn open(&self, directory: &Path, settings: &StoreOptions) -> Result<Box<dyn KeyValueStore>> {
        std::fs::create_dir_all(directory)?;
        let database = Database::builder()
            .set_cache_size(usize::try_from(settings.cache_bytes)?)
            .create(directory.join("data.redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        let newest = RwLock::new(Arc::new(database.begin_read()?.open_table(TABLE)?));
        Ok(Box::new(RedbStore { database, gathered: Mutex::new(Gathered::default()), newest }))
    }
}

impl RedbStore {
    fn table(&self) -> Arc<ReadOnlyTable<&'static [u8], &'static [u8]>> {
        Arc::clone(&self.newest.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn gather(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.add(key, value);
        if gathered.is_full() { self.commit(&mut gathered, Durability::None) } else { Ok(()) }
    }

    fn commit(&self, gathered: &mut Gathered, durability: Durability) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in gathered.drain() {
                match value {
                    Some(value) => drop(table.insert(key.as_slice(), value.as_slice())?),
                    None => drop(table.remove(key.as_slice())?),
                }
            }
        }
        transaction.commit()?;
        let newest = Arc::new(self.database.begin_read()?.open_table(TABLE)?);
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = newest;
        Ok(())
    }
}

impl KeyValueStore for RedbStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.gather(key, Some(value))
    }

    fn put_batch(&self, pairs: &[Pair<'_>]) -> Result<()> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.add_all(pairs);
        self.commit(&mut gathered, Durability::None)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.gather(key, None)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let table = self.table();
        let found = table.get(key)?;
        if let Some(found) = &found {
            value.clear();
            value.extend_from_slice(found.value());
        }
        Ok(found.is_some())
    }

    fn scan_from(&self, key: &[u8], count: usize, visit: Visit<'_>) -> Result<usize> {
        let mut found = 0;
        for entry in self.table().range(key..)?.take(count) {
            let (key, value) = entry?;
            visit(key.value(), value.value());
            found += 1;
        }
        Ok(found)
    }

    fn scan_all(&self, visit: Visit<'_>) -> Result<u64> {
        let mut found = 0;
        for entry in self.table().iter()? {
            let (key, value) = entry?;
            visit(key.value(), value.value());
            found += 1;
        }
        Ok(found)
    }

    fn flush(&self) -> Result<()> {
        self.commit(&mut self.gathered.lock().unwrap_or_else(PoisonError::into_inner), Durability::Immediate)
    }

    fn settle(&self) -> Result<()> {
        self.flush()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}
