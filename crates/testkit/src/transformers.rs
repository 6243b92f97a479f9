//! Transformers as users write them, for the tables of histories (typed, of [`crate::tables::TYPED_SCHEMA`]).
//!
//! `test.count` maps: it adds one to the column `count`, so that a map done twice, or not at all, shows. The store
//! writes rows with one less (`unmapped`), so that what is read is what the model has.
//!
//! `test.letters` flat-maps: it derives every letter of the column `name`, with how often it is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use mycelium_base::{ColumnSet, Error, GroupFormat, Operation, Result, RowFormatKind};
use mycelium_encoding::row_format::{RowFormat, RowScratch};
use mycelium_encoding::{ColumnState, Datum, DatumRef};
use mycelium_engine::Table;
use mycelium_transform::{GroupValues, InputEntry, JobContext, Outputs, Place, Registry, TransformState, Transformer};

/// The columns `count` and `name`.
const COUNT: usize = 3;
const NAME: usize = 5;

/// The built-in transformers and those of this module.
///
/// # Panics
/// Never: the names are well-formed and different.
pub fn transformers() -> Registry {
    let mut registry = Registry::built_in();
    let added = registry
        .register("test.count", |arguments, _| {
            let kind: RowFormatKind = arguments.parse()?;
            Ok(Arc::new(Count { format: GroupFormat::Row(kind) }))
        })
        .and_then(|()| registry.register("test.letters", |_, _| Ok(Arc::new(Letters))));
    match added {
        Ok(()) => registry,
        Err(error) => unreachable!("the names are constants: {error}"),
    }
}

/// Adds one to a column.
#[derive(Debug)]
struct Count {
    format: GroupFormat,
}

impl Transformer for Count {
    fn place(&self) -> Place {
        Place::Chain { from: self.format, to: self.format }
    }

    fn maps_values(&self) -> bool {
        true
    }

    fn maps_patches(&self) -> bool {
        true
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        Ok(Box::new(Counting { values: job.formats.values(job.source)?, scratch: RowScratch::default() }))
    }
}

struct Counting {
    values: GroupValues,
    scratch: RowScratch,
}

impl TransformState for Counting {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let Self { values, scratch } = self;
        let mut row = BTreeMap::new();
        values.visit(entry.value, entry.columns, scratch, &mut |column, state| {
            row.extend(counted(column, state, 1).map(|datum| (column, datum)));
            Ok(())
        })?;
        let state = |column: usize| row.get(&column).map_or(ColumnState::Absent, |datum| datum.borrowed().into());
        outputs.map_with(0, |out| values.encode(state, scratch, out))
    }
}

/// The value of a column that has one or is null, with `by` added to the one that is counted.
fn counted(column: usize, state: ColumnState<'_>, by: i64) -> Option<Datum> {
    match state {
        ColumnState::Absent => None,
        ColumnState::Null => Some(Datum::Null),
        ColumnState::Value(DatumRef::Int64(count)) if column == COUNT => Some(Datum::Int64(count.wrapping_add(by))),
        ColumnState::Value(datum) => Some(datum.to_datum()),
    }
}

/// The packed row or patch that `test.count` maps to this one.
///
/// # Errors
/// [`mycelium_base::ErrorKind::Corruption`] for a malformed value.
pub(crate) fn unmapped(packed: &RowFormat, value: &[u8]) -> Result<Vec<u8>> {
    let (mut scratch, mut row) = (RowScratch::default(), BTreeMap::new());
    {
        let mut columns = packed.read(value, None, &mut scratch)?;
        for column in packed.schema().value_columns().iter() {
            row.extend(counted(column, columns.get(column)?, -1).map(|datum| (column, datum)));
        }
    }
    let state = |column: usize| row.get(&column).map_or(ColumnState::Absent, |datum| datum.borrowed().into());
    let mut out = Vec::new();
    packed.encode_with(state, &mut scratch, &mut out)?;
    Ok(out)
}

/// Whether rows of the table are mapped by `test.count`.
pub(crate) fn is_mapped(table: &Table) -> bool {
    let set = table.options().transformers.as_ref();
    set.is_some_and(|set| set.iter().any(|definition| definition.name() == "test.count"))
}

/// Derives letters.
#[derive(Debug)]
struct Letters;

impl Transformer for Letters {
    fn place(&self) -> Place {
        Place::Beside
    }

    fn derived_tables(&self) -> Vec<String> {
        vec!["letters".to_owned()]
    }

    fn reads(&self) -> ColumnSet {
        [NAME].into_iter().collect()
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        Ok(Box::new(Spelling { values: job.formats.values(job.source)?, scratch: RowScratch::default() }))
    }
}

struct Spelling {
    values: GroupValues,
    scratch: RowScratch,
}

impl TransformState for Spelling {
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        let mut letters = BTreeMap::new();
        self.values.visit(entry.value, entry.columns, &mut self.scratch, &mut |_, state| {
            if let ColumnState::Value(DatumRef::Utf8(name)) = state {
                letters = letters_of(name);
            }
            Ok(())
        })?;
        for (letter, count) in letters {
            outputs.derive(0, letter.to_string().as_bytes(), Operation::Put, &[count])?;
        }
        Ok(())
    }
}

fn letters_of(name: &str) -> BTreeMap<char, u8> {
    let mut letters = BTreeMap::new();
    for letter in name.chars() {
        *letters.entry(letter).or_insert(0_u8) += 1;
    }
    letters
}

/// What `test.letters` derives from a row's columns: keys and values.
pub(crate) fn letters_in(row: &[Datum]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    match &row[NAME] {
        Datum::Null => Ok(Vec::new()),
        Datum::Utf8(name) => {
            let letters = letters_of(name).into_iter();
            Ok(letters.map(|(letter, count)| (letter.to_string().into_bytes(), vec![count])).collect())
        }
        other => Err(Error::invalid(format!("a name is {other:?}"))),
    }
}
