//! Templates of a query: its physical plans, made once and run many times by copies.
//!
//! A query has at most two, one for runs that read few rows and one for those that read many. A run takes the
//! template that it copies, whose values are in one slot, and gives it back when its rows end.
//! They are made and run in `planner/generic`.
//!
//! Memory: a physical plan each, as long as the statement is prepared or cached.

use crate::session::run_values::RunValues;
use datafusion::common::ScalarValue;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most templates of a width: if the values of a query fit none of them for long, it is planned in each run.
const TEMPLATES_MAX: u32 = 64;

/// Width of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PlanWidth {
    /// One partition, for few rows.
    #[default]
    Narrow,
    /// As many partitions as the session may use.
    Wide,
}

impl PlanWidth {
    /// The other one.
    pub(crate) fn other(self) -> PlanWidth {
        match self {
            PlanWidth::Narrow => PlanWidth::Wide,
            PlanWidth::Wide => PlanWidth::Narrow,
        }
    }
}

/// Physical plan that belongs to no transaction, and the slot of its values.
#[derive(Debug)]
pub(crate) struct PlanTemplate {
    pub(crate) width: PlanWidth,
    pub(crate) physical: Arc<dyn ExecutionPlan>,
    pub(crate) values: Arc<RunValues>,
    /// Values of the parameters that are constants of the plan: numbers of rows.
    pub(crate) constants: BTreeMap<usize, ScalarValue>,
}

impl PlanTemplate {
    fn has_constants(&self, values: &[ScalarValue]) -> bool {
        self.constants.iter().all(|(at, constant)| values.get(*at) == Some(constant))
    }
}

/// Templates of a query; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PlanTemplates {
    state: Mutex<State>,
    /// True if the query's plan is an optimised one, without parameters.
    is_optimised: bool,
}

#[derive(Debug, Default)]
struct State {
    narrow: Slot,
    wide: Slot,
    /// True once the query has been run.
    has_run: bool,
    /// Width of the last run.
    last: PlanWidth,
    /// Runs that planned nothing.
    reuses: u64,
}

#[derive(Debug, Default)]
struct Slot {
    /// None before the first run, and while one runs.
    template: Option<PlanTemplate>,
    /// Count of templates that were made.
    made: u32,
    /// True if the query has no template of this width.
    is_refused: bool,
}

impl State {
    fn slot(&mut self, width: PlanWidth) -> &mut Slot {
        match width {
            PlanWidth::Narrow => &mut self.narrow,
            PlanWidth::Wide => &mut self.wide,
        }
    }
}

impl PlanTemplates {
    /// Templates of a query that has no parameters, and whose plan is optimised.
    pub(crate) fn of_optimised() -> PlanTemplates {
        PlanTemplates { is_optimised: true, ..PlanTemplates::default() }
    }

    /// Returns true if the query's plan is an optimised one.
    pub(crate) fn is_optimised(&self) -> bool {
        self.is_optimised
    }

    /// Returns true for the first run of a query, which may be the only one: templates are not worth making then.
    pub(crate) fn begins(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().has_run, true) && !self.is_optimised
    }

    /// Width of the last run.
    pub(crate) fn last_width(&self) -> PlanWidth {
        self.state.lock().last
    }

    /// Returns true if the query has no template of a width.
    pub(crate) fn is_refused(&self, width: PlanWidth) -> bool {
        self.state.lock().slot(width).is_refused
    }

    /// Lends the template of a width, if there is one for these values.
    pub(crate) fn take(&self, width: PlanWidth, values: &[ScalarValue]) -> Option<PlanTemplate> {
        let template = self.state.lock().slot(width).template.take();
        template.filter(|template| template.has_constants(values))
    }

    /// Keeps a template for the next run.
    pub(crate) fn put_back(&self, template: PlanTemplate) {
        template.values.clear();
        let mut state = self.state.lock();
        let slot = state.slot(template.width);
        slot.template = Some(template);
    }

    /// Has the query planned with its values from now on, where it would have a template of a width.
    pub(crate) fn refuse(&self, width: PlanWidth) {
        self.state.lock().slot(width).is_refused = true;
    }

    /// Notes that a template is made, and refuses others if too many did not fit.
    pub(crate) fn count_template(&self, width: PlanWidth) {
        let mut state = self.state.lock();
        let slot = state.slot(width);
        slot.made += 1;
        slot.is_refused = slot.made > TEMPLATES_MAX;
    }

    /// Notes a run of a template, of one that was made for it or of one that was there.
    pub(crate) fn count_run(&self, width: PlanWidth, is_new: bool) {
        let mut state = self.state.lock();
        state.reuses += u64::from(!is_new);
        state.last = width;
    }

    /// Number of runs that planned nothing.
    pub(crate) fn reuses(&self) -> u64 {
        self.state.lock().reuses
    }
}
