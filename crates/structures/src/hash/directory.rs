//! Directory: maps the first bits of a hash to the segment of its keys, an array in DRAM, rebuilt at open.
//!
//! A directory of depth d has 2^d entries, each the number of a segment: its offset in segments, which are
//! aligned to their size. Doubling allocates the next level's array, copies every entry twice and then raises
//! the depth. Older levels stay, unused, so that a reader never has a dangling reference; all of them
//! together are as large as the newest.
//!
//! Readers take no lock. A reader looks its segment up again after it has read the version of the bucket: a
//! split changes the directory while it holds the latches of all of the segment's buckets, so an entry that
//! is the same after the version was read is right for as long as that version is valid.
//!
//! Memory: 8 bytes for each entry of the deepest level, and at most [`ENTRIES_PER_SEGMENT`] entries a
//! segment.

use super::key::Hash;
use super::segment::SEGMENT_BYTES;
use crate::error::{Error, Result};
use entresol_memory::PoolOffset;
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// The deepest directory: 2^32 entries, more than an address range of segments has.
pub(super) const DEPTH_MAX: u32 = 32;
/// Uniformly distributed keys need about two entries a segment. With more than this the keys are not
/// uniformly distributed: then inserting fails instead of exhausting memory.
const ENTRIES_PER_SEGMENT: u64 = 64;
const ENTRIES_MIN: u64 = 1 << 12;

/// See the [module](self).
pub(super) struct Directory {
    levels: [OnceLock<Box<[AtomicU32]>>; DEPTH_MAX as usize + 1],
    depth: AtomicU32,
    /// Locked while entries change.
    changing: Mutex<DirectoryState>,
}

struct DirectoryState {
    /// The number of segments.
    segments: u64,
    /// Reservation of the levels in the pool's memory budget, if it has one.
    memory: Option<MemoryReservation>,
}

/// Result of a directory lookup: the segment, and the depth at which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) segment: PoolOffset,
    depth: u32,
}

/// Returns the number of the segment at an offset. The largest pool has fewer than 2^30 of them.
fn number(segment: PoolOffset) -> u32 {
    debug_assert!(segment.is_aligned(SEGMENT_BYTES as u64));
    u32::try_from(segment.block_number(SEGMENT_BYTES as u64)).expect("offsets are below 2^43")
}

fn level_bytes(depth: u32) -> u64 {
    (size_of::<AtomicU32>() as u64) << depth
}

fn fresh_level(depth: u32, entry: impl Fn(usize) -> u32) -> Box<[AtomicU32]> {
    (0..1usize << depth).map(|index| AtomicU32::new(entry(index))).collect()
}

impl Directory {
    /// Builds the directory of segments, each as (offset, prefix, depth). Fails with a description if they do
    /// not cover every hash exactly once.
    pub(super) fn build(
        segments: &[(PoolOffset, u64, u32)],
        memory: Option<&Arc<MemoryBudget>>,
    ) -> std::result::Result<Directory, String> {
        let depth = segments.iter().map(|(_, _, depth)| *depth).max().unwrap_or(0);
        let covered: u64 = segments.iter().map(|(_, _, depth)| 1u64 << (DEPTH_MAX - depth)).sum();
        if covered != 1 << DEPTH_MAX {
            return Err("its segments do not cover every hash exactly once".to_string());
        }
        if !Self::allows(depth, segments.len() as u64) {
            return Err(format!("a depth of {depth} bits is too large for {} segments", segments.len()));
        }
        let mut memory = memory.map(|memory| memory.empty(MemoryConsumer::InnerNodes));
        if let Some(memory) = &mut memory {
            // Existing segments must be in the directory.
            memory.grow_unchecked(level_bytes(depth));
        }
        let level = fresh_level(depth, |_| 0);
        for &(segment, prefix, local_depth) in segments {
            for entry in &level[Self::range(prefix, local_depth, depth)] {
                if entry.load(Ordering::Relaxed) != 0 {
                    return Err("two of its segments cover the same hashes".to_string());
                }
                entry.store(number(segment), Ordering::Relaxed);
            }
        }
        let levels: [OnceLock<_>; DEPTH_MAX as usize + 1] = std::array::from_fn(|_| OnceLock::new());
        levels[depth as usize].get_or_init(|| level);
        let changing = Mutex::new(DirectoryState { segments: segments.len() as u64, memory });
        Ok(Directory { levels, depth: AtomicU32::new(depth), changing })
    }

    fn allows(depth: u32, segments: u64) -> bool {
        depth <= DEPTH_MAX && 1 << depth <= (segments * ENTRIES_PER_SEGMENT).max(ENTRIES_MIN)
    }

    /// Returns the entries of a level for a prefix.
    fn range(prefix: u64, local_depth: u32, depth: u32) -> std::ops::Range<usize> {
        let first = Hash(prefix).prefix(depth);
        first..first + (1 << (depth - local_depth))
    }

    #[inline]
    fn level(&self, depth: u32) -> &[AtomicU32] {
        self.levels[depth as usize].get().expect("a depth is set after its level is made")
    }

    /// Returns the segment of a hash.
    #[inline]
    pub(super) fn route(&self, hash: Hash) -> Route {
        let depth = self.depth.load(Ordering::Acquire);
        let number = self.level(depth)[hash.prefix(depth)].load(Ordering::Acquire);
        Route { segment: PoolOffset::NULL.block(u64::from(number), SEGMENT_BYTES as u64), depth }
    }

    /// Returns true if a route is still valid.
    #[inline]
    pub(super) fn is_current(&self, hash: Hash, route: Route) -> bool {
        self.route(hash) == route
    }

    /// Returns an error if a split to this depth made the directory too large for the number of segments, or
    /// for the pool's memory budget.
    pub(super) fn check_depth(&self, local_depth: u32) -> Result<()> {
        let mut changing = self.changing.lock();
        if Self::allows(local_depth, changing.segments) {
            return self.reserve(&mut changing, local_depth);
        }
        let message = format!(
            "the keys of a hash table are not uniformly distributed: a segment would have a depth of {local_depth} bits"
        );
        Err(Error::Memory(entresol_memory::Error::OutOfSpace { what: message }))
    }

    /// Reserves memory for the levels down to a depth, before anything changes.
    fn reserve(&self, changing: &mut DirectoryState, depth: u32) -> Result<()> {
        let missing: u64 = (self.depth() + 1..=depth).map(level_bytes).sum();
        let Some(memory) = changing.memory.as_mut().filter(|_| missing > 0) else { return Ok(()) };
        // Some of them may remain from a split that failed.
        let wanted = self.bytes() as u64 + missing;
        let more = wanted.saturating_sub(memory.bytes());
        memory.try_grow(more).map_err(|limit| Error::Memory(limit.into()))
    }

    /// Enters a new segment for a prefix; the latches of the one that had it are held.
    pub(super) fn enter(&self, segment: PoolOffset, prefix: u64, local_depth: u32) {
        let mut changing = self.changing.lock();
        changing.segments += 1;
        let mut depth = self.depth.load(Ordering::Relaxed);
        while depth < local_depth {
            let old = self.level(depth);
            // Complete before the depth names it.
            let doubled = fresh_level(depth + 1, |index| old[index / 2].load(Ordering::Relaxed));
            self.levels[depth as usize + 1].get_or_init(|| doubled);
            depth += 1;
            self.depth.store(depth, Ordering::Release);
        }
        debug_assert!(local_depth <= depth, "the directory is as deep as its deepest segment");
        for entry in &self.level(depth)[Self::range(prefix, local_depth, depth)] {
            entry.store(number(segment), Ordering::Release);
        }
    }

    /// Number of bits that it distinguishes.
    pub(super) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Bytes of all levels.
    pub(super) fn bytes(&self) -> usize {
        self.levels.iter().filter_map(OnceLock::get).map(|level| level.len() * 4).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 1 << 63;
    const A: PoolOffset = PoolOffset::new(SEGMENT_BYTES as u64);
    const B: PoolOffset = PoolOffset::new(2 * SEGMENT_BYTES as u64);
    const C: PoolOffset = PoolOffset::new(3 * SEGMENT_BYTES as u64);

    #[test]
    fn doubling_keeps_the_ways_of_all_others() {
        let directory = Directory::build(&[(A, 0, 1), (B, HALF, 1)], None).unwrap();
        let before = directory.route(Hash(HALF));
        directory.enter(C, 1 << 61, 3);
        assert_eq!(directory.depth(), 3);
        let found: Vec<PoolOffset> = (0..8).map(|i| directory.route(Hash(i << 61)).segment).collect();
        assert_eq!(found, [A, C, A, A, B, B, B, B]);
        assert!(!directory.is_current(Hash(HALF), before), "an old depth is looked up again");
    }

    #[test]
    fn segments_must_cover_every_hash_once() {
        assert!(Directory::build(&[], None).is_err());
        assert!(Directory::build(&[(A, 0, 1)], None).is_err());
        assert!(Directory::build(&[(A, 0, 1), (B, 1 << 60, 1)], None).is_err());
        assert!(Directory::build(&[(A, 0, 1), (B, HALF, 2), (C, HALF | 1 << 62, 2)], None).is_ok());
    }

    #[test]
    fn a_directory_that_outgrows_its_segments_is_refused() {
        let directory = Directory::build(&[(A, 0, 0)], None).unwrap();
        assert!(directory.check_depth(12).is_ok());
        let error = directory.check_depth(13).unwrap_err();
        assert!(error.to_string().contains("not uniformly distributed"), "{error}");
    }

    #[test]
    fn levels_are_reserved_before_they_are_made() {
        let memory = MemoryBudget::tiny(16 << 10);
        let directory = Directory::build(&[(A, 0, 0)], Some(&memory)).unwrap();
        let used = || memory.usage().consumers[MemoryConsumer::InnerNodes as usize].used_bytes;
        assert_eq!(used(), 4);
        directory.check_depth(3).unwrap();
        assert_eq!(used(), 4 + 8 + 16 + 32);
        directory.enter(B, HALF, 1);
        directory.enter(C, 1 << 61, 3);
        assert_eq!(used(), directory.bytes() as u64);
        let error = directory.check_depth(12).unwrap_err().to_string();
        assert!(error.contains("inner nodes need"), "{error}");
        assert_eq!(used(), directory.bytes() as u64);
        drop(directory);
        assert_eq!(used(), 0);
    }
}
