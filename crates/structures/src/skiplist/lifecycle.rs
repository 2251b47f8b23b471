//! Creating, opening and destroying lists.
//!
//! ```text
//! header word   content
//! 0             "SKIPL" and version
//! 1             content of nodes, towers, words of a key, words of a value: a byte each; from byte 4: bytes of a bucket
//! 2             offset of the head, a node with all levels
//! 3             1: the list is being destroyed
//! 4             seal: hash of words 0 to 2, which never change
//! 5             a note of the list's owner
//! ```

use super::descent::meta;
use super::{
    CARRIED_WORDS_MAX, Content, FORWARD, LEVELS_MAX, LOW, META, Parts, SkipList, TowerArena, Towers,
};
use crate::error::{Error, Result};
use crate::latch::LatchStripes;
use crate::node::{Entries, FixedKey, Medium};
use crate::note;
use crate::points::LIST_NODE;
use entresol_memory::{PUBLICATION_WORDS_MAX, Pool, PoolOffset, Publication};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

pub(super) const HEADER_BYTES: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"SKIPL\0\0\x01");
const HEAD: u64 = 2 * 8;
const DESTROYING: u64 = 3 * 8;
const SEAL: u64 = 4 * 8;
const NOTE: u64 = 5 * 8;
/// Values of a node that are freed in one publication, which also has the words that its layout changes, or its links.
const VALUES_FREED_MAX: usize = 24;

// A node's allocation, its links, the bits and the bound of a split beside what a caller carries.
const _: () = assert!(CARRIED_WORDS_MAX + 1 + LEVELS_MAX + 5 <= PUBLICATION_WORDS_MAX);

impl<K: FixedKey, C: Content, T: Towers> SkipList<K, C, T> {
    /// Header word 1 of this kind of list.
    fn kind() -> u64 {
        u64::from_le_bytes([C::NUMBER, T::NUMBER, K::WORDS as u8, 1, 0, 0, 0, 0]) | (C::BYTES as u64) << 32
    }

    /// Returns true for the first words of a header of this kind of list.
    pub(crate) fn header_begins(magic: u64, [kind, _]: [u64; 2]) -> bool {
        magic == MAGIC && kind == Self::kind()
    }

    /// Returns the number that the list's owner stored last, 0 in a new list. A hint: after a crash it may be any
    /// earlier one.
    pub fn note(&self) -> u64 {
        self.pool.word(self.header.plus(NOTE)).load(Acquire)
    }

    /// Stores a number. The list must not be in destruction.
    pub fn set_note(&self, number: u64) {
        note::store(&self.pool, self.header.plus(NOTE), number);
    }

    fn seal(head: PoolOffset) -> u64 {
        [MAGIC, Self::kind(), head.to_word()]
            .iter()
            .fold(0, |seal: u64, word| (seal.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Describes the kind of list, for messages.
    pub fn describe() -> String {
        let (content, bytes, towers, key_bytes) = (C::NAME, C::BYTES, T::NAME, K::WORDS * 8);
        let nodes =
            if bytes == 0 { content.to_string() } else { format!("{content} buckets of {bytes} bytes") };
        format!("skip-list with {nodes} in a node, {towers}, keys of {key_bytes} bytes")
    }

    /// Creates an empty list; it exists once the publication is published, with a reference to the returned
    /// offset.
    pub fn create<'p>(pool: &'p Arc<Pool>, publication: &mut Publication<'p>) -> Result<PoolOffset> {
        let head_bytes = C::head_bytes(LEVELS_MAX) + C::BYTES;
        let head = pool.reserve(head_bytes)?;
        let header = pool.reserve(HEADER_BYTES)?;
        let at = header.offset();
        assert!(
            at.is_aligned(64) && head.offset().is_aligned(64),
            "the header at {at:#x} and the head at {:#x} lie where a reference may lead",
            head.offset()
        );
        let values = [MAGIC, Self::kind(), head.offset().to_word(), 0, Self::seal(head.offset()), 0, 0, 0];
        for (word, value) in (0..).zip(values) {
            publication.write(at.word(word), value);
        }
        Self::unopened(pool, at, head.offset()).fill(head.offset(), LEVELS_MAX, K::MIN, &[]);
        pool.flush_at(head.offset(), head_bytes, LIST_NODE);
        publication.allocate(head);
        Ok(publication.allocate(header))
    }

    fn unopened(pool: &Arc<Pool>, header: PoolOffset, head: PoolOffset) -> Self {
        SkipList {
            pool: pool.clone(),
            header,
            head,
            arena: Arc::new(TowerArena::new(pool, head)),
            latches: LatchStripes::new(),
            levels: AtomicUsize::new(1),
            seed: AtomicU64::new(pool.env().random_u64()),
            unlinked: AtomicU64::new(0),
            kinds: PhantomData,
        }
    }

    /// Opens a list. Cost: constant if its towers are in the pool; else a line of every node, since they are
    /// rebuilt. A list of another kind is an error, and so is damage that is found.
    pub fn open(pool: &Arc<Pool>, header: PoolOffset) -> Result<Self> {
        let list = Self::attach(pool, header)?;
        if pool.word(header.plus(DESTROYING)).load(Acquire) != 0 {
            return Err(Error::Invalid(format!("the skip-list at {header:#x} is being destroyed")));
        }
        let head = list.head_words(list.head)?;
        if head.load(META) != meta(K::MIN, LEVELS_MAX) || head.load_key::<K>(LOW) != K::MIN {
            let message = "the head in the header is not a valid head".to_string();
            return Err(Error::Corrupt { offset: list.head, message });
        }
        if !T::PERSISTENT {
            list.rebuild()?;
        }
        let levels = list.levels_in_use()?;
        assert!((1..=LEVELS_MAX).contains(&levels), "{levels} levels are in use, of {LEVELS_MAX}");
        list.levels.store(levels, Release);
        Ok(list)
    }

    /// Returns the list with this header, if it is one of this kind.
    pub(super) fn attach(pool: &Arc<Pool>, header: PoolOffset) -> Result<Self> {
        let fits = !header.is_null() && header.is_aligned(64);
        let Some(words) = pool.try_words(header, HEADER_BYTES / 8).filter(|_| fits) else {
            let message = "the offset cannot hold a skip-list, but a reference leads to it".to_string();
            return Err(Error::Corrupt { offset: header, message });
        };
        let word = |i: usize| words[i].load(Acquire);
        if word(0) != MAGIC {
            let message = format!("its header starts with {:#018x}, not {MAGIC:#018x}", word(0));
            return Err(Error::Corrupt { offset: header, message });
        }
        if word(1) != Self::kind() {
            return Err(Error::Invalid(format!(
                "the skip-list at {header:#x} is of another kind ({:#x}) than a {} ({:#x})",
                word(1),
                Self::describe(),
                Self::kind(),
            )));
        }
        let head = PoolOffset::from_word(word(HEAD as usize / 8));
        let is_gone = head.is_null() && word(DESTROYING as usize / 8) != 0;
        if word(SEAL as usize / 8) != Self::seal(head) && !is_gone {
            let message = "its header does not match its checksum".to_string();
            return Err(Error::Corrupt { offset: header, message });
        }
        Ok(Self::unopened(pool, header, head))
    }

    /// Builds the towers along level 0.
    fn rebuild(&self) -> Result<()> {
        let mut last = [self.head_tower(); LEVELS_MAX];
        let mut low_before: Option<K> = None;
        let mut node = self.next_of(self.head);
        while !node.is_null() {
            let head = self.head_words(node)?;
            let low = head.load_key::<K>(LOW);
            if head.load(META) != meta(low, 1) || low_before.is_some_and(|before| before >= low) {
                let message =
                    format!("its low key {low:?} is not above that of the node before, {low_before:?}");
                return Err(Error::Corrupt { offset: node, message });
            }
            low_before = Some(low);
            let height = self.random_height();
            if height > 1 {
                let tower = self.arena.allocate(node, low, height);
                for (level, last) in last.iter_mut().enumerate().take(height).skip(1) {
                    let forward = self.arena.forward(*last, level);
                    debug_assert_eq!(
                        forward.load(Acquire),
                        0,
                        "a tower is linked behind the last of its level"
                    );
                    forward.store(tower, Release);
                    *last = tower;
                }
            }
            node = self.next_of(node);
        }
        Ok(())
    }

    /// Frees all parts of a closed list but its header, which the caller frees together with its reference to
    /// it. A crash in between leaves a list that cannot be opened; call it again.
    pub fn destroy(pool: &Arc<Pool>, header: PoolOffset) -> Result<()> {
        while !Self::destroy_step(pool, header, false, usize::MAX)? {}
        Ok(())
    }

    /// Frees some nodes of a closed list and, if asked, the objects whose offsets its values are. Returns true when
    /// only the header is left. A crash in between leaves a smaller list that cannot be opened; call it again.
    pub fn destroy_step(
        pool: &Arc<Pool>,
        header: PoolOffset,
        free_values: bool,
        nodes_max: usize,
    ) -> Result<bool> {
        let list = Self::attach(pool, header)?;
        if !Self::is_in_destruction(pool, header) {
            let mut mark = pool.publication();
            mark.set(header.plus(DESTROYING), 1);
            mark.publish()?;
        }
        if list.head.is_null() {
            return Ok(true);
        }
        for _ in 0..nodes_max {
            if list.free_last_of_all(free_values)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true once parts of the list may be freed.
    pub(crate) fn is_in_destruction(pool: &Pool, header: PoolOffset) -> bool {
        pool.word(header.plus(DESTROYING)).load(Acquire) != 0
    }

    /// Frees the node behind the head, or the head if there is none; returns true then.
    fn free_last_of_all(&self, free_values: bool) -> Result<bool> {
        let first = self.next_of(self.head);
        let node = if first.is_null() { self.head } else { first };
        let height = self.head_words(node)?.load(META) & 0xFF;
        let parts = self.parts(node);
        C::check::<K>(parts).map_err(|message| Error::Corrupt { offset: node, message })?;
        assert!(Self::is_in_destruction(&self.pool, self.header), "the list cannot be opened any more");
        let mut with = self.pool.publication();
        if free_values {
            self.free_values(parts)?.into_iter().for_each(|value| with.free(PoolOffset::from_word(value)));
        }
        with.free(node);
        if node == self.head {
            with.set(self.header.plus(HEAD), 0);
        } else {
            let forward = |node: PoolOffset, level: usize| node.word(FORWARD + level);
            for level in 0..(height as usize).clamp(1, LEVELS_MAX) {
                with.set(forward(self.head, level), self.pool.word(forward(node, level)).load(Acquire));
            }
        }
        with.publish()?;
        Ok(node == self.head)
    }

    /// Frees the values of a node together with their entries, the greatest first, but for the last ones, which it
    /// returns: they are to be freed with the node.
    fn free_values(&self, parts: Parts<'_>) -> Result<Vec<u64>> {
        let mut entries = Entries::<K>::new();
        C::append_sorted(parts, &mut entries);
        while entries.len() > VALUES_FREED_MAX {
            let left = entries.len().saturating_sub(VALUES_FREED_MAX);
            let mut with = self.pool.publication();
            entries[left..].iter().for_each(|(_, value)| with.free(PoolOffset::from_word(*value)));
            C::truncate(parts, &entries, left, &mut Medium::Pool(&self.pool, &mut with))?;
            with.publish()?;
            entries.truncate(left);
        }
        Ok(entries.into_iter().map(|(_, value)| value).collect())
    }
}
