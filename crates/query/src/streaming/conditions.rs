//! Conditions of ABORT WHEN: queries over what the open transaction sees and has changed.
//!
//! The plan is made once. At each commit the changes are put into its relations, its tables are bound to the
//! transaction, and it runs on the topology's thread.

use crate::error::Result;
use crate::streaming::bound_plans::{BoundPlan, Occasion};
use crate::streaming::changed_rows::ChangedRows;
use datafusion::arrow::array::AsArray;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use entresol_transactions::Transaction;
use std::sync::Arc;

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
        Ok(Condition { query: BoundPlan::new(plan, Occasion::Commit, state)?, changed })
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
