//! An Elf on modelled memory: Optane with DRAM beside it, or DRAM alone.
//!
//! Caches are as much smaller than the paper's as there are fewer tuples than its 100 million. A query takes what the
//! model bills for memory. Beside it stands the processor's work: the time on this machine of a few of the queries,
//! again and again, whose lists are then in its caches.

use super::super::chapter3::scaled;
use crate::Error;
use entresol_memory::profile::Profile;
use entresol_memory::{Pool, PoolOptions};
use entresol_structures::elf::{
    CodeCondition, CopyMeter, Elf, ElfInPlace, ElfPiece, ElfPieces, ElfStorage, ListCache, ListCacheOptions,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Tuples of the paper to those of [`scaled`].
const PAPER_TUPLES: u64 = 10;
/// Binary logarithm of the words of a piece: those of an index in SQL.
const SHIFT: u32 = 18;
/// Distance of the regions of copies in the DRAM beside the pool.
const REGION_BYTES: u64 = 1 << 34;
/// Address of a copy of all words there.
const COPY_OF_ALL: u64 = 1 << 40;

/// Modelled memory with an Elf.
pub(super) struct Machine {
    pool: Arc<Pool>,
    pieces: Vec<ElfPiece>,
    words: usize,
}

impl Machine {
    /// Elf on Optane, with DRAM beside it.
    pub(super) fn optane(elf: &Elf) -> Result<Machine, Error> {
        let (optane, dram) = (Profile::embedded("optane-dcpmm")?, Profile::embedded("dram")?);
        let optane = scaled(optane, elf.tuples() as u64 / PAPER_TUPLES);
        Machine::with(elf, Pool::modelled_beside(&PoolOptions::default(), &optane, &dram)?)
    }

    /// Elf in DRAM.
    pub(super) fn dram(elf: &Elf) -> Result<Machine, Error> {
        let dram = scaled(Profile::embedded("dram")?, elf.tuples() as u64 / PAPER_TUPLES);
        Machine::with(elf, Pool::modelled(&PoolOptions::default(), &dram)?)
    }

    fn with(elf: &Elf, pool: Arc<Pool>) -> Result<Machine, Error> {
        let mut pieces = Vec::new();
        for words in elf.words().chunks(1 << SHIFT) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut publication = pool.publication();
            let offset = publication.allocate(pool.reserve(bytes.len().next_multiple_of(8))?);
            pool.store_flushed(offset, &bytes);
            publication.publish()?;
            pieces.push(ElfPiece { offset, skipped: 0 });
        }
        Ok(Machine { pool, pieces, words: elf.words().len() })
    }

    fn words(&self) -> ElfPieces<'_> {
        ElfPieces::new(&self.pool, self.pieces.iter().copied(), SHIFT, self.words)
    }

    /// The Elf where it is.
    pub(super) fn elf(&self) -> Result<ElfInPlace<ElfPieces<'_>>, Error> {
        Ok(ElfInPlace::open(self.words())?)
    }

    /// The Elf with all lists in the DRAM beside, and the MonoLists where they are: the paper's dual access.
    pub(super) fn dual<'m>(&'m self, elf: &'m Elf) -> Result<ElfInPlace<Dual<'m>>, Error> {
        Ok(ElfInPlace::open(Dual { copy: elf.words(), words: self.words(), pool: &self.pool })?)
    }

    /// Cache in the DRAM beside.
    pub(super) fn cache<S: ElfStorage>(&self, elf: &ElfInPlace<S>, options: ListCacheOptions) -> ListCache {
        ListCache::metered(elf, options, Some(Arc::new(CopyBilling(self.pool.clone()))))
    }

    /// Modelled nanoseconds of some work.
    pub(super) fn ns<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<(T, f64), Error> {
        let cost = || self.pool.modelled_cost().unwrap_or_default();
        let before = cost();
        let done = work()?;
        Ok((done, (cost() - before).ns()))
    }
}

/// Bills the accesses to copies as those of DRAM.
struct CopyBilling(Arc<Pool>);

impl CopyMeter for CopyBilling {
    fn used(&self, ranges: &[(u32, usize, usize)]) {
        let address = |region: u32, word: usize| REGION_BYTES * u64::from(region + 1) + 4 * word as u64;
        match ranges {
            [(region, word, words)] => self.0.touch_beside(&[(address(*region, *word), 4 * *words as u64)]),
            [(region, word, words), (other, at, count)] => self.0.touch_beside(&[
                (address(*region, *word), 4 * *words as u64),
                (address(*other, *at), 4 * *count as u64),
            ]),
            _ => ranges.iter().for_each(|range| self.used(&[*range])),
        }
    }
}

/// Lists in DRAM, MonoLists where they are.
pub(super) struct Dual<'m> {
    copy: &'m [u32],
    words: ElfPieces<'m>,
    pool: &'m Pool,
}

impl ElfStorage for Dual<'_> {
    const PREFETCHES: bool = true;

    fn len(&self) -> usize {
        self.copy.len()
    }

    fn word(&self, at: usize) -> u32 {
        self.copy.get(at).copied().unwrap_or(0)
    }

    fn mono_word(&self, at: usize) -> u32 {
        self.words.mono_word(at)
    }

    fn touch(&self, at: usize, words: usize) {
        self.pool.touch_beside(&[(COPY_OF_ALL + 4 * at as u64, 4 * words as u64)]);
    }

    fn touch_mono(&self, at: usize, words: usize) {
        self.words.touch_mono(at, words);
    }

    fn prefetch_mono(&self, at: usize, words: usize) {
        self.words.prefetch_mono(at, words);
    }
}

/// Nanoseconds of the processor for a query: the least time of a few of them, which are in its caches.
pub(super) fn work_ns<S: ElfStorage>(
    elf: &ElfInPlace<S>,
    options: Option<ListCacheOptions>,
    queries: &[Vec<CodeCondition>],
    rounds: usize,
) -> Result<f64, Error> {
    let cache = options.map(|options| ListCache::new(elf, options));
    let mut best = f64::INFINITY;
    let mut ids = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        for conditions in queries {
            ids.clear();
            elf.collect(cache.as_ref(), conditions, &mut ids)?;
            black_box(&ids);
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / queries.len() as f64);
    }
    Ok(best)
}
