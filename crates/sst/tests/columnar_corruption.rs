//! Damage of columnar files, read by every way: it is reported, or the answer is the right one; and nothing panics, not
//! even where the checksum fits wrong bytes.

#![allow(clippy::unwrap_used, clippy::let_underscore_must_use)]

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Cursor, MAX_SEQUENCE_NUMBER, ReadCounters, Result, Trailer};
use mycelium_cache::BlockCache;
use mycelium_encoding::page::{Bitmap, Test};
use mycelium_encoding::{Datum, PackedLayout};
use mycelium_sst::{
    BlockHandle, CursorOptions, Directory, FOOTER_LEN, FileFigures, Footer, GetScratch, Index, OpenOptions, Properties,
    RunCursor, SstFile, WantedColumns, open_block, seal_block,
};
use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The golden file has every encoding; see `columnar.rs`.
const GOLDEN: &[u8] = include_bytes!("golden/format-5-gaps-in-keys.sst");
const NUMBER: u64 = 8;

type Outcome<T> = std::result::Result<T, ()>;
type Entries = Vec<(Vec<u8>, Trailer, Vec<u8>)>;

fn open(bytes: &[u8]) -> Result<Arc<SstFile>> {
    let disk = MemoryDisk::new();
    let path = Path::new("file.sst");
    disk.create(path)?.append(bytes)?;
    let cache = Arc::new(BlockCache::new(8 << 20));
    SstFile::open(disk.open(path, AccessPattern::Random)?, path, NUMBER, cache, OpenOptions::default())
}

fn seed() -> u64 {
    let seed = std::env::var("MYCELIUM_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("columnar corruption: seed {seed}");
    seed
}

/// Where the parts of the golden file lie.
struct Parts {
    footer: Footer,
    directory: Directory,
    /// Every part that is a framed block: data blocks first.
    all: Vec<BlockHandle>,
    data_blocks: usize,
}

impl Parts {
    fn of_golden() -> Self {
        let at = GOLDEN.len() - FOOTER_LEN;
        let footer = Footer::parse(&GOLDEN[at..], NUMBER, at as u64).unwrap();
        let payload = |part: BlockHandle| open_block(framed(part), NUMBER, part.offset).unwrap().0;
        let index = Index::parse(payload(footer.index), footer.data_end()).unwrap();
        let entries = (0..index.block_count()).map(|block| index.entry(block));
        let mut all: Vec<_> = entries.map(|entry| BlockHandle { offset: entry.offset, len: entry.len }).collect();
        let data_blocks = all.len();
        let properties = Properties::parse(payload(footer.properties)).unwrap();
        let columns: ColumnSet = (2..10).collect();
        let directory = Directory::parse(payload(properties.columns), &columns).unwrap();
        all.extend([footer.index, footer.properties, footer.filter, properties.columns]);
        all.extend(directory.parts.iter().flat_map(|part| [part.coding, part.zones]).filter(|part| part.len > 0));
        Self { footer, directory, all, data_blocks }
    }
}

fn framed(part: BlockHandle) -> &'static [u8] {
    &GOLDEN[part.offset as usize..(part.offset + part.len) as usize]
}

/// Tests of some columns: an integer, a float, texts with and without a dictionary, decimals.
fn tests() -> Vec<(usize, Test)> {
    let range =
        |lower: Datum, upper: Datum| Test::Range { lower: Bound::Included(lower), upper: Bound::Excluded(upper) };
    vec![
        (3, Test::Equal(Datum::Int16(2))),
        (4, Test::IsNull),
        (4, range(Datum::Int64(100), Datum::Int64(600))),
        (5, range(Datum::Float64(1.0), Datum::Float64(9.5))),
        (6, Test::Prefix(b"name number 3".to_vec())),
        (7, range(Datum::Binary(vec![0x40]), Datum::Binary(vec![0x90]))),
        (9, Test::NotEqual(Datum::Decimal128(150))),
    ]
}

/// What a file answers: each of its ways may fail by itself.
#[derive(PartialEq, Debug)]
struct Answers {
    forwards: Outcome<Entries>,
    backwards: Outcome<Entries>,
    points: Vec<Outcome<Entries>>,
    /// By test, the rows that pass, over all blocks.
    selected: Vec<Outcome<Vec<usize>>>,
    /// By test, the blocks that may have a row.
    zones: Vec<Outcome<Vec<bool>>>,
    figures: Outcome<Option<FileFigures>>,
}

impl Answers {
    fn of(file: &Arc<SstFile>, directory: &Directory, keys: &[Vec<u8>]) -> Self {
        let scan = |backwards: bool| walk(file, backwards).map_err(drop);
        Self {
            forwards: scan(false),
            backwards: scan(true),
            points: keys.iter().map(|key| get(file, key).map_err(drop)).collect(),
            selected: tests()
                .iter()
                .map(|(column, test)| select(file, directory, *column, test).map_err(drop))
                .collect(),
            zones: tests()
                .iter()
                .map(|(column, test)| {
                    let zones = file.zones(*column).map_err(drop)?;
                    let compiled = file.page_test(*column, test).map_err(drop)?;
                    (0..file.block_count()).map(|block| zones.may_pass(block, test, &compiled).map_err(drop)).collect()
                })
                .collect(),
            figures: file.column_figures().map_err(drop),
        }
    }

    /// Whether each is what it is of the whole file, or an error; how many are errors.
    fn errors_against(&self, whole: &Self, context: &str) -> usize {
        let scans = errors(&[&self.forwards, &self.backwards], &[&whole.forwards, &whole.backwards], context);
        let figures = errors(&[&self.figures], &[&whole.figures], context);
        scans
            + figures
            + errors(&each(&self.points), &each(&whole.points), context)
            + errors(&each(&self.selected), &each(&whole.selected), context)
            + errors(&each(&self.zones), &each(&whole.zones), context)
    }
}

fn each<T>(answers: &[Outcome<T>]) -> Vec<&Outcome<T>> {
    answers.iter().collect()
}

/// How many are errors; none may be another answer than expected.
fn errors<T: PartialEq>(found: &[&Outcome<T>], expected: &[&Outcome<T>], context: &str) -> usize {
    assert_eq!(found.len(), expected.len(), "{context}");
    let is_wrong = |(found, expected): (&&Outcome<T>, &&Outcome<T>)| found.is_ok() && found != expected;
    assert!(!found.iter().zip(expected).any(is_wrong), "{context}: a wrong answer");
    found.iter().filter(|found| found.is_err()).count()
}

fn walk(file: &Arc<SstFile>, backwards: bool) -> Result<Entries> {
    let mut cursor = RunCursor::new([file.clone()], CursorOptions::default());
    let mut entries = Vec::new();
    if backwards {
        cursor.seek_to_last()?
    } else {
        cursor.seek_to_first()?
    }
    // More entries than a damaged file of this size can have.
    while cursor.valid() && entries.len() < 10_000 {
        entries.push((cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()));
        if backwards { cursor.prev()? } else { cursor.next()? }
    }
    Ok(entries)
}

fn get(file: &SstFile, key: &[u8]) -> Result<Entries> {
    let mut found = Vec::new();
    let mut visit = |trailer: Trailer, value: &[u8]| {
        found.push((key.to_vec(), trailer, value.to_vec()));
        ControlFlow::Continue(())
    };
    file.get(key, MAX_SEQUENCE_NUMBER, &mut GetScratch::default(), &mut ReadCounters::default(), &mut visit)?;
    Ok(found)
}

/// The rows of all blocks that pass, block by block as a scan takes them.
fn select(file: &Arc<SstFile>, directory: &Directory, column: usize, test: &Test) -> Result<Vec<usize>> {
    let compiled = file.page_test(column, test)?;
    let layout = Arc::new(PackedLayout::of(directory.schema.clone(), &[column].into_iter().collect()));
    let files = Arc::new([file.clone()].into());
    let wanted = || WantedColumns::Blocks(layout);
    let RunCursor::Columns(mut cursor) = RunCursor::over_part(files, 0..1, CursorOptions::default(), wanted) else {
        panic!("the golden file is columnar")
    };
    cursor.seek_to_first()?;
    let (mut rows, mut first) = (Vec::new(), 0);
    while cursor.valid() {
        let Some((block, _, _, _)) = cursor.block() else { break };
        let count = block.rows();
        let mut selection = Bitmap::new(count, true);
        block.read(|pages| pages[0].filter(&compiled, &mut selection))?;
        rows.extend(selection.rows().map(|row| first + row));
        first += count;
        cursor.go_to(count)?;
    }
    Ok(rows)
}

#[test]
fn a_flipped_bit_is_an_error_or_the_right_answer_by_every_way() {
    let (parts, seed) = (Parts::of_golden(), seed());
    let file = open(GOLDEN).unwrap();
    let mut keys: Vec<Vec<u8>> = walk(&file, false).unwrap().into_iter().map(|(key, ..)| key).step_by(17).collect();
    keys.push(b"nothing".to_vec());
    let whole = Answers::of(&file, &parts.directory, &keys);
    assert_eq!(whole.errors_against(&whole, "whole"), 0, "{whole:?}");
    assert!(whole.selected.iter().all(|rows| rows.as_ref().is_ok_and(|rows| !rows.is_empty() && rows.len() < 200)));
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut opened, mut unopened) = (0, 0);
    for byte in (0..GOLDEN.len()).filter(|_| rng.random_ratio(1, 9)).collect::<Vec<_>>() {
        let mut damaged = GOLDEN.to_vec();
        damaged[byte] ^= 1 << rng.random_range(0..8);
        let context = format!("seed {seed}, byte {byte}");
        let Ok(file) = open(&damaged) else {
            unopened += 1;
            continue;
        };
        opened += 1;
        let errors = Answers::of(&file, &parts.directory, &keys).errors_against(&whole, &context);
        assert!(errors > 0, "{context}: a flipped bit went unnoticed");
        let is_data = byte < parts.footer.data_end() as usize;
        assert!(is_data || parts.all[parts.data_blocks..].iter().any(|part| is_in(byte, *part)), "{context}");
    }
    println!("{opened} damaged files opened, {unopened} did not");
    assert!(opened > 50 && unopened > 50);
}

fn is_in(byte: usize, part: BlockHandle) -> bool {
    (part.offset..part.offset + part.len).contains(&(byte as u64))
}

/// As the same of files of rows in `corruption.rs`: a right checksum over wrong bytes, which no disk makes but a bug
/// might.
#[test]
fn resealed_garbage_of_columns_never_panics() {
    let (parts, seed) = (Parts::of_golden(), seed());
    let keys: Vec<Vec<u8>> =
        walk(&open(GOLDEN).unwrap(), false).unwrap().into_iter().map(|(key, ..)| key).step_by(50).collect();
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut opened, mut right) = (0, 0);
    let whole = Answers::of(&open(GOLDEN).unwrap(), &parts.directory, &keys);
    for part in &parts.all {
        let (payload, kind) = open_block(framed(*part), NUMBER, part.offset).unwrap();
        for _ in 0..150 {
            let mut payload = payload.to_vec();
            for _ in 0..rng.random_range(1..4) {
                // Headers, which say where things lie, are in front.
                let most = if rng.random() { payload.len().min(80) } else { payload.len() };
                let at = rng.random_range(0..most);
                payload[at] = [0, 1, 0x7f, 0x80, 0xff, rng.random()][rng.random_range(0..6)];
            }
            let mut sealed = GOLDEN[..part.offset as usize].to_vec();
            sealed.extend_from_slice(&payload);
            seal_block(&mut sealed, part.offset as usize, kind, NUMBER, part.offset);
            sealed.extend_from_slice(&GOLDEN[(part.offset + part.len) as usize..]);
            let Ok(file) = open(&sealed) else { continue };
            opened += 1;
            right += usize::from(Answers::of(&file, &parts.directory, &keys) == whole);
            if let Err(error) = file.verify(|_| {}) {
                assert!(error.is_corruption() && error.file().is_some(), "{error}");
            }
        }
    }
    println!("{opened} forged files opened, {right} of them answered as before");
    assert!(opened > 1000 && right < opened);
}
