//! Results of a run: text for people, JSON for programs, a picture.

use crate::Error;
use crate::asked::{AskedFigure, Bound, KnownMiss, KnownMisses, RoundedNumber, Verdict};
use crate::plot::{Figure, Picture, Row};
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
    asked: Vec<(AskedFigure, Verdict)>,
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
    pub fn asked(&mut self, mut figure: AskedFigure) {
        let name = figure.name.clone();
        assert!(
            self.asked.iter().all(|(other, _)| other.name != name),
            "the figure '{name}' is reported twice"
        );
        if let Some((_, asked)) = self.overrides.iter().find(|(other, _)| *other == name) {
            figure = AskedFigure { asked: *asked, judged_at_small_sizes: true, ..figure };
        }
        let known = self.known_misses.iter().find(|miss| miss.name == name);
        let verdict = Verdict::on(&figure, known, self.quick);
        self.asked.push((figure, verdict));
    }

    /// Adds a statement about correctness that must hold.
    pub fn check(&mut self, statement: &str, holds: bool) {
        self.checks.push((statement.to_string(), holds));
    }

    /// Adds a figure of a paper beside ours, which is none where there is no counterpart. `source` is the
    /// paper's figure, table or section; the unit of both stands in the name.
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

    /// Figures that miss what is asked and are not known to, each with its experiment, its values and its
    /// tolerance.
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

    /// Draws the experiment's own picture; without one its figures, and below them our figures beside the
    /// paper's, the asked figures and the other ratios.
    pub fn write_plot(&self, path: &Path) -> Result<(), Error> {
        let own = self.picture.clone();
        write(path, &own.unwrap_or_else(|| self.plot().render()))
    }

    fn plot(&self) -> Picture {
        let paper = self.paper.iter().filter_map(|figure| {
            let (low, high) = range_of(&figure.paper)?;
            let middle = (low * high).sqrt();
            let name = format!("{}: {}, paper {}", figure.source, figure.name, figure.paper);
            Some(Row { name, value: figure.ours? / middle, range: Some((low / middle, high / middle)) })
        });
        let asked = self.asked.iter().map(|(figure, _)| {
            let range = match figure.bound {
                Bound::AtLeast => (1.0 - figure.tolerance, 1.0),
                Bound::AtMost => (1.0, 1.0 + figure.tolerance),
            };
            let name = format!("{}, {} {}", figure.name, figure.bound.name(), RoundedNumber(figure.asked));
            Row { name, value: figure.measured / figure.asked, range: Some(range) }
        });
        let ratios =
            self.ratios.iter().map(|(name, value)| Row { name: name.clone(), value: *value, range: None });
        let blocks = [
            ("ours (dot) to the paper's (bar)", paper.collect::<Vec<_>>()),
            ("measured (dot) to asked (bar: the tolerance)", asked.collect()),
            ("ratios", ratios.collect()),
        ];
        let rows = blocks.into_iter().filter(|(_, rows)| !rows.is_empty());
        Picture {
            heading: self.experiment.to_string(),
            figures: self.figures.clone(),
            rows: rows.map(|(title, rows)| (title.to_string(), rows)).collect(),
        }
    }
}

/// Least and greatest positive number in a paper's words; none if there is no number.
fn range_of(paper: &str) -> Option<(f64, f64)> {
    let words = paper.split(|c: char| !c.is_ascii_digit() && c != '.');
    let numbers: Vec<f64> =
        words.filter_map(|word| word.parse().ok()).filter(|number| *number > 0.0).collect();
    let least = numbers.iter().copied().min_by(f64::total_cmp)?;
    let greatest = numbers.iter().copied().max_by(f64::total_cmp)?;
    Some((least, greatest))
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
            writeln!(f, "  {name:60} {:>9}", RoundedNumber(*value))?;
        }
        for (figure, verdict) in &self.asked {
            let relation = if figure.bound == Bound::AtLeast { ">=" } else { "<=" };
            writeln!(
                f,
                "  {:60} {:>9} {:6} asked {relation} {}, tolerance {:.0}%: {verdict}",
                figure.name,
                RoundedNumber(figure.measured),
                figure.unit,
                RoundedNumber(figure.asked),
                100.0 * figure.tolerance
            )?;
        }
        for PaperFigure { source, name, paper, ours } in &self.paper {
            let ours = ours.map_or("-".to_string(), |ours| RoundedNumber(ours).to_string());
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
        let reads = || AskedFigure::at_least("reads", 0.5, 0.9);
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
        met.asked(AskedFigure::at_least("reads", 0.95, 0.9));
        assert!(met.passed());
        assert_eq!(met.known_misses_met(), ["e2: reads 0.95, asked at least 0.90 (tolerance 5%)"]);
    }

    #[test]
    fn numbers_of_a_paper_are_found_in_its_words() {
        assert_eq!(range_of("1.2 to 3"), Some((1.2, 3.0)));
        assert_eq!(range_of("about 0.95"), Some((0.95, 0.95)));
        assert_eq!(range_of("22"), Some((22.0, 22.0)));
        assert_eq!(range_of("0"), None);
        assert_eq!(range_of("well above one"), None);
    }

    #[test]
    fn a_known_miss_of_no_reported_figure_is_an_error() {
        let known_misses = KnownMisses::parse(KNOWN, "list").unwrap();
        let mut report = Report::new("e2", false).with_known_misses(&known_misses);
        report.asked(AskedFigure::at_least("writes", 1.0, 0.9));
        let error = report.check_names().unwrap_err().to_string();
        assert!(error.contains("e2 reports no asked figure 'reads'; it reports: writes"), "{error}");
        report.asked(AskedFigure::at_least("reads", 1.0, 0.9));
        report.check_names().unwrap();
    }
}
