//! Figure 14 of the bandwidth paper (SIGMOD 2021): the queries on persistent memory beside DRAM, by a layout that is
//! made for the medium and by one that is not.
//!
//! | | the paper | here |
//! | --- | --- | --- |
//! | aware | its own program: scans in sequence, indexes made for the medium | tables by columns: pages are read in sequence, dimensions become bitmaps in DRAM |
//! | unaware | Hyrise on persistent memory in place of DRAM | tables by rows: a tree of the medium is read row by row |
//!
//! The medium is modelled: each access of a query to the pool is billed by the profile of Optane, and in a second run
//! by that of DRAM. The time on Optane is the measured one plus the difference of both bills, for one thread; nothing
//! is cached in DRAM. Beside it are the times on the real medium, this machine's memory under the database file.

use super::{Star, make, rows_of};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::query::{Session, SessionOptions};
use entresol::tables::{CachePolicy, Catalog};
use entresol_memory::profile::Profile;
use entresol_memory::{Pool, PoolOptions};
use entresol_ssb::run::QUERIES;
use entresol_ssb::{Layout, TABLES};
use entresol_transactions::StateContext;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

const SCHEMA: &str = include_str!("../../../../ssb/schema.sql");

/// Layouts, and whether they are made for the medium.
const LAYOUTS: [(&str, Layout, bool); 2] =
    [("columns", Layout::Columns, true), ("rows", Layout::Rows, false)];

/// Paper's time on persistent memory beside DRAM: of all queries, of those with the least and the greatest ratio.
struct Paper {
    figure: &'static str,
    mean: f64,
    least: (&'static str, f64),
    greatest: (&'static str, f64),
}

const AWARE: Paper = Paper { figure: "figure 14b", mean: 1.66, least: ("3.3", 1.4), greatest: ("1.3", 3.0) };
const UNAWARE: Paper = Paper { figure: "figure 14a", mean: 5.3, least: ("3.1", 2.5), greatest: ("2.3", 7.7) };

/// Nanoseconds of the accesses of each query to a modelled medium, and the results.
struct Bill {
    ns: Vec<f64>,
    results: Vec<Vec<String>>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Invalid(error.to_string())
}

/// Runs the queries on tables of a layout over a modelled medium.
fn bill(files: &Path, layout: Layout, medium: &str) -> Result<Bill, Error> {
    let pool = Pool::modelled(&PoolOptions::default(), &Profile::embedded(medium)?)?;
    let catalog = Catalog::open_or_create(StateContext::open_or_create(Arc::clone(&pool))?)?;
    let options = SessionOptions { target_partitions: Some(1), ..SessionOptions::default() };
    let mut session = Session::new(catalog, options);
    let runtime = Runtime::new().map_err(failed)?;
    let clause = if layout == Layout::Columns { ") WITH (layout = 'columns');" } else { ");" };
    let schema = SCHEMA.replace(");\n", &format!("{clause}\n"));
    runtime.block_on(session.execute(&schema)).map_err(failed)?;
    for table in TABLES {
        let file = files.join(format!("{table}.tbl"));
        let copy = format!("COPY \"{table}\" FROM '{}' WITH (FORMAT csv, DELIMITER '|')", file.display());
        runtime.block_on(session.execute(&copy)).map_err(failed)?;
    }
    runtime.block_on(session.execute("VACUUM")).map_err(failed)?;
    let picoseconds = || pool.modelled_cost().map_or(0, |cost| cost.picoseconds);
    let mut bill = Bill { ns: Vec::new(), results: Vec::new() };
    for query in &QUERIES {
        // The first run plans it.
        runtime.block_on(session.query(query.sql)).map_err(failed)?;
        let before = picoseconds();
        let batches = runtime.block_on(session.query(query.sql)).map_err(failed)?;
        bill.ns.push((picoseconds() - before) as f64 / 1e3);
        bill.results.push(rows_of(&batches)?);
    }
    Ok(bill)
}

/// Runs the experiment.
pub(in crate::experiments) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sf = if options.quick { "0.001" } else { "0.1" };
    let dir = options.database_dir()?;
    make(dir.path(), sf, &LAYOUTS.map(|(name, layout, _)| (name, layout)), options.seed)?;
    let runs = if options.quick { 1 } else { 7 };
    let (mut series, mut results) = (Vec::new(), Vec::new());
    let mut real_of = Vec::new();
    for (name, layout, is_aware) in LAYOUTS {
        let real = real_seconds(&dir.path().join(name), runs)?;
        let files = dir.path().join("files");
        let optane = bill(&files, layout, "optane-dcpmm")?;
        let dram = bill(&files, layout, "dram")?;
        let mut ratios = Vec::new();
        for (at, query) in QUERIES.iter().enumerate() {
            let on_optane = real[at] + (optane.ns[at] - dram.ns[at]) / 1e9;
            ratios.push((query.name, on_optane / real[at]));
            report.row(json!({
                "query": query.name,
                "layout": name,
                "real_ms": 1e3 * real[at],
                "optane_ms": 1e3 * on_optane,
                "optane_accesses_ms": optane.ns[at] / 1e6,
                "dram_accesses_ms": dram.ns[at] / 1e6,
            }));
        }
        compare(report, if is_aware { &AWARE } else { &UNAWARE }, name, &ratios);
        let points = ratios.iter().map(|(query, ratio)| ((*query).to_owned(), *ratio)).collect();
        series.push(Series { name: format!("{name}: Optane to DRAM"), points });
        results.extend([optane.results, dram.results]);
        real_of.push((real.iter().sum::<f64>(), optane.ns.iter().sum::<f64>()));
    }
    report.check(
        "all results are those by columns on Optane",
        results.iter().all(|of_run| Some(of_run) == results.first()),
    );
    if let [(aware, of_aware), (unaware, of_unaware)] = real_of[..] {
        report.ratio("real medium: time by rows to that by columns", unaware / aware);
        report.ratio("modelled Optane: accesses by rows to those by columns", of_unaware / of_aware);
    }
    report.figure(Figure {
        title: "figure 14: the 13 queries on persistent memory".to_owned(),
        x_label: "query".to_owned(),
        y_label: "times the time on DRAM".to_owned(),
        series,
    });
    Ok(())
}

/// Least seconds of each query by one thread, with nothing in the cache of pages.
fn real_seconds(dir: &Path, runs: usize) -> Result<Vec<f64>, Error> {
    let mut star = Star::open(dir, Some(1))?;
    star.begin(CachePolicy::Lru, 0, None);
    star.run_all()?;
    let seconds = QUERIES.iter().map(|query| star.least(query.name, query.sql, runs));
    let seconds = seconds.collect::<Result<Vec<_>, _>>()?;
    star.close()?;
    Ok(seconds)
}

fn compare(report: &mut Report, paper: &Paper, layout: &str, ratios: &[(&str, f64)]) {
    let mean = ratios.iter().map(|(_, ratio)| ratio).sum::<f64>() / ratios.len() as f64;
    let figure = format!("by {layout}, mean of the queries: PMEM to DRAM");
    report.paper(paper.figure, &figure, &format!("{:.2}", paper.mean), Some(mean));
    for (query, ratio) in [paper.least, paper.greatest] {
        let ours = ratios.iter().find(|(name, _)| *name == query).map(|(_, ratio)| *ratio);
        let figure = format!("by {layout}, query {query}: PMEM to DRAM");
        report.paper(paper.figure, &figure, &format!("{ratio:.1}"), ours);
    }
}
