//! Rows from outside: CSV, JSON lines and Arrow IPC, from a file or stdin, as record batches of one schema.
//!
//! 1. Unpack zstd, told by its magic number.
//! 2. Tell the form: as given, else from the first bytes (`ARROW1` or a stream's continuation mark: Arrow; `{`: JSON),
//!    else from the name, else CSV.
//! 3. Take the schema given, or infer one from the first rows; what inference read is read again.
//! 4. Read batch by batch, and bring each to the schema: columns by name, types by casts that lose nothing
//!    ([`crate::exact`]); where a reader of text would lose digits, it reads the text. An Arrow file is read as the
//!    stream it holds, so that pipes work.
//!
//! What says nothing of a column, a file without it or an object of JSON without the member, has the column's default,
//! or null if it has none. What says null, an empty field of CSV too, has null, and is refused where that may not be.

mod arrow;
mod conform;
mod csv;
mod form;
mod json;
mod recorder;
#[cfg(test)]
mod tests;
mod wrong_rows;

use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use indicatif::ProgressBar;

use self::arrow::arrow_rows;
use self::conform::conform;
use self::csv::csv_rows;
use self::form::{form_of, unpacked};
use self::json::json_rows;
use self::recorder::peek;
use crate::args::{InputArgs, InputFormat};
use crate::failure::Failure;

/// The schema that rows must have.
pub(crate) enum Target<'a> {
    /// This one. Columns of the input that it lacks are passed over; batches are without those of its own that the
    /// input lacks and that have a default.
    Given {
        /// The columns.
        columns: SchemaRef,
        /// Those of them that have a default, in one row of these.
        defaults: RecordBatch,
    },
    /// What the first rows suggest; these columns are the primary key, which is never null.
    Inferred {
        /// Names of the primary key columns.
        key: &'a [String],
    },
}

impl Target<'_> {
    /// One row of the columns that have a default.
    fn defaults(&self) -> RecordBatch {
        match self {
            Self::Given { defaults, .. } => defaults.clone(),
            Self::Inferred { .. } => RecordBatch::new_empty(Arc::new(Schema::empty())),
        }
    }
}

/// Rows in order of the input.
pub(crate) struct Rows<E = Failure> {
    /// Of every batch, but for what [`Target::Given`] says.
    pub(crate) schema: SchemaRef,
    /// Until the input ends or is found to be wrong.
    pub(crate) batches: Box<dyn Iterator<Item = Result<RecordBatch, E>>>,
}

/// Opens a file (`-`: stdin) and its size, if it has one.
#[expect(clippy::disallowed_methods, reason = "the user's own file, which the engine never touches")]
pub(crate) fn open(path: &Path) -> Result<(Box<dyn Read>, Option<u64>), Failure> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let failed = |e| Failure::input(format!("cannot open {}: {e}", path.display()));
    let file = std::fs::File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    Ok((Box::new(file), Some(size)))
}

/// The rows of `raw`, whose bytes advance `progress`. `path` is for the name alone.
pub(crate) fn rows(
    raw: Box<dyn Read>,
    path: &Path,
    args: &InputArgs,
    target: &Target<'_>,
    progress: &ProgressBar,
) -> Result<Rows, Failure> {
    let name = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    if args.batch_rows == 0 {
        return Err(Failure::usage("--batch-rows must be at least 1"));
    }
    let mut reader = unpacked(Box::new(progress.wrap_read(raw))).map_err(|e| unreadable(&name, &e))?;
    let head = peek(&mut reader, 4096).map_err(|e| unreadable(&name, &e))?;
    let format = form_of(&head, path, args.format).map_err(|failure| failure.of_input(&name))?;
    let reader: Box<dyn Read> = Box::new(Cursor::new(head).chain(reader));
    let rows = match format {
        InputFormat::Csv => csv_rows(reader, args, target),
        InputFormat::Json => json_rows(reader, args, target),
        InputFormat::Arrow => arrow_rows(reader, target),
    };
    let context = name.clone();
    let rows = rows.map_err(|failure| failure.of_input(&name))?;
    let schema = rows.schema.clone();
    let (is_inferred, defaults) = (matches!(target, Target::Inferred { .. }), target.defaults());
    let batches = rows.batches.map(move |batch| {
        let batch = batch.and_then(|batch| conform(&batch, &schema, &defaults));
        batch.map_err(|error| error.into_failure(is_inferred).of_input(&context))
    });
    Ok(Rows { schema: rows.schema, batches: Box::new(batches) })
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::input(format!("{name}: {error}"))
}
