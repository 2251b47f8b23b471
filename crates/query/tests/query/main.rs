//! SQL against a whole database: text tests under a matrix of configurations, and concurrent sessions.
#![allow(missing_docs)]

mod runner;
mod sessions;
