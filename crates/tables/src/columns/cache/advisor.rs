//! Advice on shares from the pipelines that ran last.

use super::model::{Bandwidths, Division, Pipeline, Proportions, Shares, Workload};
use super::page_key::StoreNumber;
use super::policy::CacheGoal;
use super::program::{least_memory, least_time};
use std::collections::VecDeque;

/// Number of pipelines that are looked at: those of the last queries, the running ones included.
pub const PIPELINES_MAX: usize = 128;

/// Proportion by which new shares must shorten the pipelines, or need less memory, to replace those before.
const GAIN_MIN: f64 = 0.02;

/// Pipelines that ran last, each with a number of its own, and the division of their times.
#[derive(Debug, Default)]
pub struct ShareAdvisor {
    pipelines: VecDeque<(u64, Pipeline)>,
    division: Division,
}

impl ShareAdvisor {
    /// Advisor that divides times in this way.
    pub fn new(division: Division) -> ShareAdvisor {
        ShareAdvisor { pipelines: VecDeque::new(), division }
    }

    /// Notes a pipeline, or what is known better of a running one by now.
    pub fn observe(&mut self, number: u64, pipeline: Pipeline) {
        let is_measured = pipeline.bytes() > 0.0 && pipeline.bytes_per_second > 0.0;
        if !is_measured || !pipeline.bytes_per_second.is_finite() {
            return;
        }
        if let Some((_, known)) = self.pipelines.iter_mut().rev().find(|(known, _)| *known == number) {
            *known = pipeline;
            return;
        }
        if self.pipelines.len() == PIPELINES_MAX {
            self.pipelines.pop_front();
        }
        self.pipelines.push_back((number, pipeline));
    }

    /// Forgets all pipelines.
    pub(crate) fn forget_all(&mut self) {
        self.pipelines.clear();
    }

    /// Forgets the pipelines that read a store.
    pub(crate) fn forget_store(&mut self, store: StoreNumber) {
        let reads = |pipeline: &Pipeline| pipeline.columns.iter().any(|(column, _)| column.store == store);
        self.pipelines.retain(|(_, pipeline)| !reads(pipeline));
    }

    /// Pipelines with the bandwidths; none if no pipeline is known.
    pub fn workload(&self, bandwidths: Bandwidths) -> Option<Workload> {
        let pipelines: Vec<Pipeline> = self.pipelines.iter().map(|(_, pipeline)| pipeline.clone()).collect();
        let division = self.division;
        (!pipelines.is_empty()).then_some(Workload { pipelines, bandwidths, division })
    }
}

/// Shares for a goal within a budget; none if the solver finds none.
pub fn advise(workload: &Workload, budget_bytes: u64, goal: CacheGoal) -> Option<Shares> {
    let budget_bytes = budget_bytes as f64;
    let proportions = match goal {
        CacheGoal::LeastTime => least_time(workload, budget_bytes),
        CacheGoal::LeastMemory { slowdown_percent } => {
            least_memory(workload, budget_bytes, f64::from(slowdown_percent) / 100.0)
        }
    };
    proportions.map(|proportions| workload.shares(&proportions))
}

/// Shares for a goal within a budget, where columns have some already; none if the solver finds none.
///
/// Columns retain the proportions that they have, unless others shorten the pipelines, or need less memory, by
/// [`GAIN_MIN`]: small gains come and go with each pipeline, and pages that are evicted for one are loaded again for the
/// next.
pub fn advise_after(
    workload: &Workload,
    before: &Shares,
    budget_bytes: u64,
    goal: CacheGoal,
) -> Option<Shares> {
    let after = advise(workload, budget_bytes, goal)?;
    let before = workload.shares(&proportions(before));
    let is_better = before.keys().ne(after.keys())
        || bytes(&before) > budget_bytes
        || is_shorter(workload, &before, &after)
        || is_smaller(workload, &before, &after, goal);
    Some(if is_better { after } else { before })
}

fn proportions(shares: &Shares) -> Proportions {
    shares.iter().map(|(column, share)| (*column, share.proportion)).collect()
}

fn bytes(shares: &Shares) -> u64 {
    shares.values().map(|share| share.bytes).sum()
}

fn is_shorter(workload: &Workload, before: &Shares, after: &Shares) -> bool {
    let seconds = |shares| workload.seconds(&proportions(shares));
    seconds(after) < seconds(before) * (1.0 - GAIN_MIN)
}

fn is_smaller(workload: &Workload, before: &Shares, after: &Shares, goal: CacheGoal) -> bool {
    let seconds = |shares| workload.seconds(&proportions(shares));
    let is_allowed = goal != CacheGoal::LeastTime || seconds(after) <= seconds(before);
    is_allowed && (bytes(after) as f64) < bytes(before) as f64 * (1.0 - GAIN_MIN)
}
