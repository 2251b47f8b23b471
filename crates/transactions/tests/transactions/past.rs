//! Time travel, against an oracle that keeps all versions of everything.

use crate::common::{Rows, delete, get, key, put, rows, scan};
use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::{
    ContextOptions, Error, GroupId, Isolation, KeyRange, Protocol, State, StateContext, Timestamp,
    Transaction,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn context_with(protocol: Protocol) -> Arc<StateContext> {
    let options = ContextOptions { protocol, ..ContextOptions::default() };
    StateContext::open_or_create_with(crate::common::volatile(), options).unwrap()
}

fn state_with_history(context: &Arc<StateContext>, group: GroupId, width: KeyWidth) -> Arc<State> {
    let state = context.create_state(group, width).unwrap();
    context.keep_history(state.id(), None).unwrap();
    state
}

/// Keys of which some are the beginnings of others, with zeros, where the width allows it.
fn name(number: u64, width: KeyWidth) -> Vec<u8> {
    match width {
        KeyWidth::Variable => match number % 4 {
            0 => vec![number as u8 / 8],
            1 => vec![number as u8 / 8, 0],
            2 => vec![number as u8 / 8, 0, 0xff, 1],
            _ => [&[number as u8 / 8; 40][..], &number.to_be_bytes()].concat(),
        },
        KeyWidth::Eight | KeyWidth::Sixteen => {
            let mut name = number.to_be_bytes().to_vec();
            name.resize(if width == KeyWidth::Eight { 8 } else { 16 }, 7);
            name
        }
    }
}

struct Oracle {
    context: Arc<StateContext>,
    states: [(Arc<State>, KeyWidth); 2],
    /// Rows after each commit.
    all: Vec<(Timestamp, [Rows; 2])>,
    random: Env,
}

const KEYS: u64 = 90;

impl Oracle {
    fn new(protocol: Protocol, widths: [KeyWidth; 2], seed: u64) -> Oracle {
        let context = context_with(protocol);
        let (group, other) = (context.create_group().unwrap(), context.create_group().unwrap());
        let groups = [group, if seed.is_multiple_of(2) { group } else { other }];
        let states = [0, 1].map(|at| (state_with_history(&context, groups[at], widths[at]), widths[at]));
        let begun = context.newest_commit();
        Oracle { context, states, all: vec![(begun, Default::default())], random: Env::simulated(seed) }
    }

    fn below(&self, max: u64) -> u64 {
        self.random.random_u64() % max
    }

    fn commit(&mut self) {
        let mut now = self.all.last().unwrap().1.clone();
        let transaction = self.context.begin().unwrap();
        // Some keys are hot, so that their versions fill leaves.
        let spread = if self.below(3) == 0 { 3 } else { KEYS };
        for _ in 0..1 + self.below(6) {
            let at = self.below(2) as usize;
            let (state, width) = &self.states[at];
            let key = name(self.below(spread), *width);
            let value = (self.below(4) > 0).then(|| {
                let bytes = [0, 5, 16, 200, 3000][self.below(5) as usize];
                vec![self.all.len() as u8; bytes]
            });
            transaction.write(state, &key, value.as_deref()).unwrap();
            match value {
                Some(value) => drop(now[at].insert(key, value)),
                None => drop(now[at].remove(&key)),
            }
        }
        let commit = transaction.commit(Durability::None).unwrap();
        if commit.cts > self.all.last().unwrap().0 {
            self.all.push((commit.cts, now));
        }
    }

    /// Rows at a point in time.
    fn at(&self, at: Timestamp) -> &[Rows; 2] {
        &self.all[self.all.partition_point(|(cts, _)| *cts <= at) - 1].1
    }

    fn check_at(&self, at: Timestamp) {
        let reader = self.context.begin_as_of(at).unwrap();
        assert_eq!(reader.as_of(), Some(at));
        for (index, expected) in self.at(at).iter().enumerate() {
            let (state, width) = &self.states[index];
            assert_eq!(&rows(&reader, state), expected, "as of {at}, state {index}");
            let keys: Vec<_> = (0..KEYS).map(|number| name(number, *width)).collect();
            let mut found = Rows::new();
            let mut take = |at: usize, value: Option<&[u8]>| {
                value.map(|value| found.insert(keys[at].clone(), value.to_vec()));
            };
            reader.read_many(state, &keys, &mut take).unwrap();
            assert_eq!(&found, expected, "by key as of {at}, state {index}");
            let [lower, upper] = [(); 2].map(|()| name(self.below(KEYS), *width));
            let range = KeyRange {
                lower: Bound::Excluded(KeyBytes::from_slice(&lower)),
                upper: Bound::Included(KeyBytes::from_slice(&upper)),
            };
            let mut within: Vec<_> =
                expected.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            within.retain(|(key, _)| lower < *key && *key <= upper);
            assert_eq!(scan(&reader, state, &range), within, "a range as of {at}, state {index}");
        }
        reader.commit(Durability::None).unwrap();
    }

    fn random_time(&self) -> Timestamp {
        let (cts, _) = self.all[self.below(self.all.len() as u64) as usize];
        let later = self.all.last().unwrap().0;
        [cts, cts, cts.next().min(later), cts.previous().max(self.all[0].0)][self.below(4) as usize]
    }
}

#[test]
fn random_points_in_time_match_the_oracle() {
    let widths = [KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable];
    for (at, protocol) in
        Protocol::ALL.into_iter().cycle().take(crate::common::soak(12, 400) as usize).enumerate()
    {
        let widths = [widths[at % 3], widths[(at + at / 3 + 1) % 3]];
        let mut oracle = Oracle::new(protocol, widths, at as u64);
        let mut long = None;
        for round in 0..160 {
            oracle.commit();
            if round == 40 {
                long = Some((oracle.random_time(), oracle.context.begin().unwrap()));
            }
            if round % 50 == 30 {
                oracle.context.vacuum().unwrap();
            }
            if round % 8 == 0 {
                oracle.check_at(oracle.random_time());
            }
        }
        oracle.check_at(long.as_ref().unwrap().0);
        drop(long);
        oracle.context.vacuum().unwrap();
        (0..6).for_each(|_| oracle.check_at(oracle.random_time()));
        oracle.check_at(oracle.all[0].0);
        oracle.check_at(oracle.all.last().unwrap().0);
    }
}

/// Some keys with so many versions that scans seek, others with few so that they walk; keys that come, go and
/// are removed from the index; every timestamp at which something began or ended, and those beside it.
#[test]
fn many_versions_of_some_keys_match_the_oracle() {
    let widths = [KeyWidth::Eight, KeyWidth::Variable, KeyWidth::Sixteen];
    for (seed, protocol) in (100..).zip([Protocol::MvccInPlace, Protocol::MvccOutOfPlace, Protocol::S2pl]) {
        let at = seed as usize;
        let mut oracle = Oracle::new(protocol, [widths[at % 3], widths[(at + 1) % 3]], seed);
        for round in 0..600_u64 {
            let mut now = oracle.all.last().unwrap().1.clone();
            let transaction = oracle.context.begin().unwrap();
            let hot = [3, 4, 40, 61, 62][oracle.below(5) as usize];
            let cold = oracle.below(KEYS);
            let mut write = |at: usize, number: u64, value: Option<Vec<u8>>| {
                let (state, width) = &oracle.states[at];
                let key = name(number, *width);
                transaction.write(state, &key, value.as_deref()).unwrap();
                match value {
                    Some(value) => drop(now[at].insert(key, value)),
                    None => drop(now[at].remove(&key)),
                }
            };
            let value = vec![round as u8; 1 + round as usize % 40];
            write(0, hot, Some(value.clone()));
            // One hot key is mostly not there.
            write(1, hot, (hot != 61 || round % 7 == 0).then(|| value.clone()));
            if round % 5 == 0 {
                write(0, cold, (round % 2 == 0).then(|| value.clone()));
                write(1, cold, Some(value.clone()));
            }
            if round % 150 == 149 {
                // A part of the keys goes, and some of it does not come again.
                (20..60).for_each(|number| write(round as usize / 150 % 2, number, None));
            }
            let commit = transaction.commit(Durability::None).unwrap();
            oracle.all.push((commit.cts, now));
            match round {
                // Near timestamps while nothing has gone since, and others while it has.
                50 | 160 | 310 | 400 => {
                    (1..8).for_each(|back| oracle.check_at(oracle.all[oracle.all.len() - back].0));
                    (0..8).for_each(|_| oracle.check_at(oracle.random_time()));
                }
                155 | 305 | 500 => drop(oracle.context.vacuum().unwrap()),
                _ => (),
            }
        }
        (0..60).for_each(|_| oracle.check_at(oracle.random_time()));
    }
}

/// Keys that are too long for a history can be written once; keys that lie behind them are found all the
/// same.
#[test]
fn keys_that_no_history_has_room_for_do_not_hide_others() {
    let context = crate::common::context();
    let state = state_with_history(&context, context.create_group().unwrap(), KeyWidth::Variable);
    let long = vec![0; 4000];
    // Their versions lie before and behind the place where the long key's would be.
    let keys = [vec![0; 2000], vec![0; 2001], long.clone(), vec![0, 1], vec![7]];
    let all = context.begin().unwrap();
    keys.iter().for_each(|key| all.write(&state, key, Some(b"old")).unwrap());
    let at = all.commit(Durability::None).unwrap().cts;
    let others = || keys.iter().filter(|key| **key != long);
    let mut holds = Some(context.begin().unwrap());
    let gone = context.begin().unwrap();
    others().for_each(|key| gone.write(&state, key, None).unwrap());
    gone.commit(Durability::None).unwrap();
    let too_long = context.begin().unwrap();
    too_long.write(&state, &long, Some(b"new")).unwrap();
    assert!(matches!(too_long.commit(Durability::None), Err(Error::HistoryKeyLength { .. })));
    for taken_out in [false, true] {
        if taken_out {
            drop(holds.take());
            assert_eq!(context.vacuum().unwrap().keys_removed, 4);
        }
        let reader = context.begin_as_of(at).unwrap();
        let expected: Rows = keys.iter().map(|key| (key.clone(), b"old".to_vec())).collect();
        assert_eq!(rows(&reader, &state), expected);
        for lower in &keys {
            let range =
                KeyRange { lower: Bound::Included(KeyBytes::from_slice(lower)), upper: Bound::Unbounded };
            let within: Vec<_> =
                expected.range(lower.clone()..).map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(scan(&reader, &state, &range), within, "from a key of {} bytes", lower.len());
            let range =
                KeyRange { lower: Bound::Excluded(KeyBytes::from_slice(lower)), upper: Bound::Unbounded };
            assert_eq!(scan(&reader, &state, &range), within[1..], "behind a key of {} bytes", lower.len());
            assert_eq!(reader.read(&state, lower, <[u8]>::to_vec).unwrap().as_deref(), Some(&b"old"[..]));
        }
    }
}

fn now(context: &StateContext) -> Timestamp {
    Timestamp::from_nanoseconds(context.pool().env().now_ns())
}

/// A commit that has returned is visible AS OF the next instant, and one that has not begun is not.
#[test]
fn points_in_time_of_the_clock() {
    let context = crate::common::context();
    let state = state_with_history(&context, context.create_group().unwrap(), KeyWidth::Eight);
    let mut moments = vec![(now(&context), None)];
    for number in 0..50u64 {
        put(&context, &state, 1, &number.to_le_bytes());
        moments.push((now(&context), Some(number.to_le_bytes().to_vec())));
        if number % 7 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
    for (at, value) in moments {
        assert_eq!(get(&context.begin_as_of(at).unwrap(), &state, 1), value, "as of {at}");
    }
    // A point in time after the last commit stays what it was.
    let at_present = now(&context);
    let before = get(&context.begin_as_of(at_present).unwrap(), &state, 1);
    put(&context, &state, 1, b"later");
    assert_eq!(get(&context.begin_as_of(at_present).unwrap(), &state, 1), before);
    let future = context.begin_as_of(now(&context).plus(60_000_000_000)).unwrap_err();
    assert!(matches!(future, Error::InTheFuture { .. }) && future.to_string().contains(" UTC"), "{future}");
}

#[test]
fn a_clock_that_jumps_ahead_takes_no_timestamps_with_it() {
    const YEARS_NS: i64 = 10 * 365 * 86_400 * 1_000_000_000;
    let context = crate::common::context();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    context.keep_history(state.id(), Some(Duration::from_secs(3600))).unwrap();
    let as_of_now = || get(&context.begin_as_of(now(&context)).unwrap(), &state, 1);
    put(&context, &state, 1, b"before");
    let before = now(&context);
    let horizon = state.past().unwrap().horizon;
    context.pool().env().set_clock_off_ns(YEARS_NS);
    for value in [b"meanwhile", b"the last "] {
        put(&context, &state, 1, value);
        assert_eq!(as_of_now().unwrap(), value, "now by the clock that is wrong");
    }
    context.vacuum().unwrap();
    assert!(context.newest_commit() < now(&context).minus(YEARS_NS as u64 / 2), "timestamps went along");
    context.pool().env().set_clock_off_ns(0);
    assert_eq!(as_of_now().unwrap(), b"the last ", "now by the clock that is right again");
    put(&context, &state, 1, b"after");
    assert_eq!(as_of_now().unwrap(), b"after");
    assert_eq!(get(&context.begin_as_of(before).unwrap(), &state, 1).unwrap(), b"before");
    assert!(
        state.past().unwrap().horizon < horizon.plus(60_000_000_000),
        "nothing is pruned before its time"
    );
}

#[test]
fn unreadable_points_in_time_are_errors() {
    let context = crate::common::context();
    let group = context.create_group().unwrap();
    let plain = context.create_state(group, KeyWidth::Eight).unwrap();
    put(&context, &plain, 1, b"before");
    let long_ago = context.newest_commit();
    context.keep_history(plain.id(), Some(Duration::from_secs(3600))).unwrap();
    let other = context.create_state(group, KeyWidth::Eight).unwrap();
    other.set_holder("table other");
    let bounds = plain.past().unwrap();
    assert_eq!(bounds.kept, Some(Duration::from_secs(3600)));
    assert!(bounds.horizon > long_ago && other.past().is_none());

    let reader = context.begin_as_of(long_ago).unwrap();
    let error = reader.read(&plain, &key(1), |_| ()).unwrap_err();
    assert!(matches!(&error, Error::SnapshotTooOld { at, horizon, .. } if at < horizon), "{error}");
    let error = reader.read(&other, &key(1), |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "table other keeps no version history: it cannot be read AS OF a point in time"
    );
    let mut from = None;
    assert!(reader.scan_batch(&plain, &KeyRange::full(), &mut from, |_, _| ()).is_err());

    let reader = context.begin_as_of(context.newest_commit()).unwrap();
    assert_eq!(get(&reader, &plain, 1).as_deref(), Some(&b"before"[..]), "what was there already");
    assert!(matches!(reader.write(&plain, &key(1), None), Err(Error::ReadOnlyAsOf { .. })));

    // Off, and on again: earlier versions are gone.
    let at = context.newest_commit();
    context.drop_history(plain.id()).unwrap();
    assert!(matches!(reader.read(&plain, &key(1), |_| ()), Err(Error::NoHistory { .. })));
    drop(reader);
    context.keep_history(plain.id(), None).unwrap();
    let error = context.begin_as_of(at).unwrap().read(&plain, &key(1), |_| ()).unwrap_err();
    assert!(matches!(error, Error::SnapshotTooOld { .. }), "{error}");
    assert_eq!(plain.past().unwrap().kept, None);
}

/// Space of pruned versions is used again; an AS OF reader holds the horizon back.
#[test]
fn pruning_gives_space_back() {
    let context = crate::common::context();
    let state = context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    context.keep_history(state.id(), Some(Duration::from_millis(20))).unwrap();
    let round = || {
        for number in 0..2000 {
            put(&context, &state, number % 50, &[number as u8; 500]);
        }
    };
    let used = || {
        let mut bytes = 0;
        context.pool().for_each_object(|_, size| bytes += size);
        bytes
    };
    round();
    let reader = context.begin_as_of(context.newest_commit()).unwrap();
    let seen = rows(&reader, &state);
    for _ in 0..3 {
        round();
        thread::sleep(Duration::from_millis(5));
    }
    context.vacuum().unwrap();
    assert!(state.past().unwrap().horizon <= reader.as_of().unwrap());
    assert_eq!(rows(&reader, &state), seen, "as long as somebody reads it");
    drop(reader);
    thread::sleep(Duration::from_millis(25));
    let (before, horizon) = (used(), state.past().unwrap().horizon);
    let stats = context.vacuum().unwrap();
    assert!(stats.versions_pruned > 5000, "{stats:?}");
    assert!(state.past().unwrap().horizon > horizon);
    let after = used();
    assert!(after * 10 < before, "{after} of {before} bytes are left");
    // Without a vacuum commits prune behind themselves.
    let mut most = 0;
    for _ in 0..12 {
        round();
        thread::sleep(Duration::from_millis(10));
        most = most.max(used());
    }
    let whole = 12 * 2000 * 500;
    assert!(most * 2 < whole, "{most} of {whole} bytes");
}

/// Money moves between keys of two states while others look back: it was never more or less.
#[test]
fn as_of_readers_beside_writers_and_pruning() {
    for (protocol, one_group) in [
        (Protocol::MvccInPlace, true),
        (Protocol::MvccInPlace, false),
        (Protocol::MvccOutOfPlace, true),
        (Protocol::S2pl, true),
        (Protocol::Bocc, true),
    ] {
        look_back_beside_writers(protocol, one_group);
    }
}

const ACCOUNTS: u64 = 4;
const TOTAL: u64 = 2 * ACCOUNTS * 100;

fn amounts(reader: &Transaction, states: &[Arc<State>; 2]) -> Result<Vec<(u8, Vec<u8>, u64)>, Error> {
    let mut all = Vec::new();
    for (number, state) in states.iter().enumerate() {
        let mut from = None;
        let mut take = |key: &[u8], value: &[u8]| {
            let amount = u64::from_le_bytes(value[..8].try_into().unwrap());
            assert!(value.chunks(8).all(|chunk| chunk == &value[..8]), "torn");
            all.push((number as u8, key.to_vec(), amount));
        };
        while reader.scan_batch(state, &KeyRange::full(), &mut from, &mut take)? {}
        for account in 0..ACCOUNTS {
            let read = reader
                .read(state, &key(account), |value| u64::from_le_bytes(value[..8].try_into().unwrap()))?;
            let scanned = all.iter().find(|(n, k, _)| *n == number as u8 && k[..] == key(account));
            assert_eq!(read, scanned.map(|(.., amount)| *amount), "scan and look-up agree");
        }
    }
    Ok(all)
}

/// Moves a part of what one account has to another; accounts are numbered within their state.
fn move_amount(
    context: &Arc<StateContext>,
    states: &[Arc<State>],
    from: (u64, u64),
    to: (u64, u64),
    random: &Env,
) -> Result<(), Error> {
    context.run(Isolation::Snapshot, Durability::None, Default::default(), |tx| {
        let read = |(state, account): (u64, u64)| {
            let amount = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
            Ok::<_, Error>(tx.read(&states[state as usize], &key(account), amount)?.unwrap_or(0))
        };
        let (have, has) = (read(from)?, read(to)?);
        let moved = have.div_ceil(1 + random.random_u64() % 3);
        let write = |(state, account): (u64, u64), amount: u64| {
            // Nothing is no row, and values of other lengths make other objects.
            let times = 1 + (random.random_u64() % 9) as usize;
            let value = (amount > 0).then(|| amount.to_le_bytes().repeat(times));
            tx.write(&states[state as usize], &key(account), value.as_deref())
        };
        write(from, have - moved)?;
        write(to, has + moved)
    })
}

fn look_back_beside_writers(protocol: Protocol, one_group: bool) {
    let context = context_with(protocol);
    let group = context.create_group().unwrap();
    let other = if one_group { group } else { context.create_group().unwrap() };
    let states = [group, other].map(|group| context.create_state(group, KeyWidth::Eight).unwrap());
    let fill = context.begin().unwrap();
    for (state, account) in states.iter().flat_map(|state| (0..ACCOUNTS).map(move |account| (state, account)))
    {
        fill.write(state, &key(account), Some(&100u64.to_le_bytes().repeat(3))).unwrap();
    }
    fill.commit(Durability::None).unwrap();
    states
        .iter()
        .for_each(|state| context.keep_history(state.id(), Some(Duration::from_millis(40))).unwrap());
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let wanted = crate::common::soak(1500, 60_000);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (context, states, stop) = (&context, &states, &stop);
            scope.spawn(move || {
                let random = Env::simulated(seed);
                while !stop.load(Ordering::Relaxed) {
                    let pick = || (random.random_u64() % 2, random.random_u64() % ACCOUNTS);
                    let (from, to) = (pick(), pick());
                    if from == to {
                        continue;
                    }
                    let moved = move_amount(context, states, from, to, &random);
                    moved.or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) }).unwrap();
                }
            });
        }
        {
            let (context, stop) = (&context, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    context.vacuum().unwrap();
                    thread::sleep(Duration::from_millis(3));
                }
            });
        }
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (context, states, looks, stop) = (&context, &states, &looks, &stop);
                scope.spawn(move || {
                    let random = Env::simulated(100 + seed);
                    let mut refused = 0;
                    while looks.fetch_add(1, Ordering::Relaxed) < wanted && !stop.load(Ordering::Relaxed) {
                        let back_ns = random.random_u64()
                            % [2_000, 300_000, 60_000_000][(random.random_u64() % 3) as usize];
                        let at = now(context).minus(back_ns);
                        let reader = context.begin_as_of(at).unwrap();
                        let seen = match amounts(&reader, states) {
                            Ok(seen) => seen,
                            Err(Error::SnapshotTooOld { .. }) => {
                                refused += 1;
                                continue;
                            }
                            Err(error) => panic!("{error}"),
                        };
                        let total: u64 = seen.iter().map(|(.., amount)| amount).sum();
                        assert_eq!(total, TOTAL, "{protocol}, as of {at}: {seen:?}");
                        assert_eq!(amounts(&reader, states).unwrap(), seen, "{protocol}, again as of {at}");
                    }
                    refused
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        let refused: u64 = ended.into_iter().map(|refused| refused.unwrap()).sum();
        assert!(refused < wanted * 9 / 10, "{refused} were refused");
    });
}

/// History, horizon and bounds survive; what was written after opening goes on in it.
#[test]
fn version_history_survives_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    let open =
        || StateContext::open_or_create(Pool::open_or_create(directory.path(), &options).unwrap()).unwrap();
    let mut moments: BTreeMap<Timestamp, Rows> = BTreeMap::new();
    for run in 0..3u8 {
        let context = open();
        let state = match context.states().first() {
            Some(state) => Arc::clone(state),
            None => {
                let group = context.create_group().unwrap();
                let state = context.create_state(group, KeyWidth::Variable).unwrap();
                context.keep_history(state.id(), Some(Duration::from_secs(100))).unwrap();
                state
            }
        };
        assert_eq!(state.past().unwrap().kept, Some(Duration::from_secs(100)));
        for (at, seen) in &moments {
            assert_eq!(&rows(&context.begin_as_of(*at).unwrap(), &state), seen, "run {run}, as of {at}");
        }
        for number in 0..40 {
            put(&context, &state, number % 7, &[run; 30]);
            if number % 5 == 0 {
                delete(&context, &state, number % 7);
            }
            let at = context.newest_commit();
            moments.insert(at, rows(&context.begin().unwrap(), &state));
        }
        let reports = context.check(|_, _, _| Ok(()), |_| ()).unwrap();
        assert!(reports.iter().all(|report| report.problems.is_empty()), "{reports:?}");
        let history = reports.iter().find(|report| report.history_of == Some(state.id())).unwrap();
        assert!(history.versions >= 30 * (u64::from(run) + 1), "{history:?}");
        if run == 1 {
            context.vacuum().unwrap();
        }
    }
    let context = open();
    let state = Arc::clone(&context.states()[0]);
    context.drop_state(state.id()).unwrap();
    drop(state);
    context.vacuum().unwrap();
    assert!(context.check(|_, _, _| Ok(()), |_| ()).unwrap().is_empty(), "a history goes with its state");
}

/// Commits that fail leave a version history without them.
#[test]
fn failed_commits_are_not_in_the_version_history() {
    let options = PoolOptions {
        domain: DomainChoice::Volatile,
        extent_bytes: 1 << 20,
        address_space_bytes: 16 << 20,
        ..PoolOptions::default()
    };
    let context = StateContext::open_or_create(Pool::volatile(&options).unwrap()).unwrap();
    let state = state_with_history(&context, context.create_group().unwrap(), KeyWidth::Eight);
    let mut moments = Vec::new();
    let mut failed = 0;
    for round in 0..20_000u64 {
        let transaction = context.begin().unwrap();
        for number in 0..4 {
            transaction.write(&state, &key((round + number) % 40), Some(&vec![round as u8; 2000])).unwrap();
        }
        match transaction.commit(Durability::None) {
            Ok(commit) if round % 16 == 0 => {
                moments.push((commit.cts, rows(&context.begin().unwrap(), &state)));
            }
            Ok(_) => (),
            Err(Error::Memory(_) | Error::Structures(_)) => {
                failed += 1;
                if failed > 50 {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failed > 50, "the pool is never full");
    for (at, seen) in &moments {
        assert_eq!(&rows(&context.begin_as_of(*at).unwrap(), &state), seen);
    }
    // There is room again once less is kept.
    context.keep_history(state.id(), Some(Duration::ZERO)).unwrap();
    // Readers of other tests may still hold back what was freed.
    let freed_by = Instant::now() + Duration::from_secs(10);
    loop {
        context.vacuum().unwrap();
        let transaction = context.begin().unwrap();
        transaction.write(&state, &key(1), Some(&[9; 2000])).unwrap();
        match transaction.commit(Durability::None) {
            Ok(_) => break,
            Err(error) => assert!(Instant::now() < freed_by, "no room after ten seconds: {error}"),
        }
    }
    let reader = context.begin_as_of(context.newest_commit()).unwrap();
    assert_eq!(get(&reader, &state, 1), Some(vec![9; 2000]));
}
