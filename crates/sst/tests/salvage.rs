//! What is left of a damaged file: entries that were written, in order, and the truth about all others.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use mycelium_base::{Operation, RangeDelete, Trailer};
use mycelium_cache::BlockCache;
use mycelium_sst::{
    Compression, CursorOptions, FOOTER_LEN, FileStatement, Footer, LostKeys, OpenOptions, Properties, Remains, Remnant,
    SstSummary, SstWriter, SstWriterOptions,
};

struct File {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    deletes: Vec<RangeDelete>,
    summary: SstSummary,
    footer: Footer,
}

/// Versions of one key lie in two blocks here and there.
fn small_file(compression: Compression, deletes: Vec<RangeDelete>) -> File {
    let mut entries: Vec<Entry> = Vec::new();
    for i in 0..90_u64 {
        let value = format!("value value {i}");
        entries.push(put(format!("key{:03}", i / 3).as_bytes(), 10 + i * 7 % 90, value.as_bytes()));
    }
    entries.push((b"zed".to_vec(), Trailer::new(5, Operation::Delete), vec![]));
    sort(&mut entries);
    let options = SstWriterOptions { block_size: 200, restart_interval: 4, compression, ..writer_options() };
    let (bytes, summary) = write(&entries, &deletes, options);
    let footer_at = bytes.len() - FOOTER_LEN;
    let footer = Footer::parse(&bytes[footer_at..], FILE_NUMBER, footer_at as u64).unwrap();
    File { bytes, entries, deletes, summary, footer }
}

/// What the manifest says of it.
fn stated(summary: &SstSummary) -> Properties {
    Properties {
        entry_count: summary.entry_count,
        delete_count: summary.delete_count,
        range_delete_count: summary.range_delete_count,
        min_sequence: summary.min_sequence,
        max_sequence: summary.max_sequence,
        smallest: summary.smallest.clone(),
        largest: summary.largest.clone(),
        largest_exclusive: summary.largest_exclusive,
        ..Properties::default()
    }
}

impl File {
    fn remains(&self, bytes: Vec<u8>) -> mycelium_base::Result<Remains> {
        let (cache, options) = (Arc::new(BlockCache::new(8 << 20)), OpenOptions::default());
        Remains::open(Arc::new(Bytes(bytes)), Path::new(PATH), FILE_NUMBER, cache, options, stated(&self.summary))
    }

    /// What is read of these bytes; checks that every entry is either read or told as lost.
    fn read(&self, bytes: Vec<u8>, context: &str) -> (Vec<Entry>, Vec<LostKeys>, Option<Vec<RangeDelete>>) {
        let remains = self.remains(bytes).unwrap_or_else(|e| panic!("{context}: {e}"));
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        remains
            .visit(&mut |remnant| {
                match remnant {
                    Remnant::Entry { key, trailer, value } => found.push((key.to_vec(), trailer, value.to_vec())),
                    Remnant::Lost(keys) => lost.push(keys),
                }
                Ok(())
            })
            .unwrap();
        let mut left = found.iter().peekable();
        for entry in &self.entries {
            if left.peek() == Some(&entry) {
                left.next();
                continue;
            }
            let (key, sequence) = (&entry.0, entry.1.sequence());
            let is_told =
                |lost: &LostKeys| lost.smallest <= *key && *key <= lost.largest && sequence <= lost.max_sequence;
            assert!(lost.iter().any(is_told), "{context}: {entry:?} is neither there nor told as lost: {lost:?}");
        }
        assert_eq!(left.next(), None, "{context}: an entry that was not written, or not there");
        let told: u64 = lost.iter().map(|lost| lost.entries).sum();
        assert_eq!(found.len() as u64 + told, self.entries.len() as u64, "{context}: {lost:?}");
        for lost in &lost {
            assert!(lost.error.is_corruption() && lost.error.offset().is_some(), "{context}: {}", lost.error);
            assert_eq!(lost.error.file(), Some(Path::new(PATH)), "{context}: {}", lost.error);
        }
        (found, lost, remains.range_deletes().map(<[_]>::to_vec))
    }
}

#[test]
fn every_flipped_byte_costs_no_more_than_its_block() {
    for compression in [Compression::None, Compression::Lz4] {
        let deletes = vec![RangeDelete { start: b"a".to_vec(), end: b"c".to_vec(), sequence: 9 }];
        let file = small_file(compression, deletes);
        assert!(file.summary.block_count > 5);
        for at in 0..file.bytes.len() {
            let mut damaged = file.bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let (found, lost, deletes) = file.read(damaged, &format!("{compression:?}, byte {at}"));
            let is_data = (at as u64) < file.footer.data_end();
            assert_eq!(lost.len(), usize::from(is_data), "byte {at}");
            if is_data {
                assert!(found.len() + 20 > file.entries.len(), "byte {at}: {lost:?}");
            }
            // Where they lie is known to their own part, or to the footer.
            let part = file.footer.range_deletes;
            let is_theirs = (part.offset..part.offset + part.len).contains(&(at as u64));
            let is_footer = at >= file.bytes.len() - FOOTER_LEN;
            let expected = (!is_theirs && !is_footer).then(|| file.deletes.clone());
            assert_eq!(deletes, expected, "byte {at}");
        }
    }
}

#[test]
fn a_file_that_is_cut_off_gives_what_comes_before() {
    let file = small_file(Compression::None, Vec::new());
    for len in (FOOTER_LEN..file.bytes.len()).step_by(7) {
        let (found, lost, deletes) = file.read(file.bytes[..len].to_vec(), &format!("{len} bytes"));
        assert_eq!(found, file.entries[..found.len()], "{len} bytes");
        assert_eq!(lost.is_empty(), len as u64 >= file.footer.data_end(), "{len} bytes");
        // The manifest says that there are none.
        assert_eq!(deletes, Some(Vec::new()));
    }
    assert!(file.remains(file.bytes[..FOOTER_LEN - 1].to_vec()).is_err());
}

#[test]
fn without_an_index_what_lies_behind_a_damaged_block_is_lost() {
    let file = small_file(Compression::None, Vec::new());
    let mut damaged = file.bytes.clone();
    let (index, middle) = (file.footer.index.offset as usize, file.footer.data_end() as usize / 2);
    damaged[index + 20] ^= 1;
    assert_eq!(file.read(damaged.clone(), "index").0, file.entries);
    damaged[middle] ^= 1;
    let (found, lost, _) = file.read(damaged, "index and a block");
    assert!(found.len() > 10 && lost.len() == 1, "{lost:?}");
    assert_eq!((found.as_slice(), lost[0].largest.as_slice()), (&file.entries[..found.len()], &b"zed"[..]));
}

/// It is in the properties, which whoever opens the file reads past it.
#[test]
fn what_a_file_says_of_where_it_belongs_is_read_back_or_refused() {
    let origin = b"of table 3, at level 2".to_vec();
    let file = MemoryFile::default();
    let mut writer = SstWriter::new(Box::new(file.clone()), writer_options()).unwrap().with_origin(origin.clone());
    let entries = vec![put(b"a", 3, b"value"), put(b"b", 4, b"value")];
    for (key, trailer, value) in &entries {
        writer.add(key, *trailer, value).unwrap();
    }
    writer.finish().unwrap();
    let bytes = file.bytes();
    let read = |bytes: Vec<u8>| FileStatement::read(Arc::new(Bytes(bytes)), Path::new(PATH), FILE_NUMBER);
    let statement = read(bytes.clone()).unwrap();
    assert_eq!((statement.size, statement.origin), (bytes.len() as u64, Some(origin)));
    assert_eq!((statement.properties.entry_count, statement.properties.max_sequence), (2, 4));
    let sst = open(bytes.clone()).unwrap();
    assert_eq!(*sst.properties(), statement.properties);
    assert_eq!(scan(&mut sst.cursor(CursorOptions::default())).unwrap(), entries);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        match read(damaged) {
            Ok(found) => assert_eq!(found.properties, statement.properties, "byte {at}"),
            Err(error) => assert!(error.is_corruption() && error.offset().is_some(), "byte {at}: {error}"),
        }
        assert!(read(bytes[..at].to_vec()).is_err(), "{at} bytes");
    }
    let (without, _) = write(&entries, &[], writer_options());
    assert_eq!(read(without).unwrap().origin, None);
}
