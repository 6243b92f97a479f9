//! Rows of JSON lines.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use arrow_schema::SchemaRef;

use super::conform::{in_text, inferred, tell_passed_over};
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{DataType, Field, Schema};
    use std::io::Cursor;
    use std::sync::Arc;

    #[test]
    fn members_that_a_schema_lacks_are_collected_once() {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let first = r#"{"id":1,"a":{"inner":[{"x":1},"y"]},"b, \"c\"":"\\"}"#;
        let second = r#"{"a":"d\",\"e\":","\u0069d":2,"f":[],"b, \"c\"":null}"#;
        let mut reader = MemberNames::new(Box::new(Cursor::new([first, second].concat())), schema);
        io::copy(&mut reader, &mut io::sink()).expect("in memory");
        assert_eq!(reader.unknown.take().into_iter().collect::<Vec<_>>(), ["a", "b, \"c\"", "f"]);
    }
}
