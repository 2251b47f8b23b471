//! The anomalies of the literature (Adya's G0 to G2, lost updates, skews), at each level: forbidden ones do
//! not happen.

use crate::common::{get, key, scan, two_states};
use entresol_memory::{Durability, Env};
use entresol_structures::{KeyBytes, KeyWidth};
use entresol_transactions::{
    Commit, ContextOptions, Error, Isolation, KeyRange, Protocol, READS_MAX, Retry, State, StateContext,
    Timestamp, Transaction,
};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The protocols that tell levels apart; the others are serializable at each (`tests/transactions/protocols.rs`).
fn cases() -> impl Iterator<Item = (Protocol, Isolation)> {
    let both = [Protocol::MvccInPlace, Protocol::MvccOutOfPlace];
    both.into_iter().flat_map(|protocol| LEVELS.map(|level| (protocol, level)))
}

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

struct Bench {
    context: Arc<StateContext>,
    state: Arc<State>,
    other: Arc<State>,
}

/// Keys 1 and 2 with the values 10 and 20.
fn bench(protocol: Protocol) -> Bench {
    let options = ContextOptions { protocol, ..ContextOptions::default() };
    let context = StateContext::open_or_create_with(crate::common::volatile(), options).unwrap();
    let group = context.create_group().unwrap();
    let [state, other] = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    let bench = Bench { context, state, other };
    let load = bench.begin(Isolation::Snapshot);
    bench.put(&load, 1, 10);
    bench.put(&load, 2, 20);
    commit(&load).unwrap();
    bench
}

fn commit(transaction: &Transaction) -> Result<Commit, Error> {
    transaction.commit(Durability::Sync)
}

impl Bench {
    fn begin(&self, isolation: Isolation) -> Arc<Transaction> {
        self.context.begin_at(isolation).unwrap()
    }

    fn put(&self, transaction: &Transaction, number: u64, value: u64) {
        transaction.write(&self.state, &key(number), Some(&value.to_le_bytes())).unwrap();
    }

    fn get(&self, transaction: &Transaction, number: u64) -> Option<u64> {
        get(transaction, &self.state, number).map(|value| u64::from_le_bytes(value.try_into().unwrap()))
    }

    fn now(&self, number: u64) -> Option<u64> {
        self.get(&self.begin(Isolation::Snapshot), number)
    }
}

#[test]
fn g0_dirty_write() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (first, second) = (bench.begin(level), bench.begin(level));
        bench.put(&first, 1, 11);
        bench.put(&second, 1, 12);
        bench.put(&first, 2, 21);
        commit(&first).unwrap();
        bench.put(&second, 2, 22);
        assert!(matches!(commit(&second), Err(Error::Conflict { .. })), "{level:?}");
        assert_eq!((bench.now(1), bench.now(2)), (Some(11), Some(21)), "{level:?}");
    }
}

#[test]
fn g1a_aborted_and_g1b_intermediate_reads() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (writer, reader) = (bench.begin(level), bench.begin(level));
        bench.put(&writer, 1, 101);
        assert_eq!(bench.get(&reader, 1), Some(10), "{level:?}: not yet committed");
        bench.put(&writer, 1, 11);
        writer.abort();
        let reader = reader.next_statement().unwrap();
        assert_eq!(bench.get(&reader, 1), Some(10), "{level:?}: aborted");
    }
}

#[test]
fn g1c_circular_information_flow() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (first, second) = (bench.begin(level), bench.begin(level));
        bench.put(&first, 1, 11);
        bench.put(&second, 2, 22);
        assert_eq!(bench.get(&first, 2), Some(20), "{level:?}");
        assert_eq!(bench.get(&second, 1), Some(10), "{level:?}");
        commit(&first).unwrap();
        assert_eq!(
            commit(&second).is_ok(),
            level != Isolation::Serializable,
            "{level:?}: each overlooked the other"
        );
    }
}

#[test]
fn otv_observed_transaction_does_not_vanish() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (first, second, reader) = (bench.begin(level), bench.begin(level), bench.begin(level));
        bench.put(&first, 1, 11);
        bench.put(&first, 2, 19);
        bench.put(&second, 1, 12);
        commit(&first).unwrap();
        let reader = reader.next_statement().unwrap();
        let seen = bench.get(&reader, 1);
        bench.put(&second, 2, 18);
        assert!(commit(&second).is_err(), "{level:?}");
        let reader = reader.next_statement().unwrap();
        let expected =
            if level == Isolation::ReadCommitted { (Some(11), Some(19)) } else { (Some(10), Some(20)) };
        assert_eq!((seen, bench.get(&reader, 2)), expected, "{level:?}");
    }
}

#[test]
fn pmp_predicate_many_preceders() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (reader, writer) = (bench.begin(level), bench.begin(level));
        assert_eq!(scan(&reader, &bench.state, &KeyRange::full()).len(), 2);
        bench.put(&writer, 3, 30);
        commit(&writer).unwrap();
        let reader = reader.next_statement().unwrap();
        let rows = if level == Isolation::ReadCommitted { 3 } else { 2 };
        assert_eq!(scan(&reader, &bench.state, &KeyRange::full()).len(), rows, "{level:?}");
    }
}

#[test]
fn p4_lost_update() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (first, second) = (bench.begin(level), bench.begin(level));
        let read = [&first, &second].map(|transaction| bench.get(transaction, 1).unwrap());
        bench.put(&first, 1, read[0] + 1);
        bench.put(&second, 1, read[1] + 1);
        commit(&first).unwrap();
        let second = match second.next_statement() {
            Ok(second) => second,
            Err(Error::Conflict { .. }) if level == Isolation::ReadCommitted => continue,
            Err(error) => panic!("{level:?}: {error}"),
        };
        assert_ne!(level, Isolation::ReadCommitted, "its next statement finds the conflict");
        assert!(commit(&second).is_err_and(|error| error.is_retryable()), "{level:?}");
        assert_eq!(bench.now(1), Some(11));
    }
}

#[test]
fn a_later_statement_writes_what_was_committed_meanwhile() {
    let bench = bench(Protocol::MvccInPlace);
    let first = bench.begin(Isolation::ReadCommitted);
    bench.put(&first, 2, 21);
    let other = bench.begin(Isolation::Snapshot);
    bench.put(&other, 1, 11);
    commit(&other).unwrap();
    let next = first.next_statement().unwrap();
    assert_eq!(bench.get(&next, 2), Some(21), "it still sees its own writes");
    assert_eq!(bench.get(&next, 1), Some(11));
    bench.put(&next, 1, 12);
    let written = first.write(&bench.state, &key(1), None);
    assert!(matches!(written, Err(Error::SupersededStatement)), "it would be lost");
    assert!(
        matches!(commit(&first), Err(Error::SupersededStatement)),
        "what was written went on to the next statement"
    );
    commit(&next).unwrap();
    assert_eq!((bench.now(1), bench.now(2)), (Some(12), Some(21)));
}

#[test]
fn g_single_read_skew() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (reader, writer) = (bench.begin(level), bench.begin(level));
        assert_eq!(bench.get(&reader, 1), Some(10));
        bench.put(&writer, 1, 11);
        bench.put(&writer, 2, 19);
        commit(&writer).unwrap();
        let reader = reader.next_statement().unwrap();
        let expected = if level == Isolation::ReadCommitted { 19 } else { 20 };
        assert_eq!(bench.get(&reader, 2), Some(expected), "{level:?}");
    }
}

#[test]
fn g2_item_write_skew() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (first, second) = (bench.begin(level), bench.begin(level));
        for transaction in [&first, &second] {
            assert_eq!(bench.get(transaction, 1).unwrap() + bench.get(transaction, 2).unwrap(), 30);
        }
        bench.put(&first, 1, 11);
        bench.put(&second, 2, 21);
        commit(&first).unwrap();
        match commit(&second) {
            Ok(_) => assert_ne!(level, Isolation::Serializable),
            Err(Error::ReadConflict { key: missed, .. }) => {
                assert_eq!((level, &missed[..]), (Isolation::Serializable, &key(1)[..]));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn g2_anti_dependency_over_a_range() {
    for (protocol, level) in cases() {
        let bench = bench(protocol);
        let (first, second) = (bench.begin(level), bench.begin(level));
        for (transaction, number) in [(&first, 30), (&second, 31)] {
            assert_eq!(scan(transaction, &bench.other, &KeyRange::full()), []);
            transaction.write(&bench.other, &key(number), Some(b"only one of us")).unwrap();
        }
        commit(&first).unwrap();
        assert_eq!(commit(&second).is_err(), level == Isolation::Serializable, "{level:?}");
    }
}

#[test]
fn a_missing_key_counts_as_read_and_a_range_beside_it_does_not() {
    let bench = bench(Protocol::MvccInPlace);
    let range = |from: u64, to: u64| KeyRange {
        lower: Bound::Included(KeyBytes::from_slice(&key(from))),
        upper: Bound::Excluded(KeyBytes::from_slice(&key(to))),
    };
    for (inserted, fails) in [(50, true), (60, true), (69, true), (70, false), (49, false)] {
        let reader = bench.begin(Isolation::Serializable);
        assert_eq!(bench.get(&reader, 50), None);
        assert_eq!(scan(&reader, &bench.state, &range(60, 70)), []);
        reader.write(&bench.other, &key(inserted), Some(b"seen")).unwrap();
        let other = bench.begin(Isolation::Snapshot);
        bench.put(&other, inserted, 1);
        commit(&other).unwrap();
        assert_eq!(commit(&reader).is_err(), fails, "insert of {inserted}");
        let remove = bench.begin(Isolation::Snapshot);
        remove.write(&bench.state, &key(inserted), None).unwrap();
        commit(&remove).unwrap();
    }
}

/// Keys 1, 2 and 7 are there, and 4 was.
#[test]
fn the_last_key_and_those_behind_it_count_as_read_and_those_before_it_do_not() {
    for protocol in [Protocol::MvccInPlace, Protocol::MvccOutOfPlace, Protocol::Bocc] {
        for (written, value, fails) in
            [(1, Some(11), false), (1, None, false), (6, Some(1), false), (7, None, false)]
                .into_iter()
                .chain([(2, Some(21), true), (2, None, true), (3, Some(1), true), (4, Some(1), true)])
        {
            let bench = bench(protocol);
            let load = bench.begin(Isolation::Snapshot);
            bench.put(&load, 4, 40);
            bench.put(&load, 7, 70);
            commit(&load).unwrap();
            let write = |number: u64, value: Option<u64>| {
                let transaction = bench.begin(Isolation::Serializable);
                let bytes = value.map(u64::to_le_bytes);
                let bytes = bytes.as_ref().map(|bytes| &bytes[..]);
                transaction.write(&bench.state, &key(number), bytes).unwrap();
                commit(&transaction).unwrap();
            };
            write(4, None);
            let range = KeyRange {
                lower: Bound::Included(KeyBytes::from_slice(&key(0))),
                upper: Bound::Included(KeyBytes::from_slice(&key(5))),
            };
            let reader = bench.begin(Isolation::Serializable);
            let last = reader.last_in(&bench.state, &range, |key, _| key.to_vec()).unwrap();
            assert_eq!(last.as_deref(), Some(&key(2)[..]));
            reader.write(&bench.other, &key(1), Some(b"seen")).unwrap();
            write(written, value);
            assert_eq!(commit(&reader).is_err(), fails, "{protocol}: {written} is written");
        }
    }
}

#[test]
fn deletions_are_noticed_even_when_the_vacuum_was_there() {
    let bench = bench(Protocol::MvccInPlace);
    let reader = bench.begin(Isolation::Serializable);
    assert_eq!(bench.get(&reader, 1), Some(10));
    let other = bench.begin(Isolation::Snapshot);
    other.write(&bench.state, &key(1), None).unwrap();
    commit(&other).unwrap();
    bench.context.vacuum().unwrap();
    bench.put(&reader, 2, 21);
    assert!(matches!(commit(&reader), Err(Error::ReadConflict { .. })));
}

#[test]
fn many_reads_count_as_all() {
    let bench = bench(Protocol::MvccInPlace);
    let reader = bench.begin(Isolation::Serializable);
    for number in 100..101 + READS_MAX as u64 {
        assert_eq!(bench.get(&reader, number), None);
    }
    let other = bench.begin(Isolation::Snapshot);
    bench.put(&other, 5, 5);
    commit(&other).unwrap();
    bench.put(&reader, 2, 21);
    assert!(matches!(commit(&reader), Err(Error::ReadConflict { .. })));
}

/// Doctors on call: everybody may leave if somebody else stays. Serializable transactions keep one there,
/// whatever the interleaving; each also reads over two groups.
#[test]
fn write_skew_never_happens_to_threads() {
    let (context, first, _) = two_states(KeyWidth::Eight);
    let second = context.create_state(context.create_group().unwrap(), KeyWidth::Variable).unwrap();
    let states = [first, second];
    let on_call =
        |transaction: &Transaction, doctor: usize| get(transaction, &states[doctor], 7) == Some(vec![1]);
    let load = context.begin().unwrap();
    states.iter().for_each(|state| load.write(state, &key(7), Some(&[1])).unwrap());
    commit(&load).unwrap();
    let left = AtomicU64::new(0);
    thread::scope(|scope| {
        for doctor in 0..2 {
            let (context, states, on_call, left) = (&context, &states, &on_call, &left);
            scope.spawn(move || {
                for _ in 0..crate::common::soak(300, 3000) {
                    let retry = Retry { attempts_max: 1000, ..Retry::default() };
                    let result =
                        context.run(Isolation::Serializable, Durability::None, retry, |transaction| {
                            let leaves = on_call(transaction, doctor) && on_call(transaction, 1 - doctor);
                            transaction.write(&states[doctor], &key(7), Some(&[u8::from(!leaves)]))?;
                            Ok::<_, Error>(leaves)
                        });
                    left.fetch_add(u64::from(result.unwrap()), Ordering::Relaxed);
                    let reader = context.begin().unwrap();
                    assert!(on_call(&reader, 0) || on_call(&reader, 1), "nobody is on call");
                }
            });
        }
    });
    assert!(left.load(Ordering::Relaxed) > 0);
}

/// Random transactions of threads; their commit order is the serial order, so replaying them in it gives what
/// they read.
#[test]
fn serializable_histories_replay_in_commit_order() {
    const KEYS: u64 = 8;
    struct Committed {
        cts: Timestamp,
        /// It has a timestamp of its own; otherwise it changed nothing and has that of its snapshot.
        changed: bool,
        reads: Vec<(u64, Option<u64>)>,
        count: Option<usize>,
        writes: Vec<(u64, Option<u64>)>,
    }
    let (context, state, _) = two_states(KeyWidth::Eight);
    let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    let histories: Vec<Vec<Committed>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3u64)
            .map(|thread| {
                let (context, state) = (&context, &state);
                scope.spawn(move || {
                    let random = Env::simulated(thread + 1);
                    let mut history = Vec::new();
                    for round in 0..crate::common::soak(700, 7000) {
                        let transaction = context.begin_at(Isolation::Serializable).unwrap();
                        let read = || {
                            let key_read = random.random_u64() % KEYS;
                            (key_read, transaction.read(state, &key(key_read), number).unwrap())
                        };
                        let reads = vec![read(), read()];
                        let count = random
                            .random_u64()
                            .is_multiple_of(3)
                            .then(|| scan(&transaction, state, &KeyRange::full()).len());
                        if round % 16 == 3 {
                            thread::yield_now();
                        }
                        let written = random.random_u64() % KEYS;
                        let value = (!random.random_u64().is_multiple_of(3)).then_some(thread << 32 | round);
                        transaction
                            .write(state, &key(written), value.map(u64::to_le_bytes).as_ref().map(|v| &v[..]))
                            .unwrap();
                        match transaction.commit(Durability::None) {
                            Ok(Commit { cts, .. }) => {
                                let changed = !transaction.sees(cts);
                                history.push(Committed {
                                    cts,
                                    changed,
                                    reads,
                                    count,
                                    writes: vec![(written, value)],
                                });
                            }
                            Err(error) => assert!(error.is_retryable(), "{error}"),
                        }
                    }
                    history
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut committed: Vec<Committed> = histories.into_iter().flatten().collect();
    assert!(committed.len() > 100);
    // Transactions without a timestamp of their own come after the commit whose timestamp they have.
    committed.sort_by_key(|transaction| transaction.cts);
    let mut rows = std::collections::BTreeMap::new();
    let mut at = 0;
    while at < committed.len() {
        let same = committed[at..].iter().take_while(|other| other.cts == committed[at].cts).count();
        let group = &mut committed[at..at + same];
        group.sort_by_key(|transaction| !transaction.changed);
        for transaction in group.iter() {
            for (read, value) in &transaction.reads {
                assert_eq!(rows.get(read), value.as_ref(), "key {read} before {}", transaction.cts);
            }
            assert!(
                transaction.count.is_none_or(|count| count == rows.len()),
                "rows before {}",
                transaction.cts
            );
            for (written, value) in &transaction.writes {
                match value {
                    Some(value) => drop(rows.insert(*written, *value)),
                    None => drop(rows.remove(written)),
                }
            }
        }
        at += same;
    }
}

#[test]
fn writers_that_were_cut_off_conflict_and_later_ones_do_not() {
    for level in LEVELS {
        let bench = bench(Protocol::MvccInPlace);
        let (cut, reader, elsewhere) = (bench.begin(level), bench.begin(level), bench.begin(level));
        bench.put(&cut, 1, 11);
        elsewhere.write(&bench.other, &key(1), Some(b"x")).unwrap();
        let mut told = Timestamp::START;
        let from = bench.context.refuse_older_writers(bench.state.id(), |from| told = from).unwrap();
        assert_eq!(told, from);
        let later = bench.begin(level);
        assert!(later.sees(from) && !cut.sees(from));
        bench.put(&later, 2, 21);
        commit(&later).unwrap();
        if level == Isolation::ReadCommitted {
            // A new statement has a new snapshot, but what was written before it was written too early.
            assert!(matches!(cut.next_statement(), Err(Error::Conflict { .. })));
        }
        assert!(matches!(commit(&cut), Err(Error::Conflict { .. })), "{level:?}");
        assert_eq!(reader.read(&bench.state, &key(1), |_| ()).unwrap(), Some(()));
        commit(&reader).unwrap();
        commit(&elsewhere).unwrap();
    }
}

#[test]
fn what_a_transaction_holds_is_released_with_its_writes() {
    let bench = bench(Protocol::MvccInPlace);
    let context = &bench.context;
    let held = |tx: &Transaction| {
        let held: Arc<dyn Send + Sync> = Arc::new(7);
        tx.hold(Arc::clone(&held));
        Arc::downgrade(&held)
    };
    let begin = || bench.begin(Isolation::ReadCommitted);
    let first = begin();
    let of_first = held(&first);
    bench.put(&first, 1, 11);
    let next = first.next_statement().unwrap();
    drop(first);
    let before = begin();
    let mark = before.snapshot_mark();
    assert_eq!(of_first.strong_count(), 1, "the writes are those of the next statement");
    next.commit(Durability::None).unwrap();
    assert_eq!(of_first.strong_count(), 0, "a commit");
    let after = begin();
    assert!(context.all_see_all_of(&mark) && !context.all_see_all_of(&after.snapshot_mark()));
    drop(before);
    assert!(context.all_see_all_of(&after.snapshot_mark()));
    let of_after = held(&after);
    after.abort();
    assert_eq!(of_after.strong_count(), 0, "an abort");
    let (one, other) = (begin(), begin());
    bench.put(&one, 2, 21);
    bench.put(&other, 2, 22);
    let of_other = held(&other);
    one.commit(Durability::None).unwrap();
    other.commit(Durability::None).unwrap_err();
    assert_eq!(of_other.strong_count(), 0, "a conflict");
}
