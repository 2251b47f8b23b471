//! State of the topologies, as a client sees it: `entresol.topologies`, and the stored positions.

use crate::error::{Error, Result};
use crate::progress::Totals;
use crate::script::{
    BALANCE_SOURCE, BALANCE_TOPOLOGY, HOUSEHOLD_SOURCE, HOUSEHOLD_TOPOLOGY, INFRASTRUCTURE_SOURCE,
    INFRASTRUCTURE_TOPOLOGY, SPECIFICATION_SOURCE,
};
use crate::sql::{number, rows};
use entresol::streams::POSITIONS_TABLE;
use entresol::tables::Value;
use entresol::{Database, Session};

const STATUS: &str = "SELECT name, state, commits, aborts, commit_p50_us, commit_p99_us,
    extract(epoch FROM watermark)::bigint, error FROM entresol.topologies";
/// Place of the tuples up to a position in the table of positions.
const TUPLES: usize = 4;

/// Counters of a topology in this run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopologyStatus {
    name: String,
    state: String,
    transactions: u64,
    aborts: u64,
    commit_p50_us: f64,
    commit_p99_us: f64,
    watermark_s: Option<i64>,
}

/// The topologies of the demo at a time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status(Vec<TopologyStatus>);

impl Status {
    /// Reads the counters. One that has failed is an error.
    pub fn read(session: &mut Session) -> Result<Status> {
        let mut topologies = Vec::new();
        for row in rows(session, STATUS)? {
            if row[1] == "failed" {
                return Err(Error::Check(format!("topology {} failed: {}", row[0], row[7])));
            }
            topologies.push(TopologyStatus {
                name: row[0].clone(),
                state: row[1].clone(),
                transactions: row[2].parse().unwrap_or_default(),
                aborts: row[3].parse().unwrap_or_default(),
                commit_p50_us: row[4].parse().unwrap_or_default(),
                commit_p99_us: row[5].parse().unwrap_or_default(),
                watermark_s: row[6].parse().ok(),
            });
        }
        Ok(Status(topologies))
    }

    /// Tells whether all files are read and all balances judged.
    pub fn is_complete(&self, session: &mut Session) -> Result<bool> {
        let has_ended = |name: &str| self.of(name).is_some_and(|topology| topology.state == "ended");
        if !has_ended(HOUSEHOLD_TOPOLOGY) || !has_ended(INFRASTRUCTURE_TOPOLOGY) {
            return Ok(false);
        }
        let unjudged = format!(
            "SELECT (SELECT count(*) FROM feeder_balance) - coalesce((SELECT max(tuples) FROM {POSITIONS_TABLE}
                WHERE topology = '{BALANCE_TOPOLOGY}'), 0)"
        );
        Ok(number(session, &unjudged)? == 0)
    }

    fn of(&self, name: &str) -> Option<&TopologyStatus> {
        self.0.iter().find(|topology| topology.name == name)
    }

    /// Totals of all topologies. Of the latencies, the greatest percentiles count.
    pub fn totals(&self) -> Totals {
        let greatest = |of: fn(&TopologyStatus) -> f64| self.0.iter().map(of).fold(0.0, f64::max);
        let watermark_s = |name| self.of(name).and_then(|topology| topology.watermark_s);
        let lag_s = watermark_s(HOUSEHOLD_TOPOLOGY).zip(watermark_s(INFRASTRUCTURE_TOPOLOGY));
        Totals {
            transactions: self.0.iter().map(|topology| topology.transactions).sum(),
            aborts: self.0.iter().map(|topology| topology.aborts).sum(),
            commit_p50_us: greatest(|topology| topology.commit_p50_us),
            commit_p99_us: greatest(|topology| topology.commit_p99_us),
            lag_minutes: lag_s.map_or(0, |(households, judged)| (households - judged).max(0) / 60),
        }
    }
}

/// Committed positions of the streams of a database, in items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Positions {
    /// Readings of households.
    pub household: u64,
    /// Readings of the infrastructure.
    pub infrastructure: u64,
    /// Revisions of the specification.
    pub specification: u64,
    /// Balances of feeders.
    pub balances: u64,
}

impl Positions {
    /// Reads them at one snapshot; all are 0 if nothing has been committed.
    pub fn read(database: &Database) -> Result<Positions> {
        let Ok(table) = database.catalog().table(POSITIONS_TABLE) else { return Ok(Positions::default()) };
        let transaction = database.begin()?;
        let read = |topology: &str, source: &str| -> Result<u64> {
            let row = table.get(&transaction, &[Value::from(topology), Value::from(source)])?;
            Ok(match row.as_ref().and_then(|row| row.get(TUPLES)) {
                Some(Value::BigInt(tuples)) => tuples.cast_unsigned(),
                _ => 0,
            })
        };
        Ok(Positions {
            household: read(HOUSEHOLD_TOPOLOGY, HOUSEHOLD_SOURCE)?,
            infrastructure: read(INFRASTRUCTURE_TOPOLOGY, INFRASTRUCTURE_SOURCE)?,
            specification: read(INFRASTRUCTURE_TOPOLOGY, SPECIFICATION_SOURCE)?,
            balances: read(BALANCE_TOPOLOGY, BALANCE_SOURCE)?,
        })
    }

    /// Each position with the name of its stream.
    pub fn by_stream(&self) -> [(&'static str, u64); 4] {
        [
            ("households", self.household),
            ("infrastructure", self.infrastructure),
            ("revisions", self.specification),
            ("balances", self.balances),
        ]
    }

    /// Readings of households and infrastructure.
    pub fn readings(&self) -> u64 {
        self.household + self.infrastructure
    }
}
