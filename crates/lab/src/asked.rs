//! Asked figures: one ratio or limit of an experiment, the value asked of it, and the verdict on it.
//!
//! An experiment reports each through [`crate::report::Report::asked`]. A figure that misses what is asked by
//! more than its tolerance makes the run fail, unless `known-misses.toml` lists it ([`KnownMisses`]).

use crate::Error;
use std::fmt;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Tolerance of a figure that is measured by the clock, where the experiment states no other.
pub const TOLERANCE: f64 = 0.05;

/// Direction of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The figure must reach the asked value.
    AtLeast,
    /// The figure must not exceed the asked value.
    AtMost,
}

impl Bound {
    /// The bound in words.
    pub fn name(self) -> &'static str {
        match self {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
        }
    }
}

/// A figure with an asked value.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedFigure {
    /// Name of the figure, unique in its experiment; the same at small sizes as at full ones.
    pub name: String,
    /// Measured value.
    pub measured: f64,
    /// Asked value.
    pub asked: f64,
    /// Direction.
    pub bound: Bound,
    /// Part of the asked value by which a figure may miss it: noise of the measurement.
    pub tolerance: f64,
    /// Unit of both values; empty for a ratio.
    pub unit: &'static str,
    /// True if the figure is judged at small sizes too. Speed says nothing there; counts and modelled times
    /// do.
    pub judged_at_small_sizes: bool,
}

impl AskedFigure {
    /// A figure that should reach a value: by default a ratio, judged at full sizes, with [`TOLERANCE`].
    pub fn at_least(name: impl Into<String>, measured: f64, asked: f64) -> AskedFigure {
        AskedFigure {
            name: name.into(),
            measured,
            asked,
            bound: Bound::AtLeast,
            tolerance: TOLERANCE,
            unit: "",
            judged_at_small_sizes: false,
        }
    }

    /// A figure that should not exceed a value, with the defaults of [`AskedFigure::at_least`].
    pub fn at_most(name: impl Into<String>, measured: f64, asked: f64) -> AskedFigure {
        AskedFigure { bound: Bound::AtMost, ..AskedFigure::at_least(name, measured, asked) }
    }

    /// Sets the unit.
    #[must_use]
    pub fn unit(self, unit: &'static str) -> AskedFigure {
        AskedFigure { unit, ..self }
    }

    /// Sets the tolerance, as a part of the asked value.
    #[must_use]
    pub fn tolerance(self, tolerance: f64) -> AskedFigure {
        AskedFigure { tolerance, ..self }
    }

    /// Judges the figure at small sizes too.
    #[must_use]
    pub fn judged_at_small_sizes(self) -> AskedFigure {
        AskedFigure { judged_at_small_sizes: true, ..self }
    }

    /// Returns true if the asked value is reached without the tolerance. A figure that is not a number is
    /// not.
    pub fn is_met(&self) -> bool {
        self.is_within(0.0)
    }

    /// Returns true if the figure misses the asked value by more than the tolerance.
    pub fn is_missed(&self) -> bool {
        !self.is_within(self.tolerance)
    }

    fn is_within(&self, tolerance: f64) -> bool {
        match self.bound {
            Bound::AtLeast => self.measured >= self.asked * (1.0 - tolerance),
            Bound::AtMost => self.measured <= self.asked * (1.0 + tolerance),
        }
    }
}

/// Name, measured and asked value in one line.
impl fmt::Display for AskedFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let (measured, asked) = (RoundedNumber(self.measured), RoundedNumber(self.asked));
        write!(f, "{} {measured}{unit}, asked {} {asked} ", self.name, self.bound.name())?;
        write!(f, "(tolerance {:.0}%)", 100.0 * self.tolerance)
    }
}

/// A number with two decimals while it is small, one below a thousand, none above.
pub struct RoundedNumber(pub f64);

impl fmt::Display for RoundedNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0.abs() {
            size if size >= 1000.0 => format!("{:.0}", self.0),
            size if size >= 100.0 => format!("{:.1}", self.0),
            _ => format!("{:.2}", self.0),
        };
        f.pad(&text)
    }
}

/// Judgement on an asked figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The asked value is reached.
    Met,
    /// Missed by no more than the tolerance.
    MetWithinTolerance,
    /// Missed: the run fails.
    Missed,
    /// Missed, as listed, for this reason.
    KnownMiss(String),
    /// Listed as a miss, but reached: the entry should be removed.
    KnownMissMet,
    /// Sizes are too small for the figure to say anything.
    NotJudged,
}

impl Verdict {
    /// The verdict on a figure, given the entry that lists it as a miss.
    pub fn on(figure: &AskedFigure, known: Option<&KnownMiss>, quick: bool) -> Verdict {
        match known {
            _ if quick && !figure.judged_at_small_sizes => Verdict::NotJudged,
            Some(known) if figure.is_missed() => Verdict::KnownMiss(known.reason.clone()),
            Some(_) => Verdict::KnownMissMet,
            None if figure.is_missed() => Verdict::Missed,
            None if figure.is_met() => Verdict::Met,
            None => Verdict::MetWithinTolerance,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Met => write!(f, "met"),
            Verdict::MetWithinTolerance => write!(f, "met within tolerance"),
            Verdict::Missed => write!(f, "MISSED"),
            Verdict::KnownMiss(reason) => write!(f, "missed, known: {reason}"),
            Verdict::KnownMissMet => write!(f, "met; still listed as a known miss"),
            Verdict::NotJudged => write!(f, "not judged at small sizes"),
        }
    }
}

/// A figure that is known to miss what is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownMiss {
    /// Experiment that reports it.
    pub experiment: String,
    /// Name of the figure.
    pub name: String,
    /// Reason of the miss.
    pub reason: String,
    /// Value when the entry was written.
    pub last_measured: f64,
    /// Feature of the build without which the experiment does not report the figure.
    pub feature: Option<String>,
}

/// All known misses.
///
/// An entry of the file is a table `[[miss]]` with `experiment`, `name`, `reason`, `last_measured` and, for a
/// figure that only some builds report, `feature`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownMisses(Vec<KnownMiss>);

impl KnownMisses {
    /// The list that this build was made with.
    pub fn built_in() -> Result<KnownMisses, Error> {
        KnownMisses::parse(include_str!("../known-misses.toml"), "known-misses.toml")
    }

    /// The list in a file.
    pub fn read(path: &Path) -> Result<KnownMisses, Error> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Io { action: format!("read {file}"), error })?;
        KnownMisses::parse(&text, &file)
    }

    /// The list in a string; `file` is what errors call it. Fails on an entry that is incomplete, has an
    /// unknown key, or names an experiment that does not exist.
    pub fn parse(text: &str, file: &str) -> Result<KnownMisses, Error> {
        let invalid = |detail: String| Error::Invalid(format!("{file}: {detail}"));
        let table = DeTable::parse(text).map_err(|error| invalid(error.to_string()))?.into_inner();
        if let Some(key) = table.keys().map(Spanned::get_ref).find(|key| *key != "miss") {
            return Err(invalid(format!("unknown key '{key}'; entries are tables [[miss]]")));
        }
        let entries = match table.get("miss").map(Spanned::get_ref) {
            None => return Ok(KnownMisses::default()),
            Some(DeValue::Array(entries)) => entries,
            Some(_) => return Err(invalid("'miss' is not an array of tables [[miss]]".to_string())),
        };
        let entries = entries.iter().zip(1..).map(|(entry, number)| {
            let entry = entry
                .get_ref()
                .as_table()
                .ok_or_else(|| invalid(format!("entry {number} is not a table")))?;
            KnownMiss::from_table(entry).map_err(|detail| invalid(format!("entry {number}: {detail}")))
        });
        let all = KnownMisses(entries.collect::<Result<_, Error>>()?);
        for (i, miss) in all.0.iter().enumerate() {
            crate::experiments::check_name(&miss.experiment).map_err(|error| invalid(error.to_string()))?;
            if all.0[..i]
                .iter()
                .any(|other| (&other.experiment, &other.name) == (&miss.experiment, &miss.name))
            {
                return Err(invalid(format!("'{}' of {} is listed twice", miss.name, miss.experiment)));
            }
        }
        Ok(all)
    }

    /// The entries of an experiment.
    pub fn of(&self, experiment: &str) -> Vec<KnownMiss> {
        self.0.iter().filter(|miss| miss.experiment == experiment).cloned().collect()
    }
}

impl KnownMiss {
    fn from_table(table: &DeTable<'_>) -> Result<KnownMiss, String> {
        const KEYS: [&str; 5] = ["experiment", "name", "reason", "last_measured", "feature"];
        const FEATURES: [&str; 3] = ["database", "mutants", "peers"];
        if let Some(key) = table.keys().map(Spanned::get_ref).find(|key| !KEYS.contains(&key.as_ref())) {
            return Err(format!("unknown key '{key}'; keys are {}", KEYS.join(", ")));
        }
        let string = |key: &str| {
            let value =
                table.get(key).and_then(|value| value.get_ref().as_str()).filter(|value| !value.is_empty());
            value.map(str::to_string).ok_or_else(|| format!("'{key}' is missing or not a string"))
        };
        let missing = || "'last_measured' is missing or not a number".to_string();
        let last_measured = match table.get("last_measured").map(Spanned::get_ref) {
            Some(DeValue::Float(number)) => number.as_str(),
            Some(DeValue::Integer(number)) => number.as_str(),
            _ => return Err(missing()),
        };
        let last_measured = last_measured.parse().map_err(|_| missing())?;
        let feature = table.contains_key("feature").then(|| string("feature")).transpose()?;
        if let Some(feature) = feature.as_deref().filter(|feature| !FEATURES.contains(feature)) {
            return Err(format!("unknown feature '{feature}'; features are {}", FEATURES.join(", ")));
        }
        Ok(KnownMiss {
            experiment: string("experiment")?,
            name: string("name")?,
            reason: string("reason")?,
            last_measured,
            feature,
        })
    }

    /// Returns true if this build can report the figure.
    pub fn is_of_this_build(&self) -> bool {
        match self.feature.as_deref() {
            None => true,
            Some("peers") => cfg!(feature = "peers"),
            Some("mutants") => cfg!(feature = "mutants"),
            Some(_) => cfg!(feature = "database"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry(name: &str) -> KnownMiss {
        KnownMiss {
            experiment: "e2".to_string(),
            name: name.to_string(),
            reason: "the device".to_string(),
            last_measured: 0.8,
            feature: None,
        }
    }

    #[test]
    fn a_figure_is_judged_by_its_bound_and_its_tolerance() {
        let reads = |measured| AskedFigure::at_least("reads", measured, 0.9);
        let latency = |measured| AskedFigure::at_most("latency", measured, 100.0).unit("ns").tolerance(0.1);
        let judge = |figure: &AskedFigure| Verdict::on(figure, None, false);
        assert_eq!(judge(&reads(0.9)), Verdict::Met);
        assert_eq!(judge(&reads(0.86)), Verdict::MetWithinTolerance);
        assert_eq!(judge(&reads(0.85)), Verdict::Missed);
        assert_eq!(judge(&reads(f64::NAN)), Verdict::Missed);
        assert_eq!(judge(&latency(100.0)), Verdict::Met);
        assert_eq!(judge(&latency(109.0)), Verdict::MetWithinTolerance);
        assert_eq!(judge(&latency(111.0)), Verdict::Missed);
        assert_eq!(latency(111.0).to_string(), "latency 111.0 ns, asked at most 100.0 (tolerance 10%)");
        assert_eq!(reads(0.81).to_string(), "reads 0.81, asked at least 0.90 (tolerance 5%)");
    }

    #[test]
    fn small_sizes_judge_only_figures_that_say_so() {
        let figure = AskedFigure::at_least("reads", 0.1, 0.9);
        assert_eq!(Verdict::on(&figure, None, true), Verdict::NotJudged);
        assert_eq!(Verdict::on(&figure.judged_at_small_sizes(), None, true), Verdict::Missed);
    }

    #[test]
    fn a_known_miss_is_told_from_one_that_is_met() {
        let known = entry("reads");
        let reads = |measured| AskedFigure::at_least("reads", measured, 0.9);
        assert_eq!(
            Verdict::on(&reads(0.5), Some(&known), false),
            Verdict::KnownMiss("the device".to_string())
        );
        assert_eq!(Verdict::on(&reads(0.95), Some(&known), false), Verdict::KnownMissMet);
    }

    #[test]
    fn a_list_of_known_misses_is_read_and_wrong_entries_are_refused() {
        let one =
            "[[miss]]\nexperiment = \"e2\"\nname = \"reads\"\nreason = \"the device\"\nlast_measured = 0.8\n";
        let read = KnownMisses::parse(one, "list").unwrap();
        assert_eq!(read.of("e2"), [entry("reads")]);
        assert!(read.of("e1").is_empty());
        assert_eq!(KnownMisses::parse("", "list").unwrap(), KnownMisses::default());
        let refused = |text: &str| KnownMisses::parse(text, "list").unwrap_err().to_string();
        assert!(refused(&one.replace("e2", "e77")).contains("list: no experiment 'e77'"));
        assert!(refused(&one.replace("reason", "why")).contains("entry 1: unknown key 'why'"));
        assert!(
            refused(&one.replace("0.8", "\"0.8\"")).contains("'last_measured' is missing or not a number")
        );
        assert!(refused(&one.replace("the device", "")).contains("'reason' is missing"));
        assert!(refused(&format!("{one}feature = \"gpu\"")).contains("unknown feature 'gpu'"));
        assert!(refused("known = 1").contains("unknown key 'known'"));
        assert!(refused(&format!("{one}{one}")).contains("'reads' of e2 is listed twice"));
        KnownMisses::built_in().unwrap();
    }
}
