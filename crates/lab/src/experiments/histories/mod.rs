//! `histories`: random concurrent transactions under each protocol and level, their process killed in the
//! middle again and again, and what an independent checker says of what they saw.
//!
//! A history of lists shows the order of all writes to a key, so few anomalies can hide; one of registers
//! overwrites. Each is judged by the strongest model that the level promises, with real time: what was
//! acknowledged before a transaction began is seen by it, also across a kill. That the checker can tell
//! levels apart is shown by the weaker ones: their histories must not pass for more than they are. Beside it
//! stands what needs no theory: every acknowledged write is there in the end, nothing that was taken back is,
//! nothing twice.
//!
//! With kills every commit is synced; the others run at `none`, for more of them. Half of the processes have a
//! memory budget in which nothing fits, and reclaim dead versions beside the transactions.

mod checker;
mod ledger;
mod operations;
pub mod worker;

use crate::measure::Random;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use checker::{Checker, HOW_TO_INSTALL};
use entresol_transactions::{Isolation, Protocol};
use ledger::Ledger;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Duration;
use worker::{LEVELS, Workload};

const THREADS: u32 = 4;

/// Sizes of a run.
struct Sizes {
    kills: u32,
    /// A life ends within so many milliseconds.
    life_ms: u64,
    /// Transactions of each thread in the last life, and in the only one where nothing is killed.
    last: u64,
    undisturbed: u64,
}

impl Sizes {
    fn of(workload: Workload, quick: bool) -> Sizes {
        match workload {
            _ if quick => Sizes { kills: 2, life_ms: 60, last: 100, undisturbed: 500 },
            Workload::Lists => Sizes { kills: 20, life_ms: 400, last: 1_000, undisturbed: 20_000 },
            // The order of their writes has to be searched for: with ten times the transactions the checker
            // takes hours.
            Workload::Registers => Sizes { kills: 20, life_ms: 40, last: 100, undisturbed: 2_000 },
        }
    }
}

/// A kind of history.
#[derive(Clone, Copy)]
struct Case {
    protocol: usize,
    level: usize,
    workload: Workload,
    is_killed: bool,
}

impl Case {
    fn protocol(self) -> Protocol {
        Protocol::ALL[self.protocol]
    }

    fn isolation(self) -> Isolation {
        LEVELS[self.level]
    }

    fn name(self) -> String {
        let level = match self.isolation() {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::Snapshot => "SNAPSHOT",
            Isolation::Serializable => "SERIALIZABLE",
        };
        let workload = if self.workload == Workload::Lists { "lists" } else { "registers" };
        let end = if self.is_killed { ", killed" } else { "" };
        format!("{}, {level}, {workload}{end}", self.protocol())
    }

    /// In a few letters: protocol and level.
    fn label(self) -> String {
        let protocol = ["in place", "out of place", "S2PL", "BOCC"][self.protocol];
        format!("{protocol} {}", ["RC", "SI", "SER"][self.level])
    }

    /// The checker's name of the promised level.
    fn model(self) -> &'static str {
        match self.isolation() {
            Isolation::ReadCommitted => "strong-read-committed",
            Isolation::Snapshot => "strong-snapshot-isolation",
            Isolation::Serializable => "strict-serializable",
        }
    }

    /// The next stronger one, where the level is not the strongest.
    fn not_promised(self) -> Option<&'static str> {
        match self.isolation() {
            Isolation::ReadCommitted => Some("snapshot-isolation"),
            Isolation::Snapshot => Some("serializable"),
            Isolation::Serializable => None,
        }
    }

    fn all() -> Vec<Case> {
        let mut cases = Vec::new();
        for (protocol, chosen) in Protocol::ALL.iter().enumerate() {
            // The others are serializable at each level.
            let has_levels = matches!(chosen, Protocol::MvccInPlace | Protocol::MvccOutOfPlace);
            for level in if has_levels { 0 } else { LEVELS.len() - 1 }..LEVELS.len() {
                for workload in [Workload::Lists, Workload::Registers] {
                    for is_killed in [false, true] {
                        cases.push(Case { protocol, level, workload, is_killed });
                    }
                }
            }
        }
        cases
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let checker = Checker::find();
    if checker.is_none() {
        report
            .note(&format!("The checker `adya` is not there, so levels were not judged. {HOW_TO_INSTALL}."));
    }
    let mut ends: Vec<(String, [u64; 3])> = Vec::new();
    let mut told_apart: Vec<(&str, bool)> = Vec::new();
    let mut random = Random::new(options.seed);
    for case in Case::all() {
        // Registers say little that lists do not: at small size only where it matters most.
        if options.quick && case.workload == Workload::Registers && !case.is_killed {
            continue;
        }
        let sizes = Sizes::of(case.workload, options.quick);
        let dir = options.database_dir()?;
        let ledger = live(case, &sizes, dir.path(), options, &mut random)?;
        let faults = ledger.faults();
        let verdict = checker
            .as_ref()
            .map(|checker| checker.check(&ledger.path, case.workload, case.model()))
            .transpose()?;
        report.row(json!({
            "history": case.name(),
            "kills": if case.is_killed { sizes.kills } else { 0 },
            "committed": ledger.committed,
            "refused": ledger.refused,
            "interrupted": ledger.unknown,
            "model": case.model(),
            "verdict": verdict.as_ref().map_or("not judged".to_string(), |verdict| {
                if verdict.is_valid { "holds".to_string() } else { verdict.anomalies.join(", ") }
            }),
        }));
        if ends.last().is_none_or(|(label, _)| *label != case.label()) {
            ends.push((case.label(), [0; 3]));
        }
        if let Some((_, counts)) = ends.last_mut() {
            let more = [ledger.committed, ledger.refused, ledger.unknown];
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
        let is_whole = faults.is_empty();
        report.check(&format!("nothing lost, nothing back, nothing twice: {}", case.name()), is_whole);
        if !is_whole {
            report.note(&format!("{}: {faults}", case.name()));
        }
        if let (Some(verdict), Some(checker)) = (verdict, &checker) {
            report.check(&format!("{} holds: {}", case.model(), case.name()), verdict.is_valid);
            if !verdict.is_valid {
                keep(&ledger, case, report)?;
            }
            if let (Some(stronger), Workload::Lists) = (case.not_promised(), case.workload) {
                let is_told = !checker.check(&ledger.path, case.workload, stronger)?.is_valid;
                match told_apart.iter_mut().find(|(model, _)| *model == stronger) {
                    Some((_, told)) => *told |= is_told,
                    None => told_apart.push((stronger, is_told)),
                }
            }
        }
    }
    for (model, told) in told_apart {
        report.check(&format!("the checker sees that weaker levels are not {model}"), told);
    }
    let names = ["committed", "refused", "interrupted by a kill"];
    let series = names.iter().enumerate().map(|(which, name)| Series {
        name: name.to_string(),
        points: ends.iter().map(|(label, counts)| (label.clone(), counts[which] as f64)).collect(),
    });
    report.figure(Figure {
        title: "how transactions ended".to_string(),
        x_label: "protocol and level, all their histories".to_string(),
        y_label: "transactions".to_string(),
        series: series.collect(),
    });
    Ok(())
}

/// All lives of one history.
fn live(
    case: Case,
    sizes: &Sizes,
    dir: &std::path::Path,
    options: &RunOptions,
    random: &mut Random,
) -> Result<Ledger, Error> {
    let mut ledger = Ledger::new(dir.join("history.jsonl"))?;
    let kills = if case.is_killed { sizes.kills } else { 0 };
    for life in 0..=kills {
        let is_last = life == kills;
        let transactions = match (is_last, case.is_killed) {
            (false, _) => u64::MAX,
            (true, true) => sizes.last,
            (true, false) => sizes.undisturbed,
        };
        let wait = |error| Error::Io { action: "wait for the process".to_string(), error };
        let started = |error| Error::Io { action: format!("start {}", options.program.display()), error };
        let mut child = Command::new(&options.program)
            .arg("history-worker")
            .arg("--dir")
            .arg(dir.join("database"))
            .args(["--protocol", &case.protocol.to_string(), "--isolation", &case.level.to_string()])
            .args(["--workload", if case.workload == Workload::Lists { "lists" } else { "registers" }])
            .args(["--life", &life.to_string(), "--first-key", &ledger.first_key().to_string()])
            .args(["--threads", &THREADS.to_string(), "--transactions", &transactions.to_string()])
            .args(["--seed", &random.next_u64().to_string()])
            .args(case.is_killed.then_some("--durable"))
            .stdin(Stdio::piped())
            .stdout(ledger.file()?)
            .spawn()
            .map_err(started)?;
        if !is_last {
            // The first line says that the database is there.
            while ledger.is_waiting()? && child.try_wait().map_err(wait)?.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(sizes.life_ms / 4 + random.below(sizes.life_ms)));
            child.kill().map_err(|error| Error::Io { action: "kill the process".to_string(), error })?;
        }
        // The pipe to it stays open until it is done: it would stop without.
        let input = child.stdin.take();
        let status = child.wait().map_err(wait)?;
        drop(input);
        let was_killed = status.code().is_none();
        if (is_last || !was_killed) && !status.success() {
            return Err(Error::Invalid(format!(
                "{}: the process of life {life} ended with {status}",
                case.name()
            )));
        }
        ledger.end_life()?;
    }
    Ok(ledger)
}

/// A history that does not hold is copied, for inspection.
fn keep(ledger: &Ledger, case: Case, report: &mut Report) -> Result<(), Error> {
    let name = case.name().replace(", ", "-").replace(' ', "_");
    let path = std::env::temp_dir().join(format!("entresol-history-{name}-{}.jsonl", std::process::id()));
    std::fs::copy(&ledger.path, &path)
        .map_err(|error| Error::Io { action: format!("copy the history to {}", path.display()), error })?;
    report.note(&format!("{}: kept as {}", case.name(), path.display()));
    Ok(())
}
