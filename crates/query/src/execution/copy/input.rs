//! COPY FROM: bytes, rows of values or batches of a file into rows of a table.

use super::decode::{Decoder, Fields, SHOWN_CHARS_MAX};
use super::pending::{PendingBatches, PendingRows};
use super::refusals::no_lines;
use super::target::copied_table;
use crate::dml::assignment;
use crate::dml::source;
use crate::dml::writer::TableWriter;
use crate::error::{Error, Result};
use crate::execution::authorization::authorize_copy;
use crate::execution::search_path;
use crate::execution::session::Session;
use crate::parser::own::copy::{CopyStatement, Source};
use crate::parser::own::copy_options::Layout;
use crate::planner::fast_path::exact;
use crate::postgres::pg_types;
use crate::postgres::time_zones::Zone;
use crate::postgres::types::field_of;
use crate::row_files::BatchPlace;
use crate::session::block::{Failure, StatementGuard, read_only};
use crate::session::cancellation::RunningStatement;
use crate::session::commit::commit;
use crate::session::loads::{LoadProgress, analyze_loaded};
use crate::session::snapshots::SessionSnapshots;
use crate::session::variables::SessionVariables;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Field;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use entresol_memory::Durability;
use entresol_tables::{Catalog, Column, ColumnBuilder, DataType, Error as TableError, Table};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Rows for which builders of columns have room at first.
const BUILDER_ROWS: usize = 4096;

/// COPY FROM in flight; see the [module](super). Dropping it undoes its writes.
#[derive(Debug)]
pub struct CopyIn {
    target: Target,
    input: Input,
    copied: u64,
    transaction: Arc<Transaction>,
    running: Arc<RunningStatement>,
    catalog: Arc<Catalog>,
    within: CopyTransaction,
}

/// Form of the input.
#[derive(Debug)]
enum Input {
    Lines(Decoder, PendingRows),
    /// Values; number of rows so far.
    Rows(u64, PendingRows),
    /// Batches of a file.
    Batches(PendingBatches),
}

impl Input {
    /// Place of the last line, row or batch.
    fn place(&self) -> String {
        match self {
            Input::Lines(decoder, _) => format!("line {}", decoder.line()),
            Input::Rows(rows, _) => format!("line {rows}"),
            Input::Batches(pending) => pending.place(),
        }
    }
}

/// Target table and columns.
struct Target {
    writer: TableWriter,
    zone: Zone,
    /// File that the rows come from.
    file: Option<String>,
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
enum CopyTransaction {
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
    /// Begins a COPY FROM, in the open block or as a transaction of its own. Run no other statement of the session
    /// before it is finished or dropped.
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
                    snapshots: Arc::clone(&self.core.snapshots),
                    variables: Arc::clone(&self.core.variables),
                });
                (None, CopyTransaction::Alone { durability: self.durability(), parts })
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
                (Some(transaction), CopyTransaction::Block { guard, failure })
            }
        };
        if statement.freeze {
            self.core.notice(
                "COPY with FREEZE has no effect: rows become visible to other transactions at commit",
            );
        }
        let table = copied_table(&self.core, name)?;
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
        let alone = matches!(&within, CopyTransaction::Alone { parts: None, .. });
        let writer = TableWriter::new(&self.core, &table, &columns)?;
        let writer = writer.alone(alone).shown(&self.core);
        writer.progress().of_copy();
        let target = Target { writer, zone: self.core.zone.clone(), file: None };
        let pending = || PendingRows::new(target.builders(), target.writer.table());
        Ok(CopyIn {
            input: match &statement.layout {
                Layout::Lines(options) => Input::Lines(Decoder::new(options.clone()), pending()),
                Layout::Binary => Input::Rows(0, pending()),
                Layout::Parquet(_) | Layout::Arrow => {
                    Input::Batches(PendingBatches::new(target.writer.table()))
                }
            },
            target,
            copied: 0,
            transaction,
            running: Arc::clone(&self.core.running),
            catalog: Arc::clone(&self.core.catalog),
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
        let CopyIn { target, input, copied, transaction, .. } = self;
        let Input::Lines(decoder, pending) = input else { return Err(self.failed(no_lines())) };
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
        let CopyIn { target, input, copied, transaction, .. } = self;
        let Input::Rows(rows, pending) = input else {
            return Err(Error::coded("42809", "rows of values require COPY with FORMAT binary"));
        };
        *rows += 1;
        target.push_values(pending, *rows, values)?;
        if pending.is_full() {
            *copied += target.write(transaction, pending)?;
        }
        Ok(())
    }

    /// Adds a batch of a file, whose columns are those of a line, of types that can be assigned to them. `place` is
    /// that of its first row. After an error the COPY has failed.
    pub(super) fn push_batch(&mut self, batch: &RecordBatch, place: BatchPlace) -> Result<()> {
        let pushed = self.try_push_batch(batch, place);
        pushed.map_err(|error| self.failed(error))
    }

    fn try_push_batch(&mut self, batch: &RecordBatch, place: BatchPlace) -> Result<()> {
        let CopyIn { target, input, copied, transaction, .. } = self;
        let Input::Batches(pending) = input else {
            return Err(Error::Internal("a batch for a COPY of lines".into()));
        };
        // First: its errors are of this batch.
        pending.reach(place);
        let arrays = target.converted(batch)?;
        pending.push(arrays, batch.num_rows());
        if pending.is_full() {
            *copied += target.write_batches(transaction, pending)?;
        }
        Ok(())
    }

    /// Begins with a file; lines and row groups are counted from here, and errors name it.
    pub(super) fn begin_file(&mut self, name: &str, statement: &CopyStatement) {
        if let (Input::Lines(decoder, _), Layout::Lines(options)) = (&mut self.input, &statement.layout) {
            *decoder = Decoder::new(options.clone());
        }
        self.target.file = Some(name.to_owned());
    }

    /// Ends a file: its last line may lack its end, and its rows are written.
    pub(super) fn end_file(&mut self) -> Result<()> {
        let written = self.write_rest();
        written.map_err(|error| self.failed(error))
    }

    /// Table of the rows.
    pub(super) fn target_table(&self) -> &Arc<Table> {
        self.target.writer.table()
    }

    /// Positions of the columns of a line in the table.
    pub(super) fn given(&self) -> &[usize] {
        self.target.writer.given()
    }

    /// Progress of the statement.
    pub(super) fn progress(&self) -> &Arc<LoadProgress> {
        self.target.writer.progress()
    }

    /// Commits the rows so far and goes on in a new transaction, if the statement asks for it and there are
    /// enough of them. Call it after each push. After an error the COPY has failed; what was committed stays.
    pub async fn commit_part(&mut self) -> Result<()> {
        let CopyIn { within: CopyTransaction::Alone { durability, parts: Some(parts) }, copied, .. } = self
        else {
            return Ok(());
        };
        if *copied - parts.committed < parts.rows {
            return Ok(());
        }
        let committed = match commit(&self.transaction, *durability, &self.running).await {
            Ok(()) => self.catalog.begin(),
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
        let written = self.write_rest().and_then(|()| self.target.writer.finish(&self.transaction));
        if let Err(error) = written {
            return Err(self.failed(error));
        }
        match &mut self.within {
            CopyTransaction::Alone { durability, .. } => {
                let committed = commit(&self.transaction, *durability, &self.running).await;
                committed.map_err(|error| self.failed(error))?;
                analyze_loaded(&self.catalog, Arc::clone(self.target.writer.table()), self.copied).await;
            }
            CopyTransaction::Block { guard, .. } => guard.take().into_iter().for_each(StatementGuard::keep),
        }
        Ok(self.copied)
    }

    /// Writes all rows that are pending.
    fn write_rest(&mut self) -> Result<()> {
        let CopyIn { target, input, copied, transaction, .. } = self;
        *copied += match input {
            Input::Lines(decoder, pending) => {
                decoder.finish(|line, fields| target.push(pending, line, fields))?;
                target.write(transaction, pending)?
            }
            Input::Rows(_, pending) => target.write(transaction, pending)?,
            Input::Batches(pending) => target.write_batches(transaction, pending)?,
        };
        Ok(())
    }

    /// Adds the position to an error, and fails the block.
    pub(super) fn failed(&mut self, error: Error) -> Error {
        let in_file = matches!(self.input, Input::Batches(_));
        let error = match error {
            // Errors of lines have their line number; those of rows and values have it in their message.
            Error::Coded { sqlstate, message } if !message.contains("(COPY ") => {
                let place = self.target.place(&self.input.place());
                Error::coded(sqlstate, format!("{message} (COPY {place})"))
            }
            error @ (Error::Assignment { .. } | Error::Tables(_))
                if in_file && error.interrupt().is_none() =>
            {
                let place = self.target.place(&self.input.place());
                Error::Copy { place, error: Box::new(error) }
            }
            error => error,
        };
        match &self.within {
            CopyTransaction::Block { failure, .. } => failure.set(&error),
            CopyTransaction::Alone { parts: Some(parts), .. } if parts.committed > 0 => {
                let (table, rows) = (self.target.writer.table().name(), parts.committed);
                parts.variables.notice(format!("the first {rows} rows of COPY {table} are committed"));
            }
            CopyTransaction::Alone { .. } => {}
        }
        error
    }
}

impl Drop for CopyIn {
    fn drop(&mut self) {
        // The guard exists until the COPY succeeds.
        if let CopyTransaction::Block { guard: Some(_), failure } = &self.within {
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
                ColumnBuilder::new(columns[column].data_type, field.data_type(), BUILDER_ROWS)
            })
            .collect()
    }

    /// Place in the input, behind the name of the table.
    fn place(&self, place: &str) -> String {
        let table = self.writer.table().name();
        match &self.file {
            None => format!("{table}, {place}"),
            Some(file) => format!("{table}, file \"{file}\", {place}"),
        }
    }

    /// Arrays of exactly the types of the columns.
    fn converted(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let columns = self.writer.table().schema().visible_columns();
        let given = self.writer.given().iter().zip(batch.columns());
        let name = self.writer.table().name();
        given.map(|(&column, array)| assignment::array(name, &columns[column], array, &self.zone)).collect()
    }

    /// Adds the fields of a line.
    fn push(&self, pending: &mut PendingRows, line: u64, fields: &Fields) -> Result<()> {
        let columns = self.writer.table().schema().visible_columns();
        let place = |column: Option<&str>| {
            let column = column.map_or(String::new(), |column| format!(", column {column}"));
            format!("(COPY {})", self.place(&format!("line {line}{column}")))
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
        let (arrays, lines) = pending.take();
        self.write_arrays(tx, arrays, lines.len(), |row| format!("line {}", lines[row]))
    }

    /// Writes the pending batches; an error names the first row that is wrong.
    fn write_batches(&self, tx: &Transaction, pending: &mut PendingBatches) -> Result<u64> {
        let (arrays, rows) = pending.take()?;
        self.write_arrays(tx, arrays, rows, |row| pending.place_of(row))
    }

    fn write_arrays(
        &self,
        tx: &Transaction,
        arrays: Vec<ArrayRef>,
        rows: usize,
        place: impl Fn(usize) -> String,
    ) -> Result<u64> {
        if rows == 0 {
            return Ok(0);
        }
        let Err(error) = self.writer.insert_given(tx, arrays.clone(), rows) else {
            return Ok(rows as u64);
        };
        if error.interrupt().is_some() || !tx.is_open() {
            return Err(error);
        }
        // None of them was written: writing them one by one finds the one that is wrong.
        for at in 0..rows {
            let row = arrays.iter().map(|array| array.slice(at, 1)).collect();
            if let Err(error) = self.writer.insert_given(tx, row, 1) {
                return Err(Error::Copy { place: self.place(&place(at)), error: Box::new(error) });
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
