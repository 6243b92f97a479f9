//! What the engine's tests share: small options, whole scans, a merge operator.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mycelium_engine::{
    Background, Combiner, Compression, Database, Durability, Layout, LeveledOptions, Options, Policy, ReadOptions,
    Result, Table, TableOptions,
};
use mycelium_vfs::{Disk, MemoryDisk};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small database whose jobs the test runs.
pub fn small_options(disk: &MemoryDisk) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        memory_budget: 64 << 10,
        cache_bytes: 256 << 10,
        background: Background::Manual,
        ..Options::default()
    }
}

/// Packed rows of these columns at every level, which is not the default.
pub fn rows_at_every_level(columns: &str) -> Option<Layout> {
    Some(Layout::parse("L0 tiered: * packed\nL1 leveled: * packed", &columns.parse().unwrap()).unwrap())
}

/// Levels and files so small that a few thousand rows fill several.
pub fn small_table() -> TableOptions {
    TableOptions {
        policy: Policy::Leveled(LeveledOptions {
            base_level_bytes: 64 << 10,
            target_file_size: 16 << 10,
            fanout: 4.0,
            ..LeveledOptions::default()
        }),
        block_size: 512,
        compression: vec![Compression::None, Compression::Lz4],
        ..TableOptions::default()
    }
}

pub fn scan_with(table: &Table, options: &ReadOptions) -> Rows {
    let mut rows = table.iter(options).unwrap();
    rows.seek_to_first().unwrap();
    let mut found = Rows::new();
    while rows.valid() {
        found.insert(rows.key().to_vec(), rows.value().to_vec());
        rows.next().unwrap();
    }
    found
}

/// The last sequence number of a database that was restored, and the rows of its table `t`. It is verified, and
/// removed.
pub fn take_restored(disk: &MemoryDisk, directory: &Path) -> Result<(u64, Rows)> {
    let database = Database::open(directory, Options { create_if_missing: false, ..small_options(disk) })?;
    assert_verified(&database);
    let found = (database.last_sequence(), scan(&database.table("t")?));
    database.close()?;
    for name in disk.list(directory)? {
        disk.remove(&directory.join(name))?;
    }
    Ok(found)
}

pub fn scan(table: &Table) -> Rows {
    scan_with(table, &ReadOptions::default())
}

pub fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// Puts the rows `from..to`, whose values begin with `mark`.
pub fn fill(table: &Table, from: u32, to: u32, mark: &str) {
    for n in from..to {
        table.put(&key(n), format!("{mark}{n}").as_bytes(), Durability::Os).unwrap();
    }
}

/// Fails with the first fault if there is one.
pub fn assert_verified(database: &Database) {
    let report = database.verify(|done, total| assert!(done <= total)).unwrap();
    assert!(report.is_ok(), "{:#?}", report.problems);
}

/// A merge operator that appends operands.
pub struct Append;

impl Combiner for Append {
    fn apply(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(Some([base.unwrap_or_default(), &operands.concat()].concat()))
    }

    fn fuse(&self, _: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        Ok(Some(operands.concat()))
    }

    fn name(&self) -> &str {
        "append"
    }
}
