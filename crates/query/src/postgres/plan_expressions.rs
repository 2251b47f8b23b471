//! Expressions of plans that are computed for each batch: those of projections and filters, and arguments,
//! conditions and keys of aggregates.

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result as DFResult;
use datafusion::common::tree_node::Transformed;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, PhysicalGroupBy};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use std::sync::Arc;

/// Change of an expression over rows of a schema.
pub(crate) type Change<'c> =
    &'c dyn Fn(Arc<dyn PhysicalExpr>, &Schema) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>>;

/// Node with changed expressions; `None` if none changes, or it is of another kind.
pub(crate) fn changed(
    node: &dyn ExecutionPlan,
    change: Change<'_>,
) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return changed_projection(projection, change);
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return changed_filter(filter, change);
    }
    match node.downcast_ref::<AggregateExec>() {
        Some(aggregate) => changed_aggregate(aggregate, change),
        None => Ok(None),
    }
}

fn changed_projection(
    projection: &ProjectionExec,
    change: Change<'_>,
) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    let schema = projection.input().schema();
    let mut changed = false;
    let mut exprs = Vec::with_capacity(projection.expr().len());
    for expr in projection.expr() {
        let one = change(Arc::clone(&expr.expr), &schema)?;
        changed |= one.transformed;
        exprs.push(ProjectionExpr { expr: one.data, alias: expr.alias.clone() });
    }
    if !changed {
        return Ok(None);
    }
    let (input, schema) = (Arc::clone(projection.input()), projection.schema());
    Ok(Some(Arc::new(ProjectionExec::try_new_with_schema_metadata(exprs, input, &schema)?)))
}

fn changed_filter(filter: &FilterExec, change: Change<'_>) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    let predicate = change(Arc::clone(filter.predicate()), &filter.input().schema())?;
    if !predicate.transformed {
        return Ok(None);
    }
    Ok(Some(Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate.data).build()?)))
}

/// Aggregate with changed expressions; `None` if none changes.
pub(crate) fn changed_aggregate(
    aggregate: &AggregateExec,
    change: Change<'_>,
) -> DFResult<Option<Arc<dyn ExecutionPlan>>> {
    let schema = aggregate.input_schema();
    let group = changed_group(aggregate.group_expr(), &schema, change)?;
    let mut changed = false;
    let mut functions: Vec<Arc<AggregateFunctionExpr>> = Vec::with_capacity(aggregate.aggr_expr().len());
    for function in aggregate.aggr_expr() {
        let mut arguments = Vec::new();
        let mut function_changed = false;
        for argument in function.expressions() {
            let one = change(argument, &schema)?;
            function_changed |= one.transformed;
            arguments.push(one.data);
        }
        let rebuilt = if function_changed { with_arguments(function, arguments, &schema)? } else { None };
        changed |= rebuilt.is_some();
        functions.push(rebuilt.map_or_else(|| Arc::clone(function), Arc::new));
    }
    let mut filters = aggregate.filter_expr().to_vec();
    let mut filters_changed = false;
    for filter in filters.iter_mut().flatten() {
        let one = change(Arc::clone(filter), &schema)?;
        filters_changed |= one.transformed;
        *filter = one.data;
    }
    let group = group.or_else(|| filters_changed.then(|| aggregate.group_expr().clone()));
    Ok(match group {
        Some(group) => {
            let (mode, input) = (*aggregate.mode(), Arc::clone(aggregate.input()));
            let rebuilt = AggregateExec::try_new(mode, group, functions, filters, input, schema)?;
            Some(Arc::new(rebuilt.with_limit_options(aggregate.limit_options())))
        }
        None if changed => Some(Arc::new(aggregate.with_new_aggr_exprs(functions))),
        None => None,
    })
}

fn changed_group(
    group: &PhysicalGroupBy,
    schema: &Schema,
    change: Change<'_>,
) -> DFResult<Option<PhysicalGroupBy>> {
    let mut changed = false;
    let mut exprs = Vec::with_capacity(group.expr().len());
    for (expr, name) in group.expr() {
        let one = change(Arc::clone(expr), schema)?;
        changed |= one.transformed;
        exprs.push((one.data, name.clone()));
    }
    let rebuilt = || {
        let (nulls, groups) = (group.null_expr().to_vec(), group.groups().to_vec());
        PhysicalGroupBy::new(exprs, nulls, groups, group.has_grouping_set())
    };
    Ok(changed.then(rebuilt))
}

/// Function with other arguments; `None` if it takes another number of them.
fn with_arguments(
    function: &AggregateFunctionExpr,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    schema: &SchemaRef,
) -> DFResult<Option<AggregateFunctionExpr>> {
    if !function.is_reversed() {
        let orders = function.order_bys().iter().map(|order| Arc::clone(&order.expr)).collect();
        return Ok(function.with_new_expressions(arguments, orders));
    }
    // DataFusion forgets that it reads its input backwards.
    let mut builder = AggregateExprBuilder::new(Arc::new(function.fun().clone()), arguments)
        .order_by(function.order_bys().to_vec())
        .schema(Arc::clone(schema))
        .alias(function.name())
        .with_ignore_nulls(function.ignore_nulls())
        .with_distinct(function.is_distinct())
        .with_reversed(true);
    if let Some(display) = function.human_display() {
        builder = builder.human_display(display);
    }
    builder.build().map(Some)
}
