//! What other programs write is read, and what is written they read: prost-reflect, the FlatBuffers builder and its
//! verifier, serde_json.

use std::sync::Arc;

use flatbuffers::FlatBufferBuilder;
use flatbuffers_reflection::{SafeBuffer, reflection};
use mycelium_base::ColumnSet;
use mycelium_encoding::row_format::{Covers, RowFormat, RowFormatKind, RowScratch};
use mycelium_encoding::{ColumnType, Datum, Schema};
use prost_reflect::prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, Value};
use rand::Rng;

use crate::definitions::{binary_schema, descriptor_set, drawn, usual};
use crate::drawing::{assert_same, cells, for_seeds, read, schema, stored};

fn payload(format: &RowFormat, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    format.to_user(value, &mut RowScratch::default(), &mut out).unwrap();
    out
}

fn prost_value(kind: &Kind, datum: &Datum, ty: &ColumnType) -> Value {
    let integer: i128 = match datum {
        Datum::Bool(v) => return Value::Bool(*v),
        Datum::Float32(v) => return Value::F32(*v),
        Datum::Float64(v) => return Value::F64(*v),
        Datum::Utf8(v) => return Value::String(v.clone()),
        Datum::Binary(v) => return Value::Bytes(v.clone().into()),
        Datum::Decimal128(_) => return Value::String(datum.borrowed().display_as(ty).to_string()),
        Datum::Timestamp(v) => (*v).into(),
        other => other.to_string().parse().unwrap_or_else(|_| match other {
            Datum::Date32(days) => (*days).into(),
            _ => panic!("{other:?}"),
        }),
    };
    match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(integer as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(integer as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(integer as u32),
        _ => Value::U64(integer as u64),
    }
}

#[test]
fn protobuf_is_what_prost_reads_and_writes() {
    for_seeds(500, |rng| {
        let schema = schema(rng);
        let mut cells = cells(rng, &schema, true);
        for cell in &mut cells {
            // prost leaves out -0.0 as if it were 0.0, which loses it.
            match cell {
                Some(Datum::Float32(v)) if *v == 0.0 => *v = 0.0,
                Some(Datum::Float64(v)) if *v == 0.0 => *v = 0.0,
                _ => {}
            }
        }
        let set = descriptor_set(&drawn(&schema, rng));
        let format = RowFormat::new(RowFormatKind::Protobuf, schema.clone(), &set, "test.Row").unwrap();
        let message = DescriptorPool::decode(&set[..]).unwrap().get_message_by_name("test.Row").unwrap();
        let mut theirs = DynamicMessage::new(message.clone());
        let mut nulls = ColumnSet::new();
        for (position, column) in schema.columns().iter().enumerate() {
            match &cells[position] {
                None => {}
                Some(Datum::Null) => drop(nulls.insert(position)),
                Some(datum) => {
                    let field = message.get_field_by_name(&column.name).unwrap();
                    theirs.set_field(&field, prost_value(&field.kind(), datum, &column.ty));
                }
            }
        }
        let bytes = theirs.encode_to_vec();
        let (mut scratch, mut value) = (RowScratch::default(), Vec::new());
        format.store(&bytes, Covers::Row, &nulls, &mut scratch, &mut value).unwrap();
        assert_same(&read(&format, &value).unwrap(), &cells);

        let ours = payload(&format, &stored(&format, &cells));
        assert_eq!(DynamicMessage::decode(message, &ours[..]).unwrap().encode_to_vec(), bytes);
        assert_eq!(ours, bytes, "both write fields by number");
    });
}

#[test]
fn flatbuffers_are_what_the_verifier_takes() {
    for_seeds(500, |rng| {
        let schema = schema(rng);
        let whole = rng.random();
        let cells = cells(rng, &schema, whole);
        let binary = binary_schema(&drawn(&schema, rng), rng.random::<bool>().then_some("ROWS"));
        let format = RowFormat::new(RowFormatKind::FlatBuffers, schema.clone(), &binary, "test.Row").unwrap();
        let ours = payload(&format, &stored(&format, &cells));
        let definition = reflection::root_as_schema(&binary).unwrap();
        SafeBuffer::new(&ours, &definition).unwrap();
    });
}

#[test]
fn flatbuffers_of_the_usual_builder_are_read() {
    let schema = Arc::new(
        Schema::parse("id int64 not null, n int32, s utf8, b binary, d float64, t bool not null, primary key (id)")
            .unwrap(),
    );
    let binary = binary_schema(&usual(&schema), None);
    let format = RowFormat::new(RowFormatKind::FlatBuffers, schema, &binary, "test.Row").unwrap();
    let mut builder = FlatBufferBuilder::new();
    let bytes = builder.create_vector::<u8>(&[1, 2, 3]);
    let text = builder.create_string("spore");
    let table = builder.start_table();
    builder.push_slot_always::<i32>(4, -5);
    builder.push_slot_always(6, text);
    builder.push_slot_always(8, bytes);
    builder.push_slot_always::<f64>(10, 0.5);
    let table = builder.end_table(table);
    builder.finish(table, Some("ROWS"));
    let (mut scratch, mut value) = (RowScratch::default(), Vec::new());
    format.store(builder.finished_data(), Covers::Row, &ColumnSet::new(), &mut scratch, &mut value).unwrap();
    let expected = vec![
        None,
        Some(Datum::Int32(-5)),
        Some(Datum::Utf8("spore".into())),
        Some(Datum::Binary(vec![1, 2, 3])),
        Some(Datum::Float64(0.5)),
        Some(Datum::Bool(false)),
    ];
    assert_same(&read(&format, &value).unwrap(), &expected);
    assert_eq!(payload(&format, &value), builder.finished_data());
}

#[test]
fn json_is_what_serde_reads() {
    for_seeds(500, |rng| {
        let schema = schema(rng);
        let cells = cells(rng, &schema, true);
        let format = RowFormat::json(schema.clone());
        let ours = payload(&format, &stored(&format, &cells));
        let theirs: serde_json::Value = serde_json::from_slice(&ours).unwrap();
        for (column, cell) in schema.columns().iter().zip(&cells) {
            let member = &theirs[&column.name];
            match cell {
                None | Some(Datum::Null) => assert!(member.is_null()),
                Some(Datum::Bool(v)) => assert_eq!(member.as_bool(), Some(*v)),
                Some(Datum::Int64(v)) => assert_eq!(member.as_i64(), Some(*v)),
                Some(Datum::UInt64(v)) => assert_eq!(member.as_u64(), Some(*v)),
                Some(Datum::Utf8(v)) => assert_eq!(member.as_str(), Some(v.as_str())),
                Some(Datum::Float64(v)) if v.is_finite() => assert!(member.is_f64(), "{member}"),
                Some(_) => assert!(member.is_number() || member.is_string(), "{member}"),
            }
        }
    });
}
