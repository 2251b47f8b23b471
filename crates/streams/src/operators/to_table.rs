//! TO_TABLE: writes the tuples of a stream into a table (dissertation 5.1.1).
//!
//! - Columns are matched by name when the topology is built; INT widens to BIGINT. Columns that the stream
//!   lacks are NULL, or have their defaults ([`RowRules`]).
//! - `upsert` adds or replaces, `insert` fails on an existing key. Tuples that `delete_when` accepts delete
//!   the row with their key, whatever their other values; deleting a missing row has no effect.
//! - A batch of changes deletes the rows that are taken back and writes the others: of equal keys, what is taken back
//!   counts before what is inserted.
//! - `single_row` and `by_index` replace rows of a table without a key, by their row numbers ([`super::row_numbers`]).
//! - Its changes are sent to the TO_STREAMs that read each tuple ([`super::written_rows`]).
//! - Writes go to the topology's transaction only; at the commit punctuation the operator votes for its
//!   state.
//! - Stateless between batches: an abort needs no action here.

use crate::UTC;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::expression::{Expression, TuplePredicate, evaluate};
use crate::graph::OperatorArguments;
use crate::operators::group_index::GroupIndex;
use crate::operators::row_numbers::RowIdentity;
use crate::operators::row_rules::RowRules;
use crate::operators::written_rows::{RowsBefore, SentForm, written};
use crate::operators::{Context, Operator, Output, current_of};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Schema as ArrowSchema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use entresol_tables::{Column, DataType, Table, Value, arrow_schema};
use std::sync::Arc;

/// Reason for which a table cannot be written without its rules.
const HAS_RULES: &str = "the table has defaults or checks, which only INSERT and MERGE of a step compute";

/// Target of TO_TABLE: `"name".into()` upserts.
pub struct ToTable {
    pub(crate) table: String,
    pub(crate) key: Option<Vec<String>>,
    pub(crate) insert: bool,
    pub(crate) row_identity: RowIdentity,
    pub(crate) delete_when: Option<Box<dyn Expression>>,
    pub(crate) rules: Option<Box<dyn RowRules>>,
}

impl ToTable {
    /// Adds rows, or replaces those with the same key.
    pub fn upsert(table: &str) -> ToTable {
        ToTable {
            table: table.to_owned(),
            key: None,
            insert: false,
            row_identity: RowIdentity::ByKey,
            delete_when: None,
            rules: None,
        }
    }

    /// Replaces the one row of a table without a key: each tuple takes the place of the one before, as the results of an
    /// aggregate of all tuples do. Nothing else may write the table.
    pub fn single_row(table: &str) -> ToTable {
        ToTable { row_identity: RowIdentity::Only, ..ToTable::upsert(table) }
    }

    /// Adds rows to a table without a key, or replaces those with the same values in the columns of an index of it, of which
    /// NULL is one. Nothing else may write the table.
    pub fn by_index(table: &str, index: &str) -> ToTable {
        ToTable { row_identity: RowIdentity::ByIndex(index.to_owned()), ..ToTable::upsert(table) }
    }

    /// Adds rows; an existing key is an error of the transaction.
    pub fn insert(table: &str) -> ToTable {
        ToTable { insert: true, ..ToTable::upsert(table) }
    }

    /// Sets the key columns of the table, if it has to be created. Without them the stream's own key is used
    /// (that of an aggregate: its groups and the window's start), else the table gets the hidden key.
    pub fn key(mut self, columns: &[&str]) -> ToTable {
        self.key = Some(columns.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// Sets the rules of the table, which it must have if it has defaults or checks.
    pub fn rules(mut self, rules: impl RowRules + 'static) -> ToTable {
        self.rules = Some(Box::new(rules));
        self
    }

    /// Sets a predicate for the tuples that delete rows instead of writing them.
    pub fn delete_when(self, predicate: impl FnMut(&[Value]) -> bool + Send + 'static) -> ToTable {
        self.delete_where(TuplePredicate(predicate))
    }

    /// Sets an expression that is true for the tuples that delete rows instead of writing them.
    pub fn delete_where(mut self, predicate: impl Expression) -> ToTable {
        self.delete_when = Some(Box::new(predicate));
        self
    }
}

impl From<&str> for ToTable {
    fn from(table: &str) -> ToTable {
        ToTable::upsert(table)
    }
}

/// Mapping of a stream's columns to the visible columns of a table.
pub(crate) struct Mapping {
    /// Per table column, the stream's column if there is one.
    sources: Vec<Option<usize>>,
    /// Columns of the table that the stream has.
    given: Vec<usize>,
    /// Visible columns of the table.
    schema: SchemaRef,
    /// True if rows equal the tuples.
    identity: bool,
}

impl Mapping {
    /// Matches a stream's columns with a table's; `completes` if those that it lacks have their defaults.
    fn new(table: &Table, stream: &[Column], completes: bool) -> Result<Mapping, String> {
        let (target, defaults) = (table.schema().visible_columns(), &table.definition().defaults);
        let has_default = |at: usize| completes && defaults.get(at).is_some_and(Option::is_some);
        let table = table.name();
        if let Some(extra) = stream.iter().find(|column| !target.iter().any(|to| to.name == column.name)) {
            return Err(format!("table {table} has no column {}; select only its columns", extra.name));
        }
        let mut sources = Vec::with_capacity(target.len());
        for (at, to) in target.iter().enumerate() {
            let found = stream.iter().position(|column| column.name == to.name);
            match found.map(|index| stream[index].data_type) {
                None if to.nullable || has_default(at) => {}
                None => {
                    return Err(format!("table {table} needs column {}, which the stream lacks", to.name));
                }
                Some(from) if accepts(to.data_type, from) => {}
                Some(from) => {
                    let name = &to.name;
                    return Err(format!(
                        "column {name} of table {table} has type {}, but {from} in the stream",
                        to.data_type
                    ));
                }
            }
            sources.push(found);
        }
        let is_same =
            |(at, to): (usize, &Column)| sources[at] == Some(at) && stream[at].data_type == to.data_type;
        let identity = sources.len() == stream.len() && target.iter().enumerate().all(is_same);
        let given = (0..target.len()).filter(|&at| sources[at].is_some()).collect();
        Ok(Mapping { sources, given, schema: arrow_schema(target, UTC), identity })
    }

    /// Rows of the table.
    fn rows(&self, batch: &Batch) -> Result<RecordBatch, String> {
        if self.identity {
            return Ok(batch.rows().clone());
        }
        let fields = self.schema.fields().iter().zip(&self.sources);
        let arrays = fields.map(|(field, source)| match source {
            Some(index) => converted(batch.column(*index), field),
            None => Ok(new_null_array(field.data_type(), batch.len())),
        });
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        // The table checks NULLs, and says which column.
        let fields = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|error| error.to_string())
    }
}

/// Array of the stream as one of the field's type; an error for a value out of its range.
fn converted(array: &ArrayRef, field: &Field) -> Result<ArrayRef, String> {
    let out_of_range = |value: i32| {
        ArrowError::CastError(format!("column {}: {value} is out of range of SMALLINT", field.name()))
    };
    Ok(match (array.data_type(), field.data_type()) {
        (from, to) if from == to => Arc::clone(array),
        (ArrowType::Int32, ArrowType::Int16) => {
            let narrow = |value: i32| i16::try_from(value).map_err(|_| out_of_range(value));
            let narrowed = array.as_primitive::<Int32Type>().try_unary::<_, Int16Type, _>(narrow);
            Arc::new(narrowed.map_err(|error| error.to_string())?)
        }
        (ArrowType::Int16, ArrowType::Int32) => {
            Arc::new(array.as_primitive::<Int16Type>().unary::<_, Int32Type>(i32::from))
        }
        (ArrowType::Int16, ArrowType::Int64) => {
            Arc::new(array.as_primitive::<Int16Type>().unary::<_, Int64Type>(i64::from))
        }
        (ArrowType::Int32, ArrowType::Int64) => {
            Arc::new(array.as_primitive::<Int32Type>().unary::<_, Int64Type>(i64::from))
        }
        (ArrowType::Float32, ArrowType::Float64) => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float64Type>(f64::from))
        }
        (ArrowType::Decimal128(..), to @ ArrowType::Decimal128(..)) => {
            Arc::new(array.as_primitive::<Decimal128Type>().clone().with_data_type(to.clone()))
        }
        (from, to) => return Err(format!("column {} is {to}, its stream has {from}", field.name())),
    })
}

/// Returns true if values of type `from` can be stored as `to`. Precision and range are checked when a row is
/// written.
fn accepts(to: DataType, from: DataType) -> bool {
    match (to, from) {
        (DataType::Decimal { scale: to, .. }, DataType::Decimal { scale: from, .. }) => to == from,
        (DataType::SmallInt, DataType::Int) | (DataType::Int, DataType::SmallInt) => true,
        (DataType::BigInt, DataType::Int | DataType::SmallInt) => true,
        (DataType::Double, DataType::Real) => true,
        _ => to == from,
    }
}

pub(crate) struct ToTableOperator {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    /// Columns of the tuples.
    pub(crate) columns: Vec<Column>,
    pub(crate) mapping: Mapping,
    pub(crate) insert: bool,
    /// Identity of the row that a tuple replaces.
    pub(crate) row_identity: RowIdentity,
    pub(crate) delete_when: Option<Box<dyn Expression>>,
    pub(crate) rules: Option<Box<dyn RowRules>>,
    /// Form in which what it has written is sent.
    pub(crate) sent: SentForm,
}

impl ToTableOperator {
    /// Operator that inserts or upserts tuples of these columns into a table.
    pub(crate) fn new(
        made: &OperatorArguments<'_>,
        name: String,
        table: &str,
        columns: Vec<Column>,
        insert: bool,
        rules: Option<Box<dyn RowRules>>,
    ) -> Result<ToTableOperator> {
        let table = made.catalog.table(table)?;
        let invalid = |reason| Error::InvalidTopology { topology: made.topology.to_owned(), reason };
        if !table.is_plain() && rules.is_none() {
            return Err(invalid(format!("{HAS_RULES}: {}", table.name())));
        }
        let mapping = Mapping::new(&table, &columns, rules.is_some()).map_err(invalid)?;
        let (row_identity, delete_when, sent) = (RowIdentity::ByKey, None, SentForm::Nothing);
        Ok(ToTableOperator { name, table, columns, mapping, insert, row_identity, delete_when, rules, sent })
    }

    /// Rows of the table, with the numbers of those that they replace if it has no key.
    fn rows(&self, context: &Context<'_>, batch: &Batch) -> Result<RecordBatch> {
        let rows = self.mapping.rows(batch).map_err(|reason| self.refused(reason))?;
        self.row_identity.numbered(context, (&self.name, &self.table), rows)
    }

    /// Returns true if rows are completed and checked.
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.is_some() && !self.table.is_plain()
    }

    /// Rows with the defaults of the columns that are not `given`, checked.
    pub(crate) fn completed(&mut self, given: &[usize], rows: RecordBatch) -> Result<RecordBatch> {
        match &mut self.rules {
            Some(rules) if rows.num_rows() > 0 && !self.table.is_plain() => rules.complete(given, &rows),
            _ => Ok(rows),
        }
    }

    /// Rows of tuples, complete.
    fn completed_tuples(&mut self, rows: RecordBatch) -> Result<RecordBatch> {
        let given = std::mem::take(&mut self.mapping.given);
        let completed = self.completed(&given, rows);
        self.mapping.given = given;
        completed
    }

    fn write(&self, context: &Context<'_>, rows: &RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if self.insert {
            return Ok(self.table.append_changes(context.transaction()?, rows)?);
        }
        context.epoch.upsert(&self.table, rows)
    }

    /// Writes and deletes in the order of the tuples, runs of each together.
    fn write_and_delete(&self, context: &Context<'_>, rows: &RecordBatch, deletes: &[bool]) -> Result<()> {
        let mut start = 0;
        for run in deletes.chunk_by(|one, next| one == next) {
            let part = rows.slice(start, run.len());
            if run[0] {
                let keys = part.project(self.table.schema().key());
                let keys = keys.map_err(|error| self.refused(error.to_string()))?;
                self.table.delete_batch(context.transaction()?, &keys)?;
            } else {
                self.write(context, &part)?;
            }
            start += run.len();
        }
        Ok(())
    }

    /// Writes rows, or deletes those that are marked, and sends them where changes are read. No mark is none.
    pub(crate) fn write_changes(
        &self,
        context: &Context<'_>,
        rows: RecordBatch,
        deletes: Vec<bool>,
        output: &mut Output,
    ) -> Result<()> {
        let sends_changes = self.sent == SentForm::Changes && rows.num_rows() > 0;
        let before = sends_changes.then(|| {
            let are_new = self.insert && deletes.is_empty();
            RowsBefore::read(context, (&self.name, &self.table), &rows, are_new)
        });
        let before = before.transpose()?;
        if deletes.is_empty() {
            self.write(context, &rows)?;
        } else {
            self.write_and_delete(context, &rows, &deletes)?;
        }
        let sent = match (before, self.sent) {
            (Some(before), _) => before.changes(&rows, &deletes),
            (None, SentForm::Rows) => written(&self.table, &rows, &deletes),
            (None, _) => return Ok(()),
        };
        output.push(sent.map_err(|error| self.refused(error.to_string()))?.into());
        Ok(())
    }

    /// Rows of a batch of changes whose keys are deleted, and those that are written.
    fn divided(
        &self,
        rows: &RecordBatch,
        retracted: &BooleanArray,
    ) -> Result<(RecordBatch, RecordBatch), ArrowError> {
        let new = filter_record_batch(rows, &BooleanArray::new(!retracted.values(), None))?;
        let old = filter_record_batch(rows, retracted)?;
        let keys = |rows: &RecordBatch| rows.project(self.table.schema().key());
        let (new_keys, old_keys) = (keys(&new)?, keys(&old)?);
        let types: Vec<_> = old_keys.columns().iter().map(|key| key.data_type().clone()).collect();
        let (mut index, mut numbers) = (GroupIndex::new(&types, new.num_rows())?, Vec::new());
        index.number(new_keys.columns(), &mut numbers)?;
        let written = index.len() as u32;
        index.number(old_keys.columns(), &mut numbers)?;
        // A key that is written again need not be deleted before.
        let is_gone: BooleanArray = numbers.iter().map(|number| Some(*number >= written)).collect();
        Ok((filter_record_batch(&old, &is_gone)?, new))
    }

    fn refused(&self, reason: String) -> Error {
        Error::Tuple { operator: self.name.clone(), reason }
    }
}

impl Operator for ToTableOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn overlaps(&self) -> bool {
        true
    }

    fn takes_each_tuple_alone(&self) -> bool {
        true
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let rows = self.rows(context, batch)?;
        if let Some(retracted) = batch.retracted() {
            let (old, new) =
                self.divided(&rows, retracted).map_err(|error| self.refused(error.to_string()))?;
            if old.num_rows() > 0 {
                let deletes = vec![true; old.num_rows()];
                self.write_changes(context, old, deletes, output)?;
            }
            let new = self.completed_tuples(new)?;
            return self.write_changes(context, new, Vec::new(), output);
        }
        let deletes: Vec<bool> = match &mut self.delete_when {
            None => Vec::new(),
            Some(predicate) => {
                let deletes = evaluate(&self.name, &mut **predicate, batch.rows())?;
                let Some(deletes) = deletes.as_boolean_opt() else {
                    let reason = format!("the condition of deletes is {}", deletes.data_type());
                    return Err(self.refused(reason));
                };
                deletes.iter().map(|delete| delete == Some(true)).collect()
            }
        };
        let rows = self.completed_tuples(rows)?;
        self.write_changes(context, rows, deletes, output)
    }

    fn sealed(&mut self) {
        self.rules.iter_mut().for_each(|rules| rules.end_transaction());
    }

    fn aborted(&mut self) {
        self.sealed();
    }

    fn commit(&mut self, context: &Context<'_>, _output: &mut Output) -> Result<()> {
        context.epoch.vote(&self.table)
    }

    fn redefined(&mut self) -> Result<()> {
        let table = current_of(&self.name, &self.table, |_, _| true)?;
        let refused = |reason| Error::Tuple { operator: self.name.clone(), reason };
        match &mut self.rules {
            Some(rules) => rules.redefined(&table),
            None if table.is_plain() => {}
            None => return Err(refused(HAS_RULES.to_owned())),
        }
        self.mapping = Mapping::new(&table, &self.columns, self.rules.is_some()).map_err(refused)?;
        self.table = table;
        Ok(())
    }
}
