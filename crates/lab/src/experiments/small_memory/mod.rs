//! A table larger than the memory budget: it is loaded, scanned, updated whole in random order and read at
//! random, and resident memory is read through the whole run.
//!
//! The table has eight times the budget. Every row carries its key and the number of its updates, so each
//! phase checks what it reads. Asked: resident memory at most a tenth above the budget, at any time.
//!
//! With the feature `peers` also random reads and updates of a table twice the memory, beside LMDB and
//! RocksDB (`peers.rs`).

#[cfg(feature = "peers")]
pub mod peers;

use crate::asked::AskedFigure;
use crate::measure::Random;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol::{
    Column, DataType, Database, Durability, MemorySize, Options, Schema, Table, TableOptions, Transaction,
    Value,
};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a row's text; with key, version slots and index a row takes about 1 KiB.
const TEXT_BYTES: usize = 440;
/// Pool bytes of a row, to choose the number of rows by.
const ROW_BYTES: u64 = 1024;
const ROWS_PER_TRANSACTION: u64 = 1000;
/// Table to budget.
const TIMES_BUDGET: u64 = 8;
/// Largest quotient of resident memory and budget.
const RESIDENT_MAX: f64 = 1.1;
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// Points of the curve.
const POINTS_MAX: usize = 40;

struct Sizes {
    budget_bytes: u64,
    rows: u64,
    reads: u64,
}

impl Sizes {
    fn of(options: &RunOptions) -> Sizes {
        let (budget_bytes, reads) = if options.quick { (64 << 20, 20_000) } else { (512 << 20, 1_000_000) };
        let table_bytes = if options.quick { budget_bytes * 2 } else { budget_bytes * TIMES_BUDGET };
        Sizes { budget_bytes, rows: table_bytes / ROW_BYTES, reads }
    }
}

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let sizes = Sizes::of(options);
    let dir = options.database_dir()?;
    let settings = Options::default()
        .durability(Durability::None)
        .memory_max(MemorySize::Bytes(sizes.budget_bytes))
        .worker_threads(2);
    let database = Database::open(dir.path().join("db"), settings)?;
    let columns = vec![
        Column::new("id", DataType::BigInt),
        Column::new("n", DataType::BigInt),
        Column::new("t", DataType::Varchar),
    ];
    let table =
        database.catalog().create_table("large", Schema::new(columns, &["id"])?, TableOptions::default())?;
    let watch = Watch::default();
    let mut random = Random::new(options.seed);
    let curve = std::thread::scope(|scope| {
        let stop = StopOnDrop(&watch);
        let sampler = scope.spawn(|| watch.sample());
        let mut phases = Phases { database: &database, table: &table, sizes: &sizes, watch: &watch, report };
        phases.run("load", sizes.rows, |phases| phases.load())?;
        phases.run("full scan", sizes.rows, |phases| phases.scan(0))?;
        phases.run("random updates", sizes.rows, |phases| phases.update(&mut random))?;
        phases.run("full scan of updated rows", sizes.rows, |phases| phases.scan(1))?;
        phases.run("random reads", sizes.reads, |phases| phases.read(&mut random))?;
        drop(stop);
        Ok::<_, Error>(sampler.join().expect("the sampler does not panic"))
    })?;
    let peak = watch.peak.load(Ordering::Relaxed);
    report.row(json!({
        "phase": "all",
        "budget_bytes": sizes.budget_bytes,
        "pool_bytes": database.stats().pool.pool_bytes,
        "peak_resident_bytes": peak,
    }));
    let share = peak as f64 / sizes.budget_bytes as f64;
    report.asked(AskedFigure::at_most("resident memory to the budget", share, RESIDENT_MAX).tolerance(0.0));
    report.figure(figure(&curve, sizes.budget_bytes));
    drop(table);
    database.close()?;
    drop(database);
    #[cfg(feature = "peers")]
    peers::run(options, report)?;
    Ok(())
}

/// Stops the sampler, also when a phase fails.
struct StopOnDrop<'a>(&'a Watch);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Resident memory of this process over time.
#[derive(Default)]
struct Watch {
    stop: AtomicBool,
    peak: AtomicU64,
    phase_peak: AtomicU64,
}

impl Watch {
    fn sample(&self) -> Vec<(f64, u64)> {
        let (begin, mut samples) = (Instant::now(), Vec::new());
        while !self.stop.load(Ordering::Relaxed) {
            // A look that fails shows in the next one.
            if let Ok(bytes) = super::churn::resident_bytes() {
                self.peak.fetch_max(bytes, Ordering::Relaxed);
                self.phase_peak.fetch_max(bytes, Ordering::Relaxed);
                samples.push((begin.elapsed().as_secs_f64(), bytes));
            }
            std::thread::sleep(SAMPLE_EVERY);
        }
        samples
    }
}

struct Phases<'a> {
    database: &'a Database,
    table: &'a Table,
    sizes: &'a Sizes,
    watch: &'a Watch,
    report: &'a mut Report,
}

impl Phases<'_> {
    /// Runs one phase, which says whether what it saw was right.
    fn run(
        &mut self,
        name: &str,
        rows: u64,
        phase: impl FnOnce(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        self.watch.phase_peak.store(0, Ordering::Relaxed);
        let begin = Instant::now();
        let right = phase(self)?;
        let seconds = begin.elapsed().as_secs_f64();
        self.report.check(&format!("{name}: every row is what was written"), right);
        self.report.row(json!({
            "phase": name,
            "rows": rows,
            "rows_per_s": rows as f64 / seconds,
            "peak_resident_bytes": self.watch.phase_peak.load(Ordering::Relaxed),
        }));
        Ok(())
    }

    fn load(&mut self) -> Result<bool, Error> {
        for first in (0..self.sizes.rows).step_by(ROWS_PER_TRANSACTION as usize) {
            let last = (first + ROWS_PER_TRANSACTION).min(self.sizes.rows);
            self.transaction(|tx| {
                let rows: Vec<_> = (first..last).map(|id| row(id, 0)).collect();
                Ok(self.table.insert_many(tx, &rows)?)
            })?;
        }
        Ok(true)
    }

    fn scan(&mut self, updates: i64) -> Result<bool, Error> {
        let sql = format!(
            "SELECT count(*) FROM large WHERE n = {updates} AND t = lpad(id::VARCHAR, {TEXT_BYTES}, 'x')"
        );
        let batches = self.database.session()?.query(&sql)?;
        let count = entresol::arrow::util::display::array_value_to_string(batches[0].column(0), 0);
        Ok(count.is_ok_and(|count| count == self.sizes.rows.to_string()))
    }

    fn update(&mut self, random: &mut Random) -> Result<bool, Error> {
        let mut ids: Vec<u32> = (0..self.sizes.rows as u32).collect();
        random.shuffle(&mut ids);
        for ids in ids.chunks(ROWS_PER_TRANSACTION as usize) {
            self.transaction(|tx| {
                for &id in ids {
                    self.table.update(tx, &[Value::BigInt(i64::from(id))], &row(u64::from(id), 1))?;
                }
                Ok(())
            })?;
        }
        Ok(true)
    }

    fn read(&mut self, random: &mut Random) -> Result<bool, Error> {
        let mut right = true;
        for _ in 0..self.sizes.reads.div_ceil(ROWS_PER_TRANSACTION) {
            let tx = self.database.begin()?;
            for _ in 0..ROWS_PER_TRANSACTION {
                let id = random.below(self.sizes.rows);
                let found = self.table.get(&tx, &[Value::BigInt(id as i64)])?;
                right &= found == Some(row(id, 1));
            }
        }
        Ok(right)
    }

    fn transaction(&self, work: impl FnOnce(&Transaction) -> Result<(), Error>) -> Result<(), Error> {
        let tx = self.database.begin()?;
        work(&tx)?;
        tx.commit(Durability::None)?;
        Ok(())
    }
}

fn row(id: u64, updates: i64) -> Vec<Value> {
    let text = format!("{id:x>TEXT_BYTES$}");
    vec![Value::BigInt(id as i64), Value::BigInt(updates), Value::from(text.as_str())]
}

fn figure(curve: &[(f64, u64)], budget_bytes: u64) -> Figure {
    const MIB: f64 = (1u64 << 20) as f64;
    let step = curve.len().div_ceil(POINTS_MAX).max(1);
    let highest = |chunk: &[(f64, u64)]| {
        let bytes = chunk.iter().map(|(_, bytes)| *bytes).max().unwrap_or_default();
        (format!("{:.0}", chunk[0].0), bytes as f64 / MIB)
    };
    let resident: Vec<_> = curve.chunks(step).map(highest).collect();
    let budget = resident.iter().map(|(at, _)| (at.clone(), budget_bytes as f64 / MIB)).collect();
    Figure {
        title: "resident memory".to_owned(),
        x_label: "seconds".to_owned(),
        y_label: "MiB".to_owned(),
        series: vec![
            Series { name: "resident".to_owned(), points: resident },
            Series { name: "budget".to_owned(), points: budget },
        ],
    }
}
