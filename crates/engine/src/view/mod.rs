//! Materialised views (docs/decisions/0024): rows grouped and aggregated, exactly, at every snapshot.
//!
//! A view has no table of its own. What it keeps are *partial aggregates*, in the summaries of the table's files
//! (`mycelium_sst`'s `summary`): of each block, page and file that holds but rows, one version of each.
//!
//! 1. *Written* by flushes, compactions and bulk loads with the rows that they write (`summarize`): nothing is
//!    subtracted ever, a new file has new ones.
//! 2. *Read* at one moment of the table (`read`): where a block's key interval holds nothing else that the snapshot
//!    could see, its partial aggregates are taken; everything else is computed from rows.
//! 3. What was written before the view was created has none, and is computed from rows until a compaction rewrites it.
//!
//! | module | what it is |
//! |---|---|
//! | `definition` | what the manifest keeps of a table's views |
//! | `manage` | created, dropped, listed |
//! | `summarize` | partial aggregates of a file that is being written |
//! | `read` | partial aggregates and rows put together |
//! | `check` | both ways of reading compared, for verification |

mod check;
mod definition;
mod manage;
mod read;
mod summarize;

pub use definition::{ViewDefinition, ViewSet};
pub use manage::{View, ViewOptions};
pub use read::{ViewCounters, ViewRows};
