//! Zones: what the values of a page lie between.

use std::cmp::Ordering;

use super::ordinal::compare;
use crate::{Datum, DatumRef};

/// Bytes of a text that a zone keeps: longer ones are cut, the smallest to what is before it, the largest to what is after it.
const MAX_TEXT: usize = 64;

/// The smallest and the largest value of a page, and how many are null.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Zone {
    bounds: Option<(Datum, Datum)>,
    null_count: u32,
}

impl Zone {
    /// The zone of values between these two, and so many nulls.
    pub(crate) fn new(bounds: Option<(DatumRef<'_>, DatumRef<'_>)>, null_count: u32) -> Self {
        let bounds = bounds.and_then(|(least, greatest)| Some((cut_down(least), cut_up(greatest)?)));
        Self { bounds, null_count }
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

/// A value that is not before it: a cut text with its last character raised; the whole text where that has no end.
fn cut_up(value: DatumRef<'_>) -> Option<Datum> {
    Some(match value {
        DatumRef::Utf8(text) if text.len() > MAX_TEXT => {
            let head = &text[..text.floor_char_boundary(MAX_TEXT)];
            let mut raised = None;
            for (at, last) in head.char_indices().rev() {
                // Past the surrogates, which are no characters.
                let next = (u32::from(last) + 1..=u32::from(char::MAX)).take(2049).find_map(char::from_u32);
                if let Some(next) = next {
                    let mut text = head[..at].to_owned();
                    text.push(next);
                    raised = Some(text);
                    break;
                }
            }
            Datum::Utf8(raised.unwrap_or_else(|| text.to_owned()))
        }
        DatumRef::Binary(bytes) if bytes.len() > MAX_TEXT => {
            let head = &bytes[..MAX_TEXT];
            Datum::Binary(match head.iter().rposition(|&byte| byte < u8::MAX) {
                Some(last) => {
                    let mut raised = head[..=last].to_vec();
                    raised[last] += 1;
                    raised
                }
                None => bytes.to_vec(),
            })
        }
        value => value.to_datum(),
    })
}
