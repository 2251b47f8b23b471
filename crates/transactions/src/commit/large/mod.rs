//! Commits of many keys, beside which others become complete.
//!
//! `LastCTS = n` says that all commits up to n are complete, so in the queue of its groups a long commit
//! would keep all younger ones from becoming complete. It is in no queue: *declared* invalid for its groups,
//! by a timestamp of its own and before it writes anything, it may be passed. It becomes complete when that
//! is revoked, for all of its groups in one publication.
//!
//! ```text
//!            lock keys by name, plan, assign CTS                            (0) nothing
//!            declare (CTS - 1, CTS] invalid for each group                (1) one publication
//! phases     clear; write; set bits, indexes; sync the disk beside        (2) as any commit
//!            wait until nothing older is in flight in its groups
//!            take it back; LastCTS of each group := at least CTS          (3) one publication
//! ```
//!
//! # What a crash leaves
//! Up to (3) a range of one timestamp in the list of each group: the versions never count, and later readers
//! treat them as those of any commit that failed. After (3) nothing: the commit is complete. Recovery needs
//! no rule for it.
//!
//! # Why no other commit takes it along
//! - A crash declares invalid what lies above `LastCTS`: so that is raised to CTS in the same publication.
//! - A commit that fails declares all above `LastCTS` up to itself. Of declared commits it leaves out the
//!   newest in flight that is older, and all below: each failure there has declared itself. CTS is assigned
//!   and noted under the lock of the list, so that every younger commit finds it there.
//! - `LastCTS` passes no older commit in flight: it is waited for. Those are short.
//!
//! In this run no snapshot sees it before its stamp is finished, and no other commit touches its keys. If it
//! fails, its timestamp joins the invalid ones in DRAM; on the medium it is there already.
//!
//! Groups whose states are all volatile have no entry in the list: nothing of them is left by a crash.
//!
//! Commits over more groups than a publication takes, of groups that read no snapshots, or while the list is
//! half full, are in the queues as small ones are.

use super::Execution;
use crate::changes::append::AppendedKeys;
use crate::commit::plan::Steps;
use crate::context::directory::{DeclaredIn, Directory};
use crate::context::group::{Group, STRIPED_KEYS_MAX};
use crate::points::LARGE_COMMIT_DECLARED;
use crate::transaction::write_set::WriteSet;
use crate::visibility::active::CommitStamp;
use crate::visibility::in_flight::lock_without_older;
use crate::visibility::snapshot::Class;
use crate::{GroupId, Result, Timestamp, interleave};
use entresol_memory::order::step;
use smallvec::SmallVec;

/// The declared commits in flight: their timestamps and groups.
#[derive(Default)]
pub(crate) struct DeclaredCommits(Vec<(Timestamp, SmallVec<[GroupId; 4]>)>);

/// Declaration of a commit: the groups that had a durable state then, and an entry of the list for each.
pub(super) struct Declaration {
    groups: SmallVec<[GroupId; 4]>,
    entries: DeclaredIn,
}

impl DeclaredCommits {
    /// The newest of a group that is older; the start: there is none.
    pub(crate) fn newest_before(&self, group: GroupId, cts: Timestamp) -> Timestamp {
        let of_group = self.0.iter().filter(|(declared, groups)| *declared < cts && groups.contains(&group));
        of_group.map(|(declared, _)| *declared).max().unwrap_or_default()
    }

    fn remove(&mut self, cts: Timestamp) {
        self.0.retain(|(declared, _)| *declared != cts);
    }
}

/// Tells whether a commit into these groups is declared, if there is room for it.
pub(super) fn is_declarable(groups: &[&Group], writes: &WriteSet) -> bool {
    writes.keys() > STRIPED_KEYS_MAX
        && Directory::are_together(groups.len())
        && groups.iter().all(|group| group.protocol.reads_snapshots())
}

impl<'c> Execution<'c> {
    fn group_ids(&self) -> SmallVec<[GroupId; 4]> {
        self.groups.iter().map(|group| group.id).collect()
    }

    /// Its groups in which a crash leaves something.
    fn durable_ids(&self) -> SmallVec<[GroupId; 4]> {
        self.groups.iter().filter(|group| group.is_durable()).map(|group| group.id).collect()
    }

    /// Assigns a timestamp and declares it invalid. None: the list has no room.
    pub(super) fn declare(
        &self,
        slot: usize,
        class: Class,
    ) -> Result<Option<(Declaration, CommitStamp<'c>)>> {
        let mut declared = self.context.ranges.lock();
        let groups = self.durable_ids();
        let Some(entries) = self.context.directory.entries_to_declare(groups.len()) else {
            return Ok(None);
        };
        let stamp = self.context.active.stamp(slot, class);
        if !groups.is_empty()
            && let Err(error) =
                step(LARGE_COMMIT_DECLARED, || self.context.directory.declare(stamp.cts(), &groups, &entries))
        {
            // Nothing has its timestamp.
            stamp.finish();
            return Err(error);
        }
        debug_assert!(
            declared.0.iter().all(|(other, _)| *other != stamp.cts()),
            "a timestamp is declared once: {}",
            stamp.cts()
        );
        declared.0.push((stamp.cts(), self.group_ids()));
        Ok(Some((Declaration { groups, entries }, stamp)))
    }

    /// Makes the commit complete. The caller has the locks of its queues, in which nothing older is left, and
    /// of the list.
    fn revoke(&self, cts: Timestamp, declaration: &Declaration) -> Result<()> {
        let Declaration { groups, entries } = declaration;
        assert_eq!(groups.len(), entries.len(), "each durable group has its entry of the list");
        if !groups.is_empty() {
            self.context.directory.revoke(cts, groups, entries)?;
        }
        // Failures of this run declare the timestamps above.
        let of_run = self.groups.iter().filter(|group| !groups.contains(&group.id));
        for group in of_run.filter(|group| self.context.directory.last_cts(group.id) < cts) {
            self.context.directory.set_volatile_last_cts(group.id, cts);
        }
        Ok(())
    }

    /// Runs all phases; returns a complete commit. An error leaves nothing that counts, now or after a crash.
    pub(super) fn run_declared<'a>(
        &self,
        declaration: &Declaration,
        stamp: CommitStamp<'c>,
        steps: Steps<'a, 'a>,
        writes: &WriteSet,
    ) -> Result<CommitStamp<'c>> {
        let cts = stamp.cts();
        interleave::at("a declared commit has written nothing");
        let appended = steps.appended_keys(cts);
        if let Err(error) = self.write_all(cts, steps).and_then(|()| self.sync_disk()) {
            self.give_up_declared(stamp, writes, &appended);
            return Err(error);
        }
        interleave::at("a declared commit has written all");
        // An error leaves it declared, and the stamp unfinished: commits are refused until the next open.
        let queues = lock_without_older(self.groups.iter().map(|group| &*group.in_flight), cts)?;
        let mut declared = self.context.ranges.lock();
        self.revoke(cts, declaration)?;
        declared.remove(cts);
        drop((declared, queues));
        Ok(stamp)
    }

    /// Gives the commit up; it stays declared.
    fn give_up_declared(&self, stamp: CommitStamp<'_>, writes: &WriteSet, appended: &AppendedKeys) {
        let cts = stamp.cts();
        {
            let mut declared = self.context.ranges.lock();
            if self.groups.iter().all(|group| group.invalid.add(cts.previous(), cts)) {
                declared.remove(cts);
                stamp.finish();
            } else {
                // The stamp is dropped unfinished: commits are refused until the next open.
                tracing::error!(%cts, "there is no room for the timestamp of a failed commit")
            }
        }
        self.note_dead(cts, writes, appended);
    }
}

#[cfg(test)]
mod tests;
