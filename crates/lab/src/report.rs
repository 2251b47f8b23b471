//! What a run found: text for people, JSON for programs, a picture of the ratios.

use crate::Error;
use crate::plot::{Figure, escape, render};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

/// A ratio between us and a peer or a baseline of the same run.
#[derive(Debug, Clone)]
struct Ratio {
    name: String,
    value: f64,
    asked: Option<f64>,
}

/// A figure that was asked for in absolute terms.
#[derive(Debug, Clone)]
struct Limit {
    name: String,
    value: f64,
    at_most: f64,
}

/// The results of one run.
#[derive(Debug)]
pub struct Report {
    experiment: &'static str,
    quick: bool,
    rows: Vec<Map<String, Value>>,
    ratios: Vec<Ratio>,
    limits: Vec<Limit>,
    checks: Vec<(String, bool)>,
    paper: Vec<Value>,
    figures: Vec<Figure>,
    notes: Vec<String>,
    picture: Option<String>,
}

impl Report {
    /// An empty report.
    pub fn new(experiment: &'static str, quick: bool) -> Report {
        Report {
            experiment,
            quick,
            rows: Vec::new(),
            ratios: Vec::new(),
            limits: Vec::new(),
            checks: Vec::new(),
            paper: Vec::new(),
            figures: Vec::new(),
            notes: Vec::new(),
            picture: None,
        }
    }

    /// Adds a measured point; units stand in the names.
    pub fn row(&mut self, point: Value) {
        let Value::Object(row) = point else { panic!("a row is an object") };
        self.rows.push(row);
    }

    /// Adds a ratio (ours to the peer's; above 1 is better) and what was asked of it.
    pub fn ratio(&mut self, name: &str, value: f64, asked: Option<f64>) {
        self.ratios.push(Ratio { name: name.to_string(), value, asked });
    }

    /// Adds a figure that should be at most so much.
    pub fn limit(&mut self, name: &str, value: f64, at_most: f64) {
        self.limits.push(Limit { name: name.to_string(), value, at_most });
    }

    /// Adds a statement about correctness that must hold.
    pub fn check(&mut self, statement: &str, holds: bool) {
        self.checks.push((statement.to_string(), holds));
    }

    /// Adds a figure that the papers give for the same thing.
    pub fn paper(&mut self, figure: Value) {
        self.paper.push(figure);
    }

    /// Adds curves to the picture.
    pub fn figure(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Adds words: what a table means, why a figure is as it is.
    pub fn note(&mut self, text: &str) {
        self.notes.push(text.to_string());
    }

    /// Draws this SVG instead of curves or ratios.
    pub fn picture(&mut self, svg: String) {
        self.picture = Some(svg);
    }

    /// Whether every check holds.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|(_, holds)| *holds)
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let ratios: Map<String, Value> =
            self.ratios.iter().map(|ratio| (ratio.name.clone(), json!(ratio.value))).collect();
        let asked: Map<String, Value> = self
            .ratios
            .iter()
            .filter_map(|ratio| ratio.asked.map(|asked| (ratio.name.clone(), json!(asked))))
            .chain(self.limits.iter().map(|limit| (limit.name.clone(), json!(limit.at_most))))
            .collect();
        let limits: Map<String, Value> =
            self.limits.iter().map(|limit| (limit.name.clone(), json!(limit.value))).collect();
        let checks: Map<String, Value> =
            self.checks.iter().map(|(statement, holds)| (statement.clone(), json!(holds))).collect();
        json!({
            "experiment": self.experiment,
            "quick": self.quick,
            "machine": machine(),
            "rows": self.rows,
            "ratios": ratios,
            "limits": limits,
            "asked": asked,
            "checks": checks,
            "paper": self.paper,
            "notes": self.notes,
        })
    }

    /// Writes one report as an object, several as an array of them.
    pub fn write_json(reports: &[Report], path: &Path) -> Result<(), Error> {
        let value = match reports {
            [one] => one.to_json(),
            several => several.iter().map(Report::to_json).collect(),
        };
        let text = serde_json::to_string_pretty(&value).expect("a report has string keys only");
        write(path, &(text + "\n"))
    }

    /// Draws the picture; without one the figures as curves; without figures the ratios as bars, with a tick for what
    /// was asked.
    pub fn write_plot(&self, path: &Path) -> Result<(), Error> {
        let picture = match &self.picture {
            Some(picture) => picture.clone(),
            None if self.figures.is_empty() => self.plot(),
            None => render(self.experiment, &self.figures),
        };
        write(path, &picture)
    }

    fn plot(&self) -> String {
        const LEFT: f64 = 330.0;
        const WIDTH: f64 = 420.0;
        let most = |ratio: &Ratio| ratio.value.max(ratio.asked.unwrap_or(0.0));
        let scale = WIDTH / self.ratios.iter().map(most).fold(1.0, f64::max);
        let height = 60 + 34 * self.ratios.len();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"840\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"16\">{}: ours to theirs (tick: asked)</text>\n",
            escape(self.experiment)
        );
        for (i, ratio) in self.ratios.iter().enumerate() {
            let y = 44 + 34 * i;
            svg += &format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
                 <rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"20\" fill=\"#4477aa\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\">{:.2}</text>\n",
                LEFT - 10.0,
                y + 15,
                escape(&ratio.name),
                ratio.value * scale,
                LEFT + ratio.value * scale + 6.0,
                y + 15,
                ratio.value
            );
            if let Some(asked) = ratio.asked {
                let x = LEFT + asked * scale;
                svg += &format!(
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"#cc3311\" stroke-width=\"3\"/>\n",
                    y - 3,
                    y + 23
                );
            }
        }
        svg + "</svg>\n"
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::Io { what: format!("write {}", path.display()), error })
}

/// What the run ran on.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_string())
    };
    json!({
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "architecture": std::env::consts::ARCH,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}{}",
            self.experiment,
            if self.quick { " (quick: sizes too small for speed)" } else { "" }
        )?;
        // What belongs to a figure is printed as its table.
        for row in self.rows.iter().filter(|row| !row.contains_key("figure")) {
            let cells: Vec<String> = row
                .iter()
                .map(|(name, value)| match value {
                    Value::Number(n) if n.is_f64() => format!("{name} {:.1}", n.as_f64().unwrap_or(f64::NAN)),
                    Value::String(text) => format!("{name} {text}"),
                    other => format!("{name} {other}"),
                })
                .collect();
            writeln!(f, "  {}", cells.join("  "))?;
        }
        for figure in &self.figures {
            writeln!(f, "{figure}")?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        for ratio in &self.ratios {
            write!(f, "  {:44} {:8.2}", ratio.name, ratio.value)?;
            match ratio.asked {
                Some(asked) => {
                    let verdict = if ratio.value >= asked { "met" } else { "MISSED" };
                    writeln!(f, "   asked: at least {asked}   {verdict}")?;
                }
                None => writeln!(f)?,
            }
        }
        for limit in &self.limits {
            let verdict = if limit.value <= limit.at_most { "met" } else { "MISSED" };
            writeln!(
                f,
                "  {:44} {:8.1}   asked: at most {}   {verdict}",
                limit.name, limit.value, limit.at_most
            )?;
        }
        for figure in &self.paper {
            writeln!(f, "  paper: {figure}")?;
        }
        for (statement, holds) in &self.checks {
            writeln!(f, "  [{}] {statement}", if *holds { "ok" } else { "FAILED" })?;
        }
        Ok(())
    }
}
