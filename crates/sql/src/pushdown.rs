//! What of a query's predicates storage takes over, and how it gets at the rows.
//!
//! [`plan_filters`] splits the conjuncts of a `WHERE` clause:
//!
//! 1. Each is translated to a test of one column ([`crate::column_test`]), or to one that passes more
//!    ([`crate::wider_test`]), or left: `Unsupported`, DataFusion filters.
//! 2. Tests of the leading primary key columns become key ranges ([`crate::key_range`]). Where the key says nothing,
//!    the index whose leading columns have most tests gives ranges of its own.
//! 3. Tests that the key ranges decide are done with. Every other goes along as a filter, which is decided on each row,
//!    or, in columnar blocks, on codes and zones. All these are `Exact`: DataFusion drops them.
//! 4. A list of more than [`LONGEST_LIST`] values is not: a filter compares with them one by one, and DataFusion has a
//!    hash table. It is only `Inexact`, for the sake of bounds; DataFusion tests the rows again. So it does where a
//!    test passes more than the predicate.
//!
//! Floats: filters compare them by IEEE 754's total order ([`crate::column_test`]). Codes of keys and indexes know one
//! zero and one NaN. So ranges of keys, which hold 0.0 and one NaN only, are made from floats that are no NaN, and
//! ranges of indexes, which stand for other values, from none.

use std::ops::Bound;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use mycelium_encoding::page::{ColumnTest, Test};
use mycelium_encoding::{Column, ColumnType, Datum, Schema};

use crate::column_test::column_test;
use crate::key_range::{KeyRange, KeyRanges, ranges};
use crate::wider_test::wider_test;

/// Values of a list that a filter compares with at most.
pub(crate) const LONGEST_LIST: usize = 64;

/// The split of a query's predicates.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pushed {
    /// The key ranges that hold every row asked for, ascending; `None` if the key says nothing.
    pub(crate) keys: Option<Vec<KeyRange>>,
    /// The index to look into where the key says nothing: its position among those given, and its ranges.
    pub(crate) index: Option<(usize, Vec<KeyRange>)>,
    /// What rows of the key ranges, or of the index, have to pass besides.
    pub(crate) tests: Vec<ColumnTest>,
    /// Of every predicate, who decides it.
    pub(crate) support: Vec<TableProviderFilterPushDown>,
}

/// Splits conjuncts; `indexes` are the indexed columns of each index.
pub(crate) fn plan_filters(schema: &Schema, indexes: &[&[usize]], filters: &[&Expr]) -> Pushed {
    let constants: Vec<Option<bool>> = filters.iter().map(|filter| constant(filter)).collect();
    if constants.contains(&Some(false)) {
        let support = vec![TableProviderFilterPushDown::Exact; filters.len()];
        return Pushed { keys: Some(Vec::new()), index: None, tests: Vec::new(), support };
    }
    let mut is_exact = vec![false; filters.len()];
    let mut tests: Vec<(usize, ColumnTest)> = Vec::new();
    for (at, filter) in filters.iter().enumerate() {
        let exact = column_test(schema, filter);
        is_exact[at] = exact.is_some();
        tests.extend(exact.or_else(|| wider_test(schema, filter)).map(|test| (at, test)));
    }
    let keys = ranges_of(schema, schema.primary_key(), &tests, is_float_of_keys);
    let decided = |at: usize| keys.as_ref().is_some_and(|keys| keys.decided.contains(&at));
    let mut support = vec![TableProviderFilterPushDown::Unsupported; filters.len()];
    for (support, _) in support.iter_mut().zip(&constants).filter(|(_, constant)| constant.is_some()) {
        *support = TableProviderFilterPushDown::Exact;
    }
    let mut rest = Vec::new();
    for (at, test) in &tests {
        let is_long = matches!(&test.test, Test::In(values) if values.len() > LONGEST_LIST);
        let is_indexed = indexes.iter().any(|on| on.contains(&test.column)) || schema.is_primary_key(test.column);
        support[*at] = match decided(*at) || !is_long {
            true if is_exact[*at] => TableProviderFilterPushDown::Exact,
            true => TableProviderFilterPushDown::Inexact,
            false if is_indexed => TableProviderFilterPushDown::Inexact,
            false => continue,
        };
        if !decided(*at) && !is_long {
            rest.push(test.clone());
        }
    }
    let keys = keys.map(|keys| keys.ranges).filter(|ranges| *ranges != [KeyRange::ALL]);
    let no_floats = |_: &Datum| false;
    let of_index = |on: &[usize]| ranges_of(schema, on, &tests, no_floats);
    let index = if keys.is_some() { None } else { best_index(indexes, of_index) };
    Pushed { keys, index, tests: rest, support }
}

/// Whether every row passes a predicate, or none does: DataFusion simplifies what it gave away already, and `IS NULL`
/// of a column that is never null becomes `false`.
fn constant(filter: &Expr) -> Option<bool> {
    match filter {
        Expr::Literal(ScalarValue::Boolean(value), _) => Some(value.unwrap_or(false)),
        _ => None,
    }
}

/// The ranges of keys of these columns; `takes_float` says of which floats they may be made.
fn ranges_of(
    schema: &Schema,
    positions: &[usize],
    tests: &[(usize, ColumnTest)],
    takes_float: fn(&Datum) -> bool,
) -> Option<KeyRanges> {
    let columns: Vec<(usize, &Column)> =
        positions.iter().filter_map(|&at| Some((at, schema.columns().get(at)?))).collect();
    let is_float = |test: &ColumnTest| {
        let ty = schema.columns().get(test.column).map(|column| &column.ty);
        matches!(ty, Some(ColumnType::Float32 | ColumnType::Float64))
    };
    let is_usable = |(_, test): &&(usize, ColumnTest)| !is_float(test) || values_of(&test.test).all(takes_float);
    let tests: Vec<(usize, ColumnTest)> = tests.iter().filter(is_usable).cloned().collect();
    ranges(&columns, &tests)
}

/// The values that a test compares with.
fn values_of(test: &Test) -> impl Iterator<Item = &Datum> {
    let (one, several) = match test {
        Test::Equal(value) | Test::NotEqual(value) => (Some(value), &[][..]),
        Test::In(values) => (None, values.as_slice()),
        Test::Range { .. } | Test::Prefix(_) | Test::IsNull | Test::IsNotNull => (None, &[][..]),
    };
    let ends = match test {
        Test::Range { lower, upper } => [lower, upper].map(Some),
        _ => [None, None],
    };
    let ends = ends.into_iter().flatten().filter_map(|bound| match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    });
    one.into_iter().chain(several).chain(ends)
}

/// Whether codes of keys compare with this float as Arrow does.
fn is_float_of_keys(value: &Datum) -> bool {
    match value {
        Datum::Float32(v) => !v.is_nan(),
        Datum::Float64(v) => !v.is_nan(),
        _ => true,
    }
}

/// The index with most leading columns of given values, then with most tests.
fn best_index(
    indexes: &[&[usize]],
    ranges_of: impl Fn(&[usize]) -> Option<KeyRanges>,
) -> Option<(usize, Vec<KeyRange>)> {
    let found = indexes.iter().enumerate().filter_map(|(at, on)| Some((at, ranges_of(on)?)));
    // Of equals the first: the oldest.
    let best = found.rev().max_by_key(|(_, keys)| (keys.pinned, keys.decided.len()));
    best.map(|(at, keys)| (at, keys.ranges))
}

#[cfg(test)]
mod tests {
    use TableProviderFilterPushDown::{Exact, Inexact, Unsupported};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::column_test::describe;
    use crate::key_range::MOST_RANGES;

    fn schema() -> Schema {
        let text = "a int32 not null, b utf8 not null, c int64, d utf8, e float64, primary key (a, b)";
        Schema::parse(text).expect("valid")
    }

    fn pushed(filters: &[Expr]) -> Pushed {
        plan_filters(&schema(), &[], &filters.iter().collect::<Vec<_>>())
    }

    /// The ranges, and what is tested besides, as text.
    fn keys(filters: &[Expr]) -> (Vec<String>, Vec<String>) {
        let Pushed { keys, tests, .. } = pushed(filters);
        let ranges = keys.unwrap_or_else(|| vec![KeyRange::ALL]);
        let tests = tests.iter().map(|test| describe(&schema(), test)).collect();
        (ranges.iter().map(ToString::to_string).collect(), tests)
    }

    fn both(ranges: &[&str], tests: &[&str]) -> (Vec<String>, Vec<String>) {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        (texts(ranges), texts(tests))
    }

    fn index(filters: &[Expr]) -> Option<(usize, Vec<String>)> {
        let pushed = plan_filters(&schema(), &[&[2, 3], &[3]], &filters.iter().collect::<Vec<_>>());
        pushed.index.map(|(at, ranges)| (at, ranges.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn equalities_and_ranges_of_the_leading_columns_are_decided_by_the_key() {
        assert_eq!(keys(&[]), both(&["[first, last]"], &[]));
        let others = [col("b").eq(lit("x")), col("c").gt(lit(1))];
        assert_eq!(keys(&others), both(&["[first, last]"], &["b = x", "c > 1"]));
        assert_eq!(keys(&[col("a").eq(lit(1))]), both(&["(1)"], &[]));
        assert_eq!(keys(&[col("a").gt(lit(1))]), both(&["((1), last]"], &[]));
        let bounded = [col("a").gt_eq(lit(1)), col("b").eq(lit("x")), col("a").lt(lit(5)), col("a").lt(lit(9))];
        assert_eq!(keys(&bounded), both(&["[(1), (5))"], &["b = x"]));
        let point = [col("b").eq(lit("x")), col("a").eq(lit(1)), col("c").eq(lit(1))];
        assert_eq!(keys(&point), both(&["(1, x)"], &["c = 1"]));
        let within = [col("a").eq(lit(1)), col("b").gt(lit("x")), col("a").not_eq(lit(7))];
        assert_eq!(keys(&within), both(&["((1, x), (1)]"], &["a <> 7"]));
        assert_eq!(pushed(&within).support, vec![Exact; 3]);
        let untranslated = [col("a").eq(lit(1)), col("c").gt(col("a"))];
        assert_eq!(pushed(&untranslated).support, [Exact, Unsupported]);
    }

    #[test]
    fn sets_of_values_become_ascending_points() {
        let set = col("a").eq(lit(3)).or(col("a").eq(lit(1))).or(col("a").eq(lit(3)));
        assert_eq!(keys(std::slice::from_ref(&set)), both(&["(1)", "(3)"], &[]));
        let pairs = [set.clone(), col("b").in_list(vec![lit("y"), lit("x")], false)];
        assert_eq!(keys(&pairs), both(&["(1, x)", "(1, y)", "(3, x)", "(3, y)"], &[]));
        assert_eq!(keys(&[set.clone(), col("a").lt(lit(2))]), both(&["(1)"], &[]));
        let prefix = [set, col("b").like(lit("x%"))];
        assert_eq!(keys(&prefix), both(&["[(1, x), (1, y))", "[(3, x), (3, y))"], &[]));
    }

    #[test]
    fn what_no_key_passes_has_no_range() {
        for filters in [
            vec![col("a").eq(lit(1)), col("a").eq(lit(2))],
            vec![col("a").gt(lit(2)), col("a").lt_eq(lit(2))],
            vec![col("a").is_null()],
            vec![col("a").eq(lit(1)), col("b").gt(lit("x")), col("b").lt(lit("x"))],
        ] {
            assert_eq!(keys(&filters), both(&[], &[]), "{filters:?}");
        }
        assert_eq!(keys(&[col("a").is_not_null()]), both(&["[first, last]"], &[]));
    }

    #[test]
    fn a_set_with_too_many_values_bounds_the_keys_and_is_tested_again() {
        let many = |column: &str, count: i32, value: fn(i32) -> Expr| {
            col(column).in_list((0..count).map(value).collect(), false)
        };
        let wide = MOST_RANGES as i32 + 1;
        assert_eq!(keys(&[many("a", wide, lit)]), both(&[&format!("[(0), ({})]", wide - 1)], &[]));
        assert_eq!(pushed(&[many("a", wide, lit)]).support, [Inexact]);
        assert_eq!(pushed(&[many("c", LONGEST_LIST as i32 + 1, lit)]).support, [Unsupported]);
        assert_eq!(pushed(&[many("c", LONGEST_LIST as i32, lit)]).support, [Exact]);
        // With 100 values before it, 50 are too many; what was decided without them stays decided.
        let fifty = many("b", 50, |value| lit(format!("{value:02}")));
        let Pushed { keys, tests, .. } = pushed(&[many("a", 100, lit), fifty, col("b").gt(lit("05"))]);
        let ranges = keys.expect("the key is bounded");
        assert_eq!((ranges.len(), ranges[0].to_string().as_str()), (100, "[(0, 06), (0, 49)]"));
        assert!(matches!(&tests[..], [ColumnTest { column: 1, test: Test::In(values) }] if values.len() == 50));
    }

    #[test]
    fn what_bounds_a_column_is_tested_again() {
        let within = |low: i32, high: i32| col("a").between(lit(low), lit(high));
        let either = within(1, 3).or(within(90, 99));
        assert_eq!(keys(std::slice::from_ref(&either)), both(&["[(1), (99)]"], &[]));
        assert_eq!(pushed(std::slice::from_ref(&either)).support, [Inexact]);
        assert_eq!(pushed(&[either, col("a").eq(lit(2))]).support, [Inexact, Exact]);
        let pairs = col("c").eq(lit(1_i64)).and(col("e").gt(lit(0.5))).or(col("c").gt(lit(7_i64)));
        assert_eq!(keys(std::slice::from_ref(&pairs)), both(&["[first, last]"], &["c >= 1"]));
        assert_eq!(pushed(&[pairs]).support, [Inexact]);
        let pattern = col("b").like(lit("x%y"));
        let filters = [col("a").eq(lit(1)), pattern];
        assert_eq!(keys(&filters), both(&["[(1, x), (1, y))"], &[]));
        assert_eq!(pushed(&filters).support, [Exact, Inexact]);
    }

    #[test]
    fn codes_of_floats_are_asked_only_where_they_compare_as_arrow_does() {
        let schema = Schema::parse("k float64 not null, v float64, primary key (k)").expect("valid");
        let plan = |filter: Expr| plan_filters(&schema, &[&[1]], &[&filter]);
        assert!(plan(col("k").gt(lit(1.5))).tests.is_empty());
        assert!(plan(col("k").gt(lit(-0.0))).tests.is_empty());
        for filter in [col("k").lt(lit(f64::NAN)), col("v").eq(lit(1.5))] {
            let Pushed { keys, index, tests, support } = plan(filter);
            assert_eq!((keys, index, tests.len(), support), (None, None, 1, vec![Exact]));
        }
        assert!(plan(col("v").is_null()).index.is_some());
    }

    #[test]
    fn an_index_is_looked_into_where_the_key_says_nothing() {
        assert_eq!(index(&[col("a").eq(lit(1)), col("c").eq(lit(1))]), None);
        assert_eq!(index(&[col("b").eq(lit("x"))]), None);
        assert_eq!(index(&[col("d").eq(lit("x"))]), Some((1, vec!["(x)".into()])));
        assert_eq!(index(&[col("c").eq(lit(1)), col("d").eq(lit("x"))]), Some((0, vec!["(1, x)".into()])));
        assert_eq!(index(&[col("c").lt(lit(1))]), Some((0, vec!["((null), (1))".into()])), "nulls come first");
        assert_eq!(index(&[col("c").is_null()]), Some((0, vec!["(null)".into()])));
        assert_eq!(index(&[col("c").is_not_null()]), Some((0, vec!["((null), last]".into()])));
        let pushed = plan_filters(&schema(), &[&[2, 3]], &[&col("d").eq(lit("x")), &col("b").eq(lit("x"))]);
        assert_eq!((pushed.index, pushed.tests.len(), pushed.support), (None, 2, vec![Exact; 2]));
    }

    #[test]
    fn prefixes_end_where_the_next_text_begins() {
        let key = "b utf8 not null, primary key (b)";
        let schema = Schema::parse(key).expect("valid");
        for (prefix, end) in
            [("a", Some("b")), ("a\u{10ffff}", Some("b")), ("\u{d7ff}", Some("\u{e000}")), ("\u{10ffff}", None)]
        {
            let pushed = plan_filters(&schema, &[], &[&col("b").like(lit(format!("{prefix}%")))]);
            let upper = end.map_or(Bound::Unbounded, |end| Bound::Excluded(vec![Datum::Utf8(end.into())]));
            let lower = Bound::Included(vec![Datum::Utf8(prefix.into())]);
            assert_eq!(pushed.keys, Some(vec![KeyRange { lower, upper }]));
        }
        let null = Expr::Literal(ScalarValue::Utf8(None), None);
        assert_eq!(plan_filters(&schema, &[], &[&col("b").like(null)]).keys, None);
    }

    #[test]
    fn ranges_are_cut_at_keys_within_them() {
        let schema = schema();
        let key = |a, b: &str| vec![Datum::Int32(a), Datum::Utf8(b.into())];
        let range = KeyRange { lower: Bound::Included(vec![Datum::Int32(2)]), upper: Bound::Unbounded };
        let parts = range.split(&schema, &[key(1, "x"), key(3, "y"), key(4, "")]).expect("keys of the table");
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(parts, ["[(2), (3, y))", "[(3, y), (4, ))", "[(4, ), last]"]);
        let point = KeyRange { lower: Bound::Included(key(3, "y")), upper: Bound::Included(key(3, "y")) };
        assert_eq!(point.clone().split(&schema, &[key(3, "y")]).expect("a key of the table"), [point]);
    }
}
