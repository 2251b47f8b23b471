//! The allocator through the pool's interface: reservations, frees, reuse and space.

use entresol_memory::env::{Env, Fault, FaultyFiles};
use entresol_memory::{DomainChoice, Error, Pool, PoolOffset, PoolOptions, Reservation};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use tempfile::TempDir;

const CHUNK_BYTES: u64 = 64 << 10;

fn options(extent_bytes: u64, extents_max: u64) -> PoolOptions {
    let address_space_bytes = extent_bytes * extents_max;
    PoolOptions { extent_bytes, address_space_bytes, env: Env::simulated(3), ..PoolOptions::default() }
}

fn allocate(pool: &Pool, bytes: usize) -> PoolOffset {
    let object = pool.reserve(bytes).unwrap();
    let mut publication = pool.publication();
    let offset = publication.allocate(object);
    publication.publish().unwrap();
    offset
}

fn free(pool: &Pool, offset: PoolOffset) {
    let mut publication = pool.publication();
    publication.free(offset);
    publication.publish().unwrap();
}

/// Owner of each 64-byte unit: no two objects may overlap.
struct Owners {
    units: Vec<AtomicU64>,
}

impl Owners {
    fn new(pool_bytes_max: u64) -> Owners {
        Owners { units: (0..pool_bytes_max / 64).map(|_| AtomicU64::new(0)).collect() }
    }

    fn units(&self, offset: PoolOffset, bytes: usize) -> &[AtomicU64] {
        let first = offset.block_number(64) as usize;
        &self.units[first..first + bytes / 64]
    }

    fn take(&self, object: &Reservation<'_>, owner: u64) {
        for unit in self.units(object.offset(), object.bytes()) {
            assert_eq!(unit.swap(owner, Ordering::AcqRel), 0, "{:#x} was handed out twice", object.offset());
        }
    }

    fn give(&self, offset: PoolOffset, bytes: usize, owner: u64) {
        for unit in self.units(offset, bytes) {
            assert_eq!(unit.swap(0, Ordering::AcqRel), owner, "{offset:#x} is somebody else's");
        }
    }
}

/// One thread's share of the stress: allocates and frees objects of mixed sizes, its own and others'.
fn take_and_give(
    pool: &Pool,
    owners: &Owners,
    shared: &Mutex<Vec<(PoolOffset, u64)>>,
    thread: u64,
    steps: u64,
) {
    let random = Env::simulated(thread);
    let mut mine: Vec<(PoolOffset, u64)> = Vec::new();
    for step in 0..steps {
        let owner = (thread + 1) << 32 | step;
        let bytes = match random.random_u64() % 100 {
            0 => 70_000 + random.random_u64() % 200_000,
            1..=4 => 1 + random.random_u64() % 40_000,
            _ => 1 + random.random_u64() % 1_500,
        };
        match random.random_u64() % 8 {
            0 => {
                // Reserved and dropped.
                let object = pool.reserve(bytes as usize).unwrap();
                owners.take(&object, owner);
                owners.give(object.offset(), object.bytes(), owner);
            }
            1..=3 => {
                let object = pool.reserve(bytes as usize).unwrap();
                owners.take(&object, owner);
                let mut publication = pool.publication();
                mine.push((publication.allocate(object), owner));
                publication.publish().unwrap();
            }
            4 => {
                let mut shared = shared.lock().unwrap();
                let theirs = shared.pop();
                shared.extend(mine.pop());
                mine.extend(theirs);
            }
            _ => {
                let index = random.random_u64() % mine.len().max(1) as u64;
                if !mine.is_empty() {
                    let (offset, owner) = mine.swap_remove(index as usize);
                    owners.give(offset, pool.object_bytes(offset), owner);
                    free(pool, offset);
                }
            }
        }
    }
    shared.lock().unwrap().extend(mine);
}

/// Frees the remaining objects of the stress, then allocates the complete pool as objects of the largest
/// size.
fn everything_comes_back(pool: &Pool, owners: &Owners, left: Vec<(PoolOffset, u64)>, extent_bytes: u64) {
    let mut counted = 0;
    pool.for_each_object(|_, bytes| counted += bytes);
    assert_eq!(pool.space().used_bytes(), counted);
    assert_eq!(left.iter().map(|(offset, _)| pool.object_bytes(*offset) as u64).sum::<u64>(), counted);
    for (offset, owner) in left {
        owners.give(offset, pool.object_bytes(offset), owner);
        free(pool, offset);
    }
    let space = pool.space();
    assert_eq!((space.used_bytes(), pool.stats().allocated_bytes), (0, 0));
    let extents = pool.bytes() / extent_bytes;
    let reserve_all = || {
        let largest = (extent_bytes - CHUNK_BYTES) as usize;
        (0..extents).map(|_| pool.reserve(largest)).collect::<Result<Vec<_>, _>>()
    };
    soon(|| {
        pool.return_space().unwrap();
        if pool.space().free_chunk_bytes == extents * (extent_bytes - CHUNK_BYTES) { Ok(()) } else { Err(()) }
    })
    .unwrap_or_else(|()| panic!("something is free and does not come back: {:?}", pool.space()));
    let bytes_before = pool.bytes();
    assert_eq!(reserve_all().unwrap().len() as u64, extents);
    assert_eq!(pool.bytes(), bytes_before, "every chunk was free, so nothing had to grow: {space:?}");
}

#[test]
fn threads_never_get_the_same_object_and_all_space_comes_back() {
    let (extent_bytes, extents_max) = (1 << 20, 64);
    let pool = Pool::volatile(&options(extent_bytes, extents_max)).unwrap();
    let owners = Owners::new(extent_bytes * extents_max);
    let shared = Mutex::new(Vec::new());
    for round in 0..3 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (pool, owners, shared) = (&pool, &owners, &shared);
                scope.spawn(move || take_and_give(pool, owners, shared, round * 4 + thread, 15_000));
            }
        });
    }
    // Epochs advance only while no thread of another test is inside one; give them time.
    everything_comes_back(&pool, &owners, shared.into_inner().unwrap(), extent_bytes);
}

#[test]
fn reservations_of_a_thread_are_neighbours_in_address_order() {
    let pool = Pool::volatile(&options(1 << 20, 16)).unwrap();
    let reserve_run = || {
        let run: Vec<_> = (0..64).map(|_| pool.reserve(256).unwrap()).collect();
        run.iter().map(Reservation::offset).collect::<Vec<_>>()
    };
    let is_run = |run: &[PoolOffset]| run.windows(2).all(|pair| pair[1] == pair[0].plus(256));
    assert!(is_run(&reserve_run()));
    let barrier = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let first = pool.reserve(256).unwrap();
                barrier.wait();
                let run: Vec<_> = (0..63).map(|_| pool.reserve(256).unwrap()).collect();
                let offsets: Vec<PoolOffset> =
                    std::iter::once(&first).chain(&run).map(Reservation::offset).collect();
                assert!(is_run(&offsets), "{offsets:?}");
                barrier.wait();
            });
        }
    });
}

#[test]
fn what_idle_threads_keep_is_there_when_space_is_short() {
    let pool = Pool::volatile(&options(1 << 20, 1)).unwrap();
    let (cached, is_cached) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            for bytes in [64, 256, 1024, 8192] {
                drop(pool.reserve(bytes).unwrap());
                free(pool, allocate(pool, bytes));
            }
            cached.send(()).unwrap();
            // Idle, until the other end is dropped.
            let _ = is_done.recv();
        });
        let _done = done;
        is_cached.recv().unwrap();
        assert!(pool.space().cached_bytes() > 0 && pool.space().waiting_bytes() > 0, "{:?}", pool.space());
        let reserve_all =
            || (0..15).map(|_| pool.reserve(CHUNK_BYTES as usize)).collect::<Result<Vec<_>, _>>();
        let all = soon(reserve_all).unwrap();
        assert!(matches!(pool.reserve(64), Err(Error::OutOfSpace { .. })));
        drop(all);
        assert!(pool.reserve(64).is_ok());
    });
}

/// Retries an attempt: freed objects are reused when no guard is left, and other tests of this process hold
/// guards briefly.
fn soon<T, E>(attempt: impl Fn() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..400 {
        if let Ok(value) = attempt() {
            return Ok(value);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    attempt()
}

#[test]
fn pools_of_one_thread_and_threads_of_one_pool_keep_apart() {
    let pools: Vec<_> = (0..3).map(|_| Pool::volatile(&options(1 << 20, 4)).unwrap()).collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..2_000 {
                    let pool = &pools[round % 3];
                    free(pool, allocate(pool, 200));
                }
            });
        }
    });
    for pool in pools {
        assert_eq!(pool.space().used_bytes(), 0);
        assert_eq!(pool.bytes(), 1 << 20);
        // Freed objects of a dropped pool still wait for epochs, and are harmless.
        drop(pool);
    }
    for _ in 0..10 {
        drop(entresol_memory::Pool::volatile(&options(1 << 20, 1)).unwrap());
    }
}

#[test]
fn the_space_report_adds_up() {
    let pool = Pool::volatile(&options(1 << 20, 8)).unwrap();
    let small: Vec<PoolOffset> = (0..1000).map(|_| allocate(&pool, 200)).collect();
    let large = allocate(&pool, 200_000);
    let held = pool.reserve(5000).unwrap();
    for offset in &small[..500] {
        free(&pool, *offset);
    }
    let space = pool.space();
    assert_eq!(space.used_bytes(), 500 * 256 + 4 * CHUNK_BYTES + held.bytes() as u64);
    assert_eq!(space.large_bytes, 4 * CHUNK_BYTES);
    let accounted = space.map_bytes
        + space.free_chunk_bytes
        + space.used_bytes()
        + space.free_in_slabs_bytes()
        + space.cached_bytes()
        + space.waiting_bytes()
        + space.slab_rest_bytes();
    assert_eq!(accounted, space.pool_bytes, "{space:?}");
    assert_eq!(space.pool_bytes, pool.bytes());
    let class = space.classes.iter().find(|class| class.object_bytes == 256).unwrap();
    assert_eq!((class.slabs, class.used_objects, class.reserved_objects), (4, 500, 1000));
    assert!((space.internal_fragmentation() - (1.0 - 205_000.0 / 261_120.0)).abs() < 0.01, "{space:?}");
    assert!(space.slab_fragmentation() > 0.4 && space.external_fragmentation() < 0.6);
    free(&pool, large);
    assert_eq!(pool.space().large_bytes, 0);
}

#[test]
#[should_panic(expected = "is freed twice")]
fn a_publication_does_not_free_an_object_twice() {
    let pool = Pool::volatile(&options(1 << 20, 1)).unwrap();
    let object = allocate(&pool, 100);
    let mut publication = pool.publication();
    publication.free(object);
    publication.free(object);
}

#[test]
#[should_panic(expected = "is freed, but not allocated")]
fn what_is_free_is_not_freed() {
    let pool = Pool::volatile(&options(1 << 20, 1)).unwrap();
    let object = allocate(&pool, 100);
    free(&pool, object);
    free(&pool, object);
}

#[test]
fn slabs_that_become_empty_are_given_up_without_waiting_for_need() {
    let pool = Pool::volatile(&options(1 << 20, 64)).unwrap();
    let objects: Vec<PoolOffset> = (0..20_000).map(|_| allocate(&pool, 512)).collect();
    let slabs = |pool: &Pool| pool.space().classes.iter().map(|class| class.slabs).sum::<u64>();
    assert!(slabs(&pool) >= 156);
    objects.into_iter().for_each(|offset| free(&pool, offset));
    // The last frees bring the earlier ones back; another test's guard may hold some briefly.
    for _ in 0..200 {
        if slabs(&pool) <= 20 {
            return;
        }
        (0..64).map(|_| allocate(&pool, 4096)).collect::<Vec<_>>().into_iter().for_each(|o| free(&pool, o));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} slabs are kept for nothing", slabs(&pool));
}

fn write_word(path: &Path, offset: u64, word: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&word.to_le_bytes(), offset).unwrap();
}

#[test]
fn bits_and_descriptors_that_stand_for_nothing_are_damage() {
    let dir = TempDir::new().unwrap();
    let options =
        PoolOptions { domain: DomainChoice::Journal, extent_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    let (small, large) = (allocate(&pool, 4096), allocate(&pool, 3 * CHUNK_BYTES as usize));
    pool.close().unwrap();
    drop(pool);
    let path = dir.path().join("pool.entresol");
    let (descriptors, bitmaps) = (20_480, 22_528);
    let bitmap = bitmaps + small.block_number(CHUNK_BYTES) * 128;
    let damaged = |offset: u64, word: u64, good: u64| {
        write_word(&path, offset, word);
        match Pool::open(dir.path(), &options).unwrap_err() {
            Error::Corrupt { file, offset: at, .. } => assert_eq!((file, at), (path.clone(), offset)),
            other => panic!("{other}"),
        }
        write_word(&path, offset, good);
    };
    // Sixteen objects of 4 KiB; bit 16 and all of the second word represent none.
    damaged(bitmap, 1 | 1 << 16, 1);
    damaged(bitmap + 8, 1, 0);
    let inside = descriptors + (large.block_number(CHUNK_BYTES) + 1) * 8;
    damaged(inside, 1 << 56, 0);
    damaged(descriptors + large.block_number(CHUNK_BYTES) * 8, 2 << 56 | 15, 2 << 56 | 3);
    let pool = Pool::open(dir.path(), &options).unwrap();
    let mut objects = BTreeMap::new();
    pool.for_each_object(|offset, bytes| assert!(objects.insert(offset, bytes).is_none()));
    assert_eq!(objects, BTreeMap::from([(small, 4096), (large, 3 * CHUNK_BYTES)]));
}

#[test]
fn a_pool_that_was_opened_again_hands_out_what_is_free_and_nothing_else() {
    const EXTENT_BYTES: u64 = 512 << 10;
    let dir = TempDir::new().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..options(EXTENT_BYTES, 200) };
    let owners = Owners::new(EXTENT_BYTES * 200);
    let shared = Mutex::new(Vec::new());
    let mut most_bytes = 0;
    // Small pools are loaded at open; the remaining objects make it a large one, however the threads take
    // turns.
    let mut staying = Vec::new();
    for round in 0..12 {
        let pool = Pool::open_or_create(dir.path(), &options).unwrap();
        while staying.len() < 9 * 2 {
            let object = pool.reserve(EXTENT_BYTES as usize * 2 / 5).unwrap();
            owners.take(&object, u64::MAX);
            let mut publication = pool.publication();
            staying.push((publication.allocate(object), u64::MAX));
            publication.publish().unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (pool, owners, shared) = (&pool, &owners, &shared);
                scope.spawn(move || take_and_give(pool, owners, shared, round * 2 + thread, 1_500));
            }
        });
        most_bytes = pool.bytes();
        if round % 2 == 0 { pool.close() } else { pool.sync() }.unwrap();
    }
    assert!(most_bytes > 8 * EXTENT_BYTES, "small pools are read whole when they open: {most_bytes}");
    let pool = Pool::open(dir.path(), &options).unwrap();
    staying.extend(shared.into_inner().unwrap());
    everything_comes_back(&pool, &owners, staying, EXTENT_BYTES);
}

#[test]
fn damaged_maps_of_a_large_pool_are_an_error_of_who_needs_them() {
    const EXTENT_BYTES: u64 = 256 << 10;
    let dir = TempDir::new().unwrap();
    let options = PoolOptions { domain: DomainChoice::Journal, ..options(EXTENT_BYTES, 64) };
    let pool = Pool::create(dir.path(), &options).unwrap();
    // Three chunks of four; the last extent keeps one of them free.
    let objects: Vec<PoolOffset> = (0..29).map(|_| allocate(&pool, CHUNK_BYTES as usize)).collect();
    let bytes = pool.bytes();
    pool.close().unwrap();
    drop(pool);
    let sixth = 5 * EXTENT_BYTES + 20_480;
    let in_sixth = objects.iter().find(|offset| offset.block_number(EXTENT_BYTES) == 5).unwrap();
    let damages = [("a map that stands for nothing", 8, 77 << 56), ("a flipped bit", 16, 0)];
    for (what, at, word) in damages {
        let copy = TempDir::new().unwrap();
        for file in ["pool.entresol", "journal.entresol", "checksums.entresol"] {
            std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
        }
        let path = copy.path().join("pool.entresol");
        write_word(&path, sixth + at, word);
        let pool = Pool::open(copy.path(), &options).unwrap();
        let is_named = |error: Error| match error {
            Error::Corrupt { file, offset, .. } => {
                assert_eq!(file, path, "{what}");
                assert!((sixth & !4095..sixth + 4096).contains(&offset), "{what}: {offset:#x}");
            }
            other => panic!("{what}: {other}"),
        };
        let mut publication = pool.publication();
        publication.free(*in_sixth);
        is_named(publication.publish().unwrap_err());
        // Elsewhere all goes on: a free object is one that the same thread is given next.
        free(&pool, objects[0]);
        is_named(pool.read_maps().unwrap_err());
        // Kept, since a chunk that is released would be handed out again and again.
        let reserved: Result<Vec<_>, Error> = (0..9).map(|_| pool.reserve(CHUNK_BYTES as usize)).collect();
        is_named(reserved.err().unwrap());
        assert_eq!(pool.bytes(), bytes, "{what}: nothing grew");
        assert!(pool.allocation_map().is_err());
    }
    let pool = Pool::open(dir.path(), &options).unwrap();
    pool.read_maps().unwrap();
    let mut count = 0;
    pool.for_each_object(|_, _| count += 1);
    assert_eq!(count, objects.len());
}

fn blocks_bytes(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("pool.entresol")).unwrap().blocks() * 512
}

/// Allocates a root object with a word for each of the objects that it holds.
fn fill_and_empty(pool: &Arc<Pool>, keep: usize) -> Vec<PoolOffset> {
    let objects: Vec<PoolOffset> = (0..400u64)
        .map(|number| {
            let offset = allocate(pool, CHUNK_BYTES as usize);
            let words = pool.words(offset, (CHUNK_BYTES / 8) as usize);
            words.iter().for_each(|word| word.store(number, Ordering::Relaxed));
            pool.flush(offset, CHUNK_BYTES as usize);
            offset
        })
        .collect();
    objects[keep..].iter().for_each(|offset| free(pool, *offset));
    objects[..keep].to_vec()
}

fn hold_their_numbers(pool: &Pool, objects: &[PoolOffset]) -> bool {
    objects.iter().zip(0u64..).all(|(offset, number)| {
        let words = pool.words(*offset, (CHUNK_BYTES / 8) as usize);
        words.iter().all(|word| word.load(Ordering::Relaxed) == number)
    })
}

#[test]
fn free_space_goes_back_to_the_disk_and_is_asked_for_again() {
    for domain in [DomainChoice::Journal, DomainChoice::DaxEmulated] {
        let dir = TempDir::new().unwrap();
        let options = PoolOptions { domain, ..PoolOptions::default() };
        let pool = match Pool::create(dir.path(), &options) {
            Err(Error::Unsupported(why)) => {
                eprintln!("skipped: {why}");
                continue;
            }
            pool => pool.unwrap(),
        };
        let kept = fill_and_empty(&pool, 40);
        let (pool_bytes, before) = (pool.bytes(), blocks_bytes(dir.path()));
        assert!(before >= pool_bytes);
        // Other tests of this process hold guards briefly.
        let mut returned = 0;
        for _ in 0..200 {
            returned += pool.return_space().unwrap();
            if returned >= 16 << 20 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(returned >= 16 << 20, "{returned} of {:?}", pool.space());
        assert!(blocks_bytes(dir.path()) + returned <= before + (1 << 20), "{domain:?}");
        assert!(hold_their_numbers(&pool, &kept));
        // A crash, as far as this process can have one.
        pool.sync().unwrap();
        drop(pool);
        let pool = Pool::open(dir.path(), &options).unwrap();
        assert_eq!(pool.bytes(), pool_bytes, "the pool stays as long");
        assert!(hold_their_numbers(&pool, &kept));
        assert!(pool.space().unbacked_bytes >= 16 << 20);
        kept.iter().for_each(|offset| free(&pool, *offset));
        let again = fill_and_empty(&pool, 300);
        assert_eq!(pool.bytes(), pool_bytes, "holes are used before the pool grows");
        assert!(hold_their_numbers(&pool, &again));
        pool.close().unwrap();
        drop(pool);
        let pool = Pool::open(dir.path(), &options).unwrap();
        assert!(hold_their_numbers(&pool, &again));
    }
}

#[test]
fn a_full_disk_refuses_the_blocks_of_a_hole_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let files = FaultyFiles::new();
    let env = Env::real().with_files(Arc::new(files.clone()));
    let options = PoolOptions { domain: DomainChoice::Journal, env, ..PoolOptions::default() };
    let pool = Pool::create(dir.path(), &options).unwrap();
    let first = allocate(&pool, 256);
    pool.close().unwrap();
    drop(pool);
    assert!(blocks_bytes(dir.path()) < 4 << 20, "a small pool takes little of the disk");
    let pool = Pool::open(dir.path(), &options).unwrap();
    files.arm(Fault::DiskFull, 0);
    // The rest of the slab has blocks; behind it, there is nothing.
    let mut held: Vec<_> = (0..4).map(|_| pool.reserve(256).unwrap()).collect();
    let error = pool.reserve(CHUNK_BYTES as usize).err().expect("a full disk");
    assert!(matches!(error, Error::OutOfSpace { .. }), "{error}");
    files.arm(Fault::None, 0);
    held.push(pool.reserve(10 << 20).unwrap());
    drop(held);
    free(&pool, first);
    pool.close().unwrap();
}
