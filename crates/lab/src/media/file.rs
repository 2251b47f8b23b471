//! The disk: a preallocated file, read and written directly, past the page cache.

use super::Medium;
use super::memory::{Positions, workers};
use super::run::{self, Rounds, ThreadWork};
use crate::measure::{Random, median};
use crate::{Error, RunOptions};
use entresol_memory::Env;
use entresol_memory::env::{OpenMode, StorageFile};
use entresol_memory::placement::Policy;
use entresol_memory::profile::{Direction, SocketPlacement, Workload};
use std::hint::black_box;
use std::time::Instant;

/// Direct reads and writes need this alignment.
const PAGE: usize = 4096;

/// A file on the disk.
pub struct DirectFile {
    // Before the directory: closed before it is removed.
    file: Box<dyn StorageFile>,
    _dir: tempfile::TempDir,
    bytes: u64,
    rounds: Rounds,
    cpus: Vec<usize>,
    threads: Vec<u64>,
    access_bytes: Vec<u64>,
}

/// Bytes that start at a page's address.
struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    fn new(length: usize, fill: u8) -> AlignedBytes {
        let bytes = vec![fill; length + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        AlignedBytes { bytes, start, length }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

fn failed(verb: &str) -> impl Fn(std::io::Error) -> Error {
    let action = format!("{verb} the measured file");
    move |error| Error::Io { action: action.clone(), error }
}

impl DirectFile {
    /// A file of so many MiB in the run's directory, written once.
    pub fn new(options: &RunOptions, mib: u64, rounds: Rounds, policy: &Policy) -> Result<DirectFile, Error> {
        const FILL_BYTES: u64 = 1 << 20;
        let dir = options.database_dir()?;
        let path = dir.path().join("measured");
        let env = Env::real();
        let files = env.files();
        let bytes = mib * FILL_BYTES;
        drop(files.open(&path, OpenMode::Create).map_err(failed("create"))?);
        let file = files.open(&path, OpenMode::OpenDirect).map_err(failed("open"))?;
        file.allocate(0, bytes).map_err(failed("allocate"))?;
        let mut buffer = AlignedBytes::new(FILL_BYTES as usize, 0x5A);
        for i in 0..mib {
            file.write_at(buffer.get(), i * FILL_BYTES).map_err(failed("fill"))?;
        }
        file.sync_data().map_err(failed("sync"))?;
        Ok(DirectFile {
            file,
            _dir: dir,
            bytes,
            rounds,
            cpus: policy.cpus_of_socket(policy.sockets()[0]),
            threads: vec![1, 2, 4, 8],
            access_bytes: vec![4096, 16_384, 65_536, 262_144, 1 << 20],
        })
    }

    fn worker<'w>(&'w self, direction: Direction, mut positions: Positions) -> ThreadWork<'w> {
        let access_bytes = positions.access_bytes;
        let mut buffer = AlignedBytes::new(access_bytes as usize, 0xA5);
        Box::new(move || {
            let at = positions.next();
            match direction {
                Direction::Read => self.file.read_at(buffer.get(), at).map_err(failed("read"))?,
                Direction::Write => self.file.write_at(buffer.get(), at).map_err(failed("write"))?,
            }
            black_box(buffer.get()[0]);
            Ok(access_bytes)
        })
    }

    /// Nanoseconds of reading 4 KiB, in sequence and anywhere, and of writing 4 KiB and waiting until it is
    /// durable.
    pub fn latencies_ns(&self, seed: u64, reads: usize) -> Result<(f64, f64, f64), Error> {
        let pages = self.bytes / PAGE as u64;
        let mut buffer = AlignedBytes::new(PAGE, 1);
        let mut random = Random::new(seed);
        let mut timed = |at: &mut dyn FnMut(u64) -> u64, write: bool, count: usize| {
            let mut samples = Vec::new();
            for i in 0..count as u64 {
                let offset = at(i) * PAGE as u64;
                let start = Instant::now();
                if write {
                    self.file.write_at(buffer.get(), offset).map_err(failed("write"))?;
                    self.file.sync_data().map_err(failed("sync"))?;
                } else {
                    self.file.read_at(buffer.get(), offset).map_err(failed("read"))?;
                }
                samples.push(start.elapsed().as_nanos() as f64);
            }
            Ok::<f64, Error>(median(&samples))
        };
        let sequential = timed(&mut |i| i % pages, false, reads)?;
        let scattered = timed(&mut |_| random.below(pages), false, reads)?;
        let durable = timed(&mut |i| i % pages, true, reads.min(500))?;
        Ok((sequential, scattered, durable))
    }
}

impl Medium for DirectFile {
    fn name(&self) -> String {
        "file of this machine, direct".to_string()
    }

    fn threads(&self) -> &[u64] {
        &self.threads
    }

    fn access_bytes(&self) -> &[u64] {
        &self.access_bytes
    }

    fn cores(&self) -> u64 {
        self.cpus.len() as u64
    }

    fn has_far(&self) -> bool {
        false
    }

    /// As in the papers, a write counts when the device has taken it; durable it is after the sync that ends
    /// each round.
    fn measure(&self, workload: &Workload) -> Result<f64, Error> {
        let cpus = (workload.place != SocketPlacement::Unpinned).then_some(self.cpus.as_slice());
        let access = workload.access;
        let rate = run::gb_per_s(self.rounds, access.threads as usize, cpus, |round| {
            self.file.sync_data().map_err(failed("sync"))?;
            let workers = workers(workload).into_iter().map(|(direction, index, count)| {
                let shape = (access.pattern, access.access_bytes);
                self.worker(direction, Positions::new(shape, self.bytes, (index, count), round as u64))
            });
            Ok(workers.collect())
        })?;
        self.file.sync_data().map_err(failed("sync"))?;
        Ok(rate)
    }
}
