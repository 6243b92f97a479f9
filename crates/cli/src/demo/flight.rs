//! One flight: its row as the table stores it, and when its parts become known.
//!
//! The rows are real. Of the event times, that of the departure is real too (scheduled time + delay); those of the
//! insert, the arrival and the cancel mark are derived:
//!
//! 1. the schedule is inserted 3 hours before the scheduled departure;
//! 2. the departure is known at departure;
//! 3. the arrival is known at departure + air time + 20 minutes (taxi). The 717 flights that landed elsewhere first
//!    have an arrival time but no air time: theirs is estimated as 20 minutes + 1 minute per 8 miles;
//! 4. a flight that never left is marked cancelled 30 minutes after its scheduled departure.
//!
//! 458 flights left but have no arrival at all (diverted for good): their rows stay open.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;

use super::event_time::EventTime;

/// A short code (carrier, airport, tail number), kept in line: at most 7 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Code {
    // The order of (zero-padded bytes, length) is the order of the strings.
    bytes: [u8; 7],
    len: u8,
}

impl Code {
    /// The code, or `None` if it is longer than 7 bytes.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; 7];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { bytes, len: text.len() as u8 })
    }
}

impl Deref for Code {
    type Target = str;
    fn deref(&self) -> &str {
        // Always whole: only `new` fills the bytes, from a `str`.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// The primary key of a flight; ordered as the table orders it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub(crate) struct FlightKey {
    pub(crate) year: i32,
    pub(crate) month: i32,
    pub(crate) day: i32,
    pub(crate) carrier: Code,
    pub(crate) flight: i32,
    pub(crate) sched_dep_time: i32,
    pub(crate) origin: Code,
}

impl fmt::Display for FlightKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, carrier, flight, sched_dep_time, origin } = self;
        write!(f, "{year}-{month:02}-{day:02} {carrier} {flight} {sched_dep_time:04} {origin}")
    }
}

/// A row of the table `flights`: the columns of the data in their order, and `cancelled`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct FlightRow {
    #[serde(flatten)]
    pub(crate) key: FlightKey,
    pub(crate) dep_time: Option<i32>,
    pub(crate) dep_delay: Option<i32>,
    pub(crate) arr_time: Option<i32>,
    pub(crate) sched_arr_time: i32,
    pub(crate) arr_delay: Option<i32>,
    pub(crate) tailnum: Option<Code>,
    pub(crate) dest: Code,
    pub(crate) air_time: Option<i32>,
    pub(crate) distance: i32,
    pub(crate) hour: i32,
    pub(crate) minute: i32,
    /// The scheduled hour.
    pub(crate) time_hour: EventTime,
    pub(crate) cancelled: bool,
}

impl FlightRow {
    /// The scheduled departure.
    pub(crate) fn scheduled(&self) -> EventTime {
        self.time_hour + i64::from(self.minute)
    }

    /// The departure, once it is known.
    pub(crate) fn departed(&self) -> Option<EventTime> {
        self.dep_delay.map(|delay| self.scheduled() + i64::from(delay))
    }

    /// Appends every column in a fixed form, for content hashes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let key = &self.key;
        for number in [key.year, key.month, key.day, key.flight, key.sched_dep_time] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.sched_arr_time, self.distance, self.hour, self.minute] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.dep_time, self.dep_delay, self.arr_time, self.arr_delay, self.air_time] {
            out.push(u8::from(number.is_some()));
            out.extend_from_slice(&number.unwrap_or(0).to_le_bytes());
        }
        for code in [Some(key.carrier), Some(key.origin), Some(self.dest), self.tailnum] {
            out.push(code.map_or(u8::MAX, |code| code.len));
            out.extend_from_slice(code.as_deref().unwrap_or_default().as_bytes());
        }
        out.extend_from_slice(&self.time_hour.0.to_le_bytes());
        out.push(u8::from(self.cancelled));
    }
}

/// A flight as the data have it (everything known), with the instants at which it became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flight(pub(crate) FlightRow);

/// Minutes before the scheduled departure at which a schedule is inserted.
pub(crate) const INSERT_LEAD: i64 = 180;
/// Minutes from touch-down to the arrival's update.
pub(crate) const TAXI: i64 = 20;
/// Minutes after the scheduled departure at which a flight that never left is marked.
pub(crate) const CANCEL_LAG: i64 = 30;

impl Flight {
    /// When the schedule is inserted.
    pub(crate) fn inserted_at(&self) -> EventTime {
        self.0.scheduled() - INSERT_LEAD
    }

    /// When the departure is known; `None` if the flight never left.
    pub(crate) fn departed_at(&self) -> Option<EventTime> {
        self.0.departed()
    }

    /// When the arrival is known; `None` if the data have none.
    pub(crate) fn arrived_at(&self) -> Option<EventTime> {
        self.0.arr_time?;
        let air_time = self.0.air_time.unwrap_or(20 + self.0.distance / 8);
        Some(self.departed_at()? + i64::from(air_time) + TAXI)
    }

    /// When the flight is marked cancelled; `None` if it left.
    pub(crate) fn cancelled_at(&self) -> Option<EventTime> {
        match self.departed_at() {
            Some(_) => None,
            None => Some(self.0.scheduled() + CANCEL_LAG),
        }
    }

    /// The row as inserted: the schedule alone.
    pub(crate) fn schedule(&self) -> FlightRow {
        FlightRow {
            dep_time: None,
            dep_delay: None,
            arr_time: None,
            arr_delay: None,
            air_time: None,
            cancelled: false,
            ..self.0
        }
    }

    /// The row as it must read at an instant (updates of that minute included); `None` before the insert.
    pub(crate) fn row_at(&self, at: EventTime) -> Option<FlightRow> {
        let known = |time: Option<EventTime>| time.is_some_and(|time| time <= at);
        if !known(Some(self.inserted_at())) {
            return None;
        }
        let mut row = self.schedule();
        if known(self.departed_at()) {
            (row.dep_time, row.dep_delay) = (self.0.dep_time, self.0.dep_delay);
        }
        if known(self.arrived_at()) {
            (row.arr_time, row.arr_delay, row.air_time) = (self.0.arr_time, self.0.arr_delay, self.0.air_time);
        }
        row.cancelled = known(self.cancelled_at());
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_sort_like_strings() {
        let words = ["", "9E", "A", "AA", "AA\0", "AAA", "B6", "N725MQ", "é"];
        for a in words {
            for b in words {
                let (x, y) = (Code::new(a).expect("short"), Code::new(b).expect("short"));
                assert_eq!(x.cmp(&y), a.cmp(b), "{a:?} {b:?}");
                assert_eq!(&*x, a);
            }
        }
        assert_eq!(Code::new("N725MQ99"), None);
    }
}
