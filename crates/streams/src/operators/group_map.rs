//! The groups of one window in DRAM: group key to accumulators.
//!
//! - A group's key is hashed once per tuple, straight from the tuple's columns; a key is copied only when its
//!   group is new. The hash is seeded per run, so keys cannot be made to collide from outside.
//! - `touched` groups differ from their row in the state table; `stored` groups may have a row there.
//! - Order of iteration is order of arrival; results are sorted by key before they leave the operator.
//! - The number of groups is bounded by the owner ([`crate::GROUPS_IN_DRAM_MAX`] over all windows).

use crate::operators::accumulator::Accumulator;
use entresol_tables::Value;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

const NONE: u32 = u32::MAX;

/// The groups of one window.
#[derive(Debug, Default)]
pub(crate) struct GroupMap {
    /// First group of each hash; groups with equal hashes are chained.
    heads: HashMap<u64, u32, BuildHasherDefault<IdentityHasher>>,
    groups: Vec<Group>,
    accumulators: Vec<Accumulator>,
    touched: Vec<u32>,
    bytes: usize,
}

#[derive(Debug)]
struct Group {
    key: Box<[Value]>,
    next: u32,
    touched: bool,
    stored: bool,
}

/// Estimated bytes of memory of a group: vectors that grow have spare capacity. Strings among minima and
/// maxima are extra.
pub(crate) fn group_bytes(key: &[Value], accumulators: usize) -> usize {
    let text = |value: &Value| if let Value::Varchar(text) = value { text.len() } else { 0 };
    let fixed = size_of::<Group>() + size_of::<(u64, u32)>() + accumulators * size_of::<Accumulator>();
    2 * fixed + size_of_val(key) + key.iter().map(text).sum::<usize>()
}

impl GroupMap {
    /// Estimated bytes of memory of all groups.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the group whose key is in `columns` of the tuple.
    pub(crate) fn find(&self, hash: u64, tuple: &[Value], columns: &[usize]) -> Option<u32> {
        let mut at = *self.heads.get(&hash)?;
        while at != NONE {
            let group = &self.groups[at as usize];
            if columns.iter().zip(&group.key).all(|(&column, value)| tuple[column] == *value) {
                return Some(at);
            }
            at = group.next;
        }
        None
    }

    /// Adds a new group.
    pub(crate) fn add(
        &mut self,
        hash: u64,
        key: Box<[Value]>,
        accumulators: impl Iterator<Item = Accumulator>,
        stored: bool,
    ) -> u32 {
        let at = self.groups.len() as u32;
        let next = self.heads.insert(hash, at).unwrap_or(NONE);
        let before = self.accumulators.len();
        self.accumulators.extend(accumulators);
        self.bytes += group_bytes(&key, self.accumulators.len() - before);
        self.groups.push(Group { key, next, touched: false, stored });
        at
    }

    /// Returns true if a group was touched since they were taken.
    pub(crate) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Returns the accumulators of a group for modification.
    pub(crate) fn touch(&mut self, at: u32) -> &mut [Accumulator] {
        let group = &mut self.groups[at as usize];
        if !group.touched {
            group.touched = true;
            self.touched.push(at);
        }
        let width = self.accumulators.len() / self.groups.len();
        let start = at as usize * width;
        &mut self.accumulators[start..start + width]
    }

    /// Calls `f` with key and accumulators of each touched group and marks all of them stored.
    pub(crate) fn take_touched(&mut self, mut f: impl FnMut(&[Value], &[Accumulator])) {
        let width = self.accumulators.len().checked_div(self.groups.len()).unwrap_or(0);
        for at in self.touched.drain(..) {
            let group = &mut self.groups[at as usize];
            group.touched = false;
            group.stored = true;
            let start = at as usize * width;
            f(&group.key, &self.accumulators[start..start + width]);
        }
    }

    /// Iterates over key, accumulators and a flag, true if a row may be stored, of each group.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[Value], &[Accumulator], bool)> {
        let width = self.accumulators.len().checked_div(self.groups.len()).unwrap_or(0);
        self.groups.iter().enumerate().map(move |(at, group)| {
            (&*group.key, &self.accumulators[at * width..(at + 1) * width], group.stored)
        })
    }
}

/// Hashes the key columns of a tuple.
pub(crate) fn hash_columns(seed: u64, tuple: &[Value], columns: &[usize]) -> u64 {
    let mut hasher = KeyHasher(seed);
    for &column in columns {
        tuple[column].hash(&mut hasher);
    }
    hasher.finish()
}

/// Multiply and rotate (as in FxHash), with a final mix.
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        let mut word = [0; 8];
        word[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.write_u64(u64::from_le_bytes(word) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_i32(&mut self, value: i32) {
        self.write_u64(value as u32 as u64);
    }

    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        mixed ^ (mixed >> 32)
    }
}

/// Hasher for keys that are hashes already.
#[derive(Debug, Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("the keys are u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_one_hash_stay_apart() {
        let mut map = GroupMap::default();
        let tuples: Vec<Vec<Value>> = ["a", "b", "c"].map(|name| vec![Value::from(name)]).to_vec();
        for tuple in &tuples {
            assert_eq!(map.find(7, tuple, &[0]), None);
            map.add(7, tuple.clone().into(), std::iter::once(Accumulator::Count(0)), false);
        }
        for (expected, tuple) in tuples.iter().enumerate() {
            assert_eq!(map.find(7, tuple, &[0]), Some(expected as u32));
        }
        map.touch(1)[0] = Accumulator::Count(5);
        map.touch(1);
        let mut taken = Vec::new();
        map.take_touched(|key, accumulators| taken.push((key.to_vec(), accumulators.to_vec())));
        assert_eq!(taken, [(vec![Value::from("b")], vec![Accumulator::Count(5)])]);
        assert_eq!(map.iter().map(|(_, _, stored)| stored).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn equal_values_hash_alike_and_others_spread() {
        let hash = |value: Value| hash_columns(1, &[value], &[0]);
        assert_eq!(hash(Value::Double(-0.0)), hash(Value::Double(0.0)));
        let distinct: std::collections::HashSet<u64> =
            (0..10_000).map(|n| hash(Value::from(format!("meter-{n}")))).collect();
        assert_eq!(distinct.len(), 10_000);
        assert_ne!(hash(Value::from("a")), hash(Value::from("a\0")));
    }
}
