//! What all edits so far add up to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{Error, ErrorKind, FileNumber, MAX_FILE_NUMBER, Result, SequenceNumber, TableId};

use crate::edit::{AddedFile, ChangedRound, FORMAT_VERSION, ReplacedTable, RunPlace, TableRecord, VersionEdit};
use crate::file_meta::FileMeta;
use crate::version::{Version, VersionError};

/// A live table: its record and its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableState {
    /// Name, definition, layout. Shared by the states of which no edit changes it.
    pub record: Arc<TableRecord>,
    /// The table's files.
    pub version: Arc<Version>,
}

impl TableState {
    /// Checks the version's invariants; that places tell the age of entries is none of a derived table.
    pub fn check(&self) -> std::result::Result<(), VersionError> {
        if self.record.is_derived() { self.version.check_places() } else { self.version.check() }
    }
}

/// The state of a database. Cheap to clone: records and versions are shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestState {
    /// Live tables by id.
    pub tables: BTreeMap<TableId, TableState>,
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

impl Default for ManifestState {
    fn default() -> Self {
        Self {
            tables: BTreeMap::new(),
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
    /// The live table of this name.
    pub fn table_named(&self, name: &str) -> Option<&TableState> {
        self.tables.values().find(|t| t.record.name == name)
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
        next.edit_count = edit.ordinal.unwrap_or(self.edit_count.saturating_add(1)).max(self.edit_count);
        next.format_version = edit.format_version.unwrap_or(self.format_version);
        next.identity = edit.identity.unwrap_or(self.identity);
        next.history = edit.history.unwrap_or(self.history);
        next.apply_tables(edit)?;
        next.apply_files(edit)?;
        let raise = |current: u64, to: Option<u64>| current.max(to.unwrap_or(0));
        next.next_file_number = raise(next.next_file_number, edit.next_file_number);
        next.last_sequence = raise(next.last_sequence, edit.last_sequence);
        next.oldest_wal = raise(next.oldest_wal, edit.oldest_wal);
        next.next_table_id = next.next_table_id.max(edit.next_table_id.unwrap_or(0));
        for added in &edit.added_files {
            next.next_file_number = next.next_file_number.max(added.file.number.saturating_add(1));
            next.last_sequence = next.last_sequence.max(added.file.max_sequence);
        }
        Ok(next)
    }

    fn apply_tables(&mut self, edit: &VersionEdit) -> Result<()> {
        for id in &edit.dropped_tables {
            if self.tables.remove(id).is_none() {
                return Err(Error::invalid(format!("table {id} to be dropped does not exist")));
            }
        }
        for replaced in &edit.replaced_tables {
            self.replace_table(replaced)?;
        }
        for record in &edit.created_tables {
            if self.table_named(&record.name).is_some() {
                return Err(Error::invalid(format!("there is a table named {:?} already", record.name)));
            }
            match self.tables.entry(record.id) {
                Entry::Occupied(_) => return Err(Error::invalid(format!("table id {} is taken", record.id))),
                Entry::Vacant(slot) => {
                    slot.insert(TableState { record: Arc::new(record.clone()), version: Arc::default() });
                }
            }
            self.next_table_id = self.next_table_id.max(record.id.0.saturating_add(1));
        }
        for record in &edit.changed_tables {
            if self.tables.values().any(|t| t.record.name == record.name && t.record.id != record.id) {
                return Err(Error::invalid(format!("there is a table named {:?} already", record.name)));
            }
            match self.tables.get_mut(&record.id) {
                Some(table) => table.record = Arc::new(record.clone()),
                None => return Err(Error::invalid(format!("table {} to be changed does not exist", record.id))),
            }
        }
        Ok(())
    }

    fn replace_table(&mut self, replaced: &ReplacedTable) -> Result<()> {
        let ReplacedTable { from, record, added, dropped } = replaced;
        let Some(TableState { record: before, version }) = self.tables.remove(from) else {
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
        self.tables.insert(record.id, TableState { record: Arc::new(record.clone()), version });
        Ok(())
    }

    fn apply_files(&mut self, edit: &VersionEdit) -> Result<()> {
        let mut touched: Vec<TableId> = edit.added_files.iter().map(|a| a.table).collect();
        touched.extend(edit.removed_files.iter().map(|r| r.table));
        touched.extend(edit.rounds.iter().map(|changed| changed.table));
        touched.sort_unstable();
        touched.dedup();
        if touched.is_empty() {
            return Ok(());
        }
        let stamped = self.stamp(edit);
        for id in touched {
            let Some(table) = self.tables.get_mut(&id) else {
                return Err(Error::invalid(format!("table {id} of a version edit does not exist")));
            };
            table.version = Arc::new(table.version.apply(id, &stamped)?);
        }
        Ok(())
    }

    /// The edit's file changes, with the creation ordinal filled into new files.
    fn stamp(&self, edit: &VersionEdit) -> VersionEdit {
        let mut stamped = VersionEdit {
            removed_files: edit.removed_files.clone(),
            rounds: edit.rounds.clone(),
            buffered_files: edit.buffered_files.clone(),
            ..VersionEdit::default()
        };
        for added in &edit.added_files {
            let mut added = added.clone();
            if added.file.created_at_edit == 0 {
                Arc::make_mut(&mut added.file).created_at_edit = self.edit_count;
            }
            stamped.added_files.push(added);
        }
        stamped
    }

    /// Edits that lead from the empty state to this one, the first carrying the format version: what a fresh manifest
    /// starts with. One edit for the counters and tables, then one per run, oldest runs first, and one for a table's
    /// rounds and the files of its compaction buffer.
    pub fn to_edits(&self) -> Vec<VersionEdit> {
        let mut edits = vec![VersionEdit {
            format_version: Some(FORMAT_VERSION),
            created_tables: self.tables.values().map(|t| TableRecord::clone(&t.record)).collect(),
            next_file_number: Some(self.next_file_number),
            last_sequence: Some(self.last_sequence),
            oldest_wal: Some(self.oldest_wal),
            next_table_id: Some(self.next_table_id),
            ordinal: Some(self.edit_count),
            identity: (self.identity != 0).then_some(self.identity),
            history: (self.history != 0).then_some(self.history),
            ..VersionEdit::default()
        }];
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
            state = state.apply(&edit).map_err(malformed)?;
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
