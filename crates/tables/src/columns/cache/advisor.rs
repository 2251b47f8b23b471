//! Advice on shares from the pipelines that ran last.

use super::model::{Bandwidths, Division, Pipeline, Shares, Workload};
use super::page_key::StoreNumber;
use super::policy::CacheGoal;
use super::program::{least_memory, least_time};
use std::collections::VecDeque;

/// Number of pipelines that are looked at: those of the last queries, the running ones included.
pub const PIPELINES_MAX: usize = 128;

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
