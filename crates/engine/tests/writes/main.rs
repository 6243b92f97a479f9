//! Writes: batches, transactions, locks, bulk loads, expiry, and what holds them up.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod expiry;
mod full_disk;
mod ingest;
mod interleaving;
mod interruptions;
mod locks;
mod open_files;
mod stalls;
mod transaction_indexes;
mod transactions;
mod unfit_rows;
mod unique_indexes;
