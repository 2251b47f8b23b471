//! New slots for the journal file, made ahead of need.
//!
//! A slot counts only once it was written full of zeros and the file was synced: overwriting what has been written
//! needs no metadata of the file system, so a later sync is one flush of the device. Blocks that are merely
//! allocated cost a commit of the file system's own journal at each first write; measured, such a sync takes 10 to
//! 20 times as long.
//!
//! A crash while a slot is made leaves the file longer by a part of a slot, or by a slot of zeros; both are
//! found by the file's length and used, or made again, by the next open.

use super::buffer::AlignedBuffer;
use crate::env::StorageFile;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are zeroed in one write.
const ZERO_BYTES: usize = 1 << 20;

/// Makes slots; whoever needs one asks.
pub(super) struct SlotSupply {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    slots_start: u64,
    slot_bytes: u64,
    /// Slots of the file, with the one that is being made.
    count: Mutex<usize>,
    /// Slots that were made ahead and that nobody has taken yet.
    ready: Mutex<Vec<usize>>,
}

impl SlotSupply {
    pub(super) fn new(
        file: Arc<dyn StorageFile>,
        path: PathBuf,
        slots_start: u64,
        slot_bytes: u64,
        count: usize,
    ) -> SlotSupply {
        SlotSupply { file, path, slots_start, slot_bytes, count: Mutex::new(count), ready: Mutex::default() }
    }

    /// A slot that was made ahead.
    pub(super) fn take_ready(&self) -> Option<usize> {
        self.ready.lock().pop()
    }

    /// A new slot, now. If one is being made ahead, waits for that one.
    pub(super) fn take_or_make(&self) -> Result<usize> {
        let mut count = self.count.lock();
        match self.take_ready() {
            Some(slot) => Ok(slot),
            None => self.make(&mut count),
        }
    }

    /// Makes a slot ahead, unless one is ready.
    pub(super) fn make_ahead(&self) -> Result<()> {
        let mut count = self.count.lock();
        if self.ready.lock().is_empty() {
            let slot = self.make(&mut count)?;
            self.ready.lock().push(slot);
        }
        Ok(())
    }

    fn make(&self, count: &mut usize) -> Result<usize> {
        let failed = |e: &std::io::Error| Error::io("extend", &self.path, e);
        let mut at = self.slots_start + *count as u64 * self.slot_bytes;
        let end = at + self.slot_bytes;
        let zeros = AlignedBuffer::new(ZERO_BYTES.min(self.slot_bytes as usize));
        while at < end {
            let step = (end - at).min(ZERO_BYTES as u64);
            self.file.write_at(&zeros.bytes()[..step as usize], at).map_err(|e| failed(&e))?;
            at += step;
        }
        self.file.sync_data().map_err(|e| failed(&e))?;
        *count += 1;
        Ok(*count - 1)
    }
}
