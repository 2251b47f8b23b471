//! The writes of a transaction into one state: an ordered map that is an array while it is small.
//!
//! Most transactions write a few keys, with short values. Those lie in one allocation, sorted; a tree with a
//! value of its own for each key would be several for every transaction. From [`FEW_MAX`] keys on it is a
//! tree.

use entresol_structures::KeyBytes;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

/// A written value; None deletes the key.
pub(crate) type Written = Option<Box<[u8]>>;

/// Maximum number of keys in an array: it is searched by halves, and on average half of it moves for a new
/// key.
const FEW_MAX: usize = 32;
/// Room that the array begins with.
const FEW_MIN: usize = 8;

/// A key of the array and the write under it.
pub(crate) struct WrittenKey {
    key: KeyBytes,
    value: Option<SmallVec<[u8; 48]>>,
}

/// See the module.
pub(crate) struct StateWrites(Layout);

enum Layout {
    /// Ascending.
    Few(Vec<WrittenKey>),
    Many(BTreeMap<KeyBytes, Written>),
}

impl StateWrites {
    pub(crate) fn new() -> StateWrites {
        StateWrites(Layout::Few(Vec::new()))
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Layout::Few(entries) => entries.len(),
            Layout::Many(tree) => tree.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The write under the key: None is none, Some(None) a deletion.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        match &self.0 {
            Layout::Few(entries) => find(entries, key).ok().map(|at| entries[at].value.as_deref()),
            Layout::Many(tree) => tree.get(key).map(Option::as_deref),
        }
    }

    /// Writes a value. `before` gets the one that was there, if there was one.
    pub(crate) fn put<B>(
        &mut self,
        key: KeyBytes,
        value: Option<&[u8]>,
        before: impl FnOnce(Option<&[u8]>) -> B,
    ) -> Option<B> {
        match &mut self.0 {
            Layout::Few(entries) => match find(entries, &key) {
                Ok(at) => {
                    let before = before(entries[at].value.as_deref());
                    entries[at].value = value.map(SmallVec::from_slice);
                    Some(before)
                }
                Err(at) if entries.len() < FEW_MAX => {
                    if entries.is_empty() {
                        entries.reserve_exact(FEW_MIN);
                    }
                    entries.insert(at, WrittenKey { key, value: value.map(SmallVec::from_slice) });
                    None
                }
                Err(_) => {
                    let owned = |entry: WrittenKey| (entry.key, entry.value.as_deref().map(Box::from));
                    let mut tree: BTreeMap<_, Written> = entries.drain(..).map(owned).collect();
                    tree.insert(key, value.map(Box::from));
                    self.0 = Layout::Many(tree);
                    None
                }
            },
            Layout::Many(tree) => {
                tree.insert(key, value.map(Box::from)).map(|value| before(value.as_deref()))
            }
        }
    }

    /// Removes a key; returns the number of bytes of its value, if it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<usize> {
        match &mut self.0 {
            Layout::Few(entries) => {
                let at = find(entries, key).ok()?;
                Some(entries.remove(at).value.map_or(0, |value| value.len()))
            }
            Layout::Many(tree) => tree.remove(key).map(|value| value.map_or(0, |value| value.len())),
        }
    }

    /// Keys and values, ascending.
    pub(crate) fn iter(&self) -> Iter<'_> {
        match &self.0 {
            Layout::Few(entries) => Iter::Few(entries.iter()),
            Layout::Many(tree) => Iter::Many(tree.iter()),
        }
    }

    /// The keys, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &KeyBytes> {
        self.iter().map(|(key, _)| key)
    }

    /// Keys and values in a range, ascending. The lower bound is not above the upper one.
    pub(crate) fn range(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&KeyBytes, Option<&[u8]>)> {
        let (few, many) = match &self.0 {
            Layout::Few(entries) => {
                (Some(&entries[place(entries, lower, false)..place(entries, upper, true)]), None)
            }
            Layout::Many(tree) => (None, Some(tree.range::<[u8], _>((lower, upper)))),
        };
        let few = few.into_iter().flatten().map(|entry| (&entry.key, entry.value.as_deref()));
        few.chain(many.into_iter().flatten().map(|(key, value)| (key, value.as_deref())))
    }
}

/// See [`StateWrites::iter`].
pub(crate) enum Iter<'w> {
    Few(std::slice::Iter<'w, WrittenKey>),
    Many(btree_map::Iter<'w, KeyBytes, Written>),
}

impl<'w> Iterator for Iter<'w> {
    type Item = (&'w KeyBytes, Option<&'w [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Iter::Few(entries) => entries.next().map(|entry| (&entry.key, entry.value.as_deref())),
            Iter::Many(entries) => entries.next().map(|(key, value)| (key, value.as_deref())),
        }
    }
}

/// Index of a key, or where it would be.
#[inline]
fn find(entries: &[WrittenKey], key: &[u8]) -> Result<usize, usize> {
    entries.binary_search_by(|entry| compare(&entry.key, key))
}

/// The order of bytes; most keys differ within eight of them.
#[inline]
fn compare(left: &[u8], right: &[u8]) -> Ordering {
    match (left.first_chunk::<8>(), right.first_chunk::<8>()) {
        (Some(first), Some(second)) if first != second => {
            u64::from_be_bytes(*first).cmp(&u64::from_be_bytes(*second))
        }
        _ => left.cmp(right),
    }
}

/// Index at which a range begins or ends.
fn place(entries: &[WrittenKey], bound: Bound<&[u8]>, is_end: bool) -> usize {
    let before = |key: &[u8], with_equal: bool| {
        entries.partition_point(|entry| if with_equal { &entry.key[..] <= key } else { &entry.key[..] < key })
    };
    match bound {
        Bound::Unbounded if is_end => entries.len(),
        Bound::Unbounded => 0,
        Bound::Included(key) => before(key, is_end),
        Bound::Excluded(key) => before(key, !is_end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound(kind: u8, key: &[u8]) -> Bound<&[u8]> {
        match kind {
            0 => Bound::Unbounded,
            1 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_tree_does_whatever_its_size(
            steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..11), prop::option::of(0usize..80), 0u8..8), 1..120),
            (lower, upper) in (0u8..3, 0u8..3),
        ) {
            let (mut writes, mut model) = (StateWrites::new(), BTreeMap::<Vec<u8>, Option<Vec<u8>>>::new());
            for (key, length, action) in &steps {
                // Few different keys, so that they meet again.
                let key: Vec<u8> = key.iter().map(|byte| byte % 3).collect();
                let value = length.map(|length| vec![*action; length]);
                if *action == 0 {
                    let before = model.remove(&key).map(|value| value.map_or(0, |value| value.len()));
                    prop_assert_eq!(writes.remove(&key), before);
                } else {
                    let before = writes.put(KeyBytes::from_slice(&key), value.as_deref(), |v| v.map(<[u8]>::to_vec));
                    prop_assert_eq!(before, model.insert(key.clone(), value));
                }
                prop_assert_eq!(writes.get(&key), model.get(&key).map(Option::as_deref));
                prop_assert_eq!(writes.len(), model.len());
            }
            let all: Vec<_> = writes.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
            prop_assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
            let (low, high) = (steps[0].0.clone(), steps[steps.len() / 2].0.clone());
            if low < high {
                let range = (bound(lower, &low), bound(upper, &high));
                let found: Vec<_> = writes.range(range.0, range.1).map(|(key, _)| key.to_vec()).collect();
                let expected: Vec<_> = model.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_bytes() {
        let keys: [&[u8]; 8] =
            [b"", b"a", b"aaaaaaaa", b"aaaaaaaa\0", b"aaaaaaab", b"b", b"\x7fzzzzzzz", b"\xffaaaaaaaa"];
        for (index, left) in keys.iter().enumerate() {
            for (other, right) in keys.iter().enumerate() {
                assert_eq!(compare(left, right), index.cmp(&other));
            }
        }
    }
}
