//! Patches that are written over the cells of a stretch.
//!
//! Patches with the same head, as those of one statement have, change the same columns and have the values at the same
//! places. So that is found out for the first of them, and of the others no more is read than the head and these
//! values. So it is for whole rows, which are like patches of all columns.

use std::ops::Range;

use mycelium_base::Result;
use mycelium_encoding::PackedLayout;
use mycelium_encoding::page::{ColumnTest, PageTest, Test};

use super::layer::Target;

/// A value of a patch, and the cell that it goes to: the row counted from the first of the stretch.
pub(super) struct Overwrite {
    pub(super) target: u32,
    pub(super) offset: u32,
    pub(super) value: u128,
}

/// Shapes that are remembered, which are those of the few statements that write at a time.
const MOST_SHAPES: usize = 4;

/// The shapes that the patches of stretches have.
#[derive(Default)]
pub(super) struct PatchShapes {
    /// Whether all cells of the stretch were values: in any other such one the same can be overwritten.
    are_of_values: bool,
    /// Whether that was found out for the stretch.
    are_of_stretch: bool,
    /// The known ones first.
    shapes: Vec<PatchShape>,
    known: usize,
    /// The one that was found last.
    last: usize,
    /// How many there have been.
    learned: u64,
    /// Whether they are of all wanted columns, projected or not.
    are_of_delta: bool,
}

impl PatchShapes {
    /// Those of changes to all wanted columns, whether a batch has them or not.
    pub(super) fn of_delta() -> Self {
        Self { are_of_delta: true, ..Self::default() }
    }

    /// Whether they are such.
    pub(super) fn are_of_delta(&self) -> bool {
        self.are_of_delta
    }

    /// Has them checked before they are used again.
    pub(super) fn begin_stretch(&mut self) {
        self.are_of_stretch = false;
    }

    /// Whether they hold for the stretch.
    #[inline]
    pub(super) fn are_of_stretch(&self) -> bool {
        self.are_of_stretch
    }

    /// Keeps them for a stretch, if it has nothing but values, as those before; else forgets them.
    pub(super) fn keep_for(&mut self, has_only_values: bool) {
        if !(has_only_values && self.are_of_values) {
            self.known = 0;
        }
        self.are_of_values = has_only_values;
        self.are_of_stretch = true;
    }

    /// The place of that of a patch, if it is known.
    #[inline]
    pub(super) fn find(&mut self, kind: usize, patch: &[u8]) -> Option<usize> {
        let known = &self.shapes[..self.known];
        if known.get(self.last).is_some_and(|shape| shape.is_of(kind, patch)) {
            return Some(self.last);
        }
        self.last = known.iter().position(|shape| shape.is_of(kind, patch))?;
        Some(self.last)
    }

    /// The one that was found last, if it holds for the stretch and all that such patches do is to change cells.
    pub(super) fn last_plain(&self) -> Option<&PatchShape> {
        let shape = self.shapes[..self.known].get(self.last).filter(|_| self.are_of_stretch)?;
        (shape.is_notable() && !shape.is_tested()).then_some(shape)
    }

    /// The one at a place.
    #[inline]
    pub(super) fn get(&self, place: usize) -> &PatchShape {
        &self.shapes[place]
    }

    /// Learns that of a patch, see [`PatchShape::learn`], which replaces another where there are too many; its place.
    pub(super) fn learn(&mut self, learn: impl FnOnce(&mut PatchShape) -> Result<()>) -> Result<usize> {
        self.last = if self.known < MOST_SHAPES { self.known } else { self.learned as usize % MOST_SHAPES };
        if self.last == self.shapes.len() {
            self.shapes.push(PatchShape::default());
        }
        self.learned += 1;
        let shape = &mut self.shapes[self.last];
        shape.number = self.learned;
        learn(shape)?;
        self.known = self.known.max(self.last + 1);
        Ok(self.last)
    }
}

/// What patches of one kind of source that begin with `head` change in the batch.
#[derive(Default)]
pub(super) struct PatchShape {
    kind: usize,
    head: Vec<u8>,
    /// Its first eight bytes, little-endian.
    short_head: u64,
    /// The bytes that such a patch has at least.
    len: usize,
    /// Places in the projection, and where the patch has the values.
    values: Vec<(u32, Range<usize>)>,
    /// What a filter asks of its columns.
    tested: Vec<TestedColumn>,
    /// No other shape has it.
    number: u64,
    /// Whether all that such patches change can be noted.
    is_notable: bool,
}

/// A column of patches that a filter tests.
struct TestedColumn {
    column: usize,
    tests: Vec<(Test, PageTest)>,
    /// Where patches have its values, if they have values of fixed width.
    place: Option<Range<usize>>,
}

impl TestedColumn {
    /// Whether what a patch has of it passes.
    #[inline]
    fn passes(&self, layout: &PackedLayout, patch: &[u8]) -> Result<bool> {
        let Some(place) = &self.place else {
            let cell = layout.row(patch)?.get(self.column)?;
            return Ok(self.tests.iter().all(|(test, _)| test.passes(cell)));
        };
        let value = layout.slot_value(self.column, &patch[place.clone()])?;
        Ok(self.tests.iter().all(|(_, test)| test.passes_value(value)))
    }
}

impl PatchShape {
    /// Whether all that such a patch changes can be noted.
    #[inline]
    pub(super) fn is_notable(&self) -> bool {
        self.is_notable
    }

    /// Whether a filter tests one of its columns.
    #[inline]
    pub(super) fn is_tested(&self) -> bool {
        !self.tested.is_empty()
    }

    /// A number that no other shape has.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether such a patch changes a column.
    #[inline]
    pub(super) fn tests(&self, column: usize) -> bool {
        self.tested.iter().any(|tested| tested.column == column)
    }

    /// Whether what such a patch has of tested columns passes.
    #[inline]
    pub(super) fn passes(&self, layout: &PackedLayout, patch: &[u8]) -> Result<bool> {
        for tested in &self.tested {
            if !tested.passes(layout, patch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether it is that of this patch.
    #[inline]
    pub(super) fn is_of(&self, kind: usize, patch: &[u8]) -> bool {
        self.kind == kind && patch.len() >= self.len && self.is_head_of(patch)
    }

    /// Heads are short: most are compared as one integer.
    #[inline]
    fn is_head_of(&self, patch: &[u8]) -> bool {
        match (patch.first_chunk::<8>(), self.head.len()) {
            (Some(&patch), len @ 1..=8) => (u64::from_le_bytes(patch) ^ self.short_head) << (64 - 8 * len) == 0,
            _ => patch.starts_with(&self.head),
        }
    }

    /// Makes it that of this patch, which cannot be noted if it has something else than a value for one of the targets,
    /// or if the cells of one cannot be overwritten.
    pub(super) fn learn(
        &mut self,
        (kind, patch): (usize, &[u8]),
        layout: &PackedLayout,
        targets: &[Target],
        tests: &[ColumnTest],
        can_overwrite: impl Fn(&Target) -> bool,
    ) -> Result<()> {
        self.values.clear();
        self.tested.clear();
        self.is_notable = true;
        self.kind = kind;
        let row = layout.row(patch)?;
        for column in row.columns() {
            let own: Vec<_> = tests.iter().filter(|test| test.column == column).collect();
            if !own.is_empty() {
                let kind = &layout.schema().columns()[column].ty;
                let compiled = |own: &&ColumnTest| (own.test.clone(), PageTest::new(&own.test, kind, None));
                let tests = own.iter().map(compiled).collect();
                self.tested.push(TestedColumn { column, tests, place: row.slot(column)? });
            }
            // A column may be asked for more than once.
            for target in targets.iter().filter(|target| target.column == column) {
                let place = row.slot(column)?.filter(|_| can_overwrite(target));
                self.is_notable &= place.is_some();
                self.values.extend(place.map(|place| (target.target as u32, place)));
            }
        }
        let places = self.values.iter().map(|(_, place)| place);
        let places = places.chain(self.tested.iter().filter_map(|tested| tested.place.as_ref()));
        self.len = places.map(|place| place.end).max().unwrap_or(0);
        self.head.clear();
        self.head.extend_from_slice(row.head());
        self.short_head = self.head.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Ok(())
    }

    /// Appends what such a patch changes in a row of the stretch.
    #[inline]
    pub(super) fn note(&self, patch: &[u8], offset: usize, overwrites: &mut Vec<Overwrite>) {
        for (target, place) in &self.values {
            let value = little_endian(&patch[place.clone()]);
            overwrites.push(Overwrite { target: *target, offset: offset as u32, value });
        }
    }
}

/// At most sixteen bytes.
#[inline]
fn little_endian(bytes: &[u8]) -> u128 {
    match *bytes {
        [a, b, c, d] => u128::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u128::from(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => bytes.iter().rev().fold(0, |value, &byte| value << 8 | u128::from(byte)),
    }
}
