//! What an SST says of where it belongs, so that a database can be salvaged without its manifest (`salvage`).
//!
//! ```text
//! origin  version u8 (2) | identity of the database u64 LE, from version 2 on
//!         | edits varint | last sequence varint | oldest log segment varint | next table id varint
//!         | ranges of live tables varint, (first varint | count varint) each
//!         | tables varint, (id varint | name bytes | definition bytes | layout bytes) each, the file's own first
//!         | birth | runs varint, run each | rounds varint, round each
//!         | buffered bulk loads varint, number varint each
//! birth   0 flushed | next log segment varint | last sequence of the flush varint
//!         | 1 compacted | level varint | 1 in place of a file, else 0, u8 | [number varint]
//!           | inputs varint, number varint each
//!         | 2 derived
//! run     level varint | group | files varint, (2 x number + 1 if it takes another sequence number varint
//!         | [that sequence number varint]) each
//! round   level varint | group | number varint | 1 if it has a deletion part, else 0, u8
//! group   0 u8 for whole rows, else 1 and the group as in `mycelium_base::column_group`
//! ```
//!
//! It is the state at the moment at which the file was begun, as far as it concerns the file's table: its record and
//! the files that it had, at their places; and what the file itself came from. So the newest file of a table lists all
//! older ones, and what it does not list was there no more, or was being made then. Of a file that was being made the
//! birth tells whether it took the place of what it was made of: that is removed only after the edit that names the
//! file is durable. The identity tells files of another database, whose lists say nothing of this one.
//!
//! Two to four bytes for every file that the table has then, and its definition once. Records of other tables are those
//! of tables without files, of up to [`OTHERS_BYTES`]: nothing else would say what they are.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{
    Error, ErrorKind, FileNumber, Group, MAX_FILE_NUMBER, MAX_SEQUENCE_NUMBER, Result, SequenceNumber, TableId,
};
use mycelium_manifest::{ManifestState, Round, RunPlace, TableRecord};

use crate::database::Inner;

const VERSION: u8 = 2;
/// The first version that names the database.
const WITH_IDENTITY: u8 = 2;
/// Of edits, and of rounds: there is room for those that follow.
const MOST_COUNTED: u64 = u64::MAX / 2;
/// For tables without files, which are described beside the file's own.
const OTHERS_BYTES: usize = 2 << 10;

/// How a file came to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Birth {
    /// Of memtables whose entries are in log segments before `next_log`, and have no larger sequence numbers.
    Flushed { next_log: FileNumber, last_sequence: SequenceNumber },
    /// Of files whose places it takes.
    Compacted { level: usize, place: RunPlace, inputs: Vec<FileNumber> },
    /// Of what a job or a bulk load says to an index.
    Derived,
}

/// A run of the file's table, when the file was begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListedRun {
    pub(crate) level: usize,
    /// As the manifest had it: with columns that the table got later.
    pub(crate) group: Option<Arc<Group>>,
    /// In key order; the sequence number that a file takes in place of those stored.
    pub(crate) files: Vec<(FileNumber, Option<SequenceNumber>)>,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// Of the database; 0 in a file of a version that did not say it.
    pub(crate) identity: u64,
    /// How many edits the manifest had had.
    pub(crate) edits: u64,
    pub(crate) last_sequence: SequenceNumber,
    pub(crate) oldest_log: FileNumber,
    pub(crate) next_table_id: u32,
    /// The ids of live tables: the first, and how many follow each other.
    live: Vec<(u32, u32)>,
    /// The file's table, and others that had no files.
    records: Vec<TableRecord>,
    pub(crate) birth: Birth,
    /// The youngest first.
    pub(crate) runs: Vec<ListedRun>,
    /// Without segments.
    pub(crate) rounds: Vec<Round<FileNumber>>,
    /// Bulk loads that are in the compaction buffer alone: they do not say themselves where they belong.
    pub(crate) buffered: Vec<FileNumber>,
}

impl Inner {
    /// The origin of a file that is begun for a table, encoded; empty if nobody keeps a manifest, or if that does not
    /// have the table any more.
    pub(crate) fn origin_of(&self, table: TableId, birth: &Birth) -> Result<Vec<u8>> {
        if self.options.read_only {
            return Ok(Vec::new());
        }
        let origin = Origin::new(self.manifest()?.state(), table, birth);
        Ok(origin.map(|origin| origin.encode()).unwrap_or_default())
    }
}

impl Origin {
    /// Of a file that is begun at this state; `None` if the table is not there.
    fn new(state: &ManifestState, table: TableId, birth: &Birth) -> Option<Self> {
        let own = state.tables.get(&table)?;
        let mut bytes = 0;
        let others = state.tables.without_files().filter(|other| other.record.id != table).take_while(|other| {
            let TableRecord { name, definition, layout, .. } = &*other.record;
            bytes += name.len() + definition.len() + layout.len();
            bytes <= OTHERS_BYTES
        });
        let mut runs = Vec::new();
        for (level, of_level) in own.version.levels.iter().enumerate() {
            for run in &of_level.runs {
                let files = run.files.iter().map(|file| (file.number, file.sequence_override)).collect();
                runs.push(ListedRun { level, group: run.group().cloned(), files });
            }
        }
        let rounds =
            own.version.rounds.iter().filter(|round| round.number > 0 || round.is_draining).map(|round| Round {
                level: round.level,
                group: round.group.clone(),
                number: round.number,
                is_draining: round.is_draining,
                appending: None,
                deletion: None,
            });
        let loads = own.version.buffered_files().filter(|file| file.sequence_override.is_some());
        Some(Self {
            identity: state.identity,
            edits: state.edit_count,
            last_sequence: state.last_sequence,
            oldest_log: state.oldest_wal,
            next_table_id: state.next_table_id,
            live: state.tables.id_ranges().to_vec(),
            records: std::iter::once(own).chain(others).map(|table| TableRecord::clone(&table.record)).collect(),
            birth: birth.clone(),
            runs,
            rounds: rounds.collect(),
            buffered: loads.map(|file| file.number).collect(),
        })
    }

    /// The file's table.
    pub(crate) fn table(&self) -> TableId {
        self.records[0].id
    }

    /// All tables that it describes.
    pub(crate) fn records(&self) -> &[TableRecord] {
        &self.records
    }

    /// Whether a table was there.
    pub(crate) fn has_table(&self, id: TableId) -> bool {
        self.live.iter().any(|&(first, count)| id.0.checked_sub(first).is_some_and(|offset| offset < count))
    }

    /// How many tables there were.
    pub(crate) fn table_count(&self) -> u64 {
        self.live.iter().map(|&(_, count)| u64::from(count)).sum()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.identity.to_le_bytes());
        let numbers = [self.edits, self.last_sequence, self.oldest_log, self.next_table_id.into()];
        numbers.into_iter().for_each(|number| put_varint(&mut out, number));
        put_varint(&mut out, self.live.len() as u64);
        for &(first, count) in &self.live {
            put_varint(&mut out, first.into());
            put_varint(&mut out, count.into());
        }
        put_varint(&mut out, self.records.len() as u64);
        for TableRecord { id, name, definition, layout } in &self.records {
            put_varint(&mut out, id.0.into());
            put_bytes(&mut out, name.as_bytes());
            put_bytes(&mut out, definition);
            put_bytes(&mut out, layout.as_bytes());
        }
        encode_birth(&self.birth, &mut out);
        put_varint(&mut out, self.runs.len() as u64);
        for run in &self.runs {
            put_varint(&mut out, run.level as u64);
            encode_group(run.group.as_deref(), &mut out);
            put_varint(&mut out, run.files.len() as u64);
            for (number, sequence) in &run.files {
                put_varint(&mut out, 2 * number + u64::from(sequence.is_some()));
                sequence.iter().for_each(|sequence| put_varint(&mut out, *sequence));
            }
        }
        put_varint(&mut out, self.rounds.len() as u64);
        for round in &self.rounds {
            put_varint(&mut out, round.level as u64);
            encode_group(round.group.as_deref(), &mut out);
            put_varint(&mut out, round.number);
            out.push(round.is_draining.into());
        }
        put_varint(&mut out, self.buffered.len() as u64);
        self.buffered.iter().for_each(|number| put_varint(&mut out, *number));
        out
    }

    /// Reads an origin back. `ErrorKind::Unsupported` if it is of a newer version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version > VERSION {
            let error = Error::new(ErrorKind::Unsupported, "the origin of an SST is of a newer version");
            return Err(error.expected(format_args!("at most version {VERSION}"), version));
        }
        let identity = if version >= WITH_IDENTITY { reader.u64()? } else { 0 };
        let edits = decode_within(&mut reader, MOST_COUNTED, "number of edits")?;
        let (last_sequence, oldest_log) = (decode_sequence(&mut reader)?, decode_number(&mut reader)?);
        let next_table_id = decode_id(&mut reader)?;
        let live = decode_list(&mut reader, |reader| Ok((decode_id(reader)?, decode_id(reader)?)))?;
        let records = decode_list(&mut reader, decode_record)?;
        if records.is_empty() {
            return Err(Error::corruption("the origin of an SST names no table").at(reader.position() as u64));
        }
        let birth = decode_birth(&mut reader)?;
        let runs = decode_list(&mut reader, decode_run)?;
        let rounds = decode_list(&mut reader, decode_round)?;
        let buffered = decode_list(&mut reader, decode_number)?;
        reader.finish()?;
        Ok(Self {
            identity,
            edits,
            last_sequence,
            oldest_log,
            next_table_id,
            live,
            records,
            birth,
            runs,
            rounds,
            buffered,
        })
    }
}

fn encode_birth(birth: &Birth, out: &mut Vec<u8>) {
    match birth {
        Birth::Flushed { next_log, last_sequence } => {
            out.push(0);
            put_varint(out, *next_log);
            put_varint(out, *last_sequence);
        }
        Birth::Compacted { level, place, inputs } => {
            out.push(1);
            put_varint(out, *level as u64);
            match place {
                RunPlace::InPlaceOf(number) => {
                    out.push(1);
                    put_varint(out, *number);
                }
                // Whatever else there is at the level overlaps none of the outputs, or is older.
                RunPlace::Newest | RunPlace::Sorted | RunPlace::Inserted => out.push(0),
            }
            put_varint(out, inputs.len() as u64);
            inputs.iter().for_each(|number| put_varint(out, *number));
        }
        Birth::Derived => out.push(2),
    }
}

fn encode_group(group: Option<&Group>, out: &mut Vec<u8>) {
    out.push(group.is_some().into());
    if let Some(group) = group {
        group.encode(out);
    }
}

/// A list with its length before it. Nothing is allocated that the bytes do not hold.
fn decode_list<T>(reader: &mut Reader<'_>, mut item: impl FnMut(&mut Reader<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut list = Vec::new();
    for _ in 0..reader.varint()? {
        list.push(item(reader)?);
    }
    Ok(list)
}

fn decode_within(reader: &mut Reader<'_>, most: u64, what: &str) -> Result<u64> {
    let at = reader.position() as u64;
    match reader.varint()? {
        value if value <= most => Ok(value),
        value => {
            let error = Error::corruption(format!("{what} out of range in the origin of an SST")).at(at);
            Err(error.expected(format_args!("at most {most}"), value))
        }
    }
}

fn decode_id(reader: &mut Reader<'_>) -> Result<u32> {
    decode_within(reader, u32::MAX.into(), "table id").map(|id| id as u32)
}

fn decode_number(reader: &mut Reader<'_>) -> Result<FileNumber> {
    decode_within(reader, MAX_FILE_NUMBER, "file number")
}

fn decode_sequence(reader: &mut Reader<'_>) -> Result<SequenceNumber> {
    decode_within(reader, MAX_SEQUENCE_NUMBER, "sequence number")
}

fn decode_record(reader: &mut Reader<'_>) -> Result<TableRecord> {
    Ok(TableRecord {
        id: TableId(decode_id(reader)?),
        name: reader.str()?.to_owned(),
        definition: reader.bytes()?.to_vec(),
        layout: reader.str()?.to_owned(),
    })
}

fn decode_flag(reader: &mut Reader<'_>) -> Result<bool> {
    let at = reader.position() as u64;
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::corruption("malformed origin of an SST").at(at).expected("0 or 1", other)),
    }
}

fn decode_birth(reader: &mut Reader<'_>) -> Result<Birth> {
    let at = reader.position() as u64;
    Ok(match reader.u8()? {
        0 => Birth::Flushed { next_log: decode_number(reader)?, last_sequence: decode_sequence(reader)? },
        1 => {
            let level = reader.length(MAX_LEVELS - 1)?;
            let place =
                if decode_flag(reader)? { RunPlace::InPlaceOf(decode_number(reader)?) } else { RunPlace::Newest };
            Birth::Compacted { level, place, inputs: decode_list(reader, decode_number)? }
        }
        2 => Birth::Derived,
        other => return Err(Error::corruption("unknown birth of an SST").at(at).expected("0 to 2", other)),
    })
}

fn decode_group(reader: &mut Reader<'_>) -> Result<Option<Arc<Group>>> {
    if decode_flag(reader)? { Ok(Some(Arc::new(Group::decode(reader)?))) } else { Ok(None) }
}

fn decode_run(reader: &mut Reader<'_>) -> Result<ListedRun> {
    Ok(ListedRun {
        level: reader.length(MAX_LEVELS - 1)?,
        group: decode_group(reader)?,
        files: decode_list(reader, |reader| {
            let number = decode_within(reader, 2 * MAX_FILE_NUMBER + 1, "file number")?;
            Ok((number / 2, if number % 2 == 1 { Some(decode_sequence(reader)?) } else { None }))
        })?,
    })
}

fn decode_round(reader: &mut Reader<'_>) -> Result<Round<FileNumber>> {
    Ok(Round {
        level: reader.length(MAX_LEVELS - 1)?,
        group: decode_group(reader)?,
        number: decode_within(reader, MOST_COUNTED, "number of a round")?,
        is_draining: decode_flag(reader)?,
        appending: None,
        deletion: None,
    })
}

#[cfg(test)]
mod tests {
    use mycelium_manifest::{FileMeta, VersionEdit};

    use super::*;

    /// A table with files at three levels, and others.
    fn state() -> ManifestState {
        let record = |id: u32, name: &str| TableRecord {
            id: TableId(id),
            name: name.into(),
            definition: vec![7; 30],
            layout: "row(packed)".into(),
        };
        let mut edit = VersionEdit { last_sequence: Some(90), oldest_wal: Some(12), ..VersionEdit::default() };
        edit.identity = Some(u64::MAX - 7);
        edit.created_tables.extend([record(0, "t"), record(1, "empty"), record(5, "other")]);
        let file = |number: u64, keys: [&str; 2], group: Option<&str>| {
            Arc::new(FileMeta {
                number,
                smallest: keys[0].into(),
                largest: keys[1].into(),
                sequence_override: (number == 3).then_some(50),
                group: group.map(|group| Arc::new(group.parse().unwrap())),
                ..FileMeta::default()
            })
        };
        edit.add_file(TableId(0), 0, RunPlace::Newest, file(9, ["a", "z"], None));
        edit.add_file(TableId(0), 1, RunPlace::Sorted, file(3, ["a", "k"], Some("1-2/json")));
        edit.add_file(TableId(0), 1, RunPlace::Sorted, file(200, ["l", "z"], Some("1-2/json")));
        edit.add_file(TableId(5), 2, RunPlace::Newest, file(4, ["a", "z"], None));
        ManifestState::default().apply(&edit).unwrap()
    }

    fn births() -> [Birth; 4] {
        [
            Birth::Flushed { next_log: 14, last_sequence: 99 },
            Birth::Compacted { level: 2, place: RunPlace::Newest, inputs: vec![9, 3] },
            Birth::Compacted { level: 0, place: RunPlace::InPlaceOf(9), inputs: vec![9] },
            Birth::Derived,
        ]
    }

    #[test]
    fn what_is_encoded_is_read_back_and_every_cut_is_refused() {
        for birth in births() {
            let origin = Origin::new(&state(), TableId(0), &birth).unwrap();
            let bytes = origin.encode();
            assert_eq!(Origin::decode(&bytes).unwrap(), origin);
            for len in 0..bytes.len() {
                assert!(Origin::decode(&bytes[..len]).is_err(), "{len} bytes of {}", bytes.len());
            }
        }
        let mut newer = Origin::new(&state(), TableId(0), &Birth::Derived).unwrap().encode();
        newer[0] = VERSION + 1;
        assert_eq!(Origin::decode(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn origins_are_written_as_they_were_and_will_be() {
        let record = TableRecord { id: TableId(0), name: "t".into(), definition: vec![9], layout: "l".into() };
        let (appending, deletion) = (None, None);
        let origin = Origin {
            identity: 0x0102_0304_0506_0708,
            edits: 5,
            last_sequence: 300,
            oldest_log: 4,
            next_table_id: 2,
            live: vec![(0, 2)],
            records: vec![record],
            birth: Birth::Compacted { level: 2, place: RunPlace::InPlaceOf(7), inputs: vec![7, 8] },
            runs: vec![ListedRun { level: 1, group: None, files: vec![(7, None), (8, Some(20))] }],
            rounds: vec![Round { level: 1, group: None, number: 3, is_draining: true, appending, deletion }],
            buffered: vec![6],
        };
        let (version, identity, head) = ([2_u8], [8, 7, 6, 5, 4, 3, 2, 1], [5, 0xac, 2, 4, 2, 1, 0, 2]);
        let table = [1, 0, 1, b't', 1, 9, 1, b'l'];
        let (birth, run, round) = ([1, 2, 1, 7, 2, 7, 8], [1, 1, 0, 2, 14, 17, 20], [1, 1, 0, 3, 1]);
        let rest = [&head[..], &table, &birth, &run, &round, &[1, 6]].concat();
        let bytes = [&version[..], &identity, &rest].concat();
        assert_eq!(origin.encode(), bytes);
        assert_eq!(Origin::decode(&bytes).unwrap(), origin);
        // Version 1 did not name the database.
        let unnamed = Origin { identity: 0, ..origin };
        assert_eq!(Origin::decode(&[&[1_u8][..], &rest].concat()).unwrap(), unnamed);
    }

    /// They are kept in the manifest of what is salvaged, which could not be written to any more.
    #[test]
    fn numbers_that_no_database_has_were_taken_from_origins() {
        let whole = Origin::new(&state(), TableId(0), &births()[0]).unwrap();
        let mut run = whole.runs[0].clone();
        run.files[0] = (3, Some(MAX_SEQUENCE_NUMBER + 1));
        let (birth, runs) = (Birth::Flushed { next_log: 14, last_sequence: u64::MAX }, vec![run]);
        let (appending, deletion) = (None, None);
        let round = Round { level: 1, group: None, number: u64::MAX, is_draining: true, appending, deletion };
        let forged = [
            Origin { edits: u64::MAX, ..whole.clone() },
            Origin { last_sequence: u64::MAX, ..whole.clone() },
            Origin { oldest_log: MAX_FILE_NUMBER + 1, ..whole.clone() },
            Origin { birth, ..whole.clone() },
            Origin { runs, ..whole.clone() },
            Origin { rounds: vec![round], ..whole.clone() },
            Origin { buffered: vec![u64::MAX], ..whole.clone() },
        ];
        for origin in forged {
            let error = Origin::decode(&origin.encode()).unwrap_err();
            assert!(error.is_corruption() && error.offset().is_some(), "{error}");
        }
        assert_eq!(Origin::decode(&whole.encode()).unwrap(), whole);
    }

    #[test]
    fn damaged_bytes_are_read_or_refused() {
        let bytes = Origin::new(&state(), TableId(0), &births()[1]).unwrap().encode();
        for at in 0..bytes.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                if let Ok(origin) = Origin::decode(&damaged) {
                    assert!(origin.table_count() >= u64::from(origin.has_table(origin.table())));
                }
            }
        }
    }

    #[test]
    fn an_origin_lists_the_files_of_its_table_and_describes_tables_without_files() {
        let origin = Origin::new(&state(), TableId(0), &Birth::Derived).unwrap();
        let names: Vec<_> = origin.records().iter().map(|record| record.name.as_str()).collect();
        assert_eq!((origin.table(), names), (TableId(0), vec!["t", "empty"]));
        assert_eq!((origin.runs.len(), &origin.runs[0].files), (2, &vec![(9, None)]));
        assert_eq!([0, 1, 2, 5, 6].map(|id| origin.has_table(TableId(id))), [true, true, false, true, false]);
        assert_eq!((origin.table_count(), origin.next_table_id, origin.oldest_log), (3, 6, 12));
        assert_eq!(origin.runs[1].files, [(3, Some(50)), (200, None)]);
        assert_eq!(Origin::new(&state(), TableId(4), &Birth::Derived), None);
    }

    /// Its list grows with the table, by so much.
    #[test]
    fn an_origin_takes_two_to_four_bytes_for_a_file() {
        let origin = Origin::new(&state(), TableId(0), &Birth::Derived).unwrap();
        let mut longer = origin.clone();
        let numbers = (1_000..11_000).map(|number| (number, None));
        longer.runs.push(ListedRun { level: 3, group: None, files: numbers.collect() });
        let bytes = (longer.encode().len() - origin.encode().len()) / 10_000;
        assert!((2..=4).contains(&bytes), "{bytes}");
    }
}
