//! The journal under power failures on the level of files, and the mutants that these tests must catch.

#![allow(clippy::unwrap_used)]

use super::{PowerFailureOptions, PowerFailureReport, Run, Scenario, check};
use crate::offset::PoolOffset;
use crate::{DomainChoice, Durability, JournalOptions, Pool, PoolOptions, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn pool_options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 256 << 10,
        address_space_bytes: 16 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            checkpoint_bytes: 64 << 20,
            journal_bytes_max: 64 << 20,
            preallocated_slots: 2,
            ..JournalOptions::default()
        },
        ..PoolOptions::default()
    }
}

/// A list of numbered objects, newest first, from 1: [next, number]. Every object is reachable or free.
fn push(pool: &Pool, number: u64, bytes: usize) -> Result<()> {
    let node = pool.reserve(bytes)?;
    let words = pool.words(node.offset(), 2);
    words[0].store(pool.root("list").unwrap_or(PoolOffset::NULL).to_word(), Ordering::Relaxed);
    words[1].store(number, Ordering::Relaxed);
    pool.flush(node.offset(), 16);
    let mut publication = pool.publication();
    let offset = publication.allocate(node);
    publication.set_root("list", offset)?;
    publication.publish()
}

fn list_length(pool: &Pool) -> std::result::Result<u64, String> {
    let mut at = pool.root("list").unwrap_or(PoolOffset::NULL);
    let length = if at.is_null() { 0 } else { pool.words(at, 2)[1].load(Ordering::Relaxed) };
    for expected in (1..=length).rev() {
        if at.is_null() || !pool.contains(at, 16) || !at.is_aligned(8) {
            return Err(format!("the list breaks off before object {expected} of {length}: {at:#x}"));
        }
        let words = pool.words(at, 2);
        if words[1].load(Ordering::Relaxed) != expected {
            return Err(format!("object {expected} of {length} says {}", words[1].load(Ordering::Relaxed)));
        }
        at = PoolOffset::from_word(words[0].load(Ordering::Relaxed));
    }
    sound_pages(pool)?;
    let mut objects = 0;
    pool.for_each_object(|_, _| objects += 1);
    if !at.is_null() || objects != length {
        return Err(format!("{length} objects are reachable, {objects} allocated, the end is {at:#x}"));
    }
    Ok(length)
}

/// Checks that the power failure was not reported as damage.
fn sound_pages(pool: &Pool) -> std::result::Result<(), String> {
    let report = pool.verify_pages(|_| {}).map_err(|e| e.to_string())?.ok_or("no checksums")?;
    if report.damaged.is_empty() { Ok(()) } else { Err(format!("false alarm: {report:?}")) }
}

/// Waits until the journal's own thread has written a frame without a sync. Another thread requests it, so
/// that the only order is that of what was done before.
fn write_without_sync(run: &Run, pool: &Pool) -> Result<()> {
    let before = run.recorded();
    std::thread::scope(|scope| {
        scope.spawn(|| pool.persist(Durability::None)).join().expect("it does not panic")
    })?;
    while run.recorded() == before {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Single commits, unsynced ones in between, checkpoints, a close and reopens.
struct Commits;

impl Commits {
    fn commit(&self, run: &Run, pool: &Pool, number: u64) -> Result<()> {
        run.begin(number);
        push(pool, number, 64)?;
        pool.sync()?;
        run.acknowledge(number);
        Ok(())
    }

    /// A frame for each, one sync for all.
    fn commit_together(&self, run: &Run, pool: &Pool, numbers: std::ops::RangeInclusive<u64>) -> Result<()> {
        for number in numbers.clone() {
            run.begin(number);
            push(pool, number, 64)?;
            write_without_sync(run, pool)?;
        }
        pool.sync()?;
        run.acknowledge(*numbers.end());
        Ok(())
    }
}

impl Scenario for Commits {
    fn history(&self, run: &Run) -> Result<()> {
        let pool = Pool::create(run.directory(), run.options())?;
        // In slots that were never used: a frame that is lost, and a later one that is not.
        self.commit_together(run, &pool, 1..=3)?;
        (4..=8).try_for_each(|number| self.commit(run, &pool, number))?;
        pool.checkpoint()?;
        self.commit(run, &pool, 9)?;
        pool.close()?;
        drop(pool);
        let pool = Pool::open(run.directory(), run.options())?;
        self.commit_together(run, &pool, 10..=12)?;
        // A slot has room for 15 frames: the last of these begin a new one.
        (13..=23).try_for_each(|number| self.commit(run, &pool, number))?;
        self.commit_together(run, &pool, 24..=26)?;
        // More slots than were preallocated, then a checkpoint that frees them.
        (27..=60).try_for_each(|number| self.commit(run, &pool, number))?;
        pool.checkpoint()?;
        (61..=64).try_for_each(|number| self.commit(run, &pool, number))?;
        // Closing gives slots back, and their numbers come again.
        let bytes = |pool: &Pool| pool.stats().journal_bytes;
        let before = bytes(&pool);
        pool.close()?;
        drop(pool);
        let pool = Pool::open(run.directory(), run.options())?;
        assert!(bytes(&pool) < before, "{} of {before} bytes are left", bytes(&pool));
        self.commit_together(run, &pool, 65..=67)?;
        (68..=100).try_for_each(|number| self.commit(run, &pool, number))
    }

    fn verify(&self, pool: &Arc<Pool>) -> std::result::Result<u64, String> {
        list_length(pool)
    }

    fn resume(&self, run: &Run, pool: &Arc<Pool>, found: u64) -> Result<()> {
        self.commit(run, pool, found + 1)?;
        // Where this ends, a stale frame may follow that would fit; after a checkpoint others may.
        if found.is_multiple_of(2) {
            return Ok(());
        }
        pool.checkpoint()?;
        self.commit(run, pool, found + 2)
    }
}

/// Objects that fill their pool quickly: growth, and a checkpoint of several pages.
struct Growth;

impl Scenario for Growth {
    fn history(&self, run: &Run) -> Result<()> {
        let pool = Pool::create(run.directory(), run.options())?;
        for number in 1..=14 {
            run.begin(number);
            push(&pool, number, 32 << 10)?;
            if number % 3 == 0 {
                pool.sync()?;
                run.acknowledge(number);
            }
            if number == 8 {
                pool.checkpoint()?;
                run.acknowledge(number);
            }
        }
        pool.close()?;
        run.acknowledge(14);
        Ok(())
    }

    fn verify(&self, pool: &Arc<Pool>) -> std::result::Result<u64, String> {
        list_length(pool)
    }

    fn resume(&self, run: &Run, pool: &Arc<Pool>, found: u64) -> Result<()> {
        run.begin(found + 1);
        push(pool, found + 1, 32 << 10)?;
        pool.close()?;
        run.acknowledge(found + 1);
        Ok(())
    }
}

/// One region of several pages that is filled with the number of each operation before a word records it:
/// frames of many sectors, in several slots, of which many are not synced.
struct Regions;

const REGIONS: u64 = 3;
const REGION_BYTES: usize = 12 << 10;

impl Regions {
    /// Without the last fence: a sync needs none before it.
    fn fill(&self, run: &Run, pool: &Pool, number: u64) -> Result<()> {
        run.begin(number);
        let at = pool.root("regions").unwrap_or(PoolOffset::NULL);
        let region = at.plus(64).plus(number % REGIONS * REGION_BYTES as u64);
        pool.words(region, REGION_BYTES / 8).iter().for_each(|word| word.store(number, Ordering::Relaxed));
        pool.flush(region, REGION_BYTES);
        pool.fence();
        pool.word(at).store(number, Ordering::Release);
        pool.flush(at, 8);
        Ok(())
    }
}

impl Scenario for Regions {
    fn history(&self, run: &Run) -> Result<()> {
        let pool = Pool::create(run.directory(), run.options())?;
        let object = pool.reserve(64 + REGIONS as usize * REGION_BYTES)?;
        pool.words(object.offset(), object.bytes() / 8).iter().for_each(|w| w.store(0, Ordering::Relaxed));
        pool.flush(object.offset(), object.bytes());
        let mut publication = pool.publication();
        let at = publication.allocate(object);
        publication.set_root("regions", at)?;
        publication.publish()?;
        for number in 1..=10 {
            self.fill(run, &pool, number)?;
            if number % 4 == 0 {
                pool.sync()?;
                run.acknowledge(number);
            } else {
                pool.fence();
            }
        }
        pool.checkpoint()?;
        run.acknowledge(10);
        self.fill(run, &pool, 11)?;
        pool.fence();
        Ok(())
    }

    fn verify(&self, pool: &Arc<Pool>) -> std::result::Result<u64, String> {
        sound_pages(pool)?;
        let Some(at) = pool.root("regions") else { return Ok(0) };
        let number = pool.word(at).load(Ordering::Acquire);
        for back in 0..REGIONS.min(number) {
            let expected = number - back;
            let region = at.plus(64).plus(expected % REGIONS * REGION_BYTES as u64);
            // The oldest region may be on its way to the number after the last that counts.
            let next = if back == REGIONS - 1 { number + 1 } else { expected };
            let words = pool.words(region, REGION_BYTES / 8);
            let wrong =
                words.iter().map(|w| w.load(Ordering::Relaxed)).find(|w| *w != expected && *w != next);
            if let Some(wrong) = wrong {
                return Err(format!("operation {number} counts, but the region of {expected} has {wrong}"));
            }
        }
        Ok(number)
    }

    fn resume(&self, run: &Run, pool: &Arc<Pool>, found: u64) -> Result<()> {
        if pool.root("regions").is_none() {
            return Ok(());
        }
        for number in found + 1..=found + 3 {
            self.fill(run, pool, number)?;
            if number < found + 3 {
                pool.fence();
            }
        }
        pool.sync()?;
        run.acknowledge(found + 3);
        Ok(())
    }
}

/// List of the newest three objects of a chunk each, with a number in every page; older ones are freed, and
/// their blocks are released, often before anything was synced.
struct Holes;

const LISTED: u64 = 3;
const PAGE_BYTES: u64 = 4096;
const PAGES: u64 = 16;

impl Holes {
    /// Adds object `number`, and frees the oldest in the same publication.
    fn turn(&self, run: &Run, pool: &Pool, number: u64) -> Result<()> {
        run.begin(number);
        let object = pool.reserve((PAGES * PAGE_BYTES) as usize)?;
        let newest = pool.root("newest").unwrap_or(PoolOffset::NULL);
        for page in 0..PAGES {
            let at = object.offset().plus(page * PAGE_BYTES);
            pool.word(at).store(number, Ordering::Relaxed);
            pool.word(at.plus(8)).store(newest.to_word(), Ordering::Relaxed);
            pool.flush(at, 16);
        }
        let mut publication = pool.publication();
        let at = publication.allocate(object);
        publication.set_root("newest", at)?;
        if number > LISTED {
            let last = (2..LISTED)
                .fold(newest, |at, _| PoolOffset::from_word(pool.word(at.plus(8)).load(Ordering::Relaxed)));
            publication.free(PoolOffset::from_word(pool.word(last.plus(8)).load(Ordering::Relaxed)));
        }
        publication.publish()
    }

    /// Releases free space. Readers elsewhere in this process may delay it briefly.
    fn return_space(&self, run: &Run, pool: &Pool, number: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.return_space()? == 0 {
            assert!(Instant::now() < deadline, "nothing was free: {:?}", pool.space());
            std::thread::sleep(Duration::from_millis(1));
        }
        run.acknowledge(number);
        Ok(())
    }
}

impl Scenario for Holes {
    fn history(&self, run: &Run) -> Result<()> {
        let pool = Pool::create(run.directory(), run.options())?;
        for number in 1..=16 {
            self.turn(run, &pool, number)?;
            match number % 4 {
                3 if number > LISTED => self.return_space(run, &pool, number)?,
                1 if number > 8 => {
                    pool.sync()?;
                    run.acknowledge(number);
                }
                _ => {}
            }
        }
        pool.close()?;
        run.acknowledge(16);
        Ok(())
    }

    fn verify(&self, pool: &Arc<Pool>) -> std::result::Result<u64, String> {
        sound_pages(pool)?;
        let mut at = pool.root("newest").unwrap_or(PoolOffset::NULL);
        let number = if at.is_null() { 0 } else { pool.word(at).load(Ordering::Relaxed) };
        let mut allocated = std::collections::BTreeSet::new();
        pool.for_each_object(|offset, _| assert!(allocated.insert(offset)));
        for expected in (number.saturating_sub(LISTED) + 1..=number).rev() {
            if !allocated.remove(&at) {
                return Err(format!("object {expected} is at {at:#x}, where nothing is allocated"));
            }
            for page in 0..PAGES {
                let found = pool.word(at.plus(page * PAGE_BYTES)).load(Ordering::Relaxed);
                if found != expected {
                    return Err(format!("page {page} of object {expected} has {found}"));
                }
            }
            at = PoolOffset::from_word(pool.word(at.plus(8)).load(Ordering::Relaxed));
        }
        if allocated.is_empty() { Ok(number) } else { Err(format!("no list has {allocated:x?}")) }
    }

    fn resume(&self, run: &Run, pool: &Arc<Pool>, found: u64) -> Result<()> {
        (found + 1..=found + 2).try_for_each(|number| self.turn(run, pool, number))?;
        pool.return_space()?;
        run.acknowledge(found + 2);
        Ok(())
    }
}

fn options(seed: u64, soak: bool) -> PowerFailureOptions {
    PowerFailureOptions { seed, random_states: if soak { 400 } else { 32 }, ..PowerFailureOptions::default() }
}

fn run_all(seed: u64, soak: bool) -> Result<PowerFailureReport> {
    let scenarios: [(&str, &dyn Scenario); 4] =
        [("commits", &Commits), ("growth", &Growth), ("regions", &Regions), ("holes", &Holes)];
    let mut total = PowerFailureReport::default();
    for (name, scenario) in scenarios {
        let started = Instant::now();
        let torn = soak || name != "regions";
        // A recovery that releases space has many states.
        let crash_recovery_every = if name == "holes" { 499 } else { 61 };
        let options = PowerFailureOptions { torn, crash_recovery_every, ..options(seed, soak) };
        let report = check(&options, &pool_options(), scenario)?;
        let per_minute = report.states as f64 / started.elapsed().as_secs_f64() * 60.0;
        println!("{name}: {report:?}, {per_minute:.0} states a minute");
        total.events += report.events;
        total.states += report.states;
        total.recovery_states += report.recovery_states;
    }
    Ok(total)
}

#[cfg(not(feature = "mutants"))]
#[test]
fn no_power_failure_loses_what_was_acknowledged() {
    let factor = crate::crash::soak_factor();
    let (started, last) = (Instant::now(), factor.map_or(1, |factor| (20.0 * factor).ceil() as u64));
    for seed in 1..=last {
        let total = run_all(seed, factor.is_some()).unwrap();
        let seconds = started.elapsed().as_secs_f64();
        let left_s = seconds / seed as f64 * (last - seed) as f64;
        println!("files: seed {seed} of {last} after {seconds:.0} s, {left_s:.0} s to go, {total:?}");
        assert!(total.states > 10_000 && total.recovery_states > 500, "{total:?}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_on_the_level_of_files_is_caught() {
    use crate::order::faults::{alone, check_all};
    use crate::order::tests::{By, LIST};
    let _alone = alone();
    assert!(check_all(crate::POINTS, LIST, By::Files, || run_all(1, false)) > 20);
}
