//! The write set: writes of a transaction that no other one sees. Volatile; a crash leaves nothing of it.
//!
//! Invariants: keys are normalised (padded to the key width), so equal keys are equal bytes; `bytes` is at
//! least what keys, values and undo entries take. Memory: [`WRITE_SET_BYTES_MAX`] per transaction, and what
//! the memory budget of the pool has left; bytes from [`UNCOUNTED_BYTES_MAX`] on are reserved there, some at
//! a time.

use crate::changes::overlay::Overlaid;
use crate::context::state::State;
use crate::transaction::scan::Direction;
use crate::transaction::state_writes::{StateWrites, WriteOutcome, WrittenValue};
use crate::{Error, Result, StateId};
use entresol_memory::budget::{MemoryBudget, MemoryConsumer, MemoryReservation};
use entresol_structures::KeyBytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of bytes that one transaction may have written before its commit.
pub const WRITE_SET_BYTES_MAX: usize = 1 << 30;

/// Bytes that a write set has without reserving them, so that a short transaction touches no shared counter.
const UNCOUNTED_BYTES_MAX: usize = 64 << 10;

/// Bytes that are reserved at a time.
const RESERVED_BYTES_STEP: usize = 256 << 10;

/// Bytes of an entry beside its key and value: tree nodes, vectors.
const ENTRY_BYTES: usize = 64;

/// A savepoint among a transaction's writes; see [`Transaction::mark`](crate::Transaction::mark).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

pub(crate) struct WrittenState {
    pub(crate) state: Arc<State>,
    pub(crate) keys: StateWrites,
}

/// Entry of the undo history: takes writes back.
enum Undo {
    /// Write of a key.
    Written {
        state: StateId,
        key: KeyBytes,
        /// Previous write of the key; None: none.
        before: Option<WrittenValue>,
    },
    /// Writes of so many new keys, each behind all others of its state.
    Appended { state: StateId, keys: usize },
}

#[derive(Default)]
pub(crate) struct WriteSet {
    pub(crate) states: BTreeMap<StateId, WrittenState>,
    /// Kept from the first mark on.
    undo: Option<Vec<Undo>>,
    /// Length of the undo history at the last mark: entries before it stay as they are.
    marked: usize,
    bytes: usize,
    /// Part of `bytes` that undo entries take, with the values that they hold.
    undo_bytes: usize,
    /// Share of the memory budget; from [`UNCOUNTED_BYTES_MAX`] on.
    memory: Option<WriteReservation>,
    /// Statements about overlays.
    pub(crate) overlaid: Overlaid,
}

struct WriteReservation {
    writes: MemoryReservation,
    undo: MemoryReservation,
}

impl WriteReservation {
    /// Brings a part to so many bytes, or a little more.
    fn resize(part: &mut MemoryReservation, bytes: usize) -> Result<()> {
        let wanted = bytes.next_multiple_of(RESERVED_BYTES_STEP) as u64;
        // Bytes that moved to undo entries, or were rolled back, are released in large pieces.
        let is_much = part.bytes() > wanted + 2 * RESERVED_BYTES_STEP as u64;
        if is_much || part.bytes() < bytes as u64 {
            part.try_resize(wanted).map_err(|limit| Error::Memory(limit.into()))?;
        }
        Ok(())
    }
}

/// Bytes that an undo entry holds of a write that was there before.
fn held_bytes(key_bytes: usize, before: Option<&WrittenValue>) -> usize {
    before.map_or(0, |value| ENTRY_BYTES + key_bytes + value_bytes(value.as_deref()))
}

fn value_bytes(value: Option<&[u8]>) -> usize {
    value.map_or(0, <[u8]>::len)
}

impl WriteSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.states.values().all(|writes| writes.keys.is_empty())
    }

    pub(crate) fn keys(&self) -> usize {
        self.states.values().map(|writes| writes.keys.len()).sum()
    }

    /// All that was written.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<State>, &KeyBytes)> {
        self.states.values().flat_map(|writes| writes.keys.keys().map(move |key| (&writes.state, key)))
    }

    /// The write under the key: None is none, Some(None) a deletion.
    pub(crate) fn get(&self, state: StateId, key: &[u8]) -> Option<Option<&[u8]>> {
        self.states.get(&state)?.keys.get(key)
    }

    /// Greatest key written in a state.
    pub(crate) fn last_key(&self, state: StateId) -> Option<&[u8]> {
        self.states.get(&state)?.keys.last_key().map(|key| &key[..])
    }

    /// Notes a write. Fails, with everything as it was, if it does not fit the limit or the memory budget.
    pub(crate) fn put(
        &mut self,
        memory: Option<&Arc<MemoryBudget>>,
        state: &Arc<State>,
        key: KeyBytes,
        value: Option<&[u8]>,
    ) -> Result<()> {
        let added = ENTRY_BYTES + key.len() + value_bytes(value);
        let undo_bytes = if self.undo.is_some() { ENTRY_BYTES + key.len() } else { 0 };
        let key_bytes = key.len();
        if self.bytes + added + undo_bytes > WRITE_SET_BYTES_MAX {
            return Err(Error::WriteSetFull { max: WRITE_SET_BYTES_MAX });
        }
        if self.bytes + added + undo_bytes > UNCOUNTED_BYTES_MAX
            && let Some(memory) = memory
        {
            self.reserve(memory, added, undo_bytes)?;
        }
        let writes = self
            .states
            .entry(state.id)
            .or_insert_with(|| WrittenState { state: Arc::clone(state), keys: StateWrites::new() });
        assert!(Arc::ptr_eq(&writes.state, state), "two live states have the number {}", state.id);
        self.bytes += added;
        let Some(undo) = &mut self.undo else {
            if let WriteOutcome::Replaced(before_bytes) = writes.keys.put(key, value, value_bytes) {
                self.bytes -= ENTRY_BYTES + key_bytes + before_bytes;
            }
            return Ok(());
        };
        let before = match writes.keys.put(key.clone(), value, |before| before.map(Box::from)) {
            WriteOutcome::Appended => {
                match undo.get_mut(self.marked..).and_then(<[Undo]>::last_mut) {
                    Some(Undo::Appended { state: appended, keys }) if *appended == state.id => *keys += 1,
                    _ => undo.push(Undo::Appended { state: state.id, keys: 1 }),
                }
                return Ok(());
            }
            WriteOutcome::New => None,
            WriteOutcome::Replaced(before) => Some(before),
        };
        // The previous value is still held, by the undo entry.
        self.bytes += undo_bytes;
        self.undo_bytes += undo_bytes + held_bytes(key_bytes, before.as_ref());
        undo.push(Undo::Written { state: state.id, key, before });
        Ok(())
    }

    /// Adds the writes of another one, each behind the own one of its key. After an error some of them are added.
    pub(crate) fn take_over(&mut self, memory: Option<&Arc<MemoryBudget>>, other: WriteSet) -> Result<()> {
        debug_assert!(other.undo.is_none(), "writes without a transaction have no savepoints");
        if self.states.is_empty() && self.undo.is_none() && self.bytes == 0 {
            let WriteSet { states, bytes, memory, .. } = other;
            (self.states, self.bytes, self.memory) = (states, bytes, memory);
            return Ok(());
        }
        for written in other.states.values() {
            for (key, value) in written.keys.iter() {
                self.put(memory, &written.state, key.clone(), value)?;
            }
        }
        Ok(())
    }

    /// Notes the value beneath a key of an overlay. Fails, with everything as it was, if it does not fit the limit or
    /// the memory budget.
    pub(crate) fn note_beneath(
        &mut self,
        memory: Option<&Arc<MemoryBudget>>,
        state: StateId,
        key: KeyBytes,
        value: &[u8],
    ) -> Result<()> {
        let added = ENTRY_BYTES + key.len() + value.len();
        if self.bytes + added > WRITE_SET_BYTES_MAX {
            return Err(Error::WriteSetFull { max: WRITE_SET_BYTES_MAX });
        }
        if self.bytes + added > UNCOUNTED_BYTES_MAX
            && let Some(memory) = memory
        {
            self.reserve(memory, added, 0)?;
        }
        if self.overlaid.note(state, key, value) {
            self.bytes += added;
        }
        Ok(())
    }

    /// Reserves memory for the present content and so many bytes more.
    #[cold]
    fn reserve(&mut self, memory: &Arc<MemoryBudget>, added: usize, undo_added: usize) -> Result<()> {
        let WriteReservation { writes, undo } = self.memory.get_or_insert_with(|| WriteReservation {
            writes: memory.empty(MemoryConsumer::WriteSets),
            undo: memory.empty(MemoryConsumer::Undo),
        });
        WriteReservation::resize(writes, self.bytes - self.undo_bytes + added)?;
        WriteReservation::resize(undo, self.undo_bytes + undo_added)
    }

    pub(crate) fn mark(&mut self) -> Mark {
        self.marked = self.undo.get_or_insert_default().len();
        Mark(self.marked)
    }

    /// Takes back the writes after the savepoint.
    pub(crate) fn rollback_to(&mut self, mark: Mark) {
        let undo = self.undo.as_mut().expect("marks come from `mark`, which starts the undo history");
        assert!(mark.0 <= undo.len(), "the mark was rolled back before");
        while undo.len() > mark.0 {
            let Some(last) = undo.pop() else { break };
            let (Undo::Written { state, .. } | Undo::Appended { state, .. }) = &last;
            let writes = self.states.get_mut(state).expect("states stay while the undo history names them");
            match last {
                Undo::Written { key, before, .. } => {
                    self.bytes -= ENTRY_BYTES + key.len();
                    let key_bytes = key.len();
                    self.undo_bytes -= ENTRY_BYTES + key_bytes + held_bytes(key_bytes, before.as_ref());
                    let taken = match before {
                        Some(before) => match writes.keys.put(key, before.as_deref(), value_bytes) {
                            WriteOutcome::Replaced(bytes) => Some(bytes),
                            WriteOutcome::New | WriteOutcome::Appended => None,
                        },
                        None => writes.keys.remove(&key),
                    };
                    let taken = taken.expect("an undo entry names a written key");
                    self.bytes -= ENTRY_BYTES + key_bytes + taken;
                }
                Undo::Appended { keys, .. } => {
                    for _ in 0..keys {
                        let (key_bytes, taken) = writes.keys.pop().expect("appended keys are the last ones");
                        self.bytes -= ENTRY_BYTES + key_bytes + taken;
                    }
                }
            }
        }
        self.marked = self.marked.min(undo.len());
    }

    /// Copies of up to `max` writes in the range, in the order of the direction.
    pub(crate) fn range(
        &self,
        state: StateId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
        max: usize,
    ) -> Vec<(KeyBytes, WrittenValue)> {
        let Some(writes) = self.states.get(&state) else { return Vec::new() };
        if is_empty_range(lower, upper) {
            return Vec::new();
        }
        let copied = |(key, value): (&KeyBytes, Option<&[u8]>)| (key.clone(), value.map(Box::from));
        writes.keys.range(lower, upper, direction).take(max).map(copied).collect()
    }

    pub(crate) fn clear(&mut self) {
        *self = WriteSet::default();
    }
}

/// Tells whether no key lies between the bounds. (`BTreeMap::range` panics on such bounds.)
pub(crate) fn is_empty_range(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Mark, StateContext};
    use entresol_memory::{Pool, PoolOptions};
    use entresol_structures::KeyWidth;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<u64, Option<Vec<u8>>>;

    #[derive(Clone, Debug)]
    enum Step {
        /// Append of so many keys behind those of the last append.
        Append(u64),
        Write(u64, Option<u8>),
        Mark,
        /// To the mark at this place among the valid ones.
        Rollback(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1u64..60).prop_map(Step::Append),
            4 => (0u64..400, prop::option::of(any::<u8>())).prop_map(|(key, value)| Step::Write(key, value)),
            2 => Just(Step::Mark),
            2 => (0usize..4).prop_map(Step::Rollback),
        ]
    }

    proptest! {
        #[test]
        fn rolled_back_writes_leave_what_was_there_before(steps in prop::collection::vec(step(), 1..60)) {
            let pool = Pool::volatile(&PoolOptions::default()).unwrap();
            let context = StateContext::open_or_create(pool).unwrap();
            let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
            let tx = context.begin().unwrap();
            let mut model = Model::new();
            let mut marks: Vec<(Mark, Model)> = Vec::new();
            let mut last = 100;
            for step in steps {
                match step {
                    Step::Append(count) => {
                        let keys: Vec<[u8; 8]> = (last..last + count).map(u64::to_be_bytes).collect();
                        let values: Vec<Vec<u8>> = (last..last + count).map(|key| vec![7; key as usize % 90]).collect();
                        let writes = keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..]));
                        tx.write_many(&state, writes).unwrap();
                        model.extend((last..).zip(values.into_iter().map(Some)));
                        last += count;
                    }
                    Step::Write(key, value) => {
                        let value = value.map(|value| vec![value; usize::from(value)]);
                        tx.write(&state, &key.to_be_bytes(), value.as_deref()).unwrap();
                        model.insert(key, value);
                    }
                    Step::Mark => marks.push((tx.mark(), model.clone())),
                    Step::Rollback(at) if at < marks.len() => {
                        tx.rollback_to(marks[at].0);
                        model = marks[at].1.clone();
                        marks.truncate(at + 1);
                    }
                    Step::Rollback(_) => {}
                }
                let found: Vec<_> = tx.changes(state.id()).into_iter().map(|(key, value)| {
                    (u64::from_be_bytes(key[..].try_into().unwrap()), value)
                }).collect();
                prop_assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
            }
            if let Some((mark, before)) = marks.first() {
                tx.rollback_to(*mark);
                prop_assert_eq!(tx.changes(state.id()).len(), before.len());
            }
        }
    }
}
