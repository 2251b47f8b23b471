//! `CHANGES(table)` of a table that the topology changes: the relation of the changes of the open transaction, for steps and
//! conditions.
//!
//! | the query reads | columns | rows |
//! | --- | --- | --- |
//! | no other column than those of the table | those of the table | those that are written |
//! | another one, by its name or by `*` | also those of the row before, `change_type`, `commit_cts` | deleted ones too, as they were |
//!
//! The first kind looks up no rows before, and nothing in it would tell a deleted row from a written one. Which kind it is
//! is known when the query is planned: first with all columns ([`read_before`]), and again with those of the table where no
//! other one is read.

use crate::error::{Error, Result};
use crate::schema_names::STREAMS_CATALOG;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::filled_relations::FilledRelation;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Optimizer;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use entresol_streams::{ColumnExpression, Stream, TopologyBuilder, Trigger};
use entresol_tables::{BatchBuilder, Column, Error as TableError, Table, arrow_schema, open_change_columns};
use entresol_transactions::Transaction;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Table whose changes in a transaction are a relation.
#[derive(Debug, Clone)]
pub(crate) struct ChangedRows {
    table: Arc<Table>,
    rows: FilledRelation,
    /// True if it has rows before, change types and deleted rows.
    with_before: bool,
}

/// Columns of the changes of a table with rows before that are shown: a column of the table hides one of the others that has
/// its name.
fn shown_columns(table: &Table) -> Vec<(usize, Column)> {
    let visible = table.schema().visible_columns();
    let is_hidden = |at: usize, column: &Column| {
        at >= visible.len() && visible.iter().any(|of_table| of_table.name == column.name)
    };
    let columns = open_change_columns(visible).into_iter().enumerate();
    columns.filter(|(at, column)| !is_hidden(*at, column)).collect()
}

impl ChangedRows {
    /// Changes of a table, with rows before or without; there are none yet.
    pub(crate) fn new(table: &Arc<Table>, with_before: bool) -> Result<ChangedRows> {
        if table.schema().hidden_key() {
            let message = format!("CHANGES of table {}, which has no key", table.name());
            return Err(Error::unsupported(message));
        }
        let columns = if with_before {
            shown_columns(table).into_iter().map(|(_, column)| column).collect()
        } else {
            table.schema().visible_columns().to_vec()
        };
        let rows = FilledRelation::new(arrow_schema(&columns, "UTC"));
        Ok(ChangedRows { table: Arc::clone(table), rows, with_before })
    }

    /// The same without the rows before.
    pub(crate) fn without_before(&self) -> Result<ChangedRows> {
        ChangedRows::new(&self.table, false)
    }

    /// Tells whether it has rows before, change types and deleted rows.
    pub(crate) fn has_before(&self) -> bool {
        self.with_before
    }

    /// Count of the columns of the table, which are the first ones.
    pub(crate) fn columns_of_table(&self) -> usize {
        self.table.schema().visible_columns().len()
    }

    /// Name of the table.
    pub(crate) fn name(&self) -> &str {
        self.table.name()
    }

    /// Relation of the changes.
    pub(crate) fn relation(&self) -> Arc<FilledRelation> {
        Arc::new(self.rows.clone())
    }

    /// Fills the relation with the changes of a transaction: one of each key.
    pub(crate) fn fill(&self, transaction: &Transaction) -> Result<()> {
        let columns = self.table.schema().visible_columns();
        // It may have got columns since.
        let dropped = || TableError::NoSuchTable { table: self.table.name().to_owned() };
        let table = self.table.current().ok_or_else(dropped)?;
        if self.with_before {
            let shown: Vec<usize> = shown_columns(&self.table).into_iter().map(|(at, _)| at).collect();
            self.rows.fill(table.open_changes(transaction, columns.len())?.project(&shown)?);
            return Ok(());
        }
        let mut rows = BatchBuilder::new(columns, 0);
        for row in table.changes(transaction)?.into_iter().filter_map(|change| change.row) {
            rows.push(&row[..columns.len()]).map_err(Error::Internal)?;
        }
        self.rows.fill(rows.finish());
        Ok(())
    }
}

/// Relations of changes of which a plan reads other columns than those of the table. `is_optimized` says that its scans have
/// the columns that are read.
pub(crate) fn read_before(
    plan: &LogicalPlan,
    state: &SessionState,
    is_optimized: bool,
    columns_of_table: impl Fn(&str) -> Option<usize>,
) -> Result<BTreeSet<String>> {
    let pruned = if is_optimized {
        plan.clone()
    } else {
        let rules = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
        rules.optimize(plan.clone(), state, |_, _| {})?
    };
    let mut found = BTreeSet::new();
    pruned.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.catalog() == Some(STREAMS_CATALOG)
            && let Some(of_table) = columns_of_table(scan.table_name.table())
            && scan.projection.as_ref().is_none_or(|read| read.iter().any(|at| *at >= of_table))
        {
            found.insert(scan.table_name.table().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Stream of the changes that a topology makes to a table.
pub(crate) fn stream_of(
    builder: &TopologyBuilder,
    table: &Table,
    each_row: bool,
    with_before: bool,
) -> Stream {
    let trigger = if each_row { Trigger::EachTuple } else { Trigger::OnCommit };
    if !with_before {
        return builder.to_stream(table.name(), trigger);
    }
    let stream = builder.to_stream_changes(table.name(), trigger);
    let shown = shown_columns(table);
    if shown.len() == stream.columns().len() {
        return stream;
    }
    let shown =
        shown.into_iter().map(|(at, column)| -> ComputedColumn { (column, Box::new(ColumnExpression(at))) });
    stream.project(shown.collect())
}
