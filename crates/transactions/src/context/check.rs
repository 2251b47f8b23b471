//! Verification of a state context: indexes, MVCC objects and directories, against what is allocated.
//!
//! Nothing is changed, and damage of one state does not keep the others from being checked. No writer may run
//! meanwhile. Memory: the allocation map.

use crate::context::StateContext;
use crate::context::directory::StateEntry;
use crate::context::placement::PoolRole;
use crate::history::{HistoryKeys, Record};
use crate::mvcc::chain::Chain;
use crate::mvcc::object::VersionedObject;
use crate::{GroupId, Result, StateId};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::{KEY_BYTES_MAX, OrderedIndex};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A problem found in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateProblem {
    /// Offset in the pool, if it is about one.
    pub offset: Option<PoolOffset>,
    /// Description of the problem.
    pub what: String,
}

/// Contents of a state, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateReport {
    /// The state.
    pub id: StateId,
    /// Its group.
    pub group: GroupId,
    /// It lies beside the main pool, in volatile memory or on disk, and so do the offsets of its problems.
    pub is_beside: bool,
    /// It was dropped, and what is left of it is being freed.
    pub dropping: bool,
    /// Set if it is the version history of this state: the versions counted have ended.
    pub history_of: Option<StateId>,
    /// Keys in its index, whether visible to a snapshot or not.
    pub keys: u64,
    /// Versions of them.
    pub versions: u64,
    /// Bytes of leaves, key records and the header.
    pub index_bytes: u64,
    /// Bytes of MVCC objects.
    pub object_bytes: u64,
    /// Problems found; at most [`PROBLEMS_MAX`].
    pub problems: Vec<StateProblem>,
}

/// Maximum number of problems listed for a state; the last one says that there are more.
pub const PROBLEMS_MAX: usize = 20;

/// Owner of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The directories of the context.
    Context,
    /// A state.
    State(StateId),
}

impl StateContext {
    /// Walks all objects of the context. `claim` gets owner, offset and bytes of every object, and returns a
    /// description if there is a problem with it; `progress` gets the state that is being checked. `Err` if
    /// the directories themselves are damaged.
    pub fn check(
        self: &Arc<Self>,
        mut claim: impl FnMut(Owner, PoolOffset, u64) -> std::result::Result<(), String>,
        mut progress: impl FnMut(StateId),
    ) -> Result<Vec<StateReport>> {
        for (offset, bytes) in self.directory.objects() {
            claim(Owner::Context, offset, bytes).map_err(crate::Error::Corrupt)?;
        }
        let entries = self.entries_with_roots()?;
        let mut beside = BTreeMap::new();
        if let Some(pool) = self.volatile_pool() {
            beside.insert(PoolRole::Volatile, pool.allocation_map()?);
        }
        if let Some(disk) = self.pools.disk() {
            let mut map = disk.pool().allocation_map()?;
            disk.check(|offset, bytes| map.claim(offset, bytes))?;
            beside.insert(PoolRole::Disk, map);
        }
        let histories = self.directory.histories()?;
        let history_of =
            |id: StateId| histories.iter().find(|history| history.id == id).map(|history| history.of);
        let mut reports = Vec::with_capacity(entries.len());
        for entry in &entries {
            progress(entry.id);
            let owner = Owner::State(entry.id);
            let of = history_of(entry.id);
            reports.push(self.check_state(entry, of, |offset, bytes| match beside.get_mut(&entry.pool) {
                Some(map) => map.claim(offset, bytes),
                None => claim(owner, offset, bytes),
            })?);
        }
        // Only if everything is sound: otherwise damaged parts may refer to it.
        let sound = reports.iter().all(|report| report.problems.is_empty());
        for (role, map) in beside.into_iter().filter(|_| sound) {
            let mut unclaimed = map.unclaimed();
            let Some((offset, _)) = unclaimed.next() else { continue };
            let what = match role {
                PoolRole::Volatile => "the volatile pool",
                PoolRole::Disk => "the pool on disk",
                PoolRole::Main => unreachable!("the caller has its map"),
            };
            let what = format!("nothing refers to {} objects of {what}", 1 + unclaimed.count());
            match reports.last_mut() {
                Some(report) => report.note(Some(offset), Some(what)),
                None => return Err(crate::Error::Corrupt(what)),
            }
        }
        Ok(reports)
    }

    /// The entries of the directory, also those of states beside the main pool with their roots.
    pub(crate) fn entries_with_roots(&self) -> Result<Vec<StateEntry>> {
        let mut roots: BTreeMap<StateId, PoolOffset> =
            self.dropping.lock().iter().map(|state| (state.id, state.root)).collect();
        let with_history = self.with_history.lock().clone();
        roots.extend(
            with_history.iter().filter_map(|state| state.history()).map(|history| (history.id, history.root)),
        );
        let mut entries = self.directory.states()?;
        for entry in entries.iter_mut().filter(|entry| entry.pool != PoolRole::Main) {
            let root = self.state(entry.id).map(|state| state.root);
            entry.root = root.or_else(|| roots.get(&entry.id).copied()).unwrap_or(PoolOffset::NULL);
        }
        Ok(entries)
    }

    fn check_state(
        &self,
        entry: &StateEntry,
        history_of: Option<StateId>,
        mut claim: impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
    ) -> Result<StateReport> {
        let pool = self.pools.of(entry.pool)?;
        let mut report = StateReport {
            id: entry.id,
            group: entry.group,
            is_beside: entry.pool != PoolRole::Main,
            dropping: entry.dropping,
            history_of,
            keys: 0,
            versions: 0,
            index_bytes: 0,
            object_bytes: 0,
            problems: Vec::new(),
        };
        let mut values = Vec::new();
        let mut index_bytes = 0;
        let mut claim_part = |offset, bytes| {
            index_bytes += bytes;
            claim(offset, bytes)
        };
        let mut note_value = |key: &[u8], word| values.push((key.to_vec(), PoolOffset::from_word(word)));
        let history = history_of.and_then(|of| self.state(of)).and_then(|state| state.history());
        let checked = match (self.state(entry.id), history) {
            (Some(state), _) => state.index.check_damaged(&mut claim_part, &mut note_value),
            (None, Some(history)) => history.index.check_damaged(&mut claim_part, &mut note_value),
            (None, None) if entry.dropping => {
                OrderedIndex::check_remains(pool, entry.root, &mut claim_part, &mut note_value)
            }
            (None, None) => OrderedIndex::open(pool, entry.root)
                .and_then(|index| index.check_damaged(&mut claim_part, &mut note_value)),
        };
        report.index_bytes = index_bytes;
        report.note(None, checked.err().map(|error| error.to_string()));
        if entry.history && !entry.dropping && history_of.is_none() {
            report.note(Some(entry.root), Some("no state has this history".to_owned()));
        }
        for (key, offset) in values {
            report.keys += 1;
            if entry.history {
                self.check_record(pool, &mut report, history_of, &key, offset, &mut claim);
                continue;
            }
            self.check_object(pool, &mut report, entry, &key, offset, &mut claim);
        }
        Ok(report)
    }

    fn check_record(
        &self,
        pool: &Pool,
        report: &mut StateReport,
        of: Option<StateId>,
        key: &[u8],
        offset: PoolOffset,
        claim: &mut impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
    ) {
        // Its state may be gone already, or be damaged: then the key says nothing.
        let base = of.and_then(|of| self.state(of)).map(|state| state.width());
        let cts = match base.map(|base| HistoryKeys::of(base).decode(key)) {
            Some(None) => return report.note_key(key, offset, "the key is none of a history"),
            Some(Some((_, cts))) => Some(cts),
            None => Record::try_open(pool, offset).map(|record| record.cts()),
        };
        let checked = Record::check(pool, offset, cts.unwrap_or_default()).and_then(|bytes| {
            claim(offset, bytes as u64)?;
            report.versions += 1;
            report.object_bytes += bytes as u64;
            Ok(())
        });
        if let Err(what) = checked {
            report.note_key(key, offset, &what);
        }
    }

    fn check_object(
        &self,
        pool: &Pool,
        report: &mut StateReport,
        entry: &StateEntry,
        key: &[u8],
        offset: PoolOffset,
        claim: &mut impl FnMut(PoolOffset, u64) -> std::result::Result<(), String>,
    ) {
        let Some(group) = self.group(entry.group) else {
            return report.note(None, Some(format!("it belongs to {}, which does not exist", entry.group)));
        };
        if group.protocol.is_chained() {
            match Chain::at(pool, offset).check(claim) {
                Ok((versions, bytes)) => {
                    report.versions += versions as u64;
                    report.object_bytes += bytes as u64;
                }
                Err(what) => report.note_key(key, offset, &what),
            }
            return;
        }
        let found = VersionedObject::check(pool, offset, &group.invalid).and_then(|(versions, bytes)| {
            claim(offset, bytes as u64)?;
            report.versions += versions as u64;
            report.object_bytes += bytes as u64;
            Ok(())
        });
        if let Err(what) = found {
            report.note_key(key, offset, &what);
        }
    }
}

impl StateReport {
    fn note_key(&mut self, key: &[u8], offset: PoolOffset, what: &str) {
        let shown: String = key.iter().take(KEY_BYTES_MAX.min(32)).map(|b| format!("{b:02x}")).collect();
        self.note(Some(offset), Some(format!("the MVCC object of key {shown}: {what}")));
    }

    fn note(&mut self, offset: Option<PoolOffset>, what: Option<String>) {
        let Some(what) = what else { return };
        match self.problems.len() {
            known if known + 1 < PROBLEMS_MAX => self.problems.push(StateProblem { offset, what }),
            known if known + 1 == PROBLEMS_MAX => {
                self.problems.push(StateProblem { offset: None, what: "and more".to_owned() });
            }
            _ => {}
        }
    }
}
