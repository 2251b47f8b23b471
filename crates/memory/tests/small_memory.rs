//! Pool several times as large as its budget: filled, scanned, updated and read at random, while the memory
//! of the process is watched. In a process of its own, since all of that process counts.
//!
//! `ENTRESOL_SMALL_MEMORY=512:4096` sets a budget of 512 MiB and a pool of 4,096 MiB, and prints durations; a
//! third number is the divisor of the rows that are updated (16: a sixteenth, the default; 1: all).

#![allow(clippy::unwrap_used)]

use entresol_memory::{DomainChoice, MemoryBudget, Pool, PoolOffset, PoolOptions};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const ROW_BYTES: u64 = 256;
const OBJECT_BYTES: u64 = 64 << 10;

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Records the greatest resident memory of the process until it is stopped.
fn watch(stop: &AtomicBool, greatest: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        greatest.fetch_max(resident_bytes(), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
}

struct Table {
    pool: Arc<Pool>,
    objects: Vec<PoolOffset>,
}

impl Table {
    fn rows(&self) -> u64 {
        self.objects.len() as u64 * (OBJECT_BYTES / ROW_BYTES)
    }

    fn row(&self, number: u64) -> PoolOffset {
        let rows = OBJECT_BYTES / ROW_BYTES;
        self.objects[(number / rows) as usize].block(number % rows, ROW_BYTES)
    }

    fn fill(pool: Arc<Pool>, bytes: u64) -> Table {
        let objects = (0..bytes / OBJECT_BYTES).map(|_| {
            let object = pool.reserve(OBJECT_BYTES as usize).unwrap();
            let at = object.offset();
            for row in (0..OBJECT_BYTES / ROW_BYTES).map(|row| at.block(row, ROW_BYTES)) {
                let words = pool.words(row, (ROW_BYTES / 8) as usize);
                words.iter().for_each(|word| word.store(row.to_word(), Ordering::Relaxed));
            }
            let mut publication = pool.publication();
            publication.flush(at, OBJECT_BYTES as usize);
            publication.allocate(object);
            publication.publish().unwrap();
            at
        });
        let objects = objects.collect();
        Table { pool, objects }
    }

    /// Adds one to a row's first word.
    fn update(&self, number: u64) {
        let row = self.row(number);
        self.pool.word(row).fetch_add(1, Ordering::Relaxed);
        self.pool.flush(row, 8);
        self.pool.fence();
    }

    /// Number of updates of the row.
    fn updates_of(&self, number: u64) -> u64 {
        let row = self.row(number);
        assert_eq!(self.pool.word(row.plus(ROW_BYTES).minus(8)).load(Ordering::Relaxed), row.to_word());
        self.pool.word(row).load(Ordering::Relaxed) - row.to_word()
    }

    fn scan(&self) -> u64 {
        (0..self.rows()).map(|number| self.updates_of(number)).sum()
    }
}

#[test]
fn a_pool_larger_than_memory_stays_within_its_budget() {
    let asked = std::env::var("ENTRESOL_SMALL_MEMORY").ok();
    // Beside other tests the evicting thread runs late.
    let tolerated_percent = if asked.is_some() { 10 } else { 100 };
    let asked = asked.unwrap_or_else(|| "128:512".to_string());
    let (budget, table) = asked.split_once(':').unwrap();
    let budget_bytes = budget.parse::<u64>().unwrap() * MIB;
    let (table, divisor) = table.split_once(':').unwrap_or((table, "16"));
    let divisor = divisor.parse::<u64>().unwrap();
    let table_bytes = table.parse::<u64>().unwrap() * MIB;
    let dir = TempDir::new().unwrap();
    let options = PoolOptions {
        domain: DomainChoice::Journal,
        memory: Some(MemoryBudget::new(budget_bytes).unwrap()),
        ..PoolOptions::default()
    };
    // The memory that the process has before does not belong to the database.
    let before = resident_bytes();
    let (stop, greatest) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&stop, &greatest));
        let work = std::panic::AssertUnwindSafe(|| run(&dir, &options, table_bytes, divisor, &greatest));
        let outcome = std::panic::catch_unwind(work);
        stop.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
    let greatest = greatest.load(Ordering::Relaxed) - before;
    println!("at most {} MiB of {} were resident", greatest / MIB, budget_bytes / MIB);
    let most = budget_bytes + budget_bytes / 100 * tolerated_percent;
    assert!(greatest <= most, "{} MiB of {budget} were resident", greatest / MIB);
}

fn run(dir: &TempDir, options: &PoolOptions, table_bytes: u64, updates_divisor: u64, greatest: &AtomicU64) {
    let mut began = Instant::now();
    let mut lap = |what: &str, count: u64| {
        let seconds = began.elapsed().as_secs_f64();
        let resident = greatest.swap(0, Ordering::Relaxed) / MIB;
        println!(
            "{what}: {count} in {seconds:.1} s, {:.0}/s, at most {resident} MiB",
            count as f64 / seconds
        );
        greatest.fetch_max(resident * MIB, Ordering::Relaxed);
        began = Instant::now();
    };
    let mut table = Table::fill(Pool::create(dir.path(), options).unwrap(), table_bytes);
    let rows = table.rows();
    let updates = rows / updates_divisor;
    lap("rows filled", rows);
    // Every row once, in an order that touches another page each time.
    const STEP: u64 = 1_000_003;
    assert!(!rows.is_multiple_of(STEP));
    (0..updates).for_each(|number| table.update(number * STEP % rows));
    lap("random updates", updates);
    assert_eq!(table.scan(), updates);
    lap("rows scanned", rows);
    let read = (0..updates).map(|number| table.updates_of(number * STEP % rows)).sum::<u64>();
    assert_eq!(read, updates);
    lap("random reads", updates);
    table.pool.close().unwrap();
    let Table { pool, objects } = table;
    drop(pool);
    table = Table { pool: Pool::open(dir.path(), options).unwrap(), objects };
    lap("closed and opened", 1);
    assert_eq!(table.scan(), updates);
    lap("rows scanned after opening", rows);
    (0..updates).for_each(|number| table.update(number * STEP % rows));
    lap("random updates after opening", updates);
    assert_eq!(table.scan(), 2 * updates);
    table.pool.close().unwrap();
}
