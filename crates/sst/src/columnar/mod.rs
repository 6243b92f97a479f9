//! Columnar files: blocks that hold keys, trailers and each column of the group as a mini-page of its own (PAX; LSM-OPD
//! §3).
//!
//! ```text
//! data blocks     keys, trailers and columns (see `block`)
//! ...             filter, index, range deletes as in files of rows
//! statistics      smallest and largest value, nulls, and about how many different values each column has (see
//!                 `statistics`)
//! codings         one per column of text or bytes that has one: a dictionary or a symbol table (see
//!                 `mycelium_encoding::page::TextCoding`)
//! zone maps       one per column: the same of every block, but for how many are different (see `zones`)
//! directory       the table's schema, and where codings and zone maps lie (see `directory`)
//! ...             summaries, properties, footer
//! ```
//!
//! The group decides what is read from the disk, the mini-page what is computed on: a point read fetches one block, a
//! scan touches only the pages of its columns. A file says itself what its columns are, so that nothing else is needed
//! to read it.
//!
//! Entries are the same as in files of rows: what is added as a packed fragment comes back as one, put together from
//! the cells of the wanted columns. Who merges files of the same columns need not take entries apart and put them
//! together again: an [`EncodedCursor`] gives keys and rows of blocks, and
//! [`SstWriter::add_cells`](crate::SstWriter::add_cells) takes these (see `picks`).

mod block;
mod builder;
mod directory;
mod encoded;
mod figures;
mod file;
mod finished;
mod heads;
mod key_shape;
mod key_window;
mod keys;
mod lookup;
mod picks;
mod placement;
mod position;
mod statistics;
mod verify;
mod zones;

pub use block::ColumnBlock;
pub(crate) use builder::ColumnarBuilder;
pub use directory::{ColumnPart, Directory};
pub use encoded::EncodedCursor;
pub use figures::{ColumnFigures, DictionaryFigures, FileFigures, PageBytes};
pub(crate) use file::FileColumns;
pub(crate) use finished::FinishedColumns;
pub(crate) use heads::HeadedBlock;
pub use key_window::KeyWindow;
pub use lookup::{CellLookup, RowCells};
pub use picks::Pick;
pub use placement::{PlacedRow, Placement};
pub use position::{ColumnPosition, WantedColumns, write_fragment};
pub use statistics::{ColumnStatistics, FileStatistics};
pub(crate) use verify::CellCheck;
pub use zones::{ColumnZones, ZoneMap};
