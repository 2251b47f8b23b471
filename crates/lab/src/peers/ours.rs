//! Our structures as stores: any index in a pool. Every write is failure-atomic by itself; at `sync` and
//! `group(10)` each one asks for its durability, so that two threads share syncs. What an index was opened
//! without, a thread opens meanwhile, as in a database.

use super::indexes::Index;
use super::{Class, GROUP_MS, Session, Store};
use crate::Error;
use crate::workload::{Op, OperationKind, Tally};
use entresol_memory::{DomainChoice, Durability, Pool, PoolOptions};
use entresol_structures::{Change, FpTree, HashTable, WordKey};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// An index and its pool.
pub struct PooledIndex<I> {
    index: Arc<I>,
    pool: Arc<Pool>,
    durability: Durability,
    opening: OpeningThread,
}

/// A thread that opens the rest of an index; dropping it stops it.
struct OpeningThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl OpeningThread {
    fn start<I: Index>(index: &Arc<I>) -> OpeningThread {
        let stop = Arc::new(AtomicBool::new(false));
        let (index, told) = (Arc::clone(index), Arc::clone(&stop));
        OpeningThread { stop, thread: Some(std::thread::spawn(move || index.open_rest(&told))) }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map_or(Ok(()), |thread| thread.join().expect("opening an index does not panic"))
    }
}

impl Drop for OpeningThread {
    fn drop(&mut self) {
        // Callers that need to know close the store.
        let _ = self.end();
    }
}

impl<I: Index> PooledIndex<I> {
    /// Opens or creates the pool of a directory, on a domain, and the index in it.
    pub fn open(dir: &Path, domain: DomainChoice, class: Class) -> Result<PooledIndex<I>, Error> {
        let options = PoolOptions { domain, ..PoolOptions::default() };
        let pool = match domain {
            DomainChoice::Volatile => Pool::volatile(&options)?,
            _ => Pool::open_or_create(dir, &options)?,
        };
        let root = match pool.root(I::ROOT) {
            Some(root) => root,
            None => {
                let mut publication = pool.publication();
                let root = I::create(&pool, &mut publication)?;
                publication.set_root(I::ROOT, root)?;
                publication.publish()?;
                root
            }
        };
        let durability = match class {
            Class::None => Durability::None,
            Class::Group => Durability::Group { interval_ms: GROUP_MS },
            Class::Sync => Durability::Sync,
        };
        let index = Arc::new(I::open(&pool, root)?);
        let opening = OpeningThread::start(&index);
        Ok(PooledIndex { index, pool, durability, opening })
    }

    /// The index.
    pub fn index(&self) -> &I {
        &self.index
    }
}

pub(super) fn open_fptree(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(PooledIndex::<FpTree<WordKey>>::open(dir, DomainChoice::Journal, class)?))
}

pub(super) fn open_fptree_dax(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(PooledIndex::<FpTree<WordKey>>::open(dir, DomainChoice::DaxEmulated, class)?))
}

pub(super) fn open_hash(dir: &Path, class: Class) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(PooledIndex::<HashTable<WordKey>>::open(dir, DomainChoice::Journal, class)?))
}

/// An index on a domain, for races that choose.
pub fn open_index<I: Index>(dir: &Path, domain: DomainChoice) -> Result<Box<PooledIndex<I>>, Error> {
    Ok(Box::new(PooledIndex::open(dir, domain, Class::None)?))
}

impl<I: Index> Store for PooledIndex<I> {
    fn session(&self) -> Result<Box<dyn Session + '_>, Error> {
        Ok(Box::new(PooledSession { store: self, values: Vec::new(), scanned: Vec::new() }))
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(self.pool.sync()?)
    }

    fn syncs_by_itself(&self) -> bool {
        true
    }

    fn settle(&self) -> Result<(), Error> {
        self.pool.sync()?;
        Ok(self.pool.checkpoint()?)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.pool.stats().allocated_bytes)
    }

    fn close(mut self: Box<Self>) -> Result<(), Error> {
        self.opening.end()?;
        Ok(self.pool.close()?)
    }
}

struct PooledSession<'s, I> {
    store: &'s PooledIndex<I>,
    values: Vec<Option<u64>>,
    scanned: Vec<u64>,
}

impl<I: Index> Session for PooledSession<'_, I> {
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        let PooledIndex { index, pool, durability, .. } = self.store;
        // As a reader with many keys does: pinning is a full fence, which would keep lookups apart.
        let _pinned = pool.pin();
        for op in ops {
            match op.kind() {
                OperationKind::Get => tally.got(op, index.get(op.key)?),
                OperationKind::Insert => tally.wrote(index.insert(op.key, op.value(), pool)?),
                OperationKind::Update => tally.wrote(index.update(op.key, op.value(), pool)?),
                OperationKind::Delete => tally.wrote(index.remove(op.key, pool)?),
                OperationKind::Scan => {
                    self.scanned.clear();
                    if !index.scan(op.key, op.length(), &mut self.scanned)? {
                        return Err(Error::Invalid("this index has no key order to scan".to_string()));
                    }
                    tally.scanned(op, self.scanned.iter().copied());
                }
                OperationKind::ReadModifyWrite => {
                    tally.got(op, index.get(op.key)?);
                    index.update(op.key, op.value(), pool)?;
                }
            }
            if *durability != Durability::None && op.writes() {
                pool.persist(*durability)?;
            }
        }
        Ok(pool.persist(Durability::None)?)
    }

    fn get_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        self.store.index.get_many(ops.iter().map(|op| op.key), &mut self.values)?;
        ops.iter().zip(&self.values).for_each(|(op, value)| tally.got(op, *value));
        Ok(())
    }

    fn write_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        let PooledIndex { index, pool, durability, .. } = self.store;
        let change = |op: &Op| match op.kind() {
            OperationKind::Insert => (op.key, Change::Insert(op.value())),
            OperationKind::Update => (op.key, Change::Replace(op.value())),
            OperationKind::Delete => (op.key, Change::Remove),
            kind => unreachable!("{kind:?} is not a write"),
        };
        index.apply_many(ops.iter().map(change), pool, |as_expected| tally.wrote(as_expected))?;
        Ok(pool.persist(*durability)?)
    }
}
