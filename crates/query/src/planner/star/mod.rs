//! Star joins: a fact table, dimension tables around it, and the aggregation of what joins, as one operator.
//!
//! ```text
//!   dimensions ─▶ collect ─▶ KeyMap, GroupCodes ─┐  once, shared by all partitions
//!                                                ▼
//!   fact, a partition ─▶ Probe: key bitmaps, one dimension after the other ─▶ rows that join
//!                                                                             │
//!                       combination of group codes ─▶ group ─▶ accumulators ◀─┘ gathered arguments
//! ```
//!
//! [`rule`] finds stars in the plan of DataFusion ([`tree`], [`matching`]); [`exec`] is the operator;
//! [`sideways`] is the interface for a scan of the fact that uses the keys of dimensions.
//!
//! # Invariants
//!
//! - The result is that of DataFusion's hash joins and aggregation for any data. A key that occurs several
//!   times in a dimension makes several joined rows; NULL joins with nothing; groups that are too many for
//!   codes are aggregated by DataFusion's operator over the joined rows.
//! - Expressions are evaluated by DataFusion, with checked arithmetic, for rows that join, or for fewer.
//! - The order of probes changes while rows flow, and no result depends on it.
//!
//! # Memory bounds
//!
//! Dimensions after their filters, once; per partition a batch, and the states of groups that occur. All is
//! reserved in the memory pool of queries; what it does not grant is an error, as for a hash join.

mod aggregate;
mod build;
mod conditions;
mod dimension;
mod exec;
mod gather;
pub(crate) mod keys;
mod matching;
mod planned;
mod probe;
pub(crate) mod rule;
pub(crate) mod sideways;
mod tree;
mod turn;

pub(crate) use exec::StarJoinExec;

#[cfg(test)]
mod tests;
