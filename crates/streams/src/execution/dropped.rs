//! Tuples of transactions that are dropped, or that end the topology: stored in a table, if there is one.
//!
//! | transaction | its tuples are stored | positions of the sources |
//! | --- | --- | --- |
//! | dropped ([`OnError::Abort`](crate::OnError::Abort)) | in a transaction of their own, behind it | in that transaction: once, whatever happens |
//! | ended the topology | the same | stay: the tuples come again, and are stored again if they fail again |
//!
//! The table is that of the condition that held, else that of the topology. Rows are those of bad records: `source`, `line`
//! (0), `reason`, `record`. At most [`DROPPED_TUPLES_MAX`] of a transaction are stored; one more row says how many are not.

use crate::DROPPED_TUPLES_MAX;
use crate::element::Batch;
use crate::error::{Error, Result};
use crate::execution::rejects_table;
use crate::execution::skipped::record;
use entresol_tables::{Row, Table};
use entresol_transactions::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tables for the tuples of failed transactions.
#[derive(Default)]
pub(crate) struct ErrorTables {
    /// Table of the topology.
    pub(crate) of_topology: Option<Arc<Table>>,
    /// Tables of conditions, by their names.
    pub(crate) named: BTreeMap<String, Arc<Table>>,
}

impl ErrorTables {
    /// Table for the tuples of a transaction with this error, if they are stored.
    fn table_for(&self, error: &Error) -> Option<&Arc<Table>> {
        let of_condition = match error {
            Error::Aborted { into, .. } | Error::AbortedRepeatedly { into, .. } => into.as_ref(),
            _ => None,
        };
        of_condition.and_then(|table| self.named.get(table)).or(self.of_topology.as_ref())
    }

    /// Begins to collect the tuples of a transaction that failed; none if they are not stored.
    pub(crate) fn collect(&self, error: &Error) -> Option<DroppedTuples> {
        let table = Arc::clone(self.table_for(error)?);
        Some(DroppedTuples { table, reason: error.to_string(), rows: Vec::new(), more: 0 })
    }
}

/// Tuples of a transaction that failed.
pub(crate) struct DroppedTuples {
    table: Arc<Table>,
    reason: String,
    rows: Vec<Row>,
    /// Number of tuples beyond those that are stored.
    more: usize,
}

impl DroppedTuples {
    /// Adds tuples of a source.
    pub(crate) fn add(&mut self, source: &str, batch: &Batch) -> Result<()> {
        let stored = batch.len().min(DROPPED_TUPLES_MAX - self.rows.len());
        self.more += batch.len() - stored;
        for at in 0..stored {
            let record = record(&batch.rows().slice(at, 1).into())?;
            self.rows.push(rejects_table::row(source, 0, &self.reason, &record));
        }
        Ok(())
    }

    /// Writes them.
    pub(crate) fn write(&self, transaction: &Transaction) -> Result<()> {
        rejects_table::write(&self.table, transaction, &self.rows)?;
        if self.more == 0 {
            return Ok(());
        }
        let record = format!("{} more tuples of the transaction", self.more);
        rejects_table::write(&self.table, transaction, &[rejects_table::row("", 0, &self.reason, &record)])
    }
}
