//! Files and what is made of them: opening, recovery, copies, salvage.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod backups;
mod checkpoint;
mod lifecycle;
mod lost_files;
mod many_tables;
mod options;
mod read_only;
mod salvage;
mod salvage_indexes;
mod salvage_strays;
mod stale_files;
mod verify;
