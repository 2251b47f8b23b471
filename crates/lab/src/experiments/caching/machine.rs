//! Scans of the product on emulated storage: its page cache, policies, measurements and loading ahead, over a table
//! by column, with storage of a set bandwidth and a consumer that takes a set time for each byte.
//!
//! One reader and as many loaders as the product loads row groups ahead, so that the storage always has a request.
//! The consumer sums what it reads, for the check, and sleeps until its time for the block is over; what it overslept
//! it takes off the next block. Neither it nor the storage takes a processor, so other load disturbs little.

use super::replay::Query;
use crate::Error;
use crate::measure::Random;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use entresol_memory::budget::MemoryBudget;
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::caching::CachePolicy;
use entresol_tables::{
    BatchBuilder, Catalog, Column, ColumnMorsel, ColumnScan, DataType, PipelinePrediction, Schema, Table,
    TableDefinition, TableLayout, TableOptions, Value, arrow_schema,
};
use entresol_transactions::{StateContext, Transaction};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Rows of a row group: two blocks.
const GROUP_ROWS: usize = 2 * BLOCK_ROWS;
const BLOCK_ROWS: usize = 8192;
/// Values are below this, so that they are stored in 32 bits.
const VALUE_MAX: u64 = 1 << 32;
/// Memory budget; the cache's share of it is more than the table.
const BUDGET_BYTES: u64 = 4 << 30;
/// Threads that load ahead.
const LOADERS: usize = 2;
/// Part of a pipeline after which its time is predicted.
const PREDICTED_AT: f64 = 0.2;
/// Time for shares to follow a query.
const SETTLE: Duration = Duration::from_millis(500);

/// Table on emulated storage; see the [module](self).
pub(super) struct Machine {
    catalog: Arc<Catalog>,
    table: Arc<Table>,
    sums: Vec<u64>,
    /// Bytes of the cache with everything in it.
    all_bytes: u64,
    /// Blocks of a column, and mean bytes of one.
    blocks: usize,
    block_bytes: f64,
}

/// Outcome of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// Prediction after a fifth of its input.
    pub(super) prediction: Option<PipelinePrediction>,
    /// True if its sums are those of the table.
    pub(super) is_right: bool,
}

impl Machine {
    /// Machine with a table of so many columns and row groups.
    pub(super) fn new(columns: usize, groups: usize, seed: u64) -> Result<Machine, Error> {
        let memory = MemoryBudget::new(BUDGET_BYTES).map_err(|error| Error::Invalid(error.to_string()))?;
        let pool = Pool::volatile(&PoolOptions { memory: Some(memory), ..PoolOptions::default() })?;
        let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
        let named = (0..columns).map(|at| Column::new(format!("c{at}"), DataType::BigInt));
        let mut definition = TableDefinition::plain(Schema::new::<&str>(named.collect(), &[])?);
        definition.layout = TableLayout::Columns;
        let table = catalog.create_table_as("lines", definition, TableOptions::default())?;
        let mut machine = Machine {
            catalog,
            table,
            sums: vec![0; columns],
            all_bytes: 0,
            blocks: groups * GROUP_ROWS / BLOCK_ROWS,
            block_bytes: 0.0,
        };
        let mut random = Random::new(seed);
        (0..groups).try_for_each(|_| machine.append(&mut random))?;
        machine.measure_sizes(columns)?;
        Ok(machine)
    }

    fn append(&mut self, random: &mut Random) -> Result<(), Error> {
        let columns = self.table.schema().visible_columns();
        let mut builder = BatchBuilder::new(columns, GROUP_ROWS);
        for _ in 0..GROUP_ROWS {
            let values: Vec<u64> = self.sums.iter().map(|_| random.below(VALUE_MAX)).collect();
            self.sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
            let row: Vec<Value> =
                values.into_iter().map(|value| Value::BigInt(value.cast_signed())).collect();
            builder.push(&row).map_err(Error::Invalid)?;
        }
        let tx = self.catalog.begin()?;
        self.table.append(&tx, &builder.finish())?;
        tx.commit(Durability::None)?;
        Ok(())
    }

    /// Reads all once, to learn the bytes of pages and of the cache.
    fn measure_sizes(&mut self, columns: usize) -> Result<(), Error> {
        self.catalog.set_cache_policy(CachePolicy::Lru);
        let all: Vec<u16> = (0..columns as u16).collect();
        self.read(&all, f64::INFINITY)?;
        self.all_bytes = self.catalog.page_cache_stats().bytes;
        let of_pages: u64 = self.catalog.cached_columns().iter().map(|column| column.counts.bytes).sum();
        self.block_bytes = of_pages as f64 / (columns * self.blocks) as f64;
        Ok(())
    }

    /// Bytes that a query reads.
    pub(super) fn input_bytes(&self, query: &Query) -> f64 {
        self.blocks as f64 * self.block_bytes * query.columns.len() as f64
    }

    /// Begins with an empty cache of a proportion of all bytes, on storage of a bandwidth in bytes per second.
    pub(super) fn begin(&self, policy: CachePolicy, proportion: f64, storage: f64) {
        self.catalog.limit_cache(0);
        self.catalog.set_cache_policy(policy);
        self.catalog.limit_cache((proportion * self.all_bytes as f64) as u64);
        self.catalog.emulate_storage(Some(storage));
    }

    /// Returns true if the cache is within its limit.
    pub(super) fn is_within_limit(&self) -> bool {
        let stats = self.catalog.page_cache_stats();
        stats.bytes <= stats.max_bytes
    }

    /// Gives shares the time to follow the last query.
    pub(super) fn settle(&self) {
        std::thread::sleep(SETTLE);
    }

    /// Runs a query.
    pub(super) fn run(&self, query: &Query) -> Result<Run, Error> {
        self.read(query.columns, query.bytes_per_second)
    }

    fn read(&self, columns: &[u16], bytes_per_second: f64) -> Result<Run, Error> {
        let began = Instant::now();
        let tx = self.catalog.begin()?;
        let visible = self.table.schema().visible_columns();
        let projected: Vec<Column> =
            columns.iter().map(|column| visible[usize::from(*column)].clone()).collect();
        let projection = columns.iter().map(|column| usize::from(*column)).collect();
        let scan = self.table.column_scan(&tx, projection, arrow_schema(&projected, "UTC"), Vec::new())?;
        let scan = scan.ok_or_else(|| Error::Invalid("the table has no row groups".to_owned()))?;
        let block = self.block_bytes * columns.len() as f64 / bytes_per_second;
        let mut consumer = Consumer::new(columns.len(), Duration::from_secs_f64(block));
        consumer.consume(&scan, &tx)?;
        drop(scan);
        let expected = columns.iter().map(|column| self.sums[usize::from(*column)]);
        Ok(Run {
            seconds: began.elapsed().as_secs_f64(),
            prediction: consumer.prediction,
            is_right: expected.eq(consumer.sums),
        })
    }
}

/// Consumer of the blocks of a scan.
struct Consumer {
    sums: Vec<u64>,
    of_block: Duration,
    /// Time that earlier blocks took too long.
    overslept: Duration,
    prediction: Option<PipelinePrediction>,
}

impl Consumer {
    fn new(columns: usize, of_block: Duration) -> Consumer {
        Consumer { sums: vec![0; columns], of_block, overslept: Duration::ZERO, prediction: None }
    }

    /// Sleeps until the time for a block that came at `from` is over.
    fn rest(&mut self, from: Instant) {
        let due = self.of_block.saturating_sub(self.overslept);
        std::thread::sleep(due.saturating_sub(from.elapsed()));
        self.overslept = (self.overslept + from.elapsed()).saturating_sub(self.of_block);
    }

    fn consume(&mut self, scan: &ColumnScan, tx: &Transaction) -> Result<(), Error> {
        let (ask, asked) = mpsc::channel();
        let asked = Mutex::new(asked);
        std::thread::scope(|scope| {
            for _ in 0..LOADERS {
                scope.spawn(|| load(scan, tx, &asked));
            }
            // Dropped at the end of the blocks, so that the loaders end.
            self.read_blocks(scan, tx, ask)
        })
    }

    fn read_blocks(
        &mut self,
        scan: &ColumnScan,
        tx: &Transaction,
        ask: mpsc::Sender<u32>,
    ) -> Result<(), Error> {
        let mut reader = scan.reader();
        let morsels: Vec<ColumnMorsel> = scan.morsels();
        for (at, morsel) in morsels.iter().enumerate() {
            let batch = scan.read_timed(tx, *morsel, &mut reader)?;
            let came = Instant::now();
            for group in scan.groups_ahead(*morsel) {
                // It fails only without loaders, and then the reader loads.
                let _ = ask.send(group);
            }
            for (sum, column) in self.sums.iter_mut().zip(batch.iter().flat_map(|batch| batch.columns())) {
                let values = column.as_primitive::<Int64Type>().values().iter();
                *sum += values.map(|value| value.cast_unsigned()).sum::<u64>();
            }
            self.rest(came);
            if self.prediction.is_none() && at as f64 >= PREDICTED_AT * morsels.len() as f64 {
                self.prediction = scan.prediction();
            }
        }
        Ok(())
    }
}

/// Loads row groups as long as there are requests.
fn load(scan: &ColumnScan, tx: &Transaction, asked: &Mutex<mpsc::Receiver<u32>>) {
    loop {
        let next = asked.lock().map(|asked| asked.recv());
        let Ok(Ok(group)) = next else { return };
        // The reader meets what fails here.
        let _ = scan.load_ahead(tx, group);
    }
}
