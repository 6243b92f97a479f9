//! The shell: lines until a semicolon, history, completion, and what every statement took.

use std::path::PathBuf;

use mycelium::Database;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};

use super::completion::{Words, quoted};
use super::{Runner, statements};
use crate::failure::{Failure, FailureKind};
use crate::output::Output;

const HELP: &str = "\
Statements end with a semicolon and may take several lines. Each reads the database as it is when the statement begins.
  SELECT ...;  EXPLAIN [ANALYZE] SELECT ...;  SHOW TABLES;  DESCRIBE table;  SET setting = value;  SHOW ALL;
  \\d [TABLE]   tables, or the columns of one
  \\?           this help
  \\q           leave (or Ctrl-D)
Tab completes; Ctrl-C ends a statement, and the shell where the statement goes on; Ctrl-R searches the history.";

/// Reads and runs statements until the end of input. A statement that fails is reported, and the shell goes on.
pub(super) fn run(runner: &mut Runner, database: &Database, out: &mut Output) -> Result<(), Failure> {
    let mut editor: Editor<Assistant, DefaultHistory> = Editor::new().map_err(terminal)?;
    let history = history_file();
    if let Some(history) = &history {
        // There is none the first time.
        drop(editor.load_history(history));
    }
    out.line(format_args!("{}: SQL, read-only. \\? for help.", database.directory().display()))?;
    out.flush()?;
    loop {
        // Tables and columns come and go.
        editor.set_helper(Some(Assistant(Words::of(database))));
        match editor.readline("sql> ") {
            Ok(text) => {
                editor.add_history_entry(text.trim()).map_err(terminal)?;
                if !run_text(runner, database, text.trim(), out)? {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) if runner.is_at_work() => {
                return Err(Failure::new(FailureKind::Interrupted, "interrupted again"));
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(terminal(error)),
        }
    }
    match &history {
        Some(history) => editor.save_history(history).map_err(terminal),
        None => Ok(()),
    }
}

/// Runs what was entered; whether to go on.
fn run_text(runner: &mut Runner, database: &Database, text: &str, out: &mut Output) -> Result<bool, Failure> {
    let command = text.trim_end_matches(';').trim_end();
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let own = match (word, rest.trim_start()) {
        ("\\q" | "quit" | "exit", "") => return Ok(false),
        ("\\?" | "help", "") => {
            out.line(HELP)?;
            out.flush()?;
            return Ok(true);
        }
        ("\\d", "") => Some("SHOW TABLES".to_owned()),
        ("\\d", table) => Some(describe(database, table)),
        _ => None,
    };
    for statement in statements::split(own.as_deref().unwrap_or(text)) {
        match runner.run(statement, out) {
            Ok(spent) => out.line(spent.line())?,
            Err(failure) if failure.kind() == FailureKind::OutputClosed => return Err(failure),
            Err(failure) => {
                out.line(format_args!("error: {failure}"))?;
                break;
            }
        }
    }
    out.flush()?;
    Ok(true)
}

/// The columns of a table, by its name as `\d` lists it, or as SQL has to have it.
fn describe(database: &Database, table: &str) -> String {
    let is_name = database.table_names().iter().any(|name| name == table);
    format!("DESCRIBE {}", if is_name { quoted(table) } else { table.to_owned() })
}

/// In the home directory.
fn history_file() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_dir()).map(|home| home.join(".mycelium_sql_history"))
}

fn terminal(error: ReadlineError) -> Failure {
    Failure::new(FailureKind::Disk, format!("the terminal: {error}"))
}

/// What the line editor asks.
struct Assistant(Words);

impl Helper for Assistant {}

impl Highlighter for Assistant {}

impl Hinter for Assistant {
    type Hint = String;
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(&self, line: &str, end: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = self.0.complete(line, end);
        Ok((start, words.into_iter().map(|word| Pair { display: word.clone(), replacement: word }).collect()))
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input().trim();
        let is_own = text.starts_with('\\') || ["quit", "exit", "help"].contains(&text);
        let is_complete = is_own || statements::is_complete(text);
        Ok(if is_complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mycelium::disk::MemoryDisk;
    use mycelium::{Options, Schema, TableOptions};

    use super::*;

    /// Upper case was folded, a point taken for that of a schema, and a space for the end of the command.
    #[test]
    fn a_table_is_described_by_the_name_that_is_listed() {
        let options = Options { disk: Arc::new(MemoryDisk::new()), ..Options::default() };
        let database = Database::open("db", options).expect("a new database");
        for name in ["flights", "Flights", "a.b", "two words"] {
            let schema = Schema::parse("id int64 not null, primary key (id)").expect("a schema");
            database.create_typed_table(name, schema, TableOptions::default()).expect("a new table");
        }
        assert_eq!(describe(&database, "flights"), "DESCRIBE flights");
        assert_eq!(describe(&database, "Flights"), "DESCRIBE \"Flights\"");
        assert_eq!(describe(&database, "a.b"), "DESCRIBE \"a.b\"");
        assert_eq!(describe(&database, "two words"), "DESCRIBE \"two words\"");
        assert_eq!(describe(&database, "\"Flights\""), "DESCRIBE \"Flights\"");
        assert_eq!(describe(&database, "FLIGHTS"), "DESCRIBE FLIGHTS");
    }
}
