//! `cc-short`, `cc-medium`, `cc-long` and `abort-rate`: throughput and restarts over the skew.

use super::bench::{Bench, Load, Medium, Rates};
use super::skew::Skew;
use super::{MEDIUM, Sizes, modelled};
use crate::asked::AskedFigure;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::Durability;
use entresol_transactions::Protocol;
use serde_json::json;

const THETAS: [f64; 7] = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 2.9];
const READERS: [usize; 2] = [1, 4];

pub(crate) fn short(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    throughput(options, report, &SHORT)
}

pub(crate) fn medium(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    throughput(options, report, &MEDIUM_LENGTH)
}

pub(crate) fn long(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    throughput(options, report, &LONG)
}

/// Length of transactions, and what the dissertation reports for it.
struct Length {
    name: &'static str,
    operations: usize,
    figure: &'static str,
    /// In place to out of place at the highest skew, as far as given: all transactions, the writer.
    in_place: [Option<&'static str>; 2],
    /// Share of its peak that a protocol loses at the highest skew.
    losses: &'static [(Protocol, &'static str)],
    /// Table 5.1: ranks of MVCC, S2PL and BOCC at low and at high contention.
    ranks: [[&'static str; 3]; 2],
}

const SHORT: Length = Length {
    name: "short",
    operations: 2,
    figure: "dissertation, figure 5.14",
    in_place: [Some("2.25"), Some("16")],
    losses: &[],
    ranks: [["1", "1", "2"], ["1", "2", "2"]],
};
const MEDIUM_LENGTH: Length = Length {
    name: "medium",
    operations: MEDIUM,
    figure: "dissertation, figure 5.12",
    in_place: [Some("up to 3"), None],
    losses: &[],
    ranks: [["1", "2", "2"], ["1", "3", "2"]],
};
const LONG: Length = Length {
    name: "long",
    operations: 100,
    figure: "dissertation, figure 5.15",
    in_place: [Some("up to 10"), None],
    losses: &[(Protocol::Bocc, "0.70"), (Protocol::S2pl, "0.99")],
    ranks: [["3", "2", "1"], ["1", "3", "2"]],
};
/// Protocols of table 5.1.
const RANKED: [Protocol; 3] = [Protocol::MvccInPlace, Protocol::S2pl, Protocol::Bocc];

/// Rates of a protocol on a medium at a skew, with a number of readers.
struct Point {
    protocol: Protocol,
    medium: Medium,
    theta: f64,
    readers: usize,
    rates: Rates,
}

/// Everything for one length of transactions.
struct ContentionFigures {
    points: Vec<Point>,
}

impl ContentionFigures {
    fn of(
        options: &RunOptions,
        sizes: &Sizes,
        operations: usize,
        media: &[Medium],
    ) -> Result<ContentionFigures, Error> {
        let skews: Vec<(f64, Skew)> =
            THETAS.iter().map(|&theta| (theta, Skew::new(sizes.tuples, theta))).collect();
        let mut points = Vec::new();
        for &medium in media {
            for protocol in Protocol::ALL {
                let bench = Bench::of(protocol, medium, sizes.tuples, options)?;
                for readers in READERS {
                    for (theta, skew) in &skews {
                        let one = |round: usize| {
                            let load = Load {
                                readers,
                                writers: 1,
                                operations,
                                durability: Durability::None,
                                phase: sizes.phase,
                                seed: options.seed ^ (round as u64) << 20,
                            };
                            bench.run(skew, &load)
                        };
                        let rates = (0..sizes.rounds).map(one).collect::<Result<Vec<_>, _>>()?;
                        let rates = Rates::middle(&rates);
                        points.push(Point { protocol, medium, theta: *theta, readers, rates });
                    }
                }
            }
        }
        Ok(ContentionFigures { points })
    }

    fn at(&self, protocol: Protocol, medium: Medium, theta: f64, readers: usize) -> Rates {
        let same = |p: &&Point| {
            p.protocol == protocol && p.medium == medium && p.theta == theta && p.readers == readers
        };
        self.points.iter().find(same).map(|point| point.rates).unwrap_or_default()
    }

    fn rows(&self, report: &mut Report) {
        for Point { protocol, medium, theta, readers, rates } in &self.points {
            report.row(json!({
                "figure": "throughput",
                "protocol": protocol.to_string(),
                "medium": medium.name(),
                "theta": theta,
                "readers": readers,
                "read_transactions_per_s": rates.reads_per_s,
                "write_transactions_per_s": rates.writes_per_s,
                "reader_restarts_per_transaction": rates.reader_restarts,
                "writer_restarts_per_transaction": rates.writer_restarts,
            }));
        }
    }

    fn figure(
        &self,
        report: &mut Report,
        title: &str,
        y_label: &str,
        (medium, readers): (Medium, usize),
        y: fn(&Rates) -> f64,
        paper: &[(&str, f64, f64)],
    ) {
        let mut series: Vec<Series> = Protocol::ALL
            .map(|protocol| Series {
                name: protocol.to_string(),
                points: THETAS
                    .map(|theta| (theta.to_string(), y(&self.at(protocol, medium, theta, readers))))
                    .into(),
            })
            .into();
        series.extend(
            paper.iter().map(|(name, theta, y)| Series::of_paper(name, vec![(theta.to_string(), *y)])),
        );
        report.figure(Figure {
            title: format!("{title}, {}, {readers} readers", medium.name()),
            x_label: "theta".to_string(),
            y_label: y_label.to_string(),
            series,
        });
    }

    fn checks(&self, report: &mut Report) {
        let right = self.points.iter().all(|point| point.rates.wrong == 0);
        report.check("every committed transaction saw one snapshot of both states", right);
        let mvcc =
            |point: &&Point| matches!(point.protocol, Protocol::MvccInPlace | Protocol::MvccOutOfPlace);
        let aborted = |point: &Point| point.rates.reader_restarts > 0.0;
        report.check("no reader under MVCC was restarted", !self.points.iter().filter(mvcc).any(aborted));
        // Locks may starve readers, but not the writer, who is alone.
        let moves = self.points.iter().all(|point| point.rates.writes_per_s > 0.0);
        report.check("the writer commits under every protocol at every skew", moves);
    }
}

fn throughput(options: &RunOptions, report: &mut Report, length: &Length) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    let measured = ContentionFigures::of(options, &sizes, length.operations, &Medium::ALL)?;
    measured.rows(report);
    for medium in Medium::ALL {
        for readers in READERS {
            let place = (medium, readers);
            measured.figure(report, "All", "thousand transactions/s", place, |r| r.total_per_s() / 1e3, &[]);
            measured.figure(
                report,
                "The writer",
                "thousand transactions/s",
                place,
                |r| r.writes_per_s / 1e3,
                &[],
            );
        }
    }
    measured.checks(report);
    note_on_cores(report);
    asked(&measured, report);
    for medium in Medium::ALL {
        beside_paper(&measured, medium, length, report);
        ranking(&measured, medium, length, report);
    }
    modelled::transactions(options, report, length.operations)
}

/// States what a machine of so many cores does not show.
fn note_on_cores(report: &mut Report) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    report.note(&format!(
        "The paper has up to 40 readers on two sockets of 20 cores; here {} readers and a writer share {cores}. How \
         protocols scale with readers, effects of sockets, and conflicts of transactions that truly overlap are therefore \
         not shown, and the paper's ranks at low contention are printed, not asked.",
        READERS[READERS.len() - 1]
    ));
}

fn asked(measured: &ContentionFigures, report: &mut Report) {
    let (even, skewed) = (THETAS[0], THETAS[THETAS.len() - 1]);
    let readers = READERS[READERS.len() - 1];
    for medium in Medium::ALL {
        let name = medium.name();
        let at = |protocol, theta| measured.at(protocol, medium, theta, readers);
        let in_place = at(Protocol::MvccInPlace, skewed);
        let out = at(Protocol::MvccOutOfPlace, skewed);
        let mut ask = |name: String, ours: f64, theirs: f64, asked: f64| {
            report.asked(AskedFigure::at_least(name, ours / theirs.max(1.0), asked));
        };
        let uncontended = at(Protocol::MvccInPlace, even).total_per_s();
        ask(
            format!("MVCC at theta 2.9 beside itself at 0, {name}"),
            in_place.total_per_s(),
            uncontended,
            0.9,
        );
        let writes = (in_place.writes_per_s, out.writes_per_s);
        ask(format!("in place beside out of place, writer, {name}"), writes.0, writes.1, 2.0);
        let all = (in_place.total_per_s(), out.total_per_s());
        ask(format!("in place beside out of place, all, {name}"), all.0, all.1, 2.0);
        // Table 5.1: first at high contention, whatever the length.
        for other in &RANKED[1..] {
            let theirs = at(*other, skewed).total_per_s();
            ask(format!("MVCC beside {other} at theta 2.9, {name}"), all.0, theirs, 1.0);
        }
    }
}

/// The paper's figures at the highest skew beside ours.
fn beside_paper(measured: &ContentionFigures, medium: Medium, length: &Length, report: &mut Report) {
    let readers = READERS[READERS.len() - 1];
    let skewed = THETAS[THETAS.len() - 1];
    let at = |protocol, theta| measured.at(protocol, medium, theta, readers);
    let (in_place, out) = (at(Protocol::MvccInPlace, skewed), at(Protocol::MvccOutOfPlace, skewed));
    let ours = [in_place.total_per_s() / out.total_per_s(), in_place.writes_per_s / out.writes_per_s];
    for ((paper, ours), of) in length.in_place.iter().zip(ours).zip(["all", "writer"]) {
        if let Some(paper) = paper {
            let name = format!("in place to out of place at theta 2.9, {of}, {}", medium.name());
            report.paper(length.figure, &name, paper, Some(ours));
        }
    }
    for (protocol, paper) in length.losses {
        let rates = THETAS.map(|theta| at(*protocol, theta).total_per_s());
        let peak = rates.into_iter().fold(0.0, f64::max);
        let name = format!("{protocol}: share of its peak lost at theta 2.9, {}", medium.name());
        report.paper(length.figure, &name, paper, Some(1.0 - at(*protocol, skewed).total_per_s() / peak));
    }
}

/// Table 5.1 for this length: the paper's ranks beside ours. Rates within a twentieth share a rank.
fn ranking(measured: &ContentionFigures, medium: Medium, length: &Length, report: &mut Report) {
    let readers = READERS[READERS.len() - 1];
    let contentions = [("low", THETAS[0]), ("high", THETAS[THETAS.len() - 1])];
    for ((contention, theta), ranks) in contentions.into_iter().zip(length.ranks) {
        let rates = RANKED.map(|protocol| measured.at(protocol, medium, theta, readers).total_per_s());
        for ((protocol, rate), paper) in RANKED.iter().zip(rates).zip(ranks) {
            let rank = 1 + rates.iter().filter(|other| **other > 1.05 * rate).count();
            let name = format!(
                "rank of {protocol}, {} transactions, {contention} contention, {}",
                length.name,
                medium.name()
            );
            report.paper("dissertation, table 5.1", &name, paper, Some(rank as f64));
        }
    }
}

/// Figure 5.13: protocol, theta, restarts of a reader for 100 commits.
const PAPER_RESTARTS: [(&str, f64, f64); 2] =
    [("S2PL, 40 readers", 2.9, 2200.0), ("BOCC, 40 readers", 2.9, 15.0)];

/// Restarts for each transaction that committed (figure 5.13).
pub(crate) fn abort_rate(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    let measured = ContentionFigures::of(options, &sizes, MEDIUM, &[Medium::Dram])?;
    measured.rows(report);
    for readers in READERS {
        let place = (Medium::Dram, readers);
        measured.figure(
            report,
            "Readers",
            "restarts/100 transactions",
            place,
            |r| 100.0 * r.reader_restarts,
            &PAPER_RESTARTS,
        );
        measured.figure(
            report,
            "The writer",
            "restarts/100 transactions",
            place,
            |r| 100.0 * r.writer_restarts,
            &[],
        );
    }
    measured.checks(report);
    note_on_cores(report);
    let (readers, skewed) = (READERS[READERS.len() - 1], THETAS[THETAS.len() - 1]);
    let restarts = |protocol, theta| measured.at(protocol, Medium::Dram, theta, readers).reader_restarts;
    for (protocol, paper) in [(Protocol::S2pl, "22"), (Protocol::Bocc, "0.15"), (Protocol::MvccInPlace, "0")]
    {
        let name = format!("restarts of a reader for each commit, {protocol}, theta 2.9 (40 readers there)");
        report.paper("dissertation, figure 5.13", &name, paper, Some(restarts(protocol, skewed)));
    }
    let name = "restarts for each commit at theta 2.9, S2PL beside BOCC";
    let (s2pl, bocc) = (restarts(Protocol::S2pl, skewed), restarts(Protocol::Bocc, skewed));
    report.asked(AskedFigure::at_least(name, s2pl / bocc.max(1e-6), 1.0));
    for protocol in [Protocol::S2pl, Protocol::Bocc] {
        let name = format!("restarts of a reader for each commit, {protocol}, theta 2.9 beside 0");
        let uncontended = restarts(protocol, THETAS[0]);
        report.asked(AskedFigure::at_least(name, restarts(protocol, skewed) / uncontended.max(1e-6), 1.0));
    }
    let writers = measured.points.iter().all(|point| point.rates.writer_restarts == 0.0);
    report.check("the only writer was never restarted", writers);
    Ok(())
}
