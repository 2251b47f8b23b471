//! The physical operator that reads a table: one snapshot, one access, the projected columns.
//!
//! - A scan holds the transaction that it was planned in; so does its stream, which keeps the snapshot alive
//!   until it is exhausted or dropped.
//! - Rows come in the order of the key, or of the index that finds them, or against it, and the plan says so,
//!   as far as the leading columns of that are projected.
//! - A scan of many rows by the key is divided by key ranges, one for each processor, if the planner asks.
//! - Reads are memory accesses within `poll`, a batch at a time, and the stream yields to the scheduler as
//!   DataFusion's cooperative streams do.
//! - Memory: one batch, that is [`BATCH_ROWS`] rows or 4 MiB, and at most one batch of the cursor more.

use crate::error::{Error, external};
use crate::planner::running_query::RunningQuery;
use crate::planner::scans::access::Access;
use crate::planner::scans::access::choice::Choice;
use crate::planner::scans::statistics::fill_columns;
use crate::postgres::types::nullable;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, ScalarValue, Statistics, assert_or_internal_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{
    AcrossPartitions, ConstExpr, EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use entresol_tables::workload::{RecordedScan, RowOperation};
use entresol_tables::{
    Cursor, DataType, Direction, Index, IndexBounds, IndexCursor, IteratorChoice, KeyRange, Row, StoredRows,
    Table,
};
use entresol_transactions::{Timestamp, Transaction};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum rows of a batch.
pub const BATCH_ROWS: usize = 8192;
/// Maximum number of rows that an index finds in order, to be looked up one by one; sorting all rows of a
/// table costs less than looking up all of them.
const LOOKED_UP_MAX: usize = 10_000;

/// Table scan operator; see the [module](self).
#[derive(Debug, Clone)]
pub struct EntresolScan {
    table: Arc<Table>,
    /// Positions of the table's columns, in output order.
    projection: Vec<usize>,
    access: Access,
    direction: Direction,
    /// Ranges of each partition, in key order; none for a scan of one partition.
    parts: Option<Arc<[Vec<KeyRange>]>>,
    limit: Option<usize>,
    /// Reason to read a clustered table by its places.
    iterator: Option<IteratorChoice>,
    /// Rows that the access covers, as estimated when the scan was planned.
    access_rows: usize,
    /// Choice of the access, if the scan may be bound to other values.
    choice: Option<Arc<Choice>>,
    /// None in the template of a generic plan, which is bound to one before it is run.
    transaction: Option<Arc<Transaction>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Query whose cancellation stops the scan.
    query: Option<Arc<RunningQuery>>,
    /// Record of its runs.
    recorded: Option<Arc<RecordedScan>>,
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
        let properties = properties(&table, &access, Direction::Forward, &projection, &schema, 1);
        EntresolScan {
            access_rows: estimated_rows(&table, &access),
            choice: None,
            table,
            projection,
            access,
            direction: Direction::Forward,
            parts: None,
            limit,
            iterator: None,
            transaction: Some(transaction),
            schema,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
            query: None,
            recorded: None,
        }
    }

    /// The same scan, whose runs are recorded.
    pub(crate) fn recorded(self, recorded: Option<Arc<RecordedScan>>) -> EntresolScan {
        EntresolScan { recorded, ..self }
    }

    /// Record of its runs, with the conditions that it was planned for.
    pub(crate) fn record(&self) -> Option<&Arc<RecordedScan>> {
        self.recorded.as_ref()
    }

    /// The same scan of a clustered table, with the reason to read it by its places.
    pub(crate) fn read_by(self, iterator: Option<IteratorChoice>) -> EntresolScan {
        EntresolScan { iterator, ..self }
    }

    /// The same scan with properties that fit its fields.
    fn renewed(self) -> EntresolScan {
        let partitions = self.parts.as_ref().map_or(1, |parts| parts.len());
        let (table, access, direction) = (&self.table, &self.access, self.direction);
        let properties = properties(table, access, direction, &self.projection, &self.schema, partitions);
        EntresolScan { properties, metrics: ExecutionPlanMetricsSet::new(), ..self }
    }

    /// The same scan as a part of a query that may be cancelled.
    pub(crate) fn within(&self, query: &Arc<RunningQuery>) -> EntresolScan {
        EntresolScan { query: Some(Arc::clone(query)), ..self.clone() }
    }

    /// The same scan with the choice of its access, so that it can be bound to other values.
    pub(crate) fn chosen(self, choice: Choice) -> EntresolScan {
        EntresolScan { choice: Some(Arc::new(choice)), ..self }
    }

    /// Returns true if [`EntresolScan::rebound`] may bind it to other values.
    pub(crate) fn is_rebindable(&self) -> bool {
        self.choice.is_some() && self.parts.is_none()
    }

    /// The same scan of another transaction, with the access for these values of the parameters; `None` if what
    /// the plan relies on would not hold.
    pub(crate) fn rebound(
        &self,
        transaction: &Arc<Transaction>,
        values: &[ScalarValue],
    ) -> DFResult<Option<EntresolScan>> {
        let Some(choice) = &self.choice else { return Ok(None) };
        let Some(chosen) = choice.again(&self.table, transaction, values)? else { return Ok(None) };
        // An order that was asked for took an index in place of all rows.
        let access = if self.access == choice.access { chosen } else { self.access.clone() };
        if let Access::Index { name, .. } = &access
            && !self.table.index(name).is_some_and(|index| index.is_readable(transaction))
        {
            return Ok(None);
        }
        Ok(Some(EntresolScan {
            access_rows: estimated_rows(&self.table, &access),
            access,
            transaction: Some(Arc::clone(transaction)),
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        }))
    }

    /// The same scan without its transaction, whose snapshot it does not keep alive then.
    pub(crate) fn unbound(&self) -> EntresolScan {
        EntresolScan { transaction: None, ..self.clone() }
    }

    /// Time as of which it reads; `None` for now.
    fn as_of(&self) -> Option<Timestamp> {
        self.transaction.as_ref().and_then(|transaction| transaction.as_of())
    }

    /// Access of the scan.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Transaction that it reads in; none in the template of a generic plan.
    pub(crate) fn transaction(&self) -> Option<&Arc<Transaction>> {
        self.transaction.as_ref()
    }

    /// Returns true if it returns all rows of now.
    pub(crate) fn reads_all(&self) -> bool {
        self.access == Access::Full && self.limit.is_none() && self.reads_present()
    }

    /// Positions of the table's columns, in output order.
    pub(crate) fn projection(&self) -> &[usize] {
        &self.projection
    }

    /// Returns true if it reads the rows of now, not as of an earlier time.
    pub(crate) fn reads_present(&self) -> bool {
        self.as_of().is_none()
    }

    /// The same scan with another access; `None` if its transaction may not read the index.
    pub(crate) fn with_access(&self, access: Access) -> Option<EntresolScan> {
        let transaction = self.transaction.as_ref()?;
        if let Some(name) = access.index() {
            self.table.index(name).filter(|index| index.is_readable(transaction))?;
        }
        let access_rows = estimated_rows(&self.table, &access);
        // What others find for it is no query of its own.
        Some(EntresolScan { access, access_rows, parts: None, recorded: None, ..self.clone() }.renewed())
    }

    /// Table of the scan.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The same scan in an order that begins with `order`, if there is one: backwards, or for few rows of all
    /// by an index.
    pub(crate) fn ordered_by(&self, order: &LexOrdering, limit: Option<usize>) -> Option<EntresolScan> {
        let transaction = self.transaction.as_ref()?;
        if self.limit.is_some() || transaction.as_of().is_some() {
            return None;
        }
        let backwards =
            |scan: EntresolScan| EntresolScan { direction: Direction::Backward, ..scan }.renewed();
        let limited = EntresolScan { limit, ..self.clone() };
        let by_key = [backwards(limited.clone())].into_iter();
        let few = limit.is_some_and(|limit| limit <= LOOKED_UP_MAX) && self.access == Access::Full;
        let is_ordered = |index: &&Arc<Index>| !index.definition().hashed && index.is_readable(transaction);
        let indexes = self.table.indexes().iter().filter(|index| few && is_ordered(index));
        let by_index = indexes.flat_map(|index| {
            let access = Access::Index { name: index.name().to_owned(), within: Box::new(Access::Full) };
            let scan = EntresolScan { access, parts: None, ..limited.clone() };
            [scan.clone().renewed(), backwards(scan)]
        });
        let mut scans = by_key.chain(by_index);
        scans.find(|scan| {
            let orderings = scan.properties.equivalence_properties();
            orderings.ordering_satisfy(order.iter().cloned()).unwrap_or(false)
        })
    }

    /// Estimated number of rows that it returns.
    pub(crate) fn estimated_rows(&self) -> usize {
        self.rows_max().map_or(self.access_rows, |rows| rows.min(self.access_rows))
    }

    /// Maximum number of rows, if the access alone bounds it: points and keys.
    fn rows_max(&self) -> Option<usize> {
        match (self.access.rows_max(), self.limit) {
            (Some(rows), Some(limit)) => Some(rows.min(limit)),
            (rows, limit) => rows.or(limit),
        }
    }
}

/// Estimates the number of rows that an access covers; all of the table where it cannot be read.
fn estimated_rows(table: &Table, access: &Access) -> usize {
    let rows = match access {
        Access::Point(_) => Ok(1),
        Access::Keys(keys) => Ok(keys.len() as u64),
        Access::Full => Ok(table.newest_rows().unwrap_or_else(|| table.estimated_rows())),
        Access::Ranges(_) => table.estimated_rows_within(&access.scan_ranges()),
        Access::Index { name, within } => match table.index(name) {
            Some(index) => table.estimated_index_rows(index, &within.index_bounds()),
            None => Ok(table.estimated_rows()),
        },
    };
    usize::try_from(rows.unwrap_or_else(|_| table.estimated_rows())).unwrap_or(usize::MAX)
}

/// Properties of a scan's output.
fn properties(
    table: &Table,
    access: &Access,
    direction: Direction,
    projection: &[usize],
    schema: &SchemaRef,
    partitions: usize,
) -> Arc<PlanProperties> {
    let (constants, ordering) = ordering(table, access, direction, projection);
    let mut equivalences = EquivalenceProperties::new_with_orderings(Arc::clone(schema), ordering);
    // They are columns of the schema, which is all that may fail.
    equivalences.add_constants(constants).ok();
    let properties = PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

/// Projected columns that have one value in all rows; and the columns of the key or the index behind them
/// that order the rows, as far as they are projected without a gap.
fn ordering(
    table: &Table,
    access: &Access,
    direction: Direction,
    projection: &[usize],
) -> (Vec<ConstExpr>, Option<LexOrdering>) {
    let schema = table.schema();
    let (columns, within) = match access {
        Access::Index { name, within } => match table.index(name) {
            Some(index) => (&index.definition().columns[..], &**within),
            None => return (Vec::new(), None),
        },
        access => (schema.key(), access),
    };
    let column = |at: usize| {
        let name = &schema.columns()[projection[at]].name;
        Arc::new(PhysicalColumn::new(name, at)) as Arc<dyn PhysicalExpr>
    };
    let projected = |key: &usize| projection.iter().position(|column| column == key);
    // Keys do not distinguish -0.0 from 0.0.
    let is_exact =
        |key: &&usize| !matches!(schema.columns()[**key].data_type, DataType::Real | DataType::Double);
    let fixed = columns.iter().take(within.fixed_columns()).take_while(is_exact).count();
    let (fixed, rest) = columns.split_at(fixed);
    let constants = fixed.iter().filter_map(projected);
    let constants = constants.map(|at| ConstExpr::new(column(at), AcrossPartitions::Uniform(None)));
    let backward = direction == Direction::Backward;
    let options = SortOptions { descending: backward, nulls_first: backward };
    let leading = rest.iter().map_while(projected);
    let exprs = leading.map(|at| PhysicalSortExpr::new(column(at), options));
    (constants.collect(), LexOrdering::new(exprs))
}

impl DisplayAs for EntresolScan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.table.schema().columns();
        let names: Vec<&str> = self.projection.iter().map(|&column| columns[column].name.as_str()).collect();
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let (table, access) = (self.table.name(), &self.access);
                write!(f, "EntresolScan: table={table}, access={access}, projection=[{}]", names.join(", "))?;
                if self.direction == Direction::Backward {
                    write!(f, ", backward")?;
                }
                self.iterator.map_or(Ok(()), |iterator| write!(f, ", {iterator}"))?;
                self.parts.as_ref().map_or(Ok(()), |parts| write!(f, ", partitions={}", parts.len()))?;
                self.as_of().map_or(Ok(()), |at| write!(f, ", as_of={at}"))?;
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
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let partitions = self.properties.output_partitioning().partition_count();
        assert_or_internal_err!(
            partition < partitions,
            "EntresolScan has {partitions} partitions, no {partition}"
        );
        let batch_rows = context.session_config().batch_size().clamp(1, BATCH_ROWS);
        let Some(transaction) = &self.transaction else {
            return internal_err!("a scan of {} is bound to no transaction", self.table.name());
        };
        let reader = Reader::new(self, transaction, partition, batch_rows);
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
    ) -> DFResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        let rows = self.estimated_rows();
        statistics.num_rows = Precision::Inexact(rows);
        let columns = (&self.projection[..], self.schema.as_ref());
        fill_columns(&mut statistics.column_statistics, &self.table, columns, rows);
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        // A scan has no children through which a limit could be pushed.
        false
    }

    fn repartitioned(
        &self,
        partitions: usize,
        _config: &ConfigOptions,
    ) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
        let is_by_key = matches!(self.access, Access::Full | Access::Ranges(_));
        if !is_by_key || self.limit.is_some() || self.parts.is_some() {
            return Ok(None);
        }
        let parts = self.table.split(&self.access.scan_ranges(), partitions);
        Ok(parts
            .map_err(external)?
            .map(|parts| Arc::new(EntresolScan { parts: Some(parts.into()), ..self.clone() }.renewed()) as _))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(EntresolScan { limit, ..self.clone() }.renewed()))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }
}

/// Records that a scan begins, and the index that it uses.
fn note_access(scan: &EntresolScan) {
    if let Some(recorded) = &scan.recorded {
        recorded.begin();
    } else if let Access::Point(_) | Access::Keys(_) = &scan.access {
        let rows = scan.access.rows_max().unwrap_or(0) as u64;
        scan.table.workload().note_rows(RowOperation::Read, rows);
    }
    if let Some(index) = scan.access.index() {
        scan.table.workload().note_index(index);
    }
}

/// Rows still to be read.
enum RemainingRows {
    Keys(std::vec::IntoIter<Row>),
    /// Cursors over ranges, the next one last.
    Ranges(Vec<Cursor>),
    Index {
        name: String,
        bounds: Vec<IndexBounds>,
        cursor: Option<IndexCursor>,
    },
}

/// Reader of one batch after another.
struct Reader {
    table: Arc<Table>,
    transaction: Arc<Transaction>,
    rest: RemainingRows,
    direction: Direction,
    rows: StoredRows,
    batch_rows: usize,
    /// Maximum number of rows still to be returned.
    rows_left: usize,
    metrics: BaselineMetrics,
    query: Option<Arc<RunningQuery>>,
    recorded: Option<Arc<RecordedScan>>,
}

impl Reader {
    fn new(
        scan: &EntresolScan,
        transaction: &Arc<Transaction>,
        partition: usize,
        batch_rows: usize,
    ) -> Reader {
        let rest = match &scan.access {
            Access::Point(key) => RemainingRows::Keys(vec![key.clone()].into_iter()),
            Access::Keys(keys) => {
                let mut keys = keys.clone();
                if scan.direction == Direction::Backward {
                    keys.reverse();
                }
                RemainingRows::Keys(keys.into_iter())
            }
            Access::Index { name, within } => {
                RemainingRows::Index { name: name.clone(), bounds: within.index_bounds(), cursor: None }
            }
            access => {
                let mut cursors: Vec<Cursor> = match &scan.parts {
                    Some(parts) => {
                        parts[partition].iter().map(|range| scan.table.scan_within(range.clone())).collect()
                    }
                    None => access.scan_ranges().into_iter().map(|range| scan.table.scan(range)).collect(),
                };
                if scan.direction == Direction::Forward {
                    cursors.reverse();
                }
                RemainingRows::Ranges(
                    cursors.into_iter().map(|cursor| cursor.directed(scan.direction)).collect(),
                )
            }
        };
        if partition == 0 {
            note_access(scan);
        }
        let capacity = scan.rows_max().unwrap_or(batch_rows).min(batch_rows);
        Reader {
            table: Arc::clone(&scan.table),
            transaction: Arc::clone(transaction),
            rest,
            direction: scan.direction,
            rows: StoredRows::new(
                scan.table.name(),
                scan.table.schema(),
                &scan.projection,
                Arc::clone(&scan.schema),
                capacity,
            ),
            batch_rows,
            rows_left: scan.limit.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&scan.metrics, partition),
            query: scan.query.clone(),
            recorded: scan.recorded.clone(),
        }
    }

    /// Collects rows; false once there are no more.
    fn step(&mut self) -> entresol_tables::Result<bool> {
        let rows_max = (self.batch_rows - self.rows.len()).min(self.rows_left);
        let (rows, rows_end) = (&mut self.rows, self.rows_left);
        let push = |row: entresol_tables::RowView<'_>| {
            if rows.len() < rows_end {
                rows.push_view(&row);
            }
        };
        match &mut self.rest {
            RemainingRows::Keys(keys) => {
                let chunk: Vec<Row> = keys.by_ref().take(self.batch_rows).collect();
                let mut push = push;
                self.table.get_many_with(&self.transaction, &chunk, |_, row| push(row))?;
                Ok(!chunk.is_empty())
            }
            RemainingRows::Index { name, bounds, cursor } => {
                let open = match cursor {
                    Some(open) => open,
                    None => {
                        let index = self
                            .table
                            .index(name)
                            .ok_or_else(|| entresol_tables::Error::NoSuchIndex { index: name.clone() })?;
                        let bounds = std::mem::take(bounds);
                        let found = self.table.index_scan(&self.transaction, index, bounds)?;
                        cursor.insert(found.directed(self.direction))
                    }
                };
                open.next_batch(&self.transaction, rows_max, push)
            }
            RemainingRows::Ranges(cursors) => {
                let Some(open) = cursors.last_mut() else { return Ok(false) };
                if !open.next_stored(&self.transaction, rows, rows_end)? {
                    cursors.pop();
                }
                Ok(true)
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(recorded) = &self.recorded {
            let elapsed = Duration::from_nanos(self.metrics.elapsed_compute().value() as u64);
            recorded.end(self.metrics.output_rows().value() as u64, elapsed);
        }
    }
}

impl Iterator for Reader {
    type Item = DFResult<RecordBatch>;

    fn next(&mut self) -> Option<DFResult<RecordBatch>> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        while !self.rows.is_batch(self.batch_rows.min(self.rows_left)) {
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
                    self.rows.clear();
                    return Some(Err(external(error)));
                }
            }
        }
        match self.rows.len() {
            0 => None,
            rows => {
                self.rows_left -= rows;
                self.metrics.record_output(rows);
                Some(self.rows.finish().map_err(|error| external(Error::from(error))))
            }
        }
    }
}
