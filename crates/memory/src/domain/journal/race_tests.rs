//! Regression tests of two thread interleavings in which a checkpoint once lost or tore a publication.
//!
//! Each test stops the code at a [`HookPoint`] and checks the files at that point. Waits for events that a
//! correct journal never produces are bounded; a wrong one produces them at once.

#![allow(clippy::unwrap_used)]

use super::hook::HookPoint;
use super::hook::tests::watch;
use crate::offset::PoolOffset;
use crate::{DomainChoice, JournalOptions, Pool, PoolOptions};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tempfile::TempDir;

/// Time to wait for an event that must not happen.
const NEVER: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_secs(20);

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions { slot_bytes: 64 << 10, ..JournalOptions::default() },
        ..PoolOptions::default()
    }
}

/// Pool with an object of a page, all of it durable in the pool file.
fn new_pool(dir: &Path) -> (Arc<Pool>, PoolOffset) {
    let pool = Pool::create(dir, &options()).unwrap();
    let object = pool.reserve(4096).unwrap();
    let mut publication = pool.publication();
    (0..512).for_each(|word| publication.write(object.offset().plus(word * 8), 0));
    let at = publication.allocate(object);
    publication.set_root("page", at).unwrap();
    publication.publish().unwrap();
    pool.checkpoint().unwrap();
    (pool, at)
}

/// Opens a copy of the present files.
fn open_copy(dir: &Path) -> (TempDir, Arc<Pool>) {
    let copy = TempDir::new().unwrap();
    for name in ["pool.entresol", "journal.entresol"] {
        fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    let pool = Pool::open(copy.path(), &options()).unwrap();
    (copy, pool)
}

fn load(pool: &Pool, offset: PoolOffset) -> u64 {
    pool.word(offset).load(Ordering::Relaxed)
}

/// Publishes two words at once, and stops when it passes a point for the n-th time, until it is told to go
/// on.
fn publish_and_stop(
    pool: &Pool,
    at: PoolOffset,
    (place, n): (HookPoint, u64),
    stopped: Sender<()>,
    go_on: Receiver<()>,
) {
    let passed = AtomicU64::new(0);
    watch(move |here| {
        if here == place && passed.fetch_add(1, Ordering::Relaxed) + 1 == n {
            stopped.send(()).unwrap();
            go_on.recv_timeout(SOON).unwrap();
        }
    });
    let mut publication = pool.publication();
    publication.set(at, 7);
    publication.set(at.plus(8), 7);
    publication.publish().unwrap();
}

#[test]
fn a_mark_is_not_taken_before_its_store() {
    let dir = TempDir::new().unwrap();
    let (pool, at) = new_pool(dir.path());
    let (stopped, publisher_stopped) = channel();
    let (go_on, publisher_goes_on) = channel();
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || publish_and_stop(pool, at, (HookPoint::Marked, 2), stopped, publisher_goes_on));
        publisher_stopped.recv_timeout(SOON).unwrap();
        let (done, checkpoint_done) = channel();
        let checkpointer = scope.spawn(move || {
            pool.checkpoint().unwrap();
            done.send(()).unwrap();
        });
        // The page is marked, and one store is still to come: a checkpoint that took the mark now would miss
        // it.
        let _ = checkpoint_done.recv_timeout(NEVER);
        go_on.send(()).unwrap();
        checkpointer.join().unwrap();
    });
    // Truncates the record from the journal: from here on the page alone holds the change.
    pool.checkpoint().unwrap();
    let (_copy, killed) = open_copy(dir.path());
    assert_eq!((load(&killed, at), load(&killed, at.plus(8))), (7, 7));
}

#[test]
fn a_copy_waits_for_the_record_of_what_it_half_saw() {
    let dir = TempDir::new().unwrap();
    let (pool, at) = new_pool(dir.path());
    // A change that the checkpoint has to copy the page for.
    pool.word(at.plus(64)).store(1, Ordering::Release);
    pool.flush(at.plus(64), 8);
    pool.fence();
    let (stopped, publisher_stopped) = channel();
    let (go_on, publisher_goes_on) = channel();
    let (taken, marks_taken) = channel();
    let (copy_now, checkpoint_goes_on) = channel();
    let (wrote, pages_written) = channel();
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            watch(move |place| match place {
                HookPoint::MarksTaken => {
                    taken.send(()).unwrap();
                    checkpoint_goes_on.recv_timeout(SOON).unwrap();
                }
                HookPoint::PagesWritten => wrote.send(()).unwrap(),
                _ => {}
            });
            pool.checkpoint().unwrap();
        });
        marks_taken.recv_timeout(SOON).unwrap();
        scope.spawn(move || {
            publish_and_stop(pool, at, (HookPoint::HalfStored, 1), stopped, publisher_goes_on)
        });
        publisher_stopped.recv_timeout(SOON).unwrap();
        copy_now.send(()).unwrap();
        // The page is copied with one of two stores. If it reaches the file before the record is durable,
        // this is the state that a crash leaves.
        let written = pages_written.recv_timeout(NEVER).is_ok();
        let (_copy, killed) = open_copy(dir.path());
        assert_eq!(
            load(&killed, at),
            load(&killed, at.plus(8)),
            "half a publication; written early: {written}"
        );
        go_on.send(()).unwrap();
        pages_written.recv_timeout(SOON).unwrap();
        let (_copy, killed) = open_copy(dir.path());
        assert_eq!((load(&killed, at), load(&killed, at.plus(8))), (7, 7));
    });
}
