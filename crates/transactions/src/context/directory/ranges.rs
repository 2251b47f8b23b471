//! The invalid ranges of timestamps in the directory.

use super::table::ENTRIES_MAX;
use super::{Directory, ENTRY_BYTES, FREE, WORD};
use crate::points::{LARGE_COMMIT_RAISES_LAST_CTS, RANGE_TAKEN_OUT};
use crate::{Error, GroupId, Result, Timestamp};
use entresol_memory::PoolOffset;
use entresol_memory::order::step;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Maximum number of invalid ranges of timestamps. When more than half are in use at open, and when three
/// quarters are later, the states of their groups are scrubbed, so that the ranges are not needed any more.
pub const INVALID_RANGES_MAX: usize = 256;

/// Declared commits leave so many entries to those that fail, or that a crash ends.
const KEPT_FOR_FAILURES: usize = INVALID_RANGES_MAX / 2;

/// The entries of a declared commit, one for each of its groups.
pub(crate) type DeclaredIn = SmallVec<[usize; 4]>;

/// An invalid range, as stored: timestamps in `(from, to]` never count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeEntry {
    pub(crate) entry: usize,
    pub(crate) group: GroupId,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Directory {
    fn range_offset(&self, entry: usize) -> PoolOffset {
        debug_assert!(entry < INVALID_RANGES_MAX, "the list has no entry {entry}");
        self.ranges.block(entry as u64, ENTRY_BYTES)
    }

    pub(crate) fn invalid_ranges(&self) -> Result<Vec<RangeEntry>> {
        let mut ranges = Vec::new();
        for entry in 0..INVALID_RANGES_MAX {
            let [group, from, to, _] = self.entry(self.range_offset(entry));
            let [from, to] = [from, to].map(Timestamp::from_stored);
            if group == FREE {
                continue;
            }
            if group > ENTRIES_MAX as u64 || from >= to {
                return Err(Error::Corrupt(format!(
                    "invalid range {entry} is ({from}, {to}] of group {group} - 1"
                )));
            }
            ranges.push(RangeEntry { entry, group: GroupId(group as u32 - 1), from, to });
        }
        Ok(ranges)
    }

    /// Declares `(from, to]` invalid for the group, persistently. A range of the same group with the same
    /// start grows: no commit happened in between. Returns how many ranges there are then; if that is more
    /// than [`INVALID_RANGES_MAX`] there was no room.
    pub(crate) fn add_invalid_range(&self, group: GroupId, from: Timestamp, to: Timestamp) -> Result<usize> {
        assert!(from < to, "the range ({from}, {to}] is empty");
        let ranges = self.invalid_ranges()?;
        let same = ranges.iter().find(|range| range.group == group && range.from == from);
        let used = ranges.len() + usize::from(same.is_none());
        let is_free = |entry: &usize| self.word(self.range_offset(*entry)).load(Ordering::Acquire) == FREE;
        let entry = same.map(|range| range.entry).or_else(|| (0..INVALID_RANGES_MAX).find(is_free));
        let Some(entry) = entry else { return Ok(used) };
        let offset = self.range_offset(entry);
        let mut publication = self.pool.publication();
        publication.set(offset.plus(WORD), from.stored());
        publication.set(offset.plus(2 * WORD), to.stored());
        publication.set(offset, u64::from(group.0) + 1);
        publication.publish()?;
        Ok(used)
    }

    /// Takes out the ranges of groups whose states are all volatile, and so empty when the context is opened.
    pub(crate) fn remove_ranges_of(&self, groups: &BTreeSet<GroupId>) -> Result<()> {
        let mut ranges = self.invalid_ranges()?;
        ranges.retain(|range| groups.contains(&range.group));
        if !ranges.is_empty() {
            self.remove_invalid_ranges(&ranges);
        }
        Ok(())
    }

    /// Free entries for a commit over so many groups that is to be declared; None if failures would have too
    /// few left.
    pub(crate) fn entries_to_declare(&self, groups: usize) -> Option<DeclaredIn> {
        let is_free = |entry: &usize| self.word(self.range_offset(*entry)).load(Ordering::Acquire) == FREE;
        let free: Vec<usize> = (0..INVALID_RANGES_MAX).filter(is_free).collect();
        (free.len() >= groups + KEPT_FOR_FAILURES).then(|| free.into_iter().take(groups).collect())
    }

    /// Declares a timestamp invalid for some groups, in all at once.
    pub(crate) fn declare(&self, cts: Timestamp, groups: &[GroupId], entries: &DeclaredIn) -> Result<()> {
        assert!(
            cts > Timestamp::START && groups.len() == entries.len(),
            "each group gets its entry of the list"
        );
        let mut publication = self.pool.publication();
        for (group, entry) in groups.iter().zip(entries) {
            let offset = self.range_offset(*entry);
            debug_assert_eq!(
                self.word(offset).load(Ordering::Acquire),
                FREE,
                "a commit is declared in free entries"
            );
            // No reader uses them before the first word is set.
            publication.write(offset.plus(WORD), cts.previous().stored());
            publication.write(offset.plus(2 * WORD), cts.stored());
            publication.set(offset, u64::from(group.0) + 1);
        }
        Ok(publication.publish()?)
    }

    /// Takes that back, for all of these groups at once: with it the commit is complete. Their `LastCTS`
    /// comes along, or what is in flight when a crash comes would take it along into its invalid range. The
    /// caller fenced all that belongs to it; in no group an older commit is in flight.
    pub(crate) fn revoke(&self, cts: Timestamp, groups: &[GroupId], entries: &DeclaredIn) -> Result<()> {
        assert_eq!(groups.len(), entries.len(), "each group has its entry of the list");
        let mut publication = self.pool.publication();
        for (&group, entry) in groups.iter().zip(entries) {
            debug_assert_eq!(
                self.word(self.range_offset(*entry)).load(Ordering::Acquire),
                u64::from(group.0) + 1,
                "the entry that is revoked is that of {group}"
            );
            publication.set(self.range_offset(*entry), FREE);
            if self.last_cts(group) < cts {
                step(LARGE_COMMIT_RAISES_LAST_CTS, || self.add_last_cts(&[(group, cts)], &mut publication));
            }
        }
        Ok(publication.publish()?)
    }

    /// Takes ranges out. The caller made sure (and fenced) that nothing is left that they hide: so one that stays
    /// on the medium does no harm, and no fence is needed.
    pub(crate) fn remove_invalid_ranges(&self, ranges: &[RangeEntry]) {
        for range in ranges {
            let offset = self.range_offset(range.entry);
            debug_assert_eq!(
                self.word(offset).load(Ordering::Acquire),
                u64::from(range.group.0) + 1,
                "the range that is taken out is the one there"
            );
            self.word(offset).store(FREE, Ordering::Release);
            self.pool.flush_word_at(offset, RANGE_TAKEN_OUT);
        }
    }
}
