//! Errors of statements.
//!
//! The SQLSTATE of an error is a field of it, or follows from its variant ([`sqlstates`] for the crates
//! below). Errors of DataFusion have none: [`conversion`] finds one where they come in.

mod conversion;
mod names;
mod of_operators;
mod planning;
mod sqlstates;
mod variants;
mod wording;

pub(crate) use self::of_operators::{as_stream_error, operator_sqlstate, topology_error};
pub use self::sqlstates::{tables_sqlstate, transactions_sqlstate};
pub(crate) use self::variants::external;
pub use self::variants::{Error, Result};
pub(crate) use self::wording::{not_finite, unreadable_numeral, unreadable_time, unsupported};
