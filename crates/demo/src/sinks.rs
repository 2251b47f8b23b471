//! The demo's sinks: called after the commit, they count, report and print.

use super::live::LiveCounters;
use entresol::streams::{Batch, Sink};
use entresol::tables::{Column, Value};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Callback after each committed transaction: the stream, and the position that is committed now.
pub type Reporter = Arc<dyn Fn(StreamName, u64) + Send + Sync>;

/// The three streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamName {
    /// Stream 1.
    Household,
    /// Stream 2.
    Infrastructure,
    /// Stream 3.
    Specification,
}

impl LiveCounters {
    /// The committed position of a stream.
    pub fn position(&self, stream: StreamName) -> &AtomicU64 {
        match stream {
            StreamName::Household => &self.household,
            StreamName::Infrastructure => &self.infrastructure,
            StreamName::Specification => &self.specification,
        }
    }

    fn newest_us(&self, stream: StreamName) -> Option<&AtomicI64> {
        match stream {
            StreamName::Household => Some(&self.household_time_us),
            StreamName::Infrastructure => Some(&self.infrastructure_time_us),
            StreamName::Specification => None,
        }
    }
}

/// Sink behind a source: counts committed tuples.
pub struct CommittedSink {
    /// The stream of the tuples.
    pub stream: StreamName,
    /// The counters.
    pub live: Arc<LiveCounters>,
    /// Callback after commits, if any.
    pub reporter: Option<Reporter>,
}

impl Sink for CommittedSink {
    fn open(&mut self, _columns: &[Column]) -> entresol::streams::Result<()> {
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> entresol::streams::Result<()> {
        self.live.position(self.stream).fetch_add(batch.len() as u64, Ordering::Relaxed);
        if let Some(newest_us) = self.live.newest_us(self.stream)
            && let Some(last) = batch.len().checked_sub(1)
            && let Some(times) = batch.times(0)
        {
            newest_us.store(times[last], Ordering::Relaxed);
        }
        Ok(())
    }

    fn flush(&mut self) -> entresol::streams::Result<()> {
        if let Some(reporter) = &self.reporter {
            reporter(self.stream, self.live.position(self.stream).load(Ordering::Relaxed));
        }
        Ok(())
    }
}

/// Sink behind the windows of the households: tells the infrastructure up to when they are committed. Expects
/// the end of the window in the first column.
pub struct ClosedSink(pub Arc<LiveCounters>);

impl Sink for ClosedSink {
    fn open(&mut self, _columns: &[Column]) -> entresol::streams::Result<()> {
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> entresol::streams::Result<()> {
        if let Some(ends) = batch.times(0)
            && let Some(&end_us) = ends.iter().max()
        {
            self.0.household_closed_us.fetch_max(end_us, Ordering::Release);
        }
        Ok(())
    }
}

/// Prints the first alarms and counts all.
pub struct AlarmSink {
    /// The counters.
    pub live: Arc<LiveCounters>,
    /// Maximum number of printed alarms.
    pub print_max: u64,
}

impl AlarmSink {
    fn print(&self, tuple: &[Value]) {
        // On a terminal, the progress line is in the way.
        let mut line = String::new();
        if std::io::stderr().is_terminal() && std::io::stdout().is_terminal() {
            line.push_str("\r\x1b[K");
        }
        let number = |value: &Value| match value {
            Value::Double(number) => format!("{number:.2}"),
            _ => "-".to_string(),
        };
        line += &format!(
            "ALARM {} {} {} {} is {} (limits {} to {}, demand {} kW, revision {})\n",
            tuple[2],
            tuple[0],
            tuple[1],
            number(&tuple[3]),
            tuple[7],
            number(&tuple[4]),
            number(&tuple[5]),
            number(&tuple[6]),
            tuple[8],
        );
        // A user who closed the output does not want to see alarms; they are in the table all the same.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

impl Sink for AlarmSink {
    fn open(&mut self, _columns: &[Column]) -> entresol::streams::Result<()> {
        Ok(())
    }

    fn emit(&mut self, batch: &Batch) -> entresol::streams::Result<()> {
        for tuple in batch.tuples()? {
            let count = self.live.alarms.fetch_add(1, Ordering::Relaxed);
            if count < self.print_max {
                self.print(&tuple);
            } else if count == self.print_max && count > 0 {
                let _ = writeln!(std::io::stdout().lock(), "(further alarms are in the table `alarms`)");
            }
        }
        Ok(())
    }
}
