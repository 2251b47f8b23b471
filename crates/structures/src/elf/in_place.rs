//! Searches of an Elf where its words are, with the copies of a cache and without, by one thread and by several.
//!
//! Several threads share the entries of the first dimension: each takes the next one that no one has, with what is
//! below it, so that subtrees of different sizes are shared evenly (Jibril et al., 2.2).

use super::cache::ListCache;
use super::search::{self, ElfSearch, Flow};
use super::storage::ElfStorage;
use super::{CodeCondition, ElfLevel, ElfShape, ElfWork};
use crate::error::Result;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Words that a search reads from which on threads pay: starting them takes as long as reading some ten thousand words.
pub const PARALLEL_WORDS_MIN: f64 = 200_000.0;

/// Elf whose words stay where they are stored.
#[derive(Debug)]
pub struct ElfInPlace<S> {
    storage: S,
    shape: ElfShape,
}

impl<S: ElfStorage> ElfInPlace<S> {
    /// Reads the header. What is behind it is checked as it is read.
    pub fn open(storage: S) -> Result<ElfInPlace<S>> {
        Ok(ElfInPlace { shape: ElfShape::read(&storage)?, storage })
    }

    /// Storage of the words.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    pub(super) fn shape(&self) -> &ElfShape {
        &self.shape
    }

    /// Number of tuples.
    pub fn tuples(&self) -> usize {
        self.shape.tuples as usize
    }

    /// Counts of each dimension.
    pub fn levels(&self) -> &[ElfLevel] {
        &self.shape.levels
    }

    /// Calls `found` with the id of each tuple that meets the conditions until it breaks, as
    /// [`Elf::search`](super::Elf::search). `cache` is one of this Elf; `found` may search with it, too.
    pub fn search<F: FnMut(u32) -> ControlFlow<()>>(
        &self,
        cache: Option<&ListCache>,
        conditions: &[CodeCondition],
        found: F,
    ) -> Result<ControlFlow<()>> {
        search::ended(self.claimed(cache, conditions, found, || true))
    }

    /// Appends the ids of the tuples that meet the conditions.
    pub fn collect(
        &self,
        cache: Option<&ListCache>,
        conditions: &[CodeCondition],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let ended = self.search(cache, conditions, |id| {
            ids.push(id);
            ControlFlow::Continue(())
        });
        ended.map(|_| ())
    }

    /// Searches below the entries of the first dimension for which `claims`, which is called for each that meets the
    /// condition, returns true.
    fn claimed<F: FnMut(u32) -> ControlFlow<()>>(
        &self,
        cache: Option<&ListCache>,
        conditions: &[CodeCondition],
        found: F,
        claims: impl FnMut() -> bool,
    ) -> Flow {
        let (storage, shape) = (&self.storage, &self.shape);
        let Some(conditions) = search::used(shape, conditions) else { return ControlFlow::Continue(()) };
        match cache {
            Some(cache) => cache.search(storage, shape, conditions, found, claims),
            None => {
                let copies = super::cache::copies::NoCopies;
                ElfSearch { storage, shape, conditions, copies, found, left: storage.len() }.root(claims)
            }
        }
    }

    /// Ids of the tuples that meet the conditions, in no order, found by so many threads; by one if the search is
    /// expected to read fewer than [`PARALLEL_WORDS_MIN`] words, given the share of the codes of each dimension that
    /// meets its condition.
    pub fn collect_parallel(
        &self,
        cache: Option<&ListCache>,
        conditions: &[CodeCondition],
        shares: &[f64],
        threads: usize,
    ) -> Result<Vec<u32>>
    where
        S: Sync,
    {
        if threads < 2 || ElfWork::of(self.levels(), shares).words < PARALLEL_WORDS_MIN {
            let mut ids = Vec::new();
            return self.collect(cache, conditions, &mut ids).map(|()| ids);
        }
        self.collect_by(cache, conditions, threads)
    }

    /// As [`ElfInPlace::collect_parallel`], however small the search is.
    pub fn collect_by(
        &self,
        cache: Option<&ListCache>,
        conditions: &[CodeCondition],
        threads: usize,
    ) -> Result<Vec<u32>>
    where
        S: Sync,
    {
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<u32>> {
            let (mut ids, mut at) = (Vec::new(), 0);
            let mut mine = next.fetch_add(1, Ordering::Relaxed);
            let found = |id| {
                ids.push(id);
                ControlFlow::Continue(())
            };
            let claims = || {
                let is_mine = at == mine;
                if is_mine {
                    mine = next.fetch_add(1, Ordering::Relaxed);
                }
                at += 1;
                is_mine
            };
            let _ = search::ended(self.claimed(cache, conditions, found, claims))?;
            Ok(ids)
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut all = work()?;
            for other in others {
                match other.join() {
                    Ok(ids) => all.extend_from_slice(&ids?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(all)
        })
    }
}
