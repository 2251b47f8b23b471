//! Old versions that no longer fit the object of their key, in DRAM.
//!
//! A key has a bounded number of slots. When old snapshots need all of them, the versions that *only* they
//! need move here, and the commit builds a smaller object without them. DRAM is enough: a snapshot dies with
//! its process, and after a crash no reader needs these versions. So neither does a long reader stop a writer
//! nor a writer a reader.
//!
//! Invariants:
//! - A version is here before the index leads to an object without it. A reader that finds that object finds
//!   it here; one that found the object before finds it there, since replaced objects are not changed.
//! - A version that a registered snapshot needs is not removed.
//!
//! Readers come here only if their object has nothing for them, and then only if there is anything at all
//! (one load). Memory:
//! [`ContextOptions::old_version_bytes_max`](crate::ContextOptions::old_version_bytes_max).

use crate::mvcc::value_buffer::ValueBuffer;
use crate::visibility::active::Snapshots;
use crate::visibility::snapshot::Snapshot;
use crate::{AtomicTimestamp, Error, Result, StateId, Timestamp};
use entresol_structures::KeyBytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a version beside its value and key.
const VERSION_BYTES: usize = 96;

#[derive(Debug)]
struct OldVersion {
    cts: Timestamp,
    dts: Timestamp,
    value: Box<[u8]>,
}

type Versions = BTreeMap<(StateId, KeyBytes), Vec<OldVersion>>;

/// See the module.
pub(crate) struct OldVersions {
    versions: RwLock<Versions>,
    /// Bytes that they take; 0: there are none.
    bytes: AtomicUsize,
    /// The greatest deletion timestamp that was ever here: snapshots from there on need none of them.
    newest: AtomicTimestamp,
    bytes_max: usize,
}

fn cost(key: &KeyBytes, value: &[u8]) -> usize {
    VERSION_BYTES + key.len() + value.len()
}

impl OldVersions {
    pub(crate) fn new(bytes_max: usize) -> OldVersions {
        OldVersions {
            versions: RwLock::default(),
            bytes: AtomicUsize::new(0),
            newest: AtomicTimestamp::new(Timestamp::START),
            bytes_max,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn count(&self) -> usize {
        if self.bytes() == 0 { 0 } else { self.versions.read().values().map(Vec::len).sum() }
    }

    /// Takes copies of versions of a key: CTS, DTS, value. The caller holds the key. Versions that are here
    /// already (of a commit that did not happen) stay once.
    pub(crate) fn keep(
        &self,
        state: StateId,
        key: &[u8],
        copies: impl Iterator<Item = (Timestamp, Timestamp, ValueBuffer)>,
        snapshots: &Snapshots,
    ) -> Result<()> {
        let at = (state, KeyBytes::from_slice(key));
        let mut versions = self.versions.write();
        if self.bytes() > self.bytes_max / 2 {
            self.prune_locked(&mut versions, snapshots);
        }
        for (cts, dts, value) in copies {
            debug_assert!(cts < dts, "a version is valid from {cts} until {dts}");
            let kept = versions.entry(at.clone()).or_default();
            if kept.iter().any(|version| version.cts == cts) {
                continue;
            }
            let bytes = cost(&at.1, &value);
            if self.bytes() + bytes > self.bytes_max {
                return Err(Error::OldVersionsFull { state, key: at.1, max: self.bytes_max });
            }
            self.bytes.fetch_add(bytes, Ordering::AcqRel);
            self.newest.fetch_max(dts, Ordering::AcqRel);
            kept.push(OldVersion { cts, dts, value: value.as_slice().into() });
        }
        Ok(())
    }

    /// Copies the version of a key that the snapshot sees, if it is here.
    #[inline]
    pub(crate) fn copy_visible(
        &self,
        state: StateId,
        key: &[u8],
        snapshot: Snapshot,
        value: &mut ValueBuffer,
    ) -> bool {
        self.bytes() != 0 && self.search(state, key, snapshot, value)
    }

    #[cold]
    fn search(&self, state: StateId, key: &[u8], snapshot: Snapshot, value: &mut ValueBuffer) -> bool {
        let versions = self.versions.read();
        let kept = versions.get(&(state, KeyBytes::from_slice(key)));
        let seen = kept.and_then(|kept| kept.iter().find(|v| snapshot.sees_version(v.cts, v.dts)));
        if let Some(seen) = seen {
            value.set(&seen.value);
        }
        seen.is_some()
    }

    /// Tells whether a transaction with this snapshot may have needed any of them.
    #[inline]
    pub(crate) fn may_serve(&self, snapshot: Snapshot) -> bool {
        self.bytes() != 0 && snapshot.all_up_to() < self.newest.load(Ordering::Acquire)
    }

    /// Drops versions that no snapshot needs. Cost: all of them are visited.
    pub(crate) fn prune(&self, snapshots: &Snapshots) {
        if self.bytes() != 0 {
            self.prune_locked(&mut self.versions.write(), snapshots);
        }
    }

    fn prune_locked(&self, versions: &mut Versions, snapshots: &Snapshots) {
        let mut freed = 0;
        versions.retain(|(_, key), kept| {
            kept.retain(|version| {
                let needed = snapshots.needs(version.cts, version.dts);
                freed += if needed { 0 } else { cost(key, &version.value) };
                needed
            });
            !kept.is_empty()
        });
        assert!(freed <= self.bytes(), "{freed} bytes are freed of {}", self.bytes());
        self.bytes.fetch_sub(freed, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::at;
    use crate::visibility::active::ActiveTransactions;
    use crate::visibility::snapshot::Class;

    fn value(bytes: &[u8]) -> ValueBuffer {
        ValueBuffer::from_slice(bytes)
    }

    #[test]
    fn versions_stay_while_a_snapshot_needs_them() {
        let active = ActiveTransactions::new(at(10));
        let (reader, snapshot) = active.claim().unwrap();
        let (writer, _) = active.claim().unwrap();
        (5..10).for_each(|_| active.stamp(writer, Class::Quick).finish());
        active.release(writer);
        active.advanced();
        let old = OldVersions::new(1000);
        let copies = || [(at(5), at(12), value(b"seen")), (at(12), at(15), value(b"not"))].into_iter();
        for _ in 0..2 {
            old.keep(StateId(1), b"key", copies(), &active.snapshots()).unwrap();
        }
        assert_eq!(old.count(), 2, "a second copy is not kept");
        let mut found = ValueBuffer::new();
        assert!(old.copy_visible(StateId(1), b"key", snapshot, &mut found) && found.as_slice() == b"seen");
        assert!(!old.copy_visible(StateId(2), b"key", snapshot, &mut found));
        assert!(!old.copy_visible(StateId(1), b"key", Snapshot::at(at(15)), &mut found));
        assert!(old.may_serve(snapshot) && !old.may_serve(Snapshot::at(at(15))));
        old.prune(&active.snapshots());
        assert_eq!(old.count(), 1);
        active.release(reader);
        old.prune(&active.snapshots());
        assert_eq!((old.count(), old.bytes()), (0, 0));
    }

    #[test]
    fn the_bound_holds() {
        let active = ActiveTransactions::new(at(10));
        let (_reader, _) = active.claim().unwrap();
        let old = OldVersions::new(400);
        let keep = |cts: u64| {
            let version = (at(cts), at(50 + cts), value(&[1; 100]));
            old.keep(StateId(1), b"key", [version].into_iter(), &active.snapshots())
        };
        keep(1).unwrap();
        let error = (2..9).find_map(|cts| keep(cts).err()).unwrap();
        assert!(matches!(error, Error::OldVersionsFull { max: 400, .. }) && error.is_retryable(), "{error}");
        assert!(old.bytes() <= 400);
    }
}
