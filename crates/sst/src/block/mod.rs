//! Data blocks.

mod buffer;
mod builder;
mod cursor;
mod format;
mod position;

pub(crate) use buffer::{BlockBuffer, payload_in_memory};
pub use builder::BlockBuilder;
pub(crate) use builder::is_point_operation;
pub use cursor::BlockCursor;
pub(crate) use cursor::{KeyBuffer, Step};
pub use format::{BlockShape, RawEntry};
pub(crate) use format::{bad_entry, prefetch_keys, search};
pub(crate) use position::{BlockFacts, BlockPosition};
