//! The experiments of LASER (Saxena et al., "Real-Time LSM-Trees for HTAP Workloads"), scaled down:
//!
//! | module | what | paper |
//! |---|---|---|
//! | `hybrid` | workload HW under rows, columns, fixed groups and the advisor's design | figure 8, table 3 |
//! | `cost_model` | blocks predicted and measured, by the width of projections and of groups | figure 7 |
//! | `age` | how old the keys of each level are, by the file that goes down first | figure 2 |
//! | `sizes` | what keys beside every group cost, compressed and delta-coded | §4.1 |
//! | `robustness` | D-opt under workloads that it was not made for | figure 10 |
//!
//! All of them run in manual mode, in one thread, past the page cache where the disk allows that: trees, answers and
//! counted blocks follow from the seed; only times depend on the machine. `table` is the table and its tree, `workload`
//! is HW, `rival` what another database must do to run HW beside them.

mod age;
mod cost_model;
mod hybrid;
mod plots;
mod rival;
mod robustness;
mod sizes;
mod table;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use age::{AgeReport, LevelAges, PriorityAges};
pub use cost_model::{Correlation, CostCell, CostModelReport, CostTable, WriteCell};
pub use hybrid::{DesignFigures, HybridReport, QueryFigures, RunFigures};
pub use rival::{HybridRival, HybridTable, LoadTable};
pub use robustness::{RobustnessReport, Shift};
pub use sizes::{SizeFigures, SizeReport};
pub use table::{Aggregate, Rows};
pub use workload::Query;

use crate::plot::NamedPlot;
use crate::store::Result;

/// One of the experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Figure 8.
    Hybrid,
    /// Figure 7.
    CostModel,
    /// Figure 2.
    Age,
    /// §4.1.
    Sizes,
    /// Figure 10.
    Robustness,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Hybrid, Self::CostModel, Self::Age, Self::Sizes, Self::Robustness];

    /// The name among the workloads of `mycelium bench`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hybrid => "laser-hw",
            Self::CostModel => "laser-cost-model",
            Self::Age => "laser-age",
            Self::Sizes => "laser-sizes",
            Self::Robustness => "laser-robustness",
        }
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct LaserSettings {
    /// Where databases are made and removed.
    pub directory: PathBuf,
    /// Rows, as a share of those of the claims.
    pub scale: f64,
    /// Columns besides the key: the paper has tables of 30 and of 100. At least 10.
    pub columns: usize,
    /// Read past the page cache; `cost_model` always does.
    pub direct_io: bool,
    /// Seed of all draws.
    pub seed: u64,
    /// Tell on standard error what is running.
    pub progress: bool,
}

impl LaserSettings {
    /// Rows of HW at scale 1, a four-hundredth of the paper's.
    pub const HYBRID_ROWS: u64 = 1_000_000;

    /// The scale of the claims.
    pub fn new(directory: &Path) -> Self {
        let directory = directory.to_path_buf();
        Self { directory, scale: 1.0, columns: 30, direct_io: false, seed: 1, progress: true }
    }

    /// So many rows, scaled.
    fn rows(&self, rows: u64) -> u64 {
        ((rows as f64 * self.scale) as u64).max(4_000)
    }

    fn tell(&self, what: std::fmt::Arguments<'_>) {
        if self.progress {
            eprintln!("{what}");
        }
    }
}

/// What the experiments showed that were run.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct LaserReport {
    /// Rows, as a share of those of the claims.
    pub scale: f64,
    /// Seed of all draws.
    pub seed: u64,
    /// Processes that wanted to run when the last experiment began, on average over the minute before.
    pub load_average: f64,
    /// Figure 8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hw: Option<HybridReport>,
    /// Figure 7.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_model: Option<CostModelReport>,
    /// Figure 2.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub age: Option<AgeReport>,
    /// §4.1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sizes: Option<SizeReport>,
    /// Figure 10.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub robustness: Option<RobustnessReport>,
}

/// Runs one experiment and puts what it showed where it belongs. HW is run by `rivals` too.
pub fn run(part: Part, settings: &LaserSettings, rivals: &[HybridRival<'_>], report: &mut LaserReport) -> Result<()> {
    if settings.columns < 10 {
        return Err(format!("{} columns; workload HW needs at least 10", settings.columns).into());
    }
    if !(settings.scale > 0.0 && settings.scale <= 400.0) {
        return Err(format!("a scale of {}; 400 is the size of the paper", settings.scale).into());
    }
    (report.scale, report.seed, report.load_average) = (settings.scale, settings.seed, load_average());
    let directory = settings.directory.join(format!("{}-{}", part.name(), std::process::id()));
    fs::create_dir_all(&directory)?;
    match part {
        Part::Hybrid => report.hw = Some(hybrid::run(settings, rivals, &directory)?),
        Part::CostModel => report.cost_model = Some(cost_model::run(settings, &directory)?),
        Part::Age => report.age = Some(age::run(settings, &directory)?),
        Part::Sizes => report.sizes = Some(sizes::run(settings, &directory)?),
        Part::Robustness => report.robustness = Some(robustness::run(settings, &directory)?),
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}

/// The first number of `/proc/loadavg`; 0 where there is none.
fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

impl LaserReport {
    /// The plots of what was run.
    pub(crate) fn plots(&self, machine: &str) -> Vec<NamedPlot> {
        Part::ALL.into_iter().flat_map(|part| plots::of(part, self, machine)).collect()
    }

    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let tables = [
            self.hw.as_ref().map(HybridReport::table),
            self.cost_model.as_ref().map(CostModelReport::table),
            self.age.as_ref().map(AgeReport::table),
            self.sizes.as_ref().map(SizeReport::table),
            self.robustness.as_ref().map(RobustnessReport::table),
        ];
        let mut out = format!("LASER, scale {}, seed {}, load average {}\n", self.scale, self.seed, self.load_average);
        tables.into_iter().flatten().for_each(|table| out += &table);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_its_plots() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = LaserSettings { scale: 0.004, progress: false, ..LaserSettings::new(directory.path()) };
        let mut report = LaserReport::default();
        for part in [Part::Age, Part::Sizes] {
            run(part, &settings, &[], &mut report).expect("experiment");
        }
        let plots = report.plots("a machine");
        let (_, svg) = plots.iter().find(|(name, _)| name == "laser-sizes").expect("plot");
        assert!(svg.contains("scale 0.004") && svg.contains("a machine; load average"), "{svg}");
        assert_eq!(plots.len(), 4);
        assert!(report.table().contains("laser-age") && report.table().contains("laser-sizes"));
        assert_eq!(fs::read_dir(directory.path()).expect("directory").count(), 0, "nothing is left");
        let too_few = LaserSettings { columns: 3, ..settings };
        assert!(run(Part::Sizes, &too_few, &[], &mut report).is_err());
    }
}
