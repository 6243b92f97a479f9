//! Secondary indexes (Mycelium §4.2.4; docs/decisions/0023).
//!
//! An index is a derived table that an augment feeds: each of its entries has the indexed values and the row's key for
//! its key, the covered columns for its value, and the sequence number of the row's version.
//!
//! 1. *Written* with the row, into the derived table's memtable (`derive`), and flushed with it: memtables and level 0
//!    are indexed by their own small indexes. Patches are completed first (`prepare`).
//! 2. *Removed* with the row's version, by flushes and compactions, in the same edit (`watch`).
//! 3. *Read* at one moment of table and index (`crate::table::TableState::indexes`): an entry of which the table has
//!    nothing newer is the row's present version and answers alone; any other is checked against its row (`read`).
//! 4. *Built* in the background where the table had rows when the index was created (`build`); until then read by
//!    scanning the table.
//!
//! | module | what it is |
//! |---|---|
//! | `definition` | what the manifest keeps of an index |
//! | `source` | what entries are made of: columns, or a user's flat-map |
//! | `manage` | created, dropped, listed |
//! | `augments` | those that a table's transformers ask for |
//! | `indexed` | which tables have indexes, as those who write see it |
//! | `prepare` | before the write: patches completed, unique indexes asked |
//! | `ahead` | before the write, from the values of rows |
//! | `derive` | at the moment of the write |
//! | `unique` | an index of a table with rows becomes unique |
//! | `load` | bulk loads |
//! | `watch`, `staged` | what leaves a table leaves its indexes |
//! | `spills` | what a job could not hold in memory becomes one run |
//! | `purge` | what could not leave an index with its rows leaves it later |
//! | `build` | what was there before the index |
//! | `unfit` | rows that an index cannot hold |
//! | `read` | lookups |
//! | `newer` | whether a row has changed since its entry was made |
//! | `check` | table and index compared |

mod ahead;
mod augments;
mod build;
mod check;
mod definition;
mod derive;
mod indexed;
mod load;
mod manage;
mod newer;
mod prepare;
mod purge;
mod read;
mod source;
mod spills;
mod staged;
mod unfit;
mod unique;
mod watch;

pub use definition::{IndexDefinition, IndexStatus};
pub use manage::{Index, IndexOptions};
pub use read::{DerivedEntry, IndexRow, IndexRows};
pub use source::IndexedBy;

pub(crate) use ahead::DerivedAhead;
pub(crate) use augments::split_augments;
pub(crate) use definition::IndexShared;
pub(crate) use derive::{DerivedBatch, WriteDerivers};
pub(crate) use indexed::{IndexGeneration, IndexedTables};
pub(crate) use load::{Derivation, DerivedRows};
pub(crate) use manage::changed_index;
pub(crate) use prepare::Guard;
pub(crate) use purge::StaleEntries;
pub(crate) use staged::StagedCursor;
pub(crate) use watch::{DerivedFile, IndexWatch, StagedRemovals, write_derived};

use crate::database::Inner;

impl Inner {
    /// Bytes that one job stages for one index.
    pub(crate) fn staging_budget(&self) -> usize {
        (self.options.memory_budget / 16).min(8 << 20)
    }

    /// Bytes that the building of an index sorts at once.
    fn building_budget(&self) -> usize {
        (self.options.memory_budget / 4).min(64 << 20)
    }
}
