//! Filters with known values of their parameters, for the choice of an access: computed as far as constants go, as
//! DataFusion computes those of a statement that has the values as literals.

use crate::planner::parameters::index_of;
use crate::postgres::overflow::with_checked_constants;
use crate::session::run_values::ParameterFunction;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result as DFResult, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use std::sync::Arc;

/// Columns that filters are over.
#[derive(Debug, Clone)]
pub(crate) struct FilterColumns(Arc<DFSchema>);

impl FilterColumns {
    pub(crate) fn new(schema: &SchemaRef) -> DFResult<FilterColumns> {
        Ok(FilterColumns(Arc::new(DFSchema::try_from(Arc::clone(schema))?)))
    }

    /// Filter with the values of its parameters, which are placeholders, or the functions of a generic plan.
    pub(crate) fn with_values(&self, filter: &Expr, values: &[ScalarValue]) -> DFResult<Expr> {
        let known = substituted(filter, values)?;
        if is_plain(&known)? { Ok(known) } else { self.computed(known) }
    }

    /// Filter with constants computed; as it is where they cannot be, so that their error is one of the rows.
    fn computed(&self, filter: Expr) -> DFResult<Expr> {
        let unqualified = filter.transform_up(|expr| {
            Ok(match expr {
                Expr::Column(column) => Transformed::yes(Expr::Column(Column::new_unqualified(column.name))),
                other => Transformed::no(other),
            })
        });
        let filter = with_checked_constants(unqualified.data()?, &self.0)?;
        let context = SimplifyContext::builder().with_schema(Arc::clone(&self.0)).build();
        Ok(ExprSimplifier::new(context).simplify(filter.clone()).unwrap_or(filter))
    }
}

fn substituted(filter: &Expr, values: &[ScalarValue]) -> DFResult<Expr> {
    let known = |index: usize| values.get(index).map(|value| Expr::Literal(value.clone(), None));
    let replaced = filter.clone().transform_up(|expr| {
        let value = match &expr {
            Expr::Placeholder(Placeholder { id, .. }) => index_of(id).ok().and_then(known),
            Expr::ScalarFunction(function) => {
                let parameter = function.func.inner().downcast_ref::<ParameterFunction>();
                parameter.and_then(|parameter| known(parameter.index()))
            }
            _ => None,
        };
        Ok(value.map_or(Transformed::no(expr), Transformed::yes))
    });
    replaced.data()
}

/// Returns true for comparisons of columns with literals, and what joins them: there is nothing to compute.
fn is_plain(filter: &Expr) -> DFResult<bool> {
    let computes = filter.exists(|expr| {
        Ok(match expr {
            Expr::BinaryExpr(binary) => {
                !binary.op.is_logic_operator()
                    && !matches!(
                        binary.op,
                        Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                    )
            }
            Expr::Column(_) | Expr::Literal(..) | Expr::Not(_) | Expr::Between(_) | Expr::InList(_) => false,
            _ => true,
        })
    })?;
    Ok(!computes)
}
