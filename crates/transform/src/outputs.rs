//! Where a transformer puts what it makes of an entry.
//!
//! Mapped values belong to the entry in hand and are gathered (see [`crate::gathered`]). Derived entries go to the
//! job's staging area; whether they are taken is its affair (see [`crate::job`]). Outside of a job those of one row are
//! gathered, too (see [`crate::derive`]).

use std::ops::Range;

use mycelium_base::limits::{MAX_KEY_LEN, MAX_VALUE_LEN};
use mycelium_base::{Error, Operation, Result, SequenceNumber, Trailer};

use crate::gathered::{DerivedEntries, Mapped};
use crate::staging::{Resume, Staging};

/// Takes the outputs of one entry.
#[derive(Debug)]
pub struct Outputs<'a>(Side<'a>);

#[derive(Debug)]
enum Side<'a> {
    Map {
        mapped: &'a mut Mapped,
        /// The transformer's destinations, by the numbers of `mapped`.
        targets: &'a [usize],
        /// The first destination that has not had its turn.
        next: usize,
    },
    Derive {
        staging: &'a mut Staging,
        resume: &'a mut Resume,
        /// The transformer's tables, by the job's numbers.
        tables: Range<u32>,
        sequence: SequenceNumber,
    },
    Gather(&'a mut DerivedEntries),
}

impl<'a> Outputs<'a> {
    pub(crate) fn mapping(mapped: &'a mut Mapped, targets: &'a [usize]) -> Self {
        Self(Side::Map { mapped, targets, next: 0 })
    }

    pub(crate) fn deriving(
        staging: &'a mut Staging,
        resume: &'a mut Resume,
        tables: Range<u32>,
        sequence: SequenceNumber,
    ) -> Self {
        Self(Side::Derive { staging, resume, tables, sequence })
    }

    /// Takes what one row derives for one table.
    pub(crate) fn gathering(entries: &'a mut DerivedEntries) -> Self {
        Self(Side::Gather(entries))
    }

    /// The value of the entry in a destination, by its place among [`JobContext::destinations`](crate::JobContext).
    /// Destinations have their turn in ascending order; a `Put` needs a value in each, a `Patch` in those that it
    /// touches.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind): no such destination, one out of turn, a value over
    /// [`MAX_VALUE_LEN`], or a transformer that stands beside the order.
    pub fn map(&mut self, destination: usize, value: &[u8]) -> Result<()> {
        self.map_with(destination, |out| {
            out.extend_from_slice(value);
            Ok(())
        })
    }

    /// As [`Outputs::map`], with a value that `write` appends to what it is given.
    ///
    /// # Errors
    /// As [`Outputs::map`], and those of `write`.
    pub fn map_with(&mut self, destination: usize, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let Side::Map { mapped, targets, next } = &mut self.0 else {
            return Err(Error::invalid("a transformer beside the order maps nothing"));
        };
        match targets.get(destination) {
            Some(&target) if destination >= *next => {
                *next = destination + 1;
                mapped.push(target, write)
            }
            Some(_) => Err(Error::invalid(format!("destination {destination} out of turn: the next is {next}"))),
            None => Err(Error::invalid(format!("no destination {destination}: there are {}", targets.len()))),
        }
    }

    /// An entry for a derived table, by its place among the transformer's
    /// [`derived_tables`](crate::Transformer::derived_tables). It gets the sequence number of the entry in hand. One
    /// entry derives a key of a table once; the same again is dropped.
    ///
    /// `false`: the staging area is full. The transformer returns as soon as it likes; the job is drained, and the
    /// transformer called again with the same entry. What was taken of it already is then passed over.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind): no such table, a key or value over its limit, an
    /// operation other than `Put` and `Patch` (removals from derived tables are the engine's), or a transformer that
    /// does not stand beside the order. The derived table of a flat-map takes no `Patch` either.
    pub fn derive(&mut self, table: usize, key: &[u8], operation: Operation, value: &[u8]) -> Result<bool> {
        let (staging, resume, tables, sequence) = match &mut self.0 {
            Side::Derive { staging, resume, tables, sequence } => (staging, resume, tables, sequence),
            Side::Gather(entries) if table == 0 && operation == Operation::Put => {
                return entries.push(key, value).map(|()| true);
            }
            Side::Gather(_) => {
                return Err(Error::invalid(format!("a {} for derived table {table} of one", operation.name())));
            }
            Side::Map { .. } => return Err(Error::invalid("only a transformer beside the order derives")),
        };
        let Some(table) = tables.clone().nth(table) else {
            return Err(Error::invalid(format!("no derived table {table}: there are {}", tables.len())));
        };
        if !matches!(operation, Operation::Put | Operation::Patch) {
            return Err(Error::invalid(format!("a transformer cannot derive a {}", operation.name())));
        }
        if key.len() > MAX_KEY_LEN || value.len() > MAX_VALUE_LEN {
            return Err(Error::invalid(format!(
                "a derived key of {} bytes with a value of {}: at most {MAX_KEY_LEN} and {MAX_VALUE_LEN} are possible",
                key.len(),
                value.len()
            )));
        }
        Ok(resume.stage(staging, table, key, Trailer::new(*sequence, operation), value))
    }
}
