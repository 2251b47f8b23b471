//! A persistent hash table: extendible hashing over segments of two-line buckets with fingerprints.
//!
//! ```text
//!            directory: 2^depth entries                DRAM, rebuilt at open
//!               │          │       │
//!   header ── segment ── segment ── segment ── ... ── 0    pool, singly linked in any order
//!               ├ header: prefix, depth
//!               └ 127 buckets of 128 B: 7 entries (4 of 16-byte keys), fingerprints, places of displaced ones
//! ```
//!
//! A lookup prefetches the two neighbouring lines of one bucket and mostly needs no other: one memory
//! latency. Only displaced entries, whose home was full (a few in a hundred), cost a second one. A segment
//! without room is split in two; the table is never rehashed. Segments are not merged: a table never shrinks.
//!
//! Invariants:
//! 1. The chain from the header holds every segment once; their prefixes cover every hash exactly once.
//! 2. A valid key exists once, in the segment of its hash: in its home bucket, or displaced with its distance
//!    noted there. Entries of a divided segment whose hash does not start with its prefix are not valid.
//! 3. A noted distance may have no entry.
//!
//! Persistent changes, each one publication, so a crash leaves the table before or after it:
//! - insert: the entry (and the distance of a displaced one) flushed, then the word with bit and fingerprint;
//! - replace: the value word; remove: the word with the bit, and afterwards the distance of a displaced one;
//! - split: the new segment flushed, then its allocation, the old one's depth with *divided*, and the next
//!   pointer together; then the old one's slots are cleared and *divided* with them. Opening finishes an
//!   interrupted split.
//!
//! Concurrency: readers validate versions and never write. A writer latches the key's home bucket and, for a
//! displaced entry, tries the latch of its bucket. A split latches all buckets of its segment, in order. All
//! changes of a key are made under its home's latch. Latches are stripes in DRAM.
//!
//! Memory: 8 to 16 bytes of directory for a segment of up to 889 keys, stripes of 128 KiB a table.

mod batch;
mod check;
mod directory;
mod displaced;
mod key;
mod lifecycle;
mod scan;
mod segment;
mod split;
#[cfg(test)]
mod tests;

pub use key::HashKey;

use crate::Inserted;
use crate::error::Result;
use crate::latch::{self, LatchStripes};
use crate::points::{ENTRY_AFTER_ITS_PLACE, PLACE_AFTER_ITS_ENTRY};
use directory::Directory;
use displaced::DISTANCE_MAX;
use entresol_memory::order::in_order;
use entresol_memory::{Pool, PoolOffset, Publication};
use key::Hash;
use segment::{BUCKET_BYTES, BUCKETS, Bucket, SEGMENT_BYTES, Segment, bucket_offset};
use split::SplitReason;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A persistent hash table from keys of 8 or 16 bytes to words; see the [module](self).
pub struct HashTable<K: HashKey> {
    pool: Arc<Pool>,
    header: PoolOffset,
    seed: u64,
    directory: Directory,
    stripes: LatchStripes,
    key: PhantomData<K>,
}

/// Sizes of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HashStats {
    /// Keys.
    pub keys: u64,
    /// Keys that are not in their home bucket.
    pub displaced: u64,
    /// Segments, of 16 KiB.
    pub segments: u64,
    /// Keys that the segments have slots for.
    pub slots: u64,
    /// Bits of a hash that the directory uses.
    pub depth: u32,
    /// Bytes of the directory in DRAM.
    pub directory_bytes: usize,
}

/// Home bucket of a key, and its version when the directory was read.
struct Home<'t, K: HashKey> {
    segment: Segment<'t, K>,
    latch: &'t AtomicU64,
    version: u64,
}

/// Position of a key: bucket and slot, and the distance from home.
struct EntryPosition {
    bucket: usize,
    slot: usize,
    distance: usize,
}

impl<K: HashKey> HashTable<K> {
    /// Returns the pool offset of the table's header, for [`HashTable::open`].
    pub fn root_offset(&self) -> PoolOffset {
        self.header
    }

    #[inline]
    fn hash(&self, key: K::Stored) -> Hash {
        Hash::of::<K>(key, self.seed)
    }

    /// Returns the latch of a bucket. All buckets of a segment have latches of their own; some other segments
    /// share them.
    #[inline]
    fn latch(&self, segment: PoolOffset, bucket: usize) -> &AtomicU64 {
        self.stripes.at(segment.block_number(SEGMENT_BYTES as u64) as usize * (BUCKETS + 1) + bucket)
    }

    /// Prefetches `lines` lines of the home bucket of a hash.
    #[inline]
    fn prefetch(&self, segment: PoolOffset, hash: Hash, lines: u64) {
        let bucket = bucket_offset(segment, hash.home());
        (0..lines).for_each(|line| self.pool.prefetch(bucket.plus(line * 64)));
    }

    #[inline]
    fn find_home(&self, hash: Hash, lines: u64) -> Home<'_, K> {
        let mut spins = 0;
        loop {
            let route = self.directory.route(hash);
            self.prefetch(route.segment, hash, lines);
            let latch = self.latch(route.segment, hash.home());
            let version = latch::read(latch);
            if self.directory.is_current(hash, route) {
                return Home { segment: Segment::at(&self.pool, route.segment), latch, version };
            }
            latch::pause(&mut spins);
        }
    }

    /// Returns the value of a key. Cost: two neighbouring lines of persistent memory, and two more for a
    /// displaced key.
    #[inline]
    pub fn get(&self, key: K::Key<'_>) -> Option<u64> {
        let key = K::stored(key);
        self.get_hashed(self.hash(key), key)
    }

    #[inline]
    fn get_hashed(&self, hash: Hash, key: K::Stored) -> Option<u64> {
        let mut spins = 0;
        loop {
            let home = self.find_home(hash, BUCKET_LINES);
            let bucket = home.segment.bucket(hash.home());
            let value = match bucket.find(hash.fingerprint(), key) {
                Some(slot) => Ok(Some(bucket.value(slot))),
                None if bucket.displaced().is_empty() => Ok(None),
                None => self.get_displaced(&home.segment, hash, key),
            };
            if let Ok(value) = value
                && latch::validate(home.latch, home.version)
            {
                return value;
            }
            latch::pause(&mut spins);
        }
    }

    /// Returns the value of a displaced key; an error on a conflict with a writer.
    #[cold]
    fn get_displaced(
        &self,
        segment: &Segment<'_, K>,
        hash: Hash,
        key: K::Stored,
    ) -> std::result::Result<Option<u64>, ()> {
        for distance in segment.bucket(hash.home()).displaced().distances(hash.tag()) {
            let index = Segment::<K>::behind(hash.home(), distance);
            let latch = self.latch(segment.offset(), index);
            let version = latch::read(latch);
            let bucket = segment.bucket(index);
            if let Some(slot) = bucket.find(hash.fingerprint(), key) {
                let value = bucket.value(slot);
                // Without validation, words of two other keys of 16 bytes might be read as this one.
                return if latch::validate(latch, version) { Ok(Some(value)) } else { Err(()) };
            }
        }
        Ok(None)
    }

    /// Latches the home bucket of a hash.
    #[inline]
    fn lock_home(&self, hash: Hash, lines: u64) -> LatchedHome<'_, K> {
        let mut spins = 0;
        loop {
            let home = self.find_home(hash, lines);
            if latch::try_lock_at(home.latch, home.version) {
                return LatchedHome { segment: home.segment, _held: HeldLatch { latch: home.latch } };
            }
            latch::pause(&mut spins);
        }
    }

    /// Returns the position of a key; its home is latched.
    #[inline]
    fn place_of(segment: &Segment<'_, K>, hash: Hash, key: K::Stored) -> Option<EntryPosition> {
        let home = segment.bucket(hash.home());
        if let Some(slot) = home.find(hash.fingerprint(), key) {
            return Some(EntryPosition { bucket: hash.home(), slot, distance: 0 });
        }
        if home.displaced().is_empty() {
            return None;
        }
        Self::place_behind(segment, hash, key)
    }

    /// Returns the position of a displaced key; its home is latched.
    #[cold]
    fn place_behind(segment: &Segment<'_, K>, hash: Hash, key: K::Stored) -> Option<EntryPosition> {
        segment.bucket(hash.home()).displaced().distances(hash.tag()).find_map(|distance| {
            let bucket = Segment::<K>::behind(hash.home(), distance);
            let slot = segment.bucket(bucket).find(hash.fingerprint(), key)?;
            Some(EntryPosition { bucket, slot, distance })
        })
    }

    /// Adds a key, atomically with the changes in `with`; if the key exists, `with` is dropped. Cost: a
    /// flushed entry and one publication of one word; every few hundred inserts a split.
    #[inline]
    pub fn insert<'p>(&'p self, key: K::Key<'_>, value: u64, with: Publication<'p>) -> Result<Inserted> {
        let key = K::stored(key);
        self.insert_hashed(self.hash(key), key, value, with)
    }

    #[inline(never)]
    fn insert_hashed<'p>(
        &'p self,
        hash: Hash,
        key: K::Stored,
        value: u64,
        mut with: Publication<'p>,
    ) -> Result<Inserted> {
        let mut spins = 0;
        loop {
            let latched = self.lock_home(hash, BUCKET_LINES + 1);
            let segment = &latched.segment;
            if let Some(place) = Self::place_of(segment, hash, key) {
                return Ok(Inserted::Exists(segment.bucket(place.bucket).value(place.slot)));
            }
            let home = segment.bucket(hash.home());
            if let Some(slot) = home.free_slot() {
                home.add(slot, (key, hash.fingerprint()), value, &mut with);
                with.publish()?;
                return Ok(Inserted::New);
            }
            match self.room_behind(segment, hash) {
                DisplacedSlot::At { bucket, slot, place, held: _held } => {
                    // The place before the entry: a crash between leaves a place that leads nowhere.
                    home.write_displaced(place, &mut with);
                    with.after(ENTRY_AFTER_ITS_PLACE);
                    bucket.add(slot, (key, hash.fingerprint()), value, &mut with);
                    with.publish()?;
                    return Ok(Inserted::New);
                }
                DisplacedSlot::Busy => {
                    drop(latched);
                    latch::pause(&mut spins);
                }
                DisplacedSlot::None => {
                    let full = segment.offset();
                    drop(latched);
                    self.split(hash, full, SplitReason::Full)?;
                }
            }
        }
    }

    /// Splits segments until they have room for `keys` keys in all, so that inserting that many splits few
    /// more. A crash in between leaves some of the room. Cost: that of a split for each missing segment of 16
    /// KiB.
    pub fn reserve(&self, keys: u64) -> Result<()> {
        let segments = keys.div_ceil((BUCKETS * Bucket::<K>::CAPACITY) as u64 * 3 / 4).next_power_of_two();
        let depth = segments.ilog2();
        for prefix in 0..segments {
            let hash = Hash(if depth == 0 { 0 } else { prefix << (64 - depth) });
            loop {
                let segment = self.directory.route(hash).segment;
                if Segment::<K>::at(&self.pool, segment).depth() >= depth {
                    break;
                }
                self.split(hash, segment, SplitReason::Reserve(depth))?;
            }
        }
        Ok(())
    }

    /// Finds room for a displaced entry; its home is latched. The bucket found is latched as well. Latches of
    /// other buckets are only tried: their holders may try for this one.
    #[cold]
    fn room_behind(&self, segment: &Segment<'_, K>, hash: Hash) -> DisplacedSlot<'_, K> {
        let displaced = segment.bucket(hash.home()).displaced();
        // Room is mostly near: the first lines are loaded in parallel.
        for distance in 1..=LOOK_AHEAD {
            self.pool.prefetch(bucket_offset(segment.offset(), Segment::<K>::behind(hash.home(), distance)));
        }
        let mut busy = false;
        for distance in 1..=DISTANCE_MAX {
            let index = Segment::<K>::behind(hash.home(), distance);
            let bucket = Segment::at(&self.pool, segment.offset()).bucket(index);
            // A full bucket is skipped without its latch.
            if bucket.free_slot().is_none() {
                continue;
            }
            let Some(place) = displaced.with(distance, hash.tag()) else { break };
            let latch = self.latch(segment.offset(), index);
            if !latch::try_lock(latch) {
                busy = true;
                continue;
            }
            let held = HeldLatch { latch };
            if let Some(slot) = bucket.free_slot() {
                return DisplacedSlot::At { bucket, slot, place, held };
            }
        }
        if busy { DisplacedSlot::Busy } else { DisplacedSlot::None }
    }

    /// Changes the value of a key, atomically with the changes in `with`; returns the old value. If the key
    /// is missing, `with` is dropped.
    #[inline]
    pub fn replace<'p>(&'p self, key: K::Key<'_>, value: u64, with: Publication<'p>) -> Result<Option<u64>> {
        let key = K::stored(key);
        self.replace_hashed(self.hash(key), key, value, with)
    }

    #[inline(never)]
    fn replace_hashed<'p>(
        &'p self,
        hash: Hash,
        key: K::Stored,
        value: u64,
        mut with: Publication<'p>,
    ) -> Result<Option<u64>> {
        let latched = self.lock_home(hash, BUCKET_LINES);
        let Some(place) = Self::place_of(&latched.segment, hash, key) else { return Ok(None) };
        let bucket = latched.segment.bucket(place.bucket);
        let old = bucket.value(place.slot);
        with.set(bucket.value_offset(place.slot), value);
        with.publish()?;
        Ok(Some(old))
    }

    /// Removes a key, atomically with the changes in `with`; returns its value. If the key is missing, `with`
    /// is dropped.
    #[inline]
    pub fn remove<'p>(&'p self, key: K::Key<'_>, with: Publication<'p>) -> Result<Option<u64>> {
        let key = K::stored(key);
        self.remove_hashed(self.hash(key), key, with)
    }

    #[inline(never)]
    fn remove_hashed<'p>(
        &'p self,
        hash: Hash,
        key: K::Stored,
        mut with: Publication<'p>,
    ) -> Result<Option<u64>> {
        let mut spins = 0;
        loop {
            let latched = self.lock_home(hash, BUCKET_LINES);
            let segment = &latched.segment;
            let Some(place) = Self::place_of(segment, hash, key) else { return Ok(None) };
            let other = self.latch(segment.offset(), place.bucket);
            let is_displaced = place.distance > 0;
            if is_displaced && !latch::try_lock(other) {
                // Its holder may try for ours.
                drop(latched);
                latch::pause(&mut spins);
                continue;
            }
            let _other = is_displaced.then(|| HeldLatch { latch: other });
            let bucket = segment.bucket(place.bucket);
            let value = bucket.value(place.slot);
            let forget = || {
                let home = segment.bucket(hash.home());
                home.forget_displaced(home.displaced().without(place.distance, hash.tag()), &self.pool);
            };
            bucket.set_meta(bucket.meta().without(place.slot), &mut with);
            let publish = || Ok(with.publish()?);
            // The other way round, a crash could leave an entry that is not found.
            in_order(PLACE_AFTER_ITS_ENTRY, publish, || {
                if is_displaced {
                    forget();
                }
                Ok::<_, crate::Error>(())
            })?;
            return Ok(Some(value));
        }
    }
}

/// Lines of a bucket. An insert prefetches one more: a quarter of the keys find their home full, and of those
/// most find room in the bucket after it.
const BUCKET_LINES: u64 = (BUCKET_BYTES / 64) as u64;

/// Buckets after a full home whose lines are prefetched together.
const LOOK_AHEAD: usize = 4;

/// Result of the search for room near a full home.
enum DisplacedSlot<'t, K: HashKey> {
    At {
        bucket: Bucket<'t, K>,
        slot: usize,
        place: displaced::DisplacedDistances,
        held: HeldLatch<'t>,
    },
    /// None without concurrent writers.
    Busy,
    None,
}

/// Latch that this thread holds; dropping it releases the latch.
struct HeldLatch<'t> {
    latch: &'t AtomicU64,
}

impl Drop for HeldLatch<'_> {
    #[inline]
    fn drop(&mut self) {
        latch::unlock(self.latch);
    }
}

/// Segment of a key whose home bucket this thread has latched.
struct LatchedHome<'t, K: HashKey> {
    segment: Segment<'t, K>,
    _held: HeldLatch<'t>,
}
