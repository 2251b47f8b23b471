//! Expressions of DataFusion over rows of matches.

use crate::error::{Error, Result};
use crate::postgres::types::column_type;
use crate::streaming::aggregates::{SharedFunction, datafusion_function};
use crate::streaming::expressions::{Columns, PhysicalExpression};
use crate::streaming::operators::storage;
use crate::streaming::pattern::planning::{PlannedExpression, PlannedRead};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::AggregateFunction as AggregateCall;
use datafusion::logical_expr::{Expr, ExprSchemable};
use entresol_streams::{
    AggregateFunction, Expression, MatchExpression, NavigatedRows, PatternExpression, Reason,
};
use entresol_tables::{Column, arrow_type};
use std::collections::HashMap;
use std::sync::Arc;

/// Expression over what is read of matches.
struct DataFusionExpression {
    reads: Vec<DataFusionRead>,
    /// Columns of the reads.
    schema: SchemaRef,
    expression: PhysicalExpression,
}

/// Value read of the rows of a match.
struct DataFusionRead {
    aggregate: Option<DataFusionAggregate>,
    /// Value of a row, or of the result of the aggregate.
    value: PhysicalExpression,
}

struct DataFusionAggregate {
    function: SharedFunction,
    arguments: Vec<PhysicalExpression>,
    result: ArrowType,
}

/// Expression of a pattern whose rows have these columns of the stream, of these types.
pub(crate) fn pattern_expression(
    state: &SessionState,
    planned: &PlannedExpression,
    rows: (&[usize], &[ArrowType]),
    result: &ArrowType,
) -> Result<PatternExpression> {
    let columns: Vec<Column> = planned.reads.iter().map(|read| read.column.clone()).collect();
    let types = storage(&columns);
    let reads = planned.reads.iter().map(|read| DataFusionRead::new(state, read, rows));
    let fields = types.iter().enumerate().map(|(at, of)| Field::new(format!("{at}"), of.clone(), true));
    let read = Columns { planned: &planned.planned, stored: &types };
    let expression = DataFusionExpression {
        reads: reads.collect::<Result<_>>()?,
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        expression: read.expression(state, &planned.expr, result)?,
    };
    let navigations = planned.reads.iter().map(|read| read.navigation).collect();
    Ok(PatternExpression { navigations, expression: Box::new(expression) })
}

impl DataFusionRead {
    fn new(
        state: &SessionState,
        read: &PlannedRead,
        (columns, stored): (&[usize], &[ArrowType]),
    ) -> Result<DataFusionRead> {
        let result = arrow_type(read.column.data_type, "UTC");
        let fields = columns.iter().map(|&column| {
            let (qualifier, field) = read.rows.qualified_field(column);
            (qualifier.cloned(), Arc::clone(field))
        });
        let planned = DFSchema::new_with_metadata(fields.collect(), HashMap::new())?;
        let rows = Columns { planned: &planned, stored };
        let Some(aggregate) = &read.aggregate else {
            return Ok(DataFusionRead {
                aggregate: None,
                value: rows.expression(state, &read.expr, &result)?,
            });
        };
        let aggregate = DataFusionAggregate::new(state, aggregate, &rows)?;
        let of_result = [aggregate.result.clone()];
        let columns = Columns { planned: &read.planned, stored: &of_result };
        let value = columns.expression(state, &read.expr, &result)?;
        Ok(DataFusionRead { aggregate: Some(aggregate), value })
    }

    fn evaluate(&mut self, navigated: &NavigatedRows) -> Result<ArrayRef, Reason> {
        let Some(aggregate) = &mut self.aggregate else { return self.value.evaluate(&navigated.rows) };
        let result = aggregate.evaluate(navigated)?;
        let field = Field::new("result", result.data_type().clone(), true);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![result]);
        self.value.evaluate(&batch.map_err(Error::from)?)
    }
}

impl DataFusionAggregate {
    fn new(state: &SessionState, expr: &Expr, rows: &Columns<'_>) -> Result<DataFusionAggregate> {
        let found = expr.get_type(rows.planned)?;
        let data_type = column_type(&found)
            .ok_or_else(|| Error::unsupported(format!("{expr} of type {found} in a stream")))?;
        let mut inner = expr;
        while let Expr::Alias(alias) = inner {
            inner = &alias.expr;
        }
        let Expr::AggregateFunction(AggregateCall { func, params }) = inner else {
            return Err(Error::unsupported(format!("{expr} in MATCH_RECOGNIZE of a step")));
        };
        let (function, arguments) = datafusion_function(func, params, rows, &found)?;
        let arguments = arguments.iter().map(|argument| {
            let wanted = argument.get_type(rows.planned)?;
            rows.expression(state, argument, &wanted)
        });
        Ok(DataFusionAggregate {
            arguments: arguments.collect::<Result<_>>()?,
            function: SharedFunction(Arc::new(function)),
            result: arrow_type(data_type, "UTC"),
        })
    }

    /// Results of each match.
    fn evaluate(&mut self, navigated: &NavigatedRows) -> Result<ArrayRef, Reason> {
        let arguments = self.arguments.iter_mut().map(|argument| argument.evaluate(&navigated.rows));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let (mut results, mut begin) = (Vec::with_capacity(navigated.ends.len()), 0);
        for &end in &navigated.ends {
            let columns: Vec<ArrayRef> =
                arguments.iter().map(|argument| argument.slice(begin, end - begin)).collect();
            let mut group = self.function.group()?;
            group.add(&columns)?;
            results.push(group.result()?);
            begin = end;
        }
        if results.is_empty() {
            return Ok(new_empty_array(&self.result));
        }
        let results: Vec<_> = results.iter().map(|result| result.as_ref()).collect();
        Ok(concat(&results).map_err(Error::from)?)
    }
}

impl MatchExpression for DataFusionExpression {
    fn evaluate(&mut self, matches: usize, navigated: &[NavigatedRows]) -> Result<ArrayRef, Reason> {
        let reads = self.reads.iter_mut().zip(navigated).map(|(read, rows)| read.evaluate(rows));
        let columns = reads.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(matches));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        self.expression.evaluate(&batch.map_err(Error::from)?)
    }
}
