#![allow(clippy::unwrap_used)]

use super::*;
use std::sync::atomic::AtomicUsize;

const MIB: u64 = 1 << 20;

fn used(budget: &MemoryBudget, consumer: MemoryConsumer) -> (u64, u64) {
    let usage = budget.usage();
    let line = usage.consumers.iter().find(|line| line.consumer == consumer).unwrap();
    (line.used_bytes, line.peak_bytes)
}

#[test]
fn reservations_grow_shrink_split_and_give_back() {
    let budget = MemoryBudget::new(128 * MIB).unwrap();
    let mut first = budget.try_reserve(MemoryConsumer::WriteSets, 10 * MIB).unwrap();
    first.try_grow(5 * MIB).unwrap();
    let part = first.split(4 * MIB);
    assert_eq!((first.bytes(), part.bytes()), (11 * MIB, 4 * MIB));
    assert_eq!(used(&budget, MemoryConsumer::WriteSets), (15 * MIB, 15 * MIB));
    first.shrink(MIB);
    first.try_resize(2 * MIB).unwrap();
    drop(part);
    assert_eq!(used(&budget, MemoryConsumer::WriteSets), (2 * MIB, 15 * MIB));
    first.clear();
    drop(first);
    assert_eq!(budget.usage().used_bytes(), 0);
    assert_eq!(budget.free_bytes(), 112 * MIB, "an eighth is for pages");
}

#[test]
fn a_limit_names_the_largest_consumers() {
    let budget = MemoryBudget::new(128 * MIB).unwrap();
    let _queries = budget.try_reserve(MemoryConsumer::Queries, 80 * MIB).unwrap();
    let mut sets = budget.try_reserve(MemoryConsumer::WriteSets, 20 * MIB).unwrap();
    let error = sets.try_grow(13 * MIB).unwrap_err();
    assert_eq!(sets.bytes(), 20 * MIB, "nothing has changed");
    assert_eq!(
        error.to_string(),
        "out of memory: write sets need 13MiB more, but only 12MiB of memory_max = 128MiB are available \
         (in use: queries 80MiB, write sets 20MiB); run fewer statements at once, or raise memory_max"
    );
    sets.try_grow(12 * MIB).unwrap();
    assert!(budget.try_reserve(MemoryConsumer::Caches, 1).is_err());
    let over = budget.reserve_unchecked(MemoryConsumer::Caches, 50 * MIB);
    assert_eq!((budget.free_bytes(), budget.elastic_target()), (0, 16 * MIB));
    assert!(budget.try_reserve(MemoryConsumer::Caches, u64::MAX).is_err());
    drop(over);
    assert_eq!(budget.usage().used_bytes(), 112 * MIB);
}

#[test]
fn a_budget_that_is_too_small_names_the_minimum() {
    let error = MemoryBudget::new(MIB).unwrap_err();
    assert_eq!(error.to_string(), "memory_max is 1MiB; it must be at least 64MiB");
    let budget = MemoryBudget::new(MEMORY_MAX_MIN).unwrap();
    assert_eq!(budget.set_max_bytes(0), Err(InvalidBudget::TooSmall(0)));
    assert_eq!(MemorySize::Percent(0).bytes_of(1 << 30), Err(InvalidBudget::NoShare(0)));
}

#[test]
fn who_waits_gets_what_others_free() {
    let budget = MemoryBudget::new(64 * MIB).unwrap();
    let held = budget.try_reserve(MemoryConsumer::Queries, 50 * MIB).unwrap();
    let short = Duration::from_millis(5);
    assert!(budget.reserve_within(MemoryConsumer::Undo, 10 * MIB, short).is_err());
    let waiting = {
        let budget = budget.clone();
        std::thread::spawn(move || {
            budget.reserve_within(MemoryConsumer::Undo, 10 * MIB, Duration::from_secs(60))
        })
    };
    while budget.waiting.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    drop(held);
    assert_eq!(waiting.join().unwrap().unwrap().bytes(), 10 * MIB);
}

struct Owner(AtomicUsize);

impl Shrink for Owner {
    fn shrink(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn elastic_memory_has_what_others_leave_and_is_asked_to_shrink() {
    let budget = MemoryBudget::new(80 * MIB).unwrap();
    let owner = Arc::new(Owner(AtomicUsize::new(0)));
    let weak: Weak<dyn Shrink> = Arc::downgrade(&(owner.clone() as Arc<dyn Shrink>));
    budget.register(weak);
    budget.observe(MemoryConsumer::PoolPages, 0, 70 * MIB);
    assert_eq!(budget.elastic_target(), 80 * MIB);
    let small = budget.try_reserve(MemoryConsumer::Queries, 10 * MIB).unwrap();
    assert_eq!(owner.0.load(Ordering::SeqCst), 0, "all fits");
    let large = budget.try_reserve(MemoryConsumer::Queries, 50 * MIB).unwrap();
    assert_eq!(owner.0.load(Ordering::SeqCst), 1);
    assert_eq!(budget.elastic_target(), 20 * MIB);
    budget.observe(MemoryConsumer::PoolPages, 70 * MIB, 20 * MIB);
    assert_eq!(used(&budget, MemoryConsumer::PoolPages), (20 * MIB, 70 * MIB));
    drop((small, large));
    assert_eq!(budget.elastic_target(), 80 * MIB);
    budget.set_max_bytes(64 * MIB).unwrap();
    assert_eq!(owner.0.load(Ordering::SeqCst), 2);
}

#[test]
fn elastic_memory_makes_room_for_the_process_up_to_half_of_a_small_budget() {
    let budget = MemoryBudget::new(80 * MIB).unwrap();
    budget.observe(MemoryConsumer::PoolPages, 0, 50 * MIB);
    let _queries = budget.try_reserve(MemoryConsumer::Queries, 10 * MIB).unwrap();
    budget.observe_process(75 * MIB);
    assert_eq!(used(&budget, MemoryConsumer::Process), (15 * MIB, 15 * MIB));
    assert_eq!(budget.elastic_target(), 55 * MIB);
    budget.observe_process(500 * MIB);
    assert_eq!(used(&budget, MemoryConsumer::Process).0, 40 * MIB, "an application has a heap of its own");
    assert_eq!((budget.elastic_target(), budget.free_bytes()), (30 * MIB, 60 * MIB));
    // What was reserved may not be in use yet.
    budget.observe_process(20 * MIB);
    assert_eq!((used(&budget, MemoryConsumer::Process).0, budget.elastic_target()), (0, 70 * MIB));
}

#[test]
fn the_process_takes_a_quarter_of_a_large_budget() {
    let budget = MemoryBudget::new(1024 * MIB).unwrap();
    budget.observe_process(1000 * MIB);
    assert_eq!(used(&budget, MemoryConsumer::Process).0, 256 * MIB);
}

#[test]
fn threads_never_reserve_more_than_there_is() {
    let budget = MemoryBudget::tiny(8 * MIB);
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            let budget = &budget;
            scope.spawn(move || {
                let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                let mut held = Vec::new();
                for _ in 0..20_000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if let Ok(reservation) = budget.try_reserve(MemoryConsumer::Queries, random % MIB) {
                        held.push(reservation);
                    }
                    assert!(used(budget, MemoryConsumer::Queries).0 <= 7 * MIB);
                    if held.len() > 8 || random.is_multiple_of(3) {
                        held.clear();
                    }
                }
            });
        }
    });
    assert_eq!((budget.usage().used_bytes(), budget.free_bytes()), (0, 7 * MIB));
}

#[test]
fn sizes_read_as_they_print() {
    for (text, size) in [
        ("512MiB", MemorySize::Bytes(512 * MIB)),
        ("1GiB", MemorySize::Bytes(1 << 30)),
        ("25%", MemorySize::Percent(25)),
        ("100B", MemorySize::Bytes(100)),
    ] {
        assert_eq!(text.parse(), Ok(size));
        assert_eq!(size.to_string(), text);
    }
    for (text, bytes) in [(" 4 gb", 4 << 30), ("64k", 65_536), ("1048576", MIB), ("8kB", 8192)] {
        assert_eq!(text.parse(), Ok(MemorySize::Bytes(bytes)), "{text}");
    }
    for text in ["", "MiB", "1.5GB", "-1", "0%", "101%", "half", "99999999999TiB", "1 G B"] {
        assert!(text.parse::<MemorySize>().unwrap_err().to_string().contains(text), "{text}");
    }
    assert_eq!(Bytes(3 * MIB / 2).to_string(), "1.5MiB");
    assert_eq!(MemorySize::default().bytes_of(1000 * MIB), Ok(500 * MIB));
}

#[test]
fn a_part_is_bounded_and_counts_in_the_whole() {
    let budget = MemoryBudget::new(128 * MIB).unwrap();
    let part = MemoryBudget::part(Some(&budget), "memory of topology t", 10 * MIB);
    let mut state = part.try_reserve(MemoryConsumer::StreamState, 7 * MIB).unwrap();
    assert_eq!(used(&budget, MemoryConsumer::StreamState), (7 * MIB, 7 * MIB));
    let error = state.try_grow(4 * MIB).unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of memory: stream state need 4MiB more, but only 3MiB of memory of topology t = 10MiB are available \
         (in use: stream state 7MiB); raise that"
    );
    assert_eq!((state.bytes(), budget.free_bytes()), (7 * MIB, 105 * MIB), "nothing has changed");
    let others = budget.try_reserve(MemoryConsumer::Queries, 103 * MIB).unwrap();
    assert_eq!(part.free_bytes(), 2 * MIB);
    let error = state.try_grow(3 * MIB).unwrap_err();
    assert!(error.part.is_none() && error.to_string().contains("memory_max = 128MiB"), "{error}");
    assert_eq!(used(&part, MemoryConsumer::StreamState).0, 7 * MIB, "what the whole refused is released");
    drop(others);
    state.try_grow(3 * MIB).unwrap();
    let over = part.reserve_unchecked(MemoryConsumer::StreamState, MIB);
    assert_eq!((part.free_bytes(), used(&budget, MemoryConsumer::StreamState).0), (0, 11 * MIB));
    let part_of_state = state.split(2 * MIB);
    drop((over, state, part_of_state));
    assert_eq!((budget.usage().used_bytes(), part.usage().used_bytes()), (0, 0));
    let alone = MemoryBudget::part(None, "memory of topology t", MIB);
    assert!(alone.try_reserve(MemoryConsumer::StreamState, MIB + 1).is_err());
    assert!(alone.reserve_within(MemoryConsumer::StreamState, MIB, Duration::ZERO).is_ok());
}
