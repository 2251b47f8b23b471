//! Common frame of both tries: the header, the latches, and validated access to words.
//!
//! ```text
//! header word   content
//! 0             "TRIE" and version
//! 1             kind: 1 standard, 2 PATRICIA; byte 1: bytes of a key, 0: any
//! 2             reference to the root
//! 3             1: the trie is being destroyed
//! 4             seal: hash of words 0 and 1 and of the header's place
//! 5             a note of the trie's owner
//! ```

use super::{CARRIED_WORDS_MAX, seal};
use crate::error::{DescentError, Error, Result};
use crate::key::KEY_BYTES_MAX;
use crate::latch::{self, LatchStripes};
use crate::note;
use entresol_memory::{Pool, PoolOffset, Publication};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"TRIE\0\0\0\x01");
const ROOT: u64 = 2 * 8;
const DESTROYING: u64 = 3 * 8;
const NOTE: u64 = 5 * 8;

/// A trie without its nodes.
pub(super) struct TrieFrame {
    pub(super) pool: Arc<Pool>,
    pub(super) header: PoolOffset,
    latches: LatchStripes,
    /// Number of unlinked nodes. A reader that finds a removed node must see this change.
    unlinked: AtomicU64,
}

pub(super) type Attempt<T> = std::result::Result<T, DescentError>;

impl TrieFrame {
    /// Creates a header; it is valid with the publication.
    pub(super) fn create<'p>(
        pool: &'p Arc<Pool>,
        kind: u64,
        root: u64,
        with: &mut Publication<'p>,
    ) -> Result<PoolOffset> {
        let header = pool.reserve(HEADER_BYTES)?;
        let at = header.offset();
        assert!(at.is_aligned(64), "the header at {at:#x} lies where a reference may lead");
        let values = [MAGIC, kind, root, 0, seal([MAGIC, kind, at.to_word()]), 0, 0, 0];
        for (word, value) in (0..).zip(values) {
            with.write(at.word(word), value);
        }
        Ok(with.allocate(header))
    }

    /// Returns the frame of a header, if it is a trie's of this kind.
    pub(super) fn attach(pool: &Arc<Pool>, header: PoolOffset, kind: u64, name: &str) -> Result<TrieFrame> {
        let fits = !header.is_null() && header.is_aligned(64);
        let Some(words) = pool.try_words(header, HEADER_BYTES / 8).filter(|_| fits) else {
            let message = "the offset cannot hold a trie, but a reference leads to it".to_string();
            return Err(Error::Corrupt { offset: header, message });
        };
        let word = |i: usize| words[i].load(Acquire);
        if word(0) != MAGIC {
            let message = format!("its header starts with {:#018x}, not {MAGIC:#018x}", word(0));
            return Err(Error::Corrupt { offset: header, message });
        }
        if word(4) != seal([MAGIC, word(1), header.to_word()]) || word(3) > 1 {
            let message = "its header does not match its checksum".to_string();
            return Err(Error::Corrupt { offset: header, message });
        }
        if word(1) != kind {
            return Err(Error::Invalid(format!(
                "the trie at {header:#x} is of another kind ({}) than a {name} ({kind})",
                word(1)
            )));
        }
        let (latches, unlinked) = (LatchStripes::new(), AtomicU64::new(0));
        Ok(TrieFrame { pool: pool.clone(), header, latches, unlinked })
    }

    /// Same as [`TrieFrame::attach`], for a trie that is to be used.
    pub(super) fn open(pool: &Arc<Pool>, header: PoolOffset, kind: u64, name: &str) -> Result<TrieFrame> {
        let frame = TrieFrame::attach(pool, header, kind, name)?;
        if TrieFrame::is_in_destruction(pool, header) {
            return Err(Error::Invalid(format!("the trie at {header:#x} is being destroyed")));
        }
        Ok(frame)
    }

    /// Marks the trie as being destroyed: it cannot be opened any more.
    pub(super) fn mark_destroying(&self) -> Result<()> {
        let mut mark = self.pool.publication();
        mark.set(self.header.plus(DESTROYING), 1);
        Ok(mark.publish()?)
    }

    /// Returns the offset of the reference to the root.
    pub(super) fn root_slot(&self) -> PoolOffset {
        self.header.plus(ROOT)
    }

    /// Loads a word without validation.
    #[inline]
    pub(super) fn load(&self, at: PoolOffset) -> u64 {
        self.pool.word(at).load(Acquire)
    }

    /// Loads a pool offset without validation.
    #[inline]
    pub(super) fn load_offset(&self, at: PoolOffset) -> PoolOffset {
        PoolOffset::from_word(self.load(at))
    }

    #[inline]
    pub(super) fn latch(&self, node: PoolOffset) -> &AtomicU64 {
        self.latches.numbered(node.block_number(64))
    }

    /// Reads words of a node consistently, between changes: the words read are durable.
    #[inline]
    pub(super) fn stable<R>(&self, node: PoolOffset, read: impl Fn() -> R) -> R {
        let mut spins = 0;
        loop {
            let version = latch::read(self.latch(node));
            let found = read();
            if latch::validate(self.latch(node), version) {
                return found;
            }
            latch::pause(&mut spins);
        }
    }

    /// Returns an error unless a node of `bytes` bytes can be there.
    #[inline]
    pub(super) fn check_place(&self, node: PoolOffset, bytes: u64) -> Result<()> {
        if node.is_null() || !node.is_aligned(64) || !self.pool.contains(node, bytes) {
            let message = "the offset cannot hold a node, but a reference leads to it".to_string();
            return Err(Error::Corrupt { offset: node, message });
        }
        self.verify(node, bytes as usize)
    }

    /// Verifies the pages of a node, if they were not since they were read.
    #[inline]
    pub(super) fn verify(&self, node: PoolOffset, bytes: usize) -> Result<()> {
        Ok(self.pool.verify(node, bytes)?)
    }

    /// Returns the number that the trie's owner stored last, 0 in a new trie.
    pub(super) fn note(&self) -> u64 {
        self.load(self.header.plus(NOTE))
    }

    /// Stores a number. The trie must not be in destruction.
    pub(super) fn set_note(&self, number: u64) {
        note::store(&self.pool, self.header.plus(NOTE), number);
    }

    /// Returns true if a header's trie is being destroyed.
    pub(super) fn is_in_destruction(pool: &Pool, header: PoolOffset) -> bool {
        pool.word(header.plus(DESTROYING)).load(Acquire) != 0
    }

    /// Returns the number of unlinked nodes, for [`TrieFrame::removed_or_damaged`].
    pub(super) fn since(&self) -> u64 {
        self.unlinked.load(Acquire)
    }

    /// Returns the meaning of an invalid first word of a node: removed, or damaged.
    #[cold]
    pub(super) fn removed_or_damaged(&self, node: PoolOffset, found: u64, since: u64) -> DescentError {
        if found == 0 && self.unlinked.load(Acquire) != since {
            return DescentError::Conflict;
        }
        let message = format!("its first word {found:#018x} is not that of the expected node");
        DescentError::Damage(Error::Corrupt { offset: node, message })
    }

    /// Marks nodes that were unlinked and freed. The caller holds their latches.
    pub(super) fn mark_removed(&self, nodes: &[PoolOffset]) {
        debug_assert!(
            nodes.iter().all(|node| *node != self.header && self.load(*node) != 0),
            "a node is removed once, and the header never"
        );
        // First the count, then the marks: a reader of a mark sees the count.
        self.unlinked.fetch_add(1, AcqRel);
        nodes.iter().for_each(|node| self.pool.word(*node).store(0, Release));
    }

    /// Returns true if a node is linked; the header always is. The caller holds its latch.
    pub(super) fn is_linked(&self, node: PoolOffset) -> bool {
        node == self.header || self.load(node) != 0
    }

    /// Retries until there is no conflict.
    pub(super) fn retry_conflicts<R>(&self, mut attempt: impl FnMut() -> Attempt<R>) -> Result<R> {
        let mut spins = 0;
        loop {
            match attempt() {
                Ok(outcome) => return Ok(outcome),
                Err(DescentError::Conflict) => latch::pause(&mut spins),
                Err(DescentError::Damage(error)) => return Err(error),
            }
        }
    }
}

/// Returns an error for keys that are too long, and for publications that carry too many changes.
pub(super) fn check_call(key: &[u8], with: &Publication<'_>) -> Result<()> {
    if with.len() > CARRIED_WORDS_MAX {
        return Err(Error::Invalid(format!(
            "the publication carries {} changes; an operation of a trie allows {CARRIED_WORDS_MAX}",
            with.len()
        )));
    }
    check_key(key)
}

pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { found_bytes: key.len(), limit_bytes: KEY_BYTES_MAX });
    }
    Ok(())
}
