//! Runs that interleave, as levels do into which keys come in any order: merged by their keys alone, many rows at once
//! (DESIGN §5; LSM-OPD §4.2.1, whose algorithm 1 does the same to compactions).
//!
//! Stretches of such runs have a row or two, and each costs a step for every run. So where stretches are short:
//!
//! 1. The wanted columns are parted, once, into *atoms*: columns that every run has all or none of. A run belongs to
//!    each of its atoms.
//! 2. An *interval* is what is certain: from the next key to the least of its bounds. The runs' current blocks bound it
//!    by their last keys, and the rest by the last key that was read ahead of it. A range delete and a row that is no
//!    `Put` bound it by their next key. So does a run whose block has versions that the snapshot does not see, or
//!    several of a key. What the rest has of a key is put together; it is the youngest source of rows, and of rows that
//!    are gone. A key of which older entries have something to say, too, ends the interval.
//! 3. The keys of the interval become integers: their next twelve bytes behind what they all have in common
//!    ([`KeyWindow`]). For each atom these are put behind each other, youngest run first, and sorted, each with its run
//!    and row in its lower bits: of one key the youngest comes first and hides the others. Keys whose integers are the
//!    same, and that may be longer, are compared as they are. Column groups that are compacted one by one (LASER §4.4)
//!    have a row at different levels, so that each atom is sorted by itself. As far as all atoms have the same keys,
//!    their rows are put together, and as far as their texts surely fit into the batch.
//! 4. Of each run the rows that were picked, and that pass the filter, are appended column by column; then the batch's
//!    new rows are put in the order of the keys ([`RecordBatchBuilder::arrange`]).
//!
//! Where many rows of a run lie next to each other they are left to stretches ([`plan::most_neighbours`]). The picks of
//! an interval say how many do, and so do stretches.
//!
//! Cost: O(rows x log runs) an interval and atom: the sort finds the sequences that are there. O(runs) an interval.
//! Memory: 32 bytes for each row of it, of which there are no more than the batch takes from each run.

use std::cmp::Ordering;
use std::ops::Range;

use mycelium_base::{ColumnSet, Operation, Result};
use mycelium_encoding::RecordBatchBuilder;
use mycelium_sst::KeyWindow;

use super::layer_run::LayerRun;
use super::{BlockScan, plan};

/// Keys of the first interval, which says whether it pays to have another.
const FIRST_KEYS: usize = 64;
/// Stretches and keys that an average is of, about.
const STEPS_AVERAGED: f64 = 8.0;
/// Of stretches and keys between two attempts, at most, as a power of two.
const LONGEST_WAIT: u32 = 8;
/// Bits of a row in an interval, and of a source: what a key's window leaves of 128.
const ROW_BITS: u32 = 20;
const SOURCE_BITS: u32 = 12;
/// The source of the rows that the rest has; the scan's runs are the following ones.
const REST: usize = 0;

/// What a scan knows of sources that interleave. Memory is reused.
#[derive(Default)]
pub(super) struct Interleaving {
    /// Empty before it was tried first.
    atoms: Vec<Atom>,
    /// Steps until it is tried again, and how often in a row there was no interval.
    wait: u32,
    in_vain: u32,
    /// Rows that lie next to each other in one source, on average of the last ones; `None` if it is not known yet.
    neighbours: Option<f64>,
    /// By source, what it has of the interval.
    parts: Vec<Part>,
    rest: RestRows,
    /// The windows of the keys of all parts, and whether keys that have the same are the same.
    windows: Vec<u128>,
    are_exact: bool,
    /// Of an atom, windows, each with its source and row.
    order: Vec<u128>,
    /// The interval's first and last key, and the one before which it ends, if there is one.
    first: Vec<u8>,
    last: Vec<u8>,
    bound: Option<Vec<u8>>,
    scratch: Vec<u32>,
    operations: Vec<Operation>,
    key: Vec<u8>,
    other_key: Vec<u8>,
}

/// Of the next keys of the rest, whole rows, in the layout of the batch, and those that are gone.
#[derive(Default)]
struct RestRows {
    bytes: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
}

impl RestRows {
    /// `None` if it is gone.
    fn get(&self, row: usize) -> Option<&[u8]> {
        self.places.get(row)?.clone().map(|place| &self.bytes[place])
    }

    fn has_gone(&self) -> bool {
        self.places.iter().any(Option::is_none)
    }
}

/// Columns that every run has all or none of.
struct Atom {
    /// The sources that have it, youngest first.
    sources: Vec<usize>,
    /// The columns that are projected: their places in the projection, and in each run that has them.
    targets: Vec<(usize, Vec<usize>)>,
    /// Where each key of the interval is: its window, source and row, as in [`Interleaving::order`].
    picks: Vec<u128>,
    places: Vec<u32>,
}

/// What a source has of an interval.
#[derive(Default)]
struct Part {
    /// Where its windows begin among those of all.
    first: usize,
    /// The row of its block that it stands on, and how many from there.
    row: usize,
    rows: usize,
    /// Of an atom: rows that were picked and pass, counted from the first of the block.
    picked: Vec<u32>,
    /// Of an atom: how many rows were picked from younger sources.
    before: u32,
}

/// An entry of [`Interleaving::order`].
#[inline]
fn entry_of(window: u128, source: usize, row: usize) -> u128 {
    window << (ROW_BITS + SOURCE_BITS) | (source as u128) << ROW_BITS | row as u128
}

/// The source and the row, counted from the one that it stands on, of an entry.
#[inline]
fn place_of(entry: u128) -> (usize, usize) {
    ((entry >> ROW_BITS) as usize & ((1 << SOURCE_BITS) - 1), entry as usize & ((1 << ROW_BITS) - 1))
}

#[inline]
fn window_of(entry: u128) -> u128 {
    entry >> (ROW_BITS + SOURCE_BITS)
}

impl Interleaving {
    /// Whether it may pay to try, in a scan of so many sources.
    pub(super) fn is_due(&mut self, sources: usize) -> bool {
        let pays = self.neighbours.is_none_or(|rows| rows < plan::most_neighbours(sources));
        if !pays || !(2..1 << SOURCE_BITS).contains(&sources) {
            return false;
        }
        let is_due = self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        is_due
    }

    /// Notes a stretch of which so many rows lie next to each other, or a key.
    pub(super) fn note_step(&mut self, rows: f64) {
        let before = self.neighbours.unwrap_or(rows);
        self.neighbours = Some(before + (rows - before) / STEPS_AVERAGED);
    }

    /// Notes whether there was an interval.
    fn note_interval(&mut self, is_there: bool) {
        self.in_vain = if is_there { 0 } else { self.in_vain + 1 };
        self.wait = (1 << self.in_vain.min(LONGEST_WAIT)) - 1;
    }

    /// Notes how many of an atom's picks lie next to each other.
    fn note_picks(&mut self) {
        let picks = self.atoms.first().map_or(&[][..], |atom| &atom.picks);
        // Rows of the rest are in no stretch.
        let are_in_stretch = |a: &u128, b: &u128| place_of(*a).0 == place_of(*b).0 && place_of(*a).0 != REST;
        let parts = picks.chunk_by(are_in_stretch).count();
        self.neighbours = Some(picks.len() as f64 / parts.max(1) as f64);
    }

    /// Has the interval end at this key, or before.
    fn end_at(&mut self, key: &[u8], is_first: bool) {
        if is_first || key < &*self.last {
            self.last.clear();
            self.last.extend_from_slice(key);
        }
    }

    /// Has it end before this key.
    fn end_before(&mut self, key: &[u8]) {
        if self.bound.as_deref().is_none_or(|bound| key < bound) {
            self.bound = Some(key.to_vec());
        }
    }

    /// Whether a key is in the interval, as far as is known.
    fn contains(&self, key: &[u8]) -> bool {
        key <= &*self.last && self.bound.as_deref().is_none_or(|bound| key < bound)
    }
}

impl BlockScan {
    /// Takes the next interval, `most` keys of it at most; how many rows of all sources that were, 0 if there is none.
    pub(super) fn append_interleaved(&mut self, most: usize, builder: &mut RecordBatchBuilder) -> Result<usize> {
        let mut interleaving = std::mem::take(&mut self.interleaving);
        let taken = self.append_interval(&mut interleaving, most, builder);
        interleaving.note_interval(taken.as_ref().is_ok_and(|rows| *rows > 0));
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
            state.parts.resize_with(self.runs.len() + 1, Part::default);
        }
        let most = most.min(if state.neighbours.is_some() { (1 << ROW_BITS) - 1 } else { FIRST_KEYS });
        if !self.find_bounds(state, most)? {
            return Ok(0);
        }
        self.merge_rest(state, most)?;
        if !self.find_parts(state)? {
            return Ok(0);
        }
        for at in 0..state.atoms.len() {
            self.merge_atom(state, at, most)?;
        }
        self.agree(state)?;
        let keys = self.keep_fitting(state, builder);
        let Some(&last) = state.atoms.first().and_then(|atom| atom.picks.last()) else { return Ok(0) };
        state.note_picks();
        self.append_picked(state, builder)?;
        let taken = self.leave_up_to(last, state)?;
        // Each key of the rest, its youngest source, was picked there.
        self.counters.rows_interleaved += keys.saturating_sub(state.parts[REST].rows) as u64;
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
            let runs = (0..self.runs.len()).filter(|&run| self.runs[run].share.overlaps(columns)).map(|run| run + 1);
            let targets = builder.value_columns().filter(|(column, _)| columns.contains(*column));
            let places = |column| self.runs.iter().map(|run| run.place_of(column).unwrap_or(usize::MAX)).collect();
            let targets = targets.map(|(column, target)| (target, places(column))).collect();
            Atom {
                sources: std::iter::once(REST).chain(runs).collect(),
                targets,
                picks: Vec::new(),
                places: Vec::new(),
            }
        };
        atoms.iter().map(atom).collect()
    }

    /// Step 2, but for what rows say: makes `last` and `bound` those of the next interval; whether there is one.
    fn find_bounds(&mut self, state: &mut Interleaving, most: usize) -> Result<bool> {
        let Self { runs, touched, upper, all_range_deletes, snapshot, row: end_key, .. } = self;
        let next = runs.iter().filter_map(LayerRun::key).chain(touched.key()).min();
        let Some(next) = next else { return Ok(false) };
        state.first.clear();
        state.first.extend_from_slice(next);
        state.bound = None;
        for bound in [all_range_deletes.next_start(next), upper.as_deref()].into_iter().flatten() {
            state.end_before(bound);
        }
        let mut has_last = false;
        // Keys that were not read ahead yet are behind.
        if let Some(last) = touched.last_key() {
            state.end_at(last, !std::mem::replace(&mut has_last, true));
        }
        for (at, run) in runs.iter().enumerate() {
            let part = &mut state.parts[at + 1];
            (part.first, part.row, part.rows) = (0, 0, 0);
            match run.block().filter(|(block, _)| block.facts().is_seen_once(*snapshot)) {
                Some((block, row)) => {
                    (part.row, part.rows) = (row, most.min(block.rows() - row));
                    block.write_key(row + part.rows - 1, end_key)?;
                    state.end_at(end_key, !std::mem::replace(&mut has_last, true));
                }
                None => run.key().into_iter().for_each(|key| state.end_before(key)),
            }
        }
        Ok(has_last)
    }

    /// Puts together the rows that the rest has in the interval. Where older entries have something to say of one, too,
    /// the interval ends before it.
    fn merge_rest(&mut self, state: &mut Interleaving, most: usize) -> Result<()> {
        state.rest.bytes.clear();
        state.rest.places.clear();
        while let Some(key) = self.touched.key_ahead(state.rest.places.len()).filter(|key| state.contains(key)) {
            let place = state.rest.places.len();
            self.merge.reset();
            for (kind, trailer, value) in self.touched.entries_ahead(place) {
                if self.merge.visit(kind, trailer, value)?.is_break() {
                    break;
                }
            }
            if !self.merge.is_settled() {
                state.end_before(key);
                break;
            }
            let start = state.rest.bytes.len();
            let exists = self.merge.finish(&mut state.rest.bytes)?;
            state.rest.places.push(exists.then_some(start..state.rest.bytes.len()));
            if state.rest.places.len() == most {
                state.end_at(key, false);
            }
        }
        Ok(())
    }

    /// Makes `parts` and `windows` those of the interval; whether the rest gives rows, or two runs do.
    fn find_parts(&mut self, state: &mut Interleaving) -> Result<bool> {
        let window = KeyWindow::between(&state.first, &state.last);
        let Interleaving { parts, windows, rest, are_exact, last, bound, scratch, .. } = state;
        let of_rest = rest.places.len();
        windows.clear();
        windows.extend((0..of_rest).filter_map(|place| self.touched.key_ahead(place)).map(|key| window.of(key)));
        parts[REST].rows = of_rest;
        *are_exact = true;
        let (mut runs_with_rows, mut common_len) = (0, None);
        for (run, part) in self.runs.iter().zip(&mut parts[1..]).filter(|(_, part)| part.rows > 0) {
            let Some((block, row)) = run.block() else { continue };
            let (end, has_last) = block.find(last)?;
            let bound = bound.as_deref().map_or(Ok(block.rows()), |bound| block.seek(bound))?;
            let end = bound.min(end + usize::from(has_last));
            (part.first, part.rows) = (windows.len(), part.rows.min(end.saturating_sub(row)));
            runs_with_rows += usize::from(part.rows > 0);
            let len = block.common_key_len().filter(|len| window.is_exact_for(*len));
            *are_exact &= len.is_some_and(|len| *common_len.get_or_insert(len) == len);
            block.append_key_windows(row..row + part.rows, window, scratch, windows)?;
        }
        // Keys of the rest are as long as those of blocks, or not known to be.
        let mut rest = (0..of_rest).filter_map(|place| self.touched.key_ahead(place));
        *are_exact &= rest.all(|key| common_len == Some(key.len()));
        let pays = of_rest > 0 || runs_with_rows > 1;
        if pays {
            self.end_before_others(state)?;
        }
        Ok(pays)
    }

    /// Has the interval end before the first row of a run that is no `Put`: a patch, or a delete.
    fn end_before_others(&self, state: &mut Interleaving) -> Result<()> {
        let Interleaving { parts, windows, scratch, operations, .. } = state;
        let mut first_other = None;
        for (run, part) in self.runs.iter().zip(&parts[1..]).filter(|(_, part)| part.rows > 0) {
            let Some((block, row)) = run.block() else { continue };
            let puts = block.first_but_puts(row..row + part.rows, scratch, operations)? - row;
            if puts < part.rows {
                let window = windows[part.first + puts];
                first_other = Some(first_other.map_or(window, |first: u128| first.min(window)));
            }
        }
        if let Some(other) = first_other {
            for part in parts {
                part.rows = windows[part.first..part.first + part.rows].partition_point(|&window| window < other);
            }
        }
        Ok(())
    }

    /// Step 3 for an atom: makes `picks` where its keys are, each once, `most` at most.
    fn merge_atom(&self, state: &mut Interleaving, at: usize, most: usize) -> Result<()> {
        let Interleaving { atoms, parts, windows, are_exact, order, key, other_key, .. } = state;
        let Atom { sources, picks, .. } = &mut atoms[at];
        order.clear();
        for &source in &*sources {
            let Part { first, rows, .. } = parts[source];
            let entry = |(row, &window): (usize, &u128)| entry_of(window, source, row);
            order.extend(windows[first..first + rows].iter().enumerate().map(entry));
        }
        order.sort();
        picks.clear();
        for alike in order.chunk_by(|a, b| window_of(*a) == window_of(*b)) {
            match *alike {
                [first, second] if !*are_exact => match self.compare((first, key), (second, other_key), parts)? {
                    Ordering::Equal => picks.push(first),
                    Ordering::Less => picks.extend([first, second]),
                    Ordering::Greater => picks.extend([second, first]),
                },
                [_, _, ..] if !*are_exact => self.pick_of_alike(alike, parts, picks)?,
                [first, ..] => picks.push(first),
                [] => {}
            }
            if picks.len() >= most {
                break;
            }
        }
        picks.truncate(most);
        Ok(())
    }

    /// Of entries with the same window appends the youngest of each key, in the order of the keys.
    #[cold]
    fn pick_of_alike(&self, alike: &[u128], parts: &[Part], picks: &mut Vec<u128>) -> Result<()> {
        let keyed = |&entry: &u128| {
            let mut key = Vec::new();
            self.write_key_of(entry, parts, &mut key).map(|()| (key, entry))
        };
        let mut keyed = alike.iter().map(keyed).collect::<Result<Vec<_>>>()?;
        // Youngest source first among those of a key.
        keyed.sort();
        keyed.dedup_by(|older, younger| older.0 == younger.0);
        picks.extend(keyed.iter().map(|(_, entry)| entry));
        Ok(())
    }

    fn write_key_of(&self, entry: u128, parts: &[Part], key: &mut Vec<u8>) -> Result<()> {
        let (source, row) = place_of(entry);
        if source == REST {
            key.clear();
            key.extend_from_slice(self.touched.key_ahead(row).unwrap_or_default());
            return Ok(());
        }
        match self.runs[source - 1].block() {
            Some((block, _)) => block.write_key(parts[source].row + row, key),
            None => Ok(()),
        }
    }

    /// How the keys of two entries compare, whose windows are the same; both are written down.
    fn compare(&self, a: (u128, &mut Vec<u8>), b: (u128, &mut Vec<u8>), parts: &[Part]) -> Result<Ordering> {
        self.write_key_of(a.0, parts, a.1)?;
        self.write_key_of(b.0, parts, b.1)?;
        Ok((*a.1).cmp(b.1))
    }

    /// Makes all `picks` those of the first keys, as many as all atoms have.
    fn agree(&self, state: &mut Interleaving) -> Result<()> {
        let Interleaving { atoms, parts, are_exact, key, other_key, .. } = state;
        let Some((first, others)) = atoms.split_first() else { return Ok(()) };
        let mut count = first.picks.len();
        for other in others {
            let mut same = 0;
            for (&a, &b) in first.picks.iter().zip(&other.picks).take(count) {
                let is_same = window_of(a) == window_of(b)
                    && (*are_exact || a == b || self.compare((a, key), (b, other_key), parts)?.is_eq());
                if !is_same {
                    break;
                }
                same += 1;
            }
            count = same;
        }
        atoms.iter_mut().for_each(|atom| atom.picks.truncate(count));
        Ok(())
    }

    /// Leaves in all `picks` those of the first keys whose cells surely have no more text than the batch still takes,
    /// of one key at least; how many they are. Cells are looked at only where what is known of all is more.
    fn keep_fitting(&self, state: &mut Interleaving, builder: &RecordBatchBuilder) -> usize {
        let Interleaving { atoms, parts, rest, .. } = &*state;
        let mut fitting = atoms.first().map_or(0, |atom| atom.picks.len());
        for Atom { sources, targets, picks, .. } in atoms {
            for (target, columns) in targets {
                let bound = |&source: &usize| self.text_bound(source, parts, columns, rest);
                let mut room = builder.text_room(*target);
                if sources.iter().map(bound).fold(0, usize::saturating_add) <= room {
                    continue;
                }
                let fits = |entry: &&u128| {
                    let left = room.checked_sub(self.text_bound_at(**entry, parts, columns, rest));
                    room = left.unwrap_or_default();
                    left.is_some()
                };
                fitting = picks.iter().take(fitting).take_while(fits).count().max(1).min(fitting);
            }
        }
        state.atoms.iter_mut().for_each(|atom| atom.picks.truncate(fitting));
        fitting
    }

    /// Bytes of text that a source has of the interval at most, in the column that is at these places in the runs.
    fn text_bound(&self, source: usize, parts: &[Part], columns: &[usize], rest: &RestRows) -> usize {
        if source == REST {
            return rest.bytes.len();
        }
        let Part { row, rows, .. } = parts[source];
        let block = self.runs[source - 1].block().filter(|_| rows > 0);
        block.map_or(0, |(block, _)| block.read(|pages| pages[columns[source - 1]].text_bound(row..row + rows)))
    }

    /// The same of an entry.
    fn text_bound_at(&self, entry: u128, parts: &[Part], columns: &[usize], rest: &RestRows) -> usize {
        let (source, row) = place_of(entry);
        if source == REST {
            return rest.get(row).map_or(0, <[u8]>::len);
        }
        let block = self.runs[source - 1].block();
        let row = parts[source].row + row;
        block.map_or(0, |(block, _)| block.read(|pages| pages[columns[source - 1]].text_bound_at(row)))
    }

    /// Has all sources go on behind this key; how many rows they pass.
    fn leave_up_to(&mut self, last: u128, state: &mut Interleaving) -> Result<usize> {
        // Before any of them goes on: the key lies in one.
        for source in 0..state.parts.len() {
            state.parts[source].rows = self.rows_up_to(last, state, source)?;
        }
        let of_rest = state.parts[REST].rows;
        self.counters.rows_merged += of_rest as u64;
        self.plan.work.touched += of_rest as u64;
        let mut touched = std::mem::take(&mut self.touched);
        touched.pass(of_rest);
        touched.read_if_used_up(self.rest())?;
        self.touched = touched;
        let mut taken = of_rest;
        for (run, &Part { rows, .. }) in state.parts[1..].iter().enumerate() {
            if rows > 0 {
                self.runs[run].pass(rows, &mut self.row)?;
                taken += rows;
            }
        }
        Ok(taken)
    }

    /// How many rows of a source are of keys up to this one, hidden ones included.
    fn rows_up_to(&self, last: u128, state: &mut Interleaving, source: usize) -> Result<usize> {
        let Interleaving { parts, windows, are_exact, key, other_key, .. } = state;
        let Part { first, rows, .. } = parts[source];
        let windows = &windows[first..first + rows];
        if *are_exact {
            return Ok(windows.partition_point(|&window| window <= window_of(last)));
        }
        let mut count = windows.partition_point(|&window| window < window_of(last));
        while let Some(&window) = windows.get(count).filter(|window| **window == window_of(last)) {
            if self.compare((entry_of(window, source, count), key), (last, other_key), parts)?.is_gt() {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    /// Step 4, for the keys that all atoms have.
    fn append_picked(&mut self, state: &mut Interleaving, builder: &mut RecordBatchBuilder) -> Result<()> {
        if self.filter.is_some() || state.rest.has_gone() {
            self.drop_failing(state)?;
        }
        for at in 0..state.atoms.len() {
            self.append_atom(state, at, builder)?;
        }
        let Interleaving { atoms, parts, key, .. } = state;
        let picks = atoms.first().map_or(&[][..], |atom| &atom.picks);
        if builder.has_key_columns() {
            for &entry in picks {
                self.write_key_of(entry, parts, key)?;
                builder.append_key(key)?;
            }
        }
        builder.end_rows(picks.len());
        Ok(())
    }

    /// Leaves the keys in all `picks` that have a row which passes the filter.
    fn drop_failing(&mut self, state: &mut Interleaving) -> Result<()> {
        for run in self.runs.iter_mut().filter(|run| !run.tests.is_empty()) {
            run.select(&mut self.counters)?;
        }
        let Interleaving { atoms, parts, rest, key, .. } = state;
        let mut kept = 0;
        for at in 0..atoms.first().map_or(0, |atom| atom.picks.len()) {
            if self.passes_at(at, (atoms, parts, rest), key)? {
                atoms.iter_mut().for_each(|atom| atom.picks[kept] = atom.picks[at]);
                kept += 1;
            }
        }
        atoms.iter_mut().for_each(|atom| atom.picks.truncate(kept));
        Ok(())
    }

    /// Whether the picks at this place are of a row that passes the filter. Of the rest's rows all atoms have the same.
    fn passes_at(
        &self,
        at: usize,
        (atoms, parts, rest): (&[Atom], &[Part], &RestRows),
        key: &mut Vec<u8>,
    ) -> Result<bool> {
        let Some(&first) = atoms.first().and_then(|atom| atom.picks.get(at)) else { return Ok(false) };
        if let (REST, row) = place_of(first) {
            let Some(row) = rest.get(row) else { return Ok(false) };
            let Some(filter) = &self.filter else { return Ok(true) };
            self.write_key_of(first, parts, key)?;
            return filter.passes(key, row);
        }
        let passes = |atom: &Atom| {
            let (source, row) = place_of(atom.picks[at]);
            let run = &self.runs[source - 1];
            run.tests.is_empty() || run.selected.rows.get(parts[source].row + row)
        };
        let key_filter = self.filter.as_ref().filter(|filter| !filter.key_tests.is_empty());
        match key_filter {
            _ if !atoms.iter().all(passes) => Ok(false),
            None => Ok(true),
            Some(filter) => {
                self.write_key_of(first, parts, key)?;
                filter.passes_key(key)
            }
        }
    }

    /// Appends the cells of an atom's projected columns at its `picks`, in their order.
    fn append_atom(&self, state: &mut Interleaving, at: usize, builder: &mut RecordBatchBuilder) -> Result<()> {
        let Interleaving { atoms, parts, rest, .. } = state;
        let Atom { sources, targets, picks, places } = &mut atoms[at];
        if targets.is_empty() || picks.is_empty() {
            return Ok(());
        }
        sources.iter().for_each(|&source| parts[source].picked.clear());
        places.clear();
        for &entry in &*picks {
            let (source, row) = place_of(entry);
            let part = &mut parts[source];
            // For now among those of its source.
            places.push(part.picked.len() as u32);
            part.picked.push((part.row + row) as u32);
        }
        let mut before = 0;
        for &source in &*sources {
            parts[source].before = before;
            before += parts[source].picked.len() as u32;
        }
        for (place, &entry) in places.iter_mut().zip(&*picks) {
            *place += parts[place_of(entry).0].before;
        }
        for (target, columns) in targets {
            for &source in sources.iter().filter(|source| !parts[**source].picked.is_empty()) {
                let rows = &parts[source].picked;
                if source == REST {
                    builder.append_cells_of_rows(*target, rows.iter().filter_map(|&row| rest.get(row as usize)))?;
                } else if let Some((block, _)) = self.runs[source - 1].block() {
                    block.read(|pages| builder.append_selected(*target, &pages[columns[source - 1]], rows))?;
                }
            }
            builder.arrange(*target, places)?;
        }
        Ok(())
    }
}
