//! Rows of a regular join, or of sessions that change, in DRAM, by the hash codes of their keys, with their counts now
//! and as of the last commit ([`super::regular_join_state`]). Of sessions there is the left side alone.
//!
//! The results that a transaction changes are those of changed rows: a pair was there as often as the counts of both
//! rows as of the last commit say, and is as often as those of now say. So a result that comes and goes within a
//! transaction is none.

use crate::error::Result;
use crate::operators::join_state::{Key, LEFT, RIGHT};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Estimated bytes of memory of a row, and of a hash code or a key of it, besides their values.
pub(crate) const ROW_BYTES: usize = 128;
const KEYS_BYTES: usize = 112;

/// Row of each side that a result is of; one without partner has one of them.
pub(crate) type JoinedRows<'r> = [Option<&'r SideRow>; 2];

/// Function that gets a result whose number has changed, and the difference.
pub(crate) type SendResult<'f> = dyn FnMut(JoinedRows<'_>, i64) -> Result<()> + 'f;

/// Row of a side in Arrow's row format.
pub(crate) type SideRow = Arc<[u8]>;

/// Number of equal rows of a side.
pub(crate) struct RowCount {
    pub(crate) count: i64,
    /// Count as of the last commit.
    pub(crate) before: i64,
    pub(crate) number: i64,
    /// Microseconds of its time, where rows have one.
    pub(crate) time: i64,
    /// True if the row is in the list of changed ones.
    is_listed: bool,
}

impl RowCount {
    /// Tells whether the count is another than at the last commit.
    pub(crate) fn is_changed(&self) -> bool {
        self.count != self.before
    }

    /// Makes the count that of the last commit.
    pub(crate) fn commit(&mut self) {
        self.before = self.count;
    }

    /// Goes back to the last commit.
    pub(crate) fn abort(&mut self) {
        self.count = self.before;
    }

    /// Difference of the number of results that were there at the last commit, and are there now, if so.
    pub(crate) fn changed_if(&self, was: bool, is: bool) -> i64 {
        i64::from(is) * self.count - i64::from(was) * self.before
    }

    fn is_gone(&self) -> bool {
        self.before > 0 && self.count == 0
    }

    fn is_new(&self) -> bool {
        self.before == 0 && self.count > 0
    }
}

/// Columns of a row in the state table besides its values.
pub(crate) struct StoredCount {
    pub(crate) number: i64,
    pub(crate) count: i64,
    pub(crate) time: i64,
}

/// Rows of a result without partner.
pub(crate) fn alone(side: usize, row: &SideRow) -> JoinedRows<'_> {
    if side == LEFT { [Some(row), None] } else { [None, Some(row)] }
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
    pub(crate) fn add(&mut self, side: usize, key: Key, row: &[u8], change: i64, time: i64) -> usize {
        let (number, keys) = (self.next, self.keys.len());
        let rows = self.of_key(&key);
        let mut added = 0;
        let is_listed = match rows.sides[side].get_mut(row) {
            Some(count) => {
                count.count += change;
                std::mem::replace(&mut count.is_listed, true)
            }
            None => {
                let count = RowCount { count: change, before: 0, number, time, is_listed: true };
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
    pub(crate) fn load(&mut self, side: usize, key: &Key, row: &[u8], stored: StoredCount) {
        let StoredCount { number, count, time } = stored;
        self.next = self.next.max(number + 1);
        let count = RowCount { count, before: count, number, time, is_listed: false };
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
        freed + self.drop_empty()
    }

    /// Removes rows by their numbers, none of which is changed; returns the bytes that they took.
    pub(crate) fn remove(&mut self, numbers: &BTreeSet<i64>) -> usize {
        let mut freed = 0;
        for rows in self.keys.iter_mut().flat_map(|key| &mut key.sides) {
            rows.retain(|row, count| {
                let stays = !numbers.contains(&count.number);
                freed += if stays { 0 } else { row.len() + ROW_BYTES };
                stays
            });
        }
        freed + self.drop_empty()
    }

    /// Removes keys without rows; returns the bytes that they took.
    fn drop_empty(&mut self) -> usize {
        let mut freed = 0;
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
    /// Calls `f` with the rows of a side whose number without partner is another than at the last commit, where all rows of
    /// the other side are partners.
    pub(crate) fn changed_alone(&self, side: usize, f: &mut SendResult<'_>) -> Result<()> {
        let (rows, others) = (&self.sides[side], &self.sides[1 - side]);
        let was_alone = others.values().all(|count| count.before == 0);
        let is_alone = others.values().all(|count| count.count == 0);
        let mut send = |row: &SideRow, count: &RowCount| {
            let change = count.changed_if(was_alone, is_alone);
            if change == 0 { Ok(()) } else { f(alone(side, row), change) }
        };
        if was_alone != is_alone {
            return rows.iter().try_for_each(|(row, count)| send(row, count));
        }
        let mut changed = self.changed[side].iter().filter_map(|row| rows.get_key_value(row));
        changed.try_for_each(|(row, count)| send(row, count))
    }

    /// Calls `f` with the pairs whose number is another than at the last commit.
    pub(crate) fn changed_pairs(&self, f: &mut SendResult<'_>) -> Result<()> {
        let [left, right] = &self.sides;
        let mut send = |(left, of_left): (&SideRow, &RowCount), (right, of_right): (&SideRow, &RowCount)| {
            let before = of_left.before.saturating_mul(of_right.before);
            let change = of_left.count.saturating_mul(of_right.count).saturating_sub(before);
            if change == 0 { Ok(()) } else { f([Some(left), Some(right)], change) }
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
        let mut note = |rows: JoinedRows<'_>, change: i64| {
            found.push((rows.map(|row| row.map_or("-".to_owned(), text)).concat(), change));
            Ok(())
        };
        for key in &hashed.keys {
            key.changed_alone(LEFT, &mut note).unwrap();
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
            bytes += hashed.add(side, Arc::clone(key), row.as_bytes(), change, 0);
        };
        add(&mut hashed, LEFT, &key, "a", 2);
        add(&mut hashed, LEFT, &key, "b", 1);
        add(&mut hashed, LEFT, &other, "o", 1);
        assert_eq!(changed(&hashed), of(&[("a-", 2), ("b-", 1), ("o-", 1)]));
        bytes -= hashed.settle(RowCount::commit);
        assert_eq!((changed(&hashed), bytes), (Vec::new(), hashed.bytes()));
        assert!(hashed.give_numbers().is_empty());

        // Keys with one code are no partners; what comes and goes is nothing.
        let mut add = |hashed: &mut HashedKeys, side: usize, key: &Key, row: &str, change: i64| {
            bytes += hashed.add(side, Arc::clone(key), row.as_bytes(), change, 0);
        };
        add(&mut hashed, RIGHT, &key, "x", 3);
        add(&mut hashed, RIGHT, &key, "y", 1);
        add(&mut hashed, RIGHT, &key, "y", -1);
        add(&mut hashed, LEFT, &key, "b", -1);
        add(&mut hashed, LEFT, &key, "c", 1);
        assert_eq!(changed(&hashed), of(&[("a-", -2), ("ax", 6), ("b-", -1), ("cx", 3)]));
        // The first of both new rows has the number of the one that is gone.
        assert_eq!((hashed.give_numbers(), hashed.keys[0].sides[LEFT][&b"c"[..]].number), (Vec::new(), 1));
        bytes -= hashed.settle(RowCount::abort);
        assert_eq!((changed(&hashed), bytes), (Vec::new(), hashed.bytes()));
        let rows = |hashed: &HashedKeys| hashed.keys[0].sides.each_ref().map(BTreeMap::len);
        assert_eq!(rows(&hashed), [2, 0]);

        let mut add = |hashed: &mut HashedKeys, side: usize, key: &Key, row: &str, change: i64| {
            bytes += hashed.add(side, Arc::clone(key), row.as_bytes(), change, 0);
        };
        add(&mut hashed, LEFT, &key, "a", -2);
        add(&mut hashed, LEFT, &key, "b", -1);
        add(&mut hashed, LEFT, &other, "o", -1);
        bytes -= hashed.settle(RowCount::commit);
        assert_eq!((hashed.keys.len(), bytes, hashed.bytes()), (0, empty, empty));
    }
}
