//! Sibling groups that are compacted one by one go down in step: on a simulated tree into which rows are inserted, few
//! rows have some of their groups in one level and the others in another. (A quarter, where each group gives what
//! overlaps least.)

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mycelium_base::{ColumnSet, Group, TableId};
use mycelium_compaction::{BusyFiles, CompactionPlan, CompactionPolicy, JobId, LeveledOptions, ShapedPolicy};
use mycelium_manifest::{FileMeta, Layout, RunPlace, Version, VersionEdit};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const TABLE: TableId = TableId(3);
const COLUMNS: usize = 8;
const KEY_BYTES: u64 = 20;
const COLUMN_BYTES: u64 = 10;

/// A tree whose files hold keys.
struct Tree {
    rng: SmallRng,
    policy: ShapedPolicy,
    version: Version,
    keys: HashMap<u64, Vec<u32>>,
    sequences: HashMap<u32, u64>,
    busy: BusyFiles,
    running: Vec<(JobId, CompactionPlan)>,
    next_file: u64,
    rows: u64,
}

impl Tree {
    fn new(seed: u64, levels: &str) -> Self {
        let layout = Layout::parse(levels, &ColumnSet::first(COLUMNS)).unwrap();
        let options = LeveledOptions {
            level0_trigger: 3,
            base_level_bytes: 60_000,
            fanout: 4.0,
            level_count: 4,
            target_file_size: 6_000,
            max_compaction_bytes: 1 << 20,
            ..LeveledOptions::default()
        };
        Self {
            rng: SmallRng::seed_from_u64(seed),
            policy: ShapedPolicy::new(Arc::new(layout), options),
            version: Version::new(),
            keys: HashMap::new(),
            sequences: HashMap::new(),
            busy: BusyFiles::new(),
            running: Vec::new(),
            next_file: 1,
            rows: 0,
        }
    }

    fn make_file(&mut self, keys: Vec<u32>, group: Option<Arc<Group>>) -> Arc<FileMeta> {
        let number = self.next_file;
        self.next_file += 1;
        let key = |at: usize| keys[at].to_be_bytes().to_vec();
        let file = FileMeta {
            number,
            size: keys.len() as u64 * entry_bytes(group.as_ref()),
            smallest: key(0),
            largest: key(keys.len() - 1),
            min_sequence: keys.iter().map(|key| self.sequences[key]).min().unwrap(),
            max_sequence: keys.iter().map(|key| self.sequences[key]).max().unwrap(),
            entry_count: keys.len() as u64,
            created_at_edit: number,
            group,
            ..FileMeta::default()
        };
        self.keys.insert(number, keys);
        Arc::new(file)
    }

    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(TABLE, edit).unwrap();
        self.version.check().unwrap();
    }

    /// Rows of new keys.
    fn flush(&mut self) {
        let keys: BTreeSet<u32> = (0..60).map(|_| self.rng.random()).collect();
        for key in &keys {
            self.rows += 1;
            self.sequences.insert(*key, self.rows);
        }
        let file = self.make_file(keys.into_iter().collect(), None);
        let mut edit = VersionEdit::default();
        edit.add_file(TABLE, 0, RunPlace::Newest, file);
        self.install(&edit);
    }

    /// Starts compactions, `most` beside each other, and finishes one of them. `false` if nothing is due.
    fn compact(&mut self, most: usize) -> bool {
        while self.running.len() < most
            && let Some(plan) = self.policy.pick(TABLE, &self.version, &self.busy)
        {
            self.running.push((self.busy.start(&plan), plan));
        }
        if self.running.is_empty() {
            return false;
        }
        let (job, plan) = self.running.swap_remove(self.rng.random_range(0..self.running.len()));
        let edit = if plan.is_trivial_move { plan.move_edit() } else { plan.install_edit(self.merge(&plan)) };
        self.install(&edit);
        self.busy.finish(job);
        true
    }

    fn merge(&mut self, plan: &CompactionPlan) -> Vec<Arc<FileMeta>> {
        let mut files = Vec::new();
        for group in &plan.outputs {
            let holds = |file: &&Arc<FileMeta>| match (&file.group, group) {
                (Some(of_file), Some(group)) => group.columns.is_subset(&of_file.columns),
                _ => file.group.is_none(),
            };
            let keys: BTreeSet<u32> =
                plan.input_files().filter(holds).flat_map(|file| &self.keys[&file.number]).copied().collect();
            let mut partitioner = plan.partitioner(true);
            let mut outputs: Vec<Vec<u32>> = Vec::new();
            for key in keys {
                let size = outputs.last().map_or(0, |output| output.len() as u64 * entry_bytes(group.as_ref()));
                if outputs.is_empty() || partitioner.should_cut(&key.to_be_bytes(), size) {
                    outputs.push(Vec::new());
                }
                outputs.last_mut().unwrap().push(key);
            }
            files.extend(outputs.into_iter().map(|keys| self.make_file(keys, group.clone())));
        }
        files
    }

    /// The percentage of rows that do not have all of their groups in one level.
    fn torn_percent(&self) -> f64 {
        let mut levels: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
        for (level, _, file) in self.version.files() {
            for key in &self.keys[&file.number] {
                levels.entry(*key).or_default().insert(level);
            }
        }
        let torn = levels.values().filter(|levels| levels.len() > 1).count();
        torn as f64 / levels.len() as f64 * 100.0
    }
}

fn entry_bytes(group: Option<&Arc<Group>>) -> u64 {
    KEY_BYTES + COLUMN_BYTES * group.map_or(COLUMNS, |group| group.columns.len()) as u64
}

#[test]
fn few_rows_are_torn_between_levels() {
    for (name, levels) in [
        ("equal groups", "L0 tiered: * packed\nL1 leveled: 0-1 packed | 2-3 packed | 4-5 packed | 6-7 packed"),
        ("unequal groups", "L0 tiered: * packed\nL1 leveled: 0 packed | 1 packed | 2-3 packed | 4-7 packed"),
        (
            "groups split on the way",
            "L0 tiered: * packed\nL1 tiered: 0-3 packed | 4-7 packed\nL2 leveled: 0-1 packed | 2-3 packed | 4-5 packed | \
             6-7 packed",
        ),
    ] {
        for seed in 0..4 {
            let mut tree = Tree::new(seed, levels);
            for _ in 0..250 {
                tree.flush();
                tree.compact(2);
                tree.compact(2);
            }
            while tree.compact(2) {}
            let torn = tree.torn_percent();
            println!("{name}, seed {seed}: {torn:.1} % of {} rows are torn", tree.rows);
            assert!(tree.version.level(3).file_count() > 100, "the last level is filled:\n{}", tree.version);
            assert!(torn < 9.0, "{name}, seed {seed}: {torn:.1} % of the rows are torn between levels");
        }
    }
}
