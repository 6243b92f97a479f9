//! Column groups: sets of columns stored together.
//!
//! Byte form (integers are varints unless said otherwise):
//!
//! ```text
//! u8    format: 0 columnar, else the tag of a row format
//! n     number of columns
//! n x   the column's distance from the one before (the first: its position)
//! ```
//!
//! Text form: `0-3/packed`.

use std::fmt;
use std::str::FromStr;

use crate::coding::{Reader, put_varint};
use crate::{ColumnSet, Error, ErrorKind, Result, RowFormatKind};

const COLUMNAR: u8 = 0;

/// How a group's data lies in its files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GroupFormat {
    /// Row by row.
    Row(RowFormatKind),
    /// Column by column within blocks.
    Columnar,
}

impl Default for GroupFormat {
    fn default() -> Self {
        Self::Row(RowFormatKind::Packed)
    }
}

/// A set of columns stored together: the unit of I/O.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Group {
    /// Positions in the schema.
    pub columns: ColumnSet,
    /// How their values lie in files.
    pub format: GroupFormat,
}

impl Group {
    /// Appends the byte form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self.format {
            GroupFormat::Columnar => COLUMNAR,
            GroupFormat::Row(kind) => kind.tag(),
        });
        put_varint(out, self.columns.len() as u64);
        let mut before = 0;
        for column in self.columns.iter() {
            put_varint(out, (column - before) as u64);
            before = column;
        }
    }

    /// Reads the byte form. `ErrorKind::Unsupported` for a format this version does not know.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.position() as u64;
        let format = match reader.u8()? {
            COLUMNAR => GroupFormat::Columnar,
            tag => GroupFormat::Row(RowFormatKind::from_tag(tag).ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, format!("a row format this version does not know (tag {tag})"))
                    .at(at)
            })?),
        };
        let mut columns = ColumnSet::new();
        let mut column = 0;
        for i in 0..reader.length(ColumnSet::MAX_POSITION + 1)? {
            let at = reader.position() as u64;
            let distance = reader.length(ColumnSet::MAX_POSITION)?;
            column += distance;
            if (i > 0 && distance == 0) || column > ColumnSet::MAX_POSITION {
                return Err(Error::corruption("columns of a group are not ascending or out of range").at(at));
            }
            columns.insert(column);
        }
        Ok(Self { columns, format })
    }
}

impl fmt::Display for GroupFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(kind) => kind.fmt(f),
            Self::Columnar => f.write_str("columnar"),
        }
    }
}

impl FromStr for GroupFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "columnar" { Ok(Self::Columnar) } else { text.parse().map(Self::Row) }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.columns, self.format)
    }
}

impl FromStr for Group {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (columns, format) = text.split_once('/').ok_or_else(|| {
            Error::invalid("malformed column group").expected("a group such as 0-3/packed", format_args!("`{text}`"))
        })?;
        Ok(Self { columns: columns.parse()?, format: format.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_text_are_read_back() {
        for text in ["-/raw", "0/packed", "0-3,7/columnar", "63-64,65535/protobuf"] {
            let group: Group = text.parse().unwrap();
            assert_eq!(group.to_string(), text);
            let mut bytes = Vec::new();
            group.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(Group::decode(&mut reader).unwrap(), group);
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for bytes in [&[][..], &[1], &[9, 0], &[1, 2, 3, 0], &[1, 1, 0xff, 0xff, 0xff, 0x0f], &[0, 2, 1]] {
            assert!(Group::decode(&mut Reader::new(bytes)).is_err(), "{bytes:?}");
        }
    }
}
