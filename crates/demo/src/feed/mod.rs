//! Inputs of the demo's three streams: readings of households, readings of the infrastructure, and revisions
//! of the specification; simulated ([`simulator`]) or from files ([`files`]).
//!
//! - A feed is addressed by index: item `i` is a pure function of the settings (seed, number of meters,
//!   files), so a source continues after a crash by going on at the position that was committed, and the
//!   crash check recomputes what any prefix must have produced.
//! - Items come in the order of their event times. A missing value is `None`; its reading still counts.
//! - A revision of the specification only uses readings with an earlier event time.
//! - Memory: simulated feeds keep nothing; feeds from files keep at most [`ROWS_MAX`] rows per file.

pub mod files;
pub mod household_file;
pub mod learned;
pub mod noise;
pub mod rejects;
pub mod series_file;
pub mod simulator;

use std::sync::Arc;

/// Microseconds of a minute.
pub const MINUTE_US: i64 = 60_000_000;
/// Microseconds of a window of the demo: 30 minutes.
pub const WINDOW_US: i64 = 30 * MINUTE_US;
/// Microseconds of a day.
pub const DAY_US: i64 = 24 * 60 * MINUTE_US;
/// Rows that are read from one file; further ones are left out with a notice.
pub const ROWS_MAX: usize = 4_000_000;

/// One reading of the smart meter of a household.
#[derive(Debug, Clone, PartialEq)]
pub struct HouseholdReading {
    /// Event time, microseconds since the epoch.
    pub time_us: i64,
    /// The meter, from 0.
    pub meter: u32,
    /// The transformer that feeds the household, from 0.
    pub feeder: u32,
    /// Active power in kW.
    pub active_kw: Option<f64>,
    /// Voltage in V.
    pub voltage: Option<f64>,
}

/// One reading of a transformer or a generator.
#[derive(Debug, Clone, PartialEq)]
pub struct InfrastructureReading {
    /// Event time, microseconds since the epoch.
    pub time_us: i64,
    /// The measured quantity.
    pub channel: Arc<Channel>,
    /// The value, in the channel's unit.
    pub value: Option<f64>,
}

/// A measured quantity of an asset.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel {
    /// The asset, such as `transformer-1`.
    pub asset: String,
    /// The quantity, such as `oil_temperature`.
    pub quantity: String,
}

impl Channel {
    /// A channel.
    pub fn new(asset: impl Into<String>, quantity: &str) -> Arc<Channel> {
        Arc::new(Channel { asset: asset.into(), quantity: quantity.to_string() })
    }
}

/// New limits for a channel, in force for windows that end after `time_us`.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// Event time from which on they hold, in microseconds.
    pub time_us: i64,
    /// The channel that they limit.
    pub channel: Arc<Channel>,
    /// The mean of a window must not be below.
    pub low: f64,
    /// The mean of a window must not be above.
    pub high: f64,
    /// For loads: the mean must not be above this many times the demand of the households behind it.
    pub per_demand_max: Option<f64>,
    /// Counts the revisions of a channel, from 1.
    pub revision: u32,
}

/// A stretch of time in which a channel is known to fail: both ends belong to it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownFailure {
    /// The channel that fails.
    pub channel: Arc<Channel>,
    /// First instant.
    pub from_us: i64,
    /// Last instant.
    pub until_us: i64,
}

/// Name of a feeder: its transformer's.
pub fn feeder_name(feeder: u32) -> String {
    format!("transformer-{}", feeder + 1)
}

/// A sequence of items with event times, addressed by index.
pub trait Feed: Send {
    /// Type of the items.
    type Item;
    /// The item at an index, `None` past the end.
    fn at(&mut self, index: u64) -> Option<Self::Item>;
}

/// A feed that gives at most `limit` items.
pub struct LimitedFeed<F> {
    feed: F,
    limit: u64,
}

impl<F> LimitedFeed<F> {
    /// The first `limit` items of a feed.
    pub fn new(feed: F, limit: u64) -> LimitedFeed<F> {
        LimitedFeed { feed, limit }
    }
}

impl<F: Feed> Feed for LimitedFeed<F> {
    type Item = F::Item;
    fn at(&mut self, index: u64) -> Option<F::Item> {
        if index < self.limit { self.feed.at(index) } else { None }
    }
}

impl<F: Feed + ?Sized> Feed for Box<F> {
    type Item = F::Item;
    fn at(&mut self, index: u64) -> Option<F::Item> {
        (**self).at(index)
    }
}

/// The three feeds of a demo and what is known about them.
pub struct Feeds {
    /// Stream 1.
    pub household: Box<dyn Feed<Item = HouseholdReading>>,
    /// Stream 2.
    pub infrastructure: Box<dyn Feed<Item = InfrastructureReading>>,
    /// Stream 3.
    pub specification: Box<dyn Feed<Item = Revision>>,
    /// Failures that alarms should hit; complete up to the end of the infrastructure feed.
    pub failures: Vec<KnownFailure>,
    /// The channels with known failures, for the share of false alarms.
    pub judged: Vec<Arc<Channel>>,
    /// Rows that were rejected while reading files.
    pub rejected_rows: u64,
}

/// Readings of each of the two streams that make up `readings` in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Readings of households.
    pub household: u64,
    /// Readings of the infrastructure.
    pub infrastructure: u64,
}
