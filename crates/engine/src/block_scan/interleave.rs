//! Layers whose rows interleave, as levels do into which keys come in any order: merged by their keys alone (DESIGN §5, LSM-OPD
//! §4.2.1, whose algorithm 1 does the same to compactions).
//!
//! Stretches of such layers have a row or two, and each costs a step for every run. So where the last stretch was short:
//!
//! 1. The runs are grouped into layers, once, from the oldest on: each has all wanted columns. Where they cannot be, nothing interleaves.
//! 2. An *interval* is what is certain: from the next key to the least of what bounds the current blocks. These are the last key
//!    of a layer's blocks, the next key of the rest, of a range delete, and of a layer whose block has anything else than whole rows
//!    that the snapshot sees.
//! 3. The keys of the interval are unpacked as integers from every layer's block, put behind each other, youngest layer first, and
//!    sorted: each with its layer and row in its lower bits, so that of one key the youngest comes first and hides the others.
//! 4. Of each layer the rows that were picked, and that pass the filter, are appended column by column; then the batch's new rows
//!    are put in the order of the keys ([`RecordBatchBuilder::arrange`]).
//!
//! Keys of up to 16 bytes and one length are such integers. Others, and intervals of a few rows, are left to stretches; after
//! intervals that did not pay, the next are waited for, ever longer.
//!
//! Cost: O(rows x log layers) for each interval, of which the sort finds the runs that are there; O(runs) an interval. Memory: 32
//! bytes for each row of it, of which there are no more than the batch takes from each layer.

use mycelium_base::{Error, Result};
use mycelium_encoding::RecordBatchBuilder;

use super::layer::Layer;
use super::layer_run::LayerRun;
use super::{BlockScan, LEAST_REACH};

/// An interval of fewer rows for each layer did not pay.
const LEAST_ROWS_OF_A_LAYER: usize = 2;
/// Of stretches and keys between two attempts, at most, as a power of two.
const LONGEST_WAIT: u32 = 8;
/// Bits of a row in a block, and of a layer.
const ROW_BITS: u32 = 24;
const LAYER_BITS: u32 = 8;
/// Bits of a key above the first one of its interval.
const KEY_BITS: u32 = u128::BITS - ROW_BITS - LAYER_BITS;

/// What a scan knows of layers that interleave. Memory is reused.
#[derive(Default)]
pub(super) struct Interleaving {
    /// Places of the layers among the scan's, youngest first; fewer than two if nothing interleaves. `None` before it was tried.
    layers: Option<Vec<usize>>,
    /// Steps until it is tried again, and how often in a row it did not pay.
    wait: u32,
    in_vain: u32,
    /// By layer, its rows in the interval.
    parts: Vec<Part>,
    keys: Vec<u128>,
    /// Keys above the first one, each with its layer and row.
    order: Vec<u128>,
    /// Where the rows that were picked are among those appended.
    places: Vec<u32>,
    scratch: Vec<u32>,
    key: Vec<u8>,
}

/// What a layer has of an interval.
#[derive(Default)]
struct Part {
    /// From the row that it stands on, those that may be in the interval.
    rows: usize,
    /// Of them, how many were picked or hidden.
    taken: usize,
    /// Picked rows that pass, counted from the first of the block.
    picked: Vec<u32>,
}

impl Interleaving {
    /// Whether it may pay to try, of a scan whose last stretch had so many rows about.
    pub(super) fn is_due(&mut self, reach: usize) -> bool {
        if reach > LEAST_REACH || self.layers.as_ref().is_some_and(|layers| layers.len() < 2) {
            return false;
        }
        let is_due = self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        is_due
    }

    /// Says whether it paid.
    fn judge(&mut self, rows: usize) {
        let layers = self.layers.as_ref().map_or(0, Vec::len);
        self.in_vain = if rows < LEAST_ROWS_OF_A_LAYER * layers { self.in_vain + 1 } else { 0 };
        self.wait = (1 << self.in_vain.min(LONGEST_WAIT)) - 1;
    }
}

impl BlockScan {
    /// Takes the next interval, `most` rows of it at most; how many rows of all layers that were, 0 if there is none.
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
        if state.layers.is_none() {
            state.layers = Some(self.whole_layers(builder)?);
        }
        let layers = state.layers.take().unwrap_or_default();
        let most = most.min((1 << ROW_BITS) - 1);
        let found = layers.len() > 1 && self.find_interval(state, &layers, most)? && state.sort();
        let taken = if found { self.take_interval(state, &layers, most, builder)? } else { 0 };
        state.layers = Some(layers);
        Ok(taken)
    }

    /// Step 1 of the module.
    fn whole_layers(&mut self, builder: &RecordBatchBuilder) -> Result<Vec<usize>> {
        let (mut layers, mut runs, mut missing) = (Vec::new(), Vec::new(), self.columns.clone());
        for at in (0..self.runs.len()).rev() {
            if !self.runs[at].share.is_subset(&missing) {
                return Ok(Vec::new());
            }
            missing.remove_all(&self.runs[at].share);
            runs.insert(0, at);
            if missing.is_empty() {
                layers.insert(0, self.layer_of(&std::mem::take(&mut runs), builder)?);
                missing.clone_from(&self.columns);
            }
        }
        Ok(if runs.is_empty() && layers.len() < 1 << LAYER_BITS { layers } else { Vec::new() })
    }

    /// Step 2: makes `parts` and `keys` those of the next interval; whether there is one to which two layers give rows.
    fn find_interval(&mut self, state: &mut Interleaving, layers: &[usize], most: usize) -> Result<bool> {
        let Self { runs, layers: all_layers, touched, upper, all_range_deletes, snapshot, .. } = self;
        let Some(first) = runs.iter().filter_map(LayerRun::key).min() else { return Ok(false) };
        let mut bound =
            [touched.key(), all_range_deletes.next_start(first), upper.as_deref()].into_iter().flatten().min();
        let (mut last, mut key_len) = (None, None);
        state.parts.resize_with(layers.len(), Part::default);
        for (&layer, part) in layers.iter().zip(&mut state.parts) {
            let layer = &all_layers[layer];
            part.rows = rows_alike(layer, runs, *snapshot, most)?;
            match layer.first_block(runs).filter(|_| part.rows > 0) {
                Some((block, row)) => {
                    let len = block.integer_key_len();
                    if len.is_none() || *key_len.get_or_insert(len) != len {
                        return Ok(false);
                    }
                    state.keys.clear();
                    let end = row + part.rows;
                    block
                        .append_integer_keys(end - 1..end, &mut state.scratch, &mut state.keys)
                        .ok_or_else(no_integer)?;
                    let end_key = state.keys.first().copied().unwrap_or_default();
                    last = Some(last.map_or(end_key, |last: u128| last.min(end_key)));
                }
                None => bound = layer.among(runs).filter_map(LayerRun::key).chain(bound).min(),
            }
        }
        let (Some(last), Some(Some(key_len))) = (last, key_len) else { return Ok(false) };
        state.key.clear();
        state.key.extend_from_slice(&last.to_be_bytes()[size_of::<u128>() - key_len..]);
        state.keys.clear();
        let mut with_rows = 0;
        for (&layer, part) in layers.iter().zip(&mut state.parts).filter(|(_, part)| part.rows > 0) {
            let Some((block, row)) = all_layers[layer].first_block(runs) else { continue };
            let (end, has_last) = block.find(&state.key)?;
            let end = bound.map_or(Ok(block.rows()), |bound| block.seek(bound))?.min(end + usize::from(has_last));
            part.rows = part.rows.min(end.saturating_sub(row));
            with_rows += usize::from(part.rows > 0);
            let rows = row..row + part.rows;
            block.append_integer_keys(rows, &mut state.scratch, &mut state.keys).ok_or_else(no_integer)?;
        }
        Ok(with_rows > 1)
    }

    /// Step 4, after the keys were sorted; how many rows were taken.
    fn take_interval(
        &mut self,
        state: &mut Interleaving,
        layers: &[usize],
        most: usize,
        builder: &mut RecordBatchBuilder,
    ) -> Result<usize> {
        for run in layers.iter().flat_map(|&layer| &self.layers[layer].runs) {
            if !self.runs[*run].tests.is_empty() {
                self.runs[*run].select(&mut self.counters)?;
            }
        }
        let passed = self.pick(state, layers, most)?;
        let mut first = 0;
        for (&layer, part) in layers.iter().zip(&mut state.parts) {
            self.append_part(layer, &part.picked, builder)?;
            first += part.picked.len();
        }
        debug_assert_eq!(first, state.places.len());
        builder.arrange(&state.places)?;
        builder.end_rows(state.places.len());
        let mut taken = 0;
        for (&layer, part) in layers.iter().zip(&state.parts).filter(|(_, part)| part.taken > 0) {
            taken += part.taken;
            for &run in &self.layers[layer].runs {
                self.runs[run].pass(part.taken, &mut self.row)?;
            }
        }
        self.counters.rows_passed_through += passed as u64;
        Ok(taken)
    }

    /// Makes `picked` and `places` those of the first `most` keys of the interval; how many keys these are.
    fn pick(&mut self, state: &mut Interleaving, layers: &[usize], most: usize) -> Result<usize> {
        let Interleaving { parts, order, places, key: key_bytes, .. } = state;
        parts.iter_mut().for_each(|part| {
            part.taken = 0;
            part.picked.clear();
        });
        places.clear();
        let starts: Vec<usize> = layers.iter().map(|&layer| self.standing_row(layer)).collect();
        let tests_keys = self.filter.as_ref().is_some_and(|filter| !filter.key_tests.is_empty());
        let (mut keys, mut last) = (0, None);
        for &entry in &*order {
            let (key, at) = (entry >> (ROW_BITS + LAYER_BITS), (entry >> ROW_BITS) as usize & ((1 << LAYER_BITS) - 1));
            let is_hidden = last == Some(key);
            if !is_hidden && keys == most {
                break;
            }
            parts[at].taken += 1;
            if is_hidden {
                continue;
            }
            (keys, last) = (keys + 1, Some(key));
            let row = starts[at] + (entry as usize & ((1 << ROW_BITS) - 1));
            if self.passes(layers[at], row - starts[at])?
                && (!tests_keys || self.passes_key(layers[at], row, key_bytes)?)
            {
                // For now the layer, and its place among those picked of it.
                places.push((at as u32) << ROW_BITS | parts[at].picked.len() as u32);
                parts[at].picked.push(row as u32);
            }
        }
        let mut before = 0;
        let firsts: Vec<u32> = parts
            .iter()
            .map(|part| {
                before += part.picked.len() as u32;
                before - part.picked.len() as u32
            })
            .collect();
        places
            .iter_mut()
            .for_each(|place| *place = firsts[(*place >> ROW_BITS) as usize] + (*place & ((1 << ROW_BITS) - 1)));
        Ok(keys)
    }

    /// The row of its block that a layer stands on.
    fn standing_row(&self, layer: usize) -> usize {
        self.layers[layer].first_block(&self.runs).map_or(0, |(_, row)| row)
    }

    /// Whether a row of a layer, counted from the one that it stands on, passes the tests of values.
    fn passes(&self, layer: usize, offset: usize) -> Result<bool> {
        let mut tested = self.layers[layer].among(&self.runs).filter(|run| !run.tests.is_empty());
        Ok(tested.all(|run| run.block().is_some_and(|(_, row)| run.selected.rows.get(row + offset))))
    }

    /// Whether the key of a row of a layer's block passes the tests of keys.
    fn passes_key(&self, layer: usize, row: usize, key: &mut Vec<u8>) -> Result<bool> {
        let Some((block, _)) = self.layers[layer].first_block(&self.runs) else { return Ok(false) };
        block.write_key(row, key)?;
        self.filter.as_ref().map_or(Ok(true), |filter| filter.passes_key(key))
    }

    /// Appends rows of the first block of a layer, counted from its first, and the same of its other blocks.
    fn append_part(&mut self, layer: usize, rows: &[u32], builder: &mut RecordBatchBuilder) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let first = self.standing_row(layer);
        let mut shift = first;
        let mut shifted = std::mem::take(&mut self.shifted);
        shifted.clear();
        shifted.extend_from_slice(rows);
        for &super::Target { target, run, place, .. } in &self.layers[layer].targets {
            let Some((block, row)) = self.runs[run].block() else { continue };
            if row != shift {
                shifted.iter_mut().for_each(|at| *at = *at - shift as u32 + row as u32);
                shift = row;
            }
            block.read(|pages| builder.append_selected(target, &pages[place], &shifted))?;
        }
        self.shifted = shifted;
        if builder.has_key_columns() {
            let Some((block, _)) = self.layers[layer].first_block(&self.runs) else { return Ok(()) };
            for &row in rows {
                block.write_key(row as usize, &mut self.row)?;
                builder.append_key(&self.row)?;
            }
        }
        Ok(())
    }
}

/// How many rows of a layer's current blocks, `most` at most, have the same keys in all of its runs, and are whole and visible.
fn rows_alike(layer: &Layer, runs: &[LayerRun], snapshot: u64, most: usize) -> Result<usize> {
    let (mut rows, mut first) = (most, None);
    for run in layer.among(runs) {
        let Some((block, row)) = run.block().filter(|(block, _)| block.facts().is_plain(snapshot)) else {
            return Ok(0);
        };
        rows = rows.min(block.rows() - row);
        match first {
            None => first = Some((block, row)),
            Some((other, other_row)) => rows = block.same_keys(row, (other, other_row), rows)?,
        }
    }
    Ok(rows)
}

impl Interleaving {
    /// Step 3: makes `order` that of the keys; `false` if they lie too far apart for it.
    fn sort(&mut self) -> bool {
        let Self { parts, keys, order, .. } = self;
        let mut starts = Vec::with_capacity(parts.len());
        let mut start = 0;
        for part in &*parts {
            starts.push(start);
            start += part.rows;
        }
        let with_rows = || parts.iter().zip(&starts).filter(|(part, _)| part.rows > 0);
        let Some(least) = with_rows().map(|(_, &start)| keys[start]).min() else { return false };
        let greatest = with_rows().map(|(part, &start)| keys[start + part.rows - 1]).max().unwrap_or(least);
        if (greatest - least) >> KEY_BITS != 0 {
            return false;
        }
        order.clear();
        for (at, (part, &start)) in parts.iter().zip(&starts).enumerate() {
            let entry = |(row, key): (usize, &u128)| {
                (key.wrapping_sub(least) << (ROW_BITS + LAYER_BITS)) | ((at as u128) << ROW_BITS) | row as u128
            };
            order.extend(keys[start..start + part.rows].iter().enumerate().map(entry));
        }
        order.sort();
        true
    }
}

#[cold]
fn no_integer() -> Error {
    Error::corruption("keys of a block are not of the form that it says")
}
