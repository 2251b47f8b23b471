//! Crash bugs that were published for FAST and FAIR and for trees converted to persistent memory (the P-
//! family), each as a short history around the operation, with many random crash states. Ours pass.

use super::crash::{Step, run};
use super::{Instance, instances, small_instances};
use entresol_memory::crash::CrashOptions;

/// Every design, in nodes of 12 entries.
fn designs() -> impl Iterator<Item = Instance> {
    small_instances().into_iter().filter(|instance| instance.name.contains("u64"))
}

/// Checks a history with many states at every fence, and writes to each recovered state.
fn shake(steps: &[Step]) {
    for instance in designs() {
        let options = CrashOptions { random_states: 8, crash_recovery_every: 0, ..CrashOptions::default() };
        let report = run(instance, steps.to_vec(), &options);
        assert!(report.explored(200), "{}: {report:?}", instance.name);
    }
}

fn inserts(keys: impl Iterator<Item = u64>) -> Vec<Step> {
    keys.map(|key| Step::Insert(key, key + 1000)).collect()
}

/// FAST and FAIR: the key that was overwritten by a delete was not flushed, and reappeared.
#[test]
fn fast_fair_missing_flush_after_delete() {
    let mut steps = inserts(0..30);
    steps.extend((0..30).map(|i| Step::Remove(i * 7 % 30)));
    shake(&steps);
}

/// FAST and FAIR: a crash while the shift of an insert crosses a cache line lost the entry in flight.
#[test]
fn fast_fair_crash_while_entries_shift_across_lines() {
    // Always in front, so that everything shifts.
    let steps = inserts((0..14).rev().map(|i| i * 10));
    shake(&steps);
}

/// As before, in nodes of so many entries that they shift in several commits; and a hole that is filled.
#[test]
fn crash_while_many_entries_shift() {
    let options = CrashOptions { random_states: 8, crash_recovery_every: 0, ..CrashOptions::default() };
    let large = instances().into_iter().find(|instance| instance.name == "FastFairTree u64 1024/512");
    let report = run(large.unwrap(), inserts((0..50).rev().map(|i| i * 10)), &options);
    assert!(report.explored(200), "{report:?}");
    let mut steps = inserts((0..12).map(|i| i * 10));
    steps.extend([0, 10, 20].map(Step::Remove));
    steps.extend(inserts((0..12).map(|i| i * 10 + 5)));
    shake(&steps);
}

/// FAST and FAIR: a crash between an interrupted shift and the next delete removed the wrong copy of a
/// duplicate.
#[test]
fn fast_fair_delete_beside_a_duplicate() {
    let mut steps = inserts((0..11).map(|i| i * 10));
    for i in 0..10 {
        steps.push(Step::Insert(i * 10 + 5, 1));
        steps.push(Step::Remove(i * 10));
    }
    shake(&steps);
}

/// FAST and FAIR, P-BwTree: a crash while the root splits left a root that misses half of the keys.
#[test]
fn crash_in_root_split() {
    // The root leaf first, then the root above, when it has 13 leaves.
    let mut steps = inserts((0..13).map(|i| i * 8));
    steps.push(Step::Load(200, 130));
    steps.extend(inserts((0..16).map(|i| 400 + i)));
    shake(&steps);
}

/// P-family: the new node was linked, the parent did not get its separator, and inserts went to the wrong
/// node.
#[test]
fn crash_between_a_split_and_its_parent() {
    let mut steps = vec![Step::Load(0, 20)];
    steps.extend(inserts((0..40).map(|i| 1000 + i * 37 % 101)));
    shake(&steps);
}

/// FAST and FAIR: a crash while two nodes merge lost the right one's keys, or leaked it.
#[test]
fn crash_in_merge() {
    let mut steps = vec![Step::HandleUnderflow, Step::Load(0, 60)];
    steps.extend((0..55).map(|i| Step::Remove(i * 11 % 60)));
    shake(&steps);
}

/// A crash while entries move between neighbours lost them, or showed them twice.
#[test]
fn crash_in_balance() {
    let mut steps = vec![Step::HandleUnderflow, Step::Load(0, 48)];
    steps.extend((20..32).map(Step::Remove));
    steps.extend((0..6).map(Step::Remove));
    shake(&steps);
}

/// A crash while the root loses its last separator left a tree of the wrong height.
#[test]
fn crash_while_the_root_shrinks() {
    let mut steps = vec![Step::HandleUnderflow, Step::Load(0, 60)];
    steps.extend((0..60).rev().map(Step::Remove));
    shake(&steps);
}

/// wB+-tree: the slot array changed while it was marked as valid.
#[test]
fn crash_while_a_slot_array_changes() {
    let mut steps = inserts((0..10).map(|i| i * 7 % 10));
    steps.extend((0..5).map(Step::Remove));
    shake(&steps);
}

/// A mutant is selected for a whole process, so each history runs in one of its own.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_generic_trees_is_caught() {
    use crate::points::{LIST, Test};
    use entresol_memory::order::faults::{ExpectedOutcome, SELECT, listed};
    let mut wrong = Vec::new();
    for (mutant, expected) in listed(entresol_structures::POINTS, LIST) {
        let (ExpectedOutcome::Caught(Test::Tree(history))
        | ExpectedOutcome::Harmless(Test::Tree(history), _)) = expected
        else {
            continue;
        };
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone
            .env(SELECT, mutant.to_string())
            .args(["--exact", &format!("btree::bugs::{history}")])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let caught = !output.status.success() && text.contains("crash check failed");
        println!("{mutant:45} {history} {caught}");
        if caught != matches!(expected, ExpectedOutcome::Caught(_)) {
            wrong.push(format!("{mutant}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "not as the list says: {wrong:#?}");
}
