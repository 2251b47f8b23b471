//! Backups of a pool under concurrent writes, and backups that fail.

use entresol_memory::env::{CallFailure, Env, FailingFiles, OverlayFiles};
use entresol_memory::{DomainChoice, Error, JournalOptions, Pool, PoolOffset, PoolOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 256 << 10,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes: 256 << 10,
            journal_bytes_max: 1 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    }
}

fn push(pool: &Pool, list: &str, number: u64, bytes: usize) -> Result<(), Error> {
    let node = pool.reserve(bytes)?;
    let words = pool.words(node.offset(), 2);
    words[0].store(pool.root(list).unwrap_or(PoolOffset::NULL).to_word(), Ordering::Relaxed);
    words[1].store(number, Ordering::Relaxed);
    pool.flush(node.offset(), 16);
    let mut publication = pool.publication();
    let offset = publication.allocate(node);
    publication.set_root(list, offset)?;
    publication.publish()
}

/// Length of a list whose numbers are those from its length down to 1.
fn length(pool: &Pool, list: &str) -> u64 {
    let mut at = pool.root(list).unwrap_or(PoolOffset::NULL);
    let length = if at.is_null() { 0 } else { pool.words(at, 2)[1].load(Ordering::Relaxed) };
    for expected in (1..=length).rev() {
        assert_eq!(pool.words(at, 2)[1].load(Ordering::Relaxed), expected, "{list}");
        at = PoolOffset::from_word(pool.words(at, 2)[0].load(Ordering::Relaxed));
    }
    assert!(at.is_null());
    length
}

fn objects(pool: &Pool) -> u64 {
    let mut count = 0;
    pool.for_each_object(|_, _| count += 1);
    count
}

const LISTS: [&str; 3] = ["small", "large", "both"];

#[test]
fn a_backup_under_writers_holds_what_was_acknowledged_before_it() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(&dir.path().join("db"), &options()).unwrap();
    LISTS.iter().for_each(|list| push(&pool, list, 1, 64).unwrap());
    let acknowledged = LISTS.map(|_| AtomicU64::new(1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for ((list, acknowledged), bytes) in LISTS.iter().zip(&acknowledged).zip([64, 2048, 700]) {
            let (pool, stop) = (&pool, &stop);
            scope.spawn(move || {
                let mut number = 1;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    push(pool, list, number, bytes).unwrap();
                    if number.is_multiple_of(5) {
                        pool.sync().unwrap();
                        acknowledged.store(number, Ordering::SeqCst);
                    }
                }
            });
        }
        for round in 0..12 {
            let before = [0, 1, 2].map(|list: usize| acknowledged[list].load(Ordering::SeqCst));
            let backup = dir.path().join(format!("backup {round}"));
            let report = pool.backup(&backup).unwrap();
            assert!(report.pool_bytes >= 256 << 10, "{report:?}");
            let copy = Pool::open(&backup, &options()).unwrap();
            let found = LISTS.map(|list| length(&copy, list));
            assert!(found.iter().zip(before).all(|(found, before)| *found >= before), "{found:?} {before:?}");
            assert_eq!(objects(&copy), found.iter().sum());
            // It is a database like any other.
            push(&copy, "small", found[0] + 1, 64).unwrap();
            copy.close().unwrap();
            assert!(!dir.path().join(format!("backup {round}.unfinished")).exists());
        }
        stop.store(true, Ordering::Relaxed);
    });
    let stats = pool.stats();
    assert!(stats.checkpoints > 0 && stats.pool_bytes > 1 << 20, "{stats:?}");
}

#[test]
fn a_backup_that_fails_anywhere_leaves_nothing_and_harms_nothing() {
    let calls = |fail: Option<(u64, CallFailure)>| -> Option<u64> {
        let dir = TempDir::new().unwrap();
        let files = FailingFiles::new();
        let options = PoolOptions { env: Env::real().with_files(Arc::new(files.clone())), ..options() };
        let pool = Pool::create(&dir.path().join("db"), &options).unwrap();
        (1..=20).for_each(|number| push(&pool, "small", number, 64).unwrap());
        pool.sync().unwrap();
        let before = files.calls();
        if let Some((call, how)) = fail {
            files.fail(before + call, how);
        }
        let backup = dir.path().join("backup");
        let outcome = pool.backup(&backup);
        let calls = files.calls() - before;
        files.mend();
        if outcome.is_ok() {
            let copy = Pool::open(&backup, &options).unwrap();
            assert_eq!(length(&copy, "small"), 20);
            return Some(calls);
        }
        let (error, failed) = (outcome.unwrap_err().to_string(), files.failed().unwrap());
        let name = failed.1.display().to_string().replace("journal.new", "journal.entresol");
        assert!(error.contains(&name), "{failed:?}: {error}");
        // The rename may have happened when only its sync failed: then it is complete.
        if backup.exists() {
            assert_eq!(length(&Pool::open(&backup, &options).unwrap(), "small"), 20);
        }
        assert!(!dir.path().join("backup.unfinished").exists(), "{fail:?}");
        drop(pool);
        let pool = Pool::open(&dir.path().join("db"), &options).unwrap();
        assert_eq!(length(&pool, "small"), 20);
        None
    };
    let total = calls(None).unwrap();
    assert!(total > 10);
    for call in 1..=total {
        for how in [CallFailure::Io, CallFailure::DiskFull] {
            calls(Some((call, how)));
        }
    }
}

#[test]
fn wrong_destinations_are_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(&dir.path().join("db"), &options()).unwrap();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let refused = |name: &str, why: &str| {
        let error = pool.backup(&dir.path().join(name)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(why), "{error}");
    };
    refused("db", "not empty");
    refused("file", "a file of this name exists");
    refused("missing/backup", "does not exist");
    pool.backup(&dir.path().join("empty")).unwrap();
    refused("empty", "not empty");
    // The files of an interrupted backup do not stay in the way; those of others do.
    let unfinished = dir.path().join("again.unfinished");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("pool.entresol"), "half").unwrap();
    pool.backup(&dir.path().join("again")).unwrap();
    assert!(!unfinished.exists());
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("mine"), "precious").unwrap();
    assert!(pool.backup(&dir.path().join("more")).is_ok());
    let error = pool.backup(&dir.path().join("again")).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
    assert!(unfinished.join("mine").exists());
    let volatile = Pool::volatile(&options()).unwrap();
    let error = volatile.backup(Path::new("nowhere")).unwrap_err().to_string();
    assert!(error.contains("volatile"), "{error}");
}

#[test]
fn looking_changes_no_byte() {
    let dir = TempDir::new().unwrap();
    let directory = dir.path().join("db");
    let pool = Pool::create(&directory, &options()).unwrap();
    (1..=300).for_each(|number| push(&pool, "small", number, 64).unwrap());
    pool.sync().unwrap();
    let while_open = Pool::inspect(&directory).unwrap();
    assert_eq!(while_open.extent_bytes, 256 << 10);
    let journal = while_open.journal.unwrap();
    assert!(!journal.closed && journal.slot_bytes == 64 << 10);
    drop(pool);
    let bytes = || ["pool.entresol", "journal.entresol"].map(|n| std::fs::read(directory.join(n)).unwrap());
    let before = bytes();
    let look = PoolOptions { env: Env::real().with_files(Arc::new(OverlayFiles::new())), ..options() };
    let pool = Pool::open(&directory, &look).unwrap();
    assert!(pool.stats().replayed_bytes > 0);
    assert_eq!(length(&pool, "small"), 300);
    push(&pool, "small", 301, 64).unwrap();
    pool.close().unwrap();
    drop(pool);
    assert!(before == bytes());
    assert!(matches!(Pool::inspect(dir.path()), Err(Error::NotFound { .. })));
}
