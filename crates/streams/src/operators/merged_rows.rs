//! Rows as they were before a MERGE of tuples that are taken back.
//!
//! A MERGE of changes leaves, at each commit, what it would have made of the table if only the tuples that are there now had
//! been merged. So for each key that it has changed, the state table has the row before and the row that it made:
//!
//! ```text
//!   key -> was_there, columns before, is_there, columns behind
//! ```
//!
//! - A tuple that is taken back brings the row before again; one that is inserted is merged with it.
//! - A row that has changed since was written by others. What they wrote counts as if it had been there before: the whole
//!   row, if they inserted or deleted it, else the columns that they changed. If the MERGE has inserted the row, those columns
//!   stay as long as it makes the same of them.
//! - A key that the MERGE leaves as it is has no row.
//! - Stateless between batches: a crash or an abort leaves the rows of the last commit.

use crate::error::{Error, Result};
use crate::ranking::free_name;
use entresol_tables::{BatchBuilder, Column, DataType, Row, Schema, Table, Value};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Rows of a table that a MERGE of changes has changed.
pub(crate) struct MergedRows {
    pub(crate) table: Arc<Table>,
    /// Columns of the key among those of the target, and the others.
    key: Vec<usize>,
    others: Vec<usize>,
}

/// Row before a MERGE, and the row that it made.
pub(crate) struct MergedRow {
    before: Option<Row>,
    made: Option<Row>,
}

/// Row of a key as a MERGE finds it.
pub(crate) struct FoundRow {
    /// Row before the MERGE.
    pub(crate) before: Option<Row>,
    /// Row of the table.
    pub(crate) current: Option<Row>,
    /// True if the state table has a row of the key.
    pub(crate) is_stored: bool,
    /// Row that the MERGE made and others have changed, where it has inserted the row.
    inserted: Option<Row>,
}

/// Schema of the state table for a target.
pub(crate) fn schema_of(target: &Schema) -> Result<Schema, String> {
    let (key, others) = divided(target);
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |name: &str, data_type: DataType, nullable: bool| {
        let name = free_name(name, &columns);
        columns.push(Column { nullable, ..Column::new(name, data_type) });
    };
    for &at in &key {
        add(&target.columns()[at].name, target.columns()[at].data_type, false);
    }
    add("was_there", DataType::Boolean, false);
    add("is_there", DataType::Boolean, false);
    for prefix in ["before", "made"] {
        for &at in &others {
            let column = &target.columns()[at];
            add(&format!("{prefix}_{}", column.name), column.data_type, true);
        }
    }
    let names: Vec<String> = columns[..key.len()].iter().map(|column| column.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Schema::new(columns, &names).map_err(|error| error.to_string())
}

/// Rows of a target with these keys, of its visible columns.
pub(crate) fn visible_rows(tx: &Transaction, target: &Table, keys: &[Row]) -> Result<Vec<Option<Row>>> {
    let mut rows = target.get_many(tx, keys)?;
    let width = target.schema().visible_columns().len();
    rows.iter_mut().flatten().for_each(|row| row.truncate(width));
    Ok(rows)
}

/// Columns of the key of a target, in its order, and the other visible ones.
fn divided(target: &Schema) -> (Vec<usize>, Vec<usize>) {
    let key = target.key().to_vec();
    let others = (0..target.visible_columns().len()).filter(|at| !key.contains(at)).collect();
    (key, others)
}

impl MergedRows {
    pub(crate) fn new(table: Arc<Table>, target: &Schema) -> MergedRows {
        let (key, others) = divided(target);
        MergedRows { table, key, others }
    }

    /// Key of a row of the target.
    pub(crate) fn key_of(&self, row: &Row) -> Row {
        self.key.iter().map(|&at| row[at].clone()).collect()
    }

    /// Row of the target that has only a key.
    pub(crate) fn row_of_key(&self, key: &Row) -> Row {
        self.row(key, &vec![Value::Null; self.others.len()])
    }

    fn row(&self, key: &[Value], others: &[Value]) -> Row {
        let mut row = vec![Value::Null; key.len() + others.len()];
        for (&at, value) in self.key.iter().zip(key).chain(self.others.iter().zip(others)) {
            row[at] = value.clone();
        }
        row
    }

    /// Rows of keys as the MERGE finds them.
    pub(crate) fn find(&self, tx: &Transaction, target: &Table, keys: &[Row]) -> Result<Vec<FoundRow>> {
        let (stored, current) = (self.table.get_many(tx, keys)?, visible_rows(tx, target, keys)?);
        Ok(stored.into_iter().zip(current).map(|(stored, current)| self.found(stored, current)).collect())
    }

    fn found(&self, stored: Option<Row>, current: Option<Row>) -> FoundRow {
        let Some(MergedRow { before, made }) = stored.map(|row| self.merged(&row)) else {
            return FoundRow { before: current.clone(), current, is_stored: false, inserted: None };
        };
        let mut inserted = None;
        let before = match (before, made, &current) {
            (before, made, current) if made == *current => before,
            (Some(mut before), Some(made), Some(current)) => {
                for (at, value) in before.iter_mut().enumerate().filter(|(at, _)| made[*at] != current[*at]) {
                    value.clone_from(&current[at]);
                }
                Some(before)
            }
            (None, Some(made), Some(_)) => {
                inserted = Some(made);
                None
            }
            (_, _, current) => current.clone(),
        };
        FoundRow { before, current, is_stored: true, inserted }
    }

    /// Rows that a row of the state table says.
    fn merged(&self, row: &Row) -> MergedRow {
        let (keys, others) = (self.key.len(), self.others.len());
        let of = |is_there: usize, first: usize| {
            let is_there = row[keys + is_there] == Value::Boolean(true);
            is_there.then(|| self.row(&row[..keys], &row[first..first + others]))
        };
        MergedRow { before: of(0, keys + 2), made: of(1, keys + 2 + others) }
    }

    /// Stores what the MERGE has made of keys; forgets those that are as they were before.
    pub(crate) fn store(&self, tx: &Transaction, made: &[(Row, FoundRow, Option<Row>)]) -> Result<()> {
        let visible = self.table.schema().visible_columns();
        let mut written = BatchBuilder::new(visible, made.len());
        let mut deleted = BatchBuilder::new(&visible[..self.key.len()], made.len());
        let rejected = |reason: String| Error::Tuple {
            operator: format!("MERGE with state {}", self.table.name()),
            reason,
        };
        for (key, found, row) in made {
            if *row == found.before {
                if found.is_stored {
                    deleted.push(key).map_err(rejected)?;
                }
                continue;
            }
            let mut stored = key.clone();
            stored.extend([&found.before, row].map(|row| Value::Boolean(row.is_some())));
            for row in [&found.before, row] {
                let value = |&at: &usize| row.as_ref().map_or(Value::Null, |row| row[at].clone());
                stored.extend(self.others.iter().map(value));
            }
            written.push(&stored).map_err(rejected)?;
        }
        if !deleted.is_empty() {
            self.table.delete_batch(tx, &deleted.finish())?;
        }
        if !written.is_empty() {
            self.table.upsert_batch(tx, &written.finish())?;
        }
        Ok(())
    }
}

impl FoundRow {
    /// Row that the MERGE makes, with the columns that others have changed in one that it has inserted.
    pub(crate) fn with_changes_of_others(&self, made: Option<Row>) -> Option<Row> {
        let (Some(inserted), Some(current)) = (&self.inserted, &self.current) else { return made };
        made.map(|mut made| {
            for (at, value) in made.iter_mut().enumerate().filter(|(at, value)| **value == inserted[*at]) {
                value.clone_from(&current[at]);
            }
            made
        })
    }
}
