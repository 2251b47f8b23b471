//! The protocol's bytes: messages of clients, messages to them, and the splitting of a query text into statements.

pub(crate) mod backend;
pub(crate) mod frontend;
pub(crate) mod split;
