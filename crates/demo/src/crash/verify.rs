//! Verification that a reopened database is the result of a prefix of the streams.
//!
//! The stored positions say which prefix; the oracle says what all states must hold after it. A transaction
//! of which anything is missing, or anything is there too early, makes some table differ.

use super::oracle::{Expected, HouseholdOracle, InfrastructureOracle};
use crate::error::Result;
use crate::feed::Feeds;
use crate::setup::Positions;
use entresol::Database;
use entresol::tables::{ScanRange, Table, Value};
use std::sync::Arc;

/// The oracles of the two topologies.
#[derive(Default)]
pub struct Oracles {
    household: HouseholdOracle,
    infrastructure: InfrastructureOracle,
}

/// Differences found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// States of stream 1 that differ.
    pub household: Vec<String>,
    /// States of streams 2 and 3 that differ.
    pub infrastructure: Vec<String>,
}

impl Oracles {
    /// Goes forward to the positions and compares all states.
    pub fn verify(
        &mut self,
        database: &Database,
        feeds: &mut Feeds,
        positions: Positions,
    ) -> Result<Verdict> {
        let catalog = database.catalog();
        let Ok(meter_open) = catalog.table("meter_open") else {
            return Ok(self.verify_empty(positions));
        };
        let Ok(infrastructure_open) = catalog.table("infrastructure_open") else {
            return Ok(self.verify_empty(positions));
        };
        let households_open = open_readings(database, &meter_open)?;
        let channels_open = open_readings(database, &infrastructure_open)?;
        self.household.advance(feeds, positions.household, households_open == 0);
        let both = (positions.infrastructure, positions.specification);
        self.infrastructure.advance(feeds, both, channels_open == 0, &self.household);

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
            ("alarms", &self.infrastructure.alarms),
        ] {
            compare(database, name, expected, &mut verdict.infrastructure)?;
        }
        Ok(verdict)
    }

    /// The tables do not even exist: nothing may have been committed.
    fn verify_empty(&self, positions: Positions) -> Verdict {
        let mut verdict = Verdict::default();
        if positions != Positions::default() {
            verdict.household.push(format!("positions {positions:?} are stored, but the states are gone"));
        }
        verdict
    }

    /// Expected number of alarms.
    pub fn alarms(&self) -> u64 {
        self.infrastructure.alarms.len() as u64
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

/// The sum of the column `readings` of a table of open windows.
fn open_readings(database: &Database, table: &Arc<Table>) -> Result<i64> {
    let column = table.schema().column_index("readings").unwrap_or_default();
    let count = |row: Vec<Value>| match row[column] {
        Value::BigInt(count) => count,
        _ => 0,
    };
    Ok(rows(database, table)?.into_iter().map(count).sum())
}

/// Notes the first difference between a table and its expected rows.
fn compare(
    database: &Database,
    name: &str,
    expected: &Expected,
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
