//! Versions and edits: invariants, placement of runs, text form, encoding.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mycelium_base::{ErrorKind, Group, TableId};
use mycelium_manifest::text::{format_size, parse_range, parse_size};
use mycelium_manifest::{
    AddedColumn, ChangedRound, DroppedColumn, FileMeta, KeyRange, ReplacedTable, Round, RunPlace, Segment, Segments,
    TableRecord, Version, VersionEdit, VersionError,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const TABLE: TableId = TableId(7);

fn file(text: &str) -> Arc<FileMeta> {
    let version = Version::parse(&format!("L1: {text}")).unwrap();
    version.level(1).files().next().unwrap().clone()
}

fn check(text: &str) -> Result<(), VersionError> {
    Version::parse(text).unwrap().check()
}

#[test]
fn every_broken_invariant_has_its_error() {
    let sound = "L0: 2:[a-z]#5-9 1MB\nL0: 1:[c-d]#1-4 1MB\nL1: 3:[a-c]#0 1MB 4:[d-k)#0 1MB 5:[k-l]#0 1MB";
    assert_eq!(check(sound), Ok(()));
    let overlap = |level, left, right| Err(VersionError::Overlap { level, run: 0, left, right });
    assert_eq!(check("L1: 3:[a-d]#0 1MB 4:[d-k]#0 1MB"), overlap(1, 3, 4));
    assert_eq!(check("L2: 3:[d-e]#0 1MB 4:[a-b]#0 1MB"), overlap(2, 3, 4));
    assert_eq!(check("L1: 3:[d-c]#0 1MB"), Err(VersionError::InvertedFence { level: 1, file: 3 }));
    assert_eq!(check("L1: 3:[d-d)#0 1MB"), Err(VersionError::InvertedFence { level: 1, file: 3 }));
    let inverted = VersionError::InvertedSequence { level: 1, file: 3, min: 9, max: 2 };
    assert_eq!(check("L1: 3:[c-d]#9-2 1MB"), Err(inverted));
    assert_eq!(check("L0: 1:[a-b]#1 1MB 2:[c-d]#2 1MB"), Err(VersionError::Level0Run { run: 0, files: 2 }));
    assert_eq!(check("L1: 1:[a-b]#1 1MB\nL2: 1:[c-d]#2 1MB"), Err(VersionError::DuplicateFile { level: 2, file: 1 }));
    assert_eq!(check("L1:\nL2: 1:[c-d]#2 1MB"), Err(VersionError::EmptyRun { level: 1, run: 0 }));
    let older_above = VersionError::OlderAbove { level: 2, file: 1, above: 2, above_max_sequence: 5, min_sequence: 6 };
    assert_eq!(check("L1: 2:[a-f]#3-5 1MB\nL2: 1:[f-g]#6-8 1MB"), Err(older_above.clone()));
    assert_eq!(check("L2: 2:[a-f]#3-5 1MB\nL2: 1:[a-k]#6-8 1MB"), Err(older_above));
    // Not provable: no key is known to be in both.
    assert_eq!(check("L1: 2:[a-f]#3-5 1MB\nL2: 1:[c-g]#6-8 1MB"), Ok(()));
    assert_eq!(check("L1: 2:[a-f)#3-5 1MB\nL2: 1:[f-g]#6-8 1MB"), Ok(()));
}

#[test]
fn ranges_honour_exclusive_ends() {
    let range = |text: &str| parse_range(text).unwrap();
    for (a, b, overlap) in [
        ("[a-c]", "[c-d]", true),
        ("[a-c)", "[c-d]", false),
        ("[a-c)", "[b-c)", true),
        ("[a-c]", "[d-e]", false),
        ("[b-b]", "[a-c)", true),
        ("[c-c]", "[a-c)", false),
    ] {
        assert_eq!(range(a).overlaps(&range(b)), overlap, "{a} {b}");
        assert_eq!(range(b).overlaps(&range(a)), overlap, "{b} {a}");
        let (f, g) = (file(&format!("1:{a}#1")), file(&format!("2:{b}#1")));
        assert_eq!(f.overlaps(&g), overlap, "{a} {b}");
        assert_eq!(f.overlaps_range(&range(b)), overlap, "{a} {b}");
    }
    let mut hull = range("[b-d)");
    assert!(!hull.include(&file("1:[b-d)#1")));
    assert!(hull.include(&file("1:[c-d]#1")));
    assert_eq!(hull, range("[b-d]"));
    assert!(!hull.include(&file("1:[b-d)#1")));
    assert_eq!(KeyRange::hull([]), None);
}

fn apply(version: &Version, edit: impl FnOnce(&mut VersionEdit)) -> Result<Version, VersionError> {
    let mut built = VersionEdit::default();
    edit(&mut built);
    version.try_apply(TABLE, &built)
}

#[test]
fn runs_go_where_the_edit_says() {
    let v = Version::new();
    let v = apply(&v, |e| {
        e.add_file(TABLE, 0, RunPlace::Newest, file("1:[a-c]#1-2 1kB"));
        e.add_file(TABLE, 0, RunPlace::Newest, file("2:[b-d]#3-4 1kB"));
        e.add_file(TABLE, 2, RunPlace::Newest, file("4:[k-m]#0 1kB"));
        e.add_file(TABLE, 2, RunPlace::Newest, file("3:[a-c]#0 1kB"));
        e.add_file(TableId(8), 0, RunPlace::Newest, file("99:[a-c]#1-2 1kB"));
    })
    .unwrap();
    assert_eq!(v.to_string(), "L0: 2:[b-d]#3-4 1kB\nL0: 1:[a-c]#1-2 1kB\nL2: 3:[a-c]#0 1kB 4:[k-m]#0 1kB\n");
    let v = apply(&v, |e| {
        e.remove_file(TABLE, 0, 1);
        e.remove_file(TABLE, 2, 3);
        e.add_file(TABLE, 2, RunPlace::Sorted, file("6:[n-p]#0 1kB"));
        e.add_file(TABLE, 2, RunPlace::Sorted, file("5:[a-d]#1 1kB"));
        e.add_file(TABLE, 0, RunPlace::InPlaceOf(1), file("7:[a-c]#1-2 2kB"));
        e.add_file(TABLE, 0, RunPlace::Newest, file("8:[a-z]#5 1kB"));
    })
    .unwrap();
    let expected = "L0: 8:[a-z]#5 1kB\nL0: 2:[b-d]#3-4 1kB\nL0: 7:[a-c]#1-2 2kB\n\
                    L2: 5:[a-d]#1 1kB 4:[k-m]#0 1kB 6:[n-p]#0 1kB\n";
    assert_eq!(v.to_string(), expected);
    // A move within one edit.
    let v = apply(&v, |e| {
        e.remove_file(TABLE, 2, 6);
        e.add_file(TABLE, 3, RunPlace::Sorted, file("6:[n-p]#0 1kB"));
    })
    .unwrap();
    assert_eq!(v.level(3).file_count(), 1);
}

fn changed(round: Round<u64>) -> ChangedRound {
    ChangedRound { table: TABLE, round }
}

#[test]
fn files_go_into_the_insertion_part() {
    let v = Version::parse("L1: 1:[a-c]#1 1kB 2:[k-m]#1 1kB").unwrap();
    let draining = Round { level: 1, is_draining: true, ..Round::default() };
    let v = apply(&v, |e| e.rounds.push(changed(draining))).unwrap();
    assert_eq!(v.insertion_part(1, None), None);
    assert_eq!(v.deletion_part(1, None).unwrap().files.len(), 2);
    // The first ones to be inserted are a new run; later ones join it, also where they take its files' places.
    let v = apply(&v, |e| e.add_file(TABLE, 1, RunPlace::Inserted, file("3:[b-l]#5 1kB"))).unwrap();
    let v = apply(&v, |e| {
        e.remove_file(TABLE, 1, 3);
        e.remove_file(TABLE, 1, 1);
        e.add_file(TABLE, 1, RunPlace::Inserted, file("4:[b-f]#6 1kB"));
        e.add_file(TABLE, 1, RunPlace::Inserted, file("5:[g-l]#6 1kB"));
    })
    .unwrap();
    let levels = "L1: 4:[b-f]#6 1kB 5:[g-l]#6 1kB\nL1: 2:[k-m]#1 1kB\n";
    assert_eq!(v.to_string(), format!("{levels}round L1: 0 draining\n"));
    assert_eq!(v.insertion_part(1, None).unwrap().files[0].number, 4);
    assert_eq!(v.deletion_part(1, None).unwrap().files[0].number, 2);
    let ended = Round { level: 1, number: 1, ..Round::default() };
    let v = apply(&v, |e| {
        e.remove_file(TABLE, 1, 2);
        e.rounds.push(changed(ended));
    })
    .unwrap();
    assert_eq!((v.insertion_part(1, None).unwrap().files.len(), v.deletion_part(1, None)), (2, None));
    // A round goes with its last files.
    let v = apply(&v, |e| [4, 5].into_iter().for_each(|number| e.remove_file(TABLE, 1, number))).unwrap();
    assert_eq!(v, Version::new());
}

#[test]
fn segments_stand_for_nothing_where_an_edit_does_not_say_so() {
    let text = "L1: 1:[a-c]#1 1kB\nL2: 2:[a-c]#1 1kB\nround L1: 2\nappending: 9:[a-b]#1 1kB\nround L2: 0 draining\n\
                appending: 8:[a-b]#1 1kB\nappending without: [a-a] [c-d)\ndeletion: 7:[a-b]#1 1kB 9:[a-b]#1 1kB\n";
    let v = Version::parse(text).unwrap();
    assert_eq!(v.to_string(), text);
    assert_eq!(v.buffered_files().map(|file| file.number).collect::<Vec<_>>(), [9, 8, 7]);
    let changed_below = apply(&v, |e| e.add_file(TABLE, 2, RunPlace::Sorted, file("3:[x-z]#1 1kB"))).unwrap();
    assert_eq!(changed_below.round(1, None), v.round(1, None));
    let round = changed_below.round(2, None).unwrap();
    assert!(round.is_draining && round.appending.is_none() && round.deletion.is_none());
    let segments = |files: &[u64]| {
        Some(Segments { files: files.iter().map(|file| (*file).into()).collect(), uncovered: Vec::new() })
    };
    let says = |files: &[u64]| changed(Round { level: 1, appending: segments(files), ..Round::default() });
    let v = apply(&v, |e| {
        e.remove_file(TABLE, 1, 1);
        e.add_file(TABLE, 1, RunPlace::Sorted, file("4:[a-c]#1 1kB"));
        e.rounds.push(says(&[4, 1, 9, 8]));
    })
    .unwrap();
    let numbers: Vec<u64> = v.round(1, None).unwrap().files().map(|file| file.number).collect();
    assert_eq!(numbers, [4, 1, 9, 8]);
    let unknown = apply(&v, |e| e.rounds.push(says(&[5]))).unwrap_err();
    assert_eq!(unknown, VersionError::MissingFile { level: 1, file: 5 });
}

#[test]
fn a_run_holds_one_column_group() {
    let v = apply(&Version::new(), |e| {
        e.add_file(TABLE, 1, RunPlace::Sorted, file("1:[a-c]#1 1kB group=0-3/packed"));
        e.add_file(TABLE, 1, RunPlace::Sorted, file("2:[a-c]#1 1kB group=4-5/columnar"));
        e.add_file(TABLE, 1, RunPlace::Sorted, file("3:[d-e]#1 1kB group=0-3/packed"));
        e.add_file(TABLE, 2, RunPlace::Newest, file("4:[d-e]#1 1kB group=0-3/packed"));
        e.add_file(TABLE, 2, RunPlace::Newest, file("5:[d-e]#1 1kB group=4-5/packed"));
    })
    .unwrap();
    let runs = [
        "L1: 1:[a-c]#1 1kB group=0-3/packed 3:[d-e]#1 1kB group=0-3/packed\n",
        "L1: 2:[a-c]#1 1kB group=4-5/columnar\n",
        "L2: 5:[d-e]#1 1kB group=4-5/packed\n",
        "L2: 4:[d-e]#1 1kB group=0-3/packed\n",
    ];
    assert_eq!(v.to_string(), runs.concat());
    v.check().unwrap();
    let v = apply(&v, |e| {
        e.remove_file(TABLE, 1, 2);
        e.add_file(TABLE, 1, RunPlace::Sorted, file("6:[a-b]#1 1kB group=4-5/columnar"));
        e.add_file(TABLE, 2, RunPlace::InPlaceOf(4), file("7:[a-b]#1 1kB group=0-1/packed"));
    })
    .unwrap();
    assert_eq!(v.level(1).runs[1].files[0].number, 6);
    assert_eq!(v.level(2).runs.len(), 3);
    let mixed = Version::parse("L1: 1:[a-c]#1 1kB group=0-3/packed 2:[d-e]#1 1kB").unwrap();
    assert_eq!(mixed.check(), Err(VersionError::MixedGroups { level: 1, run: 0, file: 2 }));
}

#[test]
fn age_is_compared_only_between_files_of_a_common_column() {
    let apart = "L1: 1:[a-c]#1 1kB group=0-3/packed\nL2: 2:[a-c]#9 1kB group=4-5/packed";
    Version::parse(apart).unwrap().check().unwrap();
    for below in ["group=3-5/packed", ""] {
        let text = format!(
            "L1: 1:[a-c]#1 1kB group=0-3/packed\nL1: 3:[a-c]#9 1kB group=4-5/packed\nL2: 2:[a-c]#9 1kB {below}"
        );
        let refused = Version::parse(&text).unwrap().check().unwrap_err();
        assert!(matches!(refused, VersionError::OlderAbove { file: 2, above: 1, .. }), "{refused}");
    }
}

#[test]
fn edits_that_do_not_fit_are_refused() {
    let v = "L0: 9:[a-z]#9 1kB\nL1: 1:[a-c]#1 1kB 2:[e-g]#1 1kB\nL2: 3:[a-b]#0 1kB\nL2: 4:[a-b]#0 1kB";
    let v = Version::parse(v).unwrap();
    let add = |level, place, text: &str| apply(&v, |e| e.add_file(TABLE, level, place, file(text))).unwrap_err();
    let overlap = VersionError::Overlap { level: 1, run: 0, left: 1, right: 5 };
    assert_eq!(add(1, RunPlace::Sorted, "5:[c-d]#1 1kB"), overlap);
    assert_eq!(add(2, RunPlace::Sorted, "5:[b-d]#1 1kB"), VersionError::SortedPlace { level: 2, runs: 2 });
    assert_eq!(add(0, RunPlace::Sorted, "5:[c-d]#1 1kB"), VersionError::SortedPlace { level: 0, runs: 1 });
    assert_eq!(add(2, RunPlace::InPlaceOf(1), "5:[c-d]#1"), VersionError::MissingFile { level: 2, file: 1 });
    assert_eq!(add(3, RunPlace::Newest, "4:[c-d]#1 1kB"), VersionError::DuplicateFile { level: 3, file: 4 });
    assert_eq!(add(16, RunPlace::Newest, "5:[c-d]#1 1kB"), VersionError::LevelOutOfRange { level: 16 });
    let missing = |level| Err(VersionError::MissingFile { level, file: 1 });
    assert_eq!(apply(&v, |e| e.remove_file(TABLE, 2, 1)), missing(2));
    let twice = apply(&v, |e| {
        e.remove_file(TABLE, 1, 1);
        e.remove_file(TABLE, 1, 1);
    });
    assert_eq!(twice, missing(1));
    let mut edit = VersionEdit::default();
    edit.remove_file(TABLE, 5, 1);
    assert_eq!(v.apply(TABLE, &edit).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn lookups_agree_with_a_straight_search() {
    let v = Version::parse("L1: 1:[b-d]#1 5kB 2:[e-h)#1 7kB 3:[h-h]#1 1kB 4:[k-p]#1 2kB").unwrap();
    let run = &v.level(1).runs[0];
    let keys = ["a", "b", "c", "d", "dd", "e", "g", "h", "i", "k", "p", "q"];
    for from in keys {
        let straight = run.files.iter().take_while(|f| f.ends_before(from.as_bytes())).count();
        assert_eq!(run.lower_bound(from.as_bytes()), straight, "{from}");
        for to in keys.iter().filter(|to| **to >= from) {
            for largest_exclusive in [false, true] {
                let range = KeyRange { smallest: from.into(), largest: (*to).into(), largest_exclusive };
                if range.ends_before(from.as_bytes()) {
                    continue;
                }
                let numbers = |f: &Arc<FileMeta>| f.number;
                let straight: Vec<u64> = run.files.iter().filter(|f| f.overlaps_range(&range)).map(numbers).collect();
                let found: Vec<u64> = run.overlapping(&range).iter().map(numbers).collect();
                assert_eq!(found, straight, "{range}");
            }
        }
    }
    assert_eq!((v.level_bytes(1), v.level_bytes(9), v.total_bytes(), v.file_count()), (15_000, 0, 15_000, 4));
    assert_eq!(v.find(3).map(|(level, run, f)| (level, run, f.size)), Some((1, 0, 1_000)));
    assert_eq!((v.find(30), v.last_level(), Version::new().last_level()), (None, Some(1), None));
}

fn random_bytes(rng: &mut SmallRng) -> Vec<u8> {
    (0..rng.random_range(0..6)).map(|_| rng.random_range(0..=255)).collect()
}

fn random_file(rng: &mut SmallRng, number: u64) -> FileMeta {
    let bits = rng.random_range(1..60);
    FileMeta {
        number,
        size: rng.random_range(0..1 << bits),
        checksum: rng.random(),
        smallest: random_bytes(rng),
        largest: random_bytes(rng),
        largest_exclusive: rng.random_bool(0.3),
        min_sequence: rng.random_range(0..1 << 56),
        max_sequence: rng.random_range(0..1 << 56),
        entry_count: rng.random_range(0..1000),
        delete_count: rng.random_range(0..3),
        range_delete_count: rng.random_range(0..3),
        sequence_override: rng.random_bool(0.3).then(|| rng.random_range(0..1 << 56)),
        group: rng.random_bool(0.3).then(|| Arc::new(random_group(rng))),
        created_at_edit: rng.random_range(0..9),
    }
}

fn random_group(rng: &mut SmallRng) -> Group {
    let columns = (0..rng.random_range(0..9)).map(|_| rng.random_range(0..200)).collect();
    let formats = ["columnar", "packed", "json", "protobuf", "flatbuffers", "raw"];
    let group = Group::new(columns, formats[rng.random_range(0..formats.len())].parse().unwrap());
    let group = if rng.random_bool(0.3) { group.with_lacking(rng.random_range(200..300)) } else { group };
    let dropped = group.held().iter().next().filter(|_| rng.random_bool(0.2));
    dropped.map_or(group.clone(), |column| group.with_dropped(column))
}

fn random_round(rng: &mut SmallRng) -> Round<u64> {
    let mut segments = || {
        let mut file = || {
            let within = rng.random_bool(0.3).then(|| KeyRange::inclusive([rng.random_range(0..9)], [9]));
            Segment { file: rng.random(), within }
        };
        let files = (0..3).map(|_| file()).collect();
        let mut segments = Segments { files, uncovered: Vec::new() };
        for _ in 0..rng.random_range(0..4) {
            let key = rng.random_range(0..250);
            segments.uncover(KeyRange { smallest: vec![key], largest: vec![key + 1], largest_exclusive: rng.random() });
        }
        rng.random_bool(0.7).then_some(segments)
    };
    let (appending, deletion) = (segments(), segments());
    let (level, number, is_draining) = (rng.random_range(0..16), rng.random(), rng.random());
    let group = rng.random_bool(0.5).then(|| Arc::new(random_group(rng)));
    Round { level, group, number, is_draining, appending, deletion }
}

fn random_table(rng: &mut SmallRng) -> TableRecord {
    let (name, layout) = ("tä ble".into(), "leveled".into());
    TableRecord { id: TableId(rng.random()), name, definition: random_bytes(rng), layout }
}

#[test]
fn text_and_bytes_round_trip() {
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut edit = VersionEdit {
            next_file_number: rng.random_bool(0.5).then(|| rng.random()),
            last_sequence: rng.random_bool(0.5).then(|| rng.random_range(0..1 << 56)),
            oldest_wal: rng.random_bool(0.5).then(|| rng.random()),
            ..VersionEdit::default()
        };
        let mut version = Version::new();
        for level in 0..rng.random_range(0..5) {
            version.levels.resize(level + 1, Default::default());
            let files: Vec<_> = (1..4).map(|n| Arc::new(random_file(&mut rng, n))).collect();
            for (n, file) in files.iter().enumerate() {
                let place = [RunPlace::Newest, RunPlace::Sorted, RunPlace::InPlaceOf(rng.random())][n];
                edit.add_file(TableId(rng.random()), level, place, file.clone());
                edit.remove_file(TableId(rng.random()), level, rng.random());
            }
            version.levels[level].runs.push(Arc::new(mycelium_manifest::Run { files }));
        }
        edit.created_tables.push(random_table(&mut rng));
        edit.changed_tables.push(random_table(&mut rng));
        edit.dropped_tables.push(TableId(rng.random()));
        let (from, record) = (TableId(rng.random()), random_table(&mut rng));
        let beside = rng.random_bool(0.5).then_some(3);
        let added = rng.random_bool(0.5).then(|| AddedColumn { column: 9, whole: random_group(&mut rng), beside });
        edit.replaced_tables.push(ReplacedTable { from, record, added, dropped: None });
        let (from, record) = (TableId(rng.random()), random_table(&mut rng));
        let dropped = Some(DroppedColumn { column: 5, whole: random_group(&mut rng) });
        edit.replaced_tables.push(ReplacedTable { from, record, added: None, dropped });
        edit.buffered_files.push((TableId(rng.random()), Arc::new(random_file(&mut rng, 9))));
        let table = TableId(rng.random());
        edit.rounds.push(ChangedRound { table, round: random_round(&mut rng) });

        let text = version.to_string();
        assert_eq!(Version::parse(&text).unwrap(), version, "seed {seed}\n{text}");
        let mut bytes = Vec::new();
        edit.encode(&mut bytes);
        assert_eq!(VersionEdit::decode(&bytes).unwrap(), edit, "seed {seed}");
        for cut in 0..bytes.len() {
            // A cut between two fields is a shorter edit; any other is an error.
            if let Ok(shorter) = VersionEdit::decode(&bytes[..cut]) {
                assert_ne!(shorter, edit);
            }
        }
        for _ in 0..200 {
            let mut damaged = bytes.clone();
            let bit = rng.random_range(0..damaged.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            // No panic; the framing's checksum catches what decodes all the same.
            VersionEdit::decode(&damaged).ok();
        }
    }
}

#[test]
fn unknown_fields_are_skipped_if_optional_and_refused_if_required() {
    let mut bytes = Vec::new();
    VersionEdit { oldest_wal: Some(5), ..VersionEdit::default() }.encode(&mut bytes);
    bytes.extend_from_slice(&[0x81, 0x08, 2, 7, 7]); // tag 1025
    assert_eq!(VersionEdit::decode(&bytes).unwrap().oldest_wal, Some(5));
    bytes.extend_from_slice(&[0x82, 0x08, 2, 7, 7]); // tag 1026
    assert_eq!(VersionEdit::decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn sizes_round_trip() {
    for size in [0, 1, 999, 1_000, 1_200_000, 1_234_567, 8_000_000, 123_456_789_012, u64::MAX] {
        assert_eq!(parse_size(&format_size(size)).unwrap(), size);
    }
    assert_eq!(format_size(1_200_000), "1.2MB");
    for wrong in ["", "MB", "1.2.3MB", "-1kB", "99999999999TB", "1.xkB", "0x5"] {
        assert!(parse_size(wrong).is_err(), "{wrong}");
    }
    for wrong in ["L0 1:[a-b]#1", "L99: 1:[a-b]#1", "L1: 1:[a-b] 1MB", "L1: 1:[ab]#1", "L1: 5MB", "L1: 1:[a-\\xzz]#1"] {
        assert!(Version::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn cut_keys_are_the_borders_of_all_runs_of_a_level() {
    let keys = |text: &str, range: &str| {
        let keys = Version::parse(text).unwrap().cut_keys(1, &parse_range(range).unwrap());
        keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect::<Vec<_>>()
    };
    let groups = "L1: 1:[a-c]#0 1MB group=0/packed 2:[d-k)#0 1MB group=0/packed 3:[k-l]#0 1MB group=0/packed\n\
                  L1: 4:[b-j]#0 1MB group=1/packed 5:[m-z]#0 1MB group=1/packed";
    // `k` lies between files 2 and 3 and between files 4 and 5.
    assert_eq!(keys(groups, "[a-z]"), ["d", "k"]);
    assert_eq!(keys(groups, "[a-d]"), ["d"]);
    assert_eq!(keys(groups, "[a-c]"), Vec::<String>::new());
    // The second run has a key in the border of the first: two keys.
    let apart = "L1: 1:[a-c]#0 1MB group=0/packed 2:[h-k]#0 1MB group=0/packed\n\
                 L1: 4:[b-h]#0 1MB group=1/packed 5:[i-z]#0 1MB group=1/packed";
    assert_eq!(keys(apart, "[a-z]"), ["h", "i"]);
}

/// Each border of each run is one of the keys, and none could be left out.
#[test]
fn cut_keys_are_as_few_as_can_be() {
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut version = Version::new();
        let mut borders: Vec<(u8, u8)> = Vec::new();
        let mut number = 0;
        for group in 0..rng.random_range(1..4u8) {
            let mut edit = VersionEdit::default();
            let mut before = None;
            let mut at = rng.random_range(0..20u8);
            while at < 200 {
                let largest = at + rng.random_range(0..20);
                number += 1;
                let group = Some(Arc::new(format!("{group}/packed").parse::<Group>().unwrap()));
                let file = FileMeta {
                    number,
                    smallest: vec![at],
                    largest: vec![largest],
                    group,
                    size: 1,
                    ..FileMeta::default()
                };
                edit.add_file(TABLE, 1, RunPlace::Sorted, Arc::new(file));
                borders.extend(before.map(|before| (before, at)));
                before = Some(largest);
                at = largest + rng.random_range(1..20);
            }
            version = version.apply(TABLE, &edit).unwrap();
        }
        let keys = version.cut_keys(1, &KeyRange::inclusive([0_u8], [255_u8]));
        let lies_between = |key: &[u8], (before, next): (u8, u8)| before < key[0] && key[0] <= next;
        for border in &borders {
            assert!(keys.iter().any(|key| lies_between(key, *border)), "seed {seed}: {border:?} in {keys:?}");
        }
        // So many borders have no key in common, two by two.
        let (mut apart, mut last) = (0, None);
        borders.sort_by_key(|(_, next)| *next);
        for (before, next) in borders {
            if last.is_none_or(|last| before >= last) {
                (apart, last) = (apart + 1, Some(next));
            }
        }
        assert_eq!(keys.len(), apart, "seed {seed}");
    }
}

#[test]
fn a_file_planned_for_the_only_run_of_a_level_that_became_tiered_makes_a_run() {
    let v = Version::parse("L2: 4:[a-b]#9 1kB\nL2: 3:[a-b]#1 1kB").unwrap();
    let after = apply(&v, |e| e.add_file(TABLE, 2, RunPlace::Sorted, file("5:[c-d]#1 1kB"))).unwrap();
    after.check().unwrap();
    let first = |run: usize| after.level(2).runs[run].files[0].number;
    assert_eq!((first(0), first(1), first(2)), (5, 4, 3));
}

/// Writers are held back by it: files that lie apart, or touch where one does not hold its end, are as good as one.
#[test]
fn a_level_is_as_deep_as_its_files_lie_over_each_other() {
    for (text, depth) in [
        ("L1: 1:[a-c]#1-9 1MB", 0),
        ("L0: 1:[a-c]#1-9 1MB", 1),
        ("L0: 2:[d-f]#2 1MB\nL0: 1:[a-c]#1 1MB", 1),
        ("L0: 2:[c-f]#2 1MB\nL0: 1:[a-c]#1 1MB", 2),
        ("L0: 2:[c-f]#2 1MB\nL0: 1:[a-c)#1 1MB deletes=1", 1),
        ("L0: 3:[e-g]#3 1MB\nL0: 2:[b-f]#2 1MB\nL0: 1:[a-c]#1 1MB", 2),
        ("L0: 3:[b-b]#3 1MB\nL0: 2:[b-f]#2 1MB\nL0: 1:[a-c]#1 1MB", 3),
    ] {
        assert_eq!(Version::parse(text).unwrap().level(0).depth(), depth, "{text}");
    }
}
