//! Measurements of an experiment: points by primitive, variant and size, on two media.

use crate::plot::{Figure, Series};
use crate::report::Report;
use serde_json::json;

/// Average cost of one operation on modelled Optane.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) ns: f64,
    /// Words that differ afterwards, times eight.
    pub(super) modified_bytes: f64,
    /// Lines that reached the device.
    pub(super) written_bytes: f64,
    pub(super) read_bytes: f64,
    pub(super) flushes: f64,
    pub(super) fences: f64,
}

/// One point of the paper's figures.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// The primitive: a layout mostly.
    pub(super) what: String,
    /// The position in the node, the strategy, the duplicates.
    pub(super) at: String,
    /// Position on the horizontal axis: the node's bytes, levels, nodes.
    pub(super) size: usize,
    pub(super) modelled: Cost,
    /// By the clock on `journal` at `none`; none where there is nothing to time.
    pub(super) clock_ns: Option<f64>,
}

/// All points of an experiment.
#[derive(Debug)]
pub(super) struct Points {
    pub(super) title: &'static str,
    pub(super) size_label: &'static str,
    pub(super) all: Vec<Point>,
    /// True if all nodes held what they should afterwards.
    pub(super) right: bool,
}

impl Points {
    pub(super) fn new(title: &'static str, size_label: &'static str) -> Points {
        Points { title, size_label, all: Vec::new(), right: true }
    }

    fn find(&self, what: &str, at: &str, size: usize) -> &Point {
        let found = self.all.iter().find(|point| point.what == what && point.at == at && point.size == size);
        found.unwrap_or_else(|| panic!("{}: '{what}', '{at}', {size} was not measured", self.title))
    }

    /// A point on modelled Optane.
    pub(super) fn cost(&self, what: &str, at: &str, size: usize) -> Cost {
        self.find(what, at, size).modelled
    }

    /// Modelled nanoseconds of a point.
    pub(super) fn ns(&self, what: &str, at: &str, size: usize) -> f64 {
        self.cost(what, at, size).ns
    }

    /// Nanoseconds by the clock.
    pub(super) fn clock(&self, what: &str, at: &str, size: usize) -> f64 {
        self.find(what, at, size).clock_ns.unwrap_or(f64::NAN)
    }

    /// Mean over all variants of a modelled quantity.
    pub(super) fn mean(&self, what: &str, size: usize, of: impl Fn(&Cost) -> f64) -> f64 {
        let costs = self.all.iter().filter(|point| point.what == what && point.size == size);
        let (sum, count) =
            costs.fold((0.0, 0.0), |(sum, count), point| (sum + of(&point.modelled), count + 1.0));
        sum / count
    }

    /// Different values of a part of the points, in order of appearance.
    fn different<T: PartialEq>(&self, of: impl Fn(&Point) -> T) -> Vec<T> {
        let mut values = Vec::new();
        for value in self.all.iter().map(of) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    pub(super) fn sizes(&self) -> Vec<usize> {
        self.different(|point| point.size)
    }

    /// Returns true if a statement holds at all sizes.
    pub(super) fn at_all_sizes(&self, holds: impl Fn(usize) -> bool) -> bool {
        self.sizes().into_iter().all(holds)
    }

    pub(super) fn report(&self, report: &mut Report) {
        for point in &self.all {
            let cost = point.modelled;
            report.row(json!({
                "figure": self.title,
                "primitive": point.what,
                "variant": point.at,
                self.size_label: point.size,
                "modelled_ns": cost.ns,
                "modified_bytes": cost.modified_bytes,
                "written_bytes": cost.written_bytes,
                "read_bytes": cost.read_bytes,
                "flushes": cost.flushes,
                "fences": cost.fences,
                "journal_none_ns": point.clock_ns,
            }));
        }
        for at in self.different(|point| point.at.clone()) {
            self.figure(&at, "modelled Optane, ns", |point| Some(point.modelled.ns), report);
            if self.all.iter().any(|point| point.modelled.written_bytes > 0.0) {
                self.figure(&at, "written, bytes", |point| Some(point.modelled.written_bytes), report);
                self.figure(&at, "modified, bytes", |point| Some(point.modelled.modified_bytes), report);
                self.figure(&at, "flushes", |point| Some(point.modelled.flushes), report);
            }
            self.figure(&at, "journal, none, ns", |point| point.clock_ns, report);
        }
        report.check("all nodes held what they should", self.right);
    }

    fn figure(&self, at: &str, unit: &str, of: impl Fn(&Point) -> Option<f64>, report: &mut Report) {
        let here = |what: &String| {
            let points = self.all.iter().filter(|point| point.what == *what && point.at == at);
            let points = points.filter_map(|point| Some((point.size.to_string(), of(point)?)));
            Series { name: what.clone(), points: points.collect() }
        };
        let series: Vec<Series> = self.different(|point| point.what.clone()).iter().map(here).collect();
        let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
        if series.is_empty() {
            return;
        }
        report.figure(Figure {
            title: if at.is_empty() { self.title.to_string() } else { format!("{}: {at}", self.title) },
            x_label: self.size_label.to_string(),
            y_label: unit.to_string(),
            series,
        });
    }
}
