//! Verification that a reopened database is the result of a prefix of the streams.
//!
//! The stored positions say which prefix; the oracle says what all states must hold after it. A transaction
//! of which anything is missing, or anything is there too early, makes some table differ.

use super::oracle::{BalanceOracle, ExpectedRows, FeederWindow, HouseholdOracle, InfrastructureOracle};
use crate::error::Result;
use crate::feed::Feeds;
use crate::sql;
use crate::status::Positions;
use entresol::Database;
use entresol::tables::{ScanRange, Table, Value};
use std::sync::Arc;

/// The oracles of the topologies.
#[derive(Default)]
pub struct Oracles {
    household: HouseholdOracle,
    infrastructure: InfrastructureOracle,
    /// Alarms that were expected last.
    alarms: u64,
}

/// Differences found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// States of stream 1 that differ.
    pub household: Vec<String>,
    /// States of streams 2 and 3 that differ.
    pub infrastructure: Vec<String>,
    /// States of the balances that differ.
    pub balances: Vec<String>,
}

impl Oracles {
    /// Goes forward to the positions and compares all states.
    pub fn verify(
        &mut self,
        database: &Database,
        feeds: &mut Feeds,
        positions: Positions,
    ) -> Result<Verdict> {
        let households_open = open_readings(database, "meter_open")?;
        let channels_open = open_readings(database, "infrastructure_open")?;
        self.household.advance(feeds, positions.household, households_open == 0);
        let both = (positions.infrastructure, positions.specification);
        self.infrastructure.advance(feeds, both, channels_open == 0);

        let mut verdict = Verdict::default();
        note_open("meter_open", households_open, self.household.open_readings(), &mut verdict.household);
        for (name, expected) in [("meter", &self.household.meter), ("household", &self.household.household)] {
            compare(database, name, expected, &mut verdict.household)?;
        }
        let open = self.infrastructure.open_readings();
        note_open("infrastructure_open", channels_open, open, &mut verdict.infrastructure);
        for (name, expected) in [
            ("infrastructure", &self.infrastructure.infrastructure),
            ("latest", &self.infrastructure.latest),
            ("specification", &self.infrastructure.specification),
        ] {
            compare(database, name, expected, &mut verdict.infrastructure)?;
        }
        self.verify_balances(database, positions, &mut verdict.balances)?;
        Ok(verdict)
    }

    /// Compares what both topologies have in common. The alarms of balances that are committed, and come behind
    /// the position of the topology that judges them, are not there yet.
    fn verify_balances(
        &mut self,
        database: &Database,
        positions: Positions,
        differences: &mut Vec<String>,
    ) -> Result<()> {
        let oracle = BalanceOracle::new(&self.household, &self.infrastructure);
        compare(database, "feeder_flow", &oracle.flow, differences)?;
        let found =
            if database.catalog().table("feeder_balance").is_ok() { balances(database)? } else { Vec::new() };
        let expected: Vec<(FeederWindow, [i128; 3])> = oracle
            .balances
            .iter()
            .map(|(window, (demand, load))| (window.clone(), [*demand, *load, load - demand]))
            .collect();
        if found != expected {
            differences.push(format!("feeder_balance has {found:?}, expected {expected:?}"));
        }
        let unjudged = (expected.len() as u64).saturating_sub(positions.balances);
        let unjudged = last_changes(database, unjudged as usize)?;
        let mut alarms = self.infrastructure.alarms.clone();
        for (window, (key, alarm)) in oracle.alarms {
            if !unjudged.contains(&window) {
                alarms.insert(key, alarm);
            }
        }
        self.alarms = alarms.len() as u64;
        compare(database, "alarms", &alarms, differences)
    }

    /// Expected number of alarms.
    pub fn alarms(&self) -> u64 {
        self.alarms
    }
}

fn note_open(table: &str, found: i64, expected: i64, differences: &mut Vec<String>) {
    if found != expected {
        differences.push(format!("{table} has {found} readings, expected {expected}"));
    }
}

fn rows(database: &Database, table: &Arc<Table>) -> Result<Vec<Vec<Value>>> {
    let transaction = database.catalog().begin().map_err(entresol::streams::Error::from)?;
    Ok(table.scan(ScanRange::full()).rows(&transaction)?)
}

/// The readings of a table of open windows: the sum of its column `count`. None, if its topology was never started.
fn open_readings(database: &Database, name: &str) -> Result<i64> {
    let Ok(table) = database.catalog().table(name) else { return Ok(0) };
    let column = table.schema().column_index("count").unwrap_or_default();
    let count = |row: Vec<Value>| match row[column] {
        Value::BigInt(count) => count,
        _ => 0,
    };
    Ok(rows(database, &table)?.into_iter().map(count).sum())
}

/// Half hour of a feeder, of the first two columns of a row.
fn window_of(row: &[String]) -> FeederWindow {
    (row[0].clone(), row[1].parse().unwrap_or_default())
}

/// Rows of the view: demand, load and the difference in mW.
fn balances(database: &Database) -> Result<Vec<(FeederWindow, [i128; 3])>> {
    let sql =
        "SELECT feeder, (extract(epoch FROM window_start) * 1000000)::bigint, (demand_kw * 1000000)::bigint,
        (load_kw * 1000000)::bigint, (unexplained_kw * 1000000)::bigint FROM feeder_balance ORDER BY 1, 2";
    let rows = sql::rows(&mut database.session()?, sql)?;
    let milliwatts = |row: &[String], place: usize| row[place].parse().unwrap_or_default();
    Ok(rows.iter().map(|row| (window_of(row), [2, 3, 4].map(|place| milliwatts(row, place)))).collect())
}

/// The last so many rows that came into the view, in the order of its log, as the topology reads it.
fn last_changes(database: &Database, count: usize) -> Result<Vec<FeederWindow>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let catalog = database.catalog();
    let (table, transaction) = (catalog.table("feeder_balance")?, database.begin()?);
    let mut windows = Vec::new();
    let from = table.changes_begin(&transaction)?;
    table.logged_changes(&transaction, from, catalog.context().visible_up_to(), |change, _| {
        if let Some(row) = &change.new
            && let Value::Timestamp(start_us) = row.value(1)
        {
            windows.push((row.varchar(0).to_string(), start_us));
        }
        true
    })?;
    Ok(windows.split_off(windows.len().saturating_sub(count)))
}

/// Notes the first difference between a table and its expected rows.
fn compare(
    database: &Database,
    name: &str,
    expected: &ExpectedRows,
    differences: &mut Vec<String>,
) -> Result<()> {
    // A topology creates its tables one by one: a kill in between leaves some, and no rows.
    let Ok(table) = database.catalog().table(name) else {
        if !expected.is_empty() {
            differences.push(format!("{name} does not exist, expected {} rows", expected.len()));
        }
        return Ok(());
    };
    let key_columns = table.schema().key().to_vec();
    let found = rows(database, &table)?;
    if found.len() != expected.len() {
        differences.push(format!("{name} has {} rows, expected {}", found.len(), expected.len()));
    }
    for row in found {
        let key: Vec<Value> = key_columns.iter().map(|&column| row[column].clone()).collect();
        let others: Vec<Value> =
            (0..row.len()).filter(|column| !key_columns.contains(column)).map(|at| row[at].clone()).collect();
        if expected.get(&key) != Some(&others) {
            let wanted = expected.get(&key);
            differences.push(format!("{name} has {key:?} {others:?}, expected {wanted:?}"));
            return Ok(());
        }
    }
    Ok(())
}
