//! Materialized views: tables that hold the rows of a query, maintained in the commit that changes what it
//! reads.
//!
//! ```text
//!   COMMIT ─▶ watched table written? ─▶ keys of the changed rows ─▶ query WHERE key IN (...) ─▶ difference ─▶ commit
//!                                       (old and new)               in the transaction          to the table
//! ```
//! A materialized view `v` is a table of this name that only its maintenance writes, and a view `v_query` with
//! its query: what `v` holds, computed now.
//!
//! # Invariants
//! - At each snapshot the table has exactly the rows of the query at this snapshot, if all values of the query
//!   are exact: sums of floating point numbers may differ in their last digits.
//! - Two transactions that may change the same rows of a view do not both commit: each writes a guard, a row of
//!   [`GUARDS_TABLE`] for a part of the view's keys, and the first committer wins.
//! - Views over materialized views are maintained behind those, in the order of their creation.
//! - A view with deferred refresh ([`deferred`]) is maintained behind the commits: it equals its query at an earlier
//!   snapshot, which a row of [`POSITIONS_TABLE`] says.
//!
//! # Cost
//! Views of counts and sums over one table are changed by what the transaction changed ([`incremental`]), on its own
//! thread. For others:
//! A commit runs the query for the keys that it changed, where the view has columns that are plain columns of
//! the changed table ([`keys`]); else it runs the whole query. One thread maintains all views; another
//! refreshes those behind the commits.

pub(crate) mod deferred;
pub(crate) mod explaining;
pub(crate) mod incremental;
pub(crate) mod keys;
pub(crate) mod maintenance;
pub(crate) mod statements;

/// Table of the guards: of each view, numbers.
pub(crate) const GUARDS_TABLE: &str = "materialized_view_guards";
/// Table of the views with deferred refresh: the commit timestamp of the snapshot that each equals its query at, 0 before
/// the first one, and the interval of its refresh.
pub(crate) const POSITIONS_TABLE: &str = "materialized_view_positions";
