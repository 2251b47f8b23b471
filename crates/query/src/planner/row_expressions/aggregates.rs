//! Aggregate functions of DataFusion as aggregates of streams: any of them, with DISTINCT, FILTER and, where the order
//! of rows counts by itself, ORDER BY.
//!
//! Results that are lists are columns of streams in an encoded form ([`super::lists`]).
//!
//! Each group has an accumulator of the function. Its state is stored in columns of the state table: a value of a type
//! that tables have as it is, another (lists, binary values) as base64 of Arrow's row format.

use crate::error::{Error, Result};
use crate::planner::row_expressions::Columns;
use crate::planner::row_expressions::lists::{decoded, encoded};
use crate::postgres::types::column_type;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use datafusion::arrow::compute::{CastOptions, SortOptions, cast_with_options, filter};
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::{AggregateFunctionParams, NullTreatment};
use datafusion::logical_expr::{Accumulator, AggregateUDF, Expr, ExprSchemable, lit};
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::{Column as PhysicalColumn, Literal};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use entresol_streams::{AggregateFunction, GroupState};
use entresol_tables::{Column, DataType, arrow_type};
use std::fmt;
use std::sync::Arc;

const UTC: &str = "UTC";
/// Functions whose result depends on an order of rows that each accumulator keeps by itself.
const ORDERED: [&str; 4] = ["array_agg", "first_value", "last_value", "string_agg"];

/// Value that a function reads.
enum Argument {
    Column(Expr),
    Literal(ScalarValue),
}

/// Aggregate function with its arguments.
pub(crate) struct DataFusionFunction {
    function: AggregateFunctionExpr,
    /// Types of the function's arguments, and its literals; others are columns.
    arguments: Vec<(ArrowType, Option<ScalarValue>)>,
    /// True if the last column says which rows count.
    is_filtered: bool,
    result: StateColumn,
    state: Vec<StateColumn>,
}

/// Column that stores a value of a state.
#[derive(Debug, Clone)]
struct StateColumn {
    column: Column,
    field: FieldRef,
    /// True if the column has the value in Arrow's row format.
    is_encoded: bool,
}

impl fmt::Debug for DataFusionFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.name())
    }
}

/// Function of DataFusion as it is called, with the expressions of the columns that it reads: its arguments, then the
/// condition of FILTER.
pub(crate) fn datafusion_function(
    function: &Arc<AggregateUDF>,
    called: &AggregateFunctionParams,
    columns: &Columns<'_>,
    result: &ArrowType,
) -> Result<(DataFusionFunction, Vec<Expr>)> {
    let name = function.name().to_owned();
    if !called.order_by.is_empty() && !ORDERED.contains(&name.as_str()) {
        return Err(Error::unsupported(format!("ORDER BY in {name} of a stream")));
    }
    let ordered = called.order_by.iter().map(|sort| &sort.expr);
    let read = called.args.iter().chain(ordered).map(|expr| match expr {
        Expr::Literal(value, _) => Argument::Literal(value.clone()),
        expr => Argument::Column(expr.clone()),
    });
    let (mut arguments, mut exprs, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    let mut physical: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    for (at, argument) in read.enumerate() {
        let (data_type, literal) = match argument {
            Argument::Literal(value) => (value.data_type(), Some(value)),
            Argument::Column(expr) => {
                let data_type = expr.get_type(columns.planned)?;
                exprs.push(expr);
                (data_type, None)
            }
        };
        let named = format!("argument_{at}");
        physical.push(match (&literal, place_of_order(called, at)) {
            (Some(value), _) => Arc::new(Literal::new(value.clone())),
            (None, Some(place)) => Arc::new(PhysicalColumn::new(&format!("argument_{place}"), place)),
            (None, None) => Arc::new(PhysicalColumn::new(&named, at)),
        });
        fields.push(Field::new(named, data_type.clone(), true));
        arguments.push((data_type, literal));
    }
    let sorted = physical.split_off(called.args.len());
    let options = called
        .order_by
        .iter()
        .map(|sort| SortOptions { descending: !sort.asc, nulls_first: sort.nulls_first });
    let order = sorted.into_iter().zip(options).map(|(expr, options)| PhysicalSortExpr { expr, options });
    let built = AggregateExprBuilder::new(Arc::clone(function), physical)
        .schema(Arc::new(Schema::new(fields)))
        .alias(&name)
        .order_by(order.collect())
        .with_distinct(called.distinct)
        .with_ignore_nulls(called.null_treatment == Some(NullTreatment::IgnoreNulls))
        .build()?;
    // Some functions find only here that they cannot be of a type.
    built.create_accumulator()?;
    let state = built.state_fields()?.into_iter().enumerate().map(|(at, field)| StateColumn::new(at, field));
    let state = state.collect();
    // Rows are counted by a column: without any, all of them count.
    let all = exprs.is_empty().then(|| lit(true));
    let condition = called.filter.as_ref().map(|filter| filter.as_ref().clone()).or(all);
    let is_filtered = condition.is_some();
    exprs.extend(condition);
    let result = StateColumn::new(0, Arc::new(Field::new(&name, result.clone(), true)));
    Ok((DataFusionFunction { function: built, arguments, is_filtered, result, state }, exprs))
}

/// Argument that an expression of ORDER BY is, by their places among all: DISTINCT asks for the same one.
fn place_of_order(called: &AggregateFunctionParams, at: usize) -> Option<usize> {
    let ordered = &called.order_by.get(at.checked_sub(called.args.len())?)?.expr;
    called.args.iter().position(|argument| argument == ordered)
}

impl StateColumn {
    fn new(at: usize, field: FieldRef) -> StateColumn {
        let known = column_type(field.data_type());
        let name = format!("state_{}", at + 1);
        StateColumn {
            column: Column::new(name, known.unwrap_or(DataType::Varchar)),
            is_encoded: known.is_none(),
            field,
        }
    }

    /// Stored form of a value.
    fn store(&self, value: &ScalarValue) -> Result<ArrayRef, DataFusionError> {
        let array = value.to_array()?;
        if !self.is_encoded {
            return cast(&array, &arrow_type(self.column.data_type, UTC));
        }
        Ok(Arc::new(StringArray::from(vec![encoded(&cast(&array, self.field.data_type())?)?])))
    }

    /// Value of a stored form.
    fn load(&self, stored: &ArrayRef) -> Result<ArrayRef, DataFusionError> {
        if !self.is_encoded {
            return cast(stored, self.field.data_type());
        }
        let texts = stored.as_string_opt::<i32>();
        let value = texts.filter(|texts| texts.is_valid(0)).map_or("", |texts| texts.value(0));
        let malformed = || DataFusionError::Execution(format!("{} is not a state", self.column.name));
        decoded(value, self.field.data_type())?.ok_or_else(malformed)
    }
}

fn cast(array: &ArrayRef, wanted: &ArrowType) -> Result<ArrayRef, DataFusionError> {
    if array.data_type() == wanted {
        return Ok(Arc::clone(array));
    }
    Ok(cast_with_options(array, wanted, &CastOptions { safe: false, ..CastOptions::default() })?)
}

fn reason(error: DataFusionError) -> String {
    Error::from(error).to_string()
}

impl DataFusionFunction {
    /// Tells whether its state is a list of the values so far, or of another type that no column has.
    pub(crate) fn holds_values(&self) -> bool {
        self.state.iter().any(|state| state.is_encoded)
    }

    /// Name of the function.
    pub(crate) fn name(&self) -> &str {
        self.function.name()
    }
}

/// The function as aggregates of streams share it.
#[derive(Debug, Clone)]
pub(crate) struct SharedFunction(pub(crate) Arc<DataFusionFunction>);

impl AggregateFunction for SharedFunction {
    fn result_type(&self) -> DataType {
        self.0.result.column.data_type
    }

    fn state_columns(&self) -> Vec<Column> {
        self.0.state.iter().map(|state| state.column.clone()).collect()
    }

    fn group(&self) -> Result<Box<dyn GroupState>, String> {
        let accumulator = self.0.function.create_accumulator().map_err(reason)?;
        Ok(Box::new(DataFusionGroup { function: self.clone(), accumulator }))
    }
}

/// Accumulator of a group.
#[derive(Debug)]
struct DataFusionGroup {
    function: SharedFunction,
    accumulator: Box<dyn Accumulator>,
}

impl DataFusionGroup {
    fn try_add(&mut self, columns: &[ArrayRef]) -> Result<(), DataFusionError> {
        let (mut columns, mut rows) = (columns.to_vec(), columns.first().map_or(0, Array::len));
        if self.function.0.is_filtered
            && let Some(condition) = columns.pop()
        {
            let condition: &BooleanArray = condition.as_boolean();
            for column in &mut columns {
                *column = filter(column, condition)?;
            }
            rows = condition.true_count();
        }
        if rows == 0 {
            return Ok(());
        }
        let mut columns = columns.into_iter();
        let mut values = Vec::with_capacity(self.function.0.arguments.len());
        for (data_type, literal) in &self.function.0.arguments {
            values.push(match (literal, literal.is_none().then(|| columns.next()).flatten()) {
                (Some(value), _) => value.to_array_of_size(rows)?,
                (None, Some(column)) => cast(&column, data_type)?,
                (None, None) => return Err(DataFusionError::Internal("an argument is missing".to_owned())),
            });
        }
        self.accumulator.update_batch(&values)
    }

    fn try_store(&mut self) -> Result<Vec<ArrayRef>, DataFusionError> {
        let state = self.accumulator.state()?;
        // Some accumulators give their state away.
        let values = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<ArrayRef>, _>>()?;
        self.accumulator = self.function.0.function.create_accumulator()?;
        self.accumulator.merge_batch(&values)?;
        state.iter().zip(&self.function.0.state).map(|(value, column)| column.store(value)).collect()
    }

    fn try_merge(&mut self, stored: &[ArrayRef]) -> Result<(), DataFusionError> {
        let values = stored.iter().zip(&self.function.0.state).map(|(stored, column)| column.load(stored));
        self.accumulator.merge_batch(&values.collect::<Result<Vec<ArrayRef>, _>>()?)
    }

    fn try_result(&mut self) -> Result<ArrayRef, DataFusionError> {
        self.function.0.result.store(&self.accumulator.evaluate()?)
    }
}

impl GroupState for DataFusionGroup {
    fn add(&mut self, columns: &[ArrayRef]) -> Result<(), String> {
        self.try_add(columns).map_err(reason)
    }

    fn store(&mut self) -> Result<Vec<ArrayRef>, String> {
        self.try_store().map_err(reason)
    }

    fn merge(&mut self, stored: &[ArrayRef]) -> Result<(), String> {
        self.try_merge(stored).map_err(reason)
    }

    fn result(&mut self) -> Result<ArrayRef, String> {
        self.try_result().map_err(reason)
    }

    fn bytes(&self) -> usize {
        self.accumulator.size() + size_of::<DataFusionGroup>()
    }
}
