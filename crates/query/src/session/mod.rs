//! State of a session that statements of all stages use: [`core::SessionCore`].
//!
//! Its transaction block, settings, cancellation, notices, memory, and the functions that read them.
//! Statements are run in [`crate::execution`].

pub(crate) mod activity;
pub(crate) mod authority;
pub(crate) mod block;
pub(crate) mod block_rows;
pub(crate) mod cancellation;
pub(crate) mod commit;
pub(crate) mod core;
pub(crate) mod current;
pub(crate) mod loads;
pub(crate) mod materialized;
pub(crate) mod messages;
pub(crate) mod notices;
pub(crate) mod owners;
pub(crate) mod plan_cache;
pub(crate) mod query_memory;
pub(crate) mod result;
pub(crate) mod row_buffer;
pub(crate) mod run_values;
pub(crate) mod search_path;
pub(crate) mod sequence_functions;
pub(crate) mod snapshots;
pub(crate) mod state_size;
pub(crate) mod statement_memory;
pub(crate) mod subscriptions;
pub(crate) mod templates;
pub(crate) mod topologies;
pub(crate) mod user_functions;
pub(crate) mod vacuums;
pub(crate) mod variables;
