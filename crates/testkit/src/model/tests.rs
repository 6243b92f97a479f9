//! The model against histories whose answers are known.

use std::ops::Bound;

use rand::SeedableRng;

use super::*;
use crate::tables::TableKind;

fn put(key: &str, value: &str) -> Write {
    Write { table: 0, kind: WriteKind::Put(key.into(), value.into()) }
}

fn delete(key: &str) -> Write {
    Write { table: 0, kind: WriteKind::Delete(key.into()) }
}

fn merge(key: &str, operand: &str) -> Write {
    Write { table: 0, kind: WriteKind::Merge(key.into(), operand.into()) }
}

fn delete_range(start: &str, end: &str) -> Write {
    Write { table: 0, kind: WriteKind::DeleteRange(start.into(), end.into()) }
}

fn model() -> Model {
    Model::new([TableKind::Merging.rules(), TableKind::KeyValue.rules()])
}

fn get(model: &Model, key: &str, snapshot: u64) -> Option<String> {
    model.get(0, key.as_bytes(), snapshot).map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn snapshots_see_their_own_versions() {
    let mut model = model();
    let first = model.write(&[put("a", "1"), put("b", "1")], Durability::Sync);
    let second = model.write(&[delete("a"), put("b", "2")], Durability::Sync);
    let third = model.write(&[put("a", "3")], Durability::Sync);
    assert_eq!((first, second, third), (2, 4, 5));
    assert_eq!(get(&model, "a", 0), None);
    assert_eq!(get(&model, "a", first).as_deref(), Some("1"));
    assert_eq!(get(&model, "a", second), None);
    assert_eq!(get(&model, "a", third).as_deref(), Some("3"));
    assert_eq!(get(&model, "b", third).as_deref(), Some("2"));
}

#[test]
fn range_deletes_hide_only_what_is_older() {
    let mut model = model();
    // Within a batch, order decides.
    model.write(&[put("a", "1"), put("b", "1"), delete_range("a", "b"), put("aa", "1")], Durability::Sync);
    assert_eq!(get(&model, "a", 9), None);
    assert_eq!(get(&model, "aa", 9).as_deref(), Some("1"));
    assert_eq!(get(&model, "b", 9).as_deref(), Some("1"));
    assert_eq!(get(&model, "a", 2).as_deref(), Some("1"));
    // A range delete is a bottom for merge operands too.
    model.write(&[put("m", "x"), delete_range("a", "z"), merge("m", "y")], Durability::Sync);
    assert_eq!(get(&model, "m", 9).as_deref(), Some("y"));
}

#[test]
fn merge_operands_fold_in_order_on_any_base() {
    let mut model = model();
    model.write(&[merge("a", "1"), merge("a", "2")], Durability::Sync);
    assert_eq!(get(&model, "a", 9).as_deref(), Some("12"));
    model.write(&[put("a", "x"), merge("a", "3")], Durability::Sync);
    assert_eq!(get(&model, "a", 9).as_deref(), Some("x3"));
    model.write(&[delete("a"), merge("a", "4")], Durability::Sync);
    assert_eq!(get(&model, "a", 9).as_deref(), Some("4"));
}

#[test]
fn scans_honour_bounds_prefix_and_direction() {
    let mut model = model();
    model.write(&["a", "ab", "ac", "b", "c"].map(|key| put(key, key)), Durability::Sync);
    let keys = |range: ScanRange, direction| {
        let rows = model.scan(0, &range, 9, direction);
        rows.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(ScanRange::ALL, Direction::Backward), "c b ac ab a");
    let range =
        ScanRange { lower: Bound::Excluded(b"a".to_vec()), upper: Bound::Included(b"b".to_vec()), prefix: None };
    assert_eq!(keys(range.clone(), Direction::Forward), "ab ac b");
    assert_eq!(keys(ScanRange { prefix: Some(b"a".to_vec()), ..range }, Direction::Forward), "ab ac");
}

#[test]
fn walks_skip_impossible_moves() {
    let mut model = model();
    model.write(&["a", "c"].map(|key| put(key, key)), Durability::Sync);
    let moves = [
        Move::Next,
        Move::Seek(b"b".to_vec()),
        Move::Prev,
        Move::Prev,
        Move::Next,
        Move::SeekForPrev(b"b".to_vec()),
        Move::Next,
        Move::Next,
        Move::Last,
    ];
    let steps = model.walk(0, &ScanRange::ALL, 9, &moves);
    let text: Vec<String> = steps
        .iter()
        .map(|(_, row)| row.as_ref().map_or("-".into(), |(key, _)| String::from_utf8(key.clone()).unwrap()))
        .collect();
    assert_eq!(text.join(" "), "c a - a c - c");
}

#[test]
fn the_prefix_rule_allows_exactly_the_prefixes_above_the_floor() {
    let mut model = model();
    model.write(&[put("a", "1")], Durability::Sync);
    model.write(&[put("a", "2"), put("b", "2")], Durability::Os);
    model.write(&[put("a", "3")], Durability::Buffered);
    model.begin(&[put("a", "4"), Write { table: 1, kind: WriteKind::Put(b"x".into(), b"4".into()) }], Durability::Sync);
    let states: Vec<State> = (0..=4).map(|count| model.state_after(count)).collect();
    for (count, state) in states.iter().enumerate() {
        assert_eq!(model.check_prefix_rule(state, CrashKind::PowerLoss).ok(), (count >= 1).then_some(count));
        assert_eq!(model.check_prefix_rule(state, CrashKind::ProcessKill).ok(), (count >= 2).then_some(count));
    }
    // Half of the last batch.
    let mut half = states[4].clone();
    half[1].clear();
    let violation = model.check_prefix_rule(&half, CrashKind::PowerLoss).unwrap_err();
    assert!(violation.to_string().contains("found nothing"), "{violation}");
    assert_eq!((violation.floor(), violation.nearest()), (1, 4));

    model.truncate(2);
    assert_eq!(model.state(9), states[2]);
    assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
    model.write(&[put("c", "5")], Durability::Buffered);
    assert_eq!(model.durable_floor(CrashKind::ProcessKill), 2);
    model.mark_durable(CrashKind::ProcessKill);
    assert_eq!(model.durable_floor(CrashKind::ProcessKill), 3);
    assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
}

#[test]
fn a_dropped_table_is_empty_at_every_snapshot_and_whole_before_the_drop() {
    let mut model = model();
    model.write(&[put("a", "1"), Write { table: 1, kind: WriteKind::Put(b"x".into(), b"1".into()) }], Durability::Os);
    let before = model.state_after(1);
    model.begin_drop(0);
    assert_eq!(model.state_after(1), before);
    assert_eq!((get(&model, "a", 1), get(&model, "a", 9)), (None, None));
    let dropped = model.state_after(2);
    assert!(dropped[0].is_empty() && dropped[1] == before[1]);
    // In doubt it may be there or not; once acknowledged it must be, and all before it.
    assert_eq!(model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap(), 1);
    assert_eq!(model.check_prefix_rule(&dropped, CrashKind::PowerLoss).unwrap(), 2);
    model.acknowledge();
    assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
    model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap_err();
    model.write(&[put("b", "2")], Durability::Buffered);
    assert_eq!((get(&model, "a", 9), get(&model, "b", 9).as_deref()), (None, Some("2")));
    model.truncate(1);
    assert_eq!(model.state(9), before);
}

#[test]
fn a_column_that_comes_later_is_null_in_rows_from_before_and_once_acknowledged_it_stays() {
    let kind = TableKind::Growing;
    let mut rng = rand::rngs::SmallRng::seed_from_u64(1);
    let (row, patch) = (kind.random_row(&mut rng, 9), kind.random_increment(&mut rng, 9));
    let write = |kind| Write { table: 0, kind };
    let mut model = Model::new([kind.rules()]);
    model.write(&[write(WriteKind::Put(b"a".to_vec(), row.clone()))], Durability::Buffered);
    let before = model.state_after(1);
    assert_eq!(before[0][&b"a"[..]], kind.fitted(&row, 0));
    assert!(model.begin_change(0));
    assert_eq!(model.state_after(1), before);
    // In doubt it may be there or not; once acknowledged it must be, and all before it.
    let after = model.state_after(2);
    assert_ne!(after, before);
    assert_eq!(model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap(), 1);
    assert_eq!(model.check_prefix_rule(&after, CrashKind::PowerLoss).unwrap(), 2);
    model.acknowledge();
    model.check_prefix_rule(&before, CrashKind::PowerLoss).unwrap_err();
    assert_eq!(model.get(0, b"a", 1), Some(after[0][&b"a"[..]].clone()), "at an older snapshot, too");
    model.write(&[write(WriteKind::Put(b"b".to_vec(), row.clone()))], Durability::Os);
    assert_eq!(model.get(0, b"b", 9), Some(kind.fitted(&row, 1)));
    let within = model.scan_within(0, &ScanRange::ALL, 1, &[write(WriteKind::Patch(b"b".to_vec(), patch))]);
    assert_eq!(within, [(b"a".to_vec(), after[0][&b"a"[..]].clone())]);
    assert!((1..4).all(|_| model.begin_change(0)) && !model.begin_change(0));
    model.take_back(3);
    assert_eq!(model.get(0, b"b", 9), Some(kind.fitted(&row, 1)));
    model.begin_drop(0);
    model.write(&[write(WriteKind::Put(b"b".to_vec(), row.clone()))], Durability::Os);
    assert_eq!(model.get(0, b"b", 9), Some(kind.fitted(&row, 0)));
}

#[test]
fn backups_that_are_there_are_some_of_those_begun() {
    let mut model = model();
    let mut states = Vec::new();
    for value in ["1", "2", "3"] {
        model.write(&[put("a", value)], Durability::Buffered);
        model.begin_backup();
        states.push(model.state(9));
    }
    // The second one failed, or was whole all the same.
    model.acknowledge_backup();
    model.acknowledge_backup();
    let [first, second, third] = [0, 1, 2].map(|at: usize| states[at].clone());
    assert!(model.explains_backups(&states));
    assert!(model.explains_backups(&[first.clone(), third.clone()]));
    assert!(!model.explains_backups(&[third.clone(), first]));
    assert!(!model.explains_backups(&[third]));
    assert!(!model.explains_backups(&[second.clone(), second]));
}

#[test]
fn an_ingestion_is_one_commit_of_one_sequence_number() {
    let mut model = model();
    model.write(&[put("a", "1"), put("b", "1")], Durability::Buffered);
    model.begin_ingest(0, &[(b"b".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"2".to_vec())]);
    model.begin_ingest(0, &[]);
    assert_eq!((model.last_sequence(), model.commit_count()), (3, 2));
    assert_eq!((get(&model, "b", 2).as_deref(), get(&model, "b", 3).as_deref()), (Some("1"), Some("2")));
    assert_eq!((get(&model, "c", 2), get(&model, "c", 3).as_deref()), (None, Some("2")));
    model.acknowledge();
    assert_eq!(model.durable_floor(CrashKind::PowerLoss), 2);
}

#[test]
fn transactions_keep_what_was_not_rolled_back() {
    use TransactionStep::{Release, RollbackTo, Savepoint};
    let write = |value: &str| TransactionStep::Write(put("a", value));
    let left = |steps: &[TransactionStep]| {
        let values = surviving_writes(steps).into_iter().map(|write| match write.kind {
            WriteKind::Put(_, value) => String::from_utf8(value).unwrap(),
            other => panic!("{other:?}"),
        });
        values.collect::<String>()
    };
    assert_eq!(left(&[write("1"), Savepoint, write("2"), RollbackTo(0), write("3"), RollbackTo(0)]), "1");
    assert_eq!(left(&[Savepoint, write("1"), Savepoint, write("2"), RollbackTo(1), write("3")]), "13");
    assert_eq!(left(&[Savepoint, write("1"), Savepoint, write("2"), RollbackTo(0), RollbackTo(1)]), "");
    assert_eq!(left(&[write("1"), Savepoint, write("2"), Release(0), RollbackTo(0)]), "12");

    let mut model = model();
    model.write(&[put("a", "1"), put("b", "1")], Durability::Sync);
    let keys = ["a", "b", "c"].map(|key| (0, key.as_bytes().to_vec()));
    let seen = model.read_within(&[merge("a", "2"), delete_range("b", "c"), put("c", "3"), delete("c")], &keys);
    assert_eq!(seen, [Some(b"12".to_vec()), None, None]);
    let seen = model.read_within(&[], &keys);
    assert_eq!(seen, [Some(b"1".to_vec()), Some(b"1".to_vec()), None]);
    assert_eq!((model.last_sequence(), model.commit_count()), (2, 1));
}
