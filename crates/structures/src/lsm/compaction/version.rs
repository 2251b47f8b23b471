//! Versions: the consistent set of buffers and runs for a reader. They are replaced, never changed.
//!
//! A reader takes a lock of its own shard for a lookup in memory; installing the next version takes all
//! shards, for the store of a pointer. A reader of files takes a reference and no lock.

use crate::error::Result;
use crate::lsm::buffer::Buffer;
use crate::lsm::files::block::LsmEntry;
use crate::lsm::files::filter::KeyHash;
use crate::lsm::files::run::{Media, Run};
use crate::node::FixedKey;
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard};
use parking_lot::Mutex;
use std::sync::{Arc, PoisonError};

pub(crate) struct Version<K> {
    /// Newest first; the first is active.
    pub(crate) buffers: Vec<Arc<Buffer<K>>>,
    /// Runs of each level, newest first.
    pub(crate) levels: Vec<Vec<Arc<Run<K>>>>,
}

impl<K: FixedKey> Version<K> {
    pub(crate) fn active(&self) -> &Buffer<K> {
        &self.buffers[0]
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<Run<K>>> {
        self.levels.iter().flatten()
    }

    /// Returns the newest entry of a key.
    #[inline]
    pub(crate) fn find(&self, media: &Media<'_>, key: K, hash: KeyHash) -> Result<Option<LsmEntry<K>>> {
        if let Some(entry) = self.find_in_buffers(key, hash) {
            return Ok(Some(entry));
        }
        for run in self.runs() {
            if run.candidate(key, hash)
                && let Some(entry) = run.find(media, key)?
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    #[inline]
    pub(crate) fn find_in_buffers(&self, key: K, hash: KeyHash) -> Option<LsmEntry<K>> {
        self.buffers.iter().find_map(|buffer| buffer.find(key, hash))
    }
}

/// The current version.
pub(crate) struct Versions<K> {
    current: ShardedLock<Arc<Version<K>>>,
    /// Locked while the next version is made from the current one.
    making: Mutex<()>,
}

impl<K: FixedKey> Versions<K> {
    pub(crate) fn new(version: Version<K>) -> Versions<K> {
        Versions { current: ShardedLock::new(Arc::new(version)), making: Mutex::new(()) }
    }

    /// Returns the current version, which stays current until the guard is dropped.
    #[inline]
    pub(crate) fn read(&self) -> ShardedLockReadGuard<'_, Arc<Version<K>>> {
        // A reader that panicked has changed nothing.
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn current(&self) -> Arc<Version<K>> {
        Arc::clone(&self.read())
    }

    pub(crate) fn change(&self, make: impl FnOnce(&Version<K>) -> Version<K>) {
        let _making = self.making.lock();
        let next = Arc::new(make(&self.current()));
        let before = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, next)
        };
        // Buffers and filters may be freed with it: after the lock.
        drop(before);
    }
}
