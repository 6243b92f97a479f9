//! Keys and values, for who knows RocksDB: column families are tables, and batches, snapshots, iterators with bounds, a
//! merge operator and transactions are what they are there.
//!
//! ```sh
//! cargo run --example key_value
//! ```

use std::sync::Arc;
use std::time::Duration;

use mycelium::{
    Combiner, Database, Durability, Error, ErrorKind, IsolationLevel, Options, ReadOptions, Result, Table,
    TableOptions, TransactionOptions, WriteBatch,
};

/// A merge operator: a value is a number, and an operand is added to it.
struct Sum;

impl Combiner for Sum {
    fn apply(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        sum(base.into_iter().chain(operands.iter().copied()))
    }

    fn fuse(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        sum(operands.iter().copied())
    }

    fn name(&self) -> &str {
        "example.sum"
    }
}

fn sum<'b>(numbers: impl Iterator<Item = &'b [u8]>) -> Result<Option<Vec<u8>>> {
    let total = numbers.map(number).try_fold(0_u64, |total, number| number.map(|number| total.wrapping_add(number)))?;
    Ok(Some(total.to_be_bytes().to_vec()))
}

fn number(bytes: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = bytes.try_into().map_err(|_| Error::invalid("a number has eight bytes"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    // Merge operators go by their names: whoever opens the database must bring those that its tables name.
    let options = Options { merge_operators: vec![Arc::new(Sum)], ..Options::default() };
    let database = Database::open(directory.path().join("db"), options)?;
    let users = database.create_table("users", TableOptions::default())?;
    let summed = TableOptions { merge_operator: Some("example.sum".into()), ..TableOptions::default() };
    let visits = database.create_table("visits", summed)?;

    // All of a batch or nothing, in both tables; on the disk when `write` returns.
    let mut batch = WriteBatch::new();
    batch.put(&users, b"user/1", b"Ada").put(&users, b"user/2", b"Grace").put(&users, b"zone/1", b"Graz");
    batch.merge(&visits, b"user/1", &2_u64.to_be_bytes());
    database.write(&batch, Durability::Sync)?;
    visits.merge(b"user/1", &3_u64.to_be_bytes(), Durability::Os)?;
    let counted = visits.get(b"user/1")?.as_deref().map(number).transpose()?;
    println!("visits of user/1: {counted:?}");
    assert_eq!(counted, Some(5));

    // A snapshot reads the same, whatever is written after it.
    let before = database.snapshot();
    users.delete_range(b"user/", b"user0", Durability::Os)?;
    assert_eq!(users.multi_get(&[b"user/1", b"zone/1"], &ReadOptions::default())?, [None, Some(b"Graz".to_vec())]);
    let prefix = ReadOptions { prefix: Some(b"user/".to_vec()), ..ReadOptions::at(&before) };
    let mut rows = users.iter(&prefix)?;
    rows.seek_to_last()?;
    while rows.valid() {
        println!("{}: {}", String::from_utf8_lossy(rows.key()), String::from_utf8_lossy(rows.value()));
        rows.prev()?;
    }

    first_committer_wins(&database, &users)?;
    let mut numbers = take_numbers(&database, &users)?;
    numbers.sort_unstable();
    println!("numbers taken: {numbers:?}");
    assert_eq!(numbers, [1, 2, 3, 4]);
    database.close()?;
    Ok(())
}

/// Two transactions change one row, neither waits: who commits second is told, and would begin anew.
fn first_committer_wins(database: &Database, users: &Table) -> Result<()> {
    let mut first = database.begin(IsolationLevel::Serializable);
    let mut second = database.begin(IsolationLevel::Serializable);
    first.put(users, b"user/1", b"Ada Lovelace")?;
    second.put(users, b"user/1", b"Ada King")?;
    first.commit(Durability::Sync)?;
    let lost = second.commit(Durability::Sync).map_err(|error| error.kind());
    println!("the second commit: {lost:?}");
    assert_eq!(lost, Err(ErrorKind::Conflict));
    Ok(())
}

/// A row that everybody changes is read for update: turns are taken, and nobody loses.
fn take_numbers(database: &Database, counters: &Table) -> Result<Vec<u64>> {
    let take = || {
        let lock_timeout = Duration::from_secs(30);
        let mut transaction = database.begin_with(TransactionOptions { lock_timeout, ..TransactionOptions::default() });
        let last = transaction.get_for_update(counters, b"last number")?.as_deref().map(number).transpose()?;
        let next = last.unwrap_or(0) + 1;
        transaction.put(counters, b"last number", &next.to_be_bytes())?;
        transaction.commit(Durability::Os).map(|_| next)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    })
}

#[test]
fn keys_and_values_are_as_the_example_says() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
