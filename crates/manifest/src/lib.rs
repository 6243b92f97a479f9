//! What files a database consists of: versions, version edits, levels and runs; the manifest file and `CURRENT`.
//!
//! A [`Version`] is the immutable list of one table's files by level and run. A [`VersionEdit`] turns one set of
//! versions into the next, for any number of tables at once, and is the unit of durability: [`Manifest::apply`] makes
//! it durable before it returns. [`ManifestState`] is what all edits so far add up to; [`ManifestFollower`] reads it
//! beside the process that changes it.
//!
//! ```
//! use mycelium_manifest::Version;
//!
//! let version = Version::parse("L0: 9:[a-k]#90-99 1.2MB\nL1: 4:[a-c]#1-20 8MB 5:[d-p]#2-40 9MB").unwrap();
//! assert_eq!(version.level_bytes(1), 17_000_000);
//! assert_eq!(version.to_string(), "L0: 9:[a-k]#90-99 1.2MB\nL1: 4:[a-c]#1-20 8MB 5:[d-p]#2-40 9MB\n");
//! ```

pub mod edit;
pub mod file_meta;
pub mod follower;
pub mod layout;
pub mod manifest;
pub mod round;
pub mod state;
pub mod tables;
pub mod text;
pub mod version;

pub use edit::{
    AddedColumn, AddedFile, ChangedRound, DroppedColumn, RemovedFile, ReplacedTable, RunPlace, TableRecord, VersionEdit,
};
pub use file_meta::{FileMeta, KeyRange};
pub use follower::ManifestFollower;
pub use layout::{Layout, LevelLayout, Merge};
pub use manifest::{FileNumbers, Manifest, ManifestOptions, ManifestRemains, read_edits};
pub use round::{Round, Segment, Segments};
pub use state::ManifestState;
pub use tables::{TableState, Tables};
pub use version::{Level, Run, Version, VersionError};
