//! Query of a subscription: filters and projections over one relation, computed change by change.
//!
//! | row before passes | row after passes | sent |
//! | --- | --- | --- |
//! | no | yes | `insert` |
//! | yes | no | `delete` of the row before |
//! | yes | yes, and is the same | nothing |
//! | yes | yes, and differs | `update`; without the key of the table among the columns, `delete` and `insert`: nothing else says which row it was |
//!
//! So the rows that a subscriber has are those of the query at each commit, copies of a row among them. There is no
//! state: joins, aggregates and all else that needs other rows is refused, and belongs into a materialized view with a
//! change log. Functions whose value is that of a statement or session are refused: rows would appear and vanish without
//! a commit.
//!
//! Memory: the batch of changes that is computed, and its results.

use crate::error::{Error, Result};
use crate::planner::scans::provider::EntresolTable;
use crate::postgres::overflow::checked;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, filter, filter_record_batch, interleave_record_batch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::physical_expr::PhysicalExpr;
use entresol_tables::{ChangeKind, Table};
use std::sync::Arc;

/// Query of a subscription; see the [module](self).
#[derive(Debug)]
pub(crate) struct SubscribedQuery {
    pub(crate) table: Arc<Table>,
    /// Columns of the rows of the table.
    rows: SchemaRef,
    steps: Vec<Step>,
    /// Columns of the results.
    pub(crate) columns: SchemaRef,
    /// True if the key of the table is among the columns of the results.
    has_key: bool,
}

/// Step from the rows of the table to the results.
#[derive(Debug)]
enum Step {
    Filter(Arc<dyn PhysicalExpr>),
    Project(Vec<Arc<dyn PhysicalExpr>>, SchemaRef),
}

/// Results of rows, with the places of these among the changes.
struct Results {
    rows: RecordBatch,
    places: UInt32Array,
}

/// Results of changes: columns, kinds, and the places of the changes that they are of.
pub(crate) struct ChangedResults {
    pub(crate) rows: RecordBatch,
    pub(crate) kinds: ArrayRef,
    pub(crate) places: UInt32Array,
}

impl SubscribedQuery {
    /// Query of a plan that is not analysed yet.
    pub(crate) fn new(state: &SessionState, plan: LogicalPlan) -> Result<SubscribedQuery> {
        check(&plan)?;
        let plan = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})?;
        let rules = Optimizer::with_rules(vec![Arc::new(SimplifyExpressions::new())]);
        let plan = rules.optimize(plan, state, |_, _| {})?;
        let mut planner = StepPlanner { state, steps: Vec::new(), origins: Vec::new(), scanned: None };
        planner.add(&plan)?;
        let StepPlanner { steps, origins, scanned, .. } = planner;
        let (table, rows) = scanned.ok_or_else(|| refused("no relation"))?;
        let schema = table.schema();
        let has_key = !schema.hidden_key() && schema.key().iter().all(|key| origins.contains(&Some(*key)));
        let columns = nullable(plan.schema().as_arrow());
        Ok(SubscribedQuery { table, rows, steps, columns, has_key })
    }

    /// Results of rows of the table.
    pub(crate) fn results(&self, rows: &[ArrayRef]) -> Result<RecordBatch> {
        let count = rows.first().map_or(0, |column| column.len());
        let places = UInt32Array::from_iter_values(0..u32::try_from(count).unwrap_or(u32::MAX));
        Ok(self.computed(rows, places)?.rows)
    }

    /// Results of changes: rows after them, rows before them, and their kinds.
    pub(crate) fn changes(
        &self,
        (new, old): (&[ArrayRef], &[ArrayRef]),
        kinds: &StringArray,
    ) -> Result<ChangedResults> {
        let side = |columns: &[ArrayRef], missing: ChangeKind| -> Result<Results> {
            let is_there = kinds.iter().map(|kind| Some(kind != Some(missing.name())));
            let is_there: BooleanArray = is_there.collect();
            let columns = columns.iter().map(|column| filter(column, &is_there));
            let places = (0_u32..).zip(is_there.values()).filter(|(_, is_there)| *is_there);
            let places = UInt32Array::from_iter_values(places.map(|(place, _)| place));
            self.computed(&columns.collect::<Result<Vec<_>, _>>()?, places)
        };
        let (new, old) = (side(new, ChangeKind::Delete)?, side(old, ChangeKind::Insert)?);
        let fields = self.columns.fields().iter();
        let converter =
            RowConverter::new(fields.map(|field| SortField::new(field.data_type().clone())).collect())?;
        let (new_rows, old_rows) =
            (converter.convert_columns(new.rows.columns())?, converter.convert_columns(old.rows.columns())?);
        let (mut chosen, mut named, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut at_new, mut at_old) = (0, 0);
        for place in 0..u32::try_from(kinds.len()).unwrap_or(u32::MAX) {
            let is_new = at_new < new.places.len() && new.places.value(at_new) == place;
            let is_old = at_old < old.places.len() && old.places.value(at_old) == place;
            let mut send = |kind: ChangeKind, side: (usize, usize)| {
                chosen.push(side);
                named.push(kind.name());
                places.push(place);
            };
            match (is_old, is_new) {
                (true, true) if old_rows.row(at_old) == new_rows.row(at_new) => {}
                (true, true) if self.has_key => send(ChangeKind::Update, (1, at_new)),
                (_, _) => {
                    if is_old {
                        send(ChangeKind::Delete, (0, at_old));
                    }
                    if is_new {
                        send(ChangeKind::Insert, (1, at_new));
                    }
                }
            }
            at_new += usize::from(is_new);
            at_old += usize::from(is_old);
        }
        Ok(ChangedResults {
            rows: interleave_record_batch(&[&old.rows, &new.rows], &chosen)?,
            kinds: Arc::new(StringArray::from(named)),
            places: UInt32Array::from(places),
        })
    }

    /// Results of rows with these places.
    fn computed(&self, columns: &[ArrayRef], places: UInt32Array) -> Result<Results> {
        let mut places = places;
        let mut rows = batch_of(&self.rows, columns.to_vec(), places.len())?;
        for step in &self.steps {
            match step {
                Step::Filter(predicate) => {
                    let passes = predicate.evaluate(&rows)?.into_array(rows.num_rows())?;
                    let passes = passes.as_boolean();
                    // NULL is not true.
                    let passes: BooleanArray =
                        passes.iter().map(|passes| Some(passes == Some(true))).collect();
                    places = filter(&places, &passes)?.as_primitive().clone();
                    rows = filter_record_batch(&rows, &passes)?;
                }
                Step::Project(exprs, schema) => {
                    let columns = exprs.iter().map(|expr| expr.evaluate(&rows)?.into_array(rows.num_rows()));
                    let columns = columns.collect::<Result<Vec<_>, _>>()?;
                    rows = batch_of(schema, columns, rows.num_rows())?;
                }
            }
        }
        let rows = batch_of(&self.columns, rows.columns().to_vec(), places.len())?;
        Ok(Results { rows, places })
    }
}

/// Batch of columns in the types of a schema.
fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let typed = columns.into_iter().zip(schema.fields()).map(|(column, field)| {
        if column.data_type() == field.data_type() { Ok(column) } else { cast(&column, field.data_type()) }
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let columns = typed.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Refusal of a query, with what to do.
fn refused(what: &str) -> Error {
    Error::unsupported(format!(
        "SUBSCRIBE to a query with {what}: its rows do not follow from the changes of one row. CREATE MATERIALIZED VIEW v WITH (changes = \
         '1 hour') AS the query, and SUBSCRIBE TO v"
    ))
}

/// Refuses nodes and expressions that cannot be computed change by change.
fn check(plan: &LogicalPlan) -> Result<()> {
    let mut found: Option<String> = None;
    plan.apply(|node| {
        let what = match node {
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::TableScan(_) => None,
            LogicalPlan::Join(_) => Some("a join or set operation"),
            LogicalPlan::Union(_) => Some("a set operation"),
            LogicalPlan::Aggregate(_) => Some("an aggregate or GROUP BY"),
            LogicalPlan::Distinct(_) => Some("DISTINCT"),
            LogicalPlan::Window(_) => Some("a window function"),
            LogicalPlan::Sort(_) => Some("ORDER BY"),
            LogicalPlan::Limit(_) => Some("LIMIT"),
            LogicalPlan::Unnest(_) => Some("a function of several rows"),
            LogicalPlan::Extension(_) => Some("MATCH_RECOGNIZE"),
            LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => Some("no relation"),
            _ => Some("more than a filter and a projection"),
        };
        found = what.map(str::to_owned);
        if found.is_none() {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    found = found.take().or(state_of(part));
                    Ok(TreeNodeRecursion::Continue)
                })
            })?;
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    found.map_or(Ok(()), |what| Err(refused(&what)))
}

/// Part of an expression whose value is not that of a row alone.
fn state_of(part: &Expr) -> Option<String> {
    match part {
        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => {
            Some("a subquery".to_owned())
        }
        Expr::OuterReferenceColumn(..) => Some("a column of another query".to_owned()),
        Expr::Placeholder(_) => Some("a parameter".to_owned()),
        Expr::ScalarFunction(function) if function.func.signature().volatility != Volatility::Immutable => {
            Some(format!("{}(), which changes without a commit", function.func.name()))
        }
        _ => None,
    }
}

/// Planner of the steps of a plan, from its scan up.
struct StepPlanner<'s> {
    state: &'s SessionState,
    steps: Vec<Step>,
    /// Columns of the table that the columns of the last step are.
    origins: Vec<Option<usize>>,
    scanned: Option<(Arc<Table>, SchemaRef)>,
}

impl StepPlanner<'_> {
    fn add(&mut self, plan: &LogicalPlan) -> Result<()> {
        match plan {
            LogicalPlan::SubqueryAlias(alias) => self.add(&alias.input),
            LogicalPlan::Filter(filter) => {
                self.add(&filter.input)?;
                self.steps.push(Step::Filter(self.physical(&filter.predicate, filter.input.schema())?));
                Ok(())
            }
            LogicalPlan::Projection(projection) => {
                self.add(&projection.input)?;
                let input = projection.input.schema();
                let exprs = projection.expr.iter().map(|expr| self.physical(expr, input));
                let exprs = exprs.collect::<Result<Vec<_>>>()?;
                self.steps.push(Step::Project(exprs, nullable(projection.schema.as_arrow())));
                let origin = |expr: &Expr| match expr.clone().unalias() {
                    Expr::Column(column) => {
                        self.origins.get(input.index_of_column(&column).ok()?).copied().flatten()
                    }
                    _ => None,
                };
                self.origins = projection.expr.iter().map(origin).collect();
                Ok(())
            }
            LogicalPlan::TableScan(scan) if scan.projection.is_none() && scan.filters.is_empty() => {
                let provider = source_as_provider(&scan.source)?;
                let Some(provider) = provider.downcast_ref::<EntresolTable>() else {
                    return Err(refused(&format!(
                        "relation {}, which is not a table",
                        scan.table_name.table()
                    )));
                };
                let rows = plan.schema().as_arrow();
                self.origins = (0..rows.fields().len()).map(Some).collect();
                self.scanned = Some((Arc::clone(provider.table()), nullable(rows)));
                Ok(())
            }
            other => Err(refused(&other.display().to_string())),
        }
    }

    fn physical(&self, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        let expr = self.state.create_physical_expr(expr.clone().unalias(), schema)?;
        Ok(checked(expr, schema.as_arrow())?.data)
    }
}

/// Columns that may be NULL.
fn nullable(columns: &Schema) -> SchemaRef {
    let fields = columns.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
