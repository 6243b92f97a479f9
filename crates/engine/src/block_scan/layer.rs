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

/// Runs of a scan of which each wanted column is in exactly one.
#[derive(Default)]
pub(super) struct Layer {
    /// Their places among the scan's, youngest first.
    pub(super) runs: Vec<usize>,
    /// The projected columns outside the primary key.
    pub(super) targets: Vec<Target>,
}

impl Layer {
    /// A layer of these of the runs; `builder` says what is projected.
    pub(super) fn new(chosen: Vec<usize>, runs: &[LayerRun], builder: &RecordBatchBuilder) -> Result<Self> {
        let target = |(column, target): (usize, usize)| {
            let found = chosen.iter().find_map(|&run| Some((run, runs[run].place_of(column)?)));
            let (run, place) = found.ok_or_else(|| Error::invalid(format!("no run of a layer has column {column}")))?;
            Ok(Target { column, target, run, place })
        };
        let targets = builder.value_columns().map(target).collect::<Result<_>>()?;
        Ok(Self { runs: chosen, targets })
    }

    /// Its runs, of all runs of the scan.
    pub(super) fn among<'r>(&'r self, runs: &'r [LayerRun]) -> impl Iterator<Item = &'r LayerRun> {
        self.runs.iter().map(|&run| &runs[run])
    }

    /// The current block of its first run, and the row in it.
    pub(super) fn first_block<'r>(&self, runs: &'r [LayerRun]) -> Option<(&'r ColumnBlock, usize)> {
        self.runs.first().and_then(|&run| runs[run].block())
    }

    /// Whether a run is younger than all of the layer's.
    pub(super) fn is_older_than(&self, run: usize) -> bool {
        self.runs.first().is_some_and(|&youngest| run < youngest)
    }
}
