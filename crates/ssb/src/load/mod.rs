//! Loader: `.tbl` files into the five tables of a database.
//!
//! ```text
//!   file ─▶ lines ─▶ batches of columns (a thread of their own) ─▶ Table::append ─▶ commits of 131,072 rows
//! ```
//!
//! - All tables are created and filled under other names ([`loading_name`]), and take their own when the last
//!   one is complete ([`swap`]). An error leaves the tables of the database as they were. So does a process that
//!   is killed before the change of names; what it leaves under the other names is dropped by the next load.
//! - Commits are not durable at once, but for the last one of a table; the change of names waits for the disk.
//! - Memory: two batches of [`lines::BATCH_ROWS`] rows, the write set of a commit, and the database's own.

mod lines;
mod schema;
mod swap;

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::tables::{TABLES, file};
use crate::{Layout, LoadArguments};
use entresol::arrow::record_batch::RecordBatch;
use entresol::{Database, Durability, Options, Table};
use lines::{Batch, Reader};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use swap::{Staging, loading_name};

/// Layout without `--layout`.
pub const LAYOUT_DEFAULT: Layout = Layout::Columns;

/// Rows of a commit.
const COMMIT_ROWS: u64 = 131_072;

/// A table that was loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedTable {
    /// The table.
    pub table: &'static str,
    /// Its rows.
    pub rows: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Loads the files; see the [module](self).
pub fn load(arguments: &LoadArguments) -> Result<Vec<LoadedTable>> {
    let LoadArguments { files, dir, layout, force, memory } = arguments;
    check_files(files)?;
    let options = Options { memory_max: *memory, starts_topologies: false, ..Options::default() };
    let database = Database::open(dir, options)?;
    let loaded = load_into(&database, dir, files, *layout, *force);
    let closed = database.close();
    let loaded = loaded?;
    closed?;
    Ok(loaded)
}

/// Returns an error that names all files that are not there.
fn check_files(files: &Path) -> Result<()> {
    let missing = TABLES.iter().map(|table| file(files, table)).filter(|path| !path.is_file());
    let missing: Vec<String> = missing.map(|path| path.display().to_string()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let advice = "entresol ssb generate --sf 1 --out DIR writes such files";
    Err(Error::Invalid(format!("there is no file {}: {advice}", missing.join(", "))))
}

fn load_into(
    database: &Database,
    dir: &Path,
    files: &Path,
    layout: Layout,
    force: bool,
) -> Result<Vec<LoadedTable>> {
    swap::recover(database)?;
    swap::check_names(database, dir, force)?;
    let mut staging = Staging::create(database, layout)?;
    let loaded: Result<Vec<LoadedTable>> =
        TABLES.iter().map(|table| load_table(database, table, &file(files, table))).collect();
    match loaded.and_then(|loaded| staging.take_names().map(|()| loaded)) {
        Ok(loaded) => {
            // The tables that were replaced.
            swap::recover(database)?;
            Ok(loaded)
        }
        Err(error) => {
            let state = match staging.drop_tables() {
                Ok(()) => format!("nothing was loaded: the tables in {} are as they were", dir.display()),
                Err(dropping) => {
                    format!("what was loaded remains in tables named {}: {dropping}", loading_name("..."))
                }
            };
            Err(Error::Load { source: Box::new(error), state })
        }
    }
}

fn load_table(database: &Database, name: &'static str, path: &Path) -> Result<LoadedTable> {
    let table = database.catalog().table(&loading_name(name)).map_err(entresol::Error::from)?;
    let mut reader = Reader::open(path, &table)?;
    let mut progress = Progress::new(name);
    let mut loader = Loader { database, table, path, transaction: None, uncommitted: 0, rows: 0 };
    thread::scope(|scope| {
        let (sender, batches) = sync_channel::<Result<Batch>>(2);
        scope.spawn(move || {
            while let Some(batch) = reader.next_batch().transpose() {
                let is_last = batch.is_err();
                // The receiver is gone if a batch could not be written.
                if sender.send(batch).is_err() || is_last {
                    return;
                }
            }
        });
        for batch in batches {
            let Batch { rows, first_line, share } = batch?;
            loader.append(&rows, first_line)?;
            progress.tick(loader.rows, share);
        }
        loader.finish()
    })?;
    // Rows that came by their keys are row by row still.
    loader.table.merge(|_| Ok(())).map_err(entresol::Error::from)?;
    progress.finish(loader.rows);
    Ok(LoadedTable { table: name, rows: loader.rows, seconds: progress.seconds() })
}

/// Writer of batches in several commits.
struct Loader<'d> {
    database: &'d Database,
    table: Arc<Table>,
    path: &'d Path,
    transaction: Option<Arc<entresol::Transaction>>,
    uncommitted: u64,
    /// Rows in all.
    rows: u64,
}

impl Loader<'_> {
    /// Appends a batch that begins with this line of the file.
    fn append(&mut self, rows: &RecordBatch, first_line: u64) -> Result<()> {
        let transaction = match &self.transaction {
            Some(transaction) => Arc::clone(transaction),
            None => self.database.begin()?,
        };
        self.table.append(&transaction, rows).map_err(|error| self.of_lines(rows, first_line, &error))?;
        self.transaction = Some(transaction);
        self.rows += rows.num_rows() as u64;
        self.uncommitted += rows.num_rows() as u64;
        if self.uncommitted >= COMMIT_ROWS { self.commit(Durability::None) } else { Ok(()) }
    }

    /// Commits what is left, and waits until all of it is durable.
    fn finish(&mut self) -> Result<()> {
        self.commit(Durability::Sync)
    }

    fn commit(&mut self, durability: Durability) -> Result<()> {
        self.uncommitted = 0;
        if let Some(transaction) = self.transaction.take() {
            transaction.commit(durability).map_err(entresol::Error::from)?;
        }
        Ok(())
    }

    /// An error of a batch, such as a key that is there twice, under the table's own name.
    fn of_lines(&self, rows: &RecordBatch, first_line: u64, error: &entresol::tables::Error) -> Error {
        let last_line = first_line + rows.num_rows() as u64 - 1;
        let message = error.to_string().replace(&loading_name(""), "");
        Error::Invalid(format!("{}, lines {first_line} to {last_line}: {message}", self.path.display()))
    }
}
