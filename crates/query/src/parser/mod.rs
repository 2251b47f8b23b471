//! Query text to commands; [`statement`] is the front door, and says how a text passes through.
//!
//! Nothing here looks at tables or makes plans.

pub(crate) mod as_of;
pub(crate) mod classification;
pub(crate) mod command;
pub(crate) mod copy;
pub(crate) mod copy_options;
pub(crate) mod depth;
pub(crate) mod fetch;
pub(crate) mod fingerprint;
pub(crate) mod kind;
pub(crate) mod lexer;
pub(crate) mod names;
pub(crate) mod own;
pub(crate) mod refusals;
pub(crate) mod rewriting;
pub(crate) mod role;
pub(crate) mod script;
pub(crate) mod sequence;
pub(crate) mod sequence_calls;
pub(crate) mod statement;
pub(crate) mod system_time;
pub(crate) mod tokens;
pub(crate) mod vacuum;
pub(crate) mod visit;
pub(crate) mod words;
