//! The standard trie: a letter in each node, a pointer for each letter of the alphabet (dissertation 3.2.4).
//!
//! ```text
//!  word of a node   content
//!  0                seal and depth in letters
//!  1                1: a key ends here
//!  2                that key's value
//!  8 .. 24          child for each letter
//! ```
//!
//! Letters are half bytes, the upper half first. A key ends at an even depth. A node without a key and
//! without children is the rest of an interrupted insert of a long key, or the root.

use super::frame::{Attempt, TrieFrame, check_call, check_key};
use super::range::{ScanBatch, ScanStep, TrieRange, TrieScan};
use super::seal;
use crate::Inserted;
use crate::error::{DescentError, Error, Result};
use crate::key::{KEY_BYTES_MAX, KeyBytes};
use crate::latch::LatchSet;
use crate::points::{FLAG_AFTER_VALUE, NODES_WITH_THEIR_POINTER, REMOVAL, TRIE_NODE};
use entresol_memory::{Pool, PoolOffset, Publication};
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Maximum of nodes that are linked or unlinked in one publication.
pub const PIECE_NODES: usize = 32;

const KIND: u64 = 1;
const NAME: &str = "standard trie";
const LETTERS: usize = 16;
const ENDS: u64 = 8;
const VALUE: u64 = 16;
const CHILDREN: u64 = 64;
const NODE_BYTES: usize = CHILDREN as usize + LETTERS * 8;
const DEPTH_BITS: u32 = 16;

/// A persistent ordered map from byte strings to words; see the [module](super).
pub struct Trie {
    frame: TrieFrame,
    root: PoolOffset,
}

/// Sizes of a [`Trie`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrieStats {
    /// Keys.
    pub keys: u64,
    /// Nodes.
    pub nodes: u64,
    /// Nodes that crashes left without a key and children.
    pub dead_ends: u64,
    /// Letters of the longest key.
    pub depth: u32,
    /// Bytes of nodes in the pool.
    pub pool_bytes: u64,
}

/// Letters of a key.
fn letters(key: &[u8]) -> usize {
    key.len() * 2
}

/// Returns a letter of a key by its index.
#[inline]
fn letter(key: &[u8], place: usize) -> u64 {
    u64::from(key[place / 2] >> (4 - place % 2 * 4) & 0xF)
}

/// Returns the offset of a child's pointer.
#[inline]
fn child_slot(node: PoolOffset, letter: u64) -> PoolOffset {
    node.plus(CHILDREN + letter * 8)
}

fn meta(depth: usize) -> u64 {
    // Never 0, since the lowest bits count from 1.
    (seal([depth as u64, 1]) << DEPTH_BITS) | (depth as u64 + 1)
}

impl Trie {
    /// Creates an empty trie; it exists once the publication is published, with a reference to the returned
    /// offset.
    pub fn create<'p>(pool: &'p Arc<Pool>, publication: &mut Publication<'p>) -> Result<PoolOffset> {
        let root = pool.reserve(NODE_BYTES)?;
        fill(pool, root.offset(), 0, None, None);
        pool.flush_at(root.offset(), NODE_BYTES, TRIE_NODE);
        let root = publication.allocate(root).to_word();
        TrieFrame::create(pool, KIND, root, publication)
    }

    /// Opens a trie. Cost: constant. A trie of another kind is an error.
    pub fn open(pool: &Arc<Pool>, header: PoolOffset) -> Result<Trie> {
        let frame = TrieFrame::open(pool, header, KIND, NAME)?;
        let trie = Trie { root: frame.load_offset(frame.root_slot()), frame };
        match trie.check_node(trie.root, 0, 0) {
            Err(DescentError::Damage(error)) => Err(error),
            _ => Ok(trie),
        }
    }

    /// Returns the pool offset of the trie's header, for [`Trie::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.frame.header
    }

    /// Returns an error unless a node of this depth is there.
    #[inline]
    fn check_node(&self, node: PoolOffset, depth: usize, since: u64) -> Attempt<()> {
        self.frame.check_place(node, NODE_BYTES as u64)?;
        let found = self.frame.load(node);
        if found != meta(depth) {
            return Err(self.frame.removed_or_damaged(node, found, since));
        }
        Ok(())
    }

    /// Returns the nodes along a key, as far as there are any, from the root on.
    fn path(&self, key: &[u8]) -> Attempt<Vec<PoolOffset>> {
        let (frame, since) = (&self.frame, self.frame.since());
        let mut nodes = vec![self.root];
        let mut node = self.root;
        for place in 0..letters(key) {
            let slot = child_slot(node, letter(key, place));
            node = frame.stable(node, || frame.load_offset(slot));
            if node.is_null() {
                break;
            }
            self.check_node(node, place + 1, since)?;
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Returns the value of the key that ends in a node, if one does and the node is linked.
    fn value(&self, node: PoolOffset) -> Attempt<Option<u64>> {
        let frame = &self.frame;
        let read = || (frame.load(node), frame.load(node.plus(ENDS)), frame.load(node.plus(VALUE)));
        match frame.stable(node, read) {
            (0, ..) => Err(DescentError::Conflict),
            (_, ends, value) => Ok((ends == 1).then_some(value)),
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        check_key(key)?;
        let _pinned = self.frame.pool.pin();
        self.frame.retry_conflicts(|| {
            let (frame, since) = (&self.frame, self.frame.since());
            let mut node = self.root;
            for place in 0..letters(key) {
                let slot = child_slot(node, letter(key, place));
                node = frame.stable(node, || frame.load_offset(slot));
                if node.is_null() {
                    return Ok(None);
                }
                self.check_node(node, place + 1, since)?;
            }
            self.value(node)
        })
    }

    /// Latches and returns the node of a key, if the key exists.
    fn latch_key(&self, key: &[u8]) -> Attempt<Option<(LatchSet<'_>, Vec<PoolOffset>)>> {
        let nodes = self.path(key)?;
        if nodes.len() <= letters(key) {
            return Ok(None);
        }
        let node = nodes[letters(key)];
        let mut held = LatchSet::default();
        if !held.try_add(self.frame.latch(node)) || !self.frame.is_linked(node) {
            return Err(DescentError::Conflict);
        }
        Ok((self.frame.load(node.plus(ENDS)) == 1).then_some((held, nodes)))
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped.
    pub fn insert<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Inserted> {
        check_call(key, &with)?;
        let _pinned = self.frame.pool.pin();
        let mut with = Some(with);
        let inserted = self.frame.retry_conflicts(|| {
            loop {
                if let Some(inserted) = self.try_insert(key, value, &mut with)? {
                    return Ok(inserted);
                }
            }
        });
        if inserted.is_err() {
            self.prune(key);
        }
        inserted
    }

    /// Adds a piece of the path, if more than one is missing; else the key.
    fn try_insert<'p>(
        &'p self,
        key: &[u8],
        value: u64,
        with: &mut Option<Publication<'p>>,
    ) -> Attempt<Option<Inserted>> {
        let frame = &self.frame;
        let nodes = self.path(key)?;
        let (node, depth) = (nodes[nodes.len() - 1], nodes.len() - 1);
        let mut held = LatchSet::default();
        if !held.try_add(frame.latch(node)) || !frame.is_linked(node) {
            return Err(DescentError::Conflict);
        }
        if depth == letters(key) {
            if frame.load(node.plus(ENDS)) == 1 {
                return Ok(Some(Inserted::Exists(frame.load(node.plus(VALUE)))));
            }
            let mut with = with.take().expect("it is published once");
            with.write(node.plus(VALUE), value);
            with.after(FLAG_AFTER_VALUE);
            with.set(node.plus(ENDS), 1);
            with.publish().map_err(Error::from)?;
            return Ok(Some(Inserted::New));
        }
        let slot = child_slot(node, letter(key, depth));
        if frame.load(slot) != 0 {
            return Err(DescentError::Conflict);
        }
        assert!(depth < letters(key), "a path is no longer than the {} letters of its key", letters(key));
        let missing = letters(key) - depth;
        let is_last = missing <= PIECE_NODES;
        let mut piece = if is_last { None } else { Some(frame.pool.publication()) };
        let with = if is_last { with } else { &mut piece };
        let mut publication = with.take().expect("it is published once");
        let deepest = depth + missing.min(PIECE_NODES);
        let first = self.chain(key, (depth + 1, deepest), is_last.then_some(value), &mut publication)?;
        publication.barrier(NODES_WITH_THEIR_POINTER);
        publication.set(slot, first.to_word());
        publication.publish().map_err(Error::from)?;
        Ok(is_last.then_some(Inserted::New))
    }

    /// Makes the nodes of a key from one depth to another; returns the first.
    fn chain<'p>(
        &'p self,
        key: &[u8],
        (from, to): (usize, usize),
        value: Option<u64>,
        with: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        assert!(
            from <= to && to <= letters(key) && (value.is_none() || to == letters(key)),
            "the nodes {from} to {to} are of a key of {} letters, at whose end its value is",
            letters(key)
        );
        let pool = &self.frame.pool;
        let (mut below, mut value) = (None, value);
        for depth in (from..=to).rev() {
            let node = pool.reserve(NODE_BYTES)?;
            let child = below.map(|below| (letter(key, depth), below));
            fill(pool, node.offset(), depth, value.take(), child);
            pool.flush_at(node.offset(), NODE_BYTES, TRIE_NODE);
            below = Some(with.allocate(node));
        }
        Ok(below.expect("at least one is missing"))
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old one. If the key is
    /// missing, `with` is dropped.
    pub fn update<'p>(&'p self, key: &[u8], value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        check_call(key, &with)?;
        let _pinned = self.frame.pool.pin();
        let mut with = Some(with);
        self.frame.retry_conflicts(|| {
            let Some((_held, nodes)) = self.latch_key(key)? else { return Ok(None) };
            let node = nodes[letters(key)];
            let old = self.frame.load(node.plus(VALUE));
            let mut with = with.take().expect("it is published once");
            with.set(node.plus(VALUE), value);
            with.publish().map_err(Error::from)?;
            Ok(Some(old))
        })
    }

    /// Removes a key, atomically with the changes in `with`; returns its value. If the key is missing, `with`
    /// is dropped.
    pub fn remove<'p>(&'p self, key: &[u8], with: Publication<'p>) -> Result<Option<u64>> {
        check_call(key, &with)?;
        let _pinned = self.frame.pool.pin();
        let mut with = Some(with);
        let removed = self.frame.retry_conflicts(|| {
            let Some((mut held, nodes)) = self.latch_key(key)? else { return Ok(None) };
            let node = nodes[letters(key)];
            let old = self.frame.load(node.plus(VALUE));
            if nodes.len() == 1 || self.children(node) > 0 {
                let mut with = with.take().expect("it is published once");
                self.clear(node, &mut with);
                with.publish().map_err(Error::from)?;
            } else {
                self.unlink(key, &nodes, &mut held, &mut with)?;
            }
            Ok(Some(old))
        })?;
        if removed.is_some() {
            self.prune(key);
        }
        Ok(removed)
    }

    /// Clears the key of a node.
    fn clear(&self, node: PoolOffset, with: &mut Publication<'_>) {
        with.set_at(node.plus(ENDS), 0, REMOVAL);
    }

    fn children(&self, node: PoolOffset) -> usize {
        (0..LETTERS as u64).filter(|letter| self.frame.load(child_slot(node, *letter)) != 0).count()
    }

    /// Unlinks and frees the last of these nodes along a key, which has no children, and those above that
    /// lead to no other node, a piece at most.
    fn unlink<'p>(
        &'p self,
        key: &[u8],
        nodes: &[PoolOffset],
        held: &mut LatchSet<'p>,
        with: &mut Option<Publication<'p>>,
    ) -> Attempt<()> {
        let frame = &self.frame;
        let last = nodes.len() - 1;
        assert!(last > 0, "the root stays");
        let leads_elsewhere = |node: PoolOffset| frame.load(node.plus(ENDS)) == 1 || self.children(node) != 1;
        let mut first = last;
        while first > 1 && last - first + 1 < PIECE_NODES && !leads_elsewhere(nodes[first - 1]) {
            first -= 1;
        }
        // All changed nodes are latched before they are validated.
        for depth in (first - 1..=last).rev() {
            let node = nodes[depth];
            if !held.try_add(frame.latch(node)) || !frame.is_linked(node) {
                return Err(DescentError::Conflict);
            }
            let leads_there =
                depth == last || frame.load_offset(child_slot(node, letter(key, depth))) == nodes[depth + 1];
            let is_needed = first <= depth && depth < last && leads_elsewhere(node);
            if !leads_there || is_needed {
                return Err(DescentError::Conflict);
            }
        }
        if self.children(nodes[last]) > 0 {
            return Err(DescentError::Conflict);
        }
        let slot = child_slot(nodes[first - 1], letter(key, first - 1));
        let mut with = with.take().expect("it is published once");
        with.set_at(slot, 0, REMOVAL);
        nodes[first..].iter().for_each(|node| with.free(*node));
        with.publish().map_err(Error::from)?;
        frame.mark_removed(&nodes[first..]);
        Ok(())
    }

    /// Frees the nodes along a key that lead to no key. The trie is sound without.
    fn prune(&self, key: &[u8]) {
        let pruned = self.frame.retry_conflicts(|| {
            loop {
                let nodes = self.path(key)?;
                let last = nodes[nodes.len() - 1];
                let mut held = LatchSet::default();
                if !held.try_add(self.frame.latch(last)) || !self.frame.is_linked(last) {
                    return Err(DescentError::Conflict);
                }
                if nodes.len() == 1 || self.frame.load(last.plus(ENDS)) == 1 || self.children(last) > 0 {
                    return Ok(());
                }
                self.unlink(key, &nodes, &mut held, &mut Some(self.frame.pool.publication()))?;
            }
        });
        if let Err(error) = pruned {
            tracing::warn!(%error, "nodes of a trie without keys could not be freed; the next removal retries");
        }
    }

    /// Iterates over a range in ascending order.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> TrieRange<'_, Trie> {
        TrieRange::new(self, from, to)
    }

    /// Iterates over the keys that begin with a prefix, in ascending order.
    pub fn prefix(&self, prefix: &[u8]) -> TrieRange<'_, Trie> {
        TrieRange::of_prefix(self, prefix)
    }

    fn try_scan(&self, from: &[u8], batch: &mut ScanBatch<'_>) -> Attempt<Option<KeyBytes>> {
        let since = self.frame.since();
        // The nodes of the path with their children, and the number of visited ones.
        let mut way = vec![(self.root, self.all_children(self.root), 0)];
        let mut path: Vec<u8> = Vec::new();
        // Along `from`, past all that is smaller.
        for place in 0..letters(from) {
            let letter = letter(from, place) as usize;
            let (_, children, visited) = way.last_mut().expect("the root is there");
            *visited = letter + 1;
            let child = children[letter];
            if child.is_null() {
                break;
            }
            self.check_node(child, place + 1, since)?;
            path.push(letter as u8);
            way.push((child, self.all_children(child), 0));
        }
        let mut is_new = path.len() == letters(from);
        while let Some((node, children, visited)) = way.last_mut() {
            if std::mem::take(&mut is_new)
                && let Some(value) = self.value(*node)?
            {
                match batch.take(*node, bytes_of(&path), value)? {
                    ScanStep::More => {}
                    ScanStep::Enough => return Ok(batch.resume()),
                    ScanStep::PastTheEnd => return Ok(None),
                }
            }
            match (*visited..LETTERS).find(|letter| !children[*letter].is_null()) {
                Some(letter) => {
                    let child = children[letter];
                    *visited = letter + 1;
                    path.push(letter as u8);
                    self.check_node(child, path.len(), since)?;
                    way.push((child, self.all_children(child), 0));
                    is_new = true;
                }
                None => {
                    way.pop();
                    path.pop();
                }
            }
        }
        Ok(None)
    }

    fn all_children(&self, node: PoolOffset) -> [PoolOffset; LETTERS] {
        let words = self.frame.pool.words(node.plus(CHILDREN), LETTERS);
        let load = |letter: usize| PoolOffset::from_word(words[letter].load(Acquire));
        self.frame.stable(node, || std::array::from_fn(load))
    }

    /// Counts sizes by reading every node. There must be no concurrent writers.
    pub fn stats(&self) -> Result<TrieStats> {
        self.walk(|_| {})
    }

    /// Verifies all invariants of the trie; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the trie consists of (not those that its values may refer to).
    pub fn check(&self, object: impl FnMut(PoolOffset)) -> Result<()> {
        self.walk(object).map(|_| ())
    }

    fn walk(&self, mut object: impl FnMut(PoolOffset)) -> Result<TrieStats> {
        let _pinned = self.frame.pool.pin();
        object(self.frame.header);
        let (mut stats, mut seen) = (TrieStats::default(), HashSet::new());
        let mut left = vec![(self.root, 0)];
        while let Some((node, depth)) = left.pop() {
            match self.check_node(node, depth, 0) {
                Err(DescentError::Damage(error)) => return Err(error),
                Err(DescentError::Conflict) => {
                    return Err(Error::Invalid("a concurrent writer changed the trie".to_string()));
                }
                Ok(()) => {}
            }
            let corrupt = |message: &str| Error::Corrupt { offset: node, message: message.to_string() };
            if !seen.insert(node) {
                return Err(corrupt("two references lead to it"));
            }
            object(node);
            let ends = self.frame.load(node.plus(ENDS));
            if ends > 1 || (ends == 1 && depth % 2 == 1) || depth > 2 * KEY_BYTES_MAX {
                return Err(corrupt("the end of a key in it is not valid"));
            }
            let children = self.all_children(node);
            left.extend(children.iter().filter(|child| !child.is_null()).map(|child| (*child, depth + 1)));
            stats.keys += ends;
            stats.nodes += 1;
            stats.pool_bytes += NODE_BYTES as u64;
            stats.depth = stats.depth.max(if ends == 1 { depth as u32 } else { 0 });
            let leads_nowhere = ends == 0 && children.iter().all(|child| child.is_null());
            stats.dead_ends += u64::from(leads_nowhere && depth > 0);
        }
        Ok(stats)
    }

    /// Frees all parts of a closed trie but its header, which the caller frees together with its reference to
    /// it. A crash in between leaves a trie that cannot be opened; call it again.
    pub fn destroy(pool: &Arc<Pool>, header: PoolOffset) -> Result<()> {
        let frame = TrieFrame::attach(pool, header, KIND, NAME)?;
        frame.mark_destroying()?;
        let load = |at: PoolOffset| PoolOffset::from_word(pool.word(at).load(Acquire));
        let mut slots = vec![frame.root_slot()];
        while let Some(&slot) = slots.last() {
            let node = load(slot);
            if !node.is_null() {
                frame.check_place(node, NODE_BYTES as u64)?;
                let child = (0..LETTERS as u64)
                    .map(|letter| child_slot(node, letter))
                    .find(|slot| !load(*slot).is_null());
                match child {
                    Some(child) if slots.len() <= 2 * KEY_BYTES_MAX + 1 => slots.push(child),
                    Some(_) => {
                        let message = "it has more levels than a key has letters".to_string();
                        return Err(Error::Corrupt { offset: header, message });
                    }
                    None => {
                        let mut with = pool.publication();
                        with.set(slot, 0);
                        with.free(node);
                        with.publish()?;
                        slots.pop();
                    }
                }
            } else {
                slots.pop();
            }
        }
        Ok(())
    }
}

impl TrieScan for Trie {
    fn scan(
        &self,
        from: &[u8],
        to: Bound<&[u8]>,
        enough: usize,
        entries: &mut Vec<(KeyBytes, u64)>,
    ) -> Result<Option<KeyBytes>> {
        let _pinned = self.frame.pool.pin();
        let before = entries.len();
        self.frame.retry_conflicts(|| {
            entries.truncate(before);
            self.try_scan(from, &mut ScanBatch::new(to, enough, entries))
        })
    }
}

/// Fills an unreachable node. The caller flushes it.
fn fill(pool: &Pool, node: PoolOffset, depth: usize, value: Option<u64>, child: Option<(u64, PoolOffset)>) {
    debug_assert!(
        depth <= 2 * KEY_BYTES_MAX && node.is_aligned(64),
        "a node of depth {depth} may lie at {node:#x}"
    );
    debug_assert!(
        child.is_none_or(|(letter, below)| letter < LETTERS as u64 && !below.is_null()),
        "the child {child:?} is a node beside one of {LETTERS} letters"
    );
    let words = pool.words(node, NODE_BYTES / 8);
    words.iter().for_each(|word| word.store(0, Relaxed));
    words[0].store(meta(depth), Relaxed);
    if let Some(value) = value {
        words[ENDS as usize / 8].store(1, Relaxed);
        words[VALUE as usize / 8].store(value, Relaxed);
    }
    if let Some((letter, below)) = child {
        words[CHILDREN as usize / 8 + letter as usize].store(below.to_word(), Relaxed);
    }
}

/// Returns the bytes of letters; of a damaged trie the last may be half.
fn bytes_of(letters: &[u8]) -> KeyBytes {
    letters.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)).collect()
}
