//! Division of rows in the order of their cluster keys into blocks.
//!
//! A load fills blocks one after another, so it never splits one. A merge splits what it finds in full blocks:
//!
//! | split | between | blocks |
//! | --- | --- | --- |
//! | `histogram` | keys at equal shares of the rows | of about the same number of rows |
//! | `mean` | keys below the mean of all keys, and others, again and again | narrower where keys are dense |
//! | `middle` | keys below the middle of the least and the greatest one | of about the same width |
//!
//! Rows of one key stay together unless they fill a block.

use crate::schema::clustering::SplitPolicy;
use std::ops::Range;

/// Position of the first key that is not below a bound.
fn first_from(keys: &[u64], bound: u64) -> usize {
    keys.partition_point(|key| *key < bound)
}

/// Boundary between two keys next to a position, but within a distance of it; the position itself if there is none.
fn boundary_near(keys: &[u64], at: usize, distance: usize) -> usize {
    let Some(&key) = keys.get(at) else { return at };
    let (before, after) = (first_from(keys, key), keys.partition_point(|other| *other <= key));
    let (down, up) = (at - before, after - at);
    match (down <= distance && before > 0, up <= distance && after < keys.len()) {
        (true, true) => {
            if down <= up {
                before
            } else {
                after
            }
        }
        (true, false) => before,
        (false, true) => after,
        (false, false) => at,
    }
}

/// Blocks of at most `rows_max` rows, filled one after another.
pub(crate) fn filled(keys: &[u64], rows_max: usize) -> Vec<Range<usize>> {
    let (mut blocks, mut from) = (Vec::new(), 0);
    while from < keys.len() {
        let full = (from + rows_max).min(keys.len());
        let mut end = full;
        if full < keys.len() {
            // A block gives up an eighth of its rows to end where a key ends.
            let start = first_from(keys, keys[full]);
            end = if start > from && full - start <= rows_max / 8 { start } else { full };
        }
        blocks.push(from..end);
        from = end;
    }
    blocks
}

/// Blocks of at most `rows_max` rows, as splits by a policy leave them.
pub(crate) fn split(keys: &[u64], rows_max: usize, policy: SplitPolicy) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut open = vec![(0, keys.len())];
    while let Some((from, end)) = open.pop() {
        let rows = end - from;
        if rows <= rows_max {
            blocks.extend((rows > 0).then_some(from..end));
            continue;
        }
        let at = from + split_point(&keys[from..end], rows_max, policy).clamp(1, rows - 1);
        open.push((at, end));
        open.push((from, at));
    }
    blocks
}

/// Position of the first split of sorted keys.
fn split_point(keys: &[u64], rows_max: usize, policy: SplitPolicy) -> usize {
    let (first, last) = (keys[0], keys[keys.len() - 1]);
    // Half of the blocks that the rows fill.
    let share = (keys.len().div_ceil(rows_max) / 2) * keys.len() / keys.len().div_ceil(rows_max);
    if first == last {
        return share;
    }
    match policy {
        SplitPolicy::Histogram => boundary_near(keys, share, rows_max / 8),
        SplitPolicy::Mean => {
            let sum: u128 = keys.iter().map(|key| u128::from(*key)).sum();
            first_from(keys, (sum / keys.len() as u128) as u64 + 1)
        }
        SplitPolicy::Middle => first_from(keys, first + (last - first) / 2 + 1),
    }
}
