//! Independent commits: a commit waits for nothing but its own device, and commits of the same keys.

use crate::common::{get, key, put, rows, scan};
use entresol_memory::env::{Files, OpenMode, RealFiles, StorageFile};
use entresol_memory::{DomainChoice, Durability, Env, JournalOptions, Pool, PoolOptions};
use entresol_structures::{Inserted, KeyWidth, OrderedIndex};
use entresol_transactions::{Isolation, KeyRange, State, StateContext};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

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

    fn wait_until_a_sync_waits(&self) {
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

/// Commits at `none` and `group` go on while a device holds up a commit at `sync`, of another state of the
/// same group, and new readers see them, and not that one.
#[test]
fn commits_without_sync_do_not_wait_for_a_sync() {
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
        files.wait_until_a_sync_waits();
        // All versions of a hot key are reclaimed meanwhile, or there would be no room for so many.
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

/// Slow and quick commits over two groups, which build on each other, are seen completely and in their order.
#[test]
fn commits_over_groups_are_seen_completely_at_each_durability() {
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

/// A loader commits many keys of two groups at a time beside writers of other keys, at each durability, and
/// beside serializable transactions that read a range of those: each is seen completely and in its order, now
/// and after a restart.
#[test]
fn a_loader_beside_small_writers_is_seen_completely() {
    const LOADED: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let context = open(dir.path(), &SlowFiles::default());
    let state = || context.create_state(context.create_group().unwrap(), KeyWidth::Eight).unwrap();
    let states = [state(), state()];
    let write = |keys: std::ops::Range<u64>, value: u64, durability| {
        let writer = context.begin().unwrap();
        for state in &states {
            keys.clone()
                .for_each(|number| writer.write(state, &key(number), Some(&value.to_le_bytes())).unwrap());
        }
        writer.commit(durability).unwrap();
    };
    let range = KeyRange {
        lower: std::ops::Bound::Included(key(1001).as_slice().into()),
        upper: std::ops::Bound::Unbounded,
    };
    // Counts the others' commits, in a key of its own.
    let add_up = || {
        let adds = context.begin_at(Isolation::Serializable).unwrap();
        let sum = scan(&adds, &states[0], &range).iter().map(|(_, value)| number_of(value)).sum::<u64>();
        adds.write(&states[0], &key(1000), Some(&sum.to_le_bytes())).unwrap();
        let failed = adds.commit(Durability::None).err();
        assert!(failed.as_ref().is_none_or(|error| error.is_retryable()), "{failed:?}");
        u64::from(failed.is_none())
    };
    for first in [0, 1001, 1002] {
        write(first..if first == 0 { LOADED } else { first + 1 }, 0, Durability::None);
    }
    let check = |context: &Arc<StateContext>, states: &[Arc<State>], last: &mut u64| {
        let reader = context.begin().unwrap();
        let loaded = states.iter().flat_map(|state| (0..LOADED).map(|key| get(&reader, state, key).unwrap()));
        let loaded: std::collections::BTreeSet<u64> = loaded.map(|value| number_of(&value)).collect();
        assert_eq!(loaded.len(), 1, "a commit is seen whole: {loaded:?}");
        assert!(loaded.first() >= Some(last), "what was seen is seen by all who come later");
        *last = *loaded.first().unwrap();
    };
    let (mut last, mut added, is_loaded) = (0, 0, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=60_u64 {
                write(0..LOADED, number, [Durability::None, Durability::Sync][number as usize % 2]);
            }
            is_loaded.store(true, Ordering::Release);
        });
        let small: Vec<_> = [(1001, Durability::None), (1002, Durability::Sync)]
            .map(|(own, durability)| {
                let (write, is_loaded) = (&write, &is_loaded);
                scope.spawn(move || {
                    let commits = (1..).take_while(|_| !is_loaded.load(Ordering::Acquire));
                    commits.inspect(|number| write(own..own + 1, *number, durability)).count()
                })
            })
            .into();
        while !small.iter().all(|writer| writer.is_finished()) {
            check(&context, &states, &mut last);
            added += add_up();
        }
        assert!(small.into_iter().all(|writer| writer.join().unwrap() > 0));
    });
    check(&context, &states, &mut last);
    added += add_up();
    assert!(added > 0 && last == 60, "{added} sums, {last} loads");
    let pool = Arc::clone(context.pool());
    pool.close().unwrap();
    drop((states, context, pool));
    let context = open(dir.path(), &SlowFiles::default());
    let states = context.states();
    check(&context, &states, &mut last);
    let reader = context.begin().unwrap();
    let sum = (1001..1003).map(|own| number_of(&get(&reader, &states[0], own).unwrap())).sum::<u64>();
    assert_eq!(number_of(&get(&reader, &states[0], 1000).unwrap()), sum);
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

/// The journal is at its maximum and the device holds up the checkpoint that would make room: writers wait,
/// without the latches of leaves, so that readers of the same leaves go on.
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
