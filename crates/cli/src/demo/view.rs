//! The live view: what the demo shows while it runs, as lines of text.
//!
//! [`frame`] is a pure function of the state and the width. [`Screen`] draws frames over each other with four plain
//! escape sequences (cursor up, erase line, hide and show cursor), and nothing at all where stderr is not a terminal.

use std::io::Write;
use std::time::Duration;

use console::{Style, Term, truncate_str};

use super::answers::{Answers, Mean};
use super::event_time::EventTime;
use super::held_snapshot::HeldSnapshot;
use crate::render::levels::{TreeStats, draw, utf8_locale};
use crate::render::units;

/// All that a frame shows.
#[derive(Clone, Default)]
pub(crate) struct LiveState {
    /// Event time reached.
    pub(crate) now: Option<EventTime>,
    /// Operations of the stream written, and all.
    pub(crate) operations: (u64, u64),
    /// Operations a second over the last second or so.
    pub(crate) rate: f64,
    /// Since the start.
    pub(crate) elapsed: Duration,
    /// Point reads done beside the writes, and the 50th and 99th percentile of their latency in nanoseconds.
    pub(crate) reads: u64,
    pub(crate) read_p50: u64,
    pub(crate) read_p99: u64,
    /// Times that writers were slowed down or stopped, and for how long in all.
    pub(crate) stalls: u64,
    pub(crate) stalled: Duration,
    /// The tree of table `flights`.
    pub(crate) tree: TreeStats,
    /// Snapshots held so far.
    pub(crate) snapshots: Vec<HeldSnapshot>,
    /// The latest answers.
    pub(crate) answers: Option<Answers>,
    /// Answers that were checked against the straight computation so far, and how many of them were wrong.
    pub(crate) checks: (u64, u64),
}

/// How lines are styled.
#[derive(Clone)]
pub(crate) struct Look {
    heading: Style,
    dim: Style,
    bad: Style,
    ascii: bool,
}

impl Look {
    /// Colours for a terminal that has them; block characters where the locale is UTF-8.
    pub(crate) fn of_terminal(colours: bool, ascii: bool) -> Self {
        let style = || Style::new().force_styling(colours);
        Self { heading: style().bold().cyan(), dim: style().dim(), bad: style().bold().red(), ascii }
    }

    /// Whether to draw without block characters.
    pub(crate) fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// Text that tells of something wrong.
    pub(crate) fn bad(&self, text: &str) -> String {
        self.bad.apply_to(text).to_string()
    }
}

/// The lines of one frame, none wider than `width`.
pub(crate) fn frame(state: &LiveState, width: usize, look: &Look) -> Vec<String> {
    let mut lines = progress(state, width, look);
    lines.extend(draw(&state.tree, width, look.ascii));
    for snapshot in &state.snapshots {
        lines.push(snapshot_line(snapshot, look));
    }
    if let Some(answers) = &state.answers {
        lines.push(String::new());
        lines.extend(answer_lines(answers, look));
    }
    lines.into_iter().map(|line| truncate_str(&line, width, "").into_owned()).collect()
}

fn progress(state: &LiveState, width: usize, look: &Look) -> Vec<String> {
    let (done, all) = state.operations;
    let now = state.now.map_or_else(|| "reading the data".to_owned(), |now| now.to_string());
    let head = format!("{}  a year of flights from New York, replayed", look.heading.apply_to("mycelium demo"));
    let share = if all == 0 { 0.0 } else { done as f64 / all as f64 };
    let cells = width.saturating_sub(50).min(40);
    let filled = (share * cells as f64) as usize;
    let (full, empty) = if look.ascii { ("=", ".") } else { ("━", "─") };
    let bar = format!("{}{}", full.repeat(filled), look.dim.apply_to(empty.repeat(cells - filled)));
    let stalls = match state.stalls {
        0 => "no stalls".to_owned(),
        stalls => {
            let text = format!("{} stalls, {:.2} s", units::count(stalls), state.stalled.as_secs_f64());
            look.bad.apply_to(text).to_string()
        }
    };
    let checks = match state.checks {
        (all, 0) => format!("{} answers checked, all equal", units::count(all)),
        (all, wrong) => look.bad.apply_to(format!("{} answers checked, {wrong} WRONG", units::count(all))).to_string(),
    };
    vec![
        head,
        format!("{now:<21}  {bar}  {:3.0} %  {:.1} s", share * 100.0, state.elapsed.as_secs_f64()),
        format!(
            "writes      {:>9}/s  {:>9} of {}   {stalls}",
            units::count(state.rate as u64),
            units::count(done),
            units::count(all)
        ),
        format!(
            "point reads {:>9}    p50 {}  p99 {}  (while writing)   {checks}",
            units::count(state.reads),
            units::nanoseconds(state.read_p50),
            units::nanoseconds(state.read_p99)
        ),
        String::new(),
    ]
}

fn snapshot_line(snapshot: &HeldSnapshot, look: &Look) -> String {
    format!(
        "{} snapshot of {}  held {:.1} s  keeps what {} newer entries supersede  {}",
        snapshot.name,
        snapshot.taken_at,
        snapshot.age_seconds,
        units::count(snapshot.entries_since),
        look.dim.apply_to(format!("sequence {}", units::count(snapshot.sequence)))
    )
}

/// The answers, as the live view and the summary show them.
pub(crate) fn answer_lines(answers: &Answers, look: &Look) -> Vec<String> {
    let totals = &answers.totals;
    let mut lines = vec![
        look.heading.apply_to(format!("What was known at {}", answers.at)).to_string(),
        format!(
            "flights {}  departed {}  arrived {}  cancelled {}  in the air {}",
            units::count(totals.flights),
            units::count(totals.departed),
            units::count(totals.arrived),
            units::count(totals.cancelled),
            answers.in_the_air.len()
        ),
        "mean departure delay of the last 24 hours, minutes by scheduled hour".to_owned(),
    ];
    lines.extend(delay_grid(answers, look));
    let routes = answers.worst_routes.iter().map(|(route, mean)| format!("{route} {:.0}", mean.value()));
    lines.push(format!("worst routes  {}", or_none(routes.collect::<Vec<_>>().join("  "))));
    let row = answers.one_flight.as_ref();
    lines.push(match row {
        None => "one flight    not scheduled yet".to_owned(),
        Some(row) => format!(
            "one flight    {}  to {}  departed {}  {}",
            row.key,
            row.dest,
            row.dep_time.map_or("-".to_owned(), |time| format!("{time:04}")),
            row.dep_delay.map_or("no delay known".to_owned(), |delay| format!("{delay} min late"))
        ),
    });
    let flown = answers.one_aircraft.iter().filter(|row| row.dep_time.is_some()).count();
    let late: i64 = answers.one_aircraft.iter().map(|row| i64::from(row.dep_delay.unwrap_or(0).max(0))).sum();
    lines.push(format!(
        "one aircraft  {}  {} flights, {flown} flown, {} minutes late in all",
        super::answers::one_tailnum(),
        answers.one_aircraft.len(),
        units::count(late.unsigned_abs())
    ));
    lines.push(format!(
        "one route     {}  {} arrivals, {:.1} minutes late on average",
        super::answers::one_route(),
        units::count(answers.one_route.count),
        answers.one_route.value()
    ));
    lines
}

/// One line an origin, one column an hour from 5 to 23 (no flight is scheduled earlier, save a few at 1).
fn delay_grid(answers: &Answers, look: &Look) -> Vec<String> {
    const HOURS: std::ops::RangeInclusive<i32> = 5..=23;
    let heads: String = HOURS.map(|hour| format!("{hour:>4}")).collect();
    let mut lines = vec![look.dim.apply_to(format!("    {heads}")).to_string()];
    let mut origins: Vec<_> = answers.departures.iter().map(|(group, _)| group.origin).collect();
    origins.dedup();
    for origin in origins {
        let cell = |hour| {
            let mean = answers.departures.iter().find(|(group, _)| group.origin == origin && group.hour == hour);
            mean.map_or_else(|| "   .".to_owned(), |(_, mean): &(_, Mean)| format!("{:>4.0}", mean.value()))
        };
        let cells: String = HOURS.map(cell).collect();
        lines.push(format!("{origin:<4}{cells}"));
    }
    lines
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none with enough flights yet".to_owned() } else { text }
}

/// A place on a terminal where frames replace each other.
pub(crate) struct Screen {
    term: Term,
    look: Look,
    drawn: usize,
}

impl Screen {
    /// Takes over the lines below the cursor of stderr; `None` if it is no terminal.
    pub(crate) fn open() -> Option<Self> {
        let term = Term::buffered_stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        if !term.is_term() || dumb {
            return None;
        }
        let look = Look::of_terminal(console::colors_enabled_stderr(), !utf8_locale());
        Some(Self { term, look, drawn: 0 })
    }

    /// Replaces the last frame. A terminal that went away is left alone: the demo goes on.
    pub(crate) fn draw(&mut self, state: &LiveState) {
        let (height, width) = self.term.size();
        let mut lines = frame(state, usize::from(width), &self.look);
        // A frame taller than the window could not be erased again.
        lines.truncate(usize::from(height).saturating_sub(1));
        let mut out = String::from("\x1b[?25l");
        if self.drawn > 0 {
            out.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for line in &lines {
            out.push_str("\r\x1b[2K");
            out.push_str(line);
            out.push('\n');
        }
        out.push_str("\x1b[J");
        self.drawn = lines.len();
        self.put(&out);
    }

    fn put(&mut self, text: &str) {
        if self.term.write_all(text.as_bytes()).and_then(|()| self.term.flush()).is_err() {
            self.drawn = 0;
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.put("\x1b[?25h");
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::Oracle;
    use super::super::stream::test_flights;
    use super::*;

    #[test]
    fn frames_fit_any_width_and_show_the_state() {
        let flights = test_flights();
        let at = EventTime::utc(2013, 7, 15, 16, 0);
        let state = LiveState {
            now: Some(at),
            operations: (500_000, 1_001_615),
            rate: 250_000.0,
            reads: 12_345,
            read_p50: 2_500,
            read_p99: 20_000,
            stalls: 3,
            stalled: Duration::from_millis(1500),
            snapshots: vec![HeldSnapshot {
                name: "July",
                taken_at: at,
                sequence: 512_000,
                age_seconds: 1.5,
                entries_since: 123_456,
            }],
            answers: Some(Oracle::new(flights).answers(at)),
            checks: (6, 0),
            ..LiveState::default()
        };
        let plain = Look::of_terminal(false, true);
        let text = frame(&state, 110, &plain).join("\n");
        for part in [
            "2013-07-15 16:00 UTC",
            "250,000/s",
            "500,000 of 1,001,615",
            "3 stalls, 1.50 s",
            "p50 2.50 µs  p99 20.0 µs",
            "6 answers checked, all equal",
            "July snapshot of 2013-07-15 16:00 UTC  held 1.5 s  keeps what 123,456 newer entries supersede",
            "flights 179,683  departed 174,158  arrived 173,723  cancelled 5,357  in the air 150",
            "worst routes  EWR-TYS 50",
            "one flight    2013-01-09 HA 51 0900 JFK  to HNL  departed 0641  1301 min late",
            "one aircraft  N725MQ  417 flights",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains('\x1b'), "no escape codes without colours");
        for look in [plain, Look::of_terminal(true, false)] {
            for width in 0..140 {
                for state in [&state, &LiveState::default()] {
                    assert!(frame(state, width, &look).iter().all(|line| console::measure_text_width(line) <= width));
                }
            }
        }
    }
}
