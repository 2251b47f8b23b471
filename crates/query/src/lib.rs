//! SQL over Entresol's tables: parsing, planning and execution by Apache DataFusion, bound to transactions.
//!
//! ```text
//!   SQL ─▶ parser ─▶ execution ──┬─ session      BEGIN, COMMIT, SET, savepoints
//!                                ├─ ddl          CREATE, ALTER, DROP, VACUUM, BACKUP
//!                                ├─ streaming    sources and topologies
//!                                ├─ dml          INSERT, UPDATE, DELETE; what they compute comes from
//!                                └─ planner      queries: translation ─▶ DataFusion and our rules
//!                                     │ schemas, provider                    catalog: pg_catalog, system tables
//!                                     ▼                                      postgres: types, arithmetic, functions
//!                                access ─▶ scan ─▶ columns                   filters → keys and ranges → Arrow batches
//! ```
//!
//! A folder imports only from those before it: parser, postgres, session, catalog, planner, dml, row_files, ddl,
//! streaming, execution. The test `stages` holds that.
//!
//! # Invariants
//!
//! - Every statement runs in one transaction: it reads one snapshot plus the writes of its own transaction,
//!   and never what it writes itself. Snapshot isolation is the default; BEGIN takes READ COMMITTED and
//!   SERIALIZABLE too.
//! - A statement that fails, or whose future is dropped, leaves nothing behind.
//! - Nothing is written by DataFusion; all writes go through [`entresol_tables::Table`], which checks types,
//!   NULL and keys.
//!
//! # State after a crash
//!
//! All of a committed statement or block, nothing of others, as for any transaction. A CREATE TABLE AS is two
//! steps, the table and its rows; a crash between them leaves an empty table.
//!
//! # Memory bounds
//!
//! [`query_memory`] for what queries compute, one batch ([`BATCH_ROWS`]) per scan, the transactions' write
//! sets. Collected results are the caller's; [`Session::stream`] avoids them.
#![forbid(unsafe_code)]

mod catalog;
mod ddl;
mod dml;
mod error;
mod execution;
mod materialized;
mod parser;
mod planner;
mod postgres;
mod privileges;
mod row_files;
mod schema_names;
mod session;
mod streaming;

pub use catalog::rows::roles::grant_of;
pub use catalog::rows::stream_metrics::{StreamMetric, stream_metrics};
pub use catalog::rows::streams::stream_kind;
/// Arrow and DataFusion, in the version that results are made of.
pub use datafusion;
pub use datafusion::arrow;
pub use entresol_tables::arrow_type;
pub use error::{Error, Result, tables_sqlstate, transactions_sqlstate};
#[cfg(any(test, feature = "fuzzing"))]
pub use execution::copy::fuzzing;
pub use execution::copy::{CopyIn, CopyLines, CopyOut, LINE_BYTES_MAX};
pub use execution::cursor::{CURSORS_MAX, CursorUse};
pub use execution::named_statements::STATEMENTS_MAX;
pub use execution::prepared::PreparedStatement;
pub use execution::row_stream::ResultCursor;
pub use execution::session::Session;
pub use parser::depth::{CHAIN_MAX, SELECTS_MAX, STACK_BYTES};
pub use parser::own::copy::CopyStatement;
pub use parser::own::owner::OwnerTarget;
pub use parser::own::role::{GrantTables, RoleOptions, RoleStatement};
pub use parser::statement::{ParsedStatement, SQL_BYTES_MAX, SessionStatement};
pub use parser::text::fingerprint::{Literal, fingerprint};
pub use parser::text::kind::StatementKind;
pub use parser::text::script::{Splitter, StatementText, statements};
pub use planner::parameters::PARAMETERS_MAX;
pub use planner::scans::scan::{BATCH_ROWS, EntresolScan};
pub use planner::views::VIEW_DEPTH_MAX;
pub use postgres::settings::SERVER_VERSION;
pub use postgres::time_zones::parse_instant;
pub use postgres::types::{column_type, displayed, modifier_of, visible_schema};
pub use privileges::{ALL_TABLES, GRANTS_TABLE, Privileges, ROLES_TABLE, Role, SCHEMA_GRANT};
pub use schema_names::{CATALOG, SCHEMA, SYSTEM_SCHEMA};
pub use session::activity::{ClientConnection, SHOWN_QUERY_BYTES};
pub use session::block::SAVEPOINTS_MAX;
pub use session::cancellation::Canceller;
pub use session::core::{CONFLICT_RETRIES_MAX, SessionOptions};
pub use session::materialized::MaterializedViews;
pub use session::messages::{Notice, NoticeLevel};
pub use session::notices::NOTICES_MAX;
pub use session::owners::{owned_by, owner_of_relation, reassign_owned};
pub use session::query_memory::query_memory;
pub use session::result::{CollectedRows, FastPathResult, Outcome, StatementResult};
pub use session::snapshots::Sessions;
pub use session::statement_memory::statement_memory;
pub use session::topologies::Topologies;
pub use session::user_functions::UserFunctions;
pub use session::variables::Client;
