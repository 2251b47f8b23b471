//! The pool on disk beside a main pool of persistent memory.
//!
//! ```text
//! root "placed" → header   magic | UUID of the main pool (2) | index root
//! index                    number of a state → root of its index, in this pool
//! ```
//! The main pool's directory says which states lie here; this index says where. The main pool is durable with
//! each fence, this one with each sync, so:
//!
//! - A state is here, durably, before the directory names it, and its number is free in the directory only
//!   when it is gone from here, durably. States here that the directory does not name were left by a crash;
//!   the next open removes them.
//! - Writes of a commit here are durable before `LastCTS` in the main pool covers them; the timestamp
//!   announced there lies at or above all that are found here.
//! - An invalid range is removed only when the versions that it hides here are gone, durably.

use crate::{Error, Result, StateId};
use entresol_memory::{DomainKind, Pool, PoolOffset, Publication};
use entresol_structures::{Inserted, KeyWidth, OrderedIndex};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROOT: &str = "placed";
const MAGIC: u64 = u64::from_le_bytes(*b"entr.plc");
const HEADER_WORDS: usize = 4;
const HEADER_BYTES: usize = HEADER_WORDS * 8;
/// Leaves that a step of freeing takes.
const DESTROY_LEAVES: usize = 32;

/// See the [module](self).
pub(crate) struct DiskPool {
    pool: Arc<Pool>,
    header: PoolOffset,
    placed: OrderedIndex,
    placed_root: PoolOffset,
}

impl DiskPool {
    /// Opens the pool for a main one, or makes it so.
    pub(crate) fn open(main: &Pool, pool: Arc<Pool>) -> Result<DiskPool> {
        if pool.domain() != DomainKind::Journal {
            let domain = pool.domain();
            return Err(Error::Invalid(format!("a pool on disk has a journal; this one is {domain}")));
        }
        let header = match pool.root(ROOT) {
            Some(header) => header,
            None => create(main, &pool)?,
        };
        let corrupt = || Error::Corrupt(format!("no table of placed states can be at {header:#x}"));
        let words = pool.try_words(header, HEADER_WORDS).ok_or_else(corrupt)?;
        pool.verify(header, HEADER_BYTES)?;
        let [magic, first, second, root] = [0, 1, 2, 3].map(|at| words[at].load(Ordering::Relaxed));
        if magic != MAGIC {
            return Err(corrupt());
        }
        if [first, second] != main.uuid() {
            let file = pool.file().map_or("the pool on disk".into(), |file| file.display().to_string());
            return Err(Error::Invalid(format!("{file} belongs to another database")));
        }
        let placed_root = PoolOffset::from_word(root);
        let placed = OrderedIndex::open(&pool, placed_root)?;
        Ok(DiskPool { pool, header, placed, placed_root })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The root of a state's index; None: there is no such state here.
    pub(crate) fn root(&self, state: StateId) -> Result<Option<PoolOffset>> {
        Ok(self.placed.get(&key(state))?.map(PoolOffset::from_word))
    }

    /// Adds the index of a new state to the publication that allocates it. Not durable yet.
    pub(crate) fn add<'p>(&'p self, state: StateId, root: PoolOffset, with: Publication<'p>) -> Result<()> {
        match self.placed.insert(&key(state), root.to_word(), with)? {
            Inserted::New => Ok(()),
            Inserted::Exists(other) => {
                Err(Error::Corrupt(format!("{state} is on disk already, with an index at {other:#x}")))
            }
        }
    }

    /// Removes an empty index, durably.
    pub(crate) fn remove(&self, state: StateId, root: PoolOffset) -> Result<()> {
        let mut publication = self.pool.publication();
        publication.free(root);
        self.placed.remove(&key(state), publication)?;
        Ok(self.pool.sync()?)
    }

    /// Removes a state that the directory does not name. No transaction reads it.
    pub(crate) fn take_out(&self, state: StateId, root: PoolOffset) -> Result<()> {
        while !OrderedIndex::destroy_step(&self.pool, root, true, DESTROY_LEAVES)? {}
        self.remove(state, root)
    }

    /// All states that are here, with their roots.
    pub(crate) fn states(&self) -> Result<Vec<(StateId, PoolOffset)>> {
        let (mut states, mut entries, mut from) = (Vec::new(), Vec::new(), None);
        loop {
            let lower: Bound<&[u8]> = from
                .as_ref()
                .map_or(Bound::Unbounded, |key: &entresol_structures::KeyBytes| Bound::Included(&key[..]));
            let next = self.placed.scan_batch(lower, &mut entries)?;
            for (key, root) in entries.drain(..) {
                let number = key[..].try_into().map(u64::from_be_bytes).ok();
                let number = number.and_then(|number| u32::try_from(number).ok());
                let corrupt = || Error::Corrupt(format!("a key of placed states is {key:x?}"));
                states.push((StateId(number.ok_or_else(corrupt)?), PoolOffset::from_word(root)));
            }
            match next {
                Some(key) => from = Some(key),
                None => return Ok(states),
            }
        }
    }

    /// Claims its own objects: the header and the index.
    pub(crate) fn check(
        &self,
        mut claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
    ) -> Result<()> {
        claim(self.header, HEADER_BYTES as u64).map_err(Error::Corrupt)?;
        assert_ne!(self.placed_root, self.header, "two objects");
        Ok(self.placed.check_damaged(claim, |_, _| ())?)
    }
}

fn key(state: StateId) -> [u8; 8] {
    u64::from(state.0).to_be_bytes()
}

fn create(main: &Pool, pool: &Arc<Pool>) -> Result<PoolOffset> {
    let mut publication = pool.publication();
    let placed = OrderedIndex::create(pool, KeyWidth::Eight, &mut publication)?;
    let reservation = pool.reserve(HEADER_BYTES)?;
    let [first, second] = main.uuid();
    let header = publication.allocate(reservation);
    for (word, value) in (0..).zip([MAGIC, first, second, placed.to_word()]) {
        publication.write(header.word(word), value);
    }
    publication.set_root(ROOT, header)?;
    publication.publish()?;
    pool.sync()?;
    Ok(header)
}
