//! The aggregates of some rows by group, and their bytes.
//!
//! ```text
//! varint        groups
//! per group, keys ascending:
//!   bytes       key: the codes of the grouping columns (`key::encode_index_column`), back to back
//!   per aggregate: its state, see `state`
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{Error, Result};

use crate::key::{KeyReader, encode_index_column};
use crate::{Datum, DatumRef};

use super::Aggregation;
use super::state::State;

/// What a group costs beyond its key and text.
const GROUP_WEIGHT: usize = 64;
/// What a state costs beyond its text.
const STATE_WEIGHT: usize = 32;

/// One group of the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRow {
    /// The values of the grouping columns.
    pub group: Vec<Datum>,
    /// The aggregates, in the order of the aggregation.
    pub aggregates: Vec<Datum>,
}

/// The aggregates of some rows by group. One thread at a time.
#[derive(Clone, Debug)]
pub struct Groups {
    aggregation: Arc<Aggregation>,
    states: GroupStates,
    /// The group of the row before, which is often that of the next one.
    last: Option<usize>,
    last_key: Vec<u8>,
    key: Vec<u8>,
    code: Vec<u8>,
}

/// The states of all groups.
#[derive(Clone, Default, Debug)]
struct GroupStates {
    /// Where a group's states begin.
    places: BTreeMap<Vec<u8>, usize>,
    /// Of each group as many as there are aggregates.
    all: Vec<State>,
    weight: usize,
}

impl GroupStates {
    /// The place of a group; of a new one if it is not there yet.
    fn place_of(&mut self, key: &[u8], aggregation: &Aggregation) -> usize {
        if let Some(&place) = self.places.get(key) {
            return place;
        }
        let (place, aggregates) = (self.all.len(), aggregation.aggregates());
        self.all.extend(aggregates.iter().map(|&aggregate| State::new(aggregate, aggregation.schema())));
        self.weight += GROUP_WEIGHT + key.len() + STATE_WEIGHT * aggregates.len();
        self.places.insert(key.to_vec(), place);
        place
    }

    fn change(&mut self, place: usize, change: impl FnOnce(&mut State)) {
        let state = &mut self.all[place];
        let before = state.weight();
        change(state);
        self.weight = self.weight + state.weight() - before;
    }

    fn merge(&mut self, key: &[u8], aggregation: &Aggregation, others: &[State]) {
        let place = self.place_of(key, aggregation);
        for (at, other) in others.iter().enumerate() {
            self.change(place + at, |state| state.merge(other));
        }
    }
}

impl Groups {
    /// Of no rows.
    pub fn new(aggregation: Arc<Aggregation>) -> Self {
        let states = GroupStates::default();
        Self { aggregation, states, last: None, last_key: Vec::new(), key: Vec::new(), code: Vec::new() }
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.states.places.len()
    }

    /// Whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.states.places.is_empty()
    }

    /// About how many bytes of memory they take.
    pub fn weight(&self) -> usize {
        self.states.weight
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.states.places.clear();
        self.states.all.clear();
        (self.states.weight, self.last) = (0, None);
    }

    /// Adds a row, given by its columns. Nothing is added if a column cannot be read.
    pub(super) fn add<'d>(&mut self, column: impl Fn(usize) -> Result<DatumRef<'d>>) -> Result<()> {
        let (columns, aggregates) = (self.aggregation.schema().columns(), self.aggregation.aggregates());
        self.key.clear();
        for &group in self.aggregation.group_by() {
            encode_index_column(&columns[group], column(group)?, &mut self.key)?;
        }
        for at in aggregates.iter().filter_map(|aggregate| aggregate.column()) {
            column(at)?.check(&columns[at])?;
        }
        let place = match self.last {
            Some(place) if self.last_key == self.key => place,
            _ => {
                std::mem::swap(&mut self.key, &mut self.last_key);
                *self.last.insert(self.states.place_of(&self.last_key, &self.aggregation))
            }
        };
        for (at, aggregate) in aggregates.iter().enumerate() {
            let value = aggregate.column().map_or(Ok(DatumRef::Bool(true)), &column)?;
            if !value.is_null() {
                self.states.change(place + at, |state| state.add(value, &mut self.code));
            }
        }
        Ok(())
    }

    /// Adds the rows of another part. Both must be of the same aggregation.
    pub fn merge(&mut self, other: &Self) {
        let count = self.aggregation.aggregates().len();
        for (key, &from) in &other.states.places {
            self.states.merge(key, &self.aggregation, &other.states.all[from..from + count]);
        }
    }

    /// Appends the bytes of all groups.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        let count = self.aggregation.aggregates().len();
        for (key, &place) in &self.states.places {
            put_bytes(out, key);
            self.states.all[place..place + count].iter().for_each(|state| state.encode(out));
        }
    }

    /// Adds the rows of the part with these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for malformed bytes; some of the rows may then have been
    /// added.
    pub fn merge_encoded(&mut self, bytes: &[u8]) -> Result<()> {
        let aggregation = &*self.aggregation;
        let mut reader = Reader::new(bytes);
        let count = reader.length(bytes.len())?;
        let mut last: Option<&[u8]> = None;
        let mut states = Vec::with_capacity(aggregation.aggregates().len());
        for _ in 0..count {
            let at = reader.position() as u64;
            let key = reader.bytes()?;
            if last.is_some_and(|last| last >= key) {
                return Err(Error::corruption("groups of a summary out of order").at(at));
            }
            if !self.states.places.contains_key(key) {
                decode_group(aggregation, key).map_err(|error| error.at(at))?;
            }
            last = Some(key);
            states.clear();
            for &aggregate in aggregation.aggregates() {
                states.push(State::decode(aggregate, aggregation.schema(), &mut reader)?);
            }
            self.states.merge(key, aggregation, &states);
        }
        reader.finish()
    }

    /// The result, groups ascending. Without grouping columns there is always one row.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for a sum of more than 38 digits.
    pub fn rows(&self) -> Result<Vec<GroupRow>> {
        let aggregation = &*self.aggregation;
        if self.is_empty() && aggregation.group_by().is_empty() {
            let mut nothing = self.clone();
            nothing.states.place_of(&[], aggregation);
            return nothing.rows();
        }
        let row = |(key, &place): (&Vec<u8>, &usize)| {
            let states = self.states.all[place..].iter().zip(aggregation.aggregates());
            Ok(GroupRow {
                group: decode_group(aggregation, key)?,
                aggregates: states.map(|(state, &a)| state.finish(a, aggregation.schema())).collect::<Result<_>>()?,
            })
        };
        self.states.places.iter().map(row).collect()
    }
}

/// Of the same rows by the same aggregation, in whatever order they were added.
impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |groups: &Self| {
            let mut out = Vec::new();
            groups.encode(&mut out);
            out
        };
        self.aggregation == other.aggregation && bytes(self) == bytes(other)
    }
}

fn decode_group(aggregation: &Aggregation, key: &[u8]) -> Result<Vec<Datum>> {
    let (mut reader, mut scratch) = (KeyReader::new(key), Vec::new());
    let mut values = Vec::with_capacity(aggregation.group_by().len());
    for &column in aggregation.group_by() {
        let column = &aggregation.schema().columns()[column];
        values.push(reader.next_index_column(column, &mut scratch)?.to_datum());
    }
    reader.finish()?;
    Ok(values)
}
