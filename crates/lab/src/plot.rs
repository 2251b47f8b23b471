//! Pictures as SVG, drawn by `plotters`: panels of curves, each with its legend in a column of its own; rows
//! that compare figures with a paper's; bars of ratios.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::fmt;

/// One panel: curves over a common axis.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Caption.
    pub title: String,
    /// Label of the horizontal axis; positions are at equal distances, labelled by the first series.
    pub x_label: String,
    /// Label of the vertical axis, with its unit.
    pub y_label: String,
    /// The curves.
    pub series: Vec<Series>,
}

/// One curve.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points: label of the position and value. A paper's may have fewer than ours; [`Series::is_of_paper`].
    pub points: Vec<(String, f64)>,
}

/// Prefix of the names of a paper's series, which are drawn as crosses without a line.
const PAPER: &str = "paper: ";

impl Series {
    /// Points of a paper beside ours.
    pub fn of_paper(name: &str, points: Vec<(String, f64)>) -> Series {
        Series { name: format!("{PAPER}{name}"), points }
    }

    /// Returns true if these are points of a paper.
    pub fn is_of_paper(&self) -> bool {
        self.name.starts_with(PAPER)
    }
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
            for (label, _) in &first.points {
                match series.points.iter().find(|(other, _)| other == label) {
                    Some((_, y)) => write!(f, "{y:>9.2}")?,
                    None => write!(f, "{:>9}", "")?,
                }
            }
        }
        Ok(())
    }
}

/// A figure of ours in a row of [`Picture::rows`].
#[derive(Debug, Clone)]
pub struct Row {
    /// Name, to the left.
    pub name: String,
    /// Our value.
    pub value: f64,
    /// Range that it is compared with: a paper's figures, or from an asked value to itself.
    pub range: Option<(f64, f64)>,
}

/// A picture: a heading, panels of curves three in a row, and below them rows.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// Stands above all.
    pub heading: String,
    /// Panels.
    pub figures: Vec<Figure>,
    /// Heading and rows of each block.
    pub rows: Vec<(String, Vec<Row>)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

const PANEL_WIDTH: u32 = 540;
const PANEL_HEIGHT: u32 = 300;
const COLUMNS: usize = 3;
const LEGEND_WIDTH: i32 = 200;
const HEADING_HEIGHT: i32 = 36;
const ROW_HEIGHT: i32 = 20;
const ROW_NAME_WIDTH: i32 = 760;
/// Sizes of text; a pixel is 1.24 of these.
const HEADING: i32 = 19;
const TITLE: i32 = 15;
const TEXT: i32 = 12;
/// Told apart by people who do not see red and green, too (Paul Tol's bright scheme).
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0x44, 0x77, 0xaa),
    RGBColor(0xee, 0x66, 0x77),
    RGBColor(0x22, 0x88, 0x33),
    RGBColor(0xcc, 0xbb, 0x44),
    RGBColor(0x66, 0xcc, 0xee),
    RGBColor(0xaa, 0x33, 0x77),
    RGBColor(0x77, 0x77, 0x77),
];
/// Colour of what others report or ask.
const THEIRS: RGBColor = RGBColor(0xcc, 0x33, 0x11);

/// Draws on a white area of a size; returns the SVG.
pub fn draw(size: (u32, u32), drawing: impl FnOnce(&Area<'_>) -> DrawResult) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| drawing(&root)).and_then(|()| root.present());
        drawn.expect("drawing into a string does not fail");
    }
    svg
}

/// Text at a point, in a size.
pub fn text(words: &str, at: (i32, i32), size: i32) -> Text<'static, (i32, i32), String> {
    Text::new(words.to_string(), at, ("sans-serif", size).into_font())
}

impl Picture {
    /// The picture as SVG.
    pub fn render(&self) -> String {
        let columns = self.figures.len().clamp(1, COLUMNS);
        let panel_rows = self.figures.len().div_ceil(COLUMNS);
        let least_width = if self.rows.is_empty() { PANEL_WIDTH } else { 2 * ROW_NAME_WIDTH as u32 };
        let width = (columns as u32 * PANEL_WIDTH).max(least_width);
        let panels_height = panel_rows as i32 * PANEL_HEIGHT as i32;
        let block_heights: Vec<i32> =
            self.rows.iter().map(|(_, rows)| HEADING_HEIGHT + ROW_HEIGHT * (rows.len() as i32 + 2)).collect();
        let height = HEADING_HEIGHT + panels_height + block_heights.iter().sum::<i32>();
        draw((width, height as u32), |root| {
            root.draw(&text(&self.heading, (12, 10), HEADING))?;
            let (_, below) = root.split_vertically(HEADING_HEIGHT);
            let (panels, mut below) = below.split_vertically(panels_height);
            let (panels, _) = panels.split_horizontally(columns as i32 * PANEL_WIDTH as i32);
            for (area, figure) in panels.split_evenly((panel_rows.max(1), columns)).iter().zip(&self.figures)
            {
                panel(area, figure)?;
            }
            for ((title, rows), height) in self.rows.iter().zip(block_heights) {
                let (block, rest) = below.split_vertically(height);
                compare(&block, title, rows)?;
                below = rest;
            }
            Ok(())
        })
    }
}

/// Curves with axes to the left, their legend to the right.
fn panel(area: &Area<'_>, figure: &Figure) -> DrawResult {
    let (plot, legend) = area.split_horizontally(PANEL_WIDTH as i32 - LEGEND_WIDTH);
    let labels: Vec<&str> = figure
        .series
        .first()
        .map_or(Vec::new(), |s| s.points.iter().map(|(label, _)| label.as_str()).collect());
    let last = labels.len().max(2) as i32 - 1;
    let values = figure.series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
    let values = values.filter(|y| y.is_finite());
    let (lowest, highest) = values.fold((0.0_f64, 0.0_f64), |(low, high), y| (low.min(y), high.max(y)));
    // An axis of no length has no place for a point that is off it.
    let highest = highest.max(1e-6).max(lowest.abs() / 100.0);
    let are_long = labels.iter().map(|label| label.len() + 2).sum::<usize>() > 44;
    let mut chart = ChartBuilder::on(&plot)
        .caption(&figure.title, ("sans-serif", TITLE))
        .margin(8)
        .set_label_area_size(LabelAreaPosition::Left, 56)
        .set_label_area_size(LabelAreaPosition::Bottom, if are_long { 78 } else { 40 })
        .build_cartesian_2d(0..last, 1.05 * lowest..1.05 * highest)?;
    let labels_font = ("sans-serif", TEXT).into_font();
    let x_font = if are_long { labels_font.transform(FontTransform::Rotate90) } else { labels_font };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(labels.len().max(2))
        .x_label_formatter(&|at| labels.get(*at as usize).copied().unwrap_or_default().to_string())
        .x_label_style(x_font)
        .y_label_formatter(&|y| if highest >= 20.0 { format!("{y:.0}") } else { format!("{y:.2}") })
        .y_label_style(("sans-serif", TEXT))
        .axis_desc_style(("sans-serif", TEXT))
        .x_desc(&figure.x_label)
        .y_desc(&figure.y_label)
        .draw()?;
    for (number, series) in figure.series.iter().enumerate() {
        let style = COLOURS[number % COLOURS.len()].stroke_width(1 + number as u32 / COLOURS.len() as u32);
        let place = |label: &str| labels.iter().position(|other| *other == label).map(|at| at as i32);
        let points = series.points.iter().filter(|(_, y)| y.is_finite());
        let points: Vec<(i32, f64)> = points.filter_map(|(label, y)| Some((place(label)?, *y))).collect();
        // Many curves are closer together, so that the panel has room for all names.
        let y = 40 + (16.min((PANEL_HEIGHT as i32 - 48) / figure.series.len() as i32)) * number as i32;
        if series.is_of_paper() {
            chart.draw_series(points.into_iter().map(|at| Cross::new(at, 4, style)))?;
            legend.draw(&Cross::new((10, y), 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, 2, style.filled())))?;
            legend.draw(&PathElement::new(vec![(2, y), (18, y)], style))?;
        }
        legend.draw(&text(&series.name, (22, y - 6), TEXT))?;
    }
    Ok(())
}

/// Rows on a logarithmic axis: our value as a dot, the range that it is compared with as a bar.
fn compare(area: &Area<'_>, title: &str, rows: &[Row]) -> DrawResult {
    area.draw(&text(title, (12, 10), TITLE))?;
    let (_, below) = area.split_vertically(HEADING_HEIGHT);
    let (names, plot) = below.split_horizontally(ROW_NAME_WIDTH);
    let values =
        rows.iter().flat_map(|row| row.range.map_or([row.value; 3], |(low, high)| [row.value, low, high]));
    let values = values.filter(|value| *value > 0.0 && value.is_finite());
    let (low, high) = values.fold((1.0f64, 1.0f64), |(low, high), value| (low.min(value), high.max(value)));
    let count = rows.len() as i32;
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(16)
        .set_label_area_size(LabelAreaPosition::Bottom, 2 * ROW_HEIGHT)
        .build_cartesian_2d((low / 1.5..high * 1.5).log_scale(), 0..count.max(1) * ROW_HEIGHT)?;
    chart.configure_mesh().disable_y_mesh().disable_y_axis().x_label_style(("sans-serif", TEXT)).draw()?;
    for (number, row) in rows.iter().enumerate() {
        let y = (count - 1 - number as i32) * ROW_HEIGHT + ROW_HEIGHT / 2;
        names.draw(&text(&row.name, (12, ROW_HEIGHT * number as i32 + 4), TEXT))?;
        if let Some((low, high)) = row.range.filter(|(low, _)| *low > 0.0) {
            chart.draw_series([PathElement::new(vec![(low, y), (high, y)], THEIRS.stroke_width(3))])?;
            chart.draw_series([low, high].map(|at| Cross::new((at, y), 4, THEIRS.stroke_width(2))))?;
        }
        if row.value > 0.0 && row.value.is_finite() {
            chart.draw_series([Circle::new((row.value, y), 3, COLOURS[0].filled())])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn number(line: &str, name: &str) -> f64 {
        let after = line.split(&format!(" {name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        after.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
    }

    #[test]
    fn curves_are_drawn_inside_their_panel_and_legends_beside_it() {
        let series = |name: &str, values: &[f64]| Series {
            name: name.to_string(),
            points: values.iter().enumerate().map(|(i, y)| (format!("{} B", 64 << i), *y)).collect(),
        };
        let paper = Series::of_paper("Optane", vec![("128 B".to_string(), 5.0)]);
        let figure = Figure {
            title: "reads <all>".to_string(),
            x_label: "access size".to_string(),
            y_label: "GB/s".to_string(),
            series: vec![series("1 thread", &[1.0, 7.0, 3.0]), series("2 threads", &[0.0, 0.5, 12.4]), paper],
        };
        let table = figure.to_string();
        assert!(
            table.contains("12.40") && table.contains("256 B") && table.contains("paper: Optane"),
            "{table}"
        );
        let svg = Picture { heading: "test".to_string(), figures: vec![figure], rows: Vec::new() }.render();
        assert!(
            svg.contains("reads &lt;all&gt;") && svg.contains("256 B") && svg.trim_end().ends_with("</svg>")
        );
        let plot_end = f64::from(PANEL_WIDTH) - f64::from(LEGEND_WIDTH);
        let circles: Vec<&str> = svg.lines().filter(|line| line.starts_with("<circle")).collect();
        assert_eq!(circles.len(), 6, "{svg}");
        for line in circles {
            assert!((0.0..plot_end).contains(&number(line, "cx")), "{line}");
            assert!((36.0..336.0).contains(&number(line, "cy")), "{line}");
        }
        let lines: Vec<&str> = svg.lines().collect();
        for name in ["1 thread", "2 threads", "paper: Optane"] {
            let at = lines.iter().position(|line| line.trim() == name).unwrap();
            assert!(number(lines[at - 1], "x") > plot_end, "{}", lines[at - 1]);
        }
    }

    #[test]
    fn negative_values_are_drawn_inside_their_panel() {
        let points = vec![("0".to_string(), -7.5), ("1".to_string(), -0.5)];
        let figure = Figure {
            title: "errors".to_string(),
            x_label: "run".to_string(),
            y_label: "%".to_string(),
            series: vec![Series { name: "one".to_string(), points }],
        };
        let svg = Picture { heading: "test".to_string(), figures: vec![figure], rows: Vec::new() }.render();
        let circles: Vec<&str> = svg.lines().filter(|line| line.starts_with("<circle")).collect();
        assert_eq!(circles.len(), 2, "{svg}");
        assert!(circles.iter().all(|line| (36.0..336.0).contains(&number(line, "cy"))), "{circles:?}");
    }

    #[test]
    fn rows_show_our_value_and_the_range_beside_it() {
        let row = |name: &str, value, range| Row { name: name.to_string(), value, range };
        let rows = vec![row("transactions", 4.9, Some((1.2, 3.0))), row("not a number", f64::NAN, None)];
        let picture = Picture { rows: vec![("paper".to_string(), rows)], ..Picture::default() };
        let svg = picture.render();
        assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
        assert!(svg.contains("transactions") && svg.contains("not a number"), "{svg}");
    }
}
