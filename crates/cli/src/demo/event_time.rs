//! Event time: minutes since 1970-01-01 00:00 UTC.
//!
//! Every instant of the flight data is a whole minute. `time_hour` of the data is in UTC, so instants never need a time
//! zone: local times (`hhmm`) are stored and shown but never computed with, and neither midnight nor daylight saving
//! time needs care.

use std::fmt;
use std::ops::{Add, Sub};

/// Minutes of a day.
pub(crate) const DAY: i64 = 24 * 60;

/// An instant of the replayed year.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct EventTime(pub(crate) i64);

impl EventTime {
    /// The instant of a UTC date and time of day.
    pub(crate) fn utc(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> Self {
        Self((days_from_civil(year, month, day) * 24 + hour) * 60 + minute)
    }

    /// Parses `2013-01-01T10:00:00Z` (seconds must be zero).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let shape = bytes.len() == 20
            && bytes.iter().zip(b"0000-00-00T00:00:00Z").all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                _ => byte == shape,
            });
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
        if !shape || number(17, 19)? != 0 {
            return None;
        }
        Some(Self::utc(number(0, 4)?, number(5, 7)?, number(8, 10)?, number(11, 13)?, number(14, 16)?))
    }

    /// Year, month (1 to 12) and day of the month, in UTC.
    pub(crate) fn date(self) -> (i64, i64, i64) {
        civil_from_days(self.0.div_euclid(DAY))
    }

    /// The first instant of the UTC month after this one's.
    pub(crate) fn next_month(self) -> Self {
        match self.date() {
            (year, 12, _) => Self::utc(year + 1, 1, 1, 0, 0),
            (year, month, _) => Self::utc(year, month + 1, 1, 0, 0),
        }
    }
}

impl Add<i64> for EventTime {
    type Output = Self;
    fn add(self, minutes: i64) -> Self {
        Self(self.0 + minutes)
    }
}

impl Sub<i64> for EventTime {
    type Output = Self;
    fn sub(self, minutes: i64) -> Self {
        Self(self.0 - minutes)
    }
}

impl EventTime {
    /// As a timestamp column of a JSON row has it.
    pub(crate) fn timestamp(self) -> String {
        let (year, month, day) = self.date();
        let minute = self.0.rem_euclid(DAY);
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:00Z", minute / 60, minute % 60)
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let minute = self.0.rem_euclid(DAY);
        write!(f, "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minute / 60, minute % 60)
    }
}

impl serde::Serialize for EventTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar (eras of 400 years that begin on 1 March).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_round_trip_and_print() {
        for days in (-800_000..800_000).step_by(7) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        let time = EventTime::parse("2013-07-15T16:00:00Z").expect("well formed");
        assert_eq!(time.to_string(), "2013-07-15 16:00 UTC");
        assert_eq!(time.0 * 60, 1_373_904_000);
        assert_eq!(time.next_month().to_string(), "2013-08-01 00:00 UTC");
        assert_eq!(EventTime::utc(2013, 12, 31, 23, 59).next_month(), EventTime::utc(2014, 1, 1, 0, 0));
        for wrong in ["", "2013-07-15T16:00:00", "2013-07-15T16:00:01Z", "2013-07-15 16:00:00Z", "2013-0é-15T16:00:00"]
        {
            assert_eq!(EventTime::parse(wrong), None, "{wrong}");
        }
    }
}
