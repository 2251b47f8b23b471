//! COPY FROM STDIN: bytes into rows of a table.

use super::decode::{Decoder, Fields};
use super::no_lines;
use crate::dml::source;
use crate::dml::writer::TableWriter;
use crate::error::{Error, Result};
use crate::execution::authorization::authorize_copy;
use crate::execution::search_path;
use crate::execution::session::Session;
use crate::parser::names::table_name;
use crate::parser::own::copy::{CopyStatement, Source};
use crate::parser::own::copy_options::Layout;
use crate::planner::fast_path::exact;
use crate::postgres::pg_types;
use crate::postgres::time_zones::Zone;
use crate::postgres::types::field_of;
use crate::session::block::{Failure, StatementGuard, read_only};
use crate::session::cancellation::Running;
use crate::session::commit::commit;
use crate::session::snapshots::SessionSnapshots;
use crate::session::variables::SessionVariables;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use entresol_memory::Durability;
use entresol_tables::{Catalog, ColumnBuilder, DataType, Error as TableError};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Rows written together.
const BATCH_ROWS: usize = 4096;
/// Bytes of input whose rows are written together.
const BATCH_BYTES: usize = 4 << 20;
/// Rows and bytes that are written together to a table with row groups: as many as make a large one.
const GROUP_ROWS: usize = 128 << 10;
const GROUP_BYTES: usize = 32 << 20;
/// Maximum characters of a value in a message.
const SHOWN_CHARS_MAX: usize = 100;

/// COPY FROM STDIN in flight; see the [module](super). Dropping it undoes its writes.
#[derive(Debug)]
pub struct CopyIn {
    target: Target,
    input: Input,
    pending: PendingRows,
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

/// Rows that are not written yet.
#[derive(Debug)]
struct PendingRows {
    /// One for each column of a line.
    builders: Vec<ColumnBuilder>,
    /// Line of each row.
    lines: Vec<u64>,
    /// Bytes of their input.
    bytes: usize,
    /// Rows and bytes that are written together.
    full: (usize, usize),
}

impl PendingRows {
    fn of(target: &Target) -> PendingRows {
        let has_row_groups = target.writer.table().has_row_groups();
        let full = if has_row_groups { (GROUP_ROWS, GROUP_BYTES) } else { (BATCH_ROWS, BATCH_BYTES) };
        PendingRows { builders: target.builders(), lines: Vec::new(), bytes: 0, full }
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= self.full.0 || self.bytes >= self.full.1
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

/// Commits of a COPY in parts.
struct Parts {
    /// Least number of rows of a part.
    rows: u64,
    /// Rows that are committed.
    committed: u64,
    catalog: Arc<Catalog>,
    snapshots: Arc<SessionSnapshots>,
    variables: Arc<SessionVariables>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("rows", &self.rows).field("committed", &self.committed).finish()
    }
}

/// Transaction of the COPY: an open block, or its own.
#[derive(Debug)]
enum Within {
    Alone {
        durability: Durability,
        parts: Option<Parts>,
    },
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
        search_path::check_copy(&self.core.variables, statement)?;
        let (transaction, within) = match &mut self.core.block {
            None if self.core.variables.is_read_only() => return Err(read_only("COPY FROM")),
            None => {
                let parts = statement.commit_rows.map(|rows| Parts {
                    rows,
                    committed: 0,
                    catalog: Arc::clone(&self.core.catalog),
                    snapshots: Arc::clone(&self.core.snapshots),
                    variables: Arc::clone(&self.core.variables),
                });
                (None, Within::Alone { durability: self.durability(), parts })
            }
            Some(_) if statement.commit_rows.is_some() => {
                let message = "COPY with commit_rows cannot run inside a transaction block";
                return Err(Error::coded("25001", message));
            }
            Some(block) => {
                block.check_writing(Some("COPY FROM"))?;
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
        // In parts the rows of the first one stand when the next begins, in a table that is not empty any more.
        let alone = matches!(&within, Within::Alone { parts: None, .. });
        let writer = TableWriter::new(&self.core, &table, &columns)?;
        let writer = writer.alone(alone).shown(&self.core);
        let target = Target { writer, zone: self.core.zone.clone() };
        Ok(CopyIn {
            pending: PendingRows::of(&target),
            target,
            input: match &statement.layout {
                Layout::Lines(options) => Input::Lines(Decoder::new(options.clone())),
                Layout::Binary => Input::Rows(0),
            },
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

    /// Fields of the columns, with their modifiers.
    pub fn fields(&self) -> Vec<Field> {
        self.target.fields()
    }

    /// Decodes the next chunk of any size. After an error the COPY has failed: drop it.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let CopyIn { target, input, pending, copied, transaction, .. } = self;
        let Input::Lines(decoder) = input else { return Err(self.failed(no_lines())) };
        let pushed = decoder.push(bytes, |line, fields| {
            target.push(pending, line, fields)?;
            if pending.is_full() {
                *copied += target.write(transaction, pending)?;
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
        let CopyIn { target, input, pending, copied, transaction, .. } = self;
        let Input::Rows(rows) = input else {
            return Err(Error::coded("42809", "rows of values require COPY with FORMAT binary"));
        };
        *rows += 1;
        target.push_values(pending, *rows, values)?;
        if pending.is_full() {
            *copied += target.write(transaction, pending)?;
        }
        Ok(())
    }

    /// Commits the rows so far and goes on in a new transaction, if the statement asks for it and there are
    /// enough of them. Call it after each push. After an error the COPY has failed; what was committed stays.
    pub async fn commit_part(&mut self) -> Result<()> {
        let CopyIn { within: Within::Alone { durability, parts: Some(parts) }, copied, .. } = self else {
            return Ok(());
        };
        if *copied - parts.committed < parts.rows {
            return Ok(());
        }
        let committed = match commit(&self.transaction, *durability, &self.running).await {
            Ok(()) => parts.catalog.begin(),
            Err(error) => return Err(self.failed(error)),
        };
        parts.committed = *copied;
        // The statement goes on: it can be cancelled again.
        self.running.statement().end_definite(false);
        match committed {
            Ok(next) => {
                next.set_cancellation(self.running.statement());
                parts.snapshots.note(&next);
                self.transaction = next;
                Ok(())
            }
            Err(error) => Err(self.failed(error.into())),
        }
    }

    /// Ends the input: writes the remaining rows, and commits if the COPY is a transaction of its own.
    /// Returns the number of rows.
    pub async fn finish(mut self) -> Result<u64> {
        if let Err(error) = self.write_rest() {
            return Err(self.failed(error));
        }
        match &mut self.within {
            Within::Alone { durability, .. } => {
                let committed = commit(&self.transaction, *durability, &self.running).await;
                committed.map_err(|error| self.failed(error))?;
            }
            Within::Block { guard, .. } => guard.take().into_iter().for_each(StatementGuard::keep),
        }
        Ok(self.copied)
    }

    fn write_rest(&mut self) -> Result<()> {
        let CopyIn { target, input, pending, copied, transaction, .. } = self;
        if let Input::Lines(decoder) = input {
            decoder.finish(|line, fields| target.push(pending, line, fields))?;
        }
        *copied += target.write(transaction, pending)?;
        target.writer.finish(transaction)
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
        match &self.within {
            Within::Block { failure, .. } => failure.set(&error),
            Within::Alone { parts: Some(parts), .. } if parts.committed > 0 => {
                let (table, rows) = (self.target.writer.table().name(), parts.committed);
                parts.variables.notice(format!("the first {rows} rows of COPY {table} are committed"));
            }
            Within::Alone { .. } => {}
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
    /// Fields of the columns of a line.
    fn fields(&self) -> Vec<Field> {
        let columns = self.writer.table().schema().visible_columns();
        let zone = self.zone.name();
        self.writer.given().iter().map(|&column| field_of(&columns[column], zone)).collect()
    }

    fn builders(&self) -> Vec<ColumnBuilder> {
        let columns = self.writer.table().schema().visible_columns();
        let fields = self.fields();
        let typed = self.writer.given().iter().zip(&fields);
        typed
            .map(|(&column, field)| {
                ColumnBuilder::new(columns[column].data_type, field.data_type(), BATCH_ROWS)
            })
            .collect()
    }

    /// Adds the fields of a line.
    fn push(&self, pending: &mut PendingRows, line: u64, fields: &Fields) -> Result<()> {
        let columns = self.writer.table().schema().visible_columns();
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
        for ((text, &target), builder) in fields.texts()?.zip(self.writer.given()).zip(&mut pending.builders)
        {
            let (Some(text), column) = (text, &columns[target]) else {
                builder.push_null();
                continue;
            };
            // Strings that are too long are reported when they are written, with their line.
            if column.data_type == DataType::Varchar {
                builder.push_text(text);
                continue;
            }
            let value = self.zone.value(column, text).map_err(|error| {
                if let lost @ TableError::DigitsLost { .. } = error {
                    return Error::coded("22003", format!("{lost} {}", place(None)));
                }
                let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                let (name, place) = (input_type(column), place(Some(&column.name)));
                if is_number(text, column.data_type) {
                    let message = format!("value \"{shown}\" is out of range for type {name} {place}");
                    Error::coded("22003", message)
                } else {
                    let message = format!("invalid input syntax for type {name}: \"{shown}\" {place}");
                    Error::coded("22P02", message)
                }
            });
            builder.push(&value?);
        }
        pending.lines.push(line);
        pending.bytes += fields.bytes();
        Ok(())
    }

    /// Adds a row of values.
    fn push_values(&self, pending: &mut PendingRows, row: u64, values: &[ScalarValue]) -> Result<()> {
        let columns = self.writer.table().schema().visible_columns();
        if values.len() != self.writer.given().len() {
            let (found, expected) = (values.len(), self.writer.given().len());
            return Err(Error::coded("22P04", format!("row field count is {found}, expected {expected}")));
        }
        let placed = values.iter().zip(self.writer.given()).zip(&mut pending.builders);
        for ((value, &target), builder) in placed {
            let column = &columns[target];
            let exact = exact(value, column.data_type).ok_or_else(|| {
                let (found, name, wanted) = (value.data_type(), &column.name, column.data_type);
                Error::coded("42804", format!("column \"{name}\" is of type {wanted}, not {found}"))
            })?;
            pending.bytes += value.size();
            builder.push(&exact);
        }
        pending.lines.push(row);
        Ok(())
    }

    /// Writes the pending rows; an error names the first line that is wrong.
    fn write(&self, tx: &Transaction, pending: &mut PendingRows) -> Result<u64> {
        let lines = std::mem::take(&mut pending.lines);
        pending.bytes = 0;
        if lines.is_empty() {
            return Ok(0);
        }
        let arrays: Vec<ArrayRef> = pending.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let Err(error) = self.writer.insert_given(tx, arrays.clone(), lines.len()) else {
            return Ok(lines.len() as u64);
        };
        if error.interrupt().is_some() || !tx.is_open() {
            return Err(error);
        }
        // None of them was written: writing them one by one finds the one that is wrong.
        for (at, line) in lines.iter().enumerate() {
            let row = arrays.iter().map(|array| array.slice(at, 1)).collect();
            if let Err(error) = self.writer.insert_given(tx, row, 1) {
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

/// Name of a column's type in messages about its input, as in PostgreSQL.
fn input_type(column: &Column) -> &'static str {
    let name = pg_types::of(column).0.long_name;
    name.strip_suffix(" without time zone").unwrap_or(name)
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
