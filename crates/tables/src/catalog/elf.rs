//! CREATE INDEX of an Elf, and the end of one.
//!
//! ```text
//!   create   refuse older writers ─▶ row group after row group gets its Elf ─▶ row of the catalog
//!   drop     row of the catalog, refuse older writers ─▶ row group after row group loses its Elf
//! ```
//!
//! New row groups have the Elf from then on. A crash leaves Elfs that no index names;
//! they are removed with their row groups, or by the next change of an Elf of the table.

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::schema::elf::{DimensionOrder, ElfCaching, ElfDefinition};
use crate::table::Table;
use entresol_transactions::Cancellation;
use std::sync::Arc;

impl Catalog {
    /// Creates an Elf index of columns of a table with row groups. Rows may be written meanwhile; those written by
    /// transactions that began before are refused with a conflict. The index is complete, durable and in use when
    /// this returns; nothing of it remains if the statement is cancelled before.
    pub fn create_elf(
        &self,
        statement: &Cancellation,
        table: &str,
        name: &str,
        (columns, order, caching): (Vec<usize>, DimensionOrder, ElfCaching),
    ) -> Result<()> {
        let _changing = self.changing.lock();
        let old = self.table(table)?;
        self.check_free(name)?;
        if old.definition().has_constraint(table, name) {
            return Err(Error::RelationExists { name: name.to_owned() });
        }
        let Some(store) = old.own_columns() else {
            return Err(Error::ElfOfRows { table: table.to_owned(), index: name.to_owned() });
        };
        let mut with_elf = old.definition().clone();
        let number = store.next_elf()?;
        with_elf.elves.push(ElfDefinition { name: name.to_owned(), columns, order, caching, number });
        with_elf.check(table)?;
        let building = old.redefined(table, with_elf, old.indexes().to_vec());
        let built = self.replace(&old, &building).and_then(|()| {
            store.complete_elves(statement)?;
            statement.begin_definite()?;
            self.write_entry(&building).map(drop)
        });
        if let Err(error) = built {
            let back = building.redefined(table, old.definition().clone(), old.indexes().to_vec());
            match self.replace(&building, &back) {
                Ok(()) => remove_elves(&back),
                Err(second) => tracing::error!(table, error = %second, "could not remove an incomplete Elf"),
            }
            return Err(error);
        }
        self.changed();
        Ok(())
    }
}

/// Removes Elfs that no index of the table names; those that cannot be removed now, are later.
pub(super) fn remove_elves(table: &Arc<Table>) {
    let Some(store) = table.own_columns() else { return };
    if let Err(error) = store.complete_elves(&Cancellation::default()) {
        tracing::warn!(table = table.name(), %error, "could not remove the Elfs of an index that was dropped");
    }
}
