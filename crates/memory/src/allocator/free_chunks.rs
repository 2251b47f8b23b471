//! Free chunks, in DRAM, as runs of neighbours: best fit, and the lowest one for a single chunk.
//!
//! A granule is a few aligned chunks: 2 MiB on memory domains, so that huge pages stay whole, one chunk on
//! `journal`, so that space is freed although slabs in use lie between; less in pools with small extents.
//! Disk blocks are freed and allocated again by the granule. A granule that may have no blocks is in `holes`;
//! taking a chunk of it allocates the blocks first. Space that was free when the pool was opened may have
//! lost its blocks in an earlier run, so its granules count as holes.
//!
//! Invariants: runs do not touch each other and never cross extents; all chunks of a granule in `holes` are
//! free.

use super::chunk::Geometry;
use super::list_memory::List;
use crate::error::Result;
use crate::layout::CHUNK_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of granules of an extent. The first holds the chunk of descriptors, and is never free.
const GRANULES_PER_EXTENT_MIN: u64 = 4;

/// Bytes of a run in both maps, and of a hole, with their share of the trees' nodes.
const RUN_BYTES: u64 = 48;
const HOLE_BYTES: u64 = 16;

/// A run of neighbouring chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRun {
    pub(super) first: u64,
    pub(super) chunks: u64,
}

pub(super) struct FreeChunks {
    geometry: Geometry,
    /// Chunks of a granule.
    granule: u64,
    runs: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Granules that may have no blocks, with true if this process freed the blocks.
    holes: BTreeMap<u64, bool>,
    free: u64,
}

impl List for FreeChunks {
    fn memory_bytes(&self) -> u64 {
        self.runs.len() as u64 * RUN_BYTES + self.holes.len() as u64 * HOLE_BYTES
    }
}

impl FreeChunks {
    /// Empty map; granules have at most the given bytes.
    pub(super) fn new(geometry: Geometry, granule_bytes_max: u64) -> FreeChunks {
        let (runs, by_length) = (BTreeMap::new(), BTreeSet::new());
        let granule_max = granule_bytes_max / CHUNK_BYTES;
        let granule = (geometry.chunks_per_extent() / GRANULES_PER_EXTENT_MIN).min(granule_max);
        assert!(granule > 0, "a granule has at least one chunk");
        FreeChunks { geometry, granule, runs, by_length, holes: BTreeMap::new(), free: 0 }
    }

    /// Bytes of a granule.
    pub(super) fn granule_bytes(&self) -> u64 {
        self.granule * CHUNK_BYTES
    }

    /// Number of free chunks, length of the longest run, number of free chunks without blocks.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let longest = self.by_length.last().map_or(0, |(length, _)| *length);
        (self.free, longest, self.holes.len() as u64 * self.granule)
    }

    fn insert(&mut self, run: ChunkRun) {
        assert!(
            run.chunks > 0 && self.geometry.same_extent(run.first, run.first + run.chunks - 1),
            "a run of free chunks lies in one extent: {run:?}"
        );
        debug_assert!(
            !run.first.is_multiple_of(self.geometry.chunks_per_extent()),
            "the first chunk of an extent describes the others, and is never free"
        );
        let before = self.runs.insert(run.first, run.chunks);
        assert!(before.is_none(), "chunk {} was freed twice", run.first);
        self.by_length.insert((run.chunks, run.first));
        self.free += run.chunks;
    }

    fn remove(&mut self, first: u64) -> Option<u64> {
        let chunks = self.runs.remove(&first)?;
        let is_listed = self.by_length.remove(&(chunks, first));
        assert!(is_listed && chunks <= self.free, "run {first} of {chunks} chunks is listed and counted");
        self.free -= chunks;
        Some(chunks)
    }

    /// Makes chunks free; neighbours become one run.
    pub(super) fn free(&mut self, run: ChunkRun) {
        let ChunkRun { mut first, mut chunks } = run;
        assert!(chunks > 0, "a run of no chunks at {first} is freed");
        let end = first + chunks;
        if let Some((&before, &length)) = self.runs.range(..first).next_back() {
            assert!(before + length <= first, "chunk {first} was freed twice");
            if before + length == first && self.geometry.same_extent(before, first) {
                self.remove(before);
                first = before;
                chunks += length;
            }
        }
        if let Some((&after, _)) = self.runs.range(run.first..).next() {
            assert!(after >= end, "chunk {after} was freed twice");
            if after == end && self.geometry.same_extent(run.first, end) {
                chunks += self.remove(after).expect("the run was just seen");
            }
        }
        self.insert(ChunkRun { first, chunks });
    }

    /// As [`FreeChunks::free`], for a run that may have no blocks.
    pub(super) fn free_unbacked(&mut self, run: ChunkRun, frees_blocks: bool) {
        let granules = self.granules_inside(run);
        self.holes.extend(granules.map(|granule| (granule, frees_blocks)));
        self.free(run);
    }

    /// Takes the front of the shortest run that is long enough, and of these the lowest; one chunk from the
    /// lowest run of all, so that space far back becomes free. `back` allocates the blocks of granules that
    /// have none; if it fails, nothing was taken. It runs under the lock of the map: no other thread may take
    /// another chunk of the granule before its blocks are allocated.
    pub(super) fn take(
        &mut self,
        chunks: u64,
        mut back: impl FnMut(ChunkRun) -> Result<()>,
    ) -> Result<Option<u64>> {
        assert!(chunks > 0, "at least one chunk is taken");
        let best = match chunks {
            1 => self.runs.first_key_value().map(|(&first, &length)| (length, first)),
            _ => self.by_length.range((chunks, 0)..).next().copied(),
        };
        let Some((length, first)) = best else { return Ok(None) };
        let granules = first / self.granule..=(first + chunks - 1) / self.granule;
        let holes: Vec<u64> = self.holes.range(granules).map(|(granule, _)| *granule).collect();
        for holes in holes.chunk_by(|before, after| before + 1 == *after) {
            let (low, count) = (holes[0], holes.len() as u64);
            back(ChunkRun { first: low * self.granule, chunks: count * self.granule })?;
            self.forget_holes(low..low + count);
        }
        assert!(length >= chunks, "a run of {length} chunks is too short for {chunks}");
        debug_assert!(
            self.holes.range(first / self.granule..=(first + chunks - 1) / self.granule).next().is_none(),
            "chunks have blocks before they are handed out"
        );
        self.remove(first);
        if length > chunks {
            self.insert(ChunkRun { first: first + chunks, chunks: length - chunks });
        }
        Ok(Some(first))
    }

    /// Returns true if a granule of the run is a hole.
    pub(super) fn has_hole(&self, run: ChunkRun) -> bool {
        let granules = run.first / self.granule..(run.first + run.chunks).div_ceil(self.granule);
        self.holes.range(granules).any(|(_, frees_blocks)| *frees_blocks)
    }

    /// Takes all free granules whose blocks this process has not freed out of the map, except the lowest ones
    /// with `kept` chunks; neighbours as one run.
    pub(super) fn take_granules(&mut self, mut kept: u64) -> Vec<ChunkRun> {
        let mut taken: Vec<ChunkRun> = Vec::new();
        for (&first, &chunks) in &self.runs {
            for granule in self.granules_inside(ChunkRun { first, chunks }) {
                let first = granule * self.granule;
                match (self.holes.get(&granule), taken.last_mut()) {
                    (Some(true), _) => {}
                    _ if kept >= self.granule => kept -= self.granule,
                    (_, Some(run)) if run.first + run.chunks == first => run.chunks += self.granule,
                    _ => taken.push(ChunkRun { first, chunks: self.granule }),
                }
            }
        }
        for run in &taken {
            debug_assert!(
                run.first.is_multiple_of(self.granule) && run.chunks.is_multiple_of(self.granule),
                "whole granules are taken: {run:?}"
            );
            self.split_out(*run);
            self.forget_holes(self.granules_inside(*run));
        }
        taken
    }

    /// Granules that lie completely in the run.
    fn granules_inside(&self, run: ChunkRun) -> std::ops::Range<u64> {
        let first = run.first.div_ceil(self.granule);
        first..((run.first + run.chunks) / self.granule).max(first)
    }

    fn forget_holes(&mut self, granules: std::ops::Range<u64>) {
        granules.for_each(|granule| {
            self.holes.remove(&granule);
        });
    }

    /// Takes a run out of the free run that contains it.
    fn split_out(&mut self, run: ChunkRun) {
        let (&first, _) = self.runs.range(..=run.first).next_back().expect("the run is part of a free run");
        let chunks = self.remove(first).expect("the run was just seen");
        let (end, run_end) = (first + chunks, run.first + run.chunks);
        assert!(run_end <= end, "the run is part of a free run");
        if first < run.first {
            self.insert(ChunkRun { first, chunks: run.first - first });
        }
        if run_end < end {
            self.insert(ChunkRun { first: run_end, chunks: end - run_end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn empty(extent_bytes: u64) -> FreeChunks {
        FreeChunks::new(Geometry::new(extent_bytes), 2 << 20)
    }

    fn run(first: u64, chunks: u64) -> ChunkRun {
        ChunkRun { first, chunks }
    }

    fn take(free: &mut FreeChunks, chunks: u64) -> Option<u64> {
        free.take(chunks, |_| panic!("no blocks are missing")).unwrap()
    }

    #[test]
    fn the_best_fit_is_taken_and_neighbours_of_an_extent_grow_together() {
        let mut free = empty(16 << 20);
        free.free(run(1, 100));
        free.free(run(200, 10));
        free.free(run(300, 4));
        assert_eq!(take(&mut free, 5), Some(200));
        assert_eq!(take(&mut free, 4), Some(300));
        assert_eq!(take(&mut free, 4), Some(205));
        assert_eq!(take(&mut free, 101), None);
        free.free(run(205, 4));
        free.free(run(200, 5));
        assert_eq!(free.counts(), (110, 100, 0));
        // Chunk 255 ends an extent; 257 is the first of the next that can be free.
        free.free(run(255, 1));
        free.free(run(257, 3));
        free.free(run(210, 45));
        assert_eq!(take(&mut free, 56), Some(200));
    }

    #[test]
    fn blocks_are_asked_for_once_in_granules() {
        let mut free = empty(16 << 20);
        free.free_unbacked(run(1, 255), false);
        assert_eq!(free.counts(), (255, 255, 224));
        // The first granule holds the chunk that describes the extent: it always has blocks.
        assert_eq!(take(&mut free, 31), Some(1));
        let full = || Error::OutOfSpace { what: "the disk".to_string() };
        assert!(free.take(1, |_| Err(full())).is_err());
        assert_eq!(free.counts(), (224, 224, 224));
        let mut asked = Vec::new();
        let mut note = |granules| {
            asked.push(granules);
            Ok(())
        };
        assert_eq!(free.take(1, &mut note).unwrap(), Some(32));
        assert_eq!(free.take(39, &mut note).unwrap(), Some(33));
        assert_eq!(asked, [run(32, 32), run(64, 32)]);
        assert_eq!(take(&mut free, 24), Some(72));
        assert_eq!(free.counts(), (160, 160, 160));
    }

    #[test]
    fn granules_leave_the_map_and_come_back_as_holes() {
        let mut free = empty(16 << 20);
        free.free(run(20, 80));
        free.free_unbacked(run(128, 64), false);
        assert_eq!(free.take_granules(0), [run(32, 64), run(128, 64)]);
        assert_eq!(free.counts(), (16, 12, 0));
        free.free_unbacked(run(128, 64), true);
        free.free_unbacked(run(32, 64), true);
        assert_eq!(free.counts(), (144, 80, 128));
        assert_eq!(free.take_granules(0), []);
    }

    #[test]
    fn the_lowest_granules_stay() {
        let mut free = FreeChunks::new(Geometry::new(16 << 20), CHUNK_BYTES);
        free.free_unbacked(run(1, 2), true);
        free.free(run(10, 1));
        free.free(run(20, 5));
        free.free(run(30, 1));
        assert_eq!(free.take_granules(3), [run(22, 3), run(30, 1)]);
        assert_eq!(free.counts(), (5, 2, 2));
        assert_eq!(free.take_granules(7), []);
    }

    #[test]
    fn blocks_are_asked_for_where_there_are_none_and_nowhere_else() {
        let mut free = empty(16 << 20);
        free.free_unbacked(run(32, 32), true);
        free.free(run(64, 32));
        free.free_unbacked(run(96, 64), true);
        let mut asked = Vec::new();
        let note = |granules| {
            asked.push(granules);
            Ok(())
        };
        assert_eq!(free.take(128, note).unwrap(), Some(32));
        assert_eq!(asked, [run(32, 32), run(96, 64)]);
    }

    #[test]
    fn small_extents_have_small_granules() {
        let mut free = empty(256 << 10);
        free.free(run(1, 3));
        assert_eq!(free.take_granules(0), [run(1, 3)]);
        free.free_unbacked(run(1, 3), true);
        assert_eq!(free.counts(), (3, 3, 3));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_chunk_is_not_freed_twice() {
        let mut free = empty(16 << 20);
        free.free(run(10, 5));
        free.free(run(12, 1));
    }
}
