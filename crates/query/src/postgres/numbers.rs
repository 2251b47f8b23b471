//! Exact and approximate numbers with SQL's semantics, where DataFusion's differ.
//!
//! - A literal with a point or an exponent is a DECIMAL: 0.1 must not lose digits on its way into a DECIMAL column.
//!   DataFusion does that (`parse_float_as_decimal`), but also for 1e300; a literal of more digits than a DECIMAL has
//!   is made a DOUBLE here.
//! - A literal that is cast to NUMERIC without precision keeps the digits that it has.
//! - Where a DOUBLE and a DECIMAL are operands of a comparison, arithmetic, BETWEEN, IN, CASE, or a choice
//!   like COALESCE, the DECIMAL becomes a DOUBLE. DataFusion would make both DECIMAL(30,15), which most
//!   doubles do not fit, and which keeps filters away from keys.
//! - A cast to an integer rounds, a DOUBLE to the even one of two that are as near, a DECIMAL away from zero,
//!   as in PostgreSQL. DataFusion would truncate.
//! - `round(x)` of a DOUBLE takes the even one of two integers that are as near, as in PostgreSQL.
//! - A computed -0 is equal to 0.
//! - A list of DECIMALs is searched for one of other digits (`x = ANY(list)`), which DataFusion refuses.
//!
//! All other expressions stay as they are.

use crate::parser::visit::visit_expressions_mut;
use crate::postgres::rewriting::rewritten;
use datafusion::arrow::array::{AsArray, Float64Array};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Between, Case, Cast, InList, ScalarFunction, TryCast};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr as SqlExpr, Statement, Value as Literal, VisitMut,
};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Functions that return one of their arguments.
pub(crate) const CHOICES: [&str; 6] = ["coalesce", "greatest", "least", "nullif", "nvl", "nvl2"];

/// Types literals with an exponent, and keeps the digits of those that are cast to NUMERIC.
pub(crate) fn type_exponents(statement: &mut DFStatement) {
    match statement {
        DFStatement::Statement(statement) => type_exponents_of(statement),
        DFStatement::Explain(explain) => type_exponents(&mut explain.statement),
        _ => {}
    }
}

fn type_exponents_of(statement: &mut Statement) {
    type_exponents_in(statement);
}

/// Types the literals of any syntax tree in the same way.
pub(crate) fn type_exponents_in(sql: &mut impl VisitMut) {
    let visited: ControlFlow<()> = visit_expressions_mut(sql, |expr| {
        keep_digits(expr);
        if let SqlExpr::Value(value) = expr
            && let number @ Literal::Number(..) = &value.value
        {
            let text = number.to_string();
            if text.contains(['e', 'E']) {
                let (text, data_type) = match plain_number(text.clone()) {
                    Some(digits) => {
                        let info = precision_and_scale(&digits);
                        (digits, SqlType::Numeric(info))
                    }
                    None => (text, SqlType::Double(ExactNumberInfo::None)),
                };
                *expr = SqlExpr::Cast {
                    kind: CastKind::Cast,
                    expr: Box::new(SqlExpr::Value(Literal::SingleQuotedString(text).into())),
                    data_type,
                    array: false,
                    format: None,
                };
            }
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
}

/// Precision and scale of a number without an exponent.
fn precision_and_scale(number: &str) -> ExactNumberInfo {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    let scale = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    // Both are at most 38; the 0 before the point is no digit of a fraction that has all of them.
    ExactNumberInfo::PrecisionAndScale(digits.min(usize::from(DECIMAL128_MAX_PRECISION)) as u64, scale as i64)
}

/// Gives a cast of a literal to NUMERIC without precision the scale of the literal.
fn keep_digits(expr: &mut SqlExpr) {
    if let SqlExpr::Cast { expr: inner, data_type, .. } = expr
        && let SqlType::Numeric(info) | SqlType::Decimal(info) | SqlType::Dec(info) = data_type
        && *info == ExactNumberInfo::None
        && let Some(number) = literal_text(inner).and_then(plain_number)
    {
        let scale = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        *info = ExactNumberInfo::PrecisionAndScale(u64::from(DECIMAL128_MAX_PRECISION), scale as i64);
        **inner = SqlExpr::Value(Literal::SingleQuotedString(number).into());
    }
}

/// Digits of a literal, also of one whose exponent has made it a cast.
fn literal_text(expr: &SqlExpr) -> Option<String> {
    match expr {
        SqlExpr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => Some(text.clone()),
            number @ Literal::Number(..) => Some(number.to_string()),
            _ => None,
        },
        SqlExpr::Cast { expr, data_type: SqlType::Double(_), .. } => literal_text(expr),
        SqlExpr::Cast { expr, data_type: SqlType::Numeric(info), .. } => {
            let number = literal_text(expr).and_then(plain_number)?;
            (precision_and_scale(&number) == *info).then_some(number)
        }
        _ => None,
    }
}

/// Number without an exponent: its sign, digits, and a point if there are any behind it. `None` if a DECIMAL
/// cannot have as many digits, or the string is no number.
pub(crate) fn plain_number(text: String) -> Option<String> {
    let text = text.trim();
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{behind}");
    let digits_max = usize::from(DECIMAL128_MAX_PRECISION);
    if digits.is_empty() || digits.len() > digits_max || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Position of the point among the digits, with zeros on either side.
    let point = i64::try_from(before.len()).ok()? + i64::from(exponent);
    let scale = usize::try_from((digits.len() as i64 - point).max(0)).ok()?;
    let zeros_behind = usize::try_from((point - digits.len() as i64).max(0)).ok()?;
    if scale.max(digits.len() + zeros_behind) > digits_max {
        return None;
    }
    let padded = format!(
        "{}{digits}{}",
        "0".repeat((scale + 1).saturating_sub(digits.len())),
        "0".repeat(zeros_behind)
    );
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    Some(if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") })
}

/// Rule for DOUBLE beside DECIMAL; it precedes DataFusion's type coercion.
#[derive(Debug)]
pub(crate) struct DoubleBesideDecimal;

impl AnalyzerRule for DoubleBesideDecimal {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        rewritten(plan, rewrite)
    }

    fn name(&self) -> &str {
        "double_beside_decimal"
    }
}

/// Operands that DataFusion coerces to one type: those of values, not the conditions of a CASE.
pub(crate) fn operands(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![left.as_mut(), right.as_mut()],
        Expr::Between(Between { expr, low, high, .. }) => vec![expr.as_mut(), low.as_mut(), high.as_mut()],
        Expr::InList(InList { expr, list, .. }) => std::iter::once(expr.as_mut()).chain(list).collect(),
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let values = when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            values.chain(else_expr.iter_mut().map(|value| value.as_mut())).collect()
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if CHOICES.contains(&func.name()) => {
            args.iter_mut().collect()
        }
        _ => Vec::new(),
    }
}

/// Replaces a computed -0 by 0 where it is compared: DataFusion orders them, SQL treats them as equal.
fn without_signed_zeros(expr: &mut Expr, schema: &DFSchema) -> bool {
    let compares = match &*expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => op.supports_propagation(),
        Expr::Between(_) | Expr::InList(_) => true,
        Expr::ScalarFunction(function) => function.func.name() == "nullif",
        _ => false,
    };
    let mut changed = false;
    for operand in operands(expr).into_iter().filter(|_| compares) {
        let is_computed = !matches!(operand, Expr::Column(_) | Expr::Literal(..));
        if is_computed && operand.get_type(schema).is_ok_and(|of| of.is_floating()) {
            *operand = std::mem::take(operand) + lit(0.0);
            changed = true;
        }
    }
    changed
}

fn rewrite(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if let Expr::ScalarFunction(function) = &mut expr
        && function.name() == "array_has"
        && let [list, element] = function.args.as_mut_slice()
    {
        let searched = search_decimals(list, element, schema);
        return Transformed::new_transformed(expr, searched.is_some());
    }
    if let Expr::ScalarFunction(function) = &mut expr
        && function.name() == "round"
        && let [number] = function.args.as_mut_slice()
        && number.get_type(schema).is_ok_and(|of| of.is_floating())
    {
        let rounded = round(number, schema).map(|()| std::mem::take(number));
        return rounded.map_or_else(|| Transformed::no(expr), Transformed::yes);
    }
    if let Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field }) = &mut expr
    {
        let is_rounded = field.data_type().is_integer() && round(inner, schema).is_some();
        return Transformed::new_transformed(expr, is_rounded);
    }
    let unsigned = without_signed_zeros(&mut expr, schema);
    let operands = operands(&mut expr);
    let types: Vec<Option<DataType>> = operands.iter().map(|operand| operand.get_type(schema).ok()).collect();
    let is_double = |of: &Option<DataType>| of.as_ref().is_some_and(DataType::is_floating);
    let is_decimal = |of: &Option<DataType>| of.as_ref().is_some_and(DataType::is_decimal);
    if !types.iter().any(is_double) || !types.iter().any(is_decimal) {
        drop(operands);
        return Transformed::new_transformed(expr, unsigned);
    }
    for (operand, of) in operands.into_iter().zip(&types) {
        if is_decimal(of) {
            *operand = to_double(std::mem::take(operand));
        }
    }
    Transformed::yes(expr)
}

/// Rounds the operand of a cast to an integer; `None` if it has no fraction.
fn round(expr: &mut Expr, schema: &DFSchema) -> Option<()> {
    match expr.get_type(schema).ok()? {
        of if of.is_floating() => {
            *expr = ScalarUDF::from(Nearest::new()).call(vec![std::mem::take(expr)]);
        }
        DataType::Decimal128(_, scale) if scale > 0 => {
            *expr = cast(std::mem::take(expr), DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0));
        }
        _ => return None,
    }
    Some(())
}

/// Function that rounds a DOUBLE to the nearest integer, ties to even.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    signature: Signature,
}

impl Nearest {
    fn new() -> Nearest {
        Nearest { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &str {
        "nearest"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        Ok(match arguments.args[0].cast_to(&DataType::Float64, None)? {
            ColumnarValue::Scalar(ScalarValue::Float64(value)) => {
                ColumnarValue::Scalar(ScalarValue::Float64(value.map(f64::round_ties_even)))
            }
            ColumnarValue::Array(array) => {
                let rounded: Float64Array = array.as_primitive::<Float64Type>().unary(f64::round_ties_even);
                ColumnarValue::Array(Arc::new(rounded))
            }
            other => return internal_err!("{other:?} is not a DOUBLE"),
        })
    }
}

/// Coerces a list of decimals and the searched value to one type; `None` for other types, or if they agree
/// already.
fn search_decimals(list: &mut Expr, element: &mut Expr, schema: &DFSchema) -> Option<()> {
    let (DataType::List(field), of) = (list.get_type(schema).ok()?, element.get_type(schema).ok()?) else {
        return None;
    };
    if !field.data_type().is_decimal() || !of.is_decimal() || *field.data_type() == of {
        return None;
    }
    let common = comparison_coercion(field.data_type(), &of)?;
    let field = field.as_ref().clone().with_data_type(common.clone());
    *list = cast(std::mem::take(list), DataType::List(Arc::new(field)));
    *element = cast(std::mem::take(element), common);
    Some(())
}

/// Casts an expression to DOUBLE; literals at once, so that they can be compared with keys.
fn to_double(expr: Expr) -> Expr {
    if let Expr::Literal(scalar, _) = &expr
        // Through the decimal string: dividing by a power of ten would be off by a digit for some numbers.
        && let Ok(text) = scalar.cast_to(&DataType::Utf8)
        && let Ok(double @ ScalarValue::Float64(Some(_))) = text.cast_to(&DataType::Float64)
    {
        return Expr::Literal(double, None);
    }
    cast(expr, DataType::Float64)
}
