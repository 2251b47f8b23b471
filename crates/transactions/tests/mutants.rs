//! The score of the crash checker: every deliberate bug of the catalogue is caught by small operation histories that
//! the unchanged code passes.
//!
//! `cargo test -p entresol-transactions --features mutants --test mutants -- --nocapture` prints the table; with
//! `ENTRESOL_MUTANT=name` it looks at that one alone.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Instant;

use entresol_memory::crash::{CrashOptions, CrashReport, check_stack};
use entresol_memory::mutants::{CATALOGUE, CaughtBy, SELECT, select};
use entresol_structures::KeyWidth;
use entresol_structures::crash_histories::{Writers, check_index, check_two_writers};
use entresol_transactions::crash_histories::{
    Groups, check_commits, check_commits_at_once, check_commits_with, check_directory, check_disk,
    check_large_commits, check_past, check_volatile,
};
use entresol_transactions::{ContextOptions, Protocol};

type History = (&'static str, fn(&CrashOptions) -> entresol_memory::Result<CrashReport>);

/// From the lowest floor up. Each is long enough that the structures grow, shrink and use things again.
const HISTORIES: [History; 13] = [
    ("stack", |options| check_stack(options, 50)),
    ("index of 8 bytes", |options| check_index(KeyWidth::Eight, 960, options)),
    ("index of any bytes", |options| check_index(KeyWidth::Variable, 200, options)),
    ("two writers", |options| check_two_writers(KeyWidth::Variable, 100, Writers::InTurns, options)),
    ("commits, one group", |options| check_commits(Groups::One, 16, &rarely(options))),
    ("commits, two groups", |options| check_commits(Groups::Two, 8, &rarely(options))),
    ("out of place", |options| check_commits_with(Groups::One, OUT_OF_PLACE, 16, &rarely(options))),
    ("past", |options| check_past(Groups::One, ContextOptions::default(), 16, &rarely(options))),
    ("at once", |options| check_commits_at_once(Groups::Two, 16, &rarely(options))),
    ("volatile", |options| {
        let options = CrashOptions { crash_recovery_every: 401, ..options.clone() };
        check_volatile(Groups::One, ContextOptions::default(), 12, &options)
    }),
    ("disk", |options| {
        let directory = tempfile::tempdir().unwrap();
        let options = CrashOptions { crash_recovery_every: 0, ..options.clone() };
        check_disk(Groups::One, ContextOptions::default(), 8, directory.path(), &options)
    }),
    ("large commits", |options| {
        check_large_commits(Groups::Two, 4, &CrashOptions { crash_recovery_every: 401, ..options.clone() })
    }),
    ("directory", |options| {
        check_directory(3, &CrashOptions { crash_recovery_every: 401, ..options.clone() })
    }),
];

const OUT_OF_PLACE: ContextOptions = ContextOptions {
    protocol: Protocol::MvccOutOfPlace,
    version_slots: 2,
    version_slots_max: 64,
    old_version_bytes_max: 1 << 20,
    lock_wait_max: std::time::Duration::ZERO,
    clock_jump_max: entresol_transactions::CLOCK_JUMP_MAX,
    transactions_max: entresol_transactions::TRANSACTIONS_MAX,
};

fn options() -> CrashOptions {
    CrashOptions { crash_recovery_every: 11, ..CrashOptions::with_seed(3) }
}

/// A commit has many fences, and its verification as well.
fn rarely(options: &CrashOptions) -> CrashOptions {
    CrashOptions { crash_recovery_every: 31, ..options.clone() }
}

#[test]
fn every_mutant_is_caught_and_the_code_as_it_is_passes() {
    // Mutants may panic; the table has it in a line.
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    select(None);
    let mut states = 0;
    for (name, history) in HISTORIES {
        let report = history(&options()).unwrap_or_else(|error| panic!("{name}, nothing wrong: {error}"));
        println!("{name}: {report:?}, {:.1} s", started.elapsed().as_secs_f64());
        states += report.states;
    }
    println!("no mutant: {states} states, no violation\n");
    let mut missed = Vec::new();
    let asked_for = std::env::var(SELECT).unwrap_or_default();
    let ours = || CATALOGUE.iter().filter(|mutant| mutant.caught_by == CaughtBy::Checker);
    for mutant in ours().filter(|mutant| asked_for.is_empty() || mutant.name == asked_for) {
        select(Some(mutant.name));
        // A mutant of a crate does nothing to the histories of those below.
        let first = match mutant.place.split('/').next() {
            Some("memory") => 0,
            Some("structures") => 1,
            _ => 4,
        };
        let caught =
            HISTORIES[first..].iter().find_map(|(name, history)| Some((name, history(&options()).err()?)));
        select(None);
        match caught {
            None => missed.push(mutant.name),
            Some((history, error)) => {
                let error = error.to_string();
                let error = error.trim_start_matches("crash check failed: ").lines().next().unwrap_or("");
                println!("{:42} {history:20} {}", mutant.name, error.chars().take(130).collect::<String>());
            }
        }
    }
    let _ = std::panic::take_hook();
    let (all, seconds) = (ours().count(), started.elapsed().as_secs_f64());
    println!("caught {} of {all} mutants in {seconds:.0} s", all - missed.len());
    assert!(missed.is_empty(), "not caught: {missed:?}");
    assert!(all >= 30);
}
