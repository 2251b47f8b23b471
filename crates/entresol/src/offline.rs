//! Databases that no process has open: read and checked without changing a byte.
//!
//! The usual recovery runs on [`OverlayFiles`], whose writes are discarded. (On persistent memory there is no
//! such layer: there the pool is opened as usual.)

use crate::error::{ErrorKind, Result};
use entresol_memory::env::{Env, OverlayFiles};
use entresol_memory::{Pool, PoolOptions};
use entresol_tables::{Catalog, CheckReport, Problem};
use entresol_transactions::StateContext;
use std::path::Path;
use std::sync::Arc;

/// Opens the pool of a directory without changing its files. Fails with [`ErrorKind::Busy`] if a process has
/// it open.
pub fn open(directory: &Path) -> Result<Arc<Pool>> {
    let env = if Pool::inspect(directory)?.journal.is_some() {
        Env::real().with_files(Arc::new(OverlayFiles::new()))
    } else {
        Env::real()
    };
    Ok(Pool::open(directory, &PoolOptions { env, ..PoolOptions::default() })?)
}

/// Catalog of an open pool.
pub fn catalog(pool: &Arc<Pool>) -> Result<Arc<Catalog>> {
    let context = StateContext::open_or_create(Arc::clone(pool))?;
    Ok(Catalog::open_or_create(context)?)
}

/// Checks every checksum, every object and every row of the database in a directory. Damage that prevents
/// opening is a problem of the report like others; fails if the database does not exist or is in use.
pub fn check(directory: &Path, mut progress: impl FnMut(&str)) -> Result<CheckReport> {
    progress("opening (headers, journal, allocation maps, indexes)");
    let checked = open(directory).and_then(|pool| Ok(entresol_tables::check(&catalog(&pool)?, progress)?));
    match checked {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            let problem = Problem {
                object: "all tables".to_owned(),
                file: None,
                offset: None,
                message: error.to_string(),
                advice: "restore a backup",
            };
            Ok(CheckReport { problems: vec![problem], ..CheckReport::default() })
        }
        checked => checked,
    }
}
