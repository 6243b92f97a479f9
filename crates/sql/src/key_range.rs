//! Intervals of keys, as tests of the leading key columns make them.
//!
//! [`ranges`] takes the columns of a key, most significant first:
//!
//! 1. The tests of a column add up to a sorted set of values, or to an interval ([`Constraint`]).
//! 2. As long as columns have sets, every combination of their values is a prefix of keys; combinations are made in key
//!    order.
//! 3. The first column with an interval ends that: every prefix gets its bounds. So does a set that would make more
//!    than [`MOST_RANGES`] combinations: its smallest and largest value are bounds.
//!
//! The ranges are disjoint and ascending. They hold every key that passes the tests; which tests they decide alone says
//! [`KeyRanges::decided`]. More tests never make one undecided that was decided without them, which DataFusion relies
//! on: it asks about predicates one set after the other and then drops those that it was told are decided.

use std::fmt;
use std::ops::Bound;

use mycelium_base::Result;
use mycelium_encoding::page::{ColumnTest, Test};
use mycelium_encoding::{Column, Datum, DatumRef, Schema, key};

/// Ranges that a set of tests makes at most.
pub(crate) const MOST_RANGES: usize = 4096;

/// An interval of keys between values of their first columns; a bound takes in, or leaves out, all keys that begin with
/// it.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyRange {
    /// From here.
    pub lower: Bound<Vec<Datum>>,
    /// To here.
    pub upper: Bound<Vec<Datum>>,
}

impl KeyRange {
    /// All keys.
    pub const ALL: Self = Self { lower: Bound::Unbounded, upper: Bound::Unbounded };

    /// The one key in it, if it is a whole key of so many columns.
    pub fn point(&self, columns: usize) -> Option<&[Datum]> {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) if lower.len() == columns && lower == upper => Some(lower),
            _ => None,
        }
    }

    /// How many leading columns have one value only.
    pub(crate) fn fixed_columns(&self) -> usize {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower.iter().zip(upper).take_while(|(lower, upper)| lower == upper).count()
            }
            _ => 0,
        }
    }

    /// The keys as bytes: `[from, to)`, where `to` may be unbounded.
    pub(crate) fn encode(&self, schema: &Schema) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let prefix = |values: &[Datum]| {
            let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrowed).collect();
            let mut out = Vec::new();
            key::encode_key_prefix(schema, &values, &mut out).map(|()| out)
        };
        // After the last key there is nothing: a range that ends where all do.
        let nothing = (Vec::new(), Some(Vec::new()));
        let from = match &self.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(values) => prefix(values)?,
            Bound::Excluded(values) => match key::prefix_successor(&prefix(values)?) {
                Some(from) => from,
                None => return Ok(nothing),
            },
        };
        let to = match &self.upper {
            Bound::Unbounded => None,
            Bound::Included(values) => key::prefix_successor(&prefix(values)?),
            Bound::Excluded(values) => Some(prefix(values)?),
        };
        Ok((from, to))
    }

    /// The parts of the range between whole keys, which ascend.
    pub(crate) fn split(self, schema: &Schema, points: &[Vec<Datum>]) -> Result<Vec<Self>> {
        let (mut parts, mut rest) = (Vec::new(), self);
        for point in points {
            let cut = Self { lower: Bound::Included(point.clone()), upper: Bound::Unbounded }.encode(schema)?.0;
            let (from, to) = rest.encode(schema)?;
            if cut > from && to.is_none_or(|to| cut < to) {
                let upper = std::mem::replace(&mut rest.lower, Bound::Included(point.clone()));
                parts.push(Self { lower: upper, upper: Bound::Excluded(point.clone()) });
            }
        }
        parts.push(rest);
        Ok(parts)
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |values: &[Datum]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) if lower == upper => {
                return write!(f, "({})", values(lower));
            }
            (Bound::Included(lower), _) => write!(f, "[({}), ", values(lower))?,
            (Bound::Excluded(lower), _) => write!(f, "(({}), ", values(lower))?,
            (Bound::Unbounded, _) => f.write_str("[first, ")?,
        }
        match &self.upper {
            Bound::Included(upper) => write!(f, "({})]", values(upper)),
            Bound::Excluded(upper) => write!(f, "({}))", values(upper)),
            Bound::Unbounded => f.write_str("last]"),
        }
    }
}

/// What tests make of the leading columns of a key.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct KeyRanges {
    /// Disjoint, ascending. Empty where no key can pass.
    pub(crate) ranges: Vec<KeyRange>,
    /// Of the tests given, those that every key of the ranges passes and no other key.
    pub(crate) decided: Vec<usize>,
    /// Leading columns with one value or one of a few.
    pub(crate) pinned: usize,
}

/// The ranges of keys with these columns that pass the tests; `None` if no test is of use.
pub(crate) fn ranges(columns: &[(usize, &Column)], tests: &[(usize, ColumnTest)]) -> Option<KeyRanges> {
    let mut prefixes: Vec<Vec<Datum>> = vec![Vec::new()];
    let mut decided = Vec::new();
    let mut pinned = 0;
    let mut last = None;
    for (column, definition) in columns {
        let of_column = tests.iter().filter(|(_, test)| test.column == *column);
        let constraint = Constraint::new(definition, of_column.clone().map(|(_, test)| &test.test));
        let decides = |test: &Test, in_full: bool| match test {
            Test::Equal(_) | Test::In(_) => in_full,
            Test::Range { .. } | Test::Prefix(_) => true,
            Test::IsNull | Test::IsNotNull => true,
            Test::NotEqual(_) => false,
        };
        let values = constraint.values.as_ref().filter(|values| prefixes.len() * values.len() <= MOST_RANGES);
        decided.extend(of_column.filter(|(_, test)| decides(&test.test, values.is_some())).map(|(at, _)| *at));
        let Some(values) = values else {
            last = constraint.bounds(definition);
            break;
        };
        let extend = |prefix: &Vec<Datum>, value: &Datum| prefix.iter().chain([value]).cloned().collect();
        prefixes = prefixes.iter().flat_map(|prefix| values.iter().map(move |value| extend(prefix, value))).collect();
        pinned += 1;
    }
    if decided.is_empty() && last.is_none() && pinned == 0 {
        return None;
    }
    let ranges = prefixes.into_iter().map(|prefix| range_of(prefix, last.as_ref())).collect();
    Some(KeyRanges { ranges, decided, pinned })
}

/// The keys that begin with a prefix and go on within bounds.
fn range_of(prefix: Vec<Datum>, bounds: Option<&(Bound<Datum>, Bound<Datum>)>) -> KeyRange {
    let end = |bound: &Bound<Datum>| {
        let with = |value: &Datum| prefix.iter().chain([value]).cloned().collect::<Vec<_>>();
        match bound {
            Bound::Included(value) => Bound::Included(with(value)),
            Bound::Excluded(value) => Bound::Excluded(with(value)),
            Bound::Unbounded if prefix.is_empty() => Bound::Unbounded,
            Bound::Unbounded => Bound::Included(prefix.clone()),
        }
    };
    let unbounded = (Bound::Unbounded, Bound::Unbounded);
    let (lower, upper) = bounds.unwrap_or(&unbounded);
    KeyRange { lower: end(lower), upper: end(upper) }
}

/// What the tests of one column add up to.
struct Constraint {
    /// Ascending, without repetition, within the bounds. Empty where no value passes.
    values: Option<Vec<Datum>>,
    lower: Bound<Datum>,
    upper: Bound<Datum>,
    /// Whether a test leaves nulls out.
    needs_value: bool,
}

impl Constraint {
    fn new<'t>(column: &Column, tests: impl Iterator<Item = &'t Test>) -> Self {
        let mut found = Self { values: None, lower: Bound::Unbounded, upper: Bound::Unbounded, needs_value: false };
        for test in tests {
            found.needs_value |= *test != Test::IsNull;
            match test {
                Test::Equal(value) => found.keep(vec![value.clone()]),
                Test::In(values) => found.keep(values.clone()),
                Test::IsNull if column.nullable => found.keep(vec![Datum::Null]),
                Test::IsNull => found.keep(Vec::new()),
                Test::Range { lower, upper } => found.tighten(lower, upper),
                Test::Prefix(prefix) => found.tighten_to_prefix(prefix),
                Test::IsNotNull | Test::NotEqual(_) => {}
            }
        }
        let is_within = |value: &Datum| {
            let is_above = match &found.lower {
                Bound::Included(lower) => value >= lower,
                Bound::Excluded(lower) => value > lower,
                Bound::Unbounded => !(value.borrowed().is_null() && found.needs_value),
            };
            let is_below = match &found.upper {
                Bound::Included(upper) => value <= upper,
                Bound::Excluded(upper) => value < upper,
                Bound::Unbounded => true,
            };
            is_above && is_below
        };
        if let Some(values) = &mut found.values {
            values.retain(is_within);
        } else if found.is_empty() {
            found.values = Some(Vec::new());
        }
        found
    }

    fn keep(&mut self, mut values: Vec<Datum>) {
        if let Some(known) = &self.values {
            values.retain(|value| known.contains(value));
        }
        values.sort_unstable();
        values.dedup();
        self.values = Some(values);
    }

    fn tighten(&mut self, lower: &Bound<Datum>, upper: &Bound<Datum>) {
        let is_tighter = match (&self.lower, lower) {
            (_, Bound::Unbounded) => false,
            (Bound::Unbounded, _) => true,
            (Bound::Included(old) | Bound::Excluded(old), Bound::Included(new)) => new > old,
            (Bound::Included(old) | Bound::Excluded(old), Bound::Excluded(new)) => new >= old,
        };
        if is_tighter {
            self.lower = lower.clone();
        }
        let is_tighter = match (&self.upper, upper) {
            (_, Bound::Unbounded) => false,
            (Bound::Unbounded, _) => true,
            (Bound::Included(old) | Bound::Excluded(old), Bound::Included(new)) => new < old,
            (Bound::Included(old) | Bound::Excluded(old), Bound::Excluded(new)) => new <= old,
        };
        if is_tighter {
            self.upper = upper.clone();
        }
    }

    /// Text is ordered by its bytes, which is the order of code points: after all texts that begin with the prefix
    /// comes the prefix with its last code point raised, where it can be.
    fn tighten_to_prefix(&mut self, prefix: &[u8]) {
        let Ok(prefix) = std::str::from_utf8(prefix) else { return };
        let mut end: Vec<char> = prefix.chars().collect();
        while let Some(last) = end.pop() {
            let next = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32);
            if let Some(next) = next {
                end.push(next);
                break;
            }
        }
        let is_bounded = !end.is_empty();
        let end = Datum::Utf8(end.into_iter().collect());
        let upper = if is_bounded { Bound::Excluded(end) } else { Bound::Unbounded };
        self.tighten(&Bound::Included(Datum::Utf8(prefix.to_owned())), &upper);
    }

    /// Whether the bounds leave nothing between them.
    fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower >= upper
            }
        }
    }

    /// Bounds that all passing values lie within; `None` if there are none.
    fn bounds(&self, column: &Column) -> Option<(Bound<Datum>, Bound<Datum>)> {
        if let Some([first, .., last]) = self.values.as_deref() {
            return Some((Bound::Included(first.clone()), Bound::Included(last.clone())));
        }
        let lower = match &self.lower {
            // Nulls come first.
            Bound::Unbounded if column.nullable && self.needs_value => Bound::Excluded(Datum::Null),
            lower => lower.clone(),
        };
        let is_bounded = lower != Bound::Unbounded || self.upper != Bound::Unbounded;
        is_bounded.then(|| (lower, self.upper.clone()))
    }
}
