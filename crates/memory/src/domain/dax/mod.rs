//! Persistent memory: the processor's own flush and fence instructions.
//!
//! A store is durable once its line was written back and a fence passed. Large flushes are one instruction a
//! line; the lines need no order among themselves. Where the platform keeps its caches over a power failure
//! (eADR), and the user says so, the write-backs are left out; the fence stays, since stores must still
//! become durable in order.
//!
//! - [`instruction`]: flush instructions of this processor
//! - [`platform`]: durability of the platform's caches, as Linux reports it
//! - [`stream`]: large copies past the caches
//! - [`counters`]: flushes and fences, counted without a locked instruction

mod counters;
mod instruction;
mod platform;
mod stream;

pub use instruction::FlushInstruction;
pub use stream::STREAM_BYTES_MIN;
pub(crate) use stream::store;

use super::DomainKind;
use super::redo::Lanes;
use crate::mapping::Mapping;
use crate::offset::PoolOffset;
use crate::order::step;
use crate::points::{LINES_WRITTEN_BACK, WRITE_BACKS_FENCED};
use crate::stats::PoolStats;
use counters::Counters;
use std::os::fd::BorrowedFd;

pub(super) const LINE_BYTES: u64 = 64;

/// Policy of cache line write-backs on `dax`. Other domains ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushChoice {
    /// Always: right on every platform.
    #[default]
    Always,
    /// Not where the file's NVDIMM region reports in sysfs that its persistence domain is `cpu_cache`. Only
    /// as good as what firmware (or a hypervisor) reports to Linux.
    AsPlatform,
    /// Never: the caches are known to be durable. On a machine where they are not, a power failure destroys
    /// the database.
    Never,
}

pub(crate) struct Dax {
    kind: DomainKind,
    /// Flush instruction; none if lines need no write-back.
    line_flush: Option<FlushInstruction>,
    lanes: Lanes,
    counters: Counters,
}

impl Dax {
    /// Domain with the best instructions of this processor; none on processors without a known flush.
    pub(crate) fn detect(kind: DomainKind, choice: FlushChoice, file: BorrowedFd<'_>) -> Option<Dax> {
        let instruction = FlushInstruction::detect()?;
        let needed = match choice {
            FlushChoice::Always => true,
            FlushChoice::AsPlatform => !platform::caches_are_durable(file),
            FlushChoice::Never => false,
        };
        let line_flush = needed.then_some(instruction);
        Some(Dax { kind, line_flush, lanes: Lanes::default(), counters: Counters::new() })
    }

    pub(crate) fn kind(&self) -> DomainKind {
        self.kind
    }

    pub(crate) fn line_flush(&self) -> Option<FlushInstruction> {
        self.line_flush
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    #[inline]
    pub(crate) fn flush(&self, mapping: &Mapping, ranges: &[(PoolOffset, usize)]) {
        self.counters.add_flushes(ranges.len() as u64);
        let Some(line_flush) = self.line_flush else { return };
        step(LINES_WRITTEN_BACK, || {
            for &(offset, bytes) in ranges {
                let mut line = offset.aligned_down(LINE_BYTES);
                while line < offset.plus(bytes as u64) {
                    line_flush.write_back(&mapping.words(line.bytes(), 1)[0]);
                    line = line.plus(LINE_BYTES);
                }
            }
        });
    }

    /// Stores the bytes and starts to make them durable; see [`crate::Pool::store_flushed_at`].
    pub(crate) fn store_flushed(&self, mapping: &Mapping, offset: PoolOffset, bytes: &[u8]) {
        let words = mapping.words(offset.bytes(), bytes.len().div_ceil(8));
        if stream::AVAILABLE && self.line_flush.is_some() && bytes.len() >= STREAM_BYTES_MIN {
            self.counters.add_flushes(1);
            return stream::stream(words, bytes);
        }
        stream::store(words, bytes);
        self.flush(mapping, &[(offset, 8 * words.len())]);
    }

    #[inline]
    pub(crate) fn fence(&self) {
        self.counters.add_fence();
        step(WRITE_BACKS_FENCED, instruction::store_fence);
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        let (flushes, fences) = self.counters.sums();
        stats.flushes += flushes;
        stats.fences += fences;
    }
}

impl From<Dax> for super::Domain {
    fn from(dax: Dax) -> Self {
        super::Domain::Dax(dax)
    }
}
