//! What the process that is killed writes, so that whoever killed it knows what to expect.
//!
//! Each writer has its own keys: one that holds the number of its last batch, and forty rows of which batch `n` sets
//! row `n mod 40` and deletes row `n mod 40 + 7` if `n` is divisible by five. What a writer's rows are after batch `n`
//! follows from `n` alone.

use std::collections::BTreeMap;

use mycelium_engine::{
    Background, Durability, LeveledOptions, Options, Policy, ReadOptions, Result, Snapshot, Table, TableOptions,
    WriteBatch,
};

/// The table's name.
pub const TABLE: &str = "rows";
const ROWS: u64 = 40;

/// Options under which a second of writing passes through flushes and compactions.
pub fn options() -> Options {
    Options {
        memory_budget: 128 << 10,
        cache_bytes: 64 << 10,
        background: Background::Threads(2),
        ..Options::default()
    }
}

/// As small as the options.
pub fn table_options() -> TableOptions {
    TableOptions {
        policy: Policy::Leveled(LeveledOptions {
            base_level_bytes: 128 << 10,
            target_file_size: 32 << 10,
            fanout: 4.0,
            ..LeveledOptions::default()
        }),
        ..TableOptions::default()
    }
}

fn key(writer: u64, row: u64) -> Vec<u8> {
    format!("writer{writer:03}/row{row:03}").into_bytes()
}

fn last_key(writer: u64) -> Vec<u8> {
    format!("writer{writer:03}/last").into_bytes()
}

fn value(writer: u64, number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    let length = 8 + (number.wrapping_mul(0x9e37_79b9) >> 7) % 200;
    value.resize(length as usize, (writer ^ number) as u8);
    value
}

/// How strongly a batch is written; the one in charge of the oracle computes the same.
pub fn durability(writer: u64, number: u64, seed: u64) -> Durability {
    match (seed ^ writer.wrapping_mul(31) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 20 & 7 {
        0..3 => Durability::Buffered,
        3..6 => Durability::Os,
        _ => Durability::Sync,
    }
}

/// Batch `number` of a writer.
pub fn batch(table: &Table, writer: u64, number: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(table, &last_key(writer), &number.to_le_bytes());
    batch.put(table, &key(writer, number % ROWS), &value(writer, number));
    if number.is_multiple_of(5) {
        batch.delete(table, &key(writer, (number + 7) % ROWS));
    }
    batch
}

/// The rows of a writer after its batch `number`.
fn rows_after(writer: u64, number: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    // Older batches are overwritten by these.
    for n in number.saturating_sub(2 * ROWS).max(1)..=number {
        rows.insert(key(writer, n % ROWS), value(writer, n));
        if n.is_multiple_of(5) {
            rows.remove(&key(writer, (n + 7) % ROWS));
        }
    }
    if number > 0 {
        rows.insert(last_key(writer), number.to_le_bytes().to_vec());
    }
    rows
}

/// The number of a writer's last batch in the table; 0 if there is none.
pub fn last_batch(table: &Table, writer: u64) -> Result<u64> {
    let found = table.get(&last_key(writer))?;
    Ok(found.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?))).unwrap_or(0))
}

/// Whether a writer's rows are those of whole batches up to its last: what is wrong, if not.
///
/// # Errors
/// Those of reading.
pub fn check_rows(table: &Table, writer: u64, options: &ReadOptions) -> Result<Result<u64, String>> {
    let prefix = format!("writer{writer:03}/").into_bytes();
    let mut found = BTreeMap::new();
    let mut rows = table.iter(&ReadOptions { prefix: Some(prefix), ..options.clone() })?;
    rows.seek_to_first()?;
    while rows.valid() {
        found.insert(rows.key().to_vec(), rows.value().to_vec());
        rows.next()?;
    }
    let last =
        found.get(&last_key(writer)).and_then(|bytes| Some(u64::from_le_bytes(bytes.as_slice().try_into().ok()?)));
    let last = last.unwrap_or(0);
    Ok(match found == rows_after(writer, last) {
        true => Ok(last),
        false => Err(format!("writer {writer}: the rows are not those after batch {last}")),
    })
}

/// As [`check_rows`], at a snapshot, and by point reads too: what is wrong, if anything.
///
/// # Errors
/// Those of reading.
pub fn check_snapshot(table: &Table, writer: u64, snapshot: &Snapshot) -> Result<Option<String>> {
    let options = ReadOptions::at(snapshot);
    let last = match check_rows(table, writer, &options)? {
        Ok(last) => last,
        Err(wrong) => return Ok(Some(wrong)),
    };
    let mut counters = mycelium_engine::ReadCounters::default();
    let row = last % ROWS;
    let got = table.get_with(&key(writer, row), &options, &mut counters)?;
    let expected = rows_after(writer, last).remove(&key(writer, row));
    Ok((got != expected).then(|| format!("writer {writer}: get of row {row} differs from the scan")))
}
