//! What is compared: tables with and without transformers, and a rival.

use std::sync::Arc;

use mycelium_base::GroupFormat;
use mycelium_encoding::RowFormat;
use mycelium_engine::Layout;
use mycelium_transform::{Formats, LinkOptions, Registry, TransformerSet};

use super::records::SourceFormat;
use crate::store::Result;

/// A row of the paper's table 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Variant {
    /// Rows as they came at every level.
    NoTransform,
    /// What the paper's identity transformer does to a tree: rows stay as they came, but the level that they enter from
    /// level 0 is tiered. Our own identity links to no transformation at all.
    Identity,
    /// 32 columns into groups of four: 1, 2, 4, 8 groups.
    Split,
    /// JSON to packed.
    Convert,
    /// The same groups; the last of them, which end the split, packed instead of Protobuf.
    SplitConvert,
    /// A secondary index on one number; rows as they came at every level.
    Augment,
}

impl Variant {
    /// Those of a source format.
    fn of(source: SourceFormat) -> &'static [Self] {
        match source {
            SourceFormat::Protobuf => {
                &[Self::NoTransform, Self::Identity, Self::Split, Self::SplitConvert, Self::Augment]
            }
            SourceFormat::Json => &[Self::NoTransform, Self::Convert],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NoTransform => PLAIN,
            Self::Identity => IDENTITY,
            Self::Split => "split",
            Self::Convert => "convert",
            Self::SplitConvert => "split-convert",
            Self::Augment => AUGMENT,
        }
    }

    /// The name of a rival that does the same when it writes; `None` if there is nothing to do.
    fn at_write(self) -> Option<&'static str> {
        match self {
            Self::NoTransform | Self::Identity => None,
            Self::Split => Some("rocksdb-split"),
            Self::Convert => Some("rocksdb-convert"),
            Self::SplitConvert => Some("rocksdb-split-convert"),
            Self::Augment => Some(RIVAL_INDEX),
        }
    }

    fn transformers(self) -> &'static str {
        match self {
            Self::NoTransform | Self::Identity | Self::Augment => "",
            Self::Split => "split by 2 down to 4",
            Self::Convert => "convert json to packed",
            Self::SplitConvert => "split by 2 down to 4\nconvert protobuf to packed",
        }
    }

    /// The layout that the transformers link to, for a table of these rows; `None` is the table's own.
    pub(super) fn layout(self, rows: &RowFormat) -> Result<Option<Layout>> {
        let formats = Arc::new(Formats::new(rows.schema().clone()).with(rows.clone())?);
        let source = GroupFormat::Row(rows.kind());
        match self {
            Self::NoTransform | Self::Augment => Ok(None),
            Self::Identity => {
                let text = format!("L0-1 tiered: * {source}\nL2 leveled: * {source}");
                Ok(Some(Layout::parse(&text, formats.columns())?))
            }
            Self::Split | Self::Convert | Self::SplitConvert => {
                let set = TransformerSet::parse(self.transformers())?;
                let linked = Registry::built_in().link(&set, &formats, source, &LinkOptions::default())?;
                Ok(Some(linked.layout().clone()))
            }
        }
    }
}

/// The name of the table without transformers in reports.
pub(super) const PLAIN: &str = "no-transform";

/// The name of the table with the paper's tree of the identity in reports.
pub(super) const IDENTITY: &str = "identity";

/// The name of the table with a secondary index in reports.
pub(super) const AUGMENT: &str = "augment";

/// The name of the rival in reports.
pub(super) const RIVAL: &str = "rocksdb";

/// The name of the rival whose client keeps an index in reports.
pub(super) const RIVAL_INDEX: &str = "rocksdb-augment";

/// One that takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contender {
    /// A table of ours.
    Ours(Variant),
    /// A store of bytes that knows no rows.
    Rival,
    /// The same, whose client does the work of a transformation when it writes.
    RivalAtWrite(Variant),
}

impl Contender {
    /// Those of a source format.
    pub(super) fn all(source: SourceFormat, with_rival: bool) -> Vec<Self> {
        let variants = Variant::of(source);
        let ours = variants.iter().copied().map(Self::Ours);
        let at_write = variants.iter().copied().filter(|variant| variant.at_write().is_some()).map(Self::RivalAtWrite);
        let rivals = std::iter::once(Self::Rival).chain(at_write).filter(|_| with_rival);
        ours.chain(rivals).collect()
    }

    /// The word in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours(variant) => variant.name(),
            Self::Rival => RIVAL,
            Self::RivalAtWrite(variant) => variant.at_write().unwrap_or(RIVAL),
        }
    }

    /// Whether its reads are measured: who works when it writes is measured for that, but for the index, which is read.
    pub(super) fn is_read(self) -> bool {
        !matches!(self, Self::RivalAtWrite(variant) if variant != Variant::Augment)
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::Records;
    use super::*;

    #[test]
    fn layouts_are_those_of_the_paper() {
        let layout = |variant: Variant, source| {
            let records = Records::new(source).expect("records");
            variant.layout(records.rows()).expect("layout").map(|layout| {
                let groups: Vec<usize> = layout.levels().iter().map(|level| level.groups.len()).collect();
                groups
            })
        };
        assert_eq!(layout(Variant::NoTransform, SourceFormat::Json), None);
        assert_eq!(layout(Variant::Identity, SourceFormat::Protobuf), Some(vec![1, 1, 1]));
        assert_eq!(layout(Variant::Split, SourceFormat::Protobuf), Some(vec![1, 2, 4, 8, 8]));
        assert_eq!(layout(Variant::Convert, SourceFormat::Json), Some(vec![1, 1, 1]));
        assert_eq!(layout(Variant::SplitConvert, SourceFormat::Protobuf), Some(vec![1, 2, 4, 8, 8]));
    }
}
