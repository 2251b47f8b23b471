//! Commits under the crash checker; see [`entresol_transactions::crash_histories`].
use entresol_memory::crash::{CrashOptions, check_seeds};
use entresol_transactions::crash_histories::{
    Groups, Scrubs, check_appends, check_changes, check_commits, check_commits_at_once, check_commits_with,
    check_directory, check_disk, check_large_commits, check_loads, check_past, check_scrubs,
    check_side_by_side, check_volatile,
};
use entresol_transactions::{ContextOptions, Protocol};

fn run(name: &str, groups: Groups) {
    let report = check_seeds(name, 6, |seed| {
        let options = CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) };
        check_commits(groups, 30, &options)
    });
    let report = report.unwrap();
    assert!(report.explored(60_000), "{report:?}");
}

#[test]
fn commits_of_one_group_survive_completely_or_not_at_all() {
    run("one group", Groups::One);
}

#[test]
fn commits_of_two_groups_survive_completely_or_not_at_all() {
    run("two groups", Groups::Two);
}

/// An object of one version is replaced by a larger one when its key is written again.
#[test]
fn appended_keys_survive_with_all_others_of_their_commit() {
    for groups in [Groups::One, Groups::Two] {
        let report = check_seeds("appends", 1, |seed| {
            let options = CrashOptions { crash_recovery_every: 997, ..CrashOptions::with_seed(seed) };
            check_appends(groups, 1, &options)
        });
        let report = report.unwrap();
        println!("{groups:?}: {report:?}");
        assert!(report.explored(2_000), "{report:?}");
    }
}

fn run_with(name: &str, groups: Groups, context: ContextOptions) {
    let report = check_seeds(name, 2, |seed| {
        let options = CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) };
        check_commits_with(groups, context, 24, &options)
    });
    let report = report.unwrap();
    println!("{name}: {report:?}");
    assert!(report.explored(10_000), "{report:?}");
}

fn of(protocol: Protocol) -> ContextOptions {
    ContextOptions { protocol, ..ContextOptions::default() }
}

#[test]
fn versions_out_of_place() {
    run_with("out of place", Groups::One, of(Protocol::MvccOutOfPlace));
}

#[test]
fn versions_out_of_place_of_two_groups() {
    run_with("out of place, two groups", Groups::Two, of(Protocol::MvccOutOfPlace));
}

#[test]
fn commits_under_locks() {
    run_with("S2PL", Groups::Two, of(Protocol::S2pl));
}

#[test]
fn commits_that_were_validated() {
    run_with("BOCC", Groups::One, of(Protocol::Bocc));
}

/// A reader is open most of the time, so with two slots its versions move to DRAM, and objects are built
/// again.
#[test]
fn old_versions_beside_objects_of_two_slots() {
    let context = ContextOptions { version_slots_max: 2, ..ContextOptions::default() };
    run_with("two slots", Groups::One, context);
}

#[test]
fn objects_that_begin_with_many_slots() {
    let context = ContextOptions { version_slots: 5, ..ContextOptions::default() };
    run_with("five slots", Groups::One, context);
}

fn run_at_once(name: &str, groups: Groups) {
    let report = check_seeds(name, 2, |seed| {
        let options = CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) };
        check_commits_at_once(groups, 24, &options)
    });
    let report = report.unwrap();
    println!("{name}: {report:?}");
    assert!(report.explored(10_000), "{report:?}");
}

#[test]
fn commits_of_one_publication() {
    run_at_once("at once", Groups::One);
}

#[test]
fn commits_of_one_publication_over_two_groups() {
    run_at_once("at once, two groups", Groups::Two);
}

fn run_large(name: &str, groups: Groups) {
    let report = check_seeds(name, 2, |seed| {
        let options = CrashOptions { crash_recovery_every: 401, ..CrashOptions::with_seed(seed) };
        check_large_commits(groups, 4, &options)
    });
    let report = report.unwrap();
    println!("{name}: {report:?}");
    assert!(report.explored(5_000), "{report:?}");
}

#[test]
fn large_commits_beside_small_ones() {
    run_large("large commits", Groups::One);
}

#[test]
fn large_commits_over_two_groups_beside_small_ones() {
    run_large("large commits, two groups", Groups::Two);
}

fn run_side_by_side(name: &str, groups: Groups) {
    let report = check_seeds(name, 2, |seed| {
        let options = CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) };
        check_side_by_side(groups, 20, &options)
    });
    let report = report.unwrap();
    println!("{name}: {report:?}");
    assert!(report.explored(5_000), "{report:?}");
}

#[test]
fn commits_of_two_threads() {
    run_side_by_side("side by side", Groups::One);
}

#[test]
fn commits_of_two_threads_over_two_groups() {
    run_side_by_side("side by side, two groups", Groups::Two);
}

fn run_scrubs(name: &str, protocol: Protocol) {
    for scrubs in [Scrubs::First, Scrubs::BehindCommit] {
        let report = check_seeds(name, 4, |seed| {
            let options = CrashOptions { crash_recovery_every: 13, ..CrashOptions::with_seed(seed) };
            check_scrubs(of(protocol), scrubs, 6, &options)
        });
        let report = report.unwrap();
        println!("{name}, {scrubs:?}: {report:?}");
        assert!(report.explored(10_000), "{report:?}");
    }
}

#[test]
fn traces_of_undone_commits_are_removed() {
    run_scrubs("traces in objects", Protocol::default());
}

#[test]
fn traces_of_undone_commits_are_removed_out_of_place() {
    run_scrubs("traces in chains", Protocol::MvccOutOfPlace);
}

#[test]
fn bulk_loads_in_order_and_out_of_it() {
    let report = check_seeds("loads", 2, |seed| {
        let options = CrashOptions { crash_recovery_every: 2003, ..CrashOptions::with_seed(seed) };
        check_loads(2, &options)
    });
    let report = report.unwrap();
    println!("loads: {report:?}");
    assert!(report.explored(5_000), "{report:?}");
}

#[test]
fn a_growing_directory_and_commits_over_many_groups() {
    let report = check_seeds("directory", 2, |seed| {
        let options = CrashOptions { crash_recovery_every: 401, ..CrashOptions::with_seed(seed) };
        check_directory(4, &options)
    });
    let report = report.unwrap();
    println!("directory: {report:?}");
    assert!(report.explored(5_000), "{report:?}");
}

fn run_history(name: &str, seeds: u64, groups: Groups, context: ContextOptions) {
    let report = check_seeds(name, seeds, |seed| {
        let options = CrashOptions { crash_recovery_every: 401, ..CrashOptions::with_seed(seed) };
        check_past(groups, context, 12, &options)
    });
    let report = report.unwrap();
    println!("{name}: {report:?}");
    assert!(report.explored(5_000 * seeds), "{report:?}");
}

#[test]
fn every_point_in_time_reads_as_it_was() {
    run_history("past", 2, Groups::One, ContextOptions::default());
}

#[test]
fn the_version_history_of_two_groups_is_consistent() {
    run_history("past, two groups", 1, Groups::Two, ContextOptions::default());
}

#[test]
fn the_version_history_of_versions_out_of_place() {
    run_history("past, out of place", 1, Groups::One, of(Protocol::MvccOutOfPlace));
}

fn run_volatile(name: &str, groups: Groups, context: ContextOptions) {
    let report = check_seeds(name, 4, |seed| {
        let options = CrashOptions { crash_recovery_every: 181, ..CrashOptions::with_seed(seed) };
        check_volatile(groups, context, 12, &options)
    });
    let report = report.unwrap();
    println!("{name}: {report:?}");
    assert!(report.explored(8_000), "{report:?}");
}

#[test]
fn volatile_states_in_the_group_of_a_durable_one() {
    run_volatile("volatile, one group", Groups::One, ContextOptions::default());
}

#[test]
fn volatile_states_in_a_group_of_their_own() {
    run_volatile("volatile, two groups", Groups::Two, ContextOptions::default());
}

#[test]
fn volatile_states_with_versions_out_of_place() {
    run_volatile("volatile, out of place", Groups::One, of(Protocol::MvccOutOfPlace));
}

fn run_disk(name: &str, groups: Groups, context: ContextOptions) {
    let report = check_seeds(name, 2, |seed| {
        let directory = tempfile::tempdir().unwrap();
        let options = CrashOptions { crash_recovery_every: 0, ..CrashOptions::with_seed(seed) };
        check_disk(groups, context, 12, directory.path(), &options)
    });
    let report = report.unwrap();
    println!("{name}: {report:?}");
    assert!(report.explored(1_000), "{report:?}");
}

#[test]
fn states_on_disk_in_the_group_of_one_in_persistent_memory() {
    run_disk("disk, one group", Groups::One, ContextOptions::default());
}

#[test]
fn states_on_disk_in_a_group_of_their_own() {
    run_disk("disk, two groups", Groups::Two, ContextOptions::default());
}

#[test]
fn states_on_disk_with_versions_out_of_place() {
    run_disk("disk, out of place", Groups::One, of(Protocol::MvccOutOfPlace));
}

#[test]
fn change_logs_say_how_the_content_came_about() {
    let groups = [
        (Groups::One, Protocol::MvccInPlace, 14),
        (Groups::Two, Protocol::MvccInPlace, 14),
        (Groups::One, Protocol::MvccOutOfPlace, 8),
    ];
    for (groups, protocol, rounds) in groups {
        let report = check_seeds("change logs", 2, |seed| {
            let options = CrashOptions { crash_recovery_every: 61, ..CrashOptions::with_seed(seed) };
            check_changes(groups, of(protocol), rounds, &options)
        });
        let report = report.unwrap();
        println!("{groups:?}, {protocol:?}: {report:?}");
        assert!(report.explored(4_000), "{report:?}");
    }
}
