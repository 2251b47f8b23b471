//! Runs of equal values: their expansion, and the runs of some positions of a block.
//!
//! Runs are given by their values and by the positions behind their last ones, which ascend. Damaged ends may descend, or lie
//! behind the block: then the values are wrong, and no more.

/// Values that are written for a run at once, without a branch: most runs are not longer.
pub(crate) const RUN_LANES: usize = 8;
/// Positions of a block below which their runs are looked for one after another, as a divisor of the number of runs.
const FEW_SHARE: usize = 16;

/// Appends the values of runs: a fixed number of each, of which those behind its end are overwritten by the next run.
pub(crate) fn expand_runs<T: Copy>(
    of_runs: impl Iterator<Item = T>,
    ends: &[u32],
    values: usize,
    out: &mut Vec<T>,
) {
    let mut start = 0;
    let before = out.len();
    for (value, end) in of_runs.zip(ends) {
        let end = (*end as usize).clamp(start, values);
        out.resize(before + start, value);
        out.extend([value; RUN_LANES]);
        if end > start + RUN_LANES {
            out.extend(std::iter::repeat_n(value, end - start - RUN_LANES));
        }
        start = end;
    }
    out.truncate(before + start);
}

/// Positions of the values of runs whose differences meet a condition.
#[inline]
pub(crate) fn select_runs(
    differences: &[u32],
    ends: &[u32],
    values: usize,
    rows: &mut Vec<u32>,
    is_met: impl Fn(u32) -> bool,
) {
    rows.resize(values + RUN_LANES, 0);
    let (mut count, mut start) = (0, 0);
    for (difference, end) in differences.iter().zip(ends) {
        let end = (*end as usize).clamp(start, values);
        let is_met = is_met(*difference);
        let first: &mut [u32; RUN_LANES] =
            rows[count..].first_chunk_mut().expect("there is room for a run behind the last row");
        first.iter_mut().enumerate().for_each(|(at, row)| *row = (start + at) as u32);
        if end > start + RUN_LANES && is_met {
            let rest = start + RUN_LANES..end;
            let places = &mut rows[count + RUN_LANES..count + end - start];
            places.iter_mut().zip(rest).for_each(|(place, row)| *place = row as u32);
        }
        count += if is_met { end - start } else { 0 };
        start = end;
    }
    rows.truncate(count);
}

/// Calls `f` with the number of each of some positions, which ascend, and the difference of its run.
#[inline]
pub(crate) fn each_of_runs(
    (differences, ends): (&[u32], &[u32]),
    values: usize,
    (count, row): (usize, impl Fn(usize) -> u32),
    mut f: impl FnMut(usize, u32),
) {
    let last = differences.len() - 1;
    if count >= differences.len() / FEW_SHARE {
        let ranks = RunRanks::new(ends, values);
        return (0..count).for_each(|at| f(at, differences[ranks.run_of(row(at)).min(last)]));
    }
    let mut run = 0;
    for at in 0..count {
        let row = row(at);
        while run < last && ends[run] <= row {
            run += 1;
        }
        f(at, differences[run]);
    }
}

/// Positions behind runs, a bit for each, by which the run of a position is counted without a branch.
struct RunRanks {
    /// Sixty-four positions, and the number of runs that end before them.
    words: Vec<(u64, u32)>,
}

impl RunRanks {
    /// Ranks of the positions of a block of so many values.
    fn new(ends: &[u32], values: usize) -> RunRanks {
        let mut words = vec![(0_u64, 0_u32); values / 64 + 1];
        let (mut at, mut bits) = (0, 0);
        for end in ends {
            let end = (*end as usize).min(values);
            if end / 64 != at {
                words[at].0 |= bits;
                (at, bits) = (end / 64, 0);
            }
            bits |= 1 << (end % 64);
        }
        words[at].0 |= bits;
        let mut before = 0;
        for (bits, rank) in &mut words {
            *rank = before;
            before += bits.count_ones();
        }
        RunRanks { words }
    }

    /// Number of runs that end before a position or at it, which is the number of its run.
    #[inline]
    fn run_of(&self, row: u32) -> usize {
        let (bits, rank) = self.words[row as usize / 64];
        // The bits up to that of the position.
        (rank + (bits << (63 - row % 64)).count_ones()) as usize
    }
}
