//! Views, and the queries of subscriptions, planned for the schemas of a session.

use crate::catalog::view::PlannedRelations;
use crate::error::{Error, Result, external};
use crate::parser::statement::query_of;
use crate::planner::join_using::merged;
use crate::planner::query::check_reads;
use crate::planner::time_travel::has_as_of;
use crate::planner::views::{Views, closed, relation, rewrite};
use crate::postgres::number_types::typed;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result as DFResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::Statement;
use entresol_tables::Catalog;
use std::sync::Arc;

#[async_trait]
impl PlannedRelations for Views {
    async fn relation(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>> {
        let state = Arc::new(self.state.upgrade().ok_or_else(closed)?.read().clone());
        relation(&self.catalog, &state, name, 0).await.map_err(external)
    }

    async fn subscribed(&self, query: &str) -> DFResult<(SessionState, LogicalPlan)> {
        let state = self.state.upgrade().ok_or_else(closed)?.read().clone();
        let plan = subscribed(&self.catalog, &state, query).await.map_err(external)?;
        Ok((state, plan))
    }
}

/// Plans the query of a subscription as a statement of the session.
async fn subscribed(catalog: &Arc<Catalog>, state: &SessionState, query: &str) -> Result<LogicalPlan> {
    let mut statement = query_of(query)?;
    if !matches!(&statement, DFStatement::Statement(tree) if matches!(**tree, Statement::Query(_))) {
        return Err(Error::Syntax("syntax error: SUBSCRIBE: expected a query".into()));
    }
    if has_as_of(&statement) {
        return Err(Error::unsupported(
            "FOR SYSTEM_TIME in a query of SUBSCRIBE: write AS OF behind the parentheses",
        ));
    }
    rewrite(catalog, &mut statement)?;
    let plan = state.statement_to_plan(statement).await?;
    check_reads(&plan)?;
    Ok(typed(merged(plan)?)?)
}
