//! Materialized views within a transaction that has written their tables.
//!
//! ```text
//!   BEGIN;  INSERT INTO account ...;  SELECT * FROM owner_balance;      the query of owner_balance, over the rows of the transaction
//!   COMMIT;                                                             maintains the table owner_balance
//!           SELECT * FROM owner_balance;                                the table
//! ```
//! A commit changes the table of a view once, by all that its transaction has written. So that a transaction sees view and tables
//! agree before, it reads such a view by its query, as the maintenance would compute it: in UTC, with the rights of the view, and
//! views over views the same way. An index on the view finds nothing faster there.

use crate::catalog::view::Source;
use crate::error::external;
use crate::planner::scans::provider::pinned;
use crate::planner::schemas::SessionCatalog;
use crate::planner::views::{Views, closed, relation};
use crate::postgres::time_zones::UTC;
use crate::postgres::types::visible_schema;
use crate::schema_names::CATALOG;
use crate::session::materialized::query_view;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList, Session, TableProvider};
use datafusion::common::Result as DFResult;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType, cast};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use entresol_tables::Table;
use std::fmt;
use std::sync::Arc;

/// Rows of a materialized view as a transaction has changed what it reads; see the [module](self).
pub(crate) struct PendingView {
    plan: LogicalPlan,
    /// State in which its query is planned.
    state: SessionState,
    schema: SchemaRef,
}

impl fmt::Debug for PendingView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingView").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl PendingView {
    /// View that a table holds, for the current transaction of a session; times are shown in a zone.
    pub(crate) async fn provider(
        source: &Source,
        views: &Views,
        table: &Table,
        zone: &str,
    ) -> DFResult<Option<Arc<dyn TableProvider>>> {
        let mut state = views.state.upgrade().ok_or_else(closed)?.read().clone();
        state.config_mut().options_mut().execution.time_zone = Some(UTC.to_owned());
        let list = MemoryCatalogProviderList::new();
        let catalog = SessionCatalog::in_zone(source, views.clone(), Some(UTC));
        list.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
        let context = SessionContext::new_with_state(state);
        context.register_catalog_list(Arc::new(list));
        // The plan of the statement around it is optimised with this one in it.
        let state = SessionStateBuilder::new_from_existing(context.state());
        let state = state.with_physical_optimizer_rules(Vec::new()).build();
        let (shared, name) = (Arc::new(state.clone()), query_view(table.name()));
        let query = relation(&source.catalog, &shared, &name, 0).await.map_err(external)?;
        let Some(query) = query else { return Ok(None) };
        let Some(plan) = query.get_logical_plan().map(|plan| plan.into_owned()) else { return Ok(None) };
        let plan = match source.current.bound() {
            Some(transaction) => pinned(plan, &transaction)?,
            None => plan,
        };
        Ok(Some(Arc::new(PendingView { plan, state, schema: visible_schema(table.schema(), zone) })))
    }
}

#[async_trait]
impl TableProvider for PendingView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DFResult<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let planned = self.plan.schema().columns();
        let columns = projection.unwrap_or(&all).iter().map(|&at| {
            let (field, computed) = (self.schema.field(at), Expr::Column(planned[at].clone()));
            let computed = if self.plan.schema().field(at).data_type() == field.data_type() {
                computed
            } else {
                cast(computed, field.data_type().clone())
            };
            computed.alias(field.name())
        });
        let plan = LogicalPlanBuilder::from(self.plan.clone()).project(columns.collect::<Vec<_>>())?;
        let plan = self.state.optimize(&plan.limit(0, limit)?.build()?)?;
        self.state.query_planner().create_physical_plan(&plan, &self.state).await
    }
}
