//! Distances of displaced entries: eight bytes in their home bucket.
//!
//! A byte gives the number of buckets between an entry and its home (low four bits, 1 to 15; 0: the byte is
//! free) and four bits of its hash, so that a search for another key mostly does not read that bucket. It is
//! a hint that may have false positives and never false negatives: a byte without an entry costs one access.

/// Maximum distance of an entry from its home bucket.
pub(super) const DISTANCE_MAX: usize = 15;

/// The word with the distances of a home's displaced entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DisplacedDistances(pub(super) u64);

#[inline]
fn byte_of(distance: usize, tag: u8) -> u8 {
    debug_assert!((1..=DISTANCE_MAX).contains(&distance) && tag < 16);
    tag << 4 | distance as u8
}

impl DisplacedDistances {
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the distances at which an entry with the tag may be.
    pub(super) fn distances(self, tag: u8) -> impl Iterator<Item = usize> {
        let bytes = self.0.to_le_bytes().into_iter();
        bytes.filter(move |byte| byte & 0xF != 0 && byte >> 4 == tag).map(|byte| usize::from(byte & 0xF))
    }

    /// Adds an entry, if there is a free byte.
    pub(super) fn with(self, distance: usize, tag: u8) -> Option<DisplacedDistances> {
        let mut bytes = self.0.to_le_bytes();
        let free = bytes.iter_mut().find(|byte| **byte & 0xF == 0)?;
        *free = byte_of(distance, tag);
        Some(DisplacedDistances(u64::from_le_bytes(bytes)))
    }

    /// Removes one of the entries at that distance with that tag, if there is one.
    pub(super) fn without(self, distance: usize, tag: u8) -> DisplacedDistances {
        let mut bytes = self.0.to_le_bytes();
        if let Some(byte) = bytes.iter_mut().find(|byte| **byte == byte_of(distance, tag)) {
            *byte = 0;
        }
        DisplacedDistances(u64::from_le_bytes(bytes))
    }

    /// Returns every distance at which there may be an entry, each once.
    pub(super) fn all_distances(self) -> impl Iterator<Item = usize> {
        let found = self.0.to_le_bytes().iter().fold(0u16, |found, byte| found | 1 << (byte & 0xF));
        (1..=DISTANCE_MAX).filter(move |distance| found >> distance & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_places_are_kept_and_taken_out_one_by_one() {
        let mut displaced = DisplacedDistances::default();
        for distance in [3, 15, 3, 1, 7, 7, 2, 9] {
            displaced = displaced.with(distance, 5).unwrap();
        }
        assert_eq!(displaced.with(4, 1), None);
        assert_eq!(displaced.distances(5).count(), 8);
        assert_eq!(displaced.distances(4).count(), 0);
        assert_eq!(displaced.all_distances().collect::<Vec<_>>(), [1, 2, 3, 7, 9, 15]);
        let fewer = displaced.without(3, 5);
        assert_eq!(fewer.distances(5).filter(|distance| *distance == 3).count(), 1);
        assert_eq!(fewer.without(3, 4), fewer);
        assert!(fewer.with(4, 1).unwrap().distances(1).eq([4]));
    }

    #[test]
    fn a_place_with_tag_zero_is_not_an_empty_byte() {
        let displaced = DisplacedDistances::default().with(1, 0).unwrap();
        assert!(!displaced.is_empty());
        assert!(displaced.distances(0).eq([1]));
        assert!(displaced.without(1, 0).is_empty());
    }
}
