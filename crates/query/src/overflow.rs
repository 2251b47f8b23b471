//! Integer arithmetic that fails (22003) instead of wrapping.
//!
//! DataFusion's `+`, `-`, `*`, unary minus and SUM wrap around; `UPDATE t SET n = n + 1` would then store nonsense, and
//! `WHERE n + 1 > 0` choose the wrong rows.
//!
//! - [`CheckedArithmetic`], the last rule of the physical optimizer, makes arithmetic checked in projections, in
//!   filters, and in arguments and keys of aggregates.
//! - [`CheckedSums`], an analyzer rule after the engine's type coercion, adds BIGINTs up as DECIMALs and makes the sum
//!   a BIGINT again, or an error. Sums of INTs need no check: no table has the 2^32 rows for them to leave a BIGINT.
//!
//! Casts, division, `abs` and the like are checked by the engine. Conditions of joins, sort keys that are computed
//! on the way, and sums over windows still wrap.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result as EngineResult, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Operator, Projection, cast};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal, NegativeExpr};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, PhysicalGroupBy};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;

/// All BIGINTs, and room for as many of them as there may be rows.
const SUMMED: DataType = DataType::Decimal128(19, 0);

/// The rule for arithmetic; see the [module](self).
#[derive(Debug)]
pub(crate) struct CheckedArithmetic;

impl PhysicalOptimizerRule for CheckedArithmetic {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
                return Ok(replaced(node.clone(), checked_projection(projection)?));
            }
            if let Some(filter) = node.downcast_ref::<FilterExec>() {
                return Ok(replaced(node.clone(), checked_filter(filter)?));
            }
            if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
                return Ok(replaced(node.clone(), checked_aggregate(aggregate)?));
            }
            Ok(Transformed::no(node))
        })
        .data()
    }

    fn name(&self) -> &str {
        "checked_arithmetic"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn replaced(
    node: Arc<dyn ExecutionPlan>,
    by: Option<Arc<dyn ExecutionPlan>>,
) -> Transformed<Arc<dyn ExecutionPlan>> {
    match by {
        Some(by) => Transformed::yes(by),
        None => Transformed::no(node),
    }
}

fn checked_projection(projection: &ProjectionExec) -> EngineResult<Option<Arc<dyn ExecutionPlan>>> {
    let schema = projection.input().schema();
    let mut changed = false;
    let mut exprs = Vec::with_capacity(projection.expr().len());
    for expr in projection.expr() {
        let checked = checked(Arc::clone(&expr.expr), &schema)?;
        changed |= checked.transformed;
        exprs.push(ProjectionExpr { expr: checked.data, alias: expr.alias.clone() });
    }
    if !changed {
        return Ok(None);
    }
    let (input, schema) = (Arc::clone(projection.input()), projection.schema());
    Ok(Some(Arc::new(ProjectionExec::try_new_with_schema_metadata(exprs, input, &schema)?)))
}

fn checked_filter(filter: &FilterExec) -> EngineResult<Option<Arc<dyn ExecutionPlan>>> {
    let predicate = checked(Arc::clone(filter.predicate()), &filter.input().schema())?;
    if !predicate.transformed {
        return Ok(None);
    }
    Ok(Some(Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate.data).build()?)))
}

fn checked_aggregate(aggregate: &AggregateExec) -> EngineResult<Option<Arc<dyn ExecutionPlan>>> {
    let schema = aggregate.input_schema();
    let group = checked_group(aggregate.group_expr(), &schema)?;
    let mut changed = false;
    let mut functions: Vec<Arc<AggregateFunctionExpr>> = Vec::with_capacity(aggregate.aggr_expr().len());
    for function in aggregate.aggr_expr() {
        let mut arguments = Vec::new();
        let mut function_changed = false;
        for argument in function.expressions() {
            let checked = checked(argument, &schema)?;
            function_changed |= checked.transformed;
            arguments.push(checked.data);
        }
        let orders = function.order_bys().iter().map(|order| Arc::clone(&order.expr)).collect();
        let rebuilt = match function_changed {
            true => function.with_new_expressions(arguments, orders),
            false => None,
        };
        changed |= rebuilt.is_some();
        functions.push(rebuilt.map_or_else(|| Arc::clone(function), Arc::new));
    }
    Ok(match group {
        Some(group) => {
            let rebuilt = AggregateExec::try_new(
                *aggregate.mode(),
                group,
                functions,
                aggregate.filter_expr().to_vec(),
                Arc::clone(aggregate.input()),
                schema,
            )?;
            Some(Arc::new(rebuilt.with_limit_options(aggregate.limit_options())))
        }
        None if changed => Some(Arc::new(aggregate.with_new_aggr_exprs(functions))),
        None => None,
    })
}

fn checked_group(group: &PhysicalGroupBy, schema: &Schema) -> EngineResult<Option<PhysicalGroupBy>> {
    let mut changed = false;
    let mut exprs = Vec::with_capacity(group.expr().len());
    for (expr, name) in group.expr() {
        let checked = checked(Arc::clone(expr), schema)?;
        changed |= checked.transformed;
        exprs.push((checked.data, name.clone()));
    }
    let rebuilt = || {
        let (nulls, groups) = (group.null_expr().to_vec(), group.groups().to_vec());
        PhysicalGroupBy::new(exprs, nulls, groups, group.has_grouping_set())
    };
    Ok(changed.then(rebuilt))
}

fn checked(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> EngineResult<Transformed<Arc<dyn PhysicalExpr>>> {
    expr.transform_up(|node| {
        if let Some(negative) = node.downcast_ref::<NegativeExpr>() {
            let data_type = negative.arg().data_type(schema)?;
            if !data_type.is_integer() {
                return Ok(Transformed::no(node));
            }
            let zero = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
            let argument = Arc::clone(negative.arg());
            let checked = BinaryExpr::new(zero, Operator::Minus, argument).with_fail_on_overflow(true);
            return Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>));
        }
        let Some(binary) = node.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(node)) };
        if !matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) {
            return Ok(Transformed::no(node));
        }
        let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
        let checked = BinaryExpr::new(left, *binary.op(), right).with_fail_on_overflow(true);
        Ok(Transformed::yes(Arc::new(checked) as Arc<dyn PhysicalExpr>))
    })
}

/// The rule for sums; see the [module](self).
#[derive(Debug)]
pub(crate) struct CheckedSums;

impl AnalyzerRule for CheckedSums {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> EngineResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(aggregate) => checked_sums(aggregate),
            node => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "checked_sums"
    }
}

/// A projection over an aggregate, which gives the columns of the aggregate that it replaces.
fn checked_sums(aggregate: Aggregate) -> EngineResult<Transformed<LogicalPlan>> {
    let input = aggregate.input.schema();
    let widened: Vec<Option<Expr>> = aggregate
        .aggr_expr
        .iter()
        .map(|expr| match expr.clone().unalias() {
            Expr::AggregateFunction(function) => widened(function, input),
            _ => Ok(None),
        })
        .collect::<EngineResult<_>>()?;
    if widened.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let schema = Arc::clone(&aggregate.schema);
    let groups = schema.fields().len() - aggregate.aggr_expr.len();
    let mut functions = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut columns: Vec<Expr> =
        (0..groups).map(|at| Expr::Column(Column::from(schema.qualified_field(at)))).collect();
    for (at, (expr, widened)) in aggregate.aggr_expr.into_iter().zip(widened).enumerate() {
        let column = Column::from(schema.qualified_field(groups + at));
        match widened {
            None => {
                columns.push(Expr::Column(column));
                functions.push(expr);
            }
            Some(sum) => {
                let name = format!("{} as DECIMAL", column.name);
                let wide = Expr::Column(Column::new_unqualified(name.clone()));
                columns.push(cast(wide, DataType::Int64).alias_qualified(column.relation, column.name));
                functions.push(sum.alias(name));
            }
        }
    }
    let aggregate = Aggregate::try_new(aggregate.input, aggregate.group_expr, functions)?;
    let projection = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(aggregate)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(projection)))
}

/// The sum of a BIGINT that is not just an INT, as a DECIMAL.
fn widened(
    mut function: AggregateFunction,
    input: &datafusion::common::DFSchema,
) -> EngineResult<Option<Expr>> {
    let AggregateFunctionParams { args, distinct: false, .. } = &mut function.params else { return Ok(None) };
    let [argument] = args.as_mut_slice() else { return Ok(None) };
    if function.func.name() != "sum" || argument.get_type(input)? != DataType::Int64 {
        return Ok(None);
    }
    if let Expr::Cast(inner) = &*argument
        && matches!(inner.expr.get_type(input)?, DataType::Int8 | DataType::Int16 | DataType::Int32)
    {
        return Ok(None);
    }
    *argument = cast(std::mem::take(argument), SUMMED);
    Ok(Some(Expr::AggregateFunction(function)))
}
