//! Clauses that DataFusion's planner passes over, or takes for something else than SQL says. They are refused.
//!
//! The parser knows the clauses of many databases. The planner reads those that it has, and lets go of some others
//! without a word: a statement then answers as if they were not there.
//!
//! | written | was |
//! |---|---|
//! | `TABLESAMPLE`, `PARTITION (p)`, `WITH ORDINALITY` of a table | left out |
//! | `PREWHERE`, `CONNECT BY`, `GROUP BY x WITH ROLLUP`, `INTERPOLATE` | left out |
//! | `WITH RECURSIVE x AS (… UNION … LIMIT 9)`, and a `WITH` within it | left out |
//! | `CAST(x AS VARCHAR(3))`, `CAST(x AS CHAR)` | all of the text |
//! | `to_char(t, 'YYYY')` | `YYYY` |
//! | `2 ^ 3`, a power in PostgreSQL | the bits of one of both, 1 |
//! | `RIGHT` and `FULL JOIN` with `USING` or `NATURAL` | the left side's column, null where there was no row |
//! | `SELECT *` of a `LEFT JOIN` with them | the column of the side whose name sorts first |
//! | `SELECT *` of several joins with them | the column twice, where the leftmost table's name sorts after two others |
//! | `NATURAL LEFT JOIN` | a `CROSS JOIN`, where no column is shared |
//! | `EXCEPT ALL`, `INTERSECT ALL` | joins, which do not count rows |
//! | `SIMILAR TO` | a regular expression |
//! | `a IS DISTINCT FROM b AND c` | `a IS DISTINCT FROM (b AND c)` |

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, PipeOperator, Query, Select, SelectItem, SetExpr,
    SetOperator, SetQuantifier, TableFactor, TableWithJoins, Value,
};

/// Functions that write a moment as their second argument says.
const FORMATTING: [&str; 2] = ["to_char", "date_format"];

/// What of an expression, not of its parts, is refused: the message.
pub(crate) fn in_expr(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => match &**right {
            // The parser takes all that follows for the right side.
            Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor, .. } => {
                Some("IS DISTINCT FROM followed by AND, OR or XOR: put the comparison in parentheses")
            }
            _ => None,
        },
        Expr::SimilarTo { .. } => Some("SIMILAR TO: use LIKE or ~"),
        Expr::BinaryOp { op: BinaryOperator::BitwiseXor, .. } => {
            Some("^, which is a power in PostgreSQL: XOR is the exclusive OR of bits")
        }
        Expr::Cast {
            data_type: DataType::Varchar(Some(_)) | DataType::Char(_) | DataType::String(Some(_)), ..
        } => Some("casts to texts of some length: left(CAST(x AS TEXT), n) has at most n characters"),
        Expr::Function(function) => in_function(function),
        _ => None,
    }
}

/// A format is one of `strftime`: without a `%` it is a text that says nothing of the moment.
fn in_function(function: &Function) -> Option<&'static str> {
    let is_formatting = FORMATTING.contains(&&*function.name.to_string().to_ascii_lowercase());
    let FunctionArguments::List(list) = &function.args else { return None };
    let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(format)))] = &list.args[..] else { return None };
    match &format.value {
        Value::SingleQuotedString(text) if is_formatting && !text.contains('%') => {
            Some("formats without %, as to_char has them in PostgreSQL: those of strftime are read, '%Y-%m-%d' say")
        }
        _ => None,
    }
}

/// What of a query, not of those within it, is refused: the message.
pub(crate) fn in_query(query: &Query) -> Option<&'static str> {
    if counts_rows(&query.body) {
        return Some("EXCEPT ALL and INTERSECT ALL: repeated rows are not counted");
    }
    if query.order_by.as_ref().is_some_and(|order| order.interpolate.is_some()) {
        return Some("INTERPOLATE");
    }
    let recursive = query.with.iter().filter(|with| with.recursive);
    if recursive.flat_map(|with| &with.cte_tables).any(|table| is_cut(&table.query)) {
        return Some("WITH, LIMIT, FETCH or |> of a UNION in WITH RECURSIVE: say it where the rows are used");
    }
    query.pipe_operators.iter().find_map(|step| match step {
        PipeOperator::Join(join) => shared_columns(&join.join_operator, false),
        _ => None,
    })
}

/// Whether it, or one that it is made of, is an `EXCEPT ALL` or `INTERSECT ALL`.
fn counts_rows(body: &SetExpr) -> bool {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return false };
    let is_all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    is_all && !matches!(op, SetOperator::Union) || counts_rows(left) || counts_rows(right)
}

/// Of a `UNION` in a `WITH RECURSIVE` both sides are planned, and nothing around them.
fn is_cut(query: &Query) -> bool {
    let is_union = matches!(&*query.body, SetExpr::SetOperation { op: SetOperator::Union, .. });
    let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
    is_union && (is_limited || query.with.is_some() || !query.pipe_operators.is_empty())
}

/// What of a `SELECT` is refused: the message.
pub(crate) fn in_select(select: &Select) -> Option<&'static str> {
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
    if !modifiers.is_empty() {
        return Some("WITH ROLLUP, CUBE or TOTALS behind GROUP BY: use GROUP BY ROLLUP (…) or CUBE (…)");
    }
    if select.prewhere.is_some() {
        return Some("PREWHERE: use WHERE");
    }
    if !select.connect_by.is_empty() {
        return Some("CONNECT BY: use WITH RECURSIVE");
    }
    let is_wildcard = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    // `FROM t` alone has all columns.
    let has_all = select.projection.is_empty() || select.projection.iter().any(is_wildcard);
    select.from.iter().find_map(|tables| in_joins(tables, has_all).err())
}

/// What of a table, not of a query within it, is refused: the message.
pub(crate) fn in_table(table: &TableFactor) -> Option<&'static str> {
    match table {
        TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
            Some("TABLESAMPLE")
        }
        TableFactor::Table { partitions, .. } if !partitions.is_empty() => Some("PARTITION of a table"),
        TableFactor::Table { with_ordinality: true, .. } | TableFactor::Function { with_ordinality: true, .. } => {
            Some("WITH ORDINALITY: use row_number()")
        }
        _ => None,
    }
}

/// Of joined tables: the message, or the constraints by which `*` takes another column than the leftmost. `has_all`:
/// all columns are asked for.
fn in_joins(tables: &TableWithJoins, has_all: bool) -> Result<Vec<&JoinConstraint>, &'static str> {
    let mut left = names_of(&tables.relation);
    let mut moved = in_nested(&tables.relation, has_all)?;
    for join in &tables.joins {
        let right = names_of(&join.relation);
        let keeps_left = !has_all || sorts_before(left.as_deref(), right.as_deref());
        if let Some(message) = shared_columns(&join.join_operator, keeps_left) {
            return Err(message);
        }
        let within = in_nested(&join.relation, has_all)?;
        if let Some(constraint) = inner_constraint(&join.join_operator) {
            let mut others = within.iter().chain(moved.iter().filter(|_| !keeps_left));
            if others.any(|other| may_share(other, constraint)) {
                return Err(
                    "SELECT * of several joins with USING or NATURAL whose sides have these names: name the columns",
                );
            }
            moved.extend((!keeps_left).then_some(constraint));
        }
        moved.extend(within);
        left = left.zip(right).map(|(left, right)| [left, right].concat());
    }
    Ok(moved)
}

fn in_nested(table: &TableFactor, has_all: bool) -> Result<Vec<&JoinConstraint>, &'static str> {
    match table {
        TableFactor::NestedJoin { table_with_joins, .. } => in_joins(table_with_joins, has_all),
        _ => Ok(Vec::new()),
    }
}

fn is_shared(constraint: &JoinConstraint) -> bool {
    matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
}

/// Of the columns that both sides share. `keeps_left`: the left side's are taken.
fn shared_columns(operator: &JoinOperator, keeps_left: bool) -> Option<&'static str> {
    use JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
    match operator {
        Right(constraint) | RightOuter(constraint) | FullOuter(constraint) if is_shared(constraint) => {
            Some("USING or NATURAL of a RIGHT or FULL JOIN: join with ON, and take coalesce(a.x, b.x)")
        }
        Left(JoinConstraint::Natural) | LeftOuter(JoinConstraint::Natural) => {
            Some("NATURAL of a LEFT JOIN, whose columns may have no name in common: say which with USING")
        }
        Left(constraint) | LeftOuter(constraint) if is_shared(constraint) && !keeps_left => {
            Some("SELECT * of a LEFT JOIN with USING or NATURAL whose sides have these names: name the columns")
        }
        _ => None,
    }
}

/// By which columns rows are joined of which both sides have one.
fn inner_constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    use JoinOperator::{Inner, Join, Left, LeftOuter};
    match operator {
        Join(constraint) | Inner(constraint) | Left(constraint) | LeftOuter(constraint) => {
            Some(constraint).filter(|constraint| is_shared(constraint))
        }
        _ => None,
    }
}

/// Whether two joins may be by a column of the same name.
fn may_share(one: &JoinConstraint, other: &JoinConstraint) -> bool {
    let name_of = |name: &ObjectName| match &name.0[..] {
        [ObjectNamePart::Identifier(name)] => Some(folded(name)),
        _ => None,
    };
    match (one, other) {
        (JoinConstraint::Using(one), JoinConstraint::Using(other)) => {
            one.iter().any(|name| other.iter().any(|other| name_of(name) == name_of(other)))
        }
        _ => true,
    }
}

/// The names that columns of a table are qualified with, as far as they are known without the table.
fn names_of(table: &TableFactor) -> Option<Vec<String>> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(vec![folded(&alias.name)]),
        TableFactor::Table { name, alias: None, .. } => match &name.0[..] {
            [ObjectNamePart::Identifier(name)] => Some(vec![folded(name)]),
            _ => None,
        },
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            let joined = table_with_joins.joins.iter().map(|join| &join.relation);
            let names = [&table_with_joins.relation].into_iter().chain(joined).map(names_of);
            Some(names.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => None,
    }
}

/// Whether every name of the left side sorts before those of the right.
fn sorts_before(left: Option<&[String]>, right: Option<&[String]>) -> bool {
    match (left.and_then(|names| names.iter().max()), right.and_then(|names| names.iter().min())) {
        (Some(left), Some(right)) => left < right,
        _ => false,
    }
}

/// A name as it is looked up: in lower case unless it is quoted.
pub(crate) fn folded(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}
