//! Summaries: which parts of a file have one, that it is of their rows, the golden file, and damage.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::*;
use mycelium_base::{Operation, Trailer};
use mycelium_sst::{
    CursorOptions, FOOTER_LEN, Footer, Index, OpenOptions, PAGE_BLOCKS, SstWriter, SstWriterOptions, Summarizer,
    SummaryPart, open_block,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const GOLDEN: &str = "tests/golden/format-2.sst";

/// Counts rows and adds up the bytes of their values; refuses values that begin with `!`.
#[derive(Default)]
struct Adding {
    id: u64,
    /// Of block, page, file.
    sums: [(u64, u64); 3],
    /// Bytes that a summary takes beyond eight.
    padding: usize,
}

fn sum_of(value: &[u8]) -> u64 {
    value.iter().map(|&byte| u64::from(byte)).sum()
}

impl Summarizer for Adding {
    fn id(&self) -> u64 {
        self.id
    }

    fn add(&mut self, _key: &[u8], value: &[u8]) -> bool {
        if value.starts_with(b"!") {
            return false;
        }
        self.sums[0].0 += 1;
        self.sums[0].1 += sum_of(value);
        true
    }

    fn end(&mut self, part: SummaryPart, limit: usize, out: &mut Vec<u8>) -> bool {
        let (rows, sum) = std::mem::take(&mut self.sums[part as usize]);
        if let Some(larger) = self.sums.get_mut(part as usize + 1) {
            *larger = (larger.0 + rows, larger.1 + sum);
        }
        let len = 8 + self.padding;
        if len > limit {
            return false;
        }
        out.extend_from_slice(&summary_of(rows, sum, self.padding));
        true
    }

    fn discard(&mut self, part: SummaryPart) {
        self.sums[part as usize] = (0, 0);
    }
}

fn summary_of(rows: u64, sum: u64, padding: usize) -> Vec<u8> {
    let mut bytes = [(rows as u32).to_le_bytes(), (sum as u32).to_le_bytes()].concat();
    bytes.resize(8 + padding, 0);
    bytes
}

fn adding(ids: &[u64], padding: usize) -> Vec<Box<dyn Summarizer>> {
    ids.iter().map(|&id| Box::new(Adding { id, padding, ..Adding::default() }) as Box<dyn Summarizer>).collect()
}

fn write_summarized(entries: &[Entry], summarizers: Vec<Box<dyn Summarizer>>, block_size: usize) -> Vec<u8> {
    let file = MemoryFile::default();
    let options = SstWriterOptions { block_size, restart_interval: 4, ..writer_options() };
    let mut writer = SstWriter::new(Box::new(file.clone()), options).unwrap().with_summarizers(summarizers);
    for (key, trailer, value) in entries {
        writer.add(key, *trailer, value).unwrap();
    }
    let summary = writer.finish().unwrap();
    assert_eq!(summary.size, file.bytes().len() as u64);
    assert!(summary.summary_bytes > 0);
    file.bytes()
}

/// The entries of each block, by the counts of the index.
fn blocks_of(bytes: &[u8], entries: &[Entry]) -> Vec<Vec<Entry>> {
    let at = bytes.len() - FOOTER_LEN;
    let footer = Footer::parse(&bytes[at..], FILE_NUMBER, at as u64).unwrap();
    let framed = &bytes[footer.index.offset as usize..][..footer.index.len as usize];
    let (payload, _) = open_block(framed, FILE_NUMBER, footer.index.offset).unwrap();
    let index = Index::parse(payload, footer.data_end()).unwrap();
    let mut rest = entries.iter().cloned();
    (0..index.block_count()).map(|i| rest.by_ref().take(index.entry(i).entry_count as usize).collect()).collect()
}

/// How often each key is in a file.
type Versions = BTreeMap<Vec<u8>, usize>;

fn versions_of(entries: &[Entry]) -> Versions {
    let mut versions = Versions::new();
    entries.iter().for_each(|entry| *versions.entry(entry.0.clone()).or_default() += 1);
    versions
}

fn expected(rows: &[Entry], versions: &Versions) -> Option<Vec<u8>> {
    let alone = |entry: &Entry| versions[&entry.0] == 1;
    let is_plain = rows.iter().all(|row| row.1.operation() == Operation::Put && alone(row) && !row.2.starts_with(b"!"));
    let sum = rows.iter().map(|row| sum_of(&row.2)).sum();
    is_plain.then(|| summary_of(rows.len() as u64, sum, 0))
}

fn random_entries(rng: &mut SmallRng) -> Vec<Entry> {
    let (odd, count) = (*[0.0, 0.002, 0.05].get(rng.random_range(0..3)).unwrap(), rng.random_range(1..2_000));
    let mut entries = Vec::new();
    for n in 0..count {
        let key = format!("key{n:05}").into_bytes();
        let value: Vec<u8> = (0..rng.random_range(0..30)).map(|_| rng.random_range(b'a'..=b'z')).collect();
        entries.push(put(&key, 1 + n, &value));
        if rng.random_bool(odd) {
            match rng.random_range(0..3) {
                0 => entries.push((key, Trailer::new(100_000 + n, Operation::Delete), Vec::new())),
                1 => entries.last_mut().unwrap().2.insert(0, b'!'),
                _ => (0..rng.random_range(1..40)).for_each(|v| entries.push(put(&key, 100_000 + v, &value))),
            }
        }
    }
    sort(&mut entries);
    entries.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
    entries
}

#[test]
fn parts_with_one_version_of_each_row_and_no_others_are_summed_up() {
    let (mut with, mut without, mut pages) = (0, 0, 0);
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let entries = random_entries(&mut rng);
        let bytes = write_summarized(&entries, adding(&[7, 3], 0), 200);
        let (blocks, versions) = (blocks_of(&bytes, &entries), versions_of(&entries));
        let file = open(bytes).unwrap();
        assert!(file.summary(4).unwrap().is_none());
        for id in [3, 7] {
            let mut summary = file.summary(id).unwrap().unwrap();
            for (i, rows) in blocks.iter().enumerate() {
                let wanted = expected(rows, &versions);
                assert_eq!(summary.of_block(i).unwrap(), wanted.as_deref(), "seed {seed}, block {i}: {rows:?}");
                *if wanted.is_some() { &mut with } else { &mut without } += 1;
            }
            for (page, rows) in blocks.chunks(PAGE_BLOCKS).enumerate() {
                assert_eq!(summary.of_page(page), expected(&rows.concat(), &versions).as_deref(), "seed {seed}");
                pages += usize::from(summary.of_page(page).is_some());
            }
            assert_eq!(summary.of_file(), expected(&entries, &versions).as_deref(), "seed {seed}");
            let newest = |from: usize, to: usize| {
                blocks[from..to].concat().iter().map(|entry| entry.1.sequence()).max().unwrap_or(0)
            };
            assert!(summary.max_sequence(0, blocks.len()) >= newest(0, blocks.len()));
        }
        file.verify(|_| {}).unwrap();
    }
    assert!(with > 1_000 && without > 100 && pages > 50, "{with} with, {without} without, {pages} pages");
}

#[test]
fn a_summary_as_large_as_what_it_sums_up_is_left_out() {
    let entries: Vec<Entry> = (0..3_000_u32).map(|n| put(&n.to_be_bytes(), 1, b"0123456789")).collect();
    let has = |padding| {
        let file = open(write_summarized(&entries, adding(&[7], padding), 1024)).unwrap();
        let mut summary = file.summary(7).unwrap().unwrap();
        let block = summary.of_block(3).unwrap().is_some();
        [block, summary.of_page(0).is_some(), summary.of_file().is_some()]
    };
    assert_eq!(has(0), [true, true, true]);
    assert_eq!(has(200), [false, true, true]);
    assert_eq!(has(3_000), [false, false, true]);
    assert_eq!(has(100_000), [false, false, false]);
}

#[test]
fn a_file_without_summaries_is_of_format_1_and_one_with_them_of_format_2() {
    let entries = [put(b"a", 1, b"x")];
    let version = |bytes: &[u8]| bytes[bytes.len() - FOOTER_LEN + 72];
    let (without, _) = write(&entries, &[], writer_options());
    assert_eq!(version(&without), 1);
    assert!(!open(without).unwrap().has_summaries());
    let with = write_summarized(&entries, adding(&[7], 0), 4096);
    assert_eq!(version(&with), 2);
    assert!(open(with).unwrap().has_summaries());
}

#[test]
fn the_number_of_a_bulk_load_is_that_of_its_blocks() {
    let entries = [put(b"a", 0, b"x")];
    let bytes = write_summarized(&entries, adding(&[7], 0), 4096);
    let options = OpenOptions { sequence_override: Some(99), ..OpenOptions::default() };
    let file = open_with(bytes, 1 << 20, options).unwrap();
    assert_eq!(file.summary(7).unwrap().unwrap().max_sequence(0, 1), 99);
}

fn golden_entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> =
        (0..1_500_u64).map(|n| put(format!("row/{n:04}").as_bytes(), n, format!("value {n}").as_bytes())).collect();
    entries.push(put(b"row/0100", 900, b"newer"));
    entries.push((b"row/0200".to_vec(), Trailer::new(901, Operation::Delete), Vec::new()));
    sort(&mut entries);
    entries
}

#[test]
fn the_golden_file_is_read_and_written() {
    let bytes = write_summarized(&golden_entries(), adding(&[7, 300], 2), 128);
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !Path::new(GOLDEN).exists() {
        std::fs::write(GOLDEN, &bytes).unwrap();
    }
    let golden = std::fs::read(GOLDEN).unwrap();
    assert!(golden == bytes, "the writer writes another file than the golden one");
    let file = open(golden).unwrap();
    assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), golden_entries());
    let mut summary = file.summary(300).unwrap().unwrap();
    assert!(summary.block_count() > 2 * PAGE_BLOCKS && summary.of_file().is_none());
    assert_eq!(summary.of_page(0), None);
    assert!(summary.of_page(2).is_some() && summary.of_block(0).unwrap().is_some());
    file.verify(|_| {}).unwrap();
}

#[test]
fn every_flipped_bit_of_the_summaries_is_detected() {
    let entries: Vec<Entry> = (0..200_u64).map(|n| put(format!("k{n:03}").as_bytes(), n, b"some value")).collect();
    let bytes = write_summarized(&entries, adding(&[7, 8], 1), 100);
    let at = bytes.len() - FOOTER_LEN;
    let footer = Footer::parse(&bytes[at..], FILE_NUMBER, at as u64).unwrap();
    let (from, to) = (footer.pages_start() as usize, footer.properties.offset as usize);
    assert!(to - from > 200);
    let read_all = |bytes: Vec<u8>| {
        let file = open(bytes)?;
        for id in [7, 8] {
            let mut summary = file.summary(id)?.unwrap();
            for block in 0..summary.block_count() {
                assert!(summary.of_block(block)?.is_some());
            }
        }
        file.verify(|_| {})
    };
    read_all(bytes.clone()).unwrap();
    for bit in from * 8..to * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = read_all(flipped).expect_err("a flipped bit went unnoticed");
        assert!(error.is_corruption(), "{error}");
        assert_eq!(error.file(), Some(Path::new(PATH)), "{error}");
        assert!(error.offset().is_some_and(|offset| (from as u64..=bit as u64 / 8).contains(&offset)), "{error}");
    }
}
