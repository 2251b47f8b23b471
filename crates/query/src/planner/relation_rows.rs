//! Names of relations in expressions, which are their rows: `row_to_json(u)`, `json_agg(u)`, `SELECT u FROM users u`.
//!
//! | written | planned |
//! | --- | --- |
//! | `row_to_json(u)` | `row_to_json(named_row('id', u.id, 'name', u.name))` |
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
use crate::parser::visit::{walk, walk_mut};
use crate::planner::relation_aliases;
use crate::postgres::named_row::NAMED_ROW;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinOperator, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
    Visitor, VisitorMut, WildcardAdditionalOptions, With,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Plan of a translated statement.
pub(crate) async fn plan(state: &SessionState, mut statement: DFStatement) -> Result<LogicalPlan> {
    let named = Names::of(&statement);
    while !named.is_empty() {
        let error = match state.statement_to_plan(statement.clone()).await {
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        let Some(name) = missing_name(&error).filter(|name| named.contains(name)) else {
            return Err(error.into());
        };
        let rows = rows_of(state, &Scopes::of(&statement, &name), &name).await?;
        // Each turn leaves fewer names.
        if rows.is_empty() {
            return Err(error.into());
        }
        if let Some(tree) = inner_mut(&mut statement) {
            let _ = walk_mut(tree, &mut RowNames { name, rows, selects: 0, queries: 0, open: Vec::new() });
        }
    }
    Ok(state.statement_to_plan(statement).await?)
}

/// Rows that a name is in the SELECTs that have it, by their numbers.
async fn rows_of(state: &SessionState, scopes: &[Scope], name: &str) -> Result<BTreeMap<usize, Expr>> {
    let mut rows = BTreeMap::new();
    for (place, scope) in scopes.iter().enumerate().filter(|(_, scope)| scope.has_name) {
        let mut around = Some(scope);
        while let Some(scope) = around {
            if scope.has_column(state, name).await? {
                break;
            }
            if let Some((factor, is_outer)) = scope.relation(name) {
                rows.insert(place, scope.row(state, name, factor, is_outer).await?);
                break;
            }
            around = scope.around.and_then(|around| scopes.get(around));
        }
    }
    Ok(rows)
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
        self.relations.extend(name_of(factor).map(|name| relation_aliases::written(&name).to_owned()));
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

/// SELECT of a statement.
struct Scope {
    /// Number of the SELECT around it.
    around: Option<usize>,
    from: Vec<TableWithJoins>,
    /// Common table expressions that it sees.
    with: Option<With>,
    /// True if the name is an expression of it.
    has_name: bool,
}

impl Scope {
    /// Relation of a name, and whether it is of an outer join.
    fn relation(&self, name: &str) -> Option<(&TableFactor, bool)> {
        let is_of =
            |factor: &&TableFactor| name_of(factor).is_some_and(|of| relation_aliases::written(&of) == name);
        self.from.iter().find_map(|from| {
            let factor = factors(from).into_iter().find(is_of)?;
            Some((factor, from.joins.iter().any(|join| is_outer(&join.join_operator))))
        })
    }

    /// Tells whether one of its relations has a column of a name.
    async fn has_column(&self, state: &SessionState, name: &str) -> Result<bool> {
        if self.from.is_empty() {
            return Ok(false);
        }
        let column = SelectItem::UnnamedExpr(Expr::Identifier(Ident::with_quote('"', name)));
        Ok(state.statement_to_plan(self.query(vec![column], self.from.clone())?).await.is_ok())
    }

    /// Expression of the row of a relation.
    async fn row(
        &self,
        state: &SessionState,
        name: &str,
        factor: &TableFactor,
        is_outer: bool,
    ) -> Result<Expr> {
        let listed = listed_names(factor).filter(|_| !is_outer);
        let columns: Vec<(String, bool)> = match listed {
            Some(names) => names.into_iter().map(|name| (name, true)).collect(),
            None => {
                let all = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
                let from = vec![TableWithJoins { relation: factor.clone(), joins: Vec::new() }];
                let plan = state.statement_to_plan(self.query(all, from)?).await?;
                plan.schema()
                    .fields()
                    .iter()
                    .map(|field| (field.name().clone(), field.is_nullable()))
                    .collect()
            }
        };
        let quoted = |name: &str| Ident::with_quote('"', name).to_string();
        let relation = name_of(factor).unwrap_or_else(|| name.to_owned());
        let column = |column: &str| format!("{}.{}", quoted(&relation), quoted(column));
        let values =
            columns.iter().map(|(name, _)| format!("'{}', {}", name.replace('\'', "''"), column(name)));
        let row = format!("{NAMED_ROW}({})", values.collect::<Vec<_>>().join(", "));
        if !is_outer {
            return expression(&row);
        }
        let required = columns.iter().find(|(_, is_nullable)| !is_nullable).ok_or_else(|| {
            Error::unsupported(format!(
                "the row {name} of an outer join: no column of {name} is NOT NULL, which would say whether there is one; list its columns"
            ))
        })?;
        expression(&format!("CASE WHEN {} IS NOT NULL THEN {row} END", column(&required.0)))
    }

    /// Query of some items from some relations.
    fn query(&self, items: Vec<SelectItem>, from: Vec<TableWithJoins>) -> Result<DFStatement> {
        let mut query = query_of("SELECT 1")?;
        if let Some(Statement::Query(query)) = inner_mut(&mut query)
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            (select.projection, select.from) = (items, from);
            query.with.clone_from(&self.with);
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

/// SELECTs of a statement, in the order in which they begin.
struct Scopes<'n> {
    name: &'n str,
    selects: Vec<Scope>,
    /// SELECTs that are open, each with the depth of its query.
    open: Vec<(usize, usize)>,
    queries: Vec<OpenQuery>,
}

/// Query within which a visitor is.
struct OpenQuery {
    with: Option<With>,
    /// Addresses of the queries of its common table expressions.
    tables: Vec<usize>,
    /// Place of the one that is visited.
    within: Option<usize>,
}

impl Scopes<'_> {
    fn of(statement: &DFStatement, name: &str) -> Vec<Scope> {
        let mut scopes = Scopes { name, selects: Vec::new(), open: Vec::new(), queries: Vec::new() };
        if let Some(tree) = inner(statement) {
            let _ = walk(tree, &mut scopes);
        }
        scopes.selects
    }

    /// Common table expressions that are seen here: within one, those before it.
    fn with(&self) -> Option<With> {
        let seen = self.queries.iter().filter_map(|query| {
            let mut with = query.with.clone()?;
            with.cte_tables.truncate(query.within.unwrap_or(usize::MAX));
            (!with.cte_tables.is_empty()).then_some(with)
        });
        seen.reduce(|mut all, with| {
            all.recursive |= with.recursive;
            all.cte_tables.extend(with.cte_tables);
            all
        })
    }
}

impl Visitor for Scopes<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let address = |query: &Query| std::ptr::from_ref(query).addr();
        if let Some(around) = self.queries.last_mut() {
            around.within = around.tables.iter().position(|table| *table == address(query));
        }
        let tables = query.with.iter().flat_map(|with| &with.cte_tables).map(|table| address(&table.query));
        self.queries.push(OpenQuery { with: query.with.clone(), tables: tables.collect(), within: None });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries.pop();
        if let Some(around) = self.queries.last_mut() {
            around.within = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let around = self.open.last().map(|(select, _)| *select);
        self.open.push((self.selects.len(), self.queries.len()));
        let (from, with) = (select.from.clone(), self.with());
        self.selects.push(Scope { around, from, with, has_name: false });
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &Select) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        // ORDER BY is of the query, not of a SELECT around.
        if let Some((select, _)) = self.open.last().filter(|(_, queries)| *queries == self.queries.len())
            && is_name(expr, self.name)
        {
            self.selects[*select].has_name = true;
        }
        ControlFlow::Continue(())
    }
}

fn is_name(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Identifier(ident) if identifier(ident) == name)
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

/// Replaces a name by the rows that it is in SELECTs.
struct RowNames {
    name: String,
    /// Rows by the numbers of the SELECTs.
    rows: BTreeMap<usize, Expr>,
    selects: usize,
    queries: usize,
    /// SELECTs that are open, each with the depth of its query.
    open: Vec<(usize, usize)>,
}

impl RowNames {
    /// Row that an expression is.
    fn row(&self, expr: &Expr) -> Option<&Expr> {
        let (select, _) = self.open.last().filter(|(_, queries)| *queries == self.queries)?;
        self.rows.get(select).filter(|_| is_name(expr, &self.name))
    }
}

impl VisitorMut for RowNames {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.open.push((self.selects, self.queries));
        self.selects += 1;
        for item in &mut select.projection {
            // A column of the result has the name still.
            if let SelectItem::UnnamedExpr(expr) = item
                && let Some(row) = self.row(expr)
            {
                let alias = Ident::with_quote('"', &self.name);
                *item = SelectItem::ExprWithAlias { expr: row.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        self.open.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(row) = self.row(expr) {
            *expr = row.clone();
        }
        ControlFlow::Continue(())
    }
}
