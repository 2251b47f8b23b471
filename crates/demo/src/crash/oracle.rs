//! Expected contents of the tables after a prefix of the streams: computed again, without the database.
//!
//! The oracle keeps its results and only goes forward, so a check costs the items since the last one. Sums
//! are added in the order of arrival, as the operators do: results are equal to the last bit.

use crate::feed::{
    Channel, Feeds, HouseholdReading, InfrastructureReading, Revision, WINDOW_US, feeder_name,
};
use entresol::tables::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The rows of a table by key: key values, then the others.
pub type ExpectedRows = BTreeMap<Vec<Value>, Vec<Value>>;

/// Place of the demand among the columns of `household` that are not of its key.
const HOUSEHOLD_DEMAND: usize = 2;
/// Place of the mean among those of `infrastructure`; minimum, maximum, the limits and the revision follow.
const INFRASTRUCTURE_MEAN: usize = 2;

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
    pub meter: ExpectedRows,
    /// Expected rows of `household`.
    pub household: ExpectedRows,
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
                Value::from(feeder_name(feeder).as_str()),
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
            let key = vec![Value::from(feeder_name(feeder).as_str()), Value::Timestamp(self.open_start_us)];
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
    pub infrastructure: ExpectedRows,
    /// Expected rows of `latest`.
    pub latest: ExpectedRows,
    /// Expected rows of `specification`.
    pub specification: ExpectedRows,
    /// Expected rows of `alarms` for what is out of its limits.
    pub alarms: ExpectedRows,
}

impl InfrastructureOracle {
    /// Goes forward to the positions of both streams.
    pub fn advance(&mut self, feeds: &mut Feeds, (readings, revisions): (u64, u64), ended: bool) {
        loop {
            // By event time; of equal ones, whichever comes first closes the window before.
            let reading =
                if self.readings < readings { feeds.infrastructure.at(self.readings) } else { None };
            let revision =
                if self.revisions < revisions { feeds.specification.at(self.revisions) } else { None };
            match (reading, revision) {
                (Some(reading), Some(revision)) if revision.time_us > reading.time_us => {
                    self.add(&reading);
                }
                (_, Some(revision)) => self.revise(revision),
                (Some(reading), None) => self.add(&reading),
                (None, None) => break,
            }
        }
        if ended {
            self.close();
        }
    }

    /// Readings in the open window.
    pub fn open_readings(&self) -> i64 {
        self.open.values().map(|gathered| gathered.readings).sum()
    }

    fn revise(&mut self, revision: Revision) {
        self.revisions += 1;
        self.close_before(revision.time_us);
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

    fn add(&mut self, reading: &InfrastructureReading) {
        self.readings += 1;
        self.close_before(reading.time_us);
        self.open.entry(reading.channel.clone()).or_default().add(reading.value);
    }

    /// An event time closes the windows before it: those are judged by the limits so far.
    fn close_before(&mut self, time_us: i64) {
        let start_us = time_us.div_euclid(WINDOW_US) * WINDOW_US;
        if start_us > self.open_start_us {
            self.close();
            self.open_start_us = start_us;
        }
    }

    fn close(&mut self) {
        for (channel, gathered) in std::mem::take(&mut self.open) {
            let key = channel_key(&channel);
            let start = Value::Timestamp(self.open_start_us);
            let mut measured = vec![
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
            if let Some(alarm) = self.judge(&channel, gathered.mean()) {
                self.alarms.insert(window_key.clone(), alarm);
            }
            let limits = self.limits.get(&channel);
            measured.extend([
                double(limits.map(|limits| limits.low)),
                double(limits.map(|limits| limits.high)),
                double(limits.and_then(|limits| limits.per_demand_max)),
                limits.map_or(Value::Null, |limits| Value::Int(limits.revision as i32)),
            ]);
            self.infrastructure.insert(window_key, measured);
        }
    }

    /// Alarm for the mean of a window that is out of the limits of its channel.
    fn judge(&self, channel: &Arc<Channel>, mean: Option<f64>) -> Option<Vec<Value>> {
        let (mean, limits) = (mean?, self.limits.get(channel)?);
        let reason = if mean < limits.low {
            "below"
        } else if mean > limits.high {
            "above"
        } else {
            return None;
        };
        Some(vec![
            Value::Double(mean),
            Value::Double(limits.low),
            Value::Double(limits.high),
            Value::Null,
            Value::from(reason),
            Value::Int(limits.revision as i32),
        ])
    }
}

/// Half hour of a feeder: its name, and the start.
pub type FeederWindow = (String, i64);

/// Both sides of the feeders, as far as both topologies are.
#[derive(Default)]
pub struct BalanceOracle {
    /// Expected rows of `feeder_flow`.
    pub flow: ExpectedRows,
    /// Demand and load, in mW, of the half hours of which both are known.
    pub balances: BTreeMap<FeederWindow, (i128, i128)>,
    /// Expected rows of `alarms` for loads that are normal by themselves and above the demand.
    pub alarms: BTreeMap<FeederWindow, (Vec<Value>, Vec<Value>)>,
}

impl BalanceOracle {
    /// Computes what follows from the rows of `household` and `infrastructure`.
    pub fn new(household: &HouseholdOracle, infrastructure: &InfrastructureOracle) -> BalanceOracle {
        let mut oracle = BalanceOracle::default();
        for (key, row) in &household.household {
            if let ([feeder, start], Some(kw)) = (&key[..], number(&row[HOUSEHOLD_DEMAND])) {
                oracle.add_flow(feeder, start, "demand", kw);
            }
        }
        for (key, row) in &infrastructure.infrastructure {
            if let ([asset, quantity, start], Some(mean)) = (&key[..], number(&row[INFRASTRUCTURE_MEAN]))
                && *quantity == Value::from("load")
            {
                oracle.add_flow(asset, start, "load", mean);
                oracle.add_balance(key, row, mean);
            }
        }
        oracle
    }

    fn add_flow(&mut self, feeder: &Value, start: &Value, side: &str, kw: f64) {
        let key = vec![feeder.clone(), start.clone(), Value::from(side)];
        self.flow.insert(key, vec![Value::Decimal(milliwatts(kw))]);
    }

    /// Adds the balance of a load, if the demand is known.
    fn add_balance(&mut self, key: &[Value], row: &[Value], mean: f64) {
        let demand_key = vec![key[0].clone(), key[2].clone(), Value::from("demand")];
        let demand = self.flow.get(&demand_key).map(|row| row[0].clone());
        let (Some(Value::Decimal(demand)), Value::Varchar(feeder), Value::Timestamp(start_us)) =
            (demand, &key[0], &key[2])
        else {
            return;
        };
        let window = (feeder.to_string(), *start_us);
        self.balances.insert(window.clone(), (demand, milliwatts(mean)));
        let limits = [0, 1, 2].map(|place| number(&row[INFRASTRUCTURE_MEAN + 3 + place]));
        let [Some(low), Some(high), Some(per_demand_max)] = limits else { return };
        let (demand_kw, load_kw) = (demand as f64 / 1_000_000.0, milliwatts(mean) as f64 / 1_000_000.0);
        if load_kw > per_demand_max * demand_kw && (low..=high).contains(&mean) {
            let alarm = vec![
                Value::Double(mean),
                Value::Double(low),
                Value::Double(high),
                Value::Double(demand_kw),
                Value::from("above demand"),
                row[INFRASTRUCTURE_MEAN + 6].clone(),
            ];
            self.alarms.insert(window, (key.to_vec(), alarm));
        }
    }
}

/// Kilowatts as the DECIMAL(14, 6) that `feeder_flow` has.
fn milliwatts(kw: f64) -> i128 {
    (kw * 1_000_000.0).round() as i128
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Double(number) => Some(*number),
        _ => None,
    }
}

fn channel_key(channel: &Channel) -> Vec<Value> {
    vec![Value::from(channel.asset.as_str()), Value::from(channel.quantity.as_str())]
}
