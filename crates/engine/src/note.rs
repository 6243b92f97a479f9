//! Notes: records of the log that hold no operation, but say what an archive of it has to know.
//!
//! ```text
//! record   next sequence number varint | 0 varint | note
//! note     1 | identity u64 | history u64 | time varint       the segment begins; of which database and history it is
//!          2 | time varint                                    what follows was committed at that time or later
//!          3 | table, the rest                                a bulk load is about to take the next sequence number
//! ```
//!
//! Times are milliseconds since the beginning of 1970, UTC, by the clock of the options. Only a database whose log is
//! archived writes notes, and then only to segments of format version 2 of the log: an older version refuses these.
//!
//! 1. A segment begins with the first kind. A commit that comes [`PRECISION_MILLISECONDS`] or more after the last
//!    note of a time brings one of the second kind: what lies between a note and the next was committed less than that
//!    after the first of them, unless the clock was set.
//! 2. A note carries the sequence number that comes next. What took one past the log, as bulk loads do, leaves a gap
//!    that the next record or note shows.
//! 3. A load is noted before it is installed, durably. If it then fails, its number goes to something else, and the
//!    note means nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mycelium_base::coding::{Reader, put_varint};
use mycelium_base::{Error, Result, SequenceNumber};

use crate::clock::Clock;
use crate::log_record::{encode_head, split_record};

/// How far apart times in the log are while commits come.
pub(crate) const PRECISION_MILLISECONDS: u64 = 1000;

const BEGIN: u8 = 1;
const MOMENT: u8 = 2;
const LOAD: u8 = 3;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note<'a> {
    /// The first record of a segment.
    Begin { identity: u64, history: u64, milliseconds: u64 },
    /// What follows is not older.
    Moment { milliseconds: u64 },
    /// The next sequence number may be that of a bulk load into this table.
    Load { table: &'a str },
}

impl<'a> Note<'a> {
    /// The log record, where `next` is the sequence number that comes next.
    pub(crate) fn encode(&self, next: SequenceNumber) -> Vec<u8> {
        let mut out = Vec::new();
        encode_head(&mut out, next, 0);
        match self {
            Self::Begin { identity, history, milliseconds } => {
                out.push(BEGIN);
                out.extend_from_slice(&identity.to_le_bytes());
                out.extend_from_slice(&history.to_le_bytes());
                put_varint(&mut out, *milliseconds);
            }
            Self::Moment { milliseconds } => {
                out.push(MOMENT);
                put_varint(&mut out, *milliseconds);
            }
            Self::Load { table } => {
                out.push(LOAD);
                out.extend_from_slice(table.as_bytes());
            }
        }
        out
    }

    /// The note of a log record; `None` if it is one of operations, or of nothing at all.
    pub(crate) fn of_record(payload: &'a [u8]) -> Result<Option<Self>> {
        let (_, count, body) = split_record(payload)?;
        if count > 0 || body.is_empty() { Ok(None) } else { Self::decode(body).map(Some) }
    }

    /// What stands behind the head of a record.
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(body);
        let note = match reader.u8()? {
            BEGIN => {
                let (identity, history) = (reader.u64()?, reader.u64()?);
                Self::Begin { identity, history, milliseconds: reader.varint()? }
            }
            MOMENT => Self::Moment { milliseconds: reader.varint()? },
            LOAD => {
                let table = std::str::from_utf8(reader.rest());
                return table.map(|table| Self::Load { table }).map_err(|error| {
                    Error::corruption("the table of a bulk load is not UTF-8").at(1).caused_by(error)
                });
            }
            kind => return Err(Error::corruption("a log record without operations").at(0).expected("1 to 3", kind)),
        };
        reader.finish()?;
        Ok(note)
    }
}

/// The present time of notes.
pub(crate) fn now(clock: &dyn Clock) -> u64 {
    milliseconds(clock.now())
}

/// A time as notes have it; 0 before 1970.
pub(crate) fn milliseconds_of(time: SystemTime) -> u64 {
    milliseconds(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn milliseconds(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// The time that a note has; the beginning of 1970 if the system cannot say it.
pub(crate) fn time_of(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH)
}

/// Whether a time must be noted at `now`, if the last that was noted is `last`. A clock that was set back is one
/// reason.
pub(crate) fn is_due(last: Option<u64>, now: u64) -> bool {
    last.is_none_or(|last| now < last || now - last >= PRECISION_MILLISECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_written_as_they_always_were() {
        let notes: [(Note<'_>, &[u8]); 3] = [
            (
                Note::Begin { identity: 0x0102_0304_0506_0708, history: 9, milliseconds: 300 },
                b"\x07\0\x01\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0\xac\x02",
            ),
            (Note::Moment { milliseconds: 5 }, b"\x07\0\x02\x05"),
            (Note::Load { table: "t" }, b"\x07\0\x03t"),
        ];
        for (note, bytes) in notes {
            assert_eq!(note.encode(7), bytes, "{note:?}");
            assert_eq!(Note::of_record(bytes).unwrap(), Some(note));
            for end in 2..bytes.len() - 1 {
                let cut = Note::of_record(&bytes[..end]);
                assert!(cut.as_ref().is_ok_and(|cut| *cut != Some(note)) || cut.is_err_and(|e| e.is_corruption()));
            }
        }
        for damaged in [&b"\x07\0\x04"[..], b"\x07\0\0", b"\x07\0\x02\x05\x05", b"\x07\0\x03\xff"] {
            assert!(Note::of_record(damaged).unwrap_err().is_corruption(), "{damaged:?}");
        }
        assert_eq!(Note::of_record(b"\x07\0").unwrap(), None);
    }

    #[test]
    fn a_time_is_noted_each_second_and_where_the_clock_goes_back() {
        assert!(is_due(None, 0) && is_due(Some(5), 1005) && is_due(Some(5), 4));
        assert!(!is_due(Some(5), 5) && !is_due(Some(5), 1004));
    }
}
