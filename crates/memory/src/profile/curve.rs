//! Bandwidth curves: figures at some points, with linear interpolation.

/// GB/s by threads and access size.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Thread counts, ascending.
    pub threads: Vec<u64>,
    /// Access sizes, ascending.
    pub access_bytes: Vec<u64>,
    /// A row for each thread count, a figure for each access size.
    pub gb_per_s: Vec<Vec<f64>>,
}

/// GB/s by threads, at 4 KiB an access.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadCurve {
    /// Thread counts, ascending.
    pub threads: Vec<u64>,
    /// A figure for each.
    pub gb_per_s: Vec<f64>,
}

/// Position of a value between the points: index of the point before, the one after, and the share of the
/// second. Beyond the ends the nearest point holds.
fn between(points: &[u64], value: u64) -> (usize, usize, f64) {
    let after = points.partition_point(|point| *point < value);
    if after == 0 {
        return (0, 0, 0.0);
    }
    if after == points.len() {
        return (after - 1, after - 1, 0.0);
    }
    let (low, high) = (points[after - 1], points[after]);
    (after - 1, after, (value - low) as f64 / (high - low) as f64)
}

fn mix(a: f64, b: f64, share: f64) -> f64 {
    a * (1.0 - share) + b * share
}

/// Interpolates a matrix of figures between its rows and columns.
pub(super) fn lookup(rows: &[u64], columns: &[u64], figures: &[Vec<f64>], row: u64, column: u64) -> f64 {
    let (above, below, down) = between(rows, row);
    let (left, right, across) = between(columns, column);
    let in_row = |index: usize| mix(figures[index][left], figures[index][right], across);
    mix(in_row(above), in_row(below), down)
}

impl Curve {
    /// GB/s of `threads` threads with accesses of `access_bytes`.
    pub fn at(&self, threads: u64, access_bytes: u64) -> f64 {
        lookup(&self.threads, &self.access_bytes, &self.gb_per_s, threads, access_bytes)
    }

    /// Highest point.
    pub fn peak(&self) -> f64 {
        self.gb_per_s.iter().flatten().copied().fold(0.0, f64::max)
    }
}

impl ThreadCurve {
    /// GB/s of `threads` threads.
    pub fn at(&self, threads: u64) -> f64 {
        let (before, after, share) = between(&self.threads, threads);
        mix(self.gb_per_s[before], self.gb_per_s[after], share)
    }

    /// Highest point.
    pub fn peak(&self) -> f64 {
        self.gb_per_s.iter().copied().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn points_are_met_and_read_between() {
        let curve = Curve {
            threads: vec![1, 3],
            access_bytes: vec![64, 128],
            gb_per_s: vec![vec![1.0, 2.0], vec![3.0, 8.0]],
        };
        assert_eq!(curve.at(1, 64), 1.0);
        assert_eq!(curve.at(3, 128), 8.0);
        assert_eq!(curve.at(2, 64), 2.0);
        assert_eq!(curve.at(2, 96), 3.5);
        assert_eq!((curve.at(0, 1), curve.at(99, 1 << 20)), (1.0, 8.0));
        assert_eq!(curve.peak(), 8.0);
    }
}
