//! CHAR(n) in expressions: trailing blanks have no meaning, as in PostgreSQL.
//!
//! - Values have no blanks at their end wherever they are computed with: two that are equal but for those
//!   blanks are the same text. They are padded where they are shown, by the modifier of their field
//!   ([`crate::postgres::types::modifier_of`]).
//! - A literal or parameter that is compared with one loses its blanks too.
//! - A cast to a string type gives a string that is not padded any more.
//! - Patterns (LIKE, SIMILAR TO, `~`) and `octet_length` see the value with its blanks, other functions without.

use crate::postgres::rewriting::rewritten;
use crate::postgres::types::modifier_of;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue, internal_err};
use datafusion::functions::string::expr_fn::rtrim;
use datafusion::functions::unicode::expr_fn::rpad;
use datafusion::logical_expr::expr::{Between, Cast, InList, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Like, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;
use entresol_tables::Modifier;
use std::sync::Arc;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct BlankPadded;

impl AnalyzerRule for BlankPadded {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        rewritten(plan, rewrite)
    }

    fn name(&self) -> &str {
        "blank_padded"
    }
}

fn rewrite(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let compared: Vec<&mut Expr> = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if !matches_pattern(*op) && (op.supports_propagation() || *op == Operator::NotEq) =>
        {
            vec![left.as_mut(), right.as_mut()]
        }
        Expr::Between(Between { expr, low, high, .. }) => vec![expr.as_mut(), low.as_mut(), high.as_mut()],
        Expr::InList(InList { expr, list, .. }) => std::iter::once(expr.as_mut()).chain(list).collect(),
        Expr::Cast(Cast { expr: inner, field }) if is_text(field.data_type()) && is_char(inner, schema) => {
            let args = vec![std::mem::take(inner.as_mut())];
            **inner = Expr::ScalarFunction(ScalarFunction {
                func: Arc::new(ScalarUDF::from(UnpadFunction::new())),
                args,
            });
            return Transformed::yes(expr);
        }
        Expr::Like(Like { expr: matched, .. }) | Expr::SimilarTo(Like { expr: matched, .. }) => {
            let padded = pad(matched, schema);
            return Transformed::new_transformed(expr, padded);
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "octet_length" => {
            let padded = args.first_mut().is_some_and(|text| pad(text, schema));
            return Transformed::new_transformed(expr, padded);
        }
        Expr::BinaryExpr(BinaryExpr { left, op, .. }) if matches_pattern(*op) => {
            let padded = pad(left, schema);
            return Transformed::new_transformed(expr, padded);
        }
        _ => return Transformed::no(expr),
    };
    if !compared.iter().any(|operand| is_char(operand, schema)) {
        return Transformed::no(expr);
    }
    let mut changed = false;
    for operand in compared {
        match operand {
            Expr::Literal(ScalarValue::Utf8(Some(text)), _) if text.ends_with(' ') => {
                text.truncate(text.trim_end_matches(' ').len());
                changed = true;
            }
            Expr::Placeholder(_) => {
                *operand = rtrim(vec![std::mem::take(operand)]);
                changed = true;
            }
            _ => {}
        }
    }
    Transformed::new_transformed(expr, changed)
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_char(expr: &Expr, schema: &DFSchema) -> bool {
    char_length(expr, schema).is_some()
}

/// Length n of a CHAR(n) expression.
fn char_length(expr: &Expr, schema: &DFSchema) -> Option<u32> {
    if !matches!(expr, Expr::Column(_) | Expr::ScalarFunction(_) | Expr::ScalarSubquery(_)) {
        return None;
    }
    match modifier_of(&expr.to_field(schema).ok()?.1) {
        Modifier::Char(length) => Some(length),
        _ => None,
    }
}

fn matches_pattern(op: Operator) -> bool {
    matches!(
        op,
        Operator::RegexMatch
            | Operator::RegexIMatch
            | Operator::RegexNotMatch
            | Operator::RegexNotIMatch
            | Operator::LikeMatch
            | Operator::ILikeMatch
            | Operator::NotLikeMatch
            | Operator::NotILikeMatch
    )
}

/// Pads a CHAR expression with its blanks.
fn pad(expr: &mut Expr, schema: &DFSchema) -> bool {
    let Some(length) = char_length(expr, schema) else { return false };
    let text = ScalarUDF::from(UnpadFunction::new()).call(vec![std::mem::take(expr)]);
    *expr = rpad(vec![text, lit(i64::from(length))]);
    true
}

/// String of a CHAR which is not padded any more, or of JSON, which is none any more.
pub(crate) fn plain_text(expr: Expr) -> Expr {
    ScalarUDF::from(UnpadFunction::new()).call(vec![expr])
}

/// Function that turns a CHAR into a string which is not padded any more.
#[derive(Debug, PartialEq, Eq, Hash)]
struct UnpadFunction {
    signature: Signature,
}

impl UnpadFunction {
    fn new() -> UnpadFunction {
        UnpadFunction { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for UnpadFunction {
    fn name(&self) -> &str {
        "unpadded"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments {
            [of] => Ok(of.clone()),
            _ => internal_err!("unpadded expects one argument"),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        match (arguments.args.pop(), arguments.args.is_empty()) {
            (Some(value), true) => Ok(value),
            _ => internal_err!("unpadded expects one argument"),
        }
    }
}

/// Function for an explicit cast to VARCHAR(n) or CHAR(n), which truncates as in PostgreSQL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TruncatingCast {
    /// True if shorter strings are padded with blanks.
    pads: bool,
    signature: Signature,
}

impl TruncatingCast {
    /// `varchar_truncate(text, n)` and `char_truncate(text, n)`, which [`crate::planner::translation`] makes of casts.
    pub(crate) fn both() -> [ScalarUDF; 2] {
        let of = |pads| {
            let signature = Signature::exact(vec![DataType::Utf8, DataType::Int64], Volatility::Immutable);
            ScalarUDF::from(TruncatingCast { pads, signature })
        };
        [of(false), of(true)]
    }

    fn modifier(&self, length: &ScalarValue) -> DFResult<Modifier> {
        let length = length_of(length)?;
        Ok(if self.pads { Modifier::Char(length) } else { Modifier::Varchar(length) })
    }
}

/// Names of the functions of [`TruncatingCast`].
pub(crate) const VARCHAR_TRUNCATE: &str = "varchar_truncate";
pub(crate) const CHAR_TRUNCATE: &str = "char_truncate";

impl ScalarUDFImpl for TruncatingCast {
    fn name(&self) -> &str {
        if self.pads { CHAR_TRUNCATE } else { VARCHAR_TRUNCATE }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> DFResult<FieldRef> {
        let field = Field::new(self.name(), DataType::Utf8, arguments.arg_fields[0].is_nullable());
        Ok(Arc::new(match arguments.scalar_arguments.get(1) {
            Some(Some(length)) => crate::postgres::types::with_modifier(field, self.modifier(length)?),
            _ => field,
        }))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        use datafusion::arrow::array::{AsArray, StringArray};
        let [text, ColumnarValue::Scalar(length)] = arguments.args.as_slice() else {
            return internal_err!("{} expects a string and a length", self.name());
        };
        let modifier = self.modifier(length)?;
        Ok(match text {
            ColumnarValue::Scalar(ScalarValue::Utf8(text)) => ColumnarValue::Scalar(ScalarValue::Utf8(
                text.as_ref().map(|text| modifier.truncate(text).to_owned()),
            )),
            other => {
                let array = other.to_array(arguments.number_rows)?;
                let texts = array.as_string::<i32>();
                let truncated: StringArray =
                    texts.iter().map(|text| text.map(|text| modifier.truncate(text))).collect();
                ColumnarValue::Array(Arc::new(truncated))
            }
        })
    }
}

fn length_of(scalar: &ScalarValue) -> DFResult<u32> {
    match scalar {
        ScalarValue::Int64(Some(length)) if u32::try_from(*length).is_ok() => Ok(*length as u32),
        ScalarValue::Int32(Some(length)) if *length >= 0 => Ok(length.unsigned_abs()),
        other => internal_err!("{other} is not a length"),
    }
}
