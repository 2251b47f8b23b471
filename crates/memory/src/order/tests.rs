//! The faults at this floor's points: which test catches each.

#![allow(clippy::unwrap_used)]

use super::faults::ExpectedOutcome::{Caught, Harmless};
use super::faults::{ExpectedOutcome, alone, check_all, select};
use crate::crash::{CrashOptions, CrashReport, check_at, check_stack};
use crate::points::POINTS;
use crate::{Pool, Reservation, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Test that catches a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Histories of the crash checker, below.
    Checker,
    /// Simulated files: `power_failure/tests.rs`.
    Files,
    /// Pages that are given back beside stores and checkpoints: `domain/journal/residency/tests.rs`.
    Residency,
    /// An emulated machine with persistent memory: `tests/dax`.
    Machine,
}

const CHECKER: ExpectedOutcome<By> = Caught(By::Checker);
const FILES: ExpectedOutcome<By> = Caught(By::Files);
const RESIDENCY: ExpectedOutcome<By> = Caught(By::Residency);
const MACHINE: ExpectedOutcome<By> = Caught(By::Machine);

const EMPTY_BITMAP: &str = "a chunk without objects has an empty bitmap on the medium already";

pub(crate) const LIST: &[(&str, ExpectedOutcome<By>)] = &[
    ("empty-publication-orders", CHECKER),
    ("word-after-its-objects", CHECKER),
    ("published-word", CHECKER),
    ("return-after-word", CHECKER),
    ("lane-after-its-objects", CHECKER),
    ("lane", CHECKER),
    ("updates-after-lane", CHECKER),
    ("updated-words", CHECKER),
    ("clearing-after-updates", CHECKER),
    ("lane-cleared", CHECKER),
    ("cleared-lane", CHECKER),
    ("return-after-clearing", CHECKER),
    ("recovery-carries-out-first", CHECKER),
    ("recovered-lane-cleared", CHECKER),
    ("lane-is-whole", CHECKER),
    ("publication-flushes", CHECKER),
    ("publication-writes", CHECKER),
    ("allocated-with-its-reference", CHECKER),
    ("freed-with-its-reference", CHECKER),
    ("root-with-its-object", CHECKER),
    ("root-in-one-store", CHECKER),
    ("root-name", CHECKER),
    ("growth-synced", FILES),
    ("extent-counted-last", CHECKER),
    ("extent-count", CHECKER),
    ("objects-after-extent-count", CHECKER),
    ("slab-bitmap", Harmless(By::Checker, EMPTY_BITMAP)),
    ("slab-after-bitmap", Harmless(By::Checker, EMPTY_BITMAP)),
    ("chunk-descriptor", CHECKER),
    ("objects-after-descriptor", CHECKER),
    ("allocated-bits-at-open", CHECKER),
    ("clean-mark", CHECKER),
    ("changes-after-clean-mark", CHECKER),
    ("return-after-flushes", FILES),
    ("journal-name-synced", FILES),
    ("free-before-blocks-go", FILES),
    ("checksums-of-holes-forgotten", FILES),
    ("fence-appends", FILES),
    ("publication-behind-flushes", FILES),
    ("published-pages-marked", FILES),
    ("replayed-pages-marked", FILES),
    ("journal-synced", FILES),
    ("frames-say-what-is-durable", FILES),
    ("only-free-slots", FILES),
    ("header-beside-the-other", FILES),
    ("pages-after-journal", FILES),
    ("position-after-pages", FILES),
    ("position-after-checksums", FILES),
    ("torn-checksums-named", FILES),
    ("closed-after-checkpoint", FILES),
    ("epoch-advances", FILES),
    ("frame-continues", FILES),
    ("slot-continues", FILES),
    ("frame-is-whole", FILES),
    ("only-clean-pages-go", RESIDENCY),
    ("leaving-pages-closed", RESIDENCY),
    ("clean-is-durable", RESIDENCY),
    ("lines-written-back", MACHINE),
    ("write-backs-fenced", MACHINE),
];

/// A thread for each step points a word, or three, at what it has stored and flushed before: each thread's
/// own fences count. One thread reserves, another one allocates.
fn check_words(options: &CrashOptions) -> Result<CrashReport> {
    const STEPS: u64 = 12;
    const AHEAD: u64 = 320;
    let returned = Arc::new(AtomicU64::new(0));
    let moment = Arc::clone(&returned);
    let history = move |pool: &Arc<Pool>| {
        returned.store(0, Ordering::Release);
        let reserve = |bytes| {
            std::thread::scope(|scope| {
                scope.spawn(move || pool.reserve(bytes)).join().expect("it does not panic")
            })
        };
        let name = |name: &str, object: Reservation<'_>| {
            let at = object.offset();
            pool.words(at, 64).iter().for_each(|word| word.store(0, Ordering::Relaxed));
            pool.flush(at, 512);
            let mut publication = pool.publication();
            publication.allocate(object);
            publication.set_root(name, at)?;
            publication.publish().map(|()| at)
        };
        let object = reserve(512)?;
        let at = std::thread::scope(|scope| {
            scope.spawn(|| name("words", object)).join().expect("it does not panic")
        })?;
        for number in 1..=STEPS {
            let step = || {
                let content = at.plus(128).plus(number % 2 * 64);
                pool.words(content, 4).iter().for_each(|word| word.store(number, Ordering::Relaxed));
                pool.flush(content, 32);
                let mut publication = pool.publication();
                publication.set(at, number);
                if number.is_multiple_of(3) {
                    publication.set(at.plus(8), number);
                    publication.set(at.plus(64), number);
                }
                publication.publish()?;
                // Every other thread ends with a fence of its own.
                if number % 2 == 1 {
                    return Ok(());
                }
                // Ahead of the next thread's step.
                let mut ahead = pool.publication();
                ahead.write(at.plus(AHEAD), number + 1);
                ahead.publish()
            };
            std::thread::scope(|scope| scope.spawn(step).join().expect("it does not panic"))?;
            returned.store(number, Ordering::Release);
        }
        // The last of them in an extent of its own.
        let large: Result<Vec<_>> = (0..4).map(|_| reserve(60_000)).collect();
        name("large", large?.pop().expect("there are four"))?;
        Ok(())
    };
    check_at(
        options,
        history,
        move || moment.load(Ordering::Acquire),
        |pool, returned| {
            let mut objects = Vec::new();
            pool.for_each_object(|offset, _| objects.push(offset));
            if let Some(lost) = ["words", "large"]
                .iter()
                .find(|name| pool.root(name).is_some_and(|at| !objects.contains(&at)))
            {
                return Err(format!("nothing is allocated under '{lost}'"));
            }
            let word = |offset| pool.word(offset).load(Ordering::Acquire);
            let Some(at) = pool.root("words") else {
                return if *returned == 0 { Ok(()) } else { Err("the words are gone".to_string()) };
            };
            if pool.was_clean() {
                return Err("a crash looks like a clean close".to_string());
            }
            let (number, seldom) = (word(at), [word(at.plus(8)), word(at.plus(64))]);
            if number % 2 == 1 && number > 1 && word(at.plus(AHEAD)) < number {
                return Err(format!("{number} is ahead of {}", word(at.plus(AHEAD))));
            }
            let content: Vec<_> = (0..4).map(|i| word(at.plus(128 + number % 2 * 64 + 8 * i))).collect();
            let is_whole = seldom == [number / 3 * 3; 2] && content.iter().all(|word| *word == number);
            let is_legal = (*returned..=*returned + 1).contains(&number);
            if is_whole && is_legal {
                return Ok(());
            }
            Err(format!("{number} and {seldom:?} over {content:?}, {returned} had returned"))
        },
    )
}

fn checked() -> std::result::Result<(), String> {
    let options = CrashOptions { crash_recovery_every: 11, ..CrashOptions::with_seed(3) };
    check_words(&options).map_err(|error| error.to_string())?;
    let report = check_stack(&options, 50).map_err(|error| error.to_string())?;
    assert!(report.explored(4_000), "{report:?}");
    Ok(())
}

#[test]
fn every_mutant_of_publications_and_allocation_is_caught() {
    let _alone = alone();
    select(None);
    checked().unwrap();
    assert!(check_all(POINTS, LIST, By::Checker, checked) > 30);
}
