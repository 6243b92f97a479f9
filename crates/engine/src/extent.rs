//! What a scan has before it: how much, and where to cut it for several threads.
//!
//! How much there is and where to cut it come from the fences of files, which are in memory, and the second from those
//! of their blocks; what values there are, from the statistics of columnar files. No block is read.
//!
//! 1. [`Table::extent`] adds up the files that overlap the interval. Where a level has column groups, each row has an
//!    entry in one group that holds a column, whichever the column is: those of a column that has most speak for the
//!    level. While rows wait to be reshaped, these are files of several groups, or of groups and whole rows. A group
//!    without columns, of a table of keys alone, has whole rows.
//! 2. [`Table::split_points`] takes the files within the interval in pieces that are small beside a part, from block to
//!    block, weighs the first key of each with what it takes to read the piece, and cuts where equal shares of the
//!    weight end. Columnar pieces take their bytes; rows, in files or in memtables, are merged one by one, which takes
//!    as much as many bytes of columns ([`ENTRY_COST`]): where a scan comes to what was written lately it is slow. What
//!    lies between two blocks need not be a key: the key is taken whose columns begin with what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Group, GroupFormat, Result};
use mycelium_encoding::key::KeyReader;
use mycelium_encoding::{Datum, Schema};
use mycelium_memtable::Memtable;

use crate::table::Table;
use crate::tree::{OpenFile, OpenRun};

/// Pieces that a part has at least.
const PIECES_PER_PART: u64 = 32;

/// The bytes of columns that are read in the time that one row takes, or one patch.
const ENTRY_COST: u64 = 512;

/// What the files and memtables of a table hold within a key interval, counted by whole files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extent {
    /// Entries: at least as many as there are rows, at any snapshot whose versions the table still holds. None means no
    /// rows.
    pub entries: u64,
    /// Of them, those in columnar files.
    pub columnar_entries: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl Table {
    /// What lies in `[lower, upper)`; `None` is unbounded. Memtables count in full. O(files). Of a table that was
    /// dropped nothing is known: there may be a row, and reading it fails.
    pub fn extent(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Extent {
        let state = self.shared.state.load();
        if self.shared.check_alive().is_err() {
            return Extent { entries: 1, ..Extent::default() };
        }
        let mut extent = Extent::default();
        for (runs, level) in state.tree.levels.iter().zip(&state.tree.version.levels) {
            let (mut by_group, mut columnar) = (GroupEntries::default(), GroupEntries::default());
            for (open, run) in runs.iter().zip(&level.runs) {
                let files = open.files.get(open.within(lower, upper)).unwrap_or_default();
                let entries: u64 = files.iter().map(|file| file.meta.entry_count).sum();
                extent.bytes += files.iter().map(|file| file.meta.size).sum::<u64>();
                by_group.add(run.group(), entries);
                if run.group().is_some_and(|group| group.format == GroupFormat::Columnar) {
                    columnar.add(run.group(), entries);
                }
            }
            extent.entries += most_of_a_column(&by_group.0);
            extent.columnar_entries += most_of_a_column(&columnar.0);
        }
        extent.entries += state.memtables().map(|memtable| memtable.entry_count()).sum::<u64>();
        extent
    }

    /// By column of the schema, about how many different values its rows have, of what the columnar files hold,
    /// superseded versions included: within 20 % or so, and by half or twice where nearly every row has another value.
    /// Nothing is known of columns that are in none of them, as those of the primary key. O(files x columns) when it is
    /// asked for the first time since files came or went.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] for a key-value table; those of reading.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Options, TableOptions};
    /// use mycelium_encoding::{DatumRef, Schema};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, heat int64, primary key (id)")?;
    /// let table = database.create_typed_table("weather", schema, TableOptions::default())?;
    /// for id in 0..1000 {
    ///     table.insert_row(&[DatumRef::Int64(id), DatumRef::Int64(id % 41)], Durability::Buffered)?;
    /// }
    /// database.compact(&table)?;
    /// let estimates = table.distinct_estimates()?;
    /// assert_eq!(estimates[0], None);
    /// assert!((33..=49).contains(&estimates[1].unwrap()));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn distinct_estimates(&self) -> Result<Arc<[Option<u64>]>> {
        let columns = self.packed_layout()?.schema().columns().len();
        self.shared.state.load().tree.distinct_estimates(columns)
    }

    /// At most `parts - 1` primary keys, or first columns of such, ascending, that cut the rows of `[lower, upper)`
    /// into parts that take about as long to scan. Fewer, or none, where there are few rows to be told apart: those of
    /// one block are one part. O((files + memtables * parts) * log).
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] for a key-value table.
    pub fn split_points(&self, parts: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Result<Vec<Vec<Datum>>> {
        let schema = self.packed_layout()?.schema();
        let state = self.shared.state.load();
        let within = |run: &OpenRun| run.files.get(run.within(lower, upper)).unwrap_or_default().to_vec();
        let files: Vec<Arc<OpenFile>> = state.tree.runs().flat_map(|(_, run)| within(run)).collect();
        let in_memtables: u64 = state.memtables().map(|memtable| memtable.entry_count() * ENTRY_COST).sum();
        let cost = files.iter().map(|file| cost_of(file)).sum::<u64>() + in_memtables;
        let pieces = parts.max(1) as u64 * PIECES_PER_PART;
        let mut weights: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for file in files {
            add_pieces(&file, (cost / pieces).max(1), (lower, upper), &mut weights)?;
        }
        for memtable in state.memtables() {
            add_samples(memtable, pieces as usize, (lower, upper), &mut weights);
        }
        let total: u64 = weights.values().sum();
        let mut points: Vec<Vec<Datum>> = Vec::new();
        let (mut before, mut share) = (0, 1);
        for (fence, weight) in weights {
            let is_due = before * parts as u64 >= total * share && share < parts as u64;
            if is_due && lower.is_none_or(|lower| lower < fence.as_slice()) {
                let point = first_columns(schema, &fence);
                // The first columns alone lie before what was cut at behind them.
                if !point.is_empty() && points.last().is_none_or(|last| *last < point) {
                    points.push(point);
                    share = before * parts as u64 / total.max(1) + 1;
                }
            }
            before += weight;
        }
        Ok(points)
    }
}

/// Entries by groups of columns; `None` is whole rows.
#[derive(Default)]
struct GroupEntries<'g>(Vec<(Option<&'g ColumnSet>, u64)>);

impl<'g> GroupEntries<'g> {
    fn add(&mut self, group: Option<&'g Arc<Group>>, entries: u64) {
        let group = group.map(|group| &group.columns);
        match self.0.iter_mut().find(|(known, _)| *known == group) {
            Some((_, sum)) => *sum += entries,
            None => self.0.push((group, entries)),
        }
    }
}

/// The entries of the column that has most, among the first ones of groups, by groups of columns; `None` is whole rows.
fn most_of_a_column(by_group: &[(Option<&ColumnSet>, u64)]) -> u64 {
    let of_column = |column: Option<usize>| -> u64 {
        let holds = |group: Option<&ColumnSet>| {
            group.is_none_or(|group| group.is_empty() || column.is_some_and(|at| group.contains(at)))
        };
        by_group.iter().filter(|(group, _)| holds(*group)).map(|(_, entries)| *entries).sum()
    };
    let firsts = by_group.iter().map(|(group, _)| group.and_then(|group| group.iter().next()));
    firsts.map(of_column).max().unwrap_or(0)
}

/// What it takes to scan a file.
fn cost_of(file: &OpenFile) -> u64 {
    let entries = if file.sst.is_columnar() { 0 } else { file.meta.entry_count };
    file.meta.size.saturating_add(entries.saturating_mul(ENTRY_COST))
}

/// Adds keys of a memtable within `[lower, upper)`, each with what it takes to scan as many entries as follow it.
fn add_samples(
    memtable: &Memtable,
    pieces: usize,
    (lower, upper): (Option<&[u8]>, Option<&[u8]>),
    weights: &mut BTreeMap<Vec<u8>, u64>,
) {
    let keys: Vec<&[u8]> = memtable.sample_keys(pieces).collect();
    let weight = memtable.entry_count() * ENTRY_COST / (keys.len() as u64).max(1);
    let is_within = |key: &[u8]| lower.is_none_or(|lower| lower <= key) && upper.is_none_or(|upper| key < upper);
    for key in keys.into_iter().filter(|key| is_within(key)) {
        *weights.entry(key.to_vec()).or_default() += weight;
    }
}

/// Adds where the pieces of a file that overlap `[lower, upper)` begin, which take about `piece` each, with what each
/// takes.
fn add_pieces(
    file: &OpenFile,
    piece: u64,
    (lower, upper): (Option<&[u8]>, Option<&[u8]>),
    weights: &mut BTreeMap<Vec<u8>, u64>,
) -> Result<()> {
    let mut begins = vec![file.meta.smallest.clone()];
    let cost = cost_of(file);
    begins.extend(file.sst.fences(usize::try_from(cost.div_ceil(piece)).unwrap_or(usize::MAX))?);
    let weight = cost / begins.len() as u64;
    for (at, begin) in begins.iter().enumerate() {
        let ends_before = begins.get(at + 1).is_some_and(|end| lower.is_some_and(|lower| end.as_slice() <= lower));
        let begins_after = upper.is_some_and(|upper| begin.as_slice() >= upper);
        if !ends_before && !begins_after {
            *weights.entry(begin.clone()).or_default() += weight;
        }
    }
    Ok(())
}

/// The values of the first columns of a key that begins with some bytes, behind which zeros are taken to follow.
fn first_columns(schema: &Schema, bytes: &[u8]) -> Vec<Datum> {
    const LONGEST_FIXED: usize = 16;
    let key_columns = schema.primary_key();
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len() + LONGEST_FIXED * key_columns.len(), 0);
    let (mut reader, mut scratch) = (KeyReader::new(&padded), Vec::new());
    let next = |&column: &usize| {
        let column = &schema.columns()[column];
        let value = reader.next(&column.ty, &mut scratch).ok()?;
        value.check(column).is_ok().then(|| value.to_datum())
    };
    key_columns.iter().map_while(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The larger of the two was all that counted, while some rows of a level waited to be reshaped: 100 rows were told
    /// of 180.
    #[test]
    fn rows_that_wait_for_their_groups_count_beside_those_in_groups() {
        let [ab, cd, abc, d] = ["1-2", "3-4", "1-3", "4"].map(|columns| columns.parse::<ColumnSet>().unwrap());
        assert_eq!(most_of_a_column(&[]), 0);
        assert_eq!(most_of_a_column(&[(None, 7)]), 7);
        assert_eq!(most_of_a_column(&[(Some(&ab), 100), (Some(&cd), 120)]), 120);
        assert_eq!(most_of_a_column(&[(Some(&ab), 100), (None, 80), (Some(&cd), 100)]), 180);
        assert_eq!(most_of_a_column(&[(Some(&ab), 100), (Some(&cd), 100), (Some(&abc), 30), (Some(&d), 30)]), 130);
    }

    /// No column is in their groups, and none was looked for: columnar files of such a table held nothing.
    #[test]
    fn keys_alone_count_whatever_format_their_files_have() {
        let keys_alone = ColumnSet::new();
        assert_eq!(most_of_a_column(&[(Some(&keys_alone), 7)]), 7);
        assert_eq!(most_of_a_column(&[(None, 3), (Some(&keys_alone), 7)]), 10);
    }
}
