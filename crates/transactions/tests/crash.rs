//! Commits under the crash checker; see [`entresol_transactions::crash_histories`].
#![allow(clippy::unwrap_used, reason = "tests")]

use entresol_memory::crash::{CrashOptions, check_seeds};
use entresol_transactions::crash_histories::{Groups, check_commits};

fn run(name: &str, groups: Groups) {
    let report = check_seeds(name, 5, |seed| {
        let options = CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) };
        check_commits(groups, 30, &options)
    });
    let report = report.unwrap();
    assert!(report.explored(60_000), "{report:?}");
}

#[test]
fn commits_of_one_group_survive_whole_or_not_at_all() {
    run("one group", Groups::One);
}

#[test]
fn commits_of_two_groups_survive_whole_or_not_at_all() {
    run("two groups", Groups::Two);
}
