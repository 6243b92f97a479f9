//! The questions of the demo, and the form of their answers.
//!
//! At an instant `at` of event time, over what was known at `at`:
//!
//! - *in the air*: flights that left in the 24 hours up to `at` and whose arrival is not known;
//! - *departures*: mean departure delay by origin and scheduled local hour, of flights that left in the 24 hours up to
//!   `at`;
//! - *worst routes*: the ten (origin, destination) pairs with the greatest mean arrival delay since 1 January, among
//!   those with at least [`MIN_ROUTE_FLIGHTS`] arrivals whose delay is known;
//! - *one flight*: one row by its key;
//! - *one aircraft*: all flights of one tail number, in key order, by the index on tail numbers;
//! - *one route*: mean arrival delay from one airport to another, by the index on (origin, destination);
//! - *totals* over the whole table.
//!
//! Means are kept as (sum, count), so that two computations of them agree exactly.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;
use serde::ser::SerializeStruct;

use super::event_time::{DAY, EventTime};
use super::flight::{Code, FlightKey, FlightRow};

/// Arrivals a route needs to be ranked.
pub(crate) const MIN_ROUTE_FLIGHTS: u64 = 100;
/// How many routes are listed.
pub(crate) const WORST_ROUTES: usize = 10;
/// Minutes before `at` that "now" and "the last 24 hours" reach back.
pub(crate) const WINDOW: i64 = DAY;

/// The two instants whose snapshots are read again at the end: noon in New York on 15 July and 15 December.
pub(crate) fn snapshot_times() -> [(&'static str, EventTime); 2] {
    [("July", EventTime::utc(2013, 7, 15, 16, 0)), ("December", EventTime::utc(2013, 12, 15, 17, 0))]
}

/// The flight that is looked up by key: HA 51 to Honolulu of 9 January, 21 hours and 41 minutes late, the year's
/// longest delay.
pub(crate) fn one_flight() -> FlightKey {
    FlightKey {
        year: 2013,
        month: 1,
        day: 9,
        carrier: Code::new("HA").unwrap_or_default(),
        flight: 51,
        sched_dep_time: 900,
        origin: Code::new("JFK").unwrap_or_default(),
    }
}

/// The aircraft whose flights are listed: the busiest of the year.
pub(crate) fn one_tailnum() -> Code {
    Code::new("N725MQ").unwrap_or_default()
}

/// The route that is looked at: to Knoxville, the year's worst.
pub(crate) fn one_route() -> Route {
    Route { origin: Code::new("EWR").unwrap_or_default(), dest: Code::new("TYS").unwrap_or_default() }
}

/// A mean as its parts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Mean {
    pub(crate) sum: i64,
    pub(crate) count: u64,
}

impl Mean {
    /// Adds one value.
    pub(crate) fn add(&mut self, value: i32) {
        self.sum += i64::from(value);
        self.count += 1;
    }

    /// The mean; 0 of nothing.
    pub(crate) fn value(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Compares two means of at least one value each, exactly.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        (i128::from(self.sum) * i128::from(other.count)).cmp(&(i128::from(other.sum) * i128::from(self.count)))
    }
}

impl Serialize for Mean {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Mean", 2)?;
        fields.serialize_field("mean_minutes", &((self.value() * 100.0).round() / 100.0))?;
        fields.serialize_field("flights", &self.count)?;
        fields.end()
    }
}

/// Counts and sums over the table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct Totals {
    pub(crate) flights: u64,
    pub(crate) departed: u64,
    pub(crate) arrived: u64,
    pub(crate) cancelled: u64,
    pub(crate) departure_delay_minutes: i64,
    pub(crate) arrival_delay_minutes: i64,
}

impl Totals {
    /// Adds one row of the table.
    pub(crate) fn add(&mut self, row: &FlightRow) {
        self.flights += 1;
        self.departed += u64::from(row.dep_time.is_some());
        self.arrived += u64::from(row.arr_time.is_some());
        self.cancelled += u64::from(row.cancelled);
        self.departure_delay_minutes += i64::from(row.dep_delay.unwrap_or(0));
        self.arrival_delay_minutes += i64::from(row.arr_delay.unwrap_or(0));
    }
}

/// Departures of one origin in one scheduled hour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct OriginHour {
    pub(crate) origin: Code,
    pub(crate) hour: i32,
}

/// An origin and a destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Route {
    pub(crate) origin: Code,
    pub(crate) dest: Code,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.origin, self.dest)
    }
}

/// Sorts routes worst first (equal means by name) and keeps the ten worst that have enough flights.
pub(crate) fn rank_routes(routes: impl IntoIterator<Item = (Route, Mean)>) -> Vec<(Route, Mean)> {
    let mut ranked: Vec<_> = routes.into_iter().filter(|(_, mean)| mean.count >= MIN_ROUTE_FLIGHTS).collect();
    ranked.sort_by(|(a_route, a), (b_route, b)| b.compare(*a).then(a_route.cmp(b_route)));
    ranked.truncate(WORST_ROUTES);
    ranked
}

/// All answers at one instant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Answers {
    pub(crate) at: EventTime,
    pub(crate) totals: Totals,
    /// In key order.
    pub(crate) in_the_air: Vec<FlightKey>,
    /// By origin, then hour.
    pub(crate) departures: Vec<(OriginHour, Mean)>,
    /// Worst first.
    pub(crate) worst_routes: Vec<(Route, Mean)>,
    pub(crate) one_flight: Option<FlightRow>,
    /// In key order.
    pub(crate) one_aircraft: Vec<FlightRow>,
    /// Of arrivals whose delay is known.
    pub(crate) one_route: Mean,
}

/// The names of the answers, as the checks print them.
pub(crate) const QUESTIONS: [&str; 7] = [
    "totals",
    "flights in the air",
    "departure delay by origin and hour",
    "ten worst routes",
    "one flight by key",
    "one aircraft by index",
    "one route by index",
];

impl Answers {
    /// Per question of [`QUESTIONS`], whether the two agree.
    pub(crate) fn agreement(&self, other: &Self) -> [bool; 7] {
        [
            self.totals == other.totals,
            self.in_the_air == other.in_the_air,
            self.departures == other.departures,
            self.worst_routes == other.worst_routes,
            self.one_flight == other.one_flight,
            self.one_aircraft == other.one_aircraft,
            self.one_route == other.one_route,
        ]
    }
}

/// A hash of rows in key order, column by column: equal hashes mean the same rows in the same order.
#[derive(Clone, Default)]
pub(crate) struct ContentHash {
    state: u64,
    rows: u64,
    buffer: Vec<u8>,
}

impl ContentHash {
    /// Adds the next row.
    pub(crate) fn add(&mut self, row: &FlightRow) {
        self.buffer.clear();
        self.buffer.extend_from_slice(&self.state.to_le_bytes());
        row.encode(&mut self.buffer);
        self.state = mycelium_base::hash::hash_key(&self.buffer);
        self.rows += 1;
    }

    /// The hash and the number of rows.
    pub(crate) fn finish(&self) -> Content {
        Content { hash: self.state, rows: self.rows }
    }
}

/// The content of a table at a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) hash: u64,
    pub(crate) rows: u64,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} over {} rows", self.hash, self.rows)
    }
}

impl Serialize for Content {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Content", 2)?;
        fields.serialize_field("hash", &format_args!("{:016x}", self.hash))?;
        fields.serialize_field("rows", &self.rows)?;
        fields.end()
    }
}
