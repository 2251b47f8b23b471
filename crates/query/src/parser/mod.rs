//! Query text to statements.
//!
//! [`statement`] parses with DataFusion's parser and sorts statements into [`Command`](statement::Command)s. Statements that
//! it lacks are split off before it sees them ([`split`]): BACKUP, VACUUM, FETCH, MOVE, sequences, AS OF.
//! Nothing here looks at tables or makes plans.

pub(crate) mod as_of;
pub(crate) mod copy;
pub(crate) mod copy_options;
pub(crate) mod depth;
pub(crate) mod dialect;
pub(crate) mod fetch;
pub(crate) mod names;
pub(crate) mod refusals;
pub(crate) mod respelling;
pub(crate) mod sequence;
pub(crate) mod sequence_calls;
pub(crate) mod split;
pub(crate) mod statement;
pub(crate) mod vacuum;
pub mod visit;
pub(crate) mod words;
