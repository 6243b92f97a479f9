//! Where the keys of one block are among those of another, as a scan needs it that lays a younger block over an older
//! one (DESIGN §5). Both are immutable, and so is this: it is found out once, and cached. A scan that comes again then
//! neither unpacks keys nor compares them (as with the positional deltas of column stores).
//!
//! ```text
//! u64      number of the older block's file
//! u32      the older block's number in it
//! u32      the younger block's number in its own file
//! u32      the first row of the younger block whose key is not before all keys of the older one
//! u8       whether each of the following is a patch or whole row of a key that is there
//! u8 x 3   0
//! u32 ...  of each row of the younger block, from that one on to the last one whose key is not behind all keys of the
//!          older block: bits 0 to 27 the first row of the older block whose key is not before it, bit 28 whether it
//!          has the same key, from bit 29 on the operation
//! ```
//!
//! Integers are little-endian. It lies in the block cache as what was derived from the younger block's file; the first
//! sixteen bytes are its identity.

use std::sync::Arc;

use mycelium_base::{Error, Operation, Result};

use super::block::ColumnBlock;
use crate::reader::SstFile;

const HEADER_LEN: usize = 24;
const ROW_LEN: usize = size_of::<u32>();

const PLACE_BITS: u32 = 28;
const IS_THERE: u32 = 1 << PLACE_BITS;
const OPERATION_SHIFT: u32 = PLACE_BITS + 1;

/// A block, its file, and its number in it.
type BlockOfFile<'a> = (&'a ColumnBlock, &'a SstFile, usize);

/// Where the keys of a younger block are among those of an older one.
#[derive(Clone, Debug)]
pub struct Placement(Arc<[u8]>);

/// A row of the younger block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacedRow {
    /// The first row of the older block whose key is not before its key.
    pub place: usize,
    /// Whether that one has the same key.
    pub is_there: bool,
    /// What it does.
    pub operation: Operation,
}

impl Placement {
    /// That of these blocks, from the cache or found out. Keys are unique in both.
    ///
    /// O(1) where it is cached, else O(rows).
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where a block is malformed.
    pub fn of(older: BlockOfFile<'_>, younger: BlockOfFile<'_>) -> Result<Self> {
        let (identity, file) = (identity(older, younger), younger.1);
        if let Some(cached) = file.derived(&identity, &identity) {
            return Ok(Self(cached));
        }
        let found: Arc<[u8]> = find(older, younger, &identity)?.into();
        file.keep_derived(&identity, found.clone());
        Ok(Self(found))
    }

    /// The first row of the younger block that is not before all of the older one.
    pub fn first(&self) -> usize {
        u32_at(&self.0, 16) as usize
    }

    /// Whether all rows from there on are patches or whole rows of keys that are there.
    pub fn are_all_laid(&self) -> bool {
        self.0[20] != 0
    }

    /// The rows from there on that are not behind all of the older block.
    pub fn rows(&self) -> impl Iterator<Item = PlacedRow> {
        self.words().iter().map(|&word| {
            let word = u32::from_le_bytes(word);
            PlacedRow {
                place: place_of(word) as usize,
                is_there: word & IS_THERE != 0,
                operation: Operation::from_u8((word >> OPERATION_SHIFT) as u8).unwrap_or(Operation::RangeDelete),
            }
        })
    }

    /// Of those from the `skipped`th on, as far as their places are before `end`, appends the places, less `less`; how
    /// many they are.
    pub fn append_places(&self, skipped: usize, end: usize, less: usize, places: &mut Vec<u32>) -> usize {
        let words = self.words().get(skipped..).unwrap_or_default();
        let is_before = |word: &[u8; ROW_LEN]| (place_of(u32::from_le_bytes(*word)) as usize) < end;
        let words = &words[..words.partition_point(is_before)];
        places.extend(words.iter().map(|&word| place_of(u32::from_le_bytes(word)).saturating_sub(less as u32)));
        words.len()
    }

    fn words(&self) -> &[[u8; ROW_LEN]] {
        self.0[HEADER_LEN..].as_chunks().0
    }
}

#[inline]
fn place_of(word: u32) -> u32 {
    word & (IS_THERE - 1)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |&chunk| u32::from_le_bytes(chunk))
}

/// The first sixteen bytes.
fn identity((_, older_file, older): BlockOfFile<'_>, (_, _, younger): BlockOfFile<'_>) -> [u8; 16] {
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&older_file.number().to_le_bytes());
    identity[8..12].copy_from_slice(&(older as u32).to_le_bytes());
    identity[12..].copy_from_slice(&(younger as u32).to_le_bytes());
    identity
}

fn find(
    (older, older_file, _): BlockOfFile<'_>,
    (younger, file, _): BlockOfFile<'_>,
    identity: &[u8; 16],
) -> Result<Vec<u8>> {
    let in_older = |error: Error| error.in_file(older_file.path());
    let in_younger = |error: Error| error.in_file(file.path());
    let rows = older.rows();
    if rows as u32 >= IS_THERE || rows == 0 {
        return Err(Error::invalid("a block of another number of rows").expected("1 to 2^28 - 1", rows));
    }
    let mut key = Vec::new();
    older.write_key(0, &mut key).map_err(in_older)?;
    let first = younger.seek(&key).map_err(in_younger)?;
    older.write_key(rows - 1, &mut key).map_err(in_older)?;
    let (behind, is_there) = younger.find(&key).map_err(in_younger)?;
    let within = first..(behind + usize::from(is_there)).max(first);
    let mut operations = Vec::with_capacity(within.len());
    younger.append_operations(within.clone(), &mut Vec::new(), &mut operations).map_err(in_younger)?;
    let (mut bytes, mut are_all_laid) = (Vec::with_capacity(HEADER_LEN + ROW_LEN * within.len()), true);
    bytes.extend_from_slice(identity);
    bytes.extend_from_slice(&(first as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; HEADER_LEN - 20]);
    let placed = older.seek_rows((younger, within.clone()), |row, place, is_there| {
        let operation = operations[row - first];
        are_all_laid &= is_there && matches!(operation, Operation::Put | Operation::Patch);
        let word = place as u32 | if is_there { IS_THERE } else { 0 } | u32::from(operation as u8) << OPERATION_SHIFT;
        bytes.extend_from_slice(&word.to_le_bytes());
    });
    placed.map_err(in_older)?;
    bytes[20] = u8::from(are_all_laid);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use mycelium_base::{ColumnSet, Cursor, Group, GroupFormat, Trailer};
    use mycelium_cache::BlockCache;
    use mycelium_encoding::{ColumnState, DatumRef, PackedLayout, Schema};
    use mycelium_vfs::{AccessPattern, Disk, MemoryDisk};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::cursor::CursorOptions;
    use crate::reader::OpenOptions;
    use crate::run_cursor::RunCursor;
    use crate::writer::{SstWriter, SstWriterOptions};

    type Entry = (Vec<u8>, Operation);

    /// Writes a columnar file of these entries.
    fn write(disk: &MemoryDisk, number: u64, entries: &[Entry]) -> Vec<u8> {
        let schema = Arc::new(Schema::parse("id binary not null, value int32, primary key (id)").unwrap());
        let group = Arc::new(Group::new(ColumnSet::from_iter([1]), GroupFormat::Columnar));
        let layout = PackedLayout::of(schema.clone(), &group.columns);
        let name = format!("{number:06}.sst");
        let options = SstWriterOptions { file_number: number, block_size: 600, ..SstWriterOptions::default() };
        let writer = SstWriter::new(disk.create(Path::new(&name)).unwrap(), options).unwrap();
        let mut writer = writer.with_columns(group, schema);
        for (key, operation) in entries {
            let mut value = Vec::new();
            match operation {
                Operation::Put => layout.encode_row(&[DatumRef::Null, DatumRef::Int32(7)], &mut value).unwrap(),
                Operation::Patch => {
                    layout.encode_with(|_| ColumnState::Value(DatumRef::Int32(7)), &mut value).unwrap();
                }
                _ => {}
            }
            writer.add(key, Trailer::new(1, *operation), &value).unwrap();
        }
        writer.finish().unwrap();
        name.into_bytes()
    }

    fn keys(rng: &mut SmallRng, kind: usize) -> Vec<Entry> {
        let key = |rng: &mut SmallRng| match kind {
            // Of eight bytes, of twelve with what varies in the middle, of any length, and longer than sixteen.
            0 => rng.random::<u64>().to_be_bytes().to_vec(),
            1 => [&[9; 4][..], &rng.random_range(0..1_u32 << 20).to_be_bytes(), &[1; 4]].concat(),
            2 => vec![b'k'; rng.random_range(1..30)].into_iter().chain([rng.random()]).collect(),
            _ => [&[3; 14][..], &rng.random_range(0..3000_u32).to_be_bytes()].concat(),
        };
        let mut keys: Vec<_> = (0..rng.random_range(1..600)).map(|_| key(rng)).collect();
        keys.sort();
        keys.dedup();
        let operation =
            |rng: &mut SmallRng| [Operation::Put, Operation::Patch, Operation::Delete][rng.random_range(0..3)];
        keys.into_iter().map(|key| (key, operation(rng))).collect()
    }

    /// Calls `each` with each block, its entries, and its place.
    fn each_block(file: &Arc<SstFile>, mut each: impl FnMut(BlockOfFile<'_>, &[Entry])) {
        let RunCursor::Columns(mut cursor) = RunCursor::new(vec![file.clone()], CursorOptions::default()) else {
            panic!("a file of rows");
        };
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            let rows = cursor.block().unwrap().0.rows();
            let mut entries = Vec::new();
            for row in 0..rows {
                let (block, _, file, number) = cursor.block().unwrap();
                let mut key = Vec::new();
                block.write_key(row, &mut key).unwrap();
                entries.push((key, cursor.trailer().operation()));
                if row + 1 == rows {
                    each((block, file, number), &entries);
                }
                cursor.next().unwrap();
            }
        }
    }

    #[test]
    fn keys_are_where_a_search_finds_them_from_the_cache_and_without() {
        for seed in 0..24 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let disk = MemoryDisk::new();
            let kind = seed as usize % 4;
            let (mut older, younger) = (keys(&mut rng, kind), keys(&mut rng, kind));
            // Some of the same.
            older.extend(younger.iter().filter(|_| rng.random_bool(0.6)).cloned());
            older.sort();
            older.dedup_by(|a, b| a.0 == b.0);
            let cache = Arc::new(BlockCache::new(if seed % 3 == 0 { 0 } else { 1 << 20 }));
            let open = |number: u64, entries: &[Entry]| {
                let name = String::from_utf8(write(&disk, number, entries)).unwrap();
                let file = disk.open(Path::new(&name), AccessPattern::Random).unwrap();
                let opened = SstFile::open(file, Path::new(&name), number, cache.clone(), OpenOptions::default());
                opened.unwrap()
            };
            let (older, younger) = (open(1, &older), open(2, &younger));
            // The second time from the cache, in another order.
            for _ in 0..2 {
                each_block(&older, |of_older, below| {
                    each_block(&younger, |of_younger, above| {
                        let found = Placement::of(of_older, of_younger).unwrap();
                        let first = above.iter().take_while(|(key, _)| *key < below[0].0).count();
                        assert_eq!(found.first(), first, "seed {seed}");
                        let within = above[first..].iter().take_while(|(key, _)| *key <= below[below.len() - 1].0);
                        let expected: Vec<_> = within
                            .map(|(key, operation)| PlacedRow {
                                place: below.iter().take_while(|(other, _)| other < key).count(),
                                is_there: below.iter().any(|(other, _)| other == key),
                                operation: *operation,
                            })
                            .collect();
                        assert!(found.rows().eq(expected.iter().copied()), "seed {seed}");
                        let are_laid = |row: &PlacedRow| row.is_there && row.operation != Operation::Delete;
                        assert_eq!(found.are_all_laid(), expected.iter().all(are_laid), "seed {seed}");
                        let (skipped, end) = (rng.random_range(0..4), rng.random_range(0..below.len() + 1));
                        let mut places = Vec::new();
                        let rest = expected.iter().skip(skipped).map(|row| row.place).filter(|place| *place < end);
                        let count = found.append_places(skipped, end, 0, &mut places);
                        assert!(rest.eq(places.iter().map(|&place| place as usize)) && count == places.len());
                    });
                });
            }
        }
    }
}
