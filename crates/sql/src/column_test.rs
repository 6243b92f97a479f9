//! Predicates of DataFusion as tests of single columns, which is what storage can decide.
//!
//! A predicate is translated if it compares one column with literals: `=`, `<>`, `<`, `<=`, `>`, `>=` with the literal on
//! either side, `BETWEEN`, `IN`, a chain of `OR` over equalities of one column (a short `IN` comes as one), `LIKE 'x%'`, `IS
//! [NOT] NULL`, and a column of booleans by itself. A test holds for exactly the rows for which the predicate is true; a null
//! passes none but `IsNull`. What is not translated is DataFusion's to filter.

use std::ops::Bound;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use mycelium_encoding::{ColumnType, Datum, Schema};

use crate::literal::{keeps_order, to_datum};

/// A test of one column.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnTest {
    /// The column, by position in the table's schema.
    pub column: usize,
    /// What its value has to be.
    pub test: Test,
}

/// What a value has to be. Null is only `IsNull`.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// This value.
    Equal(Datum),
    /// Any other value.
    NotEqual(Datum),
    /// Between bounds.
    Range {
        /// From here.
        lower: Bound<Datum>,
        /// To here.
        upper: Bound<Datum>,
    },
    /// One of these.
    In(Vec<Datum>),
    /// Text that begins so.
    Prefix(Vec<u8>),
    /// Null.
    IsNull,
    /// Any value.
    IsNotNull,
}

impl ColumnTest {
    /// The test that a predicate is, if it is one.
    pub fn from_expr(schema: &Schema, expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Alias(alias) => Self::from_expr(schema, &alias.expr),
            Expr::Column(_) => Self::of_bool(schema, expr, true),
            Expr::Not(inner) => match Self::from_expr(schema, inner)? {
                Self { column, test: Test::IsNull } => Some(Self { column, test: Test::IsNotNull }),
                Self { column, test: Test::IsNotNull } => Some(Self { column, test: Test::IsNull }),
                _ => Self::of_bool(schema, inner, false),
            },
            Expr::IsNull(inner) => Some(Self { column: column_of(schema, inner)?, test: Test::IsNull }),
            Expr::IsNotNull(inner) => Some(Self { column: column_of(schema, inner)?, test: Test::IsNotNull }),
            Expr::IsTrue(inner) => Self::of_bool(schema, inner, true),
            Expr::IsFalse(inner) => Self::of_bool(schema, inner, false),
            Expr::BinaryExpr(binary) => Self::of_binary(schema, binary),
            Expr::Between(between) => Self::of_between(schema, between),
            Expr::InList(list) => Self::of_list(schema, list),
            Expr::Like(like) => Self::of_like(schema, like),
            _ => None,
        }
    }

    fn of_bool(schema: &Schema, expr: &Expr, value: bool) -> Option<Self> {
        let Expr::Column(_) = expr else { return None };
        let column = column_of(schema, expr)?;
        let is_bool = schema.columns()[column].ty == ColumnType::Bool;
        is_bool.then_some(Self { column, test: Test::Equal(Datum::Bool(value)) })
    }

    fn of_binary(schema: &Schema, binary: &BinaryExpr) -> Option<Self> {
        let BinaryExpr { left, op, right } = binary;
        if *op == Operator::Or {
            return Self::of_either(Self::from_expr(schema, left)?, Self::from_expr(schema, right)?);
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
        Some(Self { column, test })
    }

    /// Two sets of values of one column are one.
    fn of_either(left: Self, right: Self) -> Option<Self> {
        let column = (left.column == right.column).then_some(left.column)?;
        let mut values = left.test.into_values()?;
        values.extend(right.test.into_values()?);
        Some(Self { column, test: Test::In(values) })
    }

    fn of_between(schema: &Schema, between: &Between) -> Option<Self> {
        let (column, low) = comparison(schema, &between.expr, &between.low)?;
        let (_, high) = comparison(schema, &between.expr, &between.high)?;
        let test = Test::Range { lower: Bound::Included(low), upper: Bound::Included(high) };
        (!between.negated).then_some(Self { column, test })
    }

    /// A null in the list is equal to nothing.
    fn of_list(schema: &Schema, list: &InList) -> Option<Self> {
        let column = column_of(schema, through_casts(schema, &list.expr)?)?;
        let is_null = |item: &Expr| matches!(item, Expr::Literal(value, _) if value.is_null());
        let items = list.list.iter().filter(|item| !is_null(item));
        let values = items.map(|item| Some(comparison(schema, &list.expr, item)?.1)).collect::<Option<Vec<_>>>()?;
        (!list.negated).then_some(Self { column, test: Test::In(values) })
    }

    fn of_like(schema: &Schema, like: &Like) -> Option<Self> {
        let column = column_of(schema, through_casts(schema, &like.expr)?)?;
        let Expr::Literal(ScalarValue::Utf8(pattern) | ScalarValue::Utf8View(pattern), _) = &*like.pattern else {
            return None;
        };
        let prefix = pattern.as_deref()?.strip_suffix('%')?;
        let is_plain = !prefix.contains(['%', '_', '\\']) && !like.negated && !like.case_insensitive;
        let is_text = schema.columns()[column].ty == ColumnType::Utf8;
        let is_prefix = is_plain && is_text && like.escape_char.is_none();
        is_prefix.then(|| Self { column, test: Test::Prefix(prefix.as_bytes().to_vec()) })
    }
}

impl Test {
    fn into_values(self) -> Option<Vec<Datum>> {
        match self {
            Self::Equal(value) => Some(vec![value]),
            Self::In(values) => Some(values),
            _ => None,
        }
    }
}

/// A column and the literal that it is compared with, as a value of the column.
fn comparison(schema: &Schema, column: &Expr, literal: &Expr) -> Option<(usize, Datum)> {
    let Expr::Literal(value, _) = literal else { return None };
    let column = column_of(schema, through_casts(schema, column)?)?;
    let ty = &schema.columns()[column].ty;
    let is_float = matches!(ty, ColumnType::Float32 | ColumnType::Float64);
    if is_float && !schema.is_primary_key(column) {
        return None;
    }
    Some((column, to_datum(value, ty)?))
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
        ColumnTest::from_expr(&schema(), &expr).map(|found| (found.column, found.test))
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
        for pattern in ["a_b%", "a%b%", "ab", "%ab", "a\\%%"] {
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
    fn floats_are_tested_in_keys_alone() {
        assert_eq!(test(col("c").gt(lit(1.5))), None);
        assert_eq!(test(col("c").is_null()), Some((2, Test::IsNull)));
        assert_eq!(test(col("f").gt(lit(1.5))), Some((5, above(Datum::Float64(1.5)))));
        assert_eq!(test(col("f").gt(lit(-0.0))), None);
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
