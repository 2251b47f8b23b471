//! `cc-short`, `cc-medium`, `cc-long` and `abort-rate`: throughput and restarts over the skew.

use super::bench::{Bench, Load, Medium, Rates};
use super::skew::Skew;
use super::{MEDIUM, Sizes, modelled};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::Durability;
use entresol_transactions::Protocol;
use serde_json::json;

const THETAS: [f64; 7] = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 2.9];
const READERS: [usize; 2] = [1, 4];

pub(crate) fn short(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    report.paper(
        json!({"figure": "5.14", "readers": 20, "highest skew": "MVCC in place 2.25 x out of place in all"}),
    );
    throughput(options, report, 2, "short")
}

pub(crate) fn medium(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    report.paper(json!({"figure": "5.12", "highest skew": "MVCC in place up to 3 x out of place"}));
    throughput(options, report, MEDIUM, "medium")
}

pub(crate) fn long(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    report.paper(json!({"figure": "5.15", "highest skew": "MVCC in place up to 10 x out of place; BOCC loses 70%, S2PL 99%"}));
    throughput(options, report, 100, "long")
}

/// One point: who, where, how skewed, how many readers.
struct Point {
    protocol: Protocol,
    medium: Medium,
    theta: f64,
    readers: usize,
    rates: Rates,
}

/// Everything for one length of transactions.
struct Measured {
    points: Vec<Point>,
}

impl Measured {
    fn of(
        options: &RunOptions,
        sizes: &Sizes,
        operations: usize,
        media: &[Medium],
    ) -> Result<Measured, Error> {
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
        Ok(Measured { points })
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
    ) {
        let series = Protocol::ALL.map(|protocol| Series {
            name: protocol.to_string(),
            points: THETAS
                .map(|theta| (theta.to_string(), y(&self.at(protocol, medium, theta, readers))))
                .into(),
        });
        report.figure(Figure {
            title: format!("{title}, {}, {readers} readers", medium.name()),
            x_label: "theta".to_string(),
            y_label: y_label.to_string(),
            series: series.into(),
        });
    }

    fn checks(&self, report: &mut Report) {
        let right = self.points.iter().all(|point| point.rates.wrong == 0);
        report.check("every committed transaction saw one moment over both states", right);
        let mvcc =
            |point: &&Point| matches!(point.protocol, Protocol::MvccInPlace | Protocol::MvccOutOfPlace);
        let aborted = |point: &Point| point.rates.reader_restarts > 0.0;
        report.check("no reader under MVCC was restarted", !self.points.iter().filter(mvcc).any(aborted));
        // Locks may starve readers; what must not happen is that a protocol lets nobody through.
        let moves = self.points.iter().all(|point| point.rates.total_per_s() > 0.0);
        report.check("every protocol gets transactions through at every skew", moves);
    }
}

fn throughput(options: &RunOptions, report: &mut Report, operations: usize, name: &str) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    let measured = Measured::of(options, &sizes, operations, &Medium::ALL)?;
    measured.rows(report);
    for medium in Medium::ALL {
        for readers in READERS {
            let place = (medium, readers);
            measured.figure(report, "All", "thousand transactions/s", place, |r| r.total_per_s() / 1e3);
            measured.figure(report, "The writer", "thousand transactions/s", place, |r| r.writes_per_s / 1e3);
        }
    }
    measured.checks(report);
    asked(&measured, report);
    ranking(&measured, report, name);
    modelled::transactions(options, report, operations)
}

fn asked(measured: &Measured, report: &mut Report) {
    let (even, skewed) = (THETAS[0], THETAS[THETAS.len() - 1]);
    let readers = READERS[READERS.len() - 1];
    for medium in Medium::ALL {
        let in_place = |theta| measured.at(Protocol::MvccInPlace, medium, theta, readers);
        let out = measured.at(Protocol::MvccOutOfPlace, medium, skewed, readers);
        let name = medium.name();
        report.ratio(
            &format!("MVCC at theta 2.9 beside itself at 0, {name}"),
            in_place(skewed).total_per_s() / in_place(even).total_per_s().max(1.0),
            Some(0.9),
        );
        report.ratio(
            &format!("in place beside out of place, writer, {name}"),
            in_place(skewed).writes_per_s / out.writes_per_s.max(1.0),
            Some(2.0),
        );
        report.ratio(
            &format!("in place beside out of place, all, {name}"),
            in_place(skewed).total_per_s() / out.total_per_s().max(1.0),
            Some(2.0),
        );
    }
}

/// Table 5.1 for this length, from what was measured.
fn ranking(measured: &Measured, report: &mut Report, name: &str) {
    let readers = READERS[READERS.len() - 1];
    for (contention, theta) in [("low", THETAS[0]), ("high", THETAS[THETAS.len() - 1])] {
        let candidates = [Protocol::MvccInPlace, Protocol::S2pl, Protocol::Bocc];
        let rate = |protocol| measured.at(protocol, Medium::Dram, theta, readers).total_per_s();
        let mut ranked = candidates.map(|protocol| (rate(protocol), protocol));
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let places: Vec<String> = ranked.iter().map(|(_, protocol)| protocol.to_string()).collect();
        report
            .note(&format!("table 5.1, {name} transactions, {contention} contention: {}", places.join(", ")));
    }
}

/// Restarts for each transaction that committed (figure 5.13).
pub(crate) fn abort_rate(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    report.paper(
        json!({"figure": "5.13", "readers": 40, "theta": 2.9, "S2PL": 22.0, "BOCC": 0.15, "MVCC": 0.0}),
    );
    let sizes = Sizes::of(options);
    let measured = Measured::of(options, &sizes, MEDIUM, &[Medium::Dram])?;
    measured.rows(report);
    for readers in READERS {
        let place = (Medium::Dram, readers);
        measured.figure(report, "Readers", "restarts/100 transactions", place, |r| 100.0 * r.reader_restarts);
        measured
            .figure(report, "The writer", "restarts/100 transactions", place, |r| 100.0 * r.writer_restarts);
    }
    measured.checks(report);
    let writers = measured.points.iter().all(|point| point.rates.writer_restarts == 0.0);
    report.check("the only writer was never restarted", writers);
    Ok(())
}
