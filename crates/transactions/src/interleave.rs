//! Points where the order of threads matters. In the crate's own tests a thread may pause at each of them, so
//! that rare interleavings of the real code come up all the time; otherwise they are nothing.

/// A point where another thread may get ahead.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

/// The same, with a name by which a test can stop there.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn at(_place: &str) {}

#[cfg(test)]
pub(crate) use tests::{at, on_point, pause_from_now_on, point, take_on_point};

#[cfg(test)]
mod tests {
    use crate::context::group::STRIPED_KEYS_MAX;
    use crate::{Error, KeyRange, State, StateContext, Timestamp, Transaction};
    use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
    use entresol_structures::KeyWidth;
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    use std::thread;
    use std::time::{Duration, Instant};

    thread_local! {
        /// Random numbers of a thread that wants to pause; None: it does not.
        static PAUSES: Cell<Option<u64>> = const { Cell::new(None) };
        /// Called with the name of a point, once: it is not interrupted itself.
        static AT_POINT: RefCell<Option<PointAction>> = const { RefCell::new(None) };
    }

    /// A point, and the action taken there.
    type PointAction = (&'static str, Box<dyn FnOnce() + Send>);

    /// Sets the action of this thread when it comes to a point for the first time.
    pub(crate) fn on_point(place: &'static str, act: impl FnOnce() + Send + 'static) {
        AT_POINT.set(Some((place, Box::new(act))));
    }

    /// Takes the action back, for another thread.
    pub(crate) fn take_on_point() -> Option<PointAction> {
        AT_POINT.take()
    }

    pub(crate) fn at(place: &str) {
        point();
        if let Some((_, act)) = AT_POINT.with_borrow_mut(|at| at.take_if(|(wanted, _)| *wanted == place)) {
            act();
        }
    }

    /// The thread pauses, by random numbers from this one, which is not 0.
    pub(crate) fn pause_from_now_on(random: u64) {
        PAUSES.set(Some(0x9E37_79B9_7F4A_7C15 ^ random));
    }

    pub(crate) fn point() {
        let Some(mut random) = PAUSES.get() else { return };
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        PAUSES.set(Some(random));
        match random >> 32 & 63 {
            0 => thread::sleep(Duration::from_micros(random >> 40 & 63)),
            1..8 => thread::yield_now(),
            _ => (),
        }
    }

    const KEYS: u64 = 3;
    const TOTAL: u64 = 2 * KEYS * 100;
    /// Amounts of nothing that make a commit a large one, in one of two places.
    const BALLAST: u64 = STRIPED_KEYS_MAX as u64;

    fn transfer(context: &Arc<StateContext>, states: &[Arc<State>; 2], random: &Env) {
        let transaction = context.begin().unwrap();
        let [from, to] = [(); 2].map(|()| (random.random_u64() % 2, random.random_u64() % KEYS));
        if from == to {
            return;
        }
        let read = |(state, key): (u64, u64)| {
            let amount = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
            transaction.read(&states[state as usize], &key.to_be_bytes(), amount).unwrap().unwrap_or(0)
        };
        let write = |(state, key): (u64, u64), amount: u64| {
            let value = (amount > 0).then(|| amount.to_le_bytes().repeat(2));
            transaction.write(&states[state as usize], &key.to_be_bytes(), value.as_deref()).unwrap();
        };
        let moved = read(from).div_ceil(1 + random.random_u64() % 3);
        write(to, read(to) + moved);
        write(from, read(from) - moved);
        if random.random_u64().is_multiple_of(8) {
            let place = 1000 * (1 + random.random_u64() % 2);
            let nothing = 0_u64.to_le_bytes().repeat(2);
            for key in place..place + BALLAST {
                transaction.write(&states[1], &key.to_be_bytes(), Some(&nothing)).unwrap();
            }
        }
        let durability = [Durability::None, Durability::Sync][(random.random_u64() % 2) as usize];
        let before = transaction.snapshot();
        match transaction.commit(durability) {
            Ok(commit) => {
                // One that had nothing to do has the timestamp of its snapshot, which is approximate.
                let (now, did_nothing) = (context.begin().unwrap(), commit.cts <= before);
                assert!(did_nothing || now.sees(commit.cts), "seen at once: {commit:?}, {:?}", now.seen());
            }
            Err(error) => assert!(matches!(error, Error::Conflict { .. }), "{error}"),
        }
    }

    fn check(context: &Arc<StateContext>, states: &[Arc<State>; 2], rounds: u64) {
        look(&context.begin().unwrap(), states, rounds);
    }

    /// A little back, so that writers are at the same slots.
    fn look_back(context: &Arc<StateContext>, states: &[Arc<State>; 2], random: &Env) {
        let back = [0, 1, 2_000, 50_000, 500_000][(random.random_u64() % 5) as usize];
        let reader = context.begin_as_of(context.newest_commit().minus(back).max(horizon(states))).unwrap();
        look(&reader, states, 2);
    }

    fn horizon(states: &[Arc<State>; 2]) -> Timestamp {
        states.iter().filter_map(|state| state.past()).map(|past| past.horizon).max().unwrap()
    }

    fn look(transaction: &Transaction, states: &[Arc<State>; 2], rounds: u64) {
        for _ in 0..rounds {
            let (mut by_key, mut by_scan) = (0, 0);
            let amount = |value: &[u8]| {
                assert_eq!(value[..8], value[8..], "torn");
                u64::from_le_bytes(value[..8].try_into().unwrap())
            };
            for state in states {
                for key in 0..KEYS {
                    by_key += transaction.read(state, &key.to_be_bytes(), amount).unwrap().unwrap_or(0);
                }
                let mut from = None;
                let mut sum = |_: &[u8], value: &[u8]| by_scan += amount(value);
                while transaction.scan_batch(state, &KeyRange::full(), &mut from, &mut sum).unwrap() {}
            }
            assert_eq!((by_key, by_scan), (TOTAL, TOTAL), "{transaction:?}");
        }
    }

    #[test]
    fn snapshots_are_consistent_whatever_the_interleaving() {
        interleave(false, false);
    }

    #[test]
    fn commits_of_one_publication_are_consistent_whatever_the_interleaving() {
        interleave(false, true);
    }

    #[test]
    fn as_of_reads_are_consistent_in_every_interleaving() {
        interleave(true, false);
    }

    fn interleave(past: bool, at_once: bool) {
        let options = PoolOptions { domain: DomainChoice::Volatile, ..PoolOptions::default() };
        let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
        if at_once {
            context.commit_at_once();
        }
        let state = || context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
        let states = [state(), state()];
        let load = context.begin().unwrap();
        for state in &states {
            let value = 100_u64.to_le_bytes().repeat(2);
            (0..KEYS).for_each(|key| load.write(state, &key.to_be_bytes(), Some(&value)).unwrap());
        }
        load.commit(Durability::None).unwrap();
        drop(load);
        if past {
            states.iter().for_each(|state| context.keep_history(state.id(), None).unwrap());
        }
        let stop = AtomicBool::new(false);
        let checks = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (context, states, stop, checks) = (&context, &states, &stop, &checks);
                scope.spawn(move || {
                    pause_from_now_on(thread);
                    let random = Env::simulated(thread);
                    while !stop.load(Relaxed) {
                        match thread {
                            0..3 => transfer(context, states, &random),
                            3..5 if past => {
                                look_back(context, states, &random);
                                checks.fetch_add(1, Relaxed);
                            }
                            3..5 => {
                                check(context, states, [1, 30][thread as usize - 3]);
                                checks.fetch_add(1, Relaxed);
                            }
                            _ => drop(context.vacuum().map(|_| thread::yield_now())),
                        }
                    }
                });
            }
            let started = Instant::now();
            let is_enough = || started.elapsed() > Duration::from_secs(3) && checks.load(Relaxed) > 20;
            while !is_enough() && started.elapsed() < Duration::from_secs(60) {
                thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Relaxed);
            println!("{checks:?} checks in {:?}", started.elapsed());
        });
        assert!(checks.into_inner() > 20);
    }
}
