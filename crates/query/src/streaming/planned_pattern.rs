//! Planning of MATCH_RECOGNIZE in steps: as that of a query over a relation with the columns of the stream.

use crate::error::{Error, Result};
use crate::parser::patterns::{PatternClause, named};
use crate::parser::statement::{inner_mut, query_of};
use crate::planner::patterns::planned_pattern;
use crate::planner::patterns::planning::PlannedPattern;
use crate::planner::query::logical_plan;
use crate::postgres::time_zones::UTC;
use crate::postgres::types::column_type;
use crate::session::core::SessionCore;
use crate::streaming::expressions::check;
use crate::streaming::names::resolve;
use datafusion::catalog::{MemorySchemaProvider, SchemaProvider};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, TableFactor};
use entresol_tables::{Column, arrow_schema};
use std::sync::Arc;

/// Relation of the rows of the stream.
const ROWS: &str = "rows of a pattern";

/// Plans a pattern over a stream with these columns, of which `relations` has those of the step.
pub(crate) async fn plan_pattern(
    session: &SessionCore,
    state: &SessionState,
    relations: &MemorySchemaProvider,
    (clause, columns): (&TableFactor, &[Column]),
) -> Result<PlannedPattern> {
    let written = PatternClause::of(clause)?;
    let written = written.ok_or_else(|| Error::Internal(format!("{clause} is not a MATCH_RECOGNIZE")))?;
    written.event_time()?;
    if written.within.is_none() {
        return Err(Error::unsupported(
            "MATCH_RECOGNIZE of a stream without end, without WITHIN INTERVAL '…' behind its PATTERN",
        ));
    }
    let columns = columns.iter().map(|column| Column { nullable: true, ..column.clone() });
    let rows = arrow_schema(&columns.collect::<Vec<_>>(), UTC);
    relations.register_table(ROWS.to_owned(), Arc::new(MemTable::try_new(rows, vec![Vec::new()])?))?;
    let planned = planned_over_rows(session, state, clause).await;
    relations.deregister_table(ROWS)?;
    let planned = planned?;
    planned.exprs().try_for_each(check)?;
    Ok(planned)
}

/// Plans a pattern as a query over the relation of the rows.
async fn planned_over_rows(
    session: &SessionCore,
    state: &SessionState,
    clause: &TableFactor,
) -> Result<PlannedPattern> {
    let mut clause = clause.clone();
    if let TableFactor::MatchRecognize { table, alias, .. } = &mut clause {
        **table = named(ObjectName::from(vec![Ident::with_quote('"', ROWS)]), None);
        *alias = None;
    }
    let mut statement = query_of(&format!("SELECT * FROM {clause}"))?;
    if let Some(tree) = inner_mut(&mut statement) {
        resolve(tree, |name| name == ROWS)?;
    }
    let plan = logical_plan(session, state, statement).await?;
    planned_pattern(&plan)?.ok_or_else(|| Error::Internal(format!("the plan of {clause} has no pattern")))
}

/// Columns of the results of a pattern.
pub(crate) fn result_columns(planned: &PlannedPattern) -> Result<Vec<Column>> {
    let columns = planned.measures.iter().map(|(field, _)| {
        let (name, found) = (field.name(), field.data_type());
        let data_type = column_type(found)
            .ok_or_else(|| Error::unsupported(format!("measure \"{name}\" of type {found} in a stream")))?;
        Ok(Column::new(name.clone(), data_type))
    });
    columns.collect()
}
