//! Eviction while the disk fails: committed data remains readable, and the next open finds it.

#![allow(clippy::unwrap_used)]

use super::tests::{OBJECT_BYTES, make_objects, options};
use crate::budget::MemoryBudget;
use crate::env::{CallFailure, Env, FailingFiles, Files, RealFiles};
use crate::offset::PoolOffset;
use crate::{Pool, PoolOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const OBJECTS: u64 = 32;
const ROUNDS: u64 = 6;
const PAGES: u64 = OBJECT_BYTES / 4096;

fn options_with(files: Arc<dyn Files>) -> PoolOptions {
    // Nothing fits, so the keeper evicts pages all the time.
    let memory = MemoryBudget::tiny(1 << 20);
    PoolOptions { env: Env::real().with_files(files), ..options(memory) }
}

/// Outcome of a run.
struct RunOutcome {
    objects: Vec<PoolOffset>,
    acknowledged: u64,
    begun: u64,
    dropped: u64,
}

impl RunOutcome {
    /// Checks that every page has a round that was begun, and none is older than the acknowledged one.
    fn check(&self, pool: &Pool, what: &str) {
        for object in &self.objects {
            for page in 0..PAGES {
                let found = pool.word(object.plus(page * 4096)).load(Ordering::Relaxed);
                let may = self.acknowledged..=self.begun;
                assert!(may.contains(&found), "{what}: {found} at {object:#x}+{page} is not of {may:?}");
            }
        }
    }
}

/// Writes the number of the round to every page, repeatedly, with checkpoints and evictions between, until a
/// call fails; then goes on to read.
fn write_until_it_fails(pool: &Pool, objects: Vec<PoolOffset>) -> (RunOutcome, bool) {
    let mut done = RunOutcome { objects, acknowledged: 0, begun: 0, dropped: 0 };
    for round in 1..=ROUNDS {
        done.begun = round;
        for object in &done.objects {
            (0..PAGES).for_each(|page| pool.word(object.plus(page * 4096)).store(round, Ordering::Relaxed));
            pool.flush(*object, OBJECT_BYTES as usize);
            pool.fence();
        }
        done.dropped += pool.drop_clean_pages();
        if pool.sync().is_err() {
            return (done, true);
        }
        done.acknowledged = round;
        if pool.checkpoint().is_err() {
            return (done, true);
        }
        done.dropped += pool.drop_clean_pages();
        done.check(pool, "while all is well");
    }
    (done, false)
}

fn every_so_many_calls(how: CallFailure) {
    let calls = |files: &FailingFiles, dir: &Path| {
        let pool = Pool::create(dir, &options_with(Arc::new(files.clone()))).unwrap();
        let objects = make_objects(&pool, OBJECTS);
        pool.sync().unwrap();
        (files.calls(), pool, objects)
    };
    let (all, before) = {
        let (dir, files) = (TempDir::new().unwrap(), FailingFiles::new());
        let (before, pool, objects) = calls(&files, dir.path());
        let (done, failed) = write_until_it_fails(&pool, objects);
        assert!(
            !failed && done.acknowledged == ROUNDS && done.dropped > ROUNDS * OBJECTS,
            "{}",
            done.dropped
        );
        (files.calls() - before, before)
    };
    assert!(all > 20 && before > 10, "{all} calls");
    let (mut errors, mut dropped) = (0, 0);
    for call in (1..=all).step_by((all / 8).max(1) as usize) {
        let (dir, files) = (TempDir::new().unwrap(), FailingFiles::new());
        let (before, pool, objects) = calls(&files, dir.path());
        files.fail(before + call, how);
        let (mut done, failed) = write_until_it_fails(&pool, objects);
        errors += u64::from(failed);
        let what = format!("{how:?} at {call} of {all}");
        if failed {
            // Readers go on, and pages are still evicted; those of an unfinished checkpoint stay.
            done.dropped += pool.drop_clean_pages();
            done.check(&pool, &format!("{what}, after it failed"));
        }
        dropped += done.dropped;
        drop(pool);
        files.mend();
        let pool = Pool::open(dir.path(), &options_with(Arc::new(RealFiles))).unwrap();
        done.check(&pool, &format!("{what}, opened again"));
    }
    println!("{how:?}: {errors} errors, {dropped} pages went");
    assert!(errors > 2 && dropped > 1000, "{errors} errors, {dropped} pages went");
}

#[test]
fn an_io_error_while_pages_go_loses_nothing() {
    every_so_many_calls(CallFailure::Io);
    every_so_many_calls(CallFailure::DeviceGone);
}

#[test]
fn a_full_disk_while_pages_go_loses_nothing() {
    // Allocated space is overwritten: only calls that need more fail, if any do.
    let (dir, files) = (TempDir::new().unwrap(), FailingFiles::new());
    let pool = Pool::create(dir.path(), &options_with(Arc::new(files.clone()))).unwrap();
    let mut objects = make_objects(&pool, OBJECTS);
    pool.sync().unwrap();
    files.fail(files.calls() + 1, CallFailure::DiskFull);
    let refused = loop {
        match pool.reserve(OBJECT_BYTES as usize) {
            Ok(object) => {
                let mut publication = pool.publication();
                let at = publication.allocate(object);
                (0..PAGES).for_each(|page| pool.word(at.plus(page * 4096)).store(0, Ordering::Relaxed));
                publication.flush(at, OBJECT_BYTES as usize);
                if let Err(error) = publication.publish() {
                    break error;
                }
                objects.push(at);
            }
            Err(error) => break error,
        }
        assert!(objects.len() < 1000, "the disk is full");
    };
    // The first failure counts: that of the caller that needs an extent, or of a thread of the journal.
    assert!(refused.to_string().contains("out of space"), "{refused}");
    let (done, _) = write_until_it_fails(&pool, objects);
    done.check(&pool, "on a full disk");
    drop(pool);
    files.mend();
    let pool = Pool::open(dir.path(), &options_with(Arc::new(RealFiles))).unwrap();
    done.check(&pool, "opened again");
}

const DIRECTORY: &str = "ENTRESOL_TEST_TRUNCATED";
const TRUNCATED_AT: u64 = 2 << 20;

#[test]
#[ignore = "made to die: a_page_that_cannot_be_read_back_ends_the_process runs it, in a process of its own"]
fn dies_of_a_file_that_was_truncated() {
    let dir = std::env::var(DIRECTORY).unwrap();
    let dir = Path::new(&dir);
    // All fits, so no checkpoint moves pages to the file after it was copied.
    let pool = Pool::create(dir, &options(MemoryBudget::new(256 << 20).unwrap())).unwrap();
    let objects = make_objects(&pool, OBJECTS);
    pool.close().unwrap();
    drop(pool);
    let pool = Pool::open(dir, &options(MemoryBudget::new(256 << 20).unwrap())).unwrap();
    for object in &objects {
        pool.word(*object).store(17, Ordering::Relaxed);
        pool.flush(*object, 8);
    }
    pool.sync().unwrap();
    let file = dir.join("pool.entresol");
    std::fs::copy(&file, dir.join("before")).unwrap();
    println!("objects {objects:?}");
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(TRUNCATED_AT).unwrap();
    let read: u64 = objects.iter().map(|object| pool.word(*object).load(Ordering::Relaxed)).sum();
    println!("survived: {read}");
}

#[test]
fn a_page_that_cannot_be_read_back_ends_the_process() {
    let dir = TempDir::new().unwrap();
    let db = dir.path().join("db");
    std::fs::create_dir(&db).unwrap();
    let module = module_path!().split_once("::").unwrap().1;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::dies_of_a_file_that_was_truncated")]);
    let output = command.args(["--ignored", "--nocapture"]).env(DIRECTORY, &db).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{out} {err}");
    let line = err.lines().find(|line| line.starts_with("entresol: the page at byte ")).expect(&err);
    let byte = line.split_whitespace().nth(5).unwrap().parse::<u64>().unwrap();
    assert!(byte >= TRUNCATED_AT, "{line}");
    assert!(line.contains(&db.join("pool.entresol").display().to_string()), "{line}");
    assert!(line.contains("cannot be read back") && line.contains("open the database again"), "{line}");
    // The short file is refused by name; with its bytes back, everything acknowledged is there.
    let open = || Pool::open(&db, &options_with(Arc::new(RealFiles)));
    let error = open().unwrap_err().to_string();
    assert!(error.contains("pool.entresol") && error.contains("the file holds"), "{error}");
    std::fs::rename(db.join("before"), db.join("pool.entresol")).unwrap();
    let pool = open().unwrap();
    let objects = out.lines().find_map(|line| line.strip_prefix("objects [")).unwrap();
    let objects: Vec<PoolOffset> = objects
        .trim_end_matches(']')
        .split(", ")
        .map(|object| PoolOffset::new(object.parse().unwrap()))
        .collect();
    assert_eq!(objects.len() as u64, OBJECTS);
    for object in objects {
        assert_eq!(pool.word(object).load(Ordering::Relaxed), 17);
    }
}
