//! Tests of the journal's guarantees under several threads, truncated at every position.

#![allow(clippy::unwrap_used)]

use crate::offset::PoolOffset;
use crate::{DomainChoice, JournalOptions, Pool, PoolOptions};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

fn options(checkpoint_bytes: u64) -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes,
            journal_bytes_max: 4 * checkpoint_bytes,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    }
}

/// An object of eight words that a root names.
fn make_object(pool: &Arc<Pool>) -> PoolOffset {
    let object = pool.reserve(64).unwrap();
    let at = object.offset();
    pool.words(at, 8).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    pool.flush(at, 64);
    let mut publication = pool.publication();
    publication.allocate(object);
    publication.set_root("words", at).unwrap();
    publication.publish().unwrap();
    at
}

/// Counts in two words of one line, the second only after the first was flushed and fenced.
fn count_in_pairs(pool: &Arc<Pool>, at: PoolOffset, rounds: u64) {
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (first, second) = (at.plus(thread * 16), at.plus(thread * 16).plus(8));
            scope.spawn(move || {
                for round in 1..=rounds {
                    for word in [first, second] {
                        pool.word(word).store(round, Ordering::Release);
                        pool.flush(word, 8);
                        pool.fence();
                    }
                    if round.is_multiple_of(64) {
                        pool.sync().unwrap();
                    }
                }
            });
        }
    });
}

fn pairs(pool: &Pool) -> Vec<(u64, u64)> {
    let at = pool.root("words").unwrap();
    let words: Vec<u64> = pool.words(at, 8).iter().map(|word| word.load(Ordering::Relaxed)).collect();
    words.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn threads_that_share_a_line_lose_nothing_over_many_checkpoints() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options(64 << 10)).unwrap();
    let at = make_object(&pool);
    count_in_pairs(&pool, at, 10_000);
    pool.sync().unwrap();
    assert!(pool.stats().checkpoints > 3, "{:?}", pool.stats());
    drop(pool);
    let pool = Pool::open(dir.path(), &options(64 << 10)).unwrap();
    assert_eq!(pairs(&pool), [(10_000, 10_000); 4]);
}

#[test]
fn wherever_the_journal_is_cut_no_flush_overtakes_a_fence() {
    let dir = TempDir::new().unwrap();
    let roomy = options(16 << 20);
    let pool = Pool::create(dir.path(), &roomy).unwrap();
    let at = make_object(&pool);
    pool.sync().unwrap();
    count_in_pairs(&pool, at, 1_600);
    drop(pool);
    let (journal, file) = (dir.path().join("journal.entresol"), dir.path().join("pool.entresol"));
    let (good_journal, good_file) = (fs::read(&journal).unwrap(), fs::read(&file).unwrap());
    let frames: Vec<usize> = (0..good_journal.len())
        .step_by(4096)
        .filter(|at| &good_journal[*at..at + 4] == b"EFRM")
        .skip(1)
        .collect();
    assert!(frames.len() > 10);
    let mut seen = std::collections::BTreeSet::new();
    for cut in frames {
        let mut torn = good_journal.clone();
        torn[cut..].fill(0);
        fs::write(&journal, &torn).unwrap();
        fs::write(&file, &good_file).unwrap();
        let pool = Pool::open(dir.path(), &roomy).unwrap();
        for (first, second) in pairs(&pool) {
            assert!(first == second || first == second + 1, "first {first}, second {second}");
            seen.insert(first);
        }
    }
    assert!(seen.len() > 5, "the cuts fall into the history: {seen:?}");
}

#[test]
fn what_a_thread_flushed_comes_before_its_publication_and_before_what_others_do_after_its_fence() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options(1 << 20)).unwrap();
    let at = make_object(&pool);
    let (journal, file) = (dir.path().join("journal.entresol"), dir.path().join("pool.entresol"));
    let mut killed = Vec::new();
    for round in 1..=20 {
        pool.word(at).store(round, Ordering::Release);
        pool.flush(at, 8);
        if round % 2 == 0 {
            let mut publication = pool.publication();
            publication.set(at.plus(8), round);
            publication.publish().unwrap();
        } else {
            pool.fence();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if round % 2 == 1 {
                    pool.word(at.plus(8)).store(round, Ordering::Release);
                    pool.flush(at.plus(8), 8);
                }
                pool.sync().unwrap();
            });
        });
        killed.push((fs::read(&journal).unwrap(), fs::read(&file).unwrap()));
    }
    drop(pool);
    for (round, (left_journal, left_file)) in (1..).zip(killed) {
        fs::write(&journal, left_journal).unwrap();
        fs::write(&file, left_file).unwrap();
        let pool = Pool::open(dir.path(), &options(1 << 20)).unwrap();
        assert_eq!(pairs(&pool)[0], (round, round));
    }
}

#[test]
fn a_group_commit_becomes_durable_without_being_asked_again() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options(1 << 20)).unwrap();
    let at = make_object(&pool);
    let syncs = pool.stats().syncs;
    pool.word(at).store(7, Ordering::Release);
    pool.flush(at, 8);
    pool.persist(crate::Durability::Group { interval_ms: 5 }).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while pool.stats().syncs == syncs {
        assert!(std::time::Instant::now() < deadline, "no sync happened");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let journal = fs::read(dir.path().join("journal.entresol")).unwrap();
    let file = fs::read(dir.path().join("pool.entresol")).unwrap();
    drop(pool);
    // The content of the disk at that point is enough.
    fs::write(dir.path().join("journal.entresol"), journal).unwrap();
    fs::write(dir.path().join("pool.entresol"), file).unwrap();
    let pool = Pool::open(dir.path(), &options(1 << 20)).unwrap();
    assert_eq!(pairs(&pool)[0].0, 7);
}
