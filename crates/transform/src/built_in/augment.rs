//! Secondary indexes (Mycelium §4.2.4).
//!
//! Text form: `augment by_city on 3,1` or `augment by_city on 3,1 cover 2,4-5`: the name of the derived table, the
//! indexed columns, most significant first, and the columns that its values hold, all by position in the schema.
//!
//! What is derived from an entry is one `Put`:
//!
//! ```text
//! key     the code of each indexed column (key::encode_index_column), then the key of the row
//! value   the covered columns, packed as those of a column group; empty if there are none
//! ```
//!
//! Codes are prefix-free, so the rows with given values in the first indexed columns are those of one key prefix, and
//! what follows the codes is the row's key as it is. The entry keeps its sequence number: what is superseded is told
//! apart by it.

use mycelium_base::{ColumnSet, Error, Group, GroupFormat, Operation, Result};
use mycelium_encoding::key::{self, KeyReader};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{Column, ColumnState, Datum, DatumRef, Reshape, RowFormatKind, Schema};

use crate::gathered::clear_for_reuse;
use crate::{Formats, GroupValues, InputEntry, JobContext, Outputs, Place, TransformState, Transformer};

const LONGEST_NAME: usize = 255;

/// Feeds a secondary index.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_encoding::{Datum, DatumRef, Schema};
/// use mycelium_transform::Augment;
///
/// let schema = Arc::new(Schema::parse("id int64 not null, city utf8, year int32, primary key (id)")?);
/// let index = Augment::index("by_city", &[1, 2], &"-".parse()?, &schema)?;
/// let mut prefix = Vec::new();
/// index.encode_prefix(&schema, &[DatumRef::Utf8("Graz"), DatumRef::Int32(1128)], &mut prefix)?;
/// let key = [prefix.as_slice(), b"row key"].concat();
/// let (values, row_key) = index.decode_key(&schema, &key)?;
/// assert_eq!(values, [Datum::Utf8("Graz".into()), Datum::Int32(1128)]);
/// assert_eq!(row_key, b"row key");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Augment {
    name: String,
    on: Vec<usize>,
    cover: ColumnSet,
    /// Indexed and covered columns outside the primary key.
    reads: ColumnSet,
}

impl Augment {
    /// An index called `name` on these columns, whose values hold the columns `cover`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind): an empty or long name, no column, one that does not
    /// exist or is named twice, or a covered column of the primary key, which every key of the index ends with anyway.
    pub fn index(name: &str, on: &[usize], cover: &ColumnSet, schema: &Schema) -> Result<Self> {
        let refused = |what: String| Err(Error::invalid(format!("augment {name}: {what}")));
        if name.is_empty() || name.len() > LONGEST_NAME {
            return refused(format!("a name has 1 to {LONGEST_NAME} bytes"));
        }
        let unknown = on.iter().copied().chain(cover.iter()).find(|&column| !schema.has_column(column));
        if let Some(column) = unknown {
            return refused(format!("there is no column {column}"));
        }
        let indexed: ColumnSet = on.iter().copied().collect();
        if on.is_empty() || indexed.len() != on.len() {
            return refused("an index is on one column or more, each once".into());
        }
        if let Some(column) = cover.iter().find(|&column| schema.is_primary_key(column)) {
            let name = &schema.columns()[column].name;
            return refused(format!("column \"{name}\" is in the primary key, which the index holds anyway"));
        }
        let reads = indexed.union(cover).iter().filter(|&column| !schema.is_primary_key(column)).collect();
        Ok(Self { name: name.to_owned(), on: on.to_vec(), cover: cover.clone(), reads })
    }

    /// Reads the text form without its first word: `by_city on 3,1 cover 2`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if it is malformed, and as [`Augment::index`].
    pub fn parse(arguments: &str, schema: &Schema) -> Result<Self> {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let (name, on, cover) = match words.as_slice() {
            [name, "on", on] => (name, on, "-"),
            [name, "on", on, "cover", cover] => (name, on, *cover),
            _ => {
                return Err(Error::invalid("malformed augment")
                    .expected("a name and columns, such as `by_city on 3,1 cover 2`", format_args!("`{arguments}`")));
            }
        };
        let position = |text: &str| {
            text.parse().map_err(|_| Error::invalid(format!("augment {name}: `{text}` is not a column position")))
        };
        let on = on.split(',').map(position).collect::<Result<Vec<_>>>()?;
        Self::index(name, &on, &cover.parse()?, schema)
    }

    /// The text that [`Augment::parse`] reads.
    pub fn arguments(&self) -> String {
        let on: Vec<String> = self.on.iter().map(ToString::to_string).collect();
        let cover = if self.cover.is_empty() { String::new() } else { format!(" cover {}", self.cover) };
        format!("{} on {}{cover}", self.name, on.join(","))
    }

    /// The columns outside the primary key that entries are made of.
    pub fn columns_read(&self) -> &ColumnSet {
        &self.reads
    }

    /// The name of the derived table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The indexed columns, most significant first.
    pub fn on(&self) -> &[usize] {
        &self.on
    }

    /// The columns that values of the index hold.
    pub fn cover(&self) -> &ColumnSet {
        &self.cover
    }

    /// The group whose packed values are those of the index.
    fn covered_group(&self) -> Group {
        Group::new(self.cover.clone(), GroupFormat::Row(RowFormatKind::Packed))
    }

    /// Appends the prefix that the index's keys with these values in its first `values.len()` columns share.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind): too many values, or one that its column cannot hold.
    pub fn encode_prefix(&self, schema: &Schema, values: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        if values.len() > self.on.len() {
            return Err(Error::invalid(format!("the index {} is on only {} columns", self.name, self.on.len())));
        }
        for (&column, &value) in self.on.iter().zip(values) {
            encode_column(schema, column, value, out)?;
        }
        Ok(())
    }

    /// The indexed values of a key of the index, and the key of its row.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`](mycelium_base::ErrorKind) if it is no key of this index.
    pub fn decode_key<'k>(&self, schema: &Schema, key: &'k [u8]) -> Result<(Vec<Datum>, &'k [u8])> {
        let mut reader = KeyReader::new(key);
        let mut scratch = Vec::new();
        let mut values = Vec::with_capacity(self.on.len());
        for &column in &self.on {
            values.push(reader.next_index_column(column_of(schema, column)?, &mut scratch)?.to_datum());
        }
        Ok((values, reader.rest()))
    }
}

fn column_of(schema: &Schema, column: usize) -> Result<&Column> {
    schema.columns().get(column).ok_or_else(|| Error::invalid(format!("there is no column {column}")))
}

pub(super) fn encode_column(schema: &Schema, column: usize, value: DatumRef<'_>, out: &mut Vec<u8>) -> Result<()> {
    key::encode_index_column(column_of(schema, column)?, value, out)
}

impl Transformer for Augment {
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
        Ok(Box::new(self.indexing(job.formats, job.source)?))
    }
}

impl Augment {
    fn indexing(&self, formats: &Formats, source: &Group) -> Result<Indexing> {
        let source = formats.values(source)?;
        let covered = match self.cover.is_empty() {
            true => None,
            false => Some(source.fragment().reshape(formats.values(&self.covered_group())?.fragment())?),
        };
        let schema = formats.schema();
        let value_order: Vec<usize> =
            self.on.iter().copied().filter(|&column| !schema.is_primary_key(column)).collect();
        Ok(Indexing {
            source,
            on: self.on.clone(),
            key_positions: key_positions(&self.on, schema),
            in_value: value_order.iter().copied().collect(),
            value_order,
            covered,
            scratch: RowScratch::default(),
            codes: Vec::new(),
            code_ends: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
        })
    }
}

/// For each indexed column its place in the primary key, if it is in it.
fn key_positions(on: &[usize], schema: &Schema) -> Vec<Option<usize>> {
    on.iter().map(|column| schema.primary_key().iter().position(|key_column| key_column == column)).collect()
}

/// The state of a job.
struct Indexing {
    source: GroupValues,
    on: Vec<usize>,
    key_positions: Vec<Option<usize>>,
    /// The indexed columns outside the primary key, as a set and in their order.
    in_value: ColumnSet,
    value_order: Vec<usize>,
    covered: Option<Reshape>,
    scratch: RowScratch,
    /// The codes of `value_order`, and where each ends.
    codes: Vec<u8>,
    code_ends: Vec<usize>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Indexing {
    /// The codes of the indexed columns that are in the value.
    fn encode_value_columns(&mut self, value: &[u8]) -> Result<()> {
        let Self { source, in_value, value_order, scratch, codes, code_ends, .. } = self;
        clear_for_reuse(codes);
        code_ends.clear();
        let schema = source.schema();
        source.visit_in_order(value, in_value, &mut value_order.iter().copied(), scratch, &mut |column, state| {
            let datum = match state {
                ColumnState::Value(datum) => datum,
                ColumnState::Null => DatumRef::Null,
                ColumnState::Absent => {
                    return Err(Error::corruption(format!("a row lacks the indexed column {column}")));
                }
            };
            encode_column(schema, column, datum, codes)?;
            code_ends.push(codes.len());
            Ok(())
        })
    }

    /// The derived key:
    /// 1. the codes of the indexed columns in their order, those of the primary key taken from the row's key;
    /// 2. the row's key.
    fn encode_key(&mut self, row_key: &[u8]) -> Result<()> {
        let schema = self.source.schema();
        let from_key = match self.value_order.len() < self.on.len() {
            true => key::decode_key(schema, row_key)?,
            false => Vec::new(),
        };
        clear_for_reuse(&mut self.key);
        let (mut start, mut ends) = (0, self.code_ends.iter());
        for (&column, position) in self.on.iter().zip(&self.key_positions) {
            if let Some(datum) = position.and_then(|position| from_key.get(position)) {
                encode_column(schema, column, datum.borrowed(), &mut self.key)?;
            } else if let Some(&end) = ends.next() {
                self.key.extend_from_slice(&self.codes[start..end]);
                start = end;
            }
        }
        self.key.extend_from_slice(row_key);
        Ok(())
    }
}

impl Indexing {
    /// The derived key and value of a row or of a patch that has all columns that the index reads.
    fn encode(&mut self, row_key: &[u8], value: &[u8]) -> Result<()> {
        self.encode_value_columns(value)?;
        self.encode_key(row_key)?;
        clear_for_reuse(&mut self.value);
        if let Some(covered) = &self.covered
            && !covered.apply(value, &mut self.scratch, &mut self.value)?
        {
            return Err(Error::corruption("a row has none of the columns that its index covers"));
        }
        Ok(())
    }
}

impl TransformState for Indexing {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        self.encode(entry.key, entry.value)?;
        outputs.derive(0, &self.key, Operation::Put, &self.value).map(drop)
    }
}
