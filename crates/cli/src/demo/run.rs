//! `mycelium demo`, from the first line to the last.
//!
//! 1. Read the flights and make the database.
//! 2. Replay (see [`super::replay`]) while this thread shows how it goes: a live view, or a line a month.
//! 3. Let flush and compaction finish, read the held snapshots and the final rows again, check everything, sum up.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use console::Term;
use hdrhistogram::Histogram;
use mycelium::{Metrics, Snapshot};

use super::answers::{Answers, Content};
use super::directory;
use super::event_time::EventTime;
use super::flight::Flight;
use super::held_snapshot::HeldSnapshot;
use super::oracle::Oracle;
use super::questions::{Analyst, Times};
use super::replay::{Finding, Occasion, Replay, Stop, lock};
use super::store::Store;
use super::stream::{EMBEDDED, operations, read_flights};
use super::summary::{Check, QuestionTime, Summary, check_answers, check_content};
use super::view::{LiveState, Look, Screen};
use crate::args::DemoArgs;
use crate::commands::durability;
use crate::failure::{Failure, FailureKind};
use crate::input;
use crate::output::Output;
use crate::render::levels::{GroupStats, LevelStats, TreeStats, utf8_locale};
use crate::render::units;

/// Time between two frames.
const FRAME: Duration = Duration::from_millis(200);

/// Runs the demo; fails if a check does.
pub(crate) fn run(args: &DemoArgs, out: &mut Output) -> Result<(), Failure> {
    if !(args.seconds >= 0.0 && args.seconds <= 1e6) {
        return Err(Failure::usage("--seconds must be between 0 and a million"));
    }
    let mut screen = if args.plain || out.is_json() { None } else { Screen::open() };
    let flights = flights_of(args)?;
    let operations = operations(&flights);
    let Some(last) = operations.last().map(|operation| operation.time()) else {
        return Err(Failure::input("the data hold no flights"));
    };
    let oracle = Oracle::new(&flights);
    directory::prepare(&args.directory)?;
    let store = Store::create(&args.directory)?;
    let analyst = Analyst::new(&store.database)?;
    let replay = Replay {
        store: &store,
        analyst: &analyst,
        flights: &flights,
        operations: &operations,
        oracle: &oracle,
        durability: durability(args.durability),
        live: screen.is_some(),
        pace: Duration::from_secs_f64(args.seconds),
        started: Instant::now(),
        written: AtomicU64::new(0),
        now: AtomicI64::new(0),
        stop: Stop::default(),
        live_wanted: AtomicBool::new(false),
        latencies: Mutex::new(histogram()?),
        wrong_reads: AtomicU64::new(0),
    };
    if screen.is_none() && !out.is_json() {
        announce(&replay, &args.directory, out)?;
    }
    let mut show = Show {
        replay: &replay,
        held: Vec::new(),
        latest: None,
        times: Vec::new(),
        checks: (0, 0),
        rate: Rate::default(),
    };
    let seconds = show.replay_all(&mut screen, out)?;
    drop(screen);
    let summary = show.sum_up(&args.directory, last, seconds)?;
    print(&summary, out)?;
    drop(show);
    drop(replay);
    store.database.close()?;
    if summary.all_ok() { Ok(()) } else { Err(Failure::new(FailureKind::Negative, "a check of the demo failed")) }
}

fn flights_of(args: &DemoArgs) -> Result<Vec<Flight>, Failure> {
    let Some(path) = &args.data else { return read_flights(EMBEDDED) };
    read_flights(input::open(path)?.0).map_err(|failure| failure.of_input(&path.display().to_string()))
}

fn announce(replay: &Replay<'_>, directory: &Path, out: &mut Output) -> Result<(), Failure> {
    out.line(format_args!(
        "{} operations of {} flights into {}",
        units::count(replay.operations.len() as u64),
        units::count(replay.flights.len() as u64),
        directory.display()
    ))?;
    out.flush()
}

fn histogram() -> Result<Histogram<u64>, Failure> {
    // Up to a minute, three significant digits.
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|error| Failure::usage(error.to_string()))
}

fn print(summary: &Summary, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.object(summary);
    }
    let terminal = Term::stdout();
    let width = if terminal.is_term() { usize::from(terminal.size().1).max(60) } else { 100 };
    let colours = terminal.is_term() && console::colors_enabled();
    out.line("")?;
    out.line(summary.text(width, &Look::of_terminal(colours, !utf8_locale())).trim_end())
}

/// A snapshot that is held, with what it was found to be when it was taken.
struct Held {
    name: &'static str,
    snapshot: Snapshot,
    answers: Answers,
    expected: Answers,
    content: Content,
}

/// Operations a second over the last second or so.
#[derive(Default)]
struct Rate {
    last: Option<(Instant, u64)>,
    smoothed: f64,
}

impl Rate {
    fn update(&mut self, operations: u64) -> f64 {
        let now = Instant::now();
        if let Some((at, before)) = self.last.replace((now, operations)) {
            let seconds = now.duration_since(at).as_secs_f64().max(1e-6);
            let rate = operations.saturating_sub(before) as f64 / seconds;
            let weight = if self.smoothed == 0.0 { 1.0 } else { (seconds / 1.0).min(1.0) };
            self.smoothed += (rate - self.smoothed) * weight;
        }
        self.smoothed
    }
}

/// The main thread's side of the demo.
struct Show<'a> {
    replay: &'a Replay<'a>,
    held: Vec<Held>,
    latest: Option<Answers>,
    /// How long the questions took that were asked while the stream was being written.
    times: Vec<Times>,
    /// Answers compared so far, and how many of them were wrong.
    checks: (u64, u64),
    rate: Rate,
}

impl Show<'_> {
    /// Replays the stream and shows it; the seconds from the first write to the last.
    fn replay_all(&mut self, screen: &mut Option<Screen>, out: &mut Output) -> Result<f64, Failure> {
        let replay = self.replay;
        let (to_analyst, moments) = channel();
        let (to_show, findings) = channel();
        thread::scope(|scope| {
            // Whoever fails stops the others; the channels close as their senders end.
            let guarded = |result: Result<(), Failure>| result.inspect_err(|_| replay.stop.set());
            let writer = scope.spawn(move || {
                let result = guarded(replay.write(to_analyst));
                (result, replay.started.elapsed().as_secs_f64())
            });
            let analyst = scope.spawn(move || guarded(replay.analyse(&moments, &to_show)));
            let reader = scope.spawn(move || guarded(replay.read_points()));
            let shown = self.show(&findings, screen, out);
            replay.stop.set();
            drop(findings);
            let (written, seconds) = joined(writer.join())?;
            written?;
            joined(analyst.join())??;
            joined(reader.join())??;
            shown.map(|()| seconds)
        })
    }

    /// Shows findings until there are no more.
    fn show(
        &mut self,
        findings: &Receiver<Finding>,
        screen: &mut Option<Screen>,
        out: &mut Output,
    ) -> Result<(), Failure> {
        loop {
            match findings.recv_timeout(FRAME) {
                Ok(finding) => self.take(finding, screen.is_none(), out)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Some(screen) = screen {
                screen.draw(&self.state());
            }
        }
        Ok(())
    }

    fn take(&mut self, finding: Finding, plain: bool, out: &mut Output) -> Result<(), Failure> {
        let Finding { occasion, position, snapshot, answers, expected, content, times } = finding;
        self.times.extend(times);
        let agreement = answers.agreement(&expected);
        self.checks.0 += agreement.len() as u64;
        self.checks.1 += agreement.iter().filter(|ok| !**ok).count() as u64;
        if plain && !out.is_json() {
            let note = match occasion {
                Occasion::Held(name) => format!("  {name} snapshot taken and held"),
                _ => String::new(),
            };
            let verdict = if agreement.contains(&false) { "answers WRONG" } else { "answers ok" };
            out.line(format_args!("{}  {verdict}{note}", self.plain_line(&answers, position)))?;
            out.flush()?;
        }
        self.latest = Some(answers.clone());
        if let Occasion::Held(name) = occasion {
            self.held.push(Held { name, snapshot, answers, expected, content });
        }
        Ok(())
    }

    fn plain_line(&self, answers: &Answers, position: usize) -> String {
        let latencies = lock(&self.replay.latencies);
        format!(
            "{}  {:>9} operations  {:>5} in the air  {:>7} flights  reads p50 {} p99 {}",
            answers.at,
            units::count(position as u64),
            answers.in_the_air.len(),
            units::count(answers.totals.flights),
            units::nanoseconds(latencies.value_at_quantile(0.5)),
            units::nanoseconds(latencies.value_at_quantile(0.99)),
        )
    }

    fn state(&mut self) -> LiveState {
        let replay = self.replay;
        let metrics = replay.store.database.metrics();
        let written = replay.written.load(Ordering::Relaxed);
        let latencies = lock(&replay.latencies);
        LiveState {
            now: (written > 0).then(|| EventTime(replay.now.load(Ordering::Relaxed))),
            operations: (written, replay.operations.len() as u64),
            rate: self.rate.update(written),
            elapsed: replay.started.elapsed(),
            reads: latencies.len(),
            read_p50: latencies.value_at_quantile(0.5),
            read_p99: latencies.value_at_quantile(0.99),
            stalls: metrics.slowdowns + metrics.stops,
            stalled: Duration::from_secs_f64(metrics.slowdown_seconds + metrics.stop_seconds),
            tree: tree(&metrics),
            snapshots: self.held.iter().filter_map(|held| held_snapshot(held, &metrics)).collect(),
            answers: self.latest.clone(),
            checks: self.checks,
        }
    }

    /// Settles the tree, reads everything again and checks it.
    fn sum_up(&mut self, directory: &Path, last: EventTime, seconds: f64) -> Result<Summary, Failure> {
        let replay = self.replay;
        let (store, oracle) = (replay.store, replay.oracle);
        store.database.flush()?;
        store.database.wait_idle()?;
        let metrics = store.database.metrics();
        let mut checks = Vec::new();
        for held in &self.held {
            let at = held.answers.at;
            let (answers, _) = replay.analyst.ask(&held.snapshot, at)?;
            let content = store.content(&held.snapshot)?;
            checks.extend(check_answers(held.name, &answers, &held.expected));
            checks.extend(check_content(held.name, held.content, content, oracle.content(at)));
            checks.push(Check::new(
                format!("{} snapshot: metrics show its age and what it pins", held.name),
                held_snapshot(held, &metrics).is_some_and(|held| held.age_seconds > 0.0 && held.entries_since > 0),
            ));
        }
        let end = store.database.snapshot();
        let (answers, _) = replay.analyst.ask(&end, last)?;
        let content = store.content(&end)?;
        checks.extend(check_answers("end", &answers, &oracle.answers(last)));
        checks.push(Check::new("end: all rows as computed from the CSV", content == oracle.content(last)));
        let (compared, wrong) = self.checks;
        checks.push(Check::new(format!("while loading: {compared} answers as computed from the CSV"), wrong == 0));
        let latencies = lock(&replay.latencies);
        let wrong_reads = replay.wrong_reads.load(Ordering::Relaxed);
        checks.push(Check::new(
            format!("while loading: {} point reads found what was written", units::count(latencies.len())),
            wrong_reads == 0,
        ));
        let questions = QuestionTime::of(&self.times);
        Ok(Summary {
            directory: directory.to_path_buf(),
            program: std::env::args().next().unwrap_or_else(|| "mycelium".to_owned()),
            operations: replay.operations.len() as u64,
            seconds,
            operations_per_second: replay.operations.len() as f64 / seconds.max(1e-9),
            point_reads: latencies.len(),
            point_read_p50_nanoseconds: latencies.value_at_quantile(0.5),
            point_read_p99_nanoseconds: latencies.value_at_quantile(0.99),
            stalls: metrics.slowdowns + metrics.stops,
            stalled_seconds: metrics.slowdown_seconds + metrics.stop_seconds,
            write_amplification: metrics.write_amplification,
            slowest_question_milliseconds: QuestionTime::slowest(&questions),
            questions,
            tree: tree(&metrics),
            snapshots: self.held.iter().filter_map(|held| held_snapshot(held, &metrics)).collect(),
            answers,
            checks,
        })
    }
}

fn joined<T>(result: thread::Result<T>) -> Result<T, Failure> {
    result.map_err(|_| Failure::new(FailureKind::Negative, "a thread of the demo panicked"))
}

/// What the engine's metrics say of a held snapshot.
fn held_snapshot(held: &Held, metrics: &Metrics) -> Option<HeldSnapshot> {
    let sequence = held.snapshot.sequence();
    let found = metrics.live_snapshots.iter().find(|found| found.sequence == sequence)?;
    Some(HeldSnapshot {
        name: held.name,
        taken_at: held.answers.at,
        sequence,
        age_seconds: found.seconds,
        entries_since: found.lag,
    })
}

/// The tree of table `flights`.
fn tree(metrics: &Metrics) -> TreeStats {
    let Some(table) = metrics.tables.iter().find(|table| table.name == "flights") else {
        return TreeStats::default();
    };
    let group = |group: &mycelium::GroupMetrics| GroupStats {
        group: crate::commands::layout::name(group),
        runs: group.runs as u64,
        files: group.files as u64,
        bytes: group.bytes,
    };
    let level = |level: &mycelium::LevelMetrics| LevelStats {
        level: level.level,
        runs: level.runs as u64,
        files: level.files as u64,
        bytes: level.bytes,
        entries: level.entries,
        groups: level.groups.iter().map(group).collect(),
    };
    TreeStats {
        memtables: 1 + metrics.sealed_generations as u64,
        memtable_bytes: table.memtable_bytes,
        levels: table.levels.iter().map(level).collect(),
        deferred_bytes: table.deferred_bytes,
    }
}
