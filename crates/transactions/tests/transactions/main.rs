//! Tests of transactions from outside. Those of mutants have binaries of their own, for which the feature is asked.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bank;
mod common;
mod cost;
mod crash;
mod crash_storm;
mod crash_threads;
mod detached;
mod faults;
mod fences;
mod groups;
mod in_place;
mod independence;
mod isolation;
mod live_keys;
mod load;
mod model;
mod old_versions;
mod opening;
mod past;
mod placement;
mod protocol;
mod protocols;
mod reopen;
mod space;
mod stress;
