//! Tests of indexes that have mutants: apart from the others, since they are built with the feature once more.

#![allow(clippy::unwrap_used, reason = "tests")]

mod btree;
mod crash;
mod crash_destroy;
#[cfg(feature = "mutants")]
mod points;
