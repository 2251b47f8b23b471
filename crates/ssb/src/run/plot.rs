//! Times as a picture: for each query a bar of the first run beside one of the median.

use super::report::{Report, Verdict};
use plotters::coord::Shift;
use plotters::prelude::*;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawingResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

const HEIGHT: u32 = 360;
const QUERY_WIDTH: u32 = 64;
const LEAST_WIDTH: u32 = 420;
const AXIS_WIDTH: u32 = 90;
/// Width of a query's bars, and horizontal axis between two queries, in thousandths of their distance.
const STEP: i32 = 1000;
const BAR: i32 = 330;
/// Told apart by people who do not see red and green, too (Paul Tol's bright scheme).
const FIRST: RGBColor = RGBColor(0x66, 0xcc, 0xee);
const MEDIAN: RGBColor = RGBColor(0x44, 0x77, 0xaa);

/// The times as SVG.
pub fn render(report: &Report) -> String {
    let mut svg = String::new();
    {
        let width = (AXIS_WIDTH + QUERY_WIDTH * report.queries.len() as u32).max(LEAST_WIDTH);
        let root = SVGBackend::with_string(&mut svg, (width, HEIGHT)).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| draw(&root, report)).and_then(|()| root.present());
        drawn.expect("drawing into a string does not fail");
    }
    svg
}

fn draw(root: &Area<'_>, report: &Report) -> DrawingResult {
    let timed: Vec<_> =
        report.queries.iter().filter(|query| !matches!(query.verdict, Verdict::Failed(_))).collect();
    let times = timed.iter().flat_map(|query| [Some(query.first_ms), query.median_ms()]);
    let highest = times.flatten().fold(0.0, f64::max).max(1e-3);
    let names: Vec<&str> = timed.iter().map(|query| query.query).collect();
    let end = STEP * names.len().max(1) as i32;
    let rows = report.lineorder_rows.map_or(String::new(), |rows| format!(", {rows} rows of lineorder"));
    let title = format!("Star Schema Benchmark{rows}");
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 17))
        .margin(10)
        .set_label_area_size(LabelAreaPosition::Left, AXIS_WIDTH - 20)
        .set_label_area_size(LabelAreaPosition::Bottom, 40)
        .build_cartesian_2d(0..end, 0.0..1.05 * highest)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .y_label_formatter(&|ms| if highest >= 20.0 { format!("{ms:.0}") } else { format!("{ms:.2}") })
        .y_desc("ms")
        .label_style(("sans-serif", 12))
        .draw()?;
    for (at, query) in (0..).zip(&timed) {
        let middle = STEP * at + STEP / 2;
        let bars = [(middle - BAR, Some(query.first_ms), FIRST), (middle, query.median_ms(), MEDIAN)];
        for (left, ms, colour) in bars {
            let bar = ms.map(|ms| Rectangle::new([(left, 0.0), (left + BAR, ms)], colour.filled()));
            chart.draw_series(bar)?;
        }
        let (x, y) = chart.backend_coord(&(middle - BAR, 0.0));
        root.draw(&Text::new(format!("q{}", names[at as usize]), (x, y + 6), ("sans-serif", 12)))?;
    }
    let (width, height) = root.dim_in_pixel();
    for (at, name, colour) in [(0, "first run", FIRST), (1, "median of the repeats", MEDIAN)] {
        let (x, y) = (AXIS_WIDTH as i32 + 150 * at, height as i32 - 22);
        debug_assert!(x < width as i32, "the legend is in the picture");
        root.draw(&Rectangle::new([(x, y), (x + 10, y + 10)], colour.filled()))?;
        root.draw(&Text::new(name, (x + 16, y - 1), ("sans-serif", 12)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::QueryReport;
    use super::*;

    #[test]
    fn a_picture_has_two_bars_for_each_query() {
        let query = |query, first_ms, median: &[f64]| QueryReport {
            query,
            rows: 1,
            first_ms,
            repeated_ms: median.to_vec(),
            verdict: Verdict::Same,
        };
        let failed =
            QueryReport { verdict: Verdict::Failed("no memory".to_owned()), ..query("4.3", 1e9, &[]) };
        let report = Report {
            queries: vec![query("1.1", 40.0, &[20.0]), query("2.1", 10.0, &[]), failed],
            lineorder_rows: Some(60_000),
            memory_max_bytes: 1,
            threads: 1,
        };
        let svg = render(&report);
        let bars: Vec<&str> = svg.lines().filter(|line| line.starts_with("<rect")).collect();
        let filled = |colour: &str| bars.iter().filter(|bar| bar.contains(colour)).count();
        // With the legend's: two queries ran once, one of them again.
        assert_eq!((filled("#66CCEE"), filled("#4477AA")), (3, 2), "{svg}");
        assert!(svg.contains("q2.1") && !svg.contains("q4.3") && svg.contains("60000 rows"), "{svg}");
        let empty = Report { queries: Vec::new(), ..report };
        assert!(render(&empty).trim_end().ends_with("</svg>"));
    }
}
