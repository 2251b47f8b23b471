//! The protocol's bytes: what clients send, what they get, and how a text is cut into statements.

pub(crate) mod backend;
pub(crate) mod frontend;
pub(crate) mod split;
