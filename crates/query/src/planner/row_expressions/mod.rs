//! Expressions and aggregates of DataFusion as those of streams: over batches of the rows of a step, and over the rows of a
//! match of a pattern.

pub(crate) mod aggregates;
pub(crate) mod lists;

use crate::error::{Error, Result};
use crate::planner::row_expressions::lists::{is_list, list_of};
use crate::postgres::overflow::checked;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Cast, Expr};
use datafusion::physical_expr::PhysicalExpr;
use entresol_streams::{Expression, Reason};
use std::sync::Arc;

/// Expression over the columns of a stream, with results of one type.
#[derive(Debug, Clone)]
pub(crate) struct PhysicalExpression {
    expr: Arc<dyn PhysicalExpr>,
    result: ArrowType,
}

impl Expression for PhysicalExpression {
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason> {
        let array = self.expr.evaluate(rows).and_then(|value| value.into_array(rows.num_rows()));
        let array = array.map_err(Error::from)?;
        if *array.data_type() == self.result {
            return Ok(array);
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        Ok(cast_with_options(&array, &self.result, &options).map_err(Error::from)?)
    }
}

/// Columns that the expressions of a plan's node read: named and typed as in the plan, and as they are in the
/// batches.
pub(crate) struct Columns<'p> {
    pub(crate) planned: &'p DFSchema,
    /// Types of the arrays.
    pub(crate) stored: &'p [ArrowType],
}

impl Columns<'_> {
    /// Expression with results of a type; none is that of the plan.
    pub(crate) fn expression(
        &self,
        state: &SessionState,
        expr: &Expr,
        result: &ArrowType,
    ) -> Result<PhysicalExpression> {
        let fields = self.planned.iter().zip(self.stored).map(|((qualifier, field), stored)| {
            let field = field.as_ref().clone().with_data_type(stored.clone());
            (qualifier.cloned(), Arc::new(field))
        });
        let fields: Vec<(Option<TableReference>, _)> = fields.collect();
        let schema = DFSchema::new_with_metadata(fields, Default::default())?;
        let expr = expr.clone().transform_up(|expr| self.as_planned(expr))?.data;
        let physical = state.create_physical_expr(expr, &schema)?;
        let physical = checked(physical, schema.as_arrow())?.data;
        Ok(PhysicalExpression { expr: physical, result: result.clone() })
    }

    /// Casts a column that is stored as another type than it is planned.
    fn as_planned(&self, expr: Expr) -> datafusion::common::Result<Transformed<Expr>> {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        let index = self.planned.index_of_column(column)?;
        let planned = self.planned.field(index).data_type();
        if *planned == self.stored[index] {
            return Ok(Transformed::no(expr));
        }
        let planned = planned.clone();
        if is_list(&planned) {
            return Ok(Transformed::yes(list_of(expr, planned)));
        }
        Ok(Transformed::yes(Expr::Cast(Cast::new(Box::new(expr), planned))))
    }
}
