//! Pages against a list of cells: every encoding, on data that is made to break it.

#![allow(clippy::unwrap_used)]

mod adversarial;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, StringArray};
use mycelium_base::ColumnSet;
use mycelium_encoding::page::{Bitmap, Cells, Encoding, Page, PageTest, Test, TextCoding, Zone};
use mycelium_encoding::{
    ColumnState, ColumnType, Datum, DatumRef, PackedLayout, RecordBatchBuilder, Schema, TextArrays,
};
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

const TYPES: &str = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 utf8 binary date32 timestamp(us) \
                     decimal(38,2)";

/// The cell of a row; `Err(true)` is absent, `Err(false)` null.
type Cell = Result<Datum, bool>;

fn state(cell: &Cell) -> ColumnState<'_> {
    match cell {
        Ok(datum) => ColumnState::Value(datum.borrowed()),
        Err(true) => ColumnState::Absent,
        Err(false) => ColumnState::Null,
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

fn kind(name: &str) -> ColumnType {
    let schema = Schema::parse(&format!("k int64 not null, c {name}, primary key (k)")).unwrap();
    schema.columns()[1].ty.clone()
}

/// Values of one kind of data: constant, ascending, runs, few, many, or at the ends of the type.
fn integer(rng: &mut SmallRng, data: u32, row: usize) -> i128 {
    match data % 6 {
        0 => 7,
        1 => row as i128 * 3,
        2 => row as i128 / 50,
        3 => rng.random_range(0..20),
        4 => i128::from(rng.random::<i64>()),
        _ => *[i128::from(i64::MIN), i128::from(i64::MAX), 0, -1, i128::MAX / 2].choose(rng).unwrap(),
    }
}

fn text(rng: &mut SmallRng, data: u32, row: usize) -> Vec<u8> {
    match data % 6 {
        0 => b"always".to_vec(),
        1 => format!("row {row:09}").into_bytes(),
        2 => vec![b'x'; row / 40 % 90],
        3 => ["", "\0", "\0a", "a", "é", "日本", "zzzz\u{10ffff}"][rng.random_range(0..7)].as_bytes().to_vec(),
        4 => format!("{:x}", rng.random::<u128>()).into_bytes(),
        _ => format!("{}{}", "prefix ".repeat(20), rng.random_range(0..3)).into_bytes(),
    }
}

fn value(rng: &mut SmallRng, kind: &ColumnType, data: u32, row: usize) -> Datum {
    let integer = integer(rng, data, row);
    match kind {
        ColumnType::Bool => Datum::Bool(integer % 2 == 0),
        ColumnType::Int8 => Datum::Int8(integer as i8),
        ColumnType::Int16 => Datum::Int16(integer as i16),
        ColumnType::Int32 => Datum::Int32(integer as i32),
        ColumnType::Int64 => Datum::Int64(integer as i64),
        ColumnType::UInt8 => Datum::UInt8(integer as u8),
        ColumnType::UInt16 => Datum::UInt16(integer as u16),
        ColumnType::UInt32 => Datum::UInt32(integer as u32),
        ColumnType::UInt64 => Datum::UInt64(integer as u64),
        ColumnType::Float32 => Datum::Float32(match data % 3 {
            0 => f32::from_bits(rng.random()),
            1 => (integer as i16) as f32 / 4.0,
            _ => *[f32::NAN, -0.0, 0.0, f32::INFINITY, f32::MIN_POSITIVE].choose(rng).unwrap(),
        }),
        ColumnType::Float64 => Datum::Float64(match data % 3 {
            0 => f64::from_bits(rng.random()),
            1 => (integer as i32) as f64 / 100.0,
            _ => *[f64::NAN, -0.0, 0.0, f64::NEG_INFINITY, 1e-300, 0.1].choose(rng).unwrap(),
        }),
        ColumnType::Utf8 => Datum::Utf8(String::from_utf8(text(rng, data, row)).unwrap()),
        ColumnType::Binary => Datum::Binary(match data % 2 {
            0 => text(rng, data / 2, row),
            _ => (0..rng.random_range(0..5)).map(|_| rng.random()).collect(),
        }),
        ColumnType::Date32 => Datum::Date32(integer as i32),
        ColumnType::Timestamp(..) => Datum::Timestamp(integer as i64),
        ColumnType::Decimal128(..) => Datum::Decimal128(integer),
    }
}

fn cells(rng: &mut SmallRng, kind: &ColumnType, rows: usize) -> Vec<Cell> {
    let (data, holes) = (rng.random_range(0..12), rng.random_range(0..4));
    (0..rows)
        .map(|row| match holes {
            1 if rng.random_ratio(1, 5) => Err(rng.random()),
            2 => Err(row % 2 == 0),
            3 if row > rows / 2 => Err(false),
            _ => Ok(value(rng, kind, data, row)),
        })
        .collect()
}

/// The pages of a file: how its texts are coded, and of each block its rows and bytes.
struct File {
    coding: Option<TextCoding>,
    blocks: Vec<(usize, Vec<u8>)>,
}

fn write(cells: Cells, rng: &mut SmallRng) -> File {
    let rows = cells.len();
    let finished = cells.finish();
    let (mut blocks, mut at) = (Vec::new(), 0);
    while at < rows {
        let end = (at + rng.random_range(1..=rows)).min(rows);
        let mut bytes = Vec::new();
        finished.encode(at..end, &mut bytes).unwrap();
        blocks.push((end - at, bytes));
        at = end;
    }
    let coding = finished.coding().map(|coding| {
        let mut bytes = Vec::new();
        coding.encode(&mut bytes);
        let len = bytes.len();
        TextCoding::parse(bytes.into(), 0..len).unwrap()
    });
    File { coding, blocks }
}

impl File {
    fn pages<'a>(&'a self, kind: &ColumnType) -> Vec<Page<'a>> {
        let parse = |(rows, bytes): &'a (usize, Vec<u8>)| Page::parse(bytes, *rows, kind, self.coding.as_ref());
        self.blocks.iter().map(|block| parse(block).unwrap()).collect()
    }

    fn check(&self, kind: &ColumnType, cells: &[Cell], context: &str) {
        let (mut expected, mut text) = (cells.iter(), Vec::new());
        for (page, (rows, bytes)) in self.pages(kind).iter().zip(&self.blocks) {
            for row in 0..*rows {
                let wanted = state(expected.next().unwrap());
                let found = page.expanded_cell(row, &mut text).unwrap();
                assert!(same(found, wanted), "{context}: {found:?}, not {wanted:?}, as {:?}", page.encoding());
                let alone = Page::cell_at(bytes, (*rows, row), (kind, self.coding.as_ref()), &mut text).unwrap();
                assert!(same(alone, wanted), "{context}");
            }
            assert!(page.cell(*rows).is_err());
        }
        assert!(expected.next().is_none());
    }
}

fn gather(kind: &ColumnType, all: &[Cell]) -> Cells {
    let mut cells = Cells::new(kind);
    all.iter().for_each(|cell| cells.push(state(cell)).unwrap());
    assert_eq!(cells.len(), all.len());
    cells
}

fn kinds() -> Vec<ColumnType> {
    TYPES.split_whitespace().map(kind).collect()
}

#[test]
fn every_cell_comes_back_from_its_page() {
    let mut encodings = BTreeSet::new();
    for kind in kinds() {
        for seed in 0..60 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let rows = *[1, 2, 63, 64, 65, 700, 3000].choose(&mut rng).unwrap();
            let all = cells(&mut rng, &kind, rows);
            let context = format!("{kind:?}, seed {seed}");
            let file = write(gather(&kind, &all), &mut rng);
            file.check(&kind, &all, &context);
            encodings.extend(file.pages(&kind).iter().map(|page| page.encoding().name()));
        }
    }
    assert_eq!(encodings.len(), 9, "{encodings:?}");
}

#[test]
fn pages_of_several_files_are_gathered_as_they_are() {
    for kind in kinds() {
        for seed in 100..130 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut merged, mut expected) = (Cells::new(&kind), Vec::new());
            let inputs: Vec<(Vec<Cell>, File)> = (0..3)
                .map(|_| {
                    let all = cells(&mut rng, &kind, 900);
                    let file = write(gather(&kind, &all), &mut rng);
                    (all, file)
                })
                .collect();
            for (all, file) in &inputs {
                let mut first = 0;
                for page in file.pages(&kind) {
                    let from = rng.random_range(0..=page.rows());
                    let to = rng.random_range(from..=page.rows());
                    merged.append(&page, from..to).unwrap();
                    expected.extend_from_slice(&all[first + from..first + to]);
                    first += page.rows();
                }
                let own = value(&mut rng, &kind, 3, 5);
                merged.push(ColumnState::Value(own.borrowed())).unwrap();
                expected.push(Ok(own));
            }
            let file = write(merged, &mut rng);
            file.check(&kind, &expected, &format!("{kind:?}, seed {seed}"));
            let Some(dictionary) = file.coding.as_ref().and_then(TextCoding::dictionary) else { continue };
            let alive: BTreeSet<Vec<u8>> = expected.iter().flatten().map(bytes_of).collect();
            let held = (0..dictionary.len() as u32).map(|code| dictionary.value(code).unwrap().to_vec());
            assert!(held.eq(alive), "what no row has leaves, and the rest is in order");
        }
    }
}

fn bytes_of(datum: &Datum) -> Vec<u8> {
    match datum {
        Datum::Utf8(text) => text.clone().into_bytes(),
        Datum::Binary(bytes) => bytes.clone(),
        other => panic!("{other:?} has no dictionary"),
    }
}

fn test(rng: &mut SmallRng, kind: &ColumnType, all: &[Cell]) -> Test {
    let some = |rng: &mut SmallRng| {
        let known: Vec<&Datum> = all.iter().flatten().collect();
        match known.choose(rng) {
            Some(datum) if rng.random_ratio(4, 5) => (*datum).clone(),
            _ => {
                let data = rng.random_range(0..12);
                value(rng, kind, data, 77)
            }
        }
    };
    let bound = |rng: &mut SmallRng| match rng.random_range(0..3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(some(rng)),
        _ => Bound::Excluded(some(rng)),
    };
    match rng.random_range(0..7) {
        0 => Test::Equal(some(rng)),
        1 => Test::NotEqual(some(rng)),
        2 => Test::In((0..rng.random_range(0..5)).map(|_| some(rng)).collect()),
        3 => Test::IsNull,
        4 => Test::IsNotNull,
        5 if matches!(kind, ColumnType::Utf8 | ColumnType::Binary) => {
            let bytes = bytes_of(&some(rng));
            Test::Prefix(bytes[..bytes.len().min(rng.random_range(0..9))].to_vec())
        }
        _ => Test::Range { lower: bound(rng), upper: bound(rng) },
    }
}

#[test]
fn a_filter_passes_what_its_test_passes() {
    for kind in kinds() {
        for seed in 200..280 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let all = cells(&mut rng, &kind, 1500);
            let file = write(gather(&kind, &all), &mut rng);
            let test = test(&mut rng, &kind, &all);
            let compiled = PageTest::new(&test, &kind, file.coding.as_ref());
            let mut first = 0;
            for page in file.pages(&kind) {
                let mut selection = Bitmap::new(page.rows(), true);
                selection.clear(0);
                page.filter(&compiled, &mut selection).unwrap();
                let passes = |row: &usize| *row > 0 && test.passes(state(&all[first + row]));
                let expected: Vec<usize> = (0..page.rows()).filter(passes).collect();
                let found: Vec<usize> = selection.rows().collect();
                assert_eq!(found, expected, "{kind:?}, seed {seed}, {test:?}, {:?}", page.encoding());
                first += page.rows();
            }
        }
    }
}

/// Decimals have integers of 64 bits in some pages and of 128 in others; what a test compares with may lie beyond
/// either.
#[test]
fn tests_of_decimals_pass_the_same_in_narrow_and_in_wide_pages() {
    let (least, greatest) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let ends = [i128::MIN, least - 1, least, least + 1, -1, 0, 1, greatest - 1, greatest, greatest + 1, i128::MAX];
    let kind = kind("decimal(38,2)");
    let cell = |value: &i128| Ok(Datum::Decimal128(*value));
    let narrow: Vec<i128> = ends.into_iter().filter(|value| (least..=greatest).contains(value)).collect();
    let bound = |at: usize| {
        let value = |at: usize| Datum::Decimal128(ends[at]);
        match at {
            0 => Bound::Unbounded,
            at if at % 2 == 1 => Bound::Included(value(at / 2)),
            at => Bound::Excluded(value(at / 2 - 1)),
        }
    };
    let bounds = 2 * ends.len() + 1;
    let mut tests: Vec<Test> = (0..bounds * bounds)
        .map(|pair| Test::Range { lower: bound(pair / bounds), upper: bound(pair % bounds) })
        .collect();
    tests.extend(ends.iter().flat_map(|&value| {
        let value = Datum::Decimal128(value);
        [Test::Equal(value.clone()), Test::NotEqual(value.clone()), Test::In(vec![Datum::Decimal128(0), value])]
    }));
    for values in [&narrow[..], &ends[..]] {
        let mut all: Vec<Cell> = values.iter().map(cell).collect();
        all.extend([Err(false), Err(true)]);
        let finished = gather(&kind, &all).finish();
        let mut bytes = Vec::new();
        finished.encode(0..all.len(), &mut bytes).unwrap();
        let page = Page::parse(&bytes, all.len(), &kind, None).unwrap();
        assert_eq!(page.encoding() == Encoding::Wide, values.len() == ends.len());
        for test in &tests {
            let mut selection = Bitmap::new(all.len(), true);
            page.filter(&PageTest::new(test, &kind, None), &mut selection).unwrap();
            let expected: Vec<usize> = (0..all.len()).filter(|&row| test.passes(state(&all[row]))).collect();
            assert_eq!(selection.rows().collect::<Vec<_>>(), expected, "{test:?}, {:?}", page.encoding());
        }
    }
}

#[test]
fn zones_hold_all_values_and_rule_out_only_what_does_not_pass() {
    for kind in kinds() {
        for seed in 300..360 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let all = cells(&mut rng, &kind, 40);
            let finished = gather(&kind, &all).finish();
            let (from, to) = (rng.random_range(0..20), rng.random_range(20..40));
            let zone = finished.encode(from..to, &mut Vec::new()).unwrap();
            let within = &all[from..to];
            assert!(within.iter().flatten().all(|datum| zone.contains(datum.borrowed())), "{kind:?}, seed {seed}");
            let nulls = within.iter().filter(|cell| matches!(cell, Err(false))).count();
            assert_eq!(zone.null_count() as usize, nulls);
            let test = test(&mut rng, &kind, &all);
            let passes = within.iter().any(|cell| test.passes(state(cell)));
            assert!(test.may_pass(&zone) || !passes, "{kind:?}, seed {seed}, {test:?}, {zone:?}");
        }
    }
}

#[test]
fn compiled_tests_rule_out_at_least_the_zones_that_the_tests_rule_out() {
    let mut decided = 0;
    for kind in kinds() {
        for seed in 400..440 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let all = cells(&mut rng, &kind, 90);
            let finished = gather(&kind, &all).finish();
            let zones: Vec<Zone> =
                (0..30).map(|zone| finished.encode(3 * zone..3 * zone + 3, &mut Vec::new()).unwrap()).collect();
            let bounds = |bound: fn(&Zone) -> Option<&Datum>| -> Vec<u8> {
                let mut cells = Cells::without_dictionary(&kind);
                let bound = |zone| bound(zone).map_or(ColumnState::Null, |datum| ColumnState::Value(datum.borrowed()));
                zones.iter().for_each(|zone| cells.push(bound(zone)).unwrap());
                let mut bytes = Vec::new();
                cells.finish().encode(0..zones.len(), &mut bytes).unwrap();
                bytes
            };
            let (least, greatest) = (bounds(Zone::least), bounds(Zone::greatest));
            let page = |bytes| Page::parse(bytes, zones.len(), &kind, None).unwrap();
            let (least, greatest) = (page(&least), page(&greatest));
            for _ in 0..20 {
                let test = test(&mut rng, &kind, &all);
                let compiled = PageTest::new(&test, &kind, None);
                for (number, zone) in zones.iter().enumerate() {
                    if let Some(may_pass) = compiled.may_pass_between(&least, &greatest, number) {
                        let passes = all[3 * number..][..3].iter().any(|cell| test.passes(state(cell)));
                        let context = format!("{kind:?}, seed {seed}, {test:?}, {zone:?}");
                        assert!(may_pass || !passes, "{context}: a row passes");
                        assert!(test.may_pass(zone) || !may_pass, "{context}: the test itself rules it out");
                        decided += 1;
                    }
                }
            }
        }
    }
    assert!(decided > 10_000, "hardly any zone was of integers");
}

/// Texts of views as a plain array; other arrays as they are.
fn plain(array: &ArrayRef) -> ArrayRef {
    if let Some(codes) = array.as_dictionary_opt::<UInt32Type>() {
        return Arc::new(codes.downcast_dict::<StringArray>().unwrap().into_iter().collect::<StringArray>());
    }
    match array.as_string_view_opt() {
        Some(views) => Arc::new(views.iter().collect::<StringArray>()),
        None => array.clone(),
    }
}

const TEXTS: [TextArrays; 3] = [TextArrays::Plain, TextArrays::Views, TextArrays::Dictionaries];

#[test]
fn a_dictionary_s_texts_are_there_once_for_all_rows_of_a_batch() {
    let kind = kind("utf8");
    let text = |row: usize| format!("one of a few longer texts: {}", row % 3);
    let all: Vec<Cell> = (0..900).map(|row| Ok(Datum::Utf8(text(row)))).collect();
    let file = write(gather(&kind, &all), &mut SmallRng::seed_from_u64(1));
    let schema = Arc::new(Schema::parse("k int64 not null, c utf8, primary key (k)").unwrap());
    let layout = Arc::new(PackedLayout::of(schema, &ColumnSet::from_iter([1])));
    let builder = |texts| RecordBatchBuilder::with_texts(layout.clone(), &[1], usize::MAX, texts).unwrap();
    for mut builder in [TextArrays::Views, TextArrays::Dictionaries].map(builder) {
        for _ in 0..2 {
            for page in file.pages(&kind).iter().filter(|page| page.rows() >= 3) {
                builder.append_cells(0, page, 0..page.rows()).unwrap();
                builder.end_rows(page.rows());
            }
            let batch = builder.finish().unwrap();
            assert!(batch.num_rows() > 800);
            match batch.column(0).as_any_dictionary_opt() {
                Some(codes) => {
                    let texts: Vec<_> = codes.values().as_string::<i32>().iter().flatten().map(str::to_owned).collect();
                    assert_eq!(texts, [0, 1, 2].map(text), "the codes are those of the file, in order");
                }
                None => {
                    let views = batch.column(0).as_string_view();
                    let bytes: usize = views.data_buffers().iter().map(|buffer| buffer.len()).sum();
                    assert_eq!(bytes, 3 * text(0).len());
                }
            }
        }
    }
}

/// Rows of a block whose keys do not ascend, of which its checksum knows nothing, are picked in an order of their own:
/// the first was subtracted from the last.
#[test]
fn rows_in_an_order_of_their_own_are_no_panic() {
    let kind = kind("int64");
    let all: Vec<Cell> = (0..100).map(|row| Ok(Datum::Int64(row * row % 97))).collect();
    let mut bytes = Vec::new();
    gather(&kind, &all).finish().encode(0..all.len(), &mut bytes).unwrap();
    let page = Page::parse(&bytes, all.len(), &kind, None).unwrap();
    assert_eq!(page.encoding(), Encoding::Packed);
    let schema = Arc::new(Schema::parse("k int64 not null, c int64, primary key (k)").unwrap());
    let layout = Arc::new(PackedLayout::of(schema, &ColumnSet::from_iter([1])));
    let mut builder = RecordBatchBuilder::new(layout, &[1], usize::MAX).unwrap();
    for rows in [[90, 3, 40], [5, 99, 0]] {
        builder.append_selected(0, &page, &rows).unwrap();
        builder.end_rows(rows.len());
    }
    assert_eq!(builder.finish().unwrap().num_rows(), 6);
}

/// In the place of a null stands the value before it, be it of the block before: behind a decimal of more than 64 bits
/// each null of a block took 16 bytes.
#[test]
fn nulls_behind_a_decimal_of_more_than_64_bits_take_a_bit_each() {
    let kind = kind("decimal(38,2)");
    let mut cells = Cells::new(&kind);
    cells.push(ColumnState::Value(DatumRef::Decimal128(1 << 100))).unwrap();
    cells.encode(0..1, &mut Vec::new()).unwrap();
    cells.forget(1);
    (0..1000).for_each(|_| cells.push(ColumnState::Null).unwrap());
    let mut bytes = Vec::new();
    cells.encode(0..1000, &mut bytes).unwrap();
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
    let page = Page::parse(&bytes, 1000, &kind, None).unwrap();
    assert!((0..1000).all(|row| page.cell(row).unwrap() == ColumnState::Null));
}

#[test]
fn batches_take_pages_as_they_take_rows() {
    for name in TYPES.split_whitespace() {
        let schema = Arc::new(Schema::parse(&format!("k int64 not null, c {name}, primary key (k)")).unwrap());
        let layout = Arc::new(PackedLayout::of(schema.clone(), &ColumnSet::from_iter([1])));
        let kind = kind(name);
        for seed in 400..420 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut all = cells(&mut rng, &kind, 600);
            all.retain(|cell| !matches!(cell, Err(true)));
            let fits = |cell: &Cell| !matches!(cell, Ok(Datum::Decimal128(v)) if v.unsigned_abs() >= 10_u128.pow(38));
            all.retain(fits);
            if all.is_empty() {
                continue;
            }
            let file = write(gather(&kind, &all), &mut rng);
            let builder = |texts| RecordBatchBuilder::with_texts(layout.clone(), &[1], usize::MAX, texts).unwrap();
            let mut by_rows = builder(TextArrays::Plain);
            let mut by_pages = TEXTS.map(builder);
            let mut first = 0;
            for page in file.pages(&kind) {
                let (from, to) = (page.rows() / 3, page.rows());
                let middle = (from + to) / 2;
                let share = [0.02, 0.5, 1.0][rng.random_range(0..3)];
                let selected: Vec<u32> = (middle as u32..to as u32).filter(|_| rng.random_bool(share)).collect();
                let rows: Vec<usize> = (from..middle).chain(selected.iter().map(|&row| row as usize)).collect();
                let mut places: Vec<u32> = (0..rows.len() as u32).collect();
                // Those selected may come between the others.
                let others = middle - from;
                let mut between: Vec<u32> = selected.iter().map(|_| rng.random_range(0..=others as u32)).collect();
                between.sort_unstable();
                let removed: Vec<u32> = (0..rows.len() as u32).filter(|_| rng.random_bool(share / 2.0)).collect();
                let [is_arranged, is_woven, is_removed] = {
                    let choice = rng.random_range(0..4);
                    [0, 1, 2].map(|other| other == choice)
                };
                if is_arranged {
                    places.shuffle(&mut rng);
                    places.truncate(rng.random_range(0..=rows.len()));
                } else if is_woven {
                    places.truncate(others);
                    for (new, &place) in between.iter().enumerate().rev() {
                        places.insert(place as usize, (others + new) as u32);
                    }
                } else if is_removed {
                    places.retain(|place| !removed.contains(place));
                }
                let mut value = Vec::new();
                for &place in &places {
                    value.clear();
                    layout.encode_with(|_| state(&all[first + rows[place as usize]]), &mut value).unwrap();
                    by_rows.append(b"", &value).unwrap();
                }
                for builder in &mut by_pages {
                    builder.append_cells(0, &page, from..middle).unwrap();
                    builder.append_selected(0, &page, &selected).unwrap();
                    if is_arranged {
                        builder.arrange(0, &places).unwrap();
                    } else if is_woven {
                        builder.weave(0, builder.len(), &between).unwrap();
                    } else if is_removed {
                        builder.remove(0, builder.len(), &removed).unwrap();
                    }
                    builder.end_rows(places.len());
                }
                first += page.rows();
            }
            let expected = by_rows.finish().unwrap();
            for (builder, texts) in by_pages.iter_mut().zip(TEXTS) {
                let found = builder.finish().unwrap();
                assert_eq!(found.schema_ref().as_ref().field(0), &schema.columns()[1].to_arrow_with(texts));
                assert_eq!(&plain(found.column(0)), expected.column(0), "{name}, seed {seed}, {texts:?}");
                assert!(builder.arrange(0, &[0]).is_err(), "no cell was appended");
                assert!(builder.weave(0, 0, &[0]).is_err(), "no cell was appended");
                assert!(builder.remove(0, 0, &[0]).is_err(), "no cell was appended");
            }
        }
    }
}

/// What the rows of a page had of text was known once they were appended: those of a dictionary's longest text could be
/// more than an array can have.
#[test]
fn what_fits_of_a_page_is_known_before_it_is_appended() {
    for (name, seed) in ["utf8", "binary", "int32"].into_iter().flat_map(|name| (0..40).map(move |seed| (name, seed))) {
        let kind = kind(name);
        let schema = Arc::new(Schema::parse(&format!("k int64 not null, c {name}, primary key (k)")).unwrap());
        let layout = Arc::new(PackedLayout::of(schema, &ColumnSet::from_iter([1])));
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut all = cells(&mut rng, &kind, 800);
        all.retain(|cell| !matches!(cell, Err(true)));
        if all.is_empty() {
            continue;
        }
        let len = |cell: &Cell| match cell {
            Ok(Datum::Utf8(text)) => text.len(),
            Ok(Datum::Binary(bytes)) => bytes.len(),
            _ => 0,
        };
        let (longest, most) = (all.iter().map(len).max().unwrap(), rng.random_range(1..4_000));
        let file = write(gather(&kind, &all), &mut rng);
        let builder = RecordBatchBuilder::new(layout, &[1], usize::MAX).unwrap();
        let (mut builder, mut at) = (builder.with_most_bytes(most), 0);
        for page in file.pages(&kind) {
            let mut row = 0;
            while row < page.rows() {
                let count = builder.fitting(0, &page, row..page.rows(), rng.random_range(1..100));
                builder.append_cells(0, &page, row..row + count).unwrap();
                builder.end_rows(count);
                row += count;
                if builder.is_full() {
                    let rows = at..at + builder.finish().unwrap().num_rows();
                    let bytes: usize = all[rows.clone()].iter().map(len).sum();
                    // A null may take the room of a text of the dictionary.
                    let has_nulls = all[rows.clone()].iter().any(Result::is_err);
                    let is_full = bytes >= most || has_nulls;
                    assert!(is_full && bytes < most + longest, "{name}, seed {seed}: {bytes} of {most}");
                    at = rows.end;
                }
            }
        }
        assert_eq!(at + builder.finish().unwrap().num_rows(), all.len());
        assert!(kind != ColumnType::Int32 || at == 0, "integers fill no batch");
    }
}

#[test]
fn malformed_pages_give_errors_or_other_cells_but_never_a_panic() {
    for name in TYPES.split_whitespace() {
        let kind = kind(name);
        let schema = Arc::new(Schema::parse(&format!("k int64 not null, c {name}, primary key (k)")).unwrap());
        let layout = Arc::new(PackedLayout::of(schema, &ColumnSet::from_iter([1])));
        for seed in 500..512 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let rows = *[rng.random_range(1..200), 1200].choose(&mut rng).unwrap();
            let all = cells(&mut rng, &kind, rows);
            let finished = gather(&kind, &all).finish();
            let (coding, mut text, mut bytes) = (finished.coding(), Vec::new(), Vec::new());
            finished.encode(0..rows, &mut bytes).unwrap();
            for _ in 0..300 {
                let mut damaged = bytes.clone();
                match rng.random_range(0..3) {
                    0 => damaged.truncate(rng.random_range(0..bytes.len())),
                    1 => damaged.extend_from_slice(&[0; 3]),
                    _ => {
                        let at = rng.random_range(0..bytes.len().min(40));
                        damaged[at] = rng.random();
                    }
                }
                let Ok(page) = Page::parse(&damaged, rows, &kind, coding.as_ref()) else { continue };
                let mut selection = Bitmap::new(rows, true);
                let compiled = PageTest::new(&test(&mut rng, &kind, &all), &kind, coding.as_ref());
                page.filter(&compiled, &mut selection).unwrap_or_default();
                Cells::new(&kind).append(&page, 0..rows).unwrap_or_default();
                for texts in TEXTS {
                    let mut builder = RecordBatchBuilder::with_texts(layout.clone(), &[1], rows, texts).unwrap();
                    if builder.append_cells(0, &page, 0..rows).is_ok() {
                        builder.end_rows(rows);
                        builder.finish().map(drop).unwrap_or_default();
                    }
                }
                for row in 0..rows {
                    page.expanded_cell(row, &mut text).map(drop).unwrap_or_default();
                    page.seek_integer(row as i64, true);
                }
            }
        }
    }
}

#[test]
fn a_million_rows_of_a_page_take_the_bits_that_they_need() {
    let mut rng = SmallRng::seed_from_u64(9);
    let mut cells = Cells::new(&ColumnType::Int32);
    for _ in 0..1_000_000 {
        cells.push(ColumnState::Value(DatumRef::Int32(rng.random_range(-500..500)))).unwrap();
    }
    let mut bytes = Vec::new();
    cells.finish().encode(0..1_000_000, &mut bytes).unwrap();
    assert!(bytes.len() <= 1_250_020, "{} bytes for ten bits a row", bytes.len());
    let page = Page::parse(&bytes, 1_000_000, &ColumnType::Int32, None).unwrap();
    assert_eq!(page.encoding(), Encoding::Packed);
    assert!(matches!(page.cell(999_999).unwrap(), ColumnState::Value(DatumRef::Int32(-500..500))));
}

#[test]
fn a_plain_page_of_a_column_with_a_dictionary_is_damage() {
    let kind = ColumnType::Utf8;
    let texts: Vec<Cell> = (0..4_000).map(|n| Ok(Datum::Utf8(format!("text {}", n % 10)))).collect();
    let finished = gather(&kind, &texts).finish();
    let coding = finished.coding().unwrap();
    assert!(coding.dictionary().is_some());
    let mut plain = Cells::without_dictionary(&kind);
    plain.push(ColumnState::Value(DatumRef::Utf8("text 1"))).unwrap();
    let mut bytes = Vec::new();
    plain.finish().encode(0..1, &mut bytes).unwrap();
    assert!(Page::parse(&bytes, 1, &kind, None).is_ok());
    assert!(Page::parse(&bytes, 1, &kind, Some(&coding)).unwrap_err().is_corruption());
}
