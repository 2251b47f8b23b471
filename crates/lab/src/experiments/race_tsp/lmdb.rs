//! LMDB: two named databases, a write transaction for each of ours, a read transaction for each reader's. Its
//! settings are those of `race-kv`.

use super::{Session, States, round_of, value};
use crate::Error;
use crate::peers::lmdb::environment;
use crate::peers::{Class, peer_error};
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Env, IntegerComparator};
use std::path::Path;

type Database = heed::Database<'static, U64<NativeEndian>, Bytes, IntegerComparator>;

struct Lmdb {
    env: Env,
    states: [Database; 2],
}

fn failed<E: std::fmt::Display>(error: E) -> Error {
    peer_error("LMDB")(error)
}

fn create(env: &Env, name: &str) -> Result<Database, Error> {
    let transaction = env.write_txn().map_err(failed)?;
    env.create_databases_and_commit(transaction, |opener, transaction| {
        let options = opener.database_options().types::<U64<NativeEndian>, Bytes>();
        let mut options = options.key_comparator::<IntegerComparator>();
        let database = options.name(name).create(transaction);
        database.map(CommitOrAbort::<_, ()>::Commit)
    })
    .map_err(|error: heed::Error| failed(error))?
    .commit()
    .ok_or_else(|| failed("the transaction that makes the database was aborted"))
}

pub(super) fn open(dir: &Path, class: Class) -> Result<Box<dyn States>, Error> {
    let env = environment(dir, class, 2)?;
    let states = [create(&env, "first")?, create(&env, "second")?];
    Ok(Box::new(Lmdb { env, states }))
}

impl States for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(self))
    }

    fn sync(&self) -> Result<(), Error> {
        self.env.force_sync().map_err(failed)
    }
}

impl Session for &Lmdb {
    fn write(&mut self, keys: &[u32], round: u64) -> Result<(), Error> {
        let mut transaction = self.env.write_txn().map_err(failed)?;
        for &number in keys {
            for state in &self.states {
                state.put(&mut transaction, &u64::from(number), &value(round)).map_err(failed)?;
            }
        }
        transaction.commit().map_err(failed)
    }

    fn read(&mut self, keys: &[u32]) -> Result<bool, Error> {
        let transaction = self.env.read_txn().map_err(failed)?;
        let mut one_snapshot = true;
        for &number in keys {
            let round = |state: &Database| -> Result<Option<u64>, Error> {
                Ok(state.get(&transaction, &u64::from(number)).map_err(failed)?.and_then(round_of))
            };
            let (first, second) = (round(&self.states[0])?, round(&self.states[1])?);
            one_snapshot &= first.is_some() && first == second;
        }
        Ok(one_snapshot)
    }
}
