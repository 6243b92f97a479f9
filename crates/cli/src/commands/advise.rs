//! `mycelium advise`: the layout that a table should have for what it was asked for (LASER §6).
//!
//! Of a database, the trace, the sizes of the levels and the present layout are the table's own. Of a trace alone, the
//! present layout is taken to be rows, and the tree to be as the arguments say.

use std::path::Path;

use console::Term;
use mycelium::advisor::proposal::usual_widths;
use mycelium::advisor::{Access, Candidate, Hysteresis, LayoutAdvice, TableFacts, Trace, advise_layout};
use mycelium::disk::{AccessPattern, Disk, LocalDisk};
use mycelium::{Schema, Table};
use mycelium_base::{ColumnSet, GroupFormat};
use mycelium_manifest::{Layout, Version};
use serde_json::{Value, json};

use super::{open_to_read, table};
use crate::args::AdviseArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::units;

/// Prints advice on the tables of a database, or on a trace.
pub(crate) fn run(args: &AdviseArgs, out: &mut Output) -> Result<(), Failure> {
    let widths = (!args.widths.is_empty()).then_some(args.widths.as_slice());
    if args.path.is_file() {
        let trace = read_trace(&args.path)?;
        let advice = advise_on_trace(args, &trace)?;
        return Advised { name: None, schema: None, advice: &advice }.print(out);
    }
    let database = open_to_read(&args.path)?;
    let tables: Vec<Table> = match &args.table {
        Some(name) => vec![table(&database, name)?],
        None => database.table_names().iter().map(|name| table(&database, name)).collect::<Result<_, _>>()?,
    };
    let mut advised = 0;
    for table in tables {
        let asked_for = args.table.is_some() || table.trace().is_ok_and(|trace| trace.operations() > 0);
        if asked_for {
            let advice = table.advise(widths)?;
            Advised { name: Some(table.name()), schema: table.schema().map(|schema| &**schema), advice: &advice }
                .print(out)?;
            advised += 1;
        }
    }
    if advised == 0 && !out.is_json() {
        out.line("no typed table was asked for anything yet: a trace is saved when the database is closed")?;
    }
    Ok(())
}

fn read_trace(path: &Path) -> Result<Trace, Failure> {
    let named = |error: mycelium::Error| Failure::input(error.to_string()).of_input(&path.display().to_string());
    let file = LocalDisk.open(path, AccessPattern::Sequential)?;
    let length = file.len().min(mycelium::advisor::trace::MAX_TEXT_BYTES + 1);
    let mut bytes = vec![0; length as usize];
    file.read_at(0, &mut bytes)?;
    Trace::read_from(&bytes[..]).map_err(named)
}

fn advise_on_trace(args: &AdviseArgs, trace: &Trace) -> Result<LayoutAdvice, Failure> {
    if args.table.is_some() {
        return Err(Failure::usage("--table is for a database: a trace is that of one table"));
    }
    let layout = Layout::rows(&ColumnSet::first(trace.columns()), GroupFormat::default());
    let (size_ratio, block_bytes) = (args.size_ratio, args.block_bytes);
    let facts = TableFacts { layout: &layout, version: &Version::new(), size_ratio, block_bytes, together: &[] };
    let usual = usual_widths(trace.columns());
    let widths = if args.widths.is_empty() { &usual } else { &args.widths };
    Ok(advise_layout(&facts, trace, widths, &Hysteresis::default())?)
}

/// Advice and what it is about.
struct Advised<'a> {
    name: Option<&'a str>,
    schema: Option<&'a Schema>,
    advice: &'a LayoutAdvice,
}

/// Operations of a kind, at all levels; as many as can be counted, if they are more.
fn count(trace: &Trace, of: impl Fn(&Access) -> u64) -> u64 {
    let accesses = (0..trace.level_count()).flat_map(|level| trace.accesses(level));
    accesses.fold(0, |sum: u64, access| sum.saturating_add(of(&access)))
}

impl Advised<'_> {
    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        if out.is_json() {
            return out.object(&self.json());
        }
        let advice = self.advice;
        out.line(self.head())?;
        if let Some(schema) = self.schema {
            out.line(names(schema))?;
        }
        let width = usize::from(Term::stdout().size().1).max(60);
        out.line(format_args!(
            "\nproposed layout, a box for each column group:\n\n{}",
            advice.design().picture(width)
        ))?;
        costs(&advice.candidates()).iter().try_for_each(|line| out.line(line))?;
        let verdict = if advice.verdict.switch { "worth the change" } else { "not worth a change" };
        out.line(format_args!("\n{verdict}: {}\n\n{}", advice.verdict.reason, advice.layout))?;
        advice.warnings.iter().try_for_each(|warning| out.line(format_args!("warning: {warning}")))
    }

    /// What was counted.
    fn head(&self) -> String {
        let trace = &self.advice.trace;
        let name = self.name.unwrap_or("trace");
        let counted = [
            ("writes", trace.inserts()),
            ("range deletes", trace.range_deletes()),
            ("updates", count(trace, |access| access.updates)),
            ("point reads", count(trace, |access| access.points)),
            ("scans", count(trace, |access| access.scans)),
            ("entries scanned", trace.scanned_entries()),
        ];
        let counted: Vec<_> = counted.iter().map(|(what, count)| format!("{} {what}", units::count(*count))).collect();
        format!("{name}: {} (an operation counts at each level that served it)", counted.join(", "))
    }

    fn json(&self) -> Value {
        let advice = self.advice;
        let trace = &advice.trace;
        let candidate = |candidate: &Candidate| {
            let groups: Vec<usize> = candidate.design.levels.iter().map(Vec::len).collect();
            json!({
                "name": candidate.name, "blocks": candidate.cost.total, "blocks_by_level": candidate.cost.levels,
                "groups_by_level": groups,
            })
        };
        let design: Vec<Vec<String>> =
            advice.design().levels.iter().map(|groups| groups.iter().map(ToString::to_string).collect()).collect();
        json!({
            "table": self.name,
            "writes": trace.inserts(),
            "range_deletes": trace.range_deletes(),
            "updates": count(trace, |access| access.updates),
            "points": count(trace, |access| access.points),
            "scans": count(trace, |access| access.scans),
            "scanned_entries": trace.scanned_entries(),
            "overflowed": trace.overflowed(),
            "levels": trace.level_count(),
            "size_ratio": advice.tree.size_ratio,
            "entries_per_block": advice.tree.entries_per_block,
            "layout": advice.layout.to_string(),
            "design": design,
            "designs": advice.candidates().iter().map(candidate).collect::<Vec<_>>(),
            "is_exact": advice.advice.is_exact,
            "switch": advice.verdict.switch,
            "predicted_saving": advice.verdict.gain,
            "reason": advice.verdict.reason,
            "warnings": advice.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Which columns the numbers of the picture are.
fn names(schema: &Schema) -> String {
    let values = schema.live_columns().filter(|(position, _)| !schema.is_primary_key(*position));
    let names: Vec<_> = values.map(|(position, column)| format!("{position} {}", column.name)).collect();
    format!("columns: {}", names.join(", "))
}

/// A line for each design: its cost in blocks, beside that of the present layout, and its groups by level.
fn costs(candidates: &[Candidate]) -> Vec<String> {
    let present = candidates.iter().find(|candidate| candidate.name == "present").map(|present| present.cost.total);
    let width = candidates.iter().map(|candidate| candidate.name.len()).max().unwrap_or(0).max("design".len());
    let mut lines = vec![format!("{:width$}  {:>12}  {:>10}  groups by level", "design", "blocks", "of present")];
    for candidate in candidates {
        let blocks = candidate.cost.total;
        let share = match present {
            Some(present) if present > 0.0 => format!("{:.1}%", 100.0 * blocks / present),
            _ => "-".to_owned(),
        };
        let groups: Vec<String> = candidate.design.levels.iter().map(|level| level.len().to_string()).collect();
        let groups = groups.join(" ");
        lines.push(format!("{:width$}  {blocks:>12.1}  {share:>10}  {groups}", candidate.name));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycelium::advisor::{Design, DesignCost};

    #[test]
    fn designs_are_compared_with_the_present_layout() {
        let candidate = |name: &str, total| Candidate {
            name: name.into(),
            design: Design::fixed_width(4, 2, 2).expect("within bounds"),
            cost: DesignCost { levels: vec![0.0, total], total },
        };
        let lines = costs(&[candidate("advised", 25.0), candidate("present", 100.0)]);
        let expected = [
            "design         blocks  of present  groups by level",
            "advised          25.0       25.0%  1 2",
            "present         100.0      100.0%  1 2",
        ];
        assert_eq!(lines, expected);
        assert!(costs(&[candidate("advised", 0.0), candidate("present", 0.0)])[1].contains("  -  "));
    }
}
