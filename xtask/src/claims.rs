//! Measures claims again.
//!
//! 1. Selects claims by id or by area (any leading part of an id that ends at a dot).
//! 2. Runs each distinct command once, its output shown as it comes, however many claims take a figure from it.
//! 3. Extracts every figure, prints it against bar and aim, and with `--update` writes it back with date and machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use serde_json::Value;

use crate::registry::{Bar, Claim, Measured, Registry};
use crate::{Error, Result};

/// Arguments of `cargo xtask claims`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Ids, or areas such as `engine` or `engine.load`; all claims if none is given.
    selection: Vec<String>,
    /// Print the registry and measure nothing.
    #[arg(long)]
    list: bool,
    /// Write the measured figures back to claims.toml.
    #[arg(long)]
    update: bool,
    /// Keep the reports that the figures are taken from in this directory, each named after its first claim: what
    /// `mycelium bench --redraw REPORT --svg-dir docs/plots` draws.
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
}

/// What one command gave.
struct Outcome {
    exit: Option<i32>,
    stdout: String,
    json: Option<Value>,
}

/// Fails if a claim falls short or could not be measured.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let path = root.join("claims.toml");
    let registry = Registry::read(&path)?;
    let selected: Vec<usize> =
        (0..registry.claims.len()).filter(|&at| is_selected(&registry.claims[at].id, &arguments.selection)).collect();
    if selected.is_empty() {
        return Err("no claim has such an id or area; --list shows them all".into());
    }
    if arguments.list {
        let mut text = String::new();
        for &at in &selected {
            let claim = &registry.claims[at];
            let figure = claim.last.as_ref().map(|last| last.figure);
            text += &format!("{}\n    {}\n", row(claim, figure), claim.sentence);
            if let Some(last) = &claim.last {
                text += &format!("    measured {} on {}\n", last.date, last.machine);
            }
        }
        return match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        };
    }
    let claims = selected.iter().map(|&at| &registry.claims[at]);
    let outcomes = match &arguments.reports {
        Some(reports) => measure(root, claims, reports)?,
        None => {
            let directory = std::env::temp_dir().join(format!("mycelium-claims-{}", std::process::id()));
            let outcomes = measure(root, claims, &directory)?;
            fs::remove_dir_all(&directory)?;
            outcomes
        }
    };
    let (date, machine) = (today()?, machine());
    let (mut measured, mut short) = (BTreeMap::new(), 0);
    println!();
    for at in selected {
        let claim = &registry.claims[at];
        match outcomes.get(&claim.command).ok_or_else(|| "not run".into()).and_then(|outcome| figure(claim, outcome)) {
            Ok(figure) => {
                println!("{}", row(claim, Some(figure)));
                short += usize::from(!claim.bar.parse::<Bar>()?.is_met(figure));
                let last = Measured { figure, date: date.clone(), machine: machine.clone() };
                measured.insert(claim.id.clone(), last);
            }
            Err(error) => {
                println!("{}    {error}", row(claim, None));
                short += 1;
            }
        }
    }
    if arguments.update {
        // Read once more: measuring takes hours, and the registry may have been edited meanwhile.
        let mut registry = Registry::read(&path)?;
        registry.record(measured);
        registry.write(&path)?;
    }
    if short > 0 {
        return Err(format!("{short} claims fall short or could not be measured").into());
    }
    Ok(())
}

fn is_selected(id: &str, selection: &[String]) -> bool {
    let matches = |wanted: &String| {
        id.strip_prefix(wanted.trim_end_matches('.')).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    selection.is_empty() || selection.iter().any(matches)
}

/// Runs the commands of claims, whose reports go to this directory.
fn measure<'a>(
    root: &Path,
    claims: impl Iterator<Item = &'a Claim>,
    reports: &Path,
) -> Result<BTreeMap<Vec<String>, Outcome>> {
    let mut users: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for claim in claims {
        users.entry(claim.command.clone()).or_default().push(&claim.id);
    }
    fs::create_dir_all(reports)?;
    let reports = fs::canonicalize(reports)?;
    let mut outcomes = BTreeMap::new();
    let count = users.len();
    for (number, (command, ids)) in users.into_iter().enumerate() {
        println!("[{}/{count}] {}\n        for {}", number + 1, command.join(" "), ids.join(", "));
        let started = Instant::now();
        let report = reports.join(format!("{}.json", ids[0]));
        // One of an earlier run says nothing of this one.
        fs::remove_file(&report).ok();
        let outcome = run_command(root, &command, &report)?;
        println!("[{}/{count}] {:.0} s", number + 1, started.elapsed().as_secs_f64());
        outcomes.insert(command, outcome);
    }
    Ok(outcomes)
}

fn run_command(root: &Path, command: &[String], json: &PathBuf) -> Result<Outcome> {
    let words: Vec<String> = command.iter().map(|word| word.replace("{json}", &json.to_string_lossy())).collect();
    let (program, arguments) = words.split_first().ok_or("an empty command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {program}: {error}"))?;
    let mut stdout = String::new();
    if let Some(pipe) = child.stdout.take() {
        for line in BufReader::new(pipe).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("    {line}");
            stdout.push_str(&line);
            stdout.push('\n');
        }
    }
    let status = child.wait()?;
    let json = match fs::read(json) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes)?),
        Err(_) => None,
    };
    Ok(Outcome { exit: status.code(), stdout, json })
}

fn figure(claim: &Claim, outcome: &Outcome) -> Result<f64> {
    if claim.figure == "exit" {
        return outcome.exit.map(f64::from).ok_or_else(|| "ended by a signal".into());
    }
    if outcome.exit != Some(0) {
        return Err(format!("the command failed ({:?})", outcome.exit).into());
    }
    if let Some(marker) = claim.figure.strip_prefix("stdout: ") {
        return sum_after(&outcome.stdout, marker)
            .ok_or_else(|| format!("the output has no number after {marker:?}").into());
    }
    let value = outcome.json.as_ref().and_then(|json| json.pointer(&claim.figure));
    value.and_then(Value::as_f64).ok_or_else(|| Error::from(format!("no number at {}", claim.figure)))
}

/// The sum of the numbers after each `marker`; thousands may be set off by commas.
fn sum_after(text: &str, marker: &str) -> Option<f64> {
    let mut sum = None;
    for (at, _) in text.match_indices(marker) {
        let rest = text[at + marker.len()..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.' && c != '-').unwrap_or(rest.len());
        let digits = rest[..end].replace(',', "");
        if let Ok(number) = digits.trim_end_matches('.').parse::<f64>() {
            sum = Some(sum.unwrap_or(0.0) + number);
        }
    }
    sum
}

fn row(claim: &Claim, figure: Option<f64>) -> String {
    let met = |bar: &str| figure.and_then(|figure| Some(bar.parse::<Bar>().ok()?.is_met(figure)));
    let verdict = match (met(&claim.bar), claim.aim.as_deref().map(met)) {
        (None, _) => "not measured",
        (Some(false), _) => "SHORT",
        (Some(true), Some(Some(false))) => "bar met, aim missed",
        (Some(true), _) => "met",
    };
    let figure = figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.3}"));
    let aim = claim.aim.as_deref().unwrap_or("");
    format!("{:<44} {figure:>10} {:<4} bar {:<9} aim {aim:<9} {verdict}", claim.id, claim.unit, claim.bar)
}

fn today() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = sum_after(memory.lines().next().unwrap_or(""), "MemTotal:").unwrap_or(0.0);
    format!("{cores} x {}, {:.0} GiB", model.trim_start_matches([' ', '\t', ':']), kib / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(figure: &str) -> Claim {
        Claim {
            id: "engine.load.100b".to_owned(),
            sentence: String::new(),
            command: vec!["true".to_owned()],
            figure: figure.to_owned(),
            bar: ">= 1.0".to_owned(),
            aim: Some(">= 1.7".to_owned()),
            unit: "x".to_owned(),
            last: None,
        }
    }

    #[test]
    fn figures_come_from_json_output_or_exit_status() {
        let json = serde_json::json!({ "ratios": { "a.b/c": 1.5 } });
        let stdout = "crash points: 5,312, lost: 2\nmore, lost: 1,000.\n".to_owned();
        let outcome = Outcome { exit: Some(0), stdout, json: Some(json) };
        for (source, expected) in
            [("/ratios/a.b~1c", 1.5), ("stdout: lost:", 1002.0), ("stdout: crash points:", 5312.0), ("exit", 0.0)]
        {
            assert_eq!(figure(&claim(source), &outcome).expect("figure"), expected, "{source}");
        }
        assert!(figure(&claim("/ratios"), &outcome).is_err() && figure(&claim("stdout: none"), &outcome).is_err());
        let failed = Outcome { exit: Some(1), ..outcome };
        assert!(figure(&claim("stdout: lost:"), &failed).is_err());
        assert_eq!(figure(&claim("exit"), &failed).expect("figure"), 1.0);
    }

    #[test]
    fn areas_select_whole_parts_of_ids() {
        let select = |wanted: &str| is_selected("engine.load.100b", &[wanted.to_owned()]);
        assert!(select("engine") && select("engine.load") && select("engine.load.100b") && select("engine."));
        assert!(!select("eng") && !select("engine.loa") && !select("engine.load.100b.more"));
        assert!(is_selected("engine.load.100b", &[]));
    }

    #[test]
    fn rows_tell_bar_from_aim() {
        for (figure, verdict) in
            [(None, "not measured"), (Some(0.9), "SHORT"), (Some(1.2), "aim missed"), (Some(1.8), "met")]
        {
            assert!(row(&claim("exit"), figure).ends_with(verdict));
        }
    }
}
