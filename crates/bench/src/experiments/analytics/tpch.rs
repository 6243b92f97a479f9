//! TPC-H's table `lineitem`, and its queries 1 and 6.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type};
use arrow_array::{ArrayRef, Decimal128Array, RecordBatch};
use mycelium_encoding::DatumRef;
use mycelium_engine::{Durability, Table};
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

use super::data::{Data, Question, cast_to};
use crate::keys::mix;
use crate::store::Result;

/// Columns by their place; the key's are the first and the fourth.
const SCHEMA: &str = "\
    l_orderkey int64 not null, l_partkey int64, l_suppkey int64, l_linenumber int32 not null, \
    l_quantity decimal(15, 2), l_extendedprice decimal(15, 2), l_discount decimal(15, 2), l_tax decimal(15, 2), \
    l_returnflag utf8, l_linestatus utf8, l_shipdate date32, l_commitdate date32, l_receiptdate date32, \
    l_shipinstruct utf8, l_shipmode utf8, l_comment utf8, primary key (l_orderkey, l_linenumber)";

/// Rows above, columns below: what the two queries read, and what they do not.
const LAYOUT: &str = "L0 tiered: * packed\nL1 leveled: 4-10 columnar | 1-2,11-15 columnar";

const QUANTITY: usize = 4;
const ROWS_AT_SCALE_1: f64 = 6_001_215.0;

const QUESTIONS: [Question; 2] = [
    Question {
        name: "Q1",
        text: "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price, \
               sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, \
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty, \
               avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order \
               FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' \
               GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
    },
    Question {
        name: "Q6",
        text: "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem \
               WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' \
               AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    },
];

/// The table at a scale factor.
pub(super) struct LineItem {
    batches: Vec<RecordBatch>,
}

impl LineItem {
    pub(super) fn generate(scale: f64) -> Result<Self> {
        let generated = LineItemArrow::new(LineItemGenerator::new(scale.max(0.001), 1, 1));
        let batches = generated.map(|batch| cast_to(SCHEMA, &batch?)).collect::<Result<_>>()?;
        Ok(Self { batches })
    }
}

/// The quantity that an update gives a row.
fn new_quantity(row: u64) -> i128 {
    i128::from(mix(row) % 50 + 1) * 100
}

impl Data for LineItem {
    fn name(&self) -> &'static str {
        "lineitem"
    }

    fn schema(&self) -> &'static str {
        SCHEMA
    }

    fn layout(&self) -> &'static str {
        LAYOUT
    }

    fn questions(&self) -> &'static [Question] {
        &QUESTIONS
    }

    fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    fn update(&self, table: &Table, batch: &RecordBatch, at: usize, row: u64) -> Result<()> {
        let key = [
            DatumRef::Int64(batch.column(0).as_primitive::<Int64Type>().value(at)),
            DatumRef::Int32(batch.column(3).as_primitive::<Int32Type>().value(at)),
        ];
        let change = [("l_quantity", DatumRef::Decimal128(new_quantity(row)))];
        table.patch_row(&key, &change, Durability::Buffered)?;
        Ok(())
    }

    fn updated(&self, batch: &RecordBatch, rows: &[(usize, u64)]) -> Result<RecordBatch> {
        let mut quantities = batch.column(QUANTITY).as_primitive::<Decimal128Type>().values().to_vec();
        for &(at, row) in rows {
            quantities[at] = new_quantity(row);
        }
        let column = Decimal128Array::from(quantities).with_data_type(batch.column(QUANTITY).data_type().clone());
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        columns[QUANTITY] = std::sync::Arc::new(column);
        Ok(RecordBatch::try_new(batch.schema(), columns)?)
    }

    fn insert(&self, table: &Table, row: u64) -> Result<()> {
        let Some(last) = self.batches.last() else { return Ok(()) };
        let key = (ROWS_AT_SCALE_1 as i64) * 1000 + row as i64;
        let date = last.column(10).as_primitive::<Date32Type>().value(0);
        let decimal = |value: u64| DatumRef::Decimal128(i128::from(value));
        let number = |of: u64| DatumRef::Int64((mix(row) % of) as i64);
        let row = [
            DatumRef::Int64(key),
            number(200_000),
            number(10_000),
            DatumRef::Int32(1),
            decimal(mix(row) % 5000),
            decimal(mix(row) % 10_000_000),
            decimal(mix(row) % 11),
            decimal(mix(row) % 9),
            DatumRef::Utf8("N"),
            DatumRef::Utf8("O"),
            DatumRef::Date32(date),
            DatumRef::Date32(date),
            DatumRef::Date32(date),
            DatumRef::Utf8("NONE"),
            DatumRef::Utf8("MAIL"),
            DatumRef::Utf8("as it is written"),
        ];
        table.insert_row(&row, Durability::Buffered)?;
        Ok(())
    }
}
