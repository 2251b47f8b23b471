//! Keys of a lookup join: the key or index that finds the rows, and its values in the rows of the other side.

use crate::planner::lookup::{KEYS_MAX, ROWS_PER_LOOKUP};
use crate::planner::scans::access::{Access, value_of};
use crate::planner::scans::scan::EntresolScan;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result as DFResult, ScalarValue};
use entresol_tables::{DataType, Row, Table};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

/// Leading columns of a key or an index, by which rows are looked up.
#[derive(Debug, Clone)]
pub(super) struct LookupKey {
    /// Index that finds the rows; `None` if the key does.
    index: Option<String>,
    /// Columns of the other side that have the values, in the order of the key.
    columns: Vec<usize>,
    /// True if they are all columns of the key.
    is_whole: bool,
}

impl LookupKey {
    /// Key of which most leading columns are compared, the primary key among equals. `pairs`: column of the other
    /// side, and column of the table.
    pub(super) fn best(table: &Table, pairs: &[(usize, usize)]) -> Option<LookupKey> {
        let schema = table.schema();
        let is_float =
            |column: usize| matches!(schema.columns()[column].data_type, DataType::Real | DataType::Double);
        let compared = |columns: &[usize], index: Option<&str>| {
            let found = columns.iter().map_while(|key| {
                let pair = pairs.iter().find(|(_, column)| column == key && !is_float(*column))?;
                Some(pair.0)
            });
            let found: Vec<usize> = found.collect();
            let is_whole = found.len() == columns.len();
            (!found.is_empty()).then(|| LookupKey {
                index: index.map(str::to_owned),
                columns: found,
                is_whole,
            })
        };
        let by_index = table.indexes().iter().filter_map(|index| {
            let key = compared(&index.definition().columns, Some(index.name()))?;
            (key.is_whole || !index.definition().hashed).then_some(key)
        });
        // A table by columns finds single rows by its whole key only.
        let by_key = compared(schema.key(), None).filter(|key| key.is_whole || !table.has_row_groups());
        let keys = by_index.collect::<Vec<_>>().into_iter().rev().chain(by_key);
        keys.max_by_key(|key| (key.is_whole, key.columns.len()))
    }

    /// Returns true if an index finds the rows, in its order and not in that of the key.
    pub(super) fn is_index(&self) -> bool {
        self.index.is_some()
    }

    /// Scan of the rows that have a key of these batches; `None` if a scan of all rows costs less.
    pub(super) fn scan(
        &self,
        scan: &EntresolScan,
        batches: &[RecordBatch],
    ) -> DFResult<Option<EntresolScan>> {
        let table_rows = scan.estimated_rows();
        let Some(keys) = self.distinct(batches, KEYS_MAX.min(table_rows / ROWS_PER_LOOKUP))? else {
            return Ok(None);
        };
        let Some(looked_up) = scan.with_access(self.access(keys)) else { return Ok(None) };
        let is_few = looked_up.estimated_rows().saturating_mul(ROWS_PER_LOOKUP / 4) <= table_rows;
        Ok((self.is_whole || is_few).then_some(looked_up))
    }

    fn access(&self, keys: Vec<Row>) -> Access {
        let within = if self.is_whole || self.index.is_some() {
            Access::Keys(keys)
        } else {
            let range = |key: Row| (Bound::Included(key.clone()), Bound::Included(key));
            Access::Ranges(keys.into_iter().map(range).collect())
        };
        match &self.index {
            Some(name) => Access::Index { name: name.clone(), within: Box::new(within) },
            None => within,
        }
    }

    /// Distinct keys without NULL, in order; `None` if they are more than `keys_max`, or one is no key.
    fn distinct(&self, batches: &[RecordBatch], keys_max: usize) -> DFResult<Option<Vec<Row>>> {
        let mut keys = BTreeSet::new();
        for batch in batches {
            for at in 0..batch.num_rows() {
                let mut key = Row::with_capacity(self.columns.len());
                for &column in &self.columns {
                    let value = ScalarValue::try_from_array(batch.column(column), at)?;
                    if value.is_null() {
                        break;
                    }
                    let Some(value) = value_of(value) else { return Ok(None) };
                    key.push(value);
                }
                if key.len() == self.columns.len() {
                    keys.insert(key);
                }
                if keys.len() > keys_max {
                    return Ok(None);
                }
            }
        }
        Ok(Some(keys.into_iter().collect()))
    }
}

/// Formats the key as EXPLAIN shows it: `key`, `index i`.
impl fmt::Display for LookupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.index {
            Some(name) => write!(f, "index {name}"),
            None => f.write_str("key"),
        }
    }
}
