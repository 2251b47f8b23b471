//! Lookup join: adds columns of the table row whose key the tuple names.
//!
//! - Reads through the topology's transaction: it sees that transaction's own writes, and its snapshot
//!   otherwise.
//! - All keys of a batch are looked up together (their cache misses overlap).
//! - A NULL in a join column matches nothing. Inner drops tuples without a match, left fills in NULL.
//! - Stateless between batches.

use crate::element::{Batch, Tuple};
use crate::error::Result;
use crate::operators::{Context, Operator, Output, current_of, extends};
use entresol_tables::{Table, Value};
use std::sync::Arc;

/// Treatment of tuples without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// They are dropped.
    Inner,
    /// The table's columns are NULL.
    Left,
}

pub(crate) struct LookupJoin {
    pub(crate) name: String,
    pub(crate) table: Arc<Table>,
    /// Indexes of the tuple columns that form the key, in key order.
    pub(crate) on: Vec<usize>,
    /// Table columns to add.
    pub(crate) added: Vec<usize>,
    pub(crate) kind: JoinKind,
}

impl Operator for LookupJoin {
    fn name(&self) -> &str {
        &self.name
    }

    fn redefined(&mut self) -> Result<()> {
        self.table = current_of(&self.name, &self.table, extends)?;
        Ok(())
    }

    fn batch(&mut self, context: &Context<'_>, batch: &Batch, output: &mut Output) -> Result<()> {
        let mut keys: Vec<Vec<Value>> = Vec::with_capacity(batch.len());
        let mut places: Vec<usize> = Vec::with_capacity(batch.len());
        for (place, tuple) in batch.iter().enumerate() {
            if self.on.iter().any(|&column| tuple[column].is_null()) {
                continue;
            }
            keys.push(self.on.iter().map(|&column| tuple[column].clone()).collect());
            places.push(place);
        }
        let mut joined: Vec<Option<Tuple>> = vec![None; batch.len()];
        self.table.get_many_with(context.transaction, &keys, |at, row| {
            let tuple = batch.tuple(places[at]);
            let mut values = Vec::with_capacity(tuple.len() + self.added.len());
            values.extend_from_slice(tuple);
            values.extend(self.added.iter().map(|&column| row.value(column)));
            joined[places[at]] = Some(values);
        })?;
        if self.kind == JoinKind::Left {
            for (tuple, joined) in batch.iter().zip(&mut joined) {
                joined.get_or_insert_with(|| {
                    let mut values = tuple.clone();
                    values.resize(tuple.len() + self.added.len(), Value::Null);
                    values
                });
            }
        }
        output.push(Batch::new(joined.into_iter().flatten().collect()));
        Ok(())
    }
}
