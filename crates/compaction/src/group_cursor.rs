//! The input run of one column group, whose cells may be taken as they are or whose values are looked at.

use mycelium_base::{Cursor, ReadCounters, Result, Trailer};
use mycelium_sst::{EncodedCursor, Pick, RunCursor};

/// A cursor over the entries of a run.
#[derive(Debug)]
pub enum GroupCursor {
    /// Gives values.
    Values(RunCursor),
    /// Gives cells; values where they are asked for.
    Cells(EncodedCursor),
}

macro_rules! either {
    ($this:expr, $cursor:ident => $result:expr) => {
        match $this {
            Self::Values($cursor) => $result,
            Self::Cells($cursor) => $result,
        }
    };
}

impl GroupCursor {
    /// The current entry's cells, if they may be taken.
    #[inline]
    pub(crate) fn pick(&self) -> Option<Pick<'_>> {
        match self {
            Self::Values(_) => None,
            Self::Cells(cursor) => cursor.pick(),
        }
    }
}

impl Cursor for GroupCursor {
    #[inline]
    fn valid(&self) -> bool {
        either!(self, cursor => cursor.valid())
    }
    #[inline]
    fn key(&self) -> &[u8] {
        either!(self, cursor => cursor.key())
    }
    #[inline]
    fn trailer(&self) -> Trailer {
        either!(self, cursor => cursor.trailer())
    }
    fn value(&self) -> &[u8] {
        either!(self, cursor => cursor.value())
    }
    fn seek_to_first(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        either!(self, cursor => cursor.seek_to_last())
    }
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        either!(self, cursor => cursor.seek(key, trailer))
    }
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        either!(self, cursor => cursor.seek_before(key, trailer))
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        either!(self, cursor => cursor.next())
    }
    fn prev(&mut self) -> Result<()> {
        either!(self, cursor => cursor.prev())
    }
    #[inline]
    fn same_key_as_previous(&self) -> bool {
        either!(self, cursor => cursor.same_key_as_previous())
    }
    fn add_counters(&self, counters: &mut ReadCounters) {
        either!(self, cursor => cursor.add_counters(counters));
    }
}
