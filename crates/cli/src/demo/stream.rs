//! The input of the demo: 336,776 flights, and from them 1,001,615 operations in event-time order.
//!
//! 1. Read the CSV (zstd) into [`Flight`]s; every field is checked, and a bad one names its line and column.
//! 2. For each flight, one operation per instant that [`Flight`] derives.
//! 3. Sort by (minute, kind, position in the data). Operations of one flight are at least one minute apart or in the
//!    order insert, departure, arrival, cancel mark, so this order never overtakes within a flight.

use std::io::Read;

use super::event_time::EventTime;
use super::flight::{Code, Flight, FlightKey, FlightRow};
use crate::failure::Failure;

/// The data that travel in the binary, so that the demo needs no files.
pub(crate) const EMBEDDED: &[u8] = include_bytes!("../../../../data/nycflights13/flights.csv.zst");

/// The columns of the data, in the order of the file.
const COLUMNS: [&str; 19] = [
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
    "hour",
    "minute",
    "time_hour",
];

/// What an operation of the stream does to its flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Inserts the schedule.
    Insert,
    /// Patches `dep_time` and `dep_delay`.
    Departure,
    /// Patches `arr_time`, `arr_delay` and `air_time`.
    Arrival,
    /// Patches `cancelled`.
    Cancel,
}

impl Change {
    const ALL: [Self; 4] = [Self::Insert, Self::Departure, Self::Arrival, Self::Cancel];
}

/// One operation: 8 bytes, which sort in stream order.
///
/// ```text
/// bit 63      32 31    30 29          0
///    | minute   | change |  flight     |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StreamOperation(u64);

impl StreamOperation {
    fn new(time: EventTime, change: Change, flight: usize) -> Self {
        debug_assert!(flight < 1 << 30 && u32::try_from(time.0).is_ok());
        Self((time.0 as u64) << 32 | (change as u64) << 30 | flight as u64)
    }

    /// When it happens.
    pub(crate) fn time(self) -> EventTime {
        EventTime((self.0 >> 32) as i64)
    }

    /// What it does.
    pub(crate) fn change(self) -> Change {
        Change::ALL[(self.0 >> 30 & 3) as usize]
    }

    /// The position of its flight in the data.
    pub(crate) fn flight(self) -> usize {
        (self.0 & ((1 << 30) - 1)) as usize
    }
}

/// Reads the flights from zstd-compressed CSV.
pub(crate) fn read_flights(compressed: impl Read) -> Result<Vec<Flight>, Failure> {
    let decoder = zstd::Decoder::new(compressed).map_err(|e| Failure::input(format!("not a zstd file: {e}")))?;
    let mut reader = csv::Reader::from_reader(decoder);
    let header = reader.headers().map_err(csv_failure)?;
    if !header.iter().eq(COLUMNS) {
        return Err(Failure::input("the header is not that of nycflights13's flights.csv"));
    }
    let mut record = csv::StringRecord::new();
    let mut flights = Vec::new();
    while reader.read_record(&mut record).map_err(csv_failure)? {
        flights.push(parse_flight(&Fields { record: &record })?);
    }
    Ok(flights)
}

/// The operations of `flights`, sorted as they happen.
pub(crate) fn operations(flights: &[Flight]) -> Vec<StreamOperation> {
    let mut operations = Vec::with_capacity(flights.len() * 3);
    for (i, flight) in flights.iter().enumerate() {
        let instants = [
            (Change::Insert, Some(flight.inserted_at())),
            (Change::Departure, flight.departed_at()),
            (Change::Arrival, flight.arrived_at()),
            (Change::Cancel, flight.cancelled_at()),
        ];
        for (change, time) in instants {
            operations.extend(time.map(|time| StreamOperation::new(time, change, i)));
        }
    }
    operations.sort_unstable();
    operations
}

fn csv_failure(error: csv::Error) -> Failure {
    Failure::input(format!("cannot read the flights: {error}"))
}

/// The fields of one line, by column name's position in [`COLUMNS`].
struct Fields<'a> {
    record: &'a csv::StringRecord,
}

impl Fields<'_> {
    fn text(&self, column: usize) -> Option<&str> {
        self.record.get(column).filter(|text| *text != "NA" && !text.is_empty())
    }

    fn wrong(&self, column: usize) -> Failure {
        let line = self.record.position().map_or(0, csv::Position::line);
        let found = self.record.get(column).unwrap_or_default();
        Failure::input(format!("line {line}: column {} cannot be {found:?}", COLUMNS[column]))
    }

    fn nullable(&self, column: usize) -> Result<Option<i32>, Failure> {
        self.text(column).map(|text| text.parse().map_err(|_| self.wrong(column))).transpose()
    }

    fn number(&self, column: usize) -> Result<i32, Failure> {
        self.nullable(column)?.ok_or_else(|| self.wrong(column))
    }

    fn nullable_code(&self, column: usize) -> Result<Option<Code>, Failure> {
        self.text(column).map(|text| Code::new(text).ok_or_else(|| self.wrong(column))).transpose()
    }

    fn code(&self, column: usize) -> Result<Code, Failure> {
        self.nullable_code(column)?.ok_or_else(|| self.wrong(column))
    }

    fn time(&self, column: usize) -> Result<EventTime, Failure> {
        let time = self.text(column).and_then(EventTime::parse);
        time.filter(|time| u32::try_from(time.0 - 10 * super::event_time::DAY).is_ok())
            .ok_or_else(|| self.wrong(column))
    }
}

fn parse_flight(fields: &Fields<'_>) -> Result<Flight, Failure> {
    let key = FlightKey {
        year: fields.number(0)?,
        month: fields.number(1)?,
        day: fields.number(2)?,
        carrier: fields.code(9)?,
        flight: fields.number(10)?,
        sched_dep_time: fields.number(4)?,
        origin: fields.code(12)?,
    };
    let dep_time = fields.nullable(3)?;
    let dep_delay = fields.nullable(5)?;
    if dep_time.is_some() != dep_delay.is_some() {
        return Err(fields.wrong(5));
    }
    Ok(Flight(FlightRow {
        key,
        dep_time,
        dep_delay,
        arr_time: fields.nullable(6)?,
        sched_arr_time: fields.number(7)?,
        arr_delay: fields.nullable(8)?,
        tailnum: fields.nullable_code(11)?,
        dest: fields.code(13)?,
        air_time: fields.nullable(14)?,
        distance: fields.number(15)?,
        hour: fields.number(16)?,
        minute: fields.number(17)?,
        time_hour: fields.time(18)?,
        cancelled: dep_time.is_none(),
    }))
}

/// The data that travel with the project, read once for all tests.
#[cfg(test)]
pub(crate) fn test_flights() -> &'static [Flight] {
    static FLIGHTS: std::sync::OnceLock<Vec<Flight>> = std::sync::OnceLock::new();
    FLIGHTS.get_or_init(|| read_flights(EMBEDDED).expect("the data that travel with the project"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_stream_has_the_documented_counts_and_order() {
        let flights = test_flights();
        assert_eq!(flights.len(), 336_776);
        let keys: HashSet<_> = flights.iter().map(|flight| flight.0.key).collect();
        assert_eq!(keys.len(), flights.len(), "the key is unique");

        let operations = operations(flights);
        let count = |change| operations.iter().filter(|operation| operation.change() == change).count();
        assert_eq!(operations.len(), 1_001_615);
        assert_eq!(count(Change::Insert), 336_776);
        assert_eq!(count(Change::Departure), 328_521);
        assert_eq!(count(Change::Arrival), 328_063);
        assert_eq!(count(Change::Cancel), 8_255);

        let mut applied = vec![0; flights.len()];
        for pair in operations.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for operation in &operations {
            let stage = &mut applied[operation.flight()];
            match operation.change() {
                Change::Insert => assert_eq!(std::mem::replace(stage, 1), 0),
                Change::Departure => assert_eq!(std::mem::replace(stage, 2), 1),
                Change::Arrival => assert_eq!(std::mem::replace(stage, 3), 2),
                Change::Cancel => assert_eq!(std::mem::replace(stage, 4), 1),
            }
        }
    }

    #[test]
    fn bad_input_is_named_not_panicked_over() {
        let read = |text: &str| read_flights(&*zstd::encode_all(text.as_bytes(), 1).expect("compresses in memory"));
        let header = COLUMNS.join(",");
        let good = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z";
        assert_eq!(read(&format!("{header}\n{good}\n")).expect("well formed").len(), 1);
        for (from, to, column) in [
            ("2013,1,1,", "2013,x,1,", "month"),
            (",UA,", ",ABCDEFGHI,", "carrier"),
            (",UA,", ",,", "carrier"),
            (",517,", ",NA,", "dep_delay"),
            ("2013-01-01T10:00:00Z", "2013-01-01", "time_hour"),
            ("2013-01-01T10:00:00Z", "1901-01-01T10:00:00Z", "time_hour"),
        ] {
            let error = read(&format!("{header}\n{}\n", good.replace(from, to))).expect_err("refused");
            assert!(error.to_string().contains(&format!("line 2: column {column} ")), "{error}");
        }
        assert!(read("a,b\n1,2\n").is_err());
        assert!(read_flights(&b"plain"[..]).is_err());
    }
}
