//! When rows expire: the definition, its bytes, and what it means at a given time.
//!
//! ```text
//! varint  the position of the column
//! u8      what a tick of it is: 0 what its type says, 1 a second, 2 a millisecond, 3 a microsecond, 4 a nanosecond
//! varint  seconds of the age
//! varint  nanoseconds of the age beside them, less than 1,000,000,000
//! ```

use std::time::Duration;

use mycelium_base::coding::{Reader, put_varint};
use mycelium_base::{Error, ErrorKind, Result};
use mycelium_encoding::{ColumnType, Datum, Schema, TimeUnit};

/// When rows of a table expire: once `age` has passed since the time that they have in `column`.
///
/// A row whose column is null does not expire. With an age of zero the column says when the row expires. Times without
/// a zone are taken as UTC, and a date as the beginning of its day.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// A column of type `date32`, `timestamp`, or `int32`, `int64`, `uint32`, `uint64`, which counts from 1970 on. It
    /// may be one of the primary key.
    pub column: String,
    /// What a column of integers counts; `None` for dates and timestamps, whose types say it.
    pub unit: Option<TimeUnit>,
    /// How long a row stays.
    pub age: Duration,
}

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

fn nanoseconds_of(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => SECOND,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

fn nanoseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

impl Expiry {
    /// By a column of dates or timestamps.
    pub fn new(column: impl Into<String>, age: Duration) -> Self {
        Self { column: column.into(), unit: None, age }
    }

    /// By a column of integers, which count this.
    #[must_use]
    pub fn counting(mut self, unit: TimeUnit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// The position of its column.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the table has no such column, or one that says no time, or the unit does not
    /// go with it.
    pub(crate) fn check(&self, schema: &Schema) -> Result<usize> {
        let column = schema.index_of(&self.column);
        let column = column.ok_or_else(|| Error::invalid(format!("there is no column {:?}", self.column)))?;
        self.nanoseconds_per_tick(&schema.columns()[column].ty)?;
        Ok(column)
    }

    fn nanoseconds_per_tick(&self, ty: &ColumnType) -> Result<i128> {
        let refused = |what: &str| Err(Error::invalid(format!("column {:?} of type {ty} {what}", self.column)));
        match (ty, self.unit) {
            (ColumnType::Date32, None) => Ok(DAY),
            (ColumnType::Timestamp(unit, _), None) => Ok(nanoseconds_of(*unit)),
            (ColumnType::Date32 | ColumnType::Timestamp(..), Some(_)) => {
                refused("says by its type what it counts: leave the unit out")
            }
            (ColumnType::Int32 | ColumnType::Int64 | ColumnType::UInt32 | ColumnType::UInt64, Some(unit)) => {
                Ok(nanoseconds_of(unit))
            }
            (ColumnType::Int32 | ColumnType::Int64 | ColumnType::UInt32 | ColumnType::UInt64, None) => {
                refused("does not say what it counts: give a unit")
            }
            _ => refused("says no time: rows expire by a date, a timestamp, or an integer of 32 or 64 bits"),
        }
    }

    /// The latest time with which a row has expired at `now`, counted from 1970 on, as a value of its column; `None` if
    /// the column can hold none that early.
    pub(crate) fn latest_expired(&self, schema: &Schema, now: Duration) -> Result<Option<Datum>> {
        let ty = &schema.columns()[self.check(schema)?].ty;
        let latest = nanoseconds(now).saturating_sub(nanoseconds(self.age));
        let ticks = latest.div_euclid(self.nanoseconds_per_tick(ty)?);
        Ok(match ty {
            ColumnType::Int32 => i32::try_from(ticks.min(i32::MAX.into())).ok().map(Datum::Int32),
            ColumnType::Date32 => i32::try_from(ticks.min(i32::MAX.into())).ok().map(Datum::Date32),
            ColumnType::Int64 => i64::try_from(ticks.min(i64::MAX.into())).ok().map(Datum::Int64),
            ColumnType::Timestamp(..) => i64::try_from(ticks.min(i64::MAX.into())).ok().map(Datum::Timestamp),
            ColumnType::UInt32 => u32::try_from(ticks.min(u32::MAX.into())).ok().map(Datum::UInt32),
            ColumnType::UInt64 => u64::try_from(ticks.min(u64::MAX.into())).ok().map(Datum::UInt64),
            _ => None,
        })
    }

    /// Appends the stored form; `column` is the position of its column.
    pub(crate) fn encode(&self, column: usize, out: &mut Vec<u8>) {
        put_varint(out, column as u64);
        out.push(match self.unit {
            None => 0,
            Some(TimeUnit::Second) => 1,
            Some(TimeUnit::Millisecond) => 2,
            Some(TimeUnit::Microsecond) => 3,
            Some(TimeUnit::Nanosecond) => 4,
        });
        put_varint(out, self.age.as_secs());
        put_varint(out, self.age.subsec_nanos().into());
    }

    /// Reads the stored form of a table with these columns.
    pub(crate) fn decode(schema: &Schema, reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.position() as u64;
        let column = reader.length(usize::MAX)?;
        let unit = match reader.u8()? {
            0 => None,
            1 => Some(TimeUnit::Second),
            2 => Some(TimeUnit::Millisecond),
            3 => Some(TimeUnit::Microsecond),
            4 => Some(TimeUnit::Nanosecond),
            other => {
                let message = format!("a table's rows expire by a unit that this version does not know: {other}");
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        };
        let (seconds, rest) = (reader.varint()?, reader.varint()?);
        let Some(rest) = u32::try_from(rest).ok().filter(|rest| *rest < 1_000_000_000) else {
            return Err(Error::corruption("an age in the manifest").at(at).expected("less than a second", rest));
        };
        let Some(named) = schema.columns().get(column).filter(|column| !column.is_dropped()) else {
            let message = "rows expire by a column that the table does not have";
            return Err(Error::corruption(message).at(at).expected("a column of the schema", column));
        };
        let expiry = Self { column: named.name.clone(), unit, age: Duration::new(seconds, rest) };
        expiry.check(schema).map_err(|e| Error::corruption("a table's expiry in the manifest").at(at).caused_by(e))?;
        Ok(expiry)
    }

    /// Takes the name that its column has in another schema, where it has the same position.
    pub(crate) fn follow_column(&mut self, before: &Schema, after: &Schema) {
        let position = before.index_of(&self.column);
        if let Some(column) = position.and_then(|position| after.columns().get(position)) {
            self.column.clone_from(&column.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(ty: &str) -> Schema {
        Schema::parse(&format!("id int64 not null, at {ty}, primary key (id)")).unwrap()
    }

    #[test]
    fn the_latest_expired_time_is_rounded_down_and_fits_its_column() {
        let (second, expiry) = (Duration::from_secs(1), Expiry::new("at", Duration::from_millis(1500)));
        let of = |expiry: &Expiry, ty: &str, now| expiry.latest_expired(&schema(ty), now).unwrap();
        assert_eq!(of(&expiry, "timestamp(s)", 10 * second), Some(Datum::Timestamp(8)));
        assert_eq!(of(&expiry, "timestamp(ms, \"UTC\")", 10 * second), Some(Datum::Timestamp(8500)));
        assert_eq!(of(&expiry, "timestamp(us)", second), Some(Datum::Timestamp(-500_000)));
        // A nanosecond before a day is over its time has not come.
        let day = Duration::from_secs(86_400);
        let by_day = Expiry::new("at", day);
        assert_eq!(of(&by_day, "date32", 3 * day), Some(Datum::Date32(2)));
        assert_eq!(of(&by_day, "date32", 3 * day - Duration::from_nanos(1)), Some(Datum::Date32(1)));
        assert_eq!(of(&by_day, "date32", Duration::ZERO), Some(Datum::Date32(-1)));
        let counted = Expiry::new("at", 5 * second).counting(TimeUnit::Second);
        assert_eq!(of(&counted, "int64", 3 * second), Some(Datum::Int64(-2)));
        assert_eq!(of(&counted, "uint32", 3 * second), None, "no value is that early");
        assert_eq!(of(&counted, "uint64", 5 * second), Some(Datum::UInt64(0)));
        assert_eq!(of(&counted, "int32", Duration::from_secs(1 << 40)), Some(Datum::Int32(i32::MAX)));
        let ancient = Expiry::new("at", Duration::MAX).counting(TimeUnit::Nanosecond);
        assert_eq!(of(&ancient, "int64", Duration::ZERO), None);
        let at_once = Expiry::new("at", Duration::ZERO).counting(TimeUnit::Nanosecond);
        assert_eq!(of(&at_once, "int64", Duration::MAX), Some(Datum::Int64(i64::MAX)));
    }

    #[test]
    fn a_column_that_says_no_time_is_refused() {
        let plain = Expiry::new("at", Duration::ZERO);
        let counting = plain.clone().counting(TimeUnit::Second);
        let elsewhere = Expiry::new("when", Duration::ZERO);
        for (expiry, ty) in [
            (&plain, "int64"),
            (&plain, "utf8"),
            (&counting, "int16"),
            (&counting, "float64"),
            (&counting, "date32"),
            (&counting, "timestamp(s)"),
            (&elsewhere, "date32"),
        ] {
            let error = expiry.check(&schema(ty)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{expiry:?} of {ty}");
        }
    }

    #[test]
    fn bytes_are_read_back_and_wrong_ones_refused() {
        let age = Duration::new(86_400 * 30, 5);
        for (expiry, ty) in [
            (Expiry::new("at", age), "date32"),
            (Expiry::new("at", age), "timestamp(ns)"),
            (Expiry::new("at", age).counting(TimeUnit::Second), "int64"),
            (Expiry::new("at", age).counting(TimeUnit::Nanosecond), "uint64"),
        ] {
            let mut bytes = Vec::new();
            expiry.encode(1, &mut bytes);
            assert_eq!(Expiry::decode(&schema(ty), &mut Reader::new(&bytes)).unwrap(), expiry);
            for cut in 0..bytes.len() {
                assert!(Expiry::decode(&schema(ty), &mut Reader::new(&bytes[..cut])).is_err());
            }
        }
        let wrong = |bytes: &[u8]| Expiry::decode(&schema("date32"), &mut Reader::new(bytes)).unwrap_err().kind();
        assert_eq!(wrong(&[7, 0, 1, 0]), ErrorKind::Corruption, "no such column");
        assert_eq!(wrong(&[1, 5, 1, 0]), ErrorKind::Unsupported, "no such unit");
        assert_eq!(wrong(&[1, 1, 1, 0]), ErrorKind::Corruption, "dates have their own");
        assert_eq!(
            wrong(&[1, 0, 1, 0x80, 0x94, 0xeb, 0xdc, 3]),
            ErrorKind::Corruption,
            "a whole second of nanoseconds"
        );
    }
}
