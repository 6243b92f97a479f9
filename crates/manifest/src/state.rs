//! What all edits so far add up to.
//!
//! 1. An edit is checked against the state, and gives what it changes: the tables that it touches, and the counters
//!    (`change`). Nothing else is looked at, however many tables there are.
//! 2. That is put into the state once the edit is durable (`take`), or thrown away.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{Error, ErrorKind, FileNumber, MAX_FILE_NUMBER, Result, SequenceNumber, TableId};

use crate::edit::{AddedFile, ChangedRound, FORMAT_VERSION, ReplacedTable, RunPlace, TableRecord, VersionEdit};
use crate::file_meta::FileMeta;
use crate::tables::{TableState, Tables};

/// The state of a database. Records and versions are shared by its clones; O(tables) to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestState {
    /// Live tables by id.
    pub tables: Tables,
    /// Every file number below it may be in use; at least 1.
    pub next_file_number: FileNumber,
    /// The newest sequence number that any file may hold, or a log segment that is not needed any more: those of tables
    /// that were dropped count too.
    pub last_sequence: SequenceNumber,
    /// The first log segment still needed, which is there whenever this is not 0: 0 if none was ever recorded, and in a
    /// checkpoint, which has no log.
    pub oldest_wal: FileNumber,
    /// The format version of the manifest.
    pub format_version: u32,
    /// The next table id never used so far.
    pub next_table_id: u32,
    /// How many edits led here.
    pub edit_count: u64,
    /// A number that no other database has but copies of this one; 0 as long as it has none. The manifest keeps it with
    /// the state that a file starts with.
    pub identity: u64,
    /// A number that no copy of the database has but this one, which its archived log goes by; 0 as long as its log is
    /// not archived. Kept as the identity is.
    pub history: u64,
}

/// Bytes of tables' records in one edit of those that a manifest starts with.
const RECORD_BYTES: usize = 1 << 20;

impl Default for ManifestState {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            next_file_number: 1,
            last_sequence: 0,
            oldest_wal: 0,
            format_version: FORMAT_VERSION,
            next_table_id: 0,
            edit_count: 0,
            identity: 0,
            history: 0,
        }
    }
}

impl ManifestState {
    /// The live table of this name. O(1).
    pub fn table_named(&self, name: &str) -> Option<&TableState> {
        self.tables.named(name)
    }

    /// All files with their tables, those of compaction buffers too. Each comes once.
    pub fn files(&self) -> impl Iterator<Item = (&TableState, &Arc<FileMeta>)> {
        self.tables.values().flat_map(|table| {
            let in_levels = table.version.files().map(|(_, _, file)| file);
            in_levels.chain(table.version.buffered_files()).map(move |file| (table, file))
        })
    }

    /// The state after `edit`. Fails with `ErrorKind::InvalidArgument` if the edit does not fit. O(tables + files of
    /// the tables that the edit touches); what it says nothing of is shared with this state.
    pub fn apply(&self, edit: &VersionEdit) -> Result<ManifestState> {
        let mut next = self.clone();
        next.apply_in_place(edit)?;
        Ok(next)
    }

    /// As [`ManifestState::apply`], in place of this state, which stays as it is if the edit does not fit. O(edit +
    /// files of the tables that it touches), and O(log tables) for each of these.
    pub fn apply_in_place(&mut self, edit: &VersionEdit) -> Result<()> {
        let change = self.change(edit)?;
        self.take(change);
        Ok(())
    }

    /// What an edit changes, if it fits. Costs as [`ManifestState::apply_in_place`].
    pub(crate) fn change(&self, edit: &VersionEdit) -> Result<StateChange> {
        let raise = |current: u64, to: Option<u64>| current.max(to.unwrap_or(0));
        let edit_count = edit.ordinal.unwrap_or(self.edit_count.saturating_add(1)).max(self.edit_count);
        let mut tables = ChangedTables::new(self);
        tables.apply_tables(edit)?;
        tables.apply_files(edit, edit_count)?;
        let mut change = StateChange {
            next_file_number: raise(self.next_file_number, edit.next_file_number),
            last_sequence: raise(self.last_sequence, edit.last_sequence),
            oldest_wal: raise(self.oldest_wal, edit.oldest_wal),
            format_version: edit.format_version.unwrap_or(self.format_version),
            next_table_id: tables.next_table_id.max(edit.next_table_id.unwrap_or(0)),
            edit_count,
            identity: edit.identity.unwrap_or(self.identity),
            history: edit.history.unwrap_or(self.history),
            tables: tables.changed,
        };
        for added in &edit.added_files {
            change.next_file_number = change.next_file_number.max(added.file.number.saturating_add(1));
            change.last_sequence = change.last_sequence.max(added.file.max_sequence);
        }
        Ok(change)
    }

    /// Makes a change of this very state part of it.
    pub(crate) fn take(&mut self, change: StateChange) {
        for (id, table) in change.tables {
            match table {
                Some(table) => self.tables.insert(id, table),
                None => drop(self.tables.remove(&id)),
            }
        }
        self.next_file_number = change.next_file_number;
        self.last_sequence = change.last_sequence;
        self.oldest_wal = change.oldest_wal;
        self.format_version = change.format_version;
        self.next_table_id = change.next_table_id;
        self.edit_count = change.edit_count;
        self.identity = change.identity;
        self.history = change.history;
    }

    /// Edits that lead from the empty state to this one, the first carrying the format version: what a fresh manifest
    /// starts with. One edit for the counters and tables, and more for tables whose records are more than 1 MiB: each
    /// edit is one record of the file, whose length is limited. Then one per run, oldest runs first, and one for a
    /// table's rounds and the files of its compaction buffer.
    pub fn to_edits(&self) -> Vec<VersionEdit> {
        let mut records = self.records().into_iter();
        let mut edits = vec![VersionEdit {
            format_version: Some(FORMAT_VERSION),
            created_tables: records.next().unwrap_or_default(),
            next_file_number: Some(self.next_file_number),
            last_sequence: Some(self.last_sequence),
            oldest_wal: Some(self.oldest_wal),
            next_table_id: Some(self.next_table_id),
            ordinal: Some(self.edit_count),
            identity: (self.identity != 0).then_some(self.identity),
            history: (self.history != 0).then_some(self.history),
            ..VersionEdit::default()
        }];
        let ordinal = Some(self.edit_count);
        edits.extend(records.map(|created_tables| VersionEdit { created_tables, ordinal, ..VersionEdit::default() }));
        for (&table, state) in &self.tables {
            for (level, l) in state.version.levels.iter().enumerate() {
                for run in l.runs.iter().rev() {
                    let added = run.files.iter().map(|file| AddedFile {
                        table,
                        level,
                        place: RunPlace::Newest,
                        file: file.clone(),
                    });
                    edits.push(VersionEdit {
                        added_files: added.collect(),
                        ordinal: Some(self.edit_count),
                        ..VersionEdit::default()
                    });
                }
            }
            if !state.version.rounds.is_empty() {
                let rounds = state.version.rounds.iter().map(|round| ChangedRound { table, round: round.to_record() });
                edits.push(VersionEdit {
                    rounds: rounds.collect(),
                    buffered_files: state.version.buffered_files().map(|file| (table, file.clone())).collect(),
                    ordinal: Some(self.edit_count),
                    ..VersionEdit::default()
                });
            }
        }
        edits
    }

    /// The records of all tables, in parts of [`RECORD_BYTES`] or one record.
    fn records(&self) -> Vec<Vec<TableRecord>> {
        let mut parts: Vec<Vec<TableRecord>> = Vec::new();
        let mut bytes = 0_usize;
        for table in self.tables.values() {
            let TableRecord { name, definition, layout, .. } = &*table.record;
            bytes = bytes.saturating_add(name.len() + definition.len() + layout.len());
            match parts.last_mut() {
                Some(part) if bytes <= RECORD_BYTES => part.push(TableRecord::clone(&table.record)),
                _ => {
                    bytes = name.len() + definition.len() + layout.len();
                    parts.push(vec![TableRecord::clone(&table.record)]);
                }
            }
        }
        parts
    }

    /// Appends the edits of [`ManifestState::to_edits`]: their number as a varint, and each as a length-prefixed byte
    /// string.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let edits = self.to_edits();
        put_varint(out, edits.len() as u64);
        let mut bytes = Vec::new();
        for edit in &edits {
            bytes.clear();
            edit.encode(&mut bytes);
            put_bytes(out, &bytes);
        }
    }

    /// Reads back what [`ManifestState::encode`] wrote, and checks it.
    ///
    /// # Errors
    /// `ErrorKind::Unsupported` for a newer format; `ErrorKind::Corruption`, with the offset of the edit concerned, if
    /// edits are malformed, do not fit each other, or break an invariant.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut state = Self::default();
        for number in 0..reader.varint()? {
            let bytes = reader.bytes()?;
            let at = (reader.position() - bytes.len()) as u64;
            let malformed = |error: Error| match error.kind() {
                ErrorKind::Unsupported => error,
                _ => Error::corruption("malformed state of a manifest").at(at).caused_by(error),
            };
            let edit = VersionEdit::decode(bytes).map_err(malformed)?;
            if number == 0 && edit.format_version.is_none() {
                return Err(Error::corruption("the state of a manifest has no format version").at(at));
            }
            state.apply_in_place(&edit).map_err(malformed)?;
        }
        state.check()?;
        Ok(state)
    }

    /// Checks every version's invariants, that no two tables share a file, and that there are numbers left for files.
    pub fn check(&self) -> Result<()> {
        if self.next_file_number > MAX_FILE_NUMBER {
            return Err(Error::corruption("file number out of range")
                .expected(format_args!("at most {MAX_FILE_NUMBER}"), self.next_file_number));
        }
        let mut owners = std::collections::HashMap::new();
        for (id, table) in &self.tables {
            table.check().map_err(|e| {
                Error::corruption(format!("broken invariant of table {id} ({})", table.record.name)).caused_by(e)
            })?;
            let files = table.version.files().map(|(_, _, file)| file);
            for file in files.chain(table.version.buffered_files()) {
                if let Some(other) = owners.insert(file.number, *id) {
                    return Err(Error::corruption(format!("tables {other} and {id} share file {}", file.number)));
                }
            }
        }
        Ok(())
    }
}

/// What an edit makes of a state.
pub(crate) struct StateChange {
    /// The tables that become others; `None` where one goes.
    tables: BTreeMap<TableId, Option<TableState>>,
    pub(crate) next_file_number: FileNumber,
    last_sequence: SequenceNumber,
    oldest_wal: FileNumber,
    format_version: u32,
    next_table_id: u32,
    edit_count: u64,
    identity: u64,
    history: u64,
}

/// The tables of a state as an edit leaves them, piece by piece.
struct ChangedTables<'s> {
    state: &'s ManifestState,
    changed: BTreeMap<TableId, Option<TableState>>,
    /// Whose the names are that have changed hands.
    names: HashMap<String, Option<TableId>>,
    next_table_id: u32,
}

impl<'s> ChangedTables<'s> {
    fn new(state: &'s ManifestState) -> Self {
        Self { state, changed: BTreeMap::new(), names: HashMap::new(), next_table_id: state.next_table_id }
    }

    fn get(&self, id: TableId) -> Option<&TableState> {
        match self.changed.get(&id) {
            Some(changed) => changed.as_ref(),
            None => self.state.tables.get(&id),
        }
    }

    fn named(&self, name: &str) -> Option<TableId> {
        match self.names.get(name) {
            Some(changed) => *changed,
            None => self.state.tables.named(name).map(|table| table.record.id),
        }
    }

    /// Puts a table in its place, under a name that is no other's.
    fn put(&mut self, id: TableId, table: TableState) {
        if let Some(name) = self.get(id).map(|before| before.record.name.clone()) {
            self.names.insert(name, None);
        }
        self.names.insert(table.record.name.clone(), Some(id));
        self.changed.insert(id, Some(table));
    }

    fn remove(&mut self, id: TableId) -> Option<TableState> {
        let table = self.get(id).cloned()?;
        self.names.insert(table.record.name.clone(), None);
        self.changed.insert(id, None);
        Some(table)
    }

    fn apply_tables(&mut self, edit: &VersionEdit) -> Result<()> {
        for id in &edit.dropped_tables {
            if self.remove(*id).is_none() {
                return Err(Error::invalid(format!("table {id} to be dropped does not exist")));
            }
        }
        for replaced in &edit.replaced_tables {
            self.replace_table(replaced)?;
        }
        for record in &edit.created_tables {
            if self.named(&record.name).is_some() {
                return Err(Error::invalid(format!("there is a table named {:?} already", record.name)));
            }
            if self.get(record.id).is_some() {
                return Err(Error::invalid(format!("table id {} is taken", record.id)));
            }
            self.put(record.id, TableState { record: Arc::new(record.clone()), version: Arc::default() });
            self.next_table_id = self.next_table_id.max(record.id.0.saturating_add(1));
        }
        for record in &edit.changed_tables {
            if self.named(&record.name).is_some_and(|other| other != record.id) {
                return Err(Error::invalid(format!("there is a table named {:?} already", record.name)));
            }
            let Some(before) = self.get(record.id) else {
                return Err(Error::invalid(format!("table {} to be changed does not exist", record.id)));
            };
            let version = before.version.clone();
            self.put(record.id, TableState { record: Arc::new(record.clone()), version });
        }
        Ok(())
    }

    fn replace_table(&mut self, replaced: &ReplacedTable) -> Result<()> {
        let ReplacedTable { from, record, added, dropped } = replaced;
        let Some(TableState { record: before, version }) = self.remove(*from) else {
            return Err(Error::invalid(format!("table {from} to be replaced does not exist")));
        };
        if before.name != record.name {
            return Err(Error::invalid(format!("table {:?} is replaced by one named {:?}", before.name, record.name)));
        }
        if record.id.0 < self.next_table_id {
            return Err(Error::invalid(format!("table id {} is taken", record.id)));
        }
        let version = match (added, dropped) {
            (None, None) => version,
            (Some(added), None) => Arc::new(version.with_column(added)),
            (None, Some(dropped)) => Arc::new(version.without_column(dropped)),
            (Some(_), Some(_)) => return Err(Error::invalid("a table is replaced by one with other columns twice")),
        };
        self.next_table_id = record.id.0.saturating_add(1);
        self.put(record.id, TableState { record: Arc::new(record.clone()), version });
        Ok(())
    }

    fn apply_files(&mut self, edit: &VersionEdit, edit_count: u64) -> Result<()> {
        for (id, of_table) in by_table(edit, edit_count) {
            let Some(TableState { record, version }) = self.get(id) else {
                return Err(Error::invalid(format!("table {id} of a version edit does not exist")));
            };
            let (record, version) = (record.clone(), Arc::new(version.apply(id, &of_table)?));
            self.changed.insert(id, Some(TableState { record, version }));
        }
        Ok(())
    }
}

/// An edit's changes of files, table by table, with the creation ordinal filled into new files: where a flush is of
/// many tables, none looks at the files of all others.
fn by_table(edit: &VersionEdit, edit_count: u64) -> BTreeMap<TableId, VersionEdit> {
    let mut tables: BTreeMap<TableId, VersionEdit> = BTreeMap::new();
    for removed in &edit.removed_files {
        tables.entry(removed.table).or_default().removed_files.push(*removed);
    }
    for changed in &edit.rounds {
        tables.entry(changed.table).or_default().rounds.push(changed.clone());
    }
    for added in &edit.added_files {
        let mut added = added.clone();
        if added.file.created_at_edit == 0 {
            Arc::make_mut(&mut added.file).created_at_edit = edit_count;
        }
        tables.entry(added.table).or_default().added_files.push(added);
    }
    for (table, file) in &edit.buffered_files {
        if let Some(of_table) = tables.get_mut(table) {
            of_table.buffered_files.push((*table, file.clone()));
        }
    }
    tables
}
