//! Columns that RIGHT and FULL JOIN … USING merge: the value of the side that has a row.
//!
//! DataFusion's planner takes such a column for the left side's, as is right for an INNER or LEFT JOIN. So in
//! two steps:
//!
//! 1. In the statement, columns qualified with their relation (`l.id`) are marked: they are that side's own
//!    ([`mark`]). The others, and those of `*`, are the merged ones.
//! 2. In its plan, up to the next projection, unmarked columns of the left side become COALESCE of both, or
//!    of a RIGHT JOIN the right side's ([`merged`]).
//!
//! `l.*` has the merged column too.

use crate::parser::names::identifier;
use crate::parser::visit::{visit_expressions_mut, walk_mut};
use crate::planner::translation::call;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchemaRef, JoinConstraint, JoinType, Result as DFResult, internal_err};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::expr::{Exists, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, Join, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Subquery, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Ident, JoinConstraint as SqlConstraint, JoinOperator, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins, VisitorMut,
};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Name of the mark: a function that returns its argument.
const OWN: &str = "entresol_own_column";

/// Expressions that replace columns of a plan.
type Sets = HashMap<Column, Expr>;

/// Marks the qualified columns of a SELECT, if a join merges some; and qualifies those of USING with the
/// relation that DataFusion takes them for, as it finds them ambiguous within expressions.
pub(crate) fn mark(select: &mut Select) {
    mark_own(select);
    let firsts = firsts(&select.from);
    if !firsts.is_empty() {
        let _ = walk_mut(select, &mut ColumnQualifier { firsts: &firsts, depth: 0 });
    }
}

fn mark_own(select: &mut Select) {
    let Some(merging) = MergedColumns::of(&select.from) else { return };
    for item in &mut select.projection {
        // It keeps its name.
        if let SelectItem::UnnamedExpr(expr) = item
            && let Some(name) = merging.name_of(expr)
        {
            let alias = Ident::with_quote('"', name);
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    let _: ControlFlow<()> = visit_expressions_mut(select, |expr| merging.mark(expr));
}

/// Marks the columns in the ORDER BY of a query.
pub(crate) fn mark_order(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else { return };
    let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
        return;
    };
    let (merging, firsts) = (MergedColumns::of(&select.from), firsts(&select.from));
    for by in order {
        if let Some(merging) = &merging {
            let _: ControlFlow<()> = visit_expressions_mut(&mut by.expr, |expr| merging.mark(expr));
        }
        // An unqualified name is that of an item, if one has it.
        let is_item = matches!(&by.expr, SqlExpr::Identifier(name)
            if select.projection.iter().any(|item| item_name(item) == Some(identifier(name))));
        if !is_item {
            let _ = walk_mut(&mut by.expr, &mut ColumnQualifier { firsts: &firsts, depth: 0 });
        }
    }
}

fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(SqlExpr::Identifier(name)) => Some(identifier(name)),
        SelectItem::UnnamedExpr(SqlExpr::CompoundIdentifier(parts)) => parts.last().map(identifier),
        SelectItem::ExprWithAlias { alias, .. } => Some(identifier(alias)),
        _ => None,
    }
}

/// Columns of USING, each with the first relation that has it, as far as the statement says.
fn firsts(from: &[TableWithJoins]) -> HashMap<String, Ident> {
    let mut firsts = HashMap::new();
    for TableWithJoins { relation, joins } in from {
        let first = match relation {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
            TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident().cloned()),
            _ => None,
        };
        for (at, join) in joins.iter().enumerate() {
            let (JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)) = &join.join_operator
            else {
                continue;
            };
            // Behind the first join it may belong to any relation before.
            if let (SqlConstraint::Using(names), Some(first), 0) = (constraint, &first, at) {
                let names = names.iter().filter_map(|name| Some(identifier(name.0.last()?.as_ident()?)));
                firsts.extend(names.map(|name| (name, first.clone())));
            }
        }
    }
    firsts
}

/// Visitor that qualifies columns with their relation, but not in subqueries.
struct ColumnQualifier<'f> {
    firsts: &'f HashMap<String, Ident>,
    depth: usize,
}

impl VisitorMut for ColumnQualifier<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut SqlExpr) -> ControlFlow<()> {
        if self.depth == 0
            && let SqlExpr::Identifier(name) = expr
            && let Some(first) = self.firsts.get(&identifier(name))
        {
            *expr = SqlExpr::CompoundIdentifier(vec![first.clone(), name.clone()]);
        }
        ControlFlow::Continue(())
    }
}

/// Columns that the joins of a FROM merge.
struct MergedColumns {
    /// Merged columns; `None` for a NATURAL JOIN, which may merge any.
    columns: Option<Vec<String>>,
}

impl MergedColumns {
    fn of(from: &[TableWithJoins]) -> Option<MergedColumns> {
        let mut found = None;
        from.iter().for_each(|tables| tables_of(tables, &mut found));
        found
    }

    fn name_of(&self, expr: &SqlExpr) -> Option<String> {
        let SqlExpr::CompoundIdentifier(parts) = expr else { return None };
        let name = identifier(parts.last()?);
        self.columns.as_ref().is_none_or(|columns| columns.contains(&name)).then_some(name)
    }

    fn mark(&self, expr: &mut SqlExpr) -> ControlFlow<()> {
        if self.name_of(expr).is_some() {
            *expr = own(expr.clone());
        }
        ControlFlow::Continue(())
    }
}

fn tables_of(tables: &TableWithJoins, found: &mut Option<MergedColumns>) {
    let mut nested = |factor: &TableFactor| {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            tables_of(table_with_joins, found);
        }
    };
    nested(&tables.relation);
    tables.joins.iter().for_each(|join| nested(&join.relation));
    for join in &tables.joins {
        let (JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)) = &join.join_operator
        else {
            continue;
        };
        let merging = found.get_or_insert_with(|| MergedColumns { columns: Some(Vec::new()) });
        match constraint {
            SqlConstraint::Using(names) => {
                let names = names.iter().filter_map(|name| Some(identifier(name.0.last()?.as_ident()?)));
                merging.columns.iter_mut().for_each(|columns| columns.extend(names.clone()));
            }
            SqlConstraint::Natural => merging.columns = None,
            SqlConstraint::On(_) | SqlConstraint::None => {}
        }
    }
    // Nothing is merged.
    if found.as_ref().is_some_and(|merging| merging.columns.as_ref().is_some_and(Vec::is_empty)) {
        *found = None;
    }
}

fn own(column: SqlExpr) -> SqlExpr {
    call(OWN, vec![column])
}

/// Function of the mark, for the planner.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(OwnColumn { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OwnColumn {
    signature: Signature,
}

impl ScalarUDFImpl for OwnColumn {
    fn name(&self) -> &str {
        OWN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DFResult<DataType> {
        match arguments {
            [one] => Ok(one.clone()),
            _ => internal_err!("the mark of a column expects one argument"),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        Ok(arguments.args.swap_remove(0))
    }
}

/// Replaces the left sides' columns of a plan by merged ones.
pub(crate) fn merged(plan: LogicalPlan) -> DFResult<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Join(join) if merges(join));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(if found { with_sets(plan, &[])?.0 } else { plan })
}

fn merges(join: &Join) -> bool {
    join.join_constraint == JoinConstraint::Using
        && matches!(join.join_type, JoinType::Right | JoinType::Full)
}

/// Columns of an outer query.
#[derive(Clone)]
struct OuterColumns {
    sets: Arc<Sets>,
    schema: DFSchemaRef,
}

#[recursive::recursive]
fn with_sets(plan: LogicalPlan, outer: &[OuterColumns]) -> DFResult<(LogicalPlan, Sets)> {
    let mut sets = Sets::new();
    let plan = plan
        .map_children(|child| {
            let (child, below) = with_sets(child, outer)?;
            sets.extend(below);
            Ok(Transformed::yes(child))
        })
        .data()?;
    let mut above = match &plan {
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Window(_)
        | LogicalPlan::Join(_) => sets.clone(),
        _ => Sets::new(),
    };
    if let LogicalPlan::Join(join) = &plan
        && join.join_constraint == JoinConstraint::Using
    {
        for (left, right) in &join.on {
            let (Expr::Column(key), Expr::Column(other)) = (left, right) else { continue };
            let value =
                |column: &Column| sets.get(column).cloned().unwrap_or_else(|| Expr::Column(column.clone()));
            match join.join_type {
                JoinType::Full => above.insert(key.clone(), coalesce(vec![value(key), value(other)])),
                JoinType::Right => above.insert(key.clone(), value(other)),
                _ => None,
            };
        }
    }
    let schema = Arc::new(merge_schema(&plan.inputs()));
    let mut scopes = outer.to_vec();
    scopes.push(OuterColumns { sets: Arc::new(sets), schema });
    let names = NamePreserver::new(&plan);
    let plan = plan
        .map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(Transformed::yes(name.restore(replaced(expr, &scopes)?)))
        })
        .data()?;
    // It is a join on expressions now.
    let plan = match plan {
        LogicalPlan::Join(join) => LogicalPlan::Join(Join { join_constraint: JoinConstraint::On, ..join }),
        other => other,
    };
    Ok((plan.recompute_schema()?, above))
}

fn replaced(expr: Expr, scopes: &[OuterColumns]) -> DFResult<Expr> {
    let own = scopes.last().map(|around| Arc::clone(&around.sets)).unwrap_or_default();
    let jump = |expr| Ok(Transformed::new(expr, true, TreeNodeRecursion::Jump));
    expr.transform_down(|expr| match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == OWN && args.len() == 1 => {
            jump(args.swap_remove(0))
        }
        Expr::Column(column) => match own.get(&column) {
            Some(value) => jump(value.clone()),
            None => Ok(Transformed::no(Expr::Column(column))),
        },
        Expr::OuterReferenceColumn(field, column) => {
            let around = scopes.iter().rev().skip(1).find(|around| around.schema.has_column(&column));
            match around.and_then(|around| Some((around, around.sets.get(&column)?))) {
                Some((around, value)) => jump(from_within(value.clone(), &around.schema)?),
                None => Ok(Transformed::no(Expr::OuterReferenceColumn(field, column))),
            }
        }
        Expr::ScalarSubquery(subquery) => {
            Ok(Transformed::yes(Expr::ScalarSubquery(within(subquery, scopes)?)))
        }
        Expr::Exists(Exists { subquery, negated }) => {
            Ok(Transformed::yes(Expr::Exists(Exists { subquery: within(subquery, scopes)?, negated })))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let subquery = within(subquery, scopes)?;
            Ok(Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery, negated })))
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
            let subquery = within(subquery, scopes)?;
            Ok(Transformed::yes(Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })))
        }
        other => Ok(Transformed::no(other)),
    })
    .data()
}

/// Expression of a query as its subqueries refer to it.
fn from_within(value: Expr, schema: &DFSchemaRef) -> DFResult<Expr> {
    let seen = value.transform_up(|expr| match expr {
        Expr::Column(column) => {
            let field = Arc::clone(schema.qualified_field_from_column(&column)?.1);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    });
    seen.data()
}

fn within(subquery: Subquery, scopes: &[OuterColumns]) -> DFResult<Subquery> {
    let (plan, _) = with_sets(Arc::unwrap_or_clone(subquery.subquery), scopes)?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: subquery.spans })
}
