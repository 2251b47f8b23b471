//! The Star Schema Benchmark on the product: caching policies on emulated drives ([`policies`]), the figures of the
//! HPCache paper ([`hpcache`]), persistent memory ([`media`]) and threads ([`steps`]).
//!
//! Drives are emulated under the cache of column pages, as fast beside processing as those of the HPCache paper: there
//! query 2.1 processes 14.7 GB/s in memory, and a drive delivers 5.78 GiB/s or 4.97 GiB/s. Here the speed of the query
//! is measured first, and a drive has the same part of it.

mod hpcache;
mod media;
mod policies;
mod steps;

pub(super) use hpcache::run as run_hpcache;
pub(super) use media::run as run_media;
pub(super) use policies::run as run_policies;
pub(super) use steps::run as run_steps;

use crate::{Error, RunOptions};
use entresol::arrow::array::RecordBatch;
use entresol::arrow::util::display::{ArrayFormatter, FormatOptions};
use entresol::tables::CachePolicy;
use entresol::{Database, MemorySize, Options, Session};
use entresol_ssb::generate::generate;
use entresol_ssb::load::load;
use entresol_ssb::run::QUERIES;
use entresol_ssb::{GenerateArguments, Layout, LoadArguments};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Memory budget: its quarter, which the cache may have, is more than the tables.
const MEMORY: MemorySize = MemorySize::Bytes(6 << 30);
/// Time for shares to follow queries.
const SETTLE: Duration = Duration::from_millis(500);
/// Speed of query 2.1 in memory and of the drives of the HPCache paper, in bytes per second.
const PAPER_QUERY: f64 = 14.7e9;
const PAPER_FIRST_DRIVE: f64 = 5780.0 * 1_048_576.0;
const PAPER_OTHER_DRIVE: f64 = 4970.0 * 1_048_576.0;

/// Database with the tables of the benchmark, and the results of its queries.
struct Star {
    database: Database,
    session: Session,
    results: BTreeMap<String, Vec<String>>,
    /// False once a query had another result than before.
    is_right: bool,
}

/// Query 2.1.
const QUERY: &str = "2.1";

/// Text of a query of the benchmark.
fn text(name: &str) -> Result<&'static str, Error> {
    let query = QUERIES.iter().find(|query| query.name == name);
    query.map(|query| query.sql).ok_or_else(|| Error::Invalid(format!("there is no query {name}")))
}

/// Scale factor of a run.
fn scale(options: &RunOptions) -> &'static str {
    if options.quick { "0.01" } else { "1" }
}

/// Makes the tables in a directory: files in `files`, databases in directories named by their layout.
fn make(dir: &Path, sf: &str, layouts: &[(&str, Layout)], seed: u64) -> Result<(), Error> {
    let failed = |error: entresol_ssb::Error| Error::Invalid(error.to_string());
    let out = dir.join("files");
    let sf = sf.parse().map_err(Error::Invalid)?;
    let arguments = GenerateArguments { sf, out: out.clone(), seed, threads: None, force: false };
    generate(&arguments).map_err(failed)?;
    for (name, layout) in layouts {
        let files = out.clone();
        load(&LoadArguments { files, dir: dir.join(name), layout: *layout, force: false, memory: MEMORY })
            .map_err(failed)?;
    }
    Ok(())
}

impl Star {
    /// Opens a database that [`make`] made.
    fn open(dir: &Path, threads: Option<usize>) -> Result<Star, Error> {
        let options = Options { worker_threads: threads, memory_max: MEMORY, ..Options::default() };
        let database = Database::open(dir, options.create_if_missing(false))?;
        let session = database.session()?;
        Ok(Star { database, session, results: BTreeMap::new(), is_right: true })
    }

    fn close(self) -> Result<(), Error> {
        drop(self.session);
        Ok(self.database.close()?)
    }

    /// Runs a query; returns its seconds.
    fn run(&mut self, name: &str, sql: &str) -> Result<f64, Error> {
        let began = Instant::now();
        let batches = self.session.query(sql)?;
        let seconds = began.elapsed().as_secs_f64();
        let rows = rows_of(&batches)?;
        match self.results.get(name) {
            Some(known) => self.is_right &= *known == rows,
            None => {
                self.results.insert(name.to_owned(), rows);
            }
        }
        Ok(seconds)
    }

    /// Runs all queries in order; returns the seconds of each.
    fn run_all(&mut self) -> Result<Vec<f64>, Error> {
        QUERIES.iter().map(|query| self.run(query.name, query.sql)).collect()
    }

    /// Least seconds of some runs: other load on the machine only lengthens them.
    fn least(&mut self, name: &str, sql: &str, runs: usize) -> Result<f64, Error> {
        (0..runs).try_fold(f64::INFINITY, |least, _| Ok(self.run(name, sql)?.min(least)))
    }

    /// Begins with an empty cache of so many bytes under a policy, on storage of a bandwidth in bytes per second.
    fn begin(&self, policy: CachePolicy, bytes: u64, storage: Option<f64>) {
        let catalog = self.database.catalog();
        catalog.limit_cache(0);
        catalog.set_cache_policy(policy);
        catalog.limit_cache(bytes);
        catalog.emulate_storage(storage);
    }

    /// Bytes of the cache after some queries, with room for all that they read.
    fn input_bytes(&mut self, queries: &[(&str, &str)]) -> Result<u64, Error> {
        self.begin(CachePolicy::Lru, u64::MAX, None);
        for (name, sql) in queries {
            self.run(name, sql)?;
        }
        Ok(self.database.catalog().page_cache_stats().bytes)
    }

    /// Returns true if the cache is within its limit.
    fn is_within_limit(&self) -> bool {
        let stats = self.database.catalog().page_cache_stats();
        stats.bytes <= stats.max_bytes
    }

    /// Bandwidths of one, two and four drives, beside the speed of query 2.1 with its input in memory.
    fn drives(&mut self, runs: usize) -> Result<[(&'static str, f64); 3], Error> {
        let sql = text(QUERY)?;
        let bytes = self.input_bytes(&[(QUERY, sql)])? as f64;
        let speed = bytes / self.least(QUERY, sql, runs)?;
        let of = |others: f64| (PAPER_FIRST_DRIVE + others * PAPER_OTHER_DRIVE) / PAPER_QUERY * speed;
        Ok([("1 drive", of(0.0)), ("2 drives", of(1.0)), ("4 drives", of(3.0))])
    }
}

/// Gives shares the time to follow the last queries.
fn settle() {
    std::thread::sleep(SETTLE);
}

/// Rows as strings, sorted: rows that ORDER BY does not tell apart may come in any order.
fn rows_of(batches: &[RecordBatch]) -> Result<Vec<String>, Error> {
    let options = FormatOptions::new();
    let invalid = |error: entresol::arrow::error::ArrowError| Error::Invalid(error.to_string());
    let mut rows = Vec::new();
    for batch in batches {
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
        let formatters = formatters.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        for row in 0..batch.num_rows() {
            let values: Vec<String> = formatters.iter().map(|values| values.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows.sort_unstable();
    Ok(rows)
}
