//! Files of the tree: runs with their blocks and filters, the log, and the manifest that names them.

pub(crate) mod block;
pub(crate) mod file;
pub(crate) mod filter;
pub(crate) mod log;
pub(crate) mod manifest;
pub(crate) mod run;
pub(crate) mod segments;
pub(crate) mod writer;
