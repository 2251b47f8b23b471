//! Subqueries in positions, and with NULLs, that DataFusion does not support.
//!
//! DataFusion joins an IN or EXISTS that is a condition of a WHERE by itself. Elsewhere it treats NULL as
//! false, or has no plan. Two rules, which come before all others, leave it only subqueries that it plans
//! correctly:
//!
//! - [`LiftedSubqueries`] computes those of aggregates, windows, sort keys, conditions of joins and VALUES in
//!   a projection below.
//! - [`Membership`] spells out IN and comparisons with ANY and ALL in projections and filters, with the three
//!   values of SQL's logic.
//!
//! Correlated subqueries that are left are for [`crate::planner::rules::correlated`], which runs it row by
//! row where it cannot be joined.

mod lifted;
mod membership;
mod outer_joins;
pub(crate) mod plans;

pub(crate) use self::lifted::LiftedSubqueries;
pub(crate) use self::membership::Membership;
pub(crate) use self::plans::renumbered;
