//! Copying a journal and its pool file while writers go on.
//!
//! 1. Checkpoints pause: the pool file and its checksums do not change, and no slot is recycled.
//! 2. The pool file is copied, and the checksums of its pages. It may be of any age: the journal leads from
//!    it to the present.
//! 3. The journal is made durable up to E, and the slots that hold frames up to E are noted, both under one
//!    hold of the writer's lock. Frames up to E never change any more.
//! 4. The frames up to E are copied, and nothing behind them: a frame that claims durability beyond the
//!    copy's end would make the copy look damaged.
//! 5. The copy of the pool file is made as long as the pool file is then: the journal may contain extents
//!    added after step 2.
//!
//! The copy is a state that a power failure at step 3 leaves, and opening it recovers it. Writers wait for
//! a copy only when the journal has reached its bound meanwhile.

use super::JournalState;
use super::writing::buffer::AlignedBuffer;
use super::writing::frame::BLOCK_BYTES;
use super::writing::log::{SLOTS_START, Slot};
use crate::env::StorageFile;
use crate::error::{Error, Result};
use std::path::Path;

/// Bytes copied at once.
const STEP_BYTES: u64 = 1 << 20;

/// Destination file, and its name for errors.
pub(crate) struct Target<'t> {
    pub(crate) file: Box<dyn StorageFile>,
    pub(crate) path: &'t Path,
}

/// Destination files of a pool.
pub(crate) struct Targets<'t> {
    pub(crate) pool: Target<'t>,
    pub(crate) journal: Target<'t>,
    pub(crate) checksums: Target<'t>,
}

/// Summary of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CopySummary {
    pub(crate) pool_bytes: u64,
    pub(crate) journal_bytes: u64,
}

impl JournalState {
    /// Copies the files to empty ones, which are not synced yet.
    pub(super) fn copy_to(&self, targets: &Targets<'_>) -> Result<CopySummary> {
        let Targets { pool, journal, checksums } = targets;
        let _paused = self.checkpointing.lock();
        self.check_healthy()?;
        let look = |e: &std::io::Error| Error::io("get the length of", &self.pool_path, e);
        let first_bytes = self.pages_file.len().map_err(|e| look(&e))?;
        copy_range(&*self.pages_file, &self.pool_path, pool, 0..first_bytes)?;
        let (file, path) = self.checksums.file();
        let checksum_bytes = file.len().map_err(|e| Error::io("get the length of", path, &e))?;
        copy_range(file, path, checksums, 0..checksum_bytes)?;
        let noted = {
            let mut writer = self.writer.lock();
            let end = self.write_out_locked(&mut writer)?;
            self.sync_file()?;
            self.durable.advance(end);
            writer.log.ranges_in_use()
        };
        let bytes = SLOTS_START + noted.slots as u64 * noted.slot_bytes;
        journal.file.allocate(0, bytes).map_err(|e| Error::io("extend", journal.path, &e))?;
        let mut journal_bytes = 0;
        for range in noted.ranges {
            journal_bytes += range.end - range.start;
            // Reading needs no lock: the noted frames do not change while checkpoints pause.
            copy_range(&*noted.file, &noted.path, journal, range)?;
        }
        let pool_bytes = self.pages_file.len().map_err(|e| look(&e))?;
        pool.file.allocate(0, pool_bytes).map_err(|e| Error::io("extend", pool.path, &e))?;
        Ok(CopySummary { pool_bytes, journal_bytes })
    }
}

/// Copies a range to the same place. Blocks of zeros stay holes.
fn copy_range(
    from: &dyn StorageFile,
    from_path: &Path,
    to: &Target<'_>,
    range: std::ops::Range<u64>,
) -> Result<()> {
    assert!(range.start <= range.end, "a range of a file goes forwards: {range:?}");
    let mut buffer = AlignedBuffer::new(STEP_BYTES as usize);
    let mut at = range.start;
    while at < range.end {
        let step = (range.end - at).min(STEP_BYTES);
        let bytes = &mut buffer.bytes_mut()[..step as usize];
        from.read_at(bytes, at).map_err(|e| Error::io("read", from_path, &e))?;
        if bytes.iter().any(|byte| *byte != 0) {
            to.file.write_at(bytes, at).map_err(|e| Error::io("write to", to.path, &e))?;
        }
        debug_assert!(step > 0, "each step copies something");
        at += step;
    }
    Ok(())
}

/// Ranges of a journal's file that a recovery reads.
pub(super) struct UsedRanges {
    pub(super) file: std::sync::Arc<dyn StorageFile>,
    pub(super) path: std::path::PathBuf,
    pub(super) slots: usize,
    pub(super) slot_bytes: u64,
    pub(super) ranges: Vec<std::ops::Range<u64>>,
}

impl super::writing::log::Log {
    /// Header blocks and written part of each slot in use.
    pub(super) fn ranges_in_use(&self) -> UsedRanges {
        let mut ranges = Vec::new();
        ranges.push(0..SLOTS_START);
        for (slot, state) in self.slots.iter().enumerate() {
            let start = self.slot_offset(slot);
            let written = match self.current {
                Some((current, at)) if current == slot => at,
                _ => self.header.slot_bytes,
            };
            assert!(
                (BLOCK_BYTES as u64..=self.header.slot_bytes).contains(&written),
                "{written} bytes of slot {slot} are written"
            );
            if matches!(state, Slot::Used { .. }) {
                ranges.push(start..start + written);
            }
        }
        UsedRanges {
            file: self.file.clone(),
            path: self.path.clone(),
            slots: self.slots.len(),
            slot_bytes: self.header.slot_bytes,
            ranges,
        }
    }
}
