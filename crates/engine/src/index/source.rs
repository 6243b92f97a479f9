//! What the entries of an index are made of: columns of its table, or what a user's flat-map makes of a row.
//!
//! A flat-map's key takes the place of the indexed columns, as if it were one of them, binary and not null: bounds and
//! lookups are the same. A row then has any number of entries, or none.

use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, ErrorKind, Group, Result};
use mycelium_encoding::{Column, ColumnType, Datum, DatumRef, KeyPrefixes, Schema};
use mycelium_transform::{
    Augment, Deriver, FlatMap, Formats, NamedTransformer, Registry, RowIndexer, Transformer, TransformerDefinition,
};

/// As the manifest names it.
#[derive(Clone, PartialEq, Debug)]
pub enum IndexedBy {
    /// Columns.
    Columns(Augment),
    /// A user's transformer, by name; the first is the index's own.
    FlatMap(String, TransformerDefinition),
}

/// Between the name of an index and the transformer that it is fed by.
const FED_BY: &str = "by";

impl IndexedBy {
    /// The index's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Columns(augment) => augment.name(),
            Self::FlatMap(name, _) => name,
        }
    }

    /// The prefixes of derived keys that are the codes of the first indexed columns, or of a flat-map's key.
    pub(super) fn key_prefixes(&self, schema: &Schema) -> Option<KeyPrefixes> {
        match self {
            Self::Columns(augment) => {
                KeyPrefixes::of_index(augment.on().iter().filter_map(|&column| schema.columns().get(column)))
            }
            Self::FlatMap(name, _) => KeyPrefixes::of_index([&Column::new(name, ColumnType::Binary).not_null()]),
        }
    }

    /// The stored text: `by_city on 3,1 cover 2`, or `words by example.words 2`.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Columns(augment) => augment.arguments(),
            Self::FlatMap(name, definition) => format!("{name} {FED_BY} {definition}"),
        }
    }

    /// Reads the stored text.
    pub(super) fn parse(text: &str, is_flat_map: bool, schema: &Schema) -> Result<Self> {
        if !is_flat_map {
            return Ok(Self::Columns(Augment::parse(text, schema)?));
        }
        let malformed =
            || Error::invalid("malformed flat-map").expected("`NAME by TRANSFORMER`", format_args!("`{text}`"));
        let (name, rest) = text.split_once(' ').ok_or_else(malformed)?;
        let (by, definition) = rest.split_once(' ').ok_or_else(malformed)?;
        if by != FED_BY || name.is_empty() {
            return Err(malformed());
        }
        Ok(Self::FlatMap(name.to_owned(), definition.parse()?))
    }
}

/// As it is called.
#[derive(Clone, Debug)]
pub(crate) enum IndexSource {
    Columns(Augment),
    FlatMap(FlatMap),
}

impl IndexSource {
    /// # Errors
    /// [`ErrorKind::Unsupported`] names a transformer that is not registered; [`ErrorKind::InvalidArgument`] if it
    /// cannot feed a derived table of its own.
    pub(super) fn new(by: &IndexedBy, schema: &Schema, registry: &Registry) -> Result<Self> {
        match by {
            IndexedBy::Columns(augment) => Ok(Self::Columns(augment.clone())),
            IndexedBy::FlatMap(name, definition) => {
                let formats = Formats::new(Arc::new(schema.clone()));
                let named = |error: Error| Error::new(error.kind(), format!("derived table {name}")).caused_by(error);
                let transformer = registry.make(definition, &formats).map_err(named)?;
                let made = NamedTransformer { definition: definition.clone(), transformer };
                Ok(Self::FlatMap(FlatMap::new(name, made, schema).map_err(named)?))
            }
        }
    }

    pub(crate) fn definition(&self) -> IndexedBy {
        match self {
            Self::Columns(augment) => IndexedBy::Columns(augment.clone()),
            Self::FlatMap(map) => IndexedBy::FlatMap(map.name().to_owned(), map.definition().clone()),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Columns(augment) => augment.name(),
            Self::FlatMap(map) => map.name(),
        }
    }

    /// Makes the entries of rows whose values are at hand; `None` of a flat-map, which is shown rows as stored.
    pub(super) fn row_indexer(&self, schema: &Arc<Schema>) -> Option<RowIndexer> {
        match self {
            Self::Columns(augment) => Some(augment.row_indexer(schema)),
            Self::FlatMap(_) => None,
        }
    }

    /// The columns outside the primary key that entries are made of.
    pub(crate) fn columns_read(&self) -> &ColumnSet {
        match self {
            Self::Columns(augment) => augment.columns_read(),
            Self::FlatMap(map) => map.columns_read(),
        }
    }

    /// The columns whose groups feed the index. One of key columns alone goes with the first column of the table's
    /// others: every group has each row, but after compactions of groups by themselves not under the same sequence
    /// numbers.
    pub(crate) fn fed_by(&self, others: &ColumnSet) -> ColumnSet {
        let reads = self.columns_read();
        if reads.is_empty() { others.iter().take(1).collect() } else { reads.clone() }
    }

    /// The indexed columns, most significant first; none of a flat-map.
    pub(crate) fn on(&self) -> &[usize] {
        match self {
            Self::Columns(augment) => augment.on(),
            Self::FlatMap(_) => &[],
        }
    }

    /// The columns whose values the index's entries hold; none of a flat-map.
    pub(crate) fn cover(&self) -> Option<&ColumnSet> {
        match self {
            Self::Columns(augment) => Some(augment.cover()),
            Self::FlatMap(_) => None,
        }
    }

    /// Appends what the keys with these values in the first indexed columns start with.
    pub(crate) fn encode_prefix(&self, schema: &Schema, values: &[DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Columns(augment) => augment.encode_prefix(schema, values, out),
            Self::FlatMap(map) => map.encode_prefix(values, out),
        }
    }

    /// The indexed values of a derived key, and the key of its row.
    pub(crate) fn decode_key<'k>(&self, schema: &Schema, key: &'k [u8]) -> Result<(Vec<Datum>, &'k [u8])> {
        match self {
            Self::Columns(augment) => augment.decode_key(schema, key),
            Self::FlatMap(map) => map.decode_key(key),
        }
    }

    /// The columns outside the primary key that tell whether an entry is still one of its row.
    pub(crate) fn columns_compared(&self, schema: &Schema) -> ColumnSet {
        match self {
            Self::Columns(augment) => augment.on().iter().copied().filter(|&on| !schema.is_primary_key(on)).collect(),
            Self::FlatMap(map) => map.columns_read().clone(),
        }
    }

    /// What derives the entries from values of a group.
    pub(crate) fn deriver(&self, formats: &Formats, group: &Group) -> Result<Deriver> {
        let transformer: &dyn Transformer = match self {
            Self::Columns(augment) => augment,
            Self::FlatMap(map) => map,
        };
        Deriver::new(transformer, formats, group)
    }
}

/// Refuses a unique flat-map.
pub(super) fn refuse_unique() -> Error {
    Error::new(ErrorKind::Unsupported, "what a flat-map derives cannot be unique")
}
