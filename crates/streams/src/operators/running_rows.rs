//! Rows of the state table of a running aggregate: groups as they are read and written, and those whose life is over.
//!
//! A row is the group columns without NULL, the number that says which are NULL ([`super::stored_keys`]), the number of
//! tuples, the time of the last one if lives end, and the accumulators.

use crate::BATCH_TUPLES;
use crate::error::{Error, Result};
use crate::event_time::EventTime;
use crate::operators::running_state::{GroupKey, RunningState, is_empty};
use crate::operators::stored_keys;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use entresol_tables::{Row, ScanRange, rows_of};
use entresol_transactions::Transaction;
use std::ops::Bound;
use std::sync::Arc;

/// Rows of the state table that are looked at for groups whose life is over, beside two for each changed group.
pub(super) const SWEPT_ROWS_MIN: usize = 64;

impl RunningState {
    /// Reads the rows of groups, as far as there are some.
    pub(super) fn look_up(&mut self, tx: &Transaction, slots: &[u32], keys: &[ArrayRef]) -> Result<()> {
        let width = self.layout.groups.len() + 1;
        let columns = stored_keys::stored(keys, slots.len()).map_err(|error| self.failed(&error))?;
        let (table, places) = (Arc::clone(&self.table), (0..width).collect::<Vec<_>>());
        let (found, stored) = self.table_rows.look_up(&table, tx, (columns, &places), width)?;
        let found: Vec<u32> = found.into_iter().map(|at| slots[at]).collect();
        let rows = self.table_rows.counts(&stored);
        let malformed = || Error::Tuple {
            operator: self.name.clone(),
            reason: format!("a row of state table {} is not one of this operator", table.name()),
        };
        let counts = stored.column(0).as_primitive_opt::<Int64Type>().ok_or_else(malformed)?;
        let times =
            self.layout.ttl_us.map(|_| stored.column(1).as_primitive_opt::<TimestampMicrosecondType>());
        for (row, slot) in found.iter().enumerate() {
            let group = &mut self.groups[*slot as usize];
            (group.rows, group.stored_rows) = (counts.value(row), rows[row]);
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

    /// Calls `f` with the results of the groups behind a place in the state table, some thousands at a time, while it returns
    /// true; returns the place behind them, or none at the end.
    pub(crate) fn results_behind(
        &self,
        tx: &Transaction,
        behind: Option<&Row>,
        mut f: impl FnMut(RecordBatch) -> bool,
    ) -> Result<Option<Row>> {
        let cursor = self.table.scan(rows_behind(behind));
        let mut last = None;
        let is_end = self.table_rows.read_while(&self.table, tx, cursor, BATCH_TUPLES, |stored| {
            if stored.num_rows() == 0 {
                return Ok(true);
            }
            let has_room = f(self.results_of_rows(stored)?);
            if !has_room {
                last = Some(self.table_rows.behind(self.last_group(stored)?));
            }
            Ok(has_room)
        });
        let is_end = is_end? || is_empty(&self.table, rows_behind(last.as_ref()), tx)?;
        Ok(last.filter(|_| !is_end))
    }

    /// Key of the last group of a batch that has some.
    fn last_group(&self, stored: &RecordBatch) -> Result<Row> {
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
            } else if group.stored_rows > 0 {
                deleted.push(slot);
            }
        }
        if !deleted.is_empty() {
            let keys = stored_keys::stored(&self.keys_of(&deleted)?, deleted.len());
            let keys = keys.map_err(|error| self.failed(&error))?;
            let places: Vec<usize> = (0..keys.len()).collect();
            let counts: Vec<u32> =
                deleted.iter().map(|slot| self.groups[*slot as usize].stored_rows).collect();
            self.table.delete_batch(tx, &self.table_rows.keys(keys, &places, &counts)?)?;
        }
        if !written.is_empty() {
            let rows = self.stored(&written)?;
            self.table.upsert_batch(tx, &rows)?;
        }
        self.table.vote_commit(tx)?;
        Ok(())
    }

    /// Rows of the state table of groups, whose number is noted.
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
        let mut counts: Vec<u32> = slots.iter().map(|slot| self.groups[*slot as usize].stored_rows).collect();
        let rows = self.table_rows.rows(columns, &mut counts)?;
        for (slot, count) in slots.iter().zip(counts) {
            self.groups[*slot as usize].stored_rows = count;
        }
        Ok(rows)
    }

    /// Removes groups from the state table whose life is over, of the next rows of it: about two for each group that has
    /// changed, so that they go as fast as they come. Returns their number.
    pub(crate) fn sweep(&mut self, tx: &Transaction, watermark: EventTime) -> Result<u64> {
        let Some(ttl_us) = self.layout.ttl_us else { return Ok(0) };
        let (mut seen, wanted) = (0, SWEPT_ROWS_MIN + 2 * self.touched.len());
        let width = self.layout.groups.len() + 1;
        let mut cursor = self.table.scan(rows_behind(self.swept.as_ref()));
        let (mut over, mut groups, mut last): (Vec<Row>, u64, Option<Row>) = (Vec::new(), 0, None);
        loop {
            let more = cursor.next_batch(tx, |row| {
                seen += 1;
                let group = (0..width).map(|column| row.value(column));
                let (key, rows) = self.table_rows.keys_of_row(group.collect(), |column| row.value(column));
                if EventTime::from_micros(row.timestamp(width + 1)).plus(ttl_us) <= watermark {
                    over.extend(rows);
                    groups += 1;
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
        Ok(groups)
    }
}

/// Rows behind a place; all of them without one.
pub(super) fn rows_behind(place: Option<&Row>) -> ScanRange {
    let lower = place.map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
    ScanRange::between(lower, Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::UTC;
    use crate::operators::accumulator::Aggregate;
    use crate::operators::group_states::{AggregateFunction, GroupState};
    use crate::operators::running_state::RunningLayout;
    use crate::operators::state_rows::{StateRows, add_parts};
    use arrow_array::types::Int32Type;
    use arrow_array::{Array, BooleanArray, Int32Array, StringArray};
    use entresol_memory::{Durability, Pool, PoolOptions};
    use entresol_tables::{Catalog, Column, DataType, Schema, TableOptions, Value, arrow_schema};
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
        let rows = StateRows::new("counts", &table, &layout.aggregates, false);
        RunningState::new("counts".to_owned(), (table, rows), layout, None, None).unwrap()
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

    /// Function whose state has as many pieces of text as tuples.
    #[derive(Debug)]
    struct Pieces;

    #[derive(Debug)]
    struct PiecesOfGroup(String);

    impl AggregateFunction for Pieces {
        fn result_type(&self) -> DataType {
            DataType::BigInt
        }

        fn state_columns(&self) -> Vec<Column> {
            vec![Column::new("text", DataType::Varchar)]
        }

        fn group(&self) -> std::result::Result<Box<dyn GroupState>, String> {
            Ok(Box::new(PiecesOfGroup(String::new())))
        }
    }

    impl GroupState for PiecesOfGroup {
        fn add(&mut self, columns: &[ArrayRef]) -> std::result::Result<(), String> {
            self.0 += &"piece ".repeat(1000 * columns[0].len());
            Ok(())
        }

        fn store(&mut self) -> std::result::Result<Vec<ArrayRef>, String> {
            Ok(vec![Arc::new(StringArray::from(vec![self.0.as_str()]))])
        }

        fn merge(&mut self, stored: &[ArrayRef]) -> std::result::Result<(), String> {
            self.0 += stored[0].as_string::<i32>().value(0);
            Ok(())
        }

        fn result(&mut self) -> std::result::Result<ArrayRef, String> {
            Ok(Arc::new(Int64Array::from(vec![self.0.len() as i64 / 6000])))
        }

        fn bytes(&self) -> usize {
            self.0.len()
        }
    }

    /// The group at which a pass waits may get more rows before it goes on.
    #[test]
    fn a_pass_goes_on_behind_all_rows_of_a_group() {
        const GROUPS: i32 = 1200;
        let catalog = catalog();
        let mut state = pieces(&catalog);
        let tx = catalog.begin().unwrap();
        let all: Vec<(i32, bool)> = (0..2 * GROUPS).map(|tuple| (tuple % GROUPS, false)).collect();
        change(&mut state, &tx, &all).unwrap();
        tx.commit(Durability::None).unwrap();
        state.committed();
        let (mut place, mut found, mut passes) = (None::<Row>, Vec::new(), 0);
        loop {
            let tx = catalog.begin().unwrap();
            let behind = state.results_behind(&tx, place.as_ref(), |results| {
                let keys = results.column(0).as_primitive::<Int32Type>();
                found.extend_from_slice(keys.values());
                false
            });
            place = behind.unwrap();
            passes += 1;
            let Some(Value::Int(last)) = place.as_ref().map(|place| place[0].clone()) else { break };
            change(&mut state, &tx, &[(last, false); 5]).unwrap();
            tx.commit(Durability::None).unwrap();
            state.committed();
        }
        assert!(passes > 3 && found == (0..GROUPS).collect::<Vec<i32>>(), "{passes} passes");
    }

    /// Pieces per key of a stream of keys.
    fn pieces(catalog: &Arc<Catalog>) -> RunningState {
        let stream = [Column::new("key", DataType::Int)];
        let pieces = Aggregate::function(Arc::new(Pieces), &["key"]).resolve(&stream).unwrap();
        let column = |name: &str| Column::new(name, DataType::BigInt).not_null();
        let mut columns = vec![Column::new("key", DataType::Int).not_null(), column("nulls"), column("rows")];
        columns.extend(pieces.state_columns());
        let mut key = vec!["key".to_owned(), "nulls".to_owned()];
        add_parts(&mut columns, &mut key);
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        let table =
            catalog.create_table("pieces", Schema::new(columns, &key).unwrap(), TableOptions::default());
        let table = table.unwrap();
        let output = arrow_schema(&[stream[0].clone(), pieces.result_column()], UTC);
        let layout = RunningLayout {
            groups: vec![0],
            aggregates: vec![pieces],
            output,
            ttl_us: None,
            groups_in_dram: 10,
        };
        let rows = StateRows::new("pieces", &table, &layout.aggregates, true);
        RunningState::new("pieces".to_owned(), (table, rows), layout, None, None).unwrap()
    }
}
