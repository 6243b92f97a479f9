//! What of a query's predicates storage takes over, and how it gets at the rows.
//!
//! [`plan_filters`] splits the conjuncts of a `WHERE` clause:
//!
//! 1. Each is translated to a test of one column, or left ([`crate::column_test`]).
//! 2. Tests of the leading primary key columns become key ranges ([`crate::key_range`]). Those that the ranges decide are
//!    answered `Exact`: DataFusion drops them.
//! 3. Where the key says nothing, the index whose leading columns have most tests gives ranges of its own. They are answered
//!    `Inexact`, for whether the index is worth its look-ups is found out when the scan is planned; DataFusion tests the
//!    rows again.
//! 4. Anything else is `Unsupported`.

use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use mycelium_encoding::{Column, Schema};

use crate::column_test::ColumnTest;
use crate::key_range::{KeyRange, KeyRanges, ranges};

/// The split of a query's predicates.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pushed {
    /// The key ranges that hold every row asked for, ascending; `None` if the key says nothing.
    pub(crate) keys: Option<Vec<KeyRange>>,
    /// The index to look into where the key says nothing: its position among those given, and its ranges.
    pub(crate) index: Option<(usize, Vec<KeyRange>)>,
    /// Of every predicate, who decides it.
    pub(crate) support: Vec<TableProviderFilterPushDown>,
}

/// Splits conjuncts; `indexes` are the indexed columns of each index.
pub(crate) fn plan_filters(schema: &Schema, indexes: &[&[usize]], filters: &[&Expr]) -> Pushed {
    let test = |(at, filter): (usize, &&Expr)| Some((at, ColumnTest::from_expr(schema, filter)?));
    let tests: Vec<(usize, ColumnTest)> = filters.iter().enumerate().filter_map(test).collect();
    let columns = |positions: &[usize]| -> Vec<(usize, Column)> {
        positions.iter().filter_map(|&at| Some((at, schema.columns().get(at)?.clone()))).collect()
    };
    let mut support = vec![TableProviderFilterPushDown::Unsupported; filters.len()];
    for (at, test) in &tests {
        if indexes.iter().any(|on| on.contains(&test.column)) {
            support[*at] = TableProviderFilterPushDown::Inexact;
        }
    }
    let keys = ranges_of(&columns(schema.primary_key()), &tests);
    for &at in keys.iter().flat_map(|keys| &keys.decided) {
        support[at] = TableProviderFilterPushDown::Exact;
    }
    let keys = keys.map(|keys| keys.ranges).filter(|ranges| *ranges != [KeyRange::ALL]);
    let index = if keys.is_some() { None } else { best_index(indexes, |on| ranges_of(&columns(on), &tests)) };
    Pushed { keys, index, support }
}

fn ranges_of(columns: &[(usize, Column)], tests: &[(usize, ColumnTest)]) -> Option<KeyRanges> {
    let columns: Vec<(usize, &Column)> = columns.iter().map(|(at, column)| (*at, column)).collect();
    ranges(&columns, tests)
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
    use std::ops::Bound;

    use TableProviderFilterPushDown::{Exact, Inexact, Unsupported};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{col, lit};
    use mycelium_encoding::Datum;

    use super::*;
    use crate::key_range::MOST_RANGES;

    fn schema() -> Schema {
        let text = "a int32 not null, b utf8 not null, c int64, d utf8, primary key (a, b)";
        Schema::parse(text).expect("valid")
    }

    /// The ranges as text, and who decides each predicate.
    fn keys(filters: &[Expr]) -> (Vec<String>, Vec<TableProviderFilterPushDown>) {
        let pushed = plan_filters(&schema(), &[], &filters.iter().collect::<Vec<_>>());
        let ranges = pushed.keys.unwrap_or_else(|| vec![KeyRange::ALL]);
        (ranges.iter().map(ToString::to_string).collect(), pushed.support)
    }

    fn index(filters: &[Expr]) -> Option<(usize, Vec<String>)> {
        let pushed = plan_filters(&schema(), &[&[2, 3], &[3]], &filters.iter().collect::<Vec<_>>());
        pushed.index.map(|(at, ranges)| (at, ranges.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn equalities_and_ranges_of_the_leading_columns_are_decided_by_the_key() {
        let all = vec!["[first, last]".to_owned()];
        assert_eq!(keys(&[]), (all.clone(), vec![]));
        assert_eq!(keys(&[col("b").eq(lit("x")), col("c").gt(lit(1))]), (all, vec![Unsupported; 2]));
        assert_eq!(keys(&[col("a").eq(lit(1))]), (vec!["(1)".into()], vec![Exact]));
        assert_eq!(keys(&[col("a").gt(lit(1))]), (vec!["((1), last]".into()], vec![Exact]));
        let bounded = [col("a").gt_eq(lit(1)), col("b").eq(lit("x")), col("a").lt(lit(5)), col("a").lt(lit(9))];
        assert_eq!(keys(&bounded), (vec!["[(1), (5))".into()], vec![Exact, Unsupported, Exact, Exact]));
        let point = [col("b").eq(lit("x")), col("a").eq(lit(1)), col("c").eq(lit(1))];
        assert_eq!(keys(&point), (vec!["(1, x)".into()], vec![Exact, Exact, Unsupported]));
        let within = [col("a").eq(lit(1)), col("b").gt(lit("x"))];
        assert_eq!(keys(&within), (vec!["((1, x), (1)]".into()], vec![Exact; 2]));
    }

    #[test]
    fn sets_of_values_become_ascending_points() {
        let set = col("a").eq(lit(3)).or(col("a").eq(lit(1))).or(col("a").eq(lit(3)));
        assert_eq!(keys(&[set.clone()]), (vec!["(1)".into(), "(3)".into()], vec![Exact]));
        let both = [set.clone(), col("b").in_list(vec![lit("y"), lit("x")], false)];
        let points = ["(1, x)", "(1, y)", "(3, x)", "(3, y)"].map(str::to_owned).to_vec();
        assert_eq!(keys(&both), (points, vec![Exact; 2]));
        assert_eq!(keys(&[set.clone(), col("a").lt(lit(2))]), (vec!["(1)".into()], vec![Exact; 2]));
        let prefix = [set, col("b").like(lit("x%"))];
        assert_eq!(keys(&prefix), (vec!["[(1, x), (1, y))".into(), "[(3, x), (3, y))".into()], vec![Exact; 2]));
    }

    #[test]
    fn what_no_key_passes_has_no_range() {
        for filters in [
            vec![col("a").eq(lit(1)), col("a").eq(lit(2))],
            vec![col("a").gt(lit(2)), col("a").lt_eq(lit(2))],
            vec![col("a").is_null()],
            vec![col("a").eq(lit(1)), col("b").gt(lit("x")), col("b").lt(lit("x"))],
        ] {
            let support = vec![Exact; filters.len()];
            assert_eq!(keys(&filters), (vec![], support), "{filters:?}");
        }
        assert_eq!(keys(&[col("a").is_not_null()]).1, [Exact]);
    }

    #[test]
    fn a_set_with_too_many_values_bounds_the_keys_and_is_tested_again() {
        let many = |column: &str, count: i32, value: fn(i32) -> Expr| {
            col(column).in_list((0..count).map(value).collect(), false)
        };
        let wide = MOST_RANGES as i32 + 1;
        assert_eq!(keys(&[many("a", wide, lit)]), (vec![format!("[(0), ({})]", wide - 1)], vec![Unsupported]));
        // With 100 values before it, 50 are too many; what was decided without them stays decided.
        let hundred = many("a", 100, lit);
        let fifty = many("b", 50, |value| lit(format!("{value:02}")));
        let (ranges, support) = keys(&[hundred, fifty, col("b").gt(lit("05"))]);
        assert_eq!(support, [Exact, Unsupported, Exact]);
        assert_eq!((ranges.len(), ranges[0].as_str()), (100, "[(0, 06), (0, 49)]"));
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
        assert_eq!((pushed.index, pushed.support), (None, vec![Inexact, Unsupported]));
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
