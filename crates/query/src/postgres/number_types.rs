//! PostgreSQL's result types of numbers, from planning on: clients are told of them.
//!
//! | written | DataFusion's | here, and in PostgreSQL |
//! | --- | --- | --- |
//! | `1` | BIGINT | INT; a larger one BIGINT, then NUMERIC |
//! | `x / y` of exact numbers | four more digits | [`crate::postgres::decimal_division`] |
//! | `avg(int)`, `avg(numeric)` | DOUBLE, four more digits | NUMERIC: the sum divided by the count |
//! | `sum(bigint)` | BIGINT, which wraps | NUMERIC: [`crate::postgres::integer_sums`] |
//! | functions, operators, CASE, UNION | | [`crate::postgres::result_types`] |
//! | `row_number()`, `rank()`, `dense_rank()`, `ntile()` | unsigned | BIGINT: [`crate::postgres::ranks`] |
//!
//! Integers within a recursive query keep DataFusion's types: the relation of its rows has them already.

use crate::postgres::char_padding::plain_text;
use crate::postgres::decimal_division::{ExactOperation, exact_type};
use crate::postgres::intervals::overloads::{resolved, resolved_aggregate};
use crate::postgres::json::json_type;
use crate::postgres::numeric_casts::{self, NUMERIC_OF};
use crate::postgres::optional;
use crate::postgres::refused_types;
use crate::postgres::regular_expressions::over_lines;
use crate::postgres::result_types;
use crate::postgres::rewriting::ResultNames;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as DFResult, ScalarValue, Spans};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Cast, Exists, InSubquery, SetComparison, WindowFunction,
};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    Subquery, Union, Values, Window, WindowFunctionDefinition, cast,
};
use std::sync::Arc;

/// Type of BIGINTs that are summed up: their sums have room for as many of them as there may be rows.
pub(crate) const SUMMED: DataType = DataType::Decimal128(19, 0);

/// Rewrites a plan to numbers of these types.
pub(crate) fn typed(plan: LogicalPlan) -> DFResult<LogicalPlan> {
    match plan {
        // Rows of an INSERT, whose columns may be exact: a DOUBLE in one of them takes no digits from the others.
        rows @ LogicalPlan::Values(_) => retyped_nodes(rows, &[]),
        other => retyped(other, &[]),
    }
}

/// Rewrites the plan of a statement that is a query: the rows of its VALUES are no others' columns.
pub(crate) fn typed_statement(plan: LogicalPlan) -> DFResult<LogicalPlan> {
    retyped(plan, &[])
}

/// Rewrites a plan whose rows other nodes read.
fn retyped(plan: LogicalPlan, outer: &[DFSchemaRef]) -> DFResult<LogicalPlan> {
    match plan {
        LogicalPlan::Values(Values { schema, values }) => {
            let rows = LogicalPlan::Values(Values { schema, values: result_types::values(values)? });
            retyped_nodes(rows, outer)
        }
        other => retyped_nodes(other, outer),
    }
}

/// Rewrites a plan; `outer` has the schemas of the queries around, the nearest last.
#[recursive::recursive]
fn retyped_nodes(plan: LogicalPlan, outer: &[DFSchemaRef]) -> DFResult<LogicalPlan> {
    // LIMIT takes BIGINTs.
    let keeps = matches!(plan, LogicalPlan::RecursiveQuery(_) | LogicalPlan::Limit(_));
    if matches!(plan, LogicalPlan::RecursiveQuery(_)) {
        return Ok(plan);
    }
    let plan = plan.map_children(|child| retyped(child, outer).map(Transformed::yes)).data()?;
    if keeps {
        return Ok(plan);
    }
    let schema = Arc::new(merge_schema(&plan.inputs()));
    let mut scopes = outer.to_vec();
    scopes.push(Arc::clone(&schema));
    let names = ResultNames::of(&plan);
    let mut retyped = |expr| expression(expr, &schema, &scopes).map(Transformed::yes);
    let plan = plan.map_expressions(|expr| names.keep(expr, &mut retyped)).data()?;
    Ok(match plan {
        LogicalPlan::Values(Values { values, .. }) => LogicalPlanBuilder::values(values)?.build()?,
        LogicalPlan::Union(Union { inputs, .. }) => {
            refused_types::check_union(&inputs)?;
            let inputs = result_types::inputs(inputs)?;
            result_types::union(named_alike(Union::try_new_with_loose_types(inputs)?)?)?
        }
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
            averaged(Aggregate::try_new(input, group_expr, aggr_expr)?)?
        }
        LogicalPlan::Window(window) => averaged_windows(Window::try_new(window.window_expr, window.input)?)?,
        other => other.recompute_schema()?,
    })
}

/// Union whose inputs have its names: where only one input is left, DataFusion looks for them in that one.
fn named_alike(union: Union) -> DFResult<Union> {
    let Union { inputs, schema } = union;
    let columns = schema.columns();
    let named = inputs.into_iter().map(|input| -> DFResult<Arc<LogicalPlan>> {
        let own = input.schema().columns();
        if own == columns {
            return Ok(input);
        }
        let named = own.into_iter().zip(&columns).map(|(own, column)| {
            Expr::Column(own).alias_qualified(column.relation.clone(), column.name.clone())
        });
        let named: Vec<Expr> = named.collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(named, input)?)))
    });
    Ok(Union { inputs: named.collect::<DFResult<_>>()?, schema })
}

/// Rewrites an expression over columns, within queries.
fn expression(expr: Expr, schema: &DFSchema, scopes: &[DFSchemaRef]) -> DFResult<Expr> {
    // Name by which DataFusion recognises a count of rows.
    let counts = |function: &str| function == "count";
    let down = expr.transform_down(|expr| {
        let keeps = match &expr {
            Expr::AggregateFunction(function) => counts(function.func.name()),
            Expr::WindowFunction(function) => match &function.fun {
                WindowFunctionDefinition::AggregateUDF(aggregate) => counts(aggregate.name()),
                // Offsets and numbers of buckets.
                WindowFunctionDefinition::WindowUDF(_) => true,
            },
            _ => false,
        };
        match (keeps, small(&expr)) {
            (true, _) => Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump)),
            (false, Some(small)) => Ok(Transformed::yes(small)),
            (false, None) => Ok(Transformed::no(expr)),
        }
    });
    down.data()?.transform_up(|expr| retyped_node(expr, schema, scopes).map(Transformed::yes)).data()
}

/// Literal as an INT, or as a NUMERIC if it exceeds BIGINT.
fn small(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), None) => {
            let value = i32::try_from(*value).ok()?;
            Some(Expr::Literal(ScalarValue::Int32(Some(value)), None))
        }
        Expr::Literal(ScalarValue::UInt64(Some(value)), None) => {
            Some(Expr::Literal(ScalarValue::Decimal128(Some(i128::from(*value)), 20, 0), None))
        }
        _ => None,
    }
}

fn retyped_node(expr: Expr, schema: &DFSchema, scopes: &[DFSchemaRef]) -> DFResult<Expr> {
    let inner = |subquery: Subquery| within(subquery, scopes);
    refused_types::check(&expr, schema)?;
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Divide | Operator::Multiply), right }) => {
            arithmetic(left, op, right, schema)
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus | Operator::Modulo),
            right,
        }) => result_types::operation(left, op, right, schema),
        Expr::BinaryExpr(BinaryExpr {
            left,
            op:
                op @ (Operator::RegexMatch
                | Operator::RegexIMatch
                | Operator::RegexNotMatch
                | Operator::RegexNotIMatch),
            right,
        }) => Expr::BinaryExpr(BinaryExpr { left, op, right: Box::new(over_lines(*right)) }),
        Expr::Case(case) => result_types::case(case, schema),
        Expr::AggregateFunction(mut function) => {
            let of = function.params.args.first().and_then(|argument| argument.get_type(schema).ok());
            if let Some(inner) = resolved_aggregate(&function.func, of.as_ref()) {
                function.func = inner;
            }
            Expr::AggregateFunction(widened(function, schema))
        }
        // A field keeps what it knows of its string over a cast.
        Expr::Cast(Cast { expr, field })
            if *field.data_type() == DataType::Utf8 && json_type(&expr, schema).is_some() =>
        {
            Expr::Cast(Cast { expr: Box::new(plain_text(*expr)), field })
        }
        Expr::Cast(of) => match result_types::cast_of_float(&of, schema) {
            Some(converted) => converted,
            None => Expr::Cast(of),
        },
        Expr::ScalarFunction(function) if function.func.name() == NUMERIC_OF => {
            numeric_casts::resolved(function, schema)?
        }
        Expr::ScalarFunction(function) => {
            let second = function.args.get(1).and_then(|argument| argument.get_type(schema).ok());
            match resolved(function, second.as_ref()) {
                Expr::ScalarFunction(function) => result_types::function(function, schema)?,
                other => other,
            }
        }
        Expr::WindowFunction(mut function) => {
            let of = function.params.args.first().and_then(|argument| argument.get_type(schema).ok());
            if let WindowFunctionDefinition::AggregateUDF(aggregate) = &function.fun
                && let Some(inner) = resolved_aggregate(aggregate, of.as_ref())
            {
                function.fun = WindowFunctionDefinition::AggregateUDF(inner);
            }
            if let WindowFunctionDefinition::AggregateUDF(aggregate) = &function.fun
                && aggregate.name() == "sum"
            {
                widen(&mut function.params.args, schema);
            }
            result_types::default_of_window(&mut function, schema)?;
            Expr::WindowFunction(function)
        }
        Expr::OuterReferenceColumn(field, column) => {
            let known = scopes.iter().rev().skip(1).find_map(|scope| {
                scope.qualified_field_from_column(&column).ok().map(|(_, field)| Arc::clone(field))
            });
            Expr::OuterReferenceColumn(known.unwrap_or(field), column)
        }
        Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(optional::value(inner(subquery)?)?),
        Expr::Exists(Exists { subquery, negated }) => {
            Expr::Exists(Exists { subquery: inner(subquery)?, negated })
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Expr::InSubquery(InSubquery { expr, subquery: inner(subquery)?, negated })
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
            Expr::SetComparison(SetComparison { expr, subquery: inner(subquery)?, op, quantifier })
        }
        other => other,
    })
}

fn within(subquery: Subquery, scopes: &[DFSchemaRef]) -> DFResult<Subquery> {
    let plan = retyped(Arc::unwrap_or_clone(subquery.subquery), scopes)?;
    let outer_ref_columns =
        if subquery.outer_ref_columns.is_empty() { Vec::new() } else { plan.all_out_ref_exprs() };
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() })
}

/// Rewrites `/` and `*` of exact numbers of which one is a DECIMAL, and operations with another result type.
fn arithmetic(left: Box<Expr>, op: Operator, right: Box<Expr>, schema: &DFSchema) -> Expr {
    let types = (left.get_type(schema), right.get_type(schema));
    if let (Ok(one), Ok(other)) = &types
        && (one.is_decimal() || other.is_decimal())
        && let (Some(one), Some(other)) = (exact_type(one), exact_type(other))
    {
        match op {
            Operator::Divide => return ExactOperation::Quotient.of(*left, *right),
            Operator::Multiply if i16::from(one.1) + i16::from(other.1) > 38 => {
                return ExactOperation::Product.of(*left, *right);
            }
            _ => {}
        }
    }
    result_types::operation(left, op, right, schema)
}

/// Sum of BIGINTs as a sum of DECIMALs.
fn widened(mut function: AggregateFunction, schema: &DFSchema) -> AggregateFunction {
    if function.func.name() == "sum" {
        widen(&mut function.params.args, schema);
    }
    function
}

fn widen(arguments: &mut [Expr], schema: &DFSchema) {
    if let [argument] = arguments
        && argument.get_type(schema).is_ok_and(|of| of == DataType::Int64)
    {
        *argument = cast(std::mem::take(argument), SUMMED);
    }
}

/// Returns true for an average of exact numbers.
fn is_average(name: &str, arguments: &[Expr], schema: &DFSchema) -> bool {
    let [argument] = arguments else { return false };
    name == "avg" && argument.get_type(schema).is_ok_and(|of| exact_type(&of).is_some())
}

/// Aggregate with sums and counts in place of averages, under a projection that divides them.
fn averaged(aggregate: Aggregate) -> DFResult<LogicalPlan> {
    let input = Arc::clone(aggregate.input.schema());
    let of = |expr: &Expr| match expr.clone().unalias() {
        Expr::AggregateFunction(function)
            if is_average(function.func.name(), &function.params.args, &input) =>
        {
            Some(function)
        }
        _ => None,
    };
    if !aggregate.aggr_expr.iter().any(|expr| of(expr).is_some()) {
        return Ok(LogicalPlan::Aggregate(aggregate));
    }
    let schema = Arc::clone(&aggregate.schema);
    let groups = schema.fields().len() - aggregate.aggr_expr.len();
    let column = |at: usize| Column::from(schema.qualified_field(at));
    let mut columns: Vec<Expr> = (0..groups).map(|at| Expr::Column(column(at))).collect();
    let mut functions = Vec::new();
    for (at, expr) in aggregate.aggr_expr.into_iter().enumerate() {
        let Some(average) = of(&expr) else {
            columns.push(Expr::Column(column(groups + at)));
            functions.push(expr);
            continue;
        };
        let Column { relation, name, .. } = column(groups + at);
        let (sum, count) = (format!("sum of {name}"), format!("count of {name}"));
        let summed = widened(AggregateFunction { func: sum_udaf(), ..average.clone() }, &input);
        let counted = AggregateFunction { func: count_udaf(), ..average };
        functions.push(Expr::AggregateFunction(summed).alias(&sum));
        functions.push(Expr::AggregateFunction(counted).alias(&count));
        let named = |name: String| Expr::Column(Column::new_unqualified(name));
        let quotient = ExactOperation::Average.of(named(sum), named(count));
        columns.push(quotient.alias_qualified(relation, name));
    }
    let aggregate = Aggregate::try_new(aggregate.input, aggregate.group_expr, functions)?;
    let projection = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(aggregate)))?;
    Ok(LogicalPlan::Projection(projection))
}

/// Window with sums and counts in place of averages, under a projection that divides them.
fn averaged_windows(window: Window) -> DFResult<LogicalPlan> {
    let input = Arc::clone(window.input.schema());
    let average = |expr: &Expr| match expr.clone().unalias() {
        Expr::WindowFunction(function) => match &function.fun {
            WindowFunctionDefinition::AggregateUDF(aggregate)
                if is_average(aggregate.name(), &function.params.args, &input) =>
            {
                Some(function)
            }
            _ => None,
        },
        _ => None,
    };
    if !window.window_expr.iter().any(|expr| average(expr).is_some()) {
        return Ok(LogicalPlan::Window(window));
    }
    let schema = Arc::clone(&window.schema);
    let first = input.fields().len();
    let column = |at: usize| Column::from(schema.qualified_field(at));
    // Two equal functions of one window are a common subexpression to DataFusion, which no plan computes then.
    let mut known: Vec<(Expr, Column)> = Vec::new();
    for (at, expr) in window.window_expr.iter().enumerate().filter(|(_, expr)| average(expr).is_none()) {
        known.push((expr.clone().unalias(), column(first + at)));
    }
    let mut columns: Vec<Expr> = (0..first).map(|at| Expr::Column(column(at))).collect();
    let mut functions = Vec::new();
    for (at, expr) in window.window_expr.into_iter().enumerate() {
        let own = column(first + at);
        let Some(function) = average(&expr) else {
            columns.push(Expr::Column(own));
            functions.push(expr);
            continue;
        };
        let of = |aggregate| WindowFunction {
            fun: WindowFunctionDefinition::AggregateUDF(aggregate),
            ..(*function).clone()
        };
        let (mut summed, counted) = (of(sum_udaf()), of(count_udaf()));
        widen(&mut summed.params.args, &input);
        let mut computed = |function: WindowFunction, kind: &str| {
            let function = Expr::from(function);
            if let Some((_, column)) = known.iter().find(|(known, _)| *known == function) {
                return Expr::Column(column.clone());
            }
            let name = format!("{kind} of {}", own.name);
            functions.push(function.clone().alias(&name));
            known.push((function, Column::new_unqualified(name.clone())));
            Expr::Column(Column::new_unqualified(name))
        };
        let (sum, count) = (computed(summed, "sum"), computed(counted, "count"));
        columns.push(ExactOperation::Average.of(sum, count).alias_qualified(own.relation, own.name));
    }
    let window = Window::try_new(functions, window.input)?;
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::Window(window)))?))
}
