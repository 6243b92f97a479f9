//! The names and tags of the row formats.

use std::fmt;
use std::str::FromStr;

use mycelium_base::{Error, Result};

/// How the values of a column group are encoded in a row SST. Tags and names are part of the formats.
///
/// ```
/// use mycelium_encoding::RowFormatKind;
///
/// assert_eq!("protobuf".parse::<RowFormatKind>()?, RowFormatKind::Protobuf);
/// assert_eq!(RowFormatKind::FlatBuffers.to_string(), "flatbuffers");
/// # Ok::<(), mycelium_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RowFormatKind {
    /// `packed`, tag 1: ours, see [`crate::packed`]
    Packed,
    /// `json`, tag 2: one object
    Json,
    /// `protobuf`, tag 3: one message of a given type
    Protobuf,
    /// `flatbuffers`, tag 4: one table of a given type
    FlatBuffers,
    /// `raw`, tag 5: the bytes of the one column
    Raw,
}

impl RowFormatKind {
    /// All of them, by tag.
    pub const ALL: [Self; 5] = [Self::Packed, Self::Json, Self::Protobuf, Self::FlatBuffers, Self::Raw];

    /// The number that stands for the format on disk.
    pub fn tag(self) -> u8 {
        match self {
            Self::Packed => 1,
            Self::Json => 2,
            Self::Protobuf => 3,
            Self::FlatBuffers => 4,
            Self::Raw => 5,
        }
    }

    /// The format of a tag.
    pub fn from_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::FlatBuffers => "flatbuffers",
            Self::Raw => "raw",
        }
    }
}

impl fmt::Display for RowFormatKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for RowFormatKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            Error::invalid(format!("`{text}` is no row format: packed, json, protobuf, flatbuffers, raw"))
        })
    }
}
