//! Names of relations in expressions, which are their rows: `row_to_json(u)`, `json_agg(u)`, `SELECT u FROM users u`.
//!
//! | written | planned |
//! | --- | --- |
//! | `row_to_json(u)` | `row_to_json(named_struct('id', u.id, 'name', u.name))` |
//!
//! - A column of the name comes first, as in PostgreSQL: only a name that the planner does not find is looked for among the relations
//!   of the queries around it, whose columns are those of a query of it alone.
//! - The row of a relation of an outer join is NULL where it has none: where a column that cannot be NULL is. One without such a column
//!   is refused there.
//!
//! Cost: nothing for a statement without an expression that is the name of one of its relations; else its plan once more for each.

use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::parser::statement::{inner, inner_mut, query_of};
use crate::parser::visit::{visit_expressions, walk, walk_mut};
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinOperator, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
    Visitor, VisitorMut, With,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Plan of a translated statement.
pub(crate) async fn plan(state: &SessionState, mut statement: DFStatement) -> Result<LogicalPlan> {
    let named = Names::of(&statement);
    while !named.is_empty() {
        let error = match state.statement_to_plan(statement.clone()).await {
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        let name = missing_name(&error).filter(|name| named.contains(name));
        let relation = name.as_deref().and_then(|name| Relation::find(&statement, name));
        let (Some(name), Some(relation)) = (name, relation) else { return Err(error.into()) };
        let row = relation.row(state, &name).await?;
        let mut rows =
            RowNames { name, row, select: relation.select, selects: 0, open: Vec::new(), found: false };
        if let Some(tree) = inner_mut(&mut statement) {
            let _ = walk_mut(tree, &mut rows);
        }
        if !rows.found {
            return Err(error.into());
        }
    }
    Ok(state.statement_to_plan(statement).await?)
}

/// Name of a column without a relation that was not found.
fn missing_name(error: &DataFusionError) -> Option<String> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::FieldNotFound { field, .. } if field.relation.is_none() => Some(field.name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Names of relations and of columns in a statement.
#[derive(Default)]
struct Names {
    relations: BTreeSet<String>,
    columns: BTreeSet<String>,
}

impl Names {
    /// Names of relations that are expressions too.
    fn of(statement: &DFStatement) -> BTreeSet<String> {
        let mut names = Names::default();
        if let Some(tree) = inner(statement) {
            let _ = walk(tree, &mut names);
        }
        names.relations.intersection(&names.columns).cloned().collect()
    }
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        self.relations.extend(name_of(factor));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr {
            self.columns.insert(identifier(ident));
        }
        ControlFlow::Continue(())
    }
}

/// Name of a relation in FROM.
fn name_of(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(identifier(&alias.name)),
        TableFactor::Table { name, alias: None, args: None, .. } => table_name(name).ok(),
        _ => None,
    }
}

/// Relation of a query.
struct Relation {
    factor: TableFactor,
    /// Common table expressions of the queries around it.
    with: Vec<With>,
    /// True if it is of an outer join.
    is_outer: bool,
    /// Number of its SELECT, in the order in which they begin.
    select: usize,
}

impl Relation {
    /// First relation of a name in a statement whose SELECT has the name as an expression.
    fn find(statement: &DFStatement, name: &str) -> Option<Relation> {
        let mut search = RelationSearch { name, selects: 0, with: Vec::new() };
        match walk(inner(statement)?, &mut search) {
            ControlFlow::Break(relation) => Some(relation),
            ControlFlow::Continue(()) => None,
        }
    }

    /// Expression of its row.
    async fn row(&self, state: &SessionState, name: &str) -> Result<Expr> {
        let listed = listed_names(&self.factor).filter(|_| !self.is_outer);
        let columns: Vec<(String, bool)> = match listed {
            Some(names) => names.into_iter().map(|name| (name, true)).collect(),
            None => {
                let plan = state.statement_to_plan(self.query()?).await?;
                plan.schema()
                    .fields()
                    .iter()
                    .map(|field| (field.name().clone(), field.is_nullable()))
                    .collect()
            }
        };
        let quoted = |name: &str| Ident::with_quote('"', name).to_string();
        let column = |column: &str| format!("{}.{}", quoted(name), quoted(column));
        let values =
            columns.iter().map(|(name, _)| format!("'{}', {}", name.replace('\'', "''"), column(name)));
        let row = format!("named_struct({})", values.collect::<Vec<_>>().join(", "));
        if !self.is_outer {
            return expression(&row);
        }
        let required = columns.iter().find(|(_, is_nullable)| !is_nullable).ok_or_else(|| {
            Error::unsupported(format!(
                "the row {name} of an outer join: no column of {name} is NOT NULL, which would say whether there is one; list its columns"
            ))
        })?;
        expression(&format!("CASE WHEN {} IS NOT NULL THEN {row} END", column(&required.0)))
    }

    /// Query of the relation alone.
    fn query(&self) -> Result<DFStatement> {
        let mut query = query_of("SELECT * FROM t")?;
        let with = self.with.iter().cloned().reduce(|mut all, with| {
            all.recursive |= with.recursive;
            all.cte_tables.extend(with.cte_tables);
            all
        });
        if let Some(Statement::Query(query)) = inner_mut(&mut query)
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            select.from.iter_mut().for_each(|from| from.relation = self.factor.clone());
            query.with = with;
        }
        Ok(query)
    }
}

/// Names of the columns of a subquery that lists them.
fn listed_names(factor: &TableFactor) -> Option<Vec<String>> {
    let TableFactor::Derived { subquery, alias: Some(alias), .. } = factor else { return None };
    let SetExpr::Select(select) = subquery.body.as_ref() else { return None };
    if !alias.columns.is_empty() {
        return None;
    }
    let name = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(identifier(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(ident)) => Some(identifier(ident)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(identifier),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

/// Expression that is written so.
fn expression(written: &str) -> Result<Expr> {
    let mut query = query_of(&format!("SELECT {written}"))?;
    if let Some(Statement::Query(query)) = inner_mut(&mut query)
        && let SetExpr::Select(select) = query.body.as_mut()
        && let Some(SelectItem::UnnamedExpr(expr)) = select.projection.pop()
    {
        return Ok(expr);
    }
    Err(Error::Internal(format!("{written} is not an expression")))
}

struct RelationSearch<'n> {
    name: &'n str,
    selects: usize,
    /// Common table expressions of the queries around.
    with: Vec<Option<With>>,
}

impl Visitor for RelationSearch<'_> {
    type Break = Relation;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Relation> {
        self.with.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<Relation> {
        self.with.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Relation> {
        let number = self.selects;
        self.selects += 1;
        let is_name = |expr: &Expr| matches!(expr, Expr::Identifier(ident) if identifier(ident) == self.name);
        let has_name = visit_expressions(select, |expr| {
            if is_name(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        for from in select.from.iter().filter(|_| has_name.is_break()) {
            let is_outer = from.joins.iter().any(|join| is_outer(&join.join_operator));
            if let Some(factor) =
                factors(from).into_iter().find(|factor| name_of(factor).as_deref() == Some(self.name))
            {
                let with = self.with.iter().flatten().cloned().collect();
                return ControlFlow::Break(Relation {
                    factor: factor.clone(),
                    with,
                    is_outer,
                    select: number,
                });
            }
        }
        ControlFlow::Continue(())
    }
}

fn is_outer(join: &JoinOperator) -> bool {
    matches!(
        join,
        JoinOperator::Left(_)
            | JoinOperator::LeftOuter(_)
            | JoinOperator::Right(_)
            | JoinOperator::RightOuter(_)
            | JoinOperator::FullOuter(_)
    )
}

/// Relations of an item of FROM.
fn factors(from: &TableWithJoins) -> Vec<&TableFactor> {
    let mut factors = vec![&from.relation];
    factors.extend(from.joins.iter().map(|join| &join.relation));
    factors
}

/// Replaces the name of a relation by its row, in a SELECT and those within it.
struct RowNames {
    name: String,
    row: Expr,
    select: usize,
    selects: usize,
    open: Vec<usize>,
    /// True if the name was there.
    found: bool,
}

impl RowNames {
    fn is_name(&self, expr: &Expr) -> bool {
        let is_within = self.open.contains(&self.select);
        is_within && matches!(expr, Expr::Identifier(ident) if identifier(ident) == self.name)
    }
}

impl VisitorMut for RowNames {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.open.push(self.selects);
        self.selects += 1;
        for item in &mut select.projection {
            // A column of the result has the name still.
            if let SelectItem::UnnamedExpr(expr) = item
                && self.is_name(expr)
            {
                let alias = Ident::with_quote('"', &self.name);
                *item = SelectItem::ExprWithAlias { expr: self.row.clone(), alias };
                self.found = true;
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.is_name(expr) {
            *expr = self.row.clone();
            self.found = true;
        }
        ControlFlow::Continue(())
    }
}
