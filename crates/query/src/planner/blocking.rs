//! Calls that hold their thread for long, and calls that cannot be interrupted.
//!
//! A call of a function with one large argument (a regular expression over megabytes) has no place at which it
//! could look for cancellation. It runs on a thread of its own, and the statement waits for it: when the statement
//! is cancelled it ends at once, and the call later, its result dropped. At most [`ABANDONED_MAX`] such calls go
//! on; while they do, others run on the thread of their statement. Functions bound the time and memory of one call
//! ([`crate::planner::bounded_functions`]).

use crate::error::Error;
use crate::session::cancellation::RunningStatement;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Maximum number of calls that go on without a statement that waits for them.
const ABANDONED_MAX: usize = 4;
/// Longest time until a cancellation is seen.
const SLICE: Duration = Duration::from_millis(5);

/// Number of calls that go on.
static ABANDONED: AtomicUsize = AtomicUsize::new(0);

const WAITED_FOR: u8 = 0;
const GIVEN_UP: u8 = 1;
const DONE: u8 = 2;

/// Runs something that holds this thread, which may be the one that drives I/O and timers.
pub(crate) fn in_place<T>(call: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(call),
        _ => call(),
    }
}

/// Result of a call, or the reason for which the statement ends before it.
pub(crate) fn interruptible<T: Send + 'static>(
    running: &RunningStatement,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    running.check()?;
    if ABANDONED.load(Ordering::Relaxed) >= ABANDONED_MAX {
        return Ok(in_place(call));
    }
    let phase = Arc::new(AtomicU8::new(WAITED_FOR));
    let (sender, receiver) = sync_channel(1);
    let end = CallEnd(Arc::clone(&phase));
    let spawned = thread::Builder::new().name("entresol function".into()).spawn(move || {
        let _end = end;
        // Without a receiver the statement has ended.
        let _ = sender.send(call());
    });
    if let Err(error) = spawned {
        return Err(Error::Internal(format!("cannot start a thread for a function: {error}")));
    }
    in_place(|| {
        loop {
            match receiver.recv_timeout(SLICE) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Internal("a function ended without a result".into()));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = running.check() {
                        ABANDONED.fetch_add(1, Ordering::Relaxed);
                        if phase.swap(GIVEN_UP, Ordering::AcqRel) == DONE {
                            ABANDONED.fetch_sub(1, Ordering::Relaxed);
                        }
                        return Err(error);
                    }
                }
            }
        }
    })
}

/// End of a call on its own thread, by its result or a panic.
struct CallEnd(Arc<AtomicU8>);

impl Drop for CallEnd {
    fn drop(&mut self) {
        if self.0.swap(DONE, Ordering::AcqRel) == GIVEN_UP {
            ABANDONED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use entresol_transactions::{Cancellation, Interrupt};

    #[test]
    fn a_cancelled_statement_does_not_wait_for_its_call() {
        let running = Arc::new(RunningStatement::default());
        assert_eq!(interruptible(&running, || 7).unwrap(), 7);
        let statement = Arc::new(Cancellation::new(None));
        running.begin(Arc::clone(&statement));
        let (release, held) = sync_channel::<()>(0);
        let waiting = {
            let running = Arc::clone(&running);
            thread::spawn(move || interruptible(&running, move || held.recv().is_ok()))
        };
        statement.interrupt(Interrupt::Requested);
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.interrupt(), Some(Interrupt::Requested));
        // The call is still there, if it had begun.
        let _ = release.try_send(());
        drop(release);
        while ABANDONED.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }
}
