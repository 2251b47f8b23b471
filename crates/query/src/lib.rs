//! SQL over Entresol's tables: Apache DataFusion parses, plans and runs; this crate binds it to transactions.
//!
//! ```text
//!   SQL ─▶ statement ─▶ session ──┬─ block        BEGIN, COMMIT, ROLLBACK, savepoints
//!                                 ├─ definition   CREATE TABLE, DROP TABLE
//!                                 ├─ define, alter   CREATE INDEX, DROP, ALTER TABLE; views, sequences
//!                                 ├─ source ──▶ engine ──▶ assignment ──▶ write    INSERT, UPDATE, DELETE
//!                                 │              └▶ modify ─▶ defaults, checks, conflict     and what they ask besides
//!                                 └─ engine       queries
//!                                      │ schemas, provider
//!                                      ▼
//!                                 access ─▶ scan ─▶ columns      filters → keys and ranges → Arrow batches
//! ```
//!
//! # Invariants
//!
//! - Every statement runs in one transaction: it reads one snapshot plus the writes of its own transaction, and never
//!   what it writes itself. Snapshot isolation is the default; BEGIN takes READ COMMITTED and SERIALIZABLE too.
//! - A statement that fails, or whose future is dropped, leaves nothing behind.
//! - Nothing is written by the engine; all writes go through [`entresol_tables::Table`], which checks types, NULL
//!   and keys.
//!
//! # What a crash leaves
//!
//! What the transactions leave: all of a committed statement or block, nothing of others. A CREATE TABLE AS is
//! two steps, the table and its rows; a crash between them leaves an empty table.
//!
//! # What bounds memory
//!
//! [`query_memory`] for what queries compute, one batch ([`BATCH_ROWS`]) per scan, the transactions' write sets.
//! Collected results are the caller's; [`Session::stream`] avoids them.
#![forbid(unsafe_code)]

pub mod access;
mod alter;
mod assignment;
mod backup;
mod barriers;
mod block;
mod block_rows;
mod bounded;
mod catalog;
mod chains;
mod chars;
mod checks;
mod columns;
mod compatible;
mod computation;
mod conflict;
mod cooperation;
mod copy;
mod cursor;
mod cursor_text;
mod cut;
mod defaults;
mod define;
mod definition;
mod dialect;
mod drawing;
mod engine;
mod error;
mod execute;
mod explain;
mod expressions;
mod functions;
mod generated;
mod group_keys;
mod index_order;
mod intervals;
mod limits;
mod literals;
mod merged;
mod modify;
mod multisets;
mod notices;
mod numbers;
mod overflow;
mod parameters;
mod past;
mod point;
mod portions;
mod prepared;
mod provider;
mod query_memory;
mod quotients;
mod ranks;
mod refusals;
mod respelled;
mod result;
mod rewriting;
mod row_buffer;
mod row_query;
mod rows;
mod running;
mod scan;
mod schemas;
mod sequence_text;
mod sequences;
mod session;
mod set;
mod settings;
mod single_rows;
mod snapshots;
mod source;
mod statement;
mod statement_memory;
mod subqueries;
mod syntax;
pub mod system;
mod table_options;
mod to_char;
mod truth_tests;
mod types;
mod typing;
mod upkeep;
mod vacuum;
mod view_definition;
mod views;
pub mod walk;
mod words;
mod write;
mod zones;

pub use block::SAVEPOINTS_MAX;
pub use catalog::is_catalog_relation;
pub use catalog::roles::{ALL_TABLES, GRANTS_TABLE, Privileges, ROLES_TABLE, grant_of};
pub use chains::{CHAIN_MAX, SELECTS_MAX, STACK_BYTES, check_chains};
#[cfg(any(test, feature = "fuzzing"))]
pub use copy::fuzzing;
pub use copy::{CopyIn, CopyLines, CopyOut, CopyStatement, LINE_BYTES_MAX};
pub use cursor::{CURSORS_MAX, CursorUse};
/// Arrow and the engine, in the version that results are made of.
pub use datafusion;
pub use datafusion::arrow;
pub use dialect::dialect_of;
pub use error::{Error, Result};
pub use execute::STATEMENTS_MAX;
pub use functions::Client;
pub use notices::NOTICES_MAX;
pub use parameters::PARAMETERS_MAX;
pub use past::moment_query;
pub use portions::Portions;
pub use prepared::Prepared;
pub use query_memory::query_memory;
pub use result::{Collected, Outcome, Short, StatementResult};
pub use running::Canceller;
pub use scan::{BATCH_ROWS, EntresolScan};
pub use schemas::{CATALOG, SCHEMA, SYSTEM_SCHEMA};
pub use session::{CONFLICT_RETRIES_MAX, Session, SessionOptions};
pub use settings::SERVER_VERSION;
pub use snapshots::Sessions;
pub use statement::SQL_BYTES_MAX;
pub use statement_memory::statement_memory;
pub use types::{arrow_type, column_type, modifier_of, padded, visible_schema};
pub use views::VIEW_DEPTH_MAX;
pub use zones::parse_moment;
