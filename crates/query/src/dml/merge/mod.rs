//! MERGE: a join of target and source, whose rows go to the first WHEN clause that is met. UPDATE ... FROM and
//! DELETE ... USING are this with one clause ([`crate::parser::joined_changes`]).
//!
//! - [`source`] makes the query of the join, which is planned and run as any other.
//! - [`actions`] plans conditions and values of the clauses over the rows of the join, with the relations that
//!   each of them may name; so a value is computed for the rows of its clause only.
//! - [`changes`] sends the rows to the table, new ones through [`crate::dml::writer`].
//!
//! Privileges are checked once all of it is planned, before the join is run.
//!
//! Errors leave the writes so far in the transaction; the caller rolls back to its mark.

pub(crate) mod actions;
pub(crate) mod changes;
pub(crate) mod source;

use self::actions::{PlannedAction, PlannedWhen};
use self::changes::Changes;
use self::source::{JoinColumns, MergeSource};
use crate::dml::authorization;
use crate::dml::column_use::{is_of, reads_relation};
use crate::dml::returning::{Returning, described, outcome};
use crate::error::Result;
use crate::parser::merge::MergeStatement;
use crate::parser::statement::query_statement;
use crate::planner::parameters::{self, Types};
use crate::planner::query::{logical_plan, plan_query};
use crate::privileges::Privileges;
use crate::session::core::SessionCore;
use crate::session::result::Outcome;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Query;
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
    let returning = returning(session, merge, &source, &joined).await?;
    authorize(session, &source, (frame.logical_plan(), &whens, returning.as_ref()))?;
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

/// Plans the RETURNING of a MERGE, if there is one.
async fn returning(
    session: &SessionCore,
    merge: &MergeStatement<'_>,
    source: &MergeSource,
    joined: &JoinColumns,
) -> Result<Option<Returning>> {
    match merge.returning {
        None => Ok(None),
        Some(items) => actions::returning(session, items, merge, source, joined).await.map(Some),
    }
}

/// Checks the privileges on the target by the plan of the join, the clauses and RETURNING; see
/// [`crate::dml::authorization`].
fn authorize(
    session: &SessionCore,
    source: &MergeSource,
    (plan, whens, returning): (&LogicalPlan, &[PlannedWhen], Option<&Returning>),
) -> Result<()> {
    let wanted = whens.iter().fold(Privileges::NONE, |wanted, when| match when.action {
        PlannedAction::Update { .. } => wanted.with(Privileges::UPDATE),
        PlannedAction::Delete => wanted.with(Privileges::DELETE),
        PlannedAction::Insert { .. } => wanted.with(Privileges::INSERT),
        PlannedAction::Nothing => wanted,
    });
    let target = source.target.as_str();
    authorization::require(session, &source.table, wanted, || {
        if reads_relation(plan, source.columns_read(), &|column| is_of(column, target))? {
            return Ok(true);
        }
        for computation in whens.iter().flat_map(PlannedWhen::computations) {
            if computation.reads(target)? {
                return Ok(true);
            }
        }
        authorization::returning_reads(returning, target)
    })
}

/// Query whose rows a MERGE works on, for EXPLAIN; it needs the privileges of the statement.
pub(crate) async fn explained(session: &SessionCore, merge: &MergeStatement<'_>) -> Result<Box<Query>> {
    let source = MergeSource::new(&session.catalog, merge)?;
    if !session.variables.authority.is_superuser() {
        let frame = plan_query(session, query_statement(source.query.clone())).await?;
        let joined = source.joined(frame.schema())?;
        let whens = actions::whens(session, merge, &source, &joined).await?;
        let returning = returning(session, merge, &source, &joined).await?;
        authorize(session, &source, (frame.logical_plan(), &whens, returning.as_ref()))?;
    }
    Ok(source.query)
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
    let whens = actions::whens(session, merge, &source, &joined).await?;
    let returning = returning(session, merge, &source, &joined).await?;
    authorize(session, &source, (&plan, &whens, returning.as_ref()))?;
    for when in whens {
        when.plans().try_for_each(|plan| types.of_plan(plan))?;
    }
    returning.map(|returning| described(&returning, types, count)).transpose()
}
