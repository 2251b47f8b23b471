//! The allocator under the crash checker: after any crash, the allocated objects are the reachable ones, and
//! none of them is handed out again.

use entresol_memory::crash::{CrashOptions, check};
use entresol_memory::env::Env;
use entresol_memory::{Pool, PoolOffset, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SLOTS: usize = 12;
/// Several classes of slabs, and objects of one to three chunks.
const SIZES: [usize; 9] = [16, 100, 256, 700, 4_000, 20_000, 32_768, 40_000, 150_000];

/// Creates the table of a thread: a root object whose words are the offsets of objects, or 0.
fn make_table(pool: &Pool, name: &str) -> Result<PoolOffset> {
    let table = pool.reserve(SLOTS * 8)?;
    let at = table.offset();
    pool.words(at, SLOTS).iter().for_each(|word| word.store(0, Ordering::Relaxed));
    pool.flush(at, SLOTS * 8);
    let mut publication = pool.publication();
    publication.allocate(table);
    publication.set_root(name, at)?;
    publication.publish()?;
    Ok(at)
}

/// Fills, replaces and empties slots, with small and with large objects in turn, so that chunks change their
/// use. An object's first words describe it.
fn change_slots(pool: &Pool, table: PoolOffset, seed: u64, phases: usize, steps: u64) -> Result<()> {
    let random = Env::simulated(seed);
    let (small, large) = SIZES.split_at(6);
    for sizes in [small, large].into_iter().cycle().take(phases) {
        for _ in 0..steps {
            let slot = table.plus(random.random_u64() % SLOTS as u64 * 8);
            let bytes = sizes[(random.random_u64() % sizes.len() as u64) as usize];
            put(pool, slot, (!random.random_u64().is_multiple_of(4)).then_some(bytes))?;
        }
        for slot in (0..SLOTS as u64).map(|i| table.plus(i * 8)) {
            // Some stay over the phases.
            if !random.random_u64().is_multiple_of(8) {
                put(pool, slot, None)?;
            }
        }
    }
    Ok(())
}

/// Replaces the object in the slot by a new one, or by none.
fn put(pool: &Pool, slot: PoolOffset, bytes: Option<usize>) -> Result<()> {
    let mut publication = pool.publication();
    let old = PoolOffset::from_word(pool.word(slot).load(Ordering::Relaxed));
    if !old.is_null() {
        publication.free(old);
    }
    match bytes {
        Some(bytes) => {
            let object = pool.reserve(bytes)?;
            let words = pool.words(object.offset(), 2);
            words[0].store(bytes as u64, Ordering::Relaxed);
            words[1].store(slot.to_word(), Ordering::Relaxed);
            pool.flush(object.offset(), 16);
            let fresh = publication.allocate(object);
            publication.set(slot, fresh.to_word());
        }
        None if !old.is_null() => publication.set(slot, 0),
        None => return Ok(()),
    }
    publication.publish()
}

/// Checks that the tables reach the allocated objects, each intact and once; and that new reservations
/// overlap none.
fn verify(pool: &Arc<Pool>) -> std::result::Result<(), String> {
    let mut reachable = BTreeMap::new();
    for name in ["first", "second"] {
        let Some(table) = pool.root(name) else { continue };
        reachable.insert(table, (SLOTS * 8).next_multiple_of(64) as u64);
        for slot in (0..SLOTS as u64).map(|i| table.plus(i * 8)) {
            let offset = PoolOffset::from_word(pool.word(slot).load(Ordering::Relaxed));
            if offset.is_null() {
                continue;
            }
            let words = pool.words(offset, 2);
            let (bytes, owner) = (words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed));
            let given = pool.object_bytes(offset) as u64;
            if owner != slot.to_word() || !SIZES.contains(&(bytes as usize)) || given < bytes {
                return Err(format!("{offset:#x} in {slot:#x} says {bytes} bytes of {owner:#x}"));
            }
            if reachable.insert(offset, given).is_some() {
                return Err(format!("{offset:#x} is in two slots"));
            }
        }
    }
    let mut allocated = BTreeMap::new();
    pool.for_each_object(|offset, bytes| {
        allocated.insert(offset, bytes);
    });
    if allocated != reachable {
        return Err(format!("allocated {allocated:x?}, reachable {reachable:x?}"));
    }
    // Before anything that loads all maps. All at once, so that they must differ from each other as well.
    let held: Vec<_> = SIZES.iter().filter_map(|bytes| pool.reserve(*bytes).ok()).collect();
    for object in &held {
        allocated.insert(object.offset(), object.bytes() as u64);
    }
    if allocated.len() != reachable.len() + held.len() {
        return Err("an object was handed out twice".to_string());
    }
    let ranges: Vec<_> = allocated.iter().map(|(offset, bytes)| (*offset, offset.plus(*bytes))).collect();
    if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        return Err(format!("{pair:x?} overlap"));
    }
    drop(held);
    let (used, reached) = (pool.space().used_bytes(), reachable.values().sum::<u64>());
    if used != reached {
        return Err(format!("{used} bytes are said to be used of {reached}"));
    }
    Ok(())
}

#[test]
fn no_crash_leaks_or_shares_objects_of_any_size() {
    for seed in 1..=2 {
        let options = CrashOptions {
            seed,
            random_states: 2,
            crash_recovery_every: 24,
            extent_bytes: 512 << 10,
            ..CrashOptions::default()
        };
        let report = check(
            &options,
            |pool| {
                let table = make_table(pool, "first")?;
                change_slots(pool, table, seed, 3, 14)?;
                // Slabs of sizes that are no longer used make room for others: the pool need not grow for
                // ever.
                assert!(pool.bytes() <= 3 << 20, "{:?}", pool.space());
                Ok(())
            },
            verify,
        );
        let report = report.unwrap();
        assert!(report.states > 1_000 && report.recovery_states > 100, "{report:?}");
    }
}

#[test]
fn no_crash_leaks_or_shares_objects_of_two_threads() {
    let options = CrashOptions {
        seed: 5,
        random_states: 1,
        crash_recovery_every: 32,
        extent_bytes: 512 << 10,
        ..CrashOptions::default()
    };
    let report = check(
        &options,
        |pool| {
            let tables = [make_table(pool, "first")?, make_table(pool, "second")?];
            std::thread::scope(|scope| {
                let threads: Vec<_> = tables
                    .iter()
                    .zip(10..)
                    .map(|(table, seed)| scope.spawn(move || change_slots(pool, *table, seed, 2, 10)))
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })
        },
        verify,
    );
    let report = report.unwrap();
    assert!(report.states > 500, "{report:?}");
}
