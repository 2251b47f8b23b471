//! INSERT, UPDATE, DELETE and MERGE: from computed rows to rows of tables.
//!
//! ```text
//!   statements ─▶ source, merge: query ─▶ planner ─▶ batches ─▶ writer ─┬─ INSERT, COPY, CTAS ──────────▶ table
//!                                                                       └─ UPDATE, DELETE, MERGE: changes ─▶ table
//! ```
//!
//! [`statements`] is the entry, [`authorization`] checks privileges once names are resolved. All new rows go
//! through [`writer`], those of COPY and CREATE TABLE AS too; rows of statements that change others are collected
//! in [`changes`] before the first is written.

pub(crate) mod assignment;
pub(crate) mod authorization;
pub(crate) mod changes;
pub(crate) mod checks;
pub(crate) mod clauses;
pub(crate) mod column_use;
pub(crate) mod completion;
pub(crate) mod computation;
pub(crate) mod conflict;
pub(crate) mod defaults;
pub(crate) mod expressions;
pub(crate) mod fast_path_insert;
pub(crate) mod identity;
pub(crate) mod literal_rows;
pub(crate) mod merge;
pub(crate) mod returning;
pub(crate) mod row_assignments;
pub(crate) mod row_changes;
pub(crate) mod row_query;
pub(crate) mod source;
pub(crate) mod statements;
pub(crate) mod writer;
