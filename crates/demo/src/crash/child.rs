//! The victim of the crash loop: runs the streams and reports each commit on standard output.
//!
//! ```text
//! ready            the database is open, the streams have started
//! h N | i N | s N  stream 1, 2 or 3 is committed up to position N
//! end T A P50 P99  ended by itself: transactions, aborts, percentiles of the commit in microseconds
//! ```
//!
//! A line is one write to a pipe: it is there completely or not at all. If the reader is gone, the process
//! ends.

use crate::SmartMeteringArguments;
use crate::error::Result;
use crate::note_reports;
use crate::setup::{self, Directory};
use crate::sinks::StreamName;
use crate::summary::Summary;
use crate::topology::{Plan, Topologies};
use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(1);

/// The letter of a stream in the reports.
pub fn letter(stream: StreamName) -> char {
    match stream {
        StreamName::Household => 'h',
        StreamName::Infrastructure => 'i',
        StreamName::Specification => 's',
    }
}

fn report(line: &str) {
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        // The parent is gone, and with it the reason to run.
        std::process::exit(1);
    }
}

/// Runs until it is killed, or the feeds end, or the time given is over.
pub fn run(arguments: &SmartMeteringArguments) -> Result<()> {
    let directory = Directory::prepare(arguments)?;
    let input = setup::input(arguments, true)?;
    let (mut feeds, shares) = (input.feeds, input.shares);
    let database = setup::open(directory.path(), arguments)?;
    setup::check_settings(&mut database.session()?, arguments, true)?;
    let live = Arc::new(setup::live_at(setup::positions(&database)?, &mut feeds));
    let plan = Plan {
        durability: arguments.durability,
        batch: arguments.batch,
        print_alarms: 0,
        reporter: Some(Arc::new(|stream, position| report(&format!("{} {position}\n", letter(stream))))),
    };
    let topologies = Topologies::start(&database, feeds, &plan, &live)?;
    report("ready\n");
    let started = Instant::now();
    let stop_after = arguments.stop_after_ms.map(Duration::from_millis);
    while !topologies.is_finished() {
        topologies.supervise(shares, &live);
        if stop_after.is_some_and(|after| started.elapsed() >= after) {
            topologies.stop();
        }
        thread::sleep(POLL);
    }
    let (households, infrastructure) = topologies.join()?;
    let mut summary = Summary::default();
    note_reports(&mut summary, &[households, infrastructure]);
    database.close()?;
    let Summary { transactions, aborts, commit_p50_us, commit_p99_us, .. } = summary;
    report(&format!("end {transactions} {aborts} {commit_p50_us} {commit_p99_us}\n"));
    Ok(())
}
