//! The format does not drift: a committed file reads back, and the writer writes it again byte for byte.
//!
//! `UPDATE_GOLDEN=1 cargo test -p mycelium-sst --test golden` writes the file if it is not there. A change of the
//! format needs a new format version and a file beside this one; another choice within the format (where blocks end,
//! say) only a new file.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::*;
use mycelium_base::{Group, Operation, RangeDelete, RangeDeleteSet, Trailer};
use mycelium_sst::{Compression, CursorOptions, SstWriter, SstWriterOptions};

const GOLDEN: &str = "tests/golden/format-1.sst";
const GOLDEN_GROUP: &str = "tests/golden/format-1-group.sst";
const GOLDEN_MARKS: &str = "tests/golden/format-1-marks.sst";

/// The golden file, which is what the writer wrote.
fn golden(path: &str, written: &[u8]) -> Vec<u8> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !std::path::Path::new(path).exists() {
        std::fs::write(path, written).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert!(golden == written, "the writer writes another file than the golden one");
    golden
}

fn entries() -> Vec<Entry> {
    let mut entries = vec![put(b"", 1, b"empty key"), put(b"zz", 70_000, &[b'z'; 700])];
    for i in 0..40_u64 {
        let operation = [Operation::Put, Operation::Patch, Operation::Merge, Operation::Delete][i as usize % 4];
        let value = if operation == Operation::Delete { vec![] } else { format!("value {i} ").repeat(4).into_bytes() };
        entries.push((format!("row/{:04}", i / 3).into_bytes(), Trailer::new(100 + i, operation), value));
    }
    entries.extend((0..30_u32).map(|i| put(&[b"s/", &i.to_be_bytes()[..]].concat(), 5, b"uniform")));
    sort(&mut entries);
    entries
}

fn deletes() -> Vec<RangeDelete> {
    let range = |start: &[u8], end: &[u8], sequence| RangeDelete { start: start.to_vec(), end: end.to_vec(), sequence };
    vec![range(b"t", b"zzz", 400), range(b"row/0003", b"row/0005", 300)]
}

#[test]
fn the_golden_file_is_read_and_written() {
    // LZ4's output may change with its version without harm; only what we lay out ourselves is compared bytewise.
    let options = SstWriterOptions { block_size: 512, restart_interval: 4, ..writer_options() };
    let (bytes, summary) = write(&entries(), &deletes(), options);
    let file = open(golden(GOLDEN, &bytes)).unwrap();
    assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), entries());
    assert_eq!(**file.range_deletes(), RangeDeleteSet::new(&deletes()));
    assert_eq!(file.properties().largest, b"zzz");
    assert_eq!(file.verify(|_| {}).unwrap().checksum, summary.checksum);
}

/// The same in a column group: its properties name it.
#[test]
fn the_golden_file_of_a_column_group_is_read_and_written() {
    let options = SstWriterOptions { block_size: 512, restart_interval: 4, ..writer_options() };
    let group = Some(Arc::new("0-3,7/packed".parse::<Group>().unwrap()));
    let file = MemoryFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), options).unwrap().with_group(group.clone());
    for (key, trailer, value) in entries() {
        writer.add(&key, trailer, &value).unwrap();
    }
    assert_eq!(writer.finish().unwrap().group, group);
    let file = open(golden(GOLDEN_GROUP, &file.bytes())).unwrap();
    assert_eq!(file.properties().group, group);
    assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), entries());
}

/// The same where the writer knows what its entries say something of: the properties have it.
#[test]
fn the_golden_file_with_marks_is_read_and_written() {
    let marks = Some(1 << 63 | 0b1010);
    let options = SstWriterOptions { block_size: 512, restart_interval: 4, marks, ..writer_options() };
    let (bytes, _) = write(&entries(), &deletes(), options);
    let file = open(golden(GOLDEN_MARKS, &bytes)).unwrap();
    assert_eq!(file.properties().marks, marks);
    assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), entries());
    let unmarked = std::fs::read(GOLDEN).unwrap();
    assert_eq!(open(unmarked).unwrap().properties().marks, None);
}

#[test]
fn compressed_files_read_back_equal() {
    for compression in [Compression::Lz4, Compression::Zstd(3)] {
        let options = SstWriterOptions { block_size: 2048, compression, ..writer_options() };
        let (bytes, summary) = write(&entries(), &deletes(), options);
        assert!(summary.data_bytes < summary.raw_key_bytes + summary.raw_value_bytes);
        let file = open(bytes).unwrap();
        assert_eq!(scan(&mut file.cursor(CursorOptions::default())).unwrap(), entries());
    }
}
