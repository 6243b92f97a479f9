//! Checks a file against everything known of it.
//!
//! One pass from front to back, in pieces of about 1 MiB:
//! 1. Every block: checksum, layout, every entry decodes, keys and trailers in order within and across blocks.
//! 2. Each block against its index row: entry count, sequence numbers, separators.
//! 3. Each key against the fences and the filter, which has its prefixes, too, where the file says so; range deletes
//!    against the fences.
//! 4. Of columnar files every value against the zone map of its column.
//! 5. The sums against the properties, and the whole file against its checksum in the manifest.

use mycelium_base::hash::{FileChecksum, hash_key};
use mycelium_base::{Error, Operation, Result, Trailer, compare_entries};

use crate::block::{BlockCursor, BlockFacts, BlockPosition, Step, payload_in_memory};
use crate::columnar::{CellCheck, ColumnPosition, WantedColumns};
use crate::compression::Decompressor;
use crate::index::{Index, IndexEntry};
use crate::reader::{SstFile, malformed_part};

const PIECE: u64 = 1 << 20;

/// What was verified.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VerifySummary {
    /// Bytes of the file.
    pub bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Entries.
    pub entries: u64,
    /// Range deletes.
    pub range_deletes: u64,
    /// XXH3-64 of the whole file.
    pub checksum: u64,
}

struct Verifier<'a, B> {
    file: &'a SstFile,
    index: Index<'a>,
    checksum: FileChecksum,
    decompressor: Decompressor,
    cursor: B,
    /// Of a columnar file.
    cells: Option<CellCheck>,
    last: Option<(Vec<u8>, Trailer)>,
    entries: u64,
    deletes: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
}

impl SstFile {
    /// Reads and checks the whole file, past the cache. `progress` is told the bytes read after each piece. The first
    /// fault found is returned, with its offset.
    pub fn verify(&self, progress: impl FnMut(u64)) -> Result<VerifySummary> {
        match self.is_columnar() {
            true => self.verify_with(ColumnPosition::over(self, &WantedColumns::All), progress),
            false => self.verify_with(BlockCursor::new(), progress),
        }
    }

    fn verify_with<B: BlockPosition>(&self, cursor: B, mut progress: impl FnMut(u64)) -> Result<VerifySummary> {
        let framed = self.load_index()?;
        let mut verifier = Verifier {
            file: self,
            index: self.index_of(&framed),
            checksum: FileChecksum::default(),
            decompressor: Decompressor::default(),
            cursor,
            cells: self.cell_check()?,
            last: None,
            entries: 0,
            deletes: 0,
            raw_key_bytes: 0,
            raw_value_bytes: 0,
        };
        verifier.verify_blocks(&mut progress)?;
        verifier.verify_rest(&mut progress)?;
        self.verify_summaries()?;
        verifier.verify_sums()
    }

    #[cold]
    fn fault(&self, what: &str, offset: u64) -> Error {
        Error::corruption(what).at(offset).in_file(&self.path)
    }
}

impl<B: BlockPosition> Verifier<'_, B> {
    fn verify_blocks(&mut self, progress: &mut impl FnMut(u64)) -> Result<()> {
        let n = self.index.block_count();
        let mut buffer = Vec::new();
        let mut i = 0;
        while i < n {
            let start = self.index.offset(i);
            let mut last = i;
            while last + 1 < n && self.index.offset(last + 2) - start <= PIECE {
                last += 1;
            }
            let end = self.index.offset(last + 1);
            let too_long = |_| self.file.fault("block too long", start);
            buffer.resize(usize::try_from(end - start).map_err(too_long)?, 0);
            self.file.file.read_at(start, &mut buffer).map_err(|e| e.in_file(&self.file.path))?;
            self.checksum.update(&buffer);
            for block in i..=last {
                let entry = self.index.entry(block);
                let from = (entry.offset - start) as usize;
                let framed = buffer.get(from..from + entry.len as usize).unwrap_or_default();
                self.verify_block(block, entry, framed)?;
            }
            progress(end);
            i = last + 1;
        }
        Ok(())
    }

    fn verify_block(&mut self, i: usize, entry: IndexEntry, framed: &[u8]) -> Result<()> {
        let (payload, kind) = self.file.check_block(framed, entry.offset)?;
        let inside = |e| malformed_part(&self.file.path, "data block", entry.offset, e);
        let bytes = self.file.decompressed(payload, kind, entry.offset, &mut self.decompressor)?;
        let end = payload_in_memory(&bytes).len();
        self.cursor.take_up(self.file, bytes.clone(), 0, end).map_err(inside)?;
        let (mut rows, mut min_sequence, mut max_sequence) = (0, u64::MAX, 0);
        let (mut unique_keys, mut all_puts) = (true, true);
        let mut value_bytes = 0;
        let mut more = self.cursor.seek_to_first().map_err(inside)?;
        // In order as they are, all keys are found through the index if the first and the last are.
        self.verify_separators(i, entry.offset)?;
        while more {
            let trailer = self.cursor.trailer();
            let sequence = trailer.sequence();
            (min_sequence, max_sequence) = (min_sequence.min(sequence), max_sequence.max(sequence));
            rows += 1;
            value_bytes += self.cursor.value().len();
            unique_keys &= !self.cursor.same_key();
            all_puts &= trailer.operation() == Operation::Put;
            self.verify_entry(entry.offset)?;
            more = match self.cursor.step() {
                Step::Moved => true,
                Step::End => false,
                Step::Malformed => return Err(inside(self.cursor.malformed_here())),
            };
        }
        let fault = |what: &str| self.file.fault(what, entry.offset);
        if self.last.as_ref().is_none_or(|(last, _)| *last > self.index.separator(i)) {
            return Err(fault("the index separator is before the block's last key"));
        }
        if self.cursor.facts() != Some(BlockFacts { rows, min_sequence, max_sequence, unique_keys, all_puts }) {
            return Err(fault("the block's header does not match its entries"));
        }
        let (min, max) = match self.file.options.sequence_override {
            Some(_) => (0, 0),
            None => (min_sequence, max_sequence),
        };
        if (rows, min, max) != (entry.entry_count, entry.min_sequence, entry.max_sequence) {
            return Err(fault("the index does not match the block"));
        }
        if self.cursor.value_area().is_some_and(|area| area != value_bytes) {
            return Err(fault("the block has bytes without use"));
        }
        self.raw_value_bytes += value_bytes as u64;
        let checked = self.cells.as_mut().map_or(Ok(()), |cells| self.file.verify_cells(cells, i, bytes, end));
        checked.map_err(inside)
    }

    /// Checks the first key of block `i` against the separator before.
    fn verify_separators(&self, i: usize, offset: u64) -> Result<()> {
        let Some(before) = i.checked_sub(1).map(|before| self.index.separator(before)) else { return Ok(()) };
        let straddles = self.last.as_ref().is_some_and(|(last, _)| *last == before);
        let first = self.cursor.key();
        if before.as_slice() < first || straddles && before == first {
            return Ok(());
        }
        Err(self.file.fault("the index separator is after the next block's first key", offset))
    }

    fn verify_entry(&mut self, offset: u64) -> Result<()> {
        let (key, trailer) = (self.cursor.key(), self.cursor.trailer());
        let fault = |what: &str| Err(self.file.fault(what, offset));
        if let Some((last_key, last_trailer)) = &self.last
            && compare_entries(last_key, *last_trailer, key, trailer).is_ge()
        {
            return fault("entries out of order");
        }
        let is_second = self.last.as_ref().is_some_and(|(last_key, _)| last_key.as_slice() == key);
        let is_plain = trailer.operation() == Operation::Put && !is_second;
        if is_second && self.file.properties().distinct_keys {
            return fault("a second entry of a key in a file that says it has none");
        }
        if !is_plain && self.cells.as_ref().is_some_and(CellCheck::says_plain) {
            return fault("an entry that the file's statistics deny");
        }
        if trailer.operation() == Operation::RangeDelete {
            return fault("a range delete among the entries");
        }
        let properties = self.file.properties();
        let above = key > properties.largest.as_slice() || key == properties.largest && properties.largest_exclusive;
        if key < properties.smallest.as_slice() || above {
            return fault("a key outside the fences");
        }
        if !self.cursor.same_key() && !self.file.may_contain(hash_key(key)) {
            return fault("the filter lacks a key");
        }
        if !self.cursor.same_key() && !self.file.has_prefixes_of(key) {
            return fault("the filter lacks a prefix of a key");
        }
        self.entries += 1;
        self.deletes += u64::from(trailer.operation() == Operation::Delete);
        self.raw_key_bytes += key.len() as u64;
        let (last_key, last_trailer) = self.last.get_or_insert_with(|| (Vec::new(), trailer));
        last_key.clear();
        last_key.extend_from_slice(key);
        *last_trailer = trailer;
        Ok(())
    }

    /// Reads what follows the data blocks, for the checksum; the parts were checked when the file was opened.
    fn verify_rest(&mut self, progress: &mut impl FnMut(u64)) -> Result<()> {
        let mut at = self.file.footer.data_end();
        let mut buffer = Vec::new();
        while at < self.file.size() {
            let len = (self.file.size() - at).min(PIECE);
            buffer.resize(len as usize, 0);
            self.file.file.read_at(at, &mut buffer).map_err(|e| e.in_file(&self.file.path))?;
            self.checksum.update(&buffer);
            at += len;
            progress(at);
        }
        Ok(())
    }

    fn verify_sums(self) -> Result<VerifySummary> {
        let (file, properties) = (self.file, self.file.properties());
        let fault = |what: &str| file.fault(what, file.footer.properties.offset);
        let found = [self.entries, self.deletes, self.raw_key_bytes, self.raw_value_bytes];
        let stated =
            [properties.entry_count, properties.delete_count, properties.raw_key_bytes, properties.raw_value_bytes];
        if found != stated {
            let (stated, found) = (format!("{stated:?}"), format!("{found:?}"));
            return Err(fault("the properties do not match the entries").expected(stated, found));
        }
        if let Some(column) = self.cells.as_ref().and_then(CellCheck::miscounted) {
            let what = format!("the statistics of column {column} miscount the entries that say nothing of it");
            return Err(file.fault(&what, properties.statistics.offset));
        }
        for fragment in file.range_deletes().fragments() {
            let inside =
                properties.smallest.as_slice() <= fragment.start() && fragment.end() <= properties.largest.as_slice();
            let in_range = |sequence: &u64| (file.min_sequence()..=file.max_sequence()).contains(sequence);
            if !inside || !fragment.sequences().iter().all(in_range) {
                return Err(fault("a range delete outside the fences"));
            }
        }
        let checksum = self.checksum.value();
        if let Some(expected) = file.options.expected_checksum.filter(|&expected| expected != checksum) {
            return Err(file
                .fault("whole-file checksum does not match", 0)
                .expected(format_args!("{expected:016x}"), format_args!("{checksum:016x}")));
        }
        Ok(VerifySummary {
            bytes: file.size(),
            blocks: self.index.block_count() as u64,
            entries: self.entries,
            range_deletes: properties.range_delete_count,
            checksum,
        })
    }
}
