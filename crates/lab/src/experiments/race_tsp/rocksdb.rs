//! RocksDB: two column families, an optimistic transaction for each of ours (the faster of its two kinds for
//! one writer, which takes no locks), a snapshot for each reader's. Its settings are those of `race-kv`.

use super::{Session, States, key, round_of, value};
use crate::Error;
use crate::peers::rocksdb::options;
use crate::peers::{Class, peer_error};
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, OptimisticTransactionDB, OptimisticTransactionOptions, ReadOptions,
    WaitForCompactOptions, WriteOptions,
};
use std::path::Path;

const STATES: [&str; 2] = ["first", "second"];

struct Rocks {
    db: OptimisticTransactionDB,
    class: Class,
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("RocksDB")(error)
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn States>, Error> {
    let families = STATES.map(|name| ColumnFamilyDescriptor::new(name, options(class)));
    let db = OptimisticTransactionDB::open_cf_descriptors(&options(class), dir, families).map_err(failed)?;
    Ok(Box::new(Rocks { db, class }))
}

impl Rocks {
    fn states(&self) -> Result<[&ColumnFamily; 2], Error> {
        let state = |name| self.db.cf_handle(name).ok_or_else(|| failed(format!("no column family {name}")));
        Ok([state(STATES[0])?, state(STATES[1])?])
    }
}

impl States for Rocks {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        let mut write = WriteOptions::default();
        write.set_sync(self.class == Class::Sync);
        Ok(Box::new(RocksSession { rocks: self, states: self.states()?, write }))
    }

    fn sync(&self) -> Result<(), Error> {
        self.db.flush_wal(true).map_err(failed)
    }

    fn settle(&self) -> Result<(), Error> {
        for state in self.states()? {
            self.db.flush_cf(state).map_err(failed)?;
        }
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed)
    }
}

struct RocksSession<'s> {
    rocks: &'s Rocks,
    states: [&'s ColumnFamily; 2],
    write: WriteOptions,
}

impl Session for RocksSession<'_> {
    fn write(&mut self, keys: &[u32], round: u64) -> Result<(), Error> {
        let transaction =
            self.rocks.db.transaction_opt(&self.write, &OptimisticTransactionOptions::default());
        for &number in keys {
            for state in self.states {
                transaction.put_cf(state, key(number), value(round)).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }

    fn read(&mut self, keys: &[u32]) -> Result<bool, Error> {
        let snapshot = self.rocks.db.snapshot();
        let mut options = ReadOptions::default();
        options.set_snapshot(&snapshot);
        let mut one_snapshot = true;
        for &number in keys {
            let mut rounds = [None; 2];
            for (round, state) in rounds.iter_mut().zip(self.states) {
                let found = self.rocks.db.get_pinned_cf_opt(state, key(number), &options).map_err(failed)?;
                *round = found.and_then(|found| round_of(&found));
            }
            one_snapshot &= rounds[0].is_some() && rounds[0] == rounds[1];
        }
        Ok(one_snapshot)
    }
}
