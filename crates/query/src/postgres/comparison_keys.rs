//! Types that are not compared by their representation: intervals and JSONB, by the keys that order as their values
//! do.
//!
//! | written | planned |
//! | --- | --- |
//! | `interval < interval`, BETWEEN, IN, `CASE x WHEN y`, NULLIF, JOIN USING, keys of sorts and windows | [`intervals::extent`] of both |
//! | the same of JSONB | [`json::order_key`] of both |
//! | `min(interval)`, `max(interval)` | the first value by its extent |
//! | `interval::text`, `text::interval` | functions of intervals |
//! | sorts, groups and DISTINCT of JSON | refused (42883): JSON has neither order nor equality |
//!
//! Values that are equal and not the same (`1 day`, `24 hours`; 1 and 1.0 in JSONB) are one group, one partition of a window,
//! and one value of `count(DISTINCT x)`: [`crate::postgres::grouped_keys`].

use crate::error::{Error, external};
use crate::postgres::bound_operands::{self, is_volatile};
use crate::postgres::grouped_keys;
use crate::postgres::intervals;
use crate::postgres::json::{self, JsonType, json_type};
use crate::postgres::rewriting::rewritten;
use crate::postgres::text_output;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, Case, Cast, InList, InSubquery, ScalarFunction, Sort as SortKey, TryCast,
};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Join, JoinConstraint, LogicalPlan, Operator, Projection, Sort,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) enum ComparisonKeys {
    /// Keys of windows, and strings beside intervals. Precedes DataFusion's type coercion, which refuses them.
    Windows,
    /// All other expressions. Follows the type coercion, which adds casts.
    Values,
}

impl AnalyzerRule for ComparisonKeys {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        if let ComparisonKeys::Windows = self {
            return rewritten(plan, window);
        }
        check(&plan)?;
        let plan = rewritten(plan, node)?;
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Sort(Sort { mut expr, input, fetch }) => {
                let changed = order(&mut expr, input.schema());
                Ok(Transformed::new_transformed(LogicalPlan::Sort(Sort { expr, input, fetch }), changed))
            }
            LogicalPlan::Join(joined) => Ok(join(joined)),
            LogicalPlan::Aggregate(aggregate) => grouped_keys::aggregate(aggregate),
            LogicalPlan::Distinct(distinct) => grouped_keys::distinct(distinct),
            other => Ok(Transformed::no(other)),
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        match self {
            ComparisonKeys::Windows => "comparison_keys_of_windows",
            ComparisonKeys::Values => "comparison_keys",
        }
    }
}

/// Refuses sorts and groups of JSON.
fn check(plan: &LogicalPlan) -> DFResult<()> {
    let refuse = |what: &str| -> DFResult<()> {
        let message = format!("could not identify an {what} operator for type json: cast to jsonb");
        Err(external(Error::coded("42883", message)))
    };
    let is_json = |expr: &Expr, schema: &DFSchema| json_type(expr, schema) == Some(JsonType::Json);
    plan.apply_with_subqueries(|plan| {
        match plan {
            LogicalPlan::Sort(sort)
                if sort.expr.iter().any(|key| is_json(&key.expr, sort.input.schema())) =>
            {
                refuse("ordering")?;
            }
            LogicalPlan::Aggregate(aggregate)
                if aggregate.group_expr.iter().any(|expr| is_json(expr, aggregate.input.schema())) =>
            {
                refuse("equality")?;
            }
            LogicalPlan::Distinct(Distinct::All(input))
                if input
                    .schema()
                    .columns()
                    .into_iter()
                    .any(|column| is_json(&Expr::Column(column), input.schema())) =>
            {
                refuse("equality")?;
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn node(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            let changed = is_comparison(op) && measure([left.as_mut(), right.as_mut()], schema);
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(mut between) => {
            let Between { expr, low, high, .. } = &mut between;
            let changed = measure([expr.as_mut(), low.as_mut(), high.as_mut()], schema);
            Transformed::new_transformed(Expr::Between(between), changed)
        }
        Expr::InList(mut list) => {
            let InList { expr, list: items, .. } = &mut list;
            let changed = measure(std::iter::once(expr.as_mut()).chain(items), schema);
            Transformed::new_transformed(Expr::InList(list), changed)
        }
        Expr::Case(mut case) if case.expr.is_some() => {
            let values = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
            let changed = measure(case.expr.iter_mut().map(|expr| expr.as_mut()).chain(values), schema);
            Transformed::new_transformed(Expr::Case(case), changed)
        }
        Expr::ScalarFunction(call) if call.func.name() == "nullif" => null_if(call, schema),
        Expr::InSubquery(membership) => in_subquery(membership, schema),
        Expr::Cast(Cast { expr, field }) => match converted(*expr, field.data_type(), schema) {
            Ok(converted) => Transformed::yes(converted),
            Err(expr) => Transformed::no(Expr::Cast(Cast { expr: Box::new(expr), field })),
        },
        Expr::TryCast(TryCast { expr, field }) => match converted(*expr, field.data_type(), schema) {
            Ok(converted) => Transformed::yes(converted),
            Err(expr) => Transformed::no(Expr::TryCast(TryCast { expr: Box::new(expr), field })),
        },
        Expr::AggregateFunction(function) => extreme(function, schema),
        other => Transformed::no(other),
    }
}

fn window(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expr {
        Expr::WindowFunction(function) => {
            let mut changed = order(&mut function.params.order_by, schema);
            for partition in &mut function.params.partition_by {
                changed |= measure([partition], schema);
            }
            changed
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            literals([expr.as_mut(), low.as_mut(), high.as_mut()], schema)
        }
        Expr::InList(InList { expr, list, .. }) => {
            literals(std::iter::once(expr.as_mut()).chain(list), schema)
        }
        _ => false,
    };
    Transformed::new_transformed(expr, changed)
}

/// Makes strings beside intervals intervals, which the type coercion would refuse.
fn literals<'e>(operands: impl IntoIterator<Item = &'e mut Expr>, schema: &DFSchema) -> bool {
    let operands: Vec<&mut Expr> = operands.into_iter().collect();
    let changed = operands.iter().any(|operand| is_interval(operand, schema));
    if changed {
        operands.into_iter().for_each(|operand| *operand = intervals::as_interval(std::mem::take(operand)));
    }
    changed
}

fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

fn is_jsonb(expr: &Expr, schema: &DFSchema) -> bool {
    json_type(expr, schema) == Some(JsonType::Jsonb)
}

/// Tells whether values of an expression are compared by their keys.
pub(super) fn is_compared(expr: &Expr, schema: &DFSchema) -> bool {
    is_interval(expr, schema) || is_jsonb(expr, schema)
}

/// Key of an expression whose values are compared by keys.
pub(super) fn key_of(expr: Expr, schema: &DFSchema) -> Expr {
    if is_jsonb(&expr, schema) { json::order_key(expr) } else { intervals::extent(expr) }
}

/// Replaces operands by their keys. Strings beside JSONB are JSONB.
fn measure<'e>(operands: impl IntoIterator<Item = &'e mut Expr>, schema: &DFSchema) -> bool {
    let mut operands: Vec<&mut Expr> = operands.into_iter().collect();
    let is_json = operands.iter().any(|operand| is_jsonb(operand, schema));
    let mut changed = false;
    for operand in &mut operands {
        if is_json {
            **operand = json::order_key(std::mem::take(operand));
        } else if is_interval(operand, schema) {
            **operand = intervals::extent(std::mem::take(operand));
        } else {
            continue;
        }
        changed = true;
    }
    changed
}

/// `nullif` of values that are compared by keys.
fn null_if(call: ScalarFunction, schema: &DFSchema) -> Transformed<Expr> {
    let [value, other] = call.args.as_slice() else { return Transformed::no(Expr::ScalarFunction(call)) };
    let is_bound = is_volatile(value);
    let value = if is_bound { bound_operands::operand(0, value.clone()) } else { value.clone() };
    let (result, mut one, mut other) = (value.clone(), value, other.clone());
    if !measure([&mut one, &mut other], schema) {
        return Transformed::no(Expr::ScalarFunction(call));
    }
    let null = result.get_type(schema).and_then(|of| ScalarValue::try_from(&of));
    let null = Expr::Literal(null.unwrap_or(ScalarValue::Null), None);
    let case = Case::new(None, vec![(Box::new(one.eq(other)), Box::new(null))], Some(Box::new(result)));
    let case = Expr::Case(case);
    Transformed::yes(if is_bound { bound_operands::condition(case) } else { case })
}

/// Compares a value with the keys of those of a subquery.
fn in_subquery(mut membership: InSubquery, schema: &DFSchema) -> Transformed<Expr> {
    let plan = Arc::clone(&membership.subquery.subquery);
    let columns = plan.schema().columns();
    let [column] = columns.as_slice() else { return Transformed::no(Expr::InSubquery(membership)) };
    let column = Expr::Column(column.clone());
    let key: fn(Expr) -> Expr = if is_jsonb(&membership.expr, schema) || is_jsonb(&column, plan.schema()) {
        json::order_key
    } else if is_interval(&membership.expr, schema) {
        intervals::extent
    } else {
        return Transformed::no(Expr::InSubquery(membership));
    };
    let Ok(keys) = Projection::try_new(vec![key(column)], plan) else {
        return Transformed::no(Expr::InSubquery(membership));
    };
    membership.subquery = membership.subquery.with_plan(Arc::new(LogicalPlan::Projection(keys)));
    *membership.expr = key(std::mem::take(membership.expr.as_mut()));
    Transformed::yes(Expr::InSubquery(membership))
}

/// Join by the keys of columns, of one whose columns are named or paired.
fn join(mut join: Join) -> Transformed<LogicalPlan> {
    let mut changed = false;
    let (left, right) = (Arc::clone(&join.left), Arc::clone(&join.right));
    for (one, other) in &mut join.on {
        let is_json = is_jsonb(one, left.schema()) || is_jsonb(other, right.schema());
        let is_interval = is_interval(one, left.schema()) && is_interval(other, right.schema());
        let key: fn(Expr) -> Expr = match (is_json, is_interval) {
            (true, _) => json::order_key,
            (_, true) => intervals::extent,
            _ => continue,
        };
        (*one, *other) = (key(std::mem::take(one)), key(std::mem::take(other)));
        changed = true;
    }
    if changed {
        // Its names are resolved; it is by expressions now.
        join.join_constraint = JoinConstraint::On;
    }
    Transformed::new_transformed(LogicalPlan::Join(join), changed)
}

/// Replaces keys of a sort by those that order as their values do; tells whether there were any.
pub(crate) fn order(keys: &mut [SortKey], schema: &DFSchema) -> bool {
    let mut changed = false;
    for key in keys.iter_mut() {
        changed |= measure([&mut key.expr], schema);
    }
    changed
}

/// Cast of an interval, or to text, if it needs a function; else the expression.
fn converted(expr: Expr, to: &DataType, schema: &DFSchema) -> Result<Expr, Expr> {
    match expr.get_type(schema) {
        Ok(from) => {
            intervals::converted(expr, &from, to).or_else(|expr| text_output::converted(expr, &from, to))
        }
        Err(_) => Err(expr),
    }
}

/// Rewrites `min` and `max` of intervals into the first of them, and the order in which an aggregate is
/// computed.
fn extreme(mut function: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let ascending = match function.func.name() {
        "min" => Some(true),
        "max" => Some(false),
        _ => None,
    };
    if let (Some(ascending), [value]) = (ascending, function.params.args.as_slice())
        && is_interval(value, schema)
    {
        let key = intervals::extent(value.clone());
        function.func = first_value_udaf();
        function.params.order_by = vec![SortKey::new(key, ascending, false)];
        return Transformed::yes(Expr::AggregateFunction(function));
    }
    let mut changed = order(&mut function.params.order_by, schema);
    if function.params.distinct && function.func.name() == "count" {
        for value in &mut function.params.args {
            changed |= measure([value], schema);
        }
    }
    Transformed::new_transformed(Expr::AggregateFunction(function), changed)
}
