//! Keys of sorts and windows, and arguments of window functions, as columns.
//!
//! ```text
//! Sort: lower(s)                    Projection: s
//!   t                                 Sort: key
//!                                       Projection: s, lower(s) AS key
//!                                         t
//! ```
//!
//! A sort computes its keys where it takes rows, again where it merges them, and a window once more. None of these looks
//! whether the statement is cancelled, nor at the length of a batch. A projection does
//! ([`crate::planner::yielding`]), and its arithmetic is checked; a key is computed once. Casts, signs and other parts
//! that take no time stay as they are. The rule is the last one: conditions have moved to their places before.
//!
//! Memory: the sort carries the computed keys of its rows.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result as DFResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// Beginning of the names of the columns.
const PREFIX: &str = "computed_key";

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct ComputedKeys;

impl OptimizerRule for ComputedKeys {
    fn name(&self) -> &str {
        "computed_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DFResult<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Sort(sort) => of_sort(sort, config),
            LogicalPlan::Window(window) => of_windows(window, config),
            other => Ok(Transformed::no(other)),
        }
    }
}

fn of_sort(mut sort: Sort, config: &dyn OptimizerConfig) -> DFResult<Transformed<LogicalPlan>> {
    let shown = Arc::clone(sort.input.schema());
    let mut keys = Keys::over(&shown, config);
    sort.expr.iter_mut().for_each(|key| keys.replace(&mut key.expr));
    if keys.computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    }
    let input = keys.projected(sort.input)?;
    projected_to(&shown, LogicalPlan::Sort(Sort { input, ..sort })).map(Transformed::yes)
}

/// Rewrites windows that stand above each other, whose keys are columns below all of them, so that they may share a sort.
fn of_windows(window: Window, config: &dyn OptimizerConfig) -> DFResult<Transformed<LogicalPlan>> {
    let shown = Arc::clone(&window.schema);
    let (mut levels, mut plan) = (Vec::new(), Arc::new(LogicalPlan::Window(window)));
    while let LogicalPlan::Window(window) = plan.as_ref() {
        levels.push(window.window_expr.clone());
        let below = Arc::clone(&window.input);
        plan = below;
    }
    let names = NamePreserver::new_for_projection();
    let below = Arc::clone(plan.schema());
    let mut keys = Keys::over(&below, config);
    for expr in levels.iter_mut().flatten() {
        let name = names.save(expr);
        if replace_in_window(expr, &mut keys) {
            *expr = name.restore(std::mem::take(expr));
        }
    }
    let is_changed = !keys.computed.is_empty();
    let mut windows = if is_changed { keys.projected(plan)? } else { plan };
    for level in levels.into_iter().rev() {
        windows = Arc::new(LogicalPlan::Window(Window::try_new(level, windows)?));
    }
    let windows = Arc::unwrap_or_clone(windows);
    if !is_changed {
        return Ok(Transformed::no(windows));
    }
    projected_to(&shown, windows).map(Transformed::yes)
}

/// Replaces what a window function computes of its rows; returns true if there is any.
fn replace_in_window(expr: &mut Expr, keys: &mut Keys<'_>) -> bool {
    match expr {
        Expr::Alias(alias) => replace_in_window(&mut alias.expr, keys),
        Expr::WindowFunction(function) => {
            let before = keys.replaced;
            let params = &mut function.params;
            params.args.iter_mut().for_each(|expr| keys.replace(expr));
            params.partition_by.iter_mut().for_each(|expr| keys.replace(expr));
            params.order_by.iter_mut().for_each(|key| keys.replace(&mut key.expr));
            keys.replaced > before
        }
        _ => false,
    }
}

/// Plan with the columns of a schema alone.
fn projected_to(shown: &DFSchemaRef, plan: LogicalPlan) -> DFResult<LogicalPlan> {
    let columns = shown.columns().into_iter().map(Expr::Column).collect();
    let projection = Projection::try_new_with_schema(columns, Arc::new(plan), Arc::clone(shown))?;
    Ok(LogicalPlan::Projection(projection))
}

/// Keys that become columns.
struct Keys<'c> {
    input: &'c DFSchema,
    config: &'c dyn OptimizerConfig,
    /// Expressions with their names.
    computed: Vec<(Expr, String)>,
    /// Count of expressions replaced so far.
    replaced: usize,
}

impl<'c> Keys<'c> {
    fn over(input: &'c DFSchemaRef, config: &'c dyn OptimizerConfig) -> Keys<'c> {
        Keys { input: input.as_ref(), config, computed: Vec::new(), replaced: 0 }
    }

    /// Replaces an expression over the columns of the input by a column, if it takes time.
    fn replace(&mut self, expr: &mut Expr) {
        // An alias in it is a part of the name of a window function.
        if let Expr::Alias(alias) = expr {
            return self.replace(&mut alias.expr);
        }
        if !is_computed(expr) || !expr.column_refs().iter().all(|column| self.input.has_column(column)) {
            return;
        }
        let known = self.computed.iter().find(|(known, _)| known == expr && !expr.is_volatile());
        let name = match known {
            Some((_, name)) => name.clone(),
            None => {
                let name = self.config.alias_generator().next(PREFIX);
                self.computed.push((std::mem::take(expr), name.clone()));
                name
            }
        };
        self.replaced += 1;
        *expr = Expr::Column(Column::new_unqualified(name));
    }

    /// Input with the columns of the keys.
    fn projected(self, input: Arc<LogicalPlan>) -> DFResult<Arc<LogicalPlan>> {
        let mut exprs: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        exprs.extend(self.computed.into_iter().map(|(expr, name)| expr.alias(name)));
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?)))
    }
}

/// Returns true for an expression of rows that takes time: it calls a function or computes with operators.
fn is_computed(expr: &Expr) -> bool {
    let takes_time = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::ScalarFunction(_)
                | Expr::BinaryExpr(_)
                | Expr::Like(_)
                | Expr::SimilarTo(_)
                | Expr::Case(_)
                | Expr::Between(_)
                | Expr::InList(_)
        ))
    };
    let is_of_rows = !expr.column_refs().is_empty() || expr.is_volatile();
    let has_query = |part: &Expr| {
        Ok(matches!(
            part,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::OuterReferenceColumn(..)
        ))
    };
    is_of_rows && expr.exists(takes_time).unwrap_or(false) && !expr.exists(has_query).unwrap_or(true)
}
