//! The wire protocol as clients use it: a real server in this process, tokio-postgres, psql, and bytes that
//! are no protocol.
#![allow(clippy::unwrap_used)]

mod activity;
mod cancellation;
mod copy;
mod effects;
mod extended;
mod hostile;
mod isolation;
mod limits;
mod owners;
mod portals;
mod protocol;
mod psql;
mod raw;
mod security;
mod settings;
mod subscriptions;
mod support;
mod types;
mod zones;
