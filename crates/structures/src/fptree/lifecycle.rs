//! Creating, opening and destroying trees.
//!
//! ```text
//! header word   content
//! 0             "FPTREE", the kind of keys, their words (low 4 bits) and the format (high 4 bits)
//! 1             offset of the first leaf
//! 2             offset of the first page of the sparse index; 0: none (in format 1; not there in format 0)
//! 3             a note of the tree's owner (low 40 bits) and the mark that there is one (high 24 bits)
//! ```
//!
//! A tree of format 0 is read completely when it is opened, and has format 1 then. Opening a tree again after
//! a crash during that finds format 0, or format 1 with some of the entries.

use super::inner::Arena;
use super::sparse::{FIRST_PAGE, SparseIndex};
use super::{FpTree, Limits, Structure};
use crate::error::{Error, Result};
use crate::key::TreeKey;
use crate::latch::LatchStripes;
use crate::leaf::{BITMAP_WORD, LEAF_BYTES, Leaf, bits};
use crate::note;
use crate::points::{DROPPED_LEAF_WITH_ITS_LINK, LEAF_OF_A_NEW_TREE, TREE_HEADER};
use entresol_memory::{PUBLICATION_WORDS_MAX, Pool, PoolOffset, Publication};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const HEADER_BYTES: usize = 64;
/// With a sparse index.
const FORMAT: u8 = 1;
/// Offset in a header of the reference to the first leaf.
pub(super) const FIRST_LEAF: u64 = 8;
const NOTE: u64 = 24;
const NOTE_BITS: u32 = 40;
/// Marks a note: trees of earlier releases may have other bits there.
const NOTE_MARK: u64 = 0x65_4E4F << NOTE_BITS;
/// Mask of "FPTREE" in a header's first word; the other bits are the kind of keys.
const KIND_MASK: u64 = (1 << 48) - 1;

impl<K: TreeKey> FpTree<K> {
    fn magic(tag: u8, format: u8) -> u64 {
        u64::from_le_bytes([b'F', b'P', b'T', b'R', b'E', b'E', tag, K::WORDS as u8 | format << 4])
    }

    /// Creates an empty tree; it exists once the publication is published, with a reference to the returned
    /// offset. `tag` distinguishes kinds of keys of equal width.
    pub fn create<'p>(pool: &'p Pool, tag: u8, publication: &mut Publication<'p>) -> Result<PoolOffset> {
        let first = pool.reserve(LEAF_BYTES)?;
        Leaf::<K>::at(pool, first.offset()).clear();
        pool.flush_at(first.offset(), LEAF_BYTES / 8, LEAF_OF_A_NEW_TREE);
        let header = pool.reserve(HEADER_BYTES)?;
        let words = pool.words(header.offset(), 4);
        words[0].store(Self::magic(tag, FORMAT), Ordering::Relaxed);
        words[1].store(first.offset().to_word(), Ordering::Relaxed);
        words[2].store(0, Ordering::Relaxed);
        words[3].store(NOTE_MARK, Ordering::Relaxed);
        pool.flush_at(header.offset(), 32, TREE_HEADER);
        debug_assert!(
            header.offset() != first.offset() && header.offset().is_aligned(64),
            "header and first leaf are two objects"
        );
        publication.allocate(first);
        Ok(publication.allocate(header))
    }

    /// Opens a tree. One with another kind of keys is an error, and so is damage that is found. Cost: its
    /// sparse index, 16 or 24 bytes for some forty leaves; of a tree of up to 1,200 leaves or so, two cache
    /// lines of every leaf. The inner nodes of a larger one are lazily loaded: see [`FpTree::open_more`].
    pub fn open(pool: &Arc<Pool>, header: PoolOffset, tag: u8) -> Result<FpTree<K>> {
        Self::open_with(pool, header, tag, Limits::of::<K>(pool.domain()))
    }

    pub(super) fn open_with(
        pool: &Arc<Pool>,
        header: PoolOffset,
        tag: u8,
        limits: Limits,
    ) -> Result<FpTree<K>> {
        let words = pool.try_words(header, 3).filter(|_| !header.is_null() && header.is_aligned(64));
        let Some(words) = words else {
            return Err(Error::Corrupt {
                offset: header,
                message: "the offset cannot hold a tree".to_string(),
            });
        };
        let magic = words[0].load(Ordering::Acquire);
        let (expected, before) = (Self::magic(tag, FORMAT), Self::magic(tag, 0));
        if magic & KIND_MASK != expected & KIND_MASK {
            let message = format!("its header starts with {magic:#018x}, not {expected:#018x}");
            return Err(Error::Corrupt { offset: header, message });
        }
        if magic != expected && magic != before {
            let [.., found_tag, found] = magic.to_le_bytes();
            let (found_words, format) = (found & 0xF, found >> 4);
            if format > FORMAT {
                let message = format!("its format is {format}; this release supports formats up to {FORMAT}");
                return Err(Error::Corrupt { offset: header, message });
            }
            return Err(Error::Invalid(format!(
                "the tree at {header:#x} has keys of kind {found_tag} that take {found_words} words each; asked for \
                 were keys of kind {tag} that take {}",
                K::WORDS
            )));
        }
        if magic == before {
            let mut publication = pool.publication();
            publication.set(header.plus(FIRST_PAGE), 0);
            publication.set(header, expected);
            publication.publish()?;
        }
        assert!(limits.page_entries_max > 0, "a page of a sparse index has entries");
        let (sparse, entries) = SparseIndex::read(pool, header, limits.page_entries_max)?;
        let tree = FpTree {
            pool: pool.clone(),
            header,
            root: AtomicU64::new(words[1].load(Ordering::Acquire)),
            root_latch: AtomicU64::new(0),
            inner: Arena::new(pool.memory()),
            stripes: LatchStripes::of_pool(pool),
            structure: Mutex::new(Structure::new(sparse)),
            unopened: AtomicU64::new(0),
            limits,
        };
        tree.build(entries)?;
        Ok(tree)
    }

    /// Returns the number that the tree's owner stored last, 0 in a new tree. A hint: after a crash it may be
    /// any earlier one. None: the tree was created by a release without notes.
    pub fn note(&self) -> Option<u64> {
        let word = self.pool.word(self.header.plus(NOTE)).load(Ordering::Acquire);
        let low = (1 << NOTE_BITS) - 1;
        (word & !low == NOTE_MARK).then_some(word & low)
    }

    /// Stores a number, saturated to the maximum. The tree must not be in destruction.
    pub fn set_note(&self, number: u64) {
        let number = number.min((1 << NOTE_BITS) - 1);
        debug_assert!(number & NOTE_MARK == 0, "a note does not reach into its mark: {number:#x}");
        note::store(&self.pool, self.header.plus(NOTE), NOTE_MARK | number);
    }

    pub(super) fn first_leaf(&self) -> PoolOffset {
        Self::first_leaf_of(&self.pool, self.header)
    }

    pub(super) fn first_leaf_of(pool: &Pool, header: PoolOffset) -> PoolOffset {
        PoolOffset::from_word(pool.word(header.plus(FIRST_LEAF)).load(Ordering::Acquire))
    }

    /// Returns true if the tree's format has a sparse index.
    pub(super) fn has_sparse_index(pool: &Pool, header: PoolOffset) -> bool {
        pool.word(header).load(Ordering::Acquire).to_le_bytes()[7] >> 4 >= FORMAT
    }

    /// Returns the leaf at an offset, if one can be there: damage is found here, not by a stray store later.
    pub(super) fn sound_leaf(&self, offset: PoolOffset) -> Result<Leaf<'_, K>> {
        Self::sound_leaf_at(&self.pool, offset)
    }

    pub(super) fn sound_leaf_at(pool: &Pool, offset: PoolOffset) -> Result<Leaf<'_, K>> {
        let corrupt = |message: &str| Err(Error::Corrupt { offset, message: message.to_string() });
        if offset.is_null() || !offset.is_aligned(64) || !pool.contains(offset, LEAF_BYTES as u64) {
            return corrupt("the offset cannot hold a leaf");
        }
        pool.verify(offset, LEAF_BYTES)?;
        let leaf = Leaf::<K>::at(pool, offset);
        if leaf.bitmap() & !Leaf::<K>::FULL != 0 {
            return corrupt("its bitmap has bits of slots that do not exist");
        }
        Ok(leaf)
    }

    /// Frees a part of a closed tree: leaves, records of keys and, if asked, the objects whose offsets its
    /// values are. Returns true when only the header is left, which the caller frees together with its
    /// reference to it. A crash in between leaves a smaller tree; call it again.
    pub fn destroy_step(
        pool: &Pool,
        header: PoolOffset,
        free_values: bool,
        leaves_max: usize,
    ) -> Result<bool> {
        let has_sparse_index = Self::has_sparse_index(pool, header);
        for _ in 0..leaves_max {
            // Before the leaves that its entries name.
            if has_sparse_index && SparseIndex::<K>::destroy_page(pool, header)? {
                continue;
            }
            let first = Self::first_leaf_of(pool, header);
            if first.is_null() {
                return Ok(true);
            }
            let leaf = Self::sound_leaf_at(pool, first)?;
            Self::empty_leaf(pool, &leaf, free_values)?;
            let mut publication = pool.publication();
            let next = leaf.next();
            debug_assert_ne!(next, first, "a leaf is not its own next");
            if !next.is_null() {
                // The low key of the new first leaf is not needed any more.
                K::release(Self::sound_leaf_at(pool, next)?.low(), &mut publication);
            }
            publication.free(first);
            publication.barrier(DROPPED_LEAF_WITH_ITS_LINK);
            publication.set(header.plus(FIRST_LEAF), next.to_word());
            publication.publish()?;
        }
        Ok(false)
    }

    /// Removes all entries of a leaf, as many at a time as one publication can free.
    fn empty_leaf(pool: &Pool, leaf: &Leaf<'_, K>, free_values: bool) -> Result<()> {
        // A key's record and its value are freed, and the bitmap changes once.
        const ENTRIES: usize = (PUBLICATION_WORDS_MAX - 1) / 2;
        let mut left = leaf.bitmap();
        while left != 0 {
            let mut publication = pool.publication();
            for slot in bits(left).take(ENTRIES) {
                K::release(leaf.key(slot), &mut publication);
                if free_values {
                    publication.free(PoolOffset::from_word(leaf.value(slot)));
                }
                left &= !(1 << slot);
            }
            debug_assert!(
                publication.len() < PUBLICATION_WORDS_MAX,
                "records, values and the bitmap are one publication"
            );
            publication.set(leaf.word_offset(BITMAP_WORD), left);
            publication.publish()?;
        }
        Ok(())
    }
}
