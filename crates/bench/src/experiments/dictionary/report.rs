//! What the experiments show, for claims and for persons.
//!
//! ```text
//! /dictionary/cells/size-128/figures/columnar/insert.rate/median                 by table and contender
//! /dictionary/cells/ndv-1/ratios/columnar/rocksdb/filter-10.count_ms/median       ours over another's, within a repetition
//! /dictionary/cells/timeline-128/timelines/columnar/rates/0                        of the last repetition
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::plots;
use super::stores::Format;
use super::timeline::Timeline;
use crate::plot::NamedPlot;
use crate::statistics::Spread;

/// One contender's run of a cell.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) contender: String,
    pub(super) repetition: u32,
    pub(super) figures: Figures,
    pub(super) timeline: Option<Timeline>,
}

impl Run {
    /// What it says while the experiment runs.
    pub(super) fn line(&self) -> String {
        let all = spreads(self.figures.0.iter().map(|(name, value)| (name.clone(), *value)));
        let lines = lines(&all, "").into_iter().map(|(what, line)| format!("{what}: {line}"));
        format!("{:<19} {}", self.contender, lines.collect::<Vec<_>>().join("; "))
    }
}

/// All that the experiments showed.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct DictionaryReport {
    /// Bytes of a file, and of a write buffer.
    pub file_bytes: u64,
    /// Pairs of every table.
    pub pairs: u64,
    /// By table: `size-<bytes of a value>`, `ndv-<percent>`, `zipf-<exponent>`, `timeline-<bytes of a value>`.
    pub cells: BTreeMap<String, CellReport>,
}

/// What one table showed.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct CellReport {
    /// Contender, figure.
    pub figures: BTreeMap<String, BTreeMap<String, Spread>>,
    /// Table of ours, other contender, figure: ours over the other's.
    pub ratios: BTreeMap<String, BTreeMap<String, BTreeMap<String, Spread>>>,
    /// Contender: the last repetition by the clock.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub timelines: BTreeMap<String, Timeline>,
}

type Values = BTreeMap<String, Vec<f64>>;

impl CellReport {
    /// Of all runs of a cell.
    pub(super) fn of(runs: &[Run]) -> Self {
        let mut report = Self::default();
        for run in runs {
            if !report.figures.contains_key(&run.contender) {
                let own = runs.iter().filter(|other| other.contender == run.contender);
                let all = own.flat_map(|run| run.figures.0.iter().map(|(name, value)| (name.clone(), *value)));
                report.figures.insert(run.contender.clone(), spreads(all));
            }
            if let Some(timeline) = &run.timeline {
                report.timelines.insert(run.contender.clone(), timeline.clone());
            }
        }
        let names: Vec<String> = report.figures.keys().cloned().collect();
        for subject in Format::ALL.map(Format::name).into_iter().filter(|name| report.figures.contains_key(*name)) {
            let others = names.iter().filter(|name| *name != subject);
            let ratios = others.map(|other| (other.clone(), ratios(runs, subject, other))).collect();
            report.ratios.insert(subject.to_owned(), ratios);
        }
        report
    }

    fn table(&self, cell: &str) -> String {
        let mut out = String::new();
        for (contender, figures) in &self.figures {
            for (what, line) in lines(figures, "") {
                out += &format!("  {cell:<13} {contender:<19} {what:<11} {line}\n");
            }
        }
        for (subject, others) in &self.ratios {
            for (other, figures) in others {
                for (what, line) in lines(figures, "x") {
                    out += &format!("  {cell:<13} {:<19} {what:<11} {line}\n", format!("{subject} / {other}"));
                }
            }
        }
        out
    }
}

fn spreads(all: impl Iterator<Item = (String, f64)>) -> BTreeMap<String, Spread> {
    let mut values = Values::new();
    for (name, value) in all {
        values.entry(name).or_default().push(value);
    }
    values.into_iter().filter_map(|(name, values)| Some((name, Spread::of(values)?))).collect()
}

/// Every figure of `subject` over that of `other` in the same repetition.
fn ratios(runs: &[Run], subject: &str, other: &str) -> BTreeMap<String, Spread> {
    let pairs = runs.iter().filter(|run| run.contender == subject).filter_map(|run| {
        let is_beside = |their: &&Run| their.contender == other && their.repetition == run.repetition;
        Some((run, runs.iter().find(is_beside)?))
    });
    let quotients = pairs.flat_map(|(own, their)| {
        own.figures.0.iter().filter_map(|(name, value)| {
            let their = their.figures.0.get(name).filter(|their| **their > 0.0)?;
            Some((name.clone(), value / their))
        })
    });
    spreads(quotients)
}

/// Figures with the same first part of their name on one line.
fn lines(figures: &BTreeMap<String, Spread>, unit: &str) -> BTreeMap<String, String> {
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    for (name, spread) in figures {
        let (what, figure) = name.rsplit_once('.').unwrap_or((name, ""));
        let digits = if spread.median.abs() < 100.0 { 2 } else { 0 };
        *lines.entry(what.to_owned()).or_default() += &format!("{figure} {:.digits$}{unit}  ", spread.median);
    }
    lines.values_mut().for_each(|line| line.truncate(line.trim_end().len()));
    lines
}

impl DictionaryReport {
    /// The plots of what was run: see `plots`.
    pub(crate) fn plots(&self, machine: &str) -> Vec<NamedPlot> {
        plots::all(self, machine)
    }

    /// The report as a person reads it: medians.
    pub fn table(&self) -> String {
        let mut out = format!("dictionaries: {} pairs, files of {} KiB\n", self.pairs, self.file_bytes >> 10);
        for (name, cell) in &self.cells {
            out += &cell.table(name);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(contender: &str, repetition: u32, rate: f64) -> Run {
        let mut figures = Figures::default();
        figures.put("insert.rate", rate);
        figures.put("compaction.seconds", 0.0);
        Run { contender: contender.to_owned(), repetition, figures, timeline: None }
    }

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let runs = [run("rows", 0, 10.0), run("rocksdb", 0, 5.0), run("rocksdb", 1, 50.0), run("rows", 1, 200.0)];
        let report = CellReport::of(&runs);
        let ratio = report.ratios["rows"]["rocksdb"]["insert.rate"];
        assert_eq!((ratio.least, ratio.greatest, ratio.count), (2.0, 4.0, 2));
        assert!(!report.ratios["rows"]["rocksdb"].contains_key("compaction.seconds"), "nothing to divide by");
        assert_eq!(report.ratios.len(), 1, "ratios are of ours alone");
        assert_eq!(report.figures["rocksdb"]["insert.rate"].median, 27.5);
        assert!(report.table("size-32").contains("rate 3.00x"), "{}", report.table("size-32"));
    }
}
