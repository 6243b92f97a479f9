//! What the demo reports at the end: figures, checks, where to look further. As text, and as one JSON object.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use super::answers::{Answers, Content, QUESTIONS};
use super::held_snapshot::HeldSnapshot;
use super::questions::Times;
use super::view::{Look, answer_lines};
use crate::render::levels::{TreeStats, draw};
use crate::render::units;

/// How long a question took in SQL while the stream was being written.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct QuestionTime {
    pub(crate) question: &'static str,
    pub(crate) asked: usize,
    pub(crate) median_milliseconds: f64,
    pub(crate) slowest_milliseconds: f64,
}

impl QuestionTime {
    /// Per question of [`QUESTIONS`]; none if none was asked in time.
    pub(crate) fn of(times: &[Times]) -> Vec<Self> {
        let of_question = |(at, &question): (usize, &&'static str)| {
            let mut sorted: Vec<_> = times.iter().map(|times| times[at].as_secs_f64() * 1e3).collect();
            sorted.sort_by(f64::total_cmp);
            let (median, slowest) = (*sorted.get(sorted.len() / 2)?, *sorted.last()?);
            Some(Self { question, asked: sorted.len(), median_milliseconds: median, slowest_milliseconds: slowest })
        };
        QUESTIONS.iter().enumerate().filter_map(of_question).collect()
    }

    /// The greatest of the medians.
    pub(crate) fn slowest(questions: &[Self]) -> f64 {
        questions.iter().map(|question| question.median_milliseconds).fold(0.0, f64::max)
    }
}

/// One comparison with the straight computation (or with an earlier reading).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) ok: bool,
}

impl Check {
    /// A check and its outcome.
    pub(crate) fn new(what: impl Into<String>, ok: bool) -> Self {
        Self { what: what.into(), ok }
    }
}

/// One check per question, of answers against the straight computation's.
pub(crate) fn check_answers(when: &str, found: &Answers, expected: &Answers) -> Vec<Check> {
    let agreement = found.agreement(expected);
    QUESTIONS.iter().zip(agreement).map(|(question, ok)| Check::new(format!("{when}: {question}"), ok)).collect()
}

/// The content of a snapshot at two readings, and what it must be.
pub(crate) fn check_content(name: &str, taken: Content, end: Content, expected: Content) -> [Check; 2] {
    [
        Check::new(format!("{name} snapshot, all rows: {end}, as when it was taken"), taken == end),
        Check::new(format!("{name} snapshot, all rows: as computed from the CSV"), end == expected),
    ]
}

/// The end of the demo.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) directory: PathBuf,
    /// How this program was called, for the commands to look further.
    #[serde(skip)]
    pub(crate) program: String,
    pub(crate) operations: u64,
    /// Wall time from the first write to the last, reads and checks beside it included.
    pub(crate) seconds: f64,
    pub(crate) operations_per_second: f64,
    pub(crate) point_reads: u64,
    pub(crate) point_read_p50_nanoseconds: u64,
    pub(crate) point_read_p99_nanoseconds: u64,
    pub(crate) stalls: u64,
    pub(crate) stalled_seconds: f64,
    /// Bytes written by WAL, flushes and compactions for each byte of entries.
    pub(crate) write_amplification: f64,
    /// In SQL, while the stream was being written.
    pub(crate) questions: Vec<QuestionTime>,
    /// The greatest of their medians.
    pub(crate) slowest_question_milliseconds: f64,
    pub(crate) tree: TreeStats,
    pub(crate) snapshots: Vec<HeldSnapshot>,
    pub(crate) answers: Answers,
    pub(crate) checks: Vec<Check>,
}

impl Summary {
    /// Whether every check passed.
    pub(crate) fn all_ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// The commands to look further.
    pub(crate) fn commands(&self) -> Vec<String> {
        let (program, path) = (quoted(&self.program), quoted(&self.directory.display().to_string()));
        vec![
            format!("{program} inspect levels {path} flights"),
            format!("{program} get {path} flights 2013 1 9 HA 51 900 JFK"),
            format!("{program} inspect key {path} flights 2013 1 9 HA 51 900 JFK"),
            format!("{program} scan {path} flights --prefix 2013,12,31 --columns dest,dep_delay --limit 10"),
            format!(
                "{program} scan {path} flights --index by_route --prefix EWR,TYS --columns carrier,flight,arr_delay"
            ),
            format!("{program} sql {path} -c \"SELECT carrier, avg(dep_delay) FROM flights GROUP BY carrier\""),
            format!("{program} layout {path} flights"),
            format!("{program} verify {path}"),
        ]
    }

    /// The text form.
    pub(crate) fn text(&self, width: usize, look: &Look) -> String {
        let mut out = String::new();
        let mut line = |text: &str| {
            out.push_str(text);
            out.push('\n');
        };
        line(&format!(
            "{} operations in {:.2} s: {} a second",
            units::count(self.operations),
            self.seconds,
            units::count(self.operations_per_second as u64)
        ));
        line(&format!(
            "{} point reads while writing: p50 {}, p99 {}",
            units::count(self.point_reads),
            units::nanoseconds(self.point_read_p50_nanoseconds),
            units::nanoseconds(self.point_read_p99_nanoseconds)
        ));
        line(&format!(
            "stalls {} ({:.2} s)   write amplification {:.2} (WAL included)",
            units::count(self.stalls),
            self.stalled_seconds,
            self.write_amplification
        ));
        line("");
        for QuestionTime { question, asked, median_milliseconds, slowest_milliseconds } in &self.questions {
            line(&format!(
                "SQL while writing: {question:<36} {median_milliseconds:>5.1} ms, slowest of {asked} {slowest_milliseconds:.1} ms"
            ));
        }
        line(&format!("slowest of these questions: {:.1} ms", self.slowest_question_milliseconds));
        line("");
        draw(&self.tree, width, look.is_ascii()).iter().for_each(|text| line(text));
        line("");
        answer_lines(&self.answers, look).iter().for_each(|text| line(text));
        line("");
        line("The rows and departures are real; the times of the inserts, arrivals and cancel marks are derived:");
        line(
            "schedule 3 h before departure, arrival at departure + air time + 20 min, cancel mark 30 min after schedule.",
        );
        line("");
        for snapshot in &self.snapshots {
            line(&format!(
                "{} snapshot of {}: held {:.1} s, keeps what {} newer entries supersede",
                snapshot.name,
                snapshot.taken_at,
                snapshot.age_seconds,
                units::count(snapshot.entries_since)
            ));
        }
        line("");
        self.check_lines(&mut out, look);
        out.push_str("\nLook further:\n");
        for command in self.commands() {
            let _infallible = writeln!(out, "  {command}");
        }
        out
    }

    fn check_lines(&self, out: &mut String, look: &Look) {
        for check in &self.checks {
            let verdict = if check.ok { "ok    ".to_owned() } else { look.bad("FAILED") };
            let _infallible = writeln!(out, "{verdict}  {}", check.what);
        }
        let failed = self.checks.iter().filter(|check| !check.ok).count();
        let _infallible = match failed {
            0 => writeln!(out, "all {} checks ok", self.checks.len()),
            _ => writeln!(out, "{}", look.bad(&format!("{failed} of {} checks FAILED", self.checks.len()))),
        };
    }
}

/// Quoted where the shell would take the text apart.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if text.bytes().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::answers::snapshot_times;
    use super::super::oracle::Oracle;
    use super::super::stream::test_flights;
    use super::*;

    #[test]
    fn a_wrong_answer_fails_its_check_and_no_other() {
        let flights = test_flights();
        let oracle = Oracle::new(flights);
        let (name, at) = snapshot_times()[0];
        let expected = oracle.answers(at);
        let mut found = expected.clone();
        found.worst_routes.swap(3, 4);
        let content = oracle.content(at);
        let mut checks = check_answers(name, &found, &expected);
        checks.extend(check_content(name, content, content, content));
        let failed: Vec<_> = checks.iter().filter(|check| !check.ok).map(|check| check.what.as_str()).collect();
        assert_eq!(failed, ["July: ten worst routes"]);

        let summary = Summary {
            directory: PathBuf::from("/tmp/it's here"),
            program: "target/release/mycelium".into(),
            operations: 1_001_615,
            seconds: 4.0,
            operations_per_second: 250_403.75,
            point_reads: 10,
            point_read_p50_nanoseconds: 1,
            point_read_p99_nanoseconds: 2,
            stalls: 0,
            stalled_seconds: 0.0,
            write_amplification: 2.5,
            slowest_question_milliseconds: 5.0,
            questions: QuestionTime::of(&[[Duration::from_millis(3); 7], [Duration::from_millis(5); 7]]),
            tree: TreeStats::default(),
            snapshots: Vec::new(),
            answers: found,
            checks,
        };
        assert!(!summary.all_ok());
        let text = summary.text(100, &Look::of_terminal(false, true));
        assert!(text.contains("FAILED  July: ten worst routes\n") && text.contains("1 of 9 checks FAILED"), "{text}");
        assert!(text.contains(r"target/release/mycelium verify '/tmp/it'\''s here'"), "{text}");
        let json = serde_json::to_value(&summary).expect("plain data");
        assert_eq!(json["checks"][3]["ok"], false);
        assert_eq!(json["questions"][6]["slowest_milliseconds"], 5.0);
        assert_eq!(json["answers"]["totals"]["flights"], 179_683);
    }
}
