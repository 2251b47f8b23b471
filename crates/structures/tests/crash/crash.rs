//! Index operations under the crash checker; see [`entresol_structures::crash_histories`].

use entresol_memory::crash::{CrashOptions, check_seeds};
use entresol_structures::KeyWidth;
use entresol_structures::crash_histories::{Writers, check_index, check_notes, check_two_writers};

fn one_writer(width: KeyWidth, seeds: u64, count: u64, states: u64) {
    let report = check_seeds(&format!("{width:?}"), seeds, |seed| {
        let options = CrashOptions { crash_recovery_every: 17, ..CrashOptions::with_seed(seed) };
        check_index(width, count, &options)
    });
    let report = report.unwrap();
    assert!(report.explored(states), "{report:?}");
}

#[test]
fn eight_byte_keys_survive_every_fence() {
    one_writer(KeyWidth::Eight, 12, 800, 60_000);
}

#[test]
fn sixteen_byte_keys_survive_every_fence() {
    one_writer(KeyWidth::Sixteen, 12, 500, 60_000);
}

#[test]
fn keys_of_any_length_survive_every_fence() {
    one_writer(KeyWidth::Variable, 5, 400, 60_000);
}

#[test]
fn notes_survive_the_thread_that_stored_them() {
    let report = check_notes(&CrashOptions::with_seed(1)).unwrap();
    assert!(report.states > 50, "{report:?}");
}

fn two_writers(writers: Writers, seeds: u64) {
    for width in [KeyWidth::Eight, KeyWidth::Variable] {
        let report = check_seeds(&format!("two writers {writers:?}, {width:?}"), seeds, |seed| {
            let options = CrashOptions { crash_recovery_every: 17, ..CrashOptions::with_seed(seed) };
            check_two_writers(width, 200, writers, &options)
        });
        let report = report.unwrap();
        assert!(report.explored(1_000 * seeds), "{report:?}");
    }
}

#[test]
fn two_writers_in_turns_are_durably_linearizable() {
    two_writers(Writers::InTurns, 4);
}

#[test]
fn two_writers_at_once_are_durably_linearizable() {
    two_writers(Writers::Free, 1);
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_the_index_is_caught() {
    use crate::points::{LIST, Test};
    use entresol_memory::order::faults::{alone, check_all};
    let _alone = alone();
    let run = || {
        let options = CrashOptions { crash_recovery_every: 11, ..CrashOptions::with_seed(3) };
        check_notes(&options)?;
        check_index(KeyWidth::Eight, 960, &options)?;
        check_index(KeyWidth::Variable, 200, &options)
    };
    run().unwrap();
    assert!(check_all(entresol_structures::POINTS, LIST, Test::Index, run) >= 14);
}
