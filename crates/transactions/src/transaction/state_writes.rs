//! The writes of a transaction into one state, ordered by key.
//!
//! Most transactions write a few keys, with short values: those lie in one sorted array. Most of the others
//! load rows, whose keys ascend: those are appended to a run, their values to an arena. Keys out of that
//! order are in a tree. A key is in one of them only.
//!
//! Memory: what keys and values take. A value in the arena that is replaced by a longer one stays there, so
//! an arena has at most twice the bytes of its values.

use crate::transaction::scan::Direction;
use entresol_structures::KeyBytes;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A written value; None deletes the key.
pub(crate) type WrittenValue = Option<Box<[u8]>>;

/// Maximum number of keys in an array: it is searched by halves, and on average half of it moves for a new
/// key.
const FEW_MAX: usize = 32;
/// Room that the array begins with.
const FEW_MIN: usize = 8;
/// Bytes of the first chunk of an arena. Each chunk has twice the bytes of the one before, up to the maximum.
const CHUNK_BYTES_MIN: usize = 8 << 10;
const CHUNK_BYTES_MAX: usize = 256 << 10;

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
    Many(Box<Many>),
}

/// Writes of many keys.
#[derive(Default)]
struct Many {
    run: Run,
    /// Keys that were smaller than the last of the run.
    tree: BTreeMap<KeyBytes, WrittenValue>,
}

/// Keys that came in ascending order.
#[derive(Default)]
struct Run {
    entries: Vec<RunEntry>,
    arena: Arena,
}

struct RunEntry {
    key: KeyBytes,
    value: RunValue,
}

enum RunValue {
    InArena(ArenaRange),
    /// Replacement of a shorter one.
    Own(Box<[u8]>),
    Deleted,
}

/// Bytes in an arena.
#[derive(Clone, Copy)]
struct ArenaRange {
    chunk: u32,
    start: u32,
    bytes: u32,
}

/// Values one after another, in chunks that never move.
#[derive(Default)]
struct Arena(Vec<Vec<u8>>);

impl Arena {
    fn push(&mut self, value: &[u8]) -> ArenaRange {
        let has_room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= value.len();
        if !self.0.last().is_some_and(has_room) {
            let usual = CHUNK_BYTES_MIN << self.0.len().min(16);
            self.0.push(Vec::with_capacity(usual.min(CHUNK_BYTES_MAX).max(value.len())));
        }
        let chunk = self.0.len() - 1;
        let bytes = &mut self.0[chunk];
        let start = bytes.len();
        bytes.extend_from_slice(value);
        // A write set has at most a gigabyte, and a chunk the length of a value.
        ArenaRange { chunk: chunk as u32, start: start as u32, bytes: value.len() as u32 }
    }

    fn get(&self, ArenaRange { chunk, start, bytes }: ArenaRange) -> &[u8] {
        &self.0[chunk as usize][start as usize..][..bytes as usize]
    }

    fn get_mut(&mut self, ArenaRange { chunk, start, bytes }: ArenaRange) -> &mut [u8] {
        &mut self.0[chunk as usize][start as usize..][..bytes as usize]
    }

    /// Releases the room of a value and of all that were pushed after it.
    fn truncate(&mut self, ArenaRange { chunk, start, .. }: ArenaRange) {
        self.0.truncate(chunk as usize + 1);
        self.0[chunk as usize].truncate(start as usize);
    }
}

impl Run {
    fn value<'w>(&'w self, entry: &'w RunEntry) -> Option<&'w [u8]> {
        match &entry.value {
            RunValue::InArena(place) => Some(self.arena.get(*place)),
            RunValue::Own(value) => Some(value),
            RunValue::Deleted => None,
        }
    }

    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        match self.entries.last().map(|last| compare(&last.key, key)) {
            None | Some(Ordering::Less) => Err(self.entries.len()),
            Some(_) => self.entries.binary_search_by(|entry| compare(&entry.key, key)),
        }
    }

    /// Adds a key above all others.
    fn push(&mut self, key: KeyBytes, value: Option<&[u8]>) {
        let value = value.map_or(RunValue::Deleted, |value| RunValue::InArena(self.arena.push(value)));
        self.entries.push(RunEntry { key, value });
    }

    fn replace(&mut self, at: usize, value: Option<&[u8]>) {
        let entry = &mut self.entries[at];
        entry.value = match (value, &entry.value) {
            (None, _) => RunValue::Deleted,
            (Some(value), RunValue::InArena(place)) if value.len() <= place.bytes as usize => {
                let place = ArenaRange { bytes: value.len() as u32, ..*place };
                self.arena.get_mut(place).copy_from_slice(value);
                RunValue::InArena(place)
            }
            (Some(value), _) => RunValue::Own(value.into()),
        };
    }

    /// Removes an entry; returns the number of bytes of its key and of its value.
    fn remove(&mut self, at: usize) -> (usize, usize) {
        let entry = self.entries.remove(at);
        let bytes = self.value(&entry).map_or(0, <[u8]>::len);
        // The values in the arena are in the order of the keys.
        if let RunValue::InArena(place) = entry.value
            && at == self.entries.len()
        {
            self.arena.truncate(place);
        }
        (entry.key.len(), bytes)
    }

    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> &[RunEntry] {
        let at = |bound, is_end| place(&self.entries, |entry| &entry.key, bound, is_end);
        &self.entries[at(lower, false)..at(upper, true)]
    }
}

/// Outcome of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome<B> {
    /// The key had no write; it is not the last of a run.
    New,
    /// The key is the last of the run: [`StateWrites::pop`] takes it back.
    Appended,
    /// The key had a write.
    Replaced(B),
}

impl StateWrites {
    pub(crate) fn new() -> StateWrites {
        StateWrites(Layout::Few(Vec::new()))
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Layout::Few(entries) => entries.len(),
            Layout::Many(many) => many.run.entries.len() + many.tree.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The write under the key: None is none, Some(None) a deletion.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        match &self.0 {
            Layout::Few(entries) => find(entries, key).ok().map(|at| entries[at].value.as_deref()),
            Layout::Many(many) => match many.run.find(key) {
                Ok(at) => Some(many.run.value(&many.run.entries[at])),
                Err(_) => many.tree.get(key).map(Option::as_deref),
            },
        }
    }

    /// The greatest key.
    pub(crate) fn last_key(&self) -> Option<&KeyBytes> {
        match &self.0 {
            Layout::Few(entries) => entries.last().map(|entry| &entry.key),
            Layout::Many(many) => {
                let of_run = many.run.entries.last().map(|entry| &entry.key);
                of_run.max(many.tree.last_key_value().map(|(key, _)| key))
            }
        }
    }

    /// Writes a value. `before` gets the one that was there, if there was one.
    pub(crate) fn put<B>(
        &mut self,
        key: KeyBytes,
        value: Option<&[u8]>,
        before: impl FnOnce(Option<&[u8]>) -> B,
    ) -> WriteOutcome<B> {
        match &mut self.0 {
            Layout::Few(entries) => match find(entries, &key) {
                Ok(at) => {
                    let before = before(entries[at].value.as_deref());
                    entries[at].value = value.map(SmallVec::from_slice);
                    WriteOutcome::Replaced(before)
                }
                Err(at) if entries.len() < FEW_MAX => {
                    if entries.is_empty() {
                        entries.reserve_exact(FEW_MIN);
                    }
                    entries.insert(at, WrittenKey { key, value: value.map(SmallVec::from_slice) });
                    WriteOutcome::New
                }
                Err(_) => {
                    let mut many = Box::<Many>::default();
                    entries.drain(..).for_each(|entry| many.run.push(entry.key, entry.value.as_deref()));
                    self.0 = Layout::Many(many);
                    self.put(key, value, before)
                }
            },
            Layout::Many(many) => match many.run.find(&key) {
                Ok(at) => {
                    let before = before(many.run.value(&many.run.entries[at]));
                    many.run.replace(at, value);
                    WriteOutcome::Replaced(before)
                }
                Err(at) if at == many.run.entries.len() && many.is_above_tree(&key) => {
                    many.run.push(key, value);
                    WriteOutcome::Appended
                }
                Err(_) => match many.tree.insert(key, value.map(Box::from)) {
                    Some(value) => WriteOutcome::Replaced(before(value.as_deref())),
                    None => WriteOutcome::New,
                },
            },
        }
    }

    /// Removes the last key of the run, which was appended; returns the bytes of key and value.
    pub(crate) fn pop(&mut self) -> Option<(usize, usize)> {
        match &mut self.0 {
            Layout::Many(many) => {
                let last = many.run.entries.len().checked_sub(1)?;
                Some(many.run.remove(last))
            }
            Layout::Few(_) => None,
        }
    }

    /// Removes a key; returns the number of bytes of its value, if it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<usize> {
        match &mut self.0 {
            Layout::Few(entries) => {
                let at = find(entries, key).ok()?;
                Some(entries.remove(at).value.map_or(0, |value| value.len()))
            }
            Layout::Many(many) => match many.run.find(key) {
                Ok(at) => Some(many.run.remove(at).1),
                Err(_) => many.tree.remove(key).map(|value| value.map_or(0, |value| value.len())),
            },
        }
    }

    /// Keys and values, ascending.
    pub(crate) fn iter(&self) -> Iter<'_> {
        match &self.0 {
            Layout::Few(entries) => Iter::Few(entries.iter()),
            Layout::Many(_) => Iter::Many(self.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward)),
        }
    }

    /// The keys, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &KeyBytes> {
        self.iter().map(|(key, _)| key)
    }

    /// Keys and values in a range, in the order of the direction. The lower bound is not above the upper one.
    pub(crate) fn range<'w>(
        &'w self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> Box<dyn Iterator<Item = WrittenRef<'w>> + 'w> {
        match &self.0 {
            Layout::Few(entries) => {
                let at = |bound, is_end| place(entries, |entry| &entry.key, bound, is_end);
                let found = entries[at(lower, false)..at(upper, true)]
                    .iter()
                    .map(|entry| (&entry.key, entry.value.as_deref()));
                match direction {
                    Direction::Forward => Box::new(found),
                    Direction::Backward => Box::new(found.rev()),
                }
            }
            Layout::Many(many) => {
                let run = many.run.range(lower, upper).iter();
                let run = run.map(|entry| (&entry.key, many.run.value(entry)));
                let tree = many.tree.range::<[u8], _>((lower, upper));
                let tree = tree.map(|(key, value)| (key, value.as_deref()));
                match direction {
                    Direction::Forward => Box::new(merged(run, tree, direction)),
                    Direction::Backward => Box::new(merged(run.rev(), tree.rev(), direction)),
                }
            }
        }
    }
}

impl Many {
    /// Returns true if the tree has no key from this one on: the run may go on with it.
    fn is_above_tree(&self, key: &KeyBytes) -> bool {
        self.tree.last_key_value().is_none_or(|(last, _)| last < key)
    }
}

/// A written key, and its value.
pub(crate) type WrittenRef<'w> = (&'w KeyBytes, Option<&'w [u8]>);

/// Merges two iterators without common keys that are in the order of the direction.
fn merged<'w>(
    left: impl Iterator<Item = WrittenRef<'w>>,
    right: impl Iterator<Item = WrittenRef<'w>>,
    direction: Direction,
) -> impl Iterator<Item = WrittenRef<'w>> {
    let (mut left, mut right) = (left.peekable(), right.peekable());
    std::iter::from_fn(move || match (left.peek(), right.peek()) {
        (Some((first, _)), Some((second, _))) if direction.is_before(second, first) => right.next(),
        (Some(_), _) => left.next(),
        (None, _) => right.next(),
    })
}

/// See [`StateWrites::iter`]; few keys cost no allocation.
pub(crate) enum Iter<'w> {
    Few(std::slice::Iter<'w, WrittenKey>),
    Many(Box<dyn Iterator<Item = WrittenRef<'w>> + 'w>),
}

impl<'w> Iterator for Iter<'w> {
    type Item = WrittenRef<'w>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Iter::Few(entries) => entries.next().map(|entry| (&entry.key, entry.value.as_deref())),
            Iter::Many(entries) => entries.next(),
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

/// Index at which a range of ascending entries begins or ends.
fn place<E>(entries: &[E], key: impl Fn(&E) -> &[u8], bound: Bound<&[u8]>, is_end: bool) -> usize {
    let before = |bound: &[u8], with_equal: bool| {
        entries.partition_point(|entry| match compare(key(entry), bound) {
            Ordering::Less => true,
            Ordering::Equal => with_equal,
            Ordering::Greater => false,
        })
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
                    match model.insert(key.clone(), value) {
                        Some(value) => prop_assert_eq!(before, WriteOutcome::Replaced(value)),
                        None => prop_assert!(matches!(before, WriteOutcome::New | WriteOutcome::Appended)),
                    }
                }
                prop_assert_eq!(writes.get(&key), model.get(&key).map(Option::as_deref));
                prop_assert_eq!(writes.len(), model.len());
            }
            let all: Vec<_> = writes.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
            prop_assert_eq!(all, model.clone().into_iter().collect::<Vec<_>>());
            let (low, high) = (steps[0].0.clone(), steps[steps.len() / 2].0.clone());
            if low < high {
                let range = (bound(lower, &low), bound(upper, &high));
                let found = |direction| -> Vec<_> {
                    writes.range(range.0, range.1, direction).map(|(key, _)| key.to_vec()).collect()
                };
                let mut expected: Vec<_> = model.range::<[u8], _>(range).map(|(key, _)| key.clone()).collect();
                prop_assert_eq!(found(Direction::Forward), expected.clone());
                expected.reverse();
                prop_assert_eq!(found(Direction::Backward), expected);
            }
        }
    }

    #[test]
    fn values_of_no_bytes_stay_when_later_ones_are_taken_back() {
        let mut writes = StateWrites::new();
        let key = |number: u64| KeyBytes::from_slice(&number.to_be_bytes());
        for number in 0..100 {
            writes.put(key(number), Some(b""), |_| ());
        }
        writes.put(key(100), Some(b"last"), |_| ());
        assert_eq!(writes.remove(&key(10)), Some(0));
        for bytes in [4, 0, 0] {
            assert_eq!(writes.pop(), Some((8, bytes)));
        }
        writes.put(key(200), Some(b"new"), |_| ());
        let values: Vec<_> = writes.iter().map(|(_, value)| value.map(<[u8]>::len)).collect();
        assert_eq!(values, [vec![Some(0); 97], vec![Some(3)]].concat());
    }

    #[test]
    fn rooms_come_back_when_writes_are_taken_back() {
        let mut writes = StateWrites::new();
        for _ in 0..20 {
            let keys = writes.len() as u64..5_000;
            let appended = keys.filter(|number| {
                let key = KeyBytes::from_slice(&number.to_be_bytes());
                writes.put(key, Some(&[7; 200]), |_| ()) == WriteOutcome::Appended
            });
            (0..appended.count()).for_each(|_| assert_eq!(writes.pop(), Some((8, 200))));
        }
        let Layout::Many(many) = &writes.0 else { panic!("few are left") };
        assert_eq!(many.run.arena.0.len(), 1, "{} keys are left", writes.len());
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
