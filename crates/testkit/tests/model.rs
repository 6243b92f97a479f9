//! The same histories under every configuration, compared with the model after every action.
//!
//! A history is a function of its seed, so a failure is reproduced by its line alone; the test shortens the history and
//! prints what is left. `MYCELIUM_TEST_SCALE=release` runs the counts of a release.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use mycelium_testkit::{
    Action, Configuration, EngineStore, HistoryOptions, Mechanisms, Mismatch, Scale, TableKind, Weights, check_history,
    configurations, generate, grouped, shrink,
};

/// The tables of the seed's history: all kinds appear over a few seeds.
fn history_options(seed: u64, actions: usize, configurations: &[Configuration]) -> HistoryOptions {
    let tables = match seed % 3 {
        0 => vec![TableKind::KeyValue, TableKind::Merging, TableKind::Typed],
        1 => vec![TableKind::Typed, TableKind::MergingApart],
        _ => vec![TableKind::KeyValue, TableKind::MergingApart, TableKind::Typed],
    };
    let mut options = HistoryOptions { seed, actions, tables, ..HistoryOptions::default() };
    if !configurations.iter().all(Configuration::takes_transactions) {
        options.weights.transact = 0;
    }
    // Parts of tables are compacted in half of the histories; the others are what they were before they could be.
    if seed / 3 % 2 == 1 {
        options.weights.compact_part = 6;
    }
    with_expiry(with_changing_columns(options, configurations), configurations)
}

/// Columns of typed tables change where all of the configurations say so; other histories are what they were before
/// that.
fn with_changing_columns(mut options: HistoryOptions, configurations: &[Configuration]) -> HistoryOptions {
    if configurations.iter().all(|configuration| configuration.changing_columns) {
        options.weights.change_columns = 3;
        for kind in options.tables.iter_mut().filter(|kind| **kind == TableKind::Typed) {
            *kind = TableKind::Growing;
        }
    }
    options
}

/// Rows expire where all of the configurations say so; other histories are what they were before that.
fn with_expiry(mut options: HistoryOptions, configurations: &[Configuration]) -> HistoryOptions {
    if configurations.iter().all(|configuration| configuration.expiring) {
        options.weights = Weights { set_expiry: 1, expire: 5, ..options.weights };
    }
    options
}

/// The same with tables of keys alone, operators that remove rows, cells at the edges of types and encodings, iterators
/// and scans that are held open, transactions among other commits, and readers beside the writer.
fn held_options(seed: u64, actions: usize, configurations: &[Configuration]) -> HistoryOptions {
    let mut options = history_options(seed, actions, configurations);
    options.tables = match seed % 3 {
        0 => vec![TableKind::Removing, TableKind::Typed, TableKind::KeysAlone],
        1 => vec![TableKind::Typed, TableKind::RemovingApart],
        _ => vec![TableKind::Raw, TableKind::KeysAlone, TableKind::Typed],
    };
    options.edge_cells = true;
    let weights = Weights { ingest: 8, recreate: 2, compact_part: 6, ..options.weights };
    let weights = Weights { hold: 30, go_on: 70, begin: 25, within: 60, end: 30, look: 4, ..weights };
    options.weights = Weights { get_for_update: 3, ..weights };
    if !configurations.iter().all(Configuration::takes_transactions) {
        options.weights = Weights { begin: 0, within: 0, end: 0, ..options.weights };
    }
    with_changing_columns(options, configurations)
}

/// Runs a history; what ran of the configuration's mechanisms.
fn run(configuration: &Configuration, options: &HistoryOptions, history: &[Action]) -> Result<Mechanisms, Mismatch> {
    let failed = |error: mycelium_base::Error| Mismatch { index: 0, action: "opening".into(), what: error.to_string() };
    let mut store = EngineStore::in_memory(configuration, &options.tables).map_err(failed)?;
    check_history(&mut store, &options.tables, history)?;
    Ok(store.mechanisms().clone())
}

/// The failure with the shortest history that still shows it.
fn report(configuration: &Configuration, options: &HistoryOptions, history: &[Action], mismatch: &Mismatch) -> String {
    let mut text = format!("configuration {}, seed {}: {mismatch}\n", configuration.name, options.seed);
    let short =
        shrink(&history[..(mismatch.index + 1).min(history.len())], |part| run(configuration, options, part).is_err());
    if let Err(mismatch) = run(configuration, options, &short) {
        text += &format!("shortest: {mismatch}\n");
    }
    text.extend(short.iter().map(|action| format!("  {action}\n")));
    text
}

/// Runs seeds, each under one or more configurations; fails with the first difference. `ran` is told what ran.
fn check_seeds(
    seeds: std::ops::Range<u64>,
    actions: usize,
    configurations_of: impl Fn(u64) -> Vec<Configuration> + Sync,
    ran: impl Fn(&Configuration, &Mechanisms) + Sync,
) {
    check_histories(seeds, actions, history_options, configurations_of, ran);
}

/// The same with histories drawn from other options.
fn check_histories(
    seeds: std::ops::Range<u64>,
    actions: usize,
    options_of: fn(u64, usize, &[Configuration]) -> HistoryOptions,
    configurations_of: impl Fn(u64) -> Vec<Configuration> + Sync,
    ran: impl Fn(&Configuration, &Mechanisms) + Sync,
) {
    let runs: Vec<(u64, HistoryOptions, Configuration)> = seeds
        .clone()
        .flat_map(|seed| {
            let configurations = configurations_of(seed);
            let options = options_of(seed, actions, &configurations);
            configurations.into_iter().map(move |configuration| (seed, options.clone(), configuration))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut generated: Option<(u64, Vec<Action>)> = None;
                while let Some((seed, options, configuration)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if generated.as_ref().is_none_or(|(of, _)| of != seed) {
                        generated = Some((*seed, generate(options)));
                    }
                    let Some((_, history)) = &generated else { return };
                    match run(configuration, options, history) {
                        Ok(mechanisms) => ran(configuration, &mechanisms),
                        Err(mismatch) => {
                            next.store(runs.len(), Ordering::Relaxed);
                            panic!("{}", report(configuration, options, history, &mismatch));
                        }
                    }
                }
            });
        }
    });
    println!(
        "seeds: {}..{}, actions each: {}, runs: {}, differences: 0",
        seeds.start,
        seeds.end,
        grouped(actions as u64),
        grouped(runs.len() as u64)
    );
}

/// The configurations that take all actions.
fn without_maps() -> Vec<Configuration> {
    configurations().into_iter().filter(Configuration::takes_transactions).collect()
}

/// One short history under all configurations: what differs between them is only how, never what.
#[test]
fn every_configuration_gives_the_answers_of_the_model() {
    let all = without_maps();
    assert!(all.len() >= 16, "{} configurations", all.len());
    println!("configurations: {}", all.len());
    check_seeds(0..Scale::from_environment().pick(2, 100), 1_000, |_| all.clone(), |_, _| {});
}

/// Long histories, spread over the configurations.
#[test]
fn long_histories_give_the_answers_of_the_model() {
    let all = without_maps();
    let (seeds, actions) = Scale::from_environment().pick((100, 5_000), (5_000, 10_000));
    let left_encoded = AtomicBool::new(false);
    let ran = |_: &Configuration, mechanisms: &Mechanisms| {
        left_encoded.fetch_or(mechanisms.has_left_values_encoded, Ordering::Relaxed);
    };
    check_seeds(1_000..1_000 + seeds, actions, |seed| vec![all[seed as usize % all.len()].clone()], ran);
    assert!(left_encoded.into_inner(), "no compaction left values encoded");
}

/// What is open goes on showing the moment of its beginning, and transactions among other commits are isolated from
/// them; a row is locked by one of them at a time, who then sees the newest; keys alone and rows that operators remove
/// are rows like others.
#[test]
fn what_is_held_open_shows_its_own_moment() {
    let all = without_maps();
    let (rounds, actions) = Scale::from_environment().pick((1, 700), (50, 5_000));
    let seeds = 70_000..70_000 + rounds * all.len() as u64;
    let (granted, moved, refused) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let expired = AtomicU64::new(0);
    let ran = |_: &Configuration, mechanisms: &Mechanisms| {
        granted.fetch_add(mechanisms.locks_granted, Ordering::Relaxed);
        moved.fetch_add(mechanisms.locks_that_moved, Ordering::Relaxed);
        refused.fetch_add(mechanisms.locks_refused, Ordering::Relaxed);
        expired.fetch_add(mechanisms.rows_expired, Ordering::Relaxed);
    };
    check_histories(seeds, actions, held_options, |seed| vec![all[seed as usize % all.len()].clone()], ran);
    let [granted, moved, refused, expired] = [granted, moved, refused, expired].map(AtomicU64::into_inner);
    println!(
        "locks granted: {granted}, of which {moved} showed newer rows; refused: {refused}; rows expired: {expired}"
    );
    assert!(granted > 100 && moved > 0 && refused > 0 && expired > 0, "not all of it ran");
}

/// The same under random configurations.
#[test]
fn what_is_held_open_shows_its_own_moment_under_random_configurations() {
    let (seeds, actions) = Scale::from_environment().pick((5, 2_000), (200, 5_000));
    check_histories(80_000..80_000 + seeds, actions, held_options, |seed| vec![Configuration::random(seed)], |_, _| {});
}

/// The same with keys that are numbers, which merge by windows and are searched in blocks as such, or of two columns;
/// and what is whole is salvaged as it is.
fn numbered_options(seed: u64, actions: usize, configurations: &[Configuration]) -> HistoryOptions {
    let mut options = held_options(seed, actions, configurations);
    options.tables = match seed % 3 {
        0 => vec![TableKind::Numbered, TableKind::Merging],
        1 => vec![TableKind::KeysAlone, TableKind::Numbered],
        _ => vec![TableKind::Paired, TableKind::Raw],
    };
    options.weights = Weights { change_columns: 0, salvage: 4, ..options.weights };
    options
}

/// Under every configuration with columnar files, where keys of one length lie otherwise than others.
#[test]
fn keys_with_numbers_give_the_answers_of_the_model() {
    let mut all = without_maps();
    all.retain(|configuration| configuration.layouts.iter().any(|layout| layout.contains("columnar")));
    assert!(all.len() >= 8, "{} configurations", all.len());
    let (rounds, actions) = Scale::from_environment().pick((1, 700), (100, 5_000));
    let seeds = 90_000..90_000 + rounds * all.len() as u64;
    check_histories(seeds, actions, numbered_options, |seed| vec![all[seed as usize % all.len()].clone()], |_, _| {});
}

/// The same under random configurations.
#[test]
fn keys_with_numbers_give_the_answers_of_the_model_under_random_configurations() {
    let (seeds, actions) = Scale::from_environment().pick((4, 1_500), (200, 5_000));
    let configurations = |seed| vec![Configuration::random(seed)];
    check_histories(95_000..95_000 + seeds, actions, numbered_options, configurations, |_, _| {});
}

/// A compaction left nothing of what went into an empty insertion part, and its inputs stayed as segments that stood
/// for nothing: the manifest named files that no tree held, which were removed, and a checkpoint missed them.
#[test]
fn segments_that_stand_for_nothing_are_not_kept() {
    let buffered = Configuration::named("buffer-groups").unwrap();
    check_seeds(1_040..1_041, 400, |_| vec![buffered.clone()], |_, _| {});
}

/// Histories on tables with indexes, which come and go, under every layout: what an index answers, at the newest state
/// and at every live snapshot, is what its table's rows say.
#[test]
fn indexes_give_the_answers_of_their_tables() {
    let all: Vec<Configuration> = configurations().into_iter().filter(|c| !c.indexes.is_empty()).collect();
    assert!(all.len() >= 8, "{} configurations", all.len());
    let (seeds, actions) = Scale::from_environment().pick((16, 1_000), (2_000, 5_000));
    check_seeds(20_000..20_000 + seeds, actions, |seed| vec![all[seed as usize % all.len()].clone()], |_, _| {});
}

/// The same for materialised views.
#[test]
fn views_give_what_the_rows_of_their_tables_add_up_to() {
    let all: Vec<Configuration> = configurations().into_iter().filter(|c| !c.views.is_empty()).collect();
    assert!(all.len() >= 8, "{} configurations", all.len());
    let (seeds, actions) = Scale::from_environment().pick((16, 1_000), (2_000, 5_000));
    check_seeds(30_000..30_000 + seeds, actions, |seed| vec![all[seed as usize % all.len()].clone()], |_, _| {});
}

/// Nobody asks for another layout: the advisor does, and nothing of it shows.
#[test]
fn a_layout_that_follows_the_workload_gives_the_answers_of_the_model() {
    let auto = Configuration::named("auto").unwrap();
    let (seeds, actions) = Scale::from_environment().pick((3, 4_000), (200, 10_000));
    let reshaped = AtomicU64::new(0);
    let count = |_: &Configuration, mechanisms: &Mechanisms| {
        reshaped.fetch_add(u64::from(mechanisms.has_reshaped), Ordering::Relaxed);
    };
    check_seeds(98_000..98_000 + seeds, actions, |_| vec![auto.clone()], count);
    assert!(reshaped.into_inner() > 0, "no layout changed");
}

/// A user's map, in the table's own format and with others after it: rows read as if they had been mapped when they
/// were written. Tables whose rows are mapped take no transactions.
#[test]
fn mapped_rows_are_read_as_if_they_had_been_mapped_when_written() {
    let all: Vec<Configuration> = configurations().into_iter().filter(|c| !c.takes_transactions()).collect();
    assert!(all.len() >= 2, "{} configurations", all.len());
    let (seeds, actions) = Scale::from_environment().pick((8, 2_000), (1_000, 5_000));
    check_seeds(50_000..50_000 + seeds, actions, |seed| vec![all[seed as usize % all.len()].clone()], |_, _| {});
}

/// The same with everything else drawn: sizes, policies, what comes after the map.
#[test]
fn mapped_rows_of_random_configurations_are_read_as_if_they_had_been_mapped_when_written() {
    let (seeds, actions) = Scale::from_environment().pick((6, 2_500), (200, 5_000));
    let mapped = AtomicU64::new(0);
    // The map is the first of the set: what is in level 1 was mapped on its way.
    let count = |_: &Configuration, mechanisms: &Mechanisms| {
        mapped.fetch_add(u64::from(mechanisms.levels_filled.get(1) == Some(&true)), Ordering::Relaxed);
    };
    check_seeds(60_000..60_000 + seeds, actions, |seed| vec![Configuration::random_mapped(seed)], count);
    assert_eq!(mapped.into_inner(), seeds, "some whose rows never came to be mapped");
}

/// Random configurations, each with a history of its own. One counts only if all its mechanisms ran, a layout change
/// among them, which a table with transformers cannot have; as many are drawn as it takes.
#[test]
fn random_configurations_give_the_answers_of_the_model() {
    let (wanted, actions) = Scale::from_environment().pick((6, 2_500), (200, 5_000));
    let (counted, missing) = (AtomicU64::new(0), Mutex::new(BTreeMap::<String, u64>::new()));
    let count = |configuration: &Configuration, mechanisms: &Mechanisms| {
        let counts = configuration.transformers.is_none() && mechanisms.all_ran(configuration);
        counted.fetch_add(u64::from(counts), Ordering::Relaxed);
        for what in mechanisms.missing(configuration) {
            *missing.lock().unwrap().entry(what).or_default() += 1;
        }
    };
    let mut seed = 40_000;
    while counted.load(Ordering::Relaxed) < wanted {
        let more = wanted - counted.load(Ordering::Relaxed);
        check_seeds(seed..seed + more, actions, |seed| vec![Configuration::random(seed)], count);
        seed += more;
        assert!(seed < 40_000 + 4 * wanted, "too few ran with all their mechanisms: {:?}", missing.lock().unwrap());
    }
    println!("random configurations: {}, of which all mechanisms ran: {}", seed - 40_000, counted.into_inner());
    println!("in the others these did not run: {:?}", missing.into_inner().unwrap());
}
