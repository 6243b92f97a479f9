//! Measures the memtable: random and ascending inserts, lookups, steps of a cursor.
//!
//! `cargo run --release -p mycelium-memtable --example memtable_speed [entries]` (default 500,000; keys of 16 bytes,
//! values of 100). Prints nanoseconds of CPU time per operation, the best of three rounds, and bytes per entry.

use std::hint::black_box;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mycelium_base::{Cursor, Operation, Trailer};
use mycelium_memtable::{Memtable, MemtableOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const VALUE: [u8; 100] = [7; 100];

fn fill(keys: &[[u8; 16]]) -> (f64, Arc<Memtable>) {
    let (least, greatest) = (keys.iter().min(), keys.iter().max());
    let (least, greatest) = least.zip(greatest).expect("keys");
    let options = MemtableOptions { filter_bytes: keys.len() * 10 / 8 };
    let (mut writer, memtable) = Memtable::for_keys_like(options, least, greatest);
    let start = now();
    for (i, key) in keys.iter().enumerate() {
        writer.insert(key, Trailer::new(i as u64 + 1, Operation::Put), &VALUE);
    }
    (per_operation(start, keys.len()), memtable)
}

/// CPU time of this thread where the system tells it (Linux), so that other processes disturb less; else wall time.
fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

fn per_operation(start: Duration, operations: usize) -> f64 {
    (now() - start).as_nanos() as f64 / operations as f64
}

fn lookups(memtable: &Memtable, keys: &[[u8; 16]], expected: bool) -> f64 {
    let start = now();
    for key in keys {
        let found = memtable.get(key, u64::MAX >> 8).next().is_some();
        assert!(found == expected || !expected);
    }
    per_operation(start, keys.len())
}

/// Nanoseconds per step over the whole memtable, fetched ahead.
fn fetched_scan(memtable: &Arc<Memtable>) -> f64 {
    const AHEAD: usize = 512;
    let mut cursor = memtable.cursor();
    let start = now();
    cursor.seek_to_first().expect("memory");
    let mut steps = 0;
    while cursor.valid() {
        if steps % AHEAD == 0 {
            cursor.fetch_ahead(AHEAD);
        }
        black_box((cursor.key().len(), cursor.trailer()));
        cursor.next().expect("memory");
        steps += 1;
    }
    per_operation(start, steps)
}

/// Nanoseconds per step over the whole memtable, forwards and backwards.
fn scan(memtable: &Arc<Memtable>) -> (f64, f64) {
    let mut cursor = memtable.cursor();
    let entries = memtable.entry_count() as usize;
    let start = now();
    cursor.seek_to_first().expect("memory");
    while cursor.valid() {
        black_box((cursor.key().len(), cursor.trailer()));
        cursor.next().expect("memory");
    }
    let forwards = per_operation(start, entries);
    let start = now();
    cursor.seek_to_last().expect("memory");
    while cursor.valid() {
        black_box((cursor.key().len(), cursor.trailer()));
        cursor.prev().expect("memory");
    }
    (forwards, per_operation(start, entries))
}

fn main() {
    let entries: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(500_000);
    let mut rng = SmallRng::seed_from_u64(1);
    let random: Vec<[u8; 16]> = (0..entries).map(|_| rng.random()).collect();
    let absent: Vec<[u8; 16]> = (0..entries).map(|_| rng.random()).collect();
    let ascending: Vec<[u8; 16]> = (0..entries as u128).map(|i| (i * 7).to_be_bytes()).collect();
    let decimal: Vec<[u8; 16]> = (0..entries)
        .map(|_| {
            let text = format!("{:016}", rng.random_range(0..10 * entries as u64));
            std::array::from_fn(|i| text.as_bytes()[i])
        })
        .collect();
    let mut shuffled = random.clone();
    for i in (1..entries).rev() {
        shuffled.swap(i, rng.random_range(0..=i));
    }
    let mut best = [f64::INFINITY; 10];
    let mut bytes = 0.0;
    for _ in 0..3 {
        let (time, memtable) = fill(&random);
        let (forwards, backwards) = scan(&memtable);
        let fetched = fetched_scan(&memtable);
        let hit = lookups(&memtable, &shuffled, true);
        let miss = lookups(&memtable, &absent, false);
        bytes = memtable.memory_usage() as f64 / entries as f64;
        drop(memtable);
        let (sequential, memtable) = fill(&ascending);
        let (ordered, ordered_back) = scan(&memtable);
        drop(memtable);
        let (text, _) = fill(&decimal);
        let times = [time, sequential, text, hit, miss, forwards, backwards, fetched, ordered, ordered_back];
        for (best, time) in best.iter_mut().zip(times) {
            *best = best.min(time);
        }
    }
    let names = [
        "insert, random keys",
        "insert, ascending keys",
        "insert, random decimal keys",
        "get, present key",
        "get, absent key",
        "next, inserted at random",
        "prev, inserted at random",
        "next, fetched ahead",
        "next, inserted ascending",
        "prev, inserted ascending",
    ];
    println!("{entries} entries of 16-byte keys and 100-byte values, {bytes:.0} bytes of memory each");
    for (name, time) in names.iter().zip(best) {
        println!("{name:28} {time:8.1} ns");
    }
}
