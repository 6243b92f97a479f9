//! What is read, and what is refused, in each form.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int32Array, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema};

use super::*;

fn args() -> InputArgs {
    InputArgs { format: None, delimiter: ',', no_header: false, null: Vec::new(), infer_rows: 100, batch_rows: 2 }
}

fn read(bytes: &[u8], args: &InputArgs, target: &Target<'_>) -> Result<(SchemaRef, Vec<RecordBatch>), Failure> {
    let raw = Box::new(Cursor::new(bytes.to_vec()));
    let rows = rows(raw, Path::new("-"), args, target, &ProgressBar::hidden())?;
    Ok((rows.schema, rows.batches.collect::<Result<Vec<_>, _>>()?))
}

/// A table with these columns, without defaults.
fn table(columns: SchemaRef) -> Target<'static> {
    Target::Given { columns, defaults: RecordBatch::new_empty(Arc::new(Schema::empty())) }
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

/// The last of them was taken, and the others were lost without a word.
#[test]
fn members_that_an_object_has_twice_are_refused() {
    let given =
        Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("v", DataType::Int64, true)]));
    let twice = b"{\"id\":1,\"v\":5}\n{\"id\":2,\"v\":6,\"\\u0076\":7}\n";
    for read in [read(twice, &args(), &table(given.clone())), infer(twice, &args(), "id")] {
        let error = read.expect_err("which of them?").to_string();
        assert!(error.contains("line 2") && error.contains("\"v\" twice") && !error.contains("hint"), "{error}");
    }
    // What is passed over may be there as often as it likes, and what lies within it.
    let others = b"{\"id\":1,\"x\":{\"v\":1,\"v\":2},\"x\":[{\"id\":3}],\"v\":3}\n{\"v\":4,\"id\":2}\n";
    let (_, batches) = read(others, &args(), &table(given)).expect("each once");
    let values: Vec<_> =
        batches.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().iter().flatten()).collect();
    assert_eq!(values, [3, 4]);
}

/// They were infinite, or 0.
#[test]
fn numbers_that_a_float_cannot_hold_are_refused() {
    let given =
        |ty: DataType| Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("v", ty, true)]));
    let read_both = |number: &str, ty: &DataType| {
        let (csv, json) = (format!("id,v\n1,{number}\n"), format!("{{\"id\":1,\"v\":{number}}}\n"));
        [csv, json].map(|text| read(text.as_bytes(), &args(), &table(given(ty.clone()))))
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
        read(b"id,v\n1,inf\n2,NaN\n3,\n", &args(), &table(given(DataType::Float64))).expect("written out");
    assert!(
        batches[0].column(1).as_primitive::<Float64Type>().value(0).is_infinite() && batches[1].column(1).is_null(0)
    );
}

/// It was that of the line before; and a table that is there was told to look at more rows.
#[test]
fn a_value_of_another_type_is_named_with_its_line() {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let headless = InputArgs { no_header: true, ..args() };
    for (args, bytes) in [(args(), &b"id\n1\n2\n3\nx\n"[..]), (headless, b"1\n2\n3\n4\nx\n")] {
        let error = read(bytes, &args, &table(schema.clone())).expect_err("no number").to_string();
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
    let schema =
        Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]));
    let error = read(b"ID,name\n1,a\n", &args(), &table(schema)).expect_err("there is no id").to_string();
    assert!(error.contains("no column \"id\"") && error.contains("ID, name"), "{error}");
}

/// A table with a key and three columns, two of them never null, all with defaults: 7, `x` and 1 µs after 1970 began.
fn with_defaults() -> Target<'static> {
    let moment = DataType::Timestamp(arrow_schema::TimeUnit::Microsecond, Some("UTC".into()));
    let fields = [
        Field::new("id", DataType::Int64, false),
        Field::new("n", DataType::Int32, false),
        Field::new("t", DataType::Utf8, true),
        Field::new("m", moment, false),
    ];
    let values: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![7])),
        Arc::new(StringArray::from(vec!["x"])),
        Arc::new(TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC")),
    ];
    let defaults = RecordBatch::try_new(Arc::new(Schema::new(fields[1..].to_vec())), values).expect("one row");
    Target::Given { columns: Arc::new(Schema::new(fields.to_vec())), defaults }
}

/// They were null, or refused where that may not be.
#[test]
fn rows_of_json_have_defaults_where_a_member_is_missing() {
    let json = b"{\"id\":1}\n{\"id\":2,\"n\":8,\"t\":null}\n{\"t\":\"y\",\"id\":3}\n{\"id\":4,\"x\":{\"n\":1}}\n\
                 {\"id\":5,\"\\u006e\":9,\"m\":\"1970-01-01T00:00:01Z\",\"t\":\"z\"}\n";
    let (_, batches) = read(json, &args(), &with_defaults()).expect("well formed");
    let mut rows = Vec::new();
    for batch in &batches {
        let column =
            |name: &str| crate::exact::cast(batch.column_by_name(name).expect(name), &DataType::Utf8).expect(name);
        let columns = ["id", "n", "t"].map(column);
        for row in 0..batch.num_rows() {
            let cell = |column: &ArrayRef| {
                let texts = column.as_string::<i32>();
                texts.is_valid(row).then(|| texts.value(row).to_owned())
            };
            rows.push(columns.iter().map(cell).map(|text| text.unwrap_or("-".into())).collect::<Vec<_>>().join(" "));
        }
    }
    assert_eq!(rows, ["1 7 x", "2 8 -", "3 7 y", "4 7 x", "5 9 z"]);
    let moments: Vec<i64> = batches
        .iter()
        .flat_map(|batch| {
            batch.column(3).as_primitive::<arrow_array::types::TimestampMicrosecondType>().values().iter()
        })
        .copied()
        .collect();
    assert_eq!(moments, [1, 1, 1, 1, 1_000_000]);
    for json in [&b"{\"id\":1,\"n\":null}"[..], b"{\"id\":1}\n{\"id\":2}\n{\"id\":3,\"m\":null}"] {
        let error = read(json, &args(), &with_defaults()).expect_err("null is not left out").to_string();
        assert!(error.contains("must not be null"), "{error}");
    }
    let error = read(b"{\"n\":1}", &args(), &with_defaults()).expect_err("no key").to_string();
    assert!(error.contains("\"id\" must not be null"), "{error}");
}

/// A file without a header was refused if it was from before the last columns.
#[test]
fn csv_without_its_last_columns_leaves_them_to_their_defaults() {
    let headless = InputArgs { no_header: true, ..args() };
    for (args, bytes) in [(args(), &b"n,id\n8,1\n9,2\n"[..]), (headless.clone(), b"1,8\n2,9\n")] {
        let (_, batches) = read(bytes, &args, &with_defaults()).expect("from before the others");
        assert_eq!(batches[0].schema().fields().len(), 2, "others are left to the table");
        assert_eq!(
            batches[0].column_by_name("n").expect("given").as_primitive::<Int32Type>().values().to_vec(),
            [8, 9]
        );
    }
    let nameless =
        |bytes: &[u8]| read(bytes, &headless, &with_defaults()).map(|_| ()).expect_err("refused").to_string();
    assert!(nameless(b"1,,t,1970-01-01\n").contains("\"n\" must not be null"), "an empty field is null");
    assert!(read(b"1,8\n2\n", &headless, &with_defaults()).is_err(), "a row is whole");
    let without =
        Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("n", DataType::Int32, false)]));
    let error = read(b"1\n", &headless, &table(without)).expect_err("n has no default").to_string();
    assert!(error.contains("no column \"n\""), "{error}");
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
        assert!(batches[0].column(1).is_null(1) && batches[0].column(2).is_null(1) && batches[1].column(2).is_null(0));
    }
}

#[test]
fn a_given_schema_takes_columns_by_name() {
    let given = Arc::new(Schema::new(vec![
        Field::new("score", DataType::Float64, true),
        Field::new("id", DataType::Int32, false),
        Field::new("extra", DataType::Utf8, true),
    ]));
    let (_, batches) = read(b"id,name,score\n7,x,2\n", &args(), &table(given.clone())).expect("well formed");
    assert_eq!(batches[0].column(1).as_primitive::<Int32Type>().value(0), 7);
    assert_eq!(batches[0].column(0).as_primitive::<Float64Type>().value(0), 2.0);
    assert!(batches[0].column(2).is_null(0));
    let json = br#"{"id": 7, "score": 2.5, "unknown": [1]}"#;
    let (_, batches) = read(json, &args(), &table(given.clone())).expect("well formed");
    assert_eq!(batches[0].column(0).as_primitive::<Float64Type>().value(0), 2.5);
    let headless = InputArgs { no_header: true, ..args() };
    let (_, batches) = read(b"1.5,8,t\n", &headless, &table(given)).expect("well formed");
    assert_eq!(batches[0].column(1).as_primitive::<Int32Type>().value(0), 8);
}

#[test]
fn numbers_that_a_column_cannot_hold_are_not_cut() {
    let late = InputArgs { infer_rows: 1, ..args() };
    assert!(infer(b"{\"id\":1,\"v\":1}\n{\"id\":2,\"v\":2.7}\n", &late, "id").is_err());
    let given = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    for (json, found) in [("7.9", None), ("8.0", Some(8)), ("-9007199254740993", Some(-9_007_199_254_740_993))] {
        let read = read(format!("{{\"id\": {json}}}").as_bytes(), &args(), &table(given.clone()));
        let values = read.ok().map(|(_, batches)| batches[0].column(0).as_primitive::<Int64Type>().value(0));
        assert_eq!(values, found, "{json}");
    }
    let floats = Arc::new(Schema::new(vec![Field::new("id", DataType::Float64, false)]));
    let column: ArrayRef = Arc::new(arrow_array::Float64Array::from(vec![1.9]));
    let mut stream = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &floats).expect("in memory");
    stream.write(&RecordBatch::try_new(floats, vec![column]).expect("one column")).expect("in memory");
    assert!(read(&stream.into_inner().expect("in memory"), &args(), &table(given)).is_err());
    let cents = Arc::new(Schema::new(vec![Field::new("id", DataType::Decimal128(9, 2), false)]));
    assert!(read(b"id\n1.239\n", &args(), &table(cents.clone())).is_err());
    assert!(read(b"id\n1.23\n", &args(), &table(cents)).is_ok());
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
