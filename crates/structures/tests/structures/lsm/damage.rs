//! Damaged trees: an error, or the complete content. No panic, no wrong answer, and nothing valid is freed.

use super::{create, in_caller, volatile_pool};
use entresol_memory::{Pool, PoolOffset};
use entresol_structures::lsm::{LsmOptions, LsmParameters, LsmTree};
use entresol_structures::{Error, FpTree, WordKey};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const KEYS: u64 = 117;
const PARAMETERS: LsmParameters =
    LsmParameters { buffer_entries: 16, buffers: 2, runs_per_level: 2, pool_levels: 2, disk_levels: 1 };

struct Whole {
    pool: Arc<Pool>,
    root: PoolOffset,
    dir: TempDir,
    objects: Vec<(PoolOffset, u64)>,
}

/// Keys with gaps: a flipped low bit leaves them in order.
const GAP: u64 = 6;

fn value(key: u64) -> Option<u64> {
    (key % 7 != 3).then_some(!key)
}

fn whole() -> Whole {
    let (pool, dir) = (volatile_pool(9), TempDir::new().unwrap());
    let root = create::<u64>(&pool, &PARAMETERS);
    let tree = LsmTree::<u64>::open(&pool, root, &in_caller(Some(dir.path()))).unwrap();
    for key in 0..KEYS {
        match value(key) {
            Some(value) => tree.upsert(key * GAP, value, pool.publication()).unwrap(),
            None => tree.delete(key * GAP, pool.publication()).unwrap(),
        }
    }
    let stats = tree.stats();
    assert!(stats.levels.iter().all(|level| level.runs > 0) && stats.buffered_entries > 0, "{stats:?}");
    drop(tree);
    let mut objects = Vec::new();
    pool.for_each_object(|offset, bytes| objects.push((offset, bytes)));
    Whole { pool, root, dir, objects }
}

/// Opens and reads everything; true if the content is complete, false for an error.
fn is_whole(whole: &Whole) -> bool {
    // Without filters, which would be built, with all blocks verified, at once.
    let options = LsmOptions { filter_bits: 0, ..in_caller(Some(whole.dir.path())) };
    let Ok(tree) = LsmTree::<u64>::open(&whole.pool, whole.root, &options) else { return false };
    let mut right = true;
    for key in 0..KEYS {
        match tree.get(key * GAP) {
            Ok(found) => assert_eq!(found, value(key), "key {key}"),
            Err(_) => right = false,
        }
    }
    let all: Result<Vec<_>, _> = tree.range(0..=u64::MAX).collect();
    let back: Result<Vec<_>, _> = tree.range(0..=(KEYS - 1) * GAP).rev().collect();
    let expected = (0..KEYS).filter_map(|key| Some((key * GAP, value(key)?)));
    match (all, back) {
        (Ok(all), Ok(back)) => {
            assert!(all.iter().copied().eq(expected));
            assert!(back.iter().rev().eq(&all));
        }
        _ => right = false,
    }
    let is_checked = tree.check(|_| {}).is_ok();
    assert!(right || !is_checked, "what a reader notices, a check notices");
    right && is_checked
}

#[test]
fn flipped_bits_in_the_pool_are_errors_or_do_no_harm() {
    let whole = whole();
    assert!(is_whole(&whole));
    let pool = &whole.pool;
    let (mut noticed, mut harmless) = (0, 0);
    for &(offset, bytes) in &whole.objects {
        for word in 0..bytes / 8 {
            // A few bits of each word, all of them over the words.
            for bit in [word * 7 % 64, (word * 7 + 31) % 64, 0, 1, 2] {
                let before: Vec<u64> = pool
                    .words(offset, bytes as usize / 8)
                    .iter()
                    .map(|w| w.load(Ordering::Relaxed))
                    .collect();
                pool.word(offset.plus(word * 8)).fetch_xor(1 << bit, Ordering::Relaxed);
                if is_whole(&whole) {
                    harmless += 1
                } else {
                    noticed += 1
                }
                for (word, before) in pool.words(offset, bytes as usize / 8).iter().zip(before) {
                    word.store(before, Ordering::Relaxed);
                }
            }
        }
    }
    let mut objects = Vec::new();
    pool.for_each_object(|offset, bytes| objects.push((offset, bytes)));
    assert_eq!(objects, whole.objects, "opening a damaged tree freed or leaked something");
    assert!(noticed > 500, "{noticed} noticed, {harmless} in words that do not count");
    assert!(is_whole(&whole));
}

fn files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn damaged_files_are_errors_that_name_them() {
    let whole = whole();
    for path in files(whole.dir.path()) {
        let before = std::fs::read(&path).unwrap();
        let (mut noticed, mut tried) = (0, 0);
        for at in (0..before.len()).step_by(61) {
            let mut bytes = before.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, bytes).unwrap();
            tried += 1;
            noticed += u64::from(!is_whole(&whole));
        }
        assert!(noticed > 10, "{noticed} of {tried}");
        for length in [0, 4096, before.len() - 1, before.len() - 4096] {
            std::fs::write(&path, &before[..length]).unwrap();
            let opened = LsmTree::<u64>::open(&whole.pool, whole.root, &in_caller(Some(whole.dir.path())));
            let error = opened.err().expect("the file is too short").to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let opened = LsmTree::<u64>::open(&whole.pool, whole.root, &in_caller(Some(whole.dir.path())));
        let error = opened.err().expect("the file is gone").to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.starts_with("open"), "{error}");
        std::fs::write(&path, before).unwrap();
    }
    assert!(is_whole(&whole));
}

fn error_of<T>(result: Result<T, Error>) -> String {
    result.err().expect("that is no such tree").to_string()
}

#[test]
fn another_tree_and_other_options_are_clear_errors() {
    let whole = whole();
    let (pool, root) = (&whole.pool, whole.root);
    let options = in_caller(Some(whole.dir.path()));
    let error = error_of(LsmTree::<u128>::open(pool, root, &options));
    assert!(error.contains("keys of 8 bytes; it was opened for keys of 16"), "{error}");
    let error = error_of(LsmTree::<u64>::open(pool, root, &in_caller(None)));
    assert!(error.contains("1 levels in files; the options name no directory"), "{error}");
    let elsewhere = TempDir::new().unwrap();
    let error = error_of(LsmTree::<u64>::open(pool, root, &in_caller(Some(elsewhere.path()))));
    assert!(error.contains(elsewhere.path().to_str().unwrap()), "{error}");
    let wild = [0, 8, 1 << 40, u64::MAX - 7].map(PoolOffset::new);
    for offset in wild.into_iter().chain([root.plus(64), root.plus(1)]) {
        assert!(LsmTree::<u64>::open(pool, offset, &options).is_err(), "{offset:#x}");
    }
    let mut publication = pool.publication();
    let other = FpTree::<WordKey>::create(pool, 1, &mut publication).unwrap();
    publication.publish().unwrap();
    assert!(error_of(LsmTree::<u64>::open(pool, other, &options)).contains("its header starts with"));
    let bad = LsmParameters { runs_per_level: 1, ..LsmParameters::default() };
    let error = error_of(LsmTree::<u64>::create(pool, &bad, &mut pool.publication()));
    assert_eq!(error, "runs_per_level is 1; it must be from 2 to 16");
    LsmTree::<u64>::open(pool, root, &LsmOptions { filter_bits: 0, ..options }).unwrap();
}
