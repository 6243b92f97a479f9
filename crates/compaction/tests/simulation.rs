//! Runs the policies on a simulated tree whose files hold real entries: whatever is flushed, however compactions
//! overlap in time, every read must agree with a map, every version must keep its invariants, and the tree must calm
//! down.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mycelium_base::{ColumnSet, TableId};
use mycelium_compaction::{
    Buffering, BusyFiles, CompactionPlan, CompactionPolicy, JobId, LeveledOptions, LeveledPolicy, PickPriority,
    ShapedPolicy, TieredOptions, TieredPolicy, trim,
};
use mycelium_manifest::{ChangedRound, FileMeta, KeyRange, Layout, RunPlace, Segment, Version, VersionEdit};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const TABLE: TableId = TableId(3);
const ENTRY_BYTES: u64 = 100;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Entry {
    key: u32,
    sequence: u64,
    is_delete: bool,
}

struct Simulation {
    rng: SmallRng,
    policy: Box<dyn CompactionPolicy>,
    aligned: bool,
    version: Version,
    contents: HashMap<u64, Vec<Entry>>,
    busy: BusyFiles,
    running: Vec<(JobId, CompactionPlan)>,
    model: BTreeMap<u32, u64>,
    next_file: u64,
    next_sequence: u64,
    flushed_bytes: u64,
    compacted_bytes: u64,
    /// Of those, the ones written to each level.
    written: BTreeMap<usize, u64>,
    moves: u64,
}

fn key_bytes(key: u32) -> Vec<u8> {
    key.to_be_bytes().to_vec()
}

impl Simulation {
    fn new(seed: u64, policy: Box<dyn CompactionPolicy>, aligned: bool) -> Self {
        Self {
            rng: SmallRng::seed_from_u64(seed),
            policy,
            aligned,
            version: Version::new(),
            contents: HashMap::new(),
            busy: BusyFiles::new(),
            running: Vec::new(),
            model: BTreeMap::new(),
            next_file: 1,
            next_sequence: 1,
            flushed_bytes: 0,
            compacted_bytes: 0,
            written: BTreeMap::new(),
            moves: 0,
        }
    }

    fn make_file(&mut self, entries: Vec<Entry>) -> Arc<FileMeta> {
        let number = self.next_file;
        self.next_file += 1;
        let file = FileMeta {
            number,
            size: entries.len() as u64 * ENTRY_BYTES,
            smallest: key_bytes(entries[0].key),
            largest: key_bytes(entries[entries.len() - 1].key),
            min_sequence: entries.iter().map(|e| e.sequence).min().unwrap(),
            max_sequence: entries.iter().map(|e| e.sequence).max().unwrap(),
            entry_count: entries.len() as u64,
            delete_count: entries.iter().filter(|e| e.is_delete).count() as u64,
            created_at_edit: number,
            ..FileMeta::default()
        };
        self.contents.insert(number, entries);
        Arc::new(file)
    }

    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(TABLE, edit).unwrap();
        self.version.check().unwrap();
    }

    fn flush(&mut self, count: usize, keys: std::ops::Range<u32>, delete_share: f64) {
        let mut batch = BTreeMap::new();
        for _ in 0..count {
            let key = self.rng.random_range(keys.clone());
            let is_delete = self.rng.random_bool(delete_share);
            let sequence = self.next_sequence;
            self.next_sequence += 1;
            batch.insert(key, Entry { key, sequence, is_delete });
            if is_delete {
                self.model.remove(&key)
            } else {
                self.model.insert(key, sequence)
            };
        }
        let file = self.make_file(batch.into_values().collect());
        self.flushed_bytes += file.size;
        let mut edit = VersionEdit::default();
        edit.add_file(TABLE, 0, RunPlace::Newest, file);
        self.install(&edit);
    }

    /// Starts a compaction if one is due.
    fn start(&mut self) -> bool {
        let Some(plan) = self.policy.pick(TABLE, &self.version, &self.busy) else { return false };
        self.begin(plan);
        true
    }

    fn begin(&mut self, mut plan: CompactionPlan) {
        if self.version.rounds.iter().any(|round| round.level < plan.output_level) && self.rng.random_bool(0.6) {
            plan.used_segments = plan.input_files().map(|file| file.number).collect();
        }
        assert!(!self.busy.any(plan.input_files()), "busy input in {plan}");
        assert!(!self.busy.writes_to(TABLE, plan.output_level, &plan.range, &[None]), "busy output in {plan}");
        let job = self.busy.start(&plan);
        self.running.push((job, plan));
    }

    fn finish(&mut self) {
        let index = self.rng.random_range(0..self.running.len());
        let (job, plan) = self.running.swap_remove(index);
        let mut edit = if plan.is_trivial_move {
            self.moves += 1;
            plan.move_edit()
        } else {
            let outputs = self.merge(&plan);
            let bytes = outputs.iter().map(|f| f.size).sum::<u64>();
            self.compacted_bytes += bytes;
            *self.written.entry(plan.output_level).or_default() += bytes;
            plan.install_edit(outputs)
        };
        self.policy.complete(&self.version, &plan, &mut edit).unwrap();
        self.install(&edit);
        self.busy.finish(job);
    }

    fn merge(&mut self, plan: &CompactionPlan) -> Vec<Arc<FileMeta>> {
        let mut merged: BTreeMap<u32, Entry> = BTreeMap::new();
        for file in plan.input_files() {
            for entry in &self.contents[&file.number] {
                // Youngest runs come first.
                let kept = merged.entry(entry.key).or_insert(*entry);
                assert!(kept.sequence >= entry.sequence, "an older version lies above a newer one in {plan}");
            }
        }
        let mut older = plan.older_files();
        merged.retain(|key, entry| !entry.is_delete || older.may_hold(&key_bytes(*key)));
        let mut partitioner = plan.partitioner(self.aligned);
        let mut outputs: Vec<Vec<Entry>> = Vec::new();
        for entry in merged.into_values() {
            let size = outputs.last().map_or(0, |o| o.len() as u64 * ENTRY_BYTES);
            if outputs.is_empty() || partitioner.should_cut(&key_bytes(entry.key), size) {
                if self.aligned && plan.output_level > 0 && !outputs.is_empty() {
                    let target = plan.target_file_size;
                    assert!(size >= target / 2 && size <= 2 * target, "{size} in {plan}");
                }
                outputs.push(Vec::new());
            }
            outputs.last_mut().unwrap().push(entry);
        }
        outputs.into_iter().map(|entries| self.make_file(entries)).collect()
    }

    fn check_reads(&self) {
        let mut seen: BTreeMap<u32, Entry> = BTreeMap::new();
        for (_, _, file) in self.version.files() {
            for entry in &self.contents[&file.number] {
                let first = seen.entry(entry.key).or_insert(*entry);
                assert!(first.sequence >= entry.sequence, "key {}: #{} above", entry.key, first.sequence);
            }
        }
        let live: BTreeMap<u32, u64> = seen.values().filter(|e| !e.is_delete).map(|e| (e.key, e.sequence)).collect();
        assert_eq!(live, self.model);
    }

    /// What a part holds of every key that its segments cover is what the segments hold of it.
    fn check_buffer(&self) -> usize {
        let mut covered = 0;
        let newest_of = |segments: &[Segment]| {
            let mut newest: BTreeMap<u32, (Entry, u64)> = BTreeMap::new();
            for segment in segments {
                let entries = self.contents[&segment.file.number].iter();
                for entry in entries.filter(|entry| segment.range().contains(&key_bytes(entry.key))) {
                    let (first, last) = newest.entry(entry.key).or_insert((*entry, u64::MAX));
                    assert!(first.sequence >= entry.sequence, "key {}: #{} above", entry.key, first.sequence);
                    // Each version once, and in order.
                    assert!(entry.sequence < *last, "key {}: #{} twice or late", entry.key, entry.sequence);
                    *last = entry.sequence;
                }
            }
            newest.into_iter().map(|(key, (entry, _))| (key, entry)).collect::<BTreeMap<_, _>>()
        };
        for round in &self.version.rounds {
            let (insertion, deletion) =
                (self.version.insertion_part(round.level, None), self.version.deletion_part(round.level, None));
            for (segments, part) in [(&round.appending, insertion), (&round.deletion, deletion)] {
                let Some(segments) = segments else { continue };
                let own: Vec<Segment> =
                    part.iter().flat_map(|part| &part.files).map(|file| file.clone().into()).collect();
                let held = newest_of(&own);
                let buffered = newest_of(&segments.files);
                for key in held.keys().chain(buffered.keys()).filter(|key| segments.covers(&key_bytes(**key))) {
                    // A delete that nothing lies below is in the segments alone.
                    let live = |entry: Option<&Entry>| entry.filter(|entry| !entry.is_delete).copied();
                    assert_eq!(live(held.get(key)), live(buffered.get(key)), "key {key}\n{}", self.version);
                    covered += usize::from(held.contains_key(key));
                    assert!(!held.contains_key(key) || buffered.contains_key(key), "key {key}\n{}", self.version);
                }
            }
        }
        covered
    }

    /// Takes some segments out, as a budget or their readers may want.
    fn trim(&mut self) {
        let bytes: u64 = self.version.buffered_files().map(|file| file.size).sum();
        let budget = if bytes == 0 { 0 } else { self.rng.random_range(0..=bytes) };
        let (salt, leaves) = (self.rng.random::<u64>() | 1, self.rng.random_range(0..10));
        let mixed = |file: u64| file.wrapping_mul(salt) >> 40;
        let rounds = trim(&[&self.version], budget, |file| mixed(file) % 20 < leaves, mixed).remove(0);
        let mut edit = VersionEdit::default();
        edit.rounds.extend(rounds.iter().map(|round| ChangedRound { table: TABLE, round: round.to_record() }));
        self.install(&edit);
        assert!(self.version.buffered_files().map(|file| file.size).sum::<u64>() <= budget);
    }

    /// Compacts until nothing is due.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            while self.start() {}
            if self.running.is_empty() {
                return;
            }
            self.finish();
        }
        panic!("the tree does not come to rest:\n{}", self.version);
    }

    fn write_amplification(&self) -> f64 {
        (self.flushed_bytes + self.compacted_bytes) as f64 / self.flushed_bytes as f64
    }
}

/// A policy for whole rows, merged like this below level 0.
fn shaped(merge: &str, options: LeveledOptions) -> ShapedPolicy {
    let layout = Layout::parse(&format!("L0 tiered: * raw\nL1 {merge}: * raw"), &ColumnSet::first(1)).unwrap();
    ShapedPolicy::new(Arc::new(layout), options)
}

fn random_policy(rng: &mut SmallRng) -> (String, Box<dyn CompactionPolicy>) {
    if rng.random_bool(0.3) {
        let options = TieredOptions {
            runs_per_level: rng.random_range(2..6),
            level_count: rng.random_range(2..6),
            max_space_amplification_percent: [25, 100, 200, 100_000][rng.random_range(0..4)],
            target_file_size: 2_000,
        };
        return (format!("{options:?}"), Box::new(TieredPolicy::new(options)));
    }
    let options = LeveledOptions {
        level0_trigger: rng.random_range(1..5),
        level0_pileup: rng.random_range(4..8),
        base_level_bytes: [4_000, 10_000, 30_000][rng.random_range(0..3)],
        fanout: [2.0, 4.0, 10.0][rng.random_range(0..3)],
        level_count: rng.random_range(2..8),
        target_file_size: [1_000, 2_000, 5_000][rng.random_range(0..3)],
        priority: [PickPriority::MinOverlap, PickPriority::OldestFirst, PickPriority::LargestFirst]
            [rng.random_range(0..3)],
        max_compaction_bytes: [10_000, 100_000][rng.random_range(0..2)],
        dynamic_levels: rng.random_bool(0.5),
    };
    if rng.random_bool(0.5) {
        let options = LeveledOptions { level_count: rng.random_range(2..6), ..options };
        let buffering = *Buffering::ALL.choose(rng).unwrap();
        let policy = shaped("two-phase", options).buffering_as(buffering);
        return (format!("two-phase {buffering:?} {options:?}"), Box::new(policy));
    }
    (format!("{options:?}"), Box::new(LeveledPolicy::new(options)))
}

#[test]
fn reads_agree_with_a_map_whatever_is_compacted_when() {
    let (mut covered, mut narrowed) = (0, 0);
    for seed in 0..40 {
        let mut draws = SmallRng::seed_from_u64(seed ^ 0x5eed);
        let (text, policy) = random_policy(&mut draws);
        let mut sim = Simulation::new(seed, policy, draws.random_bool(0.5));
        println!("seed {seed}: {text}");
        let delete_share = [0.0, 0.1, 0.5][draws.random_range(0..3)];
        for step in 0..250 {
            let width = [50, 300, 3_000][draws.random_range(0..3)];
            let start = draws.random_range(0..3_000 - width + 1);
            sim.flush(draws.random_range(1..40), start..start + width, delete_share);
            while sim.running.len() < 4 && draws.random_bool(0.8) && sim.start() {}
            while !sim.running.is_empty() && draws.random_bool(0.6) {
                sim.finish();
            }
            if draws.random_bool(0.05) {
                let from = draws.random_range(0..3_000);
                let range = KeyRange::inclusive(key_bytes(from), key_bytes(from + draws.random_range(0..300)));
                let plan = if draws.random_bool(0.5) {
                    sim.policy.pick_range(TABLE, &sim.version, &sim.busy, Some(&range), draws.random_bool(0.5))
                } else {
                    let level = draws.random_range(0..4);
                    sim.policy.pick_level(TABLE, &sim.version, &sim.busy, level, Some(&range))
                };
                if let Some(plan) = plan {
                    sim.begin(plan);
                }
            }
            covered += sim.check_buffer();
            let segments = sim.version.rounds.iter().flat_map(|round| round.parts()).flat_map(|part| &part.files);
            narrowed += segments.filter(|segment| segment.within.is_some()).count();
            if step % 10 == 0 {
                sim.check_reads();
            }
            if draws.random_bool(0.05)
                && let Some(plan) = sim.policy.pick_at_rest(TABLE, &sim.version, &sim.busy)
            {
                sim.begin(plan);
            }
            if draws.random_bool(0.05) {
                sim.trim();
                sim.check_buffer();
            }
        }
        sim.settle();
        sim.check_reads();
        assert_eq!(sim.policy.debt_bytes(&sim.version), 0, "{}", sim.version);
        if let Some(plan) = sim.policy.pick_range(TABLE, &sim.version, &sim.busy, None, true) {
            sim.begin(plan);
            sim.finish();
        }
        sim.check_reads();
        let deletes: u64 = sim.version.files().map(|(_, _, f)| f.delete_count).sum();
        assert_eq!(deletes, 0, "a full compaction drops every delete");
        assert!(sim.version.levels.iter().map(|l| l.runs.len()).sum::<usize>() <= 1);
    }
    println!("{covered} keys of parts compared with their segments, {narrowed} of which were within a range");
    assert!(covered > 10_000 && narrowed > 1_000, "{covered}, {narrowed}");
}

/// dLSM §IV-C: what comes into a two-phase level is merged with half of it on average. (All levels together do not
/// write less: a leveled level gives away what is densest, a deletion part what has become sparse.)
#[test]
fn two_phase_levels_are_written_less() {
    let options = LeveledOptions {
        base_level_bytes: 40_000,
        target_file_size: 4_000,
        level_count: 4,
        fanout: 8.0,
        priority: PickPriority::OldestFirst,
        ..LeveledOptions::default()
    };
    let written = |merge: &str| {
        let mut sim = Simulation::new(1, Box::new(shaped(merge, options)), false);
        let mut rounds = 0;
        for _ in 0..700 {
            sim.flush(100, 0..60_000, 0.0);
            while sim.start() {
                sim.finish();
            }
            let most = |level| if level == 0 || level == 3 { usize::MAX } else { 2 };
            assert!((0..4).all(|level| sim.version.level(level).runs.len() <= most(level)), "{}", sim.version);
            rounds = rounds.max(sim.version.round(1, None).map_or(0, |round| round.number));
        }
        sim.check_reads();
        (sim.written, rounds)
    };
    let (leveled, _) = written("leveled");
    let (two_phase, rounds) = written("two-phase");
    assert!(rounds > 10, "{rounds}");
    assert!(two_phase[&1] * 5 < leveled[&1] * 4, "leveled {leveled:?}, two-phase {two_phase:?}");
    assert!(two_phase[&2] * 5 < leveled[&2] * 4, "leveled {leveled:?}, two-phase {two_phase:?}");
}

/// Uniform overwrites of a steady key space through a three-level tree.
fn steady_state(aligned: bool, priority: PickPriority, dynamic_levels: bool) -> f64 {
    let options = LeveledOptions {
        base_level_bytes: 40_000,
        target_file_size: 10_000,
        max_compaction_bytes: 250_000,
        level_count: 5,
        fanout: 8.0,
        priority,
        dynamic_levels,
        ..LeveledOptions::default()
    };
    let mut sim = Simulation::new(1, Box::new(LeveledPolicy::new(options)), aligned);
    let keys = 20_000;
    for _ in 0..700 {
        sim.flush(100, 0..keys, 0.0);
        while sim.start() {
            sim.finish();
        }
    }
    sim.check_reads();
    sim.write_amplification()
}

#[test]
fn aligned_cuts_and_minimal_overlap_write_less() {
    let fixed = steady_state(false, PickPriority::MinOverlap, true);
    let aligned = steady_state(true, PickPriority::MinOverlap, true);
    let oldest = steady_state(false, PickPriority::OldestFirst, true);
    let largest = steady_state(false, PickPriority::LargestFirst, true);
    let stat = steady_state(false, PickPriority::MinOverlap, false);
    println!("fixed {fixed:.2} aligned {aligned:.2} oldest {oldest:.2} largest {largest:.2} static {stat:.2}");
    assert!(aligned < fixed, "aligned {aligned:.2}, fixed {fixed:.2}");
    assert!(fixed < largest, "min overlap {fixed:.2}, largest first {largest:.2}");
}

/// A table that takes a small share of the writes flushes small files: four of them are a fraction of the base level.
#[test]
fn small_files_do_not_rewrite_the_base_level_again_and_again() {
    let options = LeveledOptions {
        base_level_bytes: 100_000,
        target_file_size: 100_000,
        max_compaction_bytes: 2_500_000,
        ..LeveledOptions::default()
    };
    let mut sim = Simulation::new(1, Box::new(LeveledPolicy::new(options)), false);
    let mut base_level = 0u64;
    for _ in 0..2_000 {
        sim.flush(10, 0..100_000_000, 0.0);
        while let Some(plan) = sim.policy.pick(TABLE, &sim.version, &sim.busy) {
            let is_base = plan.inputs.first().is_some_and(|input| input.level == 0) && plan.output_level > 0;
            let before = sim.compacted_bytes;
            sim.begin(plan);
            sim.finish();
            base_level += if is_base { sim.compacted_bytes - before } else { 0 };
            assert!(sim.version.level(0).file_count() <= 4, "{}", sim.version);
        }
    }
    sim.check_reads();
    // A byte that enters the base level rewrites two there at most.
    assert!(base_level <= 3 * sim.flushed_bytes, "{base_level} of {} flushed", sim.flushed_bytes);
    assert!(sim.write_amplification() < 16.0, "{:.2}", sim.write_amplification());
}

#[test]
fn ascending_keys_are_written_once() {
    let options = LeveledOptions { base_level_bytes: 20_000, target_file_size: 4_000, ..LeveledOptions::default() };
    let mut sim = Simulation::new(1, Box::new(LeveledPolicy::new(options)), false);
    for i in 0..500 {
        sim.flush(40, i * 1_000..(i + 1) * 1_000, 0.0);
        sim.settle();
    }
    sim.check_reads();
    assert_eq!(sim.compacted_bytes, 0, "sequential loads only move files");
    assert!(sim.moves >= 490);
}

/// The deletion part is emptied by the very edit whose many files are too many tables: what the segments then stand for
/// is the new insertion part.
#[test]
fn segments_that_begin_again_as_a_round_ends_hold_what_they_cover() {
    let options = LeveledOptions { level0_trigger: 2, fanout: 2.0, level_count: 4, ..LeveledOptions::default() };
    let policy = shaped("two-phase", options).buffering_as(Buffering::Full);
    let new: String = (100..117).rev().map(|n| format!("L0: {n}:[b-z]#{n} 1MB\n")).collect();
    let text = format!("{new}L1: 1:[a-m]#1-9 1MB\n");
    let before = Version::parse(&text).unwrap();
    let plan = policy.pick(TABLE, &before, &BusyFiles::new()).unwrap();
    assert_eq!(plan.input_files().count(), 18, "{plan}");
    let swapped = Version::parse(&format!("{text}round L1: 0 draining\n")).unwrap();
    let output = Version::parse("L1: 200:[a-z]#1-117 2MB").unwrap();
    let mut edit = plan.install_edit(output.level(1).files().cloned());
    policy.complete(&swapped, &plan, &mut edit).unwrap();
    let after = swapped.apply(TABLE, &edit).unwrap();
    let round = &after.rounds[0];
    for part in round.parts() {
        assert!(!part.files.is_empty() || !part.covers(b"c"), "{after}");
    }
    let appending = round.appending.as_ref().unwrap();
    assert!(appending.files.iter().any(|segment| segment.file.number == 200), "{after}");
}

/// A file of columns that no buffer of rows takes uncovered its range, and the segments that another input brought
/// along covered it again, without it.
#[test]
fn what_is_left_out_of_the_buffer_stays_uncovered_where_segments_go_down() {
    let layout = Layout::parse("L0 tiered: * columnar\nL1 two-phase: * packed", &ColumnSet::first(1)).unwrap();
    let options = LeveledOptions { level0_trigger: 2, level_count: 4, ..LeveledOptions::default() };
    let policy = ShapedPolicy::new(Arc::new(layout), options).buffering_as(Buffering::Rows);
    let before = Version::parse(
        "L0: 9:[a-c]#9 1MB group=0/columnar\n\
         L1: 5:[a-d]#5 1MB\n\
         L2: 3:[m-p]#3 1MB\n\
         round L1: 0 draining\n\
         deletion: 7:[a-d]#5 1MB\n\
         round L2: 0\n\
         appending: 2:[m-p]#3 1MB\n\
         appending without: [a-b]\n",
    )
    .unwrap();
    let range = KeyRange::inclusive(*b"a", *b"c");
    let mut plan = policy.pick_range(TABLE, &before, &BusyFiles::new(), Some(&range), false).unwrap();
    assert_eq!((plan.output_level, plan.output_place), (2, RunPlace::Inserted), "{plan}");
    plan.used_segments = vec![5];
    let output = Version::parse("L2: 200:[a-d]#5-9 2MB").unwrap();
    let mut edit = plan.install_edit(output.level(2).files().cloned());
    policy.complete(&before, &plan, &mut edit).unwrap();
    let after = before.apply(TABLE, &edit).unwrap();
    let appending = after.round(2, None).unwrap().appending.as_ref().unwrap();
    assert!(appending.files.iter().any(|segment| segment.file.number == 7), "{after}");
    assert!(!appending.covers(b"b") && appending.covers(b"d"), "{after}");
}

/// Each table was trimmed by itself, to what the others left of the budget: the first that had filled it kept it all.
#[test]
fn what_is_least_worth_leaves_first_whichever_table_has_it() {
    let text = |numbers: [u64; 2]| {
        let [newer, older] = numbers;
        format!("L1: {}:[a-z]#1-9 3MB\nround L1: 0\nappending: {newer}:[a-h]#9 1MB {older}:[m-p]#5 1MB\n", older + 100)
    };
    let (one, two) = (Version::parse(&text([12, 11])).unwrap(), Version::parse(&text([14, 13])).unwrap());
    let left = |budget: u64, idle: &[u64], worth: fn(u64) -> u64| -> Vec<u64> {
        let trimmed = trim(&[&one, &two], budget, |file| idle.contains(&file), worth);
        let rounds = trimmed.iter().zip([&one, &two]).flat_map(|(changed, before)| match changed.is_empty() {
            true => &before.rounds,
            false => changed,
        });
        rounds.flat_map(|round| round.files()).map(|file| file.number).collect()
    };
    assert_eq!(left(2_000_000, &[], |file| file % 2), [11, 13], "what was read least leaves, of both");
    assert_eq!(left(3_000_000, &[], |_| 7), [12, 14, 13], "the oldest of all that are alike leaves");
    assert_eq!(left(1_000_000, &[], |file| 100 - file), [11], "of one table all, of the other the rest");
    assert_eq!(left(4_000_000, &[12, 14], |_| 0), [11, 13], "what nobody reads leaves, whatever the budget");
    assert_eq!(left(0, &[], |_| 1), [0; 0]);
}

/// With every segment that left, all that were left were compared with each other anew.
#[test]
fn the_worth_of_a_segment_was_asked_for_again_for_each_that_left() {
    let segments: String = (100..300).rev().map(|n| format!(" {n}:[{n}-{n}]#{n} 1MB")).collect();
    let text = format!("L1: 9:[1-9]#1-9 3MB\nround L1: 0\nappending:{segments}\n");
    let version = Version::parse(&text).unwrap();
    let asked = std::cell::Cell::new(0);
    let worth = |file: u64| {
        asked.set(asked.get() + 1);
        file
    };
    let trimmed = trim(&[&version], 50_000_000, |_| false, worth).remove(0);
    let left: Vec<u64> = trimmed[0].files().map(|file| file.number).collect();
    assert!(left.iter().copied().eq((250..300).rev()), "{left:?}");
    assert_eq!(asked.get(), 200);
}

/// Hundreds of files beside each other were all merged by one job, with a cursor and a read-ahead window for each.
#[test]
fn a_bulk_load_goes_down_part_by_part() {
    let options = LeveledOptions {
        level0_trigger: 2,
        max_compaction_bytes: 20 << 20,
        level_count: 4,
        ..LeveledOptions::default()
    };
    let policy = shaped("leveled", options);
    let picked = |text: &str| -> Vec<u64> {
        let version = Version::parse(text).unwrap();
        let plan = policy.pick(TABLE, &version, &BusyFiles::new()).unwrap();
        plan.input_files().map(|file| file.number).collect()
    };
    let loaded = "L0: 15:[u-z]#5 8MB\nL0: 14:[p-t]#5 8MB\nL0: 13:[k-n]#5 8MB\nL0: 12:[e-i]#5 8MB\nL0: 11:[a-d]#5 8MB\n";
    assert_eq!(picked(loaded), [12, 11], "the oldest, and its neighbour");
    assert_eq!(picked(&format!("L0: 16:[c-f]#9 8MB\n{loaded}")), [16, 12, 11], "what lies over them goes along");
    let apart = "L0: 14:[p-t]#8 8MB\nL0: 13:[a-d]#7 8MB\nL0: 12:[u-z]#6 8MB\nL0: 11:[e-i]#5 8MB\n";
    assert_eq!(picked(apart), [14, 11], "neighbours above come first");
    assert_eq!(picked("L0: 12:[e-i]#5 8MB\nL0: 11:[a-d]#5 8MB\n"), [12, 11], "little goes down at once");
    let over_each_other = "L0: 13:[a-z]#7 8MB\nL0: 12:[a-z]#6 8MB\nL0: 11:[a-z]#5 8MB\n";
    assert_eq!(picked(over_each_other), [13, 12, 11], "there is one part");
}
