//! The protocol's bytes: messages of clients, and messages to them.

pub(crate) mod backend;
pub(crate) mod frontend;
