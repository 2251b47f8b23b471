//! Subqueries that are values: NULL where they have no row, also where the column of their rows is never NULL.
//!
//! DataFusion takes the type of such a subquery from its column, and refuses the NULL of `(SELECT 1 WHERE false)`. Its
//! column becomes one that may be NULL here, by a function that returns its argument.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Column, Result as DFResult, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Subquery, Volatility,
};
use std::sync::Arc;

/// Subquery whose single column may be NULL. One that uses columns of a query around is left to the rules for such, which
/// know; an aggregate without groups has a row.
pub(crate) fn value(mut subquery: Subquery) -> DFResult<Subquery> {
    let schema = Arc::clone(subquery.subquery.schema());
    let is_known = !subquery.outer_ref_columns.is_empty() || has_row(&subquery.subquery);
    if is_known || schema.fields().len() != 1 || schema.field(0).is_nullable() {
        return Ok(subquery);
    }
    let (relation, field) = schema.qualified_field(0);
    let column = Expr::Column(Column::new(relation.cloned(), field.name()));
    let function = ScalarUDF::from(Optional { signature: Signature::any(1, Volatility::Immutable) });
    let value = function.call(vec![column]).alias_qualified(relation.cloned(), field.name());
    let optional = Projection::try_new(vec![value], subquery.subquery)?;
    subquery.subquery = Arc::new(LogicalPlan::Projection(optional));
    Ok(subquery)
}

/// Tells whether a plan has a row in any case.
fn has_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        LogicalPlan::Values(_) => true,
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Optional {
    signature: Signature,
}

impl ScalarUDFImpl for Optional {
    fn name(&self) -> &str {
        "optional"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DFResult<DataType> {
        internal_err!("the type of {} is that of its argument", self.name())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> DFResult<FieldRef> {
        match arguments.arg_fields {
            [only] => Ok(Arc::new(only.as_ref().clone().with_nullable(true))),
            _ => internal_err!("{} has one argument", self.name()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        match arguments.args.into_iter().next() {
            Some(value) => Ok(value),
            None => exec_err!("{} has one argument", self.name()),
        }
    }
}
