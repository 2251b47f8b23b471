//! LMDB, a copy-on-write B+-tree in a mapped file. Settings:
//!
//! - integer keys, compared as numbers; a map that is larger than the data ever get;
//! - `none` and `group(10)`: `NO_SYNC`, `NO_META_SYNC`, `WRITE_MAP` and `MAP_ASYNC`, its fastest; a
//!   transaction for a slice of up to a thousand operations, which spares it a commit for each; synced every
//!   10 ms by `mdb_env_sync`;
//! - `sync`: its defaults, a transaction for each write.
//!
//! Reads of a slice share a read transaction.

use super::{Class, Session, Store, peer_error};
use crate::Error;
use crate::workload::{Op, OperationKind, Tally};
use heed::byteorder::NativeEndian;
use heed::types::U64;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, IntegerComparator, RoTxn, RwTxn};
use std::path::Path;

const MAP_BYTES: usize = 16 << 30;

type Number = U64<NativeEndian>;
type Database = heed::Database<'static, Number, Number, IntegerComparator>;

struct Lmdb {
    env: Env,
    database: Database,
    class: Class,
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("LMDB")(error)
}

/// An environment with the settings above and room for named databases.
pub(crate) fn environment(dir: &Path, class: Class, databases: u32) -> Result<Env, Error> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(16).max_dbs(databases);
    if class != Class::Sync {
        let flags = EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC | EnvFlags::WRITE_MAP | EnvFlags::MAP_ASYNC;
        // SAFETY: these flags risk the file in a power failure, not memory: nothing else writes to the map,
        // since the directory is a temporary one of this process, and the environment is opened once at a
        // time.
        unsafe { options.flags(flags) };
    }
    // SAFETY: the file is in a temporary directory of this process: no other process changes it while it is
    // mapped.
    unsafe { options.open(dir) }.map_err(failed)
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    let env = environment(dir, class, 0)?;
    let transaction = env.write_txn().map_err(failed)?;
    let database = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            let options = opener.database_options().types::<Number, Number>();
            let database = options.key_comparator::<IntegerComparator>().create(transaction);
            database.map(CommitOrAbort::<_, ()>::Commit)
        })
        .map_err(|error: heed::Error| failed(error))?
        .commit()
        .ok_or_else(|| failed("the transaction that makes the database was aborted"))?;
    Ok(Box::new(Lmdb { env, database, class }))
}

impl Store for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn sync(&self) -> Result<(), Error> {
        self.env.force_sync().map_err(failed)
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl Lmdb {
    fn read(&self, op: &Op, transaction: &RoTxn<'_>, tally: &mut Tally) -> Result<(), Error> {
        if op.kind() != OperationKind::Scan {
            tally.got(op, self.database.get(transaction, &op.key).map_err(failed)?);
            return Ok(());
        }
        let range = self.database.range(transaction, &(op.key..)).map_err(failed)?;
        let mut error = None;
        let values = range.map_while(|entry| entry.map(|(_, value)| value).map_err(|e| error = Some(e)).ok());
        tally.scanned(op, values);
        error.map_or(Ok(()), |error| Err(failed(error)))
    }

    fn write(&self, op: &Op, transaction: &mut RwTxn<'_>, tally: &mut Tally) -> Result<(), Error> {
        match op.kind() {
            OperationKind::Get | OperationKind::Scan => self.read(op, transaction, tally)?,
            OperationKind::Delete => tally.wrote(self.database.delete(transaction, &op.key).map_err(failed)?),
            kind => {
                if kind == OperationKind::ReadModifyWrite {
                    self.read(op, transaction, tally)?;
                } else {
                    tally.wrote(true);
                }
                self.database.put(transaction, &op.key, &op.value()).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl Session for &Lmdb {
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        if !ops.iter().any(Op::writes) {
            let transaction = self.env.read_txn().map_err(failed)?;
            return ops.iter().try_for_each(|op| self.read(op, &transaction, tally));
        }
        let operations = if self.class == Class::Sync { 1 } else { ops.len() };
        for ops in ops.chunks(operations) {
            let mut transaction = self.env.write_txn().map_err(failed)?;
            ops.iter().try_for_each(|op| self.write(op, &mut transaction, tally))?;
            transaction.commit().map_err(failed)?;
        }
        Ok(())
    }
}
