//! Turns of the threads that compute rows: how long one computes before others go on.

use std::cell::Cell;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Time that a stream computes before it yields.
pub(crate) const TURN_MAX: Duration = Duration::from_millis(10);

thread_local! {
    /// Start of the turn in which this thread computes rows.
    static TURN_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Outermost stream polled in a turn; its end ends the turn.
pub(crate) struct Turn {
    is_outermost: bool,
}

impl Turn {
    pub(crate) fn at(now: Instant) -> Turn {
        let is_outermost = TURN_BEGAN.get().is_none();
        if is_outermost {
            TURN_BEGAN.set(Some(now));
        }
        Turn { is_outermost }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_outermost {
            TURN_BEGAN.set(None);
        }
    }
}

/// Lets the runtime continue with another thread if this one has computed for long in one turn: it may be the
/// one that drives I/O and timers.
pub(crate) fn yield_to_others() {
    if TURN_BEGAN.get().is_some_and(|began| began.elapsed() > TURN_MAX)
        && Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    {
        // Once the other thread has started, the rest of the turn runs beside it.
        tokio::task::block_in_place(|| std::thread::sleep(HAND_OVER));
        TURN_BEGAN.set(Some(Instant::now()));
    }
}

/// Time that another thread needs to start; a hundredth of a turn.
const HAND_OVER: Duration = Duration::from_micros(100);
