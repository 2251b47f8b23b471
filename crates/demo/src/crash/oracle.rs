//! Expected contents of the tables after a prefix of the streams: computed again, without the database.
//!
//! The oracle keeps its results and only goes forward, so a check costs the items since the last one. Sums
//! are added in the order of arrival, as the operators do: results are equal to the last bit.

use crate::feed::{Channel, Feeds, HouseholdReading, InfrastructureReading, Revision, WINDOW_US};
use crate::rules::{self, Limits};
use crate::topology;
use entresol::tables::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rows of a table by key: key values, then the others.
pub type Expected = BTreeMap<Vec<Value>, Vec<Value>>;

/// Sum and extremes of values, with the missing ones counted.
#[derive(Debug, Clone, Default)]
struct Aggregate {
    readings: i64,
    values: i64,
    sum: f64,
    least: Option<f64>,
    greatest: Option<f64>,
}

impl Aggregate {
    fn add(&mut self, value: Option<f64>) {
        self.readings += 1;
        let Some(value) = value else { return };
        self.values += 1;
        self.sum += value;
        self.least = Some(self.least.map_or(value, |least| least.min(value)));
        self.greatest = Some(self.greatest.map_or(value, |greatest| greatest.max(value)));
    }

    fn mean(&self) -> Option<f64> {
        (self.values > 0).then(|| self.sum / self.values as f64)
    }
}

/// NULL for a missing value.
pub fn double(value: Option<f64>) -> Value {
    value.map_or(Value::Null, Value::Double)
}

/// Stream 1 computed again.
#[derive(Default)]
pub struct HouseholdOracle {
    position: u64,
    /// (feeder, meter) -> power and voltage of the open window.
    open: BTreeMap<(u32, u32), (Aggregate, Aggregate)>,
    open_start_us: i64,
    /// Expected rows of `meter`.
    pub meter: Expected,
    /// Expected rows of `household`.
    pub household: Expected,
}

impl HouseholdOracle {
    /// Goes forward to a position; `ended` if the stream ended there and all windows were closed.
    pub fn advance(&mut self, feeds: &mut Feeds, position: u64, ended: bool) {
        while self.position < position {
            let Some(reading) = feeds.household.at(self.position) else { break };
            self.position += 1;
            self.add(&reading);
        }
        if ended {
            self.close();
        }
    }

    /// Readings in the open window.
    pub fn open_readings(&self) -> i64 {
        self.open.values().map(|(power, _)| power.readings).sum()
    }

    /// The demand of a feeder in a closed window.
    pub fn demand_kw(&self, feeder: &str, window_start_us: i64) -> Option<f64> {
        let row = self.household.get(&vec![Value::from(feeder), Value::Timestamp(window_start_us)])?;
        match row[topology::HOUSEHOLD_DEMAND] {
            Value::Double(kw) => Some(kw),
            _ => None,
        }
    }

    fn add(&mut self, reading: &HouseholdReading) {
        let start_us = reading.time_us.div_euclid(WINDOW_US) * WINDOW_US;
        if start_us != self.open_start_us {
            self.close();
            self.open_start_us = start_us;
        }
        let (power, voltage) = self.open.entry((reading.feeder, reading.meter)).or_default();
        power.add(reading.active_kw);
        voltage.add(reading.voltage);
    }

    fn close(&mut self) {
        // Feeder -> meters, readings, demand, least and greatest voltage.
        let mut feeders: BTreeMap<u32, (i64, i64, Option<f64>, Aggregate)> = BTreeMap::new();
        for ((feeder, meter), (power, voltage)) in std::mem::take(&mut self.open) {
            let start = Value::Timestamp(self.open_start_us);
            let row = vec![
                Value::Int(feeder as i32),
                Value::BigInt(power.readings),
                Value::BigInt(power.values),
                double(power.mean()),
                double(power.greatest),
                double(voltage.least),
                double(voltage.greatest),
            ];
            self.meter.insert(vec![Value::Int(meter as i32), start], row);
            let (meters, readings, demand_kw, voltages) = feeders.entry(feeder).or_default();
            *meters += 1;
            *readings += power.readings;
            if let Some(mean) = power.mean() {
                *demand_kw = Some(demand_kw.unwrap_or(0.0) + mean);
            }
            for extreme in [voltage.least, voltage.greatest] {
                voltages.add(extreme);
            }
        }
        for (feeder, (meters, readings, demand_kw, voltages)) in feeders {
            let key = vec![topology::feeder_name(feeder), Value::Timestamp(self.open_start_us)];
            let row = vec![
                Value::BigInt(meters),
                Value::BigInt(readings),
                double(demand_kw),
                double(voltages.least),
                double(voltages.greatest),
            ];
            self.household.insert(key, row);
        }
    }
}

/// Streams 2 and 3 computed again.
#[derive(Default)]
pub struct InfrastructureOracle {
    readings: u64,
    revisions: u64,
    open: BTreeMap<Arc<Channel>, Aggregate>,
    open_start_us: i64,
    limits: BTreeMap<Arc<Channel>, Revision>,
    /// Expected rows of `infrastructure`.
    pub infrastructure: Expected,
    /// Expected rows of `latest`.
    pub latest: Expected,
    /// Expected rows of `specification`.
    pub specification: Expected,
    /// Expected rows of `alarms`.
    pub alarms: Expected,
}

impl InfrastructureOracle {
    /// Goes forward to the positions of both streams; `household` must be as far as the database was.
    pub fn advance(
        &mut self,
        feeds: &mut Feeds,
        (readings, revisions): (u64, u64),
        ended: bool,
        household: &HouseholdOracle,
    ) {
        loop {
            // By event time, and revisions first: as the topology merges them.
            let reading =
                if self.readings < readings { feeds.infrastructure.at(self.readings) } else { None };
            let revision =
                if self.revisions < revisions { feeds.specification.at(self.revisions) } else { None };
            match (reading, revision) {
                (Some(reading), Some(revision)) if revision.time_us > reading.time_us => {
                    self.add(&reading, household);
                }
                (_, Some(revision)) => self.revise(revision, household),
                (Some(reading), None) => self.add(&reading, household),
                (None, None) => break,
            }
        }
        if ended {
            self.close(household);
        }
    }

    /// Readings in the open window.
    pub fn open_readings(&self) -> i64 {
        self.open.values().map(|gathered| gathered.readings).sum()
    }

    fn revise(&mut self, revision: Revision, household: &HouseholdOracle) {
        self.revisions += 1;
        self.close_before(revision.time_us, household);
        let row = vec![
            Value::Double(revision.low),
            Value::Double(revision.high),
            double(revision.per_demand_max),
            Value::Int(revision.revision as i32),
            Value::Timestamp(revision.time_us),
        ];
        self.specification.insert(channel_key(&revision.channel), row);
        self.limits.insert(revision.channel.clone(), revision);
    }

    fn add(&mut self, reading: &InfrastructureReading, household: &HouseholdOracle) {
        self.readings += 1;
        self.close_before(reading.time_us, household);
        self.open.entry(reading.channel.clone()).or_default().add(reading.value);
    }

    /// An event time closes the windows before it: those are judged by the limits so far.
    fn close_before(&mut self, time_us: i64, household: &HouseholdOracle) {
        let start_us = time_us.div_euclid(WINDOW_US) * WINDOW_US;
        if start_us > self.open_start_us {
            self.close(household);
            self.open_start_us = start_us;
        }
    }

    fn close(&mut self, household: &HouseholdOracle) {
        for (channel, gathered) in std::mem::take(&mut self.open) {
            let key = channel_key(&channel);
            let start = Value::Timestamp(self.open_start_us);
            let measured = vec![
                Value::BigInt(gathered.readings),
                Value::BigInt(gathered.values),
                double(gathered.mean()),
                double(gathered.least),
                double(gathered.greatest),
            ];
            let mut latest = vec![start.clone()];
            latest.extend(measured.iter().cloned());
            self.latest.insert(key.clone(), latest);
            let mut window_key = key;
            window_key.push(start);
            self.infrastructure.insert(window_key.clone(), measured);
            let demand_kw = household.demand_kw(&channel.asset, self.open_start_us);
            if let Some(alarm) = self.judge(&channel, gathered.mean(), demand_kw) {
                self.alarms.insert(window_key, alarm);
            }
        }
    }

    fn judge(&self, channel: &Arc<Channel>, mean: Option<f64>, demand_kw: Option<f64>) -> Option<Vec<Value>> {
        let (mean, revision) = (mean?, self.limits.get(channel)?);
        let limits =
            Limits { low: revision.low, high: revision.high, per_demand_max: revision.per_demand_max };
        let reason = rules::judge(mean, &limits, demand_kw)?;
        Some(vec![
            Value::Double(mean),
            Value::Double(limits.low),
            Value::Double(limits.high),
            double(demand_kw),
            Value::from(reason.text()),
            Value::Int(revision.revision as i32),
        ])
    }
}

fn channel_key(channel: &Channel) -> Vec<Value> {
    vec![Value::from(channel.asset.as_str()), Value::from(channel.quantity.as_str())]
}
