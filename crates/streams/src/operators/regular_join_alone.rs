//! Rows without partner of an outer join ON more than equal columns: a condition says which rows of a key are partners.
//!
//! No numbers of partners are stored. The rows whose number without partner may have changed are those that have changed,
//! and the partners of rows of the other side that came or went, which are pairs that the join sends or takes back anyway.
//! Each of them is then compared with all rows of the other side, as of the last commit and now. So a commit costs what the
//! inner join does, and for each of these rows as many pairs as the other side has rows of the key.

use crate::error::Result;
use crate::operators::regular_join_rows::{KeyRows, RowCount, SideRow};
use std::collections::BTreeSet;

/// Pairs that the condition is asked about together.
const PAIRS: usize = 8192;

/// Left and right row that may be partners.
pub(crate) type Pair<'r> = [&'r SideRow; 2];

/// Function that says of pairs whether their rows are partners.
pub(crate) type ArePartners<'f> = dyn FnMut(&[Pair<'_>]) -> Result<Vec<bool>> + 'f;

/// Row whose number without partner may have changed.
struct OuterRow<'k> {
    row: &'k SideRow,
    count: &'k RowCount,
    /// True if it had a partner at the last commit, and has one now.
    had: bool,
    has: bool,
}

/// Calls `f` with what stands beside the pairs that are partners.
fn partners<'r, T>(
    mut pairs: impl Iterator<Item = (Pair<'r>, T)>,
    are_partners: &mut ArePartners<'_>,
    mut f: impl FnMut(T),
) -> Result<()> {
    loop {
        let (asked, of): (Vec<Pair<'r>>, Vec<T>) = pairs.by_ref().take(PAIRS).unzip();
        if asked.is_empty() {
            return Ok(());
        }
        let answers = are_partners(&asked)?;
        of.into_iter().zip(answers).filter(|(_, is)| *is).for_each(|(of, _)| f(of));
    }
}

/// Rows of a side of changed keys whose number without partner is another than at the last commit, with the difference.
pub(crate) fn changed_alone(
    keys: &[&KeyRows],
    side: usize,
    are_partners: &mut ArePartners<'_>,
) -> Result<Vec<(SideRow, i64)>> {
    let pair = |row, other| if side == 0 { [row, other] } else { [other, row] };
    let candidates = keys.iter().enumerate().flat_map(|(number, key)| {
        let came_or_went =
            key.changed[1 - side].iter().filter_map(|row| key.sides[1 - side].get_key_value(row));
        let came_or_went = came_or_went.filter(|(_, count)| (count.before > 0) != (count.count > 0));
        came_or_went.flat_map(move |(other, _)| {
            key.sides[side].keys().map(move |row| (pair(row, other), (number, row)))
        })
    });
    let mut affected: BTreeSet<(usize, &SideRow)> = BTreeSet::new();
    partners(candidates, are_partners, |of| {
        affected.insert(of);
    })?;
    for (number, key) in keys.iter().enumerate() {
        let changed = key.changed[side].iter().filter_map(|row| key.sides[side].get_key_value(row));
        affected.extend(changed.filter(|(_, count)| count.is_changed()).map(|(row, _)| (number, row)));
    }
    let mut found: Vec<(usize, OuterRow<'_>)> = affected
        .into_iter()
        .filter_map(|(number, row)| {
            let count = keys[number].sides[side].get(row)?;
            Some((number, OuterRow { row, count, had: false, has: false }))
        })
        .collect();
    let asked: Vec<(usize, &SideRow)> = found.iter().map(|(number, of)| (*number, of.row)).collect();
    let pairs = asked.iter().enumerate().flat_map(|(at, (number, row))| {
        let others = keys[*number].sides[1 - side].iter();
        others.map(move |(other, count)| (pair(row, other), (at, count)))
    });
    partners(pairs, are_partners, |(at, count)| {
        let of = &mut found[at].1;
        of.had |= count.before > 0;
        of.has |= count.count > 0;
    })?;
    let changes = found.into_iter().map(|(_, of)| (of.row.clone(), of.count.changed_if(!of.had, !of.has)));
    Ok(changes.filter(|(_, change)| *change != 0).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::operators::join_state::{Key, LEFT, RIGHT};
    use crate::operators::regular_join_rows::HashedKeys;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Rows are partners if the one is less than the other.
    fn less(pairs: &[Pair<'_>]) -> Result<Vec<bool>> {
        Ok(pairs.iter().map(|[left, right]| left[0] < right[0]).collect())
    }

    /// Numbers of the rows without partner, by sides.
    fn alone(rows: &[BTreeMap<u8, i64>; 2]) -> [BTreeMap<u8, i64>; 2] {
        let there = |side: usize| rows[side].iter().filter(|(_, count)| **count > 0);
        let left = there(LEFT).filter(|(row, _)| !there(RIGHT).any(|(other, _)| *row < other));
        let right = there(RIGHT).filter(|(row, _)| !there(LEFT).any(|(other, _)| other < *row));
        [
            left.map(|(row, count)| (*row, *count)).collect(),
            right.map(|(row, count)| (*row, *count)).collect(),
        ]
    }

    #[test]
    fn changes_add_up_to_the_rows_that_have_no_partner() {
        let mut random = 11_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let (key, mut hashed) = (Key::from(&b"k"[..]), HashedKeys::default());
        let mut rows = [BTreeMap::<u8, i64>::new(), BTreeMap::new()];
        let mut sums = [BTreeMap::<u8, i64>::new(), BTreeMap::new()];
        for commit in 0..300 {
            for _ in 0..below(5) {
                let (side, row) = (below(2) as usize, below(8) as u8);
                let count = rows[side].entry(row).or_default();
                let change = if *count > 0 && below(5) > 1 { -1 } else { 1 };
                *count += change;
                hashed.add(side, Arc::clone(&key), &[row], change, 0);
            }
            let keys: Vec<&KeyRows> = hashed.keys.iter().collect();
            for side in [LEFT, RIGHT] {
                for (row, change) in changed_alone(&keys, side, &mut less).unwrap() {
                    assert_ne!(change, 0);
                    *sums[side].entry(row[0]).or_default() += change;
                }
                sums[side].retain(|_, count| *count != 0);
            }
            hashed.settle(RowCount::commit);
            assert_eq!(sums, alone(&rows), "commit {commit}: {rows:?}");
        }
    }
}
