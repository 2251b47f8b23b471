//! Files of tables: rows made by several threads, written in order.
//!
//! Memory: at most two chunks of [`CHUNK_UNITS`] for each thread.

use super::Rows;
use crate::error::{Error, Result};
use crate::progress::Progress;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Units that a thread makes at once; about 1.5 MB of orders.
const CHUNK_UNITS: u64 = 4096;

/// Lines made by a thread.
struct Chunk {
    bytes: Vec<u8>,
    rows: u64,
}

/// Writes a table to a file, which has its name when it is complete; returns rows and bytes.
pub(super) fn write_table(
    path: &Path,
    rows: &(dyn Rows + Sync),
    threads: usize,
    progress: &mut Progress,
) -> Result<(u64, u64)> {
    let partial = PartialFile { path: partial_path(path) };
    let failed = |error| Error::file("write", &partial.path, error);
    let mut file = File::create(&partial.path).map_err(failed)?;
    let chunks = rows.units().div_ceil(CHUNK_UNITS);
    let (mut written, mut bytes) = (0, 0);
    thread::scope(|scope| {
        let makers: Vec<Receiver<Chunk>> = (0..threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(1);
                scope.spawn(move || {
                    for number in (first as u64..chunks).step_by(threads) {
                        // The receiver is gone if the file could not be written.
                        if sender.send(chunk(rows, number)).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        for number in 0..chunks {
            let chunk = makers[number as usize % threads].recv();
            let chunk = chunk.expect("a thread sends all of its chunks, unless it panics");
            file.write_all(&chunk.bytes).map_err(failed)?;
            (written, bytes) = (written + chunk.rows, bytes + chunk.bytes.len() as u64);
            progress.tick(written, (number + 1) as f64 / chunks as f64);
        }
        Ok::<(), Error>(())
    })?;
    fs::rename(&partial.path, path).map_err(|error| Error::file("write", path, error))?;
    Ok((written, bytes))
}

fn chunk(rows: &(dyn Rows + Sync), number: u64) -> Chunk {
    let first = number * CHUNK_UNITS;
    let mut bytes = Vec::new();
    let rows = rows.write(first..(first + CHUNK_UNITS).min(rows.units()), &mut bytes);
    Chunk { bytes, rows }
}

fn partial_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".partial");
    PathBuf::from(name)
}

/// File that is removed, unless it was renamed.
struct PartialFile {
    path: PathBuf,
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // It is not there any more if the table is complete.
        let _ = fs::remove_file(&self.path);
    }
}
