//! The demo's database: the table `flights` with its indexes, written as the stream says and read back.
//!
//! Flights arrive as JSON and are stored so at first; on the way down compactions make columns of them and split what
//! changes while a flight is under way from what does not ([`LAYOUT`]). They are indexed by tail number and by origin
//! and destination ([`INDEXES`]).
//!
//! An insert writes the whole row, all later changes are patches. Questions are asked in SQL ([`super::questions`]).

use std::path::Path;

use mycelium::{
    ColumnSet, Compression, Database, Datum, DatumRef, ErrorKind, IndexOptions, Layout, LeveledOptions, Options,
    Policy, ReadOptions, RowFormatDefinition, RowFormatKind, ScanOptions, Schema, Snapshot, Table, TableOptions,
    TextArrays, WriteBatch,
};
use serde_json::json;

use super::answers::{Content, ContentHash};
use super::columns::Columns;
use super::event_time::EventTime;
use super::flight::{Code, Flight, FlightKey, FlightRow};
use super::stream::Change;
use crate::failure::Failure;

/// The columns of the data, in their order, and whether the flight was cancelled.
const FLIGHTS: &str = "\
    year int32 not null, month int32 not null, day int32 not null, dep_time int32, sched_dep_time int32 not null, \
    dep_delay int32, arr_time int32, sched_arr_time int32 not null, arr_delay int32, carrier utf8 not null, \
    flight int32 not null, tailnum utf8, origin utf8 not null, dest utf8 not null, air_time int32, \
    distance int32 not null, hour int32 not null, minute int32 not null, time_hour timestamp(s, \"UTC\") not null, \
    cancelled bool not null, primary key (year, month, day, carrier, flight, sched_dep_time, origin)";

/// What compactions make of the flights: columns by position in [`FLIGHTS`].
const LAYOUT: &str = "\
L0 tiered: * json
L1 tiered: 3,5-6,8,14,19 columnar | 7,11,13,15-18 columnar
L2 leveled: 3,5-6,8,14,19 columnar | 7,11,13,15-18 columnar";

/// The indexes and their columns.
const INDEXES: [(&str, &[&str]); 2] = [("by_tail", &["tailnum"]), ("by_route", &["origin", "dest"])];

/// Bytes of memory for rows not yet in files: small, so that the year's 100 MB go through several levels.
const MEMORY_BUDGET: usize = 4 << 20;

/// The open database.
pub(super) struct Store {
    pub(super) database: Database,
    flights: Table,
}

impl Store {
    /// Makes the database and its tables.
    pub(super) fn create(directory: &Path) -> Result<Self, Failure> {
        let database = Database::open(directory, Options { memory_budget: MEMORY_BUDGET, ..Options::default() })?;
        let options = TableOptions {
            policy: Policy::Leveled(LeveledOptions {
                base_level_bytes: 32 << 20,
                target_file_size: 1 << 20,
                fanout: 4.0,
                ..LeveledOptions::default()
            }),
            compression: vec![Compression::Lz4],
            ..TableOptions::default()
        };
        let schema = Schema::parse(FLIGHTS)?;
        let columns = (0..schema.columns().len()).filter(|column| !schema.primary_key().contains(column));
        let layout = Layout::parse(LAYOUT, &ColumnSet::from_iter(columns))?;
        let shaped = TableOptions {
            row_format: RowFormatDefinition { kind: RowFormatKind::Json, ..RowFormatDefinition::default() },
            layout: Some(layout),
            ..options
        };
        let flights = database.create_typed_table("flights", schema, shaped)?;
        for (name, on) in INDEXES {
            let on = on.iter().map(|&column| column.to_owned()).collect();
            database.create_index(&flights, &IndexOptions { name: name.to_owned(), on, ..IndexOptions::default() })?;
        }
        Ok(Self { database, flights })
    }

    /// Adds one operation of the stream to a batch.
    pub(super) fn add(&self, batch: &mut WriteBatch, flight: &Flight, change: Change) -> Result<(), Failure> {
        let row = &flight.0;
        let nullable = |number: Option<i32>| number.map_or(DatumRef::Null, DatumRef::Int32);
        let changes: &[(&str, DatumRef<'_>)] = match change {
            Change::Insert => return self.add_insert(batch, &flight.schedule()),
            Change::Departure => &[("dep_time", nullable(row.dep_time)), ("dep_delay", nullable(row.dep_delay))],
            Change::Arrival => &[
                ("arr_time", nullable(row.arr_time)),
                ("arr_delay", nullable(row.arr_delay)),
                ("air_time", nullable(row.air_time)),
            ],
            Change::Cancel => &[("cancelled", DatumRef::Bool(true))],
        };
        batch.patch_row(&self.flights, &key_datums(&row.key), changes)?;
        Ok(())
    }

    fn add_insert(&self, batch: &mut WriteBatch, row: &FlightRow) -> Result<(), Failure> {
        batch.put_payload(&self.flights, &key_datums(&row.key), row_payload(row).as_bytes())?;
        Ok(())
    }

    /// One flight.
    pub(super) fn get(&self, key: &FlightKey, options: &ReadOptions) -> Result<Option<FlightRow>, Failure> {
        let found = self.flights.get_row(&key_datums(key), None, options)?;
        found.map(|row| row_of_datums(&row).ok_or_else(malformed)).transpose()
    }

    /// The content of the whole table at a snapshot.
    pub(super) fn content(&self, snapshot: &Snapshot) -> Result<Content, Failure> {
        let mut hash = ContentHash::default();
        let snapshot = Some(snapshot.clone());
        let options = ScanOptions { snapshot, texts: TextArrays::Views, ..ScanOptions::default() };
        for batch in self.flights.scan_batches(options)? {
            let batch = batch?;
            let columns = Columns::of(&batch).ok_or_else(malformed)?;
            for row in 0..batch.num_rows() {
                hash.add(&columns.row(row).ok_or_else(malformed)?);
            }
        }
        Ok(hash.finish())
    }
}

pub(super) fn malformed() -> Failure {
    mycelium::Error::new(ErrorKind::Corruption, "a row does not have the columns of its table").into()
}

fn key_datums(key: &FlightKey) -> [DatumRef<'_>; 7] {
    [
        DatumRef::Int32(key.year),
        DatumRef::Int32(key.month),
        DatumRef::Int32(key.day),
        DatumRef::Utf8(&key.carrier),
        DatumRef::Int32(key.flight),
        DatumRef::Int32(key.sched_dep_time),
        DatumRef::Utf8(&key.origin),
    ]
}

/// A flight as it arrives: an object of all columns but the key's.
fn row_payload(row: &FlightRow) -> String {
    let members = json!({
        "dep_time": row.dep_time,
        "dep_delay": row.dep_delay,
        "arr_time": row.arr_time,
        "sched_arr_time": row.sched_arr_time,
        "arr_delay": row.arr_delay,
        "tailnum": row.tailnum,
        "dest": row.dest,
        "air_time": row.air_time,
        "distance": row.distance,
        "hour": row.hour,
        "minute": row.minute,
        "time_hour": row.time_hour.timestamp(),
        "cancelled": row.cancelled,
    });
    members.to_string()
}

/// The reverse of a row's columns in their order.
fn row_of_datums(row: &[Datum]) -> Option<FlightRow> {
    let row: [DatumRef<'_>; 20] = row.iter().map(Datum::borrowed).collect::<Vec<_>>().try_into().ok()?;
    let nullable = |datum| match datum {
        DatumRef::Null => Some(None),
        DatumRef::Int32(number) => Some(Some(number)),
        _ => None,
    };
    let number = |datum| nullable(datum)?;
    let code = |datum| match datum {
        DatumRef::Utf8(text) => Code::new(text),
        _ => None,
    };
    let DatumRef::Timestamp(seconds) = row[18] else { return None };
    let DatumRef::Bool(cancelled) = row[19] else { return None };
    Some(FlightRow {
        key: FlightKey {
            year: number(row[0])?,
            month: number(row[1])?,
            day: number(row[2])?,
            carrier: code(row[9])?,
            flight: number(row[10])?,
            sched_dep_time: number(row[4])?,
            origin: code(row[12])?,
        },
        dep_time: nullable(row[3])?,
        dep_delay: nullable(row[5])?,
        arr_time: nullable(row[6])?,
        sched_arr_time: number(row[7])?,
        arr_delay: nullable(row[8])?,
        tailnum: if row[11].is_null() { None } else { Some(code(row[11])?) },
        dest: code(row[13])?,
        air_time: nullable(row[14])?,
        distance: number(row[15])?,
        hour: number(row[16])?,
        minute: number(row[17])?,
        time_hour: EventTime(seconds / 60),
        cancelled,
    })
}
