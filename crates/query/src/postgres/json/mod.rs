//! JSON and JSONB in expressions, as in PostgreSQL: operators, functions, casts.
//!
//! | written | planned |
//! | --- | --- |
//! | `x::json`, `x::jsonb` | `json_in(x)`, `jsonb_in(x)`: checked, JSONB in its normal form |
//! | `->`, `->>`, `#>`, `#>>`, `@>`, `<@`, `?`, `?\|`, `?&` | [`functions`] |
//! | `jsonb \|\| jsonb`, `jsonb - key`, `jsonb #- path` | [`functions`] |
//! | `jsonb = jsonb`, `<`, BETWEEN, IN, keys of sorts and windows | `jsonb_key` of both ([`crate::postgres::comparison_keys`]) |
//! | `json = json`, sorts and groups of JSON | refused (42883) |
//! | `json_agg(x ORDER BY y)` | `json_agg_list(array_agg(to_json(x) ORDER BY y))` |
//!
//! - Both types are strings to DataFusion; which one an expression has says the modifier of its field
//!   ([`crate::postgres::types::modifier_of`]). DataFusion drops it in UNION, CASE and such, and such results are
//!   strings to clients: operators take strings for JSON, so that they can be taken apart all the same.
//! - JSONB values that are equal and not the same (1 and 1.0) are two groups of a GROUP BY.
//! - A value is parsed by each function that takes it apart.

mod build;
mod edit;
mod functions;
mod json_type;

use crate::error::{Error, external};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DFResult};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};
use datafusion::sql::sqlparser::ast::BinaryOperator;

pub(crate) use self::functions::order_key;
pub(crate) use self::json_type::JsonType;

/// Functions that SQL, or a translation of it, can name.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    functions::named().chain(build::named())
}

/// Functions that return the first of their arguments, or one that is not NULL.
const CHOICES: [&str; 4] = ["coalesce", "nvl", "ifnull", "nullif"];

/// Type of an expression, if it is JSON.
pub(crate) fn json_type(expr: &Expr, schema: &DFSchema) -> Option<JsonType> {
    match expr {
        Expr::Alias(alias) => json_type(&alias.expr, schema),
        Expr::ScalarFunction(function) if CHOICES.contains(&function.func.name()) => {
            function.args.iter().find_map(|argument| json_type(argument, schema))
        }
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
            results.into_iter().find_map(|result| json_type(result, schema))
        }
        Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::ScalarFunction(_)
        | Expr::AggregateFunction(_)
        | Expr::ScalarSubquery(_) => JsonType::of_field(&expr.to_field(schema).ok()?.1),
        _ => None,
    }
}

/// Error of an operator that JSON does not have.
pub(crate) fn no_operator(op: &str, of: &str) -> DataFusionError {
    external(Error::coded("42883", format!("operator does not exist: json {op} {of}: cast to jsonb")))
}

/// Planner of the operators of JSON.
#[derive(Debug)]
pub(crate) struct JsonOperators;

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(
        &self,
        raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DFResult<PlannerResult<RawBinaryExpr>> {
        use functions::Op;
        let (left, right) = (json_type(&raw.left, schema), json_type(&raw.right, schema));
        let is_jsonb = left == Some(JsonType::Jsonb) || right == Some(JsonType::Jsonb);
        let takes_text = matches!(raw.left.get_type(schema), Ok(DataType::Utf8 | DataType::Null));
        let op = match &raw.op {
            BinaryOperator::Arrow => Op::Get,
            BinaryOperator::LongArrow => Op::GetText,
            BinaryOperator::HashArrow => Op::Path,
            BinaryOperator::HashLongArrow => Op::PathText,
            BinaryOperator::AtArrow if is_jsonb || takes_text => Op::Contains,
            BinaryOperator::ArrowAt if is_jsonb || takes_text => {
                return Ok(PlannerResult::Planned(Op::Contains.call(vec![raw.right, raw.left])));
            }
            BinaryOperator::Question if takes_text => Op::HasKey,
            BinaryOperator::QuestionPipe if takes_text => Op::HasAny,
            BinaryOperator::QuestionAnd if takes_text => Op::HasAll,
            BinaryOperator::StringConcat if is_jsonb => Op::Concat,
            BinaryOperator::Minus if left == Some(JsonType::Jsonb) => Op::Delete,
            BinaryOperator::HashMinus if left == Some(JsonType::Jsonb) => Op::DeletePath,
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
                if left == Some(JsonType::Json) || right == Some(JsonType::Json) =>
            {
                let other = if left.is_some() { right } else { left };
                return Err(no_operator(&raw.op.to_string(), other.map_or("unknown", JsonType::name)));
            }
            _ => return Ok(PlannerResult::Original(raw)),
        };
        Ok(PlannerResult::Planned(op.call(vec![raw.left, raw.right])))
    }
}
