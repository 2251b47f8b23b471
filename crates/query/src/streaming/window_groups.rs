//! Groups of an aggregate of windows, of which some may be NULL.
//!
//! ```text
//!   GROUP BY city, window_start   ─▶  city, or '' where it is NULL │ nulls: a bit for each group │ window_start   ─▶  city or NULL
//! ```
//! Groups are in the key of the state, which has no NULL. So a NULL is the default value of its type there, and the column `nulls`
//! behind the groups says by its bits which of them are NULL: NULL is a group of its own. Groups that cannot be NULL cost nothing.

use crate::error::Result;
use crate::planner::row_expressions::Columns;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::operators::{Translator, storage};
use crate::streaming::windows::{free_name, name_of, unaliased};
use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, ExprSchemable, lit};
use entresol_streams::{ColumnExpression, Expression};
use entresol_tables::{Column, DataType};
use std::ops::Add;

/// Column that says which groups are NULL.
const NULLS: &str = "nulls";

/// Groups of an aggregate as columns of its state.
pub(crate) struct WindowGroups {
    /// Names of the columns, of which the last one is that of NULLs if groups may be NULL.
    pub(crate) names: Vec<String>,
    /// Places of the groups that may be NULL, by their bits.
    nullable: Vec<usize>,
}

impl WindowGroups {
    /// Adds the groups of GROUP BY to the columns that are read. In a state of an earlier release groups are not NULL.
    pub(crate) fn read(
        translator: &Translator<'_>,
        by: &[&Expr],
        columns: &Columns<'_>,
        state_table: &str,
        read: &mut Vec<ComputedColumn>,
    ) -> Result<WindowGroups> {
        let state = &translator.planned.state;
        let mut nullable = Vec::new();
        for (at, expr) in by.iter().enumerate() {
            if expr.nullable(columns.planned)? {
                nullable.push(at);
            }
        }
        let known = translator.catalog.table(state_table);
        if known.is_ok_and(|table| !table.schema().visible_columns().iter().any(says_nulls)) {
            nullable.clear();
        }
        let mut names: Vec<String> = Vec::new();
        for (at, expr) in by.iter().enumerate() {
            let name = free_name(&name_of(expr, "group"), read);
            let column = translator.typed_column(&name, expr, columns.planned)?;
            let result = storage(std::slice::from_ref(&column)).swap_remove(0);
            let not_null = nullable.contains(&at).then(|| or_default(expr, columns)).transpose()?;
            let expr = not_null.as_ref().unwrap_or(expr);
            read.push((column, Box::new(columns.expression(state, expr, &result)?)));
            names.push(name);
        }
        let bits = nullable.iter().enumerate().map(|(bit, at)| {
            let is_null = Box::new(unaliased(by[*at]).clone().is_null());
            Expr::Case(Case::new(
                None,
                vec![(is_null, Box::new(lit(1_i64 << bit)))],
                Some(Box::new(lit(0_i64))),
            ))
        });
        if let Some(bits) = bits.reduce(Add::add) {
            let column = Column::new(free_name(NULLS, read), DataType::BigInt);
            let result = storage(std::slice::from_ref(&column)).swap_remove(0);
            names.push(column.name.clone());
            read.push((column, Box::new(columns.expression(state, &bits, &result)?)));
        }
        Ok(WindowGroups { names, nullable })
    }

    /// Tells whether a group may be NULL.
    pub(crate) fn may_be_null(&self, group: usize) -> bool {
        self.nullable.contains(&group)
    }

    /// Expression of a group over the columns of the state's results, which begin with these.
    pub(crate) fn expression(&self, group: usize) -> Box<dyn Expression> {
        let Some(bit) = self.nullable.iter().position(|at| *at == group) else {
            return Box::new(ColumnExpression(group));
        };
        let nulls = self.names.len() - 1;
        Box::new(move |rows: &RecordBatch| {
            let nulls = rows.column(nulls).as_primitive::<Int64Type>();
            let is_null: BooleanArray =
                nulls.values().iter().map(|nulls| Some(nulls >> bit & 1 == 1)).collect();
            nullif(rows.column(group), &is_null).map_err(|error| error.to_string())
        })
    }
}

/// Tells whether a column of a state is named as the one that says which groups are NULL, or that with a number.
fn says_nulls(column: &Column) -> bool {
    column.name.strip_prefix(NULLS).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Expression of a group, with the default value of its type for NULL.
fn or_default(expr: &Expr, columns: &Columns<'_>) -> Result<Expr> {
    let expr = unaliased(expr);
    let default = lit(ScalarValue::new_default(&expr.get_type(columns.planned)?)?);
    let when = vec![(Box::new(expr.clone().is_null()), Box::new(default))];
    Ok(Expr::Case(Case::new(None, when, Some(Box::new(expr.clone())))))
}
