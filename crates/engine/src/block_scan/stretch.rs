//! What a stretch is: its layer, and how far nothing else has a key (step 2 of [`super`]).

use std::cmp::Ordering;

use mycelium_base::Result;
use mycelium_encoding::RecordBatchBuilder;
use mycelium_sst::ColumnBlock;

use super::BlockScan;
use super::layer::{Layer, Target};
use super::layer_run::LayerRun;

impl BlockScan {
    /// The layer of the stretch.
    pub(super) fn layer(&self) -> &Layer {
        &self.layers[self.at]
    }

    /// Its runs.
    pub(super) fn layer_runs(&self) -> impl Iterator<Item = &LayerRun> {
        self.layer().among(&self.runs)
    }

    /// Makes the layer that of the oldest runs that stand on the key; whether there is one.
    pub(super) fn find_layer(&mut self, builder: &RecordBatchBuilder) -> Result<bool> {
        let stands = |run: &LayerRun| run.key() == Some(&self.key);
        let standing = self.runs.iter().filter(|run| stands(run)).count();
        let is_last =
            |layer: &Layer| layer.runs.len() == standing && layer.runs.iter().all(|&run| stands(&self.runs[run]));
        if self.layers.get(self.at).is_some_and(is_last) {
            return Ok(true);
        }
        let (mut missing, mut chosen) = (self.columns.clone(), Vec::with_capacity(standing));
        for (at, run) in self.runs.iter().enumerate().rev().filter(|(_, run)| stands(run)) {
            if run.share.is_subset(&missing) {
                missing.remove_all(&run.share);
                chosen.push(at);
            }
        }
        if !missing.is_empty() || chosen.is_empty() {
            return Ok(false);
        }
        chosen.reverse();
        self.at = self.layer_of(&chosen, builder)?;
        Ok(true)
    }

    /// The place of the layer of these runs.
    pub(super) fn layer_of(&mut self, runs: &[usize], builder: &RecordBatchBuilder) -> Result<usize> {
        if let Some(at) = self.layers.iter().position(|layer| layer.runs == runs) {
            return Ok(at);
        }
        self.layers.push(Layer::new(runs.to_vec(), &self.runs, builder)?);
        Ok(self.layers.len() - 1)
    }

    /// How many of the next rows of the layer, `most` at most, surely have no more text than the batch still takes.
    pub(super) fn fitting(&self, most: usize, builder: &RecordBatchBuilder) -> usize {
        let mut fitting = most;
        for &Target { target, run, place, .. } in &self.layer().targets {
            let Some((block, row)) = self.runs[run].block() else { continue };
            let rows = row..block.rows().min(row.saturating_add(fitting));
            let there = rows.len();
            let within = block.read(|pages| builder.fitting(target, &pages[place], rows, self.reach));
            // Of rows that are not there nothing is known.
            if within < there {
                fitting = within;
            }
        }
        fitting
    }

    /// Makes `bound` the run whose key ends the stretch.
    pub(super) fn find_bound(&mut self) {
        let mut first: Option<(&[u8], usize)> = None;
        let mut is_shared = false;
        let is_other = |run: &usize| !self.layer().runs.contains(run) && !self.overlays.contains(*run);
        let others = self.runs.iter().enumerate().filter(|(run, _)| is_other(run));
        for (run, key) in others.filter_map(|(run, other)| Some((run, other.key()?))) {
            match first.map_or(Ordering::Less, |(first, _)| key.cmp(first)) {
                Ordering::Less => (first, is_shared) = (Some((key, run)), false),
                Ordering::Equal => is_shared = true,
                Ordering::Greater => {}
            }
        }
        self.bound = first.map(|(_, run)| run);
        self.is_bound_shared = is_shared;
    }

    /// The key of the bound.
    pub(super) fn bound_key(&self) -> Option<&[u8]> {
        self.bound.and_then(|run| self.runs[run].key())
    }

    /// How many rows from the `offset`th on, up to the bound, can be taken as they lie, but for what the rest has of
    /// them.
    pub(super) fn untouched(&self, offset: usize) -> Result<usize> {
        let deleted = self.all_range_deletes.next_start(&self.key);
        let end_key = [self.bound_key(), deleted, self.upper.as_deref()].into_iter().flatten().min();
        let mut count = usize::MAX;
        let mut first: Option<(&ColumnBlock, usize)> = None;
        for run in self.layer_runs() {
            let Some((block, row)) = run.block() else { return Ok(0) };
            if !block.facts().is_plain(self.snapshot) {
                return Ok(0);
            }
            let row = row + offset;
            let end = end_key.map_or(Ok(block.rows()), |key| block.seek(key))?;
            count = count.min(end.saturating_sub(row));
            match first {
                None => first = Some((block, row)),
                Some((other, other_row)) => {
                    count = other.same_keys(other_row, (block, row), count.min(self.reach))?;
                }
            }
        }
        let reach = if self.overlays.is_empty() { usize::MAX } else { self.reach };
        Ok(if first.is_some() { count.min(reach) } else { 0 })
    }
}
