//! What a scan tells by zones instead of giving it as rows, with the rows that it gives, against the rows of a table:
//! how many there are, how many nulls a column has, and its smallest and largest value.

use std::collections::BTreeMap;
use std::ops::Bound;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int16Type, Int64Type};
use mycelium_base::{Error, Result};
use mycelium_encoding::key::decode_key;
use mycelium_encoding::{ColumnType, Datum};
use mycelium_engine::{ScanOptions, Snapshot, Table};

/// The rows of a table, by their keys.
pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
/// Which keys of them are asked for.
pub(crate) type Bounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Values of a column as integers in the same order.
type Integers = Vec<Option<i128>>;

/// What is compared.
#[derive(PartialEq, Eq, Debug)]
struct Summary {
    rows: usize,
    nulls: usize,
    bounds: Option<(i128, i128)>,
}

impl Summary {
    fn of(values: &Integers) -> Self {
        let there = || values.iter().flatten().copied();
        let bounds = there().min().zip(there().max());
        Self { rows: values.len(), nulls: values.len() - there().count(), bounds }
    }
}

/// A scan that may tell blocks by their zones must come to what the rows within the bounds have of one column, or of
/// none, whichever `draw` says.
pub(crate) fn check_told(
    table: &Table,
    (rows, bounds): (&Rows, Bounds<'_>),
    snapshot: Option<&Snapshot>,
    draw: usize,
) -> Result<()> {
    let layout = table.packed_layout()?;
    let schema = layout.schema();
    let is_integer = |ty: &ColumnType| {
        matches!(ty, ColumnType::Bool | ColumnType::Int16 | ColumnType::Int64 | ColumnType::Decimal128(..))
    };
    let columns = schema.live_columns().filter(|(at, column)| !schema.is_primary_key(*at) && is_integer(&column.ty));
    let columns: Vec<Option<usize>> = columns.map(|(at, _)| Some(at)).chain([None]).collect();
    let column = columns[draw % columns.len()];
    let mut expected = Integers::new();
    for (_, row) in rows.range::<[u8], _>(bounds) {
        let row = layout.row(row)?;
        expected.push(match column {
            Some(column) => row.datum(column)?.and_then(|datum| integer(&datum.to_datum())),
            None => Some(0),
        });
    }
    let values = |bound: Bound<&[u8]>| match bound {
        Bound::Unbounded => Ok(Bound::Unbounded),
        Bound::Included(key) => decode_key(schema, key).map(Bound::Included),
        Bound::Excluded(key) => decode_key(schema, key).map(Bound::Excluded),
    };
    let options = ScanOptions {
        projection: Some(column.into_iter().collect()),
        lower: values(bounds.0)?,
        upper: values(bounds.1)?,
        batch_rows: [1, 7, usize::MAX][draw % 3],
        snapshot: snapshot.cloned(),
        tell_zones: true,
        ..ScanOptions::default()
    };
    let found = told(table, options)?;
    let expected = match column {
        Some(_) => Summary::of(&expected),
        None => Summary { rows: expected.len(), nulls: 0, bounds: None },
    };
    if found == expected {
        return Ok(());
    }
    let what = format!("zones and rows of column {column:?} within {bounds:?}, at {snapshot:?}");
    Err(Error::invalid(format!("{what}: {found:?}, not {expected:?}")))
}

/// What a scan gives and tells.
fn told(table: &Table, options: ScanOptions) -> Result<Summary> {
    let mut scan = table.scan_batches(options)?;
    let (mut rows, mut values) = (0, Integers::new());
    for batch in scan.by_ref() {
        let batch = batch?;
        rows += batch.num_rows();
        batch.columns().first().into_iter().for_each(|column| values.extend(integers(column)));
    }
    let mut nulls = values.iter().filter(|value| value.is_none()).count();
    if let Some(told) = scan.told() {
        rows += told.rows as usize;
        for column in &told.columns {
            nulls += column.nulls as usize;
            let bounds = column.bounds.iter().flat_map(|(least, greatest)| [integer(least), integer(greatest)]);
            values.extend(bounds);
        }
    }
    Ok(Summary { rows, nulls, ..Summary::of(&values) })
}

fn integer(value: &Datum) -> Option<i128> {
    match value {
        Datum::Bool(value) => Some((*value).into()),
        Datum::Int16(value) => Some((*value).into()),
        Datum::Int64(value) => Some((*value).into()),
        Datum::Decimal128(value) => Some(*value),
        _ => None,
    }
}

fn integers(array: &ArrayRef) -> Integers {
    if let Some(values) = array.as_boolean_opt() {
        return values.iter().map(|value| value.map(i128::from)).collect();
    }
    if let Some(values) = array.as_primitive_opt::<Int16Type>() {
        return values.iter().map(|value| value.map(i128::from)).collect();
    }
    if let Some(values) = array.as_primitive_opt::<Int64Type>() {
        return values.iter().map(|value| value.map(i128::from)).collect();
    }
    array.as_primitive_opt::<Decimal128Type>().map(|values| values.iter().collect()).unwrap_or_default()
}
