//! What a caller chooses when reading.
//!
//! It stands apart from options.rs, which tables are made from: a read may be at a snapshot, and a snapshot holds
//! states of tables.

use mycelium_encoding::key::prefix_successor;

use crate::snapshot::Snapshot;

/// Options of a read.
///
/// Point reads ([`crate::Table::get_with`], [`crate::Table::multi_get`], [`crate::Table::get_row`],
/// [`crate::Table::get_rows`], [`crate::Table::get_packed`], [`crate::Table::get_payload`]) look at `snapshot` alone.
/// Iterators look at all of them, and so do views ([`crate::View::read`]). [`crate::Table::scan_batches`] has options
/// of its own.
///
/// ```
/// # use mycelium_engine::{Database, Durability, Options, ReadOptions, TableOptions};
/// # use std::sync::Arc;
/// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
/// # let database = Database::open("example", options)?;
/// # let table = database.create_table("kv", TableOptions::default())?;
/// for key in ["city/Graz", "city/Linz", "river/Mur"] {
///     table.put(key.as_bytes(), b"", Durability::Os)?;
/// }
/// let options = ReadOptions { prefix: Some(b"city/".to_vec()), fill_cache: false, ..ReadOptions::default() };
/// let mut rows = table.iter(&options)?;
/// rows.seek_to_last()?;
/// assert_eq!(rows.key(), b"city/Linz");
/// # Ok::<(), mycelium_engine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Read at this snapshot instead of at the newest state. It must be of the same database. Default: newest.
    pub snapshot: Option<Snapshot>,
    /// The first key of an iteration. Default: unbounded.
    pub lower: Option<Vec<u8>>,
    /// The key before which an iteration ends. Default: unbounded.
    pub upper: Option<Vec<u8>>,
    /// Only keys that start with it. Default: all.
    pub prefix: Option<Vec<u8>>,
    /// Put blocks read from disk into the cache. Default: true; set to false for large scans.
    pub fill_cache: bool,
    /// Bytes to read ahead in one piece, in each place of the table where rows lie. Where these are many it is less, so
    /// that all pieces together have 64 MiB, down to 16 KiB each. 0 reads block by block and grows by itself on long
    /// ranges. Default: 0.
    pub read_ahead: usize,
    /// About how many rows will be read, if that is known: where nothing is said of `read_ahead`, so much is read from
    /// each place of the table in one piece, and not block by block. Ends nothing. Default: not known.
    pub expected_rows: Option<u64>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            lower: None,
            upper: None,
            prefix: None,
            fill_cache: true,
            read_ahead: 0,
            expected_rows: None,
        }
    }
}

impl ReadOptions {
    /// A read at `snapshot`.
    pub fn at(snapshot: &Snapshot) -> Self {
        Self { snapshot: Some(snapshot.clone()), ..Self::default() }
    }

    /// The key interval `[lower, upper)` that bounds and prefix together allow.
    pub(crate) fn bounds(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let Some(prefix) = &self.prefix else { return (self.lower.clone(), self.upper.clone()) };
        let lower = self.lower.clone().map_or(prefix.clone(), |lower| lower.max(prefix.clone()));
        let upper = match (prefix_successor(prefix), self.upper.clone()) {
            (Some(end), Some(upper)) => Some(end.min(upper)),
            (end, upper) => end.or(upper),
        };
        (Some(lower), upper)
    }
}
