//! The progress line of a long run: rewritten in place at a terminal, else a line each few seconds.

use super::live::LiveCounters;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const TERMINAL_INTERVAL: Duration = Duration::from_millis(250);
const LOG_INTERVAL: Duration = Duration::from_secs(5);

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
    /// Starts the clock.
    pub fn new(live: &LiveCounters) -> Progress {
        let now = Instant::now();
        let readings = live.readings();
        Progress {
            started: now,
            last: now,
            first_readings: readings,
            last_readings: readings,
            terminal: io::stderr().is_terminal(),
            drawn: false,
        }
    }

    /// Shows the progress of the run, if it is time to. `total` readings are to be processed.
    pub fn tick(&mut self, live: &LiveCounters, transactions: u64, total: u64) {
        let interval = if self.terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        let since = self.last.elapsed();
        if since < interval {
            return;
        }
        let readings = live.readings();
        let rate = (readings - self.last_readings) as f64 / since.as_secs_f64();
        (self.last, self.last_readings) = (Instant::now(), readings);
        let line = format!(
            "{:5.1} s  {readings}/{total} readings ({:.0}%)  {rate:.0}/s  {transactions} transactions  {} alarms  lag {} min",
            self.started.elapsed().as_secs_f64(),
            readings as f64 / total.max(1) as f64 * 100.0,
            live.alarms.load(Ordering::Relaxed),
            live.lag_minutes(),
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

    /// Readings since the clock was started, and seconds.
    pub fn so_far(&self, live: &LiveCounters) -> (u64, f64) {
        (live.readings() - self.first_readings, self.started.elapsed().as_secs_f64())
    }
}
