//! No fault of the bytes gives a wrong answer or a panic: it is reported with file and offset.

#![allow(clippy::unwrap_used, clippy::let_underscore_must_use)]

mod common;

use std::path::Path;

use common::*;
use mycelium_base::{Error, ErrorKind, MAX_SEQUENCE_NUMBER, Operation, RangeDelete, Result, Trailer};
use mycelium_cache::SpareBlocks;
use mycelium_sst::{
    BlockBuilder, BlockCursor, BlockShape, Compression, CursorOptions, Decompressor, FOOTER_LEN, FORMAT_VERSION,
    FilterShape, Footer, Index, Properties, SstWriterOptions, block_seed, open_block, parse_range_deletes, seal_block,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn small_file(compression: Compression) -> (Vec<u8>, Vec<Entry>) {
    let mut entries: Vec<Entry> = Vec::new();
    for i in 0..60_u64 {
        entries.push(put(format!("key{:03}", i / 2).as_bytes(), 90 - i, format!("value value {i}").as_bytes()));
    }
    entries.push((b"zed".to_vec(), Trailer::new(5, Operation::Delete), vec![]));
    sort(&mut entries);
    let deletes = [RangeDelete { start: b"a".to_vec(), end: b"c".to_vec(), sequence: 9 }];
    let options = SstWriterOptions { block_size: 256, restart_interval: 4, compression, ..writer_options() };
    (write(&entries, &deletes, options).0, entries)
}

/// Everything there is to read, by every way.
fn read_all(bytes: &[u8], entries: &[Entry]) -> Result<()> {
    let file = open(bytes.to_vec())?;
    let found = scan(&mut file.cursor(CursorOptions { read_ahead: 1000, ..CursorOptions::default() }))?;
    assert!(found == entries, "a scan gave a wrong answer");
    let backward = scan_backward(&mut file.cursor(CursorOptions { fill_cache: false, ..CursorOptions::default() }))?;
    assert!(backward == entries, "a scan gave a wrong answer");
    for (key, trailer, value) in entries {
        let found = get_all(&file, key, trailer.sequence())?;
        assert!(found.first() == Some(&(*trailer, value.clone())), "a get gave a wrong answer");
    }
    assert_eq!(file.range_deletes().covering(b"b", MAX_SEQUENCE_NUMBER), Some(9));
    Ok(())
}

fn assert_named(error: &Error) {
    assert!(error.is_corruption(), "{error}");
    assert_eq!(error.file(), Some(Path::new(PATH)), "{error}");
    assert!(error.offset().is_some(), "{error}");
}

#[test]
fn every_flipped_bit_is_detected() {
    for compression in [Compression::None, Compression::Lz4] {
        let (bytes, entries) = small_file(compression);
        read_all(&bytes, &entries).unwrap();
        let version = bytes.len() - FOOTER_LEN + 72;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = read_all(&flipped, &entries).expect_err("a flipped bit went unnoticed");
            if (version..version + 4).contains(&(bit / 8)) && error.kind() == ErrorKind::Unsupported {
                continue;
            }
            assert_named(&error);
            let in_footer = bit / 8 >= bytes.len() - FOOTER_LEN;
            assert!(in_footer || error.offset().unwrap() <= bit as u64 / 8, "bit {bit}: {error}");
            assert!(open(flipped).is_err_and(|e| e.is_corruption()) || bit as u64 / 8 < data_end(&bytes));
        }
    }
}

fn footer(bytes: &[u8]) -> Footer {
    let start = bytes.len() - FOOTER_LEN;
    Footer::parse(&bytes[start..], FILE_NUMBER, start as u64).unwrap()
}

fn data_end(bytes: &[u8]) -> u64 {
    footer(bytes).data_end()
}

#[test]
fn every_truncation_and_extension_is_detected() {
    let (bytes, entries) = small_file(Compression::None);
    for len in 0..bytes.len() {
        assert_named(&read_all(&bytes[..len], &entries).unwrap_err());
    }
    assert_named(&read_all(&[&bytes[..], &[0]].concat(), &entries).unwrap_err());
}

#[test]
fn swapped_blocks_are_detected() {
    let (bytes, entries) = small_file(Compression::None);
    let footer = footer(&bytes);
    let index = &bytes[footer.index.offset as usize..][..footer.index.len as usize];
    let (payload, _) = open_block(index, FILE_NUMBER, footer.index.offset).unwrap();
    let index = Index::parse(payload, footer.data_end()).unwrap();
    let mut swaps = 0;
    for i in 0..index.block_count() {
        for j in 0..i {
            let (a, b) = (index.entry(i), index.entry(j));
            if a.len != b.len {
                continue;
            }
            let mut swapped = bytes.clone();
            let (a, b, len) = (a.offset as usize, b.offset as usize, a.len as usize);
            swapped[a..a + len].copy_from_slice(&bytes[b..b + len]);
            swapped[b..b + len].copy_from_slice(&bytes[a..a + len]);
            assert_named(&read_all(&swapped, &entries).unwrap_err());
            swaps += 1;
        }
    }
    assert!(swaps > 0, "no two blocks of equal length");
}

#[test]
fn a_file_or_block_of_another_number_is_detected() {
    let (bytes, entries) = small_file(Compression::None);
    let other = SstWriterOptions { block_size: 256, restart_interval: 4, file_number: 41, ..writer_options() };
    let deletes = [RangeDelete { start: b"a".to_vec(), end: b"c".to_vec(), sequence: 9 }];
    let (other, _) = write(&entries, &deletes, other);
    assert_eq!(other.len(), bytes.len());
    let error = read_all(&other, &entries).unwrap_err();
    assert_named(&error);
    assert!(error.to_string().contains("another number"), "{error}");
    let mut mixed = bytes.clone();
    let end = data_end(&bytes) as usize;
    mixed[..end].copy_from_slice(&other[..end]);
    assert_named(&read_all(&mixed, &entries).unwrap_err());
}

#[test]
fn the_whole_file_checksum_is_checked() {
    let (bytes, _) = small_file(Compression::None);
    let options = mycelium_sst::OpenOptions { expected_checksum: Some(1), ..Default::default() };
    assert_named(&open_with(bytes.clone(), 1 << 20, options).unwrap().verify(|_| {}).unwrap_err());
    let options = mycelium_sst::OpenOptions { expected_size: Some(1), ..Default::default() };
    assert_named(&open_with(bytes, 1 << 20, options).unwrap_err());
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let (mut bytes, _) = small_file(Compression::None);
    let version = bytes.len() - FOOTER_LEN + 72;
    bytes[version] = FORMAT_VERSION as u8 + 1;
    let error = open(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.file(), Some(Path::new(PATH)));
}

/// Blocks with a right checksum over wrong bytes, which no disk produces but a bug might.
#[test]
fn resealed_garbage_never_panics() {
    let mut random = SmallRng::seed_from_u64(7);
    let (bytes, _) = small_file(Compression::None);
    let footer = footer(&bytes);
    let index_block = &bytes[footer.index.offset as usize..][..footer.index.len as usize];
    let (index, _) = open_block(index_block, FILE_NUMBER, footer.index.offset).unwrap();
    let first = Index::parse(index, footer.data_end()).unwrap().entry(0);
    let parts = [(first.offset, first.len), (footer.index.offset, footer.index.len)];
    let parts = parts.into_iter().chain([
        (footer.properties.offset, footer.properties.len),
        (footer.range_deletes.offset, footer.range_deletes.len),
        (footer.filter.offset, footer.filter.len),
    ]);
    for (offset, len) in parts {
        for _ in 0..4000 {
            let mut payload = bytes[offset as usize..(offset + len) as usize - 9].to_vec();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..payload.len());
                payload[at] = [0, 1, 0x7f, 0x80, 0xff, random.random()][random.random_range(0..6)];
            }
            let kind = if random.random_range(0..20) == 0 { random.random_range(0..4) } else { 0 };
            let mut sealed = bytes[..offset as usize].to_vec();
            sealed.extend_from_slice(&payload);
            seal_block(&mut sealed, offset as usize, kind, FILE_NUMBER, offset);
            sealed.extend_from_slice(&bytes[(offset + len) as usize..]);
            let Ok(file) = open(sealed) else { continue };
            let mut cursor = file.cursor(CursorOptions { read_ahead: 4096, ..CursorOptions::default() });
            for _ in 0..5 {
                let _ = drain(&mut cursor, &mut random);
                let _ = get_all(
                    &file,
                    &payload[..random.random_range(0..payload.len().min(8))],
                    random.random_range(0..100),
                );
                let _ = get_all(&file, b"key005", random.random_range(0..100));
            }
            if let Err(error) = file.verify(|_| {}) {
                assert_named(&error);
            }
        }
    }
}

/// Readers take a file at its word that it has one entry of each key: verification does not.
#[test]
fn a_file_that_denies_a_second_entry_of_a_key_is_detected() {
    let (bytes, _) = small_file(Compression::None);
    let part = footer(&bytes).properties;
    let (from, to) = (part.offset as usize, (part.offset + part.len) as usize);
    let (payload, kind) = open_block(&bytes[from..to], FILE_NUMBER, part.offset).unwrap();
    let honest = Properties::parse(payload).unwrap();
    assert!(!honest.distinct_keys && honest.compression.len() > 3);
    // As long as before: what the tag takes is taken from a text that nobody reads.
    let compression = honest.compression[3..].to_owned();
    let denying = Properties { distinct_keys: true, compression, ..honest }.encode();
    assert_eq!(denying.len(), payload.len());
    let mut sealed = [&bytes[..from], &denying].concat();
    seal_block(&mut sealed, from, kind, FILE_NUMBER, part.offset);
    sealed.extend_from_slice(&bytes[to..]);
    let error = open(sealed).unwrap().verify(|_| {}).unwrap_err();
    assert_named(&error);
    assert!(error.to_string().contains("second entry"), "{error}");
}

fn drain<C: mycelium_base::Cursor>(cursor: &mut C, random: &mut SmallRng) -> Result<()> {
    match random.random_range(0..4) {
        0 => cursor.seek_to_first()?,
        1 => cursor.seek_to_last()?,
        2 => cursor.seek(b"key003", Trailer::seek_at(random.random_range(0..100)))?,
        _ => cursor.seek_before(b"key009", Trailer::NEWEST)?,
    }
    let forward = random.random_range(0..10);
    for _ in 0..200 {
        if !cursor.valid() {
            break;
        }
        std::hint::black_box((cursor.key().len(), cursor.trailer(), cursor.value().len()));
        if random.random_range(0..10) < forward { cursor.next()? } else { cursor.prev()? }
    }
    Ok(())
}

#[test]
fn decoders_take_any_bytes() {
    let mut random = SmallRng::seed_from_u64(8);
    let mut builder = BlockBuilder::new(4);
    for i in 0..20_u64 {
        builder.add(&i.to_be_bytes(), if i == 0 { 0 } else { 7 }, false, Trailer::new(i, Operation::Put), b"value");
    }
    let mut block = Vec::new();
    builder.finish(&mut block);
    let mut decompressor = Decompressor::default();
    for round in 0..20_000 {
        let mut bytes: Vec<u8> = (0..random.random_range(0..200)).map(|_| random.random()).collect();
        if round % 2 == 0 {
            bytes = block.clone();
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        let _ = Footer::parse(&bytes, 1, random.random());
        let _ = Properties::parse(&bytes);
        let _ = Index::parse(&bytes, 100);
        let _ = FilterShape::parse(&bytes);
        let _ = parse_range_deletes(&bytes);
        let _ = BlockShape::parse(&bytes, 0, bytes.len(), None);
        let _ = open_block(&bytes, 1, 2);
        for kind in 0..4 {
            let _ = decompressor.decompress(kind, &bytes, &SpareBlocks::default());
        }
        let mut cursor = BlockCursor::new();
        if cursor.load(bytes.clone().into(), 0, bytes.len(), None).is_ok() {
            let mut more = cursor.seek_to_first();
            while let Ok(true) = more {
                more = cursor.advance();
            }
            let mut more = cursor.seek_to_last();
            while let Ok(true) = more {
                more = cursor.prev();
            }
            let _ = cursor.seek(&bytes[..3], Trailer::seek_at(5));
        }
    }
}

#[test]
fn forged_lengths_do_not_allocate() {
    let mut decompressor = Decompressor::default();
    for kind in [1, 2] {
        let forged = [&(1_u32 << 30).to_le_bytes()[..], &[0; 20]].concat();
        assert!(decompressor.decompress(kind, &forged, &SpareBlocks::default()).unwrap_err().is_corruption());
        assert!(decompressor.decompress(kind, &[255; 30], &SpareBlocks::default()).unwrap_err().is_corruption());
    }
    let mut count = Vec::new();
    mycelium_base::coding::put_varint(&mut count, u64::MAX);
    assert!(parse_range_deletes(&count).is_err());
}

#[test]
fn seeds_differ_by_file_and_offset() {
    let mut seeds: Vec<u64> =
        (0..100).flat_map(|file| (0..100).map(move |block| block_seed(file, block * 4096))).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 10_000);
}
