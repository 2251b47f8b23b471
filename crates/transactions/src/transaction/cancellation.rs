//! Cancellation: stopping a statement from outside, and the point from which on it cannot be stopped.
//!
//! ```text
//!              interrupt                     begin_definite            it succeeds
//!   stopped ◀───────────── running ───────────────────────▶ definite ───────────────▶ done
//!      ▲                      ▲                                │
//!      └── asked meanwhile ───┴────────── it fails ────────────┘
//! ```
//!
//! # Invariants
//! - [`Cancellation::interrupt`] returns true if and only if nothing of the statement takes effect any more:
//!   a commit passes [`Cancellation::begin_definite`] first, and one of the two comes first.
//! - A stopped statement stays stopped. A done statement stays done: a later caller is told that it was too
//!   late.
//! - A deadline needs no watching thread: every check reads the clock.

use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

/// Reason for stopping a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupt {
    /// A user or caller asked for it.
    #[error("canceling statement due to user request")]
    Requested,
    /// The statement timeout has passed.
    #[error("canceling statement due to statement timeout")]
    TimedOut,
    /// The client has disconnected.
    #[error("the client has disconnected")]
    Disconnected,
    /// The server is shutting down.
    #[error("terminating connection due to administrator command")]
    Shutdown,
    /// Its snapshot has held back versions for longer than `max_snapshot_age`.
    #[error("snapshot too old: it exceeded max_snapshot_age")]
    SnapshotTooOld,
}

const RUNNING: u8 = 0;
const STOPPED: u8 = 1;
const DEFINITE: u8 = 2;
const DONE: u8 = 3;

/// The cancellation of one statement; see the [module](self).
#[derive(Debug, Default)]
pub struct Cancellation {
    phase: AtomicU8,
    deadline: Option<Instant>,
    /// The reason; set before the phase becomes stopped, or while it is definite.
    reason: Mutex<Option<Interrupt>>,
}

impl Cancellation {
    /// Cancellation of a statement that stops at `deadline`, if there is one.
    pub fn new(deadline: Option<Instant>) -> Cancellation {
        Cancellation { deadline, ..Cancellation::default() }
    }

    /// Instant at which the statement stops by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Stops the statement. Returns true if nothing of it takes effect; false if it is too late for that:
    /// then its result says what happened.
    pub fn interrupt(&self, reason: Interrupt) -> bool {
        let mut noted = self.reason.lock();
        noted.get_or_insert(reason);
        match self.phase.compare_exchange(RUNNING, STOPPED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(phase) => phase == STOPPED,
        }
    }

    /// Returns an error if the statement is stopped. Cost: a load, and a reading of the clock if there is a
    /// deadline.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.phase.load(Ordering::Acquire) {
            STOPPED => Err(self.stopped()),
            RUNNING => self.check_deadline(),
            _ => Ok(()),
        }
    }

    #[inline]
    fn check_deadline(&self) -> Result<()> {
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => self.time_out(),
            _ => Ok(()),
        }
    }

    #[cold]
    fn time_out(&self) -> Result<()> {
        if self.interrupt(Interrupt::TimedOut) { Err(self.stopped()) } else { Ok(()) }
    }

    #[cold]
    fn stopped(&self) -> Error {
        Error::Interrupted(self.reason.lock().unwrap_or(Interrupt::Requested))
    }

    /// Passes the point of no return, or fails if the statement is stopped. From then on the statement takes
    /// effect or fails by itself; [`Cancellation::end_definite`] ends that part.
    pub fn begin_definite(&self) -> Result<()> {
        self.check()?;
        match self.phase.compare_exchange(RUNNING, DEFINITE, Ordering::AcqRel, Ordering::Acquire) {
            Err(STOPPED) => Err(self.stopped()),
            _ => Ok(()),
        }
    }

    /// Ends the part that cannot be stopped. If it was all of the statement and took effect, the statement is
    /// done; else the statement goes on, and stops if that was asked for meanwhile.
    pub fn end_definite(&self, done: bool) {
        let reason = self.reason.lock();
        let phase = match (done, *reason) {
            (true, _) => DONE,
            (false, Some(_)) => STOPPED,
            (false, None) => RUNNING,
        };
        self.phase.store(phase, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::time::Duration;

    fn reason(result: Result<()>) -> Option<Interrupt> {
        match result {
            Err(Error::Interrupted(reason)) => Some(reason),
            Err(other) => panic!("{other}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn a_stopped_statement_keeps_its_first_reason() {
        let statement = Cancellation::default();
        statement.check().unwrap();
        assert!(statement.interrupt(Interrupt::Requested));
        assert!(statement.interrupt(Interrupt::Shutdown), "it has no effect already");
        assert_eq!(reason(statement.check()), Some(Interrupt::Requested));
        assert_eq!(reason(statement.begin_definite()), Some(Interrupt::Requested));
    }

    #[test]
    fn a_definite_statement_cannot_be_stopped() {
        let statement = Cancellation::default();
        statement.begin_definite().unwrap();
        assert!(!statement.interrupt(Interrupt::Requested), "too late");
        statement.check().unwrap();
        statement.end_definite(true);
        assert!(!statement.interrupt(Interrupt::Requested), "too late for ever");
        statement.check().unwrap();
    }

    #[test]
    fn a_failed_definite_part_stops_if_asked_meanwhile() {
        let statement = Cancellation::default();
        statement.begin_definite().unwrap();
        statement.end_definite(false);
        statement.check().unwrap();
        statement.begin_definite().unwrap();
        assert!(!statement.interrupt(Interrupt::Disconnected));
        statement.end_definite(false);
        assert_eq!(reason(statement.check()), Some(Interrupt::Disconnected));
    }

    #[test]
    fn a_deadline_stops_a_statement_unless_it_is_definite() {
        let soon = Instant::now() + Duration::from_millis(20);
        let (late, definite) = (Cancellation::new(Some(soon)), Cancellation::new(Some(soon)));
        late.check().unwrap();
        definite.begin_definite().unwrap();
        std::thread::sleep(Duration::from_millis(25));
        assert_eq!(reason(late.begin_definite()), Some(Interrupt::TimedOut));
        definite.check().unwrap();
        definite.end_definite(false);
        assert_eq!(reason(definite.check()), Some(Interrupt::TimedOut));
    }

    #[test]
    fn either_the_interrupt_or_the_commit_comes_first() {
        for _ in 0..2_000 {
            let statement = Cancellation::default();
            let (stopped, committed) = std::thread::scope(|scope| {
                let stopping = scope.spawn(|| statement.interrupt(Interrupt::Requested));
                let committed = statement.begin_definite().is_ok();
                (stopping.join().unwrap(), committed)
            });
            assert_ne!(stopped, committed);
        }
    }
}
