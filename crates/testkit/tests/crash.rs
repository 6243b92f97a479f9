//! Power loss and death of the process at every operation, in every way the disk allows (see
//! `mycelium_testkit::crash`).
//!
//! `MYCELIUM_TEST_SCALE=release` runs the counts of a release.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mycelium_testkit::crash::{CrashPoint, Setup, Tally, Workload, check_directory, open_and_read};
use mycelium_testkit::{
    Configuration, CrashKind, Durability, EngineStore, Scale, State, Store, TableKind, Write, WriteKind, grouped,
};
use mycelium_vfs::{CrashDraw, CrashMode, MemoryDisk};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Actions of one workload.
const ACTIONS: usize = 120;

/// Runs workloads from `first_seed` on, on all cores, until they have done `operations` operations.
fn run_workloads(first_seed: u64, operations: u64, visit: impl Fn(&CrashPoint<'_>) + Clone + Send + Sync + 'static) {
    run_drawn(Workload::small, first_seed, operations, visit);
}

/// The same with workloads drawn in another way.
fn run_drawn(
    draw: fn(u64, usize) -> Workload,
    first_seed: u64,
    operations: u64,
    visit: impl Fn(&CrashPoint<'_>) + Clone + Send + Sync + 'static,
) {
    let (next_seed, done) = (AtomicU64::new(first_seed), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < operations {
                    let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                    let run = draw(seed, ACTIONS).run(visit.clone());
                    match run {
                        Ok(count) => done.fetch_add(count, Ordering::Relaxed),
                        Err(error) => panic!("workload {seed} fails without any fault: {error:?}"),
                    };
                }
            });
        }
    });
    let last = next_seed.into_inner() - 1;
    println!("workload seeds: {first_seed}..={last}, operations: {}", grouped(done.into_inner()));
}

/// At every operation of enough workloads, `images` images by draws of this mode. Prints and asserts.
fn crash_everywhere(
    what: &str,
    first_seed: u64,
    images: u64,
    mode: impl Fn(u64) -> CrashMode + Clone + Send + Sync + 'static,
) {
    let tally = Arc::new(Tally::default());
    let shared = tally.clone();
    run_workloads(first_seed, images, move |point| {
        let seed = point.seed << 32 | point.index;
        let draw = CrashDraw { mode: mode(seed), seed };
        shared.check(point, &point.disk.crash_image(&draw), CrashKind::PowerLoss, &draw);
    });
    tally.finish(what);
}

#[test]
fn power_loss_at_every_operation_keeps_what_was_synced() {
    let images = Scale::from_environment().pick(5_000, 50_000);
    crash_everywhere("crash points", 1, images, |_| CrashMode::SyncedOnly);
}

#[test]
fn death_of_the_process_at_every_operation_keeps_what_was_handed_over() {
    let tally = Arc::new(Tally::default());
    let shared = tally.clone();
    run_workloads(1_000, Scale::from_environment().pick(5_000, 50_000), move |point| {
        shared.check(point, &point.disk.kill_image(), CrashKind::ProcessKill, &"kill");
    });
    tally.finish("kill points");
}

/// The harness itself: a power loss takes what was only handed over, and asking for it must be noticed.
#[test]
fn a_broken_promise_is_noticed() {
    let tally = Arc::new(Tally::default());
    let shared = tally.clone();
    run_workloads(9_000, 500, move |point| {
        let draw = CrashDraw { mode: CrashMode::SyncedOnly, seed: 0 };
        shared.check(point, &point.disk.crash_image(&draw), CrashKind::ProcessKill, &draw);
    });
    let lost = tally.lost.load(Ordering::Relaxed);
    println!("crash points: {}, noticed: {lost}", tally.images.load(Ordering::Relaxed));
    assert!(lost > 50, "only {lost} losses were noticed");
}

#[test]
fn unsynced_blocks_may_survive_in_any_order() {
    let images = Scale::from_environment().pick(10_000, 1_000_000);
    crash_everywhere("block seeds", 2_000, images, |seed| CrashMode::KeepSome {
        keep: [0.25, 0.5, 0.75][seed as usize % 3],
    });
}

#[test]
fn unsynced_sectors_may_be_torn() {
    let images = Scale::from_environment().pick(10_000, 200_000);
    crash_everywhere("sector seeds", 30_000, images, |seed| CrashMode::TornSectors {
        keep: [0.25, 0.5, 0.75][seed as usize % 3],
    });
}

#[test]
fn names_and_data_may_survive_without_each_other() {
    let images = Scale::from_environment().pick(5_000, 100_000);
    crash_everywhere("metadata seeds", 4_000, images, |seed| match seed % 3 {
        0 => CrashMode::MetadataOnly,
        1 => CrashMode::DataOnly,
        _ => CrashMode::KeepSome { keep: 0.5 },
    });
}

/// Between two backups there are all moments, whatever a crash interrupted: a flush, a backup, the archiving of a
/// segment, a pass over rows that have expired.
#[test]
fn what_a_crash_leaves_is_restored_to_any_moment_of_its_archived_log() {
    let tally = Arc::new(Tally::default());
    let shared = tally.clone();
    // One operation in eight of the workloads.
    run_drawn(Workload::archived, 7_000, Scale::from_environment().pick(3_000, 200_000), move |point| {
        if !point.index.is_multiple_of(8) {
            return;
        }
        let seed = point.seed << 32 | point.index;
        // The multiplicative hash of the seed.
        let moment = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        match point.index.is_multiple_of(16) {
            true => shared.check_restore(point, &point.disk.kill_image(), CrashKind::ProcessKill, moment),
            false => {
                let image = point.disk.crash_image(&CrashDraw::from_seed(seed));
                shared.check_restore(point, &image, CrashKind::PowerLoss, moment);
            }
        }
    });
    let restores = tally.restores.load(Ordering::Relaxed);
    println!("restores: {restores}");
    assert!(restores > 60, "only {restores} restores were made");
    tally.finish("images of archived logs");
}

/// Crashes recovery `depth` times before letting it finish; what it then finds must be what it would have found at
/// once.
fn crash_in_recovery(tally: &Tally, point: &CrashPoint<'_>, seed: u64, depth: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut draw = || CrashDraw::from_seed(rng.random());
    let first = draw();
    let image = point.disk.crash_image(&first);
    // Opening changes the image: a second one of the same draw shows what recovery finds at once.
    let undisturbed = tally.check(point, &point.disk.crash_image(&first), CrashKind::PowerLoss, &first);
    let mut rng = SmallRng::seed_from_u64(seed ^ depth);
    let mut image = image;
    for _ in 0..depth {
        let operations = {
            let trial = image.kill_image();
            drop(open_and_read(&trial, point.setup));
            trial.operations()
        };
        image.power_off_after(Some(rng.random_range(0..=operations)));
        drop(open_and_read(&image, point.setup));
        image = image.crash_image(&CrashDraw::from_seed(rng.random()));
    }
    let found = tally.check(point, &image, CrashKind::PowerLoss, &(first, depth));
    if found != undisturbed {
        tally.fail(&tally.lost, format!("{point}, recovery crashed {depth} times: finds other rows than undisturbed"));
    }
}

#[test]
fn recovery_may_crash_too() {
    let crashes = Scale::from_environment().pick(2_000, 50_000);
    let tally = Arc::new(Tally::default());
    let done = Arc::new(AtomicU64::new(0));
    let (shared, counter) = (tally.clone(), done.clone());
    // One operation in three of the workloads.
    run_workloads(5_000, crashes * 3, move |point| {
        if point.index.is_multiple_of(3) {
            let seed = point.seed << 32 | point.index;
            for depth in [1, 2, 3] {
                crash_in_recovery(&shared, point, seed, depth);
            }
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    println!("recovery seeds: {}, crashes each: 1, 2 and 3 deep", grouped(done.load(Ordering::Relaxed)));
    tally.finish("recovered images");
}

/// A table of hundreds of small files, all of them written and synced.
fn many_files() -> (Setup, MemoryDisk, State) {
    let configuration = Configuration {
        file_bytes: 1 << 10,
        block_bytes: 512,
        ..Configuration::named("base").expect("there is a base configuration")
    };
    let setup = Setup { configuration, tables: vec![TableKind::KeyValue] };
    let disk = MemoryDisk::new();
    let mut store = EngineStore::create(Arc::new(disk.clone()), &setup.configuration, &setup.tables).unwrap();
    let mut rng = SmallRng::seed_from_u64(6);
    for round in 0..3 {
        for _ in 0..900 {
            let key = format!("{:06}", rng.random_range(0..1_200)).into_bytes();
            let kind = if rng.random_bool(0.1) {
                WriteKind::Delete(key)
            } else {
                WriteKind::Put(key, (0..rng.random_range(200..500)).map(|_| rng.random()).collect())
            };
            store.write(&[Write { table: 0, kind }], Durability::Sync).unwrap();
        }
        if round < 2 {
            store.compact(0).unwrap();
        }
    }
    store.flush().unwrap();
    let state = store.state().unwrap();
    (setup, disk, state)
}

#[test]
fn a_compaction_may_be_interrupted_at_every_operation() {
    let (setup, disk, expected) = many_files();
    let start = disk.operations();
    let mut store = EngineStore::open(Arc::new(disk.clone()), &setup.configuration, &setup.tables).unwrap();
    let failures: Arc<Mutex<Vec<String>>> = Arc::default();
    let points = Arc::new(AtomicU64::new(0));
    let (kept, count, hooked) = (failures.clone(), points.clone(), disk.clone());
    let (images_setup, rows) = (setup.clone(), expected.clone());
    disk.on_operation(move |index, operation| {
        count.fetch_add(1, Ordering::Relaxed);
        let draw = CrashDraw {
            mode: [CrashMode::SyncedOnly, CrashMode::KeepSome { keep: 0.5 }][index as usize % 2],
            seed: index,
        };
        for image in [hooked.crash_image(&draw), hooked.kill_image()] {
            let outcome = open_and_read(&image, &images_setup).map_err(|error| format!("{error:?}"));
            let wrong = match outcome {
                Err(error) => Some(error),
                Ok((_, state)) if state != rows => Some("other rows".into()),
                Ok((store, _)) => check_directory(&image, &store).err(),
            };
            kept.lock().extend(wrong.map(|what| format!("before operation {index}, {operation}: {what}")));
        }
    });
    store.compact(0).unwrap();
    while store.database().unwrap().step().unwrap() {}
    disk.clear_hook();
    assert_eq!(store.state().unwrap(), expected);
    let (points, failures) = (points.load(Ordering::Relaxed), failures.lock());
    println!(
        "operations before: {}, crash points of the compaction: {}, lost: {}",
        grouped(start),
        grouped(points),
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures[..failures.len().min(3)].join("\n"));
    assert!(points >= 1_000, "{points} points");
}
