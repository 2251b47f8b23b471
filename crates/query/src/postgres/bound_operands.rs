//! Operands that are computed once for a row, though the plan names them several times.
//!
//! | written | planned |
//! | --- | --- |
//! | `x BETWEEN SYMMETRIC a AND b` | `x BETWEEN a AND b OR x BETWEEN b AND a` |
//! | `(a, b) < (c, d)`, `(a, b) IN (…)` | comparisons of the fields, joined |
//! | `x LIKE ANY (…)`, `x LIKE ALL (…)` | a LIKE for each pattern |
//! | `x BETWEEN a AND b`, `coalesce(x, y)` | DataFusion's own `x >= a AND x <= b`, `CASE WHEN x IS NOT NULL THEN x ELSE y END` |
//!
//! With `random()` or `nextval` as `x` these would compare several values. So the translation makes them
//! `bound(… bound_operand(0, x) …)` where an operand calls a function:
//!
//! - [`BoundOperands`], the first rule of the analyzer, takes the marks away where no operand is volatile: then
//!   nothing is different, and nothing costs more. It sets them around DataFusion's own rewrites.
//! - [`bound`] makes a [`BoundExpr`] of what is left in a physical plan: operands first, then the condition on
//!   their values. It computes operands where the condition is computed, so that CASE and AND still keep rows from it.
//!
//! Not among them: `NULLIF` of intervals and JSONB, whose first operand is still computed twice if it is volatile.
//!
//! Both functions are the identity where neither has looked.

use crate::postgres::rewriting::rewritten;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DFResult, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Between, Exists, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Name of the function around a condition.
pub(crate) const BOUND: &str = "bound";
/// Name of the function around an operand, which has a place within its condition.
pub(crate) const BOUND_OPERAND: &str = "bound_operand";

/// Functions of this module.
pub(crate) fn functions() -> [ScalarUDF; 2] {
    [Mark::Condition, Mark::Operand].map(Mark::function)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mark {
    Condition,
    Operand,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MarkFunction {
    mark: Mark,
    signature: Signature,
}

impl Mark {
    fn function(self) -> ScalarUDF {
        let arguments = match self {
            Mark::Condition => 1,
            Mark::Operand => 2,
        };
        let signature = Signature::any(arguments, Volatility::Immutable);
        ScalarUDF::from(MarkFunction { mark: self, signature })
    }

    fn is_of(self, function: &ScalarUDF) -> bool {
        function.inner().downcast_ref::<MarkFunction>().is_some_and(|found| found.mark == self)
    }
}

impl ScalarUDFImpl for MarkFunction {
    fn name(&self) -> &str {
        match self.mark {
            Mark::Condition => BOUND,
            Mark::Operand => BOUND_OPERAND,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments.last() {
            Some(last) => Ok(last.clone()),
            None => internal_err!("{} expects an argument", self.name()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> DFResult<FieldRef> {
        match arguments.arg_fields.last() {
            Some(last) => Ok(Arc::clone(last)),
            None => internal_err!("{} expects an argument", self.name()),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        match arguments.args.pop() {
            Some(last) => Ok(last),
            None => internal_err!("{} expects an argument", self.name()),
        }
    }
}

/// Condition whose operands are bound.
pub(crate) fn condition(condition: Expr) -> Expr {
    Mark::Condition.function().call(vec![condition])
}

/// Operand of a condition, by its place.
pub(crate) fn operand(place: i64, operand: Expr) -> Expr {
    Mark::Operand.function().call(vec![Expr::Literal(ScalarValue::from(place), None), operand])
}

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct BoundOperands;

impl AnalyzerRule for BoundOperands {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        if is_concerned(&plan)? { rewritten(plan, |expr, _: &DFSchema| node(expr)) } else { Ok(plan) }
    }

    fn name(&self) -> &str {
        "bound_operands"
    }
}

/// Returns true if a plan calls a volatile function, or one of this module.
fn is_concerned(plan: &LogicalPlan) -> DFResult<bool> {
    let concerns = |part: &Expr| {
        Ok(match part {
            Expr::ScalarFunction(call) => {
                call.func.signature().volatility == Volatility::Volatile || Mark::Condition.is_of(&call.func)
            }
            _ => false,
        })
    };
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found || expr.exists(concerns)?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn node(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(mut call) if Mark::Condition.is_of(&call.func) => {
            match (call.args.iter().any(is_volatile), call.args.pop()) {
                (false, Some(condition)) => Transformed::yes(unmarked(condition)),
                (_, last) => {
                    call.args.extend(last);
                    Transformed::no(Expr::ScalarFunction(call))
                }
            }
        }
        Expr::ScalarFunction(call) if matches!(call.func.name(), "coalesce" | "nvl") => first_of(call),
        Expr::Between(Between { expr, negated, low, high }) if is_volatile(&expr) && !is_operand(&expr) => {
            let expr = Box::new(operand(0, *expr));
            Transformed::yes(condition(Expr::Between(Between { expr, negated, low, high })))
        }
        other => Transformed::no(other),
    }
}

fn is_operand(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if Mark::Operand.is_of(&call.func))
}

/// Call of `coalesce` in which DataFusion may name all arguments but the last one twice.
fn first_of(mut call: ScalarFunction) -> Transformed<Expr> {
    let last = call.args.len().saturating_sub(1);
    let Some(at) = call.args.iter().take(last).position(|one| is_volatile(one) && !is_operand(one)) else {
        return Transformed::no(Expr::ScalarFunction(call));
    };
    // Those behind are computed only where it is NULL.
    let mut rest = call.args.split_off(at);
    let first = operand(0, rest.remove(0));
    let others = match rest.len() {
        1 => rest.remove(0),
        _ => first_of(ScalarFunction { func: Arc::clone(&call.func), args: rest }).data,
    };
    let own = ScalarFunction { func: Arc::clone(&call.func), args: vec![first, others] };
    let bound = condition(Expr::ScalarFunction(own));
    if call.args.is_empty() {
        return Transformed::yes(bound);
    }
    call.args.push(bound);
    Transformed::yes(Expr::ScalarFunction(call))
}

/// Returns true if an expression may have another value each time, that of a subquery in it included.
pub(crate) fn is_volatile(expr: &Expr) -> bool {
    let of_query = |plan: &LogicalPlan| {
        let mut found = false;
        let _ = plan.apply_with_subqueries(|node| {
            found |= node.expressions().iter().any(Expr::is_volatile);
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        });
        found
    };
    let in_query = |part: &Expr| {
        Ok(match part {
            Expr::ScalarSubquery(subquery)
            | Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. }) => of_query(&subquery.subquery),
            _ => false,
        })
    };
    expr.is_volatile() || expr.exists(in_query).unwrap_or(true)
}

/// Condition without marks.
fn unmarked(condition: Expr) -> Expr {
    let unmark = |expr: Expr| {
        Ok(match expr {
            Expr::ScalarFunction(mut call) if Mark::Operand.is_of(&call.func) => match call.args.pop() {
                Some(operand) => Transformed::yes(operand),
                None => Transformed::no(Expr::ScalarFunction(call)),
            },
            other => Transformed::no(other),
        })
    };
    // It cannot fail: the closure does not.
    condition.clone().transform_up(unmark).data().unwrap_or(condition)
}

/// Arguments of a marking function.
fn marked(expr: &Arc<dyn PhysicalExpr>, mark: Mark) -> Option<&[Arc<dyn PhysicalExpr>]> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    mark.is_of(call.fun()).then(|| call.args())
}

/// Expression whose marked operands are computed once; `finish` is done to their conditions.
pub(crate) fn bound(
    expr: Arc<dyn PhysicalExpr>,
    finish: impl Fn(Arc<dyn PhysicalExpr>) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>>,
) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>> {
    expr.transform_up(|node| {
        let Some([condition]) = marked(&node, Mark::Condition) else { return Ok(Transformed::no(node)) };
        let mut operands = Operands::default();
        let body = Arc::clone(condition).transform_down(|part| operands.replaced(part)).data()?;
        if operands.places.iter().all(Option::is_none) {
            return Ok(Transformed::yes(Arc::clone(condition)));
        }
        let body = finish(body)?.data;
        Ok(Transformed::yes(Arc::new(BoundExpr { operands: operands.exprs, body }) as Arc<dyn PhysicalExpr>))
    })
}

/// Operands of a condition, and the columns that it reads besides.
#[derive(Default)]
struct Operands {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// Places of those that are marked.
    places: Vec<Option<ScalarValue>>,
}

impl Operands {
    /// Column in the place of an operand.
    fn replaced(&mut self, part: Arc<dyn PhysicalExpr>) -> DFResult<Transformed<Arc<dyn PhysicalExpr>>> {
        let at = match marked(&part, Mark::Operand) {
            Some([place, operand]) => {
                let place = place.downcast_ref::<Literal>().map(|place| place.value().clone());
                let known = self.places.iter().position(|known| known.is_some() && *known == place);
                known.unwrap_or_else(|| self.add(operand, place))
            }
            _ if part.is::<Column>() => {
                let known = self.exprs.iter().zip(&self.places);
                let known = known.into_iter().position(|(expr, place)| place.is_none() && expr.eq(&part));
                known.unwrap_or_else(|| self.add(&part, None))
            }
            _ => return Ok(Transformed::no(part)),
        };
        let column = Arc::new(Column::new(&format!("operand {at}"), at)) as Arc<dyn PhysicalExpr>;
        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
    }

    fn add(&mut self, expr: &Arc<dyn PhysicalExpr>, place: Option<ScalarValue>) -> usize {
        self.exprs.push(Arc::clone(expr));
        self.places.push(place);
        self.exprs.len() - 1
    }
}

/// Condition on the values of operands, each of which is computed once for a row.
#[derive(Debug)]
pub(crate) struct BoundExpr {
    operands: Vec<Arc<dyn PhysicalExpr>>,
    /// Condition over the operands as columns, by their places; no other columns are in it.
    body: Arc<dyn PhysicalExpr>,
}

impl PartialEq for BoundExpr {
    fn eq(&self, other: &BoundExpr) -> bool {
        self.operands == other.operands && self.body.eq(&other.body)
    }
}

impl Eq for BoundExpr {}

impl Hash for BoundExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operands.hash(state);
        self.body.hash(state);
    }
}

impl fmt::Display for BoundExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.body)?;
        for (at, operand) in self.operands.iter().enumerate() {
            let word = if at == 0 { " with" } else { "," };
            write!(f, "{word} operand {at} = {operand}")?;
        }
        Ok(())
    }
}

impl PhysicalExpr for BoundExpr {
    fn return_field(&self, schema: &Schema) -> DFResult<FieldRef> {
        let fields = self.operands.iter().map(|operand| operand.return_field(schema));
        self.body.return_field(&Schema::new(fields.collect::<DFResult<Vec<FieldRef>>>()?))
    }

    fn evaluate(&self, batch: &RecordBatch) -> DFResult<ColumnarValue> {
        let rows = batch.num_rows();
        let values = self.operands.iter().map(|operand| operand.evaluate(batch)?.into_array(rows));
        let values: Vec<ArrayRef> = values.collect::<DFResult<_>>()?;
        let field = |(at, values): (usize, &ArrayRef)| {
            Field::new(format!("operand {at}"), values.data_type().clone(), true)
        };
        let schema = Schema::new(values.iter().enumerate().map(field).collect::<Vec<Field>>());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        self.body.evaluate(&RecordBatch::try_new_with_options(Arc::new(schema), values, &options)?)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.operands.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        operands: Vec<Arc<dyn PhysicalExpr>>,
    ) -> DFResult<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(BoundExpr { operands, body: Arc::clone(&self.body) }))
    }

    fn is_volatile_node(&self) -> bool {
        true
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
