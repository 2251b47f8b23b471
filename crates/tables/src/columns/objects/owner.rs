//! The database as an owner of objects: its identity, and the number of its run, in a row of the catalog.
//!
//! - The row is durable before the first object of a run is written, and names each store before its first object.
//! - A copy of the database's files has the row, too. It is recognised by the inode number of the pool's file, which is not
//!   the one in the row. The copy takes an identity of its own, and *holds* the objects of the original, which it may read:
//!   an object `identity/holds/...` in each store says up to which number the owner must not delete. A backup does the same.
//! - Once the hold is removed, the owner deletes these objects again.
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | identity |
//! | 8 | number of the pool's file |
//! | 4 | run |
//! | rest | URLs of the stores that have objects, or had: length (4), UTF-8 |
//!
//! A crash leaves a row as it was before, or the new one. A copy that crashes between a hold and its row writes the
//! hold again.

use crate::catalog::{key_with_mark, row_body, sealed_row};
use crate::columns::objects::ObjectStores;
use crate::columns::objects::client::Running;
use crate::columns::objects::name::{Identity, ObjectName, ObjectNumber};
use crate::error::{Error, Result};
use crate::schema::parts::{Reader, put_text};
use entresol_memory::Durability;
use entresol_transactions::{State, StateContext};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const ROW: &str = "objects/owner";

/// Row of the catalog; see the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerRecord {
    pub(crate) identity: Identity,
    file: u64,
    pub(crate) run: u32,
    pub(crate) stores: Vec<String>,
}

/// Returns true if a key of the catalog's state is that of the record.
pub(crate) fn is_key(key: &[u8]) -> bool {
    key == key_with_mark(ROW)
}

/// Name of a hold among the objects of an identity.
fn hold_name(identity: Identity, holder: &str) -> String {
    format!("{identity}/{HOLDS}{holder}")
}

/// Prefix of holds among the objects of an identity.
pub(crate) const HOLDS: &str = "holds/";

impl OwnerRecord {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.identity.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.file.to_le_bytes());
        bytes.extend_from_slice(&self.run.to_le_bytes());
        self.stores.iter().for_each(|store| put_text(&mut bytes, store));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<OwnerRecord> {
        let mut reader = Reader(bytes);
        let identity = Identity::from_reader(&mut reader)?;
        let file = u64::from_le_bytes(reader.take(8)?.try_into().ok()?);
        let (run, mut stores) = (reader.number()?, Vec::new());
        while !reader.0.is_empty() {
            stores.push(reader.text()?);
        }
        Some(OwnerRecord { identity, file, run, stores })
    }

    /// Record of the catalog; none if the database never used a store.
    pub(crate) fn read(context: &Arc<StateContext>, catalog: &Arc<State>) -> Result<Option<OwnerRecord>> {
        let key = key_with_mark(ROW);
        let decode = |value: &[u8]| row_body(&key, value).map(OwnerRecord::from_bytes);
        let damaged = |reason: &str| Error::corrupt("owner of objects in the catalog", reason);
        match context.begin()?.read(catalog, &key, decode)? {
            None => Ok(None),
            Some(Ok(Some(record))) => Ok(Some(record)),
            Some(Ok(None)) => Err(damaged("malformed bytes")),
            Some(Err(reason)) => Err(damaged(&reason)),
        }
    }

    /// Writes the record, durably.
    fn write(&self, (context, catalog): &(Arc<StateContext>, Arc<State>)) -> Result<()> {
        let (key, value) = sealed_row(ROW, &self.to_bytes());
        let tx = context.begin()?;
        tx.write(catalog, &key, value.as_deref())?;
        context.wait(|| tx.commit(Durability::Sync))?;
        Ok(())
    }

    /// Lets the owner of this identity delete no object of it below a number, until the hold is deleted. Returns the name
    /// of the hold.
    pub(crate) fn hold(
        &self,
        stores: &ObjectStores,
        (holder, below): (&str, ObjectNumber),
        running: Running<'_>,
    ) -> Result<String> {
        let name = hold_name(self.identity, holder);
        for store in &self.stores {
            stores.client(store)?.write(&name, vec![below.to_string().into()], running)?;
        }
        Ok(name)
    }

    /// Number below which objects of a store are held.
    pub(crate) fn held_below(
        &self,
        stores: &ObjectStores,
        store: &str,
        running: Running<'_>,
    ) -> Result<ObjectNumber> {
        let client = stores.client(store)?;
        let mut below = ObjectNumber(0);
        for holder in client.list(&format!("{}/{}", self.identity, HOLDS.trim_end_matches('/')), running)? {
            let content = client.read_whole(&hold_name(self.identity, &holder), running)?;
            // What cannot be read holds all.
            let number = std::str::from_utf8(&content).ok().and_then(ObjectNumber::parse);
            below = below.max(number.unwrap_or(ObjectNumber(u64::MAX)));
        }
        Ok(below)
    }

    /// Number behind all objects of this run and earlier ones.
    pub(crate) fn behind_run(&self) -> ObjectNumber {
        self.run.checked_add(1).map_or(ObjectNumber(u64::MAX), |next| ObjectNumber::new(next, 0))
    }
}

/// Run of the database that writes objects.
pub(crate) struct Run {
    pub(crate) record: OwnerRecord,
    count: u32,
    nonce: u32,
}

impl Run {
    /// Begins a run: with the identity of the row, or another one if there is none, or it is that of another database.
    pub(super) fn begin(
        stores: &ObjectStores,
        catalog: &(Arc<StateContext>, Arc<State>),
        running: Running<'_>,
    ) -> Result<Run> {
        let (context, state) = catalog;
        let file = file_number(context)?;
        let env = context.pool().env();
        let fresh = |stores: Vec<String>| {
            let identity = u128::from(env.random_u64()) << 64 | u128::from(env.random_u64());
            OwnerRecord { identity: Identity(identity), file, run: 1, stores }
        };
        let record = match OwnerRecord::read(context, state)? {
            None => fresh(Vec::new()),
            Some(known) if known.file == file && known.run < u32::MAX => {
                OwnerRecord { run: known.run + 1, ..known }
            }
            Some(original) => {
                let copy = fresh(original.stores.clone());
                // First: from the row on nothing tells whose objects those are.
                original.hold(
                    stores,
                    (&format!("copy-{}", copy.identity), original.behind_run()),
                    running,
                )?;
                tracing::info!(original = %original.identity, copy = %copy.identity, "a copy holds the objects of its original");
                copy
            }
        };
        record.write(catalog)?;
        Ok(Run { record, count: 0, nonce: env.random_u64() as u32 })
    }

    /// Name for a new object; the row has its store.
    pub(super) fn next_name(
        &mut self,
        catalog: &(Arc<StateContext>, Arc<State>),
        store: &str,
    ) -> Result<ObjectName> {
        let is_known = self.record.stores.iter().any(|known| known == store);
        if !is_known || self.count == u32::MAX {
            let mut record = self.record.clone();
            if !is_known {
                record.stores.push(store.to_owned());
            }
            if self.count == u32::MAX {
                let spent =
                    || Error::corrupt("owner of objects in the catalog", "all numbers of objects are used");
                record.run = record.run.checked_add(1).ok_or_else(spent)?;
                self.count = 0;
            }
            record.write(catalog)?;
            self.record = record;
        }
        let number = ObjectNumber::new(self.record.run, self.count);
        self.count += 1;
        Ok(ObjectName { identity: self.record.identity, number, nonce: self.nonce })
    }

    /// Number of the names that it has made.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Removes stores that had no objects when it had made so many names, unless it has made others since.
    pub(super) fn forget(
        &mut self,
        catalog: &(Arc<StateContext>, Arc<State>),
        (stores, count): (&BTreeSet<String>, u32),
    ) -> Result<()> {
        if count != self.count {
            return Ok(());
        }
        let mut record = self.record.clone();
        record.stores.retain(|store| !stores.contains(store));
        if record != self.record {
            record.write(catalog)?;
            self.record = record;
        }
        Ok(())
    }
}

/// Number of the pool's file in its file system, which a copy does not share.
fn file_number(context: &Arc<StateContext>) -> Result<u64> {
    let Some(path) = context.pool().file() else {
        return Err(Error::ObjectStoreOfVolatile);
    };
    let metadata = std::fs::metadata(path);
    let metadata = metadata.map_err(|error| Error::ObjectStore {
        store: path.display().to_string(),
        what: "tell the database from its copies".to_owned(),
        reason: error.to_string(),
    })?;
    Ok(metadata.ino())
}
