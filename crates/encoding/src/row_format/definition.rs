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

/// Which row format a table has, and what it takes to make it beside the schema.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RowFormatDefinition {
    /// Which format. Default: packed.
    pub kind: RowFormatKind,
    /// For Protobuf an encoded `FileDescriptorSet` with all imports, for FlatBuffers the binary schema; else empty.
    pub definition: Vec<u8>,
    /// For these two the full name of the message or table; else empty.
    pub root: String,
}

impl RowFormatDefinition {
    /// Appends the byte form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        encode(self.kind, &self.definition, &self.root, out);
    }

    /// Reads the byte form; all of `bytes` must be used. What it defines is not checked.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a newer version or an unknown format, [`ErrorKind::Corruption`] for malformed
    /// bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes);
        let version = input.u8()?;
        if version != VERSION {
            return Err(Error::new(ErrorKind::Unsupported, format!("row format version {version} is unknown")).at(0));
        }
        let tag = input.u8()?;
        let kind = RowFormatKind::from_tag(tag)
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("row format {tag} is unknown")).at(1))?;
        let root = input.str()?.to_owned();
        let definition = input.bytes()?.to_vec();
        input.finish()?;
        Ok(Self { kind, definition, root })
    }
}

fn encode(kind: RowFormatKind, definition: &[u8], root: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&[VERSION, kind.tag()]);
    put_bytes(out, root.as_bytes());
    put_bytes(out, definition);
}

impl RowFormat {
    /// Appends the byte form of the format: its kind and the definition it was given. The schema is not in it.
    pub fn encode_definition(&self, out: &mut Vec<u8>) {
        let (definition, root) = self.definition();
        encode(self.kind(), definition, root, out);
    }

    /// The format of a table from its schema and what [`RowFormat::encode_definition`] wrote; all of `bytes` must be
    /// used.
    ///
    /// # Errors
    /// As [`RowFormatDefinition::decode`] and [`RowFormat::new`].
    pub fn decode_definition(schema: Arc<Schema>, bytes: &[u8]) -> Result<Self> {
        let decoded = RowFormatDefinition::decode(bytes)?;
        Self::new(decoded.kind, schema, &decoded.definition, &decoded.root)
    }
}
