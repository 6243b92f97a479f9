//! Every decoder on drawn bytes and on mutated valid inputs: the targets of `fuzz/`, for any toolchain.
//!
//! Counts before a release: `MYCELIUM_TEST_SCALE=release`.

use mycelium_testkit::Scale;
use mycelium_testkit::fuzz::TARGETS;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Changes a valid input a little: bits, bytes, lengths, pieces of itself and of others.
fn mutate(rng: &mut SmallRng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..rng.random_range(1..4) {
        if input.is_empty() {
            input.push(rng.random());
        }
        let at = rng.random_range(0..input.len());
        match rng.random_range(0..9) {
            0 => input[at] ^= 1 << rng.random_range(0..8),
            1 => input[at] = rng.random(),
            2 => input[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            3 => input.truncate(at),
            4 => drop(input.remove(at)),
            5 => input.insert(at, rng.random()),
            6 => {
                let end = rng.random_range(at..input.len().min(at + 40) + 1);
                let piece = input[at..end].to_vec();
                let to = rng.random_range(0..=input.len());
                input.splice(to..to, piece);
            }
            7 if !other.is_empty() => {
                let from = rng.random_range(0..other.len());
                let piece = &other[from..other.len().min(from + rng.random_range(0..40))];
                let end = input.len().min(at + piece.len());
                input[at..end].copy_from_slice(&piece[..end - at]);
            }
            _ => {
                let width = [2, 4, 8][rng.random_range(0..3)];
                let number: u64 = [u64::MAX, 1 << 31, 1 << 63, 0][rng.random_range(0..4)];
                let end = input.len().min(at + width);
                input[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
        }
    }
}

#[test]
fn no_decoder_panics_on_bad_bytes() {
    let seed = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("fuzz smoke: seed {seed}");
    let runs = Scale::from_environment().pick(4_000, 1_000_000);
    for target in TARGETS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no valid inputs", target.name);
        seeds.iter().for_each(|input| (target.run)(input));
        for run in 0..runs {
            let input = if rng.random_ratio(1, 10) {
                (0..rng.random_range(0..200)).map(|_| rng.random()).collect()
            } else {
                let mut input = seeds[rng.random_range(0..seeds.len())].clone();
                let other = &seeds[rng.random_range(0..seeds.len())];
                mutate(&mut rng, &mut input, other);
                input
            };
            let outcome = std::panic::catch_unwind(|| (target.run)(&input));
            assert!(outcome.is_ok(), "{} panics in run {run} of seed {seed} on {input:02x?}", target.name);
        }
        println!("{}: {runs} runs, {} valid inputs", target.name, seeds.len());
    }
}
