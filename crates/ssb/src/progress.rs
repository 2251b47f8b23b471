//! The progress line of a long step: rewritten in place at a terminal, else a line each few seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const TERMINAL_INTERVAL: Duration = Duration::from_millis(250);
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Progress of a step that counts rows, written to standard error.
pub(crate) struct Progress {
    name: String,
    started: Instant,
    shown: Instant,
    shown_rows: u64,
    is_terminal: bool,
    is_drawn: bool,
}

impl Progress {
    /// Starts the clock of a step.
    pub(crate) fn new(name: impl Into<String>) -> Progress {
        let now = Instant::now();
        let is_terminal = io::stderr().is_terminal();
        Progress { name: name.into(), started: now, shown: now, shown_rows: 0, is_terminal, is_drawn: false }
    }

    /// Shows the rows so far, if it is time to; `share` of the step, up to 1, is done.
    pub(crate) fn tick(&mut self, rows: u64, share: f64) {
        let interval = if self.is_terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        let since = self.shown.elapsed();
        if since < interval {
            return;
        }
        let rate = (rows - self.shown_rows) as f64 / since.as_secs_f64();
        (self.shown, self.shown_rows) = (Instant::now(), rows);
        let (name, seconds) = (&self.name, self.seconds());
        self.show(&format!("{name}: {rows} rows ({:.0}%)  {rate:.0} rows/s  {seconds:.1} s", share * 100.0));
    }

    /// Shows a line of a step without rows, at a terminal only.
    pub(crate) fn note(&mut self, text: &str) {
        if self.is_terminal {
            self.show(text);
        }
    }

    fn show(&mut self, line: &str) {
        let mut stderr = io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        let _ = if self.is_terminal { write!(stderr, "\r\x1b[K{line}") } else { writeln!(stderr, "{line}") };
        let _ = stderr.flush();
        self.is_drawn = self.is_terminal;
    }

    /// Seconds since the clock was started.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Replaces the line by one that stays.
    pub(crate) fn finish(&mut self, rows: u64) {
        self.clear();
        let (name, seconds) = (&self.name, self.seconds());
        let rate = rows as f64 / seconds.max(1e-6);
        let _ = writeln!(io::stderr(), "{name}: {rows} rows in {seconds:.1} s, {rate:.0} rows/s");
    }

    /// Removes the line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
