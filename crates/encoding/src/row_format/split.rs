//! Taking values apart into those of several column groups at once: the split of a compaction (Mycelium §4.2.2).
//!
//! To project a value on each group in turn would read its fields as often as there are groups. So:
//!
//! 1. One walk over the payload finds the *cuts*: where it passes from the columns of one part to those of another
//!    ([`Codec::cut`](super::codec::Codec::cut)).
//! 2. The payload of a part is what lies between its cuts, as its bytes are.
//! 3. Its frame says of its columns what the value's does: both bitmaps are those of the value under a mask of the
//!    part's columns. Of a value without nulls or absent columns it is known beforehand.
//!
//! Guarantees: the same bytes as [`RowFormat::project`]; nothing is allocated per row with reused [`Cuts`]. What is not
//! written as this project writes it (fields out of order, tags longer than they need to be) is left to that. Neither
//! are the values of columns looked at, nor whether frame and payload contradict: whoever reads the part finds out.

use mycelium_base::limits::MAX_VALUE_LEN;
use mycelium_base::{ColumnSet, Result};

use super::RowFormat;
use super::frame::{Frame, PartFrame};

/// Takes values of one format apart into those of several parts of their columns. Thread-safe.
///
/// ```
/// # use std::sync::Arc;
/// # use mycelium_base::ColumnSet;
/// # use mycelium_encoding::Schema;
/// # use mycelium_encoding::row_format::{Covers, RowFormat, RowScratch};
/// use mycelium_encoding::row_format::{Cuts, RowSplitter};
///
/// # let schema = Arc::new(Schema::parse("id int64 not null, a int64 not null, b utf8, primary key (id)")?);
/// # let json = RowFormat::json(schema);
/// // Only Protobuf rows can be cut; others are projected part by part.
/// assert!(RowSplitter::new(&json, &[Some(ColumnSet::from_iter([1])), None]).is_none());
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Debug)]
pub struct RowSplitter {
    rows: RowFormat,
    parts: Vec<Option<PartFrame>>,
    /// By schema position the part that has the column; [`NO_PART`] if none does.
    part_of: Vec<PartNumber>,
}

/// A part, by its place among those that were given.
pub(super) type PartNumber = u16;
pub(super) const NO_PART: PartNumber = PartNumber::MAX;

/// Where a payload was cut. Give each thread one, and reuse it.
#[derive(Clone, Default, Debug)]
pub struct Cuts {
    /// By part, in the payload's order: from where to where. What no part has is left out.
    pub(super) pieces: Vec<(PartNumber, u32, u32)>,
}

impl Cuts {
    /// Adds a piece, which is a part's if it is anybody's.
    #[inline]
    pub(super) fn add(&mut self, part: PartNumber, start: usize, end: usize) {
        if part != NO_PART {
            // No payload is longer than `MAX_VALUE_LEN`, which was checked where it came in.
            self.pieces.push((part, start as u32, end as u32));
        }
    }
}

impl RowSplitter {
    /// For values of the format `rows`, into parts of these columns; `None` among the parts is one that is not made
    /// here. No two parts may have a column in common. `None` if values of the format cannot be cut. O(columns).
    pub fn new(rows: &RowFormat, parts: &[Option<ColumnSet>]) -> Option<Self> {
        let can_cut = rows.0.codec.as_ref().is_some_and(|codec| codec.can_cut());
        if !can_cut || parts.len() >= usize::from(NO_PART) {
            return None;
        }
        let mut part_of = vec![NO_PART; rows.schema().columns().len()];
        for (part, columns) in parts.iter().enumerate() {
            for column in columns.iter().flat_map(ColumnSet::iter) {
                let of = part_of.get_mut(column).filter(|of| **of == NO_PART)?;
                *of = part as PartNumber;
            }
        }
        let frame = |columns: &ColumnSet| rows.frame().part(rows.columns_of(Some(columns)).map(|(ordinal, _)| ordinal));
        let parts = parts.iter().map(|columns| columns.as_ref().map(frame)).collect();
        Some(Self { rows: rows.clone(), parts, part_of })
    }

    /// Cuts a value, a whole row or a patch, which was checked when it was written. `None` if it must be projected.
    ///
    /// # Errors
    /// As [`RowFormat::read`], for a malformed frame.
    pub fn split<'a>(&'a self, value: &'a [u8], cuts: &'a mut Cuts) -> Result<Option<SplitRow<'a>>> {
        let frame = self.rows.frame().parse(value)?;
        let payload = value.get(frame.payload_at..).unwrap_or_default();
        cuts.pieces.clear();
        let codec = self.rows.0.codec.as_ref();
        let is_cut = codec.is_some_and(|codec| codec.cut(payload, &self.part_of, cuts));
        // Where a part may become too long by its frame, whoever projects the value says so.
        let fits = payload.len() + self.rows.frame().longest() <= MAX_VALUE_LEN;
        Ok((is_cut && fits).then_some(SplitRow { splitter: self, frame, payload, cuts }))
    }
}

/// A value that was cut.
#[derive(Clone, Copy, Debug)]
pub struct SplitRow<'a> {
    splitter: &'a RowSplitter,
    frame: Frame<'a>,
    payload: &'a [u8],
    cuts: &'a Cuts,
}

impl SplitRow<'_> {
    /// Whether this part is made here.
    #[inline]
    pub fn has_part(&self, part: usize) -> bool {
        self.splitter.parts.get(part).is_some_and(Option::is_some)
    }

    /// Appends the value of a part. `false` if there is none: it has columns, and the value is a patch of others.
    #[inline]
    pub fn append(&self, part: usize, out: &mut Vec<u8>) -> bool {
        let Some(Some(frame)) = self.splitter.parts.get(part) else { return false };
        if !frame.write(&self.frame, out) {
            return false;
        }
        for &(of, start, end) in &self.cuts.pieces {
            if usize::from(of) == part {
                out.extend_from_slice(&self.payload[start as usize..end as usize]);
            }
        }
        true
    }
}
