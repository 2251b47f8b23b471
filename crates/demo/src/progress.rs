//! The progress line of a long run: rewritten in place at a terminal, else a line each few seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const TERMINAL_INTERVAL: Duration = Duration::from_millis(250);
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Totals of the topologies in this run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Committed transactions.
    pub transactions: u64,
    /// Dropped transactions.
    pub aborts: u64,
    /// Median of the time that a commit takes.
    pub commit_p50_us: f64,
    /// 99th percentile.
    pub commit_p99_us: f64,
    /// Minutes of event time that the infrastructure is behind the households.
    pub lag_minutes: i64,
}

/// Writes progress to standard error.
pub struct Progress {
    started: Instant,
    last: Instant,
    first_readings: u64,
    last_readings: u64,
    terminal: bool,
    drawn: bool,
}

impl Progress {
    /// Starts the clock at so many readings.
    pub fn new(readings: u64) -> Progress {
        let now = Instant::now();
        Progress {
            started: now,
            last: now,
            first_readings: readings,
            last_readings: readings,
            terminal: io::stderr().is_terminal(),
            drawn: false,
        }
    }

    /// Tells whether it is time to show the progress.
    pub fn is_due(&self) -> bool {
        self.last.elapsed() >= if self.terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL }
    }

    /// Shows the progress. `total` readings are to be processed.
    pub fn show(&mut self, readings: u64, total: u64, alarms: i64, totals: &Totals) {
        let since = self.last.elapsed();
        let rate = (readings - self.last_readings) as f64 / since.as_secs_f64();
        (self.last, self.last_readings) = (Instant::now(), readings);
        let line = format!(
            "{:5.1} s  {readings}/{total} readings ({:.0}%)  {rate:.0}/s  {} transactions  {alarms} alarms  lag {} min",
            self.started.elapsed().as_secs_f64(),
            readings as f64 / total.max(1) as f64 * 100.0,
            totals.transactions,
            totals.lag_minutes,
        );
        let mut stderr = io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        let _ = if self.terminal { write!(stderr, "\r\x1b[K{line}") } else { writeln!(stderr, "{line}") };
        let _ = stderr.flush();
        self.drawn = self.terminal;
    }

    /// Removes the line.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    /// Readings since the clock was started, of so many, and seconds.
    pub fn so_far(&self, readings: u64) -> (u64, f64) {
        (readings - self.first_readings, self.started.elapsed().as_secs_f64())
    }
}
