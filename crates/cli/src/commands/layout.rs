//! `mycelium layout`: a table's layout, what its levels hold by column group, and changing it.

use mycelium::{GroupMetrics, TableMetrics};
use mycelium_base::Group;
use serde_json::{Value, json};

use super::{layout, open_to_read, open_to_write, table};
use crate::args::LayoutArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Shows the layout, after changing it if that is asked for.
pub(crate) fn run(args: &LayoutArgs, out: &mut Output) -> Result<(), Failure> {
    let database =
        if args.set.is_some() { open_to_write(&args.at.database, false)? } else { open_to_read(&args.at.database)? };
    let table = table(&database, &args.at.table)?;
    let Some(schema) = table.schema().cloned() else {
        return Err(Failure::usage(format!("table {} holds bytes and has no layout", table.name())));
    };
    if let Some(text) = &args.set {
        database.set_layout(&table, layout(text, &schema)?)?;
        if args.compact {
            database.compact(&table)?;
        }
    }
    let metrics = database.metrics().tables.into_iter().find(|metrics| metrics.name == table.name());
    let metrics = metrics.unwrap_or_default();
    let text = table.layout().to_string();
    if out.is_json() {
        let is_auto = table.options().layout_auto;
        // By position; null where a column was dropped.
        let names: Vec<Option<&str>> =
            schema.columns().iter().map(|column| (!column.is_dropped()).then_some(column.name.as_str())).collect();
        return out.object(&json!({
            "table": table.name(), "layout": text, "auto": is_auto, "columns": names, "levels": levels(&metrics),
            "deferred_bytes": metrics.deferred_bytes,
        }));
    }
    if table.options().layout_auto {
        out.line("the layout follows what the table is asked for")?;
    }
    let numbered: Vec<String> = schema.live_columns().map(|(at, column)| format!("{at} {}", column.name)).collect();
    out.line(format_args!("columns: {}", numbered.join(", ")))?;
    text.lines().try_for_each(|line| out.line(line))?;
    for level in &metrics.levels {
        for group in &level.groups {
            out.line(format_args!(
                "    L{}  {:<24} {:>10}  {:>9} entries  {} runs",
                level.level,
                name(group),
                units::bytes(group.bytes),
                units::count(group.entries),
                group.runs
            ))?;
        }
    }
    if metrics.deferred_bytes > 0 {
        let waiting = units::bytes(metrics.deferred_bytes);
        out.line(format_args!("    {waiting} are not in the column groups of their level yet"))?;
    }
    Ok(())
}

/// The group of metrics as [`held_in_words`] says it.
pub(crate) fn name(group: &GroupMetrics) -> String {
    held_in_words(group.group.as_ref())
}

/// What files of a column group hold, as in the text form of layouts. A group all of whose columns came later, or were
/// dropped, still says which rows there are: `dropped 2 packed`.
pub(crate) fn held_in_words(group: Option<&Group>) -> String {
    match group {
        Some(group) if group.held().is_empty() => format!("dropped {} {}", group.dropped, group.format),
        Some(group) => format!("{} {}", group.held(), group.format),
        None => "whole rows".to_owned(),
    }
}

fn levels(metrics: &TableMetrics) -> Vec<Value> {
    let group = |group: &GroupMetrics| {
        json!({
            "group": name(group), "runs": group.runs, "files": group.files, "bytes": group.bytes,
            "entries": group.entries
        })
    };
    let level = |level: &mycelium::LevelMetrics| {
        let groups: Vec<Value> = level.groups.iter().map(group).collect();
        json!({ "level": level.level, "bytes": level.bytes, "groups": groups })
    };
    metrics.levels.iter().map(level).collect()
}
