//! Committed input of a source that it is not told of yet, since it is not durable.
//!
//! A commit of a topology at `none` or `group` returns before it is durable. A source must not hear of it before: what it
//! then deletes may be needed by the run behind a crash. So each commit is noted with the position of the journal behind it.
//!
//! Memory: at most two notes. The first one waits until it is durable; the second has all commits behind it.

use crate::positions::ChangedSplits;
use crate::sources::{CommittedInput, Position};
use entresol_memory::{JournalPosition, Pool};

/// Commits that may not be durable.
#[derive(Default)]
pub(super) struct Acknowledgements {
    waiting: Option<NotedCommit>,
    later: Option<NotedCommit>,
    /// Records that were rejected up to the last commit.
    rejected: u64,
}

struct NotedCommit {
    position: Position,
    splits: ChangedSplits,
    rejected: u64,
    /// Position of the journal behind it.
    appended: Option<JournalPosition>,
}

impl Acknowledgements {
    /// Notes a commit up to a position, with the records that were rejected since the one before.
    pub(super) fn note(&mut self, pool: &Pool, position: Position, splits: ChangedSplits, rejects: usize) {
        self.rejected += rejects as u64;
        let noted = NotedCommit { position, splits, rejected: self.rejected, appended: pool.appended() };
        if self.waiting.is_none() {
            self.waiting = Some(noted);
            return;
        }
        match &mut self.later {
            Some(later) => later.go_on(noted),
            later => *later = Some(noted),
        }
    }

    /// Takes what is durable by now.
    pub(super) fn take_durable(&mut self, pool: &Pool) -> Option<CommittedInput> {
        let is_durable = |noted: &NotedCommit| pool.is_durable(noted.appended);
        let mut durable = self.waiting.take_if(|noted| is_durable(noted))?;
        self.waiting = self.later.take();
        if let Some(later) = self.waiting.take_if(|noted| is_durable(noted)) {
            durable.go_on(later);
        }
        Some(CommittedInput {
            position: durable.position,
            splits: durable.splits.into_values().collect(),
            rejected: durable.rejected,
        })
    }

    /// Tells whether a commit may not be durable.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.is_some()
    }
}

impl NotedCommit {
    /// Adds a later commit.
    fn go_on(&mut self, later: NotedCommit) {
        self.splits.extend(later.splits);
        (self.position, self.rejected, self.appended) = (later.position, later.rejected, later.appended);
    }
}
