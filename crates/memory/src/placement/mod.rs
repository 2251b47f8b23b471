//! Placement policy: where threads run and memory lies, the number of writers, and the size of accesses.
//!
//! The bandwidth paper (section 7) ends in seven best practices; each is a call here:
//!
//! | practice | call |
//! | --- | --- |
//! | 1 distinct regions for reading and writing | [`Policy::regions`]: a share of the data for each worker |
//! | 2 many readers, 4 to 6 writers a socket | [`Policy::readers_per_socket`], [`Policy::writers_per_socket`] |
//! | 3 pin threads | [`Policy::cpus_of_socket`] and [`pin_thread`] |
//! | 4 data on all sockets, used from near | [`Policy::sockets`], [`Policy::node_of_worker`], [`bind_near`], [`prefer_node`] |
//! | 5 no large mixed workloads | [`Policy::serializes_mixed`] |
//! | 6 in sequence, or in large pieces | [`Policy::access_bytes`], [`Policy::small_access_bytes`] |
//! | 7 `devdax` | none: a pool is files; [`crate::DomainKind::Dax`] on a file system is 5 to 10% below it |
//!
//! Checkpoints write to a disk as its profile says: [`WriteSettings`].
//!
//! The limits come from a [`Profile`](crate::profile::Profile), so a calibrated machine gets its own.
//!
//! First touch: Linux puts a page on the node of the thread that touches it first. A pinned thread that fills
//! its own part of a pool therefore has near memory without asking; [`bind_near`] is for memory that another
//! thread touches first. On one node all of it does nothing.
//!
//! The node of a pool is that of its device ([`node_of_device`]); its background threads run there
//! ([`ThreadPlacement`]).

mod affinity;
mod device;
mod limits;
mod threads;
mod topology;
mod writing;

pub use affinity::{allowed_cpus, bind_near, pin_thread, prefer_node};
pub use device::node_of_device;
pub use limits::Limits;
pub use threads::ThreadPlacement;
pub use topology::{Cpu, Node, Topology, format_cpu_list, parse_cpu_list};
pub use writing::WriteSettings;

use crate::error::Result;
use crate::profile::Profile;
use std::ops::Range;

/// Placement policy of a machine and a medium.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    topology: Topology,
    limits: Limits,
}

impl Policy {
    /// Policy of a machine and a medium.
    pub fn new(topology: Topology, limits: Limits) -> Policy {
        Policy { topology, limits }
    }

    /// Policy of this machine, restricted to the processors of this process.
    pub fn of_this_machine(profile: &Profile) -> Result<Policy> {
        let topology = Topology::read()?.restricted_to(&allowed_cpus()?);
        Ok(Policy::new(topology, Limits::of(profile)))
    }

    /// Topology of the machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Socket numbers, ascending: data belongs on all of them in equal parts.
    pub fn sockets(&self) -> Vec<usize> {
        self.topology.sockets()
    }

    /// Processors of a socket in the order in which workers should take them: a physical core each first,
    /// then their hyperthreads.
    pub fn cpus_of_socket(&self, socket: usize) -> Vec<usize> {
        self.topology.cpus_of_socket(socket)
    }

    /// Number of threads that may write at once to a socket's memory: the medium's limit, and at most the
    /// number of cores.
    pub fn writers_per_socket(&self, socket: usize) -> usize {
        self.limits.writers_max.min(self.topology.cores_of_socket(socket)).max(1)
    }

    /// Number of threads that should read at once from a socket's memory: all cores, without hyperthreads.
    pub fn readers_per_socket(&self, socket: usize) -> usize {
        self.topology.cores_of_socket(socket).max(1)
    }

    /// Bytes to read and write in one access of a large transfer.
    pub fn access_bytes(&self) -> usize {
        self.limits.access_bytes
    }

    /// Bytes of the smallest access without amplification.
    pub fn small_access_bytes(&self) -> usize {
        self.limits.small_access_bytes
    }

    /// Returns true if large reads and large writes should take turns.
    pub fn serializes_mixed(&self) -> bool {
        self.limits.serializes_mixed
    }

    /// Node whose memory a worker should use: workers are assigned to the sockets in turn.
    pub fn node_of_worker(&self, worker: usize) -> usize {
        let cpu = self.cpu_of_worker(worker);
        self.topology.cpus().iter().find(|other| other.id == cpu).map_or(0, |cpu| cpu.node)
    }

    /// Processor of a worker: sockets in turn, on each a core of its own as long as there are any.
    pub fn cpu_of_worker(&self, worker: usize) -> usize {
        let sockets = self.sockets();
        let cpus = self.cpus_of_socket(sockets[worker % sockets.len()]);
        cpus[worker / sockets.len() % cpus.len()]
    }

    /// Splits `bytes` into one region for each worker, at multiples of the access size (the last may be
    /// shorter).
    pub fn regions(&self, bytes: u64, workers: usize) -> Vec<Range<u64>> {
        let access_bytes = self.limits.access_bytes as u64;
        let each = bytes.div_ceil(workers.max(1) as u64).next_multiple_of(access_bytes);
        (0..workers as u64).map(|i| (i * each).min(bytes)..((i + 1) * each).min(bytes)).collect()
    }
}
