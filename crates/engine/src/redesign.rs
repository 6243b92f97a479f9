//! Layouts that follow the workload: `layout = auto` (LASER §7.3 leaves it open; the rule is `advisor::redesign`).
//!
//! 1. A table of [`TableOptions::layout_auto`](crate::TableOptions) is due when its recorder has counted as much as
//!    [`window`] says: operations, and the blocks that scans went through. It is a background job to decide, before any
//!    compaction, so that the next compaction works under the layout that was decided on.
//! 2. The job takes the trace so far, in which older windows weigh a half, a quarter, and so on, saves it beside the
//!    database, and asks [`advise_layout`]. The columns of a secondary index stay in one group: else it could not be
//!    kept clean (`crate::index::watch`). So do those of a view, which is read from rows where they lie apart.
//! 3. If the verdict is to switch, the layout is set as [`crate::Database::set_layout`] sets it, unless the layout was
//!    changed meanwhile, and [`Event::LayoutChanged`] tells. Files stay as they are: it takes effect run by run.
//!
//! Nothing here looks at a clock: in [`crate::Background::Manual`] what is decided depends on the calls alone.

use std::sync::Arc;

use mycelium_advisor::proposal::{entries_per_block, evidence, usual_widths};
use mycelium_advisor::{Hysteresis, LayoutAdvice, TableFacts, Trace, advise_layout};
use mycelium_base::limits::MAX_LEVELS;
use mycelium_base::{ColumnSet, ErrorKind, Result};
use mycelium_manifest::Version;

use crate::database::Inner;
use crate::events::Event;
use crate::options::{Policy, sizes};
use crate::table::{Table, TableShared};

/// What must have been counted since the last decision before there is another: no less than a trace must say to be
/// believed, and as much as a quarter of the table's blocks. What a design saves grows with the trace, what a redesign
/// costs with the data; so both are of one order, however large the table is.
fn window(version: &Version, block_bytes: u64) -> u64 {
    (version.total_bytes() / block_bytes.max(1) / 4).max(Hysteresis::default().min_operations)
}

impl TableShared {
    /// Whether a redesign is to be decided on.
    pub(crate) fn is_redesign_due(&self) -> bool {
        let options = &self.definition.options;
        let (true, Some(traces)) = (options.layout_auto, &self.traces) else { return false };
        let (operations, entries) = traces.recorder().work();
        let state = self.state.load();
        let version = &state.tree.version;
        let block_bytes = options.block_size_at(MAX_LEVELS) as u64;
        let columns = traces.recorder().numbering().columns().len();
        let entries_per_block = entries_per_block(version, columns, block_bytes);
        evidence(operations, entries, entries_per_block) >= window(version, block_bytes)
    }

    /// What layout the operations of a trace call for.
    fn advise(&self, trace: &Trace, widths: Option<&[usize]>) -> Result<LayoutAdvice> {
        let (state, shape) = (self.state.load(), self.shape.load());
        let options = &self.definition.options;
        let indexed = state.indexes.iter().map(|index| index.index.source.columns_read().clone());
        let together: Vec<ColumnSet> = indexed.chain(self.views.load().columns_read()).collect();
        let facts = TableFacts {
            layout: &shape.layout,
            version: &state.tree.version,
            size_ratio: match &options.policy {
                Policy::Tiered(tiered) => tiered.runs_per_level as f64,
                Policy::Leveled(_) | Policy::TwoPhase(_) => sizes(options).fanout,
            },
            block_bytes: options.block_size_at(MAX_LEVELS) as u64,
            together: &together,
        };
        let usual = || usual_widths(trace.columns());
        let widths = widths.map_or_else(usual, <[usize]>::to_vec);
        advise_layout(&facts, trace, &widths, &Hysteresis::default())
    }
}

impl Inner {
    /// Whether a redesign is to be decided on, or some thread is at it.
    pub(crate) fn has_redesign_work(&self) -> bool {
        let core = self.core.lock();
        core.tables.redesigned().any(|table| {
            let is_deciding = table.traces.as_ref().is_some_and(|traces| traces.is_deciding());
            is_deciding || table.is_redesign_due()
        })
    }

    /// Decides on a redesign of one table, if one is due.
    pub(crate) fn redesign_one(&self) -> Result<bool> {
        let due: Vec<Arc<TableShared>> =
            self.core.lock().tables.redesigned().filter(|table| table.is_redesign_due()).cloned().collect();
        for table in due {
            if self.redesign(&table)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Step 2 and 3. `false` if another thread is at it.
    fn redesign(&self, table: &TableShared) -> Result<bool> {
        let traces = table.traces()?;
        let Some(_deciding) = traces.begin_deciding() else { return Ok(false) };
        if !table.is_redesign_due() {
            return Ok(false);
        }
        let present = table.shape.load().layout.clone();
        let trace = traces.take_and_age();
        self.save_trace(table.id, &trace);
        match table.advise(&trace, None) {
            Ok(advice) if advice.verdict.switch && advice.layout != *present => {
                advice.warnings.iter().for_each(|warning| tracing::warn!(%warning, table = table.name, "a new layout"));
                let to = Arc::new(advice.layout);
                let changed = self.change_layout(table, (*to).clone(), Some(&present));
                let is_gone = table.check_alive().is_err();
                match changed {
                    Ok(true) => self.emit(|| Event::LayoutChanged {
                        table: table.id,
                        from: present.clone(),
                        to: to.clone(),
                        predicted_saving: advice.verdict.gain,
                    }),
                    Ok(false) => {}
                    // It is decided on again when the next window is full. Advice that cannot be followed is no fault
                    // of the data.
                    Err(error)
                        if is_gone
                            || error.kind().is_shortage()
                            || matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Unsupported) =>
                    {
                        tracing::warn!(%error, "a layout could not be changed");
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, table = table.name, "no layout can be advised"),
        }
        Ok(true)
    }
}

impl Table {
    /// The layout that the table's [trace](Table::trace) calls for, what it would cost by the model of LASER beside the
    /// present layout and others (groups of `widths` columns among them; of an eighth, a quarter and a half of the
    /// columns if `None`), and whether it is worth the rewriting. Nothing is changed: [`crate::Database::set_layout`]
    /// does.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a key-value table or a width of 0.
    pub fn advise(&self, widths: Option<&[usize]>) -> Result<LayoutAdvice> {
        self.shared.advise(&self.trace()?, widths)
    }
}
