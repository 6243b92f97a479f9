//! The levels of tables, drawn.

use console::Term;
use mycelium_manifest::{Level, Version};
use serde_json::json;

use super::Files;
use crate::commands::layout::held_in_words;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::levels::{GroupStats, LevelStats, TreeStats, draw, utf8_locale};

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
        let layout: Vec<&str> = table.record.layout.lines().collect();
        out.line(format_args!("{}  (layout {})", table.record.name, layout.join("; ")))?;
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
        groups: groups(version.level(level)),
    });
    TreeStats { levels: levels.collect(), ..TreeStats::default() }
}

/// What a level holds by column group; nothing where all its files hold whole rows.
fn groups(level: &Level) -> Vec<GroupStats> {
    let mut groups: Vec<GroupStats> = Vec::new();
    for run in &level.runs {
        let name = held_in_words(run.group().map(|group| &**group));
        let at = groups.iter().position(|known| known.group == name).unwrap_or_else(|| {
            groups.push(GroupStats { group: name, ..GroupStats::default() });
            groups.len() - 1
        });
        groups[at].runs += 1;
        groups[at].files += run.files.len() as u64;
        groups[at].bytes += run.bytes();
    }
    if level.runs.iter().all(|run| run.group().is_none()) { Vec::new() } else { groups }
}
