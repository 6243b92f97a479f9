//! The text form of a version, for scripts, golden files and `inspect`.
//!
//! One line per run, levels downwards, runs newest first:
//!
//! ```text
//! L0: 9:[a-k]#90-99 1.2MB
//! L0: 8:[b-m)#70-89 900kB deletes=5
//! L1: 4:[a-c]#1-20 8MB 5:[d-p]#2-40 9MB
//! ```
//!
//! Rounds of two-phase levels stand behind the runs, with the segments of their parts (`draining` and the group may
//! lack):
//!
//! ```text
//! round L1: 3 draining group=0-3/packed
//! appending: 9:[a-k]#90-99 1.2MB
//! appending without: [a-c) [f-k]
//! deletion: 4:[a-c]#1-20 8MB 5:[d-p]#2-40 9MB
//! ```
//!
//! What only stands for its part within a range says so behind its file: `within=[c-k)`.
//!
//! A file is `number:[smallest-largest]#min-max size`; `)` in place of `]` says that the largest key is exclusive, `#7`
//! is short for `#7-7`. Sizes are decimal (kB, MB, GB, TB) or plain bytes (`512B`). After the size may come `entries=`,
//! `deletes=`, `range_deletes=`, `created=`, `override=` and `checksum=` (hexadecimal); those left out are 0. A file of
//! one column group says which: `group=0-3/packed`. Bytes of keys other than printable ASCII, and the characters
//! `-[]()\`, space and `#`, are written `\xNN`. Empty lines and lines that start with `//` are skipped.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{Error, Result};

use crate::file_meta::{FileMeta, KeyRange};
use crate::round::{Round, Segment};
use crate::version::{Level, Run, Version};

const UNITS: [(&str, u64); 5] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1)];

impl Version {
    /// Reads the text form (see the module). The result is not checked beyond the syntax; see [`Version::check`].
    pub fn parse(text: &str) -> Result<Version> {
        let mut version = Version::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            if version.parse_round(line)? {
                continue;
            }
            let (level, files) =
                line.strip_prefix('L').and_then(|l| l.split_once(':')).ok_or_else(|| bad("a line `L0: ...`", line))?;
            let level: usize = number(level)?;
            if level >= MAX_LEVELS {
                return Err(bad("a level below 16", line));
            }
            if version.levels.len() <= level {
                version.levels.resize(level + 1, Level::default());
            }
            let files = parse_files(files)?;
            version.levels[level].runs.push(Arc::new(Run { files }));
        }
        Ok(version)
    }

    /// Reads a line of a round, if it is one.
    fn parse_round(&mut self, line: &str) -> Result<bool> {
        let Some((head, rest)) = line.split_once(':').filter(|(head, _)| !head.starts_with('L')) else {
            return Ok(false);
        };
        if let Some(level) = head.strip_prefix("round L") {
            self.rounds.push(parse_round_head(level, rest)?);
            return Ok(true);
        }
        let (part, is_without) = head.strip_suffix(" without").map_or((head, false), |part| (part, true));
        let round = self.rounds.last_mut().ok_or_else(|| bad("a line `round L1: ...` before segments", line))?;
        let segments = match part {
            "appending" => round.appending.get_or_insert_default(),
            "deletion" => round.deletion.get_or_insert_default(),
            _ => return Err(bad("a line of a run, a round or segments", line)),
        };
        match is_without {
            true => segments.uncovered = rest.split_ascii_whitespace().map(parse_range).collect::<Result<_>>()?,
            false => segments.files = parse_segments(rest)?,
        }
        Ok(true)
    }
}

/// The number and what may follow it of a line `round L1: 3 draining group=0-3/packed`.
fn parse_round_head(level: &str, rest: &str) -> Result<Round> {
    let mut round = Round { level: number(level)?, ..Round::default() };
    for word in rest.split_ascii_whitespace() {
        match word.strip_prefix("group=") {
            Some(group) => round.group = Some(Arc::new(group.parse()?)),
            None if word == "draining" => round.is_draining = true,
            None => round.number = number(word)?,
        }
    }
    Ok(round)
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Version> {
        Version::parse(text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, l) in self.levels.iter().enumerate() {
            for run in &l.runs {
                write!(f, "L{level}:")?;
                for file in &run.files {
                    write!(f, " {file}")?;
                }
                f.write_char('\n')?;
            }
        }
        self.rounds.iter().try_for_each(|round| write!(f, "{round}"))
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round L{}: {}", self.level, self.number)?;
        f.write_str(if self.is_draining { " draining" } else { "" })?;
        if let Some(group) = &self.group {
            write!(f, " group={group}")?;
        }
        f.write_char('\n')?;
        for (part, segments) in [("appending", &self.appending), ("deletion", &self.deletion)] {
            let Some(segments) = segments else { continue };
            write!(f, "{part}:")?;
            for segment in &segments.files {
                write!(f, " {}", segment.file)?;
                segment.within.iter().try_for_each(|within| write!(f, " within={within}"))?;
            }
            if !segments.uncovered.is_empty() {
                write!(f, "\n{part} without:")?;
                segments.uncovered.iter().try_for_each(|range| write!(f, " {range}"))?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

impl fmt::Display for FileMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.number)?;
        write_range(f, &self.smallest, &self.largest, self.largest_exclusive)?;
        if self.min_sequence == self.max_sequence {
            write!(f, "#{}", self.max_sequence)?;
        } else {
            write!(f, "#{}-{}", self.min_sequence, self.max_sequence)?;
        }
        write!(f, " {}", format_size(self.size))?;
        for (name, value) in [
            ("entries", self.entry_count),
            ("deletes", self.delete_count),
            ("range_deletes", self.range_delete_count),
            ("created", self.created_at_edit),
        ] {
            if value != 0 {
                write!(f, " {name}={value}")?;
            }
        }
        if let Some(sequence) = self.sequence_override {
            write!(f, " override={sequence}")?;
        }
        if self.checksum != 0 {
            write!(f, " checksum={:x}", self.checksum)?;
        }
        if let Some(group) = &self.group {
            write!(f, " group={group}")?;
        }
        Ok(())
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_range(f, &self.smallest, &self.largest, self.largest_exclusive)
    }
}

/// Writes `[smallest-largest]` or `[smallest-largest)`.
fn write_range(f: &mut fmt::Formatter<'_>, smallest: &[u8], largest: &[u8], exclusive: bool) -> fmt::Result {
    write!(f, "[{}-{}{}", KeyBytes(smallest), KeyBytes(largest), if exclusive { ')' } else { ']' })
}

/// A key's bytes as text: printable ones that separate nothing as they are, others as `\xNN`.
#[derive(Clone, Copy, Debug)]
pub struct KeyBytes<'k>(pub &'k [u8]);

impl fmt::Display for KeyBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            if byte.is_ascii_graphic() && !b"-[]()\\#".contains(&byte) {
                f.write_char(char::from(byte))?;
            } else {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// A size as text that [`parse_size`] reads back exactly: the largest unit that needs at most three decimals.
pub fn format_size(bytes: u64) -> String {
    for (unit, factor) in UNITS {
        let step = (factor / 1000).max(1);
        if bytes >= factor && bytes.is_multiple_of(step) {
            let text = format!("{}.{:03}", bytes / factor, bytes % factor / step);
            return format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{bytes}B")
}

/// Reads a size such as `1.2MB`, `64kB` or `512B`.
pub fn parse_size(text: &str) -> Result<u64> {
    let wrong = || bad("a size such as 1.2MB", text);
    let (digits, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || fraction.len() > 12 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let mut size = number::<u64>(whole)?.checked_mul(factor).ok_or_else(wrong)?;
    let mut step = factor;
    for digit in fraction.bytes() {
        step /= 10;
        size = size.checked_add(u64::from(digit - b'0') * step).ok_or_else(wrong)?;
    }
    Ok(size)
}

/// Reads a range in the form that [`KeyRange`] prints: `[a-k]` or `[a-k)`.
pub fn parse_range(text: &str) -> Result<KeyRange> {
    let wrong = || bad("a key range such as [a-k] or [a-k)", text);
    let inner = text.strip_prefix('[').ok_or_else(wrong)?;
    let (inner, largest_exclusive) = match inner.strip_suffix(')') {
        Some(inner) => (inner, true),
        None => (inner.strip_suffix(']').ok_or_else(wrong)?, false),
    };
    let (smallest, largest) = inner.split_once('-').ok_or_else(wrong)?;
    Ok(KeyRange { smallest: parse_key(smallest)?, largest: parse_key(largest)?, largest_exclusive })
}

fn parse_key(text: &str) -> Result<Vec<u8>> {
    let wrong = || bad("a key, with \\xNN for special bytes", text);
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        let digits = rest.strip_prefix(b"x").and_then(|r| r.get(..2)).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        key.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &rest[3..];
    }
    Ok(key)
}

fn parse_files(text: &str) -> Result<Vec<Arc<FileMeta>>> {
    let segments = parse_segments(text)?;
    match segments.iter().find_map(|segment| segment.within.as_ref()) {
        Some(within) => Err(bad("a whole file", &within.to_string())),
        None => Ok(segments.into_iter().map(|segment| segment.file).collect()),
    }
}

fn parse_segments(text: &str) -> Result<Vec<Segment>> {
    let mut files: Vec<Segment<FileMeta>> = Vec::new();
    for token in text.split_ascii_whitespace() {
        if let Some((file_number, rest)) = token.split_once(":[") {
            files.push(parse_file(number(file_number)?, &token[token.len() - rest.len() - 1..])?.into());
            continue;
        }
        let Segment { file, within } = files.last_mut().ok_or_else(|| bad("a file such as 9:[a-k]#90-99", token))?;
        match token.split_once('=') {
            None => file.size = parse_size(token)?,
            Some(("entries", value)) => file.entry_count = number(value)?,
            Some(("deletes", value)) => file.delete_count = number(value)?,
            Some(("range_deletes", value)) => file.range_delete_count = number(value)?,
            Some(("created", value)) => file.created_at_edit = number(value)?,
            Some(("override", value)) => file.sequence_override = Some(number(value)?),
            Some(("checksum", value)) => {
                file.checksum = u64::from_str_radix(value, 16).map_err(|_| bad("a hexadecimal checksum", value))?;
            }
            Some(("within", value)) => *within = Some(parse_range(value)?),
            Some(("group", value)) => file.group = Some(Arc::new(value.parse()?)),
            Some(_) => return Err(bad("a known property of a file", token)),
        }
    }
    Ok(files.into_iter().map(|Segment { file, within }| Segment { file: Arc::new(file), within }).collect())
}

/// `[a-k]#90-99`
fn parse_file(file_number: u64, text: &str) -> Result<FileMeta> {
    let (range, sequences) = text.split_once('#').ok_or_else(|| bad("`#min-max` after the key range", text))?;
    let range = parse_range(range)?;
    let (min, max) = sequences.split_once('-').unwrap_or((sequences, sequences));
    Ok(FileMeta {
        number: file_number,
        smallest: range.smallest,
        largest: range.largest,
        largest_exclusive: range.largest_exclusive,
        min_sequence: number(min)?,
        max_sequence: number(max)?,
        ..FileMeta::default()
    })
}

fn number<N: FromStr>(text: &str) -> Result<N> {
    text.trim().parse().map_err(|_| bad("a number", text))
}

#[cold]
fn bad(expected: &str, found: &str) -> Error {
    Error::invalid("malformed text form of a version").expected(expected, format_args!("{found:?}"))
}
