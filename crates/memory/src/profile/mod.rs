//! Device profiles: the costs of a medium, as data.
//!
//! A profile is a TOML file: latencies, block size, write-combining buffer, caches in front, and bandwidth by
//! threads × access size × direction × pattern. [`crate::Pool::modelled`] bills a pool by one;
//! [`Profile::bandwidth_gb_per_s`] predicts a workload; [`crate::placement`] derives its limits from one.
//! Every figure in the files has its source beside it.
//!
//! Nothing here measures or reads a clock: the same profile and the same accesses give the same numbers on
//! every machine (only additions, multiplications and divisions of floating-point numbers, which are exact by
//! IEEE 754).
//!
//! A file that lacks a figure, has an unknown one or one out of range is refused with the file, the field and
//! the value.

mod bandwidth;
mod check;
mod curve;
mod parse;

pub use bandwidth::{
    Access, Bandwidth, Direction, FarAccess, MixedAccess, Pattern, Patterns, SocketPlacement, Sockets,
    Workload,
};
pub use curve::{Curve, ThreadCurve};

use crate::error::{Error, Result};
use std::path::Path;

/// Costs of a medium. See the files in `profiles/` for the figures and their sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Name of the medium.
    pub name: String,
    /// Sources of the figures.
    pub sources: Vec<String>,
    /// Sizes and counts of the device.
    pub medium: Medium,
    /// Reading.
    pub read: Read,
    /// Writing.
    pub write: Write,
    /// Caches of the processor, the nearest first. Each includes the nearer ones.
    pub caches: Vec<Cache>,
    /// Bandwidth of one socket's memory, used from that socket by pinned threads.
    pub bandwidth: Bandwidth,
    /// Access from the other socket.
    pub far: Option<FarAccess>,
    /// Bandwidth of both sockets at once.
    pub sockets: Option<Sockets>,
    /// Bandwidth of readers beside writers.
    pub mixed: Option<MixedAccess>,
}

/// Sizes and counts of the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Medium {
    /// Unit of transfer between device and processor: a cache line for memory, a page for a disk.
    pub transfer_bytes: u64,
    /// Unit that the device reads and writes internally: writing less costs a read of the rest.
    pub block_bytes: u64,
    /// Bytes on one module before the next module.
    pub interleave_bytes: u64,
    /// Number of modules (DIMMs) of a socket that work in parallel.
    pub modules: u64,
}

/// Costs of reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// Idle latency of one transfer in sequence.
    pub sequential_ns: f64,
    /// Idle latency of one transfer at a random address.
    pub random_ns: f64,
    /// Number of blocks that each module buffers after reading them.
    pub buffer_blocks: u64,
    /// Maximum number of transfers of one core in flight.
    pub in_flight_max: u64,
}

/// Costs of writing.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Processor time of issuing one flush.
    pub flush_ns: f64,
    /// Time from the flush until the transfer is safe from a power failure, with empty queues: a fence waits
    /// for it.
    pub accept_ns: f64,
    /// Number of open blocks of each module in which writes are combined.
    pub combining_blocks: u64,
    /// Number of transfers that may be accepted before they are on the medium.
    pub queue_transfers: u64,
    /// True if a flushed line stays in the caches.
    pub flush_keeps_line: bool,
}

/// One level of cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Name of the level.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Associativity: lines of a set.
    pub ways: u64,
    /// Time of an access that hits this level.
    pub hit_ns: f64,
}

/// Profiles that come with the crate: name and content.
const EMBEDDED: &[(&str, &str)] = &[
    ("optane-dcpmm", include_str!("../../profiles/optane-dcpmm.toml")),
    ("dram", include_str!("../../profiles/dram.toml")),
    ("cxl-dram", include_str!("../../profiles/cxl-dram.toml")),
    ("nvme", include_str!("../../profiles/nvme.toml")),
];

impl Profile {
    /// Names of the profiles that come with the crate.
    pub fn embedded_names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// Profile that comes with the crate.
    pub fn embedded(name: &str) -> Result<Profile> {
        let found = EMBEDDED.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            let known = Profile::embedded_names().collect::<Vec<_>>().join(", ");
            Error::Invalid(format!("unknown device profile '{name}'; known are: {known}"))
        })?;
        Profile::parse(text, Path::new(&format!("{name}.toml")))
    }

    /// Reads a profile file.
    pub fn load(path: &Path) -> Result<Profile> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read profile", path, &e))?;
        Profile::parse(&text, path)
    }

    /// Parses a profile; `path` names it in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Profile> {
        let refuse = |what: String| Error::Invalid(format!("device profile {}: {what}", path.display()));
        let profile = parse::profile(text).map_err(refuse)?;
        profile.check().map_err(refuse)?;
        Ok(profile)
    }

    /// Number of transfers of a block.
    pub fn transfers_per_block(&self) -> u64 {
        self.medium.block_bytes / self.medium.transfer_bytes
    }

    /// Latency of a transfer whose block the device has read already. A sequential reader waits once for a
    /// block and then reads the rest of it from the buffer; the mean is the sequential latency.
    pub fn buffered_read_ns(&self) -> f64 {
        let count = self.transfers_per_block() as f64;
        if count == 1.0 {
            return self.read.sequential_ns;
        }
        (self.read.sequential_ns * count - self.read.random_ns) / (count - 1.0)
    }
}
