//! Aggregates of parts, merged, are those of the whole, whatever the parts; and their bytes.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use mycelium_base::ErrorKind;
use mycelium_base::coding::{Reader, put_bytes, put_varint};
use mycelium_encoding::row_format::{Covers, RowFormat, RowScratch};
use mycelium_encoding::{
    Aggregate, Aggregation, ColumnType, Datum, DatumRef, FragmentFormat, Groups, PackedLayout, Schema, key,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const SCHEMA: &str = "k utf8 not null, id int64 not null, flag bool, small int8, large uint64, amount decimal(38, 3), \
                      real float64, name utf8, day date32, at timestamp(us), primary key (k, id)";

fn schema() -> Arc<Schema> {
    Arc::new(Schema::parse(SCHEMA).unwrap())
}

fn aggregation(group_by: &[usize], aggregates: &[Aggregate]) -> Arc<Aggregation> {
    Arc::new(Aggregation::new(schema(), group_by.to_vec(), aggregates.to_vec()).unwrap())
}

/// Every kind of aggregate of every type that has it.
fn all_aggregates() -> Vec<Aggregate> {
    let mut all = vec![Aggregate::CountRows];
    all.extend([1, 3, 4, 6].map(Aggregate::Sum));
    all.extend((0..10).flat_map(|column| [Aggregate::Count(column), Aggregate::Min(column), Aggregate::Max(column)]));
    all
}

fn random_row(rng: &mut SmallRng) -> Vec<Datum> {
    let texts = ["", "a", "a\0", "a\0b", "é"];
    let reals = [0.0, -0.0, 1.5, -1.5, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let text = |rng: &mut SmallRng| Datum::Utf8(texts[rng.random_range(0..texts.len())].to_owned());
    let mut row = vec![
        text(rng),
        Datum::Int64(rng.random_range(-5..5)),
        Datum::Bool(rng.random()),
        Datum::Int8(rng.random()),
        Datum::UInt64(rng.random()),
        Datum::Decimal128(rng.random_range(-1_000_000_000_000_000_000_000..1_000_000_000_000_000_000_000)),
        Datum::Float64(reals[rng.random_range(0..reals.len())]),
        text(rng),
        Datum::Date32(rng.random_range(-3..3)),
        Datum::Timestamp(rng.random()),
    ];
    for cell in &mut row[2..] {
        if rng.random_bool(0.2) {
            *cell = Datum::Null;
        }
    }
    row
}

fn encoded(row: &[Datum]) -> (Vec<u8>, Vec<u8>) {
    let row: Vec<DatumRef<'_>> = row.iter().map(Datum::borrowed).collect();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    key::encode_row_key(&schema(), &row, &mut key).unwrap();
    PackedLayout::new(schema()).encode_row(&row, &mut value).unwrap();
    (key, value)
}

fn grouped(aggregation: &Arc<Aggregation>, rows: &[(Vec<u8>, Vec<u8>)]) -> Groups {
    let whole = FragmentFormat::packed(schema(), schema().value_columns());
    let (mut input, mut groups) = (aggregation.input(&whole).unwrap(), Groups::new(aggregation.clone()));
    for (key, value) in rows {
        input.add(key, value, &mut groups).unwrap();
    }
    groups
}

fn bytes_of(groups: &Groups) -> Vec<u8> {
    let mut bytes = Vec::new();
    groups.encode(&mut bytes);
    bytes
}

#[test]
fn parts_merged_in_any_order_are_the_whole() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let group_by = [&[][..], &[2], &[7, 3], &[0], &[6, 1, 8]][seed as usize % 5];
        let aggregation = aggregation(group_by, &all_aggregates());
        let mut rows: Vec<_> = (0..rng.random_range(0..200)).map(|_| encoded(&random_row(&mut rng))).collect();
        let whole = grouped(&aggregation, &rows);
        for _ in 0..4 {
            for at in (1..rows.len()).rev() {
                rows.swap(at, rng.random_range(0..=at));
            }
            let (mut by_parts, mut by_bytes) = (Groups::new(aggregation.clone()), Groups::new(aggregation.clone()));
            let mut rest = rows.as_slice();
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rng.random_range(1..=rest.len()));
                let part = grouped(&aggregation, part);
                by_parts.merge(&part);
                by_bytes.merge_encoded(&bytes_of(&part)).unwrap();
                rest = after;
            }
            assert_eq!(bytes_of(&by_parts), bytes_of(&whole), "seed {seed}");
            assert_eq!(bytes_of(&by_bytes), bytes_of(&whole), "seed {seed}");
            assert_eq!((by_parts.len(), by_parts.weight()), (whole.len(), whole.weight()), "seed {seed}");
            assert_eq!(by_bytes.rows().unwrap(), whole.rows().unwrap());
        }
        let batch = aggregation.to_batch(&whole.rows().unwrap()).unwrap();
        assert_eq!(batch.num_rows(), whole.len().max(usize::from(group_by.is_empty())));
        assert_eq!(batch.num_columns(), group_by.len() + all_aggregates().len());
    }
}

#[test]
fn fragments_of_the_columns_read_give_the_same_in_every_format() {
    let mut rng = SmallRng::seed_from_u64(7);
    let aggregation = aggregation(&[7], &[Aggregate::CountRows, Aggregate::Sum(5), Aggregate::Max(1)]);
    let rows: Vec<_> = (0..50).map(|_| encoded(&random_row(&mut rng))).collect();
    let whole = FragmentFormat::packed(schema(), schema().value_columns());
    let wanted = grouped(&aggregation, &rows).rows().unwrap();
    for format in [
        FragmentFormat::packed(schema(), [5, 7].into_iter().collect()),
        FragmentFormat::packed(schema(), [3, 5, 7, 9].into_iter().collect()),
        FragmentFormat::new(schema().value_columns(), &RowFormat::json(schema())),
    ] {
        let (mut input, mut groups) = (aggregation.input(&format).unwrap(), Groups::new(aggregation.clone()));
        let (reshape, mut scratch) = (whole.reshape(&format).unwrap(), RowScratch::default());
        for (key, value) in &rows {
            let mut fragment = Vec::new();
            reshape.apply(value, &mut scratch, &mut fragment).unwrap();
            input.add(key, &fragment, &mut groups).unwrap();
        }
        assert_eq!(groups.rows().unwrap(), wanted, "{format:?}");
    }
    let lacking = FragmentFormat::packed(schema(), [5].into_iter().collect());
    assert_eq!(aggregation.input(&lacking).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_malformed_row_changes_nothing() {
    let aggregation = aggregation(&[], &[Aggregate::CountRows, Aggregate::Max(7)]);
    let (key, value) = encoded(&random_row(&mut SmallRng::seed_from_u64(1)));
    let mut groups = grouped(&aggregation, &[(key.clone(), value.clone())]);
    let before = bytes_of(&groups);
    let json = RowFormat::json(schema());
    let mut stored = Vec::new();
    json.store(b"{}", Covers::Said, &[].into_iter().collect(), &mut RowScratch::default(), &mut stored).unwrap();
    let whole = FragmentFormat::packed(schema(), schema().value_columns());
    let mut input = aggregation.input(&whole).unwrap();
    for bad in [&value[..1], &stored, &[]] {
        assert!(input.add(&key, bad, &mut groups).is_err());
    }
    assert_eq!(bytes_of(&groups), before);
}

/// What version 2 of SSTs holds of a view.
const GOLDEN: &[u8] = b"\x02\x01\x00\x01\x00\x00\x00\x02\x01\x01\x02\x01\xfe\x02\x80\x00\x03\x7a\x00\x01";

#[test]
fn partial_aggregates_are_written_and_read_as_ever() {
    let aggregation =
        aggregation(&[2], &[Aggregate::CountRows, Aggregate::Sum(3), Aggregate::Sum(4), Aggregate::Max(7)]);
    let mut rng = SmallRng::seed_from_u64(1);
    let mut with = |flag: Datum, small: Datum, large: Datum, name: Datum| {
        let mut row = random_row(&mut rng);
        (row[2], row[3], row[4], row[7]) = (flag, small, large, name);
        encoded(&row)
    };
    let name = |text: &str| Datum::Utf8(text.to_owned());
    let rows = [
        with(Datum::Bool(true), Datum::Int8(-1), Datum::UInt64(128), name("")),
        with(Datum::Bool(true), Datum::Int8(-1), Datum::Null, name("z")),
        with(Datum::Null, Datum::Null, Datum::Null, Datum::Null),
    ];
    let groups = grouped(&aggregation, &rows);
    assert_eq!(bytes_of(&groups), GOLDEN, "{:02x?}", bytes_of(&groups));
    let mut again = Groups::new(aggregation.clone());
    again.merge_encoded(GOLDEN).unwrap();
    assert_eq!(again, groups);
    for len in 0..GOLDEN.len() {
        assert!(Groups::new(aggregation.clone()).merge_encoded(&GOLDEN[..len]).is_err(), "{len} bytes");
    }
}

/// What any version of SSTs holds of a view that sums floats.
const GOLDEN_OF_FLOATS: &[u8] = b"\x01\x00\x09\x02\x10\x00\x00\x00\x00\x00\x00\xfa";

#[test]
fn sums_of_floats_are_written_and_read_as_ever() {
    let aggregation = aggregation(&[], &[Aggregate::Sum(6)]);
    let mut rng = SmallRng::seed_from_u64(1);
    let rows = [Datum::Float64(-1.5), Datum::Float64(f64::INFINITY), Datum::Null].map(|real| {
        let mut row = random_row(&mut rng);
        row[6] = real;
        encoded(&row)
    });
    let groups = grouped(&aggregation, &rows);
    assert_eq!(bytes_of(&groups), GOLDEN_OF_FLOATS, "{:02x?}", bytes_of(&groups));
    let mut again = Groups::new(aggregation.clone());
    again.merge_encoded(GOLDEN_OF_FLOATS).unwrap();
    assert_eq!(again.rows().unwrap()[0].aggregates, [Datum::Float64(f64::INFINITY)]);
    assert_eq!(grouped(&aggregation, &rows[..1]).rows().unwrap()[0].aggregates, [Datum::Float64(-1.5)]);
    for len in 0..GOLDEN_OF_FLOATS.len() {
        assert!(Groups::new(aggregation.clone()).merge_encoded(&GOLDEN_OF_FLOATS[..len]).is_err(), "{len} bytes");
    }
}

/// A summary that counts as many rows as a number can have is read; one row more was one too many.
#[test]
fn a_count_that_is_full_takes_another_row() {
    let aggregation = aggregation(&[], &[Aggregate::CountRows]);
    let mut summary = Vec::new();
    put_varint(&mut summary, 1);
    put_bytes(&mut summary, &[]);
    put_varint(&mut summary, u64::MAX);
    let whole = FragmentFormat::packed(schema(), schema().value_columns());
    let (mut input, mut groups) = (aggregation.input(&whole).unwrap(), Groups::new(aggregation.clone()));
    groups.merge_encoded(&summary).unwrap();
    let (key, value) = encoded(&random_row(&mut SmallRng::seed_from_u64(1)));
    input.add(&key, &value, &mut groups).unwrap();
    assert_eq!(bytes_of(&groups), summary);
    assert_eq!(groups.rows().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn aggregates_are_read_from_text_and_have_a_type() {
    let schema = schema();
    for aggregate in all_aggregates() {
        assert_eq!(Aggregate::parse(&aggregate.to_text(&schema), &schema).unwrap(), aggregate);
    }
    let ty = |text| Aggregate::parse(text, &schema).unwrap().result_type(&schema);
    assert_eq!(ty("count(*)"), ColumnType::Int64);
    assert_eq!(ty("sum( amount )"), ColumnType::Decimal128(38, 3));
    assert_eq!(ty("sum(small)"), ColumnType::Decimal128(38, 0));
    assert_eq!(ty("min(day)"), ColumnType::Date32);
    for text in ["", "count", "count(", "sum(*)", "sum(nothing)", "average(small)", "(small)"] {
        assert_eq!(Aggregate::parse(text, &schema).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
    }
    assert_eq!(ty("sum(real)"), ColumnType::Float64);
    let texts = Aggregation::new(schema.clone(), vec![], vec![Aggregate::Sum(7)]).unwrap_err();
    assert_eq!(texts.kind(), ErrorKind::InvalidArgument);
    let stored = aggregation(&[7, 0], &all_aggregates());
    let mut bytes = Vec::new();
    stored.encode(&mut bytes);
    assert_eq!(Aggregation::decode(schema.clone(), &mut Reader::new(&bytes)).unwrap(), *stored);
    assert_eq!(stored.columns_read().to_string(), "2-9");
}
