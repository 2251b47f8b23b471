//! Rows of row groups that a transaction replaces: told to it, for its log of changes ([`crate::changes`]).
//!
//! The state of the changed rows is an overlay of the row groups: of a row that is only there, a commit does not find the
//! value before. So who writes its key looks for it, and notes it with the transaction. It is the row at the
//! transaction's snapshot: if others have changed it since, the commit fails. Merges move rows and change none, so
//! nothing else can have taken it away.
//!
//! Cost: of each key that the state does not have a search of the row groups that span it.

use crate::columns::store::ColumnStore;
use crate::error::Result;
use crate::table::Table;
use entresol_structures::KeyBytes;
use entresol_transactions::Transaction;
use std::sync::Arc;

impl Table {
    /// Row groups whose rows are noted when they are replaced.
    fn noted_columns(&self) -> Option<&Arc<ColumnStore>> {
        let is_noted = |columns: &&Arc<ColumnStore>| {
            self.state().change_log().is_some() || columns.lifetime.is_draining()
        };
        self.columns().filter(is_noted)
    }

    /// Notes the rows of row groups with these keys, which are about to be written.
    pub(crate) fn note_replaced<K: AsRef<[u8]>>(&self, tx: &Transaction, keys: &[K]) -> Result<()> {
        let Some(columns) = self.noted_columns() else { return Ok(()) };
        let mut beneath: Vec<KeyBytes> = Vec::new();
        for key in keys {
            if tx.read_before(self.state(), key.as_ref(), |_| ())?.is_none() {
                beneath.push(self.padded(key.as_ref()));
            }
        }
        beneath.sort_unstable();
        beneath.dedup();
        let groups = columns.groups(tx)?;
        let places = columns.locate(tx, self.named_schema(), &groups, &beneath)?;
        let found = beneath.iter().zip(places).filter_map(|(key, place)| Some((key, place?)));
        let (keys, places): (Vec<&KeyBytes>, Vec<_>) = found.unzip();
        let mut noted = Ok(());
        columns.read_places(tx, self.named_schema(), &groups, &places, |at, value| {
            if noted.is_ok() {
                noted = tx.note_beneath(self.state(), keys[at], value);
            }
        })?;
        Ok(noted?)
    }
}
