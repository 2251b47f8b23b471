//! Places where the words of an Elf are: DRAM, or objects of a pool that are read in place.
//!
//! A reader says which words it uses ([`ElfStorage::touch`]) and which it will use soon
//! ([`ElfStorage::prefetch`]); only a modelled pool bills the first, only a pool does the second.

use entresol_memory::{Pool, PoolOffset};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a cache line.
const LINE_WORDS: usize = 16;

/// Words of an Elf where they are stored. Words beyond the end are 0.
pub trait ElfStorage {
    /// True if [`ElfStorage::prefetch`] does something.
    const PREFETCHES: bool = false;

    /// Number of words.
    fn len(&self) -> usize;

    /// Returns true if there is no word.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Word of the header or of a DimensionList.
    fn word(&self, at: usize) -> u32;

    /// Word of a MonoList.
    #[inline]
    fn mono_word(&self, at: usize) -> u32 {
        self.word(at)
    }

    /// Reports that words of the header or of a DimensionList are used.
    #[inline]
    fn touch(&self, _at: usize, _words: usize) {}

    /// Reports that words of a MonoList are used.
    #[inline]
    fn touch_mono(&self, at: usize, words: usize) {
        self.touch(at, words);
    }

    /// Brings words of a DimensionList, and what is below it, into the processor's caches, without waiting.
    #[inline]
    fn prefetch(&self, _at: usize, _words: usize) {}

    /// As [`ElfStorage::prefetch`], of a MonoList.
    #[inline]
    fn prefetch_mono(&self, at: usize, words: usize) {
        self.prefetch(at, words);
    }
}

impl ElfStorage for [u32] {
    #[inline]
    fn len(&self) -> usize {
        <[u32]>::len(self)
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        self.get(at).copied().unwrap_or(0)
    }
}

impl<S: ElfStorage + ?Sized> ElfStorage for &S {
    const PREFETCHES: bool = S::PREFETCHES;

    #[inline]
    fn len(&self) -> usize {
        S::len(self)
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        S::word(self, at)
    }

    #[inline]
    fn mono_word(&self, at: usize) -> u32 {
        S::mono_word(self, at)
    }

    #[inline]
    fn touch(&self, at: usize, words: usize) {
        S::touch(self, at, words);
    }

    #[inline]
    fn touch_mono(&self, at: usize, words: usize) {
        S::touch_mono(self, at, words);
    }

    #[inline]
    fn prefetch(&self, at: usize, words: usize) {
        S::prefetch(self, at, words);
    }

    #[inline]
    fn prefetch_mono(&self, at: usize, words: usize) {
        S::prefetch_mono(self, at, words);
    }
}

/// Object of a pool with some words of an Elf, from a byte of it on.
#[derive(Debug, Clone, Copy)]
pub struct ElfPiece {
    /// Place of the object's words, a multiple of 8.
    pub offset: PoolOffset,
    /// First 32-bit word of the object that is one of the Elf.
    pub skipped: usize,
}

/// Words of an Elf in objects of a pool, of the same number each but the last.
pub struct ElfPieces<'p> {
    pool: &'p Pool,
    pieces: Vec<(ElfPiece, &'p [AtomicU64])>,
    words: usize,
    /// Binary logarithm of the words of a piece.
    shift: u32,
    is_billed: bool,
}

impl std::fmt::Debug for ElfPieces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElfPieces").field("pieces", &self.pieces.len()).field("words", &self.words).finish()
    }
}

impl<'p> ElfPieces<'p> {
    /// Words in the pieces, each of which has `1 << shift` but the last; `words` is the number of all. Panics if an
    /// object is not one of the pool; the caller keeps them from being freed.
    pub fn new(
        pool: &'p Pool,
        pieces: impl Iterator<Item = ElfPiece>,
        shift: u32,
        words: usize,
    ) -> ElfPieces<'p> {
        let mut rest = words;
        let pieces = pieces.map(|piece| {
            let here = rest.min(1 << shift);
            rest -= here;
            (piece, pool.view(piece.offset, (piece.skipped + here).div_ceil(2)))
        });
        let pieces: Vec<_> = pieces.collect();
        assert!(rest == 0, "{} pieces have all of the {words} words", pieces.len());
        ElfPieces { pool, pieces, words, shift, is_billed: pool.is_billed() }
    }

    /// Copies all words, piece by piece.
    pub fn to_vec(&self) -> Vec<u32> {
        let mut words = Vec::with_capacity(self.words);
        for (piece, view) in &self.pieces {
            self.pool.touch(piece.offset, 8 * view.len());
            let both = view.iter().map(|word| word.load(Ordering::Relaxed));
            let all = both.flat_map(|word| [word as u32, (word >> 32) as u32]).skip(piece.skipped);
            words.extend(all.take((self.words - words.len()).min(1 << self.shift)));
        }
        words
    }

    /// Piece of a word, and its place there.
    #[inline]
    fn place(&self, at: usize) -> Option<(&(ElfPiece, &'p [AtomicU64]), usize)> {
        let piece = self.pieces.get(at >> self.shift)?;
        Some((piece, piece.0.skipped + (at & ((1 << self.shift) - 1))))
    }

    /// Calls `each` with the pool offset and the bytes of each part of some words.
    #[inline]
    fn parts(&self, at: usize, words: usize, mut each: impl FnMut(PoolOffset, usize)) {
        let end = (at + words).min(self.words);
        let mut from = at;
        while from < end {
            let next = ((from >> self.shift) + 1) << self.shift;
            let to = next.min(end);
            if let Some((piece, place)) = self.place(from) {
                each(piece.0.offset.plus(4 * place as u64), 4 * (to - from));
            }
            from = to;
        }
    }

    #[cold]
    fn bill(&self, at: usize, words: usize) {
        self.parts(at, words, |offset, bytes| self.pool.touch(offset, bytes));
    }
}

impl ElfStorage for ElfPieces<'_> {
    const PREFETCHES: bool = true;

    #[inline]
    fn len(&self) -> usize {
        self.words
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        let Some((piece, place)) = self.place(at) else { return 0 };
        let both = piece.1.get(place / 2).map_or(0, |word| word.load(Ordering::Relaxed));
        (both >> (32 * (place % 2))) as u32
    }

    #[inline]
    fn touch(&self, at: usize, words: usize) {
        if self.is_billed {
            self.bill(at, words);
        }
    }

    #[inline]
    fn prefetch(&self, at: usize, words: usize) {
        self.parts(at, words, |offset, bytes| {
            let end = offset.plus(bytes as u64);
            let mut line = offset.aligned_down(4 * LINE_WORDS as u64);
            while line < end {
                self.pool.prefetch(line);
                line = line.plus(4 * LINE_WORDS as u64);
            }
        });
    }
}
