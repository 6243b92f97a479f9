//! Fuzz targets of columnar files: pages, codings of texts, zone maps, directories, blocks, and whole files.
//!
//! Whatever bytes a page decodes from, its cells, written again, must come back to the bit, be found by tests as
//! [`Test::passes`] says, and lie in their zone: the written form is checked against the naive twin on data no
//! generator draws.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use mycelium_base::{
    ColumnSet, Cursor, FileKind, Group, GroupFormat, MAX_SEQUENCE_NUMBER, Operation, ReadCounters, Result, Trailer,
};
use mycelium_cache::BlockCache;
use mycelium_encoding::page::{Bitmap, Cells, Page, PageTest, Test, TextCoding, Zone, compare};
use mycelium_encoding::{ColumnState, ColumnType, Datum, DatumRef, PackedLayout, Schema, key};
use mycelium_sst::{
    BlockHandle, ColumnBlock, CursorOptions, Directory, FOOTER_LEN, Footer, GetScratch, Index, OpenOptions, Properties,
    RunCursor, SstFile, SstWriter, SstWriterOptions, ZoneMap, open_block,
};
use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};

const SCHEMA: &str = "id int64 not null, flag bool, small int8, amount int64, count uint64, share float64, single float32, \
                      name utf8, raw binary, day date32, price decimal(38, 2), note utf8, primary key (id)";
/// The column `name`.
const NAME: usize = 7;
const SST: u64 = 11;
/// More rows than this are not looked at: a constant page says of any number what it says of one.
const MOST_ROWS: usize = 3000;

/// A columnar file and its parts.
struct Parts {
    file: Vec<u8>,
    directory: Directory,
    codings: Arc<[Option<TextCoding>]>,
    blocks: Vec<Vec<u8>>,
    coding_bytes: Vec<Vec<u8>>,
    zone_maps: Vec<Vec<u8>>,
    directories: Vec<Vec<u8>>,
}

static PARTS: LazyLock<Parts> = LazyLock::new(|| match Parts::make() {
    Ok(parts) => parts,
    Err(error) => panic!("cannot make a columnar file: {error}"),
});

fn texts(row: i64) -> (String, Vec<u8>) {
    let name = ["", "\0", "Ärger", "a name that is rather long"][row as usize % 4].to_owned();
    (name, (row as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()[..row as usize % 9].to_vec())
}

/// The fragment of a row: constants, runs, lines, extremes, nulls.
fn put_fragment(row: i64, operation: Operation, layout: &PackedLayout, out: &mut Vec<u8>) -> Result<()> {
    let (name, raw) = texts(row);
    // Long enough, and different enough, for a symbol table.
    let note = format!("flight {} is late; ", row * 7919 % 1009).repeat(11);
    let values = [
        DatumRef::Bool(row % 3 == 0),
        DatumRef::Int8((row / 40) as i8),
        DatumRef::Int64([i64::MIN, i64::MAX, 0, -1, row * 7919 % 1009][row as usize % 5]),
        DatumRef::UInt64(u64::MAX - row as u64),
        DatumRef::Float64((row % 90) as f64 / 4.0),
        DatumRef::Float32([f32::NAN, -0.0, 0.1, f32::NEG_INFINITY][row as usize % 4]),
        DatumRef::Utf8(&name),
        DatumRef::Binary(&raw),
        DatumRef::Date32(row as i32 * 3),
        DatumRef::Decimal128(if row == 33 { 1 << 65 } else { i128::from(row) }),
        DatumRef::Utf8(&note),
    ];
    let state = |column: usize| match (operation, column) {
        (Operation::Patch, 2..5) => ColumnState::Absent,
        (_, 3 | 7) if row % 9 == 0 => ColumnState::Null,
        _ => ColumnState::Value(values[column - 1]),
    };
    layout.encode_with(state, out)
}

impl Parts {
    fn make() -> Result<Self> {
        let schema = Arc::new(Schema::parse(SCHEMA)?);
        let columns = schema.value_columns();
        let file = Self::write(&schema, &columns)?;
        let at = file.len() - FOOTER_LEN;
        let footer = Footer::parse(&file[at..], SST, at as u64)?;
        let block = |handle: BlockHandle| {
            open_block(&file[handle.offset as usize..(handle.offset + handle.len) as usize], SST, handle.offset)
        };
        let properties = Properties::parse(block(footer.properties)?.0)?;
        let index = Index::parse(block(footer.index)?.0, footer.data_end())?;
        let blocks = (0..index.block_count()).map(|i| index.entry(i));
        let blocks = blocks.map(|entry| Ok(block(BlockHandle { offset: entry.offset, len: entry.len })?.0.to_vec()));
        let directory_bytes = block(properties.columns)?.0.to_vec();
        let directory = Directory::parse(&directory_bytes, &columns)?;
        let zone_maps = directory
            .parts
            .iter()
            .enumerate()
            .map(|(kind, part)| Ok([&[kind as u8, index.block_count() as u8], block(part.zones)?.0].concat()));
        let mut coding_bytes = Vec::new();
        let codings = directory.parts.iter().map(|part| match part.coding {
            BlockHandle { len: 0, .. } => Ok(None),
            handle => {
                let bytes = block(handle)?.0;
                coding_bytes.push(bytes.to_vec());
                TextCoding::parse(bytes.into(), 0..bytes.len()).map(Some)
            }
        });
        let codings = codings.collect::<Result<_>>()?;
        Ok(Self {
            blocks: blocks.collect::<Result<_>>()?,
            zone_maps: zone_maps.collect::<Result<_>>()?,
            codings,
            coding_bytes,
            directories: vec![directory_bytes],
            directory,
            file,
        })
    }

    fn write(schema: &Arc<Schema>, columns: &ColumnSet) -> Result<Vec<u8>> {
        let layout = PackedLayout::of(schema.clone(), columns);
        let disk = MemoryDisk::new();
        let path = Path::new("000011.sst");
        let group = Arc::new(Group::new(columns.clone(), GroupFormat::Columnar));
        let options = SstWriterOptions { file_number: SST, block_size: 2048, ..SstWriterOptions::default() };
        let mut writer = SstWriter::new(disk.create(path)?, options)?.with_columns(group, schema.clone());
        for row in 0..150_i64 {
            let operation = [Operation::Put, Operation::Put, Operation::Patch, Operation::Delete][row as usize % 4];
            let (mut key, mut value) = (Vec::new(), Vec::new());
            key::encode_key(schema, &[DatumRef::Int64(row)], &mut key)?;
            if operation != Operation::Delete {
                put_fragment(row, operation, &layout, &mut value)?;
            }
            writer.add(&key, Trailer::new(1000 - row as u64, operation), &value)?;
        }
        writer.finish()?;
        disk.read_bytes(path)
    }

    fn kind(&self, number: u8) -> (usize, &ColumnType) {
        let place = usize::from(number) % self.directory.parts.len();
        (place, &self.directory.parts[place].kind)
    }
}

/// Equal to the bit: floats are not compared as numbers.
fn same(a: ColumnState<'_>, b: ColumnState<'_>) -> bool {
    match (a, b) {
        (ColumnState::Value(DatumRef::Float64(a)), ColumnState::Value(DatumRef::Float64(b))) => {
            a.to_bits() == b.to_bits()
        }
        (ColumnState::Value(DatumRef::Float32(a)), ColumnState::Value(DatumRef::Float32(b))) => {
            a.to_bits() == b.to_bits()
        }
        _ => a == b,
    }
}

/// The input is a page and, before it, the place of its column, one byte, and its rows, two.
pub(crate) fn page(bytes: &[u8]) {
    let [kind, low, high, bytes @ ..] = bytes else { return };
    let (place, kind) = PARTS.kind(*kind);
    let rows = usize::from(u16::from_le_bytes([*low, *high])) % MOST_ROWS;
    let coding = PARTS.codings[place].as_ref();
    let Ok(page) = Page::parse(bytes, rows, kind, coding) else { return };
    check_page(&page, kind);
    let (mut text, mut text_alone) = (Vec::new(), Vec::new());
    for row in 0..=rows {
        let alone = Page::cell_at(bytes, (rows, row), (kind, coding), &mut text_alone);
        match (page.expanded_cell(row, &mut text), alone) {
            (Ok(cell), Ok(alone)) => assert!(same(cell, alone), "row {row}: {cell:?} and {alone:?}"),
            (cell, alone) => assert!(cell.is_err() && alone.is_err(), "row {row}: {cell:?} and {alone:?}"),
        }
    }
}

/// Takes every way through a page; what it holds must stay when it is written again.
fn check_page(page: &Page<'_>, kind: &ColumnType) {
    let rows = page.rows().min(MOST_ROWS);
    let mut search = page.search_ascending(page.rows() / 2);
    for value in [i64::MIN, 0, 77, i64::MAX] {
        let place = page.seek_integer(value, value == 0);
        assert!(place.is_none_or(|place| place <= page.rows()), "a place behind the page");
        let place = search.as_mut().map(|search| search.seek(value));
        assert!(place.is_none_or(|(place, _)| place <= page.rows()), "a place behind the page");
    }
    let (mut gathered, mut pushed) = (Cells::new(kind), Cells::new(kind));
    let mut text = Vec::new();
    let owned = |state: ColumnState<'_>| match state {
        ColumnState::Absent => None,
        ColumnState::Null => Some(Datum::Null),
        ColumnState::Value(value) => Some(value.to_datum()),
    };
    let cells = (0..rows).map_while(|row| page.expanded_cell(row, &mut text).ok().map(owned));
    let cells: Vec<Option<Datum>> = cells.collect();
    let state = |cell| match cell {
        &None => ColumnState::Absent,
        Some(Datum::Null) => ColumnState::Null,
        Some(value) => ColumnState::Value(value.borrowed()),
    };
    let cells: Vec<ColumnState<'_>> = cells.iter().map(state).collect();
    if cells.len() < rows || rows == 0 || gathered.append(page, 0..rows).is_err() {
        return;
    }
    for cell in &cells {
        assert!(pushed.push(*cell).is_ok(), "a cell that its own column does not take");
    }
    // Integers that their type does not have stay what they are where they are gathered as such: tests then see others
    // than cells do. A checksum vouches that there are none.
    for (gathered, is_tested) in [(gathered, false), (pushed, true)] {
        let (finished, mut bytes) = (gathered.finish(), Vec::new());
        let coding = finished.coding();
        let zone = finished.encode(0..rows, &mut bytes);
        match (zone, Page::parse(&bytes, rows, kind, coding.as_ref())) {
            (Ok(zone), Ok(page)) => {
                check_cells(&page, &cells);
                if is_tested {
                    check_tests((&page, &zone), &cells, kind, coding.as_ref());
                }
            }
            (zone, page) => panic!("cells of a page are not written and read again: {zone:?}, {page:?}"),
        }
    }
}

/// A page that was written, against what was put in.
fn check_cells(page: &Page<'_>, cells: &[ColumnState<'_>]) {
    let mut text = Vec::new();
    for (row, &cell) in cells.iter().enumerate() {
        let found = page.expanded_cell(row, &mut text);
        assert!(found.as_ref().is_ok_and(|&found| same(found, cell)), "row {row}: {found:?}, not {cell:?}");
    }
}

/// What passes tests, against the tests themselves, and values against their zone.
fn check_tests(
    (page, zone): (&Page<'_>, &Zone),
    cells: &[ColumnState<'_>],
    kind: &ColumnType,
    coding: Option<&TextCoding>,
) {
    let values: Vec<Datum> = cells.iter().filter_map(|cell| value_of(*cell)).map(DatumRef::to_datum).collect();
    assert!(values.iter().all(|value| zone.contains(value.borrowed())), "{zone:?}");
    let middle = values.get(values.len() / 2).cloned();
    let tests = [
        Some(Test::IsNull),
        values.first().cloned().map(Test::Equal),
        middle.clone().map(Test::NotEqual),
        middle.map(|lower| Test::Range { lower: Bound::Excluded(lower), upper: Bound::Unbounded }),
    ];
    for test in tests.into_iter().flatten() {
        let mut selection = Bitmap::new(cells.len(), true);
        let filtered = page.filter(&PageTest::new(&test, kind, coding), &mut selection);
        assert!(filtered.is_ok(), "{test:?}: {filtered:?}");
        for (row, &cell) in cells.iter().enumerate() {
            assert_eq!(selection.get(row), test.passes(cell), "row {row}, {cell:?}, {test:?}, {:?}", page.encoding());
        }
    }
}

fn value_of(cell: ColumnState<'_>) -> Option<DatumRef<'_>> {
    if let ColumnState::Value(value) = cell { Some(value) } else { None }
}

pub(crate) fn page_seeds() -> Vec<Vec<u8>> {
    let number = |block: &[u8], at: usize| block[at..].first_chunk::<4>().copied().map(u32::from_le_bytes);
    let mut seeds = Vec::new();
    for block in &PARTS.blocks {
        let rows = number(block, 4).unwrap_or_default();
        for place in 0..PARTS.directory.parts.len() {
            // Behind the header, the pages of keys and of trailers come first.
            let page = |place: usize| number(block, 24 + 4 * (2 + place)).unwrap_or_default() as usize;
            let before = [place as u8, rows as u8, (rows >> 8) as u8];
            seeds.push([&before, &block[page(place)..page(place + 1)]].concat());
        }
    }
    seeds
}

pub(crate) fn text_coding(bytes: &[u8]) {
    let Ok(coding) = TextCoding::parse(bytes.into(), 0..bytes.len()) else { return };
    let mut again = Vec::new();
    coding.encode(&mut again);
    assert_eq!(again, bytes, "two forms of one coding");
    let Some(dictionary) = coding.dictionary() else { return };
    for code in 0..dictionary.len() as u32 {
        let found = dictionary.value(code).map(|value| dictionary.code(value));
        assert_eq!(found, Some(Ok(code)), "a value that is not found");
    }
    assert_eq!(dictionary.value(dictionary.len() as u32), None);
    assert_eq!(dictionary.codes_within(Bound::Unbounded, Bound::Unbounded), 0..dictionary.len() as u32);
}

pub(crate) fn text_coding_seeds() -> Vec<Vec<u8>> {
    PARTS.coding_bytes.clone()
}

/// The input is a zone map and, before it, the place of its column and the number of blocks.
pub(crate) fn zone_map(bytes: &[u8]) {
    let [kind, blocks, payload @ ..] = bytes else { return };
    let (_, kind) = PARTS.kind(*kind);
    let Ok(zones) = ZoneMap::parse(payload, usize::from(*blocks), kind) else { return };
    for block in 0..usize::from(*blocks) {
        drop(zones.null_count(block));
        if let Ok(Some((least, greatest))) = zones.bounds(block)
            && compare(least, greatest).is_some_and(Ordering::is_le)
        {
            for bound in [least, greatest] {
                assert!(Test::Equal(bound.to_datum()).may_pass_within((least, greatest)), "a bound outside its zone");
            }
        }
    }
    assert!(zones.bounds(usize::from(*blocks)).is_err(), "the zone of a block that is not there");
}

pub(crate) fn zone_map_seeds() -> Vec<Vec<u8>> {
    PARTS.zone_maps.clone()
}

pub(crate) fn directory(bytes: &[u8]) {
    let columns: ColumnSet = PARTS.directory.parts.iter().map(|part| part.column).collect();
    let Ok(directory) = Directory::parse(bytes, &columns) else { return };
    let again = Directory::parse(&directory.encode(), &columns);
    assert!(
        again.is_ok_and(|again| again.schema == directory.schema && again.parts == directory.parts),
        "a directory changes when encoded and decoded"
    );
}

pub(crate) fn directory_seeds() -> Vec<Vec<u8>> {
    PARTS.directories.clone()
}

/// Keys, trailers and all columns of a block.
pub(crate) fn block(bytes: &[u8]) {
    let Ok(block) = ColumnBlock::of(&PARTS.directory, PARTS.codings.clone(), bytes.into()) else { return };
    let rows = block.rows().min(MOST_ROWS);
    let mut key = Vec::new();
    for row in (0..rows).chain([block.rows()]) {
        if block.write_key(row, &mut key).is_ok() && row % 16 == 0 {
            assert!(block.seek(&key).is_ok_and(|found| found <= block.rows()), "a place behind the block");
        }
    }
    for key in [&b""[..], b"\x80\0\0\0\0\0\0\x07", b"\xff\xff"] {
        drop(block.seek(key));
    }
    drop(block.same_keys(0, (&block, 0), rows));
    block.read(|pages| {
        for (page, part) in pages.iter().zip(&PARTS.directory.parts) {
            check_page(page, &part.kind);
        }
    });
}

pub(crate) fn block_seeds() -> Vec<Vec<u8>> {
    PARTS.blocks.clone()
}

/// A whole file, by every way in which it is read.
pub(crate) fn file(bytes: &[u8]) {
    let path = Path::new("/db").join(FileKind::Sst.name(SST));
    let disk = MemoryDisk::new();
    let written = disk.create_directory(Path::new("/db")).and_then(|()| disk.create(&path)?.append(bytes));
    let Ok(file) = written.and_then(|()| disk.open(&path, AccessPattern::Random)) else { return };
    let cache = Arc::new(BlockCache::new(1 << 20));
    let Ok(sst) = SstFile::open(file, &path, SST, cache, OpenOptions::default()) else { return };
    let mut cursor = RunCursor::new([sst.clone()], CursorOptions::default());
    let mut walk = || -> Result<usize> {
        let mut entries = 0;
        cursor.seek_to_first()?;
        while cursor.valid() {
            entries += 1;
            cursor.next()?;
        }
        cursor.seek_to_last()?;
        while cursor.valid() {
            cursor.prev()?;
        }
        Ok(entries)
    };
    let walked = walk();
    let verified = sst.verify(|_| {});
    assert!(bytes != PARTS.file || walked.is_ok_and(|entries| entries == 150) && verified.is_ok());
    let mut visit = |_: Trailer, _: &[u8]| ControlFlow::Continue(());
    let (mut scratch, mut counters) = (GetScratch::default(), ReadCounters::default());
    drop(sst.get(sst.smallest(), MAX_SEQUENCE_NUMBER, &mut scratch, &mut counters, &mut visit));
    let test = Test::Equal(Datum::Utf8("a".into()));
    let compiled = sst.page_test(NAME, &test);
    if let (Ok(zones), Ok(compiled)) = (sst.zones(NAME), compiled) {
        (0..sst.block_count()).for_each(|block| drop(zones.may_pass(block, &test, &compiled)));
    }
    drop(sst.column_figures());
}

pub(crate) fn file_seeds() -> Vec<Vec<u8>> {
    vec![PARTS.file.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_claims_no_more_rows_than_its_size_allows() {
        let mut forged = PARTS.blocks[0].clone();
        forged[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = ColumnBlock::of(&PARTS.directory, PARTS.codings.clone(), forged.into()).expect_err("forged");
        assert!(error.is_corruption() && error.to_string().contains("at most"), "{error}");
    }
}
