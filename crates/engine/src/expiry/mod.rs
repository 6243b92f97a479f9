//! Rows that expire: deleted once so much time has passed since what a column of theirs says (decision 0089).
//!
//! 1. A typed table may have an [`Expiry`]: a column that says a row's time, and an age (definition.rs). The manifest
//!    keeps it with the table's options, and it may be changed (manage.rs).
//! 2. A *pass* over such a table finds the rows whose time has come, by a scan with a filter, and deletes them in
//!    transactions like a user's (pass.rs). One is due when so much time has passed since the last one began
//!    ([`crate::Options::expiry_interval`]).
//! 3. Passes are made by a thread of their own (due.rs), since they write and may have to wait for what the other
//!    threads do; in [`crate::Background::Manual`] by [`crate::Database::step`]; and by
//!    [`crate::Database::expire_rows`].
//!
//! What a reader sees does not depend on the clock: a row that has expired is there until it is deleted, and is deleted
//! at one sequence number, in the table, its indexes and its views. Deletes are in the log, so that they reach
//! recoveries and followers, which expire nothing by themselves.
//!
//! | module | what it is |
//! |---|---|
//! | `definition` | what the manifest keeps of a table's expiry, and which times have expired |
//! | `manage` | set, told, and passes asked for |
//! | `pass` | a pass over a table |
//! | `due` | when passes are made, and by whom |
//! | `state` | what is kept of it in memory |

mod definition;
mod due;
mod manage;
mod pass;
mod state;

pub use definition::Expiry;
pub(crate) use manage::check_expiry;
pub(crate) use state::{Passes, TableExpiry};
