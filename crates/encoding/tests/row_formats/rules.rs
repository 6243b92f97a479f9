//! The written rules of the formats, one by one.

use std::sync::Arc;

use flatbuffers::FlatBufferBuilder;
use flatbuffers_reflection::reflection::BaseType;
use mycelium_base::{ColumnSet, ErrorKind};
use mycelium_encoding::row_format::{Covers, RowFormat, RowFormatKind, RowScratch};
use mycelium_encoding::{ColumnState, Datum, DatumRef, Schema};
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto, OneofDescriptorProto};

use crate::definitions::{Declared, binary_schema, descriptor_set, descriptor_set_of, usual};
use crate::drawing::{read, text};

fn schema_of(text: &str) -> Arc<Schema> {
    Arc::new(Schema::parse(text).unwrap())
}

fn protobuf(schema: &Arc<Schema>, declared: &[Declared]) -> RowFormat {
    RowFormat::new(RowFormatKind::Protobuf, schema.clone(), &descriptor_set(declared), "test.Row").unwrap()
}

fn flatbuffers(schema: &Arc<Schema>, declared: &[Declared]) -> RowFormat {
    let binary = binary_schema(declared, None);
    RowFormat::new(RowFormatKind::FlatBuffers, schema.clone(), &binary, "test.Row").unwrap()
}

fn store(format: &RowFormat, payload: &[u8], covers: Covers<'_>, nulls: &[usize]) -> mycelium_base::Result<Vec<u8>> {
    let (mut scratch, mut out) = (RowScratch::default(), Vec::new());
    let nulls = nulls.iter().copied().collect();
    format.store(payload, covers, &nulls, &mut scratch, &mut out).map(|()| out)
}

/// Every payload is refused at its position.
fn refused(format: &RowFormat, whole: bool, payloads: &[(&[u8], u64)]) {
    for (payload, at) in payloads {
        let shown = String::from_utf8_lossy(payload);
        match format.check(payload, whole) {
            Ok(()) => panic!("taken: {shown} {payload:02x?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                assert_eq!(error.offset(), Some(*at), "{shown} {payload:02x?}: {error}");
            }
        }
    }
}

#[test]
fn absent_null_and_default_are_three_things_in_json() {
    let schema = schema_of("k int8 not null, n int32, s utf8, primary key (k)");
    let format = RowFormat::json(schema);
    let patch = |payload: &[u8]| read(&format, &store(&format, payload, Covers::Said, &[]).unwrap()).unwrap();
    assert_eq!(patch(b"{}"), [None, None, None]);
    assert_eq!(patch(br#"{"n":null}"#), [None, Some(Datum::Null), None]);
    assert_eq!(patch(br#"{"n":0,"s":""}"#), [None, Some(Datum::Int32(0)), Some(Datum::Utf8(String::new()))]);
    let row = read(&format, &store(&format, b"{}", Covers::Row, &[]).unwrap()).unwrap();
    assert_eq!(row, [None, Some(Datum::Null), Some(Datum::Null)]);
    let columns = ColumnSet::from_iter([1]);
    let covered = store(&format, b" { } ", Covers::Columns(&columns), &[]).unwrap();
    assert_eq!(read(&format, &covered).unwrap(), [None, Some(Datum::Null), None]);
    assert!(store(&format, br#"{"s":""}"#, Covers::Columns(&columns), &[]).is_err());
}

#[test]
fn absent_null_and_default_are_three_things_in_protobuf() {
    let schema = schema_of("k int8 not null, n int32, s utf8, primary key (k)");
    let mut declared = usual(&schema);
    declared[0].has_presence = false;
    let format = protobuf(&schema, &declared);
    let read_back = |covers, nulls: &[usize]| read(&format, &store(&format, b"", covers, nulls).unwrap()).unwrap();
    let columns = ColumnSet::from_iter([1]);
    assert_eq!(read_back(Covers::Said, &[]), [None, None, None]);
    assert_eq!(read_back(Covers::Said, &[1]), [None, Some(Datum::Null), None]);
    assert_eq!(read_back(Covers::Columns(&columns), &[]), [None, Some(Datum::Int32(0)), None]);
    assert_eq!(read_back(Covers::Columns(&columns), &[1]), [None, Some(Datum::Null), None]);
    assert_eq!(read_back(Covers::Row, &[]), [None, Some(Datum::Int32(0)), Some(Datum::Null)]);
    assert_eq!(read_back(Covers::Row, &[1]), [None, Some(Datum::Null), Some(Datum::Null)]);
    // A value for a column that is said to be null, and one for a column that is not covered.
    assert_eq!(store(&format, &[8, 1], Covers::Row, &[1]).unwrap_err().offset(), Some(1));
    assert_eq!(store(&format, &[18, 0], Covers::Columns(&columns), &[]).unwrap_err().offset(), Some(2));
}

#[test]
fn absent_null_and_default_are_three_things_in_flatbuffers() {
    let schema = schema_of("k int8 not null, n int32, m int32, s utf8, primary key (k)");
    let mut declared = usual(&schema);
    (declared[0].optional, declared[0].default) = (false, 7);
    let format = flatbuffers(&schema, &declared);
    let mut builder = FlatBufferBuilder::new();
    let table = builder.start_table();
    let table = builder.end_table(table);
    builder.finish(table, None);
    let empty = builder.finished_data();
    let read_back = |covers, nulls: &[usize]| read(&format, &store(&format, empty, covers, nulls).unwrap()).unwrap();
    let null = || Some(Datum::Null);
    let columns = ColumnSet::from_iter([1, 2]);
    assert_eq!(read_back(Covers::Said, &[]), [None, None, None, None]);
    assert_eq!(read_back(Covers::Said, &[1]), [None, null(), None, None]);
    assert_eq!(read_back(Covers::Columns(&columns), &[]), [None, Some(Datum::Int32(7)), null(), None]);
    assert_eq!(read_back(Covers::Row, &[1]), [None, null(), null(), null()]);
    assert_eq!(read_back(Covers::Row, &[]), [None, Some(Datum::Int32(7)), null(), null()]);
}

#[test]
fn raw_rows_tell_null_from_empty_and_take_no_patch() {
    let format = RowFormat::raw(schema_of("k int8 not null, v binary, primary key (k)")).unwrap();
    let empty = store(&format, b"", Covers::Row, &[]).unwrap();
    assert_eq!(read(&format, &empty).unwrap(), [None, Some(Datum::Binary(Vec::new()))]);
    let null = store(&format, b"", Covers::Row, &[1]).unwrap();
    assert_eq!(read(&format, &null).unwrap(), [None, Some(Datum::Null)]);
    assert!(store(&format, b"x", Covers::Row, &[1]).is_err());
    assert!(store(&format, b"x", Covers::Said, &[]).is_err());
    assert!(format.check(b"x", false).is_err() && format.check(b"\0\xff", true).is_ok());
    for bad in ["v utf8", "v binary, w binary", "v int8"] {
        assert!(RowFormat::raw(schema_of(&format!("k int8 not null, {bad}, primary key (k)"))).is_err(), "{bad}");
    }
}

#[test]
fn json_that_would_lose_something_is_refused_where_it_stands() {
    let format = RowFormat::json(schema_of(
        "k int8 not null, n int8, u uint64, f float64, g float32, s utf8, b binary, d decimal(4, 2), t date32, \
         o bool, primary key (k)",
    ));
    refused(
        &format,
        true,
        &[
            (b"", 0),
            (b"[]", 0),
            (b"{", 1),
            (b"{} x", 3),
            (b"\xef\xbb\xbf{}", 0),
            (b"{}\0", 2),
            (br#"{"n":1,}"#, 7),
            (br#"{"n" 1}"#, 5),
            (br#"{"z":1}"#, 1),
            (br#"{"k":1}"#, 1),
            (br#"{"n":1,"n":1}"#, 7),
            (br#"{"n":1,"\u006e":1}"#, 7),
            (br#"{"n":null,"n":null}"#, 10),
            (br#"{"n":128}"#, 5),
            (br#"{"n":1.0}"#, 5),
            (br#"{"n":1e1}"#, 5),
            (br#"{"n":01}"#, 6),
            (br#"{"n":"1"}"#, 5),
            (br#"{"u":-1}"#, 5),
            (br#"{"u":18446744073709551616}"#, 5),
            (br#"{"f":1e400}"#, 5),
            (br#"{"f":9007199254740993}"#, 5),
            (br#"{"f":NaN}"#, 5),
            (br#"{"f":"nan"}"#, 5),
            (br#"{"g":16777217}"#, 5),
            (br#"{"g":1e39}"#, 5),
            (br#"{"g":1e-60}"#, 5),
            (br#"{"d":1.234}"#, 5),
            (br#"{"d":100}"#, 5),
            (br#"{"b":"00"}"#, 5),
            (br#"{"b":"\\x0"}"#, 5),
            (br#"{"t":"2023-02-29"}"#, 5),
            (br#"{"s":1}"#, 5),
            (br#"{"s":"\ud800"}"#, 6),
            (br#"{"s":"a\udc00b"}"#, 7),
            (br#"{"s":"\ud800\ud800"}"#, 6),
            (b"{\"s\":\"a\nb\"}", 7),
            (b"{\"s\":\"a\xffb\"}", 7),
            (br#"{"s":"\q"}"#, 7),
            (br#"{"s":{"s":{"s":{}}}}"#, 5),
            (br#"{"s":[[[[[[[[[["#, 5),
            (br#"{"o":tru}"#, 8),
            (br#"{"o":0}"#, 5),
        ],
    );
    refused(
        &RowFormat::json(schema_of("k int8 not null, n int8 not null, primary key (k)")),
        true,
        &[(b"{}", 2), (br#"{"n":null}"#, 5), (br#"{"n": null }"#, 6)],
    );
    let bomb = [&br#"{"s":"#[..], &b"[".repeat(1_000_000)].concat();
    refused(&format, true, &[(&bomb, 5)]);
    let taken = br#" {"d" : 1.5, "f":0.1, "s":"\ud83d\ude00\u0000", "b":"\u005cx0aFF", "g":"-inf", "n":-128} "#;
    let value = store(&format, taken, Covers::Row, &[]).unwrap();
    assert_eq!(&value[2..], taken, "text is kept");
    let mut scratch = RowScratch::default();
    let mut row = format.read(&value, None, &mut scratch).unwrap();
    assert_eq!(row.get(5).unwrap(), text("😀\0"));
    assert_eq!(row.get(6).unwrap(), ColumnState::Value(DatumRef::Binary(&[0x0a, 0xff])));
    assert_eq!(row.get(7).unwrap(), ColumnState::Value(DatumRef::Decimal128(150)));
}

/// It was stored with the row, since a dropped column has no name, and was looked for where it had stood.
#[test]
fn a_member_without_a_name_was_taken_for_a_dropped_column() {
    let schema = schema_of("k int8 not null, a int32, b int32, c int32, primary key (k)");
    let format = RowFormat::json(Arc::new(schema.without_column("b").unwrap()));
    refused(&format, true, &[(br#"{"a":1,"":2,"c":3}"#, 7), (br#"{"":2}"#, 1)]);
    let value = store(&format, br#"{"a":1,"c":3}"#, Covers::Row, &[]).unwrap();
    let mut scratch = RowScratch::default();
    let mut row = format.read(&value, None, &mut scratch).unwrap();
    assert_eq!(row.get(3).unwrap(), ColumnState::Value(DatumRef::Int32(3)));
}

#[test]
fn protobuf_that_would_lose_something_is_refused_where_it_stands() {
    let schema = schema_of("k int8 not null, n int8, u uint32, s utf8, o bool, z int32, f float32, primary key (k)");
    let mut declared = usual(&schema);
    declared[4].proto = Type::Sint32;
    let format = protobuf(&schema, &declared);
    let over_long = [8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0];
    refused(
        &format,
        true,
        &[
            (&[8], 1),
            (&[8, 0x80], 1),
            (&over_long, 1),
            (&[0x80], 0),
            (&[0, 1], 0),
            (&[0xff; 6], 0),
            (&[56, 1], 0),
            (&[8, 1, 8, 1], 2),
            (&[9, 1, 1, 1, 1, 1, 1, 1, 1], 0),
            (&[11, 12], 0),
            (&[8, 0x80, 1], 1),
            (&[16, 0xff, 0xff, 0xff, 0xff, 0x1f], 1),
            (&[26, 5, b'a'], 1),
            (&[26, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], 1),
            (&[26, 2, b'a', 0xff], 3),
            (&[32, 2], 1),
            (&[40, 0xff, 0xff, 0xff, 0xff, 0x7f], 1),
            (&[53, 0, 0, 0], 1),
        ],
    );
    // A varint that is longer than it must be is still its value.
    let value = store(&format, &[8, 0x81, 0x80, 0], Covers::Row, &[]).unwrap();
    assert_eq!(read(&format, &value).unwrap()[1], Some(Datum::Int8(1)));
    let decimal = schema_of("k int8 not null, d decimal(4, 2), primary key (k)");
    let mut declared = usual(&decimal);
    declared[0].has_presence = false;
    let format = protobuf(&decimal, &declared);
    refused(&format, true, &[(&[10, 0], 2), (b"\x0a\x051.234", 2)]);
    assert_eq!(read(&format, &store(&format, &[], Covers::Row, &[]).unwrap()).unwrap()[1], Some(Datum::Null));
    let strict = schema_of("k int8 not null, n int8 not null, primary key (k)");
    let mut declared = usual(&strict);
    declared[0].has_presence = true;
    refused(&protobuf(&strict, &declared), true, &[(&[], 0)]);
    assert!(protobuf(&strict, &declared).check(&[], false).is_ok());
}

/// Plain fields are found in a loop of their own, which ends at others and goes on behind them.
#[test]
fn protobuf_fields_are_found_in_any_order_and_behind_long_tags() {
    let schema = schema_of("k int8 not null, n int32, s utf8, d float64, b binary, primary key (k)");
    let format = protobuf(&schema, &usual(&schema));
    let packed = RowFormat::packed(schema.clone());
    let half = 0.5_f64.to_le_bytes();
    let fields: [(u8, &[u8]); 4] = [(8, &[7]), (18, b"\x02ab"), (25, &half), (34, b"\x01c")];
    let (text, bytes) = (Datum::Utf8("ab".into()), Datum::Binary(b"c".to_vec()));
    let cells = [None, Some(Datum::Int32(7)), Some(text), Some(Datum::Float64(0.5)), Some(bytes)];
    let write = |place: usize, has_long_tag: bool, payload: &mut Vec<u8>| {
        let (tag, piece) = fields[place];
        match has_long_tag {
            true => payload.extend_from_slice(&[tag | 0x80, 0]),
            false => payload.push(tag),
        }
        payload.extend_from_slice(piece);
    };
    let mut scratch = RowScratch::default();
    for drawn in 0..256 * 16 {
        let order = [drawn & 3, drawn >> 2 & 3, drawn >> 4 & 3, drawn >> 6 & 3];
        let long = |place: usize| drawn >> (8 + place) & 1 == 1;
        let mut payload = Vec::new();
        let mut twice = None;
        for (at, &place) in order.iter().enumerate() {
            if twice.is_none() && order[..at].contains(&place) {
                twice = Some(payload.len() as u64);
            }
            write(place, long(place), &mut payload);
        }
        if let Some(at) = twice {
            refused(&format, true, &[(&payload, at)]);
            continue;
        }
        let value = store(&format, &payload, Covers::Row, &[]).unwrap();
        assert_eq!(read(&format, &value).unwrap(), cells, "{payload:02x?}");
        for wanted in 0..16 {
            let columns: ColumnSet = (1..=4).filter(|column| wanted >> (column - 1) & 1 == 1).collect();
            let expected: Vec<_> =
                cells.iter().enumerate().map(|(at, cell)| cell.clone().filter(|_| columns.contains(at))).collect();
            for to in [&format, &packed] {
                let mut out = Vec::new();
                format.convert(to, &value, Some(&columns), &mut scratch, &mut out).unwrap();
                assert_eq!(read(to, &out).unwrap(), expected, "{wanted} of {payload:02x?}");
            }
        }
    }
}

#[test]
fn flatbuffers_that_would_lose_something_are_refused_where_they_stand() {
    let schema = schema_of("k int8 not null, n int8, s utf8, primary key (k)");
    let mut declared = usual(&schema);
    declared[0].flat = BaseType::Int;
    let format = flatbuffers(&schema, &declared);
    let make = |number: i32, extra: bool| {
        let mut builder = FlatBufferBuilder::new();
        let text = builder.create_string("ab");
        let table = builder.start_table();
        builder.push_slot_always::<i32>(4, number);
        builder.push_slot_always(6, text);
        if extra {
            builder.push_slot_always::<u8>(8, 1);
        }
        let table = builder.end_table(table);
        builder.finish(table, None);
        builder.finished_data().to_vec()
    };
    let good = make(5, false);
    format.check(&good, true).unwrap();
    format.check(&[&good[..], &[0; 3]].concat(), true).unwrap();
    let end = good.len() as u64;
    let wide = make(128, false);
    let number_at = wide.windows(4).position(|bytes| bytes == 128i32.to_le_bytes()).unwrap() as u64;
    let unknown = make(5, true);
    let vtable_at = unknown.windows(2).position(|bytes| bytes == [10, 0]).unwrap() as u64;
    let mut not_text = good.clone();
    let text_at = good.windows(2).position(|bytes| bytes == b"ab").unwrap();
    not_text[text_at + 1] = 0xff;
    let mut no_nul = good.clone();
    no_nul[text_at + 2] = 1;
    refused(
        &format,
        true,
        &[
            (&[], 0),
            (&[4, 0, 0, 0], 4),
            (&[0xff; 4], 4),
            (&wide, number_at),
            (&unknown, vtable_at + 8),
            (&not_text, text_at as u64 + 1),
            (&no_nul, text_at as u64 - 4),
            (&[&good[..], &[0, 1]].concat(), end + 1),
            (&[&good[..], &[0; 40]].concat(), text_at as u64 + 3 + 15),
        ],
    );
}

#[test]
fn definitions_that_do_not_fit_name_column_and_field() {
    let schema = schema_of("k int8 not null, n int64, s utf8 not null, primary key (k)");
    let field = |name: &str, number, kind: Type, label: Label| FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(number),
        r#type: Some(kind.into()),
        label: Some(label.into()),
        ..Default::default()
    };
    let s = || field("s", 2, Type::String, Label::Optional);
    let mut in_oneof = field("n", 1, Type::Int64, Label::Optional);
    in_oneof.oneof_index = Some(0);
    for (fields, told) in [
        (vec![s()], "\"n\""),
        (vec![field("n", 1, Type::Int32, Label::Optional), s()], "test.Row.n"),
        (vec![field("n", 1, Type::Uint64, Label::Optional), s()], "test.Row.n"),
        (vec![field("n", 1, Type::Int64, Label::Repeated), s()], "repeated"),
        (vec![in_oneof, s()], "oneof"),
    ] {
        let oneof = OneofDescriptorProto { name: Some("choice".into()), ..Default::default() };
        let has_oneof = fields[0].oneof_index.is_some();
        let oneof_decl = if has_oneof { vec![oneof] } else { Vec::new() };
        let message = DescriptorProto { name: Some("Row".into()), field: fields, oneof_decl, ..Default::default() };
        let set = descriptor_set_of(message);
        let error = RowFormat::new(RowFormatKind::Protobuf, schema.clone(), &set, "test.Row").unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
    let set = descriptor_set(&usual(&schema));
    for (kind, definition, root) in [
        (RowFormatKind::Protobuf, &set[..], "test.Other"),
        (RowFormatKind::Protobuf, &set[..set.len() - 1], "test.Row"),
        (RowFormatKind::FlatBuffers, &set[..], "test.Row"),
        (RowFormatKind::FlatBuffers, &[], "test.Row"),
        (RowFormatKind::Json, &set[..], ""),
        (RowFormatKind::Packed, &[], "test.Row"),
    ] {
        let error = RowFormat::new(kind, schema.clone(), definition, root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{kind}");
    }
    let mut declared = usual(&schema);
    declared[0].flat = BaseType::Int;
    let binary = binary_schema(&declared, None);
    let error = RowFormat::new(RowFormatKind::FlatBuffers, schema, &binary, "test.Row").unwrap_err();
    assert!(error.to_string().contains("\"n\""), "{error}");
    let narrow = schema_of("k int8 not null, n int8, primary key (k)");
    let mut declared = usual(&narrow);
    (declared[0].flat, declared[0].optional, declared[0].default) = (BaseType::Int, false, 300);
    let binary = binary_schema(&declared, None);
    let error = RowFormat::new(RowFormatKind::FlatBuffers, narrow, &binary, "test.Row").unwrap_err();
    assert!(error.to_string().contains("default"), "{error}");
}

#[test]
fn a_users_text_is_kept_until_it_is_split_or_merged() {
    let schema = schema_of("k int8 not null, n int32, s utf8, f float64, primary key (k)");
    let format = RowFormat::json(schema);
    let written = br#" { "f" : 1.50 , "s":"\u0061" } "#;
    let value = store(&format, written, Covers::Row, &[]).unwrap();
    let (mut scratch, mut out) = (RowScratch::default(), Vec::new());
    let said = format.to_user(&value, &mut scratch, &mut out).unwrap();
    assert_eq!(out, written);
    assert_eq!((said.columns.to_string(), said.nulls.to_string()), ("1-3".to_owned(), "1".to_owned()));
    out.clear();
    // What was left out of a row is null in a part of it, and does not become absent.
    format.project(&value, &ColumnSet::from_iter([1, 3]), &mut scratch, &mut out).unwrap();
    assert_eq!(out, b"\x24\x00{\"n\":null,\"f\":1.50}");
    out.clear();
    let patch = store(&format, b"{\"n\": 1e0}", Covers::Said, &[]);
    assert_eq!(patch.unwrap_err().offset(), Some(6));
    let patch = store(&format, b"{\"n\": 7}", Covers::Said, &[]).unwrap();
    format.overlay(&patch, &value, &mut scratch, &mut out).unwrap();
    assert_eq!(out[..2], [0x20, 0]);
    assert_eq!(&out[2..], br#"{"n":7,"s":"\u0061","f":1.50}"#);
}

#[test]
fn names_of_formats_are_read_back() {
    for kind in RowFormatKind::ALL {
        assert_eq!(kind.to_string().parse::<RowFormatKind>().unwrap(), kind);
        assert_eq!(RowFormatKind::from_tag(kind.tag()), Some(kind));
    }
    assert!("avro".parse::<RowFormatKind>().is_err() && RowFormatKind::from_tag(0).is_none());
}
