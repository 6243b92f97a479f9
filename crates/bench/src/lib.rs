//! Workloads: db_bench-like, YCSB, and the papers' experiments; for our engine and, through [`StoreFactory`], for any.
//!
//! 1. [`BenchArgs`] (a set of command-line options) says what to run; [`run`] runs it and gives a [`Report`].
//! 2. A [`Scenario`] is a data set, settings, and groups of phases ([`workloads`]). Every group of every engine runs in
//!    a process of its own ([`isolation`]), so that memory and caches do not mix; engines alternate group by group
//!    ([`schedule`]).
//! 3. Every phase is measured alike ([`measure`]); repetitions give medians and the spread of ratios ([`report`]).

pub mod args;
pub mod bench_disk;
pub mod distribution;
pub mod experiments;
#[cfg(feature = "sql")]
mod fetch;
pub mod isolation;
pub mod keys;
pub mod measure;
pub mod memory_limit;
pub mod mycelium_store;
pub mod plot;
pub mod report;
pub mod scenario;
pub mod schedule;
pub mod slow_disk;
pub mod statistics;
pub mod store;
pub mod workloads;

pub use args::{BenchArgs, run, run_with};
pub use mycelium_store::MyceliumFactory;
pub use report::Report;
pub use scenario::Scenario;
pub use schedule::{RunSettings, run_scenarios};
pub use store::{BenchError, Compression, KeyValueStore, Result, StoreFactory, StoreOptions};
