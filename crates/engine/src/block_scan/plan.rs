//! Which way the rows that pass a filter are found, by cost (LSM-OPD §4.2.2).
//!
//! 1. A scan begins by merging keys and then filtering. It counts its work, and judges it every [`PERIOD`] rows.
//! 2. Filtering first and then checking what is found would have cost so much for every row that passes and for every
//!    key that the rest has. Where that is clearly less, it goes on so.
//! 3. Of rows that pass it counts the stretches that merging would have taken at once: were all rows like these,
//!    merging would have had as many stretches a row. Where that is clearly less, it goes back.
//!
//! So no statistics are needed, and keys of which one half lies otherwise than the other change the plan on the way.
//! The judgement depends on counts alone: the same data and scan give the same plan.

/// Rows after which a plan is judged.
const PERIOD: u64 = 8192;

/// What the parts of a scan's work cost, in nanoseconds, as `scan_speed plans` measures it (decision 0036).
const MERGED_STEP: u64 = 70;
const MERGED_STEP_OF_A_RUN: u64 = 33;
const PASSED_ROW: u64 = 2;
/// Of a row that was merged by its key with many others, beside what passing it costs.
const INTERLEAVED_ROW: u64 = 35;
const TESTED_ROW: u64 = 1;
const CANDIDATE: u64 = 85;
const CHECK_OF_A_RUN: u64 = 40;
/// Not measured: a key of the rest is looked up in all runs.
const TOUCHED_KEY: u64 = 1500;

/// Where one plan costs less than so many percent of the other it is taken: changing costs something, too.
const CLEARLY_LESS: u64 = 80;

/// As many neighbouring rows of one of so many sources cost as much in a stretch as merged by their keys.
pub(super) fn most_neighbours(sources: usize) -> f64 {
    (MERGED_STEP + MERGED_STEP_OF_A_RUN * sources as u64) as f64 / (INTERLEAVED_ROW - PASSED_ROW) as f64
}

/// How a scan of several columnar runs finds the rows that pass its filter. What it gives is the same.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FilterPlan {
    /// The cheaper of the two, judged again and again by what the scan meets.
    #[default]
    Automatic,
    /// The newest version of each key is found, and then tested.
    MergeFirst,
    /// The rows of each run are tested, and those that pass checked against younger runs. Merges first where runs lack
    /// wanted columns, and where only the key is tested.
    FilterFirst,
}

/// The longest wait, as a power of two.
const LONGEST_WAIT: u32 = 6;

/// What was done since the plan was judged last.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Work {
    /// Rows of all runs that were passed, looked at or not.
    pub(super) rows: u64,
    /// Stretches, and keys that were put together: what merging does one by one. Of candidates those that followed each
    /// other.
    pub(super) steps: u64,
    /// Rows that were merged by their keys alone, many at once.
    pub(super) interleaved: u64,
    /// Rows that pass the filter, where they were found.
    pub(super) candidates: u64,
    /// Keys of the rest.
    pub(super) touched: u64,
}

/// The plan of a scan, and the work that it is judged by.
#[derive(Debug)]
pub(super) struct Plan {
    /// Runs; none if the plan stays as it is.
    runs: u64,
    is_checking: bool,
    /// Whether rows were merged by their keys alone.
    interleaves: bool,
    pub(super) work: Work,
    /// Periods until filtering first is tried again, and how often in a row it was given up at once.
    wait: u64,
    given_up: u32,
}

impl Plan {
    /// That of a scan of so many runs, which can filter before it merges if `can_check`.
    pub(super) fn new(wanted: FilterPlan, runs: usize, can_check: bool) -> Self {
        let runs = if can_check && wanted == FilterPlan::Automatic { runs as u64 } else { 0 };
        let is_checking = can_check && wanted == FilterPlan::FilterFirst;
        Self { runs, is_checking, interleaves: false, work: Work::default(), wait: 0, given_up: 0 }
    }

    /// Whether rows are filtered first and then checked.
    #[inline]
    pub(super) fn is_checking(&self) -> bool {
        self.is_checking
    }

    /// Whether it is to merge first, and stays so.
    pub(super) fn always_merges(&self) -> bool {
        !self.is_checking && self.runs <= 1
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
        self.interleaves |= work.interleaved > 0;
        let step = MERGED_STEP + MERGED_STEP_OF_A_RUN * self.runs;
        let merged = match self.is_checking {
            true => {
                let steps = step * (work.steps * work.rows / work.candidates.max(1));
                if self.interleaves { steps.min(INTERLEAVED_ROW * work.rows) } else { steps }
            }
            false => step * work.steps + INTERLEAVED_ROW * work.interleaved,
        };
        let merging = merged + PASSED_ROW * work.rows;
        let (now, other) = if self.is_checking { (checking, merging) } else { (merging, checking) };
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

    fn automatic(runs: usize, can_check: bool) -> Plan {
        Plan::new(FilterPlan::Automatic, runs, can_check)
    }

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
        let work =
            |steps, candidates, touched| move |_| Work { rows: 10_000, steps, candidates, touched, interleaved: 0 };
        assert!(ends_checking(automatic(3, true), work(5_000, 100, 0)));
        assert!(!ends_checking(automatic(3, false), work(5_000, 100, 0)), "it cannot");
        assert!(!ends_checking(automatic(1, true), work(5_000, 100, 0)), "there is nothing to check");
        assert!(!ends_checking(automatic(3, true), work(5_000, 9_000, 0)), "many pass");
        assert!(!ends_checking(automatic(3, true), work(10, 100, 0)), "stretches are long");
        assert!(!ends_checking(automatic(3, true), work(5_000, 100, 1_000)), "the rest touches many");
    }

    #[test]
    fn a_plan_goes_back_where_many_rows_pass_in_long_stretches() {
        let mut plan = automatic(3, true);
        plan.work = Work { rows: 10_000, steps: 5_000, candidates: 100, ..Work::default() };
        assert!(plan.changes() && plan.is_checking());
        plan.work = Work { rows: 10_000, steps: 90, candidates: 100, ..Work::default() };
        assert!(!plan.changes() && plan.is_checking());
        plan.work = Work { rows: 10_000, steps: 8_000, candidates: 9_000, ..Work::default() };
        assert!(!plan.changes() && plan.is_checking(), "merging would cost as much");
        plan.work = Work { rows: 10_000, steps: 50, candidates: 9_000, ..Work::default() };
        assert!(plan.changes() && !plan.is_checking(), "these lie in a few stretches");
    }

    /// Rows that interleave are merged for less than steps of all runs cost, so that more of them have to fail for
    /// checking to pay.
    #[test]
    fn rows_that_interleave_are_merged_unless_few_pass() {
        let plan = |candidates| {
            let mut plan = automatic(6, true);
            plan.work = Work { rows: 10_000, interleaved: 10_000, candidates, ..Work::default() };
            plan.changes();
            plan
        };
        assert!(plan(100).is_checking());
        assert!(!plan(1_500).is_checking());
        // Steps would have been dear; that rows interleave is known.
        let mut few = plan(100);
        few.work = Work { rows: 10_000, steps: 2_000, candidates: 2_000, ..Work::default() };
        assert!(few.changes() && !few.is_checking());
    }

    /// A plan that looked better and was not, again and again, was taken every other time.
    #[test]
    fn what_does_not_pay_is_tried_ever_more_rarely() {
        let mut plan = automatic(3, true);
        let mut tries = 0;
        for _ in 0..1000 {
            let (steps, candidates) = if plan.is_checking() { (10, 9_000) } else { (5_000, 100) };
            plan.work = Work { rows: 10_000, steps, candidates, ..Work::default() };
            tries += u32::from(plan.changes() && plan.is_checking());
        }
        assert!((10..25).contains(&tries), "{tries}");
    }
}
