//! The memtable: the newest entries of a table, sorted, in memory.
//!
//! A skiplist (W. Pugh, "Skip Lists: A Probabilistic Alternative to Balanced Trees", CACM 33(6), 1990) in an arena,
//! with one writer and any number of readers that take no lock:
//!
//! 1. Nodes are written once into chunks that never move and are freed together, when the last handle is dropped.
//! 2. A node is filled in completely, then linked from the bottom level upwards with release stores. Nothing is ever
//!    unlinked, so that a reader, which loads links with acquire, can stand on a node for as long as it likes.
//! 3. Every link carries the first eight bytes of the key it leads to. A search decides most comparisons from the node
//!    it stands on and touches (that is, misses the cache for) only nodes that it steps onto. A level has a quarter of
//!    the nodes of the one below: half would be an eighth faster to insert into and take 11 bytes a node more, which is
//!    memory that larger level-0 files make better use of.
//! 4. An insert remembers its place. The next one searches from there, upwards as far as needed, so that ascending
//!    keys are inserted in constant time.
//! 5. The nodes inserted last are kept in that order, too ([`Memtable::recent`]).
//! 6. A Bloom filter of the keys, one cache line per key, answers most lookups of absent keys.
//!
//! [`Memtable::new`] returns the one writer and a handle for readers:
//!
//! ```
//! use mycelium_base::{Cursor, Operation, Trailer};
//! use mycelium_memtable::{Memtable, MemtableOptions};
//!
//! let (mut writer, memtable) = Memtable::new(MemtableOptions { filter_bytes: 1 << 16 });
//! writer.insert(b"key", Trailer::new(1, Operation::Put), b"old");
//! writer.insert(b"key", Trailer::new(2, Operation::Put), b"new");
//! let versions: Vec<_> = memtable.get(b"key", 1).collect();
//! assert_eq!(versions, [(Trailer::new(1, Operation::Put), &b"old"[..])]);
//!
//! let mut cursor = memtable.cursor();
//! cursor.seek_to_first()?;
//! assert_eq!(cursor.value(), b"new");
//! # Ok::<(), mycelium_base::Error>(())
//! ```
//!
//! A memtable knows nothing of visibility: readers may meet entries newer than their snapshot and skip them. What a
//! reader is promised is that every entry inserted before (in the happens-before sense) its call is found.

mod arena;
mod cursor;
mod filter;
mod memtable;
mod node;
mod recent;
mod recent_cursor;
mod skiplist;
mod sync;

pub use cursor::MemtableCursor;
pub use memtable::{Memtable, MemtableOptions, MemtableWriter, Versions};
pub use recent_cursor::RecentCursor;
