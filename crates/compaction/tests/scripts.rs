//! Runs the scripts of `testdata/*.txt` and compares what they print. `UPDATE=1 cargo test` rewrites the expectations.
//!
//! A script is a list of blocks, separated by blank lines: a command line, input lines, `----`, and the output.
//!
//! ```text
//! leveled level0_trigger=2 target=10MB ...   sets the policy (tiered likewise)
//! shaped columns=6 trigger=2 ...             the same for a layout, whose text is the input
//! define                                     the version, in its text form; prints its levels
//! run L0:9,8 L1:4 -> L1                      a compaction that is running
//! pick | scores | targets | debt             asks the policy
//! rest                                       asks for what is done at rest
//! pick-all                                   picks and starts until nothing is left; then forgets the started ones
//! range [a-k] force | level 1 [a-k]          manual compactions (range and force optional)
//! finish 20:[a-c]#1-9 10MB ...               installs the last pick with these outputs, prints the version
//! move                                       installs the last pick as a trivial move, prints the version
//! cut aligned|fixed target=100 entry=10      cuts entries with the keys given as input, prints the outputs; keys=d,k are the
//!                                            cut keys of the output level
//! split parts=3 min=10 borders=d,k           subcompaction cuts for samples given as `key size` lines
//! ```

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use mycelium_base::{ColumnSet, TableId};
use mycelium_compaction::{
    AlignedPartitioner, BusyFiles, CompactionPlan, CompactionPolicy, Deferral, FixedPartitioner, KeySample,
    LeveledOptions, LeveledPolicy, Partitioner, PickPriority, PlanInput, ShapedPolicy, TieredOptions, TieredPolicy,
    subcompaction_cuts,
};
use mycelium_manifest::text::{format_size, parse_range, parse_size};
use mycelium_manifest::{FileMeta, KeyRange, Layout, RunPlace, Version, VersionEdit};

const TABLE: TableId = TableId(0);

struct Session {
    policy: Box<dyn CompactionPolicy>,
    leveled: LeveledOptions,
    deferral: Option<Deferral>,
    version: Version,
    busy: BusyFiles,
    last: Option<CompactionPlan>,
}

#[test]
fn scripts() {
    let folder = Path::new("testdata");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let update = std::env::var_os("UPDATE").is_some();
    let mut blocks = 0;
    let mut failures = String::new();
    for path in paths {
        let old = std::fs::read_to_string(&path).unwrap();
        let new = run_script(&old, &mut blocks);
        if update {
            std::fs::write(&path, new).unwrap();
        } else if old != new {
            let (line, (was, is)) =
                old.lines().zip(new.lines()).enumerate().find(|(_, (a, b))| a != b).unwrap_or_default();
            writeln!(failures, "{}:{}: expected {was:?}, got {is:?}", path.display(), line + 1).unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(blocks >= 60, "only {blocks} blocks ran");
}

fn run_script(text: &str, blocks: &mut usize) -> String {
    let mut session = Session {
        policy: Box::new(LeveledPolicy::default()),
        leveled: LeveledOptions::default(),
        deferral: None,
        version: Version::new(),
        busy: BusyFiles::new(),
        last: None,
    };
    let mut out = Vec::new();
    for block in text.trim_end().split("\n\n") {
        let (head, output) = match block.split_once("\n----") {
            Some((head, _)) => (head, true),
            None => (block, false),
        };
        if !output {
            out.push(head.to_owned());
            continue;
        }
        *blocks += 1;
        let body: Vec<&str> = head.lines().filter(|l| !l.starts_with('#')).collect();
        let answer = session.run(body[0], &body[1..].join("\n"));
        let answer = if answer.is_empty() { "ok" } else { answer.trim_end() };
        out.push(format!("{head}\n----\n{answer}"));
    }
    out.join("\n\n") + "\n"
}

/// `files,debt,percent`.
fn parse_deferral(limits: &str) -> Deferral {
    let parts: Vec<&str> = limits.split(',').collect();
    Deferral {
        level0_files: parts[0].parse().unwrap(),
        debt_bytes: parse_size(parts[1]).unwrap(),
        limit_percent: parts[2].parse().unwrap(),
    }
}

impl Session {
    fn run(&mut self, command: &str, input: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[0] {
            "leveled" => self.set_leveled(&words[1..]),
            "tiered" => self.set_tiered(&words[1..]),
            "shaped" => self.set_shaped(&words[1..], input),
            "define" => self.define(input),
            "run" => self.start(&words[1..]),
            "pick" => {
                self.last = self.policy.pick(TABLE, &self.version, &self.busy);
                show(self.last.as_ref())
            }
            "rest" => {
                self.last = self.policy.pick_at_rest(TABLE, &self.version, &self.busy);
                show(self.last.as_ref())
            }
            "pick-all" => self.pick_all(),
            "scores" => {
                let scores = self.policy.scores(&self.version);
                let lines = scores.iter().enumerate().filter(|(_, s)| **s > 0.0);
                lines.map(|(level, s)| format!("L{level} {s:.2}\n")).collect()
            }
            "targets" => {
                let targets = LeveledPolicy::new(self.leveled).targets(&self.version);
                let mut text = format!("base level {}\n", targets.base_level);
                for (level, &bytes) in targets.bytes.iter().enumerate().filter(|(_, b)| **b != u64::MAX) {
                    writeln!(text, "L{level} {}", format_size(bytes)).unwrap();
                }
                text
            }
            "debt" => format_size(self.policy.debt_bytes(&self.version)),
            "range" => {
                let range = words.get(1).filter(|w| w.starts_with('[')).map(|w| parse_range(w).unwrap());
                let force = words.contains(&"force");
                self.last = self.policy.pick_range(TABLE, &self.version, &self.busy, range.as_ref(), force);
                show(self.last.as_ref())
            }
            "level" => {
                let level = words[1].parse().unwrap();
                let range = words.get(2).map(|w| parse_range(w).unwrap());
                self.last = self.policy.pick_level(TABLE, &self.version, &self.busy, level, range.as_ref());
                show(self.last.as_ref())
            }
            "finish" => {
                let outputs = Version::parse(&format!("L1: {}", command["finish".len()..].trim())).unwrap();
                let outputs: Vec<Arc<FileMeta>> = outputs.level(1).files().cloned().collect();
                let plan = self.last.take().unwrap();
                self.install(&plan, plan.install_edit(outputs))
            }
            "move" => {
                let plan = self.last.take().unwrap();
                assert!(plan.is_trivial_move);
                self.install(&plan, plan.move_edit())
            }
            "cut" => cut(&words[1..], input),
            "split" => split(&words[1..], input),
            other => panic!("unknown command {other:?}"),
        }
    }

    fn set_shaped(&mut self, words: &[&str], layout: &str) -> String {
        let columns = words[0].strip_prefix("columns=").unwrap().parse().unwrap();
        self.set_leveled(&words[1..]);
        match Layout::parse(layout, &ColumnSet::first(columns)) {
            Ok(layout) => {
                let policy = ShapedPolicy::new(Arc::new(layout), self.leveled);
                self.policy = Box::new(match self.deferral {
                    Some(deferral) => policy.deferring(deferral),
                    None => policy,
                });
            }
            Err(error) => return format!("error: {error}"),
        }
        String::new()
    }

    fn set_leveled(&mut self, words: &[&str]) -> String {
        let mut options = LeveledOptions { level_count: 7, ..LeveledOptions::default() };
        self.deferral = None;
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("trigger", n) => options.level0_trigger = n.parse().unwrap(),
                ("pileup", n) => options.level0_pileup = n.parse().unwrap(),
                ("base", size) => options.base_level_bytes = parse_size(size).unwrap(),
                ("fanout", f) => options.fanout = f.parse().unwrap(),
                ("levels", n) => options.level_count = n.parse().unwrap(),
                ("target", size) => options.target_file_size = parse_size(size).unwrap(),
                ("max", size) => options.max_compaction_bytes = parse_size(size).unwrap(),
                ("static", _) => options.dynamic_levels = false,
                ("defer", limits) => self.deferral = Some(parse_deferral(limits)),
                ("min-overlap", _) => options.priority = PickPriority::MinOverlap,
                ("oldest-first", _) => options.priority = PickPriority::OldestFirst,
                ("largest-first", _) => options.priority = PickPriority::LargestFirst,
                other => panic!("unknown option {other:?}"),
            }
        }
        self.leveled = options;
        self.policy = Box::new(LeveledPolicy::new(options));
        self.busy = BusyFiles::new();
        String::new()
    }

    fn set_tiered(&mut self, words: &[&str]) -> String {
        let mut options = TieredOptions::default();
        for word in words {
            match word.split_once('=').unwrap() {
                ("runs", n) => options.runs_per_level = n.parse().unwrap(),
                ("levels", n) => options.level_count = n.parse().unwrap(),
                ("space", n) => options.max_space_amplification_percent = n.parse().unwrap(),
                ("target", size) => options.target_file_size = parse_size(size).unwrap(),
                other => panic!("unknown option {other:?}"),
            }
        }
        self.policy = Box::new(TieredPolicy::new(options));
        self.busy = BusyFiles::new();
        String::new()
    }

    fn define(&mut self, input: &str) -> String {
        self.version = Version::parse(input).unwrap();
        self.busy = BusyFiles::new();
        if let Err(error) = self.version.check() {
            return format!("error: {error}");
        }
        let levels = self.version.levels.iter().enumerate().filter(|(_, l)| !l.is_empty());
        levels.map(|(level, l)| format!("L{level} {}\n", format_size(l.bytes()))).collect()
    }

    /// `L0:9,8 L1:4 -> L1`
    fn start(&mut self, words: &[&str]) -> String {
        let arrow = words.iter().position(|w| *w == "->").unwrap();
        let output_level = words[arrow + 1].trim_start_matches('L').parse().unwrap();
        let mut inputs = Vec::new();
        for word in &words[..arrow] {
            let (_, numbers) = word.split_once(':').unwrap();
            for number in numbers.split(',') {
                let (level, run, file) = self.version.find(number.parse().unwrap()).unwrap();
                inputs.push(PlanInput { level, run, files: vec![file.clone()] });
            }
        }
        let range = KeyRange::hull(inputs.iter().flat_map(|i| &i.files).map(|f| &**f)).unwrap();
        let plan = CompactionPlan {
            table: TABLE,
            inputs,
            output_level,
            output_place: RunPlace::Newest,
            outputs: vec![None],
            range,
            grandparents: Vec::new(),
            cut_keys: Vec::new(),
            older: Vec::new(),
            is_deferring: false,
            is_trivial_move: false,
            used_segments: Vec::new(),
            reason: mycelium_compaction::Reason::Manual,
            score: 0.0,
            target_file_size: 0,
            max_grandparent_bytes: 0,
        };
        self.busy.start(&plan);
        String::new()
    }

    fn pick_all(&mut self) -> String {
        let mut text = String::new();
        let mut started = Vec::new();
        while let Some(plan) = self.policy.pick(TABLE, &self.version, &self.busy) {
            started.push(self.busy.start(&plan));
            text += &show(Some(&plan));
        }
        for job in started {
            self.busy.finish(job);
        }
        text
    }

    fn install(&mut self, plan: &CompactionPlan, mut edit: VersionEdit) -> String {
        let completed = self.policy.complete(&self.version, plan, &mut edit);
        match completed.and_then(|()| self.version.apply(TABLE, &edit)) {
            Ok(version) => {
                version.check().unwrap();
                self.version = version;
                self.version.to_string()
            }
            Err(error) => format!("error: {error}"),
        }
    }
}

fn show(plan: Option<&CompactionPlan>) -> String {
    plan.map_or("nothing".into(), CompactionPlan::to_string) + "\n"
}

/// Cuts entries of equal size: input line 1 the keys, line 2 (optional) the grandparents.
fn cut(words: &[&str], input: &str) -> String {
    let (mut target, mut entry, mut max, mut cut_keys) = (0, 0, u64::MAX, Vec::new());
    for word in &words[1..] {
        match word.split_once('=').unwrap() {
            ("target", n) => target = parse_size(n).unwrap(),
            ("entry", n) => entry = parse_size(n).unwrap(),
            ("max", n) => max = parse_size(n).unwrap(),
            ("keys", list) => cut_keys = list.split(',').map(|key| key.as_bytes().to_vec()).collect(),
            other => panic!("unknown option {other:?}"),
        }
    }
    let mut lines = input.lines();
    let keys: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let grandparents = lines.next().map(|l| Version::parse(&format!("L1: {l}")).unwrap()).unwrap_or_default();
    let grandparents: Vec<Arc<FileMeta>> = grandparents.level(1).files().cloned().collect();
    let mut partitioner: Box<dyn Partitioner> = match words[0] {
        "aligned" => Box::new(AlignedPartitioner::new(target, grandparents).with_cut_keys(cut_keys)),
        _ => Box::new(FixedPartitioner::new(target).with_grandparents(grandparents, max)),
    };
    let mut outputs: Vec<Vec<&str>> = Vec::new();
    let mut size = 0;
    for key in keys {
        if outputs.is_empty() || partitioner.should_cut(key.as_bytes(), size) {
            outputs.push(Vec::new());
            size = 0;
        }
        outputs.last_mut().unwrap().push(key);
        size += entry;
    }
    outputs.iter().map(|keys| format!("{}\n", keys.join(" "))).collect()
}

fn split(words: &[&str], input: &str) -> String {
    let (mut parts, mut min, mut borders) = (1, 0, Vec::new());
    for word in words {
        match word.split_once('=').unwrap() {
            ("parts", n) => parts = n.parse().unwrap(),
            ("min", n) => min = parse_size(n).unwrap(),
            ("borders", list) => borders = list.split(',').map(str::as_bytes).collect(),
            other => panic!("unknown option {other:?}"),
        }
    }
    let samples = input.lines().map(|line| {
        let (key, size) = line.split_once(' ').unwrap();
        KeySample { key: key.into(), bytes: parse_size(size).unwrap() }
    });
    let cuts = subcompaction_cuts(samples.collect(), parts, min, &borders);
    let cuts: Vec<String> = cuts.into_iter().map(|c| String::from_utf8(c).unwrap()).collect();
    if cuts.is_empty() { "one part".into() } else { cuts.join(" ") }
}
