//! IN, EXISTS and comparisons with ANY and ALL as values, with three-valued logic.
//!
//! ```text
//!   x IN S       CASE WHEN mark THEN TRUE                             mark: from a mark join with S
//!                     WHEN S has a NULL, or x is NULL and S has a row THEN NULL
//!                     ELSE FALSE END
//!   EXISTS S     (SELECT count(*) > 0 FROM (S LIMIT 1))               if S is not correlated
//!   x < ANY S    the same CASE, with x < max(S) in place of the mark; ALL is NOT ANY of the contrary
//! ```
//!
//! - A condition of a WHERE by itself is left to DataFusion: only rows for which it is true are wanted, so it
//!   joins.
//! - A correlated NOT IN there is NOT EXISTS of a row that is equal, or unknown.
//! - Other correlated INs are run row by row, with the same logic.

use super::plans::{columns, fresh, has_subquery, narrowed, recomputed, scalar, subquery, with_column};
use crate::planner::rules::correlated::is_correlated;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, JoinType, Result as DFResult, ScalarValue};
use datafusion::functions_aggregate::expr_fn::{count, max, min};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Distinct, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    Sort, lit, when,
};
use datafusion::optimizer::AnalyzerRule;
use std::collections::HashMap;
use std::sync::Arc;

/// States of a list: no row; rows without NULL; a NULL.
const EMPTY: i64 = 0;
const KNOWN: i64 = 1;
const WITH_NULL: i64 = 2;

/// The rule; see the [module](self).
#[derive(Debug)]
pub(crate) struct Membership;

impl AnalyzerRule for Membership {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DFResult<LogicalPlan> {
        recomputed(plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Filter(filter) if has_subquery(&filter.predicate)? => filtered(filter),
            LogicalPlan::Projection(projection) => {
                for expr in &projection.expr {
                    if has_subquery(expr)? {
                        return projected(projection);
                    }
                }
                Ok(Transformed::no(LogicalPlan::Projection(projection)))
            }
            node => Ok(Transformed::no(node)),
        })?)
    }

    fn name(&self) -> &str {
        "membership"
    }
}

fn projected(projection: Projection) -> DFResult<Transformed<LogicalPlan>> {
    let Projection { expr, input, .. } = projection;
    let mut marks = Marks { plan: Arc::unwrap_or_clone(input) };
    let names = NamePreserver::new_for_projection();
    let mut exprs = Vec::with_capacity(expr.len());
    for expr in expr {
        let name = names.save(&expr);
        exprs.push(name.restore(marks.valued(expr)?));
    }
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(marks.plan))?)))
}

fn filtered(filter: Filter) -> DFResult<Transformed<LogicalPlan>> {
    let Filter { predicate, input, .. } = filter;
    let wanted = input.schema().columns();
    let mut marks = Marks { plan: Arc::unwrap_or_clone(input) };
    let mut conditions = Vec::new();
    for condition in split_conjunction_owned(predicate) {
        conditions.push(if has_subquery(&condition)? { marks.condition(condition)? } else { condition });
    }
    let widened = marks.plan.schema().fields().len() > wanted.len();
    let plan = match conjunction(conditions) {
        Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(marks.plan))?),
        None => marks.plan,
    };
    Ok(Transformed::yes(if widened { narrowed(plan, wanted)? } else { plan }))
}

/// Plan to which the columns needed by rewritten expressions are added.
struct Marks {
    plan: LogicalPlan,
}

impl Marks {
    /// Rewrites a condition by itself, whose false and unknown are the same.
    fn condition(&mut self, condition: Expr) -> DFResult<Expr> {
        match compared(condition)? {
            Expr::Exists(mut exists) => {
                if is_correlated(&exists.subquery) {
                    let rows = Arc::unwrap_or_clone(exists.subquery.subquery);
                    exists.subquery.subquery = Arc::new(told_apart(rows)?);
                }
                Ok(Expr::Exists(exists))
            }
            Expr::Not(inner) => match *inner {
                Expr::InSubquery(within) => {
                    let negated = !within.negated;
                    self.condition(Expr::InSubquery(InSubquery { negated, ..within }))
                }
                Expr::Exists(exists) => {
                    self.condition(Expr::Exists(Exists { negated: !exists.negated, ..exists }))
                }
                other => self.valued(Expr::Not(Box::new(other))),
            },
            Expr::InSubquery(mut within) => {
                let list = Arc::unwrap_or_clone(within.subquery.subquery);
                let correlated = !within.subquery.outer_ref_columns.is_empty();
                let list = if correlated { told_apart(list)? } else { list };
                within.subquery.subquery = Arc::new(bare(list)?);
                if has_subquery(&within.expr)? {
                    let value = self.valued(*within.expr)?;
                    within.expr = Box::new(Expr::Column(self.column(value)?));
                }
                if within.negated {
                    self.none_of(within)
                } else if within.expr.contains_outer() {
                    self.valued(Expr::InSubquery(within))
                } else {
                    Ok(Expr::InSubquery(within))
                }
            }
            other => self.valued(other),
        }
    }

    /// Rewrites a NOT IN that is a condition by itself.
    fn none_of(&mut self, within: InSubquery) -> DFResult<Expr> {
        let InSubquery { expr, subquery: list, .. } = &within;
        if expr.contains_outer() {
            return self.valued(Expr::InSubquery(within));
        }
        if is_correlated(list) {
            let value = Expr::Column(Column::from(list.subquery.schema().qualified_field(0)));
            let tested = self.outer(expr)?;
            let maybe = Expr::IsNotFalse(Box::new(value.eq(tested)));
            let met = LogicalPlanBuilder::from(list.subquery.as_ref().clone()).filter(maybe)?.build()?;
            return Ok(Expr::Exists(Exists { subquery: subquery(told_apart(met)?), negated: true }));
        }
        if !expr.any_column_refs() {
            return self.valued(Expr::InSubquery(within));
        }
        // DataFusion joins on the compared expressions, and loses track of a key that turns out to be a constant.
        let key = match expr.as_ref() {
            Expr::Column(column) => column.clone(),
            computed => self.column(computed.clone())?,
        };
        Ok(Expr::InSubquery(InSubquery { expr: Box::new(Expr::Column(key)), ..within }))
    }

    /// Expression of the plan as a subquery refers to it.
    fn outer(&self, expr: &Expr) -> DFResult<Expr> {
        let schema = self.plan.schema();
        let seen = expr.clone().transform_up(|expr| match expr {
            Expr::Column(column) => {
                let field = Arc::clone(schema.qualified_field_from_column(&column)?.1);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(seen.data)
    }

    /// Rewrites an expression whose value has to be exact, NULL included.
    fn valued(&mut self, expr: Expr) -> DFResult<Expr> {
        let valued = expr.transform_up(|expr| match compared(expr)? {
            Expr::InSubquery(within) if !is_correlated(&within.subquery) => {
                self.member(within).map(Transformed::yes)
            }
            Expr::Exists(exists) if !is_correlated(&exists.subquery) => there(exists).map(Transformed::yes),
            other => Ok(Transformed::yes(other)),
        })?;
        Ok(valued.data)
    }

    fn column(&mut self, expr: Expr) -> DFResult<Column> {
        let plan = std::mem::take(&mut self.plan);
        let (plan, column) = with_column(plan, expr)?;
        self.plan = plan;
        Ok(column)
    }

    /// Rewrites IN a list that does not depend on the row.
    fn member(&mut self, within: InSubquery) -> DFResult<Expr> {
        let InSubquery { expr, subquery: list, negated } = within;
        let tested = match *expr {
            plain @ (Expr::Column(_) | Expr::Literal(..)) => plain,
            other => Expr::Column(self.column(other)?),
        };
        let alias = fresh("list");
        let list =
            LogicalPlanBuilder::from(Arc::unwrap_or_clone(list.subquery)).alias(alias.as_str())?.build()?;
        let (qualifier, field) = list.schema().qualified_field(0);
        let (value, nullable) = (Expr::Column(Column::from((qualifier, field))), field.is_nullable());
        let certain = !nullable && !tested.nullable(self.plan.schema())?;
        let state = if certain { None } else { Some(state(&list, &value)?) };
        let plan = std::mem::take(&mut self.plan);
        let condition = tested.clone().eq(value);
        self.plan =
            LogicalPlanBuilder::from(plan).join_on(list, JoinType::LeftMark, Some(condition))?.build()?;
        let mark = Expr::Column(Column::new(Some(alias), "mark"));
        let found = match state {
            None => mark,
            Some(state) => three_valued(mark, state, tested)?,
        };
        Ok(if negated { Expr::Not(Box::new(found)) } else { found })
    }
}

/// List without an order, whose column has a unique name: DataFusion adds columns to those of a correlated
/// list, and refuses two of one name.
fn bare(list: LogicalPlan) -> DFResult<LogicalPlan> {
    Ok(match list {
        LogicalPlan::Sort(Sort { input, fetch: None, .. }) => bare(Arc::unwrap_or_clone(input))?,
        LogicalPlan::Distinct(Distinct::All(input)) => {
            LogicalPlan::Distinct(Distinct::All(Arc::new(bare(Arc::unwrap_or_clone(input))?)))
        }
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            let renamed = expr.into_iter().map(|expr| expr.unalias().alias(fresh("item"))).collect();
            LogicalPlan::Projection(Projection::try_new(renamed, input)?)
        }
        other => other,
    })
}

/// Correlated subquery with unique column names in its conditions: DataFusion moves these conditions to a
/// place where all columns of the subquery are of one relation, and there takes `b.id` for `a.id`.
fn told_apart(plan: LogicalPlan) -> DFResult<LogicalPlan> {
    plan.transform_up(|node| {
        let LogicalPlan::Filter(Filter { predicate, input, .. }) = node else {
            return Ok(Transformed::no(node));
        };
        let schema = Arc::clone(input.schema());
        let mut renamed: HashMap<Column, String> = HashMap::new();
        for condition in
            split_conjunction(&predicate).into_iter().filter(|condition| condition.contains_outer())
        {
            for column in condition.column_refs() {
                if schema.fields().iter().filter(|field| *field.name() == column.name).count() > 1 {
                    renamed.entry(column.clone()).or_insert_with(|| fresh("own"));
                }
            }
        }
        if renamed.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Filter(Filter::try_new(predicate, input)?)));
        }
        let own = renamed.iter().map(|(column, name)| Expr::Column(column.clone()).alias(name));
        let projected: Vec<Expr> = columns(&input).chain(own).collect();
        let input = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input)).project(projected)?.build()?;
        let mut conditions = Vec::new();
        for condition in split_conjunction_owned(predicate) {
            if !condition.contains_outer() {
                conditions.push(condition);
                continue;
            }
            let named = condition.transform_up(|expr| match &expr {
                Expr::Column(column) if renamed.contains_key(column) => {
                    Ok(Transformed::yes(Expr::Column(Column::new_unqualified(&renamed[column]))))
                }
                _ => Ok(Transformed::no(expr)),
            });
            conditions.push(named.data()?);
        }
        let predicate = conjunction(conditions).unwrap_or_else(|| lit(true));
        Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?)))
    })
    .data()
}

/// State of a list: [`EMPTY`], [`KNOWN`] or [`WITH_NULL`].
fn state(list: &LogicalPlan, value: &Expr) -> DFResult<Expr> {
    let (rows, values) = (fresh("rows"), fresh("values"));
    let counts = [count(lit(1i64)).alias(&rows), count(value.clone()).alias(&values)];
    let column = |name: &str| Expr::Column(Column::new_unqualified(name));
    let known = when(column(&rows).eq(lit(0i64)), lit(EMPTY))
        .when(column(&rows).eq(column(&values)), lit(KNOWN))
        .otherwise(lit(WITH_NULL))?;
    let plan = LogicalPlanBuilder::from(list.clone())
        .aggregate(Vec::<Expr>::new(), counts)?
        .project([known.alias(fresh("state"))])?
        .build()?;
    Ok(scalar(plan))
}

/// TRUE where `met` is; NULL where it is unknown, by the state of the list and the tested value.
fn three_valued(met: Expr, state: Expr, tested: Expr) -> DFResult<Expr> {
    let is_null = Expr::IsNull(Box::new(tested));
    let unknown = state.clone().eq(lit(WITH_NULL)).or(state.not_eq(lit(EMPTY)).and(is_null));
    when(met, lit(true)).when(unknown, Expr::Literal(ScalarValue::Boolean(None), None)).otherwise(lit(false))
}

/// Rewrites EXISTS of rows that do not depend on the row.
fn there(exists: Exists) -> DFResult<Expr> {
    let Exists { subquery, negated } = exists;
    let rows = fresh("rows");
    let counted = Expr::Column(Column::new_unqualified(&rows));
    let wanted = if negated { counted.eq(lit(0i64)) } else { counted.gt(lit(0i64)) };
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(subquery.subquery))
        .limit(0, Some(1))?
        .aggregate(Vec::<Expr>::new(), [count(lit(1i64)).alias(&rows)])?
        .project([wanted.alias(fresh("exists"))])?
        .build()?;
    Ok(scalar(plan))
}

/// Rewrites a comparison with ANY or ALL of a subquery; all else stays as it is.
fn compared(expr: Expr) -> DFResult<Expr> {
    let Expr::SetComparison(SetComparison { expr: tested, subquery: list, op, quantifier }) = expr else {
        return Ok(expr);
    };
    // ALL is NOT ANY of the contrary.
    let all = quantifier == SetQuantifier::All;
    let any = if all { op.negate().unwrap_or(op) } else { op };
    if any == Operator::Eq {
        return Ok(Expr::InSubquery(InSubquery { expr: tested, subquery: list, negated: all }));
    }
    let value = Expr::Column(Column::from(list.subquery.schema().qualified_field(0)));
    let bound = |aggregate: Expr| -> DFResult<Expr> {
        let bound = fresh("bound");
        let plan = LogicalPlanBuilder::from(list.subquery.as_ref().clone())
            .aggregate(Vec::<Expr>::new(), [aggregate.alias(&bound)])?
            .project([Expr::Column(Column::new_unqualified(&bound))])?
            .build()?;
        let right = Box::new(scalar(plan));
        Ok(Expr::BinaryExpr(BinaryExpr { left: tested.clone(), op: any, right }))
    };
    let mut bounds = Vec::new();
    if matches!(any, Operator::Lt | Operator::LtEq | Operator::NotEq) {
        bounds.push(bound(max(value.clone()))?);
    }
    if matches!(any, Operator::Gt | Operator::GtEq | Operator::NotEq) {
        bounds.push(bound(min(value.clone()))?);
    }
    let Some(met) = disjunction(bounds) else {
        return datafusion::common::not_impl_err!("{op} with ANY or ALL of a subquery");
    };
    let met = three_valued(met, state(&list.subquery, &value)?, *tested)?;
    Ok(if all { Expr::Not(Box::new(met)) } else { met })
}
