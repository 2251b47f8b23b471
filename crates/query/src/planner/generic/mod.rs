//! Generic plans: physical plans of queries that come again, planned once and run with other values.
//!
//! ```text
//!   logical plan with $1 ─optimise─▶ $1 as a function ─▶ physical plan ──▶ template
//!                                                                            │ each run
//!                     values ─▶ slot of the functions      scans: access for the values, snapshot
//! ```
//!
//! Planning takes milliseconds: most of the time of a query that reads a hundred rows, and a large part of that of a
//! star join of millions on columns. A query's generic plan has a function in the place of each parameter, which takes
//! its value from a slot, and scans that look for their keys, ranges, indexes or conditions again with the values of
//! each run; so the access to a table fits the values, as in a custom plan. A query without parameters, a text that
//! comes again, has one just so.
//!
//! Runs that read few rows, [`NARROW_ROWS_MAX`] as estimated, have a *narrow* template of one partition; others have
//! a *wide* one, divided among processors.
//!
//! # Invariants
//!
//! - A run gives what a plan of the query with the values as literals gives.
//! - Nothing sees a value when the plan is made: the slot is empty then, and reading it fails.
//! - What the plan relies on holds in each run: a scan applies exactly the filters that it applied when it was
//!   planned, and its rows come in an order at least as strict. If not, it is planned again. So is a wide one if a scan
//!   has a fourth or four times of the rows that it was planned for: joins and their order may be others.
//! - One run at a time has a template's slot; another one beside it, of an open cursor, plans its own.
//! - Only plans of nodes that are known to begin anew ([`rebinding`]) are templates. What one run learns in its
//!   operators, another does not see: dynamic filters are those of the copy.
//!
//! Memory: two physical plans for each statement, and one batch of each scan in a run.

mod rebinding;

use crate::error::Result;
use crate::planner::generic::rebinding::{PlanBinding, is_reusable, unbound};
use crate::planner::parameters::{as_functions, with_constant_limits};
use crate::planner::running_query::RunningQuery;
use crate::planner::yielding::Interruptible;
use crate::session::core::SessionCore;
use crate::session::run_values::RunValues;
use crate::session::templates::{PlanTemplate, PlanTemplates, PlanWidth};
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
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Most rows that a narrow plan reads, as estimated.
const NARROW_ROWS_MAX: usize = 16_384;

/// Run of a query by its generic plan.
struct GenericRun<'r> {
    templates: &'r Arc<PlanTemplates>,
    session: &'r SessionCore,
    transaction: &'r Arc<Transaction>,
    plan: &'r LogicalPlan,
    values: &'r [ScalarValue],
}

/// Result of binding a template to a run.
enum TemplateFit {
    Bound(Arc<dyn ExecutionPlan>),
    OtherWidth,
    /// Values for which the plan does not hold.
    Misfit,
}

/// Starts a query with these values, of exactly the parameters' types, by one of its templates. `None` if it has to
/// be planned with them.
pub(crate) async fn start(
    templates: &Arc<PlanTemplates>,
    session: &SessionCore,
    transaction: &Arc<Transaction>,
    plan: &LogicalPlan,
    values: &[ScalarValue],
) -> Result<Option<SendableRecordBatchStream>> {
    if templates.begins() {
        return Ok(None);
    }
    let run = GenericRun { templates, session, transaction, plan, values };
    let last = templates.last_width();
    for width in [last, last.other()] {
        if let Some(rows) = run.start(width).await? {
            return Ok(Some(rows));
        }
    }
    Ok(None)
}

impl GenericRun<'_> {
    /// Starts the query by a template of a width, which is made if there is none that fits. `None` if the rows that are
    /// read with these values are few, or many, for it, or if the query has no template of this width.
    async fn start(&self, width: PlanWidth) -> Result<Option<SendableRecordBatchStream>> {
        if self.templates.is_refused(width) {
            return Ok(None);
        }
        if let Some(template) = self.templates.take(width, self.values) {
            match self.bound(&template)? {
                TemplateFit::Bound(plan) => return self.started(template, &plan, false).map(Some),
                TemplateFit::OtherWidth => {
                    self.templates.put_back(template);
                    return Ok(None);
                }
                TemplateFit::Misfit => {}
            }
        }
        // Whatever fails, the plan with literals decides what the error is.
        let Ok(Some(template)) = Box::pin(self.template(width)).await else {
            self.templates.refuse(width);
            return Ok(None);
        };
        self.templates.count_template(width);
        match self.bound(&template)? {
            TemplateFit::Bound(plan) => self.started(template, &plan, true).map(Some),
            TemplateFit::OtherWidth => {
                self.templates.put_back(template);
                Ok(None)
            }
            TemplateFit::Misfit => Ok(None),
        }
    }

    /// Plans the query; `None` if its plan cannot be run again.
    async fn template(&self, width: PlanWidth) -> Result<Option<PlanTemplate>> {
        let (plan, constants) = with_constant_limits(self.plan.clone(), self.values)?;
        // Scans choose their access by these values, and remember how.
        let _assumed = self.session.current.assume(self.values);
        let state = planning_state(self.session.context.state(), width);
        let optimised = if self.templates.is_optimised() { plan } else { state.optimize(&plan)? };
        let values = Arc::new(RunValues::default());
        let optimised = as_functions(optimised, &values)?;
        let physical = state.query_planner().create_physical_plan(&optimised, &state).await?;
        if !is_reusable(&physical, width)? {
            return Ok(None);
        }
        Ok(Some(PlanTemplate { width, physical: unbound(physical)?, values, constants }))
    }

    /// Fresh copy of a template's plan, with the values in its slot.
    fn bound(&self, template: &PlanTemplate) -> Result<TemplateFit> {
        let query = RunningQuery::new(&self.session.running);
        let mut binding = PlanBinding::new(self.transaction, self.values, query);
        let Some(plan) = binding.rebound(&template.physical)? else { return Ok(TemplateFit::Misfit) };
        let width = if binding.rows() > NARROW_ROWS_MAX { PlanWidth::Wide } else { PlanWidth::Narrow };
        // A union has several partitions, so it has no narrow template.
        let is_only_wide = width == PlanWidth::Narrow && self.templates.is_refused(width);
        if width != template.width && !is_only_wide {
            return Ok(TemplateFit::OtherWidth);
        }
        if template.width == PlanWidth::Wide && !binding.is_alike() {
            return Ok(TemplateFit::Misfit);
        }
        template.values.set(self.values);
        Ok(TemplateFit::Bound(plan))
    }

    fn started(
        &self,
        template: PlanTemplate,
        plan: &Arc<dyn ExecutionPlan>,
        is_new: bool,
    ) -> Result<SendableRecordBatchStream> {
        self.templates.count_run(template.width, is_new);
        let rows = execute_stream(Arc::clone(plan), self.session.context.task_ctx())?;
        let schema = rows.schema();
        let lent = Some((Arc::clone(self.templates), template));
        Ok(Box::pin(Rows { rows: Some(rows), schema, lent }))
    }
}

/// State that plans for a width, and leaves what belongs to a run to [`rebinding`].
fn planning_state(state: SessionState, width: PlanWidth) -> SessionState {
    let is_of_plan =
        |rule: &&Arc<dyn PhysicalOptimizerRule + Send + Sync>| rule.name() != Interruptible::NAME;
    let rules = state.physical_optimizers().iter().filter(is_of_plan).cloned().collect();
    let config = match width {
        PlanWidth::Narrow => state.config().clone().with_target_partitions(1),
        PlanWidth::Wide => state.config().clone(),
    };
    let builder = SessionStateBuilder::new_from_existing(state);
    builder.with_config(config).with_physical_optimizer_rules(rules).build()
}

/// Rows of a run, which has a template until they end or are dropped.
struct Rows {
    /// None once they ended.
    rows: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    lent: Option<(Arc<PlanTemplates>, PlanTemplate)>,
}

impl Rows {
    /// Returns the template, once nothing computes with its values any more.
    fn end(&mut self) {
        self.rows = None;
        if let Some((templates, template)) = self.lent.take() {
            templates.put_back(template);
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
