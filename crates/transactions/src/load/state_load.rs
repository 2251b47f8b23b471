//! The load of one state: objects with one version each, and the index that leads to them.

use super::run::Run;
use crate::context::StateContext;
use crate::context::state::State;
use crate::mvcc::object::{ObjectLayout, VALUE_BYTES_MAX, VersionedObject};
use crate::reclamation::vacuum::DroppedState;
use crate::{Error, Result, StateId, Timestamp};
use entresol_memory::{Pool, PoolOffset, Publication, Reservation};
use entresol_structures::{IndexContent, KeyBytes, OrderedIndex};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of objects that are written before the publication that allocates them.
const OBJECTS_TOGETHER: usize = 512;
/// Number of objects after which a load checks whether the journal has room.
const OBJECTS_BETWEEN_WAITS: usize = 64;

/// Load of a state. Dropped, it leaves its index, or what that was exchanged for, to be destroyed.
pub(crate) struct StateLoad {
    context: Arc<StateContext>,
    state: Arc<State>,
    /// Number of the entry of the index, and its root.
    beside: StateId,
    root: PoolOffset,
    index: OrderedIndex,
    /// True if the state was an overlay when the load began: then the load holds what lies beneath it empty.
    is_overlay: bool,
    run: Run,
    /// Greatest key in the index.
    last: Option<KeyBytes>,
    keys: usize,
}

impl Drop for StateLoad {
    fn drop(&mut self) {
        let (pool, at) = (self.state.pool(), Timestamp::START);
        self.context.dropping.lock().push(DroppedState::new(pool, self.beside, self.root, at, false));
        self.state.end_load();
        // A load that failed may have filled the pool.
        self.context.reclaim.wake();
    }
}

impl StateLoad {
    /// Begins a load; none if the state has one already.
    pub(super) fn begin(context: &Arc<StateContext>, state: &Arc<State>) -> Result<Option<StateLoad>> {
        if !state.begin_load() {
            return Ok(None);
        }
        StateLoad::begin_only(context, state).inspect_err(|_| state.end_load()).map(Some)
    }

    fn begin_only(context: &Arc<StateContext>, state: &Arc<State>) -> Result<StateLoad> {
        let (beside, root) = context.create_beside(state)?;
        // An index that was just created can be opened, unless the medium fails.
        let index = OrderedIndex::open(state.pool(), root).inspect_err(|_| {
            let dropping = DroppedState::new(state.pool(), beside, root, Timestamp::START, false);
            context.dropping.lock().push(dropping);
        })?;
        Ok(StateLoad {
            context: Arc::clone(context),
            state: Arc::clone(state),
            beside,
            root,
            index,
            is_overlay: state.is_overlay(),
            run: Run::default(),
            last: None,
            keys: 0,
        })
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Tells whether the state has not become an overlay since the load began.
    pub(super) fn is_what_it_was(&self) -> bool {
        self.is_overlay == self.state.is_overlay()
    }

    /// A key of the load, for errors.
    pub(super) fn any_key(&self) -> KeyBytes {
        self.last.clone().unwrap_or_default()
    }

    /// Adds the exchange with the state's index to the publication of the commit.
    pub(crate) fn exchange(&self, with: &mut Publication<'_>) -> Result<IndexContent> {
        assert!(self.run.is_empty(), "a load of {} is written before it is exchanged", self.state.id);
        debug_assert!(
            matches!(self.state.index.has_no_keys(), Ok(true) | Err(_)),
            "{} is empty until it is loaded",
            self.state.id
        );
        Ok(self.state.index.take_content(&self.index, with)?)
    }

    /// Adds rows: written at once if their keys ascend behind all others, else collected.
    pub(super) fn push<'v>(
        &mut self,
        mut keys: Vec<KeyBytes>,
        value: impl Fn(usize) -> &'v [u8],
        check_running: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        for key in &mut keys {
            let width = self.state.check_key(key)?;
            if key.len() < width {
                key.resize(width, 0);
            }
        }
        let is_behind = |first: &KeyBytes| self.last.as_ref().is_none_or(|last| last < first);
        if self.run.is_empty()
            && keys.first().is_none_or(is_behind)
            && keys.windows(2).all(|pair| pair[0] < pair[1])
        {
            return self.append(&keys, value, check_running);
        }
        let context = Arc::clone(&self.context);
        let limits = || (context.pool().memory(), context.load_run_bytes_max.load(Ordering::Relaxed));
        for (at, key) in keys.iter().enumerate() {
            if self.run.push(limits(), key, value(at)) {
                continue;
            }
            self.write_run(check_running)?;
            self.run.push(limits(), key, value(at));
        }
        Ok(())
    }

    /// Sorts and writes the rows that were collected.
    pub(super) fn write_run(&mut self, check_running: &dyn Fn() -> Result<()>) -> Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        let run = std::mem::take(&mut self.run);
        check_running()?;
        let (keys, places) = run.sorted().map_err(|key| self.loaded_twice(key))?;
        let between = self.last.as_ref().map_or(0, |last| keys.partition_point(|key| key <= last));
        assert_eq!(keys.len(), places.len(), "each sorted key has its place in the run");
        let (within, behind) = keys.split_at(between);
        self.insert(within, |at| run.value(places[at]), check_running)?;
        self.append(behind, |at| run.value(places[between + at]), check_running)
    }

    fn loaded_twice(&self, key: KeyBytes) -> Error {
        Error::LoadedTwice { state: self.state.id, key }
    }

    /// Adds keys that ascend behind all others.
    fn append<'v>(
        &mut self,
        keys: &[KeyBytes],
        value: impl Fn(usize) -> &'v [u8],
        check_running: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        debug_assert!(
            keys.is_sorted_by(|one, next| one < next)
                && keys.first().is_none_or(|first| self.last.as_ref().is_none_or(|last| last < first)),
            "appended keys ascend behind {:?}",
            self.last
        );
        for (number, chunk) in keys.chunks(OBJECTS_TOGETHER).enumerate() {
            check_running()?;
            let first = number * OBJECTS_TOGETHER;
            let mut objects = write_objects(self.state.pool(), chunk.len(), |at| value(first + at))?;
            self.index.append_sorted(chunk, |at, with| objects.publish(at, with))?;
            self.keys += chunk.len();
        }
        self.last = keys.last().cloned().or_else(|| self.last.take());
        Ok(())
    }

    /// Adds keys that ascend, between those that are there.
    fn insert<'v>(
        &mut self,
        keys: &[KeyBytes],
        value: impl Fn(usize) -> &'v [u8],
        check_running: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        for (number, chunk) in keys.chunks(OBJECTS_TOGETHER).enumerate() {
            check_running()?;
            let first = number * OBJECTS_TOGETHER;
            let mut objects = write_objects(self.state.pool(), chunk.len(), |at| value(first + at))?;
            let mut twice = None;
            self.index.insert_many(chunk, |at, with| objects.publish(at, with), |at, _| twice = Some(at))?;
            if let Some(at) = twice {
                return Err(self.loaded_twice(chunk[at].clone()));
            }
            self.keys += chunk.len();
        }
        Ok(())
    }
}

/// Objects that are written and flushed, and not yet allocated.
struct Objects<'p>(Vec<Option<Reservation<'p>>>);

impl<'p> Objects<'p> {
    fn publish(&mut self, at: usize, with: &mut Publication<'p>) -> u64 {
        with.allocate(self.0[at].take().expect("an object is published once")).to_word()
    }
}

/// Writes objects of one version, which begins at the start of time.
fn write_objects<'p, 'v>(
    pool: &'p Pool,
    count: usize,
    value: impl Fn(usize) -> &'v [u8],
) -> Result<Objects<'p>> {
    let mut objects = Vec::with_capacity(count);
    for at in 0..count {
        if at % OBJECTS_BETWEEN_WAITS == 0 {
            pool.wait_for_room();
        }
        let value = value(at);
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueLength { bytes: value.len(), max: VALUE_BYTES_MAX });
        }
        let layout = ObjectLayout::of_one(value.len());
        let reservation = pool.reserve(layout.bytes())?;
        let layout = layout.filling(reservation.bytes());
        assert!(layout.bytes() <= reservation.bytes(), "an object of {layout:?} fits its memory");
        let object = VersionedObject::initialise(pool, reservation.offset(), layout);
        object.build(None, Some((Timestamp::START, value)));
        objects.push(Some(reservation));
    }
    assert_eq!(objects.len(), count, "each row has an object");
    Ok(Objects(objects))
}
