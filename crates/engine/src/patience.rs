//! Patience: while writers are busy level 0 waits for more files, and the levels below it for more bytes.
//!
//! A merge of level 0 rewrites what it overlaps in the base level, so what it costs per byte is halved where twice as
//! many files are merged at once. Readers pay: each file of level 0 is one more place to look in. A file of a deeper
//! level overlaps less of the last level the larger its own level is, and readers look in as many places as before. So:
//!
//! 1. Writers are *busy* while the next generation of memtables may be expected soon: until twice the time between the
//!    last two seals has passed since the last one, and [`PAUSE`] at least: small generations follow each other
//!    unevenly. A database whose generations take longer than [`SOON`] is never busy.
//! 2. While they are, a merge of level 0 that is due waits until it is due twice over ([`SCORE`]), if its table is
//!    being written to (a table that is not would wait for nothing) and level 0 is not halfway to where writers are
//!    slowed. A tiered level 0 waits, up to that, while it has less than a generation of memtables: that of an index,
//!    whose files are so small that each merge costs more than its entries.
//! 3. So does what a deeper level has beyond its target, until that is as much as the target. Not what the base level
//!    has, which every merge of level 0 rewrites; nor what is reshaped on its way, which is what readers of a layout
//!    wait for; nor what makes the rounds of a two-phase level; nor what would be half the debt at which writers are
//!    slowed.
//! 4. When they pause, or somebody waits for the background to come to rest, it is done at once. Then, too, what is
//!    left in level 0 is made one file for readers ([`mycelium_compaction::CompactionPolicy::pick_at_rest`]).
//!
//! In manual mode, which knows no time, nothing waits.

use std::time::{Duration, Instant};

use mycelium_compaction::{CompactionPlan, Reason};
use mycelium_manifest::Version;

use crate::database::Inner;
use crate::options::{Background, Policy};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::table::TableShared;

/// The score from which levels are merged however busy writers are: twice their trigger.
const SCORE: f64 = 2.0;
/// Longer than this between two generations is not busy.
const SOON: Duration = Duration::from_secs(10);
/// Shorter than this is no pause.
const PAUSE: Duration = Duration::from_secs(1);

/// When generations of memtables were sealed.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pace {
    last: Option<Instant>,
    between: Option<Duration>,
}

impl Pace {
    /// A generation was sealed.
    pub(crate) fn note_seal(&mut self, now: Instant) {
        self.between = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
    }

    /// Until when writers count as busy.
    pub(crate) fn busy_until(&self) -> Option<Instant> {
        let between = self.between.filter(|between| *between <= SOON)?;
        self.last?.checked_add((2 * between).max(PAUSE))
    }
}

/// While one of these lives nothing waits.
pub(crate) struct Impatience<'a>(&'a AtomicUsize);

impl Drop for Impatience<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inner {
    /// From now until the result is dropped no compaction waits for more to do.
    pub(crate) fn be_impatient(&self) -> Impatience<'_> {
        self.impatient.fetch_add(1, Ordering::AcqRel);
        self.wake_background();
        Impatience(&self.impatient)
    }

    /// Whether a plan can wait while writers are busy.
    pub(crate) fn can_wait(&self, plan: &CompactionPlan, table: &TableShared) -> bool {
        let state = table.state.load();
        let version = &state.tree.version;
        let is_level0_short = version.level(0).runs.len() < self.options.slowdown_level0_runs / 2;
        let waits = match plan.reason {
            Reason::Level0Files | Reason::Level0Small => plan.score < SCORE && is_level0_short,
            Reason::RunCount => {
                let is_of_level0 = plan.inputs.iter().all(|input| input.level == 0);
                is_of_level0 && is_level0_short && version.level(0).bytes() < self.options.memory_budget as u64
            }
            Reason::LevelSize => {
                plan.score < SCORE
                    && is_below_base(plan, version)
                    && plan.keeps_groups()
                    && !matches!(table.definition.options.policy, Policy::TwoPhase(_))
                    && owed_bytes(plan, version) < self.options.slowdown_debt_bytes as f64 / 2.0
            }
            _ => false,
        };
        waits && state.memtables().any(|memtable| !memtable.is_empty())
    }

    /// Until when compactions that can wait do so.
    pub(crate) fn patient_until(&self, pace: Pace) -> Option<Instant> {
        if self.options.background == Background::Manual || self.impatient.load(Ordering::Acquire) > 0 {
            return None;
        }
        pace.busy_until().filter(|until| *until > Instant::now())
    }
}

/// Whether all inputs lie below the level that level 0 is merged into.
fn is_below_base(plan: &CompactionPlan, version: &Version) -> bool {
    let base = (1..version.levels.len()).find(|&level| !version.level(level).is_empty());
    base.is_some_and(|base| plan.inputs.iter().all(|input| input.level > base))
}

/// The bytes that are to be rewritten so that the level that a plan is about is at its target.
fn owed_bytes(plan: &CompactionPlan, version: &Version) -> f64 {
    let Some(level) = plan.inputs.iter().map(|input| input.level).min() else { return 0.0 };
    let (bytes, below) = (version.level_bytes(level) as f64, version.level_bytes(plan.output_level) as f64);
    (1.0 - 1.0 / plan.score) * (bytes + below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use mycelium_encoding::{DatumRef, Schema};

    use crate::interruption::Interruption;
    use crate::{Database, Durability, IndexOptions, LeveledOptions, Options, Table, TableOptions};

    #[test]
    fn writers_are_busy_until_twice_the_last_interval_and_a_pause_have_passed() {
        let start = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.busy_until(), None);
        pace.note_seal(start);
        assert_eq!(pace.busy_until(), None, "one generation says nothing of the pace");
        let second = start + Duration::from_secs(3);
        pace.note_seal(second);
        assert_eq!(pace.busy_until(), Some(second + Duration::from_secs(6)));
        let third = second + Duration::from_millis(15);
        pace.note_seal(third);
        assert_eq!(pace.busy_until(), Some(third + PAUSE), "a generation may well take 31 ms after one that took 15");
        pace.note_seal(third + Duration::from_secs(11));
        assert_eq!(pace.busy_until(), None, "a generation in eleven seconds is not busy");
    }

    /// A database whose background never runs by itself, with that many files in level 0 of each of two tables.
    fn level0(slowdown_level0_runs: usize, files: usize) -> (Database, [Table; 2]) {
        let options = Options {
            disk: Arc::new(mycelium_vfs::MemoryDisk::new()),
            background: Background::Manual,
            slowdown_level0_runs,
            ..Options::default()
        };
        let database = Database::open("db", options).unwrap();
        let tables = ["a", "b"].map(|name| database.create_table(name, TableOptions::default()).unwrap());
        for n in 0..files {
            for table in &tables {
                table.put(&n.to_be_bytes(), b"value", Durability::Os).unwrap();
            }
            // By hand: a flush that is asked for would compact, too.
            let mut writer = database.inner.commits.writer.lock();
            database.inner.seal_generation(&mut writer).unwrap();
            drop(writer);
            assert!(database.inner.flush_oldest().unwrap());
        }
        (database, tables)
    }

    fn waits(database: &Database, table: &Table) -> bool {
        database.inner.can_wait(&next_plan(table).unwrap(), &table.shared)
    }

    #[test]
    fn level_0_waits_only_in_a_table_that_is_written_to() {
        let (database, [written, idle]) = level0(20, 5);
        written.put(b"more", b"value", Durability::Os).unwrap();
        assert!(waits(&database, &written));
        assert!(!waits(&database, &idle), "nothing would come that it could wait for");
    }

    #[test]
    fn level_0_did_not_wait_until_writers_were_stopped() {
        let (database, [table, _]) = level0(8, 5);
        table.put(b"more", b"value", Durability::Os).unwrap();
        assert!(!waits(&database, &table), "writers are slowed at eight files");
    }

    #[test]
    fn twice_the_trigger_is_enough() {
        let (database, [table, _]) = level0(20, 8);
        table.put(b"more", b"value", Durability::Os).unwrap();
        assert!(!waits(&database, &table));
    }

    /// The next plan of a table, as its policy makes it.
    fn next_plan(table: &Table) -> Option<CompactionPlan> {
        let state = table.shared.state.load();
        let (shape, version) = (table.shared.shape.load(), &state.tree.version);
        shape.policy(version).pick(table.id(), version, &mycelium_compaction::BusyFiles::new())
    }

    /// A table that is written to, with some half more in level 2 than that is to have; whether level 1, the base
    /// level, waited for more on the way.
    fn overfull(policy: impl Fn(LeveledOptions) -> Policy, slowdown_debt_bytes: u64) -> (Database, Table, bool) {
        let options = Options {
            disk: Arc::new(mycelium_vfs::MemoryDisk::new()),
            background: Background::Manual,
            slowdown_debt_bytes,
            ..Options::default()
        };
        let levels = LeveledOptions {
            level0_trigger: 1,
            base_level_bytes: 5 << 10,
            target_file_size: 1 << 10,
            dynamic_levels: false,
            ..LeveledOptions::default()
        };
        let database = Database::open("db", options).unwrap();
        let options = TableOptions { policy: policy(levels), ..TableOptions::default() };
        let table = database.create_table("table", options).unwrap();
        let mut random = 1_u64;
        let mut next_random = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 56) as u8
        };
        let mut base_waited = false;
        for n in 0..100_u64 {
            for row in 0..4 {
                let value: Vec<u8> = std::iter::repeat_with(&mut next_random).take(900).collect();
                table.put(&(row * 100 + n).to_be_bytes(), &value, Durability::Os).unwrap();
            }
            let mut writer = database.inner.commits.writer.lock();
            database.inner.seal_generation(&mut writer).unwrap();
            drop(writer);
            assert!(database.inner.flush_oldest().unwrap());
            table.put(b"more", b"value", Durability::Os).unwrap();
            while let Some(plan) = next_plan(&table) {
                let has_base = !table.shared.state.load().tree.version.level(1).is_empty();
                if plan.inputs[0].level == 2 && has_base {
                    assert!(plan.reason == Reason::LevelSize && plan.score < 1.9, "{plan:?}");
                    return (database, table, base_waited);
                }
                base_waited |= plan.inputs[0].level == 1 && waits(&database, &table);
                assert!(database.inner.compact_one(Interruption::Never).unwrap());
            }
        }
        panic!("level 2 never had too much");
    }

    #[test]
    fn a_level_below_the_base_level_waits_until_it_is_twice_too_large() {
        let (database, table, base_waited) = overfull(Policy::Leveled, 1 << 30);
        assert!(waits(&database, &table));
        assert!(!base_waited);
        let twice = CompactionPlan { score: 2.0, ..next_plan(&table).unwrap() };
        assert!(!database.inner.can_wait(&twice, &table.shared));
        let plan = next_plan(&table).unwrap();
        database.inner.empty_memtables(&mut database.inner.commits.writer.lock()).unwrap();
        assert!(!database.inner.can_wait(&plan, &table.shared), "nothing would come that it could wait for");
    }

    #[test]
    fn a_level_does_not_wait_where_writers_are_soon_slowed_by_debt_nor_in_two_phases() {
        let (database, table, _) = overfull(Policy::Leveled, 2);
        assert!(!waits(&database, &table));
        let (database, table, _) = overfull(Policy::TwoPhase, 1 << 30);
        assert!(!waits(&database, &table));
    }

    #[test]
    fn the_small_files_of_an_index_wait_until_they_are_many() {
        let waits_with = |slowdown_level0_runs: usize, memory_budget: usize| {
            let options = Options {
                disk: Arc::new(mycelium_vfs::MemoryDisk::new()),
                background: Background::Manual,
                slowdown_level0_runs,
                memory_budget,
                ..Options::default()
            };
            let database = Database::open("db", options).unwrap();
            let schema = Schema::parse("id int64 not null, city utf8, primary key (id)").unwrap();
            let table = database.create_typed_table("people", schema, TableOptions::default()).unwrap();
            let by_city = IndexOptions { name: "by_city".into(), on: vec!["city".into()], ..IndexOptions::default() };
            let index = database.create_index(&table, &by_city).unwrap();
            let insert = |id: i64| table.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8("Graz")], Durability::Os);
            // So much that what comes does not take more space than it.
            for id in 100..10_000 {
                insert(id).unwrap();
            }
            database.compact(&table).unwrap();
            for id in 0..12 {
                insert(id).unwrap();
                let mut writer = database.inner.commits.writer.lock();
                database.inner.seal_generation(&mut writer).unwrap();
                drop(writer);
                assert!(database.inner.flush_oldest().unwrap());
            }
            insert(12).unwrap();
            assert_eq!(next_plan(&index.derived_table()).unwrap().reason, Reason::RunCount);
            waits(&database, &index.derived_table())
        };
        assert!(waits_with(30, 1 << 20));
        assert!(!waits_with(24, 1 << 20), "twelve files are halfway to where writers are slowed");
        assert!(!waits_with(30, 4 << 10), "they are as much as a generation");
    }

    #[test]
    fn level_0_is_one_file_at_rest() {
        let disk = Arc::new(mycelium_vfs::MemoryDisk::new());
        let open = |background| {
            let options = Options { disk: disk.clone(), background, ..Options::default() };
            Database::open("db", options).unwrap()
        };
        // All files are there before anybody merges them: a third that came to two merged already would rightly stay.
        let database = open(Background::Manual);
        let table = database.create_table("table", TableOptions::default()).unwrap();
        let key = |n: u32| n.to_be_bytes();
        for round in 0..3u32 {
            for n in 0..1000 {
                table.put(&key(n * 3 + round), &round.to_be_bytes(), Durability::Os).unwrap();
            }
            table.delete(&key(round * 3 + 6), Durability::Os).unwrap();
            let mut writer = database.inner.commits.writer.lock();
            database.inner.seal_generation(&mut writer).unwrap();
            drop(writer);
            assert!(database.inner.flush_oldest().unwrap());
        }
        drop(table);
        database.close().unwrap();
        let database = open(Background::Threads(2));
        let table = database.table("table").unwrap();
        database.wait_idle().unwrap();
        let state = table.shared.state.load();
        let runs: Vec<usize> = state.tree.version.levels.iter().map(|level| level.runs.len()).collect();
        assert_eq!((runs[0], runs.iter().sum::<usize>()), (1, 1), "{runs:?}");
        for n in 0..3000u32 {
            let deleted = [6, 9, 12].contains(&n);
            let expected = (!deleted).then(|| (n % 3).to_be_bytes().to_vec());
            assert_eq!(table.get(&key(n)).unwrap(), expected, "{n}");
        }
    }
}
