//! Curves as SVG: panels side by side, each with its axes and a legend. Written by hand: a line is one element, and a
//! plotting library would be the larger part of the lab.

use std::fmt::{self, Write};

/// One picture: curves over a common axis.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Stands above it.
    pub title: String,
    /// Label of the horizontal axis; positions are at equal distances, labelled by the first series' `x`.
    pub x_label: String,
    /// Label of the vertical axis, with its unit.
    pub y_label: String,
    /// The curves.
    pub series: Vec<Series>,
}

/// One curve.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its entry in the legend.
    pub name: String,
    /// Points: label of the position and value.
    pub points: Vec<(String, f64)>,
}

/// The figure as a table: a line for each curve.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n  {}  [{}; {}]", self.title, self.y_label, self.x_label)?;
        let Some(first) = self.series.first() else { return Ok(()) };
        write!(f, "  {:26}", "")?;
        first.points.iter().try_for_each(|(label, _)| write!(f, "{label:>9}"))?;
        for series in &self.series {
            write!(f, "\n  {:26}", series.name)?;
            series.points.iter().try_for_each(|(_, y)| write!(f, "{y:>9.2}"))?;
        }
        Ok(())
    }
}

const PANEL_WIDTH: f64 = 430.0;
const PANEL_HEIGHT: f64 = 300.0;
const COLUMNS: usize = 3;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 92.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 62.0;
/// Told apart by people who do not see red and green, too (Paul Tol's bright scheme).
const COLOURS: [&str; 7] = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777"];
const DASHES: [&str; 3] = ["none", "6 3", "2 3"];

/// Text as it may stand in SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// All figures as one SVG, three in a row.
pub fn render(heading: &str, figures: &[Figure]) -> String {
    let rows = figures.len().div_ceil(COLUMNS).max(1);
    let columns = figures.len().clamp(1, COLUMNS);
    let (width, height) = (columns as f64 * PANEL_WIDTH, 36.0 + rows as f64 * PANEL_HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"16\">{}</text>\n",
        escape(heading)
    );
    for (i, figure) in figures.iter().enumerate() {
        let (x, y) = ((i % COLUMNS) as f64 * PANEL_WIDTH, 36.0 + (i / COLUMNS) as f64 * PANEL_HEIGHT);
        let _ = write!(svg, "<g transform=\"translate({x} {y})\">\n{}</g>\n", panel(figure));
    }
    svg + "</svg>\n"
}

/// The next of 1, 2, 5, 10, ... from the value on.
fn round_up(value: f64) -> f64 {
    let mut step = 1e-6;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if step * factor >= value {
                return step * factor;
            }
        }
        step *= 10.0;
    }
}

fn panel(figure: &Figure) -> String {
    let highest = figure.series.iter().flat_map(|s| &s.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let tick = round_up(highest.max(1e-6) / 5.0);
    let y_max = (highest / tick).ceil().max(1.0) * tick;
    let positions = figure.series.iter().map(|s| s.points.len()).max().unwrap_or(0).max(2);
    let (width, height) = (PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM);
    let x_of = |i: usize| LEFT + width * i as f64 / (positions - 1) as f64;
    let y_of = |y: f64| TOP + height * (1.0 - y / y_max);
    let mut svg = format!("<text x=\"{LEFT}\" y=\"18\" font-size=\"12\">{}</text>\n", escape(&figure.title));
    let mut y = 0.0;
    while y <= y_max + tick / 2.0 {
        let at = y_of(y);
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT + width,
            LEFT - 5.0,
            at + 3.5,
            short(y)
        );
        y += tick;
    }
    for (i, (label, _)) in figure.series.first().map_or(&[][..], |s| &s.points).iter().enumerate() {
        let (x, y) = (x_of(i), TOP + height + 12.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" transform=\"rotate(-40 {x:.1} {y:.1})\">{}</text>",
            escape(label)
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"12\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 12 {:.1})\">{}</text>\n",
        LEFT + width / 2.0,
        PANEL_HEIGHT - 8.0,
        escape(&figure.x_label),
        TOP + height / 2.0,
        TOP + height / 2.0,
        escape(&figure.y_label)
    );
    for (i, series) in figure.series.iter().enumerate() {
        svg += &curve(series, i, &x_of, &y_of, LEFT + width);
    }
    svg
}

fn curve(
    series: &Series,
    i: usize,
    x_of: &impl Fn(usize) -> f64,
    y_of: &impl Fn(f64) -> f64,
    right: f64,
) -> String {
    let (colour, dash) = (COLOURS[i % COLOURS.len()], DASHES[i / COLOURS.len() % DASHES.len()]);
    let points: Vec<String> = series
        .points
        .iter()
        .enumerate()
        .map(|(j, (_, y))| format!("{:.1},{:.1}", x_of(j), y_of(*y)))
        .collect();
    let mut svg = format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" stroke-dasharray=\"{dash}\"/>\n",
        points.join(" ")
    );
    for point in &points {
        let (x, y) = point.split_once(',').expect("a point has two coordinates");
        let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"2\" fill=\"{colour}\"/>");
    }
    let y = TOP + 8.0 + 15.0 * i as f64;
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"1.6\" \
         stroke-dasharray=\"{dash}\"/>\n<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>\n",
        right + 8.0,
        right + 24.0,
        y - 3.5,
        y - 3.5,
        right + 28.0,
        escape(&series.name)
    );
    svg
}

fn short(value: f64) -> String {
    if value >= 10.0 || value == value.trunc() { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_drawn_inside_its_panel() {
        let series = |name: &str, values: &[f64]| Series {
            name: name.to_string(),
            points: values.iter().enumerate().map(|(i, y)| (format!("{} B", 64 << i), *y)).collect(),
        };
        let figure = Figure {
            title: "reads <all>".to_string(),
            x_label: "access size".to_string(),
            y_label: "GB/s".to_string(),
            series: vec![series("1 thread", &[1.0, 7.0, 3.0]), series("2 threads", &[0.0, 0.5, 12.4])],
        };
        let figures_table = figure.to_string();
        let svg = render("test", &[figure.clone(), figure]);
        assert_eq!(svg.matches("<polyline").count(), 4);
        assert_eq!(svg.matches("<circle").count(), 12);
        assert!(figures_table.contains("12.40") && figures_table.contains("256 B"), "{figures_table}");
        assert!(svg.contains("reads &lt;all&gt;") && svg.contains("256 B") && svg.ends_with("</svg>\n"));
        for line in svg.lines().filter(|line| line.starts_with("<circle")) {
            let number = |name: &str| -> f64 {
                let after = line.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
                after.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
            };
            assert!((LEFT..=PANEL_WIDTH - RIGHT).contains(&number("cx")), "{line}");
            assert!((TOP..=PANEL_HEIGHT - BOTTOM).contains(&number("cy")), "{line}");
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!((round_up(0.9), round_up(1.1), round_up(2.5), round_up(70.0)), (1.0, 2.0, 5.0, 100.0));
    }
}
