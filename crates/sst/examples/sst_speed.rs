//! Times the hot paths on a file in memory: `cargo run --release -p mycelium-sst --example sst_speed [entries]`.
//!
//! Keys of 16 bytes, values of 100 bytes, the defaults of the writer. Each line is the best of many rounds: on a busy
//! machine take few entries (20,000), so that some round is not interrupted; many entries (5,000,000) show cache
//! misses.

#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Bytes, MemoryFile};
use mycelium_base::hash::hash_key;
use mycelium_base::{Cursor, MAX_SEQUENCE_NUMBER, Operation, ReadCounters, Trailer};
use mycelium_cache::BlockCache;
use mycelium_sst::{
    Compression, CursorOptions, GetScratch, LevelCursor, OpenOptions, SstFile, SstWriter, SstWriterOptions, open_block,
    seal_block,
};

/// How long each line is measured, at least.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prints the best round in nanoseconds per item.
fn report(what: &str, items: usize, mut round: impl FnMut()) {
    let started = Instant::now();
    let (mut best, mut rounds) = (f64::INFINITY, 0);
    while rounds < 5 || started.elapsed() < PATIENCE {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_nanos() as f64 / items as f64);
        rounds += 1;
    }
    println!("{what:<52} {best:>9.1} ns   {:>8.2} M/s", 1000.0 / best);
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    let digits = format!("{i:012}");
    key[4..].copy_from_slice(digits.as_bytes());
    key
}

fn write(keys: &[[u8; 16]], options: SstWriterOptions) -> Vec<u8> {
    let sink = MemoryFile(Arc::new(Mutex::new(Vec::with_capacity(keys.len() * 130))));
    let mut writer = SstWriter::new(Box::new(sink.clone()), options).unwrap();
    let value = [b'v'; 100];
    for (i, key) in keys.iter().enumerate() {
        writer.add(key, Trailer::new(i as u64 % 1000, Operation::Put), &value).unwrap();
    }
    let summary = writer.finish().unwrap();
    black_box(summary.size);
    std::mem::take(&mut *sink.0.lock().unwrap())
}

fn open(bytes: Vec<u8>) -> Arc<SstFile> {
    let cache = Arc::new(BlockCache::new(1 << 30));
    SstFile::open(Arc::new(Bytes(bytes)), Path::new("speed.sst"), 7, cache, OpenOptions::default()).unwrap()
}

fn scan<C: Cursor>(mut cursor: C) {
    cursor.seek_to_first().unwrap();
    let mut sum = 0;
    while cursor.valid() {
        sum += cursor.value().len() + cursor.key().len() + usize::from(cursor.same_key_as_previous());
        cursor.next().unwrap();
    }
    black_box(sum);
}

fn get_all(file: &SstFile, keys: &[[u8; 16]]) {
    let (mut scratch, mut counters) = (GetScratch::default(), ReadCounters::default());
    for key in keys {
        let visit = &mut |_, value: &[u8]| {
            black_box(value.len());
            ControlFlow::Break(())
        };
        file.get(key, MAX_SEQUENCE_NUMBER, &mut scratch, &mut counters, visit).unwrap();
    }
    black_box(counters.block_cache_hits);
}

fn reads(file: &Arc<SstFile>, keys: &[[u8; 16]]) {
    let n = keys.len();
    let options = |fill_cache, read_ahead| CursorOptions { fill_cache, read_ahead, ..CursorOptions::default() };
    report("next, read ahead 256 KiB, verified", n, || scan(file.cursor(options(false, 256 << 10))));
    report("next, block by block, verified", n, || scan(file.cursor(options(false, 0))));
    scan(file.cursor(options(true, 0)));
    report("next, cached", n, || scan(file.cursor(options(true, 0))));
    report("next, cached, level cursor", n, || scan(LevelCursor::new([file.clone()], options(true, 0))));
    report("prev, cached", n, || {
        let mut cursor = file.cursor(options(true, 0));
        cursor.seek_to_last().unwrap();
        while cursor.valid() {
            black_box(cursor.value().len());
            cursor.prev().unwrap();
        }
    });
    let mut shuffled = keys.to_vec();
    let mut state = 88_172_645_463_325_252_u64;
    for i in (1..n).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        shuffled.swap(i, (state % (i as u64 + 1)) as usize);
    }
    report("get, cached, random keys", n, || get_all(file, &shuffled));
    report("get, cached, 1000 hot keys", n, || {
        for _ in 0..n / 1000 {
            get_all(file, &shuffled[..1000]);
        }
    });
    report("seek, cached, random keys", n, || {
        let mut cursor = file.cursor(options(true, 0));
        for key in &shuffled {
            cursor.seek(key, Trailer::NEWEST).unwrap();
            black_box(cursor.value().len());
        }
    });
    report("filter, absent keys", n, || {
        let found = shuffled.iter().filter(|key| file.may_contain(hash_key(&key[..15]))).count();
        black_box(found);
    });
}

fn main() {
    let n: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(500_000);
    let keys: Vec<[u8; 16]> = (0..n as u64).map(|i| key(i * 7)).collect();
    for (name, compression) in
        [("no compression", Compression::None), ("LZ4", Compression::Lz4), ("Zstandard 1", Compression::Zstd(1))]
    {
        let options = SstWriterOptions { file_number: 7, compression, ..SstWriterOptions::default() };
        let mut bytes = Vec::new();
        report(&format!("add, {name}"), n, || bytes = write(&keys, options));
        println!("  file of {:.1} bytes per entry", bytes.len() as f64 / n as f64);
        let file = open(bytes);
        if compression == Compression::None {
            reads(&file, &keys);
            report("full verification", n, || {
                black_box(file.verify(|_| {}).unwrap());
            });
        } else {
            let options = CursorOptions { fill_cache: false, read_ahead: 256 << 10, ..CursorOptions::default() };
            report("next, read ahead 256 KiB, decompressed", n, || scan(file.cursor(options)));
        }
    }
    let mut block = vec![7; 4096 - 9];
    seal_block(&mut block, 0, 0, 7, 0);
    report("checksum of a 4 KiB block", 1000, || {
        for _ in 0..1000 {
            black_box(open_block(black_box(&block), 7, 0).unwrap());
        }
    });
}
