//! Persistent memory: the processor's own flush and fence instructions.
//!
//! A store is durable once its line was flushed and a fence passed. Large flushes are one instruction a line;
//! the lines need no order among themselves.

use super::DomainKind;
use super::redo::Lanes;
use crate::mapping::Mapping;
use crate::stats::PoolStats;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const LINE_BYTES: u64 = 64;

/// Which instruction writes a line back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineFlush {
    /// Writes back and keeps the line: the best.
    Clwb,
    /// Writes back and drops the line, unordered.
    ClflushOpt,
    /// Writes back and drops the line, ordered: works everywhere.
    Clflush,
}

pub(crate) struct Dax {
    kind: DomainKind,
    line_flush: LineFlush,
    lanes: Lanes,
    flushes: AtomicU64,
    fences: AtomicU64,
}

impl Dax {
    /// The domain with the best instructions of this processor; none on processors we have no flush for.
    pub(crate) fn detect(kind: DomainKind) -> Option<Dax> {
        Some(Dax {
            kind,
            line_flush: LineFlush::detect()?,
            lanes: Lanes::default(),
            flushes: AtomicU64::new(0),
            fences: AtomicU64::new(0),
        })
    }

    pub(crate) fn kind(&self) -> DomainKind {
        self.kind
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    #[inline]
    pub(crate) fn flush(&self, mapping: &Mapping, ranges: &[(u64, usize)]) {
        self.flushes.fetch_add(ranges.len() as u64, Ordering::Relaxed);
        for &(offset, bytes) in ranges {
            let first = offset & !(LINE_BYTES - 1);
            let mut line = first;
            while line < offset + bytes as u64 {
                self.line_flush.write_back(&mapping.words(line, 1)[0]);
                line += LINE_BYTES;
            }
        }
    }

    #[inline]
    pub(crate) fn fence(&self) {
        self.fences.fetch_add(1, Ordering::Relaxed);
        store_fence();
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        stats.flushes += self.flushes.load(Ordering::Relaxed);
        stats.fences += self.fences.load(Ordering::Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
impl LineFlush {
    fn detect() -> Option<LineFlush> {
        use std::arch::x86_64::__cpuid_count;
        // Leaf 7 exists on every processor with AVX2; below that clflush is the safe choice.
        if !std::arch::is_x86_feature_detected!("avx2") {
            return Some(LineFlush::Clflush);
        }
        let features = __cpuid_count(7, 0).ebx;
        Some(if features & (1 << 24) != 0 {
            LineFlush::Clwb
        } else if features & (1 << 23) != 0 {
            LineFlush::ClflushOpt
        } else {
            LineFlush::Clflush
        })
    }

    #[inline]
    fn write_back(self, word: &AtomicU64) {
        let address = word.as_ptr();
        match self {
            LineFlush::Clwb => {
                // SAFETY: the address is a live word of the mapping; the instruction changes no value. It is
                // a memory clobber for the compiler, so that earlier stores are issued before it.
                unsafe { std::arch::asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags)) };
            }
            LineFlush::ClflushOpt => {
                // SAFETY: as for clwb.
                unsafe {
                    std::arch::asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
                };
            }
            LineFlush::Clflush => {
                // SAFETY: as for clwb.
                unsafe {
                    std::arch::asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags));
                };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn store_fence() {
    fence(Ordering::Release);
    // SAFETY: every x86-64 processor has SSE. Orders the write-backs before it with the stores after it.
    unsafe { std::arch::x86_64::_mm_sfence() };
    fence(Ordering::Release);
}

#[cfg(not(target_arch = "x86_64"))]
impl LineFlush {
    fn detect() -> Option<LineFlush> {
        None
    }

    fn write_back(self, _word: &AtomicU64) {}
}

#[cfg(not(target_arch = "x86_64"))]
fn store_fence() {
    fence(Ordering::SeqCst);
}

impl From<Dax> for super::Domain {
    fn from(dax: Dax) -> Self {
        super::Domain::Dax(dax)
    }
}
