//! TPC-H: its 22 queries over tables of Mycelium answer as DataFusion does over the same rows out of Parquet files, but
//! for the last places of quotients.

use std::sync::Arc;

use arrow_array::RecordBatch;
use datafusion::arrow::compute::cast;
use mycelium_encoding::BatchRows;
use mycelium_engine::{Database, Durability, Table, WriteBatch};
use mycelium_sql::datafusion;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::queries;
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};

use crate::twin::{Form, Twin};

const SCALE: f64 = 0.01;

/// The values that the specification validates with (§2.4), in order; the fraction of query 11 is for the scale.
const PARAMETERS: [&[&str]; 22] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", "0.01"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

const TABLES: [(&str, &str); 8] = [
    ("region", "r_regionkey int64 not null, r_name utf8, r_comment utf8, primary key (r_regionkey)"),
    ("nation", "n_nationkey int64 not null, n_name utf8, n_regionkey int64, n_comment utf8, primary key (n_nationkey)"),
    (
        "supplier",
        "s_suppkey int64 not null, s_name utf8, s_address utf8, s_nationkey int64, s_phone utf8, s_acctbal decimal(15, 2), \
         s_comment utf8, primary key (s_suppkey)",
    ),
    (
        "customer",
        "c_custkey int64 not null, c_name utf8, c_address utf8, c_nationkey int64, c_phone utf8, c_acctbal decimal(15, 2), \
         c_mktsegment utf8, c_comment utf8, primary key (c_custkey)",
    ),
    (
        "part",
        "p_partkey int64 not null, p_name utf8, p_mfgr utf8, p_brand utf8, p_type utf8, p_size int32, p_container utf8, \
         p_retailprice decimal(15, 2), p_comment utf8, primary key (p_partkey)",
    ),
    (
        "partsupp",
        "ps_partkey int64 not null, ps_suppkey int64 not null, ps_availqty int32, ps_supplycost decimal(15, 2), \
         ps_comment utf8, primary key (ps_partkey, ps_suppkey)",
    ),
    (
        "orders",
        "o_orderkey int64 not null, o_custkey int64, o_orderstatus utf8, o_totalprice decimal(15, 2), o_orderdate date32, \
         o_orderpriority utf8, o_clerk utf8, o_shippriority int32, o_comment utf8, primary key (o_orderkey)",
    ),
    (
        "lineitem",
        "l_orderkey int64 not null, l_partkey int64, l_suppkey int64, l_linenumber int32 not null, \
         l_quantity decimal(15, 2), l_extendedprice decimal(15, 2), l_discount decimal(15, 2), l_tax decimal(15, 2), \
         l_returnflag utf8, l_linestatus utf8, l_shipdate date32, l_commitdate date32, l_receiptdate date32, \
         l_shipinstruct utf8, l_shipmode utf8, l_comment utf8, primary key (l_orderkey, l_linenumber)",
    ),
];

fn generate(table: &str) -> Vec<RecordBatch> {
    macro_rules! batches {
        ($arrow:ident, $generator:ident) => {
            $arrow::new($generator::new(SCALE, 1, 1)).collect::<Result<Vec<_>, _>>().expect("generated")
        };
    }
    match table {
        "region" => batches!(RegionArrow, RegionGenerator),
        "nation" => batches!(NationArrow, NationGenerator),
        "supplier" => batches!(SupplierArrow, SupplierGenerator),
        "customer" => batches!(CustomerArrow, CustomerGenerator),
        "part" => batches!(PartArrow, PartGenerator),
        "partsupp" => batches!(PartSuppArrow, PartSuppGenerator),
        "orders" => batches!(OrderArrow, OrderGenerator),
        "lineitem" => batches!(LineItemArrow, LineItemGenerator),
        other => panic!("no table {other}"),
    }
}

/// Writes rows, whose text may have any layout, and gives them back in the types of the table.
fn write(table: &Table, database: &Database, batch: &RecordBatch) -> RecordBatch {
    let layout = table.packed_layout().expect("a typed table");
    let schema = Arc::new(layout.schema().to_arrow());
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>().expect("the same values");
    let batch = RecordBatch::try_new(schema, columns).expect("the table's schema");
    let rows = BatchRows::new(layout, &batch).expect("the table's schema");
    let mut writes = WriteBatch::new();
    for row in 0..rows.len() {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        rows.encode_row(row, &mut key, &mut value).expect("fits");
        writes.put_packed(table, layout, &key, &value).expect("fits");
    }
    database.write(&writes, Durability::Buffered).expect("in memory");
    batch
}

fn load(form: Form) -> Twin {
    let twin = Twin::new();
    for (name, schema) in TABLES {
        let table = twin.create(name, schema, form);
        let batches = generate(name);
        let written: Vec<RecordBatch> = batches.iter().map(|batch| write(&table, &twin.database, batch)).collect();
        twin.teach_parquet(name, &written);
    }
    twin.database.flush().expect("in memory");
    twin.database.wait_idle().expect("in memory");
    let lineitem = twin.database.table("lineitem").expect("created");
    twin.database.compact(&lineitem).expect("in memory");
    twin
}

/// The queries that end with a quotient, which to DataFusion is a double, or a decimal of eight places that is cut off:
/// how far apart both answers may be.
const QUOTIENTS: [(usize, f64); 3] = [(8, 1e-8), (14, 1e-10), (17, 1e-8)];

/// Compares both answers to a query, in order where it ends with a quotient: these leave no ties.
fn check(twin: &Twin, number: usize) -> usize {
    let query = query(number);
    let Some((_, most)) = QUOTIENTS.iter().find(|(other, _)| *other == number) else {
        return twin.check(&query, false);
    };
    let is_same = |found: &str, expected: &str| match (found.parse::<f64>(), expected.parse::<f64>()) {
        (Ok(found), Ok(expected)) => (found - expected).abs() <= *most,
        _ => found == expected,
    };
    let (found, expected) = (twin.rows(&query), twin.expected(&query));
    assert_eq!(found.len(), expected.len(), "{query}");
    for (found, expected) in found.iter().zip(&expected) {
        let mut cells = found.split(" | ").zip(expected.split(" | "));
        assert!(cells.all(|(found, expected)| is_same(found, expected)), "{query}\n{found}\n{expected}");
    }
    found.len()
}

/// The text of a query: parameters in, the view of query 15 as a common table expression.
fn query(number: usize) -> String {
    let mut text = queries::query(number as i32).expect("there are 22").replace(" day (3)", " day");
    for (at, value) in PARAMETERS[number - 1].iter().enumerate().rev() {
        text = text.replace(&format!(":{}", at + 1), value);
    }
    if number == 15 {
        let (view, rest) = text.split_once(';').expect("the view's definition");
        let (select, _) = rest.split_once(';').expect("the view's end");
        text = format!("{}){select}", view.replace("create view", "with").replacen("as", "as (", 1)).replace(":s", "0");
    }
    text.trim().trim_end_matches(';').to_owned()
}

#[test]
fn the_22_queries_answer_as_datafusion_does() {
    for form in Form::ALL {
        let twin = load(form);
        let rows: Vec<usize> = (1..=22).map(|number| check(&twin, number)).collect();
        println!("rows of queries 1 to 22 over {form:?}: {rows:?}");
        assert!(rows.iter().all(|&rows| rows > 0), "{form:?}: {rows:?}");
    }
}

/// What Q1 computes for every row are Arrow's products and sums of decimals, in the types that DataFusion gives them.
#[test]
fn the_products_of_query_1_are_operators_of_decimals() {
    let twin = Twin::new();
    for (name, schema) in TABLES {
        twin.create(name, schema, Form::Columns);
    }
    let plan = twin.plan(&query(1));
    assert!(plan.contains("Decimal128(1,20,0) - lineitem.l_discount"), "{plan}");
    let types = "SELECT arrow_typeof(sum(l_extendedprice * (1 - l_discount))), \
                 arrow_typeof(sum(l_extendedprice * (1 - l_discount) * (1 + l_tax))) FROM lineitem";
    assert_eq!(twin.rows(types), ["Decimal128(38, 4) | Decimal128(38, 6)"]);
    let plan = twin.plan(&query(6));
    assert!(!plan.contains("FilterExec"), "{plan}");
}

#[test]
fn a_large_table_is_read_by_several_partitions_in_key_order() {
    let twin = load(Form::Rows);
    twin.rows("SET datafusion.execution.target_partitions = 4");
    let ordered = "SELECT l_orderkey, l_linenumber, l_comment FROM lineitem ORDER BY l_orderkey, l_linenumber";
    let plan = twin.plan(ordered);
    assert!(plan.contains("partitions=4") && plan.contains("SortPreservingMergeExec"), "{plan}");
    assert!(!plan.contains("SortExec"), "{plan}");
    assert_eq!(twin.check(ordered, true), 60_175);
    let range = "SELECT count(*), sum(l_quantity) FROM lineitem WHERE l_orderkey BETWEEN 1000 AND 50000";
    assert!(twin.plan(range).contains("key ranges=[(1000), (50000)]"), "{}", twin.plan(range));
    twin.check(range, true);
}
