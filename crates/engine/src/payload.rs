//! Rows as their users write them: JSON, Protobuf, FlatBuffers or raw bytes, in and out.
//!
//! 1. A payload is checked to its last byte before anything of it reaches the log; what is wrong is said with its byte.
//! 2. What is stored is the payload itself behind a small frame: reading it back gives the same bytes as long as no
//!    compaction under a layout has taken the row apart or converted it.
//! 3. A row is handed out in any format that its table has or that needs no definition, whatever it is stored in, and
//!    beside it what the format cannot say: null, where it would look like what is empty, or 0.
//!
//! The rules for unknown and duplicate fields, numbers and defaults are those of the format
//! ([`mycelium_encoding::row_format`]).

use mycelium_base::{ColumnSet, Error, ReadCounters, Result, RowFormatKind, SequenceNumber};
use mycelium_encoding::row_format::{Covers, RowScratch};
use mycelium_encoding::{DatumRef, FragmentFormat, key};

use crate::batch::{RowBuffers, WriteBatch};
use crate::options::Durability;
use crate::read_options::ReadOptions;
use crate::table::Table;

/// A row as its users write it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RowPayload {
    /// What stands for the row in its format.
    pub bytes: Vec<u8>,
    /// The positions of the columns that are null, whether or not the format says so itself. JSON and packed rows do;
    /// raw bytes, and fields of Protobuf and FlatBuffers that are left out where they have their default, look the same
    /// for a null as for what is empty, or 0.
    pub nulls: ColumnSet,
}

impl WriteBatch {
    /// Adds a whole row as a payload of the table's row format. The key's columns are given beside it and are not in
    /// it. A column that the payload leaves out has its field's default if the format leaves defaults out, else it is
    /// null.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::InvalidArgument`] with the byte of the payload where it is wrong; the batch is as
    /// before.
    pub fn put_payload(&mut self, table: &Table, key_values: &[DatumRef<'_>], payload: &[u8]) -> Result<&mut Self> {
        self.put_payload_with_nulls(table, key_values, payload, &ColumnSet::new())
    }

    /// As [`WriteBatch::put_payload`], of a row of which the columns at the positions `nulls` are null
    /// ([`RowPayload::nulls`]).
    ///
    /// # Errors
    /// As that; also if the payload has a value for one of them, or it may not be null.
    pub fn put_payload_with_nulls(
        &mut self,
        table: &Table,
        key_values: &[DatumRef<'_>],
        payload: &[u8],
        nulls: &ColumnSet,
    ) -> Result<&mut Self> {
        self.put_row_payload(table, (key_values, payload), |buffers| {
            table.encode_payload(key_values, (payload, nulls), Covers::Row, buffers)
        })
    }

    /// Adds a change of the columns that the payload has. Protobuf without presence, and FlatBuffers, leave out a field
    /// that is set to its default: such a column is not changed. [`WriteBatch::patch_payload_columns`] changes it.
    ///
    /// # Errors
    /// As [`WriteBatch::put_payload`]; also for a table of raw rows, of which no part can be changed.
    pub fn patch_payload(&mut self, table: &Table, key_values: &[DatumRef<'_>], payload: &[u8]) -> Result<&mut Self> {
        let said = (payload, &ColumnSet::new());
        self.patch_with(table, |buffers| table.encode_payload(key_values, said, Covers::Said, buffers))
    }

    /// Adds a change of exactly these columns, by name. One that the payload leaves out gets what that means in a whole
    /// row: its field's default, or null.
    ///
    /// # Errors
    /// As [`WriteBatch::patch_payload`]; also for a column that is not there or in the key, and for a payload that has
    /// a value of another column.
    pub fn patch_payload_columns(
        &mut self,
        table: &Table,
        key_values: &[DatumRef<'_>],
        columns: &[&str],
        payload: &[u8],
    ) -> Result<&mut Self> {
        let schema = table.shared.typed_formats()?.schema();
        let mut covered = ColumnSet::new();
        for name in columns {
            let column = schema.index_of(name).filter(|&column| !schema.is_primary_key(column));
            covered.insert(column.ok_or_else(|| Error::invalid(format!("there is no column {name} outside the key")))?);
        }
        let (said, covers) = ((payload, &ColumnSet::new()), Covers::Columns(&covered));
        self.patch_with(table, |buffers| table.encode_payload(key_values, said, covers, buffers))
    }
}

impl Table {
    /// Writes a whole row, given as a payload of the table's row format. Errors as [`WriteBatch::put_payload`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mycelium_engine::{Database, Durability, Layout, Options, ReadOptions, RowFormatDefinition, TableOptions};
    /// use mycelium_base::{ColumnSet, RowFormatKind};
    /// use mycelium_encoding::{DatumRef, Schema};
    /// # let options = Options { disk: Arc::new(mycelium_vfs::MemoryDisk::new()), ..Options::default() };
    /// # let database = Database::open("example", options)?;
    /// let schema = Schema::parse("id int64 not null, name utf8, score float64, primary key (id)")?;
    /// let layout = Layout::parse("L0 tiered: * json\nL1 leveled: 1 packed | 2 packed", &ColumnSet::from_iter([1, 2]))?;
    /// let options = TableOptions {
    ///     row_format: RowFormatDefinition { kind: RowFormatKind::Json, ..RowFormatDefinition::default() },
    ///     layout: Some(layout),
    ///     ..TableOptions::default()
    /// };
    /// let players = database.create_typed_table("players", schema, options)?;
    /// let key = [DatumRef::Int64(7)];
    /// players.put_payload(&key, br#"{"name": "Ada", "score": 0.5}"#, Durability::Os)?;
    /// database.compact(&players)?;
    /// let row = players.get_payload(&key, RowFormatKind::Json, &ReadOptions::default())?.unwrap();
    /// assert_eq!(row.bytes, br#"{"name":"Ada","score":0.5}"#);
    ///
    /// let refused = players.put_payload(&key, br#"{"name": 7}"#, Durability::Os).unwrap_err();
    /// assert_eq!(refused.offset(), Some(9));
    /// # Ok::<(), mycelium_engine::Error>(())
    /// ```
    pub fn put_payload(
        &self,
        key_values: &[DatumRef<'_>],
        payload: &[u8],
        durability: Durability,
    ) -> Result<SequenceNumber> {
        self.write_with(durability, |batch| batch.put_payload(self, key_values, payload))
    }

    /// The row with these primary key values as a payload of a format: the table's own, or one that needs no
    /// definition.
    ///
    /// # Errors
    /// [`mycelium_base::ErrorKind::Unsupported`] for another format.
    pub fn get_payload(
        &self,
        key_values: &[DatumRef<'_>],
        format: RowFormatKind,
        options: &ReadOptions,
    ) -> Result<Option<RowPayload>> {
        let key = self.row_key(key_values)?;
        let formats = self.shared.typed_formats()?;
        let wanted = FragmentFormat::new(formats.whole.columns().clone(), formats.rows_of_kind(format)?);
        let mut scratch = RowScratch::default();
        let value = if format == formats.whole.kind() {
            self.get_with(&key, options, &mut ReadCounters::default())?
        } else {
            let row = self.database.get_packed(&self.shared, &key, None, options, &mut ReadCounters::default())?;
            let Some((_, packed)) = row else { return Ok(None) };
            let mut value = Vec::new();
            formats.packed.reshape(&wanted)?.apply(&packed, &mut scratch, &mut value)?;
            Some(value)
        };
        let Some(value) = value else { return Ok(None) };
        let mut bytes = Vec::with_capacity(value.len());
        let presence = wanted.rows().to_user(&value, &mut scratch, &mut bytes)?;
        Ok(Some(RowPayload { bytes, nulls: presence.nulls }))
    }

    /// The key and stored value of a payload, and of the columns that are null beside it.
    fn encode_payload(
        &self,
        key_values: &[DatumRef<'_>],
        (payload, nulls): (&[u8], &ColumnSet),
        covers: Covers<'_>,
        buffers: &mut RowBuffers,
    ) -> Result<()> {
        let formats = self.shared.typed_formats()?;
        let RowBuffers { key, value, changed, scratch } = buffers;
        key::encode_key(formats.schema(), key_values, key)?;
        formats.rows().store(payload, covers, nulls, scratch, value)?;
        if !matches!(covers, Covers::Row) {
            for column in formats.rows().stored_columns(payload, scratch).present() {
                changed.insert(column);
            }
        }
        Ok(())
    }
}
