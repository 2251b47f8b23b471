//! Room in the journal: admission of appenders while the device is behind.
//!
//! An appender may hold latches of leaves, for which readers wait that need nothing of the journal. So a
//! caller that is about to change something calls [`JournalState::wait_for_room`] before it takes the first latch,
//! and waits there: while the journal is at its maximum, for a checkpoint; while the maximum number of
//! buffers is full, for a write of one, which it makes itself. Appending then takes from a reserve: half as
//! much journal again, and 16 buffers. The appends between two such calls are an operation on an index or a
//! part of a commit, so the reserve lasts unless some hundred threads do that at once with their largest
//! operations; then appenders wait, too.

use crate::domain::journal::writing::append::{BUFFERS_MAX, BUFFERS_WITH_RESERVE};
use crate::domain::journal::writing::buffer::AlignedBuffer;
use crate::domain::journal::{Gate, JournalState};
use crate::error::Result;
use std::sync::atomic::Ordering;

const _: () = assert!(BUFFERS_MAX < BUFFERS_WITH_RESERVE, "there is a reserve");

impl JournalState {
    /// Waits until there is room for what the caller is about to append; the caller holds nothing that others
    /// wait for. Returns also when the journal has failed or is closed.
    #[inline]
    pub(crate) fn wait_for_room(&self) {
        if self.is_behind.load(Ordering::Relaxed) || matches!(self.gate(), Gate::Full | Gate::ReserveUsed) {
            self.wait_for_device();
        }
    }

    #[cold]
    fn wait_for_device(&self) {
        while self.is_behind.load(Ordering::Relaxed) {
            if self.write_oldest().is_err() {
                return;
            }
        }
        self.wait_while(|gate| matches!(gate, Gate::Full | Gate::ReserveUsed));
    }

    /// Waits for room, as an appender, when the gate is neither open nor full; false if the journal has
    /// failed or is closed.
    #[cold]
    pub(crate) fn pass_gate(&self) -> bool {
        self.wait_while(|gate| gate == Gate::ReserveUsed);
        self.gate() != Gate::Shut
    }

    /// Waits until a checkpoint has made room, or the journal has failed.
    fn wait_while(&self, closed: impl Fn(Gate) -> bool) {
        if !closed(self.gate()) {
            return;
        }
        let mut held = self.room_lock.lock();
        while closed(self.gate()) {
            self.background.request_checkpoint();
            self.room.wait_for(&mut held, std::time::Duration::from_millis(100));
            self.set_gate();
        }
    }

    /// Adds a buffer for an appender, or writes the oldest out if there is the maximum number of them.
    #[cold]
    pub(crate) fn make_room(&self) -> Result<()> {
        let Some(bytes) = self.appender.active.lock().add_buffer() else { return self.write_oldest() };
        let buffer = AlignedBuffer::new(bytes);
        debug_assert!(buffer.bytes().len() >= bytes, "a buffer has at least the bytes asked for");
        if let Some(reserved) = &mut *self.buffers.lock() {
            reserved.grow_unchecked(bytes as u64);
        }
        self.appender.active.lock().take_new(buffer);
        Ok(())
    }
}
