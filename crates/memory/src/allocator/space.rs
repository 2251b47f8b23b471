//! Space statistics: bytes of a pool in objects, in free objects of slabs, in caches, waiting for epochs, in
//! free chunks.
//!
//! All counts are maintained as space changes; a report adds them up and reads no bitmap.

use super::size_class::{CLASSES, class_bytes, class_of};
use super::slab::objects_of;
use super::{Allocator, bytes_by_class};
use crate::layout::CHUNK_BYTES;
use std::sync::atomic::Ordering;

/// Space statistics of one size class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassSpace {
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Number of slabs of 64 KiB of the class.
    pub slabs: u64,
    /// Number of objects that are allocated or reserved.
    pub used_objects: u64,
    /// Number of free objects in no thread's cache.
    pub free_objects: u64,
    /// Number of free objects in threads' caches for their next reservations.
    pub cached_objects: u64,
    /// Number of freed objects that a reader may still hold.
    pub waiting_objects: u64,
    /// Number of objects reserved since open.
    pub reserved_objects: u64,
    /// Bytes requested with these reservations.
    pub requested_bytes: u64,
}

/// Space statistics of a pool. See [`crate::Pool::space`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Bytes of descriptors and bitmaps: one chunk of 64 KiB in each extent.
    pub map_bytes: u64,
    /// Size classes, smallest objects first.
    pub classes: Vec<ClassSpace>,
    /// Bytes of large objects (complete chunks) that are allocated or reserved.
    pub large_bytes: u64,
    /// Bytes of freed large objects that a reader may still hold.
    pub large_waiting_bytes: u64,
    /// Bytes of free chunks.
    pub free_chunk_bytes: u64,
    /// Bytes of the longest run of neighbouring free chunks: the largest object that fits without growth.
    pub largest_free_run_bytes: u64,
    /// Free chunks that may have no blocks on the disk.
    pub unbacked_bytes: u64,
}

impl SpaceStats {
    fn sum(&self, count: impl Fn(&ClassSpace) -> u64) -> u64 {
        self.classes.iter().map(|class| count(class) * class.object_bytes).sum()
    }

    /// Bytes of objects that are allocated or reserved.
    pub fn used_bytes(&self) -> u64 {
        self.large_bytes + self.sum(|class| class.used_objects)
    }

    /// Bytes of free objects in slabs, without the cached ones.
    pub fn free_in_slabs_bytes(&self) -> u64 {
        self.sum(|class| class.free_objects)
    }

    /// Bytes of free objects in threads' caches.
    pub fn cached_bytes(&self) -> u64 {
        self.sum(|class| class.cached_objects)
    }

    /// Bytes of freed objects that a reader may still hold.
    pub fn waiting_bytes(&self) -> u64 {
        self.large_waiting_bytes + self.sum(|class| class.waiting_objects)
    }

    /// Bytes of slabs that hold no object, because the object size does not divide a chunk.
    pub fn slab_rest_bytes(&self) -> u64 {
        let rest = |class: &ClassSpace| class.slabs * (CHUNK_BYTES % class.object_bytes);
        self.classes.iter().map(rest).sum()
    }

    /// Part of the bytes of small objects reserved since open that was not requested: 0 to 1.
    pub fn internal_fragmentation(&self) -> f64 {
        let given = self.sum(|class| class.reserved_objects);
        let requested: u64 = self.classes.iter().map(|class| class.requested_bytes).sum();
        if given == 0 { 0.0 } else { 1.0 - requested as f64 / given as f64 }
    }

    /// Part of the bytes of slabs that no object uses: 0 to 1.
    pub fn slab_fragmentation(&self) -> f64 {
        let slabs: u64 = self.classes.iter().map(|class| class.slabs * CHUNK_BYTES).sum();
        let used = self.sum(|class| class.used_objects);
        if slabs == 0 { 0.0 } else { 1.0 - used as f64 / slabs as f64 }
    }

    /// Part of the bytes of free chunks outside of the longest run: 0 to 1.
    pub fn external_fragmentation(&self) -> f64 {
        let free = self.free_chunk_bytes;
        if free == 0 { 0.0 } else { 1.0 - self.largest_free_run_bytes as f64 / free as f64 }
    }
}

impl Allocator {
    /// Space statistics of the first `extents` extents. Exact while no thread allocates or frees. Cost: a
    /// lock for each class and each thread's cache.
    pub(crate) fn space_stats(&self, extents: u64) -> SpaceStats {
        let chunks = extents * (self.geometry.chunks_per_extent() - 1);
        let mut classes: Vec<ClassSpace> = (0..CLASSES).map(|class| self.class_space(class)).collect();
        let mut large_waiting_bytes = self.waiting_bytes[CLASSES].load(Ordering::Relaxed);
        self.caches.for_each(|_, cache| {
            for (class, space) in classes.iter_mut().enumerate() {
                let (cached, reserved, requested_bytes) = cache.counts(class);
                space.cached_objects += cached;
                space.reserved_objects += reserved;
                space.requested_bytes += requested_bytes;
            }
            let retired = bytes_by_class(cache.retired());
            for (space, bytes) in classes.iter_mut().zip(retired) {
                space.waiting_objects += bytes / space.object_bytes;
            }
            large_waiting_bytes += retired[CLASSES];
        });
        for (class, space) in classes.iter_mut().enumerate() {
            let all = space.slabs * u64::from(objects_of(class));
            let unused = space.free_objects + space.cached_objects + space.waiting_objects;
            space.used_objects = all.saturating_sub(unused);
        }
        let slabs: u64 = classes.iter().map(|class| class.slabs).sum();
        let (free, longest, unbacked) = self.free_chunks.lock().counts();
        let large_bytes = chunks.saturating_sub(free + slabs) * CHUNK_BYTES;
        SpaceStats {
            pool_bytes: (chunks + extents) * CHUNK_BYTES,
            map_bytes: extents * CHUNK_BYTES,
            classes,
            large_bytes: large_bytes.saturating_sub(large_waiting_bytes),
            large_waiting_bytes,
            free_chunk_bytes: free * CHUNK_BYTES,
            largest_free_run_bytes: longest * CHUNK_BYTES,
            unbacked_bytes: unbacked * CHUNK_BYTES,
        }
    }

    fn class_space(&self, class: usize) -> ClassSpace {
        debug_assert_eq!(class_of(class_bytes(class) as usize), Some(class));
        let (slabs, free_objects) = self.classes[class].lock().counts();
        let object_bytes = class_bytes(class);
        ClassSpace {
            object_bytes,
            slabs,
            free_objects,
            waiting_objects: self.waiting_bytes[class].load(Ordering::Relaxed) / object_bytes,
            ..ClassSpace::default()
        }
    }
}
