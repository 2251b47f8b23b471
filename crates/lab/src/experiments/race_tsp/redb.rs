//! redb: two tables, a write transaction for each of ours, a read transaction for each reader's. Settings: a
//! cache of 4 GB; `none` and `group(10)`: `Durability::None`, synced every 10 ms by an empty transaction with
//! `Durability::Immediate`; `sync`: `Durability::Immediate`.

use super::{Session, States, VALUE_BYTES, round_of, value};
use crate::Error;
use crate::peers::{Class, peer_error};
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::path::Path;

const CACHE_BYTES: usize = 4 << 30;

type Table = TableDefinition<'static, u64, [u8; VALUE_BYTES]>;
const STATES: [Table; 2] = [TableDefinition::new("first"), TableDefinition::new("second")];

struct Redb {
    database: Database,
    durability: Durability,
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("redb")(error)
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn States>, Error> {
    let database =
        Database::builder().set_cache_size(CACHE_BYTES).create(dir.join("states.redb")).map_err(failed)?;
    let durability = if class == Class::Sync { Durability::Immediate } else { Durability::None };
    let store = Redb { database, durability };
    store.transaction(Durability::Immediate, &[], 0)?;
    Ok(Box::new(store))
}

impl Redb {
    fn transaction(&self, durability: Durability, keys: &[u32], round: u64) -> Result<(), Error> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(durability).map_err(failed)?;
        {
            let mut tables = [
                transaction.open_table(STATES[0]).map_err(failed)?,
                transaction.open_table(STATES[1]).map_err(failed)?,
            ];
            for &number in keys {
                for table in &mut tables {
                    table.insert(u64::from(number), value(round)).map_err(failed)?;
                }
            }
        }
        transaction.commit().map_err(failed)
    }
}

impl States for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn sync(&self) -> Result<(), Error> {
        self.transaction(Durability::Immediate, &[], 0)
    }
}

impl Session for &Redb {
    fn write(&mut self, keys: &[u32], round: u64) -> Result<(), Error> {
        self.transaction(self.durability, keys, round)
    }

    fn read(&mut self, keys: &[u32]) -> Result<bool, Error> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let tables = [
            transaction.open_table(STATES[0]).map_err(failed)?,
            transaction.open_table(STATES[1]).map_err(failed)?,
        ];
        let mut one_snapshot = true;
        for &number in keys {
            let mut rounds = [None; 2];
            for (round, table) in rounds.iter_mut().zip(&tables) {
                let found = table.get(u64::from(number)).map_err(failed)?;
                *round = found.and_then(|found| round_of(&found.value()));
            }
            one_snapshot &= rounds[0].is_some() && rounds[0] == rounds[1];
        }
        Ok(one_snapshot)
    }
}
