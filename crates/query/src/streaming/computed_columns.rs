//! Columns of a source that are computed from the others of a record: `name type AS expr`.
//!
//! - An expression reads the columns that are read, those behind INCLUDE among them, and no other computed one. It is the same for the
//!   same record, whenever it is read: functions of the time, of the session, and volatile ones are refused.
//! - Values are assigned to the type of the column as INSERT assigns them, TIMESTAMPTZ in UTC. A record of which one cannot be
//!   computed is rejected ([`entresol_streams::MappedSource::computing`]).

use crate::dml::assignment;
use crate::dml::expressions::{ComputedExpression, Scope};
use crate::error::{Error, Result};
use crate::postgres::time_zones::{UTC, Zone};
use crate::streaming::expressions::check_in;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::Expr;
use entresol_streams::{Expression, MappedSource, Reason, Source, SourceColumn};
use entresol_tables::{Column, arrow_schema};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Computed columns of a source.
#[derive(Debug, Clone, Default)]
pub(crate) struct ComputedColumns {
    source: String,
    /// Columns and their values, by their places among all columns.
    columns: BTreeMap<usize, (Column, Arc<ComputedExpression>)>,
}

/// Values of a computed column.
struct ColumnValues {
    source: String,
    column: Column,
    value: Arc<ComputedExpression>,
}

impl Expression for ColumnValues {
    fn evaluate(&mut self, rows: &RecordBatch) -> Result<ArrayRef, Reason> {
        let values = self.value.evaluate(rows)?;
        let fitted = assignment::fitted_array(&self.source, &self.column, &values, &Zone::utc());
        Ok(fitted.map_err(|error| Error::coded("22000", misfit(&error, &self.source, &self.column)))?)
    }
}

/// Message of an error of an assignment, without the place.
fn misfit(error: &Error, source: &str, column: &Column) -> String {
    let (message, place) = (error.to_string(), format!("table {source}, column {}: ", column.name));
    message.strip_prefix(&place).unwrap_or(&message).to_owned()
}

impl ComputedColumns {
    /// Plans the columns of a source with these expressions over the columns that are read.
    pub(crate) fn plan(
        state: &SessionState,
        source: &str,
        read: &[Column],
        declared: impl Iterator<Item = (usize, Column, Expr)>,
    ) -> Result<ComputedColumns> {
        let mut columns = BTreeMap::new();
        let schema = arrow_schema(read, UTC);
        for (place, column, expression) in declared {
            let what = format!("computed column \"{}\"", column.name);
            let scope = Scope::new(state.clone(), &[(source, &schema)])?;
            let value = scope.plan_if(&what, &expression, |expr| check_in("a computed column", expr))?;
            assignment::check(source, &column, value.field.data_type()).map_err(|error| {
                let message = format!("{what} of source \"{source}\": {}", misfit(&error, source, &column));
                Error::coded("42804", message)
            })?;
            columns.insert(place, (column, Arc::new(value)));
        }
        Ok(ComputedColumns { source: source.to_owned(), columns })
    }

    /// Columns in their order: those that are read, and the computed ones in their places.
    pub(crate) fn among(&self, read: &[Column]) -> Vec<Column> {
        let mut read = read.iter();
        let place = |place: usize| match self.columns.get(&place) {
            Some((column, _)) => Some(column.clone()),
            None => read.next().cloned(),
        };
        (0..).map_while(place).collect()
    }

    /// Source with the computed columns among those that it reads, which are of lines of files if `has_lines`.
    pub(crate) fn source(&self, source: Box<dyn Source>, has_lines: bool) -> Box<dyn Source> {
        if self.columns.is_empty() {
            return source;
        }
        let (mut read, columns) = (0.., self.columns.len() + source.columns().len());
        let column = |place: usize| match self.columns.get(&place) {
            Some((column, value)) => {
                let (source, value) = (self.source.clone(), Arc::clone(value));
                let value = Box::new(ColumnValues { source, column: column.clone(), value });
                SourceColumn::Computed { column: column.clone(), value }
            }
            None => SourceColumn::Read(read.next().unwrap_or_default()),
        };
        let columns = (0..columns).map(column).collect();
        Box::new(MappedSource::computing(source, columns, has_lines))
    }
}
