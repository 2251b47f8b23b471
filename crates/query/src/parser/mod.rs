//! Query text to commands; [`statement`] is the front door, and says how a text passes through.
//!
//! Nothing here looks at tables or makes plans.

pub(crate) mod classification;
pub(crate) mod command;
pub(crate) mod depth;
pub(crate) mod descriptors;
pub(crate) mod distinct_from;
pub(crate) mod durations;
pub(crate) mod explain_options;
pub(crate) mod joined_changes;
pub(crate) mod merge;
pub(crate) mod names;
pub(crate) mod normal_forms;
pub(crate) mod own;
pub(crate) mod patterns;
pub(crate) mod refusals;
pub(crate) mod rewriting;
pub(crate) mod sequence_calls;
pub(crate) mod statement;
pub(crate) mod stored_expressions;
pub(crate) mod system_time;
pub(crate) mod text;
pub(crate) mod visit;
pub(crate) mod window_names;
pub(crate) mod windows;
