//! What a scan has before it: how much, and where to cut it for several threads.
//!
//! Both come from the fences of files, which are in memory; no block is read.
//!
//! 1. [`Table::extent`] adds up the files that overlap the interval. Where a level has column groups, each of them holds an
//!    entry for every row, so that the largest group speaks for the level.
//! 2. [`Table::split_points`] takes the smallest keys of all files within the interval, weighs each with its file's bytes,
//!    and cuts where equal shares of the weight end.

use std::collections::BTreeMap;

use mycelium_base::Result;
use mycelium_encoding::{Datum, key};

use crate::table::Table;

/// What the files and memtables of a table hold within a key interval, counted by whole files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extent {
    /// Entries: at least as many as there are rows, at any snapshot whose versions the table still holds. None means no rows.
    pub entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl Table {
    /// What lies in `[lower, upper)`; `None` is unbounded. Memtables count in full. O(files).
    pub fn extent(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Extent {
        let state = self.shared.state.load();
        let mut extent = Extent::default();
        for (runs, level) in state.tree.levels.iter().zip(&state.tree.version.levels) {
            let mut by_group: Vec<(Option<_>, u64)> = Vec::new();
            for (open, run) in runs.iter().zip(&level.runs) {
                let files = open.files.get(open.within(lower, upper)).unwrap_or_default();
                let entries: u64 = files.iter().map(|file| file.meta.entry_count).sum();
                extent.bytes += files.iter().map(|file| file.meta.size).sum::<u64>();
                match by_group.iter_mut().find(|(group, _)| *group == run.group()) {
                    Some((_, sum)) => *sum += entries,
                    None => by_group.push((run.group(), entries)),
                }
            }
            extent.entries += by_group.into_iter().map(|(_, entries)| entries).max().unwrap_or(0);
        }
        extent.entries += state.memtables().map(|memtable| memtable.entry_count()).sum::<u64>();
        extent
    }

    /// At most `parts - 1` primary keys, ascending, that cut the rows of `[lower, upper)` into parts of about as many bytes.
    /// Fewer, or none, where files do not say where to cut: rows in memtables or in one file are one part. O(files * log files).
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] for a key-value table.
    pub fn split_points(&self, parts: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<Vec<Vec<Datum>>> {
        let schema = self.packed_layout()?.schema();
        let state = self.shared.state.load();
        let mut weights: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (_, run) in state.tree.runs() {
            for file in run.files.get(run.within(lower, upper)).unwrap_or_default() {
                *weights.entry(&file.meta.smallest).or_default() += file.meta.size;
            }
        }
        let total: u64 = weights.values().sum();
        let mut points: Vec<Vec<Datum>> = Vec::new();
        let (mut before, mut share) = (0, 1);
        for (smallest, weight) in weights {
            let is_due = before * parts as u64 >= total * share && share < parts as u64;
            // The start of a range delete need not be a key.
            if is_due
                && lower.is_none_or(|lower| lower < smallest)
                && let Ok(point) = key::decode_key(schema, smallest)
            {
                points.push(point);
                share = before * parts as u64 / total.max(1) + 1;
            }
            before += weight;
        }
        Ok(points)
    }
}
