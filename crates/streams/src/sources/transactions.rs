//! Changes in the transactions of the database that they come from: files of Debezium's events, and of its transaction marks.
//!
//! ```text
//!   marks   {"status": "END", "id": "7", "data_collections": [{"data_collection": "s.a", "event_count": 2}]}
//!   data    (transaction 7) (transaction 7)    │ two events of the collection s.a, then a commit punctuation
//! ```
//!
//! - The marks are in the order of commits, and each source of a topology reads all of them: it has a part, perhaps
//!   empty, in each transaction. So the parts of several sources are of one transaction, which its id confirms
//!   ([`Source::transaction`]).
//! - An event is read when the END of its transaction is there: the part is complete when so many events of the
//!   collection have come as it says. Rejected lines count as events. An event of another transaction is an error.
//! - Where events say their `total_order`, it grows within a transaction: the file has them in the order in which the
//!   database made them, and each once. Anything else is an error, as the last row of a key would be another.
//! - Events of no transaction (of a snapshot) are in the one that follows.
//! - Both files are splits of the source: their positions are committed with the transaction, so nothing of it is there in
//!   part after a crash.
//! - Memory: a batch of either file.

use crate::element::Punctuation;
use crate::error::{Error, Result};
use crate::sources::envelopes::{TRANSACTION, TRANSACTION_ORDER};
use crate::sources::files::{FileFormat, FilesSource};
use crate::sources::{Next, Position, Positions, Reject, Source, SourceBatch, Split, SplitPosition};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use entresol_tables::json::{JsonValue, parse};
use entresol_tables::{BatchBuilder, Column, DataType, Modifier};
use std::collections::VecDeque;
use std::sync::Arc;

/// Columns of a transaction mark.
const STATUS: usize = 0;
const ID: usize = 1;
const EVENT_COUNT: usize = 2;
const COLLECTIONS: usize = 3;

/// Columns of the data that the source's tuples are without.
const HIDDEN: [&str; 2] = [TRANSACTION, TRANSACTION_ORDER];

/// Files of changes, and a file of the marks of their transactions; see the [module](self).
pub struct TransactionSource {
    data: FilesSource,
    marks: FilesSource,
    /// Name of the marks' file, which is a split beside those of the data.
    marks_path: String,
    /// Name of the data in marks; none counts all events of a transaction.
    collection: Option<String>,
    /// Ends of transactions that were read and are not open yet, and lines behind them that are no marks.
    ends: VecDeque<End>,
    mark_rejects: Vec<Reject>,
    open: Option<End>,
    /// Events of the open transaction so far, and the place of the last one in it.
    events: u64,
    order: Option<i64>,
    batch: Option<DataBatch>,
    /// Transaction whose punctuation is next.
    complete: Option<Arc<str>>,
    /// Transaction whose punctuation was the last one.
    marked: Option<Arc<str>>,
}

/// End of a transaction.
#[derive(Debug)]
struct End {
    id: Arc<str>,
    /// Number of its events in this source, or the reason why it is not known.
    events: Result<u64, String>,
    position: Position,
    split: Option<Split>,
    /// Lines before it that are no marks.
    rejects: Vec<Reject>,
}

/// Batch of the data, of which a part was taken. A rejected line ends it.
struct DataBatch {
    tuples: RecordBatch,
    positions: Vec<Position>,
    rejects: Vec<Reject>,
    end: Position,
    split: Option<Split>,
    taken: usize,
}

fn mark_columns() -> Vec<Column> {
    vec![
        Column::new("status", DataType::Varchar).not_null(),
        Column::new("id", DataType::Varchar).not_null(),
        Column::new("event_count", DataType::BigInt),
        Column::new("data_collections", DataType::Varchar).with_modifier(Modifier::Json),
    ]
}

impl TransactionSource {
    /// Creates a source of changes of which each has its transaction and its place there in the last columns, [`TRANSACTION`]
    /// and [`TRANSACTION_ORDER`]; its tuples are without these.
    pub fn new(
        data: FilesSource,
        marks_path: &str,
        collection: Option<String>,
        tails: bool,
    ) -> TransactionSource {
        let marks = FilesSource::new(marks_path, mark_columns(), FileFormat::Json);
        TransactionSource {
            data,
            marks: if tails { marks.tail() } else { marks },
            marks_path: marks_path.to_owned(),
            collection,
            ends: VecDeque::new(),
            mark_rejects: Vec::new(),
            open: None,
            events: 0,
            order: None,
            batch: None,
            complete: None,
            marked: None,
        }
    }

    fn failed(&self, reason: String) -> Error {
        Error::File { path: self.marks_path.clone().into(), reason }
    }

    /// Reads marks until the end of a transaction is there; returns what there is instead.
    fn read_ends(&mut self) -> Result<Option<Next>> {
        while self.ends.is_empty() {
            match self.marks.next(usize::MAX)? {
                Next::Batch(batch) => self.note_ends(batch),
                other => return Ok(Some(other)),
            }
        }
        Ok(None)
    }

    fn note_ends(&mut self, batch: SourceBatch) {
        let strings = |column: usize| batch.tuples.column(column).as_string::<i32>();
        let (status, ids, collections) = (strings(STATUS), strings(ID), strings(COLLECTIONS));
        let counts = batch.tuples.column(EVENT_COUNT).as_primitive::<Int64Type>();
        let mut rejects = batch.rejects.into_iter().peekable();
        for at in 0..batch.tuples.num_rows() {
            while let Some(reject) = rejects.next_if(|reject| reject.tuples_before <= at) {
                self.mark_rejects.push(Reject { tuples_before: 0, ..reject });
            }
            if status.value(at) != "END" {
                continue;
            }
            let count = (!counts.is_null(at)).then(|| counts.value(at));
            let collections = (!collections.is_null(at)).then(|| collections.value(at));
            let events = events_of(self.collection.as_deref(), count, collections);
            let rejects = std::mem::take(&mut self.mark_rejects);
            let (position, split) = (batch.positions.after(at), batch.split.clone());
            self.ends.push_back(End { id: ids.value(at).into(), events, position, split, rejects });
        }
        self.mark_rejects.extend(rejects.map(|reject| Reject { tuples_before: 0, ..reject }));
    }

    /// Next events of the open transaction.
    fn part(&mut self, id: &str, all: u64) -> Result<Next> {
        let mut batch = match self.batch.take() {
            Some(batch) => batch,
            None => match self.data.next(usize::MAX)? {
                Next::Batch(batch) => DataBatch::new(batch),
                Next::End => {
                    let events = self.events;
                    return Err(self.failed(format!(
                        "transaction {id} has {events} of its {all} events at the end of the data"
                    )));
                }
                other => return Ok(other),
            },
        };
        let taken = batch.take(id, all - self.events, &mut self.order);
        let taken = taken.map_err(|reason| self.failed(reason))?;
        let other = batch.next_id().map(str::to_owned);
        if !batch.is_taken() {
            self.batch = Some(batch);
        }
        match (taken, other) {
            (Some((part, events)), _) => {
                self.events += events;
                Ok(Next::Batch(part))
            }
            (None, Some(other)) => Err(self.failed(format!(
                "transaction {id} has {} of its {all} events before the first of transaction {other}",
                self.events
            ))),
            (None, None) => Ok(Next::Idle),
        }
    }

    /// Batch without tuples behind the mark of a transaction, which commits its position.
    fn completed(&mut self, end: End) -> Next {
        self.complete = Some(end.id);
        Next::Batch(SourceBatch {
            tuples: BatchBuilder::new(&self.columns(), 0).finish(),
            positions: Positions::Listed(Vec::new()),
            rejects: end.rejects,
            end: end.position,
            split: end.split,
        })
    }
}

impl Source for TransactionSource {
    fn columns(&self) -> Vec<Column> {
        let mut columns = self.data.columns();
        let hidden = columns.split_off(columns.len().saturating_sub(HIDDEN.len()));
        debug_assert!(hidden.iter().map(|column| column.name.as_str()).eq(HIDDEN), "{hidden:?} are hidden");
        columns
    }

    fn has_splits(&self) -> bool {
        true
    }

    fn open(&mut self, _from: Option<Position>) -> Result<()> {
        self.open_splits(None, &[])
    }

    /// The position of the source is that of either file, so only those of the splits count.
    fn open_splits(&mut self, _from: Option<Position>, splits: &[SplitPosition]) -> Result<()> {
        let is_mark = |split: &&SplitPosition| *split.split.name == *self.marks_path;
        let (marks, data): (Vec<&SplitPosition>, Vec<&SplitPosition>) = splits.iter().partition(is_mark);
        self.data.open_splits(None, &data.into_iter().cloned().collect::<Vec<_>>())?;
        self.marks.open_splits(None, &marks.into_iter().cloned().collect::<Vec<_>>())
    }

    fn next(&mut self, _tuples_max: usize) -> Result<Next> {
        if let Some(id) = self.complete.take() {
            self.marked = Some(id);
            return Ok(Next::Punctuation(Punctuation::Commit));
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                if let Some(other) = self.read_ends()? {
                    return Ok(other);
                }
                (self.events, self.order) = (0, None);
                let Some(open) = self.ends.pop_front() else { return Ok(Next::Idle) };
                open
            }
        };
        let events = match &open.events {
            Ok(events) => *events,
            Err(reason) => return Err(self.failed(format!("END of transaction {}: {reason}", open.id))),
        };
        if self.events == events {
            return Ok(self.completed(open));
        }
        let part = self.part(&open.id, events);
        self.open = Some(open);
        part
    }

    fn transaction(&self) -> Option<Arc<str>> {
        self.marked.clone()
    }
}

/// Number of a transaction's events in a collection.
fn events_of(collection: Option<&str>, count: Option<i64>, collections: Option<&str>) -> Result<u64, String> {
    let Some(collection) = collection else {
        let count = count.and_then(|count| u64::try_from(count).ok());
        return count.ok_or_else(|| "it has no event_count".to_owned());
    };
    let Some(text) = collections else { return Ok(0) };
    let json = parse(text).map_err(|error| format!("data_collections: {error}"))?;
    let list = match &json.value {
        JsonValue::Array(list) => list.as_slice(),
        JsonValue::Null => &[],
        _ => return Err("data_collections is not an array".to_owned()),
    };
    for of in list {
        let name = of.field("data_collection").map(|name| &name.value);
        if !matches!(name, Some(JsonValue::String(name)) if name == collection) {
            continue;
        }
        let Some(JsonValue::Number(number)) = of.field("event_count").map(|count| &count.value) else {
            return Err(format!("data_collection {collection} has no event_count"));
        };
        return number.parse().map_err(|_| format!("the event_count of {collection} is {number}"));
    }
    Ok(0)
}

impl DataBatch {
    fn new(batch: SourceBatch) -> DataBatch {
        let positions = (0..batch.tuples.num_rows()).map(|at| batch.positions.after(at)).collect();
        let SourceBatch { tuples, rejects, end, split, .. } = batch;
        DataBatch { tuples, positions, rejects, end, split, taken: 0 }
    }

    /// One of the columns that are hidden.
    fn hidden(&self, number: usize) -> &ArrayRef {
        self.tuples.column(self.tuples.num_columns() - HIDDEN.len() + number)
    }

    /// Notes the place of the next tuple in its transaction, which is behind the last one.
    fn note_order(&self, id: &str, last: &mut Option<i64>) -> Result<(), String> {
        let orders = self.hidden(1).as_primitive::<Int64Type>();
        if orders.is_null(self.taken) {
            return Ok(());
        }
        let order = orders.value(self.taken);
        match last.replace(order) {
            Some(last) if last >= order => Err(format!(
                "transaction {id} has the event of total_order {order} behind that of {last}: they are in another order than they were made in, or twice"
            )),
            _ => Ok(()),
        }
    }

    /// Transaction of the tuple that is next.
    fn next_id(&self) -> Option<&str> {
        let ids = self.hidden(0).as_string::<i32>();
        (self.taken < ids.len() && !ids.is_null(self.taken)).then(|| ids.value(self.taken))
    }

    fn is_taken(&self) -> bool {
        self.taken == self.tuples.num_rows() && self.rejects.is_empty()
    }

    /// Takes at most so many events of a transaction, and those of none before them, with the number of the former; none if
    /// the next one is of another transaction. `order` is the place of the last one.
    fn take(
        &mut self,
        id: &str,
        events_max: u64,
        order: &mut Option<i64>,
    ) -> Result<Option<(SourceBatch, u64)>, String> {
        let (first, mut events) = (self.taken, 0);
        while events < events_max && self.taken < self.tuples.num_rows() {
            match self.next_id() {
                Some(next) if next != id => break,
                Some(_) => {
                    self.note_order(id, order)?;
                    events += 1;
                }
                None => {}
            }
            self.taken += 1;
        }
        let mut rejects = Vec::new();
        if events < events_max && self.taken == self.tuples.num_rows() {
            let tuples_before = self.taken - first;
            rejects.extend(self.rejects.drain(..).map(|reject| Reject { tuples_before, ..reject }));
            events += rejects.len() as u64;
        }
        if self.taken == first && rejects.is_empty() {
            return Ok(None);
        }
        let tuples = self.tuples.slice(first, self.taken - first);
        let columns: Vec<usize> = (0..tuples.num_columns() - HIDDEN.len()).collect();
        let tuples = tuples.project(&columns).map_err(|error| error.to_string())?;
        let positions = self.positions[first..self.taken].to_vec();
        let end = if self.is_taken() { self.end } else { positions.last().copied().unwrap_or(self.end) };
        let split = self.split.clone();
        let part = SourceBatch { tuples, positions: Positions::Listed(positions), rejects, end, split };
        Ok(Some((part, events)))
    }
}
