//! The device as it is without us.

use super::Sizes;
use crate::measure::{Random, median};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::env::{Files, OpenMode, RealFiles, StorageFile};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

pub(super) const BLOCK_BYTES: usize = 4096;
const READ_BLOCKS: usize = 256;

/// Blocks that start at a multiple of their size, as direct I/O wants it.
#[repr(align(4096))]
struct Blocks<const N: usize>([[u8; BLOCK_BYTES]; N]);

/// A file of 4 KiB blocks.
pub(super) struct Device {
    file: Box<dyn StorageFile>,
    blocks: usize,
}

static BLOCK: Blocks<1> = Blocks([[7; BLOCK_BYTES]]);

fn failed(error: std::io::Error) -> Error {
    Error::Io { action: "use the device".to_string(), error }
}

impl Device {
    pub(super) fn new(path: &Path, blocks: usize, preallocated: bool) -> Result<Device, Error> {
        drop(RealFiles.open(path, OpenMode::Create).map_err(failed)?);
        let file = RealFiles.open(path, OpenMode::OpenDirect).map_err(failed)?;
        let device = Device { file, blocks };
        if preallocated {
            (0..blocks).try_for_each(|block| device.write(block)).map_err(failed)?;
            device.file.sync_data().map_err(failed)?;
        }
        Ok(device)
    }

    fn write(&self, block: usize) -> std::io::Result<()> {
        self.file.write_at(BLOCK.0.as_flattened(), (block * BLOCK_BYTES) as u64)
    }

    /// Writes and syncs block after block; syncs a second.
    pub(super) fn rate(&self, syncs: usize) -> Result<f64, Error> {
        let start = Instant::now();
        for i in 0..syncs {
            self.write(i % self.blocks).and_then(|()| self.file.sync_data()).map_err(failed)?;
        }
        Ok(syncs as f64 / start.elapsed().as_secs_f64())
    }
}

/// MB a second of reading a file past the page cache, in large pieces, one after the other.
pub(super) fn read_rate(path: &Path) -> Result<f64, Error> {
    let file = RealFiles.open(path, OpenMode::OpenDirect).map_err(failed)?;
    let mut blocks: Box<Blocks<READ_BLOCKS>> = Box::new(Blocks([[0; BLOCK_BYTES]; READ_BLOCKS]));
    let (start, mut at) = (Instant::now(), 0);
    let bytes = file.len().map_err(failed)?;
    while at + (READ_BLOCKS * BLOCK_BYTES) as u64 <= bytes {
        file.read_at(blocks.0.as_flattened_mut(), at).map_err(failed)?;
        at += (READ_BLOCKS * BLOCK_BYTES) as u64;
    }
    Ok(at as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// Scattered pages, as a checkpoint writes them: one after the other, side by side, and through the page
/// cache.
pub(super) fn pages_one_by_one_and_many(
    options: &RunOptions,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<(), Error> {
    let blocks = sizes.commits * 16;
    let dir = options.database_dir()?;
    let path = dir.path().join("pages");
    let direct = Device::new(&path, blocks, true)?;
    let cached = RealFiles.open(&path, OpenMode::Open).map_err(failed)?;
    let mut random = Random::new(options.seed);
    let mut rates = [(); 3].map(|()| Vec::new());
    for _ in 0..sizes.rounds {
        let offsets = (0..blocks).filter(|_| random.below(4) == 0).map(|block| (block * BLOCK_BYTES) as u64);
        let writes: Vec<(u64, &[u8])> = offsets.map(|offset| (offset, BLOCK.0.as_flattened())).collect();
        let one_by_one =
            |file: &dyn StorageFile| writes.iter().try_for_each(|(at, bytes)| file.write_at(bytes, *at));
        for (rates, way) in rates.iter_mut().zip(0..) {
            let start = Instant::now();
            let written = match way {
                0 => one_by_one(&*direct.file).and_then(|()| direct.file.sync_data()),
                1 => direct.file.write_many(&writes).and_then(|()| direct.file.sync_data()),
                _ => one_by_one(&*cached).and_then(|()| cached.sync_data()),
            };
            written.map_err(failed)?;
            let bytes = writes.len() * BLOCK_BYTES;
            rates.push(bytes as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
    }
    let [one, many, cached] = rates.map(|rates| median(&rates));
    report.row(json!({
        "scattered_pages_one_by_one_mb_per_s": one,
        "scattered_pages_many_at_once_mb_per_s": many,
        "scattered_pages_through_the_cache_mb_per_s": cached,
        "io_uring": direct.file.writes_in_parallel().to_string(),
    }));
    Ok(())
}
