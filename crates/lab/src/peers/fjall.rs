//! fjall, an LSM-tree in Rust. Settings:
//!
//! - a cache of 2 GB and memtables of 128 MB, so that reads come from memory; point reads are expected to
//!   hit;
//! - no compression (the feature is off), as for all;
//! - `none` and `group(10)`: the journal is written when its buffer is full (`manual_journal_persist`), and
//!   synced every 10 ms by `PersistMode::SyncData`;
//! - `sync`: `PersistMode::SyncData` after each write.
//!
//! Writes do not look whether the key is there. It has no call for many gets.

use super::{Class, Session, Store, peer_error};
use crate::Error;
use crate::workload::{Op, OperationKind, Tally};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

const CACHE_BYTES: u64 = 2 << 30;
const MEMTABLE_BYTES: u64 = 128 << 20;
const JOURNALS_BYTES: u64 = 1 << 30;

struct Fjall {
    database: Database,
    tuples: Keyspace,
    class: Class,
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("fjall")(error)
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    let database = Database::builder(dir)
        .cache_size(CACHE_BYTES)
        .max_journaling_size(JOURNALS_BYTES)
        .manual_journal_persist(true)
        .open()
        .map_err(failed)?;
    let keyspace = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES)
            .expect_point_read_hits(true)
            .manual_journal_persist(true)
    };
    let tuples = database.keyspace("tuples", keyspace).map_err(failed)?;
    Ok(Box::new(Fjall { database, tuples, class }))
}

impl Store for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn sync(&self) -> Result<(), Error> {
        self.database.persist(PersistMode::SyncData).map_err(failed)
    }

    fn settle(&self) -> Result<(), Error> {
        self.tuples.rotate_memtable_and_wait().map_err(failed)?;
        while self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.database.persist(PersistMode::SyncAll).map_err(failed)
    }
}

fn number(bytes: impl AsRef<[u8]>) -> Option<u64> {
    bytes.as_ref().try_into().ok().map(u64::from_le_bytes)
}

impl Fjall {
    fn get(&self, op: &Op) -> Result<Option<u64>, Error> {
        Ok(self.tuples.get(op.key.to_be_bytes()).map_err(failed)?.and_then(number))
    }

    fn put(&self, op: &Op) -> Result<(), Error> {
        self.tuples.insert(op.key.to_be_bytes(), op.value().to_le_bytes()).map_err(failed)
    }
}

impl Session for &Fjall {
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        for op in ops {
            match op.kind() {
                OperationKind::Get => tally.got(op, self.get(op)?),
                OperationKind::Insert | OperationKind::Update => {
                    self.put(op)?;
                    tally.wrote(true);
                }
                OperationKind::Delete => {
                    self.tuples.remove(op.key.to_be_bytes()).map_err(failed)?;
                    tally.wrote(true);
                }
                OperationKind::Scan => {
                    let mut error = None;
                    let values = self.tuples.range(op.key.to_be_bytes()..).map_while(|guard| {
                        guard.value().map(number).map_err(|e| error = Some(e)).ok().flatten()
                    });
                    tally.scanned(op, values);
                    error.map_or(Ok(()), |error| Err(failed(error)))?;
                }
                OperationKind::ReadModifyWrite => {
                    tally.got(op, self.get(op)?);
                    self.put(op)?;
                }
            }
            if self.class == Class::Sync && op.writes() {
                self.sync()?;
            }
        }
        Ok(())
    }

    fn write_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        let mut batch = self.database.batch();
        for op in ops {
            match op.kind() {
                OperationKind::Delete => batch.remove(&self.tuples, op.key.to_be_bytes()),
                _ => batch.insert(&self.tuples, op.key.to_be_bytes(), op.value().to_le_bytes()),
            }
            tally.wrote(true);
        }
        batch.commit().map_err(failed)?;
        if self.class == Class::Sync { self.sync() } else { Ok(()) }
    }
}
