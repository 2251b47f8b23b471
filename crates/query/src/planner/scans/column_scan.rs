//! The physical operator that reads a table with row groups column by column.
//!
//! - A scan holds the transaction that it was planned in. What it reads is settled by its first partition, for
//!   all of them: blocks go to the partitions in turn, rows of the delta store to the first one.
//! - Conditions on single columns are checked on the stored values, before other columns are decoded.
//! - Dynamic filters, such as the keys of a star join's dimensions, are taken as they are when the scan begins.
//! - Rows come in no order. Rows of blocks that have few are gathered, so that batches are not small.
//! - Row groups whose pages are not cached are loaded ahead on the runtime's threads for blocking calls, unless the
//!   scan has a limit.
//! - Memory: a block per partition, and the pages in use of the row groups being read and loaded; the rows of the delta store, if the transaction has written some.

use crate::error::{Error, external};
use crate::planner::fresh_filters::FreshFilters;
use crate::planner::running_query::RunningQuery;
use crate::planner::scans::access::choice::ColumnChoice;
use crate::planner::scans::access::dynamic::dynamic_filters;
use crate::postgres::types::nullable;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DFResult, ScalarValue, Statistics, assert_or_internal_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
};
use entresol_tables::workload::RecordedScan;
use entresol_tables::{
    BlockReader, Column, ColumnCondition, ColumnEstimates, ColumnFilter, ColumnMorsel, ColumnScan, DataType,
    DeltaReader, ElfCaching, ElfDefinition, IteratorChoice, Table, TableLayout, Value,
};
use entresol_transactions::{Timestamp, Transaction};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;

/// Share of rows that conditions let pass, where nothing better is known, as a divisor.
const FILTER_SHARE: f64 = 5.0;
/// Least number of rows of a partition.
const PARTITION_ROWS_MIN: u64 = 32 << 10;
/// Blocks after which the rows gathered of them are a batch, however few.
const GATHERED_BLOCKS: usize = 64;

/// Row groups of a scan, once it has begun.
#[derive(Debug)]
struct OpenScan {
    scan: ColumnScan,
    morsels: Vec<ColumnMorsel>,
    /// Rows of the delta store, if the transaction has written some, which it may change before they are read.
    delta: Option<Vec<RecordBatch>>,
    /// Partitions that have not ended.
    readers: AtomicUsize,
}

/// Column scan operator; see the [module](self).
#[derive(Debug, Clone)]
pub(crate) struct EntresolColumnScan {
    table: Arc<Table>,
    /// Positions of the table's columns, in output order.
    projection: Vec<usize>,
    filters: Vec<ColumnFilter>,
    /// Filters that become known before the scan begins; the operator that made them applies them again.
    dynamic: Vec<Arc<dyn PhysicalExpr>>,
    partitions: usize,
    limit: Option<usize>,
    /// Reason to read a clustered table block by block.
    iterator: Option<IteratorChoice>,
    /// Choice of the conditions, if the scan may be bound to other values.
    choice: Option<Arc<ColumnChoice>>,
    /// None in the template of a generic plan, which is bound to one before it is run.
    transaction: Option<Arc<Transaction>>,
    /// Rows that it returned as estimated when its template was made.
    planned_rows: usize,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    begun: Arc<OnceLock<OpenScan>>,
    estimated: Arc<OnceLock<Option<ColumnEstimates>>>,
    /// Query whose cancellation stops the scan.
    query: Option<Arc<RunningQuery>>,
    /// Record of its runs.
    recorded: Option<Arc<RecordedScan>>,
}

impl EntresolColumnScan {
    /// Scan of the columns `projection` of the rows that meet all filters and `transaction` sees; they are
    /// returned with `schema`.
    pub(crate) fn new(
        table: Arc<Table>,
        mut schema: SchemaRef,
        projection: Vec<usize>,
        filters: Vec<ColumnFilter>,
        limit: Option<usize>,
        transaction: Arc<Transaction>,
    ) -> EntresolColumnScan {
        if transaction.as_of().is_some() {
            let is_key = |column: &usize| table.schema().key().contains(column);
            let key: Vec<usize> = (0..projection.len()).filter(|&at| is_key(&projection[at])).collect();
            schema = nullable(&schema, &key);
        }
        EntresolColumnScan {
            table,
            projection,
            filters,
            dynamic: Vec::new(),
            partitions: 1,
            limit,
            iterator: None,
            choice: None,
            transaction: Some(transaction),
            planned_rows: 0,
            properties: properties(&schema, 1),
            schema,
            metrics: ExecutionPlanMetricsSet::new(),
            begun: Arc::default(),
            estimated: Arc::default(),
            query: None,
            recorded: None,
        }
    }

    /// The same scan, whose runs are recorded.
    pub(crate) fn recorded(self, recorded: Option<Arc<RecordedScan>>) -> EntresolColumnScan {
        EntresolColumnScan { recorded, ..self }
    }

    /// Table of the scan.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Record of its runs, with the conditions that it was planned for.
    pub(crate) fn record(&self) -> Option<&Arc<RecordedScan>> {
        self.recorded.as_ref()
    }

    /// The same scan, of a clustered table with the reason to read it block by block, and with the choice of its
    /// conditions if it may be bound to other values.
    pub(crate) fn chosen(
        self,
        iterator: Option<IteratorChoice>,
        choice: Option<Arc<ColumnChoice>>,
    ) -> EntresolColumnScan {
        EntresolColumnScan { iterator, choice, ..self }
    }

    /// Returns true if [`EntresolColumnScan::rebound`] may bind it to other values.
    pub(crate) fn is_rebindable(&self) -> bool {
        self.choice.is_some()
    }

    /// The same scan of another transaction, with the conditions for these values of the parameters, in a copy of the
    /// plan; `None` if what the plan relies on would not hold.
    pub(crate) fn rebound(
        &self,
        transaction: &Arc<Transaction>,
        values: &[ScalarValue],
        fresh: &FreshFilters,
    ) -> DFResult<Option<EntresolColumnScan>> {
        let Some(choice) = &self.choice else { return Ok(None) };
        let Some((filters, iterator)) = choice.again(&self.table, transaction, values)? else {
            return Ok(None);
        };
        let held = self.dynamic.iter().filter_map(|filter| fresh.held(filter).transpose());
        Ok(Some(EntresolColumnScan {
            filters,
            iterator,
            dynamic: held.collect::<DFResult<_>>()?,
            transaction: Some(Arc::clone(transaction)),
            metrics: ExecutionPlanMetricsSet::new(),
            begun: Arc::default(),
            estimated: Arc::default(),
            ..self.clone()
        }))
    }

    /// The same scan without its transaction, whose snapshot it does not keep alive then.
    pub(crate) fn unbound(&self) -> EntresolColumnScan {
        let planned_rows = self.returned_rows();
        let (begun, estimated) = (Arc::default(), Arc::default());
        EntresolColumnScan { transaction: None, planned_rows, begun, estimated, ..self.clone() }
    }

    /// Time as of which it reads; `None` for now.
    fn as_of(&self) -> Option<Timestamp> {
        self.transaction.as_ref().and_then(|transaction| transaction.as_of())
    }

    /// Rows that it looks at, as far as is known without reading them.
    pub(crate) fn estimated_rows(&self) -> usize {
        usize::try_from(self.table.estimated_rows()).unwrap_or(usize::MAX)
    }

    /// Estimated number of rows that it returns.
    pub(crate) fn returned_rows(&self) -> usize {
        let all = self.estimated_rows();
        let share = match self.estimates() {
            Some(estimates) => estimates.share,
            None if self.filters.is_empty() => 1.0,
            None => 1.0 / FILTER_SHARE,
        };
        let rows = if all == 0 { 0 } else { ((all as f64 * share) as usize).max(1) };
        self.limit.map_or(rows, |limit| rows.min(limit))
    }

    /// Rows that it returned as estimated when its template was made.
    pub(crate) fn planned_rows(&self) -> usize {
        self.planned_rows
    }

    /// The same scan as a part of a query that may be cancelled.
    pub(crate) fn within(&self, query: &Arc<RunningQuery>) -> EntresolColumnScan {
        EntresolColumnScan { query: Some(Arc::clone(query)), ..self.clone() }
    }

    /// Row groups that the scan reads; the first partition that asks settles them.
    fn begun(&self, transaction: &Transaction) -> entresol_tables::Result<&OpenScan> {
        if let Some(begun) = self.begun.get() {
            return Ok(begun);
        }
        let (projection, schema) = (self.projection.clone(), Arc::clone(&self.schema));
        let mut filters = self.filters.clone();
        filters.extend(dynamic_filters(&self.dynamic, &self.projection));
        let scan = self.table.column_scan(transaction, projection, schema, filters)?;
        let scan =
            scan.ok_or_else(|| entresol_tables::Error::TableChanged { table: self.table.name().to_owned() })?;
        let morsels = scan.morsels();
        let mut delta = None;
        if transaction.written_states().contains(&self.table.state().id()) {
            let (mut reader, mut batches) = (scan.delta(), Vec::new());
            while let Some(batch) = reader.next(transaction)? {
                batches.push(batch);
            }
            delta = Some(batches);
        }
        Ok(self.begun.get_or_init(|| {
            let readers = AtomicUsize::new(self.partitions);
            OpenScan { scan, morsels, delta, readers }
        }))
    }
}

impl EntresolColumnScan {
    /// Lets other threads load the row groups after that of a block, where there is a runtime that has such.
    fn load_ahead(&self, transaction: &Arc<Transaction>, scan: &ColumnScan, morsel: ColumnMorsel) {
        if self.limit.is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        for group in scan.groups_ahead(morsel) {
            let (begun, transaction) = (Arc::clone(&self.begun), Arc::clone(transaction));
            runtime.spawn_blocking(move || {
                // The reader that needs the pages meets what fails here.
                let _ = begun.get().map(|begun| begun.scan.load_ahead(&transaction, group));
            });
        }
    }

    /// Estimates of the rows, made once for a plan; none if they cannot be made: reading will say why.
    fn estimates(&self) -> Option<&ColumnEstimates> {
        let estimated = self.estimated.get_or_init(|| {
            let transaction = self.transaction.as_ref()?;
            let estimates = self.table.column_estimates(transaction, &self.filters, &self.projection);
            estimates.ok().flatten()
        });
        estimated.as_ref()
    }

    /// Names of the Elf indexes that the scan may search; none if there are none.
    fn elves(&self) -> Option<String> {
        let elves = self.table.elves_for(self.transaction.as_ref()?, &self.filters);
        let shown = |elf: &ElfDefinition| match elf.caching {
            ElfCaching::Whole => elf.name.clone(),
            ElfCaching::Lists { policy, .. } => format!("{} (lists by {policy})", elf.name),
        };
        let names: Vec<String> = elves.iter().map(shown).collect();
        (!names.is_empty()).then(|| names.join(" or "))
    }
}

fn properties(schema: &SchemaRef, partitions: usize) -> Arc<PlanProperties> {
    let properties = PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(schema)),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

/// Condition on a column, with the bounds of integers as values of its type.
fn shown(column: &Column, condition: &ColumnCondition) -> String {
    let name = &column.name;
    let (least, greatest) = match *condition {
        ColumnCondition::Between { least, greatest } if least <= greatest => (least, greatest),
        _ => return format!("{name} {condition:?}"),
    };
    let value = |bound: i64| {
        let value = match column.data_type {
            DataType::Date => i32::try_from(bound).map_or(Value::BigInt(bound), Value::Date),
            DataType::Timestamp | DataType::TimestampTz => Value::Timestamp(bound),
            DataType::Decimal { .. } => Value::Decimal(i128::from(bound)),
            _ => Value::BigInt(bound),
        };
        value.display(column.data_type).to_string()
    };
    match (least, greatest) {
        (i64::MIN, i64::MAX) => format!("{name} not null"),
        (i64::MIN, _) => format!("{name} <= {}", value(greatest)),
        (_, i64::MAX) => format!("{name} >= {}", value(least)),
        _ if least == greatest => format!("{name} = {}", value(least)),
        _ => format!("{name} between {} and {}", value(least), value(greatest)),
    }
}

impl DisplayAs for EntresolColumnScan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.table.schema().columns();
        let names: Vec<&str> = self.projection.iter().map(|&column| columns[column].name.as_str()).collect();
        let shown = |filter: &ColumnFilter| shown(&columns[filter.column], &filter.condition);
        let filters: Vec<String> = self.filters.iter().map(shown).collect();
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(
                    f,
                    "EntresolColumnScan: table={}, projection=[{}]",
                    self.table.name(),
                    names.join(", ")
                )?;
                if !filters.is_empty() {
                    write!(f, ", conditions=[{}]", filters.join(", "))?;
                }
                if let Some(elves) = self.elves() {
                    write!(f, ", elf={elves}")?;
                }
                if let Some(clustering) = self.table.definition().clustered_by() {
                    write!(f, ", cluster_by=[{}]", clustering.cluster_by(self.table.schema()))?;
                }
                let definition = self.table.definition();
                if definition.layout == TableLayout::Elf {
                    let elf_by = definition.elf_layout.elf_by(&definition.schema);
                    let elf_by = elf_by.map_or("chosen".to_owned(), |names| format!("[{names}]"));
                    write!(f, ", elf_by={elf_by}")?;
                }
                if let Some(url) = self.table.object_store() {
                    write!(f, ", object_store={url}")?;
                }
                self.iterator.map_or(Ok(()), |iterator| write!(f, ", {iterator}"))?;
                if !self.dynamic.is_empty() {
                    write!(f, ", dynamic={}", self.dynamic.len())?;
                }
                if self.partitions > 1 {
                    write!(f, ", partitions={}", self.partitions)?;
                }
                self.as_of().map_or(Ok(()), |at| write!(f, ", as_of={at}"))?;
                self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.table.name())?;
                filters.iter().try_for_each(|filter| writeln!(f, "{filter}"))
            }
        }
    }
}

impl ExecutionPlan for EntresolColumnScan {
    fn name(&self) -> &str {
        "EntresolColumnScan"
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

    fn reset_state(self: Arc<Self>) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(EntresolColumnScan { begun: Arc::default(), ..(*self).clone() }))
    }

    /// Takes dynamic filters, which leave out blocks and rows; the operator that made them applies them again.
    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DFResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let offered = result.parent_filters.iter().map(|offered| Arc::clone(&offered.filter));
        let taken: Vec<_> =
            offered.filter(|filter| filter.downcast_ref::<DynamicFilterPhysicalExpr>().is_some()).collect();
        let answer = FilterPushdownPropagation::all_unsupported(result);
        if taken.is_empty() || self.limit.is_some() {
            return Ok(answer);
        }
        let dynamic = self.dynamic.iter().cloned().chain(taken).collect();
        let scan = EntresolColumnScan { dynamic, begun: Arc::default(), ..self.clone() };
        Ok(answer.with_updated_node(Arc::new(scan)))
    }

    // Required by the trait, superseded by `replace_children`.
    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DFResult<SendableRecordBatchStream> {
        let partitions = self.partitions;
        assert_or_internal_err!(
            partition < partitions,
            "EntresolColumnScan has {partitions} partitions, no {partition}"
        );
        let Some(transaction) = &self.transaction else {
            return internal_err!("a scan of {} is bound to no transaction", self.table.name());
        };
        if let Some(recorded) = self.recorded.as_ref().filter(|_| partition == 0) {
            recorded.begin();
        }
        let reader = Reader {
            scan: self.clone(),
            transaction: Arc::clone(transaction),
            next_morsel: partition,
            blocks: None,
            gathered_blocks: 0,
            delta: None,
            next_delta: 0,
            is_delta_read: partition > 0,
            rows_left: self.limit.unwrap_or(usize::MAX),
            batch_rows: context.session_config().batch_size().max(1),
            rest: None,
            metrics: BaselineMetrics::new(&self.metrics, partition),
            blocks_read: MetricBuilder::new(&self.metrics).counter("blocks_read", partition),
            blocks_skipped: MetricBuilder::new(&self.metrics).counter("blocks_skipped", partition),
            pages: PageCounts::new(&self.metrics, partition),
            pruned: self.table.definition().clustered_by().map(|_| {
                ["pruned_by_key", "pruned_by_summary"]
                    .map(|name| MetricBuilder::new(&self.metrics).counter(name, partition))
            }),
            elf: self.elves().map(|_| {
                ["elf_searches", "elf_rows"]
                    .map(|name| MetricBuilder::new(&self.metrics).counter(name, partition))
            }),
        };
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
        if let Some(estimates) = self.estimates() {
            let rows = self.estimated_rows() as f64 * estimates.share;
            let analyzed = self.table.analyzed();
            let analyzed = |at: usize| {
                let column = analyzed.as_ref()?.column(self.table.schema(), self.projection[at])?;
                Some(column.distinct as u64)
            };
            let columns = statistics.column_statistics.iter_mut().zip(&estimates.distinct).enumerate();
            for (at, (column, distinct)) in columns {
                let distinct = distinct.or_else(|| analyzed(at));
                let distinct = distinct.map(|distinct| (distinct as usize).min(rows as usize).max(1));
                column.distinct_count = distinct.map_or(Precision::Absent, Precision::Inexact);
            }
        }
        statistics.num_rows = Precision::Inexact(self.returned_rows());
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
        let most = (self.table.estimated_rows() / PARTITION_ROWS_MIN).min(partitions as u64) as usize;
        if most < 2 || self.partitions > 1 || self.limit.is_some() {
            return Ok(None);
        }
        let properties = properties(&self.schema, most);
        Ok(Some(Arc::new(EntresolColumnScan { partitions: most, properties, ..self.clone() })))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(EntresolColumnScan { limit, ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }
}

/// Reader of one batch after another.
struct Reader {
    scan: EntresolColumnScan,
    transaction: Arc<Transaction>,
    next_morsel: usize,
    /// Reader of the blocks, once there is one.
    blocks: Option<BlockReader>,
    /// Blocks read since the last batch.
    gathered_blocks: usize,
    delta: Option<DeltaReader>,
    /// Next of the batches that were read when the scan began.
    next_delta: usize,
    is_delta_read: bool,
    /// Maximum number of rows still to be returned.
    rows_left: usize,
    batch_rows: usize,
    /// Rows of a batch that was too large.
    rest: Option<RecordBatch>,
    metrics: BaselineMetrics,
    blocks_read: Count,
    blocks_skipped: Count,
    /// Row groups in which an Elf was searched, and rows that it found, if there is one to search.
    elf: Option<[Count; 2]>,
    /// Row groups that their cluster keys ruled out, and their summaries, of a clustered table.
    pruned: Option<[Count; 2]>,
    /// Pages and bytes; those of all partitions are noted by the one that ends last.
    pages: PageCounts,
}

/// Counters of the pages of columns.
struct PageCounts {
    read: Count,
    cached: Count,
    skipped: Count,
    bytes_read: Count,
    bytes_cached: Count,
}

impl PageCounts {
    fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> PageCounts {
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        PageCounts {
            read: counter("pages_read"),
            cached: counter("pages_cached"),
            skipped: counter("pages_skipped"),
            bytes_read: counter("bytes_read"),
            bytes_cached: counter("bytes_cached"),
        }
    }

    fn note(&self, scan: &ColumnScan) {
        let used = scan.stats().page_use();
        self.read.add(used.pages_read as usize);
        self.cached.add(used.pages_cached as usize);
        self.skipped.add(scan.pages().saturating_sub(used.pages_read + used.pages_cached) as usize);
        self.bytes_read.add(used.bytes_read as usize);
        self.bytes_cached.add(used.bytes_cached as usize);
    }
}

impl Reader {
    /// Reads the next block, or part of the delta store; the inner none if there is no batch yet, the outer at the end.
    fn step(&mut self) -> entresol_tables::Result<Option<Option<RecordBatch>>> {
        let transaction = &self.transaction;
        let begun = self.scan.begun(transaction)?;
        let enough = (self.batch_rows / 2).min(self.rows_left);
        if let Some(morsel) = begun.morsels.get(self.next_morsel) {
            self.next_morsel += self.scan.partitions;
            let blocks = self.blocks.get_or_insert_with(|| begun.scan.reader());
            let rows = begun.scan.append(transaction, *morsel, blocks)?;
            self.scan.load_ahead(transaction, &begun.scan, *morsel);
            let counter = if rows > 0 { &self.blocks_read } else { &self.blocks_skipped };
            counter.add(1);
            if let Some([searches, rows]) = &self.elf {
                let (more, found) = begun.scan.stats().take_elf();
                searches.add(more as usize);
                rows.add(found as usize);
            }
            self.gathered_blocks += 1;
            let is_batch =
                blocks.rows() >= enough || self.gathered_blocks >= GATHERED_BLOCKS || blocks.is_large();
            if !is_batch {
                return Ok(Some(None));
            }
            self.gathered_blocks = 0;
            return begun.scan.take(blocks).map(Some);
        }
        if let Some(blocks) = self.blocks.as_mut().filter(|blocks| blocks.rows() > 0) {
            return begun.scan.take(blocks).map(Some);
        }
        if self.is_delta_read {
            return Ok(None);
        }
        // Those of row groups that their summaries ruled out.
        if self.delta.is_none() {
            let skipped = begun.scan.stats().blocks_skipped.load(Ordering::Relaxed) as usize;
            self.blocks_skipped.add(skipped.saturating_sub(self.blocks_skipped.value()));
            if let Some([by_key, by_summary]) = &self.pruned {
                let stats = begun.scan.stats();
                by_key.add(stats.key_pruned.load(Ordering::Relaxed) as usize);
                by_summary.add(stats.summary_pruned.load(Ordering::Relaxed) as usize);
            }
        }
        let batch = if let Some(batches) = &begun.delta {
            self.next_delta += 1;
            batches.get(self.next_delta - 1).cloned()
        } else {
            self.delta.get_or_insert_with(|| begun.scan.delta()).next(transaction)?
        };
        self.is_delta_read = batch.is_none();
        Ok(Some(batch))
    }

    /// Part of a batch that may be returned at once; the others are left for later.
    fn part(&mut self, batch: RecordBatch) -> RecordBatch {
        let rows = batch.num_rows().min(self.batch_rows).min(self.rows_left);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.rows_left -= rows;
        self.metrics.record_output(rows);
        batch.slice(0, rows)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(begun) = self.scan.begun.get()
            && begun.readers.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.pages.note(&begun.scan);
        }
        let Some(recorded) = &self.scan.recorded else { return };
        let elapsed = Duration::from_nanos(self.metrics.elapsed_compute().value() as u64);
        recorded.end(self.metrics.output_rows().value() as u64, elapsed);
        if self.elf.as_ref().is_some_and(|[searches, _]| searches.value() > 0) {
            let elves = self.scan.table.elves_for(&self.transaction, &self.scan.filters);
            elves.iter().for_each(|elf| recorded.workload().note_index(&elf.name));
        }
    }
}

impl Iterator for Reader {
    type Item = DFResult<RecordBatch>;

    fn next(&mut self) -> Option<DFResult<RecordBatch>> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        while self.rows_left > 0 {
            if let Some(rest) = self.rest.take() {
                return Some(Ok(self.part(rest)));
            }
            let stepped = match self.scan.query.as_ref().map_or(Ok(()), |query| query.check()) {
                Ok(()) => self.step().map_err(Error::from),
                Err(stopped) => Err(stopped),
            };
            match stepped {
                Ok(Some(Some(batch))) => return Some(Ok(self.part(batch))),
                Ok(Some(None)) => {}
                Ok(None) => return None,
                Err(error) => {
                    self.rows_left = 0;
                    return Some(Err(external(error)));
                }
            }
        }
        None
    }
}
