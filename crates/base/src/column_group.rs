//! Column groups: sets of columns stored together.
//!
//! Byte form (integers are varints unless said otherwise):
//!
//! ```text
//! u8    format: 0 columnar, else the tag of a row format; bit 7 if columns are lacking, bit 6 if some were dropped
//! n     number of columns
//! n x   the column's distance from the one before (the first: its position)
//! n     number of columns that are lacking, if bit 7
//! n x   the same of them
//! n     number of columns that were dropped, if bit 6
//! n x   the same of them
//! ```
//!
//! A reader that does not know bits 7 and 6 takes them for a format that it does not know, and refuses it.
//!
//! Text form: `0-3/packed`, or `0-3/packed/lacking:3/dropped:4-5`.

use std::fmt;
use std::str::FromStr;

use crate::coding::{Reader, put_varint};
use crate::{ColumnSet, Error, ErrorKind, Result, RowFormatKind};

const COLUMNAR: u8 = 0;
const LACKING: u8 = 1 << 7;
const DROPPED: u8 = 1 << 6;

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
    /// Columns that the group's files have besides, and the table has no more: nobody reads them, and they are not
    /// among the group's columns. None of a group that is to be written.
    pub dropped: ColumnSet,
}

impl Group {
    /// A group whose files have all of these columns.
    pub fn new(columns: ColumnSet, format: GroupFormat) -> Self {
        Self { columns, format, lacking: ColumnSet::new(), dropped: ColumnSet::new() }
    }

    /// Those of its columns that its files have values of.
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

    /// What its files hold once the table has a column no more.
    #[must_use]
    pub fn with_dropped(&self, column: usize) -> Self {
        let gone = ColumnSet::from_iter([column]);
        let mut group = self.clone();
        if self.held().contains(column) {
            group.dropped.insert(column);
        }
        group.columns.remove_all(&gone);
        group.lacking.remove_all(&gone);
        group
    }

    /// The group as its files name it: with the columns that they were written with.
    #[must_use]
    pub fn as_written(&self) -> Self {
        Self::new(self.held().union(&self.dropped), self.format)
    }

    /// Whether its files have its columns, and no others.
    pub fn is_as_written(&self) -> bool {
        self.lacking.is_empty() && self.dropped.is_empty()
    }

    /// Appends the byte form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let format = match self.format {
            GroupFormat::Columnar => COLUMNAR,
            GroupFormat::Row(kind) => kind.tag(),
        };
        let lacking = if self.lacking.is_empty() { 0 } else { LACKING };
        let dropped = if self.dropped.is_empty() { 0 } else { DROPPED };
        out.push(format | lacking | dropped);
        encode_columns(&self.columns, out);
        for columns in [&self.lacking, &self.dropped].into_iter().filter(|columns| !columns.is_empty()) {
            encode_columns(columns, out);
        }
    }

    /// Reads the byte form. `ErrorKind::Unsupported` for a format this version does not know.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.position() as u64;
        let first = reader.u8()?;
        let format = match first & !(LACKING | DROPPED) {
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
        if first & DROPPED != 0 {
            let at = reader.position() as u64;
            group.dropped = decode_columns(reader)?;
            if group.dropped.is_empty() || group.dropped.overlaps(&group.columns) {
                return Err(Error::corruption("a group has columns that were dropped").at(at));
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
        if !self.lacking.is_empty() {
            write!(f, "/lacking:{}", self.lacking)?;
        }
        if self.dropped.is_empty() { Ok(()) } else { write!(f, "/dropped:{}", self.dropped) }
    }
}

impl FromStr for Group {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            Error::invalid("malformed column group").expected("a group such as 0-3/packed", format_args!("`{text}`"))
        };
        let (columns, format) = text.split_once('/').ok_or_else(malformed)?;
        let mut parts = format.split('/');
        let mut group = Self::new(columns.parse()?, parts.next().unwrap_or_default().parse()?);
        for part in parts {
            match part.split_once(':') {
                Some(("lacking", columns)) => group.lacking = columns.parse()?,
                Some(("dropped", columns)) => group.dropped = columns.parse()?,
                _ => return Err(malformed()),
            }
        }
        let is_sound = group.lacking.is_subset(&group.columns) && !group.dropped.overlaps(&group.columns);
        if is_sound { Ok(group) } else { Err(malformed()) }
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
            "1/packed/dropped:2",
            "0-3/columnar/lacking:3/dropped:4,7",
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
            &[0x40, 1, 1],
            &[0x40, 1, 1, 0],
            &[0x40, 1, 1, 1, 1],
        ] {
            assert!(Group::decode(&mut Reader::new(bytes)).is_err(), "{bytes:?}");
        }
        for text in ["0-3/packed/lacking:4", "0-3/packed/lacking:", "0-3/packed/3", "0-3/packed/dropped:3"] {
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

    #[test]
    fn a_column_that_was_dropped_is_in_the_files_alone() {
        let group: Group = "1,3/columnar".parse().unwrap();
        let narrower = group.with_dropped(3);
        assert_eq!(narrower.to_string(), "1/columnar/dropped:3");
        assert_eq!((narrower.as_written() == group, narrower.is_as_written()), (true, false));
        assert_eq!(group.with_dropped(2), group);
        // The files never had it.
        assert_eq!(group.with_lacking(4).with_dropped(4), group);
        let both = narrower.with_lacking(4);
        assert_eq!(
            (both.to_string(), both.held().to_string()),
            ("1,4/columnar/lacking:4/dropped:3".into(), "1".into())
        );
        assert_eq!(both.as_written(), group);
    }
}
