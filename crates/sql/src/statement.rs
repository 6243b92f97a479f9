//! What may be said: statements that read, and statements about the session.
//!
//! A text is one statement. It is parsed before DataFusion plans it, and refused if anything in it, however deep, would
//! write, lock or read files: DataFusion would run some of that (`EXPLAIN DELETE` deletes while it plans), and pass
//! over some in silence (`FOR UPDATE`). So is what it would pass over or take for something else
//! ([`crate::passed_over`]), and what would be planned too often ([`crate::with_clause`]). Numbers of more digits than
//! a double has become decimals ([`crate::written_decimal`]).
//!
//! | statement | |
//! |---|---|
//! | `SELECT`, `WITH`, `VALUES` | without `INTO`, `FOR UPDATE` and `FOR SHARE` |
//! | `EXPLAIN [ANALYZE] [VERBOSE]` | of the above |
//! | `SHOW TABLES`, `SHOW COLUMNS FROM`, `SHOW` of settings, `DESCRIBE` | |
//! | `SET`, `RESET` | DataFusion's settings, of the session |
//! | `TAKE SNAPSHOT name`, `DROP SNAPSHOT name`, `SHOW SNAPSHOTS` | snapshots that the session holds |
//! | `USE SNAPSHOT name`, `USE LATEST` | what following statements read |

use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParser, Statement as Parsed};
use datafusion::sql::sqlparser::ast::{Expr as AstExpr, Query, Select, Statement as Ast, TableFactor, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use mycelium_base::{Error, ErrorKind, Result};

use crate::failure::inward;
use crate::{deep_stack, passed_over, with_clause, written_decimal};

/// A statement that may be run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Statement {
    /// DataFusion's.
    Sql(Box<Parsed>),
    /// Take a snapshot under a name.
    TakeSnapshot(String),
    /// Let go of one.
    DropSnapshot(String),
    /// List them.
    ShowSnapshots,
    /// Read at one from now on; `None` is the newest state of each statement's beginning.
    Use(Option<String>),
}

impl Statement {
    /// # Errors
    /// [`ErrorKind::InvalidArgument`]: no statement, several, or one that does not parse. [`ErrorKind::ReadOnly`]: one
    /// that would write. [`ErrorKind::Unsupported`]: any other.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // What has no tokens is no SQL, and for the parser to refuse.
        if let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize() {
            if let Some(own) = Self::of_session(&tokens) {
                return Ok(own);
            }
            deep_stack::check_depth(&tokens)?;
        }
        deep_stack::run(|| Self::parse_sql(text))
    }

    fn parse_sql(text: &str) -> Result<Self> {
        let mut parsed = DFParser::parse_sql(text).map_err(inward)?;
        let mut statement = match (parsed.pop_front(), parsed.is_empty()) {
            (Some(statement), true) => statement,
            (None, _) => return Err(Error::invalid("there is no statement")),
            (Some(_), false) => return Err(Error::invalid("there are several statements; give one at a time")),
        };
        check(&statement)?;
        prepare(&mut statement);
        Ok(Self::Sql(Box::new(statement)))
    }

    /// The statements that SQL does not have. Comments are space.
    fn of_session(tokens: &[Token]) -> Option<Self> {
        let text_of = |token: &Token| match token {
            Token::Whitespace(_) => " ".to_owned(),
            token => token.to_string(),
        };
        let text: String = tokens.iter().map(text_of).collect();
        let words: Vec<&str> = text.trim().trim_end_matches(';').split_whitespace().collect();
        let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found.eq_ignore_ascii_case(word));
        match words[..] {
            [_, _] if is(0, "show") && is(1, "snapshots") => Some(Self::ShowSnapshots),
            [_, _] if is(0, "use") && is(1, "latest") => Some(Self::Use(None)),
            [_, _, name] if is(1, "snapshot") => match words[0].to_ascii_lowercase().as_str() {
                "take" => Some(Self::TakeSnapshot(name.to_owned())),
                "drop" => Some(Self::DropSnapshot(name.to_owned())),
                "use" => Some(Self::Use(Some(name.to_owned()))),
                _ => None,
            },
            _ => None,
        }
    }
}

fn check(statement: &Parsed) -> Result<()> {
    match statement {
        Parsed::Statement(statement) => match statement.visit(&mut Reading) {
            ControlFlow::Continue(()) => with_clause::check_size(statement),
            ControlFlow::Break(error) => Err(error),
        },
        Parsed::Explain(explain) => check(&explain.statement),
        Parsed::Reset(_) => Ok(()),
        Parsed::CreateExternalTable(_) | Parsed::CopyTo(_) => Err(writes(&statement.to_string())),
    }
}

/// Says what DataFusion would lose of a statement in words that it keeps.
fn prepare(statement: &mut Parsed) {
    match statement {
        Parsed::Statement(statement) => written_decimal::keep_digits(statement),
        Parsed::Explain(explain) => prepare(&mut explain.statement),
        Parsed::Reset(_) | Parsed::CreateExternalTable(_) | Parsed::CopyTo(_) => {}
    }
}

/// Goes on if there is no message of what is refused.
fn go_on(refused: Option<&str>) -> ControlFlow<Error> {
    match refused {
        Some(message) => ControlFlow::Break(Error::new(ErrorKind::Unsupported, message)),
        None => ControlFlow::Continue(()),
    }
}

/// Finds what does more than read, and what would be read as something else.
struct Reading;

impl Visitor for Reading {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &Ast) -> ControlFlow<Error> {
        match statement {
            Ast::Query(_)
            | Ast::Explain { .. }
            | Ast::ExplainTable { .. }
            | Ast::ShowTables { .. }
            | Ast::ShowColumns { .. }
            | Ast::ShowVariable { .. }
            | Ast::ShowVariables { .. }
            | Ast::ShowFunctions { .. }
            | Ast::Set(_) => ControlFlow::Continue(()),
            other => ControlFlow::Break(writes(&other.to_string())),
        }
    }

    fn pre_visit_expr(&mut self, expr: &AstExpr) -> ControlFlow<Error> {
        go_on(passed_over::in_expr(expr))
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Error> {
        go_on(passed_over::in_table(table))
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        go_on(passed_over::in_query(query))?;
        if query.locks.is_empty() {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(Error::new(
            ErrorKind::ReadOnly,
            "FOR UPDATE and FOR SHARE lock rows, and SQL only reads here; a statement reads one snapshot in any case",
        ))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        match &select.into {
            None => go_on(passed_over::in_select(select)),
            Some(_) => ControlFlow::Break(writes("SELECT INTO")),
        }
    }
}

const WRITING: [&str; 17] = [
    "INSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "REPLACE",
    "TRUNCATE",
    "CREATE",
    "DROP",
    "ALTER",
    "COPY",
    "GRANT",
    "REVOKE",
    "SELECT INTO",
    "ANALYZE",
    "VACUUM",
    "COMMENT",
    "CALL",
];

fn writes(statement: &str) -> Error {
    let first = statement.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    match WRITING.iter().find(|word| **word == first || **word == statement) {
        Some(word) => Error::new(
            ErrorKind::ReadOnly,
            format!(
                "{word} is refused: SQL only reads here; write through the library or `mycelium put`, `load`, `delete`"
            ),
        ),
        None => Error::new(
            ErrorKind::Unsupported,
            format!("{first} is no statement here; there are SELECT, EXPLAIN, SHOW, DESCRIBE, SET and USE SNAPSHOT"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_read_pass() {
        for text in [
            "SELECT 1",
            "select * from t where a in (select b from u) union all values (1, 2);",
            "WITH x AS (SELECT 1) SELECT * FROM x",
            "EXPLAIN SELECT 1",
            "EXPLAIN ANALYZE VERBOSE SELECT 1",
            "SHOW TABLES",
            "SHOW COLUMNS FROM t",
            "SHOW ALL",
            "DESCRIBE t",
            "SET datafusion.execution.target_partitions = 1",
            "RESET datafusion.execution.target_partitions",
        ] {
            assert!(matches!(Statement::parse(text), Ok(Statement::Sql(_))), "{text}: {:?}", Statement::parse(text));
        }
    }

    #[test]
    fn statements_of_the_session_may_have_comments() {
        for (text, expected) in [
            ("-- before the load\nTAKE SNAPSHOT s;", Statement::TakeSnapshot("s".into())),
            ("USE /* a /* b */ c */ LATEST -- now", Statement::Use(None)),
            ("SHOW/**/SNAPSHOTS", Statement::ShowSnapshots),
        ] {
            assert_eq!(Statement::parse(text).expect("it is one"), expected, "{text}");
        }
    }

    #[test]
    fn statements_that_write_are_refused() {
        for text in [
            "INSERT INTO t VALUES (1)",
            "UPDATE t SET a = 1",
            "DELETE FROM t",
            "TRUNCATE t",
            "CREATE TABLE t (a int)",
            "CREATE VIEW v AS SELECT 1",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
            "DROP TABLE t",
            "ALTER TABLE t ADD COLUMN b int",
            "COPY t TO '/tmp/file'",
            "COPY (SELECT 1) TO '/tmp/file'",
            "EXPLAIN DELETE FROM t",
            "EXPLAIN ANALYZE INSERT INTO t SELECT * FROM t",
            "EXPLAIN COPY t TO '/tmp/file'",
            "SELECT a INTO u FROM t",
            "SELECT * FROM (SELECT a INTO u FROM t)",
            "SELECT a FROM t FOR UPDATE",
            "SELECT * FROM (SELECT a FROM t FOR SHARE)",
            "WITH x AS (DELETE FROM t RETURNING a) SELECT * FROM x",
            "WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x",
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE",
        ] {
            let error = Statement::parse(text).expect_err(text);
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{text}: {error}");
        }
    }

    /// DataFusion answered as if they were not there, or as if they said something else.
    #[test]
    fn clauses_that_would_be_passed_over_are_refused() {
        for text in [
            "SELECT * FROM t TABLESAMPLE BERNOULLI (10)",
            "SELECT * FROM (SELECT * FROM t) x TABLESAMPLE SYSTEM (10)",
            "SELECT * FROM t PARTITION (p)",
            "SELECT * FROM generate_series(1, 3) WITH ORDINALITY",
            "SELECT a FROM t PREWHERE a > 1 WHERE b > 2",
            "SELECT a FROM t START WITH a = 1 CONNECT BY PRIOR a = b",
            "SELECT a, count(*) FROM t GROUP BY a WITH ROLLUP",
            "EXPLAIN SELECT a FROM (SELECT a, count(*) FROM t GROUP BY a WITH TOTALS) x",
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x LIMIT 5) SELECT * FROM x",
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION SELECT 2 ORDER BY 1 LIMIT 1) SELECT * FROM x",
            "SELECT CAST(a AS VARCHAR(3)) FROM t",
            "SELECT a::char(2) FROM t",
            "SELECT a FROM t WHERE CAST(a AS CHAR) = 'x'",
            "SELECT to_char(h, 'YYYY-MM-DD') FROM t",
            "SELECT 2 ^ 3",
            "SELECT k FROM t RIGHT JOIN u USING (k)",
            "SELECT k FROM t NATURAL FULL JOIN u",
            "SELECT * FROM u LEFT JOIN t USING (k)",
            "SELECT count(*) FROM (SELECT * FROM t AS x LEFT JOIN u AS \"W\" USING (k)) v",
            "SELECT a FROM t NATURAL LEFT JOIN u",
            "SELECT * FROM c JOIN a USING (k) JOIN b USING (k)",
            "SELECT * FROM c NATURAL JOIN a JOIN b USING (k)",
            "SELECT * FROM a JOIN (c JOIN b USING (k)) USING (k)",
            "SELECT * FROM v, (u LEFT JOIN t USING (k))",
            "SELECT * FROM t JOIN v USING (k) LEFT JOIN u USING (k)",
            "SELECT * FROM public.t LEFT JOIN u USING (k)",
            "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
            "SELECT a FROM t WHERE a SIMILAR TO 'x%'",
            "SELECT a FROM t WHERE a IS DISTINCT FROM 1 AND b",
        ] {
            let error = Statement::parse(text).expect_err(text);
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}: {error}");
        }
    }

    #[test]
    fn what_says_the_same_in_other_words_passes() {
        for text in [
            "SELECT a, count(*) FROM t GROUP BY ROLLUP (a)",
            "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 9) SELECT * FROM x LIMIT 5",
            "WITH x AS (SELECT 1 UNION SELECT 2 LIMIT 1) SELECT * FROM x",
            "WITH RECURSIVE x AS (SELECT 1 AS n LIMIT 1) SELECT * FROM x",
            "SELECT CAST(a AS VARCHAR), CAST(a AS TEXT), left(a, 3) FROM t",
            "SELECT to_char(h, '%Y-%m-%d'), to_char(h, d) FROM t",
            "SELECT 2 XOR 3",
            "SELECT coalesce(t.k, u.k) FROM t FULL JOIN u ON t.k = u.k",
            "SELECT * FROM t JOIN u USING (k)",
            "SELECT * FROM t LEFT JOIN u USING (k)",
            "SELECT u.a, k FROM u LEFT JOIN t USING (k)",
            "SELECT count(*) FROM u LEFT JOIN t USING (k)",
            "SELECT * FROM z AS a LEFT JOIN (SELECT * FROM t) AS b USING (k)",
            "SELECT * FROM b NATURAL JOIN a",
            "SELECT * FROM b JOIN a USING (k) JOIN c USING (k)",
            "SELECT * FROM c JOIN a USING (k) JOIN b USING (j)",
            "SELECT * FROM a JOIN (b JOIN c USING (k)) USING (k)",
            "SELECT c.k FROM c JOIN a USING (k) JOIN b USING (k)",
            "SELECT a FROM t EXCEPT SELECT a FROM u",
        ] {
            assert!(Statement::parse(text).is_ok(), "{text}: {:?}", Statement::parse(text));
        }
    }

    #[test]
    fn everything_else_is_refused_too() {
        for (text, kind) in [
            ("", ErrorKind::InvalidArgument),
            ("SELEC 1", ErrorKind::InvalidArgument),
            ("SELECT 1; SELECT 2", ErrorKind::InvalidArgument),
            ("SELECT 1; DELETE FROM t", ErrorKind::InvalidArgument),
            ("BEGIN", ErrorKind::Unsupported),
            ("PREPARE q AS SELECT 1", ErrorKind::Unsupported),
            ("KILL 1", ErrorKind::Unsupported),
        ] {
            assert_eq!(Statement::parse(text).expect_err(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn snapshots_have_statements_of_their_own() {
        let parse = |text| Statement::parse(text).expect("valid");
        assert_eq!(parse("take snapshot Before;"), Statement::TakeSnapshot("Before".into()));
        assert_eq!(parse(" DROP  SNAPSHOT before "), Statement::DropSnapshot("before".into()));
        assert_eq!(parse("SHOW SNAPSHOTS"), Statement::ShowSnapshots);
        assert_eq!(parse("USE SNAPSHOT before"), Statement::Use(Some("before".into())));
        assert_eq!(parse("USE LATEST"), Statement::Use(None));
    }
}
