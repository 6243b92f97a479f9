//! Definitions of the row formats that are given one at run time, for the tables of histories: a field for each column
//! outside the key, as a compiler would write it.

use flatbuffers::FlatBufferBuilder;
use flatbuffers_reflection::reflection::{self, BaseType};
use mycelium_encoding::{Column, ColumnType, RowFormatKind, Schema};
use mycelium_engine::RowFormatDefinition;
use prost_reflect::prost::Message;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, OneofDescriptorProto,
};

const PACKAGE: &str = "test";
const MESSAGE: &str = "Row";

/// That of a format for tables of this schema.
pub(crate) fn definition_of(kind: RowFormatKind, schema: &Schema) -> RowFormatDefinition {
    let columns: Vec<&Column> = schema.value_columns().iter().map(|column| &schema.columns()[column]).collect();
    let definition = match kind {
        RowFormatKind::Protobuf => descriptor_set(&columns),
        RowFormatKind::FlatBuffers => binary_schema(&columns),
        _ => return RowFormatDefinition { kind, ..RowFormatDefinition::default() },
    };
    RowFormatDefinition { kind, definition, root: format!("{PACKAGE}.{MESSAGE}") }
}

/// What a column's field is in Protobuf and in FlatBuffers.
fn types_of(column: &Column) -> (Type, BaseType) {
    match column.ty {
        ColumnType::Bool => (Type::Bool, BaseType::Bool),
        ColumnType::Int16 => (Type::Sint32, BaseType::Short),
        ColumnType::Int64 => (Type::Int64, BaseType::Long),
        ColumnType::Utf8 | ColumnType::Decimal128(..) => (Type::String, BaseType::String),
        ColumnType::Binary => (Type::Bytes, BaseType::Vector),
        _ => unreachable!("the tables of histories have no such column"),
    }
}

/// A proto3 message; a column that may be null has presence.
fn descriptor_set(columns: &[&Column]) -> Vec<u8> {
    let mut message = DescriptorProto { name: Some(MESSAGE.to_owned()), ..Default::default() };
    for (number, column) in (1..).zip(columns) {
        let oneof = message.oneof_decl.len() as i32;
        message.field.push(FieldDescriptorProto {
            name: Some(column.name.clone()),
            number: Some(number),
            label: Some(Label::Optional.into()),
            r#type: Some(types_of(column).0.into()),
            proto3_optional: column.nullable.then_some(true),
            oneof_index: column.nullable.then_some(oneof),
            ..Default::default()
        });
        if column.nullable {
            let name = Some(format!("_{}", column.name));
            message.oneof_decl.push(OneofDescriptorProto { name, ..Default::default() });
        }
    }
    let file = FileDescriptorProto {
        name: Some("row.proto".to_owned()),
        package: Some(PACKAGE.to_owned()),
        syntax: Some("proto3".to_owned()),
        message_type: vec![message],
        ..Default::default()
    };
    FileDescriptorSet { file: vec![file] }.encode_to_vec()
}

/// A table; a number that may be null has null as its default.
fn binary_schema(columns: &[&Column]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut sorted: Vec<(u16, &Column)> = (0..).zip(columns.iter().copied()).collect();
    sorted.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let mut fields = Vec::new();
    for (id, column) in sorted {
        let (_, base_type) = types_of(column);
        let element = if base_type == BaseType::Vector { BaseType::UByte } else { BaseType::None };
        let name = builder.create_string(&column.name);
        let args = reflection::TypeArgs { base_type, element, ..Default::default() };
        let type_ = reflection::Type::create(&mut builder, &args);
        let args = reflection::FieldArgs {
            name: Some(name),
            type_: Some(type_),
            id,
            offset: 4 + 2 * id,
            optional: column.nullable || matches!(base_type, BaseType::String | BaseType::Vector),
            ..Default::default()
        };
        fields.push(reflection::Field::create(&mut builder, &args));
    }
    let fields = builder.create_vector(&fields);
    let name = builder.create_string(&format!("{PACKAGE}.{MESSAGE}"));
    let args = reflection::ObjectArgs { name: Some(name), fields: Some(fields), minalign: 1, ..Default::default() };
    let object = reflection::Object::create(&mut builder, &args);
    let objects = builder.create_vector(&[object]);
    let enums = builder.create_vector::<flatbuffers::ForwardsUOffset<reflection::Enum<'_>>>(&[]);
    let args = reflection::SchemaArgs {
        objects: Some(objects),
        enums: Some(enums),
        root_table: Some(object),
        ..Default::default()
    };
    let root = reflection::Schema::create(&mut builder, &args);
    reflection::finish_schema_buffer(&mut builder, root);
    builder.finished_data().to_vec()
}
