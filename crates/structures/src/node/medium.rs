//! Medium of a node: the steps that make its changes failure-atomic there.

use super::Node;
use crate::error::Result;
use crate::points::{PREPARED_WORD, STEP_AFTER_STEP};
use entresol_memory::order::{After, Barrier, Fence, Flush, OrderPoint, Step, Store};
use entresol_memory::{PUBLICATION_WORDS_MAX, Pool, Publication};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Applies a node's changes to a pool, or to DRAM, where nothing survives and no order is needed.
pub enum Medium<'m, 'p> {
    /// Persistent: [committed](Medium::set) words go into the publication.
    Pool(&'p Pool, &'m mut Publication<'p>),
    /// DRAM: every store happens at once.
    Dram,
}

impl Medium<'_, '_> {
    /// Stores a word that is not valid before the commit. As the last word of a preparation it may be stored
    /// only together with the commit.
    #[inline]
    pub(crate) fn write(&mut self, node: Node<'_>, word: usize, value: u64) {
        debug_assert!(word < node.words().len(), "the written word {word} is of the node");
        match self {
            Medium::Pool(_, with) => with.write(node.word_offset(word), value),
            Medium::Dram => node.words()[word].store(value, Relaxed),
        }
    }

    /// Changes a word with the commit.
    #[inline]
    pub(crate) fn set(&mut self, node: Node<'_>, word: usize, value: u64) {
        debug_assert!(word < node.words().len(), "the committed word {word} is of the node");
        match self {
            Medium::Pool(_, with) => with.set(node.word_offset(word), value),
            Medium::Dram => node.words()[word].store(value, Release),
        }
    }

    /// [`Medium::set`] at a point of a protocol.
    #[inline]
    pub(crate) fn set_at(&mut self, node: Node<'_>, word: usize, value: u64, point: OrderPoint<Store>) {
        debug_assert!(word < node.words().len(), "the committed word {word} is of the node");
        match self {
            Medium::Pool(_, with) => with.set_at(node.word_offset(word), value, point),
            Medium::Dram => node.words()[word].store(value, Release),
        }
    }

    /// See [`Publication::after`].
    #[inline(always)]
    pub(crate) fn after(&mut self, point: OrderPoint<After>) {
        if let Medium::Pool(_, with) = self {
            with.after(point);
        }
    }

    /// See [`Publication::barrier`].
    #[inline(always)]
    pub(crate) fn barrier(&mut self, point: OrderPoint<Barrier>) {
        if let Medium::Pool(_, with) = self {
            with.barrier(point);
        }
    }

    /// Returns the number of words that the commit can still take, with a reserve for the tree's own.
    pub(crate) fn room(&self) -> usize {
        const SPARE: usize = 4;
        match self {
            Medium::Pool(_, with) => (PUBLICATION_WORDS_MAX - SPARE).saturating_sub(with.len()),
            Medium::Dram => PUBLICATION_WORDS_MAX - SPARE,
        }
    }

    /// Starts to make stored words durable; they are durable before the commit.
    #[inline]
    pub(crate) fn flush(&mut self, node: Node<'_>, word: usize, count: usize, point: OrderPoint<Flush>) {
        debug_assert!(
            word + count <= node.words().len(),
            "the {count} words flushed from {word} on are of the node"
        );
        if let Medium::Pool(pool, _) = self {
            pool.flush_at(node.word_offset(word), count * 8, point);
        }
    }

    /// Same as [`Medium::flush`] for two runs of words, each from a word on, which need no order between
    /// them.
    #[inline]
    pub(crate) fn flush_both(
        &mut self,
        node: Node<'_>,
        first: (usize, usize),
        second: (usize, usize),
        point: OrderPoint<Step>,
    ) {
        if let Medium::Pool(pool, _) = self {
            debug_assert!(
                [first, second].iter().all(|(word, count)| word + count <= node.words().len()),
                "the words flushed at {first:?} and {second:?} are of the node"
            );
            let ranges = [first, second].map(|(word, count)| (node.word_offset(word), count * 8));
            pool.flush_ranges_at(ranges, point);
        }
    }

    /// Orders the flushed words before all later stores.
    #[inline]
    pub(crate) fn fence(&mut self, point: OrderPoint<Fence>) {
        if let Medium::Pool(pool, _) = self {
            pool.fence_at(point);
        }
    }

    /// Stores a word and orders it before all later stores: a step of a preparation.
    #[inline]
    pub(crate) fn step(&mut self, node: Node<'_>, word: usize, value: u64) {
        node.words()[word].store(value, Release);
        if let Medium::Pool(pool, _) = self {
            pool.flush_word_at(node.word_offset(word), PREPARED_WORD);
        }
        self.fence(STEP_AFTER_STEP);
    }

    /// Changes several words at once, now: a preparation that cannot be ordered one word at a time.
    pub(crate) fn exchange(&mut self, node: Node<'_>, words: &[(usize, u64)]) -> Result<()> {
        assert!(
            (1..=PUBLICATION_WORDS_MAX).contains(&words.len()),
            "{} words are exchanged in one publication",
            words.len()
        );
        debug_assert!(
            words.iter().all(|(word, _)| *word < node.words().len()),
            "the exchanged words are of the node"
        );
        debug_assert!(
            words.iter().enumerate().all(|(i, (word, _))| words[..i].iter().all(|(other, _)| other != word)),
            "a word is exchanged once"
        );
        match self {
            Medium::Pool(pool, _) => {
                let mut together = pool.publication();
                words.iter().for_each(|(word, value)| together.set(node.word_offset(*word), *value));
                together.publish()?;
            }
            Medium::Dram => {
                words.iter().for_each(|(word, value)| node.words()[*word].store(*value, Release));
            }
        }
        Ok(())
    }
}
