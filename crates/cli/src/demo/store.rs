//! The demo's database: the table `flights` with its indexes, written as the stream says and read back.
//!
//! Flights arrive as JSON and are stored so at first; on the way down compactions convert them to packed rows and split what
//! changes while a flight is under way from what does not ([`TRANSFORMERS`]). They are indexed by tail number and by origin and
//! destination ([`INDEXES`]).
//!
//! An insert writes the whole row, all later changes are patches. Every answer is computed from rows read back at one
//! snapshot.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, TimestampSecondType};
use arrow_array::{Array, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use mycelium::transform::{Formats, LinkOptions, Registry, TransformerSet};
use mycelium::{
    Compression, Database, Datum, DatumRef, ErrorKind, GroupFormat, Index, IndexOptions, LeveledOptions, Options,
    Policy, ReadOptions, RowFormatDefinition, RowFormatKind, ScanOptions, Schema, Snapshot, Table, TableOptions,
    WriteBatch,
};
use serde_json::json;

use super::answers::{
    Answers, Content, ContentHash, Mean, OriginHour, Route, Totals, WINDOW, one_flight, one_route, one_tailnum,
    rank_routes,
};
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

/// The position of the arrival delay in [`FLIGHTS`].
const ARR_DELAY: usize = 8;

/// What compactions make of the flights: columns by position in [`FLIGHTS`].
const TRANSFORMERS: &str = "convert json to columnar\nsplit into 3,5-6,8,14,19 | 7,11,13,15-18";

/// The indexes and their columns.
const INDEXES: [(&str, &[&str]); 2] = [("by_tail", &["tailnum"]), ("by_route", &["origin", "dest"])];

/// Bytes of memory for rows not yet in files: small, so that the year's 100 MB go through several levels.
const MEMORY_BUDGET: usize = 32 << 20;

/// The open database.
pub(super) struct Store {
    pub(super) database: Database,
    flights: Table,
    by_tail: Index,
    by_route: Index,
}

impl Store {
    /// Makes the database and its tables.
    pub(super) fn create(directory: &Path) -> Result<Self, Failure> {
        let database = Database::open(directory, Options { memory_budget: MEMORY_BUDGET, ..Options::default() })?;
        let options = TableOptions {
            policy: Policy::Leveled(LeveledOptions {
                base_level_bytes: 2 << 20,
                target_file_size: 1 << 20,
                fanout: 4.0,
                ..LeveledOptions::default()
            }),
            compression: vec![Compression::Lz4],
            ..TableOptions::default()
        };
        let schema = Schema::parse(FLIGHTS)?;
        let json = GroupFormat::Row(RowFormatKind::Json);
        let formats = Arc::new(Formats::new(Arc::new(schema.clone())));
        let set = TransformerSet::parse(TRANSFORMERS)?;
        let linked = Registry::built_in().link(&set, &formats, json, &LinkOptions::default())?;
        let shaped = TableOptions {
            row_format: RowFormatDefinition { kind: RowFormatKind::Json, ..RowFormatDefinition::default() },
            layout: Some(linked.layout().clone()),
            ..options
        };
        let flights = database.create_typed_table("flights", schema, shaped)?;
        let [by_tail, by_route] = INDEXES.map(|(name, on)| {
            let on = on.iter().map(|&column| column.to_owned()).collect();
            database.create_index(&flights, &IndexOptions { name: name.to_owned(), on, ..IndexOptions::default() })
        });
        Ok(Self { database, flights, by_tail: by_tail?, by_route: by_route? })
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

    /// All answers at a snapshot that holds the changes up to `at`, and the content of the whole table.
    pub(super) fn read(&self, snapshot: &Snapshot, at: EventTime) -> Result<(Answers, Content), Failure> {
        let mut tally = Tally::default();
        let options = ScanOptions { snapshot: Some(snapshot.clone()), ..ScanOptions::default() };
        for batch in self.flights.scan_batches(options)? {
            let batch = batch?;
            let columns = Columns::of(&batch).ok_or_else(malformed)?;
            for row in 0..batch.num_rows() {
                tally.add(&columns.row(row).ok_or_else(malformed)?, at);
            }
        }
        let answers = Answers {
            at,
            totals: tally.totals,
            in_the_air: tally.in_the_air,
            departures: tally.departures.into_iter().collect(),
            worst_routes: rank_routes(tally.routes),
            one_flight: self.get(&one_flight(), &ReadOptions::at(snapshot))?,
            one_aircraft: self.of_aircraft(&one_tailnum(), snapshot)?,
            one_route: self.of_route(one_route(), snapshot)?,
        };
        Ok((answers, tally.content.finish()))
    }

    /// All flights of a tail number, in key order.
    fn of_aircraft(&self, tailnum: &str, snapshot: &Snapshot) -> Result<Vec<FlightRow>, Failure> {
        let found = self.by_tail.get(&[DatumRef::Utf8(tailnum)], None, Some(snapshot))?;
        found.map(|row| row_of_datums(&row?.values).ok_or_else(malformed)).collect()
    }

    /// The mean arrival delay of a route.
    fn of_route(&self, route: Route, snapshot: &Snapshot) -> Result<Mean, Failure> {
        let ends = [DatumRef::Utf8(&route.origin), DatumRef::Utf8(&route.dest)];
        let mut mean = Mean::default();
        for row in self.by_route.get(&ends, Some(&[ARR_DELAY]), Some(snapshot))? {
            if let [Datum::Int32(delay)] = row?.values[..] {
                mean.add(delay);
            }
        }
        Ok(mean)
    }
}

/// What one pass over all rows adds up.
#[derive(Default)]
struct Tally {
    totals: Totals,
    in_the_air: Vec<FlightKey>,
    departures: BTreeMap<OriginHour, Mean>,
    routes: BTreeMap<Route, Mean>,
    content: ContentHash,
}

impl Tally {
    fn add(&mut self, row: &FlightRow, at: EventTime) {
        self.totals.add(row);
        self.content.add(row);
        if row.departed().is_some_and(|departed| departed > at - WINDOW) {
            if row.arr_time.is_none() {
                self.in_the_air.push(row.key);
            }
            if let Some(delay) = row.dep_delay {
                self.departures.entry(OriginHour { origin: row.key.origin, hour: row.hour }).or_default().add(delay);
            }
        }
        if let Some(delay) = row.arr_delay {
            self.routes.entry(Route { origin: row.key.origin, dest: row.dest }).or_default().add(delay);
        }
    }
}

fn malformed() -> Failure {
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

fn ints<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a PrimitiveArray<Int32Type>> {
    batch.column_by_name(name)?.as_primitive_opt()
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a StringArray> {
    batch.column_by_name(name)?.as_string_opt()
}

fn number(column: &PrimitiveArray<Int32Type>, row: usize) -> Option<i32> {
    column.is_valid(row).then(|| column.value(row))
}

/// The key columns of a record batch of either table.
struct KeyColumns<'a> {
    numbers: [&'a PrimitiveArray<Int32Type>; 5],
    carrier: &'a StringArray,
    origin: &'a StringArray,
}

impl<'a> KeyColumns<'a> {
    fn of(batch: &'a RecordBatch) -> Option<Self> {
        let [year, month, day, flight, time] =
            ["year", "month", "day", "flight", "sched_dep_time"].map(|name| ints(batch, name));
        Some(Self {
            numbers: [year?, month?, day?, flight?, time?],
            carrier: texts(batch, "carrier")?,
            origin: texts(batch, "origin")?,
        })
    }

    fn key(&self, row: usize) -> Option<FlightKey> {
        let [year, month, day, flight, sched_dep_time] = self.numbers.map(|column| column.value(row));
        let carrier = Code::new(self.carrier.value(row))?;
        let origin = Code::new(self.origin.value(row))?;
        Some(FlightKey { year, month, day, carrier, flight, sched_dep_time, origin })
    }
}

/// The columns of a record batch of `flights`.
struct Columns<'a> {
    key: KeyColumns<'a>,
    nullable: [&'a PrimitiveArray<Int32Type>; 5],
    numbers: [&'a PrimitiveArray<Int32Type>; 4],
    tailnum: &'a StringArray,
    dest: &'a StringArray,
    time_hour: &'a PrimitiveArray<TimestampSecondType>,
    cancelled: &'a BooleanArray,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch) -> Option<Self> {
        let [dep_time, dep_delay, arr_time, arr_delay, air_time] =
            ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"].map(|name| ints(batch, name));
        let [sched_arr_time, distance, hour, minute] =
            ["sched_arr_time", "distance", "hour", "minute"].map(|name| ints(batch, name));
        Some(Self {
            key: KeyColumns::of(batch)?,
            nullable: [dep_time?, dep_delay?, arr_time?, arr_delay?, air_time?],
            numbers: [sched_arr_time?, distance?, hour?, minute?],
            tailnum: texts(batch, "tailnum")?,
            dest: texts(batch, "dest")?,
            time_hour: batch.column_by_name("time_hour")?.as_primitive_opt()?,
            cancelled: batch.column_by_name("cancelled")?.as_boolean_opt()?,
        })
    }

    /// `None` if a code is longer than any that was written.
    fn row(&self, row: usize) -> Option<FlightRow> {
        let [dep_time, dep_delay, arr_time, arr_delay, air_time] = self.nullable.map(|column| number(column, row));
        let [sched_arr_time, distance, hour, minute] = self.numbers.map(|column| column.value(row));
        Some(FlightRow {
            key: self.key.key(row)?,
            dep_time,
            dep_delay,
            arr_time,
            sched_arr_time,
            arr_delay,
            tailnum: if self.tailnum.is_valid(row) { Some(Code::new(self.tailnum.value(row))?) } else { None },
            dest: Code::new(self.dest.value(row))?,
            air_time,
            distance,
            hour,
            minute,
            time_hour: EventTime(self.time_hour.value(row) / 60),
            cancelled: self.cancelled.value(row),
        })
    }
}
