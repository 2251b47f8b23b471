//! The victim of the crash loop: runs the topologies, and reports on standard output what a client sees.
//!
//! ```text
//! ready             the database is open, the topologies have started
//! at N N N N        so many readings of households and infrastructure, revisions and balances are committed
//! end A P50 P99     ended by itself: aborts, percentiles of the commit in microseconds
//! ```
//!
//! A line is one write to a pipe: it is there completely or not at all. If the reader is gone, the process
//! ends.

use crate::SmartMeteringArguments;
use crate::error::Result;
use crate::script;
use crate::setup::{self, Directory};
use crate::status::{Positions, Status};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(1);
/// Time between two looks at the states of the topologies, which cost more.
const STATUS_POLL: Duration = Duration::from_millis(20);

fn report(line: &str) {
    if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
        // The parent is gone, and with it the reason to run.
        std::process::exit(1);
    }
}

/// Runs until it is killed, or the input ends, or the time given is over.
pub fn run(arguments: &SmartMeteringArguments) -> Result<()> {
    let directory = Directory::prepare(arguments)?;
    let database = setup::open(directory.path(), arguments, true)?;
    let mut session = database.session()?;
    let is_endless = setup::is_endless(arguments, true);
    session.execute(&script::script(arguments, &directory.input(), is_endless))?;
    report("ready\n");
    let started = Instant::now();
    let stop_after = arguments.stop_after_ms.map(Duration::from_millis);
    let (mut reported, mut looked) = (Positions::default(), started);
    loop {
        let positions = Positions::read(&database)?;
        if positions != reported {
            let Positions { household, infrastructure, specification, balances } = positions;
            report(&format!("at {household} {infrastructure} {specification} {balances}\n"));
            reported = positions;
        }
        if looked.elapsed() >= STATUS_POLL {
            looked = Instant::now();
            let is_over = stop_after.is_some_and(|after| started.elapsed() >= after);
            if is_over || Status::read(&mut session)?.is_complete(&mut session)? {
                break;
            }
        }
        thread::sleep(POLL);
    }
    let totals = Status::read(&mut session)?.totals();
    drop(session);
    database.close()?;
    report(&format!("end {} {} {}\n", totals.aborts, totals.commit_p50_us, totals.commit_p99_us));
    Ok(())
}
