//! `mycelium bench` with every workload, on stores of a few thousand rows: nothing is measured here, only that it runs,
//! checks its own answers and reports every phase.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use mycelium_bench::workloads::Workload;
use serde_json::Value;

/// Runs `mycelium bench` with tiny sizes; its stores lie in `home`.
fn bench(home: &Path, workloads: &[String], more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mycelium"))
        .arg("bench")
        .args(workloads)
        .args(["--entries", "2000", "--seconds", "0.02", "--warmup-seconds", "0", "--cache-mib", "1"])
        .args(["--write-buffer-mib", "1", "--directory", "stores"])
        .args(more)
        .current_dir(home)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Every name once, each fill before what reads its rows. Deletes come last: a store does not forgive a missing row.
fn every_workload() -> Vec<String> {
    let (fills, rest): (Vec<_>, Vec<_>) = Workload::names().partition(|name| name.starts_with("fill"));
    let (deletes, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|name| name.starts_with("delete"));
    fills.into_iter().chain(rest).chain(deletes).map(str::to_owned).collect()
}

#[test]
fn every_workload_runs_and_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let workloads = every_workload();
    let output = bench(home.path(), &workloads, &["--json", "--json-file", "report.json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 3, "one for each fill");
    let mut reported = Vec::new();
    for scenario in scenarios {
        for run in scenario["runs"].as_array().unwrap() {
            assert_eq!(run["failure"], Value::Null);
            for phase in run["groups"].as_array().unwrap().iter().flat_map(|group| group["phases"].as_array().unwrap())
            {
                let name = phase["phase"].as_str().unwrap().to_owned();
                assert!(phase["operations"].as_u64().unwrap() > 0, "{name}");
                let rate = &scenario["figures"]["mycelium"][format!("{name}.rate")]["median"];
                assert!(rate.as_f64().unwrap() > 0.0, "{name}");
                reported.push(name);
            }
        }
    }
    assert_eq!(reported, workloads);
    let file: Value = serde_json::from_slice(&std::fs::read(home.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(file, report);
    let left: Vec<_> = std::fs::read_dir(home.path().join("stores")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_report_is_a_table_without_json_and_wrong_workloads_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let output = bench(home.path(), &["fillseq".to_owned(), "scan@2".to_owned()], &["--no-isolation"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("fillseq") && text.contains("scan@2"), "{text}");
    for wrong in ["scan", "nonsense", "fillseq@0"] {
        let output = bench(home.path(), &[wrong.to_owned()], &[]);
        assert!(!output.status.success() && !output.stderr.is_empty(), "{wrong}");
    }
}

#[test]
fn what_cannot_be_run_is_wrong_usage() {
    let home = tempfile::tempdir().unwrap();
    for (workloads, more) in
        [(&["nonsense"][..], &[][..]), (&["fillseq"], &["--seconds=-1"]), (&["fillseq"], &["--seconds=nan"])]
    {
        let names: Vec<String> = workloads.iter().map(|name| (*name).to_owned()).collect();
        let output = Command::new(env!("CARGO_BIN_EXE_mycelium"))
            .arg("bench")
            .args(&names)
            .args(more)
            .current_dir(home.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
