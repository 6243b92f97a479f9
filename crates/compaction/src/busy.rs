//! What running compactions hold, so that no two touch the same file or write overlapping ranges of one level, unless
//! they write sibling column groups: entries of groups that share no column are never versions of each other.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use mycelium_base::{FileNumber, Group, TableId};
use mycelium_manifest::{FileMeta, KeyRange};

use crate::plan::CompactionPlan;

/// Names a running compaction in [`BusyFiles`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(u64);

impl JobId {
    /// Its number, never reused while the database is open.
    pub fn number(self) -> u64 {
        self.0
    }
}

#[derive(Clone, Debug)]
struct Job {
    table: TableId,
    output_level: usize,
    outputs: Vec<Option<Arc<Group>>>,
    range: KeyRange,
    files: Vec<FileNumber>,
}

/// The files and output ranges of running compactions, of all tables of a database.
#[derive(Clone, Default, Debug)]
pub struct BusyFiles {
    files: HashSet<FileNumber>,
    jobs: BTreeMap<JobId, Job>,
    next_job: u64,
}

impl BusyFiles {
    /// Nothing running.
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the plan's inputs and its output range as taken.
    pub fn start(&mut self, plan: &CompactionPlan) -> JobId {
        let files: Vec<FileNumber> = plan.input_files().map(|f| f.number).collect();
        self.files.extend(&files);
        let id = JobId(self.next_job);
        self.next_job += 1;
        let (range, outputs) = (plan.range.clone(), plan.outputs.clone());
        self.jobs.insert(id, Job { table: plan.table, output_level: plan.output_level, outputs, range, files });
        id
    }

    /// Releases what a job held; call it after its edit is installed (or given up).
    pub fn finish(&mut self, job: JobId) {
        for file in self.jobs.remove(&job).into_iter().flat_map(|job| job.files) {
            self.files.remove(&file);
        }
    }

    /// Takes a file out of the policies' sight without a job.
    pub fn hold_file(&mut self, file: FileNumber) {
        self.files.insert(file);
    }

    /// Undoes [`BusyFiles::hold_file`].
    pub fn release_file(&mut self, file: FileNumber) {
        self.files.remove(&file);
    }

    /// Whether a running job reads the file, or somebody holds it.
    pub fn contains(&self, file: FileNumber) -> bool {
        self.files.contains(&file)
    }

    /// As [`BusyFiles::contains`], of any of the files.
    pub fn any<'a>(&self, files: impl IntoIterator<Item = &'a Arc<FileMeta>>) -> bool {
        !self.files.is_empty() && files.into_iter().any(|f| self.contains(f.number))
    }

    /// Whether a running job writes a column of `groups` (`None` is whole rows) to this level within `range`.
    pub fn writes_to(&self, table: TableId, level: usize, range: &KeyRange, groups: &[Option<Arc<Group>>]) -> bool {
        self.jobs.values().any(|job| {
            job.table == table
                && job.output_level == level
                && job.range.overlaps(range)
                && job.outputs.iter().any(|output| groups.iter().any(|group| share_columns(output, group)))
        })
    }

    /// The running jobs of a table.
    pub fn jobs_of(&self, table: TableId) -> impl Iterator<Item = JobId> {
        self.jobs.iter().filter(move |(_, job)| job.table == table).map(|(id, _)| *id)
    }

    /// Whether the job is running.
    pub fn is_running(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Number of running jobs.
    pub fn job_count(&self) -> usize {
        self.jobs.len()
    }
}

fn share_columns(one: &Option<Arc<Group>>, other: &Option<Arc<Group>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.columns.shares_entries(&other.columns),
        _ => true,
    }
}
