//! Change logs of tables: made with the table or later, with another retention, and dropped.
//!
//! A log that is made later has the changes from the time on at which it is attached: before that its horizon is
//! stored, behind it the table's row in the catalog. A crash in between leaves a state that no table names,
//! which the next open drops.
//!
//! A table by column logs what it would log by row: the rows before that lie in row groups are told by who replaces
//! them ([`crate::table::replaced`]); merges log nothing.

use crate::catalog::Catalog;
use crate::columns::lifetime::DrainGuard;
use crate::error::{Error, Result};
use crate::schema::definition::{Retention, TableDefinition};
use crate::table::Table;
use entresol_transactions::{ChangeLog, State, StateId, StateOptions, TierChoice};
use std::sync::Arc;

impl Catalog {
    /// Makes a table log its changes from now on, for at least the retention; or changes the retention; or
    /// (`None`) makes it log none, and forget those that it has logged. Durable when this returns.
    pub fn set_changes(&self, table: &str, retention: Option<Retention>) -> Result<()> {
        let _changing = self.changing_logs.lock();
        let old = self.table(table)?;
        let log = match old.change_log() {
            Ok(log) => log,
            // What is damaged can be dropped.
            Err(_) if retention.is_none() => None,
            Err(error) => return Err(error),
        };
        match (&log, retention) {
            (Some(log), Some(retention)) => log.set_retention(retention.time()),
            (None, Some(retention)) => return self.add_change_log(&old, retention),
            (_, None) => {}
        }
        self.redefine(table, None::<crate::Verify<'_, Error>>, |definition| {
            definition.changes = retention;
            Ok::<(), Error>(())
        })?;
        if let (Some(log), None) = (log, retention) {
            self.context.log_changes(old.state(), None)?;
            self.drop_states(table, vec![log.state().id()]);
        }
        Ok(())
    }

    fn add_change_log(&self, table: &Table, retention: Retention) -> Result<()> {
        TableDefinition { changes: Some(retention), ..table.definition().clone() }.check(table.name())?;
        let store = table.own_columns();
        // Writers of row groups go row by row from now on, and all note the rows that they replace; those that do not
        // are refused before the log begins.
        let _draining = store.map(|store| DrainGuard::begin(store));
        if let Some(store) = store {
            self.context.refuse_older_writers(table.state().id(), |_| ())?;
            self.context.refuse_older_writers(store.state().id(), |_| ())?;
        }
        let mut made = Vec::new();
        let (name, placement) = (table.name(), table.definition().placement);
        let made_log = self.make_change_log(name, table.state(), (placement, retention), &mut made);
        let added = made_log.and_then(|log| {
            self.context.log_changes(table.state(), Some(log))?;
            self.redefine(table.name(), None::<crate::Verify<'_, Error>>, |definition| {
                definition.changes = Some(retention);
                Ok::<(), Error>(())
            })
        });
        if added.is_err() && !made.is_empty() {
            self.context.log_changes(table.state(), None)?;
            self.drop_states(table.name(), made);
        }
        added.map(drop)
    }

    /// Makes the state of a table's change log; `made` receives it.
    pub(super) fn make_change_log(
        &self,
        table: &str,
        state: &State,
        (placement, retention): (TierChoice, Retention),
        made: &mut Vec<StateId>,
    ) -> Result<Arc<ChangeLog>> {
        let options = StateOptions::new(state.group(), ChangeLog::KEY_WIDTH, placement);
        let log = self.context.create_state_with(options)?;
        log.set_holder(&format!("change log of table {table}"));
        made.push(log.id());
        Ok(ChangeLog::open(log, retention.time()))
    }
}
