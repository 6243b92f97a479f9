//! Runs that together hold all wanted columns.

use mycelium_base::{Error, Result};
use mycelium_encoding::RecordBatchBuilder;
use mycelium_sst::ColumnBlock;

use super::layer_run::LayerRun;

/// A projected column: its place in the projection, and where its pages are.
pub(super) struct Target {
    pub(super) column: usize,
    pub(super) target: usize,
    pub(super) run: usize,
    pub(super) place: usize,
}

/// Columnar runs of which each wanted column is in exactly one.
#[derive(Default)]
pub(super) struct Layer {
    pub(super) runs: Vec<LayerRun>,
    /// The projected columns outside the primary key.
    pub(super) targets: Vec<Target>,
}

impl Layer {
    /// The layers of runs that have the numbers of theirs, youngest first: in the order of the numbers from the last. `builder`
    /// says what is projected.
    pub(super) fn of_runs(runs: Vec<(LayerRun, usize)>, builder: &RecordBatchBuilder) -> Result<Vec<Self>> {
        let count = runs.iter().map(|(_, layer)| layer + 1).max().unwrap_or(0);
        let mut layers: Vec<Self> = std::iter::repeat_with(Self::default).take(count).collect();
        for (run, layer) in runs {
            layers[count - 1 - layer].runs.push(run);
        }
        for layer in &mut layers {
            for (column, target) in builder.value_columns() {
                layer.targets.push(layer.target(column, target)?);
            }
        }
        Ok(layers)
    }

    fn target(&self, column: usize, target: usize) -> Result<Target> {
        let of = |run: &LayerRun| run.columns.iter().position(|&own| own == column);
        let found = self.runs.iter().enumerate().find_map(|(at, run)| Some((at, of(run)?)));
        let (run, place) = found.ok_or_else(|| Error::invalid(format!("no run of a layer has column {column}")))?;
        Ok(Target { column, target, run, place })
    }

    /// The least key that a run stands on.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.runs.iter().filter_map(LayerRun::key).min()
    }

    /// Whether all runs stand on this key.
    pub(super) fn stands_on(&self, key: &[u8]) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(|run| run.key() == Some(key))
    }

    /// The current block of the first run, and the row in it.
    pub(super) fn first_block(&self) -> Option<(&ColumnBlock, usize)> {
        self.runs.first().and_then(LayerRun::block)
    }

    /// Whether all cells of a column of the current block are values.
    pub(super) fn has_values(&self, target: &Target) -> bool {
        let block = self.runs[target.run].block();
        block.is_some_and(|(block, _)| block.read(|pages| pages[target.place].has_only_values()))
    }
}
