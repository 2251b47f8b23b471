//! Changes of a MERGE: from the rows of the join to rows that are written.
//!
//! ```text
//!   rows of the join ─▶ WHEN clauses, the first that is met ─┬─ DELETE: keys ───────────────┐
//!                                                            ├─ UPDATE: keys, new rows ─────┼─▶ table
//!                                                            └─ INSERT: new rows ───────────┘
//!                                                               └─▶ RETURNING
//! ```
//!
//! - Nothing is written before all rows of the join were read, and then in the order of [`TableChanges`].
//!
//! Memory: the keys and rows to write, the keys of matched rows, and the rows that RETURNING returns.

use crate::dml::changes::{TableChanges, batch_of, key_rows};
use crate::dml::merge::actions::{PlannedAction, PlannedWhen, returned_schema};
use crate::dml::merge::source::JoinColumns;
use crate::dml::returning::Returning;
use crate::error::{Error, Result};
use crate::parser::merge::Match;
use crate::session::core::SessionCore;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, StringArray, UInt32Array};
use datafusion::arrow::compute::{
    concat_batches, filter, filter_record_batch, not, sort_to_indices, take, take_record_batch,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use entresol_structures::KeyBytes;
use entresol_tables::Table;
use entresol_transactions::Transaction;
use std::collections::HashSet;
use std::sync::Arc;

/// Changes that a MERGE makes.
pub(crate) struct Changes {
    changes: TableChanges,
    /// Encoded keys of the matched rows that are changed.
    matched: HashSet<KeyBytes>,
    /// True if a row that is matched several times is changed with the first of them: UPDATE and DELETE. MERGE
    /// refuses it.
    pub(crate) takes_first: bool,
    pub(crate) returning: Option<Returning>,
    /// Columns that RETURNING takes.
    returned: SchemaRef,
    /// Number of changed rows.
    pub(crate) rows: u64,
}

/// Rows of a batch that one clause changed.
struct ChangedRows {
    /// Places of the rows in the batch of the join.
    places: UInt32Array,
    /// New rows, or the old ones of DELETE.
    rows: RecordBatch,
    action: &'static str,
}

impl Changes {
    pub(crate) fn new(
        session: &SessionCore,
        table: &Arc<Table>,
        joined: &JoinColumns,
        whens: &[PlannedWhen],
        returning: Option<Returning>,
    ) -> Changes {
        let assigned = whens.iter().filter_map(|when| match &when.action {
            PlannedAction::Update { set, .. } => Some(set.assigned.iter().copied()),
            _ => None,
        });
        Changes {
            changes: TableChanges::new(session, table, assigned.flatten()),
            matched: HashSet::new(),
            takes_first: false,
            returning,
            returned: returned_schema(session, table, joined),
            rows: 0,
        }
    }

    /// Adds what the clauses do with the rows of a batch of the join.
    pub(crate) async fn add(
        &mut self,
        session: &SessionCore,
        joined: &JoinColumns,
        whens: &[PlannedWhen],
        batch: &RecordBatch,
    ) -> Result<()> {
        let mut changed = Vec::new();
        for kind in Match::ALL {
            let mut places = joined.rows_of(kind, batch);
            for when in whens.iter().filter(|when| when.kind == kind) {
                if places.is_empty() {
                    break;
                }
                let mut rows = take_record_batch(batch, &places)?;
                let mut chosen = places.clone();
                let mut others = UInt32Array::from(Vec::<u32>::new());
                if let Some(condition) = &when.condition {
                    let met = condition.of(session, &joined.seen(kind, &rows)?).await?;
                    rows = filter_record_batch(&rows, &met)?;
                    chosen = numbers(&filter(&places, &met)?)?;
                    others = numbers(&filter(&places, &not(&met)?)?)?;
                }
                places = others;
                if self.takes_first {
                    let first = self.first_matches(joined.key_columns(&rows))?;
                    rows = filter_record_batch(&rows, &first)?;
                    chosen = numbers(&filter(&chosen, &first)?)?;
                }
                if rows.num_rows() > 0
                    && let Some(rows) = self.apply(session, joined, when, &rows).await?
                {
                    changed.push(ChangedRows { places: chosen, rows, action: when.action.name() });
                }
            }
        }
        self.add_returned(session, joined, batch, &changed).await
    }

    /// Applies a clause to rows of the join; returns the rows that it changed, if RETURNING asks for them.
    async fn apply(
        &mut self,
        session: &SessionCore,
        joined: &JoinColumns,
        when: &PlannedWhen,
        batch: &RecordBatch,
    ) -> Result<Option<RecordBatch>> {
        let rows = batch.num_rows();
        let is_changed = when.kind == Match::Matched && !matches!(when.action, PlannedAction::Nothing);
        if is_changed && !self.takes_first {
            self.check_once(joined.key_columns(batch))?;
        }
        let changed = match &when.action {
            PlannedAction::Nothing => return Ok(None),
            PlannedAction::Delete => {
                self.changes.delete(joined.key_columns(batch))?;
                self.returning.is_some().then(|| joined.seen(Match::BySource, batch)).transpose()?
            }
            PlannedAction::Update { set, writer } => {
                let seen = joined.seen(when.kind, batch)?;
                let values = set.values.of(session, &seen).await?;
                let mut new = joined.target_columns(batch).to_vec();
                for (array, &column) in values.columns().iter().zip(&set.assigned) {
                    new[column] = Arc::clone(array);
                }
                let new = writer.checked(session, &new, rows)?;
                self.changes.update(joined.key_columns(batch), &new)?;
                Some(new)
            }
            PlannedAction::Insert { values, writer } => {
                let values = values.of(session, &joined.seen(when.kind, batch)?).await?;
                let new = writer.checked(session, values.columns(), rows)?;
                self.changes.insert(new.clone())?;
                Some(new)
            }
        };
        self.rows += rows as u64;
        Ok(changed.filter(|_| self.returning.is_some()))
    }

    /// Refuses matched rows that the statement changes already.
    fn check_once(&mut self, keys: Vec<ArrayRef>) -> Result<()> {
        let table = self.changes.table();
        for key in key_rows(table, &batch_of(keys)?)? {
            if !self.matched.insert(table.encode_key(&key)?) {
                let message = "MERGE command cannot affect row a second time: more than one row of the source matches it";
                return Err(Error::coded("21000", message));
            }
        }
        Ok(())
    }

    /// Returns for each key of a matched row if it is the first time that it is matched.
    fn first_matches(&mut self, keys: Vec<ArrayRef>) -> Result<BooleanArray> {
        let table = self.changes.table();
        let keys = key_rows(table, &batch_of(keys)?)?;
        let first = keys.iter().map(|key| Ok(self.matched.insert(table.encode_key(key)?)));
        Ok(BooleanArray::from(first.collect::<Result<Vec<bool>>>()?))
    }

    /// Computes RETURNING of the changed rows of a batch of the join, in its order.
    async fn add_returned(
        &mut self,
        session: &SessionCore,
        joined: &JoinColumns,
        batch: &RecordBatch,
        changed: &[ChangedRows],
    ) -> Result<()> {
        let Some(returning) = &mut self.returning else { return Ok(()) };
        if changed.is_empty() {
            return Ok(());
        }
        let places: UInt32Array = changed.iter().flat_map(|changed| changed.places.iter()).collect();
        let order = sort_to_indices(&places, None, None)?;
        let actions =
            changed.iter().flat_map(|changed| std::iter::repeat_n(changed.action, changed.rows.num_rows()));
        let actions: ArrayRef = Arc::new(StringArray::from(actions.collect::<Vec<_>>()));
        let target = concat_batches(&changed[0].rows.schema(), changed.iter().map(|changed| &changed.rows))?;
        let target = take_record_batch(&target, &order)?;
        let places = take(&places, &order, None)?;
        let source = joined.source_columns(batch).iter().map(|array| take(array, &places, None));
        let mut columns = source.collect::<Result<Vec<_>, _>>()?;
        columns.extend_from_slice(target.columns());
        columns.push(take(&actions, &order, None)?);
        returning.add_batch(session, &RecordBatch::try_new(Arc::clone(&self.returned), columns)?).await
    }

    /// Writes all changes.
    pub(crate) fn write(&self, tx: &Transaction) -> Result<()> {
        self.changes.write(tx)
    }
}

fn numbers(array: &ArrayRef) -> Result<UInt32Array> {
    let numbers = array.as_any().downcast_ref::<UInt32Array>().cloned();
    numbers.ok_or_else(|| Error::Internal("a filtered array has another type".into()))
}
