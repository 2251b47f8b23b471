//! Tools for the files of a database: `entresol check`, `entresol info`, `entresol backup`.
//!
//! They change no byte: check and info open a database through [`OverlayFiles`], on which the usual recovery
//! runs and whose writes are discarded. (On persistent memory there is no such layer: there they open it as
//! usual.)

pub mod backup;
pub mod check;
pub mod info;

use entresol::memory::env::{Env, OverlayFiles};
use entresol::memory::{self, Pool, PoolOptions};
use entresol::tables::Catalog;
use entresol::transactions::StateContext;
use std::path::Path;
use std::sync::Arc;

/// Opens the pool of a directory without changing its files.
fn open_read_only(directory: &Path) -> memory::Result<Arc<Pool>> {
    let env = match Pool::inspect(directory)?.journal {
        Some(_) => Env::real().with_files(Arc::new(OverlayFiles::new())),
        None => Env::real(),
    };
    Pool::open(directory, &PoolOptions { env, ..PoolOptions::default() })
}

/// The catalog of an open pool.
fn catalog_of(pool: &Arc<Pool>) -> entresol::Result<Arc<Catalog>> {
    let context = StateContext::open_or_create(Arc::clone(pool))?;
    Ok(Catalog::open_or_create(context)?)
}

/// The UUID of a pool in its usual form.
fn uuid_text(uuid: [u64; 2]) -> String {
    let [high, low] = uuid;
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
}

/// A number of bytes with a unit.
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_uuids_are_readable() {
        assert_eq!([0, 1023, 1024, 1_572_864].map(bytes_text), ["0 B", "1023 B", "1.0 KiB", "1.5 MiB"]);
        let uuid = uuid_text([0x0123_4567_89ab_cdef, 0x0011_2233_4455_6677]);
        assert_eq!(uuid, "01234567-89ab-cdef-0011-223344556677");
    }
}
