//! Properties of the partitioners over random keys, entry sizes and grandparents.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mycelium_compaction::{AlignedPartitioner, FixedPartitioner, Partitioner};
use mycelium_manifest::FileMeta;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const TARGET: u64 = 10_000;

fn key(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Files with gaps between them, some ending at an exclusive fence.
fn grandparents(rng: &mut SmallRng, widest: u32) -> Vec<Arc<FileMeta>> {
    let mut files = Vec::new();
    let mut at = rng.random_range(0..widest);
    while at < 100_000 {
        let end = at + rng.random_range(1..widest);
        files.push(Arc::new(FileMeta {
            number: files.len() as u64,
            size: 5_000,
            smallest: key(at),
            largest: key(end),
            largest_exclusive: rng.random_bool(0.2),
            ..FileMeta::default()
        }));
        at = end + 1 + if rng.random_bool(0.5) { rng.random_range(0..widest) } else { 0 };
    }
    files
}

/// The outputs as (first key, last key, bytes).
fn partition(rng: &mut SmallRng, partitioner: &mut dyn Partitioner, largest_entry: u64) -> Vec<(u32, u32, u64)> {
    let mut outputs: Vec<(u32, u32, u64)> = Vec::new();
    // The first entries have the largest size, so that the partitioner has met it.
    let mut n = 0;
    let mut count = 0;
    while n < 100_000 {
        let size = if count < 2 { largest_entry } else { rng.random_range(20..=largest_entry) };
        match outputs.last_mut() {
            Some(output) if !partitioner.should_cut(&key(n), output.2) => {
                output.1 = n;
                output.2 += size;
            }
            _ => outputs.push((n, n, size)),
        }
        n += rng.random_range(1..60);
        count += 1;
    }
    outputs
}

#[test]
fn aligned_outputs_stay_within_the_variance() {
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let widest = [50, 500, 5_000, 50_000][rng.random_range(0..4)];
        let files = grandparents(&mut rng, widest);
        let mut partitioner = AlignedPartitioner::new(TARGET, files);
        let largest_entry = [30, 200, 900][rng.random_range(0..3)];
        let outputs = partition(&mut rng, &mut partitioner, largest_entry);
        for (_, _, bytes) in &outputs[..outputs.len() - 1] {
            assert!((TARGET / 2..=2 * TARGET).contains(bytes), "seed {seed}: an output of {bytes} bytes");
        }
        assert!(outputs[outputs.len() - 1].2 <= 2 * TARGET, "seed {seed}");
    }
}

/// Where grandparents hold about as much as an output, (nearly) every cut lies on a border.
#[test]
fn aligned_outputs_end_at_borders_when_they_can() {
    for seed in 0..50 {
        let mut rng = SmallRng::seed_from_u64(seed);
        // Entries of 100 bytes every 30 keys: a full output spans 3,000 keys.
        let files = grandparents(&mut rng, 2_500);
        let mut partitioner = AlignedPartitioner::new(TARGET, files.clone());
        let outputs = partition(&mut rng, &mut partitioner, 180);
        for pair in outputs.windows(2) {
            let (before, after) = (key(pair[0].1), key(pair[1].0));
            let inside = files.iter().any(|f| f.contains(&before) && f.contains(&after));
            assert!(!inside, "seed {seed}: cut within a grandparent");
        }
    }
}

/// With cut keys too; and where a group is cut alone, a key that is not one of them ends only files of the target size.
#[test]
fn outputs_end_at_cut_keys_where_they_can() {
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (widest, spacing) = ([500, 5_000][rng.random_range(0..2)], [200, 1_000, 4_000][rng.random_range(0..3)]);
        let files = grandparents(&mut rng, widest);
        let mut cut_keys: Vec<u32> = (0..100_000 / spacing).map(|_| rng.random_range(0..100_000)).collect();
        cut_keys.sort_unstable();
        cut_keys.dedup();
        let keys = cut_keys.iter().map(|cut| key(*cut)).collect();
        let mut partitioner = AlignedPartitioner::new(TARGET, files).with_cut_keys(keys);
        let outputs = partition(&mut rng, &mut partitioner, 200);
        for pair in outputs.windows(2) {
            let (before, after) = (pair[0].1, pair[1].0);
            let is_cut_key = cut_keys.iter().any(|cut| before < *cut && *cut <= after);
            let lie_ahead = cut_keys.last().is_some_and(|last| *last > after);
            let least = if is_cut_key || !lie_ahead { TARGET / 2 } else { TARGET };
            assert!((least..=2 * TARGET).contains(&pair[0].2), "seed {seed}: {pair:?}");
        }
    }
}

#[test]
fn fixed_outputs_have_the_target_size() {
    for seed in 0..100 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let files = grandparents(&mut rng, 500);
        let max_overlap = [50_000, u64::MAX][rng.random_range(0..2)];
        let mut partitioner = FixedPartitioner::new(TARGET).with_grandparents(files, max_overlap);
        let outputs = partition(&mut rng, &mut partitioner, 200);
        let smallest = if max_overlap == u64::MAX { TARGET } else { TARGET / 2 };
        for (_, _, bytes) in &outputs[..outputs.len() - 1] {
            assert!((smallest..TARGET + 200).contains(bytes), "seed {seed}: an output of {bytes} bytes");
        }
    }
}

/// Algorithm 1 of the paper, line by line, as a second implementation.
#[test]
fn aligned_cuts_follow_the_paper() {
    for seed in 0..100 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let files = grandparents(&mut rng, 3_000);
        let mut partitioner = AlignedPartitioner::new(TARGET, files.clone());
        let (mut grandparent, mut size) = (0, 0);
        let mut n = 0;
        while n < 100_000 {
            if size > 0 {
                let next_key = key(n);
                let mut passed = false;
                while grandparent < files.len() && files[grandparent].ends_before(&next_key) {
                    grandparent += 1;
                    passed = true;
                }
                let between = grandparent == files.len() || next_key < files[grandparent].smallest;
                let expected = if size + 100 > 2 * TARGET || (passed && size >= TARGET / 2) {
                    true
                } else {
                    between && size >= TARGET
                };
                assert_eq!(partitioner.should_cut(&next_key, size), expected, "seed {seed}, key {n}, size {size}");
                size = if expected { 0 } else { size };
            }
            size += 100;
            n += rng.random_range(1..60);
        }
    }
}
