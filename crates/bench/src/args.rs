//! The options of `mycelium bench`, and the entry point behind it.

use std::path::PathBuf;

use clap::Args;

#[cfg(feature = "sql")]
use crate::experiments::analytics;
use crate::experiments::{
    aligned, buffer, dictionary, htap, kernels, laser, prefix_filters, snapshot_filters, tables, transformations,
};
use crate::isolation;
use crate::keys::ValueKind;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::schedule::{RunSettings, run_scenarios};
use crate::store::{Compression, Result, StoreFactory, StoreOptions};
use crate::workloads::{Dataset, Pace, Phase};

/// What to run and how. A set of clap arguments; `BenchArgs::default()` is what an empty command line gives.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Workloads in order, `NAME` or `NAME@THREADS`: fillseq fillrandom fillbatch overwrite readrandom readmissing
    /// seekrandom range100 scan readwhilewriting deleterandom ycsb-a … ycsb-f. A fill starts a new store. Or an
    /// experiment: aligned-compaction, snapshot-filters, prefix-filters, transformations, buffer, htap, tpch, flights,
    /// kernels, tables, laser-hw, laser-cost-model, laser-age, laser-sizes, laser-robustness, dictionary-sizes,
    /// dictionary-values, dictionary-timeline, dictionary-stages.
    #[arg(default_values_t = default_workloads(), value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// Entries that a fill stores.
    #[arg(long, default_value_t = 1_000_000)]
    pub entries: u64,
    /// Bytes of a value (at least 8; keys are 16).
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Values that do not compress, rather than to about half.
    #[arg(long)]
    pub random_values: bool,
    /// Mebibytes of the block cache.
    #[arg(long, default_value_t = 512)]
    pub cache_mib: u64,
    /// Bits of Bloom filter per key.
    #[arg(long, default_value_t = 10)]
    pub filter_bits: u32,
    /// Compress blocks with LZ4.
    #[arg(long)]
    pub lz4: bool,
    /// Bytes of a block.
    #[arg(long, default_value_t = 4096)]
    pub block_size: u32,
    /// Mebibytes of a write buffer.
    #[arg(long, default_value_t = 64)]
    pub write_buffer_mib: u64,
    /// Threads of background work.
    #[arg(long, default_value_t = 2)]
    pub background_threads: u32,
    /// Read files past the page cache.
    #[arg(long)]
    pub direct_io: bool,
    /// Mebibytes of memory, page cache included: by a cgroup where one can be made, else by direct I/O.
    #[arg(long)]
    pub memory_limit_mib: Option<u64>,
    /// Seconds of every workload that does not only write.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Seconds of warm-up before each of them.
    #[arg(long, default_value_t = 1.0)]
    pub warmup_seconds: f64,
    /// Times that everything is run.
    #[arg(long, default_value_t = 1)]
    pub repetitions: u32,
    /// Size of the experiments `prefix-filters`, `transformations`, `buffer`, `htap`, `tpch`, `flights`, `kernels`,
    /// `tables`, `laser-…` and `dictionary-…`, as a fraction of that of the claims.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Of the experiment `transformations` only the writes of these contenders, for a profile: no-transform,
    /// protobuf/split, ...
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER")]
    pub writers: Vec<String>,
    /// Of the experiments `dictionary-…` only these contenders: rows, columnar; of `buffer`: read-only,
    /// read-only-beside, leveled, two-phase, buffer, buffer-successors, stepped-merge, admit-inputs, successors,
    /// warm-everything; of `transformations`: no-transform, protobuf/split, ...
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER")]
    pub contenders: Vec<String>,
    /// Of the experiments `dictionary-…` only the tables whose names contain one of these: size-128, ndv, zipf-1.5, ...
    /// Of `buffer` only the cells: slowed/range-hot, disk, zipfian, ...
    #[arg(long, value_delimiter = ',', value_name = "TABLE")]
    pub cells: Vec<String>,
    /// Of the experiment `htap`: flushes encode, so that level 0 is columnar, too.
    #[arg(long)]
    pub columnar_level0: bool,
    /// Columns of the tables of `laser-…`, but of `laser-cost-model`, which has both the paper's: 30 and 100.
    #[arg(long, default_value_t = 30)]
    pub columns: usize,
    /// Also write the plots of `laser-…`, `buffer` and `transformations` to this directory, as SVG.
    #[arg(long, value_name = "DIRECTORY")]
    pub svg_dir: Option<PathBuf>,
    /// Run nothing, but draw the plots of the report in this file, which `--json-file` wrote.
    #[arg(long, value_name = "FILE", requires = "svg_dir")]
    pub redraw: Option<PathBuf>,
    /// Seed of all random draws.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where stores are made and removed.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("mycelium-bench"))]
    pub directory: PathBuf,
    /// Where data from the network are kept for the next time: of `flights`.
    #[arg(long, default_value = ".cache", value_name = "DIRECTORY")]
    pub data_dir: PathBuf,
    /// Also write the report as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Run everything in this process (memory and caches of workloads then mix).
    #[arg(long)]
    pub no_isolation: bool,
}

/// The name of the experiment on aligned compaction among workloads.
pub const ALIGNED_COMPACTION: &str = "aligned-compaction";

/// The name of the experiment on snapshot filters among workloads.
pub const SNAPSHOT_FILTERS: &str = "snapshot-filters";

/// The name of the experiment on prefix filters among workloads.
pub const PREFIX_FILTERS: &str = "prefix-filters";

/// The name of the experiment on transformations among workloads.
pub const TRANSFORMATIONS: &str = "transformations";

/// The name of the experiment on both halves of a workload among workloads.
pub const HTAP: &str = "htap";

/// The name of the experiment on TPC-H's queries among workloads.
#[cfg(feature = "sql")]
pub const TPCH: &str = "tpch";

/// The name of the experiment on flights among workloads.
#[cfg(feature = "sql")]
pub const FLIGHTS: &str = "flights";

/// The name of the experiment on filter kernels among workloads.
pub const KERNELS: &str = "kernels";

/// The name of the experiment on many tables among workloads.
pub const TABLES: &str = "tables";

/// The name of the experiment on the compaction buffer among workloads.
pub const BUFFER: &str = "buffer";

const EXPERIMENTS: &[&str] = &[
    ALIGNED_COMPACTION,
    SNAPSHOT_FILTERS,
    PREFIX_FILTERS,
    TRANSFORMATIONS,
    BUFFER,
    HTAP,
    #[cfg(feature = "sql")]
    TPCH,
    #[cfg(feature = "sql")]
    FLIGHTS,
    KERNELS,
    TABLES,
];

/// The experiment of LASER with this name.
fn laser_part(name: &str) -> Option<laser::Part> {
    laser::Part::ALL.into_iter().find(|part| part.name() == name)
}

/// The experiment of LSM-OPD with this name.
fn dictionary_part(name: &str) -> Option<dictionary::Part> {
    dictionary::Part::ALL.into_iter().find(|part| part.name() == name)
}

fn is_experiment(name: &str) -> bool {
    EXPERIMENTS.contains(&name) || laser_part(name).is_some() || dictionary_part(name).is_some()
}

fn default_workloads() -> Vec<String> {
    ["fillrandom", "readrandom", "readmissing", "seekrandom", "range100", "scan", "readwhilewriting"]
        .map(str::to_owned)
        .to_vec()
}

impl Default for BenchArgs {
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: BenchArgs,
        }
        <Line as clap::Parser>::parse_from(["bench"]).args
    }
}

impl BenchArgs {
    /// One scenario for each fill among the workloads: a group for the fill, a group for what follows it.
    fn scenarios(&self) -> Result<Vec<Scenario>> {
        let phases = self.workloads.iter().map(|text| text.parse()).collect::<Result<Vec<Phase>>>()?;
        let values = if self.random_values { ValueKind::Random } else { ValueKind::Half };
        if !(crate::keys::STAMP_LEN..=1 << 20).contains(&self.value_bytes) {
            return Err(format!("value bytes must be from 8 to 1 MiB, not {}", self.value_bytes).into());
        }
        let mut scenarios: Vec<Scenario> = Vec::new();
        for phase in phases {
            if phase.workload.fills() {
                scenarios.push(Scenario {
                    name: format!("{}-{phase}", scenarios.len() + 1),
                    dataset: Dataset { entries: self.entries, value_bytes: self.value_bytes, values },
                    options: self.options(),
                    groups: vec![vec![phase]],
                    pace: self.pace(),
                });
                continue;
            }
            let scenario = scenarios.last_mut().ok_or_else(|| format!("{phase} needs data: put a fill before it"))?;
            match scenario.groups.get_mut(1) {
                Some(group) => group.push(phase),
                None => scenario.groups.push(vec![phase]),
            }
        }
        Ok(scenarios)
    }

    fn options(&self) -> StoreOptions {
        StoreOptions {
            cache_bytes: self.cache_mib << 20,
            filter_bits: self.filter_bits,
            compression: if self.lz4 { Compression::Lz4 } else { Compression::None },
            block_size: self.block_size,
            write_buffer_bytes: self.write_buffer_mib << 20,
            background_threads: self.background_threads,
            direct_io: self.direct_io,
        }
    }

    /// Refuses seconds that no clock can wait for.
    fn check_times(&self) -> Result<()> {
        for (name, seconds) in [("--seconds", self.seconds), ("--warmup-seconds", self.warmup_seconds)] {
            if !(0.0..=1e9).contains(&seconds) {
                return Err(format!("{name} {seconds} is no number of seconds from 0 on").into());
            }
        }
        Ok(())
    }

    fn pace(&self) -> Pace {
        Pace { seconds: self.seconds, warmup_seconds: self.warmup_seconds, seed: self.seed, ..Pace::default() }
    }

    /// Runs one of [`EXPERIMENTS`], of LASER's or of LSM-OPD's, and puts what it showed into the report.
    fn run_experiment(&self, name: &str, report: &mut Report) -> Result<()> {
        if let Some(part) = laser_part(name) {
            return laser::run(part, &self.laser_settings(), &[], report.laser.get_or_insert_default());
        }
        if let Some(part) = dictionary_part(name) {
            return dictionary::run(part, &self.dictionary_settings(), &[], report.dictionary.get_or_insert_default());
        }
        match name {
            ALIGNED_COMPACTION => report.aligned = Some(aligned::run(&self.aligned_settings(), None)?),
            SNAPSHOT_FILTERS => {
                report.snapshot_filters = Some(snapshot_filters::run(&self.snapshot_filter_settings())?)
            }
            PREFIX_FILTERS => report.prefix_filters = Some(prefix_filters::run(&self.prefix_filter_settings())?),
            BUFFER => report.buffer = Some(buffer::run(&self.buffer_settings(), &[])?),
            HTAP => report.htap = Some(htap::run(&self.htap_settings(), &[])?),
            #[cfg(feature = "sql")]
            TPCH => report.tpch = Some(analytics::run_tpch(&self.analytics_settings(), &[])?),
            #[cfg(feature = "sql")]
            FLIGHTS => report.flights = Some(analytics::run_flights(&self.analytics_settings(), &[])?),
            KERNELS => report.kernels = Some(kernels::run(&self.kernel_settings())?),
            TABLES => report.tables = Some(tables::run(&self.tables_settings())?),
            _ => report.transformations = Some(transformations::run(&self.transformation_settings(), None)?),
        }
        Ok(())
    }

    fn laser_settings(&self) -> laser::LaserSettings {
        laser::LaserSettings {
            seed: self.seed,
            scale: self.scale,
            columns: self.columns,
            direct_io: self.direct_io,
            ..laser::LaserSettings::new(&self.directory)
        }
    }

    fn aligned_settings(&self) -> aligned::AlignedSettings {
        aligned::AlignedSettings { seed: self.seed, ..aligned::AlignedSettings::new(&self.directory) }
    }

    fn snapshot_filter_settings(&self) -> snapshot_filters::SnapshotFilterSettings {
        snapshot_filters::SnapshotFilterSettings {
            seed: self.seed,
            direct_io: self.direct_io,
            ..snapshot_filters::SnapshotFilterSettings::new(&self.directory)
        }
    }

    fn prefix_filter_settings(&self) -> prefix_filters::PrefixFilterSettings {
        prefix_filters::PrefixFilterSettings {
            seed: self.seed,
            ..prefix_filters::PrefixFilterSettings::new(&self.directory).scaled(self.scale)
        }
    }

    fn buffer_settings(&self) -> buffer::BufferSettings {
        buffer::BufferSettings {
            seed: self.seed,
            scale: self.scale,
            contenders: self.contenders.clone(),
            cells: self.cells.clone(),
            ..buffer::BufferSettings::new(&self.directory)
        }
    }

    fn htap_settings(&self) -> htap::HtapSettings {
        htap::HtapSettings {
            scale: self.scale,
            columnar_level0: self.columnar_level0,
            ..htap::HtapSettings::new(&self.directory)
        }
    }

    fn kernel_settings(&self) -> kernels::KernelSettings {
        kernels::KernelSettings { scale: self.scale, seed: self.seed, ..kernels::KernelSettings::new() }
    }

    fn tables_settings(&self) -> tables::TablesSettings {
        tables::TablesSettings { scale: self.scale, ..tables::TablesSettings::new(&self.directory) }
    }

    fn transformation_settings(&self) -> transformations::TransformationSettings {
        transformations::TransformationSettings {
            seed: self.seed,
            repetitions: self.repetitions,
            contenders: if self.writers.is_empty() { &self.contenders } else { &self.writers }.clone(),
            writes_only: !self.writers.is_empty(),
            ..transformations::TransformationSettings::new(&self.directory).scaled(self.scale)
        }
    }

    #[cfg(feature = "sql")]
    fn analytics_settings(&self) -> analytics::AnalyticsSettings {
        analytics::AnalyticsSettings {
            scale: self.scale,
            data_directory: self.data_dir.clone(),
            ..analytics::AnalyticsSettings::new(&self.directory)
        }
    }

    fn dictionary_settings(&self) -> dictionary::DictionarySettings {
        dictionary::DictionarySettings {
            seed: self.seed,
            repetitions: self.repetitions,
            contenders: self.contenders.clone(),
            cells: self.cells.clone(),
            ..dictionary::DictionarySettings::new(&self.directory).scaled(self.scale)
        }
    }

    fn settings(&self) -> RunSettings {
        RunSettings {
            directory: self.directory.clone(),
            repetitions: self.repetitions,
            isolate: !self.no_isolation,
            memory_limit: self.memory_limit_mib.map(|mib| mib << 20),
            subject: None,
            progress: true,
        }
    }
}

/// Runs what `args` say against one engine, and writes the JSON file if one is asked for.
///
/// Unless `no_isolation` is set this starts the current executable again with the same arguments, which must lead to
/// this function again: that call does one group of phases and ends the process.
pub fn run_with(args: &BenchArgs, factory: &dyn StoreFactory) -> Result<Report> {
    isolation::serve_if_child(&[factory]);
    args.check_times()?;
    let report = run_scenarios(&args.scenarios()?, &[factory.name()], &args.settings(), &[factory])?;
    if let Some(path) = &args.json_file {
        report.write_json(path)?;
    }
    Ok(report)
}

/// [`run_with`] our own engine; the names of experiments, [`ALIGNED_COMPACTION`], [`SNAPSHOT_FILTERS`],
/// [`TRANSFORMATIONS`], and those of LASER ([`laser::Part`]) and LSM-OPD ([`dictionary::Part`]), are run as well.
pub fn run(args: &BenchArgs) -> Result<Report> {
    let report = match &args.redraw {
        Some(path) => Report::read_json(path)?,
        None => measure(args)?,
    };
    if let Some(directory) = &args.svg_dir {
        report.draw(directory)?;
    }
    Ok(report)
}

fn measure(args: &BenchArgs) -> Result<Report> {
    let (experiments, workloads): (Vec<_>, Vec<_>) =
        args.workloads.iter().cloned().partition(|name| is_experiment(name));
    let only_workloads = BenchArgs { workloads, json_file: None, ..args.clone() };
    let mut report = run_with(&only_workloads, &crate::MyceliumFactory)?;
    std::fs::create_dir_all(&args.directory)?;
    for experiment in experiments {
        args.run_experiment(&experiment, &mut report)?;
    }
    if let Some(path) = &args.json_file {
        report.write_json(path)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fill_starts_a_scenario() {
        let workloads = ["fillseq", "readrandom", "scan", "fillrandom", "ycsb-a@2"].map(str::to_owned).to_vec();
        let args = BenchArgs { workloads, ..BenchArgs::default() };
        let scenarios = args.scenarios().expect("valid workloads");
        let groups: Vec<Vec<String>> = scenarios
            .iter()
            .flat_map(|scenario| &scenario.groups)
            .map(|group| group.iter().map(Phase::to_string).collect())
            .collect();
        assert_eq!(groups, [vec!["fillseq"], vec!["readrandom", "scan"], vec!["fillrandom"], vec!["ycsb-a@2"]]);
        for wrong in ["scan", "nonsense", "scan@0"] {
            assert!(BenchArgs { workloads: vec![wrong.to_owned()], ..BenchArgs::default() }.scenarios().is_err());
        }
    }
}
