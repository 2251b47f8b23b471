//! Loading the persistent maps, an extent at a time on demand ([`super::unloaded`]), and visiting the
//! allocated objects.
//!
//! Cost: one descriptor word per chunk and, for a slab, its bitmap of 128 bytes, adjacent at the head of each
//! extent: about 20 us for 16 MiB.

use super::chunk::Chunk;
use super::free_chunks::ChunkRun;
use super::size_class::{CLASSES, class_bytes};
use super::slab::object_bits;
use super::{Allocator, Space};
use crate::error;
use crate::layout::{BITMAP_WORDS, CHUNK_BYTES, DESCRIPTORS, MAPS_END};
use crate::offset::PoolOffset;
use crate::order::value;
use crate::points::ALLOCATED_BITS_AT_OPEN;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Pool offset of damage in a map, and its description.
type Damage = (PoolOffset, String);

/// Slab and its free objects.
struct LoadedSlab {
    chunk: u64,
    class: usize,
    free: [u64; BITMAP_WORDS],
}

impl Allocator {
    /// Loads the persistent maps of an extent into the free maps; changes nothing if they are damaged.
    pub(super) fn load(&self, space: &dyn Space, extent: u64) -> error::Result<()> {
        let (slabs, free) =
            self.decode_maps(space, extent).map_err(|(offset, what)| space.damaged(offset, what))?;
        let extent_bytes = self.geometry.chunks_per_extent() * CHUNK_BYTES;
        space.verify(
            PoolOffset::new(extent * extent_bytes + DESCRIPTORS),
            (MAPS_END - DESCRIPTORS) as usize,
        )?;
        debug_assert!(
            free.iter().all(|run| self.geometry.same_extent(run.first, run.first + run.chunks - 1)),
            "runs of an extent lie inside it"
        );
        slabs.into_iter().for_each(|slab| self.classes[slab.class].lock().add(slab.chunk, slab.free));
        let without_memory = space.counts_memory();
        free.into_iter().for_each(|run| self.free_chunks.lock().free_unbacked(run, without_memory));
        Ok(())
    }

    /// Slabs and free runs of an extent.
    fn decode_maps(
        &self,
        space: &dyn Space,
        extent: u64,
    ) -> Result<(Vec<LoadedSlab>, Vec<ChunkRun>), Damage> {
        let all: [_; CLASSES] = std::array::from_fn(object_bits);
        let (mut slabs, mut free) = (Vec::new(), Vec::<ChunkRun>::new());
        self.for_each_chunk(space, extent..extent + 1, |chunk, state| {
            match state {
                Chunk::Free => match free.last_mut() {
                    Some(run) if run.first + run.chunks == chunk => run.chunks += 1,
                    _ => free.push(ChunkRun { first: chunk, chunks: 1 }),
                },
                Chunk::Slab { class } => slabs.push(self.decode_slab(space, chunk, class, &all[class])?),
                Chunk::Large { chunks } => self.check_inside(space, chunk, chunks)?,
            }
            Ok(())
        })?;
        Ok((slabs, free))
    }

    fn decode_slab(
        &self,
        space: &dyn Space,
        chunk: u64,
        class: usize,
        all: &[u64; BITMAP_WORDS],
    ) -> Result<LoadedSlab, Damage> {
        let bitmap = space.words(self.bitmap_offset(chunk), BITMAP_WORDS);
        let mut free = *all;
        for (i, (free, word)) in free.iter_mut().zip(bitmap).enumerate() {
            let allocated = word.load(Ordering::Acquire);
            if allocated & !*free != 0 {
                let what = format!(
                    "the bitmap of chunk {chunk}, a slab of objects of {} bytes, has bits {:#x} beyond its objects",
                    class_bytes(class),
                    allocated & !*free
                );
                return Err((self.bitmap_offset(chunk).plus(8 * i as u64), what));
            }
            *free &= !value(allocated, 0, ALLOCATED_BITS_AT_OPEN);
        }
        Ok(LoadedSlab { chunk, class, free })
    }

    /// Checks that the chunks inside a large object have empty descriptors.
    fn check_inside(&self, space: &dyn Space, head: u64, chunks: u64) -> Result<(), Damage> {
        debug_assert!(
            self.geometry.same_extent(head, head + chunks - 1),
            "the end of the large object of chunk {head} was checked"
        );
        for chunk in head + 1..head + chunks {
            if self.chunk(space, chunk) != Some(Chunk::Free) {
                let what = format!("chunk {chunk} has a descriptor inside the large object of chunk {head}");
                return Err((self.descriptor_offset(chunk), what));
            }
        }
        Ok(())
    }

    /// Visits the free chunks, slabs and heads of large objects of the extents.
    fn for_each_chunk(
        &self,
        space: &dyn Space,
        extents: Range<u64>,
        mut visit: impl FnMut(u64, Chunk) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        let chunks_per_extent = self.geometry.chunks_per_extent();
        for extent in extents {
            let mut index = 1;
            while index < chunks_per_extent {
                let chunk = extent * chunks_per_extent + index;
                let damage = |what| Err((self.descriptor_offset(chunk), what));
                let Some(state) = self.chunk(space, chunk) else {
                    return damage(format!("chunk {chunk} has no valid descriptor"));
                };
                index += match state {
                    Chunk::Free | Chunk::Slab { .. } => 1,
                    Chunk::Large { chunks } if chunks <= chunks_per_extent - index => chunks,
                    Chunk::Large { chunks } => {
                        return damage(format!(
                            "a large object of {chunks} chunks extends beyond its extent"
                        ));
                    }
                };
                visit(chunk, state)?;
            }
        }
        Ok(())
    }

    /// Every allocated object of the extents, as (offset, bytes). Panics if the maps are damaged.
    pub(crate) fn for_each_object(
        &self,
        space: &dyn Space,
        extents: u64,
        mut visit: impl FnMut(PoolOffset, u64),
    ) {
        let all: [_; CLASSES] = std::array::from_fn(object_bits);
        let visited = self.for_each_chunk(space, 0..extents, |chunk, state| {
            match state {
                Chunk::Slab { class } => {
                    let bytes = class_bytes(class);
                    let bitmap = space.words(self.bitmap_offset(chunk), BITMAP_WORDS);
                    for (i, (word, objects)) in bitmap.iter().zip(&all[class]).enumerate() {
                        let mut bits = word.load(Ordering::Acquire) & objects;
                        while bits != 0 {
                            let object = i as u64 * 64 + u64::from(bits.trailing_zeros());
                            visit(PoolOffset::of_chunk(chunk).plus(object * bytes), bytes);
                            bits &= bits - 1;
                        }
                    }
                }
                Chunk::Large { chunks } => visit(PoolOffset::of_chunk(chunk), chunks * CHUNK_BYTES),
                Chunk::Free => {}
            }
            Ok(())
        });
        if let Err((offset, what)) = visited {
            panic!("damaged allocation maps at {offset:#x}: {what}");
        }
    }
}
