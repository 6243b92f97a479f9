//! The other plan of a filtered scan: filter, then check (LSM-OPD §4.2.2).
//!
//! 1. Each run is filtered by itself and stands on its next *candidate*: in a block of whole rows that the snapshot
//!    sees, each key once, the next row that passes, of any other block the next row. A row of the answer that the rest
//!    does not touch is a candidate in the run that has its newest `Put`, as all runs have all wanted columns.
//! 2. The least key of a candidate or of the rest is next. A candidate *stands* if no younger run may hold its key, by
//!    fences and Bloom filters, and nothing else may change it: it is appended as it lies, with those that follow it in
//!    its block.
//! 3. Of any other key the entries are looked up in the runs that may hold it, youngest first, and the filter decides
//!    on the row put together from them.
//! 4. Runs only go forward: look-ups have cursors of their own.
//!
//! Cost: O(1) for 64 rows and tested column, and for each candidate O(younger runs).

use mycelium_base::hash::hash_key;
use mycelium_base::{Cursor, Result, Trailer};
use mycelium_encoding::RecordBatchBuilder;

use super::BlockScan;

impl BlockScan {
    /// Has each run stand on its next candidate.
    pub(super) fn begin_checking(&mut self) -> Result<()> {
        for run in 0..self.runs.len() {
            self.find_candidate(run)?;
        }
        Ok(())
    }

    /// Has each run stand on its first entry past the last key, which was taken.
    pub(super) fn end_checking(&mut self) -> Result<()> {
        for run in &mut self.runs {
            run.cursor.seek(&self.key, Trailer::NEWEST)?;
            run.leave_key(&self.key)?;
        }
        Ok(())
    }

    fn find_candidate(&mut self, run: usize) -> Result<()> {
        let Self { runs, snapshot, upper, counters, plan, .. } = self;
        plan.work.rows += runs[run].go_to_candidate(*snapshot, upper.as_deref(), counters)?;
        Ok(())
    }

    /// Takes the next candidates, `most` of them at most; `false` if there are none.
    pub(super) fn append_candidates(&mut self, most: usize, builder: &mut RecordBatchBuilder) -> Result<bool> {
        // Of runs with the same key the youngest.
        let first = self.runs.iter().enumerate().filter_map(|(at, run)| Some((run.key()?, at))).min();
        let touched = self.touched.key();
        let Some(key) = first.map(|(key, _)| key).into_iter().chain(touched).min() else { return Ok(false) };
        if self.upper.as_deref().is_some_and(|upper| key >= upper) {
            return Ok(false);
        }
        let run = first.filter(|(key, _)| touched.is_none_or(|touched| *key < touched)).map(|(_, run)| run);
        let mut next_key = std::mem::take(&mut self.row);
        next_key.clear();
        next_key.extend_from_slice(key);
        self.row = std::mem::replace(&mut self.key, next_key);
        if let Some(run) = run {
            self.at = self.layer_of(&[run], builder)?;
            let within = self.fitting(usize::MAX, builder);
            let count = self.find_standing(run, (most, within))?;
            if count > 0 {
                self.append_standing(run, count, builder)?;
                return Ok(true);
            }
        }
        self.append_checked(builder)?;
        Ok(true)
    }

    /// Makes `passing` the candidates of the run's block that stand and pass, `most` of them at most, among the next
    /// `within` rows, from the one that it stands on up to one that does not stand; how many rows of the block are done
    /// with then.
    fn find_standing(&mut self, run: usize, (most, within): (usize, usize)) -> Result<usize> {
        self.passing.clear();
        let Self { runs, snapshot, upper, touched, all_range_deletes, filter, key, row: row_key, passing, .. } = self;
        let Some((block, first)) = runs[run].block() else { return Ok(0) };
        if !block.facts().is_plain(*snapshot) {
            return Ok(0);
        }
        let others = runs.iter().enumerate().filter(|(other, _)| *other != run).filter_map(|(_, other)| other.key());
        let bound = others.chain(touched.key()).chain(upper.as_deref()).min();
        let mut candidate = Some(first);
        while let Some(row) = candidate.filter(|row| passing.len() < most && row - first < within) {
            // Other versions of a block's first and last key may be in the blocks beside it.
            if row == 0 || row + 1 == block.rows() {
                break;
            }
            block.write_key(row, row_key)?;
            if bound.is_some_and(|bound| row_key.as_slice() >= bound)
                || all_range_deletes.covering(row_key, *snapshot).is_some()
            {
                break;
            }
            if filter.as_ref().map_or(Ok(true), |filter| filter.passes_key(row_key))? {
                let hash = hash_key(row_key);
                if runs[..run].iter().any(|younger| younger.cursor.may_contain(row_key, hash)) {
                    break;
                }
                passing.push((row - first) as u32);
            }
            std::mem::swap(key, row_key);
            candidate = runs[run].selected.rows.next(row + 1);
        }
        Ok(candidate.unwrap_or(block.rows()) - first)
    }

    /// Appends what [`BlockScan::find_standing`] found in the next `count` rows of the run.
    fn append_standing(&mut self, run: usize, count: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.plan.work.candidates += self.passing.len() as u64;
        self.plan.work.steps += u64::from(!self.passing.is_empty());
        self.counters.candidates_checked += self.passing.len() as u64;
        self.append_selected(builder)?;
        self.runs[run].go_on(count)?;
        self.counters.rows_passed_through += count as u64;
        self.plan.work.rows += count as u64;
        self.find_candidate(run)
    }

    /// Step 3 of the module, for the key in `key`.
    fn append_checked(&mut self, builder: &mut RecordBatchBuilder) -> Result<()> {
        self.plan.work.candidates += 1;
        self.plan.work.steps += 1;
        self.counters.candidates_checked += 1;
        self.begin_key()?;
        let hash = hash_key(&self.key);
        let Self { runs, merge, key, snapshot, .. } = self;
        for run in runs.iter_mut().filter(|run| run.cursor.may_contain(key, hash)) {
            run.look_up(key, *snapshot, merge)?;
        }
        for run in 0..self.runs.len() {
            self.runs[run].leave_key(&self.key)?;
            self.find_candidate(run)?;
        }
        self.end_key(builder)
    }
}
