//! Files that a job wrote for an index before it knew all that it would write, made one run.
//!
//! What a flush, a compaction or a bulk load says to an index is sorted within a budget, and written each time that the
//! budget is used up. Each such file reaches over the whole index. Installed as they are, all of them would be asked by
//! every lookup, and level 0 would be as deep as there are files, which of a large load are hundreds: past
//! `stop_level0_runs` all writers of the database would wait until they are merged.
//!
//! 1. An index with one file keeps it.
//! 2. The files of any other are merged by the rules of derived tables ([`mycelium_merge::ExactStream`]) into files of
//!    the table's size that do not overlap. Removals stay: what they name may lie anywhere.
//! 3. The files that were merged are removed. Nothing has named them.
//!
//! It costs that these entries are written twice by the job, before they are read by anybody. Memory: what is read
//! ahead of all files is as much as the budget, but no less than [`LEAST_WINDOW`] a file.

use std::collections::BTreeMap;

use mycelium_base::{Result, TableId};
use mycelium_sst::{CursorOptions, LevelCursor};

use super::watch::DerivedFile;
use crate::database::Inner;
use crate::output_files::{OutputFiles, file_meta};
use crate::rate_limit::WritePriority;
use crate::sync::Mutex;
use crate::table::TableShared;
use crate::table_job::{OlderPlaces, TableJob};

/// Bytes read at once from each file.
const LEAST_WINDOW: usize = 16 << 10;
const LARGEST_WINDOW: usize = 256 << 10;

impl Inner {
    /// What the files say, in files of which those of one index do not overlap. `priority` is that of the job.
    pub(crate) fn unite_spills(
        &self,
        files: Vec<DerivedFile>,
        priority: WritePriority,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<Vec<DerivedFile>> {
        let mut by_table: BTreeMap<TableId, Vec<DerivedFile>> = BTreeMap::new();
        for file in files {
            by_table.entry(file.table).or_default().push(file);
        }
        let mut united = Vec::new();
        for (id, spills) in by_table {
            let table = self.core.lock().tables.get(&id).cloned();
            match table.filter(|_| spills.len() > 1) {
                Some(table) => united.extend(self.merge_spills(&table, &spills, priority, outputs)?),
                // Those of an index that was dropped meanwhile are not installed.
                None => united.extend(spills),
            }
        }
        Ok(united)
    }

    fn merge_spills(
        &self,
        table: &TableShared,
        spills: &[DerivedFile],
        priority: WritePriority,
        outputs: &Mutex<OutputFiles<'_>>,
    ) -> Result<Vec<DerivedFile>> {
        let read_ahead = (self.staging_budget() / spills.len()).clamp(LEAST_WINDOW, LARGEST_WINDOW);
        let cursor_options = CursorOptions { fill_cache: false, read_ahead, ..CursorOptions::default() };
        let mut sources = Vec::with_capacity(spills.len());
        for spill in spills {
            let file = outputs.lock().open(&file_meta(spill.number, &spill.summary))?;
            sources.push(LevelCursor::new(vec![file], cursor_options));
        }
        let job = TableJob::new(self, table, outputs, priority, OlderPlaces::Unknown);
        let merged = job.merge_derived(sources, 0)?;
        spills.iter().for_each(|spill| outputs.lock().remove(spill.number));
        let made = |(number, summary)| DerivedFile { table: table.id, number, summary };
        Ok(merged.files.into_iter().map(made).collect())
    }
}
