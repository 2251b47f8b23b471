//! Delay of a subscription: from before a commit of one row to the arrival of its change at a client that copies
//! `SUBSCRIBE`, at 1,000 commits a second, with one subscriber and with eight. Domain `journal`, durability `none`.
//!
//! Writer and subscribers are threads of this process and share its cores; the delay has the commit in it. Commits keep to
//! their times: one that is late is not waited for by the next.

use crate::asked::AskedFigure;
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::{Database, Durability, Options};
use serde_json::json;
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const COMMITS_PER_SECOND: u64 = 1000;
/// Asked for: milliseconds within which 99 of 100 changes arrive.
const P99_ASKED_MS: f64 = 2.0;
/// Longest wait for subscribers, to begin and to end.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let commits = if options.quick { 200 } else { 20_000 };
    for subscribers in [1, 8] {
        let mut delays_us = measure(options, subscribers, commits)?;
        let all = commits as usize * subscribers;
        report.check(&format!("each change arrived once, {subscribers} subscribers"), delays_us.len() == all);
        delays_us.sort_by(f64::total_cmp);
        let (p50, p99) = (percentile(&delays_us, 0.5), percentile(&delays_us, 0.99));
        report.row(json!({
            "subscribers": subscribers, "commits": commits, "p50_us": p50, "p99_us": p99,
            "max_us": delays_us.last(),
        }));
        if subscribers == 1 {
            let figure = format!("p99 of a subscription at {COMMITS_PER_SECOND} commits a second");
            report.asked(AskedFigure::at_most(figure, p99 / 1000.0, P99_ASKED_MS).unit("ms"));
        }
    }
    Ok(())
}

fn percentile(sorted: &[f64], of: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * of) as usize).copied().unwrap_or(0.0)
}

/// Delays of all changes at all subscribers, in microseconds.
fn measure(options: &RunOptions, subscribers: usize, commits: u64) -> Result<Vec<f64>, Error> {
    let dir = options.database_dir()?;
    let database = Database::open(dir.path().join("db"), Options::default().durability(Durability::None))?;
    let mut writer = database.session()?;
    writer.execute(
        "CREATE TABLE sent (id BIGINT PRIMARY KEY, at_ns BIGINT NOT NULL) WITH (changes = '1 hour')",
    )?;
    let begin = Instant::now();
    let (began, begun) = mpsc::channel();
    let (arrived, delays) = mpsc::channel();
    thread::scope(|scope| {
        let mut cancellers = Vec::new();
        for _ in 0..subscribers {
            let mut session = database.session()?;
            cancellers.push(session.canceller());
            let mut target =
                Arrivals { begin, rest: Vec::new(), began: Some(began.clone()), arrived: arrived.clone() };
            scope.spawn(move || {
                // It ends by being cancelled.
                let _ = session.copy_out("COPY (SUBSCRIBE sent WITH (PROGRESS)) TO STDOUT", &mut target);
            });
        }
        let mut written = Ok(());
        for _ in 0..subscribers {
            if begun.recv_timeout(WAIT_MAX).is_err() {
                written = Err(Error::Invalid("a subscription does not begin".to_owned()));
            }
        }
        if written.is_ok() {
            written = write(&mut writer, begin, commits);
        }
        let mut found = Vec::new();
        let wanted = commits as usize * subscribers;
        while written.is_ok() && found.len() < wanted {
            let Ok(delay) = delays.recv_timeout(WAIT_MAX) else { break };
            found.push(delay);
        }
        for canceller in &cancellers {
            canceller.cancel();
        }
        written.map(|()| found)
    })
}

/// Commits one row after another, each at its time.
fn write(writer: &mut entresol::Session, begin: Instant, commits: u64) -> Result<(), Error> {
    let first = Instant::now();
    for number in 0..commits {
        let due = first + Duration::from_micros(number * 1_000_000 / COMMITS_PER_SECOND);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let at_ns = begin.elapsed().as_nanos();
        writer.execute(&format!("INSERT INTO sent VALUES ({number}, {at_ns})"))?;
    }
    Ok(())
}

/// Target of a COPY, which notes when lines arrive.
struct Arrivals {
    begin: Instant,
    /// Begin of a line whose end has not come.
    rest: Vec<u8>,
    /// Told once, at the first row of progress.
    began: Option<mpsc::Sender<()>>,
    arrived: mpsc::Sender<f64>,
}

impl Arrivals {
    fn line(&mut self, line: &str) {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            [_, "insert", _, at_ns] => {
                let at_ns: f64 = at_ns.parse().unwrap_or(0.0);
                let delay_us = (self.begin.elapsed().as_nanos() as f64 - at_ns) / 1000.0;
                // The other end is gone once all have arrived.
                let _ = self.arrived.send(delay_us);
            }
            _ => {
                let _ = self.began.take().map(|began| began.send(()));
            }
        }
    }
}

impl Write for Arrivals {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.line(String::from_utf8_lossy(&line).trim_end());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
