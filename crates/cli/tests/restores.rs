//! The real binary restores to a moment between two backups. Assertions are on `--json` output.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use mycelium::{ArchiveOptions, Database, Durability, Options, TableOptions};
use serde_json::Value;

fn run(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mycelium")).args(args).arg("--json").current_dir(home).output().unwrap()
}

/// The JSON object of a command that must succeed.
fn one(home: &Path, args: &[&str]) -> Value {
    let output = run(home, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The exit code and the message of a command that must fail.
fn failure(home: &Path, args: &[&str]) -> (i32, String) {
    let output = run(home, args);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_backup_is_restored_to_a_moment_after_it_and_the_archive_pruned() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let archive = Some(ArchiveOptions::new(home.join("log")));
    let database = Database::open(home.join("db"), Options { archive, ..Options::default() }).unwrap();
    let table = database.create_table("t", TableOptions::default()).unwrap();
    table.put(b"a", b"1", Durability::Os).unwrap();
    database.backup(home.join("backups")).unwrap();
    let wanted = table.put(b"b", b"2", Durability::Os).unwrap();
    table.put(b"c", b"3", Durability::Os).unwrap();
    let restore = ["backup", "restore", "backups"];
    let number = wanted.to_string();
    let until = ["there", "--archive", "log", "--log", "db", "--until", number.as_str()];
    let there = one(home, &[&restore[..], &until].concat());
    assert_eq!((&there["backup"], &there["batches"], &there["sequence"]), (&1.into(), &1.into(), &wanted.into()));
    assert!(there["time"].as_str().unwrap().ends_with('Z') && there["ended_by"].is_null());
    assert_eq!(one(home, &["scan", "there", "t", "--count"])["rows"], 2);
    one(home, &[&restore[..], &["end", "--archive", "log", "--log", "db"]].concat());
    assert_eq!(one(home, &["scan", "end", "t", "--count"])["rows"], 3);

    database.flush().unwrap();
    drop(table);
    database.close().unwrap();
    let beyond = ["--archive", "log", "--until", "99"];
    assert_eq!(failure(home, &[&restore[..], &["none"], &beyond].concat()).0, 1);
    assert!(!home.join("none").join("CURRENT").exists());
    let (code, message) = failure(home, &[&restore[..], &["some"], &beyond, &["--as-far-as-possible"]].concat());
    assert!(code == 1 && message.contains("the log ends"), "{code}: {message}");
    assert_eq!(one(home, &["scan", "some", "t", "--count"])["rows"], 3);
    let early = ["early", "--archive", "log", "--until", "1999-12-31T23:59:59Z"];
    assert_eq!(failure(home, &[&restore[..], &early].concat()).0, 1);
    assert_eq!(one(home, &["backup", "prune", "backups", "log"])["segments"], 1);
}
