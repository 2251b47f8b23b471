//! The demo: smart metering and energy monitoring (dissertation, figure 5.1).
//!
//! | part | where |
//! | --- | --- |
//! | readings: simulated, or from files | [`feed`], [`sources`] |
//! | the three continuous queries | [`topology`], [`rules`], [`sinks`] |
//! | ad-hoc sessions on snapshots over several states | [`snapshots`] |
//! | kill -9, reopen, verify | [`crash`] |
//! | progress, summary | [`live`], [`progress`], [`score`], [`summary`] |
//!
//! With `--dir`, a demo that was stopped goes on where the last committed transactions left it.
#![forbid(unsafe_code)]

mod arguments;
pub mod crash;
mod error;
pub mod feed;
pub mod live;
pub mod progress;
pub mod rules;
pub mod score;
pub mod setup;
pub mod sinks;
pub mod snapshots;
pub mod sources;
pub mod summary;
pub mod topology;

pub use arguments::SmartMeteringArguments;
pub use error::{Error, Result};
pub use summary::Summary;

use entresol::Database;
use entresol::streams::Report;
use live::LiveCounters;
use progress::Progress;
use setup::{Directory, Input};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use topology::{Plan, Topologies};

const POLL: Duration = Duration::from_millis(5);

/// Runs the demo, or its crash loop, and returns its summary, sound or not. Prints alarms and progress only.
pub fn run(arguments: &SmartMeteringArguments) -> Result<Summary> {
    let directory = Directory::prepare(arguments)?;
    if arguments.crash { crash::run(arguments, directory.path()) } else { run_once(arguments, &directory) }
}

fn run_once(arguments: &SmartMeteringArguments, directory: &Directory) -> Result<Summary> {
    let Input { mut feeds, shares } = setup::input(arguments, false)?;
    let opening = Instant::now();
    let database = setup::open(directory.path(), arguments)?;
    let recovery_ms = opening.elapsed().as_secs_f64() * 1000.0;
    setup::check_settings(&mut database.session()?, arguments, false)?;
    let live = Arc::new(setup::live_at(setup::positions(&database)?, &mut feeds));
    let (failures, judged) = (feeds.failures.clone(), feeds.judged.clone());
    let mut summary = Summary { recovery_ms, rejected_rows: feeds.rejected_rows, ..Summary::default() };

    if live.readings() >= shares.household + shares.infrastructure {
        eprintln!("the demo in {} is complete: no readings are left", directory.path().display());
    }
    let plan = Plan {
        durability: arguments.durability,
        batch: arguments.batch,
        print_alarms: arguments.print_alarms,
        reporter: None,
    };
    let mut progress = Progress::new(&live);
    let reports = drive(&database, Input { feeds, shares }, &plan, arguments.sessions, &live, &mut progress)?;
    (summary.readings, summary.seconds) = progress.so_far(&live);
    note_reports(&mut summary, &reports);
    summary.alarms = live.alarms.load(Ordering::Relaxed);
    // One more check when all is quiet, so that there is one even if the run was short.
    if let Some(violation) = snapshots::check(&mut database.session()?)? {
        tracing::error!("snapshot violation: {violation}");
        live.violations.fetch_add(1, Ordering::Relaxed);
    }
    summary.snapshot_checks = live.checks.load(Ordering::Relaxed) + 1;
    summary.snapshot_violations = live.violations.load(Ordering::Relaxed);
    summary.failures = score::score(&database, &failures, &judged)?;
    summary.pool_bytes = pool_bytes(&database);
    database.close()?;
    Ok(summary)
}

/// Runs both topologies to the end of the feeds, with sessions beside them.
fn drive(
    database: &Database,
    input: Input,
    plan: &Plan,
    sessions: u32,
    live: &Arc<LiveCounters>,
    progress: &mut Progress,
) -> Result<[Report; 2]> {
    let (shares, total) = (input.shares, input.total());
    let topologies = Topologies::start(database, input.feeds, plan, live)?;
    let checkers = snapshots::Checkers::start(database, sessions, live);
    while !topologies.is_finished() {
        topologies.supervise(shares, live);
        progress.tick(live, topologies.transactions(), total);
        thread::sleep(POLL);
    }
    progress.clear();
    let reports = topologies.join();
    let stopped = checkers.and_then(snapshots::Checkers::stop);
    let (households, infrastructure) = reports?;
    stopped?;
    Ok([households, infrastructure])
}

/// Adds the reports of topologies. Of the latencies, the greater percentiles of the two count.
pub(crate) fn note_reports(summary: &mut Summary, reports: &[Report]) {
    for report in reports {
        summary.transactions += report.transactions;
        summary.aborts += report.aborts;
        summary.commit_p50_us = summary.commit_p50_us.max(report.commit_latencies.p50_us);
        summary.commit_p99_us = summary.commit_p99_us.max(report.commit_latencies.p99_us);
    }
}

/// Bytes of the database's pool.
pub(crate) fn pool_bytes(database: &Database) -> u64 {
    database.catalog().context().pool().stats().pool_bytes
}
