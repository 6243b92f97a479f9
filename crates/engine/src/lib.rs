//! The engine: an LSM-tree with many tables, one log, snapshots and transactions.
//!
//! A write goes batch -> log -> memtable ([`Database::write`]); full memtables are flushed to level 0 and compacted
//! down; reads take one immutable state of their table and no lock. `ARCHITECTURE.md` follows a write, a point read, a
//! scan and a compaction through the modules.

mod archive;
mod background;
mod backup;
mod batch;
mod block_scan;
mod buffer;
mod catalog;
mod checkpoint;
mod clock;
mod columns;
mod compact;
mod compaction_queue;
mod copy;
mod core;
mod database;
mod directory_syncs;
pub mod events;
mod expiry;
mod exposition;
mod extent;
mod flush;
mod follow;
mod index;
mod ingest;
mod inspect;
mod install;
mod interruption;
mod iterator;
mod key_value;
mod locks;
mod log_record;
#[cfg(test)]
mod many_tables_tests;
mod metrics;
mod moment;
mod note;
mod operations;
mod options;
mod origin;
mod output_files;
mod patience;
mod payload;
mod payload_values;
#[cfg(test)]
mod prefix_filter_tests;
mod rate_limit;
mod read;
mod read_options;
mod recover;
mod redesign;
mod salvage;
mod schema_change;
mod settled;
mod shape;
mod single_write;
mod snapshot;
mod sources;
mod stall;
mod sync;
mod table;
mod table_job;
mod thread_clock;
mod traces;
mod transaction;
mod transformers;
mod tree;
mod typed;
mod verify;
mod view;
mod warm;
mod write;

pub use archive::ArchiveOptions;
pub use backup::{
    BackupInfo, BackupSummary, Backups, DeletedBackups, PrunedArchive, RestoreOptions, RestorePoint, RestoreSummary,
};
pub use batch::WriteBatch;
pub use block_scan::{FilterPlan, ToldColumn, ToldRows};
pub use checkpoint::CheckpointSummary;
pub use clock::{Clock, ManualClock, SystemClock};
pub use database::Database;
pub use expiry::Expiry;
pub use extent::Extent;
pub use index::{DerivedEntry, Index, IndexDefinition, IndexOptions, IndexRow, IndexRows, IndexStatus, IndexedBy};
pub use ingest::IngestSummary;
pub use inspect::{read_log_record, rewrite_origin};
pub use iterator::TableIterator;
pub use metrics::{BufferMetrics, GroupMetrics, LevelMetrics, Metrics, SnapshotMetrics, TableMetrics};
pub use mycelium_advisor as advisor;
pub use mycelium_advisor::{LayoutAdvice, Trace};
pub use mycelium_base::{Combiner, Error, ErrorKind, ReadCounters, Result, SequenceNumber, TableId};
pub use mycelium_cache::CacheStats;
pub use mycelium_compaction::job::StageTimes;
pub use mycelium_compaction::{Buffering, LeveledOptions, PickPriority, TieredOptions};
pub use mycelium_encoding::GroupRow;
pub use mycelium_manifest::{KeyRange, Layout, LevelLayout, Merge};
pub use mycelium_merge::StreamCounters;
pub use mycelium_sst::Compression;
pub use options::{
    Background, CompactionCaching, Durability, Options, Policy, RecoveryMode, RowFormatDefinition, TableOptions, Warm,
};
pub use payload::RowPayload;
pub use read_options::ReadOptions;
pub use salvage::{LostRange, OlderVersions, SalvageOptions, SalvageReport, salvage};
pub use snapshot::Snapshot;
pub use table::{Table, TableDefinition};
pub use transaction::{
    IsolationLevel, Savepoint, Transaction, TransactionIndexRows, TransactionIterator, TransactionOptions,
};
pub use typed::{BatchScan, ScanOptions};
pub use verify::{Problem, VerifyReport, verify_directory};
pub use view::{View, ViewCounters, ViewDefinition, ViewOptions, ViewRows, ViewSet};
