//! Time travel: transactions that see the commits up to a point in time, and nothing later.
//!
//! ```text
//!   horizon                 as of                    visible
//!  ────┼──────────────────────┼────────────────────────┼────▶  commit timestamps
//!   what has ended before    object, if its version is    present
//!   may be gone              still there; else history
//! ```
//! The point in time is one timestamp, so reads are consistent over all states and groups. Commit timestamps
//! are at least the clock, in nanoseconds since 1970, once any state keeps a version history; so a time is a
//! timestamp. They only grow: while the clock is behind them (it was set back), commits count from the last
//! one on.
//!
//! # Why nothing is missed
//! A version that ended after the point in time is either still in the slot where its commit found it, or a
//! later commit has taken the slot, after the end was visible; then its record was in the history before. The
//! reader is not registered with the point in time, so a slot may be rewritten while it copies: a copy counts
//! if its slot has the same CTS afterwards. Else, and for removed keys, it reads the history *after* that. Of
//! a chain only the newest version says until when it holds: versions behind it are left to the history.
//!
//! Such a transaction writes nothing, never waits and never restarts, whatever the protocol: old versions do
//! not change. It holds the horizon back as long as it is open.
//!
//! Memory: a leaf of the index and [`RECORDS_PER_BATCH`] records for each batch of a scan.

use crate::context::StateContext;
use crate::context::state::State;
use crate::history::{History, KnownKey, LookupRange, Record, utc};
use crate::mvcc::chain::Chain;
use crate::mvcc::object::VersionedObject;
use crate::mvcc::value_buffer::ValueBuffer;
use crate::transaction::Transaction;
use crate::transaction::scan::{KeyRange, PREFETCH_OBJECTS};
use crate::transaction::write_set::is_empty_range;
use crate::visibility::snapshot::Snapshot;
use crate::{Error, Result, Timestamp, interleave};
use entresol_memory::PoolOffset;
use entresol_structures::KeyBytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of records of the history in one batch of a scan; its window ends before the next one.
const RECORDS_PER_BATCH: usize = 1024;

/// The snapshot timestamp of an AS OF transaction, registered so that the horizon stays below it.
pub(crate) struct AsOf {
    context: Arc<StateContext>,
    at: Timestamp,
}

impl AsOf {
    fn register(context: &Arc<StateContext>, at: Timestamp) -> AsOf {
        *context.as_of_readers.lock().entry(at).or_insert(0) += 1;
        AsOf { context: Arc::clone(context), at }
    }

    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }
}

impl Drop for AsOf {
    fn drop(&mut self) {
        let mut readers = self.context.as_of_readers.lock();
        if let Some(count) = readers.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&self.at);
            }
        }
    }
}

/// Registered AS OF readers and their numbers, by timestamp: the oldest one holds the horizons back.
pub(crate) type AsOfReaders = BTreeMap<Timestamp, usize>;

/// Outcome of reading an object at a timestamp.
enum ObjectRead {
    /// The value is in the buffer.
    Value,
    /// The key had no value: the newest version says so.
    Nothing,
    /// The history has the answer.
    Ended,
}

impl StateContext {
    /// Begins a read-only transaction AS OF a point in time: it sees the commits up to then. States that keep
    /// no version history, or none that long, are errors when they are read. [`Error::InTheFuture`] if the
    /// time has not come.
    ///
    /// `at` is a commit timestamp, or a time in nanoseconds since 1970: the commits by that time by the clock
    /// of this machine. The state after the last commit can no longer become different.
    pub fn begin_as_of(self: &Arc<Self>, at: Timestamp) -> Result<Arc<Transaction>> {
        let newest = self.active.advanced().all_up_to();
        if at > newest {
            let now = Timestamp::from_nanoseconds(self.pool().env().now_ns());
            if at > now.max(self.newest_commit()) {
                return Err(Error::InTheFuture { at: utc(at), now: utc(now.max(newest)) });
            }
        }
        // A clock that is not trusted says nothing but that it is now.
        let at = if at > newest { at.min(self.clock.now().max(self.newest_commit())) } else { at };
        if at > newest {
            // No commit gets a timestamp up to there any more.
            self.active.catch_up(at);
            self.active.wait_until_all_visible(at)?;
        }
        let past = AsOf::register(self, at);
        self.begin_past(past)
    }

    /// The newest visible commit: a point in time to come back to.
    pub fn newest_commit(&self) -> Timestamp {
        self.active.newest().none_above()
    }
}

impl State {
    /// Error of who asks for a point in time before the horizon of its history.
    pub fn is_younger(&self, at: Timestamp, horizon: Timestamp) -> Error {
        let of = format!("the version history of {}", self.holder());
        Error::SnapshotTooOld { of, at: utc(at), horizon: utc(horizon) }
    }
}

/// Reads of an AS OF transaction.
impl Transaction {
    fn history_of(&self, state: &State, at: Timestamp) -> Result<Arc<History>> {
        self.context().check_owns(state)?;
        let history = state.history().ok_or_else(|| Error::NoHistory { of: state.holder() })?;
        let horizon = history.horizon();
        if at < horizon {
            return Err(state.is_younger(at, horizon));
        }
        Ok(history)
    }

    /// Copies the value that a key had.
    pub(crate) fn read_as_of(
        &self,
        state: &State,
        key: &[u8],
        at: Timestamp,
        value: &mut ValueBuffer,
    ) -> Result<bool> {
        let key = state.normalise(key)?;
        let history = self.history_of(state, at)?;
        let found = {
            let _guard = state.pool().pin();
            self.check_readable(state)?;
            let object = match state.index.get(&key)? {
                Some(word) => state.copy_at(&key, PoolOffset::from_word(word), at, value)?,
                None => ObjectRead::Ended,
            };
            interleave::point();
            match object {
                ObjectRead::Value => true,
                ObjectRead::Nothing => false,
                ObjectRead::Ended => {
                    let copied = history.copy_at(&key, at, &state.group.invalid, value)?;
                    copied.map_err(|_| state.damaged(&key, "a damaged version of the history"))?
                }
            }
        };
        self.check_still_open()?;
        Ok(found)
    }

    /// [`Transaction::scan_batch`] of an AS OF transaction.
    pub(crate) fn scan_as_of(
        &self,
        state: &State,
        (lower, upper): (Bound<KeyBytes>, Bound<KeyBytes>),
        at: Timestamp,
        from: &mut Option<KeyBytes>,
        mut f: impl FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        if is_empty_range(as_slice(&lower), as_slice(&upper)) {
            return Ok(false);
        }
        let history = self.history_of(state, at)?;
        let guard = state.pool().pin();
        self.check_readable(state)?;
        let mut entries = Vec::new();
        let next = state.index.scan_batch(as_slice(&lower), &mut entries)?;
        let range = KeyRange { lower: Bound::Unbounded, upper };
        let mut window = match next {
            Some(next) if range.reaches(&next) => {
                (KeyRange { upper: Bound::Excluded(next.clone()), ..range }, Some(next))
            }
            _ => (range, None),
        };
        entries.retain(|(key, _)| window.0.reaches(key));
        let (mut known, mut objects) = (Vec::with_capacity(entries.len()), Values::default());
        let (pool, mut value) = (state.pool(), ValueBuffer::new());
        let offsets = entries.iter().map(|&(_, word)| PoolOffset::from_word(word));
        let ahead = offsets.collect::<SmallVec<[PoolOffset; 64]>>();
        ahead.iter().take(PREFETCH_OBJECTS).for_each(|&offset| pool.prefetch(offset));
        for (index, (key, _)) in entries.into_iter().enumerate() {
            ahead.get(index + PREFETCH_OBJECTS).into_iter().for_each(|&offset| pool.prefetch(offset));
            let found = state.copy_at(&key, ahead[index], at, &mut value)?;
            objects.push(matches!(found, ObjectRead::Value).then_some(&value[..]));
            known.push(KnownKey { key, asked: matches!(found, ObjectRead::Ended) });
            interleave::point();
        }
        // After the objects: versions that a slot has lost since are in the history by now.
        let damaged = |key: &[u8]| state.damaged(key, "a damaged version of the history");
        let wanted = LookupRange {
            lower: as_slice(&lower),
            upper: as_slice(&window.0.upper),
            known: &known,
            at,
            max: RECORDS_PER_BATCH,
        };
        let seen = history.seen_at(&wanted, &state.group.invalid)?.map_err(|_| damaged(&[]))?;
        if let Some(key) = seen.stopped_at {
            window = (KeyRange { upper: Bound::Excluded(key.clone()), ..window.0 }, Some(key));
        }
        let mut records = seen.records.iter().peekable();
        let mut deliver = |(key, offset): &(KeyBytes, PoolOffset), f: &mut dyn FnMut(&[u8], &[u8])| {
            let record = Record::try_open(pool, *offset).ok_or_else(|| damaged(key))?;
            record.copy_value(&mut value);
            f(key, &value);
            Ok::<_, Error>(())
        };
        for (index, KnownKey { key, .. }) in known.iter().enumerate() {
            if !window.0.reaches(key) {
                break;
            }
            while let Some(gone) = records.next_if(|(gone, _)| gone < key) {
                deliver(gone, &mut f)?;
            }
            let record = records.next_if(|(of, _)| of == key);
            match (objects.get(index), record) {
                (Some(found), _) => f(key, found),
                (None, Some(record)) => deliver(record, &mut f)?,
                (None, None) => (),
            }
        }
        records.try_for_each(|gone| deliver(gone, &mut f))?;
        drop(guard);
        self.check_still_open()?;
        *from = window.1;
        Ok(from.is_some())
    }
}

/// Values of the objects of a batch, in one piece of memory.
#[derive(Default)]
struct Values {
    bytes: Vec<u8>,
    /// Range of each value, if there is one.
    places: Vec<Option<(usize, usize)>>,
}

impl Values {
    fn push(&mut self, value: Option<&[u8]>) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.places.push(value.map(|value| (begin, begin + value.len())));
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let (begin, end) = self.places[index]?;
        Some(&self.bytes[begin..end])
    }
}

impl State {
    /// Copies the version of an object, found by the index, that was current at a timestamp. The caller holds
    /// a guard since before it took the offset.
    fn copy_at(
        &self,
        key: &[u8],
        offset: PoolOffset,
        at: Timestamp,
        value: &mut ValueBuffer,
    ) -> Result<ObjectRead> {
        let damaged = || self.damaged(key, "a damaged MVCC object");
        if self.is_chained() {
            let newest =
                Chain::at(self.pool(), offset).newest_at(at, &self.group.invalid).map_err(|_| damaged())?;
            return Ok(match newest {
                Some(version) if version.has_value() => {
                    version.copy_value(value);
                    ObjectRead::Value
                }
                Some(_) => ObjectRead::Nothing,
                None => ObjectRead::Ended,
            });
        }
        let object = VersionedObject::try_open(self.pool(), offset).ok_or_else(damaged)?;
        let Some(slot) = object.visible(Snapshot::at(at), &self.group.invalid) else {
            return Ok(ObjectRead::Ended);
        };
        let cts = object.cts(slot);
        let whole = object.copy_value(slot, value);
        interleave::point();
        if cts > at || !object.is_still(slot, cts) {
            return Ok(ObjectRead::Ended);
        }
        if whole { Ok(ObjectRead::Value) } else { Err(damaged()) }
    }
}

fn as_slice(bound: &Bound<KeyBytes>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}
