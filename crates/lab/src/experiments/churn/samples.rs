//! Samples over time of one store, the two intervals that are compared, and their curves.

use super::Sizes;
use crate::Error;
use crate::asked::AskedFigure;
use crate::measure::median;
use crate::plot::{Figure, Series};
use crate::report::Report;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const BYTES_PER_BLOCK: u64 = 512;
const PAGE_BYTES: u64 = 4096;
/// Points of a curve.
const POINTS_MAX: usize = 12;
/// A file smaller than this may grow without it being said to: one extent, one slot of the journal.
const NEGLIGIBLE_BYTES: f64 = (4u64 << 20) as f64;
/// A change of the time of a short statement that is noise on a busy machine.
const NEGLIGIBLE_MS: f64 = 0.2;

/// One look at a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) count_ms: f64,
    pub(super) resident_bytes: u64,
    pub(super) pool_bytes: u64,
    pub(super) journal_bytes: u64,
}

/// All looks at a store, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

struct Measure {
    name: &'static str,
    unit: &'static str,
    value: fn(&Sample) -> f64,
    negligible: f64,
}

const MIB: f64 = (1u64 << 20) as f64;
const MEASURES: [Measure; 4] = [
    Measure { name: "count(*)", unit: "ms", value: |s| s.count_ms, negligible: NEGLIGIBLE_MS },
    Measure {
        name: "resident memory",
        unit: "MiB",
        value: |s| s.resident_bytes as f64 / MIB,
        negligible: NEGLIGIBLE_BYTES / MIB,
    },
    Measure {
        name: "bytes of the pool",
        unit: "MiB",
        value: |s| s.pool_bytes as f64 / MIB,
        negligible: NEGLIGIBLE_BYTES / MIB,
    },
    Measure {
        name: "bytes of the journal",
        unit: "MiB",
        value: |s| s.journal_bytes as f64 / MIB,
        negligible: NEGLIGIBLE_BYTES / MIB,
    },
];

impl Samples {
    pub(super) fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// Median of a measure between two points in time.
    fn between(&self, from: Duration, to: Duration, value: fn(&Sample) -> f64) -> f64 {
        let inside: Vec<f64> = self.0.iter().filter(|s| s.at >= from && s.at < to).map(value).collect();
        if inside.is_empty() { f64::NAN } else { median(&inside) }
    }

    /// Adds the medians of both intervals, a curve for each measure, and limits where a largest drift is
    /// given.
    pub(super) fn report(&self, store: &str, sizes: &Sizes, drift_max: Option<f64>, report: &mut Report) {
        let (interval, end) = (sizes.interval, sizes.total);
        for measure in &MEASURES {
            let early = self.between(interval, interval * 2, measure.value);
            let late = self.between(end.saturating_sub(interval), end * 2, measure.value);
            let drift =
                if late - early <= measure.negligible { (late / early).min(1.0) } else { late / early };
            report.row(json!({
                "store": store,
                "measure": measure.name,
                "unit": measure.unit,
                "second_interval": early,
                "last_interval": late,
                "drift": late / early,
            }));
            if let Some(drift_max) = drift_max {
                let name = format!("{store}, {}: last to second minute", measure.name);
                report.asked(AskedFigure::at_most(name, drift, drift_max));
            }
            report.figure(self.figure(store, measure));
        }
    }

    fn figure(&self, store: &str, measure: &Measure) -> Figure {
        let step = self.0.len().div_ceil(POINTS_MAX).max(1);
        let points = self.0.chunks(step).map(|chunk| {
            let values: Vec<f64> = chunk.iter().map(measure.value).collect();
            (format!("{:.0}", chunk[0].at.as_secs_f64()), median(&values))
        });
        Figure {
            title: format!("{store}: {}", measure.name),
            x_label: "seconds".to_owned(),
            y_label: measure.unit.to_owned(),
            series: vec![Series { name: measure.name.to_owned(), points: points.collect() }],
        }
    }
}

/// Resident memory of this process, in bytes.
pub(in crate::experiments) fn resident_bytes() -> Result<u64, Error> {
    let path = "/proc/self/statm";
    let text =
        std::fs::read_to_string(path).map_err(|error| Error::Io { action: format!("read {path}"), error })?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages
        .map(|pages| pages * PAGE_BYTES)
        .ok_or_else(|| Error::Invalid(format!("{path} has no count of resident pages: '{text}'")))
}

/// Bytes of the blocks that files of a directory have; files may be sparse, and come and go.
pub(super) fn allocated_bytes(dir: &Path, counts: impl Fn(&str) -> bool) -> Result<u64, Error> {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir)
        .map_err(|error| Error::Io { action: format!("list {}", dir.display()), error })?;
    let named = entries.flatten().filter(|entry| counts(&entry.file_name().to_string_lossy()));
    Ok(named.filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * BYTES_PER_BLOCK).sum())
}
