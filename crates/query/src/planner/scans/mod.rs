//! Scans: the table provider, access paths, and the operator that reads rows into columns.

pub(crate) mod access;
pub(crate) mod changes;
pub(crate) mod column_scan;
mod json_rows;
pub(crate) mod pending_view;
pub(crate) mod provider;
pub(crate) mod scan;
pub(crate) mod statistics;
pub(crate) mod subscribed_query;
pub(crate) mod subscription;
