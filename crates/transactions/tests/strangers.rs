//! Nobody waits for a stranger: what a commit waits for is its own, or of the same keys.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{get, key, put, rows};
use entresol_memory::env::{Files, OpenMode, RealFiles, StorageFile};
use entresol_memory::{DomainChoice, Durability, Env, JournalOptions, Pool, PoolOptions};
use entresol_structures::{Inserted, KeyWidth, OrderedIndex};
use entresol_transactions::{State, StateContext};

/// Real files whose syncs can be held up.
#[derive(Clone, Default)]
struct SlowFiles {
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: usize,
}

impl SlowFiles {
    fn close(&self) {
        self.gate.0.lock().unwrap().closed = true;
    }

    fn open_gate(&self) {
        self.gate.0.lock().unwrap().closed = false;
        self.gate.1.notify_all();
    }

    fn wait_until_somebody_waits(&self) {
        while self.gate.0.lock().unwrap().waiting == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn pass(&self) {
        let mut gate = self.gate.0.lock().unwrap();
        gate.waiting += 1;
        while gate.closed {
            gate = self.gate.1.wait(gate).unwrap();
        }
        gate.waiting -= 1;
    }
}

impl Files for SlowFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(SlowFile { file: RealFiles.open(path, mode)?, files: self.clone() }))
    }

    fn sync_directory(&self, dir: &Path) -> io::Result<()> {
        RealFiles.sync_directory(dir)
    }
}

struct SlowFile {
    file: Box<dyn StorageFile>,
    files: SlowFiles,
}

impl StorageFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.files.pass();
        self.file.sync_data()
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(offset, bytes)
    }

    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.release(offset, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }
}

fn open(dir: &Path, files: &SlowFiles) -> Arc<StateContext> {
    let env = Env::real().with_files(Arc::new(files.clone()));
    let options = PoolOptions { domain: DomainChoice::Journal, env, ..PoolOptions::default() };
    StateContext::open_or_create(Pool::open_or_create(dir, &options).unwrap()).unwrap()
}

/// Commits at `none` and `group` go on while a device holds up a commit at `sync`, of another state of the same group, and
/// whoever comes sees them, and not that one.
#[test]
fn who_waits_for_no_device_waits_for_nobody_who_does() {
    let dir = tempfile::tempdir().unwrap();
    let files = SlowFiles::default();
    let context = open(dir.path(), &files);
    let group = context.create_group().unwrap();
    let [own, others] = [(); 2].map(|()| context.create_state(group, KeyWidth::Eight).unwrap());
    put(&context, &own, 1, b"old");
    put(&context, &others, 1, b"old");
    let at_start = context.newest_commit();
    files.close();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let writer = context.begin().unwrap();
            writer.write(&others, &key(1), Some(b"slow")).unwrap();
            writer.commit(Durability::Sync).unwrap().cts
        });
        files.wait_until_somebody_waits();
        // All versions of a hot key are given back meanwhile, or there would be no room for so many.
        for number in 0..1000_u64 {
            let writer = context.begin().unwrap();
            writer.write(&own, &key(1), Some(&number.to_le_bytes())).unwrap();
            let durability = [Durability::None, Durability::Group { interval_ms: 1000 }][number as usize % 2];
            let commit = writer.commit(durability).unwrap();
            let reader = context.begin().unwrap();
            assert!(reader.sees(commit.cts), "a commit is seen at once");
            assert_eq!(get(&reader, &own, 1).unwrap(), number.to_le_bytes());
            assert_eq!(get(&reader, &others, 1).unwrap(), b"old", "what may be lost is not seen");
        }
        // A key that the slow one wrote is its own until it is visible.
        let writer = context.begin().unwrap();
        writer.write(&others, &key(1), Some(b"conflict")).unwrap();
        assert!(writer.commit(Durability::None).unwrap_err().is_retryable());
        let reader = context.begin().unwrap();
        files.open_gate();
        let cts = slow.join().unwrap();
        assert!(cts > at_start && !reader.sees(cts), "a snapshot stays as it was");
        assert_eq!(get(&reader, &others, 1).unwrap(), b"old");
        assert_eq!(get(&reader, &own, 1).unwrap(), 999_u64.to_le_bytes());
        assert!(context.begin().unwrap().sees(cts));
        assert_eq!(get(&context.begin().unwrap(), &others, 1).unwrap(), b"slow");
    });
}

fn transfer(context: &Arc<StateContext>, states: &[Arc<State>; 2], number: u64) {
    let writer = context.begin().unwrap();
    states.iter().for_each(|state| writer.write(state, &key(1), Some(&number.to_le_bytes())).unwrap());
    let durability = if number.is_multiple_of(3) { Durability::Sync } else { Durability::None };
    writer.commit(durability).unwrap();
}

/// Slow and quick commits over two groups, which build on each other, are seen whole and in their order.
#[test]
fn commits_over_groups_are_seen_whole_whatever_they_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path(), &SlowFiles::default());
    let state = || context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let pairs = [[state(), state()], [state(), state()]];
    pairs.iter().for_each(|pair| transfer(&context, pair, 0));
    thread::scope(|scope| {
        let writers: Vec<_> = pairs
            .iter()
            .map(|pair| scope.spawn(|| (1..400).for_each(|number| transfer(&context, pair, number))))
            .collect();
        let mut last = [0; 2];
        while !writers.iter().all(|writer| writer.is_finished()) {
            let reader = context.begin().unwrap();
            for (pair, last) in pairs.iter().zip(&mut last) {
                let found = [0, 1].map(|at| rows(&reader, &pair[at])[&key(1)[..]].clone());
                assert_eq!(found[0], found[1], "a commit is seen whole");
                let number = u64::from_le_bytes(found[0][..].try_into().unwrap());
                assert!(number >= *last, "what was seen is seen by all who come later");
                *last = number;
            }
        }
    });
}

/// The journal is at its maximum and the device holds up the checkpoint that would make room: writers wait, without the latches
/// of leaves, so that readers of the same leaves go on.
#[test]
fn readers_of_a_hot_leaf_do_not_wait_for_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let files = SlowFiles::default();
    let journal = JournalOptions {
        slot_bytes: 256 << 10,
        checkpoint_bytes: 512 << 10,
        journal_bytes_max: 1 << 20,
        ..JournalOptions::default()
    };
    let env = Env::real().with_files(Arc::new(files.clone()));
    let options = PoolOptions { domain: DomainChoice::Journal, env, journal, ..PoolOptions::default() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    let mut publication = pool.publication();
    let root = OrderedIndex::create(&pool, KeyWidth::Eight, &mut publication).unwrap();
    publication.publish().unwrap();
    let index = OrderedIndex::open(&pool, root).unwrap();
    (0..20).for_each(|number| {
        assert_eq!(index.insert(&key(number), 0, pool.publication()).unwrap(), Inserted::New)
    });
    files.close();
    let written = AtomicU64::new(0);
    let is_stuck = || {
        let before = written.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(200));
        before == written.load(Ordering::Relaxed)
    };
    const WRITERS: u64 = 3;
    thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let (index, pool, written) = (&index, &pool, &written);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    for number in 0..60_000_u64 {
                        index.replace(&key(writer), number, pool.publication()).unwrap();
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while !is_stuck() {}
        assert!(written.load(Ordering::Relaxed) < WRITERS * 60_000, "the journal is larger than that");
        scope.spawn(move || {
            let mut longest = Duration::ZERO;
            for round in 0..2_000_u64 {
                let began = Instant::now();
                index.get(&key(round % 20)).unwrap().unwrap();
                longest = longest.max(began.elapsed());
            }
            done.send(longest).unwrap();
        });
        let longest = is_done.recv_timeout(Duration::from_secs(20));
        files.open_gate();
        println!("the longest read took {longest:?}");
        assert!(longest.is_ok(), "readers wait for the journal");
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    pool.close().unwrap();
}
