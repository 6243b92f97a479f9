//! The plots: figures 1 and 6 to 10 of the paper, of the tables that were made. A figure by size, NDV or exponent needs
//! two of them at least.

use super::report::{CellReport, DictionaryReport};
use crate::plot::{Axis, BarPlot, LinePlot, NamedPlot, Series, Stroke};

/// Figures by what tables differ in.
struct Figure {
    /// The file's name.
    name: &'static str,
    /// How the names of the tables begin that take part; a number follows.
    cells: &'static str,
    /// Of each contender.
    figure: &'static str,
    title: &'static str,
    /// With its unit.
    y: &'static str,
    is_logarithmic: bool,
}

const SIZES: &str = "size-";
const NDV: &str = "ndv-";
const ZIPF: &str = "zipf-";

const FIGURES: [Figure; 12] = [
    Figure::by(SIZES, "opd-insert", "insert.settled_rate", "Figure 6: insertion until idle", "pairs/s"),
    Figure::by(SIZES, "opd-insert-p99", "insert.p99_us", "Figure 6: 99th percentile of inserts", "us").logarithmic(),
    Figure::by(SIZES, "opd-hybrid", "hybrid.rate", "Figure 6: updates, points and ranges", "operations/s"),
    Figure::by(SIZES, "opd-points-p99", "hybrid.point_p99_us", "Figure 6: 99th percentile of points", "us"),
    Figure::by(SIZES, "opd-compactions", "compaction.seconds", "Figure 7: time of compactions", "seconds"),
    Figure::by(SIZES, "opd-written", "compaction.written_mb", "Figure 7: bytes that compactions write", "MB"),
    Figure::by(NDV, "opd-ndv-compactions", "compaction.seconds", "Figure 8: time of compactions", "seconds"),
    Figure::by(NDV, "opd-ndv-cpu", "compaction.cpu_seconds", "Figure 8: their CPU time", "seconds"),
    Figure::by(NDV, "opd-ndv-written", "compaction.written_mb", "Figure 8: bytes that compactions write", "MB"),
    Figure::by(ZIPF, "opd-zipf-compactions", "compaction.seconds", "Figure 8: time of compactions", "seconds"),
    Figure::by(SIZES, "opd-filters", "filter-1.count_ms", "Figure 9: a filter of 1 %", "ms").logarithmic(),
    Figure::by(ZIPF, "opd-zipf-filters", "filter-1.count_ms", "Figure 9: a filter of 1 %", "ms").logarithmic(),
];

/// Stages of compactions, from the bottom of a bar to its top.
const STAGES: [&str; 5] = ["read", "decode", "merge", "compress", "write"];

impl Figure {
    const fn by(
        cells: &'static str,
        name: &'static str,
        figure: &'static str,
        title: &'static str,
        y: &'static str,
    ) -> Self {
        Self { name, cells, figure, title, y, is_logarithmic: false }
    }

    const fn logarithmic(self) -> Self {
        Self { is_logarithmic: true, ..self }
    }

    fn x(&self) -> Axis {
        match self.cells {
            SIZES => Axis::logarithmic("bytes of a value"),
            NDV => Axis::logarithmic("distinct values, % of a file's pairs"),
            _ => Axis::linear("exponent of Zipf's law"),
        }
    }

    fn y(&self) -> Axis {
        if self.is_logarithmic { Axis::logarithmic(self.y) } else { Axis::linear(self.y) }
    }

    fn plot(&self, report: &DictionaryReport, note: &str) -> Option<NamedPlot> {
        let cells = numbered(report, self.cells);
        let value = |contender: &str, cell: &CellReport| Some(cell.figures.get(contender)?.get(self.figure)?.median);
        let of = |contender: &str| {
            cells.iter().filter_map(|(number, cell)| Some((*number, value(contender, cell)?))).collect::<Vec<_>>()
        };
        let plot = lines(&cells, of, self.title, note, (self.x(), self.y()));
        (cells.len() > 1).then(|| (self.name.to_owned(), plot.to_svg()))
    }
}

/// All plots of what was run.
pub(super) fn all(report: &DictionaryReport, machine: &str) -> Vec<NamedPlot> {
    let note = format!(
        "mycelium bench dictionary-…: {} pairs, files of {} KiB; {machine}",
        report.pairs,
        report.file_bytes >> 10
    );
    let mut plots: Vec<NamedPlot> = FIGURES.iter().filter_map(|figure| figure.plot(report, &note)).collect();
    plots.extend(selectivities(report, &note));
    plots.extend(numbered(report, "timeline-").iter().map(|(bytes, cell)| timeline(*bytes, cell, &note)));
    plots.extend(stages(report, &note));
    plots
}

/// The tables whose names begin so, by the number that follows.
fn numbered<'r>(report: &'r DictionaryReport, prefix: &str) -> Vec<(f64, &'r CellReport)> {
    let number = |name: &str| name.strip_prefix(prefix)?.parse::<f64>().ok();
    let mut cells: Vec<_> = report.cells.iter().filter_map(|(name, cell)| Some((number(name)?, cell))).collect();
    cells.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    cells
}

/// A line for each contender that the first table has.
fn lines(
    cells: &[(f64, &CellReport)],
    points: impl Fn(&str) -> Vec<(f64, f64)>,
    title: &str,
    note: &str,
    (x, y): (Axis, Axis),
) -> LinePlot {
    let contenders = cells.iter().take(1).flat_map(|(_, cell)| cell.figures.keys());
    let line = |(colour, name): (usize, &String)| Series {
        name: name.clone(),
        points: points(name),
        stroke: Stroke::Solid,
        colour,
    };
    let series = contenders.enumerate().map(line).collect();
    LinePlot { title: title.to_owned(), note: note.to_owned(), x, y, series }
}

/// Of the one table that is asked for other shares of its rows, too.
fn selectivities(report: &DictionaryReport, note: &str) -> Option<NamedPlot> {
    let cells: Vec<_> = report.cells.get("ndv-1").map(|cell| (1.0, cell)).into_iter().collect();
    let (_, cell) = cells.first()?;
    let percent = |figure: &str| figure.strip_prefix("filter-")?.strip_suffix(".count_ms")?.parse::<f64>().ok();
    let of = |contender: &str| {
        let figures = cell.figures.get(contender).into_iter().flatten();
        let mut points: Vec<_> = figures.filter_map(|(name, spread)| Some((percent(name)?, spread.median))).collect();
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        points
    };
    let axes = (Axis::logarithmic("% of the rows"), Axis::logarithmic("ms"));
    Some(("opd-filters-selectivity".to_owned(), lines(&cells, of, "Figure 9: filters", note, axes).to_svg()))
}

fn timeline(bytes: f64, cell: &CellReport, note: &str) -> NamedPlot {
    let of = |contender: &str| {
        let timeline = cell.timelines.get(contender).into_iter();
        let rates =
            timeline.flat_map(|it| it.rates.iter().enumerate().map(|(at, rate)| (at as f64 * it.slice_seconds, *rate)));
        rates.collect()
    };
    let title = format!("Figure 10: transactions beside filters, values of {bytes} bytes");
    let axes = (Axis::linear("seconds"), Axis::linear("transactions/s"));
    (format!("opd-timeline-{bytes}"), lines(&[(bytes, cell)], of, &title, note, axes).to_svg())
}

fn stages(report: &DictionaryReport, note: &str) -> Option<NamedPlot> {
    let cells = numbered(report, "stages-");
    let runs: Vec<_> = cells
        .iter()
        .flat_map(|(bytes, cell)| cell.figures.iter().map(move |(name, figures)| (format!("{name} {bytes}"), figures)))
        .collect();
    let seconds = |stage: &str| {
        let name = format!("compaction.{stage}_seconds");
        let of = runs.iter().map(|(_, figures)| figures.get(&name).map_or(0.0, |spread| spread.median));
        (stage.to_owned(), of.collect())
    };
    let plot = BarPlot {
        title: "Figure 1: what compactions spend their time with, past the page cache".to_owned(),
        note: note.to_owned(),
        y: Axis::linear("seconds"),
        groups: runs.iter().map(|(name, _)| name.clone()).collect(),
        series: STAGES.map(seconds).into(),
        stacked: true,
    };
    (!runs.is_empty()).then(|| ("opd-stages".to_owned(), plot.to_svg()))
}
