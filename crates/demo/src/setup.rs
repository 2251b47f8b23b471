//! Setup: feeds from arguments, and a demo that may go on from a directory.

use super::feed::files::Files;
use super::feed::rejects::Rejects;
use super::feed::{Feeds, LimitedFeed, Shares, simulator};
use crate::SmartMeteringArguments;
use crate::error::{Error, Result};
use crate::sql::rows;
use entresol::{Database, Options, Session};
use std::fs;
use std::path::{Path, PathBuf};

/// Default number of readings of the simulator.
const READINGS_DEFAULT: u64 = 1_000_000;

/// Version of the tables of the script.
const VERSION: u32 = 2;

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
        None if is_endless(arguments, unlimited) => Ok(simulated(arguments, None)),
        None => Ok(simulated(arguments, Some(arguments.readings.unwrap_or(READINGS_DEFAULT)))),
    }
}

/// Tells whether the streams have no end.
pub fn is_endless(arguments: &SmartMeteringArguments, unlimited: bool) -> bool {
    unlimited && arguments.data.is_none() && arguments.readings.is_none()
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
            household: Box::new(LimitedFeed::new(simulator::Households::new(seed, meters), shares.household)),
            infrastructure: Box::new(LimitedFeed::new(
                simulator::Infrastructure::new(seed, meters),
                shares.infrastructure,
            )),
            specification: Box::new(LimitedFeed::new(simulator::Specification::new(seed, meters), revisions)),
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
            household: Box::new(LimitedFeed::new(household, shares.household)),
            infrastructure: Box::new(LimitedFeed::new(infrastructure, shares.infrastructure)),
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

    /// Folder of the script's input.
    pub fn input(&self) -> PathBuf {
        input_folder(&self.path)
    }
}

/// Folder of the script's input in a directory: its full path, for the sources are stored with it.
pub fn input_folder(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()).join("input")
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

/// Opens the database of a demo; its topologies go on if they are to be started.
pub fn open(dir: &Path, arguments: &SmartMeteringArguments, starts_topologies: bool) -> Result<Database> {
    let options = Options {
        durability: arguments.durability,
        memory_max: arguments.memory_max,
        starts_topologies,
        ..Options::default()
    };
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
        ("version", VERSION.to_string()),
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
    let stored = rows(session, "SELECT name, setting FROM demo_settings ORDER BY name")?;
    if stored.is_empty() {
        let values: Vec<String> = expected
            .iter()
            .map(|(name, setting)| format!("('{name}', '{}')", setting.replace('\'', "''")))
            .collect();
        session.execute(&format!("INSERT INTO demo_settings VALUES {}", values.join(", ")))?;
        return Ok(());
    }
    if stored.len() != expected.len() {
        return Err(Error::Invalid(
            "the directory holds a demo of an earlier version: use another --dir".to_string(),
        ));
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
