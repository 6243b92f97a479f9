//! Which way the rows that pass a filter are found, by cost (LSM-OPD §4.2.2).
//!
//! 1. A scan begins by merging keys and then filtering. It counts its work, and judges it every [`PERIOD`] rows.
//! 2. Filtering first and then checking what is found would have cost so much for every row that passes and for every key that
//!    the rest has. Where that is clearly less, it goes on so; and back, where what it then finds makes it dearer than merging was.
//!
//! So no statistics are needed, and keys of which one half lies otherwise than the other change the plan on the way. The judgement
//! depends on counts alone: the same data and scan give the same plan.

/// Rows after which a plan is judged.
const PERIOD: u64 = 8192;

/// What the parts of a scan's work cost, in nanoseconds, as measured (decision 0036).
const MERGED_STEP: u64 = 100;
const PASSED_ROW: u64 = 2;
const TESTED_ROW: u64 = 2;
const CANDIDATE: u64 = 250;
const CHECK_OF_A_RUN: u64 = 60;
const TOUCHED_KEY: u64 = 1500;

/// Where one plan costs less than so many percent of the other it is taken: changing costs something, too.
const CLEARLY_LESS: u64 = 80;

/// The longest wait, as a power of two.
const LONGEST_WAIT: u32 = 6;

/// What was done since the plan was judged last.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Work {
    /// Rows of all runs that were passed, looked at or not.
    pub(super) rows: u64,
    /// Stretches, and keys that were put together: what merging does one by one.
    pub(super) steps: u64,
    /// Rows that pass the filter, where they were found.
    pub(super) candidates: u64,
    /// Keys of the rest.
    pub(super) touched: u64,
}

/// The plan of a scan, and the work that it is judged by.
#[derive(Debug)]
pub(super) struct Plan {
    /// Runs; none if the scan can only merge.
    runs: u64,
    is_checking: bool,
    pub(super) work: Work,
    /// Nanoseconds that merging took for the rows of the last period in which it was done.
    merging: (u64, u64),
    /// Periods until filtering first is tried again, and how often in a row it was given up at once.
    wait: u64,
    given_up: u32,
}

impl Plan {
    /// That of a scan of so many runs, of which one can filter before it merges if `can_check`.
    pub(super) fn new(runs: usize, can_check: bool) -> Self {
        let runs = if can_check { runs as u64 } else { 0 };
        Self { runs, is_checking: false, work: Work::default(), merging: (0, 1), wait: 0, given_up: 0 }
    }

    /// Whether rows are filtered first and then checked.
    #[inline]
    pub(super) fn is_checking(&self) -> bool {
        self.is_checking
    }

    /// Judges the plan, if it is time to; whether it changes.
    #[inline]
    pub(super) fn changes(&mut self) -> bool {
        self.runs > 1 && self.work.rows >= PERIOD && self.judge()
    }

    fn judge(&mut self) -> bool {
        let work = std::mem::take(&mut self.work);
        let for_each_candidate = CANDIDATE + CHECK_OF_A_RUN * (self.runs - 1);
        let checking = TESTED_ROW * work.rows + for_each_candidate * work.candidates + TOUCHED_KEY * work.touched;
        let (now, other) = match self.is_checking {
            true => (checking, self.merging.0 * work.rows / self.merging.1),
            false => {
                let merging = MERGED_STEP * work.steps + PASSED_ROW * work.rows;
                self.merging = (merging, work.rows);
                (merging, checking)
            }
        };
        let changes = other < now * CLEARLY_LESS / 100 && self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        if self.is_checking {
            self.given_up = if changes { self.given_up + 1 } else { 0 };
            self.wait = if changes { 1 << self.given_up.min(LONGEST_WAIT) } else { 0 };
        }
        self.is_checking ^= changes;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges periods of such work until the plan has changed, or not for ten of them.
    fn ends_checking(mut plan: Plan, work: impl Fn(bool) -> Work) -> bool {
        for _ in 0..10 {
            plan.work = work(plan.is_checking());
            plan.changes();
        }
        plan.is_checking()
    }

    #[test]
    fn few_rows_of_runs_that_interleave_are_checked() {
        let work = |steps, candidates, touched| move |_| Work { rows: 10_000, steps, candidates, touched };
        assert!(ends_checking(Plan::new(3, true), work(5_000, 100, 0)));
        assert!(!ends_checking(Plan::new(3, false), work(5_000, 100, 0)), "it cannot");
        assert!(!ends_checking(Plan::new(1, true), work(5_000, 100, 0)), "there is nothing to check");
        assert!(!ends_checking(Plan::new(3, true), work(5_000, 5_000, 0)), "many pass");
        assert!(!ends_checking(Plan::new(3, true), work(10, 100, 0)), "stretches are long");
        assert!(!ends_checking(Plan::new(3, true), work(5_000, 100, 1_000)), "the rest touches many");
    }

    #[test]
    fn a_plan_goes_back_where_more_rows_pass_than_before() {
        let mut plan = Plan::new(3, true);
        plan.work = Work { rows: 10_000, steps: 5_000, candidates: 100, touched: 0 };
        assert!(plan.changes() && plan.is_checking());
        plan.work = Work { rows: 10_000, steps: 0, candidates: 100, touched: 0 };
        assert!(!plan.changes() && plan.is_checking());
        plan.work = Work { rows: 10_000, steps: 0, candidates: 9_000, touched: 0 };
        assert!(plan.changes() && !plan.is_checking());
    }

    /// A plan that looked better and was not, again and again, was taken every other time.
    #[test]
    fn what_does_not_pay_is_tried_ever_more_rarely() {
        let mut plan = Plan::new(3, true);
        let mut tries = 0;
        for _ in 0..1000 {
            let candidates = if plan.is_checking() { 9_000 } else { 100 };
            plan.work = Work { rows: 10_000, steps: 5_000, candidates, touched: 0 };
            tries += u32::from(plan.changes() && plan.is_checking());
        }
        assert!((10..25).contains(&tries), "{tries}");
    }
}
