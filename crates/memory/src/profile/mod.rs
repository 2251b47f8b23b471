//! Device profiles: what a medium costs, as data.
//!
//! A profile is a TOML file: latencies, block size, write-combining buffer, caches in front, and bandwidth by
//! threads × access size × direction × pattern. [`crate::Pool::modelled`] bills a pool by one;
//! [`Profile::bandwidth_gb_per_s`] answers for a whole workload; [`crate::placement`] derives its limits from
//! one. Every figure in the files stands beside its source.
//!
//! Nothing here measures or reads a clock: the same profile and the same accesses give the same numbers on every
//! machine (only additions, multiplications and divisions of floating-point numbers, which are exact by IEEE 754).
//!
//! A file that lacks a figure, has one too many or an absurd one is refused with the file, the field and the
//! value.

mod bandwidth;
mod check;
mod curve;
mod parse;

pub use bandwidth::{Access, Bandwidth, Direction, Far, Mixed, Pattern, Patterns, Place, Sockets, Workload};
pub use curve::{Curve, ThreadCurve};

use crate::error::{Error, Result};
use std::path::Path;

/// What a medium costs. See the files in `profiles/` for the figures and where they come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// What it describes.
    pub name: String,
    /// Where the figures come from.
    pub sources: Vec<String>,
    /// Sizes and counts of the device.
    pub medium: Medium,
    /// Reading.
    pub read: Read,
    /// Writing.
    pub write: Write,
    /// The processor's caches, the nearest first. Each holds all that the nearer ones hold.
    pub caches: Vec<Cache>,
    /// Bandwidth of one socket's memory, used from that socket by pinned threads.
    pub bandwidth: Bandwidth,
    /// Access from the other socket.
    pub far: Option<Far>,
    /// Both sockets at once.
    pub sockets: Option<Sockets>,
    /// Readers beside writers.
    pub mixed: Option<Mixed>,
}

/// Sizes and counts of the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Medium {
    /// What moves between device and processor: a cache line for memory, a page for a disk.
    pub transfer_bytes: u64,
    /// What the device reads and writes inside: writing less costs a read of the rest.
    pub block_bytes: u64,
    /// Bytes on one module before the next module's turn.
    pub interleave_bytes: u64,
    /// Modules (DIMMs) of a socket that work in parallel.
    pub modules: u64,
}

/// Reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// Idle latency of one transfer in sequence.
    pub sequential_ns: f64,
    /// Idle latency of one transfer anywhere.
    pub random_ns: f64,
    /// Blocks that each module keeps after reading them.
    pub buffer_blocks: u64,
    /// Transfers that one core can have under way.
    pub in_flight_max: u64,
}

/// Writing.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The processor's time to issue one flush.
    pub flush_ns: f64,
    /// From the flush until the transfer is safe from a power failure, with empty queues: what a fence waits for.
    pub accept_ns: f64,
    /// Open blocks of each module in which writes are combined.
    pub combining_blocks: u64,
    /// Transfers that may be accepted before they are on the medium.
    pub queue_transfers: u64,
    /// Whether a flushed line stays in the caches.
    pub flush_keeps_line: bool,
}

/// One level of cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// What it is called.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// Lines that may share a set.
    pub ways: u64,
    /// Time of an access that ends here.
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

    /// A profile that comes with the crate.
    pub fn embedded(name: &str) -> Result<Profile> {
        let found = EMBEDDED.iter().find(|(known, _)| *known == name);
        let (_, text) = found.ok_or_else(|| {
            let known = Profile::embedded_names().collect::<Vec<_>>().join(", ");
            Error::Invalid(format!("no device profile '{name}'; there are: {known}"))
        })?;
        Profile::parse(text, Path::new(&format!("{name}.toml")))
    }

    /// Reads a profile file.
    pub fn load(path: &Path) -> Result<Profile> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read profile", path, &e))?;
        Profile::parse(&text, path)
    }

    /// A profile from its text; `path` names it in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Profile> {
        let refuse = |what: String| Error::Invalid(format!("device profile {}: {what}", path.display()));
        let profile = parse::profile(text).map_err(refuse)?;
        profile.check().map_err(refuse)?;
        Ok(profile)
    }

    /// Transfers of a block.
    pub fn transfers_per_block(&self) -> u64 {
        self.medium.block_bytes / self.medium.transfer_bytes
    }

    /// Latency of a transfer whose block the device has read already. A sequential reader waits once for a block
    /// and then has the rest of it from the buffer; the mean is the sequential latency.
    pub fn buffered_read_ns(&self) -> f64 {
        let count = self.transfers_per_block() as f64;
        if count == 1.0 {
            return self.read.sequential_ns;
        }
        (self.read.sequential_ns * count - self.read.random_ns) / (count - 1.0)
    }
}
