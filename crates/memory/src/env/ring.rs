//! Many writes in flight at once, through io_uring where the kernel has it.
//!
//! Measured on pages of a checkpoint, direct I/O with 64 in flight writes scattered pages several times as fast as
//! one by one, and takes none of the copying that the page cache costs. A single write with its sync is not
//! faster than two plain calls, so commits do not come here.
//!
//! Kernels before 5.6, sandboxes (seccomp) and administrators (`kernel.io_uring_disabled`) may refuse a ring; then
//! there is none, and callers use plain calls.

use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Writes in flight at once.
const IN_FLIGHT_MAX: usize = 64;
/// The longest single write: long runs are cut, so that they go out side by side too.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// A ring for writes.
pub(super) struct WriteRing {
    ring: IoUring,
    broken: bool,
}

struct Pending<'b> {
    offset: u64,
    bytes: &'b [u8],
}

impl WriteRing {
    /// A ring, if the kernel gives one that can write.
    pub(super) fn detect() -> Option<WriteRing> {
        let ring = IoUring::new(IN_FLIGHT_MAX as u32).ok()?;
        let mut probe = io_uring::register::Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        probe.is_supported(opcode::Write::CODE).then_some(WriteRing { ring, broken: false })
    }

    /// Writes all of it, in any order. Not durable yet. After an error any part may have been written; nothing is
    /// in flight any more.
    pub(super) fn write_all(&mut self, file: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the ring has failed before"));
        }
        let mut waiting: VecDeque<Pending<'_>> = VecDeque::with_capacity(writes.len());
        for (offset, bytes) in writes {
            let parts = bytes.chunks(WRITE_BYTES_MAX).zip((*offset..).step_by(WRITE_BYTES_MAX));
            waiting.extend(parts.map(|(bytes, offset)| Pending { offset, bytes }));
        }
        let mut in_flight: [Option<Pending<'_>>; IN_FLIGHT_MAX] = [const { None }; IN_FLIGHT_MAX];
        let mut failure: Option<io::Error> = None;
        loop {
            if failure.is_none() {
                self.push(file, &mut waiting, &mut in_flight);
            }
            let flying = in_flight.iter().flatten().count();
            if flying == 0 {
                return failure.map_or(Ok(()), Err);
            }
            self.wait(&mut failure);
            for completion in self.ring.completion() {
                let slot = &mut in_flight[completion.user_data() as usize];
                let done = slot.take().expect("a completion belongs to a write in flight");
                if let Err(error) = note(completion.result(), done, &mut waiting) {
                    failure.get_or_insert(error);
                }
            }
        }
    }

    /// Hands writes over as long as there is room.
    fn push<'b>(
        &mut self,
        file: BorrowedFd<'_>,
        waiting: &mut VecDeque<Pending<'b>>,
        in_flight: &mut [Option<Pending<'b>>; IN_FLIGHT_MAX],
    ) {
        for (index, slot) in in_flight.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
            let Some(next) = waiting.pop_front() else { return };
            let write =
                opcode::Write::new(types::Fd(file.as_raw_fd()), next.bytes.as_ptr(), next.bytes.len() as u32)
                    .offset(next.offset)
                    .build()
                    .user_data(index as u64);
            // SAFETY: the bytes are borrowed for longer than the call of `write_all`, which returns only when
            // nothing is in flight, and so is the descriptor.
            let pushed = unsafe { self.ring.submission().push(&write) };
            if pushed.is_err() {
                waiting.push_front(next);
                return;
            }
            *slot = Some(next);
        }
    }

    /// Waits for a completion. What is in flight reads the caller's memory, so this never gives up: a kernel that
    /// refuses to wait is asked again, and the ring is not used any more afterwards.
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

/// What a completed write means: the rest of a short one waits again.
fn note<'b>(result: i32, done: Pending<'b>, waiting: &mut VecDeque<Pending<'b>>) -> io::Result<()> {
    match result {
        code if code == -libc::EAGAIN || code == -libc::EINTR => waiting.push_front(done),
        code if code < 0 => return Err(io::Error::from_raw_os_error(-code)),
        0 => return Err(io::ErrorKind::WriteZero.into()),
        written if (written as usize) < done.bytes.len() => {
            let written = written as usize;
            let rest = Pending { offset: done.offset + written as u64, bytes: &done.bytes[written..] };
            waiting.push_front(rest);
        }
        _ => {}
    }
    Ok(())
}
