//! Column merging: one row from the fragments of its column groups (LASER §4.2, the ColumnMergingIterator).
//!
//! Every group's runs are a complete history of the group's columns: a `Put`, `Delete` or range delete is in every
//! group, a patch in those that it touches. With group-local compaction the fragments of one row lie at different
//! depths, and their sequence numbers may differ where patches were folded. So:
//!
//! 1. Entries are visited newest first for every column, which is what visiting places youngest first does, and what
//!    walking merged sources does.
//! 2. A wanted column comes from the first fragment that has it: a `Put` has all columns of its group, a patch some.
//! 3. Whether there is a row is what the first entry that is no patch says, in whichever group it lies: so no place
//!    need be visited for that which has none of the wanted columns, unless none are wanted.
//! 4. A range delete covers only what its source's columns overlap: a group whose data are its oldest has no sequence
//!    numbers any more, and its own copy of the range delete is gone.
//! 5. Where a table got a column after a source was written, the source *lacks* it: a `Put` there says that the column
//!    has its default, or is null. So do all entries that are older, for the column was never written before it was
//!    added; whichever of them a column is taken from, it is the same.
//! 6. Once existence and all wanted columns are settled, nothing older matters. A place is worth visiting if it holds a
//!    column that is not settled, or if existence is not.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, Operation, Result, SequenceNumber, Trailer};
use mycelium_encoding::row_format::{RowFormat, RowScratch};
use mycelium_encoding::{FragmentFormat, PackedLayout, PackedRow, Reshape, RowPart, join_lacking};

/// How the fragments of one kind of source are read.
#[derive(Debug)]
struct Reading {
    columns: ColumnSet,
    /// Whether all wanted columns are in its fragments.
    has_all: bool,
    /// Whether a wanted column is among them, or none are wanted.
    concerns: bool,
    /// How the fragments that it gives are packed, if they are, and need nothing more to be done to them.
    given: Option<Arc<PackedLayout>>,
    /// The wanted columns among those of that layout.
    given_wanted: Vec<u8>,
    /// The format of the fragments that it gives, if nothing must be done to them.
    stored: Option<RowFormat>,
    /// Whether these may be the row as they lie.
    lends_rows: bool,
    /// Packed fragments of the wanted columns that are in its fragments.
    part: FragmentFormat,
    layout: Arc<PackedLayout>,
    /// To these.
    reshape: Reshape,
}

/// How rows of some columns are put together from sources of some formats: made once, shared by all reads. Thread-safe.
#[derive(Debug)]
pub struct MergePlan {
    wanted: Arc<PackedLayout>,
    columns: ColumnSet,
    /// The wanted columns that some source lacks.
    lacking: ColumnSet,
    /// Whether nobody looks at the rows: no column is wanted of a table that has some.
    says_nothing: bool,
    /// By kind of source.
    readings: Vec<Reading>,
}

impl MergePlan {
    /// For rows of the columns of `wanted`, a packed format, from sources of these formats. A source's *kind* is its
    /// format's index here.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if `wanted` is not packed.
    pub fn new(wanted: &FragmentFormat, sources: &[FragmentFormat]) -> Result<Self> {
        Self::reading(wanted, sources, |_| false)
    }

    /// As [`MergePlan::new`], where columnar sources give fragments of just the wanted columns that they have, as
    /// [`MergePlan::layout_of`] says.
    ///
    /// # Errors
    /// As [`MergePlan::new`].
    pub fn narrowing(wanted: &FragmentFormat, sources: &[FragmentFormat]) -> Result<Self> {
        Self::reading(wanted, sources, FragmentFormat::is_columnar)
    }

    fn reading(
        wanted: &FragmentFormat,
        sources: &[FragmentFormat],
        is_narrowed: impl Fn(&FragmentFormat) -> bool,
    ) -> Result<Self> {
        let layout = wanted.packed_layout().ok_or_else(|| Error::invalid("rows are put together packed"))?;
        let reading = |source: &FragmentFormat| {
            let held = source.held();
            let part = FragmentFormat::packed(layout.schema().clone(), held.intersection(wanted.columns()));
            let layout = part.rows().layout().clone();
            let given = if is_narrowed(source) { Some(&layout) } else { source.plain_layout() }.cloned();
            let has_all = wanted.columns().is_subset(&held);
            let concerns = wanted.columns().is_empty() || wanted.columns().overlaps(source.columns());
            let is_narrowed = is_narrowed(source);
            let stored = if is_narrowed { Some(part.rows()) } else { source.plain_rows() }.cloned();
            Ok(Reading {
                stored,
                lends_rows: has_all && !is_narrowed,
                given_wanted: given.as_ref().map_or_else(Vec::new, |given| given.bitmap_of(wanted.columns())),
                columns: source.columns().clone(),
                has_all,
                concerns,
                given,
                reshape: if is_narrowed { part.reshape(&part)? } else { source.reshape(&part)? },
                layout,
                part,
            })
        };
        let readings = sources.iter().map(reading).collect::<Result<_>>()?;
        let says_nothing = wanted.columns().is_empty() && !layout.schema().value_columns().is_empty();
        let mut lacking = ColumnSet::new();
        for source in sources {
            lacking = lacking.union(&source.columns().difference(&source.held()).intersection(wanted.columns()));
        }
        Ok(Self { wanted: layout.clone(), columns: wanted.columns().clone(), lacking, says_nothing, readings })
    }

    /// The columns wanted.
    pub fn columns(&self) -> &ColumnSet {
        &self.columns
    }

    /// The layout of the rows.
    pub fn layout(&self) -> &Arc<PackedLayout> {
        &self.wanted
    }

    /// Whether a `Put` from this kind of source, where it is the newest visible entry, is the row as it stands.
    #[inline]
    pub fn is_exact(&self, kind: usize) -> bool {
        let reading = &self.readings[kind];
        self.says_nothing || (reading.reshape.is_copy() && reading.layout.is_same(&self.wanted))
    }

    /// Whether a `Put` from this kind of source, where it is the newest visible entry, has all of the row in it.
    #[inline]
    pub fn has_all(&self, kind: usize) -> bool {
        self.readings[kind].has_all
    }

    /// How a `Put` from this kind of source is read as it lies, where it is the newest visible entry and has all of the
    /// row in it; `None` where it lacks some of it, or something must be done to it first.
    #[inline]
    pub fn stored_rows(&self, kind: usize) -> Option<&RowFormat> {
        let reading = &self.readings[kind];
        reading.stored.as_ref().filter(|_| reading.lends_rows)
    }

    /// How fragments of this kind of source are read as they lie, and which wanted columns are in them; `None` if
    /// something must be done to them first, or some source lacks a wanted column.
    #[inline]
    pub(crate) fn stored_part(&self, kind: usize) -> Option<(&RowFormat, &ColumnSet)> {
        let reading = &self.readings[kind];
        let rows = reading.stored.as_ref().filter(|_| self.lacking.is_empty())?;
        Some((rows, reading.part.columns()))
    }

    /// Whether these kinds of source, no two of which have a column in common, have all wanted columns between them, to
    /// be read as they lie.
    pub(crate) fn have_parts(&self, kinds: &[usize]) -> bool {
        let mut missing = self.columns.clone();
        kinds.iter().all(|&kind| {
            let part = self.stored_part(kind);
            part.iter().for_each(|(_, columns)| missing.remove_all(columns));
            part.is_some()
        }) && missing.is_empty()
    }

    /// The layout of packed fragments of the wanted columns that this kind of source has.
    pub fn layout_of(&self, kind: usize) -> &Arc<PackedLayout> {
        &self.readings[kind].layout
    }

    /// How the fragments that this kind of source gives are packed; `None` if they are not, or something is to be done
    /// to them.
    #[inline]
    pub fn given_layout(&self, kind: usize) -> Option<&Arc<PackedLayout>> {
        self.readings[kind].given.as_ref()
    }

    /// Whether a patch of this kind of source may say something of the wanted columns.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for a malformed patch.
    #[inline]
    pub fn may_be_patched(&self, kind: usize, patch: &[u8]) -> Result<bool> {
        let Some(layout) = self.given_layout(kind) else { return Ok(true) };
        layout.has_some(patch, &self.readings[kind].given_wanted)
    }

    /// The bytes at the beginning of such a patch that say so: patches that have them in common say it alike. `None` if
    /// more is to be looked at.
    pub fn patch_head_len(&self, kind: usize) -> Option<usize> {
        self.given_layout(kind).map(|layout| layout.patch_head_len())
    }

    /// Whether two kinds of source have no column in common.
    #[inline]
    pub fn are_apart(&self, kind: usize, other: usize) -> bool {
        !self.readings[kind].columns.shares_entries(&self.readings[other].columns)
    }

    /// Whether this kind of source has anything to say of such rows.
    #[inline]
    pub fn concerns(&self, kind: usize) -> bool {
        self.readings[kind].concerns
    }
}

/// Room for fragments at first: most rows need no more, and are put together without moving what was taken before.
const FIRST_BYTES: usize = 256;

/// A fragment that was taken.
#[derive(Debug)]
struct Fragment {
    /// The kind of its source.
    source: usize,
    /// Where it is among the bytes.
    place: Range<usize>,
    /// Whether it is as it lay in its source; else it is packed.
    is_kept: bool,
}

/// Puts the wanted columns of one key's row together. Reused key by key; not shared between threads.
#[derive(Debug)]
pub struct ColumnMerge {
    plan: Arc<MergePlan>,
    /// Wanted columns without a value yet.
    missing: ColumnSet,
    exists: Option<bool>,
    /// Range deletes that cover the key, by kind of source.
    covers: Vec<(usize, SequenceNumber)>,
    /// Newest first.
    fragments: Vec<Fragment>,
    bytes: Vec<u8>,
    /// Whether whole fragments are kept as they lie.
    keeps: bool,
    /// Whether `bytes` are the row, packed, and not fragments.
    is_packed: bool,
    scratch: RowScratch,
}

impl ColumnMerge {
    /// Nothing visited yet.
    pub fn new(plan: Arc<MergePlan>) -> Self {
        Self {
            missing: plan.columns.clone(),
            plan,
            exists: None,
            covers: Vec::new(),
            fragments: Vec::new(),
            bytes: Vec::new(),
            keeps: false,
            is_packed: false,
            scratch: RowScratch::default(),
        }
    }

    /// How rows are put together.
    pub fn plan(&self) -> &Arc<MergePlan> {
        &self.plan
    }

    /// As [`ColumnMerge::reset`]; the row will be asked for its [`parts`](Self::parts), where no source lacks a column.
    /// Whether that is so.
    pub fn reset_for_parts(&mut self) -> bool {
        self.reset();
        self.keeps = self.plan.lacking.is_empty();
        self.keeps
    }

    /// Forgets the row, for the next key.
    pub fn reset(&mut self) {
        (self.keeps, self.is_packed) = (false, false);
        self.missing.clone_from(&self.plan.columns);
        self.exists = None;
        self.covers.clear();
        self.fragments.clear();
        self.bytes.clear();
    }

    /// Whether entries from this kind of source can still matter.
    pub fn needs(&self, source: usize) -> bool {
        match self.exists {
            Some(false) => false,
            Some(true) => self.plan.readings[source].columns.overlaps(&self.missing),
            None => self.plan.readings[source].concerns,
        }
    }

    /// Whether nothing older can matter.
    pub fn is_settled(&self) -> bool {
        match self.exists {
            Some(exists) => !exists || self.missing.is_empty(),
            None => false,
        }
    }

    /// Tells of a range delete in this kind of source, visible at the snapshot, that covers the key.
    pub fn cover(&mut self, source: usize, sequence: SequenceNumber) {
        self.covers.push((source, sequence));
    }

    /// Whether a range delete covers what this kind of source says at `sequence`.
    #[inline]
    fn is_dead(&self, source: usize, sequence: SequenceNumber) -> bool {
        let columns = &self.plan.readings[source].columns;
        self.covers
            .iter()
            .any(|&(cover, newest)| sequence < newest && self.plan.readings[cover].columns.shares_entries(columns))
    }

    /// Whether a range delete covers everything in older places, so that the search may end there.
    pub fn is_covered(&self) -> bool {
        !self.covers.is_empty() && self.exists.is_none()
    }

    /// Takes the next older visible entry from this kind of source. Breaks when nothing older from it can matter.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for a malformed value.
    pub fn visit(&mut self, source: usize, trailer: Trailer, value: &[u8]) -> Result<ControlFlow<()>> {
        if !self.needs(source) {
            return Ok(ControlFlow::Break(()));
        }
        if !self.covers.is_empty() && self.is_dead(source, trailer.sequence()) {
            self.exists.get_or_insert(false);
            return Ok(ControlFlow::Break(()));
        }
        match trailer.operation() {
            Operation::Put => {
                self.exists = Some(true);
                if self.plan.readings[source].columns.overlaps(&self.missing) {
                    self.take(source, value, true)?;
                    self.missing.remove_all(&self.plan.readings[source].columns);
                }
                Ok(ControlFlow::Break(()))
            }
            Operation::Delete | Operation::RangeDelete => {
                self.exists.get_or_insert(false);
                Ok(ControlFlow::Break(()))
            }
            Operation::Patch => {
                if self.take(source, value, false)? {
                    self.note_patched()?;
                }
                Ok(if self.is_settled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            }
            Operation::Merge => Err(Error::corruption("a merge operand in a table with column groups")),
        }
    }

    /// Takes the whole row from who has it in several places and can `pack` it from there, which is what visiting a
    /// `Put` in each of them comes to. `false`, and nothing taken, if something was visited that may say otherwise, or
    /// `pack` gives `None`; it then has appended nothing.
    #[inline]
    pub fn take_packed(&mut self, pack: impl FnOnce(&PackedLayout, &mut Vec<u8>) -> Option<()>) -> bool {
        debug_assert!(!self.keeps, "no parts of a packed row");
        if self.exists.is_some() || !self.covers.is_empty() || !self.fragments.is_empty() {
            return false;
        }
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(FIRST_BYTES);
        }
        self.is_packed = pack(&self.plan.wanted, &mut self.bytes).is_some();
        if self.is_packed {
            self.exists = Some(true);
            self.missing.remove_all(&self.plan.columns);
        }
        self.is_packed
    }

    /// Appends the row that a `Put` from a kind of source that [has all](MergePlan::has_all) columns is, packed, to
    /// `out`.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for a malformed value.
    #[inline]
    pub fn read_whole(&mut self, source: usize, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self.plan.readings[source].reshape.apply(value, &mut self.scratch, out)? {
            true => Ok(()),
            false => Err(Error::corruption("a whole row says nothing of its columns")),
        }
    }

    /// Keeps a fragment, whole or a patch; `false` if it says nothing of the wanted columns.
    fn take(&mut self, source: usize, value: &[u8], is_whole: bool) -> Result<bool> {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(FIRST_BYTES);
        }
        let (start, reading) = (self.bytes.len(), &self.plan.readings[source]);
        let is_kept = self.keeps && is_whole && reading.stored.is_some();
        let says_something = if is_kept {
            self.bytes.extend_from_slice(value);
            true
        } else {
            reading.reshape.apply(value, &mut self.scratch, &mut self.bytes)?
        };
        if says_something {
            self.fragments.push(Fragment { source, place: start..self.bytes.len(), is_kept });
        }
        Ok(says_something)
    }

    /// The columns of the patch taken last are not missing any more.
    fn note_patched(&mut self) -> Result<()> {
        let Some(Fragment { source, place, .. }) = self.fragments.last() else { return Ok(()) };
        let row = self.plan.readings[*source].layout.row(&self.bytes[place.clone()])?;
        self.missing.remove_all(&row.present());
        Ok(())
    }

    /// Whether there is a row of which a column was found nowhere.
    pub(crate) fn lacks_columns(&self) -> bool {
        self.exists == Some(true) && !self.missing.is_empty()
    }

    /// Whether there is a row; its wanted columns are all in what was taken then.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) if a column of a row was found nowhere.
    pub fn has_row(&self) -> Result<bool> {
        if self.lacks_columns() {
            return Err(Error::corruption(format!("the row lacks the columns {} in every column group", self.missing)));
        }
        Ok(self.exists == Some(true))
    }

    /// What the row is to be put together from, newest first, in place of [`ColumnMerge::finish`].
    pub fn parts(&self) -> impl Iterator<Item = RowPart<'_>> {
        self.fragments.iter().map(|Fragment { source, place, is_kept }| {
            let reading = &self.plan.readings[*source];
            let rows = reading.stored.as_ref().filter(|_| *is_kept).unwrap_or(reading.part.rows());
            RowPart { rows, columns: reading.part.columns(), value: &self.bytes[place.clone()] }
        })
    }

    /// Appends the row's wanted columns, packed, to `out`; `false` if there is no row. Not of one that was
    /// [reset for its parts](Self::reset_for_parts).
    ///
    /// # Errors
    /// As [`ColumnMerge::has_row`].
    pub fn finish(&self, out: &mut Vec<u8>) -> Result<bool> {
        debug_assert!(!self.keeps, "fragments are not packed");
        if !self.has_row()? {
            return Ok(false);
        }
        if self.is_packed {
            out.extend_from_slice(&self.bytes);
            return Ok(true);
        }
        if let [Fragment { source, place, .. }] = self.fragments.as_slice()
            && self.plan.readings[*source].layout.is_same(&self.plan.wanted)
        {
            out.extend_from_slice(&self.bytes[place.clone()]);
            return Ok(true);
        }
        let mut rows: Vec<PackedRow<'_>> = Vec::with_capacity(self.fragments.len());
        for Fragment { source, place, .. } in &self.fragments {
            rows.push(self.plan.readings[*source].layout.row(&self.bytes[place.clone()])?);
        }
        join_lacking(&self.plan.wanted, &rows, &self.plan.lacking, out)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycelium_encoding::{ColumnState, DatumRef, Schema};

    /// Whole rows, and the groups of columns 1 and 2.
    fn merge() -> (ColumnMerge, Vec<FragmentFormat>) {
        let schema = Arc::new(Schema::parse("id int64 not null, a int32, b int32, primary key (id)").unwrap());
        let group = |columns: &[usize]| FragmentFormat::packed(schema.clone(), columns.iter().copied().collect());
        let formats = vec![group(&[1, 2]), group(&[1]), group(&[2])];
        let plan = MergePlan::new(&formats[0], &formats).unwrap();
        (ColumnMerge::new(Arc::new(plan)), formats)
    }

    fn fragment(format: &FragmentFormat, a: i32, b: i32) -> Vec<u8> {
        let mut out = Vec::new();
        let row = [DatumRef::Int64(1), DatumRef::Int32(a), DatumRef::Int32(b)];
        format.packed_layout().unwrap().encode_row(&row, &mut out).unwrap();
        out
    }

    fn put(sequence: u64) -> Trailer {
        Trailer::new(sequence, Operation::Put)
    }

    /// The group of column 2 is at the bottom: its range delete #50 is gone and its row #60 has no number any more. The
    /// range delete of the other group must not cover it.
    #[test]
    fn a_range_delete_of_one_group_hid_the_oldest_rows_of_another() {
        let (mut merge, formats) = merge();
        merge.cover(1, 50);
        assert!(merge.visit(1, put(60), &fragment(&formats[1], 7, 0)).unwrap().is_break());
        assert!(!merge.is_settled() && merge.needs(2) && !merge.needs(1));
        assert!(merge.visit(2, put(0), &fragment(&formats[2], 0, 8)).unwrap().is_break());
        let mut row = Vec::new();
        assert!(merge.is_settled() && merge.finish(&mut row).unwrap());
        assert_eq!(row, fragment(&formats[0], 7, 8));
    }

    #[test]
    fn a_row_is_taken_at_once_only_where_nothing_says_otherwise() {
        let (mut merge, formats) = merge();
        let whole = fragment(&formats[0], 7, 8);
        let pack = |_: &PackedLayout, out: &mut Vec<u8>| {
            out.extend_from_slice(&whole);
            Some(())
        };
        let mut row = Vec::new();
        assert!(merge.take_packed(pack) && merge.is_settled() && merge.finish(&mut row).unwrap());
        assert_eq!(row, whole);
        let mut patch = Vec::new();
        let states = [ColumnState::Absent, ColumnState::Absent, ColumnState::Value(DatumRef::Int32(9))];
        formats[2].packed_layout().unwrap().encode_patch(&states, &mut patch).unwrap();
        merge.reset();
        assert!(merge.visit(2, Trailer::new(90, Operation::Patch), &patch).unwrap().is_continue());
        assert!(!merge.take_packed(pack), "a patch is newer");
        merge.reset();
        merge.cover(1, 50);
        assert!(!merge.take_packed(pack), "a range delete may cover it");
        merge.reset();
        assert!(merge.visit(1, Trailer::new(90, Operation::Delete), &[]).unwrap().is_break());
        assert!(!merge.take_packed(pack), "a delete is newer");
        merge.reset();
        assert!(!merge.take_packed(|_, _| None) && !merge.is_settled() && merge.needs(1));
    }

    /// Rows of the second source were written before the table had column 2.
    #[test]
    fn a_row_from_before_a_column_has_null_in_it_unless_something_newer_says_otherwise() {
        let schema = Arc::new(Schema::parse("id int64 not null, a int32, b int32, primary key (id)").unwrap());
        let whole = FragmentFormat::packed(schema.clone(), ColumnSet::from_iter([1, 2]));
        let before = FragmentFormat::packed(schema.clone(), ColumnSet::from_iter([1]));
        let before = before.lacking(&ColumnSet::from_iter([2]));
        let formats = [whole.clone(), before];
        let expected = |states: [ColumnState<'_>; 3]| {
            let mut out = Vec::new();
            whole.packed_layout().unwrap().encode_patch(&states, &mut out).unwrap();
            out
        };
        let (seven, eight) = (ColumnState::Value(DatumRef::Int32(7)), ColumnState::Value(DatumRef::Int32(8)));
        for (columns, is_patched) in [(&[1, 2][..], false), (&[1, 2][..], true), (&[2][..], false)] {
            let wanted = FragmentFormat::packed(schema.clone(), columns.iter().copied().collect());
            let plan = MergePlan::new(&wanted, &formats).unwrap();
            assert!(plan.concerns(1) && !plan.has_all(1) && !plan.is_exact(1));
            let mut merge = ColumnMerge::new(Arc::new(plan));
            if is_patched {
                let patch = expected([ColumnState::Absent, ColumnState::Absent, eight]);
                assert!(merge.visit(0, Trailer::new(90, Operation::Patch), &patch).unwrap().is_continue());
            }
            assert!(merge.visit(1, put(40), &fragment(&formats[1], 7, 0)).unwrap().is_break());
            let mut row = Vec::new();
            assert!(merge.is_settled() && merge.finish(&mut row).unwrap());
            match columns {
                [2] => {
                    assert_eq!(wanted.packed_layout().unwrap().row(&row).unwrap().get(2).unwrap(), ColumnState::Null)
                }
                _ => assert_eq!(
                    row,
                    expected([ColumnState::Absent, seven, if is_patched { eight } else { ColumnState::Null }])
                ),
            }
        }
    }

    /// The same where column 2 has a default, which a patch may have made null.
    #[test]
    fn a_row_from_before_a_column_has_its_default_unless_something_newer_says_otherwise() {
        let text = "id int64 not null, a int32, b int32 default 8, primary key (id)";
        let schema = Arc::new(Schema::parse(text).unwrap());
        let whole = FragmentFormat::packed(schema.clone(), ColumnSet::from_iter([1, 2]));
        let before = FragmentFormat::packed(schema.clone(), ColumnSet::from_iter([1]));
        let before = before.lacking(&ColumnSet::from_iter([2]));
        let formats = [whole.clone(), before];
        let encoded = |a, b| {
            let mut out = Vec::new();
            whole.packed_layout().unwrap().encode_patch(&[ColumnState::Absent, a, b], &mut out).unwrap();
            out
        };
        let (seven, eight) = (ColumnState::Value(DatumRef::Int32(7)), ColumnState::Value(DatumRef::Int32(8)));
        for patched in [None, Some(ColumnState::Null)] {
            let mut merge = ColumnMerge::new(Arc::new(MergePlan::new(&whole, &formats).unwrap()));
            if let Some(state) = patched {
                let patch = encoded(ColumnState::Absent, state);
                assert!(merge.visit(0, Trailer::new(90, Operation::Patch), &patch).unwrap().is_continue());
            }
            assert!(merge.visit(1, put(40), &fragment(&formats[1], 7, 0)).unwrap().is_break());
            let mut row = Vec::new();
            assert!(merge.finish(&mut row).unwrap());
            assert_eq!(row, encoded(seven, patched.unwrap_or(eight)));
        }
    }

    #[test]
    fn existence_is_read_from_any_group_and_columns_from_the_newest() {
        let (mut merge, formats) = merge();
        let mut patch = Vec::new();
        let layout = formats[0].packed_layout().unwrap();
        let states = [ColumnState::Absent, ColumnState::Value(DatumRef::Int32(70)), ColumnState::Absent];
        layout.encode_patch(&states, &mut patch).unwrap();
        assert!(merge.visit(0, Trailer::new(90, Operation::Patch), &patch).unwrap().is_continue());
        assert!(merge.needs(1), "whether there is a row is not known yet");
        assert!(merge.visit(2, put(40), &fragment(&formats[2], 0, 8)).unwrap().is_break());
        assert!(merge.is_settled() && !merge.needs(1));
        let mut row = Vec::new();
        assert!(merge.finish(&mut row).unwrap());
        assert_eq!(row, fragment(&formats[0], 70, 8));
    }

    #[test]
    fn existence_was_looked_up_in_groups_without_a_wanted_column() {
        let (_, formats) = merge();
        let plan = |wanted: usize| Arc::new(MergePlan::new(&formats[wanted], &formats).unwrap());
        let merge = ColumnMerge::new(plan(2));
        assert!(merge.needs(0) && !merge.needs(1) && merge.needs(2));
        let nothing = FragmentFormat::packed(formats[0].rows().schema().clone(), ColumnSet::new());
        let merge = ColumnMerge::new(Arc::new(MergePlan::new(&nothing, &formats).unwrap()));
        assert!(merge.needs(1) && merge.needs(2), "any group tells of a key alone");
    }

    #[test]
    fn a_patch_without_a_row_below_is_no_row() {
        let (mut merge, formats) = merge();
        let patch = fragment(&formats[1], 7, 0);
        assert!(merge.visit(1, Trailer::new(90, Operation::Patch), &patch).unwrap().is_continue());
        assert!(merge.visit(1, Trailer::new(80, Operation::Delete), &[]).unwrap().is_break());
        assert!(!merge.finish(&mut Vec::new()).unwrap());
        merge.reset();
        assert!(!merge.finish(&mut Vec::new()).unwrap(), "nothing was found");
    }

    /// The groups of a table of keys alone have no column in common, as they have none: range deletes in rows covered
    /// nothing in columnar files.
    #[test]
    fn range_deletes_passed_over_keys_alone_in_files_of_another_format() {
        let schema = Arc::new(Schema::parse("id int64 not null, primary key (id)").unwrap());
        let rows = FragmentFormat::packed(schema.clone(), ColumnSet::new());
        let formats = [rows.clone(), FragmentFormat::columnar(schema, ColumnSet::new())];
        let mut merge = ColumnMerge::new(Arc::new(MergePlan::narrowing(&rows, &formats).unwrap()));
        assert!(!merge.plan().are_apart(0, 1));
        let mut row = Vec::new();
        rows.packed_layout().unwrap().encode_row(&[DatumRef::Int64(1)], &mut row).unwrap();
        merge.cover(0, 50);
        assert!(merge.visit(1, put(40), &row).unwrap().is_break());
        assert!(!merge.finish(&mut Vec::new()).unwrap());
        merge.reset();
        merge.cover(0, 50);
        assert!(merge.visit(1, put(60), &row).unwrap().is_break());
        let mut found = Vec::new();
        assert!(merge.finish(&mut found).unwrap());
        assert_eq!(found, row);
    }

    #[test]
    fn a_row_that_lacks_a_column_everywhere_is_damage() {
        let (mut merge, formats) = merge();
        assert!(merge.visit(1, put(60), &fragment(&formats[1], 7, 0)).unwrap().is_break());
        assert!(merge.finish(&mut Vec::new()).unwrap_err().is_corruption());
    }
}
