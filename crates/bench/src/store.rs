//! What a workload needs of a store: the one interface behind which our engine and every peer stand.
//!
//! All engines run the identical loop through `dyn KeyValueStore`; a virtual call costs about 2 ns, the same for each.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Any failure of a store, of the system, or of a check on what a store returned.
pub type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// The result of every fallible function here.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Block compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Blocks as they are.
    None,
    /// LZ4 on every level.
    Lz4,
}

impl Compression {
    /// The word used in scenario names.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }
}

/// Settings that every engine is given alike. The write-ahead log is on and never synced; one that has no such setting
/// (a B-tree's cache of pages, say) uses its nearest one, as its adapter documents.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StoreOptions {
    /// Bytes that may be held in the store's own cache.
    pub cache_bytes: u64,
    /// Bits of Bloom filter per key.
    pub filter_bits: u32,
    /// Block compression.
    pub compression: Compression,
    /// Uncompressed bytes of a block (a page, for a B-tree).
    pub block_size: u32,
    /// Bytes of a write buffer.
    pub write_buffer_bytes: u64,
    /// Threads of background work.
    pub background_threads: u32,
    /// Read files past the page cache (`O_DIRECT`): the memory-limited mode where no cgroup can be made.
    pub direct_io: bool,
}

impl Default for StoreOptions {
    /// The common settings of the comparison in `docs/performance.md`.
    fn default() -> Self {
        Self {
            cache_bytes: 512 << 20,
            filter_bits: 10,
            compression: Compression::None,
            block_size: 4096,
            write_buffer_bytes: 64 << 20,
            background_threads: 2,
            direct_io: false,
        }
    }
}

/// One key and its value.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

/// What a scan calls for every entry, in key order.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// A store under measurement, shared by all threads of a workload.
pub trait KeyValueStore: Send + Sync {
    /// Stores one pair; durable as far as the operating system (no sync).
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Stores all pairs in one atomic write.
    fn put_batch(&self, pairs: &[Pair<'_>]) -> Result<()>;

    /// Removes a key.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Replaces the contents of `value` by the key's value; `false` (and `value` unspecified) if there is none.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Visits up to `count` entries from the first at or after `key`, and returns how many there were.
    fn scan_from(&self, key: &[u8], count: usize, visit: Visit<'_>) -> Result<usize>;

    /// Visits every entry with a key in `[from, to)`, and returns how many there were. Unless a store knows better, by
    /// pieces of which the last may be read in vain.
    fn scan_range(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<u64> {
        const PIECE: usize = 64;
        let (mut next, mut found) = (from.to_vec(), 0);
        loop {
            let (mut last, mut ended) = (Vec::new(), false);
            let count = self.scan_from(&next, PIECE, &mut |key, value| {
                ended |= key >= to;
                if !ended {
                    visit(key, value);
                    found += 1;
                    last.clear();
                    last.extend_from_slice(key);
                }
            })?;
            if ended || count < PIECE {
                return Ok(found);
            }
            last.push(0);
            next = last;
        }
    }

    /// Visits every entry, and returns how many there were.
    fn scan_all(&self, visit: Visit<'_>) -> Result<u64>;

    /// Writes everything held in memory to files.
    fn flush(&self) -> Result<()>;

    /// Flushes, then waits until no compaction is running or due.
    fn settle(&self) -> Result<()>;

    /// Whether the store can read with `O_DIRECT`.
    fn supports_direct_io(&self) -> bool {
        false
    }

    /// The store's own account of its state, in its own words, for a person to read.
    fn describe(&self) -> String {
        String::new()
    }

    /// Closes the store cleanly. A store that was settled opens again without replaying a log.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens stores of one engine.
pub trait StoreFactory: Sync {
    /// The engine's name in reports and on the command line.
    fn name(&self) -> &str;

    /// Opens the store in `directory`, creating it if it is not there.
    fn open(&self, directory: &Path, options: &StoreOptions) -> Result<Box<dyn KeyValueStore>>;
}

/// Bytes of all files under `directory`; a file that disappears meanwhile counts nothing.
pub fn directory_bytes(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
