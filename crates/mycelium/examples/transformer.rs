//! A transformer of one's own: a flat-map that makes an entry of each word of a text. It feeds an index, which is exact
//! at every snapshot, as any index is; its name and arguments are kept with the index.
//!
//! ```sh
//! cargo run --example transformer
//! ```
//!
//! One that changes values on their way down instead is in the documentation of `mycelium::transform::Transformer`.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use mycelium::rows::{ColumnState, RowScratch};
use mycelium::transform::{
    GroupValues, InputEntry, JobContext, Operation, Outputs, Place, Registry, TransformState, Transformer,
};
use mycelium::{
    ColumnSet, Database, Datum, DatumRef, Durability, Error, ErrorKind, Index, IndexOptions, Options, Result, Schema,
    TableOptions,
};

/// The words of a text column.
#[derive(Debug)]
struct Words {
    column: usize,
}

impl Transformer for Words {
    /// Beside the order of transformers: it derives entries, and changes none.
    fn place(&self) -> Place {
        Place::Beside
    }

    fn derived_tables(&self) -> Vec<String> {
        vec!["words".into()]
    }

    /// It is not called for patches of other columns.
    fn reads(&self) -> ColumnSet {
        [self.column].into_iter().collect()
    }

    fn prepare(&self, job: &JobContext<'_>) -> Result<Box<dyn TransformState>> {
        Ok(Box::new(Splitting { values: job.formats.values(job.source)?, scratch: RowScratch::default() }))
    }
}

/// What one job needs.
struct Splitting {
    values: GroupValues,
    scratch: RowScratch,
}

impl TransformState for Splitting {
    /// Pure: what a row derives follows from the row alone. A word that comes twice is derived once.
    fn transform(&mut self, entry: &InputEntry<'_>, outputs: &mut Outputs<'_>) -> Result<()> {
        self.values.visit(entry.value, entry.columns, &mut self.scratch, &mut |_column, state| {
            let ColumnState::Value(DatumRef::Utf8(text)) = state else { return Ok(()) };
            let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            for word in words {
                outputs.derive(0, word.to_lowercase().as_bytes(), Operation::Put, &[])?;
            }
            Ok(())
        })
    }
}

/// Options with the transformer under its name; what follows the name in a definition names the column.
fn options() -> Result<Options> {
    let mut transformers = Registry::built_in();
    transformers.register("example.words", |column, formats| {
        let position = formats.schema().index_of(column);
        let column = position.ok_or_else(|| Error::invalid(format!("there is no column {column:?}")))?;
        Ok(Arc::new(Words { column }))
    })?;
    Ok(Options { transformers, ..Options::default() })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("db");
    write(&path)?;

    // The database says which transformer it needs, and is not opened without.
    let refused = Database::open(&path, Options::default()).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(ErrorKind::Unsupported));
    let database = Database::open(&path, options()?)?;
    let words = database.table("notes")?.index("words")?;
    println!("notes with a word that begins with mo: {:?}", numbers(&words, "mo", "mp")?);
    assert_eq!(numbers(&words, "mo", "mp")?, BTreeSet::from([1, 2]));
    assert_eq!(numbers(&words, "rain", "rain\0")?, BTreeSet::from([3]));
    database.close()?;
    Ok(())
}

fn write(path: &Path) -> Result<()> {
    let database = Database::open(path, options()?)?;
    let schema = Schema::parse("number int64 not null, text utf8, primary key (number)")?;
    let notes = database.create_typed_table("notes", schema, TableOptions::default())?;
    let flat_map = Some("example.words text".parse()?);
    database.create_index(&notes, &IndexOptions { name: "words".into(), flat_map, ..IndexOptions::default() })?;
    for (number, text) in [(1, "Spores and moss"), (2, "More mould, and more!"), (3, "Rain")] {
        notes.insert_row(&[DatumRef::Int64(number), DatumRef::Utf8(text)], Durability::Sync)?;
    }
    database.close()
}

/// The numbers of the notes that have a word from `from` on and before `to`. A row comes once for each such word.
fn numbers(words: &Index, from: &str, to: &str) -> Result<BTreeSet<i64>> {
    let (from, to) = ([DatumRef::Binary(from.as_bytes())], [DatumRef::Binary(to.as_bytes())]);
    let mut numbers = BTreeSet::new();
    for row in words.range((Bound::Included(&from[..]), Bound::Excluded(&to[..])), Some(&[0]), None)? {
        if let [Datum::Int64(number)] = row?.values[..] {
            numbers.insert(number);
        }
    }
    Ok(numbers)
}

#[test]
fn words_are_found_by_the_transformer_that_was_registered() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
