//! Reads: scans, filters, caches, the compaction buffer, followers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod buffer;
mod caching;
mod columnar;
mod deltas;
mod filter_plans;
mod following;
mod keys_alone;
mod new_rows;
mod prefix_filters;
mod told;
mod traces;
mod whole_rows;
