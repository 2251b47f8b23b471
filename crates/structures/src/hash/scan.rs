//! Scans of all entries, a segment at a time, in order of the hashes' prefixes.

use super::HashTable;
use super::key::{Hash, HashKey};
use super::segment::{BUCKETS, Segment};
use crate::latch;
use crate::leaf::bits;

impl<K: HashKey> HashTable<K> {
    /// Appends the entries of the segment at a position, in no order; returns the position to continue from,
    /// or none at the end. The first position is 0; positions are valid for this table only.
    ///
    /// A key that exists throughout is returned once; one that is inserted or removed meanwhile may be
    /// returned.
    pub fn scan_batch(&self, position: u64, entries: &mut Vec<(K::Stored, u64)>) -> Option<u64> {
        let before = entries.len();
        loop {
            let found = self.directory.route(Hash(position)).segment;
            let segment = Segment::<K>::at(&self.pool, found);
            let (prefix, depth) = (segment.prefix(), segment.depth());
            // The directory may have been read just before a split.
            let is_complete = Hash(position).starts_with(prefix, depth)
                && (0..BUCKETS).all(|home| self.scan_home(&segment, depth, home, entries));
            if is_complete {
                // A position inside a segment dates from before a split.
                let is_new = |(key, _): &(K::Stored, u64)| {
                    let hash = self.hash(*key);
                    hash.0 >= position && segment.has(hash)
                };
                let mut end = before;
                for index in before..entries.len() {
                    if is_new(&entries[index]) {
                        entries[end] = entries[index];
                        end += 1;
                    }
                }
                entries.truncate(end);
                let keys = 1u64.checked_shl(64 - depth).unwrap_or(0);
                let next = prefix.wrapping_add(keys);
                return (next != 0).then_some(next);
            }
            // It was split: from its first bucket again, for its present entries.
            entries.truncate(before);
        }
    }

    /// Appends the entries of one home bucket; false if the segment's depth has changed.
    fn scan_home(
        &self,
        segment: &Segment<'_, K>,
        depth: u32,
        home: usize,
        entries: &mut Vec<(K::Stored, u64)>,
    ) -> bool {
        let before = entries.len();
        let mut spins = 0;
        loop {
            let latch = self.latch(segment.offset(), home);
            let version = latch::read(latch);
            let is_same = segment.depth() == depth;
            let distances = segment.bucket(home).displaced().all_distances();
            let mut validated = true;
            for distance in std::iter::once(0).chain(distances) {
                let index = Segment::<K>::behind(home, distance);
                let other = self.latch(segment.offset(), index);
                let other_version = if distance == 0 { version } else { latch::read(other) };
                let bucket = segment.bucket(index);
                for slot in bits(bucket.valid()) {
                    let (key, value) = (bucket.key(slot), bucket.value(slot));
                    if self.hash(key).home() == home {
                        entries.push((key, value));
                    }
                }
                validated &= latch::validate(other, other_version);
            }
            if validated && latch::validate(latch, version) {
                return is_same;
            }
            entries.truncate(before);
            latch::pause(&mut spins);
        }
    }
}
