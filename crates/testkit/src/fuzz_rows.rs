//! Fuzz targets of the row formats: bytes as what a user writes, as what is stored, and as a format's definition.
//!
//! The definitions are those that the golden bytes of `mycelium-encoding` were written with.

use std::sync::{Arc, LazyLock};

use mycelium_base::ColumnSet;
use mycelium_encoding::row_format::{Covers, RowFormat, RowScratch};
use mycelium_encoding::{ColumnState, RowFormatKind, Schema};

const SCHEMA: &str = "k int64 not null, i int32 not null, u uint64, f float64, s utf8, b binary, d decimal(10, 2), \
                      t timestamp(us, \"UTC\"), o bool, primary key (k)";
const RAW_SCHEMA: &str = "k int64 not null, v binary, primary key (k)";
const DESCRIPTOR_SET: &[u8] = include_bytes!("../../encoding/tests/golden/row-1.protoset");
const BINARY_SCHEMA: &[u8] = include_bytes!("../../encoding/tests/golden/row-1.bfbs");
/// Lines of a name, a colon and the hexadecimal digits of a stored value.
const GOLDEN: &str = include_str!("../../encoding/tests/golden/row-formats-1.txt");

struct Formats {
    schema: Arc<Schema>,
    packed: RowFormat,
    json: RowFormat,
    protobuf: RowFormat,
    flatbuffers: RowFormat,
    raw: RowFormat,
}

static FORMATS: LazyLock<Formats> = LazyLock::new(|| match Formats::make() {
    Ok(formats) => formats,
    Err(error) => panic!("cannot make the row formats: {error}"),
});

impl Formats {
    fn make() -> mycelium_base::Result<Self> {
        let schema = Arc::new(Schema::parse(SCHEMA)?.with_version(3));
        let given = |kind, definition| RowFormat::new(kind, schema.clone(), definition, "test.Row");
        Ok(Self {
            packed: RowFormat::packed(schema.clone()),
            json: RowFormat::json(schema.clone()),
            protobuf: given(RowFormatKind::Protobuf, DESCRIPTOR_SET)?,
            flatbuffers: given(RowFormatKind::FlatBuffers, BINARY_SCHEMA)?,
            raw: RowFormat::raw(Arc::new(Schema::parse(RAW_SCHEMA)?.with_version(3)))?,
            schema,
        })
    }

    fn all(&self) -> [&RowFormat; 5] {
        [&self.packed, &self.json, &self.protobuf, &self.flatbuffers, &self.raw]
    }
}

/// Stored values of a format and their payloads.
fn seeds(format: &RowFormat) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for line in GOLDEN.lines().filter(|line| line.starts_with(&format.kind().to_string())) {
        let digits = line.rsplit(' ').next().unwrap_or_default().as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
        let value: Vec<u8> = digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        let mut payload = Vec::new();
        if format.to_user(&value, &mut RowScratch::default(), &mut payload).is_ok() {
            seeds.push(payload);
        }
        seeds.push(value);
    }
    seeds
}

/// What is accepted as a payload must be valid as a value; what is valid must be readable; nothing panics.
fn run(format: &RowFormat, bytes: &[u8]) {
    let mut scratch = RowScratch::default();
    for covers in [Covers::Row, Covers::Said] {
        let mut value = Vec::new();
        if format.store(bytes, covers, &ColumnSet::new(), &mut scratch, &mut value).is_ok() {
            assert!(format.validate(&value).is_ok(), "a payload was stored as a value that is not valid");
            read(format, &value);
        }
    }
    read(format, bytes);
}

fn read(format: &RowFormat, value: &[u8]) {
    let (mut scratch, mut out) = (RowScratch::default(), Vec::new());
    let valid = format.validate(value).is_ok();
    let schema = format.schema();
    let columns = || (0..schema.columns().len()).filter(|&column| !schema.is_primary_key(column));
    match format.read(value, None, &mut scratch) {
        Ok(mut row) => {
            let readable = columns().all(|column| row.get(column).is_ok());
            assert!(!valid || readable, "a column of a valid value cannot be read");
        }
        Err(_) => assert!(!valid, "a valid value cannot be read"),
    }
    let half: ColumnSet = columns().filter(|column| column % 2 == 0).collect();
    drop(format.project(value, &half, &mut scratch, &mut out));
    drop(format.overlay(value, value, &mut scratch, &mut out));
    if Arc::ptr_eq(schema, &FORMATS.schema) {
        out.clear();
        let converted = format.convert(&FORMATS.packed, value, None, &mut scratch, &mut out);
        assert!(!valid || converted.is_ok(), "a valid value cannot be converted");
        assert!(!valid || FORMATS.packed.validate(&out).is_ok(), "a valid value becomes a packed row that is not");
    }
}

pub(crate) fn json(bytes: &[u8]) {
    run(&FORMATS.json, bytes);
}

pub(crate) fn protobuf(bytes: &[u8]) {
    run(&FORMATS.protobuf, bytes);
}

pub(crate) fn flatbuffers(bytes: &[u8]) {
    run(&FORMATS.flatbuffers, bytes);
}

pub(crate) fn raw(bytes: &[u8]) {
    run(&FORMATS.raw, bytes);
}

pub(crate) fn definition(bytes: &[u8]) {
    let Ok(format) = RowFormat::decode_definition(FORMATS.schema.clone(), bytes) else { return };
    let mut again = Vec::new();
    format.encode_definition(&mut again);
    let decoded = RowFormat::decode_definition(FORMATS.schema.clone(), &again);
    assert!(decoded.is_ok_and(|decoded| decoded.definition() == format.definition()), "a definition changes");
    let mut value = Vec::new();
    let mut scratch = RowScratch::default();
    if format.encode_with(|_| ColumnState::Absent, &mut scratch, &mut value).is_ok() {
        assert!(format.validate(&value).is_ok(), "an empty patch is not valid");
    }
}

pub(crate) fn json_seeds() -> Vec<Vec<u8>> {
    let mut all = seeds(&FORMATS.json);
    all.push(
        br#" { "i" : -1, "s":"\ud83d\ude00", "f" : 1e-3, "b":"\u005cx00", "t":null , "d":1.5, "o" : false} "#.to_vec(),
    );
    all
}

pub(crate) fn protobuf_seeds() -> Vec<Vec<u8>> {
    seeds(&FORMATS.protobuf)
}

pub(crate) fn flatbuffers_seeds() -> Vec<Vec<u8>> {
    seeds(&FORMATS.flatbuffers)
}

pub(crate) fn raw_seeds() -> Vec<Vec<u8>> {
    seeds(&FORMATS.raw)
}

pub(crate) fn definition_seeds() -> Vec<Vec<u8>> {
    let encoded = |format: &&RowFormat| {
        let mut bytes = Vec::new();
        format.encode_definition(&mut bytes);
        bytes
    };
    FORMATS.all().iter().map(encoded).collect()
}
