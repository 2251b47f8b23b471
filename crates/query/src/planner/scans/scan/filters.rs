//! Filters of a scan: conditions that are evaluated on the columns that they read, before the other columns of the rows
//! are decoded.
//!
//! - Filters are evaluated one after another, each on the rows that those before let pass: on the same rows as the node
//!   over the scan that it was taken from. So it fails for the same rows.
//! - NULL does not let a row pass.

use crate::planner::fresh_filters::FreshFilters;
use crate::postgres::plan_expressions::Change;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::fmt_sql;
use std::fmt;
use std::sync::Arc;

/// Condition on columns of a table.
#[derive(Debug, Clone)]
pub(super) struct ScanFilter {
    /// Condition on rows of the columns, in their order.
    condition: Arc<dyn PhysicalExpr>,
    /// Positions of the table's columns.
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl ScanFilter {
    /// Filter by a condition on rows that have the columns `projection` of a table, and this schema.
    pub(super) fn new(
        condition: &Arc<dyn PhysicalExpr>,
        projection: &[usize],
        schema: &Schema,
    ) -> DFResult<ScanFilter> {
        let mut read: Vec<usize> = collect_columns(condition).iter().map(Column::index).collect();
        read.sort_unstable();
        read.dedup();
        let condition = Arc::clone(condition).transform_up(|node| {
            let column = node.downcast_ref::<Column>();
            let at = column.and_then(|column| read.iter().position(|read| *read == column.index()));
            Ok(match (column, at) {
                (Some(column), Some(at)) => Transformed::yes(Arc::new(Column::new(column.name(), at)) as _),
                _ => Transformed::no(node),
            })
        });
        Ok(ScanFilter {
            condition: condition.data()?,
            columns: read.iter().map(|at| projection[*at]).collect(),
            schema: Arc::new(schema.project(&read)?),
        })
    }

    /// The same filter, with a changed condition.
    pub(super) fn changed(&self, change: Change<'_>) -> DFResult<Transformed<ScanFilter>> {
        let condition = change(Arc::clone(&self.condition), &self.schema)?;
        condition.map_data(|condition| Ok(ScanFilter { condition, ..self.clone() }))
    }

    /// The dynamic filter of a copy of the plan; `None` if the copy has none.
    pub(super) fn renewed(&self, fresh: &FreshFilters) -> DFResult<Option<ScanFilter>> {
        let held = fresh.held(&self.condition)?;
        Ok(held.map(|condition| ScanFilter { condition, ..self.clone() }))
    }

    /// Condition on rows of the columns.
    pub(super) fn condition(&self) -> &Arc<dyn PhysicalExpr> {
        &self.condition
    }

    /// Positions of the table's columns that it reads, in the order in which it expects them.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Arrow type of a column that it reads.
    pub(super) fn data_type(&self, at: usize) -> &DataType {
        self.schema.field(at).data_type()
    }

    /// The filter as it is now, of a dynamic one.
    pub(super) fn current(&self) -> DFResult<ScanFilter> {
        let condition = match self.condition.downcast_ref::<DynamicFilterPhysicalExpr>() {
            Some(dynamic) => dynamic.current()?,
            None => Arc::clone(&self.condition),
        };
        Ok(ScanFilter { condition, ..self.clone() })
    }

    /// Returns whether rows pass, if that is the same for all.
    pub(super) fn constant(&self) -> Option<bool> {
        match self.condition.downcast_ref::<Literal>()?.value() {
            ScalarValue::Boolean(passes) => Some(*passes == Some(true)),
            _ => None,
        }
    }

    /// Evaluates the condition on arrays of its columns: the rows that pass.
    pub(super) fn passing(&self, arrays: Vec<ArrayRef>, rows: usize) -> DFResult<BooleanBuffer> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?;
        let value = self.condition.evaluate(&batch)?.into_array(rows)?;
        let passes = as_boolean_array(&value)?;
        Ok(match passes.nulls() {
            Some(valid) => passes.values() & valid.inner(),
            None => passes.values().clone(),
        })
    }
}

/// Formats the condition as SQL has it.
impl fmt::Display for ScanFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", fmt_sql(self.condition.as_ref()))
    }
}
