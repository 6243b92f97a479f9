//! The plots: the paper's table 2, and its figures 7 (queries of one column), 8 (of whole rows) and 9 (tables whose
//! rows are not transformed), and table 3 (queries by an index).
//!
//! Figures 7 to 9, and table 3, show the quartiles of latencies, where the paper draws boxes.

use std::collections::BTreeMap;

use super::TransformationReport;
use super::reads::ReadFigures;
use super::variants::{AUGMENT, IDENTITY, PLAIN, RIVAL, RIVAL_INDEX};
use crate::plot::{Axis, BarPlot, NamedPlot};

/// A figure: its file's name, its title, its queries, and its contenders, RocksDB first.
type Figure = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const FIGURES: [Figure; 4] = [
    (
        "mycelium-columns",
        "Figure 7: a column of a range of rows, and of a row",
        &["q2-range", "q3"],
        &[RIVAL, PLAIN, "split", "split-convert", "convert"],
    ),
    (
        "mycelium-rows",
        "Figure 8: whole rows of a range, and a whole row",
        &["q6", "q7"],
        &[RIVAL, PLAIN, "split", "split-convert", "convert"],
    ),
    (
        "mycelium-untransformed",
        "Figure 9: tables whose rows stay as they came",
        &["q2-range", "q3", "q6", "q7"],
        &[RIVAL, PLAIN, IDENTITY, AUGMENT],
    ),
    (
        "mycelium-index",
        "Table 3: the maximum of a range of an indexed column, and the row of a value",
        &["q4", "q5"],
        &[RIVAL_INDEX, AUGMENT],
    ),
];

/// All plots of what was run.
pub(super) fn all(report: &TransformationReport, machine: &str) -> Vec<NamedPlot> {
    let note = format!(
        "cargo xtask peers -- --experiment transformations: {} write buffers of {} KiB; {machine}",
        report.buffers,
        report.buffer_bytes >> 10
    );
    let mut plots = vec![];
    for (source, contenders) in &report.writes {
        let rate = |of: fn(&crate::statistics::Spread) -> f64| contenders.values().map(|it| of(&it.rate)).collect();
        let plot = BarPlot {
            title: format!("Table 2: records/s until idle, {source} (s-c: split-convert, r-: RocksDB at write)"),
            note: note.clone(),
            y: Axis::linear("records/s"),
            groups: contenders.keys().map(|name| short(name)).collect(),
            series: vec![
                ("least".to_owned(), rate(|rate| rate.least)),
                ("median".to_owned(), rate(|rate| rate.median)),
                ("greatest".to_owned(), rate(|rate| rate.greatest)),
            ],
            stacked: false,
        };
        plots.push((format!("mycelium-writes-{source}"), plot.to_svg()));
    }
    for (source, queries) in &report.reads {
        plots.extend(FIGURES.iter().filter_map(|figure| latencies(figure, source, queries, &note)));
    }
    plots
}

/// A figure of the latencies of one source format; `None` if no transformed table takes rows in it.
fn latencies(
    (name, title, queries, contenders): &Figure,
    source: &str,
    figures: &BTreeMap<String, BTreeMap<String, ReadFigures>>,
    note: &str,
) -> Option<NamedPlot> {
    let has = |contender: &&&str| queries.iter().any(|query| of(figures, query, contender).is_some());
    let shown: Vec<&str> = contenders.iter().filter(has).copied().collect();
    if shown.iter().all(|name| [PLAIN, RIVAL, RIVAL_INDEX].contains(name)) {
        return None;
    }
    let quartiles = |figures: &ReadFigures| [figures.p25_us, figures.p50_us, figures.p75_us];
    let of_contender = |contender: &str| {
        let of_query = |query: &&str| of(figures, query, contender).map_or([0.0; 3], quartiles);
        (contender.to_owned(), queries.iter().flat_map(of_query).collect())
    };
    let short = |query: &str| query.trim_end_matches("-range").to_owned();
    let plot = BarPlot {
        title: format!("{title}; written in {source}"),
        note: note.to_owned(),
        y: Axis::logarithmic("microseconds a query"),
        groups: queries
            .iter()
            .flat_map(|query| ["p25", "p50", "p75"].map(|it| format!("{} {it}", short(query))))
            .collect(),
        series: shown.into_iter().map(of_contender).collect(),
        stacked: false,
    };
    Some((format!("{name}-{source}"), plot.to_svg()))
}

fn of<'a>(
    figures: &'a BTreeMap<String, BTreeMap<String, ReadFigures>>,
    query: &str,
    contender: &str,
) -> Option<&'a ReadFigures> {
    figures.get(query)?.get(contender)
}

/// A contender's name where there is little room.
fn short(name: &str) -> String {
    name.replace("no-transform", "plain")
        .replace("rocksdb-", "r-")
        .replace("rocksdb", "RocksDB")
        .replace("split-convert", "s-c")
}
