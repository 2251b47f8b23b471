//! Tests of topologies that are built in Rust.

#![allow(clippy::unwrap_used, reason = "tests")]

mod asof_joins;
mod changing_sessions;
mod committed;
mod crash;
mod crash_pages;
mod joins;
mod keyed_rows;
mod labels;
mod marked;
mod over_rows;
mod parallel;
mod patterns;
mod ranking;
mod regular_joins;
mod restart;
mod resume;
mod rolled;
mod running;
mod sessions;
mod shared_rows;
mod support;
mod taken_back;
mod transactions;
mod transactions_of_sources;
mod windows;
