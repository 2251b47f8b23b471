//! Sizes and invariants of a table.

use super::key::{Hash, HashKey};
use super::segment::{Bucket, Segment};
use super::{BUCKETS, DISTANCE_MAX, HashStats, HashTable};
use crate::error::{Error, Result};
use crate::leaf::bits;
use entresol_memory::PoolOffset;
use std::collections::HashSet;

fn corrupt<T>(segment: PoolOffset, message: String) -> Result<T> {
    Err(Error::Corrupt { offset: segment, message })
}

impl<K: HashKey> HashTable<K> {
    fn segments(&self) -> impl Iterator<Item = Segment<'_, K>> {
        let segment = |at: PoolOffset| (!at.is_null()).then(|| Segment::<K>::at(&self.pool, at));
        std::iter::successors(segment(self.first_segment()), move |last| segment(last.next()))
    }

    /// Counts sizes. Cost: the complete table is read. With concurrent writers it is an estimate.
    pub fn stats(&self) -> HashStats {
        let mut stats = HashStats {
            depth: self.directory.depth(),
            directory_bytes: self.directory.bytes(),
            ..HashStats::default()
        };
        for segment in self.segments() {
            stats.segments += 1;
            stats.slots += (BUCKETS * Bucket::<K>::CAPACITY) as u64;
            for (index, bucket) in segment.buckets().enumerate() {
                for slot in bits(bucket.valid()) {
                    let home = self.hash(bucket.key(slot)).home();
                    stats.keys += 1;
                    stats.displaced += u64::from(home != index);
                }
            }
        }
        stats
    }

    /// Verifies all invariants of the table; there must be no concurrent writers. `object` is called with the
    /// offset of every pool object that the table consists of (not those that its values may refer to).
    pub fn check(&self, mut object: impl FnMut(PoolOffset)) -> Result<()> {
        object(self.header);
        for segment in self.segments() {
            object(segment.offset());
            match segment.state() {
                Some(state) if !state.divided => {}
                state => return corrupt(segment.offset(), format!("its state is {state:?}")),
            }
            let mut keys = HashSet::new();
            for (index, bucket) in segment.buckets().enumerate() {
                if bucket.meta().0 & 0xFF != bucket.valid() {
                    let message = format!("bucket {index} has bits of slots that do not exist");
                    return corrupt(segment.offset(), message);
                }
                for slot in bits(bucket.valid()) {
                    self.check_entry(&segment, index, slot)?;
                    let key = bucket.key(slot);
                    if !keys.insert([0, K::WORDS - 1].map(|word| K::word(key, word))) {
                        return corrupt(
                            segment.offset(),
                            format!("the key of bucket {index} slot {slot} is duplicated"),
                        );
                    }
                }
            }
        }
        Ok(())
    }

    fn check_entry(&self, segment: &Segment<'_, K>, index: usize, slot: usize) -> Result<()> {
        let bucket = segment.bucket(index);
        let (key, value) = (bucket.key(slot), bucket.value(slot));
        let hash: Hash = self.hash(key);
        let bad = |message: &str| {
            corrupt(segment.offset(), format!("the key of bucket {index} slot {slot} {message}"))
        };
        if self.directory.route(hash).segment != segment.offset() || !segment.has(hash) {
            return bad("belongs to another segment");
        }
        if bucket.meta().fingerprint(slot) != hash.fingerprint() {
            return bad("does not match its fingerprint");
        }
        let distance = Segment::<K>::distance(hash.home(), index);
        if distance > DISTANCE_MAX {
            return bad("is too far from home");
        }
        let mut places = segment.bucket(hash.home()).displaced().distances(hash.tag());
        if distance > 0 && !places.any(|place| place == distance) {
            return bad("has no distance in its home bucket");
        }
        if self.get_hashed(hash, key) != Some(value) {
            return bad("is not found");
        }
        Ok(())
    }
}
