//! The same workloads against RocksDB, fjall, redb and LMDB, in alternating runs, with ratios and their spread; LASER's
//! workload HW against PostgreSQL and DuckDB; analytical SQL against DuckDB.
//!
//! ```text
//! cargo xtask peers -- --engines mycelium,rocksdb --repetitions 3 --json-file peers.json
//! ```
//!
//! Built through `cargo xtask peers`, which gives RocksDB's C++ its fast CRC and AVX2 paths.

mod aligned;
#[cfg(feature = "sql")]
mod analytics;
mod buffer;
mod dictionary;
mod duckdb;
mod fjall_store;
mod gather;
mod htap;
mod lmdb;
mod postgresql;
mod redb_store;
mod rocks;
mod scenarios;
mod sql;
mod transformations;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mycelium_bench::experiments::aligned::{AlignedSettings, run as run_aligned};
#[cfg(feature = "sql")]
use mycelium_bench::experiments::analytics::{AnalyticsSettings, run_flights, run_tpch};
use mycelium_bench::experiments::buffer::{BufferSettings, run as run_buffer};
use mycelium_bench::experiments::dictionary::{DictionarySettings, Part as DictionaryPart, run as run_dictionary};
use mycelium_bench::experiments::htap::{HtapSettings, run as run_htap};
use mycelium_bench::experiments::laser::{self, HybridRival, LaserSettings};
use mycelium_bench::experiments::transformations::{TransformationSettings, run as run_transformations};
use mycelium_bench::{Report, Result, RunSettings, StoreFactory, isolation, run_scenarios};

/// Compares Mycelium with other storage engines.
#[derive(Parser, Debug)]
struct Line {
    /// Engines to run, in order, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "mycelium,rocksdb")]
    engines: Vec<String>,
    /// Run only scenarios whose names contain one of these (100b, 1kb, cache-tenth, cache-all, none, lz4), separated by
    /// commas; a name must contain all of the parts joined by `+`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Fraction of the entries of the comparison (1 is 5 million x 100 B and 1 million x 1,024 B), or of the
    /// experiments `transformations`, `buffer`, `htap`, `tpch`, `flights`, `laser-hw` and `dictionary-…`.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Times that everything is run.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// Seconds of every reading phase.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// A twentieth of the entries, one second a phase, one repetition: to see that everything runs.
    #[arg(long)]
    quick: bool,
    /// Mebibytes of memory, page cache included: by a cgroup where one can be made, else by direct I/O.
    #[arg(long)]
    memory_limit_mib: Option<u64>,
    /// Where stores are made and removed.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("mycelium-peers"))]
    directory: PathBuf,
    /// Write the report as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Where the experiments `laser-hw`, `buffer` and `transformations` write their plots; nowhere if not given.
    #[arg(long, value_name = "DIRECTORY")]
    svg_dir: Option<PathBuf>,
    /// Of the experiments `dictionary-…` only these contenders: columnar, rows, rocksdb, blobdb, ...; of `buffer`:
    /// buffer, leveled, rocksdb, ...; of `transformations`: no-transform, protobuf/augment, rocksdb, ...
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER")]
    contenders: Vec<String>,
    /// Of the experiments `dictionary-…` only the tables whose names contain one of these: size-128, ndv, zipf-1.5,
    /// ...; of `buffer` only the cells: disk/range-hot, zipfian, ...
    #[arg(long, value_delimiter = ',', value_name = "TABLE")]
    cells: Vec<String>,
    /// Columns of the table of `laser-hw`: the paper has 30 and 100.
    #[arg(long, default_value_t = 30)]
    columns: usize,
    /// Run an experiment of the papers with rivals beside it, instead of the comparison.
    #[arg(long, value_enum)]
    experiment: Option<Experiment>,
    /// Name the scenarios and leave.
    #[arg(long)]
    list: bool,
}

/// Experiments that compare with other databases.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Experiment {
    /// Aligned compaction off and on, and RocksDB's line.
    AlignedCompaction,
    /// Point reads of recent data while everything moves, and RocksDB with its HyperClock cache, on the disk as it is.
    Buffer,
    /// TPC-H's queries 1 and 6 in SQL, and DataFusion over Arrow and DuckDB, which is needed as for `laser-hw`.
    #[cfg(feature = "sql")]
    Tpch,
    /// Three million flights in SQL, likewise.
    #[cfg(feature = "sql")]
    Flights,
    /// Point reads, single writes and scans in one table, and RocksDB, DuckDB and PostgreSQL, which are needed as for
    /// `laser-hw`.
    Htap,
    /// Split and convert inside compaction, and rows in RocksDB.
    Transformations,
    /// LASER's workload HW, and PostgreSQL, DuckDB and the ideal pair of them. Needs Debian's package `postgresql` and
    /// a Python with the package `duckdb`, which `cargo xtask peers` installs.
    LaserHw,
    /// LSM-OPD's figures 6, 7 and 9 by the size of values, and RocksDB in six ways.
    DictionarySizes,
    /// Its figures 8 and 9 by the number and distribution of values and by selectivity.
    DictionaryValues,
    /// Its figure 10.
    DictionaryTimeline,
    /// Its figure 1.
    DictionaryStages,
}

impl Line {
    /// The scale of what is run, and how often it is.
    fn extent(&self) -> (f64, u32) {
        if self.quick { (self.scale / 20.0, 1) } else { (self.scale, self.repetitions) }
    }
}

/// One part of the experiments on dictionaries, with all of [`dictionary::RIVALS`].
fn run_dictionary_part(line: &Line, part: DictionaryPart, report: &mut Report) -> Result<()> {
    let (scale, repetitions) = line.extent();
    let settings = DictionarySettings {
        repetitions,
        contenders: line.contenders.clone(),
        cells: line.cells.clone(),
        ..DictionarySettings::new(&line.directory).scaled(scale)
    };
    run_dictionary(part, &settings, &dictionary::RIVALS, report.dictionary.get_or_insert_default())
}

fn run_experiment(line: &Line, experiment: Experiment) -> Result<Report> {
    let mut report = Report::new(None);
    std::fs::create_dir_all(&line.directory)?;
    let (scale, repetitions) = line.extent();
    match experiment {
        Experiment::AlignedCompaction => {
            let mut settings = AlignedSettings::new(&line.directory);
            if line.quick {
                settings.file_bytes /= 8;
            }
            report.aligned = Some(run_aligned(&settings, Some(&aligned::write_amplification))?);
        }
        Experiment::Buffer => {
            let settings = BufferSettings {
                scale,
                contenders: line.contenders.clone(),
                cells: line.cells.clone(),
                ..BufferSettings::new(&line.directory)
            };
            report.buffer = Some(run_buffer(&settings, &buffer::RIVALS)?);
        }
        Experiment::Htap => {
            let settings = HtapSettings { scale, ..HtapSettings::new(&line.directory) };
            report.htap = Some(run_htap(&settings, &htap::RIVALS)?);
        }
        #[cfg(feature = "sql")]
        Experiment::Tpch => {
            let settings = AnalyticsSettings { scale, ..AnalyticsSettings::new(&line.directory) };
            report.tpch = Some(run_tpch(&settings, &analytics::RIVALS)?);
        }
        #[cfg(feature = "sql")]
        Experiment::Flights => {
            let settings = AnalyticsSettings { scale, ..AnalyticsSettings::new(&line.directory) };
            report.flights = Some(run_flights(&settings, &analytics::RIVALS)?);
        }
        Experiment::LaserHw => {
            let settings = LaserSettings { scale, columns: line.columns, ..LaserSettings::new(&line.directory) };
            // The row store first, as the pair is made up.
            let rivals = [
                HybridRival { name: "PostgreSQL", load: &postgresql::load },
                HybridRival { name: "DuckDB", load: &duckdb::load },
            ];
            laser::run(laser::Part::Hybrid, &settings, &rivals, report.laser.get_or_insert_default())?;
        }
        Experiment::DictionarySizes => run_dictionary_part(line, DictionaryPart::Sizes, &mut report)?,
        Experiment::DictionaryValues => run_dictionary_part(line, DictionaryPart::Values, &mut report)?,
        Experiment::DictionaryTimeline => run_dictionary_part(line, DictionaryPart::Timeline, &mut report)?,
        Experiment::DictionaryStages => run_dictionary_part(line, DictionaryPart::Stages, &mut report)?,
        Experiment::Transformations => {
            let settings = TransformationSettings::new(&line.directory).scaled(scale);
            let settings = TransformationSettings { repetitions, contenders: line.contenders.clone(), ..settings };
            report.transformations = Some(run_transformations(&settings, Some(&transformations::open))?);
        }
    }
    Ok(report)
}

fn factories() -> Vec<&'static dyn StoreFactory> {
    vec![
        &mycelium_bench::MyceliumFactory,
        &rocks::RocksFactory,
        &fjall_store::FjallFactory,
        &redb_store::RedbFactory,
        &lmdb::LmdbFactory,
    ]
}

fn run(line: &Line) -> Result<()> {
    if let Some(experiment) = line.experiment {
        return finish(&run_experiment(line, experiment)?, line);
    }
    let factories = factories();
    let (scale, repetitions) = line.extent();
    let seconds = if line.quick { 1.0 } else { line.seconds };
    let scenarios = scenarios::scenarios(scale, seconds, &line.only);
    if line.list {
        for scenario in &scenarios {
            println!("{}", scenario.name);
        }
        return Ok(());
    }
    let engines: Vec<&str> = line.engines.iter().map(String::as_str).collect();
    for engine in &engines {
        if !factories.iter().any(|factory| factory.name() == *engine) {
            let known: Vec<_> = factories.iter().map(|factory| factory.name()).collect();
            return Err(format!("there is no engine {engine:?}; there are {}", known.join(", ")).into());
        }
    }
    let settings = RunSettings {
        directory: line.directory.clone(),
        repetitions,
        isolate: true,
        memory_limit: line.memory_limit_mib.map(|mib| mib << 20),
        subject: engines.first().map(|engine| (*engine).to_owned()),
        progress: true,
    };
    let report = run_scenarios(&scenarios, &engines, &settings, &factories)?;
    finish(&report, line)
}

fn finish(report: &Report, line: &Line) -> Result<()> {
    print!("{}", report.table());
    if let Some(path) = &line.json_file {
        report.write_json(path)?;
    }
    if let Some(directory) = &line.svg_dir {
        report.draw(directory)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    isolation::serve_if_child(&factories());
    match run(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error}");
            ExitCode::FAILURE
        }
    }
}
