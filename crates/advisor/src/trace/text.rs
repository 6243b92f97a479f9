//! The text form of a trace, which is also its file.
//!
//! ```text
//! mycelium-trace 2
//! columns 30
//! levels 8
//! inserts 20000000
//! range-deletes 5
//! overflowed 0
//! projection 27-29
//! L6: scans=12 entries=600000000
//! L7: scans=12 entries=1200000000
//! projection 0-29
//! L1: points=490000 updates=12
//! end
//! ```
//!
//! Head and `end` are there in this order, `end` tells a whole file from a torn one. Under a `projection` (columns as
//! [`ColumnSet`] writes them, ascending) stand its levels in order; counters that are 0, levels and projections without
//! any are left out. The number in the first line is the version: a newer one than 2 is refused as unsupported. Version
//! 1 has no line `range-deletes`; a trace without range deletes is written as one of version 1, which older programs
//! read, too.
//!
//! Reading is bounded: at most [`MAX_TEXT_BYTES`] are taken in, and work and memory are bounded by the limits of the
//! trace, whatever the file says. Every complaint names the line.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{Read, Write};
use std::str::{FromStr, Lines};

use mycelium_base::{ColumnSet, Error, ErrorKind, Result};

use super::{Counts, MAX_PROJECTIONS, Trace};

/// The longest text that is read.
pub const MAX_TEXT_BYTES: u64 = 4 << 20;

const NAME: &str = "mycelium-trace";
const VERSION: u64 = 2;
/// The version without range deletes.
const WITHOUT_RANGE_DELETES: u64 = 1;

impl Trace {
    /// Reads the text form (see [`crate::trace`]). Fails with [`ErrorKind::InvalidArgument`], naming the line, on
    /// anything that is not a trace; with [`ErrorKind::Unsupported`] on one of a newer version.
    pub fn parse(text: &str) -> Result<Trace> {
        let mut lines = Reader { lines: text.lines(), number: 0 };
        let mut trace = read_head(&mut lines)?;
        let mut projection: Option<ColumnSet> = None;
        let mut seen = BTreeSet::new();
        let mut next_level = 0;
        loop {
            let line = lines.next("`end`")?;
            if line == "end" {
                break;
            } else if let Some(columns) = line.strip_prefix("projection ") {
                let columns = read_columns(columns, trace.columns).map_err(|problem| lines.wrong(problem))?;
                if !seen.insert(columns.clone()) {
                    return Err(lines.wrong(format!("projection {columns} comes twice")));
                }
                let levels = vec![Counts::default(); trace.level_count];
                trace.projections.entry(columns.clone()).or_insert(levels);
                if trace.projections.len() > MAX_PROJECTIONS {
                    return Err(lines.wrong(format!("more than {MAX_PROJECTIONS} projections")));
                }
                (projection, next_level) = (Some(columns), 0);
            } else {
                let (level, counts) = read_level(line).map_err(|problem| lines.wrong(problem))?;
                let Some(columns) = &projection else {
                    return Err(lines.wrong("a level before any projection".into()));
                };
                if level < next_level {
                    return Err(lines.wrong(format!("level {level} after level {}", next_level - 1)));
                }
                trace.add(level, columns, &counts).map_err(|problem| lines.wrong(problem.to_string()))?;
                next_level = level + 1;
            }
        }
        trace.forget_unused();
        match lines.lines.next() {
            None => Ok(trace),
            Some(line) => {
                Err(Reader { number: lines.number + 1, ..lines }.wrong(format!("`{}` after `end`", cut(line))))
            }
        }
    }

    /// Reads a trace that [`Trace::write_to`] wrote; see [`Trace::parse`]. Takes in at most [`MAX_TEXT_BYTES`].
    pub fn read_from(reader: impl Read) -> Result<Trace> {
        let mut bytes = Vec::new();
        let failed = |cause| Error::new(ErrorKind::Io, "cannot read a trace").caused_by(cause);
        reader.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_TEXT_BYTES {
            return Err(Error::invalid(format!("a trace of more than {MAX_TEXT_BYTES} bytes")));
        }
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| Error::invalid("a trace that is not text").at(error.valid_up_to() as u64))?;
        Self::parse(text)
    }

    /// Writes the text form.
    ///
    /// ```
    /// use mycelium_advisor::Trace;
    ///
    /// let mut file = Vec::new();
    /// let mut trace = Trace::new(4, 2)?;
    /// trace.add_points(1, &"0,2-3".parse()?, 9)?;
    /// trace.write_to(&mut file)?;
    /// assert_eq!(Trace::read_from(&file[..])?, trace);
    /// # Ok::<(), mycelium_base::Error>(())
    /// ```
    pub fn write_to(&self, mut writer: impl Write) -> Result<()> {
        let failed = |cause| Error::new(ErrorKind::Io, "cannot write a trace").caused_by(cause);
        writer.write_all(self.to_string().as_bytes()).map_err(failed)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.range_deletes == 0 { WITHOUT_RANGE_DELETES } else { VERSION };
        writeln!(f, "{NAME} {version}")?;
        writeln!(f, "columns {}\nlevels {}\ninserts {}", self.columns, self.level_count, self.inserts)?;
        if version > WITHOUT_RANGE_DELETES {
            writeln!(f, "range-deletes {}", self.range_deletes)?;
        }
        writeln!(f, "overflowed {}", self.overflowed)?;
        for (columns, levels) in &self.projections {
            if levels.iter().all(|counts| *counts == Counts::default()) {
                continue;
            }
            writeln!(f, "projection {columns}")?;
            for (level, counts) in levels.iter().enumerate().filter(|(_, counts)| **counts != Counts::default()) {
                write!(f, "L{level}:")?;
                for (name, value) in named(counts).into_iter().filter(|(_, value)| *value != 0) {
                    write!(f, " {name}={value}")?;
                }
                writeln!(f)?;
            }
        }
        writeln!(f, "end")
    }
}

impl FromStr for Trace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

fn named(counts: &Counts) -> [(&'static str, u64); 4] {
    [
        ("points", counts.points),
        ("scans", counts.scans),
        ("entries", counts.scanned_entries),
        ("updates", counts.updates),
    ]
}

/// Lines and their numbers, from 1.
struct Reader<'a> {
    lines: Lines<'a>,
    number: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self, expected: &str) -> Result<&'a str> {
        self.number += 1;
        let number = self.number;
        self.lines.next().ok_or_else(|| Error::invalid(format!("trace, line {number}: {expected} is missing")))
    }

    fn wrong(&self, problem: String) -> Error {
        Error::invalid(format!("trace, line {}: {problem}", self.number))
    }

    /// The number of a line `name number`.
    fn number_after(&mut self, name: &str) -> Result<u64> {
        let line = self.next(&format!("`{name} ...`"))?;
        let value =
            line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')).and_then(|value| value.parse().ok());
        value.ok_or_else(|| self.wrong(format!("expected `{name}` and a number, found `{}`", cut(line))))
    }
}

fn read_head(lines: &mut Reader<'_>) -> Result<Trace> {
    let version = lines.number_after(NAME)?;
    if version > VERSION {
        let message = format!("a trace of version {version}; this program reads up to {VERSION}");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    if version < WITHOUT_RANGE_DELETES {
        return Err(lines.wrong(format!("there is no version {version}")));
    }
    let bounded = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let columns = bounded(lines.number_after("columns")?);
    Trace::new(columns, 1).map_err(|problem| lines.wrong(problem.to_string()))?;
    let levels = bounded(lines.number_after("levels")?);
    let trace = Trace::new(columns, levels).map_err(|problem| lines.wrong(problem.to_string()))?;
    let inserts = lines.number_after("inserts")?;
    let range_deletes = if version > WITHOUT_RANGE_DELETES { lines.number_after("range-deletes")? } else { 0 };
    Ok(Trace { inserts, range_deletes, overflowed: lines.number_after("overflowed")?, ..trace })
}

/// Columns in ascending order below `count`. Only then is the text handed to [`ColumnSet`], whose work is thereby
/// bounded by `count`.
fn read_columns(text: &str, count: usize) -> Result<ColumnSet, String> {
    let mut free = 0;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let position = |number: &str| number.parse().ok().filter(|position: &usize| *position < count);
        let (Some(first), Some(last)) = (position(first), position(last)) else {
            return Err(format!("`{}` is not a column, or columns, of {count}", cut(part)));
        };
        if first < free || last < first {
            return Err(format!("columns {} are not ascending", cut(part)));
        }
        free = last + 1;
    }
    text.parse().map_err(|problem: Error| problem.to_string())
}

/// `L3: points=1 entries=4`.
fn read_level(line: &str) -> Result<(usize, Counts), String> {
    let parts = line.strip_prefix('L').and_then(|rest| rest.split_once(':'));
    let level = parts.and_then(|(level, _)| level.parse().ok());
    let (Some((_, rest)), Some(level)) = (parts, level) else {
        return Err(format!("expected `L...:`, `projection ...` or `end`, found `{}`", cut(line)));
    };
    let mut counts = Counts::default();
    for word in rest.split_ascii_whitespace() {
        let counter = word.split_once('=').and_then(|(name, value)| Some((name, value.parse::<u64>().ok()?)));
        match counter {
            Some(("points", value)) => counts.points = value,
            Some(("scans", value)) => counts.scans = value,
            Some(("entries", value)) => counts.scanned_entries = value,
            Some(("updates", value)) => counts.updates = value,
            _ => return Err(format!("`{}` is not a counter", cut(word))),
        }
    }
    Ok((level, counts))
}

/// The first characters of something that may be long.
fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "mycelium-trace 1\ncolumns 30\nlevels 8\ninserts 20\noverflowed 3\nprojection 27-29\n\
                        L6: scans=12 entries=60\nL7: scans=1 entries=4\n\
                        projection 0-29\nL1: points=49 updates=12\nend\n";

    /// As version 2 writes it.
    const WITH_RANGE_DELETES: &str = "mycelium-trace 2\ncolumns 3\nlevels 2\ninserts 20\nrange-deletes 7\noverflowed 0\n\
                                      projection 0\nL1: points=4\nend\n";

    #[test]
    fn traces_of_both_versions_are_read() {
        let with = Trace::parse(WITH_RANGE_DELETES).unwrap();
        assert_eq!((with.inserts(), with.range_deletes(), with.writes(), with.operations()), (20, 7, 27, 31));
        assert_eq!(with.to_string(), WITH_RANGE_DELETES);
        let without = WITH_RANGE_DELETES.replace("trace 2", "trace 1").replace("range-deletes 7\n", "");
        let read = Trace::parse(&without).unwrap();
        assert_eq!((read.range_deletes(), read.to_string()), (0, without));
        // Each has its own lines.
        for (old, new, complaint) in [
            ("trace 2", "trace 1", "line 5: expected `overflowed`"),
            ("range-deletes 7\n", "", "line 5: expected `range-deletes`"),
        ] {
            let bad = WITH_RANGE_DELETES.replace(old, new);
            assert!(Trace::parse(&bad).unwrap_err().to_string().contains(complaint), "{new}");
        }
        let mut both = with.clone();
        both.merge(&with).unwrap();
        assert_eq!(both.range_deletes(), 14);
        both.age();
        assert_eq!(both, Trace::parse(&both.to_string()).unwrap());
        assert_eq!((both.range_deletes(), both.with_levels(1).unwrap().range_deletes()), (7, 7));
    }

    #[test]
    fn text_is_read_back() {
        let trace = Trace::parse(TEXT).unwrap();
        assert_eq!(trace.to_string(), TEXT);
        assert_eq!((trace.inserts(), trace.overflowed(), trace.level_count()), (20, 3, 8));
        let empty = Trace::new(1, 1).unwrap();
        assert_eq!(Trace::parse(&empty.to_string()).unwrap(), empty);
    }

    #[test]
    fn complaints_name_the_line() {
        let cases = [
            ("mycelium-trace 1", "mycelium-trance 1", "line 1: expected `mycelium-trace`"),
            ("mycelium-trace 1", "mycelium-trace 0", "line 1: there is no version 0"),
            ("columns 30", "columns 0", "line 2: a trace of 0 columns"),
            ("columns 30", "columns 99999999999", "line 2: a trace of 99999999999 columns"),
            ("levels 8", "levels 17", "line 3: a trace of 17 levels"),
            ("inserts 20", "inserts -1", "line 4: expected `inserts`"),
            ("overflowed 3\n", "", "line 5: expected `overflowed`"),
            ("projection 27-29\n", "", "line 6: a level before any projection"),
            ("27-29", "27-30", "line 6: `27-30` is not a column"),
            ("27-29", "7,6", "line 6: columns 6 are not ascending"),
            ("27-29", "-", "line 6: `-` is not a column"),
            ("0-29", "27-29", "line 9: projection 27-29 comes twice"),
            ("L7", "L6", "line 8: level 6 after level 6"),
            ("L7", "L8", "line 8: level 8"),
            ("scans=1 ", "scans=1x ", "line 8: `scans=1x` is not a counter"),
            ("points", "pints", "line 10: `pints=49` is not a counter"),
            ("end\n", "", "line 11: `end` is missing"),
            ("end\n", "end\nend\n", "line 12: `end` after `end`"),
        ];
        for (old, new, complaint) in cases {
            let bad = TEXT.replacen(old, new, 1);
            match Trace::parse(&bad) {
                Ok(_) => panic!("{new:?} was accepted"),
                Err(error) => assert!(error.to_string().contains(complaint), "{new:?}: {error}"),
            }
        }
        assert_eq!(Trace::parse("mycelium-trace 3\n").unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn damaged_text_is_never_a_panic() {
        for length in 0..TEXT.len() {
            assert!(Trace::parse(&TEXT[..length]).is_err() || length == TEXT.len() - 1);
        }
        for position in 0..TEXT.len() {
            for byte in [b'0', b'9', b'-', b',', b'\n', b' ', b'=', b'L', 0x80] {
                let mut bytes = TEXT.as_bytes().to_vec();
                bytes[position] = byte;
                // Either a trace that is read back or a complaint.
                if let Ok(trace) = Trace::read_from(&bytes[..]) {
                    assert_eq!(Trace::parse(&trace.to_string()).unwrap(), trace);
                }
            }
        }
    }

    #[test]
    fn long_files_are_refused_unread() {
        let endless = std::io::repeat(b'1');
        assert!(Trace::read_from(endless).unwrap_err().to_string().contains("more than"));
        // Many wide ranges in one line: refused at the second, before any set is made.
        let wide = vec!["0-4095"; 100_000].join(",");
        let text =
            format!("mycelium-trace 1\ncolumns 4096\nlevels 1\ninserts 0\noverflowed 0\nprojection {wide}\nend\n");
        assert!(Trace::parse(&text).unwrap_err().to_string().contains("line 6: columns 0-4095 are not ascending"));
    }
}
