//! Runs that interleave, as levels do into which keys come in any order: merged by their keys alone, many rows at once (DESIGN §5;
//! LSM-OPD §4.2.1, whose algorithm 1 does the same to compactions).
//!
//! Stretches of such runs have a row or two, and each costs a step for every run. So where the last stretch was short:
//!
//! 1. The wanted columns are parted, once, into *atoms*: columns that every run has all or none of. A run belongs to each of its atoms.
//! 2. An *interval* is what is certain: from the next key to the least of what bounds it. These are the last keys of the runs' current
//!    blocks, the next key of the rest, of a range delete, of a row that is no `Put`, and of a run whose block has versions that the
//!    snapshot does not see, or several of a key.
//! 3. The keys of the interval are unpacked from every run's block as integers. For each atom they are put behind each other, youngest
//!    run first, and sorted, each with its run and row in its lower bits: of one key the youngest comes first and hides the others.
//!    Column groups that are compacted one by one (LASER §4.4) have a row at different levels, so that each atom is sorted by itself. As
//!    far as all atoms have the same keys, their rows are put together.
//! 4. Of each run the rows that were picked, and that pass the filter, are appended column by column; then the batch's new rows are
//!    put in the order of the keys ([`RecordBatchBuilder::arrange`]).
//!
//! Keys of up to 16 bytes and one length are such integers. Others, and intervals of a few rows, are left to stretches; after
//! intervals that did not pay, the next are waited for, ever longer.
//!
//! Cost: O(rows x log runs) an interval and atom: the sort finds the sequences that are there. O(runs) an interval. Memory: 32 bytes
//! for each row of it, of which there are no more than the batch takes from each run.

use mycelium_base::{ColumnSet, Error, Result};
use mycelium_encoding::RecordBatchBuilder;
use mycelium_encoding::page::Bitmap;

use super::layer_run::LayerRun;
use super::{BlockScan, LEAST_REACH};

/// An interval with fewer rows than runs over this did not pay: a run costs it as much as a step of a stretch costs two of them.
const RUNS_OF_A_ROW: usize = 2;
/// Of stretches and keys between two attempts, at most, as a power of two.
const LONGEST_WAIT: u32 = 8;
/// Bits of a row in an interval, and of a run.
const ROW_BITS: u32 = 20;
const RUN_BITS: u32 = 12;
/// Bits of a key above the first one of its interval.
const KEY_BITS: u32 = u128::BITS - ROW_BITS - RUN_BITS;

/// What a scan knows of runs that interleave. Memory is reused.
#[derive(Default)]
pub(super) struct Interleaving {
    /// Empty before it was tried first.
    atoms: Vec<Atom>,
    /// Steps until it is tried again, and how often in a row it did not pay.
    wait: u32,
    in_vain: u32,
    /// By run, what it has of the interval.
    parts: Vec<Part>,
    /// The keys of all parts.
    keys: Vec<u128>,
    /// Of an atom, keys above the interval's first one, each with its run and row.
    order: Vec<u128>,
    scratch: Vec<u32>,
    trailers: Vec<u64>,
    key: Vec<u8>,
}

/// Columns that every run has all or none of.
struct Atom {
    /// Of the scan's runs those that have it, youngest first.
    runs: Vec<usize>,
    /// The columns that are projected: their places in the projection, and in each run that has them.
    targets: Vec<(usize, Vec<usize>)>,
    /// Where each key of the interval is: its key above the first, run and row, as in [`Interleaving::order`].
    picks: Vec<u128>,
    places: Vec<u32>,
}

/// What a run has of an interval.
#[derive(Default)]
struct Part {
    /// Where its keys begin among those of all.
    first: usize,
    /// The row of its block that it stands on, and how many from there.
    row: usize,
    rows: usize,
    /// Of an atom: rows that were picked and pass, counted from the first of the block.
    picked: Vec<u32>,
    /// Of an atom: how many rows were picked from younger runs.
    before: u32,
}

/// The run and the row, counted from the one that it stands on, of an entry of [`Interleaving::order`].
#[inline]
fn place_of(entry: u128) -> (usize, usize) {
    ((entry >> ROW_BITS) as usize & ((1 << RUN_BITS) - 1), entry as usize & ((1 << ROW_BITS) - 1))
}

#[inline]
fn key_of(entry: u128) -> u128 {
    entry >> (ROW_BITS + RUN_BITS)
}

impl Interleaving {
    /// Whether it may pay to try, of a scan whose last stretch had so many rows about.
    pub(super) fn is_due(&mut self, reach: usize, runs: usize) -> bool {
        if reach > LEAST_REACH || !(2..1 << RUN_BITS).contains(&runs) {
            return false;
        }
        let is_due = self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        is_due
    }

    /// Says whether it paid.
    fn judge(&mut self, rows: usize) {
        self.in_vain = if rows * RUNS_OF_A_ROW < self.parts.len() { self.in_vain + 1 } else { 0 };
        self.wait = (1 << self.in_vain.min(LONGEST_WAIT)) - 1;
    }

    /// Step 3 for an atom: makes `picks` its keys, each once, `most` at most. `false` if they lie too far apart.
    fn merge(&mut self, at: usize, most: usize) -> bool {
        let Self { atoms, parts, keys, order, .. } = self;
        let Atom { runs, picks, .. } = &mut atoms[at];
        let bounds = parts.iter().filter(|part| part.rows > 0);
        let Some(least) = bounds.clone().map(|part| keys[part.first]).min() else { return false };
        let greatest = bounds.map(|part| keys[part.first + part.rows - 1]).max().unwrap_or(least);
        if greatest.wrapping_sub(least) >> KEY_BITS != 0 {
            return false;
        }
        order.clear();
        for &run in &*runs {
            let Part { first, rows, .. } = parts[run];
            let place = (run as u128) << ROW_BITS;
            let entry =
                |(row, key): (usize, &u128)| key.wrapping_sub(least) << (ROW_BITS + RUN_BITS) | place | row as u128;
            order.extend(keys[first..first + rows].iter().enumerate().map(entry));
        }
        order.sort();
        picks.clear();
        let mut last = None;
        for &entry in &*order {
            if last.replace(key_of(entry)) != Some(key_of(entry)) {
                if picks.len() == most {
                    break;
                }
                picks.push(entry);
            }
        }
        true
    }

    /// How many of the first keys all atoms have; makes all `picks` these.
    fn agree(&mut self) -> usize {
        let Some((first, others)) = self.atoms.split_first_mut() else { return 0 };
        let mut count = first.picks.len();
        for other in &*others {
            let same = first.picks.iter().zip(&other.picks).take(count);
            count = same.take_while(|(a, b)| key_of(**a) == key_of(**b)).count();
        }
        self.atoms.iter_mut().for_each(|atom| atom.picks.truncate(count));
        count
    }

    /// The last key that was picked.
    fn last_key(&self) -> Option<u128> {
        let (run, row) = place_of(*self.atoms.first()?.picks.last()?);
        self.keys.get(self.parts[run].first + row).copied()
    }

    /// How many rows of a run are of keys up to this one, hidden ones included.
    fn rows_up_to(&self, key: u128, run: usize) -> usize {
        let Part { first, rows, .. } = self.parts[run];
        self.keys[first..first + rows].partition_point(|&other| other <= key)
    }
}

impl BlockScan {
    /// Takes the next interval, `most` keys of it at most; how many rows of all runs that were, 0 if there is none.
    pub(super) fn append_interleaved(&mut self, most: usize, builder: &mut RecordBatchBuilder) -> Result<usize> {
        let mut interleaving = std::mem::take(&mut self.interleaving);
        let taken = self.append_interval(&mut interleaving, most, builder);
        interleaving.judge(*taken.as_ref().unwrap_or(&0));
        self.interleaving = interleaving;
        taken
    }

    fn append_interval(
        &mut self,
        state: &mut Interleaving,
        most: usize,
        builder: &mut RecordBatchBuilder,
    ) -> Result<usize> {
        if state.atoms.is_empty() {
            state.atoms = self.atoms(builder);
            state.parts.resize_with(self.runs.len(), Part::default);
        }
        let most = most.min((1 << ROW_BITS) - 1);
        if !self.find_interval(state, most)? || !(0..state.atoms.len()).all(|at| state.merge(at, most)) {
            return Ok(0);
        }
        let keys = state.agree();
        let Some(last) = state.last_key() else { return Ok(0) };
        self.append_picked(state, builder)?;
        self.counters.rows_interleaved += keys as u64;
        let mut taken = 0;
        for run in 0..self.runs.len() {
            let rows = state.rows_up_to(last, run);
            if rows > 0 {
                self.runs[run].pass(rows, &mut self.row)?;
                taken += rows;
            }
        }
        Ok(taken)
    }

    /// Step 1 of the module.
    fn atoms(&self, builder: &RecordBatchBuilder) -> Vec<Atom> {
        let mut atoms = vec![self.columns.clone()];
        for run in &self.runs {
            let parted = |atom: ColumnSet| [atom.intersection(&run.share), atom.difference(&run.share)];
            atoms = atoms.into_iter().flat_map(parted).filter(|atom| !atom.is_empty()).collect();
        }
        let atom = |columns: &ColumnSet| {
            let runs = (0..self.runs.len()).filter(|&run| self.runs[run].share.overlaps(columns)).collect();
            let place = |run: &LayerRun, column| run.columns.iter().position(|&own| own == column);
            let targets = builder.value_columns().filter(|(column, _)| columns.contains(*column));
            let places = |column| self.runs.iter().map(|run| place(run, column).unwrap_or(usize::MAX)).collect();
            let targets = targets.map(|(column, target)| (target, places(column))).collect();
            Atom { runs, targets, picks: Vec::new(), places: Vec::new() }
        };
        atoms.iter().map(atom).collect()
    }

    /// Step 2: makes `parts` and `keys` those of the next interval; whether there is one to which two runs give rows.
    fn find_interval(&mut self, state: &mut Interleaving, most: usize) -> Result<bool> {
        let Self { runs, touched, upper, all_range_deletes, snapshot, .. } = self;
        let Some(first) = runs.iter().filter_map(LayerRun::key).min() else { return Ok(false) };
        let bounds = [touched.key(), all_range_deletes.next_start(first), upper.as_deref()];
        let mut bound = bounds.into_iter().flatten().min();
        let (mut last, mut key_len) = (None, None);
        for (run, part) in runs.iter().zip(&mut state.parts) {
            (part.first, part.row, part.rows) = (0, 0, 0);
            match run.block().filter(|(block, _)| block.facts().is_seen_once(*snapshot)) {
                Some((block, row)) => {
                    let Some(len) = block.integer_key_len().filter(|len| *key_len.get_or_insert(*len) == *len) else {
                        return Ok(false);
                    };
                    debug_assert!(len <= size_of::<u128>());
                    (part.row, part.rows) = (row, most.min(block.rows() - row));
                    let end = row + part.rows;
                    state.keys.clear();
                    let unpacked = block.append_integer_keys(end - 1..end, &mut state.scratch, &mut state.keys);
                    let end_key = unpacked.and_then(|()| state.keys.first().copied()).ok_or_else(no_integer)?;
                    last = Some(last.map_or(end_key, |last: u128| last.min(end_key)));
                }
                None => bound = run.key().into_iter().chain(bound).min(),
            }
        }
        let (Some(last), Some(key_len)) = (last, key_len) else { return Ok(false) };
        state.key.clear();
        state.key.extend_from_slice(&last.to_be_bytes()[size_of::<u128>() - key_len..]);
        state.keys.clear();
        let mut with_rows = 0;
        for (run, part) in runs.iter().zip(&mut state.parts).filter(|(_, part)| part.rows > 0) {
            let Some((block, row)) = run.block() else { continue };
            let (end, has_last) = block.find(&state.key)?;
            let end = bound.map_or(Ok(block.rows()), |bound| block.seek(bound))?.min(end + usize::from(has_last));
            (part.first, part.rows) = (state.keys.len(), part.rows.min(end.saturating_sub(row)));
            with_rows += usize::from(part.rows > 0);
            let rows = row..row + part.rows;
            block.append_integer_keys(rows, &mut state.scratch, &mut state.keys).ok_or_else(no_integer)?;
        }
        if with_rows > 1 {
            self.end_before_others(state)?;
        }
        Ok(with_rows > 1)
    }

    /// Has the interval end before the first row that is no `Put`: a patch, or a delete.
    fn end_before_others(&self, state: &mut Interleaving) -> Result<()> {
        let Interleaving { parts, keys, scratch, trailers, .. } = state;
        let mut first_other = None;
        for (run, part) in self.runs.iter().zip(&*parts).filter(|(_, part)| part.rows > 0) {
            let Some((block, row)) = run.block() else { continue };
            let puts = block.first_but_puts(row..row + part.rows, scratch, trailers)? - row;
            if puts < part.rows {
                let key = keys[part.first + puts];
                first_other = Some(first_other.map_or(key, |first: u128| first.min(key)));
            }
        }
        if let Some(other) = first_other {
            for part in parts {
                part.rows = keys[part.first..part.first + part.rows].partition_point(|&key| key < other);
            }
        }
        Ok(())
    }

    /// Step 4, for the keys that all atoms have.
    fn append_picked(&mut self, state: &mut Interleaving, builder: &mut RecordBatchBuilder) -> Result<()> {
        if self.filter.is_some() {
            self.drop_failing(state)?;
        }
        for at in 0..state.atoms.len() {
            self.append_atom(state, at, builder)?;
        }
        let picks = state.atoms.first().map_or(&[][..], |atom| &atom.picks);
        if builder.has_key_columns() {
            for &entry in picks {
                let (run, row) = place_of(entry);
                let Some((block, _)) = self.runs[run].block() else { continue };
                block.write_key(state.parts[run].row + row, &mut self.row)?;
                builder.append_key(&self.row)?;
            }
        }
        builder.end_rows(picks.len());
        Ok(())
    }

    /// Leaves the keys in all `picks` whose rows pass the filter.
    fn drop_failing(&mut self, state: &mut Interleaving) -> Result<()> {
        for run in self.runs.iter_mut().filter(|run| !run.tests.is_empty()) {
            run.select(&mut self.counters)?;
        }
        let Self { runs, filter, row: key, .. } = self;
        let tested = runs.iter().map(|run| (!run.tests.is_empty()).then_some(&run.selected.rows));
        let tested: Vec<Option<&Bitmap>> = tested.collect();
        let key_filter = filter.as_ref().filter(|filter| !filter.key_tests.is_empty());
        let Interleaving { atoms, parts, .. } = state;
        let place = |atom: &Atom, at: usize| {
            let (run, row) = place_of(atom.picks[at]);
            (run, parts[run].row + row)
        };
        let mut kept = 0;
        for at in 0..atoms.first().map_or(0, |atom| atom.picks.len()) {
            let mut places = atoms.iter().map(|atom| place(atom, at));
            let mut passes = places.all(|(run, row)| tested[run].is_none_or(|rows| rows.get(row)));
            if let Some(filter) = key_filter.filter(|_| passes) {
                let (run, row) = atoms.first().map_or((0, 0), |atom| place(atom, at));
                if let Some((block, _)) = runs[run].block() {
                    block.write_key(row, key)?;
                    passes = filter.passes_key(key)?;
                }
            }
            if passes {
                atoms.iter_mut().for_each(|atom| atom.picks[kept] = atom.picks[at]);
                kept += 1;
            }
        }
        atoms.iter_mut().for_each(|atom| atom.picks.truncate(kept));
        Ok(())
    }

    /// Appends the cells of an atom's projected columns at its `picks`, in their order.
    fn append_atom(&self, state: &mut Interleaving, at: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let Interleaving { atoms, parts, .. } = state;
        let Atom { runs, targets, picks, places } = &mut atoms[at];
        if targets.is_empty() || picks.is_empty() {
            return Ok(());
        }
        runs.iter().for_each(|&run| parts[run].picked.clear());
        places.clear();
        for &entry in &*picks {
            let (run, row) = place_of(entry);
            let part = &mut parts[run];
            // For now among those of its run.
            places.push(part.picked.len() as u32);
            part.picked.push((part.row + row) as u32);
        }
        let mut before = 0;
        for &run in &*runs {
            parts[run].before = before;
            before += parts[run].picked.len() as u32;
        }
        for (place, &entry) in places.iter_mut().zip(&*picks) {
            *place += parts[place_of(entry).0].before;
        }
        for (target, columns) in targets {
            for &run in runs.iter().filter(|run| !parts[**run].picked.is_empty()) {
                let Some((block, _)) = self.runs[run].block() else { continue };
                let rows = &parts[run].picked;
                block.read(|pages| builder.append_selected(*target, &pages[columns[run]], rows))?;
            }
            builder.arrange(*target, places)?;
        }
        Ok(())
    }
}

#[cold]
fn no_integer() -> Error {
    Error::corruption("keys of a block are not of the form that it says")
}
