//! Setup: feeds from arguments, and a demo that may go on from a directory.

use super::feed::files::Files;
use super::feed::rejects::Rejects;
use super::feed::{Feeds, Limited, Shares, simulator};
use super::live::LiveCounters;
use super::snapshots;
use super::topology::{HOUSEHOLD_TOPOLOGY, INFRASTRUCTURE_TOPOLOGY};
use crate::SmartMeteringArguments;
use crate::error::{Error, Result};
use entresol::streams::POSITIONS_TABLE;
use entresol::tables::Value;
use entresol::{Database, Options, Session};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Default number of readings of the simulator.
const READINGS_DEFAULT: u64 = 1_000_000;

/// The feeds, and their ends.
pub struct Input {
    /// The feeds.
    pub feeds: Feeds,
    /// Number of readings of each stream; `u64::MAX` without an end.
    pub shares: Shares,
}

impl Input {
    /// Readings in all.
    pub fn total(&self) -> u64 {
        self.shares.household.saturating_add(self.shares.infrastructure)
    }
}

/// Opens the feeds. With `unlimited`, a simulation without a number of readings has no end.
pub fn input(arguments: &SmartMeteringArguments, unlimited: bool) -> Result<Input> {
    match &arguments.data {
        Some(dir) => from_files(dir, arguments),
        None if unlimited && arguments.readings.is_none() => Ok(simulated(arguments, None)),
        None => Ok(simulated(arguments, Some(arguments.readings.unwrap_or(READINGS_DEFAULT)))),
    }
}

fn simulated(arguments: &SmartMeteringArguments, readings: Option<u64>) -> Input {
    let (seed, meters) = (arguments.seed, arguments.meters);
    let endless = Shares { household: u64::MAX, infrastructure: u64::MAX };
    let shares = readings.map_or(endless, |readings| simulator::shares(readings, meters));
    let end_us = match shares.infrastructure.checked_sub(1) {
        _ if readings.is_none() => None,
        Some(last) => Some(simulator::infrastructure_time_us(last)),
        None => Some(simulator::ORIGIN_US),
    };
    let revisions = end_us.map_or(u64::MAX, simulator::Specification::count_until);
    Input {
        feeds: Feeds {
            household: Box::new(Limited::new(simulator::Households::new(seed, meters), shares.household)),
            infrastructure: Box::new(Limited::new(
                simulator::Infrastructure::new(seed, meters),
                shares.infrastructure,
            )),
            specification: Box::new(Limited::new(simulator::Specification::new(seed, meters), revisions)),
            failures: end_us.map_or_else(Vec::new, |end_us| simulator::failures(seed, end_us)),
            judged: simulator::channels(),
            rejected_rows: 0,
        },
        shares,
    }
}

fn from_files(dir: &Path, arguments: &SmartMeteringArguments) -> Result<Input> {
    let mut rejects = Rejects::new(rejects_path(arguments));
    let mut files = Files::read(dir, &mut rejects)?;
    rejects.finish()?;
    if rejects.count() > 0 {
        tracing::warn!("{} bad rows were skipped: see {}", rejects.count(), rejects.path().display());
    }
    let readings = arguments.readings.unwrap_or_else(|| files.readings(arguments.meters));
    let shares = files.shares(readings);
    let failures = std::mem::take(&mut files.failures);
    let mut judged: Vec<_> = failures.iter().map(|failure| failure.channel.clone()).collect();
    judged.dedup();
    let (household, infrastructure, specification) = files.into_feeds(arguments.meters);
    Ok(Input {
        feeds: Feeds {
            household: Box::new(Limited::new(household, shares.household)),
            infrastructure: Box::new(Limited::new(infrastructure, shares.infrastructure)),
            specification,
            failures,
            judged,
            rejected_rows: rejects.count(),
        },
        shares,
    })
}

fn rejects_path(arguments: &SmartMeteringArguments) -> PathBuf {
    match (&arguments.rejects, &arguments.dir) {
        (Some(path), _) => path.clone(),
        (None, Some(dir)) => dir.join("rejected.csv"),
        (None, None) => PathBuf::from("entresol-rejected.csv"),
    }
}

/// A working directory of the demo: the user's, which is kept, or a temporary one.
pub struct Directory {
    path: PathBuf,
    temporary: bool,
}

impl Directory {
    /// Creates it if it does not exist.
    pub fn prepare(arguments: &SmartMeteringArguments) -> Result<Directory> {
        let (path, temporary) = match &arguments.dir {
            Some(dir) => (dir.clone(), false),
            None => (std::env::temp_dir().join(format!("entresol-demo-{}", std::process::id())), true),
        };
        fs::create_dir_all(&path).map_err(|error| Error::file("make", &path, error))?;
        Ok(Directory { path, temporary })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!("{} is left over: {error}", self.path.display());
        }
    }
}

/// Opens the database of a demo.
pub fn open(dir: &Path, arguments: &SmartMeteringArguments) -> Result<Database> {
    let options =
        Options { durability: arguments.durability, memory_max: arguments.memory_max, ..Options::default() };
    Ok(Database::open(dir, options)?)
}

/// Settings that must stay the same if a demo goes on in a directory.
fn settings(arguments: &SmartMeteringArguments, unlimited: bool) -> Result<Vec<(&'static str, String)>> {
    let data = match &arguments.data {
        Some(dir) => {
            let full = fs::canonicalize(dir).map_err(|error| Error::file("read", dir, error))?;
            full.display().to_string()
        }
        None => "simulated".to_string(),
    };
    let readings = match arguments.readings {
        Some(readings) => readings.to_string(),
        None if unlimited => "endless".to_string(),
        None => "default".to_string(),
    };
    Ok(vec![
        ("batch", arguments.batch.to_string()),
        ("data", data),
        ("meters", arguments.meters.to_string()),
        ("readings", readings),
        ("seed", arguments.seed.to_string()),
    ])
}

/// Checks that a directory's demo is this one, or makes it so if there is none.
pub fn check_settings(
    session: &mut Session,
    arguments: &SmartMeteringArguments,
    unlimited: bool,
) -> Result<()> {
    session
        .execute("CREATE TABLE IF NOT EXISTS demo_settings (name VARCHAR PRIMARY KEY, setting VARCHAR)")?;
    let expected = settings(arguments, unlimited)?;
    let stored = snapshots::texts(&session.query("SELECT name, setting FROM demo_settings ORDER BY name")?)?;
    if stored.is_empty() {
        let values: Vec<String> = expected
            .iter()
            .map(|(name, setting)| format!("('{name}', '{}')", setting.replace('\'', "''")))
            .collect();
        session.execute(&format!("INSERT INTO demo_settings VALUES {}", values.join(", ")))?;
        return Ok(());
    }
    for ((name, setting), row) in expected.iter().zip(&stored) {
        if row[0] != *name || row[1] != *setting {
            return Err(Error::Invalid(format!(
                "the directory holds a demo with {} {}, not {name} {setting}: use the same arguments to go on, or \
                 another --dir",
                row[0], row[1]
            )));
        }
    }
    Ok(())
}

/// Positions of the streams of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Positions {
    /// Stream 1.
    pub household: u64,
    /// Stream 2.
    pub infrastructure: u64,
    /// Stream 3.
    pub specification: u64,
}

/// Reads the stored positions; all are 0 if nothing has been committed.
pub fn positions(database: &Database) -> Result<Positions> {
    let Ok(table) = database.catalog().table(POSITIONS_TABLE) else { return Ok(Positions::default()) };
    let transaction = database.catalog().begin().map_err(entresol::streams::Error::from)?;
    let read = |topology: &str, source: &str| -> Result<u64> {
        let row = table.get(&transaction, &[Value::from(topology), Value::from(source)])?;
        Ok(match row.as_deref() {
            Some([_, _, Value::BigInt(position), ..]) => *position as u64,
            _ => 0,
        })
    };
    Ok(Positions {
        household: read(HOUSEHOLD_TOPOLOGY, "household")?,
        infrastructure: read(INFRASTRUCTURE_TOPOLOGY, "infrastructure")?,
        specification: read(INFRASTRUCTURE_TOPOLOGY, "specification")?,
    })
}

/// The counters of a demo that begins at the given positions.
pub fn live_at(positions: Positions, feeds: &mut Feeds) -> LiveCounters {
    let live = LiveCounters::default();
    live.household.store(positions.household, Ordering::Relaxed);
    live.infrastructure.store(positions.infrastructure, Ordering::Relaxed);
    live.specification.store(positions.specification, Ordering::Relaxed);
    if let Some(last) = positions.household.checked_sub(1)
        && let Some(reading) = feeds.household.at(last)
    {
        // The last committed reading has closed the windows before its own.
        let start_us = reading.time_us.div_euclid(super::feed::WINDOW_US) * super::feed::WINDOW_US;
        live.household_closed_us.store(start_us, Ordering::Relaxed);
    }
    live
}
