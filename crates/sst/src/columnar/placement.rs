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
//! Integers are little-endian. It lies in the block cache under the younger block's file, at an offset that no block
//! has; there may be another one at the same, so that it says itself what it is of.

use std::sync::Arc;

use mycelium_base::{Error, Operation, Result};
use mycelium_cache::{BlockKind, CacheKey};

use super::block::ColumnBlock;
use crate::reader::SstFile;

const HEADER_LEN: usize = 24;
const ROW_LEN: usize = size_of::<u32>();

const PLACE_BITS: u32 = 28;
const IS_THERE: u32 = 1 << PLACE_BITS;
const OPERATION_SHIFT: u32 = PLACE_BITS + 1;

/// Offsets of blocks are below.
const NO_OFFSET: u64 = 1 << 63;

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
        let key = cache_key(&identity, file);
        if let Some(cached) = file.cache.get(key).filter(|bytes| bytes.starts_with(&identity)) {
            return Ok(Self(cached));
        }
        let found: Arc<[u8]> = find(older.0, younger.0, &identity)?.into();
        file.cache.insert(key, found.clone(), BlockKind::Index);
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
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = PlacedRow> + ExactSizeIterator + Clone {
        self.words().map(|word| PlacedRow {
            place: place_of(word) as usize,
            is_there: word & IS_THERE != 0,
            operation: Operation::from_u8((word >> OPERATION_SHIFT) as u8).unwrap_or(Operation::RangeDelete),
        })
    }

    /// Of those from the `skipped`th on, as far as their places are before `end`, appends the places, less `less`; how
    /// many they are.
    pub fn append_places(&self, skipped: usize, end: usize, less: usize, places: &mut Vec<u32>) -> usize {
        let words = self.0[HEADER_LEN..].as_chunks::<ROW_LEN>().0.get(skipped..).unwrap_or_default();
        let is_before = |word: &[u8; ROW_LEN]| (place_of(u32::from_le_bytes(*word)) as usize) < end;
        let words = &words[..words.partition_point(is_before)];
        places.extend(words.iter().map(|&word| place_of(u32::from_le_bytes(word)) - less as u32));
        words.len()
    }

    fn words(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + Clone {
        self.0[HEADER_LEN..].as_chunks::<ROW_LEN>().0.iter().map(|&word| u32::from_le_bytes(word))
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

fn cache_key(identity: &[u8; 16], file: &SstFile) -> CacheKey {
    let identity = u128::from_le_bytes(*identity);
    let mixed = (identity as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (identity >> 64) as u64;
    file.cache_key(mixed.wrapping_mul(0xe703_7ed1_a0b4_28db) | NO_OFFSET)
}

fn find(older: &ColumnBlock, younger: &ColumnBlock, identity: &[u8; 16]) -> Result<Vec<u8>> {
    let rows = older.rows();
    if rows as u32 >= IS_THERE || rows == 0 {
        return Err(Error::invalid("a block of another number of rows").expected("1 to 2^28 - 1", rows));
    }
    let mut key = Vec::new();
    older.write_key(0, &mut key)?;
    let first = younger.seek(&key)?;
    older.write_key(rows - 1, &mut key)?;
    let (behind, is_there) = younger.find(&key)?;
    let within = first..(behind + usize::from(is_there)).max(first);
    let mut operations = Vec::with_capacity(within.len());
    younger.append_operations(within.clone(), &mut Vec::new(), &mut operations)?;
    let (mut bytes, mut are_all_laid) = (Vec::with_capacity(HEADER_LEN + ROW_LEN * within.len()), true);
    bytes.extend_from_slice(identity);
    bytes.extend_from_slice(&(first as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; HEADER_LEN - 20]);
    older.seek_rows((younger, within.clone()), |row, place, is_there| {
        let operation = operations[row - first];
        are_all_laid &= is_there && matches!(operation, Operation::Put | Operation::Patch);
        let word = place as u32 | if is_there { IS_THERE } else { 0 } | u32::from(operation as u8) << OPERATION_SHIFT;
        bytes.extend_from_slice(&word.to_le_bytes());
    })?;
    bytes[20] = u8::from(are_all_laid);
    Ok(bytes)
}
