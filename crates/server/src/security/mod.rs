//! Authentication and privileges: passwords, roles, encryption.

pub(crate) mod privileges;
mod relations;
pub mod roles;
pub(crate) mod scram;
pub(crate) mod statements;
pub(crate) mod tls;
