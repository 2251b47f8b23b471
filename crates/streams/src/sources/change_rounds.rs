//! Rounds in which the sources of a topology look at change logs, for a topology that acts on changes at intervals.
//!
//! ```text
//!   round 1: all sources read what is there ─▶ commit ─▶ pause of an interval ─▶ round 2
//! ```
//!
//! # Invariants
//! - A source looks once in a round, and reads to the end of what it found then.
//! - No round begins while an operator has changes that are not committed, so a transaction has those of one round.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Rounds of the sources of one topology; see the [module](self).
#[derive(Debug)]
pub struct ChangeRounds {
    interval: Duration,
    state: Mutex<RoundState>,
}

#[derive(Debug)]
struct RoundState {
    number: u64,
    /// Time at which the next round begins; none while changes of this one wait for their commit.
    next: Option<Instant>,
}

impl ChangeRounds {
    /// Creates rounds of which the first begins at once.
    pub fn new(interval: Duration) -> ChangeRounds {
        ChangeRounds { interval, state: Mutex::new(RoundState { number: 0, next: Some(Instant::now()) }) }
    }

    /// Notes that an operator has changes: the round goes on until [`ChangeRounds::pause`].
    pub fn hold(&self) {
        self.state.lock().next = None;
    }

    /// Begins the pause until the next round: the changes are committed, or dropped.
    pub fn pause(&self) {
        self.state.lock().next = Some(Instant::now() + self.interval);
    }

    /// Number of the round of now, which begins if it is time for it.
    pub(crate) fn current(&self) -> u64 {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.next.is_some_and(|next| next <= now) {
            state.number += 1;
            state.next = Some(now + self.interval);
        }
        state.number
    }

    /// Time until the next round begins; none if that waits for a commit.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let next = self.state.lock().next;
        next.map(|next| next.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_round_begins_before_its_interval_or_the_commit() {
        let rounds = ChangeRounds::new(Duration::from_millis(20));
        let first = rounds.current();
        assert_eq!(rounds.current(), first);
        rounds.hold();
        std::thread::sleep(Duration::from_millis(40));
        assert_eq!((rounds.current(), rounds.remaining()), (first, None), "changes are not committed");
        rounds.pause();
        let paused = Instant::now();
        assert_eq!(rounds.current(), first);
        while rounds.current() == first {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(paused.elapsed() >= Duration::from_millis(19), "{:?}", paused.elapsed());
    }
}
