//! What views answer, compared with what the rows of their table add up to.
//!
//! Groups are found by text and values added up one by one, apart from the engine's codes and states.

use std::collections::BTreeMap;

use mycelium_base::{Error, Result};
use mycelium_encoding::{Aggregate, Datum, key};
use mycelium_engine::{GroupRow, ReadOptions, Snapshot, Table, View};

use crate::model::Row;

/// Every view of `table` must give what `rows` add up to, which are all there are at the snapshot, packed; and what
/// those of the middle third do.
pub(crate) fn check_views(table: &Table, rows: &[Row], snapshot: Option<&Snapshot>) -> Result<()> {
    let views = table.views();
    if views.is_empty() {
        return Ok(());
    }
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort();
    let cells = rows.iter().map(|row| cells_of(table, row)).collect::<Result<Vec<_>>>()?;
    let (from, to) = (rows.len() / 3, rows.len() * 2 / 3);
    let bound = |at: usize| rows.get(at).map(|(key, _)| key.clone());
    for view in views {
        let all = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
        compare("all rows", &view, &cells, &all)?;
        if let (Some(lower), Some(upper)) = (bound(from), bound(to)) {
            let third = ReadOptions { lower: Some(lower), upper: Some(upper), ..all };
            compare("a third of the rows", &view, &cells[from..to], &third)?;
        }
    }
    Ok(())
}

fn compare(what: &str, view: &View, rows: &[Vec<Datum>], options: &ReadOptions) -> Result<()> {
    let (found, expected) = (view.read(options)?, expected(view, rows));
    if found.rows == expected {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "view {}, {what}: expected {expected:?}, found {:?} by {:?}",
        view.name(),
        found.rows,
        found.counters
    )))
}

fn cells_of(table: &Table, (key, value): &Row) -> Result<Vec<Datum>> {
    let layout = table.packed_layout()?;
    let (schema, row) = (layout.schema(), layout.row(value)?);
    let primary = key::decode_key(schema, key)?;
    let cell = |column: usize| match schema.primary_key().iter().position(|&key| key == column) {
        Some(at) => Ok(primary[at].clone()),
        None if !schema.has_column(column) => Ok(Datum::Null),
        None => Ok(row.datum(column)?.map_or(Datum::Null, |datum| datum.to_datum())),
    };
    (0..schema.columns().len()).map(cell).collect()
}

fn expected(view: &View, rows: &[Vec<Datum>]) -> Vec<GroupRow> {
    let aggregation = view.aggregation();
    let mut groups: BTreeMap<String, (Vec<Datum>, Vec<&Vec<Datum>>)> = BTreeMap::new();
    for row in rows {
        let group: Vec<Datum> = aggregation.group_by().iter().map(|&column| row[column].clone()).collect();
        groups.entry(format!("{group:?}")).or_insert_with(|| (group, Vec::new())).1.push(row);
    }
    if aggregation.group_by().is_empty() {
        groups.entry("[]".to_owned()).or_default();
    }
    let of_group = |(group, rows): (Vec<Datum>, Vec<&Vec<Datum>>)| {
        let aggregates = aggregation.aggregates().iter().map(|aggregate| computed(*aggregate, &rows)).collect();
        GroupRow { group, aggregates }
    };
    let mut expected: Vec<GroupRow> = groups.into_values().map(of_group).collect();
    expected.sort_by(|a, b| a.group.cmp(&b.group));
    expected
}

fn computed(aggregate: Aggregate, rows: &[&Vec<Datum>]) -> Datum {
    let values = |column: usize| rows.iter().map(move |row| &row[column]).filter(|value| **value != Datum::Null);
    let count = |count: usize| Datum::Int64(i64::try_from(count).unwrap_or(i64::MAX));
    let extreme = |found: Option<&Datum>| found.cloned().unwrap_or(Datum::Null);
    match aggregate {
        Aggregate::CountRows => count(rows.len()),
        Aggregate::Count(column) => count(values(column).count()),
        Aggregate::Min(column) => extreme(values(column).min()),
        Aggregate::Max(column) => extreme(values(column).max()),
        Aggregate::Sum(column) => {
            let number = |value: &Datum| match value {
                Datum::Int16(v) => i128::from(*v),
                Datum::Int64(v) => i128::from(*v),
                Datum::Decimal128(v) => *v,
                _ => 0,
            };
            let sum = values(column).map(number).reduce(|a, b| a + b);
            sum.map_or(Datum::Null, Datum::Decimal128)
        }
    }
}
