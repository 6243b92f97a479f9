//! Reports: every run's figures, their medians, and ratios with their spread; as a table and as JSON.
//!
//! In the JSON, for claims and scripts:
//!
//! ```text
//! /scenarios/0/figures/mycelium/readrandom.rate/median      a figure by engine
//! /ratios/rocksdb/100b.cache-all.none/readrandom.rate/median  subject divided by rival, paired by repetition
//! /summary/rocksdb/100b/readrandom.rate/lowest              over all scenarios whose names start with `100b.`
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::experiments::aligned::AlignedReport;
#[cfg(feature = "sql")]
use crate::experiments::analytics::AnalyticsReport;
use crate::experiments::buffer::BufferReport;
use crate::experiments::dictionary::DictionaryReport;
use crate::experiments::htap::HtapReport;
use crate::experiments::kernels::KernelReport;
use crate::experiments::laser::LaserReport;
use crate::experiments::prefix_filters::PrefixFilterReport;
use crate::experiments::snapshot_filters::SnapshotFilterReport;
use crate::experiments::tables::TablesReport;
use crate::experiments::transformations::TransformationReport;
use crate::measure::machine;
use crate::scenario::{GroupResult, Scenario};
use crate::statistics::Spread;
use crate::store::Result;

/// All runs and what follows from them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// When the report was begun, in seconds since 1970.
    pub unix_time: u64,
    /// What a reader of the figures must know.
    pub notes: Vec<String>,
    /// The engine whose figures are divided by the others'.
    pub subject: Option<String>,
    /// One for each scenario.
    pub scenarios: Vec<ScenarioReport>,
    /// Rival, scenario, figure: subject divided by rival.
    pub ratios: BTreeMap<String, BTreeMap<String, BTreeMap<String, Spread>>>,
    /// Rival, first part of the scenario's name, figure: the extremes of the ratios' medians.
    pub summary: BTreeMap<String, BTreeMap<String, BTreeMap<String, Extremes>>>,
    /// Aligned compaction, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub aligned: Option<AlignedReport>,
    /// Snapshot filters, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub snapshot_filters: Option<SnapshotFilterReport>,
    /// Prefix filters, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prefix_filters: Option<PrefixFilterReport>,
    /// Transformations inside compaction, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transformations: Option<TransformationReport>,
    /// Both halves of a workload in one table, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub htap: Option<HtapReport>,
    /// The compaction buffer, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub buffer: Option<BufferReport>,
    /// TPC-H's queries 1 and 6 in SQL, if those were run.
    #[cfg(feature = "sql")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tpch: Option<AnalyticsReport>,
    /// Queries over flights, if those were run.
    #[cfg(feature = "sql")]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flights: Option<AnalyticsReport>,
    /// Filter kernels, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kernels: Option<KernelReport>,
    /// Databases of many tables, if that was run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tables: Option<TablesReport>,
    /// The experiments of LASER that were run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub laser: Option<LaserReport>,
    /// The experiments of LSM-OPD that were run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dictionary: Option<DictionaryReport>,
}

/// One scenario's runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScenarioReport {
    /// What was run.
    pub scenario: Scenario,
    /// One for each engine and repetition.
    pub runs: Vec<EngineRun>,
    /// Engine, figure.
    pub figures: BTreeMap<String, BTreeMap<String, Spread>>,
}

/// One engine's run of a scenario.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EngineRun {
    /// The engine.
    pub engine: String,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// What each group showed.
    pub groups: Vec<GroupResult>,
    /// Why the run was not finished.
    pub failure: Option<String>,
}

/// The medians of several scenarios.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Extremes {
    /// The lowest median.
    pub lowest: f64,
    /// The scenario it comes from.
    pub lowest_in: String,
    /// The highest median.
    pub highest: f64,
    /// The scenario it comes from.
    pub highest_in: String,
}

impl EngineRun {
    /// A run that has shown nothing yet.
    pub fn new(engine: &str, repetition: u32) -> Self {
        Self { engine: engine.to_owned(), repetition, groups: Vec::new(), failure: None }
    }

    /// Every figure of the run by name: `<phase>.rate`, `<phase>.p99`, …, and `peak_memory` over all phases.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::new();
        let mut peak = 0u64;
        for group in &self.groups {
            peak = peak.max(group.last_peak_memory_bytes);
            for phase in &group.phases {
                let mut put = |name: &str, value: Option<f64>| {
                    if let Some(value) = value {
                        figures.insert(format!("{}.{name}", phase.phase), value);
                    }
                };
                peak = peak.max(phase.peak_memory_bytes);
                put("rate", Some(phase.rate));
                put("settled_rate", phase.settled_rate);
                put("p50", phase.latency.map(|latency| latency.p50_us));
                put("p99", phase.latency.map(|latency| latency.p99_us));
                put("p999", phase.latency.map(|latency| latency.p999_us));
                put("write_amplification", phase.write_amplification);
                put("read_amplification", phase.read_amplification);
                put("space_amplification", phase.write_amplification.map(|_| phase.space_amplification));
                put("cpu_us", Some(phase.usage.cpu_seconds * 1e6 / phase.operations.max(1) as f64));
                put("peak_memory", Some(phase.peak_memory_bytes as f64));
            }
        }
        if self.failure.is_none() {
            figures.insert("peak_memory".to_owned(), peak as f64);
        }
        figures
    }
}

impl ScenarioReport {
    /// Without runs yet.
    pub fn new(scenario: Scenario) -> Self {
        Self { scenario, runs: Vec::new(), figures: BTreeMap::new() }
    }

    fn engines(&self) -> Vec<&str> {
        let mut engines = Vec::new();
        for run in &self.runs {
            if !engines.contains(&run.engine.as_str()) {
                engines.push(run.engine.as_str());
            }
        }
        engines
    }

    fn summarize(&mut self) {
        let mut values: BTreeMap<String, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
        for run in &self.runs {
            let engine = values.entry(run.engine.clone()).or_default();
            for (name, value) in run.figures() {
                engine.entry(name).or_default().push(value);
            }
        }
        self.figures = values
            .into_iter()
            .map(|(engine, figures)| {
                let spreads = figures.into_iter().filter_map(|(name, values)| Some((name, Spread::of(values)?)));
                (engine, spreads.collect())
            })
            .collect();
    }

    fn ratios(&self, subject: &str, rival: &str) -> BTreeMap<String, Spread> {
        let of = |engine: &str, repetition: u32| {
            let run = self.runs.iter().find(|run| run.engine == engine && run.repetition == repetition);
            run.map(EngineRun::figures).unwrap_or_default()
        };
        let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.engine == subject) {
            let theirs = of(rival, run.repetition);
            for (name, value) in run.figures() {
                if let Some(their) = theirs.get(&name).filter(|their| **their > 0.0) {
                    ratios.entry(name).or_default().push(value / their);
                }
            }
        }
        ratios.into_iter().filter_map(|(name, values)| Some((name, Spread::of(values)?))).collect()
    }
}

impl Report {
    /// Runs that were not finished.
    pub fn failures(&self) -> usize {
        self.scenarios.iter().flat_map(|scenario| &scenario.runs).filter(|run| run.failure.is_some()).count()
    }

    /// An empty report.
    pub fn new(subject: Option<String>) -> Self {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            machine: machine(),
            unix_time: since_1970.map_or(0, |time| time.as_secs()),
            notes: Vec::new(),
            subject,
            scenarios: Vec::new(),
            ratios: BTreeMap::new(),
            summary: BTreeMap::new(),
            aligned: None,
            snapshot_filters: None,
            prefix_filters: None,
            htap: None,
            buffer: None,
            #[cfg(feature = "sql")]
            tpch: None,
            #[cfg(feature = "sql")]
            flights: None,
            transformations: None,
            kernels: None,
            tables: None,
            laser: None,
            dictionary: None,
        }
    }

    /// Adds a scenario's runs and renews medians, ratios and summary.
    pub fn add(&mut self, mut scenario: ScenarioReport) {
        scenario.summarize();
        if let Some(subject) = &self.subject {
            for rival in scenario.engines().into_iter().filter(|engine| engine != subject) {
                let ratios = scenario.ratios(subject, rival);
                self.ratios.entry(rival.to_owned()).or_default().insert(scenario.scenario.name.clone(), ratios);
            }
        }
        self.scenarios.push(scenario);
        self.summarize();
    }

    fn summarize(&mut self) {
        self.summary.clear();
        for (rival, scenarios) in &self.ratios {
            for (scenario, ratios) in scenarios {
                let family = scenario.split('.').next().unwrap_or(scenario);
                let summary = self.summary.entry(rival.clone()).or_default().entry(family.to_owned()).or_default();
                for (name, ratio) in ratios {
                    let extremes = summary.entry(name.clone()).or_insert_with(|| Extremes {
                        lowest: f64::INFINITY,
                        lowest_in: String::new(),
                        highest: f64::NEG_INFINITY,
                        highest_in: String::new(),
                    });
                    if ratio.median < extremes.lowest {
                        extremes.lowest = ratio.median;
                        extremes.lowest_in.clone_from(scenario);
                    }
                    if ratio.median > extremes.highest {
                        extremes.highest = ratio.median;
                        extremes.highest_in.clone_from(scenario);
                    }
                }
            }
        }
    }

    /// Writes the report as JSON.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
            .map_err(|error| format!("cannot write {}: {error}", path.display()).into())
    }

    /// Reads what [`Report::write_json`] wrote.
    pub fn read_json(path: &Path) -> Result<Self> {
        let told = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let text = std::fs::read(path).map_err(|error| told(&error))?;
        Ok(serde_json::from_slice(&text).map_err(|error| told(&error))?)
    }

    /// Writes the plots of the experiments that were run and have any into this directory, as SVG. It is made if it is
    /// not there.
    pub fn draw(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        let of_laser = self.laser.iter().flat_map(|laser| laser.plots(&self.machine));
        let of_buffer = self.buffer.iter().flat_map(BufferReport::plots);
        let of_transformations = self.transformations.iter().flat_map(|report| report.plots(&self.machine));
        let of_dictionary = self.dictionary.iter().flat_map(|report| report.plots(&self.machine));
        for (name, svg) in of_laser.chain(of_buffer).chain(of_transformations).chain(of_dictionary) {
            std::fs::write(directory.join(format!("{name}.svg")), svg)?;
        }
        Ok(())
    }

    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!("{}\n", self.machine);
        for note in &self.notes {
            push_line(&mut out, format_args!("note: {note}"));
        }
        for scenario in &self.scenarios {
            self.scenario_table(scenario, &mut out);
        }
        for table in [
            self.aligned.as_ref().map(AlignedReport::table),
            self.snapshot_filters.as_ref().map(SnapshotFilterReport::table),
            self.prefix_filters.as_ref().map(PrefixFilterReport::table),
            self.transformations.as_ref().map(TransformationReport::table),
            self.htap.as_ref().map(HtapReport::table),
            self.buffer.as_ref().map(BufferReport::table),
            #[cfg(feature = "sql")]
            self.tpch.as_ref().map(AnalyticsReport::table),
            #[cfg(feature = "sql")]
            self.flights.as_ref().map(AnalyticsReport::table),
            self.kernels.as_ref().map(KernelReport::table),
            self.tables.as_ref().map(TablesReport::table),
            self.laser.as_ref().map(LaserReport::table),
            self.dictionary.as_ref().map(DictionaryReport::table),
        ]
        .iter()
        .flatten()
        {
            out += table;
        }
        for (rival, families) in &self.summary {
            // Of a single scenario the summary would say nothing new.
            for (family, ratios) in families.iter().filter(|_| self.scenarios.len() > 1) {
                push_line(
                    &mut out,
                    format_args!("\n{} / {rival}, {family}: lowest and highest median", self.subject()),
                );
                for (name, extremes) in ratios.iter().filter(|(name, _)| is_headline(name)) {
                    push_line(
                        &mut out,
                        format_args!(
                            "  {name:<38} {:>7.2}x ({})  {:>7.2}x ({})",
                            extremes.lowest, extremes.lowest_in, extremes.highest, extremes.highest_in
                        ),
                    );
                }
            }
        }
        out
    }

    fn subject(&self) -> &str {
        self.subject.as_deref().unwrap_or("-")
    }

    fn scenario_table(&self, report: &ScenarioReport, out: &mut String) {
        let Scenario { name, dataset, options, .. } = &report.scenario;
        push_line(
            out,
            format_args!(
                "\n{name}: {} entries x (16 + {}) B, cache {} MB, compression {}{}",
                dataset.entries,
                dataset.value_bytes,
                options.cache_bytes >> 20,
                options.compression.name(),
                if options.direct_io { ", direct I/O" } else { "" }
            ),
        );
        push_line(
            out,
            format_args!(
                "  {:<10} {:<18} {:>12} {:>12} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>8} {:>8}",
                "engine",
                "phase",
                "ops/s",
                "settled/s",
                "p50 us",
                "p99 us",
                "p99.9 us",
                "write",
                "read",
                "space",
                "cpu us",
                "peak MB"
            ),
        );
        for engine in report.engines() {
            for phase in report.scenario.groups.iter().flatten() {
                self.phase_line(report, engine, &phase.to_string(), out);
            }
            for run in report.runs.iter().filter(|run| run.engine == engine) {
                if let Some(failure) = &run.failure {
                    push_line(out, format_args!("  {engine:<10} run {} failed: {failure}", run.repetition + 1));
                }
            }
        }
        for (rival, scenarios) in &self.ratios {
            let Some(ratios) = scenarios.get(name) else { continue };
            push_line(out, format_args!("  {} / {rival}: median (least to greatest)", self.subject()));
            for (figure, ratio) in ratios.iter().filter(|(figure, _)| is_headline(figure)) {
                push_line(
                    out,
                    format_args!(
                        "    {figure:<38} {:>7.2}x ({:.2} to {:.2})",
                        ratio.median, ratio.least, ratio.greatest
                    ),
                );
            }
        }
    }

    fn phase_line(&self, report: &ScenarioReport, engine: &str, phase: &str, out: &mut String) {
        let Some(figures) = report.figures.get(engine) else { return };
        let cell = |name: &str, scale: f64, digits: usize| match figures.get(&format!("{phase}.{name}")) {
            Some(spread) => format!("{:.digits$}", spread.median * scale),
            None => "-".to_owned(),
        };
        push_line(
            out,
            format_args!(
                "  {engine:<10} {phase:<18} {:>12} {:>12} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>8} {:>8}",
                cell("rate", 1.0, 0),
                cell("settled_rate", 1.0, 0),
                cell("p50", 1.0, 1),
                cell("p99", 1.0, 1),
                cell("p999", 1.0, 1),
                cell("write_amplification", 1.0, 2),
                cell("read_amplification", 1.0, 2),
                cell("space_amplification", 1.0, 2),
                cell("cpu_us", 1.0, 2),
                cell("peak_memory", 1e-6, 0),
            ),
        );
    }
}

/// Figures that are worth a line among the ratios.
fn is_headline(figure: &str) -> bool {
    let of_reads = figure.ends_with(".rate");
    of_reads
        || figure.ends_with(".settled_rate")
        || figure.ends_with(".cpu_us")
        || figure.ends_with("fillrandom.write_amplification")
        || figure == "readwhilewriting.p99"
        || figure == "peak_memory"
}

fn push_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    if out.write_fmt(line).is_ok() {
        out.push('\n');
    }
}
