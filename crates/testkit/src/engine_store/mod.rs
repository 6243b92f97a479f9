//! The engine as a [`Store`]: a [`Configuration`] becomes options of a database with manual background work.
//!
//! Everything runs in the caller's thread, in an order that depends on the calls alone, so a history on a
//! [`mycelium_vfs::MemoryDisk`] does the same disk operations in every run.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mycelium_base::{Error, ErrorKind, Result};
use mycelium_encoding::key::decode_key;
use mycelium_encoding::row_format::RowFormat;
use mycelium_encoding::{Datum, DatumRef};
use mycelium_engine::{
    BackupInfo, Backups, Buffering, Database, IsolationLevel, ManualClock, Options, ReadOptions, SalvageOptions,
    Savepoint, Snapshot, Table, TableIterator, Transaction, TransactionOptions, WriteBatch, salvage, verify_directory,
};
use mycelium_vfs::{Disk, MemoryDisk};

use crate::configurations::Configuration;
pub use crate::engine_options::{database_options, durability, table_options};
use crate::engine_options::{layout_of, otherwise, with_later_columns};
use crate::index_checks::{check_indexes, check_indexes_by};
use crate::mechanisms::Mechanisms;
use crate::model::{Direction, Durability, Move, Row, ScanRange, State, TransactionStep, Write, WriteKind};
pub use crate::opened::DIRECTORY;
use crate::opened::{Follower, Opened, rows_of, table_name};
use crate::scan_checks::{Draw, HeldScan, check_scans, hold_scan};
use crate::store::Store;
use crate::stored_rows::{current_row, current_row_within, formats, packed, packed_by, stored};
use crate::tables::{ColumnChange, TableKind, changes_of};
use crate::view_checks::check_views;

mod derived;
mod moments;

/// The directory of their backups.
const BACKUPS: &str = "/backups";
/// What is said where a column is not dropped because of the column groups that there are.
const GROUPS_AGAINST: [&str; 2] =
    ["files have it alone in a column group", "two column groups of files are told apart by it alone"];

/// Of so many transactions, by their steps, one is asked for all that it finds through indexes.
const INDEXES_CHECKED: usize = 4;

/// Of every other open transaction the reads that are noted take no more bytes.
const FEW_READ_BYTES: usize = 256;

/// A database under test.
pub struct EngineStore {
    disk: Arc<dyn Disk>,
    configuration: Configuration,
    kinds: Vec<TableKind>,
    /// `None` after a failed opening.
    opened: Option<Opened>,
    /// Openings so far; with `changing_options` each has other options.
    openings: usize,
    /// Checkpoints made so far; each gets a directory of its own.
    checkpoints: u64,
    /// The same of what was salvaged.
    salvages: u64,
    /// Flushes asked for so far; each brings the next layout.
    flushes: usize,
    /// Scans of whole tables so far; each asks for other columns, in another way.
    scans: usize,
    /// Scans held open so far, for the same.
    held_scans: usize,
    /// Transactions begun and left open so far.
    begun: usize,
    /// The database as it was opened beside itself, following.
    reader: Option<Follower>,
    /// It stands at the beginning of 1970 but for passes that are asked for: what is in the background expires nothing.
    clock: Arc<ManualClock>,
    mechanisms: Mechanisms,
}

/// An open iterator.
pub struct OpenWalk {
    rows: TableIterator,
    formats: Option<(RowFormat, RowFormat)>,
}

/// An open transaction, its savepoints that stand, and how many steps it has taken.
pub struct OpenBatch {
    transaction: Transaction,
    savepoints: Vec<Savepoint>,
    steps: usize,
}

impl EngineStore {
    /// Adds a backup to those there are, of which few are kept, and restores it in `directory`.
    fn restore_backup(&self, directory: &str) -> Result<()> {
        let summary = self.database()?.backup(BACKUPS)?;
        let backups = Backups::open(self.disk.clone(), BACKUPS)?;
        backups.verify(Some(summary.number), |_, _| {})?.into_result()?;
        backups.restore(summary.number, directory, |_, _| {})?;
        backups.keep(2).map(drop)
    }

    /// Adds a backup to those there are.
    pub fn back_up(&self) -> Result<()> {
        self.database()?.backup(BACKUPS).map(drop)
    }

    /// The rows of every backup that is there, the oldest first: each is verified, restored and read.
    pub fn states_of_backups(&self) -> Result<Vec<State>> {
        if !self.disk.exists(Path::new(BACKUPS))? {
            return Ok(Vec::new());
        }
        let backups = Backups::open(self.disk.clone(), BACKUPS)?;
        let state = |BackupInfo { number, damage, .. }: BackupInfo| {
            damage.map_or(Ok(()), Err)?;
            backups.verify(Some(number), |_, _| {})?.into_result()?;
            let directory = format!("/restored-{number}");
            backups.restore(number, &directory, |_, _| {})?;
            self.state_of_copy(&directory)
        };
        backups.list()?.into_iter().map(state).collect()
    }

    /// The rows of a copy of the database, which is removed then.
    fn state_of_copy(&self, directory: &str) -> Result<State> {
        verify_directory(&*self.disk, Path::new(directory), |_, _| {})?.into_result()?;
        let options = database_options(&self.configuration, &self.kinds, self.disk.clone());
        let options = Options { archive: None, ..options };
        let copy = Database::open(directory, options)?;
        let rows = |index| match copy.table(&table_name(index)) {
            Ok(table) => rows_of(&table, None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        };
        let state = (0..self.kinds.len()).map(rows).collect();
        copy.close()?;
        for name in self.disk.list(Path::new(directory))? {
            self.disk.remove(&Path::new(directory).join(name))?;
        }
        state
    }

    /// An empty database with all tables, on a disk of its own.
    pub fn in_memory(configuration: &Configuration, kinds: &[TableKind]) -> Result<Self> {
        Self::create(Arc::new(MemoryDisk::new()), configuration, kinds)
    }

    /// Opens or creates the database in [`DIRECTORY`] and creates the tables that are missing.
    pub fn create(disk: Arc<dyn Disk>, configuration: &Configuration, kinds: &[TableKind]) -> Result<Self> {
        let mut store = Self::open(disk, configuration, kinds)?;
        store.create_tables()?;
        Ok(store)
    }

    /// Opens or creates the database in [`DIRECTORY`] as it is. A table that does not exist reads as empty.
    pub fn open(disk: Arc<dyn Disk>, configuration: &Configuration, kinds: &[TableKind]) -> Result<Self> {
        let mut store = Self {
            disk,
            configuration: configuration.clone(),
            kinds: kinds.to_vec(),
            opened: None,
            openings: 0,
            checkpoints: 0,
            salvages: 0,
            flushes: 0,
            scans: 0,
            held_scans: 0,
            begun: 0,
            reader: None,
            clock: Arc::default(),
            mechanisms: Mechanisms::new(configuration.levels()),
        };
        store.open_again()?;
        Ok(store)
    }

    /// Creates the tables that do not exist.
    pub fn create_tables(&mut self) -> Result<()> {
        for index in 0..self.kinds.len() {
            if self.opened()?.tables[index].is_none() {
                self.create_table(index)?;
            }
        }
        Ok(())
    }

    /// The kinds of the tables, by index.
    pub fn kinds(&self) -> &[TableKind] {
        &self.kinds
    }

    /// The open database.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the last opening failed.
    pub fn database(&self) -> Result<&Database> {
        self.opened.as_ref().map(|opened| &opened.database).ok_or_else(closed)
    }

    /// A table by its index.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it does not exist.
    pub fn table(&self, index: usize) -> Result<&Table> {
        let opened = self.opened.as_ref().ok_or_else(closed)?;
        opened.tables[index].as_ref().ok_or_else(|| missing(index))
    }

    /// Every row of every table, by a full scan of each, with which their indexes and views must agree.
    pub fn state(&self) -> Result<State> {
        self.opened.as_ref().ok_or_else(closed)?.state()
    }

    /// What ran so far of the configuration's mechanisms.
    pub fn mechanisms(&self) -> &Mechanisms {
        &self.mechanisms
    }

    fn observe(&mut self) {
        let typed = self.kinds.iter().enumerate().filter(|(_, kind)| kind.schema().is_some());
        let names: Vec<String> = typed.map(|(index, _)| table_name(index)).collect();
        if let Some(opened) = &self.opened {
            self.mechanisms.observe(&opened.database.metrics(), &names);
        }
    }

    /// Drops the handles without closing, as far as that can be done in one process: the disk should be off, or the
    /// store be opened on an image of it next.
    pub fn abandon(&mut self) {
        self.opened = None;
    }

    /// Opens the database on the present disk, closing nothing.
    pub fn open_again(&mut self) -> Result<()> {
        self.opened = None;
        self.opened = Some(Opened::open(self.options(), self.kinds.len())?);
        self.openings += 1;
        Ok(())
    }

    fn options(&self) -> Options {
        let options = database_options(&self.configuration, &self.kinds, self.disk.clone());
        let options = Options { clock: self.clock.clone(), ..options };
        if self.configuration.changing_options { otherwise(options, self.openings) } else { options }
    }

    /// Opened for reading only, the closed database has these rows, takes none, and leaves its directory as it is.
    fn look_while_closed(&self, expected: &State) -> Result<()> {
        let before = self.disk.list(Path::new(DIRECTORY))?;
        let opened = Opened::open(Options { read_only: true, ..self.options() }, self.kinds.len())?;
        if opened.state()? != *expected {
            return Err(Error::invalid("opened for reading only it has other rows"));
        }
        let written = opened.database.write(&WriteBatch::new(), mycelium_engine::Durability::Buffered);
        if written.is_ok() {
            return Err(Error::invalid("opened for reading only it takes a batch"));
        }
        opened.close()?;
        match self.disk.list(Path::new(DIRECTORY))? == before {
            true => Ok(()),
            false => Err(Error::invalid("opened for reading only it changed its directory")),
        }
    }

    fn steps_within(&self, open: &mut OpenBatch, steps: &[TransactionStep]) -> Result<()> {
        for step in steps {
            match step {
                TransactionStep::Write(write) => self.write_within(&mut open.transaction, write)?,
                TransactionStep::Savepoint => open.savepoints.push(open.transaction.savepoint()),
                TransactionStep::RollbackTo(index) => {
                    if let Some(savepoint) = open.savepoints.get(*index) {
                        open.transaction.rollback_to(*savepoint)?;
                        open.savepoints.truncate(index + 1);
                    }
                }
                TransactionStep::Release(index) => {
                    if let Some(savepoint) = open.savepoints.get(*index) {
                        open.transaction.release(*savepoint)?;
                        open.savepoints.truncate(*index);
                    }
                }
            }
        }
        Ok(())
    }

    fn write_within(&self, transaction: &mut Transaction, write: &Write) -> Result<()> {
        let (table, kind) = (self.table(write.table)?, self.kinds[write.table]);
        match &write.kind {
            WriteKind::Put(key, value) => transaction.put(table, key, &stored(table, kind, value)?),
            WriteKind::Patch(key, patch) => transaction.patch(table, key, &stored(table, kind, patch)?),
            WriteKind::Delete(key) => transaction.delete(table, key),
            WriteKind::Merge(key, operand) => transaction.merge(table, key, operand),
            WriteKind::DeleteRange(start, end) => transaction.delete_range(table, start, end),
        }
    }

    /// What the transaction finds through indexes must be what its own scans find.
    fn check_indexes_within(&self, transaction: &Transaction) -> Result<()> {
        for table in self.opened.iter().flat_map(|opened| opened.tables.iter().flatten()) {
            if table.indexes().is_empty() {
                continue;
            }
            let mut rows = Vec::new();
            let mut found = transaction.iter(table, &ReadOptions::default())?;
            found.seek_to_first()?;
            while found.valid() {
                rows.push((found.key().to_vec(), packed(table, found.value().to_vec())?));
                found.next()?;
            }
            check_indexes_by(table, &rows, &|index, bounds, columns| {
                Ok(Box::new(transaction.index_range(index, bounds, columns)?))
            })?;
        }
        Ok(())
    }

    fn create_bare_table(&mut self, index: usize) -> Result<()> {
        let (kind, options) = (self.kinds[index], table_options(&self.configuration, self.kinds[index]));
        let (opened, name) = (self.opened()?, table_name(index));
        let table = match kind.schema() {
            Some(schema) => opened.database.create_typed_table(&name, (*schema).clone(), options)?,
            None => opened.database.create_table(&name, options)?,
        };
        opened.tables[index] = Some(table);
        Ok(())
    }

    /// Builds a table's indexes: before that its columns cannot change.
    fn build_indexes(&self, table: usize) -> Result<()> {
        let are_built = |table: &Table| table.indexes().iter().all(|index| index.is_built());
        while !are_built(self.table(table)?) && self.database()?.step()? {}
        Ok(())
    }

    /// Puts a table whose columns changed in the place of the one before.
    fn take_anew(&mut self, index: usize, table: Table) -> Result<()> {
        self.opened()?.tables[index] = Some(table);
        self.observe();
        Ok(())
    }

    fn opened(&mut self) -> Result<&mut Opened> {
        self.opened.as_mut().ok_or_else(closed)
    }

    fn read_options(&self, snapshot: Option<&Snapshot>) -> ReadOptions {
        ReadOptions {
            snapshot: snapshot.cloned(),
            fill_cache: self.configuration.fill_cache,
            read_ahead: self.configuration.read_ahead_bytes,
            expected_rows: self.configuration.expected_rows,
            ..ReadOptions::default()
        }
    }

    fn range_options(&self, range: &ScanRange, snapshot: Option<&Snapshot>) -> ReadOptions {
        let after = |key: &Vec<u8>| [key.as_slice(), &[0]].concat();
        ReadOptions {
            lower: match &range.lower {
                Bound::Included(key) => Some(key.clone()),
                Bound::Excluded(key) => Some(after(key)),
                Bound::Unbounded => None,
            },
            upper: match &range.upper {
                Bound::Included(key) => Some(after(key)),
                Bound::Excluded(key) => Some(key.clone()),
                Bound::Unbounded => None,
            },
            prefix: range.prefix.clone(),
            ..self.read_options(snapshot)
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is not open")
}

fn missing(index: usize) -> Error {
    Error::new(ErrorKind::NotFound, format!("table {index} was not created"))
}

fn move_rows(rows: &mut TableIterator, step: &Move) -> Result<()> {
    match step {
        Move::First => rows.seek_to_first(),
        Move::Last => rows.seek_to_last(),
        Move::Seek(key) => rows.seek(key),
        Move::SeekForPrev(key) => rows.seek_for_prev(key),
        Move::Next => rows.next(),
        Move::Prev => rows.prev(),
    }
}

/// The row of a key that is locked, and whether the transaction sees newer rows for that.
fn read_for_update(transaction: &mut Transaction, table: &Table, key: &[u8]) -> Result<(bool, Option<Vec<u8>>)> {
    let before = transaction.snapshot().sequence();
    if let Some(schema) = table.schema() {
        let values = decode_key(schema, key)?;
        let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrowed).collect();
        transaction.lock_row(table, &values)?;
    }
    let row = transaction.get_for_update(table, key)?.map(|row| packed(table, row)).transpose()?;
    Ok((transaction.snapshot().sequence() != before, row))
}

/// Reading some columns must give what the whole row has. Which ones follows from the key.
fn check_projection(table: &Table, key: &[u8], row: Option<&[u8]>, options: &ReadOptions) -> Result<()> {
    let Some(schema) = table.schema() else { return Ok(()) };
    let columns: Vec<usize> = schema.live_columns().map(|(column, _)| column).collect();
    let draw = key.iter().fold(7_usize, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let projection: Vec<usize> = (0..draw % 4).map(|i| columns[(draw / 5 + i * 3) % columns.len()]).collect();
    // Histories also ask for keys that no row can have.
    let Ok(key_values) = decode_key(schema, key) else { return Ok(()) };
    let borrowed: Vec<DatumRef<'_>> = key_values.iter().map(Datum::borrowed).collect();
    let found = table.get_row(&borrowed, Some(&projection), options)?;
    let layout = table.packed_layout()?;
    let expected = match row {
        None => None,
        Some(row) => {
            let row = layout.row(row)?;
            let value = |&column: &usize| match schema.primary_key().iter().position(|&key| key == column) {
                Some(at) => Ok(key_values[at].clone()),
                None => Ok(row.datum(column)?.map_or(Datum::Null, |datum| datum.to_datum())),
            };
            Some(projection.iter().map(value).collect::<Result<Vec<_>>>()?)
        }
    };
    if found == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("columns {projection:?} read as {found:?}, but the row has {expected:?}")))
}

impl Store for EngineStore {
    type Snapshot = Snapshot;
    type Walk = OpenWalk;
    type Scan = HeldScan;
    type Transaction = OpenBatch;

    fn write(&mut self, batch: &[Write], wanted: Durability) -> Result<()> {
        let mut out = WriteBatch::new();
        for write in batch {
            let (table, kind) = (self.table(write.table)?, self.kinds[write.table]);
            match &write.kind {
                WriteKind::Put(key, value) => out.put(table, key, &stored(table, kind, value)?),
                WriteKind::Patch(key, patch) => out.patch(table, key, &stored(table, kind, patch)?),
                WriteKind::Delete(key) => out.delete(table, key),
                WriteKind::Merge(key, operand) => out.merge(table, key, operand),
                WriteKind::DeleteRange(start, end) => out.delete_range(table, start, end),
            };
        }
        self.database()?.write(&out, durability(wanted)).map(drop)
    }

    fn transact(
        &mut self,
        steps: &[TransactionStep],
        keys: &[(usize, Vec<u8>)],
        commit: Option<Durability>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let transaction = self.database()?.begin(IsolationLevel::Serializable);
        let mut open = OpenBatch { transaction, savepoints: Vec::new(), steps: 0 };
        self.steps_within(&mut open, steps)?;
        let transaction = open.transaction;
        if steps.len().is_multiple_of(INDEXES_CHECKED) {
            self.check_indexes_within(&transaction)?;
        }
        let answers = keys
            .iter()
            .map(|(index, key)| {
                let table = self.table(*index)?;
                transaction.get(table, key)?.map(|row| packed(table, row)).transpose()
            })
            .collect::<Result<_>>()?;
        match commit {
            Some(wanted) => drop(transaction.commit(durability(wanted))?),
            None => transaction.rollback(),
        }
        Ok(answers)
    }

    fn ingest(&mut self, table: usize, rows: &[Row]) -> Result<()> {
        let (table, kind) = (self.table(table)?, self.kinds[table]);
        // Indexes come and go in the midst of it, too.
        let turns_at = self.configuration.changing_indexes.then_some(rows.len() / 2);
        let rows = rows.iter().enumerate().map(|(i, (key, value))| {
            if turns_at == Some(i) {
                self.turn_index()?;
            }
            Ok((key, stored(table, kind, value)?))
        });
        table.ingest(rows).map(drop)
    }

    fn drop_table(&mut self, table: usize) -> Result<()> {
        let opened = self.opened()?;
        opened.database.drop_table(&table_name(table))?;
        opened.tables[table] = None;
        Ok(())
    }

    fn create_table(&mut self, index: usize) -> Result<()> {
        self.create_bare_table(index)?;
        let augments = &self.configuration.indexes;
        augments.iter().try_for_each(|augment| self.create_index(index, augment))?;
        self.configuration.views.iter().try_for_each(|view| self.create_view(index, view))
    }

    fn change_columns(&mut self, index: usize) -> Result<bool> {
        self.build_indexes(index)?;
        let (table, kind) = (self.table(index)?, self.kinds[index]);
        let Some(schema) = table.schema() else { return Ok(false) };
        let Some(change) = kind.next_change(changes_of(schema)) else { return Ok(false) };
        let (added, table) = match change {
            ColumnChange::Add(column) => (1, self.database()?.add_column(table, column)?),
            ColumnChange::Drop(at) => {
                self.drop_derived_of(index, at)?;
                match self.database()?.drop_column(table, &schema.columns()[at].name) {
                    Err(error) if GROUPS_AGAINST.iter().any(|part| error.to_string().contains(part)) => {
                        return Ok(false);
                    }
                    dropped => (0, dropped?),
                }
            }
        };
        self.mechanisms.columns_added += added;
        self.take_anew(index, table)?;
        Ok(true)
    }

    /// To and fro between its first name and another one.
    fn rename_column(&mut self, index: usize, column: usize) -> Result<()> {
        self.build_indexes(index)?;
        let table = self.table(index)?;
        let Some(column) = table.schema().and_then(|schema| schema.columns().get(column)) else { return Ok(()) };
        let other = column.name.strip_suffix('_').map_or_else(|| format!("{}_", column.name), str::to_owned);
        let table = self.database()?.rename_column(table, &column.name, &other)?;
        self.take_anew(index, table)
    }

    fn set_expiry(&mut self, table: usize, age: Option<Duration>) -> Result<()> {
        self.change_expiry(table, age)
    }

    fn expire(&mut self, table: usize, now: Duration) -> Result<u64> {
        let deleted = self.make_pass(table, now)?;
        self.mechanisms.rows_expired += deleted;
        Ok(deleted)
    }

    fn get(&mut self, table: usize, key: &[u8], snapshot: Option<&Snapshot>) -> Result<Option<Vec<u8>>> {
        let table = self.table(table)?;
        let options = self.read_options(snapshot);
        let row = table.get_with(key, &options, &mut mycelium_base::ReadCounters::default())?;
        let row = row.map(|row| packed(table, row)).transpose()?;
        check_projection(table, key, row.as_deref(), &options)?;
        Ok(row)
    }

    fn multi_get(
        &mut self,
        table: usize,
        keys: &[Vec<u8>],
        snapshot: Option<&Snapshot>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let table = self.table(table)?;
        let rows = table.multi_get(&keys, &self.read_options(snapshot))?;
        rows.into_iter().map(|row| row.map(|row| packed(table, row)).transpose()).collect()
    }

    fn scan(
        &mut self,
        table: usize,
        range: &ScanRange,
        direction: Direction,
        limit: usize,
        snapshot: Option<&Snapshot>,
    ) -> Result<Vec<Row>> {
        let table = self.table(table)?;
        let mut rows = table.iter(&self.range_options(range, snapshot))?;
        match direction {
            Direction::Forward => rows.seek_to_first()?,
            Direction::Backward => rows.seek_to_last()?,
        }
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(row) = current_row(table, &rows)? else { break };
            found.push(row);
            match direction {
                Direction::Forward => rows.next()?,
                Direction::Backward => rows.prev()?,
            }
        }
        if *range == ScanRange::ALL && limit == usize::MAX {
            check_indexes(table, &found, snapshot)?;
            check_views(table, &found, snapshot)?;
            check_scans(table, &found.iter().cloned().collect(), snapshot, Draw(self.scans))?;
            self.scans += 1;
        }
        Ok(found)
    }

    fn walk(
        &mut self,
        table: usize,
        range: &ScanRange,
        moves: &[Move],
        snapshot: Option<&Snapshot>,
    ) -> Result<Vec<Option<Row>>> {
        let table = self.table(table)?;
        let mut rows = table.iter(&self.range_options(range, snapshot))?;
        let mut places = Vec::with_capacity(moves.len());
        for step in moves {
            move_rows(&mut rows, step)?;
            places.push(current_row(table, &rows)?);
        }
        Ok(places)
    }

    fn open_walk(&mut self, table: usize, range: &ScanRange, snapshot: Option<&Snapshot>) -> Result<OpenWalk> {
        let table = self.table(table)?;
        let rows = table.iter(&self.range_options(range, snapshot))?;
        Ok(OpenWalk { rows, formats: formats(table)? })
    }

    fn go_on(&mut self, walk: &mut OpenWalk, moves: &[Move]) -> Result<Vec<Option<Row>>> {
        let OpenWalk { rows, formats } = walk;
        let mut places = Vec::with_capacity(moves.len());
        for step in moves {
            move_rows(rows, step)?;
            places.push(match rows.valid() {
                true => Some((rows.key().to_vec(), packed_by(formats.as_ref(), rows.value().to_vec())?)),
                false => None,
            });
        }
        Ok(places)
    }

    fn open_scan(&mut self, table: usize, rows: &[Row], snapshot: Option<&Snapshot>) -> Result<HeldScan> {
        self.held_scans += 1;
        let rows = rows.iter().cloned().collect();
        hold_scan(self.table(table)?, &rows, snapshot, Draw(self.held_scans))
    }

    fn take_batches(&mut self, scan: &mut HeldScan, count: usize) -> Result<()> {
        scan(count)
    }

    /// Every other one has little room for the reads that it notes.
    fn begin(&mut self, is_serializable: bool) -> Result<OpenBatch> {
        self.begun += 1;
        let isolation = if is_serializable { IsolationLevel::Serializable } else { IsolationLevel::Snapshot };
        let options = TransactionOptions { isolation, lock_timeout: Duration::ZERO, ..TransactionOptions::default() };
        let options = match self.begun % 2 {
            0 => TransactionOptions { tracked_read_bytes: FEW_READ_BYTES, ..options },
            _ => options,
        };
        Ok(OpenBatch { transaction: self.database()?.begin_with(options), savepoints: Vec::new(), steps: 0 })
    }

    fn take_steps(&mut self, open: &mut OpenBatch, steps: &[TransactionStep]) -> Result<()> {
        open.steps += steps.len();
        self.steps_within(open, steps)
    }

    fn get_within(&mut self, open: &mut OpenBatch, table: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let table = self.table(table)?;
        open.transaction.get(table, key)?.map(|row| packed(table, row)).transpose()
    }

    fn scan_within(
        &mut self,
        open: &mut OpenBatch,
        table: usize,
        range: &ScanRange,
        direction: Direction,
    ) -> Result<Vec<Row>> {
        let table = self.table(table)?;
        let mut rows = open.transaction.iter(table, &self.range_options(range, None))?;
        match direction {
            Direction::Forward => rows.seek_to_first()?,
            Direction::Backward => rows.seek_to_last()?,
        }
        let mut found = Vec::new();
        while let Some(row) = current_row_within(table, &rows)? {
            found.push(row);
            match direction {
                Direction::Forward => rows.next()?,
                Direction::Backward => rows.prev()?,
            }
        }
        Ok(found)
    }

    fn walk_within(
        &mut self,
        open: &mut OpenBatch,
        table: usize,
        range: &ScanRange,
        moves: &[Move],
    ) -> Result<Vec<Option<Row>>> {
        let table = self.table(table)?;
        let mut rows = open.transaction.iter(table, &self.range_options(range, None))?;
        let mut places = Vec::with_capacity(moves.len());
        for step in moves {
            match step {
                Move::First => rows.seek_to_first()?,
                Move::Last => rows.seek_to_last()?,
                Move::Seek(key) => rows.seek(key)?,
                Move::SeekForPrev(key) => rows.seek_for_prev(key)?,
                Move::Next => rows.next()?,
                Move::Prev => rows.prev()?,
            }
            places.push(current_row_within(table, &rows)?);
        }
        Ok(places)
    }

    /// On tables with columns the lock is asked for by the values of the key.
    fn get_for_update(&mut self, open: &mut OpenBatch, table: usize, key: &[u8]) -> Result<(bool, Option<Vec<u8>>)> {
        let table = self.table(table)?;
        let found = read_for_update(&mut open.transaction, table, key);
        let counted = match &found {
            Ok((has_moved, _)) => {
                self.mechanisms.locks_that_moved += u64::from(*has_moved);
                Some(&mut self.mechanisms.locks_granted)
            }
            Err(error) => (error.kind() == ErrorKind::LockTimeout).then_some(&mut self.mechanisms.locks_refused),
        };
        if let Some(count) = counted {
            *count += 1;
        }
        found
    }

    /// Of transactions that note no reads, some are asked before for all that they find through indexes.
    fn end(&mut self, open: OpenBatch, commit: Option<Durability>) -> Result<()> {
        if open.transaction.isolation() == IsolationLevel::Snapshot && open.steps.is_multiple_of(INDEXES_CHECKED) {
            self.check_indexes_within(&open.transaction)?;
        }
        match commit {
            Some(wanted) => open.transaction.commit(durability(wanted)).map(drop),
            None => {
                open.transaction.rollback();
                Ok(())
            }
        }
    }

    /// # Panics
    /// If the store is not open.
    fn snapshot(&mut self) -> Snapshot {
        match self.database() {
            Ok(database) => database.snapshot(),
            Err(error) => panic!("{error}"),
        }
    }

    /// A flush brings the next of the configuration's layouts.
    fn flush(&mut self) -> Result<()> {
        self.flushes += 1;
        let layouts = &self.configuration.layouts;
        if layouts.len() > 1 {
            let text = &layouts[self.flushes % layouts.len()];
            for (index, kind) in self.kinds.iter().enumerate() {
                if let (Some(layout), Ok(table)) = (layout_of(*kind, text), self.table(index)) {
                    let layout = with_later_columns(layout, *kind, table, self.flushes);
                    self.database()?.set_layout(table, layout)?;
                }
            }
            self.mechanisms.layout_changes += 1;
        }
        if self.configuration.changing_indexes {
            self.turn_index()?;
        }
        if self.configuration.changing_views {
            self.turn_view()?;
        }
        self.database()?.flush()?;
        self.observe();
        if self.configuration.buffer != Buffering::Off {
            // The multiplicative hash of the flush: a different part of the budget each time, all of it now and then.
            let part = (self.flushes as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
            self.database()?.trim_buffer(self.configuration.buffer_bytes * part / 3)?;
        }
        Ok(())
    }

    fn compact(&mut self, table: usize) -> Result<()> {
        self.database()?.compact(self.table(table)?)?;
        self.observe();
        Ok(())
    }

    fn compact_part(&mut self, table: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<()> {
        self.database()?.compact_range(self.table(table)?, lower, upper)?;
        self.observe();
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.database()?.step()?;
        self.observe();
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.observe();
        self.mechanisms.reopened();
        self.reader.iter().try_for_each(Follower::check_unchanged)?;
        if let Some(opened) = self.opened.take() {
            let rows = self.configuration.changing_options.then(|| opened.state()).transpose()?;
            opened.close()?;
            rows.iter().try_for_each(|rows| self.look_while_closed(rows))?;
        }
        self.open_again()
    }

    fn checkpoint(&mut self) -> Result<State> {
        self.checkpoints += 1;
        let directory = format!("/checkpoint-{}", self.checkpoints);
        if self.checkpoints.is_multiple_of(2) {
            self.restore_backup(&directory)?;
        } else {
            self.database()?.checkpoint(&directory)?;
        }
        self.state_of_copy(&directory)
    }

    fn salvage(&mut self) -> Result<State> {
        self.observe();
        self.mechanisms.reopened();
        self.reader.iter().try_for_each(Follower::check_unchanged)?;
        if let Some(opened) = self.opened.take() {
            opened.close()?;
        }
        self.salvages += 1;
        let directory = format!("/salvaged-{}", self.salvages);
        let options = SalvageOptions { disk: self.disk.clone(), ..SalvageOptions::default() };
        let report = salvage(DIRECTORY, &directory, &options, |_, _| {})?;
        if !report.is_complete() {
            return Err(Error::invalid(format!("of what is whole something was lost: {report:?}")));
        }
        let state = self.state_of_copy(&directory)?;
        self.open_again()?;
        Ok(state)
    }

    /// What was opened when it looked first follows, and has the same. Neither changes the directory.
    fn look(&mut self) -> Result<State> {
        self.reader.iter().try_for_each(Follower::check_unchanged)?;
        let before = self.disk.list(Path::new(DIRECTORY))?;
        let opened = Opened::open(Options { read_only: true, ..self.options() }, self.kinds.len())?;
        let state = opened.state()?;
        self.reader = Some(match self.reader.take() {
            Some(reader) => reader.follow(&state)?,
            None => Follower::new(opened, state.clone()),
        });
        if self.disk.list(Path::new(DIRECTORY))? != before {
            return Err(Error::invalid("opened for reading only beside a writer it changed the directory"));
        }
        Ok(state)
    }

    fn verify(&mut self) -> Result<()> {
        let opened = self.opened.as_ref().ok_or_else(closed)?;
        for table in opened.tables.iter().flatten().filter(|table| table.schema().is_some()) {
            let rows = rows_of(table, None)?;
            (0..Draw::ALL).try_for_each(|draw| check_scans(table, &rows, None, Draw(draw)))?;
        }
        self.database()?.verify(|_, _| {})?.into_result().map(drop)
    }
}
