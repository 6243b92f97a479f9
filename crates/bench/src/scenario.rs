//! Scenarios: what is run; and one group of phases of one, run against one store, in this process.

use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::keys::KeyOrder;
use crate::measure::peak_memory;
use crate::store::{KeyValueStore, Result, StoreFactory, StoreOptions};
use crate::workloads::{Dataset, Pace, Phase, PhaseResult, State, run_phase};

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
