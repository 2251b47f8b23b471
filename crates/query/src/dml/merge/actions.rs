//! WHEN clauses of a MERGE, planned: each sees the relations that its rows come from, as in PostgreSQL.

use crate::dml::clauses::{Condition, SetClause, assigned_values};
use crate::dml::computation::Computation;
use crate::dml::expressions::{Item, Relations, returned_items};
use crate::dml::identity;
use crate::dml::merge::source::{JoinColumns, MergeSource};
use crate::dml::returning::Returning;
use crate::dml::source::{column_indexes, is_default};
use crate::dml::writer::TableWriter;
use crate::error::{Error, Result};
use crate::parser::merge::{Action, MERGE, Match, MergeStatement, Overriding, WhenClause};
use crate::parser::names::{has_subquery, identifier};
use crate::parser::visit::{visit_expressions, visit_expressions_mut};
use crate::planner::parameters::Types;
use crate::postgres::types::visible_schema;
use crate::session::core::SessionCore;
use datafusion::arrow::datatypes::{DataType as ArrowType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{Expr, FunctionArguments, ObjectName, ObjectNamePart, SelectItem};
use entresol_tables::{Identity, Table};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Relation and column that `merge_action()` is.
const ACTIONS: &str = "\u{1}actions";
const ACTION: &str = "\u{1}action";
const MERGE_ACTION: &str = "merge_action";

/// WHEN clause, ready to be run.
pub(crate) struct PlannedWhen {
    pub(crate) kind: Match,
    pub(crate) condition: Option<Condition>,
    pub(crate) action: PlannedAction,
}

pub(crate) enum PlannedAction {
    Update { set: SetClause, writer: TableWriter },
    Delete,
    Insert { values: Computation, writer: TableWriter },
    Nothing,
}

impl PlannedAction {
    /// Value of `merge_action()`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            PlannedAction::Update { .. } => "UPDATE",
            PlannedAction::Delete => "DELETE",
            PlannedAction::Insert { .. } => "INSERT",
            PlannedAction::Nothing => "NOTHING",
        }
    }
}

impl PlannedWhen {
    /// Plans of the queries that compute its values.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &LogicalPlan> {
        self.computations().filter_map(Computation::plan)
    }

    /// Computations of its condition and its values.
    pub(crate) fn computations(&self) -> impl Iterator<Item = &Computation> {
        let condition = self.condition.as_ref().map(Condition::computation);
        let values = match &self.action {
            PlannedAction::Update { set, .. } => Some(&set.values),
            PlannedAction::Insert { values, .. } => Some(values),
            PlannedAction::Delete | PlannedAction::Nothing => None,
        };
        condition.into_iter().chain(values)
    }
}

/// Plans the WHEN clauses.
pub(crate) async fn whens(
    session: &SessionCore,
    merge: &MergeStatement<'_>,
    source: &MergeSource,
    joined: &JoinColumns,
) -> Result<Vec<PlannedWhen>> {
    let target = (source.target.as_str(), &joined.target);
    let both: Vec<(&str, &SchemaRef)> = std::iter::once(target).chain(joined.named_sources()).collect();
    let mut planned = Vec::with_capacity(merge.whens.len());
    for when in &merge.whens {
        let named = match when.kind {
            Match::Matched => &both[..],
            Match::ByTarget => &both[1..],
            Match::BySource => &both[..1],
        };
        let hidden = match when.kind {
            Match::Matched => None,
            Match::ByTarget => Some(target.0),
            Match::BySource => source.sources.first().map(String::as_str),
        };
        for expr in expressions(when) {
            check_names(expr, hidden)?;
        }
        let relations = Relations { named, with: merge.with };
        planned.push(planned_when(session, when, &source.table, relations, merge.returning.is_some()).await?);
    }
    Ok(planned)
}

async fn planned_when(
    session: &SessionCore,
    when: &WhenClause<'_>,
    table: &Arc<Table>,
    relations: Relations<'_>,
    returned: bool,
) -> Result<PlannedWhen> {
    let condition = match when.condition {
        None => None,
        Some(condition) => Some(Condition::new(session, "WHEN", relations, condition).await?),
    };
    let action = match &when.action {
        Action::Nothing => PlannedAction::Nothing,
        Action::Delete => PlannedAction::Delete,
        Action::Update(assignments) => {
            let set = SetClause::new(session, table, relations, assignments).await?;
            let all: Vec<usize> = (0..table.schema().visible_columns().len()).collect();
            let writer = TableWriter::new(session, table, &all)?.returned(returned);
            PlannedAction::Update { set, writer }
        }
        Action::Insert { columns, overriding, values } => {
            let (given, items) = inserted(session, table, columns, *overriding, values)?;
            let values = assigned_values(session, "VALUES", table, relations, &given, &items).await?;
            let writer = TableWriter::new(session, table, &given)?.returned(returned);
            PlannedAction::Insert { values, writer }
        }
    };
    Ok(PlannedWhen { kind: when.kind, condition, action })
}

/// Columns that an INSERT gives, and their values; those that it leaves to their defaults are left out.
fn inserted(
    session: &SessionCore,
    table: &Table,
    columns: &[ObjectName],
    overriding: Option<Overriding>,
    values: &[Expr],
) -> Result<(Vec<usize>, Vec<Item>)> {
    let targets = insert_targets(table, columns)?;
    if values.len() > targets.len() || (!columns.is_empty() && values.len() < targets.len()) {
        let (table, found, expected) = (table.name(), values.len(), targets.len());
        let message = format!("MERGE INTO {table}: {found} values for {expected} columns");
        return Err(Error::coded("42601", message));
    }
    let (mut given, mut items) = (Vec::new(), Vec::new());
    for (value, column) in values.iter().zip(targets) {
        if is_default_word(value) {
            continue;
        }
        match identity::identity(&session.catalog, table, column)? {
            Some(_) if overriding == Some(Overriding::User) => continue,
            Some(Identity::Always) if overriding != Some(Overriding::System) => {
                return Err(identity::given_always(table, column));
            }
            _ => {}
        }
        given.push(column);
        items.push(Item { expr: value.clone(), name: table.schema().columns()[column].name.clone() });
    }
    Ok((given, items))
}

fn insert_targets(table: &Table, columns: &[ObjectName]) -> Result<Vec<usize>> {
    if columns.is_empty() {
        return Ok((0..table.schema().visible_columns().len()).collect());
    }
    column_indexes(table, columns.iter())
}

fn is_default_word(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(ident) if is_default(ident))
}

/// Adds the types of parameters that alone are assigned to columns.
pub(crate) fn assigned_types(
    session: &SessionCore,
    merge: &MergeStatement<'_>,
    table: &Table,
    types: &mut Types,
) -> Result<()> {
    let columns = table.schema().columns();
    for when in &merge.whens {
        let (targets, values): (Vec<usize>, Vec<&Expr>) = match &when.action {
            Action::Update(assignments) => {
                let values = assignments.iter().map(|assignment| &assignment.value);
                (crate::dml::source::assigned_columns(table, assignments)?, values.collect())
            }
            Action::Insert { columns, values, .. } => {
                (insert_targets(table, columns)?, values.iter().collect())
            }
            Action::Delete | Action::Nothing => continue,
        };
        let targets = targets.iter().map(|&column| &columns[column]);
        types.of_assigned(values.into_iter().zip(targets), &session.zone);
    }
    Ok(())
}

/// Expressions of a WHEN clause.
fn expressions<'s>(when: &WhenClause<'s>) -> Vec<&'s Expr> {
    let values: Vec<&'s Expr> = match when.action {
        Action::Update(assignments) => assignments.iter().map(|assignment| &assignment.value).collect(),
        Action::Insert { values, .. } => values.iter().collect(),
        Action::Delete | Action::Nothing => Vec::new(),
    };
    when.condition.into_iter().chain(values).collect()
}

/// Refuses columns of the relation that a clause does not see, and `merge_action()`.
fn check_names(expr: &Expr, hidden: Option<&str>) -> Result<()> {
    // A subquery may have a relation of that name.
    let plain = !has_subquery(expr);
    let visited = visit_expressions(expr, |part| match part {
        Expr::CompoundIdentifier(parts) if plain => match parts.as_slice() {
            [relation, _] if Some(identifier(relation).as_str()) == hidden => {
                let message = format!(
                    "invalid reference to FROM-clause entry for table \"{}\": this part of MERGE cannot reference it",
                    identifier(relation)
                );
                ControlFlow::Break(Error::coded("42P01", message))
            }
            _ => ControlFlow::Continue(()),
        },
        part if is_merge_action(part) => {
            let message = "MERGE_ACTION() can only be used in the RETURNING list of a MERGE command";
            ControlFlow::Break(Error::coded("42601", message))
        }
        _ => ControlFlow::Continue(()),
    });
    match visited {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn is_merge_action(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let named = function.name.0.last().and_then(ObjectNamePart::as_ident);
    named.is_some_and(|name| identifier(name) == MERGE_ACTION)
        && matches!(&function.args, FunctionArguments::List(list) if list.args.is_empty())
}

/// Plans RETURNING: over the columns of the source, those of the target, and the action.
pub(crate) async fn returning(
    session: &SessionCore,
    items: &[SelectItem],
    merge: &MergeStatement<'_>,
    source: &MergeSource,
    joined: &JoinColumns,
) -> Result<Returning> {
    let (target, action) = (visible_schema(source.table.schema(), session.zone.name()), action_schema());
    let mut named: Vec<(&str, &SchemaRef)> = joined.named_sources().collect();
    named.push((source.target.as_str(), &target));
    // `*` is the source, then the target; for UPDATE and DELETE the target comes first.
    let mut listed = named.clone();
    listed.rotate_right(usize::from(merge.verb != MERGE));
    let mut items = returned_items(items, &listed)?;
    named.push((ACTIONS, &action));
    for item in &mut items {
        let visited: ControlFlow<()> = visit_expressions_mut(&mut item.expr, |part| {
            if merge.verb == MERGE && is_merge_action(part) {
                *part = Expr::CompoundIdentifier([ACTIONS, ACTION].map(crate::dml::source::quoted).to_vec());
            }
            ControlFlow::Continue(())
        });
        debug_assert!(visited.is_continue());
    }
    Returning::of_items(session, &source.table, Relations { named: &named, with: merge.with }, &items).await
}

/// Columns of a batch that RETURNING takes.
pub(crate) fn returned_schema(session: &SessionCore, table: &Table, joined: &JoinColumns) -> SchemaRef {
    let target = visible_schema(table.schema(), session.zone.name());
    let action = action_schema();
    let fields = joined.source.fields().iter().chain(target.fields()).chain(action.fields());
    Arc::new(ArrowSchema::new(fields.cloned().collect::<Vec<_>>()))
}

fn action_schema() -> SchemaRef {
    Arc::new(ArrowSchema::new(vec![Field::new(ACTION, ArrowType::Utf8, false)]))
}
