//! The two timestamps of a group, and completing a commit in several groups at once.
//!
//! Up to [`TOGETHER_MAX`] groups it is one publication. Beyond, a list of their new `LastCTS` is published
//! first: with it the commit is complete. Then the words are stored one by one, and the list is freed; the
//! next open does so with a list that a crash left.
//!
//! ```text
//! list   how many | (group, LastCTS) ...
//! ```

use super::table::LIST_WORD;
use super::{Directory, WORD};
use crate::context::group::Group;
use crate::points::{
    ANNOUNCEMENT, LAST_CTS, LAST_CTS_AFTER_LIST, LAST_CTS_LIST, LAST_CTS_OF_ALL_GROUPS, LIST_CARRIED_OUT,
    LIST_GOES_AFTER_LAST_CTS, RETURN_AFTER_LAST_CTS,
};
use crate::{Error, GroupId, Result, Timestamp};
use entresol_memory::order::{in_order, step};
use entresol_memory::{Pool, PoolOffset, Publication, Reservation};
use std::sync::atomic::Ordering;

/// Maximum number of `LastCTS` in one publication.
const TOGETHER_MAX: usize = 16;

/// Room for the list of a commit that needs one; reserved while failing is still free.
#[derive(Default)]
pub(crate) struct ListRoom<'p>(Option<Reservation<'p>>);

impl Directory {
    pub(crate) fn last_cts(&self, group: GroupId) -> Timestamp {
        Timestamp::from_stored(self.word(self.group_offset(group).plus(WORD)).load(Ordering::Acquire))
    }

    pub(crate) fn announced(&self, group: GroupId) -> Timestamp {
        Timestamp::from_stored(self.word(self.group_offset(group).plus(2 * WORD)).load(Ordering::Acquire))
    }

    /// Announces that versions with `cts` will be written; the caller fences before it writes one. Recovery
    /// does not ask for a group whose states are all volatile.
    pub(crate) fn announce(&self, group: &Group, cts: Timestamp) {
        let offset = self.group_offset(group.id).plus(2 * WORD);
        assert!(
            Timestamp::from_stored(self.word(offset).load(Ordering::Relaxed)) < cts,
            "commit timestamps of {} only grow",
            group.id
        );
        self.word(offset).store(cts.stored(), Ordering::Release);
        if group.is_durable() {
            self.pool.flush_word_at(offset, ANNOUNCEMENT);
        }
    }

    /// Moves `LastCTS` of a group whose states are all volatile.
    pub(crate) fn set_volatile_last_cts(&self, group: GroupId, cts: Timestamp) {
        debug_assert!(self.last_cts(group) <= cts, "LastCTS of {group} only grows: {cts}");
        self.word(self.group_offset(group).plus(WORD)).store(cts.stored(), Ordering::Release);
    }

    /// Reserves the list that a commit of so many groups needs to become complete.
    pub(crate) fn list_room<'p>(&self, pool: &'p Pool, groups: usize) -> Result<ListRoom<'p>> {
        if groups <= TOGETHER_MAX {
            return Ok(ListRoom(None));
        }
        self.extend()?;
        Ok(ListRoom(Some(pool.reserve((1 + 2 * groups) * WORD as usize)?)))
    }

    /// Completes commits: `LastCTS` of all these groups changes at once. The caller fenced all that belongs
    /// to them.
    pub(crate) fn set_last_cts(&self, last: &[(GroupId, Timestamp)], room: ListRoom<'_>) -> Result<()> {
        assert!(!last.is_empty(), "a commit that becomes complete has a group");
        if let [(group, cts)] = *last {
            // One word is atomic by itself. Recovery rule: versions up to the stored value count.
            self.store_last_cts(group, cts);
            self.pool.fence_at(RETURN_AFTER_LAST_CTS);
            return Ok(());
        }
        if let ListRoom(Some(room)) = room {
            return self.set_listed(last, room);
        }
        let mut publication = self.pool.publication();
        self.add_last_cts(last, &mut publication);
        Ok(publication.publish()?)
    }

    /// Tells whether [`Directory::add_last_cts`] can be used for a commit of so many groups.
    pub(crate) fn are_together(groups: usize) -> bool {
        groups <= TOGETHER_MAX
    }

    /// Adds the words to a publication of all that they complete.
    pub(crate) fn add_last_cts(&self, last: &[(GroupId, Timestamp)], publication: &mut Publication<'_>) {
        for &(group, cts) in last {
            debug_assert!(self.last_cts(group) <= cts, "LastCTS of {group} only grows: {cts}");
            publication.barrier(LAST_CTS_OF_ALL_GROUPS);
            publication.set(self.group_offset(group).plus(WORD), cts.stored());
        }
    }

    /// Stores the word, flushed but not fenced.
    fn store_last_cts(&self, group: GroupId, cts: Timestamp) {
        debug_assert!(self.last_cts(group) <= cts, "LastCTS of {group} only grows: {cts}");
        let offset = self.group_offset(group).plus(WORD);
        self.word(offset).store(cts.stored(), Ordering::Release);
        self.pool.flush_word_at(offset, LAST_CTS);
    }

    fn set_listed(&self, last: &[(GroupId, Timestamp)], room: Reservation<'_>) -> Result<()> {
        assert!(
            room.bytes() >= (1 + 2 * last.len()) * WORD as usize,
            "the list of {} groups fits its memory",
            last.len()
        );
        // There is one place for a list.
        let _listing = self.listing.lock();
        let place = self.extension_offset().word(LIST_WORD);
        let words = self.pool.words(room.offset(), 1 + 2 * last.len());
        words[0].store(last.len() as u64, Ordering::Relaxed);
        for (pair, &(group, cts)) in words[1..].chunks_exact(2).zip(last) {
            pair[0].store(u64::from(group.0), Ordering::Relaxed);
            pair[1].store(cts.stored(), Ordering::Relaxed);
        }
        self.pool.flush_at(room.offset(), words.len() * WORD as usize, LAST_CTS_LIST);
        let mut publication = self.pool.publication();
        let list = publication.allocate(room);
        publication.set(place, list.to_word());
        in_order(
            LAST_CTS_AFTER_LIST,
            || publication.publish(),
            || {
                last.iter().for_each(|&(group, cts)| self.store_last_cts(group, cts));
                Ok(())
            },
        )?;
        // Recovery rule: while there is a list its words may be old.
        if let Err(error) = self.free_list(place, list) {
            // It is complete. The next open finds the list, and stores its words again.
            tracing::warn!(%error, "the list of a commit stays until the next open");
        }
        Ok(())
    }

    /// The words of the list are stored and flushed.
    fn free_list(&self, place: PoolOffset, list: PoolOffset) -> Result<()> {
        debug_assert_eq!(
            self.word(place).load(Ordering::Acquire),
            list.to_word(),
            "the list that is freed is the one there"
        );
        self.pool.fence_at(LIST_GOES_AFTER_LAST_CTS);
        let mut publication = self.pool.publication();
        publication.set(place, 0);
        publication.free(list);
        Ok(publication.publish()?)
    }

    /// Carries out a list that a crash left. No commit is in flight yet.
    pub(super) fn finish_list(&self) -> Result<()> {
        let Some(extension) = self.try_extension_offset() else { return Ok(()) };
        let place = extension.word(LIST_WORD);
        let list = PoolOffset::from_word(self.word(place).load(Ordering::Acquire));
        if list.is_null() {
            return Ok(());
        }
        step(LIST_CARRIED_OUT, || self.carry_out_list(list))?;
        self.free_list(place, list)
    }

    fn carry_out_list(&self, list: PoolOffset) -> Result<()> {
        let corrupt = || Error::Corrupt(format!("a list of commit timestamps at {list:#x} is damaged"));
        let count = self.pool.try_words(list, 1).ok_or_else(corrupt)?[0].load(Ordering::Acquire);
        let words = count.checked_mul(2).and_then(|words| usize::try_from(words + 1).ok());
        let words = words.and_then(|words| self.pool.try_words(list, words)).ok_or_else(corrupt)?;
        self.pool.verify(list, words.len() * WORD as usize)?;
        for pair in words[1..].chunks_exact(2) {
            let [group, cts] = [0, 1].map(|at| pair[at].load(Ordering::Acquire));
            let group = u32::try_from(group).map(GroupId).map_err(|_| corrupt())?;
            self.groups.try_offset(group.0 as usize).ok_or_else(corrupt)?;
            let cts = Timestamp::from_stored(cts);
            if cts > self.last_cts(group) {
                self.store_last_cts(group, cts);
            }
        }
        Ok(())
    }
}
