use crate::context::group::STRIPED_KEYS_MAX;
use crate::visibility::snapshot::Class;
use crate::{Error, Isolation, KeyRange, Protocol, Result, State, StateContext, Timestamp, interleave};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const MANY: u64 = STRIPED_KEYS_MAX as u64 + 36;
const PATIENCE: Duration = Duration::from_secs(60);
const PLACES: [&str; 3] = [
    "a declared commit has written nothing",
    "versions are written, and no bits set",
    "a declared commit has written all",
];

/// A context with two states, each in a group of its own.
#[derive(Clone)]
struct Fixture {
    context: Arc<StateContext>,
    states: [Arc<State>; 2],
}

impl Fixture {
    fn open(pool: &Arc<Pool>, protocol: Protocol) -> Fixture {
        let context = StateContext::open_or_create(Arc::clone(pool)).unwrap();
        while context.states().len() < 2 {
            let group = context.create_group_with(protocol).unwrap();
            context.create_state(group, KeyWidth::Eight).unwrap();
        }
        let states = context.states().try_into().unwrap();
        Fixture { context, states }
    }

    fn new(protocol: Protocol) -> Fixture {
        let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
        Fixture::open(&Pool::volatile(&options).unwrap(), protocol)
    }

    /// The fixture as the next run finds it.
    fn again(self) -> Fixture {
        let (pool, protocol) = (Arc::clone(self.context.pool()), self.states[0].protocol());
        drop(self);
        Fixture::open(&pool, protocol)
    }

    /// Commits some keys of both states.
    fn put(
        &self,
        keys: impl Iterator<Item = u64> + Clone,
        value: &[u8],
        how: Durability,
    ) -> Result<Timestamp> {
        let writer = self.context.begin().unwrap();
        for state in &self.states {
            keys.clone().for_each(|key| writer.write(state, &key.to_be_bytes(), Some(value)).unwrap());
        }
        writer.commit(how).map(|commit| commit.cts)
    }

    /// Number of the given keys that have the value in both states.
    fn count(&self, keys: impl Iterator<Item = u64>, value: &[u8]) -> u64 {
        let reader = self.context.begin().unwrap();
        let has = |state, key: u64| reader.read(state, &key.to_be_bytes(), |found| found == value).unwrap();
        keys.filter(|key| self.states.iter().all(|state| has(state, *key) == Some(true))).count() as u64
    }
}

/// Runs something in another thread, and waits for it.
fn beside<R: Send + 'static>(what: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    is_done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} waits for a commit of other keys"))
}

/// In the middle of a commit of many keys over two groups others commit other keys of both states, a group is
/// created, and dead keys are reclaimed. New readers see them, and not the large one; after a restart all are
/// there.
#[test]
fn writers_of_other_keys_go_on_in_the_middle_of_a_large_commit() {
    let protocols = [Protocol::MvccInPlace, Protocol::MvccOutOfPlace, Protocol::MvccInPlace];
    for (place, protocol) in PLACES.into_iter().zip(protocols) {
        let all = Fixture::new(protocol);
        all.put(0..2 * MANY, b"old", Durability::None).unwrap();
        let came_by = Arc::new(AtomicBool::new(false));
        let (others, there) = (all.clone(), Arc::clone(&came_by));
        interleave::on_point(place, move || {
            beside("a writer of other keys", move || {
                for how in [Durability::None, Durability::Sync, Durability::None] {
                    let cts = others.put(MANY..MANY + 3, b"few", how).unwrap();
                    assert!(others.context.begin().unwrap().sees(cts), "a commit is seen at once");
                }
                assert_eq!(others.count(0..MANY, b"old"), MANY, "{place}: it is not whole");
                assert_eq!(others.count(MANY..MANY + 3, b"few"), 3);
                assert_eq!(others.count(MANY + 3..2 * MANY, b"old"), MANY - 3);
                there.store(true, Ordering::Release);
            });
        });
        let snapshot = all.context.begin().unwrap();
        let cts = all.put(0..MANY, b"large", Durability::None).unwrap();
        assert!(came_by.load(Ordering::Acquire) && !snapshot.sees(cts), "{place}");
        drop(snapshot);
        assert!(all.context.begin().unwrap().sees(cts));
        assert!(all.states.iter().all(|state| all.context.last_cts(state.group()) > cts));
        for all in [all.clone(), all.again()] {
            assert_eq!(
                (all.count(0..MANY, b"large"), all.count(MANY..MANY + 3, b"few")),
                (MANY, 3),
                "{place}"
            );
            assert_eq!(all.context.directory.invalid_ranges().unwrap(), [], "{place}");
            crate::crash_histories::check_sound(&all.context).unwrap();
        }
    }
}

/// A writer of one of its keys waits until it is complete, and has a conflict then; so does a large one with
/// a common key. A large one of other keys is complete, and waits to become visible.
#[test]
fn writers_of_the_same_keys_wait_for_a_large_commit() {
    let all = Fixture::new(Protocol::MvccInPlace);
    all.put(0..3 * MANY, b"old", Durability::None).unwrap();
    let began = [(); 3].map(|()| all.context.begin().unwrap());
    let keys = [7..8, MANY - 1..2 * MANY, 2 * MANY..3 * MANY];
    let (ended, is_ended) = mpsc::channel();
    let others = all.clone();
    interleave::on_point(PLACES[1], move || {
        for (number, (writer, keys)) in began.into_iter().zip(keys).enumerate() {
            let (ended, others) = (ended.clone(), others.clone());
            thread::spawn(move || {
                let write = |state| {
                    let mut keys = keys.clone();
                    keys.try_for_each(|key| writer.write(state, &key.to_be_bytes(), Some(b"other")))
                };
                others.states.iter().try_for_each(write).unwrap();
                ended.send((number, writer.commit(Durability::None))).unwrap();
            });
        }
        thread::sleep(Duration::from_millis(50));
    });
    assert!(is_ended.try_recv().is_err());
    let cts = all.put(0..MANY, b"large", Durability::None).unwrap();
    for _ in 0..3 {
        let (number, committed) = is_ended.recv_timeout(PATIENCE).unwrap();
        match committed {
            Ok(_) => assert_eq!(number, 2),
            Err(error) => {
                assert!(
                    number < 2 && matches!(error, Error::Conflict { committed, .. } if committed == cts),
                    "{error}"
                )
            }
        }
    }
    assert_eq!((all.count(0..MANY, b"large"), all.count(2 * MANY..3 * MANY, b"other")), (MANY, MANY));
    assert_eq!(all.again().count(MANY..2 * MANY, b"old"), MANY);
}

/// While a serializable transaction that read a range validates it, writers of other keys commit; one of a
/// new key in the range waits, and comes after it.
#[test]
fn a_range_that_is_read_stops_no_writer_outside_of_it() {
    let all = Fixture::new(Protocol::MvccInPlace);
    all.put((0..10).chain(100..110), b"old", Durability::None).unwrap();
    let reader = all.context.begin_at(Isolation::Serializable).unwrap();
    let bound = |key: u64| std::ops::Bound::Included(key.to_be_bytes().as_slice().into());
    let range = KeyRange { lower: bound(0), upper: bound(50) };
    let (mut sum, mut from) = (0_u64, None);
    while reader.scan_batch(&all.states[0], &range, &mut from, |_, _| sum += 1).unwrap() {}
    reader.write(&all.states[1], &1_u64.to_be_bytes(), Some(&sum.to_le_bytes())).unwrap();
    let inside = all.context.begin().unwrap();
    inside.write(&all.states[0], &20_u64.to_be_bytes(), Some(b"phantom")).unwrap();
    let (ended, is_ended) = mpsc::channel();
    let others = all.clone();
    interleave::on_point("a commit holds what it names", move || {
        let outside = others.clone();
        beside("a writer outside of the range", move || {
            outside.put(100..105, b"new", Durability::Sync).unwrap();
            outside.put(100..100 + MANY, b"newer", Durability::None).unwrap();
        });
        thread::spawn(move || ended.send(inside.commit(Durability::None)).unwrap());
        thread::sleep(Duration::from_millis(50));
    });
    assert!(is_ended.try_recv().is_err());
    let cts = reader.commit(Durability::None).unwrap().cts;
    let phantom = is_ended.recv_timeout(PATIENCE).unwrap().unwrap().cts;
    assert!(phantom > cts, "{phantom} came into a range that was read by {cts}");
    assert_eq!(all.count(100..100 + MANY, b"newer"), MANY);
    // The other way round: a key that came into the range is found, whichever commit brought it.
    for keys in [20..21, 0..MANY] {
        let reader = all.context.begin_at(Isolation::Serializable).unwrap();
        let mut from = None;
        while reader.scan_batch(&all.states[0], &range, &mut from, |_, _| ()).unwrap() {}
        reader.write(&all.states[1], &1_u64.to_be_bytes(), Some(b"1")).unwrap();
        all.put(keys, b"new", Durability::None).unwrap();
        assert!(matches!(
            reader.commit(Durability::None),
            Err(Error::Conflict { .. } | Error::ReadConflict { .. })
        ));
    }
}

/// Failures beside it leave a large commit alone, and it leaves alone what became complete beside it.
#[test]
fn failures_leave_declared_commits_out() {
    let all = Fixture::new(Protocol::MvccInPlace);
    all.put(0..2 * MANY, b"old", Durability::None).unwrap();
    let others = all.clone();
    interleave::on_point(PLACES[1], move || {
        let (slot, _) = others.context.claim().unwrap();
        for _ in 0..2 {
            let stamp = others.context.active.stamp(slot, Class::Quick);
            others.context.declare_invalid(&others.states[0].group, stamp.cts()).unwrap();
            stamp.finish();
        }
        others.context.active.release(slot);
    });
    all.put(0..MANY, b"large", Durability::None).unwrap();
    let ranges = all.context.directory.invalid_ranges().unwrap();
    assert_eq!(ranges.len(), 1, "failures in a row are one range: {ranges:?}");
    assert_eq!(all.count(0..MANY, b"large"), MANY);
    let all = all.again();
    assert_eq!((all.count(0..MANY, b"large"), all.count(MANY..2 * MANY, b"old")), (MANY, MANY));
    // One that ends in the middle leaves nothing, whatever became complete beside it.
    let (others, crashing) = (all.clone(), all.clone());
    interleave::on_point(PLACES[2], move || {
        beside("a writer of other keys", move || {
            others.put(MANY..MANY + 3, b"few", Durability::None).map(drop)
        })
        .unwrap();
        panic!("this is how it ends");
    });
    let crashed = thread::scope(|scope| {
        let hook = interleave::take_on_point();
        let large = move || {
            hook.into_iter().for_each(|(place, act)| interleave::on_point(place, act));
            crashing.put(0..MANY, b"lost", Durability::None)
        };
        scope.spawn(large).join()
    });
    assert!(crashed.is_err());
    assert!(matches!(all.put(0..1, b"refused", Durability::None), Err(Error::Poisoned(_))));
    let all = all.again();
    assert_eq!((all.count(0..MANY, b"large"), all.count(MANY..MANY + 3, b"few")), (MANY, 3));
    assert_eq!(all.context.recovery().invalid_ranges, 3, "of two groups, and a failure");
    all.put(0..2 * MANY, b"later", Durability::None).unwrap();
    assert_eq!(all.again().count(0..2 * MANY, b"later"), 2 * MANY);
}

/// With too few entries in the list of invalid ranges left it is in the queues, as a small one.
#[test]
fn a_large_commit_needs_no_room_in_the_list() {
    let all = Fixture::new(Protocol::MvccInPlace);
    all.put(0..MANY, b"old", Durability::None).unwrap();
    let group = all.states[0].group();
    for number in 1..130 {
        let from = Timestamp::from_stored(10 * number);
        all.context.directory.add_invalid_range(group, from, from.plus(5)).unwrap();
    }
    interleave::on_point(PLACES[0], || panic!("it was declared"));
    let cts = all.put(0..MANY, b"large", Durability::None).unwrap();
    drop(interleave::take_on_point());
    assert_eq!(all.context.last_cts(group), cts);
    assert_eq!(all.again().count(0..MANY, b"large"), MANY);
}
