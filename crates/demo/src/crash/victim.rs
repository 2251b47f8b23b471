//! The parent's side of a victim: start it, listen to it, kill it.

use crate::SmartMeteringArguments;
use crate::error::{Error, Result};
use crate::status::Positions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time after which a victim that is not ready will never be.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reports of a victim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VictimReport {
    /// Positions that it saw committed, one after another.
    pub seen: Vec<Positions>,
    /// If it ended by itself: aborts, and percentiles of the commit.
    pub end: Option<(u64, f64, f64)>,
}

impl VictimReport {
    fn add(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        match (kind, numbers.as_slice()) {
            ("at", [household, infrastructure, specification, balances]) => self.seen.push(Positions {
                household: *household as u64,
                infrastructure: *infrastructure as u64,
                specification: *specification as u64,
                balances: *balances as u64,
            }),
            ("end", [aborts, p50, p99]) => self.end = Some((*aborts as u64, *p50, *p99)),
            _ => {}
        }
    }
}

/// A running victim. Dropping it kills it.
pub struct Victim {
    child: Child,
    ready: Arc<AtomicBool>,
    listener: Option<JoinHandle<VictimReport>>,
}

impl Victim {
    /// Runs this program again on a directory.
    pub fn start(
        arguments: &SmartMeteringArguments,
        dir: &Path,
        stop_after_ms: Option<u64>,
    ) -> Result<Victim> {
        let program = std::env::current_exe()
            .map_err(|error| Error::Check(format!("cannot find this program to run it again: {error}")))?;
        let mut command = Command::new(&program);
        command.args(["demo", "crash-child", "--dir"]).arg(dir);
        command.args(["--seed", &arguments.seed.to_string(), "--meters", &arguments.meters.to_string()]);
        command.args(["--batch", &arguments.batch.to_string()]);
        command.args(["--durability", &arguments.durability.to_string()]);
        if let Some(data) = &arguments.data {
            command.arg("--data").arg(data);
        }
        // The parent has written them already; a victim would be killed while it does.
        command.args(["--rejects", "/dev/null"]);
        if let Some(readings) = arguments.readings {
            command.args(["--readings", &readings.to_string()]);
        }
        if let Some(after) = stop_after_ms {
            command.args(["--stop-after-ms", &after.to_string()]);
        }
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = spawned.map_err(|error| Error::file("run", &program, error))?;
        let ready = Arc::new(AtomicBool::new(false));
        let mut victim = Victim { child, ready: ready.clone(), listener: None };
        child_listener(&mut victim, ready)?;
        Ok(victim)
    }

    /// Waits until the streams run; an error if the victim ends before.
    pub fn wait_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.ready.load(Ordering::Acquire) {
            if let Some(status) = self.try_wait()? {
                // It may have been ready, and done, since the last check.
                if status.success() {
                    return Ok(());
                }
                return Err(Error::Check(format!("the victim ended by itself with {status}")));
            }
            if started.elapsed() > READY_TIMEOUT {
                return Err(Error::Check(format!("the victim was not ready after {READY_TIMEOUT:?}")));
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|error| Error::Check(format!("cannot wait for the victim: {error}")))
    }

    /// Kills it with SIGKILL, and returns its reports, and whether the kill came in time.
    pub fn kill(mut self) -> Result<(VictimReport, bool)> {
        // Killing a process that has just ended is no error.
        let _ = self.child.kill();
        self.finish()
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> Result<VictimReport> {
        Ok(self.finish()?.0)
    }

    fn finish(&mut self) -> Result<(VictimReport, bool)> {
        let status = self.child.wait();
        let status = status.map_err(|error| Error::Check(format!("cannot wait for the victim: {error}")))?;
        let listener = self.listener.take().map(JoinHandle::join);
        let reported = match listener {
            Some(Ok(reported)) => reported,
            _ => return Err(Error::Check("the listener of the victim panicked".to_string())),
        };
        let killed = status.code().is_none();
        if !killed && !status.success() {
            return Err(Error::Check(format!("the victim ended by itself with {status}")));
        }
        Ok((reported, killed))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Drains the pipe in a thread: lines written before the kill are all read.
fn child_listener(victim: &mut Victim, ready: Arc<AtomicBool>) -> Result<()> {
    let Some(output) = victim.child.stdout.take() else {
        return Err(Error::Check("the victim has no standard output".to_string()));
    };
    let listen = move || {
        let mut reported = VictimReport::default();
        let mut lines = BufReader::new(output);
        let mut line = String::new();
        while let Ok(1..) = lines.read_line(&mut line) {
            if line == "ready\n" {
                ready.store(true, Ordering::Release);
            } else if line.ends_with('\n') {
                reported.add(&line);
            }
            line.clear();
        }
        reported
    };
    let spawned = thread::Builder::new().name("victim".to_string()).spawn(listen);
    victim.listener =
        Some(spawned.map_err(|error| Error::Check(format!("cannot listen to the victim: {error}")))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_understood() {
        let mut reported = VictimReport::default();
        for line in ["at 500 0 6 0\n", "at 1000 36 6 2\n", "nonsense\n", "at 1 2\n", "end 0 12.5 99\n"] {
            reported.add(line);
        }
        let at = |household, infrastructure, balances| Positions {
            household,
            infrastructure,
            specification: 6,
            balances,
        };
        assert_eq!(reported.seen, [at(500, 0, 0), at(1000, 36, 2)]);
        assert_eq!(reported.end, Some((0, 12.5, 99.0)));
    }
}
