//! LASER's table and queries in SQL, as PostgreSQL and DuckDB both understand them.

use std::fmt::Write;

use mycelium_bench::experiments::laser::{Aggregate, Rows};

/// A key as a signed number of the same order: PostgreSQL has no unsigned ones.
pub(crate) fn sql_key(key: u64) -> i64 {
    (key ^ (1 << 63)).cast_signed()
}

/// The table, without its primary key.
pub(crate) fn create_table(rows: Rows) -> String {
    let columns: String = (1..=rows.columns).map(|column| format!(", a{column} INTEGER NOT NULL")).collect();
    format!("CREATE TABLE t (a0 BIGINT NOT NULL{columns})")
}

/// A row as a line of text, in place of what `line` held.
pub(crate) fn write_line(rows: Rows, index: u64, separator: char, line: &mut String) {
    line.clear();
    line.push_str(&sql_key(rows.key(index)).to_string());
    for column in 1..=rows.columns {
        line.push(separator);
        // Writing to a string cannot fail.
        let _ = write!(line, "{}", rows.value(index, column));
    }
    line.push('\n');
}

/// Names of columns, for a `SELECT`.
pub(crate) fn columns(projection: &[usize]) -> String {
    let names: Vec<String> = projection.iter().map(|column| format!("a{column}")).collect();
    names.join(", ")
}

/// An aggregate of each column, as 64-bit numbers.
pub(crate) fn aggregates(projection: &[usize], aggregate: Aggregate) -> String {
    let function = if aggregate == Aggregate::Maxima { "max" } else { "sum" };
    let terms: Vec<String> = projection.iter().map(|column| format!("{function}(a{column})::BIGINT")).collect();
    terms.join(", ")
}

/// The one number that stands for the aggregates: as our tables fold theirs, also where no row was selected.
pub(crate) fn folded(answers: Vec<Option<i64>>, aggregate: Aggregate) -> i64 {
    let of_nothing = if aggregate == Aggregate::Maxima { i64::MIN } else { 0 };
    answers.into_iter().map(|answer| answer.unwrap_or(of_nothing)).fold(0, i64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order() {
        let keys = [0, 1, (1 << 63) - 1, 1 << 63, u64::MAX].map(sql_key);
        assert!(keys.is_sorted() && keys[0] == i64::MIN && keys[4] == i64::MAX, "{keys:?}");
    }

    #[test]
    fn aggregates_of_nothing_fold_as_ours_do() {
        assert_eq!(aggregates(&[2, 3], Aggregate::Maxima), "max(a2)::BIGINT, max(a3)::BIGINT");
        assert_eq!(folded(vec![Some(1), None], Aggregate::Sums), 1);
        assert_eq!(folded(vec![None], Aggregate::Maxima), i64::MIN);
    }
}
