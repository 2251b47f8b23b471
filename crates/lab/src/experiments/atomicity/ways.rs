//! The ways to change several words of a node so that a crash leaves all or none, over the same nodes.
//!
//! ```text
//! line of a node   what
//! 0                which copy counts: of one way only
//! 1 to 8           a word each, at its start
//! 9 to 16          the other copy
//! ```

use super::undo::UndoLog;
use crate::Error;
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::pmwcas::{PmwCas, Swap};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The most words of a change.
pub(super) const WORDS_MAX: u64 = 8;
const LINE_BYTES: u64 = 64;
const NODE_BYTES: usize = 17 * 64;

/// Method of making a change failure-atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AtomicityMethod {
    /// All words are flushed, in no order: a crash may leave some.
    None,
    /// The words go to a copy that does not count; then one word says that it does.
    OneWord,
    /// The pool's redo lanes, or its journal's record.
    Publication,
    /// An undo-log transaction.
    UndoLog,
    /// A persistent multi-word compare-and-swap.
    PmwCas,
}

impl AtomicityMethod {
    pub(super) const ALL: [AtomicityMethod; 5] = [
        AtomicityMethod::None,
        AtomicityMethod::OneWord,
        AtomicityMethod::Publication,
        AtomicityMethod::UndoLog,
        AtomicityMethod::PmwCas,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            AtomicityMethod::None => "none",
            AtomicityMethod::OneWord => "ordered stores, one word",
            AtomicityMethod::Publication => "publication",
            AtomicityMethod::UndoLog => "undo-log transaction",
            AtomicityMethod::PmwCas => "PMwCAS",
        }
    }
}

/// Nodes, what their words must be, and what the ways need.
pub(super) struct Nodes<'p> {
    pool: &'p Pool,
    nodes: Vec<PoolOffset>,
    values: Vec<[u64; WORDS_MAX as usize]>,
    log: UndoLog<'p>,
    pmwcas: PmwCas,
}

impl<'p> Nodes<'p> {
    pub(super) fn new(pool: &'p Arc<Pool>, count: usize) -> Result<Nodes<'p>, Error> {
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            let object = pool.reserve(NODE_BYTES)?;
            let at = object.offset();
            pool.words(at, NODE_BYTES / 8).iter().for_each(|word| word.store(0, Relaxed));
            pool.flush(at, NODE_BYTES);
            let mut publication = pool.publication();
            nodes.push(publication.allocate(object));
            publication.publish()?;
        }
        let log = UndoLog::create(pool, "undo log")?;
        let mut publication = pool.publication();
        let root = PmwCas::create(pool, 256, &mut publication)?;
        publication.set_root("descriptors", root)?;
        publication.publish()?;
        let pmwcas = PmwCas::open(pool, root)?;
        Ok(Nodes { pool, values: vec![[0; WORDS_MAX as usize]; count], nodes, log, pmwcas })
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn place(node: PoolOffset, copy: u64, word: u64) -> PoolOffset {
        node.block(1 + copy * WORDS_MAX + word, LINE_BYTES)
    }

    /// Adds one to the first words of a node.
    pub(super) fn change(&mut self, way: AtomicityMethod, index: usize, words: u64) -> Result<(), Error> {
        let (pool, node) = (self.pool, self.nodes[index]);
        let values = &mut self.values[index];
        values[..words as usize].iter_mut().for_each(|value| *value += 1);
        let place = |word| Self::place(node, 0, word);
        let in_place = |word: u64| {
            pool.word(place(word)).store(values[word as usize], Release);
            pool.flush(place(word), 8);
        };
        match way {
            AtomicityMethod::None => {
                (0..words).for_each(in_place);
                pool.fence();
            }
            AtomicityMethod::OneWord => {
                let other = 1 - pool.word(node).load(Acquire);
                for word in 0..words {
                    pool.word(Self::place(node, other, word)).store(values[word as usize], Relaxed);
                    pool.flush(Self::place(node, other, word), 8);
                }
                pool.fence();
                pool.word(node).store(other, Release);
                pool.flush(node, 8);
                pool.fence();
            }
            AtomicityMethod::Publication => {
                let mut publication = pool.publication();
                (0..words).for_each(|word| publication.set(place(word), values[word as usize]));
                publication.publish()?;
            }
            AtomicityMethod::UndoLog => {
                for word in 0..words {
                    self.log.add(place(word), 8);
                    pool.word(place(word)).store(values[word as usize], Release);
                }
                self.log.commit();
            }
            AtomicityMethod::PmwCas => {
                let swap = |word: u64| {
                    let new = values[word as usize];
                    Swap { at: place(word), old: new - 1, new }
                };
                let swaps: [Swap; WORDS_MAX as usize] = std::array::from_fn(|word| swap(word as u64 % words));
                assert!(self.pmwcas.compare_and_swap(&swaps[..words as usize])?, "no other thread runs");
            }
        }
        Ok(())
    }

    /// Before and after the way with two copies: the first counts, and has all words.
    pub(super) fn settle(&mut self) {
        for (node, values) in self.nodes.iter().zip(&self.values) {
            for (word, value) in (0..).zip(values) {
                self.pool.word(Self::place(*node, 0, word)).store(*value, Relaxed);
                self.pool.flush(Self::place(*node, 0, word), 8);
            }
            self.pool.word(*node).store(0, Relaxed);
            self.pool.flush(*node, 8);
        }
        self.pool.fence();
    }

    /// Returns true if the first words of all nodes are what they must be.
    pub(super) fn are_right(&self, words: u64) -> Result<bool, Error> {
        for (node, values) in self.nodes.iter().zip(&self.values) {
            let copy = self.pool.word(*node).load(Acquire);
            for word in 0..words {
                if self.pmwcas.read(Self::place(*node, copy, word))? != values[word as usize] {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// The dissertation's *move node* (E6): presorted entries from DRAM become a node, and one word says where it
/// is.
pub(super) struct Moves<'p> {
    pool: &'p Pool,
    slots: Vec<PoolOffset>,
    /// Offset of the word that holds the offset of the node moved last.
    anchor: PoolOffset,
    moved: PoolOffset,
    log: UndoLog<'p>,
    pmwcas: PmwCas,
}

impl<'p> Moves<'p> {
    pub(super) fn new(pool: &'p Arc<Pool>, count: usize, bytes: usize) -> Result<Moves<'p>, Error> {
        let mut publication = pool.publication();
        let anchor = publication.allocate(pool.reserve(LINE_BYTES as usize)?);
        pool.word(anchor).store(0, Relaxed);
        pool.flush(anchor, 8);
        let root = PmwCas::create(pool, 256, &mut publication)?;
        publication.set_root("descriptors", root)?;
        publication.publish()?;
        let mut slots = Vec::with_capacity(count);
        for _ in 0..count {
            let mut publication = pool.publication();
            slots.push(publication.allocate(pool.reserve(bytes)?));
            publication.publish()?;
        }
        let (log, pmwcas) = (UndoLog::create(pool, "undo log")?, PmwCas::open(pool, root)?);
        Ok(Moves { pool, slots, anchor, moved: PoolOffset::NULL, log, pmwcas })
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn carry_out(
        &mut self,
        way: AtomicityMethod,
        index: usize,
        entries: &[u64],
    ) -> Result<(), Error> {
        let (pool, slot, bytes) = (self.pool, self.slots[index], entries.len() * 8);
        let (anchor, before) = (self.anchor, std::mem::replace(&mut self.moved, slot));
        let fill = || {
            for (word, entry) in pool.words(slot, entries.len()).iter().zip(entries) {
                word.store(*entry, Relaxed);
            }
        };
        if way != AtomicityMethod::UndoLog {
            fill();
            pool.flush(slot, bytes);
        }
        match way {
            AtomicityMethod::None => {
                pool.word(anchor).store(slot.to_word(), Release);
                pool.flush(anchor, 8);
                pool.fence();
            }
            AtomicityMethod::OneWord => {
                pool.fence();
                pool.word(anchor).store(slot.to_word(), Release);
                pool.flush(anchor, 8);
                pool.fence();
            }
            AtomicityMethod::Publication => {
                let mut publication = pool.publication();
                publication.set(anchor, slot.to_word());
                publication.publish()?;
            }
            AtomicityMethod::UndoLog => {
                self.log.add(slot, bytes);
                fill();
                self.log.add(anchor, 8);
                pool.word(anchor).store(slot.to_word(), Release);
                self.log.commit();
            }
            AtomicityMethod::PmwCas => {
                // The node before what leads to it.
                pool.fence();
                let swap = Swap { at: anchor, old: before.to_word(), new: slot.to_word() };
                let swapped = self.pmwcas.compare_and_swap(&[swap])?;
                assert!(swapped, "no other thread runs");
            }
        }
        Ok(())
    }

    /// Returns true if the last node moved is where the anchor says, and holds what was moved.
    pub(super) fn is_right(&self, entries: &[u64]) -> Result<bool, Error> {
        let found = PoolOffset::from_word(self.pmwcas.read(self.anchor)?);
        let words = self.pool.words(found, entries.len()).iter().map(|word| word.load(Acquire));
        Ok(found == self.moved && words.eq(entries.iter().copied()))
    }
}
