//! Isolation levels: how much of each other transactions see.

use crate::Error;

/// An isolation level. At every level nothing uncommitted, aborted or half committed is ever seen, and of two
/// transactions that write the same key at the same time the first to commit wins. A level is a minimum:
/// groups with [`Protocol::S2pl`](crate::Protocol::S2pl) or [`Protocol::Bocc`](crate::Protocol::Bocc) are
/// serializable at each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each statement sees what was committed before it began.
    ReadCommitted,
    /// Every statement of the transaction sees what was committed before it began.
    #[default]
    Snapshot,
    /// As if transactions ran one after another: reads are validated when a transaction that wrote commits,
    /// and if they changed the commit fails with [`Error::ReadConflict`].
    Serializable,
}

/// Policy for retrying a transaction that failed because of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// At most so many attempts, at least one.
    pub attempts_max: u32,
    /// The longest pause before an attempt; pauses double from a fiftieth of it on and vary at random.
    pub pause_max: std::time::Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { attempts_max: 20, pause_max: std::time::Duration::from_millis(5) }
    }
}

impl Retry {
    /// The pause before attempt `number` (from 1 on), by a random number.
    pub(crate) fn pause(&self, number: u32, random: u64) -> std::time::Duration {
        let longest = (self.pause_max / 50).saturating_mul(1 << number.min(16)).min(self.pause_max);
        longest.mul_f64(0.5 + 0.5 * (random >> 11) as f64 / (1u64 << 53) as f64)
    }
}

impl Error {
    /// Returns true if the transaction failed only because others ran beside it: run it again from its
    /// beginning.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Conflict { .. }
                | Error::ReadConflict { .. }
                | Error::Restart { .. }
                | Error::OldVersionsFull { .. }
                | Error::Busy(_)
        )
    }
}
