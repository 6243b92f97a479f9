//! Columnar files against files of rows with the same entries: every answer is the same.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{
    ColumnSet, Cursor, Group, GroupFormat, MAX_SEQUENCE_NUMBER, Operation, RangeDelete, ReadCounters, RowFormatKind,
    SequenceNumber, Trailer,
};
use mycelium_cache::BlockCache;
use mycelium_encoding::page::compare;
use mycelium_encoding::{ColumnState, Datum, DatumRef, PackedLayout, Schema, key};
use mycelium_sst::{
    ColumnarFormat, Compression, CursorOptions, FOOTER_LEN, Footer, GetScratch, OpenOptions, RunCursor, SstFile,
    SstWriter, SstWriterOptions, WantedColumns,
};
use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SCHEMA: &str = "id int64 not null, part utf8 not null, flag bool, small int16, amount int64, share float64, name utf8, \
                      raw binary, day date32, price decimal(20, 2), primary key (id, part)";

type Entry = (Vec<u8>, Trailer, Vec<u8>);

struct Pair {
    schema: Arc<Schema>,
    group: ColumnSet,
    rows: Arc<SstFile>,
    columns: Arc<SstFile>,
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::parse(SCHEMA).unwrap())
}

/// Entries of a column group, ascending: some keys with several versions, deletes, patches and nulls among them.
fn entries(rng: &mut SmallRng, count: usize, layout: &PackedLayout, columns: &ColumnSet) -> Vec<Entry> {
    let names: Vec<String> = (0..7).map(|i| format!("{}é{i}", "x".repeat(i * 13))).collect();
    let has_few_names = rng.random_bool(0.5);
    let mut entries = Vec::new();
    let mut id = rng.random_range(-5..5);
    while entries.len() < count {
        id += rng.random_range(1..4);
        let part = if rng.random_bool(0.9) { "a" } else { "a\0b" };
        let mut key = Vec::new();
        key::encode_key(layout.schema(), &[DatumRef::Int64(id), DatumRef::Utf8(part)], &mut key).unwrap();
        let mut sequence = rng.random_range(1000..100_000);
        for _ in 0..*[1, 1, 1, 1, 3].get(rng.random_range(0..5)).unwrap() {
            let operation = match rng.random_range(0..20) {
                0 => Operation::Delete,
                1 => Operation::Patch,
                _ => Operation::Put,
            };
            let name = if has_few_names {
                names[rng.random_range(0..7)].clone()
            } else {
                format!("name number {}", rng.random::<u64>())
            };
            let raw: Vec<u8> = (0..rng.random_range(0..9)).map(|_| rng.random()).collect();
            let values = [
                DatumRef::Bool(rng.random()),
                DatumRef::Int16(rng.random_range(0..50)),
                DatumRef::Int64(if rng.random_bool(0.1) { rng.random() } else { id * 3 }),
                DatumRef::Float64(if rng.random_bool(0.01) {
                    f64::NAN
                } else {
                    f64::from(rng.random_range(0..1000)) / 8.0
                }),
                DatumRef::Utf8(&name),
                DatumRef::Binary(&raw),
                DatumRef::Date32(rng.random_range(0..10_000)),
                DatumRef::Decimal128(
                    rng.random_range(-1000..1_000_000) * if rng.random_bool(0.01) { 1 << 45 } else { 1 },
                ),
            ];
            let mut value = Vec::new();
            if operation != Operation::Delete {
                let drawn: Vec<u8> = (0..10).map(|_| rng.random_range(0..10)).collect();
                let state = |column: usize| match drawn[column] {
                    0 => ColumnState::Null,
                    1..=4 if operation == Operation::Patch => ColumnState::Absent,
                    _ => ColumnState::Value(values[column - 2]),
                };
                layout.encode_with(state, &mut value).unwrap();
            }
            entries.push((key.clone(), Trailer::new(sequence, operation), value));
            sequence -= rng.random_range(1..100);
        }
    }
    assert!(!columns.is_empty());
    entries
}

impl Pair {
    fn write(rng: &mut SmallRng, entries: &[Entry], group: &ColumnSet, cache_bytes: u64) -> Self {
        let schema = schema();
        let block_size = *[64, 700, 4096, 1 << 20].get(rng.random_range(0..4)).unwrap();
        let compression = if rng.random_bool(0.3) { Compression::Lz4 } else { Compression::None };
        let cache = Arc::new(BlockCache::new(cache_bytes));
        let files = [GroupFormat::Row(RowFormatKind::Packed), GroupFormat::Columnar].map(|format| {
            let disk = MemoryDisk::new();
            let number = if format == GroupFormat::Columnar { 8 } else { 7 };
            let path = Path::new("file.sst");
            let options =
                SstWriterOptions { file_number: number, block_size, compression, ..SstWriterOptions::default() };
            let writer = SstWriter::new(disk.create(path).unwrap(), options).unwrap();
            let group = Arc::new(Group::new(group.clone(), format));
            let mut writer = match format {
                GroupFormat::Columnar => writer.with_columns(group, schema.clone()),
                GroupFormat::Row(_) => writer.with_group(Some(group)),
            };
            for (key, trailer, value) in entries {
                writer.add(key, *trailer, value).unwrap();
            }
            let (start, end) = (vec![1], vec![2]);
            writer.add_range_delete(&RangeDelete { start, end, sequence: 77 }).unwrap();
            let summary = writer.finish().unwrap();
            let options = OpenOptions {
                expected_size: Some(summary.size),
                expected_checksum: Some(summary.checksum),
                ..OpenOptions::default()
            };
            let file = disk.open(path, AccessPattern::Random).unwrap();
            SstFile::open(file, path, number, cache.clone(), options).unwrap()
        });
        let [rows, columns] = files;
        assert!(columns.is_columnar() && !rows.is_columnar());
        Self { schema, group: group.clone(), rows, columns }
    }

    fn cursors(&self, options: CursorOptions, wanted: WantedColumns) -> (RunCursor, RunCursor) {
        let rows = RunCursor::new([self.rows.clone()], options);
        (rows, RunCursor::over_part(Arc::new([self.columns.clone()].into()), 0..1, options, || wanted))
    }
}

fn scan(cursor: &mut RunCursor) -> Vec<(Entry, bool)> {
    let mut found = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        let same = cursor.same_key_as_previous();
        found.push(((cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()), same));
        cursor.next().unwrap();
    }
    found
}

fn get(file: &SstFile, key: &[u8], snapshot: SequenceNumber) -> Vec<(Trailer, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |trailer: Trailer, value: &[u8]| {
        found.push((trailer, value.to_vec()));
        ControlFlow::Continue(())
    };
    file.get(key, snapshot, &mut GetScratch::default(), &mut ReadCounters::default(), &mut visit).unwrap();
    found
}

#[test]
fn a_columnar_file_answers_as_one_of_rows() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let group: ColumnSet = match rng.random_range(0..4) {
            0 => (2..10).collect(),
            1 => [3, 6].into_iter().collect(),
            2 => [7].into_iter().collect(),
            _ => (2..10).filter(|_| rng.random()).chain([4]).collect(),
        };
        let layout = PackedLayout::of(schema(), &group);
        let count = *[1, 2, 50, 3000].get(rng.random_range(0..4)).unwrap();
        let entries = entries(&mut rng, count, &layout, &group);
        let cache_bytes = if rng.random() { 1 << 10 } else { 8 << 20 };
        let pair = Pair::write(&mut rng, &entries, &group, cache_bytes);
        let context = format!("seed {seed}, {group}, {count} entries");
        assert_eq!(pair.columns.verify(|_| {}).unwrap().entries, entries.len() as u64, "{context}");
        let options = CursorOptions {
            read_ahead: if rng.random() { 0 } else { 64 << 10 },
            fill_cache: rng.random(),
            ..CursorOptions::default()
        };
        let (mut rows, mut columns) = pair.cursors(options, WantedColumns::All);
        let expected = scan(&mut rows);
        assert!(expected.iter().map(|(entry, _)| entry).eq(entries.iter()), "{context}");
        assert!(scan(&mut columns) == expected, "{context}");
        walk_alike(&mut rng, (&mut rows, &mut columns), &entries, &context);
        for _ in 0..50 {
            let (key, trailer, _) = &entries[rng.random_range(0..entries.len())];
            let mut key = key.clone();
            if rng.random_ratio(1, 4) {
                key.push(0);
            }
            let snapshot = if rng.random() { MAX_SEQUENCE_NUMBER } else { trailer.sequence() };
            assert_eq!(get(&pair.columns, &key, snapshot), get(&pair.rows, &key, snapshot), "{context}");
        }
        some_columns_are_projections(&mut rng, &pair, &entries, &context);
        statistics_are_those_of_the_entries(&pair, &entries, &context);
    }
}

fn statistics_are_those_of_the_entries(pair: &Pair, entries: &[Entry], context: &str) {
    let layout = PackedLayout::of(pair.schema.clone(), &pair.group);
    let statistics = pair.columns.column_statistics().unwrap().unwrap();
    let all_puts = entries.iter().all(|(_, trailer, _)| trailer.operation() == Operation::Put);
    let is_plain = all_puts && entries.windows(2).all(|pair| pair[0].0 != pair[1].0);
    assert_eq!(statistics.is_plain, is_plain, "{context}");
    assert!(statistics.columns.iter().map(|of_column| of_column.column).eq(pair.group.iter()), "{context}");
    let is_said = |of_columns: &[usize]| pair.columns.zones_say_all(of_columns).unwrap();
    let in_all = |of_column: &mycelium_sst::ColumnStatistics| of_column.absent == 0;
    let all: Vec<usize> = pair.group.iter().collect();
    assert_eq!(is_said(&all), is_plain && statistics.columns.iter().all(in_all), "{context}");
    assert!(!is_said(&[usize::MAX]) && is_said(&[]) == is_plain, "{context}");
    for of_column in &statistics.columns {
        assert_eq!(is_said(&[of_column.column]), is_plain && in_all(of_column), "{context}");
        let (mut nulls, mut absent, mut values) = (0, 0, BTreeSet::new());
        let (least, greatest) = of_column.bounds.clone().unzip();
        for (_, trailer, value) in entries {
            let is_row = trailer.operation() != Operation::Delete;
            let state =
                if is_row { layout.row(value).unwrap().get(of_column.column).unwrap() } else { ColumnState::Absent };
            match state {
                ColumnState::Absent => absent += 1,
                ColumnState::Null => nulls += 1,
                ColumnState::Value(datum) => {
                    let order = |bound: &Option<Datum>| compare(bound.as_ref().unwrap().borrowed(), datum).unwrap();
                    assert!(order(&least).is_le() && order(&greatest).is_ge(), "{context}: {datum:?}, {of_column:?}");
                    values.insert(format!("{:?}", datum.to_datum()));
                }
            }
        }
        assert_eq!((of_column.nulls, of_column.absent), (nulls, absent), "{context}");
        assert_eq!(least.is_some(), !values.is_empty(), "{context}");
        assert_eq!(of_column.values, entries.len() as u64 - nulls - absent, "{context}");
        // A few rows may all be among those that are not noted.
        let (estimate, exact) = (of_column.distinct_estimate() as f64, values.len() as f64);
        let is_near = estimate >= exact / 4.0 - 3.0 && estimate <= exact * 3.0 + 3.0;
        assert!(is_near, "{context}: {estimate} of {exact} in {} rows", of_column.values);
    }
}

/// Statistics that say of a file what is not so, with every checksum right, are found by who verifies it.
#[test]
fn wrong_statistics_are_found() {
    let schema = Arc::new(Schema::parse("id int64 not null, n int64, primary key (id)").unwrap());
    let columns: ColumnSet = [1].into_iter().collect();
    let group = Arc::new(Group::new(columns.clone(), GroupFormat::Columnar));
    let layout = PackedLayout::of(schema.clone(), &columns);
    let write = |value: i64, operation: Operation| {
        let (disk, path) = (MemoryDisk::new(), Path::new("file.sst"));
        let options = SstWriterOptions { file_number: 8, ..SstWriterOptions::default() };
        let writer = SstWriter::new(disk.create(path).unwrap(), options).unwrap();
        let mut writer = writer.with_columns(group.clone(), schema.clone());
        let (mut key, mut row) = (Vec::new(), Vec::new());
        key::encode_key(&schema, &[DatumRef::Int64(1)], &mut key).unwrap();
        layout.encode_with(|_| ColumnState::Value(DatumRef::Int64(value)), &mut row).unwrap();
        writer.add(&key, Trailer::new(1, operation), &row).unwrap();
        writer.finish().unwrap();
        disk.read_bytes(path).unwrap()
    };
    let statistics_in = |bytes: &[u8]| {
        let part = open(bytes).unwrap().properties().statistics;
        part.offset as usize..(part.offset + part.len) as usize
    };
    let right = write(7, Operation::Put);
    let place = statistics_in(&right);
    // A checksum is right in the same place, and of the same length.
    let other_value = (8..).find(|&value| statistics_in(&write(value, Operation::Put)) == place).unwrap();
    for (value, operation) in [(other_value, Operation::Put), (7, Operation::Patch)] {
        let other = write(value, operation);
        // One of which the rows are other ones, or patches, with the statistics of the right one.
        let mut wrong = other.clone();
        wrong[place.clone()].copy_from_slice(&right[place.clone()]);
        assert!(open(&wrong).unwrap().verify(|_| {}).unwrap_err().is_corruption(), "{value} {operation:?}");
        open(&other).unwrap().verify(|_| {}).unwrap();
    }
    // Two patches of the column, and one beside a delete, whose statistics differ in what says nothing of it.
    let pair = |second: Operation, sequence: u64| {
        let (disk, path) = (MemoryDisk::new(), Path::new("file.sst"));
        let options = SstWriterOptions { file_number: 8, ..SstWriterOptions::default() };
        let writer = SstWriter::new(disk.create(path).unwrap(), options).unwrap();
        let mut writer = writer.with_columns(group.clone(), schema.clone());
        let mut row = Vec::new();
        layout.encode_with(|_| ColumnState::Value(DatumRef::Int64(7)), &mut row).unwrap();
        for (id, sequence, operation) in [(1, 1, Operation::Patch), (2, sequence, second)] {
            let mut key = Vec::new();
            key::encode_key(&schema, &[DatumRef::Int64(id)], &mut key).unwrap();
            let value = if operation == Operation::Delete { &[][..] } else { &row };
            writer.add(&key, Trailer::new(sequence, operation), value).unwrap();
        }
        writer.finish().unwrap();
        disk.read_bytes(path).unwrap()
    };
    let both = |shift: u32| pair(Operation::Patch, 1 << shift);
    let mut shifts = (0..40).flat_map(|one| (0..40).map(move |other| (one, other)));
    let alike =
        shifts.find(|&(one, other)| statistics_in(&both(one)) == statistics_in(&pair(Operation::Delete, 1 << other)));
    let (one, other) = alike.unwrap();
    let (right, mut wrong) = (both(one), pair(Operation::Delete, 1 << other));
    open(&wrong).unwrap().verify(|_| {}).unwrap();
    let place = statistics_in(&right);
    wrong[place.clone()].copy_from_slice(&right[place]);
    let error = open(&wrong).unwrap().verify(|_| {}).unwrap_err();
    assert!(error.to_string().contains("miscount"), "{error}");
}

/// The same random moves with both.
fn walk_alike(rng: &mut SmallRng, (rows, columns): (&mut RunCursor, &mut RunCursor), entries: &[Entry], context: &str) {
    for _ in 0..200 {
        let (key, trailer, _) = &entries[rng.random_range(0..entries.len())];
        let mut key = key.clone();
        match rng.random_range(0..4) {
            0 => key.push(1),
            1 => key.truncate(rng.random_range(0..=key.len())),
            _ => {}
        }
        let trailer = if rng.random() { Trailer::NEWEST } else { *trailer };
        let moves = rng.random_range(0..6);
        for cursor in [&mut *rows, &mut *columns] {
            match moves {
                0 => cursor.seek(&key, trailer).unwrap(),
                1 => cursor.seek_before(&key, trailer).unwrap(),
                2 => cursor.seek_to_last().unwrap(),
                3 | 4 if cursor.valid() => cursor.next().unwrap(),
                5 if cursor.valid() => cursor.prev().unwrap(),
                _ => cursor.seek_to_first().unwrap(),
            }
        }
        assert_eq!(rows.valid(), columns.valid(), "{context}");
        if rows.valid() {
            assert_eq!(
                (rows.key(), rows.trailer(), rows.value()),
                (columns.key(), columns.trailer(), columns.value()),
                "{context}"
            );
        }
    }
}

/// Fragments of some of the columns are what the whole fragments say of them.
fn some_columns_are_projections(rng: &mut SmallRng, pair: &Pair, entries: &[Entry], context: &str) {
    let some: ColumnSet = pair.group.iter().filter(|_| rng.random()).collect();
    let (whole, part) =
        (PackedLayout::of(pair.schema.clone(), &pair.group), PackedLayout::of(pair.schema.clone(), &some));
    let (_, mut columns) = pair
        .cursors(CursorOptions::default(), WantedColumns::Of(Arc::new(PackedLayout::of(pair.schema.clone(), &some))));
    let found = scan(&mut columns);
    for ((key, trailer, value), ((found_key, found_trailer, fragment), _)) in entries.iter().zip(&found) {
        assert_eq!((key, trailer), (found_key, found_trailer), "{context}");
        if trailer.operation() == Operation::Delete {
            assert!(fragment.is_empty());
            continue;
        }
        let (whole, part) = (whole.row(value).unwrap(), part.row(fragment).unwrap());
        for column in some.iter() {
            assert_eq!(whole.get(column).unwrap(), part.get(column).unwrap(), "{context}, column {column}");
        }
    }
}

#[test]
fn repeated_texts_make_a_dictionary_and_dense_keys_take_no_room() {
    let schema = Arc::new(Schema::parse("id int64 not null, name utf8, n int32, primary key (id)").unwrap());
    let columns: ColumnSet = [1, 2].into_iter().collect();
    let layout = PackedLayout::of(schema.clone(), &columns);
    let disk = MemoryDisk::new();
    let path = Path::new("file.sst");
    let options = SstWriterOptions { block_size: 32 << 10, ..SstWriterOptions::default() };
    let group = Arc::new(Group::new(columns, GroupFormat::Columnar));
    let mut writer = SstWriter::new(disk.create(path).unwrap(), options).unwrap().with_columns(group, schema.clone());
    for id in 0..20_000_i64 {
        let name = format!("a name that is rather long, number {}", id % 50);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        key::encode_key(&schema, &[DatumRef::Int64(id)], &mut key).unwrap();
        let row = [DatumRef::Int64(id), DatumRef::Utf8(&name), DatumRef::Int32((id % 1000) as i32)];
        layout.encode_row(&row, &mut value).unwrap();
        writer.add(&key, Trailer::new(0, Operation::Put), &value).unwrap();
    }
    let summary = writer.finish().unwrap();
    // Six bits of code and ten of n a row.
    assert!(summary.data_bytes < 20_000 * 2 + summary.block_count * 200, "{summary:?}");
    assert!(summary.raw_value_bytes > 20_000 * 40);
}

const GOLDEN: &str = "tests/golden/format-5-distinct-keys.sst";
/// As it was written before files said that their keys are distinct.
const GOLDEN_SILENT: &str = "tests/golden/format-5-statistics.sst";
/// As it was written before files had statistics.
const GOLDEN_WITHOUT_STATISTICS: &str = "tests/golden/format-5-gaps-in-keys.sst";
/// As version 3 wrote it.
const GOLDEN_WITHOUT_GAPS: &str = "tests/golden/format-3-columnar.sst";

/// A small file with every encoding: constant, packed, linear and run-length integers, decimals, wide ones, dictionary
/// and plain texts, nulls, absent cells; keys with a gap and keys of many lengths.
fn golden_file() -> Vec<u8> {
    let schema = schema();
    let columns: ColumnSet = (2..10).collect();
    let layout = PackedLayout::of(schema.clone(), &columns);
    let disk = MemoryDisk::new();
    let path = Path::new("file.sst");
    let options = SstWriterOptions { file_number: 8, block_size: 2048, ..SstWriterOptions::default() };
    let group = Arc::new(Group::new(columns, GroupFormat::Columnar));
    let mut writer = SstWriter::new(disk.create(path).unwrap(), options).unwrap().with_columns(group, schema.clone());
    for i in 0..200_i64 {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        key::encode_key(
            &schema,
            &[DatumRef::Int64(i), DatumRef::Utf8(if i % 50 == 0 { "other" } else { "a" })],
            &mut key,
        )
        .unwrap();
        let name = format!("name number {}", i % 7);
        let raw = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        let wide = if i == 150 { 1_i128 << 65 } else { i128::from(i) };
        let values = [
            DatumRef::Bool(true),
            DatumRef::Int16((i / 40) as i16),
            DatumRef::Int64((i * 7919) % 1009),
            DatumRef::Float64((i % 90) as f64 / 4.0),
            DatumRef::Utf8(&name),
            DatumRef::Binary(&raw),
            DatumRef::Date32(i as i32 * 3),
            DatumRef::Decimal128(wide),
        ];
        let operation =
            [Operation::Put, Operation::Put, Operation::Patch, Operation::Put, Operation::Delete][i as usize % 5];
        let state = |column: usize| match (operation, column) {
            (Operation::Patch, 2..6) => ColumnState::Absent,
            (_, 4) if i % 9 == 0 => ColumnState::Null,
            _ => ColumnState::Value(values[column - 2]),
        };
        if operation != Operation::Delete {
            layout.encode_with(state, &mut value).unwrap();
        }
        writer.add(&key, Trailer::new(1000 - i as u64, operation), &value).unwrap();
    }
    writer.finish().unwrap();
    disk.read_bytes(path).unwrap()
}

fn open(bytes: &[u8]) -> mycelium_base::Result<Arc<SstFile>> {
    let disk = MemoryDisk::new();
    let path = Path::new("file.sst");
    let mut file = disk.create(path)?;
    file.append(bytes)?;
    file.sync()?;
    let cache = Arc::new(BlockCache::new(8 << 20));
    SstFile::open(disk.open(path, AccessPattern::Random)?, path, 8, cache, OpenOptions::default())
}

const GOLDEN_SYMBOLS: &str = "tests/golden/format-4-symbol-table.sst";

/// A small file whose column of text has a symbol table.
fn file_of_remarks() -> (Vec<u8>, Vec<Vec<u8>>) {
    let schema = Arc::new(Schema::parse("id int64 not null, remark utf8, primary key (id)").unwrap());
    let columns: ColumnSet = [1].into_iter().collect();
    let layout = PackedLayout::of(schema.clone(), &columns);
    let disk = MemoryDisk::new();
    let path = Path::new("file.sst");
    let options = SstWriterOptions { file_number: 8, ..SstWriterOptions::default() };
    let group = Arc::new(Group::new(columns, GroupFormat::Columnar));
    let mut writer = SstWriter::new(disk.create(path).unwrap(), options).unwrap().with_columns(group, schema.clone());
    let mut values = Vec::new();
    for id in 0..900_i64 {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let remark = format!("flight number {} of {} is late", id * 7919 % 10_007, ["é", "\0", ""][id as usize % 3]);
        key::encode_key(&schema, &[DatumRef::Int64(id)], &mut key).unwrap();
        let states = [ColumnState::Value(DatumRef::Utf8(&remark)), ColumnState::Null];
        layout.encode_with(|_| states[usize::from(id % 10 == 0)], &mut value).unwrap();
        writer.add(&key, Trailer::new(0, Operation::Put), &value).unwrap();
        values.push(value);
    }
    writer.finish().unwrap();
    (disk.read_bytes(path).unwrap(), values)
}

/// What a crate makes of texts may change with its version without harm, so that the file is read and not compared
/// bytewise.
#[test]
fn the_golden_file_with_a_symbol_table_is_read() {
    let (bytes, values) = file_of_remarks();
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !Path::new(GOLDEN_SYMBOLS).exists() {
        std::fs::write(GOLDEN_SYMBOLS, &bytes).unwrap();
    }
    for bytes in [std::fs::read(GOLDEN_SYMBOLS).unwrap(), bytes] {
        let footer_at = bytes.len() - FOOTER_LEN;
        let footer = Footer::parse(&bytes[footer_at..], 8, footer_at as u64).unwrap();
        assert_eq!(footer.columnar, Some(ColumnarFormat::SymbolTables));
        let file = open(&bytes).unwrap();
        assert_eq!(
            file.column_figures().unwrap().unwrap().columns[0].encodings.keys().collect::<Vec<_>>(),
            [&"compressed"]
        );
        assert_eq!(file.verify(|_| {}).unwrap().entries, 900);
        let found = scan(&mut RunCursor::new([file], CursorOptions::default()));
        assert!(found.iter().map(|((_, _, value), _)| value).eq(&values));
    }
}

#[test]
fn a_symbol_table_takes_less_than_the_texts() {
    let (bytes, values) = file_of_remarks();
    let plain: usize = values.iter().map(Vec::len).sum();
    assert!(bytes.len() * 2 < plain, "{} bytes of {plain}", bytes.len());
}

#[test]
fn flipped_bits_of_a_file_with_a_symbol_table_are_detected() {
    let (bytes, _) = file_of_remarks();
    for at in (0..bytes.len()).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = open(&damaged).and_then(|file| file.verify(|_| {})).err();
        assert!(error.unwrap_or_else(|| panic!("byte {at} flipped, and nothing said")).file().is_some());
    }
}

/// As of the other formats: see `golden.rs`.
#[test]
fn the_golden_file_is_read_and_written() {
    let bytes = golden_file();
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !Path::new(GOLDEN).exists() {
        std::fs::write(GOLDEN, &bytes).unwrap();
    }
    let golden = std::fs::read(GOLDEN).unwrap();
    assert!(golden == bytes, "the writer writes another file than the golden one");
    let [silent, without_statistics, without_gaps] =
        [GOLDEN_SILENT, GOLDEN_WITHOUT_STATISTICS, GOLDEN_WITHOUT_GAPS].map(|path| std::fs::read(path).unwrap());
    let files = [
        (golden, ColumnarFormat::KeysWithGaps, true, true),
        (silent, ColumnarFormat::KeysWithGaps, true, false),
        (without_statistics, ColumnarFormat::KeysWithGaps, false, false),
        (without_gaps, ColumnarFormat::Plain, false, false),
    ];
    let found = files.map(|(bytes, format, has_statistics, distinct_keys)| {
        let footer_at = bytes.len() - FOOTER_LEN;
        assert_eq!(Footer::parse(&bytes[footer_at..], 8, footer_at as u64).unwrap().columnar, Some(format));
        let file = open(&bytes).unwrap();
        assert_eq!(file.verify(|_| {}).unwrap().entries, 200);
        assert_eq!(file.column_statistics().unwrap().is_some(), has_statistics);
        assert_eq!(file.properties().distinct_keys, distinct_keys);
        scan(&mut RunCursor::new([file], CursorOptions::default()))
    });
    assert_eq!(found[0].len(), 200);
    assert!(found.iter().all(|other| *other == found[0]), "the versions differ in what they hold");
}

#[test]
fn every_flipped_bit_is_detected() {
    let bytes = golden_file();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let result = open(&damaged).and_then(|file| file.verify(|_| {}));
        let error = result.err().unwrap_or_else(|| panic!("byte {at} flipped, and nothing said"));
        assert!(error.file().is_some(), "{error}");
    }
}
