//! An open database with its tables by index, and one that is open for reading only beside it and follows.

use std::collections::BTreeMap;
use std::path::Path;

use mycelium_base::{Error, ErrorKind, Result};
use mycelium_engine::{Database, Options, ReadOptions, Snapshot, Table};

use crate::index_checks::check_indexes;
use crate::model::{Row, State};
use crate::stored_rows::current_row;
use crate::view_checks::check_views;

/// The directory of the databases that tests make.
pub const DIRECTORY: &str = "/database";

/// The name of the table with this index.
pub(crate) fn table_name(index: usize) -> String {
    format!("table-{index}")
}

pub(crate) struct Opened {
    pub(crate) database: Database,
    /// By index; `None` where the table does not exist (yet).
    pub(crate) tables: Vec<Option<Table>>,
}

impl Opened {
    pub(crate) fn open(options: Options, count: usize) -> Result<Self> {
        let database = Database::open(Path::new(DIRECTORY), options)?;
        let tables = tables_of(&database, count)?;
        Ok(Self { database, tables })
    }

    /// Every row of every table, with which their indexes and views must agree.
    pub(crate) fn state(&self) -> Result<State> {
        self.state_at(None)
    }

    fn state_at(&self, snapshot: Option<&Snapshot>) -> Result<State> {
        let rows = |table: &Option<Table>| match table {
            Some(table) => rows_of(table, snapshot),
            None => Ok(BTreeMap::new()),
        };
        self.tables.iter().map(rows).collect()
    }

    pub(crate) fn close(self) -> Result<()> {
        drop(self.tables);
        self.database.close()
    }
}

fn tables_of(database: &Database, count: usize) -> Result<Vec<Option<Table>>> {
    let table = |index: usize| match database.table(&table_name(index)) {
        Ok(table) => Ok(Some(table)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    (0..count).map(table).collect()
}

/// The rows of a table, with which its indexes and views must agree; at a snapshot or now.
pub(crate) fn rows_of(table: &Table, snapshot: Option<&Snapshot>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let all = scan_of(table, snapshot)?;
    let rows: Vec<Row> = all.iter().map(|(key, row)| (key.clone(), row.clone())).collect();
    check_indexes(table, &rows, snapshot)?;
    check_views(table, &rows, snapshot)?;
    Ok(all)
}

fn scan_of(table: &Table, snapshot: Option<&Snapshot>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut rows = table.iter(&ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() })?;
    rows.seek_to_first()?;
    let mut all = BTreeMap::new();
    while let Some((key, value)) = current_row(table, &rows)? {
        all.insert(key, value);
        rows.next()?;
    }
    Ok(all)
}

/// A database opened for reading only, and what it should have.
pub(crate) struct Follower {
    opened: Opened,
    has: State,
}

impl Follower {
    pub(crate) fn new(opened: Opened, has: State) -> Self {
        Self { opened, has }
    }

    /// It has what it had, whatever was written since.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        match self.opened.state()? == self.has {
            true => Ok(()),
            false => Err(Error::invalid("opened for reading only beside a writer it has other rows than it had")),
        }
    }

    /// It catches up, and has these rows; at a snapshot from before it has what it had, of tables that are gone, too.
    pub(crate) fn follow(self, expected: &State) -> Result<Self> {
        let Self { opened: Opened { database, tables }, has } = self;
        let before = database.snapshot();
        database.catch_up()?;
        let past = Opened { database, tables };
        if past.state_at(Some(&before))? != has {
            return Err(Error::invalid("at a snapshot it has other rows than before it caught up"));
        }
        let tables = tables_of(&past.database, past.tables.len())?;
        let opened = Opened { database: past.database, tables };
        if opened.state()? != *expected {
            return Err(Error::invalid("it caught up and has other rows than what is opened anew"));
        }
        Ok(Self { opened, has: expected.clone() })
    }
}
