//! The seeded simulator: the same profiles as the real series, any number of meters, failures at known times.
//!
//! - Households: a daily and weekly load profile, of its own size per meter, anew per half hour, with noise
//!   per minute; the voltage sags with the load; 1.25% of the values are missing.
//! - Transformers: the load is the consumption of their households and 6% of losses; the oil temperature
//!   follows the load of the last two hours. Generators: a temperature with a daily swing.
//! - Each channel fails once in three days for 6 to 12 hours: a transformer's load rises by unmetered draw,
//!   its oil by a failed cooler; a generator's temperature falls away. The specification tells these from
//!   normal.

use super::{Channel, DAY_US, Feed, HouseholdReading, InfrastructureReading, KnownFailure, MINUTE_US};
use super::{Revision, WINDOW_US, noise};
use std::sync::Arc;

/// The simulated time begins here: Monday, 2025-01-06 00:00 UTC.
pub const ORIGIN_US: i64 = 20_094 * DAY_US;
/// Transformers, each with a load and an oil temperature.
pub const TRANSFORMERS: u32 = 2;
/// Generators, each with a temperature.
pub const GENERATORS: u32 = 2;
/// Minutes between two readings of a channel of the infrastructure.
pub const INFRASTRUCTURE_MINUTES: i64 = 5;

const CHANNELS: u64 = (2 * TRANSFORMERS + GENERATORS) as u64;
const FAILURE_EPOCH_US: i64 = 3 * DAY_US;
const MISSING_SHARE: f64 = 0.0125;
const SLOTS_OF_DAY: i64 = 48;

/// Streams of noise, one per use.
mod stream {
    pub(super) const BASE: u64 = 1;
    pub(super) const SLOT: u64 = 2;
    pub(super) const MINUTE: u64 = 3;
    pub(super) const MISSING: u64 = 4;
    pub(super) const VOLTAGE: u64 = 5;
    pub(super) const INFRASTRUCTURE: u64 = 6;
    pub(super) const FAILURE: u64 = 7;
}

/// The demand of simulated households.
#[derive(Debug, Clone)]
struct Demand {
    seed: u64,
    meters: u32,
    shape: Arc<[[f64; SLOTS_OF_DAY as usize]; 2]>,
}

impl Demand {
    fn new(seed: u64, meters: u32) -> Demand {
        let bump = |hour: f64, peak: f64, width: f64| (-((hour - peak) / width).powi(2)).exp();
        let workday = |hour| 0.25 + 0.5 * bump(hour, 7.5, 1.5) + 0.9 * bump(hour, 19.5, 2.5);
        let weekend = |hour| 0.3 + 0.55 * bump(hour, 11.5, 3.0) + 0.85 * bump(hour, 19.5, 2.5);
        let shape = [
            std::array::from_fn(|slot| workday(slot as f64 / 2.0)),
            std::array::from_fn(|slot| weekend(slot as f64 / 2.0)),
        ];
        Demand { seed, meters, shape: Arc::new(shape) }
    }

    /// Daily and weekly profile at a half hour since the origin, about 0.25 to 1.2.
    fn shape(&self, slot: i64) -> f64 {
        let weekend = usize::from((slot / SLOTS_OF_DAY) % 7 >= 5);
        self.shape[weekend][(slot % SLOTS_OF_DAY) as usize]
    }

    /// The size of a household, 0.6 to 1.8.
    fn base(&self, meter: u32) -> f64 {
        0.6 + 1.2 * noise::unit(self.seed, stream::BASE, u64::from(meter))
    }

    /// Mean demand of a meter over a half hour, kW.
    fn slot_kw(&self, meter: u32, slot: i64) -> f64 {
        let index = (slot as u64) << 32 | u64::from(meter);
        self.base(meter) * self.shape(slot) * (0.7 + 0.6 * noise::unit(self.seed, stream::SLOT, index))
    }

    fn meters_of(&self, transformer: u32) -> impl Iterator<Item = u32> + '_ {
        (transformer..self.meters).step_by(TRANSFORMERS as usize)
    }
}

/// Simulated household readings: every meter each minute, without an end.
pub struct Households {
    demand: Demand,
}

impl Households {
    /// The households of a seed.
    pub fn new(seed: u64, meters: u32) -> Households {
        Households { demand: Demand::new(seed, meters) }
    }
}

impl Feed for Households {
    type Item = HouseholdReading;

    fn at(&mut self, index: u64) -> Option<HouseholdReading> {
        let meters = u64::from(self.demand.meters);
        let (minute, meter) = ((index / meters) as i64, (index % meters) as u32);
        let seed = self.demand.seed;
        let missing = noise::unit(seed, stream::MISSING, index) < MISSING_SHARE;
        let kw =
            self.demand.slot_kw(meter, minute / 30) * (0.85 + 0.3 * noise::unit(seed, stream::MINUTE, index));
        let voltage = 231.0 - 1.5 * kw + 1.5 * noise::bell(seed, stream::VOLTAGE, index);
        Some(HouseholdReading {
            time_us: ORIGIN_US + minute * MINUTE_US,
            meter,
            feeder: meter % TRANSFORMERS,
            active_kw: (!missing).then_some((kw * 1000.0).round() / 1000.0),
            voltage: (!missing).then_some((voltage * 100.0).round() / 100.0),
        })
    }
}

/// Simulated infrastructure readings: every channel each five minutes, without an end.
pub struct Infrastructure {
    demand: Demand,
    channels: Vec<Arc<Channel>>,
    capacity_kw: Vec<f64>,
    /// Demand per transformer of the last half hours asked for: (slot, transformer) -> kW.
    cache: Vec<(i64, Vec<f64>)>,
}

/// Half hours whose demand the oil temperature follows.
const OIL_SLOTS: i64 = 4;

impl Infrastructure {
    /// The infrastructure of a seed.
    pub fn new(seed: u64, meters: u32) -> Infrastructure {
        let demand = Demand::new(seed, meters);
        let capacity_kw = capacity_kw(&demand);
        Infrastructure { demand, channels: channels(), capacity_kw, cache: Vec::new() }
    }

    /// Consumption of the households of a transformer in a half hour, kW.
    fn demand_kw(&mut self, transformer: u32, slot: i64) -> f64 {
        let slot = slot.max(0);
        if let Some((_, kw)) = self.cache.iter().find(|(cached, _)| *cached == slot) {
            return kw[transformer as usize];
        }
        let demand = &self.demand;
        let of = |t| demand.meters_of(t).map(|meter| demand.slot_kw(meter, slot)).sum::<f64>();
        let kw: Vec<f64> = (0..TRANSFORMERS).map(of).collect();
        let asked = kw[transformer as usize];
        if self.cache.len() > OIL_SLOTS as usize {
            self.cache.remove(0);
        }
        self.cache.push((slot, kw));
        asked
    }

    fn value(&mut self, channel: u64, time_us: i64, index: u64) -> f64 {
        let since_us = time_us - ORIGIN_US;
        let slot = since_us / WINDOW_US;
        let jitter = noise::bell(self.demand.seed, stream::INFRASTRUCTURE, index);
        let failing = failing_share(self.demand.seed, channel, time_us);
        let hour = (since_us % DAY_US) as f64 / (60 * MINUTE_US) as f64;
        let warmth = ((hour - 9.0) / 24.0 * std::f64::consts::TAU).sin();
        if channel >= u64::from(2 * TRANSFORMERS) {
            return 88.0 + 6.0 * warmth + 1.2 * jitter - 45.0 * failing;
        }
        let transformer = (channel / 2) as u32;
        if channel.is_multiple_of(2) {
            return self.demand_kw(transformer, slot) * 1.06 * (1.0 + 0.02 * jitter) * (1.0 + 0.6 * failing);
        }
        let capacity = self.capacity_kw[transformer as usize].max(f64::MIN_POSITIVE);
        let drawn: f64 = (0..OIL_SLOTS).map(|back| self.demand_kw(transformer, slot - back)).sum();
        let load = drawn / OIL_SLOTS as f64 / capacity;
        22.0 + 6.0 * warmth + 35.0 * load + 0.8 * jitter + 65.0 * failing
    }
}

impl Feed for Infrastructure {
    type Item = InfrastructureReading;

    fn at(&mut self, index: u64) -> Option<InfrastructureReading> {
        let (step, channel) = ((index / CHANNELS) as i64, index % CHANNELS);
        let time_us = ORIGIN_US + step * INFRASTRUCTURE_MINUTES * MINUTE_US;
        let missing = noise::unit(self.demand.seed, stream::MISSING, u64::MAX - index) < MISSING_SHARE;
        let value = (self.value(channel, time_us, index) * 1000.0).round() / 1000.0;
        Some(InfrastructureReading {
            time_us,
            channel: self.channels[channel as usize].clone(),
            value: (!missing).then_some(value),
        })
    }
}

/// The simulated specification: limits of every channel at the start, revised at the start of each week (the
/// limit of the oil follows the season).
pub struct Specification {
    channels: Vec<Arc<Channel>>,
    capacity_kw: Vec<f64>,
}

impl Specification {
    /// The specification of a seed.
    pub fn new(seed: u64, meters: u32) -> Specification {
        Specification { channels: channels(), capacity_kw: capacity_kw(&Demand::new(seed, meters)) }
    }

    /// Revisions up to and including a time.
    pub fn count_until(time_us: i64) -> u64 {
        ((time_us - ORIGIN_US).max(0) / (7 * DAY_US) + 1) as u64 * CHANNELS
    }
}

impl Feed for Specification {
    type Item = Revision;

    fn at(&mut self, index: u64) -> Option<Revision> {
        let (week, channel) = (index / CHANNELS, index % CHANNELS);
        let season = (week as f64 / 52.0 * std::f64::consts::TAU).sin();
        let (low, high, per_demand_max) = if channel >= u64::from(2 * TRANSFORMERS) {
            (75.0, 105.0, None)
        } else if channel.is_multiple_of(2) {
            (0.0, 2.5 * self.capacity_kw[(channel / 2) as usize] + 0.001, Some(1.3))
        } else {
            (5.0, 92.0 + 2.0 * season, None)
        };
        Some(Revision {
            time_us: ORIGIN_US + week as i64 * 7 * DAY_US,
            channel: self.channels[channel as usize].clone(),
            low,
            high,
            per_demand_max,
            revision: week as u32 + 1,
        })
    }
}

/// Sum of the sizes of the households behind each transformer.
fn capacity_kw(demand: &Demand) -> Vec<f64> {
    (0..TRANSFORMERS).map(|t| demand.meters_of(t).map(|meter| demand.base(meter)).sum()).collect()
}

/// All channels, by number.
pub fn channels() -> Vec<Arc<Channel>> {
    let mut channels = Vec::new();
    for transformer in 1..=TRANSFORMERS {
        channels.push(Channel::new(format!("transformer-{transformer}"), "load"));
        channels.push(Channel::new(format!("transformer-{transformer}"), "oil_temperature"));
    }
    for generator in 1..=GENERATORS {
        channels.push(Channel::new(format!("generator-{generator}"), "temperature"));
    }
    channels
}

/// The failure of a channel in an epoch: its first and last instant.
fn failure(seed: u64, channel: u64, epoch: i64) -> (i64, i64) {
    let index = channel << 40 | epoch as u64;
    let first_day = 0.15 + 0.4 * channel as f64 + 0.3 * noise::unit(seed, stream::FAILURE, index);
    let hours = 6.0 + 6.0 * noise::unit(seed, stream::FAILURE, index | 1 << 39);
    let from_us = ORIGIN_US + epoch * FAILURE_EPOCH_US + (first_day * DAY_US as f64) as i64;
    (from_us, from_us + (hours * 60.0) as i64 * MINUTE_US)
}

/// Degree of a failure: 0 outside, rising to 1 within half an hour.
fn failing_share(seed: u64, channel: u64, time_us: i64) -> f64 {
    let epoch = (time_us - ORIGIN_US) / FAILURE_EPOCH_US;
    // A failure that starts late in an epoch reaches into the next one.
    for epoch in [epoch - 1, epoch] {
        let (from_us, until_us) = failure(seed, channel, epoch);
        if epoch >= 0 && (from_us..=until_us).contains(&time_us) {
            return ((time_us - from_us) as f64 / WINDOW_US as f64).min(1.0);
        }
    }
    0.0
}

/// All failures that begin before a time, in the order of channels.
pub fn failures(seed: u64, end_us: i64) -> Vec<KnownFailure> {
    let mut failures = Vec::new();
    for (number, channel) in channels().into_iter().enumerate() {
        for epoch in 0..=(end_us - ORIGIN_US).max(0) / FAILURE_EPOCH_US {
            let (from_us, until_us) = failure(seed, number as u64, epoch);
            if from_us < end_us {
                failures.push(KnownFailure { channel: channel.clone(), from_us, until_us });
            }
        }
    }
    failures
}

/// Shares of `readings` readings such that both streams end at about the same event time.
pub fn shares(readings: u64, meters: u32) -> super::Shares {
    let household_per_step = u64::from(meters) * INFRASTRUCTURE_MINUTES as u64;
    let all_per_step = household_per_step + CHANNELS;
    let infrastructure = (u128::from(readings) * u128::from(CHANNELS) / u128::from(all_per_step)) as u64;
    super::Shares { household: readings - infrastructure, infrastructure }
}

/// Event time of an infrastructure reading.
pub fn infrastructure_time_us(index: u64) -> i64 {
    ORIGIN_US + (index / CHANNELS) as i64 * INFRASTRUCTURE_MINUTES * MINUTE_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_item_can_be_computed_alone() {
        let mut walked = Infrastructure::new(3, 10);
        let in_order: Vec<_> = (0..3000).map(|i| walked.at(i)).collect();
        for index in [2999, 0, 1777, 600] {
            assert_eq!(Infrastructure::new(3, 10).at(index), in_order[index as usize]);
        }
        assert_ne!(Infrastructure::new(4, 10).at(1777), in_order[1777]);
    }

    #[test]
    fn households_have_shape_and_missing_values() {
        let mut feed = Households::new(1, 20);
        let day: Vec<_> = (0..20 * 1440).filter_map(|i| feed.at(i)).collect();
        let missing = day.iter().filter(|r| r.active_kw.is_none()).count() as f64 / day.len() as f64;
        assert!((0.009..0.016).contains(&missing), "missing {missing}");
        let mean_at = |hour: i64| {
            let of_hour = |r: &&HouseholdReading| (r.time_us - ORIGIN_US) / (60 * MINUTE_US) == hour;
            let kw: Vec<f64> = day.iter().filter(of_hour).filter_map(|r| r.active_kw).collect();
            kw.iter().sum::<f64>() / kw.len() as f64
        };
        assert!(mean_at(19) > 3.0 * mean_at(3), "evening {} night {}", mean_at(19), mean_at(3));
    }

    #[test]
    fn shares_add_up_and_end_together() {
        for (readings, meters) in [(1_000_000, 10), (7, 3), (100_000, 1000)] {
            let shares = shares(readings, meters);
            assert_eq!(shares.household + shares.infrastructure, readings);
        }
        let shares = shares(1_000_000, 10);
        let last = Households::new(1, 10).at(shares.household - 1).unwrap();
        assert!((last.time_us - infrastructure_time_us(shares.infrastructure - 1)).abs() <= 10 * MINUTE_US);
    }
}
