//! Derived entries within a budget: nothing is lost, nothing is there twice, and never more than the budget is held.

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_base::{ColumnSet, EntryRef, GroupFormat, Operation, Result, RowFormatKind, Trailer};
use mycelium_encoding::Datum;
use mycelium_transform::{
    InputEntry, JobContext, Outputs, Place, Progress, Registry, TransformState, Transformer, TransformerSet,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::drawing::{for_seeds, stored};
use crate::tables::{ROOMY, Table};

/// Derives many entries of many sizes for two tables, the same ones whenever the same entry comes.
#[derive(Debug)]
struct Scatter {
    tables: [String; 2],
}

fn scattered(key: &[u8], sequence: u64) -> Vec<(usize, Vec<u8>, Vec<u8>)> {
    let seed = key.iter().fold(sequence, |hash, &byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut derived = BTreeMap::new();
    for _ in 0..rng.random_range(0..30) {
        let derived_key = rng.random_range(0..1000u32).to_be_bytes()[..rng.random_range(0..=4)].to_vec();
        let len = if rng.random_ratio(1, 20) { 3_000 } else { rng.random_range(0..40) };
        derived.insert((rng.random_range(0..2), derived_key), vec![rng.random(); len]);
    }
    derived.into_iter().map(|((table, key), value)| (table, key, value)).collect()
}

impl Transformer for Scatter {
    fn place(&self) -> Place {
        Place::Beside
    }

    fn derived_tables(&self) -> Vec<String> {
        self.tables.to_vec()
    }

    fn reads(&self) -> ColumnSet {
        ColumnSet::from_iter([1])
    }

    fn prepare(&self, _job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        Ok(Box::new(Scattering))
    }
}

struct Scattering;

impl TransformState for Scattering {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        for (number, (table, key, value)) in scattered(entry.key, entry.sequence).iter().enumerate() {
            // Half of the time it does not mind that the staging area is full.
            if !outputs.derive(*table, key, Operation::Put, value)? && number % 2 == 0 {
                break;
            }
        }
        Ok(())
    }
}

#[test]
fn whatever_the_budget_the_same_entries_are_derived() {
    let mut registry = Registry::built_in();
    registry
        .register("test.scatter", |arguments, _| {
            Ok(Arc::new(Scatter { tables: [format!("{arguments}.0"), format!("{arguments}.1")] }))
        })
        .unwrap();
    let table = Table::parse("id int64 not null, a int32, primary key (id)");
    let set = TransformerSet::parse("test.scatter x\naugment by_a on 1\ntest.scatter y").unwrap();
    let linked = registry.link(&set, &table.formats, GroupFormat::Row(RowFormatKind::Packed), &ROOMY).unwrap();
    assert_eq!(linked.derived_tables(), ["by_a", "x.0", "x.1", "y.0", "y.1"]);
    let whole = table.whole(RowFormatKind::Packed);
    let value = stored(table.format(RowFormatKind::Packed), &vec![None, Some(Datum::Int32(5))]);

    for_seeds(60, |rng| {
        let budget = [0, 1, 100, 2_000, 5_000, 20_000, 100_000][rng.random_range(0..7)];
        let mut job = linked.job(0..1, &whole, std::slice::from_ref(&whole), budget).unwrap();
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        let mut drain = |job: &mut mycelium_transform::Job| {
            let held = job.staged_bytes();
            let staged = job.retrieve().unwrap();
            assert!(held <= budget || staged.len() == 1, "{held} of {budget} with {} entries", staged.len());
            assert!(job.is_drained() && job.staged_bytes() == 0);
            let order: Vec<_> = staged.iter().map(|e| (e.table, e.key, std::cmp::Reverse(e.sequence))).collect();
            assert!(order.is_sorted() && order.windows(2).all(|pair| pair[0] != pair[1]));
            found.extend(staged.iter().map(|e| (e.table, e.key.to_vec(), e.sequence, e.value.to_vec())));
        };
        for row in 0..rng.random_range(1..40u64) {
            let (key, sequence) = (row.to_be_bytes(), rng.random_range(1..1_000_000));
            for (table, derived_key, value) in scattered(&key, sequence) {
                expected.push((1 + table, derived_key.clone(), sequence, value.clone()));
                expected.push((3 + table, derived_key, sequence, value));
            }
            // 5 as an int32 that may be null.
            expected.push((0, [&[1, 0x80, 0, 0, 5][..], &key].concat(), sequence, Vec::new()));
            let entry = EntryRef { key: &key, trailer: Trailer::new(sequence, Operation::Put), value: &value };
            let mut rounds = 0;
            while job.transform(entry).unwrap() == Progress::Full {
                assert_eq!(job.mapped().count(), 0);
                drain(&mut job);
                rounds += 1;
                assert!(rounds < 1_000, "no progress with a budget of {budget}");
            }
            assert_eq!(job.mapped().collect::<Vec<_>>(), [(0, value.as_slice())]);
        }
        drain(&mut job);
        found.sort();
        expected.sort();
        assert_eq!(found.len(), expected.len());
        assert!(found == expected);
    });
}

#[test]
fn a_full_job_refuses_another_entry() {
    let table = Table::parse("id int64 not null, a int32, primary key (id)");
    let linked = table.link("augment x on 1", RowFormatKind::Packed, &ROOMY).unwrap();
    let mut job = linked.job(0..1, &table.whole(RowFormatKind::Packed), &[], 0).unwrap();
    let value = stored(table.format(RowFormatKind::Packed), &vec![None, Some(Datum::Null)]);
    let entry = |key, sequence| EntryRef { key, trailer: Trailer::new(sequence, Operation::Put), value: &value };
    assert_eq!(job.transform(entry(b"a", 1)).unwrap(), Progress::Done);
    assert_eq!(job.transform(entry(b"b", 2)).unwrap(), Progress::Full);
    assert_eq!(job.transform(entry(b"b", 2)).unwrap(), Progress::Full);
    assert!(job.transform(entry(b"c", 3)).is_err());
    assert_eq!(job.retrieve().unwrap().len(), 1);
    assert_eq!(job.transform(entry(b"b", 2)).unwrap(), Progress::Done);
    assert_eq!(job.retrieve().unwrap().iter().next().unwrap().sequence, 2);
}
