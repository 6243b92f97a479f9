//! What keeps a database: an archive of its log, backups that share files, a restore to the moment before a mistake, a
//! checkpoint, verification, metrics and events.
//!
//! ```sh
//! cargo run --example operations
//! ```

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use mycelium::disk::LocalDisk;
use mycelium::events::{Event, EventListener};
use mycelium::{
    ArchiveOptions, Backups, Database, Durability, Options, ReadOptions, RestoreOptions, RestorePoint, Result, Table,
    TableOptions, verify_directory,
};

/// Hands events to a thread that has time for them: a listener must be quick, and must not call the database.
struct Forward(Sender<Event>);

impl EventListener for Forward {
    fn on_event(&self, event: &Event) {
        // Nobody listens any more: nothing to do.
        drop(self.0.send(event.clone()));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let [home, archive, backups, restored, copy] =
        ["db", "log", "backups", "restored", "copy"].map(|name| directory.path().join(name));
    let (sender, events) = mpsc::channel();
    let options = Options {
        // At every opening for writing: no restore passes what was written without it.
        archive: Some(ArchiveOptions::new(&archive)),
        listener: Some(Arc::new(Forward(sender))),
        ..Options::default()
    };
    let database = Database::open(&home, options)?;
    let accounts = database.create_table("accounts", TableOptions::default())?;
    accounts.put(b"Ada", b"90", Durability::Sync)?;

    // A backup of a database in use; the next one copies only files that no earlier one has.
    let backup = database.backup(&backups)?;
    println!("backup {}: {} files, {} copied", backup.number, backup.files, backup.copied);

    let good = accounts.put(b"Grace", b"10", Durability::Sync)?;
    accounts.delete_range(b"A", b"Z", Durability::Sync)?;
    assert_eq!(count(&accounts)?, 0);

    // Back to the moment before the mistake: the backup, the archive, and what the database has not archived yet.
    let shelf = Backups::open(Arc::new(LocalDisk), &backups)?;
    let until = RestorePoint::Sequence(good);
    let request = RestoreOptions { until, log: Some(home.clone()), ..RestoreOptions::default() };
    let summary = shelf.restore_to(&archive, &restored, &request, |_done, _total| {})?;
    println!("restored backup {} and {} batches after it", summary.backup, summary.batches);
    let before = Database::open(&restored, Options::default())?;
    assert_eq!(before.table("accounts")?.get(b"Grace")?.as_deref(), Some(&b"10"[..]));
    before.close()?;

    // A checkpoint is a database of its own, which shares files by hard links where it can.
    accounts.put(b"Ada", b"91", Durability::Sync)?;
    database.checkpoint(&copy)?;
    let read_only = Options { read_only: true, ..Options::default() };
    assert_eq!(count(&Database::open(&copy, read_only)?.table("accounts")?)?, 1);

    // Everything on the disk against everything that is known of it: while the database is open, and without opening.
    assert!(database.verify(|_done, _total| {})?.is_ok());
    let report = verify_directory(&LocalDisk, &copy, |_done, _total| {})?;
    println!("the copy has {} files, {} of them damaged", report.files, report.problem_count);
    assert!(shelf.verify(None, |_done, _total| {})?.is_ok());

    // For whoever serves them to Prometheus; the engine opens no port.
    let page = database.metrics().to_prometheus();
    for line in page.lines().filter(|line| line.starts_with("mycelium_stops") || line.contains("debt_bytes{")) {
        println!("{line}");
    }
    assert!(page.contains("\nmycelium_archive_failures_total 0\n"));

    accounts.put(b"Ada", b"92", Durability::Os)?;
    database.flush()?;
    let flushed = events.iter().any(|event| matches!(event, Event::FlushEnd { .. }));
    println!("a flush was told: {flushed}");
    assert!(flushed);
    // Of backups the newest few stay, and of the archive what a restore of these needs.
    println!("deleted {:?}", shelf.keep(7)?.numbers);
    shelf.prune_archive(&archive)?;
    database.close()?;
    Ok(())
}

/// How many rows a table has.
fn count(table: &Table) -> Result<usize> {
    let mut rows = table.iter(&ReadOptions::default())?;
    let mut count = 0;
    rows.seek_to_first()?;
    while rows.valid() {
        count += 1;
        rows.next()?;
    }
    Ok(count)
}

#[test]
fn a_mistake_is_undone_as_the_example_says() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
