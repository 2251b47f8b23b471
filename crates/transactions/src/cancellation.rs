//! Cancellation: how a statement is stopped from outside, and the point from which on it cannot be.
//!
//! ```text
//!              interrupt                     begin_definite            it succeeds
//!   stopped ◀───────────── running ───────────────────────▶ definite ───────────────▶ done
//!      ▲                      ▲                                │
//!      └── asked meanwhile ───┴────────── it fails ────────────┘
//! ```
//!
//! # Invariants
//! - [`Cancellation::interrupt`] returns true if and only if nothing of the statement takes effect any more: a commit passes
//!   [`Cancellation::begin_definite`] first, and one of the two comes first.
//! - What is stopped stays stopped. What is done stays done: who asks then is told that it was too late.
//! - A deadline needs nobody to watch over it: every check looks at the clock.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::{Error, Result};

/// Why a statement is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupt {
    /// Somebody asked for it.
    #[error("canceling statement due to user request")]
    Requested,
    /// It took too long.
    #[error("canceling statement due to statement timeout")]
    TimedOut,
    /// Its client is gone.
    #[error("the client is gone")]
    Disconnected,
    /// The server ends.
    #[error("terminating connection due to administrator command")]
    Shutdown,
    /// Its snapshot holds back versions for longer than it may.
    #[error("snapshot too old: it was taken longer ago than max_snapshot_age allows")]
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
    /// Why; set before the phase says that it is stopped, or while it is definite.
    why: Mutex<Option<Interrupt>>,
}

impl Cancellation {
    /// A statement that stops at a moment, if there is one.
    pub fn new(deadline: Option<Instant>) -> Cancellation {
        Cancellation { deadline, ..Cancellation::default() }
    }

    /// When the statement stops by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Stops the statement. True if nothing of it takes effect; false if it is too late for that: then its result says what
    /// happened.
    pub fn interrupt(&self, why: Interrupt) -> bool {
        let mut noted = self.why.lock();
        noted.get_or_insert(why);
        match self.phase.compare_exchange(RUNNING, STOPPED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(phase) => phase == STOPPED,
        }
    }

    /// An error if the statement is stopped. Cost: a load, and a look at the clock if there is a deadline.
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
        Error::Interrupted(self.why.lock().unwrap_or(Interrupt::Requested))
    }

    /// Passes the point of no return, or fails if the statement is stopped. What follows takes effect or fails by itself;
    /// [`Cancellation::end_definite`] ends it.
    pub fn begin_definite(&self) -> Result<()> {
        self.check()?;
        match self.phase.compare_exchange(RUNNING, DEFINITE, Ordering::AcqRel, Ordering::Acquire) {
            Err(STOPPED) => Err(self.stopped()),
            _ => Ok(()),
        }
    }

    /// The end of what cannot be stopped. If it was all of the statement and took effect, the statement is done; else the
    /// statement goes on, and stops if that was asked for meanwhile.
    pub fn end_definite(&self, done: bool) {
        let why = self.why.lock();
        let phase = match (done, *why) {
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

    use std::time::Duration;

    use super::*;

    fn why(result: Result<()>) -> Option<Interrupt> {
        match result {
            Err(Error::Interrupted(why)) => Some(why),
            Err(other) => panic!("{other}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn what_is_stopped_stays_stopped_for_its_first_reason() {
        let statement = Cancellation::default();
        statement.check().unwrap();
        assert!(statement.interrupt(Interrupt::Requested));
        assert!(statement.interrupt(Interrupt::Shutdown), "it has no effect already");
        assert_eq!(why(statement.check()), Some(Interrupt::Requested));
        assert_eq!(why(statement.begin_definite()), Some(Interrupt::Requested));
    }

    #[test]
    fn nothing_stops_what_is_definite() {
        let statement = Cancellation::default();
        statement.begin_definite().unwrap();
        assert!(!statement.interrupt(Interrupt::Requested), "too late");
        statement.check().unwrap();
        statement.end_definite(true);
        assert!(!statement.interrupt(Interrupt::Requested), "too late for ever");
        statement.check().unwrap();
    }

    #[test]
    fn what_goes_on_after_a_failure_stops_if_asked_meanwhile() {
        let statement = Cancellation::default();
        statement.begin_definite().unwrap();
        statement.end_definite(false);
        statement.check().unwrap();
        statement.begin_definite().unwrap();
        assert!(!statement.interrupt(Interrupt::Disconnected));
        statement.end_definite(false);
        assert_eq!(why(statement.check()), Some(Interrupt::Disconnected));
    }

    #[test]
    fn a_deadline_stops_by_itself_but_not_what_is_definite() {
        let soon = Instant::now() + Duration::from_millis(20);
        let (late, definite) = (Cancellation::new(Some(soon)), Cancellation::new(Some(soon)));
        late.check().unwrap();
        definite.begin_definite().unwrap();
        std::thread::sleep(Duration::from_millis(25));
        assert_eq!(why(late.begin_definite()), Some(Interrupt::TimedOut));
        definite.check().unwrap();
        definite.end_definite(false);
        assert_eq!(why(definite.check()), Some(Interrupt::TimedOut));
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
