//! The session's relations as topologies plan with them: TIMESTAMPTZ is in UTC, whatever the session's zone is.

use crate::planner::scans::provider::EntresolTable;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result as DFResult;
use std::sync::Arc;

/// Catalog whose tables show times in UTC.
#[derive(Debug)]
pub(crate) struct UtcCatalog(pub(crate) Arc<dyn CatalogProvider>);

#[derive(Debug)]
struct UtcSchema(Arc<dyn SchemaProvider>);

impl CatalogProvider for UtcCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.0.schema_names()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        Some(Arc::new(UtcSchema(self.0.schema(name)?)))
    }
}

#[async_trait]
impl SchemaProvider for UtcSchema {
    fn table_names(&self) -> Vec<String> {
        self.0.table_names()
    }

    async fn table(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>> {
        let found = self.0.table(name).await?;
        Ok(found.map(|table| match table.downcast_ref::<EntresolTable>() {
            Some(own) => Arc::new(own.in_utc()),
            None => table,
        }))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.table_exist(name)
    }
}
