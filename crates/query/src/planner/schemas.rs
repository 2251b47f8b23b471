//! Name resolution in SQL: one catalog, `entresol`, with the schemas
//!
//! - `public`: the tables, views and sequences of the database; names without a schema mean it;
//! - `entresol`: the system tables, see [`crate::catalog::rows::system`];
//! - `pg_catalog` and `information_schema`, see [`crate::catalog`]; the first needs not be written, and is
//!   not listed;
//! - two nameless ones for the changes of tables and for subscriptions ([`crate::planner::scans`]);
//! - one for each point in time that is asked for ([`crate::planner::time_travel`]), which only that
//!   statement sees;
//! - a nameless one for UPDATE, DELETE and MERGE, in which tables have their hidden keys; it is not listed.
//! - a nameless one for the texts of views, which read with the rights of their owner.
//!
//! A relation that is found here is read: the session's role needs SELECT on it, except by UPDATE, DELETE
//! and MERGE on their own table, which the stage `dml` checks behind the planner, by the columns that they name.
//!
//! Nothing is cached here: each look-up reads the tables' catalog, so that objects created by another session
//! are visible to the next statement.

use crate::catalog::is_catalog_relation;
use crate::catalog::registry::REGISTRY;
use crate::catalog::rows::streams::stream_kind;
use crate::catalog::rows::system;
use crate::catalog::view::{PlannedRelations, Source};
use crate::error::{Error, Result, external};
use crate::parser::own::subscription::Subscription;
use crate::planner::scans::changes::ChangesTable;
use crate::planner::scans::pending_view::PendingView;
use crate::planner::scans::provider::EntresolTable;
use crate::planner::scans::subscribed_query::SubscribedQuery;
use crate::planner::scans::subscription::{self, ShownSubscription};
use crate::planner::views::Views;
use crate::privileges::Privileges;
use crate::schema_names::{
    CHANGES_SCHEMA, INFORMATION_INNER, KEYED_SCHEMA, OWNED_SCHEMA, PG_CATALOG, SCHEMA, SUBSCRIPTIONS_SCHEMA,
    SYSTEM_SCHEMA,
};
use crate::session::current::Current;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::Result as DFResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::TableType;
use datafusion::sql::sqlparser::ast::Ident;
use entresol_tables::{Error as TableError, RelationKind, Table};
use entresol_transactions::Timestamp;
use std::sync::Arc;

/// Prefix of the names of schemas as of a point in time; the timestamp follows.
const PAST_SCHEMA: &str = "\u{1}as of ";

/// Name of the schema of the tables as of a snapshot timestamp.
pub(crate) fn as_of_schema(at: Timestamp) -> String {
    format!("{PAST_SCHEMA}{at}")
}

/// Catalog of a session.
#[derive(Debug)]
pub(crate) struct SessionCatalog {
    public: Arc<Tables>,
    keyed: Arc<Tables>,
    owned: Arc<Tables>,
    system: Arc<System>,
    source: Source,
}

impl SessionCatalog {
    pub(crate) fn new(source: &Source, views: Views) -> SessionCatalog {
        SessionCatalog::in_zone(source, views, None)
    }

    /// Catalog whose tables show times in a zone; none is that of the session.
    pub(crate) fn in_zone(source: &Source, views: Views, zone: Option<&'static str>) -> SessionCatalog {
        let tables = |hidden_keys, skips_privileges| {
            let (source, views) = (source.clone(), views.clone());
            Arc::new(Tables { source, views, hidden_keys, skips_privileges, as_of: None, zone })
        };
        SessionCatalog {
            public: tables(false, false),
            keyed: tables(true, true),
            owned: tables(false, true),
            system: Arc::new(System { source: source.clone() }),
            source: source.clone(),
        }
    }
}

impl CatalogProvider for SessionCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned(), SYSTEM_SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        match name {
            SCHEMA => Some(Arc::clone(&self.public) as _),
            KEYED_SCHEMA => Some(Arc::clone(&self.keyed) as _),
            OWNED_SCHEMA => Some(Arc::clone(&self.owned) as _),
            SYSTEM_SCHEMA => Some(Arc::clone(&self.system) as _),
            CHANGES_SCHEMA => Some(Arc::new(Changes { source: self.source.clone() })),
            SUBSCRIPTIONS_SCHEMA => Some(Arc::new(Subscriptions { source: self.source.clone() })),
            PG_CATALOG => Some(Arc::new(ComputedSchema { source: self.source.clone(), schema: PG_CATALOG })),
            INFORMATION_INNER => {
                Some(Arc::new(ComputedSchema { source: self.source.clone(), schema: INFORMATION_INNER }))
            }
            name => {
                let as_of = name.strip_prefix(PAST_SCHEMA)?.parse().ok()?;
                Some(Arc::new(Tables {
                    source: self.source.clone(),
                    views: self.public.views.clone(),
                    hidden_keys: false,
                    skips_privileges: false,
                    as_of: Some(as_of),
                    zone: None,
                }))
            }
        }
    }
}

/// Changes of tables, by the names of these.
#[derive(Debug)]
struct Changes {
    source: Source,
}

/// Subscriptions, by the texts of their statements.
#[derive(Debug)]
struct Subscriptions {
    source: Source,
}

impl Source {
    /// Table that the session's role may read.
    fn readable_table(&self, name: &str) -> Result<Arc<Table>> {
        self.variables.authority.require(Privileges::SELECT, name)?;
        match (self.catalog.table(name), stream_kind(&self.catalog, name)?) {
            (Err(_), Some(kind)) => Err(no_table(kind, name)),
            (table, _) => Ok(table?),
        }
    }

    fn is_view(&self, name: &str) -> bool {
        self.catalog.relation_kind(name) == Some(RelationKind::View)
    }

    fn zone(&self) -> String {
        self.variables.settings().value("TimeZone").to_owned()
    }
}

#[async_trait]
impl SchemaProvider for Changes {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let (catalog, current) = (Arc::clone(&self.source.catalog), Arc::clone(&self.source.current));
        let table = self.source.readable_table(name).map_err(external)?;
        Ok(Some(Arc::new(ChangesTable::new(catalog, current, table, &self.source.zone()))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.source.catalog.table(name).is_ok()
    }
}

#[async_trait]
impl SchemaProvider for Subscriptions {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, text: &str) -> DFResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let subscription = Subscription::parse(text).map_err(external)?;
        let of_view = match subscription.relations.as_slice() {
            [name] if !subscription.is_list && self.source.is_view(name) => {
                Some(format!("SELECT * FROM {}", Ident::with_quote('"', name)))
            }
            _ => None,
        };
        let query = match (subscription.query.clone().or(of_view), self.source.views.get()) {
            (Some(query), Some(views)) => {
                let (state, plan) = views.subscribed(&query).await?;
                Some(SubscribedQuery::new(&state, plan).map_err(external)?)
            }
            _ => None,
        };
        let planned = || {
            let tables = match &query {
                Some(query) => vec![Arc::clone(&query.table)],
                None => {
                    let tables = subscription.relations.iter();
                    tables.map(|name| self.source.readable_table(name)).collect::<Result<Vec<_>>>()?
                }
            };
            let shown = ShownSubscription {
                sessions: self.source.sessions.clone(),
                variables: Arc::clone(&self.source.variables),
            };
            let zone = self.source.zone();
            subscription::provider(&self.source.catalog, (tables, query), &subscription, (&zone, shown))
        };
        planned().map(Some).map_err(external)
    }

    fn table_exist(&self, _text: &str) -> bool {
        true
    }
}

/// Refusal of a query of a source or stream.
fn no_table(kind: &str, name: &str) -> Error {
    Error::coded(
        "42809",
        format!(
            "\"{name}\" is a {kind}, not a table: its rows pass through topologies; let one write them, as in CREATE TOPOLOGY t AS (INSERT INTO target SELECT … FROM {name}), and query the target"
        ),
    )
}

#[derive(Debug)]
struct Tables {
    source: Source,
    views: Views,
    hidden_keys: bool,
    /// True if the privilege to read is checked elsewhere.
    skips_privileges: bool,
    /// Snapshot timestamp of the tables.
    as_of: Option<Timestamp>,
    /// Zone of TIMESTAMPTZ; none is that of the session.
    zone: Option<&'static str>,
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        let tables = self.source.catalog.tables();
        tables.iter().map(|table| table.name().to_owned()).chain(self.views.names()).collect()
    }

    async fn table(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if is_catalog_relation(name)
            && let Some(relation) = REGISTRY.find(PG_CATALOG, name)
        {
            return relation.provider(&self.source).map(Some);
        }
        if !self.skips_privileges
            && let Some(kind) = self.source.catalog.relation_kind(name)
        {
            let required = self.source.variables.authority.require_on(Privileges::SELECT, kind, name);
            required.map_err(external)?;
        }
        match self.source.catalog.table(name) {
            Ok(table) => {
                let (catalog, mut current) =
                    (Arc::clone(&self.source.catalog), Arc::clone(&self.source.current));
                if let Some(at) = self.as_of {
                    current = Arc::new(Current::default());
                    current.set(Some(catalog.begin_as_of(at).map_err(external)?));
                }
                let settings = self.source.variables.settings();
                let zone = self.zone.unwrap_or_else(|| settings.value("TimeZone"));
                let is_current = self.as_of.is_none() && !self.hidden_keys;
                if is_current && self.source.current.pending_views().iter().any(|view| view == name) {
                    return PendingView::provider(&self.source, &self.views, &table, zone).await;
                }
                Ok(Some(Arc::new(EntresolTable::new(catalog, current, table, self.hidden_keys, zone))))
            }
            Err(TableError::NoSuchTable { .. }) => match stream_kind(&self.source.catalog, name)? {
                Some(kind) => Err(external(no_table(kind, name))),
                None => Ok(None),
            },
            Err(TableError::WrongKind { .. }) if !self.hidden_keys => self.views.relation(name).await,
            Err(error) => Err(external(error)),
        }
    }

    async fn table_type(&self, name: &str) -> DFResult<Option<TableType>> {
        let kind = if self.views.is_view(name) { TableType::View } else { TableType::Base };
        Ok(self.table_exist(name).then_some(kind))
    }

    fn table_exist(&self, name: &str) -> bool {
        let catalog = &self.source.catalog;
        catalog.table(name).is_ok() || (!self.hidden_keys && catalog.relation_kind(name).is_some())
    }
}

/// Schema with computed relations.
#[derive(Debug)]
struct ComputedSchema {
    source: Source,
    schema: &'static str,
}

#[async_trait]
impl SchemaProvider for ComputedSchema {
    fn table_names(&self) -> Vec<String> {
        REGISTRY.of_schema(self.schema).iter().map(|relation| relation.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        REGISTRY.find(self.schema, name).map(|relation| relation.provider(&self.source)).transpose()
    }

    async fn table_type(&self, name: &str) -> DFResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::View))
    }

    fn table_exist(&self, name: &str) -> bool {
        REGISTRY.find(self.schema, name).is_some()
    }
}

#[derive(Debug)]
struct System {
    source: Source,
}

#[async_trait]
impl SchemaProvider for System {
    fn table_names(&self) -> Vec<String> {
        system::TABLES.iter().map(|&name| name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>, DataFusionError> {
        system::table(&self.source, name)
    }

    async fn table_type(&self, name: &str) -> DFResult<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::View))
    }

    fn table_exist(&self, name: &str) -> bool {
        system::TABLES.contains(&name)
    }
}
