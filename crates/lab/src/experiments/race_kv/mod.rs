//! `race-kv`: our structures beside `BTreeMap`, LMDB, redb, RocksDB and fjall: the same tuples, the same
//! operations, the same class of durability, one after the other in one process. Every answer is verified
//! where it comes back, and the first thousand of every phase are compared among all that hold the same
//! tuples.
//!
//! The peers are built with the feature `peers`; `make race` does that. Without it, ours run beside
//! `BTreeMap`.

mod figures;
mod footprint;
mod phases;
mod timing;

use crate::measure::back_memory;
use crate::peers::{Class, Contender, Store, contenders};
use crate::report::Report;
use crate::workload::Tally;
use crate::{Error, RunOptions};
use footprint::Footprint;
use phases::{LOAD, Phase, Plan};
use serde_json::json;
use std::time::Duration;
use timing::Limits;

/// The room that a contender in memory asks for: extents, and tuples, of which a third more are added while
/// it races.
const MEMORY_BYTES_MIN: u64 = 256 << 20;
const MEMORY_BYTES_PER_TUPLE: u64 = 64;
/// Memory that the machine has ready: for each tuple before a store is opened, for each operation before a
/// phase that writes.
const BACKED_BYTES: usize = 64;

/// Rates of one contender in one phase.
struct ContenderRates {
    contender: &'static str,
    phase: &'static str,
    class: Class,
    threads: usize,
    million_per_s: f64,
}

/// All that was measured.
#[derive(Default)]
struct Results {
    measured: Vec<ContenderRates>,
    footprints: Vec<(&'static str, Footprint)>,
    /// Contender, phase, tally of the first operations: single-threaded phases of class `none`, as long as
    /// the contender holds the same tuples as the others.
    first: Vec<(&'static str, &'static str, Tally)>,
    /// Contender, and the first phase that it was too slow to write all of: from then on it holds other
    /// versions.
    behind: Vec<(&'static str, &'static str)>,
    wrong: u64,
}

impl Results {
    /// M operations a second.
    fn rate(&self, contender: &str, phase: &str, class: Class, threads: usize) -> Option<f64> {
        let found = self.measured.iter().find(|point| {
            point.contender == contender
                && point.phase == phase
                && point.class == class
                && point.threads == threads
        });
        found.map(|point| point.million_per_s)
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let tuples: u64 = if options.quick { 20_000 } else { 10_000_000 };
    let plan = Plan::new(tuples, options.quick, options.seed);
    let limits = if options.quick {
        Limits { least: Duration::ZERO, most: Duration::from_millis(100) }
    } else {
        Limits { least: Duration::from_secs(1), most: Duration::from_secs(4) }
    };
    if !cfg!(feature = "peers") {
        report.note(
            "This build has no peers: ours beside BTreeMap only. `make race` builds RocksDB, LMDB, redb and fjall \
             and races them (libclang is installed if it is missing; RocksDB takes some minutes).",
        );
    }
    let contenders = contenders();
    let mut results = Results::default();
    for contender in &contenders {
        race(contender, &plan, limits, options, &mut results)?;
    }
    for point in &results.measured {
        report.row(json!({
            "figure": "M operations a second",
            "store": point.contender,
            "phase": point.phase,
            "class": point.class.name(),
            "threads": point.threads,
            "million_per_s": point.million_per_s,
        }));
    }
    figures::tables(&contenders, &results, report);
    figures::footprints(&contenders, &results, report);
    figures::asked(&contenders, &results, report);
    report.check("every answer was right: key there, value of its tuple", results.wrong == 0);
    for (contender, phase) in &results.behind {
        report.note(&format!(
            "{contender} did not get through `{phase}` in time: its later answers are not compared."
        ));
    }
    report.check("all stores gave the same answers to the first operations of each phase", agree(&results));
    Ok(())
}

/// Returns true if the tallies of each phase are the same for all.
fn agree(results: &Results) -> bool {
    results.first.iter().all(|(_, phase, tally)| {
        results.first.iter().filter(|(_, other, _)| other == phase).all(|(_, _, other)| other == tally)
    })
}

/// All phases of one contender.
fn race(
    contender: &Contender,
    plan: &Plan,
    limits: Limits,
    options: &RunOptions,
    results: &mut Results,
) -> Result<(), Error> {
    let dir = if contender.in_memory {
        options.memory_dir(MEMORY_BYTES_MIN + plan.tuples * MEMORY_BYTES_PER_TUPLE)?
    } else {
        options.database_dir()?
    };
    // All stores begin alike; before the footprint, which counts what the process takes.
    back_memory(plan.tuples as usize * BACKED_BYTES);
    let before = Footprint::start();
    let store = match (contender.open)(dir.path(), Class::None) {
        Ok(store) => store,
        // Processors that we have no flush instruction for.
        Err(Error::Memory(entresol_memory::Error::Unsupported(_))) => return Ok(()),
        Err(error) => return Err(error),
    };
    let whole = Limits { least: Duration::ZERO, most: Duration::MAX };
    one_phase(contender, &*store, &plan.load, Class::None, whole, results)?;
    store.settle()?;
    let footprint = before.end(dir.path(), store.bytes(), plan.tuples);
    for phase in plan.of_class(Class::None) {
        one_phase(contender, &*store, phase, Class::None, limits, results)?;
    }
    store.close()?;
    results.footprints.push((contender.name, footprint));
    for class in [Class::Group, Class::Sync] {
        if !contender.durable {
            continue;
        }
        back_memory(plan.tuples as usize * BACKED_BYTES);
        let store = (contender.open)(dir.path(), class)?;
        results.wrong += timing::run(&*store, &plan.warm_up, class, limits)?.tally.wrong;
        for phase in plan.of_class(class) {
            one_phase(contender, &*store, phase, class, limits, results)?;
        }
        store.close()?;
    }
    Ok(())
}

fn one_phase(
    contender: &Contender,
    store: &dyn Store,
    phase: &Phase,
    class: Class,
    limits: Limits,
    results: &mut Results,
) -> Result<(), Error> {
    if phase.ordered && !contender.ordered {
        return Ok(());
    }
    // Phases that only read take none, and this empties the processor's caches.
    if phase.writes && phase.name != LOAD {
        back_memory(phase.ops.len() * BACKED_BYTES);
    }
    let done = timing::run(store, phase, class, limits)?;
    results.wrong += done.tally.wrong;
    let is_behind = results.behind.iter().any(|(name, _)| *name == contender.name);
    if phase.threads == 1 && class == Class::None && phase.name != LOAD && !is_behind {
        results.first.push((contender.name, phase.name, done.first));
    }
    if done.is_stopped && phase.writes && !is_behind {
        results.behind.push((contender.name, phase.name));
    }
    results.measured.push(ContenderRates {
        contender: contender.name,
        phase: phase.name,
        class,
        threads: phase.threads,
        million_per_s: done.operations as f64 / done.seconds / 1e6,
    });
    Ok(())
}
