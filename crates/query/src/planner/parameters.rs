//! Parameters: the `$1`, `$2`, … of prepared statements, numbered from 0 internally.
//!
//! The type of a parameter is, in this order:
//!
//! 1. the type that the client declares;
//! 2. the type of a column, if the parameter alone is assigned to it ([`assigned_types`]);
//! 3. the type inferred by the planner from a comparison, operation or cast ([`Types::of_plan`]);
//! 4. text.
//!
//! A statement is run with values either by substituting them in its cached plan, or, if it has none, in its
//! syntax tree as literals ([`substitute`]).

use crate::error::{Error, Result};
use crate::parser::command::Command;
use crate::parser::statement::{inner, inner_mut};
use crate::parser::visit::{visit_expressions, visit_expressions_mut};
use crate::postgres::numeric_casts;
use crate::postgres::rewriting::ResultNames;
use crate::postgres::time_zones::Zone;
use crate::postgres::types::column_type;
use crate::session::run_values::{ParameterFunction, RunValues};
use datafusion::arrow::array::Array as _;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, TimeUnit};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DFResult, ScalarValue, internal_datafusion_err};
use datafusion::logical_expr::expr::{Cast, Placeholder};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr as PlanExpr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Values};
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType as SqlType, ExactNumberInfo, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArguments, Query, SelectItem, SetExpr, TimezoneInfo, TypedString,
    Value as Literal, Visit, VisitMut,
};
use entresol_tables::{Column, DataType, Interval, Value, arrow_type};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Maximum number of parameters of a statement, as in PostgreSQL.
pub const PARAMETERS_MAX: usize = 65_535;

/// Index of the parameter that a placeholder names.
pub(crate) fn index_of(placeholder: &str) -> Result<usize> {
    let number = placeholder.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
    match number {
        Some(number @ 1..=PARAMETERS_MAX) => Ok(number - 1),
        _ => Err(Error::coded("42P02", format!("there is no parameter {placeholder}"))),
    }
}

/// Number of parameters of a part of a statement: the greatest number in it.
pub(crate) fn count(part: &impl Visit) -> Result<usize> {
    let mut count = 0;
    let visited = visit_expressions(part, |expr| {
        if let Expr::Value(value) = expr
            && let Literal::Placeholder(name) = &value.value
        {
            match index_of(name) {
                Ok(index) => count = count.max(index + 1),
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(count),
    }
}

/// Index of the parameter, if an expression is nothing else.
pub(crate) fn alone(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Nested(inner) => alone(inner),
        Expr::Value(value) => match &value.value {
            Literal::Placeholder(name) => index_of(name).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Known types of a statement's parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Types(BTreeMap<usize, ArrowType>);

impl Types {
    /// Types that the client declares.
    pub(crate) fn declared(types: &[Option<ArrowType>]) -> Types {
        let known = types.iter().enumerate().filter_map(|(at, known)| Some((at, known.clone()?)));
        Types(known.collect())
    }

    /// Adds the type of a parameter, unless it is known already.
    pub(crate) fn add(&mut self, index: usize, found: ArrowType) {
        self.0.entry(index).or_insert(found);
    }

    /// Adds the types of the parameters that alone are assigned to `targets`.
    pub(crate) fn of_assigned<'a>(
        &mut self,
        values: impl Iterator<Item = (&'a Expr, &'a Column)>,
        zone: &Zone,
    ) {
        for (expr, column) in values {
            if let Some(index) = alone(expr) {
                self.add(index, arrow_type(column.data_type, zone.name()));
            }
        }
    }

    /// Adds the types that the planner infers. A parameter that is compared with columns of two types has the
    /// first.
    pub(crate) fn of_plan(&mut self, plan: &LogicalPlan) -> Result<()> {
        let mut rows: Vec<String> = Vec::new();
        let mut note = |expr: &PlanExpr| {
            match expr {
                PlanExpr::Placeholder(Placeholder { id, field: Some(field) })
                    if *field.data_type() != ArrowType::Null =>
                {
                    if let Ok(index) = index_of(id) {
                        self.add(index, plain_type(field.data_type()));
                    }
                }
                PlanExpr::Cast(Cast { expr, field }) => {
                    if let PlanExpr::Placeholder(Placeholder { id, field: None }) = expr.as_ref()
                        && let Ok(index) = index_of(id)
                    {
                        self.add(index, plain_type(field.data_type()));
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        };
        let mut lists: Vec<(String, ArrowType)> = Vec::new();
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    lists.extend(list_beside(expr, node)?);
                    Ok(TreeNodeRecursion::Continue)
                })
            })?;
            node.apply_expressions(|expr| match (node, expr) {
                // Numbers of rows.
                (LogicalPlan::Limit(_), PlanExpr::Placeholder(Placeholder { id, field: None })) => {
                    rows.push(id.clone());
                    Ok(TreeNodeRecursion::Continue)
                }
                (_, expr) => expr.apply(&mut note),
            })
        })?;
        for id in rows {
            self.add(index_of(&id)?, ArrowType::Int64);
        }
        for (id, found) in lists {
            self.add(index_of(&id)?, found);
        }
        Ok(())
    }

    /// NULLs of these types, to plan a statement with.
    pub(crate) fn sample(&self, count: usize) -> Result<Vec<ScalarValue>> {
        Ok(self.complete(count).iter().map(ScalarValue::try_from).collect::<DFResult<_>>()?)
    }

    /// All types; text where nothing is known.
    pub(crate) fn complete(&self, count: usize) -> Vec<ArrowType> {
        (0..count).map(|at| self.0.get(&at).cloned().unwrap_or(ArrowType::Utf8)).collect()
    }
}

/// List that `x = ANY($1)` searches: its element type is that of x.
fn list_beside(expr: &PlanExpr, node: &LogicalPlan) -> DFResult<Option<(String, ArrowType)>> {
    let PlanExpr::ScalarFunction(function) = expr else { return Ok(None) };
    match (function.name(), function.args.as_slice()) {
        ("array_has", [PlanExpr::Placeholder(Placeholder { id, .. }), element]) => {
            let schema = merge_schema(&node.inputs());
            let found = plain_type(&element.get_type(&schema)?);
            Ok(Some((id.clone(), ArrowType::List(Arc::new(Field::new_list_field(found, true))))))
        }
        _ => Ok(None),
    }
}

/// Type that a client sends for an inferred one: all string types are text.
fn plain_type(found: &ArrowType) -> ArrowType {
    match found {
        ArrowType::Utf8View | ArrowType::LargeUtf8 => ArrowType::Utf8,
        ArrowType::Dictionary(_, value) => plain_type(value),
        other => other.clone(),
    }
}

/// Values that an INSERT's query assigns to columns: the cells of its VALUES, or the items of its SELECT.
pub(crate) fn assigned_values<'a>(
    query: &'a Query,
    targets: &'a [usize],
    columns: &'a [Column],
) -> Vec<(&'a Expr, &'a Column)> {
    let pair = |(expr, &target): (&'a Expr, &usize)| (expr, &columns[target]);
    match query.body.as_ref() {
        SetExpr::Values(values) => {
            values.rows.iter().flat_map(|row| row.iter().zip(targets).map(pair)).collect()
        }
        SetExpr::Select(select) => {
            let items = select.projection.iter().map_while(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
                _ => None,
            });
            items.zip(targets).map(pair).collect()
        }
        _ => Vec::new(),
    }
}

/// Assigns its type to every parameter of a plan.
pub(crate) fn typed(plan: LogicalPlan, types: &[ArrowType]) -> Result<LogicalPlan> {
    let field = |index: usize| Some(Arc::new(Field::new("", types.get(index)?.clone(), true)));
    let plan = rewrite(plan, |expr| match expr {
        PlanExpr::Placeholder(Placeholder { id, .. }) => {
            let index = index_of(&id).map_err(crate::error::external)?;
            Ok(Transformed::yes(PlanExpr::Placeholder(Placeholder::new_with_field(id, field(index)))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan)
}

/// Substitutes values for the parameters of a plan.
pub(crate) fn with_values(plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
    let plan = rewrite(plan, |expr| match expr {
        PlanExpr::Placeholder(Placeholder { id, .. }) => {
            let index = index_of(&id).map_err(crate::error::external)?;
            let value = values.get(index).ok_or_else(|| {
                crate::error::external(Error::coded("08P01", format!("there is no value for {id}")))
            })?;
            Ok(Transformed::yes(PlanExpr::Literal(value.clone(), None)))
        }
        PlanExpr::Cast(cast) => {
            numeric_casts::check(&cast)?;
            Ok(Transformed::no(PlanExpr::Cast(cast)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan)
}

/// Casts the parameters whose types the client declares, where the planner asks for the types of operands: in arithmetic and
/// arguments of functions. It takes a parameter for a value of any type.
pub(crate) fn declare(statement: &mut impl VisitMut, types: &Types) {
    let declared = |expr: &mut Expr| {
        let known = alone(expr).and_then(|index| types.0.get(&index)).filter(|of| !of.is_string());
        if let Some(of) = known.and_then(sql_type) {
            *expr = cast(std::mem::replace(expr, Expr::Value(Literal::Null.into())), of);
        }
    };
    let _: ControlFlow<()> = visit_expressions_mut(statement, |expr| {
        match expr {
            Expr::BinaryOp {
                left,
                op:
                    BinaryOperator::Plus
                    | BinaryOperator::Minus
                    | BinaryOperator::Multiply
                    | BinaryOperator::Divide
                    | BinaryOperator::Modulo
                    | BinaryOperator::StringConcat,
                right,
            } => {
                declared(left);
                declared(right);
            }
            Expr::Function(Function { args: FunctionArguments::List(list), .. }) => {
                for argument in &mut list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = argument {
                        declared(value);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
}

/// Puts functions in the place of the parameters of a plan, whose types are known.
pub(crate) fn as_functions(plan: LogicalPlan, values: &Arc<RunValues>) -> DFResult<LogicalPlan> {
    rewrite(plan, |expr| match expr {
        PlanExpr::Placeholder(Placeholder { id, field }) => {
            let index = index_of(&id).map_err(crate::error::external)?;
            let field = field.ok_or_else(|| internal_datafusion_err!("the type of {id} is not known"))?;
            let function = ParameterFunction::call(index, id, field.data_type().clone(), values);
            Ok(Transformed::yes(function))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// Substitutes values for the parameters that are numbers of rows, and returns those values by parameter.
pub(crate) fn with_constant_limits(
    plan: LogicalPlan,
    values: &[ScalarValue],
) -> Result<(LogicalPlan, BTreeMap<usize, ScalarValue>)> {
    let mut constants = BTreeMap::new();
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Limit(_) = &node else { return Ok(Transformed::no(node)) };
        node.map_expressions(|expr| {
            expr.transform_up(|expr| match &expr {
                PlanExpr::Placeholder(Placeholder { id, .. }) => {
                    let index = index_of(id).map_err(crate::error::external)?;
                    let Some(value) = values.get(index) else { return Ok(Transformed::no(expr)) };
                    constants.insert(index, value.clone());
                    Ok(Transformed::yes(PlanExpr::Literal(value.clone(), None)))
                }
                _ => Ok(Transformed::no(expr)),
            })
        })
    });
    Ok((plan.data()?, constants))
}

/// Rewrites the expressions of a plan and of its subqueries; columns keep their names.
fn rewrite(
    plan: LogicalPlan,
    mut change: impl FnMut(PlanExpr) -> DFResult<Transformed<PlanExpr>>,
) -> DFResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let names = ResultNames::of(&node);
        let node =
            node.map_expressions(|expr| names.keep(expr, &mut |expr| expr.transform_up(&mut change)))?;
        if !node.transformed {
            return Ok(node);
        }
        node.map_data(|node| match node {
            // Its schema follows from its values.
            LogicalPlan::Values(Values { values, .. }) => LogicalPlanBuilder::values(values)?.build(),
            node => node.recompute_schema(),
        })
    })
    .data()
}

/// Substitutes values for the parameters of a statement, as literals.
pub(crate) fn substitute(part: &mut impl VisitMut, values: &[ScalarValue]) -> Result<()> {
    let visited = visit_expressions_mut(part, |expr| {
        if let Expr::Value(value) = expr
            && let Literal::Placeholder(name) = &value.value
        {
            let literal = index_of(name).and_then(|index| match values.get(index) {
                Some(value) => literal(value),
                None => Err(Error::coded("08P01", format!("there is no value for {name}"))),
            });
            match literal {
                Ok(literal) => *expr = literal,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Literal of a value. Negative numbers are in parentheses: `a - -1` is fine, `a--1` is a comment.
fn literal(value: &ScalarValue) -> Result<Expr> {
    let plain = |literal: Literal| Expr::Value(literal.into());
    let number = |text: String| Expr::Nested(Box::new(plain(Literal::Number(text, false))));
    if value.is_null() {
        return Ok(match sql_type(&value.data_type()) {
            Some(data_type) => cast(plain(Literal::Null), data_type),
            None => plain(Literal::Null),
        });
    }
    let text = || match value.cast_to(&ArrowType::Utf8)? {
        ScalarValue::Utf8(Some(text)) => Ok(text),
        other => Err(Error::Internal(format!("{other:?} is not a string"))),
    };
    Ok(match value.data_type() {
        ArrowType::Boolean => plain(Literal::Boolean(*value == ScalarValue::Boolean(Some(true)))),
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => {
            plain(Literal::SingleQuotedString(text()?))
        }
        ArrowType::Int8 | ArrowType::Int16 | ArrowType::Int32 | ArrowType::Int64 => {
            let text = text()?;
            match text.strip_prefix('-') {
                // The smallest BIGINT has no positive counterpart.
                Some(_) => cast(plain(Literal::SingleQuotedString(text)), SqlType::BigInt(None)),
                None => number(text),
            }
        }
        ArrowType::Date32 => typed_string(SqlType::Date, text()?),
        ArrowType::Timestamp(TimeUnit::Microsecond, None) => {
            let text = match column_value(value) {
                Some(micros) => micros.to_string(),
                None => text()?,
            };
            typed_string(SqlType::Timestamp(None, TimezoneInfo::None), text)
        }
        ArrowType::Interval(_) => {
            let text = match column_value(value) {
                Some(interval) => interval.to_string(),
                None => text()?,
            };
            cast(
                plain(Literal::SingleQuotedString(text)),
                SqlType::Interval { fields: None, precision: None },
            )
        }
        ArrowType::List(element) => list_literal(value, element.data_type())?,
        other => match sql_type(&other) {
            Some(data_type) => cast(plain(Literal::SingleQuotedString(text()?)), data_type),
            None => return Err(Error::unsupported(format!("a parameter of type {other} here"))),
        },
    })
}

/// `ARRAY[…]` literal of a list.
fn list_literal(value: &ScalarValue, element: &ArrowType) -> Result<Expr> {
    let ScalarValue::List(list) = value else {
        return Err(Error::Internal(format!("{value:?} is not a list")));
    };
    let values = list.value(0);
    let elem: Vec<Expr> = (0..values.len())
        .map(|at| literal(&ScalarValue::try_from_array(&values, at)?))
        .collect::<Result<_>>()?;
    let array = Expr::Array(Array { elem, named: true });
    Ok(match sql_type(element) {
        Some(of) => cast(array, SqlType::Array(ArrayElemTypeDef::SquareBracket(Box::new(of), None))),
        None => array,
    })
}

fn cast(expr: Expr, data_type: SqlType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Literal `TYPE 'string'`.
pub(crate) fn typed_string(data_type: SqlType, text: String) -> Expr {
    let value = Literal::SingleQuotedString(text).into();
    Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false })
}

/// SQL type of a cast to an Arrow type.
pub(crate) fn sql_type(arrow: &ArrowType) -> Option<SqlType> {
    Some(match arrow {
        ArrowType::Decimal128(precision, scale) if *scale >= 0 => {
            SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(u64::from(*precision), i64::from(*scale)))
        }
        other => match column_type(other)? {
            DataType::Boolean => SqlType::Boolean,
            DataType::SmallInt => SqlType::SmallInt(None),
            DataType::Int => SqlType::Int(None),
            DataType::BigInt => SqlType::BigInt(None),
            DataType::Real => SqlType::Real,
            DataType::Double => SqlType::Double(ExactNumberInfo::None),
            DataType::Decimal { precision, scale } => {
                SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(u64::from(precision), i64::from(scale)))
            }
            DataType::Date => SqlType::Date,
            DataType::Timestamp => SqlType::Timestamp(None, TimezoneInfo::None),
            DataType::TimestampTz => SqlType::Timestamp(None, TimezoneInfo::WithTimeZone),
            DataType::Interval => SqlType::Interval { fields: None, precision: None },
            DataType::Varchar => SqlType::Varchar(None),
        },
    })
}

/// Value as stored in tables, if its type is a column type. NULL is NULL whatever its type.
pub(crate) fn column_value(scalar: &ScalarValue) -> Option<Value> {
    Some(match scalar {
        scalar if scalar.is_null() => Value::Null,
        ScalarValue::Boolean(Some(value)) => Value::Boolean(*value),
        ScalarValue::Int8(Some(value)) => Value::Int(i32::from(*value)),
        ScalarValue::Int16(Some(value)) => Value::Int(i32::from(*value)),
        ScalarValue::Int32(Some(value)) => Value::Int(*value),
        ScalarValue::Int64(Some(value)) => Value::BigInt(*value),
        ScalarValue::Float32(Some(value)) => Value::Double(f64::from(*value)),
        ScalarValue::Float64(Some(value)) => Value::Double(*value),
        ScalarValue::Decimal128(Some(value), _, _) => Value::Decimal(*value),
        ScalarValue::Date32(Some(value)) => Value::Date(*value),
        ScalarValue::TimestampMicrosecond(Some(value), None) => Value::Timestamp(*value),
        ScalarValue::IntervalMonthDayNano(Some(value)) => Value::Interval(Interval::from_arrow(*value)),
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Value::varchar(text.as_str()),
        _ => return None,
    })
}

impl Command {
    /// Number of its parameters.
    pub(crate) fn parameters(&self) -> Result<usize> {
        match self {
            Command::Query(statement) => inner(statement).map_or(Ok(0), count),
            Command::Insert(insert) => count(insert.as_ref()),
            Command::Update(update) => count(update.as_ref()),
            Command::Delete(delete) => count(delete.as_ref()),
            Command::Merge(merge) => count(merge.as_ref()),
            Command::CreateTable(create) => count(create.as_ref()),
            Command::ExplainWrite { command, .. } => command.parameters(),
            _ => Ok(0),
        }
    }

    /// Puts values in the place of its parameters.
    pub(crate) fn substitute(&mut self, values: &[ScalarValue]) -> Result<()> {
        match self {
            _ if values.is_empty() => Ok(()),
            Command::Query(statement) => {
                inner_mut(statement).map_or(Ok(()), |statement| substitute(statement, values))
            }
            Command::Insert(insert) => substitute(insert.as_mut(), values),
            Command::Update(update) => substitute(update.as_mut(), values),
            Command::Delete(delete) => substitute(delete.as_mut(), values),
            Command::Merge(merge) => substitute(merge.as_mut(), values),
            Command::CreateTable(create) => substitute(create.as_mut(), values),
            Command::ExplainWrite { explain, command } => {
                command.substitute(values)?;
                let inner = inner_mut(&mut explain.statement);
                inner.map_or(Ok(()), |statement| substitute(statement, values))
            }
            _ => Ok(()),
        }
    }
}
