//! Sizes and invariants of a trie. No damage causes a panic.

use super::lifecycle::kind_of;
use super::{
    FRONT_WORDS, INNER_BYTES, NAME, NUMBER_MASK, Patricia, PatriciaStats, child_slot, first_difference,
    is_inner, node_of,
};
use crate::error::{DescentError, Error, Result};
use crate::key::{KEY_BYTES_MAX, KeyBytes};
use crate::trie::frame::{HEADER_BYTES, TrieFrame};
use crate::trie::patricia::estimates::KeyCount;
use crate::trie::range::TrieScan;
use entresol_memory::{Pool, PoolOffset};
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

/// Entries that are read at a time.
const BATCH_ENTRIES: usize = 1024;

/// Verdict on an object that a check found.
type Claim = std::result::Result<(), String>;

/// Next step of a walk.
enum Visit {
    /// A node by its child word, the bit of its parent, and its depth.
    Node(u64, Option<u64>, u32),
    /// The place between the children of a node with this bit.
    Between(u64),
}

fn damaged(damage: DescentError) -> Error {
    match damage {
        DescentError::Damage(error) => error,
        DescentError::Conflict => Error::Invalid("a concurrent writer changed the trie".to_string()),
    }
}

impl Patricia {
    /// Counts sizes by reading every node. There must be no concurrent writers.
    pub fn stats(&self) -> Result<PatriciaStats> {
        self.walk(&mut |_, _| Ok(()))
    }

    /// Verifies all invariants of the trie; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the trie consists of (not those that its values may refer to).
    pub fn check(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        let mut claim = |offset, _| {
            object(offset);
            Ok(())
        };
        self.walk(&mut claim).map(|_| ())
    }

    /// Same as [`Patricia::check`]. `claim` is called with offset and bytes of every object of the trie, and returns
    /// an error text for a wrong one. Only if all of them are sound, `entry` gets the keys and values.
    pub fn check_damaged(
        &self,
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        self.walk(claim)?;
        let (mut entries, mut next) = (Vec::new(), Some(KeyBytes::new()));
        while let Some(from) = next {
            next = TrieScan::scan(self, &from, Bound::Unbounded, BATCH_ENTRIES, &mut entries)?;
            entries.drain(..).for_each(|(key, value)| entry(&key, value));
        }
        Ok(())
    }

    /// Same as [`Patricia::check_damaged`] for a trie partly freed, with keys of so many bytes; 0: any.
    pub(super) fn check_remains(
        pool: &Arc<Pool>,
        (header, key_bytes): (PoolOffset, usize),
        claim: &mut dyn FnMut(PoolOffset, u64) -> Claim,
        entry: &mut dyn FnMut(&[u8], u64),
    ) -> Result<()> {
        let frame = TrieFrame::attach(pool, header, kind_of(key_bytes), NAME)?;
        Patricia { frame, count: KeyCount::default() }.check_damaged(claim, entry)
    }

    /// Returns the bytes of a leaf, as its first word says.
    fn leaf_bytes(&self, leaf: PoolOffset) -> Result<u64> {
        self.frame.check_place(leaf, INNER_BYTES as u64)?;
        let key_bytes = ((self.frame.load(leaf) & NUMBER_MASK) as usize).min(KEY_BYTES_MAX);
        Ok(((FRONT_WORDS + key_bytes.div_ceil(8)) * 8) as u64)
    }

    fn walk(&self, claim: &mut dyn FnMut(PoolOffset, u64) -> Claim) -> Result<PatriciaStats> {
        let _pinned = self.frame.pool.pin();
        let header = self.frame.header;
        let refused = |offset| move |message| Error::Corrupt { offset, message };
        claim(header, HEADER_BYTES as u64).map_err(refused(header))?;
        let (mut stats, mut seen) = (PatriciaStats::default(), HashSet::new());
        let (mut last, mut between): (Option<KeyBytes>, Option<u64>) = (None, None);
        let root = self.frame.load(self.frame.root_slot());
        let mut visits: Vec<Visit> = (root != 0).then_some(Visit::Node(root, None, 0)).into_iter().collect();
        while let Some(visit) = visits.pop() {
            let (word, above, depth) = match visit {
                Visit::Between(number) => {
                    between = Some(number);
                    continue;
                }
                Visit::Node(word, above, depth) => (word, above, depth),
            };
            let node = node_of(word);
            let corrupt = |message: String| Error::Corrupt { offset: node, message };
            if !seen.insert(node) {
                return Err(corrupt("two references lead to it".to_string()));
            }
            let bytes = if is_inner(word) { INNER_BYTES as u64 } else { self.leaf_bytes(node)? };
            claim(node, bytes).map_err(refused(node))?;
            if is_inner(word) {
                let number = self.number(node, 0).map_err(damaged)?;
                if above.is_some_and(|above| above >= number) {
                    return Err(corrupt(format!("its bit {number} is not after that of its parent")));
                }
                stats.inner_nodes += 1;
                stats.depth = stats.depth.max(depth + 1);
                stats.pool_bytes += INNER_BYTES as u64;
                let child =
                    |side| Visit::Node(self.frame.load(child_slot(node, side)), Some(number), depth + 1);
                visits.extend([child(1), Visit::Between(number), child(0)]);
                continue;
            }
            let key = self.leaf_key(node, 0).map_err(damaged)?;
            if let Some(last) = &last
                && (*last >= key || first_difference(last, &key) != between)
            {
                return Err(corrupt(format!(
                    "its key is in the wrong subtree: the branch is at bit {between:?}"
                )));
            }
            stats.keys += 1;
            stats.pool_bytes += self.frame.pool.object_bytes(node) as u64;
            last = Some(key);
        }
        Ok(stats)
    }
}
