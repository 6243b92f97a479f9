//! Looking for many ascending values among the ascending integers of a page.
//!
//! The rows are taken in windows. The last integer of a window tells whether a value is in it; behind it the windows grow until one
//! has it, so that values that are far from each other take O(log of how far). Within the window a value is found by halves, without
//! a branch and from the window's first row, not from the value before: so a processor works at several values at once.

use std::hint::select_unpredictable;
use std::ops::Range;

use super::integers::{Integers, Kind, on_line};

/// Rows of a window, at first.
const WINDOW: usize = 32;

/// A search that goes on to ever greater values.
#[derive(Debug)]
pub struct AscendingSearch<'a> {
    integers: Integers<'a>,
    rows: usize,
    window: Range<usize>,
    /// The window's last integer.
    last: i64,
}

impl<'a> AscendingSearch<'a> {
    /// From a row on, of so many.
    pub(crate) fn new(integers: Integers<'a>, row: usize, rows: usize) -> Self {
        let start = row.min(rows);
        let window = start..rows.min(start + WINDOW);
        let last = if window.is_empty() { i64::MAX } else { integers.get(window.end - 1) };
        Self { integers, rows, window, last }
    }

    /// The first row whose integer is not below `value`, and whether it is `value`; the number of rows if there is none. The values
    /// must ascend.
    #[inline]
    pub fn seek(&mut self, value: i64) -> (usize, bool) {
        match self.integers.kind {
            Kind::Packed(line) => self.seek_in(value, |row| line.get(row)),
            Kind::Linear { line, slope } => self.seek_in(value, |row| line.get(row).wrapping_add(on_line(slope, row))),
            Kind::Constant(_) | Kind::Runs { .. } => {
                let integers = self.integers;
                self.seek_in(value, |row| integers.get(row))
            }
        }
    }

    #[inline(always)]
    fn seek_in(&mut self, value: i64, get: impl Fn(usize) -> i64) -> (usize, bool) {
        let mut len = WINDOW;
        while self.last < value && self.window.end < self.rows {
            self.window = self.window.end..self.rows.min(self.window.end + len);
            self.last = get(self.window.end - 1);
            len *= 2;
        }
        if self.window.is_empty() {
            return (self.rows, false);
        }
        // The first row that is not below the value, or the last one of all.
        let (mut row, mut len) = (self.window.start, self.window.len());
        while len > 1 {
            let half = len / 2;
            row = select_unpredictable(get(row + half - 1) < value, row + half, row);
            len -= half;
        }
        let found = get(row);
        (row + usize::from(found < value), found == value)
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
