//! The names that SQL knows: one catalog, `entresol`, with the schemas
//!
//! - `public`: the tables, views and sequences of the database; names without a schema mean it;
//! - `entresol`: the system tables, see [`crate::system`];
//! - a nameless one for UPDATE and DELETE, in which tables have their hidden keys; it is not listed.
//!
//! Nothing is cached here: each look-up asks the tables' catalog, so that what another session has created is
//! seen by the next statement.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result as EngineResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::TableType;
use entresol_tables::{Catalog, Error as TableError};

use crate::error::external;
use crate::provider::{Current, EntresolTable};
use crate::system;
use crate::views::Views;

/// The name of the catalog.
pub const CATALOG: &str = "entresol";
/// The schema of the user's tables.
pub const SCHEMA: &str = "public";
/// The schema of the system tables.
pub const SYSTEM_SCHEMA: &str = "entresol";
/// Tables with their hidden keys. No identifier in a statement can name it by accident.
pub(crate) const KEYED_SCHEMA: &str = "\u{1}keyed";

/// The catalog of a session.
#[derive(Debug)]
pub(crate) struct Names {
    public: Arc<Tables>,
    keyed: Arc<Tables>,
    system: Arc<System>,
}

impl Names {
    pub(crate) fn new(catalog: &Arc<Catalog>, current: &Arc<Current>, views: Views) -> Names {
        let tables = |hidden_keys| {
            let (catalog, current) = (Arc::clone(catalog), Arc::clone(current));
            Arc::new(Tables { catalog, current, views: views.clone(), hidden_keys })
        };
        Names {
            public: tables(false),
            keyed: tables(true),
            system: Arc::new(System { catalog: Arc::clone(catalog) }),
        }
    }
}

impl CatalogProvider for Names {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned(), SYSTEM_SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SCHEMA => Some(Arc::clone(&self.public) as _),
            KEYED_SCHEMA => Some(Arc::clone(&self.keyed) as _),
            SYSTEM_SCHEMA => Some(Arc::clone(&self.system) as _),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Tables {
    catalog: Arc<Catalog>,
    current: Arc<Current>,
    views: Views,
    hidden_keys: bool,
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let tables = self.catalog.tables();
        tables.iter().map(|table| table.name().to_owned()).chain(self.views.names()).collect()
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.catalog.table(name) {
            Ok(table) => {
                let (catalog, current) = (Arc::clone(&self.catalog), Arc::clone(&self.current));
                Ok(Some(Arc::new(EntresolTable::new(catalog, current, table, self.hidden_keys))))
            }
            Err(TableError::NoSuchTable { .. }) => Ok(None),
            Err(TableError::WrongKind { .. }) if !self.hidden_keys => self.views.relation(name).await,
            Err(error) => Err(external(error)),
        }
    }

    async fn table_type(&self, name: &str) -> EngineResult<Option<TableType>> {
        let kind = if self.views.is_view(name) { TableType::View } else { TableType::Base };
        Ok(self.table_exist(name).then_some(kind))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.catalog.table(name).is_ok() || (!self.hidden_keys && self.catalog.relation_kind(name).is_some())
    }
}

#[derive(Debug)]
struct System {
    catalog: Arc<Catalog>,
}

#[async_trait]
impl SchemaProvider for System {
    fn table_names(&self) -> Vec<String> {
        system::TABLES.iter().map(|&name| name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        system::table(&self.catalog, name)
    }

    async fn table_type(&self, name: &str) -> EngineResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::View))
    }

    fn table_exist(&self, name: &str) -> bool {
        system::TABLES.contains(&name)
    }
}
