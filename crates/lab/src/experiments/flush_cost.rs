//! Cost of making lines durable: a store, a store and a flush, a fence after it, and N lines with one fence
//! or a fence each; on DRAM, on the instructions of `dax`, on `journal` at `none`, and on modelled Optane.

use crate::asked::AskedFigure;
use crate::measure::{median, ns_per_operation};
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::profile::Profile;
use entresol_memory::{DomainChoice, Durability, Pool, PoolOffset, PoolOptions};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const OBJECT_BYTES: usize = 8 << 20;
const LINE_BYTES: u64 = 64;
const LINES: [u64; 5] = [1, 2, 4, 8, 16];

/// Flushes and fences behind the stores of an operation.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Nothing,
    Flush,
    OneFence,
    FenceEach,
}

const ORDERS: [(Order, &str); 4] = [
    (Order::Nothing, "store"),
    (Order::Flush, "store, flush"),
    (Order::OneFence, "store, flush, one fence"),
    (Order::FenceEach, "store, flush, a fence a line"),
];

struct Bench {
    name: &'static str,
    pool: Arc<Pool>,
    start: PoolOffset,
    // Removed after the pool is closed.
    _dir: Option<tempfile::TempDir>,
}

impl Bench {
    fn new(name: &'static str, pool: Arc<Pool>, dir: Option<tempfile::TempDir>) -> Result<Bench, Error> {
        let reservation = pool.reserve(OBJECT_BYTES)?;
        let start = reservation.offset();
        let mut publication = pool.publication();
        publication.allocate(reservation);
        publication.publish()?;
        pool.words(start, OBJECT_BYTES / 8).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Ok(Bench { name, pool, start, _dir: dir })
    }

    /// Each operation on lines of its own, in order; around the object again and again.
    fn work(&self, order: Order, lines: u64, operations: u64, value: u64) {
        let most = OBJECT_BYTES as u64 / LINE_BYTES / lines;
        for operation in 0..operations {
            let at = self.start.plus(operation % most * lines * LINE_BYTES);
            for line in 0..lines {
                let offset = at.plus(line * LINE_BYTES);
                self.pool.word(offset).store(value + operation, Ordering::Relaxed);
                if order == Order::FenceEach {
                    self.pool.flush(offset, 8);
                    self.pool.fence();
                }
            }
            if matches!(order, Order::Flush | Order::OneFence) {
                for line in 0..lines {
                    self.pool.flush(at.plus(line * LINE_BYTES), 8);
                }
            }
            if order == Order::OneFence {
                self.pool.fence();
            }
        }
    }

    /// Nanoseconds of an operation: by the clock, or by the model.
    fn ns(&self, order: Order, lines: u64, operations: u64, value: u64) -> Result<f64, Error> {
        if let Some(before) = self.pool.modelled_cost() {
            self.work(order, lines, operations, value);
            let cost = self.pool.modelled_cost().map_or(0.0, |after| (after - before).ns());
            return Ok(cost / operations as f64);
        }
        ns_per_operation(operations as usize, || {
            self.work(order, lines, operations, value);
            Ok(())
        })
    }
}

fn benches(options: &RunOptions) -> Result<Vec<Bench>, Error> {
    let on = |domain| PoolOptions { domain, ..PoolOptions::default() };
    let mut benches = vec![Bench::new("volatile", Pool::volatile(&PoolOptions::default())?, None)?];
    let dir = options.database_dir()?;
    match Pool::create(dir.path(), &on(DomainChoice::DaxEmulated)) {
        Ok(pool) => benches.push(Bench::new("dax (emulated)", pool, Some(dir))?),
        // Processors that we have no flush instruction for.
        Err(entresol_memory::Error::Unsupported(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let dir = options.database_dir()?;
    let pool = Pool::create(dir.path(), &on(DomainChoice::Journal))?;
    benches.push(Bench::new("journal, none", pool, Some(dir))?);
    let optane = Profile::embedded("optane-dcpmm")?;
    benches.push(Bench::new("modelled Optane", Pool::modelled(&PoolOptions::default(), &optane)?, None)?);
    Ok(benches)
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let (operations, rounds) = if options.quick { (20_000, 1) } else { (20_000, 15) };
    let benches = benches(options)?;
    let mut medians = Vec::new();
    for lines in LINES {
        for (order, what) in ORDERS {
            let mut samples = vec![Vec::new(); benches.len()];
            // In turn, so that what disturbs the machine disturbs all.
            for round in 0..rounds {
                for (bench, samples) in benches.iter().zip(&mut samples) {
                    let value = (lines * 16 + round) << 32 | (what.len() as u64) << 24;
                    samples.push(bench.ns(order, lines, operations / lines, value)?);
                    bench.pool.persist(Durability::None)?;
                }
            }
            for (bench, samples) in benches.iter().zip(&samples) {
                let ns = median(samples);
                report.row(json!({"domain": bench.name, "lines": lines, "operation": what, "ns": ns}));
                medians.push((bench.name, lines, order, ns));
            }
        }
    }
    let of = |name: &str, lines: u64, order: Order| {
        let found = medians.iter().find(|(n, l, o, _)| *n == name && *l == lines && *o == order);
        found.map_or(f64::NAN, |(.., ns)| *ns)
    };
    for bench in &benches {
        report.figure(figure(bench.name, |lines, order| of(bench.name, lines, order)));
    }
    let journal = of("journal, none", 1, Order::OneFence) - of("journal, none", 1, Order::Nothing);
    report.asked(
        AskedFigure::at_most("flush and fence of a line over a store, journal, none", journal, 60.0)
            .unit("ns"),
    );
    let (one, each) =
        (of("modelled Optane", 16, Order::OneFence), of("modelled Optane", 16, Order::FenceEach));
    report.ratio("modelled Optane: 16 fences/one fence, 16 lines", each / one);
    report.check("modelled Optane: one fence for 16 lines is cheaper than a fence for each", one < each);
    report.check(
        "what was stored can be read",
        benches.iter().all(|bench| bench.pool.word(bench.start).load(Ordering::Relaxed) != 0),
    );
    Ok(())
}

fn figure(domain: &str, ns: impl Fn(u64, Order) -> f64) -> Figure {
    let series = ORDERS.iter().map(|(order, what)| Series {
        name: what.trim_start_matches("store, ").to_string(),
        points: LINES.iter().map(|lines| (lines.to_string(), ns(*lines, *order))).collect(),
    });
    Figure {
        title: format!("Making lines durable, {domain}"),
        x_label: "lines of an operation".to_string(),
        y_label: "ns".to_string(),
        series: series.collect(),
    }
}
