//! Flat-maps of users (Mycelium §4.2.1): a row becomes any number of entries of a derived table.
//!
//! What a user's transformer derives is a key and a value. In the derived table it stands as
//!
//! ```text
//! key     the code of the user's key (key::encode_index_column of a binary column that is not null), then the key of the row
//! value   the user's
//! ```
//!
//! so the entries of one user's key are those of one key prefix, as those of an index are
//! ([`Augment`](crate::Augment)), and those of different rows are different. A row derives a key once.
//!
//! An error of the user's transformer ends its job, and refuses one row: another job begins with the next row, whatever
//! the one that failed has left behind.

use mycelium_base::{ColumnSet, Error, Group, Operation, Result};
use mycelium_encoding::key::{self, KeyReader};
use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, Schema};

use crate::gathered::{DerivedEntries, clear_for_reuse};
use crate::{
    Formats, InputEntry, JobContext, NamedTransformer, Outputs, Place, TransformState, Transformer,
    TransformerDefinition,
};

/// Feeds a derived table with what a user's transformer makes of each row.
#[derive(Clone, Debug)]
pub struct FlatMap {
    name: String,
    named: NamedTransformer,
    reads: ColumnSet,
    key_column: Column,
}

impl FlatMap {
    /// A derived table called `name`, fed by a user's transformer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if it does not stand beside the order, feeds another
    /// number of derived tables than one, or reads columns that the schema does not have outside its key.
    pub fn new(name: &str, named: NamedTransformer, schema: &Schema) -> Result<Self> {
        let refused = |what: String| Err(Error::invalid(format!("the transformer `{}` {what}", named.definition)));
        if named.transformer.place() != Place::Beside {
            return refused("stands in the order: it feeds no derived table".into());
        }
        let tables = named.transformer.derived_tables().len();
        if tables != 1 {
            return refused(format!("feeds {tables} derived tables: one is possible here"));
        }
        let reads = named.transformer.reads();
        let unknown = reads.difference(&schema.value_columns());
        if !unknown.is_empty() {
            return refused(format!("reads the columns {unknown}, which the table does not have outside its key"));
        }
        let key_column = Column::new(name, ColumnType::Binary).not_null();
        Ok(Self { name: name.to_owned(), named, reads, key_column })
    }

    /// The name of the derived table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user's transformer, by name.
    pub fn definition(&self) -> &TransformerDefinition {
        &self.named.definition
    }

    /// The columns outside the primary key that entries are made of.
    pub fn columns_read(&self) -> &ColumnSet {
        &self.reads
    }

    /// Appends what the derived table's keys of one user's key start with: `values` is that key, as a binary value, or
    /// empty.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for more values, or one of another type.
    pub fn encode_prefix(&self, values: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        match values {
            [] => Ok(()),
            [value] => key::encode_index_column(&self.key_column, *value, out),
            _ => Err(Error::invalid(format!("what {} derives has one key, which is binary", self.name))),
        }
    }

    /// The user's key in a key of the derived table, and the key of its row.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) if it is no key of this derived table.
    pub fn decode_key<'k>(&self, key: &'k [u8]) -> Result<(Vec<Datum>, &'k [u8])> {
        let (mut reader, mut scratch) = (KeyReader::new(key), Vec::new());
        let value = reader.next_index_column(&self.key_column, &mut scratch)?.to_datum();
        Ok((vec![value], reader.rest()))
    }
}

impl Transformer for FlatMap {
    fn place(&self) -> Place {
        Place::Beside
    }

    fn derived_tables(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn reads(&self) -> ColumnSet {
        self.reads.clone()
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        Ok(Box::new(Flattening {
            map: self.clone(),
            formats: job.formats.clone(),
            source: job.source.clone(),
            state: Some(self.begin(job.formats, job.source)?),
            made: DerivedEntries::default(),
            key: Vec::new(),
        }))
    }
}

impl FlatMap {
    /// A job of the user's transformer.
    fn begin(&self, formats: &Formats, source: &Group) -> Result<Box<dyn TransformState>> {
        let job = JobContext { formats, source, destinations: &[] };
        self.named.transformer.prepare(&job).map_err(|error| self.named(error))
    }

    /// What fails in users' code fails for the row.
    fn named(&self, error: Error) -> Error {
        Error::invalid(format!("the transformer `{}` failed", self.named.definition)).caused_by(error)
    }
}

/// The state of a job.
struct Flattening {
    map: FlatMap,
    formats: Formats,
    source: Group,
    /// The user's; none after an error.
    state: Option<Box<dyn TransformState>>,
    made: DerivedEntries,
    key: Vec<u8>,
}

impl TransformState for Flattening {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let Self { map, formats, source, state, made, key } = self;
        made.clear();
        let mut users = match state.take() {
            Some(users) => users,
            None => map.begin(formats, source)?,
        };
        users.transform(entry, &mut Outputs::gathering(made)).map_err(|error| map.named(error))?;
        *state = Some(users);
        let mut sorted: Vec<(&[u8], &[u8])> = made.iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let message = format!("it derives the key {:02x?} twice from one row, with different values", pair[0].0);
            return Err(map.named(Error::invalid(message)));
        }
        for (users_key, value) in sorted {
            clear_for_reuse(key);
            key::encode_index_column(&map.key_column, DatumRef::Binary(users_key), key)?;
            key.extend_from_slice(entry.key);
            if !outputs.derive(0, key, Operation::Put, value)? {
                break;
            }
        }
        Ok(())
    }
}
