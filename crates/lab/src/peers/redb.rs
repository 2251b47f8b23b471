//! redb, a copy-on-write B-tree in Rust. Settings:
//!
//! - numbers as keys and values, which it stores without a length; a cache of 4 GB, so that nothing is read
//!   twice;
//! - `none` and `group(10)`: `Durability::None`, a transaction for a slice of up to a thousand operations;
//!   synced every 10 ms by an empty transaction with `Durability::Immediate`;
//! - `sync`: `Durability::Immediate`, its default, a transaction for each write.
//!
//! Reads of a slice share a read transaction.

use super::{Class, Session, Store, peer_error};
use crate::Error;
use crate::workload::{Op, OperationKind, Tally};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};
use std::path::Path;

const CACHE_BYTES: usize = 4 << 30;
const TABLE: TableDefinition<'static, u64, u64> = TableDefinition::new("tuples");
const FILE: &str = "tuples.redb";

struct Redb {
    database: Database,
    class: Class,
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("redb")(error)
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    let mut builder = Database::builder();
    let database = builder.set_cache_size(CACHE_BYTES).create(dir.join(FILE)).map_err(failed)?;
    let store = Redb { database, class };
    store.transaction(Durability::Immediate, |_| Ok(()))?;
    Ok(Box::new(store))
}

impl Redb {
    fn transaction(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Table<'_, u64, u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(durability).map_err(failed)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(failed)?;
            work(&mut table)?;
        }
        transaction.commit().map_err(failed)
    }
}

impl Store for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn sync(&self) -> Result<(), Error> {
        self.transaction(Durability::Immediate, |_| Ok(()))
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        self.database.close().map_err(failed)
    }
}

fn read(op: &Op, table: &impl ReadableTable<u64, u64>, tally: &mut Tally) -> Result<(), Error> {
    if op.kind() != OperationKind::Scan {
        let value = table.get(op.key).map_err(failed)?.map(|guard| guard.value());
        tally.got(op, value);
        return Ok(());
    }
    let mut error = None;
    let values = table
        .range(op.key..)
        .map_err(failed)?
        .map_while(|entry| entry.map(|(_, guard)| guard.value()).map_err(|e| error = Some(e)).ok());
    tally.scanned(op, values);
    error.map_or(Ok(()), |error| Err(failed(error)))
}

fn write(op: &Op, table: &mut Table<'_, u64, u64>, tally: &mut Tally) -> Result<(), Error> {
    match op.kind() {
        OperationKind::Get | OperationKind::Scan => return read(op, table, tally),
        OperationKind::Delete => tally.wrote(table.remove(op.key).map_err(failed)?.is_some()),
        OperationKind::Insert => tally.wrote(table.insert(op.key, op.value()).map_err(failed)?.is_none()),
        OperationKind::Update => tally.wrote(table.insert(op.key, op.value()).map_err(failed)?.is_some()),
        OperationKind::ReadModifyWrite => {
            read(op, table, tally)?;
            table.insert(op.key, op.value()).map_err(failed)?;
        }
    }
    Ok(())
}

impl Session for &Redb {
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        if !ops.iter().any(Op::writes) {
            let transaction = self.database.begin_read().map_err(failed)?;
            let table = transaction.open_table(TABLE).map_err(failed)?;
            return ops.iter().try_for_each(|op| read(op, &table, tally));
        }
        let (durability, operations) = match self.class {
            Class::Sync => (Durability::Immediate, 1),
            Class::None | Class::Group => (Durability::None, ops.len()),
        };
        for ops in ops.chunks(operations) {
            self.transaction(durability, |table| ops.iter().try_for_each(|op| write(op, table, tally)))?;
        }
        Ok(())
    }
}
