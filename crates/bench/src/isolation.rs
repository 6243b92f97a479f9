//! One process for each piece of work.
//!
//! 1. The parent writes the job as JSON to a file and starts its own executable with its own arguments, the file's path
//!    in an environment variable.
//! 2. The child reaches [`serve_if_child`] (every entry point of this crate calls it first), finds the variable, does
//!    the job, writes the answer beside it, and exits.
//! 3. The parent reads the answer.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::memory_limit;
use crate::scenario::{GroupJob, GroupResult, run_group};
use crate::store::{Result, StoreFactory};

const JOB_VARIABLE: &str = "MYCELIUM_BENCH_JOB";

/// What a child can be asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Job {
    /// A group of phases against one store.
    Group(GroupJob),
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Group(GroupResult),
    Failed(String),
}

/// Does the job and ends the process if this process was started as a child; returns otherwise.
pub fn serve_if_child(factories: &[&dyn StoreFactory]) {
    let Some(path) = std::env::var_os(JOB_VARIABLE).map(PathBuf::from) else { return };
    let answer = read_json(&path)
        .and_then(|job: Job| match job {
            Job::Group(job) => {
                if let Some(cgroup) = &job.cgroup {
                    memory_limit::join(cgroup)?;
                }
                run_group(&job, factories).map(Answer::Group)
            }
        })
        .unwrap_or_else(|error| Answer::Failed(error.to_string()));
    match write_json(&answer_path(&path), &answer) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("cannot hand back the answer: {error}");
            std::process::exit(1)
        }
    }
}

/// Does a group in a child process. `directory` is for the job's two small files.
pub(crate) fn run_group_in_child(job: GroupJob, directory: &Path) -> Result<GroupResult> {
    let path = directory.join("job.json");
    let answer_at = answer_path(&path);
    write_json(&path, &Job::Group(job))?;
    let status = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(JOB_VARIABLE, &path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("the measuring process ended with {status}").into());
    }
    let answer = read_json(&answer_at)?;
    std::fs::remove_file(&path)?;
    std::fs::remove_file(&answer_at)?;
    match answer {
        Answer::Group(result) => Ok(result),
        Answer::Failed(message) => Err(message.into()),
    }
}

fn answer_path(job: &Path) -> PathBuf {
    job.with_extension("answer.json")
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    std::fs::write(path, serde_json::to_vec(value)?)
        .map_err(|error| format!("cannot write {}: {error}", path.display()).into())
}
