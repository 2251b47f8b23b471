//! Parts of a step that DataFusion runs for each batch of a stream, over its rows and tables as the transaction sees them.
//!
//! | node of a plan | why it is one |
//! | --- | --- |
//! | join with tables, other than by the whole key of one | by an index, by other columns, by any condition, without one; with a subquery; ASOF |
//! | WHERE and SELECT with a subquery of tables, by itself or with columns of the stream | a join with them |
//! | `unnest` in SELECT | rows for the elements of a list |
//!
//! The node is planned once, over a relation that has the columns of the stream and the number of a row in its batch. For
//! each batch the rows are put into the relation, the tables are bound to the transaction, and the plan runs on the
//! topology's thread; results are put in the order of the rows that they are of. So whatever it reads of tables is of one
//! snapshot with what the transaction writes, as in a join by key. Cost: a physical plan for each batch, and what it
//! reads: all rows of a table without an index that fits, as EXPLAIN TOPOLOGY shows.
//!
//! Of rows that are taken back, what was sent for each is stored, and is taken back with it.
//!
//! Memory: the results for one batch, at most [`RESULTS_BYTES_MAX`], reserved as that of queries until the next batch.

use crate::error::{Error, Result, as_stream_error};
use crate::planner::row_expressions::Columns;
use crate::planner::rules::asof::{expanded, is_asof};
use crate::streaming::bound_plans::{BoundPlan, Occasion, reads_stream, state_of_thread, stream_columns};
use crate::streaming::filled_relations::FilledRelation;
use crate::streaming::operator_tree::describe_keys;
use crate::streaming::operators::{Flow, Translator, plain_column, storage};
use crate::streaming::replaced::ReplacedBy;
use crate::streaming::table_queries::tables_of;
use crate::streaming::watermarks::EventTime;
use crate::streaming::windows::Windows;
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::interleave_record_batch;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Int64Type, Schema, SchemaRef};
use datafusion::common::{Column as PlanColumn, JoinType};
use datafusion::datasource::provider_as_source;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::{
    Cast, Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection, Unnest,
};
use entresol_streams::{Batch, Context, Operator, Output, Result as StreamResult};
use entresol_tables::{Column, arrow_schema};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the relation of a batch, and of the number of a row in it.
const RELATION: &str = "rows of the stream";
const ROW_NUMBER: &str = "number of the row";
/// Maximum bytes of the results for one batch.
pub(crate) const RESULTS_BYTES_MAX: usize = 256 << 20;
/// Rows of a batch of results that are put in their order.
const ROWS_SENT_MAX: usize = 8192;

/// Node of a plan that is run for each batch.
enum BatchNode<'p> {
    Filter(&'p Filter),
    Projection(&'p Projection),
    /// Join of which the right side is the stream if it is so.
    Join(&'p Join, bool),
    /// With the projection below it that has the lists.
    Unnest(&'p Unnest, &'p Projection),
}

impl<'p> BatchNode<'p> {
    fn of(plan: &'p LogicalPlan) -> Result<BatchNode<'p>> {
        match plan {
            LogicalPlan::Filter(filter) => Ok(BatchNode::Filter(filter)),
            LogicalPlan::Projection(projection) => Ok(BatchNode::Projection(projection)),
            LogicalPlan::Join(join) => BatchNode::of_join(join),
            LogicalPlan::Unnest(unnest) => match unnest.input.as_ref() {
                LogicalPlan::Projection(projection) => Ok(BatchNode::Unnest(unnest, projection)),
                _ => Err(Error::unsupported("unnest in a step, other than in SELECT")),
            },
            other => Err(Error::Internal(format!("{} for each batch", other.display()))),
        }
    }

    fn of_join(join: &'p Join) -> Result<BatchNode<'p>> {
        let is_swapped = !reads_stream(&join.left);
        let is_of_rows = match join.join_type {
            JoinType::Inner => true,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => !is_swapped,
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => is_swapped,
            JoinType::Full => false,
        };
        if is_of_rows {
            return Ok(BatchNode::Join(join, is_swapped));
        }
        let kind = join.join_type;
        Err(Error::unsupported(format!(
            "{kind} JOIN in a step that has all rows of a table: rows are sent for those of the stream only"
        )))
    }

    /// Plan of the stream.
    fn input(&self) -> &'p LogicalPlan {
        match self {
            BatchNode::Filter(filter) => &filter.input,
            BatchNode::Projection(projection) | BatchNode::Unnest(_, projection) => &projection.input,
            BatchNode::Join(join, false) => &join.left,
            BatchNode::Join(join, true) => &join.right,
        }
    }

    /// Tells whether a row of the stream has one row at most.
    fn has_one_row(&self) -> bool {
        match self {
            BatchNode::Filter(_) | BatchNode::Projection(_) => true,
            BatchNode::Unnest(..) => false,
            BatchNode::Join(join, _) => {
                is_asof(join)
                    || matches!(
                        join.join_type,
                        JoinType::LeftSemi
                            | JoinType::LeftAnti
                            | JoinType::LeftMark
                            | JoinType::RightSemi
                            | JoinType::RightAnti
                            | JoinType::RightMark
                    )
            }
        }
    }

    /// Name in errors.
    fn name(&self) -> &'static str {
        match self {
            BatchNode::Filter(_) => "WHERE with a subquery",
            BatchNode::Projection(_) => "a subquery",
            BatchNode::Join(..) => "JOIN",
            BatchNode::Unnest(..) => "unnest",
        }
    }

    /// The node over another input, which has the number of the row besides.
    fn over(&self, input: LogicalPlan) -> Result<LogicalPlan> {
        let number = || Expr::Column(PlanColumn::new_unqualified(ROW_NUMBER));
        let input = Arc::new(input);
        Ok(match self {
            BatchNode::Filter(filter) => {
                LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), input)?)
            }
            BatchNode::Projection(projection) => {
                let exprs = projection.expr.iter().cloned().chain([number()]).collect();
                LogicalPlan::Projection(Projection::try_new(exprs, input)?)
            }
            BatchNode::Join(join, is_swapped) => {
                let mut join = (*join).clone();
                *(if *is_swapped { &mut join.right } else { &mut join.left }) = input;
                let joined = Join::try_new(
                    join.left,
                    join.right,
                    join.on,
                    join.filter,
                    join.join_type,
                    join.join_constraint,
                    join.null_equality,
                    join.null_aware,
                )?;
                if is_asof(&joined) { expanded(&joined)? } else { LogicalPlan::Join(joined) }
            }
            BatchNode::Unnest(unnest, projection) => {
                let exprs = projection.expr.iter().cloned().chain([number()]).collect();
                let lists = LogicalPlan::Projection(Projection::try_new(exprs, input)?);
                let columns = unnest.exec_columns.clone();
                LogicalPlanBuilder::from(lists)
                    .unnest_columns_with_options(columns, unnest.options.clone())?
                    .build()?
            }
        })
    }

    /// Column of the results that a column of the stream is.
    fn places(&self, columns: &Columns<'_>) -> BTreeMap<usize, usize> {
        let mut places = BTreeMap::new();
        match self {
            BatchNode::Filter(_) => places.extend((0..columns.stored.len()).map(|at| (at, at))),
            BatchNode::Join(join, is_swapped) => {
                let before = if *is_swapped && join.join_type == JoinType::Inner
                    || join.join_type == JoinType::Right
                {
                    join.left.schema().fields().len()
                } else {
                    0
                };
                places.extend((0..columns.stored.len()).map(|at| (at, before + at)));
            }
            BatchNode::Projection(projection) => {
                for (at, expr) in projection.expr.iter().enumerate() {
                    if let Some(column) = plain_column(expr, columns) {
                        places.entry(column).or_insert(at);
                    }
                }
            }
            BatchNode::Unnest(unnest, projection) => {
                for (at, from) in unnest.dependency_indices.iter().enumerate() {
                    let is_list = unnest.list_type_columns.iter().any(|(list, _)| list == from);
                    let column = projection.expr.get(*from).and_then(|expr| plain_column(expr, columns));
                    if let Some(column) = column.filter(|_| !is_list) {
                        places.entry(column).or_insert(at);
                    }
                }
            }
        }
        places
    }
}

/// Tables that a node reads beside its input, and the columns by which a join finds their rows.
fn tables_beside(node: &LogicalPlan, input: &LogicalPlan) -> Result<String> {
    let before = tables_of(input)?;
    let tables: Vec<String> =
        tables_of(node)?.into_keys().filter(|name| !before.contains_key(name)).collect();
    let keys =
        if let LogicalPlan::Join(join) = node { format!(" {}", describe_keys(join)) } else { String::new() };
    Ok(tables.join(", ") + &keys)
}

impl Translator<'_> {
    /// Node of a plan that is run for each batch of its stream.
    pub(crate) fn batch_node(&mut self, plan: &LogicalPlan) -> Result<Flow> {
        let node = BatchNode::of(plan)?;
        let flow = self.node(node.input())?;
        flow.check_closed()?;
        let state_table = self.sent_rows_of(&flow, plan, node.name())?;
        let planned = node.input().schema();
        let stored = storage(flow.stream.columns());
        let columns = Columns { planned, stored: &stored };
        let places = node.places(&columns);
        let mut fields: Vec<Field> = Vec::with_capacity(stored.len() + 1);
        for (at, data_type) in stored.iter().enumerate() {
            fields.push(Field::new(format!("column {at}"), data_type.clone(), true));
        }
        fields.push(Field::new(ROW_NUMBER, ArrowType::Int64, false));
        let rows = FilledRelation::new(Arc::new(Schema::new(fields)));
        let input = input_of(&rows, planned.as_ref())?;
        let query = node.over(input)?;
        // Number of the row behind the columns of the node.
        let mut exprs: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        exprs.push(Expr::Column(PlanColumn::new_unqualified(ROW_NUMBER)));
        let query = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(query))?);
        let state = &self.planned.state;
        let query = state.optimizer().optimize(query, state, |_, _| {})?;
        let mut results: Vec<Column> = Vec::new();
        for (at, field) in plan.schema().fields().iter().enumerate() {
            results.push(match places.iter().find(|(_, place)| **place == at) {
                Some((from, _)) => Column {
                    name: field.name().clone(),
                    nullable: field.is_nullable(),
                    ..flow.stream.columns()[*from].clone()
                },
                None => {
                    let expr = Expr::Column(PlanColumn::from(plan.schema().qualified_field(at)));
                    Column { nullable: true, ..self.typed_column(field.name(), &expr, plan.schema())? }
                }
            });
        }
        let name = format!("query of each batch ({})", node.name());
        let schema = arrow_schema(&results, "UTC");
        let query = Arc::new(BoundPlan::new(query, Occasion::Batch, state_of_thread(state))?);
        self.queries.push(Arc::clone(&query));
        let memory = query.memory(&name);
        let is_numbered = state_table.is_some();
        let leading =
            (0..stored.len().min(results.len())).take_while(|at| places.get(at) == Some(at)).count();
        let leading = if leading == stored.len() { leading } else { 0 };
        let operator = BatchQuery { name, query, rows, schema, is_numbered, memory };
        let stream = match state_table {
            Some(table) => flow.stream.record_sent(results, leading, &table, operator),
            None => flow.stream.apply(results, operator),
        };
        let stream = stream.described(&tables_beside(plan, node.input())?);
        let place = |column: usize| places.get(&column).copied();
        let replaced = flow.replaced.as_ref().map(|replaced| {
            if node.has_one_row() {
                replaced.projected(place, Vec::new())
            } else {
                ReplacedBy::without_key(replaced.by)
            }
        });
        let windows = flow.windows.and_then(|windows| {
            let (time, start) = (place(windows.time)?, windows.start.and_then(place));
            Some(Windows { time, start, end: windows.end.and_then(place), ..windows })
        });
        let event_time = flow.event_time.and_then(|at| Some(EventTime { column: place(at.column)?, ..at }));
        Ok(Flow { stream, windows, event_time, replaced })
    }
}

/// Scan of a batch, with the columns of a plan and the number of the row.
fn input_of(rows: &FilledRelation, planned: &datafusion::common::DFSchema) -> Result<LogicalPlan> {
    let scan =
        LogicalPlanBuilder::scan(RELATION, provider_as_source(Arc::new(rows.clone())), None)?.build()?;
    let read = |at: usize| Expr::Column(PlanColumn::from(scan.schema().qualified_field(at)));
    let mut exprs = Vec::with_capacity(planned.fields().len() + 1);
    for (at, (qualifier, field)) in planned.iter().enumerate() {
        let stored = rows.columns().field(at).data_type();
        let column = if stored == field.data_type() {
            read(at)
        } else {
            Expr::Cast(Cast::new(Box::new(read(at)), field.data_type().clone()))
        };
        exprs.push(column.alias_qualified(qualifier.cloned(), field.name()));
    }
    exprs.push(read(planned.fields().len()).alias(ROW_NUMBER));
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(scan))?))
}

/// Operator of a query that is run for each batch.
struct BatchQuery {
    name: String,
    query: Arc<BoundPlan>,
    rows: FilledRelation,
    /// Columns of the results.
    schema: SchemaRef,
    /// True if the number of its row is sent behind the columns of each result.
    is_numbered: bool,
    /// Of the results for the last batch.
    memory: MemoryReservation,
}

impl BatchQuery {
    /// Sends the results for a batch, in the order of the rows that they are of; those of one row in theirs.
    fn send(&self, transaction: &Arc<Transaction>, batch: &Batch, output: &mut Output) -> Result<()> {
        self.memory.free();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..batch.len() as i64));
        let columns = batch.rows().columns().iter().cloned().chain([numbers]).collect();
        self.rows.fill(RecordBatch::try_new(Arc::clone(self.rows.columns()), columns)?);
        let found = self.query.rows_within(transaction, &self.memory, RESULTS_BYTES_MAX);
        self.rows.clear();
        let found = found?;
        let width = self.schema.fields().len();
        let numbers: Vec<&[i64]> =
            found.iter().map(|rows| &rows.column(width).as_primitive::<Int64Type>().values()[..]).collect();
        if numbers.iter().copied().flatten().is_sorted() {
            for rows in &found {
                output.push(self.results(rows)?.into());
            }
            return Ok(());
        }
        let count: usize = numbers.iter().map(|numbers| numbers.len()).sum();
        // The rows in their order are copies, for a while beside those that were found.
        self.memory.try_grow(self.memory.size() + count * size_of::<(usize, usize)>())?;
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(count);
        for (at, numbers) in numbers.iter().enumerate() {
            places.extend((0..numbers.len()).map(|row| (at, row)));
        }
        places.sort_by_key(|&(at, row)| numbers[at][row]);
        let all: Vec<&RecordBatch> = found.iter().collect();
        for places in places.chunks(ROWS_SENT_MAX) {
            output.push(self.results(&interleave_record_batch(&all, places)?)?.into());
        }
        Ok(())
    }

    /// Results as the columns of the stream.
    fn results(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut columns = stream_columns(rows, &self.schema)?;
        let mut schema = Arc::clone(&self.schema);
        if self.is_numbered {
            columns.push(Arc::clone(rows.column(self.schema.fields().len())));
            let number = Arc::new(Field::new(ROW_NUMBER, ArrowType::Int64, false));
            let fields = schema.fields().iter().cloned().chain([number]);
            schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        }
        let count = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &count)?)
    }
}

impl Operator for BatchQuery {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn takes_each_tuple_alone(&self) -> bool {
        true
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> StreamResult<()> {
        let sent = self.send(context.transaction()?, batch, output);
        sent.map_err(|error| as_stream_error(self.name.clone(), error))
    }

    fn commit(&mut self, _: &Context<'_>, _: &mut Output) -> StreamResult<()> {
        self.memory.free();
        Ok(())
    }

    fn aborted(&mut self) {
        self.memory.free();
    }
}
