//! A file in memory, the data sets, and the naive model: a sorted vector.

#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use mycelium_base::{Cursor, Error, RangeDelete, ReadCounters, Result, Trailer, compare_entries};
use mycelium_base::{Operation, SequenceNumber};
use mycelium_cache::BlockCache;
use mycelium_sst::{GetScratch, OpenOptions, SstFile, SstSummary, SstWriter, SstWriterOptions};
use mycelium_vfs::{ReadableFile, WritableFile};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub type Entry = (Vec<u8>, Trailer, Vec<u8>);

#[derive(Clone, Default)]
pub struct MemoryFile(pub Arc<Mutex<Vec<u8>>>);

impl MemoryFile {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl WritableFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }
    fn truncate(&mut self, len: u64) -> Result<()> {
        self.0.lock().unwrap().truncate(len as usize);
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn start_writeback(&mut self) {}
    fn len(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }
}

#[derive(Debug)]
pub struct Bytes(pub Vec<u8>);

impl ReadableFile for Bytes {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = offset as usize..offset as usize + buffer.len();
        match self.0.get(range) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => return Err(Error::corruption("cut short").at(offset)),
        }
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn will_need(&self, _offset: u64, _len: u64) {}
}

pub const FILE_NUMBER: u64 = 42;
pub const PATH: &str = "/db/000042.sst";

pub fn write(entries: &[Entry], deletes: &[RangeDelete], options: SstWriterOptions) -> (Vec<u8>, SstSummary) {
    let file = MemoryFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), options).unwrap();
    for (key, trailer, value) in entries {
        writer.add(key, *trailer, value).unwrap();
    }
    for delete in deletes {
        writer.add_range_delete(delete).unwrap();
    }
    let summary = writer.finish().unwrap();
    let bytes = file.bytes();
    assert_eq!(summary.size, bytes.len() as u64);
    (bytes, summary)
}

pub fn writer_options() -> SstWriterOptions {
    SstWriterOptions { file_number: FILE_NUMBER, ..SstWriterOptions::default() }
}

pub fn open_with(bytes: Vec<u8>, cache_bytes: u64, options: OpenOptions) -> Result<Arc<SstFile>> {
    let cache = Arc::new(BlockCache::new(cache_bytes));
    SstFile::open(Arc::new(Bytes(bytes)), Path::new(PATH), FILE_NUMBER, cache, options)
}

pub fn open(bytes: Vec<u8>) -> Result<Arc<SstFile>> {
    open_with(bytes, 8 << 20, OpenOptions::default())
}

pub fn put(key: &[u8], sequence: SequenceNumber, value: &[u8]) -> Entry {
    (key.to_vec(), Trailer::new(sequence, Operation::Put), value.to_vec())
}

pub fn current<C: Cursor>(cursor: &C) -> Option<Entry> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()))
}

pub fn scan<C: Cursor>(cursor: &mut C) -> Result<Vec<Entry>> {
    let mut found: Vec<Entry> = Vec::new();
    cursor.seek_to_first()?;
    while cursor.valid() {
        let entry = current(cursor).unwrap();
        let same = found.last().is_some_and(|(key, ..)| *key == entry.0);
        assert_eq!(cursor.same_key_as_previous(), same);
        found.push(entry);
        cursor.next()?;
    }
    Ok(found)
}

pub fn scan_backward<C: Cursor>(cursor: &mut C) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    cursor.seek_to_last()?;
    while cursor.valid() {
        found.push(current(cursor).unwrap());
        cursor.prev()?;
    }
    found.reverse();
    Ok(found)
}

pub fn get_all(file: &SstFile, key: &[u8], snapshot: SequenceNumber) -> Result<Vec<(Trailer, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut counters = ReadCounters::default();
    file.get(key, snapshot, &mut GetScratch::default(), &mut counters, &mut |trailer, value: &[u8]| {
        found.push((trailer, value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

pub fn sort(entries: &mut Vec<Entry>) {
    entries.sort_by(|a, b| compare_entries(&a.0, a.1, &b.0, b.1));
    entries.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
}

fn operation(random: &mut SmallRng) -> Operation {
    [Operation::Put, Operation::Put, Operation::Patch, Operation::Merge, Operation::Delete][random.random_range(0..5)]
}

fn bytes(random: &mut SmallRng, max_len: usize, alphabet: u8) -> Vec<u8> {
    let len = random.random_range(0..=max_len);
    (0..len).map(|_| if alphabet == 0 { random.random() } else { random.random_range(0..alphabet) }).collect()
}

/// Adversarial data sets, by name.
pub fn data_sets(seed: u64) -> Vec<(&'static str, Vec<Entry>)> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut sets: Vec<(&'static str, Vec<Entry>)> = Vec::new();
    sets.push(("one entry", vec![put(b"k", 5, b"v")]));
    sets.push(("one empty entry", vec![put(b"", 0, b"")]));
    sets.push(("empty key with versions", (0..50).map(|s| put(b"", s, b"x")).collect()));
    sets.push(("plain", (0..400_u32).map(|i| put(format!("key{i:05}").as_bytes(), 7, &[b'v'; 100])).collect()));
    sets.push(("numbers", (0..600_u64).map(|i| put(&(i * 3).to_be_bytes(), i + 1, &i.to_le_bytes())).collect()));
    let mut nul = Vec::new();
    for len in 0..40 {
        nul.push(put(&vec![0; len], 3, &vec![0; len]));
        nul.push(put(&[vec![0; len], vec![1]].concat(), len as u64, b""));
        nul.push(put(&[vec![255; len], vec![0]].concat(), 9, b"\0"));
    }
    sets.push(("zero bytes", nul));
    let mut versions = Vec::new();
    for key in 0..12_u8 {
        for sequence in 0..random.random_range(1..120) {
            let trailer = Trailer::new(1000 - sequence * 3, operation(&mut random));
            versions.push((vec![b'k', key], trailer, bytes(&mut random, 60, 0)));
        }
    }
    sets.push(("many versions", versions));
    let prefix = vec![b'p'; 300];
    let shared = (0..200_u32).map(|i| put(&[&prefix[..], &i.to_be_bytes()].concat(), u64::from(i % 7), b"long prefix"));
    sets.push(("long shared prefix", shared.collect()));
    let mut huge = vec![put(&vec![7; 65_535], 1, b"small"), put(&vec![7; 65_534], 1 << 55, &vec![9; 70_000])];
    huge.extend((0..5).map(|s| put(&vec![8; 65_535], s, &vec![s as u8; 300])));
    huge.push(put(b"", 3, &vec![1; 20_000]));
    sets.push(("huge keys and values", huge));
    let mut noise: Vec<Entry> = Vec::new();
    for _ in 0..1500 {
        let alphabet = [0, 2, 4][random.random_range(0..3)];
        let key = bytes(&mut random, 12, alphabet);
        let sequence = random.random_range(0..200);
        noise.push((key, Trailer::new(sequence, operation(&mut random)), bytes(&mut random, 200, 0)));
    }
    sets.push(("noise", noise));
    let mut wide: Vec<Entry> = Vec::new();
    for i in 0..300_u64 {
        let sequence = random.random_range(0..=mycelium_base::MAX_SEQUENCE_NUMBER);
        wide.push(put(&(i / 2).to_be_bytes(), sequence, &[0; 130]));
    }
    sets.push(("wide sequence numbers", wide));
    for (_, entries) in &mut sets {
        sort(entries);
    }
    sets
}
