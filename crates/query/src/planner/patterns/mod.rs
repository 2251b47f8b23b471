//! MATCH_RECOGNIZE in FROM of any query: sequences of rows of a partition.
//!
//! ```text
//!   node of the tree ─▶ RowPatternPlanner ─▶ PatternNode ─▶ PatternExec ─▶ entresol_streams::PartitionMatcher
//!                          │ navigation: which rows an expression reads
//!                          └ planning: DataFusion's expressions         └ expression: arrays over rows of matches
//! ```
//!
//! The clause is planned here for steps of topologies too ([`crate::streaming::pattern`]), and both have the same matcher: a
//! statement gives over a table what the topology writes from a source with its rows.
//!
//! A clause is planned over rows with the types that they have behind the analyzer, which changes those of numbers. Keys of
//! the partition and the order are columns of a projection below the node; conditions and measures are no expressions of
//! the plan, since they read columns of several rows, but for the parameters in them.

pub(crate) mod exec;
pub(crate) mod expression;
mod navigation;
pub(crate) mod node;
pub(crate) mod planning;

use crate::error::{Error, Result, external};
use crate::parser::names::identifier;
use crate::parser::patterns::PatternClause;
use crate::planner::join_using;
use crate::planner::patterns::exec::PatternExecPlanner;
use crate::planner::patterns::node::PatternNode;
use crate::planner::patterns::planning::{PatternPlanner, PlannedPattern, check_expression};
use crate::planner::rules::correlated::StateHandle;
use crate::postgres::comparison_keys;
use crate::postgres::json::{JsonType, json_type};
use crate::postgres::number_types;
use async_trait::async_trait;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as DFResult};
use datafusion::execution::SessionState;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::utils::find_aggregate_exprs;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, SortExpr, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Ident, OrderByExpr, TableAlias, TableFactor};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

/// Names of the keys of the partition and the order that are computed.
const PARTITION_KEY: &str = "\u{1}partition key";
const ORDER_KEY: &str = "\u{1}order key";

/// Planner of physical plans, with the nodes of patterns.
pub(crate) fn physical_planner() -> DefaultPhysicalPlanner {
    DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(PatternExecPlanner)])
}

/// Query planner of a session.
#[derive(Debug)]
pub(crate) struct PlannerOfQueries;

#[async_trait]
impl QueryPlanner for PlannerOfQueries {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        physical_planner().create_physical_plan(plan, session).await
    }
}

/// Pattern that a plan has; none if it has none.
pub(crate) fn planned_pattern(plan: &LogicalPlan) -> Result<Option<PlannedPattern>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        if let Some(node) = PatternNode::of(node) {
            found = Some(node.planned().clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Planner of MATCH_RECOGNIZE as a relation.
#[derive(Debug)]
pub(crate) struct RowPatternPlanner {
    /// State of the session, for its analyzer.
    pub(crate) state: StateHandle,
}

impl RelationPlanner for RowPatternPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DFResult<RelationPlanning> {
        let clause = PatternClause::of(&relation).map_err(external)?;
        let (Some(clause), TableFactor::MatchRecognize { table, alias, .. }) = (clause, &relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let alias = alias.clone().unwrap_or_else(|| TableAlias {
            explicit: true,
            name: Ident::with_quote('"', shown_name(table)),
            columns: Vec::new(),
            at: None,
        });
        let input = context.plan(table.as_ref().clone())?;
        let plan = self.planned(clause, input, context).map_err(external)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias)))))
    }
}

/// Name of the result of a relation without an alias.
fn shown_name(table: &TableFactor) -> String {
    let last = match table {
        TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident()),
        _ => None,
    };
    last.map_or_else(|| "match_recognize".to_owned(), identifier)
}

impl RowPatternPlanner {
    fn planned(
        &self,
        clause: PatternClause,
        input: LogicalPlan,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<LogicalPlan> {
        let state = self.state.get().and_then(Weak::upgrade);
        let state = state.ok_or_else(|| Error::Internal("the session of a query is closed".to_owned()))?;
        let state = state.read().clone();
        let rows = typed_rows(&state, context, &input);
        if clause.order.is_empty() {
            return Err(Error::unsupported(
                "MATCH_RECOGNIZE without ORDER BY: its rows would be in any order",
            ));
        }
        let order = order_of(&clause.order, &rows, context)?;
        check_time(&clause, &order, &rows)?;
        let planned =
            PatternPlanner { context: &mut *context, state: &state, rows: Arc::clone(&rows) }.plan(clause)?;
        let mut keys = KeyColumns::new(&input, planned.columns_read()?);
        let mut partition = Vec::with_capacity(planned.clause.partition.len());
        for name in &planned.clause.partition {
            let column = SqlExpr::Identifier(Ident::with_quote('"', name));
            let column = context.sql_to_expr(column, &rows)?;
            partition.push(keys.partition(column, &rows)?);
        }
        let mut sort = Vec::with_capacity(order.len());
        for key in order {
            sort.push(SortExpr { expr: keys.key(key.expr, ORDER_KEY), ..key });
        }
        let read = keys.read.clone();
        let input = LogicalPlanBuilder::from(input).project(keys.exprs)?.build()?;
        Ok(PatternNode::new(planned, input, read, (partition, sort))?.into_plan())
    }
}

/// Columns of the projection below a pattern.
struct KeyColumns {
    input: DFSchemaRef,
    /// Columns of the rows that are read, which are the first.
    read: Vec<usize>,
    exprs: Vec<Expr>,
}

impl KeyColumns {
    fn new(input: &LogicalPlan, mut read: BTreeSet<usize>) -> KeyColumns {
        let input = Arc::clone(input.schema());
        // Rows without any column would have no number.
        if read.is_empty() && !input.fields().is_empty() {
            read.insert(0);
        }
        let read: Vec<usize> = read.into_iter().collect();
        let exprs = read.iter().map(|&at| Expr::Column(Column::from(input.qualified_field(at))));
        KeyColumns { exprs: exprs.collect(), input, read }
    }

    /// Key of the partition: equal for equal values, which -0.0 and 0.0 are.
    fn partition(&mut self, column: Expr, rows: &DFSchema) -> Result<Expr> {
        let Expr::Column(of) = &column else {
            return Err(Error::Internal(format!("PARTITION BY {column}")));
        };
        let data_type = rows.field(rows.index_of_column(of)?).data_type().clone();
        if json_type(&column, rows) == Some(JsonType::Json) {
            return Err(no_operator("equality"));
        }
        Ok(match data_type {
            DataType::Float64 => self.added(column + lit(0.0_f64), PARTITION_KEY),
            DataType::Float32 => self.added(column + lit(0.0_f32), PARTITION_KEY),
            _ => self.key(column, PARTITION_KEY),
        })
    }

    /// Column of a key: one that is read, or one that is added.
    fn key(&mut self, expr: Expr, name: &str) -> Expr {
        let is_there = |column: &Column| {
            let place = self.input.index_of_column(column);
            place.is_ok_and(|place| self.read.contains(&place))
        };
        match &expr {
            Expr::Column(column) if is_there(column) => expr,
            _ => self.added(expr, name),
        }
    }

    /// Column of an expression that is added to the projection.
    fn added(&mut self, expr: Expr, name: &str) -> Expr {
        let name = format!("{name} {}", self.exprs.len());
        self.exprs.push(expr.alias(&name));
        Expr::Column(Column::new_unqualified(name))
    }
}

fn no_operator(what: &str) -> Error {
    Error::coded("42883", format!("could not identify an {what} operator for type json: cast to jsonb"))
}

/// Columns of rows, of the types that they have behind the analyzer.
fn typed_rows(
    state: &SessionState,
    context: &mut dyn RelationPlannerContext,
    input: &LogicalPlan,
) -> DFSchemaRef {
    let options = context.context_provider().options();
    let typed = join_using::merged(input.clone())
        .and_then(number_types::typed)
        .and_then(|plan| state.analyzer().execute_and_check(plan, options, |_, _| {}));
    match typed {
        Ok(plan) if plan.schema().columns() == input.schema().columns() => Arc::clone(plan.schema()),
        // An error of the input is one of the plan.
        _ => Arc::clone(input.schema()),
    }
}

/// Keys of ORDER BY, with NULL as the greatest value.
fn order_of(
    order: &[OrderByExpr],
    rows: &DFSchemaRef,
    context: &mut dyn RelationPlannerContext,
) -> Result<Vec<SortExpr>> {
    let mut keys = Vec::with_capacity(order.len());
    for key in order {
        let expr = context.sql_to_expr(key.expr.clone(), rows)?;
        check_expression(&expr)?;
        if expr.is_volatile() || !find_aggregate_exprs([&expr]).is_empty() {
            return Err(Error::unsupported(format!("ORDER BY {} in MATCH_RECOGNIZE", key.expr)));
        }
        if json_type(&expr, rows) == Some(JsonType::Json) {
            return Err(no_operator("ordering"));
        }
        let asc = key.options.asc.unwrap_or(true);
        keys.push(SortExpr { expr, asc, nulls_first: key.options.nulls_first.unwrap_or(!asc) });
    }
    comparison_keys::order(&mut keys, rows);
    Ok(keys)
}

/// Refuses WITHIN where the first key of ORDER BY is no time, ascending.
fn check_time(clause: &PatternClause, order: &[SortExpr], rows: &DFSchema) -> Result<()> {
    let Some(first) = order.first().filter(|_| clause.within.is_some()) else { return Ok(()) };
    let data_type = first.expr.get_type(rows)?;
    if first.asc && matches!(data_type, DataType::Timestamp(..) | DataType::Date32) {
        return Ok(());
    }
    Err(Error::coded(
        "42804",
        format!("WITHIN in MATCH_RECOGNIZE ORDER BY {}: expected a time first, ascending", clause.order[0]),
    ))
}
