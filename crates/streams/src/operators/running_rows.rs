//! Rows of the state table of a running aggregate: groups as they are read and written, and those whose life is over.
//!
//! A row is the group columns without NULL, the number that says which are NULL ([`super::stored_keys`]), the number of
//! tuples, the time of the last one if lives end, and the accumulators.

use crate::BATCH_TUPLES;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::running_state::{GroupKey, RunningState};
use crate::operators::stored_keys;
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

    /// Results of the groups with these keys, as far as they have some. Those that are not in DRAM are read for it.
    pub(crate) fn results_of_keys(&mut self, tx: &Transaction, keys: &[GroupKey]) -> Result<RecordBatch> {
        let (mut slots, mut missing) = (Vec::with_capacity(keys.len()), Vec::new());
        for key in keys {
            slots.push(match self.slots.get(key) {
                Some(slot) => *slot,
                None => {
                    missing.push(self.open(Arc::clone(key)));
                    missing[missing.len() - 1]
                }
            });
        }
        let results = self.results_with(tx, slots, &missing);
        missing.into_iter().for_each(|slot| self.drop_group(slot));
        results
    }

    /// Results of groups of which some have to be read.
    fn results_with(
        &mut self,
        tx: &Transaction,
        mut slots: Vec<u32>,
        missing: &[u32],
    ) -> Result<RecordBatch> {
        if !missing.is_empty() {
            let keys = self.keys_of(missing)?;
            self.look_up(tx, missing, &keys)?;
        }
        slots.retain(|slot| self.has_result(*slot));
        self.results(&slots)
    }

    /// Calls `f` with the results of the groups behind a row of the state table, some thousands at a time, while it returns
    /// true; returns the last row of them, or none at the end.
    pub(crate) fn results_behind(
        &self,
        tx: &Transaction,
        behind: Option<&Row>,
        mut f: impl FnMut(RecordBatch) -> bool,
    ) -> Result<Option<Row>> {
        let lower = behind.map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let mut cursor = self.table.scan(ScanRange::between(lower, Bound::Unbounded));
        let projection: Vec<usize> = (0..self.schema.fields().len()).collect();
        let (table, schema) = (&self.table, Arc::clone(&self.schema));
        let mut rows = StoredRows::new(table.name(), table.schema(), &projection, schema, BATCH_TUPLES);
        loop {
            let more = cursor.next_stored(tx, &mut rows, usize::MAX)?;
            if more && !rows.is_batch(BATCH_TUPLES) {
                continue;
            }
            let stored = rows.finish()?;
            let has_room = stored.num_rows() == 0 || f(self.results_of_rows(&stored)?);
            if !more {
                return Ok(None);
            }
            if !has_room {
                return self.last_key(&stored).map(Some);
            }
        }
    }

    /// Key of the last row of a batch that has some.
    fn last_key(&self, stored: &RecordBatch) -> Result<Row> {
        let key: Vec<usize> = (0..=self.layout.groups.len()).collect();
        let last = stored.slice(stored.num_rows() - 1, 1).project(&key);
        Ok(rows_of(&last.map_err(|error| self.failed(&error))?)?.swap_remove(0))
    }

    /// Results of rows of the state table.
    fn results_of_rows(&self, stored: &RecordBatch) -> Result<RecordBatch> {
        let keys = stored_keys::loaded(&stored.columns()[..=self.layout.groups.len()]);
        let mut columns = keys.map_err(|error| self.failed(&error))?;
        let slots: Vec<u32> = (0..stored.num_rows() as u32).collect();
        let mut accumulated = stored.columns()[self.accumulators_at()..].iter();
        for aggregate in &self.layout.aggregates {
            let mut accumulators = aggregate.accumulators();
            accumulators.resize(slots.len());
            if !aggregate.load(&mut accumulators, &slots, &mut accumulated) {
                let table = self.table.name();
                return Err(self.refused(format!("a row of state table {table} is not one of this operator")));
            }
            columns
                .push(aggregate.results(&mut accumulators, &slots).map_err(|reason| self.refused(reason))?);
        }
        let results = RecordBatch::try_new(Arc::clone(&self.layout.output), columns);
        results.map_err(|error| self.failed(&error))
    }

    /// Writes the changed groups to the transaction, and votes for them.
    pub(crate) fn write(&mut self, tx: &Transaction) -> Result<()> {
        let is_one = self.layout.groups.is_empty();
        let (mut written, mut deleted) = (Vec::new(), Vec::new());
        for &slot in &self.touched {
            let group = &self.groups[slot as usize];
            if group.rows < 0 {
                let reason =
                    format!("a tuple is taken back that was not sent: a group has {} of them", group.rows);
                return Err(self.refused(reason));
            }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::UTC;
    use crate::operators::accumulator::Aggregate;
    use crate::operators::running_state::RunningLayout;
    use arrow_array::{BooleanArray, Int32Array};
    use entresol_memory::{Durability, Pool, PoolOptions};
    use entresol_tables::{Catalog, Column, DataType, Schema, TableOptions, arrow_schema};
    use entresol_transactions::StateContext;

    fn catalog() -> Arc<Catalog> {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
    }

    /// Counts per key of a stream of keys.
    fn counts(catalog: &Arc<Catalog>) -> RunningState {
        let column = |name: &str| Column::new(name, DataType::BigInt).not_null();
        let columns =
            [Column::new("key", DataType::Int).not_null(), column("nulls"), column("rows"), column("count")];
        let schema = Schema::new(columns.to_vec(), &["key", "nulls"]).unwrap();
        let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
        let table = catalog.create_table("counts", schema, options).unwrap();
        let stream = [Column::new("key", DataType::Int)];
        let count = Aggregate::count().resolve(&stream).unwrap().subtracted();
        let output = arrow_schema(&[stream[0].clone(), count.result_column()], UTC);
        let layout = RunningLayout {
            groups: vec![0],
            aggregates: vec![count],
            output,
            ttl_us: None,
            groups_in_dram: 10,
        };
        RunningState::new("counts".to_owned(), table, layout, None, None).unwrap()
    }

    fn keys(keys: &[i32]) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int32Array::from(keys.to_vec()));
        RecordBatch::try_from_iter([("key", column)]).unwrap()
    }

    /// Adds keys, and takes those back that are marked; writes the groups.
    fn change(state: &mut RunningState, tx: &Transaction, changes: &[(i32, bool)]) -> Result<()> {
        state.ensure_loaded(tx)?;
        let tuples = keys(&changes.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        let slots = state.number(tx, &tuples)?;
        let retracted: BooleanArray = changes.iter().map(|(_, is_taken)| Some(*is_taken)).collect();
        state.add(&slots, &tuples, Some(&retracted))?;
        state.write(tx)
    }

    #[test]
    fn a_group_has_no_fewer_tuples_than_none() {
        let catalog = catalog();
        let mut state = counts(&catalog);
        let tx = catalog.begin().unwrap();
        let error = change(&mut state, &tx, &[(1, false), (2, true)]).unwrap_err();
        assert!(error.is_tuple_error() && error.to_string().contains("was not sent"), "{error}");
        tx.abort();
        state.aborted();
        // Within a transaction it may come before.
        let tx = catalog.begin().unwrap();
        change(&mut state, &tx, &[(2, true), (2, false), (1, false)]).unwrap();
        tx.commit(Durability::None).unwrap();
        state.committed();
        let rows = state.table.scan(ScanRange::full()).rows(&catalog.begin().unwrap()).unwrap();
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn results_are_read_without_staying_and_continue_behind_a_row() {
        let catalog = catalog();
        let mut state = counts(&catalog);
        let tx = catalog.begin().unwrap();
        let all: Vec<(i32, bool)> = (0..10_000).map(|key| (key, false)).collect();
        change(&mut state, &tx, &all).unwrap();
        tx.commit(Durability::None).unwrap();
        let of_keys: Vec<GroupKey> = state.touched_keys().step_by(1000).collect();
        state.committed();
        let mut state = counts(&catalog);
        let tx = catalog.begin().unwrap();
        state.ensure_loaded(&tx).unwrap();
        let mut wanted = of_keys.clone();
        let other = state.keys.convert_columns(keys(&[-1]).columns()).unwrap();
        wanted.push(GroupKey::from(other.row(0).data()));
        let results = state.results_of_keys(&tx, &wanted).unwrap();
        assert_eq!((results.num_rows(), state.slots.len(), state.bytes), (10, 0, 0), "one has no row");
        let (mut place, mut passes, mut found) = (None, 0, 0);
        loop {
            let behind = state.results_behind(&tx, place.as_ref(), |results| {
                found += results.num_rows();
                false
            });
            passes += 1;
            place = behind.unwrap();
            if place.is_none() {
                break;
            }
        }
        assert_eq!((found, passes > 1), (10_000, true));
    }
}
