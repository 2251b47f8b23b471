//! Rows of the state table of groups: one of each group, or several where the states of its aggregates are large.
//!
//! The states of some functions grow with their input: a median has all values, an aggregate of DISTINCT all different ones.
//! Such a state is a string ([`super::group_states`]), and a row has a limit. So the table of a group with such a function has
//! three columns more:
//!
//! ```string
//!   key, part 0, other columns, strings        parts 1   rest NULL      all strings together are short
//!   key, part 0, other columns, strings NULL   parts 3   rest NULL      else: they are in the rows behind it,
//!   key, part 1, other columns, strings NULL   parts 3   rest "5,-,…"   their lengths first, in pieces
//!   key, part 2, other columns, strings NULL   parts 3   rest "…"
//! ```
//!
//! # Invariants
//!
//! - `part` is the last column of the key, so the rows of a group follow each other, the first one being part 0.
//! - Row 0 says how many there are, and no row is behind the last one: a state that gets shorter keeps its rows, with an
//!   empty `rest`, so that who deletes a group knows all of its rows by their number.
//! - All rows of a group are written in one transaction, so a crash leaves all of them as of a commit.
//!
//! # Memory
//!
//! A state of more than [`GROUP_STATE_BYTES_MAX`] is an error. Rows are read [`LOAD_PARTS`] at a time and some more.

use crate::error::{Error, Result};
use crate::operators::accumulator::BoundAggregate;
use crate::operators::stored_windows::{LOAD_ROWS, read_while};
use crate::{GROUP_STATE_BYTES_MAX, UTC};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray, UInt32Array};
use arrow_schema::{ArrowError, DataType as ArrowType, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use entresol_tables::{Column, Cursor, DataType, Row, StoredRows, Table, Value, arrow_schema, rows_of};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Columns of a table with groups of several rows.
const PART: &str = "part";
const PARTS: &str = "parts";
const REST: &str = "rest";
/// Bytes of the strings of a group that stay in its first row.
const INLINE_BYTES_MAX: usize = 8 << 10;
/// Bytes of the strings in each of the other rows.
const PART_BYTES_MAX: usize = 8 << 10;
/// Rows of a table with groups of several rows that are read together.
const LOAD_PARTS: usize = 512;

/// Adds the columns of groups of several rows, and the one of the key.
pub(crate) fn add_parts(columns: &mut Vec<Column>, key: &mut Vec<String>) {
    let mut names: Vec<String> = Vec::with_capacity(3);
    for (name, data_type) in [(PART, DataType::Int), (PARTS, DataType::Int), (REST, DataType::Varchar)] {
        let mut name = name.to_owned();
        while columns.iter().any(|column| column.name == name) {
            name.push('_');
        }
        let column = Column::new(name.clone(), data_type);
        columns.push(if data_type == DataType::Int { column.not_null() } else { column });
        names.push(name);
    }
    key.push(names.swap_remove(0));
}

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct StateRows {
    operator: String,
    /// Columns of the table.
    pub(crate) schema: SchemaRef,
    parts: Option<Parts>,
}

/// Places of the columns of groups of several rows.
#[derive(Clone)]
struct Parts {
    /// Column `part`; behind it are `parts` and `rest`.
    part: usize,
    /// Columns of strings that may be large.
    strings: Vec<usize>,
}

impl StateRows {
    /// Rows of a table, which has the columns of groups of several rows if it `is_divided`.
    pub(crate) fn new(
        operator: &str,
        table: &Table,
        aggregates: &[BoundAggregate],
        is_divided: bool,
    ) -> StateRows {
        let schema = arrow_schema(table.schema().visible_columns(), UTC);
        let parts = is_divided.then(|| {
            let part = schema.fields().len() - 3;
            let states: usize = aggregates.iter().map(|aggregate| aggregate.state_columns().len()).sum();
            let is_string = |at: &usize| *schema.field(*at).data_type() == ArrowType::Utf8;
            Parts { part, strings: (part - states..part).filter(is_string).collect() }
        });
        StateRows { operator: operator.to_owned(), schema, parts }
    }

    /// Returns true if a group may have several rows.
    pub(crate) fn is_divided(&self) -> bool {
        self.parts.is_some()
    }

    fn failed(&self, error: &ArrowError) -> Error {
        self.refused(error.to_string())
    }

    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.operator.clone(), reason }
    }

    fn malformed(&self) -> Error {
        self.refused("a row of its state table has not the parts that it should have".to_owned())
    }

    /// Rows of groups with these columns, which are all but those of the parts. `stored` has the numbers of rows that the
    /// table may have of each; it gets those that it has then.
    pub(crate) fn rows(&self, columns: Vec<ArrayRef>, stored: &mut [u32]) -> Result<RecordBatch> {
        let Some(parts) = &self.parts else {
            stored.fill(1);
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns);
            return rows.map_err(|error| self.failed(&error));
        };
        let (mut from, mut numbers, mut rests) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_taken = Vec::new();
        for (row, stored) in stored.iter_mut().enumerate() {
            let strings = parts.strings.iter().map(|at| {
                let string = columns[*at].as_string::<i32>();
                string.is_valid(row).then(|| string.value(row))
            });
            let pieces = self.pieces(&strings.collect::<Vec<Option<&str>>>())?;
            *stored = (*stored).max(1 + pieces.len() as u32);
            let is_divided = !pieces.is_empty();
            rests.push(None);
            rests.extend(pieces.into_iter().map(Some));
            from.resize(from.len() + *stored as usize, row as u32);
            rests.resize(from.len(), Some(String::new()));
            numbers.extend(0..*stored as i32);
            is_taken.push(is_divided);
            is_taken.resize(from.len(), true);
        }
        let counts = from.iter().map(|row| stored[*row as usize] as i32);
        let counts: ArrayRef = Arc::new(Int32Array::from_iter_values(counts));
        let (from, is_taken) = (UInt32Array::from(from), BooleanArray::from(is_taken));
        let mut divided = Vec::with_capacity(columns.len() + 3);
        for (at, column) in columns.iter().enumerate() {
            let column = take(column, &from, None).map_err(|error| self.failed(&error))?;
            let is_string = parts.strings.contains(&at);
            let column = if is_string { nullif(&column, &is_taken) } else { Ok(column) };
            divided.push(column.map_err(|error| self.failed(&error))?);
        }
        divided.push(Arc::new(Int32Array::from(numbers)));
        divided.extend([counts, Arc::new(StringArray::from(rests)) as ArrayRef]);
        RecordBatch::try_new(Arc::clone(&self.schema), divided).map_err(|error| self.failed(&error))
    }

    /// Pieces of the strings of a group; none if they are short.
    fn pieces(&self, strings: &[Option<&str>]) -> Result<Vec<String>> {
        let bytes: usize = strings.iter().flatten().map(|string| string.len()).sum();
        if bytes <= INLINE_BYTES_MAX {
            return Ok(Vec::new());
        }
        if bytes > GROUP_STATE_BYTES_MAX {
            return Err(self.refused(format!(
                "the state of a group has {bytes} bytes, and may have {GROUP_STATE_BYTES_MAX}: its functions keep all values"
            )));
        }
        let lengths =
            strings.iter().map(|string| string.map_or("-".to_owned(), |string| string.len().to_string()));
        let mut joined = lengths.collect::<Vec<String>>().join(",");
        joined.push(';');
        joined.extend(strings.iter().flatten().copied());
        let (mut pieces, mut rest) = (Vec::new(), joined.as_str());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.floor_char_boundary(PART_BYTES_MAX));
            pieces.push(piece.to_owned());
            rest = behind;
        }
        Ok(pieces)
    }

    /// Keys of rows of groups: these columns, which are in these places in the table, for the number of rows that each has.
    pub(crate) fn keys(&self, columns: Vec<ArrayRef>, places: &[usize], rows: &[u32]) -> Result<RecordBatch> {
        self.keys_from(0, columns, places, rows)
    }

    fn keys_from(
        &self,
        first: u32,
        mut columns: Vec<ArrayRef>,
        places: &[usize],
        rows: &[u32],
    ) -> Result<RecordBatch> {
        let mut places = places.to_vec();
        if let Some(parts) = &self.parts {
            let repeated =
                rows.iter().enumerate().flat_map(|(at, rows)| (first..*rows).map(move |_| at as u32));
            let repeated = UInt32Array::from_iter_values(repeated);
            for column in &mut columns {
                *column = take(column, &repeated, None).map_err(|error| self.failed(&error))?;
            }
            let numbers = rows.iter().flat_map(|rows| first as i32..*rows as i32);
            columns.push(Arc::new(Int32Array::from_iter_values(numbers)));
            places.push(parts.part);
        }
        let schema = self.schema.project(&places);
        let keys = schema.and_then(|schema| RecordBatch::try_new(Arc::new(schema), columns));
        keys.map_err(|error| self.failed(&error))
    }

    /// Key of a row of a group with these values, and the keys of all rows of the group if it is the first one. `value` gives
    /// the value of a column of the row.
    pub(crate) fn keys_of_row(&self, group: Row, value: impl Fn(usize) -> Value) -> (Row, Vec<Row>) {
        let Some(parts) = &self.parts else { return (group.clone(), vec![group]) };
        let number = |column: usize| match value(column) {
            Value::Int(number) => number,
            _ => 0,
        };
        let with = |part: i32| -> Row { group.iter().cloned().chain([Value::Int(part)]).collect() };
        let part = number(parts.part);
        let rows = if part == 0 { number(parts.part + 1) } else { 0 };
        (with(part), (0..rows).map(with).collect())
    }

    /// Place behind all rows of a group, however many it gets, and before those of the next one.
    pub(crate) fn behind(&self, mut group: Row) -> Row {
        if self.is_divided() {
            group.push(Value::Int(i32::MAX));
        }
        group
    }

    /// Numbers of rows of the groups that [`StateRows::read`] or [`StateRows::look_up`] gave.
    pub(crate) fn counts(&self, groups: &RecordBatch) -> Vec<u32> {
        match (&self.parts, groups.columns().last()) {
            (Some(_), Some(counts)) => {
                counts.as_primitive::<Int32Type>().values().iter().map(|count| *count as u32).collect()
            }
            _ => vec![1; groups.num_rows()],
        }
    }

    /// Calls `f` with groups, some at a time: their columns with the joined strings, and `parts` behind them if there is such a
    /// column.
    pub(crate) fn read(
        &self,
        table: &Table,
        tx: &Transaction,
        cursor: Cursor,
        mut f: impl FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        self.read_while(table, tx, cursor, LOAD_ROWS, |groups| f(groups).map(|()| true)).map(drop)
    }

    /// The same while it returns true, about `wanted` groups at a time if each has one row; true at the end.
    pub(crate) fn read_while(
        &self,
        table: &Table,
        tx: &Transaction,
        cursor: Cursor,
        wanted: usize,
        mut f: impl FnMut(&RecordBatch) -> Result<bool>,
    ) -> Result<bool> {
        let Some(parts) = &self.parts else {
            return read_while(table, &self.schema, tx, cursor, wanted, f);
        };
        let mut waiting: Option<RecordBatch> = None;
        let is_end = read_while(table, &self.schema, tx, cursor, wanted.min(LOAD_PARTS), |rows| {
            let all = match waiting.take() {
                Some(before) => concat_batches(&self.schema, [&before, rows]),
                None => Ok(rows.clone()),
            };
            let all = all.map_err(|error| self.failed(&error))?;
            // The last group may go on in the next rows.
            let numbers = all.column(parts.part).as_primitive::<Int32Type>().values();
            let last = numbers.iter().rposition(|number| *number == 0).unwrap_or(0);
            waiting = Some(all.slice(last, all.num_rows() - last));
            if last > 0 { f(&self.joined(parts, &all.slice(0, last))?) } else { Ok(true) }
        })?;
        match waiting.filter(|rows| is_end && rows.num_rows() > 0) {
            Some(rows) => f(&self.joined(parts, &rows)?),
            None => Ok(is_end),
        }
    }

    /// Groups of consecutive rows.
    fn joined(&self, parts: &Parts, rows: &RecordBatch) -> Result<RecordBatch> {
        let numbers = rows.column(parts.part).as_primitive::<Int32Type>().values();
        let pieces = rows.column(parts.part + 2).as_string::<i32>();
        let (mut first, mut rests) = (Vec::new(), Vec::<String>::new());
        for (row, number) in numbers.iter().enumerate() {
            if *number == 0 {
                first.push(row as u32);
                rests.push(String::new());
            } else if let Some(rest) = rests.last_mut() {
                rest.push_str(pieces.value(row));
            } else {
                return Err(self.malformed());
            }
        }
        let first = UInt32Array::from(first);
        let columns = rows.columns()[..parts.part + 2].iter().map(|column| take(column, &first, None));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|error| self.failed(&error))?;
        self.with_strings(parts, columns, 0, &rests)
    }

    /// Groups with these columns from a place on, the last of which are `part` and `parts`, and what is in their other rows.
    fn with_strings(
        &self,
        parts: &Parts,
        mut columns: Vec<ArrayRef>,
        skipped: usize,
        rests: &[String],
    ) -> Result<RecordBatch> {
        for (number, at) in parts.strings.iter().enumerate() {
            let stored = columns[at - skipped].as_string::<i32>();
            let string = |row: usize| {
                if rests[row].is_empty() {
                    Some(stored.is_valid(row).then(|| stored.value(row)))
                } else {
                    text_of(&rests[row], number)
                }
            };
            let strings = (0..stored.len()).map(string).collect::<Option<StringArray>>();
            columns[at - skipped] = Arc::new(strings.ok_or_else(|| self.malformed())?);
        }
        columns.remove(parts.part - skipped);
        let mut places: Vec<usize> = (skipped..parts.part).collect();
        places.push(parts.part + 1);
        let schema = self.schema.project(&places);
        let groups = schema.and_then(|schema| RecordBatch::try_new(Arc::new(schema), columns));
        groups.map_err(|error| self.failed(&error))
    }

    /// Looks groups up by their keys, which are these columns in these places of the table. Returns which of them are
    /// there, and their columns from `skipped` on, as those of [`StateRows::read`].
    pub(crate) fn look_up(
        &self,
        table: &Table,
        tx: &Transaction,
        (columns, places): (Vec<ArrayRef>, &[usize]),
        skipped: usize,
    ) -> Result<(Vec<usize>, RecordBatch)> {
        let groups = columns.first().map_or(1, |column| column.len());
        let keys = self.keys(columns.clone(), places, &vec![1; groups])?;
        let width = self.parts.as_ref().map_or(self.schema.fields().len(), |parts| parts.part + 2);
        let wanted: Vec<usize> = (skipped..width).collect();
        let (found, stored) = self.get(table, tx, &keys, &wanted)?;
        let Some(parts) = &self.parts else { return Ok((found, stored)) };
        let counts = self.counts(&stored);
        let mut rests = vec![String::new(); found.len()];
        if counts.iter().any(|count| *count > 1) {
            let of_found = UInt32Array::from_iter_values(found.iter().map(|at| *at as u32));
            let of_found = columns.iter().map(|column| take(column, &of_found, None));
            let of_found = of_found.collect::<Result<Vec<_>, _>>().map_err(|error| self.failed(&error))?;
            let keys = self.keys_from(1, of_found, places, &counts)?;
            let (there, pieces) = self.get(table, tx, &keys, &[parts.part + 2])?;
            let mut in_order: Vec<Option<usize>> = vec![None; keys.num_rows()];
            there.iter().enumerate().for_each(|(row, at)| in_order[*at] = Some(row));
            let (pieces, mut in_order) = (pieces.column(0).as_string::<i32>(), in_order.into_iter());
            for (rest, count) in rests.iter_mut().zip(&counts) {
                for row in in_order.by_ref().take(*count as usize - 1) {
                    rest.push_str(pieces.value(row.ok_or_else(|| self.malformed())?));
                }
            }
        }
        Ok((found, self.with_strings(parts, stored.columns().to_vec(), skipped, &rests)?))
    }

    /// Columns of the rows with these keys, with the places of the keys that are there.
    fn get(
        &self,
        table: &Table,
        tx: &Transaction,
        keys: &RecordBatch,
        columns: &[usize],
    ) -> Result<(Vec<usize>, RecordBatch)> {
        let keys = rows_of(keys)?;
        let arrow = self.schema.project(columns).map_err(|error| self.failed(&error))?;
        let mut rows = StoredRows::new(table.name(), table.schema(), columns, Arc::new(arrow), keys.len());
        let mut found = Vec::with_capacity(keys.len());
        table.get_many_with(tx, &keys, |at, row| {
            found.push(at);
            rows.push_view(&row);
        })?;
        Ok((found, rows.finish()?))
    }
}

/// Text with this number among those of a group; the inner value is none if it is NULL, the outer one if there is none.
fn text_of(rest: &str, number: usize) -> Option<Option<&str>> {
    let (lengths, strings) = rest.split_once(';')?;
    let mut from = 0_usize;
    for (at, length) in lengths.split(',').enumerate() {
        let length = if length == "-" { None } else { Some(length.parse::<usize>().ok()?) };
        if at == number {
            return match length {
                None => Some(None),
                Some(length) => strings.get(from..from.checked_add(length)?).map(Some),
            };
        }
        from = from.checked_add(length.unwrap_or(0))?;
    }
    None
}
