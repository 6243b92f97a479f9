//! What is read of the parts of a columnar file: those that are asked for, and each but once or twice.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mycelium_base::{ColumnSet, Cursor, Error, Group, GroupFormat, Operation, Result, Trailer};
use mycelium_cache::BlockCache;
use mycelium_encoding::page::Test;
use mycelium_encoding::{Datum, DatumRef, PackedLayout, Schema, key};
use mycelium_sst::{
    BlockHandle, CursorOptions, Directory, FOOTER_LEN, Footer, OpenOptions, Properties, RunCursor, SstFile, SstWriter,
    SstWriterOptions, WantedColumns, open_block,
};
use mycelium_vfs::{Disk, MemoryDisk, ReadableFile};

const NUMBER: u64 = 8;
const PATH: &str = "000008.sst";

/// A file in memory that counts the bytes that are read of it.
#[derive(Debug)]
struct Counted {
    bytes: Vec<u8>,
    read: AtomicU64,
}

impl ReadableFile for Counted {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(bytes.ok_or_else(|| Error::corruption("cut short").at(offset))?);
        self.read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn will_need(&self, _offset: u64, _len: u64) {}
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::parse("id int64 not null, one utf8, other utf8, primary key (id)").unwrap())
}

fn columns() -> ColumnSet {
    [1, 2].into_iter().collect()
}

/// Rows with two texts, each of which comes three times, so that both columns have dictionaries of about 100 KiB. The
/// rows have the sequence number 0.
fn file_of_texts() -> Vec<u8> {
    let layout = PackedLayout::of(schema(), &columns());
    let disk = MemoryDisk::new();
    let group = Arc::new(Group::new(columns(), GroupFormat::Columnar));
    let options = SstWriterOptions { file_number: NUMBER, ..SstWriterOptions::default() };
    let writer = SstWriter::new(disk.create(Path::new(PATH)).unwrap(), options).unwrap();
    let mut writer = writer.with_columns(group, schema());
    for id in 0..3000_i64 {
        let (one, other) = (format!("one {:090}", id % 1000), format!("other {:090}", id % 1000));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        key::encode_key(&schema(), &[DatumRef::Int64(id)], &mut key).unwrap();
        let row = [DatumRef::Int64(id), DatumRef::Utf8(&one), DatumRef::Utf8(&other)];
        layout.encode_row(&row, &mut value).unwrap();
        writer.add(&key, Trailer::new(0, Operation::Put), &value).unwrap();
    }
    writer.finish().unwrap();
    disk.read_bytes(Path::new(PATH)).unwrap()
}

fn open(bytes: Vec<u8>, cache_bytes: u64, options: OpenOptions) -> (Arc<SstFile>, Arc<Counted>) {
    let file = Arc::new(Counted { bytes, read: AtomicU64::new(0) });
    let cache = Arc::new(BlockCache::new(cache_bytes));
    let sst = SstFile::open(file.clone(), Path::new(PATH), NUMBER, cache, options).unwrap();
    (sst, file)
}

/// With a cache that has no room for dictionaries.
fn open_without_room(bytes: Vec<u8>) -> (Arc<SstFile>, Arc<Counted>) {
    let (sst, file) = open(bytes, 1 << 10, OpenOptions::default());
    assert_eq!(sst.resident_bytes(), 0);
    (sst, file)
}

/// They were read again for every block where the cache had no room for them.
#[test]
fn dictionaries_and_zone_maps_are_not_read_again_for_every_block_that_is_verified() {
    let bytes = file_of_texts();
    let size = bytes.len() as u64;
    let (sst, file) = open_without_room(bytes);
    assert!(sst.block_count() > 100, "{} blocks", sst.block_count());
    assert_eq!(sst.verify(|_| {}).unwrap().entries, 3000);
    let read = file.read.load(Ordering::Relaxed);
    assert!(read < 6 * size, "{read} bytes of a file of {size}");
}

/// A test of one column read the dictionaries of all, and failed for the damage of another's.
#[test]
fn a_test_asks_for_the_dictionary_of_its_column_alone() {
    let mut bytes = file_of_texts();
    let at = bytes.len() - FOOTER_LEN;
    let footer = Footer::parse(&bytes[at..], NUMBER, at as u64).unwrap();
    let payload = |part: BlockHandle| {
        let framed = &bytes[part.offset as usize..(part.offset + part.len) as usize];
        open_block(framed, NUMBER, part.offset).unwrap().0.to_vec()
    };
    let properties = Properties::parse(&payload(footer.properties)).unwrap();
    let directory = Directory::parse(&payload(properties.columns), &columns()).unwrap();
    let damaged = directory.parts[1].coding;
    assert!(damaged.len > 90_000 && directory.parts[0].coding.len > 90_000);
    bytes[damaged.offset as usize + 50] ^= 1;
    let (sst, _) = open_without_room(bytes);
    let test = Test::Equal(Datum::Utf8("no text of the file".into()));
    sst.page_test(1, &test).unwrap();
    assert!(sst.page_test(2, &test).unwrap_err().is_corruption());
}

/// Its blocks said 0: without the snapshot filter a scan of blocks would have seen rows at snapshots before them.
#[test]
fn blocks_have_the_number_that_their_file_takes() {
    let options = OpenOptions { sequence_override: Some(77), ..OpenOptions::default() };
    let (sst, _) = open(file_of_texts(), 8 << 20, options);
    sst.verify(|_| {}).unwrap();
    let wanted = WantedColumns::Blocks(Arc::new(PackedLayout::of(schema(), &columns())));
    let run = RunCursor::over_part(Arc::new([sst].into()), 0..1, CursorOptions::default(), || wanted);
    let RunCursor::Columns(mut cursor) = run else { panic!("the file is columnar") };
    cursor.seek_to_first().unwrap();
    let (block, ..) = cursor.block().unwrap();
    assert!(block.facts().is_plain(77) && !block.facts().is_plain(76));
    assert_eq!(cursor.trailer().sequence(), 77);
}
