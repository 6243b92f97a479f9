//! Predicates of DataFusion as tests of single columns, which is what the engine can decide
//! ([`mycelium_encoding::page::Test`]).
//!
//! A predicate is translated if it compares one column with literals: `=`, `<>`, `<`, `<=`, `>`, `>=` with the literal
//! on either side, `BETWEEN`, `IN`, a chain of `OR` over equalities of one column (a short `IN` comes as one), `LIKE
//! 'x%'` with and without escapes, `IS [NOT] NULL`, and a column of booleans by itself. A test holds for exactly the
//! rows for which the predicate is true; a null passes none but `IsNull`. What is not translated is DataFusion's to
//! filter.
//!
//! Floats: the engine's tests compare by IEEE 754's total order, in which -0.0 lies below 0.0 and NaNs differ by their
//! bits; DataFusion does, too, but takes both zeros for one. So tests against a zero are widened to both, or left.

use std::ops::Bound;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use mycelium_encoding::page::{ColumnTest, Test};
use mycelium_encoding::{ColumnType, Datum, Schema};

use crate::literal::{keeps_order, to_datum};

/// The test that a predicate is, if it is one.
pub(crate) fn column_test(schema: &Schema, expr: &Expr) -> Option<ColumnTest> {
    let ColumnTest { column, test } = translate(schema, expr)?;
    Some(ColumnTest { column, test: with_one_zero(test)? })
}

/// A test says of the two zeros of floats what SQL says of its one. `None` where no one test does.
fn with_one_zero(test: Test) -> Option<Test> {
    let is_zero = |value: &Datum| matches!(value, Datum::Float32(0.0) | Datum::Float64(0.0));
    let signed = |value: &Datum, negative: bool| match value {
        Datum::Float32(0.0) => Datum::Float32(if negative { -0.0 } else { 0.0 }),
        Datum::Float64(0.0) => Datum::Float64(if negative { -0.0 } else { 0.0 }),
        other => other.clone(),
    };
    let bound = |bound: &Bound<Datum>, negative_included: bool| match bound {
        Bound::Included(value) => Bound::Included(signed(value, negative_included)),
        Bound::Excluded(value) => Bound::Excluded(signed(value, !negative_included)),
        Bound::Unbounded => Bound::Unbounded,
    };
    match &test {
        Test::Equal(value) if is_zero(value) => Some(Test::Range {
            lower: Bound::Included(signed(value, true)),
            upper: Bound::Included(signed(value, false)),
        }),
        Test::NotEqual(value) if is_zero(value) => None,
        Test::In(values) if values.iter().any(is_zero) => None,
        Test::Range { lower, upper } => Some(Test::Range { lower: bound(lower, true), upper: bound(upper, false) }),
        _ => Some(test),
    }
}

fn translate(schema: &Schema, expr: &Expr) -> Option<ColumnTest> {
    match expr {
        Expr::Alias(alias) => translate(schema, &alias.expr),
        Expr::Column(_) => of_bool(schema, expr, true),
        Expr::Not(inner) => match translate(schema, inner)? {
            ColumnTest { column, test: Test::IsNull } => Some(ColumnTest { column, test: Test::IsNotNull }),
            ColumnTest { column, test: Test::IsNotNull } => Some(ColumnTest { column, test: Test::IsNull }),
            _ => of_bool(schema, inner, false),
        },
        Expr::IsNull(inner) => Some(ColumnTest { column: column_of(schema, inner)?, test: Test::IsNull }),
        Expr::IsNotNull(inner) => Some(ColumnTest { column: column_of(schema, inner)?, test: Test::IsNotNull }),
        Expr::IsTrue(inner) => of_bool(schema, inner, true),
        Expr::IsFalse(inner) => of_bool(schema, inner, false),
        Expr::BinaryExpr(binary) => of_binary(schema, binary),
        Expr::Between(between) => of_between(schema, between),
        Expr::InList(list) => of_list(schema, list),
        Expr::Like(like) => of_like(schema, like),
        _ => None,
    }
}

fn of_bool(schema: &Schema, expr: &Expr, value: bool) -> Option<ColumnTest> {
    let Expr::Column(_) = expr else { return None };
    let column = column_of(schema, expr)?;
    let is_bool = schema.columns()[column].ty == ColumnType::Bool;
    is_bool.then_some(ColumnTest { column, test: Test::Equal(Datum::Bool(value)) })
}

fn of_binary(schema: &Schema, binary: &BinaryExpr) -> Option<ColumnTest> {
    let BinaryExpr { left, op, right } = binary;
    if *op == Operator::Or {
        return of_either(translate(schema, left)?, translate(schema, right)?);
    }
    let (column, value, op) = match (comparison(schema, left, right), comparison(schema, right, left)) {
        (Some((column, value)), _) => (column, value, *op),
        (None, Some((column, value))) => (column, value, op.swap()?),
        (None, None) => return None,
    };
    let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
    let test = match op {
        Operator::Eq => Test::Equal(value),
        Operator::NotEq => Test::NotEqual(value),
        Operator::Lt => Test::Range { lower, upper: Bound::Excluded(value) },
        Operator::LtEq => Test::Range { lower, upper: Bound::Included(value) },
        Operator::Gt => Test::Range { lower: Bound::Excluded(value), upper },
        Operator::GtEq => Test::Range { lower: Bound::Included(value), upper },
        _ => return None,
    };
    Some(ColumnTest { column, test })
}

/// Two sets of values of one column are one.
fn of_either(left: ColumnTest, right: ColumnTest) -> Option<ColumnTest> {
    let column = (left.column == right.column).then_some(left.column)?;
    let mut values = values_of(left.test)?;
    values.extend(values_of(right.test)?);
    Some(ColumnTest { column, test: Test::In(values) })
}

fn of_between(schema: &Schema, between: &Between) -> Option<ColumnTest> {
    let (column, low) = comparison(schema, &between.expr, &between.low)?;
    let (_, high) = comparison(schema, &between.expr, &between.high)?;
    let test = Test::Range { lower: Bound::Included(low), upper: Bound::Included(high) };
    (!between.negated).then_some(ColumnTest { column, test })
}

/// A null in the list is equal to nothing.
fn of_list(schema: &Schema, list: &InList) -> Option<ColumnTest> {
    let column = column_of(schema, through_casts(schema, &list.expr)?)?;
    let is_null = |item: &Expr| matches!(item, Expr::Literal(value, _) if value.is_null());
    let items = list.list.iter().filter(|item| !is_null(item));
    let values = items.map(|item| Some(comparison(schema, &list.expr, item)?.1)).collect::<Option<Vec<_>>>()?;
    (!list.negated).then_some(ColumnTest { column, test: Test::In(values) })
}

/// A pattern without wildcards is a text, and one that ends with its first a prefix.
fn of_like(schema: &Schema, like: &Like) -> Option<ColumnTest> {
    let (column, text, rest) = pattern_of(schema, like)?;
    let test = match rest {
        "" => Test::Equal(Datum::Utf8(text)),
        rest if rest.bytes().all(|byte| byte == b'%') => Test::Prefix(text.into_bytes()),
        _ => return None,
    };
    (!like.negated && !like.case_insensitive).then_some(ColumnTest { column, test })
}

/// The column of texts that a pattern is of, the text before its first wildcard, and the rest of it.
pub(crate) fn pattern_of<'e>(schema: &Schema, like: &'e Like) -> Option<(usize, String, &'e str)> {
    let column = column_of(schema, through_casts(schema, &like.expr)?)?;
    let Expr::Literal(ScalarValue::Utf8(pattern) | ScalarValue::Utf8View(pattern), _) = &*like.pattern else {
        return None;
    };
    let is_text = schema.columns()[column].ty == ColumnType::Utf8;
    let (text, rest) = until_wildcard(pattern.as_deref()?)?;
    (is_text && matches!(like.escape_char, None | Some('\\'))).then_some((column, text, rest))
}

/// `None` if a backslash stands before anything but a wildcard or another.
fn until_wildcard(pattern: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = pattern.char_indices();
    while let Some((at, character)) = rest.next() {
        match character {
            '%' | '_' => return Some((text, &pattern[at..])),
            '\\' => match rest.next()? {
                (_, escaped @ ('%' | '_' | '\\')) => text.push(escaped),
                _ => return None,
            },
            character => text.push(character),
        }
    }
    Some((text, ""))
}

/// The values of which a test wants one.
fn values_of(test: Test) -> Option<Vec<Datum>> {
    match test {
        Test::Equal(value) => Some(vec![value]),
        Test::In(values) => Some(values),
        _ => None,
    }
}

/// A column and the literal that it is compared with, as a value of the column.
fn comparison(schema: &Schema, column: &Expr, literal: &Expr) -> Option<(usize, Datum)> {
    let Expr::Literal(value, _) = literal else { return None };
    let column = column_of(schema, through_casts(schema, column)?)?;
    Some((column, to_datum(value, &schema.columns()[column].ty)?))
}

fn column_of(schema: &Schema, expr: &Expr) -> Option<usize> {
    let Expr::Column(column) = expr else { return None };
    schema.index_of(&column.name)
}

/// The column under casts that keep its values and their order.
fn through_casts<'e>(schema: &Schema, expr: &'e Expr) -> Option<&'e Expr> {
    let (inner, to) = match expr {
        Expr::Cast(cast) => (&*cast.expr, cast.field.data_type()),
        Expr::TryCast(cast) => (&*cast.expr, cast.field.data_type()),
        other => return Some(other),
    };
    let ty = &schema.columns()[column_of(schema, inner)?].ty;
    keeps_order(ty, to).then_some(inner)
}

/// A test as a predicate, for people.
pub(crate) fn describe(schema: &Schema, test: &ColumnTest) -> String {
    let name = schema.columns().get(test.column).map_or("?", |column| &column.name);
    let end = |bound: &Bound<Datum>, exclusive: &str| match bound {
        Bound::Included(value) => Some(format!("{name} {exclusive}= {value}")),
        Bound::Excluded(value) => Some(format!("{name} {exclusive} {value}")),
        Bound::Unbounded => None,
    };
    match &test.test {
        Test::Equal(value) => format!("{name} = {value}"),
        Test::NotEqual(value) => format!("{name} <> {value}"),
        Test::Range { lower, upper } => {
            let ends: Vec<String> = end(lower, ">").into_iter().chain(end(upper, "<")).collect();
            ends.join(" AND ")
        }
        Test::In(values) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!("{name} IN ({})", values.join(", "))
        }
        Test::Prefix(prefix) => format!("{name} LIKE {}%", String::from_utf8_lossy(prefix)),
        Test::IsNull => format!("{name} IS NULL"),
        Test::IsNotNull => format!("{name} IS NOT NULL"),
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;

    fn schema() -> Schema {
        let text =
            "a int32 not null, b utf8, c float64, d bool, e decimal(10, 2), f float64 not null, primary key (a, f)";
        Schema::parse(text).expect("valid")
    }

    fn test(expr: Expr) -> Option<(usize, Test)> {
        column_test(&schema(), &expr).map(|found| (found.column, found.test))
    }

    fn int(value: i32) -> Datum {
        Datum::Int32(value)
    }

    fn above(value: Datum) -> Test {
        Test::Range { lower: Bound::Excluded(value), upper: Bound::Unbounded }
    }

    #[test]
    fn comparisons_are_translated_from_either_side() {
        assert_eq!(test(col("a").eq(lit(5))), Some((0, Test::Equal(int(5)))));
        assert_eq!(test(lit(5).lt(col("a"))), Some((0, above(int(5)))));
        assert_eq!(test(col("a").gt(lit(5_i64))), Some((0, above(int(5)))));
        let at_most = Test::Range { lower: Bound::Unbounded, upper: Bound::Included(Datum::Utf8("x".into())) };
        assert_eq!(test(col("b").lt_eq(lit("x"))), Some((1, at_most.clone())));
        assert_eq!(test(lit("x").gt_eq(col("b"))), Some((1, at_most)));
        assert_eq!(test(col("a").not_eq(lit(5))), Some((0, Test::NotEqual(int(5)))));
        let between = Test::Range { lower: Bound::Included(int(1)), upper: Bound::Included(int(3)) };
        assert_eq!(test(col("a").between(lit(1), lit(3))), Some((0, between)));
        assert_eq!(test(col("e").eq(lit(3))), Some((4, Test::Equal(Datum::Decimal128(300)))));
    }

    #[test]
    fn sets_of_values_are_found_as_lists_and_as_chains() {
        let expected = Some((0, Test::In(vec![int(1), int(2), int(3)])));
        assert_eq!(test(col("a").eq(lit(1)).or(col("a").eq(lit(2))).or(lit(3).eq(col("a")))), expected);
        let null = Expr::Literal(ScalarValue::Int32(None), None);
        assert_eq!(test(col("a").in_list(vec![lit(1), lit(2), null, lit(3)], false)), expected);
        assert_eq!(test(col("a").in_list(vec![lit(1)], true)), None);
        assert_eq!(test(col("a").eq(lit(1)).or(col("b").eq(lit("x")))), None);
        assert_eq!(test(col("a").eq(lit(1)).or(col("a").gt(lit(2)))), None);
    }

    #[test]
    fn casts_are_looked_through_where_they_lose_nothing() {
        assert_eq!(test(cast(col("a"), DataType::Int64).gt(lit(5_i64))), Some((0, above(int(5)))));
        assert_eq!(test(cast(col("a"), DataType::Float64).eq(lit(5.0))), Some((0, Test::Equal(int(5)))));
        assert_eq!(test(cast(col("a"), DataType::Float64).eq(lit(5.5))), None);
        assert_eq!(test(cast(col("a"), DataType::Int64).gt(lit(1_i64 << 40))), None);
        assert_eq!(test(cast(col("a"), DataType::Utf8).eq(lit("5"))), None);
        assert_eq!(test(cast(col("a"), DataType::Int16).eq(lit(5_i16))), None);
    }

    #[test]
    fn text_nulls_and_booleans() {
        assert_eq!(test(col("b").like(lit("ab%"))), Some((1, Test::Prefix(b"ab".to_vec()))));
        assert_eq!(test(col("b").like(lit("ab%%"))), Some((1, Test::Prefix(b"ab".to_vec()))));
        assert_eq!(test(col("b").like(lit("a\\%\\_\\\\%"))), Some((1, Test::Prefix(b"a%_\\".to_vec()))));
        assert_eq!(test(col("b").like(lit("a\\%b"))), Some((1, Test::Equal(Datum::Utf8("a%b".into())))));
        for pattern in ["a_b%", "a%b%", "%ab", "a\\b%", "ab\\", "ab%\\"] {
            assert_eq!(test(col("b").like(lit(pattern))), None, "{pattern}");
        }
        assert_eq!(test(col("b").not_like(lit("ab%"))), None);
        assert_eq!(test(col("b").ilike(lit("ab%"))), None);
        assert_eq!(test(col("b").is_null()), Some((1, Test::IsNull)));
        assert_eq!(test(!col("b").is_null()), Some((1, Test::IsNotNull)));
        assert_eq!(test(col("b").is_not_null()), Some((1, Test::IsNotNull)));
        assert_eq!(test(col("d")), Some((3, Test::Equal(Datum::Bool(true)))));
        assert_eq!(test(!col("d")), Some((3, Test::Equal(Datum::Bool(false)))));
        assert_eq!(test(!col("a").eq(lit(1))), None);
    }

    #[test]
    fn tests_read_as_predicates() {
        let text = |expr: Expr| column_test(&schema(), &expr).map(|test| describe(&schema(), &test)).expect("a test");
        assert_eq!(text(col("a").between(lit(1), lit(3))), "a >= 1 AND a <= 3");
        assert_eq!(text(lit(5).gt(col("a"))), "a < 5");
        assert_eq!(text(col("b").like(lit("ab%"))), "b LIKE ab%");
        assert_eq!(text(col("c").in_list(vec![lit(1.5), lit(-2.0)], false)), "c IN (1.5, -2)");
        assert_eq!(text(!col("b").is_null()), "b IS NOT NULL");
    }

    #[test]
    fn both_zeros_of_floats_are_one() {
        let text = |expr: Expr| column_test(&schema(), &expr).map(|test| describe(&schema(), &test));
        for zero in [0.0, -0.0] {
            assert_eq!(text(col("c").eq(lit(zero))).as_deref(), Some("c >= -0 AND c <= 0"));
            assert_eq!(text(col("c").lt(lit(zero))).as_deref(), Some("c < -0"));
            assert_eq!(text(col("c").gt(lit(zero))).as_deref(), Some("c > 0"));
            assert_eq!(text(col("c").not_eq(lit(zero))), None);
            assert_eq!(text(col("c").in_list(vec![lit(1.5), lit(zero)], false)), None);
        }
    }

    #[test]
    fn what_is_no_test_of_one_column_stays() {
        for expr in [
            col("a").eq(col("f")),
            (col("a") + lit(1)).eq(lit(2)),
            col("a").eq(lit(1)).and(col("a").eq(lit(2))),
            Expr::Literal(ScalarValue::Boolean(Some(true)), None),
            col("a").eq(Expr::Literal(ScalarValue::Int32(None), None)),
            col("unknown").eq(lit(1)),
        ] {
            assert_eq!(test(expr.clone()), None, "{expr}");
        }
    }
}
