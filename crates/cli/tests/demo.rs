//! The demo, unattended: exit 0, every check ok, and the commands it suggests work.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use serde_json::Value;

fn mycelium(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mycelium")).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_demo_checks_itself_and_leaves_a_database_to_look_at() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("it's here");
    let path = directory.to_str().unwrap();
    let (ok, text) = mycelium(&["demo", "--plain", "--directory", path]);
    assert!(ok, "{text}");
    assert!(text.contains("checks ok") && !text.contains("FAILED") && !text.contains("WRONG"), "{text}");
    let months = text.lines().filter(|line| line.contains("answers ok")).count();
    assert_eq!(months, 14, "twelve months and two held snapshots\n{text}");

    // As pasted into a shell.
    let commands: Vec<&str> = text.lines().skip_while(|line| *line != "Look further:").skip(1).collect();
    assert!(commands.len() >= 5, "{text}");
    for command in commands {
        let output = Command::new("sh").args(["-c", command.trim()]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{command}");
    }
    let (ok, count) = mycelium(&["scan", path, "flights", "--count", "--json"]);
    assert!(ok && count.contains("336776"), "{count}");

    // January alone, over what the first run left; as JSON.
    let data = "../../data/nycflights13/flights.csv.zst";
    let year = zstd::decode_all(&std::fs::read(data).unwrap()[..]).unwrap();
    let january: Vec<u8> = year.split_inclusive(|&byte| byte == b'\n').take(1 + 27_004).flatten().copied().collect();
    let file = home.path().join("january.csv.zst");
    std::fs::write(&file, zstd::encode_all(&january[..], 1).unwrap()).unwrap();
    let (ok, text) = mycelium(&["demo", "--json", "--directory", path, "--data", file.to_str().unwrap()]);
    assert!(ok, "{text}");
    let summary: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(summary["answers"]["totals"]["flights"], 27_004);
    let checks = summary["checks"].as_array().unwrap();
    assert!(checks.len() >= 9 && checks.iter().all(|check| check["ok"] == true), "{checks:?}");

    std::fs::write(home.path().join("mine.txt"), "mine").unwrap();
    let (ok, text) = mycelium(&["demo", "--plain", "--directory", home.path().to_str().unwrap()]);
    assert!(!ok && text.contains("the demo did not make it"), "{text}");
}
