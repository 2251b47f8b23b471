//! The score of the crash checker: every deliberate bug of the catalogue is caught by small operation
//! histories that the unchanged code passes.
//!
//! `cargo test -p entresol-transactions --features mutants --test mutants -- --nocapture` prints the table;
//! with `ENTRESOL_MUTANT=point:fault` it looks at that one alone.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "transactions/common/points.rs"]
mod points;

use entresol_memory::crash::{CrashOptions, CrashReport};
use entresol_memory::order::faults::{SELECT, check_all, select};
use entresol_transactions::crash_histories::{
    Groups, Scrubs, check_changes, check_commits, check_commits_at_once, check_commits_with, check_directory,
    check_disk, check_large_commits, check_loads, check_past, check_scrubs, check_volatile,
};
use entresol_transactions::{ContextOptions, POINTS, Protocol};
use points::LIST;
use std::time::Instant;

type History = (&'static str, fn(&CrashOptions) -> entresol_memory::Result<CrashReport>);

/// Each is long enough that what it is about grows, shrinks and is used again.
const HISTORIES: [History; 13] = [
    ("commits, one group", |options| check_commits(Groups::One, 24, &rarely(options))),
    ("commits, two groups", |options| check_commits(Groups::Two, 8, &rarely(options))),
    ("out of place", |options| check_commits_with(Groups::One, OUT_OF_PLACE, 16, &rarely(options))),
    ("past", |options| check_past(Groups::One, ContextOptions::default(), 16, &rarely(options))),
    ("changes", |options| check_changes(Groups::One, ContextOptions::default(), 8, &rarely(options))),
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
    ("scrubs", |options| {
        let options = CrashOptions { crash_recovery_every: 13, ..options.clone() };
        check_scrubs(ContextOptions::default(), Scrubs::First, 6, &options)?;
        check_scrubs(OUT_OF_PLACE, Scrubs::First, 6, &options)
    }),
    ("scrubs behind a commit", |options| {
        let options = CrashOptions { crash_recovery_every: 7, ..options.clone() };
        check_scrubs(ContextOptions::default(), Scrubs::BehindCommit, 6, &options)
    }),
    ("loads", |options| check_loads(2, &CrashOptions { crash_recovery_every: 2003, ..options.clone() })),
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
    let started = Instant::now();
    select(None);
    let mut states = 0;
    for (name, history) in HISTORIES {
        let report = history(&options()).unwrap_or_else(|error| panic!("{name}, nothing wrong: {error}"));
        println!("{name}: {report:?}, {:.1} s", started.elapsed().as_secs_f64());
        states += report.states;
    }
    println!("no mutant: {states} states, no violation\n");
    let caught: usize = HISTORIES
        .iter()
        .map(|(name, history)| {
            println!("{name}:");
            check_all(POINTS, LIST, name, || history(&options()))
        })
        .sum();
    println!("caught {caught} mutants in {:.0} s", started.elapsed().as_secs_f64());
    assert!(caught >= 50 || std::env::var(SELECT).is_ok());
}
