//! The directory of a columnar file: what its columns are, and where the codings of their texts and their zone maps
//! lie.
//!
//! ```text
//! varint, bytes    the table's schema when the file was written (see `Schema::encode`)
//! per column of the file's group, ascending:
//!   varint, varint   coding of its texts: offset and framed length (both 0: none)
//!   varint, varint   zone map: offset and framed length
//! ```

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_base::{ColumnSet, Error, Result};
use mycelium_encoding::{ColumnType, Schema};

use crate::footer::BlockHandle;

/// One column of a columnar file.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnPart {
    /// Its position in the schema.
    pub column: usize,
    /// Its type.
    pub kind: ColumnType,
    /// The dictionary or symbol table of its texts, if there is one; else of length 0.
    pub coding: BlockHandle,
    /// Its zone map.
    pub zones: BlockHandle,
}

/// The columns of a columnar file.
#[derive(Clone, Debug)]
pub struct Directory {
    /// The table's schema.
    pub schema: Arc<Schema>,
    /// The file's columns, ascending.
    pub parts: Vec<ColumnPart>,
}

impl Directory {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let (mut schema, mut out) = (Vec::new(), Vec::new());
        self.schema.encode(&mut schema);
        put_bytes(&mut out, &schema);
        for part in &self.parts {
            for handle in [part.coding, part.zones] {
                put_varint(&mut out, handle.offset);
                put_varint(&mut out, handle.len);
            }
        }
        out
    }

    /// Parses the payload, of a file with these columns.
    ///
    /// # Errors
    /// `ErrorKind::Corruption` where it is malformed.
    pub fn parse(payload: &[u8], columns: &ColumnSet) -> Result<Self> {
        let mut reader = Reader::new(payload);
        let schema = Arc::new(Schema::decode(reader.bytes()?)?);
        let mut parts = Vec::with_capacity(columns.len());
        for column in columns.iter() {
            let mut handle = || Ok::<_, Error>(BlockHandle { offset: reader.varint()?, len: reader.varint()? });
            let (coding, zones) = (handle()?, handle()?);
            if column >= schema.columns().len() || schema.is_primary_key(column) {
                return Err(Error::corruption(format!("a group with column {column}, which its schema lacks")));
            }
            let kind = schema.columns()[column].ty.clone();
            parts.push(ColumnPart { column, kind, coding, zones });
        }
        reader.finish()?;
        Ok(Self { schema, parts })
    }
}
