//! The same churn in SQLite and RocksDB, with the moving rows alone: one thread does the rounds of all
//! sessions in turn, since both let one writer in at a time, and takes the samples between them. Durability
//! `none` for both.

use super::samples::{Sample, Samples, allocated_bytes, resident_bytes};
use super::{BATCH_ROWS, SESSION_KEYS, SESSIONS, Sizes};
use crate::peers::peer_error;
use crate::report::Report;
use crate::{Error, RunOptions};
use rocksdb::{DB, IteratorMode, Options as RocksOptions, WriteBatch, WriteOptions};
use rusqlite::{Connection, params};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// A store with one table of the moving rows.
trait Peer {
    fn insert(&mut self, first: u64, round: u64) -> Result<(), Error>;
    fn delete(&mut self, first: u64) -> Result<(), Error>;
    fn count(&self) -> Result<u64, Error>;
    /// Returns true if a file holds the log rather than the rows.
    fn is_log(&self, file: &str) -> bool;
}

pub(super) fn run(options: &RunOptions, sizes: &Sizes, report: &mut Report) -> Result<(), Error> {
    let dir = options.database_dir()?;
    measure("SQLite", &mut Sqlite::open(dir.path())?, dir.path(), sizes, report)?;
    let dir = options.database_dir()?;
    measure("RocksDB", &mut Rocks::open(dir.path())?, dir.path(), sizes, report)
}

fn measure(
    name: &str,
    peer: &mut dyn Peer,
    dir: &Path,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<(), Error> {
    let (begin, mut samples, mut round) = (Instant::now(), Samples::default(), 0);
    let mut next_sample = sizes.sample_every;
    while begin.elapsed() < sizes.total {
        for base in (0..SESSIONS).map(|number| number * SESSION_KEYS) {
            if round >= sizes.batches {
                peer.delete(base + (round - sizes.batches) * BATCH_ROWS)?;
            }
            peer.insert(base + round * BATCH_ROWS, round)?;
        }
        round += 1;
        if begin.elapsed() >= next_sample {
            samples.push(sample(peer, dir, begin.elapsed())?);
            next_sample = begin.elapsed() + sizes.sample_every;
        }
    }
    let rate = (round * SESSIONS * BATCH_ROWS * 2) as f64 / sizes.total.as_secs_f64();
    report.row(json!({ "store": name, "batches": round * SESSIONS, "rows_changed_per_s": rate }));
    samples.report(name, sizes, None, report);
    let rows = peer.count()?;
    report.check(
        &format!("{name} has the rows of its sessions at the end"),
        rows == SESSIONS * sizes.batches.min(round) * BATCH_ROWS,
    );
    Ok(())
}

fn sample(peer: &dyn Peer, dir: &Path, at: Duration) -> Result<Sample, Error> {
    let started = Instant::now();
    peer.count()?;
    Ok(Sample {
        at,
        count_ms: started.elapsed().as_secs_f64() * 1e3,
        resident_bytes: resident_bytes()?,
        pool_bytes: allocated_bytes(dir, |file| !peer.is_log(file))?,
        journal_bytes: allocated_bytes(dir, |file| peer.is_log(file))?,
    })
}

fn note(round: u64) -> String {
    format!("a note of round {round}")
}

struct Sqlite(Connection);

impl Sqlite {
    fn open(dir: &Path) -> Result<Sqlite, Error> {
        let connection = Connection::open(dir.join("churn.sqlite")).map_err(peer_error("SQLite"))?;
        let set_up = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
                      CREATE TABLE moving (id INTEGER PRIMARY KEY, v INTEGER, note TEXT);";
        connection.execute_batch(set_up).map_err(peer_error("SQLite"))?;
        Ok(Sqlite(connection))
    }
}

impl Peer for Sqlite {
    fn insert(&mut self, first: u64, round: u64) -> Result<(), Error> {
        let failed = peer_error("SQLite");
        let tx = self.0.transaction().map_err(&failed)?;
        {
            let sql = "INSERT INTO moving VALUES (?1, ?2, ?3)";
            let mut statement = tx.prepare_cached(sql).map_err(&failed)?;
            for id in first..first + BATCH_ROWS {
                statement.execute(params![id as i64, id as i64 * 3, note(round)]).map_err(&failed)?;
            }
        }
        tx.commit().map_err(failed)
    }

    fn delete(&mut self, first: u64) -> Result<(), Error> {
        let sql = "DELETE FROM moving WHERE id >= ?1 AND id < ?2";
        let mut statement = self.0.prepare_cached(sql).map_err(peer_error("SQLite"))?;
        let deleted = statement.execute(params![first as i64, (first + BATCH_ROWS) as i64]);
        deleted.map(drop).map_err(peer_error("SQLite"))
    }

    fn count(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) FROM moving";
        let rows: i64 = self.0.query_row(sql, [], |row| row.get(0)).map_err(peer_error("SQLite"))?;
        Ok(rows as u64)
    }

    fn is_log(&self, file: &str) -> bool {
        file.ends_with("-wal") || file.ends_with("-shm")
    }
}

struct Rocks(DB);

impl Rocks {
    fn open(dir: &Path) -> Result<Rocks, Error> {
        let mut options = RocksOptions::default();
        options.create_if_missing(true);
        Ok(Rocks(DB::open(&options, dir).map_err(peer_error("RocksDB"))?))
    }

    fn write(&self, batch: WriteBatch) -> Result<(), Error> {
        self.0.write_opt(batch, &WriteOptions::default()).map_err(peer_error("RocksDB"))
    }
}

impl Peer for Rocks {
    fn insert(&mut self, first: u64, round: u64) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        for id in first..first + BATCH_ROWS {
            let mut value = (id * 3).to_le_bytes().to_vec();
            value.extend_from_slice(note(round).as_bytes());
            batch.put(id.to_be_bytes(), value);
        }
        self.write(batch)
    }

    fn delete(&mut self, first: u64) -> Result<(), Error> {
        let mut batch = WriteBatch::default();
        (first..first + BATCH_ROWS).for_each(|id| batch.delete(id.to_be_bytes()));
        self.write(batch)
    }

    fn count(&self) -> Result<u64, Error> {
        let mut rows = 0;
        for row in self.0.iterator(IteratorMode::Start) {
            row.map_err(peer_error("RocksDB"))?;
            rows += 1;
        }
        Ok(rows)
    }

    fn is_log(&self, file: &str) -> bool {
        file.ends_with(".log")
    }
}
