//! Looking for many ascending values among the ascending integers of a page.
//!
//! A window of rows is unpacked. As long as values lie in it, each is found by counting the integers below it, without
//! a branch, so that a processor works at several values at once. A value behind the window is galloped to: in steps
//! that double, then by halves, O(log of how far it is), and the window is unpacked anew there. So where many of the
//! rows are looked for, each integer is unpacked once, and where few are, most are not.

use std::array;

use super::integers::{Integers, Kind, on_line};

/// Rows of the window.
const WINDOW: usize = 8;

/// A search that goes on to ever greater values.
#[derive(Debug)]
pub struct AscendingSearch<'a> {
    integers: Integers<'a>,
    rows: usize,
    /// The window's first row.
    start: usize,
    /// Its integers; behind the last row the greatest integer that there is.
    window: [i64; WINDOW],
}

impl<'a> AscendingSearch<'a> {
    /// From a row on, of so many.
    pub(crate) fn new(integers: Integers<'a>, row: usize, rows: usize) -> Self {
        let mut search = Self { integers, rows, start: 0, window: [0; WINDOW] };
        search.unpack(row.min(rows), |row| integers.get(row));
        search
    }

    /// The first row whose integer is not below `value`, and whether it is `value`; the number of rows if there is
    /// none. The values must ascend.
    #[inline]
    pub fn seek(&mut self, value: i64) -> (usize, bool) {
        if self.window[WINDOW - 1] < value && self.start + WINDOW < self.rows {
            self.gallop(value);
        }
        let below: usize = self.window.iter().map(|&integer| usize::from(integer < value)).sum();
        let row = self.start + below;
        (row, row < self.rows && self.window.get(below) == Some(&value))
    }

    /// Puts the window where the value is, or behind all rows.
    fn gallop(&mut self, value: i64) {
        match self.integers.kind {
            Kind::Packed(line) => self.gallop_in(value, |row| line.get(row)),
            Kind::Linear { line, slope } => {
                self.gallop_in(value, |row| line.get(row).wrapping_add(on_line(slope, row)));
            }
            Kind::Constant(_) | Kind::Runs { .. } => {
                let integers = self.integers;
                self.gallop_in(value, |row| integers.get(row));
            }
        }
    }

    #[inline(always)]
    fn gallop_in(&mut self, value: i64, get: impl Fn(usize) -> i64) {
        let (mut start, mut step) = (self.start + WINDOW, WINDOW);
        let mut end = self.rows.min(start + step);
        while end < self.rows && get(end - 1) < value {
            step *= 2;
            (start, end) = (end, self.rows.min(end + step));
        }
        while end - start > WINDOW {
            let middle = start + (end - start) / 2;
            if get(middle - 1) < value {
                start = middle;
            } else {
                end = middle;
            }
        }
        self.unpack(start, get);
    }

    #[inline(always)]
    fn unpack(&mut self, start: usize, get: impl Fn(usize) -> i64) {
        self.start = start;
        self.window = match start + WINDOW <= self.rows {
            true => array::from_fn(|at| get(start + at)),
            false => array::from_fn(|at| if start + at < self.rows { get(start + at) } else { i64::MAX }),
        };
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
