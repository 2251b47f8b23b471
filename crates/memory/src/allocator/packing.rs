//! Packing: on a rewrite, objects move from slabs far back to free objects of slabs in front.
//!
//! After a burst of allocation the surviving objects are spread over many slabs, each partly used, and none
//! of these becomes free. Each class has a *line*, the pool offset from which on its objects fit into the
//! free objects before it. A writer that is about to change an object behind the line may replace it by a new
//! one in front ([`crate::Pool::reserve_before`]); threads do not cache objects freed behind the line. Lines
//! are computed anew every few seconds, and removed when no object before them is free.

use super::size_class::{CLASSES, class_bytes, class_of};
use super::slab::{ClassSlabs, objects_of};
use super::{Allocator, Reservation, Space};
use crate::error::Result;
use crate::layout::CHUNK_BYTES;
use crate::offset::{AtomicPoolOffset, PoolOffset};
use std::array;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A class is packed while more than this part of its slabs is free, as a divisor,
const FREE_PART: u64 = 16;
/// and no less than so many slabs' worth.
const FREE_SLABS_MIN: u64 = 4;
/// Number of slabs whose free objects are all in threads' caches from which on the caches release them.
const UNUSED_SLABS_MAX: u64 = 8;
/// No line: no object lies behind it.
const NO_LINE: PoolOffset = PoolOffset::new(u64::MAX);

/// The lines of all classes.
pub(super) struct PackingLines([AtomicPoolOffset; CLASSES]);

impl PackingLines {
    pub(super) fn new() -> PackingLines {
        PackingLines(array::from_fn(|_| AtomicPoolOffset::new(NO_LINE)))
    }

    #[inline]
    pub(super) fn is_behind(&self, class: usize, offset: PoolOffset) -> bool {
        offset >= self.0[class].load(Ordering::Relaxed)
    }

    fn set(&self, class: usize, line: Option<PoolOffset>) {
        debug_assert!(line.is_none_or(|line| line.begins_chunk()), "a line lies between slabs: {line:?}");
        self.0[class].store(line.unwrap_or(NO_LINE), Ordering::Relaxed);
    }
}

impl ClassSlabs {
    /// Pool offset from which on the objects of partly used slabs fit into the free objects before it, with a
    /// quarter of these to spare; none while packing frees little.
    fn line(&self) -> Option<PoolOffset> {
        let objects = u64::from(objects_of(self.class()));
        let (slabs, mut free) = self.counts();
        if free * FREE_PART < slabs * objects || free < FREE_SLABS_MIN * objects {
            return None;
        }
        let (mut line, mut moving) = (None, 0);
        for (chunk, free_here) in self.partial_from_the_back() {
            debug_assert!(free_here <= free, "no slab has more free objects than its class");
            free -= free_here;
            moving += objects - free_here;
            if moving * 4 > free * 3 {
                break;
            }
            line = Some(PoolOffset::of_chunk(chunk));
        }
        line
    }
}

impl Allocator {
    /// Computes the lines anew, and makes threads release cached objects of slabs without other objects.
    pub(crate) fn pack(self: &Arc<Self>, space: &dyn Space) {
        let mut unused_slabs = 0;
        for (class, slabs) in self.classes.iter().enumerate() {
            let (line, (count, free)) = {
                let slabs = slabs.lock();
                (slabs.line(), slabs.counts())
            };
            self.lines.set(class, line);
            if let Some(line) = line {
                let mut behind = Vec::new();
                self.caches.for_each(|_, cache| behind.append(&mut cache.take_from(class, line)));
                self.give_to_slabs(class, &behind);
            }
            // Objects in caches, and those that wait for an epoch, count as used there.
            debug_assert!(
                free <= count * u64::from(objects_of(class)),
                "no more objects are free than there are"
            );
            let kept = count * u64::from(objects_of(class)) - free;
            if kept * class_bytes(class) < CHUNK_BYTES * count / FREE_PART {
                unused_slabs += count;
            }
        }
        if unused_slabs > UNUSED_SLABS_MAX {
            let _alone = self.growth.lock();
            self.gather(space);
        }
    }

    /// Reserves an object of at least the same size before the one at `offset`; none if that need not move.
    #[inline]
    pub(crate) fn reserve_before<'p>(
        self: &'p Arc<Self>,
        space: &dyn Space,
        offset: PoolOffset,
        bytes: usize,
    ) -> Result<Option<Reservation<'p>>> {
        let Some(class) = class_of(bytes).filter(|&class| self.lines.is_behind(class, offset)) else {
            return Ok(None);
        };
        let reservation = self.reserve(space, bytes)?;
        if self.lines.is_behind(class, reservation.offset) {
            self.lines.set(class, None);
            return Ok(None);
        }
        debug_assert!(reservation.bytes() >= bytes, "an object that moves fits its new place");
        Ok(Some(reservation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a slab of class 3 (256 objects) with `used` objects in use.
    fn add(slabs: &mut ClassSlabs, chunk: u64, used: u64) {
        let bits = array::from_fn(|word| {
            (0..64).filter(|bit| word as u64 * 64 + bit >= used && word < 4).map(|bit| 1 << bit).sum()
        });
        slabs.add(chunk, bits);
    }

    #[test]
    fn a_line_is_drawn_where_the_rest_fits_before_it() {
        let mut slabs = ClassSlabs::new(3);
        (0..10).for_each(|chunk| add(&mut slabs, chunk, 256));
        assert_eq!(slabs.line(), None, "all are full");
        (10..20).for_each(|chunk| add(&mut slabs, chunk, 128));
        // 10 slabs, half of their objects free: 4 of them fit into three quarters of the free objects of the
        // other 6.
        assert_eq!(slabs.counts(), (20, 1280));
        assert_eq!(slabs.line(), Some(PoolOffset::of_chunk(16)));
        let mut few = ClassSlabs::new(3);
        (0..4).for_each(|chunk| add(&mut few, chunk, 64));
        assert_eq!(few.line(), None, "there is little to win");
        (4..8).for_each(|chunk| add(&mut few, chunk, 64));
        assert_eq!(few.line(), Some(PoolOffset::of_chunk(3)));
    }

    #[test]
    fn a_class_that_is_nearly_full_has_no_line() {
        let mut slabs = ClassSlabs::new(3);
        (0..200).for_each(|chunk| add(&mut slabs, chunk, 250));
        assert_eq!(slabs.line(), None);
    }
}
