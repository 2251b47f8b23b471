//! Allocation and publication under the crash checker, and the checker against bugs.

use entresol_memory::crash::{
    ConcurrentRecorder, CrashOptions, CrashReport, REPLAY, check, check_at, check_seeds, check_stack,
    take_turns,
};
use entresol_memory::{Pool, PoolOffset, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn no_crash_state_leaks_an_object_or_loses_a_step() {
    let report = check_seeds("stack", 6, |seed| {
        check_stack(&CrashOptions { crash_recovery_every: 3, ..CrashOptions::with_seed(seed) }, 150)
    })
    .unwrap();
    assert!(report.explored(250_000), "{report:?}");
}

#[test]
fn recoveries_that_crash_twice_in_a_row_recover() {
    let options = CrashOptions { recovery_depth: 2, crash_recovery_every: 7, ..CrashOptions::with_seed(9) };
    let report = check_stack(&options, 12).unwrap();
    assert!(report.explored(3_000), "{report:?}");
}

/// Allocates an object of 16 words under the name "words".
fn words(pool: &Arc<Pool>) -> Result<PoolOffset> {
    let object = pool.reserve(128)?;
    let at = object.offset();
    pool.words(at, 16).iter().for_each(|w| w.store(0, Ordering::Relaxed));
    pool.flush(at, 128);
    let mut publication = pool.publication();
    publication.allocate(object);
    publication.set_root("words", at)?;
    publication.publish()?;
    Ok(at)
}

fn store(pool: &Pool, offset: PoolOffset, value: u64) {
    pool.word(offset).store(value, Ordering::Release);
    pool.flush(offset, 8);
}

/// Stores two words on two lines, the second never ahead of the first.
fn check_order(flush: bool, fence: bool) -> Result<CrashReport> {
    check(
        &CrashOptions::default(),
        move |pool| {
            let at = words(pool)?;
            for round in 1..10 {
                pool.word(at).store(round, Ordering::Release);
                if flush {
                    pool.flush(at, 8);
                }
                if fence {
                    pool.fence();
                }
                store(pool, at.plus(64), round);
                pool.fence();
            }
            Ok(())
        },
        |pool| {
            let Some(at) = pool.root("words") else { return Ok(()) };
            let read = |offset| pool.word(offset).load(Ordering::Acquire);
            let (a, b) = (read(at), read(at.plus(64)));
            if a >= b { Ok(()) } else { Err(format!("a = {a}, b = {b}")) }
        },
    )
}

#[test]
fn the_checker_finds_a_missing_flush_and_a_missing_fence() {
    check_order(true, true).unwrap();
    for (flush, fence) in [(false, true), (true, false), (false, false)] {
        let error = check_order(flush, fence).unwrap_err().to_string();
        assert!(error.contains("(seed 1)") && error.contains(REPLAY), "{error}");
    }
}

#[test]
fn all_combinations_of_few_words_are_seen_each_once() {
    let seen = Arc::new(parking_lot::Mutex::new(BTreeMap::<[u64; 3], u32>::new()));
    let found = seen.clone();
    let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::default() };
    check(
        &options,
        |pool| {
            let at = words(pool)?;
            seen.lock().clear();
            // Twice flushed, once flushed, and only stored, all before one fence.
            store(pool, at, 1);
            store(pool, at, 2);
            store(pool, at.plus(8), 3);
            pool.word(at.plus(16)).store(4, Ordering::Release);
            pool.fence();
            Ok(())
        },
        move |pool| {
            let Some(at) = pool.root("words") else { return Ok(()) };
            let words: [u64; 3] = std::array::from_fn(|i| pool.word(at.word(i)).load(Ordering::Acquire));
            *found.lock().entry(words).or_default() += 1;
            Ok(())
        },
    )
    .unwrap();
    let mut expected = BTreeMap::new();
    for a in [0, 1, 2] {
        for b in [0, 3] {
            for c in [0, 4] {
                // At the end of the history only the word that was never flushed is free.
                expected.insert([a, b, c], if (a, b) == (2, 3) { 2 } else { 1 });
            }
        }
    }
    assert_eq!(*seen.lock(), expected);
}

#[test]
fn what_was_stored_before_an_earlier_fence_may_have_been_evicted_then() {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let found = seen.clone();
    check(
        &CrashOptions { crash_recovery_every: 0, ..CrashOptions::default() },
        |pool| {
            let at = words(pool)?;
            pool.word(at).store(1, Ordering::Release);
            pool.fence();
            pool.word(at).store(2, Ordering::Release);
            seen.lock().clear();
            Ok(())
        },
        move |pool| {
            let Some(at) = pool.root("words") else { return Ok(()) };
            found.lock().push(pool.word(at).load(Ordering::Acquire));
            Ok(())
        },
    )
    .unwrap();
    seen.lock().sort_unstable();
    assert_eq!(*seen.lock(), [0, 1, 2]);
}

#[test]
fn a_fence_of_one_thread_does_not_stand_in_for_anothers() {
    let check = |own_fence: bool| {
        check(
            &CrashOptions::default(),
            move |pool| {
                let at = words(pool)?;
                store(pool, at, 1);
                if own_fence {
                    pool.fence();
                }
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        pool.fence();
                        store(pool, at.plus(64), 1);
                        pool.fence();
                    });
                });
                Ok(())
            },
            |pool| {
                let Some(at) = pool.root("words") else { return Ok(()) };
                let read = |offset| pool.word(offset).load(Ordering::Acquire);
                if read(at) >= read(at.plus(64)) { Ok(()) } else { Err("b without a".to_string()) }
            },
        )
    };
    check(true).unwrap();
    assert!(check(false).unwrap_err().to_string().contains("b without a"));
}

#[derive(Debug)]
enum OnRegister {
    Get,
    Swap(u64),
}

fn apply(value: &mut Option<u64>, operation: &OnRegister) -> Option<u64> {
    match operation {
        OnRegister::Get => *value,
        OnRegister::Swap(new) => value.replace(*new),
    }
}

/// Two threads use four registers in turns; each register is one word, written in place.
fn check_registers(seed: u64, readers_flush: bool) -> Result<CrashReport> {
    let recorder: Arc<ConcurrentRecorder<u64, u64, _, _>> = ConcurrentRecorder::new(2, apply);
    let recorded = Arc::clone(&recorder);
    check_at(
        &CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) },
        move |pool| {
            let at = words(pool)?;
            let thread = |thread: usize| {
                let (recorded, pool) = (&recorded, &pool);
                move || {
                    let env = entresol_memory::Env::simulated(seed * 2 + thread as u64);
                    for round in 0..30 {
                        let (register, value) = (env.random_u64() % 4, round * 2 + thread as u64 + 1);
                        let word = at.plus(8 * register);
                        let reads = env.random_u64().is_multiple_of(2);
                        let operation = if reads { OnRegister::Get } else { OnRegister::Swap(value) };
                        recorded.run(thread, register, operation, || {
                            let before = if reads {
                                pool.word(word).load(Ordering::Acquire)
                            } else {
                                pool.word(word).swap(value, Ordering::AcqRel)
                            };
                            if readers_flush || !reads {
                                pool.flush(word, 8);
                                pool.fence();
                            }
                            (before != 0).then_some(before)
                        });
                    }
                }
            };
            take_turns(seed, vec![Box::new(thread(0)), Box::new(thread(1))]);
            Ok(())
        },
        recorder.legal_contents(),
        |pool, legal| {
            let Some(at) = pool.root("words") else { return legal.judge(&BTreeMap::new()) };
            let words = pool.words(at, 4).iter().map(|word| word.load(Ordering::Acquire));
            legal.judge(&(0..).zip(words).filter(|(_, value)| *value != 0).collect())
        },
    )
}

/// A value that was read and then lost by a crash: the bug that Durinn found in published indexes.
#[test]
fn a_read_of_what_is_not_yet_durable_is_found() {
    for seed in 1..10 {
        check_registers(seed, true).unwrap();
    }
    let error = (1..10).find_map(|seed| check_registers(seed, false).err()).unwrap().to_string();
    assert!(error.contains("no order"), "{error}");
}

#[test]
fn a_recovery_that_makes_the_pool_longer_can_crash() {
    let options = CrashOptions { crash_recovery_every: 1, ..CrashOptions::with_seed(2) };
    let grown = Arc::new(AtomicU64::new(0));
    let seen = grown.clone();
    let history = |pool: &Arc<Pool>| words(pool).map(drop);
    let report = check(&options, history, move |pool| {
        seen.fetch_max(pool.bytes(), Ordering::AcqRel);
        // An extent has three chunks to allocate; any of these objects that survives is intact.
        for name in ["a", "b", "c", "d"] {
            if let Some(at) = pool.root(name) {
                let first = pool.word(at).load(Ordering::Acquire);
                if first != 7 || pool.object_bytes(at) < 60_000 {
                    return Err(format!("{name} begins with {first}"));
                }
                continue;
            }
            let object = pool.reserve(60_000).map_err(|error| error.to_string())?;
            let mut publication = pool.publication();
            publication.write(object.offset(), 7);
            let at = publication.allocate(object);
            publication.set_root(name, at).map_err(|error| error.to_string())?;
            publication.publish().map_err(|error| error.to_string())?;
        }
        Ok(())
    });
    let report = report.unwrap();
    assert!(
        grown.load(Ordering::Acquire) > options.extent_bytes,
        "states with a second extent were recovered"
    );
    assert!(report.explored(500), "{report:?}");
}

/// Number of states that the last check of this process has judged.
static JUDGED: AtomicU64 = AtomicU64::new(0);

/// Fails in two ways: in states of the history, or only in states that a crash of a recovery leaves (the
/// verification writes as wrongly as the history).
fn check_forced_failure(in_recovery: bool) -> Result<CrashReport> {
    JUDGED.store(0, Ordering::Release);
    let write = |pool: &Pool, at: PoolOffset, value: u64| {
        pool.word(at.plus(64)).store(value, Ordering::Release);
        pool.word(at).store(value, Ordering::Release);
        pool.flush(at, 8);
        pool.flush(at.plus(64), 8);
        pool.fence();
    };
    let crash_recovery_every = u64::from(in_recovery);
    let options = CrashOptions { crash_recovery_every, ..CrashOptions::with_seed(8) };
    check(
        &options,
        move |pool| {
            let at = words(pool)?;
            if !in_recovery {
                write(pool, at, 1);
            }
            Ok(())
        },
        move |pool| {
            JUDGED.fetch_add(1, Ordering::AcqRel);
            let Some(at) = pool.root("words") else { return Ok(()) };
            let read = |offset| pool.word(offset).load(Ordering::Acquire);
            if read(at) < read(at.plus(64)) {
                return Err("b without a".to_string());
            }
            if in_recovery {
                write(pool, at, 2);
            }
            Ok(())
        },
    )
}

#[test]
#[ignore = "made to fail: a_failing_state_is_replayed_alone runs it, in a process of its own"]
fn forced_failure() {
    let error = check_forced_failure(false).unwrap_err();
    println!("{} judged; {error}", JUDGED.load(Ordering::Acquire));
}

#[test]
#[ignore = "made to fail: a_failing_state_is_replayed_alone runs it, in a process of its own"]
fn forced_failure_in_recovery() {
    let error = check_forced_failure(true).unwrap_err();
    println!("{} judged; {error}", JUDGED.load(Ordering::Acquire));
}

#[test]
fn a_failing_state_is_replayed_alone() {
    // A state of a recovery needs the state that it recovers as well: both are judged.
    for (test, judged_alone) in [("crash::forced_failure", 1), ("crash::forced_failure_in_recovery", 2)] {
        let run = |trail: &str| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", test, "--ignored", "--nocapture"]).env(REPLAY, trail);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let all = run("");
        let judged = |output: &str| -> u64 {
            let line = output.lines().find(|line| line.contains(" judged; ")).unwrap();
            line.split(" judged").next().unwrap().split_whitespace().last().unwrap().parse().unwrap()
        };
        assert!(judged(&all) > 20, "{all}");
        let command = all.lines().find(|line| line.starts_with(REPLAY)).unwrap();
        assert!(command.contains("cargo test -p entresol-memory --test memory") && command.contains(test));
        let trail = command.split('\'').nth(1).unwrap();
        assert_eq!(trail.contains('/'), test != "crash::forced_failure", "{trail}");
        let alone = run(trail);
        assert_eq!(judged(&alone), judged_alone, "{alone}");
        assert!(alone.contains(&format!("{REPLAY}='{trail}'")), "{alone}");
    }
}

#[test]
fn one_seed_gives_one_interleaving() {
    let run = |seed| {
        let order = std::sync::Mutex::new(Vec::new());
        let history = |pool: &Arc<Pool>| {
            let thread = |thread: u64| {
                let order = &order;
                move || {
                    for _ in 0..50 {
                        order.lock().unwrap().push(thread);
                        store(pool, PoolOffset::new(1 << 17), thread);
                    }
                }
            };
            take_turns(seed, vec![Box::new(thread(1)), Box::new(thread(2)), Box::new(thread(3))]);
            Ok(())
        };
        check(&CrashOptions::default(), history, |_| Ok(())).unwrap();
        order.into_inner().unwrap()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}
