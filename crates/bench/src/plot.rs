//! Plots as SVG, for the documents: lines or points over two axes, and bars.
//!
//! 1. A plot is a title, a line of small print that says how it was measured, named axes with their units, and named
//!    series.
//! 2. A linear axis begins at 0 and has ticks at 1, 2 or 5 times a power of ten; a logarithmic one spans whole powers
//!    of ten.
//! 3. Series differ in colour and, where they are lines, in their markers. The colours are Okabe and Ito's, which
//!    people who see fewer colours tell apart too.
//!
//! The text is plain SVG 1.1 without scripts or styles, the same bytes for the same plot.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 70.0;
const COLOURS: [&str; 8] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A8A"];

/// The name of a file, without its ending, and the plot as SVG.
pub type NamedPlot = (String, String);

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with the unit.
    pub name: String,
    /// Powers of ten; values of 0 and below are then left out.
    pub logarithmic: bool,
}

impl Axis {
    /// From 0 on.
    pub fn linear(name: &str) -> Self {
        Self { name: name.to_owned(), logarithmic: false }
    }

    /// Powers of ten.
    pub fn logarithmic(name: &str) -> Self {
        Self { name: name.to_owned(), logarithmic: true }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stroke {
    /// A line with markers.
    Solid,
    /// A thin dashed line without markers: a model beside what was measured.
    Dashed,
    /// Markers alone.
    Points,
}

/// A series of a [`LinePlot`].
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend; empty for none.
    pub name: String,
    /// (x, y), drawn in this order.
    pub points: Vec<(f64, f64)>,
    /// How.
    pub stroke: Stroke,
    /// Which colour, by number; series that belong together share one.
    pub colour: usize,
}

/// Lines or points over two axes.
#[derive(Clone, Debug)]
pub struct LinePlot {
    /// The title.
    pub title: String,
    /// How it was measured.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series.
    pub series: Vec<Series>,
}

/// Bars in groups, beside each other or stacked.
#[derive(Clone, Debug)]
pub struct BarPlot {
    /// The title.
    pub title: String,
    /// How it was measured.
    pub note: String,
    /// The vertical axis; stacked bars need a linear one.
    pub y: Axis,
    /// The names of the groups, from left to right.
    pub groups: Vec<String>,
    /// The name of each series, and its value in each group.
    pub series: Vec<(String, Vec<f64>)>,
    /// One bar a group, series upon series, instead of one bar for each.
    pub stacked: bool,
}

impl LinePlot {
    /// The plot as SVG.
    ///
    /// ```
    /// use mycelium_bench::plot::{Axis, LinePlot, Series, Stroke};
    ///
    /// let series = Series { name: "measured".into(), points: vec![(1.0, 2.0), (10.0, 4.0)], stroke: Stroke::Solid, colour: 0 };
    /// let plot = LinePlot {
    ///     title: "Blocks".into(),
    ///     note: String::new(),
    ///     x: Axis::logarithmic("columns"),
    ///     y: Axis::linear("blocks a read"),
    ///     series: vec![series],
    /// };
    /// assert!(plot.to_svg().starts_with("<svg") && plot.to_svg().contains("blocks a read"));
    /// ```
    pub fn to_svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let x = Scale::new(&self.x, points().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
        let y = Scale::new(&self.y, points().map(|(_, y)| y), HEIGHT - BOTTOM, TOP);
        let mut drawing = Drawing::new(&self.title, &self.note);
        drawing.horizontal_lines(&y, &self.y.name);
        drawing.x_ticks(&x);
        drawing.x_name(&self.x.name);
        for series in &self.series {
            let placed: Vec<(f64, f64)> =
                series.points.iter().filter_map(|point| x.place(point.0).zip(y.place(point.1))).collect();
            drawing.line(&placed, series.stroke, series.colour);
        }
        for (row, series) in self.series.iter().filter(|series| !series.name.is_empty()).enumerate() {
            drawing.legend_line(row, &series.name, series.stroke, series.colour);
        }
        drawing.finish()
    }
}

impl BarPlot {
    /// The plot as SVG.
    pub fn to_svg(&self) -> String {
        let heights: Vec<f64> = if self.stacked {
            let total = |group| self.series.iter().filter_map(|(_, values)| values.get(group)).sum();
            (0..self.groups.len()).map(total).collect()
        } else {
            self.series.iter().flat_map(|(_, values)| values.iter().copied()).collect()
        };
        let y = Scale::new(&self.y, heights.into_iter(), HEIGHT - BOTTOM, TOP);
        let mut drawing = Drawing::new(&self.title, &self.note);
        drawing.horizontal_lines(&y, &self.y.name);
        let slot = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        let bars = if self.stacked { 1 } else { self.series.len().max(1) };
        let width = slot * 0.8 / bars as f64;
        for (group, name) in self.groups.iter().enumerate() {
            let start = LEFT + slot * (group as f64 + 0.1);
            drawing.text((start + slot * 0.4, HEIGHT - BOTTOM + 18.0), "middle", 12, name);
            let mut below = 0.0;
            for (at, (_, values)) in self.series.iter().enumerate() {
                let value = values.get(group).copied().unwrap_or(0.0);
                let x = start + if self.stacked { 0.0 } else { width * at as f64 };
                let foot = if self.stacked { y.place(below) } else { Some(y.from) };
                below += value;
                let head = y.place(if self.stacked { below } else { value });
                if let Some((foot, head)) = foot.zip(head) {
                    drawing.bar(x, head, width, foot - head, at);
                }
            }
        }
        for (row, (name, _)) in self.series.iter().enumerate() {
            drawing.legend_bar(row, name);
        }
        drawing.finish()
    }
}

/// From values to places between `from` and `to`.
struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let usable = values.filter(|value| value.is_finite() && (!axis.logarithmic || *value > 0.0));
        let (low, high) =
            usable.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        let high = if high > 0.0 { high } else { 1.0 };
        if axis.logarithmic {
            let first = low.min(high).log10().floor();
            let last = high.log10().ceil().max(first + 1.0);
            let ticks = (first as i32..=last as i32).map(|power| 10f64.powi(power)).collect();
            return Self { logarithmic: true, low: first, high: last, from, to, ticks };
        }
        let rough = high / 6.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let count = (high / step).ceil() as usize;
        let ticks = (0..=count).map(|tick| tick as f64 * step).collect();
        Self { logarithmic: false, low: 0.0, high: count as f64 * step, from, to, ticks }
    }

    /// Where a value lies; `None` if the axis cannot show it.
    fn place(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || self.logarithmic && value <= 0.0 {
            return None;
        }
        let value = if self.logarithmic { value.log10() } else { value };
        Some(self.from + (self.to - self.from) * (value - self.low) / (self.high - self.low))
    }
}

/// The text of the plot as it grows.
struct Drawing(String);

impl Drawing {
    fn new(title: &str, note: &str) -> Self {
        let mut drawing = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\">\n"
        ));
        drawing.put(format_args!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>"));
        drawing.text((LEFT, 26.0), "start", 16, title);
        drawing.text((LEFT, 46.0), "start", 10, note);
        drawing
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        if self.0.write_fmt(element).is_ok() {
            self.0.push('\n');
        }
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, size: u32, text: &str) {
        let text = escaped(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>"
        ));
    }

    fn horizontal_lines(&mut self, y: &Scale, name: &str) {
        for tick in &y.ticks {
            let Some(at) = y.place(*tick) else { continue };
            let right = WIDTH - RIGHT;
            self.put(format_args!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#dddddd\"/>"));
            self.text((LEFT - 8.0, at + 4.0), "end", 12, &short(*tick));
        }
        self.put(format_args!(
            "<path d=\"M{LEFT} {TOP}V{}H{}\" fill=\"none\" stroke=\"black\"/>",
            y.from,
            WIDTH - RIGHT
        ));
        let middle = f64::midpoint(y.from, y.to);
        let name = escaped(name);
        self.put(format_args!(
            "<text transform=\"translate(22 {middle:.1}) rotate(-90)\" text-anchor=\"middle\" font-size=\"13\">{name}</text>"
        ));
    }

    fn x_ticks(&mut self, x: &Scale) {
        let foot = HEIGHT - BOTTOM;
        for tick in &x.ticks {
            let Some(at) = x.place(*tick) else { continue };
            self.put(format_args!("<path d=\"M{at:.1} {foot}v5\" stroke=\"black\"/>"));
            self.text((at, foot + 18.0), "middle", 12, &short(*tick));
        }
    }

    fn x_name(&mut self, name: &str) {
        self.text((f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - BOTTOM + 42.0), "middle", 13, name);
    }

    fn line(&mut self, points: &[(f64, f64)], stroke: Stroke, colour: usize) {
        let hue = COLOURS[colour % COLOURS.len()];
        if stroke != Stroke::Points && !points.is_empty() {
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let dashes = if stroke == Stroke::Dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            self.put(format_args!(
                "<path d=\"M{}\" fill=\"none\" stroke=\"{hue}\" stroke-width=\"1.8\"{dashes}/>",
                path.join("L")
            ));
        }
        if stroke != Stroke::Dashed {
            points.iter().for_each(|point| self.marker(*point, colour));
        }
    }

    /// A circle, a square, a triangle or a rhombus.
    fn marker(&mut self, (x, y): (f64, f64), colour: usize) {
        let hue = COLOURS[colour % COLOURS.len()];
        match colour % 4 {
            0 => self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{hue}\"/>")),
            1 => self.put(format_args!("<path d=\"M{:.1} {:.1}h7v7h-7z\" fill=\"{hue}\"/>", x - 3.5, y - 3.5)),
            2 => self.put(format_args!("<path d=\"M{x:.1} {:.1}l4 7h-8z\" fill=\"{hue}\"/>", y - 4.0)),
            _ => self
                .put(format_args!("<path d=\"M{x:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\" fill=\"{hue}\"/>", y - 4.5)),
        }
    }

    fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, colour: usize) {
        let hue = COLOURS[colour % COLOURS.len()];
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{hue}\"/>"
        ));
    }

    fn legend_line(&mut self, row: usize, name: &str, stroke: Stroke, colour: usize) {
        let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 10.0 + 20.0 * row as f64);
        let ends = if stroke == Stroke::Points { vec![(x + 13.0, y)] } else { vec![(x, y), (x + 26.0, y)] };
        self.line(&ends, stroke, colour);
        self.text((x + 34.0, y + 4.0), "start", 12, name);
    }

    fn legend_bar(&mut self, row: usize, name: &str) {
        let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 4.0 + 20.0 * row as f64);
        self.bar(x, y, 14.0, 12.0, row);
        self.text((x + 22.0, y + 10.0), "start", 12, name);
    }

    fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A tick's number in few characters.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", rounded(value / 1e6)),
        value if value >= 1e4 => format!("{}k", rounded(value / 1e3)),
        value => rounded(value),
    }
}

/// Three decimals or more if that is all there is, without zeros at the end.
fn rounded(value: f64) -> String {
    let digits = if value > 0.0 && value < 0.01 { 6 } else { 3 };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks_that_hold_all_values() {
        let scale = Scale::new(&Axis::linear("seconds"), [0.3, 7.2].into_iter(), 0.0, 100.0);
        assert_eq!(scale.ticks, [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!((scale.place(0.0), scale.place(8.0), scale.place(f64::NAN)), (Some(0.0), Some(100.0), None));
        let scale = Scale::new(&Axis::logarithmic("blocks"), [0.0, 3.0, 250.0].into_iter(), 0.0, 300.0);
        assert_eq!(scale.ticks, [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!((scale.place(10.0), scale.place(0.0)), (Some(100.0), None));
        let nothing = Scale::new(&Axis::linear("nothing"), std::iter::empty(), 0.0, 10.0);
        assert_eq!(nothing.place(1.0), Some(10.0));
    }

    #[test]
    fn ticks_are_short() {
        let shown: Vec<String> =
            [0.0, 0.001, 0.5, 20.0, 9_999.0, 50_000.0, 2e6].iter().map(|tick| short(*tick)).collect();
        assert_eq!(shown, ["0", "0.001", "0.5", "20", "9999", "50k", "2M"]);
    }

    #[test]
    fn plots_name_everything_and_escape_it() {
        let bars = BarPlot {
            title: "Total <time> & more".to_owned(),
            note: "scale 1".to_owned(),
            y: Axis::linear("seconds"),
            groups: vec!["rows".to_owned(), "columns".to_owned()],
            series: vec![("Q3".to_owned(), vec![1.0, 2.0]), ("Q4".to_owned(), vec![3.0, 0.5])],
            stacked: true,
        };
        let svg = bars.to_svg();
        for text in ["Total &lt;time&gt; &amp; more", "scale 1", "seconds", ">rows<", ">columns<", ">Q3<", ">Q4<"] {
            assert!(svg.contains(text), "{text}");
        }
        // The background, two bars of two parts, two in the legend.
        assert_eq!(svg.matches("<rect").count(), 1 + 4 + 2);
        let beside = BarPlot { stacked: false, ..bars };
        assert_eq!(beside.to_svg().matches("<rect").count(), 1 + 4 + 2);
    }
}
