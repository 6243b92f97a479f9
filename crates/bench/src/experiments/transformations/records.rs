//! The records of the paper (Mycelium §5.3.2): 32 columns, strings of 24 bytes and 64-bit integers in turn, under keys
//! of 16 characters: about 500 bytes of values.
//!
//! 1. Record `index` has the key of [`with_text_key`]: random key order, and every key once.
//! 2. Its values follow from index and column alone, so that all stores get the same rows and answers can be compared.
//! 3. A row is written in Protobuf (a `string` or a `fixed64` per column) or in JSON. Our table is given these bytes as
//!    a user gives them, and checks every one; a store that knows no rows takes them unchecked, and a reader of it
//!    parses them with the same parser.

use std::io::Write;
use std::sync::Arc;

use mycelium_base::RowFormatKind;
use mycelium_base::coding::{put_bytes, put_varint};
use mycelium_encoding::row_format::{RowFormat, RowFormatDefinition, RowScratch};
use mycelium_encoding::{ColumnState, DatumRef, Schema};

use crate::keys::{KEY_LEN, mix, with_text_key};
use crate::store::Result;

/// Columns of a record beside its key; they are the schema's columns 1 to 32.
pub(super) const COLUMNS: usize = 32;

/// The column that queries of one column read: a number, the second of the fifth group of four.
pub(super) const QUERIED: usize = 18;

const TEXT_LEN: usize = 24;
const POOL_LEN: usize = 1 << 16;
const MESSAGE: &str = "Record";

/// The format in which records are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SourceFormat {
    /// Where nothing is converted from text.
    Protobuf,
    /// Where JSON is converted.
    Json,
}

impl SourceFormat {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Protobuf, Self::Json];

    /// The word in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Protobuf => "protobuf",
            Self::Json => "json",
        }
    }
}

/// Makes records of one format.
pub(super) struct Records {
    rows: RowFormat,
    pool: String,
}

impl Records {
    /// Of this format.
    pub(super) fn new(source: SourceFormat) -> Result<Self> {
        let schema = Arc::new(Schema::parse(&schema_text())?);
        let rows = match source {
            SourceFormat::Protobuf => {
                RowFormat::new(RowFormatKind::Protobuf, schema.clone(), &descriptor_set(&schema), MESSAGE)?
            }
            SourceFormat::Json => RowFormat::json(schema),
        };
        let letter = |index: u64| char::from(b'a' + (mix(index) % 26) as u8);
        let pool = (0..(POOL_LEN + TEXT_LEN) as u64).map(letter).collect();
        Ok(Self { rows, pool })
    }

    /// How rows are written and parsed.
    pub(super) fn rows(&self) -> &RowFormat {
        &self.rows
    }

    /// The same for a table's options.
    pub(super) fn definition(&self) -> RowFormatDefinition {
        let (definition, root) = self.rows.definition();
        RowFormatDefinition { kind: self.rows.kind(), definition: definition.to_vec(), root: root.to_owned() }
    }

    /// Hands over a record: its key, and its row with the key in front.
    pub(super) fn with_row<R>(&self, index: u64, take: impl FnOnce(&str, &[DatumRef<'_>]) -> R) -> R {
        with_text_key(index, |key| {
            let mut row = [DatumRef::Null; 1 + COLUMNS];
            row[0] = DatumRef::Utf8(key);
            for (column, value) in row.iter_mut().enumerate().skip(1) {
                *value = self.value(index, column);
            }
            take(key, &row)
        })
    }

    fn value(&self, index: u64, column: usize) -> DatumRef<'_> {
        let random = mix(index.wrapping_mul(COLUMNS as u64 * 2).wrapping_add(column as u64));
        if column.is_multiple_of(2) {
            return DatumRef::UInt64(random);
        }
        let at = random as usize % POOL_LEN;
        DatumRef::Utf8(&self.pool[at..at + TEXT_LEN])
    }

    /// Puts the stored form of a row into `out`.
    pub(super) fn encode(&self, row: &[DatumRef<'_>], scratch: &mut RowScratch, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        Ok(self.rows.encode_with(|column| ColumnState::from(row[column]), scratch, out)?)
    }

    /// Puts a row as a user writes it into `out`, without its key.
    pub(super) fn write_payload(&self, row: &[DatumRef<'_>], out: &mut Vec<u8>) {
        out.clear();
        let columns = row.iter().enumerate().skip(1);
        match self.rows.kind() {
            RowFormatKind::Json => {
                for (column, value) in columns {
                    let before = if column == 1 { '{' } else { ',' };
                    let name = &self.rows.schema().columns()[column].name;
                    // Nothing in the texts needs to be escaped, and a vector takes whatever is written.
                    drop(match value {
                        DatumRef::Utf8(text) => write!(out, "{before}\"{name}\":\"{text}\""),
                        DatumRef::UInt64(number) => write!(out, "{before}\"{name}\":{number}"),
                        _ => Ok(()),
                    });
                }
                out.push(b'}');
            }
            _ => {
                for (column, value) in columns {
                    match value {
                        DatumRef::Utf8(text) => put_nested(out, column as u64, text.as_bytes()),
                        DatumRef::UInt64(number) => {
                            put_varint(out, (column as u64) << 3 | 1);
                            out.extend_from_slice(&number.to_le_bytes());
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Bytes of key and value of a record, on average over a few.
    pub(super) fn mean_bytes(&self) -> Result<u64> {
        const SAMPLE: u64 = 64;
        let (mut scratch, mut value, mut bytes) = (RowScratch::default(), Vec::new(), 0);
        for index in 0..SAMPLE {
            self.with_row(index, |_, row| self.encode(row, &mut scratch, &mut value))?;
            bytes += (KEY_LEN + value.len()) as u64;
        }
        Ok(bytes / SAMPLE)
    }
}

fn schema_text() -> String {
    let column = |column: usize| {
        let ty = if column.is_multiple_of(2) { "uint64" } else { "utf8" };
        format!("c{column:02} {ty} not null, ")
    };
    let columns: String = (1..=COLUMNS).map(column).collect();
    format!("key utf8 not null, {columns}primary key (key)")
}

/// A `google.protobuf.FileDescriptorSet` with one file of one message, a field for each column outside the key. Numbers
/// are those of `google/protobuf/descriptor.proto`.
fn descriptor_set(schema: &Schema) -> Vec<u8> {
    const OPTIONAL: u64 = 1;
    const FIXED64: u64 = 6;
    const STRING: u64 = 9;
    let mut message = Vec::new();
    put_nested(&mut message, 1, MESSAGE.as_bytes());
    for (number, column) in schema.columns().iter().enumerate().skip(1) {
        let mut field = Vec::new();
        put_nested(&mut field, 1, column.name.as_bytes());
        put_number(&mut field, 3, number as u64);
        put_number(&mut field, 4, OPTIONAL);
        put_number(&mut field, 5, if number.is_multiple_of(2) { FIXED64 } else { STRING });
        put_nested(&mut message, 2, &field);
    }
    let mut file = Vec::new();
    put_nested(&mut file, 1, b"record.proto");
    put_nested(&mut file, 4, &message);
    put_nested(&mut file, 12, b"proto3");
    let mut set = Vec::new();
    put_nested(&mut set, 1, &file);
    set
}

fn put_nested(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_bytes(out, bytes);
}

fn put_number(out: &mut Vec<u8>, number: u64, value: u64) {
    put_varint(out, number << 3);
    put_varint(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_papers_size_and_are_read_back() {
        for (source, bytes) in [(SourceFormat::Protobuf, 560..640), (SourceFormat::Json, 900..1050)] {
            let records = Records::new(source).expect("format");
            assert!(bytes.contains(&records.mean_bytes().expect("rows")), "{source:?}");
            let (mut scratch, mut value) = (RowScratch::default(), Vec::new());
            records.with_row(7, |key, row| {
                assert_eq!(key, format!("{:016x}", mix(7)));
                records.encode(row, &mut scratch, &mut value).expect("row");
                let (mut payload, mut user) = (Vec::new(), Vec::new());
                records.write_payload(row, &mut payload);
                records.rows().to_user(&value, &mut scratch, &mut user).expect("value");
                assert!(payload == user, "{}", String::from_utf8_lossy(&payload));
                let mut read = records.rows().read(&value, None, &mut scratch).expect("value");
                for (column, &datum) in row.iter().enumerate().skip(1) {
                    assert_eq!(read.get(column).expect("column"), ColumnState::Value(datum));
                }
            });
        }
    }
}
