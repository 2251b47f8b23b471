//! `entresol backup DIR DEST`: a copy of a database, complete or not there at all.

use super::{bytes_text, check};
use crate::arguments::BackupArguments;
use crate::error::{Error, Result};
use crate::shell::output;
use entresol::memory::{Pool, PoolOptions};
use std::io::Write;

/// Runs `entresol backup`.
pub fn run(arguments: &BackupArguments) -> Result<()> {
    let destination = &arguments.destination;
    let pool = match Pool::open(&arguments.dir, &PoolOptions::default()) {
        Err(error @ entresol::memory::Error::Busy { .. }) => {
            return Err(Error::Invalid(format!(
                "{error}. The process that has it open makes the backup: BACKUP TO '{}' in its shell or in a \
                 session, or Database::backup",
                destination.display()
            )));
        }
        opened => opened.map_err(entresol::Error::from)?,
    };
    let report = match entresol::offline::catalog(&pool) {
        Ok(catalog) => catalog.backup(destination).map_err(entresol::Error::from)?,
        // The files of a damaged database are copied as they are.
        Err(_) => pool.backup(destination).map_err(entresol::Error::from)?,
    };
    drop(pool);
    let mut out = output::stdout();
    writeln!(
        out,
        "{}: {} of pool, {} of journal, in {:.1} s",
        destination.display(),
        bytes_text(report.pool_bytes),
        bytes_text(report.journal_bytes),
        report.duration_ns as f64 / 1e9
    )?;
    if arguments.verify {
        let found = check::check(destination, |what| eprintln!("{what}"))?;
        if let Some(problem) = found.problems.first() {
            return Err(Error::Check(format!(
                "the backup {} is not sound (and so is the database, most likely): {problem}",
                destination.display()
            )));
        }
        writeln!(out, "verified: {} tables, {} objects, no problems", found.tables.len(), found.objects)?;
    }
    Ok(out.flush()?)
}
