//! Reads of a transaction by key: one, many whose accesses overlap, and values where they are in the pool.

use crate::context::state::{LookupOutcome, State};
use crate::mvcc::value_buffer::ValueBuffer;
use crate::transaction::Transaction;
use crate::{Result, interleave};
use entresol_memory::{Pool, PoolOffset};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of keys that `read_many` looks up together: enough to keep the memory busy.
const READ_MANY_KEYS: usize = 64;

/// Value where it is in a pool; see [`Transaction::read_in_place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedValue {
    /// Place of its first word.
    pub offset: PoolOffset,
    /// Length.
    pub bytes: usize,
}

impl Transaction {
    /// Calls `f` with the value of the key, if it has one: the transaction's own write, else what the
    /// snapshot sees.
    pub fn read<R>(&self, state: &Arc<State>, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        state.check_key(key)?;
        let mut value = ValueBuffer::new();
        if let Some(past) = &self.past {
            return Ok(self.read_as_of(state, key, past.at(), &mut value)?.then(|| f(&value)));
        }
        if let Some(own) = self.own_write(state, key)? {
            self.check_readable(state)?;
            return Ok(own.map(|value| f(&value)));
        }
        self.read_committed(state, key, value, f)
    }

    /// Reads a key as it was before this transaction's own writes.
    pub fn read_before<R>(
        &self,
        state: &Arc<State>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        state.check_key(key)?;
        self.read_committed(state, key, ValueBuffer::new(), f)
    }

    /// Reads what others have committed under a key.
    #[inline]
    fn read_committed<R>(
        &self,
        state: &Arc<State>,
        key: &[u8],
        mut value: ValueBuffer,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        if !state.protocol().reads_snapshots() {
            return Ok(self.read_newest(state, key, &mut value)?.then(|| f(&value)));
        }
        self.note_key(state, key)?;
        let found = {
            let _guard = state.pool().pin();
            self.check_readable(state)?;
            let Some(word) = state.index.get(key)? else { return Ok(None) };
            interleave::point();
            state.copy_visible(key, PoolOffset::from_word(word), self.snapshot, &mut value)
        };
        self.check_still_open()?;
        if found == LookupOutcome::Damaged {
            return Err(state.damaged(&state.normalise(key)?, "a damaged MVCC object"));
        }
        Ok((found == LookupOutcome::Value).then(|| f(&value)))
    }

    /// Calls `f` with the pool of the state and the places of the values of some keys in it, as the snapshot sees them. They
    /// stay where they are, and as they are, until `f` returns. None, without a call, if a value is not there, or not
    /// only there: the transaction has written keys itself or reads as of an earlier time, or the state has an older version
    /// in DRAM; then [`Transaction::read`] tells.
    pub fn read_in_place<K: AsRef<[u8]>, R>(
        &self,
        state: &Arc<State>,
        keys: &[K],
        f: impl FnOnce(&Pool, &[PlacedValue]) -> R,
    ) -> Result<Option<R>> {
        self.check_open()?;
        let is_elsewhere = self.past.is_some() || self.has_writes.load(Ordering::Acquire);
        if is_elsewhere || !state.protocol().reads_snapshots() {
            return Ok(None);
        }
        let read = {
            let _guard = state.pool().pin();
            self.check_readable(state)?;
            let mut places = Vec::with_capacity(keys.len());
            for key in keys {
                state.check_key(key.as_ref())?;
                self.note_key(state, key.as_ref())?;
                let Some(object) = state.index.get(key.as_ref())? else { return Ok(None) };
                let Some((offset, bytes)) = state.place_visible(PoolOffset::from_word(object), self.snapshot)
                else {
                    return Ok(None);
                };
                places.push(PlacedValue { offset, bytes });
            }
            f(state.pool(), &places)
        };
        self.check_still_open()?;
        Ok(Some(read))
    }

    /// Calls `f` with the position and the value of each key, in the order of `keys`. The accesses overlap.
    pub fn read_many<K: AsRef<[u8]>>(
        &self,
        state: &Arc<State>,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut words = Vec::with_capacity(keys.len().min(READ_MANY_KEYS));
        let mut value = ValueBuffer::new();
        let pool = state.pool();
        keys.iter().try_for_each(|key| state.check_key(key.as_ref()).map(|_| ()))?;
        if !state.protocol().reads_snapshots() || self.past.is_some() {
            return self.read_one_by_one(state, keys, f);
        }
        for (chunk_index, chunk) in keys.chunks(READ_MANY_KEYS).enumerate() {
            if chunk_index > 0 {
                self.check_running()?;
            }
            let _guard = pool.pin();
            self.check_readable(state)?;
            state.index.get_many(chunk, &mut words)?;
            assert_eq!(words.len(), chunk.len(), "the index answers every key");
            let offsets = || words.iter().flatten().copied().map(PoolOffset::from_word);
            pool.read_ahead(offsets());
            offsets().for_each(|offset| pool.prefetch(offset));
            for (index, (key, word)) in chunk.iter().zip(&words).enumerate() {
                let position = chunk_index * READ_MANY_KEYS + index;
                if let Some(own) = self.own_write(state, key.as_ref())? {
                    f(position, own.as_deref());
                    continue;
                }
                self.note_key(state, key.as_ref())?;
                let found = match word.map(PoolOffset::from_word) {
                    Some(offset) => state.copy_visible(key.as_ref(), offset, self.snapshot, &mut value),
                    None => LookupOutcome::Nothing { dead: false },
                };
                self.check_still_open()?;
                if found == LookupOutcome::Damaged {
                    return Err(state.damaged(&state.normalise(key.as_ref())?, "a damaged MVCC object"));
                }
                f(position, (found == LookupOutcome::Value).then_some(&value[..]));
            }
        }
        Ok(())
    }

    fn read_one_by_one<K: AsRef<[u8]>>(
        &self,
        state: &Arc<State>,
        keys: &[K],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut value = ValueBuffer::new();
        for (position, key) in keys.iter().map(AsRef::as_ref).enumerate() {
            if let Some(past) = &self.past {
                let found = self.read_as_of(state, key, past.at(), &mut value)?;
                f(position, found.then_some(&value[..]));
                continue;
            }
            match self.own_write(state, key)? {
                Some(own) => f(position, own.as_deref()),
                None => {
                    let found = self.read_newest(state, key, &mut value)?;
                    f(position, found.then_some(&value[..]));
                }
            }
        }
        Ok(())
    }
}
