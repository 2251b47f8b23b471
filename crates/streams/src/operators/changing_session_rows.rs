//! Sessions of the rows of a group, now and as of the last commit, and the rows whose session is another.
//!
//! ```text
//!   rows, by time      a   b       c   d        e
//!   as of the commit   └── 1 ──────────┘   ┘└ 2          c goes
//!   now                └─ 1 ┘         └ 3 ┘ └ 2          a, b and d have other edges, e has not
//! ```
//!
//! A row that comes or goes changes the sessions around it only. So only rows are looked at that are in one cluster with a
//! changed row: less than the gap apart from the next one, of those that are there or were at the last commit. Any
//! session of either is part of a cluster. Clusters do not depend on the order in which rows came.

use crate::error::Result;
use crate::operators::regular_join_rows::{RowCount, SideRow, SideRows};
use std::ops::Bound;

/// Edges of a session, in microseconds.
pub(crate) type SessionEdges = (i64, i64);

/// Function that gets a row, the edges of its session, and the difference of the number of such rows.
pub(crate) type SendInSession<'f> = dyn FnMut(&SideRow, SessionEdges, i64) -> Result<()> + 'f;

/// Row with its counts.
type CountedRow<'r> = (&'r SideRow, &'r RowCount);

/// Calls `f` with the rows of a group, which are in the order of their times, whose session is another than at the last
/// commit, or whose number is: with the edges before, and with those of now.
pub(crate) fn changed_sessions(
    rows: &SideRows,
    changed: &[SideRow],
    gap_us: i64,
    f: &mut SendInSession<'_>,
) -> Result<()> {
    let mut changed: Vec<CountedRow<'_>> = changed.iter().filter_map(|row| rows.get_key_value(row)).collect();
    changed.retain(|(_, count)| count.is_changed());
    changed.sort_unstable_by_key(|(row, _)| *row);
    let mut passed: Option<&SideRow> = None;
    for row in changed {
        if passed.is_some_and(|passed| row.0 <= passed) {
            continue;
        }
        let cluster = rows_around(rows, row, gap_us);
        passed = cluster.last().map(|(row, _)| *row);
        send_changed(&cluster, gap_us, f)?;
    }
    Ok(())
}

/// Rows around a row of which each is less than a gap from the next one.
fn rows_around<'r>(rows: &'r SideRows, row: CountedRow<'r>, gap_us: i64) -> Vec<CountedRow<'r>> {
    let is_or_was = |(_, count): &CountedRow<'r>| count.count > 0 || count.before > 0;
    let near = move |last: &mut i64, row: CountedRow<'r>| {
        let is_near = last.abs_diff(row.1.time) < gap_us.unsigned_abs();
        *last = row.1.time;
        is_near.then_some(row)
    };
    let before = rows.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&row.0[..])));
    let before = before.rev().filter(is_or_was).scan(row.1.time, near);
    let mut cluster: Vec<CountedRow<'r>> = before.collect();
    cluster.reverse();
    cluster.push(row);
    let behind = rows.range::<[u8], _>((Bound::Excluded(&row.0[..]), Bound::Unbounded));
    cluster.extend(behind.filter(is_or_was).scan(row.1.time, near));
    cluster
}

/// Edges of the session of each row of a cluster, of those of which `count` says that they are there.
fn sessions(
    cluster: &[CountedRow<'_>],
    gap_us: i64,
    count: fn(&RowCount) -> i64,
) -> Vec<Option<SessionEdges>> {
    let mut edges: Vec<Option<SessionEdges>> = Vec::with_capacity(cluster.len());
    // Start of the session, and time of its last row.
    let mut open: Option<SessionEdges> = None;
    for (_, row) in cluster {
        let is_there = count(row) > 0;
        if is_there {
            open = match open {
                Some((start, last)) if row.time.abs_diff(last) < gap_us.unsigned_abs() => {
                    Some((start, row.time))
                }
                _ => Some((row.time, row.time)),
            };
        }
        edges.push(open.filter(|_| is_there));
    }
    // A session ends behind its last row, which is the first one from behind.
    let mut last_of: Option<SessionEdges> = None;
    for edge in edges.iter_mut().rev() {
        let Some((start, last)) = *edge else { continue };
        let end = match last_of {
            Some((of, end)) if of == start => end,
            _ => last.saturating_add(gap_us),
        };
        last_of = Some((start, end));
        *edge = last_of;
    }
    edges
}

/// Calls `f` with the rows of a cluster that have other edges, or another number.
fn send_changed(cluster: &[CountedRow<'_>], gap_us: i64, f: &mut SendInSession<'_>) -> Result<()> {
    let before = sessions(cluster, gap_us, |count| count.before);
    let now = sessions(cluster, gap_us, |count| count.count);
    for ((row, count), edges) in cluster.iter().zip(before.into_iter().zip(now)) {
        match edges {
            (Some(before), Some(now)) if before == now => {
                if count.is_changed() {
                    f(row, now, count.count - count.before)?;
                }
            }
            (before, now) => {
                before.map_or(Ok(()), |edges| f(row, edges, -count.before))?;
                now.map_or(Ok(()), |edges| f(row, edges, count.count))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::operators::join_state::{Key, LEFT};
    use crate::operators::regular_join_rows::HashedKeys;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const GAP: i64 = 10;

    /// Rows in sessions, from nothing.
    fn in_sessions(times: &BTreeMap<i64, i64>) -> BTreeMap<(i64, SessionEdges), i64> {
        let (mut found, mut session): (_, Vec<i64>) = (BTreeMap::new(), Vec::new());
        let there: Vec<i64> = times.iter().filter(|(_, count)| **count > 0).map(|(time, _)| *time).collect();
        for (at, time) in there.iter().enumerate() {
            session.push(*time);
            if there.get(at + 1).is_none_or(|next| next - time >= GAP) {
                let edges = (session[0], time + GAP);
                found.extend(session.drain(..).map(|time| ((time, edges), times[&time])));
            }
        }
        found
    }

    /// Over random changes, what was sent adds up to the rows in the sessions of now, and nothing is sent in vain.
    #[test]
    fn changes_add_up_to_the_sessions_of_the_rows_that_are_there() {
        let mut random = 7_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let (key, mut hashed) = (Key::from(&b"k"[..]), HashedKeys::default());
        let (mut times, mut sum) = (BTreeMap::<i64, i64>::new(), BTreeMap::new());
        for commit in 0..400 {
            for _ in 0..below(6) {
                let time = below(if commit % 2 == 0 { 60 } else { 300 }) as i64;
                let count = times.entry(time).or_default();
                let change = if *count > 0 && below(2) == 0 { -1 } else { 1 };
                *count += change;
                let row = time.to_be_bytes();
                hashed.add(LEFT, Arc::clone(&key), &row, change, time);
            }
            let before = sum.clone();
            for rows in &hashed.keys {
                changed_sessions(&rows.sides[LEFT], &rows.changed[LEFT], GAP, &mut |row, edges, change| {
                    let time = i64::from_be_bytes(row.to_vec().try_into().unwrap());
                    assert_ne!(change, 0);
                    *sum.entry((time, edges)).or_insert(0) += change;
                    Ok(())
                })
                .unwrap();
            }
            sum.retain(|_, count| *count != 0);
            let is_committed = below(4) > 0;
            assert_eq!(sum, in_sessions(&times), "commit {commit}");
            if is_committed {
                hashed.settle(RowCount::commit);
            } else {
                hashed.settle(RowCount::abort);
                sum = before;
                times.clear();
                times.extend(sum.iter().map(|((time, _), count)| (*time, *count)));
            }
        }
        assert!(!sum.is_empty());
    }

    #[test]
    fn rows_of_one_time_and_a_gap_apart_are_of_their_sessions() {
        let (key, mut hashed) = (Key::from(&b"k"[..]), HashedKeys::default());
        let mut add = |row: &str, change: i64, time: i64| {
            hashed.add(LEFT, Arc::clone(&key), row.as_bytes(), change, time);
        };
        add("a", 1, 0);
        add("b", 2, 9);
        add("c", 1, 9);
        // As far away as the gap: another session.
        add("d", 1, 19);
        let mut sent = Vec::new();
        let rows = &hashed.keys[0];
        changed_sessions(&rows.sides[LEFT], &rows.changed[LEFT], GAP, &mut |row, edges, change| {
            sent.push((String::from_utf8(row.to_vec()).unwrap(), edges, change));
            Ok(())
        })
        .unwrap();
        let of = |row: &str, edges, change| (row.to_owned(), edges, change);
        let wanted = [of("a", (0, 19), 1), of("b", (0, 19), 2), of("c", (0, 19), 1), of("d", (19, 29), 1)];
        assert_eq!(sent, wanted);
    }
}
