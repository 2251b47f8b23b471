//! Generic plans: physical plans of short prepared queries, planned once and run with other values.
//!
//! ```text
//!   logical plan with $1 ─optimise─▶ $1 as a function ─▶ physical plan ──▶ template
//!                                                                            │ each run
//!                     values ─▶ slot of the functions      scans: access for the values, snapshot
//! ```
//!
//! Planning takes most of the time of a query that reads a hundred rows. Its generic plan has a function in the
//! place of each parameter, which takes its value from a slot, and scans that look for their keys, ranges or
//! index again with the values of each run; so the access to a table fits the values, as in a custom plan.
//!
//! # Invariants
//!
//! - A run gives what a plan of the query with the values as literals gives.
//! - Nothing sees a value when the plan is made: the slot is empty then, and reading it fails.
//! - What the plan relies on holds in each run: a scan applies exactly the filters that it applied when it was
//!   planned, and its rows come in an order at least as strict. If not, it is planned again.
//! - One run at a time has a template's slot; another one beside it, of an open cursor, plans its own.
//! - Only plans of nodes that are known to begin anew ([`rebinding`]) and read at most [`ROWS_MAX`] rows, as
//!   estimated for the values, are run so; others are planned with their values, and divided among processors.
//!
//! Memory: a physical plan for each statement, and one batch of each scan in a run.

mod rebinding;

use crate::error::Result;
use crate::planner::generic::rebinding::{PlanBinding, is_reusable, unbound};
use crate::planner::parameters::{as_functions, with_constant_limits};
use crate::planner::run_values::RunValues;
use crate::planner::running_query::RunningQuery;
use crate::planner::yielding::Interruptible;
use crate::session::core::SessionCore;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{Result as DFResult, ScalarValue};
use datafusion::execution::{
    RecordBatchStream, SendableRecordBatchStream, SessionState, SessionStateBuilder,
};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use entresol_transactions::Transaction;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Most rows that a generic plan reads, as estimated: more are worth planning with their values.
const ROWS_MAX: usize = 16_384;
/// Number of templates of a query: if its values fit none of them for long, it is planned in each run.
const TEMPLATES_MAX: u32 = 64;

/// Generic plan of a query; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct GenericPlan(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// None before the first run, and while one runs.
    template: Option<Template>,
    /// Number of templates that were made.
    templates: u32,
    /// Number of runs of templates.
    runs: u64,
    /// True if the query has no generic plan.
    is_refused: bool,
}

/// Physical plan and the slot of its values.
#[derive(Debug)]
struct Template {
    physical: Arc<dyn ExecutionPlan>,
    values: Arc<RunValues>,
    /// Values of the parameters that are constants of the plan: numbers of rows.
    constants: BTreeMap<usize, ScalarValue>,
}

impl GenericPlan {
    /// Starts the query with these values, of exactly the parameters' types. `None` if it has to be planned with
    /// them.
    pub(crate) async fn start(
        self: &Arc<GenericPlan>,
        session: &SessionCore,
        transaction: &Arc<Transaction>,
        plan: &LogicalPlan,
        values: &[ScalarValue],
    ) -> Result<Option<SendableRecordBatchStream>> {
        let template = {
            let mut state = self.0.lock();
            if state.is_refused {
                return Ok(None);
            }
            state.template.take().filter(|template| template.has_constants(values))
        };
        if let Some(template) = template {
            match template.bound(session, transaction, values)? {
                TemplateFit::Bound(plan) => return self.run(session, template, &plan).map(Some),
                TemplateFit::TooLong => return Ok(self.put_back(template)),
                TemplateFit::Misfit => {}
            }
        }
        // Whatever fails, the plan with literals decides what the error is.
        let Ok(Some(template)) = Box::pin(Template::new(session, plan, values)).await else {
            self.0.lock().is_refused = true;
            return Ok(None);
        };
        self.count_template();
        match template.bound(session, transaction, values)? {
            TemplateFit::Bound(plan) => self.run(session, template, &plan).map(Some),
            TemplateFit::TooLong => Ok(self.put_back(template)),
            TemplateFit::Misfit => Ok(None),
        }
    }

    /// Number of runs without planning, that of the first run of each template aside.
    pub(crate) fn reuses(&self) -> u64 {
        let state = self.0.lock();
        state.runs.saturating_sub(u64::from(state.templates))
    }

    /// Notes that a template is made, and refuses others if too many did not fit.
    fn count_template(&self) {
        let mut state = self.0.lock();
        state.templates += 1;
        state.is_refused = state.templates > TEMPLATES_MAX;
    }

    fn run(
        self: &Arc<GenericPlan>,
        session: &SessionCore,
        template: Template,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<SendableRecordBatchStream> {
        self.0.lock().runs += 1;
        let rows = execute_stream(Arc::clone(plan), session.context.task_ctx())?;
        let schema = rows.schema();
        let lent = Some((Arc::clone(self), template));
        Ok(Box::pin(Rows { rows: Some(rows), schema, lent }))
    }

    /// Keeps a template for the next run. None: a run that it does not serve.
    fn put_back<R>(&self, template: Template) -> Option<R> {
        template.values.clear();
        self.0.lock().template = Some(template);
        None
    }
}

/// Result of binding a template to a run.
enum TemplateFit {
    Bound(Arc<dyn ExecutionPlan>),
    /// Values for which more rows are read than a generic plan should.
    TooLong,
    /// Values for which the plan does not hold.
    Misfit,
}

impl Template {
    /// Plans a query; `None` if its plan cannot be run again.
    async fn new(
        session: &SessionCore,
        plan: &LogicalPlan,
        values: &[ScalarValue],
    ) -> Result<Option<Template>> {
        let (plan, constants) = with_constant_limits(plan.clone(), values)?;
        // Scans choose their access by these values, and remember how.
        let _assumed = session.current.assume(values);
        let state = planning_state(session.context.state());
        let optimised = state.optimize(&plan)?;
        let run_values = Arc::new(RunValues::default());
        let optimised = as_functions(optimised, &run_values)?;
        let physical = state.query_planner().create_physical_plan(&optimised, &state).await?;
        if !is_reusable(&physical)? {
            return Ok(None);
        }
        Ok(Some(Template { physical: unbound(physical)?, values: run_values, constants }))
    }

    fn has_constants(&self, values: &[ScalarValue]) -> bool {
        self.constants.iter().all(|(at, constant)| values.get(*at) == Some(constant))
    }

    /// Fresh copy of the plan for a run in a transaction, with its values in the slot.
    fn bound(
        &self,
        session: &SessionCore,
        transaction: &Arc<Transaction>,
        values: &[ScalarValue],
    ) -> Result<TemplateFit> {
        let mut rebinding = PlanBinding::new(transaction, values, RunningQuery::new(&session.running));
        let Some(plan) = rebinding.rebound(&self.physical)? else { return Ok(TemplateFit::Misfit) };
        if rebinding.rows() > ROWS_MAX {
            return Ok(TemplateFit::TooLong);
        }
        self.values.set(values);
        Ok(TemplateFit::Bound(plan))
    }
}

/// State that plans for one thread, and leaves what belongs to a run to [`rebinding`].
fn planning_state(state: SessionState) -> SessionState {
    let is_of_plan =
        |rule: &&Arc<dyn PhysicalOptimizerRule + Send + Sync>| rule.name() != Interruptible::NAME;
    let rules = state.physical_optimizers().iter().filter(is_of_plan).cloned().collect();
    let config = state.config().clone().with_target_partitions(1);
    let builder = SessionStateBuilder::new_from_existing(state);
    builder.with_config(config).with_physical_optimizer_rules(rules).build()
}

/// Rows of a run, which has a template until they end or are dropped.
struct Rows {
    /// None once they ended.
    rows: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    lent: Option<(Arc<GenericPlan>, Template)>,
}

impl Rows {
    /// Returns the template, once nothing computes with its values any more.
    fn end(&mut self) {
        self.rows = None;
        if let Some((plan, template)) = self.lent.take() {
            plan.put_back::<()>(template);
        }
    }
}

impl Stream for Rows {
    type Item = DFResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(rows) = &mut self.rows else { return Poll::Ready(None) };
        let polled = rows.poll_next_unpin(context);
        if let Poll::Ready(None) = polled {
            self.end();
        }
        polled
    }
}

impl RecordBatchStream for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.end();
    }
}
