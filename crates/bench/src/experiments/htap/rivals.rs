//! Other databases beside ours in both halves of the workload.
//!
//! 1. Each is loaded with the same rows by its fastest way, in a directory of its own, after our database is closed.
//! 2. Q3 and Q4 are asked of it as of ours; then all of it is scanned, as ours is, to fill its caches, and Q2 is asked
//!    in as many turns. Then Q5 and Q1 change single rows, each its own transaction. One thread asks; how many a scan
//!    has inside is up to the rival, which may use all cores as ours does.
//! 3. Q3 and Q4 must answer as ours did on the compacted table.

use std::fs;
use std::path::Path;
use std::time::Instant;

use mycelium_engine::ReadCounters;
use serde::{Deserialize, Serialize};

use super::{COLUMNS, Query, SCANS, TABLE_ROWS, TURNS, for_so_long};
use crate::experiments::laser::{Aggregate, HybridRival, HybridTable};
use crate::keys::mix;
use crate::statistics::Spread;
use crate::store::Result;

/// What a rival showed; rates are a second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RivalFigures {
    /// Rows loaded.
    pub load: f64,
    /// Whole rows by key.
    pub q2_points: f64,
    /// The greatest value of three columns over half of the keys, milliseconds.
    pub q3_milliseconds: Spread,
    /// The sums of ten columns over a twentieth of them, milliseconds.
    pub q4_milliseconds: Spread,
    /// Changes of one column of one row.
    pub q5_updates: f64,
    /// Single inserts.
    pub q1_inserts: f64,
}

/// How many times as fast as a rival ours is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OverRival {
    /// Whole rows by key.
    pub q2: f64,
    /// The greatest value of three columns.
    pub q3: f64,
    /// The sums of ten columns.
    pub q4: f64,
    /// Changes of one column.
    pub q5: f64,
    /// Single inserts.
    pub q1: f64,
}

/// What is asked of a rival.
pub(super) struct Asked<'a> {
    pub(super) directory: &'a Path,
    pub(super) rows: u64,
    pub(super) cache_bytes: u64,
    pub(super) seconds: f64,
    /// Our answers to Q3 and Q4.
    pub(super) expected: [i64; 2],
}

impl Asked<'_> {
    pub(super) fn of(&self, rival: &HybridRival<'_>) -> Result<RivalFigures> {
        let directory = self.directory.join(rival.name);
        fs::create_dir_all(&directory)?;
        let started = Instant::now();
        let mut table = (rival.load)(&directory, TABLE_ROWS, self.rows, self.cache_bytes)?;
        let load = self.rows as f64 / started.elapsed().as_secs_f64();
        let q3_milliseconds = self.scan(&mut *table, Query::Q3, rival.name)?;
        let q4_milliseconds = self.scan(&mut *table, Query::Q4, rival.name)?;
        let q2_points = self.points(&mut *table)?;
        let q5_updates = for_so_long(self.seconds, |draw| {
            table.update(draw % self.rows, 5, draw as i32)?;
            table.commit()
        })?;
        // Rows that no other phase has.
        let mut next = 2 * self.rows + mix(1) % self.rows;
        let q1_inserts = for_so_long(self.seconds, |_| {
            next += 1;
            table.insert(next)?;
            table.commit()
        })?;
        table.remove()?;
        Ok(RivalFigures { load, q2_points, q3_milliseconds, q4_milliseconds, q5_updates, q1_inserts })
    }

    /// Whole rows a second by key, the median of the turns.
    fn points(&self, table: &mut dyn HybridTable) -> Result<f64> {
        let all: Vec<usize> = (1..=COLUMNS).collect();
        let mut reads = ReadCounters::default();
        table.scan((0, u64::MAX), &all, Aggregate::Maxima, &mut reads)?;
        let mut rates = Vec::new();
        for number in 0..TURNS {
            let read = |draw| table.point(mix(draw + number) % self.rows, &all, &mut reads).map(drop);
            rates.push(for_so_long(self.seconds / TURNS as f64, read)?);
        }
        Ok(Spread::of(rates).ok_or("nothing was measured")?.median)
    }

    fn scan(&self, table: &mut dyn HybridTable, query: Query, name: &str) -> Result<Spread> {
        let (aggregate, expected) = match query {
            Query::Q3 => (Aggregate::Maxima, self.expected[0]),
            Query::Q4 => (Aggregate::Sums, self.expected[1]),
        };
        let mut times = Vec::new();
        // The first one fills caches.
        for turn in 0..=SCANS {
            let started = Instant::now();
            let answer = table.scan(query.keys(), &query.columns(), aggregate, &mut ReadCounters::default())?;
            if answer != expected {
                return Err(format!("{name} answers {query:?} by {answer}, not by {expected}").into());
            }
            if turn > 0 {
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
        }
        Spread::of(times).ok_or_else(|| "nothing was measured".into())
    }
}

impl RivalFigures {
    /// As a person reads it.
    pub(super) fn line(&self, name: &str) -> String {
        format!(
            "{name}: loaded {:.0} rows/s, Q1 {:.0} inserts/s, Q2 {:.0} rows/s, Q3 {:.1} ms, Q4 {:.1} ms, Q5 {:.0} updates/s",
            self.load,
            self.q1_inserts,
            self.q2_points,
            self.q3_milliseconds.median,
            self.q4_milliseconds.median,
            self.q5_updates
        )
    }
}
