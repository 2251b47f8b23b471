//! Input of the catalog's relations and functions: tables, roles and settings, as of now.

use super::oids;
use super::relation::{self, Registry};
use super::rows::roles;
use crate::error::external;
use crate::postgres::pg_types;
use crate::privileges::Role;
use crate::session::current::Current;
use crate::session::snapshots::Sessions;
use crate::session::topologies::Topologies;
use crate::session::variables::{Client, SessionVariables};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::Result as DFResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use entresol_structures::IndexStructure;
use entresol_tables::{Catalog, Column, DimensionOrder, ElfCaching, ElfDefinition, Index, Table};
use entresol_transactions::{INFINITY, StateId, Transaction};
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

/// Planner of relations that are stored as query text.
#[async_trait]
pub(crate) trait PlannedRelations: Debug + Send + Sync {
    /// The view or sequence of a name.
    async fn relation(&self, name: &str) -> DFResult<Option<Arc<dyn TableProvider>>>;

    /// Plan of the query of a subscription, with the rights of the session's role, and the state in which it is planned.
    async fn subscribed(&self, query: &str) -> DFResult<(SessionState, LogicalPlan)>;
}

/// Source of [`View`]s; one per session.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) current: Arc<Current>,
    pub(crate) variables: Arc<SessionVariables>,
    pub(crate) sessions: Sessions,
    pub(crate) topologies: Topologies,
    /// Set once the DataFusion context is made.
    pub(crate) views: Arc<OnceLock<Arc<dyn PlannedRelations>>>,
    pub(crate) registry: &'static Registry,
}

impl Source {
    /// Returns the current state.
    pub(crate) fn view(&self) -> DFResult<View> {
        Ok(View {
            tables: self.catalog.tables(),
            catalog: Arc::clone(&self.catalog),
            transaction: self.current.get(&self.catalog)?,
            variables: Arc::clone(&self.variables),
            sessions: self.sessions.clone(),
            topologies: self.topologies.clone(),
            views: Arc::clone(&self.views),
            registry: self.registry,
        })
    }
}

/// See the [module](self).
pub(crate) struct View {
    /// User tables, by name.
    pub(crate) tables: Vec<Arc<Table>>,
    pub(crate) catalog: Arc<Catalog>,
    transaction: Arc<Transaction>,
    pub(crate) variables: Arc<SessionVariables>,
    pub(crate) sessions: Sessions,
    pub(crate) topologies: Topologies,
    /// Plans the views.
    pub(crate) views: Arc<OnceLock<Arc<dyn PlannedRelations>>>,
    pub(crate) registry: &'static Registry,
}

/// Index of a user table; PRIMARY KEY of CREATE TABLE is shown as one.
pub(crate) struct IndexView<'v> {
    pub(crate) oid: i64,
    pub(crate) name: String,
    pub(crate) table: &'v Table,
    pub(crate) columns: Vec<usize>,
    pub(crate) unique: bool,
    pub(crate) primary: bool,
    /// Number of the constraint that the index enforces.
    pub(crate) constraint: Option<i64>,
    pub(crate) valid: bool,
    /// Order of the dimensions of an Elf, and what of it is cached; none of other indexes.
    pub(crate) elf: Option<(DimensionOrder, ElfCaching)>,
    /// Structure of its state.
    pub(crate) structure: IndexStructure,
    /// Reason of the structure, if it was chosen for the index.
    pub(crate) structure_reason: Option<&'v str>,
    /// Bytes of DRAM for its hot entries; 0: it has none.
    pub(crate) hot_bytes: u64,
    /// Bytes of its nodes, if they are not those that the structure takes.
    pub(crate) node_bytes: Option<u16>,
    /// True if its entries have hash codes.
    pub(crate) hashed: bool,
}

impl IndexView<'_> {
    /// Name of its access method.
    pub(crate) fn method(&self) -> &'static str {
        match self.structure {
            _ if self.elf.is_some() => "elf",
            _ if self.hashed => "hash",
            structure if structure == IndexStructure::default() => "btree",
            structure => structure.name(),
        }
    }

    /// Its columns.
    pub(crate) fn column(&self, at: usize) -> Option<&Column> {
        self.columns.get(at).map(|&column| &self.table.schema().columns()[column])
    }
}

/// The indexes of a table, by name.
pub(crate) fn indexes_of(table: &Table) -> Vec<IndexView<'_>> {
    let mut all = Vec::new();
    let state = table.state().id();
    if !table.schema().hidden_key() {
        all.push(IndexView {
            oid: oids::key_index(state),
            name: table.definition().key_constraint(table.name()),
            table,
            columns: table.schema().key().to_vec(),
            unique: true,
            primary: true,
            constraint: Some(oids::key_constraint(state)),
            valid: true,
            elf: None,
            structure: IndexStructure::default(),
            structure_reason: None,
            hot_bytes: 0,
            node_bytes: None,
            hashed: false,
        });
    }
    // An index that is being built may still be abandoned.
    let built = table.indexes().iter().filter(|index| index.readable_from() != INFINITY);
    all.extend(built.map(|index| secondary(table, index)));
    if let Some(row_groups) = table.row_group_state() {
        all.extend(table.definition().elves.iter().map(|elf| of_row_groups(table, row_groups.id(), elf)));
    }
    all.sort_by(|left, right| left.name.cmp(&right.name));
    all
}

fn secondary<'v>(table: &'v Table, index: &'v Index) -> IndexView<'v> {
    let definition = index.definition();
    let state = index.state_id();
    IndexView {
        oid: oids::state(state),
        name: definition.name.clone(),
        table,
        columns: definition.columns.clone(),
        unique: definition.unique,
        primary: definition.primary,
        constraint: definition.constraint.then(|| oids::unique_constraint(state)),
        valid: index.damage().is_none(),
        elf: None,
        structure: definition.structure,
        structure_reason: definition.structure_reason.as_deref(),
        hot_bytes: index.hot_bytes(),
        node_bytes: definition.node_bytes,
        hashed: definition.hashed,
    }
}

fn of_row_groups<'v>(table: &'v Table, row_groups: StateId, elf: &ElfDefinition) -> IndexView<'v> {
    IndexView {
        oid: oids::elf(row_groups, elf.number),
        name: elf.name.clone(),
        table,
        columns: elf.columns.clone(),
        unique: false,
        primary: false,
        constraint: None,
        valid: true,
        elf: Some((elf.order, elf.caching)),
        structure: IndexStructure::default(),
        structure_reason: None,
        hot_bytes: 0,
        node_bytes: None,
        hashed: false,
    }
}

impl View {
    /// Client of the session.
    pub(crate) fn client(&self) -> Client {
        self.variables.client()
    }

    /// Roles of the database; empty as long as no password is required.
    pub(crate) fn roles(&self) -> DFResult<Vec<Role>> {
        roles::read(&self.catalog, &self.transaction).map_err(external)
    }

    /// The name of a role's number.
    pub(crate) fn role_name(&self, oid: i64) -> DFResult<Option<String>> {
        if oid == oids::OWNER {
            return Ok(Some(crate::schema_names::CATALOG.to_owned()));
        }
        Ok(self.roles()?.into_iter().map(|role| role.name).find(|name| oids::role(name) == oid))
    }

    /// The indexes of all tables.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = IndexView<'_>> {
        self.tables.iter().flat_map(|table| indexes_of(table))
    }

    /// The table of a number.
    pub(crate) fn table(&self, oid: i64) -> Option<&Arc<Table>> {
        self.tables.iter().find(|table| oids::state(table.state().id()) == oid)
    }

    /// Schemas by number.
    pub(crate) fn schemas() -> [(i64, &'static str); 4] {
        [
            (oids::PG_CATALOG, crate::schema_names::PG_CATALOG),
            (oids::PUBLIC, crate::schema_names::SCHEMA),
            (oids::INFORMATION_SCHEMA, crate::schema_names::INFORMATION_SCHEMA),
            (oids::SYSTEM, crate::schema_names::SYSTEM_SCHEMA),
        ]
    }

    /// The name of a schema's number.
    pub(crate) fn schema_name(oid: i64) -> Option<&'static str> {
        View::schemas().into_iter().find(|(number, _)| *number == oid).map(|(_, name)| name)
    }
}

/// The number of a schema; 0 if there is none.
pub(crate) fn schema_oid(name: &str) -> i64 {
    View::schemas().into_iter().find(|(_, known)| *known == name).map_or(0, |(oid, _)| oid)
}

/// A column of any relation, as `pg_attribute` has it.
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) data_type: &'static pg_types::PgType,
    pub(crate) modifier: i64,
    pub(crate) not_null: bool,
    pub(crate) default: Option<String>,
}

/// The columns of a user's table.
pub(crate) fn attributes_of(table: &Table) -> Vec<Attribute> {
    let definition = table.definition();
    let columns = table.schema().visible_columns().iter().enumerate();
    columns.map(|(at, column)| attribute(column, definition.defaults[at].clone())).collect()
}

/// A column of a table.
pub(crate) fn attribute(column: &Column, default: Option<String>) -> Attribute {
    let (data_type, modifier) = pg_types::of(column);
    Attribute { name: column.name.clone(), data_type, modifier, not_null: !column.nullable, default }
}

/// The columns of a relation of the catalog.
pub(crate) fn described_attributes(relation: &relation::Relation) -> Vec<Attribute> {
    let columns = relation.columns();
    let attribute = |(name, word): (&'static str, &'static str)| Attribute {
        name: name.to_owned(),
        data_type: pg_types::named(word).unwrap_or(pg_types::text()),
        modifier: -1,
        not_null: false,
        default: None,
    };
    columns.map(attribute).collect()
}
