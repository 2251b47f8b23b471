//! Rules for windows of the infrastructure that are out of range.
//!
//! The mean of the window must lie within the limits of its channel's specification; the mean of a load,
//! moreover, must not be above `per_demand_max` times the demand of the households behind it (more is drawn
//! than is metered). Without a specification, without a value, or without a demand, there is nothing to
//! judge.

/// The limits of a channel that are in force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The mean must not be below.
    pub low: f64,
    /// The mean must not be above.
    pub high: f64,
    /// For loads: the greatest ratio of load to demand.
    pub per_demand_max: Option<f64>,
}

/// Reason for an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Below the lower limit.
    Below,
    /// Above the upper limit.
    Above,
    /// Above the explained demand of the households.
    AboveDemand,
}

impl Reason {
    /// As it is written in the table of alarms.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Below => "below",
            Reason::Above => "above",
            Reason::AboveDemand => "above demand",
        }
    }
}

/// The verdict on the mean of a window.
pub fn judge(mean: f64, limits: &Limits, demand_kw: Option<f64>) -> Option<Reason> {
    if mean < limits.low {
        return Some(Reason::Below);
    }
    if mean > limits.high {
        return Some(Reason::Above);
    }
    let (ratio_max, demand_kw) = limits.per_demand_max.zip(demand_kw)?;
    (mean > ratio_max * demand_kw).then_some(Reason::AboveDemand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_by_range_and_demand() {
        let limits = Limits { low: 1.0, high: 10.0, per_demand_max: Some(1.5) };
        assert_eq!(judge(0.5, &limits, None), Some(Reason::Below));
        assert_eq!(judge(10.5, &limits, Some(100.0)), Some(Reason::Above));
        assert_eq!(judge(6.1, &limits, Some(4.0)), Some(Reason::AboveDemand));
        assert_eq!(judge(6.0, &limits, Some(4.0)), None);
        assert_eq!(judge(6.1, &limits, None), None);
        assert_eq!(judge(6.1, &Limits { per_demand_max: None, ..limits }, Some(4.0)), None);
    }
}
