//! Predicates that are no test of one column, and bound one all the same.
//!
//! `a BETWEEN 1 AND 3 OR a BETWEEN 90 AND 99` holds of nothing below 1 and above 99, `(a = 1 AND b = 2) OR (a = 5 AND
//! c = 3)` of two values of `a`, and `t LIKE 'ab%c'` of what begins with `ab`. [`wider_test`] gives a test that every
//! row passes for which the predicate is true. Storage skips by it, and DataFusion filters what comes:
//!
//! 1. Of an `AND` the narrower side bounds a column: a set of values before an interval; of two intervals what both
//!    hold.
//! 2. Of an `OR` both sides have to bound it, to the values of both, or to an interval around both.
//! 3. Anything else bounds it if it is a test of it ([`crate::column_test`]), or a pattern that begins with text.
//! 4. Of several columns the first of the key is taken, or else the first of the table.
//!
//! Columns of floats have no such tests: DataFusion compares them in another order than it sorts them.

use std::ops::Bound;

use datafusion::logical_expr::expr::Like;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use mycelium_encoding::page::{ColumnTest, Test};
use mycelium_encoding::{ColumnType, Datum, Schema};

use crate::column_test::{column_test, pattern_of};

/// The test, if there is one.
pub(crate) fn wider_test(schema: &Schema, expr: &Expr) -> Option<ColumnTest> {
    let is_wider = matches!(expr, Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) | Expr::Like(_));
    if !is_wider {
        return None;
    }
    let named = expr.column_refs();
    let mut columns: Vec<usize> = named.into_iter().filter_map(|column| schema.index_of(&column.name)).collect();
    let key = schema.primary_key();
    columns.sort_by_key(|column| (key.iter().position(|of_key| of_key == column).unwrap_or(key.len()), *column));
    columns.retain(|&column| !matches!(schema.columns()[column].ty, ColumnType::Float32 | ColumnType::Float64));
    columns.into_iter().find_map(|column| Some(ColumnTest { column, test: bound(schema, expr, column)? }))
}

/// What the column has to pass where the predicate is true: a set of values, an interval or a prefix.
fn bound(schema: &Schema, expr: &Expr, column: usize) -> Option<Test> {
    match expr {
        Expr::Alias(alias) => bound(schema, &alias.expr, column),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (bound(schema, left, column), bound(schema, right, column)) {
                (Some(left), Some(right)) => Some(narrower(left, right)),
                (left, right) => left.or(right),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) if column_test(schema, expr).is_none() => {
            around(bound(schema, left, column)?, bound(schema, right, column)?)
        }
        other => match column_test(schema, other) {
            Some(found) => (found.column == column).then_some(found.test).filter(is_bound),
            None => beginning(schema, other, column),
        },
    }
}

fn is_bound(test: &Test) -> bool {
    matches!(test, Test::Equal(_) | Test::In(_) | Test::Range { .. } | Test::Prefix(_))
}

/// What texts begin with that a pattern matches.
fn beginning(schema: &Schema, expr: &Expr, column: usize) -> Option<Test> {
    let Expr::Like(like @ Like { negated: false, case_insensitive: false, .. }) = expr else { return None };
    let (of, prefix, _) = pattern_of(schema, like)?;
    (of == column && !prefix.is_empty()).then(|| Test::Prefix(prefix.into_bytes()))
}

/// A test that passes what both pass, if it may pass more.
fn narrower(left: Test, right: Test) -> Test {
    let ((from, to), (other_from, other_to)) = match (left, right) {
        (set @ (Test::Equal(_) | Test::In(_)), _) | (_, set @ (Test::Equal(_) | Test::In(_))) => return set,
        (Test::Range { lower: from, upper: to }, Test::Range { lower, upper }) => ((from, to), (lower, upper)),
        (left, _) => return left,
    };
    let is_narrower = match (upper_key(&to), upper_key(&other_to)) {
        (Some(one), Some(other)) => one <= other,
        (one, _) => one.is_some(),
    };
    let lower = if lower_key(&from) >= lower_key(&other_from) { from } else { other_from };
    Test::Range { lower, upper: if is_narrower { to } else { other_to } }
}

/// A test that passes what one of both passes.
fn around(left: Test, right: Test) -> Option<Test> {
    let (mut values, rest) = match (left, right) {
        (Test::Equal(value), other) | (other, Test::Equal(value)) => (vec![value], other),
        (Test::In(values), other) | (other, Test::In(values)) => (values, other),
        (left, right) => return hull(left, right),
    };
    match rest {
        Test::Equal(value) => values.push(value),
        Test::In(others) => values.extend(others),
        other => return hull(Test::In(values), other),
    }
    Some(Test::In(values))
}

/// The interval around both.
fn hull(left: Test, right: Test) -> Option<Test> {
    let ((from, to), (other_from, other_to)) = (interval(left)?, interval(right)?);
    let lower = if lower_key(&from) <= lower_key(&other_from) { from } else { other_from };
    let is_lower = upper_key(&to).zip(upper_key(&other_to)).map(|(one, other)| one < other);
    let upper = match is_lower {
        Some(true) => other_to,
        Some(false) => to,
        None => Bound::Unbounded,
    };
    let is_bounded = lower != Bound::Unbounded || upper != Bound::Unbounded;
    is_bounded.then_some(Test::Range { lower, upper })
}

/// Where all values lie that pass; a prefix is no text's upper bound here.
fn interval(test: Test) -> Option<(Bound<Datum>, Bound<Datum>)> {
    match test {
        Test::Equal(value) => Some((Bound::Included(value.clone()), Bound::Included(value))),
        Test::In(values) => {
            let (first, last) = (values.iter().min()?.clone(), values.iter().max()?.clone());
            Some((Bound::Included(first), Bound::Included(last)))
        }
        Test::Range { lower, upper } => Some((lower, upper)),
        Test::Prefix(prefix) => Some((Bound::Included(Datum::Utf8(String::from_utf8(prefix).ok()?)), Bound::Unbounded)),
        Test::NotEqual(_) | Test::IsNull | Test::IsNotNull => None,
    }
}

/// Lower bounds in their order: none is the lowest, and one that is left out comes after one that is not.
fn lower_key(bound: &Bound<Datum>) -> Option<(&Datum, bool)> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(value) => Some((value, false)),
        Bound::Excluded(value) => Some((value, true)),
    }
}

/// Upper bounds in their order, but for none, which is the highest.
fn upper_key(bound: &Bound<Datum>) -> Option<(&Datum, bool)> {
    match bound {
        Bound::Unbounded => None,
        Bound::Included(value) => Some((value, true)),
        Bound::Excluded(value) => Some((value, false)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::column_test::describe;

    fn found(expr: Expr) -> Option<String> {
        let text = "a int32 not null, b utf8 not null, c int64, d utf8, e float64, primary key (b)";
        let schema = Schema::parse(text).expect("valid");
        wider_test(&schema, &expr).map(|test| describe(&schema, &test))
    }

    #[test]
    fn ranges_of_one_column_have_an_interval_around_them() {
        let within = |low: i32, high: i32| col("a").gt_eq(lit(low)).and(col("a").lt_eq(lit(high)));
        assert_eq!(found(within(1, 3).or(within(90, 99))).as_deref(), Some("a >= 1 AND a <= 99"));
        assert_eq!(found(col("a").between(lit(7), lit(8)).or(col("a").lt(lit(3)))).as_deref(), Some("a <= 8"));
        assert_eq!(found(col("a").eq(lit(4)).or(col("a").gt(lit(4)))).as_deref(), Some("a >= 4"));
        assert_eq!(found(col("a").gt(lit(4)).or(col("a").gt_eq(lit(4)))).as_deref(), Some("a >= 4"));
        assert_eq!(found(within(5, 1).or(within(2, 3))).as_deref(), Some("a >= 2 AND a <= 3"));
        assert_eq!(found(col("a").gt(lit(4)).or(col("a").lt(lit(1)))), None);
    }

    #[test]
    fn sets_beside_other_columns_are_sets() {
        let pair = |a: i32, c: i64| col("a").eq(lit(a)).and(col("c").gt(lit(c)));
        assert_eq!(found(pair(1, 2).or(pair(5, 3))).as_deref(), Some("a IN (1, 5)"));
        assert_eq!(found(pair(1, 2).or(col("c").eq(lit(1_i64)))).as_deref(), Some("c >= 1"));
        let of_key = |a: i32, b: &str| col("a").eq(lit(a)).and(col("b").eq(lit(b)));
        assert_eq!(found(of_key(1, "x").or(of_key(2, "y"))).as_deref(), Some("b IN (x, y)"), "the key comes first");
        assert_eq!(found(pair(1, 2).or(col("d").eq(lit("x")))), None);
    }

    #[test]
    fn nulls_negations_and_floats_bound_nothing() {
        let one = col("c").eq(lit(1_i64));
        assert_eq!(found(one.clone().or(col("c").is_null())), None);
        assert_eq!(found(one.clone().or(col("c").not_eq(lit(5_i64)))), None);
        assert_eq!(found(one.clone().or(!one.clone())), None);
        assert_eq!(found(col("e").gt(lit(1.5)).or(col("e").eq(lit(1.0)))), None);
        assert_eq!(found(col("a").eq(lit(1))), None, "a test by itself");
        assert_eq!(found(one.clone().or(lit(true))), None);
    }

    #[test]
    fn patterns_bound_what_they_begin_with() {
        assert_eq!(found(col("d").like(lit("ab%c"))).as_deref(), Some("d LIKE ab%"));
        assert_eq!(found(col("d").like(lit("a\\_b_"))).as_deref(), Some("d LIKE a_b%"));
        assert_eq!(found(col("d").like(lit("%c"))), None);
        assert_eq!(found(col("d").not_like(lit("ab%c"))), None);
        assert_eq!(found(col("d").ilike(lit("ab%c"))), None);
        let either = col("d").like(lit("k%x")).or(col("d").eq(lit("m")));
        assert_eq!(found(either).as_deref(), Some("d >= k"));
    }
}
