//! Rows of CSV.

use std::io::{self, Read};
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use regex::Regex;

use super::conform::{compare_columns, distinct, in_text, inferred, read_as};
use super::recorder::Recorder;
use super::wrong_rows::{WrongRows, arrow_failure};
use super::{Rows, Target};
use crate::args::InputArgs;
use crate::exact;
use crate::failure::Failure;

pub(super) fn csv_rows(
    reader: Box<dyn Read>,
    args: &InputArgs,
    target: &Target<'_>,
) -> Result<Rows<WrongRows>, Failure> {
    let delimiter =
        u8::try_from(args.delimiter).map_err(|_| Failure::usage("--delimiter must be one ASCII character"))?;
    let nulls: Vec<_> = args.null.iter().map(|text| regex::escape(text)).collect();
    let nulls =
        Regex::new(&format!("^(?:{})$", [String::new()].into_iter().chain(nulls).collect::<Vec<_>>().join("|")))
            .map_err(|e| Failure::usage(format!("--null: {e}")))?;
    let format = arrow_csv::reader::Format::default()
        .with_header(!args.no_header)
        .with_delimiter(delimiter)
        .with_null_regex(nulls);
    let mut recorder = Recorder::new(Box::new(Quotes::new(reader, delimiter)));
    // Columns of a given schema need no sample, but their names in the file are needed: no rows are inferred from then.
    let sample = if matches!(target, Target::Given { .. }) && !args.no_header { 0 } else { args.infer_rows };
    let (found, sampled) = format.infer_schema(&mut recorder, Some(sample)).map_err(arrow_failure)?;
    if sampled == 0 && !found.fields().is_empty() && matches!(target, Target::Inferred { .. }) {
        return Err(
            Failure::input("it has no rows that say of which types its columns are").hint("--schema gives the types")
        );
    }
    let (schema, in_file) = match target {
        Target::Inferred { key } => {
            let schema = inferred(&found, key)?;
            (schema.clone(), in_text(&schema, exact::loses_digits))
        }
        Target::Given { columns, .. } if args.no_header => {
            (columns.clone(), in_text(&first_columns(columns, found.fields().len()), exact::loses_digits))
        }
        Target::Given { columns, .. } => {
            let field = |found: &Field| {
                let ty = columns.field_with_name(found.name()).map_or(&DataType::Utf8, Field::data_type);
                Field::new(found.name(), read_as(ty, exact::loses_digits), true)
            };
            let fields: Vec<_> = found.fields().iter().map(|found| field(found)).collect();
            (columns.clone(), Arc::new(Schema::new(fields)))
        }
    };
    distinct(&in_file)?;
    compare_columns(&in_file, &schema, &target.defaults())?;
    let batches = arrow_csv::ReaderBuilder::new(in_file)
        .with_format(format)
        .with_batch_size(args.batch_rows)
        .build(recorder.rewound())
        .map_err(arrow_failure)?;
    Ok(Rows {
        schema,
        batches: Box::new(batches.map(|batch| batch.map_err(with_line_of_file).map_err(WrongRows::from))),
    })
}

/// What columns rows without a header have whose first has so many fields: the first of the table's, for a column that
/// comes later is behind the others. All of them where there is no row.
fn first_columns(columns: &SchemaRef, fields: usize) -> SchemaRef {
    match fields {
        0 => columns.clone(),
        _ => Arc::new(Schema::new(columns.fields().iter().take(fields).cloned().collect::<Vec<_>>())),
    }
}

/// Arrow counts lines from 0 where it names that of a value which it cannot read.
fn with_line_of_file(error: ArrowError) -> ArrowError {
    const BEFORE: &str = " at line ";
    let ArrowError::ParseError(text) = error else { return error };
    let counted = text.split_once(BEFORE).and_then(|(before, rest)| {
        let (line, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        Some(format!("{before}{BEFORE}{}{after}", line.parse::<u64>().ok()? + 1))
    });
    ArrowError::ParseError(counted.unwrap_or(text))
}

/// Fails at the end of CSV of which a quote was never closed: readers take all that follows it for one field.
struct Quotes {
    inner: Box<dyn Read>,
    delimiter: u8,
    place: Place,
    line: u64,
    /// The line of the quote that was opened last.
    opened: u64,
    bytes: usize,
}

/// Where in CSV the next byte stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    FieldStart,
    Field,
    Quoted,
    /// Behind a quote in a quoted field, which ends it unless another follows.
    AfterQuote,
}

/// What some writers begin text with, and readers pass over.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Quotes {
    fn new(inner: Box<dyn Read>, delimiter: u8) -> Self {
        Self { inner, delimiter, place: Place::FieldStart, line: 1, opened: 1, bytes: 0 }
    }

    fn pass(&mut self, byte: u8) {
        let is_mark = BYTE_ORDER_MARK.get(self.bytes) == Some(&byte);
        self.bytes = self.bytes.saturating_add(1);
        self.place = match (self.place, byte) {
            (Place::FieldStart, _) if is_mark => Place::FieldStart,
            (Place::FieldStart, b'"') => {
                self.opened = self.line;
                Place::Quoted
            }
            (Place::Quoted, b'"') => Place::AfterQuote,
            (Place::AfterQuote, b'"') | (Place::Quoted, _) => Place::Quoted,
            _ if byte == self.delimiter || byte == b'\n' || byte == b'\r' => Place::FieldStart,
            _ => Place::Field,
        };
        self.line += u64::from(byte == b'\n');
    }
}

impl Read for Quotes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        buffer[..n].iter().for_each(|&byte| self.pass(byte));
        if n == 0 && !buffer.is_empty() && self.place == Place::Quoted {
            return Err(io::Error::other(format!("the quote that line {} opens is never closed", self.opened)));
        }
        Ok(n)
    }
}
