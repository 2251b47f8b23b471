//! Correlated subqueries that DataFusion cannot turn into joins: run once for each distinct set of outer
//! values.
//!
//! DataFusion joins correlated subqueries that aggregate, or stand in WHERE as EXISTS or IN, and compare
//! columns with `=`. PostgreSQL tools write others: a look-up in the SELECT list, with any condition.
//! PostgreSQL runs these row by row, and so does this module: [`CorrelatedSubqueries`] replaces such a
//! subquery by a function; its arguments are the outer columns, and a call substitutes their values, plans
//! and runs the rest.
//!
//! - A subquery may refer further out than the query around it: the function's arguments are then outer columns of that query,
//!   which is run row by row in turn.
//! - A subquery reads in the transaction of its statement, even if rows are computed after the statement has
//!   begun to give some: its tables are pinned when the statement is planned in that transaction
//!   ([`crate::execution::prepared`] plans such statements for each run).
//! - Equal values are computed once per batch.
//! - Nothing is computed for a row whose answer does not matter: the arm of a CASE that is not taken, or a
//!   row that an outer-only condition of the subquery rules out.
//! - More than one row where one value is expected is an error (21000), as in PostgreSQL.
//!
//! Cost: planning and running the subquery for each distinct set of outer values; memory: one value for each
//! in a batch.

use crate::error::{Error, external};
use crate::planner::rules::subqueries::plans::{has_subquery, narrowed, with_column};
use crate::planner::scans::provider::pinned;
use crate::session::current::Current;
use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result as DFResult, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, ColumnarValue, Expr, Filter, LogicalPlan, Operator, Projection,
    ScalarFunctionArgs, ScalarUDFImpl, Signature, Subquery, SubqueryAlias, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::collect;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// State of the session that runs the subqueries; set once the session exists.
pub(crate) type StateHandle = Arc<OnceLock<Weak<RwLock<SessionState>>>>;

/// Name of the functions that run a subquery for each row.
pub(crate) const PER_ROW: &str = "subquery";

/// Analyzer rule that replaces correlated subqueries; it precedes DataFusion's own checks.
#[derive(Debug)]
pub(crate) struct CorrelatedSubqueries {
    state: StateHandle,
    current: Arc<Current>,
}

impl CorrelatedSubqueries {
    pub(crate) fn new(state: StateHandle, current: &Arc<Current>) -> CorrelatedSubqueries {
        CorrelatedSubqueries { state, current: Arc::clone(current) }
    }

    /// Binds the tables of the subquery to the current transaction.
    fn pinned(&self, plan: &Arc<LogicalPlan>) -> DFResult<Arc<LogicalPlan>> {
        let Some(transaction) = self.current.bound() else { return Ok(Arc::clone(plan)) };
        Ok(Arc::new(pinned((**plan).clone(), &transaction)?))
    }

    /// Function that replaces a subquery which DataFusion would refuse.
    fn replaced(&self, expr: Expr, node: &Node, guard: Option<&Expr>) -> DFResult<Transformed<Expr>> {
        let (kind, subquery, tested) = match &expr {
            Expr::ScalarSubquery(subquery)
                if is_correlated(subquery)
                    && !(joinable_value(&subquery.subquery) && node.has_outer_columns_of(subquery)) =>
            {
                (SubqueryResult::Value, subquery, None)
            }
            Expr::Exists(Exists { subquery, negated }) if !node.joins(subquery) => {
                (SubqueryResult::Exists { negated: *negated }, subquery, None)
            }
            // DataFusion would treat unknown as false.
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                (SubqueryResult::In { negated: *negated }, subquery, Some((**expr).clone()))
            }
            _ => return Ok(Transformed::no(expr)),
        };
        let mut columns: Vec<Column> = Vec::new();
        let mut arguments: Vec<Expr> = tested.into_iter().collect();
        for outer in &subquery.outer_ref_columns {
            let Expr::OuterReferenceColumn(_, column) = outer else { continue };
            if columns.contains(column) {
                continue;
            }
            columns.push(column.clone());
            // Columns that this plan does not have belong to a plan around it.
            let own = node.columns.contains(column);
            arguments.push(if own { Expr::Column(column.clone()) } else { outer.clone() });
        }
        let guard = match kind {
            SubqueryResult::Value => both(guard.cloned(), ruled_out(&subquery.subquery, node)),
            _ => guard.cloned(),
        };
        let guarded = guard.is_some();
        // DataFusion would move a call that is computed below back to the only expression that names it,
        // where it cannot run.
        let again: Vec<Expr> =
            arguments.iter().filter(|argument| node.is_computed(argument)).cloned().collect();
        let repeated = again.len();
        arguments.extend(again);
        arguments.extend(guard);
        let returns = match kind {
            SubqueryResult::Value => subquery.subquery.schema().field(0).data_type().clone(),
            _ => DataType::Boolean,
        };
        let function = PerRow {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            kind,
            plan: self.pinned(&subquery.subquery)?,
            columns,
            repeated,
            guarded,
            returns,
            signature: match arguments.len() {
                0 => Signature::nullary(Volatility::Volatile),
                count => Signature::any(count, Volatility::Volatile),
            },
            state: Arc::clone(&self.state),
        };
        let function = AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf();
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), arguments))))
    }
}

impl CorrelatedSubqueries {
    /// Replaces all subqueries of an expression; `guard` says for which rows its value matters. Safe for
    /// expressions deeper than the stack.
    #[recursive::recursive]
    fn all_replaced(&self, expr: Expr, node: &Node, guard: Option<&Expr>) -> DFResult<Transformed<Expr>> {
        match expr {
            Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
                let mut changed = false;
                let mut taken = |expr: Expr, guard: Option<&Expr>| -> DFResult<Box<Expr>> {
                    let replaced = self.all_replaced(expr, node, guard)?;
                    changed |= replaced.transformed;
                    Ok(Box::new(replaced.data))
                };
                let mut arms = Vec::with_capacity(when_then_expr.len());
                for (when, then) in when_then_expr {
                    // A condition that has a subquery itself is no guard.
                    let plain = !has_subquery(&when)?;
                    let within = both(guard.cloned(), plain.then(|| (*when).clone()));
                    arms.push((taken(*when, guard)?, taken(*then, within.as_ref())?));
                }
                let else_expr = else_expr.map(|other| taken(*other, guard)).transpose()?;
                let case = Expr::Case(Case { expr: None, when_then_expr: arms, else_expr });
                Ok(if changed { Transformed::yes(case) } else { Transformed::no(case) })
            }
            other => other
                .map_children(|child| self.all_replaced(child, node, guard))?
                .transform_data(|expr| self.replaced(expr, node, guard)),
        }
    }
}

impl CorrelatedSubqueries {
    fn projection(&self, projection: Projection) -> DFResult<Transformed<LogicalPlan>> {
        let Projection { expr, input, schema, .. } = projection;
        let node = Node::over(&input, false);
        let names = NamePreserver::new_for_projection();
        let (mut changed, mut nested, mut saved) = (false, false, Vec::with_capacity(expr.len()));
        let mut exprs = Vec::with_capacity(expr.len());
        for expr in expr {
            saved.push(names.save(&expr));
            let expr = with_outer_columns(expr)?;
            let replaced = self.all_replaced(expr, &node, None)?;
            changed |= replaced.transformed;
            nested |= replaced.transformed && is_nested(&replaced.data)?;
            exprs.push(replaced.data);
        }
        if !changed {
            let plan = Projection::try_new_with_schema(exprs, input, schema)?;
            return Ok(Transformed::no(LogicalPlan::Projection(plan)));
        }
        let mut input = Arc::unwrap_or_clone(input);
        if nested {
            let mut computed = ComputedCalls::default();
            for expr in &mut exprs {
                *expr = computed.below(std::mem::take(expr), &mut input)?;
            }
        }
        let exprs = saved.into_iter().zip(exprs).map(|(name, expr)| name.restore(expr)).collect();
        Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?)))
    }

    /// Rewrites a filter: an IN by itself is left to DataFusion, since only rows for which it is true are
    /// wanted. Subqueries run row by row are computed in a projection below, because DataFusion would move
    /// them into the conditions of joins, where they cannot run.
    fn filter(&self, filter: Filter) -> DFResult<Transformed<LogicalPlan>> {
        if !has_subquery(&filter.predicate)? {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let wanted = filter.input.schema().columns();
        let node = Node::over(&filter.input, true);
        let mut input = Arc::unwrap_or_clone(filter.input);
        let mut conditions = Vec::new();
        let mut computed = ComputedCalls::default();
        for condition in split_conjunction_owned(filter.predicate) {
            let replaced = match with_outer_columns(condition)? {
                Expr::InSubquery(InSubquery { expr, subquery, negated })
                    if node.joins(&subquery) && !(negated && is_correlated(&subquery)) =>
                {
                    let tested = self.all_replaced(*expr, &node, None)?;
                    tested.update_data(|tested| {
                        Expr::InSubquery(InSubquery { expr: Box::new(tested), subquery, negated })
                    })
                }
                other => self.all_replaced(other, &node, None)?,
            };
            conditions.push(computed.below(replaced.data, &mut input)?);
        }
        let widened = input.schema().fields().len() > wanted.len();
        let predicate = conjunction(conditions).unwrap_or_else(|| datafusion::logical_expr::lit(true));
        let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
        Ok(Transformed::yes(if widened { narrowed(plan, wanted)? } else { plan }))
    }
}

/// Calls run row by row, computed in projections below; a call among the arguments of another in one further
/// below.
#[derive(Default)]
struct ComputedCalls(HashMap<Expr, Column>);

impl ComputedCalls {
    /// Replaces such calls in an expression by columns of the input.
    fn below(&mut self, expr: Expr, input: &mut LogicalPlan) -> DFResult<Expr> {
        let computed = expr.transform_up(|expr| {
            if !is_run(&expr) {
                return Ok(Transformed::no(expr));
            }
            if let Some(column) = self.0.get(&expr) {
                return Ok(Transformed::yes(Expr::Column(column.clone())));
            }
            let (widened, column) = with_column(std::mem::take(input), expr.clone())?;
            *input = widened;
            self.0.insert(expr, column.clone());
            Ok(Transformed::yes(Expr::Column(column)))
        });
        computed.data()
    }
}

fn is_run(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.as_async().is_some())
}

fn contains_run(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(is_run(expr))).unwrap_or(true)
}

/// Returns true if a call that is run row by row is an argument of another.
fn is_nested(expr: &Expr) -> DFResult<bool> {
    expr.exists(|outer| match outer {
        Expr::ScalarFunction(call) if is_run(outer) => Ok(call.args.iter().any(contains_run)),
        _ => Ok(false),
    })
}

/// Conjunction of both conditions, as far as there are any.
fn both(one: Option<Expr>, other: Option<Expr>) -> Option<Expr> {
    conjunction(one.into_iter().chain(other))
}

/// Conditions of a subquery on the outer row only: the subquery has no row unless they hold.
fn ruled_out(plan: &LogicalPlan, node: &Node) -> Option<Expr> {
    match plan {
        LogicalPlan::Projection(Projection { input, .. }) => ruled_out(input, node),
        LogicalPlan::Filter(Filter { predicate, .. }) => {
            let outer_only = |condition: &&Expr| {
                condition.contains_outer()
                    && !condition.any_column_refs()
                    && !condition.is_volatile()
                    && !has_subquery(condition).unwrap_or(true)
            };
            let own = split_conjunction(predicate).into_iter().filter(outer_only).filter_map(|condition| {
                let seen = condition.clone().transform_up(|expr| match expr {
                    Expr::OuterReferenceColumn(_, column) if node.columns.contains(&column) => {
                        Ok(Transformed::yes(Expr::Column(column)))
                    }
                    other => Ok(Transformed::no(other)),
                });
                seen.data().ok().filter(|condition| !condition.contains_outer())
            });
            conjunction(own)
        }
        _ => None,
    }
}

/// Plan node that contains the subquery.
struct Node {
    is_filter: bool,
    /// Columns that its expressions are computed from.
    columns: Vec<Column>,
    /// Columns among them that are run row by row themselves.
    computed: Vec<Column>,
}

impl Node {
    fn over(input: &LogicalPlan, is_filter: bool) -> Node {
        let columns = input.schema().columns();
        let computed = match input {
            LogicalPlan::Projection(projection) => {
                let exprs = projection.expr.iter().zip(&columns);
                exprs.filter(|(expr, _)| contains_run(expr)).map(|(_, column)| column.clone()).collect()
            }
            _ => Vec::new(),
        };
        Node { is_filter, columns, computed }
    }

    fn is_computed(&self, argument: &Expr) -> bool {
        contains_run(argument) || argument.column_refs().iter().any(|column| self.computed.contains(column))
    }

    /// Returns true if DataFusion joins an EXISTS here, or an IN that is a condition by itself.
    fn joins(&self, subquery: &Subquery) -> bool {
        self.is_filter
            && (!is_correlated(subquery) || joinable_rows(&subquery.subquery))
            && self.has_outer_columns_of(subquery)
    }

    /// Returns true if a subquery refers to columns of this node only, and not of a query around it: a join with it here
    /// would lack those.
    fn has_outer_columns_of(&self, subquery: &Subquery) -> bool {
        subquery.outer_ref_columns.iter().all(|outer| match outer {
            Expr::OuterReferenceColumn(_, column) => self.columns.contains(column),
            _ => true,
        })
    }
}

/// Expression whose subqueries know their outer columns: also those of arguments of calls, in place of subqueries within them
/// that refer further out.
fn with_outer_columns(expr: Expr) -> DFResult<Expr> {
    let known = |subquery: Subquery| Subquery {
        outer_ref_columns: subquery.subquery.all_out_ref_exprs(),
        ..subquery
    };
    let transformed = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(known(subquery))),
            Expr::Exists(Exists { subquery, negated }) => {
                Transformed::yes(Expr::Exists(Exists { subquery: known(subquery), negated }))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let subquery = known(subquery);
                Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated }))
            }
            other => Transformed::no(other),
        })
    });
    transformed.data()
}

impl AnalyzerRule for CorrelatedSubqueries {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Projection(projection) => self.projection(projection),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "correlated_subqueries"
    }
}

/// Returns true if a subquery refers to the row that contains it.
pub(crate) fn is_correlated(subquery: &Subquery) -> bool {
    !subquery.outer_ref_columns.is_empty()
}

/// Returns true if DataFusion joins a scalar subquery: one aggregate over rows found by `column = outer`.
fn joinable_value(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(Projection { input, expr, .. }) => !refers(expr) && joinable_value(input),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => joinable_value(input),
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
            group_expr.is_empty() && !refers(aggr_expr) && joinable_input(input)
        }
        _ => false,
    }
}

/// Returns true if DataFusion joins an EXISTS or IN subquery.
fn joinable_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Distinct(_) => {
            plan.inputs().into_iter().all(joinable_rows)
        }
        LogicalPlan::Filter(Filter { input, .. }) => joinable_rows(input),
        LogicalPlan::Projection(Projection { input, expr, .. }) => !refers(expr) && joinable_rows(input),
        other => other.all_out_ref_exprs().is_empty(),
    }
}

fn joinable_input(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(Projection { input, expr, .. }) => !refers(expr) && joinable_input(input),
        LogicalPlan::Filter(Filter { input, predicate, .. }) => {
            let conditions = split_conjunction(predicate);
            conditions.into_iter().all(|condition| !condition.contains_outer() || is_equality(condition))
                && joinable_input(input)
        }
        other => other.all_out_ref_exprs().is_empty(),
    }
}

fn refers(exprs: &[Expr]) -> bool {
    exprs.iter().any(Expr::contains_outer)
}

/// Returns true for `column = outer column`.
fn is_equality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return false };
    let is_outer = |expr: &Expr| matches!(expr, Expr::OuterReferenceColumn(..));
    let is_own = |expr: &Expr| matches!(expr, Expr::Column(_));
    (is_outer(left) && is_own(right)) || (is_own(left) && is_outer(right))
}

/// Result expected of a subquery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubqueryResult {
    Value,
    Exists { negated: bool },
    In { negated: bool },
}

/// Number that makes each function distinct.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Subquery as a function of the outer columns.
struct PerRow {
    number: u64,
    kind: SubqueryResult,
    plan: Arc<LogicalPlan>,
    /// Outer columns of the arguments, behind the tested value of IN.
    columns: Vec<Column>,
    /// Number of arguments that are repeated behind them.
    repeated: usize,
    /// True if the last argument says for which rows the answer matters.
    guarded: bool,
    returns: DataType,
    signature: Signature,
    state: StateHandle,
}

impl std::fmt::Debug for PerRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PerRow").field("kind", &self.kind).field("columns", &self.columns).finish()
    }
}

impl PartialEq for PerRow {
    fn eq(&self, other: &PerRow) -> bool {
        self.number == other.number
    }
}

impl Eq for PerRow {}

impl Hash for PerRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl ScalarUDFImpl for PerRow {
    fn name(&self) -> &str {
        PER_ROW
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        Err(DataFusionError::Internal("a correlated subquery was called without its session".into()))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for PerRow {
    async fn invoke_async_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let mut arrays: Vec<ArrayRef> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let guard = if self.guarded { arrays.pop() } else { None };
        arrays.truncate(arrays.len() - self.repeated);
        let matters = |row: usize| match guard.as_ref().and_then(|guard| guard.as_boolean_opt()) {
            Some(guard) => guard.is_valid(row) && guard.value(row),
            None => true,
        };
        let state = self.state.get().and_then(Weak::upgrade);
        let state =
            state.ok_or_else(|| DataFusionError::Internal("a subquery outlived its session".into()))?;
        let mut state = state.read().clone();
        // One thread for a small plan that is run often.
        state.config_mut().options_mut().execution.target_partitions = 1;
        let mut known: HashMap<Vec<ScalarValue>, ScalarValue> = HashMap::new();
        let mut answers = Vec::with_capacity(rows);
        for row in 0..rows {
            if !matters(row) {
                answers.push(ScalarValue::try_from(&self.returns)?);
                continue;
            }
            let values: Vec<ScalarValue> = arrays
                .iter()
                .map(|array| ScalarValue::try_from_array(array, row))
                .collect::<DFResult<_>>()?;
            let answer = match known.get(&values) {
                Some(answer) => answer.clone(),
                None => {
                    let answer = self.answer(&state, &values).await?;
                    known.insert(values, answer.clone());
                    answer
                }
            };
            answers.push(answer);
        }
        if answers.is_empty() {
            Ok(ColumnarValue::Array(datafusion::arrow::array::new_empty_array(&self.returns)))
        } else {
            Ok(ColumnarValue::Array(ScalarValue::iter_to_array(answers)?))
        }
    }
}

impl PerRow {
    /// Result of the subquery for these values.
    async fn answer(&self, state: &SessionState, values: &[ScalarValue]) -> DFResult<ScalarValue> {
        let (tested, outer) = match self.kind {
            SubqueryResult::In { .. } => (values.first(), &values[1..]),
            _ => (None, values),
        };
        let plan = substituted((*self.plan).clone(), &self.columns, outer)?;
        let plan = state.optimize(&plan)?;
        let physical = state.query_planner().create_physical_plan(&plan, state).await?;
        let batches = collect(physical, state.task_ctx()).await?;
        let found: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        match self.kind {
            SubqueryResult::Exists { negated } => Ok(ScalarValue::Boolean(Some((found > 0) != negated))),
            SubqueryResult::Value if found == 0 => ScalarValue::try_from(&self.returns),
            SubqueryResult::Value if found > 1 => {
                let message = "more than one row returned by a subquery used as an expression";
                Err(external(Error::coded("21000", message)))
            }
            SubqueryResult::Value => {
                let batch = batches.iter().find(|batch| batch.num_rows() == 1);
                let column = batch.map(|batch| batch.column(0));
                let column =
                    column.ok_or_else(|| DataFusionError::Internal("an outer row is missing".into()))?;
                ScalarValue::try_from_array(column, 0)?.cast_to(&self.returns)
            }
            SubqueryResult::In { negated } => {
                let tested =
                    tested.ok_or_else(|| DataFusionError::Internal("IN without a tested value".into()))?;
                let within = is_in(tested, batches.iter().map(|batch| batch.column(0)))?;
                // Nothing is unknown about an empty list.
                let known = if found == 0 { Some(false) } else { within };
                Ok(ScalarValue::Boolean(known.map(|within| within != negated)))
            }
        }
    }
}

/// Three-valued membership of a value in the lists; unknown if one of the two is NULL.
fn is_in<'a>(tested: &ScalarValue, lists: impl Iterator<Item = &'a ArrayRef>) -> DFResult<Option<bool>> {
    let mut unknown = tested.is_null();
    for list in lists {
        for row in 0..list.len() {
            if list.is_null(row) {
                unknown = true;
            } else if !tested.is_null() {
                let value = ScalarValue::try_from_array(list, row)?;
                let same =
                    value == *tested || value.cast_to(&tested.data_type()).is_ok_and(|cast| cast == *tested);
                if same {
                    return Ok(Some(true));
                }
            }
        }
    }
    Ok((!unknown).then_some(false))
}

/// Plan with values in place of the outer columns.
fn substituted(plan: LogicalPlan, columns: &[Column], values: &[ScalarValue]) -> DFResult<LogicalPlan> {
    plan.transform_up(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|expr| value_of(expr, columns, values))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })?
        .map_data(LogicalPlan::recompute_schema)
    })
    .data()
}

fn value_of(expr: Expr, columns: &[Column], values: &[ScalarValue]) -> DFResult<Transformed<Expr>> {
    let inner = |subquery: &Subquery| -> DFResult<Subquery> {
        let plan = substituted((*subquery.subquery).clone(), columns, values)?;
        let outer_ref_columns = plan.all_out_ref_exprs();
        Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans.clone() })
    };
    Ok(match expr {
        Expr::OuterReferenceColumn(field, column) => {
            match columns.iter().position(|known| *known == column) {
                Some(at) => Transformed::yes(Expr::Literal(values[at].clone(), None)),
                None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            }
        }
        Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(inner(&subquery)?)),
        Expr::Exists(Exists { subquery, negated }) => {
            Transformed::yes(Expr::Exists(Exists { subquery: inner(&subquery)?, negated }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery: inner(&subquery)?, negated }))
        }
        other => Transformed::no(other),
    })
}
