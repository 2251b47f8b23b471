//! MERGE: a join of target and source, whose rows go to the first WHEN clause that is met. UPDATE ... FROM and
//! DELETE ... USING are this with one clause ([`crate::parser::joined_changes`]).
//!
//! - [`source`] makes the query of the join, which is planned and run as any other.
//! - [`actions`] plans conditions and values of the clauses over the rows of the join, with the relations that
//!   each of them may name; so a value is computed for the rows of its clause only.
//! - [`changes`] sends the rows to the table, new ones through [`crate::dml::writer`].
//!
//! Errors leave the writes so far in the transaction; the caller rolls back to its mark.

pub(crate) mod actions;
pub(crate) mod changes;
pub(crate) mod source;

use self::changes::Changes;
use self::source::MergeSource;
use crate::dml::returning::{described, outcome};
use crate::error::Result;
use crate::parser::merge::MergeStatement;
use crate::parser::statement::query_statement;
use crate::planner::parameters::{self, Types};
use crate::planner::query::{logical_plan, plan_query};
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::Query;
use entresol_tables::Catalog;
use entresol_transactions::Transaction;
use futures::StreamExt;
use std::sync::Arc;

/// Runs a MERGE.
pub(crate) async fn merge(
    session: &SessionCore,
    tx: &Arc<Transaction>,
    merge: &MergeStatement<'_>,
) -> Result<Outcome> {
    let source = MergeSource::new(&session.catalog, merge)?;
    let frame = plan_query(session, query_statement(source.query.clone())).await?;
    let joined = source.joined(frame.schema())?;
    let whens = actions::whens(session, merge, &source, &joined).await?;
    let returning = match merge.returning {
        None => None,
        Some(items) => Some(actions::returning(session, items, merge, &source, &joined).await?),
    };
    let mut changes = Changes::new(session, &source.table, &joined, &whens, returning);
    changes.takes_first = !merge.from.is_empty();
    let mut rows = frame.execute_stream().await?;
    while let Some(batch) = rows.next().await {
        changes.add(session, &joined, &whens, &batch?).await?;
    }
    drop(rows);
    changes.write(tx)?;
    Ok(outcome(merge.verb, changes.rows, changes.returning))
}

/// Query whose rows a MERGE works on, for EXPLAIN.
pub(crate) fn query(catalog: &Catalog, merge: &MergeStatement<'_>) -> Result<Box<Query>> {
    Ok(MergeSource::new(catalog, merge)?.query)
}

/// Plans a MERGE without running it: adds the types of its parameters, of which there are `count`; returns the
/// columns of RETURNING.
pub(crate) async fn prepare(
    session: &SessionCore,
    merge: &MergeStatement<'_>,
    types: &mut Types,
    count: usize,
) -> Result<Option<SchemaRef>> {
    let source = MergeSource::new(&session.catalog, merge)?;
    actions::assigned_types(session, merge, &source.table, types)?;
    let state = session.context.state();
    let plan = logical_plan(session, &state, query_statement(source.query.clone())).await?;
    types.of_plan(&plan)?;
    let plan = parameters::typed(plan, &types.complete(count))?;
    let joined = source.joined(plan.schema())?;
    for when in actions::whens(session, merge, &source, &joined).await? {
        when.plans().try_for_each(|plan| types.of_plan(plan))?;
    }
    let Some(items) = merge.returning else { return Ok(None) };
    let returning = actions::returning(session, items, merge, &source, &joined).await?;
    described(&returning, types, count).map(Some)
}
