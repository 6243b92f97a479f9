//! A compaction to be done: which files, where to, and what the job must know of the rest of the tree.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use mycelium_base::{FileNumber, Group, TableId};
use mycelium_manifest::{FileMeta, KeyRange, Run, RunPlace, Version, VersionEdit};

use crate::partitioner::{AlignedPartitioner, FixedPartitioner, Partitioner};

/// Why a compaction was planned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Level 0 has too many files.
    Level0Files,
    /// Level 0 has too many files and the way into the base level is busy: merge some within level 0.
    Level0Pileup,
    /// Level 0 has too many files, but they are small for what they would rewrite in the base level: merge some within
    /// level 0.
    Level0Small,
    /// Nobody writes: runs are merged for readers.
    AtRest,
    /// Nobody writes: transformations that wait are made.
    Deferred,
    /// A level exceeds its target size.
    LevelSize,
    /// A tiered level has too many runs.
    RunCount,
    /// The younger runs take too much space compared with the oldest.
    SpaceAmplification,
    /// A leveled level has several runs (the table used to be tiered).
    SeveralRuns,
    /// Somebody asked for it.
    Manual,
}

impl Reason {
    /// The words used in text output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Level0Files => "level-0 files",
            Self::Level0Pileup => "level-0 pileup",
            Self::Level0Small => "small level-0 files",
            Self::AtRest => "at rest",
            Self::Deferred => "waiting transformation",
            Self::LevelSize => "level size",
            Self::RunCount => "run count",
            Self::SpaceAmplification => "space amplification",
            Self::SeveralRuns => "several runs",
            Self::Manual => "manual",
        }
    }
}

/// The input files from one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanInput {
    /// The run's level.
    pub level: usize,
    /// The run's index in its level when the plan was made, 0 the newest.
    pub run: usize,
    /// In key order, not overlapping.
    pub files: Vec<Arc<FileMeta>>,
}

/// A compaction to be done.
#[derive(Clone, PartialEq, Debug)]
pub struct CompactionPlan {
    /// The table.
    pub table: TableId,
    /// One entry per run, youngest run first.
    pub inputs: Vec<PlanInput>,
    /// The level the outputs go to.
    pub output_level: usize,
    /// Where in that level.
    pub output_place: RunPlace,
    /// The column groups to be written; `None` is whole rows. They share no column, and together have all of the
    /// inputs'.
    pub outputs: Vec<Option<Arc<Group>>>,
    /// The smallest range that holds all inputs; the outputs lie within it.
    pub range: KeyRange,
    /// The files of one run of the level below the output level that overlap `range`, in key order: what the outputs
    /// will be merged with next, and so where they are best cut.
    pub grandparents: Vec<Arc<FileMeta>>,
    /// The keys at which the files of the output level's column groups are cut, within `range` and ascending, where it
    /// has several groups there and is not tiered: the outputs are cut at them too.
    pub cut_keys: Vec<Vec<u8>>,
    /// Files outside the inputs that overlap an input of a younger run, and so may hold older entries, run by run, each
    /// in key order. While one of them may hold a key, its delete must be kept; see [`OlderFiles`].
    pub older: Vec<Vec<Arc<FileMeta>>>,
    /// Whether the inputs keep their column groups, against the layout of the output level, because compaction is
    /// behind.
    pub is_deferring: bool,
    /// Whether the inputs can go to the output level as they are, without being read ([`CompactionPlan::move_edit`]).
    pub is_trivial_move: bool,
    /// Inputs whose segments in the compaction buffer reads use, so that these take their place in the buffer of the
    /// output level (buffer.rs). Who runs the plan knows; none in a new plan.
    pub used_segments: Vec<FileNumber>,
    /// Why.
    pub reason: Reason,
    /// How urgent: the score of the level that caused it, 1.0 being due.
    pub score: f64,
    /// Size at which an output file is to be closed.
    pub target_file_size: u64,
    /// The most bytes of grandparents that one output file should overlap.
    pub max_grandparent_bytes: u64,
}

impl CompactionPlan {
    /// Completes a plan: range, grandparents and older files follow from inputs and output. `None` without inputs.
    pub(crate) fn new(
        table: TableId,
        version: &Version,
        mut inputs: Vec<PlanInput>,
        output: (usize, RunPlace),
        why: (Reason, f64),
    ) -> Option<Self> {
        inputs.retain(|input| !input.files.is_empty());
        inputs.sort_by_key(|input| (input.level, input.run));
        let range = KeyRange::hull(inputs.iter().flat_map(|i| &i.files).map(|f| &**f))?;
        let below = version.level(output.0 + 1).runs.last();
        let grandparents = below.map(|run| run.overlapping(&range).to_vec()).unwrap_or_default();
        let older = older_files(version, &inputs, &range);
        Some(Self {
            table,
            inputs,
            output_level: output.0,
            output_place: output.1,
            outputs: vec![None],
            range,
            grandparents,
            cut_keys: Vec::new(),
            older,
            is_deferring: false,
            is_trivial_move: false,
            used_segments: Vec::new(),
            reason: why.0,
            score: why.1,
            target_file_size: u64::MAX,
            max_grandparent_bytes: u64::MAX,
        })
    }

    /// Whether inputs and outputs are of one column group, so that entries stay as they are.
    pub fn keeps_groups(&self) -> bool {
        let [output] = self.outputs.as_slice() else { return false };
        self.input_files().all(|file| file.group == *output)
    }

    /// The older files that hold a column of this output group.
    pub fn older_of(&self, output: usize) -> Vec<Vec<Arc<FileMeta>>> {
        let shares = |file: &&Arc<FileMeta>| {
            self.outputs[output].as_ref().is_none_or(|group| file.overlaps_columns(&group.columns))
        };
        let runs = self.older.iter().map(|run| run.iter().filter(shares).cloned().collect::<Vec<_>>());
        runs.filter(|run| !run.is_empty()).collect()
    }

    /// All input files, youngest run first.
    pub fn input_files(&self) -> impl Iterator<Item = &Arc<FileMeta>> {
        self.inputs.iter().flat_map(|input| &input.files)
    }

    /// Bytes of all inputs.
    pub fn input_bytes(&self) -> u64 {
        self.input_files().map(|f| f.size).sum()
    }

    /// Whether no older data lie below any key of the plan, so that every delete that no snapshot needs can go, and
    /// rows need no sequence numbers any more.
    pub fn are_oldest(&self) -> bool {
        self.older.is_empty()
    }

    /// Asks about older data key by key, in ascending order.
    pub fn older_files(&self) -> OlderFiles<'_> {
        OlderFiles::new(&self.older)
    }

    /// The cutter of the outputs: at the level's cut keys and the borders of the grandparents if `aligned`, else by
    /// size.
    pub fn partitioner(&self, aligned: bool) -> Box<dyn Partitioner + Send> {
        if aligned {
            let partitioner = AlignedPartitioner::new(self.target_file_size, self.grandparents.clone());
            Box::new(partitioner.with_cut_keys(self.cut_keys.clone()))
        } else {
            Box::new(
                FixedPartitioner::new(self.target_file_size)
                    .with_grandparents(self.grandparents.clone(), self.max_grandparent_bytes),
            )
        }
    }

    /// Keys at which a part of the compaction costs no cut of its own, ascending: the cut keys, else the borders of the
    /// grandparents.
    pub fn borders(&self) -> Vec<&[u8]> {
        if self.cut_keys.is_empty() {
            self.grandparents.iter().map(|file| file.smallest.as_slice()).collect()
        } else {
            self.cut_keys.iter().map(Vec::as_slice).collect()
        }
    }

    /// The edit that replaces the inputs by `outputs` (in key order, not overlapping).
    pub fn install_edit(&self, outputs: impl IntoIterator<Item = Arc<FileMeta>>) -> VersionEdit {
        let mut edit = VersionEdit::default();
        for input in &self.inputs {
            for file in &input.files {
                edit.remove_file(self.table, input.level, file.number);
            }
        }
        for file in outputs {
            edit.add_file(self.table, self.output_level, self.output_place, file);
        }
        edit
    }

    /// The edit of a trivial move: the inputs themselves, at the output level.
    pub fn move_edit(&self) -> VersionEdit {
        self.install_edit(self.input_files().cloned())
    }

    /// Whether no two inputs of one column group overlap, so that they can form one run as they are.
    pub(crate) fn inputs_are_disjoint(&self) -> bool {
        self.outputs.iter().all(|group| {
            let mut files: Vec<&Arc<FileMeta>> = self.input_files().filter(|file| file.group == *group).collect();
            files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            files.windows(2).all(|pair| pair[0].is_before(pair[1]))
        })
    }

    /// Whether every input holds just one of the output groups.
    pub(crate) fn has_the_outputs_groups(&self) -> bool {
        self.input_files().all(|file| self.outputs.contains(&file.group))
    }

    /// Whether deletes make up half of the inputs or more, and rewriting them would get rid of them.
    pub(crate) fn sheds_deletes(&self) -> bool {
        let deletes: u64 = self.input_files().map(|f| f.delete_count + f.range_delete_count).sum();
        let entries: u64 = self.input_files().map(|f| f.entry_count + f.range_delete_count).sum();
        deletes > 0 && deletes * 2 >= entries && self.are_oldest()
    }
}

/// Files outside the inputs that overlap an input of a younger run, run by run.
fn older_files(version: &Version, inputs: &[PlanInput], range: &KeyRange) -> Vec<Vec<Arc<FileMeta>>> {
    let taken: HashSet<FileNumber> = inputs.iter().flat_map(|i| &i.files).map(|f| f.number).collect();
    let mut older = Vec::new();
    for (level, l) in version.levels.iter().enumerate() {
        for (index, run) in l.runs.iter().enumerate() {
            let younger = || inputs.iter().filter(|i| (i.level, i.run) < (level, index));
            let lies_below = |file: &FileMeta| {
                younger().any(|input| {
                    let first = input.files.partition_point(|f| f.is_before(file));
                    input.files.get(first).is_some_and(|f| !file.is_before(f) && f.shares_columns(file))
                })
            };
            let files = run.overlapping(range).iter().filter(|f| !taken.contains(&f.number) && lies_below(f));
            let files: Vec<Arc<FileMeta>> = files.cloned().collect();
            if !files.is_empty() {
                older.push(files);
            }
        }
    }
    older
}

/// Tells whether older data may lie below a key. Keys must be asked in ascending order; amortised O(runs) per key.
#[derive(Debug)]
pub struct OlderFiles<'a> {
    runs: Vec<&'a [Arc<FileMeta>]>,
}

impl<'a> OlderFiles<'a> {
    /// Over the runs of [`CompactionPlan::older`].
    pub fn new(older: &'a [Vec<Arc<FileMeta>>]) -> Self {
        Self { runs: older.iter().map(Vec::as_slice).collect() }
    }

    /// Whether a file that may hold older entries covers `key`; `key` must not be below the one asked before.
    #[inline]
    pub fn may_hold(&mut self, key: &[u8]) -> bool {
        self.runs.iter_mut().any(|run| {
            while let Some((first, rest)) = run.split_first() {
                if !first.ends_before(key) {
                    return first.smallest.as_slice() <= key;
                }
                *run = rest;
            }
            false
        })
    }

    /// Whether such a file shares a key with `[start, end)`; `start` must not be below the key asked before. Does not
    /// count as asking for a key. O(runs log files).
    pub fn may_overlap(&self, start: &[u8], end: &[u8]) -> bool {
        self.runs.iter().any(|run| {
            let first = run.partition_point(|f| f.ends_before(start));
            run.get(first).is_some_and(|f| f.smallest.as_slice() < end)
        })
    }
}

/// The input files of `run` among `files`, as one input.
pub(crate) fn input_of(level: usize, run: usize, files: &[Arc<FileMeta>]) -> PlanInput {
    PlanInput { level, run, files: files.to_vec() }
}

/// All files of a level, one input per run.
pub(crate) fn whole_level(version: &Version, level: usize) -> Vec<PlanInput> {
    let runs = version.level(level).runs.iter().enumerate();
    runs.map(|(index, run)| input_of(level, index, &run.files)).collect()
}

/// A level's files that overlap `range`, one input per run.
pub(crate) fn overlapping_level(version: &Version, level: usize, range: &KeyRange) -> Vec<PlanInput> {
    let runs = version.level(level).runs.iter().enumerate();
    runs.map(|(index, run): (usize, &Arc<Run>)| input_of(level, index, run.overlapping(range))).collect()
}

/// One line a field, for scripts and logs.
impl fmt::Display for CompactionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_trivial_move { "move" } else { "compact" };
        write!(f, "{verb}")?;
        for input in &self.inputs {
            write!(f, " L{}", input.level)?;
            if input.level > 0 && input.run > 0 {
                write!(f, ".{}", input.run)?;
            }
            write!(f, ":{}", numbers(&input.files))?;
        }
        write!(f, " -> L{}", self.output_level)?;
        match self.output_place {
            RunPlace::Newest => write!(f, " newest run")?,
            RunPlace::Sorted | RunPlace::Inserted => {}
            RunPlace::InPlaceOf(file) => write!(f, " in place of {file}")?,
        }
        if self.outputs != [None] {
            let groups = self.outputs.iter().map(|group| group.as_ref().map_or("*".into(), |group| group.to_string()));
            write!(f, " as {}", groups.collect::<Vec<_>>().join(" | "))?;
        }
        write!(f, " {}, {} {:.2}", self.range, self.reason.name(), self.score)?;
        if self.is_deferring {
            write!(f, ", deferring")?;
        }
        if !self.grandparents.is_empty() {
            write!(f, ", grandparents {}", numbers(&self.grandparents))?;
        }
        if !self.cut_keys.is_empty() {
            let keys: Vec<_> = self.cut_keys.iter().map(|key| key.escape_ascii().to_string()).collect();
            write!(f, ", cut keys {}", keys.join(","))?;
        }
        if !self.older.is_empty() {
            let older: Vec<String> = self.older.iter().map(|run| numbers(run)).collect();
            write!(f, ", older {}", older.join(" "))?;
        }
        Ok(())
    }
}

fn numbers(files: &[Arc<FileMeta>]) -> String {
    let numbers: Vec<String> = files.iter().map(|f| f.number.to_string()).collect();
    numbers.join(",")
}
