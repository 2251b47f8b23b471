//! Rewriting of `x IS TRUE` and its siblings into the equivalent `x IS NOT DISTINCT FROM TRUE`.
//!
//! DataFusion computes them so, but reports the one as never NULL, the other as nullable: with the two
//! answers, plans that group by such a value are refused.
//!
//! `x IN (a, CASE …)` becomes `x IN (a) OR x = CASE …`: DataFusion takes what has one value for no rows at all, as a CASE
//! has, for a constant.
//!
//! `x = x` of a row around a subquery becomes `x IS NOT NULL`: where DataFusion joins the subquery it leaves
//! such a condition out.

use crate::postgres::rewriting::rewritten;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DFResult};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct TruthTests;

impl AnalyzerRule for TruthTests {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        rewritten(plan, compared)
    }

    fn name(&self) -> &str {
        "truth_tests"
    }
}

fn compared(expr: Expr, _schema: &DFSchema) -> Transformed<Expr> {
    let (tested, op, value) = match expr {
        Expr::IsTrue(tested) => (tested, Operator::IsNotDistinctFrom, true),
        Expr::IsFalse(tested) => (tested, Operator::IsNotDistinctFrom, false),
        Expr::IsNotTrue(tested) => (tested, Operator::IsDistinctFrom, true),
        Expr::IsNotFalse(tested) => (tested, Operator::IsDistinctFrom, false),
        Expr::IsUnknown(tested) => return Transformed::yes(Expr::IsNull(tested)),
        Expr::IsNotUnknown(tested) => return Transformed::yes(Expr::IsNotNull(tested)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
            if left == right && left.contains_outer() && !left.is_volatile() =>
        {
            return Transformed::yes(Expr::IsNotNull(left));
        }
        Expr::InList(InList { expr, list, negated: false })
            if matches!(list.as_slice(), [only] if *only == *expr)
                && expr.contains_outer()
                && !expr.is_volatile() =>
        {
            return Transformed::yes(Expr::IsNotNull(expr));
        }
        Expr::InList(list) if list.list.iter().any(is_computed) && !list.expr.is_volatile() => {
            return Transformed::yes(disjunction(list));
        }
        other => return Transformed::no(other),
    };
    Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: tested, op, right: Box::new(lit(value)) }))
}

/// Returns true for an element of a list that DataFusion may take for a constant, and is none.
fn is_computed(element: &Expr) -> bool {
    match element {
        Expr::Literal(..) | Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Placeholder(_) => false,
        Expr::Cast(cast) => is_computed(&cast.expr),
        _ => true,
    }
}

/// Comparisons of a value with the computed elements of a list, beside the list of the others.
fn disjunction(list: InList) -> Expr {
    let InList { expr, list, negated } = list;
    let (computed, plain): (Vec<Expr>, Vec<Expr>) = list.into_iter().partition(is_computed);
    let rest = (!plain.is_empty()).then(|| (*expr).clone().in_list(plain, false));
    let compared = computed.into_iter().map(|element| (*expr).clone().eq(element));
    let any = rest.into_iter().chain(compared).reduce(Expr::or).unwrap_or_else(|| lit(false));
    if negated { !any } else { any }
}
