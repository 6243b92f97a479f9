//! What workload HW asks of a table, so that other databases can run it beside ours (figure 8: PostgreSQL, MonetDB,
//! HTAP-X).

use std::path::Path;

use mycelium_engine::ReadCounters;

use super::table::{Aggregate, LaserTable, Rows};
use crate::store::Result;

/// A table of [`Rows`] that workload HW runs on. Every answer is one number, the same for all tables.
pub trait HybridTable {
    /// Q1: inserts row `index`.
    fn insert(&mut self, index: u64) -> Result<()>;

    /// Q5: sets `a<column>` of row `index`.
    fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()>;

    /// Q2: the sum of some columns, from 1 on, of row `index`, which must be there. Adds what was read to `counters`,
    /// if that is known.
    fn point(&mut self, index: u64, projection: &[usize], counters: &mut ReadCounters) -> Result<i64>;

    /// Q3 and Q4: the sum, over some columns, of an aggregate of the rows with keys in `[from, to)`.
    fn scan(
        &mut self,
        keys: (u64, u64),
        projection: &[usize],
        aggregate: Aggregate,
        counters: &mut ReadCounters,
    ) -> Result<i64>;

    /// Comes before every scan and is not timed: ends what gathers writes, where that is done.
    fn commit(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits until it compacts nothing, where that is known.
    fn wait_idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Closes and removes it.
    fn remove(self: Box<Self>) -> Result<()>;
}

/// Makes a table in an empty directory and loads so many of the rows; it may cache so many bytes.
pub type LoadTable<'a> = &'a dyn Fn(&Path, Rows, u64, u64) -> Result<Box<dyn HybridTable>>;

/// Another database.
pub struct HybridRival<'a> {
    /// How reports call it.
    pub name: &'a str,
    /// Makes its table.
    pub load: LoadTable<'a>,
}

impl HybridTable for LaserTable {
    fn insert(&mut self, index: u64) -> Result<()> {
        LaserTable::insert(self, index)
    }

    fn update(&mut self, index: u64, column: usize, value: i32) -> Result<()> {
        LaserTable::update(self, index, column, value)
    }

    fn point(&mut self, index: u64, projection: &[usize], counters: &mut ReadCounters) -> Result<i64> {
        LaserTable::point(self, index, projection, counters)
    }

    fn scan(
        &mut self,
        keys: (u64, u64),
        projection: &[usize],
        aggregate: Aggregate,
        counters: &mut ReadCounters,
    ) -> Result<i64> {
        LaserTable::scan(self, keys, projection, aggregate, counters)
    }

    fn remove(self: Box<Self>) -> Result<()> {
        LaserTable::remove(*self)
    }
}
