//! Column groups of packed values: taking a group's columns out of a wider value, and putting fragments together again.
//!
//! [`Projection`] is what a split does to every entry on its way down (Mycelium §4.2.2, LASER §4.4). When it is made:
//! 1. Every column of the narrow layout is found in the wide one.
//! 2. Slots that lie side by side in both become one copy, and so do bytes of variable columns.
//!
//! A whole row is then projected by copying: null bits, slots in a few pieces, ends, bytes. A patch is projected column
//! by column. The result is what encoding the projected columns would give.
//!
//! [`join`] is the way back (LASER's ColumnMergingIterator): each column comes from the newest fragment that has it.
//!
//! A *widening* is what takes values along that were written before the table had some of the columns.

use std::ops::Range;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, Result};

use crate::combiner::Fold;
use crate::packed::{PackedLayout, PackedRow, RawColumn};

/// Takes a column group out of the values of a wider one. Thread-safe.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::ColumnSet;
/// use mycelium_encoding::{DatumRef, PackedLayout, Projection, Schema};
///
/// let schema = Arc::new(Schema::parse("id int64 not null, a int32, b utf8, c int32, primary key (id)")?);
/// let whole = Arc::new(PackedLayout::new(schema.clone()));
/// let group = Arc::new(PackedLayout::of(schema, &ColumnSet::from_iter([2, 3])));
/// let (mut value, mut fragment) = (Vec::new(), Vec::new());
/// whole.encode_row(&[DatumRef::Int64(1), DatumRef::Int32(2), DatumRef::Utf8("b"), DatumRef::Int32(4)], &mut value)?;
///
/// assert!(Projection::new(whole, group.clone())?.project(&value, &mut fragment)?);
/// assert_eq!(group.row(&fragment)?.datum(2)?, Some(DatumRef::Utf8("b")));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Projection {
    from: Arc<PackedLayout>,
    to: Arc<PackedLayout>,
    /// The wide layout's physical index, by the narrow one's.
    source: Vec<usize>,
    /// Pieces of the wide layout's slots that make up the narrow one's, in order.
    copies: Vec<Range<usize>>,
    /// The same of its variable columns, counted among these.
    variables: Vec<Range<usize>>,
}

impl Projection {
    /// From the values of `from` to those of `to`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if a column of `to` is not in `from`.
    pub fn new(from: Arc<PackedLayout>, to: Arc<PackedLayout>) -> Result<Self> {
        let find = |index| {
            from.physical(to.column(index)).ok_or_else(|| {
                Error::invalid(format!("column \"{}\" is not in the values to be projected", to.name(index)))
            })
        };
        let source = (0..to.len()).map(find).collect::<Result<Vec<_>>>()?;
        let mut copies: Vec<Range<usize>> = Vec::new();
        for &index in &source[..to.fixed_len()] {
            let slot = from.slot(index);
            match copies.last_mut() {
                Some(last) if last.end == slot.start => last.end = slot.end,
                _ => copies.push(slot),
            }
        }
        let mut variables: Vec<Range<usize>> = Vec::new();
        for ordinal in source[to.fixed_len()..].iter().map(|index| index - from.fixed_len()) {
            match variables.last_mut() {
                Some(last) if last.end == ordinal => last.end += 1,
                _ => variables.push(ordinal..ordinal + 1),
            }
        }
        Ok(Self { from, to, source, copies, variables })
    }

    /// Appends the projected value to `out`. `false` if it is a patch of other columns only; then nothing is appended.
    ///
    /// # Errors
    /// Those of [`PackedLayout::row`] and [`PackedRow::get`] for a malformed value.
    pub fn project(&self, value: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let row = self.from.row(value)?;
        if row.is_complete() { self.project_row(&row, out).map(|()| true) } else { self.project_patch(&row, out) }
    }

    fn project_row(&self, row: &PackedRow<'_>, out: &mut Vec<u8>) -> Result<()> {
        let mut variable_len = 0;
        for columns in &self.variables {
            variable_len += row.variable_bytes(columns.clone())?.len();
        }
        out.reserve(2 + self.to.len() * 5 + row.slots().len() + variable_len);
        let nulls = self.project_nulls(row.nulls());
        let width = self.to.begin_whole(nulls.as_deref(), variable_len, out);
        for piece in &self.copies {
            out.extend_from_slice(&row.slots()[piece.clone()]);
        }
        let mut end = 0;
        for ordinal in self.variables.iter().cloned().flatten() {
            end += row.variable_range(ordinal).len();
            out.extend_from_slice(&(end as u32).to_le_bytes()[..width]);
        }
        for columns in &self.variables {
            out.extend_from_slice(row.variable_bytes(columns.clone())?);
        }
        Ok(())
    }

    /// The null bits of the narrow layout, if one is set.
    fn project_nulls(&self, nulls: &[u8]) -> Option<Vec<u8>> {
        if nulls.is_empty() {
            return None;
        }
        let mut projected = vec![0; self.to.len().div_ceil(8)];
        for (index, &source) in self.source.iter().enumerate() {
            projected[index / 8] |= (nulls[source / 8] >> (source % 8) & 1) << (index % 8);
        }
        projected.iter().any(|&byte| byte != 0).then_some(projected)
    }

    fn project_patch(&self, row: &PackedRow<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let columns = self.source.iter().map(|&index| row.raw(index)).collect::<Result<Vec<_>>>()?;
        if columns.iter().all(|column| *column == RawColumn::Absent) {
            return Ok(false);
        }
        self.to.encode_source(&Fold { layout: &self.to, columns: &columns }, out)?;
        Ok(true)
    }
}

/// Makes values of columns out of values that lack some of them. Thread-safe.
#[derive(Debug)]
pub(crate) struct Widening {
    from: Arc<PackedLayout>,
    to: Arc<PackedLayout>,
}

impl Widening {
    pub(crate) fn new(from: Arc<PackedLayout>, to: Arc<PackedLayout>) -> Self {
        Self { from, to }
    }

    /// Appends the value of the columns of the other layout. One that `value` lacks has its default, or null, in a
    /// whole row, and is absent from a patch. `false` if it is a patch of other columns only; then nothing is appended.
    ///
    /// # Errors
    /// Those of [`PackedLayout::row`] and [`PackedRow::get`] for a malformed value.
    pub(crate) fn widen(&self, value: &[u8], is_row: bool, out: &mut Vec<u8>) -> Result<bool> {
        let row = self.from.row(value)?;
        let column = |index| match self.from.physical(self.to.column(index)) {
            Some(held) => row.raw(held),
            None if is_row => Ok(self.to.default_of(index)),
            None => Ok(RawColumn::Absent),
        };
        let columns = (0..self.to.len()).map(column).collect::<Result<Vec<_>>>()?;
        if columns.iter().all(|column| *column == RawColumn::Absent) {
            return Ok(false);
        }
        self.to.encode_source(&Fold { layout: &self.to, columns: &columns }, out)?;
        Ok(true)
    }
}

/// Appends to `out` a value of `layout` whose columns come from the newest of `fragments` (newest first) that has them;
/// a column that none has is absent. O(columns of the layout and of all fragments), but O(columns x fragments) of
/// whole rows of a fixed width.
///
/// # Errors
/// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for malformed fragments.
pub fn join(layout: &PackedLayout, fragments: &[PackedRow<'_>], out: &mut Vec<u8>) -> Result<()> {
    join_lacking(layout, fragments, &ColumnSet::new(), out)
}

/// As [`join`], where those of the columns that `lacking` has are their defaults, or null, if no fragment has them.
///
/// # Errors
/// As [`join`].
pub fn join_lacking(
    layout: &PackedLayout,
    fragments: &[PackedRow<'_>],
    lacking: &ColumnSet,
    out: &mut Vec<u8>,
) -> Result<()> {
    if fragments.iter().all(|fragment| fragment.is_complete() && fragment.nulls().is_empty())
        && layout.encode_slots(|column| slot_of(column, fragments), out).is_some()
    {
        return Ok(());
    }
    let mut columns = vec![RawColumn::Absent; layout.len()];
    for fragment in fragments {
        for held in 0..fragment.layout().len() {
            if let Some(index) = layout.physical(fragment.layout().column(held))
                && columns[index] == RawColumn::Absent
            {
                columns[index] = fragment.raw(held)?;
            }
        }
    }
    for (index, column) in columns.iter_mut().enumerate() {
        if *column == RawColumn::Absent && lacking.contains(layout.column(index)) {
            *column = layout.default_of(index);
        }
    }
    layout.encode_source(&Fold { layout, columns: &columns }, out)
}

/// The slot of a column that some whole fragment without nulls has, as [`PackedLayout::encode_slots`] takes it.
#[inline]
fn slot_of(column: usize, fragments: &[PackedRow<'_>]) -> Option<u64> {
    fragments.iter().find_map(|fragment| {
        let layout = fragment.layout();
        let slot = fragment.slots().get(layout.slot(layout.physical(column)?))?;
        let mut bytes = [0; size_of::<u64>()];
        bytes.get_mut(..slot.len())?.copy_from_slice(slot);
        Some(u64::from_le_bytes(bytes))
    })
}
