//! Advice: changes of a table's layout and indexes that make its recorded workload cheaper.
//!
//! ```text
//!   workload ─▶ profiles beside a sample ─▶ cost in the design that is ─┐
//!               candidates: indexes, Elfs, layouts, dimensions ─────────┴▶ the best one, and again with it
//! ```
//!
//! - Candidates come of the conditions of the recorded queries. The best one is proposed if it spares at least
//!   [`GAIN_MIN`] of the time of the table; then the search goes on from there, so each proposal counts on those before it.
//! - An index that no query used, and that writers pay for, is proposed to be dropped.
//! - Times are predictions of [`crate::cost`], scaled by what the recorded scans took.
//! - Nothing is proposed for a table of few rows, after few queries, or of another owner than the user: a topology.
//!
//! Cost: reading a sample of the table, and evaluating the recorded conditions on it.

mod auto;
mod candidates;
mod model;
mod structure;

pub(crate) use auto::LastDecision;
pub use auto::{LayoutAdvisor, LayoutDecision};
pub use structure::{STRUCTURE_GAIN_MIN, StructureChoice};

use crate::cost::{Design, TableStatistics};
use crate::error::Result;
use crate::schema::definition::TableLayout;
use crate::table::Table;
use candidates::{candidates, unused_indexes};
use entresol_transactions::Transaction;
use model::WorkloadModel;
use std::sync::Arc;

/// Least share of the recorded time that a proposal has to spare.
pub const GAIN_MIN: f64 = 0.1;
/// Least share of it that dropping an index has to spare.
pub const DROP_GAIN_MIN: f64 = 0.01;
/// Maximum number of proposals for a table.
pub const PROPOSALS_MAX: usize = 4;
/// Least number of rows of a table for which something is proposed.
pub const ROWS_MIN: f64 = 5_000.0;
/// Least number of recorded queries, or of rows read or written by key.
pub const OPERATIONS_MIN: u64 = 10;

/// Change of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new btree index of these columns.
    CreateIndex(Vec<usize>),
    /// A new Elf of these columns.
    CreateElf(Vec<usize>),
    /// Another layout than `clustered`.
    SetLayout(TableLayout),
    /// The layout `clustered` by these dimensions.
    Cluster(Vec<usize>),
    /// An index less.
    DropIndex(String),
}

/// Proposal for a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The change.
    pub change: Change,
    /// Milliseconds of the recorded workload before it, with the proposals before this one.
    pub before_ms: f64,
    /// Milliseconds after it.
    pub after_ms: f64,
    /// Reason, as a sentence with the figures.
    pub why: String,
}

impl Proposal {
    /// Share of the time that it spares.
    pub fn gain(&self) -> f64 {
        if self.before_ms > 0.0 { 1.0 - self.after_ms / self.before_ms } else { 0.0 }
    }
}

/// Proposals for a table, the first ones first.
pub fn advise(table: &Arc<Table>, tx: &Transaction) -> Result<Vec<Proposal>> {
    if table.definition().owner.is_some() || !has_enough(table) {
        return Ok(Vec::new());
    }
    let statistics = TableStatistics::of(table, tx)?;
    if statistics.rows < ROWS_MIN {
        return Ok(Vec::new());
    }
    let model = WorkloadModel::new(table, &statistics);
    let mut design = Design::of(table);
    let scale = model.scale(&design);
    let mut proposals = Vec::new();
    while proposals.len() < PROPOSALS_MAX {
        let Some((change, next)) = best(table, &model, &design) else { break };
        proposals.push(Proposal {
            before_ms: model.total_ns(&design) * scale / 1e6,
            after_ms: model.total_ns(&next) * scale / 1e6,
            why: model.why(&change, &design, &next, scale),
            change,
        });
        assert!(proposals.len() <= PROPOSALS_MAX, "proposals are bounded");
        design = next;
    }
    Ok(proposals)
}

/// Returns true if there are enough operations to learn from.
fn has_enough(table: &Table) -> bool {
    let rows = table.workload().row_counts();
    let runs: u64 = table.workload().classes().iter().map(|(_, counts)| counts.runs).sum();
    runs + rows.read + rows.updated + rows.deleted + rows.inserted >= OPERATIONS_MIN
}

/// Best change of a design, if it is worth being proposed.
fn best(table: &Table, model: &WorkloadModel<'_>, design: &Design) -> Option<(Change, Design)> {
    let before = model.total_ns(design);
    let spares = |(change, next): (Change, Design), least: f64| {
        let gain = 1.0 - model.total_ns(&next) / before;
        (gain >= least).then_some((gain, change, next))
    };
    let created = candidates(table, model, design).into_iter().filter_map(|next| spares(next, GAIN_MIN));
    let dropped = unused_indexes(table, design).into_iter().filter_map(|next| spares(next, DROP_GAIN_MIN));
    let best = created.chain(dropped).max_by(|(gain, ..), (other, ..)| gain.total_cmp(other));
    best.map(|(_, change, next)| (change, next))
}
