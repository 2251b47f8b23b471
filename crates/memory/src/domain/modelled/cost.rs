//! Modelled cost of a pool.

use std::ops::Sub;

/// Modelled time and traffic since a pool was created; the difference of two is the cost in between. A block
/// that is still open in the device's write-combining buffer counts as written; the read that completes it
/// counts at its eviction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelledCost {
    /// Modelled time in thousandths of a nanosecond: of the memory only, the processor's work is free.
    pub picoseconds: u64,
    /// Accesses to cached lines.
    pub cache_hits: u64,
    /// Lines read from the device.
    pub lines_read: u64,
    /// Lines read from the DRAM beside the pool, if it is modelled.
    pub lines_read_beside: u64,
    /// Blocks that the device read internally, also to complete partial writes.
    pub blocks_read: u64,
    /// Changed lines sent to the device, flushed or evicted.
    pub lines_written: u64,
    /// Blocks that the device wrote internally.
    pub blocks_written: u64,
    /// Blocks that left the write-combining buffer incomplete: read, changed, written.
    pub blocks_completed: u64,
    /// Flush instructions: one for each line of each flushed range.
    pub flushes: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes of a line: the unit of transfer between device and processor.
    pub line_bytes: u64,
    /// Bytes of a block: the unit that the device reads and writes internally.
    pub block_bytes: u64,
}

impl ModelledCost {
    /// Modelled nanoseconds.
    pub fn ns(&self) -> f64 {
        self.picoseconds as f64 / 1000.0
    }

    /// Ratio of bytes that the device wrote internally to bytes sent to it. 0 if nothing was written.
    pub fn write_amplification(&self) -> f64 {
        amplification(self.blocks_written * self.block_bytes, self.lines_written * self.line_bytes)
    }

    /// Ratio of bytes that the device read internally to bytes requested from it. 0 if nothing was read.
    pub fn read_amplification(&self) -> f64 {
        amplification(self.blocks_read * self.block_bytes, self.lines_read * self.line_bytes)
    }
}

fn amplification(inside: u64, outside: u64) -> f64 {
    if outside == 0 { 0.0 } else { inside as f64 / outside as f64 }
}

impl Sub for ModelledCost {
    type Output = ModelledCost;

    /// Difference from `earlier`, a cost of the same pool.
    fn sub(self, earlier: ModelledCost) -> ModelledCost {
        ModelledCost {
            picoseconds: self.picoseconds - earlier.picoseconds,
            cache_hits: self.cache_hits - earlier.cache_hits,
            lines_read: self.lines_read - earlier.lines_read,
            lines_read_beside: self.lines_read_beside - earlier.lines_read_beside,
            blocks_read: self.blocks_read - earlier.blocks_read,
            lines_written: self.lines_written - earlier.lines_written,
            blocks_written: self.blocks_written - earlier.blocks_written,
            blocks_completed: self.blocks_completed - earlier.blocks_completed,
            flushes: self.flushes - earlier.flushes,
            fences: self.fences - earlier.fences,
            line_bytes: self.line_bytes,
            block_bytes: self.block_bytes,
        }
    }
}
