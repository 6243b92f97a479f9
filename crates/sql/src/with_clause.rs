//! Queries of a `WITH` clause, which DataFusion plans anew wherever they are used.
//!
//! A chain of them, each of which uses the one before twice, is twice as large a plan with every link: forty links
//! never end. [`check_size`] counts the plan before it is made, in tables and queries, and refuses one of more than
//! [`MOST_RELATIONS`], unless the statement is as long as that itself.
//!
//! 1. A query counts for one, and for what its tables and subqueries count for.
//! 2. A table counts for one. A name of a `WITH` clause in scope counts for what its query does.
//! 3. Queries of a `WITH` clause themselves count for nothing: what uses them does. They are visited before the query
//!    that they belong to.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{ObjectName, ObjectNamePart, Query, Statement, Visit, Visitor};
use mycelium_base::{Error, ErrorKind, Result};

use crate::passed_over::folded;

/// Tables and queries that a plan may be made of.
const MOST_RELATIONS: u64 = 1_024;

/// Refuses a statement whose plan would be too large.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub(crate) fn check_size(statement: &Statement) -> Result<()> {
    let mut size = Size::default();
    let is_counted = statement.visit(&mut size).is_continue();
    let most = MOST_RELATIONS.max(size.written);
    if is_counted && size.planned <= most {
        return Ok(());
    }
    let message = format!(
        "queries of WITH are planned wherever they are used: {} tables and queries in all, at most {most} are possible",
        size.planned
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// The count.
#[derive(Default)]
struct Size {
    /// What the names in scope count for.
    named: BTreeMap<String, u64>,
    /// The queries around the place that is visited.
    open: Vec<Open>,
    /// What the statement counts for.
    planned: u64,
    /// What it would count for if every name counted for one.
    written: u64,
}

/// A query that is visited.
struct Open {
    /// Names of its `WITH` clause whose queries are still to come.
    coming: VecDeque<String>,
    /// Those that are in scope by now.
    known: Vec<String>,
    count: u64,
}

impl Size {
    fn add(&mut self, count: u64) {
        let sum = self.open.last_mut().map_or(&mut self.planned, |query| &mut query.count);
        *sum = sum.saturating_add(count);
    }
}

impl Visitor for Size {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let coming = tables.map(|table| folded(&table.alias.name)).collect();
        self.open.push(Open { coming, known: Vec::new(), count: 1 });
        self.written = self.written.saturating_add(1);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        let Some(Open { known, count, .. }) = self.open.pop() else { return ControlFlow::Continue(()) };
        for name in known {
            self.named.remove(&name);
        }
        let name = self.open.last_mut().and_then(|around| {
            let name = around.coming.pop_front()?;
            around.known.push(name.clone());
            Some(name)
        });
        match name {
            Some(name) => {
                self.named.insert(name, count);
            }
            None => self.add(count),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let count = match &name.0[..] {
            [ObjectNamePart::Identifier(name)] => self.named.get(&folded(name)).copied(),
            _ => None,
        };
        self.add(count.unwrap_or(1));
        self.written = self.written.saturating_add(1);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn sizes(text: &str) -> (u64, u64) {
        let mut size = Size::default();
        for statement in Parser::parse_sql(&GenericDialect {}, text).expect("it parses") {
            assert!(statement.visit(&mut size).is_continue());
        }
        assert!(size.named.is_empty() && size.open.is_empty());
        (size.planned, size.written)
    }

    #[test]
    fn what_is_used_twice_counts_twice() {
        assert_eq!(sizes("SELECT 1"), (1, 1));
        assert_eq!(sizes("SELECT * FROM t, u WHERE a IN (SELECT b FROM v)"), (5, 5));
        // The query of x counts for 2.
        assert_eq!(sizes("WITH x AS (SELECT * FROM t) SELECT * FROM x"), (3, 4));
        assert_eq!(sizes("WITH x AS (SELECT * FROM t) SELECT * FROM X a, x b"), (5, 5));
        assert_eq!(sizes("WITH x AS (SELECT * FROM t), y AS (SELECT * FROM x, x u) SELECT * FROM y, y v"), (11, 8));
        // Each name within its query alone, and of no other's columns.
        assert_eq!(sizes("SELECT * FROM (WITH x AS (SELECT * FROM t, u) SELECT * FROM x) v, x"), (6, 7));
        assert_eq!(sizes("WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT * FROM x) SELECT * FROM x"), (3, 4));
        assert_eq!(sizes("WITH \"X\" AS (SELECT * FROM t, u) SELECT * FROM x"), (2, 5));
    }

    #[test]
    fn chains_that_double_are_refused() {
        let chain = |links: usize| {
            let link = |at: usize| format!("x{} AS (SELECT a.k FROM x{at} a JOIN x{at} b ON a.k = b.k)", at + 1);
            let links: Vec<String> = (0..links).map(link).collect();
            format!("WITH x0 AS (SELECT k FROM t), {} SELECT count(*) FROM x{}", links.join(", "), links.len())
        };
        let check = |text: &str| {
            let mut parsed = Parser::parse_sql(&GenericDialect {}, text).expect("it parses");
            check_size(&parsed.remove(0)).map_err(|error| error.kind())
        };
        assert_eq!(check(&chain(7)), Ok(()));
        for links in [10, 40, 200] {
            assert_eq!(check(&chain(links)), Err(ErrorKind::Unsupported), "{links}");
        }
        let many: Vec<String> = (0..300).map(|at| format!("SELECT * FROM t{at}")).collect();
        assert_eq!(check(&many.join(" UNION ALL ")), Ok(()));
        assert_eq!(check(&format!("SELECT * FROM {}", vec!["t"; 3_000].join(", "))), Ok(()), "as it is written");
    }
}
