//! Views compared with the rows of their tables, for verification.
//!
//! At one moment of a table, part by part, so that memory is bounded however many groups there are:
//!
//! 1. Rows are added up from where the part before ended, until their groups take what those of a read may.
//! 2. The view is read between the same two keys, through its partial aggregates: it must have the same groups.
//!
//! Groups are compared as they are kept, not as they are answered: a sum that is too large for its type is no fault of
//! the files.

use std::sync::Arc;

use arc_swap::Guard;
use mycelium_base::{Error, Result};

use super::definition::ViewDefinition;
use super::read::{Moment, RowScan, read_groups};
use crate::database::Inner;
use crate::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use crate::table::TableShared;

impl Inner {
    /// Reads every view through its partial aggregates and from rows, at one snapshot; `found` is told of each
    /// difference, and of partial aggregates that cannot be read. How many it compared.
    pub(crate) fn verify_views(&self, mut found: impl FnMut(&str, Error)) -> Result<u64> {
        let mut compared = 0;
        let tables: Vec<Arc<TableShared>> = self.core.lock().tables.values().cloned().collect();
        for table in tables {
            let snapshot = self.take_snapshot();
            // A table that was dropped meanwhile has nothing to compare.
            let Ok((state, sequence)) = self.read_moment(&table, Some(&snapshot)) else { continue };
            let moment = (Guard::into_inner(state), sequence);
            for view in table.views.load().iter() {
                compared += 1;
                let fault = match adds_up(&table, view, &moment, &snapshot, self.groups_budget()) {
                    Ok(true) => continue,
                    Ok(false) => Error::corruption("the partial aggregates of the view are not those of its rows"),
                    Err(error) if error.is_corruption() => error,
                    Err(error) => return Err(error),
                };
                found(&format!("{}/{}", table.name, view.name), fault);
            }
        }
        Ok(compared)
    }
}

/// Whether the partial aggregates of a view are those of its rows. `budget`: what the groups of a part may take.
fn adds_up(
    table: &TableShared,
    view: &ViewDefinition,
    moment: &Moment,
    snapshot: &Snapshot,
    budget: usize,
) -> Result<bool> {
    let options = ReadOptions { fill_cache: false, read_ahead: 256 << 10, ..ReadOptions::at(snapshot) };
    let mut rows = RowScan::new(table, None, moment.clone(), &options, view, budget)?;
    let mut from = Vec::new();
    loop {
        let to = rows.add_part(&from)?;
        let part = ReadOptions { lower: Some(from), upper: to.clone(), ..options.clone() };
        // They take as much as those of the rows, or are others.
        let (groups, _) = read_groups(table, view, moment.clone(), &part, usize::MAX)?;
        if groups != rows.groups {
            return Ok(false);
        }
        let Some(to) = to else { return Ok(true) };
        rows.groups.clear();
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use mycelium_encoding::{DatumRef, Schema};
    use mycelium_vfs::MemoryDisk;

    use super::*;
    use crate::database::Database;
    use crate::options::{Background, Durability, Options, TableOptions};
    use crate::view::ViewOptions;

    /// More groups than a read may hold made a fault of the database.
    #[test]
    fn a_view_of_more_groups_than_fit_is_compared_part_by_part() {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let schema = Schema::parse("id int64 not null, n int32, primary key (id)").unwrap();
        let options = TableOptions { block_size: 512, ..TableOptions::default() };
        let table = database.create_typed_table("t", schema, options).unwrap();
        let view = |name: &str, group_by: &[&str]| {
            let group_by = group_by.iter().map(|&column| column.to_owned()).collect();
            let aggregates = vec!["count(*)".into(), "sum(n)".into(), "max(id)".into()];
            database.create_view(&table, &ViewOptions { name: name.into(), group_by, aggregates }).unwrap();
        };
        view("all", &[]);
        view("by_n", &["n"]);
        view("by_id", &["id"]);
        let insert = |id: i64| {
            table.insert_row(&[DatumRef::Int64(id), DatumRef::Int32(id as i32 % 7)], Durability::Os).unwrap();
        };
        (0..600).for_each(insert);
        database.compact(&table).unwrap();
        (100..120).for_each(insert);
        let snapshot = database.inner.take_snapshot();
        let (state, sequence) = database.inner.read_moment(&table.shared, Some(&snapshot)).unwrap();
        let moment = (Guard::into_inner(state), sequence);
        for view in table.shared.views.load().iter() {
            // Of one group, of all of "by_n", of many.
            for budget in [0, 300, 5_000, usize::MAX] {
                assert!(adds_up(&table.shared, view, &moment, &snapshot, budget).unwrap(), "{}, {budget}", view.name);
            }
        }
        let faults = std::cell::Cell::new(0);
        assert_eq!(database.inner.verify_views(|_, _| faults.set(faults.get() + 1)).unwrap(), 3);
        assert_eq!(faults.get(), 0);
    }
}
