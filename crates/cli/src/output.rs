//! What commands print: text for people, JSON lines for programs. A reader that goes away (`| head`) ends the command
//! quietly.

use std::fmt::Write as _;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use serde::Serialize;

use crate::failure::Failure;

/// Standard output in one of the two forms.
pub(crate) struct Output<W: Write = BufWriter<StdoutLock<'static>>> {
    json: bool,
    out: W,
    widths: Vec<usize>,
}

impl Output {
    /// Standard output.
    pub(crate) fn stdout(json: bool) -> Self {
        Self::new(json, BufWriter::with_capacity(1 << 16, io::stdout().lock()))
    }
}

impl<W: Write> Output<W> {
    fn new(json: bool, out: W) -> Self {
        Self { json, out, widths: Vec::new() }
    }

    /// Whether JSON is wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// One JSON object on a line.
    pub(crate) fn object(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.out, object).map_err(io::Error::from)?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// Rows: JSON lines with every column, or columns in line under their names (widths are those of the first batch).
    pub(crate) fn rows(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let batch = &printable(batch)?;
        if self.json { self.json_rows(batch) } else { self.text_rows(batch) }
    }

    /// Rows of another answer follow: their columns have widths of their own.
    pub(crate) fn begin_rows(&mut self) {
        self.widths.clear();
    }

    /// Rows as CSV, the first of an answer below the names of the columns. Null is nothing, and empty text two quotes.
    pub(crate) fn csv_rows(&mut self, batch: &RecordBatch, with_names: bool) -> Result<(), Failure> {
        let batch = printable(batch)?;
        let options = FormatOptions::default();
        let cells = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let cells = cells.collect::<Result<Vec<_>, _>>().map_err(print_failure)?;
        let nulls: Vec<_> = batch.columns().iter().map(|column| column.logical_nulls()).collect();
        if with_names {
            for (at, field) in batch.schema().fields().iter().enumerate() {
                if at > 0 {
                    self.out.write_all(b",")?;
                }
                write_csv_field(&mut self.out, field.name())?;
            }
            self.out.write_all(b"\n")?;
        }
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            for (at, (cells, nulls)) in cells.iter().zip(&nulls).enumerate() {
                if at > 0 {
                    self.out.write_all(b",")?;
                }
                if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                    text.clear();
                    write!(text, "{}", cells.value(row)).map_err(io::Error::other)?;
                    write_csv_field(&mut self.out, &text)?;
                }
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn json_rows(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let batch = &distinctly_named(batch)?;
        let mut writer = arrow_json::WriterBuilder::new()
            .with_explicit_nulls(true)
            .build::<_, arrow_json::writer::LineDelimited>(&mut self.out);
        writer.write(batch).and_then(|()| writer.finish()).map_err(print_failure)
    }

    fn text_rows(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let options = FormatOptions::default().with_null("null");
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>().map_err(print_failure)?;
        let schema = batch.schema();
        if self.widths.is_empty() {
            self.widths = formatters
                .iter()
                .zip(schema.fields())
                .map(|(column, field)| {
                    let cells = (0..batch.num_rows()).map(|row| width(&one_line(&column.value(row).to_string())));
                    cells.chain([width(&one_line(field.name()))]).max().unwrap_or(0)
                })
                .collect();
            let heads: Vec<_> = schema.fields().iter().map(|field| one_line(field.name())).collect();
            self.text_row(&heads)?;
        }
        for row in 0..batch.num_rows() {
            let cells: Vec<_> = formatters.iter().map(|column| one_line(&column.value(row).to_string())).collect();
            self.text_row(&cells)?;
        }
        Ok(())
    }

    /// The first row of a batch: a JSON line, or a line per column.
    pub(crate) fn record(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let batch = &printable(batch)?;
        if self.json {
            return self.json_rows(batch);
        }
        let options = FormatOptions::default().with_null("null");
        let schema = batch.schema();
        let names: Vec<_> = schema.fields().iter().map(|field| one_line(field.name())).collect();
        let longest = names.iter().map(|name| width(name)).max().unwrap_or(0);
        for (name, column) in names.iter().zip(batch.columns()) {
            let cells = ArrayFormatter::try_new(column.as_ref(), &options).map_err(print_failure)?;
            let padding = longest.saturating_sub(width(name));
            let cell = one_line(&cells.value(0).to_string());
            writeln!(self.out, "{name}{:padding$}  {cell}", "")?;
        }
        Ok(())
    }

    fn text_row(&mut self, cells: &[String]) -> Result<(), Failure> {
        for (i, (cell, column)) in cells.iter().zip(&self.widths).enumerate() {
            let last = i + 1 == cells.len();
            let padding = if last { 0 } else { column.saturating_sub(width(cell)) + 2 };
            write!(self.out, "{cell}{:padding$}", "")?;
        }
        Ok(self.out.write_all(b"\n")?)
    }

    /// Hands everything to the operating system.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}

/// The batch with its instants in UTC, written as an offset: names of time zones need a table of them, which is not
/// here.
fn printable(batch: &RecordBatch) -> Result<RecordBatch, Failure> {
    let schema = batch.schema();
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_data_type(in_utc(field.data_type())));
    let fields: Vec<Field> = fields.collect();
    let columns = batch.columns().iter().zip(&fields).map(|(column, field)| cast(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(print_failure)?;
    with_rows_of(batch, Schema::new(fields), columns)
}

/// A batch may have rows and no columns.
fn with_rows_of(batch: &RecordBatch, schema: Schema, columns: Vec<ArrayRef>) -> Result<RecordBatch, Failure> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).map_err(print_failure)
}

/// The batch with a number behind every name that an earlier column has: `id`, `id_2`. Of members of one name readers
/// of JSON keep but one.
fn distinctly_named(batch: &RecordBatch) -> Result<RecordBatch, Failure> {
    let schema = batch.schema();
    let mut names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    for at in 1..names.len() {
        let is_new =
            |name: &String, names: &[String]| !names.iter().enumerate().any(|(n, known)| n != at && known == name);
        if names[..at].contains(&names[at]) {
            let numbered = (2..).map(|number| format!("{}_{number}", names[at]));
            names[at] = { numbered }.find(|name| is_new(name, &names)).unwrap_or_default();
        }
    }
    let fields = schema.fields().iter().zip(names).map(|(field, name)| field.as_ref().clone().with_name(name));
    with_rows_of(batch, Schema::new(fields.collect::<Vec<_>>()), batch.columns().to_vec())
}

/// The type of the same instants with the zone `+00:00`; any other type as it is.
pub(crate) fn in_utc(ty: &DataType) -> DataType {
    match ty {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("+00:00".into())),
        other => other.clone(),
    }
}

/// Errors of writing rows: an I/O error keeps its kind (a closed pipe is no failure).
pub(crate) fn print_failure(error: ArrowError) -> Failure {
    match error {
        ArrowError::IoError(_, error) => error.into(),
        other => Failure::input(format!("cannot print a row: {other}")),
    }
}

/// Writes a text that is there: in quotes where readers would take it for another, or for none.
fn write_csv_field(out: &mut impl Write, text: &str) -> io::Result<()> {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        return out.write_all(text.as_bytes());
    }
    out.write_all(b"\"")?;
    for (at, part) in text.split('"').enumerate() {
        if at > 0 {
            out.write_all(b"\"\"")?;
        }
        out.write_all(part.as_bytes())?;
    }
    out.write_all(b"\"")
}

fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// Control characters (a newline, an escape code) as escapes: a stored value must not move the cursor.
fn one_line(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Bytes as people type them: printable ASCII as it is, all else (and the backslash) as `\xNN`.
pub(crate) fn escape_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out
}

/// The bytes of what [`escape_bytes`] wrote, or of any text in which `\xNN` and `\\` are the only escapes.
pub(crate) fn unescape_bytes(text: &str) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'\\', [b'\\', tail @ ..]) => {
                out.push(b'\\');
                tail
            }
            (b'\\', [b'x', high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
                out.push(digit(*high) << 4 | digit(*low));
                tail
            }
            (b'\\', _) => {
                return Err(Failure::usage(format!("{text:?}: a backslash must be followed by another or by xNN")));
            }
            (byte, tail) => {
                out.push(*byte);
                tail
            }
        };
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StringArray};

    fn batch() -> RecordBatch {
        let schema =
            Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]);
        let names = StringArray::from(vec![Some("a\x1b[2J\nb"), None]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(vec![1, 200])), Arc::new(names)])
            .expect("matches its schema")
    }

    #[test]
    fn rows_print_as_text_and_json() {
        let print = |json| {
            let mut output = Output::new(json, Vec::new());
            output.rows(&batch()).expect("in memory");
            output.rows(&batch().slice(1, 1)).expect("in memory");
            String::from_utf8(output.out).expect("text")
        };
        assert_eq!(print(false), "id   name\n1    a\\u{1b}[2J\\nb\n200  null\n200  null\n");
        let last = "{\"id\":200,\"name\":null}\n";
        assert_eq!(print(true), format!("{{\"id\":1,\"name\":\"a\\u001b[2J\\nb\"}}\n{last}{last}"));
    }

    /// A name moved the cursor, which a value could not.
    #[test]
    fn control_characters_of_names_print_as_escapes() {
        let schema = Schema::new(vec![Field::new("a\x1b[2J\nb", DataType::Int64, false)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(vec![1]))]);
        let batch = batch.expect("matches its schema");
        let mut output = Output::new(false, Vec::new());
        output.rows(&batch).expect("in memory");
        output.record(&batch).expect("in memory");
        let text = String::from_utf8(output.out).expect("text");
        assert_eq!(text, "a\\u{1b}[2J\\nb\n1\na\\u{1b}[2J\\nb  1\n");
    }

    /// Empty text was nothing, as null is.
    #[test]
    fn empty_text_and_null_differ_in_csv() {
        let fields = [Field::new("a,b", DataType::Utf8, true), Field::new("none", DataType::Null, true)];
        let texts = StringArray::from(vec![Some(""), None, Some("say \"x\"\ny"), Some("plain")]);
        let columns: Vec<ArrayRef> = vec![Arc::new(texts), arrow_array::new_null_array(&DataType::Null, 4)];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).expect("matches its schema");
        let mut output = Output::new(false, Vec::new());
        output.csv_rows(&batch, true).expect("in memory");
        let text = String::from_utf8(output.out).expect("text");
        assert_eq!(text, "\"a,b\",none\n\"\",\n,\n\"say \"\"x\"\"\ny\",\nplain,\n");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for json in [false, true] {
            let mut output = Output::new(json, Closed);
            for failure in [output.line("x"), output.object(&1), output.rows(&batch())].map(Result::unwrap_err) {
                assert_eq!(failure.exit_status(), 0, "{failure}");
            }
        }
    }

    #[test]
    fn bytes_escape_and_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape_bytes(&escape_bytes(&all)).expect("well formed"), all);
        assert_eq!(unescape_bytes("é").expect("well formed"), "é".as_bytes());
        for wrong in ["\\", "\\x", "\\x1", "\\xg0", "\\n"] {
            assert!(unescape_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
