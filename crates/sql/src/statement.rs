//! What may be said: statements that read, and statements about the session.
//!
//! A text is one statement. It is parsed before DataFusion plans it, and refused if anything in it, however deep, would
//! write, lock or read files: DataFusion would run some of that (`EXPLAIN DELETE` deletes while it plans), and pass
//! over some in silence (`FOR UPDATE`).
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
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as AstExpr, Query, Select, SetExpr, SetOperator, SetQuantifier, Statement as Ast, Visit,
    Visitor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use mycelium_base::{Error, ErrorKind, Result};

use crate::deep_stack;
use crate::failure::inward;

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
        let statement = match (parsed.pop_front(), parsed.is_empty()) {
            (Some(statement), true) => statement,
            (None, _) => return Err(Error::invalid("there is no statement")),
            (Some(_), false) => return Err(Error::invalid("there are several statements; give one at a time")),
        };
        check(&statement)?;
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
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        },
        Parsed::Explain(explain) => check(&explain.statement),
        Parsed::Reset(_) => Ok(()),
        Parsed::CreateExternalTable(_) | Parsed::CopyTo(_) => Err(writes(&statement.to_string())),
    }
}

fn unsupported(message: &str) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// Whether it, or one that it is made of, is an `EXCEPT ALL` or `INTERSECT ALL`: DataFusion makes joins of them.
fn counts_rows(body: &SetExpr) -> bool {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return false };
    let is_all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
    is_all && !matches!(op, SetOperator::Union) || counts_rows(left) || counts_rows(right)
}

/// Finds what does more than read.
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
        let right = match expr {
            AstExpr::IsDistinctFrom(_, right) | AstExpr::IsNotDistinctFrom(_, right) => right,
            // It is taken for a regular expression.
            AstExpr::SimilarTo { .. } => return ControlFlow::Break(unsupported("SIMILAR TO: use LIKE or ~")),
            _ => return ControlFlow::Continue(()),
        };
        match &**right {
            // The parser takes all that follows for the right side.
            AstExpr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor, .. } => {
                let message = "IS DISTINCT FROM followed by AND, OR or XOR: put the comparison in parentheses";
                ControlFlow::Break(unsupported(message))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        if counts_rows(&query.body) {
            return ControlFlow::Break(unsupported("EXCEPT ALL and INTERSECT ALL: repeated rows are not counted"));
        }
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
            None => ControlFlow::Continue(()),
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
