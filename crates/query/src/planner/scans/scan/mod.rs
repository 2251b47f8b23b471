//! The physical operator that reads a table: one snapshot, one access, the projected columns.
//!
//! - A scan holds the transaction that it was planned in; so does its stream, which keeps the snapshot alive
//!   until it is exhausted or dropped.
//! - Rows come in the order of the key, or of the index that finds them, or against it, and the plan says so,
//!   as far as the leading columns of that are projected.
//! - A scan of many rows by the key is divided by key ranges, one for each processor, if the planner asks.
//! - A scan of many rows may evaluate filters before it decodes the other columns ([`filters`]); its limit counts the
//!   rows behind them.
//! - Reads are memory accesses within `poll`, a batch at a time, and the stream yields to the scheduler as
//!   DataFusion's cooperative streams do.
//! - Memory: one batch, that is [`BATCH_ROWS`] rows or 4 MiB, and at most one batch of the cursor more; with filters
//!   their columns of these rows, decoded.

mod filters;
mod reader;

use crate::error::external;
use crate::planner::fresh_filters::FreshFilters;
use crate::planner::running_query::RunningQuery;
use crate::planner::scans::access::Access;
use crate::planner::scans::access::choice::Choice;
use crate::planner::scans::scan::filters::ScanFilter;
use crate::planner::scans::scan::reader::Reader;
use crate::planner::scans::statistics::fill_columns;
use crate::postgres::plan_expressions::Change;
use crate::postgres::types::nullable;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, ScalarValue, Statistics, assert_or_internal_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column as PhysicalColumn, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::{
    AcrossPartitions, ConstExpr, EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, SchedulingType, apply_expression_roots,
};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use entresol_tables::workload::RecordedScan;
use entresol_tables::{DataType, Direction, Index, IteratorChoice, KeyRange, Table};
use entresol_transactions::{Timestamp, Transaction};
use std::fmt;
use std::sync::Arc;

/// Maximum rows of a batch.
pub const BATCH_ROWS: usize = 8192;
/// Maximum number of rows that an index finds in order, to be looked up one by one; sorting all rows of a
/// table costs less than looking up all of them.
const LOOKED_UP_MAX: usize = 10_000;
/// Least rows of a scan that evaluates filters.
const FILTERED_ROWS_MIN: usize = 8192;
/// Least rows of a scan that takes dynamic filters; scans of generic plans have fewer.
const DYNAMIC_ROWS_MIN: usize = 32_768;

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
    /// Filters of the rows, in the order in which they are evaluated.
    filters: Vec<ScanFilter>,
    /// Filters that become known before the scan is asked for rows, evaluated behind the others.
    dynamic: Vec<ScanFilter>,
    /// Maximum number of rows that it returns, those that filters leave out not counted.
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
            filters: Vec::new(),
            dynamic: Vec::new(),
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
        self.choice.is_some()
    }

    /// The same scan of another transaction, with the access for these values of the parameters, in a copy of the
    /// plan; `None` if what the plan relies on would not hold. It may have another number of partitions.
    pub(crate) fn rebound(
        &self,
        transaction: &Arc<Transaction>,
        values: &[ScalarValue],
        fresh: &FreshFilters,
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
        let mut parts = None;
        if let Some(planned) = &self.parts {
            let divided = self.table.split(&access.scan_ranges(), planned.len()).map_err(external)?;
            parts = divided.map(Arc::from);
        }
        let held = self.dynamic.iter().filter_map(|filter| filter.renewed(fresh).transpose());
        let is_divided_so = parts.as_ref().map(|parts: &Arc<[_]>| parts.len())
            == self.parts.as_ref().map(|parts| parts.len());
        let bound = EntresolScan {
            access_rows: estimated_rows(&self.table, &access),
            access,
            parts,
            dynamic: held.collect::<DFResult<_>>()?,
            transaction: Some(Arc::clone(transaction)),
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        };
        Ok(Some(if is_divided_so { bound } else { bound.renewed() }))
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
        let is_filtered = !self.filters.is_empty() || !self.dynamic.is_empty();
        self.access == Access::Full && self.limit.is_none() && !is_filtered && self.reads_present()
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

    /// The same scan with the filter of a node over it, whose columns, limit and properties it takes; `None` if it
    /// is better left to the node.
    pub(crate) fn filtered(&self, node: &FilterExec) -> DFResult<Option<EntresolScan>> {
        if !self.is_by_key() || self.limit.is_some() || self.access_rows < FILTERED_ROWS_MIN {
            return Ok(None);
        }
        let mut filters = self.filters.clone();
        filters.push(ScanFilter::new(node.predicate(), &self.projection, &self.schema)?);
        let projection = match node.projection() {
            Some(columns) => columns.iter().map(|at| self.projection[*at]).collect(),
            None => self.projection.clone(),
        };
        // Nodes above rely on what is constant behind the filter.
        let properties = PlanProperties::clone(node.properties());
        Ok(Some(EntresolScan {
            filters,
            projection,
            limit: node.fetch(),
            schema: node.schema(),
            properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)),
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        }))
    }

    /// The same scan with changed filters; `None` if none changes.
    pub(crate) fn with_changed_filters(
        &self,
        change: Change<'_>,
    ) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
        let filters =
            self.filters.iter().map(|filter| filter.changed(change)).collect::<DFResult<Vec<_>>>()?;
        if !filters.iter().any(|filter| filter.transformed) {
            return Ok(None);
        }
        let filters = filters.into_iter().map(|filter| filter.data).collect();
        Ok(Some(Arc::new(EntresolScan { filters, ..self.clone() })))
    }

    /// Returns true if it reads ranges of keys, or all rows.
    fn is_by_key(&self) -> bool {
        matches!(self.access, Access::Full | Access::Ranges(_))
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

    /// Estimated number of rows that it reads.
    pub(crate) fn estimated_rows(&self) -> usize {
        self.rows_max().map_or(self.access_rows, |rows| rows.min(self.access_rows))
    }

    /// Maximum number of rows that it reads, if the access or the limit bounds it.
    fn rows_max(&self) -> Option<usize> {
        let is_filtered = !self.filters.is_empty() || !self.dynamic.is_empty();
        match (self.access.rows_max(), self.limit.filter(|_| !is_filtered)) {
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
                if !self.filters.is_empty() {
                    let filters: Vec<String> = self.filters.iter().map(ScanFilter::to_string).collect();
                    write!(f, ", filter=[{}]", filters.join(", "))?;
                }
                if !self.dynamic.is_empty() {
                    write!(f, ", dynamic={}", self.dynamic.len())?;
                }
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
                self.filters.iter().try_for_each(|filter| writeln!(f, "filter={filter}"))?;
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
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DFResult<TreeNodeRecursion>,
    ) -> DFResult<TreeNodeRecursion> {
        apply_expression_roots(self.filters.iter().map(ScanFilter::condition), f)
    }

    /// Takes dynamic filters, if there are many rows that they may leave out.
    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DFResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let offered = result.parent_filters.iter().map(|offered| &offered.filter);
        let offered = offered.filter(|filter| filter.is::<DynamicFilterPhysicalExpr>());
        let taken = offered.map(|filter| ScanFilter::new(filter, &self.projection, &self.schema));
        let taken = taken.collect::<DFResult<Vec<_>>>()?;
        let answer = FilterPushdownPropagation::all_unsupported(result);
        let has_many = self.is_by_key() && self.access_rows >= DYNAMIC_ROWS_MIN;
        if taken.is_empty() || !has_many || self.limit.is_some() {
            return Ok(answer);
        }
        let dynamic = self.dynamic.iter().cloned().chain(taken).collect();
        Ok(answer.with_updated_node(Arc::new(EntresolScan { dynamic, ..self.clone() })))
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
        let mut reader = Reader::new(self, transaction, partition, batch_rows);
        let rows = futures::stream::poll_fn(move |context| reader.poll(context));
        let stream = RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows);
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
        if !self.is_by_key() || self.limit.is_some() || self.parts.is_some() {
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
