//! A source whose rows say what transaction they are of.
//!
//! ```text
//!   id column      7 7 8 8 8 9 …       commit 7 before the first row of 8, commit 8 before that of 9
//!   end column     - - true - true     a mark row ends a transaction, and is none of its rows
//! ```
//!
//! - Without an end column a change of the id ends a transaction, and so does the end of the source. With one, mark
//!   rows do; then a row with another id before the mark is an error, and so the mark of another transaction. A
//!   transaction without rows has a mark row alone.
//! - Rows without an id are of the transaction around them. A source that ends within a transaction is an error: its
//!   rows come again.
//! - Positions are those of the source behind the rows of a transaction, or behind its mark row: so a transaction is
//!   read again as a whole, or not at all.
//! - Transactions of several sources have to be the same ones, in the same order; their ids confirm it
//!   ([`Source::transaction`]). Those without ids have none.
//! - Memory: a batch of the source.

use crate::element::Punctuation;
use crate::error::{Error, Result};
use crate::sources::{
    CommittedInput, Next, Position, Positions, Reject, Source, SourceBatch, Split, SplitPosition,
};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_cast::display::array_value_to_string;
use arrow_row::{RowConverter, Rows, SortField};
use entresol_tables::Column;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec::IntoIter;

/// Columns that say where transactions end; at least one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionColumns {
    /// Column of the transaction's id.
    pub id: Option<String>,
    /// Column of truth values that is true of mark rows.
    pub end: Option<String>,
}

/// Source with marks of its transactions; see the [module](self).
pub struct MarkedSource {
    source: Box<dyn Source>,
    id: Option<usize>,
    end: Option<usize>,
    rest: Option<MarkedRows>,
    /// Id of the open transaction, once a row has one.
    open: Option<Arc<str>>,
    /// True if the open transaction has rows.
    has_rows: bool,
    /// Transaction whose punctuation is next.
    complete: Option<Option<Arc<str>>>,
    /// Transaction whose punctuation was the last one.
    marked: Option<Arc<str>>,
}

/// Rows of a batch that were not taken.
struct MarkedRows {
    tuples: RecordBatch,
    positions: Positions,
    rejects: Peekable<IntoIter<Reject>>,
    end: Position,
    split: Option<Split>,
    taken: usize,
    ids: Option<(ArrayRef, Rows)>,
    marks: Option<BooleanArray>,
}

impl MarkedSource {
    /// Marks the transactions of a source by these columns of its tuples.
    pub fn new(source: Box<dyn Source>, columns: &TransactionColumns) -> MarkedSource {
        let all = source.columns();
        let position = |name: &Option<String>| {
            let name = name.as_ref()?;
            all.iter().position(|column| column.name == *name)
        };
        let (id, end) = (position(&columns.id), position(&columns.end));
        MarkedSource {
            source,
            id,
            end,
            rest: None,
            open: None,
            has_rows: false,
            complete: None,
            marked: None,
        }
    }

    fn failed(reason: String) -> Error {
        Error::Tuple { operator: "transactions of a source".to_owned(), reason }
    }

    fn rows(&self, batch: SourceBatch) -> Result<MarkedRows> {
        let SourceBatch { tuples, positions, rejects, end, split } = batch;
        let ids = self.id.map(|id| {
            let column = Arc::clone(tuples.column(id));
            let converter = RowConverter::new(vec![SortField::new(column.data_type().clone())]);
            let rows = converter.and_then(|converter| converter.convert_columns(&[Arc::clone(&column)]));
            rows.map(|rows| (column, rows)).map_err(|error| MarkedSource::failed(error.to_string()))
        });
        let ids = ids.transpose()?;
        let marks = self.end.and_then(|end| tuples.column(end).as_boolean_opt()).cloned();
        let rejects = rejects.into_iter().peekable();
        Ok(MarkedRows { tuples, positions, rejects, end, split, taken: 0, ids, marks })
    }

    /// Next rows of the open transaction, or its end.
    fn part(&mut self, rows: &mut MarkedRows) -> Result<Next> {
        let first = rows.taken;
        // A row before with the id of the open transaction.
        let mut known = None;
        for at in first..rows.tuples.num_rows() {
            if !self.is_of_open(rows, &mut known, at)? {
                if self.end.is_some() {
                    let (open, other) = (self.open.as_deref().unwrap_or_default(), rows.id(at)?);
                    return Err(MarkedSource::failed(format!(
                        "transaction {open} has no end before the first row of transaction {other}"
                    )));
                }
                let open = self.open.take();
                self.has_rows = false;
                if at == first {
                    self.marked = open;
                    return Ok(Next::Punctuation(Punctuation::Commit));
                }
                self.complete = Some(open);
                return Ok(Next::Batch(rows.take(at, rows.positions.after(at - 1))?));
            }
            if rows.is_mark(at) {
                self.complete = Some(self.open.take());
                self.has_rows = false;
                let part = rows.take(at, rows.positions.after(at))?;
                rows.taken += 1;
                return Ok(Next::Batch(part));
            }
        }
        self.has_rows |= first < rows.tuples.num_rows();
        Ok(Next::Batch(rows.take(rows.tuples.num_rows(), rows.end)?))
    }

    /// End of the open transaction at the end of the source.
    fn end_of_source(&mut self) -> Result<Next> {
        if self.end.is_some() || self.open.is_none() {
            let open = self.open.as_deref().map_or_else(|| "of the last rows".to_owned(), str::to_owned);
            let reason = format!("transaction {open} has no end at the end of the source");
            return Err(MarkedSource::failed(reason));
        }
        self.has_rows = false;
        self.marked = self.open.take();
        Ok(Next::Punctuation(Punctuation::Commit))
    }

    /// Returns true if a row is of the open transaction, which is its own if none is open.
    fn is_of_open(&mut self, rows: &MarkedRows, known: &mut Option<usize>, at: usize) -> Result<bool> {
        let Some((ids, encoded)) = rows.ids.as_ref().filter(|(ids, _)| ids.is_valid(at)) else {
            return Ok(true);
        };
        if let Some(known) = *known {
            return Ok(encoded.row(known) == encoded.row(at));
        }
        let id = id_of(ids, at)?;
        let is_open = *self.open.get_or_insert_with(|| Arc::clone(&id)) == id;
        *known = is_open.then_some(at);
        Ok(is_open)
    }
}

impl MarkedRows {
    fn is_mark(&self, at: usize) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.is_valid(at) && marks.value(at))
    }

    fn id(&self, at: usize) -> Result<Arc<str>> {
        self.ids.as_ref().map_or_else(|| Ok("".into()), |(ids, _)| id_of(ids, at))
    }

    /// Takes the rows before one, with the rejected records among them; behind the last one also those behind it.
    fn take(&mut self, to: usize, end: Position) -> Result<SourceBatch> {
        let first = std::mem::replace(&mut self.taken, to);
        let is_last = to == self.tuples.num_rows();
        let mut rejects = Vec::new();
        while let Some(reject) = self.rejects.next_if(|reject| is_last || reject.tuples_before < to) {
            // One beside a mark row is behind the rows before it.
            let tuples_before = reject.tuples_before.clamp(first, to) - first;
            rejects.push(Reject { tuples_before, ..reject });
        }
        let positions = (first..to).map(|at| self.positions.after(at)).collect();
        Ok(SourceBatch {
            tuples: self.tuples.slice(first, to - first),
            positions: Positions::Listed(positions),
            rejects,
            end,
            split: self.split.clone(),
        })
    }
}

fn id_of(ids: &ArrayRef, at: usize) -> Result<Arc<str>> {
    let shown = array_value_to_string(ids, at);
    shown.map(Arc::from).map_err(|error| MarkedSource::failed(error.to_string()))
}

impl Source for MarkedSource {
    fn columns(&self) -> Vec<Column> {
        self.source.columns()
    }

    fn has_splits(&self) -> bool {
        self.source.has_splits()
    }

    fn open(&mut self, from: Option<Position>) -> Result<()> {
        self.source.open(from)
    }

    fn open_splits(&mut self, from: Option<Position>, splits: &[SplitPosition]) -> Result<()> {
        self.source.open_splits(from, splits)
    }

    fn next(&mut self, tuples_max: usize) -> Result<Next> {
        if let Some(id) = self.complete.take() {
            self.marked = id;
            return Ok(Next::Punctuation(Punctuation::Commit));
        }
        let mut rows = match self.rest.take() {
            Some(rows) => rows,
            None => match self.source.next(tuples_max)? {
                Next::Batch(batch) => self.rows(batch)?,
                Next::End if self.has_rows => return self.end_of_source(),
                other => return Ok(other),
            },
        };
        let part = self.part(&mut rows)?;
        let is_left = rows.taken < rows.tuples.num_rows() || rows.rejects.peek().is_some();
        self.rest = is_left.then_some(rows);
        Ok(part)
    }

    fn transaction(&self) -> Option<Arc<str>> {
        self.marked.clone()
    }

    fn rejected(&mut self, rejects: &[Reject]) -> Result<()> {
        self.source.rejected(rejects)
    }

    fn acknowledges(&self) -> bool {
        self.source.acknowledges()
    }

    fn committed(&mut self, input: &CommittedInput) -> Result<()> {
        self.source.committed(input)
    }
}
