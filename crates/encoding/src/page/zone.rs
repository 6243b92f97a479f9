//! Zones: what the values of a page lie between.

use std::cmp::Ordering;

use super::ordinal::compare;
use crate::{Datum, DatumRef};

/// Bytes of a text that a zone keeps: longer ones are cut, the smallest to what is before it, the largest to what is
/// after it, which takes more where it begins with as many that are the greatest there are.
const MAX_TEXT: usize = 64;

/// Widens bounds, the smallest and the largest of some values, by those of others; `None` is of no values. A value is
/// copied only where it becomes a bound.
pub fn join_bounds(bounds: &mut Option<(Datum, Datum)>, others: Option<(DatumRef<'_>, DatumRef<'_>)>) {
    let Some((other_least, other_greatest)) = others else { return };
    let Some((least, greatest)) = bounds else {
        *bounds = Some((other_least.to_datum(), other_greatest.to_datum()));
        return;
    };
    let is_before = |a: DatumRef<'_>, b: DatumRef<'_>| compare(a, b) == Some(Ordering::Less);
    if is_before(other_least, least.borrowed()) {
        *least = other_least.to_datum();
    }
    if is_before(greatest.borrowed(), other_greatest) {
        *greatest = other_greatest.to_datum();
    }
}

/// The smallest and the largest value of a page, how many are null, and how many say nothing.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Zone {
    bounds: Option<(Datum, Datum)>,
    null_count: u32,
    absent_count: u32,
}

impl Zone {
    /// The zone of values between these two, so many nulls, and so many absent cells.
    pub(crate) fn new(bounds: Option<(DatumRef<'_>, DatumRef<'_>)>, null_count: u32, absent_count: u32) -> Self {
        let bounds = bounds.map(|(least, greatest)| (cut_down(least), cut_up(greatest)));
        Self { bounds, null_count, absent_count }
    }

    /// The zone of the values of both.
    pub fn join(&mut self, other: &Self) {
        self.null_count = self.null_count.saturating_add(other.null_count);
        self.absent_count = self.absent_count.saturating_add(other.absent_count);
        let others = other.bounds.as_ref().map(|(least, greatest)| (least.borrowed(), greatest.borrowed()));
        join_bounds(&mut self.bounds, others);
    }

    /// No value is smaller; `None` if there is no value.
    pub fn least(&self) -> Option<&Datum> {
        self.bounds.as_ref().map(|(least, _)| least)
    }

    /// No value is larger.
    pub fn greatest(&self) -> Option<&Datum> {
        self.bounds.as_ref().map(|(_, greatest)| greatest)
    }

    /// Nulls.
    pub fn null_count(&self) -> u32 {
        self.null_count
    }

    /// Cells of entries that say nothing of the column.
    pub fn absent_count(&self) -> u32 {
        self.absent_count
    }

    /// Whether a value lies in the zone.
    pub fn contains(&self, value: DatumRef<'_>) -> bool {
        self.bounds.as_ref().is_some_and(|(least, greatest)| {
            compare(least.borrowed(), value).is_some_and(Ordering::is_le)
                && compare(value, greatest.borrowed()).is_some_and(Ordering::is_le)
        })
    }
}

/// A value that is not after it.
fn cut_down(value: DatumRef<'_>) -> Datum {
    match value {
        DatumRef::Utf8(text) if text.len() > MAX_TEXT => Datum::Utf8(text[..text.floor_char_boundary(MAX_TEXT)].into()),
        DatumRef::Binary(bytes) if bytes.len() > MAX_TEXT => Datum::Binary(bytes[..MAX_TEXT].into()),
        value => value.to_datum(),
    }
}

/// A value that is not before it: a cut text with its last character raised that can be. Where none of what is kept
/// can, it is cut behind the first that can; the whole text where that has none.
fn cut_up(value: DatumRef<'_>) -> Datum {
    match value {
        DatumRef::Utf8(text) if text.len() > MAX_TEXT => {
            let (head, rest) = text.split_at(text.floor_char_boundary(MAX_TEXT));
            let raised = |(at, last): (usize, char)| Some((at, after(last)?));
            let of_rest = || rest.char_indices().find_map(raised).map(|(at, next)| (head.len() + at, next));
            match head.char_indices().rev().find_map(raised).or_else(of_rest) {
                Some((at, next)) => {
                    let mut cut = text[..at].to_owned();
                    cut.push(next);
                    Datum::Utf8(cut)
                }
                None => value.to_datum(),
            }
        }
        DatumRef::Binary(bytes) if bytes.len() > MAX_TEXT => {
            let can_be_raised = |byte: &u8| *byte < u8::MAX;
            let of_head = bytes[..MAX_TEXT].iter().rposition(can_be_raised);
            match of_head.or_else(|| bytes.iter().position(can_be_raised)) {
                Some(last) => {
                    let mut cut = bytes[..=last].to_vec();
                    cut[last] += 1;
                    Datum::Binary(cut)
                }
                None => value.to_datum(),
            }
        }
        value => value.to_datum(),
    }
}

/// The next character, if there is one.
fn after(character: char) -> Option<char> {
    // Past the surrogates, which are no characters.
    (u32::from(character) + 1..=u32::from(char::MAX)).take(2049).find_map(char::from_u32)
}
