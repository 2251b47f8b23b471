//! Rows of the state table of a running aggregate: groups as they are read and written, and those whose life is over.
//!
//! A row is the group columns without NULL, the number that says which are NULL ([`super::stored_keys`]), the number of
//! tuples, the time of the last one if lives end, and the accumulators.

use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::running_state::{GroupKey, RunningState};
use crate::operators::stored_keys;
use crate::operators::stored_windows::read_batches;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use entresol_tables::{Row, ScanRange, StoredRows, rows_of};
use entresol_transactions::Transaction;
use std::ops::Bound;
use std::sync::Arc;

/// Rows of the state table that are looked at for groups whose life is over, beside two for each changed group.
const SWEPT_ROWS_MIN: usize = 64;

impl RunningState {
    /// Reads the rows of groups, as far as there are some.
    pub(super) fn look_up(&mut self, tx: &Transaction, slots: &[u32], keys: &[ArrayRef]) -> Result<()> {
        let width = self.layout.groups.len() + 1;
        let columns = stored_keys::stored(keys, slots.len()).map_err(|error| self.failed(&error))?;
        let key_schema = self.schema.project(&(0..width).collect::<Vec<_>>());
        let keys = key_schema.and_then(|schema| RecordBatch::try_new(Arc::new(schema), columns));
        let keys = rows_of(&keys.map_err(|error| self.failed(&error))?)?;
        let projection: Vec<usize> = (width..self.schema.fields().len()).collect();
        let arrow = self.schema.project(&projection).map_err(|error| self.failed(&error))?;
        let (table, arrow) = (Arc::clone(&self.table), Arc::new(arrow));
        let mut rows = StoredRows::new(table.name(), table.schema(), &projection, arrow, keys.len());
        let mut found = Vec::new();
        table.get_many_with(tx, &keys, |at, row| {
            found.push(slots[at]);
            rows.push_view(&row);
        })?;
        let stored = rows.finish()?;
        let malformed = || Error::Tuple {
            operator: self.name.clone(),
            reason: format!("a row of state table {} is not one of this operator", table.name()),
        };
        let counts = stored.column(0).as_primitive_opt::<Int64Type>().ok_or_else(malformed)?;
        let times =
            self.layout.ttl_us.map(|_| stored.column(1).as_primitive_opt::<TimestampMicrosecondType>());
        for (row, slot) in found.iter().enumerate() {
            let group = &mut self.groups[*slot as usize];
            (group.rows, group.is_stored) = (counts.value(row), true);
            if let Some(times) = times {
                group.last = EventTime::from_micros(times.ok_or_else(malformed)?.value(row));
            }
        }
        let first = 1 + usize::from(self.layout.ttl_us.is_some());
        let mut columns = stored.columns()[first..].iter();
        let mut aggregates = self.layout.aggregates.iter().zip(&mut self.accumulators);
        if aggregates.all(|(aggregate, accumulators)| aggregate.load(accumulators, &found, &mut columns)) {
            return Ok(());
        }
        Err(malformed())
    }

    /// Results of the groups with these keys.
    pub(crate) fn results_of_keys(&mut self, tx: &Transaction, keys: &[GroupKey]) -> Result<RecordBatch> {
        let (mut slots, mut missing) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in keys {
            let slot = match self.slots.get(key) {
                Some(slot) => *slot,
                None => {
                    let slot = self.open(Arc::clone(key));
                    missing.push(slot);
                    slot
                }
            };
            self.use_now(slot);
            slots.push(slot);
        }
        if !missing.is_empty() {
            let keys = self.keys_of(&missing)?;
            self.look_up(tx, &missing, &keys)?;
        }
        self.results(&slots)
    }

    /// Calls `f` with the results of all groups in the state table, some thousands at a time.
    pub(crate) fn all_results(&self, tx: &Transaction, mut f: impl FnMut(RecordBatch)) -> Result<()> {
        let width = self.layout.groups.len();
        let first = self.accumulators_at();
        read_batches(&self.table, &self.schema, tx, self.table.scan(ScanRange::full()), |stored| {
            let keys = stored_keys::loaded(&stored.columns()[..=width]);
            let mut columns = keys.map_err(|error| self.failed(&error))?;
            let slots: Vec<u32> = (0..stored.num_rows() as u32).collect();
            let mut accumulated = stored.columns()[first..].iter();
            for aggregate in &self.layout.aggregates {
                let mut accumulators = aggregate.accumulators();
                accumulators.resize(slots.len());
                if !aggregate.load(&mut accumulators, &slots, &mut accumulated) {
                    return Err(self.refused(format!(
                        "a row of state table {} is not one of this operator",
                        self.table.name()
                    )));
                }
                columns.push(
                    aggregate.results(&mut accumulators, &slots).map_err(|reason| self.refused(reason))?,
                );
            }
            let results = RecordBatch::try_new(Arc::clone(&self.layout.output), columns);
            f(results.map_err(|error| self.failed(&error))?);
            Ok(())
        })
    }

    /// Writes the changed groups to the transaction, and votes for them.
    pub(crate) fn write(&mut self, tx: &Transaction) -> Result<()> {
        let is_one = self.layout.groups.is_empty();
        let (mut written, mut deleted) = (Vec::new(), Vec::new());
        for &slot in &self.touched {
            let group = &mut self.groups[slot as usize];
            if group.rows > 0 || is_one {
                written.push(slot);
            } else if group.is_stored {
                deleted.push(slot);
            }
        }
        if !deleted.is_empty() {
            let keys = stored_keys::stored(&self.keys_of(&deleted)?, deleted.len());
            let width = self.layout.groups.len() + 1;
            let schema = self.schema.project(&(0..width).collect::<Vec<_>>());
            let keys = keys.and_then(|keys| RecordBatch::try_new(Arc::new(schema?), keys));
            self.table.delete_batch(tx, &keys.map_err(|error| self.failed(&error))?)?;
        }
        if !written.is_empty() {
            let rows = self.stored(&written)?;
            self.table.upsert_batch(tx, &rows)?;
            written.iter().for_each(|slot| self.groups[*slot as usize].is_stored = true);
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    /// Rows of the state table of groups.
    fn stored(&mut self, slots: &[u32]) -> Result<RecordBatch> {
        let keys = self.keys_of(slots)?;
        let mut columns = stored_keys::stored(&keys, slots.len()).map_err(|error| self.failed(&error))?;
        let of = |slot: &u32| &self.groups[*slot as usize];
        columns.push(Arc::new(Int64Array::from_iter_values(slots.iter().map(|slot| of(slot).rows))));
        if self.layout.ttl_us.is_some() {
            let times = slots.iter().map(|slot| of(slot).last.micros());
            columns.push(Arc::new(TimestampMicrosecondArray::from_iter_values(times)));
        }
        debug_assert_eq!(columns.len(), self.accumulators_at());
        for (aggregate, accumulators) in self.layout.aggregates.iter().zip(&mut self.accumulators) {
            let stored = aggregate.store(accumulators, slots);
            columns.extend(stored.map_err(|reason| Error::Tuple { operator: self.name.clone(), reason })?);
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| self.failed(&error))
    }

    /// Removes groups from the state table whose life is over, of the next rows of it: about two for each group that has
    /// changed, so that they go as fast as they come.
    pub(crate) fn sweep(&mut self, tx: &Transaction, watermark: EventTime) -> Result<()> {
        let Some(ttl_us) = self.layout.ttl_us else { return Ok(()) };
        let (mut seen, wanted) = (0, SWEPT_ROWS_MIN + 2 * self.touched.len());
        let width = self.layout.groups.len() + 1;
        let lower = self.swept.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let mut cursor = self.table.scan(ScanRange::between(lower, Bound::Unbounded));
        let (mut over, mut last): (Vec<Row>, Option<Row>) = (Vec::new(), None);
        loop {
            let more = cursor.next_batch(tx, |row| {
                seen += 1;
                let key: Row = (0..width).map(|column| row.value(column)).collect();
                if EventTime::from_micros(row.timestamp(width + 1)).plus(ttl_us) <= watermark {
                    over.push(key.clone());
                }
                last = Some(key);
            })?;
            if !more {
                self.swept = None;
                break;
            }
            if seen >= wanted {
                self.swept = last;
                break;
            }
        }
        if !over.is_empty() {
            self.table.delete_many(tx, &over)?;
        }
        Ok(())
    }
}
