//! Results of a run: text for people, JSON for programs, a picture.

use crate::Error;
use crate::asked::{Asked, Bound, KnownMiss, KnownMisses, Rounded, Verdict};
use crate::plot::{Figure, escape, render};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

/// Figure of a paper beside ours.
#[derive(Debug)]
struct PaperFigure {
    source: String,
    name: String,
    paper: String,
    ours: Option<f64>,
}

/// The results of one run.
#[derive(Debug)]
pub struct Report {
    experiment: &'static str,
    quick: bool,
    rows: Vec<Map<String, Value>>,
    ratios: Vec<(String, f64)>,
    asked: Vec<(Asked, Verdict)>,
    known_misses: Vec<KnownMiss>,
    overrides: Vec<(String, f64)>,
    checks: Vec<(String, bool)>,
    paper: Vec<PaperFigure>,
    figures: Vec<Figure>,
    notes: Vec<String>,
    picture: Option<String>,
}

impl Report {
    /// An empty report, without known misses.
    pub fn new(experiment: &'static str, quick: bool) -> Report {
        Report {
            experiment,
            quick,
            rows: Vec::new(),
            ratios: Vec::new(),
            asked: Vec::new(),
            known_misses: Vec::new(),
            overrides: Vec::new(),
            checks: Vec::new(),
            paper: Vec::new(),
            figures: Vec::new(),
            notes: Vec::new(),
            picture: None,
        }
    }

    /// Sets the list of figures that may miss what is asked.
    #[must_use]
    pub fn with_known_misses(self, known: &KnownMisses) -> Report {
        Report { known_misses: known.of(self.experiment), ..self }
    }

    /// Sets other asked values, by name of the figure; such a figure is judged at all sizes.
    #[must_use]
    pub fn with_overrides(self, overrides: &[(String, f64)]) -> Report {
        Report { overrides: overrides.to_vec(), ..self }
    }

    /// Adds a measured point; units stand in the names.
    pub fn row(&mut self, point: Value) {
        let Value::Object(row) = point else { panic!("a row is an object") };
        self.rows.push(row);
    }

    /// Adds a ratio that is shown and of which nothing is asked.
    pub fn ratio(&mut self, name: &str, value: f64) {
        self.ratios.push((name.to_string(), value));
    }

    /// Adds an asked figure and judges it. Panics on a name that the experiment has reported before.
    pub fn asked(&mut self, mut figure: Asked) {
        let name = figure.name.clone();
        assert!(
            self.asked.iter().all(|(other, _)| other.name != name),
            "the figure '{name}' is reported twice"
        );
        if let Some((_, asked)) = self.overrides.iter().find(|(other, _)| *other == name) {
            figure = Asked { asked: *asked, judged_at_small_sizes: true, ..figure };
        }
        let known = self.known_misses.iter().find(|miss| miss.name == name);
        let verdict = Verdict::on(&figure, known, self.quick);
        self.asked.push((figure, verdict));
    }

    /// Adds a statement about correctness that must hold.
    pub fn check(&mut self, statement: &str, holds: bool) {
        self.checks.push((statement.to_string(), holds));
    }

    /// Adds a figure of a paper beside ours, which is none where there is no counterpart. `source` is the paper's figure,
    /// table or section; the unit of both stands in the name.
    pub fn paper(&mut self, source: &str, name: &str, paper: &str, ours: Option<f64>) {
        self.paper.push(PaperFigure {
            source: source.to_string(),
            name: name.to_string(),
            paper: paper.to_string(),
            ours,
        });
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

    /// Returns true if every check holds and no figure misses what is asked, known misses apart.
    pub fn passed(&self) -> bool {
        self.failed_checks().is_empty() && self.misses().is_empty()
    }

    /// Checks that failed, each with its experiment.
    pub fn failed_checks(&self) -> Vec<String> {
        let failed = self.checks.iter().filter(|(_, holds)| !holds);
        failed.map(|(statement, _)| format!("{}: {statement}", self.experiment)).collect()
    }

    /// Figures that miss what is asked and are not known to, each with its experiment, its values and its tolerance.
    pub fn misses(&self) -> Vec<String> {
        self.with_verdict(&Verdict::Missed)
    }

    /// Known misses that are met now: their entries should be removed.
    pub fn known_misses_met(&self) -> Vec<String> {
        self.with_verdict(&Verdict::KnownMissMet)
    }

    fn with_verdict(&self, wanted: &Verdict) -> Vec<String> {
        let found = self.asked.iter().filter(|(_, verdict)| verdict == wanted);
        found.map(|(figure, _)| format!("{}: {figure}", self.experiment)).collect()
    }

    /// Fails if a known miss or another asked value names a figure that the experiment has not reported.
    pub fn check_names(&self) -> Result<(), Error> {
        let known = self.known_misses.iter().filter(|miss| miss.is_of_this_build());
        let mut names = known.map(|miss| &miss.name).chain(self.overrides.iter().map(|(name, _)| name));
        match names.find(|name| self.asked.iter().all(|(figure, _)| figure.name != **name)) {
            None => Ok(()),
            Some(name) => Err(Error::Invalid(format!(
                "{} reports no asked figure '{name}'; it reports: {}",
                self.experiment,
                self.asked.iter().map(|(figure, _)| figure.name.as_str()).collect::<Vec<_>>().join("; ")
            ))),
        }
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let ratios: Map<String, Value> =
            self.ratios.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let checks: Map<String, Value> =
            self.checks.iter().map(|(statement, holds)| (statement.clone(), json!(holds))).collect();
        let asked = self.asked.iter().map(|(figure, verdict)| {
            json!({
                "name": figure.name,
                "measured": figure.measured,
                "bound": figure.bound.name(),
                "asked": figure.asked,
                "tolerance": figure.tolerance,
                "unit": figure.unit,
                "verdict": verdict.to_string(),
            })
        });
        let paper = self.paper.iter().map(|figure| {
            json!({"source": figure.source, "name": figure.name, "paper": figure.paper, "ours": figure.ours})
        });
        json!({
            "experiment": self.experiment,
            "quick": self.quick,
            "machine": machine(),
            "rows": self.rows,
            "ratios": ratios,
            "asked": asked.collect::<Value>(),
            "checks": checks,
            "paper": paper.collect::<Value>(),
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

    /// Ratios, with and without an asked value.
    fn bars(&self) -> Vec<(&str, f64, Option<f64>)> {
        let asked = self.asked.iter().map(|(figure, _)| figure).filter(|figure| figure.unit.is_empty());
        let asked = asked.map(|figure| (figure.name.as_str(), figure.measured, Some(figure.asked)));
        asked.chain(self.ratios.iter().map(|(name, value)| (name.as_str(), *value, None))).collect()
    }

    fn plot(&self) -> String {
        const LEFT: f64 = 330.0;
        const WIDTH: f64 = 420.0;
        let bars = self.bars();
        let most = |(_, value, asked): &(&str, f64, Option<f64>)| value.max(asked.unwrap_or(0.0));
        let scale = WIDTH / bars.iter().map(most).fold(1.0, f64::max);
        let height = 60 + 34 * bars.len();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"840\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"16\">{}: ratios (tick: asked)</text>\n",
            escape(self.experiment)
        );
        for (i, (name, value, asked)) in bars.into_iter().enumerate() {
            let y = 44 + 34 * i;
            svg += &format!(
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
                 <rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"20\" fill=\"#4477aa\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\">{:.2}</text>\n",
                LEFT - 10.0,
                y + 15,
                escape(name),
                value * scale,
                LEFT + value * scale + 6.0,
                y + 15,
                value
            );
            if let Some(asked) = asked {
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
    std::fs::write(path, text)
        .map_err(|error| Error::Io { action: format!("write {}", path.display()), error })
}

/// Machine of the run.
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
        // Rows of a figure are printed as its table.
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
        for (name, value) in &self.ratios {
            writeln!(f, "  {name:60} {:>9}", Rounded(*value))?;
        }
        for (figure, verdict) in &self.asked {
            let relation = if figure.bound == Bound::AtLeast { ">=" } else { "<=" };
            writeln!(
                f,
                "  {:60} {:>9} {:6} asked {relation} {}, tolerance {:.0}%: {verdict}",
                figure.name,
                Rounded(figure.measured),
                figure.unit,
                Rounded(figure.asked),
                100.0 * figure.tolerance
            )?;
        }
        for PaperFigure { source, name, paper, ours } in &self.paper {
            let ours = ours.map_or("-".to_string(), |ours| Rounded(ours).to_string());
            writeln!(f, "  paper, {source}: {name:60}  paper {paper:16}  ours {ours}")?;
        }
        for (statement, holds) in &self.checks {
            writeln!(f, "  [{}] {statement}", if *holds { "ok" } else { "FAILED" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KNOWN: &str =
        "[[miss]]\nexperiment = \"e2\"\nname = \"reads\"\nreason = \"the device\"\nlast_measured = 0.8\n";

    #[test]
    fn a_new_miss_fails_a_report_and_a_known_one_does_not() {
        let reads = || Asked::at_least("reads", 0.5, 0.9);
        let mut new = Report::new("e2", false);
        new.asked(reads());
        assert!(!new.passed());
        assert_eq!(new.misses(), ["e2: reads 0.50, asked at least 0.90 (tolerance 5%)"]);
        let known_misses = KnownMisses::parse(KNOWN, "list").unwrap();
        let mut known = Report::new("e2", false).with_known_misses(&known_misses);
        known.asked(reads());
        assert!(known.passed() && known.misses().is_empty() && known.known_misses_met().is_empty());
        assert!(known.to_string().contains("missed, known: the device"), "{known}");
        let mut met = Report::new("e2", false).with_known_misses(&known_misses);
        met.asked(Asked::at_least("reads", 0.95, 0.9));
        assert!(met.passed());
        assert_eq!(met.known_misses_met(), ["e2: reads 0.95, asked at least 0.90 (tolerance 5%)"]);
    }

    #[test]
    fn a_known_miss_of_no_reported_figure_is_an_error() {
        let known_misses = KnownMisses::parse(KNOWN, "list").unwrap();
        let mut report = Report::new("e2", false).with_known_misses(&known_misses);
        report.asked(Asked::at_least("writes", 1.0, 0.9));
        let error = report.check_names().unwrap_err().to_string();
        assert!(error.contains("e2 reports no asked figure 'reads'; it reports: writes"), "{error}");
        report.asked(Asked::at_least("reads", 1.0, 0.9));
        report.check_names().unwrap();
    }
}
