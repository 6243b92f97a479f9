//! Version edits: what changes from one state of the database to the next, and its bytes.
//!
//! An edit is a sequence of tagged fields:
//!
//! ```text
//! edit  = field*
//! field = tag varint | length varint | body (length bytes)
//! tag 2   format version        version varint; first field of a manifest's first record
//! tag 4   table created         id, name, definition, layout
//! tag 6   table dropped         id
//! tag 8   table changed         id, name, definition, layout
//! tag 10  file removed          table, level, number
//! tag 12  file added            table, level, place, file
//! tag 14  next file number      varint
//! tag 16  last sequence         varint
//! tag 18  oldest log segment    varint
//! tag 20  ordinal of the edit   varint; only in the records that open a manifest
//! tag 22  next table id         varint; only in the records that open a manifest
//! tag 24  round changed         table, round (from format 3 on)
//! tag 26  file buffered         table, file; only in the records that open a manifest (from format 3 on)
//! tag 27  identity              u64 LE; only in the first record of a manifest
//! tag 28  table replaced        id, then id, name, definition, layout of the table in its place, added
//! tag 29  history               u64 LE; only in the first record of a manifest
//! tag 30  table replaced        id, then id, name, definition, layout of the table in its place, which has a column less:
//!                               column | group of whole rows
//! added = 1 if it has another column, else 0, u8 | and if so: column | group of whole rows
//!       | 1 if it joins a column, else 0, u8 | [that column]
//! place = 0 newest | 1 sorted | 2 in place of, number | 3 inserted (from format 3 on)
//! file  = number | size | checksum u64 LE | smallest bytes | largest bytes | flags u8 | min sequence | max sequence
//!       | entries | deletes | range deletes | created at edit | [sequence override if flags bit 1]
//!       | [group if flags bit 2]
//! flags = bit 0 largest is exclusive, bit 1 has a sequence override, bit 2 holds one column group and not whole rows
//! group = see `mycelium_base::column_group`
//! round = level | number | flags u8 | [group if flags bit 1] | [segments if flags bit 2] | [segments if flags bit 3]
//! flags = bit 0 has a deletion part, bit 1 of one column group and not of whole rows, bit 2 has segments of the insertion
//!         part, bit 3 has segments of the deletion part
//! segments = count | number of a file, count times, newest first | count | interval, count times, in key order
//! interval = smallest bytes | largest bytes | 1 if the largest is exclusive, else 0, u8
//! ```
//!
//! The segments of a round are files of the table before the edit, in its levels or in the compaction buffer, or come
//! with the same edit. A file leaves the buffer when no round names it.
//!
//! Integers are varints unless said otherwise, bytes and text are length-prefixed. A reader that does not know a tag
//! skips it if the tag is odd and refuses the file (`ErrorKind::Unsupported`) if it is even.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::limits::{MAX_KEY_LEN, MAX_LEVELS};
use mycelium_base::{
    ColumnSet, Error, ErrorKind, FileNumber, Group, MAX_SEQUENCE_NUMBER, Result, SequenceNumber, TableId,
};

use crate::file_meta::{FileMeta, KeyRange};
use crate::round::{Round, Segment, Segments};

/// The newest manifest format this code reads, and the one it writes.
pub const FORMAT_VERSION: u32 = 4;

/// What the manifest keeps of a table besides its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableRecord {
    /// Never reused.
    pub id: TableId,
    /// Unique among the live tables.
    pub name: String,
    /// Options and schema, in the engine's encoding; opaque here.
    pub definition: Vec<u8>,
    /// The layout, in its text form; [`TableRecord::DERIVED`] of a derived table.
    pub layout: String,
}

impl TableRecord {
    /// The layout of a derived table: entries at every level as they come, whose places say nothing of their age.
    pub const DERIVED: &str = "derived";

    /// Whether its entries may overtake each other.
    pub fn is_derived(&self) -> bool {
        self.layout == Self::DERIVED
    }
}

/// A column that a table gets, behind all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddedColumn {
    /// Its position in the schema.
    pub column: usize,
    /// What files of whole rows held before it.
    pub whole: Group,
    /// The column in whose group it is from now on, wherever that lies; in every group if there was no column outside
    /// the key.
    pub beside: Option<usize>,
}

impl AddedColumn {
    /// What files that were written before hold; `None` is whole rows, as they were.
    pub fn widen(&self, group: Option<&Group>) -> Group {
        let group = group.unwrap_or(&self.whole);
        match self.beside {
            Some(beside) if !group.columns.contains(beside) => group.clone(),
            _ => group.with_lacking(self.column),
        }
    }
}

/// A column that a table has no more. Its position stays taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DroppedColumn {
    /// Its position in the schema.
    pub column: usize,
    /// What files of whole rows held before.
    pub whole: Group,
}

impl DroppedColumn {
    /// What files that were written before hold; `None` is whole rows, as they were and as they are from now on.
    pub fn narrow(&self, group: Option<&Group>) -> Option<Group> {
        let narrow = group.unwrap_or(&self.whole).with_dropped(self.column);
        let columns = self.whole.columns.difference(&ColumnSet::from_iter([self.column]));
        (narrow != Group::new(columns, self.whole.format)).then_some(narrow)
    }
}

/// A table that takes the place of another, whose name and files it has: for whoever knows the other one, that is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplacedTable {
    /// The table that goes.
    pub from: TableId,
    /// The one that comes, of an id never used before.
    pub record: TableRecord,
    /// The column that it has and the other did not.
    pub added: Option<AddedColumn>,
    /// The column that the other had and it does not; not together with one that it has.
    pub dropped: Option<DroppedColumn>,
}

/// Where in its level an added file goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunPlace {
    /// A new run, newer than all others of the level. The files of one column group that one edit adds to a level so
    /// form one run; at level 0 each file is a run of its own, later ones newer.
    Newest,
    /// The only run of the file's column group in the level (leveled levels), between its neighbours in key order.
    Sorted,
    /// A new run where the run holding this file was (which the edit usually removes). The files of one column group
    /// that one edit adds at one place form one run; at level 0 each is a run of its own, later ones newer.
    InPlaceOf(FileNumber),
    /// The insertion part of the file's column group in a two-phase level, between its neighbours in key order: a new
    /// run, newer than all others of the level, where there is none.
    Inserted,
}

/// A file added to a level of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddedFile {
    /// The table.
    pub table: TableId,
    /// The level, below [`MAX_LEVELS`].
    pub level: usize,
    /// Where in the level.
    pub place: RunPlace,
    /// The file.
    pub file: Arc<FileMeta>,
}

/// A file removed from a level of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovedFile {
    /// The table.
    pub table: TableId,
    /// The level it is in.
    pub level: usize,
    /// Its number.
    pub number: FileNumber,
}

/// The round of a column group of a two-phase level, as it is from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangedRound {
    /// The table.
    pub table: TableId,
    /// Takes the place of the one of the same level and group.
    pub round: Round<FileNumber>,
}

/// One atomic change of the database's state, across any number of tables. A file that moves between levels is removed
/// and added in the same edit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VersionEdit {
    /// Tables that come into being, empty.
    pub created_tables: Vec<TableRecord>,
    /// Tables whose definition or layout is replaced; the id stays.
    pub changed_tables: Vec<TableRecord>,
    /// Tables that go, with all their files.
    pub dropped_tables: Vec<TableId>,
    /// Tables that go, and those that have their files from now on. Of neither may the edit change files.
    pub replaced_tables: Vec<ReplacedTable>,
    /// Files that leave.
    pub removed_files: Vec<RemovedFile>,
    /// Files that come.
    pub added_files: Vec<AddedFile>,
    /// Rounds of two-phase levels as they are after the edit. Where the edit adds or removes files of a column group of
    /// a level and says nothing of its round, the compaction buffer stands for none of it any more.
    pub rounds: Vec<ChangedRound>,
    /// Files of the compaction buffer alone. Leave it empty: the manifest names them in the records that open a file.
    pub buffered_files: Vec<(TableId, Arc<FileMeta>)>,
    /// Every file number below it may be in use. Only ever raised; a lower one changes nothing.
    pub next_file_number: Option<FileNumber>,
    /// The newest sequence number that any file may hold, or a log segment that is not needed any more. Only ever
    /// raised; added files raise it by themselves.
    pub last_sequence: Option<SequenceNumber>,
    /// The first log segment still needed. Only ever raised.
    pub oldest_wal: Option<FileNumber>,
    /// The ordinal of this edit. Leave it `None`: the manifest sets it in the records that open a file, and counts.
    pub ordinal: Option<u64>,
    /// The next table id never used. Leave it `None`: created tables raise it by themselves.
    pub next_table_id: Option<u32>,
    /// The format version. Leave it `None`: the manifest sets it in its first record.
    pub format_version: Option<u32>,
    /// The database's identity. Leave it `None`: the manifest sets it in its first record.
    pub identity: Option<u64>,
    /// The history that the log belongs to. Leave it `None`: the manifest sets it in its first record.
    pub history: Option<u64>,
}

const TAG_FORMAT_VERSION: u64 = 2;
const TAG_TABLE_CREATED: u64 = 4;
const TAG_TABLE_DROPPED: u64 = 6;
const TAG_TABLE_CHANGED: u64 = 8;
const TAG_FILE_REMOVED: u64 = 10;
const TAG_FILE_ADDED: u64 = 12;
const TAG_NEXT_FILE_NUMBER: u64 = 14;
const TAG_LAST_SEQUENCE: u64 = 16;
const TAG_OLDEST_WAL: u64 = 18;
const TAG_ORDINAL: u64 = 20;
const TAG_NEXT_TABLE_ID: u64 = 22;
const TAG_ROUND_CHANGED: u64 = 24;
const TAG_FILE_BUFFERED: u64 = 26;
const TAG_IDENTITY: u64 = 27;
const TAG_TABLE_REPLACED: u64 = 28;
const TAG_HISTORY: u64 = 29;
const TAG_COLUMN_DROPPED: u64 = 30;

const FLAG_LARGEST_EXCLUSIVE: u8 = 1;
const FLAG_SEQUENCE_OVERRIDE: u8 = 2;
const FLAG_GROUP: u8 = 4;

const ROUND_DRAINING: u8 = 1;
const ROUND_GROUP: u8 = 2;
const ROUND_APPENDING: u8 = 4;
const ROUND_DELETION: u8 = 8;
/// Some segments are files within a range; behind each part's intervals stand these.
const ROUND_NARROWED: u8 = 16;

impl VersionEdit {
    /// Adds a file to a level of a table.
    pub fn add_file(&mut self, table: TableId, level: usize, place: RunPlace, file: Arc<FileMeta>) {
        self.added_files.push(AddedFile { table, level, place, file });
    }

    /// Removes a file from a level of a table.
    pub fn remove_file(&mut self, table: TableId, level: usize, number: FileNumber) {
        self.removed_files.push(RemovedFile { table, level, number });
    }

    /// Appends the edit's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let mut field = |tag: u64, write: &dyn Fn(&mut Vec<u8>)| {
            body.clear();
            write(&mut body);
            put_varint(out, tag);
            put_bytes(out, &body);
        };
        if let Some(version) = self.format_version {
            field(TAG_FORMAT_VERSION, &|b| put_varint(b, u64::from(version)));
        }
        for record in &self.created_tables {
            field(TAG_TABLE_CREATED, &|b| encode_table(b, record));
        }
        for record in &self.changed_tables {
            field(TAG_TABLE_CHANGED, &|b| encode_table(b, record));
        }
        for table in &self.dropped_tables {
            field(TAG_TABLE_DROPPED, &|b| put_varint(b, u64::from(table.0)));
        }
        for replaced in &self.replaced_tables {
            match &replaced.dropped {
                Some(dropped) => field(TAG_COLUMN_DROPPED, &|b| encode_narrowed(b, replaced, dropped)),
                None => field(TAG_TABLE_REPLACED, &|b| encode_replaced(b, replaced)),
            }
        }
        for removed in &self.removed_files {
            field(TAG_FILE_REMOVED, &|b| {
                put_varint(b, u64::from(removed.table.0));
                put_varint(b, removed.level as u64);
                put_varint(b, removed.number);
            });
        }
        for added in &self.added_files {
            field(TAG_FILE_ADDED, &|b| encode_added(b, added));
        }
        for (table, file) in &self.buffered_files {
            field(TAG_FILE_BUFFERED, &|b| {
                put_varint(b, u64::from(table.0));
                encode_file(b, file);
            });
        }
        for changed in &self.rounds {
            field(TAG_ROUND_CHANGED, &|b| {
                put_varint(b, u64::from(changed.table.0));
                encode_round(b, &changed.round);
            });
        }
        let numbers = [
            (TAG_NEXT_FILE_NUMBER, self.next_file_number),
            (TAG_LAST_SEQUENCE, self.last_sequence),
            (TAG_OLDEST_WAL, self.oldest_wal),
            (TAG_ORDINAL, self.ordinal),
            (TAG_NEXT_TABLE_ID, self.next_table_id.map(u64::from)),
        ];
        for (tag, value) in numbers {
            if let Some(value) = value {
                field(tag, &|b| put_varint(b, value));
            }
        }
        if let Some(identity) = self.identity {
            field(TAG_IDENTITY, &|b| b.extend_from_slice(&identity.to_le_bytes()));
        }
        if let Some(history) = self.history {
            field(TAG_HISTORY, &|b| b.extend_from_slice(&history.to_le_bytes()));
        }
    }

    /// Reads an edit back. `ErrorKind::Unsupported` for a newer format or an unknown required field,
    /// `ErrorKind::Corruption` for malformed bytes (the offset is relative to `bytes`).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut edit = Self::default();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let tag = reader.varint()?;
            let body = reader.bytes()?;
            let start = (reader.position() - body.len()) as u64;
            edit.decode_field(tag, body).map_err(|e| shift(e, start))?;
        }
        Ok(edit)
    }

    fn decode_field(&mut self, tag: u64, body: &[u8]) -> Result<()> {
        let mut reader = Reader::new(body);
        match tag {
            TAG_FORMAT_VERSION => {
                let version = reader.varint()?;
                if version > u64::from(FORMAT_VERSION) {
                    return Err(Error::new(ErrorKind::Unsupported, "the manifest has a newer format").expected(
                        format_args!("at most version {FORMAT_VERSION}"),
                        format_args!("version {version}"),
                    ));
                }
                self.format_version = Some(version as u32);
            }
            TAG_TABLE_CREATED => self.created_tables.push(decode_table(&mut reader)?),
            TAG_TABLE_CHANGED => self.changed_tables.push(decode_table(&mut reader)?),
            TAG_TABLE_DROPPED => self.dropped_tables.push(decode_table_id(&mut reader)?),
            TAG_TABLE_REPLACED => self.replaced_tables.push(decode_replaced(&mut reader)?),
            TAG_COLUMN_DROPPED => self.replaced_tables.push(decode_narrowed(&mut reader)?),
            TAG_FILE_REMOVED => self.removed_files.push(RemovedFile {
                table: decode_table_id(&mut reader)?,
                level: reader.length(MAX_LEVELS - 1)?,
                number: reader.varint()?,
            }),
            TAG_FILE_ADDED => self.added_files.push(decode_added(&mut reader)?),
            TAG_FILE_BUFFERED => {
                let table = decode_table_id(&mut reader)?;
                self.buffered_files.push((table, Arc::new(decode_file(&mut reader)?)));
            }
            TAG_ROUND_CHANGED => {
                let table = decode_table_id(&mut reader)?;
                self.rounds.push(ChangedRound { table, round: decode_round(&mut reader)? });
            }
            TAG_NEXT_FILE_NUMBER => self.next_file_number = Some(reader.varint()?),
            TAG_LAST_SEQUENCE => self.last_sequence = Some(decode_sequence(&mut reader)?),
            TAG_OLDEST_WAL => self.oldest_wal = Some(reader.varint()?),
            TAG_ORDINAL => self.ordinal = Some(reader.varint()?),
            TAG_NEXT_TABLE_ID => self.next_table_id = Some(decode_table_id(&mut reader)?.0),
            TAG_IDENTITY => self.identity = Some(reader.u64()?),
            TAG_HISTORY => self.history = Some(reader.u64()?),
            optional if optional % 2 == 1 => return Ok(()),
            required => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("the manifest has a field this version does not know (tag {required})"),
                ));
            }
        }
        reader.finish()
    }
}

/// Moves the offset of a corruption found in a field's body to the start of the edit.
fn shift(error: Error, start: u64) -> Error {
    match (error.is_corruption(), error.offset()) {
        (true, Some(offset)) => Error::corruption("malformed version edit").at(start + offset).caused_by(error),
        (true, None) => error.at(start),
        (false, _) => error,
    }
}

fn encode_table(out: &mut Vec<u8>, record: &TableRecord) {
    put_varint(out, u64::from(record.id.0));
    put_bytes(out, record.name.as_bytes());
    put_bytes(out, &record.definition);
    put_bytes(out, record.layout.as_bytes());
}

fn decode_table(reader: &mut Reader<'_>) -> Result<TableRecord> {
    Ok(TableRecord {
        id: decode_table_id(reader)?,
        name: reader.str()?.to_owned(),
        definition: reader.bytes()?.to_vec(),
        layout: reader.str()?.to_owned(),
    })
}

fn encode_replaced(out: &mut Vec<u8>, replaced: &ReplacedTable) {
    put_varint(out, u64::from(replaced.from.0));
    encode_table(out, &replaced.record);
    out.push(replaced.added.is_some().into());
    if let Some(AddedColumn { column, whole, beside }) = &replaced.added {
        put_varint(out, *column as u64);
        whole.encode(out);
        out.push(beside.is_some().into());
        if let Some(beside) = beside {
            put_varint(out, *beside as u64);
        }
    }
}

fn decode_replaced(reader: &mut Reader<'_>) -> Result<ReplacedTable> {
    let (from, record) = (decode_table_id(reader)?, decode_table(reader)?);
    let added = match decode_flag(reader)? {
        false => None,
        true => Some(AddedColumn {
            column: reader.length(ColumnSet::MAX_POSITION)?,
            whole: Group::decode(reader)?,
            beside: if decode_flag(reader)? { Some(reader.length(ColumnSet::MAX_POSITION)?) } else { None },
        }),
    };
    Ok(ReplacedTable { from, record, added, dropped: None })
}

fn encode_narrowed(out: &mut Vec<u8>, replaced: &ReplacedTable, dropped: &DroppedColumn) {
    put_varint(out, u64::from(replaced.from.0));
    encode_table(out, &replaced.record);
    put_varint(out, dropped.column as u64);
    dropped.whole.encode(out);
}

fn decode_narrowed(reader: &mut Reader<'_>) -> Result<ReplacedTable> {
    let (from, record) = (decode_table_id(reader)?, decode_table(reader)?);
    let dropped = DroppedColumn { column: reader.length(ColumnSet::MAX_POSITION)?, whole: Group::decode(reader)? };
    Ok(ReplacedTable { from, record, added: None, dropped: Some(dropped) })
}

fn decode_flag(reader: &mut Reader<'_>) -> Result<bool> {
    let at = reader.position() as u64;
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::corruption("malformed version edit").at(at).expected("0 or 1", other)),
    }
}

fn decode_table_id(reader: &mut Reader<'_>) -> Result<TableId> {
    let at = reader.position() as u64;
    let id = reader.varint()?;
    match u32::try_from(id) {
        Ok(id) => Ok(TableId(id)),
        Err(_) => Err(Error::corruption("table id out of range").at(at).expected("at most 32 bits", id)),
    }
}

fn decode_sequence(reader: &mut Reader<'_>) -> Result<SequenceNumber> {
    let at = reader.position() as u64;
    let sequence = reader.varint()?;
    if sequence > MAX_SEQUENCE_NUMBER {
        return Err(Error::corruption("sequence number out of range").at(at).expected("at most 56 bits", sequence));
    }
    Ok(sequence)
}

fn encode_added(out: &mut Vec<u8>, added: &AddedFile) {
    put_varint(out, u64::from(added.table.0));
    put_varint(out, added.level as u64);
    match added.place {
        RunPlace::Newest => out.push(0),
        RunPlace::Sorted => out.push(1),
        RunPlace::InPlaceOf(number) => {
            out.push(2);
            put_varint(out, number);
        }
        RunPlace::Inserted => out.push(3),
    }
    encode_file(out, &added.file);
}

fn encode_file(out: &mut Vec<u8>, file: &FileMeta) {
    put_varint(out, file.number);
    put_varint(out, file.size);
    out.extend_from_slice(&file.checksum.to_le_bytes());
    put_bytes(out, &file.smallest);
    put_bytes(out, &file.largest);
    let exclusive = if file.largest_exclusive { FLAG_LARGEST_EXCLUSIVE } else { 0 };
    let overridden = if file.sequence_override.is_some() { FLAG_SEQUENCE_OVERRIDE } else { 0 };
    let grouped = if file.group.is_some() { FLAG_GROUP } else { 0 };
    out.push(exclusive | overridden | grouped);
    for number in [
        file.min_sequence,
        file.max_sequence,
        file.entry_count,
        file.delete_count,
        file.range_delete_count,
        file.created_at_edit,
    ] {
        put_varint(out, number);
    }
    if let Some(sequence) = file.sequence_override {
        put_varint(out, sequence);
    }
    if let Some(group) = &file.group {
        group.encode(out);
    }
}

fn decode_added(reader: &mut Reader<'_>) -> Result<AddedFile> {
    let table = decode_table_id(reader)?;
    let level = reader.length(MAX_LEVELS - 1)?;
    let at = reader.position() as u64;
    let place = match reader.u8()? {
        0 => RunPlace::Newest,
        1 => RunPlace::Sorted,
        2 => RunPlace::InPlaceOf(reader.varint()?),
        3 => RunPlace::Inserted,
        other => return Err(Error::corruption("unknown place of a run").at(at).expected("0 to 3", other)),
    };
    Ok(AddedFile { table, level, place, file: Arc::new(decode_file(reader)?) })
}

fn decode_file(reader: &mut Reader<'_>) -> Result<FileMeta> {
    let number = reader.varint()?;
    let size = reader.varint()?;
    let checksum = reader.u64()?;
    let smallest = decode_key(reader)?;
    let largest = decode_key(reader)?;
    let at = reader.position() as u64;
    let flags = reader.u8()?;
    if flags & !(FLAG_LARGEST_EXCLUSIVE | FLAG_SEQUENCE_OVERRIDE | FLAG_GROUP) != 0 {
        return Err(Error::corruption("unknown flags of a file").at(at).expected("bits 0 to 2", flags));
    }
    let mut file = FileMeta {
        number,
        size,
        checksum,
        smallest,
        largest,
        largest_exclusive: flags & FLAG_LARGEST_EXCLUSIVE != 0,
        min_sequence: decode_sequence(reader)?,
        max_sequence: decode_sequence(reader)?,
        entry_count: reader.varint()?,
        delete_count: reader.varint()?,
        range_delete_count: reader.varint()?,
        created_at_edit: reader.varint()?,
        sequence_override: None,
        group: None,
    };
    if flags & FLAG_SEQUENCE_OVERRIDE != 0 {
        file.sequence_override = Some(decode_sequence(reader)?);
    }
    if flags & FLAG_GROUP != 0 {
        file.group = Some(Arc::new(Group::decode(reader)?));
    }
    Ok(file)
}

fn encode_round(out: &mut Vec<u8>, round: &Round<FileNumber>) {
    put_varint(out, round.level as u64);
    put_varint(out, round.number);
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let is_narrowed = round.parts().flat_map(|segments| &segments.files).any(|segment| segment.within.is_some());
    out.push(
        flag(round.is_draining, ROUND_DRAINING)
            | flag(round.group.is_some(), ROUND_GROUP)
            | flag(round.appending.is_some(), ROUND_APPENDING)
            | flag(round.deletion.is_some(), ROUND_DELETION)
            | flag(is_narrowed, ROUND_NARROWED),
    );
    if let Some(group) = &round.group {
        group.encode(out);
    }
    for segments in round.parts() {
        put_varint(out, segments.files.len() as u64);
        segments.files.iter().for_each(|segment| put_varint(out, segment.file));
        put_varint(out, segments.uncovered.len() as u64);
        segments.uncovered.iter().for_each(|range| encode_range(out, range));
        if is_narrowed {
            let narrowed = segments.files.iter().zip(0u64..).filter_map(|(s, at)| Some((at, s.within.as_ref()?)));
            put_varint(out, narrowed.clone().count() as u64);
            for (at, within) in narrowed {
                put_varint(out, at);
                encode_range(out, within);
            }
        }
    }
}

fn encode_range(out: &mut Vec<u8>, range: &KeyRange) {
    put_bytes(out, &range.smallest);
    put_bytes(out, &range.largest);
    out.push(range.largest_exclusive.into());
}

fn decode_round(reader: &mut Reader<'_>) -> Result<Round<FileNumber>> {
    let level = reader.length(MAX_LEVELS - 1)?;
    let number = reader.varint()?;
    let at = reader.position() as u64;
    let flags = reader.u8()?;
    if flags & !(ROUND_DRAINING | ROUND_GROUP | ROUND_APPENDING | ROUND_DELETION | ROUND_NARROWED) != 0 {
        return Err(Error::corruption("unknown flags of a round").at(at).expected("bits 0 to 4", flags));
    }
    let has = |flag: u8| flags & flag != 0;
    Ok(Round {
        level,
        number,
        is_draining: has(ROUND_DRAINING),
        group: if has(ROUND_GROUP) { Some(Arc::new(Group::decode(reader)?)) } else { None },
        appending: if has(ROUND_APPENDING) { Some(decode_segments(reader, has(ROUND_NARROWED))?) } else { None },
        deletion: if has(ROUND_DELETION) { Some(decode_segments(reader, has(ROUND_NARROWED))?) } else { None },
    })
}

fn decode_segments(reader: &mut Reader<'_>, is_narrowed: bool) -> Result<Segments<FileNumber>> {
    let mut segments = Segments::default();
    for _ in 0..reader.varint()? {
        segments.files.push(Segment::from(reader.varint()?));
    }
    for _ in 0..reader.varint()? {
        let at = reader.position() as u64;
        let range = decode_range(reader)?;
        let is_behind = segments.uncovered.last().is_none_or(|last: &KeyRange| last.ends_before(&range.smallest));
        if !is_behind {
            return Err(Error::corruption("the intervals of a round are not in order").at(at));
        }
        segments.uncovered.push(range);
    }
    for _ in 0..if is_narrowed { reader.varint()? } else { 0 } {
        let position = reader.position() as u64;
        let at = reader.varint()?;
        let segment = usize::try_from(at).ok().and_then(|at| segments.files.get_mut(at));
        let Some(segment) = segment else {
            return Err(Error::corruption("a range of a segment that a round does not have").at(position));
        };
        segment.within = Some(decode_range(reader)?);
    }
    Ok(segments)
}

fn decode_range(reader: &mut Reader<'_>) -> Result<KeyRange> {
    let (smallest, largest) = (decode_key(reader)?, decode_key(reader)?);
    let at = reader.position() as u64;
    let exclusive = reader.u8()?;
    let range = KeyRange { smallest, largest, largest_exclusive: exclusive == 1 };
    if exclusive > 1 || range.ends_before(&range.smallest) {
        return Err(Error::corruption("an interval of a round is empty").at(at));
    }
    Ok(range)
}

fn decode_key(reader: &mut Reader<'_>) -> Result<Vec<u8>> {
    let n = reader.length(MAX_KEY_LEN)?;
    Ok(reader.take(n)?.to_vec())
}
