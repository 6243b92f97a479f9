//! Looking for many ascending values among the ascending integers of a page.
//!
//! 1. A window of eight rows is unpacked, which begins on a byte whatever the width of packed integers. As long as
//!    values lie in it, each is found by counting the integers below it, without a branch, so that a processor works
//!    at several values at once.
//! 2. For a value behind the window, that one is unpacked where the value would be if the integers rose from here on
//!    as they do on the whole, as keys mostly do, and then the next ones or those before: values some rows apart are
//!    found in one or two.
//! 3. A value that is in none of these is galloped to: in steps that double, then by halves, O(log of how far it is).

use std::array;
use std::ops::Range;

use super::integers::{Integers, Kind, on_line};

/// Rows of the window.
const WINDOW: usize = 8;

/// Windows that are looked at beside the one where the value would be.
const NEIGHBORS: usize = 2;

/// A search that goes on to ever greater values.
#[derive(Debug)]
pub struct AscendingSearch<'a> {
    integers: Integers<'a>,
    rows: usize,
    /// Where it began.
    first: usize,
    /// The window's first row.
    start: usize,
    /// Its integers; behind the last row the greatest integer that there is.
    window: [i64; WINDOW],
    /// Rows for each one that the integers rise by, on the whole.
    rows_per_one: f64,
}

impl<'a> AscendingSearch<'a> {
    /// From a row on, of so many.
    pub(crate) fn new(integers: Integers<'a>, row: usize, rows: usize) -> Self {
        let first = row.min(rows);
        let mut search = Self { integers, rows, first, start: 0, window: [0; WINDOW], rows_per_one: 0.0 };
        search.unpack(first);
        if let Some(last) = rows.checked_sub(1).filter(|&last| last > first) {
            let rise = integers.get(last).abs_diff(integers.get(first));
            search.rows_per_one = (last - first) as f64 / rise.max(1) as f64;
        }
        search
    }

    /// The first row whose integer is not below `value`, and whether it is `value`; the number of rows if there is
    /// none. The values must ascend.
    #[inline]
    pub fn seek(&mut self, value: i64) -> (usize, bool) {
        if self.is_behind(value) {
            self.move_to(value);
        }
        let below: usize = self.window.iter().map(|&integer| usize::from(integer < value)).sum();
        let row = self.start + below;
        if row < self.first {
            return (self.first, self.first < self.rows && self.integers.get(self.first) == value);
        }
        (row, row < self.rows && self.window.get(below) == Some(&value))
    }

    /// Whether the value is in no row up to the window's end.
    #[inline]
    fn is_behind(&self, value: i64) -> bool {
        self.window[WINDOW - 1] < value && self.start + WINDOW < self.rows
    }

    /// Puts the window where the value is, or at the end of all rows.
    fn move_to(&mut self, value: i64) {
        let from = self.start + WINDOW;
        let ahead = (value.abs_diff(self.window[WINDOW - 1]) as f64 * self.rows_per_one) as usize;
        self.unpack(from.saturating_add(ahead).min(self.rows - 1));
        for _ in 0..NEIGHBORS {
            if self.is_behind(value) {
                self.unpack(self.start + WINDOW);
            } else if self.window[0] >= value && self.start > from {
                self.unpack(self.start - WINDOW);
            } else {
                return;
            }
        }
        if self.is_behind(value) {
            self.gallop(self.start + WINDOW, value);
        } else if self.window[0] >= value && self.start > from {
            self.halve(from..self.start + 1, value);
        }
    }

    /// Puts the window where the value is, which is at `start` or behind.
    fn gallop(&mut self, mut start: usize, value: i64) {
        let mut step = WINDOW;
        let mut end = self.rows.min(start + step);
        while end < self.rows && self.integers.get(end - 1) < value {
            step *= 2;
            (start, end) = (end, self.rows.min(end + step));
        }
        self.halve(start..end, value);
    }

    /// Puts it where the value is, which is in one of these rows, or behind all rows.
    fn halve(&mut self, Range { mut start, mut end }: Range<usize>, value: i64) {
        while end - start > 1 {
            let middle = start + (end - start) / 2;
            if self.integers.get(middle - 1) < value {
                start = middle;
            } else {
                end = middle;
            }
        }
        self.unpack(start);
    }

    /// Makes the window that which the row is in.
    #[inline]
    fn unpack(&mut self, row: usize) {
        self.start = row - row % WINDOW;
        self.window = match self.integers.kind {
            Kind::Packed(line) => line.map_eight(self.start, |_, integer| integer),
            Kind::Linear { line, slope } => {
                line.map_eight(self.start, |row, integer| integer.wrapping_add(on_line(slope, row)))
            }
            Kind::Constant(value) => [value; WINDOW],
            Kind::Runs { .. } => array::from_fn(|at| self.integers.get((self.start + at).min(self.rows - 1))),
        };
        for at in self.rows.saturating_sub(self.start)..WINDOW {
            self.window[at] = i64::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::page::integers::encode;

    #[test]
    fn values_are_found_from_any_row_on_however_far_they_are() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut random: Vec<i64> = (0..if cfg!(miri) { 100 } else { 700 }).map(|_| rng.random()).collect();
        random.sort_unstable();
        random.dedup();
        let dense: Vec<i64> = (-50..200).collect();
        let repeated: Vec<i64> = (0..200).map(|row| row / 50).collect();
        for values in [random, dense, repeated, vec![7; 40], vec![i64::MIN], vec![i64::MAX], vec![]] {
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            let integers = Integers::parse(&bytes, values.len()).unwrap();
            for row in (0..=values.len()).step_by(13) {
                for step in [1, 9, 90, 500] {
                    let mut search = AscendingSearch::new(integers, row, values.len());
                    let present = values.iter().step_by(step).flat_map(|&value| [value.saturating_sub(1), value]);
                    let mut wanted: Vec<i64> = present.chain([i64::MIN, i64::MAX]).collect();
                    wanted.sort_unstable();
                    for value in wanted {
                        let place = row.max(values.partition_point(|&other| other < value));
                        let is_there = values.get(place) == Some(&value);
                        let (found, says_there) = search.seek(value);
                        assert_eq!((found, says_there), (place, is_there), "{value} from row {row}");
                    }
                }
            }
        }
    }
}
