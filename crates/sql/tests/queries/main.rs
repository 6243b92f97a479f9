//! Queries in SQL, whose answers are known.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod twin;

mod answers;
mod comparisons;
mod decimals;
mod tpch;
mod zone_aggregates;
