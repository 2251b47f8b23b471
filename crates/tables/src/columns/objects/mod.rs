//! Objects of row groups: the pages of a row group in an object store, one object for each.
//!
//! ```text
//!   pages of a row group ──▶ object, durable in the store ──▶ its name, in the summary of the row group ──▶ commit
//! ```
//!
//! - An object is the pages of a row group one after another, but for those that an Elf holds. It is written once, before
//!   the transaction that publishes the row group can commit, and never changed. The summary of the row group has the
//!   store, the name, and the length and checksum of each page ([`GroupObject`]).
//! - Names are never used twice ([`name`]), and have the identity of the database ([`owner`]). A database deletes objects of
//!   its own identity alone.
//! - What a crash or an abort leaves is objects that no row group names. They are collected
//!   ([`crate::catalog`]): those of this run once their transaction has ended, those of earlier runs by a list of the store.
//! - A row group that is removed leaves an entry with the name of its object, in the same commit; the object is deleted once
//!   no transaction can read the row group, and the removal is durable. The entry goes behind the object.
//!
//! Memory: the pages of a row group that is written, out of the memory of queries; a few words for each object that is not
//! published yet, or of a dropped table.

pub(crate) mod client;
pub(crate) mod location;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod read;

use crate::error::{Error, Result};
use crate::schema::parts::{Reader, put_text};
use bytes::Bytes;
use client::{RequestCounters, RequestRuntime, Running, StoreClient};
use entresol_memory::budget::MemoryConsumer;
use entresol_transactions::{SnapshotMark, State, StateContext, Transaction};
use location::StoreLocation;
use name::ObjectName;
use owner::{OwnerRecord, Run};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Object of a row group, as its summary names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupObject {
    /// URL of the store.
    pub(crate) store: String,
    pub(crate) name: ObjectName,
    /// CRC-32C of each page in it, in the order of the columns.
    pub(crate) checksums: Vec<u32>,
}

impl GroupObject {
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        put_text(bytes, &self.store);
        self.name.put(bytes);
        bytes.extend_from_slice(&(self.checksums.len() as u16).to_le_bytes());
        self.checksums.iter().for_each(|checksum| bytes.extend_from_slice(&checksum.to_le_bytes()));
    }

    pub(crate) fn from_reader(reader: &mut Reader<'_>) -> Option<GroupObject> {
        let (store, name) = (reader.text()?, ObjectName::from_reader(reader)?);
        let count = reader.short()?;
        let checksums = (0..count).map(|_| reader.number()).collect::<Option<_>>()?;
        Some(GroupObject { store, name, checksums })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<GroupObject>() + self.store.len() + 4 * self.checksums.len()
    }
}

/// Object of a row group that was removed: what is left of it until the object is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemovedObject {
    pub(crate) store: String,
    pub(crate) name: ObjectName,
}

impl RemovedObject {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.name.put(&mut bytes);
        put_text(&mut bytes, &self.store);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes an entry; none if it is damaged.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<RemovedObject> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        (crc32c::crc32c(content) == u32::from_le_bytes(*checksum)).then_some(())?;
        let mut reader = Reader(content);
        let (name, store) = (ObjectName::from_reader(&mut reader)?, reader.text()?);
        reader.0.is_empty().then_some(RemovedObject { store, name })
    }
}

/// Object that was written for a transaction.
pub(crate) struct UnpublishedObject {
    /// Dead once the transaction has ended, one way or the other.
    pub(crate) writer: Weak<dyn Send + Sync>,
    /// State of the row groups, which is gone if it was dropped, and the number of the row group. Weak, as the catalog of
    /// [`ObjectStores`] is.
    pub(crate) state: Weak<State>,
    pub(crate) group: u32,
    pub(crate) object: RemovedObject,
}

/// Objects of a table that was dropped.
pub(crate) struct DroppedObjects {
    /// Snapshot that does not see the table; those before may read it.
    pub(crate) seen_by: SnapshotMark,
    pub(crate) objects: Vec<RemovedObject>,
}

/// Mark of a transaction that removes row groups with objects: when it is over, there is something to collect.
struct RemovalMark(Arc<ObjectStores>);

impl Drop for RemovalMark {
    fn drop(&mut self) {
        self.0.has_removed.store(true, Ordering::Release);
    }
}

/// Counters of the requests to object stores since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectStoreStats {
    /// Requests that read column pages.
    pub reads: u64,
    /// Bytes of these pages.
    pub read_bytes: u64,
    /// Objects that were written.
    pub writes: u64,
    /// Bytes of these objects.
    pub written_bytes: u64,
    /// Lists of a store.
    pub lists: u64,
    /// Objects that were deleted.
    pub deletes: u64,
    /// Requests that failed, repetitions included.
    pub failures: u64,
}

/// Stores of a database; see the [module](self).
#[derive(Default)]
pub(crate) struct ObjectStores {
    runtime: Arc<RequestRuntime>,
    counters: Arc<RequestCounters>,
    clients: Mutex<BTreeMap<String, Arc<StoreClient>>>,
    /// State of the catalog, in which the record of the owner is. Weak: the thread that tunes the cache of pages, which
    /// has the stores, may outlive the catalog and must not hold the pool open.
    catalog: OnceLock<(Weak<StateContext>, Weak<State>)>,
    /// Run that writes objects, once it has begun.
    run: Mutex<Option<Run>>,
    pub(crate) unpublished: Mutex<Vec<UnpublishedObject>>,
    pub(crate) dropped: Mutex<Vec<DroppedObjects>>,
    /// Set if entries of removed row groups may be there.
    pub(crate) has_removed: AtomicBool,
    /// Lock of deletions, and of holds that are being written.
    pub(crate) collecting: Mutex<()>,
    /// Set if damage hides which objects are needed: then no store is swept.
    pub(crate) keeps_unknown: AtomicBool,
    /// Set once the stores were swept in this run.
    pub(crate) is_swept: AtomicBool,
}

impl std::fmt::Debug for ObjectStores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectStores").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl ObjectStores {
    /// Tells the state of the catalog, and if all of its rows and tables are sound.
    pub(crate) fn attach(&self, context: &Arc<StateContext>, catalog: &Arc<State>, is_sound: bool) {
        self.catalog.get_or_init(|| (Arc::downgrade(context), Arc::downgrade(catalog)));
        self.keeps_unknown.store(!is_sound, Ordering::Relaxed);
        self.has_removed.store(true, Ordering::Relaxed);
    }

    /// Mark for a transaction that removes row groups with objects, to be held until its end.
    pub(crate) fn removal_mark(stores: &Arc<ObjectStores>) -> Arc<dyn Send + Sync> {
        Arc::new(RemovalMark(Arc::clone(stores)))
    }

    /// State of the catalog. Errors: closed, once the database is gone.
    fn catalog(&self) -> Result<(Arc<StateContext>, Arc<State>)> {
        let (context, state) =
            self.catalog.get().expect("the catalog attaches its state before its tables are used");
        let attached = context.upgrade().zip(state.upgrade());
        Ok(attached.ok_or(entresol_memory::Error::Closed)?)
    }

    /// Counters so far.
    pub(crate) fn stats(&self) -> ObjectStoreStats {
        let counters = &self.counters;
        ObjectStoreStats {
            reads: counters.reads.load(Ordering::Relaxed),
            read_bytes: counters.read_bytes.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            written_bytes: counters.written_bytes.load(Ordering::Relaxed),
            lists: counters.lists.load(Ordering::Relaxed),
            deletes: counters.deletes.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
        }
    }

    /// Client of the store at a URL.
    pub(crate) fn client(&self, url: &str) -> Result<Arc<StoreClient>> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(url) {
            return Ok(Arc::clone(client));
        }
        let location = StoreLocation::parse(url)
            .map_err(|reason| Error::ObjectStoreUrl { url: url.to_owned(), reason })?;
        let client = Arc::new(StoreClient::open(location, &self.runtime, &self.counters)?);
        clients.insert(url.to_owned(), Arc::clone(&client));
        Ok(client)
    }

    /// Record of the owner, with a run begun; none if the database never used a store.
    pub(crate) fn begun(&self, running: Running<'_>) -> Result<Option<OwnerRecord>> {
        let mut run = self.run.lock();
        if run.is_none() {
            let catalog = self.catalog()?;
            if OwnerRecord::read(&catalog.0, &catalog.1)?.is_none() {
                return Ok(None);
            }
            *run = Some(Run::begin(self, &catalog, running)?);
        }
        Ok(run.as_ref().map(|run| run.record.clone()))
    }

    /// Number of the names that this run has made for objects.
    pub(crate) fn names(&self) -> u32 {
        self.run.lock().as_ref().map_or(0, Run::count)
    }

    /// Forgets stores that had no objects when there were so many names. A table that gets one of them anew names it again.
    pub(crate) fn forget(&self, stores: &BTreeSet<String>, names: u32) -> Result<()> {
        let mut run = self.run.lock();
        run.as_mut().map_or(Ok(()), |run| run.forget(&self.catalog()?, (stores, names)))
    }

    /// Name for a new object of a store.
    fn next_name(&self, store: &str, running: Running<'_>) -> Result<ObjectName> {
        let mut run = self.run.lock();
        let catalog = self.catalog()?;
        if run.is_none() {
            *run = Some(Run::begin(self, &catalog, running)?);
        }
        let begun = run.as_mut().expect("it was begun");
        begun.next_name(&catalog, store)
    }

    /// Writes the pages of a row group as an object, durably. It is collected if the transaction does not commit it.
    pub(crate) fn write(
        &self,
        (tx, state, group): (&Transaction, &Arc<State>, u32),
        store: &str,
        pages: &[&[u8]],
    ) -> Result<GroupObject> {
        let running = || Ok(tx.check_running()?);
        let client = self.client(store)?;
        let bytes: u64 = pages.iter().map(|page| page.len() as u64).sum();
        let budget = tx.context().pool().memory();
        let reserved = budget.map(|budget| budget.try_reserve(MemoryConsumer::Queries, bytes)).transpose();
        let _reserved = reserved.map_err(entresol_memory::Error::from)?;
        tx.context().wait(|| {
            let name = self.next_name(store, &running)?;
            let writer: Arc<dyn Send + Sync> = Arc::new(name);
            // Before the object: whatever ends the write from here on, it is known.
            self.unpublished.lock().push(UnpublishedObject {
                writer: Arc::downgrade(&writer),
                state: Arc::downgrade(state),
                group,
                object: RemovedObject { store: store.to_owned(), name },
            });
            tx.hold(writer);
            let parts = pages.iter().map(|page| Bytes::copy_from_slice(page)).collect();
            client.write(&name.to_string(), parts, &running)?;
            let checksums = pages.iter().map(|page| crc32c::crc32c(page)).collect();
            Ok(GroupObject { store: store.to_owned(), name, checksums })
        })
    }

    /// Reads ranges of an object.
    pub(crate) fn read(
        &self,
        tx: &Transaction,
        object: &GroupObject,
        ranges: Vec<Range<u64>>,
    ) -> Result<client::ObjectRead> {
        let client = self.client(&object.store)?;
        let running = || Ok(tx.check_running()?);
        tx.context().wait(|| client.read(&object.name.to_string(), ranges, &running))
    }

    /// Full URL of an object, for messages.
    pub(crate) fn url_of(&self, store: &str, name: &ObjectName) -> String {
        match self.client(store) {
            Ok(client) => client.url_of(&name.to_string()),
            Err(_) => format!("{name} of {store}"),
        }
    }
}
