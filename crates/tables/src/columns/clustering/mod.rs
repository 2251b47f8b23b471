//! Layout `clustered`: row groups that each have the rows of a range of cluster keys (the PTable of the dissertation,
//! 4.2; BDCC: Baumann, Boncz and Sattler, 2016).
//!
//! ```text
//!   row ──▶ code of each dimension ──▶ cluster key ──▶ block with that key
//!           bins ([`bins`])            bits ([`key`])   division ([`division`])
//!                 └──── scheme, with a version ([`scheme`]) ────┘
//! ```

pub(crate) mod bins;
pub(crate) mod choice;
pub(crate) mod division;
pub(crate) mod key;
pub(crate) mod key_order;
pub(crate) mod mixture;
pub(crate) mod places;
pub(crate) mod prune;
pub(crate) mod recluster;
pub(crate) mod scheme;
pub(crate) mod store;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
