//! The session's relations as topologies plan with them: TIMESTAMPTZ is in UTC, whatever the session's zone is, and the
//! privileges that count are those of the topology's owner ([`super::definers`]), whatever role the session has.

use crate::error::external;
use crate::planner::scans::provider::EntresolTable;
use crate::privileges::Privileges;
use crate::schema_names::{INFORMATION_INNER, OWNED_SCHEMA, PG_CATALOG, SCHEMA, SYSTEM_SCHEMA};
use crate::streaming::definers::Definer;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result as DFResult;
use entresol_tables::Catalog;
use std::sync::Arc;

/// Catalog whose tables show times in UTC.
#[derive(Debug)]
pub(crate) struct UtcCatalog {
    pub(crate) of_session: Arc<dyn CatalogProvider>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) definer: Arc<Definer>,
}

#[derive(Debug)]
struct UtcSchema {
    of_session: Arc<dyn SchemaProvider>,
    catalog: Arc<Catalog>,
    /// Authority that reads its relations; none of those that all may read.
    definer: Option<Arc<Definer>>,
}

impl CatalogProvider for UtcCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.of_session.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let is_checked = !matches!(name, OWNED_SCHEMA | SYSTEM_SCHEMA | PG_CATALOG | INFORMATION_INNER);
        // Without the check of the session's role.
        let of_session = self.of_session.schema(if name == SCHEMA { OWNED_SCHEMA } else { name })?;
        let definer = is_checked.then(|| Arc::clone(&self.definer));
        Some(Arc::new(UtcSchema { of_session, catalog: Arc::clone(&self.catalog), definer }))
    }
}

#[async_trait]
impl SchemaProvider for UtcSchema {
    fn table_names(&self) -> Vec<String> {
        self.of_session.table_names()
    }

    async fn table(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>> {
        if let Some(definer) = &self.definer
            && let Some(kind) = self.catalog.relation_kind(name)
        {
            let authority = definer.authority();
            authority.require_on(Privileges::SELECT, kind, name).map_err(external)?;
        }
        let found = self.of_session.table(name).await?;
        Ok(found.map(|table| match table.downcast_ref::<EntresolTable>() {
            Some(own) => Arc::new(own.in_utc()),
            None => table,
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.of_session.table_exist(name)
    }
}
