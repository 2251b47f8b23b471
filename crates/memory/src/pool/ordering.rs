//! Flushes and fences of a pool.
//!
//! Production code names each of them: it passes an ordering point to a primitive here, and so the mutants of
//! its crate cover it. Those without a name exist for tests and measurements alone (feature `testkit`), so
//! that no release build has a flush or a fence without a rule.

use super::Pool;
use crate::offset::PoolOffset;
use crate::order::{self, Fence, Flush, FlushWord, OrderPoint, Step, step};

impl Pool {
    /// Starts to make the words that overlap the range durable, at a point of a protocol. Cost: on `dax` one
    /// instruction a line; on `journal` a copy of the words under a lock. A failure poisons the pool and is
    /// reported by [`Pool::persist`].
    #[inline]
    pub fn flush_at(&self, offset: PoolOffset, bytes: usize, point: OrderPoint<Flush>) {
        order::flush(point, bytes, |bytes| self.flush_range(offset, bytes));
    }

    /// [`Pool::flush_at`] of a word.
    #[inline]
    pub fn flush_word_at(&self, offset: PoolOffset, point: OrderPoint<FlushWord>) {
        order::flush_word(point, || self.flush_range(offset, 8));
    }

    /// As [`Pool::flush_at`] for several ranges that need no order among themselves: cheaper than one by one.
    #[inline]
    pub fn flush_ranges_at<const N: usize>(&self, ranges: [(PoolOffset, usize); N], point: OrderPoint<Step>) {
        step(point, || self.flush_ranges(ranges));
    }

    /// As [`Pool::flush_at`] for two ranges, each at its point, that need no order between them. Side by side,
    /// they are one range: on `journal` a range costs more than a word.
    #[inline]
    pub fn flush_two_at(
        &self,
        first: (PoolOffset, usize, OrderPoint<Flush>),
        second: (PoolOffset, usize, OrderPoint<Flush>),
    ) {
        let [first, second] =
            [first, second].map(|(offset, bytes, point)| order::to_flush(point, (offset, bytes)));
        if first.0.plus(first.1 as u64) == second.0 {
            self.flush_range(first.0, first.1 + second.1);
        } else {
            self.flush_ranges([first, second]);
        }
    }

    /// Stores bytes as little-endian words from `offset` on, the last one zero padded, and starts to make
    /// them durable, as a [`Pool::flush_at`] of them would. From [`crate::STREAM_BYTES_MIN`] on, `dax` stores
    /// past the caches: about half the time where the memory was not cached. Other threads may read the words
    /// only after a fence, before they are published.
    pub fn store_flushed_at(&self, offset: PoolOffset, bytes: &[u8], point: OrderPoint<Flush>) {
        order::flush(point, bytes.len(), |flushed| self.store_range_flushed(offset, &bytes[..flushed]));
        // What a fault leaves unflushed is stored all the same.
        if cfg!(feature = "mutants") {
            self.domain.store_bytes(&self.mapping, offset, bytes);
        }
    }

    /// Orders all flushes before it before all flushes after it, at a point of a protocol.
    #[inline]
    pub fn fence_at(&self, point: OrderPoint<Fence>) {
        order::fence(point, || self.domain.fence(&self.mapping));
    }

    #[inline]
    pub(super) fn flush_range(&self, offset: PoolOffset, bytes: usize) {
        if bytes > 0 {
            self.domain.flush(&self.mapping, &[rounded_out(offset, bytes)]);
        }
    }

    #[inline]
    fn flush_ranges<const N: usize>(&self, ranges: [(PoolOffset, usize); N]) {
        if ranges.iter().any(|(_, bytes)| *bytes == 0) {
            return ranges.iter().for_each(|(offset, bytes)| self.flush_range(*offset, *bytes));
        }
        self.domain.flush(&self.mapping, &ranges.map(|(offset, bytes)| rounded_out(offset, bytes)));
    }

    fn store_range_flushed(&self, offset: PoolOffset, bytes: &[u8]) {
        assert!(offset.is_aligned(8), "bytes are stored from a word on, not from {offset:#x}");
        if !bytes.is_empty() {
            self.domain.store_flushed(&self.mapping, offset, bytes);
        }
    }
}

/// Flushes and fences without a name, for tests and measurements.
#[cfg(any(test, feature = "testkit"))]
impl Pool {
    /// [`Pool::flush_at`] without a point.
    #[inline]
    pub fn flush(&self, offset: PoolOffset, bytes: usize) {
        self.flush_range(offset, bytes);
    }

    /// [`Pool::store_flushed_at`] without a point.
    pub fn store_flushed(&self, offset: PoolOffset, bytes: &[u8]) {
        self.store_range_flushed(offset, bytes);
    }

    /// [`Pool::fence_at`] without a point.
    #[inline]
    pub fn fence(&self) {
        self.domain.fence(&self.mapping);
    }
}

/// Range extended to word boundaries.
#[inline]
pub(crate) fn rounded_out(offset: PoolOffset, bytes: usize) -> (PoolOffset, usize) {
    debug_assert!(bytes > 0, "a range has bytes: {offset:#x}");
    let start = offset.aligned_down(8);
    let end = offset.plus(bytes as u64).bytes().next_multiple_of(8);
    (start, (end - start.bytes()) as usize)
}
