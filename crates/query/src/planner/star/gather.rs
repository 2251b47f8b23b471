//! Joined rows: columns of the fact at the selected rows beside columns of dimensions at the rows that they
//! join with.

use crate::planner::star::dimension::Dimension;
use crate::planner::star::tree::{column, columns_of, replaced};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::{Result as DFResult, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use std::sync::Arc;

/// Origin of a wide column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Fact(usize),
    Dimension { dimension: usize, column: usize },
}

/// Source of a column of joined rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Column of the fact.
    Fact(usize),
    /// Column of a dimension, by its position in the columns that joined rows have of it.
    Dimension { dimension: usize, at: usize },
}

/// Columns of joined rows.
#[derive(Debug)]
pub(super) struct JoinedColumns {
    schema: SchemaRef,
    sources: Vec<Source>,
    /// Wide column that each of them is.
    wide: Vec<usize>,
}

/// One chunk of joined rows.
pub(super) struct JoinedRows<'a> {
    /// Batch of the fact.
    pub(super) batch: &'a RecordBatch,
    /// Rows of the batch, one for each joined row.
    pub(super) selection: &'a [u32],
    /// Rows of each dimension, one for each joined row; empty for one of which no rows are asked for.
    pub(super) rows: &'a [Vec<u32>],
}

impl JoinedColumns {
    /// Columns that expressions of wide columns need; `columns` are those of each dimension that joined rows
    /// have, to which those that are missing are added.
    pub(super) fn new<'a>(
        exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>,
        fields: &[FieldRef],
        origins: &[Origin],
        columns: &mut [Vec<usize>],
    ) -> JoinedColumns {
        let mut wide: Vec<usize> = exprs.flat_map(columns_of).collect();
        wide.sort_unstable();
        wide.dedup();
        let sources = wide.iter().map(|&column| match origins[column] {
            Origin::Fact(column) => Source::Fact(column),
            Origin::Dimension { dimension, column } => {
                let known = &mut columns[dimension];
                let at = known.iter().position(|known| *known == column).unwrap_or_else(|| {
                    known.push(column);
                    known.len() - 1
                });
                Source::Dimension { dimension, at }
            }
        });
        let sources = sources.collect();
        let schema =
            Arc::new(Schema::new(wide.iter().map(|&at| Arc::clone(&fields[at])).collect::<Vec<_>>()));
        JoinedColumns { schema, sources, wide }
    }

    /// Expression of wide columns as one of these columns.
    pub(super) fn expr(&self, expr: &Arc<dyn PhysicalExpr>) -> DFResult<Arc<dyn PhysicalExpr>> {
        replaced(expr, |of| Some(column(of.name(), self.wide.iter().position(|wide| *wide == of.index())?)))
    }

    /// Returns true if joined rows have this column of a dimension.
    pub(super) fn has(&self, dimension: usize, at: usize) -> bool {
        self.sources.contains(&Source::Dimension { dimension, at })
    }

    /// Returns true if joined rows have columns of a dimension.
    pub(super) fn has_any(&self, of: usize) -> bool {
        self.sources
            .iter()
            .any(|source| matches!(source, Source::Dimension { dimension, .. } if *dimension == of))
    }

    /// Column of the fact that one of these columns is.
    pub(super) fn column_of_fact(&self, at: usize) -> Option<usize> {
        match self.sources.get(at)? {
            Source::Fact(column) => Some(*column),
            Source::Dimension { .. } => None,
        }
    }

    /// Joined rows as a batch.
    pub(super) fn gather(&self, dimensions: &[Dimension], joined: &JoinedRows<'_>) -> DFResult<RecordBatch> {
        let JoinedRows { batch, selection, rows } = joined;
        // Each row of the fact once: a selection without gaps is the batch itself.
        let is_whole = selection.len() == batch.num_rows()
            && selection.iter().enumerate().all(|(at, selected)| at == *selected as usize);
        let mut selected: Option<UInt32Array> = None;
        let mut found: Vec<Option<UInt32Array>> = vec![None; dimensions.len()];
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            columns.push(match *source {
                Source::Fact(column) if is_whole => Arc::clone(batch.column(column)),
                Source::Fact(column) => {
                    let selected = selected.get_or_insert_with(|| UInt32Array::from(selection.to_vec()));
                    take(batch.column(column), selected, None)?
                }
                Source::Dimension { dimension, at } => {
                    if rows[dimension].len() != selection.len() {
                        return internal_err!("a star join has no rows of dimension {dimension}");
                    }
                    let found =
                        found[dimension].get_or_insert_with(|| UInt32Array::from(rows[dimension].clone()));
                    take(&dimensions[dimension].columns[at], found, None)?
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(selection.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
