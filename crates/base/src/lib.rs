//! The vocabulary of Mycelium: keys, sequence numbers, operations, errors, cursors and byte coding.
//!
//! Everything here is plain data and pure functions; nothing performs I/O, reads a clock or starts a thread.
//! The words are those of the glossary in `ARCHITECTURE.md`, one meaning each.

pub mod coding;
pub mod column_group;
pub mod column_set;
pub mod combine;
pub mod counters;
pub mod cursor;
pub mod entry;
pub mod error;
pub mod file_name;
pub mod hash;
pub mod key_prefix;
pub mod limits;
pub mod prefetch;
pub mod range_delete;
pub mod range_delete_sets;
pub mod row_format;

pub use column_group::{Group, GroupFormat};
pub use column_set::{ColumnSet, Columns};
pub use combine::Combiner;
pub use counters::ReadCounters;
pub use cursor::Cursor;
pub use entry::{EntryRef, MAX_SEQUENCE_NUMBER, Operation, SequenceNumber, TableId, Trailer, compare_entries};
pub use error::{Error, ErrorKind, Result};
pub use file_name::{FileKind, FileNumber, MAX_FILE_NUMBER};
pub use range_delete::{RangeDelete, RangeDeleteFragment, RangeDeleteSet};
pub use range_delete_sets::RangeDeleteSets;
pub use row_format::RowFormatKind;
