//! Names of what transactions conflict about: tables with keys, and indexes.

use crate::catalog::Catalog;
use crate::encoding::key;
use crate::table::Table;
use entresol_transactions::Error as TransactionError;

impl Catalog {
    /// Table and key that a transaction conflicts about, as `table "t", key (meter = 3)`; of an index its name in place of
    /// the key. None if the error is no conflict, or is about a state of no table.
    pub fn conflict_of(&self, error: &TransactionError) -> Option<String> {
        use TransactionError::{Conflict, ReadConflict, Restart};
        let (Conflict { state, key, .. } | ReadConflict { state, key, .. } | Restart { state, key, .. }) =
            error
        else {
            return None;
        };
        self.tables().iter().find_map(|table| {
            let name = table.name();
            if table.state().id() == *state {
                let key = table.named_key(key).map_or_else(String::new, |key| format!(", key {key}"));
                return Some(format!("table \"{name}\"{key}"));
            }
            let index = table.indexes().iter().find(|index| index.state_id() == *state)?;
            Some(format!("table \"{name}\", index \"{}\"", index.name()))
        })
    }
}

impl Table {
    /// Values of a key with the names of their columns; none for one that is no key of a row.
    fn named_key(&self, bytes: &[u8]) -> Option<String> {
        let (schema, values) = (self.schema(), key::decode_key(self.name(), self.schema(), bytes).ok()?);
        let columns = schema.key().iter().map(|&column| &schema.columns()[column]);
        let named = columns
            .zip(&values)
            .map(|(column, value)| format!("{} = {}", column.name, value.display(column.data_type)));
        Some(format!("({})", named.collect::<Vec<_>>().join(", ")))
    }
}
