//! New slots of the journal file, prepared ahead of need.
//!
//! A slot is in use only after it was written full of zeros and the file was synced: overwriting written
//! blocks needs no metadata of the file system, so a later sync is one flush of the device. Blocks that are
//! merely allocated cost a commit of the file system's own journal at each first write; measured, such a sync
//! takes 10 to 20 times as long.
//!
//! Once the journal is marked closed, slots beyond those that it is created with go back to the file system: none holds
//! anything that is needed. A crash before the file is shortened leaves it as long as it was.
//!
//! A crash during the preparation leaves the file longer by a part of a slot, or by a slot of zeros; the next
//! open finds both by the file's length, and uses the slot or prepares it again.

use crate::domain::journal::writing::buffer::AlignedBuffer;
use crate::domain::journal::writing::frame::BLOCK_BYTES;
use crate::env::StorageFile;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes zeroed in one write.
const ZERO_BYTES: usize = 1 << 20;

/// Supply of slots, prepared on request.
pub(crate) struct SlotSupply {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    slots_start: u64,
    slot_bytes: u64,
    /// Number of slots of the file, with the one in preparation.
    count: Mutex<usize>,
    /// Slots that were prepared ahead and not taken yet.
    ready: Mutex<Vec<usize>>,
}

impl SlotSupply {
    pub(crate) fn new(
        file: Arc<dyn StorageFile>,
        path: PathBuf,
        slots_start: u64,
        slot_bytes: u64,
        count: usize,
    ) -> SlotSupply {
        assert!(
            slot_bytes > 0 && slot_bytes.is_multiple_of(BLOCK_BYTES as u64),
            "slots are whole blocks: {slot_bytes} bytes"
        );
        SlotSupply { file, path, slots_start, slot_bytes, count: Mutex::new(count), ready: Mutex::default() }
    }

    /// Takes a slot that was prepared ahead.
    pub(crate) fn take_ready(&self) -> Option<usize> {
        self.ready.lock().pop()
    }

    /// Takes or prepares a slot. If one is in preparation, waits for that one.
    pub(crate) fn take_or_make(&self) -> Result<usize> {
        let mut count = self.count.lock();
        match self.take_ready() {
            Some(slot) => Ok(slot),
            None => self.make(&mut count),
        }
    }

    /// Prepares a slot ahead, unless one is ready.
    pub(crate) fn make_ahead(&self) -> Result<()> {
        let mut count = self.count.lock();
        if self.ready.lock().is_empty() {
            let slot = self.make(&mut count)?;
            self.ready.lock().push(slot);
        }
        Ok(())
    }

    /// Shortens the file to its first slots, of which none is in use, or will be before the next open.
    pub(crate) fn return_slots(&self, kept: usize) -> Result<()> {
        let mut count = self.count.lock();
        if *count <= kept {
            return Ok(());
        }
        let failed = |e: &std::io::Error| Error::io("shorten", &self.path, e);
        let end = self.slots_start + kept as u64 * self.slot_bytes;
        self.file.shorten(end).and_then(|()| self.file.sync_data()).map_err(|e| failed(&e))?;
        *count = kept;
        self.ready.lock().retain(|slot| *slot < kept);
        Ok(())
    }

    fn make(&self, count: &mut usize) -> Result<usize> {
        let failed = |e: &std::io::Error| Error::io("extend", &self.path, e);
        let mut at = self.slots_start + *count as u64 * self.slot_bytes;
        assert!(
            (at - self.slots_start).is_multiple_of(self.slot_bytes),
            "a slot begins behind whole slots, not at {at}"
        );
        let end = at + self.slot_bytes;
        let zeros = AlignedBuffer::new(ZERO_BYTES.min(self.slot_bytes as usize));
        while at < end {
            let step = (end - at).min(ZERO_BYTES as u64);
            self.file.write_at(&zeros.bytes()[..step as usize], at).map_err(|e| failed(&e))?;
            at += step;
        }
        assert_eq!(at, end, "a slot is zero up to its end before it is used");
        self.file.sync_data().map_err(|e| failed(&e))?;
        debug_assert!(!self.ready.lock().contains(count), "a slot is handed over after it was prepared");
        *count += 1;
        Ok(*count - 1)
    }
}
