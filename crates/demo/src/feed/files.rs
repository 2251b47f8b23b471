//! The feeds of a directory with real series:
//!
//! ```text
//! household/household_power_consumption.txt           minute readings of one household
//! transformer/ETTh1.csv, ETTh2.csv                    hourly loads and oil temperature
//! nab/data/realKnownCause/machine_temperature_system_failure.csv, ambient_temperature_system_failure.csv
//! nab/labels/combined_windows.json                    labelled failures
//! ```
//!
//! Missing files are left out, with a notice. The clock of the demo is that of the machine temperature; the
//! transformers are moved to it by whole days, the household is replayed on it; all ends when the machine's
//! series ends. Without a machine, the first transformer sets the clock.

use super::household_file::{HouseholdFile, Replay};
use super::rejects::Rejects;
use super::{Channel, DAY_US, Feed, InfrastructureReading, KnownFailure, Revision, Shares};
use super::{learned, series_file};
use crate::error::{Error, Result};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The household's file.
pub const HOUSEHOLD: &str = "household/household_power_consumption.txt";
/// The transformers' files.
pub const TRANSFORMERS: [(&str, &str); 2] =
    [("transformer/ETTh1.csv", "transformer-1"), ("transformer/ETTh2.csv", "transformer-2")];
/// The machine with labelled failures.
pub const MACHINE: (&str, &str) =
    ("nab/data/realKnownCause/machine_temperature_system_failure.csv", "machine-1");
/// The temperature of an office; stored, without limits.
pub const ROOM: (&str, &str) = ("nab/data/realKnownCause/ambient_temperature_system_failure.csv", "room-1");
/// The labels.
pub const LABELS: &str = "nab/labels/combined_windows.json";

/// Contents of a directory.
pub struct Files {
    household: Option<HouseholdFile>,
    infrastructure: Arc<Vec<InfrastructureReading>>,
    revisions: Vec<Revision>,
    origin_us: i64,
    /// The labelled windows of the machine.
    pub failures: Vec<KnownFailure>,
}

impl Files {
    /// Reads a directory. Bad rows go to `rejects`; a directory without any series is an error.
    pub fn read(dir: &Path, rejects: &mut Rejects) -> Result<Files> {
        fs::read_dir(dir).map_err(|error| Error::file("read", dir, error))?;
        let there = |name: &str| {
            let path = dir.join(name);
            if !path.is_file() {
                tracing::warn!("{} does not exist: skipped", path.display());
                return None;
            }
            Some(path)
        };
        let household = there(HOUSEHOLD).map(|path| HouseholdFile::read(&path, rejects)).transpose()?;
        let mut series = |name: (&str, &str)| match there(name.0) {
            Some(path) => series_file::read_series(&path, name.1, "temperature", rejects),
            None => Ok(Vec::new()),
        };
        let (machine, room) = (series(MACHINE)?, series(ROOM)?);
        let mut transformers = Vec::new();
        for (name, asset) in TRANSFORMERS {
            if let Some(path) = there(name) {
                transformers.push(series_file::read_transformer(&path, asset, rejects)?);
            }
        }
        if household.is_none() && machine.is_empty() && room.is_empty() && transformers.is_empty() {
            let expected = [HOUSEHOLD, TRANSFORMERS[0].0, MACHINE.0].join(", ");
            return Err(Error::Invalid(format!(
                "no series in {}: expected {expected} or others of that layout",
                dir.display()
            )));
        }
        let failures = match there(LABELS) {
            Some(path) if !machine.is_empty() => read_labels(&path)?,
            _ => Vec::new(),
        };
        let (origin_us, infrastructure) = align(machine, room, transformers);
        let revisions = learned::revisions(&infrastructure, plan);
        Ok(Files { household, infrastructure: Arc::new(infrastructure), revisions, origin_us, failures })
    }

    /// Readings of the infrastructure.
    pub fn infrastructure_count(&self) -> u64 {
        self.infrastructure.len() as u64
    }

    /// Shares of `readings` readings: the infrastructure is complete where that leaves half to the
    /// households.
    pub fn shares(&self, readings: u64) -> Shares {
        let most = if self.household.is_some() { readings / 2 } else { readings };
        let infrastructure = self.infrastructure_count().min(most);
        let household = if self.household.is_some() { readings - infrastructure } else { 0 };
        Shares { household, infrastructure }
    }

    /// Readings if the households are replayed until the infrastructure ends, one day if there is none.
    pub fn readings(&self, meters: u32) -> u64 {
        let minutes = match self.infrastructure.last() {
            Some(last) => (last.time_us - self.origin_us) / super::MINUTE_US + 1,
            None => DAY_US / super::MINUTE_US,
        };
        let household = if self.household.is_some() { minutes as u64 * u64::from(meters) } else { 0 };
        household + self.infrastructure_count()
    }

    /// The event time of the last of so many readings of the infrastructure.
    pub fn infrastructure_time_us(&self, count: u64) -> i64 {
        let last = (count.min(self.infrastructure_count()) as usize).checked_sub(1);
        last.map_or(self.origin_us, |last| self.infrastructure[last].time_us)
    }

    /// The three feeds; the household's has no end.
    #[allow(clippy::type_complexity)]
    pub fn into_feeds(
        self,
        meters: u32,
    ) -> (
        Box<dyn Feed<Item = super::HouseholdReading>>,
        Box<dyn Feed<Item = InfrastructureReading>>,
        Box<dyn Feed<Item = Revision>>,
    ) {
        let household: Box<dyn Feed<Item = super::HouseholdReading>> = match self.household {
            Some(file) => Box::new(Replay::new(file, self.origin_us, meters, TRANSFORMERS.len() as u32)),
            None => Box::new(StoredFeed(Arc::new(Vec::new()))),
        };
        (household, Box::new(StoredFeed(self.infrastructure)), Box::new(StoredFeed(Arc::new(self.revisions))))
    }
}

/// A feed that is in memory.
struct StoredFeed<T>(Arc<Vec<T>>);

impl<T: Clone + Send + Sync> Feed for StoredFeed<T> {
    type Item = T;
    fn at(&mut self, index: u64) -> Option<T> {
        self.0.get(usize::try_from(index).ok()?).cloned()
    }
}

/// Plan of the limits of a channel; `None`: it gets none.
fn plan(channel: &Channel) -> Option<learned::Plan> {
    if channel.asset == MACHINE.1 {
        return Some(learned::MACHINE);
    }
    channel.asset.starts_with("transformer-").then_some(learned::TRANSFORMER)
}

/// Brings all series on one clock and merges them; returns its beginning.
fn align(
    machine: Vec<InfrastructureReading>,
    room: Vec<InfrastructureReading>,
    transformers: Vec<Vec<InfrastructureReading>>,
) -> (i64, Vec<InfrastructureReading>) {
    let first = |series: &Vec<InfrastructureReading>| series.first().map(|reading| reading.time_us);
    let origin_us = first(&machine)
        .or_else(|| transformers.first().and_then(first))
        .or_else(|| first(&room))
        .unwrap_or(0);
    let end_us = machine.last().map_or(i64::MAX, |reading| reading.time_us);
    let mut merged = machine;
    for mut series in transformers {
        // By whole days, rounded up: the time of day stays right, and nothing falls before the origin.
        let behind_us = origin_us - first(&series).unwrap_or(origin_us);
        let shift_us = behind_us.div_euclid(DAY_US) * DAY_US
            + if behind_us.rem_euclid(DAY_US) == 0 { 0 } else { DAY_US };
        series.iter_mut().for_each(|reading| reading.time_us += shift_us);
        merged.extend(series);
    }
    merged.extend(room);
    merged.retain(|reading| (origin_us..=end_us).contains(&reading.time_us));
    merged.sort_by_key(|reading| reading.time_us);
    (origin_us, merged)
}

/// The labelled windows of the machine: `{"realKnownCause/....csv": [["from", "until"], ...]}`.
fn read_labels(path: &Path) -> Result<Vec<KnownFailure>> {
    let text = fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
    let bad = |what: &str| Error::Invalid(format!("{}: {what}", path.display()));
    let labels: serde_json::Value = serde_json::from_str(&text).map_err(|error| bad(&error.to_string()))?;
    let name = MACHINE.0.trim_start_matches("nab/data/");
    let windows = labels.get(name).and_then(|windows| windows.as_array());
    let windows = windows.ok_or_else(|| bad(&format!("no windows for '{name}'")))?;
    let channel = Channel::new(MACHINE.1, "temperature");
    let mut failures = Vec::new();
    for window in windows {
        let end = |place: usize| {
            let text = window.get(place).and_then(|time| time.as_str());
            text.and_then(entresol::tables::calendar::parse_timestamp)
                .ok_or_else(|| bad(&format!("'{window}' is not a window")))
        };
        failures.push(KnownFailure { channel: channel.clone(), from_us: end(0)?, until_us: end(1)? });
    }
    Ok(failures)
}
