//! The protocols beside each other: every interleaving of the literature's anomalies, threads whose histories
//! are replayed, and that a choice stays.

use crate::common::interleavings::look;
use crate::common::{get, key, put, rows, scan, volatile};
use entresol_memory::{DomainChoice, Durability, Env, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::{
    Commit, ContextOptions, Error, Isolation, KeyRange, Protocol, Retry, State, StateContext, Timestamp,
    Transaction,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn options(protocol: Protocol) -> ContextOptions {
    ContextOptions { protocol, ..ContextOptions::default() }
}

fn two_states(protocol: Protocol) -> (Arc<StateContext>, [Arc<State>; 2]) {
    let context = StateContext::open_or_create_with(volatile(), options(protocol)).unwrap();
    let group = context.create_group().unwrap();
    let states = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    (context, states)
}

#[test]
fn every_interleaving_of_the_anomalies_is_serializable() {
    for protocol in Protocol::ALL {
        let found = look(protocol, crate::common::soak(400, usize::MAX as u64) as usize);
        println!("{protocol}: {found:?}");
        assert_eq!(found.violation, None);
        assert!(found.interleavings > 500 && found.committed > found.interleavings, "{found:?}");
        assert!(found.restarted > 0, "{protocol}: conflicts are possible in them");
    }
}

/// Random transactions of threads; replayed in the order of their commits they give what they read.
#[test]
fn histories_of_threads_replay_in_commit_order() {
    for protocol in Protocol::ALL {
        let (context, [state, other]) = two_states(protocol);
        let committed: Vec<Committed> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    scope.spawn({
                        let (context, states) = (&context, [&state, &other]);
                        move || history(context, states, thread)
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(committed.len() > 300, "{protocol}: {} committed", committed.len());
        replay(protocol, committed);
    }
}

const KEYS: u64 = 8;

#[derive(Clone)]
struct Committed {
    /// Its own; if it changed nothing, that of the commit that it comes after.
    cts: Timestamp,
    reads: Vec<(u64, Option<u64>)>,
    count: Option<usize>,
    writes: Vec<(u64, Option<u64>)>,
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

fn history(context: &Arc<StateContext>, states: [&Arc<State>; 2], thread: u64) -> Vec<Committed> {
    let random = Env::simulated(thread + 1);
    let mut history = Vec::new();
    for round in 0..crate::common::soak(600, 6000) {
        let transaction = context.begin_at(Isolation::Serializable).unwrap();
        match one(&transaction, states, &random, thread << 32 | round) {
            Ok(committed) => history.push(committed),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    history
}

fn one(
    transaction: &Transaction,
    states: [&Arc<State>; 2],
    random: &Env,
    mark: u64,
) -> Result<Committed, Error> {
    let of = |key: u64| states[(key % 2) as usize];
    let mut reads = Vec::new();
    for _ in 0..2 {
        let at = random.random_u64() % KEYS;
        reads.push((at, transaction.read(of(at), &key(at), number)?));
    }
    let mut count = None;
    if random.random_u64().is_multiple_of(4) {
        let mut rows = 0;
        for state in states {
            let mut from = None;
            while transaction.scan_batch(state, &KeyRange::full(), &mut from, |_, _| rows += 1)? {}
        }
        count = Some(rows);
    }
    if mark % 16 == 3 {
        thread::yield_now();
    }
    let mut writes = Vec::new();
    // One in four only reads.
    for _ in 0..random.random_u64() % 4 {
        let at = random.random_u64() % KEYS;
        let value = (!random.random_u64().is_multiple_of(3)).then_some(mark);
        let bytes = value.map(u64::to_le_bytes);
        transaction.write(of(at), &key(at), bytes.as_ref().map(|bytes| &bytes[..]))?;
        writes.push((at, value));
    }
    let Commit { cts, .. } = transaction.commit(Durability::None)?;
    Ok(Committed { cts, reads, count, writes })
}

type Contents = BTreeMap<u64, u64>;

impl Committed {
    /// Runs it alone; None if it would have read something else.
    fn replayed(&self, rows: &Contents) -> Option<Contents> {
        let as_read = self.reads.iter().all(|(key, value)| rows.get(key) == value.as_ref())
            && self.count.is_none_or(|count| count == rows.len());
        let mut rows = rows.clone();
        for (key, value) in &self.writes {
            match value {
                Some(value) => drop(rows.insert(*key, *value)),
                None => drop(rows.remove(key)),
            }
        }
        as_read.then_some(rows)
    }
}

/// Some order of transactions that share a timestamp: at most one of them changed something.
fn in_some_order(left: &[Committed], rows: &Contents) -> Option<Contents> {
    if left.is_empty() {
        return Some(rows.clone());
    }
    (0..left.len()).find_map(|first| {
        let mut rest = left.to_vec();
        let rows = rest.remove(first).replayed(rows)?;
        in_some_order(&rest, &rows)
    })
}

fn replay(protocol: Protocol, committed: Vec<Committed>) {
    let mut by_time: BTreeMap<Timestamp, [Vec<Committed>; 2]> = BTreeMap::new();
    for transaction in committed {
        let only_reads = usize::from(transaction.writes.is_empty());
        by_time.entry(transaction.cts).or_default()[only_reads].push(transaction);
    }
    let mut rows = Contents::new();
    for (cts, [writers, readers]) in by_time {
        rows = in_some_order(&writers, &rows).unwrap_or_else(|| panic!("{protocol}: a writer at {cts}"));
        let as_read = readers.iter().all(|reader| reader.replayed(&rows).is_some());
        assert!(as_read, "{protocol}: a reader at {cts}");
    }
}

const EACH: u64 = 1000;

fn amount(transaction: &Transaction, state: &Arc<State>, at: u64) -> Result<u64, Error> {
    let whole = |value: &[u8]| {
        assert_eq!(value[..8], value[8..16], "torn");
        number(&value[..8])
    };
    Ok(transaction.read(state, &key(at), whole)?.unwrap_or(0))
}

fn put_amount(transaction: &Transaction, state: &Arc<State>, at: u64, amount: u64) -> Result<(), Error> {
    let value = (amount > 0).then(|| amount.to_le_bytes().repeat(2 + amount as usize % 5));
    transaction.write(state, &key(at), value.as_deref())
}

/// Transfers between two states; readers add them up, by key and by scan, while a vacuum runs.
#[test]
fn sums_stay_and_every_transaction_gets_through() {
    for protocol in Protocol::ALL {
        let (context, states) = two_states(protocol);
        let load = context.begin().unwrap();
        for state in &states {
            (0..KEYS).for_each(|at| put_amount(&load, state, at, EACH).unwrap());
        }
        load.commit(Durability::None).unwrap();
        drop(load);
        let stop = AtomicBool::new(false);
        let (transfers, checks) = (AtomicU64::new(0), AtomicU64::new(0));
        let retry = Retry { attempts_max: u32::MAX, pause_max: Duration::from_millis(1) };
        let until_stopped = |work: &dyn Fn()| {
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        };
        thread::scope(|scope| {
            for seed in 0..2 {
                let (context, states, until_stopped, transfers) =
                    (&context, &states, &until_stopped, &transfers);
                scope.spawn(move || {
                    let random = Env::simulated(seed);
                    until_stopped(&|| {
                        let [from, to] = [(); 2]
                            .map(|()| ((random.random_u64() % 2) as usize, random.random_u64() % KEYS));
                        if from == to {
                            return;
                        }
                        context
                            .run(Isolation::Snapshot, Durability::None, retry, |transaction| {
                                let have = amount(transaction, &states[from.0], from.1)?;
                                let moved = have.div_ceil(1 + (have + seed) % 3);
                                let target = amount(transaction, &states[to.0], to.1)?;
                                put_amount(transaction, &states[from.0], from.1, have - moved)?;
                                put_amount(transaction, &states[to.0], to.1, target + moved)
                            })
                            .unwrap();
                        transfers.fetch_add(1, Ordering::Relaxed);
                        // Readers that restart get their turn, too.
                        thread::sleep(Duration::from_micros(random.random_u64() % 400));
                    });
                });
            }
            scope.spawn(|| {
                until_stopped(&|| {
                    let sums = context.run(Isolation::Snapshot, Durability::None, retry, |transaction| {
                        let (mut by_key, mut by_scan) = (0, 0);
                        for state in &states {
                            for at in 0..KEYS {
                                by_key += amount(transaction, state, at)?;
                            }
                            let mut from = None;
                            let mut add = |_: &[u8], value: &[u8]| by_scan += number(&value[..8]);
                            while transaction.scan_batch(state, &KeyRange::full(), &mut from, &mut add)? {}
                        }
                        Ok::<_, Error>((by_key, by_scan))
                    });
                    assert_eq!(sums.unwrap(), (2 * KEYS * EACH, 2 * KEYS * EACH), "{protocol}");
                    checks.fetch_add(1, Ordering::Relaxed);
                });
            });
            scope.spawn(|| {
                until_stopped(&|| {
                    context.vacuum().unwrap();
                    thread::sleep(Duration::from_millis(1));
                })
            });
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(crate::common::soak(1200, 30_000)) {
                thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let (transfers, checks) = (transfers.into_inner(), checks.into_inner());
        println!("{protocol}: {transfers} transfers, {checks} checks");
        assert!(transfers > 20 && checks > 2, "{protocol}: {transfers} transfers, {checks} checks");
        assert_eq!(context.stats().locks, 0, "{protocol}");
    }
}

#[test]
fn a_choice_stays_and_stats_show_it() {
    let dir = tempfile::tempdir().unwrap();
    let pool_options = PoolOptions { domain: DomainChoice::Journal, ..PoolOptions::default() };
    for round in 0..2 {
        let pool = Pool::open_or_create(dir.path(), &pool_options).unwrap();
        // The second time another one is asked for, in vain.
        let asked = if round == 0 { Protocol::Bocc } else { Protocol::MvccInPlace };
        let context = StateContext::open_or_create_with(pool, options(asked)).unwrap();
        if round == 0 {
            let groups = Protocol::ALL.map(|protocol| context.create_group_with(protocol).unwrap());
            context.create_group().unwrap();
            for group in groups {
                let state = context.create_state(group, KeyWidth::Eight).unwrap();
                (0..50).for_each(|at| put(&context, &state, at, b"value"));
            }
        }
        let stats = context.stats();
        assert_eq!(stats.protocol, Protocol::Bocc);
        let expected: Vec<_> = Protocol::ALL.into_iter().chain([Protocol::Bocc]).collect();
        assert_eq!(stats.protocols.iter().map(|(_, protocol)| *protocol).collect::<Vec<_>>(), expected);
        for (state, protocol) in context.states().iter().zip(Protocol::ALL) {
            assert_eq!(state.protocol(), protocol);
            assert_eq!(rows(&context.begin().unwrap(), state).len(), 50);
        }
        let reports = context.check(|_, _, _| Ok(()), |_| {}).unwrap();
        assert!(reports.iter().all(|report| report.problems.is_empty() && report.keys == 50), "{reports:?}");
    }
}

/// A read of a BOCC group counts when the commit returns; the error names the key.
#[test]
fn a_bocc_reader_of_two_states_fails() {
    let (context, [state, _]) = two_states(Protocol::Bocc);
    put(&context, &state, 1, b"old");
    put(&context, &state, 2, b"old");
    let reader = context.begin().unwrap();
    assert_eq!(get(&reader, &state, 1).unwrap(), b"old");
    put(&context, &state, 1, b"new");
    assert_eq!(get(&reader, &state, 1).unwrap(), b"new", "the newest commit");
    match reader.commit(Durability::None) {
        Err(error @ Error::Restart { .. }) => {
            assert!(error.to_string().contains("0000000000000001"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    let beside = context.begin().unwrap();
    assert_eq!(get(&beside, &state, 2).unwrap(), b"old");
    put(&context, &state, 1, b"newer");
    beside.commit(Durability::None).unwrap();
}

/// A statement's locks go on to the next one, whatever level was asked for.
#[test]
fn statements_of_a_block_keep_what_their_protocol_promises() {
    for protocol in [Protocol::S2pl, Protocol::Bocc] {
        let (context, [state, other]) = two_states(protocol);
        put(&context, &state, 1, b"old");
        let first = context.begin_at(Isolation::ReadCommitted).unwrap();
        assert_eq!(get(&first, &state, 1).unwrap(), b"old");
        let second = first.next_statement().unwrap();
        second.write(&other, &key(1), Some(b"because of old")).unwrap();
        drop(first);
        let beside = context.begin().unwrap();
        beside.write(&other, &key(2), Some(b"beside")).unwrap();
        beside.commit(Durability::None).unwrap();
        let writer = context.begin().unwrap();
        let overtakes = writer
            .write(&state, &key(1), Some(b"new"))
            .and_then(|()| writer.commit(Durability::None).map(|_| ()));
        assert!(overtakes.is_err() || second.commit(Durability::None).is_err(), "{protocol}");
    }
}

#[test]
fn a_dropped_state_of_chains_leaves_nothing() {
    let (context, [kept, _]) = two_states(Protocol::MvccOutOfPlace);
    let before = context.pool().stats().allocated_bytes;
    let state = context.create_state(kept.group(), KeyWidth::Variable).unwrap();
    let mut readers = Vec::new();
    for round in 0..70_u64 {
        for at in 0..20 {
            put(&context, &state, at, &round.to_le_bytes());
        }
        readers.push(context.begin().unwrap());
    }
    for (round, reader) in readers.iter().enumerate() {
        assert_eq!(scan(reader, &state, &KeyRange::full()).len(), 20);
        assert_eq!(get(reader, &state, 7).unwrap(), (round as u64).to_le_bytes());
    }
    context.drop_state(state.id()).unwrap();
    drop(readers);
    assert_eq!(context.vacuum().unwrap().states_destroyed, 1);
    // Memory that was freed comes back when no guard is held any more.
    assert!(context.pool().stats().allocated_bytes <= before + 8192);
}
