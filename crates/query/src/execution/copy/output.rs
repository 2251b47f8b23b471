//! COPY TO STDOUT: rows of a table or query into bytes.

use super::encode;
use super::refusals::no_lines;
use crate::dml::source;
use crate::error::{Error, Result};
use crate::execution::search_path;
use crate::execution::session::Session;
use crate::parser::command::Command;
use crate::parser::names::table_name;
use crate::parser::own::copy::{CopyStatement, Source};
use crate::parser::own::copy_options::Layout;
use crate::parser::statement::query_of;
use crate::session::result::Outcome;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::Statement;
use futures::StreamExt;

/// COPY TO STDOUT in flight; see the [module](super). Its snapshot lives as long as it does.
pub struct CopyOut {
    layout: Layout,
    stream: SendableRecordBatchStream,
    header: bool,
    copied: u64,
}

impl std::fmt::Debug for CopyOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyOut").field("layout", &self.layout).field("copied", &self.copied).finish()
    }
}

impl Session {
    /// Begins a COPY TO STDOUT, in the open block or with a snapshot of its own.
    pub async fn copy_out(&mut self, statement: &CopyStatement) -> Result<CopyOut> {
        let query = self.copied_query(statement);
        let query = query.map_err(|error| self.failing(error))?;
        let prepared = self.prepare_command(Some(Command::Query(Box::new(query))), &[], None).await;
        let prepared = prepared.map_err(|error| self.failing(error))?;
        match self.run_prepared(&prepared, &[]).await? {
            Outcome::Rows(stream) => {
                let layout = statement.layout.clone();
                let header = matches!(&layout, Layout::Lines(options) if options.header);
                Ok(CopyOut { layout, stream, header, copied: 0 })
            }
            other => Err(Error::Internal(format!("COPY returned {other:?}"))),
        }
    }

    fn copied_query(&self, statement: &CopyStatement) -> Result<DFStatement> {
        if statement.from {
            return Err(Error::coded("42809", "the statement is COPY FROM: use copy_in"));
        }
        search_path::check_copy(&self.core.variables, statement)?;
        match &statement.source {
            Source::Query(query) => Ok(DFStatement::Statement(Box::new(Statement::Query(query.clone())))),
            Source::Table { name, columns } => {
                let table = self.core.catalog.table(&table_name(name)?)?;
                let visible = table.schema().visible_columns();
                let columns = if columns.is_empty() {
                    (0..visible.len()).collect()
                } else {
                    source::columns_named(&table, columns)?
                };
                let names: Vec<String> =
                    columns.iter().map(|&column| quoted(&visible[column].name)).collect();
                query_of(&format!("SELECT {} FROM public.{}", names.join(", "), quoted(table.name())))
            }
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl CopyOut {
    /// Columns of the output.
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    /// Number of rows returned so far.
    pub fn rows(&self) -> u64 {
        self.copied
    }

    /// Next lines; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>>> {
        Some(self.next_lines().await?.map(|lines| lines.bytes))
    }

    /// Next lines with the boundaries between them; `None` at the end.
    pub async fn next_lines(&mut self) -> Option<Result<CopyLines>> {
        let mut lines = CopyLines::default();
        if let (Layout::Lines(options), true) = (&self.layout, std::mem::take(&mut self.header)) {
            return Some(encode::header(options, &self.stream.schema(), &mut lines).map(|()| lines));
        }
        let batch = match self.next_batch().await? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let Layout::Lines(options) = &self.layout else { return Some(Err(no_lines())) };
        Some(encode::lines(options, &batch, &mut lines).map(|()| lines))
    }

    /// Next batch of rows without encoding; `None` at the end.
    pub async fn next_batch(&mut self) -> Option<Result<RecordBatch>> {
        let batch = match self.stream.next().await? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error.into())),
        };
        self.copied += batch.num_rows() as u64;
        Some(Ok(batch))
    }
}

/// Lines of a COPY TO STDOUT, one for each row, ends of lines included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyLines {
    pub(super) bytes: Vec<u8>,
    /// End of each line.
    pub(super) ends: Vec<usize>,
}

impl CopyLines {
    /// Number of lines.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if there is no line.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Line of this number, from 0. A csv value may contain line ends of its own.
    pub fn get(&self, line: usize) -> Option<&[u8]> {
        let start = match line {
            0 => 0,
            line => *self.ends.get(line - 1)?,
        };
        Some(&self.bytes[start..*self.ends.get(line)?])
    }

    /// Completes the last line.
    pub(super) fn end_line(&mut self) {
        self.bytes.push(b'\n');
        self.ends.push(self.bytes.len());
    }
}
