//! Limits learned from the readings themselves, for the real series, which come without a specification.
//!
//! - A channel has wide provisional limits at first. After a week, its limits become the mean of the readings
//!   so far, give or take some standard deviations: three for a machine, which is set once, by its
//!   commissioning week; four for a transformer, whose season moves: it is set anew each week by the two
//!   weeks before.
//! - A revision at time t only uses readings before t.

use super::{Channel, DAY_US, InfrastructureReading, Revision};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Plan for learning the limits of a channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Limits until the first revision.
    pub provisional: (f64, f64),
    /// Standard deviations on each side of the mean.
    pub deviations: f64,
    /// True: revised each week by the two weeks before. False: set once.
    pub weekly: bool,
}

/// A machine: set once, by its commissioning week.
pub const MACHINE: Plan = Plan { provisional: (0.0, 150.0), deviations: 3.0, weekly: false };
/// The oil of a transformer (at most 105 degrees Celsius in any case), or its load.
pub const TRANSFORMER: Plan = Plan { provisional: (-1000.0, 1000.0), deviations: 4.0, weekly: true };

const PERIOD_US: i64 = 7 * DAY_US;
const SPAN_US: i64 = 14 * DAY_US;
/// Fewer readings than this are no ground for limits.
const READINGS_MIN: usize = 24;

/// All revisions for readings in the order of time; channels without a plan get none.
pub fn revisions(
    readings: &[InfrastructureReading],
    plan: impl Fn(&Channel) -> Option<Plan>,
) -> Vec<Revision> {
    let mut of_channel: BTreeMap<&Arc<Channel>, Vec<(i64, f64)>> = BTreeMap::new();
    for reading in readings {
        if let Some(value) = reading.value {
            of_channel.entry(&reading.channel).or_default().push((reading.time_us, value));
        }
    }
    let mut revisions = Vec::new();
    for (channel, values) in of_channel {
        if let Some(plan) = plan(channel) {
            revise(channel, &values, plan, &mut revisions);
        }
    }
    revisions.sort_by_key(|revision| revision.time_us);
    revisions
}

fn revise(channel: &Arc<Channel>, values: &[(i64, f64)], plan: Plan, revisions: &mut Vec<Revision>) {
    let (first_us, last_us) = (values[0].0, values[values.len() - 1].0);
    let mut revision = 1;
    let mut add = |time_us, (low, high)| {
        revisions.push(Revision {
            time_us,
            channel: channel.clone(),
            low,
            high,
            per_demand_max: None,
            revision,
        });
        revision += 1;
    };
    add(first_us, plan.provisional);
    let mut time_us = first_us + PERIOD_US;
    while time_us <= last_us {
        let until = values.partition_point(|(at, _)| *at < time_us);
        let from = values.partition_point(|(at, _)| *at < time_us - SPAN_US);
        if until - from >= READINGS_MIN {
            let (mean, deviation) = mean_and_deviation(&values[from..until]);
            add(time_us, (mean - plan.deviations * deviation, mean + plan.deviations * deviation));
        }
        if !plan.weekly {
            break;
        }
        time_us += PERIOD_US;
    }
}

fn mean_and_deviation(values: &[(i64, f64)]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|(_, value)| value).sum::<f64>() / count;
    let variance = values.iter().map(|(_, value)| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_only_sees_the_past() {
        let channel = Channel::new("machine-1", "temperature");
        let reading = |hour: i64, value: f64| InfrastructureReading {
            time_us: hour * DAY_US / 24,
            channel: channel.clone(),
            value: Some(value),
        };
        let mut readings: Vec<_> = (0..24 * 20).map(|hour| reading(hour, 50.0 + (hour % 3) as f64)).collect();
        let before = revisions(&readings, |_| Some(MACHINE));
        readings.iter_mut().skip(24 * 7).for_each(|reading| reading.value = Some(-99.0));
        assert_eq!(revisions(&readings, |_| Some(MACHINE)), before);
        assert_eq!(before.len(), 2);
        assert_eq!(before[1].time_us, 7 * DAY_US);
        assert!(before[1].low > 45.0 && before[1].high < 57.0, "{:?}", before[1]);
        assert_eq!(revisions(&readings, |_| None), vec![]);
    }
}
