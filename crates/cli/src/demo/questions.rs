//! The questions of the demo in SQL, asked at a snapshot, each with the time that it took.
//!
//! What the questions mean is told in [`super::answers`]. An aggregate reads its columns of all rows; the two questions
//! about the last 24 hours say that a flight leaves less than a week late, so that blocks of older flights are passed
//! over by their zone maps; the last three are look-ups of a key or in an index.

use std::time::{Duration, Instant};

use arrow_array::types::{ArrowPrimitiveType, Int64Type};
use arrow_array::{PrimitiveArray, RecordBatch};
use mycelium::{Database, Snapshot};
use mycelium_sql::Session;
use tokio::runtime::Runtime;

use super::answers::{Answers, Mean, OriginHour, QUESTIONS, Route, Totals, WINDOW, one_flight, one_route, one_tailnum};
use super::answers::{MIN_ROUTE_FLIGHTS, WORST_ROUTES};
use super::columns::{Columns, KeyColumns, ints, numbers, texts};
use super::event_time::{DAY, EventTime};
use super::flight::{Code, FlightKey, FlightRow};
use super::store::malformed;
use crate::failure::{Failure, FailureKind};

/// How long each question of [`QUESTIONS`] took, from its text to its last row.
pub(crate) type Times = [Duration; QUESTIONS.len()];

/// The columns of the key.
const KEY: &str = "year, month, day, carrier, flight, sched_dep_time, origin";

/// One who asks.
pub(super) struct Analyst {
    session: Session,
    runtime: Runtime,
}

/// The questions of one moment.
struct Inquiry<'a> {
    analyst: &'a Analyst,
    snapshot: &'a Snapshot,
    at: EventTime,
    times: Vec<Duration>,
}

impl Analyst {
    /// An analyst of a database.
    pub(super) fn new(database: &Database) -> Result<Self, Failure> {
        let runtime =
            Runtime::new().map_err(|error| Failure::new(FailureKind::Disk, format!("cannot start: {error}")))?;
        Ok(Self { session: Session::open(database), runtime })
    }

    /// All answers at a snapshot that holds the changes up to `at`.
    pub(super) fn ask(&self, snapshot: &Snapshot, at: EventTime) -> Result<(Answers, Times), Failure> {
        let mut inquiry = Inquiry { analyst: self, snapshot, at, times: Vec::with_capacity(QUESTIONS.len()) };
        let answers = Answers {
            at,
            totals: inquiry.totals()?,
            in_the_air: inquiry.in_the_air()?,
            departures: inquiry.departures()?,
            worst_routes: inquiry.worst_routes()?,
            one_flight: inquiry.one_flight()?,
            one_aircraft: inquiry.one_aircraft()?,
            one_route: inquiry.one_route()?,
        };
        let times = inquiry.times.try_into().map_err(|_| malformed())?;
        Ok((answers, times))
    }
}

impl Inquiry<'_> {
    /// The rows that a statement answers, each made of its batch and its position in it; and takes the time.
    fn rows<T>(&mut self, text: &str, row: impl Fn(&RecordBatch, usize) -> Option<T>) -> Result<Vec<T>, Failure> {
        let began = Instant::now();
        let Analyst { session, runtime } = self.analyst;
        let batches = runtime.block_on(async { session.query_at(text, self.snapshot).await?.collect().await })?;
        self.times.push(began.elapsed());
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|at| row(batch, at)));
        rows.collect::<Option<_>>().ok_or_else(malformed)
    }

    fn totals(&mut self) -> Result<Totals, Failure> {
        let text = "SELECT count(*) AS flights, count(dep_time) AS departed, count(arr_time) AS arrived, \
                    count(*) FILTER (WHERE cancelled) AS cancelled, \
                    coalesce(sum(dep_delay), 0) AS dep_delay, coalesce(sum(arr_delay), 0) AS arr_delay FROM flights";
        let rows = self.rows(text, |batch, row| {
            Some(Totals {
                flights: count(batch, "flights", row)?,
                departed: count(batch, "departed", row)?,
                arrived: count(batch, "arrived", row)?,
                cancelled: count(batch, "cancelled", row)?,
                departure_delay_minutes: value::<Int64Type>(batch, "dep_delay", row)?,
                arrival_delay_minutes: value::<Int64Type>(batch, "arr_delay", row)?,
            })
        })?;
        rows.into_iter().next().ok_or_else(malformed)
    }

    /// Of flights that left in the last 24 hours.
    fn left_lately(&self) -> String {
        let seconds = |minutes: i64| (self.at - minutes).0 * 60;
        format!(
            "time_hour > to_timestamp_seconds({}) AND to_unixtime(time_hour) + 60 * (minute + dep_delay) > {}",
            seconds(WINDOW + 7 * DAY),
            seconds(WINDOW)
        )
    }

    fn in_the_air(&mut self) -> Result<Vec<FlightKey>, Failure> {
        let text =
            format!("SELECT {KEY} FROM flights WHERE arr_time IS NULL AND {} ORDER BY {KEY}", self.left_lately());
        self.rows(&text, |batch, row| KeyColumns::of(batch)?.key(row))
    }

    fn departures(&mut self) -> Result<Vec<(OriginHour, Mean)>, Failure> {
        let text = format!(
            "SELECT origin, hour, sum(dep_delay) AS sum, count(*) AS count FROM flights WHERE {} \
             GROUP BY origin, hour ORDER BY origin, hour",
            self.left_lately()
        );
        self.rows(&text, |batch, row| {
            let origin = code(batch, "origin", row)?;
            Some((OriginHour { origin, hour: ints(batch, "hour")?.value(row) }, mean(batch, row)?))
        })
    }

    fn worst_routes(&mut self) -> Result<Vec<(Route, Mean)>, Failure> {
        let text = format!(
            "SELECT origin, dest, sum(arr_delay) AS sum, count(arr_delay) AS count FROM flights GROUP BY origin, dest \
             HAVING count(arr_delay) >= {MIN_ROUTE_FLIGHTS} \
             ORDER BY sum(arr_delay) / CAST(count(arr_delay) AS DOUBLE) DESC, origin, dest LIMIT {WORST_ROUTES}"
        );
        self.rows(&text, |batch, row| {
            let route = Route { origin: code(batch, "origin", row)?, dest: code(batch, "dest", row)? };
            Some((route, mean(batch, row)?))
        })
    }

    fn one_flight(&mut self) -> Result<Option<FlightRow>, Failure> {
        let FlightKey { year, month, day, carrier, flight, sched_dep_time, origin } = one_flight();
        let text = format!(
            "SELECT * FROM flights WHERE year = {year} AND month = {month} AND day = {day} AND carrier = '{carrier}' \
             AND flight = {flight} AND sched_dep_time = {sched_dep_time} AND origin = '{origin}'"
        );
        Ok(self.rows(&text, whole_row)?.into_iter().next())
    }

    fn one_aircraft(&mut self) -> Result<Vec<FlightRow>, Failure> {
        let text = format!("SELECT * FROM flights WHERE tailnum = '{}' ORDER BY {KEY}", one_tailnum());
        self.rows(&text, whole_row)
    }

    fn one_route(&mut self) -> Result<Mean, Failure> {
        let Route { origin, dest } = one_route();
        let text = format!(
            "SELECT coalesce(sum(arr_delay), 0) AS sum, count(arr_delay) AS count FROM flights \
             WHERE origin = '{origin}' AND dest = '{dest}'"
        );
        self.rows(&text, mean)?.into_iter().next().ok_or_else(malformed)
    }
}

fn value<T: ArrowPrimitiveType>(batch: &RecordBatch, name: &str, row: usize) -> Option<T::Native> {
    numbers::<T>(batch, name).map(|column: &PrimitiveArray<T>| column.value(row))
}

fn count(batch: &RecordBatch, name: &str, row: usize) -> Option<u64> {
    value::<Int64Type>(batch, name, row)?.try_into().ok()
}

fn mean(batch: &RecordBatch, row: usize) -> Option<Mean> {
    Some(Mean { sum: value::<Int64Type>(batch, "sum", row)?, count: count(batch, "count", row)? })
}

fn code(batch: &RecordBatch, name: &str, row: usize) -> Option<Code> {
    Code::new(texts(batch, name)?.value(row))
}

fn whole_row(batch: &RecordBatch, row: usize) -> Option<FlightRow> {
    Columns::of(batch)?.row(row)
}
