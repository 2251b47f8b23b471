//! Tests of eviction: evicted pages return with their content, other pages stay; and the mutants that these
//! tests must catch.

#![allow(clippy::unwrap_used)]

use super::super::hook::HookPoint;
use super::super::hook::tests::watch;
use crate::budget::MemoryBudget;
#[cfg(not(feature = "mutants"))]
use crate::budget::MemoryConsumer;
use crate::offset::PoolOffset;
use crate::{DomainChoice, JournalOptions, Pool, PoolOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PAGE_WORDS: u64 = 512;
pub(super) const OBJECT_BYTES: u64 = 64 << 10;

pub(super) fn options(memory: Arc<MemoryBudget>) -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal: JournalOptions { slot_bytes: 1 << 20, ..JournalOptions::default() },
        memory: Some(memory),
        ..PoolOptions::default()
    }
}

/// Allocates objects of 64 KiB.
pub(super) fn make_objects(pool: &Pool, count: u64) -> Vec<PoolOffset> {
    let make = |_| {
        let object = pool.reserve(OBJECT_BYTES as usize).unwrap();
        let at = object.offset();
        pool.words(at, (OBJECT_BYTES / 8) as usize).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let mut publication = pool.publication();
        publication.flush(at, OBJECT_BYTES as usize);
        let at = publication.allocate(object);
        publication.publish().unwrap();
        at
    };
    (0..count).map(make).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Stores per thread between two evictions: few enough that most of the 1,024 pages are clean at the next
/// one, however fast the machine.
const BURST: u64 = 150;

/// State shared by the storing threads and the one that evicts pages.
#[derive(Default)]
struct Pace {
    stop: AtomicBool,
    /// Number of stores that each thread may have made by now.
    allowed: AtomicU64,
    /// Number of stores of all threads.
    steps: AtomicU64,
}

impl Pace {
    fn allow_burst(&self) {
        self.allowed.fetch_add(BURST, Ordering::Relaxed);
    }

    /// Waits until `step` is allowed; false when the threads are to stop.
    fn wait(&self, step: u64) -> bool {
        while step > self.allowed.load(Ordering::Relaxed) {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::yield_now();
        }
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Stores to words of its own and checks that it reads its last stores. A third of the stores are never
/// flushed. Returns the flushed ones.
fn store_and_look(
    pool: &Pool,
    objects: &[PoolOffset],
    thread: u64,
    pace: &Pace,
) -> Result<Vec<(PoolOffset, u64)>, String> {
    let pages = objects.len() as u64 * OBJECT_BYTES / 4096;
    let mut random = Random(thread + 1);
    let mut expected = vec![0u64; pages as usize * 2];
    let at = |page: u64, kind: u64| {
        let object = objects[(page / (OBJECT_BYTES / 4096)) as usize];
        let word = (page * 37 % (PAGE_WORDS / 8)) * 8 + thread * 2 + kind;
        object.plus(page % (OBJECT_BYTES / 4096) * 4096).plus(word * 8)
    };
    for step in 1.. {
        if !pace.wait(step) {
            break;
        }
        let (page, kind) = (random.below(pages), u64::from(random.below(3) == 0));
        let (offset, known) = (at(page, kind), &mut expected[(page * 2 + kind) as usize]);
        let word = pool.word(offset);
        let found = word.load(Ordering::Relaxed);
        if found != *known {
            return Err(format!(
                "thread {thread} stored {known} at {offset:#x} (kind {kind}) and finds {found}"
            ));
        }
        word.store(step, Ordering::Relaxed);
        *known = step;
        if kind == 0 {
            pool.flush(offset, 8);
            if random.below(8) == 0 {
                pool.fence();
            }
        }
        pace.steps.fetch_add(1, Ordering::Relaxed);
    }
    pool.fence();
    let flushed = (0..pages).map(|page| (at(page, 0), expected[page as usize * 2]));
    Ok(flushed.collect())
}

/// Lets threads store while all clean pages are evicted, repeatedly.
fn storm(steps_min: u64) -> Result<(), String> {
    let dir = TempDir::new().unwrap();
    let memory = MemoryBudget::new(256 << 20).unwrap();
    let pool = Pool::create(dir.path(), &options(memory.clone())).unwrap();
    let objects = make_objects(&pool, 64);
    let pace = Pace::default();
    let (flushed, dropped) = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let (pool, objects, pace) = (&pool, &objects, &pace);
            scope.spawn(move || store_and_look(pool, objects, thread, pace))
        });
        let (mut dropped, began) = (0, Instant::now());
        let mut outcome = Ok(());
        while outcome.is_ok()
            && (pace.steps.load(Ordering::Relaxed) < steps_min || dropped < 2_000)
            && threads.iter().all(|thread| !thread.is_finished())
        {
            pace.allow_burst();
            outcome = pool.checkpoint().map_err(|error| error.to_string());
            let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let drop_beside_stores = |_| {
                    pace.allow_burst();
                    pool.drop_clean_pages()
                };
                (0..4).map(drop_beside_stores).sum::<u64>()
            }));
            match again {
                Ok(count) => dropped += count,
                Err(_) => outcome = Err("giving back panicked".to_string()),
            }
            if began.elapsed() > Duration::from_secs(120) {
                outcome = Err(format!("only {dropped} pages went, {:?} stores", pace.steps));
            }
        }
        pace.stop.store(true, Ordering::Relaxed);
        let flushed = threads.map(|thread| thread.join().unwrap());
        outcome.map(|()| (flushed, dropped))
    })?;
    println!("{dropped} pages were given back beside {:?} stores", pace.steps);
    pool.close().map_err(|error| error.to_string())?;
    drop(pool);
    let pool = Pool::open(dir.path(), &options(memory)).unwrap();
    for flushed in flushed {
        for (offset, value) in flushed? {
            let found = pool.word(offset).load(Ordering::Relaxed);
            if found != value {
                return Err(format!("{value} was flushed at {offset:#x}, and the file has {found}"));
            }
        }
    }
    Ok(())
}

/// A reopened pool gets huge pages beside threads that store, is evicted, and gets them again.
#[cfg(not(feature = "mutants"))]
#[test]
fn huge_pages_come_and_go_beside_stores() {
    let dir = TempDir::new().unwrap();
    let memory = MemoryBudget::new(256 << 20).unwrap();
    let options = PoolOptions { extent_bytes: 2 << 20, ..options(memory) };
    let pool = Pool::create(dir.path(), &options).unwrap();
    let objects = make_objects(&pool, 128);
    pool.close().unwrap();
    drop(pool);
    let pool = Pool::open(dir.path(), &options).unwrap();
    let pace = Pace::default();
    let (mut huge, mut dropped) = (0, 0);
    let flushed = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let (pool, objects, pace) = (&pool, &objects, &pace);
            scope.spawn(move || store_and_look(pool, objects, thread, pace))
        });
        let began = Instant::now();
        while pace.steps.load(Ordering::Relaxed) < 20_000 && began.elapsed() < Duration::from_secs(60) {
            pace.allow_burst();
            // Slices must be in memory to get huge pages.
            for object in &objects {
                let first = |page: u64| pool.word(object.plus(page * 4096)).load(Ordering::Relaxed);
                std::hint::black_box((0..16).map(first).fold(0, u64::wrapping_add));
            }
            huge += pool.make_huge_pages();
            pace.allow_burst();
            pool.checkpoint().unwrap();
            pace.allow_burst();
            dropped += pool.drop_clean_pages();
        }
        pace.stop.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap())
    });
    println!("{huge} times huge, {dropped} pages went, {:?} stores", pace.steps);
    if std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|modes| !modes.contains("[never]"))
    {
        assert!(huge > 20 && dropped > 1000, "{huge} {dropped}");
    }
    pool.close().unwrap();
    drop(pool);
    let pool = Pool::open(dir.path(), &options).unwrap();
    for flushed in flushed {
        for (offset, value) in flushed.unwrap() {
            assert_eq!(pool.word(offset).load(Ordering::Relaxed), value);
        }
    }
}

/// Pages that a checkpoint has written and not synced yet must not be evicted.
fn while_a_checkpoint_is_under_way() -> Result<(), String> {
    let dir = TempDir::new().unwrap();
    let pool = Pool::create(dir.path(), &options(MemoryBudget::new(256 << 20).unwrap())).unwrap();
    let objects = make_objects(&pool, 16);
    pool.checkpoint().unwrap();
    if pool.drop_clean_pages() == 0 {
        return Err("nothing was given back after a checkpoint".to_string());
    }
    for object in &objects {
        pool.word(*object).store(7, Ordering::Relaxed);
        pool.flush(*object, 8);
    }
    pool.fence();
    let evicted = Arc::new(AtomicU64::new(0));
    let (hooked, counted) = (pool.clone(), evicted.clone());
    watch(move |place| {
        if place == HookPoint::PagesWritten {
            let before = hooked.stored_pages();
            hooked.drop_clean_pages();
            counted.fetch_add(before - hooked.stored_pages(), Ordering::Relaxed);
        }
    });
    let outcome = pool.checkpoint();
    watch(|_| {});
    outcome.map_err(|error| error.to_string())?;
    if evicted.load(Ordering::Relaxed) > 0 {
        return Err(format!("{evicted:?} pages went before the file had them for sure"));
    }
    pool.drop_clean_pages();
    match pool.stored_pages() {
        0 => Ok(()),
        left => Err(format!("{left} pages stay after the checkpoint")),
    }
}

#[cfg(not(feature = "mutants"))]
#[test]
fn no_store_is_lost_beside_pages_that_are_given_back() {
    storm(if crate::crash::soak_factor().is_some() { 50_000_000 } else { 200_000 }).unwrap();
}

#[cfg(not(feature = "mutants"))]
#[test]
fn pages_stay_until_a_checkpoint_is_whole() {
    while_a_checkpoint_is_under_way().unwrap();
}

#[cfg(not(feature = "mutants"))]
#[test]
fn a_pool_larger_than_its_budget_comes_down_to_it_and_keeps_its_content() {
    let dir = TempDir::new().unwrap();
    let memory = MemoryBudget::tiny(16 << 20);
    let pool = Pool::create(dir.path(), &options(memory.clone())).unwrap();
    let objects = make_objects(&pool, 1024);
    for (number, object) in (1..).zip(&objects) {
        (0..16).for_each(|page| pool.word(object.plus(page * 4096)).store(number, Ordering::Relaxed));
        pool.flush(*object, OBJECT_BYTES as usize);
    }
    pool.fence();
    let used = |consumer| memory.usage().consumers[consumer as usize].used_bytes;
    let pages = || used(MemoryConsumer::PoolPages);
    let began = Instant::now();
    while pages() > memory.elastic_target() || pool.stored_pages() > 3_000 {
        assert!(began.elapsed() < Duration::from_secs(60), "{} of {}", pages(), memory.elastic_target());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Of each page a checksum, three marks, and its replacement state, which the keeper makes as it comes to the page.
    let expected = pool.bytes() / 4096 * 5;
    let maps = || used(MemoryConsumer::PoolMaps);
    loop {
        pool.checkpoint().unwrap();
        if (expected..3 * expected + (64 << 10)).contains(&maps()) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{} of {expected}", maps());
        std::thread::sleep(Duration::from_millis(5));
    }
    for (number, object) in (1..).zip(&objects) {
        (0..16).for_each(|page| {
            assert_eq!(pool.word(object.plus(page * 4096)).load(Ordering::Relaxed), number);
        });
    }
    pool.close().unwrap();
    drop(pool);
    assert_eq!(memory.usage().used_bytes(), 0);
}

/// True if the file's cache has the page at an offset.
#[cfg(not(feature = "mutants"))]
fn is_cached(pool: &Pool, offset: PoolOffset) -> bool {
    let address = pool.word(offset.aligned_down(4096)) as *const AtomicU64;
    let mut state = 0_u8;
    // SAFETY: asks for the state of one mapped page.
    let asked = unsafe { libc::mincore(address.cast_mut().cast(), 4096, &raw mut state) };
    assert_eq!(asked, 0);
    state & 1 == 1
}

#[cfg(not(feature = "mutants"))]
#[test]
fn read_ahead_loads_the_named_pages_and_no_others() {
    use std::os::fd::AsRawFd;

    let dir = TempDir::new().unwrap();
    let memory = MemoryBudget::tiny(16 << 20);
    let pool = Pool::create(dir.path(), &options(memory.clone())).unwrap();
    let objects = make_objects(&pool, 1024);
    pool.checkpoint().unwrap();
    let file = std::fs::File::open(dir.path().join(crate::layout::POOL_FILE)).unwrap();
    let forget = || {
        pool.drop_clean_pages();
        // SAFETY: advice on an open file.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    };
    let (named, other) = (objects[300], objects[700]);
    let began = Instant::now();
    while is_cached(&pool, named) || is_cached(&pool, other) {
        assert!(began.elapsed() < Duration::from_secs(60), "pages stay in the file's cache");
        forget();
        std::thread::sleep(Duration::from_millis(5));
    }
    while !is_cached(&pool, named) {
        assert!(began.elapsed() < Duration::from_secs(60), "the named page does not come");
        // Offsets behind the end of the pool have no pages.
        pool.read_ahead([named, named.plus(8), PoolOffset::new(pool.bytes() + (1 << 30))].into_iter());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!is_cached(&pool, other), "a page that nobody named was loaded");
    pool.close().unwrap();
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_residency_is_caught() {
    use crate::order::faults::{alone, check_all};
    use crate::order::tests::{By, LIST};
    let _alone = alone();
    storm(100_000).unwrap();
    while_a_checkpoint_is_under_way().unwrap();
    let caught = check_all(crate::POINTS, LIST, By::Residency, || {
        while_a_checkpoint_is_under_way().and_then(|()| storm(1_000_000))
    });
    assert_eq!(caught, 3);
}
