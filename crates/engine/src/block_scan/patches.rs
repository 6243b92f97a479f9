//! Patches that are written over the cells of a stretch.
//!
//! Patches with the same head, as those of one statement have, change the same columns and have the values at the same places. So
//! that is found out for the first of them, and of the others no more is read than the head and these values.

use std::ops::Range;

use mycelium_base::Result;
use mycelium_encoding::PackedLayout;

use super::layer::Target;

/// A value of a patch, and the cell that it goes to: the row counted from the first of the stretch.
pub(super) struct Overwrite {
    pub(super) target: usize,
    pub(super) offset: usize,
    pub(super) value: u128,
}

/// What patches of one kind of source that begin with `head` change in the batch.
#[derive(Default)]
pub(super) struct PatchShape {
    kind: usize,
    /// Empty if it is not known.
    head: Vec<u8>,
    /// Its first eight bytes, little-endian.
    short_head: u64,
    /// The bytes that such a patch has at least.
    len: usize,
    /// Places in the projection, and where the patch has the values.
    values: Vec<(usize, Range<usize>)>,
    /// Whether a filter tests one of its columns.
    pub(super) is_tested: bool,
}

impl PatchShape {
    /// Forgets it.
    pub(super) fn clear(&mut self) {
        self.head.clear();
    }

    /// Whether it is that of this patch.
    #[inline]
    pub(super) fn is_of(&self, kind: usize, patch: &[u8]) -> bool {
        !self.head.is_empty() && self.kind == kind && patch.len() >= self.len && self.is_head_of(patch)
    }

    /// Heads are short: most are compared as one integer.
    #[inline]
    fn is_head_of(&self, patch: &[u8]) -> bool {
        match (patch.first_chunk::<8>(), self.head.len()) {
            (Some(&patch), len @ 1..=8) => (u64::from_le_bytes(patch) ^ self.short_head) << (64 - 8 * len) == 0,
            _ => patch.starts_with(&self.head),
        }
    }

    /// Makes it that of this patch. `false` if the patch has something else than a value for one of the targets, or if the cells of
    /// one cannot be overwritten; the shape is then unknown.
    pub(super) fn learn(
        &mut self,
        (kind, patch): (usize, &[u8]),
        layout: &PackedLayout,
        targets: &[Target],
        is_tested: impl Fn(usize) -> bool,
        can_overwrite: impl Fn(&Target) -> bool,
    ) -> Result<bool> {
        self.clear();
        self.values.clear();
        (self.kind, self.is_tested) = (kind, false);
        let row = layout.row(patch)?;
        for column in row.columns() {
            self.is_tested |= is_tested(column);
            let Some(target) = targets.iter().find(|target| target.column == column) else { continue };
            let Some(place) = row.slot(column)?.filter(|_| can_overwrite(target)) else { return Ok(false) };
            self.values.push((target.target, place));
        }
        self.len = self.values.iter().map(|(_, place)| place.end).max().unwrap_or(0);
        self.head.extend_from_slice(row.head());
        self.short_head = self.head.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Ok(true)
    }

    /// Appends what such a patch changes in a row of the stretch.
    #[inline]
    pub(super) fn note(&self, patch: &[u8], offset: usize, overwrites: &mut Vec<Overwrite>) {
        for (target, place) in &self.values {
            let value = little_endian(&patch[place.clone()]);
            overwrites.push(Overwrite { target: *target, offset, value });
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
