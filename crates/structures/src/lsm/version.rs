//! Versions: what a reader has to look at, at one moment. They are replaced, never changed.
//!
//! A reader takes a lock of its own for the time of a lookup in memory, which whoever installs the next version takes
//! as well, for as long as it takes to store a pointer. Who reads from files takes a reference and no lock.

use super::block::Entry;
use super::buffer::Buffer;
use super::filter::KeyHash;
use super::run::{Media, Run};
use crate::error::Result;
use crate::node::FixedKey;
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard};
use parking_lot::Mutex;
use std::sync::{Arc, PoisonError};

pub(super) struct Version<K> {
    /// Newest first; the first takes writes.
    pub(super) buffers: Vec<Arc<Buffer<K>>>,
    /// Of each level the runs, newest first.
    pub(super) levels: Vec<Vec<Arc<Run<K>>>>,
}

impl<K: FixedKey> Version<K> {
    pub(super) fn active(&self) -> &Buffer<K> {
        &self.buffers[0]
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = &Arc<Run<K>>> {
        self.levels.iter().flatten()
    }

    /// The newest entry of a key.
    #[inline]
    pub(super) fn find(&self, media: &Media<'_>, key: K, hash: KeyHash) -> Result<Option<Entry<K>>> {
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
    pub(super) fn find_in_buffers(&self, key: K, hash: KeyHash) -> Option<Entry<K>> {
        self.buffers.iter().find_map(|buffer| buffer.find(key, hash))
    }
}

/// The current version.
pub(super) struct Versions<K> {
    current: ShardedLock<Arc<Version<K>>>,
    /// Held while the next version is made from the current one.
    making: Mutex<()>,
}

impl<K: FixedKey> Versions<K> {
    pub(super) fn new(version: Version<K>) -> Versions<K> {
        Versions { current: ShardedLock::new(Arc::new(version)), making: Mutex::new(()) }
    }

    /// The current version, which stays so until the guard is gone.
    #[inline]
    pub(super) fn read(&self) -> ShardedLockReadGuard<'_, Arc<Version<K>>> {
        // A reader that panicked has changed nothing.
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn current(&self) -> Arc<Version<K>> {
        Arc::clone(&self.read())
    }

    pub(super) fn change(&self, make: impl FnOnce(&Version<K>) -> Version<K>) {
        let _making = self.making.lock();
        let next = Arc::new(make(&self.current()));
        let before = {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, next)
        };
        // Buffers and filters may go with it: after the lock.
        drop(before);
    }
}
