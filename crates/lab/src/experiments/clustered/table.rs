//! Tables of the paper's tuples, `<int, int, string, double>` with the first as the key, in each layout.

use crate::Error;
use crate::measure::{Random, median};
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::{
    BatchBuilder, Catalog, ClusteringDefinition, Column, ColumnCondition, ColumnFilter, DataType, Dimension,
    ScanRange, Schema, Table, TableDefinition, TableLayout, TableOptions, Value, arrow_schema,
};
use entresol_transactions::{StateContext, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Column of the second number.
pub(super) const NUMBER: usize = 1;
/// Column of the double.
pub(super) const DOUBLE: usize = 3;
/// Number of rows of a commit.
const COMMIT_ROWS: usize = 100_000;

fn columns() -> Vec<Column> {
    let of = |(name, data_type)| Column::new(name, data_type);
    let all = [
        ("id", DataType::Int),
        ("number", DataType::Int),
        ("name", DataType::Varchar),
        ("double", DataType::Double),
    ];
    all.map(of).to_vec()
}

/// Table in a layout, filled.
pub(super) struct FilledTable {
    pub(super) catalog: Arc<Catalog>,
    pub(super) table: Arc<Table>,
    /// Rows written a second until they were committed, and until the table was merged.
    pub(super) inserted: f64,
    pub(super) merged: f64,
}

/// Result of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ScanResult {
    pub(super) rows: u64,
    /// Row groups that keys and summaries ruled out, and blocks that were read.
    pub(super) pruned: u64,
    pub(super) read: u64,
}

impl FilledTable {
    /// Table with a permutation of the keys below `rows`; with a clustering by number and double of some block size, or
    /// in another layout. With a primary key, if `has_key`.
    pub(super) fn new(
        directory: &Path,
        rows: usize,
        (layout, block_bytes): (TableLayout, Option<u32>),
        has_key: bool,
        seed: u64,
    ) -> Result<FilledTable, Error> {
        let path = directory.join(format!("{}-{block_bytes:?}-{has_key}.entresol", layout.name()));
        let pool = Pool::open_or_create(&path, &PoolOptions::default())?;
        let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
        let key: &[&str] = if has_key { &["id"] } else { &[] };
        let mut definition = TableDefinition::plain(Schema::new(columns(), key)?);
        definition.layout = layout;
        if layout == TableLayout::Clustered {
            let dimension = |column| Dimension { column, bits: None };
            let mut clustering = ClusteringDefinition::new(vec![dimension(NUMBER), dimension(DOUBLE)]);
            clustering.block_bytes = block_bytes.unwrap_or(clustering.block_bytes);
            definition.clustering = Some(clustering);
        }
        let table = catalog.create_table_as("tuples", definition, TableOptions::default())?;
        let mut filled = FilledTable { catalog, table, inserted: 0.0, merged: 0.0 };
        filled.fill(rows, seed)?;
        Ok(filled)
    }

    fn fill(&mut self, rows: usize, seed: u64) -> Result<(), Error> {
        let mut random = Random::new(seed);
        let mut ids: Vec<i32> = (0..rows as i32).collect();
        random.shuffle(&mut ids);
        let mut seconds = 0.0;
        for part in ids.chunks(COMMIT_ROWS) {
            let mut builder = BatchBuilder::new(&columns(), part.len());
            for id in part {
                let (number, double) = (random.below(rows as u64), random.below(rows as u64));
                let row = [
                    Value::Int(*id),
                    Value::Int(number as i32),
                    Value::from(format!("name {id:010}").as_str()),
                    Value::Double(double as f64 / 8.0 + 0.001),
                ];
                builder.push(&row).map_err(Error::Invalid)?;
            }
            let batch = builder.finish();
            let begin = Instant::now();
            let tx = self.catalog.begin()?;
            self.table.append(&tx, &batch)?;
            tx.commit(Durability::Sync)?;
            seconds += begin.elapsed().as_secs_f64();
        }
        self.inserted = rows as f64 / seconds;
        let begin = Instant::now();
        self.table.merge(|_| Ok(()))?;
        self.merged = rows as f64 / (seconds + begin.elapsed().as_secs_f64());
        // Keys that were merged are still in the index of the delta store, as the background would remove them.
        let mut states = vec![Arc::clone(self.table.state())];
        states.extend(self.table.row_group_states());
        self.catalog.context().vacuum_states(&states, |_| Ok(()))?;
        Ok(())
    }

    /// Scan of all columns by blocks, of the rows that meet some filters.
    pub(super) fn scan(&self, tx: &Transaction, filters: &[ColumnFilter]) -> Result<ScanResult, Error> {
        let visible = self.table.schema().visible_columns();
        let all = (0..visible.len()).collect();
        let scan = self.table.column_scan(tx, all, arrow_schema(visible, "UTC"), filters.to_vec())?;
        let scan = scan.ok_or_else(|| Error::Invalid("the table has no row groups".into()))?;
        let mut scanned = ScanResult::default();
        for morsel in scan.morsels() {
            scanned.read += 1;
            scanned.rows += scan.read(tx, morsel)?.map_or(0, |batch| batch.num_rows() as u64);
        }
        let mut delta = scan.delta();
        while let Some(batch) = delta.next(tx)? {
            scanned.rows += batch.num_rows() as u64;
        }
        let stats = scan.stats();
        scanned.pruned =
            stats.key_pruned.load(Ordering::Relaxed) + stats.summary_pruned.load(Ordering::Relaxed);
        Ok(scanned)
    }

    /// Number of rows of a range of keys, each of which is decoded.
    pub(super) fn walk(&self, tx: &Transaction, range: ScanRange) -> Result<u64, Error> {
        let (mut cursor, mut rows) = (self.table.scan(range), 0);
        let mut sum = 0_u64;
        while cursor.next_batch(tx, |row| {
            rows += 1;
            sum = sum.wrapping_add(row.to_row().len() as u64);
        })? {}
        std::hint::black_box(sum);
        Ok(rows)
    }
}

/// Filters of a share of the rows by a column, in thousandths, from a tenth of them on.
pub(super) fn filter(column: usize, rows: usize, thousandths: usize) -> ColumnFilter {
    let width = (rows * thousandths / 1000) as i64;
    let first = if thousandths >= 900 { 0 } else { rows as i64 / 10 };
    let condition = if column == DOUBLE {
        ColumnCondition::Doubles { least: first as f64 / 8.0, greatest: (first + width) as f64 / 8.0 }
    } else {
        ColumnCondition::Between { least: first, greatest: first + width - 1 }
    };
    ColumnFilter { column, condition }
}

/// Median of the milliseconds of some runs, and the last result.
pub(super) fn timed<T>(runs: usize, mut work: impl FnMut() -> Result<T, Error>) -> Result<(f64, T), Error> {
    let (mut times, mut last) = (Vec::new(), work()?);
    for _ in 0..runs {
        let begin = Instant::now();
        last = work()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok((median(&times), last))
}
