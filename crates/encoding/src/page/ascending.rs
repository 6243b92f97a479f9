//! Looking for many ascending values among the ascending integers of a page.
//!
//! 1. A window of sixteen rows is unpacked ([`super::window`]). As long as values lie in it, each is found by counting
//!    the integers below it in one half, without a branch, so that a processor works at several values at once.
//! 2. For a value behind the window, one is unpacked about where the value would be if the integers rose from here on
//!    as they do on the whole, as keys mostly do, and then the next ones or those before: values some rows apart are
//!    found in the first.
//! 3. A value that is in none of these is galloped to: in steps that double, then by halves, O(log of how far it is).

use std::ops::Range;

use super::integers::Integers;
use super::window::{GROUP, ROWS, Window};

/// Windows that are looked at beside the one where the value would be.
const NEIGHBORS: usize = 2;

/// A search that goes on to ever greater values.
#[derive(Debug)]
pub struct AscendingSearch<'a> {
    integers: Integers<'a>,
    rows: usize,
    /// Where it began.
    first: usize,
    window: Window<'a>,
    /// Rows for each 2^64 that the integers rise by, on the whole; at most as many.
    slope: u64,
}

impl<'a> AscendingSearch<'a> {
    /// From a row on, of so many.
    pub(crate) fn new(integers: Integers<'a>, row: usize, rows: usize) -> Self {
        let first = row.min(rows);
        let window = Window::new(integers, first, rows);
        let mut search = Self { integers, rows, first, window, slope: 0 };
        if let Some(last) = rows.checked_sub(1).filter(|&last| last > first) {
            let rise = integers.get(last).abs_diff(integers.get(first));
            search.slope = ((last - first) as f64 / rise.max(1) as f64 * (u64::MAX as f64)) as u64;
        }
        search
    }

    /// The first row whose integer is not below `value`, and whether it is `value`; the number of rows if there is
    /// none. The values must ascend.
    #[inline]
    pub fn seek(&mut self, value: i64) -> (usize, bool) {
        let is_behind = self.window.last() < value && self.has_more();
        let below = if is_behind { self.move_to(value) } else { self.window.below(value) };
        let row = self.window.start() + below;
        match self.window.get(below) {
            Some(found) if row >= self.first => (row, row < self.rows && found == value),
            _ => self.at_border(row.max(self.first), value),
        }
    }

    /// What a search that ends in a row outside of the window says.
    #[cold]
    fn at_border(&self, row: usize, value: i64) -> (usize, bool) {
        (row.min(self.rows), row < self.rows && self.integers.get(row) == value)
    }

    /// Whether there are rows behind the window.
    #[inline]
    fn has_more(&self) -> bool {
        self.window.end() < self.rows
    }

    /// Puts the window where a value behind it is, or at the end of all rows; how many of its integers are below.
    fn move_to(&mut self, value: i64) -> usize {
        let from = self.window.end();
        let rise = value.abs_diff(self.window.last());
        let ahead = ((u128::from(rise) * u128::from(self.slope)) >> 64) as usize;
        // The row where the value would be is about the middle.
        let row = (from - 1).saturating_add(ahead).saturating_sub(GROUP / 2).min(self.rows - 1);
        let mut below = self.window.move_to(row, value);
        if below == 0 && self.window.start() > from {
            return self.move_back(from, value);
        }
        for _ in 0..NEIGHBORS {
            if below < ROWS || !self.has_more() {
                return below;
            }
            below = self.window.move_to(self.window.end(), value);
        }
        if below < ROWS || !self.has_more() { below } else { self.gallop(self.window.end(), value) }
    }

    /// Puts the window where a value is that is before it and not before `from`; how many of its integers are below.
    fn move_back(&mut self, from: usize, value: i64) -> usize {
        for _ in 0..NEIGHBORS {
            let below = self.window.move_to(self.window.start() - ROWS, value);
            if below > 0 || self.window.start() <= from {
                return below;
            }
        }
        self.halve(from..self.window.start(), value)
    }

    /// Puts the window where the value is, which is at `start` or behind; how many of its integers are below.
    fn gallop(&mut self, mut start: usize, value: i64) -> usize {
        let mut step = ROWS;
        let mut end = self.rows.min(start + step);
        while end < self.rows && self.integers.get(end - 1) < value {
            step *= 2;
            (start, end) = (end, self.rows.min(end + step));
        }
        self.halve(start..end, value)
    }

    /// Puts it where the value is, which is in one of these rows or the one behind; how many of its integers are below.
    fn halve(&mut self, Range { mut start, mut end }: Range<usize>, value: i64) -> usize {
        while end - start > GROUP {
            let middle = start + (end - start) / 2;
            if self.integers.get(middle - 1) < value {
                start = middle;
            } else {
                end = middle;
            }
        }
        self.window.move_to(start, value)
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
