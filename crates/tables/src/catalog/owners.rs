//! Owners of tables, which alone write their rows: changed for several tables at once, in one commit with rows that say why.
//!
//! A crash leaves all owners and the rows of the commit, or neither. Transactions that wrote one of the tables before, and have
//! not committed, get a conflict, as with any change of a definition: behind the change there is no writer but the owner.

use super::table_row;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::schema::definition::TableDefinition;
use crate::table::Table;
use entresol_memory::Durability;
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Table whose owner changes, by its name, and the new owner; `None` lets everyone write.
pub type OwnerChange = (String, Option<String>);

impl Catalog {
    /// Changes the owners of tables in one durable commit with what `write` writes. Without changes the commit is that of
    /// `write` alone. [`Error::NoSuchTable`] if one of the tables is not there; nothing is changed then.
    pub fn set_owners<E: From<Error>>(
        &self,
        owners: &[OwnerChange],
        write: impl FnOnce(&Arc<Transaction>) -> Result<(), E>,
    ) -> Result<(), E> {
        let _changing = self.changing.lock();
        let changed = owners.iter().map(|(table, owner)| self.with_owner(table, owner.as_deref()));
        let changed = changed.collect::<Result<Vec<_>>>()?;
        let transaction = self.begin()?;
        for (_, new) in &changed {
            let (key, value) = table_row(new)?;
            transaction.write(&self.state, &key, value.as_deref()).map_err(Error::from)?;
        }
        write(&transaction)?;
        let commit = self.context.wait(|| transaction.commit(Durability::Sync));
        commit.map_err(Error::from)?;
        for (old, new) in &changed {
            self.replace(old, new)?;
        }
        Ok(())
    }

    /// Table as it is, and with another owner.
    fn with_owner(&self, name: &str, owner: Option<&str>) -> Result<(Arc<Table>, Arc<Table>)> {
        let old = self.table(name)?;
        let definition = TableDefinition { owner: owner.map(str::to_owned), ..old.definition().clone() };
        definition.check(name)?;
        let new = old.redefined(name, definition, old.indexes().to_vec());
        Ok((old, new))
    }
}
