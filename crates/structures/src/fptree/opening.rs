//! Lazily built inner nodes.
//!
//! A tree is open when the inner nodes above its segments are built ([`sparse`](super::sparse)): that takes
//! the sparse index, a thousandth of the leaves. A segment's own inner node is built on first access, or by
//! [`FpTree::open_more`] in the background; both read the leaves of the segment, whose pages are verified
//! then.
//!
//! The sparse index is trusted only as far as the leaves confirm it. A segment is opened only if its leaf has
//! the low key of its entry, if its chain ends at the leaf of the next entry, which has *its* low key, and if
//! the low keys in between ascend. So a damaged entry is an error of each access to one of its two segments,
//! and never leads to the wrong leaf.
//!
//! Threads: the leaves of an unopened segment do not change, since every writer comes through its inner node.
//! Leaves are thus read without a lock; the result is installed under the structure lock, unless another
//! thread has done so meanwhile.

use super::inner::{Child, InnerWords};
use super::sparse::{SparseEntries, SparseEntry, SparseIndex, same};
use super::structure::ChildPath;
use super::{FpTree, Structure};
use crate::error::{Error, Result};
use crate::key::TreeKey;
use crate::latch;
use crate::leaf::LEAF_BYTES;
use entresol_memory::{Pool, PoolOffset};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::sync::atomic::Ordering as Memory;

/// Fill grade of new inner nodes, in percent: room for some splits.
const FILL_PERCENT: usize = 85;
/// Segments that are read concurrently in the background.
const TOGETHER: usize = 8;

/// A run of leaves whose inner node is not built yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafSegment<S> {
    leaf: PoolOffset,
    /// Entry of the sparse index; none for the first segment.
    entry: Option<SparseEntry<S>>,
    is_opened: bool,
}

/// Segment, and its bounds.
struct SegmentBounds<K: TreeKey> {
    number: u32,
    segment: LeafSegment<K::Stored>,
    end: Option<(PoolOffset, K::Stored)>,
}

/// State of reading a segment.
struct SegmentReader<K: TreeKey> {
    bounds: SegmentBounds<K>,
    leaves: Leaves<K>,
    /// Low key of the leaf before; the first leaf has none.
    before: Option<K::Stored>,
    at: PoolOffset,
}

impl<K: TreeKey> SegmentReader<K> {
    fn start(pool: &Pool, bounds: SegmentBounds<K>) -> SegmentReader<K> {
        let at = bounds.segment.leaf;
        prefetch_head(pool, at);
        SegmentReader { bounds, leaves: Vec::with_capacity(InnerWords::<K>::CAPACITY), before: None, at }
    }
}

/// Prefetches the lines of a leaf that opening reads.
fn prefetch_head(pool: &Pool, leaf: PoolOffset) {
    pool.prefetch(leaf);
    // The reference is not verified yet.
    pool.prefetch(leaf.wrapping_plus(64));
}

/// A leaf and its low key, as a child of an inner node.
type Leaves<K> = Vec<(<K as TreeKey>::Stored, Child)>;

/// Segments of a chain of leaves, in the order of their keys, with their low keys.
pub(super) struct SegmentedChain<K: TreeKey> {
    segments: Vec<LeafSegment<K::Stored>>,
    children: Leaves<K>,
}

/// Purpose of opening a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenPurpose {
    /// An access waits for it: only the segment's own pages are verified.
    Need,
    /// The complete tree will be read: objects outside of the leaves are verified too.
    Background,
    /// Same as `Background`, with exclusive access for writing: readers are allowed while the tree is being
    /// destroyed.
    Build,
}

impl<K: TreeKey> FpTree<K> {
    /// Builds the inner nodes above the segments, and those of the segments too if these are few.
    pub(super) fn build(&self, entries: SparseEntries<K>) -> Result<()> {
        let chain = self.chain_from(self.first_leaf(), entries)?;
        let few = self.use_chain(&mut self.structure.lock(), chain);
        if few {
            self.open_for(OpenPurpose::Build, usize::MAX)?;
        }
        Ok(())
    }

    /// Returns the segments of the chain of leaves from the first one on, as the entries of a sparse index divide
    /// it.
    pub(super) fn chain_from(
        &self,
        first: PoolOffset,
        mut entries: SparseEntries<K>,
    ) -> Result<SegmentedChain<K>> {
        entries.sort_unstable_by(|a, b| K::compare_stored(&self.pool, a.low, b.low));
        if let Some(pair) = entries.windows(2).find(|pair| !self.ascend(pair[0].low, pair[1].low)) {
            let message = format!("the sparse index has the low key of {:#x} twice", pair[0].leaf);
            return Err(Error::Corrupt { offset: pair[1].place, message });
        }
        // The first low key of all is ignored.
        let any_low = self.sound_leaf(first)?.low();
        let segments: Vec<LeafSegment<K::Stored>> =
            std::iter::once(LeafSegment { leaf: first, entry: None, is_opened: false })
                .chain(entries.iter().map(|entry| LeafSegment {
                    leaf: entry.leaf,
                    entry: Some(*entry),
                    is_opened: false,
                }))
                .collect();
        let lows = std::iter::once(any_low).chain(entries.iter().map(|entry| entry.low));
        let children = lows.zip((0..).map(Child::Segment)).collect();
        Ok(SegmentedChain { segments, children })
    }

    /// Makes segments the content of the tree, unopened, under its structure lock; returns true if they are few,
    /// and to be opened at once.
    pub(super) fn use_chain(&self, structure: &mut Structure<K>, chain: SegmentedChain<K>) -> bool {
        let SegmentedChain { segments, children } = chain;
        assert_eq!(segments.len(), children.len(), "each segment has a low key");
        assert!(segments.first().is_some_and(|first| first.entry.is_none()), "the first leaf needs no entry");
        // A single one may be the complete tree of a format without a sparse index.
        let few = segments.len() <= self.limits.segments_opened_at_once.max(1);
        let count = segments.len();
        structure.to_open = (0..count as u32).rev().collect();
        structure.segments = segments;
        self.unopened.store(count as u64, Memory::Release);
        let root = self.build_levels(children);
        latch::lock_alone(&self.root_latch);
        self.root.store(root.encode(), Memory::Release);
        latch::unlock(&self.root_latch);
        few
    }

    /// Returns the number of segments that are not opened yet: 0 once all inner nodes are in DRAM.
    pub fn segments_left(&self) -> u64 {
        self.unopened.load(Memory::Acquire)
    }

    /// Opens up to `segments_max` unopened segments; returns the number of those not tried yet. Threads share
    /// the work. A damaged segment is an error, and stays unopened; call it again for the others.
    pub fn open_more(&self, segments_max: usize) -> Result<u64> {
        self.open_for(OpenPurpose::Background, segments_max)
    }

    fn open_for(&self, purpose: OpenPurpose, segments_max: usize) -> Result<u64> {
        let _pinned = self.pool.pin();
        let mut to_try = segments_max;
        while to_try > 0 {
            let wanted: SmallVec<[_; TOGETHER]> = {
                let mut structure = self.structure.lock();
                (0..TOGETHER.min(to_try)).map_while(|_| structure.next_to_open()).collect()
            };
            if wanted.is_empty() {
                return Ok(0);
            }
            to_try -= wanted.len();
            self.open_together(&wanted, purpose)?;
        }
        Ok(self.structure.lock().to_open.len() as u64)
    }

    /// Opens segments concurrently: the next leaf of one is prefetched while the others are read. All sound
    /// ones are opened; a damaged one is an error.
    fn open_together(&self, wanted: &[(u32, LeafSegment<K::Stored>)], purpose: OpenPurpose) -> Result<()> {
        let descents = |segment: &LeafSegment<K::Stored>| {
            let low = segment.entry.map(|entry| entry.low);
            move |node: &InnerWords<'_, K>| low.map_or(0, |low| node.position_of_stored(&self.pool, low))
        };
        let mut readings: SmallVec<[_; TOGETHER]> = {
            let structure = self.structure.lock();
            let found = wanted.iter().filter_map(|(number, segment)| {
                let (bounds, _) = self.find_segment(&structure, Some(*number), descents(segment))?;
                Some((descents(segment), SegmentReader::start(&self.pool, bounds), Ok(true)))
            });
            found.collect()
        };
        while readings.iter().any(|(_, _, goes_on)| matches!(goes_on, Ok(true))) {
            for (_, reading, goes_on) in
                readings.iter_mut().filter(|(_, _, goes_on)| matches!(goes_on, Ok(true)))
            {
                *goes_on = self.read_leaf(reading, purpose);
            }
        }
        let mut outcome = Ok(());
        for (descent, reading, ended) in readings {
            outcome = outcome.and(self.put(descent, purpose, &reading.bounds, ended.map(|_| reading.leaves)));
        }
        outcome
    }

    /// Opens the segment to which `choose` leads, if it is not opened yet.
    #[cold]
    pub(super) fn open_at(&self, choose: impl Fn(&InnerWords<'_, K>) -> usize) -> Result<()> {
        let found = self.find_segment(&self.structure.lock(), None, &choose);
        let Some((bounds, _)) = found else { return Ok(()) };
        let mut reading = SegmentReader::start(&self.pool, bounds);
        let read = self.read_segment(&mut reading, OpenPurpose::Need);
        self.put(&choose, OpenPurpose::Need, &reading.bounds, read.map(|()| reading.leaves))
    }

    /// Returns the segment to which `choose` leads, and the path to it. None if it is opened, or another than
    /// the wanted one.
    fn find_segment(
        &self,
        structure: &Structure<K>,
        wanted: Option<u32>,
        choose: impl Fn(&InnerWords<'_, K>) -> usize,
    ) -> Option<(SegmentBounds<K>, ChildPath)> {
        match self.path_by(choose) {
            (path, Child::Segment(number)) if wanted.is_none_or(|wanted| wanted == number) => {
                Some((self.bounds(structure, &path, number), path))
            }
            _ => None,
        }
    }

    /// Installs the leaves read of a segment, or returns the error of reading it, unless another thread has
    /// opened it meanwhile: then the leaves read may be stale.
    fn put(
        &self,
        choose: impl Fn(&InnerWords<'_, K>) -> usize,
        purpose: OpenPurpose,
        bounds: &SegmentBounds<K>,
        read: Result<Leaves<K>>,
    ) -> Result<()> {
        let mut structure = self.structure.lock();
        let Some((found, path)) = self.find_segment(&structure, Some(bounds.number), choose) else {
            return Ok(());
        };
        if found.segment.leaf != bounds.segment.leaf {
            // A content that was exchanged numbers its segments anew.
            return Ok(());
        }
        let rest = self.install(&mut structure, &path, bounds, read?);
        if purpose == OpenPurpose::Build {
            // A long segment becomes several nodes: from the next open on they are segments of their own.
            rest.into_iter().for_each(|(low, id)| self.add_to_sparse(&mut structure, id, low));
        }
        Ok(())
    }

    /// Opens the segment at the end of a path. The caller holds the structure lock.
    pub(super) fn open_locked(
        &self,
        structure: &mut Structure<K>,
        path: &ChildPath,
        number: u32,
    ) -> Result<()> {
        let mut reading = SegmentReader::start(&self.pool, self.bounds(structure, path, number));
        self.read_segment(&mut reading, OpenPurpose::Need)?;
        self.install(structure, path, &reading.bounds, reading.leaves);
        Ok(())
    }

    /// Returns the bounds of a segment by the path to it.
    fn bounds(&self, structure: &Structure<K>, path: &ChildPath, number: u32) -> SegmentBounds<K> {
        let segment = structure.segments[number as usize];
        let above = path.iter().rev().find(|(id, index)| index + 1 < self.inner.node(*id).count());
        let end = above.map(|(id, index)| {
            let node = self.inner.node(*id);
            let (low, mut child) = (node.key(index + 1), node.child(index + 1));
            loop {
                match child {
                    Child::Inner(id) => child = self.inner.node(id).child(0),
                    Child::Leaf(leaf) => return (leaf, low),
                    Child::Segment(next) => return (structure.segments[next as usize].leaf, low),
                }
            }
        });
        SegmentBounds { number, segment, end }
    }

    /// Reads the leaves of a segment; damage, and low keys that contradict its bounds, are an error.
    fn read_segment(&self, reading: &mut SegmentReader<K>, purpose: OpenPurpose) -> Result<()> {
        while self.read_leaf(reading, purpose)? {}
        Ok(())
    }

    /// Reads the next leaf of a segment; false if it was the last.
    fn read_leaf(&self, reading: &mut SegmentReader<K>, purpose: OpenPurpose) -> Result<bool> {
        let corrupt =
            |offset: PoolOffset, message: &str| Err(Error::Corrupt { offset, message: message.to_string() });
        let SegmentReader { bounds, leaves, before, at } = reading;
        let leaf = self.opened_leaf(*at, purpose)?;
        let (low, next) = (leaf.low(), leaf.next());
        match &bounds.segment.entry {
            Some(entry) if leaves.is_empty() && !same::<K>(entry.low, low) => {
                return corrupt(*at, "its low key differs from that of its entry in the sparse index");
            }
            None if leaves.is_empty() => {}
            _ if before.is_some_and(|before| !self.ascend(before, low)) => {
                return corrupt(*at, "its low key is not above that of the leaf before");
            }
            _ => *before = Some(low),
        }
        leaves.push((low, Child::Leaf(*at)));
        let Some((end, low)) = bounds.end.filter(|(end, _)| *end == next) else {
            if next.is_null() && bounds.end.is_none() {
                return Ok(false);
            }
            if next.is_null() {
                return corrupt(*at, "the chain of leaves ends before the next entry of the sparse index");
            }
            if leaves.len() as u64 > self.pool.bytes() / LEAF_BYTES as u64 {
                return corrupt(self.header, "its chain of leaves has a cycle");
            }
            prefetch_head(&self.pool, next);
            *at = next;
            return Ok(true);
        };
        if !same::<K>(self.opened_leaf(end, purpose)?.low(), low) {
            return corrupt(end, "its low key differs from that of its entry in the sparse index");
        }
        if before.is_some_and(|before| !self.ascend(before, low)) {
            return corrupt(end, "its low key is not above that of the leaf before");
        }
        Ok(false)
    }

    fn ascend(&self, left: K::Stored, right: K::Stored) -> bool {
        K::compare_stored(&self.pool, left, right) == Ordering::Less
    }

    fn opened_leaf(&self, at: PoolOffset, purpose: OpenPurpose) -> Result<crate::leaf::Leaf<'_, K>> {
        if purpose != OpenPurpose::Need && self.pool.contains(at, LEAF_BYTES as u64) {
            self.pool.verify_with_neighbours(at, LEAF_BYTES)?;
        }
        self.sound_leaf(at)
    }

    /// Installs the inner nodes of a segment at the end of the path; returns those after the first of them.
    fn install(
        &self,
        structure: &mut Structure<K>,
        path: &ChildPath,
        bounds: &SegmentBounds<K>,
        leaves: Leaves<K>,
    ) -> Vec<(K::Stored, u32)> {
        assert!(!leaves.is_empty(), "a segment has a leaf");
        assert!(
            !structure.segments[bounds.number as usize].is_opened,
            "segment {} is opened once",
            bounds.number
        );
        let is_alone = path.is_empty() && leaves.len() == 1;
        let lowest = if is_alone { Vec::new() } else { self.fill_nodes(&leaves) };
        if let (Some((_, Child::Inner(id))), Some(entry)) = (lowest.first(), bounds.segment.entry) {
            self.inner.node(*id).set_sparse_place(entry.place);
        }
        let top = if is_alone { leaves[0].1 } else { self.build_levels(lowest.clone()) };
        match path.last() {
            None => {
                latch::lock_alone(&self.root_latch);
                self.root.store(top.encode(), Memory::Release);
                latch::unlock(&self.root_latch);
            }
            Some((id, index)) => {
                let parent = self.inner.node(*id);
                latch::lock_alone(parent.latch());
                parent.set_child(*index, top);
                latch::unlock(parent.latch());
            }
        }
        structure.is_opened(bounds.number);
        let unopened = self.unopened.load(Memory::Relaxed);
        assert!(unopened > 0, "a segment that is opened is counted");
        let left = unopened - 1;
        self.unopened.store(left, Memory::Release);
        if left == 0 {
            structure.segments = Vec::new();
            structure.to_open = Vec::new();
        }
        let ids = lowest.into_iter().skip(1).filter_map(|(low, child)| match child {
            Child::Inner(id) => Some((low, id)),
            _ => None,
        });
        ids.collect()
    }

    /// Adds an entry of the sparse index for the first leaf of a lowest inner node. Without one the segment
    /// before is longer.
    pub(super) fn add_to_sparse(&self, structure: &mut Structure<K>, node: u32, low: K::Stored) {
        let node = self.inner.node(node);
        let Child::Leaf(leaf) = node.child(0) else { return };
        match structure.sparse.add(&self.pool, self.header, low, leaf) {
            Ok(place) => node.set_sparse_place(place),
            Err(error) => tracing::warn!(%error, "a leaf has no entry in the sparse index of its tree"),
        }
    }

    fn build_levels(&self, mut children: Leaves<K>) -> Child {
        assert!(!children.is_empty(), "a tree has a leaf or a segment");
        while children.len() > 1 {
            children = self.fill_nodes(&children);
        }
        children[0].1
    }

    /// Inner nodes over children, with their low keys.
    fn fill_nodes(&self, children: &Leaves<K>) -> Leaves<K> {
        let fan_out = self.limits.children_max;
        // A range that was one node becomes one again, however full.
        let step = if children.len() <= fan_out { fan_out } else { (fan_out * FILL_PERCENT / 100).max(2) };
        debug_assert!(step >= 2, "a level has fewer nodes than the one below");
        let fill = |group: &[(K::Stored, Child)]| {
            let (id, node) = self.inner.allocate();
            node.fill(group);
            (group[0].0, Child::Inner(id))
        };
        children.chunks(step).map(fill).collect()
    }
}

impl<K: TreeKey> Structure<K> {
    pub(super) fn new(sparse: SparseIndex<K>) -> Structure<K> {
        Structure { sparse, segments: Vec::new(), to_open: Vec::new() }
    }

    fn next_to_open(&mut self) -> Option<(u32, LeafSegment<K::Stored>)> {
        while let Some(number) = self.to_open.pop() {
            let segment = self.segments[number as usize];
            if !segment.is_opened {
                return Some((number, segment));
            }
        }
        None
    }

    fn is_opened(&mut self, number: u32) {
        debug_assert!((number as usize) < self.segments.len(), "there is no segment {number}");
        self.segments[number as usize].is_opened = true;
    }
}
