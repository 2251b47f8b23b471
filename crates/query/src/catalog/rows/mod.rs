//! Rows of the computed relations, one module for each group of them.

pub(crate) mod activity;
pub(crate) mod comments;
pub(crate) mod constraints;
pub(crate) mod history;
pub(crate) mod indexes;
pub(crate) mod information;
pub(crate) mod loads;
pub(crate) mod materialized;
pub(crate) mod named;
pub(crate) mod objects;
pub(crate) mod relations;
pub(crate) mod roles;
pub(crate) mod server;
pub(crate) mod statistics;
pub(crate) mod stream_metrics;
pub(crate) mod streams;
pub(crate) mod subscriptions;
pub(crate) mod system;
pub(crate) mod vacuum;
pub(crate) mod workload;
