//! Prepared statements: one statement, planned for its types, run with values for `$1`, `$2`, ….
//!
//! Values are put into the statement as literals, so that a key that is a parameter is still looked up directly.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType as ArrowType, SchemaRef, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, Expr, SetExpr, Statement, Value as Literal, VisitMut, visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::engine;
use crate::error::{Error, Result};
use crate::session::{Session, StatementResult};
use crate::statement::{Command, column_name, parse, single_table, table_name};
use crate::types::arrow_type;

/// A statement that can be run again and again with other values.
#[derive(Debug)]
pub struct Prepared {
    command: Command,
    parameters: Vec<ArrowType>,
    columns: Option<SchemaRef>,
}

impl Prepared {
    /// The types of `$1`, `$2`, …; values are of these types when it runs.
    pub fn parameters(&self) -> &[ArrowType] {
        &self.parameters
    }

    /// The columns that it returns; `None` if it returns no rows.
    pub fn columns(&self) -> Option<SchemaRef> {
        self.columns.clone()
    }
}

/// What a prepared statement gave.
pub enum Outcome {
    /// Rows, as they are computed.
    Rows(SendableRecordBatchStream),
    /// Rows were changed.
    Count {
        /// INSERT, UPDATE, DELETE or CREATE TABLE AS.
        verb: &'static str,
        /// How many.
        rows: u64,
    },
    /// Anything else was done.
    Done {
        /// What: CREATE TABLE, COMMIT and the like.
        verb: &'static str,
    },
    /// Rows were changed and these were asked for.
    Returned {
        /// INSERT, UPDATE or DELETE.
        verb: &'static str,
        /// How many.
        rows: u64,
        /// Columns of what is returned.
        schema: SchemaRef,
        /// What is returned.
        batches: Vec<RecordBatch>,
    },
}

impl Session {
    /// Prepares one statement. Types that are not given are those of the columns that parameters are compared with or
    /// assigned to, or text.
    pub async fn prepare(&mut self, sql: &str, parameter_types: &[Option<ArrowType>]) -> Result<Prepared> {
        let mut commands = parse(sql)?;
        let (Some(command), true) = (commands.pop(), commands.is_empty()) else {
            return Err(Error::Invalid("exactly one statement can be prepared".into()));
        };
        let mut types = parameter_types.to_vec();
        let columns = match &command {
            Command::Query(statement) => {
                let transaction = self.transaction_for_planning()?;
                let _bound = self.bind(&transaction);
                let frame = engine::plan_query(self, (**statement).clone()).await?;
                for (name, of) in frame.logical_plan().get_parameter_types()? {
                    infer(&mut types, &name, of)?;
                }
                Some(std::sync::Arc::clone(frame.schema().inner()))
            }
            Command::ShowDurability => {
                Some(std::sync::Arc::new(datafusion::arrow::datatypes::Schema::new(vec![
                    datafusion::arrow::datatypes::Field::new("durability", ArrowType::Utf8, false),
                ])))
            }
            command => {
                self.assigned_types(command, &mut types)?;
                None
            }
        };
        let parameters = types.into_iter().map(|of| of.unwrap_or(ArrowType::Utf8)).collect();
        Ok(Prepared { command, parameters, columns })
    }

    /// Runs a prepared statement.
    pub async fn run_prepared(&mut self, prepared: &Prepared, values: &[ScalarValue]) -> Result<Outcome> {
        let mut command = prepared.command.clone();
        substitute(&mut command, values)?;
        if let Command::Query(statement) = command {
            return Ok(Outcome::Rows(self.stream_statement(statement).await?));
        }
        Ok(match self.run(command).await? {
            StatementResult::Rows { schema, batches } => {
                Outcome::Rows(Box::pin(MemoryStream::try_new(batches, schema, None)?))
            }
            StatementResult::Count { verb, rows } => Outcome::Count { verb, rows },
            StatementResult::Done { verb } => Outcome::Done { verb },
        })
    }

    /// Types of parameters that stand where a column is assigned.
    fn assigned_types(&self, command: &Command, types: &mut Vec<Option<ArrowType>>) -> Result<()> {
        let mut command = command.clone();
        visit(&mut command, &mut |expr| match placeholder(expr) {
            Some(name) => infer(types, &name, None),
            None => Ok(()),
        })?;
        match &command {
            Command::Insert(insert) => {
                let datafusion::sql::sqlparser::ast::TableObject::TableName(name) = &insert.table else {
                    return Ok(());
                };
                let table = self.catalog.table(&table_name(name)?)?;
                let listed: Result<Vec<String>> = insert.columns.iter().map(column_name).collect();
                let listed = listed?;
                let column = |at: usize| match listed.get(at) {
                    Some(name) => table.schema().column_index(name),
                    None => listed.is_empty().then_some(at),
                };
                let Some(SetExpr::Values(rows)) = insert.source.as_ref().map(|query| query.body.as_ref())
                else {
                    return Ok(());
                };
                for row in &rows.rows {
                    for (at, expr) in row.iter().enumerate() {
                        let of = column(at).and_then(|at| table.schema().visible_columns().get(at));
                        if let (Some(name), Some(of)) = (placeholder(expr), of) {
                            infer(types, &name, Some(arrow_type(of.data_type)))?;
                        }
                    }
                }
            }
            Command::Update(update) => {
                let (name, _) = single_table("UPDATE", std::slice::from_ref(&update.table))?;
                let table = self.catalog.table(&name)?;
                for assignment in &update.assignments {
                    let AssignmentTarget::ColumnName(target) = &assignment.target else { continue };
                    assigned(&table, &column_name(target)?, &assignment.value, types)?;
                }
                compared(&table, update.selection.as_ref(), types)?;
            }
            Command::Delete(delete) => {
                let tables = crate::statement::from_tables(&delete.from);
                let (name, _) = single_table("DELETE", tables)?;
                compared(&*self.catalog.table(&name)?, delete.selection.as_ref(), types)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// `column op $1` in a condition.
fn compared(
    table: &entresol_tables::Table,
    selection: Option<&Expr>,
    types: &mut Vec<Option<ArrowType>>,
) -> Result<()> {
    let Some(Expr::BinaryOp { left, right, .. }) = selection else { return Ok(()) };
    for (column, value) in [(left, right), (right, left)] {
        if let Expr::Identifier(name) = column.as_ref() {
            assigned(table, &crate::statement::identifier(name), value, types)?;
        }
        compared(table, Some(column), types)?;
    }
    Ok(())
}

fn assigned(
    table: &entresol_tables::Table,
    column: &str,
    value: &Expr,
    types: &mut Vec<Option<ArrowType>>,
) -> Result<()> {
    let of = table.schema().column_index(column).map(|at| arrow_type(table.schema().columns()[at].data_type));
    match placeholder(value) {
        Some(name) => infer(types, &name, of),
        None => Ok(()),
    }
}

fn placeholder(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Literal::Placeholder(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn number(name: &str) -> Result<usize> {
    let number = name.strip_prefix('$').and_then(|number| number.parse().ok());
    number
        .filter(|number| (1..=65_535).contains(number))
        .ok_or_else(|| Error::Invalid(format!("there is no parameter {name}")))
}

fn infer(types: &mut Vec<Option<ArrowType>>, name: &str, of: Option<ArrowType>) -> Result<()> {
    let number = number(name)?;
    if types.len() < number {
        types.resize(number, None);
    }
    let slot = &mut types[number - 1];
    if slot.is_none() {
        *slot = of;
    }
    Ok(())
}

fn visit(command: &mut Command, f: &mut dyn FnMut(&mut Expr) -> Result<()>) -> Result<()> {
    let mut on = |expr: &mut Expr| match f(expr) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    };
    fn all<V: VisitMut>(part: &mut V, on: &mut impl FnMut(&mut Expr) -> ControlFlow<Error>) -> Result<()> {
        match visit_expressions_mut(part, on) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }
    match command {
        Command::Insert(insert) => all(insert.as_mut(), &mut on),
        Command::Update(update) => all(update.as_mut(), &mut on),
        Command::Delete(delete) => all(delete.as_mut(), &mut on),
        Command::Query(statement) => match statement.as_mut() {
            EngineStatement::Statement(statement) => all::<Statement>(statement.as_mut(), &mut on),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn substitute(command: &mut Command, values: &[ScalarValue]) -> Result<()> {
    visit(command, &mut |expr| {
        if let Some(name) = placeholder(expr) {
            let value = values.get(number(&name)? - 1);
            let value = value.ok_or_else(|| Error::Invalid(format!("there is no parameter {name}")))?;
            *expr = literal(value)?;
        }
        Ok(())
    })
}

fn literal(value: &ScalarValue) -> Result<Expr> {
    let of = match value.data_type() {
        ArrowType::Boolean => "BOOLEAN".to_owned(),
        ArrowType::Int8 | ArrowType::Int16 => "SMALLINT".to_owned(),
        ArrowType::Int32 => "INT".to_owned(),
        ArrowType::Int64 => "BIGINT".to_owned(),
        ArrowType::Float32 => "REAL".to_owned(),
        ArrowType::Float64 => "DOUBLE".to_owned(),
        ArrowType::Decimal128(precision, scale) => format!("DECIMAL({precision},{scale})"),
        ArrowType::Date32 => "DATE".to_owned(),
        ArrowType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP".to_owned(),
        ArrowType::Timestamp(..) => "TIMESTAMPTZ".to_owned(),
        ArrowType::Time64(_) => "TIME".to_owned(),
        ArrowType::Utf8 => "TEXT".to_owned(),
        other => return Err(Error::unsupported(format!("parameters of type {other}"))),
    };
    let sql = match value.cast_to(&ArrowType::Utf8)? {
        ScalarValue::Utf8(Some(text)) if of == "INT" && !text.starts_with('-') => text,
        ScalarValue::Utf8(Some(text)) if of == "TEXT" => format!("'{}'", text.replace('\'', "''")),
        ScalarValue::Utf8(Some(text)) => format!("CAST('{}' AS {of})", text.replace('\'', "''")),
        _ => format!("CAST(NULL AS {of})"),
    };
    let parsed =
        Parser::new(&PostgreSqlDialect {}).try_with_sql(&sql).and_then(|mut parser| parser.parse_expr());
    parsed.map_err(|error| Error::Internal(format!("a parameter's literal: {error}")))
}
