//! Statistics of a pool.

/// Content and activity of a pool since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Size of the pool file (or of the DRAM in its place).
    pub pool_bytes: u64,
    /// Bytes of objects that are allocated or reserved (occupied, not requested).
    pub allocated_bytes: u64,
    /// Bytes of journal that a recovery would have to replay now.
    pub journal_bytes: u64,
    /// Bytes appended to the journal since open.
    pub journal_appended_bytes: u64,
    /// Bytes that checkpoints copied to the pool file since open.
    pub checkpoint_bytes: u64,
    /// Checkpoints since open.
    pub checkpoints: u64,
    /// Ranges flushed since open.
    pub flushes: u64,
    /// Fences since open.
    pub fences: u64,
    /// Device syncs since open.
    pub syncs: u64,
    /// Bytes of journal replayed when the pool was opened.
    pub replayed_bytes: u64,
    /// Bytes of journal frames written since open, with their headers and padding.
    pub journal_stored_bytes: u64,
    /// Bytes of journal frames, with their headers and padding, that were read back when the pool was opened.
    pub replayed_stored_bytes: u64,
    /// Microseconds of reading them back.
    pub replay_us: u64,
    /// Predicted milliseconds of a recovery now.
    pub predicted_recovery_ms: u64,
    /// True if the journal goes past the page cache.
    pub direct_io: bool,
    /// Reads of large objects past the mapping and the page cache since open.
    pub direct_reads: u64,
    /// Bytes of these reads, in whole pages.
    pub direct_read_bytes: u64,
    /// True if checkpoints write many pages at once through io_uring.
    pub io_uring: bool,
}
