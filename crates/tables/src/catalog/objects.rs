//! Collection of objects in object stores that no row group needs any more.
//!
//! | object | is deleted once |
//! | --- | --- |
//! | of a removed row group | all transactions, and the version history, see the removal, which is durable; its entry follows |
//! | of a transaction that has ended without publishing it | its end |
//! | of a dropped table | all transactions see the drop |
//! | of an earlier run that no row group names, as a crash leaves it | the stores are swept: once in a run, and by VACUUM |
//!
//! - Only objects of this database's identity are deleted, and none that is held ([`crate::columns::objects::owner`]).
//! - While rows of the catalog are damaged no store is swept: an unknown object may be that of a damaged table.
//! - A store that fails ends the round; the next one takes up all that is left. Deleting an object twice does no harm.

use super::relations::{CatalogRow, KEY_MARK, body_of, row_of};
use super::{Catalog, Verify};
use crate::background::BackgroundThread;
use crate::columns::group::{EntryKind, GroupSummary, group_of, removed_range, summary_range};
use crate::columns::objects::name::{ObjectName, ObjectNumber};
use crate::columns::objects::owner::OwnerRecord;
use crate::columns::objects::{
    DroppedObjects, ObjectStoreStats, ObjectStores, RemovedObject, UnpublishedObject,
};
use crate::columns::store::ColumnStore;
use crate::error::{Error, Result};
use crate::table::Table;
use entresol_memory::{BackupReport, Durability};
use entresol_structures::KeyBytes;
use entresol_transactions::{State, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Interval of rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Delay of the next round after one that had to leave objects, or failed.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// Longest delay after rounds that failed, one after another.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(300);

/// Key of a row of the catalog beside those of relations.
pub(crate) fn key_with_mark(name: &str) -> Vec<u8> {
    let mut key = vec![KEY_MARK];
    key.extend_from_slice(name.as_bytes());
    key
}

/// Row of the catalog with a version and a checksum.
pub(crate) fn sealed_row(name: &str, body: &[u8]) -> CatalogRow {
    row_of(key_with_mark(name), body)
}

/// Body of a row that was sealed, or its damage.
pub(crate) fn row_body<'v>(key: &[u8], value: &'v [u8]) -> Result<&'v [u8], String> {
    body_of(key, value)
}

/// Counts of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectedObjects {
    /// Objects that were deleted.
    pub deleted: u64,
    /// Objects that may not be deleted yet: transactions or the version history may read them, or they are held.
    pub left: u64,
}

/// Thread that collects objects while the database is open.
pub struct ObjectCollector(BackgroundThread);

impl ObjectCollector {
    /// Starts the thread. Without one VACUUM collects.
    pub fn start(catalog: &Arc<Catalog>) -> ObjectCollector {
        let purpose = "delete objects of removed row groups";
        ObjectCollector(BackgroundThread::start(catalog, "entresol-objects", purpose, run))
    }

    /// Ends the thread, after the request that it is at.
    pub fn stop(&self) {
        self.0.stop();
    }
}

fn run(catalog: &Weak<Catalog>, stop: &AtomicBool) {
    let (mut next, mut failures) = (Instant::now(), 0);
    while !stop.load(Ordering::Acquire) {
        std::thread::park_timeout(INTERVAL.min(next.saturating_duration_since(Instant::now())));
        if Instant::now() < next {
            continue;
        }
        let Some(catalog) = catalog.upgrade() else { return };
        let is_swept = catalog.objects().is_swept.load(Ordering::Relaxed);
        let collected = catalog.collect(!is_swept, &|| stopped(stop));
        failures = if collected.is_err() { failures + 1 } else { 0 };
        let rest = match collected {
            Ok(CollectedObjects { left: 0, .. }) => INTERVAL,
            Ok(_) => RETRY_DELAY,
            Err(_) if stop.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "could not delete objects of removed row groups");
                RETRY_DELAY_MAX.min(RETRY_DELAY * 2_u32.pow(failures.min(8)))
            }
        };
        next = Instant::now() + rest;
    }
}

fn stopped(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Acquire) {
        return Err(entresol_transactions::Error::Busy("the database is being closed").into());
    }
    Ok(())
}

/// Objects that row groups name, or that are collected as what they are.
#[derive(Default)]
struct NeededObjects {
    objects: BTreeSet<ObjectName>,
    /// Stores of these objects, and of tables.
    stores: BTreeSet<String>,
}

impl NeededObjects {
    fn add(&mut self, object: &RemovedObject) {
        self.objects.insert(object.name);
        self.stores.insert(object.store.clone());
    }
}

/// Round of collection.
struct Round<'c> {
    stores: &'c ObjectStores,
    record: OwnerRecord,
    /// Number below which the objects of a store are held.
    held_below: BTreeMap<String, ObjectNumber>,
    running: &'c dyn Fn() -> Result<()>,
    counts: CollectedObjects,
}

impl Round<'_> {
    /// Deletes an object if it is the database's own and not held. Returns false if it has to stay.
    fn delete(&mut self, object: &RemovedObject) -> Result<bool> {
        if object.name.identity != self.record.identity {
            return Ok(true);
        }
        let below = match self.held_below.get(&object.store) {
            Some(below) => *below,
            None => {
                let below = self.record.held_below(self.stores, &object.store, self.running)?;
                self.held_below.insert(object.store.clone(), below);
                below
            }
        };
        if object.name.number < below {
            self.counts.left += 1;
            return Ok(false);
        }
        self.stores.client(&object.store)?.delete(&object.name.to_string(), self.running)?;
        self.counts.deleted += 1;
        Ok(true)
    }
}

impl Catalog {
    fn objects(&self) -> &Arc<ObjectStores> {
        self.pages.objects()
    }

    /// Counters of the requests to object stores.
    pub fn object_store_stats(&self) -> ObjectStoreStats {
        self.objects().stats()
    }

    /// Deletes objects of row groups that nothing reads any more, and lists the stores to find those that a crash has left.
    pub fn collect_objects(&self) -> Result<CollectedObjects> {
        self.collect(true, &|| Ok(()))
    }

    /// Copies the database as [`entresol_memory::Pool::backup`] does. Row groups in object stores are not copied: the
    /// backup names the objects, and a hold in each store lets none of them be deleted.
    pub fn backup(&self, destination: &Path) -> Result<BackupReport> {
        let held = self.hold_objects()?;
        let copied = self.context.pool().backup(destination);
        if copied.is_err() {
            for (store, hold) in held {
                // One that stays costs space alone.
                let deleted = self.objects().client(&store).and_then(|store| store.delete(&hold, &|| Ok(())));
                deleted.unwrap_or_else(|error| tracing::warn!(%error, "the hold of a failed backup stays"));
            }
        }
        Ok(copied?)
    }

    /// Writes a hold of all objects that there are into each store. Returns the stores with the names of the holds.
    fn hold_objects(&self) -> Result<Vec<(String, String)>> {
        let _collecting = self.objects().collecting.lock();
        let running = || Ok(());
        let Some(record) = self.objects().begun(&running)? else { return Ok(Vec::new()) };
        let holder = format!("backup-{:016x}", self.context.pool().env().random_u64());
        let hold = record.hold(self.objects(), (&holder, record.behind_run()), &running)?;
        Ok(record.stores.into_iter().map(|store| (store, hold.clone())).collect())
    }

    /// Moves the row groups of a table to an object store, or without a URL to the pool: new row groups are written there at
    /// once, earlier ones when a merge rewrites them.
    pub fn set_object_store(&self, table: &str, url: Option<String>) -> Result<()> {
        let old = self.table(table)?;
        if old.definition().object_store == url {
            return Ok(());
        }
        if old.definition().clustered_by().is_some() {
            return Err(Error::ObjectStoreFixed { table: table.to_owned() });
        }
        self.check_object_store(url.as_deref())?;
        let changed = self.redefine(table, None::<Verify<'_, Error>>, |definition| {
            definition.object_store = url;
            Ok(())
        })?;
        if let Some(columns) = changed.own_columns() {
            // Merges look at the row groups that are found to be elsewhere.
            columns.groups(&*self.begin()?)?;
        }
        Ok(())
    }

    /// Returns an error if the row groups of a table cannot be in a store.
    pub(super) fn check_object_store(&self, url: Option<&str>) -> Result<()> {
        let Some(url) = url else { return Ok(()) };
        if self.context.pool().file().is_none() {
            return Err(Error::ObjectStoreOfVolatile);
        }
        self.objects().client(url).map(drop)
    }

    fn collect(&self, sweeps: bool, running: &dyn Fn() -> Result<()>) -> Result<CollectedObjects> {
        let stores = Arc::clone(self.objects());
        let has_work = sweeps
            || stores.has_removed.load(Ordering::Relaxed)
            || !stores.dropped.lock().is_empty()
            || !stores.unpublished.lock().is_empty();
        if !has_work {
            return Ok(CollectedObjects::default());
        }
        let _collecting = stores.collecting.lock();
        self.context.pool().check_healthy()?;
        let Some(record) = stores.begun(running)? else {
            stores.is_swept.store(true, Ordering::Relaxed);
            return Ok(CollectedObjects::default());
        };
        let (held_below, counts) = (BTreeMap::new(), CollectedObjects::default());
        let mut round = Round { stores: &stores, record, held_below, running, counts };
        self.collect_unpublished(&mut round)?;
        self.collect_dropped(&mut round)?;
        if stores.has_removed.swap(false, Ordering::AcqRel) || sweeps {
            self.collect_removed(&mut round)?;
        }
        if sweeps && !stores.keeps_unknown.load(Ordering::Relaxed) {
            self.sweep(&mut round)?;
            stores.is_swept.store(true, Ordering::Relaxed);
        }
        Ok(round.counts)
    }

    /// Objects that transactions have left which have ended.
    fn collect_unpublished(&self, round: &mut Round<'_>) -> Result<()> {
        let ended: Vec<UnpublishedObject> = {
            let mut unpublished = round.stores.unpublished.lock();
            let (ended, open) = unpublished.drain(..).partition(|of| of.writer.strong_count() == 0);
            *unpublished = open;
            ended
        };
        let mut ended = ended.into_iter();
        while let Some(of) = ended.next() {
            let collected = self.collect_ended(&of, round);
            if !matches!(collected, Ok(true)) {
                round.stores.unpublished.lock().push(of);
            }
            if collected.is_err() {
                round.stores.unpublished.lock().extend(ended);
                return collected.map(drop);
            }
        }
        Ok(())
    }

    /// Returns false if the object of a transaction that has ended has to stay for now.
    fn collect_ended(&self, of: &UnpublishedObject, round: &mut Round<'_>) -> Result<bool> {
        // A transaction that begins behind the end of another one sees what that has committed.
        let tx = self.begin()?;
        let state = of.state.upgrade();
        let is_dropped = || state.as_ref().is_none_or(|state| state.is_dropped());
        if let Some(state) = &state
            && !is_dropped()
            && is_named(&tx, state, of)?
        {
            return Ok(true);
        }
        if is_dropped() {
            let mut dropped = round.stores.dropped.lock();
            if !dropped.iter().any(|known| known.objects.contains(&of.object)) {
                let objects = vec![of.object.clone()];
                dropped.push(DroppedObjects { seen_by: tx.snapshot_mark(), objects });
            }
            return Ok(true);
        }
        // Behind a failure of the pool, recovery may find what this run does not see.
        self.context.pool().check_healthy()?;
        round.delete(&of.object)
    }

    /// Objects of dropped tables.
    fn collect_dropped(&self, round: &mut Round<'_>) -> Result<()> {
        let dropped = std::mem::take(&mut *round.stores.dropped.lock());
        let (mut left, mut failure) = (Vec::new(), None);
        for mut of in dropped {
            let is_readable = !self.context.all_see_all_of(&of.seen_by);
            if is_readable {
                round.counts.left += of.objects.len() as u64;
            } else {
                of.objects.retain(|object| {
                    failure.is_some()
                        || !round.delete(object).unwrap_or_else(|error| {
                            failure = Some(error);
                            false
                        })
                });
            }
            if !of.objects.is_empty() {
                left.push(of);
            }
        }
        round.stores.dropped.lock().extend(left);
        failure.map_or(Ok(()), Err)
    }

    /// Objects of row groups that were removed.
    fn collect_removed(&self, round: &mut Round<'_>) -> Result<()> {
        let mut left = 0;
        let collected = self.tables().iter().try_for_each(|table| {
            let Some(columns) = table.own_columns() else { return Ok(()) };
            match self.collect_removed_of(columns, round) {
                // It was dropped meanwhile.
                Err(_) if columns.state().is_dropped() => Ok(()),
                collected => collected.map(|of_table| left += of_table),
            }
        });
        if left > 0 || collected.is_err() {
            round.stores.has_removed.store(true, Ordering::Relaxed);
        }
        round.counts.left += left;
        collected
    }

    /// Deletes the objects of removed row groups of a table; returns the number of those that others may read.
    fn collect_removed_of(&self, columns: &Arc<ColumnStore>, round: &mut Round<'_>) -> Result<u64> {
        let tx = self.begin()?;
        let removed = removed_objects(&tx, columns.state())?;
        let seen_by = tx.snapshot_mark();
        drop(tx);
        if removed.is_empty() {
            return Ok(0);
        }
        if !self.context.all_see_all_of(&seen_by) {
            return Ok(removed.len() as u64);
        }
        // Else a crash could bring back a row group without its object.
        for pool in self.context.disk_pool().into_iter().chain([self.context.pool()]) {
            self.context.wait(|| pool.sync())?;
        }
        let past = match columns.state().past() {
            None => None,
            Some(bounds) => Some(self.begin_as_of(bounds.horizon)?),
        };
        let (mut gone, mut left) = (Vec::new(), 0);
        for (key, object) in removed {
            // No transaction reads versions from before the horizon.
            let is_past = past.as_ref().map(|past| past.read(columns.state(), &key, |_| ()));
            if is_past.transpose()?.is_some_and(|seen| seen.is_none()) {
                left += 1;
            } else if round.delete(&object)? {
                gone.push(key);
            } else {
                round.stores.has_removed.store(true, Ordering::Relaxed);
            }
        }
        let tx = self.begin()?;
        gone.iter().try_for_each(|key| tx.write(columns.state(), key, None))?;
        tx.commit(Durability::None)?;
        Ok(left)
    }

    /// Deletes the objects of earlier runs that no row group names.
    fn sweep(&self, round: &mut Round<'_>) -> Result<()> {
        let (mut found, mut empty, mut failure) = (Vec::new(), BTreeSet::new(), None);
        let names = round.stores.names();
        for store in &round.record.stores {
            let client = round.stores.client(store);
            match client.and_then(|client| client.list(&round.record.identity.to_string(), round.running)) {
                Ok(listed) if listed.is_empty() => {
                    empty.insert(store.clone());
                }
                Ok(listed) => {
                    let named =
                        listed.iter().filter_map(|name| ObjectName::parse(round.record.identity, name));
                    // Those of this run are known: they are published, or will be collected as what they are.
                    let earlier = named.filter(|name| name.number.run() < round.record.run);
                    found.extend(earlier.map(|name| RemovedObject { store: store.clone(), name }));
                }
                Err(error) => failure = Some((store.clone(), error)),
            }
        }
        let needed = self.needed_objects(round.stores)?;
        for object in found {
            if !needed.objects.contains(&object.name) && round.delete(&object)? {
                tracing::info!(store = object.store, object = %object.name, "deleted an object without row group");
            }
        }
        empty.retain(|store| !needed.stores.contains(store));
        round.stores.forget(&empty, names)?;
        match failure {
            Some((store, error)) if needed.stores.contains(&store) => Err(error),
            Some((store, error)) => {
                tracing::warn!(store, %error, "objects of dropped tables stay in a store");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Objects that row groups name, or that are collected as what they are, and the stores of tables.
    fn needed_objects(&self, stores: &ObjectStores) -> Result<NeededObjects> {
        // No table is dropped between one look and the next.
        let _changing = self.changing.lock();
        let mut needed = NeededObjects::default();
        for of in &*stores.dropped.lock() {
            of.objects.iter().for_each(|object| needed.add(object));
        }
        for of in &*stores.unpublished.lock() {
            needed.add(&of.object);
        }
        let tx = self.begin()?;
        for table in self.tables() {
            needed.stores.extend(table.object_store().map(str::to_owned));
            let Some(columns) = table.own_columns() else { continue };
            objects_of(&tx, columns.state())?.iter().for_each(|object| needed.add(object));
        }
        Ok(needed)
    }

    /// Objects of the row groups of a table that is being dropped; what cannot be read is found by a sweep of the next run.
    pub(super) fn objects_of_dropped(&self, columns: &ColumnStore) -> Vec<RemovedObject> {
        let objects = self.begin().and_then(|tx| objects_of(&tx, columns.state()));
        objects.unwrap_or_else(|error| {
            tracing::warn!(%error, "objects of a dropped table stay until the database is opened again");
            Vec::new()
        })
    }

    /// Lets objects of dropped tables be collected, behind the drop of their states.
    pub(super) fn drop_objects(&self, objects: Vec<RemovedObject>) {
        if objects.is_empty() {
            return;
        }
        match self.begin() {
            Ok(tx) => {
                self.objects().dropped.lock().push(DroppedObjects { seen_by: tx.snapshot_mark(), objects })
            }
            Err(error) => {
                tracing::warn!(%error, "objects of a dropped table stay until the database is opened again");
            }
        }
    }
}

/// Tells whether the row group of an object, or the entry of its removal, names it.
fn is_named(tx: &Transaction, state: &Arc<State>, of: &UnpublishedObject) -> Result<bool> {
    let summary = tx.read(state, &EntryKind::Summary.key(of.group), GroupSummary::from_bytes)?;
    let object = summary.flatten().and_then(|summary| summary.object);
    if object.is_some_and(|object| object.name == of.object.name) {
        return Ok(true);
    }
    let removed = tx.read(state, &EntryKind::Removed.key(of.group), RemovedObject::from_bytes)?;
    Ok(removed.flatten().is_some_and(|removed| removed == of.object))
}

/// Entries of removed row groups.
fn removed_objects(tx: &Transaction, state: &Arc<State>) -> Result<Vec<(KeyBytes, RemovedObject)>> {
    let (mut removed, mut from, mut damaged) = (Vec::new(), None, None);
    while tx.scan_batch(state, &removed_range(), &mut from, |key, value| {
        match RemovedObject::from_bytes(value) {
            Some(object) => removed.push((KeyBytes::from_slice(key), object)),
            None => damaged = Some(group_of(key)),
        }
    })? {}
    match damaged {
        None => Ok(removed),
        Some(group) => {
            let what = format!("row group {group} of {}", state.holder());
            Err(Error::corrupt(what, "the entry of its removal is damaged"))
        }
    }
}

/// Objects of the row groups of a state, those that were removed included.
fn objects_of(tx: &Transaction, state: &Arc<State>) -> Result<Vec<RemovedObject>> {
    let (mut objects, mut from, mut damaged) = (Vec::new(), None, None);
    while tx.scan_batch(state, &summary_range(), &mut from, |key, value| {
        match GroupSummary::from_bytes(value) {
            Some(summary) => objects.extend(
                summary.object.map(|object| RemovedObject { store: object.store, name: object.name }),
            ),
            None => damaged = Some(group_of(key)),
        }
    })? {}
    if let Some(group) = damaged {
        let what = format!("row group {group} of {}", state.holder());
        return Err(Error::corrupt(what, "its summary is damaged"));
    }
    objects.extend(removed_objects(tx, state)?.into_iter().map(|(_, object)| object));
    Ok(objects)
}

impl Table {
    /// URL of the object store of its row groups; none if they are in the pool.
    pub fn object_store(&self) -> Option<&str> {
        self.definition().object_store.as_deref()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::{
        BatchBuilder, Catalog, Column, DataType, Schema, TableDefinition, TableLayout, TableOptions, Value,
    };
    use entresol_memory::{Pool, PoolOptions};
    use entresol_transactions::StateContext;
    use std::sync::Arc;

    /// The thread that tunes the cache of pages has it for as long as a step takes, and the database may end meanwhile.
    #[test]
    fn a_cache_of_pages_does_not_hold_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (database, objects) = (dir.path().join("database"), dir.path().join("objects"));
        std::fs::create_dir(&objects).unwrap();
        let open = || {
            let pool = Pool::open_or_create(&database, &PoolOptions::default())?;
            Ok::<_, entresol_memory::Error>(
                Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap(),
            )
        };
        let catalog = open().unwrap();
        let columns = vec![Column::new("id", DataType::BigInt)];
        let mut batch = BatchBuilder::new(&columns, 0);
        (0..20_000).for_each(|id| batch.push(&[Value::BigInt(id)]).unwrap());
        let mut definition = TableDefinition::plain(Schema::new(columns, &[] as &[&str]).unwrap());
        definition.layout = TableLayout::Columns;
        definition.object_store = Some(format!("file://{}", objects.display()));
        let table = catalog.create_table_as("facts", definition, TableOptions::default()).unwrap();
        let tx = catalog.begin().unwrap();
        table.append(&tx, &batch.finish()).unwrap();
        assert!(!catalog.pages.objects().unpublished.lock().is_empty(), "the transaction is open");
        let cache = Arc::clone(&catalog.pages);
        drop((tx, table, catalog));
        assert!(open().is_ok());
        drop(cache);
    }
}
