//! The names that SQL knows: one catalog, `entresol`, with the schemas
//!
//! - `public`: the tables of the database; names without a schema mean it;
//! - `entresol`: the system tables, see [`crate::system`];
//! - one for each moment of the past ([`crate::past`]), which only the statement that asks for it knows;
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
use entresol_transactions::Timestamp;

use crate::error::external;
use crate::provider::{Current, EntresolTable};
use crate::system;

/// The name of the catalog.
pub const CATALOG: &str = "entresol";
/// The schema of the user's tables.
pub const SCHEMA: &str = "public";
/// The schema of the system tables.
pub const SYSTEM_SCHEMA: &str = "entresol";
/// Tables with their hidden keys. No identifier in a statement can name it by accident.
pub(crate) const KEYED_SCHEMA: &str = "\u{1}keyed";
/// What the names of schemas of the past begin with; the timestamp follows.
const PAST_SCHEMA: &str = "\u{1}as of ";

/// The schema of the tables as of a moment.
pub(crate) fn past_schema(at: Timestamp) -> String {
    format!("{PAST_SCHEMA}{at}")
}

/// The catalog of a session.
#[derive(Debug)]
pub(crate) struct Names {
    public: Arc<Tables>,
    keyed: Arc<Tables>,
    system: Arc<System>,
}

impl Names {
    pub(crate) fn new(catalog: &Arc<Catalog>, current: &Arc<Current>) -> Names {
        let tables = |hidden_keys| {
            let (catalog, current) = (Arc::clone(catalog), Arc::clone(current));
            Arc::new(Tables { catalog, current, hidden_keys, as_of: None })
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
            name => {
                let as_of = name.strip_prefix(PAST_SCHEMA)?.parse().ok()?;
                let (catalog, current) = (Arc::clone(&self.public.catalog), Arc::clone(&self.public.current));
                Some(Arc::new(Tables { catalog, current, hidden_keys: false, as_of: Some(as_of) }))
            }
        }
    }
}

#[derive(Debug)]
struct Tables {
    catalog: Arc<Catalog>,
    current: Arc<Current>,
    hidden_keys: bool,
    /// The moment of the tables.
    as_of: Option<Timestamp>,
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.catalog.tables().iter().map(|table| table.name().to_owned()).collect()
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.catalog.table(name) {
            Ok(table) => {
                let (catalog, mut current) = (Arc::clone(&self.catalog), Arc::clone(&self.current));
                if let Some(at) = self.as_of {
                    current = Arc::new(Current::default());
                    current.set(Some(self.catalog.begin_as_of(at).map_err(external)?));
                }
                Ok(Some(Arc::new(EntresolTable::new(catalog, current, table, self.hidden_keys))))
            }
            Err(TableError::NoSuchTable { .. }) => Ok(None),
            Err(error) => Err(external(error)),
        }
    }

    async fn table_type(&self, name: &str) -> EngineResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.catalog.table(name).is_ok()
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
