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
    /// The place of a group's states in `states`.
    places: BTreeMap<Vec<u8>, usize>,
    /// Of each group as many as there are aggregates.
    states: Vec<State>,
    weight: usize,
    /// The group of the row before, which is often that of the next one.
    last: Option<usize>,
    last_key: Vec<u8>,
    key: Vec<u8>,
    code: Vec<u8>,
}

impl Groups {
    /// Of no rows.
    pub fn new(aggregation: Arc<Aggregation>) -> Self {
        Self {
            aggregation,
            places: BTreeMap::new(),
            states: Vec::new(),
            weight: 0,
            last: None,
            last_key: Vec::new(),
            key: Vec::new(),
            code: Vec::new(),
        }
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// About how many bytes of memory they take.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.places.clear();
        self.states.clear();
        (self.weight, self.last) = (0, None);
    }

    /// Adds a row, given by its columns. Nothing is added if a column cannot be read.
    pub(super) fn add<'d>(&mut self, column: impl Fn(usize) -> Result<DatumRef<'d>>) -> Result<()> {
        let aggregation = self.aggregation.clone();
        let columns = aggregation.schema().columns();
        self.key.clear();
        for &group in aggregation.group_by() {
            encode_index_column(&columns[group], column(group)?, &mut self.key)?;
        }
        // What cannot be read must change nothing.
        for aggregate in aggregation.aggregates() {
            if let Some(at) = aggregate.column() {
                column(at)?.check(&columns[at])?;
            }
        }
        let place = match self.last.filter(|_| self.last_key == self.key) {
            Some(place) => place,
            None => {
                let key = std::mem::take(&mut self.key);
                let place = self.place_of(&key);
                self.last = Some(place);
                self.key = std::mem::replace(&mut self.last_key, key);
                place
            }
        };
        let states = &mut self.states[place..place + aggregation.aggregates().len()];
        for (aggregate, state) in aggregation.aggregates().iter().zip(states) {
            let value = match aggregate.column() {
                Some(at) => column(at)?,
                None => DatumRef::Bool(true),
            };
            if !value.is_null() {
                let before = state.weight();
                state.add(value, &mut self.code);
                self.weight = self.weight + state.weight() - before;
            }
        }
        Ok(())
    }

    /// The place of a group's states; a new group's if there is none yet.
    fn place_of(&mut self, key: &[u8]) -> usize {
        if let Some(&place) = self.places.get(key) {
            return place;
        }
        let place = self.states.len();
        let aggregates = self.aggregation.aggregates();
        self.states.extend(aggregates.iter().map(|&aggregate| State::new(aggregate)));
        self.weight += GROUP_WEIGHT + key.len() + STATE_WEIGHT * aggregates.len();
        self.places.insert(key.to_vec(), place);
        place
    }

    /// Adds the rows of another part. Both must be of the same aggregation.
    pub fn merge(&mut self, other: &Self) {
        let count = self.aggregation.aggregates().len();
        for (key, &from) in &other.places {
            self.merge_group(key, &other.states[from..from + count]);
        }
    }

    fn merge_group(&mut self, key: &[u8], other: &[State]) {
        let place = self.place_of(key);
        for (state, other) in self.states[place..].iter_mut().zip(other) {
            let before = state.weight();
            state.merge(other);
            self.weight = self.weight + state.weight() - before;
        }
    }

    /// Appends the bytes of all groups.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.places.len() as u64);
        let count = self.aggregation.aggregates().len();
        for (key, &place) in &self.places {
            put_bytes(out, key);
            self.states[place..place + count].iter().for_each(|state| state.encode(out));
        }
    }

    /// Adds the rows of the part with these bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for malformed bytes; some of the rows may then have been added.
    pub fn merge_encoded(&mut self, bytes: &[u8]) -> Result<()> {
        let aggregation = self.aggregation.clone();
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
            if !self.places.contains_key(key) {
                decode_group(&aggregation, key).map_err(|error| error.at(at))?;
            }
            last = Some(key);
            states.clear();
            for &aggregate in aggregation.aggregates() {
                states.push(State::decode(aggregate, aggregation.schema(), &mut reader)?);
            }
            self.merge_group(key, &states);
        }
        reader.finish()
    }

    /// The result, groups ascending. Without grouping columns there is always one row.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for a sum of more than 38 digits.
    pub fn rows(&self) -> Result<Vec<GroupRow>> {
        let aggregation = &*self.aggregation;
        if self.places.is_empty() && aggregation.group_by().is_empty() {
            let mut nothing = self.clone();
            nothing.place_of(&[]);
            return nothing.rows();
        }
        let row = |(key, &place): (&Vec<u8>, &usize)| {
            let states = self.states[place..].iter().zip(aggregation.aggregates());
            Ok(GroupRow {
                group: decode_group(aggregation, key)?,
                aggregates: states.map(|(state, &a)| state.finish(a, aggregation.schema())).collect::<Result<_>>()?,
            })
        };
        self.places.iter().map(row).collect()
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
