//! Compaction: policies as pure functions, partitioners (fixed, aligned), the job as a pure stage.
//!
//! A [`CompactionPolicy`] looks at a [`mycelium_manifest::Version`] and at what is running ([`BusyFiles`]) and returns
//! a [`CompactionPlan`]; a [`Partitioner`] decides where its output files are cut. Both are plain functions of their
//! arguments: they read no clock, no disk and no random numbers.
//!
//! ```
//! use mycelium_base::TableId;
//! use mycelium_compaction::{BusyFiles, CompactionPolicy, LeveledOptions, LeveledPolicy};
//! use mycelium_manifest::Version;
//!
//! let version = Version::parse("L0: 3:[a-k]#5-9 1MB\nL0: 2:[c-z]#1-4 1MB\nL6: 1:[d-f]#0 1MB").unwrap();
//! let policy = LeveledPolicy::new(LeveledOptions { level0_trigger: 2, ..LeveledOptions::default() });
//! let plan = policy.pick(TableId(0), &version, &BusyFiles::new()).unwrap();
//! assert_eq!(plan.to_string(), "compact L0:3 L0:2 L6:1 -> L6 [a-z], level-0 files 1.00");
//! ```

pub mod buffer;
mod busy;
mod connected_parts;
pub mod encoded_job;
mod group_cursor;
mod in_step;
pub mod job;
pub mod leveled;
mod newest;
pub mod options;
pub mod partitioner;
mod picker;
pub mod plan;
pub mod policy;
mod shape;
pub mod shaped;
pub mod shaped_job;
mod shaped_rest;
pub mod split;
pub mod targets;
pub mod tiered;
mod two_phase;
mod units;

pub use buffer::trim;
pub use busy::{BusyFiles, JobId};
pub use group_cursor::GroupCursor;
pub use leveled::LeveledPolicy;
pub use options::{Buffering, Deferral, LeveledOptions, PickPriority, TieredOptions};
pub use partitioner::{AlignedPartitioner, FixedPartitioner, Partitioner};
pub use plan::{CompactionPlan, OlderFiles, PlanInput, Reason};
pub use policy::CompactionPolicy;
pub use shaped::ShapedPolicy;
pub use split::{KeySample, subcompaction_cuts};
pub use targets::LevelTargets;
pub use tiered::TieredPolicy;
