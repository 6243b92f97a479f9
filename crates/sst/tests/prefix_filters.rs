//! Filters that hold prefixes of keys: none that a file has is ruled out, and few others pass.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use mycelium_base::RangeDelete;
use mycelium_base::hash::hash_key;
use mycelium_encoding::key::prefix_successor;
use mycelium_encoding::{Column, ColumnType, KeyPrefixes};
use mycelium_sst::{
    FOOTER_LEN, Footer, KeyBits, OpenOptions, ScanPrefix, SstFile, SstWriterOptions, open_block, seal_block,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Groups that are asked for; every other one has keys.
const GROUPS: u32 = 2000;
/// Bytes of a group in a key.
const WIDTH: usize = 4;

fn group(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Keys of one to three members of each even group, some of several versions.
fn entries() -> Vec<Entry> {
    let members = |n: u32| (0..=n / 2 % 3).map(move |member| [&group(n)[..], &member.to_be_bytes()].concat());
    let keys = (0..GROUPS).step_by(2).flat_map(members);
    let versions = |key: Vec<u8>| (1..=1 + u64::from(key[3] % 4)).rev().map(move |version| put(&key, version, b"v"));
    keys.flat_map(versions).collect()
}

fn options(prefixes: Option<KeyPrefixes>, filter_bits_per_key: u32) -> SstWriterOptions {
    SstWriterOptions { prefixes, filter_bits_per_key, block_size: 256, ..writer_options() }
}

/// Whether the file may have keys with a prefix.
fn passes(file: &SstFile, prefix: &[u8]) -> bool {
    file.may_contain_any(&mut ScanPrefix::new(Some(prefix), prefix_successor(prefix).as_deref()))
}

#[test]
fn a_file_with_a_prefix_is_never_ruled_out_and_few_others_pass() {
    for bits in [0, 10] {
        let (bytes, summary) = write(&entries(), &[], options(KeyPrefixes::of_bytes(WIDTH), bits));
        let of_prefixes = u64::from(GROUPS / 2) * 10 / 8;
        assert_eq!(summary.filter_bytes < of_prefixes + 100, bits == 0, "{} bytes", summary.filter_bytes);
        for cache_bytes in [0, 8 << 20] {
            let file = open_with(bytes.clone(), cache_bytes, OpenOptions::default()).unwrap();
            file.verify(|_| {}).unwrap();
            assert!((0..GROUPS).step_by(2).all(|n| passes(&file, &group(n))));
            assert!(entries().iter().all(|(key, ..)| passes(&file, key) && file.may_contain(hash_key(key))));
            let passed = (1..GROUPS).step_by(2).filter(|&n| passes(&file, &group(n))).count();
            if cache_bytes > 0 {
                assert!(passed * 100 / (GROUPS as usize / 2) <= 3, "{passed} with {bits} bits a key");
            }
            // Without keys in the filter it says nothing of them.
            let absent = (0..1000_u32).map(|n| hash_key(&n.to_le_bytes()));
            let passed = absent.filter(|&hash| file.may_contain(hash)).count();
            assert_eq!(passed == 1000, bits == 0 || cache_bytes == 0, "{passed}");
            let (filters, ask_file) = (file.filters(), |hash: u64| file.may_contain(hash));
            let is_found = |key: &[u8]| filters.may_contain(&mut KeyBits::new(hash_key(key)), ask_file);
            assert!(entries().iter().all(|(key, ..)| is_found(key)));
        }
    }
}

#[test]
fn bounds_beyond_a_prefix_pass_every_file() {
    let (bytes, _) = write(&entries(), &[], options(KeyPrefixes::of_bytes(WIDTH), 10));
    let file = open(bytes).unwrap();
    let n = (1..GROUPS).step_by(2).find(|&n| !passes(&file, &group(n))).unwrap();
    let (absent, end) = (group(n), group(n + 1));
    let (member, later) = ([&absent[..], b"member"].concat(), [&end[..], b"\0"].concat());
    let may_contain = |lower: Option<&[u8]>, upper: Option<&[u8]>| {
        let mut scan = ScanPrefix::new(lower, upper);
        let first = file.may_contain_any(&mut scan);
        assert_eq!(file.may_contain_any(&mut scan), first);
        first
    };
    assert!(!may_contain(Some(&absent[..]), Some(&end[..])));
    assert!(!may_contain(Some(&member[..]), Some(&end[..])));
    for (lower, upper) in [
        (None, None),
        (None, Some(&end[..])),
        (Some(&absent[..]), None),
        (Some(&absent[..]), Some(&later[..])),
        (Some(&absent[..WIDTH - 1]), Some(&end[..])),
    ] {
        assert!(may_contain(lower, upper), "{lower:x?} {upper:x?}");
    }
}

#[test]
fn files_without_prefixes_rule_nothing_out() {
    let (bytes, _) = write(&entries(), &[], options(None, 10));
    let file = open(bytes).unwrap();
    assert!((0..GROUPS).all(|n| passes(&file, &group(n))));
    assert_eq!((file.properties().prefixes, file.properties().filter_lacks_keys), (None, false));
    // Nor do those that have range deletes alone, which no filter knows of.
    let delete = RangeDelete { start: group(1), end: group(9), sequence: 7 };
    let (bytes, _) = write(&[], &[delete], options(KeyPrefixes::of_bytes(WIDTH), 0));
    let file = open(bytes).unwrap();
    file.verify(|_| {}).unwrap();
    assert!((0..10).all(|n| passes(&file, &group(n)) && file.may_contain(hash_key(&group(n)))));
}

/// Keys of any bytes: most are none of the types that the prefixes are of.
#[test]
fn keys_that_are_none_of_the_prefixes_types_are_found_all_the_same() {
    let rng = &mut SmallRng::seed_from_u64(17);
    let columns = [Column::new("a", ColumnType::Utf8), Column::new("b", ColumnType::Int16).not_null()];
    for prefixes in [KeyPrefixes::of_index(&columns), KeyPrefixes::of_bytes(2)] {
        let key = |rng: &mut SmallRng| -> Vec<u8> {
            (0..rng.random_range(0..8)).map(|_| [0, 1, 2, 0xff][rng.random_range(0..4_usize)]).collect()
        };
        let mut keys: Vec<Vec<u8>> = (0..300).map(|_| key(rng)).collect();
        keys.sort();
        keys.dedup();
        let entries: Vec<Entry> = keys.iter().map(|key| put(key, 1, b"v")).collect();
        for bits in [0, 10] {
            let file = open(write(&entries, &[], options(prefixes, bits)).0).unwrap();
            file.verify(|_| {}).unwrap();
            for _ in 0..2000 {
                let (lower, upper) = (key(rng), key(rng));
                let is_within = keys.iter().any(|key| *key >= lower && *key < upper);
                let mut scan = ScanPrefix::new(Some(&lower[..]), Some(&upper[..]));
                assert!(file.may_contain_any(&mut scan) || !is_within, "{lower:x?} {upper:x?}");
                let with_prefix = keys.iter().any(|key| key.starts_with(&lower));
                assert!(passes(&file, &lower) || !with_prefix, "{lower:x?}");
            }
        }
    }
}

#[test]
fn a_filter_without_the_prefixes_that_it_is_said_to_have_is_corrupt() {
    let (mut bytes, _) = write(&entries(), &[], options(KeyPrefixes::of_bytes(WIDTH), 10));
    let footer_at = bytes.len() - FOOTER_LEN;
    let part = Footer::parse(&bytes[footer_at..], FILE_NUMBER, footer_at as u64).unwrap().properties;
    let at = part.offset as usize..(part.offset + part.len) as usize;
    let (payload, kind) = open_block(&bytes[at.clone()], FILE_NUMBER, part.offset).unwrap();
    let mut payload = payload.to_vec();
    assert_eq!(payload.pop(), Some(WIDTH as u8));
    payload.push(WIDTH as u8 + 1);
    seal_block(&mut payload, 0, kind, FILE_NUMBER, part.offset);
    bytes[at].copy_from_slice(&payload);
    let error = open(bytes).unwrap().verify(|_| {}).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("lacks a prefix"), "{error}");
}
