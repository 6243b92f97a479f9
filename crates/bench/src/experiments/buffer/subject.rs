//! What the experiment needs of a database, ours or a rival's.

use std::path::Path;

use crate::store::Result;

/// Sizes that all are given alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Rows of the table.
    pub rows: u64,
    /// Bytes of the cache, for data blocks.
    pub cache_bytes: u64,
}

impl Sizes {
    /// How many times larger each level is than the one above.
    pub const FANOUT: u64 = 10;
    /// Level 0 and three below.
    pub const LEVELS: usize = 4;

    /// Bytes of all rows.
    pub fn data_bytes(self) -> u64 {
        self.rows * super::ROW_BYTES
    }

    /// Rows that are read.
    pub(super) fn hot_rows(self) -> u64 {
        self.cache_bytes * super::HOT_PERCENT / 100 / super::ROW_BYTES
    }

    /// Bytes of a write buffer.
    pub fn write_buffer_bytes(self) -> u64 {
        (self.data_bytes() / super::DATA_TO_WRITE_BUFFER).max(128 << 10)
    }

    /// Bytes of level 1; the last level takes about all data.
    pub fn base_level_bytes(self) -> u64 {
        self.data_bytes() / (Self::FANOUT * Self::FANOUT)
    }

    /// Bytes of a file: the paper's 8 MB of 100 GB, but not below what a file is worth.
    pub fn file_bytes(self) -> u64 {
        (self.base_level_bytes() / 16).max(64 << 10)
    }
}

/// What reads needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Blocks {
    /// Data blocks that were cached.
    pub hits: u64,
    /// Blocks from the disk.
    pub misses: u64,
    /// Segments of the compaction buffer that were asked.
    pub segments: u64,
}

/// What a database says of itself.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures {
    /// Bytes that flushes and compactions wrote.
    pub written_bytes: u64,
    /// Bytes that compactions wrote, by level; empty if it does not say.
    pub written_by_level: Vec<u64>,
    /// Bytes of each level; likewise.
    pub level_bytes: Vec<u64>,
    /// Cached blocks that compactions made useless, by level; likewise.
    pub invalidated_by_level: Vec<u64>,
    /// Bytes of the compaction buffer.
    pub buffer_bytes: u64,
    /// Bytes of indexes and filters in memory.
    pub resident_bytes: u64,
}

/// A database that is read while it is written.
pub trait Subject: Send + Sync {
    /// Writes a row; durable as far as the process.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads a row, and adds what that needed; whether it is there.
    fn get(&self, key: &[u8], blocks: &mut Blocks) -> Result<bool>;

    /// Reads rows in key order from the first at or after `key` on, until they have this many bytes; the bytes read.
    fn scan(&self, key: &[u8], bytes: u64) -> Result<u64>;

    /// Writes what is in memory to files.
    fn flush(&self) -> Result<()>;

    /// The same, and lets compactions come to rest where it can tell when they have.
    fn rest(&self) -> Result<()> {
        self.flush()
    }

    /// Merges everything into one sorted run.
    fn compact(&self) -> Result<()>;

    /// Its figures so far.
    fn figures(&self) -> Figures;

    /// Closes it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens a database of these sizes in a directory; `false`: creates it, to be loaded; `true`: it is loaded, and what is
/// measured begins.
pub type Opener<'a> = dyn Fn(&Path, Sizes, bool) -> Result<Box<dyn Subject>> + 'a;

/// Another database.
pub struct BufferRival<'a> {
    /// What reports call it.
    pub name: &'static str,
    /// Opens it.
    pub open: &'a Opener<'a>,
}
