//! Tables and sets of transformers drawn from a seed, and what the tests do with them.

use std::sync::Arc;

use mycelium_base::{ColumnSet, EntryRef, Group, GroupFormat, Operation, Result, RowFormatKind, Trailer};
use mycelium_encoding::{RowFormat, Schema};
use mycelium_transform::{Formats, LinkOptions, Linked, Progress, Registry, TransformerSet};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};

use crate::drawing::{self, Cells};

/// Room for any set, and no warnings.
pub(crate) const ROOMY: LinkOptions = LinkOptions { level_count: 16, size_ratio: 100.0 };

pub(crate) const MUCH: usize = 1 << 24;

pub(crate) struct Table {
    pub(crate) formats: Arc<Formats>,
    pub(crate) rows: Vec<RowFormat>,
}

impl Table {
    pub(crate) fn draw(rng: &mut SmallRng) -> Self {
        let schema = drawing::schema(rng);
        let rows = drawing::formats(rng, &schema);
        let mut formats = Formats::new(schema);
        for format in &rows {
            formats = formats.with(format.clone()).unwrap();
        }
        Self { formats: Arc::new(formats), rows }
    }

    /// With formats that need no definition.
    pub(crate) fn parse(schema: &str) -> Self {
        let formats = Formats::new(Arc::new(Schema::parse(schema).unwrap()));
        let rows = [RowFormatKind::Packed, RowFormatKind::Json].map(|kind| formats.get(kind).unwrap().clone());
        Self { formats: Arc::new(formats), rows: rows.to_vec() }
    }

    pub(crate) fn schema(&self) -> &Arc<Schema> {
        self.formats.schema()
    }

    pub(crate) fn format(&self, kind: RowFormatKind) -> &RowFormat {
        self.formats.get(kind).unwrap()
    }

    pub(crate) fn whole(&self, kind: RowFormatKind) -> Group {
        Group::new(self.formats.columns().clone(), GroupFormat::Row(kind))
    }

    pub(crate) fn link(&self, text: &str, source: RowFormatKind, options: &LinkOptions) -> Result<Linked> {
        let set = TransformerSet::parse(text)?;
        Registry::built_in().link(&set, &self.formats, GroupFormat::Row(source), options)
    }

    /// The kinds of formats in some order.
    pub(crate) fn kinds(&self, rng: &mut SmallRng) -> Vec<RowFormatKind> {
        let mut kinds: Vec<RowFormatKind> = self.rows.iter().map(RowFormat::kind).collect();
        kinds.shuffle(rng);
        kinds
    }

    /// The columns outside the key in random groups.
    pub(crate) fn groups(&self, rng: &mut SmallRng) -> Vec<ColumnSet> {
        let mut groups = vec![ColumnSet::new(); rng.random_range(1..=4)];
        for column in self.formats.columns().iter() {
            let at = rng.random_range(0..groups.len());
            groups[at].insert(column);
        }
        groups.retain(|group| !group.is_empty());
        groups
    }
}

/// A split, if one is drawn.
pub(crate) fn split(rng: &mut SmallRng, table: &Table) -> Option<String> {
    match rng.random_range(0..4) {
        0 => None,
        1 => {
            let groups: Vec<String> = table.groups(rng).iter().map(ToString::to_string).collect();
            Some(format!("split into {}", groups.join(" | ")))
        }
        2 => Some(format!("split by {} down to {}", rng.random_range(2..5), rng.random_range(1..4))),
        _ => Some(format!("split by {} rounds {}", rng.random_range(2..4), rng.random_range(1..4))),
    }
}

/// A set that can be linked, the format of its level 0, and the formats of its chain.
pub(crate) fn valid_set(rng: &mut SmallRng, table: &Table) -> (String, Vec<RowFormatKind>) {
    let mut kinds = table.kinds(rng);
    kinds.truncate(rng.random_range(1..=kinds.len()));
    let mut lines: Vec<String> = kinds.windows(2).map(|pair| format!("convert {} to {}", pair[0], pair[1])).collect();
    lines.extend(split(rng, table));
    if rng.random() {
        lines.push("identity".into());
    }
    lines.shuffle(rng);
    (lines.join("\n"), kinds)
}

/// Lines that may or may not go together.
pub(crate) fn any_set(rng: &mut SmallRng, table: &Table) -> Vec<String> {
    let columns: Vec<usize> = table.formats.columns().iter().collect();
    let mut lines = Vec::new();
    for _ in 0..rng.random_range(0..6) {
        lines.push(match rng.random_range(0..8) {
            0 => "identity".to_owned(),
            1 | 2 => split(rng, table).unwrap_or_else(|| "split by 2".to_owned()),
            3 => format!("augment {} on {}", ["x", "y", "z"].choose(rng).unwrap(), columns.choose(rng).unwrap()),
            _ => {
                let kinds = table.kinds(rng);
                format!("convert {} to {}", kinds[0], kinds.get(1).unwrap_or(&RowFormatKind::Raw))
            }
        });
    }
    lines
}

/// What a job makes of one entry: a value or nothing, by destination.
pub(crate) fn transformed(
    linked: &Linked,
    levels: (usize, usize),
    source: &Group,
    destinations: &[Group],
    entry: (Operation, &[u8]),
) -> Vec<Option<Vec<u8>>> {
    let mut job = linked.job(levels.0..levels.1, source, destinations, MUCH).unwrap();
    let entry = EntryRef { key: b"key", trailer: Trailer::new(7, entry.0), value: entry.1 };
    assert_eq!(job.transform(entry).unwrap(), Progress::Done);
    let mut values = vec![None; destinations.len()];
    for (destination, value) in job.mapped() {
        assert!(values[destination].replace(value.to_vec()).is_none(), "two values for {destination}");
    }
    values
}

/// A row or a patch, as cells and as a value of a format.
pub(crate) fn entry(rng: &mut SmallRng, table: &Table, format: &RowFormat) -> (Operation, Cells, Vec<u8>) {
    let takes_patches = table.rows.iter().all(RowFormat::takes_patches);
    let operation = if takes_patches && rng.random() { Operation::Patch } else { Operation::Put };
    let cells = drawing::cells(rng, table.schema(), operation == Operation::Put);
    let value = drawing::stored(format, &cells);
    (operation, cells, value)
}
