//! Tests of words that change together: alone, in threads, and under the crash checker; with the mutants that
//! it must find.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::crash_histories::leave_junk;
use entresol_memory::PoolOffset;
use entresol_memory::crash::{CrashOptions, CrashReport, Recorder, check_at, seeds, take_turns};
use entresol_memory::{Env, PoolOptions, Result as MemoryResult};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

const WORDS: u64 = 12;
const ROOT: &str = "pmwcas";
const TARGETS: &str = "words";

/// Creates descriptors, and words that are all 0.
fn set_up(pool: &Arc<Pool>, descriptors: usize) -> (PmwCas, PoolOffset) {
    leave_junk(pool, 1024).unwrap();
    let object = pool.reserve(WORDS as usize * 8).unwrap();
    let at = object.offset();
    pool.words(at, WORDS as usize).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    pool.flush(at, WORDS as usize * 8);
    let mut with = pool.publication();
    with.allocate(object);
    let root = PmwCas::create(pool, descriptors, &mut with).unwrap();
    with.set_root(TARGETS, at).unwrap();
    with.set_root(ROOT, root).unwrap();
    with.publish().unwrap();
    (PmwCas::open(pool, root).unwrap(), at)
}

fn small_pool() -> Arc<Pool> {
    Pool::volatile(&PoolOptions { extent_bytes: 1 << 20, ..PoolOptions::default() }).unwrap()
}

proptest! {
    #[test]
    fn all_words_change_or_none(operations in prop::collection::vec(
        prop::collection::btree_map(0..WORDS, (0u64..3, 0u64..3), 1..=WORDS_MAX), 1..60,
    )) {
        let pool = small_pool();
        let (pmwcas, at) = set_up(&pool, 4);
        let mut model = vec![0; WORDS as usize];
        for operation in operations {
            let swaps: Vec<Swap> =
                operation.iter().map(|(word, (old, new))| Swap { at: at.plus(word * 8), old: *old, new: *new }).collect();
            let expected = operation.iter().all(|(word, (old, _))| model[*word as usize] == *old);
            prop_assert_eq!(pmwcas.compare_and_swap(&swaps).unwrap(), expected);
            if expected {
                operation.iter().for_each(|(word, (_, new))| model[*word as usize] = *new);
            }
            let found: Vec<u64> = (0..WORDS).map(|word| pmwcas.read(at.plus(word * 8)).unwrap()).collect();
            prop_assert_eq!(&found, &model);
        }
        prop_assert_eq!(pmwcas.unfinished(), 0);
    }
}

#[test]
fn calls_that_make_no_sense_are_refused() {
    let pool = small_pool();
    let (pmwcas, at) = set_up(&pool, 4);
    let swap = |at, old, new| Swap { at, old, new };
    let many: Vec<Swap> = (0..9).map(|word| swap(at.plus(word * 8), 0, 1)).collect();
    for (swaps, message) in [
        (vec![], "0 words"),
        (many, "9 words"),
        (vec![swap(at, 0, 1), swap(at.plus(8), 0, 1), swap(at, 0, 2)], "twice"),
        (vec![swap(at, 0, VALUE_MAX + 1)], "61 bits"),
        (vec![swap(at, 1 << 63, 1)], "61 bits"),
        (vec![swap(at.plus(4), 0, 1)], "not the offset of a word"),
        (vec![swap(PoolOffset::new(1 << 40), 0, 1)], "not the offset of a word"),
        (vec![swap(PoolOffset::NULL, 0, 1)], "not the offset of a word"),
    ] {
        let error = pmwcas.compare_and_swap(&swaps).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    assert!(pmwcas.compare_and_swap(&[swap(at, 0, VALUE_MAX)]).unwrap());
    assert!(PmwCas::create(&pool, 0, &mut pool.publication()).is_err());
    assert!(PmwCas::create(&pool, DESCRIPTORS_MAX + 1, &mut pool.publication()).is_err());
}

#[test]
fn damaged_headers_are_refused() {
    let pool = small_pool();
    let (pmwcas, _) = set_up(&pool, 4);
    let root = pmwcas.root_offset();
    for (word, bit) in (0..3).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
        pool.word(root.plus(word * 8)).fetch_xor(1 << bit, Ordering::Relaxed);
        assert!(matches!(PmwCas::open(&pool, root), Err(Error::Corrupt { .. })), "bit {bit} of word {word}");
        pool.word(root.plus(word * 8)).fetch_xor(1 << bit, Ordering::Relaxed);
    }
    for wild in [0, 8, 64, 1 << 40, u64::MAX - 63].map(PoolOffset::new) {
        assert!(matches!(PmwCas::open(&pool, wild), Err(Error::Corrupt { .. })), "{wild:#x}");
    }
    // Any words in descriptors: no panic.
    let env = Env::simulated(5);
    for _ in 0..2000 {
        let at = root.plus(256).plus(env.random_u64() % (4 * 32) * 8);
        pool.word(at).store(env.random_u64() >> (env.random_u64() % 64), Ordering::Relaxed);
        let _ = PmwCas::open(&pool, root);
    }
}

#[test]
fn a_word_that_names_no_operation_is_damaged() {
    let pool = small_pool();
    let (pmwcas, at) = set_up(&pool, 16);
    // Not the descriptors of the operations below.
    for damage in [1 << 62 | 15, 3 << 62 | 14, 1 << 62 | 16, u64::MAX, 1 << 61 | 15 << 3, 1 << 61 | 99 << 3] {
        pool.word(at.plus(8)).store(damage, Ordering::Relaxed);
        assert!(matches!(pmwcas.read(at.plus(8)), Err(Error::Corrupt { .. })), "{damage:#x}");
        let swaps = [Swap { at, old: 0, new: 1 }, Swap { at: at.plus(8), old: 0, new: 1 }];
        assert!(matches!(pmwcas.compare_and_swap(&swaps), Err(Error::Corrupt { .. })), "{damage:#x}");
        assert_eq!(pmwcas.read(at).unwrap(), 0, "taken back");
    }
    assert!(matches!(pmwcas.read(PoolOffset::new(4)), Err(Error::Invalid(_))));
}

#[test]
fn a_range_that_is_freed_is_forgotten() {
    let pool = small_pool();
    let (pmwcas, at) = set_up(&pool, 1);
    assert!(pmwcas.compare_and_swap(&[Swap { at, old: 0, new: 1 }]).unwrap());
    pmwcas.forget(at, WORDS * 8);
    drop(pmwcas);
    // The word looks in flight, but its descriptor belongs to another operation now.
    pool.word(at).store(1 << 62, Ordering::Relaxed);
    PmwCas::open(&pool, pool.root(ROOT).unwrap()).unwrap();
    assert_eq!(pool.word(at).load(Ordering::Relaxed), 1 << 62);
}

/// Threads move amounts between words: sums stay, no reader sees a word in flight, every success is counted.
#[test]
fn threads_move_amounts_and_lose_none() {
    let pool = small_pool();
    // Fewer descriptors than threads would like: they wait for each other's readers.
    let (pmwcas, at) = set_up(&pool, 8);
    let start = [Swap { at, old: 0, new: 30_000 }];
    assert!(pmwcas.compare_and_swap(&start).unwrap());
    let moves = |thread: u64| {
        let env = Env::simulated(thread);
        let mut moved = vec![0i64; WORDS as usize];
        for _ in 0..4000 {
            let count = 2 + env.random_u64() % 3;
            let first = env.random_u64() % WORDS;
            let words: Vec<u64> = (0..count).map(|i| (first + i * 5) % WORDS).collect();
            let values: Vec<u64> = words.iter().map(|word| pmwcas.read(at.plus(word * 8)).unwrap()).collect();
            assert!(values.iter().all(|value| *value <= 30_000), "{values:?}");
            let all: u64 = values.iter().sum();
            let mut swaps: Vec<Swap> = words
                .iter()
                .zip(&values)
                .map(|(word, old)| Swap { at: at.plus(word * 8), old: *old, new: all / count })
                .collect();
            swaps[0].new += all % count;
            if pmwcas.compare_and_swap(&swaps).unwrap() {
                words.iter().zip(&swaps).for_each(|(word, swap)| {
                    moved[*word as usize] += swap.new as i64 - swap.old as i64;
                });
            }
        }
        moved
    };
    let moved: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let moves = &moves;
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || moves(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let values: Vec<u64> = (0..WORDS).map(|word| pmwcas.read(at.plus(word * 8)).unwrap()).collect();
    assert_eq!(values.iter().sum::<u64>(), 30_000);
    for word in 0..WORDS as usize {
        let balance: i64 = moved.iter().map(|moved| moved[word]).sum();
        assert_eq!(values[word] as i64, balance + if word == 0 { 30_000 } else { 0 }, "word {word}");
    }
    assert_eq!(pmwcas.unfinished(), 0);
}

/// The values of words after all operations that returned, without those that are 0.
type Content = BTreeMap<u64, u64>;

fn content(pmwcas: &PmwCas, at: PoolOffset) -> Result<Content> {
    let mut content = Content::new();
    for word in 0..WORDS {
        content.insert(word, pmwcas.read(at.plus(word * 8))?);
    }
    content.retain(|_, value| *value != 0);
    Ok(content)
}

/// Many words at once, as one operation of a model: word 0 represents all of them.
#[derive(Clone, Debug, PartialEq)]
struct Words(Content);

impl entresol_memory::crash::Model for Words {
    type Operation = Vec<(u64, u64)>;

    fn apply(&mut self, operation: &Self::Operation) {
        for (word, new) in operation {
            self.0.insert(*word, *new);
        }
    }

    fn difference(&self, found: &Self) -> String {
        format!("found {found:?}, expected {self:?}")
    }
}

fn reopened(pool: &Arc<Pool>) -> std::result::Result<Option<(PmwCas, PoolOffset)>, String> {
    let Some(root) = pool.root(ROOT) else { return Ok(None) };
    let at = pool.root(TARGETS).ok_or("the words are gone")?;
    let pmwcas = PmwCas::open(pool, root).map_err(|error| error.to_string())?;
    // Unless a mutant prevents recovery, no operation is left unfinished.
    if pmwcas.unfinished() > 0 {
        return Err(format!("{} operations are not finished", pmwcas.unfinished()));
    }
    Ok(Some((pmwcas, at)))
}

fn crashes(operations: u64, options: &CrashOptions) -> MemoryResult<CrashReport> {
    let recorder = Recorder::new(Words(Content::new()));
    let recorded = Arc::clone(&recorder);
    let seed = options.seed;
    let history = move |pool: &Arc<Pool>| {
        let (pmwcas, at) = set_up(pool, 3);
        let env = Env::simulated(seed);
        for i in 1..=operations {
            let count = 1 + env.random_u64() % WORDS_MAX as u64;
            let first = env.random_u64() % WORDS;
            let words: Vec<(u64, u64)> = (0..count).map(|k| ((first + k * 5) % WORDS, i * 16 + k)).collect();
            let swaps: Vec<Swap> = words
                .iter()
                .map(|(word, new)| Swap {
                    at: at.plus(word * 8),
                    old: pmwcas.read(at.plus(word * 8)).unwrap(),
                    new: *new,
                })
                .collect();
            assert!(recorded.run(words, || pmwcas.compare_and_swap(&swaps).unwrap()));
            if i % 4 == 0 {
                // One that fails changes nothing.
                let wrong = [swaps[0], Swap { at: at.plus((first + 1) % WORDS * 8), old: 7, new: 8 }];
                assert!(!recorded.run(Vec::new(), || pmwcas.compare_and_swap(&wrong).unwrap()));
            }
        }
        Ok(())
    };
    check_at(options, history, recorder.legal_contents(), |pool, legal| {
        let Some((pmwcas, at)) = reopened(pool)? else { return legal.judge(&Words(Content::new())) };
        legal.judge(&Words(content(&pmwcas, at).map_err(|error| error.to_string())?))?;
        // The recovered words still work; the same values, so that it may crash meanwhile.
        let value = pmwcas.read(at).map_err(|error| error.to_string())?;
        let same = [Swap { at, old: value, new: value }];
        let swapped = pmwcas.compare_and_swap(&same).map_err(|error| error.to_string())?;
        if swapped { Ok(()) } else { Err("a word that is as expected was not swapped".to_string()) }
    })
}

#[test]
fn every_fence_may_be_the_last() {
    let mut total = CrashReport::default();
    for seed in seeds(2) {
        let options =
            CrashOptions { seed, random_states: 4, crash_recovery_every: 41, ..CrashOptions::default() };
        total.add(&crashes(60, &options).unwrap());
    }
    println!("{total:?}");
    assert!(total.replayed || total.distinct >= 10_000, "{total:?}");
}

/// Two threads in turns, each counting in its own word and both in a third: after a crash the third is the
/// sum, and no returned operation is lost.
fn helped(seed: u64) -> MemoryResult<CrashReport> {
    let counted: Arc<[AtomicU64; 2]> = Arc::default();
    let (counts, moment) = (Arc::clone(&counted), Arc::clone(&counted));
    let options = CrashOptions { seed, random_states: 6, crash_recovery_every: 0, ..CrashOptions::default() };
    let history = move |pool: &Arc<Pool>| {
        let (pmwcas, at) = set_up(pool, 6);
        let (pmwcas, counts) = (&pmwcas, &counts);
        let thread = |own: u64| {
            move || {
                for i in 0..25 {
                    loop {
                        let sum = pmwcas.read(at.plus(16)).unwrap();
                        let swaps = [
                            Swap { at: at.plus(own * 8), old: i, new: i + 1 },
                            Swap { at: at.plus(16), old: sum, new: sum + 1 },
                        ];
                        if pmwcas.compare_and_swap(&swaps).unwrap() {
                            break;
                        }
                    }
                    counts[own as usize].store(i + 1, Ordering::Release);
                }
            }
        };
        take_turns(seed, vec![Box::new(thread(0)), Box::new(thread(1))]);
        assert_eq!(
            (pmwcas.read(at).unwrap(), pmwcas.read(at.plus(8)).unwrap(), pmwcas.read(at.plus(16)).unwrap()),
            (25, 25, 50)
        );
        Ok(())
    };
    let moment = move || [0, 1].map(|i: usize| moment[i].load(Ordering::Acquire));
    check_at(&options, history, moment, |pool, returned: &[u64; 2]| {
        let Some((pmwcas, at)) = reopened(pool)? else { return Ok(()) };
        let found = [0, 1, 2].map(|word| pmwcas.read(at.plus(word * 8)).unwrap());
        if found[0] + found[1] != found[2] {
            return Err(format!("{found:?} do not add up"));
        }
        for (found, returned) in found.iter().zip(returned) {
            if !(*returned..=returned + 1).contains(found) {
                return Err(format!("{found} operations are there, {returned} had returned"));
            }
        }
        Ok(())
    })
}

#[test]
fn helpers_survive_crashes() {
    let mut total = CrashReport::default();
    seeds(3).for_each(|seed| total.add(&helped(seed).unwrap()));
    println!("{total:?}");
    assert!(total.explored(5000), "{total:?}");
}

/// Words whose memory is used for something else, which looks like a word in flight, after another thread has
/// made an operation forget them: before and after an open, from entries that count and from those behind.
fn forgotten() -> MemoryResult<CrashReport> {
    const LOOKS_IN_FLIGHT: u64 = 1 << 62;
    const REUSED: [&str; 2] = ["reused", "reused after an open"];
    let history = move |pool: &Arc<Pool>| {
        let (pmwcas, at) = set_up(pool, 1);
        let root = pmwcas.root_offset();
        let count = |words: &[PoolOffset]| {
            let up = |at| {
                let old = pmwcas.read(at).unwrap();
                Swap { at, old, new: old + 1 }
            };
            let swaps: Vec<Swap> = words.iter().map(|at| up(*at)).collect();
            assert!(pmwcas.compare_and_swap(&swaps).unwrap());
        };
        // Entries are in the order of their words: the one that stays behind is the last.
        let others = [0, 1].map(|word| at.plus(word * 8));
        for (number, name) in (0..).zip(REUSED) {
            let word = at.plus((8 + number) * 8);
            count(&[others[0], word]);
            count(&others[..1]);
            let forget = || match number {
                0 => pmwcas.forget(word, 8),
                _ => PmwCas::open(pool, root).unwrap().forget(word, 8),
            };
            std::thread::scope(|scope| scope.spawn(forget).join().expect("it does not panic"));
            let mut publication = pool.publication();
            publication.set(word, LOOKS_IN_FLIGHT);
            publication.set_root(name, word)?;
            publication.publish()?;
            count(&others);
            count(&others);
        }
        Ok(())
    };
    let options = CrashOptions { crash_recovery_every: 5, ..CrashOptions::default() };
    entresol_memory::crash::check(&options, history, |pool| {
        let Some(root) = pool.root(ROOT) else { return Ok(()) };
        PmwCas::open(pool, root).map_err(|error| error.to_string())?;
        let words = REUSED.into_iter().filter_map(|name| Some((name, pool.root(name)?)));
        let mut changed = words.filter(|(_, at)| pool.word(*at).load(Ordering::Relaxed) != LOOKS_IN_FLIGHT);
        changed.next().map_or(Ok(()), |(name, _)| Err(format!("an open changes the word that is {name}")))
    })
}

#[test]
fn memory_that_was_forgotten_can_be_used_again_after_a_crash() {
    let report = forgotten().unwrap();
    assert!(report.states > 20, "{report:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_operations_is_caught() {
    use crate::listed::{LIST, Test};
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    let run = || {
        crashes(30, &CrashOptions { crash_recovery_every: 7, ..CrashOptions::default() })?;
        forgotten()?;
        (0..3).try_for_each(|seed| helped(seed).map(drop))
    };
    run().unwrap();
    assert!(check_all(crate::POINTS, LIST, Test::PmwCas, run) >= 5);
}
