//! Aggregates of a running aggregate that cannot be subtracted from, computed again from the values of their groups.
//!
//! Only groups of which values were taken back that the result may depend on are computed, once at the commit: an extreme
//! of the first counted column from the value at its end of the table, other extremes from each different value, and the
//! rest from all values. Nothing is held in memory but a batch of values.

use crate::error::Result;
use crate::operators::running_state::RunningState;
use crate::operators::value_counts::{Repetition, ValueCounts};
use entresol_transactions::Transaction;

impl RunningState {
    /// Computes the aggregates that cannot be subtracted from again, of groups of which tuples were taken back. The values
    /// of the transaction are stored before.
    pub(crate) fn compute_again(&mut self, tx: &Transaction) -> Result<()> {
        let Some(mut values) = self.values.take() else { return Ok(()) };
        let computed = values.write(tx).and_then(|()| self.compute_from(tx, &values));
        self.values = Some(values);
        computed
    }

    fn compute_from(&mut self, tx: &Transaction, values: &ValueCounts) -> Result<()> {
        for at in 0..self.touched.len() {
            let slot = self.touched[at];
            if std::mem::take(&mut self.groups[slot as usize].is_outdated) {
                self.compute_group(tx, values, slot)?;
            }
        }
        Ok(())
    }

    /// Computes the aggregates of a group that cannot be subtracted from.
    fn compute_group(&mut self, tx: &Transaction, values: &ValueCounts, slot: u32) -> Result<()> {
        let keys = self.keys_of(&[slot])?;
        let mut repetitions: Vec<Option<Repetition>> = Vec::with_capacity(self.accumulators.len());
        for (aggregate, accumulators) in self.layout.aggregates.iter().zip(&mut self.accumulators) {
            if aggregate.is_subtractable() {
                repetitions.push(None);
                continue;
            }
            accumulators.clear(slot);
            let is_first = aggregate.columns().first().copied() == values.first_value();
            repetitions.push(match aggregate.extreme_direction() {
                Some(direction) if is_first => {
                    values.read_extreme(tx, &keys, direction, |tuple| {
                        let columns = values.columns_of(tuple, aggregate.columns());
                        aggregate.add(accumulators, &[slot], &columns)
                    })?;
                    None
                }
                Some(_) => Some(Repetition::Once),
                None => Some(Repetition::Counted),
            });
        }
        for repetition in [Repetition::Once, Repetition::Counted] {
            if !repetitions.contains(&Some(repetition)) {
                continue;
            }
            let (aggregates, accumulators) = (&self.layout.aggregates, &mut self.accumulators);
            values.read(tx, &keys, repetition, |tuples| {
                let slots = vec![slot; tuples.num_rows()];
                for (at, aggregate) in aggregates.iter().enumerate() {
                    if repetitions[at] == Some(repetition) {
                        let columns = values.columns_of(tuples, aggregate.columns());
                        aggregate.add(&mut accumulators[at], &slots, &columns)?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
