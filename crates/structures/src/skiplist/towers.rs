//! Towers: the forward pointers above level 0. In the pool they are words of the nodes; in DRAM they are
//! records of an arena, with a copy of the low key, so that a descent touches the pool at level 0 only.
//!
//! ```text
//! word of a record   content
//! 0                  the node's offset
//! 1, 2               its low key
//! 3 ..               forward pointers from level 1 on: records
//! ```
//!
//! The arena grows by segments that double, which are part of the pool's memory budget. A released record is reused when it can have no readers any more:
//! the pool's guards delay it as they do freed objects.

use super::LEVELS_MAX;
use crate::node::FixedKey;
use entresol_memory::budget::{MemoryConsumer, MemoryReservation};
use entresol_memory::{Guard, Pool, PoolOffset};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Placement of the towers.
pub trait Towers: Sized + Send + Sync + 'static {
    /// Name in messages.
    const NAME: &'static str;
    /// Number in headers.
    const NUMBER: u8;
    /// True if they are words of the nodes.
    const PERSISTENT: bool;
}

/// In the pool: opening has nothing to rebuild.
#[derive(Debug)]
pub struct PoolTowers;

/// In DRAM: descents are faster; opening reads a line of every node.
#[derive(Debug)]
pub struct DramTowers;

impl Towers for PoolTowers {
    const NAME: &'static str = "towers in the pool";
    const NUMBER: u8 = 1;
    const PERSISTENT: bool = true;
}

impl Towers for DramTowers {
    const NAME: &'static str = "towers in DRAM";
    const NUMBER: u8 = 0;
    const PERSISTENT: bool = false;
}

/// Words of a record in front of its pointers.
const FRONT: usize = 3;
/// Words of the first segment, a power of two.
const FIRST_WORDS: u64 = 1024;
/// Segments: the last would have 512 GiB.
const SEGMENTS: usize = 27;

/// Records of towers. A record's number is the index of its first word; 0 is the list's head, to which no
/// pointer leads.
pub(super) struct TowerArena {
    segments: [OnceLock<Box<[AtomicU64]>>; SEGMENTS],
    room: Mutex<FreeSpace>,
    /// Reservation of the segments in the pool's memory budget, if it has one.
    memory: Option<Mutex<MemoryReservation>>,
}

#[derive(Default)]
struct FreeSpace {
    /// The first word that was never used.
    next: u64,
    /// Free records, by height.
    free: [Vec<u64>; LEVELS_MAX + 1],
    used_words: u64,
}

/// Returns the segment of a word and its index there.
#[inline]
fn locate(word: u64) -> (usize, usize) {
    let shifted = word + FIRST_WORDS;
    let segment = shifted.ilog2() - FIRST_WORDS.ilog2();
    (segment as usize, (shifted - (FIRST_WORDS << segment)) as usize)
}

impl TowerArena {
    /// Creates an arena with the head's tower.
    pub(super) fn new(pool: &Pool, head: PoolOffset) -> TowerArena {
        let arena = TowerArena {
            segments: [const { OnceLock::new() }; SEGMENTS],
            room: Mutex::default(),
            memory: pool.memory().map(|memory| Mutex::new(memory.empty(MemoryConsumer::InnerNodes))),
        };
        let tower = arena.allocate(head, 0u64, LEVELS_MAX);
        assert_eq!(tower, 0, "the head's tower is the first");
        arena
    }

    #[inline]
    fn word(&self, word: u64) -> &AtomicU64 {
        let (segment, place) = locate(word);
        let segment = self.segments[segment].get().expect("a record is allocated before it is referred to");
        &segment[place]
    }

    /// Allocates a record of a node of this height, at least two, with null pointers.
    pub(super) fn allocate<K: FixedKey>(&self, node: PoolOffset, low: K, height: usize) -> u64 {
        assert!((2..=LEVELS_MAX).contains(&height), "a tower has 2 to {LEVELS_MAX} levels, not {height}");
        let words = (FRONT + height - 1) as u64;
        let tower = {
            let mut room = self.room.lock();
            room.used_words += words;
            match room.free[height].pop() {
                Some(tower) => tower,
                None => {
                    let (segment, place) = locate(room.next);
                    let segment_words = FIRST_WORDS << segment;
                    if place as u64 + words > segment_words {
                        // The next segment's first word.
                        room.next += segment_words - place as u64;
                    }
                    let tower = room.next;
                    room.next += words;
                    let (segment, _) = locate(tower);
                    self.segments[segment].get_or_init(|| {
                        if let Some(memory) = &self.memory {
                            // In the middle of an insert, which must not fail: pages of the pool are evicted instead.
                            memory.lock().grow_unchecked((FIRST_WORDS << segment) * 8);
                        }
                        (0..FIRST_WORDS << segment).map(|_| AtomicU64::new(0)).collect()
                    });
                    tower
                }
            }
        };
        self.word(tower).store(node.to_word(), Ordering::Relaxed);
        (0..K::WORDS).for_each(|i| self.word(tower + 1 + i as u64).store(low.word(i), Ordering::Relaxed));
        (1..height).for_each(|level| self.forward(tower, level).store(0, Ordering::Relaxed));
        tower
    }

    #[inline]
    pub(super) fn node(&self, tower: u64) -> PoolOffset {
        PoolOffset::from_word(self.word(tower).load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn low<K: FixedKey>(&self, tower: u64) -> K {
        let (segment, place) = locate(tower);
        let segment = self.segments[segment].get().expect("a record is allocated before it is referred to");
        K::load(&segment[place + 1..place + 1 + K::WORDS])
    }

    /// Returns the pointer of a level above 0.
    #[inline]
    pub(super) fn forward(&self, tower: u64, level: usize) -> &AtomicU64 {
        self.word(tower + (FRONT + level - 1) as u64)
    }

    /// Releases a record without references, once all present readers have left.
    pub(super) fn release(self: &Arc<TowerArena>, tower: u64, height: usize, pinned: &Guard) {
        let arena = Arc::downgrade(self);
        pinned.defer(move || {
            if let Some(arena) = arena.upgrade() {
                let mut room = arena.room.lock();
                debug_assert!(
                    0 < tower && tower < room.next && !room.free[height].contains(&tower),
                    "the record {tower} is released once"
                );
                room.free[height].push(tower);
                room.used_words -= (FRONT + height - 1) as u64;
            }
        });
    }

    /// Returns the bytes of records in use.
    pub(super) fn bytes(&self) -> u64 {
        self.room.lock().used_words * 8
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_do_not_overlap_and_stay_unchanged() {
        let pool = Pool::volatile(&entresol_memory::PoolOptions::default()).unwrap();
        let arena = TowerArena::new(&pool, PoolOffset::new(64));
        let made: Vec<(u64, usize)> = (0..5000u64)
            .map(|i| {
                let height = 2 + (i % 11) as usize;
                let tower = arena.allocate(PoolOffset::new(i * 64), u128::from(i), height);
                (1..height).for_each(|level| arena.forward(tower, level).store(i, Ordering::Relaxed));
                (tower, height)
            })
            .collect();
        for (i, (tower, height)) in (0..).zip(made) {
            assert_eq!(arena.node(tower), PoolOffset::new(i * 64));
            assert_eq!(arena.low::<u128>(tower), u128::from(i));
            assert!((1..height).all(|level| arena.forward(tower, level).load(Ordering::Relaxed) == i));
        }
    }
}
