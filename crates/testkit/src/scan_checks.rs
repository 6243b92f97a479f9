//! Scans of columns against the rows of a table: some columns, those that pass of the rows, at a snapshot, in batches.

use std::cmp::Ordering;
use std::ops::Bound;

use mycelium_base::{Error, Result};
use mycelium_encoding::key::decode_key;
use mycelium_encoding::page::{ColumnTest, Filter, Test};
use mycelium_encoding::{Datum, RecordBatchBuilder, TextArrays};
use mycelium_engine::{FilterPlan, ScanOptions, Snapshot, Table};

use crate::index_checks::order_of;
use crate::told_checks::{Bounds, Rows, check_told};

/// What is read, but for columns that a table does not have.
const PROJECTIONS: [&[usize]; 7] =
    [&[], &[0], &[3], &[6, 0, 2, 8], &[1, 5, 7], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[3, 5, 0, 3, 5, 0]];

/// What is asked for, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw(pub(crate) usize);

impl Draw {
    /// After so many all projections and filters were drawn.
    pub(crate) const ALL: usize = 12;

    fn batch_rows(self) -> usize {
        [1, 7, usize::MAX][self.0 % 3]
    }

    /// Of two thirds of the draws so few that batches end before they have all their rows.
    fn batch_bytes(self) -> usize {
        [usize::MAX, 100, 1][self.0 / 2 % 3]
    }

    fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Of half the draws keys of rows that are there, the first before the second.
    fn bounds(self, rows: &Rows) -> Bounds<'_> {
        let key = |eighths: usize| rows.keys().nth(rows.len() * eighths / 8).map(Vec::as_slice);
        match (key(self.0 % 4), key(4 + self.0 % 3)) {
            (Some(from), Some(to)) if (self.0 / 3 + self.0 / 6) % 2 == 1 && from < to => match self.0 % 2 {
                0 => (Bound::Included(from), Bound::Excluded(to)),
                _ => (Bound::Excluded(from), Bound::Included(to)),
            },
            _ => (Bound::Unbounded, Bound::Unbounded),
        }
    }

    /// Of some draws less than all of so many rows, or none of them.
    fn limit(self, rows: usize) -> Option<u64> {
        match self.0 % 11 {
            3 => Some(0),
            6 => Some(1),
            9 => Some(rows as u64 / 2),
            _ => None,
        }
    }

    /// Of a fifth of the draws.
    fn descending(self) -> bool {
        self.0 % 5 == 4
    }

    fn texts(self) -> TextArrays {
        [TextArrays::Plain, TextArrays::Views, TextArrays::Dictionaries][self.0 / 5 % 3]
    }

    fn filter_plan(self) -> FilterPlan {
        [FilterPlan::Automatic, FilterPlan::MergeFirst, FilterPlan::FilterFirst][self.0 / 3 % 3]
    }
}

/// Scans of a typed table must give what its rows have, and those that pass of them.
pub(crate) fn check_scans(table: &Table, rows: &Rows, snapshot: Option<&Snapshot>, draw: Draw) -> Result<()> {
    if table.schema().is_none() {
        return Ok(());
    }
    let projection = projection_of(table, draw)?;
    check_scan(table, (rows, draw.bounds(rows)), snapshot, draw, (&projection, None))?;
    if draw.0.is_multiple_of(3) {
        // Which is the draw of a column, too.
        check_told(table, (rows, draw.bounds(rows)), snapshot, draw.0 / 3)?;
    }
    if draw.0.is_multiple_of(4) {
        check_parts(table, rows.len(), snapshot, 2 + draw.0 / 4 % 4)?;
    }
    let filters = filters_of(table, rows)?;
    match filters.get(draw.0 % filters.len().max(1)) {
        Some((projection, filter)) => {
            let bounds = draw.next().bounds(rows);
            check_scan(table, (rows, bounds), snapshot, draw, (projection, Some(filter)))
        }
        None => Ok(()),
    }
}

/// A table must have no more rows than its extent says entries, and the parts that it is cut into each of them once.
fn check_parts(table: &Table, rows: usize, snapshot: Option<&Snapshot>, parts: usize) -> Result<()> {
    let (entries, cuts) = (table.extent(None, None).entries, table.split_points(parts, None, None)?);
    let lowers = std::iter::once(Bound::Unbounded).chain(cuts.iter().cloned().map(Bound::Included));
    let uppers = cuts.iter().cloned().map(Bound::Excluded).chain([Bound::Unbounded]);
    let mut found = 0;
    for (lower, upper) in lowers.zip(uppers) {
        let snapshot = snapshot.cloned();
        let options = ScanOptions { projection: Some(Vec::new()), lower, upper, snapshot, ..ScanOptions::default() };
        for batch in table.scan_batches(options)? {
            found += batch?.num_rows();
        }
    }
    if found == rows && entries >= rows as u64 {
        return Ok(());
    }
    Err(Error::invalid(format!("{found} rows between {cuts:?}, and {entries} entries, where there are {rows} rows")))
}

/// An open scan of a typed table, of what its rows have or of those of them that pass, which takes so many batches at
/// most and compares them.
pub(crate) type HeldScan = Box<dyn FnMut(usize) -> Result<()>>;

/// Opens a scan of a typed table that has these rows, with a filter for every other draw.
pub(crate) fn hold_scan(table: &Table, rows: &Rows, snapshot: Option<&Snapshot>, draw: Draw) -> Result<HeldScan> {
    let (projection, filters) = (projection_of(table, draw)?, filters_of(table, rows)?);
    let (projection, filter) = match filters.get(draw.0 / 2 % filters.len().max(1)) {
        Some((projection, filter)) if draw.0 % 2 == 1 => (projection, Some(filter)),
        _ => (&projection, None),
    };
    let bounds = draw.bounds(rows);
    let what = format!("a held scan of columns {projection:?} where {filter:?} within {bounds:?}, {draw:?}");
    let mut scan = open_scan(table, (rows, bounds), snapshot, draw, (projection, filter))?;
    Ok(Box::new(move |batches: usize| -> Result<()> {
        scan(batches).map_err(|error| Error::new(error.kind(), format!("{what}: {error}")))
    }))
}

/// What is read of a table, of the columns that it has.
fn projection_of(table: &Table, draw: Draw) -> Result<Vec<usize>> {
    let schema = table.packed_layout()?.schema();
    let projection = PROJECTIONS[draw.0 % PROJECTIONS.len()].iter().copied();
    Ok(projection.filter(|column| schema.has_column(*column)).collect())
}

/// A scan must give these rows, but for those beyond the bounds and those that do not pass.
fn check_scan(
    table: &Table,
    (rows, bounds): (&Rows, Bounds<'_>),
    snapshot: Option<&Snapshot>,
    draw: Draw,
    (projection, filter): (&[usize], Option<&Filter>),
) -> Result<()> {
    let scan = open_scan(table, (rows, bounds), snapshot, draw, (projection, filter));
    scan.and_then(|mut scan| scan(usize::MAX)).map_err(|error| {
        let what =
            format!("a scan of columns {projection:?} where {filter:?} within {bounds:?}, {draw:?}, at {snapshot:?}");
        Error::new(error.kind(), format!("{what}: {error}"))
    })
}

/// Opens a scan that must give these rows, but for those beyond the bounds, those that do not pass and those over the
/// limit.
fn open_scan(
    table: &Table,
    (rows, bounds): (&Rows, Bounds<'_>),
    snapshot: Option<&Snapshot>,
    draw: Draw,
    (projection, filter): (&[usize], Option<&Filter>),
) -> Result<HeldScan> {
    let (layout, limit) = (table.packed_layout()?.clone(), draw.limit(rows.len()));
    let mut expected = RecordBatchBuilder::with_texts(layout, projection, usize::MAX, draw.texts())?;
    let mut within: Vec<_> = rows.range::<[u8], _>(bounds).collect();
    if draw.descending() {
        within.reverse();
    }
    for (key, row) in within {
        let is_over = limit.is_some_and(|limit| expected.len() as u64 >= limit);
        if !is_over && filter.map_or(Ok(true), |filter| passes(table, filter, key, row))? {
            expected.append(key, row)?;
        }
    }
    let expected = expected.finish()?;
    let schema = table.packed_layout()?.schema().clone();
    let values = |bound: Bound<&[u8]>| match bound {
        Bound::Unbounded => Ok(Bound::Unbounded),
        Bound::Included(key) => decode_key(&schema, key).map(Bound::Included),
        Bound::Excluded(key) => decode_key(&schema, key).map(Bound::Excluded),
    };
    let options = ScanOptions {
        projection: Some(projection.to_vec()),
        lower: values(bounds.0)?,
        upper: values(bounds.1)?,
        batch_rows: draw.batch_rows(),
        batch_bytes: draw.batch_bytes(),
        limit,
        descending: draw.descending(),
        texts: draw.texts(),
        filter: filter.cloned(),
        filter_plan: draw.filter_plan(),
        snapshot: snapshot.cloned(),
        ..ScanOptions::default()
    };
    let (mut scan, mut at) = (table.scan_batches(options)?, 0);
    let differs = |at: usize, of: usize| Error::invalid(format!("{at} rows or more, not the {of} expected"));
    Ok(Box::new(move |batches: usize| -> Result<()> {
        let all = expected.num_rows();
        for _ in 0..batches {
            let Some(batch) = scan.next() else {
                return if at == all { Ok(()) } else { Err(differs(at, all)) };
            };
            let batch = batch?;
            let from = at;
            at += batch.num_rows();
            if at > all || batch != expected.slice(from, batch.num_rows()) {
                return Err(differs(at, all));
            }
        }
        Ok(())
    }))
}

/// The naive meaning of a filter.
fn passes(table: &Table, filter: &Filter, key: &[u8], row: &[u8]) -> Result<bool> {
    let layout = table.packed_layout()?;
    let (row, key_values) = (layout.row(row)?, decode_key(layout.schema(), key)?);
    for ColumnTest { column, test } in &filter.conjuncts {
        let value = match layout.schema().primary_key().iter().position(|key| key == column) {
            Some(place) => key_values[place].clone(),
            None => row.datum(*column)?.map_or(Datum::Null, |datum| datum.to_datum()),
        };
        if !meets(test, &value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What SQL says of a test; written apart from the engine's. Null passes none but its own.
fn meets(test: &Test, value: &Datum) -> bool {
    let order = |other: &Datum| order_of(value).cmp(&order_of(other));
    match (test, value) {
        (Test::IsNull, value) => *value == Datum::Null,
        (_, Datum::Null) => false,
        (Test::IsNotNull, _) => true,
        // Nothing compares with null.
        (Test::NotEqual(Datum::Null), _) => false,
        (Test::Range { lower, upper }, _) if [lower, upper].into_iter().any(is_null) => false,
        (Test::Equal(other), _) => order(other) == Ordering::Equal,
        (Test::NotEqual(other), _) => order(other) != Ordering::Equal,
        (Test::In(others), _) => others.iter().any(|other| order(other) == Ordering::Equal),
        (Test::Prefix(prefix), Datum::Utf8(text)) => text.as_bytes().starts_with(prefix),
        (Test::Prefix(prefix), Datum::Binary(bytes)) => bytes.starts_with(prefix),
        (Test::Prefix(_), _) => false,
        (Test::Range { lower, upper }, _) => {
            let is_above = match lower {
                Bound::Included(lower) => order(lower) != Ordering::Less,
                Bound::Excluded(lower) => order(lower) == Ordering::Greater,
                Bound::Unbounded => true,
            };
            let is_below = match upper {
                Bound::Included(upper) => order(upper) != Ordering::Greater,
                Bound::Excluded(upper) => order(upper) == Ordering::Less,
                Bound::Unbounded => true,
            };
            is_above && is_below
        }
    }
}

fn is_null(bound: &Bound<Datum>) -> bool {
    matches!(bound, Bound::Included(Datum::Null) | Bound::Excluded(Datum::Null))
}

/// Filters with values of some of the rows, and what is to be read with them.
fn filters_of(table: &Table, rows: &Rows) -> Result<Vec<(Vec<usize>, Filter)>> {
    let layout = table.packed_layout()?;
    let columns: Vec<usize> = layout.schema().live_columns().map(|(column, _)| column).collect();
    let mut filters = Vec::new();
    for (number, (key, row)) in rows.iter().step_by(rows.len() / 4 + 1).enumerate() {
        let row = layout.row(row)?;
        let value_of = |column: usize| -> Result<Datum> {
            Ok(match layout.schema().primary_key().iter().position(|&of_key| of_key == column) {
                Some(place) => decode_key(layout.schema(), key)?[place].clone(),
                None => row.datum(column)?.map_or(Datum::Null, |datum| datum.to_datum()),
            })
        };
        let mut conjuncts = Vec::new();
        for column in columns.iter().copied().filter(|column| (column + number) % 3 == 0) {
            let value = value_of(column)?;
            conjuncts.push(ColumnTest { column, test: test_of(value, column + 2 * number) });
        }
        let mut projection = vec![columns[number % columns.len()], columns[columns.len() - 1]];
        projection.dedup();
        let first = conjuncts.iter().take(1).cloned().collect();
        filters.push((projection, Filter { conjuncts: first }));
        filters.push((vec![], Filter { conjuncts }));
        let column = columns[(2 * number + 1) % columns.len()];
        let odd = odd_tests(value_of(column)?, number).into_iter().map(|test| ColumnTest { column, test });
        filters.push((vec![column], Filter { conjuncts: odd.collect() }));
    }
    Ok(filters)
}

/// What is seldom asked of a column: comparisons with null, lists with a null and without anything, two tests at once.
fn odd_tests(value: Datum, number: usize) -> Vec<Test> {
    match number % 4 {
        0 => vec![Test::In(vec![Datum::Null, value])],
        1 => vec![Test::NotEqual(value), Test::IsNotNull],
        2 => vec![Test::Range { lower: Bound::Included(Datum::Null), upper: Bound::Unbounded }],
        _ => vec![Test::NotEqual(Datum::Null), Test::In(Vec::new())],
    }
}

/// A test with a value, of a kind that `draw` says.
fn test_of(value: Datum, draw: usize) -> Test {
    let prefix = |bytes: &[u8]| Test::Prefix(bytes[..bytes.len().min(2)].to_vec());
    match (draw % 6, &value) {
        (_, Datum::Null) => Test::IsNull,
        (0, _) => Test::Equal(value),
        (1, _) => Test::NotEqual(value),
        (2, _) => Test::Range { lower: Bound::Excluded(value), upper: Bound::Unbounded },
        (3, _) => Test::Range { lower: Bound::Unbounded, upper: Bound::Included(value) },
        (4, Datum::Utf8(text)) => prefix(text.as_bytes()),
        (4, Datum::Binary(bytes)) => prefix(bytes),
        (4, _) => Test::In(vec![value.clone(), value]),
        _ => Test::IsNotNull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_mean_what_sql_says() {
        let five = || Datum::Int64(5);
        assert!(meets(&Test::Equal(five()), &five()) && !meets(&Test::NotEqual(five()), &five()));
        assert!(!meets(&Test::NotEqual(five()), &Datum::Null) && meets(&Test::IsNull, &Datum::Null));
        let above = Test::Range { lower: Bound::Excluded(five()), upper: Bound::Unbounded };
        assert!(meets(&above, &Datum::Int64(6)) && !meets(&above, &five()) && !meets(&above, &Datum::Int64(-7)));
        assert!(meets(&Test::Prefix(b"ab".to_vec()), &Datum::Utf8("abc".into())));
        assert!(
            meets(&Test::In(vec![Datum::Null, five()]), &five()) && !meets(&Test::In(vec![Datum::Null]), &Datum::Null)
        );
        let from_null = Test::Range { lower: Bound::Included(Datum::Null), upper: Bound::Unbounded };
        assert!(!meets(&Test::NotEqual(Datum::Null), &five()) && !meets(&from_null, &five()));
    }
}
