//! Model of what caching speeds up: the time of the last pipelines as a function of the proportions of columns
//! that are cached (HPCache, sections 4.1 and 4.2).
//!
//! A pipeline reads its input from storage and from memory at the same time, and processes it. Whatever is slowest
//! decides, so with the input `B`, the proportion `x` of it in memory, and the bandwidths of storage, of memory and
//! of the pipeline,
//!
//! ```text
//!   T(x) = max((1 - x) B / S,  x B / M,  B / P)                                          (1)
//! ```
//!
//! A column has one proportion, which all pipelines share. Times are maxima of functions that are linear in the
//! proportions ([`Line`]), so that their sum is minimised by a linear program ([`super::program`]).

use super::page_key::ColumnKey;
use std::collections::BTreeMap;

/// Share of the cache for a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Proportion of the column's pages, 0 to 1.
    pub proportion: f64,
    /// Bytes of them.
    pub bytes: u64,
    /// Seconds by which it shortens the pipelines that were looked at.
    pub gain_seconds: f64,
}

/// Shares by column.
pub type Shares = BTreeMap<ColumnKey, Share>;

/// Proportions of columns that are cached.
pub type Proportions = BTreeMap<ColumnKey, f64>;

/// Pipeline that reads columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// Columns, and bytes that it reads of each.
    pub columns: Vec<(ColumnKey, f64)>,
    /// Bytes per second that it processes when all its input is in memory (`P`).
    pub bytes_per_second: f64,
    /// Bytes per second of the storage that it reads, if that is another one than most pipelines read.
    pub storage: Option<f64>,
}

impl Pipeline {
    /// Bytes of its input.
    pub fn bytes(&self) -> f64 {
        self.columns.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Bandwidths in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidths {
    /// Of storage (`S`).
    pub storage: f64,
    /// Of memory (`M`).
    pub memory: f64,
}

impl Bandwidths {
    /// Seconds of a pipeline by equation (1), with one proportion of its input in memory.
    pub fn seconds(&self, bytes: f64, proportion: f64, bytes_per_second: f64) -> f64 {
        let storage = (1.0 - proportion) * bytes / self.storage;
        let memory = proportion * bytes / self.memory;
        storage.max(memory).max(bytes / bytes_per_second)
    }
}

/// Division of the time of a pipeline among its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Division {
    /// By their sizes: the sum of what equation (1) says of each of them.
    #[default]
    BySize,
    /// By the slowest one: the column with the least proportion decides (equations 2 and 3).
    Slowest,
    /// Undivided: all columns go through the same bandwidths one after another.
    Whole,
}

impl Division {
    /// All of them.
    pub const ALL: [Division; 3] = [Division::BySize, Division::Slowest, Division::Whole];
}

/// Function of the proportions that is linear: a constant and a slope for some columns, by their position.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) constant: f64,
    pub(super) slopes: Vec<(usize, f64)>,
}

impl Line {
    fn at(&self, proportions: &[f64]) -> f64 {
        let slopes = self.slopes.iter();
        self.constant + slopes.map(|(column, slope)| slope * proportions[*column]).sum::<f64>()
    }
}

/// Pipelines whose time is to be short.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Pipelines; one that ran several times is there several times.
    pub pipelines: Vec<Pipeline>,
    /// Bandwidths.
    pub bandwidths: Bandwidths,
    /// Division of times.
    pub division: Division,
}

impl Workload {
    /// Columns, and the bytes of each: the most that a pipeline reads of it.
    pub fn columns(&self) -> BTreeMap<ColumnKey, f64> {
        let mut sizes: BTreeMap<ColumnKey, f64> = BTreeMap::new();
        for (column, bytes) in self.pipelines.iter().flat_map(|pipeline| &pipeline.columns) {
            let size = sizes.entry(*column).or_default();
            *size = size.max(*bytes);
        }
        sizes
    }

    /// Times that add up to that of all pipelines, each as the lines of which it is the maximum. Columns have
    /// their position among all columns.
    pub(super) fn times(&self) -> Vec<Vec<Line>> {
        let positions: BTreeMap<ColumnKey, usize> =
            self.columns().into_keys().enumerate().map(|(at, column)| (column, at)).collect();
        let mut times = Vec::new();
        for pipeline in &self.pipelines {
            let columns = pipeline.columns.iter().map(|(column, bytes)| (positions[column], *bytes));
            let columns: Vec<(usize, f64)> = columns.collect();
            match self.division {
                Division::BySize => {
                    times.extend(columns.iter().map(|column| self.lines(pipeline, &[*column])));
                }
                Division::Slowest => {
                    let whole = pipeline.bytes();
                    let lines = columns.iter().flat_map(|(at, _)| self.lines(pipeline, &[(*at, whole)]));
                    times.push(lines.collect());
                }
                Division::Whole => times.push(self.lines(pipeline, &columns)),
            }
        }
        times
    }

    /// Lines of equation (1) for some columns of a pipeline together.
    fn lines(&self, pipeline: &Pipeline, columns: &[(usize, f64)]) -> Vec<Line> {
        let Bandwidths { storage, memory } = self.bandwidths;
        let storage = pipeline.storage.unwrap_or(storage);
        let bytes: f64 = columns.iter().map(|(_, bytes)| bytes).sum();
        let slopes = |of_byte: f64| columns.iter().map(|(at, bytes)| (*at, of_byte * bytes)).collect();
        vec![
            Line { constant: bytes / storage, slopes: slopes(-1.0 / storage) },
            Line { constant: 0.0, slopes: slopes(1.0 / memory) },
            Line { constant: bytes / pipeline.bytes_per_second, slopes: Vec::new() },
        ]
    }

    /// Seconds of all pipelines; columns without a proportion are not cached.
    pub fn seconds(&self, proportions: &Proportions) -> f64 {
        let values: Vec<f64> =
            self.columns().keys().map(|column| proportions.get(column).copied().unwrap_or(0.0)).collect();
        let of_time = |lines: &Vec<Line>| lines.iter().map(|line| line.at(&values)).fold(0.0, f64::max);
        self.times().iter().map(of_time).sum()
    }

    /// Bytes that are cached.
    pub fn cached_bytes(&self, proportions: &Proportions) -> f64 {
        let proportion = |column: &ColumnKey| proportions.get(column).copied().unwrap_or(0.0);
        self.columns().iter().map(|(column, bytes)| proportion(column) * bytes).sum()
    }

    /// Shares with these proportions.
    pub(super) fn shares(&self, proportions: &Proportions) -> Shares {
        let (seconds, mut without) = (self.seconds(proportions), proportions.clone());
        let mut shares = Shares::new();
        for (column, bytes) in self.columns() {
            let proportion = proportions.get(&column).copied().unwrap_or(0.0);
            without.insert(column, 0.0);
            let gain_seconds = self.seconds(&without) - seconds;
            without.insert(column, proportion);
            let bytes = (proportion * bytes).ceil() as u64;
            shares.insert(column, Share { proportion, bytes, gain_seconds });
        }
        shares
    }
}
