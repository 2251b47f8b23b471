//! What PostgreSQL's tools look at: `pg_catalog`, `information_schema`, and the functions on them.
//!
//! ```text
//!   statement ─▶ spelling ──────▶ engine's planner ─▶ correlated ─▶ …
//!                 PostgreSQL's      │ schemas            subqueries that
//!                 words, casts      ▼                    the engine cannot join
//!                                relation ◀─ view ◀─ the tables' catalog, roles, settings
//!                                   ▲
//!                 functions ────────┘
//! ```
//!
//! # Invariants
//!
//! - Nothing is stored: each relation is computed when a statement that names it is planned, from the catalog as it
//!   is then. Definitions are not transactional here, so that is what the statement's tables are, too.
//! - An object keeps its number ([`oids`]) as long as it lives, over restarts.
//! - A relation of PostgreSQL's that has no counterpart is there and empty; a column without one is NULL, or
//!   what PostgreSQL has for "none".
//!
//! Memory: a relation is one batch; rows are as many as there are columns, indexes and constraints of tables.

pub(crate) mod call;
pub(crate) mod cell;
pub(crate) mod constraints;
pub(crate) mod definitions;
pub(crate) mod functions;
pub(crate) mod history;
pub(crate) mod information;
pub(crate) mod named;
pub(crate) mod objects;
pub(crate) mod oids;
pub(crate) mod registry;
pub(crate) mod relation;
pub(crate) mod relations;
pub(crate) mod resolve;
pub(crate) mod roles;
pub(crate) mod server;
pub(crate) mod system;
pub(crate) mod vacuum;
pub(crate) mod view;

use crate::schema_names::{INFORMATION_SCHEMA, PG_CATALOG};

/// Whether a table of this name, without a schema, is one of `pg_catalog`: they come before those of `public`.
pub fn is_catalog_relation(name: &str) -> bool {
    name.starts_with("pg_") && registry::REGISTRY.find(PG_CATALOG, name).is_some()
}
