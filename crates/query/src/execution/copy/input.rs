//! COPY FROM STDIN: bytes into rows of a table.

use super::decode::{Decoder, Field};
use super::no_lines;
use crate::dml::source;
use crate::dml::writer::TableWriter;
use crate::error::{Error, Result};
use crate::execution::authorization::authorize_copy;
use crate::execution::session::Session;
use crate::parser::names::table_name;
use crate::parser::own::copy::{CopyStatement, Source};
use crate::parser::own::copy_options::Layout;
use crate::planner::fast_path::exact;
use crate::postgres::time_zones::Zone;
use crate::postgres::types::arrow_type;
use crate::session::block::{Failure, StatementGuard};
use crate::session::cancellation::Running;
use crate::session::commit::commit;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use entresol_memory::Durability;
use entresol_tables::{DataType, Error as TableError, Row, Value};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Rows written together.
const BATCH_ROWS: usize = 1024;
/// Maximum characters of a value in a message.
const SHOWN_CHARS_MAX: usize = 100;

/// COPY FROM STDIN in flight; see the [module](super). Dropping it undoes its writes.
#[derive(Debug)]
pub struct CopyIn {
    target: Target,
    input: Input,
    /// Rows that are not written yet, each with its line.
    batch: Vec<(u64, Row)>,
    copied: u64,
    transaction: Arc<Transaction>,
    running: Arc<Running>,
    within: Within,
}

/// Form of the input.
#[derive(Debug)]
enum Input {
    Lines(Decoder),
    /// Values; number of rows so far.
    Rows(u64),
}

impl Input {
    /// Number of the last line or row, from 1.
    fn line(&self) -> u64 {
        match self {
            Input::Lines(decoder) => decoder.line(),
            Input::Rows(rows) => *rows,
        }
    }
}

/// Target table and columns.
struct Target {
    writer: TableWriter,
    zone: Zone,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("table", self.writer.table())
            .field("columns", &self.writer.given())
            .finish()
    }
}

/// Transaction of the COPY: an open block, or its own.
#[derive(Debug)]
enum Within {
    Alone(Durability),
    /// The guard undoes the writes, unless the COPY succeeds.
    Block {
        guard: Option<StatementGuard>,
        failure: Arc<Failure>,
    },
}

impl Session {
    /// Begins a COPY FROM STDIN, in the open block or as a transaction of its own. Run no other statement of
    /// the session before it is finished or dropped.
    pub fn copy_in(&mut self, statement: &CopyStatement) -> Result<CopyIn> {
        let copy = self.try_copy_in(statement);
        copy.map_err(|error| self.failing(error))
    }

    fn try_copy_in(&mut self, statement: &CopyStatement) -> Result<CopyIn> {
        let Source::Table { name, columns } = &statement.source else {
            return Err(Error::unsupported("COPY FROM of a query"));
        };
        if !statement.from {
            return Err(Error::coded("42809", "the statement is COPY TO: use copy_out"));
        }
        authorize_copy(&self.core.variables.authority, statement)?;
        let (transaction, within) = match &mut self.core.block {
            None => (None, Within::Alone(self.durability())),
            Some(block) => {
                block.check(true)?;
                let transaction = block.next_statement()?;
                let guard = Some(StatementGuard::new(&transaction));
                let failure = Arc::clone(block.failure());
                (Some(transaction), Within::Block { guard, failure })
            }
        };
        if statement.freeze {
            self.core.notice(
                "COPY with FREEZE has no effect: rows become visible to other transactions at commit",
            );
        }
        let table = source::written(&self.core.catalog, "copy to", &table_name(name)?)?;
        let columns = if columns.is_empty() {
            (0..table.schema().visible_columns().len()).collect()
        } else {
            source::columns_named(&table, columns)?
        };
        let transaction = match transaction {
            Some(transaction) => transaction,
            None => self.core.catalog.begin()?,
        };
        self.core.attend(&transaction);
        let writer = TableWriter::new(&self.core, &table, &columns)?;
        Ok(CopyIn {
            target: Target { writer, zone: self.core.zone.clone() },
            input: match &statement.layout {
                Layout::Lines(options) => Input::Lines(Decoder::new(options.clone())),
                Layout::Binary => Input::Rows(0),
            },
            batch: Vec::new(),
            copied: 0,
            transaction,
            running: Arc::clone(&self.core.running),
            within,
        })
    }
}

impl CopyIn {
    /// Number of columns of a line.
    pub fn columns(&self) -> usize {
        self.target.writer.given().len()
    }

    /// The table.
    pub fn table(&self) -> &str {
        self.target.writer.table().name()
    }

    /// The types of the columns.
    pub fn types(&self) -> Vec<ArrowType> {
        let columns = self.target.writer.table().schema().visible_columns();
        let zone = self.target.zone.name();
        self.target.writer.given().iter().map(|&column| arrow_type(columns[column].data_type, zone)).collect()
    }

    /// Decodes the next chunk of any size. After an error the COPY has failed: drop it.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let CopyIn { target, input, batch, copied, transaction, .. } = self;
        let Input::Lines(decoder) = input else { return Err(self.failed(no_lines())) };
        let pushed = decoder.push(bytes, |line, fields| {
            batch.push((line, target.row(line, fields)?));
            if batch.len() >= BATCH_ROWS {
                *copied += target.write(transaction, batch)?;
            }
            Ok(())
        });
        pushed.map_err(|error| self.failed(error))
    }

    /// Adds a row of values of exactly the [`CopyIn::types`], if the format is binary. After an error the
    /// COPY has failed.
    pub fn push_row(&mut self, values: &[ScalarValue]) -> Result<()> {
        let pushed = self.try_push_row(values);
        pushed.map_err(|error| self.failed(error))
    }

    fn try_push_row(&mut self, values: &[ScalarValue]) -> Result<()> {
        let CopyIn { target, input, batch, copied, transaction, .. } = self;
        let Input::Rows(rows) = input else {
            return Err(Error::coded("42809", "rows of values require COPY with FORMAT binary"));
        };
        *rows += 1;
        batch.push((*rows, target.row_of(values)?));
        if batch.len() >= BATCH_ROWS {
            *copied += target.write(transaction, batch)?;
        }
        Ok(())
    }

    /// Ends the input: writes the remaining rows, and commits if the COPY is a transaction of its own.
    /// Returns the number of rows.
    pub async fn finish(mut self) -> Result<u64> {
        if let Err(error) = self.write_rest() {
            return Err(self.failed(error));
        }
        match &mut self.within {
            Within::Alone(durability) => commit(&self.transaction, *durability, &self.running).await?,
            Within::Block { guard, .. } => guard.take().into_iter().for_each(StatementGuard::keep),
        }
        Ok(self.copied)
    }

    fn write_rest(&mut self) -> Result<()> {
        let CopyIn { target, input, batch, copied, transaction, .. } = self;
        if let Input::Lines(decoder) = input {
            decoder.finish(|line, fields| {
                batch.push((line, target.row(line, fields)?));
                Ok(())
            })?;
        }
        *copied += target.write(transaction, batch)?;
        Ok(())
    }

    /// Adds the position to an error, and fails the block.
    fn failed(&mut self, error: Error) -> Error {
        let error = match error {
            // Errors of lines have their line number; those of rows and values have it in their message.
            Error::Coded { sqlstate, message } if !message.contains("(COPY ") => {
                let (table, line) = (self.target.writer.table().name(), self.input.line());
                Error::coded(sqlstate, format!("{message} (COPY {table}, line {line})"))
            }
            error => error,
        };
        if let Within::Block { failure, .. } = &self.within {
            failure.set(&error);
        }
        error
    }
}

impl Drop for CopyIn {
    fn drop(&mut self) {
        // The guard exists until the COPY succeeds.
        if let Within::Block { guard: Some(_), failure } = &self.within {
            failure.set("COPY was not finished");
        }
    }
}

impl Target {
    /// Converts the fields of a line to a row.
    fn row(&self, line: u64, fields: Vec<Field>) -> Result<Row> {
        let schema = self.writer.table().schema();
        let columns = schema.visible_columns();
        let place = |column: Option<&str>| {
            let column = column.map_or(String::new(), |column| format!(", column {column}"));
            format!("(COPY {}, line {line}{column})", self.writer.table().name())
        };
        if fields.len() > self.writer.given().len() {
            let message = format!("extra data after last expected column {}", place(None));
            return Err(Error::coded("22P04", message));
        }
        if let Some(&missing) = self.writer.given().get(fields.len()) {
            let name = &columns[missing].name;
            return Err(Error::coded("22P04", format!("missing data for column \"{name}\" {}", place(None))));
        }
        let mut row = vec![Value::Null; columns.len()];
        for (field, &target) in fields.into_iter().zip(self.writer.given()) {
            let Some(text) = field else { continue };
            let column = &columns[target];
            row[target] = match column.data_type {
                // Strings that are too long are reported when they are written, with their line.
                DataType::Varchar => Value::varchar(text),
                data_type => self.zone.value(column, &text).map_err(|error| {
                    if let lost @ TableError::DigitsLost { .. } = error {
                        return Error::coded("22003", format!("{lost} {}", place(None)));
                    }
                    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                    let place = place(Some(&column.name));
                    if is_number(&text, data_type) {
                        Error::coded(
                            "22003",
                            format!("value \"{shown}\" is out of range for type {data_type} {place}"),
                        )
                    } else {
                        Error::coded(
                            "22P02",
                            format!("invalid input syntax for type {data_type}: \"{shown}\" {place}"),
                        )
                    }
                })?,
            };
        }
        Ok(row)
    }

    /// Converts values to a row.
    fn row_of(&self, values: &[ScalarValue]) -> Result<Row> {
        let columns = self.writer.table().schema().visible_columns();
        if values.len() != self.writer.given().len() {
            let (found, expected) = (values.len(), self.writer.given().len());
            return Err(Error::coded("22P04", format!("row field count is {found}, expected {expected}")));
        }
        let mut row = vec![Value::Null; columns.len()];
        for (value, &target) in values.iter().zip(self.writer.given()) {
            let column = &columns[target];
            row[target] = exact(value, column.data_type).ok_or_else(|| {
                let (found, name, wanted) = (value.data_type(), &column.name, column.data_type);
                Error::coded("42804", format!("column \"{name}\" is of type {wanted}, not {found}"))
            })?;
        }
        Ok(row)
    }

    /// Writes the rows of a batch; an error names the first line that is wrong.
    fn write(&self, tx: &Transaction, batch: &mut Vec<(u64, Row)>) -> Result<u64> {
        let (lines, mut rows): (Vec<u64>, Vec<Row>) = std::mem::take(batch).into_iter().unzip();
        if rows.is_empty() {
            return Ok(0);
        }
        self.writer.complete(&mut rows)?;
        let Err(error) = self.writer.insert(tx, &rows) else { return Ok(rows.len() as u64) };
        if error.interrupt().is_some() {
            return Err(error);
        }
        // None of them was written: writing them one by one finds the one that is wrong.
        for (line, row) in lines.iter().zip(&rows) {
            if let Err(error) = self.writer.insert(tx, std::slice::from_ref(row)) {
                return Err(Error::Copy {
                    table: self.writer.table().name().to_owned(),
                    line: *line,
                    error: Box::new(error),
                });
            }
        }
        Err(error)
    }
}

/// Returns true if a string is a number out of range of its type.
fn is_number(text: &str, data_type: DataType) -> bool {
    let digits = text.trim().trim_start_matches(['-', '+']);
    let integer = matches!(data_type, DataType::SmallInt | DataType::Int | DataType::BigInt);
    let decimal = matches!(data_type, DataType::Decimal { .. });
    !digits.is_empty()
        && (integer || decimal)
        && digits.bytes().all(|byte| byte.is_ascii_digit() || (decimal && byte == b'.'))
        && digits.bytes().filter(|&byte| byte == b'.').count() <= 1
        && digits.bytes().any(|byte| byte.is_ascii_digit())
}
