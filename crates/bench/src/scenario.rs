//! Scenarios: what is run, for which engines, how often, in what order.
//!
//! ```text
//! for each scenario, for each repetition, for each group of phases, for each engine (order turned by one each time):
//!     one process: open, phases, close
//! ```
//!
//! Engines alternate at every group, so that a slow minute of the machine hits all of them; a ratio compares figures of the
//! same repetition.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::isolation;
use crate::keys::KeyOrder;
use crate::measure::peak_memory;
use crate::memory_limit::LimitedGroup;
use crate::report::{EngineRun, Report, ScenarioReport};
use crate::store::{KeyValueStore, Result, StoreFactory, StoreOptions};
use crate::workloads::{Dataset, Pace, Phase, PhaseResult, State, Workload, run_phase};

/// A data set, settings, and what is done with them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// Its name in reports, without `/`.
    pub name: String,
    /// What is stored.
    pub dataset: Dataset,
    /// Settings of every engine.
    pub options: StoreOptions,
    /// Phases, in groups that each run in a process of their own. The first group fills.
    pub groups: Vec<Vec<Phase>>,
    /// How long phases run.
    pub pace: Pace,
}

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

/// One group of phases against one store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupJob {
    /// The engine's name.
    pub engine: String,
    /// Where its store lies.
    pub directory: PathBuf,
    /// Settings.
    pub options: StoreOptions,
    /// What is stored.
    pub dataset: Dataset,
    /// How indexes become keys.
    pub order: KeyOrder,
    /// Whether the store holds the data set already.
    pub filled: bool,
    /// What to do, in order.
    pub phases: Vec<Phase>,
    /// How long.
    pub pace: Pace,
    /// The memory-limited cgroup to join first.
    pub cgroup: Option<PathBuf>,
}

/// What one group showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupResult {
    /// One for each phase.
    pub phases: Vec<PhaseResult>,
    /// Seconds to open the store.
    pub open_seconds: f64,
    /// Seconds to close it.
    pub close_seconds: f64,
    /// The store's own account at the end.
    pub description: String,
    /// Peak of resident memory while closing, or of the whole process where peaks cannot be reset.
    pub last_peak_memory_bytes: u64,
}

/// Does a group in this process.
pub fn run_group(job: &GroupJob, factories: &[&dyn StoreFactory]) -> Result<GroupResult> {
    let factory = factories
        .iter()
        .find(|factory| factory.name() == job.engine)
        .ok_or_else(|| format!("there is no engine {:?}", job.engine))?;
    let started = Instant::now();
    let store = factory.open(&job.directory, &job.options)?;
    let open_seconds = started.elapsed().as_secs_f64();
    let state = State::new(job.dataset.clone(), job.order, job.filled);
    let phases = run_phases(&*store, &state, job)?;
    let description = store.describe();
    let started = Instant::now();
    store.close()?;
    let close_seconds = started.elapsed().as_secs_f64();
    Ok(GroupResult { phases, open_seconds, close_seconds, description, last_peak_memory_bytes: peak_memory() })
}

fn run_phases(store: &dyn KeyValueStore, state: &State, job: &GroupJob) -> Result<Vec<PhaseResult>> {
    let run = |phase: &Phase| {
        run_phase(store, &job.directory, state, *phase, &job.pace).map_err(|error| format!("{phase}: {error}").into())
    };
    job.phases.iter().map(run).collect()
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

impl PhaseResult {
    /// The phase in one line, for progress.
    pub fn line(&self) -> String {
        let mut line = format!("{:<18} {:>12.0}/s", self.phase, self.rate);
        if let Some(settled) = self.settled_rate {
            line += &format!("  settled {settled:>10.0}/s");
        }
        if let Some(write) = self.write_amplification {
            line += &format!("  write amp. {write:.2}  space {:.2}", self.space_amplification);
        }
        if let Some(latency) = self.latency {
            line += &format!("  p50 {:.1} p99 {:.1} p99.9 {:.1} us", latency.p50_us, latency.p99_us, latency.p999_us);
        }
        line + &format!("  peak {} MB", self.peak_memory_bytes / 1_000_000)
    }
}
