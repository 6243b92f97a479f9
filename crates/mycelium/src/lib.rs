//! Mycelium: an embedded storage engine. Tables of bytes or of typed rows, in one directory of one process.
//!
//! ```
//! use mycelium::{Database, Durability, Options, ReadOptions, TableOptions, WriteBatch};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! let database = Database::open(&path, Options::default())?;
//! let accounts = database.create_table("accounts", TableOptions::default())?;
//! let audit = database.create_table("audit", TableOptions::default())?;
//!
//! // A batch takes effect as a whole, in all its tables, and survives power loss once `write` returned.
//! let mut batch = WriteBatch::new();
//! batch.put(&accounts, b"alice", b"90").put(&accounts, b"bob", b"10").put(&audit, b"1", b"alice -> bob: 10");
//! database.write(&batch, Durability::Sync)?;
//!
//! // A snapshot reads the same whatever is written after it.
//! let before = database.snapshot();
//! accounts.delete(b"bob", Durability::Os)?;
//! let mut rows = accounts.iter(&ReadOptions::at(&before))?;
//! rows.seek(b"b")?;
//! assert_eq!((rows.key(), rows.value()), (&b"bob"[..], &b"10"[..]));
//! assert_eq!(accounts.get(b"bob")?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Typed tables have a [`Schema`]; whole rows are inserted, single columns patched without being read first, and scans
//! give Arrow record batches:
//!
//! ```
//! use mycelium::{Database, DatumRef, Durability, Options, ScanOptions, Schema, TableOptions};
//! use mycelium::disk::MemoryDisk;
//! use std::sync::Arc;
//!
//! let database = Database::open("db", Options { disk: Arc::new(MemoryDisk::new()), ..Options::default() })?;
//! let schema = Schema::parse("id int64 not null, name utf8, visits int32, primary key (id)")?;
//! let people = database.create_typed_table("people", schema, TableOptions::default())?;
//! people.insert_row(&[DatumRef::Int64(7), DatumRef::Utf8("Ada"), DatumRef::Null], Durability::Os)?;
//! people.patch_row(&[DatumRef::Int64(7)], &[("visits", DatumRef::Int32(3))], Durability::Os)?;
//! for batch in people.scan_batches(ScanOptions::default())? {
//!     assert_eq!(batch?.num_rows(), 1);
//! }
//! # Ok::<(), mycelium::Error>(())
//! ```
//!
//! Programs of a page each are in `crates/mycelium/examples`. `docs/guide.md` leads through them, through the choices
//! that there are to make, and through running a database.
//!
//! # Where to look
//!
//! | | |
//! |---|---|
//! | open, tables, batches, snapshots, metrics | [`Database`], [`Options`] |
//! | one table: reads, writes, iterators, scans | [`Table`], [`TableOptions`], [`ReadOptions`], [`ScanOptions`] |
//! | how durable a write is | [`Durability`] |
//! | transactions | [`Database::begin`], [`Transaction`], [`IsolationLevel`]; rows that all change: [`Transaction::get_for_update`] |
//! | secondary indexes | [`Database::create_index`], [`IndexOptions`], [`Index`] |
//! | materialised views | [`Database::create_view`], [`ViewOptions`], [`View`] |
//! | rows that expire | [`TableOptions::expiry`], [`Database::set_expiry`], [`Expiry`] |
//! | bulk loads | [`Table::ingest`], [`Table::ingest_batches`] |
//! | SQL, which reads | `Session` of the crate `mycelium-sql` |
//! | copies that open on their own | [`Database::checkpoint`] |
//! | backups that share files: made, listed, verified, restored, deleted | [`Database::backup`], [`Backups`] |
//! | checks of what is stored | [`Database::verify`], [`verify_directory`], [`VerifyReport`] |
//! | what is left of a damaged database | [`salvage`], [`SalvageOptions`], [`SalvageReport`] |
//! | what an error asks for | [`Error`], [`ErrorKind`] |
//! | how rows are stored by level: column groups, row formats | [`Layout`], [`RowFormatDefinition`], [`Database::set_layout`], [`transform`] |
//! | columns that come later and go, other names for them | [`Database::add_column`], [`Database::drop_column`], [`Database::rename_column`], [`Column`] |
//! | rows, columns, values | [`Schema`], [`ColumnType`], [`Datum`], [`DatumRef`], [`rows`], [`filter`] |
//! | other disks: in memory, failing on purpose | [`disk`] |
//! | what a table is asked for, and the layout that calls for | [`Table::trace`], [`Table::advise`], [`advisor`] |
//! | what the engine tells while it works | [`events`], [`Metrics`], [`Metrics::to_prometheus`]; log lines by the crate `tracing` |
//!
//! # Coming from RocksDB
//!
//! | there | here |
//! |---|---|
//! | column family | [`Table`]: one log, batches over several tables, options of its own |
//! | `WriteOptions::sync` | [`Durability`] of each write; [`Database::sync`] makes everything before it durable |
//! | `MultiGet` | [`Table::multi_get`], [`Table::get_rows`] |
//! | iterator bounds, prefix iteration | [`ReadOptions::lower`], [`ReadOptions::upper`], [`ReadOptions::prefix`]: exact with and without a prefix filter, there is no `total_order_seek` |
//! | `prefix_extractor`, `whole_key_filtering` | [`TableOptions::prefix_filter`]: the first columns of the key, or so many first bytes, beside whole keys; nothing to be set for a read. Indexes have it of their columns |
//! | `DeleteRange` | [`Table::delete_range`] |
//! | merge operator | [`Combiner`], given in [`Options::merge_operators`], named in [`TableOptions::merge_operator`] |
//! | `IngestExternalFile` | [`Table::ingest`]: rows in key order, no file to be written first |
//! | checkpoint | [`Database::checkpoint`] |
//! | `BackupEngine::CreateNewBackup` | [`Database::backup`]: incremental; the rate limit is the database's |
//! | `GetBackupInfo`, `VerifyBackup`, `RestoreDBFromBackup` | [`Backups::list`], [`Backups::verify`], [`Backups::restore`] into an empty directory |
//! | `PurgeOldBackups`, `DeleteBackup`, `GarbageCollect` | [`Backups::keep`], [`Backups::delete`]; what interrupted calls left goes with the next one |
//! | `GetProperty`, statistics | [`Database::metrics`], [`Table::get_with`] and [`TableIterator::counters`] for single reads |
//! | event listener, info log | [`Options::listener`]; `tracing`, which a program subscribes to or not |
//! | secondary instance, `TryCatchUpWithPrimary` | [`Options::read_only`], [`Database::catch_up`]; snapshots from before stay |
//! | `OptimisticTransactionDB` | [`Database::begin`]: a conflict is [`ErrorKind::Conflict`], to be tried again |
//! | `TransactionDB`, `GetForUpdate` | [`Transaction::get_for_update`], [`Transaction::lock`], of any transaction: exclusive, and needed only where rows are hot. Writes take no lock; who wrote without one is found at commit |
//! | `GetForUpdate` after `SetSnapshot` | the same: the snapshot moves if nothing changed that was read and noted, else the call fails with [`ErrorKind::Conflict`] |
//! | `lock_timeout`, `max_num_locks`, `deadlock_detect` | [`TransactionOptions::lock_timeout`], [`TransactionOptions::lock_limit`] for each transaction; deadlocks are always looked for: [`ErrorKind::Deadlock`] |
//! | `UndoGetForUpdate`, shared locks, range locks | none; [`Transaction::rollback_to`] lets go of what was locked since the savepoint |
//! | `SetSavePoint`, `RollbackToSavePoint`, `PopSavePoint` | [`Transaction::savepoint`], [`Transaction::rollback_to`], [`Transaction::release`] |
//! | `RepairDB` | [`salvage`]: into another directory, and rows that may be outdated are left out unless asked for; without a manifest files say where they belong. [`verify_directory`] says what is wrong, [`RecoveryMode::PointInTime`] opens up to a damaged log |
//! | `DBWithTTL` | [`TableOptions::expiry`], [`Database::set_expiry`]: by a column of the row and not by when it was written, of typed tables; rows go in transactions, at one sequence number in the table, its indexes and its views, and older snapshots keep them |
//! | `write_buffer_size`, `db_write_buffer_size` | [`Options::memory_budget`], of all tables together |
//! | block cache, `cache_index_and_filter_blocks` | [`Options::cache_bytes`], which holds these too; [`Options::index_and_filter_bytes`] sets them apart |
//! | `max_background_jobs`, `max_subcompactions`, rate limiter | [`Options::background`], [`Options::subcompactions`], [`Options::rate_limit_bytes_per_second`] |
//! | `level0_slowdown_writes_trigger` and its kin | [`Options::slowdown_level0_runs`], [`Options::stop_level0_runs`], [`Options::slowdown_debt_bytes`]; [`Metrics::slowed_bytes_per_second`] |
//! | `compression_per_level` | [`TableOptions::compression`]: none unless asked for |
//! | universal compaction | [`Policy::Tiered`]; by level of a typed table, [`Layout`] |
//! | `disableWAL` | none: [`Durability::Buffered`] makes a system call only when the log's buffer is full; bulk loads pass the log |
//! | WAL archiving, `WAL_ttl_seconds` | [`Options::archive`], for restores to a moment: [`Backups::restore_to`]. No `GetUpdatesSince` |
//! | `SetOptions` | of a table layout and expiry change, the rest stays; those of a database are given at each opening |
//! | `Env`, `FileSystem` | [`Options::disk`], [`disk`] |
//! | compaction filter | none: it would drop rows unforeseeably, and before snapshots, indexes and views are told; for old rows there is [`Expiry`] |
//! | user timestamps, comparators, remote compaction | none |
//!
//! # Coming from DuckDB
//!
//! | there | here |
//! |---|---|
//! | `CREATE TABLE` | [`Database::create_typed_table`] with a [`Schema`], or `mycelium create`; a primary key is part of it |
//! | `INSERT`, appender | [`Table::insert_row`], [`WriteBatch::insert_row`]: row by row, each as durable as is asked for. A row of the same key is replaced, as by `INSERT OR REPLACE` |
//! | `UPDATE`, `DELETE` | [`Table::patch_row`], [`Table::delete_row`], by key; [`Table::delete_range`]. SQL only reads |
//! | `COPY … FROM`, Arrow | [`Table::ingest_batches`] of rows in key order, or `mycelium load` of CSV, JSON lines and Arrow IPC; no Parquet |
//! | `SELECT` | the crate `mycelium-sql`, or `mycelium sql`; [`Table::scan_batches`] with a [`filter`] for columns of one table |
//! | one process that writes | threads of one process, all at once; [`Database::begin`] where they read what they write |
//! | processes that read, if none writes | [`Options::read_only`] beside a writer, [`Database::catch_up`] |
//! | row groups, min-max indexes, compression by column | columnar groups ([`Layout`]): blocks with zones, each column encoded by what it holds; below level 0 unless another layout is asked for |
//! | `CREATE INDEX`, `UNIQUE` | [`Database::create_index`], [`IndexOptions::unique`]; exact at every snapshot, created while the table is in use |
//! | a table that a job fills with a `GROUP BY` at night | [`Database::create_view`]: count, sum, minimum and maximum, exact at every snapshot |
//! | `ALTER TABLE` of columns | [`Database::add_column`], [`Database::drop_column`], [`Database::rename_column`]; none changes its type |
//! | `EXPORT DATABASE`, a copy of the file | [`Database::backup`], [`Database::checkpoint`] of a database in use |
//! | `memory_limit` | [`Options::memory_budget`] and [`Options::cache_bytes`]; of SQL `SET datafusion.runtime.memory_limit` |
//! | lists, structs, enums, 128-bit integers, `CHECK`, foreign keys, sequences | none; see [`ColumnType`] |
//!
//! Record batches are those of `arrow-array` 59.
//!
//! All handles are cheap to clone and may be used from any thread; an iterator belongs to one thread at a time.

pub use mycelium_base::{ColumnSet, Group, GroupFormat, RowFormatKind};
pub use mycelium_encoding::{
    Aggregate, Aggregation, Column, ColumnType, Datum, DatumRef, Schema, TextArrays, TimeUnit,
};
pub use mycelium_engine::*;

/// What reshapes data inside compactions: descriptions of transformers, and the layouts they link to.
pub mod transform {
    pub use mycelium_base::Operation;
    pub use mycelium_transform::*;
}

/// What rows of a scan must pass: [`crate::ScanOptions::filter`].
///
/// ```
/// use mycelium::filter::{ColumnTest, Filter, Test};
/// use mycelium::{Database, Datum, DatumRef, Durability, Options, ScanOptions, Schema, TableOptions};
/// use mycelium::disk::MemoryDisk;
/// use std::sync::Arc;
///
/// let database = Database::open("db", Options { disk: Arc::new(MemoryDisk::new()), ..Options::default() })?;
/// let schema = Schema::parse("id int64 not null, name utf8, primary key (id)")?;
/// let people = database.create_typed_table("people", schema, TableOptions::default())?;
/// for (id, name) in [(1, "Ada"), (2, "Grace"), (3, "Adele")] {
///     people.insert_row(&[DatumRef::Int64(id), DatumRef::Utf8(name)], Durability::Os)?;
/// }
/// let filter = Filter { conjuncts: vec![ColumnTest { column: 1, test: Test::Prefix(b"Ad".to_vec()) }] };
/// let found = people.scan_batches(ScanOptions { filter: Some(filter), ..ScanOptions::default() })?;
/// let rows: Result<Vec<_>, _> = found.map(|batch| batch.map(|batch| batch.num_rows())).collect();
/// assert_eq!(rows?.iter().sum::<usize>(), 2);
///
/// // A value that is not of the column's type is refused, not never found.
/// let filter = Filter { conjuncts: vec![ColumnTest { column: 1, test: Test::Equal(Datum::Int64(1)) }] };
/// assert!(people.scan_batches(ScanOptions { filter: Some(filter), ..ScanOptions::default() }).is_err());
/// # Ok::<(), mycelium::Error>(())
/// ```
pub mod filter {
    pub use mycelium_encoding::page::{ColumnTest, Filter, Test};
}

/// The disk that a database stands on: [`crate::Options::disk`].
pub mod disk {
    pub use mycelium_vfs::{
        AccessPattern, CrashDraw, CrashMode, Disk, Effect, Fault, FaultDisk, FileFilter, FileLock, LocalDisk,
        MemoryDisk, Operation, OperationKind, ReadableFile, Throttle, WritableFile,
    };
}

/// Rows as bytes: order-preserving keys, the packed row format, Arrow record batches of both. For callers that encode
/// many rows themselves and put them with [`crate::WriteBatch::put`] and [`crate::WriteBatch::patch`].
pub mod rows {
    pub use mycelium_encoding::key::{
        decode_key, encode_key, encode_key_prefix, encode_row_key, key_text, prefix_successor,
    };
    pub use mycelium_encoding::row_format::RowScratch;
    pub use mycelium_encoding::{
        BatchRows, ColumnState, FragmentFormat, PackedLayout, PackedRow, RecordBatchBuilder, RowFormat,
    };
}

/// The example of the README, tested like any other.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Those of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
