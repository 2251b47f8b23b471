//! SQL against a complete database: SQL text tests under a matrix of configurations, and concurrent sessions.
#![allow(missing_docs, clippy::unwrap_used)]

mod advice;
mod copy;
mod counts;
mod elf;
mod files;
mod generic_plans;
mod joined_rows;
mod key_filters;
mod loads;
mod lookup_joins;
mod merge;
mod names;
mod placement;
mod prepared;
mod privileges;
mod random;
mod relations;
mod repeated_statements;
mod runner;
mod scans;
mod sessions;
mod short_way;
mod star;
mod statistics;
mod subscriptions;
