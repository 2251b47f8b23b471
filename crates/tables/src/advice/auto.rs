//! Layout `auto`: the layout of a table, rows, columns or clustered, follows its recorded workload.
//!
//! A table begins by rows. Every [`INTERVAL`] a thread looks at the tables of this layout, and moves the rows of one with
//! the machinery of `ALTER TABLE ... SET (layout)` where all of that holds:
//!
//! - the best of the other layouts spares at least [`GAIN_MIN`] of the recorded time, so that two layouts which are about as good do
//!   not take turns;
//! - if it is the one that the last change left, it spares at least [`RETURN_GAIN_MIN`]: what was predicted of it then, and
//!   of the other one now, may each be wrong;
//! - it would have spared by now what moving the rows costs, so a workload that passes changes nothing;
//! - the last change is at least [`PAUSE`] ago. The workload begins anew with a change, so the next one needs another
//!   workload.
//!
//! ANALYZE decides at once, by the first two conditions alone. A layout that a statement names ends it.
//!
//! A crash leaves what one of a change of layout does: the old or the new one, with all rows. What was decided, and why,
//! is known until the database is closed.

use crate::advice::candidates::{clustered_by, layouts};
use crate::advice::model::{WorkloadModel, may_have};
use crate::advice::{OPERATIONS_MIN, ROWS_MIN, has_enough};
use crate::background::BackgroundThread;
use crate::catalog::{Catalog, NewLayout};
use crate::columns::merge::MergeStats;
use crate::cost::{Design, TableStatistics};
use crate::error::Result;
use crate::schema::definition::TableLayout;
use crate::table::Table;
use entresol_transactions::{Cancellation, Error as TransactionError};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Time between two looks at the tables.
const INTERVAL: Duration = Duration::from_secs(60);
/// Least time between two changes of a table.
const PAUSE: Duration = Duration::from_secs(600);
/// Least share of the recorded time that a change spares.
const GAIN_MIN: f64 = 0.3;
/// Least share of it that a change back spares. Predictions are off by a factor of 1.5 in the median (docs/design 0059):
/// of two in a row it is 2.2, and `1 - 1 / 2.2` is this.
const RETURN_GAIN_MIN: f64 = 0.55;

/// Decision about the layout of a table with the layout `auto`.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutDecision {
    /// Layout that the table has from now on.
    pub layout: TableLayout,
    /// Dimensions of the layout `clustered`.
    pub dimensions: Vec<usize>,
    /// True if it had another one, or other dimensions.
    pub is_change: bool,
    /// Milliseconds of the recorded workload in the layout that the table had.
    pub before_ms: f64,
    /// Milliseconds of it in the layout that was chosen.
    pub after_ms: f64,
    /// Reason, as a sentence.
    pub why: String,
}

/// Last decision about a table, and the last change of its layout.
#[derive(Debug, Default)]
pub(crate) struct LastDecision(Mutex<DecisionState>);

#[derive(Debug, Default)]
struct DecisionState {
    last: Option<LayoutDecision>,
    /// Instant of the last change of the layout.
    changed_at: Option<Instant>,
    /// Layout that the change left.
    left: Option<TableLayout>,
}

impl LastDecision {
    fn set(&self, decision: &LayoutDecision) {
        self.0.lock().last = Some(decision.clone());
    }

    fn set_change(&self, decision: &LayoutDecision, left: TableLayout) {
        let (last, changed_at) = (Some(decision.clone()), Some(Instant::now()));
        *self.0.lock() = DecisionState { last, changed_at, left: Some(left) };
    }

    /// The decision.
    pub(crate) fn get(&self) -> Option<LayoutDecision> {
        self.0.lock().last.clone()
    }

    fn is_recent(&self) -> bool {
        self.0.lock().changed_at.is_some_and(|at| at.elapsed() < PAUSE)
    }

    /// Least share of the time that a change to a layout spares.
    fn gain_min(&self, layout: TableLayout) -> f64 {
        if self.0.lock().left == Some(layout) { RETURN_GAIN_MIN } else { GAIN_MIN }
    }
}

impl LayoutDecision {
    /// Layout that it gives a table.
    fn new_layout(&self, table: &Table) -> NewLayout {
        match self.layout {
            TableLayout::Clustered => clustered_by(table, &self.dimensions),
            layout => layout.into(),
        }
    }
}

impl Table {
    /// Last decision about its layout in this run; none if the layout is not `auto`.
    pub fn layout_decision(&self) -> Option<LayoutDecision> {
        self.workload().decision.get().filter(|_| self.definition().auto_layout)
    }
}

impl Catalog {
    /// Chooses the layout of a table with the layout `auto` by its workload, and moves the rows if it is another one. None
    /// if a statement gave it its layout, also meanwhile, or there is too little to choose by.
    pub fn decide_layout(&self, statement: &Cancellation, table: &str) -> Result<Option<LayoutDecision>> {
        let table = self.table(table)?;
        let Some((decision, _)) = self.decision(&table)? else { return Ok(None) };
        let is_done = self.carry_out(statement, &table, &decision, &mut |_| Ok(statement.check()?))?;
        Ok(is_done.then_some(decision))
    }

    /// Decision about a table, and the nanoseconds that moving its rows would take.
    fn decision(&self, table: &Arc<Table>) -> Result<Option<(LayoutDecision, f64)>> {
        if !table.definition().auto_layout || !has_enough(table) {
            return Ok(None);
        }
        let tx = self.begin()?;
        let statistics = TableStatistics::of(table, &tx)?;
        let design = Design::of(table);
        let model = WorkloadModel::new(table, &statistics);
        let scale = model.scale(&design);
        let now = model.total_ns(&design) * scale;
        let others = layouts(table, &model, &design).into_iter().map(|(change, next)| {
            let then = model.total_ns(&next) * scale;
            let gain_min = table.workload().decision.gain_min(next.layout);
            (then <= now * (1.0 - gain_min), then, change, next)
        });
        // One that is worth it goes before a cheaper one that is not.
        let best = others.min_by(|(is_worth, ns, ..), (other_is, other, ..)| {
            other_is.cmp(is_worth).then(ns.total_cmp(other))
        });
        let Some((is_worth, then, change, next)) = best else { return Ok(None) };
        let merging = match next.layout {
            TableLayout::Clustered => design.constants.merge_clustered,
            _ => design.constants.merge,
        };
        let moving = statistics.rows * (merging + design.constants.write) * scale;
        let is_change = statistics.rows >= ROWS_MIN && is_worth;
        let why = if is_change {
            model.why(&change, &design, &next, scale)
        } else {
            format!(
                "'{}' would take {:.1} ms for what took {:.1} ms with {} rows",
                next.layout.name(),
                then / 1e6,
                now / 1e6,
                statistics.rows.round()
            )
        };
        let Design { layout, dimensions, .. } = if is_change { next } else { design };
        let (before_ms, after_ms) = (now / 1e6, if is_change { then } else { now } / 1e6);
        let decision = LayoutDecision { layout, dimensions, is_change, before_ms, after_ms, why };
        Ok(Some((decision, moving)))
    }

    /// Carries out a decision about a table, and records it. Returns false, and does nothing, if the table of this name
    /// is another one meanwhile, or none that may be changed.
    fn carry_out(
        &self,
        statement: &Cancellation,
        table: &Arc<Table>,
        decision: &LayoutDecision,
        progress: &mut dyn FnMut(&MergeStats) -> Result<()>,
    ) -> Result<bool> {
        if !decision.is_change {
            table.workload().decision.set(decision);
            return Ok(true);
        }
        let new = decision.new_layout(table);
        let may_change = |now: &Table| is_due(now, table, &new);
        let changed = self.set_layout_if(&may_change, statement, table.name(), &new, progress);
        // The change to row groups stands when moving the rows fails behind it.
        let has_changed = match &changed {
            Ok(has_changed) => *has_changed,
            Err(_) => self.has_layout(table, &new),
        };
        if has_changed {
            record_change(table, decision);
        }
        changed
    }

    /// Returns true if a table has a layout by now.
    fn has_layout(&self, table: &Table, new: &NewLayout) -> bool {
        let is_it = |now: Arc<Table>| now.state().id() == table.state().id() && new.is_of(&now);
        self.table(table.name()).is_ok_and(is_it)
    }

    /// Looks at all tables with the layout `auto`, and changes those that are due.
    fn decide_layouts(&self, stop: &AtomicBool) {
        for table in self.tables() {
            if stop.load(Ordering::Acquire) {
                return;
            }
            // It may have been changed or dropped while another one was changed.
            let Some(table) = self.table(table.name()).ok().filter(follows_workload) else { continue };
            if let Err(error) = self.decide_due(&table, stop)
                && !stop.load(Ordering::Acquire)
            {
                tracing::warn!(table = table.name(), %error, "could not choose the layout of a table");
            }
        }
    }

    /// Decides about a table; one that has not lost yet what a change costs stays as it is.
    fn decide_due(&self, table: &Arc<Table>, stop: &AtomicBool) -> Result<()> {
        let Some((mut decision, moving)) = self.decision(table)? else { return Ok(()) };
        let spared_ms = decision.before_ms - decision.after_ms;
        if decision.is_change && spared_ms < moving / 1e6 {
            decision.why = format!(
                "'{}' would have spared {spared_ms:.1} ms by now, and moving the rows takes {:.1} ms",
                decision.layout.name(),
                moving / 1e6
            );
            let design = Design::of(table);
            (decision.layout, decision.dimensions) = (design.layout, design.dimensions);
            (decision.is_change, decision.after_ms) = (false, decision.before_ms);
        }
        let carried_out = self.carry_out(&Cancellation::default(), table, &decision, &mut |_| {
            if stop.load(Ordering::Acquire) {
                return Err(TransactionError::Busy("the database is being closed").into());
            }
            Ok(())
        });
        carried_out.map(drop)
    }
}

/// Records a change of layout, with which the workload begins anew.
fn record_change(table: &Table, decision: &LayoutDecision) {
    tracing::info!(
        table = table.name(),
        layout = decision.layout.name(),
        before_ms = decision.before_ms,
        after_ms = decision.after_ms,
        why = decision.why,
        "layout 'auto' has changed"
    );
    table.workload().reset();
    table.workload().decision.set_change(decision, table.definition().layout);
}

/// Returns true if the background may choose the layout of a table by now.
fn follows_workload(table: &Arc<Table>) -> bool {
    table.definition().auto_layout && !table.workload().decision.is_recent()
}

/// Returns true if a table is the one that a layout was chosen for, and may have it still.
fn is_due(now: &Table, decided: &Table, new: &NewLayout) -> bool {
    now.definition().auto_layout && now.state().id() == decided.state().id() && may_have(now, new)
}

/// Thread that chooses the layouts; it ends when the catalog is dropped, or by [`LayoutAdvisor::stop`].
pub struct LayoutAdvisor(BackgroundThread);

impl LayoutAdvisor {
    /// Starts the thread. Without one, where none can be had, ANALYZE decides.
    pub fn start(catalog: &Arc<Catalog>) -> LayoutAdvisor {
        LayoutAdvisor(BackgroundThread::start(catalog, "entresol-layout", "choose layouts", run))
    }

    /// Ends the thread, after the step of a change that it is at.
    pub fn stop(&self) {
        self.0.stop();
    }
}

fn run(catalog: &Weak<Catalog>, stop: &AtomicBool) {
    let mut looked = Instant::now();
    while !stop.load(Ordering::Acquire) {
        std::thread::park_timeout(INTERVAL.saturating_sub(looked.elapsed()));
        if looked.elapsed() < INTERVAL {
            continue;
        }
        let Some(catalog) = catalog.upgrade() else { return };
        catalog.decide_layouts(stop);
        looked = Instant::now();
    }
}

const _: () = assert!(OPERATIONS_MIN > 0, "a table without a workload stays as it is");

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::error::Error;
    use crate::schema::definition::TableDefinition;
    use crate::schema::{Column, Schema};
    use crate::value::{DataType, Value};
    use crate::workload::RowOperation;
    use crate::{Retention, TableOptions};
    use entresol_memory::{Durability, Pool, PoolOptions};
    use entresol_transactions::StateContext;

    fn open() -> Arc<Catalog> {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        Catalog::open_or_create(StateContext::open_or_create(pool).unwrap()).unwrap()
    }

    /// Creates table `t`, whose layout follows its workload.
    fn create(catalog: &Catalog, layout: TableLayout) -> Arc<Table> {
        let schema = Schema::new(vec![Column::new("id", DataType::BigInt)], &["id"]).unwrap();
        let definition = TableDefinition { layout, auto_layout: true, ..TableDefinition::plain(schema) };
        catalog.create_table_as("t", definition, TableOptions::default()).unwrap()
    }

    fn decision(layout: TableLayout) -> LayoutDecision {
        let why = "for a test".to_owned();
        LayoutDecision { layout, dimensions: Vec::new(), is_change: true, before_ms: 2.0, after_ms: 1.0, why }
    }

    /// Carries out a decision for a layout that was taken about a table.
    fn carry_out(catalog: &Catalog, table: &Arc<Table>, layout: TableLayout) -> bool {
        catalog.carry_out(&Cancellation::default(), table, &decision(layout), &mut |_| Ok(())).unwrap()
    }

    fn layout_of(catalog: &Catalog) -> TableLayout {
        catalog.table("t").unwrap().definition().layout
    }

    #[test]
    fn a_decision_about_what_is_not_there_any_more_changes_nothing() {
        let catalog = open();
        // Another table has the name.
        let decided = create(&catalog, TableLayout::Rows);
        catalog.drop_table("t").unwrap();
        let table = create(&catalog, TableLayout::Rows);
        assert!(!carry_out(&catalog, &decided, TableLayout::Columns));
        assert_eq!((layout_of(&catalog), table.layout_decision()), (TableLayout::Rows, None));
        // A statement gave it its layout.
        let set = |definition: &mut TableDefinition| {
            definition.auto_layout = false;
            Ok::<_, Error>(())
        };
        catalog.redefine("t", None, set).unwrap();
        assert!(!carry_out(&catalog, &table, TableLayout::Columns));
        assert_eq!(layout_of(&catalog), TableLayout::Rows);
        // A version history was asked for.
        catalog.drop_table("t").unwrap();
        let table = create(&catalog, TableLayout::Columns);
        catalog.keep_history("t", Retention::Forever).unwrap();
        assert!(!carry_out(&catalog, &table, TableLayout::Rows));
        assert_eq!(layout_of(&catalog), TableLayout::Columns);
        catalog.drop_table("t").unwrap();
        // Beside that it is carried out, and recorded.
        let table = create(&catalog, TableLayout::Rows);
        assert!(carry_out(&catalog, &table, TableLayout::Columns));
        assert_eq!(layout_of(&catalog), TableLayout::Columns);
        assert!(catalog.table("t").unwrap().layout_decision().unwrap().is_change);
        // The background rests then.
        assert!(!follows_workload(&catalog.table("t").unwrap()));
    }

    #[test]
    fn a_change_whose_rows_are_still_to_be_moved_is_recorded() {
        let catalog = open();
        let table = create(&catalog, TableLayout::Rows);
        let tx = catalog.begin().unwrap();
        table.insert(&tx, &[Value::BigInt(1)]).unwrap();
        tx.commit(Durability::Sync).unwrap();
        let fail = |layout| {
            let stopped = |_: &MergeStats| Err(TransactionError::Busy("the test stops it").into());
            catalog.carry_out(&Cancellation::default(), &table, &decision(layout), &mut { stopped })
        };
        table.workload().note_rows(RowOperation::Read, 50);
        assert!(fail(TableLayout::Columns).is_err());
        assert_eq!(layout_of(&catalog), TableLayout::Columns);
        let changed = catalog.table("t").unwrap();
        assert_eq!(changed.layout_decision(), Some(decision(TableLayout::Columns)));
        assert_eq!(changed.workload().row_counts().read, 0, "the workload begins anew");
        assert!(!follows_workload(&changed), "the background rests");
        // A change to rows that fails has not happened, and nothing is recorded of it.
        changed.merge(|_| Ok(())).unwrap();
        changed.workload().note_rows(RowOperation::Read, 50);
        assert!(fail(TableLayout::Rows).is_err());
        assert_eq!(layout_of(&catalog), TableLayout::Columns);
        let unchanged = catalog.table("t").unwrap();
        assert_eq!(unchanged.layout_decision(), Some(decision(TableLayout::Columns)));
        assert_eq!(unchanged.workload().row_counts().read, 50);
    }
}
