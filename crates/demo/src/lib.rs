//! The demo: smart metering and energy monitoring (dissertation, figure 5.1).
//!
//! The script `examples/smart-metering.sql` says what is computed; the demo makes the input, runs the script, and checks
//! what comes of it.
//!
//! | part | where |
//! | --- | --- |
//! | readings: simulated, or from files; as input files of the script | [`feed`], [`input`] |
//! | the script, and what a client sees of its topologies | [`script`], [`status`], [`alarms`] |
//! | ad-hoc sessions on snapshots over several states | [`snapshots`] |
//! | kill -9, reopen, verify | [`crash`] |
//! | progress, summary | [`progress`], [`score`], [`summary`] |
//!
//! With `--dir`, a demo that was stopped goes on where the last committed transactions left it.
#![forbid(unsafe_code)]

pub mod alarms;
mod arguments;
pub mod crash;
mod error;
pub mod feed;
pub mod input;
pub mod progress;
pub mod score;
pub mod script;
pub mod setup;
pub mod snapshots;
pub mod sql;
pub mod status;
pub mod summary;

pub use arguments::SmartMeteringArguments;
pub use error::{Error, Result};
pub use summary::Summary;

use alarms::AlarmPrinter;
use entresol::{Database, Session, Timestamp};
use input::InputFiles;
use progress::Progress;
use setup::{Directory, Input};
use snapshots::Checkers;
use sql::number;
use status::{Positions, Status};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);
/// Time between two looks at the states of the topologies before the end.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
const ALARMS: &str = "SELECT count(*) FROM alarms";

/// Runs the demo, or its crash loop, and returns its summary, sound or not. Prints alarms and progress only.
pub fn run(arguments: &SmartMeteringArguments) -> Result<Summary> {
    let directory = Directory::prepare(arguments)?;
    if arguments.crash { crash::run(arguments, directory.path()) } else { run_once(arguments, &directory) }
}

fn run_once(arguments: &SmartMeteringArguments, directory: &Directory) -> Result<Summary> {
    let mut input = setup::input(arguments, false)?;
    let mut summary = Summary { rejected_rows: input.feeds.rejected_rows, ..Summary::default() };
    let start = start(arguments, directory, &mut input, &mut summary)?;
    let opening = Instant::now();
    let database = setup::open(directory.path(), arguments, true)?;
    summary.recovery_ms = opening.elapsed().as_secs_f64() * 1000.0;
    let mut session = database.session()?;
    let mut progress = Progress::new(start.positions.readings());
    session.execute(&script::script(arguments, &directory.input(), false))?;
    let printer = AlarmPrinter::start(&database, start.newest_commit, arguments.print_alarms)?;
    let checkers = Checkers::start(&database, arguments.sessions)?;
    let finished = watch(&database, &mut session, &mut progress, input.total());
    progress.clear();
    let checked = checkers.stop();
    let totals = finished?.totals();
    (summary.readings, summary.seconds) = progress.so_far(Positions::read(&database)?.readings());
    (summary.transactions, summary.aborts) = (totals.transactions, totals.aborts);
    (summary.commit_p50_us, summary.commit_p99_us) = (totals.commit_p50_us, totals.commit_p99_us);
    summary.alarms = number(&mut session, ALARMS)?.cast_unsigned() - start.alarms;
    printer.map_or(Ok(()), |printer| printer.stop(summary.alarms))?;
    (summary.snapshot_checks, summary.snapshot_violations) = checked?;
    // One more check when all is quiet, so that there is one even if the run was short.
    summary.snapshot_checks += 1;
    summary.snapshot_violations += u64::from(snapshots::is_violated(&mut session)?);
    summary.failures = score::score(&database, &input.feeds.failures, &input.feeds.judged)?;
    summary.pool_bytes = pool_bytes(&database);
    drop(session);
    database.close()?;
    Ok(summary)
}

/// State of a database before a run.
struct Start {
    positions: Positions,
    alarms: u64,
    /// Timestamp behind which alarms are of this run; none if there were no alarms to subscribe to.
    newest_commit: Option<Timestamp>,
}

/// Checks the settings of the database while its topologies do not run, and writes the input.
fn start(
    arguments: &SmartMeteringArguments,
    directory: &Directory,
    input: &mut Input,
    summary: &mut Summary,
) -> Result<Start> {
    let database = setup::open(directory.path(), arguments, false)?;
    let mut session = database.session()?;
    setup::check_settings(&mut session, arguments, false)?;
    let positions = Positions::read(&database)?;
    let has_alarms = database.catalog().table("alarms").is_ok();
    let alarms = if has_alarms { number(&mut session, ALARMS)?.cast_unsigned() } else { 0 };
    let newest_commit = has_alarms.then(|| database.newest_commit());
    drop(session);
    database.close()?;
    if positions.readings() >= input.total() {
        eprintln!("the demo in {} is complete: no readings are left", directory.path().display());
    }
    let writing = Instant::now();
    let shares = input.shares;
    let mut files = InputFiles::open(&directory.input())?;
    files.extend(&mut input.feeds, shares.household, shares.infrastructure)?;
    summary.input_seconds = writing.elapsed().as_secs_f64();
    Ok(Start { positions, alarms, newest_commit })
}

/// Watches the topologies until all readings are processed; returns their last status.
fn watch(database: &Database, session: &mut Session, progress: &mut Progress, total: u64) -> Result<Status> {
    let mut looked: Option<Instant> = None;
    loop {
        // Positions cost two rows; the status is a query, which would slow down what it watches.
        let readings = Positions::read(database)?.readings();
        if readings >= total || looked.is_none_or(|looked| looked.elapsed() >= STATUS_INTERVAL) {
            looked = Some(Instant::now());
            let status = Status::read(session)?;
            if status.is_complete(session)? {
                return Ok(status);
            }
            if progress.is_due() {
                progress.show(readings, total, number(session, ALARMS)?, &status.totals());
            }
        }
        thread::sleep(POLL);
    }
}

/// Bytes of the database's pool.
pub(crate) fn pool_bytes(database: &Database) -> u64 {
    database.catalog().context().pool().stats().pool_bytes
}
