//! Other databases beside ours in both halves of the workload.
//!
//! 1. Each is loaded with the same rows by its fastest way, in a directory of its own, while our database lies idle.
//! 2. Q3 and Q4 are asked of it and of ours in turns; then all of both is scanned, to fill caches, and Q2 is asked in
//!    turns. Then Q5 and Q1 change single rows, each its own transaction, in longer turns, after each of which that
//!    database may finish what it compacts. One thread asks; how many a scan has inside is up to the rival, which may
//!    use all cores as ours does.
//! 3. Q3 and Q4 must answer as ours does.
//!
//! Rates are medians of turns; how many times as fast ours is is the median of the turns' quotients, since minutes of
//! the same machine differ by more than databases do. Reads find our table compacted, as the rival's is; writes go to
//! the table that all the phases before have written to.

use std::fs;
use std::path::Path;
use std::time::Instant;

use mycelium_engine::{ReadCounters, ScanOptions, Table};
use serde::{Deserialize, Serialize};

use super::{COLUMNS, Htap, Query, SCANS, TABLE_ROWS, TURNS, for_so_long, insert, read};
use crate::experiments::laser::{Aggregate, HybridRival, HybridTable};
use crate::keys::mix;
use crate::statistics::Spread;
use crate::store::Result;

/// Turns of each at writes.
const WRITE_TURNS: u64 = 3;

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

/// Ours, which takes turns with a rival.
pub(super) struct Beside<'a> {
    htap: &'a Htap<'a>,
    /// Of ours, the table that stays compacted.
    settled: &'a Table,
    directory: &'a Path,
    /// Our answers to Q3 and Q4.
    expected: [i64; 2],
}

/// The median of what a rival needed or did in its turns, and how many times as fast ours was turn by turn.
struct Compared {
    theirs: Spread,
    over: f64,
}

impl Compared {
    /// Of both in each turn, `(theirs, how many times as fast ours was)`.
    fn of(turns: Vec<(f64, f64)>) -> Result<Self> {
        let (theirs, over) = turns.into_iter().unzip();
        let of = |values| Spread::of(values).ok_or("nothing was measured");
        Ok(Self { theirs: of(theirs)?, over: of(over)?.median })
    }
}

impl<'a> Beside<'a> {
    pub(super) fn new(htap: &'a Htap<'a>, settled: &'a Table, directory: &'a Path) -> Result<Self> {
        let mut beside = Self { htap, settled, directory, expected: [0; 2] };
        beside.expected = [beside.answer(Query::Q3)?, beside.answer(Query::Q4)?];
        Ok(beside)
    }

    /// Rivals are numbered, from 1 on.
    pub(super) fn compare(&self, rival: &HybridRival<'_>, number: u64) -> Result<(RivalFigures, OverRival)> {
        let directory = self.directory.join(rival.name);
        fs::create_dir_all(&directory)?;
        let (rows, started) = (self.htap.rows, Instant::now());
        let mut table = (rival.load)(&directory, TABLE_ROWS, rows, self.htap.settings.cache_bytes)?;
        let load = rows as f64 / started.elapsed().as_secs_f64();
        let q3 = self.scans(&mut *table, Query::Q3, rival.name)?;
        let q4 = self.scans(&mut *table, Query::Q4, rival.name)?;
        let q2 = self.points(&mut *table)?;
        let update = |table: &mut dyn HybridTable, draw| table.update(draw % rows, 5, draw as i32);
        let q5 = self.writes(&mut *table, update, |draw| self.htap.update(draw % rows, ["a5"]))?;
        // Rows that no other phase has.
        let (mut next, mut own_next) = (2 * rows + mix(1) % rows, (3 + number) * rows);
        let q1 = self.writes(
            &mut *table,
            |table, _| {
                next += 1;
                table.insert(next)
            },
            |_| {
                own_next += 1;
                insert(&self.htap.table, own_next)
            },
        )?;
        table.remove()?;
        let over = OverRival { q2: q2.over, q3: q3.over, q4: q4.over, q5: q5.over, q1: q1.over };
        let figures = RivalFigures {
            load,
            q2_points: q2.theirs.median,
            q3_milliseconds: q3.theirs,
            q4_milliseconds: q4.theirs,
            q5_updates: q5.theirs.median,
            q1_inserts: q1.theirs.median,
        };
        Ok((figures, over))
    }

    /// Whole rows a second by key.
    fn points(&self, table: &mut dyn HybridTable) -> Result<Compared> {
        let all: Vec<usize> = (1..=COLUMNS).collect();
        let mut reads = ReadCounters::default();
        table.scan((0, u64::MAX), &all, Aggregate::Maxima, &mut reads)?;
        self.settled.scan_batches(ScanOptions::default())?.try_for_each(|batch| batch.map(drop))?;
        let (rows, seconds) = (self.htap.rows, self.htap.seconds() / TURNS as f64);
        let turn = |number| {
            let point = |draw| table.point(mix(draw + number) % rows, &all, &mut reads).map(drop);
            let theirs = for_so_long(seconds, point)?;
            let ours = for_so_long(seconds, |draw| read(self.settled, mix(draw + number) % rows))?;
            Ok((theirs, ours / theirs))
        };
        Compared::of((0..TURNS).map(turn).collect::<Result<_>>()?)
    }

    /// Writes a second, each of them its own transaction. Nobody compacts in the other's turn.
    fn writes(
        &self,
        table: &mut dyn HybridTable,
        mut theirs: impl FnMut(&mut dyn HybridTable, u64) -> Result<()>,
        mut ours: impl FnMut(u64) -> Result<()>,
    ) -> Result<Compared> {
        let seconds = self.htap.seconds() / 2.0;
        let turn = |number| {
            let write = |draw| {
                theirs(table, mix(draw + number))?;
                table.commit()
            };
            let theirs = for_so_long(seconds, write)?;
            table.wait_idle()?;
            let ours = for_so_long(seconds, |draw| ours(mix(draw + number)))?;
            self.htap.database.wait_idle()?;
            Ok((theirs, ours / theirs))
        };
        Compared::of((0..WRITE_TURNS).map(turn).collect::<Result<_>>()?)
    }

    /// Milliseconds of a scan.
    fn scans(&self, table: &mut dyn HybridTable, query: Query, name: &str) -> Result<Compared> {
        let (aggregate, expected) = match query {
            Query::Q3 => (Aggregate::Maxima, self.expected[0]),
            Query::Q4 => (Aggregate::Sums, self.expected[1]),
        };
        let mut turns = Vec::new();
        // The first one fills caches.
        for turn in 0..=SCANS {
            let started = Instant::now();
            let answer = table.scan(query.keys(), &query.columns(), aggregate, &mut ReadCounters::default())?;
            let theirs = started.elapsed().as_secs_f64() * 1e3;
            if answer != expected {
                return Err(format!("{name} answers {query:?} by {answer}, not by {expected}").into());
            }
            let started = Instant::now();
            self.answer(query)?;
            if turn > 0 {
                turns.push((theirs, theirs / (started.elapsed().as_secs_f64() * 1e3)));
            }
        }
        Compared::of(turns)
    }

    /// Our answer as one number, as rivals give it.
    fn answer(&self, query: Query) -> Result<i64> {
        let answers = self.htap.scan(self.settled, query, &mut ReadCounters::default())?;
        Ok(answers.into_iter().fold(0, i64::wrapping_add))
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

impl OverRival {
    /// As a person reads it.
    pub(super) fn line(&self, name: &str) -> String {
        let Self { q2, q3, q4, q5, q1 } = self;
        format!("times as fast as {name}: Q1 {q1:.2}, Q2 {q2:.2}, Q3 {q3:.2}, Q4 {q4:.2}, Q5 {q5:.2}")
    }
}
