//! Crash states that are checked per minute, and how many of them are wrong (none
//! may be), for each structure and protocol. With the feature `mutants`: how many deliberate bugs are caught.
//!
//! The histories are those of the crash tests; the seeds go on from the run's.

use crate::asked::AskedFigure;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::crash::{CrashOptions, CrashReport, check_stack};
use entresol_structures::KeyWidth;
use entresol_structures::crash_histories::{Writers, check_index, check_two_writers};
use entresol_transactions::crash_histories::{Groups, check_commits};
use serde_json::json;
use std::time::Instant;

/// Asked of every structure on two cores.
const STATES_PER_MINUTE_ASKED: f64 = 100_000.0;

/// A structure or protocol, with its history at a size (the lab's is 4, that of mutants 1).
type History = (&'static str, fn(u64, &CrashOptions) -> entresol_memory::Result<CrashReport>);

const HISTORIES: [History; 8] = [
    ("allocation and publications", |size, options| check_stack(options, 50 * size)),
    ("FPTree, 8-byte keys", |size, options| check_index(KeyWidth::Eight, 640 * size, options)),
    ("FPTree, 16-byte keys", |size, options| check_index(KeyWidth::Sixteen, 240 * size, options)),
    ("FPTree, keys of any length", |size, options| check_index(KeyWidth::Variable, 200 * size, options)),
    ("FPTree, two writers", |size, options| {
        check_two_writers(KeyWidth::Eight, 100 * size, Writers::InTurns, options)
    }),
    ("FPTree, two writers, keys of any length", |size, options| {
        check_two_writers(KeyWidth::Variable, 100 * size, Writers::InTurns, options)
    }),
    ("commits, one group", |size, options| check_commits(Groups::One, 8 + 8 * size, options)),
    ("commits, two groups", |size, options| check_commits(Groups::Two, 8 * size, options)),
];

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (seeds, size, crash_recovery_every) = if options.quick { (1, 1, 97) } else { (8, 4, 41) };
    let mut total = CrashReport::default();
    let mut violations = 0;
    for (name, history) in HISTORIES {
        let started = Instant::now();
        let mut seen = CrashReport::default();
        let mut found = Vec::new();
        for seed in options.seed..options.seed + seeds {
            let options = CrashOptions { crash_recovery_every, ..CrashOptions::with_seed(seed) };
            match history(size, &options) {
                Ok(report) => seen.add(&report),
                Err(violation) => found.push(violation.to_string()),
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let states_per_minute = seen.states as f64 / seconds * 60.0;
        report.row(json!({
            "structure": name,
            "states": seen.states,
            "distinct_images": seen.distinct,
            "after_crashes_of_recoveries": seen.recovery_states,
            "crash_points": seen.points,
            "looked_at_exhaustively": seen.exhaustive_points,
            "violations": found.len(),
            "seconds": seconds,
            "states_per_minute": states_per_minute,
        }));
        let figure = AskedFigure::at_least(
            format!("states a minute, {name}"),
            states_per_minute,
            STATES_PER_MINUTE_ASKED,
        );
        report.asked(figure.unit("/min"));
        for violation in &found {
            report.row(json!({"structure": name, "violation": violation}));
        }
        violations += found.len();
        total.add(&seen);
    }
    report.row(json!({"structure": "all", "states": total.states, "distinct_images": total.distinct}));
    report.check("no state that a crash may leave is wrong", violations == 0);
    mutants(options, report);
    Ok(())
}

#[cfg(not(feature = "mutants"))]
fn mutants(_options: &RunOptions, _report: &mut Report) {}

/// Every fault at an ordering point that these histories come by.
#[cfg(feature = "mutants")]
fn mutants(options: &RunOptions, report: &mut Report) {
    use entresol_memory::order::faults::{mutants, run_with};
    let floors = [entresol_memory::POINTS, entresol_structures::POINTS, entresol_transactions::POINTS];
    // What mutants bring about panics; that is how some are caught.
    std::panic::set_hook(Box::new(|_| {}));
    let checked = CrashOptions { crash_recovery_every: 31, ..CrashOptions::with_seed(options.seed) };
    let (mut all, mut caught) = (0, 0);
    for mutant in floors.into_iter().flat_map(mutants) {
        let mut reached = 0;
        let by = HISTORIES.iter().find(|(_, history)| {
            let (error, times) = run_with(mutant, || history(1, &checked));
            reached += times;
            error.is_some()
        });
        if reached > 0 {
            all += 1;
            caught += usize::from(by.is_some());
            report.row(json!({"mutant": mutant.to_string(), "caught_by": by.map(|(name, _)| name)}));
        }
    }
    let _ = std::panic::take_hook();
    // The tests of each floor catch the others, or say why they do no harm.
    report.row(json!({"mutants": all, "caught": caught}));
}
