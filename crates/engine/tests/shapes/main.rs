//! Tables that change shape: layouts, transformers, indexes, views, columns.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod deferral;
mod flat_maps;
mod index_loads;
mod index_only;
mod index_purges;
mod indexes;
mod layouts;
mod schema_changes;
mod siblings;
mod transformers;
mod traps;
mod views;
