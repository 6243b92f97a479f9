//! The names and tags of the row formats. What they are made of is the business of the encoding crate.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// How the values of a column group are encoded in a row SST. Names and tags are part of the formats.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum RowFormatKind {
    /// `packed`, tag 1: our own, columns at offsets known from the schema.
    #[default]
    Packed,
    /// `json`, tag 2: one object.
    Json,
    /// `protobuf`, tag 3: one message of a descriptor set given at run time.
    Protobuf,
    /// `flatbuffers`, tag 4: one table of a schema given at run time.
    FlatBuffers,
    /// `raw`, tag 5: bytes that mean nothing to us.
    Raw,
}

impl RowFormatKind {
    /// All of them, in the order of their tags.
    pub const ALL: [Self; 5] = [Self::Packed, Self::Json, Self::Protobuf, Self::FlatBuffers, Self::Raw];

    /// The number that stands for it in files.
    pub const fn tag(self) -> u8 {
        match self {
            Self::Packed => 1,
            Self::Json => 2,
            Self::Protobuf => 3,
            Self::FlatBuffers => 4,
            Self::Raw => 5,
        }
    }

    /// The format with this tag.
    pub fn from_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }

    /// Whether it takes a definition, given at run time, to say what its rows are.
    pub const fn takes_definition(self) -> bool {
        matches!(self, Self::Protobuf | Self::FlatBuffers)
    }

    /// The name, as in layouts.
    pub const fn name(self) -> &'static str {
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
            Error::invalid(format!("no row format is called `{text}`"))
                .expected("packed, json, protobuf, flatbuffers or raw", text)
        })
    }
}
