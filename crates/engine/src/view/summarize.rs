//! Partial aggregates of a file that is being written.
//!
//! Rows are aggregated by block; blocks are merged into their page, pages into the file. A page or file whose groups
//! take more than 1 MiB is given up, so that memory is bounded whatever the rows are.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Group, Result};
use mycelium_encoding::Groups;
use mycelium_encoding::aggregate::AggregationInput;
use mycelium_manifest::KeyRange;
use mycelium_sst::{Summarizer, SummaryPart};

use super::definition::ViewDefinition;
use crate::table::TableShared;
use crate::tree::OpenFile;

/// The most that groups of a page or file may take in memory.
const MAX_WEIGHT: usize = 1 << 20;

impl TableShared {
    /// What writes the partial aggregates of the table's views into a file of a column group: of those views whose
    /// columns it has, all of them.
    pub(crate) fn summarizers(&self, group: Option<&Arc<Group>>) -> Result<Vec<Box<dyn Summarizer>>> {
        let views = self.views.load();
        let mut summarizers: Vec<Box<dyn Summarizer>> = Vec::new();
        if views.is_empty() {
            return Ok(summarizers);
        }
        let format = self.typed_formats()?.of(group)?;
        for view in views.iter() {
            if self.history_columns(view)?.is_subset(format.columns()) {
                let input = view.aggregation.input(&format)?;
                summarizers.push(Box::new(ViewSummarizer::new(view, input)));
            }
        }
        Ok(summarizers)
    }

    /// Whether a file of `range` (of all keys if `None`) was written before one of the views was created whose columns
    /// it has.
    pub(crate) fn lacks_summaries(&self, range: Option<&KeyRange>) -> Result<bool> {
        let state = self.state.load();
        for view in self.views.load().iter() {
            let columns = self.history_columns(view)?;
            for (_, run) in state.tree.runs() {
                if !columns.is_subset(state.tree.formats[run.format].columns()) {
                    continue;
                }
                let is_within = |file: &OpenFile| range.is_none_or(|range| file.meta.overlaps_range(range));
                for file in run.files.iter().filter(|file| is_within(file)) {
                    if file.sst.block_count() > 0 && file.sst.summary(view.id)?.is_none() {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// The columns whose files tell a view all it must know: those that it reads; or, where it reads the key alone,
    /// one, for every column group knows which rows there are.
    pub(super) fn history_columns(&self, view: &ViewDefinition) -> Result<ColumnSet> {
        let reads = view.aggregation.columns_read();
        if !reads.is_empty() {
            return Ok(reads.clone());
        }
        Ok(self.typed_formats()?.whole.columns().iter().take(1).collect())
    }
}

/// The groups of the parts of one size.
struct Part {
    groups: Groups,
    /// Whether no row of the part is missing.
    is_whole: bool,
}

impl Part {
    fn new(view: &ViewDefinition) -> Self {
        Self { groups: Groups::new(view.aggregation.clone()), is_whole: true }
    }

    /// Takes the rows of a smaller part.
    fn take(&mut self, part: &Self) {
        self.is_whole &= part.is_whole;
        if self.is_whole {
            self.groups.merge(&part.groups);
        }
        if self.groups.weight() > MAX_WEIGHT {
            self.is_whole = false;
            self.groups.clear();
        }
    }

    fn clear(&mut self) {
        self.groups.clear();
        self.is_whole = true;
    }

    /// Appends the bytes of the groups, if they are all of them and take at most `limit`.
    fn encode(&self, limit: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        if self.is_whole {
            self.groups.encode(out);
        }
        if !self.is_whole || out.len() - start > limit {
            out.truncate(start);
            return false;
        }
        true
    }
}

/// Adds up the rows of one file for one view.
struct ViewSummarizer {
    id: u64,
    input: AggregationInput,
    block: Part,
    page: Part,
    file: Part,
}

impl ViewSummarizer {
    fn new(view: &ViewDefinition, input: AggregationInput) -> Self {
        Self { id: view.id, input, block: Part::new(view), page: Part::new(view), file: Part::new(view) }
    }
}

impl Summarizer for ViewSummarizer {
    fn id(&self) -> u64 {
        self.id
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.input.add(key, value, &mut self.block.groups).is_ok()
    }

    fn end(&mut self, part: SummaryPart, limit: usize, out: &mut Vec<u8>) -> bool {
        let (ended, larger) = match part {
            SummaryPart::Block => (&mut self.block, Some(&mut self.page)),
            SummaryPart::Page => (&mut self.page, Some(&mut self.file)),
            SummaryPart::File => (&mut self.file, None),
        };
        if let Some(larger) = larger {
            larger.take(ended);
        }
        let is_small = ended.encode(limit, out);
        ended.clear();
        is_small
    }

    fn discard(&mut self, part: SummaryPart) {
        match part {
            SummaryPart::Block => self.block.clear(),
            SummaryPart::Page => self.page.clear(),
            SummaryPart::File => self.file.clear(),
        }
    }
}
