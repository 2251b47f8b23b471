//! SQLite: two tables with the key as row number, prepared statements, a connection for each thread.
//! Settings:
//!
//! - write-ahead log, a page cache of 512 MB, the file mapped, temporary things in memory, exclusive to none;
//! - `none`: `synchronous = OFF`; `group(10)`: `NORMAL`, which syncs around checkpoints only, and the log is
//!   synced every 10 ms from outside; `sync`: `FULL`, a sync of the log for each commit.

use super::{Session, States, round_of, value};
use crate::Error;
use crate::peers::{Class, peer_error};
use rusqlite::{Connection, OptionalExtension, params};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

struct Sqlite {
    path: PathBuf,
    class: Class,
    /// Never used, but with the last connection the log would go.
    _keeps_the_log: Mutex<Connection>,
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("SQLite")(error)
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn States>, Error> {
    let path = dir.join("states.sqlite");
    let connection = connect(&path, class)?;
    let tables = "CREATE TABLE first (k INTEGER PRIMARY KEY, v BLOB NOT NULL);
                  CREATE TABLE second (k INTEGER PRIMARY KEY, v BLOB NOT NULL);";
    connection.execute_batch(tables).map_err(failed)?;
    Ok(Box::new(Sqlite { path, class, _keeps_the_log: Mutex::new(connection) }))
}

fn connect(path: &Path, class: Class) -> Result<Connection, Error> {
    let connection = Connection::open(path).map_err(failed)?;
    let synchronous = match class {
        Class::None => "OFF",
        Class::Group => "NORMAL",
        Class::Sync => "FULL",
    };
    let settings = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -524288;
         PRAGMA mmap_size = 8589934592; PRAGMA temp_store = MEMORY;"
    );
    connection.execute_batch(&settings).map_err(failed)?;
    connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed)?;
    Ok(connection)
}

impl States for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(SqliteSession { connection: connect(&self.path, self.class)? }))
    }

    fn sync(&self) -> Result<(), Error> {
        let log = self.path.with_extension("sqlite-wal");
        File::open(&log).and_then(|file| file.sync_data()).map_err(failed)
    }
}

struct SqliteSession {
    connection: Connection,
}

impl SqliteSession {
    fn write_all(&self, keys: &[u32], round: u64) -> rusqlite::Result<()> {
        // The fastest way to change one row or add it: one statement, no search before it.
        let mut states = [
            self.connection.prepare_cached("INSERT OR REPLACE INTO first (k, v) VALUES (?1, ?2)")?,
            self.connection.prepare_cached("INSERT OR REPLACE INTO second (k, v) VALUES (?1, ?2)")?,
        ];
        for &number in keys {
            for state in &mut states {
                state.execute(params![number, value(round)])?;
            }
        }
        Ok(())
    }

    fn read_all(&self, keys: &[u32]) -> rusqlite::Result<bool> {
        let mut states = [
            self.connection.prepare_cached("SELECT v FROM first WHERE k = ?1")?,
            self.connection.prepare_cached("SELECT v FROM second WHERE k = ?1")?,
        ];
        let mut one_snapshot = true;
        for &number in keys {
            let mut rounds = [None; 2];
            for (round, state) in rounds.iter_mut().zip(&mut states) {
                let found =
                    state.query_row([number], |row| Ok(row.get_ref(0)?.as_blob().ok().and_then(round_of)));
                *round = found.optional()?.flatten();
            }
            one_snapshot &= rounds[0].is_some() && rounds[0] == rounds[1];
        }
        Ok(one_snapshot)
    }

    fn run(&self, statement: &str) -> Result<(), Error> {
        self.connection.prepare_cached(statement).and_then(|mut s| s.execute([])).map(|_| ()).map_err(failed)
    }
}

impl Session for SqliteSession {
    fn write(&mut self, keys: &[u32], round: u64) -> Result<(), Error> {
        self.run("BEGIN IMMEDIATE")?;
        self.write_all(keys, round).map_err(failed)?;
        self.run("COMMIT")
    }

    fn read(&mut self, keys: &[u32]) -> Result<bool, Error> {
        self.run("BEGIN")?;
        let one_snapshot = self.read_all(keys).map_err(failed)?;
        self.run("COMMIT")?;
        Ok(one_snapshot)
    }
}
