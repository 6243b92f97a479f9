//! The byte form of a row format, for the manifest.
//!
//! ```text
//! u8      version, 1
//! u8      format: 1 packed, 2 json, 3 protobuf, 4 flatbuffers, 5 raw
//! bytes   name of the message or table; empty for the other formats
//! bytes   descriptor set or binary schema; empty for the other formats
//! ```
//!
//! `bytes` is a varint length and that many bytes. The table's schema stands elsewhere.

use std::sync::Arc;

use mycelium_base::coding::{Reader, put_bytes};
use mycelium_base::{Error, ErrorKind, Result};

use super::{RowFormat, RowFormatKind};
use crate::Schema;

const VERSION: u8 = 1;

impl RowFormat {
    /// Appends the byte form of the format: its kind and the definition it was given. The schema is not in it.
    pub fn encode_definition(&self, out: &mut Vec<u8>) {
        let (definition, root) = self.definition();
        out.extend_from_slice(&[VERSION, self.kind().tag()]);
        put_bytes(out, root.as_bytes());
        put_bytes(out, definition);
    }

    /// The format of a table from its schema and what [`RowFormat::encode_definition`] wrote; all of `bytes` must be used.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a newer version or an unknown format, [`ErrorKind::Corruption`] for malformed bytes,
    /// else as [`RowFormat::new`].
    pub fn decode_definition(schema: Arc<Schema>, bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes);
        let version = input.u8()?;
        if version != VERSION {
            return Err(Error::new(ErrorKind::Unsupported, format!("row format version {version} is unknown")).at(0));
        }
        let tag = input.u8()?;
        let kind = RowFormatKind::from_tag(tag)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("row format {tag} is unknown")).at(1))?;
        let root = input.str()?;
        let definition = input.bytes()?;
        input.finish()?;
        Self::new(kind, schema, definition, root)
    }
}
