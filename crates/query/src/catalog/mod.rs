//! `pg_catalog`, `information_schema` and the functions on them, as PostgreSQL tools use them.
//!
//! ```text
//!   statement ─▶ spelling ────▶ DataFusion's planner ─▶ correlated ─▶ …
//!                 PostgreSQL's      │ schemas            subqueries that
//!                 syntax, casts     ▼                    DataFusion cannot join
//!                                relation ◀─ view ◀─ the tables' catalog, roles, settings
//!                                   ▲
//!                 functions ────────┘
//! ```
//!
//! # Invariants
//!
//! - Nothing is stored: each relation is computed when a statement that names it is planned, from the catalog
//!   at that time. Definitions are not transactional here, so the statement's tables are in the same state.
//! - An object keeps its number ([`oids`]) for its lifetime, over restarts.
//! - A PostgreSQL relation without counterpart exists and is empty; a column without counterpart is NULL, or
//!   PostgreSQL's value for "none".
//!
//! Memory: a relation is one batch; rows are as many as there are columns, indexes and constraints of tables.

pub(crate) mod call;
pub(crate) mod cell;
pub(crate) mod definitions;
pub(crate) mod functions;
pub(crate) mod oids;
pub(crate) mod registry;
pub(crate) mod relation;
pub(crate) mod resolve;
pub(crate) mod rows;
pub(crate) mod view;

use crate::schema_names::PG_CATALOG;

/// Returns true if a table of this name, without a schema, is one of `pg_catalog`: they precede those of
/// `public`.
pub(crate) fn is_catalog_relation(name: &str) -> bool {
    name.starts_with("pg_") && registry::REGISTRY.find(PG_CATALOG, name).is_some()
}
