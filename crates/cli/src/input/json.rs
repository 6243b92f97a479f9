//! Rows of JSON lines.
//!
//! Arrow's reader gives null for a member that an object lacks and for one that is null. So the names of members are
//! looked at while the bytes pass by ([`MemberNames`]): the n-th object is the n-th row, and rows whose object lacks a
//! column that has a default get it ([`with_defaults`]).

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, Scalar};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::zip::zip;

use super::conform::{in_text, inferred, tell_passed_over, typed};
use super::recorder::Recorder;
use super::wrong_rows::{WrongRows, arrow_failure, not_inferred};
use super::{Rows, Target};
use crate::args::InputArgs;
use crate::exact;
use crate::failure::Failure;

pub(super) fn json_rows(
    reader: Box<dyn Read>,
    args: &InputArgs,
    target: &Target<'_>,
) -> Result<Rows<WrongRows>, Failure> {
    let defaults = target.defaults();
    let (schema, reader, strict) = match target {
        Target::Given { columns, .. } => (columns.clone(), MemberNames::new(reader, columns.clone(), &defaults), false),
        Target::Inferred { key } => {
            let mut sample = BufReader::new(Recorder::new(reader));
            let (found, _) =
                arrow_json::reader::infer_json_schema(&mut sample, Some(args.infer_rows)).map_err(not_inferred)?;
            // A field that first appears later is an error, not dropped.
            let schema = inferred(&found, key)?;
            let reader = MemberNames::new(sample.into_inner().rewound(), schema.clone(), &defaults);
            (schema, reader, true)
        }
    };
    let members = reader.members.clone();
    let in_file = in_text(&schema, |ty| ty.is_integer() || exact::loses_digits(ty));
    let reader: Box<dyn BufRead> = Box::new(BufReader::new(reader));
    let mut batches = arrow_json::ReaderBuilder::new(in_file)
        .with_batch_size(args.batch_rows)
        .with_strict_mode(strict)
        .with_coerce_primitive(true)
        .build(reader)
        .map_err(arrow_failure)?;
    let (columns, mut first) = (schema.clone(), 1);
    let batches = std::iter::from_fn(move || {
        // Reading it notes members.
        let batch = batches.next();
        let mut members = members.borrow_mut();
        let Some(batch) = batch else {
            // Which there are is known when all are read.
            let names: Vec<String> = std::mem::take(&mut members.unknown).into_iter().collect();
            tell_passed_over(&names.join(", "));
            return None;
        };
        Some(batch.map_err(WrongRows::from).and_then(|batch| {
            let lacking = members.take_lacking(first, batch.num_rows());
            first += batch.num_rows() as u64;
            with_defaults(&batch, lacking, &columns, &defaults)
        }))
    });
    Ok(Rows { schema, batches: Box::new(batches) })
}

/// The batch with defaults in the rows that lack a column, as `lacking` says of columns by their places.
fn with_defaults(
    batch: &RecordBatch,
    lacking: Vec<(usize, BooleanArray)>,
    columns: &SchemaRef,
    defaults: &RecordBatch,
) -> Result<RecordBatch, WrongRows> {
    let (mut fields, mut arrays) = (batch.schema_ref().fields().to_vec(), batch.columns().to_vec());
    for (at, rows) in lacking {
        let column = columns.field(at);
        let Some(default) = defaults.column_by_name(column.name()) else { continue };
        let given: ArrayRef = typed(&arrays[at], column)?;
        arrays[at] = zip(&rows, &Scalar::new(default.clone()), &given)?;
        fields[at] = Arc::new(column.clone().with_nullable(true));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// What is found of the members of objects.
#[derive(Default)]
struct Members {
    /// Names that the schema lacks.
    unknown: BTreeSet<String>,
    /// By column that has a default: the objects without it, which are counted from 1.
    lacking: Vec<(usize, VecDeque<u64>)>,
}

impl Members {
    /// By column, which of so many rows lack it that begin with this object; none twice.
    fn take_lacking(&mut self, first: u64, rows: usize) -> Vec<(usize, BooleanArray)> {
        let end = first + rows as u64;
        let mut lacking = Vec::new();
        for (column, objects) in &mut self.lacking {
            let count = objects.partition_point(|object| *object < end);
            let mut lacks = vec![false; rows];
            for object in objects.drain(..count) {
                if let Some(row) = lacks.get_mut(object.saturating_sub(first) as usize) {
                    *row = true;
                }
            }
            if count > 0 {
                lacking.push((*column, BooleanArray::from(lacks)));
            }
        }
        lacking
    }
}

/// Collects what members the outermost JSON objects have that a schema lacks, and lack of it; and fails where an object
/// has one of the schema twice: readers take the last.
struct MemberNames {
    inner: Box<dyn Read>,
    schema: SchemaRef,
    members: Rc<RefCell<Members>>,
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
    fn new(inner: Box<dyn Read>, schema: SchemaRef, defaults: &RecordBatch) -> Self {
        let seen_in = vec![0; schema.fields().len()];
        let has_default = |at: &usize| defaults.column_by_name(schema.field(*at).name()).is_some();
        let lacking = (0..seen_in.len()).filter(has_default).map(|at| (at, VecDeque::new())).collect();
        let members = Members { lacking, ..Members::default() };
        Self {
            inner,
            schema,
            members: Rc::new(RefCell::new(members)),
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
            b'}' | b']' => {
                if byte == b'}' && self.depth == 1 {
                    self.end_object();
                }
                self.depth = self.depth.saturating_sub(1);
            }
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

    fn end_object(&self) {
        for (column, objects) in &mut self.members.borrow_mut().lacking {
            if self.seen_in[*column] != self.object {
                objects.push_back(self.object);
            }
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
        let mut members = self.members.borrow_mut();
        if column.is_none() && members.unknown.len() < MOST_NAMES {
            members.unknown.insert(name);
        }
        drop(members);
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{DataType, Field};
    use std::io::Cursor;

    #[test]
    fn members_that_a_schema_lacks_are_collected_once() {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let first = r#"{"id":1,"a":{"inner":[{"x":1},"y"]},"b, \"c\"":"\\"}"#;
        let second = r#"{"a":"d\",\"e\":","\u0069d":2,"f":[],"b, \"c\"":null}"#;
        let no_defaults = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let mut reader = MemberNames::new(Box::new(Cursor::new([first, second].concat())), schema, &no_defaults);
        io::copy(&mut reader, &mut io::sink()).expect("in memory");
        let unknown = std::mem::take(&mut reader.members.borrow_mut().unknown);
        assert_eq!(unknown.into_iter().collect::<Vec<_>>(), ["a", "b, \"c\"", "f"]);
    }
}
