//! Column groups: sets of columns stored together.
//!
//! Byte form (integers are varints unless said otherwise):
//!
//! ```text
//! u8    format: 0 columnar, else the tag of a row format; bit 7 if columns are lacking
//! n     number of columns
//! n x   the column's distance from the one before (the first: its position)
//! n     number of columns that are lacking, if bit 7
//! n x   the same of them
//! ```
//!
//! A reader that does not know bit 7 takes it for a format that it does not know, and refuses it.
//!
//! Text form: `0-3/packed`, or `0-3/packed/lacking:3`.

use std::fmt;
use std::str::FromStr;

use crate::coding::{Reader, put_varint};
use crate::{ColumnSet, Error, ErrorKind, Result, RowFormatKind};

const COLUMNAR: u8 = 0;
const LACKING: u8 = 1 << 7;

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
    /// Those of the columns that the table did not have yet when the group's files were written: every whole row has
    /// their defaults, or null, and no patch has them. None of a group that is to be written.
    pub lacking: ColumnSet,
}

impl Group {
    /// A group whose files have all of these columns.
    pub fn new(columns: ColumnSet, format: GroupFormat) -> Self {
        Self { columns, format, lacking: ColumnSet::new() }
    }

    /// The columns that its files have values of.
    pub fn held(&self) -> ColumnSet {
        self.columns.difference(&self.lacking)
    }

    /// What its files hold once the table has another column.
    #[must_use]
    pub fn with_lacking(&self, column: usize) -> Self {
        let mut group = self.clone();
        group.columns.insert(column);
        group.lacking.insert(column);
        group
    }

    /// Appends the byte form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let format = match self.format {
            GroupFormat::Columnar => COLUMNAR,
            GroupFormat::Row(kind) => kind.tag(),
        };
        out.push(format | if self.lacking.is_empty() { 0 } else { LACKING });
        encode_columns(&self.columns, out);
        if !self.lacking.is_empty() {
            encode_columns(&self.lacking, out);
        }
    }

    /// Reads the byte form. `ErrorKind::Unsupported` for a format this version does not know.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.position() as u64;
        let first = reader.u8()?;
        let format = match first & !LACKING {
            COLUMNAR => GroupFormat::Columnar,
            tag => GroupFormat::Row(RowFormatKind::from_tag(tag).ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, format!("a row format this version does not know (tag {tag})"))
                    .at(at)
            })?),
        };
        let mut group = Self::new(decode_columns(reader)?, format);
        if first & LACKING != 0 {
            let at = reader.position() as u64;
            group.lacking = decode_columns(reader)?;
            if group.lacking.is_empty() || !group.lacking.is_subset(&group.columns) {
                return Err(Error::corruption("a group lacks columns that it does not have").at(at));
            }
        }
        Ok(group)
    }
}

fn encode_columns(columns: &ColumnSet, out: &mut Vec<u8>) {
    put_varint(out, columns.len() as u64);
    let mut before = 0;
    for column in columns.iter() {
        put_varint(out, (column - before) as u64);
        before = column;
    }
}

fn decode_columns(reader: &mut Reader<'_>) -> Result<ColumnSet> {
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
    Ok(columns)
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
        write!(f, "{}/{}", self.columns, self.format)?;
        if self.lacking.is_empty() { Ok(()) } else { write!(f, "/lacking:{}", self.lacking) }
    }
}

impl FromStr for Group {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            Error::invalid("malformed column group").expected("a group such as 0-3/packed", format_args!("`{text}`"))
        };
        let (columns, format) = text.split_once('/').ok_or_else(malformed)?;
        let (format, lacking) = match format.split_once("/lacking:") {
            Some((format, lacking)) => (format, lacking.parse()?),
            None => (format, ColumnSet::new()),
        };
        let group = Self { columns: columns.parse()?, format: format.parse()?, lacking };
        if group.lacking.is_subset(&group.columns) { Ok(group) } else { Err(malformed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_text_are_read_back() {
        for text in [
            "-/raw",
            "0/packed",
            "0-3,7/columnar",
            "63-64,65535/protobuf",
            "0-3,7/columnar/lacking:3,7",
            "1/packed/lacking:1",
        ] {
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
        for bytes in [
            &[][..],
            &[1],
            &[9, 0],
            &[1, 2, 3, 0],
            &[1, 1, 0xff, 0xff, 0xff, 0x0f],
            &[0, 2, 1],
            &[0x80, 1, 1],
            &[0x80, 1, 1, 0],
            &[0x80, 1, 1, 1, 2],
        ] {
            assert!(Group::decode(&mut Reader::new(bytes)).is_err(), "{bytes:?}");
        }
        for text in ["0-3/packed/lacking:4", "0-3/packed/lacking:", "0-3/packed/3"] {
            assert!(text.parse::<Group>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_column_added_later_is_of_the_group_and_not_held() {
        let group: Group = "1,3/columnar".parse().unwrap();
        let later = group.with_lacking(4).with_lacking(5);
        assert_eq!(later.to_string(), "1,3-5/columnar/lacking:4-5");
        assert_eq!((later.held(), later == group), (group.columns, false));
    }
}
