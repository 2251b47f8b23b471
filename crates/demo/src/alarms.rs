//! Alarms as a subscriber gets them: printed when they are committed.

use crate::error::{Error, Result};
use crate::sql::strings;
use entresol::{Canceller, Database, ErrorKind, Session, Timestamp};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Columns of the subscription that are printed: those of `alarms`.
const COLUMNS: [&str; 9] =
    ["window_start", "asset", "quantity", "mean", "reason", "low", "high", "demand_kw", "revision"];
/// Time that the printer is given to catch up at the end.
const CATCH_UP: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);

/// Subscriber that prints alarms, in a thread of its own.
pub struct AlarmPrinter {
    printed: Arc<AtomicU64>,
    print_max: u64,
    canceller: Canceller,
    thread: JoinHandle<Result<()>>,
}

impl AlarmPrinter {
    /// Subscribes to the alarms that are committed after a timestamp, or to all. `None` if none is to be printed.
    pub fn start(
        database: &Database,
        after: Option<Timestamp>,
        print_max: u64,
    ) -> Result<Option<AlarmPrinter>> {
        if print_max == 0 {
            return Ok(None);
        }
        let mut session = database.session()?;
        session.execute("BEGIN")?;
        let after = after.map_or(String::new(), |cts| format!(" AS OF {cts}"));
        session.execute(&format!("DECLARE alarm CURSOR FOR SUBSCRIBE alarms{after}"))?;
        let (printed, canceller) = (Arc::new(AtomicU64::new(0)), session.canceller());
        let counter = Arc::clone(&printed);
        let work = move || print(&mut session, &counter, print_max);
        let thread = thread::Builder::new().name("alarms".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| Error::Check(format!("cannot start the subscriber's thread: {error}")))?;
        Ok(Some(AlarmPrinter { printed, print_max, canceller, thread }))
    }

    /// Ends the subscription once so many alarms, or the most, are printed.
    pub fn stop(self, alarms: u64) -> Result<()> {
        let stopped = Instant::now();
        while !self.thread.is_finished() {
            let is_done = self.printed.load(Ordering::Relaxed) >= alarms.min(self.print_max);
            if is_done || stopped.elapsed() > CATCH_UP {
                self.canceller.cancel();
            }
            thread::sleep(POLL);
        }
        self.thread.join().unwrap_or_else(|_| Err(Error::Check("the subscriber panicked".to_owned())))
    }
}

/// Prints alarms until it is cancelled, or the most are printed.
fn print(session: &mut Session, printed: &AtomicU64, print_max: u64) -> Result<()> {
    while printed.load(Ordering::Relaxed) < print_max {
        let batches = match session.query("FETCH 100 FROM alarm") {
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(()),
            fetched => fetched?,
        };
        let mut lines = Vec::new();
        for batch in &batches {
            let places = COLUMNS
                .iter()
                .map(|name| batch.schema().index_of(name))
                .collect::<std::result::Result<Vec<_>, _>>();
            let places = places.map_err(|error| Error::Check(error.to_string()))?;
            let columns = batch.project(&places).map_err(|error| Error::Check(error.to_string()))?;
            lines.extend(strings(&[columns])?.iter().map(|alarm| line(alarm)));
        }
        let room = print_max - printed.load(Ordering::Relaxed);
        let shown = lines.iter().take(usize::try_from(room).unwrap_or(usize::MAX));
        show(&shown.map(String::as_str).collect::<String>());
        printed.fetch_add(room.min(lines.len() as u64), Ordering::Relaxed);
    }
    show("(further alarms are in the table `alarms`)\n");
    Ok(())
}

/// Line of an alarm: its values in the order of [`COLUMNS`].
fn line(alarm: &[String]) -> String {
    let number = |text: &str| text.parse::<f64>().map_or("-".to_owned(), |number| format!("{number:.2}"));
    format!(
        "ALARM {} {} {} {} is {} (limits {} to {}, demand {} kW, revision {})\n",
        alarm[0].replace('T', " "),
        alarm[1],
        alarm[2],
        number(&alarm[3]),
        alarm[4],
        number(&alarm[5]),
        number(&alarm[6]),
        number(&alarm[7]),
        alarm[8],
    )
}

/// A user who closed the output does not want to see alarms; they are in the table all the same.
fn show(lines: &str) {
    // On a terminal, the progress line is in the way.
    let is_terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
    let clear = if is_terminal && !lines.is_empty() { "\r\x1b[K" } else { "" };
    let _ = write!(std::io::stdout().lock(), "{clear}{lines}");
}
