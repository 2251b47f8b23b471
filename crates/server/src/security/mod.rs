//! Authentication: passwords, roles, encryption. Privileges are checked by the session, which gets its role
//! from here.

pub mod roles;
pub(crate) mod scram;
pub(crate) mod statements;
pub(crate) mod tls;
