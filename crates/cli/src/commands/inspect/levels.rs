//! The levels of tables, drawn.

use console::Term;
use mycelium_manifest::Version;
use serde_json::json;

use super::Files;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::levels::{LevelStats, TreeStats, draw, utf8_locale};

/// Draws one table's levels, or all tables'.
pub(super) fn show(files: &Files, table: Option<&str>, out: &mut Output) -> Result<(), Failure> {
    let only = table.map(|name| files.table(name)).transpose()?.map(|table| table.record.id);
    for (id, table) in &files.state.tables {
        if only.is_some_and(|only| only != *id) {
            continue;
        }
        let tree = tree(&table.version);
        if out.is_json() {
            out.object(&json!({ "table": table.record.name, "levels": tree.levels }))?;
            continue;
        }
        let width = usize::from(Term::stdout().size().1).max(60);
        out.line(format_args!("{}  (layout {})", table.record.name, table.record.layout))?;
        // Memory belongs to a process: of a database at rest, the log holds what is not in files.
        for line in draw(&tree, width, !utf8_locale()).iter().skip(1) {
            out.line(line)?;
        }
    }
    if out.is_json() {
        return Ok(());
    }
    let segments = files.segments()?;
    out.line(format_args!("log     {} segments not yet in files (`mycelium inspect wal`)", segments.len()))
}

/// What the levels of a version hold, down to the last that holds files.
fn tree(version: &Version) -> TreeStats {
    let depth = version.last_level().map_or(1, |last| last + 1);
    let levels = (0..depth).map(|level| LevelStats {
        level,
        runs: version.level(level).runs.len() as u64,
        files: version.level(level).file_count() as u64,
        bytes: version.level_bytes(level),
        entries: version.level(level).files().map(|file| file.entry_count).sum(),
    });
    TreeStats { levels: levels.collect(), ..TreeStats::default() }
}
