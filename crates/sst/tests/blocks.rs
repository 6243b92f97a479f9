//! Property test of the block format by itself.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use mycelium_base::{MAX_SEQUENCE_NUMBER, Operation, Trailer};
use mycelium_sst::{BlockBuilder, BlockCursor, BlockShape};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

type Versions = BTreeMap<std::cmp::Reverse<u64>, (u8, Vec<u8>)>;

fn versions() -> impl Strategy<Value = Versions> {
    let sequence = prop_oneof![0..10_u64, 0..=MAX_SEQUENCE_NUMBER].prop_map(std::cmp::Reverse);
    let value = prop_oneof![vec(any::<u8>(), 0..20), vec(any::<u8>(), 120..300)];
    btree_map(sequence, (0..4_u8, value), 1..6)
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(0..3_u8, 0..6), vec(any::<u8>(), 0..40), vec(0..2_u8, 130..200)]
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_block_gives_back_its_entries(
        keys in btree_map(key(), versions(), 1..40),
        interval in 1..20_usize,
        padding in 0..20_usize,
    ) {
        let mut entries = Vec::new();
        for (key, versions) in &keys {
            for (sequence, (operation, value)) in versions {
                let trailer = Trailer::new(sequence.0, Operation::from_u8(*operation).unwrap());
                entries.push((key.clone(), trailer, value.clone()));
            }
        }
        let mut builder = BlockBuilder::new(interval);
        let mut last: Option<Vec<u8>> = None;
        for (key, trailer, value) in &entries {
            let shared = last.as_ref().map_or(0, |last| common(last, key));
            builder.add(key, shared, last.as_ref() == Some(key), *trailer, value);
            last = Some(key.clone());
        }
        let len = builder.len();
        let mut bytes = vec![0xee; padding];
        builder.finish(&mut bytes);
        prop_assert!(builder.is_empty());
        prop_assert_eq!(bytes.len(), padding + len);
        let end = bytes.len();
        let shape = BlockShape::parse(&bytes, padding, end, None).unwrap();
        prop_assert_eq!(shape.entry_count() as usize, entries.len());
        prop_assert_eq!(shape.unique_keys(), keys.len() == entries.len());
        let sequences = || entries.iter().map(|(_, trailer, _)| trailer.sequence());
        prop_assert_eq!(shape.min_sequence(), sequences().min().unwrap());
        prop_assert_eq!(shape.max_sequence(), sequences().max().unwrap());
        prop_assert_eq!(shape.all_puts(), entries.iter().all(|(_, t, _)| t.operation() == Operation::Put));

        let mut cursor = BlockCursor::new();
        cursor.load(bytes.into(), padding, end, None).unwrap();
        let here = |cursor: &BlockCursor| (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec());
        let mut more = cursor.seek_to_first().unwrap();
        for (i, entry) in entries.iter().enumerate() {
            prop_assert!(more);
            prop_assert_eq!(&here(&cursor), entry);
            prop_assert_eq!(cursor.same_key(), i > 0 && entries[i - 1].0 == entry.0);
            more = cursor.advance().unwrap();
        }
        prop_assert!(!more);
        let mut more = cursor.seek_to_last().unwrap();
        for entry in entries.iter().rev() {
            prop_assert!(more);
            prop_assert_eq!(&here(&cursor), entry);
            more = cursor.prev().unwrap();
        }
        prop_assert!(!more);
        for (key, trailer, _) in &entries {
            for trailer in [*trailer, Trailer::NEWEST, Trailer::OLDEST, Trailer::seek_at(trailer.sequence())] {
                let found = cursor.seek(key, trailer).unwrap();
                let model = entries.iter().find(|e| mycelium_base::compare_entries(&e.0, e.1, key, trailer).is_ge());
                let found = found.then(|| here(&cursor));
                prop_assert_eq!(found.as_ref(), model);
            }
        }
    }
}

#[test]
fn an_interval_of_forged_keys_is_refused_before_it_takes_all_memory() {
    let mut builder = BlockBuilder::new(usize::MAX);
    let mut last = Vec::new();
    for number in 0..2_000_u32 {
        let key = [&[b'k'; 60_000][..], &number.to_be_bytes()].concat();
        builder.add(&key, common(&last, &key), false, Trailer::new(1, Operation::Put), b"");
        last = key;
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    assert!(bytes.len() < 100_000);
    let (end, mut cursor) = (bytes.len(), BlockCursor::new());
    cursor.load(bytes.into(), 0, end, None).unwrap();
    assert!(cursor.seek_to_first().unwrap());
    assert!(cursor.seek_to_last().unwrap_err().is_corruption());
}
