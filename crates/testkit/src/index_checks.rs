//! What indexes answer, compared with what the rows of their table say.

use std::ops::Bound;

use mycelium_base::{Error, Result};
use mycelium_encoding::{Datum, DatumRef, key};
use mycelium_engine::{Index, IndexRow, IndexedBy, Snapshot, Table};

use crate::model::Row;
use crate::transformers::letters_in;

/// A row as an index must give it: its key, and all its columns.
type Expected = (Vec<u8>, Vec<Datum>);

/// What a lookup finds.
type Rows<'r> = Box<dyn Iterator<Item = Result<IndexRow>> + 'r>;
/// The values between which a lookup looks.
type Bounds<'v> = (Bound<&'v [DatumRef<'v>]>, Bound<&'v [DatumRef<'v>]>);
/// Looks up, as a table or a transaction does.
type Find<'f> = dyn Fn(&Index, Bounds<'_>, Option<&[usize]>) -> Result<Rows<'f>> + 'f;

const ALL: Bounds<'static> = (Bound::Unbounded, Bound::Unbounded);

/// Every index of `table` must find `rows`, which are all there are at the snapshot, packed.
pub(crate) fn check_indexes(table: &Table, rows: &[Row], snapshot: Option<&Snapshot>) -> Result<()> {
    check_indexes_by(table, rows, &|index, bounds, columns| Ok(Box::new(index.range(bounds, columns, snapshot)?)))
}

/// As [`check_indexes`], with lookups by `find`: all rows, each by its values, and some by a range; with all columns
/// and with those that the index holds itself.
pub(crate) fn check_indexes_by(table: &Table, rows: &[Row], find: &Find<'_>) -> Result<()> {
    for index in table.indexes() {
        check_index(table, &index, rows, find)
            .map_err(|e| Error::new(e.kind(), format!("index {} (built: {}): {e}", index.name(), index.is_built())))?;
    }
    Ok(())
}

fn check_index(table: &Table, index: &Index, rows: &[Row], find: &Find<'_>) -> Result<()> {
    match index.by() {
        IndexedBy::Columns(_) => check_columns(table, index, rows, find),
        IndexedBy::FlatMap(..) => check_letters(table, index, rows, find),
    }
}

/// What a row derives: letter, key of the row, how often the letter is there, a column of the row.
type Letter = (Vec<u8>, Vec<u8>, Vec<u8>, Datum);

/// The column whose values are compared beside letters.
const BESIDE: usize = 2;

/// What `test.letters` derives: all of it, from the derived table alone and with a column of the rows, and one letter.
fn check_letters(table: &Table, index: &Index, rows: &[Row], find: &Find<'_>) -> Result<()> {
    let mut expected: Vec<Letter> = Vec::new();
    for row in rows {
        let (key, columns) = all_columns(table, row)?;
        let letters = letters_in(&columns)?.into_iter();
        expected.extend(letters.map(|(letter, count)| (letter, key.clone(), count, columns[BESIDE].clone())));
    }
    expected.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    compare_letters("all letters", &expected, find(index, ALL, Some(&[]))?)?;
    compare_letters("letters with a column", &expected, find(index, ALL, Some(&[BESIDE]))?)?;
    let of_one: Vec<Letter> = expected.into_iter().filter(|letter| letter.0 == b"z").collect();
    compare_letters("one letter", &of_one, find(index, at(&[DatumRef::Binary(b"z")]), Some(&[BESIDE]))?)
}

/// The bounds of these values.
fn at<'v>(values: &'v [DatumRef<'v>]) -> Bounds<'v> {
    (Bound::Included(values), Bound::Included(values))
}

fn compare_letters(what: &str, expected: &[Letter], found: Rows<'_>) -> Result<()> {
    let mut wanted = expected.iter();
    for row in found {
        let row = row?;
        let is_wanted = match (wanted.next(), &row.derived) {
            (Some((letter, key, count, beside)), Some(derived)) => {
                (&derived.key, &row.key, &derived.value) == (letter, key, count)
                    && row.values.iter().all(|value| value == beside)
            }
            _ => false,
        };
        if !is_wanted {
            return Err(Error::invalid(format!("{what}: {row:?} is not wanted, then {:?}", wanted.next())));
        }
    }
    match wanted.next() {
        None => Ok(()),
        Some(letter) => Err(Error::invalid(format!("{what}: missing is {letter:?}"))),
    }
}

fn check_columns(table: &Table, index: &Index, rows: &[Row], find: &Find<'_>) -> Result<()> {
    let mut expected = Vec::with_capacity(rows.len());
    for row in rows {
        let row = all_columns(table, row)?;
        let place: Vec<(bool, String)> = index.on().iter().map(|&column| order_of(&row.1[column])).collect();
        expected.push((place, row));
    }
    expected.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.0.cmp(&b.1.0)));
    let (places, expected): (Vec<_>, Vec<Expected>) = expected.into_iter().unzip();
    compare_rows("all rows", &expected, find(index, ALL, None)?, None)?;
    let columns = table.schema().map(|schema| schema.columns().len()).unwrap_or_default();
    let is_of_key = |column: usize| table.schema().is_some_and(|schema| schema.is_primary_key(column));
    let is_held = |column: &usize| is_of_key(*column) || index.on().contains(column) || index.cover().contains(*column);
    let held: Vec<usize> = (0..columns).filter(is_held).collect();
    compare_rows("held columns", &expected, find(index, ALL, Some(&held))?, Some(&held))?;
    // Some values by themselves, and what comes after their first.
    for row in (0..expected.len()).step_by(expected.len() / 2 + 1) {
        let wanted: Vec<DatumRef<'_>> = index.on().iter().map(|&column| expected[row].1[column].borrowed()).collect();
        let from = places.partition_point(|place| *place < places[row]);
        let to = places.partition_point(|place| *place <= places[row]);
        compare_rows("a point", &expected[from..to], find(index, at(&wanted), Some(&held))?, Some(&held))?;
        let after = places.partition_point(|place| place[0] <= places[row][0]);
        let range = (Bound::Excluded(&wanted[..1]), Bound::Unbounded);
        compare_rows("a range", &expected[after..], find(index, range, None)?, None)?;
    }
    Ok(())
}

fn all_columns(table: &Table, (key, value): &Row) -> Result<Expected> {
    let layout = table.packed_layout()?;
    let (schema, row) = (layout.schema(), layout.row(value)?);
    let primary = key::decode_key(schema, key)?;
    let mut values = Vec::with_capacity(schema.columns().len());
    for column in 0..schema.columns().len() {
        values.push(match schema.primary_key().iter().position(|&key| key == column) {
            Some(at) => primary[at].clone(),
            None if !schema.has_column(column) => Datum::Null,
            None => row.datum(column)?.map_or(Datum::Null, |datum| datum.to_datum()),
        });
    }
    Ok((key.clone(), values))
}

/// Text that is ordered as the values of one column are, nulls first; written apart from the engine's codes.
pub(crate) fn order_of(value: &Datum) -> (bool, String) {
    let text = match value {
        Datum::Null => return (false, String::new()),
        Datum::Bool(v) => u8::from(*v).to_string(),
        Datum::Int16(v) => format!("{:010}", i64::from(*v) + 100_000),
        Datum::Int64(v) => format!("{:040}", i128::from(*v) + (1 << 80)),
        Datum::Decimal128(v) => format!("{:040}", v + (1 << 100)),
        Datum::Utf8(v) => hex(v.as_bytes()),
        Datum::Binary(v) => hex(v),
        other => format!("{other:?}"),
    };
    (true, text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn compare_rows(what: &str, expected: &[Expected], found: Rows<'_>, projection: Option<&[usize]>) -> Result<()> {
    let mut wanted = expected.iter();
    let mut at = 0;
    for row in found {
        let row = row?;
        let Some((key, values)) = wanted.next() else {
            return Err(Error::invalid(format!("{what}: row {at} is too many: {row:?}")));
        };
        let values: Vec<Datum> = match projection {
            None => values.clone(),
            Some(columns) => columns.iter().map(|&column| values[column].clone()).collect(),
        };
        if row.key != *key || row.values != values {
            return Err(Error::invalid(format!("{what}: row {at}: expected {key:?} {values:?}, found {row:?}")));
        }
        at += 1;
    }
    match wanted.next() {
        None => Ok(()),
        Some(row) => Err(Error::invalid(format!("{what}: row {at} is missing: {row:?}"))),
    }
}
