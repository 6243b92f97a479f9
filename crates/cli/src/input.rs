//! Rows from outside: CSV, JSON lines and Arrow IPC, from a file or stdin, as record batches of one schema.
//!
//! 1. Unpack zstd, told by its magic number.
//! 2. Tell the form: as given, else from the first bytes (`ARROW1` or a stream's continuation mark: Arrow; `{`: JSON),
//!    else from the name, else CSV.
//! 3. Take the schema given, or infer one from the first rows; what inference read is read again.
//! 4. Read batch by batch, and bring each to the schema: columns by name, types by casts that lose nothing ([`exact`]);
//!    where a reader of text would lose digits, it reads the text. An Arrow file is read as the stream it holds, so
//!    that pipes work.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use indicatif::ProgressBar;
use regex::Regex;

use crate::args::{InputArgs, InputFormat};
use crate::exact;
use crate::failure::Failure;
use crate::output::in_utc;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const ARROW_FILE_MAGIC: &[u8; 8] = b"ARROW1\0\0";
const ARROW_STREAM_MAGIC: [u8; 4] = [0xff; 4];
/// How files begin that would be taken for CSV.
const UNREADABLE: [(&[u8], &str); 2] = [(&[0x1f, 0x8b], "packed by gzip"), (b"PAR1", "a Parquet file")];

/// In the metadata of a field: what rows have in the column where the input lacks it.
pub(crate) const DEFAULT: &str = "default";

/// The schema that rows must have.
pub(crate) enum Target<'a> {
    /// This one. Columns of the input that it lacks are passed over; batches are without those of its own that the
    /// input lacks and that have a [`DEFAULT`].
    Given(SchemaRef),
    /// What the first rows suggest; these columns are the primary key, which is never null.
    Inferred {
        /// Names of the primary key columns.
        key: &'a [String],
    },
}

/// Rows in order of the input.
pub(crate) struct Rows<E = Failure> {
    /// Of every batch, but for what [`Target::Given`] says.
    pub(crate) schema: SchemaRef,
    /// Until the input ends or is found to be wrong.
    pub(crate) batches: Box<dyn Iterator<Item = Result<RecordBatch, E>>>,
}

/// What is wrong with a batch.
enum WrongRows {
    /// A value is none of its column's type.
    Type(String),
    /// Anything else.
    Other(Failure),
}

impl WrongRows {
    /// Where the types were inferred, with what to do about them.
    fn into_failure(self, is_inferred: bool) -> Failure {
        match self {
            Self::Type(text) if is_inferred => Failure::input(text)
                .hint("--schema gives the types; --infer-rows looks at more rows before it settles on them"),
            Self::Type(text) => Failure::input(text),
            Self::Other(failure) => failure,
        }
    }
}

impl From<ArrowError> for WrongRows {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ParseError(text) => Self::Type(text),
            // What is no JSON begins so.
            ArrowError::JsonError(text)
                if !["Encountered", "Not valid"].iter().any(|start| text.starts_with(start)) =>
            {
                Self::Type(text)
            }
            other => Self::Other(arrow_failure(other)),
        }
    }
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
    if let Some((_, what)) = UNREADABLE.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(
            Failure::input(format!("{name}: {what}")).hint("CSV, JSON lines and Arrow IPC are read, plain or in zstd")
        );
    }
    if is_json_array(&head) && matches!(args.format, None | Some(InputFormat::Json)) {
        return Err(Failure::input(format!("{name}: a JSON array"))
            .hint("JSON lines are read, an object a line: `jq -c '.[]'` makes them; --format csv takes it for CSV"));
    }
    let format = args.format.unwrap_or_else(|| told_format(&head, path));
    let reader: Box<dyn Read> = Box::new(Cursor::new(head).chain(reader));
    let rows = match format {
        InputFormat::Csv => csv_rows(reader, args, target),
        InputFormat::Json => json_rows(reader, args, target),
        InputFormat::Arrow => arrow_rows(reader, target),
    };
    let context = name.clone();
    let rows = rows.map_err(|failure| failure.of_input(&name))?;
    let schema = rows.schema.clone();
    let is_inferred = matches!(target, Target::Inferred { .. });
    let batches = rows.batches.map(move |batch| {
        let batch = batch.and_then(|batch| conform(&batch, &schema));
        batch.map_err(|error| error.into_failure(is_inferred).of_input(&context))
    });
    Ok(Rows { schema: rows.schema, batches: Box::new(batches) })
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::input(format!("{name}: {error}"))
}

/// Up to `wanted` bytes from the front, fewer only at the end.
fn peek(reader: &mut dyn Read, wanted: u64) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    reader.take(wanted).read_to_end(&mut head)?;
    Ok(head)
}

fn unpacked(mut raw: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let head = peek(&mut raw, ZSTD_MAGIC.len() as u64)?;
    let packed = head == ZSTD_MAGIC;
    let whole = Cursor::new(head).chain(raw);
    if packed { Ok(Box::new(zstd::Decoder::new(whole)?)) } else { Ok(Box::new(whole)) }
}

fn told_format(head: &[u8], path: &Path) -> InputFormat {
    if head.starts_with(ARROW_FILE_MAGIC) || head.starts_with(&ARROW_STREAM_MAGIC) {
        return InputFormat::Arrow;
    }
    if head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        return InputFormat::Json;
    }
    let name = path.to_string_lossy();
    let name = name.strip_suffix(".zst").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json" | "jsonl" | "ndjson") => InputFormat::Json,
        Some("arrow" | "arrows" | "feather" | "ipc") => InputFormat::Arrow,
        _ => InputFormat::Csv,
    }
}

/// Whether text begins like an array of rows.
fn is_json_array(head: &[u8]) -> bool {
    let mut told = head.iter().filter(|byte| !byte.is_ascii_whitespace());
    told.next() == Some(&b'[') && matches!(told.next(), Some(b'{' | b'[' | b']'))
}

/// Remembers what is read through it, so that it can be read again.
struct Recorder {
    inner: Box<dyn Read>,
    recorded: Vec<u8>,
}

impl Recorder {
    fn new(inner: Box<dyn Read>) -> Self {
        Self { inner, recorded: Vec::new() }
    }

    fn rewound(self) -> Box<dyn Read> {
        Box::new(Cursor::new(self.recorded).chain(self.inner))
    }
}

impl Read for Recorder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.recorded.extend_from_slice(&buffer[..n]);
        Ok(n)
    }
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

fn csv_rows(reader: Box<dyn Read>, args: &InputArgs, target: &Target<'_>) -> Result<Rows<WrongRows>, Failure> {
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
    let sample = if matches!(target, Target::Given(_)) && !args.no_header { 0 } else { args.infer_rows };
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
        Target::Given(schema) if args.no_header => (schema.clone(), in_text(schema, exact::loses_digits)),
        Target::Given(schema) => {
            let field = |found: &Field| {
                let ty = schema.field_with_name(found.name()).map_or(&DataType::Utf8, Field::data_type);
                Field::new(found.name(), read_as(ty, exact::loses_digits), true)
            };
            let fields: Vec<_> = found.fields().iter().map(|found| field(found)).collect();
            (schema.clone(), Arc::new(Schema::new(fields)))
        }
    };
    distinct(&in_file)?;
    compare_columns(&in_file, &schema)?;
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

/// Collects the names of members of the outermost JSON objects that a schema lacks, and fails where an object has one
/// of the schema twice: readers take the last.
struct MemberNames {
    inner: Box<dyn Read>,
    schema: SchemaRef,
    unknown: Rc<RefCell<BTreeSet<String>>>,
    /// Names as they were written, each with its column.
    spellings: HashMap<Vec<u8>, Option<usize>>,
    /// By column: the object that had it last.
    seen_in: Vec<u64>,
    /// Objects begun, and lines ended.
    object: u64,
    lines: u64,
    /// A column that an object has twice, and the line.
    twice: Option<(usize, u64)>,
    depth: u64,
    /// Whether the next text is the name of such a member.
    is_name_next: bool,
    is_in_text: bool,
    is_escaped: bool,
    /// The name as it is written, without its quotes.
    name: Vec<u8>,
}

/// The most names that are collected: of objects that are used as maps there is no end.
const MOST_NAMES: usize = 100;

/// The most spellings of names that are remembered.
const MOST_SPELLINGS: usize = 10_000;

impl MemberNames {
    fn new(inner: Box<dyn Read>, schema: SchemaRef) -> Self {
        let seen_in = vec![0; schema.fields().len()];
        Self {
            inner,
            schema,
            unknown: Rc::default(),
            spellings: HashMap::new(),
            seen_in,
            object: 0,
            lines: 0,
            twice: None,
            depth: 0,
            is_name_next: false,
            is_in_text: false,
            is_escaped: false,
            name: Vec::new(),
        }
    }

    fn pass(&mut self, byte: u8) {
        self.lines += u64::from(byte == b'\n');
        if self.is_in_text {
            return self.pass_in_text(byte);
        }
        match byte {
            b'"' => self.is_in_text = true,
            b'{' => {
                self.depth += 1;
                self.is_name_next = self.depth == 1;
                self.object += u64::from(self.depth == 1);
            }
            b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' => self.is_name_next = self.depth == 1,
            _ => {}
        }
    }

    fn pass_in_text(&mut self, byte: u8) {
        if byte == b'"' && !self.is_escaped {
            self.is_in_text = false;
            if std::mem::take(&mut self.is_name_next) {
                self.end_name();
            }
            return;
        }
        if self.is_name_next {
            self.name.push(byte);
        }
        self.is_escaped = byte == b'\\' && !self.is_escaped;
    }

    fn end_name(&mut self) {
        let known = self.spellings.get(&self.name).copied();
        let column = known.unwrap_or_else(|| self.look_up());
        self.name.clear();
        let Some(column) = column else { return };
        let last = std::mem::replace(&mut self.seen_in[column], self.object);
        if last == self.object && self.twice.is_none() {
            self.twice = Some((column, self.lines + 1));
        }
    }

    /// The column of the name as it is written, which is remembered.
    fn look_up(&mut self) -> Option<usize> {
        let text = String::from_utf8_lossy(&self.name);
        let name: String = serde_json::from_str(&format!("\"{text}\"")).unwrap_or_else(|_| text.into_owned());
        let column = self.schema.fields().iter().position(|field| *field.name() == name);
        if self.spellings.len() < MOST_SPELLINGS {
            self.spellings.insert(self.name.clone(), column);
        }
        let mut unknown = self.unknown.borrow_mut();
        if column.is_none() && unknown.len() < MOST_NAMES {
            unknown.insert(name);
        }
        column
    }
}

impl Read for MemberNames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        buffer[..n].iter().for_each(|&byte| self.pass(byte));
        match self.twice {
            Some((column, line)) => {
                let name = self.schema.field(column).name();
                Err(io::Error::other(format!("line {line} has an object with the member {name:?} twice")))
            }
            None => Ok(n),
        }
    }
}

fn json_rows(reader: Box<dyn Read>, args: &InputArgs, target: &Target<'_>) -> Result<Rows<WrongRows>, Failure> {
    let mut unknown = Rc::default();
    let (schema, reader, strict): (_, Box<dyn Read>, _) = match target {
        Target::Given(schema) => {
            let reader = MemberNames::new(reader, schema.clone());
            unknown = reader.unknown.clone();
            (schema.clone(), Box::new(reader), false)
        }
        Target::Inferred { key } => {
            let mut sample = BufReader::new(Recorder::new(reader));
            let (found, _) =
                arrow_json::reader::infer_json_schema(&mut sample, Some(args.infer_rows)).map_err(not_inferred)?;
            // A field that first appears later is an error, not dropped.
            let schema = inferred(&found, key)?;
            let reader = MemberNames::new(sample.into_inner().rewound(), schema.clone());
            (schema, Box::new(reader), true)
        }
    };
    let in_file = in_text(&schema, |ty| ty.is_integer() || exact::loses_digits(ty));
    let reader: Box<dyn BufRead> = Box::new(BufReader::new(reader));
    let batches = arrow_json::ReaderBuilder::new(in_file)
        .with_batch_size(args.batch_rows)
        .with_strict_mode(strict)
        .with_coerce_primitive(true)
        .build(reader)
        .map_err(arrow_failure)?;
    let batches = batches.map(|batch| batch.map_err(WrongRows::from));
    // Which there are is known when all are read.
    let told = std::iter::from_fn(move || {
        let names: Vec<String> = unknown.take().into_iter().collect();
        tell_passed_over(&names.join(", "));
        None
    });
    Ok(Rows { schema, batches: Box::new(batches.chain(told)) })
}

fn arrow_rows(mut reader: Box<dyn Read>, target: &Target<'_>) -> Result<Rows<WrongRows>, Failure> {
    let mut unit = || peek(&mut reader, ARROW_FILE_MAGIC.len() as u64).map_err(|e| Failure::input(e.to_string()));
    let mut head = unit()?;
    if head == ARROW_FILE_MAGIC {
        // Writers pad the magic number to their alignment, with zeros; no message begins with eight of them.
        head = unit()?;
        while head == [0; ARROW_FILE_MAGIC.len()] {
            head = unit()?;
        }
    }
    let stream = arrow_ipc::reader::StreamReader::try_new(BufReader::new(Cursor::new(head).chain(reader)), None)
        .map_err(arrow_failure)?;
    distinct(&stream.schema())?;
    let schema = match target {
        Target::Given(schema) => schema.clone(),
        Target::Inferred { key } => inferred(&stream.schema(), key)?,
    };
    compare_columns(&stream.schema(), &schema)?;
    Ok(Rows { schema, batches: Box::new(stream.map(|batch| batch.map_err(WrongRows::from))) })
}

fn arrow_failure(error: ArrowError) -> Failure {
    Failure::input(match error {
        ArrowError::CsvError(text) | ArrowError::JsonError(text) | ArrowError::ParseError(text) => text,
        ArrowError::IoError(_, error) => error.to_string(),
        _ => error.to_string(),
    })
}

fn not_inferred(error: ArrowError) -> Failure {
    WrongRows::from(error).into_failure(true)
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

fn no_columns() -> Failure {
    Failure::input("it has no columns").hint("is it empty?")
}

/// The schema of a table for what was found: plain types, key columns not null, all else nullable.
fn inferred(found: &Schema, key: &[String]) -> Result<SchemaRef, Failure> {
    if key.is_empty() {
        return Err(Failure::usage("which columns are the primary key?").hint("--key COLUMN,COLUMN…"));
    }
    if found.fields().is_empty() {
        return Err(no_columns());
    }
    for name in key {
        if found.field_with_name(name).is_err() {
            let names: Vec<_> = found.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Failure::usage(format!("--key: the input has no column {name:?}"))
                .hint(format!("it has {}", names.join(", "))));
        }
    }
    let fields = found.fields().iter().map(|field| {
        let ty = stored_type(field.data_type()).ok_or_else(|| {
            Failure::input(format!(
                "column {:?} is of type {}, which tables cannot store",
                field.name(),
                field.data_type()
            ))
            .hint("--schema with the columns wanted leaves it out")
        })?;
        Ok(Field::new(field.name(), ty, !key.contains(field.name())))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>, Failure>>()?)))
}

/// The type that a table stores values of `ty` as.
fn stored_type(ty: &DataType) -> Option<DataType> {
    Some(match ty {
        // Nothing but nulls so far.
        DataType::Null | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date64 => DataType::Date32,
        DataType::Float16 => DataType::Float32,
        DataType::Dictionary(_, values) => stored_type(values)?,
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Timestamp(..)
        | DataType::Decimal128(..) => ty.clone(),
        _ => return None,
    })
}

/// The schema as a reader of text is to read it: with every column nullable, so that a null in a key column is found
/// here and named.
fn in_text(schema: &SchemaRef, as_text: impl Fn(&DataType) -> bool) -> SchemaRef {
    let field = |field: &Field| field.clone().with_nullable(true).with_data_type(read_as(field.data_type(), &as_text));
    let fields: Vec<_> = schema.fields().iter().map(|found| field(found)).collect();
    Arc::new(Schema::new(fields))
}

/// The type to be read for values of type `ty`: text, where it says so.
fn read_as(ty: &DataType, as_text: impl Fn(&DataType) -> bool) -> DataType {
    if as_text(ty) { DataType::Utf8 } else { ty.clone() }
}

fn distinct(schema: &Schema) -> Result<(), Failure> {
    let mut names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Failure::input(format!("two columns are named {:?}", pair[0]))),
        None => Ok(()),
    }
}

/// Says which columns the input lacks, and which of its own are passed over, also where it has no rows. One that may
/// not be null must be there, unless it has a default.
fn compare_columns(found: &SchemaRef, schema: &SchemaRef) -> Result<(), Failure> {
    let is_missing = |field: &Arc<Field>| found.field_with_name(field.name()).is_err();
    let lacks = |field: &&Arc<Field>| !field.is_nullable() && !has_default(field) && is_missing(field);
    if let Some(field) = schema.fields().iter().find(lacks) {
        if found.fields().is_empty() {
            return Err(no_columns());
        }
        let columns = found.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("it has no column {:?}, which may not be null", field.name());
        return Err(Failure::input(message).hint(format!("its columns: {columns}")));
    }
    let (with_default, without): (Vec<_>, Vec<_>) =
        schema.fields().iter().filter(|field| is_missing(field)).partition(|field| has_default(field));
    for (columns, what) in [(with_default, "have their defaults"), (without, "are null")] {
        if !columns.is_empty() {
            let names: Vec<&str> = columns.iter().map(|field| field.name().as_str()).collect();
            eprintln!("mycelium: columns that the input lacks {what}: {}", names.join(", "));
        }
    }
    let unknown = found.fields().iter().map(|field| field.name().as_str());
    let unknown: Vec<&str> = unknown.filter(|name| schema.field_with_name(name).is_err()).collect();
    tell_passed_over(&unknown.join(", "));
    Ok(())
}

fn has_default(field: &Field) -> bool {
    field.metadata().contains_key(DEFAULT)
}

fn tell_passed_over(names: &str) {
    if !names.is_empty() {
        eprintln!("mycelium: columns of the input that the table lacks are passed over: {names}");
    }
}

/// The batch in the form of `schema`: columns by name, missing ones null, or left out if they have a default, types by
/// a cast that loses nothing. Instants without a zone are in UTC.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, WrongRows> {
    let column = |field: &Arc<Field>| -> Result<ArrayRef, WrongRows> {
        let column = match batch.column_by_name(field.name()) {
            None => new_null_array(field.data_type(), batch.num_rows()),
            Some(column) if column.data_type() == field.data_type() => column.clone(),
            Some(column) => exact::cast(column, &in_utc(field.data_type()))
                .and_then(|column| exact::cast(&column, field.data_type()))
                .map_err(|e| WrongRows::Type(format!("column {:?}: {e}", field.name())))?,
        };
        if !field.is_nullable() && column.null_count() > 0 {
            let message = format!("column {:?} must not be null, and is in some row", field.name());
            return Err(WrongRows::Other(Failure::input(message)));
        }
        Ok(column)
    };
    let is_given = |field: &&Arc<Field>| !has_default(field) || batch.column_by_name(field.name()).is_some();
    let fields: Vec<Arc<Field>> = schema.fields().iter().filter(is_given).cloned().collect();
    let columns = fields.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(WrongRows::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int32Type, Int64Type};

    fn args() -> InputArgs {
        InputArgs { format: None, delimiter: ',', no_header: false, null: Vec::new(), infer_rows: 100, batch_rows: 2 }
    }

    fn read(bytes: &[u8], args: &InputArgs, target: &Target<'_>) -> Result<(SchemaRef, Vec<RecordBatch>), Failure> {
        let raw = Box::new(Cursor::new(bytes.to_vec()));
        let rows = rows(raw, Path::new("-"), args, target, &ProgressBar::hidden())?;
        Ok((rows.schema, rows.batches.collect::<Result<Vec<_>, _>>()?))
    }

    fn infer(bytes: &[u8], args: &InputArgs, key: &str) -> Result<(SchemaRef, Vec<RecordBatch>), Failure> {
        read(bytes, args, &Target::Inferred { key: &[key.to_owned()] })
    }

    const CSV: &str = "id,name,score\n1,a,1.5\n2,NA,\n3,c,NA\n";

    #[test]
    fn input_that_would_be_taken_for_something_else_is_refused() {
        let refusal = |bytes: &[u8]| infer(bytes, &args(), "id").expect_err("it is no input").to_string();
        assert!(refusal(b"id,name\n").contains("no rows"), "columns without rows have no types");
        assert!(refusal(&[0x1f, 0x8b, 8, 0]).contains("gzip"));
        assert!(refusal(b"PAR1").contains("Parquet"));
        assert!(refusal(b" [\n{\"id\":1}]").contains("a JSON array\n  hint: JSON lines"));
    }

    #[test]
    fn members_that_a_schema_lacks_are_collected_once() {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let first = r#"{"id":1,"a":{"inner":[{"x":1},"y"]},"b, \"c\"":"\\"}"#;
        let second = r#"{"a":"d\",\"e\":","\u0069d":2,"f":[],"b, \"c\"":null}"#;
        let mut reader = MemberNames::new(Box::new(Cursor::new([first, second].concat())), schema);
        io::copy(&mut reader, &mut io::sink()).expect("in memory");
        assert_eq!(reader.unknown.take().into_iter().collect::<Vec<_>>(), ["a", "b, \"c\"", "f"]);
    }

    /// The last of them was taken, and the others were lost without a word.
    #[test]
    fn members_that_an_object_has_twice_are_refused() {
        let given = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("v", DataType::Int64, true),
        ]));
        let twice = b"{\"id\":1,\"v\":5}\n{\"id\":2,\"v\":6,\"\\u0076\":7}\n";
        for read in [read(twice, &args(), &Target::Given(given.clone())), infer(twice, &args(), "id")] {
            let error = read.expect_err("which of them?").to_string();
            assert!(error.contains("line 2") && error.contains("\"v\" twice") && !error.contains("hint"), "{error}");
        }
        // What is passed over may be there as often as it likes, and what lies within it.
        let others = b"{\"id\":1,\"x\":{\"v\":1,\"v\":2},\"x\":[{\"id\":3}],\"v\":3}\n{\"v\":4,\"id\":2}\n";
        let (_, batches) = read(others, &args(), &Target::Given(given)).expect("each once");
        let values: Vec<_> =
            batches.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().iter().flatten()).collect();
        assert_eq!(values, [3, 4]);
    }

    /// They were infinite, or 0.
    #[test]
    fn numbers_that_a_float_cannot_hold_are_refused() {
        let given = |ty: DataType| {
            Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("v", ty, true)]))
        };
        let read_both = |number: &str, ty: &DataType| {
            let (csv, json) = (format!("id,v\n1,{number}\n"), format!("{{\"id\":1,\"v\":{number}}}\n"));
            [csv, json].map(|text| read(text.as_bytes(), &args(), &Target::Given(given(ty.clone()))))
        };
        for (number, ty) in [
            ("1e400", DataType::Float64),
            ("-1e400", DataType::Float64),
            ("1e-400", DataType::Float64),
            ("1e39", DataType::Float32),
            ("1e-60", DataType::Float32),
        ] {
            for read in read_both(number, &ty) {
                let error = read.expect_err(number).to_string();
                assert!(error.contains(number) && error.contains("\"v\""), "{error}");
            }
        }
        for number in ["0", "-0.0", "0e5", "0.1", "1e23", "5e-324"] {
            let read = read_both(number, &DataType::Float64).map(|read| read.expect(number).1);
            let expected: f64 = number.parse().expect("a number");
            for batches in read {
                let found = batches[0].column(1).as_primitive::<Float64Type>().value(0);
                assert_eq!(found.to_bits(), expected.to_bits(), "{number}");
            }
        }
        let (_, batches) =
            read(b"id,v\n1,inf\n2,NaN\n3,\n", &args(), &Target::Given(given(DataType::Float64))).expect("written out");
        assert!(
            batches[0].column(1).as_primitive::<Float64Type>().value(0).is_infinite()
                && batches[1].column(1).is_null(0)
        );
    }

    /// It was that of the line before; and a table that is there was told to look at more rows.
    #[test]
    fn a_value_of_another_type_is_named_with_its_line() {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let headless = InputArgs { no_header: true, ..args() };
        for (args, bytes) in [(args(), &b"id\n1\n2\n3\nx\n"[..]), (headless, b"1\n2\n3\n4\nx\n")] {
            let error = read(bytes, &args, &Target::Given(schema.clone())).expect_err("no number").to_string();
            assert!(error.contains("'x'") && error.contains("at line 5.") && !error.contains("hint"), "{error}");
        }
    }

    /// The rest of the file was one field of the last row.
    #[test]
    fn a_quote_that_is_never_closed_is_refused() {
        let rows = (0..1000).map(|id| if id == 500 { "500,\"oops500\n".to_owned() } else { format!("{id},n\n") });
        let open = format!("id,name\n{}", rows.collect::<String>());
        let few = InputArgs { infer_rows: 2, ..args() };
        for args in [args(), few] {
            let error = infer(open.as_bytes(), &args, "id").expect_err("it swallows rows").to_string();
            assert!(error.contains("line 502 opens is never closed") && !error.contains("hint"), "{error}");
        }
        let closed = "\u{feff}\"id\",name\n1,\"a\n\"\"b\"\"\"\n2,5\" screen\n3,\"\"\n4,\"x\"";
        let (_, batches) = infer(closed.as_bytes(), &args(), "id").expect("well formed");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 4);
    }

    #[test]
    fn a_column_of_the_key_that_the_input_lacks_is_named() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
        ]));
        let error = read(b"ID,name\n1,a\n", &args(), &Target::Given(schema)).expect_err("there is no id").to_string();
        assert!(error.contains("no column \"id\"") && error.contains("ID, name"), "{error}");
    }

    #[test]
    fn csv_is_inferred_with_nulls_and_key() {
        let args = InputArgs { null: vec!["NA".into()], ..args() };
        for packed in [CSV.as_bytes().to_vec(), zstd::encode_all(CSV.as_bytes(), 1).expect("packs in memory")] {
            let (schema, batches) = infer(&packed, &args, "id").expect("well formed");
            let types: Vec<_> = schema.fields().iter().map(|f| (f.data_type().clone(), f.is_nullable())).collect();
            assert_eq!(types, [(DataType::Int64, false), (DataType::Utf8, true), (DataType::Float64, true)]);
            assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [2, 1]);
            assert_eq!(batches[1].column(0).as_primitive::<Int64Type>().value(0), 3);
            assert!(
                batches[0].column(1).is_null(1) && batches[0].column(2).is_null(1) && batches[1].column(2).is_null(0)
            );
        }
    }

    #[test]
    fn a_given_schema_takes_columns_by_name() {
        let given = Arc::new(Schema::new(vec![
            Field::new("score", DataType::Float64, true),
            Field::new("id", DataType::Int32, false),
            Field::new("extra", DataType::Utf8, true),
        ]));
        let (_, batches) =
            read(b"id,name,score\n7,x,2\n", &args(), &Target::Given(given.clone())).expect("well formed");
        assert_eq!(batches[0].column(1).as_primitive::<Int32Type>().value(0), 7);
        assert_eq!(batches[0].column(0).as_primitive::<Float64Type>().value(0), 2.0);
        assert!(batches[0].column(2).is_null(0));
        let json = br#"{"id": 7, "score": 2.5, "unknown": [1]}"#;
        let (_, batches) = read(json, &args(), &Target::Given(given.clone())).expect("well formed");
        assert_eq!(batches[0].column(0).as_primitive::<Float64Type>().value(0), 2.5);
        let headless = InputArgs { no_header: true, ..args() };
        let (_, batches) = read(b"1.5,8,t\n", &headless, &Target::Given(given)).expect("well formed");
        assert_eq!(batches[0].column(1).as_primitive::<Int32Type>().value(0), 8);
    }

    #[test]
    fn numbers_that_a_column_cannot_hold_are_not_cut() {
        let late = InputArgs { infer_rows: 1, ..args() };
        assert!(infer(b"{\"id\":1,\"v\":1}\n{\"id\":2,\"v\":2.7}\n", &late, "id").is_err());
        let given = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        for (json, found) in [("7.9", None), ("8.0", Some(8)), ("-9007199254740993", Some(-9_007_199_254_740_993))] {
            let read = read(format!("{{\"id\": {json}}}").as_bytes(), &args(), &Target::Given(given.clone()));
            let values = read.ok().map(|(_, batches)| batches[0].column(0).as_primitive::<Int64Type>().value(0));
            assert_eq!(values, found, "{json}");
        }
        let floats = Arc::new(Schema::new(vec![Field::new("id", DataType::Float64, false)]));
        let column: ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![1.9]));
        let mut stream = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &floats).expect("in memory");
        stream.write(&RecordBatch::try_new(floats, vec![column]).expect("one column")).expect("in memory");
        assert!(read(&stream.into_inner().expect("in memory"), &args(), &Target::Given(given)).is_err());
        let cents = Arc::new(Schema::new(vec![Field::new("id", DataType::Decimal128(9, 2), false)]));
        assert!(read(b"id\n1.239\n", &args(), &Target::Given(cents.clone())).is_err());
        assert!(read(b"id\n1.23\n", &args(), &Target::Given(cents)).is_ok());
    }

    #[test]
    fn json_lines_and_arrow_in_both_forms_agree() {
        let json = b"{\"id\":1,\"name\":\"a\"}\n{\"id\":2,\"name\":null}\n{\"id\":3}\n";
        let (schema, batches) = infer(json, &args(), "id").expect("well formed");
        let mut file = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &schema).expect("in memory");
        let mut stream = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &schema).expect("in memory");
        for batch in &batches {
            file.write(batch).expect("in memory");
            stream.write(batch).expect("in memory");
        }
        for bytes in [file.into_inner().expect("in memory"), stream.into_inner().expect("in memory")] {
            let (found_schema, found) = infer(&bytes, &args(), "id").expect("well formed");
            assert_eq!(found_schema, schema);
            assert_eq!(found, batches);
        }
    }

    #[test]
    fn wrong_input_is_told_in_words() {
        let error = |bytes: &[u8], key: &str| infer(bytes, &args(), key).expect_err("refused").to_string();
        assert!(error(CSV.as_bytes(), "ID").contains("no column \"ID\"\n  hint: it has id, name, score"));
        assert!(error(b"id,id\n1,2\n", "id").contains("two columns are named \"id\""));
        assert!(error(b"id,x\n1,1\n,2\n", "id").contains("column \"id\" must not be null"));
        assert!(error(b"{\"id\":1,\"x\":{\"y\":2}}\n", "id").contains("which tables cannot store"));
        assert!(error(b"{\"id\":1\n", "id").contains("stdin"));
        assert!(error(b"\xff\xff\xff\xff\x00\x00\x00\x7fxx", "id").contains("stdin"));
        assert!(error(b"\x28\xb5\x2f\xfdgarbage", "id").contains("stdin"));
        assert!(error(b"", "id").contains("no column"));
        let late = InputArgs { infer_rows: 1, ..args() };
        let late = |bytes: &[u8]| infer(bytes, &late, "id").expect_err("refused").to_string();
        assert!(late(b"id\n1\nx\n").contains("--infer-rows"));
        assert!(!late(b"id\n1\n2,3\n").contains("--infer-rows"), "no type makes one field of two");
        assert!(!late(b"{\"id\":1}\n{\"id\"}\n").contains("--infer-rows"), "no type makes JSON of it");
        assert!(late(b"{\"id\":1}\n{\"id\":2,\"new\":3}\n").contains("new"));
    }
}
