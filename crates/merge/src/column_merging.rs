//! The rows that a snapshot sees, put together from the fragments of their column groups (LASER §4.2).
//!
//! Forwards, key by key:
//! 1. Entries newer than the snapshot are passed over.
//! 2. If the first visible entry is a `Put` of exactly the wanted columns, it is the row, and is handed out where it
//!    stands.
//! 3. If it is a `Put` that has all wanted columns, these are taken out of it; or it is lent as it lies to who can read
//!    it so ([`ColumnMergingCursor::lending`]).
//! 4. If it is the first of such `Put`s of sibling groups that have all wanted columns between them, and who reads can
//!    read a row in parts, these are lent as they lie ([`ColumnMergingCursor::parts`]): all at once, where the entries
//!    are of one write, or no other source has any of the key.
//! 5. Otherwise the key's visible entries go to a [`ColumnMerge`], newest first, until the row is settled: then it is
//!    packed, or its parts are lent.
//! 6. The key's other entries are passed over.
//!
//! Sources that follow each other and have no column in common are siblings, and stepped through side by side
//! ([`SiblingCursor`]).
//!
//! Backwards the key is found first, and its entries then walked forwards: a seek or two per row.
//!
//! The merged sources must hold, of some column, the complete history: those of all column groups that overlap the
//! wanted columns, or of the groups that hold any one column where no column is wanted.

use std::sync::Arc;

use mycelium_base::{Cursor, Operation, RangeDeleteSet, ReadCounters, Result, SequenceNumber, Trailer};
use mycelium_encoding::RowPart;
use mycelium_encoding::row_format::RowFormat;

use crate::bounds::Bounds;
use crate::column_merge::{ColumnMerge, MergePlan};
use crate::merging::MergingCursor;
use crate::siblings::SiblingCursor;
use crate::visible::is_visible_put;

/// Walks the rows of several column groups visible at a snapshot, within bounds; values are packed rows of the wanted
/// columns.
pub struct ColumnMergingCursor<C> {
    input: MergingCursor<SiblingCursor<C>>,
    /// By set of siblings.
    sets: Vec<SiblingSet>,
    merge: ColumnMerge,
    snapshot: SequenceNumber,
    /// With the kind of their source.
    range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
    bounds: Bounds,
    lends: bool,
    standing: Standing,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What is known of a set of siblings.
struct SiblingSet {
    /// The kind of each, as [`ColumnMerge`] counts them.
    kinds: Vec<usize>,
    /// Whether these are several, and rows can be lent in their parts.
    have_parts: bool,
    /// The kind of one that has no siblings, and whose `Put`s are lent as they lie.
    lent: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Nowhere,
    /// On a `Put` of the input.
    OnInput,
    /// On a `Put` of the input that has the wanted columns, and is lent as it lies.
    Lent,
    /// On a `Put` of the input, of which the wanted columns are in `value`.
    OnPart,
    /// On the first of several `Put`s abreast, or of one key, which are lent as the parts of the row.
    Abreast,
    /// On a row put together; the input has moved on to the next key or the end.
    PastKey,
    /// The same, but what the row is to be put together from is lent.
    LentInParts,
    /// On a row put together; the input stands anywhere.
    Elsewhere,
}

impl<C: Cursor> ColumnMergingCursor<C> {
    /// Rows of `sources` at `snapshot` with `lower <= key < upper`; beside them, the kind of each. Those of the groups
    /// of a level had better follow each other. `range_deletes` are those of all sources, each with the kind of its
    /// source.
    pub fn new(
        (sources, kinds): (Vec<C>, Vec<usize>),
        merge: ColumnMerge,
        snapshot: SequenceNumber,
        mut range_deletes: Vec<(Arc<RangeDeleteSet>, usize)>,
        lower: Option<Vec<u8>>,
        upper: Option<Vec<u8>>,
    ) -> Self {
        range_deletes.retain(|(set, _)| !set.is_empty());
        let (cursors, sets) = siblings(sources, kinds, merge.plan());
        Self {
            input: MergingCursor::new(cursors),
            sets,
            merge,
            snapshot,
            range_deletes,
            bounds: Bounds::new(lower, upper),
            lends: false,
            standing: Standing::Nowhere,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The same, which forwards hands out rows as they lie: those that lie whole in one entry
    /// ([`ColumnMergingCursor::lent`]), and others in [parts](Self::parts).
    #[must_use]
    pub fn lending(self) -> Self {
        Self { lends: true, ..self }
    }

    /// The format of the row's value where it is lent: it has the wanted columns, and may have others. `None` where it
    /// is packed, of the wanted columns alone.
    #[inline]
    pub fn lent(&self) -> Option<&RowFormat> {
        match self.standing {
            Standing::Lent => self.merge.plan().stored_rows(self.kind()),
            _ => None,
        }
    }

    /// What the row is to be put together from, newest first, where that is lent: then it has no
    /// [value](Self::value).
    #[inline]
    pub fn parts(&self) -> Option<impl Iterator<Item = RowPart<'_>>> {
        let merged = (self.standing == Standing::LentInParts).then(|| self.merge.parts());
        let abreast = (self.standing == Standing::Abreast).then(|| self.parts_abreast());
        (merged.is_some() || abreast.is_some())
            .then(|| abreast.into_iter().flatten().chain(merged.into_iter().flatten()))
    }

    /// Of [`Standing::Abreast`].
    #[inline]
    fn parts_abreast(&self) -> impl Iterator<Item = RowPart<'_>> {
        let sources = self.input.current().map_or(&[][..], SiblingCursor::sources);
        let kinds = &self.sets[self.input.source()].kinds;
        sources.iter().zip(kinds).filter_map(|(source, &kind)| {
            let (rows, columns) = self.merge.plan().stored_part(kind)?;
            Some(RowPart { rows, columns, value: source.value() })
        })
    }

    /// The kind of the source of the input's entry.
    #[inline]
    fn kind(&self) -> usize {
        let sibling = self.input.current().map_or(0, SiblingCursor::source);
        self.sets[self.input.source()].kinds[sibling]
    }

    /// Whether the cursor stands on a row.
    #[inline]
    pub fn valid(&self) -> bool {
        self.standing != Standing::Nowhere
    }

    /// The row's key; the cursor must be valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.is_on_input() { self.input.key() } else { &self.key }
    }

    /// Whether the input stands on an entry of the row.
    #[inline]
    fn is_on_input(&self) -> bool {
        matches!(self.standing, Standing::OnInput | Standing::Lent | Standing::OnPart | Standing::Abreast)
    }

    /// The row's wanted columns, packed unless they are [`lent`](Self::lent); the cursor must be valid. Says nothing if
    /// no column is wanted of a table that has some.
    #[inline]
    pub fn value(&self) -> &[u8] {
        debug_assert!(!matches!(self.standing, Standing::LentInParts | Standing::Abreast), "its parts are lent");
        match self.standing {
            Standing::OnInput | Standing::Lent => self.input.value(),
            _ => &self.value,
        }
    }

    /// What the sources read and skipped.
    pub fn add_counters(&self, counters: &mut ReadCounters) {
        self.input.add_counters(counters);
    }

    /// To the first row.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek_to_first(&mut self.input)?;
        self.settle_forward()
    }

    /// To the first row at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek(&mut self.input, key)?;
        self.settle_forward()
    }

    /// To the last row.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek_to_last(&mut self.input)?;
        self.settle_backward()
    }

    /// To the last row at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.standing = Standing::Nowhere;
        self.bounds.seek_for_prev(&mut self.input, key)?;
        self.settle_backward()
    }

    /// To the next row; must be valid.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "rows are lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.standing, Standing::Nowhere) {
            Standing::OnInput | Standing::Lent | Standing::OnPart => self.pass_key()?,
            Standing::Abreast => {
                if let Some(set) = self.input.current_mut() {
                    set.pass_all_but_last();
                }
                self.pass_key()?;
            }
            Standing::PastKey | Standing::LentInParts | Standing::Nowhere => {}
            Standing::Elsewhere => {
                self.input.seek(&self.key, Trailer::OLDEST)?;
                while self.input.valid() && self.input.key() == self.key {
                    self.input.next()?;
                }
            }
        }
        self.settle_forward()
    }

    /// Shows `visit` the current row and those behind it, each as its key, its value, and the format of this, for as
    /// long as they are [lent](Self::lent) by runs without siblings; to the end, or until `visit` says `false`, and the
    /// cursor stays on that row. `false` if the current row is none of these. The same as to do so step by step, but
    /// the inputs find out at once for many rows what they find out at each step ([`Cursor::visit`]).
    pub fn visit_lent(&mut self, mut visit: impl FnMut(&[u8], &[u8], &RowFormat) -> bool) -> Result<bool> {
        if self.standing != Standing::Lent || self.sets[self.input.source()].lent.is_none() {
            return Ok(false);
        }
        self.standing = Standing::Nowhere;
        let (plan, sets, snapshot, bounds) = (self.merge.plan(), &self.sets, self.snapshot, &self.bounds);
        let lent_by = |set: usize| sets[set].lent.and_then(|kind| plan.stored_rows(kind));
        let (mut is_first, mut stays) = (true, false);
        self.input.visit_with_sources(|set, entry, same_key| {
            if same_key && !is_first {
                return true;
            }
            let is_row = is_first || (is_visible_put(entry, snapshot) && !bounds.end_before(entry.key));
            is_first = false;
            let Some(rows) = lent_by(set).filter(|_| is_row) else { return false };
            stays = !visit(entry.key, entry.value, rows);
            !stays
        })?;
        if stays {
            self.standing = Standing::Lent;
        } else {
            self.settle_forward()?;
        }
        Ok(true)
    }

    /// To the previous row; must be valid.
    pub fn prev(&mut self) -> Result<()> {
        if self.is_on_input() {
            self.key.clear();
            self.key.extend_from_slice(self.input.key());
        }
        self.standing = Standing::Nowhere;
        self.input.seek_before(&self.key, Trailer::NEWEST)?;
        self.settle_backward()
    }

    /// Tells the merge of the range deletes at the snapshot that cover the input's key.
    #[inline]
    fn cover(&mut self) {
        for (set, kind) in &self.range_deletes {
            if let Some(sequence) = set.covering(self.input.key(), self.snapshot) {
                self.merge.cover(*kind, sequence);
            }
        }
    }

    /// Passes over the rest of the input's current key.
    #[inline]
    fn pass_key(&mut self) -> Result<()> {
        loop {
            self.input.next()?;
            if !self.input.valid() || !self.input.same_key_as_previous() {
                return Ok(());
            }
        }
    }

    /// The input stands on the first entry of a key (or the end): goes to the first row from there.
    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        while self.input.valid() {
            if self.bounds.end_before(self.input.key()) {
                return Ok(());
            }
            let trailer = self.input.trailer();
            if trailer.sequence() > self.snapshot {
                self.input.next()?;
                continue;
            }
            if self.range_deletes.is_empty() && trailer.operation() == Operation::Put && self.stand_on_put()? {
                return Ok(());
            }
            let lends = self.lends;
            if self.build(lends)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The input stands on the newest visible entry of a key, a `Put` that no range delete covers: whether it alone is
    /// the row.
    #[inline]
    fn stand_on_put(&mut self) -> Result<bool> {
        let kind = self.kind();
        if self.merge.plan().is_exact(kind) {
            self.standing = Standing::OnInput;
        } else if self.lends && self.merge.plan().stored_rows(kind).is_some() {
            self.standing = Standing::Lent;
        } else if self.merge.plan().has_all(kind) {
            self.value.clear();
            self.merge.read_whole(kind, self.input.value(), &mut self.value)?;
            self.standing = Standing::OnPart;
        } else if self.lends && self.sets[self.input.source()].have_parts && self.is_abreast() {
            self.standing = Standing::Abreast;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether the input stands on the first of entries abreast; or on the first of visible `Put`s of one key in all
    /// groups, where no other source has an entry of it that might come between them.
    #[inline]
    fn is_abreast(&self) -> bool {
        let Some(set) = self.input.current() else { return false };
        let are_rows = |sources: &[C]| sources.iter().all(|source| is_visible_put(&source.entry(), self.snapshot));
        set.abreast().is_some() || (!self.input.equals_runner_up() && set.on_one_key().is_some_and(are_rows))
    }

    /// The input stands on an entry of a key none of whose visible entries were passed: puts the row together, or lends
    /// its parts if it may, and leaves the input on the next key.
    fn build(&mut self, lends: bool) -> Result<bool> {
        self.key.clear();
        self.key.extend_from_slice(self.input.key());
        self.value.clear();
        let lends = lends && self.merge.reset_for_parts();
        if !lends {
            self.merge.reset();
        }
        self.cover();
        loop {
            let trailer = self.input.trailer();
            if trailer.sequence() <= self.snapshot {
                let kind = self.kind();
                // Sources break one by one: the row is settled when nothing is missing any more.
                if self.merge.visit(kind, trailer, self.input.value())?.is_break() && self.merge.is_settled() {
                    self.pass_key()?;
                    break;
                }
            }
            self.input.next()?;
            if !self.input.valid() || !self.input.same_key_as_previous() {
                break;
            }
        }
        let has_row = if lends { self.merge.has_row()? } else { self.merge.finish(&mut self.value)? };
        if has_row {
            self.standing = if lends { Standing::LentInParts } else { Standing::PastKey };
        }
        Ok(has_row)
    }

    /// The input stands on the oldest entry of a key (or before the start): goes to the last row from there backwards.
    fn settle_backward(&mut self) -> Result<()> {
        while self.input.valid() {
            if self.bounds.begin_after(self.input.key()) {
                return Ok(());
            }
            let key = self.input.key().to_vec();
            self.input.seek(&key, Trailer::NEWEST)?;
            if self.build(false)? {
                self.standing = Standing::Elsewhere;
                return Ok(());
            }
            self.input.seek_before(&key, Trailer::NEWEST)?;
        }
        Ok(())
    }
}

/// Of sources and their kinds the sets of siblings: those that follow each other, and have no column in common.
fn siblings<C: Cursor>(
    sources: Vec<C>,
    kinds: Vec<usize>,
    plan: &MergePlan,
) -> (Vec<SiblingCursor<C>>, Vec<SiblingSet>) {
    let mut sets: Vec<(Vec<C>, Vec<usize>)> = Vec::new();
    for (source, kind) in sources.into_iter().zip(kinds) {
        match sets.last_mut() {
            Some((set, of_set)) if of_set.iter().all(|&other| plan.are_apart(other, kind)) => {
                set.push(source);
                of_set.push(kind);
            }
            _ => sets.push((vec![source], vec![kind])),
        }
    }
    let known = |(sources, kinds): (Vec<C>, Vec<usize>)| {
        let have_parts = kinds.len() > 1 && plan.have_parts(&kinds);
        let is_lent = |kind: &usize| !plan.is_exact(*kind) && plan.stored_rows(*kind).is_some();
        let lent = kinds.first().copied().filter(|kind| kinds.len() == 1 && is_lent(kind));
        (SiblingCursor::new(sources), SiblingSet { kinds, have_parts, lent })
    };
    sets.into_iter().map(known).unzip()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mycelium_base::{ColumnSet, RangeDelete, compare_entries};
    use mycelium_encoding::row_format::{Covers, RowScratch};
    use mycelium_encoding::{ColumnState, Datum, DatumRef, FragmentFormat, PackedLayout, Schema};

    use super::*;
    use crate::testing::{Entry, VecCursor, seeds};
    use rand::Rng;
    use rand::rngs::SmallRng;

    /// The keys, and of each the value of column 2 and whether it was lent, whole or in parts.
    fn read(rows: &mut ColumnMergingCursor<VecCursor>, wanted: &FragmentFormat) -> Vec<(Vec<u8>, Datum, bool)> {
        let (mut scratch, mut found, column) = (RowScratch::default(), Vec::new(), ColumnSet::from_iter([2]));
        rows.seek_to_first().unwrap();
        while rows.valid() {
            let lent = rows.lent().is_some() || rows.parts().is_some();
            let in_parts = rows.parts().map(|parts| parts.map(|part| (part.rows, part.value)).collect());
            let parts = in_parts.unwrap_or_else(|| vec![(rows.lent().unwrap_or_else(|| wanted.rows()), rows.value())]);
            let value = parts.into_iter().find_map(|(format, value)| {
                match format.read(value, Some(&column), &mut scratch).unwrap().get(2).unwrap() {
                    ColumnState::Value(value) => Some(value.to_datum()),
                    _ => None,
                }
            });
            found.push((rows.key().to_vec(), value.unwrap(), lent));
            rows.next().unwrap();
        }
        found
    }

    /// Of whole rows in JSON and of a column group rows are lent, whole or in parts, and read the same.
    #[test]
    fn lent_rows_say_what_packed_ones_do() {
        let schema = Schema::parse("id int64 not null, a int32, b int32, c int32, primary key (id)").unwrap();
        let json = RowFormat::json(Arc::new(schema));
        let whole = FragmentFormat::new(ColumnSet::from_iter([1, 2, 3]), &json);
        let packed =
            |columns: &[usize]| FragmentFormat::packed(json.schema().clone(), columns.iter().copied().collect());
        let (wanted, formats) = (packed(&[2]), [whole, packed(&[1, 2])]);
        let fragment = |format: &FragmentFormat, b: i32| {
            let (mut out, row) =
                (Vec::new(), [DatumRef::Int64(1), DatumRef::Int32(1), DatumRef::Int32(b), DatumRef::Null]);
            format.packed_layout().unwrap().encode_row(&row, &mut out).unwrap();
            out
        };
        let (mut scratch, mut row, mut patch) = (RowScratch::default(), Vec::new(), Vec::new());
        let none = ColumnSet::new();
        json.store(br#"{"a": 1, "b": 20, "c": 3}"#, Covers::Row, &none, &mut scratch, &mut row).unwrap();
        let states =
            [ColumnState::Absent, ColumnState::Absent, ColumnState::Value(DatumRef::Int32(30)), ColumnState::Absent];
        formats[1].packed_layout().unwrap().encode_patch(&states, &mut patch).unwrap();
        let entry = |key: &[u8], sequence, operation, value: &[u8]| {
            (key.to_vec(), Trailer::new(sequence, operation), value.to_vec())
        };
        let sources = [
            vec![entry(b"lent", 1, Operation::Put, &row), entry(b"patched", 1, Operation::Put, &row)],
            vec![
                entry(b"group", 2, Operation::Put, &fragment(&formats[1], 10)),
                entry(b"patched", 3, Operation::Patch, &patch),
            ],
        ];
        let plan = Arc::new(MergePlan::new(&wanted, &formats).unwrap());
        let cursor = || {
            let cursors = sources.iter().cloned().map(VecCursor::new).collect();
            ColumnMergingCursor::new((cursors, vec![0, 1]), ColumnMerge::new(plan.clone()), 9, Vec::new(), None, None)
        };
        let expected = |lends: bool| {
            let row = |key: &[u8], b, is_lent: bool| (key.to_vec(), Datum::Int32(b), is_lent && lends);
            vec![row(b"group", 10, true), row(b"lent", 20, true), row(b"patched", 30, true)]
        };
        assert_eq!(read(&mut cursor(), &wanted), expected(false));
        assert_eq!(read(&mut cursor().lending(), &wanted), expected(true));
    }

    /// What was written to a key, or from it on to that of [`Written::end`], and of columns 1 and 2 the new values: of
    /// a patch one, of a delete neither.
    #[derive(Clone)]
    struct Written {
        key: Vec<u8>,
        trailer: Trailer,
        values: [Option<i32>; 2],
    }

    impl Written {
        /// The end of a range delete.
        fn end(&self) -> Vec<u8> {
            vec![b'k', self.key[1] + 4]
        }

        fn range_delete(&self) -> Option<RangeDelete> {
            let is_one = self.trailer.operation() == Operation::RangeDelete;
            is_one.then(|| RangeDelete { start: self.key.clone(), end: self.end(), sequence: self.trailer.sequence() })
        }
    }

    /// So many writes to few keys, with range deletes or without.
    fn random_writes(rng: &mut SmallRng, count: u64) -> Vec<Written> {
        let deletes_ranges = rng.random_bool(0.3);
        let write = |sequence| {
            let key = vec![b'k', rng.random_range(0..12)];
            let (operation, value) = (rng.random_range(0..12), |column: i32| Some(sequence as i32 * 10 + column));
            let (operation, values) = match operation {
                3 if deletes_ranges => (Operation::RangeDelete, [None, None]),
                0 => (Operation::Delete, [None, None]),
                1 => (Operation::Patch, [value(1), None]),
                2 => (Operation::Patch, [None, value(2)]),
                _ => (Operation::Put, [value(1), value(2)]),
            };
            Written { key, trailer: Trailer::new(sequence, operation), values }
        };
        (1..=count).map(write).collect()
    }

    /// The rows that a snapshot sees, by definition.
    fn rows_of(writes: &[Written], snapshot: u64) -> BTreeMap<Vec<u8>, [Option<i32>; 2]> {
        let mut rows = BTreeMap::new();
        for write in writes.iter().filter(|write| write.trailer.sequence() <= snapshot) {
            let Written { key, trailer, values } = write;
            match trailer.operation() {
                Operation::Put => drop(rows.insert(key.clone(), *values)),
                Operation::Delete => drop(rows.remove(key)),
                Operation::RangeDelete => rows.retain(|other, _| !(key..&write.end()).contains(&other)),
                _ => {
                    if let Some(row) = rows.get_mut(key) {
                        let [a, b] = *row;
                        *row = [values[0].or(a), values[1].or(b)];
                    }
                }
            }
        }
        rows
    }

    /// Writes of which those up to a sequence number became the oldest data of a group: rows without numbers.
    fn settled(writes: &[Written], upto: u64) -> Vec<Written> {
        let row = |(key, values)| Written { key, trailer: Trailer::new(0, Operation::Put), values };
        let newer = writes.iter().filter(|write| write.trailer.sequence() > upto).cloned();
        rows_of(writes, upto).into_iter().map(row).chain(newer).collect()
    }

    /// The entries that a source of the columns of `format` has of some writes.
    fn entries_of(writes: &[Written], format: &FragmentFormat) -> VecCursor {
        let mut entries: Vec<Entry> = Vec::new();
        for Written { key, trailer, values } in writes.iter().filter(|write| write.range_delete().is_none()) {
            let state = |column: usize| match values[column - 1].filter(|_| format.columns().contains(column)) {
                Some(value) => ColumnState::Value(DatumRef::Int32(value)),
                None => ColumnState::Absent,
            };
            let mut value = Vec::new();
            if trailer.operation() != Operation::Delete {
                let states = [ColumnState::Absent, state(1), state(2)];
                if states.iter().all(|state| *state == ColumnState::Absent) {
                    continue;
                }
                format.packed_layout().unwrap().encode_patch(&states, &mut value).unwrap();
            }
            entries.push((key.clone(), *trailer, value));
        }
        entries.sort_by(|a, b| compare_entries(&a.0, a.1, &b.0, b.1));
        VecCursor::new(entries)
    }

    /// Old writes in two sibling groups, each settled up to some write, of one the newer ones a place further up, and
    /// what is newer still in whole rows: rows are those of the definition, however they are handed out.
    #[test]
    fn rows_of_siblings_are_what_was_written() {
        let schema = Arc::new(Schema::parse("id int64 not null, a int32, b int32, primary key (id)").unwrap());
        let packed =
            |columns: &[usize]| FragmentFormat::packed(schema.clone(), columns.iter().copied().collect::<ColumnSet>());
        let formats = [packed(&[1, 2]), packed(&[1]), packed(&[2])];
        let plan = Arc::new(MergePlan::new(&formats[0], &formats).unwrap());
        let (mut abreast, mut on_one_key) = (0, 0);
        for (seed, mut rng) in seeds("rows of siblings", 700) {
            let writes = random_writes(&mut rng, 40);
            let (old, new) = writes.split_at(rng.random_range(0..=writes.len()));
            let snapshot = rng.random_range(1..=45);
            let expected = rows_of(&writes, snapshot);
            let most = snapshot.min(old.len() as u64);
            let mut settle = || if rng.random_bool(0.5) { 0 } else { rng.random_range(0..=most) };
            let histories = [new.to_vec(), settled(old, settle()), settled(old, settle())];
            let newest_behind = rng.random_range(0..=histories[2].len());
            let (behind, ahead) = histories[2].split_at(newest_behind);
            let deletes = |kind: usize| {
                let of_kind = &histories[kind];
                let deletes: Vec<_> = of_kind.iter().filter_map(Written::range_delete).collect();
                (Arc::new(RangeDeleteSet::new(&deletes)), kind)
            };
            for lends in [false, true] {
                let sources = [(&histories[0][..], 0), (ahead, 2), (behind, 2), (&histories[1], 1)];
                let (sources, kinds) =
                    sources.map(|(of, kind)| (entries_of(of, &formats[kind]), kind)).into_iter().unzip();
                let merge = ColumnMerge::new(plan.clone());
                let deletes = (0..3).map(deletes).collect();
                let rows = ColumnMergingCursor::new((sources, kinds), merge, snapshot, deletes, None, None);
                let mut rows = if lends { rows.lending() } else { rows };
                let mut found = BTreeMap::new();
                rows.seek_to_first().unwrap();
                while rows.valid() {
                    let is_abreast = rows.input.current().is_some_and(|set| set.abreast().is_some());
                    abreast += usize::from(rows.standing == Standing::Abreast && is_abreast);
                    on_one_key += usize::from(rows.standing == Standing::Abreast && !is_abreast);
                    let whole =
                        |rows: &ColumnMergingCursor<VecCursor>| vec![(plan.layout().clone(), rows.value().to_vec())];
                    let parts =
                        rows.parts().map(|parts| parts.map(|part| (part.rows.layout().clone(), part.value.to_vec())));
                    let parts: Vec<_> = parts.map_or_else(|| whole(&rows), Iterator::collect);
                    let column = |column: usize| {
                        parts.iter().find_map(|(layout, value)| match layout.row(value).unwrap().get(column) {
                            Ok(ColumnState::Value(DatumRef::Int32(value))) => Some(value),
                            _ => None,
                        })
                    };
                    found.insert(rows.key().to_vec(), [column(1), column(2)]);
                    rows.next().unwrap();
                }
                assert_eq!(found, expected, "seed {seed}");
            }
        }
        assert!(abreast > 500, "only {abreast} rows stood abreast");
        assert!(on_one_key > 100, "only {on_one_key} rows stood on one key");
    }

    /// Writes to several runs of whole rows of which one column is wanted, each lent as it lies: rows that are shown
    /// many at a time, and what lies between them one by one, are those of the definition.
    #[test]
    fn rows_shown_many_at_a_time_are_what_was_written() {
        let schema = Arc::new(Schema::parse("id int64 not null, a int32, b int32, primary key (id)").unwrap());
        let packed =
            |columns: &[usize]| FragmentFormat::packed(schema.clone(), columns.iter().copied().collect::<ColumnSet>());
        let (wanted, formats) = (packed(&[2]), [packed(&[1, 2])]);
        let plan = Arc::new(MergePlan::new(&wanted, &formats).unwrap());
        let b_of = |layout: &PackedLayout, value: &[u8]| match layout.row(value).unwrap().get(2) {
            Ok(ColumnState::Value(DatumRef::Int32(b))) => b,
            other => panic!("{other:?}"),
        };
        let mut shown = 0;
        for (seed, mut rng) in seeds("rows shown", 300) {
            let writes = random_writes(&mut rng, 40);
            let snapshot = rng.random_range(1..=45);
            let upper = rng.random_bool(0.3).then(|| vec![b'k', rng.random_range(0..12)]);
            let mut expected = rows_of(&writes, snapshot);
            expected.retain(|key, _| upper.as_ref().is_none_or(|upper| key < upper));
            let deletes: Vec<_> = writes.iter().filter_map(Written::range_delete).collect();
            let deletes = vec![(Arc::new(RangeDeleteSet::new(&deletes)), 0)];
            let runs = rng.random_range(1..4);
            let sources: Vec<_> = writes.chunks(40 / runs + 1).map(|run| entries_of(run, &formats[0])).collect();
            let (kinds, merge) = (vec![0; sources.len()], ColumnMerge::new(plan.clone()));
            let mut rows =
                ColumnMergingCursor::new((sources, kinds), merge, snapshot, deletes, None, upper.clone()).lending();
            let mut found = Vec::new();
            rows.seek_to_first().unwrap();
            while rows.valid() {
                let (most, before) = (rng.random_range(1..6), found.len());
                let is_shown = rows.visit_lent(|key, value, format| {
                    let goes_on = found.len() - before < most;
                    if goes_on {
                        found.push((key.to_vec(), b_of(format.layout(), value)));
                    }
                    goes_on
                });
                shown += found.len() - before;
                if is_shown.unwrap() {
                    continue;
                }
                assert_eq!(found.len(), before, "seed {seed}");
                let parts = rows.parts().map(|parts| parts.map(|part| b_of(part.rows.layout(), part.value)).next());
                let b = parts.flatten().unwrap_or_else(|| {
                    let layout = rows.lent().map_or(plan.layout(), RowFormat::layout);
                    b_of(layout, rows.value())
                });
                found.push((rows.key().to_vec(), b));
                rows.next().unwrap();
            }
            let expected: Vec<_> = expected.into_iter().map(|(key, [_, b])| (key, b.unwrap())).collect();
            assert_eq!(found, expected, "seed {seed}");
        }
        assert!(shown > 500, "only {shown} rows were shown many at a time");
    }
}
