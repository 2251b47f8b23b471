//! Costs of the modelled domain, by hand-counted examples.

use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, DomainKind, Load, ModelledCost, Pool, PoolOffset, PoolOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

fn optane_pool() -> Arc<Pool> {
    Pool::modelled(&PoolOptions::default(), &Profile::embedded("optane-dcpmm").unwrap()).unwrap()
}

/// Allocates a large object, aligned to blocks, without touching it.
fn object(pool: &Pool, bytes: usize) -> PoolOffset {
    let reservation = pool.reserve(bytes).unwrap();
    let offset = reservation.offset();
    let mut publication = pool.publication();
    publication.set_root("object", offset).unwrap();
    publication.allocate(reservation);
    publication.publish().unwrap();
    offset
}

fn billed(pool: &Pool, work: impl FnOnce()) -> ModelledCost {
    let before = pool.modelled_cost().unwrap();
    work();
    pool.modelled_cost().unwrap() - before
}

/// Latency of a line of Optane whose block is in the module's buffer: (4 × 174 − 325) / 3.
const BUFFERED_NS: f64 = 123.667;

fn read(pool: &Pool, offset: PoolOffset) {
    pool.word(offset).load(Relaxed);
}

#[track_caller]
fn assert_ns(cost: ModelledCost, expected_ns: f64) {
    assert!((cost.ns() - expected_ns).abs() < 0.01, "{} ns, expected {expected_ns}", cost.ns());
}

#[test]
fn reads_are_billed_by_where_the_line_is() {
    let pool = optane_pool();
    let at = object(&pool, 1 << 20);
    let reading = |offset: u64| billed(&pool, || read(&pool, at.plus(offset)));
    let first = reading(0);
    assert_eq!((first.lines_read, first.blocks_read, first.cache_hits), (1, 1, 0));
    assert_ns(first, 325.0);
    let again = reading(8);
    assert_eq!((again.lines_read, again.cache_hits), (0, 1));
    assert_ns(again, 1.2);
    let neighbour = reading(64);
    assert_eq!((neighbour.lines_read, neighbour.blocks_read), (1, 0), "its block is in the buffer");
    assert_ns(neighbour, BUFFERED_NS);
}

#[test]
fn the_lines_of_one_slice_overlap_and_views_are_billed_by_touch() {
    let pool = optane_pool();
    let at = object(&pool, 1 << 20);
    let whole = billed(&pool, || {
        let _ = pool.words(at, 32);
    });
    assert_eq!((whole.lines_read, whole.blocks_read), (4, 1));
    assert_ns(whole, 325.0);
    let view = billed(&pool, || {
        pool.view(at.plus(4096), 64)[0].load(Relaxed);
    });
    assert_eq!(view, ModelledCost { line_bytes: 64, block_bytes: 256, ..ModelledCost::default() });
    let touched = billed(&pool, || pool.touch(at.plus(4096 + 60), 8));
    assert_eq!(touched.lines_read, 2, "the bytes lie on two lines");
    assert_eq!(billed(&pool, || pool.touch(at, 0)).cache_hits, 0);
}

#[test]
#[should_panic(expected = "outside the pool")]
fn a_billed_pool_has_bounds_too() {
    let pool = optane_pool();
    {
        let _ = pool.words(PoolOffset::new(pool.bytes() - 8), 2);
    };
}

#[test]
#[should_panic(expected = "outside the pool")]
fn a_view_has_bounds() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    {
        let _ = pool.view(PoolOffset::new(pool.bytes() - 8), 2);
    };
}

#[test]
fn prefetches_overlap_up_to_what_a_core_can_have_under_way() {
    let pool = optane_pool();
    let at = object(&pool, 1 << 20);
    let pages_read = |pages: std::ops::Range<u64>, prefetched: bool| {
        billed(&pool, || {
            if prefetched {
                pages.clone().for_each(|page| pool.prefetch(at.plus(page * 4096)));
            }
            pages.for_each(|page| read(&pool, at.plus(page * 4096)));
        })
    };
    assert_ns(pages_read(0..12, false), 12.0 * 325.0);
    // All on their way at once: the first takes its latency, and the rest are there soon after.
    let together = pages_read(12..24, true);
    assert_eq!((together.lines_read, together.cache_hits), (12, 12));
    assert!(together.ns() > 325.0 && together.ns() < 2.5 * 325.0, "{}", together.ns());
    // Twice as many as fit: two rounds.
    let twice = pages_read(24..48, true);
    assert!(twice.ns() > 2.0 * 325.0 && twice.ns() < 5.0 * 325.0, "{}", twice.ns());
    assert_eq!(billed(&pool, || pool.prefetch(PoolOffset::new(u64::MAX))).lines_read, 0, "not an error");
}

#[test]
fn caches_evict_the_least_recently_used() {
    let pool = optane_pool();
    let at = object(&pool, 15 << 20);
    let scan =
        |bytes: u64| billed(&pool, || (0..bytes / 64).for_each(|line| read(&pool, at.plus(line * 64))));
    scan(1 << 20);
    let cached = scan(1 << 20);
    assert_eq!((cached.lines_read, cached.cache_hits), (0, 16_384), "1 MiB stays in the caches");
    assert!(cached.ns() > 16_384.0 * 4.0, "but not in the first level");
    // More than the caches hold, in a circle: the worst for this replacement.
    scan(15 << 20);
    let again = scan(15 << 20);
    assert!(again.lines_read > 15 * 16_384 * 9 / 10, "{} lines read again", again.lines_read);
}

#[test]
fn flushes_and_fences_take_time_and_write_what_changed() {
    let pool = optane_pool();
    let at = object(&pool, 1 << 20);
    for line in 0..8 {
        pool.word(at.plus(line * 64)).load(Relaxed);
    }
    let clean = billed(&pool, || {
        pool.flush(at, 64);
        pool.fence();
    });
    assert_eq!((clean.flushes, clean.fences, clean.lines_written), (1, 1, 0), "nothing had changed");
    assert_ns(clean, 8.0);
    let words = pool.view(at, 64);
    let store = |value: u64| words.iter().for_each(|word| word.store(value, Relaxed));
    store(1);
    let one_fence = billed(&pool, || {
        pool.flush(at, 512);
        pool.fence();
    });
    assert_eq!((one_fence.flushes, one_fence.lines_written, one_fence.blocks_written), (8, 8, 2));
    assert_ns(one_fence, 8.0 * 8.0 + 62.0);
    assert_eq!(one_fence.write_amplification(), 1.0);
    store(2);
    let fence_each = billed(&pool, || {
        for line in 0..8 {
            pool.flush(at.plus(line * 64), 64);
            pool.fence();
        }
    });
    assert_eq!((fence_each.fences, fence_each.blocks_written), (8, 0), "the blocks were still open");
    assert_ns(fence_each, 8.0 * (8.0 + 62.0));
}

#[test]
fn a_flushed_line_leaves_the_caches_where_the_profile_says_so() {
    let mut profile = Profile::embedded("optane-dcpmm").unwrap();
    for (keeps, lines) in [(false, 1), (true, 0)] {
        profile.write.flush_keeps_line = keeps;
        let pool = Pool::modelled(&PoolOptions::default(), &profile).unwrap();
        let at = object(&pool, 4096);
        pool.word(at).store(1, Relaxed);
        pool.flush(at, 8);
        pool.fence();
        assert_eq!(billed(&pool, || read(&pool, at)).lines_read, lines);
    }
}

#[test]
fn lone_lines_cost_a_read_and_a_write_of_their_block() {
    const LINES: u64 = 4000;
    let pool = optane_pool();
    let at = object(&pool, 8 << 20);
    // 384 blocks fit the modules' buffers; far more are written.
    let scattered = billed(&pool, || {
        for i in 0..LINES {
            let line = at.plus((i * 1237 % 4096) * 1024);
            pool.word(line).store(i + 1, Relaxed);
            pool.flush(line, 8);
        }
        pool.fence();
    });
    assert_eq!((scattered.lines_written, scattered.blocks_written), (LINES, LINES));
    assert_eq!(scattered.write_amplification(), 4.0);
    let completed = scattered.blocks_completed;
    assert!((LINES - 384..=LINES).contains(&completed), "{completed} blocks were read to be completed");
    let combined = billed(&pool, || {
        for i in 0..LINES {
            let line = at.plus(4 << 20).plus(i * 64);
            pool.word(line.plus(8)).store(i + 1, Relaxed);
            pool.flush(line, 64);
        }
        pool.fence();
    });
    assert_eq!((combined.lines_written, combined.blocks_written), (LINES, LINES / 4));
    assert!(combined.ns() < scattered.ns(), "{} and {}", combined.ns(), scattered.ns());
}

#[test]
fn evicted_lines_are_written_without_a_flush() {
    let pool = optane_pool();
    let at = object(&pool, 15 << 20);
    pool.word(at).store(7, Relaxed);
    let cost = billed(&pool, || {
        (1..15 * 16_384).for_each(|line| read(&pool, at.plus(line * 64)));
    });
    assert_eq!((cost.lines_written, cost.flushes), (1, 0));
}

#[test]
fn other_threads_take_their_share_and_a_far_device_answers_late() {
    let sequential_writes = |load: Load| {
        let pool = optane_pool();
        let at = object(&pool, 4 << 20);
        pool.set_modelled_load(load).unwrap();
        let cost = billed(&pool, || {
            for page in 0..1024 {
                pool.words(at.plus(page * 4096), 512).iter().for_each(|word| word.store(page + 1, Relaxed));
                pool.flush(at.plus(page * 4096), 4096);
                pool.fence();
            }
        });
        assert_eq!((cost.lines_written, cost.blocks_written), (65_536, 16_384));
        cost.ns()
    };
    let alone = sequential_writes(Load::default());
    let one_of_thirty = sequential_writes(Load { writers: 29, ..Load::default() });
    assert!(one_of_thirty > 4.0 * alone, "{alone} and {one_of_thirty}");
    let pool = optane_pool();
    let at = object(&pool, 4096);
    pool.set_modelled_load(Load { far: true, ..Load::default() }).unwrap();
    assert_ns(billed(&pool, || read(&pool, at)), 650.0);
    let volatile = Pool::volatile(&PoolOptions::default()).unwrap();
    assert!(volatile.set_modelled_load(Load::default()).is_err());
    assert_eq!(volatile.modelled_cost(), None);
}

/// Runs the life of a pool: allocation, publication, growth, root names.
fn life(profile: &str) -> (ModelledCost, Vec<PoolOffset>) {
    let options = PoolOptions { extent_bytes: 1 << 20, domain: DomainChoice::Auto, ..PoolOptions::default() };
    let pool = Pool::modelled(&options, &Profile::embedded(profile).unwrap()).unwrap();
    assert_eq!(pool.domain(), DomainKind::Modelled);
    let mut offsets = Vec::new();
    for i in 0..5000 {
        let reservation = pool.reserve(512).unwrap();
        let offset = reservation.offset();
        pool.words(offset, 64).iter().for_each(|word| word.store(i, Relaxed));
        pool.flush(offset, 512);
        let mut publication = pool.publication();
        publication.allocate(reservation);
        publication.set_root(["a", "b"][i as usize % 2], offset).unwrap();
        publication.publish().unwrap();
        offsets.push(offset);
    }
    assert!(pool.bytes() > 2 << 20, "it grew");
    let cost = pool.modelled_cost().unwrap();
    let stats = pool.stats();
    assert_eq!(stats.fences, cost.fences);
    assert!(stats.flushes > 0 && cost.flushes >= stats.flushes);
    pool.close().unwrap();
    (cost, offsets)
}

#[test]
fn the_same_work_costs_the_same_every_time() {
    for profile in Profile::embedded_names() {
        let (first, offsets) = life(profile);
        assert_eq!((first, offsets), life(profile), "{profile}");
        assert!(first.ns() > 0.0 && first.lines_written > 0);
    }
    let (optane, dram) = (life("optane-dcpmm").0, life("dram").0);
    assert!(optane.ns() > dram.ns());
    assert_eq!(optane.flushes, dram.flushes);
}

#[test]
fn threads_share_one_modelled_core() {
    let pool = optane_pool();
    let at = object(&pool, 1 << 20);
    let cost = billed(&pool, || {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let pool = &pool;
                scope.spawn(move || {
                    for line in 0..1000 {
                        pool.word(at.plus(thread * 65_536 + line * 64)).store(line + 1, Relaxed);
                        pool.flush(at.plus(thread * 65_536 + line * 64), 64);
                    }
                    pool.fence();
                });
            }
        });
    });
    assert_eq!((cost.lines_written, cost.flushes, cost.fences), (4000, 4000, 4));
}

#[test]
fn dram_beside_the_pool_shares_its_caches_and_has_its_own_latency() {
    let profiles = ["optane-dcpmm", "dram"].map(|name| Profile::embedded(name).unwrap());
    let pool = Pool::modelled_beside(&PoolOptions::default(), &profiles[0], &profiles[1]).unwrap();
    let at = object(&pool, 15 << 20);
    let cold = billed(&pool, || pool.touch_beside(&[(4096, 8)]));
    assert_eq!((cold.lines_read, cold.lines_read_beside), (0, 1));
    assert_ns(cold, 88.0);
    assert_ns(billed(&pool, || pool.touch_beside(&[(4096, 64)])), 1.2);
    let together = billed(&pool, || pool.touch_beside(&[(1 << 20, 8), (2 << 20, 8)]));
    assert_eq!(together.lines_read_beside, 2);
    assert!(together.ns() < 100.0, "both are in flight at once: {}", together.ns());
    // More lines of the pool than the caches have displace it.
    for line in 0..(15 << 20) / 64 {
        read(&pool, at.plus(64 * line));
    }
    assert_eq!(billed(&pool, || pool.touch_beside(&[(4096, 8)])).lines_read_beside, 1);
    let alone = optane_pool();
    assert_ns(billed(&alone, || alone.touch_beside(&[(4096, 8)])), 0.0);
}
