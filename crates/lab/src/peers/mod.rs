//! Key-value stores behind one face: our structures and those they are raced against, a file each. What each
//! is set to, and why, stands in its file.
//!
//! A store is opened for one [`Class`] of durability. Threads talk to it through [`Session`]s, which run
//! slices of operations in the way that the store likes best: LMDB and redb take a transaction for a slice,
//! ours, RocksDB and fjall take single writes, and have another call for many.

mod btree_map;
#[cfg(feature = "peers")]
mod fjall;
pub mod indexes;
#[cfg(feature = "peers")]
pub(crate) mod lmdb;
pub mod ours;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
pub(crate) mod rocksdb;

use crate::Error;
use crate::workload::{Op, Tally};
use std::path::Path;

/// Durability class of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Durable when the system writes it back.
    None,
    /// Durable at most ten milliseconds after the call returned.
    Group,
    /// Durable when the call has returned.
    Sync,
}

impl Class {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Class::None => "none",
            Class::Group => "group(10)",
            Class::Sync => "sync",
        }
    }
}

/// Milliseconds between two syncs of [`Class::Group`].
pub const GROUP_MS: u32 = 10;

/// An open store.
pub trait Store: Sync {
    /// Session of a thread.
    fn session(&self) -> Result<Box<dyn Session + '_>, Error>;

    /// Makes all that returned durable: called every [`GROUP_MS`] for stores that leave that to their user.
    fn sync(&self) -> Result<(), Error>;

    /// Returns true if [`Class::Group`] is kept without calls of [`Store::sync`].
    fn syncs_by_itself(&self) -> bool {
        false
    }

    /// Brings files and background work to rest: memtables written, compactions done.
    fn settle(&self) -> Result<(), Error> {
        self.sync()
    }

    /// Bytes that hold the tuples, where that is not what the directory takes up.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// Closes it in order.
    fn close(self: Box<Self>) -> Result<(), Error>;
}

/// One thread's view of a store.
pub trait Session {
    /// Carries out operations in order. Each write is durable as the store's class says.
    fn run(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error>;

    /// Reads all keys of a slice of gets in one call, where the store has one.
    fn get_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        self.run(ops, tally)
    }

    /// Carries out a slice of inserts, updates and deletes in one call, where the store has one. All of it is
    /// durable as the store's class says, counted from the end.
    fn write_many(&mut self, ops: &[Op], tally: &mut Tally) -> Result<(), Error> {
        self.run(ops, tally)
    }
}

/// Role of a contender in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One of our structures.
    Ours,
    /// The standard library's volatile map.
    Baseline,
    /// A store that keeps keys in a B-tree.
    BTreePeer,
    /// A store that keeps keys in an LSM-tree.
    LsmPeer,
}

/// Opens a store in a directory, or creates it.
pub type OpenPeer = fn(&Path, Class) -> Result<Box<dyn Store>, Error>;

/// A contender of the race.
pub struct Contender {
    /// Name in tables.
    pub name: &'static str,
    /// Role.
    pub role: Role,
    /// True if it keeps its keys in order.
    pub ordered: bool,
    /// True if it can be opened again: a volatile one takes part in [`Class::None`] only.
    pub durable: bool,
    /// True if its files belong on a file system in memory: on others the kernel writes back, in the middle
    /// of it, what stands in for persistent memory.
    pub in_memory: bool,
    /// Opens it.
    pub open: OpenPeer,
}

/// All that can take part in this build.
pub fn contenders() -> Vec<Contender> {
    let ours = |name, ordered, open| Contender {
        name,
        role: Role::Ours,
        ordered,
        durable: true,
        in_memory: false,
        open,
    };
    let mut all = vec![
        Contender {
            name: BTREE_MAP,
            role: Role::Baseline,
            ordered: true,
            durable: false,
            in_memory: false,
            open: btree_map::open,
        },
        ours(FPTREE, true, ours::open_fptree as OpenPeer),
        ours(HASH, false, ours::open_hash),
        Contender { durable: false, in_memory: true, ..ours(FPTREE_DAX, true, ours::open_fptree_dax) },
    ];
    all.extend(peers());
    all
}

/// A `BTreeMap` as a store.
pub fn volatile_map() -> Box<dyn Store> {
    btree_map::new()
}

/// The volatile baseline.
pub const BTREE_MAP: &str = "BTreeMap";
/// Our tree, on `journal`.
pub const FPTREE: &str = "FPTree";
/// Our tree with cache-line flushes and fences on an ordinary file, for the time that they take.
pub const FPTREE_DAX: &str = "FPTree, dax";
/// Our hash table, on `journal`.
pub const HASH: &str = "Hash table";

/// The stores of others; none without the feature `peers`.
#[cfg(feature = "peers")]
fn peers() -> Vec<Contender> {
    let peer =
        |name, role, open| Contender { name, role, ordered: true, durable: true, in_memory: false, open };
    vec![
        peer("LMDB", Role::BTreePeer, lmdb::open as OpenPeer),
        peer("redb", Role::BTreePeer, redb::open),
        peer("RocksDB", Role::LsmPeer, rocksdb::open),
        peer("fjall", Role::LsmPeer, fjall::open),
    ]
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Contender> {
    Vec::new()
}

/// An error of a peer.
#[cfg(feature = "peers")]
pub(crate) fn peer_error<E: std::fmt::Display>(peer: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::Peer { peer, error: error.to_string() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workload::OperationKind;

    /// Every store does what every operation says, in every class, and has it after it was opened again.
    #[test]
    fn all_stores_agree() {
        const TUPLES: u64 = 3000;
        let load: Vec<Op> = (0..TUPLES).map(|i| Op::new(OperationKind::Insert, i, 0)).collect();
        let change: Vec<Op> = (0..TUPLES)
            .map(|i| {
                let kind = [
                    OperationKind::Update,
                    OperationKind::Delete,
                    OperationKind::ReadModifyWrite,
                    OperationKind::Get,
                ][(i % 4) as usize];
                Op::new(kind, i, 9)
            })
            .collect();
        // New tuples, and some that were not deleted.
        let at_once: Vec<Op> = (0..90)
            .map(|i| match i % 3 {
                0 => Op::new(OperationKind::Insert, TUPLES + i, 3),
                1 => Op::new(OperationKind::Update, i * 4, 3),
                _ => Op::new(OperationKind::Delete, i * 4, 0),
            })
            .collect();
        let gets: Vec<Op> = (0..TUPLES).map(|i| Op::new(OperationKind::Get, i, 0)).collect();
        let scans: Vec<Op> = (0..200).map(|i| Op::new(OperationKind::Scan, i * 4, 50)).collect();
        for class in [Class::None, Class::Group, Class::Sync] {
            let mut tallies = Vec::new();
            for contender in contenders() {
                if !contender.durable && class != Class::None {
                    continue;
                }
                let dir = tempfile::TempDir::new().unwrap();
                let mut store = (contender.open)(dir.path(), Class::None).unwrap();
                let mut tally = Tally::default();
                store.session().unwrap().run(&load, &mut tally).unwrap();
                store.settle().unwrap();
                if contender.durable {
                    store.close().unwrap();
                    store = (contender.open)(dir.path(), class).unwrap();
                }
                // Few where each is synced.
                let changes = if class == Class::Sync { 40 } else { change.len() };
                let mut session = store.session().unwrap();
                session.run(&change[..changes], &mut tally).unwrap();
                assert_eq!((tally.right, tally.wrong), (TUPLES + changes as u64, 0), "{}", contender.name);
                session.write_many(&at_once, &mut tally).unwrap();
                assert_eq!(
                    (tally.right, tally.wrong),
                    (TUPLES + (changes + 90) as u64, 0),
                    "{}",
                    contender.name
                );
                let mut read = Tally::default();
                session.get_many(&gets, &mut read).unwrap();
                let mut again = Tally::default();
                session.run(&gets, &mut again).unwrap();
                assert_eq!(read, again, "{}", contender.name);
                assert_eq!(read.wrong, changes as u64 / 4 + 30, "{}: what was deleted", contender.name);
                if contender.ordered {
                    session.run(&scans, &mut read).unwrap();
                    tallies.push((contender.name, read));
                }
                drop(session);
                store.close().unwrap();
            }
            assert!(tallies.iter().all(|(_, tally)| *tally == tallies[0].1), "{tallies:?}");
        }
    }
}
