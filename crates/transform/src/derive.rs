//! Deriving the entries of a derived table from one row at a time, outside of a job.
//!
//! A row's derived entries are gathered (see [`crate::gathered`]). Each is a `Put` and gets the sequence number of the
//! row's version, which is the caller's affair.

use mycelium_base::{ColumnSet, Error, Group, Operation, Result};
use mycelium_encoding::row_format::RowScratch;

use crate::{DerivedEntries, Formats, GroupValues, InputEntry, JobContext, Outputs, TransformState, Transformer};

/// What an entry says of a derived table; see [`Deriver::derive`].
#[derive(Clone, Debug)]
pub enum Derived<'a> {
    /// `Put`s with these keys and values, and the entry's sequence number.
    Entries(&'a DerivedEntries),
    /// Nothing: a patch of columns that the transformer does not read, or a removal.
    Nothing,
    /// A patch that touches columns that the transformer reads, but lacks these.
    Needs(ColumnSet),
}

impl Derived<'_> {
    /// The keys and values; none unless they are [`Derived::Entries`].
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let entries = match self {
            Self::Entries(entries) => Some(*entries),
            Self::Nothing | Self::Needs(_) => None,
        };
        entries.into_iter().flat_map(DerivedEntries::iter)
    }
}

/// Derives the entries of one derived table. For one thread; keeps its memory from row to row.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_base::{Group, GroupFormat, Operation};
/// use mycelium_encoding::{DatumRef, PackedLayout, Schema};
/// use mycelium_transform::{Augment, Deriver, Formats};
///
/// let schema = Arc::new(Schema::parse("id int64 not null, city utf8, primary key (id)")?);
/// let index = Augment::index("by_city", &[1], &"-".parse()?, &schema)?;
/// let whole = Group::new("1".parse()?, GroupFormat::default());
/// let mut deriver = Deriver::new(&index, &Formats::new(schema.clone()), &whole)?;
/// let mut value = Vec::new();
/// PackedLayout::new(schema.clone()).encode_row(&[DatumRef::Int64(1), DatumRef::Utf8("Graz")], &mut value)?;
/// let derived = deriver.derive(b"row key", Operation::Put, &value)?;
/// let keys: Vec<&[u8]> = derived.entries().map(|(key, _)| key).collect();
/// assert!(keys.len() == 1 && keys[0].ends_with(b"row key"));
/// # Ok::<(), mycelium_base::Error>(())
/// ```
pub struct Deriver {
    values: GroupValues,
    state: Box<dyn TransformState>,
    reads: ColumnSet,
    entries: DerivedEntries,
    scratch: RowScratch,
}

impl Deriver {
    /// Derives what `transformer`, which stands beside the order, makes of values of `source` for its first derived
    /// table.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if the group lacks a column that it reads; those of
    /// [`Transformer::prepare`].
    pub fn new(transformer: &dyn Transformer, formats: &Formats, source: &Group) -> Result<Self> {
        let reads = transformer.reads();
        let lacking = reads.difference(&source.columns);
        if !lacking.is_empty() {
            let tables = transformer.derived_tables().join(", ");
            let message = format!("{tables}: values of group {source} have no columns {lacking}");
            return Err(Error::invalid(message));
        }
        let state = transformer.prepare(&JobContext { formats, source, destinations: &[] })?;
        let values = formats.values(source)?;
        Ok(Self { values, state, reads, entries: DerivedEntries::default(), scratch: RowScratch::default() })
    }

    /// The columns outside the primary key that entries are made of.
    pub fn reads(&self) -> &ColumnSet {
        &self.reads
    }

    /// What an entry of the row with key `row_key` derives. The transformer is shown the columns that it reads and no
    /// others, as a `Put` with sequence number 0, so that a row and a patch with the same values derive the same.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) for a malformed value;
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for more than
    /// [`MAX_DERIVED_BYTES`](crate::MAX_DERIVED_BYTES); those of the transformer. Whether the keys are ones that a
    /// table can hold is the caller's to check.
    pub fn derive(&mut self, row_key: &[u8], operation: Operation, value: &[u8]) -> Result<Derived<'_>> {
        match operation {
            Operation::Put => {}
            Operation::Patch => {
                let present = self.values.present(value, &mut self.scratch)?;
                if !self.reads.overlaps(&present) {
                    return Ok(Derived::Nothing);
                }
                let missing = self.reads.difference(&present);
                if !missing.is_empty() {
                    return Ok(Derived::Needs(missing));
                }
            }
            _ => return Ok(Derived::Nothing),
        }
        self.entries.clear();
        let entry = InputEntry { key: row_key, sequence: 0, operation: Operation::Put, columns: &self.reads, value };
        self.state.transform(&entry, &mut Outputs::gathering(&mut self.entries))?;
        Ok(Derived::Entries(&self.entries))
    }
}

impl std::fmt::Debug for Deriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deriver").field("reads", &self.reads).finish_non_exhaustive()
    }
}
