//! Accumulators of groups in DRAM.

use crate::operators::group_states::GroupStates;

/// Extremes of strings, by the numbers of the groups.
#[derive(Debug, Default)]
pub(crate) struct TextExtremes {
    values: Vec<Option<Box<str>>>,
    /// Bytes of all strings.
    bytes: usize,
}

impl TextExtremes {
    pub(super) fn get(&self, group: usize) -> Option<&str> {
        self.values[group].as_deref()
    }

    pub(super) fn set(&mut self, group: usize, text: Option<Box<str>>) {
        self.bytes += text.as_deref().map_or(0, str::len);
        let before = std::mem::replace(&mut self.values[group], text);
        self.bytes -= before.as_deref().map_or(0, str::len);
    }
}

/// Accumulators of an aggregate, by the numbers of the groups.
#[derive(Debug)]
pub(crate) enum Accumulators {
    Count(Vec<i64>),
    /// Sums of integers and unscaled decimals, and the number of their values.
    Sums {
        sums: Vec<i128>,
        counts: Vec<i64>,
    },
    DoubleSums {
        sums: Vec<f64>,
        counts: Vec<i64>,
    },
    /// Extremes of truth values, integers, unscaled decimals, days and times.
    Numbers(Vec<Option<i128>>),
    Doubles(Vec<Option<f64>>),
    Texts(TextExtremes),
    States(GroupStates),
}

impl Accumulators {
    /// Adds groups without values, up to this number in all.
    pub(crate) fn resize(&mut self, groups: usize) {
        match self {
            Accumulators::Count(counts) => counts.resize(groups, 0),
            Accumulators::Sums { sums, counts } => {
                sums.resize(groups, 0);
                counts.resize(groups, 0);
            }
            Accumulators::DoubleSums { sums, counts } => {
                sums.resize(groups, 0.0);
                counts.resize(groups, 0);
            }
            Accumulators::Numbers(extremes) => extremes.resize(groups, None),
            Accumulators::Doubles(extremes) => extremes.resize(groups, None),
            Accumulators::Texts(extremes) => extremes.values.resize(groups, None),
            Accumulators::States(states) => states.resize(groups),
        }
    }

    /// Makes a group one without values.
    pub(crate) fn clear(&mut self, group: u32) {
        let group = group as usize;
        match self {
            Accumulators::Count(counts) => counts[group] = 0,
            Accumulators::Sums { sums, counts } => (sums[group], counts[group]) = (0, 0),
            Accumulators::DoubleSums { sums, counts } => (sums[group], counts[group]) = (0.0, 0),
            Accumulators::Numbers(extremes) => extremes[group] = None,
            Accumulators::Doubles(extremes) => extremes[group] = None,
            Accumulators::Texts(extremes) => extremes.set(group, None),
            Accumulators::States(states) => states.clear(group),
        }
    }

    /// Bytes of a group, without its strings.
    pub(crate) fn group_bytes(&self) -> usize {
        match self {
            Accumulators::Count(_) => size_of::<i64>(),
            Accumulators::Sums { .. } => size_of::<i128>() + size_of::<i64>(),
            Accumulators::DoubleSums { .. } => size_of::<f64>() + size_of::<i64>(),
            Accumulators::Numbers(_) => size_of::<Option<i128>>(),
            Accumulators::Doubles(_) => size_of::<Option<f64>>(),
            Accumulators::Texts(_) => size_of::<Option<Box<str>>>(),
            Accumulators::States(_) => size_of::<usize>() * 2,
        }
    }

    /// Bytes that groups have beside these: of strings, and of states.
    pub(crate) fn extra_bytes(&self) -> usize {
        match self {
            Accumulators::Texts(extremes) => extremes.bytes,
            Accumulators::States(states) => states.bytes(),
            _ => 0,
        }
    }
}
