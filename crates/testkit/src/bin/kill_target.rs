//! The process that the kill tests kill: writers and readers on one database, until somebody ends it.
//!
//! `kill_target DIRECTORY WRITERS READERS BATCHES SEED`: each writer commits numbered batches (0 is no limit) and
//! reports every acknowledged one in a line of its own, `ack WRITER NUMBER DURABILITY SEQUENCE`, written at once to the
//! standard output: what the kernel took over survives the process. Readers check that every snapshot holds whole
//! batches and end the process with status 9 if one does not. A refused write is reported as `refused WRITER NUMBER
//! KIND`; the process then goes on for a few writes, to show that nothing is acknowledged any more, and ends with
//! status 3. With one writer and a limit the whole process runs in one thread, so that system calls come in the same
//! order every time.

use std::io::Write;
use std::sync::Arc;

use mycelium_engine::{Background, Database, ErrorKind, Options, Result};
use mycelium_testkit::kill_script::{self, TABLE};
use mycelium_vfs::LocalDisk;

fn report(line: &str) {
    // One write per line: lines of several threads do not mix, and nothing waits in a buffer.
    if std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).is_err() {
        std::process::exit(4);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(directory), Some(writers), Some(readers), Some(batches), Some(seed)) =
        (arguments.first(), number(1), number(2), number(3), number(4))
    else {
        eprintln!("usage: kill_target DIRECTORY WRITERS READERS BATCHES SEED");
        std::process::exit(2);
    };
    match run(directory, writers, readers, batches, seed) {
        Ok(true) => report("end"),
        Ok(false) => std::process::exit(3),
        Err(error) => {
            report(&format!("error {error:?}"));
            std::process::exit(3);
        }
    }
}

fn run(directory: &str, writers: u64, readers: u64, batches: u64, seed: u64) -> Result<bool> {
    let single = writers == 1 && batches > 0;
    let options = Options { disk: Arc::new(LocalDisk), ..kill_script::options() };
    let options = Options { background: if single { Background::Manual } else { options.background }, ..options };
    let database = Database::open(directory, options)?;
    if database.table_names().is_empty() {
        database.create_table(TABLE, kill_script::table_options())?;
    }
    report("open");
    if single {
        let done = write(&database, 0, batches, seed, true)?;
        database.close()?;
        return Ok(done);
    }
    std::thread::scope(|scope| {
        for reader in 0..readers {
            let database = database.clone();
            scope.spawn(move || read(&database, writers, seed ^ reader));
        }
        let handles: Vec<_> = (0..writers)
            .map(|writer| {
                let database = database.clone();
                scope.spawn(move || write(&database, writer, batches, seed, false))
            })
            .collect();
        handles.into_iter().try_fold(true, |all, handle| match handle.join() {
            Ok(done) => Ok(all & done?),
            Err(_) => std::process::exit(9),
        })
    })
}

/// Whether all batches were acknowledged.
fn write(database: &Database, writer: u64, batches: u64, seed: u64, steps: bool) -> Result<bool> {
    let table = database.table(TABLE)?;
    let mut number = kill_script::last_batch(&table, writer)? + 1;
    let end = if batches == 0 { u64::MAX } else { number + batches };
    let mut refused = 0;
    while number < end {
        let durability = kill_script::durability(writer, number, seed);
        match database.write(&kill_script::batch(&table, writer, number), durability) {
            Ok(sequence) if refused > 0 => {
                report(&format!("late {writer} {number} {sequence}"));
                number += 1;
            }
            Ok(sequence) => {
                report(&format!("ack {writer} {number} {} {sequence}", durability as u8));
                number += 1;
            }
            Err(error) => {
                report(&format!("refused {writer} {number} {:?} {error}", error.kind()));
                refused += 1;
                // After a full disk the same batch is tried again; after anything else none must be acknowledged.
                let most = if error.kind() == ErrorKind::NoSpace { 50 } else { 5 };
                if refused > most {
                    return Ok(false);
                }
                if error.kind() != ErrorKind::NoSpace {
                    number += 1;
                } else {
                    refused = 0;
                }
            }
        }
        if steps && number.is_multiple_of(8) {
            // A failure of background work shows in the next write.
            drop(database.step());
        }
    }
    Ok(refused == 0)
}

fn read(database: &Database, writers: u64, seed: u64) {
    let check = || -> Result<()> {
        let table = database.table(TABLE)?;
        for round in seed.. {
            let snapshot = database.snapshot();
            if let Some(wrong) = kill_script::check_snapshot(&table, round % writers, &snapshot)? {
                report(&format!("wrong {wrong}"));
                std::process::exit(9);
            }
        }
        Ok(())
    };
    if let Err(error) = check() {
        report(&format!("reader: {error:?}"));
    }
}
