//! What is done for one table in databases of 10 to 10,000 tables: none of it should grow with the others.
//!
//! For each number of tables, in a database of its own, by hand and without syncs, so that what is measured is what the
//! engine does:
//!
//! 1. *create* all tables; *spread* one row into each, the first of its generation; *flush* them all.
//! 2. *put* rows into one table, then *flush one*: one row and its flush, again and again; *compact one*: its files.
//!    *look*: a look for work when there is none.
//! 3. *open*: close the database and open it again; *drop* a tenth of the tables.
//!
//! All but *look* are told by the table or the row. *Growth* is what the largest number costs over what the smallest
//! does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use mycelium_engine::{Background, Database, Durability, Options, Table, TableOptions};
use mycelium_vfs::LocalDisk;
use serde::{Deserialize, Serialize};

use crate::bench_disk::BenchDisk;
use crate::store::Result;

/// Numbers of tables at scale 1.
const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
/// Rows that are put into one table.
const PUTS: u32 = 20_000;
/// Times that one table is flushed, and that work is looked for.
const ROUNDS: u32 = 100;
/// Files of a table that are compacted.
const FILES: u32 = 4;

/// How it is run.
#[derive(Clone, Debug)]
pub struct TablesSettings {
    /// Where databases are made and removed.
    pub directory: PathBuf,
    /// Of the numbers of tables.
    pub scale: f64,
    /// Tell on standard error what is running.
    pub progress: bool,
}

impl TablesSettings {
    /// The settings of the claims.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), scale: 1.0, progress: true }
    }

    fn counts(&self) -> impl Iterator<Item = usize> {
        let scale = self.scale;
        COUNTS.into_iter().map(move |count| ((count as f64 * scale) as usize).max(1))
    }
}

/// Microseconds of each operation.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Costs {
    /// The creation of a table.
    pub create: f64,
    /// The first row of a table in a generation.
    pub spread: f64,
    /// A table of a flush of all.
    pub flush: f64,
    /// A row of one table.
    pub put: f64,
    /// A row of one table, and its flush.
    pub flush_one: f64,
    /// A compaction of one table.
    pub compact_one: f64,
    /// A look for work when there is none.
    pub look: f64,
    /// A table of an opening.
    pub open: f64,
    /// The dropping of a table.
    pub drop: f64,
}

impl Costs {
    fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("create", self.create),
            ("spread", self.spread),
            ("flush", self.flush),
            ("put", self.put),
            ("flush one", self.flush_one),
            ("compact one", self.compact_one),
            ("look", self.look),
            ("open", self.open),
            ("drop", self.drop),
        ]
    }

    fn over(&self, other: &Self) -> Self {
        Self {
            create: self.create / other.create,
            spread: self.spread / other.spread,
            flush: self.flush / other.flush,
            put: self.put / other.put,
            flush_one: self.flush_one / other.flush_one,
            compact_one: self.compact_one / other.compact_one,
            look: self.look / other.look,
            open: self.open / other.open,
            drop: self.drop / other.drop,
        }
    }
}

/// A database of so many tables.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TablesFigures {
    /// How many.
    pub tables: usize,
    /// What its operations took.
    pub microseconds: Costs,
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TablesReport {
    /// By number of tables, ascending.
    pub databases: Vec<TablesFigures>,
    /// The last over the first.
    pub growth: Costs,
}

/// Runs all numbers of tables.
pub fn run(settings: &TablesSettings) -> Result<TablesReport> {
    let mut databases = Vec::new();
    for tables in settings.counts() {
        let microseconds = run_database(settings, tables)?;
        if settings.progress {
            eprintln!("{tables} tables: {} us to flush one", microseconds.flush_one.round());
        }
        databases.push(TablesFigures { tables, microseconds });
    }
    let growth = match (databases.last(), databases.first()) {
        (Some(last), Some(first)) => last.microseconds.over(&first.microseconds),
        _ => Costs::default(),
    };
    Ok(TablesReport { databases, growth })
}

fn open(directory: &Path) -> Result<Database> {
    let disk = Arc::new(BenchDisk::new(Arc::new(LocalDisk), false, true));
    Ok(Database::open(directory, Options { disk, background: Background::Manual, ..Options::default() })?)
}

/// Microseconds of one of so many.
fn each(count: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64() * 1e6 / count as f64)
}

fn run_database(settings: &TablesSettings, count: usize) -> Result<Costs> {
    let directory = settings.directory.join(format!("tables-{count}-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let mut costs = Costs::default();
    {
        let database = open(&directory)?;
        let mut tables = Vec::with_capacity(count);
        costs.create = each(count, || {
            for n in 0..count {
                tables.push(database.create_table(&name(n), TableOptions::default())?);
            }
            Ok(())
        })?;
        run_writes(&database, &tables, &mut costs)?;
        drop(tables);
        database.close()?;
    }
    let mut opened = None;
    costs.open = each(count, || {
        opened = Some(open(&directory)?);
        Ok(())
    })?;
    if let Some(database) = opened {
        let dropped = count.div_ceil(10);
        costs.drop = each(dropped, || {
            for n in 0..dropped {
                database.drop_table(&name(n))?;
            }
            Ok(())
        })?;
        database.close()?;
    }
    fs::remove_dir_all(&directory)?;
    Ok(costs)
}

fn run_writes(database: &Database, tables: &[Table], costs: &mut Costs) -> Result<()> {
    let Some(one) = tables.get(tables.len() / 2) else { return Ok(()) };
    costs.spread = each(tables.len(), || put_into(tables, 0))?;
    costs.flush = each(tables.len(), || Ok(database.flush()?))?;
    costs.put = each(PUTS as usize, || {
        for row in 0..PUTS {
            one.put(&row.to_be_bytes(), &[7; 20], Durability::Buffered)?;
        }
        Ok(())
    })?;
    database.flush()?;
    while database.step()? {}
    costs.flush_one = each(ROUNDS as usize, || {
        for row in 0..ROUNDS {
            put_into(std::slice::from_ref(one), row)?;
            database.flush()?;
        }
        Ok(())
    })?;
    while database.step()? {}
    for row in 0..FILES {
        put_into(std::slice::from_ref(one), row)?;
        database.flush()?;
    }
    costs.compact_one = each(1, || Ok(database.compact(one)?))?;
    while database.step()? {}
    costs.look = each(ROUNDS as usize, || {
        for _ in 0..ROUNDS {
            database.step()?;
        }
        Ok(())
    })?;
    Ok(())
}

fn name(n: usize) -> String {
    format!("table-{n}")
}

fn put_into(tables: &[Table], row: u32) -> Result<()> {
    for table in tables {
        table.put(&row.to_be_bytes(), &[7; 20], Durability::Buffered)?;
    }
    Ok(())
}

impl TablesReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = String::from("microseconds by number of tables, and how they grow\n");
        for (at, (name, growth)) in self.growth.named().into_iter().enumerate() {
            out += &format!("  {name:<12}");
            for database in &self.databases {
                let (_, cost) = database.microseconds.named()[at];
                out += &format!(" {:>6}: {cost:>9.2}", database.tables);
            }
            out += &format!("  {growth:>7.2}x\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_tables_are_measured() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = TablesSettings { scale: 0.01, progress: false, ..TablesSettings::new(directory.path()) };
        let report = run(&settings).expect("experiment");
        let counts: Vec<usize> = report.databases.iter().map(|database| database.tables).collect();
        assert_eq!(counts, [1, 1, 10, 100]);
        let costs = report.databases.iter().flat_map(|database| database.microseconds.named());
        assert!(costs.map(|(_, cost)| cost).all(|cost| cost > 0.0 && cost.is_finite()));
        assert!(report.table().contains("flush one") && report.growth.put > 0.0);
    }
}
