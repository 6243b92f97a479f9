//! Columns of a `SELECT` that DataFusion gives one name.
//!
//! It names a column by its expression, and leaves out casts, qualifiers and how a number was written: `a` and
//! `CAST(a AS INT)` are both `t.a`, `d % 1` and `d % 1.0` both `d % 1`. A plan whose columns share a name is none. In
//! SQL they may, and nobody asked for a name.
//!
//! A statement that is refused for that ([`is_shared`]) is planned again with names for what has none
//! ([`distinguish`]):
//!
//! 1. The first column `a` or `t.a` keeps its name, unless a `*` may have it already.
//! 2. Everything else gets its text as a name, and a number behind it where that is taken: `a:1`.
//!
//! Names that are written stay: two of them that are the same are refused.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem, VisitMut, VisitorMut};

use crate::passed_over::folded;

/// Whether a statement is refused since columns share a name.
pub(crate) fn is_shared(error: &DataFusionError) -> bool {
    error.to_string().contains("require unique expression names")
}

/// Names the columns of a statement apart.
pub(crate) fn distinguish(statement: &mut Parsed) {
    match statement {
        Parsed::Statement(statement) => {
            let ControlFlow::Continue(()) = statement.visit(&mut Columns);
        }
        Parsed::Explain(explain) => distinguish(&mut explain.statement),
        Parsed::Reset(_) | Parsed::CreateExternalTable(_) | Parsed::CopyTo(_) => {}
    }
}

/// Finds them.
struct Columns;

impl VisitorMut for Columns {
    type Break = Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Infallible> {
        let mut taken = BTreeSet::new();
        let mut has_wildcard = false;
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => {
                    taken.insert(folded(alias));
                }
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => has_wildcard = true,
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAliases { .. } => {}
            }
        }
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item {
                let column = column_name(expr);
                let may_be_taken = has_wildcard && column.is_some();
                let is_kept = !has_wildcard && column.as_ref().is_some_and(|name| taken.insert(name.clone()));
                if !is_kept {
                    let alias = free_name(&column.unwrap_or_else(|| expr.to_string()), may_be_taken, &mut taken);
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', alias) };
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The name of a column that stands for itself.
fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(names) => names.last().map(folded),
        _ => None,
    }
}

/// The text, unless it may be taken, or the text and the first number that make a name which is not. It is taken now.
fn free_name(text: &str, may_be_taken: bool, taken: &mut BTreeSet<String>) -> String {
    if !may_be_taken && taken.insert(text.to_owned()) {
        return text.to_owned();
    }
    let mut number = 1_u64;
    loop {
        let name = format!("{text}:{number}");
        if taken.insert(name.clone()) {
            return name;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn named(text: &str) -> String {
        let mut statement = DFParser::parse_sql(text).expect("it parses").remove(0).expect("one");
        distinguish(&mut statement);
        statement.to_string()
    }

    #[test]
    fn what_has_no_name_gets_one_that_is_free() {
        assert_eq!(named("SELECT a, t.a, A FROM t"), "SELECT a, t.a AS \"a:1\", A AS \"a:2\" FROM t");
        assert_eq!(
            named("SELECT d % 1, d % 1.0, d % 1 FROM t"),
            "SELECT d % 1 AS \"d % 1\", d % 1.0 AS \"d % 1.0\", d % 1 AS \"d % 1:1\" FROM t"
        );
        assert_eq!(named("SELECT b AS a, a FROM t"), "SELECT b AS a, a AS \"a:1\" FROM t");
        assert_eq!(named("SELECT a AS x, b AS x FROM t"), "SELECT a AS x, b AS x FROM t");
        assert_eq!(named("SELECT *, a FROM t"), "SELECT *, a AS \"a:1\" FROM t");
        assert_eq!(
            named("SELECT * FROM (SELECT a, a FROM t) UNION SELECT 1, 1"),
            "SELECT * FROM (SELECT a, a AS \"a:1\" FROM t) UNION SELECT 1 AS \"1\", 1 AS \"1:1\""
        );
    }
}
