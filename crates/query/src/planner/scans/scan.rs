//! The physical operator that reads a table: one snapshot, one access, the projected columns.
//!
//! - A scan holds the transaction that it was planned in; so does its stream, which keeps the snapshot alive
//!   until it is exhausted or dropped.
//! - Rows come in the order of the key, or of the index that finds them, and the plan says so, as far as the
//!   leading columns of that are projected.
//! - Reads are memory accesses within `poll`, a batch at a time, and the stream yields to the scheduler as
//!   DataFusion's cooperative streams do.
//! - Memory: one batch, that is [`BATCH_ROWS`] rows and at most one leaf of the index more.

use crate::error::{Error, external};
use crate::planner::scans::access::Access;
use crate::planner::scans::columns::Columns;
use crate::planner::yielding::Query;
use crate::postgres::types::nullable;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as EngineResult, Statistics, assert_or_internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use entresol_tables::{Cursor, IndexBounds, IndexCursor, Row, ScanRange, Table};
use entresol_transactions::Transaction;
use std::fmt;
use std::sync::Arc;

/// Maximum rows of a batch.
pub const BATCH_ROWS: usize = 8192;

/// Table scan operator; see the [module](self).
#[derive(Debug, Clone)]
pub struct EntresolScan {
    table: Arc<Table>,
    /// Positions of the table's columns, in output order.
    projection: Vec<usize>,
    access: Access,
    limit: Option<usize>,
    transaction: Arc<Transaction>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Query whose cancellation stops the scan.
    query: Option<Arc<Query>>,
}

impl EntresolScan {
    /// Scan of the columns `projection` of the rows that `access` covers and `transaction` sees; they are
    /// returned with `schema`.
    pub fn new(
        table: Arc<Table>,
        mut schema: SchemaRef,
        projection: Vec<usize>,
        access: Access,
        limit: Option<usize>,
        transaction: Arc<Transaction>,
    ) -> EntresolScan {
        if transaction.as_of().is_some() {
            let is_key = |column: &usize| table.schema().key().contains(column);
            let key: Vec<usize> = (0..projection.len()).filter(|&at| is_key(&projection[at])).collect();
            schema = nullable(&schema, &key);
        }
        let orderings = ordering(&table, &access, &projection);
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&schema), orderings),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        EntresolScan {
            table,
            projection,
            access,
            limit,
            transaction,
            schema,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            query: None,
        }
    }

    /// The same scan as a part of a query that may be cancelled.
    pub(crate) fn within(&self, query: &Arc<Query>) -> EntresolScan {
        EntresolScan { query: Some(Arc::clone(query)), ..self.clone() }
    }

    /// Access of the scan.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Table of the scan.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The same scan by an index in an order that begins with `order`, if there is one; only for a scan of
    /// all rows.
    pub(crate) fn ordered_by(&self, order: &LexOrdering, limit: usize) -> Option<EntresolScan> {
        if self.access != Access::Full || self.limit.is_some() {
            return None;
        }
        let readable = self.table.indexes().iter().filter(|index| index.is_readable(&self.transaction));
        let mut scans = readable.map(|index| {
            let access = Access::Index { name: index.name().to_owned(), within: Box::new(Access::Full) };
            let (table, transaction) = (Arc::clone(&self.table), Arc::clone(&self.transaction));
            let schema = Arc::clone(&self.schema);
            EntresolScan::new(table, schema, self.projection.clone(), access, Some(limit), transaction)
        });
        scans.find(|scan| {
            let orderings = scan.properties.equivalence_properties();
            orderings.ordering_satisfy(order.iter().cloned()).unwrap_or(false)
        })
    }

    /// Maximum number of rows, if the access alone bounds it: points and keys.
    fn rows_max(&self) -> Option<usize> {
        let by_access = match &self.access {
            Access::Point(_) => Some(1),
            Access::Keys(keys) => Some(keys.len()),
            Access::Full | Access::Ranges(_) | Access::Index { .. } => None,
        };
        match (by_access, self.limit) {
            (Some(rows), Some(limit)) => Some(rows.min(limit)),
            (rows, limit) => rows.or(limit),
        }
    }
}

/// Columns of the key or the index, as far as they are projected without a gap.
fn ordering(table: &Table, access: &Access, projection: &[usize]) -> Option<LexOrdering> {
    let schema = table.schema();
    let columns = match access {
        Access::Index { name, .. } => &table.index(name)?.definition().columns,
        _ => schema.key(),
    };
    let leading = columns.iter().map_while(|key| projection.iter().position(|column| column == key));
    let exprs = leading.map(|at| {
        let name = &schema.columns()[projection[at]].name;
        let options = SortOptions { descending: false, nulls_first: false };
        PhysicalSortExpr::new(Arc::new(PhysicalColumn::new(name, at)), options)
    });
    LexOrdering::new(exprs)
}

impl DisplayAs for EntresolScan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.table.schema().columns();
        let names: Vec<&str> = self.projection.iter().map(|&column| columns[column].name.as_str()).collect();
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let (table, access) = (self.table.name(), &self.access);
                write!(f, "EntresolScan: table={table}, access={access}, projection=[{}]", names.join(", "))?;
                self.transaction.as_of().map_or(Ok(()), |at| write!(f, ", as_of={at}"))?;
                self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.table.name())?;
                writeln!(f, "access={}", self.access)?;
                self.limit.map_or(Ok(()), |limit| writeln!(f, "limit={limit}"))
            }
        }
    }
}

impl ExecutionPlan for EntresolScan {
    fn name(&self) -> &str {
        "EntresolScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> EngineResult<TreeNodeRecursion>,
    ) -> EngineResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> EngineResult<SendableRecordBatchStream> {
        assert_or_internal_err!(partition == 0, "EntresolScan has one partition, not {partition}");
        let batch_rows = context.session_config().batch_size().clamp(1, BATCH_ROWS);
        let reader = Reader::new(self, batch_rows);
        let stream = RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::iter(reader));
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> EngineResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if let Some(rows) = self.rows_max() {
            statistics.num_rows = Precision::Inexact(rows);
        }
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        // A scan has no children through which a limit could be pushed.
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let (table, transaction) = (Arc::clone(&self.table), Arc::clone(&self.transaction));
        let access = self.access.clone();
        let (schema, projection) = (Arc::clone(&self.schema), self.projection.clone());
        Some(Arc::new(EntresolScan::new(table, schema, projection, access, limit, transaction)))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }
}

/// Rows still to be read.
enum Rest {
    Keys(std::vec::IntoIter<Row>),
    Ranges { ranges: std::vec::IntoIter<ScanRange>, cursor: Option<Cursor> },
    Index { name: String, bounds: Vec<IndexBounds>, cursor: Option<IndexCursor> },
}

/// Reader of one batch after another.
struct Reader {
    table: Arc<Table>,
    transaction: Arc<Transaction>,
    rest: Rest,
    columns: Columns,
    batch_rows: usize,
    /// Maximum number of rows still to be returned.
    rows_left: usize,
    metrics: BaselineMetrics,
    query: Option<Arc<Query>>,
}

impl Reader {
    fn new(scan: &EntresolScan, batch_rows: usize) -> Reader {
        let rest = match &scan.access {
            Access::Point(key) => Rest::Keys(vec![key.clone()].into_iter()),
            Access::Keys(keys) => Rest::Keys(keys.clone().into_iter()),
            Access::Index { name, within } => {
                Rest::Index { name: name.clone(), bounds: within.index_bounds(), cursor: None }
            }
            access => Rest::Ranges { ranges: access.scan_ranges().into_iter(), cursor: None },
        };
        let capacity = scan.rows_max().unwrap_or(batch_rows).min(batch_rows);
        Reader {
            table: Arc::clone(&scan.table),
            transaction: Arc::clone(&scan.transaction),
            rest,
            columns: Columns::new(scan.table.schema(), &scan.projection, Arc::clone(&scan.schema), capacity),
            batch_rows,
            rows_left: scan.limit.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&scan.metrics, 0),
            query: scan.query.clone(),
        }
    }

    /// Collects rows; false once there are no more.
    fn step(&mut self) -> entresol_tables::Result<bool> {
        let rows_max = (self.batch_rows - self.columns.rows()).min(self.rows_left);
        let (columns, left) = (&mut self.columns, &mut self.rows_left);
        let mut push = |row: entresol_tables::RowView<'_>| {
            if *left > 0 {
                *left -= 1;
                columns.push(&row);
            }
        };
        match &mut self.rest {
            Rest::Keys(keys) => {
                let chunk: Vec<Row> = keys.by_ref().take(self.batch_rows).collect();
                self.table.get_many_with(&self.transaction, &chunk, |_, row| push(row))?;
                Ok(!chunk.is_empty())
            }
            Rest::Index { name, bounds, cursor } => {
                let open = match cursor {
                    Some(open) => open,
                    None => {
                        let index = self
                            .table
                            .index(name)
                            .ok_or_else(|| entresol_tables::Error::NoSuchIndex { index: name.clone() })?;
                        let bounds = std::mem::take(bounds);
                        cursor.insert(self.table.index_scan(&self.transaction, index, bounds)?)
                    }
                };
                open.next_batch(&self.transaction, rows_max, push)
            }
            Rest::Ranges { ranges, cursor } => {
                let open = match cursor {
                    Some(open) => open,
                    None => match ranges.next() {
                        Some(range) => cursor.insert(self.table.scan(range)),
                        None => return Ok(false),
                    },
                };
                if !open.next_batch(&self.transaction, push)? {
                    *cursor = None;
                }
                Ok(true)
            }
        }
    }
}

impl Iterator for Reader {
    type Item = EngineResult<RecordBatch>;

    fn next(&mut self) -> Option<EngineResult<RecordBatch>> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        while self.columns.rows() < self.batch_rows && self.rows_left > 0 {
            // There may be many steps to a row: dead rows are skipped.
            let stepped = match self.query.as_ref().map_or(Ok(()), |query| query.check()) {
                Ok(()) => self.step().map_err(Error::from),
                Err(stopped) => Err(stopped),
            };
            match stepped {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.rows_left = 0;
                    return Some(Err(external(error)));
                }
            }
        }
        match self.columns.rows() {
            0 => None,
            rows => {
                self.metrics.record_output(rows);
                Some(self.columns.finish().map_err(DataFusionError::from))
            }
        }
    }
}
