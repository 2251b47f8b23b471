//! Statements that write, in one form each:
//!
//! | written | parsed as |
//! | --- | --- |
//! | `WITH c AS (…) INSERT INTO t SELECT … FROM c` | `INSERT INTO t WITH c AS (…) SELECT … FROM c` |
//! | `WITH c AS (…) UPDATE t SET a = (SELECT … FROM c)` | `… SET a = (WITH c AS (…) SELECT … FROM c)` |
//! | `WITH c AS (…) UPDATE t … FROM c`, `DELETE FROM t USING c` | `… FROM (WITH c AS (…) SELECT * FROM c) AS c` |
//! | `SELECT … INTO t FROM …` | `CREATE TABLE t AS SELECT … FROM …` |
//! | `SET (a, b) = (x, y)`, `= ROW(x, y)` | `SET a = x, b = y` |
//!
//! MERGE has its WITH already. A row from a query, `SET (a, b) = (SELECT …)`, is for `dml/row_assignments.rs`. Statements that
//! write within WITH are refused: what they return would have to be there before the statement that reads it.

use crate::error::{Error, Result};
use crate::parser::names::{identifier, is_plain};
use crate::parser::visit::walk_mut;
use datafusion::sql::sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Insert,
    MergeAction, ObjectName, OnConflictAction, OnInsert, Query, SelectInto, SelectItem, SetExpr, Statement,
    TableAlias, TableFactor, Update, UpdateTableFromKind, VisitorMut, WildcardAdditionalOptions, With,
};
use std::ops::ControlFlow;

/// Puts a statement into this form; `template` is a query of one table, to be filled in.
pub(crate) fn normalise(
    statement: &mut Statement,
    template: impl Fn() -> Result<Query> + Copy,
) -> Result<()> {
    if let Statement::Prepare { statement, .. } = statement {
        return normalise(statement, template);
    }
    if let Statement::Query(query) = statement {
        if let Some(with) = &query.with {
            refuse_changes(with)?;
        }
        let with = query.with.take();
        let plain = is_plain(query);
        query.with = with;
        if plain && let Some(written) = written_with(query, template)? {
            *statement = written;
        }
    }
    if let Statement::Query(query) = statement
        && let Some(into) = into_of(&mut query.body)
    {
        *statement = created(into, query)?;
        return Ok(());
    }
    match statement {
        Statement::Update(update) => split(&mut update.assignments),
        Statement::Insert(insert) => {
            if let Some(with) = insert.source.as_ref().and_then(|source| source.with.as_ref()) {
                refuse_changes(with)?;
            }
            match &mut insert.on {
                Some(OnInsert::OnConflict(conflict)) => match &mut conflict.action {
                    OnConflictAction::DoUpdate(update) => split(&mut update.assignments),
                    OnConflictAction::DoNothing => Ok(()),
                },
                _ => Ok(()),
            }
        }
        Statement::Query(query) => match query.body.as_mut() {
            SetExpr::Merge(merge) => split_in_merge(merge),
            _ => Ok(()),
        },
        merge @ Statement::Merge(_) => split_in_merge(merge),
        _ => Ok(()),
    }
}

/// Table that a SELECT, or the first one of a set operation, makes of its rows.
fn into_of(body: &mut SetExpr) -> Option<SelectInto> {
    match body {
        SetExpr::Select(select) => select.into.take(),
        SetExpr::SetOperation { left, .. } => into_of(left),
        _ => None,
    }
}

/// CREATE TABLE AS of the rows of a query.
fn created(into: SelectInto, query: &Query) -> Result<Statement> {
    if into.unlogged {
        return Err(Error::unsupported("UNLOGGED in SELECT INTO"));
    }
    let create = CreateTableBuilder::new(into.name).temporary(into.temporary);
    Ok(Statement::CreateTable(create.query(Some(Box::new(query.clone()))).build()))
}

/// Refuses a WITH whose queries write.
fn refuse_changes(with: &With) -> Result<()> {
    for table in &with.cte_tables {
        let verb = match table.query.body.as_ref() {
            SetExpr::Insert(_) => "INSERT",
            SetExpr::Update(_) => "UPDATE",
            SetExpr::Delete(_) => "DELETE",
            SetExpr::Merge(_) => "MERGE",
            _ => continue,
        };
        let name = identifier(&table.alias.name);
        return Err(Error::unsupported(format!(
            "{verb} in WITH: run it before, in one transaction, and use what its RETURNING gives in place of {name}"
        )));
    }
    Ok(())
}

/// Statement behind a WITH, with the WITH where it is used; none if the query is another one.
fn written_with(query: &mut Query, template: impl Fn() -> Result<Query>) -> Result<Option<Statement>> {
    let (SetExpr::Insert(written) | SetExpr::Update(written) | SetExpr::Delete(written)) =
        query.body.as_mut()
    else {
        return Ok(None);
    };
    let Some(with) = query.with.take() else { return Ok(None) };
    let select = template()?;
    let mut attached = WithAttacher { with, select, depth: 0 };
    match written {
        Statement::Insert(insert) => attached.insert(insert),
        Statement::Update(update) => attached.update(update),
        Statement::Delete(delete) => attached.delete(delete),
        _ => return Ok(None),
    }
    let placeholder = Statement::Query(Box::new(attached.select));
    Ok(Some(std::mem::replace(written, placeholder)))
}

/// WITH that is attached to the queries of a statement.
struct WithAttacher {
    with: With,
    /// `SELECT 1 FROM t`.
    select: Query,
    /// Count of queries around.
    depth: usize,
}

impl WithAttacher {
    fn insert(&mut self, insert: &mut Insert) {
        if let Some(source) = &mut insert.source {
            self.attach(source);
        }
        if let Some(OnInsert::OnConflict(conflict)) = &mut insert.on
            && let OnConflictAction::DoUpdate(update) = &mut conflict.action
        {
            update.assignments.iter_mut().for_each(|assignment| self.walk(&mut assignment.value));
            update.selection.iter_mut().for_each(|condition| self.walk(condition));
        }
        self.items(insert.returning.as_mut());
    }

    fn update(&mut self, update: &mut Update) {
        update.assignments.iter_mut().for_each(|assignment| self.walk(&mut assignment.value));
        update.selection.iter_mut().for_each(|condition| self.walk(condition));
        if let Some(UpdateTableFromKind::AfterSet(from)) = &mut update.from {
            let _ = walk_mut(from, self);
        }
        self.items(update.returning.as_mut());
    }

    fn delete(&mut self, delete: &mut Delete) {
        delete.selection.iter_mut().for_each(|condition| self.walk(condition));
        if let Some(using) = &mut delete.using {
            let _ = walk_mut(using, self);
        }
        self.items(delete.returning.as_mut());
    }

    fn walk(&mut self, expr: &mut Expr) {
        let _ = walk_mut(expr, self);
    }

    fn items(&mut self, items: Option<&mut Vec<SelectItem>>) {
        if let Some(items) = items {
            let _ = walk_mut(items, self);
        }
    }

    /// Gives a query the tables of the WITH, which its own hide.
    fn attach(&self, query: &mut Query) {
        if query.with.is_some() {
            let inner = std::mem::replace(query, self.select.clone());
            *query.body = SetExpr::Query(Box::new(inner));
        }
        query.with = Some(self.with.clone());
    }

    /// Query of a table of the WITH, in the place of its name.
    fn table(&self, factor: &TableFactor) -> Option<TableFactor> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return None };
        let [part] = name.0.as_slice() else { return None };
        let part = part.as_ident()?;
        let named = identifier(part);
        self.with.cte_tables.iter().find(|table| identifier(&table.alias.name) == named)?;
        let called = alias.clone().unwrap_or_else(|| TableAlias {
            explicit: true,
            name: part.clone(),
            columns: Vec::new(),
            at: None,
        });
        let mut query = self.select.clone();
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
            let from = select.from.first_mut()?;
            from.relation = factor.clone();
            if let TableFactor::Table { alias, .. } = &mut from.relation {
                *alias = None;
            }
        }
        self.attach(&mut query);
        let subquery = Box::new(query);
        Some(TableFactor::Derived { lateral: false, subquery, alias: Some(called), sample: None })
    }
}

impl VisitorMut for WithAttacher {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        if self.depth == 0 {
            self.attach(query);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if self.depth == 0
            && let Some(derived) = self.table(factor)
        {
            *factor = derived;
        }
        ControlFlow::Continue(())
    }
}

fn split_in_merge(statement: &mut Statement) -> Result<()> {
    let Statement::Merge(merge) = statement else { return Ok(()) };
    for clause in &mut merge.clauses {
        if let MergeAction::Update(update) = &mut clause.action {
            split(&mut update.assignments)?;
        }
    }
    Ok(())
}

/// Splits assignments of rows that are written out.
fn split(assignments: &mut Vec<Assignment>) -> Result<()> {
    let is_row = |assignment: &Assignment| matches!(assignment.target, AssignmentTarget::Tuple(_));
    if !assignments.iter().any(is_row) {
        return Ok(());
    }
    let mut single = Vec::with_capacity(assignments.len());
    for assignment in std::mem::take(assignments) {
        let AssignmentTarget::Tuple(columns) = &assignment.target else {
            single.push(assignment);
            continue;
        };
        if subquery(&assignment.value).is_some() {
            single.push(assignment);
            continue;
        }
        let Some(values) = fields(&assignment.value, columns.len()) else {
            let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
            return Err(Error::unsupported(message));
        };
        if values.len() != columns.len() {
            return Err(Error::coded("42601", "number of columns does not match number of values"));
        }
        let pairs = columns.iter().cloned().zip(values);
        single.extend(pairs.map(|(column, value): (ObjectName, Expr)| Assignment {
            target: AssignmentTarget::ColumnName(column),
            value,
        }));
    }
    *assignments = single;
    Ok(())
}

/// Query of a row that is assigned.
pub(crate) fn subquery(value: &Expr) -> Option<&Query> {
    match value {
        Expr::Subquery(query) => Some(query),
        Expr::Nested(inner) => subquery(inner),
        _ => None,
    }
}

/// Fields of a row that is written out, for so many columns.
fn fields(value: &Expr, columns: usize) -> Option<Vec<Expr>> {
    match value {
        Expr::Tuple(fields) => Some(fields.clone()),
        Expr::Nested(inner) if columns == 1 && !matches!(**inner, Expr::Function(_)) => None,
        Expr::Nested(inner) => fields(inner, columns),
        Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident())?;
            let FunctionArguments::List(list) = &function.args else { return None };
            if identifier(name) != "row" {
                return None;
            }
            let field = |argument: &FunctionArg| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(field)) => Some(field.clone()),
                _ => None,
            };
            list.args.iter().map(field).collect()
        }
        _ => None,
    }
}
