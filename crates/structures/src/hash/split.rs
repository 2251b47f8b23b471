//! Splitting a segment: the keys with the next bit of their hash set move to a segment of their own.
//!
//! A key keeps its home, so the moved entries stay in their bucket, in the first slots of it, and everything
//! fits. Only displaced entries move to their home where there is room now.
//!
//! 1. The new segment is filled and flushed.
//! 2. One publication: it is allocated and linked into the chain, the old one's depth grows and it becomes
//!    *divided*. From here on the moved keys are valid in the new segment only.
//! 3. The directory leads to it.
//! 4. The old one's slots and distances are cleared; *divided* is cleared by the publication that follows
//!    those stores. After a crash before that, [`clean_up`] does it at open.

use super::displaced::DisplacedDistances;
use super::key::{Hash, HashKey};
use super::segment::{BUCKETS, Bucket, Ranges, SEGMENT_BYTES, Segment, SegmentState};
use super::{DISTANCE_MAX, HashTable};
use crate::error::{Error, Result};
use crate::latch;
use crate::leaf::bits;
use crate::points::{CLEARED_AFTER_SPLIT, CLEARED_SLOTS, DEPTH_WITH_THE_LINK, WHOLE_AFTER_CLEARING};
use entresol_memory::order::in_order;
use entresol_memory::{Pool, PoolOffset};

/// Reason of a split.
#[derive(Debug, Clone, Copy)]
pub(super) enum SplitReason {
    /// There is no room for a key of the hash.
    Full,
    /// Room for more keys is reserved: the segment is to have this depth.
    Reserve(u32),
}

/// All latches of a segment's buckets; dropping it releases them.
struct SegmentLatches<'t, K: HashKey> {
    table: &'t HashTable<K>,
    segment: PoolOffset,
}

impl<K: HashKey> Drop for SegmentLatches<'_, K> {
    fn drop(&mut self) {
        for bucket in 0..BUCKETS {
            latch::unlock(self.table.latch(self.segment, bucket));
        }
    }
}

impl<K: HashKey> HashTable<K> {
    /// Latches all buckets of a segment. The caller holds no other latch, and all callers take them in this
    /// order.
    fn lock_segment(&self, segment: PoolOffset) -> SegmentLatches<'_, K> {
        for bucket in 0..BUCKETS {
            let mut spins = 0;
            while !latch::try_lock(self.latch(segment, bucket)) {
                latch::pause(&mut spins);
            }
        }
        SegmentLatches { table: self, segment }
    }

    /// Splits a segment of a hash, unless another thread did so already.
    #[cold]
    pub(super) fn split(&self, hash: Hash, at: PoolOffset, reason: SplitReason) -> Result<()> {
        let _held = self.lock_segment(at);
        if self.directory.route(hash).segment != at {
            return Ok(());
        }
        let segment = Segment::<K>::at(&self.pool, at);
        let is_done = match reason {
            SplitReason::Full => has_room(&segment, hash),
            SplitReason::Reserve(depth) => segment.depth() >= depth,
        };
        if is_done {
            return Ok(());
        }
        let depth = segment.depth() + 1;
        self.directory.check_depth(depth)?;
        let reservation = self.pool.reserve(SEGMENT_BYTES)?;
        let upper = Segment::<K>::at(&self.pool, reservation.offset());
        let prefix = segment.prefix() | 1 << (64 - depth);
        assert_ne!(upper.offset(), at, "the upper half is another segment");
        upper.clear(depth, prefix, segment.next());
        let partition = SegmentPartition::of(&segment, depth, self.seed);
        fill_upper(&segment, &upper, &partition)?;
        upper.flush(&self.pool);
        let mut publication = self.pool.publication();
        publication.allocate(reservation);
        segment.set_next(upper.offset(), &mut publication);
        publication.barrier(DEPTH_WITH_THE_LINK);
        segment.set_state(SegmentState { depth, divided: true }, &mut publication);
        let publish = || Ok(publication.publish()?);
        in_order(CLEARED_AFTER_SPLIT, publish, || {
            self.directory.enter(upper.offset(), prefix, depth);
            clean_up(&self.pool, &segment, &partition)
        })
    }
}

/// Partition of a segment's entries by one more bit of the prefix.
pub(super) struct SegmentPartition {
    /// Slots of each bucket whose keys move.
    moving: [u8; BUCKETS],
    /// Displaced entries, of both parts: bucket, slot, hash.
    displaced: Vec<(usize, usize, Hash)>,
}

impl SegmentPartition {
    /// Partitions a segment: keys stay whose hash starts with `depth` bits of the segment's prefix.
    pub(super) fn of<K: HashKey>(segment: &Segment<'_, K>, depth: u32, seed: u64) -> SegmentPartition {
        let mut partition = SegmentPartition { moving: [0; BUCKETS], displaced: Vec::with_capacity(BUCKETS) };
        let prefix = segment.prefix();
        for (index, bucket) in segment.buckets().enumerate() {
            for slot in bits(bucket.valid()) {
                let hash = Hash::of::<K>(bucket.key(slot), seed);
                partition.moving[index] |= u8::from(!hash.starts_with(prefix, depth)) << slot;
                if hash.home() != index {
                    partition.displaced.push((index, slot, hash));
                }
            }
        }
        partition
    }

    fn moves(&self, index: usize, slot: usize) -> bool {
        self.moving[index] >> slot & 1 == 1
    }
}

/// Returns true if an entry of that hash finds room; all buckets are latched.
fn has_room<K: HashKey>(segment: &Segment<'_, K>, hash: Hash) -> bool {
    let home = segment.bucket(hash.home());
    let room_at = |distance| {
        let index = Segment::<K>::behind(hash.home(), distance);
        segment.bucket(index).free_slot().is_some()
    };
    room_at(0) || (home.displaced().with(1, 0).is_some() && (1..=DISTANCE_MAX).any(room_at))
}

/// Copies the moving entries into the fresh segment.
fn fill_upper<K: HashKey>(
    segment: &Segment<'_, K>,
    upper: &Segment<'_, K>,
    partition: &SegmentPartition,
) -> Result<()> {
    let mut moving = partition.moving;
    let mut counts = moving.map(|slots| slots.count_ones() as usize);
    for &(index, slot, hash) in
        partition.displaced.iter().filter(|(index, slot, _)| partition.moves(*index, *slot))
    {
        let home = upper.bucket(hash.home());
        if counts[hash.home()] < Bucket::<K>::CAPACITY {
            counts[hash.home()] += 1;
            counts[index] -= 1;
            moving[index] &= !(1 << slot);
            home.put(&segment.bucket(index), 1 << slot);
            continue;
        }
        let distance = Segment::<K>::distance(hash.home(), index);
        let place = if distance <= DISTANCE_MAX { home.displaced().with(distance, hash.tag()) } else { None };
        let Some(place) = place else {
            // The old segment had room for each, if it was sound.
            let message =
                format!("bucket {index} has an entry without a distance in its home bucket {}", hash.home());
            return Err(Error::Corrupt { offset: segment.offset(), message });
        };
        home.put_displaced(place);
    }
    for (index, slots) in moving.into_iter().enumerate() {
        upper.bucket(index).put(&segment.bucket(index), u64::from(slots));
    }
    Ok(())
}

/// Clears the moved entries of a divided segment. Idempotent, also after a crash that kept some of its
/// stores.
pub(super) fn clean_up<K: HashKey>(
    pool: &Pool,
    segment: &Segment<'_, K>,
    partition: &SegmentPartition,
) -> Result<()> {
    let clear = || {
        clear(pool, segment, partition);
        Ok(())
    };
    in_order(WHOLE_AFTER_CLEARING, clear, || {
        let mut publication = pool.publication();
        segment.set_state(SegmentState { depth: segment.depth(), divided: false }, &mut publication);
        Ok(publication.publish()?)
    })
}

/// Clears the slots of the moved entries, and the distances that are not needed any more.
fn clear<K: HashKey>(pool: &Pool, segment: &Segment<'_, K>, partition: &SegmentPartition) {
    let mut places = [DisplacedDistances::default(); BUCKETS];
    for &(index, _, hash) in
        partition.displaced.iter().filter(|(index, slot, _)| !partition.moves(*index, *slot))
    {
        let distance = Segment::<K>::distance(hash.home(), index);
        if distance <= DISTANCE_MAX {
            let place = places[hash.home()].with(distance, hash.tag());
            // Only a damaged segment has more of them; `check` reports it.
            places[hash.home()] = place.unwrap_or(places[hash.home()]);
        }
    }
    let mut changed = Ranges::new(pool, CLEARED_SLOTS);
    for ((bucket, slots), place) in segment.buckets().zip(partition.moving).zip(places) {
        if bucket.valid() & u64::from(slots) != 0 {
            changed.add(bucket.store_meta(bucket.meta().only(!u64::from(slots))));
        }
        if bucket.displaced() != place {
            changed.add(bucket.put_displaced(place));
        }
    }
    changed.flush();
}
