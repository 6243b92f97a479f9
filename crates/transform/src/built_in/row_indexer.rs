//! The entry of an index from the values of a row, before they are encoded.
//!
//! It is the very entry that [`Augment`] makes of the row once it is encoded, in whatever format, without looking for
//! the columns in it.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, Result};
use mycelium_encoding::row_format::RowScratch;
use mycelium_encoding::{ColumnState, DatumRef, FragmentFormat, RowFormat, Schema};

use super::augment::{Augment, encode_column};

/// The values of a row that are found one by one.
pub trait RowValues {
    /// The value of the column at a position of the schema.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) if the row has none there.
    fn value(&mut self, column: usize) -> Result<DatumRef<'_>>;
}

/// Makes the entries of an index of rows whose values are at hand. Immutable; thread-safe.
///
/// ```
/// use std::sync::Arc;
/// use mycelium_encoding::row_format::RowScratch;
/// use mycelium_encoding::{DatumRef, Schema};
/// use mycelium_transform::Augment;
///
/// let schema = Arc::new(Schema::parse("id int64 not null, city utf8, primary key (id)")?);
/// let index = Augment::index("by_city", &[1], &"-".parse()?, &schema)?.row_indexer(&schema);
/// let (mut key, mut value) = (Vec::new(), Vec::new());
/// let row = [DatumRef::Int64(1), DatumRef::Utf8("Graz")];
/// index.encode_key(&row, b"row key", &mut key)?;
/// index.encode_value(&row, &mut RowScratch::default(), &mut value)?;
/// assert!(key.ends_with(b"row key") && value.is_empty());
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowIndexer {
    schema: Arc<Schema>,
    on: Vec<usize>,
    /// How values are packed, if they hold columns.
    covered: Option<RowFormat>,
}

impl Augment {
    /// Makes this index's entries of the values of rows.
    pub fn row_indexer(&self, schema: &Arc<Schema>) -> RowIndexer {
        let packed = |cover: &ColumnSet| FragmentFormat::packed(schema.clone(), cover.clone()).rows().clone();
        let covered = Some(self.cover()).filter(|cover| !cover.is_empty()).map(packed);
        RowIndexer { schema: schema.clone(), on: self.on().to_vec(), covered }
    }
}

impl RowIndexer {
    /// Appends the key of the entry of a row, which has one value per column in schema order, and the key `row_key`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](mycelium_base::ErrorKind) for a row of fewer or more values, or with one that its
    /// column cannot hold. Whether the key is one that a table can hold is the caller's to check.
    pub fn encode_key(&self, row: &[DatumRef<'_>], row_key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.check(row)?;
        for &column in &self.on {
            encode_column(&self.schema, column, row[column], out)?;
        }
        out.extend_from_slice(row_key);
        Ok(())
    }

    /// As [`RowIndexer::encode_key`], of a row whose values are found one by one. Errors as that, and those of finding.
    pub fn encode_key_of(&self, row: &mut impl RowValues, row_key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        for &column in &self.on {
            encode_column(&self.schema, column, row.value(column)?, out)?;
        }
        out.extend_from_slice(row_key);
        Ok(())
    }

    /// Appends the value of the entry: nothing if the index covers no columns. Errors as [`RowIndexer::encode_key`].
    pub fn encode_value(&self, row: &[DatumRef<'_>], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<()> {
        let Some(covered) = &self.covered else { return Ok(()) };
        self.check(row)?;
        covered.encode_with(|column| ColumnState::from(row[column]), scratch, out)
    }

    fn check(&self, row: &[DatumRef<'_>]) -> Result<()> {
        let columns = self.schema.columns().len();
        if row.len() == columns { Ok(()) } else { Err(wrong_len(row.len(), columns)) }
    }
}

#[cold]
fn wrong_len(values: usize, columns: usize) -> Error {
    Error::invalid("a row of another table").expected(format_args!("{columns} values"), values)
}
