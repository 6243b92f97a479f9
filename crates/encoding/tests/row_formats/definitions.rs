//! Descriptor sets and binary FlatBuffers schemas for a table, as a compiler would write them.

use flatbuffers::FlatBufferBuilder;
use flatbuffers_reflection::reflection::{self, BaseType};
use mycelium_encoding::{ColumnType, Schema};
use prost_reflect::prost::Message;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, OneofDescriptorProto,
};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

/// How a column's field is declared.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) number: i32,
    pub(crate) proto: Type,
    /// Proto3 `optional`.
    pub(crate) has_presence: bool,
    pub(crate) flat: BaseType,
    pub(crate) id: u16,
    /// FlatBuffers `= null`.
    pub(crate) optional: bool,
    pub(crate) default: i64,
}

/// The kinds of Protobuf field and FlatBuffers type that hold a column's values; the first is the usual one.
fn kinds(ty: &ColumnType) -> (Vec<Type>, Vec<BaseType>) {
    let signed = vec![Type::Int64, Type::Sint64, Type::Sfixed64];
    let signed_32 = vec![Type::Int32, Type::Sint32, Type::Sfixed32, Type::Int64, Type::Sint64, Type::Sfixed64];
    let unsigned = vec![Type::Uint64, Type::Fixed64];
    let unsigned_32 = vec![Type::Uint32, Type::Fixed32, Type::Uint64, Type::Fixed64];
    let ints = [BaseType::Byte, BaseType::Short, BaseType::Int, BaseType::Long];
    let uints = [BaseType::UByte, BaseType::UShort, BaseType::UInt, BaseType::ULong];
    match ty {
        ColumnType::Bool => (vec![Type::Bool], vec![BaseType::Bool]),
        ColumnType::Int8 => (signed_32, ints.to_vec()),
        ColumnType::Int16 => (signed_32, ints[1..].to_vec()),
        ColumnType::Int32 | ColumnType::Date32 => (signed_32, ints[2..].to_vec()),
        ColumnType::Int64 | ColumnType::Timestamp(..) => (signed, vec![BaseType::Long]),
        ColumnType::UInt8 => (unsigned_32, uints.to_vec()),
        ColumnType::UInt16 => (unsigned_32, uints[1..].to_vec()),
        ColumnType::UInt32 => (unsigned_32, uints[2..].to_vec()),
        ColumnType::UInt64 => (unsigned, vec![BaseType::ULong]),
        ColumnType::Float32 => (vec![Type::Float], vec![BaseType::Float]),
        ColumnType::Float64 => (vec![Type::Double], vec![BaseType::Double]),
        ColumnType::Utf8 | ColumnType::Decimal128(..) => (vec![Type::String], vec![BaseType::String]),
        ColumnType::Binary => (vec![Type::Bytes], vec![BaseType::Vector]),
    }
}

/// The usual declaration: numbers and ids in order, presence where the column may be null.
pub(crate) fn usual(schema: &Schema) -> Vec<Declared> {
    let columns = (0..schema.columns().len()).filter(|&column| !schema.is_primary_key(column));
    columns
        .enumerate()
        .map(|(ordinal, column)| {
            let column = &schema.columns()[column];
            let (protos, flats) = kinds(&column.ty);
            Declared {
                name: column.name.clone(),
                number: ordinal as i32 + 1,
                proto: protos[0],
                has_presence: column.nullable,
                flat: flats[0],
                id: ordinal as u16,
                optional: column.nullable,
                default: 0,
            }
        })
        .collect()
}

/// Any declaration that fits: other kinds, numbers and ids in any order and with gaps, any presence, odd defaults.
pub(crate) fn drawn(schema: &Schema, rng: &mut SmallRng) -> Vec<Declared> {
    let mut declared = usual(schema);
    let mut numbers: Vec<i32> = (1..=2 * declared.len() as i32 + 3).collect();
    numbers.extend([1_023, 1_024, 1_025, 536_870_911]);
    let mut ids: Vec<u16> = (0..2 * declared.len() as u16 + 1).collect();
    for field in &mut declared {
        let column = &schema.columns()[schema.index_of(&field.name).unwrap()];
        let (protos, flats) = kinds(&column.ty);
        field.number = numbers.swap_remove(rng.random_range(0..numbers.len()));
        field.id = ids.swap_remove(rng.random_range(0..ids.len()));
        field.proto = *protos.choose(rng).unwrap();
        field.flat = *flats.choose(rng).unwrap();
        field.has_presence = rng.random();
        field.optional = rng.random();
        field.default = i64::from(column.ty != ColumnType::Bool && rng.random_ratio(1, 3)) * 7;
    }
    declared
}

fn descriptor(field: &Declared, oneof: i32) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(field.name.clone()),
        number: Some(field.number),
        label: Some(Label::Optional.into()),
        r#type: Some(field.proto.into()),
        proto3_optional: field.has_presence.then_some(true),
        oneof_index: field.has_presence.then_some(oneof),
        ..Default::default()
    }
}

/// The descriptor set of a proto3 message `test.Row`.
pub(crate) fn descriptor_set(declared: &[Declared]) -> Vec<u8> {
    let mut message = DescriptorProto { name: Some("Row".into()), ..Default::default() };
    for field in declared {
        message.field.push(descriptor(field, message.oneof_decl.len() as i32));
        if field.has_presence {
            let name = Some(format!("_{}", field.name));
            message.oneof_decl.push(OneofDescriptorProto { name, ..Default::default() });
        }
    }
    descriptor_set_of(message)
}

/// The descriptor set of one proto3 message in the package `test`.
pub(crate) fn descriptor_set_of(message: DescriptorProto) -> Vec<u8> {
    let file = FileDescriptorProto {
        name: Some("row.proto".into()),
        package: Some("test".into()),
        syntax: Some("proto3".into()),
        message_type: vec![message],
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

/// The binary schema of a table `test.Row`, as `flatc --binary --schema` writes it.
pub(crate) fn binary_schema(declared: &[Declared], identifier: Option<&str>) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut sorted: Vec<&Declared> = declared.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let mut fields = Vec::new();
    for field in sorted {
        let name = builder.create_string(&field.name);
        let element = if field.flat == BaseType::Vector { BaseType::UByte } else { BaseType::None };
        let args = reflection::TypeArgs { base_type: field.flat, element, ..Default::default() };
        let type_ = reflection::Type::create(&mut builder, &args);
        let is_float = matches!(field.flat, BaseType::Float | BaseType::Double);
        let is_text = matches!(field.flat, BaseType::String | BaseType::Vector);
        let args = reflection::FieldArgs {
            name: Some(name),
            type_: Some(type_),
            id: field.id,
            offset: 4 + 2 * field.id,
            default_integer: if is_float || is_text || field.optional { 0 } else { field.default },
            default_real: if is_float && !field.optional { field.default as f64 } else { 0.0 },
            optional: field.optional || is_text,
            ..Default::default()
        };
        fields.push(reflection::Field::create(&mut builder, &args));
    }
    let fields = builder.create_vector(&fields);
    let name = builder.create_string("test.Row");
    let args = reflection::ObjectArgs { name: Some(name), fields: Some(fields), minalign: 1, ..Default::default() };
    let object = reflection::Object::create(&mut builder, &args);
    let objects = builder.create_vector(&[object]);
    let enums = builder.create_vector::<flatbuffers::ForwardsUOffset<reflection::Enum<'_>>>(&[]);
    let file_ident = identifier.map(|text| builder.create_string(text));
    let args = reflection::SchemaArgs {
        objects: Some(objects),
        enums: Some(enums),
        file_ident,
        root_table: Some(object),
        ..Default::default()
    };
    let root = reflection::Schema::create(&mut builder, &args);
    reflection::finish_schema_buffer(&mut builder, root);
    builder.finished_data().to_vec()
}
