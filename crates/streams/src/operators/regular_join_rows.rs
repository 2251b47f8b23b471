//! Rows of a regular join in DRAM, by the hash codes of their keys, with their counts now and as of the last commit
//! ([`super::regular_join_state`]).
//!
//! The results that a transaction changes are those of changed rows: a pair was there as often as the counts of both
//! rows as of the last commit say, and is as often as those of now say. So a result that comes and goes within a
//! transaction is none.

use crate::error::Result;
use crate::operators::join_state::{Key, LEFT, RIGHT};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Estimated bytes of memory of a row, and of a hash code or a key of it, besides their values.
pub(crate) const ROW_BYTES: usize = 128;
const KEYS_BYTES: usize = 112;

/// Function that gets a result whose number has changed: the left row, the right one if there is one, and the
/// difference.
pub(crate) type SendResult<'f> = dyn FnMut(&SideRow, Option<&SideRow>, i64) -> Result<()> + 'f;

/// Row of a side in Arrow's row format.
pub(crate) type SideRow = Arc<[u8]>;

/// Number of equal rows of a side.
pub(crate) struct RowCount {
    pub(crate) count: i64,
    /// Count as of the last commit.
    pub(crate) before: i64,
    pub(crate) number: i64,
    /// True if the row is in the list of changed ones.
    is_listed: bool,
}

impl RowCount {
    /// Tells whether the count is another than at the last commit.
    pub(crate) fn is_changed(&self) -> bool {
        self.count != self.before
    }

    fn is_gone(&self) -> bool {
        self.before > 0 && self.count == 0
    }

    fn is_new(&self) -> bool {
        self.before == 0 && self.count > 0
    }
}

pub(crate) type SideRows = BTreeMap<SideRow, RowCount>;

/// Rows of both sides with one key.
pub(crate) struct KeyRows {
    key: Key,
    pub(crate) sides: [SideRows; 2],
    /// Rows that the transaction has changed, in the order in which it first did.
    pub(crate) changed: [Vec<SideRow>; 2],
}

/// Keys with one hash code.
#[derive(Default)]
pub(crate) struct HashedKeys {
    pub(crate) keys: Vec<KeyRows>,
    /// Number of the next row.
    next: i64,
    /// True if the transaction changes rows.
    pub(crate) is_touched: bool,
}

impl HashedKeys {
    /// Rows with a key.
    fn of_key(&mut self, key: &Key) -> &mut KeyRows {
        let place = self.keys.iter().position(|rows| rows.key == *key);
        let place = place.unwrap_or_else(|| {
            let (sides, changed) = Default::default();
            self.keys.push(KeyRows { key: Arc::clone(key), sides, changed });
            self.keys.len() - 1
        });
        &mut self.keys[place]
    }

    /// Counts a row; returns the bytes that it takes more.
    pub(crate) fn add(&mut self, side: usize, key: Key, row: &[u8], change: i64) -> usize {
        let (number, keys) = (self.next, self.keys.len());
        let rows = self.of_key(&key);
        let mut added = 0;
        let is_listed = match rows.sides[side].get_mut(row) {
            Some(count) => {
                count.count += change;
                std::mem::replace(&mut count.is_listed, true)
            }
            None => {
                let count = RowCount { count: change, before: 0, number, is_listed: true };
                rows.sides[side].insert(SideRow::from(row), count);
                added += row.len() + ROW_BYTES;
                false
            }
        };
        if let Some((row, _)) = rows.sides[side].get_key_value(row).filter(|_| !is_listed) {
            let row = Arc::clone(row);
            rows.changed[side].push(row);
        }
        if added > 0 {
            self.next += 1;
        }
        added + (self.keys.len() - keys) * (key.len() + KEYS_BYTES)
    }

    /// Adds a row as of the last commit.
    pub(crate) fn load(&mut self, side: usize, key: &Key, row: &[u8], number: i64, count: i64) {
        self.next = self.next.max(number + 1);
        let count = RowCount { count, before: count, number, is_listed: false };
        self.of_key(key).sides[side].insert(SideRow::from(row), count);
    }

    /// Gives the numbers of rows that are gone to new ones; returns those that are left.
    pub(crate) fn give_numbers(&mut self) -> Vec<i64> {
        let mut free = Vec::new();
        for key in &self.keys {
            for (rows, changed) in key.sides.iter().zip(&key.changed) {
                let gone = changed.iter().filter_map(|row| rows.get(row)).filter(|count| count.is_gone());
                free.extend(gone.map(|count| count.number));
            }
        }
        for key in &mut self.keys {
            for (rows, changed) in key.sides.iter_mut().zip(&key.changed) {
                for row in changed {
                    let Some(count) = rows.get_mut(row).filter(|count| count.is_new()) else { continue };
                    let Some(number) = free.pop() else { return free };
                    count.number = number;
                }
            }
        }
        free
    }

    /// Ends the changes of the transaction, and removes what has no rows; returns the bytes that it took. `f` makes
    /// both counts of a row one.
    pub(crate) fn settle(&mut self, f: fn(&mut RowCount)) -> usize {
        let mut freed = 0;
        self.is_touched = false;
        for key in &mut self.keys {
            for (rows, changed) in key.sides.iter_mut().zip(&mut key.changed) {
                for row in std::mem::take(changed) {
                    let Some(count) = rows.get_mut(&row) else { continue };
                    f(count);
                    count.is_listed = false;
                    if count.count == 0 {
                        rows.remove(&row);
                        freed += row.len() + ROW_BYTES;
                    }
                }
            }
        }
        self.keys.retain(|key| {
            let is_used = key.sides.iter().any(|rows| !rows.is_empty());
            freed += if is_used { 0 } else { key.key.len() + KEYS_BYTES };
            is_used
        });
        freed
    }

    /// Estimated bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let of_rows = |rows: &SideRows| rows.keys().map(|row| row.len() + ROW_BYTES).sum::<usize>();
        let of_key =
            |key: &KeyRows| key.key.len() + KEYS_BYTES + key.sides.iter().map(of_rows).sum::<usize>();
        KEYS_BYTES + self.keys.iter().map(of_key).sum::<usize>()
    }
}

impl KeyRows {
    /// Calls `f` with the left rows whose number without partner is another than at the last commit.
    pub(crate) fn changed_alone(&self, f: &mut SendResult<'_>) -> Result<()> {
        let [left, right] = &self.sides;
        let was_alone = right.values().all(|count| count.before == 0);
        let is_alone = right.values().all(|count| count.count == 0);
        let mut send = |row: &SideRow, count: &RowCount| {
            let change = i64::from(is_alone) * count.count - i64::from(was_alone) * count.before;
            if change == 0 { Ok(()) } else { f(row, None, change) }
        };
        if was_alone != is_alone {
            return left.iter().try_for_each(|(row, count)| send(row, count));
        }
        let mut changed = self.changed[LEFT].iter().filter_map(|row| left.get_key_value(row));
        changed.try_for_each(|(row, count)| send(row, count))
    }

    /// Calls `f` with the pairs whose number is another than at the last commit.
    pub(crate) fn changed_pairs(&self, f: &mut SendResult<'_>) -> Result<()> {
        let [left, right] = &self.sides;
        let mut send = |(left, of_left): (&SideRow, &RowCount), (right, of_right): (&SideRow, &RowCount)| {
            let before = of_left.before.saturating_mul(of_right.before);
            let change = of_left.count.saturating_mul(of_right.count).saturating_sub(before);
            if change == 0 { Ok(()) } else { f(left, Some(right), change) }
        };
        let changed = |side: usize| {
            let rows = self.changed[side].iter().filter_map(move |row| self.sides[side].get_key_value(row));
            rows.filter(|(_, count)| count.is_changed())
        };
        for of_left in changed(LEFT) {
            right.iter().try_for_each(|of_right| send(of_left, of_right))?;
        }
        for of_right in changed(RIGHT) {
            let mut unchanged = left.iter().filter(|(_, count)| !count.is_changed());
            unchanged.try_for_each(|of_left| send(of_left, of_right))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changed results as texts.
    fn changed(hashed: &HashedKeys) -> Vec<(String, i64)> {
        let text = |row: &SideRow| String::from_utf8(row.to_vec()).unwrap();
        let mut found = Vec::new();
        let mut note = |left: &SideRow, right: Option<&SideRow>, change: i64| {
            found.push((text(left) + &right.map_or("-".to_owned(), text), change));
            Ok(())
        };
        for key in &hashed.keys {
            key.changed_alone(&mut note).unwrap();
            key.changed_pairs(&mut note).unwrap();
        }
        found.sort();
        found
    }

    fn of(results: &[(&str, i64)]) -> Vec<(String, i64)> {
        results.iter().map(|(text, change)| ((*text).to_owned(), *change)).collect()
    }

    #[test]
    fn results_are_the_difference_of_both_states() {
        let (key, other) = (Key::from(&b"k"[..]), Key::from(&b"other"[..]));
        let mut hashed = HashedKeys::default();
        let empty = hashed.bytes();
        let mut bytes = empty;
        let mut add = |hashed: &mut HashedKeys, side: usize, key: &Key, row: &str, change: i64| {
            bytes += hashed.add(side, Arc::clone(key), row.as_bytes(), change);
        };
        add(&mut hashed, LEFT, &key, "a", 2);
        add(&mut hashed, LEFT, &key, "b", 1);
        add(&mut hashed, LEFT, &other, "o", 1);
        assert_eq!(changed(&hashed), of(&[("a-", 2), ("b-", 1), ("o-", 1)]));
        bytes -= hashed.settle(|count| count.before = count.count);
        assert_eq!((changed(&hashed), bytes), (Vec::new(), hashed.bytes()));
        assert!(hashed.give_numbers().is_empty());

        // Keys with one code are no partners; what comes and goes is nothing.
        let mut add = |hashed: &mut HashedKeys, side: usize, key: &Key, row: &str, change: i64| {
            bytes += hashed.add(side, Arc::clone(key), row.as_bytes(), change);
        };
        add(&mut hashed, RIGHT, &key, "x", 3);
        add(&mut hashed, RIGHT, &key, "y", 1);
        add(&mut hashed, RIGHT, &key, "y", -1);
        add(&mut hashed, LEFT, &key, "b", -1);
        add(&mut hashed, LEFT, &key, "c", 1);
        assert_eq!(changed(&hashed), of(&[("a-", -2), ("ax", 6), ("b-", -1), ("cx", 3)]));
        // The first of both new rows has the number of the one that is gone.
        assert_eq!((hashed.give_numbers(), hashed.keys[0].sides[LEFT][&b"c"[..]].number), (Vec::new(), 1));
        bytes -= hashed.settle(|count| count.count = count.before);
        assert_eq!((changed(&hashed), bytes), (Vec::new(), hashed.bytes()));
        let rows = |hashed: &HashedKeys| hashed.keys[0].sides.each_ref().map(BTreeMap::len);
        assert_eq!(rows(&hashed), [2, 0]);

        let mut add = |hashed: &mut HashedKeys, side: usize, key: &Key, row: &str, change: i64| {
            bytes += hashed.add(side, Arc::clone(key), row.as_bytes(), change);
        };
        add(&mut hashed, LEFT, &key, "a", -2);
        add(&mut hashed, LEFT, &key, "b", -1);
        add(&mut hashed, LEFT, &other, "o", -1);
        bytes -= hashed.settle(|count| count.before = count.count);
        assert_eq!((hashed.keys.len(), bytes, hashed.bytes()), (0, empty, empty));
    }
}
