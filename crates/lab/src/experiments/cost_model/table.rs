//! A table of sales in each layout, and reading it by each path.

use crate::Error;
use crate::measure::Random;
use entresol_memory::{Durability, Pool, PoolOptions};
use entresol_tables::cost::AccessPath;
use entresol_tables::{
    BatchBuilder, Catalog, ClusteringDefinition, Column, ColumnCondition, ColumnFilter, DataType, Dimension,
    DimensionOrder, ElfCaching, IndexDefinition, Row, ScanRange, Schema, StoredRows, Table, TableDefinition,
    TableLayout, TableOptions, Value, arrow_schema,
};
use entresol_transactions::{Cancellation, StateContext, Transaction};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Key, ascending.
pub(super) const ID: usize = 0;
/// One of [`SHOPS`] numbers, in no order.
pub(super) const SHOP: usize = 1;
/// One of twenty numbers, in no order.
pub(super) const KIND: usize = 2;
/// Day, which ascends with the key: a hundred rows each.
pub(super) const DAY: usize = 3;
/// Even numbers below 100, in no order.
pub(super) const QUANTITY: usize = 4;
/// Price.
pub(super) const PRICE: usize = 5;
/// Number of shops.
pub(super) const SHOPS: i64 = 5_000;
/// Rows of a commit, and of a batch that is read.
const COMMIT_ROWS: usize = 100_000;
const BATCH_ROWS: usize = 8192;
/// Name of the index of shops and kinds.
pub(super) const INDEX: &str = "by_shop";

fn columns() -> Vec<Column> {
    let of = |(name, data_type)| Column::new(name, data_type);
    let all = [
        ("id", DataType::BigInt),
        ("shop", DataType::Int),
        ("kind", DataType::Int),
        ("day", DataType::Int),
        ("quantity", DataType::Int),
        ("price", DataType::Decimal { precision: 12, scale: 2 }),
    ];
    all.map(of).to_vec()
}

/// Table in a layout, filled and merged.
pub(super) struct MergedTable {
    pub(super) catalog: Arc<Catalog>,
    pub(super) table: Arc<Table>,
    pub(super) rows: usize,
    /// Nanoseconds of a row until it was committed, and of merging it.
    pub(super) write_ns: f64,
    pub(super) merge_ns: f64,
}

impl MergedTable {
    pub(super) fn new(
        directory: &Path,
        rows: usize,
        layout: TableLayout,
        is_indexed: bool,
        seed: u64,
    ) -> Result<MergedTable, Error> {
        let path = directory.join(format!("{}-{is_indexed}.entresol", layout.name()));
        let pool = Pool::open_or_create(&path, &PoolOptions::default())?;
        let catalog = Catalog::open_or_create(StateContext::open_or_create(pool)?)?;
        let mut definition = TableDefinition::plain(Schema::new(columns(), &["id"])?);
        definition.layout = layout;
        if layout == TableLayout::Clustered {
            let dimension = |column| Dimension { column, bits: None };
            definition.clustering = Some(ClusteringDefinition::new(vec![dimension(SHOP), dimension(DAY)]));
        }
        let table = catalog.create_table_as("sales", definition, TableOptions::default())?;
        let mut filled = MergedTable { catalog, table, rows, write_ns: 0.0, merge_ns: 0.0 };
        if is_indexed && layout == TableLayout::Rows {
            filled.catalog.create_index("sales", by_shop())?;
        }
        filled.table = filled.catalog.table("sales")?;
        filled.fill(seed)?;
        if is_indexed && layout == TableLayout::Columns {
            let columns = (vec![SHOP, KIND], DimensionOrder::Written, ElfCaching::Whole);
            filled.catalog.create_elf(&Cancellation::default(), "sales", INDEX, columns)?;
        }
        filled.table = filled.catalog.table("sales")?;
        Ok(filled)
    }

    fn fill(&mut self, seed: u64) -> Result<(), Error> {
        let mut random = Random::new(seed);
        let (mut seconds, all) = (0.0, (0..self.rows as i64).collect::<Vec<_>>());
        for part in all.chunks(COMMIT_ROWS) {
            let mut builder = BatchBuilder::new(&columns(), part.len());
            part.iter().try_for_each(|id| builder.push(&row(*id, &mut random))).map_err(Error::Invalid)?;
            let batch = builder.finish();
            let begin = Instant::now();
            let tx = self.catalog.begin()?;
            self.table.append(&tx, &batch)?;
            tx.commit(Durability::Sync)?;
            seconds += begin.elapsed().as_secs_f64();
        }
        self.write_ns = seconds * 1e9 / self.rows as f64;
        let begin = Instant::now();
        self.table.merge(|_| Ok(()))?;
        self.merge_ns = begin.elapsed().as_secs_f64() * 1e9 / self.rows as f64;
        // Keys that were merged are still in the index of the delta store, as the background would remove them.
        let mut states = vec![Arc::clone(self.table.state())];
        states.extend(self.table.row_group_states());
        self.catalog.context().vacuum_states(&states, |_| Ok(()))?;
        Ok(())
    }

    /// Reads columns of the rows that a path finds; their number. Conditions that the path does not check are not
    /// checked, as by the scans of queries.
    pub(super) fn read(
        &self,
        tx: &Transaction,
        path: &AccessPath,
        filters: &[ColumnFilter],
        columns: &[usize],
    ) -> Result<u64, Error> {
        match path {
            AccessPath::Columns | AccessPath::Elf(_) => self.scan(tx, filters, columns),
            AccessPath::Index(_) => self.by_index(tx, filters, columns),
            _ => self.all_rows(tx, filters, columns),
        }
    }

    /// Scan by columns, with an Elf where it has one and that costs less.
    pub(super) fn scan(
        &self,
        tx: &Transaction,
        filters: &[ColumnFilter],
        columns: &[usize],
    ) -> Result<u64, Error> {
        let schema = arrow_schema(self.table.schema().visible_columns(), "UTC").project(columns);
        let schema = Arc::new(schema.map_err(|error| Error::Invalid(error.to_string()))?);
        let scan = self.table.column_scan(tx, columns.to_vec(), schema, filters.to_vec())?;
        let scan = scan.ok_or_else(|| Error::Invalid("the table has no row groups".into()))?;
        let mut rows = 0;
        for morsel in scan.morsels() {
            rows += scan.read(tx, morsel)?.map_or(0, |batch| batch.num_rows() as u64);
        }
        let mut delta = scan.delta();
        while let Some(batch) = delta.next(tx)? {
            rows += batch.num_rows() as u64;
        }
        Ok(rows)
    }

    /// Buffer for rows of some columns, those of conditions too: a filter behind the scan needs them.
    fn buffer(&self, filters: &[ColumnFilter], columns: &[usize]) -> Result<StoredRows, Error> {
        let mut wide = columns.to_vec();
        wide.extend(filters.iter().map(|filter| filter.column).filter(|column| !columns.contains(column)));
        let schema = arrow_schema(self.table.schema().visible_columns(), "UTC").project(&wide);
        let schema = Arc::new(schema.map_err(|error| Error::Invalid(error.to_string()))?);
        Ok(StoredRows::new(self.table.name(), self.table.schema(), &wide, schema, BATCH_ROWS))
    }

    /// All rows, one after another.
    pub(super) fn all_rows(
        &self,
        tx: &Transaction,
        filters: &[ColumnFilter],
        columns: &[usize],
    ) -> Result<u64, Error> {
        let (mut cursor, mut rows) = (self.table.scan(ScanRange::full()), self.buffer(filters, columns)?);
        let mut count = 0;
        while cursor.next_stored(tx, &mut rows, usize::MAX)? {
            if rows.is_batch(BATCH_ROWS) {
                count += rows.finish()?.num_rows() as u64;
            }
        }
        if !rows.is_empty() {
            count += rows.finish()?.num_rows() as u64;
        }
        Ok(count)
    }

    /// Rows of a range of shops by the index.
    pub(super) fn by_index(
        &self,
        tx: &Transaction,
        filters: &[ColumnFilter],
        columns: &[usize],
    ) -> Result<u64, Error> {
        let index = self.table.index(INDEX).ok_or_else(|| Error::Invalid("the table has no index".into()))?;
        let of_shop = filters.iter().find(|filter| filter.column == SHOP).map(|filter| &filter.condition);
        let Some(ColumnCondition::Between { least, greatest }) = of_shop else {
            return Err(Error::Invalid("the query has no range of shops".into()));
        };
        let of_kind = filters.iter().find(|filter| filter.column == KIND).map(|filter| &filter.condition);
        let bounds = match of_kind {
            Some(ColumnCondition::Between { least: first, greatest: last }) if least == greatest => {
                (bound(&[*least, *first]), bound(&[*greatest, *last]))
            }
            _ => (bound(&[*least]), bound(&[*greatest])),
        };
        let mut cursor = self.table.index_scan(tx, index, vec![bounds])?;
        let (mut rows, mut count) = (self.buffer(filters, columns)?, 0);
        while cursor.next_batch(tx, BATCH_ROWS, |row| rows.push_view(&row))? {
            if rows.is_batch(BATCH_ROWS) {
                count += rows.finish()?.num_rows() as u64;
            }
        }
        if !rows.is_empty() {
            count += rows.finish()?.num_rows() as u64;
        }
        Ok(count)
    }
}

fn bound(values: &[i64]) -> Bound<Row> {
    Bound::Included(values.iter().map(|value| Value::Int(*value as i32)).collect())
}

fn row(id: i64, random: &mut Random) -> Row {
    let mut below = |limit: i64| random.below(limit as u64) as i64;
    vec![
        Value::BigInt(id),
        Value::Int(below(SHOPS) as i32),
        Value::Int(below(20) as i32),
        Value::Int((id / 100) as i32),
        Value::Int(below(50) as i32 * 2),
        Value::Decimal(below(1_000_000).into()),
    ]
}

/// btree index of shops and kinds.
fn by_shop() -> IndexDefinition {
    IndexDefinition::plain(INDEX, vec![SHOP, KIND])
}

/// Condition on a column.
pub(super) fn between(column: usize, least: i64, greatest: i64) -> ColumnFilter {
    ColumnFilter { column, condition: ColumnCondition::Between { least, greatest } }
}

/// Least milliseconds of some runs behind a first one, and the last result.
pub(super) fn timed<T>(runs: usize, mut work: impl FnMut() -> Result<T, Error>) -> Result<(f64, T), Error> {
    let (mut least, mut last) = (f64::INFINITY, work()?);
    for _ in 0..runs {
        let begin = Instant::now();
        last = work()?;
        least = least.min(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok((least, last))
}
