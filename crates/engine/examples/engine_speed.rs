//! Prints the engine's own speed on this machine: `cargo run --release -p mycelium-engine --example engine_speed --
//! [entries] [value bytes] [cache MiB] [directory]`. `SCANS` in the environment is how many pairs of scans are made.

use std::time::Instant;

use mycelium_base::hash::mix;
use mycelium_engine::{Database, Durability, Options, ReadCounters, ReadOptions, Result, Table, TableOptions};

fn key_of(i: u64) -> [u8; 16] {
    let mut key = [b'0'; 16];
    key[..8].copy_from_slice(&mix(i).to_be_bytes());
    key
}

fn report(what: &str, operations: u64, since: Instant) {
    let seconds = since.elapsed().as_secs_f64();
    println!("{what:<22} {:>12.0} /s  {:>9.0} ns", operations as f64 / seconds, seconds * 1e9 / operations as f64);
}

/// Peak memory of the process so far, as Linux tells it.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM unknown").into()
}

/// Writes all entries and waits until the tree has come to rest.
fn load(database: &Database, table: &Table, entries: u64, value_len: usize) -> Result<()> {
    let noise: Vec<u8> = (0..1 << 20).map(|i| mix(i) as u8).collect();
    let start = Instant::now();
    for i in 0..entries {
        let at = (i as usize * 131) % (noise.len() - value_len);
        table.put(&key_of(i), &noise[at..at + value_len], Durability::Os)?;
    }
    report("load", entries, start);
    println!("{}", peak_memory());
    database.flush()?;
    database.wait_idle()?;
    report("load settled", entries, start);
    Ok(())
}

fn show_tree(database: &Database) {
    let metrics = database.metrics();
    println!(
        "write amplification {:.2}, stops {} ({:.2} s), slowdowns {}, compactions {} ({} moves)",
        metrics.write_amplification,
        metrics.stops,
        metrics.stop_seconds,
        metrics.slowdowns,
        metrics.compactions,
        metrics.trivial_moves
    );
    println!("flush {:?}\ncompaction {:?}", metrics.flush_stages, metrics.compaction_stages);
    for level in &metrics.tables[0].levels {
        println!("L{} runs {} files {} bytes {}", level.level, level.runs, level.files, level.bytes);
    }
}

fn read_points(table: &Table, entries: u64, reads: u64) -> Result<()> {
    for round in 0..2 {
        let mut counters = ReadCounters::default();
        let start = Instant::now();
        for i in 0..reads {
            let key = key_of(mix(i + round * 77) % entries);
            assert!(table.get_with(&key, &ReadOptions::default(), &mut counters)?.is_some());
        }
        report("point hit", reads, start);
        println!("  {counters:?}");
    }
    let start = Instant::now();
    for i in 0..reads {
        assert!(table.get(&key_of(entries + i))?.is_none());
    }
    report("point miss", reads, start);
    Ok(())
}

/// Scans everything, in turn read ahead and not; the first scan fills the cache.
fn scan_all(table: &Table, entries: u64, scans: u64) -> Result<()> {
    for round in 0..=2 * scans {
        let (fill_cache, read_ahead) = (round == 0, if round % 2 == 0 { 256 << 10 } else { 0 });
        let start = Instant::now();
        let mut rows = table.iter(&ReadOptions { fill_cache, read_ahead, ..ReadOptions::default() })?;
        rows.seek_to_first()?;
        let (mut count, mut sum) = (0, 0u64);
        while rows.valid() {
            count += 1;
            sum = sum.wrapping_add(u64::from(rows.key()[3]) + u64::from(rows.value()[0]));
            rows.next()?;
        }
        assert_eq!(count, entries);
        let what = format!("scan, ahead {read_ahead}{}", if fill_cache { ", filling the cache" } else { "" });
        report(&what, entries, start);
        std::hint::black_box(sum);
    }
    Ok(())
}

fn scan_ranges(table: &Table, entries: u64, ranges: u64) -> Result<()> {
    let start = Instant::now();
    for i in 0..ranges {
        let mut rows = table.iter(&ReadOptions::default())?;
        rows.seek(&key_of(mix(i) % entries))?;
        for _ in 0..100 {
            if !rows.valid() {
                break;
            }
            std::hint::black_box((rows.key(), rows.value()));
            rows.next()?;
        }
    }
    report("100-entry range", ranges, start);
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let (entries, value_len, cache) = (number(1_000_000), number(100) as usize, number(512));
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("mycelium-speed"), Into::into);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).map_err(|e| mycelium_engine::Error::io("remove", &directory, e))?;
    }
    let options = Options { cache_bytes: cache << 20, ..Options::default() };
    let database = Database::open(&directory, options)?;
    let table = database.create_table("kv", TableOptions::default())?;
    let scans = std::env::var("SCANS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let reads = entries.min(1_000_000);

    load(&database, &table, entries, value_len)?;
    show_tree(&database);
    read_points(&table, entries, reads)?;
    scan_all(&table, entries, scans)?;
    scan_ranges(&table, entries, reads / 20)?;
    println!("{}\ncache {:?}", peak_memory(), database.metrics().cache);
    database.close()
}
