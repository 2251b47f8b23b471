//! Statements run: [`run`] sends each to its stage.
//!
//! [`session`] is a client's state, [`prepared`] plans once and runs often, [`cursor`] and [`copy`] hand rows
//! out and take them in, [`set`] changes settings.

pub(crate) mod authorization;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod interface;
pub(crate) mod named_statements;
pub(crate) mod prepared;
pub(crate) mod row_stream;
pub(crate) mod run;
pub(crate) mod search_path;
pub(crate) mod session;
pub(crate) mod set;
