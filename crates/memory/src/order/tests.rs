//! The faults at this floor's points: which test catches each.

#![allow(clippy::unwrap_used)]

use super::faults::{Mutant, alone, listed, run_with, select};
use crate::crash::{CrashOptions, CrashReport, check_at, check_stack};
use crate::points::POINTS;
use crate::{Pool, Reservation, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a fault is caught.
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
    /// Nowhere: it does no harm, for this reason.
    Harmless(&'static str),
}

use By::{Checker, Files, Harmless, Machine, Residency};

const EMPTY_BITMAP: &str = "a chunk without objects has an empty bitmap on the medium already";

const LIST: &[(&str, By)] = &[
    ("word-after-its-objects", Checker),
    ("published-word", Checker),
    ("return-after-word", Checker),
    ("lane-after-its-objects", Checker),
    ("lane", Checker),
    ("updates-after-lane", Checker),
    ("updated-words", Checker),
    ("clearing-after-updates", Checker),
    ("lane-cleared", Checker),
    ("cleared-lane", Checker),
    ("return-after-clearing", Checker),
    ("recovery-carries-out-first", Checker),
    ("recovered-lane-cleared", Checker),
    ("lane-is-whole", Checker),
    ("publication-flushes", Checker),
    ("publication-writes", Checker),
    ("allocated-with-its-reference", Checker),
    ("freed-with-its-reference", Checker),
    ("root-with-its-object", Checker),
    ("root-in-one-store", Checker),
    ("root-name", Checker),
    ("growth-synced", Files),
    ("extent-counted-last", Checker),
    ("extent-count", Checker),
    ("objects-after-extent-count", Checker),
    ("slab-bitmap", Harmless(EMPTY_BITMAP)),
    ("slab-after-bitmap", Harmless(EMPTY_BITMAP)),
    ("chunk-descriptor", Checker),
    ("objects-after-descriptor", Checker),
    ("allocated-bits-at-open", Checker),
    ("journal-name-synced", Files),
    ("free-before-blocks-go", Files),
    ("checksums-of-holes-forgotten", Files),
    ("fence-appends", Files),
    ("publication-behind-flushes", Files),
    ("published-pages-marked", Files),
    ("replayed-pages-marked", Files),
    ("journal-synced", Files),
    ("frames-say-what-is-durable", Files),
    ("only-free-slots", Files),
    ("header-beside-the-other", Files),
    ("pages-after-journal", Files),
    ("position-after-pages", Files),
    ("position-after-checksums", Files),
    ("torn-checksums-named", Files),
    ("closed-after-checkpoint", Files),
    ("epoch-advances", Files),
    ("frame-continues", Files),
    ("slot-continues", Files),
    ("frame-is-whole", Files),
    ("only-clean-pages-go", Residency),
    ("leaving-pages-closed", Residency),
    ("clean-is-durable", Residency),
    ("lines-written-back", Machine),
    ("write-backs-fenced", Machine),
];

/// The faults that are caught there.
pub(crate) fn mutants_caught_by(by: By) -> Vec<Mutant> {
    let all = listed(POINTS, LIST);
    all.into_iter().filter(|(_, caught_by)| *caught_by == by).map(|(mutant, _)| mutant).collect()
}

/// Runs `work` with each of these faults, which must be an error or a panic; prints what it was.
pub(crate) fn all_are_caught<T>(mutants: &[Mutant], work: impl Fn() -> std::result::Result<T, String>) {
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mutant in mutants {
        let (error, reached) = run_with(*mutant, std::panic::AssertUnwindSafe(&work));
        match error {
            Some(error) => println!("{mutant:42} {}", error.chars().take(150).collect::<String>()),
            None => missed.push(format!("{mutant}, reached {reached} times")),
        }
    }
    let _ = std::panic::take_hook();
    println!("caught {} of {} faults", mutants.len() - missed.len(), mutants.len());
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

/// A thread for each step points a word, or three, at what it has stored and flushed before: each thread's own fences count.
/// One thread reserves, another one allocates.
fn check_words(options: &CrashOptions) -> Result<CrashReport> {
    const STEPS: u64 = 12;
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
        let at = name("words", reserve(512)?)?;
        for number in 1..=STEPS {
            let step = || {
                let content = at + 128 + number % 2 * 64;
                pool.words(content, 4).iter().for_each(|word| word.store(number, Ordering::Relaxed));
                pool.flush(content, 32);
                let mut publication = pool.publication();
                publication.set(at, number);
                if number.is_multiple_of(3) {
                    publication.set(at + 8, number);
                    publication.set(at + 64, number);
                }
                publication.publish()
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
            let (number, seldom) = (word(at), [word(at + 8), word(at + 64)]);
            let content: Vec<_> = (0..4).map(|i| word(at + 128 + number % 2 * 64 + 8 * i)).collect();
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
    all_are_caught(&mutants_caught_by(Checker), checked);
}

#[test]
fn every_mutant_that_does_no_harm_does_none() {
    let _alone = alone();
    for (mutant, by) in listed(POINTS, LIST) {
        if let Harmless(reason) = by {
            let (error, reached) = run_with(mutant, checked);
            assert!(
                error.is_none() && reached > 0,
                "{mutant}, reached {reached} times: {error:?}, but {reason}"
            );
        }
    }
}
