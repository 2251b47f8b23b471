//! Claims on allocated objects: for walks over all reachable objects.
//!
//! Memory: 17 bytes for each allocated object.

use super::Pool;
use crate::error;
use crate::offset::PoolOffset;

/// Snapshot of the allocated objects of a pool; no thread may allocate or free while it is in use.
pub struct AllocationMap {
    /// (offset, bytes), by offset.
    objects: Vec<(PoolOffset, u64)>,
    claimed: Vec<bool>,
}

impl Pool {
    /// Snapshot of all allocated objects, none of them claimed. An error if the maps are damaged.
    pub fn allocation_map(&self) -> error::Result<AllocationMap> {
        self.read_maps()?;
        let mut objects = Vec::new();
        self.for_each_object(|offset, bytes| objects.push((offset, bytes)));
        objects.sort_unstable();
        debug_assert!(
            objects.windows(2).all(|pair| pair[0].0.plus(pair[0].1) <= pair[1].0),
            "allocated objects do not overlap"
        );
        let claimed = vec![false; objects.len()];
        Ok(AllocationMap { objects, claimed })
    }
}

impl AllocationMap {
    /// Notes a reference to an object of at least `bytes`. `Err` describes the inconsistency: nothing is
    /// allocated there, it is too small, or it was claimed before.
    pub fn claim(&mut self, offset: PoolOffset, bytes: u64) -> Result<(), String> {
        let Ok(index) = self.objects.binary_search_by_key(&offset, |(offset, _)| *offset) else {
            return Err(format!("nothing is allocated at {offset:#x}"));
        };
        let (_, allocated) = self.objects[index];
        if allocated < bytes {
            return Err(format!("{bytes} bytes are in use at {offset:#x}, but {allocated} are allocated"));
        }
        if std::mem::replace(&mut self.claimed[index], true) {
            return Err(format!("the object at {offset:#x} has two references"));
        }
        Ok(())
    }

    /// Usable bytes of the allocated object at an offset.
    pub fn bytes(&self, offset: PoolOffset) -> Option<u64> {
        let index = self.objects.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        Some(self.objects[index].1)
    }

    /// Allocated objects without a claim: (offset, bytes).
    pub fn unclaimed(&self) -> impl Iterator<Item = (PoolOffset, u64)> {
        self.objects.iter().zip(&self.claimed).filter(|(_, claimed)| !**claimed).map(|(object, _)| *object)
    }

    /// Number of allocated objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns true if nothing is allocated.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}
