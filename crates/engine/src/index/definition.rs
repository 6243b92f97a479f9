//! What the manifest keeps of an index, and what is known of one while the database is open.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{ColumnSet, Error, ErrorKind, MAX_SEQUENCE_NUMBER, Result, SequenceNumber, TableId};
use mycelium_compaction::JobId;
use mycelium_encoding::{Datum, KeyPrefixes, PackedLayout, Schema};
use mycelium_transform::Registry;

use super::source::{IndexSource, IndexedBy};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The stored form of an index, which stands in the definition of its derived table:
///
/// ```text
/// varint  id of the table that it is an index of
/// bytes   that table's schema
/// bytes   what feeds it, as text: an augment, `by_city on 3,1 cover 2`, or a flat-map, `words by example.words 2`
/// varint  a sum: 1 unique, 2 built, 4 a flat-map, 8 to be unique (unique.rs)
/// varint  the sequence number at which it was created: what is newer is derived when it is written
/// varint  the sequence number from which on its entries need no look at their rows (read.rs)
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct IndexDefinition {
    /// The table that it is an index of.
    pub table: TableId,
    /// That table's schema.
    pub schema: Schema,
    /// What feeds it.
    pub by: IndexedBy,
    /// What changes.
    pub status: IndexStatus,
    /// What is newer is derived when it is written; what is not was there before the index.
    pub created_at: SequenceNumber,
}

/// What changes of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexStatus {
    /// Whether no two rows may have the same values in the indexed columns.
    pub unique: bool,
    /// Whether it is to be unique, but its rows have not been compared yet. Nobody has been told that it is there: it
    /// goes at the next open.
    pub is_unchecked: bool,
    /// Whether it holds what was in the table when it was created.
    pub is_built: bool,
    /// Entries with a lower sequence number say nothing without their row.
    pub trusted_from: SequenceNumber,
}

const UNIQUE: u64 = 1;
const BUILT: u64 = 2;
const FLAT_MAP: u64 = 4;
const UNCHECKED: u64 = 8;

impl IndexDefinition {
    /// The prefixes of its keys that filters have: the values of its columns that a lookup gives.
    pub(crate) fn prefixes(&self) -> Option<KeyPrefixes> {
        self.by.key_prefixes(&self.schema)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.table.0.into());
        let mut schema = Vec::new();
        self.schema.encode(&mut schema);
        put_bytes(out, &schema);
        put_bytes(out, self.by.to_text().as_bytes());
        let flags = if self.status.unique { UNIQUE } else { 0 }
            | if self.status.is_built { BUILT } else { 0 }
            | if matches!(self.by, IndexedBy::FlatMap(..)) { FLAT_MAP } else { 0 }
            | if self.status.is_unchecked { UNCHECKED } else { 0 };
        put_varint(out, flags);
        put_varint(out, self.created_at);
        put_varint(out, self.status.trusted_from);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let table = TableId(reader.length(u32::MAX as usize)? as u32);
        let schema = Schema::decode(reader.bytes()?)?;
        let malformed = |what: &str| Error::corruption(format!("the definition of an index: {what}"));
        let text = std::str::from_utf8(reader.bytes()?).map_err(|e| malformed("not UTF-8").caused_by(e))?;
        let flags = reader.varint()?;
        if flags & !(UNIQUE | BUILT | FLAT_MAP | UNCHECKED) != 0 {
            return Err(Error::new(ErrorKind::Unsupported, "an index says more than this version knows"));
        }
        let by = IndexedBy::parse(text, flags & FLAT_MAP != 0, &schema);
        let by = by.map_err(|e| malformed("what feeds it").caused_by(e))?;
        let (created_at, trusted_from) = (reader.varint()?, reader.varint()?);
        if created_at > MAX_SEQUENCE_NUMBER || trusted_from > MAX_SEQUENCE_NUMBER + 1 {
            return Err(malformed("a sequence number out of range"));
        }
        reader.finish()?;
        let status = IndexStatus {
            unique: flags & UNIQUE != 0,
            is_unchecked: flags & UNCHECKED != 0,
            is_built: flags & BUILT != 0,
            trusted_from,
        };
        Ok(Self { table, schema, by, status, created_at })
    }
}

/// An index of an open database: what does not change, and what does.
#[derive(Debug)]
pub(crate) struct IndexShared {
    /// The table that it is an index of.
    pub(crate) base: TableId,
    pub(crate) source: IndexSource,
    /// The columns that its values hold.
    pub(crate) cover: ColumnSet,
    pub(crate) schema: Arc<Schema>,
    /// How values are packed, if they hold columns.
    pub(crate) covered: Option<Arc<PackedLayout>>,
    pub(crate) created_at: SequenceNumber,
    /// As the manifest has it. Readers take the one in the table's state.
    status: Mutex<IndexStatus>,
    /// Compactions of the table that were running when the index was created: they tell it nothing of what they drop.
    pub(crate) unaware_jobs: Mutex<Vec<JobId>>,
    /// Of a thousand parts of the rows that were there, how many have been indexed.
    pub(crate) progress: AtomicU64,
    /// Why it cannot be built, if it cannot.
    pub(super) failure: Mutex<Option<Error>>,
}

impl IndexShared {
    /// # Errors
    /// As [`IndexSource::new`].
    pub(crate) fn new(definition: &IndexDefinition, registry: &Registry) -> Result<Self> {
        let schema = Arc::new(definition.schema.clone());
        let source = IndexSource::new(&definition.by, &schema, registry)?;
        let cover = source.cover().cloned().unwrap_or_default();
        let covered = (!cover.is_empty()).then(|| Arc::new(PackedLayout::of(schema.clone(), &cover)));
        Ok(Self {
            base: definition.table,
            source,
            cover,
            schema,
            covered,
            created_at: definition.created_at,
            status: Mutex::new(definition.status),
            unaware_jobs: Mutex::new(Vec::new()),
            progress: AtomicU64::new(0),
            failure: Mutex::new(None),
        })
    }

    pub(crate) fn status(&self) -> IndexStatus {
        *self.status.lock()
    }

    /// How much of what was in the table when it was created has been read for it: 0 to 1.
    pub(crate) fn fraction_built(&self) -> f64 {
        if self.status().is_built { 1.0 } else { self.progress.load(Ordering::Relaxed) as f64 / 1000.0 }
    }

    /// The manifest says so now.
    pub(crate) fn set_status(&self, status: IndexStatus) {
        *self.status.lock() = status;
    }

    pub(crate) fn definition(&self, status: IndexStatus) -> IndexDefinition {
        IndexDefinition {
            table: self.base,
            schema: (*self.schema).clone(),
            by: self.source.definition(),
            status,
            created_at: self.created_at,
        }
    }

    /// The name under which users know it.
    pub(crate) fn name(&self) -> &str {
        self.source.name()
    }

    /// Appends what the keys with these values in the first indexed columns start with: a bound, which may be longer
    /// than a key can be.
    pub(crate) fn encode_prefix(&self, values: &[mycelium_encoding::DatumRef<'_>], out: &mut Vec<u8>) -> Result<()> {
        self.source.encode_prefix(&self.schema, values, out)
    }

    /// The indexed values of a derived key, and the key of its row.
    pub(crate) fn decode_key<'k>(&self, key: &'k [u8]) -> Result<(Vec<Datum>, &'k [u8])> {
        self.source.decode_key(&self.schema, key)
    }
}

#[cfg(test)]
mod tests {
    use mycelium_transform::Augment;

    use super::*;

    /// The bytes that version 1 of a table's definition holds of an index.
    const GOLDEN: &[u8] =
        b"\x07\x12\x01\0\x03\x02id\x05\0\x01a\x0c\x01\x01b\x04\x01\x01\0\x13by_a on 1,0 cover 2\x01\xac\x02\xad\x02";

    const GOLDEN_FLAT_MAP: &[u8] =
        b"\x07\x12\x01\0\x03\x02id\x05\0\x01a\x0c\x01\x01b\x04\x01\x01\0\x1bwords by example.words of 1\x04\xac\x02\xad\x02";

    const GOLDEN_UNCHECKED: &[u8] =
        b"\x07\x12\x01\0\x03\x02id\x05\0\x01a\x0c\x01\x01b\x04\x01\x01\0\x13by_a on 1,0 cover 2\x08\xac\x02\xad\x02";

    fn definition() -> IndexDefinition {
        let schema = Schema::parse("id int64 not null, a utf8, b int32, primary key (id)").unwrap();
        let augment = Augment::parse("by_a on 1,0 cover 2", &schema).unwrap();
        let status = IndexStatus { unique: true, is_unchecked: false, is_built: false, trusted_from: 301 };
        IndexDefinition { table: TableId(7), schema, by: IndexedBy::Columns(augment), status, created_at: 300 }
    }

    #[test]
    fn definitions_are_written_and_read_as_ever() {
        let mut bytes = Vec::new();
        definition().encode(&mut bytes);
        assert_eq!(bytes, GOLDEN, "{bytes:?}");
        assert_eq!(IndexDefinition::decode(GOLDEN).unwrap(), definition());
        let built = IndexStatus { unique: false, is_unchecked: false, is_built: true, trusted_from: 0 };
        let other = IndexDefinition { status: built, ..definition() };
        bytes.clear();
        other.encode(&mut bytes);
        assert_eq!(IndexDefinition::decode(&bytes).unwrap(), other);
        for len in 0..bytes.len() {
            assert!(IndexDefinition::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        let status = IndexStatus { unique: false, is_unchecked: true, ..definition().status };
        let unchecked = IndexDefinition { status, ..definition() };
        bytes.clear();
        unchecked.encode(&mut bytes);
        assert_eq!(bytes, GOLDEN_UNCHECKED, "{bytes:?}");
        assert_eq!(IndexDefinition::decode(&bytes).unwrap(), unchecked);
        let by = IndexedBy::FlatMap("words".into(), "example.words of 1".parse().unwrap());
        let flat = IndexDefinition { by, status: IndexStatus { unique: false, ..definition().status }, ..definition() };
        bytes.clear();
        flat.encode(&mut bytes);
        assert_eq!(bytes, GOLDEN_FLAT_MAP, "{bytes:?}");
        assert_eq!(IndexDefinition::decode(&bytes).unwrap(), flat);
    }
}
