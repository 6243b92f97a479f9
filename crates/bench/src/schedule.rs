//! The schedule of scenarios: for which engines they are run, how often, in what order.
//!
//! ```text
//! for each scenario, for each repetition, for each group of phases, for each engine (order turned by one each time):
//!     one process: open, phases, close
//! ```
//!
//! Engines alternate at every group, so that a slow minute of the machine hits all of them; a ratio compares figures of
//! the same repetition.

use std::fs;
use std::path::{Path, PathBuf};

use crate::isolation;
use crate::keys::KeyOrder;
use crate::memory_limit::LimitedGroup;
use crate::report::{EngineRun, Report, ScenarioReport};
use crate::scenario::{GroupJob, GroupResult, Scenario, run_group};
use crate::store::{Result, StoreFactory};
use crate::workloads::{Phase, Workload};

/// How scenarios are run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Where stores are made; each is removed after use.
    pub directory: PathBuf,
    /// How often everything is repeated, at least once.
    pub repetitions: u32,
    /// Run every group in a process of its own.
    pub isolate: bool,
    /// Bytes of memory, page cache included, that a process may use.
    pub memory_limit: Option<u64>,
    /// The engine whose figures are divided by the others'; none if there is nothing to compare.
    pub subject: Option<String>,
    /// Tell on standard error what is running.
    pub progress: bool,
}

/// Runs all scenarios for the named engines.
pub fn run_scenarios(
    scenarios: &[Scenario],
    engines: &[&str],
    settings: &RunSettings,
    factories: &[&dyn StoreFactory],
) -> Result<Report> {
    isolation::serve_if_child(factories);
    fs::create_dir_all(&settings.directory)
        .map_err(|error| format!("cannot make {}: {error}", settings.directory.display()))?;
    let limited = match settings.memory_limit.map(LimitedGroup::create) {
        None => None,
        Some(Ok(group)) => Some(Ok(group)),
        Some(Err(error)) => Some(Err(error.to_string())),
    };
    let mut report = Report::new(settings.subject.clone());
    if let Some(Err(reason)) = &limited {
        report.notes.push(format!("memory is limited by direct I/O, not by a cgroup: {reason}"));
    }
    for scenario in scenarios {
        let mut scenario = scenario.clone();
        scenario.options.direct_io |= matches!(limited, Some(Err(_)));
        let cgroup = match &limited {
            Some(Ok(group)) => Some(group.path()),
            _ => None,
        };
        let mut scenario_report = ScenarioReport::new(scenario.clone());
        for repetition in 0..settings.repetitions.max(1) {
            let runs = Repetition { scenario: &scenario, settings, factories, cgroup, repetition }.run(engines)?;
            scenario_report.runs.extend(runs);
        }
        report.add(scenario_report);
    }
    Ok(report)
}

struct Repetition<'a> {
    scenario: &'a Scenario,
    settings: &'a RunSettings,
    factories: &'a [&'a dyn StoreFactory],
    cgroup: Option<&'a Path>,
    repetition: u32,
}

impl Repetition<'_> {
    fn run(&self, engines: &[&str]) -> Result<Vec<EngineRun>> {
        let root = self.settings.directory.join(format!("run-{}", std::process::id()));
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let mut runs: Vec<EngineRun> = engines.iter().map(|engine| EngineRun::new(engine, self.repetition)).collect();
        for (number, group) in self.scenario.groups.iter().enumerate() {
            for turn in 0..runs.len() {
                let at = (turn + self.repetition as usize + number) % runs.len();
                let run = &mut runs[at];
                if run.failure.is_some() {
                    continue;
                }
                let directory = root.join(&run.engine);
                fs::create_dir_all(&directory)?;
                match self.group(&run.engine, &directory, number, group) {
                    Ok(result) => run.groups.push(result),
                    Err(error) => {
                        self.tell(format_args!("{}: {error}", run.engine));
                        run.failure = Some(error.to_string());
                    }
                }
            }
        }
        fs::remove_dir_all(&root)?;
        Ok(runs)
    }

    fn group(&self, engine: &str, directory: &Path, number: usize, phases: &[Phase]) -> Result<GroupResult> {
        let Scenario { name, dataset, options, groups, pace } = self.scenario;
        let order = match groups.iter().flatten().any(|phase| phase.workload == Workload::FillSeq) {
            true => KeyOrder::Ordered,
            false => KeyOrder::Hashed,
        };
        let names: Vec<_> = phases.iter().map(Phase::to_string).collect();
        self.tell(format_args!("{name}, run {}, {engine}: {}", self.repetition + 1, names.join(" ")));
        let job = GroupJob {
            engine: engine.to_owned(),
            directory: directory.join("store"),
            options: options.clone(),
            dataset: dataset.clone(),
            order,
            filled: number > 0,
            phases: phases.to_vec(),
            pace: pace.clone(),
            cgroup: self.cgroup.map(Path::to_path_buf),
        };
        let result = if self.settings.isolate {
            isolation::run_group_in_child(job, directory)?
        } else {
            run_group(&job, self.factories)?
        };
        for phase in &result.phases {
            self.tell(format_args!("    {}", phase.line()));
        }
        Ok(result)
    }

    fn tell(&self, line: std::fmt::Arguments<'_>) {
        if self.settings.progress {
            eprintln!("{line}");
        }
    }
}
