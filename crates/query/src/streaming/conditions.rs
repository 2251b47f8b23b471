//! Conditions of ABORT WHEN: queries over what the open transaction sees and has changed.
//!
//! The plan is made once. At each commit the changes are put into its relations, its tables are bound to the
//! transaction, and it runs on the topology's thread.

use crate::error::{Error, Result};
use crate::streaming::bound_plans::BoundPlan;
use crate::streaming::filled_relations::FilledRelation;
use datafusion::arrow::array::AsArray;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use entresol_tables::{BatchBuilder, Error as TableError, Table, arrow_schema};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Table whose changes in a transaction are a relation.
#[derive(Debug, Clone)]
pub(crate) struct ChangedRows {
    table: Arc<Table>,
    rows: FilledRelation,
}

impl ChangedRows {
    /// Changes of a table; there are none yet.
    pub(crate) fn new(table: &Arc<Table>) -> ChangedRows {
        let schema = arrow_schema(table.schema().visible_columns(), "UTC");
        ChangedRows { table: Arc::clone(table), rows: FilledRelation::new(schema) }
    }

    /// Name of the table.
    pub(crate) fn name(&self) -> &str {
        self.table.name()
    }

    /// Relation of the changes.
    pub(crate) fn relation(&self) -> Arc<FilledRelation> {
        Arc::new(self.rows.clone())
    }

    fn fill(&self, transaction: &Transaction) -> Result<()> {
        let columns = self.table.schema().visible_columns();
        let mut rows = BatchBuilder::new(columns, 0);
        // It may have got columns since.
        let dropped = || TableError::NoSuchTable { table: self.table.name().to_owned() };
        for change in self.table.current().ok_or_else(dropped)?.changes(transaction)? {
            if let Some(row) = change.row {
                rows.push(&row[..columns.len()]).map_err(Error::Internal)?;
            }
        }
        self.rows.fill(rows.finish());
        Ok(())
    }
}

/// Condition that is ready to be asked.
pub(crate) struct Condition {
    query: BoundPlan,
    changed: Vec<ChangedRows>,
}

impl Condition {
    /// Condition that a plan computes: one truth value.
    pub(crate) fn new(plan: LogicalPlan, changed: Vec<ChangedRows>) -> Result<Condition> {
        // Without the rules of a session, which belong to its statements.
        let config = SessionConfig::new().with_target_partitions(1);
        let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
        Ok(Condition { query: BoundPlan::new(plan, state)?, changed })
    }

    /// Returns true if it holds in a transaction.
    pub(crate) fn holds(&self, transaction: &Arc<Transaction>) -> Result<bool> {
        self.changed.iter().try_for_each(|changed| changed.fill(transaction))?;
        let batches = self.query.rows(transaction)?;
        let first = batches.iter().find(|batch| batch.num_rows() > 0);
        let value = first.and_then(|batch| batch.column(0).as_boolean_opt());
        Ok(value.is_some_and(|value| !value.is_empty() && value.iter().next() == Some(Some(true))))
    }
}
