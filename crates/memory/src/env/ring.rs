//! Many reads or writes in flight at once, through io_uring where the kernel has it.
//!
//! Measured on pages of a checkpoint, direct I/O with 64 in flight writes scattered pages several times as
//! fast as one by one, and needs none of the copying that the page cache costs. A single write with its sync
//! is not faster than two plain calls, so commits do not use it. Opening a journal reads the heads of its
//! slots this way.
//!
//! Kernels before 5.6, sandboxes (seccomp) and administrators (`kernel.io_uring_disabled`) may refuse a ring;
//! then there is none, and callers use plain calls.

use crate::placement::WriteSettings;
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum number of reads or writes in flight.
const IN_FLIGHT_MAX: usize = WriteSettings::AT_ONCE_MAX;
/// Maximum bytes of a single read: long runs are split, so that their parts are read in parallel.
const BYTES_MAX: usize = 256 << 10;

/// Ring of reads and writes.
pub(super) struct FileRing {
    ring: IoUring,
    broken: bool,
}

/// Read or write at an offset of the file.
struct PendingRequest<'b> {
    offset: u64,
    bytes: Bytes<'b>,
}

enum Bytes<'b> {
    Written(&'b [u8]),
    Read(&'b mut [u8]),
}

impl Bytes<'_> {
    fn len(&self) -> usize {
        match self {
            Bytes::Written(bytes) => bytes.len(),
            Bytes::Read(bytes) => bytes.len(),
        }
    }

    /// Remainder after `done` bytes.
    fn after(self, done: usize) -> Self {
        match self {
            Bytes::Written(bytes) => Bytes::Written(&bytes[done..]),
            Bytes::Read(bytes) => Bytes::Read(&mut bytes[done..]),
        }
    }
}

impl FileRing {
    /// Creates a ring, if the kernel supports one that can read and write.
    pub(super) fn detect() -> Option<FileRing> {
        let ring = IoUring::new(IN_FLIGHT_MAX as u32).ok()?;
        let mut probe = io_uring::register::Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let can = probe.is_supported(opcode::Write::CODE) && probe.is_supported(opcode::Read::CODE);
        can.then_some(FileRing { ring, broken: false })
    }

    /// Writes all ranges, in any order, long runs split into pieces that are written in parallel. Not durable
    /// yet. After an error any part may have been written; nothing is in flight any more.
    pub(super) fn write_all(
        &mut self,
        file: BorrowedFd<'_>,
        writes: &[(u64, &[u8])],
        how: WriteSettings,
    ) -> io::Result<()> {
        let mut waiting: VecDeque<PendingRequest<'_>> = VecDeque::with_capacity(writes.len());
        for (offset, bytes) in writes {
            let parts = bytes.chunks(how.piece_bytes).zip((*offset..).step_by(how.piece_bytes));
            waiting
                .extend(parts.map(|(bytes, offset)| PendingRequest { offset, bytes: Bytes::Written(bytes) }));
        }
        self.do_all(file, waiting, how.at_once)
    }

    /// Fills all buffers, in any order; an earlier end of the file is an error. Nothing is in flight any more
    /// when it returns.
    pub(super) fn read_all(
        &mut self,
        file: BorrowedFd<'_>,
        reads: &mut [(u64, &mut [u8])],
    ) -> io::Result<()> {
        let mut waiting: VecDeque<PendingRequest<'_>> = VecDeque::with_capacity(reads.len());
        for (offset, bytes) in reads {
            let parts = bytes.chunks_mut(BYTES_MAX).zip((*offset..).step_by(BYTES_MAX));
            waiting.extend(parts.map(|(bytes, offset)| PendingRequest { offset, bytes: Bytes::Read(bytes) }));
        }
        self.do_all(file, waiting, IN_FLIGHT_MAX)
    }

    fn do_all(
        &mut self,
        file: BorrowedFd<'_>,
        mut waiting: VecDeque<PendingRequest<'_>>,
        at_once: usize,
    ) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the ring has failed before"));
        }
        let mut slots: [Option<PendingRequest<'_>>; IN_FLIGHT_MAX] = [const { None }; IN_FLIGHT_MAX];
        let in_flight = &mut slots[..at_once];
        let mut failure: Option<io::Error> = None;
        loop {
            if failure.is_none() {
                self.push(file, &mut waiting, in_flight);
            }
            let flying = in_flight.iter().flatten().count();
            if flying == 0 {
                return failure.map_or(Ok(()), Err);
            }
            self.wait(&mut failure);
            for completion in self.ring.completion() {
                let slot = &mut in_flight[completion.user_data() as usize];
                let done = slot.take().expect("a completion belongs to what is in flight");
                if let Err(error) = note(completion.result(), done, &mut waiting) {
                    failure.get_or_insert(error);
                }
            }
        }
    }

    /// Submits pending operations as long as there is room.
    fn push<'b>(
        &mut self,
        file: BorrowedFd<'_>,
        waiting: &mut VecDeque<PendingRequest<'b>>,
        in_flight: &mut [Option<PendingRequest<'b>>],
    ) {
        for (index, slot) in in_flight.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
            let Some(mut next) = waiting.pop_front() else { return };
            let (file, count) = (types::Fd(file.as_raw_fd()), next.bytes.len() as u32);
            let entry = match &mut next.bytes {
                Bytes::Written(bytes) => {
                    opcode::Write::new(file, bytes.as_ptr(), count).offset(next.offset).build()
                }
                Bytes::Read(bytes) => {
                    opcode::Read::new(file, bytes.as_mut_ptr(), count).offset(next.offset).build()
                }
            };
            // SAFETY: the bytes are borrowed for longer than the call of `do_all`, those to be filled by it
            // alone; it returns only when nothing is in flight. The descriptor is borrowed as long.
            let pushed = unsafe { self.ring.submission().push(&entry.user_data(index as u64)) };
            if pushed.is_err() {
                waiting.push_front(next);
                return;
            }
            *slot = Some(next);
        }
    }

    /// Waits for a completion. Operations in flight use the caller's memory, so this never gives up: a kernel
    /// that refuses to wait is asked again, and the ring is not used any more afterwards.
    fn wait(&mut self, failure: &mut Option<io::Error>) {
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(e) => {
                self.broken = true;
                failure.get_or_insert(e);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}

/// Handles a completion: the rest of a short one is queued again.
fn note<'b>(
    result: i32,
    done: PendingRequest<'b>,
    waiting: &mut VecDeque<PendingRequest<'b>>,
) -> io::Result<()> {
    match result {
        code if code == -libc::EAGAIN || code == -libc::EINTR => waiting.push_front(done),
        code if code < 0 => return Err(io::Error::from_raw_os_error(-code)),
        0 => {
            return Err(match done.bytes {
                Bytes::Written(_) => io::ErrorKind::WriteZero,
                Bytes::Read(_) => io::ErrorKind::UnexpectedEof,
            }
            .into());
        }
        count if (count as usize) < done.bytes.len() => {
            let count = count as usize;
            let rest = PendingRequest { offset: done.offset + count as u64, bytes: done.bytes.after(count) };
            waiting.push_front(rest);
        }
        _ => {}
    }
    Ok(())
}
