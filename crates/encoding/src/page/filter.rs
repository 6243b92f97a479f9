//! Tests of columns, and what becomes of them for the pages of one file (LSM-OPD §4.2.2).
//!
//! 1. A [`Filter`] is a conjunction of tests of single columns. [`Test::passes`] says what a test means: null passes
//!    none but [`Test::IsNull`]; floats compare by total order, as Arrow's do.
//! 2. For the pages of a file a test is compiled once ([`PageTest`]): to ranges of ordinals, of codes by a binary
//!    search in the column's dictionary, or, where texts lie as they are, to itself. Decimals have ordinals in all
//!    pages but wide ones, so that a test of them is both: ranges, whose ends may lie beyond all ordinals, and itself.
//! 3. Pages test whole vectors of rows with it; values are not decoded.

use std::cmp::Ordering;
use std::ops::Bound;

use super::Page;
use super::coding::TextCoding;
use super::dictionary::Dictionary;
use super::ordinal::{compare, ordinal};
use super::zone::Zone;
use crate::key::prefix_successor;
use crate::{ColumnState, ColumnType, Datum, DatumRef, Schema};

/// A test of one column.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// `= value`
    Equal(Datum),
    /// `<> value`
    NotEqual(Datum),
    /// Between bounds.
    Range {
        /// The lower bound.
        lower: Bound<Datum>,
        /// The upper bound.
        upper: Bound<Datum>,
    },
    /// `IN (values)`
    In(Vec<Datum>),
    /// Text or bytes that begin so: `LIKE 'prefix%'`.
    Prefix(Vec<u8>),
    /// `IS NULL`
    IsNull,
    /// `IS NOT NULL`
    IsNotNull,
}

/// A test of a column, which is given by its position in the schema.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnTest {
    /// The column.
    pub column: usize,
    /// Its test.
    pub test: Test,
}

impl ColumnTest {
    /// Whether the column is there and can have the values that it is compared with; null is one that none equals.
    /// Prefixes suit text and binary.
    pub fn suits(&self, schema: &Schema) -> bool {
        let Some(column) = schema.columns().get(self.column).filter(|column| !column.is_dropped()) else {
            return false;
        };
        let is_its = |value: &Datum| matches!(value, Datum::Null) || value.borrowed().is_of(&column.ty);
        let is_bound = |bound: &Bound<Datum>| match bound {
            Bound::Included(value) | Bound::Excluded(value) => is_its(value),
            Bound::Unbounded => true,
        };
        match &self.test {
            Test::Equal(value) | Test::NotEqual(value) => is_its(value),
            Test::Range { lower, upper } => is_bound(lower) && is_bound(upper),
            Test::In(values) => values.iter().all(is_its),
            Test::Prefix(_) => matches!(column.ty, ColumnType::Utf8 | ColumnType::Binary),
            Test::IsNull | Test::IsNotNull => true,
        }
    }
}

/// A conjunction of tests of single columns; an empty one passes all rows.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Filter {
    /// All of which a row must pass.
    pub conjuncts: Vec<ColumnTest>,
}

fn text_of(datum: DatumRef<'_>) -> Option<&[u8]> {
    match datum {
        DatumRef::Utf8(text) => Some(text.as_bytes()),
        DatumRef::Binary(bytes) => Some(bytes),
        _ => None,
    }
}

fn within(value: DatumRef<'_>, lower: &Bound<Datum>, upper: &Bound<Datum>) -> bool {
    let order = |bound: &Datum| compare(value, bound.borrowed());
    let after = match lower {
        Bound::Unbounded => true,
        Bound::Included(bound) => order(bound).is_some_and(Ordering::is_ge),
        Bound::Excluded(bound) => order(bound).is_some_and(Ordering::is_gt),
    };
    after
        && match upper {
            Bound::Unbounded => true,
            Bound::Included(bound) => order(bound).is_some_and(Ordering::is_le),
            Bound::Excluded(bound) => order(bound).is_some_and(Ordering::is_lt),
        }
}

impl Test {
    /// Whether a cell passes. An absent one passes nothing.
    pub fn passes(&self, cell: ColumnState<'_>) -> bool {
        let value = match cell {
            ColumnState::Absent => return false,
            ColumnState::Null | ColumnState::Value(DatumRef::Null) => return *self == Self::IsNull,
            ColumnState::Value(value) => value,
        };
        match self {
            Self::Equal(other) => compare(value, other.borrowed()) == Some(Ordering::Equal),
            Self::NotEqual(other) => compare(value, other.borrowed()).is_some_and(Ordering::is_ne),
            Self::Range { lower, upper } => within(value, lower, upper),
            Self::In(others) => others.iter().any(|other| compare(value, other.borrowed()) == Some(Ordering::Equal)),
            Self::Prefix(prefix) => text_of(value).is_some_and(|text| text.starts_with(prefix)),
            Self::IsNull => false,
            Self::IsNotNull => true,
        }
    }

    /// Whether some value that lies in a zone may pass.
    pub fn may_pass(&self, zone: &Zone) -> bool {
        let bounds = match (self, zone.least(), zone.greatest()) {
            (Self::IsNull, ..) => return zone.null_count() > 0,
            (_, Some(least), Some(greatest)) => (least.borrowed(), greatest.borrowed()),
            _ => return false,
        };
        self.may_pass_within(bounds)
    }

    /// Whether some value between these two may pass, both included.
    pub fn may_pass_within(&self, (least, greatest): (DatumRef<'_>, DatumRef<'_>)) -> bool {
        let contains = |value: DatumRef<'_>| {
            compare(least, value).is_some_and(Ordering::is_le) && compare(value, greatest).is_some_and(Ordering::is_le)
        };
        match self {
            Self::Equal(value) => contains(value.borrowed()),
            Self::NotEqual(value) => {
                compare(least, greatest) != Some(Ordering::Equal)
                    || compare(least, value.borrowed()).is_some_and(Ordering::is_ne)
            }
            Self::In(values) => values.iter().any(|value| contains(value.borrowed())),
            Self::Range { lower, upper } => {
                within(greatest, lower, &Bound::Unbounded) && within(least, &Bound::Unbounded, upper)
            }
            Self::Prefix(prefix) => match (text_of(least), text_of(greatest)) {
                (Some(least), Some(greatest)) => {
                    let cut = |text: &[u8]| text.len().min(prefix.len());
                    least[..cut(least)] <= prefix[..] && greatest[..cut(greatest)] >= prefix[..cut(greatest)]
                }
                _ => false,
            },
            Self::IsNull => false,
            Self::IsNotNull => true,
        }
    }
}

/// A test for the pages of one column of one file.
#[derive(Clone, PartialEq, Debug)]
pub struct PageTest(pub(crate) Compiled);

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Compiled {
    Null,
    NotNull,
    /// Ordinals or codes within one of these, both ends included, ascending and apart.
    Ranges(Ranges),
    /// Ordinals within one of these where a page has them, else tested value by value.
    Decimals(Ranges, Test),
    /// Tested value by value.
    Each(Test),
}

/// Both ends included, ascending and apart.
type Ranges = Vec<(i64, i64)>;

impl PageTest {
    /// The test for a column of this type, in a file where its texts have this coding.
    pub fn new(test: &Test, kind: &ColumnType, coding: Option<&TextCoding>) -> Self {
        Self(match (test, coding.and_then(TextCoding::dictionary)) {
            (Test::IsNull, _) => Compiled::Null,
            (Test::IsNotNull, _) => Compiled::NotNull,
            (_, Some(dictionary)) => Compiled::Ranges(code_ranges(test, dictionary)),
            (_, None) if matches!(kind, ColumnType::Utf8 | ColumnType::Binary) => Compiled::Each(test.clone()),
            (_, None) if matches!(kind, ColumnType::Decimal128(..)) => {
                Compiled::Decimals(ordinal_ranges(test, kind), test.clone())
            }
            (_, None) => Compiled::Ranges(ordinal_ranges(test, kind)),
        })
    }

    /// Whether a value passes that lies in no page: of a test that was made for columns of its type, without a coding.
    /// As [`Test::passes`], by comparing integers where it has one.
    #[inline]
    pub fn passes_value(&self, value: DatumRef<'_>) -> bool {
        let is_within =
            |ranges: &Ranges, ordinal| ranges.iter().any(|&(least, greatest)| (least..=greatest).contains(&ordinal));
        match (&self.0, ordinal(value)) {
            (Compiled::Null, _) => false,
            (Compiled::NotNull, _) => true,
            (Compiled::Ranges(ranges) | Compiled::Decimals(ranges, _), Some(ordinal)) => is_within(ranges, ordinal),
            (Compiled::Ranges(_), None) => false,
            (Compiled::Decimals(_, test) | Compiled::Each(test), _) => test.passes(ColumnState::Value(value)),
        }
    }

    /// Whether some value between the cells of a row in two pages may pass, both included, where that follows from
    /// integers: of columns whose values and whose bounds are ordinals.
    pub fn may_pass_between(&self, least: &Page<'_>, greatest: &Page<'_>, row: usize) -> Option<bool> {
        let (Compiled::Ranges(ranges) | Compiled::Decimals(ranges, _)) = &self.0 else { return None };
        let (least, greatest) = (least.ordinal(row)?, greatest.ordinal(row)?);
        let first = ranges.partition_point(|&(_, end)| end < least);
        Some(ranges.get(first).is_some_and(|&(start, _)| start <= greatest))
    }
}

/// Ranges from points and ranges, without what lies beyond all ordinals.
fn ranges(all: impl IntoIterator<Item = (i128, i128)>) -> Ranges {
    const LEAST: i128 = i64::MIN as i128;
    const GREATEST: i128 = i64::MAX as i128;
    let within = all.into_iter().map(|(least, greatest)| (least.max(LEAST), greatest.min(GREATEST)));
    let within = within.filter(|(least, greatest)| least <= greatest);
    let mut all: Ranges = within.map(|(least, greatest)| (least as i64, greatest as i64)).collect();
    all.sort_unstable();
    let mut merged = Ranges::with_capacity(all.len());
    for (least, greatest) in all {
        match merged.last_mut() {
            Some((_, end)) if least <= end.saturating_add(1) => *end = (*end).max(greatest),
            _ => merged.push((least, greatest)),
        }
    }
    merged
}

fn all_but(value: i128) -> Ranges {
    let before = value.checked_sub(1).map(|before| (i128::MIN, before));
    let after = value.checked_add(1).map(|after| (after, i128::MAX));
    ranges(before.into_iter().chain(after))
}

fn ordinal_ranges(test: &Test, kind: &ColumnType) -> Ranges {
    // A value of another type equals none, and none compares with it.
    let of = |datum: &Datum| Some(datum.borrowed()).filter(|datum| is_of(*datum, kind)).and_then(wide_ordinal);
    match test {
        Test::Equal(value) => ranges(of(value).map(|value| (value, value))),
        Test::NotEqual(value) => of(value).map_or_else(Ranges::new, all_but),
        Test::In(values) => ranges(values.iter().filter_map(of).map(|value| (value, value))),
        Test::Range { lower, upper } => {
            let least = match lower {
                Bound::Unbounded => Some(i128::MIN),
                Bound::Included(value) => of(value),
                Bound::Excluded(value) => of(value).and_then(|value| value.checked_add(1)),
            };
            let greatest = match upper {
                Bound::Unbounded => Some(i128::MAX),
                Bound::Included(value) => of(value),
                Bound::Excluded(value) => of(value).and_then(|value| value.checked_sub(1)),
            };
            ranges(least.zip(greatest))
        }
        Test::Prefix(_) | Test::IsNull | Test::IsNotNull => Ranges::new(),
    }
}

/// The ordinal of a value, of a decimal the integer whether it fits or not.
fn wide_ordinal(datum: DatumRef<'_>) -> Option<i128> {
    match datum {
        DatumRef::Decimal128(value) => Some(value),
        datum => ordinal(datum).map(i128::from),
    }
}

/// Whether a value is of a type of fixed width.
fn is_of(datum: DatumRef<'_>, kind: &ColumnType) -> bool {
    std::mem::discriminant(&datum) == std::mem::discriminant(&super::ordinal::datum(kind, 0))
}

fn code_ranges(test: &Test, dictionary: &Dictionary) -> Ranges {
    let point = |datum: &Datum| {
        let code = dictionary.code(text_of(datum.borrowed())?).ok()?;
        Some((i128::from(code), i128::from(code)))
    };
    let codes = |range: std::ops::Range<u32>| ranges([(i128::from(range.start), i128::from(range.end) - 1)]);
    match test {
        Test::Equal(value) => ranges(point(value)),
        Test::NotEqual(value) => match (text_of(value.borrowed()), point(value)) {
            (None, _) => Ranges::new(),
            (_, Some((code, _))) => all_but(code),
            (_, None) => vec![(i64::MIN, i64::MAX)],
        },
        Test::In(values) => ranges(values.iter().filter_map(point)),
        Test::Range { lower, upper } => match (text_bound(lower), text_bound(upper)) {
            (Some(lower), Some(upper)) => codes(dictionary.codes_within(lower, upper)),
            _ => Ranges::new(),
        },
        Test::Prefix(prefix) => {
            let after = prefix_successor(prefix);
            let upper = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            codes(dictionary.codes_within(Bound::Included(prefix), upper))
        }
        Test::IsNull | Test::IsNotNull => Ranges::new(),
    }
}

/// A bound of text; `None` for one of another type.
fn text_bound(bound: &Bound<Datum>) -> Option<Bound<&[u8]>> {
    Some(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(value) => Bound::Included(text_of(value.borrowed())?),
        Bound::Excluded(value) => Bound::Excluded(text_of(value.borrowed())?),
    })
}
