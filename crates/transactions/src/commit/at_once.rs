//! Small commits that only update and delete, on `journal`: one append in place of four.
//!
//! The words of the versions, the bits and `LastCTS` are stored by one publication, under the append lock.
//! One append survives completely or not at all, so nothing has to be fenced in between. Nothing may be
//! stored before: a page may go to the pool file at any time, with words that are not appended yet.
//!
//! Only the oldest commit of its groups carries `LastCTS`, with the queues locked; another one publishes its
//! versions alone, and waits for its turn as all do.
//!
//! Elsewhere a publication is atomic only in what it changes, not in what it writes before, and costs more
//! fences than phases do. The crash checker commits this way all the same, with a fence behind phase 1: its
//! domain is not `journal`.

use super::Execution;
use crate::Result;
use crate::changes::append::AppendedKeys;
use crate::commit::plan::{Step, Steps};
use crate::context::directory::{Directory, ListRoom};
use crate::interleave;
use crate::mvcc::object::VersionedObject;
use crate::transaction::write_set::WriteSet;
use crate::visibility::active::CommitStamp;
use crate::visibility::in_flight::QueuedCommit;
use entresol_memory::{Publication, STREAM_BYTES_MIN};
use std::sync::atomic::{Ordering, fence};

/// Maximum number of keys, whose bits are changes of the publication, beside `LastCTS` of some groups.
const KEYS_MAX: usize = 40;
/// Maximum number of words copied under the append lock: others wait for it.
const WORDS_MAX: usize = 1024;

impl<'c> Execution<'c> {
    /// Words that are written if the commit can be made at once.
    pub(super) fn words_at_once(&self, steps: &Steps<'_, '_>, writes: &WriteSet) -> Option<usize> {
        let is_small = steps.keys.len() <= KEYS_MAX && Directory::are_together(self.groups.len());
        let is_in_main = || writes.states.values().all(|writes| writes.state.is_in(self.pool));
        let adds_records = !steps.endings.is_empty() || !steps.appends.is_empty();
        if !self.context.commits_at_once() || !is_small || adds_records || !is_in_main() {
            return None;
        }
        let mut words = 0;
        for step in &steps.keys {
            words += match step {
                Step::Update { value, .. } if value.len() < STREAM_BYTES_MIN => {
                    VersionedObject::published_words(value.len())
                }
                Step::Delete { .. } => 1,
                _ => return None,
            };
        }
        (words <= WORDS_MAX).then_some(words)
    }

    /// Runs all phases; returns a complete commit. An error leaves nothing that counts, now or after a crash.
    pub(super) fn run_at_once(
        &self,
        words: usize,
        entry: QueuedCommit<'_>,
        stamp: CommitStamp<'c>,
        steps: Steps<'_, '_>,
        writes: &WriteSet,
    ) -> Result<CommitStamp<'c>> {
        if self.pool.publishes_at_once(words) {
            for step in &steps.keys {
                if let Step::Update { object, dead, slot, value, .. } = step {
                    object.clear_unflushed(*dead);
                    object.prepare_slot(*slot, value.len());
                }
            }
            // Pairs with `Transaction::check_still_open`.
            fence(Ordering::Release);
        } else {
            self.clear_dead(&steps.keys);
        }
        interleave::point();
        assert!(
            steps.keys.len() <= KEYS_MAX && words <= WORDS_MAX,
            "a commit at once is small: {words} words"
        );
        let mut publication = self.pool.publication();
        add_versions(stamp.cts(), &steps, &mut publication);
        debug_assert!(publication.len() <= steps.keys.len(), "each key changes at most a bitmap");
        match entry.lock_if_oldest() {
            Some(queues) => entry.end_locked(queues, |last| {
                self.context.directory.add_last_cts(&self.last_of_groups(last), &mut publication);
                Ok(publication.publish()?)
            })?,
            None => {
                if let Err(error) = publication.publish() {
                    self.give_up(entry, stamp, ListRoom::default(), writes, &AppendedKeys::new());
                    return Err(error.into());
                }
                interleave::point();
                entry.end(|last| self.set_last_cts(last, ListRoom::default()))?;
            }
        }
        for step in steps.keys {
            if let Step::Delete { state, key, .. } = step {
                state.dead.push(stamp.cts(), key);
            }
        }
        Ok(stamp)
    }
}

/// Phases 2 and 3.
fn add_versions(cts: crate::Timestamp, steps: &Steps<'_, '_>, publication: &mut Publication<'_>) {
    for step in &steps.keys {
        match step {
            Step::Update { object, slot, superseded, value, .. } => {
                object.publish_version(*slot, cts, value, *superseded, publication);
            }
            Step::Delete { object, current, .. } => object.publish_end(*current, cts, publication),
            Step::Build { .. } | Step::Chain { .. } => unreachable!("such a commit has phases"),
        }
    }
}
