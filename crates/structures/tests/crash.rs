//! Index operations under the crash checker; see [`entresol_structures::crash_histories`].

#![allow(clippy::unwrap_used)]

use entresol_memory::crash::{CrashOptions, check_seeds};
use entresol_structures::KeyWidth;
use entresol_structures::crash_histories::{check_index, check_two_writers};

fn one_writer(width: KeyWidth, seeds: u64, count: u64, states: u64) {
    let report = check_seeds(&format!("{width:?}"), seeds, |seed| {
        let options = CrashOptions { crash_recovery_every: 41, ..CrashOptions::with_seed(seed) };
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
fn two_writers_are_durably_linearizable() {
    for width in [KeyWidth::Eight, KeyWidth::Variable] {
        let report = check_seeds(&format!("two writers, {width:?}"), 4, |seed| {
            let options = CrashOptions { crash_recovery_every: 41, ..CrashOptions::with_seed(seed) };
            check_two_writers(width, 150, &options)
        });
        let report = report.unwrap();
        assert!(report.explored(10_000), "{report:?}");
    }
}
