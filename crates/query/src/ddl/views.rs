//! CREATE VIEW and DROP VIEW, and the code shared by all DROPs of relations.
//!
//! - The columns of a view are fixed when it is created; OR REPLACE may add some behind them.
//! - Relations that a view reads cannot be dropped or renamed, unless CASCADE drops the view with it.
//! - Views are read-only.

use crate::catalog::rows::streams;
use crate::ddl::owned_tables;
use crate::error::{Error, Result};
use crate::parser::names::{identifier, refuse, table_name};
use crate::planner::parameters;
use crate::planner::query;
use crate::planner::translation;
use crate::planner::views;
use crate::postgres::types::column_type;
use crate::schema_names::{CHANGES_SCHEMA, SUBSCRIPTIONS_SCHEMA};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized;
use crate::session::result::StatementResult;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{CreateTableOptions, CreateView, ObjectName};
use entresol_tables::{Error as TableError, RelationKind, View, ViewDefinition};
use std::sync::Arc;

pub(crate) async fn create(session: &SessionCore, create: &CreateView) -> Result<StatementResult> {
    check_clauses(create)?;
    let name = table_name(&create.name)?;
    streams::check_name(&session.catalog, &name)?;
    if parameters::count(create.query.as_ref())? > 0 {
        return Err(Error::coded("42P02", "there is no parameter $1"));
    }
    let query = create.query.to_string();
    let state = Arc::new(session.context.state());
    // The plan is that of the stored text, not of the statement's.
    let (plan, reads) = views::analysed(&session.catalog, &state, &query).await?;
    query::check_reads(&plan)?;
    check_no_changes(&plan)?;
    let given: Vec<String> = create.columns.iter().map(|column| identifier(&column.name)).collect();
    let fields = plan.schema().fields();
    if given.len() > fields.len() {
        return Err(Error::coded("42601", "CREATE VIEW specifies more column names than columns"));
    }
    let rest = fields.iter().skip(given.len()).map(|field| translation::shown_name(field.name()));
    let columns: Vec<String> = given.iter().cloned().chain(rest).collect();
    if let Some((_, twice)) = columns.iter().enumerate().find(|(at, name)| columns[..*at].contains(name)) {
        return Err(Error::coded("42701", format!("column \"{twice}\" specified more than once")));
    }
    let replaced = match session.catalog.relation_kind(&name) {
        Some(_) if create.or_replace => {
            check_query(session, &name)?;
            materialized::check_dependents(&session.catalog, RelationKind::View, &name)?;
            let old = session.catalog.view(&name)?;
            let types: Vec<&ArrowType> = fields.iter().map(|field| field.data_type()).collect();
            check_replaces(session, &old, &columns, &types).await?;
            Some(old)
        }
        _ => None,
    };
    let definition = ViewDefinition { query, columns, reads };
    let catalog = Arc::clone(&session.catalog);
    blocking(move || catalog.create_view(&name, definition, replaced.as_ref()).map(drop)).await??;
    Ok(StatementResult::Done { verb: "CREATE VIEW" })
}

pub(crate) fn check_clauses(create: &CreateView) -> Result<()> {
    let declares = |column: &datafusion::sql::sqlparser::ast::ViewColumnDef| {
        column.data_type.is_some() || column.options.is_some()
    };
    refuse(
        "CREATE VIEW",
        &[
            (create.materialized, "MATERIALIZED"),
            (create.temporary, "TEMPORARY"),
            (create.or_alter, "OR ALTER"),
            (create.if_not_exists, "IF NOT EXISTS"),
            (create.secure || create.params.is_some(), "SECURITY"),
            (!matches!(create.options, CreateTableOptions::None), "WITH"),
            (create.with_no_schema_binding, "WITH NO SCHEMA BINDING"),
            (!create.cluster_by.is_empty() || create.to.is_some() || create.copy_grants, "an option"),
            (create.comment.is_some(), "COMMENT"),
            (create.columns.iter().any(declares), "a type or option of a column"),
        ],
    )
}

/// PostgreSQL's rule: the columns that are there keep their places, names and types.
async fn check_replaces(
    session: &SessionCore,
    old: &View,
    names: &[String],
    types: &[&ArrowType],
) -> Result<()> {
    let wrong = |message: String| Err(Error::coded("42P16", message));
    let old_names = &old.definition().columns;
    if names.len() < old_names.len() {
        return wrong("cannot drop columns from view".into());
    }
    if let Some((old, new)) = old_names.iter().zip(names).find(|(old, new)| old != new) {
        return wrong(format!("cannot change name of view column \"{old}\" to \"{new}\""));
    }
    // A view over a damaged relation has no types to compare.
    let Ok(plan) = views::planned(&session.catalog, &Arc::new(session.context.state()), old, 0).await else {
        return Ok(());
    };
    for ((field, new), name) in plan.schema().fields().iter().zip(types).zip(names) {
        if field.data_type() != *new {
            let (old, new) = (type_name(field.data_type()), type_name(new));
            return wrong(format!("cannot change data type of view column \"{name}\" from {old} to {new}"));
        }
    }
    Ok(())
}

fn type_name(data_type: &ArrowType) -> String {
    column_type(data_type).map_or_else(|| data_type.to_string(), |known| known.to_string().to_lowercase())
}

/// Refuses CHANGES and SUBSCRIBE: a view over them would not depend on their tables.
fn check_no_changes(plan: &LogicalPlan) -> Result<()> {
    let mut refused = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let schema = scan.table_name.schema();
            refused |= schema == Some(CHANGES_SCHEMA) || schema == Some(SUBSCRIPTIONS_SCHEMA);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if refused { Err(Error::unsupported("CHANGES in a view")) } else { Ok(()) }
}

/// Refuses to drop or replace the query of a materialized view.
fn check_query(session: &SessionCore, name: &str) -> Result<()> {
    match materialized::query_of(&session.catalog, name) {
        None => Ok(()),
        Some(view) => Err(Error::coded("2BP01", format!("{name} is the query of materialized view {view}"))),
    }
}

/// Refuses to drop a table that belongs to others, or the query of a materialized view.
pub(crate) fn check_droppable(session: &SessionCore, name: &str) -> Result<()> {
    if let Ok(table) = session.catalog.table(name) {
        owned_tables::check_owner(session, &table, "drop")?;
    }
    check_query(session, name)
}

/// Names of a DROP TABLE, DROP VIEW or DROP SEQUENCE that there are, each once; an error if one that is wanted is not there, is
/// of another kind, or belongs to others.
pub(crate) fn existing(
    session: &SessionCore,
    kind: RelationKind,
    if_exists: bool,
    names: &[ObjectName],
) -> Result<Vec<String>> {
    let mut existing = Vec::new();
    for name in names {
        let name = table_name(name)?;
        match session.catalog.relation_kind(&name) {
            Some(found) if found == kind => {
                check_droppable(session, &name)?;
                if !existing.contains(&name) {
                    existing.push(name);
                }
            }
            Some(_) => return Err(TableError::WrongKind { name, wanted: kind }.into()),
            None if if_exists => {}
            None if kind == RelationKind::Table => return Err(TableError::NoSuchTable { table: name }.into()),
            None => return Err(Error::coded("42P01", format!("{kind} \"{name}\" does not exist"))),
        }
    }
    Ok(existing)
}

/// Drops relations of one kind in one commit. No topology uses them.
pub(crate) async fn drop_all(
    session: &SessionCore,
    kind: RelationKind,
    existing: Vec<String>,
    cascade: bool,
) -> Result<()> {
    for name in &existing {
        materialized::check_dependents(&session.catalog, kind, name)?;
    }
    if existing.is_empty() {
        return Ok(());
    }
    let catalog = Arc::clone(&session.catalog);
    blocking(move || {
        let names: Vec<(RelationKind, &str)> = existing.iter().map(|name| (kind, name.as_str())).collect();
        catalog.drop_relations(&names, cascade)
    })
    .await??;
    Ok(())
}
