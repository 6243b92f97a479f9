//! The tables of a database as DataFusion finds them: one catalog with one schema, at one snapshot.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use mycelium_base::ErrorKind;
use mycelium_engine::{Database, Snapshot, Table};

use crate::failure::outward;
use crate::table::MyceliumTable;

/// The name of the catalog.
pub const CATALOG: &str = "mycelium";
/// The name of its one schema.
pub const SCHEMA: &str = "public";

/// The typed tables of a database, all at one snapshot. It serves one statement, or as many as shall see the same.
///
/// In a session of one's own with DataFusion:
///
/// ```
/// use std::sync::Arc;
/// use mycelium_engine::{Database, Options};
/// use mycelium_sql::{CATALOG, Catalog};
/// use mycelium_sql::datafusion::prelude::SessionContext;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// let context = SessionContext::new();
/// context.register_catalog(CATALOG, Arc::new(Catalog::new(&database, database.snapshot())));
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Catalog {
    database: Database,
    snapshot: Snapshot,
}

impl Catalog {
    /// The tables as the snapshot sees them.
    pub fn new(database: &Database, snapshot: Snapshot) -> Self {
        Self { database: database.clone(), snapshot }
    }

    /// The table with this name, if there is one.
    fn find(&self, name: &str) -> mycelium_base::Result<Option<Table>> {
        match self.database.table(name) {
            Ok(table) => Ok(Some(table)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == SCHEMA).then(|| Arc::new(self.clone()) as Arc<dyn SchemaProvider>)
    }
}

#[async_trait]
impl SchemaProvider for Catalog {
    fn table_names(&self) -> Vec<String> {
        let is_typed = |name: &String| matches!(self.find(name), Ok(Some(table)) if table.schema().is_some());
        self.database.table_names().into_iter().filter(is_typed).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(table) = self.find(name).map_err(outward)? else { return Ok(None) };
        if table.schema().is_none() {
            return Err(DataFusionError::Plan(format!(
                "the keys and values of table {name} are bytes: it has no columns"
            )));
        }
        let table = MyceliumTable::new(table, self.snapshot.clone()).map_err(outward)?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(_)))
    }
}
