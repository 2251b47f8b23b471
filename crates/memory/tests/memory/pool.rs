//! Pools through their interface: content after closing, dropping and failing.

use entresol_memory::env::{Env, Fault, FaultyFiles};
use entresol_memory::{DomainChoice, DomainKind, Error, JournalOptions, Pool, PoolOffset, PoolOptions};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

fn small() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
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

/// A list of numbers as linked objects of two words: [next, number].
fn push(pool: &Pool, number: u64) -> Result<(), Error> {
    let node = pool.reserve(16)?;
    let words = pool.words(node.offset(), 2);
    words[0].store(pool.root("list").unwrap_or(PoolOffset::NULL).to_word(), Ordering::Relaxed);
    words[1].store(number, Ordering::Relaxed);
    pool.flush(node.offset(), 16);
    let mut publication = pool.publication();
    let offset = publication.allocate(node);
    publication.set_root("list", offset)?;
    publication.publish()
}

fn list(pool: &Pool) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut at = pool.root("list").unwrap_or(PoolOffset::NULL);
    while !at.is_null() {
        numbers.push(pool.words(at, 2)[1].load(Ordering::Relaxed));
        at = PoolOffset::from_word(pool.words(at, 2)[0].load(Ordering::Relaxed));
    }
    numbers.reverse();
    numbers
}

fn count_objects(pool: &Pool) -> usize {
    let mut count = 0;
    pool.for_each_object(|_, _| count += 1);
    count
}

fn corrupt_at(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

#[test]
fn what_was_synced_is_there_after_a_drop_without_close() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &small()).unwrap();
    assert!(pool.was_clean());
    assert_eq!(pool.domain(), DomainKind::Journal);
    for number in 0..1000 {
        push(&pool, number).unwrap();
    }
    pool.sync().unwrap();
    drop(pool);
    let pool = Pool::open(dir.path(), &small()).unwrap();
    assert!(!pool.was_clean());
    assert_eq!(list(&pool), (0..1000).collect::<Vec<_>>());
    assert_eq!(count_objects(&pool), 1000);
    push(&pool, 1000).unwrap();
    pool.close().unwrap();
    assert!(matches!(push(&pool, 1), Err(Error::Closed)));
    drop(pool);
    let pool = Pool::open(dir.path(), &small()).unwrap();
    assert!(pool.was_clean());
    assert_eq!(pool.stats().replayed_bytes, 0);
    assert_eq!(list(&pool).len(), 1001);
}

#[test]
fn many_checkpoints_and_recycled_slots_lose_nothing() {
    let dir = TempDir::new().unwrap();
    let mut total = 0;
    for _round in 0..3 {
        let pool = Pool::open_or_create(dir.path(), &small()).unwrap();
        assert_eq!(list(&pool).len(), total);
        for number in 0..40_000 {
            pool.wait_for_room();
            push(&pool, number).unwrap();
        }
        total += 40_000;
        pool.sync().unwrap();
        let stats = pool.stats();
        assert!(stats.checkpoints > 1, "{stats:?}");
    }
    let journal_bytes = fs::metadata(dir.path().join("journal.entresol")).unwrap().len();
    assert!(journal_bytes < 10 << 20, "the journal is recycled, but has {journal_bytes} bytes");
}

#[test]
fn freed_objects_are_reused_and_counted() {
    let pool = Pool::volatile(&small()).unwrap();
    for _ in 0..10_000 {
        let object = pool.reserve(4096).unwrap();
        let mut publication = pool.publication();
        let offset = publication.allocate(object);
        publication.publish().unwrap();
        let mut publication = pool.publication();
        publication.free(offset);
        publication.publish().unwrap();
    }
    assert_eq!(count_objects(&pool), 0);
    assert!(pool.stats().pool_bytes <= 8 << 20, "{:?}", pool.stats());
}

#[test]
fn large_objects_and_all_classes_hold_their_bytes() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let mut objects = Vec::new();
    for bytes in [1, 64, 65, 500, 513, 1024, 5000, 32_768, 32_769, 200_000, 10 << 20] {
        let object = pool.reserve(bytes).unwrap();
        assert!(object.bytes() >= bytes);
        for word in pool.words(object.offset(), object.bytes() / 8) {
            word.store(bytes as u64, Ordering::Relaxed);
        }
        let mut publication = pool.publication();
        objects.push((publication.allocate(object), bytes));
        publication.publish().unwrap();
    }
    for (offset, bytes) in objects {
        let words = pool.words(offset, pool.object_bytes(offset) / 8);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == bytes as u64));
    }
    assert!(matches!(pool.reserve(100 << 20), Err(Error::Invalid(_))));
}

#[test]
fn a_dropped_reservation_and_a_dropped_publication_change_nothing() {
    let pool = Pool::volatile(&small()).unwrap();
    let first = pool.reserve(64).unwrap().offset();
    let again = pool.reserve(64).unwrap();
    assert_eq!(again.offset(), first);
    let mut publication = pool.publication();
    publication.allocate(again);
    publication.set_root("gone", first).unwrap();
    drop(publication);
    assert_eq!(pool.root("gone"), None);
    assert_eq!(count_objects(&pool), 0);
    assert_eq!(pool.reserve(64).unwrap().offset(), first);
}

#[test]
fn a_second_opener_is_told_who_has_it() {
    let dir = TempDir::new().unwrap();
    let _pool = Pool::create(dir.path(), &small()).unwrap();
    let error = Pool::open(dir.path(), &small()).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }));
    assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
}

#[test]
fn damage_is_named_and_never_opened() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &small()).unwrap();
    for number in 0..30_000 {
        push(&pool, number).unwrap();
    }
    pool.close().unwrap();
    drop(pool);
    let path = dir.path().join("pool.entresol");
    let good = fs::read(&path).unwrap();
    let open = || Pool::open(dir.path(), &small()).unwrap_err();

    corrupt_at(&path, 17, &[!good[17]]);
    assert!(open().to_string().contains("checksum"), "{}", open());
    fs::write(&path, &good).unwrap();

    corrupt_at(&path, 8, &99u32.to_le_bytes());
    assert!(matches!(open(), Error::NewerVersion { found: 99, .. }));
    fs::write(&path, &good).unwrap();

    let mut old = good[..40].to_vec();
    old[8..12].copy_from_slice(&1u32.to_le_bytes());
    corrupt_at(&path, 0, &[&old[..], &u64::from(crc32c::crc32c(&old)).to_le_bytes()[..]].concat());
    assert!(matches!(open(), Error::OlderVersion { found: 1, .. }), "{}", open());
    fs::write(&path, &good).unwrap();

    corrupt_at(&path, 0, b"not ours");
    assert!(open().to_string().contains("magic"));
    fs::write(&path, &good).unwrap();

    OpenOptions::new().write(true).open(&path).unwrap().set_len(good.len() as u64 - (1 << 20)).unwrap();
    assert!(open().to_string().contains("extents"), "{}", open());
    OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    assert!(matches!(open(), Error::Corrupt { .. }));
    fs::write(&path, &good).unwrap();

    let journal = dir.path().join("journal.entresol");
    let hidden = dir.path().join("hidden");
    fs::rename(&journal, &hidden).unwrap();
    assert!(open().to_string().contains("journal"), "{}", open());
    fs::rename(&hidden, &journal).unwrap();
    corrupt_at(&journal, 8, &[9]);
    corrupt_at(&journal, 4096 + 8, &[9]);
    assert!(matches!(open(), Error::NewerVersion { .. } | Error::Corrupt { .. }));
}

/// Offsets of the journal's blocks that hold frames, in file order.
fn frame_blocks(journal: &[u8]) -> Vec<usize> {
    (0..journal.len() / 4096).filter(|block| &journal[block * 4096..block * 4096 + 4] == b"EFRM").collect()
}

#[test]
fn a_torn_tail_is_cut_and_a_damaged_middle_is_an_error() {
    let dir = TempDir::new().unwrap();
    let options = PoolOptions {
        journal: JournalOptions {
            checkpoint_bytes: 64 << 20,
            journal_bytes_max: 64 << 20,
            ..small().journal
        },
        ..small()
    };
    let pool = Pool::create(dir.path(), &options).unwrap();
    for number in 0..40 {
        push(&pool, number).unwrap();
        pool.sync().unwrap();
    }
    drop(pool);
    let path = dir.path().join("journal.entresol");
    let pool_path = dir.path().join("pool.entresol");
    let (good, good_pool) = (fs::read(&path).unwrap(), fs::read(&pool_path).unwrap());
    let blocks = frame_blocks(&good);
    assert!(blocks.len() > 35, "one frame a sync: {}", blocks.len());
    for (position, block) in blocks.iter().enumerate() {
        fs::write(&path, &good).unwrap();
        fs::write(&pool_path, &good_pool).unwrap();
        corrupt_at(&path, *block as u64 * 4096 + 70, &[0xA5, 0x5A]);
        match Pool::open(dir.path(), &options) {
            Ok(pool) => {
                assert_eq!(position, blocks.len() - 1, "only the last frame may be missing in silence");
                let numbers = list(&pool);
                assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
                assert_eq!(count_objects(&pool), numbers.len());
            }
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                assert!(error.to_string().contains("journal.entresol"), "{error}");
            }
        }
    }
}

#[test]
fn every_prefix_of_the_journal_is_a_consistent_pool() {
    let dir = TempDir::new().unwrap();
    let options = PoolOptions {
        journal: JournalOptions {
            checkpoint_bytes: 64 << 20,
            journal_bytes_max: 64 << 20,
            ..small().journal
        },
        ..small()
    };
    let pool = Pool::create(dir.path(), &options).unwrap();
    for number in 0..24 {
        push(&pool, number).unwrap();
        pool.sync().unwrap();
    }
    drop(pool);
    let path = dir.path().join("journal.entresol");
    let pool_path = dir.path().join("pool.entresol");
    let (good, good_pool) = (fs::read(&path).unwrap(), fs::read(&pool_path).unwrap());
    let mut lengths = Vec::new();
    for block in frame_blocks(&good) {
        let mut torn = good.clone();
        torn[block * 4096..].fill(0);
        fs::write(&path, &torn).unwrap();
        fs::write(&pool_path, &good_pool).unwrap();
        let pool = Pool::open(dir.path(), &options).unwrap();
        let numbers = list(&pool);
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
        assert_eq!(count_objects(&pool), numbers.len());
        // It goes on from there, and stale frames behind the truncation never return.
        push(&pool, numbers.len() as u64).unwrap();
        pool.sync().unwrap();
        drop(pool);
        let pool = Pool::open(dir.path(), &options).unwrap();
        assert_eq!(list(&pool).len(), numbers.len() + 1);
        lengths.push(numbers.len());
    }
    assert_eq!(lengths.last(), Some(&23));
}

#[test]
fn failures_latch_and_the_pool_opens_again() {
    for fault in [Fault::DiskFull, Fault::WriteError, Fault::SyncError] {
        let dir = TempDir::new().unwrap();
        let files = FaultyFiles::new();
        let options = PoolOptions { env: Env::real().with_files(Arc::new(files.clone())), ..small() };
        let pool = Pool::create(dir.path(), &options).unwrap();
        for number in 0..100 {
            push(&pool, number).unwrap();
        }
        pool.sync().unwrap();
        files.arm(fault, 0);
        push(&pool, 100).unwrap();
        let error = pool.sync().unwrap_err();
        assert!(matches!(error, Error::Io { .. } | Error::OutOfSpace { .. }), "{fault:?}: {error}");
        files.arm(Fault::None, 0);
        let latched = pool.sync().unwrap_err();
        assert!(matches!(latched, Error::Failed { .. }), "{fault:?}: {latched}");
        assert!(push(&pool, 101).is_err());
        assert_eq!(list(&pool)[..100], (0..100).collect::<Vec<_>>(), "still readable");
        drop(pool);
        let pool = Pool::open(dir.path(), &options).unwrap();
        assert_eq!(list(&pool)[..100], (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_disk_fails_the_allocation_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let files = FaultyFiles::new();
    let options = PoolOptions { env: Env::real().with_files(Arc::new(files.clone())), ..small() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    push(&pool, 0).unwrap();
    pool.sync().unwrap();
    let mut held = Vec::new();
    files.arm(Fault::DiskFull, 0);
    let error = loop {
        match pool.reserve(32 << 10) {
            Ok(object) => held.push(object),
            Err(error) => break error,
        }
        assert!(held.len() < 10_000);
    };
    assert!(matches!(error, Error::OutOfSpace { .. }), "{error}");
    files.arm(Fault::None, 0);
    held.clear();
    for number in 1..100 {
        push(&pool, number).unwrap();
    }
    pool.sync().unwrap();
    assert_eq!(list(&pool).len(), 100);
}

#[test]
fn concurrent_pushes_on_several_lists_survive_together() {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &small()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let pool = &pool;
            scope.spawn(move || {
                let name = format!("list-{thread}");
                for number in 0..5_000 {
                    let node = pool.reserve(16).unwrap();
                    let words = pool.words(node.offset(), 2);
                    words[0].store(pool.root(&name).unwrap_or(PoolOffset::NULL).to_word(), Ordering::Relaxed);
                    words[1].store(number, Ordering::Relaxed);
                    pool.flush(node.offset(), 16);
                    let mut publication = pool.publication();
                    let offset = publication.allocate(node);
                    if number == 0 {
                        // Names are added by one thread at a time.
                        static NAMES: std::sync::Mutex<()> = std::sync::Mutex::new(());
                        let _alone = NAMES.lock().unwrap();
                        publication.set_root(&name, offset).unwrap();
                        publication.publish().unwrap();
                    } else {
                        publication.set_root(&name, offset).unwrap();
                        publication.publish().unwrap();
                    }
                }
            });
        }
    });
    pool.sync().unwrap();
    drop(pool);
    let pool = Pool::open(dir.path(), &small()).unwrap();
    assert_eq!(count_objects(&pool), 20_000);
    for thread in 0..4 {
        let mut at = pool.root(&format!("list-{thread}")).unwrap();
        let mut expected = 5_000;
        while !at.is_null() {
            expected -= 1;
            assert_eq!(pool.words(at, 2)[1].load(Ordering::Relaxed), expected);
            at = PoolOffset::from_word(pool.words(at, 2)[0].load(Ordering::Relaxed));
        }
        assert_eq!(expected, 0);
    }
}

#[test]
fn the_emulated_dax_domain_survives_the_process() {
    let dir = TempDir::new().unwrap();
    let options = PoolOptions { domain: DomainChoice::DaxEmulated, ..small() };
    let pool = match Pool::create(dir.path(), &options) {
        Ok(pool) => pool,
        Err(Error::Unsupported(why)) => {
            eprintln!("skipped: {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for number in 0..10_000 {
        push(&pool, number).unwrap();
    }
    drop(pool);
    let pool = Pool::open(dir.path(), &options).unwrap();
    assert_eq!(pool.domain(), DomainKind::DaxEmulated);
    assert_eq!(list(&pool).len(), 10_000);
    assert_eq!(count_objects(&pool), 10_000);
}
