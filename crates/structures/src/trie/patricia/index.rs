//! The trie as the index of a table: keys of 8, 16 or any bytes, batches, a note of its owner.

use super::lifecycle::kind_of;
use super::{Patricia, PatriciaStats};
use crate::error::{Error, Result};
use crate::key::{KEY_BYTES_MAX, KeyBytes};
use crate::trie::frame::{MAGIC, TrieFrame};
use crate::trie::range::TrieScan;
use crate::{Change, Inserted};
use entresol_memory::{Pool, PoolOffset, Publication};
use std::ops::Bound;
use std::sync::Arc;

/// Keys that are written between two looks whether the pool has room for them.
const GROUP: usize = 32;
/// Leaves that are freed for each node that a caller asks to be.
const LEAVES_OF_NODE: usize = 16;

/// Verdict on an object that a check found.
type Claim = std::result::Result<(), String>;

/// A [`Patricia`] with keys of `BYTES` bytes, shorter ones padded with zeros; 0: keys of any length.
pub struct PatriciaIndex<const BYTES: usize> {
    trie: Patricia,
}

/// Returns the next key of the same length; none behind the last.
fn following(key: &[u8]) -> Option<KeyBytes> {
    let place = key.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut next = KeyBytes::from_slice(key);
    next[place] += 1;
    next[place + 1..].fill(0);
    Some(next)
}

impl<const BYTES: usize> PatriciaIndex<BYTES> {
    /// Returns true for the first words of a header of this kind of trie.
    pub(crate) fn header_begins(magic: u64, [kind, _]: [u64; 2]) -> bool {
        magic == MAGIC && kind == kind_of(BYTES)
    }

    /// Creates an empty trie; it exists once the publication is published. Returns its root offset.
    pub fn create<'p>(pool: &'p Arc<Pool>, with: &mut Publication<'p>) -> Result<PoolOffset> {
        TrieFrame::create(pool, kind_of(BYTES), 0, with)
    }

    /// Opens a trie. Cost: constant.
    pub fn open(pool: &Arc<Pool>, root: PoolOffset) -> Result<PatriciaIndex<BYTES>> {
        Ok(PatriciaIndex { trie: Patricia::open_kind(pool, root, kind_of(BYTES))? })
    }

    /// Frees some leaves of a closed trie and, if asked, the objects whose offsets its values are. Returns true when
    /// only the header is left.
    pub fn destroy_step(
        pool: &Arc<Pool>,
        root: PoolOffset,
        free_values: bool,
        nodes_max: usize,
    ) -> Result<bool> {
        let leaves_max = nodes_max.saturating_mul(LEAVES_OF_NODE);
        Patricia::free_leaves(pool, (root, kind_of(BYTES)), free_values, leaves_max)
    }

    /// Returns true once parts of the trie may be freed.
    pub(crate) fn is_in_destruction(pool: &Pool, root: PoolOffset) -> bool {
        TrieFrame::is_in_destruction(pool, root)
    }

    /// Verifies what is left of a trie in destruction; see [`Patricia::check_damaged`].
    pub(crate) fn check_remains(
        pool: &Arc<Pool>,
        root: PoolOffset,
        mut claim: impl FnMut(PoolOffset, u64) -> Claim,
        mut entry: impl FnMut(KeyBytes, u64),
    ) -> Result<()> {
        let mut with_bytes = |key: &[u8], value| entry(KeyBytes::from_slice(key), value);
        Patricia::check_remains(pool, (root, BYTES), &mut claim, &mut with_bytes)
    }

    /// Returns the trie.
    pub(crate) fn trie(&self) -> &Patricia {
        &self.trie
    }

    /// Returns its pool.
    pub(crate) fn pool(&self) -> &Pool {
        &self.trie.frame.pool
    }

    /// Returns a key as the trie has it; an error if it is too long.
    pub(crate) fn padded(&self, key: &[u8]) -> Result<KeyBytes> {
        let limit_bytes = if BYTES == 0 { KEY_BYTES_MAX } else { BYTES };
        if key.len() > limit_bytes {
            return Err(Error::KeyTooLong { found_bytes: key.len(), limit_bytes });
        }
        let mut padded = KeyBytes::from_slice(key);
        padded.resize(key.len().max(BYTES), 0);
        Ok(padded)
    }

    /// Returns the first key of a scan. A bound longer than a key is truncated, and lies behind it.
    fn first_key(&self, from: Bound<&[u8]>) -> Result<KeyBytes> {
        let behind = |key: &[u8]| -> Result<KeyBytes> {
            let mut key = self.padded(key)?;
            key.push(0);
            Ok(key)
        };
        match from {
            Bound::Unbounded => Ok(KeyBytes::new()),
            Bound::Included(key) | Bound::Excluded(key) if BYTES > 0 && key.len() > BYTES => {
                behind(&key[..BYTES])
            }
            Bound::Included(key) => self.padded(key),
            Bound::Excluded(key) => behind(key),
        }
    }

    /// Appends the entries from a bound on, until there are `enough` more; returns the key (inclusive) to continue
    /// from.
    pub fn scan(
        &self,
        from: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        let from = self.first_key(from)?;
        let rest = TrieScan::scan(&self.trie, &from, Bound::Unbounded, enough, entries)?;
        // The key behind the last one has the width of all others: callers make keys of it.
        Ok(if BYTES > 0 { rest.and_then(|rest| following(&rest[..BYTES])) } else { rest })
    }

    /// Appends the entries before a bound in descending order, until there are `enough` more; returns the key
    /// (exclusive) to continue before. A bound longer than a key is truncated and included.
    pub fn scan_back(
        &self,
        before: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        let key;
        let before = match before {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(bytes) | Bound::Excluded(bytes) if BYTES > 0 && bytes.len() > BYTES => {
                Bound::Included(&bytes[..BYTES])
            }
            Bound::Included(bytes) => {
                key = self.padded(bytes)?;
                Bound::Included(&key[..])
            }
            Bound::Excluded(bytes) => {
                key = self.padded(bytes)?;
                Bound::Excluded(&key[..])
            }
        };
        self.trie.scan_back(before, enough, entries)
    }

    /// Adds distinct keys in order, each failure-atomic together with the updates that it carries. `carried` is
    /// called with the index of a key once it is known to be new; it returns the value and adds updates to the
    /// publication. `existing` is called with those that exist already, and their values. After an error some of
    /// the keys are added.
    pub fn insert_many<'p>(
        &'p self,
        keys: &[&[u8]],
        carried: &mut dyn FnMut(usize, &mut Publication<'p>) -> u64,
        existing: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        let padded = keys.iter().map(|key| self.padded(key)).collect::<Result<Vec<KeyBytes>>>()?;
        for (place, key) in padded.iter().enumerate() {
            if place % GROUP == 0 {
                self.pool().wait_for_room();
            }
            let mut value = |with: &mut Publication<'p>| carried(place, with);
            let with = self.trie.frame.pool.publication();
            if let Inserted::Exists(value) = self.trie.insert_with(key, with, &mut value)? {
                existing(place, value);
            }
        }
        Ok(())
    }

    /// Applies changes in order, each failure-atomic on its own; `before` is cleared and gets the previous
    /// value of each key. If a key does not fit, none is applied.
    pub fn apply_many(&self, changes: &[(&[u8], Change)], before: &mut Vec<Option<u64>>) -> Result<()> {
        before.clear();
        let padded = changes.iter().map(|(key, change)| Ok((self.padded(key)?, *change)));
        let changes = padded.collect::<Result<Vec<(KeyBytes, Change)>>>()?;
        for (place, (key, change)) in changes.iter().enumerate() {
            if place % GROUP == 0 {
                self.pool().wait_for_room();
            }
            let with = self.trie.frame.pool.publication();
            before.push(match *change {
                Change::Insert(value) => self.trie.insert(key, value, with)?.before(),
                Change::Replace(value) => self.trie.update(key, value, with)?,
                Change::Remove => self.trie.remove(key, with)?,
            });
        }
        Ok(())
    }

    /// Returns the number that its owner stored last.
    pub fn note(&self) -> u64 {
        self.trie.frame.note()
    }

    /// Stores a number.
    pub fn set_note(&self, number: u64) {
        self.trie.frame.set_note(number);
    }

    /// Estimates the number of keys.
    pub fn estimated_keys(&self) -> u64 {
        self.trie.estimated_keys()
    }

    /// Estimates the share of the keys below a key; none for one that does not fit.
    pub fn estimated_share_below(&self, key: &[u8]) -> Option<f64> {
        let most = if BYTES == 0 { KEY_BYTES_MAX } else { BYTES };
        let key = self.padded(&key[..key.len().min(most)]).ok()?;
        Some(self.trie.estimated_share_below(&key))
    }

    /// Returns keys that divide it into parts of about equal size, in ascending order.
    pub fn split_points(&self, wanted: usize) -> Vec<KeyBytes> {
        self.trie.split_points(wanted).unwrap_or_default()
    }

    /// Counts sizes along all nodes; beside writers it may fail.
    pub fn sizes(&self) -> Result<PatriciaStats> {
        self.trie.stats()
    }
}
