//! INSERT, UPDATE, DELETE and MERGE: from computed rows to rows of tables.
//!
//! [`statements`] is the entry; new rows go through [`writer`], those of COPY and CREATE TABLE AS too.

pub(crate) mod assignment;
pub(crate) mod checks;
pub(crate) mod clauses;
pub(crate) mod computation;
pub(crate) mod conflict;
pub(crate) mod defaults;
pub(crate) mod expressions;
pub(crate) mod identity;
pub(crate) mod literal_rows;
pub(crate) mod merge;
pub(crate) mod returning;
pub(crate) mod row_query;
pub(crate) mod short_insert;
pub(crate) mod source;
pub(crate) mod statements;
pub(crate) mod writer;
