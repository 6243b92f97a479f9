//! The plots of the experiments: which figures of the paper they stand beside is in `docs/papers.md`.

use super::age::{AgeReport, PriorityAges};
use super::cost_model::{CostCell, CostModelReport, CostTable};
use super::hybrid::{D_OPT, HybridReport, RunFigures};
use super::robustness::{RobustnessReport, Shift};
use super::sizes::SizeReport;
use super::workload::Query;
use super::{LaserReport, Part};
use crate::plot::{Axis, BarPlot, LinePlot, NamedPlot, Series, Stroke};

/// The plots of one experiment; none if it was not run.
pub(super) fn of(part: Part, report: &LaserReport, machine: &str) -> Vec<NamedPlot> {
    let note = |rows: u64, columns: usize| {
        format!(
            "mycelium bench {}: scale {}, {rows} rows of {columns} columns, seed {}; {machine}; load average {} when it began",
            part.name(),
            report.scale,
            report.seed,
            report.load_average
        )
    };
    let plots = match part {
        Part::Hybrid => report.hw.as_ref().map(|it| hybrid(it, &note(it.loaded_rows, it.columns))),
        Part::CostModel => report.cost_model.as_ref().map(|it| cost_model(it, &note)),
        Part::Age => report.age.as_ref().map(|it| age(it, &note(it.rows, it.columns))),
        Part::Sizes => report.sizes.as_ref().map(|it| sizes(it, &note(it.rows, it.columns))),
        Part::Robustness => report.robustness.as_ref().map(|it| robustness(it, &note(it.loaded_rows, it.columns))),
    };
    plots.unwrap_or_default()
}

fn hybrid(report: &HybridReport, note: &str) -> Vec<NamedPlot> {
    let designs = report.designs.iter().map(|(name, design)| (name, &design.run));
    let runs: Vec<_> = designs.chain(&report.rivals).collect();
    let names: Vec<String> = runs.iter().map(|(name, _)| (*name).clone()).collect();
    let seconds = |query: Query| {
        let of = |(_, run): &(_, &RunFigures)| run.queries.get(query.name()).map_or(0.0, |it| it.seconds);
        (query.name().to_owned(), runs.iter().map(of).collect())
    };
    let total = BarPlot {
        title: "Workload HW: time of its reads by design".to_owned(),
        note: note.to_owned(),
        y: Axis::linear("seconds"),
        groups: names,
        series: Query::READS.map(seconds).into(),
        stacked: true,
    };
    let ratio = |(name, run): &(&String, &RunFigures)| ((*name).clone(), run.over_d_opt.values().copied().collect());
    let ratios = BarPlot {
        title: format!("Workload HW: time of each query over that under {D_OPT}"),
        note: note.to_owned(),
        y: Axis::logarithmic(&format!("time over {D_OPT}'s")),
        groups: Query::READS.map(|query| query.name().to_owned()).into(),
        series: runs.iter().map(ratio).collect(),
        stacked: false,
    };
    let suffix = report.columns;
    vec![(format!("laser-hw-{suffix}"), total.to_svg()), (format!("laser-hw-ratios-{suffix}"), ratios.to_svg())]
}

fn cost_model(report: &CostModelReport, note: &dyn Fn(u64, usize) -> String) -> Vec<NamedPlot> {
    let mut plots = Vec::new();
    for table in &report.tables {
        let note = note(table.rows, table.columns);
        for (kind, unit, cells) in [("points", "read", &table.points), ("scans", "scan", &table.scans)] {
            let name = format!("laser-cost-model-{kind}-{}", table.columns);
            plots.push((name, by_projection(table, kind, unit, cells, &note).to_svg()));
        }
        plots.push((format!("laser-cost-model-writes-{}", table.columns), writes(table, &note).to_svg()));
    }
    plots
}

fn by_projection(table: &CostTable, kind: &str, unit: &str, cells: &[CostCell], note: &str) -> LinePlot {
    let widths: Vec<usize> = table.writes.iter().map(|cell| cell.width).collect();
    let mut series = Vec::new();
    for (colour, width) in widths.iter().enumerate() {
        let of = |value: fn(&CostCell) -> f64| {
            let cells = cells.iter().filter(|cell| cell.width == *width);
            cells.map(|cell| (cell.projection as f64, value(cell))).collect::<Vec<_>>()
        };
        let name = format!("groups of {width}");
        series.push(Series { name, points: of(|cell| cell.measured), stroke: Stroke::Solid, colour });
        let name = if colour + 1 == widths.len() { "by the model" } else { "" };
        series.push(Series {
            name: name.to_owned(),
            points: of(|cell| cell.predicted),
            stroke: Stroke::Dashed,
            colour,
        });
    }
    LinePlot {
        title: format!("Blocks read by {kind}, by the columns they ask for"),
        note: note.to_owned(),
        x: Axis::linear("columns of the projection"),
        y: Axis::logarithmic(&format!("blocks a {unit}")),
        series,
    }
}

fn writes(table: &CostTable, note: &str) -> LinePlot {
    let by_width = |value: fn(&super::WriteCell) -> f64| {
        table.writes.iter().map(|cell| (cell.width as f64, value(cell))).collect::<Vec<_>>()
    };
    let line = |name: &str, points, stroke| Series { name: name.to_owned(), points, stroke, colour: 0 };
    LinePlot {
        title: "Blocks written for a row, by the width of groups".to_owned(),
        note: note.to_owned(),
        x: Axis::logarithmic("columns of a group"),
        y: Axis::linear("blocks a row"),
        series: vec![
            line("measured", by_width(|cell| cell.measured), Stroke::Solid),
            line("by the model", by_width(|cell| cell.predicted), Stroke::Dashed),
        ],
    }
}

fn age(report: &AgeReport, note: &str) -> Vec<NamedPlot> {
    let of = |ages: &PriorityAges| {
        let series = ages.levels.iter().enumerate().map(|(colour, level)| {
            let buckets = level.percent_by_age.len() as f64;
            let points = level.percent_by_age.iter().enumerate();
            let points = points.map(|(at, percent)| ((at as f64 + 0.5) / buckets, *percent)).collect();
            Series { name: format!("level {}", level.level), points, stroke: Stroke::Solid, colour }
        });
        let plot = LinePlot {
            title: format!(
                "Age of the keys of each level: {} first, {:.0} % in place",
                ages.priority, ages.in_place_percent
            ),
            note: note.to_owned(),
            x: Axis::linear("time since insertion (0 the first row, 1 now)"),
            y: Axis::linear("% of the level's rows in a fiftieth of the time"),
            series: series.collect(),
        };
        (format!("laser-age-{}", ages.priority.replace(' ', "-")), plot.to_svg())
    };
    report.priorities.iter().map(of).collect()
}

fn sizes(report: &SizeReport, note: &str) -> Vec<NamedPlot> {
    let bytes = |size: &super::SizeFigures| (size.name.clone(), vec![size.bytes as f64 / 1e6]);
    let plot = BarPlot {
        title: format!("Size of a table in {} column groups", report.groups.len()),
        note: note.to_owned(),
        y: Axis::linear("MB"),
        groups: vec![String::new()],
        series: report.sizes.iter().map(bytes).collect(),
        stacked: false,
    };
    vec![("laser-sizes".to_owned(), plot.to_svg())]
}

fn robustness(report: &RobustnessReport, note: &str) -> Vec<NamedPlot> {
    let series = |shifts: &[Shift], query: Query, design: &str, colour| {
        let shifts = shifts.iter().filter(|shift| shift.query == query && shift.design == design);
        let points = shifts.map(|shift| (shift.offset, shift.blocks)).collect();
        let name = format!("{} under {design}", query.name());
        Series { name, points, stroke: Stroke::Solid, colour }
    };
    let plot = |title: &str, x: &str, y: &str, series| LinePlot {
        title: title.to_owned(),
        note: note.to_owned(),
        x: Axis::linear(x),
        y: Axis::linear(y),
        series,
    };
    let points = [(Query::Q2a, D_OPT), (Query::Q2b, D_OPT), (Query::Q2a, "rows"), (Query::Q2b, "rows")];
    let vertical =
        points.iter().enumerate().map(|(colour, (query, design))| series(&report.vertical, *query, design, colour));
    let horizontal =
        [(D_OPT, 0), ("rows", 2)].map(|(design, colour)| series(&report.horizontal, Query::Q3, design, colour));
    let vertical = plot(
        "Point reads of older rows than D-opt was made for",
        "offset of the time since insertion",
        "blocks a read",
        vertical.collect(),
    );
    let horizontal = plot(
        "Scans of other columns than D-opt was made for",
        "columns that the projection lies further left",
        "blocks a scan",
        horizontal.into(),
    );
    vec![
        ("laser-robustness-vertical".to_owned(), vertical.to_svg()),
        ("laser-robustness-horizontal".to_owned(), horizontal.to_svg()),
    ]
}
